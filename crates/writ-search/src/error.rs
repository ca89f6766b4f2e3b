//! Errors of searching and of its settings.

use std::time::Duration;

use writ_egress::error::EgressError;
use writ_types::error::{Exit, Report, ToReport};

/// Settings of `[search]` that cannot stand.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SearchConfigError {
    /// A provider that is to be asked without a key.
    #[error("search.provider is '{0}', but search.api_key is not set")]
    NoKey(&'static str),
    /// A key, or an address, without a provider.
    #[error("search.api_key and search.base_url are for a search.provider, and none is set")]
    NoProvider,
    /// No usable address.
    #[error("search.base_url: {0}")]
    BadUrl(&'static str),
}

impl ToReport for SearchConfigError {
    fn report(&self) -> Report {
        let hint = match self {
            Self::NoKey(_) => {
                "Store it with `writ secrets set search`, and write api_key = \"secret:search\"."
            }
            Self::NoProvider => "Write provider = \"brave\" or provider = \"tavily\".",
            Self::BadUrl(_) => "Leave it out to ask the provider itself.",
        };
        Report::new(Exit::Config, "search.config", self.to_string()).with_hint(hint)
    }
}

/// The reason that a key is not available.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SearchKeyError {
    /// There is no such key.
    #[error("it is not set")]
    Missing,
    /// It may be there, but cannot be read now.
    #[error("it cannot be read: {0}")]
    Unreadable(String),
}

/// The reason that a search failed. The provider's own message is left out: it may repeat our key.
#[derive(Debug, thiserror::Error)]
pub enum SearchError {
    /// The permit is for another provider, host or kind of action than is configured now.
    #[error("the search is for a provider that is not configured any more")]
    NotConfigured,
    /// There is no key now.
    #[error("the key of the search provider: {0}")]
    Key(#[from] SearchKeyError),
    /// The key cannot be sent.
    #[error("the key of the search provider holds what no header may hold")]
    BadKey,
    /// There was no way there.
    #[error(transparent)]
    Way(#[from] EgressError),
    /// The request failed on its way.
    #[error("the search provider did not answer")]
    Dropped,
    /// The provider does not take the key.
    #[error("the search provider refused the key (HTTP {0})")]
    Refused(u16),
    /// The provider wants to be asked less often, or to be paid.
    #[error("the search provider's limit is reached (HTTP {0})")]
    Limited(u16),
    /// The provider answered with another status.
    #[error("the search provider answered with HTTP {0}")]
    Status(u16),
    /// The answer is too large.
    #[error("the search provider's answer has more than {0} bytes")]
    TooLarge(usize),
    /// The answer is not in the provider's format.
    #[error("the search provider's answer is not in its format")]
    Format,
    /// It took too long.
    #[error("the search provider did not answer within {0:?}")]
    Timeout(Duration),
    /// A person or the engine has stopped it.
    #[error("the search was stopped")]
    Cancelled,
}

impl ToReport for SearchError {
    fn report(&self) -> Report {
        let text = self.to_string();
        match self {
            Self::NotConfigured => {
                Report::new(Exit::Denied, "search.not_configured", text).with_hint("Search again.")
            }
            Self::Key(_) | Self::BadKey => Report::new(Exit::Config, "search.key", text)
                .with_hint("Set the secret that search.api_key names."),
            Self::Way(error) => error.report(),
            Self::Refused(_) => Report::new(Exit::Config, "search.refused", text)
                .with_hint("Check the secret that search.api_key names."),
            Self::Limited(_) => {
                Report::new(Exit::Budget, "search.limited", text).with_hint("Search again later.")
            }
            Self::Dropped | Self::Status(_) | Self::Format | Self::TooLarge(_) => {
                Report::new(Exit::Blocked, "search.answer", text).with_hint("Search again later.")
            }
            Self::Timeout(_) => {
                Report::new(Exit::Budget, "search.timeout", text).with_hint("Search again later.")
            }
            Self::Cancelled => Report::new(Exit::Interrupted, "search.cancelled", text),
        }
    }
}
