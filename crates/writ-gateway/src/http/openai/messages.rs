//! The messages of a request, as texts with their roles.

use serde_json::Value;

use super::MAX_MESSAGES;
use super::fields::{invalid_field, unsupported_field};
use crate::http::reply::Refusal;

/// One message: its role and its text.
pub(super) type Message = (String, String);

/// Reads a list of messages of either format; `field` is the list's name in errors.
///
/// # Errors
///
/// If it is no list of messages, has too many, or one of them has something else than text.
pub(super) fn read_messages(list: Value, field: &str) -> Result<Vec<Message>, Refusal> {
    let Value::Array(list) = list else {
        return Err(invalid_field(field, "must be a list of messages"));
    };
    // Bounded before any of them is read.
    if list.len() > MAX_MESSAGES {
        return Err(invalid_field(field, &format!("has more than {MAX_MESSAGES} messages")));
    }
    list.iter().enumerate().map(|(n, message)| read_message(message, &format!("{field}[{n}]"))).collect()
}

fn read_message(message: &Value, place: &str) -> Result<Message, Refusal> {
    if !message.is_object() {
        return Err(invalid_field(place, "must be a message, an object"));
    }
    // Items of the newer format that are no messages have a type of their own.
    if let Some(kind) = message.get("type")
        && kind != "message"
    {
        return Err(unsupported_field(&format!("{place}.type"), "can only be 'message' here"));
    }
    let role = match message.get("role").and_then(Value::as_str) {
        Some(role) => role.to_owned(),
        None => return Err(invalid_field(&format!("{place}.role"), "is missing or no text")),
    };
    let mut texts = read_content(message.get("content"), &format!("{place}.content"))?;
    texts.extend(message.get("refusal").and_then(Value::as_str).map(str::to_owned));
    // Calls of a client's own tools are part of its history, and nothing to perform.
    texts.extend(called_tools(message));
    if message.get("audio").is_some() {
        return Err(unsupported_field(
            &format!("{place}.audio"),
            "must be left out: only text is understood here",
        ));
    }
    Ok((role, texts.join("\n")))
}

fn read_content(content: Option<&Value>, place: &str) -> Result<Vec<String>, Refusal> {
    match content {
        None => Ok(Vec::new()),
        Some(Value::String(text)) => Ok(vec![text.clone()]),
        Some(Value::Array(parts)) => {
            parts.iter().enumerate().map(|(n, part)| read_part(part, &format!("{place}[{n}]"))).collect()
        }
        Some(_) => Err(invalid_field(place, "must be a text or a list of parts")),
    }
}

fn read_part(part: &Value, place: &str) -> Result<String, Refusal> {
    if let Value::String(text) = part {
        return Ok(text.clone());
    }
    let field = match part.get("type").and_then(Value::as_str) {
        Some("text" | "input_text" | "output_text") => "text",
        Some("refusal") => "refusal",
        Some(_) => {
            let why = "is not supported: only text is understood here, no images, audio or files";
            return Err(unsupported_field(&format!("{place}.type"), why));
        }
        None => return Err(invalid_field(&format!("{place}.type"), "is missing or no text")),
    };
    match part.get(field).and_then(Value::as_str) {
        Some(text) => Ok(text.to_owned()),
        None => Err(invalid_field(&format!("{place}.{field}"), "is missing or no text")),
    }
}

/// The calls of tools in an earlier answer, as lines for the quotation.
fn called_tools(message: &Value) -> Vec<String> {
    let calls = message.get("tool_calls").and_then(Value::as_array).into_iter().flatten();
    let functions = calls.filter_map(|call| call.get("function")).chain(message.get("function_call"));
    let line = |function: &Value| {
        let text = |name: &str| function.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        format!("(called {} with {})", text("name"), text("arguments"))
    };
    functions.map(line).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn parts_calls_and_results_become_text() {
        let list = json!([
            { "role": "developer", "content": [{ "type": "text", "text": "Be" }, { "type": "text", "text": "brief." }] },
            { "role": "assistant", "tool_calls": [
                { "id": "1", "type": "function", "function": { "name": "look", "arguments": "{\"a\":1}" } },
            ] },
            { "role": "tool", "tool_call_id": "1", "content": "seen" },
            { "type": "message", "role": "user", "content": [{ "type": "input_text", "text": "hi" }] },
            { "role": "assistant", "content": [{ "type": "refusal", "refusal": "no" }] },
        ]);
        let read = read_messages(list, "messages").expect("messages");
        let texts: Vec<&str> = read.iter().map(|(_, text)| text.as_str()).collect();
        assert_eq!(texts, ["Be\nbrief.", "(called look with {\"a\":1})", "seen", "hi", "no"]);
    }

    #[test]
    fn what_is_no_text_is_refused_where_it_stands() {
        let part =
            |part: Value| json!([{ "role": "user", "content": [{ "type": "text", "text": "x" }, part] }]);
        for (list, place) in [
            (
                part(json!({ "type": "image_url", "image_url": { "url": "x" } })),
                "messages[0].content[1].type",
            ),
            (part(json!({ "type": "input_audio" })), "messages[0].content[1].type"),
            (part(json!({ "type": "file" })), "messages[0].content[1].type"),
            (part(json!({ "type": "text" })), "messages[0].content[1].text"),
            (part(json!(1)), "messages[0].content[1].type"),
            (json!([{ "role": "user", "content": 1 }]), "messages[0].content"),
            (json!([{ "content": "x" }]), "messages[0].role"),
            (json!([{ "type": "function_call_output", "call_id": "1", "output": "x" }]), "messages[0].type"),
            (json!(["x"]), "messages[0]"),
            (json!("x"), "messages"),
        ] {
            let refusal = read_messages(list.clone(), "messages").expect_err("refused");
            assert_eq!(refusal.param(), Some(place), "{list}");
        }
    }
}
