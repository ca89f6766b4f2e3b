//! Notices about a model's window, and the end of a turn with a full context.

use writ_models::PlannedCall;
use writ_store::batch::Op;
use writ_types::chat::{Part, Usage};
use writ_types::error::{Exit, Report};
use writ_types::frame::ServerFrame;
use writ_types::unit::Tokens;

use super::experience;
use crate::context_budget::ContextBudget;
use crate::place::CallPlace;

/// The share of the model's window, in per cent, from which a request is noted as nearly filling it
/// (SCL-042).
const WINDOW_NOTED_PCT: u128 = 80;

/// Notes once in a session when a request comes to nearly fill what the model can take.
pub(super) fn note_window(place: &CallPlace, planned: &PlannedCall) {
    let (input, window) = (planned.model_call().input_tokens, planned.model_info().context_window);
    let full = nearly_full(input, window);
    if !place.session.state().notices.note_window(full) {
        return;
    }
    let model = planned.requested_model();
    tracing::warn!(session = %place.session.id, model, %input, %window, "the model's window is nearly full");
    let text = format!(
        "This session fills {input} of the {window} that {model} can take. Older parts of it may soon be \
         left out or refused: `writ chat --new` begins a new one."
    );
    place.session.hub.pass(ServerFrame::Status { text });
}

/// Notes how many tokens a request really had. Shows once in a session that the model has read only a part of what it was sent.
/// Returns the operation that stores what was learned.
pub(super) fn note_usage(place: &CallPlace, planned: &PlannedCall, usage: &Usage) -> Option<Op> {
    let Some(read) = planned.cut_to(usage) else {
        let parts = planned.request().messages.iter().flat_map(|message| &message.parts);
        // The bound of a file says nothing about texts.
        if parts.into_iter().any(|part| matches!(part, Part::File(_))) {
            return None;
        }
        let (model, estimated) = (planned.requested_model(), planned.model_call().input_tokens);
        let experience = &place.services.life.experience;
        return experience.estimates.note_usage(&model, estimated, usage.input).map(experience::corrections);
    };
    if !place.session.state().notices.note_cut() {
        return None;
    }
    let (sent, model) = (planned.model_call().input_tokens, planned.requested_model());
    tracing::warn!(session = %place.session.id, model, %sent, %read, "the model's server cut the request");
    let text = format!(
        "{model} seems to have read only {read} of about {sent}: its server cuts what does not fit. Start it \
         with more, such as OLLAMA_CONTEXT_LENGTH=32768; until then Writ leaves out old parts."
    );
    place.session.hub.pass(ServerFrame::Status { text });
    None
}

/// Counts an answer of the model of a turn, in the budget of its session's context.
pub(super) fn count_answer(place: &CallPlace, usage: &Usage) {
    if let Some(budget) = &mut place.session.state().context.budget {
        budget.note_answer(usage);
    }
}

/// Returns the reason that the model of a turn is not asked again: its context is full. The session notes it.
pub(super) fn refuse_full(place: &CallPlace) -> Option<Report> {
    let mut state = place.session.state();
    let budget = state.context.budget.filter(ContextBudget::is_at_hard_limit)?;
    state.context.is_full = true;
    let (used, max) = (budget.used(), budget.max());
    tracing::warn!(session = %place.session.id, %used, %max, "the context of an attempt is full");
    let text = format!("the context holds {used} of {max}, and its hard limit is reached");
    let hint =
        "the next attempt begins with an empty context; make the unit smaller, or raise `context_hard_limit`";
    Some(Report::new(Exit::Budget, "agent.context_full", text).with_hint(hint))
}

/// Returns true if a request fills at least `WINDOW_NOTED_PCT` per cent of the model's window.
fn nearly_full(input: Tokens, window: Tokens) -> bool {
    u128::from(input.get()) * 100 >= u128::from(window.get()) * WINDOW_NOTED_PCT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_nearly_full_from_four_fifths_on() {
        let full = |input| nearly_full(Tokens::new(input), Tokens::new(1_000));
        assert_eq!([0, 790, 799, 800, 2_000].map(full), [false, false, false, true, true]);
        assert!(!nearly_full(Tokens::new(u64::MAX / 2), Tokens::MAX));
    }
}
