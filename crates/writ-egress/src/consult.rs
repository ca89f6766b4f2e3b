//! Consulting a server that the owner names about the engine's own credentials: a vault.

use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, HeaderValue};
use secrecy::{ExposeSecret as _, SecretString};
use zeroize::Zeroizing;

use crate::deliver::{DeliverError, Endpoint};
use crate::line::{HostRoute, LineLimits, MAX_CONNECTIONS, Way};
use crate::perform::Egress;

/// The most bytes that one question may send, headers and TLS included.
const MAX_QUESTION_BYTES: u64 = 256 * 1024;
/// The most bytes that an answer may bring, headers and TLS included: secrets have 64 KiB at most.
const MAX_ANSWER_BYTES: u64 = 1024 * 1024;

/// A request of the engine's own.
#[derive(Debug, Default)]
pub struct EngineRequest {
    /// Headers with secret values.
    pub headers: Vec<(&'static str, SecretString)>,
    /// The JSON that is posted; `None`: the URL is read.
    pub body: Option<Zeroizing<Vec<u8>>>,
}

/// The answer.
pub struct ConsultAnswer {
    /// The HTTP status.
    pub status: u16,
    /// The body, in memory that is wiped.
    pub body: Zeroizing<Vec<u8>>,
}

impl std::fmt::Debug for ConsultAnswer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConsultAnswer").field("status", &self.status).finish_non_exhaustive()
    }
}

/// Sends a question, as [`Egress::send_question`] says.
pub(crate) async fn send_question(
    egress: &Egress,
    at: &Endpoint,
    question: EngineRequest,
    limit: Duration,
) -> Result<ConsultAnswer, DeliverError> {
    let mut headers = Vec::new();
    for (name, value) in &question.headers {
        let value = HeaderValue::from_str(value.expose_secret());
        let mut value = value.map_err(|_| DeliverError::Credential)?;
        // Marked, so that the HTTP client never writes it into a log or an error.
        value.set_sensitive(true);
        headers.push((*name, value));
    }
    let (url, host) = at.request_parts();
    let way = Way { host, place: HostRoute::Named };
    let limits = LineLimits {
        connect: limit,
        sent: MAX_QUESTION_BYTES,
        received: MAX_ANSWER_BYTES,
        connections: MAX_CONNECTIONS,
    };
    let asking = egress.lend_client(way, limits, async move |lent| {
        let mut request = match question.body {
            Some(body) => lent.client.post(url).header(CONTENT_TYPE, "application/json").body(body.to_vec()),
            None => lent.client.get(url),
        };
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let answer = request.send().await?;
        let status = answer.status().as_u16();
        Ok::<_, reqwest::Error>(ConsultAnswer {
            status,
            body: Zeroizing::new(answer.bytes().await?.to_vec()),
        })
    });
    // The limit is one for everything, so an answer that trickles ends in time as well.
    let asked = tokio::time::timeout(limit, asking).await.map_err(|_| DeliverError::Timeout(limit))?;
    asked?.map_err(DeliverError::Request)
}
