//! Tools of other programs, as rows that are made at run time: their servers' words, and what the owner says of them.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Map, Value};
use writ_inspect::origin::{THEN, is_within};
use writ_inspect::prepared::Sink;
use writ_types::action::{Action, ActionKind, CallTool};
use writ_types::chat::ToolSpec;
use writ_types::digest::Digest;
use writ_types::entry::Risk;
use writ_types::quarantine::Quarantine;
use writ_types::schema::{expand_references, shorten_schema};
use writ_types::taint::Taint;

use crate::arguments::MAX_ARGUMENT_BYTES;
use crate::def::{ActionDraft, AgentRole, PathState, ToolContext};
use crate::error::ToolError;
use crate::lenient::{coerce_value, with_nulls};
use crate::path::WorkPath;
use crate::schema::then_schema;
use crate::source::{Sealed, Tool, ToolSource};
use crate::text::{cut_end, one_line};

mod names;

mod schema;

pub use names::{MAX_CALLED_NAME, call_name, called_all};
use schema::ArgumentSchema;
pub use schema::ForeignSchemaError;

/// The longest description of a foreign tool that is sent to models, in characters.
pub const MAX_TOLD_CHARS: usize = 1_000;
/// The most bytes of names, descriptions and schemas of foreign tools that are sent to models in one request:
/// a quarter of a small context.
pub const MAX_TOLD_BYTES: usize = 64 * 1024;
/// The most bytes of the schema of one tool that are sent to models, where it can be shortened; arguments are
/// checked against the whole.
const MAX_TOLD_SCHEMA_BYTES: usize = 12 * 1024;
/// The most values of one call that say who, where and what: more cannot be judged in earnest.
const MAX_SINKS: usize = 1_000;
/// The longest statement of what a call is for, in characters.
const MAX_INTENT_CHARS: usize = 120;

// tidy: plain state
/// A foreign tool: its server's description and its owner's declarations.
#[derive(Clone, Debug, PartialEq)]
pub struct ForeignTool {
    /// The server.
    pub server: String,
    /// Its name with the server.
    pub tool: String,
    /// Host and port of the server, where it is reached at a URL.
    pub host: Option<String>,
    /// The server's description.
    pub description: String,
    /// JSON Schema of its arguments, in the server's words.
    pub schema: Value,
    /// The digest of the three above that the owner has pinned.
    pub pin: Digest,
    /// True if a call changes anything anywhere.
    pub effect: bool,
    /// The arguments that name recipients, places and amounts, as dotted paths; `None`: undeclared, so all of
    /// them.
    pub sinks: Option<Vec<String>>,
    /// The arguments that are content sent on to others, as dotted paths.
    pub content: Vec<String>,
    /// The arguments that may be anything, as dotted paths.
    pub free: Vec<String>,
    /// The sinks that name recipients of the content, as dotted paths.
    pub whom: Vec<String>,
    /// The fields of results that an argument may be taken from, by its dotted path.
    pub takes: BTreeMap<String, Vec<String>>,
    /// The sinks that must belong to records named in the owner's request, as dotted paths.
    pub named: Vec<String>,
    /// True if everybody may read its results.
    pub public: bool,
    /// True if calling it twice has the effect of calling it once.
    pub idempotent: bool,
    /// The harm that a wrong approval of a call can do.
    pub risk: Risk,
    /// The trust level of its results.
    pub taint: Taint,
    /// The rule for withholding its results from the model.
    pub quarantine: Quarantine,
}

/// The reason that a foreign tool cannot be offered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ForeignError {
    /// Its description has no canonical form, and so cannot be pinned.
    #[error("'{0}' cannot be pinned: its schema has no canonical form")]
    Unpinned(String),
    /// Its schema cannot be used.
    #[error("the schema of '{name}' cannot be used: {why}")]
    Schema {
        /// The tool.
        name: String,
        /// The problem.
        why: ForeignSchemaError,
    },
    /// It has an argument of a name that is the harness's own.
    #[error("'{0}' has an argument 'then', which is the harness's own")]
    Then(String),
    /// The owner has declared an argument that it does not have.
    #[error("'{name}' has no argument '{path}', which its owner has declared")]
    Declared {
        /// The tool.
        name: String,
        /// The declared path.
        path: String,
    },
}

/// A row that is made at run time.
#[derive(Clone, Debug)]
pub struct ForeignRow {
    /// The name under which models call it, where no other tool needs the same one.
    pub name: String,
    /// Its description and declarations.
    pub known: ForeignTool,
    checked: ArgumentSchema,
    /// The schema of its arguments with its references in their places.
    expanded: Value,
    /// The arguments' schema for models.
    told: Value,
    /// The names that its schema has for arguments, at any depth.
    names: BTreeSet<String>,
    /// The number of bytes sent to models about it.
    told_bytes: usize,
}

impl ForeignRow {
    /// Makes a row.
    ///
    /// # Errors
    ///
    /// If it cannot be offered to models, or its arguments could not be checked.
    pub fn from_tool(known: ForeignTool) -> Result<Self, ForeignError> {
        let name = call_name(&known.server, &known.tool);
        let properties = known.schema.get("properties");
        let has = |path: &str| {
            // Only the first name of a dotted path must exist: what is below is checked when a call comes.
            let first = path.split('.').next().unwrap_or_default();
            properties.is_some_and(|all| all.get(first).is_some())
        };
        // The name is ours: a tool with an argument of this name could not be given a list of next tools.
        if has(THEN) {
            return Err(ForeignError::Then(name));
        }
        let declared = known.sinks.iter().flatten().chain(&known.content).chain(&known.free);
        let declared = declared.chain(&known.whom).chain(&known.named).chain(known.takes.keys());
        // A misspelled declaration would silently protect nothing, so it is an error.
        if let Some(path) = declared.into_iter().find(|path| !has(path)) {
            return Err(ForeignError::Declared { name, path: path.clone() });
        }
        let names = names_of(&known.schema);
        let unusable = |why| ForeignError::Schema { name: name.clone(), why };
        // References are expanded once here: later checks and the model's view need no resolver.
        let expanded = expand_references(&known.schema).map_err(|why| unusable(why.into()))?;
        let checked = ArgumentSchema::from_schema(&expanded).map_err(unusable)?;
        let told = told_schema(expanded.clone());
        let mut row = Self { name, known, checked, expanded, told, names, told_bytes: 0 };
        let spec = row.spec(&row.name);
        // Measured once: the room for foreign tools is shared out in every request.
        row.told_bytes = spec.name.len() + spec.description.len() + spec.schema.to_string().len();
        Ok(row)
    }

    /// The arguments, if they fit the schema; otherwise the problems.
    fn checked_arguments(&self, arguments: &Value) -> Result<Value, Vec<String>> {
        let mut arguments = match arguments {
            Value::Object(_) => arguments.clone(),
            // Some models send null for no arguments, and some the object as JSON text.
            Value::Null => Value::Object(Map::new()),
            Value::String(text) if text.len() <= MAX_ARGUMENT_BYTES => {
                serde_json::from_str(text).unwrap_or(Value::Null)
            }
            Value::String(_) | Value::Bool(_) | Value::Number(_) | Value::Array(_) => Value::Null,
        };
        let Some(fields) = arguments.as_object_mut() else {
            return Err(vec!["the arguments are not an object".to_owned()]);
        };
        // For the harness alone.
        fields.shift_remove(THEN);
        // Measured again: the text form may have been shorter than its content.
        if arguments.to_string().len() > MAX_ARGUMENT_BYTES {
            return Err(vec![format!("the arguments have more than {MAX_ARGUMENT_BYTES} bytes")]);
        }
        self.checked.check_arguments(&arguments)?;
        Ok(arguments)
    }
}

impl Sealed for ForeignRow {}

impl Tool for ForeignRow {
    fn name(&self) -> &str {
        &self.known.tool
    }

    fn origin(&self) -> Option<&str> {
        Some(&self.known.server)
    }

    fn spec(&self, name: &str) -> ToolSpec {
        let words = cut_end(&self.known.description, MAX_TOLD_CHARS);
        ToolSpec {
            name: name.to_owned(),
            // The author of the words comes first.
            description: format!(
                "[A tool of the server '{}'; these are its words] {words}",
                self.known.server
            ),
            schema: self.told.clone(),
        }
    }

    fn spec_room(&self) -> usize {
        self.told_bytes
    }

    fn actions(&self) -> &[ActionKind] {
        &[ActionKind::CallTool]
    }

    // Foreign tools are for the agent that works: planners and verifiers get none.
    fn roles(&self) -> &[AgentRole] {
        &[AgentRole::Executor]
    }

    fn is_idempotent(&self) -> bool {
        self.known.idempotent
    }

    fn passes_on(&self) -> bool {
        true
    }

    fn quarantine(&self) -> Quarantine {
        self.known.quarantine
    }

    fn is_unvouched(&self) -> bool {
        self.known.taint == Taint::External
    }

    fn has_declared_effect(&self) -> bool {
        self.known.effect && self.known.sinks.is_some()
    }

    fn schema(&self) -> Cow<'_, Value> {
        Cow::Borrowed(&self.expanded)
    }

    fn read_arguments(&self, name: &str, arguments: &Value) -> Result<Value, ToolError> {
        self.checked_arguments(arguments)
            .map_err(|problems| ToolError::Foreign { tool: name.to_owned(), problems })
    }

    fn fits_arguments(&self, _: &Value, arguments: &Value) -> bool {
        self.checked_arguments(arguments).is_ok()
    }

    fn coerce_arguments(&self, schema: &Value, arguments: &Value) -> Value {
        with_nulls(schema, coerce_value(schema, arguments))
    }

    fn needed_file(&self, _: &Value) -> Result<Option<WorkPath>, ToolError> {
        Ok(None)
    }

    fn draft_call(
        &self,
        name: &str,
        arguments: &Value,
        _: Option<&PathState>,
        _: &ToolContext<'_>,
    ) -> Result<ActionDraft, ToolError> {
        let known = &self.known;
        let sinks = self.find_sinks(arguments);
        if sinks.len() > MAX_SINKS {
            let problem = format!("the arguments hold more than {MAX_SINKS} values");
            return Err(ToolError::Foreign { tool: name.to_owned(), problems: vec![problem] });
        }
        let action = Action::CallTool(CallTool {
            server: known.server.clone(),
            tool: known.tool.clone(),
            arguments: arguments.clone(),
            host: known.host.clone(),
            effect: known.effect,
            declared: known.sinks.is_some(),
            // A tool without an effect sends nothing. One with an effect may, unless its sinks are declared
            // and hold no content.
            sends: known.effect
                && (known.sinks.is_none() || !known.content.is_empty() || !known.whom.is_empty()),
            whom: known.whom.clone(),
            takes: known.takes.clone(),
            named: known.named.clone(),
            risk: known.risk,
        });
        let intent =
            one_line(&format!("call {} of the server {}", known.tool, known.server), MAX_INTENT_CHARS);
        // The approval is bound to the tool's description as it was pinned.
        let bindings = BTreeMap::from([(PIN.to_owned(), known.pin)]);
        Ok(ActionDraft { action, sinks, bindings, intent })
    }
}

/// The tools of a server: a source of tools.
#[derive(Debug)]
pub struct ServerTools {
    server: String,
    rows: Vec<Arc<dyn Tool>>,
}

impl ServerTools {
    /// Makes a source without tools for a server.
    pub fn new(server: &str) -> Self {
        Self { server: server.to_owned(), rows: Vec::new() }
    }

    /// Adds a tool of the server.
    pub fn add_row(&mut self, row: ForeignRow) {
        self.rows.push(Arc::new(row));
    }
}

impl ToolSource for ServerTools {
    fn origin(&self) -> Option<&str> {
        Some(&self.server)
    }

    fn tools(&self) -> Box<dyn Iterator<Item = Arc<dyn Tool>> + '_> {
        Box::new(self.rows.iter().cloned())
    }
}

/// The name of the binding that a call has to its tool's pin.
pub const PIN: &str = "pin";

impl ForeignRow {
    /// Returns the values of its sinks: of all arguments that the owner has not declared as content, or free.
    /// None, if the owner has declared that there are none. At most [`MAX_SINKS`] are collected.
    fn find_sinks(&self, arguments: &Value) -> Vec<Sink> {
        let mut found = Vec::new();
        // The owner declared that no argument is a sink.
        if self.known.sinks.as_ref().is_some_and(Vec::is_empty) {
            return found;
        }
        self.collect_leaves(arguments, &mut String::new(), false, &mut found);
        let Some(declared) = &self.known.sinks else { return found };
        let others: Vec<&String> = self.known.content.iter().chain(&self.known.free).collect();
        found.retain(|sink| {
            // A declared sink inside a content argument still counts as a sink.
            declared.iter().any(|one| is_within(&sink.argument, one))
                || !others.iter().any(|one| is_within(&sink.argument, one))
        });
        found
    }

    /// Every text and number in a value with its path; and what else can carry something: names that the schema does not
    /// have, and truth values in lists.
    fn collect_leaves(&self, value: &Value, at: &mut String, in_list: bool, found: &mut Vec<Sink>) {
        // One more than the limit is enough to refuse the call.
        if found.len() > MAX_SINKS {
            return;
        }
        let mut push = |value: String| found.push(Sink { argument: at.clone(), value });
        match value {
            Value::String(text) => push(text.clone()),
            Value::Number(number) => push(number.to_string()),
            // A boolean in a list can be chosen freely by position, so it counts as a value there.
            Value::Bool(_) | Value::Null if in_list => push(value.to_string()),
            Value::Array(values) => {
                for (number, value) in values.iter().enumerate() {
                    at_name(at, &number.to_string(), |at| self.collect_leaves(value, at, true, found));
                }
            }
            Value::Object(fields) => {
                for (name, value) in fields {
                    at_name(at, name, |at| {
                        // A field name that the schema does not know is chosen by the model, so it is a value,
                        // too.
                        if !self.names.contains(name) {
                            found.push(Sink { argument: at.clone(), value: name.clone() });
                        }
                        self.collect_leaves(value, at, false, found);
                    });
                }
            }
            Value::Null | Value::Bool(_) => {}
        }
    }
}

/// Returns the schema of the arguments for models, from an expanded one, with [`THEN`]: of an object, also
/// where its server leaves that out.
fn told_schema(expanded: Value) -> Value {
    let mut schema = shorten_schema(expanded, MAX_TOLD_SCHEMA_BYTES);
    if let Some(fields) = schema.as_object_mut() {
        // The dialect is of no use to models, and some providers refuse it.
        fields.shift_remove("$schema");
        fields.insert("type".to_owned(), "object".into());
        let properties = fields.entry("properties").or_insert_with(|| Value::Object(Map::new()));
        if let Some(properties) = properties.as_object_mut() {
            // Providers require the parameter in the schema that they are given.
            properties.insert(THEN.to_owned(), then_schema());
        }
    }
    schema
}

/// The names that a schema has for arguments, at any depth.
fn names_of(schema: &Value) -> BTreeSet<String> {
    // A worklist instead of recursion: the depth is bounded by the server's schema alone.
    let (mut names, mut due) = (BTreeSet::new(), vec![schema]);
    while let Some(part) = due.pop() {
        match part {
            Value::Object(fields) => {
                let properties = fields.get("properties").and_then(Value::as_object);
                names.extend(properties.into_iter().flat_map(Map::keys).cloned());
                due.extend(fields.values());
            }
            Value::Array(items) => due.extend(items),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    names
}

fn at_name(at: &mut String, name: &str, inside: impl FnOnce(&mut String)) {
    let length = at.len();
    if length > 0 {
        at.push('.');
    }
    at.push_str(name);
    inside(at);
    at.truncate(length);
}

#[cfg(test)]
pub(crate) mod tests;
