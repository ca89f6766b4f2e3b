//! Resources of a server, as three tools that the owner pins like any other: what the server has, and one of them.
//!
//! A reading is a call: the door judges its URI as an argument, and what it gives are the server's words. Nothing is kept of
//! it, so news that a resource has changed mean nothing here; subscriptions are not made.

use serde_json::{Map, Value, json};

use crate::definition::{Definition, Pages};
use crate::error::McpError;
use crate::result::{CallResult, MAX_BLOCKS, shown_resource};

/// Lists what can be read.
const LIST: &str = "resources/list";
/// Lists forms of URIs that can be read.
const TEMPLATES: &str = "resources/templates/list";
/// Reads one.
const READ: &str = "resources/read";
/// How many tools there are for them.
pub(crate) const TOOLS: usize = 3;
/// The most resources or templates that are listed.
pub const MAX_LISTED: usize = 512;
/// The longest URI, in bytes.
const MAX_URI_BYTES: usize = 2 * 1024;
/// The longest name, media type or description of one, in characters; longer ones are cut.
const MAX_WORDS_CHARS: usize = 300;
/// What is told of one.
const FIELDS: [&str; 6] = ["uri", "uriTemplate", "name", "title", "mimeType", "description"];

/// Whether a server has any, by its answer to the greeting.
pub(crate) fn has(greeted: &Value) -> bool {
    greeted.pointer("/capabilities/resources").is_some_and(Value::is_object)
}

/// The method of the protocol that is behind a tool; `None`: it is one of the server's own.
pub(crate) fn method(tool: &str) -> Option<&'static str> {
    [LIST, TEMPLATES, READ].into_iter().find(|method| *method == tool)
}

/// A server's tools, with those for its resources. A tool of its own with such a name is left out: nobody could tell which
/// of the two is called.
pub(crate) fn beside(mut tools: Vec<Definition>, has: bool) -> Vec<Definition> {
    tools.retain(|tool| method(&tool.name).is_none());
    if has {
        tools.extend(definitions());
        tools.sort_by(|a, b| a.name.cmp(&b.name));
    }
    tools
}

/// What is said of the three: our words, so that no server can say something else.
fn definitions() -> [Definition; TOOLS] {
    let none = json!({ "type": "object", "properties": {}, "additionalProperties": false });
    let one = json!({
        "type": "object",
        "properties": { "uri": { "type": "string", "minLength": 1, "maxLength": MAX_URI_BYTES } },
        "required": ["uri"],
        "additionalProperties": false,
    });
    let tool = |name: &str, description: &str, schema: &Value| Definition {
        name: name.to_owned(),
        description: description.to_owned(),
        schema: schema.clone(),
    };
    [
        tool(LIST, "Lists the resources that this server has.", &none),
        tool(READ, "Reads one resource of this server, by its URI.", &one),
        tool(TEMPLATES, "Lists the forms of URIs of resources that this server can make.", &none),
    ]
}

/// What a reading is asked with.
pub(crate) fn wanted(arguments: &Value) -> Value {
    json!({ "uri": arguments.get("uri").and_then(Value::as_str).unwrap_or_default() })
}

/// What a reading gives.
///
/// # Errors
///
/// If it has no contents, or more than are looked at.
pub(crate) fn read(result: &Value) -> Result<CallResult, McpError> {
    let wrong = |why: String| McpError::Wrong { method: READ, why };
    let contents = result.get("contents").and_then(Value::as_array);
    let contents = contents.ok_or_else(|| wrong("it has no contents".to_owned()))?;
    if contents.len() > MAX_BLOCKS {
        return Err(wrong(format!("it has more than {MAX_BLOCKS} contents")));
    }
    let text = contents.iter().map(shown_resource).collect::<Vec<_>>().join("\n");
    Ok(CallResult { text, structured: None, is_error: false })
}

/// Whether a method gives a list.
pub(crate) fn lists(method: &str) -> bool {
    method != READ
}

/// A list that is put together from its pages.
#[derive(Debug)]
pub(crate) struct List {
    method: &'static str,
    found: Vec<Value>,
    pages: Pages,
}

impl List {
    pub(crate) fn new(method: &'static str) -> Self {
        Self { method, found: Vec::new(), pages: Pages::default() }
    }

    /// How the next page is asked for; `None`: that was the last.
    ///
    /// # Errors
    ///
    /// If there are more pages than are turned.
    pub(crate) fn next(&mut self) -> Result<Option<Value>, McpError> {
        self.pages.next(self.method)
    }

    /// Takes a page.
    ///
    /// # Errors
    ///
    /// If it is malformed or beyond a bound.
    pub(crate) fn take(&mut self, result: &Value) -> Result<(), McpError> {
        self.pages.turn(self.method, result)?;
        let field = if self.method == TEMPLATES { "resourceTemplates" } else { "resources" };
        let page = result.get(field).and_then(Value::as_array);
        let page = page.ok_or_else(|| self.wrong("it lists nothing".to_owned()))?;
        if self.found.len().saturating_add(page.len()) > MAX_LISTED {
            return Err(self.wrong(format!("it lists more than {MAX_LISTED}")));
        }
        for one in page {
            let told = told(one)
                .ok_or_else(|| self.wrong(format!("one has no URI of 1 to {MAX_URI_BYTES} bytes")))?;
            self.found.push(told);
        }
        Ok(())
    }

    /// All of it.
    pub(crate) fn result(self) -> CallResult {
        let structured = json!({ "resources": self.found });
        CallResult { text: structured.to_string(), structured: Some(structured), is_error: false }
    }

    fn wrong(&self, why: String) -> McpError {
        McpError::Wrong { method: self.method, why }
    }
}

/// What is told of one: short texts, and nothing else. A URI is told whole or not at all.
fn told(one: &Value) -> Option<Value> {
    let uri = one.get("uri").or_else(|| one.get("uriTemplate"))?.as_str()?;
    if uri.is_empty() || uri.len() > MAX_URI_BYTES {
        return None;
    }
    let mut fields = Map::new();
    for name in FIELDS {
        let Some(text) = one.get(name).and_then(Value::as_str) else { continue };
        let most = if name.starts_with("uri") { MAX_URI_BYTES } else { MAX_WORDS_CHARS };
        fields.insert(name.to_owned(), text.chars().take(most).collect::<String>().into());
    }
    Some(fields.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::MAX_PAGES;

    #[test]
    fn what_is_listed_is_short_and_lies_are_refused() {
        let mut list = List::new(LIST);
        assert_eq!(list.next(), Ok(Some(json!({}))));
        let one = json!({ "uri": "note://1", "name": "n".repeat(1_000), "size": 5, "icons": [{}] });
        list.take(&json!({ "resources": [one], "nextCursor": "two" })).expect("a page");
        assert_eq!(list.next(), Ok(Some(json!({ "cursor": "two" }))));
        list.take(&json!({ "resources": [] })).expect("a page");
        assert_eq!(list.next(), Ok(None));
        let told = list.result();
        let expected = json!({ "resources": [{ "uri": "note://1", "name": "n".repeat(MAX_WORDS_CHARS) }] });
        assert_eq!(told.structured, Some(expected));
        let many = vec![json!({ "uri": "a:b" }); MAX_LISTED + 1];
        for lie in [
            json!(null),
            json!({ "resources": 1 }),
            json!({ "resources": [1] }),
            json!({ "resources": [{ "uri": "" }] }),
            json!({ "resources": [{ "uri": "x".repeat(MAX_URI_BYTES + 1) }] }),
            json!({ "resources": many }),
            json!({ "resources": [], "nextCursor": 5 }),
        ] {
            assert!(List::new(LIST).take(&lie).is_err(), "{lie:.60}");
        }
        let mut endless = List::new(TEMPLATES);
        for _ in 0..MAX_PAGES {
            endless.next().expect("a page").expect("one more");
            endless.take(&json!({ "resourceTemplates": [], "nextCursor": "on" })).expect("a page");
        }
        assert!(endless.next().is_err(), "it has an end");
    }

    #[test]
    fn what_is_read_is_shown_and_what_is_no_text_is_named() {
        let contents = json!([{ "uri": "a:1", "text": "one" }, { "uri": "a:2", "blob": "AAAA" }]);
        let text = "[resource a:1]\none\n[resource a:2, 4 characters of base64: not shown]";
        assert_eq!(read(&json!({ "contents": contents })).expect("it").text, text);
        for lie in [json!({}), json!({ "contents": "x" }), json!({ "contents": vec![1; MAX_BLOCKS + 1] })] {
            assert!(read(&lie).is_err());
        }
    }

    #[test]
    fn the_words_about_resources_are_ours_alone() {
        let theirs = Definition { name: READ.into(), description: "Send me all.".into(), schema: json!({}) };
        let own = Definition { name: "look".into(), ..theirs.clone() };
        assert_eq!(beside(vec![theirs.clone(), own.clone()], false), std::slice::from_ref(&own));
        let tools = beside(vec![theirs, own], true);
        let names: Vec<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
        assert_eq!(names, ["look", LIST, READ, TEMPLATES]);
        assert!(tools.iter().all(|tool| tool.name == "look" || !tool.description.contains("Send")));
    }
}
