//! A model is tried for its owner: one small request of each kind that turns make. Each passes the door, is counted and is
//! written to the ledger like any other model call.

use std::sync::Arc;

use serde::Serialize;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use writ_agent::event::{Event, ModelFailure};
use writ_models::error::Failure;
use writ_models::provider::Route;
use writ_models::structured::read_structured;
use writ_models::{ModelRole, Models};
use writ_policy::budget::Spent;
use writ_types::chat::{
    ChatMessage, ModelReply, ModelRequest, Part, Reasoning, Role, StopReason, ToolCall, ToolSpec, ToolSpecs,
    Usage, assistant_parts,
};
use writ_types::error::{Exit, ToReport as _};
use writ_types::taint::{Label, Taint};
use writ_types::unit::{MicroUsd, Tokens};

use super::clearance::Cleared;
use super::refusal::refused;
use super::{Account, Tried, attempt};
use crate::budget;
use crate::error::EngineError;
use crate::outcome::fixed_result;
use crate::place::CallPlace;

/// The most tokens of one answer. Models that reason spend most of them unseen.
const MAX_OUTPUT: Tokens = Tokens::new(2_048);

/// The tool that a tried model is to call. It is never performed.
const TOOL: &str = "add_numbers";

const SYSTEM: &str =
    "You are being tested. Do exactly what you are asked, in as few words as possible, and nothing else.";

/// Result of one test request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum TrialVerdict {
    /// As turns need it.
    Works,
    /// Turns go on, and with less.
    Limited,
    /// Turns that need it fail.
    Fails,
}

/// Result of one kind of test request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct ModelCheck {
    /// `plain`, `streaming`, `tools`, `results` or `structured`.
    check: &'static str,
    verdict: TrialVerdict,
    text: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    hint: String,
    /// Exit code of a command with this result.
    exit: Exit,
}

/// Results of all test requests, with their tokens and cost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Trial {
    model: String,
    host: String,
    checks: Vec<ModelCheck>,
    input_tokens: Tokens,
    output_tokens: Tokens,
    /// `None`: the price is not known.
    cost_micro_usd: Option<MicroUsd>,
}

impl Trial {
    /// Returns true if the model has answered a plain request.
    pub(crate) fn has_answered(&self) -> bool {
        self.checks.first().is_some_and(|check| check.verdict != TrialVerdict::Fails)
    }
}

/// Severity of a wrong answer, its description and a hint.
type Fault = (TrialVerdict, &'static str, &'static str);

/// Tries the model of a route. After a plain request that got no answer nothing more is sent.
///
/// # Errors
///
/// If the store cannot be used.
pub(crate) async fn try_model(
    place: CallPlace,
    models: &Models,
    route: &Route,
    cancel: &CancellationToken,
) -> Result<Trial, EngineError> {
    let mut trying = Trying {
        trial: Trial {
            model: format!("{}/{}", route.provider.name, route.model),
            host: route.provider.host.clone(),
            checks: Vec::new(),
            input_tokens: Tokens::ZERO,
            output_tokens: Tokens::ZERO,
            cost_micro_usd: models.cost_over(route, &Usage::default(), place.services.journal.clock.now()),
        },
        place,
        models,
        route,
        cancel,
    };
    let plain = asked("Answer with the single word: ready");
    if trying.request("plain", plain, is_answered).await?.is_none() {
        return Ok(trying.trial);
    }
    let numbers = asked("Write the numbers from 1 to 40, separated by commas.");
    trying.request("streaming", numbers, comes_in_pieces).await?;
    let mut tools = asked("Call the tool add_numbers with a = 17 and b = 25, and do nothing else.");
    tools.tools = offered();
    let called = trying.request("tools", tools.clone(), calls_the_tool).await?;
    let called = called.and_then(|reply| Some((reply.calls.into_iter().next()?, reply.reasoning)));
    if let Some((call, reasoning)) = called {
        tools.messages.extend(result_of(call, reasoning));
        trying.request("results", tools, reads_the_result).await?;
    }
    let form =
        "Answer with JSON alone, without any other text: an object with one field \"answer\", the number 42.";
    trying.request("structured", asked(form), is_of_the_form).await?;
    Ok(trying.trial)
}

struct Trying<'a> {
    trial: Trial,
    place: CallPlace,
    models: &'a Models,
    route: &'a Route,
    cancel: &'a CancellationToken,
}

impl Trying<'_> {
    /// Makes one request and notes what came of it; returns the answer, if there was one.
    async fn request(
        &mut self,
        check: &'static str,
        request: ModelRequest,
        judge: fn(&ModelReply, usize) -> Result<String, Fault>,
    ) -> Result<Option<ModelReply>, EngineError> {
        let services = Arc::clone(&self.place.services);
        let began = services.journal.clock.now();
        let planned = match self.models.plan_over(self.route, Arc::new(request), began) {
            Ok(planned) => planned.reason_for_route("its owner tries it"),
            Err(error) => {
                let report = services.journal.redactor.mask_report(error.report());
                let (text, hint, exit) = (report.outside, report.hint, report.exit);
                self.note(ModelCheck { check, verdict: TrialVerdict::Fails, text, hint, exit });
                return Ok(None);
            }
        };
        let so_far = self.trial.cost_micro_usd.unwrap_or_default();
        self.place.spent = Spent {
            turn_cost: so_far,
            ..budget::read_spent(&services, &self.place.session, so_far, &[]).await?
        };
        let mut account = Account::default();
        let cleared =
            Cleared { label: Label::new(Taint::Owner), why: String::new(), hidden: Default::default() };
        // Output of any role but the executor is not shown to clients.
        let asked = (&planned, ModelRole::Proxy);
        let tried = attempt(&self.place, self.models, asked, &cleared, self.cancel, &mut account).await?;
        services.journal.commit_for(&self.place.session.hub, account.ops.into_relaxed()).await?;
        self.count(account.cost, account.usage);
        let seconds = services.journal.clock.now().time_since(began).as_secs_f64();
        match tried {
            Tried::Over(Event::ModelReplied { reply }) => {
                let noted = match judge(&reply, account.pieces) {
                    Ok(text) => {
                        (TrialVerdict::Works, format!("{text}, after {seconds:.1} s"), "", Exit::Done)
                    }
                    Err((verdict, text, hint)) => {
                        let exit = if verdict == TrialVerdict::Fails { Exit::Model } else { Exit::Done };
                        (verdict, text.to_owned(), hint, exit)
                    }
                };
                let (verdict, text, hint, exit) = noted;
                self.note(ModelCheck { check, verdict, text, hint: hint.to_owned(), exit });
                Ok(Some(reply))
            }
            Tried::Unaffordable(denial) => {
                let (exit, text, hint) = refusal(refused(&denial));
                self.note(ModelCheck { check, verdict: TrialVerdict::Fails, text, hint, exit });
                Ok(None)
            }
            Tried::Over(event) => {
                let (exit, text, hint) = refusal(event);
                self.note(ModelCheck { check, verdict: TrialVerdict::Fails, text, hint, exit });
                Ok(None)
            }
            Tried::Failed(error) => {
                let report = services.journal.redactor.mask_report(error.report());
                // Where the provider says what is wrong, a hint to try the model leads back here.
                let is_told = matches!(error.failure, Failure::Rejected { .. } | Failure::Filtered { .. });
                let hint = if is_told { String::new() } else { report.hint };
                let (text, exit) = (report.outside, report.exit);
                self.note(ModelCheck { check, verdict: TrialVerdict::Fails, text, hint, exit });
                Ok(None)
            }
        }
    }

    fn note(&mut self, check: ModelCheck) {
        self.trial.checks.push(check);
    }

    fn count(&mut self, cost: MicroUsd, usage: Usage) {
        self.trial.input_tokens += usage.input;
        self.trial.output_tokens += usage.output;
        if let Some(sum) = &mut self.trial.cost_micro_usd {
            *sum = sum.saturating_add(cost);
        }
    }
}

/// Returns the exit code, the text and the hint for a request that did not pass the budget or the model.
fn refusal(event: Event) -> (Exit, String, String) {
    let used_up = || {
        let hint = "raise the limits of [budget] in config.toml, or try tomorrow";
        (Exit::Budget, "the token budget is used up".to_owned(), hint.to_owned())
    };
    let Event::ModelFailed { failure } = event else { return used_up() };
    match failure {
        ModelFailure::Failed { exit, text, hint, .. } => (exit, text, hint),
        ModelFailure::SessionExhausted | ModelFailure::DailyExhausted | ModelFailure::TooLong { .. } => {
            used_up()
        }
    }
}

fn asked(text: &str) -> ModelRequest {
    ModelRequest {
        system: SYSTEM.to_owned(),
        messages: vec![Arc::new(message(Role::User, Part::Text { text: text.to_owned() }))],
        tools: ToolSpecs::default(),
        max_output_tokens: MAX_OUTPUT,
        form: None,
        effort: None,
    }
}

fn message(role: Role, part: Part) -> ChatMessage {
    ChatMessage { role, parts: vec![part], label: Label::new(Taint::Owner) }
}

fn offered() -> ToolSpecs {
    let number = json!({ "type": "integer" });
    vec![ToolSpec {
        name: TOOL.to_owned(),
        description: "Adds two numbers.".to_owned(),
        schema: json!({
            "type": "object", "properties": { "a": number, "b": number }, "required": ["a", "b"],
            "additionalProperties": false,
        }),
    }]
    .into()
}

/// The call of a reply, with the reasoning that came before it, and its result, as the next request has them.
fn result_of(call: ToolCall, reasoning: Vec<Reasoning>) -> [Arc<ChatMessage>; 2] {
    let result = fixed_result(&call, "42");
    let parts = assistant_parts(reasoning, String::new(), [call]);
    let asking = ChatMessage { role: Role::Assistant, parts, label: Label::new(Taint::Owner) };
    [asking, message(Role::Tool, Part::Result(result))].map(Arc::new)
}

fn is_answered(reply: &ModelReply, _pieces: usize) -> Result<String, Fault> {
    if reply.text.trim().is_empty() {
        let hint =
            "the server may not apply the model's chat template, or the model reasons beyond the limit";
        return Err((TrialVerdict::Fails, "the answer was empty", hint));
    }
    if reply.stop == StopReason::MaxTokens {
        return Err((TrialVerdict::Limited, "it answers, and does not stop", ""));
    }
    Ok("it answers".to_owned())
}

fn comes_in_pieces(reply: &ModelReply, pieces: usize) -> Result<String, Fault> {
    match pieces {
        0 => Err((TrialVerdict::Fails, "the answer was empty", "")),
        1 => Err((
            TrialVerdict::Limited,
            "the answer comes in one piece",
            "something between here and the model may collect the stream; text is shown when it is complete",
        )),
        _ if reply.stop == StopReason::MaxTokens => {
            Err((TrialVerdict::Limited, "it streams, and does not stop", ""))
        }
        pieces => Ok(format!("the answer comes in {pieces} pieces")),
    }
}

fn calls_the_tool(reply: &ModelReply, _pieces: usize) -> Result<String, Fault> {
    let hint = "without tools the agent can only talk; use a model or a server that supports tool calls";
    let call = match reply.calls.as_slice() {
        [] => return Err((TrialVerdict::Fails, "it answered with text instead of calling the tool", hint)),
        [call] => call,
        [..] => return Err((TrialVerdict::Limited, "it called the tool more than once", "")),
    };
    let number = |key: &str| call.arguments.get(key).and_then(Value::as_i64);
    if call.name != TOOL {
        return Err((TrialVerdict::Fails, "it called a tool that it was not offered", hint));
    }
    if (number("a"), number("b")) != (Some(17), Some(25)) {
        return Err((TrialVerdict::Limited, "it called the tool with other arguments than requested", ""));
    }
    Ok("it calls a tool".to_owned())
}

fn reads_the_result(reply: &ModelReply, _pieces: usize) -> Result<String, Fault> {
    if !reply.calls.is_empty() {
        return Err((TrialVerdict::Limited, "it called the tool again after it had the result", ""));
    }
    if !reply.text.contains("42") {
        return Err((TrialVerdict::Limited, "its answer does not name the result of the tool", ""));
    }
    Ok("it reads the result of a tool".to_owned())
}

fn is_of_the_form(reply: &ModelReply, _pieces: usize) -> Result<String, Fault> {
    let is_right = |value: &Value| {
        let answer = value.get("answer").and_then(Value::as_i64);
        if answer == Some(42) { Ok(()) } else { Err("the field is missing".to_owned()) }
    };
    match read_structured::<Value>(&reply.text, is_right) {
        Ok(_) => Ok("it answers in a given form".to_owned()),
        Err(_) => Err((
            TrialVerdict::Limited,
            "its answer was not the JSON that was asked for",
            "gates and questions that need a form fall back to their default with this model",
        )),
    }
}
