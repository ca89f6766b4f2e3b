//! Domains: tags that a person gives to work items.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The most characters of a domain.
pub const MAX_DOMAIN_CHARS: usize = 32;

/// The most domains of one work item.
pub const MAX_DOMAINS: usize = 8;

/// A tag that names a part of the owner's life or work, such as `home`. A work item may have several, and they separate nothing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String", inline)]
pub struct DomainTag(String);

/// A text that is no domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a domain has 1 to {MAX_DOMAIN_CHARS} characters out of a-z, 0-9 and '-', and begins with a letter or digit"
)]
pub struct InvalidDomain;

// === impl DomainTag ===

impl DomainTag {
    /// Returns the tag.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for DomainTag {
    type Err = InvalidDomain;

    fn from_str(text: &str) -> Result<Self, InvalidDomain> {
        let is_allowed = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
        let is_valid = (1..=MAX_DOMAIN_CHARS).contains(&text.len())
            && text.bytes().all(is_allowed)
            && !text.starts_with('-');
        if is_valid { Ok(Self(text.to_owned())) } else { Err(InvalidDomain) }
    }
}

impl TryFrom<String> for DomainTag {
    type Error = InvalidDomain;

    fn try_from(text: String) -> Result<Self, InvalidDomain> {
        text.parse()
    }
}

impl From<DomainTag> for String {
    fn from(tag: DomainTag) -> Self {
        tag.0
    }
}

impl fmt::Display for DomainTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_domain_is_a_short_name_of_plain_characters() {
        for tag in ["home", "tax-2026", "7", &"a".repeat(MAX_DOMAIN_CHARS)] {
            assert_eq!(tag.parse::<DomainTag>().expect(tag).as_str(), tag);
        }
        for wrong in ["", "-home", "Home", "home office", "h\u{f6}me", &"a".repeat(MAX_DOMAIN_CHARS + 1)] {
            assert_eq!(wrong.parse::<DomainTag>(), Err(InvalidDomain), "{wrong}");
            assert!(serde_json::from_value::<DomainTag>(wrong.into()).is_err(), "{wrong}");
        }
    }
}
