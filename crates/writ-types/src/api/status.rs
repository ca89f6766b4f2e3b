//! The state of the engine.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::digest::Digest;
use crate::id::{AttemptId, EntrySeq, InstallationId, SessionId, TurnId};
use crate::unit::{MicroUsd, Tokens};

/// The state of the engine, of its queue and of today's spending.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
// tidy: plain state
pub struct EngineStatus {
    /// The installation.
    pub installation: InstallationId,
    /// The epoch in force; a restore raises it.
    pub epoch: u64,
    /// The agent's name.
    pub agent: String,
    /// The settings that security depends on; `docs/security-model.md` explains them.
    pub posture: Value,
    /// When the engine started, as RFC 3339.
    pub started_at: String,
    /// The seconds that the clock is behind the latest time in the ledger.
    pub clock_behind_secs: u64,
    /// True if a model is configured or was found.
    pub model: bool,
    /// The model that was found on this machine, with its place; none if it was configured.
    pub model_found: Option<String>,
    /// Digest of the rules in force.
    pub policy: Digest,
    /// The turns that run.
    pub running: Vec<RunningTurn>,
    /// Turns that have ended since the start.
    pub turns_finished: u64,
    /// Messages in the queue.
    pub queue: QueueCounts,
    /// Open asks; 500 stands for 500 or more.
    pub open_asks: usize,
    /// Sandboxes that were started in advance.
    pub sandboxes_ready: usize,
    /// MCP servers that run.
    pub servers_running: usize,
    /// True if a case router of a fleet runs.
    pub case_router: bool,
    /// Attempts without an outcome.
    pub open_intents: Vec<OpenAttempt>,
    /// Entries of the ledger.
    pub ledger: u64,
    /// The settings that have changed since the start.
    pub settings: SettingsStatus,
    /// The session that was used last.
    pub session: Option<SessionSpending>,
    /// Spending of the current budget day.
    pub today: DaySpending,
}

/// The settings of a running engine, after its file has changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SettingsStatus {
    /// The changes that were taken over.
    pub changes: u64,
    /// The reason why the file as it is now cannot stand; none: it is in force.
    pub fault: Option<String>,
    /// The names of settings that differ from those in force until the next start.
    pub needs_restart: Vec<String>,
}

/// A turn that runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunningTurn {
    /// Its session.
    pub session: SessionId,
    /// The turn.
    pub turn: TurnId,
    /// Its number in the session, from one.
    pub number: u64,
}

/// Messages in the queue, by state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QueueCounts {
    /// Waiting.
    pub ready: u64,
    /// Taken by a turn.
    pub leased: u64,
    /// Set aside after their last attempt, or because their session was closed.
    pub dead: u64,
}

/// An attempt without an outcome.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OpenAttempt {
    /// The attempt.
    pub attempt: AttemptId,
    /// The entry of its intent.
    pub entry: EntrySeq,
}

/// Tokens of one session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SessionSpending {
    /// The session.
    pub session: SessionId,
    /// Tokens it has used since it was renewed.
    pub tokens: Tokens,
    /// Tokens it may use.
    pub limit: Tokens,
    /// True if it has reached the limit.
    pub paused: bool,
}

/// Tokens and money of one budget day.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DaySpending {
    /// Tokens used.
    pub tokens: Tokens,
    /// Tokens that may be used.
    pub limit: Tokens,
    /// True if the limit is reached.
    pub paused: bool,
    /// Millionths of a US dollar; none if the price of one call is unknown, since the sum would be too low.
    pub cost_micro_usd: Option<MicroUsd>,
}
