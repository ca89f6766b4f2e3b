//! The first message inside a tunnel: the name of the server that the client announces, to the server and to
//! everyone on the way.

use std::time::Duration;

use rustls::server::Acceptor;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use writ_inspect::egress::host::Host;

/// The most bytes of a first message: one with every key exchange known and a cookie is below 8 KiB.
const MAX_HELLO: usize = 32 * 1024;
/// Bytes read at once.
const STEP: usize = 4 * 1024;

/// The reason why a tunnel is cut before its first byte goes out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HelloFault {
    /// The client left.
    Ended,
    /// It did not come in time.
    Slow,
    /// It is not TLS.
    NotTls,
    /// It names no host, and the tunnel's is a name.
    Unnamed,
    /// It names another host than the tunnel's.
    OtherHost,
}

impl HelloFault {
    /// A stable code.
    pub(crate) const fn fault_code(self) -> &'static str {
        match self {
            Self::Ended => "tunnel.ended",
            Self::Slow => "tunnel.slow_hello",
            Self::NotTls => "tunnel.not_tls",
            Self::Unnamed => "tunnel.no_server_name",
            Self::OtherHost => "tunnel.other_host",
        }
    }
}

/// Reads the client's first message and compares the host that it names with the tunnel's. Returns its bytes.
pub(crate) async fn read_hello(
    from: &mut (impl AsyncRead + Unpin),
    host: &Host,
    limit: Duration,
) -> Result<Vec<u8>, HelloFault> {
    tokio::time::timeout(limit, accept_hello(from, host)).await.unwrap_or(Err(HelloFault::Slow))
}

async fn accept_hello(from: &mut (impl AsyncRead + Unpin), host: &Host) -> Result<Vec<u8>, HelloFault> {
    let mut acceptor = Acceptor::default();
    let mut bytes = Vec::new();
    let mut step = [0; STEP];
    loop {
        let count = from.read(&mut step).await.unwrap_or(0);
        let mut rest = step.get(..count).unwrap_or_default();
        if rest.is_empty() {
            return Err(HelloFault::Ended);
        }
        bytes.extend_from_slice(rest);
        // A first message of TLS fits; anything longer is something else.
        if bytes.len() > MAX_HELLO {
            return Err(HelloFault::NotTls);
        }
        // The library takes a part of the bytes at a time.
        while !rest.is_empty() {
            acceptor.read_tls(&mut rest).map_err(|_| HelloFault::NotTls)?;
            if let Some(accepted) = acceptor.accept().map_err(|_| HelloFault::NotTls)? {
                return compare_names(accepted.client_hello().server_name(), host).map(|()| bytes);
            }
        }
    }
}

fn compare_names(named: Option<&str>, host: &Host) -> Result<(), HelloFault> {
    match (named, host.domain_name()) {
        // An address is no server name.
        (None, None) => Ok(()),
        (None, Some(_)) => Err(HelloFault::Unnamed),
        (Some(named), _) if named.parse::<Host>().as_ref() == Ok(host) => Ok(()),
        (Some(_), _) => Err(HelloFault::OtherHost),
    }
}
