//! The trait of a provider's wire format.

use secrecy::SecretString;
use writ_egress::http::{Client, HeaderValue, RequestBuilder, Url};

use crate::search::SearchHit;

/// A request to a provider.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SearchRequest<'a> {
    pub(crate) query: &'a str,
    /// From 1 to 20, which both providers give at once.
    pub(crate) max_results: u64,
}

/// The answer is not in the provider's format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotInFormat;

/// The key holds what no header may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoHeader;

/// A provider's wire format.
pub(crate) trait SearchFormat: Send + Sync {
    /// Returns the provider's public address.
    fn base_url(&self) -> &'static str;

    /// The request. The key goes into a header that is marked as sensitive, nowhere else.
    fn build_request(
        &self,
        client: &Client,
        base: &Url,
        key: &SecretString,
        search: SearchRequest<'_>,
    ) -> Result<RequestBuilder, NoHeader>;

    /// Returns true if this status means that the key was refused.
    fn refuses_key(&self, status: u16) -> bool;

    /// Reads the hits of an answer of status 200, in its order.
    fn read_hits(&self, body: &[u8]) -> Result<Vec<SearchHit>, NotInFormat>;
}

/// A header's value that no log shows.
pub(crate) fn sensitive_header(text: &str) -> Result<HeaderValue, NoHeader> {
    let mut value = HeaderValue::from_str(text).map_err(|_| NoHeader)?;
    // Sensitive values are left out of debug output by the HTTP client.
    value.set_sensitive(true);
    Ok(value)
}
