//! The limits of their rate that providers state, for people and for programs outside. A number of them comes out as text or as JSON
//! alone, so no code of ours can decide by one.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::unit::Timestamp;

/// The limits that a provider stated with one answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StatedLimits {
    /// The time of the answer that stated them.
    at: Timestamp,
    /// Of requests.
    requests: StatedLimit,
    /// Of tokens; where a provider counts input and output apart, the one of which less is left.
    tokens: StatedLimit,
    /// The headers that stated them, as they were sent.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    headers: BTreeMap<String, String>,
}

/// One limit that a provider stated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StatedLimit {
    /// The most in a period.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    limit: Option<u64>,
    /// The rest of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    remaining: Option<u64>,
    /// The time at which it is whole again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reset: Option<Timestamp>,
}

/// The limits that one provider stated last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProviderLimits {
    /// The provider, by its name in the configuration.
    pub provider: String,
    /// The limits.
    pub stated: StatedLimits,
}

impl StatedLimits {
    /// The limits of an answer that came at `at`, with the headers that stated them.
    pub const fn new(
        at: Timestamp,
        requests: StatedLimit,
        tokens: StatedLimit,
        headers: BTreeMap<String, String>,
    ) -> Self {
        Self { at, requests, tokens, headers }
    }

    /// Describes them in one line: what is left of requests and tokens, else the headers.
    pub fn describe_line(&self) -> String {
        let both = [self.requests.describe_of("requests"), self.tokens.describe_of("tokens")];
        let mut parts: Vec<String> = both.into_iter().flatten().collect();
        if parts.is_empty() {
            // A wait or a policy alone has no count.
            parts.extend(self.headers.iter().map(|(name, value)| format!("{name}: {value}")));
        }
        format!("said at {}: {}", self.at, parts.join("; "))
    }
}

impl StatedLimit {
    /// A limit: the most in a period, what is left of it, and the time at which it is whole again, each if it was stated.
    pub const fn new(limit: Option<u64>, remaining: Option<u64>, reset: Option<Timestamp>) -> Self {
        Self { limit, remaining, reset }
    }

    fn describe_of(&self, name: &str) -> Option<String> {
        let left = self.remaining.map(|left| format!("{left} {name} left"))?;
        let of = self.limit.map(|limit| format!(" of {limit}")).unwrap_or_default();
        let reset = self.reset.map(|reset| format!(", whole again at {reset}")).unwrap_or_default();
        Some(format!("{left}{of}{reset}"))
    }
}

impl ProviderLimits {
    /// Describes them in one line.
    pub fn describe_line(&self) -> String {
        format!("{} {}", self.provider, self.stated.describe_line())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_what_is_left_or_else_quotes_the_headers() {
        let at = Timestamp::from_millis(0);
        let headers = BTreeMap::from([("retry-after".to_owned(), "7".to_owned())]);
        let none = StatedLimit::default();
        let stated = |requests, tokens| StatedLimits::new(at, requests, tokens, headers.clone());
        let spent = StatedLimit::new(Some(60), Some(0), Some(at));
        let some = StatedLimit::new(None, Some(9), None);
        let line = stated(spent, some).describe_line();
        assert_eq!(line, format!("said at {at}: 0 requests left of 60, whole again at {at}; 9 tokens left"));
        let one = ProviderLimits { provider: "p".to_owned(), stated: stated(none, none) };
        assert_eq!(one.describe_line(), format!("p said at {at}: retry-after: 7"));
    }
}
