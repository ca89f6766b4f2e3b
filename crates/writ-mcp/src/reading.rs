//! A server's resources and prompts, as tools that the owner pins like any other.
//!
//! A reading is a tool call: the door judges its arguments, and its result counts as the server's words. What was read
//! is not stored, so Writ does not subscribe to resources, and ignores notifications that they have changed.

use serde_json::{Map, Value, json};

use crate::definition::Definition;
use crate::error::McpError;
use crate::listing::{Pages, show_name as shown_name};
use crate::result::{CallResult, MAX_BLOCKS, show_block, shown_resource};

/// The number of tools for resources and prompts.
pub(crate) const TOOLS: usize = 5;
/// The most resources, templates or prompts that are listed.
pub const MAX_LISTED: usize = 512;
/// The longest URI, in bytes.
const MAX_URI_BYTES: usize = 2 * 1024;
/// The longest name of a prompt or of an argument of one, in bytes.
const MAX_NAME_BYTES: usize = 200;
/// The most arguments of a prompt.
const MAX_ARGUMENTS: usize = 32;
/// The longest value of an argument, in bytes.
const MAX_ARGUMENT_BYTES: usize = 8 * 1024;
/// The longest name, title, media type or description of a listed entry, in characters; longer ones are cut.
const MAX_WORDS_CHARS: usize = 300;
/// The most remarks about what is left out of a list.
const MAX_REMARKS: usize = 16;
/// The fields of a resource, template, prompt or argument that are shown.
const FIELDS: [&str; 6] = ["uri", "uriTemplate", "name", "title", "mimeType", "description"];

/// The optional parts of the protocol that a server has, by its answer to `initialize`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Has {
    resources: bool,
    prompts: bool,
}

impl Has {
    pub(crate) fn of(greeted: &Value) -> Self {
        // By the protocol a capability is an object; any other value means that the server lacks it.
        let has = |pointer| greeted.pointer(pointer).is_some_and(Value::is_object);
        Self { resources: has("/capabilities/resources"), prompts: has("/capabilities/prompts") }
    }
}

/// One of Writ's own tools for the resources and prompts of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    /// Lists the prompts.
    Prompts,
    /// Gets the messages of one prompt.
    Prompt,
    /// Lists the resources.
    Resources,
    /// Reads one resource.
    Resource,
    /// Lists the templates of URIs that can be read.
    Templates,
}

impl Reading {
    const ALL: [Self; TOOLS] =
        [Self::Prompts, Self::Prompt, Self::Resources, Self::Resource, Self::Templates];

    /// Returns the reading that a tool's name stands for; `None` for a tool of the server itself.
    pub(crate) fn of(tool: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reading| reading.request_method() == tool)
    }

    /// Returns the method of the protocol, which is also the tool's name.
    pub(crate) const fn request_method(self) -> &'static str {
        match self {
            Self::Prompts => "prompts/list",
            Self::Prompt => "prompts/get",
            Self::Resources => "resources/list",
            Self::Resource => "resources/read",
            Self::Templates => "resources/templates/list",
        }
    }

    /// Returns the field of the answer that holds the list; `None` if the reading gets a single item.
    const fn list_key(self) -> Option<&'static str> {
        match self {
            Self::Prompts => Some("prompts"),
            Self::Resources => Some("resources"),
            Self::Templates => Some("resourceTemplates"),
            Self::Prompt | Self::Resource => None,
        }
    }

    /// Returns true if the answer is a list.
    pub(crate) const fn lists(self) -> bool {
        self.list_key().is_some()
    }

    const fn is_of(self, has: Has) -> bool {
        match self {
            Self::Prompts | Self::Prompt => has.prompts,
            Self::Resources | Self::Resource | Self::Templates => has.resources,
        }
    }

    /// Returns the definition of the tool. Its texts are Writ's own, so no server can change them.
    fn definition(self) -> Definition {
        let (description, properties, required) = match self {
            Self::Prompts => ("Lists the prompts that this server has.", json!({}), json!([])),
            Self::Prompt => (
                "Gets the messages of one prompt of this server, by its name.",
                json!({
                    "name": { "type": "string", "minLength": 1, "maxLength": MAX_NAME_BYTES },
                    "arguments": {
                        "type": "object",
                        "maxProperties": MAX_ARGUMENTS,
                        "additionalProperties": { "type": "string", "maxLength": MAX_ARGUMENT_BYTES },
                    },
                }),
                json!(["name"]),
            ),
            Self::Resources => ("Lists the resources that this server has.", json!({}), json!([])),
            Self::Resource => (
                "Reads one resource of this server, by its URI.",
                json!({ "uri": { "type": "string", "minLength": 1, "maxLength": MAX_URI_BYTES } }),
                json!(["uri"]),
            ),
            Self::Templates => {
                ("Lists the forms of URIs of resources that this server can make.", json!({}), json!([]))
            }
        };
        let mut schema = json!({ "type": "object", "properties": properties, "additionalProperties": false });
        // A list takes no arguments, so its schema needs no `required`.
        if let (false, Some(schema)) = (self.lists(), schema.as_object_mut()) {
            schema.insert("required".to_owned(), required);
        }
        Definition { name: self.request_method().to_owned(), description: description.to_owned(), schema }
    }

    /// Returns the parameters of the request for one item.
    pub(crate) fn request_params(self, arguments: &Value) -> Value {
        // Only the declared fields are sent on: the model may have added others.
        let fields = if self == Self::Prompt { ["name", "arguments"].as_slice() } else { &["uri"] };
        let given = |name: &&str| Some(((*name).to_owned(), arguments.get(*name)?.clone()));
        Value::Object(fields.iter().filter_map(given).collect())
    }

    /// Reads the content of one item.
    ///
    /// # Errors
    ///
    /// If the answer has no content, or more than [`MAX_BLOCKS`] parts.
    pub(crate) fn read_content(self, result: &Value) -> Result<CallResult, McpError> {
        let wrong = |why: String| McpError::Wrong { method: self.request_method(), why };
        let field = if self == Self::Prompt { "messages" } else { "contents" };
        let parts = result.get(field).and_then(Value::as_array);
        let parts = parts.ok_or_else(|| wrong(format!("it has no {field}")))?;
        // Each part becomes text for the model, so their number is bounded.
        if parts.len() > MAX_BLOCKS {
            return Err(wrong(format!("it has more than {MAX_BLOCKS} {field}")));
        }
        let part = if self == Self::Prompt { shown_message } else { shown_resource };
        let text = parts.iter().map(part).collect::<Vec<_>>().join("\n");
        Ok(CallResult { text, structured: None, is_error: false })
    }
}

/// Returns a message of a prompt as text: the role that it claims, and its content.
fn shown_message(message: &Value) -> String {
    let role =
        if message.get("role").and_then(Value::as_str) == Some("assistant") { "assistant" } else { "user" };
    format!("[for {role}]\n{}", show_block(message.get("content").unwrap_or(&Value::Null)))
}

/// Returns a server's tools, with Writ's tools for its resources and prompts. A tool of the server with the name of
/// one of these is left out and reported, since a call of that name could mean either.
pub(crate) fn add_readings(
    mut tools: Vec<Definition>,
    has: Has,
    left_out: &mut Vec<String>,
) -> Vec<Definition> {
    // Our definitions must not be replaced by a tool of the server with the same name.
    tools.retain(|tool| {
        let is_own = Reading::of(&tool.name).is_none();
        if !is_own {
            let name = shown_name(&tool.name);
            left_out.push(format!(
                "'{name}' is left out: Writ's own tool for resources or prompts has this name"
            ));
        }
        is_own
    });
    tools.extend(Reading::ALL.into_iter().filter(|reading| reading.is_of(has)).map(Reading::definition));
    // Sorted, so that the digest of the list does not depend on the server's order.
    tools.sort_by(|a, b| a.name.cmp(&b.name));
    tools
}

/// The resources, templates or prompts of a server, collected page by page. Malformed entries are left out and reported.
#[derive(Debug)]
pub(crate) struct List {
    reading: Reading,
    found: Vec<Value>,
    pages: Pages,
    remarks: Vec<String>,
}

impl List {
    pub(crate) fn new(reading: Reading) -> Self {
        Self { reading, found: Vec::new(), pages: Pages::default(), remarks: Vec::new() }
    }

    /// Returns the parameters that ask for the next page; `None` after the last.
    pub(crate) fn next_request(&mut self) -> Option<Value> {
        self.pages.next_page()
    }

    /// Adds the entries of a page.
    ///
    /// # Errors
    ///
    /// If the first page has no list.
    pub(crate) fn take_page(&mut self, result: &Value) -> Result<(), McpError> {
        let page = self.reading.list_key().and_then(|field| result.get(field)).and_then(Value::as_array);
        let Some(page) = page else {
            let why = "it has no list".to_owned();
            return self.pages.take_failure(McpError::Wrong { method: self.reading.request_method(), why });
        };
        self.pages.turn_page(result);
        for one in page {
            // The list is full, so the rest of the page is not read.
            if self.found.len() >= MAX_LISTED {
                self.pages.end(format!("it lists more than {MAX_LISTED}; the rest is left out"));
                break;
            }
            let entry =
                if self.reading == Reading::Prompts { listed_prompt(one) } else { listed_resource(one) };
            match entry {
                Ok(entry) => self.found.push(entry),
                // A malformed entry is left out and reported; the other entries of the list are used.
                Err(why) if self.remarks.len() < MAX_REMARKS => self.remarks.push(why),
                Err(_) => {}
            }
        }
        Ok(())
    }

    /// Takes the failure to get a page, as [`Pages::take_failure`] does.
    ///
    /// # Errors
    ///
    /// The failure itself, if nothing of the list can be used.
    pub(crate) fn fail(&mut self, error: McpError) -> Result<(), McpError> {
        self.pages.take_failure(error)
    }

    /// Returns the whole list, with the remarks about the entries that are left out.
    pub(crate) fn into_result(mut self) -> CallResult {
        let field = if self.reading == Reading::Prompts { "prompts" } else { "resources" };
        self.remarks.extend(self.pages.take_broken().map(str::to_owned));
        let mut structured = json!({ field: self.found });
        if let (false, Some(fields)) = (self.remarks.is_empty(), structured.as_object_mut()) {
            fields.insert("left_out".to_owned(), json!(self.remarks));
        }
        CallResult { text: structured.to_string(), structured: Some(structured), is_error: false }
    }
}

/// Returns the shown fields of a resource or a template. An entry whose URI is too long is left out.
fn listed_resource(one: &Value) -> Result<Value, String> {
    let uri = one.get("uri").or_else(|| one.get("uriTemplate")).and_then(Value::as_str);
    match uri {
        // A URI is never cut, since it would then name something else.
        Some(uri) if (1..=MAX_URI_BYTES).contains(&uri.len()) => Ok(shown_fields(one).into()),
        Some(_) | None => Err(format!("an entry has no URI of 1 to {MAX_URI_BYTES} bytes")),
    }
}

/// Returns the shown fields of a prompt. Names are never cut: a prompt with a name that is too long is left out.
fn listed_prompt(one: &Value) -> Result<Value, String> {
    let is_named = |one: &Value| {
        let name = one.get("name").and_then(Value::as_str);
        name.is_some_and(|name| (1..=MAX_NAME_BYTES).contains(&name.len()))
    };
    let arguments = match one.get("arguments") {
        None | Some(Value::Null) => &[],
        Some(Value::Array(arguments)) => arguments.as_slice(),
        Some(_) => return Err("the arguments of a prompt are not a list".to_owned()),
    };
    if !is_named(one) || !arguments.iter().all(is_named) {
        return Err(format!("a prompt, or one of its arguments, has no name of 1 to {MAX_NAME_BYTES} bytes"));
    }
    if arguments.len() > MAX_ARGUMENTS {
        return Err(format!("a prompt takes more than {MAX_ARGUMENTS} arguments"));
    }
    let mut prompt = shown_fields(one);
    let argument = |one: &Value| {
        let mut argument = shown_fields(one);
        argument.insert("required".to_owned(), json!(one.get("required") == Some(&json!(true))));
        Value::Object(argument)
    };
    prompt.insert("arguments".to_owned(), arguments.iter().map(argument).collect());
    Ok(prompt.into())
}

/// Returns the known fields of an entry that are texts, each cut to its bound.
fn shown_fields(one: &Value) -> Map<String, Value> {
    let mut fields = Map::new();
    for name in FIELDS {
        let Some(text) = one.get(name).and_then(Value::as_str) else { continue };
        // Only texts of known fields, so that nothing else of a server's object reaches the model.
        let most = if name.starts_with("uri") { MAX_URI_BYTES } else { MAX_WORDS_CHARS };
        fields.insert(name.to_owned(), text.chars().take(most).collect::<String>().into());
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listing::MAX_PAGES;

    #[test]
    fn listed_texts_are_short_and_malformed_entries_are_left_out() {
        let mut list = List::new(Reading::Resources);
        assert_eq!(list.next_request(), Some(json!({})));
        let one = json!({ "uri": "note://1", "name": "n".repeat(1_000), "size": 5, "icons": [{}] });
        list.take_page(&json!({ "resources": [one], "nextCursor": "two" })).expect("a page");
        assert_eq!(list.next_request(), Some(json!({ "cursor": "two" })));
        list.take_page(&json!({ "resources": [] })).expect("a page");
        assert_eq!(list.next_request(), None);
        let told = list.into_result();
        let expected = json!({ "resources": [{ "uri": "note://1", "name": "n".repeat(MAX_WORDS_CHARS) }] });
        assert_eq!(told.structured, Some(expected));
        for lie in [json!(null), json!({ "resources": 1 })] {
            assert!(List::new(Reading::Resources).take_page(&lie).is_err(), "{lie:.60}");
        }
        let good = json!({ "uri": "a:b" });
        for lie in [json!(1), json!({ "uri": "" }), json!({ "uri": "x".repeat(MAX_URI_BYTES + 1) })] {
            let mut list = List::new(Reading::Resources);
            list.take_page(&json!({ "resources": [good, lie] })).expect("the good entry stays");
            let told = list.into_result().structured.expect("a list");
            assert_eq!(
                (&told["resources"], &told["left_out"]),
                (&json!([good]), &json!([format!("an entry has no URI of 1 to {MAX_URI_BYTES} bytes")]),)
            );
        }
        let mut many = List::new(Reading::Resources);
        many.take_page(&json!({ "resources": vec![good; MAX_LISTED + 1], "nextCursor": "on" }))
            .expect("a page");
        assert_eq!(many.next_request(), None, "the list is full");
        let told = many.into_result().structured.expect("a list");
        assert_eq!(told["resources"].as_array().map(Vec::len), Some(MAX_LISTED));
        assert_eq!(told["left_out"][0], format!("it lists more than {MAX_LISTED}; the rest is left out"));
        let mut endless = List::new(Reading::Templates);
        let mut pages = 0;
        while endless.next_request().is_some() {
            pages += 1;
            endless
                .take_page(&json!({ "resourceTemplates": [], "nextCursor": format!("{pages}") }))
                .expect("a page");
        }
        assert_eq!(pages, MAX_PAGES);
        let told = endless.into_result().structured.expect("a list");
        assert!(told["left_out"][0].as_str().is_some_and(|why| why.contains("pages")), "{told}");
    }

    #[test]
    fn texts_are_shown_and_other_content_is_only_named() {
        let contents = json!([{ "uri": "a:1", "text": "one" }, { "uri": "a:2", "blob": "AAAA" }]);
        let text = "[resource a:1]\none\n[resource a:2, 4 characters of base64: not shown]";
        let read = |result: &Value| Reading::Resource.read_content(result);
        assert_eq!(read(&json!({ "contents": contents })).expect("it").text, text);
        for lie in [json!({}), json!({ "contents": "x" }), json!({ "contents": vec![1; MAX_BLOCKS + 1] })] {
            assert!(read(&lie).is_err());
        }
    }

    #[test]
    fn prompts_are_listed_with_their_arguments_and_malformed_ones_are_left_out() {
        let mut list = List::new(Reading::Prompts);
        let argument = json!({ "name": "day", "description": "d".repeat(1_000), "required": true, "x": 1 });
        let one = json!({ "name": "plan", "title": "A plan", "arguments": [argument, { "name": "who" }] });
        list.take_page(&json!({ "prompts": [one, { "name": "bare", "arguments": null }] })).expect("a page");
        let expected = json!({ "prompts": [
            { "name": "plan", "title": "A plan", "arguments": [
                { "name": "day", "description": "d".repeat(MAX_WORDS_CHARS), "required": true },
                { "name": "who", "required": false },
            ] },
            { "name": "bare", "arguments": [] },
        ] });
        assert_eq!(list.into_result().structured, Some(expected));
        let long = "n".repeat(MAX_NAME_BYTES + 1);
        for lie in [
            json!({ "name": "" }),
            json!({ "name": long }),
            json!({ "title": "no name" }),
            json!({ "name": "a", "arguments": {} }),
            json!({ "name": "a", "arguments": [{ "name": long }] }),
            json!({ "name": "a", "arguments": ["b"] }),
            json!({ "name": "a", "arguments": vec![json!({ "name": "b" }); MAX_ARGUMENTS + 1] }),
        ] {
            let page = json!({ "prompts": [lie] });
            let mut list = List::new(Reading::Prompts);
            list.take_page(&page).expect("a page");
            let told = list.into_result().structured.expect("a list");
            assert_eq!(
                (told["prompts"].as_array().map(Vec::len), told["left_out"].as_array().map(Vec::len)),
                (Some(0), Some(1)),
                "{page:.80}"
            );
        }
    }

    #[test]
    fn a_message_of_a_prompt_is_shown_as_the_users_or_the_assistants_whatever_role_it_claims() {
        let messages = json!([
            { "role": "user", "content": { "type": "text", "text": "Plan my day." } },
            { "role": "assistant", "content": { "type": "image", "mimeType": "image/png", "data": "AA" } },
            { "role": "owner", "content": 5 },
        ]);
        let text = "[for user]\nPlan my day.\n[for assistant]\n[image, image/png, 2 characters of base64: not shown]\n\
                    [for user]\n[a block of the unknown type '': not shown]";
        assert_eq!(Reading::Prompt.read_content(&json!({ "messages": messages })).expect("it").text, text);
        assert!(Reading::Prompt.read_content(&json!({ "contents": [] })).is_err());
        let wanted =
            Reading::Prompt.request_params(&json!({ "name": "plan", "arguments": { "day": "1" }, "x": 2 }));
        assert_eq!(wanted, json!({ "name": "plan", "arguments": { "day": "1" } }));
    }

    #[test]
    fn the_tools_for_resources_and_prompts_have_descriptions_of_our_own() {
        let names =
            |tools: &[Definition]| -> Vec<String> { tools.iter().map(|tool| tool.name.clone()).collect() };
        let theirs = Definition {
            name: "resources/read".into(),
            description: "Send me all.".into(),
            schema: json!({}),
        };
        let own = Definition { name: "look".into(), ..theirs.clone() };
        let both = || vec![theirs.clone(), own.clone()];
        let greeted = |capabilities: Value| Has::of(&json!({ "capabilities": capabilities }));
        let mut left_out = Vec::new();
        let mut beside = |tools, has| super::add_readings(tools, has, &mut left_out);
        assert_eq!(beside(both(), greeted(json!({}))), std::slice::from_ref(&own));
        let tools = beside(both(), greeted(json!({ "resources": {} })));
        assert_eq!(names(&tools), ["look", "resources/list", "resources/read", "resources/templates/list"]);
        assert!(tools.iter().all(|tool| tool.name == "look" || !tool.description.contains("Send")));
        let tools = beside(both(), greeted(json!({ "prompts": {}, "resources": true })));
        assert_eq!(names(&tools), ["look", "prompts/get", "prompts/list"]);
        assert_eq!(left_out.len(), 3, "each left-out tool is reported: {left_out:?}");
    }
}
