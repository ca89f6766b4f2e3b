//! The messages of a request, as texts with their roles.

use serde_json::Value;

use writ_types::chat::MAX_FILES;

use super::MAX_MESSAGES;
use super::fields::{invalid_field, unsupported_field};
use crate::http::reply::Refusal;

/// One message: its role and its text.
pub(super) type Message = (String, String);

/// An image or a PDF file of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ChatFile {
    /// Its name.
    pub(super) name: String,
    /// Its bytes as base64.
    pub(super) content: String,
    /// Its place in the request, for errors.
    pub(super) place: String,
}

/// The text for a file of an earlier message: the session has it, or it is too old to be sent again.
const EARLIER_FILE: &str = "(a file that is not sent again)";

/// Reads a list of messages of either format; `field` is the list's name in errors.
///
/// # Errors
///
/// If it is no list of messages, has too many, or one of them has something else than text.
pub(super) fn read_messages(list: Value, field: &str) -> Result<(Vec<Message>, Vec<ChatFile>), Refusal> {
    let Value::Array(list) = list else {
        return Err(invalid_field(field, "must be a list of messages"));
    };
    // Bounded before any of them is read.
    if list.len() > MAX_MESSAGES {
        return Err(invalid_field(field, &format!("has more than {MAX_MESSAGES} messages")));
    }
    let mut files = Vec::new();
    let read = list.iter().enumerate().map(|(n, message)| {
        let place = format!("{field}[{n}]");
        // Files are taken from the last message: what came before is in the session, or quoted.
        let is_last = n + 1 == list.len();
        read_message(message, &place, is_last, &mut files)
    });
    Ok((read.collect::<Result<_, _>>()?, files))
}

fn read_message(
    message: &Value,
    place: &str,
    is_last: bool,
    files: &mut Vec<ChatFile>,
) -> Result<Message, Refusal> {
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
    let mut own = Vec::new();
    let mut texts = read_content(message.get("content"), &format!("{place}.content"), &mut own)?;
    if is_last && role == "user" {
        files.extend(own);
    } else {
        texts.extend(own.iter().map(|_| EARLIER_FILE.to_owned()));
    }
    texts.extend(message.get("refusal").and_then(Value::as_str).map(str::to_owned));
    // Calls of a client's own tools are part of its history, and nothing to perform.
    texts.extend(called_tools(message));
    if message.get("audio").is_some() {
        return Err(unsupported_field(
            &format!("{place}.audio"),
            "must be left out: sound is not understood here",
        ));
    }
    Ok((role, texts.join("\n")))
}

fn read_content(
    content: Option<&Value>,
    place: &str,
    files: &mut Vec<ChatFile>,
) -> Result<Vec<String>, Refusal> {
    match content {
        None => Ok(Vec::new()),
        Some(Value::String(text)) => Ok(vec![text.clone()]),
        Some(Value::Array(parts)) => {
            let mut texts = Vec::with_capacity(parts.len());
            for (n, part) in parts.iter().enumerate() {
                let place = format!("{place}[{n}]");
                match read_file(part, &place)? {
                    Some(_) if files.len() >= MAX_FILES => {
                        return Err(invalid_field(&place, &format!("is more than the {MAX_FILES}th file")));
                    }
                    Some(file) => files.push(file),
                    None => texts.push(read_part(part, &place)?),
                }
            }
            Ok(texts)
        }
        Some(_) => Err(invalid_field(place, "must be a text or a list of parts")),
    }
}

/// Reads a part that is a file, in the forms of both formats; `None`: it is no file.
fn read_file(part: &Value, place: &str) -> Result<Option<ChatFile>, Refusal> {
    let (field, data, name) = match part.get("type").and_then(Value::as_str) {
        Some("image_url") => ("image_url.url", part.pointer("/image_url/url"), None),
        Some("input_image") => ("image_url", part.get("image_url"), None),
        Some("file") => ("file.file_data", part.pointer("/file/file_data"), part.pointer("/file/filename")),
        Some("input_file") => ("file_data", part.get("file_data"), part.get("filename")),
        Some(_) | None => return Ok(None),
    };
    let place = format!("{place}.{field}");
    let Some(data) = data.and_then(Value::as_str) else {
        let why = "must be a data URL with base64: files by id or address are not fetched here";
        return Err(unsupported_field(&place, why));
    };
    // A client may send plain base64 for a file, as the format allows.
    let content = match data.strip_prefix("data:") {
        Some(rest) => rest.split_once(";base64,").map(|(_, content)| content),
        None if data.contains("://") => None,
        None => Some(data),
    };
    let Some(content) = content else {
        let why = "must be a data URL with base64: addresses are not fetched here";
        return Err(unsupported_field(&place, why));
    };
    let name = name.and_then(Value::as_str).unwrap_or("image").to_owned();
    Ok(Some(ChatFile { name, content: content.to_owned(), place }))
}

fn read_part(part: &Value, place: &str) -> Result<String, Refusal> {
    if let Value::String(text) = part {
        return Ok(text.clone());
    }
    let field = match part.get("type").and_then(Value::as_str) {
        Some("text" | "input_text" | "output_text") => "text",
        Some("refusal") => "refusal",
        Some(_) => {
            let why = "is not supported: text, images and PDF files are understood here";
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
        let (read, files) = read_messages(list, "messages").expect("messages");
        assert_eq!(files, []);
        let texts: Vec<&str> = read.iter().map(|(_, text)| text.as_str()).collect();
        assert_eq!(texts, ["Be\nbrief.", "(called look with {\"a\":1})", "seen", "hi", "no"]);
    }

    #[test]
    fn files_of_the_last_message_are_taken_in_the_forms_of_both_formats() {
        let image = "data:image/png;base64,QUJD";
        let list = json!([
            { "role": "user", "content": [{ "type": "image_url", "image_url": { "url": image } }] },
            { "role": "user", "content": [
                { "type": "text", "text": "look" },
                { "type": "image_url", "image_url": { "url": image } },
                { "type": "input_image", "image_url": image },
                { "type": "file", "file": { "filename": "a.pdf", "file_data": "data:application/pdf;base64,QUJD" } },
                { "type": "input_file", "filename": "b.pdf", "file_data": "QUJD" },
            ] },
        ]);
        let (read, files) = read_messages(list, "input").expect("messages");
        assert_eq!(read[0].1, EARLIER_FILE);
        assert_eq!(read[1].1, "look");
        let files: Vec<_> = files.iter().map(|file| (file.name.as_str(), file.content.as_str())).collect();
        assert_eq!(files, [("image", "QUJD"), ("image", "QUJD"), ("a.pdf", "QUJD"), ("b.pdf", "QUJD")]);
    }

    #[test]
    fn what_is_no_text_is_refused_where_it_stands() {
        let part =
            |part: Value| json!([{ "role": "user", "content": [{ "type": "text", "text": "x" }, part] }]);
        for (list, place) in [
            (
                part(json!({ "type": "image_url", "image_url": { "url": "https://host/x.png" } })),
                "messages[0].content[1].image_url.url",
            ),
            (part(json!({ "type": "input_image", "file_id": "x" })), "messages[0].content[1].image_url"),
            (part(json!({ "type": "input_audio" })), "messages[0].content[1].type"),
            (part(json!({ "type": "file" })), "messages[0].content[1].file.file_data"),
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
