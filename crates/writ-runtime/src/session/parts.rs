//! What a session remembers from turn to turn, by what it is about.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::oneshot;
use writ_agent::notice::BudgetNote;
use writ_inspect::egress::host::HostPattern;
use writ_inspect::show::escape_line;
use writ_inspect::withhold::Withheld;
use writ_policy::access::AccessState;
use writ_policy::keys::Authority;
use writ_types::api::context::RecallReason;
use writ_types::entry::Decision;
use writ_types::frame::ServerFrame;
use writ_types::id::AskId;
use writ_types::unit::{MicroUsd, Tokens};

use super::TITLE;
use super::topics::SessionTopics;
use crate::context_budget::ContextBudget;
use crate::subscription::Subscription;

/// The authorities of a session apart from those of the turns that run.
#[derive(Debug, Default)]
pub(crate) struct SessionKeys {
    /// The grants of the session's task key, once it is in the ledger.
    pub(crate) task: Option<Arc<Authority>>,
    /// The authorities of what is done outside turns: by the owner, and what was approved, also of earlier turns.
    outside: Vec<Weak<Authority>>,
    /// Those of what the owner does that goes on in a closed session.
    outliving: Vec<Weak<Authority>>,
}

impl SessionKeys {
    /// Notes an authority under which something acts outside turns, for as long as that holds it.
    pub(crate) fn note_outside(&mut self, authority: &Arc<Authority>) {
        // There are as many as are held elsewhere: what has ended goes when the next begins.
        self.outside.retain(|held| held.strong_count() > 0 && held.as_ptr() != Arc::as_ptr(authority));
        self.outside.push(Arc::downgrade(authority));
    }

    /// Notes an authority under which the owner acts, as [`Self::note_outside`]; the end of the session does not end it.
    pub(crate) fn note_outliving(&mut self, authority: &Arc<Authority>) {
        self.outliving.retain(|held| held.strong_count() > 0);
        self.outliving.push(Arc::downgrade(authority));
    }

    /// Returns the authorities under which something acts outside turns.
    pub(super) fn outside(&self) -> impl Iterator<Item = Arc<Authority>> {
        self.outside.iter().filter_map(Weak::upgrade)
    }

    /// Returns those of them that the end of the session does not end.
    pub(super) fn outliving(&self) -> impl Iterator<Item = Arc<Authority>> {
        self.outliving.iter().filter_map(Weak::upgrade)
    }
}

/// The traces of a restart of the engine and of an interrupted step.
#[derive(Debug, Default)]
pub(crate) struct SessionRecovery {
    /// The next turn is the first after a restart.
    pub(crate) rehydrated: bool,
    /// An interrupted step has left changes behind in a session with preapproved changes; the preapproval
    /// does not cover them.
    pub(crate) left_behind: bool,
}

/// The state of a session among gates, hooks and levels of access.
#[derive(Debug, Default)]
pub(crate) struct SessionGates {
    /// Gates that ask, each with the way back for its answer.
    pub(crate) waiting: BTreeMap<AskId, WaitingGate>,
    /// The session's state in the levels of access.
    pub(crate) access: AccessState,
    /// The state that hooks store for their next run, by their names among the gates.
    pub(crate) hooks: BTreeMap<String, Value>,
}

/// The tokens from which a session's use is counted, and the last note about them.
#[derive(Debug, Default)]
pub(crate) struct SessionBudget {
    /// Tokens of the session when its budget was last renewed.
    pub(crate) base: Tokens,
    /// Money of the session when its budget was last renewed.
    pub(crate) cost_base: MicroUsd,
    /// The last budget note that the model was given.
    pub(crate) note: Option<BudgetNote>,
    /// Set while a person has paused the session.
    pub(crate) paused: bool,
}

impl SessionBudget {
    /// Counts from `base` on, as if the model had been given no note yet.
    pub(crate) const fn renew_from(&mut self, base: Tokens) {
        self.base = base;
        self.note = None;
    }
}

/// The owner's choices about the context of a session, and what its last message brought into it.
#[derive(Debug, Default)]
pub(crate) struct SessionContext {
    /// Rows of the history that stay in it.
    pub(crate) pins: BTreeSet<u64>,
    /// Its topics.
    pub(crate) topics: SessionTopics,
    /// The memories that its last message brought.
    pub(crate) recalled: Vec<RecallReason>,
    /// The budget of its context, where it works on an attempt.
    pub(crate) budget: Option<ContextBudget>,
    /// Set if the last turn has ended because its context was full.
    pub(crate) is_full: bool,
}

/// The notices that a session shows once.
#[derive(Debug, Default)]
pub(crate) struct SessionNotices {
    window: bool,
    cut: bool,
}

impl SessionNotices {
    /// Records whether the last request nearly filled the model's window. Returns true if that is to be shown
    /// now.
    pub(crate) const fn note_window(&mut self, full: bool) -> bool {
        !std::mem::replace(&mut self.window, full) && full
    }

    /// Records that the model's server cut a request. Returns true if that is to be shown now.
    pub(crate) const fn note_cut(&mut self) -> bool {
        !std::mem::replace(&mut self.cut, true)
    }
}

/// The longest title that is made of a message or by a model, in characters.
const MAX_MADE_TITLE: usize = 60;

/// The author of a session's title.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum TitleAuthor {
    /// It is the beginning of the first message.
    Message,
    /// A model has made it.
    Model,
    /// A person has chosen it.
    Owner,
}

/// The title of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TitleRecord {
    /// Its text, which hides nothing.
    pub(crate) text: String,
    /// Its author.
    pub(crate) by: TitleAuthor,
}

impl TitleRecord {
    /// Makes a title of the first line of a text that has words; `None`: it has none.
    pub(crate) fn of_text(text: &str, by: TitleAuthor) -> Option<Self> {
        let line = text.lines().map(str::trim).find(|line| line.chars().any(char::is_alphanumeric))?;
        let words = line.split_whitespace().collect::<Vec<_>>().join(" ");
        let words = escape_line(words.trim_matches(['"', '\'', '#', '*', '`', ' ', '.']));
        let mut text: String = words.chars().take(MAX_MADE_TITLE).collect();
        if text.len() < words.len() {
            // Whole words where there are some.
            let end = text.rfind(' ').filter(|end| *end > text.len() / 2).unwrap_or(text.len());
            text.truncate(end);
            text.push('\u{2026}');
        }
        Some(Self { text, by })
    }

    /// Returns the value of it in a session's metadata.
    pub(crate) fn to_value(&self) -> Option<Value> {
        serde_json::to_value(self).ok()
    }

    /// Reads it from a session's metadata.
    pub(crate) fn of_metadata(metadata: &BTreeMap<String, Value>) -> Option<Self> {
        serde_json::from_value(metadata.get(TITLE)?.clone()).ok()
    }
}

/// The hosts of a session beyond the owner's lists.
#[derive(Debug, Default)]
pub(crate) struct SessionHosts {
    /// Hosts that a person has approved for this session.
    pub(crate) granted: BTreeSet<HostPattern>,
    /// Hosts that no list names and that it has read from.
    pub(crate) unlisted: BTreeSet<String>,
}

/// The subscriptions of a session.
#[derive(Debug, Default)]
pub(crate) struct SessionSubscriptions {
    /// Files and URLs that are read into the context at each turn.
    pub(crate) list: Vec<Subscription>,
    /// Ids of those that the turn has referred to so far.
    pub(crate) referred: BTreeSet<String>,
}

impl SessionSubscriptions {
    /// Notes which of them a text refers to.
    pub(crate) fn note_references(&mut self, text: &str) {
        let named = self.list.iter().filter(|one| one.is_named_in(text));
        self.referred.extend(named.map(|one| one.id.clone()));
    }
}

/// The content of a session that not every model may read.
#[derive(Debug, Default)]
pub(crate) struct SessionSecrecy {
    /// Content withheld from models that may not read it.
    pub(crate) withheld: Withheld,
    /// Set once a model call of the session rests on secrets; from then on all its calls count as secret, in
    /// every role.
    pub(crate) secret: bool,
    /// The number of the newest withheld result; `None` until the store was asked.
    pub(crate) last_kept: Option<u64>,
}

impl SessionSecrecy {
    /// Records `now` and reports whether the session has read secrets, now or before.
    pub(crate) const fn hears_secrets(&mut self, now: bool) -> bool {
        self.secret |= now;
        self.secret
    }
}

/// A person's answer to a gate that asks.
#[derive(Debug)]
pub(crate) struct GateAnswer {
    pub(crate) decision: Decision,
    /// The person who answered.
    pub(crate) by: String,
    /// The person's reason for the decision.
    pub(crate) reason: String,
    /// The values that the person filled in.
    pub(crate) content: serde_json::Map<String, serde_json::Value>,
}

/// A gate that asks, and waits.
#[derive(Debug)]
pub(crate) struct WaitingGate {
    /// The question, as clients show it.
    pub(crate) frame: ServerFrame,
    pub(crate) answer: oneshot::Sender<GateAnswer>,
}

/// The numbers of turns that are being opened: the store knows a turn only once that is done.
#[derive(Debug, Default)]
pub(crate) struct TakenNumbers {
    /// The highest one; zero while no turn is being opened.
    highest: u64,
    /// The number of turns that are being opened, at most one for each consumer.
    opening: usize,
}

impl TakenNumbers {
    /// Takes the number of a turn; `next` is the one after the last that is stored.
    pub(crate) fn take(&mut self, next: u64) -> u64 {
        self.highest = next.max(self.highest.saturating_add(1));
        self.opening = self.opening.saturating_add(1);
        self.highest
    }

    /// Notes that a turn is stored, or is not to begin.
    pub(crate) fn release(&mut self) {
        self.opening = self.opening.saturating_sub(1);
        // From here on the store alone says the next number, so that one which was not used is given out again.
        if self.opening == 0 {
            self.highest = 0;
        }
    }
}
