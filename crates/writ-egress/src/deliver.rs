//! Delivering what the engine itself has to tell to a place that the owner's configuration names: traces.

use std::time::Duration;

use reqwest::Url;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use secrecy::{ExposeSecret as _, SecretString};

use crate::error::EgressError;
use crate::host::HostPort;
use crate::line::{HostRoute, LineLimits, MAX_CONNECTIONS, Way};
use crate::perform::Egress;

/// The most bytes that one delivery may send, headers included.
pub const MAX_DELIVERY_BYTES: u64 = 4 * 1024 * 1024;
/// The most bytes that an answer may bring, TLS included. Only its status is of interest.
const MAX_ANSWER_BYTES: u64 = 256 * 1024;
/// The most bytes that asking for a head may send, TLS included.
const MAX_KNOCK_BYTES: u64 = 16 * 1024;
/// The longest wait that an answer can ask for.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(5 * 60);

/// The place of the owner's to which something is delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    url: Url,
    host: HostPort,
}

/// A text that is no place to deliver to. It is not repeated: what is wrong with it may be a credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an http or https address without user name, password and query")]
pub struct InvalidEndpoint;

impl Endpoint {
    /// The place `path` below the address `base`; a base that ends with `path` already is taken as it is.
    ///
    /// # Errors
    ///
    /// If the address is not an `http` or `https` one, names no host, or holds a credential.
    pub fn path_below(base: &str, path: &str) -> Result<Self, InvalidEndpoint> {
        let mut url: Url = base.parse().map_err(|_| InvalidEndpoint)?;
        // A key within an address would be shown wherever the address is; keys have settings of their own.
        let bare = url.username().is_empty() && url.password().is_none() && url.query().is_none();
        if !matches!(url.scheme(), "http" | "https") || !bare || url.fragment().is_some() {
            return Err(InvalidEndpoint);
        }
        let above = url.path().trim_end_matches('/');
        // The owner may have written the whole address, path included.
        let whole = if above.ends_with(path) { above.to_owned() } else { format!("{above}{path}") };
        url.set_path(&whole);
        let (host, port) = (url.host_str().ok_or(InvalidEndpoint)?, url.port_or_known_default());
        let host = format!("{host}:{}", port.ok_or(InvalidEndpoint)?).parse().map_err(|_| InvalidEndpoint)?;
        Ok(Self { url, host })
    }

    /// Its address, and the host that is connected to.
    pub(crate) fn request_parts(&self) -> (Url, HostPort) {
        (self.url.clone(), self.host.clone())
    }

    /// The host and the port, as a permit names them.
    pub fn host(&self) -> String {
        self.host.to_string()
    }

    /// Returns true if the way there is private: over TLS, or not beyond this machine.
    pub fn is_private(&self) -> bool {
        let host = self.url.host_str().unwrap_or_default().trim_matches(['[', ']']);
        let here = host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
        self.url.scheme() == "https" || here || host == "localhost"
    }
}

/// The answer of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeliveryReceipt {
    /// The HTTP status.
    pub status: u16,
    /// The time for which it asks not to be called again.
    pub retry_after: Option<Duration>,
}

/// The reason why a delivery failed, or why its outcome is unknown.
#[derive(Debug, thiserror::Error)]
pub enum DeliverError {
    /// There was no way there.
    #[error(transparent)]
    Way(#[from] EgressError),
    /// The request failed on its way.
    #[error("the request failed: {0}")]
    Request(#[source] reqwest::Error),
    /// It took too long.
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    /// The credential cannot be a header.
    #[error("the credential cannot be sent: it holds characters that no header may hold")]
    Credential,
}

/// Posts a body, as [`Egress::post_report`] says.
pub(crate) async fn post_report(
    egress: &Egress,
    to: &Endpoint,
    content_type: &'static str,
    bearer: Option<&SecretString>,
    body: Vec<u8>,
    limit: Duration,
) -> Result<DeliveryReceipt, DeliverError> {
    let mut authorization = None;
    if let Some(bearer) = bearer {
        let value = format!("Bearer {}", bearer.expose_secret());
        let mut value = HeaderValue::from_str(&value).map_err(|_| DeliverError::Credential)?;
        // Marked, so that the HTTP client never writes it into a log or an error.
        value.set_sensitive(true);
        authorization = Some(value);
    }
    let way = Way { host: to.host.clone(), place: HostRoute::Named };
    let (sent, received) = (MAX_DELIVERY_BYTES, MAX_ANSWER_BYTES);
    let limits = LineLimits { connect: limit, sent, received, connections: MAX_CONNECTIONS };
    let url = to.url.clone();
    let posting = egress.lend_client(way, limits, async move |lent| {
        let mut request = lent.client.post(url).header(CONTENT_TYPE, content_type).body(body);
        if let Some(authorization) = authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        let answer = request.send().await?;
        let retry_after = read_retry_after(answer.headers());
        Ok::<_, reqwest::Error>(DeliveryReceipt { status: answer.status().as_u16(), retry_after })
    });
    let posted = tokio::time::timeout(limit, posting).await.map_err(|_| DeliverError::Timeout(limit))?;
    posted?.map_err(DeliverError::Request)
}

/// Reads for how long a server asks not to be called again.
pub(crate) fn read_retry_after(headers: &HeaderMap) -> Option<Duration> {
    let secs = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    // Capped, since a server could otherwise put the next try off for ever.
    Some(Duration::from_secs(secs).min(MAX_RETRY_AFTER))
}

/// Asks for a head, as [`Egress::probe_endpoint`] says.
pub(crate) async fn request_head(
    egress: &Egress,
    at: &Endpoint,
    limit: Duration,
) -> Result<u16, DeliverError> {
    let way = Way { host: at.host.clone(), place: HostRoute::Named };
    let (sent, received) = (MAX_KNOCK_BYTES, MAX_ANSWER_BYTES);
    let limits = LineLimits { connect: limit, sent, received, connections: MAX_CONNECTIONS };
    let url = at.url.clone();
    let knocking = egress.lend_client(way, limits, async move |lent| lent.client.head(url).send().await);
    let answer = tokio::time::timeout(limit, knocking).await.map_err(|_| DeliverError::Timeout(limit))?;
    Ok(answer?.map_err(DeliverError::Request)?.status().as_u16())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_an_address_without_credentials() {
        let url =
            |base: &str| Endpoint::path_below(base, "/v1/traces").map(|endpoint| endpoint.url.to_string());
        for base in ["http://localhost:4318", "http://localhost:4318/", "http://localhost:4318/v1/traces"] {
            assert_eq!(url(base).as_deref(), Ok("http://localhost:4318/v1/traces"), "{base}");
        }
        assert_eq!(url("https://o.example/otlp").as_deref(), Ok("https://o.example/otlp/v1/traces"));
        let host = |base: &str| Endpoint::path_below(base, "/x").expect("an endpoint").host.to_string();
        assert_eq!(host("https://o.example"), "o.example:443");
        assert_eq!(host("http://[::1]:9"), "[::1]:9");
        for bad in
            ["", "localhost:4318", "ftp://h", "http://", "http://u:p@h", "https://h/?k=v", "file:///etc"]
        {
            assert!(url(bad).is_err(), "{bad}");
        }
        let private = |base: &str| Endpoint::path_below(base, "/x").expect("an endpoint").is_private();
        for base in ["https://o.example", "http://localhost:4318", "http://127.0.0.9", "http://[::1]:9"] {
            assert!(private(base), "{base}");
        }
        for base in ["http://o.example", "http://10.0.0.1", "http://localhost.example"] {
            assert!(!private(base), "{base}");
        }
    }
}
