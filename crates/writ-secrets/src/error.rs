//! Errors about secrets. No variant holds a value.

use std::io;
use std::path::PathBuf;

use writ_types::credential::Reference;
use writ_types::error::{Exit, Report, ToReport};

use crate::backend::Backend;

/// The reason why an operation on secrets or keys failed.
#[derive(Debug, thiserror::Error)]
pub enum SecretsError {
    /// The folder holds no store.
    #[error("the keys folder holds no store yet")]
    NotCreated,
    /// The folder holds a store already.
    #[error("the keys folder holds a store already ({0})")]
    AlreadyCreated(Backend),
    /// A file of a former store lies in the folder, without the record that would say what it is.
    #[error("'{0}' lies in the keys folder, but no 'backend.toml' does")]
    Leftover(&'static str),
    /// The keyring cannot be reached.
    #[error("the keyring of the operating system cannot be reached: {0}")]
    KeyringUnavailable(&'static str),
    /// The keyring is there, but locked.
    #[error("the keyring of the operating system is locked")]
    KeyringLocked,
    /// The files are encrypted and no passphrase was given.
    #[error("the secrets are encrypted and no passphrase was given")]
    PassphraseNeeded,
    /// An empty passphrase.
    #[error("the passphrase is empty")]
    PassphraseEmpty,
    /// The passphrase does not open the file.
    #[error("the passphrase does not open '{0}'")]
    WrongPassphrase(String),
    /// A file may be read or written by others.
    #[error("'{name}' has mode {mode:04o}; others could read or change it")]
    WrongMode {
        /// The file, relative to the keys folder.
        name: String,
        /// Its whole path, for the log.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
        /// The permission bits that it should have.
        wanted: u32,
    },
    /// A file belongs to another user.
    #[error("'{name}' belongs to user {owner}")]
    WrongOwner {
        /// The file, relative to the keys folder.
        name: String,
        /// Its whole path, for the log.
        path: PathBuf,
        /// The user id of its owner.
        owner: u32,
    },
    /// A link, a folder or a special file where a file should be.
    #[error("'{name}' is not a regular file")]
    NotAFile {
        /// The file, relative to the keys folder.
        name: String,
    },
    /// A file is cut, changed or of an unknown form.
    #[error("'{name}' is damaged: {reason}")]
    Damaged {
        /// The file or keyring entry.
        name: String,
        /// The defect.
        reason: &'static str,
    },
    /// A bound was exceeded.
    #[error("{what} is over the limit of {limit}")]
    TooLarge {
        /// The thing that is too large.
        what: &'static str,
        /// The limit, in bytes or pieces.
        limit: usize,
    },
    /// A secret without a value.
    #[error("the value of '{0}' is empty")]
    EmptyValue(Reference),
    /// There is no such secret.
    #[error("there is no secret '{0}'")]
    NoSuchSecret(Reference),
    /// There is no such key.
    #[error("there is no {0} key yet")]
    NoSuchKey(&'static str),
    /// The key exists: it is never overwritten silently.
    #[error("there is a {0} key already")]
    KeyExists(&'static str),
    /// Another process holds the lock of the keys folder.
    #[error("another process is changing the keys folder and does not finish")]
    Busy,
    /// The operating system gave no random bytes.
    #[error("the operating system gave no random bytes")]
    NoRandomness,
    /// A file operation failed.
    #[error("'{name}' cannot be {action}: {source}")]
    Io {
        /// The file, relative to the keys folder.
        name: String,
        /// The attempted action.
        action: &'static str,
        /// The error of the operating system.
        source: io::Error,
    },
}

impl SecretsError {
    /// Stable code, exit code and hint.
    fn classify_error(&self) -> (&'static str, Exit, String) {
        use Exit::{Blocked, Bug, Config, Usage};
        match self {
            Self::NotCreated => ("secrets.not_created", Config, "run `writ init`".into()),
            Self::AlreadyCreated(_) => (
                "secrets.already_created",
                Usage,
                "nothing was changed; remove the keys folder to begin anew".into(),
            ),
            Self::Leftover(name) => {
                ("secrets.leftover", Config, format!("move 'keys/{name}' away, then try again"))
            }
            Self::KeyringUnavailable(_) => (
                "secrets.keyring_unavailable",
                Blocked,
                "log in to a desktop session, or set up the home with an encrypted file instead".into(),
            ),
            Self::KeyringLocked => {
                ("secrets.keyring_locked", Blocked, "unlock the keyring and try again".into())
            }
            Self::PassphraseNeeded => (
                "secrets.passphrase_needed",
                Blocked,
                "run the command in a terminal, which asks for it".into(),
            ),
            Self::PassphraseEmpty => {
                ("secrets.passphrase_empty", Usage, "choose one that is not empty".into())
            }
            Self::WrongPassphrase(_) => ("secrets.wrong_passphrase", Blocked, "try again".into()),
            Self::WrongMode { name, wanted, .. } => (
                "secrets.wrong_mode",
                Config,
                format!(
                    "chmod {wanted:04o} {name}, in the home; if others had access, replace what it holds"
                ),
            ),
            Self::WrongOwner { name, .. } => {
                ("secrets.wrong_owner", Config, format!("chown {name} to yourself, or use another home"))
            }
            Self::NotAFile { name } => {
                ("secrets.not_a_file", Config, format!("move '{name}' away; it should be a regular file"))
            }
            Self::Damaged { .. } => ("secrets.damaged", Config, "restore it from a backup".into()),
            Self::TooLarge { .. } => ("secrets.too_large", Usage, "store a shorter value, or fewer".into()),
            Self::EmptyValue(name) => ("secrets.empty_value", Usage, format!("writ secrets set {name}")),
            Self::NoSuchSecret(_) => {
                ("secrets.no_such_secret", Usage, "`writ secrets list` names those that are there".into())
            }
            Self::NoSuchKey(role) => ("secrets.no_such_key", Config, format!("writ keys {role}")),
            Self::KeyExists(_) => ("secrets.key_exists", Usage, "nothing was changed".into()),
            Self::Busy => ("secrets.busy", Blocked, "wait for the other command, or end it".into()),
            Self::NoRandomness => ("secrets.no_randomness", Bug, Bug.advice().into()),
            Self::Io { .. } => {
                ("secrets.io", Blocked, "check the disk and the permissions of the keys folder".into())
            }
        }
    }
}

impl ToReport for SecretsError {
    fn report(&self) -> Report {
        let (code, exit, hint) = self.classify_error();
        let report = Report::new(exit, code, self.to_string()).with_hint(hint);
        match self {
            Self::WrongMode { path, .. } | Self::WrongOwner { path, .. } => {
                let inside = format!("{self} ({})", path.display());
                report.with_inside(inside)
            }
            Self::NotCreated
            | Self::AlreadyCreated(_)
            | Self::Leftover(_)
            | Self::KeyringUnavailable(_)
            | Self::KeyringLocked
            | Self::PassphraseNeeded
            | Self::PassphraseEmpty
            | Self::WrongPassphrase(_)
            | Self::NotAFile { .. }
            | Self::Damaged { .. }
            | Self::TooLarge { .. }
            | Self::EmptyValue(_)
            | Self::NoSuchSecret(_)
            | Self::NoSuchKey(_)
            | Self::KeyExists(_)
            | Self::Busy
            | Self::NoRandomness
            | Self::Io { .. } => report,
        }
    }
}
