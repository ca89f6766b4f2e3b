//! Requests and replies of the engine's callers.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::broadcast;
use writ_policy::approval::Signed;
use writ_types::digest::Digest;
use writ_types::entry::{ApprovalScope, Decision};
use writ_types::error::Exit;
use writ_types::frame::{Numbered, ServerFrame};
use writ_types::id::{AskId, SessionId, TurnId};

use crate::session::Surface;

/// The most open asks whose cards are sent to a client that joins; `approvals.list` has all of them.
pub const MAX_OPEN: usize = 100;

/// How a client joins a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Join {
    /// The session; `None` opens a new one.
    pub session: Option<SessionId>,
    /// The last frame that the client has seen.
    pub after_seq: u64,
    /// The project's folder, for a new session.
    pub project: Option<String>,
    /// Changes go to the project as they are made, for a new session.
    pub write: bool,
    /// Actions are decided and logged, not performed, for a new session.
    pub dry_run: bool,
    /// Where the client is.
    pub surface: Surface,
    /// A name that a program gives to a conversation: without a session, its newest session is joined.
    pub conversation: Option<String>,
    /// Others speak through whoever opens it: the owner's word is only what the owner has signed. For a new session.
    pub relayed: bool,
}

/// A session that was joined.
#[derive(Debug)]
pub struct Joined {
    /// The session.
    pub session: SessionId,
    /// The number of its last turn.
    pub turn: u64,
    /// Its last frame.
    pub seq: u64,
    /// The last frame that the client has seen.
    pub after_seq: u64,
    /// Its open asks with their cards, oldest first, at most [`MAX_OPEN`].
    pub open: Vec<(AskId, ServerFrame)>,
    /// What comes from now on. What came since `after_seq` is had from [`Engine::frames_after`]; some of it may
    /// come here, too, and frames of concurrent steps may come out of order.
    pub live: broadcast::Receiver<Arc<Numbered>>,
}

/// What came of an order to stop a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancelled {
    /// It is told to stop.
    Stopped,
    /// It had ended before.
    Ended,
    /// It waits to be taken up, or ends just now: there was nothing to stop.
    NotRunning,
}

impl Cancelled {
    /// What to tell whoever wanted to stop it, if it is not stopped.
    pub fn told(self, turn: TurnId) -> Option<String> {
        match self {
            Self::Stopped => None,
            Self::Ended => Some(format!("turn {turn} has ended already")),
            Self::NotRunning => {
                Some(format!("turn {turn} does not run and was not stopped: stop it once it does"))
            }
        }
    }
}

/// An answer to an ask.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// Yes or no.
    pub decision: Decision,
    /// How far a yes reaches.
    pub scope: ApprovalScope,
    /// What somebody has signed, where the surface itself does not prove the person.
    pub signed: Option<Signed>,
    /// Hash of the text that the person was shown, where the surface says so.
    pub shown: Option<Digest>,
    /// Why, in the person's words.
    pub reason: String,
}

/// What came of an answer to an ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answered {
    /// `applied`, `simulated`, `failed` or `unknown` after a yes, `denied` after a no, `open` while others must answer, too.
    pub state: String,
    /// Why it was not done, in a few words; empty where it was.
    pub reason: String,
    /// What came of it, in words.
    pub text: String,
    /// How it went: of an approved action how it ended, as the exit code of a command.
    pub exit: Exit,
}

/// What somebody says to a gate, or to a server of tools, that asks.
#[derive(Clone, Debug)]
pub struct GateSaid {
    /// The answer.
    pub decision: Decision,
    /// Why, in their words.
    pub reason: String,
    /// What they have filled in, by the names of the fields.
    pub answers: BTreeMap<String, String>,
}
