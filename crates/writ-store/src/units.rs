//! The autopilot's sessions and units: the tree of a project's work, claims with fences, runs, and what holds them up.
//!
//! The store knows no order of phases: it compares what the caller has read. A change of a unit that is worked on carries the
//! fence of its claim, so that a worker changes nothing after its claim has ended.

mod apply;
mod changes;
mod circuits;
mod claims;
mod history;
mod hook_runs;
mod results;
mod spans;
mod state;
mod stored;
mod texts;

use writ_types::digest::Digest;
use writ_types::id::{BlockerId, PilotId, UnitRunId};
use writ_types::unit::{MicroUsd, Timestamp, Tokens};

pub(crate) use apply::apply_unit_op;
pub(crate) use circuits::circuits;
pub use circuits::{CircuitRow, MAX_CIRCUITS};
pub use claims::{ClaimSweep, RunStart};
pub(crate) use hook_runs::hook_runs;
pub use hook_runs::{HookRunRow, MAX_HOOK_RUNS};
pub use results::{ChoiceRow, GateRow, MAX_RESULTS, ResultRow};
pub(crate) use results::{choices, newest_choice, results};
pub(crate) use stored::{
    claimed, costs, counters, gates, open_blockers, pilot_session, pilot_sessions, pin, ready, runs,
    top_units, transitions, unit, unit_ids, unit_lines, waits_for, whole_units,
};

pub(crate) use history::history;
pub use history::{HistoryFilter, MAX_HISTORY, UnitHistoryRow};
pub use spans::{IndexedFile, MAX_ASKED_SPANS, MAX_INDEXED_SPANS, SpanFilter, SpanRow, TraceMove};
pub(crate) use spans::{indexed_files, span_owners, spans, untraced_units, written_spans};
pub use state::{MAX_SHOWN_SESSIONS, PilotSums, RetryRow};
pub(crate) use state::{active_sessions, retries, session, sums};
pub use texts::UnitTexts;

/// The most units of a project: the scheduler is measured with as many.
pub const MAX_UNITS: usize = 100_000;
/// The most units that one waits for.
pub const MAX_BLOCKERS: usize = 256;
/// The most candidates that the scheduler is given at a time.
pub const MAX_READY: usize = 1_000;
/// The longest output of a gate that is stored, in bytes (SF-250).
pub const MAX_GATE_BYTES: usize = 8 * 1_024;
/// The longest title or name, in bytes.
pub const MAX_TITLE_BYTES: usize = 1_024;
/// The longest description, metadata, or text of a workflow, in bytes.
pub const MAX_UNIT_TEXT_BYTES: usize = 256 * 1_024;
/// The longest reason or detail that is stored, in characters.
pub const MAX_REASON_CHARS: usize = 4_000;

/// A session of an autopilot on a project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PilotSession {
    /// Its id.
    pub id: PilotId,
    /// The project's folder.
    pub project: String,
    /// Its status: `idle`, `running`, `paused`, `interrupted`, `complete` or `failed`.
    pub status: String,
    /// When it was opened.
    pub created_at: Timestamp,
    /// When it was last changed.
    pub updated_at: Timestamp,
}

/// A unit by its project and id.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnitKey {
    /// The project's folder.
    pub project: String,
    /// Its id: `milestone/m1`, `slice/m1/s2`, `task/m1/s2/t3`.
    pub id: String,
}

/// A unit that is planned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewUnit {
    /// Its id, which says its kind and its parent.
    pub id: String,
    /// Its title.
    pub title: String,
    /// The whole task, in words.
    pub description: String,
    /// More about it, as a JSON object.
    pub metadata: String,
    /// The name of its workflow.
    pub workflow: String,
    /// The SHA-256 of the workflow's text.
    pub workflow_hash: Digest,
    /// Its first phase.
    pub phase: String,
    /// From 1, urgent, to 4; `None` comes last.
    pub priority: Option<u8>,
    /// The units that must be over before it begins.
    pub blocked_by: Vec<String>,
}

// tidy: plain state
/// A unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitRow {
    /// Its project and id.
    pub key: UnitKey,
    /// The session that it was planned in.
    pub session: PilotId,
    /// Its parent.
    pub parent: Option<String>,
    /// `milestone`, `slice` or `task`.
    pub kind: String,
    /// Its title.
    pub title: String,
    /// The whole task, in words.
    pub description: String,
    /// More about it, as a JSON object.
    pub metadata: String,
    /// The name of its workflow.
    pub workflow: String,
    /// The SHA-256 of the workflow's text.
    pub workflow_hash: Digest,
    /// Its phase.
    pub phase: String,
    /// The status of the phase.
    pub phase_status: String,
    /// The number of its dispatch, from one.
    pub attempt: u32,
    /// Set once nothing more is done for it.
    pub is_over: bool,
    /// The number of units that it waits for.
    pub open_blockers: u32,
    /// The number of claims so far.
    pub fence: u64,
    /// The worker that has it, as `{host}#{pid}` or `ssh:{host}#{pid}`, and until when.
    pub claim: Option<(String, Timestamp)>,
    /// The time before which it is not dispatched.
    pub not_before: Timestamp,
    /// From 1, urgent, to 4.
    pub priority: Option<u8>,
    /// The host of its newest workspace.
    pub worker_host: String,
    /// Its newest workspace.
    pub workspace: Option<String>,
    /// When it was archived.
    pub archived_at: Option<Timestamp>,
    /// When it was planned.
    pub created_at: Timestamp,
    /// When it was last changed.
    pub updated_at: Timestamp,
}

/// A unit as lists and the scheduler see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitLine {
    /// Its id.
    pub id: String,
    /// Its parent.
    pub parent: Option<String>,
    /// Its title.
    pub title: String,
    /// Its phase.
    pub phase: String,
    /// The status of the phase.
    pub phase_status: String,
    /// The number of its dispatch.
    pub attempt: u32,
    /// The number of claims so far.
    pub fence: u64,
    /// From 1, urgent, to 4.
    pub priority: Option<u8>,
    /// Set once nothing more is done for it.
    pub is_over: bool,
    /// Set while a worker has it.
    pub is_claimed: bool,
    /// Set once a worker has had it: the fence of a unit that was only cancelled has grown, too.
    pub has_begun: bool,
    /// When it was planned.
    pub created_at: Timestamp,
}

/// A move of a unit from one phase to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitTransition {
    /// The unit.
    pub key: UnitKey,
    /// The fence of the claim.
    pub fence: u64,
    /// The phase that the caller has read.
    pub from: String,
    /// The new phase.
    pub to: String,
    /// The status of the new phase.
    pub status: String,
    /// Set if nothing more is done for the unit.
    pub is_over: bool,
    /// The reason.
    pub reason: String,
    /// When.
    pub at: Timestamp,
}

/// A change of a unit that no worker has: a person's answer, or the harness's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitDecision {
    /// The unit as it is and as it becomes; the fence is that of its last claim. With the same phase twice nothing is written
    /// down as a transition.
    pub change: UnitTransition,
    /// Counters with their new values.
    pub counters: Vec<(String, u64)>,
    /// The time before which it is not dispatched.
    pub not_before: Timestamp,
}

/// A transition that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransitionRow {
    /// The phase before.
    pub from: String,
    /// The phase after.
    pub to: String,
    /// The reason.
    pub reason: String,
    /// When.
    pub at: Timestamp,
}

/// The end of a run, with what it has used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitRunEnd {
    /// The run.
    pub run: UnitRunId,
    /// Its outcome, in the words of SF-049.
    pub outcome: String,
    /// The code of its error; empty without one.
    pub error_code: String,
    /// Tokens that were read by models.
    pub input: Tokens,
    /// Tokens that models have written.
    pub output: Tokens,
    /// Its cost.
    pub cost: MicroUsd,
    /// When.
    pub at: Timestamp,
}

/// A run of a unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunRow {
    /// Its id.
    pub id: UnitRunId,
    /// The id of the unit when it began.
    pub unit: String,
    /// The number of the dispatch.
    pub attempt: u32,
    /// The phase that it worked on.
    pub phase: String,
    /// Its host.
    pub host: String,
    /// Its workspace.
    pub workspace: String,
    /// When it began.
    pub started_at: Timestamp,
    /// Its end, once it has ended.
    pub end: Option<UnitRunEnd>,
}

/// The money that the runs of one unit have cost, without those of its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitCost {
    /// The unit.
    pub unit: String,
    /// The cost of all of its runs that have ended.
    pub cost: MicroUsd,
    /// The part of it that ended at a given time or after it.
    pub since: MicroUsd,
}

/// Something that holds a session up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PilotBlocker {
    /// Its id.
    pub id: BlockerId,
    /// The session.
    pub session: PilotId,
    /// `GateBlocked`, `MergeConflict`, `Paused` or `UATPending`.
    pub event: String,
    /// The unit; empty if it concerns the session.
    pub unit: String,
    /// More about it.
    pub detail: String,
    /// When.
    pub created_at: Timestamp,
}

/// A change to units.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnitOp {
    /// Opens a session. Conflict if its id is there.
    OpenSession(Box<PilotSession>),
    /// Changes the status of a session.
    MoveSession {
        /// The session.
        session: PilotId,
        /// The new status.
        status: String,
        /// When.
        at: Timestamp,
    },
    /// Plans units of a session's project: parents before children. Conflict if an id is there; an id that does not fit its
    /// parent, an unknown parent or blocker, and a circle of blockers are refused.
    Add {
        /// The session.
        session: PilotId,
        /// The units.
        units: Vec<NewUnit>,
        /// When.
        at: Timestamp,
    },
    /// Stores the text of a workflow under its SHA-256; the same text again changes nothing.
    Pin {
        /// Its name.
        name: String,
        /// The text.
        content: String,
        /// When.
        at: Timestamp,
    },
    /// Chooses the workflow of a unit. Conflict once it was dispatched.
    Choose {
        /// The unit.
        key: UnitKey,
        /// The name of the workflow.
        workflow: String,
        /// The SHA-256 of its text, which is pinned.
        hash: Digest,
        /// The first phase.
        phase: String,
    },
    /// Changes the words of a unit and the facts about it. Conflict unless it has this fence, and is neither over nor archived; an
    /// unknown blocker and a circle of blockers are refused.
    Revise(Box<UnitTexts>),
    /// Claims a unit and begins its run. Conflict unless it is ready, or its claim has run out, and has this fence.
    Claim(Box<RunStart>),
    /// Lengthens a claim. Conflict unless it has this fence.
    Renew {
        /// The unit.
        key: UnitKey,
        /// The fence of the claim.
        fence: u64,
        /// Until when.
        until: Timestamp,
    },
    /// Ends the claims of a project that have run out: units and runs are interrupted. Those of workers that live are lengthened.
    Sweep(Box<ClaimSweep>),
    /// Changes nothing. Conflict unless a unit is in this phase with this fence, is neither over nor archived, and no worker has it: what
    /// is committed with it rests on that.
    Require {
        /// The unit.
        key: UnitKey,
        /// The fence that the caller has read.
        fence: u64,
        /// The phase that the caller has read.
        phase: String,
    },
    /// Moves a unit to another phase, and writes that down. Conflict unless it is in this phase under this claim.
    Transition(Box<UnitTransition>),
    /// Changes a unit that no worker has. Conflict if one has it, or if phase or fence are others.
    Decide(Box<UnitDecision>),
    /// Ends every claim of a project: the process that had them is dead, as the lock of its repository says.
    Abandon {
        /// The project's folder.
        project: String,
        /// When.
        at: Timestamp,
    },
    /// Ends the claim of a unit: another worker may have it from a time on. Conflict unless it has this fence.
    Release {
        /// The unit.
        key: UnitKey,
        /// The fence of the claim.
        fence: u64,
        /// The status of its phase.
        status: String,
        /// The time before which it is not dispatched.
        not_before: Timestamp,
        /// When.
        at: Timestamp,
    },
    /// Cancels a unit by an operator's word: its phase stays, its claim ends, and its worker writes nothing more.
    Cancel {
        /// The unit.
        key: UnitKey,
        /// When.
        at: Timestamp,
    },
    /// Adds the reason to the metadata of a unit that was cancelled, as `cancelled`.
    NoteCancel {
        /// The unit.
        key: UnitKey,
        /// The reason, in words.
        reason: String,
    },
    /// Adds to the metadata of a unit that is over that its commits were undone, as `reverted`.
    NoteRevert {
        /// The unit.
        key: UnitKey,
    },
    /// Stores how the request of a unit at a forge stands, in its metadata as `ship`. One that is open stays open; a unit that is not
    /// there is passed over: what was opened is opened.
    NoteShip {
        /// The unit.
        key: UnitKey,
        /// The state, as JSON.
        ship: String,
    },
    /// Notes the choice of a model before an attempt.
    NoteChoice(Box<ChoiceRow>),
    /// Adds the rating of an attempt.
    AddResult(Box<ResultRow>),
    /// Stores the circuit of a model; one of the same model is replaced.
    SetCircuit(Box<CircuitRow>),
    /// Removes the circuit of a model, or those of all models of a project.
    ClearCircuits {
        /// The project's folder.
        project: String,
        /// The model; `None`: all of them.
        model: Option<String>,
    },
    /// Adds a run of a hook; of each unit the newest [`MAX_HOOK_RUNS`] stay.
    AddHookRun(Box<HookRunRow>),
    /// Ends a run. Conflict if it has ended.
    EndRun(Box<UnitRunEnd>),
    /// Adds to a run that was ended without them what it has used; one that has figures stays as it is.
    PayRun(Box<UnitRunEnd>),
    /// Stores the result of a gate.
    RecordGate(Box<GateRow>),
    /// Sets a counter of a unit. Conflict unless it has this fence.
    SetCounter {
        /// The unit.
        key: UnitKey,
        /// The fence of the claim.
        fence: u64,
        /// Its name.
        counter: String,
        /// Its value.
        value: u64,
    },
    /// Notes something that holds a session up.
    Raise(Box<PilotBlocker>),
    /// Resolves what holds a session up: the event of this unit.
    Resolve {
        /// The session.
        session: PilotId,
        /// The event.
        event: String,
        /// The unit.
        unit: String,
        /// `user`, `auto`, or the command.
        by: String,
        /// When.
        at: Timestamp,
    },
    /// Notes where spans lie in the files of a trace. Conflict if one of them is there.
    IndexSpans(Vec<SpanRow>),
    /// Notes where spans lie that were found in files. One that is there stays as it is, and one with a text beyond its bound has no place.
    ReindexSpans(Vec<SpanRow>),
    /// Notes that a trace file has another place.
    MoveTrace(Box<TraceMove>),
    /// Archives a unit that is over.
    Archive {
        /// The unit.
        key: UnitKey,
        /// When.
        at: Timestamp,
    },
}

fn cut(text: &str) -> String {
    text.chars().take(MAX_REASON_CHARS).collect()
}

#[cfg(test)]
mod tests;
