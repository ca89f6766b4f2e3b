//! Performs the searches that the door has permitted.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use secrecy::{ExposeSecret as _, SecretString};
use tokio_util::sync::CancellationToken;
use writ_egress::{Egress, LentClient};
use writ_policy::permit::Permit;
use writ_types::action::Action;
use writ_types::credential::CredentialRef;
use writ_types::unit::Timestamp;

use crate::config::{ProviderTarget, SearchConfig};
use crate::error::{SearchConfigError, SearchError, SearchKeyError};
use crate::format::SearchRequest;

/// The time limit of a search: providers answer within a second, and a person waits.
pub const TIMEOUT: Duration = Duration::from_secs(20);
/// The largest answer, in bytes: fifty times the size of twenty results of a kilobyte each.
pub const MAX_ANSWER_BYTES: usize = 1024 * 1024;
/// The longest title, in characters.
pub const MAX_TITLE_CHARS: usize = 300;
/// The longest address, in bytes; a hit with a longer one is left out, since half an address leads nowhere.
pub const MAX_URL_BYTES: usize = 2_048;
/// The longest text of a hit, in characters.
pub const MAX_TEXT_CHARS: usize = 1_000;
/// Replaces the key where an answer repeats it.
const REDACTED: &str = "[redacted]";

/// Resolves keys of search providers. Implemented where the keyring and the environment are known.
pub trait SearchKeys: Send + Sync + 'static {
    /// The key behind a reference.
    ///
    /// # Errors
    ///
    /// If there is none, or it cannot be read.
    fn key<'a>(&'a self, key: &'a CredentialRef) -> BoxFuture<'a, Result<SecretString, SearchKeyError>>;
}

/// A hit of a search. All of its text is external.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchHit {
    /// The page's title.
    pub title: String,
    /// Its URL.
    pub url: String,
    /// An excerpt of the page.
    pub text: String,
}

/// The result of a search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchResults {
    /// The hits, the best first; at most as many as were requested.
    pub hits: Vec<SearchHit>,
    /// The number of bytes received, heads and TLS included.
    pub received: u64,
}

/// A client of the configured provider.
pub struct SearchClient {
    target: ProviderTarget,
    keys: Arc<dyn SearchKeys>,
    egress: Arc<Egress>,
}

impl fmt::Debug for SearchClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SearchClient").field("target", &self.target).finish_non_exhaustive()
    }
}

impl SearchClient {
    /// Creates the configured provider; `None` if none is configured.
    ///
    /// # Errors
    ///
    /// If the settings do not fit together.
    pub fn new(
        config: &SearchConfig,
        keys: Arc<dyn SearchKeys>,
        egress: Arc<Egress>,
    ) -> Result<Option<Self>, SearchConfigError> {
        Ok(config.search_target()?.map(|target| Self { target, keys, egress }))
    }

    /// The provider's name in the configuration.
    pub const fn provider(&self) -> &'static str {
        self.target.provider.as_str()
    }

    /// Returns the host and port that queries are sent to.
    pub fn host(&self) -> &str {
        &self.target.host
    }

    /// The most results of one search.
    pub const fn max_results(&self) -> u64 {
        self.target.max_results
    }

    /// Checks that there is a key now.
    ///
    /// # Errors
    ///
    /// If there is none, or it cannot be read.
    pub async fn check_key(&self) -> Result<(), SearchKeyError> {
        self.keys.key(&self.target.key).await.map(|_| ())
    }

    /// Performs [`Action::Search`]: asks the configured provider, once. No redirect is followed. The permit
    /// must name the configured provider and host, since the key belongs to them.
    ///
    /// # Errors
    ///
    /// If the permit is too old or for another provider, there is no key, or no proper answer came in time,
    /// or `cancel` came first.
    pub async fn run_search(
        &self,
        permit: Permit,
        now: Timestamp,
        cancel: &CancellationToken,
    ) -> Result<SearchResults, SearchError> {
        // Checked again here, although the door decided: the key must go to no other host.
        let Action::Search(search) = permit.action().clone() else { return Err(SearchError::NotConfigured) };
        if search.provider != self.provider() || search.host != self.target.host {
            return Err(SearchError::NotConfigured);
        }
        let key = self.keys.key(&self.target.key).await?;
        // An empty key would be sent and refused; this error names the cause.
        if key.expose_secret().is_empty() {
            return Err(SearchKeyError::Missing.into());
        }
        let request = SearchRequest {
            query: &search.query,
            max_results: search.max_results.min(self.target.max_results),
        };
        let asking = self.egress.perform_permit(permit, now, |lent| self.ask_provider(lent, &key, request));
        // Biased: a cancelled search must not use its answer.
        let asked = tokio::select! {
            biased;
            () = cancel.cancelled() => return Err(SearchError::Cancelled),
            asked = tokio::time::timeout(TIMEOUT, asking) => asked,
        };
        asked.map_err(|_| SearchError::Timeout(TIMEOUT))??
    }

    async fn ask_provider(
        &self,
        lent: LentClient,
        key: &SecretString,
        search: SearchRequest<'_>,
    ) -> Result<SearchResults, SearchError> {
        let format = self.target.provider.wire_format();
        let request = format.build_request(&lent.client, &self.target.base, key, search);
        let mut answer =
            request.map_err(|_| SearchError::BadKey)?.send().await.map_err(|_| SearchError::Dropped)?;
        match answer.status().as_u16() {
            200 => {}
            status if format.refuses_key(status) => return Err(SearchError::Refused(status)),
            // Tavily says 432 and 433 where a plan is used up.
            status @ (402 | 429 | 432 | 433) => return Err(SearchError::Limited(status)),
            status => return Err(SearchError::Status(status)),
        }
        let mut body = Vec::new();
        while let Some(chunk) = answer.chunk().await.map_err(|_| SearchError::Dropped)? {
            // Bounded while it is read: a provider could send without end.
            if body.len().saturating_add(chunk.len()) > MAX_ANSWER_BYTES {
                return Err(SearchError::TooLarge(MAX_ANSWER_BYTES));
            }
            body.extend_from_slice(&chunk);
        }
        let hits = format.read_hits(&body).map_err(|_| SearchError::Format)?;
        let most = usize::try_from(search.max_results).unwrap_or(usize::MAX);
        // Hits are filtered before the limit, so that a bad one does not take a place.
        let hits = hits.into_iter().filter_map(|hit| bound_hit(hit, key)).take(most).collect();
        Ok(SearchResults { hits, received: lent.received_bytes() })
    }
}

/// Cuts a hit to its bounds and removes our key from its texts; `None` if its URL is too long, not of the web, or holds the key.
pub(crate) fn bound_hit(hit: SearchHit, key: &SecretString) -> Option<SearchHit> {
    // Only URLs of the web: the model may read them next.
    let web = hit.url.starts_with("https://") || hit.url.starts_with("http://");
    let key = key.expose_secret();
    if !web || hit.url.len() > MAX_URL_BYTES || hit.url.contains(key) {
        return None;
    }
    let text = |text: &str, most| text.replace(key, REDACTED).chars().take(most).collect();
    Some(SearchHit {
        title: text(&hit.title, MAX_TITLE_CHARS),
        text: text(&hit.text, MAX_TEXT_CHARS),
        url: hit.url,
    })
}

#[cfg(test)]
mod tests;
