//! What a project's autopilot has done: its report, the log of a unit, and what a unit changes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::FailureClass;
use crate::unit::{MicroUsd, Timestamp, Tokens};

/// A project's autopilot as a whole, or one of its units with its parts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PilotScope {
    /// The project's folder.
    pub project: String,
    /// The unit's id; empty: all units.
    #[serde(default)]
    pub unit: String,
}

/// All that a report shows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PilotReport {
    /// The project's name.
    pub project: String,
    /// The time of the report.
    pub made_at: Timestamp,
    /// The cost of the attempts that it lists, in micro-USD.
    pub cost: MicroUsd,
    /// The tokens that they have read and written.
    pub tokens: Tokens,
    /// The units, each before its parts.
    pub units: Vec<ReportUnit>,
    /// The attempts, the oldest first.
    pub runs: Vec<ReportRun>,
    /// The gates, the oldest first.
    pub gates: Vec<ReportGate>,
    /// The moves between phases, the oldest first.
    pub moves: Vec<ReportMove>,
    /// The last findings of reviews.
    pub reviews: Vec<ReportReview>,
    /// The commits of the units that the target branch has, the newest first.
    pub commits: Vec<ReportCommit>,
}

/// A unit of a report.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReportUnit {
    /// Its id.
    pub id: String,
    /// The levels above it.
    pub depth: u32,
    /// Its title.
    pub title: String,
    /// Its phase.
    pub phase: String,
    /// Its status, such as `blocked`.
    pub status: String,
    /// The reason why it waits; empty if it does not.
    pub blocker: String,
    /// The address of its request at a forge, or the reason why that is not open; empty if none was to be opened.
    #[serde(default)]
    pub request: String,
    /// Its cost, with that of its parts.
    pub cost: MicroUsd,
}

/// An attempt of a report.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReportRun {
    /// Its unit.
    pub unit: String,
    /// Its phase.
    pub phase: String,
    /// Its number.
    pub attempt: u32,
    /// Its end; empty while it runs.
    pub end: String,
    /// The code of its error; empty without one.
    pub error: String,
    /// The class of its error, which fixes what follows; none without an error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<FailureClass>,
    /// Its beginning.
    pub started_at: Timestamp,
    /// The time that it took, in milliseconds.
    pub millis: u64,
    /// The tokens that it has read and written.
    pub tokens: Tokens,
    /// Its cost.
    pub cost: MicroUsd,
}

/// A gate of a report.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReportGate {
    /// Its unit.
    pub unit: String,
    /// Its name.
    pub name: String,
    /// The number of the try, from one.
    pub attempt: u32,
    /// `pass` or `fail`.
    pub verdict: String,
    /// The reason in one line.
    pub summary: String,
    /// The time that it took, in milliseconds.
    pub millis: u64,
    /// When.
    pub at: Timestamp,
}

/// A move of a report.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReportMove {
    /// Its time.
    pub at: Timestamp,
    /// Its unit.
    pub unit: String,
    /// The phase before.
    pub from: String,
    /// The phase after.
    pub to: String,
    /// Its cause.
    pub cause: String,
}

/// The findings of a unit's last review.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReportReview {
    /// The unit.
    pub unit: String,
    /// The findings, one a line; empty: it had none.
    pub findings: String,
}

/// A commit of a report.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReportCommit {
    /// Its id.
    pub id: String,
    /// Its unit.
    pub unit: String,
    /// The first line of its message.
    pub subject: String,
    /// Its date.
    pub at: Timestamp,
    /// True if it joins two histories.
    pub is_merge: bool,
}

/// A question about the log of a unit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PilotLogQuery {
    /// The project's folder.
    pub project: String,
    /// The unit's id.
    pub unit: String,
    /// The number of one attempt; zero: all.
    #[serde(default)]
    pub attempt: u32,
    /// The most lines, the newest of them; zero: as many as there can be.
    #[serde(default)]
    pub last: usize,
    /// So many of the newest lines are passed over: for reading page by page. At most 100,000.
    #[serde(default)]
    pub skip: usize,
}

/// Everything that happened to a unit, in its order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PilotLog {
    /// The unit.
    pub unit: String,
    /// The lines, the oldest first.
    pub lines: Vec<PilotLogLine>,
    /// At least so many older lines are left out: those that were read, and one for each attempt that was not.
    pub left_out: usize,
}

/// One thing that happened.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PilotLogLine {
    /// When.
    pub at: Timestamp,
    /// The number of the attempt; zero where it belongs to none.
    pub attempt: u32,
    /// `begin`, `end`, `turn`, `model`, `tool`, `result`, `denied`, `asked`, `said`, `gate` or `move`.
    pub kind: String,
    /// It, in one line.
    pub text: String,
    /// The time that it took, in milliseconds, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took_ms: Option<u64>,
    /// The tokens that it has read and written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<Tokens>,
    /// Its cost, in micro-USD.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<MicroUsd>,
}

/// The changes of a unit's slice that are not in the target.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PilotChanges {
    /// The unit.
    pub unit: String,
    /// The branch; empty: its work has not begun, or is over.
    pub branch: String,
    /// The target.
    pub target: String,
    /// The commits of the branch as a unified diff from where it has left the target.
    pub diff: String,
    /// True if the end of the diff is left out.
    pub is_cut: bool,
    /// Files that the attempt which runs has changed, and that are not committed.
    pub pending: Vec<String>,
}
