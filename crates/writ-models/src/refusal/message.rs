//! Finding the message in the body of an error: each server puts it somewhere else.

use std::borrow::Cow;

use serde_json::{Map, Value};

use crate::error::MAX_RAW_CHARS;

/// Fields that hold a message, the usual one first.
const FIELDS: [&str; 5] = ["message", "error", "detail", "msg", "error_description"];

/// The most levels that a message is looked for below the error.
const MAX_DEPTH: usize = 4;

/// The most steps of a place in the request that are repeated.
const MAX_STEPS: usize = 16;

/// The error within the body of a response: the object or text that describes it. A body that is no JSON is its own message.
pub(crate) fn error_in(body: &str) -> Value {
    match serde_json::from_str::<Value>(body) {
        // Google sends a list of one where an answer was to be streamed.
        Ok(Value::Array(items)) => items.into_iter().next().map(unwrap_message).unwrap_or_default(),
        Ok(value) => unwrap_message(value),
        Err(_) => Value::String(plain_text(body)),
    }
}

fn unwrap_message(value: Value) -> Value {
    match value {
        Value::Object(mut fields) => match fields.remove("error") {
            // `error` is only a text; the fields beside it have the code and the status.
            Some(Value::String(text)) if !fields.contains_key("message") => {
                fields.insert("message".to_owned(), Value::String(text));
                Value::Object(fields)
            }
            Some(error @ (Value::Object(_) | Value::String(_))) => error,
            Some(_) | None => Value::Object(fields),
        },
        Value::String(text) => Value::String(text),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => Value::Object(Map::new()),
    }
}

/// The message of an error; empty if there is none.
pub(crate) fn find_message(error: &Value) -> String {
    let message = find_text(error, 0).unwrap_or_default();
    message.chars().take(MAX_RAW_CHARS).collect()
}

fn find_text(error: &Value, depth: usize) -> Option<Cow<'_, str>> {
    // Bounded, since an error body may nest without end.
    if depth > MAX_DEPTH {
        return None;
    }
    match error {
        Value::String(text) => (!text.trim().is_empty()).then_some(Cow::Borrowed(text.as_str())),
        Value::Array(items) => find_text(items.first()?, depth.saturating_add(1)),
        Value::Object(fields) => {
            let inner = |key: &&str| find_text(fields.get(*key)?, depth.saturating_add(1));
            // OpenRouter's own message says only that the provider failed; the provider's stands below.
            let passed_on = fields.get("metadata").and_then(|metadata| metadata.get("raw"));
            let passed_on = passed_on.and_then(Value::as_str).map(Cow::Borrowed);
            let message = passed_on.or_else(|| FIELDS.iter().find_map(inner))?;
            let place =
                // A validating server names the place of the fault, which helps more than its message.
                fields.get("loc").and_then(Value::as_array).map(|steps| at_path(steps)).unwrap_or_default();
            Some(if place.is_empty() { message } else { format!("{place}: {message}").into() })
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => None,
    }
}

/// The place in a request that a validating server names step by step, as `body.tools.0`.
fn at_path(steps: &[Value]) -> String {
    let step = |step: &Value| match step {
        Value::String(name) => Some(name.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    };
    let steps: Vec<String> = steps.iter().take(MAX_STEPS).filter_map(step).collect();
    steps.join(".")
}

/// The text of a body that is no JSON; of a page its title.
fn plain_text(body: &str) -> String {
    let body: String = body.chars().take(MAX_RAW_CHARS).collect();
    let lower = body.to_ascii_lowercase();
    let title = lower.find("<title>").zip(lower.find("</title>"));
    match title.and_then(|(start, end)| body.get(start.saturating_add("<title>".len())..end)) {
        Some(title) => title.trim().to_owned(),
        // Of a page of HTML without a title, the markup would not help anybody.
        None if lower.trim_start().starts_with('<') => String::new(),
        None => body.trim().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_is_found_wherever_servers_put_it() {
        for (body, message) in [
            (r#"{"error":{"message":"m","code":1}}"#, "m"),
            (r#"{"error":"m"}"#, "m"),
            (r#"{"error":"m","error_code":5}"#, "m"),
            (r#"[{"error":{"message":"m"}}]"#, "m"),
            (r#"{"object":"error","message":"m","code":400}"#, "m"),
            (r#"{"detail":"m"}"#, "m"),
            (r#"{"detail":[{"loc":["body","tools",0],"msg":"m","type":"missing"}]}"#, "body.tools.0: m"),
            (r#"{"detail":[{"loc":[],"msg":"m"}]}"#, "m"),
            (r#"{"detail":[{"loc":[null,{}],"msg":"m"}]}"#, "m"),
            (r#"{"detail":[{"loc":["body"]}]}"#, ""),
            (r#"{"message":{"detail":[{"type":"x","msg":"m"}]}}"#, "m"),
            (
                r#"{"error":{"message":"Provider returned error","code":400,"metadata":{"raw":"m","provider_name":"X"}}}"#,
                "m",
            ),
            ("m\n", "m"),
            (
                "<html>\r\n<head><title>413 Request Entity Too Large</title></head>",
                "413 Request Entity Too Large",
            ),
            ("<html><body>?</body></html>", ""),
            ("<TITLE>", ""),
            ("</title><title>", ""),
            ("{}", ""),
            ("[]", ""),
            ("null", ""),
            ("", ""),
            (r#"{"error":null,"message":"m"}"#, "m"),
        ] {
            assert_eq!(find_message(&error_in(body)), message, "{body}");
        }
        let deep = format!("{}\"m\"{}", "{\"error\":".repeat(60), "}".repeat(60));
        assert_eq!(find_message(&error_in(&deep)), "");
    }
}
