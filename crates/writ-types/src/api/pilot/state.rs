//! The autopilots of a home, as programs watch them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{PilotLogLine, PilotUnitLine};
use crate::api::model::ProviderLimits;
use crate::id::{PilotId, SessionId};
use crate::unit::{Timestamp, Tokens};

/// A session of an autopilot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PilotSessionQuery {
    /// Its id; none: every session that is not over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<PilotId>,
}

/// A unit of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PilotUnitQuery {
    /// The id of the unit: `milestone/m1`, `slice/m1/s2`, `task/m1/s2/t3`.
    pub unit: String,
    /// The session; none: every session that is not over and has such a unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<PilotId>,
}

/// One session if it was named, else all that are not over.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum PilotState {
    /// All of them.
    All(PilotSnapshots),
    /// The one that was named.
    One(Box<PilotSnapshot>),
}

/// All sessions that are not over.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PilotSnapshots {
    /// The time of the look.
    pub generated_at: Timestamp,
    /// One snapshot for each, the oldest session first.
    pub sessions: Vec<PilotSnapshot>,
}

/// A session of an autopilot at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PilotSnapshot {
    /// The time of the look.
    pub generated_at: Timestamp,
    /// The session.
    pub session: PilotId,
    /// The project's folder.
    pub project: String,
    /// `idle`, `running`, `paused`, `interrupted`, `complete` or `failed`.
    pub state: String,
    /// The number of times that its loop has looked at the units, since this engine has opened the project.
    pub ticks: u64,
    /// The number of units at work, waiting for another try, and ready.
    pub counts: PilotCounts,
    /// The units at work.
    pub running: Vec<PilotRunningLine>,
    /// The units that wait for another try, the next one first.
    pub retrying: Vec<PilotRetryLine>,
    /// The sums over all runs, also those under way.
    pub totals: PilotTotals,
    /// The limits of their rate that the engine's providers have stated last. They are shown alone: nothing waits for them or is chosen by them.
    #[serde(default)]
    pub rate_limits: Vec<ProviderLimits>,
}

/// The numbers of units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PilotCounts {
    /// Units at work.
    pub running: u64,
    /// Units that wait for another try.
    pub retrying: u64,
    /// Units that nothing but a free worker holds up, at most 1,000.
    pub queued: u64,
}

/// A unit at work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PilotRunningLine {
    /// The unit.
    pub unit_id: String,
    /// The phase that is worked on.
    pub phase: String,
    /// The session of the agent; none where no agent works, or before it has begun.
    pub session_id: Option<SessionId>,
    /// The calls of its model so far.
    pub turn_count: u64,
    /// The kind of the newest entry of its session; empty without one.
    pub last_event: String,
    /// The begin of the run.
    pub started_at: Timestamp,
    /// The tokens that it has used so far.
    pub tokens: PilotTokens,
}

/// Tokens of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PilotTokens {
    /// Read by models.
    pub input: Tokens,
    /// Written by models.
    pub output: Tokens,
    /// Both together.
    pub total: Tokens,
}

/// A unit that waits for another try.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PilotRetryLine {
    /// The unit.
    pub unit_id: String,
    /// The number of its newest dispatch.
    pub attempt: u32,
    /// The time of the next try.
    pub due_at: Timestamp,
    /// The code of the last run's error; without one its outcome.
    pub error: String,
}

/// Sums over runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PilotTotals {
    /// Tokens that were read by models.
    pub input_tokens: Tokens,
    /// Tokens that models have written.
    pub output_tokens: Tokens,
    /// The cost, in US dollars.
    pub cost_usd: f64,
    /// The time of all runs together, in whole seconds.
    pub seconds_running: u64,
}

/// A unit in one session if that was named, else in all that are not over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum PilotUnitState {
    /// In all of them.
    All(PilotUnitSnapshots),
    /// In the one that was named.
    One(Box<PilotUnitSnapshot>),
}

/// A unit in all sessions that are not over and have one of that id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PilotUnitSnapshots {
    /// The time of the look.
    pub generated_at: Timestamp,
    /// One for each session, the oldest first.
    pub sessions: Vec<PilotUnitSnapshot>,
}

/// A unit at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PilotUnitSnapshot {
    /// The time of the look.
    pub generated_at: Timestamp,
    /// The session.
    pub session: PilotId,
    /// The project's folder.
    pub project: String,
    /// The unit.
    pub unit: PilotUnitLine,
    /// What happened to it last, oldest first.
    pub recent_events: Vec<PilotLogLine>,
    /// Its newest workspace; none before its first run.
    pub workspace_path: Option<String>,
    /// The number of its runs that did not succeed.
    pub retry_count: u64,
    /// The last error, as its next attempt reads it; empty without one.
    pub last_error: String,
    /// The file of its newest span; none before there is one.
    pub log_path: Option<String>,
}

/// The receipt of a request to look at the units now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PilotRefreshed {
    /// When it was asked for.
    pub requested_at: Timestamp,
    /// The number of loops that look because of it.
    pub queued: u64,
    /// The number of loops that look because of an earlier request which was not served yet.
    pub coalesced: u64,
}
