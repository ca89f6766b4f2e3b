//! Credentials by reference: how everything names a secret without knowing its value.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::{Exit, Report, ToReport};

/// The longest name of a secret, in bytes.
pub const MAX_REFERENCE_LEN: usize = 64;

/// The longest name of an environment variable and the longest vault path, in bytes.
const MAX_NAME_LEN: usize = 256;

/// The name of a secret: `[a-z0-9][a-z0-9._-]{0,63}`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Reference(String);

/// A text that cannot name a secret. The text itself is left out: it may be the secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a secret's name has 1 to {MAX_REFERENCE_LEN} characters out of a-z, 0-9, '.', '_' and '-', and begins with a letter or digit"
)]
pub struct InvalidReference;

/// The source of a credential in the configuration. Never the credential itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum CredentialRef {
    /// `secret:REF`: a named secret of this home.
    Secret(Reference),
    /// `env:NAME`: an environment variable of the process.
    Env(String),
    /// `vault://mount/path#field`: a field in a vault server.
    Vault {
        /// The mount of the secrets engine.
        mount: String,
        /// The path below the mount.
        path: String,
        /// The field of the secret at that path.
        field: String,
    },
}

/// The reason that a text is no credential reference. No variant holds the text: it may be the secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidCredential {
    /// The text has none of the three forms, so it is probably the secret itself.
    #[error(
        "a credential is given by reference, secret:NAME, env:NAME or vault://MOUNT/PATH#FIELD, never as its value"
    )]
    PlainText,
    /// `secret:` with a name that cannot be.
    #[error("'secret:' is not followed by a secret's name: {0}")]
    Secret(InvalidReference),
    /// `env:` with a name that cannot be.
    #[error("'env:' is not followed by the name of an environment variable")]
    Env,
    /// `vault:` in another form.
    #[error("a vault credential reads 'vault://mount/path#field'")]
    Vault,
}

impl Reference {
    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Reference {
    type Err = InvalidReference;

    fn from_str(text: &str) -> Result<Self, InvalidReference> {
        let alphanumeric = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        // Names become file names and keys of a keyring, so only plain characters are allowed.
        let valid = text.len() <= MAX_REFERENCE_LEN
            && text.bytes().next().is_some_and(alphanumeric)
            && text.bytes().all(|b| alphanumeric(b) || matches!(b, b'.' | b'_' | b'-'));
        if valid { Ok(Self(text.to_owned())) } else { Err(InvalidReference) }
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for Reference {
    type Error = InvalidReference;

    fn try_from(text: String) -> Result<Self, InvalidReference> {
        text.parse()
    }
}

impl From<Reference> for String {
    fn from(reference: Reference) -> Self {
        reference.0
    }
}

impl FromStr for CredentialRef {
    type Err = InvalidCredential;

    fn from_str(text: &str) -> Result<Self, InvalidCredential> {
        if let Some(name) = text.strip_prefix("secret:") {
            return name.parse().map(Self::Secret).map_err(InvalidCredential::Secret);
        }
        if let Some(name) = text.strip_prefix("env:") {
            return env_name(name).map(Self::Env).ok_or(InvalidCredential::Env);
        }
        if let Some(rest) = text.strip_prefix("vault:") {
            return parse_vault(rest).ok_or(InvalidCredential::Vault);
        }
        // Plain text is refused even where it looks like a name: it may be the secret.
        Err(InvalidCredential::PlainText)
    }
}

fn env_name(name: &str) -> Option<String> {
    let valid = name.len() <= MAX_NAME_LEN
        && name.bytes().next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    valid.then(|| name.to_owned())
}

fn parse_vault(rest: &str) -> Option<CredentialRef> {
    // Written like a URL, but never read as one: nothing in it is decoded.
    let (path, field) = rest.strip_prefix("//")?.split_once('#')?;
    let (mount, path) = path.split_once('/')?;
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    // A segment of dots alone would lead out of the path.
    let segment = |text: &str| !text.is_empty() && text.bytes().all(plain) && text.bytes().any(|b| b != b'.');
    let valid =
        rest.len() <= MAX_NAME_LEN && segment(mount) && segment(field) && path.split('/').all(segment);
    valid.then(|| CredentialRef::Vault {
        mount: mount.to_owned(),
        path: path.to_owned(),
        field: field.to_owned(),
    })
}

impl fmt::Display for CredentialRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Secret(reference) => write!(f, "secret:{reference}"),
            Self::Env(name) => write!(f, "env:{name}"),
            Self::Vault { mount, path, field } => write!(f, "vault://{mount}/{path}#{field}"),
        }
    }
}

impl TryFrom<String> for CredentialRef {
    type Error = InvalidCredential;

    fn try_from(text: String) -> Result<Self, InvalidCredential> {
        text.parse()
    }
}

impl From<CredentialRef> for String {
    fn from(reference: CredentialRef) -> Self {
        reference.to_string()
    }
}

impl ToReport for InvalidReference {
    fn report(&self) -> Report {
        Report::new(Exit::Usage, "secrets.invalid_name", self.to_string())
            .with_hint("choose a name such as 'anthropic' or 'mail.smtp'")
    }
}

impl ToReport for InvalidCredential {
    fn report(&self) -> Report {
        let hint = match self {
            Self::PlainText => {
                "store it with `writ secrets set NAME` and write `secret:NAME`; or name a variable, `env:NAME`"
            }
            Self::Secret(_) => "write `secret:NAME`; `writ secrets list` shows the names",
            Self::Env => "write `env:NAME`, with letters, digits and '_'",
            Self::Vault => "write for example `vault://kv/team/models#api_key`",
        };
        Report::new(Exit::Config, "secrets.invalid_credential", self.to_string()).with_hint(hint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_names_are_refused() {
        for good in ["a", "0", "openai", "mail.smtp-2_x", &"a".repeat(64)] {
            assert_eq!(good.parse::<Reference>().map(String::from), Ok(good.to_owned()));
        }
        let long = "a".repeat(65);
        for bad in [
            "",
            ".",
            "..",
            "../x",
            "a/b",
            "A",
            "a b",
            "-a",
            "_a",
            "a\0",
            "a\n",
            "ä",
            "a\u{202e}b",
            "a:b",
            &long,
        ] {
            assert_eq!(bad.parse::<Reference>(), Err(InvalidReference), "{bad:?}");
        }
    }

    /// Rows: SF-523
    #[test]
    fn credentials_have_three_forms() {
        for text in ["secret:openai", "env:OPENAI_API_KEY", "vault://kv/team/models#api_key"] {
            let parsed: CredentialRef = text.parse().expect("parses");
            assert_eq!(parsed.to_string(), text);
        }
        for bad in [
            "http://kv/a#f",
            "consul://kv/a#f",
            "secret:",
            "secret:A B",
            "env:",
            "env:1A",
            "env:A=B",
            "env:$(id)",
        ] {
            assert!(bad.parse::<CredentialRef>().is_err(), "{bad}");
        }
        // A command is not a reference: it is refused as a plain value, and never run.
        for command in ["$(printf x)", "`printf x`"] {
            assert_eq!(command.parse::<CredentialRef>(), Err(InvalidCredential::PlainText), "{command}");
        }
        for bad in [
            "vault:kv",
            "vault://kv#f",
            "vault://kv/#f",
            "vault://kv/a",
            "vault://kv/../x#f",
            "vault://kv/a?b#f",
        ] {
            assert_eq!(bad.parse::<CredentialRef>(), Err(InvalidCredential::Vault), "{bad}");
        }
    }

    #[test]
    fn a_plain_value_is_refused_with_the_command_that_mends_it_and_is_not_repeated() {
        let error = "sk-live-1234567890".parse::<CredentialRef>().expect_err("refused");
        let report = error.report();
        assert_eq!(report.exit, Exit::Config);
        assert!(report.hint.contains("writ secrets set NAME"));
        assert!(!format!("{error:?} {error} {report:?}").contains("sk-live"));
        let error = serde_json::from_str::<CredentialRef>("\"sk-live-1234567890\"").expect_err("refused");
        assert!(!error.to_string().contains("sk-live"));
    }
}
