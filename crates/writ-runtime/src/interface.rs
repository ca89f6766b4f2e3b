//! Requests that callers send to the engine, and the engine's replies.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::broadcast;
use writ_policy::approval::SignedAnswer;
use writ_types::digest::Digest;
use writ_types::entry::{ApprovalScope, Decision};
use writ_types::error::Exit;
use writ_types::frame::{Numbered, ServerFrame};
use writ_types::id::{AskId, SessionId, TurnId};

use crate::session::Surface;

/// The most open asks with cards that are sent to a client that joins; `approvals.list` has all of them.
pub const MAX_OPEN: usize = 100;

/// The request of a client to join a session, or to open a new one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Join {
    /// The session; `None` opens a new one.
    pub session: Option<SessionId>,
    /// The number of the last frame that the client has seen.
    pub after_seq: u64,
    /// The project's folder, for a new session.
    pub project: Option<String>,
    /// True if a new session changes the project directly, without an overlay and its diff.
    pub write: bool,
    /// True if actions of a new session are decided and recorded, but not performed.
    pub dry_run: bool,
    /// The kind of surface that the client runs on.
    pub surface: Surface,
    /// The name that a program gives to a conversation: if `session` is `None`, the newest session of this name is joined.
    pub conversation: Option<String>,
    /// True if a new session carries messages of other people, which the client passes on: then only text that the owner
    /// has signed counts as the owner's words.
    pub relayed: bool,
    /// The customer of a relayed session: the owner's records about them are in its context.
    pub customer: Option<String>,
}

/// A session that was joined.
#[derive(Debug)]
pub struct Joined {
    /// The session.
    pub session: SessionId,
    /// The number of its last turn.
    pub turn: u64,
    /// The number of its last frame.
    pub seq: u64,
    /// The number of the last frame that the client has seen.
    pub after_seq: u64,
    /// Its open asks with their cards, oldest first, at most [`MAX_OPEN`].
    pub open: Vec<(AskId, ServerFrame)>,
    /// The frames from now on. The frames since `after_seq` are read with `Engine::frames_after`; some of
    /// them may arrive here, too, and frames of concurrent steps may arrive out of order.
    pub live: broadcast::Receiver<Arc<Numbered>>,
}

/// The result of an order to stop a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancelled {
    /// The turn has received the order to stop.
    Stopped,
    /// The turn had ended before.
    Ended,
    /// The turn has not begun yet, or is just ending: there was nothing to stop.
    NotRunning,
}

impl Cancelled {
    /// Returns the message for the person who asked to stop the turn; `None` if the turn is stopped.
    pub fn told(self, turn: TurnId) -> Option<String> {
        match self {
            Self::Stopped => None,
            Self::Ended => Some(format!("turn {turn} has ended already")),
            Self::NotRunning => {
                Some(format!("turn {turn} is not running, so it was not stopped: try again once it runs"))
            }
        }
    }
}

/// An answer to an ask.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// Yes or no.
    pub decision: Decision,
    /// The range of further actions that a yes covers.
    pub scope: ApprovalScope,
    /// The signature of the person who answers, for a surface that does not prove who that is.
    pub signed: Option<SignedAnswer>,
    /// The hash of the text that the person was shown, if the surface reports it.
    pub shown: Option<Digest>,
    /// The reason, in the person's words.
    pub reason: String,
}

/// The result of an answer to an ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answered {
    /// `applied`, `simulated`, `failed` or `unknown` after a yes, `denied` after a no, `open` while others must answer, too.
    pub state: String,
    /// The reason that the action was not done, in a few words; empty if it was done.
    pub reason: String,
    /// The result, in words.
    pub text: String,
    /// The result as the exit code of a command; for an approved action, the way that the action ended.
    pub exit: Exit,
}

/// A person's answer to a gate, or to a server of tools, that asks.
#[derive(Clone, Debug)]
pub struct GateSaid {
    /// The answer.
    pub decision: Decision,
    /// The reason, in the person's words.
    pub reason: String,
    /// The values that the person has filled in, by the names of the fields.
    pub answers: BTreeMap<String, String>,
}
