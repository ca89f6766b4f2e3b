//! The spans of an autopilot, and the cleaning up of its files.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::unit::Timestamp;

/// The spans of a unit, a run or a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PilotTraceQuery {
    /// The project's folder.
    pub project: String,
    /// The id of the unit, the run, or the session.
    pub id: String,
    /// At most so many spans, the newest; 0: as many as one answer takes.
    #[serde(default)]
    pub last: usize,
}

/// A span: something that the autopilot has done, with its time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PilotSpan {
    /// The trace: all spans of one unit have the same.
    pub trace_id: String,
    /// The span, unique within its run.
    pub span_id: String,
    /// The span around it.
    pub parent_span_id: Option<String>,
    /// The run; of a span outside of runs, the session.
    pub run_id: String,
    /// The kind of work.
    pub operation: SpanOperation,
    /// Its begin.
    pub started_at: Timestamp,
    /// The time that it took, in milliseconds.
    pub duration_ms: u64,
    /// More about it.
    pub attrs: Map<String, Value>,
    /// The reason for which it has failed; none if it did not.
    pub error: Option<String>,
}

/// The kind of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SpanOperation {
    /// A run of a unit.
    Run,
    /// A move from one phase to another.
    PhaseTransition,
    /// A call of a tool.
    ToolCall,
    /// A request to a model.
    ModelRequest,
    /// A run of a gate.
    Gate,
    /// A call of a hook.
    Hook,
}

impl SpanOperation {
    /// Returns its name in files and in the index.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::PhaseTransition => "phase_transition",
            Self::ToolCall => "tool_call",
            Self::ModelRequest => "model_request",
            Self::Gate => "gate",
            Self::Hook => "hook",
        }
    }
}

/// A part of the work on a unit that had one intent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PilotChapter {
    /// Its id: the run, and its number in that.
    pub id: String,
    /// The unit.
    pub unit_id: String,
    /// Its name: the phase, or what an agent has called it.
    pub name: String,
    /// True if an agent has opened it.
    pub is_declared: bool,
    /// The intent, in one sentence; empty while it is open.
    pub intent: String,
    /// Its begin.
    pub opened_at: Timestamp,
    /// Its end; none while it is open.
    pub closed_at: Option<Timestamp>,
    /// What came of it; none while it is open.
    pub outcome: Option<ChapterOutcome>,
    /// The spans in it, where they are shown with it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub span_ids: Vec<String>,
}

/// The outcome of a chapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ChapterOutcome {
    /// Its run has ended well in it.
    Success,
    /// Its run has ended otherwise in it.
    Failure,
    /// The agent has turned to another chapter.
    Pivot,
}

impl ChapterOutcome {
    /// Returns its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Failure => "failure",
            Self::Pivot => "pivot",
        }
    }
}

/// The spans that were found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PilotTrace {
    /// The id that was looked for.
    pub id: String,
    /// The spans, by their begins.
    pub spans: Vec<PilotSpan>,
    /// The chapters of the unit, of which each of these spans that is in one bears the id as `chapter`.
    #[serde(default)]
    pub chapters: Vec<PilotChapter>,
    /// Spans without a readable record, and units with spans that could not be written, each with the reason.
    pub unreadable: Vec<String>,
    /// The bytes of the lines that were read in trace files.
    pub read_bytes: u64,
}

/// An order to clean up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PilotCleaning {
    /// The project's folder.
    pub project: String,
    /// Only list what would be done.
    #[serde(default)]
    pub dry_run: bool,
}

/// The result of cleaning up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PilotCleaned {
    /// True if nothing was changed.
    pub dry_run: bool,
    /// Trace files that are moved to the archive, below the project's folder.
    pub archived: Vec<String>,
    /// Trace files with a move that was interrupted earlier; their index is brought up to date.
    pub repaired: Vec<String>,
}
