//! The common part of every kind of unit.

use std::path::{Path, PathBuf};

/// The program that a unit starts, and its user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ServiceUnit {
    /// The program.
    pub(super) exe: PathBuf,
    /// The home.
    pub(super) home: PathBuf,
    /// The folder of its log.
    pub(super) logs: PathBuf,
    /// True if it starts with the machine, not with a user's session.
    pub(super) system: bool,
    /// The user that it runs as, for a system unit.
    pub(super) user: Option<String>,
}

impl ServiceUnit {
    /// Returns the event that starts it.
    pub(super) const fn begins_with(&self) -> &'static str {
        if self.system { "the machine" } else { "your session" }
    }

    /// The name of the user, if it is one.
    pub(super) fn user_name(&self) -> Result<Option<&str>, UnitError> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
        match self.user.as_deref() {
            None => Ok(None),
            Some(name)
                if (1..=32).contains(&name.len()) && name.bytes().all(allowed) && !name.starts_with('-') =>
            {
                Ok(Some(name))
            }
            Some(name) => Err(UnitError::User(name.chars().take(64).collect())),
        }
    }
}

/// The reason that no unit can be written.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum UnitError {
    /// A path that a line of text cannot hold.
    #[error("{0} cannot be named in a unit")]
    Path(PathBuf),
    /// No name of a user.
    #[error("'{0}' is no name of a user")]
    User(String),
}

/// A path as text: absolute, in UTF-8, without control characters.
pub(super) fn plain_path(path: &Path) -> Result<&str, UnitError> {
    let refused = || UnitError::Path(path.to_owned());
    let text = path.to_str().ok_or_else(refused)?;
    if path.is_absolute() && !text.chars().any(char::is_control) { Ok(text) } else { Err(refused()) }
}

/// Returns true if a unit names this home, in any of the ways of quoting.
pub(super) fn names_home(text: &str, home: &Path) -> bool {
    let quoted = [super::systemd::quote_path(home).ok(), super::launchd::quote_path(home).ok()];
    quoted.into_iter().flatten().any(|home| text.contains(&home))
}
