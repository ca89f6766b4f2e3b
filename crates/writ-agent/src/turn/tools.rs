//! The tool calls of a reply: one at a time, in order, each with a result.

use std::collections::VecDeque;

use serde_json::{Value, json};
use writ_types::chat::{
    ChatMessage, ModelReply, Part, Role, ToolCall, ToolOutcome, ToolResult, assistant_parts,
};
use writ_types::id::AskId;
use writ_types::taint::Label;

use super::{Phase, Turn, Why};
use crate::context;
use crate::effect::Effect;
use crate::notice;
use crate::repeat::Repeat;
use crate::text;

/// The most characters of invalid arguments that are shown to the model again.
const INVALID_SHOWN_CHARS: usize = 200;

/// The calls of the last reply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CallWork {
    waiting: VecDeque<Queued>,
    running: Option<ToolCall>,
    results: Vec<ToolResult>,
    /// Calls of the reply that were not looked at.
    left_out: usize,
}

/// A call in order, with the reason why it is not performed, if there is one.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Queued {
    call: ToolCall,
    fault: Option<String>,
}

/// The treatment of a call.
enum CallVerdict {
    Run,
    /// It cannot be performed at all.
    Fault(String),
    /// It would close a circle.
    Repeated,
    /// Ends the turn, with a text for the model about the call and one for the person about the turn.
    Stop(String, String),
}

impl Turn {
    /// Takes the calls of a reply in, bounded, and starts the first.
    pub(super) fn take_calls(&mut self, reply: ModelReply, out: &mut Vec<Effect>) {
        let ModelReply { text, mut calls, reasoning, .. } = reply;
        let most = usize::try_from(self.config.limits.max_calls_per_reply).unwrap_or(usize::MAX);
        // Calls beyond the limit are named to the model after the results of the others.
        let left_out = calls.len().saturating_sub(most);
        calls.truncate(most);
        let waiting: VecDeque<Queued> = calls.into_iter().map(|call| self.admit_call(call)).collect();
        let admitted = waiting.iter().map(|queued| queued.call.clone());
        let parts = assistant_parts(reasoning, text, admitted);
        self.context.conversation.push(ChatMessage {
            role: Role::Assistant,
            parts,
            label: self.label.clone(),
        });
        self.work = CallWork { waiting, running: None, results: Vec::new(), left_out };
        self.run_next(out);
    }

    /// Makes a call fit to be stored and sent back to a provider: an id that is unique in the turn, a plain
    /// name, an object as arguments.
    fn admit_call(&mut self, call: ToolCall) -> Queued {
        let ToolCall { id, name, arguments } = call;
        let offered: Vec<&str> = self.context.seed.tools.iter().map(|tool| tool.name.as_str()).collect();
        let known = offered.contains(&name.as_str());
        // A name that no tool has is reduced to plain characters before it is stored or sent back.
        let name = if known { name } else { plain_name(&name) };
        let bytes = arguments.to_string().len();
        let most = self.config.limits.max_argument_bytes.get();
        let (arguments, fault) = if u64::try_from(bytes).unwrap_or(u64::MAX) > most {
            (json!({ "left_out": format!("{bytes} bytes") }), Some(notice::arguments_too_large(bytes, most)))
        } else {
            match arguments {
                Value::Object(_) => (arguments, None),
                // Some models send null for a tool without parameters.
                Value::Null => (json!({}), None),
                Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                    let shown = text::cut_text(&arguments.to_string(), INVALID_SHOWN_CHARS);
                    let spec = self.context.seed.tools.iter().find(|tool| tool.name == name);
                    (json!({ "invalid": shown }), Some(notice::arguments_not_an_object(spec)))
                }
            }
        };
        let fault = if known { fault } else { Some(notice::unknown_tool(&name, &offered)) };
        Queued { call: ToolCall { id: self.unique_id(&id), name, arguments }, fault }
    }

    fn unique_id(&mut self, id: &str) -> String {
        let base = plain_name(if id.is_empty() { "call" } else { id });
        let mut unique = base.clone();
        // Providers may repeat ids within a conversation; a suffix makes each unique.
        let mut n = 1;
        while !self.call_ids.insert(unique.clone()) {
            n += 1;
            unique = format!("{base}_{n}");
        }
        unique
    }

    /// Continues with the next call to be performed; without one, with the turn.
    fn run_next(&mut self, out: &mut Vec<Effect>) {
        while let Some(Queued { call, fault }) = self.work.waiting.pop_front() {
            match self.judge_call(&call, fault) {
                CallVerdict::Run => {
                    self.tool_calls += 1;
                    self.phase = Phase::Acting;
                    self.work.running = Some(call.clone());
                    out.push(Effect::Act { call, label: self.label.clone() });
                    return;
                }
                CallVerdict::Fault(text) => {
                    let result = own_result(&call, ToolOutcome::Failed, text, &self.label);
                    self.repeats.note_result(&call, &result);
                    self.work.results.push(result);
                }
                // Not noted: a refusal is not a new result, so it is not progress.
                CallVerdict::Repeated => {
                    let text = notice::REPEATED.to_owned();
                    self.work.results.push(own_result(&call, ToolOutcome::Failed, text, &self.label));
                }
                // The model's text about this call and all waiting calls is the same, so that no call stays
                // unanswered.
                CallVerdict::Stop(text, reason) => {
                    self.work.results.push(own_result(
                        &call,
                        ToolOutcome::Cancelled,
                        text.clone(),
                        &self.label,
                    ));
                    self.drop_waiting(&text);
                    self.close_work();
                    return self.stop_at_limit(reason, out);
                }
            }
        }
        self.close_work();
        self.proceed_turn(out);
    }

    fn judge_call(&mut self, call: &ToolCall, fault: Option<String>) -> CallVerdict {
        let limits = &self.config.limits;
        // Repetition is checked first: a call with wrong arguments that repeats itself is a circle, too.
        match self.repeats.judge_call(call, limits.max_identical_calls, self.work.results.is_empty()) {
            Repeat::No => {}
            Repeat::Again => return CallVerdict::Repeated,
            Repeat::Stuck => return CallVerdict::Stop(notice::STOPPED.to_owned(), notice::STUCK.to_owned()),
            Repeat::Fruitless => {
                return CallVerdict::Stop(notice::STOPPED.to_owned(), notice::NO_PROGRESS.to_owned());
            }
        }
        if let Some(fault) = fault {
            return CallVerdict::Fault(fault);
        }
        let most = limits.max_tool_calls_per_turn;
        // The limit counts calls that were submitted, not those that were refused here.
        if self.tool_calls >= most {
            return CallVerdict::Stop(notice::beyond_tool_cap(most), notice::tool_cap(most));
        }
        CallVerdict::Run
    }

    pub(super) fn take_result(
        &mut self,
        mut result: ToolResult,
        ask: Option<AskId>,
        ends: Option<String>,
        out: &mut Vec<Effect>,
    ) -> Result<(), Why> {
        if result.outcome == ToolOutcome::Waiting && ask.is_none() {
            return Err(Why::WaitingWithoutAsk);
        }
        // A result for any other call than the running one is a bug of the driver.
        let Some(call) = self.work.running.take_if(|call| call.id == result.call_id) else {
            return Err(Why::OtherCall { found: text::plain_name(&result.call_id) });
        };
        self.cut_result(&mut result);
        self.weigh_outcome(result.outcome);
        if let Some(ask) = ask
            && result.outcome == ToolOutcome::Waiting
        {
            self.open_asks.insert(ask, call.name.clone());
        }
        self.repeats.note_result(&call, &result);
        self.work.results.push(result);
        if let Some(text) = ends {
            self.drop_waiting(notice::STOPPED);
            self.close_work();
            self.block_answer(text, out);
        } else {
            self.run_next(out);
        }
        Ok(())
    }

    pub(super) fn take_answer(&mut self, ask: &AskId, mut result: ToolResult) -> Result<(), Why> {
        if result.outcome == ToolOutcome::Waiting {
            return Err(Why::WaitingWithoutAsk);
        }
        // The ask may be of an earlier call of this turn: its tool's name comes from there.
        let Some(tool) = self.open_asks.remove(ask) else { return Err(Why::UnknownAsk(ask.clone())) };
        self.cut_result(&mut result);
        self.weigh_outcome(result.outcome);
        result.name = tool;
        let text = notice::answered_note(ask, &result);
        let parts = vec![Part::Text { text }];
        self.context.news.push(ChatMessage { role: Role::System, parts, label: result.label });
        Ok(())
    }

    /// Returns the result of a call with an unknown outcome after a crash, for
    /// [`Event::Acted`](crate::event::Event::Acted). `label` covers its known effects; external, unless the
    /// caller knows better.
    pub fn unknown_result(call: &ToolCall, label: Label) -> ToolResult {
        own_result(call, ToolOutcome::Unknown, notice::UNKNOWN.to_owned(), &label)
    }

    /// Stops the running call and answers all that have no result.
    pub(super) fn cancel_calls(&mut self, out: &mut Vec<Effect>) {
        if let Some(call) = self.work.running.take() {
            out.push(Effect::CancelTool { call_id: call.id.clone() });
            let stopped = notice::STOPPED.to_owned();
            self.work.results.push(own_result(&call, ToolOutcome::Cancelled, stopped, &self.label));
        }
        self.drop_waiting(notice::STOPPED);
        self.close_work();
    }

    fn drop_waiting(&mut self, text: &str) {
        for Queued { call, .. } in std::mem::take(&mut self.work.waiting) {
            let result = own_result(&call, ToolOutcome::Cancelled, text.to_owned(), &self.label);
            self.work.results.push(result);
        }
    }

    /// Puts the results into the conversation: one message for all results of a reply.
    fn close_work(&mut self) {
        let CallWork { results, left_out, .. } = std::mem::take(&mut self.work);
        let mut label = self.label.clone();
        for result in &results {
            label.join(&result.label);
        }
        // A call and its result leave the context together, so all results stand in one message.
        let parts = results.into_iter().map(Part::Result).collect();
        self.context.conversation.push(ChatMessage { role: Role::Tool, parts, label });
        if left_out > 0 {
            let most = self.config.limits.max_calls_per_reply;
            self.context.conversation.push(context::system_message(&notice::too_many_calls(left_out, most)));
        }
    }

    fn cut_result(&self, result: &mut ToolResult) {
        let most = usize::try_from(self.config.limits.max_result_chars).unwrap_or(usize::MAX);
        result.text = text::cut_text(&result.text, most);
    }

    /// Notes what an outcome means for how the turn ends.
    const fn weigh_outcome(&mut self, outcome: ToolOutcome) {
        match outcome {
            ToolOutcome::Done | ToolOutcome::Simulated => {
                self.achieved = true;
                self.last_was_denied = false;
            }
            ToolOutcome::Denied => self.last_was_denied = true,
            ToolOutcome::Failed | ToolOutcome::Waiting | ToolOutcome::Unknown | ToolOutcome::Cancelled => {}
        }
    }
}

/// A result in the machine's own words, for a call that was not performed.
fn own_result(call: &ToolCall, outcome: ToolOutcome, text: String, label: &Label) -> ToolResult {
    let (call_id, name, label) = (call.id.clone(), call.name.clone(), label.clone());
    ToolResult { call_id, name, outcome, text, label, fields: Vec::new(), kept: None }
}

/// A name or id that every provider accepts in a conversation (letters, digits, `_`, `-`; 64 at most).
fn plain_name(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' };
    let plain: String = name.chars().take(text::MAX_NAME_CHARS).map(plain).collect();
    if plain.is_empty() { "unnamed".to_owned() } else { plain }
}
