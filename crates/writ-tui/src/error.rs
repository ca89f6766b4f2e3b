//! Errors of the terminal.

use std::io;

use writ_types::error::{Exit, Report, ToReport};

/// The reason that no line could be read.
#[derive(Debug, thiserror::Error)]
pub enum EditorError {
    /// The terminal could not be read or set up.
    #[error("the terminal cannot be read: {0}")]
    Terminal(io::Error),
    /// A line is too long to be a message.
    #[error("the line is longer than {limit} bytes")]
    TooLong {
        /// The limit, in bytes.
        limit: usize,
    },
    /// A line is not UTF-8.
    #[error("the line is not UTF-8 text")]
    NotUtf8,
    /// The editor's thread has ended.
    #[error("the line editor has ended")]
    Ended,
}

impl ToReport for EditorError {
    fn report(&self) -> Report {
        let (exit, code, hint) = match self {
            Self::Terminal(_) => {
                (Exit::Blocked, "tui.terminal", "use `writ chat -m TEXT` without a terminal")
            }
            Self::TooLong { .. } => {
                (Exit::Usage, "tui.line_too_long", "put the text in a file and name the file")
            }
            Self::NotUtf8 => (Exit::Usage, "tui.not_utf8", "send UTF-8 text"),
            Self::Ended => (Exit::Bug, "tui.ended", Exit::Bug.advice()),
        };
        Report::new(exit, code, self.to_string()).with_hint(hint)
    }
}
