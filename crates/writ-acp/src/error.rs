//! The reasons why a turn of an agent has no result.

use writ_types::error::{Exit, Report, ToReport};

use crate::bounds::{MAX_MESSAGES, MAX_STRAY_LINES, MAX_TURN_BYTES};

/// The moment of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// It was greeted.
    Greeting,
    /// It logs in with what it was given.
    Login,
    /// It opens a session.
    Opening,
    /// It works.
    Work,
}

impl Moment {
    /// Returns its name, as the end of a sentence.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Greeting => "while it was greeted",
            Self::Login => "while it logged in",
            Self::Opening => "while it opened a session",
            Self::Work => "in the middle of its work",
        }
    }
}

/// The reason why a turn has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AcpError {
    /// It closed its output: mostly, it has ended.
    #[error("the agent ended {}, without a word about it", .0.name())]
    Gone(Moment),
    /// It was not ready in time.
    #[error("the agent was not ready within {secs} seconds: it did not answer {}", .at.name())]
    NotReady {
        /// The moment.
        at: Moment,
        /// The limit, in seconds.
        secs: u64,
    },
    /// It speaks another version of the protocol.
    #[error("the agent speaks version {0} of the Agent Client Protocol; version 1 is spoken here")]
    Version(String),
    /// It demands a login that was not given.
    #[error("the agent demands a login; it offers: {0}")]
    Login(String),
    /// It refused, in words of its own.
    #[error("the agent refused {} (error {code}): {message}", .at.name())]
    Refused {
        /// The moment.
        at: Moment,
        /// The number of the error.
        code: i64,
        /// Its words, cut.
        message: String,
    },
    /// It answered something that the protocol does not have.
    #[error("the agent's answer {} is wrong: {why}", .at.name())]
    Wrong {
        /// The moment.
        at: Moment,
        /// The mistake.
        why: &'static str,
    },
    /// It wrote too much.
    #[error("the agent wrote too much: {0}")]
    Flooded(Flood),
    /// It takes nothing in.
    #[error("the agent does not read what it is sent")]
    Deaf,
    /// It was asked to end its turn, and did not.
    #[error("the agent was asked to end its turn and did not")]
    NotEnded,
    /// Its streams failed.
    #[error("the connection to the agent failed: {0}")]
    Transport(String),
}

/// The kind of a flood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flood {
    /// Bytes.
    Bytes,
    /// Messages.
    Messages,
    /// Lines that are no message.
    Lines,
}

impl std::fmt::Display for Flood {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Bytes => write!(f, "more than {MAX_TURN_BYTES} bytes in one turn"),
            Self::Messages => write!(f, "more than {MAX_MESSAGES} messages in one turn"),
            Self::Lines => {
                write!(f, "more than {MAX_STRAY_LINES} lines that are no messages of the protocol")
            }
        }
    }
}

impl ToReport for AcpError {
    fn report(&self) -> Report {
        let (exit, code, hint) = match self {
            Self::Gone(_) => (
                Exit::Blocked,
                "acp.gone",
                "run its command by hand: it should wait for messages on its standard input",
            ),
            Self::NotReady { .. } => (
                Exit::Blocked,
                "acp.not_ready",
                "check that its command starts it in the mode of the Agent Client Protocol, and that it needs no download: it has no network",
            ),
            Self::Version(_) => {
                (Exit::Config, "acp.version", "install a version of it that speaks version 1")
            }
            Self::Login(_) => (
                Exit::Config,
                "acp.login",
                "set it up to use a model by its address and a key, and name the way of its login that uses this; it never gets an account",
            ),
            Self::Refused { .. } => (Exit::Blocked, "acp.refused", "its own words say why"),
            Self::Wrong { .. } => (Exit::Blocked, "acp.wrong_answer", "install another version of it"),
            Self::Flooded(_) => (
                Exit::Blocked,
                "acp.flooded",
                "let it write its logs to a file, or install another version of it",
            ),
            Self::Deaf => (Exit::Blocked, "acp.deaf", "install another version of it"),
            Self::NotEnded => {
                (Exit::Blocked, "acp.not_ended", "it was killed, with everything that it had started")
            }
            Self::Transport(_) => (Exit::Blocked, "acp.transport", "give the task another try"),
        };
        Report::new(exit, code, self.to_string()).with_hint(hint)
    }
}
