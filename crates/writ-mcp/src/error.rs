//! The errors of servers.

use writ_types::error::{Exit, Report, ToReport};

/// The reason why a server did not do what was asked. Cheap to clone: the end of a connection is reported to
/// every waiting call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum McpError {
    /// It closed its output: mostly, it has ended.
    #[error("the server has ended")]
    Gone,
    /// A message is longer than is read.
    #[error("the server sent a message of more than {limit} bytes")]
    TooLarge {
        /// The limit, in bytes.
        limit: usize,
    },
    /// It sent too many unsolicited messages.
    #[error("the server sent {messages} unrequested messages")]
    Flooded {
        /// The number of messages.
        messages: u64,
    },
    /// It did not answer in time.
    #[error("the server did not answer '{method}' within {secs} seconds")]
    Timeout {
        /// The method that was called.
        method: &'static str,
        /// The limit, in seconds.
        secs: u64,
    },
    /// It was started and did not answer its greeting in time.
    #[error(
        "the server was not ready within {secs} seconds; start_timeout_secs in its file sets how long it may take"
    )]
    NotReady {
        /// The limit, in seconds.
        secs: u64,
    },
    /// Its list of tools did not end in time.
    #[error("the server's list of tools had not ended after {secs} seconds")]
    SlowList {
        /// The limit, in seconds.
        secs: u64,
    },
    /// The caller does not want an answer any more.
    #[error("it was stopped before the server had answered")]
    Cancelled,
    /// It takes nothing in.
    #[error("the server does not read its input")]
    Deaf,
    /// It answered something that the protocol does not have.
    #[error("the server's answer to '{method}' is wrong: {why}")]
    Wrong {
        /// The method that was called.
        method: &'static str,
        /// The problem with it, in our own words.
        why: String,
    },
    /// It refused, in words of its own.
    #[error("the server refused '{method}' with error {code}")]
    Refused {
        /// The method that was called.
        method: &'static str,
        /// The number of the error.
        code: i64,
        /// The server's words, bounded.
        message: String,
    },
    /// Something between it and us failed.
    #[error("the connection to the server failed: {0}")]
    Transport(String),
}

impl McpError {
    /// Returns true if the connection cannot be used again.
    pub const fn is_final(&self) -> bool {
        match self {
            Self::Gone | Self::TooLarge { .. } | Self::Flooded { .. } | Self::Deaf | Self::Transport(_) => {
                true
            }
            Self::Timeout { .. }
            | Self::NotReady { .. }
            | Self::SlowList { .. }
            | Self::Cancelled
            | Self::Wrong { .. }
            | Self::Refused { .. } => false,
        }
    }

    const fn code(&self) -> (Exit, &'static str) {
        match self {
            Self::Gone => (Exit::Blocked, "mcp.gone"),
            Self::TooLarge { .. } => (Exit::Blocked, "mcp.too_large"),
            Self::Flooded { .. } => (Exit::Blocked, "mcp.flooded"),
            Self::Timeout { .. } | Self::SlowList { .. } => (Exit::Blocked, "mcp.timeout"),
            Self::NotReady { .. } => (Exit::Blocked, "mcp.not_ready"),
            Self::Cancelled => (Exit::Interrupted, "mcp.cancelled"),
            Self::Deaf => (Exit::Blocked, "mcp.deaf"),
            Self::Wrong { .. } => (Exit::Blocked, "mcp.wrong_answer"),
            Self::Refused { .. } => (Exit::Blocked, "mcp.refused"),
            Self::Transport(_) => (Exit::Blocked, "mcp.transport"),
        }
    }
}

impl ToReport for McpError {
    fn report(&self) -> Report {
        let (exit, code) = self.code();
        let report = Report::new(exit, code, self.to_string());
        match self {
            Self::NotReady { .. } => report.with_hint(
                "npx and uvx download packages at a first start: give it longer there or with --start-timeout, or install the program first",
            ),
            Self::Gone
            | Self::TooLarge { .. }
            | Self::Flooded { .. }
            | Self::Timeout { .. }
            | Self::SlowList { .. }
            | Self::Cancelled
            | Self::Deaf
            | Self::Wrong { .. }
            | Self::Refused { .. }
            | Self::Transport(_) => report,
        }
    }
}
