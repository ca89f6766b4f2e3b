//! The values and the TLS of PostgreSQL's protocol, for its library.

use std::error::Error;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, TlsConnect, TlsStream};
use tokio_postgres::types::{Format, IsNull, ToSql, Type, to_sql_checked};
use writ_egress::Egress;
use writ_egress::target::{IncomingBytes, TargetStream};

/// A value that goes as text, of any type.
#[derive(Debug)]
pub(crate) struct TextValue(pub(crate) Option<String>);

impl ToSql for TextValue {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        let Some(text) = &self.0 else { return Ok(IsNull::Yes) };
        out.extend_from_slice(text.as_bytes());
        Ok(IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    fn encode_format(&self, _: &Type) -> Format {
        Format::Text
    }

    to_sql_checked!();
}

/// Opens TLS by the way out.
pub(crate) struct PostgresTls {
    egress: Arc<Egress>,
    host: String,
    limit: Duration,
    incoming: Arc<OnceLock<IncomingBytes>>,
}

impl PostgresTls {
    pub(crate) fn new(egress: Arc<Egress>, host: String, limit: Duration) -> Self {
        Self { egress, host, limit, incoming: Arc::default() }
    }

    /// The place of the bound on what comes in over TLS, once there is TLS.
    pub(crate) fn incoming_slot(&self) -> Arc<OnceLock<IncomingBytes>> {
        Arc::clone(&self.incoming)
    }
}

/// A connection with TLS.
pub(crate) struct SecureStream(TargetStream);

impl TlsConnect<TargetStream> for PostgresTls {
    type Stream = SecureStream;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<SecureStream>> + Send>>;

    fn connect(self, stream: TargetStream) -> Self::Future {
        Box::pin(async move {
            // What comes in is counted inside TLS.
            stream.incoming_bytes().allow_bytes(u64::MAX);
            let secure =
                self.egress.secure_target(stream, &self.host, self.limit).await.map_err(io::Error::other)?;
            let _first = self.incoming.set(secure.incoming_bytes());
            Ok(SecureStream(secure))
        })
    }
}

impl TlsStream for SecureStream {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl AsyncRead for SecureStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for SecureStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
