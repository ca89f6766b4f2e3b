//! JSON as models write it into a text.

use serde_json::{Map, Value};

/// The most layers of encoding that are removed from a text.
const MAX_LAYERS: usize = 3;

/// The object that a value is, or that its text holds; `None`: it is none, or it is not clear which. Nothing at all is an
/// object without fields.
pub(super) fn object_of(value: &Value, most: usize) -> Option<Map<String, Value>> {
    let mut value = value.clone();
    // Text within text within text: models escape arguments more than once.
    for _ in 0..=MAX_LAYERS {
        match value {
            Value::Object(object) => return Some(object),
            Value::Null => return Some(Map::new()),
            Value::String(text) if text.len() <= most => {
                let text = strip_fence(text.trim());
                if text.is_empty() {
                    return Some(Map::new());
                }
                value = parse_layers(text)?;
            }
            Value::String(_) | Value::Bool(_) | Value::Number(_) | Value::Array(_) => return None,
        }
    }
    None
}

/// Reads JSON, also with comments and commas before an end, which stand outside of texts and so mean nothing.
pub(super) fn parse_layers(text: &str) -> Option<Value> {
    // Strict first: comments and trailing commas are removed only if that is needed.
    serde_json::from_str(text).ok().or_else(|| serde_json::from_str(&plain_text(text)?).ok())
}

/// Returns the text within a code fence, if there is one around all of it.
fn strip_fence(text: &str) -> &str {
    let Some(inner) = text.strip_prefix("```").and_then(|rest| rest.strip_suffix("```")) else { return text };
    let inner = match inner.split_once('\n') {
        Some((language, inner)) if language.trim().chars().all(|c| c.is_ascii_alphanumeric()) => inner,
        Some(_) | None => inner.strip_prefix("json").unwrap_or(inner),
    };
    // Two fences are two texts.
    if inner.contains("```") { text } else { inner.trim() }
}

/// The text without comments and commas before an end; `None`: a comment or a text has no end.
fn plain_text(text: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match (c, chars.peek()) {
            ('"', _) => {
                out.push('"');
                loop {
                    let c = chars.next()?;
                    out.push(c);
                    match c {
                        // An escaped character is copied with its backslash, so that a quotation mark in a
                        // text does not end it.
                        '\\' => out.push(chars.next()?),
                        '"' => break,
                        _inside => {}
                    }
                }
            }
            ('/', Some('/')) => while chars.next_if(|c| *c != '\n').is_some() {},
            ('/', Some('*')) => {
                chars.next();
                loop {
                    if chars.next()? == '*' && chars.next_if_eq(&'/').is_some() {
                        break;
                    }
                }
            }
            ('}' | ']', _) => {
                let kept = out.trim_end();
                if let Some(before) = kept.strip_suffix(',') {
                    // A comma alone, as in `[,]`, is no list of one.
                    if !before.trim_end().ends_with(['[', '{', ',']) {
                        out.truncate(before.len());
                    }
                }
                out.push(c);
            }
            _ => out.push(c),
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_is_clear_is_read() {
        let read = |text: &str| object_of(&json!(text), 1_000).map(Value::Object);
        let expected = Some(json!({"a": "x // y, ]"}));
        for text in [
            r#"{"a": "x // y, ]"}"#,
            "```json\n{\"a\": \"x // y, ]\"}\n```",
            "```\n{\"a\": \"x // y, ]\"}```",
            "```json{\"a\": \"x // y, ]\"}```",
            "{\"a\": \"x // y, ]\",}",
            "{\"a\": /* why */ \"x // y, ]\", // because\n}",
            &json!(r#"{"a": "x // y, ]"}"#).to_string(),
            &json!(json!(r#"{"a": "x // y, ]"}"#).to_string()).to_string(),
        ] {
            assert_eq!(read(text), expected, "{text}");
        }
        assert_eq!((read(""), read(" \n")), (Some(json!({})), Some(json!({}))));
        for unclear in [
            "run it",
            "[1]",
            "5",
            r#"{"a": 1} {"a": 2}"#,
            r#"{"a": 1"#,
            r#"{"a": [,]}"#,
            r#"{"a": 1,,}"#,
            "{'a': 1}",
            "{a: 1}",
            r#"{"a": 1 /* "#,
            "```json\n{}\n```\nand\n```json\n{}\n```",
        ] {
            assert_eq!(read(unclear), None, "{unclear}");
        }
        assert_eq!(object_of(&json!("x".repeat(1_001)), 1_000), None);
    }
}
