//! Ends turns.

use std::time::Duration;

use writ_types::chat::{ChatMessage, Part, Role};
use writ_types::error::Exit;
use writ_types::unit::Timestamp;

use super::{Phase, Turn};
use crate::context;
use crate::effect::{Effect, FinishedTurn, TurnStatus};
use crate::event::{ModelFailure, TextVerdict};
use crate::notice;
use crate::route::{RouteDecision, TurnRoute};

/// The end that a turn is about to take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TurnEnding {
    /// `Done` here is a normal end: whether it waits or was denied is decided when it is over.
    pub(super) status: TurnStatus,
    pub(super) exit: Exit,
    /// The reason that the answer is incomplete.
    pub(super) incomplete: Option<String>,
    /// The same as the conversation keeps it, where that is less.
    pub(super) noted: Option<String>,
}

impl Default for TurnEnding {
    fn default() -> Self {
        Self { status: TurnStatus::Done, exit: Exit::Done, incomplete: None, noted: None }
    }
}

impl Turn {
    /// Takes the way that the proxy has chosen.
    pub(super) fn take_route(&mut self, decision: RouteDecision, out: &mut Vec<Effect>) {
        let is_known = |name: &String| self.config.context.has_profile(name);
        if let Some(profile) = decision.context_profile.clone().filter(is_known) {
            self.context.seed.profile = profile;
        }
        let seed = &mut self.context.seed;
        seed.interaction =
            seed.interaction.join_proxy(decision.interaction_register, decision.interaction_mode);
        // The proxy has not read the messages that came meanwhile, so the executor answers all of them.
        let has_more = !self.inbox.is_empty();
        match decision.route {
            TurnRoute::Planner if has_more => {
                self.context.push_passing(context::system_message(notice::HANDED_TO_PLANNER));
                self.proceed_turn(out);
            }
            TurnRoute::Planner => self.conclude_turn(notice::BEING_PLANNED.to_owned(), out),
            TurnRoute::Direct | TurnRoute::Clarify if !has_more => {
                self.conclude_turn(decision.into_response().unwrap_or_default(), out);
            }
            TurnRoute::Direct | TurnRoute::Clarify | TurnRoute::Act => self.proceed_turn(out),
        }
    }

    /// Ends the turn after a complete answer.
    pub(super) fn conclude_turn(&mut self, text: String, out: &mut Vec<Effect>) {
        // A turn that changed something, was denied or asked needs no closing text to be complete.
        let something_happened = self.achieved || self.last_was_denied || !self.open_asks.is_empty();
        self.ending = TurnEnding::default();
        if !text.trim().is_empty() {
            self.judge_output(text, out);
        } else if something_happened {
            self.deliver_answer(notice::NO_CLOSING_TEXT, out);
        } else {
            self.break_off(text, TurnStatus::Failed, notice::NO_ANSWER, out);
        }
    }

    /// Ends the turn when the model's output is cut or invalid.
    pub(super) fn break_off(
        &mut self,
        text: String,
        status: TurnStatus,
        reason: &str,
        out: &mut Vec<Effect>,
    ) {
        self.ending =
            TurnEnding { status, exit: Exit::Model, incomplete: Some(reason.to_owned()), noted: None };
        if text.trim().is_empty() { self.deliver_answer("", out) } else { self.judge_output(text, out) }
    }

    /// Sends a shorter request where one was too long; else ends the turn, since the model gave no answer.
    pub(super) fn take_failure(&mut self, failure: ModelFailure, out: &mut Vec<Effect>) {
        match failure {
            ModelFailure::TooLong { room, text, noted } => {
                match self.shortening.shorten_request(&self.context, &mut self.config, room) {
                    Ok(()) => self.call_model(out),
                    Err(too_large) => self.fail_turn(too_large.explain_failure(text, noted), out),
                }
            }
            ModelFailure::SessionExhausted | ModelFailure::DailyExhausted | ModelFailure::Failed { .. } => {
                self.fail_turn(failure, out);
            }
        }
    }

    /// Ends the turn when the model gave no output.
    pub(super) fn fail_turn(&mut self, failure: ModelFailure, out: &mut Vec<Effect>) {
        let hinted =
            |text: String, hint: &str| if hint.is_empty() { text } else { format!("{text}\n{hint}") };
        let (exit, reason, noted) = match failure {
            ModelFailure::SessionExhausted => (Exit::Budget, notice::SESSION_EXHAUSTED.to_owned(), None),
            ModelFailure::DailyExhausted => (Exit::Budget, notice::DAILY_EXHAUSTED.to_owned(), None),
            ModelFailure::Failed { exit, text, hint, noted } => {
                (exit, hinted(text, &hint), noted.map(|noted| hinted(noted, &hint)))
            }
            ModelFailure::TooLong { text, noted, .. } => (Exit::Model, text, noted),
        };
        // A failure never counts as success, even if its exit code claims so.
        let exit = if exit == Exit::Done { Exit::Model } else { exit };
        let status = if exit == Exit::Budget { TurnStatus::Incomplete } else { TurnStatus::Failed };
        self.ending = TurnEnding { status, exit, incomplete: Some(reason), noted };
        self.deliver_answer("", out);
    }

    /// Ends the turn when a limit of it is reached.
    pub(super) fn stop_at_limit(&mut self, reason: String, out: &mut Vec<Effect>) {
        self.ending = TurnEnding {
            status: TurnStatus::Incomplete,
            exit: Exit::Budget,
            incomplete: Some(reason),
            noted: None,
        };
        self.deliver_answer("", out);
    }

    pub(super) fn expire_turn(&mut self, now: Timestamp, out: &mut Vec<Effect>) {
        // A timer that fires early is harmless.
        if now >= self.limit_time() {
            self.stop_what_runs(out);
            self.stop_at_limit(notice::too_long(self.config.limits.max_turn_secs), out);
        }
    }

    pub(super) fn limit_time(&self) -> Timestamp {
        self.started.plus_duration(Duration::from_secs(u64::from(self.config.limits.max_turn_secs)))
    }

    pub(super) fn cancel_turn(&mut self, out: &mut Vec<Effect>) {
        self.stop_what_runs(out);
        self.context.append_news();
        self.context.conversation.push(context::system_message(notice::CANCELLED));
        self.ending = TurnEnding {
            status: TurnStatus::Cancelled,
            exit: Exit::Interrupted,
            incomplete: None,
            noted: None,
        };
        self.finish_turn(out);
    }

    /// Stops the model call or tool that is under way; its late answer is no longer wanted.
    pub(super) fn stop_what_runs(&mut self, out: &mut Vec<Effect>) {
        match self.phase {
            Phase::Routing | Phase::CallingModel => out.push(Effect::CancelModel),
            Phase::Acting => self.cancel_calls(out),
            Phase::New
            | Phase::JudgingInput
            | Phase::Recording
            | Phase::Recalling
            | Phase::JudgingOutput
            | Phase::Delivering
            | Phase::Finished => {}
        }
    }

    fn judge_output(&mut self, text: String, out: &mut Vec<Effect>) {
        self.phase = Phase::JudgingOutput;
        out.push(Effect::JudgeOutput { text: text.clone(), label: self.label.clone() });
        self.draft = text;
    }

    pub(super) fn take_output_verdict(&mut self, verdict: TextVerdict, out: &mut Vec<Effect>) {
        let draft = std::mem::take(&mut self.draft);
        match verdict {
            TextVerdict::Pass => self.deliver_answer(&draft, out),
            TextVerdict::Transform { text } => self.deliver_answer(&text, out),
            TextVerdict::Block { reason } => self.block_answer(reason, out),
            // The attempts are used up: the text is blocked like one without a second chance.
            TextVerdict::Again { reason, attempts, .. } if self.again >= attempts => {
                self.block_answer(reason, out)
            }
            TextVerdict::Again { note, .. } => {
                self.again += 1;
                if let Some(note) = note {
                    self.pass_on(draft, &note);
                }
                self.call_model(out);
            }
        }
    }

    /// Ends the turn without an answer; the person only gets the gate's reason.
    pub(super) fn block_answer(&mut self, reason: String, out: &mut Vec<Effect>) {
        self.ending = TurnEnding {
            status: TurnStatus::Blocked,
            exit: Exit::Denied,
            incomplete: Some(reason),
            noted: None,
        };
        self.deliver_answer("", out);
    }

    /// Shows the model its withheld answer and the reason. Neither is stored after the turn.
    fn pass_on(&mut self, draft: String, why: &str) {
        let parts = vec![Part::Text { text: draft }];
        let said = ChatMessage { role: Role::Assistant, parts, label: self.label.clone() };
        for message in [said, context::system_message(&notice::withheld_note(why))] {
            self.context.push_passing(message);
        }
    }

    /// Sends the answer with everything that the person must know about it.
    pub(super) fn deliver_answer(&mut self, answer: &str, out: &mut Vec<Effect>) {
        let remarks = std::mem::take(&mut self.remarks);
        let incomplete = self.ending.incomplete.clone();
        // The same text is built twice: once for the person, and once, perhaps shorter, for the conversation.
        let with = |ending: Option<&str>| {
            let paragraphs = [answer].into_iter().chain(remarks.iter().map(String::as_str)).chain(ending);
            let text = paragraphs.filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n\n");
            if text.is_empty() { notice::NO_REASON.to_owned() } else { text }
        };
        let text = with(incomplete.as_deref());
        let kept = self.ending.noted.as_deref().map_or_else(|| text.clone(), |noted| with(Some(noted)));
        self.context.append_news();
        self.context.conversation.push(ChatMessage {
            role: Role::Assistant,
            parts: vec![Part::Text { text: kept }],
            label: self.label.clone(),
        });
        self.phase = Phase::Delivering;
        out.push(Effect::Deliver { text, label: self.label.clone(), incomplete });
    }

    /// Exit 5 while an ask is open; exit 4 if the last tool call that was
    /// decided was denied and none succeeded after it; else as the ending says.
    pub(super) fn finish_turn(&mut self, out: &mut Vec<Effect>) {
        self.context.append_news();
        let (status, exit) = match self.ending.status {
            // Open questions weigh more than a denial: the turn can still continue after the answer.
            TurnStatus::Done if !self.open_asks.is_empty() => (TurnStatus::Waiting, Exit::Waiting),
            TurnStatus::Done if self.last_was_denied => (TurnStatus::Denied, Exit::Denied),
            TurnStatus::Done
            | TurnStatus::Waiting
            | TurnStatus::Denied
            | TurnStatus::Blocked
            | TurnStatus::Incomplete
            | TurnStatus::Failed
            | TurnStatus::Cancelled => (self.ending.status, self.ending.exit),
        };
        self.phase = Phase::Finished;
        out.push(Effect::Finish(Box::new(FinishedTurn {
            status,
            exit,
            answers: self.answers.clone(),
            label: self.label.clone(),
            open_asks: self.open_asks.keys().cloned().collect(),
            transcript: self.context.transcript(),
            usage: self.usage,
            budget_used: self.context.seed.budget.used,
            budget_note: self.context.seed.budget.given,
            model_calls: self.model_calls,
            tool_calls: self.tool_calls,
        })));
    }
}
