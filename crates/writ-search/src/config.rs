//! The table `[search]` of the configuration.

use serde::{Deserialize, Serialize};
use writ_egress::http::Url;
use writ_types::credential::CredentialRef;

use crate::brave::Brave;
use crate::error::SearchConfigError;
use crate::format::SearchFormat;
use crate::tavily::Tavily;

/// A search provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SearchProvider {
    /// The Brave Search API.
    Brave,
    /// Tavily.
    Tavily,
}

impl SearchProvider {
    /// Every provider.
    pub const ALL: [Self; 2] = [Self::Brave, Self::Tavily];

    /// The name in the configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Brave => "brave",
            Self::Tavily => "tavily",
        }
    }

    /// Returns its wire format.
    pub(crate) fn wire_format(self) -> &'static dyn SearchFormat {
        match self {
            Self::Brave => &Brave,
            Self::Tavily => &Tavily,
        }
    }
}

/// Searching the web. Without a provider there is no such tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SearchConfig {
    /// The search provider. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<SearchProvider>,
    /// The key, by reference. A provider needs one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_key: Option<CredentialRef>,
    /// The provider's address. Default: its public one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_url: Option<String>,
    /// The most results of one search, from 1 to 20. Default: 8, which a model reads for about 2,000 tokens.
    pub max_results: u64,
}

impl Default for SearchConfig {
    fn default() -> Self {
        Self { provider: None, api_key: None, base_url: None, max_results: 8 }
    }
}

/// A provider that can be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProviderTarget {
    pub(crate) provider: SearchProvider,
    pub(crate) base: Url,
    /// Host and port.
    pub(crate) host: String,
    pub(crate) key: CredentialRef,
    pub(crate) max_results: u64,
}

impl SearchConfig {
    /// Checks that the settings fit together.
    ///
    /// # Errors
    ///
    /// If there is a provider without a key, a key without a provider, or an address that a key cannot go to.
    pub fn check_settings(&self) -> Result<(), SearchConfigError> {
        self.search_target().map(|_| ())
    }

    /// Returns the provider and its address; `None` if none is configured.
    pub(crate) fn search_target(&self) -> Result<Option<ProviderTarget>, SearchConfigError> {
        let Some(provider) = self.provider else {
            // A key or an address without a provider is most likely a mistake.
            let lonely = self.api_key.is_some() || self.base_url.is_some();
            return if lonely { Err(SearchConfigError::NoProvider) } else { Ok(None) };
        };
        let key = self.api_key.clone().ok_or(SearchConfigError::NoKey(provider.as_str()))?;
        let text = self.base_url.as_deref().unwrap_or_else(|| provider.wire_format().base_url());
        let (base, host) = usable_url(text).map_err(SearchConfigError::BadUrl)?;
        Ok(Some(ProviderTarget { provider, base, host, key, max_results: self.max_results }))
    }
}

/// Checks an address; returns it with a final `/`, and its host and port.
fn usable_url(text: &str) -> Result<(Url, String), &'static str> {
    let mut url = Url::parse(text).map_err(|_| "it is not a URL")?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err("it is neither http nor https");
    }
    if !url.username().is_empty() || url.password().is_some() || url.query().is_some() {
        return Err("it holds more than an address: use api_key");
    }
    let host = url.host_str().ok_or("it has no host")?.to_owned();
    let port = url.port_or_known_default().ok_or("it has no port")?;
    let address = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
    let here = host == "localhost" || address.is_ok_and(|address| address.is_loopback());
    if url.scheme() == "http" && !here {
        return Err("the key would be sent where others can read it: use https");
    }
    if !url.path().ends_with('/') {
        let path = format!("{}/", url.path());
        url.set_path(&path);
    }
    Ok((url, format!("{host}:{port}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(provider: Option<SearchProvider>, key: Option<&str>, base: Option<&str>) -> SearchConfig {
        SearchConfig {
            provider,
            api_key: key.map(|key| key.parse().expect("a reference")),
            base_url: base.map(str::to_owned),
            ..SearchConfig::default()
        }
    }

    /// Rows: SIL-263
    #[test]
    fn a_provider_needs_a_key_and_without_a_provider_there_is_no_search() {
        assert_eq!(config(None, None, None).search_target(), Ok(None));
        for provider in SearchProvider::ALL {
            let name = provider.as_str();
            assert_eq!(
                config(Some(provider), None, None).check_settings(),
                Err(SearchConfigError::NoKey(name))
            );
            let target = config(Some(provider), Some("secret:search"), None).search_target().expect("stands");
            let target = target.expect("a target");
            assert!(target.host.ends_with(":443") && target.base.scheme() == "https", "{target:?}");
        }
        assert_eq!(
            config(None, Some("secret:search"), None).check_settings(),
            Err(SearchConfigError::NoProvider)
        );
    }

    #[test]
    fn a_key_is_sent_over_tls_or_not_beyond_this_machine() {
        let validate =
            |base| config(Some(SearchProvider::Brave), Some("env:KEY"), Some(base)).check_settings();
        for good in
            ["http://127.0.0.1:8080", "http://localhost:1/x", "http://[::1]:80/", "https://s.example/v1"]
        {
            assert_eq!(validate(good), Ok(()), "{good}");
        }
        for bad in [
            "http://s.example/",
            "https://u:p@s.example/",
            "https://s.example/?key=1",
            "ftp://127.0.0.1/",
            "x",
            "",
        ] {
            assert!(matches!(validate(bad), Err(SearchConfigError::BadUrl(_))), "{bad}");
        }
    }
}
