//! Errors: exit codes, stable error codes, and two messages for each error.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The exit codes of `writ`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum Exit {
    /// Done.
    Done = 0,
    /// A bug in Writ.
    Bug = 1,
    /// The command was used wrongly.
    Usage = 2,
    /// Invalid configuration, unreadable home, changed migration, network file system.
    Config = 3,
    /// Denied by the door.
    Denied = 4,
    /// Waits for an approval.
    Waiting = 5,
    /// A budget or the tool cap is used up.
    Budget = 6,
    /// The model is unavailable, or its output is endless, cut or invalid.
    Model = 7,
    /// A verification or check failed.
    Verification = 8,
    /// The ledger does not verify.
    Ledger = 9,
    /// Blocked: needs a person (second engine, full disk, locked keyring).
    Blocked = 10,
    /// Interrupted.
    Interrupted = 130,
}

impl Exit {
    /// Every exit code, for documentation and tests.
    pub const ALL: [Self; 12] = [
        Self::Done,
        Self::Bug,
        Self::Usage,
        Self::Config,
        Self::Denied,
        Self::Waiting,
        Self::Budget,
        Self::Model,
        Self::Verification,
        Self::Ledger,
        Self::Blocked,
        Self::Interrupted,
    ];

    /// The number that the process ends with.
    pub const fn code(self) -> u8 {
        // The discriminants are the documented exit codes.
        self as u8
    }

    /// Returns general advice for this exit code.
    pub const fn advice(self) -> &'static str {
        match self {
            Self::Done => "nothing is to be done",
            Self::Bug => "this is a bug in Writ: report it, with the log in `logs/` of the home",
            Self::Usage => "`writ COMMAND --help` says what it takes",
            Self::Config => "correct the named setting; `writ config check` and `writ doctor` check again",
            Self::Denied => {
                "ask for something else, or change what refuses; what an agent was refused is in `writ audit tail`"
            }
            Self::Waiting => "`writ approvals list` shows what waits for an answer",
            Self::Budget => "wait, ask for less, or raise the limit that is named",
            Self::Model => "try again later, or name another model",
            Self::Verification => "read which check failed, correct it, and check again",
            Self::Ledger => "stop, keep the files, and compare with a head that was saved elsewhere",
            Self::Blocked => "provide what is missing, then try again; `writ doctor` checks everything",
            Self::Interrupted => "run it again, or continue in the same session",
        }
    }
}

/// An error as it travels between crates and to clients: a class, a stable code, and two texts.
///
/// `outside` may be shown to a client or a model: no paths of the host, no secrets, no other
/// session's data. `inside` goes to the log. `hint` says what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The exit code that a command ends with.
    pub exit: Exit,
    /// A stable code such as `store.disk_full`.
    pub code: String,
    /// The failure in words fit for clients and models.
    pub outside: String,
    /// The failure in full, for the log.
    pub inside: String,
    /// A hint for the reader; may be empty.
    pub hint: String,
}

impl Report {
    /// Creates a report with one text for the inside and the outside.
    pub fn new(exit: Exit, code: &str, outside: impl Into<String>) -> Self {
        let outside = outside.into();
        // The outside text stands for both until a caller sets the inside one.
        Self { exit, code: code.to_owned(), inside: outside.clone(), outside, hint: String::new() }
    }

    /// Adds what to do about it.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = hint.into();
        self
    }

    /// Returns advice for a person: the hint, else the exit code's. Never empty.
    pub fn advice(&self) -> &str {
        if self.hint.is_empty() { self.exit.advice() } else { &self.hint }
    }

    /// Adds what only the log may know.
    #[must_use]
    pub fn with_inside(mut self, inside: impl Into<String>) -> Self {
        self.inside = inside.into();
        self
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // An error may be shown anywhere, so it is shown by the text that is fit for everyone.
        f.write_str(&self.outside)
    }
}

impl std::error::Error for Report {}

/// Turns a crate's own error into a [`Report`], in one place per crate.
pub trait ToReport {
    /// The report of this error.
    fn report(&self) -> Report;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_those_of_the_design() {
        let codes: Vec<u8> = Exit::ALL.iter().map(|exit| exit.code()).collect();
        assert_eq!(codes, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 130]);
    }

    #[test]
    fn nobody_is_told_of_an_error_without_being_told_what_to_do() {
        for exit in Exit::ALL {
            assert!(!Report::new(exit, "a.b", "text").advice().is_empty(), "{exit:?}");
        }
        assert_eq!(Report::new(Exit::Usage, "a.b", "text").with_hint("do this").advice(), "do this");
    }
}
