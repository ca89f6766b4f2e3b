//! The kinds of values that keys have, and how a value is checked.

use std::net::IpAddr;
use std::path::Path;

use toml::Value;
use writ_inspect::egress::host::{Host, HostPattern};
use writ_types::calendar::{NoRecurrence, Recurrence};

/// The largest number that TOML can write.
pub(super) const MOST: u64 = i64::MAX as u64;

/// The kind of a key's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ValueKind {
    /// `true` or `false`.
    Flag,
    /// A whole number between two bounds.
    Whole(u64, u64),
    /// A number from 0.0 to 1.0.
    Share,
    /// Any number.
    Number,
    /// A text that is not empty.
    Text,
    /// A text that may be empty.
    AnyText,
    /// A path; relative ones begin at the home.
    Folder,
    /// A list of absolute paths.
    Folders,
    /// A list of texts.
    Texts,
    /// One of a few words.
    OneOf(&'static [&'static str]),
    /// A list of some of a few words.
    SomeOf(&'static [&'static str]),
    /// A recurring time of the calendar.
    Recurrence,
    /// A host, by name or address.
    Host,
    /// A list of hosts, each with a port or without; `*.` stands for everything below.
    Hosts,
    /// An address of the network.
    Address,
    /// An `http` or `https` address without user name and password.
    Url,
    /// A reference to a credential, never its value.
    Credential,
}

impl ValueKind {
    /// Checks that a value is of this kind; the error is the expected kind. The value is never repeated: it
    /// may be a secret in the wrong place.
    pub(crate) fn check_value(self, value: &Value) -> Result<(), String> {
        let fits = match self {
            Self::Flag => value.is_bool(),
            Self::Whole(least, most) => value
                .as_integer()
                .and_then(|number| u64::try_from(number).ok())
                .is_some_and(|number| (least..=most).contains(&number)),
            Self::Share => value
                .as_float()
                .or_else(|| match value.as_integer() {
                    Some(0) => Some(0.0),
                    Some(1) => Some(1.0),
                    Some(_) | None => None,
                })
                .is_some_and(|share| (0.0..=1.0).contains(&share)),
            Self::Number => value.is_integer() || value.as_float().is_some_and(f64::is_finite),
            Self::Text | Self::Folder => value.as_str().is_some_and(|text| !text.trim().is_empty()),
            Self::AnyText => value.is_str(),
            Self::Recurrence => value.as_str().is_some_and(|text| text.parse::<Recurrence>().is_ok()),
            Self::Folders => {
                // `~` is expanded afterwards, or refused there.
                let is_whole = |path: &str| Path::new(path).is_absolute() || path.starts_with('~');
                let absolute = |item: &Value| item.as_str().is_some_and(is_whole);
                value.as_array().is_some_and(|items| items.iter().all(absolute))
            }
            Self::Texts => value.as_array().is_some_and(|items| items.iter().all(Value::is_str)),
            Self::OneOf(words) => value.as_str().is_some_and(|text| words.contains(&text)),
            Self::SomeOf(words) => {
                let known = |item: &Value| item.as_str().is_some_and(|text| words.contains(&text));
                value.as_array().is_some_and(|items| items.iter().all(known))
            }
            Self::Host => value.as_str().is_some_and(|text| text.parse::<Host>().is_ok()),
            Self::Hosts => {
                let fits = |item: &Value| item.as_str().is_some_and(|t| t.parse::<HostPattern>().is_ok());
                value.as_array().is_some_and(|items| items.iter().all(fits))
            }
            Self::Address => value.as_str().is_some_and(|text| text.parse::<IpAddr>().is_ok()),
            Self::Url => value.as_str().is_some_and(is_plain_url),
            Self::Credential => value
                .as_str()
                .is_some_and(|text| text.parse::<writ_types::credential::CredentialRef>().is_ok()),
        };
        if fits { Ok(()) } else { Err(self.expected_kind()) }
    }

    /// Describes the kind of its values.
    fn expected_kind(self) -> String {
        match self {
            Self::Flag => "true or false".into(),
            Self::Whole(least, MOST) => format!("a whole number of at least {least}"),
            Self::Whole(least, most) => format!("a whole number from {least} to {most}"),
            Self::Share => "a number from 0.0 to 1.0".into(),
            Self::Number => "a number".into(),
            Self::Text => "a text that is not empty".into(),
            Self::AnyText => "a text".into(),
            Self::Recurrence => NoRecurrence.to_string(),
            Self::Folder => "a path, as text".into(),
            Self::Folders => "a list of absolute paths".into(),
            Self::Texts => "a list of texts".into(),
            Self::OneOf(words) => {
                let quoted: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
                format!("one of {}", quoted.join(", "))
            }
            Self::SomeOf(words) => format!("a list of some of: {}", words.join(", ")),
            Self::Host => "a host, such as \"docs.rs\"".into(),
            Self::Hosts => {
                "a list of hosts, such as \"docs.rs\", \"*.example.org\" or \"git.example.org:9418\"".into()
            }
            Self::Address => "an address, such as \"192.0.2.7\" or \"2001:db8::7\"".into(),
            Self::Url => "an http or https address without user name and password".into(),
            Self::Credential => {
                "a reference: \"secret:NAME\", \"env:NAME\" or \"vault://MOUNT/PATH#FIELD\", \
                                 never the value itself (`writ secrets set NAME` stores one)"
                    .into()
            }
        }
    }

    /// Reads the text of an environment variable as a value of this kind.
    pub(crate) fn parse_text(self, text: &str) -> Result<Value, String> {
        let typed = || {
            let mut table = format!("value = {text}").parse::<toml::Table>().ok()?;
            // A second line would be a second key.
            if table.len() == 1 { table.remove("value") } else { None }
        };
        let value = match self {
            Self::Flag
            | Self::Whole(..)
            | Self::Share
            | Self::Number
            | Self::Folders
            | Self::Texts
            | Self::SomeOf(_)
            | Self::Hosts => typed().ok_or_else(|| self.expected_kind())?,
            Self::Text
            | Self::Recurrence
            | Self::AnyText
            | Self::Folder
            | Self::OneOf(_)
            | Self::Host
            | Self::Address
            | Self::Url
            | Self::Credential => Value::String(text.to_owned()),
        };
        self.check_value(&value).map(|()| value)
    }
}

fn is_plain_url(text: &str) -> bool {
    let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
    let Some(rest) = rest else { return false };
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    !host.is_empty() && !host.contains('@') && !text.chars().any(char::is_whitespace)
}
