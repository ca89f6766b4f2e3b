//! What a call of a tool gives.

use serde_json::Value;

use crate::error::McpError;

/// The most blocks of one answer that are looked at.
pub const MAX_BLOCKS: usize = 256;
/// The longest name of something that is not shown, in characters.
const MAX_SHOWN_CHARS: usize = 200;

/// What a server answered to a call. All of it is the server's words.
#[derive(Clone, Debug, PartialEq)]
pub struct CallResult {
    /// The text of its blocks; what is no text is named.
    pub text: String,
    /// Its structured result, if it gave one.
    pub structured: Option<Value>,
    /// Whether the server says that the call failed.
    pub is_error: bool,
}

impl CallResult {
    /// Reads an answer to `tools/call`.
    ///
    /// # Errors
    ///
    /// If it has neither blocks nor a structured result, or more blocks than are looked at.
    pub(crate) fn of(mut result: Value) -> Result<Self, McpError> {
        let wrong = |why: String| McpError::Wrong { method: "tools/call", why };
        let is_error = result.get("isError").and_then(Value::as_bool).unwrap_or(false);
        let structured =
            result.get_mut("structuredContent").map(Value::take).filter(|value| !value.is_null());
        let blocks = match result.get("content") {
            Some(Value::Array(blocks)) if blocks.len() <= MAX_BLOCKS => blocks.as_slice(),
            Some(Value::Array(_)) => return Err(wrong(format!("it has more than {MAX_BLOCKS} blocks"))),
            None | Some(Value::Null) if structured.is_some() => &[],
            Some(_) | None => return Err(wrong("it has no content".to_owned())),
        };
        let text = blocks.iter().map(shown).collect::<Vec<_>>().join("\n");
        Ok(Self { text, structured, is_error })
    }
}

/// One block: its text, or what it is.
pub(crate) fn shown(block: &Value) -> String {
    let text = |name: &str| block.get(name).and_then(Value::as_str).unwrap_or_default();
    match text("type") {
        "text" => text("text").to_owned(),
        kind @ ("image" | "audio") => {
            format!(
                "[{kind}, {}, {} characters of base64: not shown]",
                cut(text("mimeType")),
                text("data").len()
            )
        }
        "resource_link" => format!("[link to {} ({})]", cut(text("uri")), cut(text("name"))),
        "resource" => shown_resource(block.get("resource").unwrap_or(&Value::Null)),
        other => format!("[a block of the unknown type '{}': not shown]", cut(other)),
    }
}

/// A resource: its text, or what it is.
pub(crate) fn shown_resource(resource: &Value) -> String {
    let field = |name: &str| resource.get(name).and_then(Value::as_str);
    let uri = cut(field("uri").unwrap_or_default());
    match (field("text"), field("blob")) {
        (Some(content), _) => format!("[resource {uri}]\n{content}"),
        (None, blob) => {
            format!("[resource {uri}, {} characters of base64: not shown]", blob.map_or(0, str::len))
        }
    }
}

/// Words of the server that stand within ours: short, on one line.
fn cut(text: &str) -> String {
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
    fn an_answer_without_content_is_wrong() {
        for lie in
            [json!(null), json!({}), json!({"content": "text"}), json!({"content": vec![0; MAX_BLOCKS + 1]})]
        {
            assert!(matches!(CallResult::of(lie), Err(McpError::Wrong { method: "tools/call", .. })));
        }
        let structured = CallResult::of(json!({"structuredContent": {"a": 1}})).unwrap();
        assert_eq!((structured.text.as_str(), structured.structured), ("", Some(json!({"a": 1}))));
    }
}
