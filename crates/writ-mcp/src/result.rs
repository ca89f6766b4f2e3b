//! The result of a call of a tool.

use serde_json::Value;

use crate::error::McpError;

/// The most blocks of one answer that are looked at.
pub const MAX_BLOCKS: usize = 256;
/// The longest name of something that is not shown, in characters.
const MAX_SHOWN_CHARS: usize = 200;

/// A server's answer to a call. All of it is the server's words.
#[derive(Clone, Debug, PartialEq)]
pub struct CallResult {
    /// The text of its blocks; what is no text is named.
    pub text: String,
    /// Its structured result, if it gave one.
    pub structured: Option<Value>,
    /// True if the server reports that the call failed.
    pub is_error: bool,
}

impl CallResult {
    /// Reads an answer to `tools/call`. One without content and structured result is empty. What servers of the first
    /// version of the protocol gave as `toolResult` counts as structured.
    ///
    /// # Errors
    ///
    /// If it is no object, its content is no list, or it has more blocks than are looked at.
    pub(crate) fn of(mut result: Value) -> Result<Self, McpError> {
        let wrong = |why: String| McpError::Wrong { method: "tools/call", why };
        if !result.is_object() {
            return Err(wrong("it is no object".to_owned()));
        }
        let is_error = result.get("isError").and_then(Value::as_bool).unwrap_or(false);
        let mut taken =
            |name: &str| result.get_mut(name).map(Value::take).filter(|value: &Value| !value.is_null());
        // The older field is read too: the first version of the protocol had no other.
        let structured = taken("structuredContent").or_else(|| taken("toolResult"));
        let blocks = match result.get("content") {
            // The bound comes before the text is built.
            Some(Value::Array(blocks)) if blocks.len() <= MAX_BLOCKS => blocks.as_slice(),
            Some(Value::Array(_)) => return Err(wrong(format!("it has more than {MAX_BLOCKS} blocks"))),
            None | Some(Value::Null) => &[],
            Some(Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_)) => {
                return Err(wrong("its content is no list".to_owned()));
            }
        };
        let text = blocks.iter().map(show_block).collect::<Vec<_>>().join("\n");
        Ok(Self { text, structured, is_error })
    }
}

/// One block: its text, or what it is.
pub(crate) fn show_block(block: &Value) -> String {
    let text = |name: &str| block.get(name).and_then(Value::as_str).unwrap_or_default();
    match text("type") {
        "text" => text("text").to_owned(),
        kind @ ("image" | "audio") => {
            format!(
                "[{kind}, {}, {} characters of base64: not shown]",
                cut_text(text("mimeType")),
                text("data").len()
            )
        }
        "resource_link" => format!("[link to {} ({})]", cut_text(text("uri")), cut_text(text("name"))),
        "resource" => shown_resource(block.get("resource").unwrap_or(&Value::Null)),
        // An unknown type is named and not passed on, since it may hold anything.
        other => format!("[a block of the unknown type '{}': not shown]", cut_text(other)),
    }
}

/// A resource: its text, or what it is.
pub(crate) fn shown_resource(resource: &Value) -> String {
    let field = |name: &str| resource.get(name).and_then(Value::as_str);
    let uri = cut_text(field("uri").unwrap_or_default());
    match (field("text"), field("blob")) {
        (Some(content), _) => format!("[resource {uri}]\n{content}"),
        (None, blob) => {
            format!("[resource {uri}, {} characters of base64: not shown]", blob.map_or(0, str::len))
        }
    }
}

/// Words of the server that stand within ours: short, on one line.
fn cut_text(text: &str) -> String {
    let short: String = text.chars().take(MAX_SHOWN_CHARS).collect();
    writ_types::visible::escape_line(&short).into_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn text_is_shown_and_everything_else_is_named() {
        let result = CallResult::of(json!({
            "content": [
                {"type": "text", "text": "found it"},
                {"type": "image", "mimeType": "image/png", "data": "AAAA"},
                {"type": "resource_link", "uri": "file:///a", "name": "a"},
                {"type": "resource", "resource": {"uri": "x://1", "text": "inside"}},
                {"type": "resource", "resource": {"uri": "x://2", "blob": "AAAAAA"}},
                {"type": "hologram\u{1b}[2J"},
                5,
            ],
            "structuredContent": {"id": 7},
            "isError": true,
        }));
        let text = "found it\n[image, image/png, 4 characters of base64: not shown]\n[link to file:///a (a)]\n\
                    [resource x://1]\ninside\n[resource x://2, 6 characters of base64: not shown]\n\
                    [a block of the unknown type 'hologram\\u{1b}[2J': not shown]\n\
                    [a block of the unknown type '': not shown]";
        let expected = CallResult { text: text.into(), structured: Some(json!({"id": 7})), is_error: true };
        assert_eq!(result.unwrap(), expected);
    }

    #[test]
    fn an_answer_without_content_is_empty_and_one_of_another_form_is_wrong() {
        for lie in [
            json!(null),
            json!("text"),
            json!([]),
            json!({"content": "text"}),
            json!({"content": vec![0; MAX_BLOCKS + 1]}),
        ] {
            assert!(matches!(CallResult::of(lie), Err(McpError::Wrong { method: "tools/call", .. })));
        }
        let empty = CallResult { text: String::new(), structured: None, is_error: false };
        for nothing in [json!({}), json!({"content": null}), json!({"content": []})] {
            assert_eq!(CallResult::of(nothing), Ok(empty.clone()));
        }
        for field in ["structuredContent", "toolResult"] {
            let structured = CallResult::of(json!({field: {"a": 1}, "isError": true})).unwrap();
            let expected =
                CallResult { text: String::new(), structured: Some(json!({"a": 1})), is_error: true };
            assert_eq!(structured, expected);
        }
    }
}
