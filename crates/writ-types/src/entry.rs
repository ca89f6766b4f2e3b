//! The records of the ledger: one [`Entry`] for every fact.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::action::{Action, ActionKind, ChangeKind, MemoryTrust};
use crate::chat::{StopReason, ToolOutcome, Usage};
use crate::digest::Digest;
use crate::id::{AskId, AttemptId, EntrySeq, ItemId, KeyId, MemoryId, SessionId, TurnId};
use crate::taint::{Label, Taint};
use crate::unit::{MicroUsd, Timestamp};

mod agent;
mod connection;
mod event;
mod holder;
mod inbound;
mod judged;
mod phase;
mod reading;
mod requester;
pub use agent::{AgentChange, AgentRecord};
pub use connection::{ConnectionRecord, MAX_CONNECTIONS, Verdict};
pub use holder::{CaseChange, CaseRecord, HolderRecord};
pub use inbound::InboundRecord;
pub use judged::{GatePoint, GateVerdict, HookEvent, Leaning};
pub use phase::TurnPhase;
pub use reading::{CustomerReading, SourceReading};
pub use requester::{Requester, SealedText};

/// One fact: who, when, in which turn, and what.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// When it happened.
    pub at: Timestamp,
    /// The session that it belongs to, if any.
    pub session: Option<SessionId>,
    /// The turn that it belongs to, if any.
    pub turn: Option<TurnId>,
    /// The number of that turn in its session, counted from one; zero outside turns.
    pub turn_number: u64,
    /// The recorded fact.
    pub fact: Fact,
}

/// The reason for a refusal of the door, in a form that machines can compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DenyReason {
    /// The action is malformed or beyond a fixed bound.
    Shape,
    /// No key grants this kind of action.
    Capability,
    /// A key grants it, but not here: outside the folder, host or recipient.
    Scope,
    /// The key has expired or is not valid yet.
    Expired,
    /// The key or the approval was revoked.
    Revoked,
    /// The key belongs to another agent, base key, session or installation.
    Binding,
    /// An amount lies outside a key's limits.
    Limit,
    /// A hook, gate or access level refused.
    Gate,
    /// A rule forbids it, or none permits it.
    Rule,
    /// The turn has seen external content and this would carry it out.
    Taint,
    /// The budget is used up.
    Budget,
    /// The approval does not match, is used up, or was made for something else.
    Approval,
    /// A person refused.
    Person,
    /// The same call was repeated without progress.
    Loop,
    /// A hook refused, and ended the turn.
    Halt,
    /// Only what an approved plan names is done here, and none names it.
    Plan,
    /// The day's limit of a key is used up.
    UsedUp,
    /// It was begun before under the same name, and is not done again.
    Repeated,
}

/// The harm that a wrong approval can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Risk {
    /// Easily undone, stays inside.
    Low,
    /// Outlasts the session, can be undone.
    Medium,
    /// Hard to undo; needs an approver key.
    High,
    /// Cannot be undone; needs a user-verified approver key.
    Irreversible,
}

/// The scope of the answer to an ask.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalScope {
    /// To what was asked about, once.
    #[default]
    Once,
    /// Also similar later requests of its session ([`Pattern`](crate::frame::Pattern)), so long and so often.
    Task,
    /// Also to what is alike in any session of the agent, for days and some times: a standing approval.
    Standing,
    /// To what was asked about, once; and what it names counts in its session as if the owner had written it.
    Values,
    /// To what was asked about, once; and the host that it names is trusted in every session, until that is taken back.
    Host,
}

impl ApprovalScope {
    /// Returns true for [`Self::Once`].
    pub const fn is_once(&self) -> bool {
        matches!(self, Self::Once)
    }

    /// Returns the name that stands in answers and rows.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Once => "once",
            Self::Task => "task",
            Self::Standing => "standing",
            Self::Values => "values",
            Self::Host => "host",
        }
    }
}

/// The answer to an ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// Do it.
    Approve,
    /// Do not.
    Deny,
}

/// A fact in the ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Fact {
    /// A message came in.
    Received {
        /// The received message.
        record: InboundRecord,
        /// Its text.
        text: String,
        /// The harness's Ed25519 signature over the record's canonical form, hexadecimal.
        signature: String,
    },
    /// A gate judged a text or an action.
    Gated {
        /// The gate's point.
        point: GatePoint,
        /// The gate's name.
        gate: String,
        /// The verdict.
        verdict: GateVerdict,
        /// The reason, when it did not pass.
        reason: String,
    },
    /// A hook was called.
    Hooked {
        /// At what.
        on: HookEvent,
        /// Its name.
        hook: String,
        /// Digest of its program; `None`: there was none that might run.
        digest: Option<Digest>,
        /// The verdict: `pass` for one that allows or abstains.
        verdict: GateVerdict,
        /// The reason, in the hook's words.
        reason: String,
    },
    /// Shadow rules would have decided otherwise about an action than the rules in force.
    Shadowed {
        /// Their name.
        set: String,
        /// Hash of what would be in force with them.
        policy: Digest,
        /// Hash of the prepared action.
        prepared: Digest,
        /// The requested action's kind.
        kind: ActionKind,
        /// The verdict of the rules in force.
        does: Leaning,
        /// The verdict with the shadow rules.
        would: Leaning,
        /// The rules that would have decided.
        rules: Vec<String>,
    },
    /// An action is about to be performed.
    Intent {
        /// This attempt.
        attempt: AttemptId,
        /// Hash of the prepared action.
        prepared: Digest,
        /// The action.
        action: Action,
        /// The model's call that requested it, if any.
        call: Option<String>,
        /// The approval that allowed it, if one was needed.
        approval: Option<AskId>,
        /// True if it may safely be performed again.
        idempotent: bool,
        /// The label of everything it depends on.
        label: Label,
        /// The program outside that asked for it, at the security proxy.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        requester: Option<Box<Requester>>,
    },
    /// An action was performed, or not.
    Outcome {
        /// The attempt.
        attempt: AttemptId,
        /// The outcome.
        outcome: ToolOutcome,
        /// In short, redacted.
        summary: String,
        /// Digest of the full result.
        result: Digest,
        /// The label of the result.
        label: Label,
    },
    /// A person is asked.
    Asked {
        /// The ask.
        ask: AskId,
        /// Hash of the prepared action.
        prepared: Digest,
        /// The action.
        action: Action,
        /// The harm that a wrong answer can do.
        risk: Risk,
        /// The reason for asking.
        reason: String,
        /// Hash of the text that is shown.
        shown: Digest,
        /// When the ask ends.
        expires_at: Timestamp,
    },
    /// A person answered.
    Answered {
        /// The ask.
        ask: AskId,
        /// The answer. A denial for the task takes an approval for it back.
        decision: Decision,
        /// The scope of the approval.
        #[serde(default, skip_serializing_if = "ApprovalScope::is_once")]
        scope: ApprovalScope,
        /// The actions covered, the uses and the end, where that is more than the action asked about.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        covers: String,
        /// The person: the key's id or the principal.
        by: String,
        /// The reason, in the person's words.
        reason: String,
    },
    /// The door refused.
    Denied {
        /// Hash of the prepared action, when there was one.
        prepared: Option<Digest>,
        /// The requested action's kind.
        kind: ActionKind,
        /// The reason, for machines.
        reason: DenyReason,
        /// The rule, key, gate or bound that decided.
        rule: String,
        /// The reason, for people.
        text: String,
        /// The text for the model: never more than it may know.
        outside: String,
        /// The program outside that asked for it, at the security proxy.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        requester: Option<Box<Requester>>,
    },
    /// The security proxy answered without performing anything: with an earlier outcome, or with a list.
    Served {
        /// The program that asked.
        requester: Box<Requester>,
        /// The attempt with the earlier outcome.
        attempt: Option<AttemptId>,
    },
    /// A model answered, or failed to.
    ModelCalled {
        /// The attempt.
        attempt: AttemptId,
        /// `provider/model` as asked for.
        requested: String,
        /// The model that answered, in the provider's word; empty if none did.
        actual: String,
        /// The reason that it stopped; `None` if it failed.
        stop: Option<StopReason>,
        /// The tokens used.
        usage: Usage,
        /// The cost; `None`: the price is unknown.
        cost: Option<MicroUsd>,
        /// The error's outside text; empty if there was none.
        error: String,
        /// Set if the model or the way to it would fail again at the same call a little later.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_lasting: bool,
        /// The role that the harness asked beside the conversation, such as `scorer`; empty: the answer is an agent's own.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        role: String,
        /// The model's reply, sealed, if a program outside or the harness made the call; an agent's reply is in its conversation.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sealed_reply: Option<SealedText>,
    },
    /// A key was made, renewed or revoked.
    Keyed {
        /// The key.
        key: KeyId,
        /// `base`, `task`, `approver`, `root` or `harness`.
        role: String,
        /// `minted`, `renewed`, `enrolled`, `revoked` or `expired`.
        change: String,
        /// A description of the authority that it grants.
        grants: String,
    },
    /// A plan was made.
    Planned {
        /// Hash of the plan.
        plan: Digest,
        /// The plan.
        text: String,
    },
    /// A turn or another machine changed its phase.
    Phase {
        /// The new phase.
        phase: TurnPhase,
        /// The reason.
        reason: String,
    },
    /// A work item has another state, or a step of it was judged.
    Worked {
        /// The item.
        item: ItemId,
        /// The step; empty: the whole.
        step: String,
        /// The new state: that of the item, or the verdict about an attempt at the step.
        state: String,
        /// The reason, in one line.
        reason: String,
    },
    /// Something was remembered or forgotten.
    Remembered {
        /// The memory.
        memory: MemoryId,
        /// True if it was deleted.
        forgotten: bool,
        /// The confidence in it.
        trust: MemoryTrust,
        /// Its trust level.
        taint: Taint,
        /// Digest of its text.
        text: Digest,
    },
    /// Something was escalated.
    Escalated {
        /// The recipient.
        to: String,
        /// The reason.
        reason: String,
    },
    /// A case of the fleet changed.
    CaseMoved {
        /// The change.
        record: Box<CaseRecord>,
    },
    /// An agent that is a folder was approved, deployed or retired.
    AgentMoved {
        /// The change.
        record: Box<AgentRecord>,
    },
    /// The security proxy itself read what is declared personal of a case's customer, to find it in texts.
    CustomerRead {
        /// The reading, without values.
        record: Box<CustomerReading>,
    },
    /// Rules, gates or configuration changed.
    PolicyChanged {
        /// Hash of all rules now in force.
        policy: Digest,
        /// A description of the change.
        summary: String,
    },
    /// The store was restored from a backup.
    Restored {
        /// The first missing entry.
        from: EntrySeq,
        /// The number of missing entries, if known.
        lost: Option<u64>,
        /// The epoch now in force.
        epoch: u64,
    },
    /// Files of a project were changed by an approved apply.
    Applied {
        /// The project's folder.
        project: String,
        /// The changed files.
        files: Vec<(ChangeKind, String)>,
    },
    /// The sandbox that commands now run in.
    SandboxReady {
        /// The rung of the ladder: 1 full, 2 reduced, 3 nothing is run.
        rung: u8,
        /// The parts of the full recipe that are missing; empty on rung 1.
        reduced: String,
    },
    /// Connections left, or tried to: after their end, several at once.
    Connected {
        /// The connections, in the order of their ends; at most [`MAX_CONNECTIONS`].
        connections: Vec<ConnectionRecord>,
    },
    /// The payloads of entries were erased; the entries themselves stay, and are proven as before.
    Erased {
        /// The first and last entry of each run.
        entries: Vec<(EntrySeq, EntrySeq)>,
        /// The principal that asked for it: `owner`, or `retention`.
        by: String,
        /// The reason.
        reason: String,
    },
    /// A place in a session was given a name.
    Checkpoint {
        /// The name.
        name: String,
    },
    /// The older part of a session's history left the context; the history itself is unchanged.
    Compacted {
        /// The number of messages that the summary stands for.
        messages: u64,
        /// The model that wrote the summary, or `harness`.
        by: String,
        /// Digest of the summary.
        summary: Digest,
        /// The join of the labels of what was summarised.
        label: Label,
    },
    /// A reply went out.
    Replied {
        /// The first entry that it rests on.
        from: EntrySeq,
        /// The last entry that it rests on.
        to: EntrySeq,
        /// Digest of its text.
        text: Digest,
        /// Its trust label.
        label: Label,
    },
}

impl Fact {
    /// The texts of this fact from elsewhere that no hash or signature goes over; the others were masked when they came in.
    pub fn texts_mut(&mut self) -> Vec<&mut String> {
        match self {
            Self::Gated { reason, .. }
            | Self::Hooked { reason, .. }
            | Self::Asked { reason, .. }
            | Self::Answered { reason, .. }
            | Self::Phase { reason, .. }
            | Self::Worked { reason, .. }
            | Self::Erased { reason, .. }
            | Self::SandboxReady { reduced: reason, .. }
            | Self::Checkpoint { name: reason } => vec![reason],
            Self::Outcome { summary, .. } | Self::PolicyChanged { summary, .. } => vec![summary],
            Self::Denied { text, outside, .. } => vec![text, outside],
            Self::ModelCalled { actual, error, .. } => vec![actual, error],
            Self::Keyed { grants, .. } => vec![grants],
            Self::Escalated { to, reason } => vec![to, reason],
            Self::CaseMoved { record } => vec![&mut record.target, &mut record.reason],
            Self::AgentMoved { record } => vec![&mut record.reason],
            Self::CustomerRead { record } => record.sources.iter_mut().map(|one| &mut one.failure).collect(),
            Self::Applied { files, .. } => files.iter_mut().map(|(_, path)| path).collect(),
            Self::Connected { connections } => {
                connections.iter_mut().map(|connection| &mut connection.host).collect()
            }
            // Their texts are part of what is signed or hashed, or they have none.
            Self::Received { .. }
            | Self::Intent { .. }
            | Self::Planned { .. }
            | Self::Remembered { .. }
            | Self::Restored { .. }
            | Self::Shadowed { .. }
            | Self::Served { .. }
            | Self::Compacted { .. }
            | Self::Replied { .. } => Vec::new(),
        }
    }
}
