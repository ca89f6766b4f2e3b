//! The fields of a request: which are read, which change nothing here, and which are refused by name.

use axum::http::StatusCode;
use serde_json::{Map, Value};

use crate::http::reply::Refusal;

/// The longest name of a field that an error repeats, in characters.
const MAX_SHOWN_NAME: usize = 64;

/// The treatment of one field of a request.
#[derive(Clone, Copy, Debug)]
pub(super) enum Rule {
    /// It is read.
    Read,
    /// It tunes a model or labels the request; the agent answers as the owner has set it up.
    Ignored,
    /// It may only have a value that asks for nothing beyond the default; the text completes «'NAME' …».
    Only(fn(&Value) -> bool, &'static str),
}

use Rule::{Ignored, Only, Read};

fn is_false(value: &Value) -> bool {
    *value == Value::Bool(false)
}

fn is_one(value: &Value) -> bool {
    value.as_u64() == Some(1)
}

fn is_zero(value: &Value) -> bool {
    value.as_u64() == Some(0)
}

fn is_empty(value: &Value) -> bool {
    value.as_array().is_some_and(Vec::is_empty) || value.as_object().is_some_and(Map::is_empty)
}

fn is_plain_format(value: &Value) -> bool {
    value.get("type").and_then(Value::as_str) == Some("text")
}

fn is_plain_text(value: &Value) -> bool {
    value.as_object().is_some_and(|text| {
        let is_known = text.keys().all(|name| name == "format" || name == "verbosity");
        is_known && text.get("format").is_none_or(is_plain_format)
    })
}

fn is_text_only(value: &Value) -> bool {
    value.as_array().is_some_and(|kinds| kinds.iter().all(|kind| kind == "text"))
}

/// Encrypted reasoning is never part of an answer here, so a client may ask for it.
fn is_reasoning_only(value: &Value) -> bool {
    let encrypted = "reasoning.encrypted_content";
    value.as_array().is_some_and(|parts| parts.iter().all(|part| part == encrypted))
}

fn is_no_forced_tool(value: &Value) -> bool {
    value == "none" || value == "auto"
}

const NO_TOOLS: Rule =
    Only(is_empty, "must be left out: the agent has its own tools and cannot call those of a client");
const NO_FORCED_TOOL: Rule =
    Only(is_no_forced_tool, "can only be 'none' or 'auto': the agent chooses its tools");
const NO_LOGPROBS: &str = "must be left out: no probabilities of tokens are known here";
const NEVER: fn(&Value) -> bool = |_| false;

/// The fields that both formats share and that change nothing.
const TUNING: [&str; 23] = [
    "temperature",
    "top_p",
    "top_k",
    "top_a",
    "min_p",
    "repetition_penalty",
    "repeat_penalty",
    "presence_penalty",
    "frequency_penalty",
    "seed",
    "store",
    "metadata",
    "parallel_tool_calls",
    "service_tier",
    "reasoning",
    "reasoning_effort",
    "verbosity",
    "prompt_cache_key",
    "prompt_cache_retention",
    "safety_identifier",
    "prediction",
    "truncation",
    "max_tool_calls",
];

/// The fields of `POST /v1/chat/completions` beside those of `TUNING`.
pub(super) const CHAT: &[(&str, Rule)] = &[
    ("model", Read),
    ("messages", Read),
    ("stream", Read),
    ("stream_options", Read),
    ("user", Read),
    ("stop", Read),
    ("max_tokens", Read),
    ("max_completion_tokens", Read),
    ("n", Only(is_one, "can only be 1: the agent answers once")),
    (
        "response_format",
        Only(is_plain_format, "can only be of the type 'text': the agent answers in plain text"),
    ),
    ("tools", NO_TOOLS),
    ("functions", NO_TOOLS),
    ("tool_choice", NO_FORCED_TOOL),
    ("function_call", NO_FORCED_TOOL),
    ("logprobs", Only(is_false, NO_LOGPROBS)),
    ("top_logprobs", Only(is_zero, NO_LOGPROBS)),
    ("logit_bias", Only(is_empty, "must be left out: tokens cannot be weighted here")),
    ("modalities", Only(is_text_only, "can only be [\"text\"]: the agent answers in text")),
    ("audio", Only(NEVER, "must be left out: the agent answers in text")),
    ("web_search_options", Only(NEVER, "must be left out: the owner decides what the agent may search")),
];

/// The fields of `POST /v1/responses` beside those of `TUNING`.
pub(super) const RESPONSES: &[(&str, Rule)] = &[
    ("model", Read),
    ("input", Read),
    ("instructions", Read),
    ("previous_response_id", Read),
    ("stream", Read),
    ("stream_options", Ignored),
    ("user", Read),
    ("max_output_tokens", Read),
    ("text", Only(is_plain_text, "can only have the format 'text': the agent answers in plain text")),
    ("tools", NO_TOOLS),
    ("tool_choice", NO_FORCED_TOOL),
    ("top_logprobs", Only(is_zero, NO_LOGPROBS)),
    ("include", Only(is_reasoning_only, "names parts that answers do not have here")),
    ("background", Only(is_false, "must be left out: an answer is waited for or streamed")),
    (
        "conversation",
        Only(NEVER, "must be left out: 'previous_response_id' or the header X-Conversation-Id continues"),
    ),
    ("prompt", Only(NEVER, "must be left out: no prompts are stored here")),
    ("context_management", Only(NEVER, "must be left out: the agent keeps its own context")),
];

/// The fields of a request, without those that are null.
#[derive(Debug)]
pub(super) struct Fields {
    fields: Map<String, Value>,
}

impl Fields {
    /// Takes the fields of a body. A null counts as left out, at every depth.
    ///
    /// # Errors
    ///
    /// If the body is no object, has a field that is unknown, or asks for something that is not supported.
    pub(super) fn check(body: Value, rules: &[(&str, Rule)]) -> Result<Self, Refusal> {
        // Many libraries send null for what is left out.
        let Value::Object(fields) = without_nulls(body) else {
            return Err(Refusal::malformed("the body must be a JSON object"));
        };
        // An unknown field could change the meaning of the request, so it is not passed over.
        for (name, value) in &fields {
            let rule = rules.iter().find(|(known, _)| known == name).map(|(_, rule)| *rule);
            let rule = rule.or_else(|| TUNING.contains(&name.as_str()).then_some(Ignored));
            match rule {
                Some(Read | Ignored) => {}
                Some(Only(is_fine, _)) if is_fine(value) => {}
                Some(Only(_, why)) => return Err(unsupported_field(name, why)),
                None => return Err(unsupported_field(name, "is not known here; leave it out")),
            }
        }
        Ok(Self { fields })
    }

    /// A field, taken out.
    pub(super) fn take_field(&mut self, name: &str) -> Option<Value> {
        self.fields.remove(name)
    }

    /// A text.
    pub(super) fn take_text(&mut self, name: &str) -> Result<Option<String>, Refusal> {
        match self.take_field(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(invalid_field(name, "must be a text")),
        }
    }

    /// A text that must be there.
    pub(super) fn needed_text(&mut self, name: &str) -> Result<String, Refusal> {
        self.take_text(name)?.ok_or_else(|| invalid_field(name, "is missing"))
    }

    /// A truth value; false if it is left out.
    pub(super) fn take_flag(&mut self, name: &str) -> Result<bool, Refusal> {
        match self.take_field(name) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(flag),
            Some(_) => Err(invalid_field(name, "must be true or false")),
        }
    }

    /// A positive whole number.
    pub(super) fn take_count(&mut self, name: &str) -> Result<Option<u64>, Refusal> {
        match self.take_field(name) {
            None => Ok(None),
            Some(value) => match value.as_u64().filter(|count| *count > 0) {
                Some(count) => Ok(Some(count)),
                None => Err(invalid_field(name, "must be a whole number of at least 1")),
            },
        }
    }

    /// True if the last chunk of a stream shall say the usage.
    pub(super) fn include_usage(&mut self) -> Result<bool, Refusal> {
        match self.take_field("stream_options") {
            None => Ok(false),
            Some(Value::Object(options)) => Self { fields: options }.take_flag("include_usage"),
            Some(_) => Err(invalid_field("stream_options", "must be an object")),
        }
    }
}

/// A value without the fields that are null; null elements of lists stay. The parser bounds the depth.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.into_iter().filter(|(_, value)| !value.is_null());
            Value::Object(fields.map(|(name, value)| (name, without_nulls(value))).collect())
        }
        Value::Array(list) => Value::Array(list.into_iter().map(without_nulls).collect()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value,
    }
}

/// A refusal of a field that is not understood as it is written.
pub(super) fn invalid_field(param: &str, why: &str) -> Refusal {
    let shown = crop_name(param);
    Refusal::malformed(&format!("'{shown}' {why}")).about_field(shown)
}

/// A refusal of a field that asks for what is not supported.
pub(super) fn unsupported_field(param: &str, why: &str) -> Refusal {
    let shown = crop_name(param);
    let hint = "leave it out, or read docs/guides/openai-api.md for what is supported";
    let text = format!("'{shown}' {why}");
    Refusal::new(StatusCode::BAD_REQUEST, "request.unsupported", &text, hint).about_field(shown)
}

fn crop_name(name: &str) -> String {
    // The name comes from the client and goes into messages and logs.
    let clean = |letter: char| if letter.is_control() { '?' } else { letter };
    name.chars().take(MAX_SHOWN_NAME).map(clean).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refused(body: Value, rules: &[(&str, Rule)]) -> Option<(String, String)> {
        let refusal = Fields::check(body, rules).err()?;
        Some((refusal.report().code.clone(), refusal.param().unwrap_or_default().to_owned()))
    }

    #[test]
    fn every_field_that_is_null_counts_as_left_out() {
        for rules in [CHAT, RESPONSES] {
            for name in rules.iter().map(|(name, _)| *name).chain(TUNING).chain(["unheard_of"]) {
                assert_eq!(refused(json!({ name: null }), rules), None, "{name}");
            }
        }
        let mut fields = Fields::check(json!({ "stream": null, "stop": null }), CHAT).expect("fields");
        assert!(!fields.take_flag("stream").expect("a flag") && fields.take_field("stop").is_none());
    }

    #[test]
    fn what_is_not_supported_is_refused_by_name() {
        for (name, value) in [
            ("n", json!(2)),
            ("n", json!("1")),
            ("response_format", json!({ "type": "json_object" })),
            ("response_format", json!({ "type": "json_schema", "json_schema": {} })),
            ("tools", json!([{ "type": "function", "function": { "name": "look" } }])),
            ("functions", json!([{ "name": "look" }])),
            ("tool_choice", json!("required")),
            ("tool_choice", json!({ "type": "function", "function": { "name": "look" } })),
            ("logprobs", json!(true)),
            ("top_logprobs", json!(3)),
            ("logit_bias", json!({ "50256": -100 })),
            ("modalities", json!(["text", "audio"])),
            ("audio", json!({ "voice": "alloy" })),
            ("web_search_options", json!({})),
            ("unheard_of", json!(1)),
        ] {
            let found = refused(json!({ name: value }), CHAT);
            assert_eq!(found, Some(("request.unsupported".to_owned(), name.to_owned())), "{name}");
        }
        for (name, value) in [
            ("background", json!(true)),
            ("conversation", json!("conv_1")),
            ("text", json!({ "format": { "type": "json_schema", "name": "x", "schema": {} } })),
            ("include", json!(["message.output_text.logprobs"])),
            ("prompt", json!({ "id": "pmpt_1" })),
        ] {
            assert_eq!(
                refused(json!({ name: value }), RESPONSES).map(|found| found.1).as_deref(),
                Some(name)
            );
        }
    }

    #[test]
    fn what_asks_for_no_more_than_the_default_is_taken() {
        let chat = json!({
            "n": 1, "response_format": { "type": "text" }, "tools": [], "tool_choice": "auto", "logprobs": false,
            "top_logprobs": 0, "logit_bias": {}, "modalities": ["text"], "temperature": 0.2, "seed": 7, "store": true,
            "metadata": { "a": "b" }, "parallel_tool_calls": true, "reasoning_effort": "low", "top_k": 40,
        });
        assert_eq!(refused(chat, CHAT), None);
        let responses = json!({
            "text": { "format": { "type": "text" }, "verbosity": "low" }, "include": ["reasoning.encrypted_content"],
            "background": false, "reasoning": { "effort": "low" }, "truncation": "auto", "store": false,
        });
        assert_eq!(refused(responses, RESPONSES), None);
    }

    #[test]
    fn a_wrong_type_names_its_field() {
        let mut fields =
            Fields::check(json!({ "stream": "yes", "model": 1, "max_tokens": 0 }), CHAT).expect("fields");
        let param = |refusal: Refusal| refusal.param().map(str::to_owned);
        assert_eq!(fields.take_flag("stream").err().and_then(param).as_deref(), Some("stream"));
        assert_eq!(fields.needed_text("model").err().and_then(param).as_deref(), Some("model"));
        assert_eq!(fields.take_count("max_tokens").err().and_then(param).as_deref(), Some("max_tokens"));
        assert_eq!(fields.needed_text("user").err().and_then(param).as_deref(), Some("user"));
    }
}
