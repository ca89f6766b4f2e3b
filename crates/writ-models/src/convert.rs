//! A request in the types of `genai`, made so that strict providers accept it.
//!
//! Providers refuse a whole conversation with one wrong piece, so a single bad answer could lock a session.
//! Wrong pieces of earlier answers are therefore corrected before they are sent: calls without results get
//! one, results without calls are left out, names and ids are brought into the accepted alphabet, arguments
//! that were no JSON object are wrapped as `{"invalid_arguments": TEXT}`.

mod signed;

mod spoken;

use std::collections::BTreeSet;

use genai::chat::{
    CacheControl, ChatMessage as Message, ChatOptions, ChatRequest, ChatResponseFormat, JsonSpec,
    ReasoningEffort, Tool, ToolChoice, ToolResponse,
};
use serde_json::{Value, json};
use writ_types::action::ModelCall;
use writ_types::chat::{AnswerForm, Effort, ModelRequest, Part};
use writ_types::unit::Tokens;

use crate::config::ProviderKind;
use crate::schema::Dialect;

/// The longest tool name that all providers accept.
const MAX_NAME: usize = 64;

/// The fewest tokens that OpenAI Responses lets an answer be limited to.
const MIN_RESPONSES_OUTPUT: Tokens = Tokens::new(16);

/// The text in place of the result of a call that has none.
const NO_RESULT: &str = "(no result was recorded for this call)";

/// The text in place of a conversation's missing beginning: it must begin with the user.
const EARLIER: &str = "(the beginning of this conversation was left out)";

/// Makes the request and its options.
pub(crate) fn to_request(
    kind: ProviderKind,
    call: &ModelCall,
    request: &ModelRequest,
) -> (ChatRequest, ChatOptions) {
    let mut converted = ChatRequest::new(Vec::new());
    if request.system.is_empty() {
        // Nothing to say.
    } else if kind == ProviderKind::Anthropic {
        // A mark on the system text caches it together with the tools, which come before it.
        converted.messages.push(mark_cached(Message::system(request.system.as_str())));
    } else {
        converted.system = Some(request.system.clone());
    }
    let mut said = to_messages(kind, call, request);
    if kind == ProviderKind::Anthropic
        && let Some(last) = said.pop()
    {
        // And one on the last message caches the conversation so far for the next call.
        said.push(mark_cached(last));
    }
    converted.messages.extend(said);
    let (tools, choice) = to_tools(kind, request);
    converted.tools = (!tools.is_empty()).then_some(tools);
    // The library has no field for signatures, so signed messages are written here.
    let signed = signed::signed_messages(kind, &converted);
    let mut options = to_options(kind, call, choice, signed, request.effort);
    if let Some(form) = &request.form {
        options = options.with_response_format(to_format(kind, form));
    }
    (converted, options)
}

/// Returns the form in the provider's own way. Every answer is checked in any case, since some servers take the form and
/// ignore it.
fn to_format(kind: ProviderKind, form: &AnswerForm) -> ChatResponseFormat {
    match kind {
        ProviderKind::Anthropic
        | ProviderKind::OpenAi
        | ProviderKind::OpenAiResponses
        | ProviderKind::OpenRouter
        | ProviderKind::Gemini => {
            ChatResponseFormat::JsonSpec(JsonSpec::new(safe_name(&form.name), form.schema.clone()))
        }
        // The library has a field for JSON of any form here, and none for a schema.
        ProviderKind::Ollama => ChatResponseFormat::JsonMode,
    }
}

/// Returns the effort, or the next lower one with a budget of thinking that leaves room for an answer: Anthropic refuses a budget that is not
/// smaller than the limit of the answer (<https://docs.anthropic.com/en/docs/build-with-claude/extended-thinking>). The
/// budgets are those that the library sends to models that take no named effort.
fn fitting_effort(effort: Effort, max_output: Tokens) -> Option<Effort> {
    let budgets = [(Effort::High, 24_000), (Effort::Medium, 8_000), (Effort::Low, 1_024)];
    let fits = |(other, budget): &(Effort, u64)| *other <= effort && *budget < max_output.get();
    budgets.into_iter().find(fits).map(|(effort, _)| effort)
}

/// Returns the library's name of an effort.
const fn to_effort(effort: Effort) -> ReasoningEffort {
    match effort {
        Effort::Low => ReasoningEffort::Low,
        Effort::Medium => ReasoningEffort::Medium,
        Effort::High => ReasoningEffort::High,
    }
}

fn mark_cached(message: Message) -> Message {
    message.with_options(CacheControl::Ephemeral)
}

fn to_options(
    kind: ProviderKind,
    call: &ModelCall,
    choice: Option<ToolChoice>,
    signed: Option<Value>,
    effort: Option<Effort>,
) -> ChatOptions {
    let (model, max_output) = (call.model.as_str(), call.max_output_tokens);
    let least = if kind == ProviderKind::OpenAiResponses { MIN_RESPONSES_OUTPUT } else { Tokens::ZERO };
    // This format refuses a smaller limit, and a longer answer costs little.
    let max_output = max_output.max(least);
    let mut options =
        ChatOptions::default().with_max_tokens(u32::try_from(max_output.get()).unwrap_or(u32::MAX));
    options.tool_choice = choice;
    // The library reads endings such as `-high` of a model's name as a setting. A name is a name: where it stands
    // in the body, it is put back as it was; and any stated effort keeps it from being read, where the format
    // sends nothing for it.
    let mut extra = json!({ "model": model });
    let unread = effort.map_or(ReasoningEffort::Budget(0), to_effort);
    match kind {
        ProviderKind::Anthropic => {
            if let Some(effort) = effort.and_then(|effort| fitting_effort(effort, max_output)) {
                options = options.with_reasoning_effort(to_effort(effort));
            }
        }
        ProviderKind::OpenAi => {
            options = options.with_reasoning_effort(unread);
            extra["stream_options"] = json!({ "include_usage": true });
        }
        ProviderKind::OpenRouter => {
            options = options.with_reasoning_effort(ReasoningEffort::Budget(0));
            extra["stream_options"] = json!({ "include_usage": true });
            extra["usage"] = json!({ "include": true });
            // This provider translates an effort for every model that it leads to, in a field of its own.
            if let Some(effort) = effort {
                extra["reasoning"] = json!({ "effort": effort.as_str() });
            }
        }
        ProviderKind::OpenAiResponses => {
            options = options.with_reasoning_effort(unread);
            // Nothing is stored with the provider, so the reasoning has to come along. Other models refuse to be asked for it.
            if is_reasoning_model(model) {
                extra["include"] = json!(["reasoning.encrypted_content"]);
            }
        }
        // Here the name stands in the URL, and a body with it is refused.
        ProviderKind::Gemini => {
            return options.with_reasoning_effort(effort.map_or(ReasoningEffort::Zero, to_effort));
        }
        // Here the library reads no endings; what it sends for an effort would turn thinking on.
        ProviderKind::Ollama => {
            return match effort {
                Some(effort) => options.with_reasoning_effort(to_effort(effort)),
                None => options,
            };
        }
    }
    if let Some(messages) = signed {
        extra["messages"] = messages;
    }
    options.with_extra_body(extra)
}

/// Returns true for the models of OpenAI that give encrypted reasoning: the o series, and from GPT-5 on all but those for
/// plain talk (<https://platform.openai.com/docs/guides/reasoning>).
fn is_reasoning_model(model: &str) -> bool {
    let name = model.rsplit('/').next().unwrap_or(model);
    let generation = |rest: &str| rest.chars().next().and_then(|digit| digit.to_digit(10));
    let is_o_series = name.strip_prefix('o').and_then(generation).is_some();
    let is_late = name.strip_prefix("gpt-").and_then(generation).is_some_and(|generation| generation >= 5);
    is_o_series || (is_late && !name.contains("chat")) || name.starts_with("codex")
}

/// The tools on offer. Where none are, but earlier ones were called, those are named and forbidden: providers
/// want every called tool to be declared.
fn to_tools(kind: ProviderKind, request: &ModelRequest) -> (Vec<Tool>, Option<ToolChoice>) {
    if !request.tools.is_empty() {
        return (offered_name(kind, request), None);
    }
    let parts = request.messages.iter().flat_map(|message| &message.parts);
    // Names of earlier calls, in the form in which they were sent.
    let called: BTreeSet<String> = parts
        .filter_map(|part| match part {
            Part::Call(call) => Some(safe_name(&call.name)),
            Part::Text { .. } | Part::Result(_) | Part::Reasoning(_) | Part::File(_) => None,
        })
        .collect();
    let choice = (!called.is_empty()).then_some(ToolChoice::None);
    let named = called
        .into_iter()
        .map(|name| Tool::new(name).with_schema(json!({"type": "object", "properties": {}})));
    (named.collect(), choice)
}

/// The tools of a request, each with its schema in the provider's dialect. One that cannot be sent is left out and logged:
/// a provider would refuse the whole request for it.
fn offered_name(kind: ProviderKind, request: &ModelRequest) -> Vec<Tool> {
    let (dialect, mut names, mut tools) = (Dialect::of(kind), BTreeSet::new(), Vec::new());
    for tool in request.tools.iter() {
        let name = safe_name(&tool.name);
        let schema = match dialect.adapt_schema(&tool.schema) {
            Ok(schema) => schema,
            Err(error) => {
                tracing::warn!(tool = name, %error, "a tool is left out: its schema cannot be sent");
                continue;
            }
        };
        // Two names may become the same when they are reduced to the common alphabet.
        if !names.insert(name.clone()) {
            tracing::warn!(tool = name, "a tool is left out: another one is called the same");
            continue;
        }
        let mut converted = Tool::new(name).with_description(tool.description.as_str());
        if let Some(schema) = schema {
            converted = converted.with_schema(schema);
        }
        // Left to itself, this format makes every argument required.
        tools.push(if kind == ProviderKind::OpenAiResponses {
            converted.with_strict(false)
        } else {
            converted
        });
    }
    tools
}

/// The messages, results grouped behind their calls.
fn to_messages(kind: ProviderKind, call: &ModelCall, request: &ModelRequest) -> Vec<Message> {
    let mut said: Vec<Message> = Vec::new();
    let mut waiting = OpenCalls::default();
    let reasons_in_text = spoken::reasons_in_text(call, request);
    for message in &request.messages {
        for part in &message.parts {
            // Results come before the next words, since providers want them directly behind their calls.
            if let Part::Result(result) = part {
                waiting.result(safe_id(&result.call_id), &result.text);
            }
        }
        let Some(spoken) = spoken::to_messages(kind, call, message, reasons_in_text) else { continue };
        said.extend(waiting.answers(kind));
        waiting.calls.extend(spoken.calls.into_iter().map(|id| (id, None)));
        said.extend(spoken.messages);
    }
    // The results of the last calls may not be there yet.
    said.extend(waiting.answers(kind));
    let begins_right = said.first().is_some_and(|first| first.role != genai::chat::ChatRole::Assistant);
    if !begins_right {
        said.insert(0, Message::user(EARLIER));
    }
    said
}

/// The calls that the last answer made, with their results as far as they are there.
#[derive(Default)]
struct OpenCalls {
    calls: Vec<(String, Option<ToolResponse>)>,
}

impl OpenCalls {
    /// Takes a result; one without its call is left out.
    fn result(&mut self, id: String, text: &str) {
        // Providers refuse a result without its call in the conversation.
        let open = self.calls.iter_mut().find(|(call, result)| *call == id && result.is_none());
        if let Some((_, result)) = open {
            *result = Some(ToolResponse::new(id, text));
        }
    }

    /// All results in the order of their calls, with a stand-in for those that are missing.
    fn answers(&mut self, kind: ProviderKind) -> Vec<Message> {
        let results: Vec<ToolResponse> = self
            .calls
            .drain(..)
            .map(|(id, result)| result.unwrap_or_else(|| ToolResponse::new(id, NO_RESULT)))
            .collect();
        if kind == ProviderKind::Ollama {
            // Here each result is a message of its own; of several in one, the library sends the last.
            return results.into_iter().map(|result| Message::from(vec![result])).collect();
        }
        if results.is_empty() { Vec::new() } else { vec![Message::from(results)] }
    }
}

/// A tool's name in the form that all providers accept: it begins with a letter or an underscore.
fn safe_name(name: &str) -> String {
    let name = safe_id(name);
    if name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
        return name;
    }
    format!("_{name}").chars().take(MAX_NAME).collect()
}

/// A name or id in the alphabet that all providers accept.
fn safe_id(name: &str) -> String {
    // The common alphabet of all providers, with the shortest of their limits.
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '_' };
    let name: String = name.chars().map(plain).take(MAX_NAME).collect();
    if name.is_empty() { "_".to_owned() } else { name }
}
