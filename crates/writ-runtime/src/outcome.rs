//! Results of calls, as models, watchers and the ledger are given them.

use writ_tools::render::Rendered;
use writ_types::chat::{ToolCall, ToolOutcome, ToolResult};
use writ_types::digest::Digest;
use writ_types::entry::Fact;
use writ_types::id::{AskId, AttemptId};
use writ_types::taint::{Label, Taint};
use writ_types::unit::MicroUsd;

use crate::pending::Pending;

/// The name of the redactor in entries of the ledger.
pub(crate) const REDACTOR: &str = "redactor";

/// The longest summary of a step, in characters.
pub(crate) const MAX_SUMMARY: usize = 160;

/// The result of a call that was not performed, in the harness's own words.
pub(crate) fn fixed_result(call: &ToolCall, text: &'static str) -> ToolResult {
    ToolResult {
        call_id: call.id.clone(),
        name: call.name.clone(),
        outcome: ToolOutcome::Done,
        text: text.to_owned(),
        label: Label::new(Taint::Owner),
        fields: Vec::new(),
        kept: None,
    }
}

/// The ledger's record of a result.
pub(crate) fn outcome_entry(attempt: AttemptId, rendered: &Rendered) -> Fact {
    let first = rendered.text.lines().next().unwrap_or_default();
    Fact::Outcome {
        attempt,
        outcome: rendered.outcome,
        summary: first.chars().take(MAX_SUMMARY).collect(),
        result: Digest::of_bytes(rendered.text.as_bytes()),
        label: rendered.label.clone(),
    }
}

/// The name of an outcome in frames.
pub(crate) const fn outcome_name(outcome: ToolOutcome) -> &'static str {
    match outcome {
        ToolOutcome::Done => "done",
        ToolOutcome::Failed => "failed",
        ToolOutcome::Denied => "denied",
        ToolOutcome::Waiting => "waiting",
        ToolOutcome::Unknown => "unknown",
        ToolOutcome::Simulated => "simulated",
        ToolOutcome::Cancelled => "cancelled",
    }
}

/// Returns the message to the person about a turn that a hook has ended.
pub(crate) fn halted(why: &str) -> String {
    format!("A hook has ended this turn: {why}")
}

/// The result of a call.
#[derive(Debug)]
pub(crate) struct Acted {
    pub(crate) result: ToolResult,
    pub(crate) ask: Option<AskId>,
    /// The operations for the ledger and the watchers, to be written together with the turn's event.
    pub(crate) ops: Pending,
    /// True if the work folder may have changed.
    pub(crate) touched: bool,
    /// True if all effects of the call are in the operations: then they may be written with the next ones.
    pub(crate) inside: bool,
    /// The text that the turn ends with, if a gate has ended it.
    pub(crate) ends: Option<String>,
    /// The cost of the models that the call has asked.
    pub(crate) cost: MicroUsd,
}
