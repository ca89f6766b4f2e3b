//! Every fixed text that the machine says, to the model and to people.

use serde::{Deserialize, Serialize};
use writ_types::chat::{ToolOutcome, ToolResult, ToolSpec};
use writ_types::id::AskId;
use writ_types::similar::nearest_name;
use writ_types::taint::Taint;
use writ_types::unit::Tokens;

use crate::event::BudgetSeed;
use crate::text;

/// For the model, once, in the first turn after a restart.
pub const REHYDRATED: &str = "[SYSTEM] Session rehydrated after restart.";

/// For the person when the proxy has sent the message to the planner.
pub const BEING_PLANNED: &str =
    "This is being planned. The plan comes to you as one card; nothing is done before you approve it.";

/// For the model when the proxy has sent the first message to the planner and another one came meanwhile.
pub const HANDED_TO_PLANNER: &str = "The message above is with the planner, which makes a plan of it for the person to approve. \
Do none of it yourself; answer what came after it.";

/// For the person when the session's token budget is used up: nothing is discarded, and there are three ways
/// to continue.
pub const SESSION_EXHAUSTED: &str = "The token budget of this session is used up, so the session is paused. \
All work is saved. You can send another message to continue with a fresh allocation, send /reset to start over, \
or raise `[budget].max_tokens_per_session`.";

/// For the person when the day's token budget is used up.
pub const DAILY_EXHAUSTED: &str = "The token budget of today is used up, so all sessions are paused. \
Send a message tomorrow to go on, or raise `[budget].max_tokens_per_day`.";

/// For the person when the answer reached its size limit.
pub const CUT: &str = "The answer is cut: it reached the size limit of one answer.";

/// For the person when the provider withheld the answer.
pub const WITHHELD: &str = "The model's provider withheld the answer (content filter).";

/// For the person when a gate or a failure gave no text of its own.
pub const NO_REASON: &str = "This was stopped without a reason given.";

/// For the person when the model returned no text.
pub const NO_ANSWER: &str = "The model ended without an answer.";

/// For the person when the model used its tools and then returned no text.
pub const NO_CLOSING_TEXT: &str = "The model used its tools and ended without a closing text.";

/// For the person when the model stopped for tools and named none.
pub const NO_TOOL_NAMED: &str = "The model stopped to use a tool but named none.";

/// For the person when the model repeats itself.
pub const STUCK: &str =
    "The turn was ended: the model kept repeating the same tool calls without any progress.";

/// For the person when a turn makes no progress.
pub const NO_PROGRESS: &str = "The turn was ended: ten tool calls in a row failed or were denied. Send another message to go on another way.";

/// For the model when it repeats itself for the first time.
pub const REPEATED: &str = "Refused: you have made this call before, with the same result each time. \
Do something else, or tell the person what stops you. Repeating it again ends the turn.";

/// For the model about a call that was open or outstanding when the turn was stopped.
pub const STOPPED: &str = "Not finished: the turn was stopped.";

/// For the model about a call with an unknown outcome after a crash.
pub const UNKNOWN: &str = "It is not known whether this call took effect: the engine was restarted, or could not go on, while it ran. \
Look before you do it again; doing it again asks the person first.";

/// Stored in the conversation when a person stopped the turn.
pub const CANCELLED: &str = "[SYSTEM] The person stopped this turn before it was answered.";

/// A note about the session's token budget, for the model only. Each is given once per session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BudgetNote {
    /// 70 per cent are used.
    Wrap,
    /// 85 per cent are used.
    Finish,
    /// 95 per cent are used.
    Last,
}

impl BudgetNote {
    /// Every note, in the order in which they come.
    pub const ALL: [Self; 3] = [Self::Wrap, Self::Finish, Self::Last];

    /// From how many per cent of the budget on it is due.
    pub const fn percent(self) -> u64 {
        match self {
            Self::Wrap => 70,
            Self::Finish => 85,
            Self::Last => 95,
        }
    }

    /// Returns the text for the model.
    pub const fn note_text(self) -> &'static str {
        match self {
            Self::Wrap => "[System: Budget at 70%. Consider wrapping up or summarising.]",
            Self::Finish => "[System: Budget at 85%. Finish what you are doing and avoid new tool calls.]",
            Self::Last => {
                "[System: Budget at 95%. Send your final response now: the session is about to be paused.]"
            }
        }
    }

    /// The note that is due, if the session has not been given it yet. When
    /// several thresholds were crossed at once, only the last counts.
    pub fn due_note(budget: &BudgetSeed) -> Option<Self> {
        // A session without a limit gets no notes.
        if budget.limit == Tokens::MAX {
            return None;
        }
        let crossed = |note: &Self| {
            u128::from(budget.used.get()) * 100 >= u128::from(note.percent()) * u128::from(budget.limit.get())
        };
        Self::ALL
            .into_iter()
            .rev()
            .find(crossed)
            // Each note is given once; a higher one replaces the lower ones that were skipped.
            .filter(|note| budget.given.is_none_or(|given| given < *note))
    }
}

/// Returns the note for the model about its own answer that a gate has withheld.
pub fn withheld_note(why: &str) -> String {
    format!(
        "[SYSTEM] Your answer was withheld, and was not shown: {why}. Answer again in other words, without what \
         stopped it. Do not speak of this note."
    )
}

/// Returns the note for the model about an answered ask and its result. Foreign text in it is marked as data.
pub fn answered_note(ask: &AskId, result: &ToolResult) -> String {
    let outcome = outcome_word(result.outcome);
    let foreign = result.label.taint == Taint::External;
    let text = if foreign { text::mark_external(&result.name, &result.text) } else { result.text.clone() };
    format!("[SYSTEM] Ask {ask} for '{}' was answered: {outcome}.\n{text}", text::plain_name(&result.name))
}

/// Returns the note for the model of a conversation about a work item that has come from it. The report may quote outputs of
/// programs, so it is marked as data.
pub fn work_note(title: &str, state: &str, report: &str) -> String {
    let title: String = title.chars().filter(|c| !c.is_control()).collect();
    format!(
        "[SYSTEM] The work item '{title}' of this conversation is {state}.\n{}",
        text::mark_external("work", report)
    )
}

const fn outcome_word(outcome: ToolOutcome) -> &'static str {
    match outcome {
        ToolOutcome::Done => "it was done",
        ToolOutcome::Failed => "it was done and failed",
        ToolOutcome::Denied => "it was denied",
        ToolOutcome::Waiting => "it still waits",
        ToolOutcome::Unknown => "whether it was done is not known",
        ToolOutcome::Simulated => "it was simulated",
        ToolOutcome::Cancelled => "it was not done",
    }
}

/// Returns the note for the model about calls beyond the cap of one reply.
pub(crate) fn too_many_calls(left_out: usize, most: u32) -> String {
    format!("[SYSTEM] {left_out} more tool calls of that reply were ignored: at most {most} are looked at.")
}

/// Returns the note for the model about a tool that does not exist.
pub(crate) fn unknown_tool(name: &str, offered: &[&str]) -> String {
    let meant =
        nearest_name(name, offered).map(|name| format!(" Did you mean '{name}'?")).unwrap_or_default();
    format!("There is no tool '{name}'.{meant} The tools are: {}.", offered.join(", "))
}

/// The most parameters that are named in one message.
const MAX_PARAMETERS: usize = 16;

/// Returns the note for the model about arguments of the wrong shape, with the tool's parameters.
pub(crate) fn arguments_not_an_object(tool: Option<&ToolSpec>) -> String {
    let none = serde_json::Map::new();
    let schema = tool.map(|tool| &tool.schema);
    let properties = schema.and_then(|schema| schema["properties"].as_object()).unwrap_or(&none);
    let required = schema.and_then(|schema| schema["required"].as_array());
    let parameter = |(name, property): (&String, &serde_json::Value)| {
        let kind = property["type"].as_str().unwrap_or("any");
        let must = required.is_some_and(|names| names.iter().any(|one| one == name));
        format!("'{}' ({kind}{})", text::plain_name(name), if must { ", required" } else { "" })
    };
    let named: Vec<String> = properties.iter().take(MAX_PARAMETERS).map(parameter).collect();
    let named =
        if named.is_empty() { String::new() } else { format!(" Its parameters are {}.", named.join(", ")) };
    format!("The arguments must be a JSON object that fits the tool's schema. Nothing was done.{named}")
}

/// Returns the note for the model about arguments beyond the limit.
pub(crate) fn arguments_too_large(bytes: usize, most: u64) -> String {
    format!("The arguments have {bytes} bytes, at most {most} are accepted. Nothing was done.")
}

/// Returns the notice for the person that the cap of tool calls ended the turn.
pub(crate) fn tool_cap(most: u32) -> String {
    format!(
        "The turn was ended: it reached its limit of {most} tool calls. Send another message to continue."
    )
}

/// Returns the note for the model about a call beyond the cap.
pub(crate) fn beyond_tool_cap(most: u32) -> String {
    format!("Not run: the limit of {most} tool calls per turn is reached.")
}

/// Returns the notice for the person that the cap of model calls ended the turn.
pub(crate) fn model_cap(most: u32) -> String {
    format!(
        "The turn was ended: it reached its limit of {most} model calls. Send another message to continue."
    )
}

/// Returns the notice for the person that the turn took too long.
pub(crate) fn too_long(secs: u32) -> String {
    format!(
        "The turn was ended: it reached its time limit of {secs} seconds. Send another message to continue."
    )
}

/// Returns the notice for the person that the model stopped for an unknown reason.
pub(crate) fn stopped_for(reason: &str) -> String {
    format!("The model stopped before it was done (reason: {reason}).")
}

/// Returns the notice for the person that a gate stopped a message sent during the turn.
pub(crate) fn message_blocked(reason: &str) -> String {
    format!("A message that you sent meanwhile was blocked: {reason}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(used: u64, given: Option<BudgetNote>) -> Option<BudgetNote> {
        BudgetNote::due_note(&BudgetSeed { used: Tokens::new(used), limit: Tokens::new(1_000), given })
    }

    /// Rows: WIN-356 WIN-357 WIN-358
    #[test]
    fn notes_are_due_at_70_85_and_95_per_cent_and_once_each() {
        assert_eq!(due(699, None), None);
        assert_eq!(due(700, None), Some(BudgetNote::Wrap));
        assert_eq!(due(849, Some(BudgetNote::Wrap)), None);
        assert_eq!(due(850, Some(BudgetNote::Wrap)), Some(BudgetNote::Finish));
        assert_eq!(due(949, Some(BudgetNote::Finish)), None);
        assert_eq!(due(950, Some(BudgetNote::Finish)), Some(BudgetNote::Last));
        assert_eq!(due(2_000, Some(BudgetNote::Last)), None);
        assert_eq!(due(960, None), Some(BudgetNote::Last));
        for note in BudgetNote::ALL {
            assert!(note.note_text().starts_with(&format!("[System: Budget at {}%", note.percent())));
        }
    }

    #[test]
    fn a_session_without_a_limit_gets_no_notes() {
        let budget = BudgetSeed { used: Tokens::MAX, limit: Tokens::MAX, given: None };
        assert_eq!(BudgetNote::due_note(&budget), None);
    }
}
