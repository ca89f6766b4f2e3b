//! Errors: of declarations, of parameters, and of performing.

use std::fmt;
use std::path::PathBuf;

/// A mistake in a file of operations or of targets.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}:{line}: {what}", .file.display())]
pub struct OperationError {
    /// The file, or the folder where it could not be read.
    pub file: PathBuf,
    /// The line, from 1.
    pub line: usize,
    /// The mistake.
    pub what: String,
    /// A remedy.
    pub hint: String,
}

/// The reason why parameters are none of an operation. It never repeats a value: values can be personal data.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the parameter '{parameter}' {what}")]
pub struct ParameterError {
    /// The parameter's name, shortened.
    pub parameter: String,
    /// The mistake.
    pub what: String,
    /// A remedy.
    pub hint: String,
}

/// The reason why an operation was not performed, or why its outcome is unknown. It has no values, no addresses of
/// people and no message of a server, which could repeat either.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PerformError {
    /// Nothing happened.
    #[error("nothing was done: {what}")]
    NotPerformed {
        /// The reason.
        what: String,
    },
    /// Nothing happened: another row has the key already, perhaps one of another customer.
    #[error("nothing was done: {what}")]
    Taken {
        /// The reason.
        what: String,
    },
    /// It may have happened: the answer never came. It is not to be done again.
    #[error("the outcome is unknown: {what}")]
    Unknown {
        /// The reason.
        what: String,
    },
}

impl PerformError {
    pub(crate) fn not_performed(what: impl fmt::Display) -> Self {
        Self::NotPerformed { what: what.to_string() }
    }

    pub(crate) fn unknown(what: impl fmt::Display) -> Self {
        Self::Unknown { what: what.to_string() }
    }
}
