//! Messages to and from models, independent of any vendor's format.

mod file;
mod pages;

mod form;

mod reasoning;

use std::fmt;
use std::ops::{AddAssign, Deref};
use std::sync::{Arc, OnceLock};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};

use crate::digest::{Digest, NotCanonical};
use crate::taint::Label;
use crate::unit::Tokens;

pub use file::{
    AttachedFile, FILE_LINE_START, FileError, FileRef, MAX_FILE_BYTES, MAX_FILE_NAME, MAX_FILES,
    MAX_FILES_BYTES, MediaType,
};
pub use form::{AnswerForm, Effort};
pub use reasoning::{MAX_REASONING_BYTES, Reasoning, ReasoningForm, assistant_parts};

/// The author of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The harness.
    System,
    /// The person.
    User,
    /// The model.
    Assistant,
    /// A tool's result.
    Tool,
}

/// A model's request to use a tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCall {
    /// The provider's id of this call; the result carries it back.
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// Its arguments: as sent, still to be validated.
    pub arguments: serde_json::Value,
}

/// The result of a call, as given to the model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolResult {
    /// The id of the call.
    pub call_id: String,
    /// The tool's name.
    pub name: String,
    /// The outcome.
    pub outcome: ToolOutcome,
    /// The text for the model.
    pub text: String,
    /// The text's trust label.
    pub label: Label,
    /// The values of a structured result, each with its path: an argument that is one of them was not composed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<Field>,
    /// The label of a withheld result, where the text only names it: the fields carry it too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<Box<Label>>,
}

/// The line between the text of a foreign tool's answer and its structured result.
pub const STRUCTURED: &str = "\n[structured result]\n";

impl ToolResult {
    /// Returns its texts: the main text, and after [`STRUCTURED`] the structured result.
    pub fn all_texts(&self) -> impl Iterator<Item = &str> {
        // The last marker counts: the text before it may quote one.
        match self.text.rsplit_once(STRUCTURED) {
            Some((said, structured)) => [Some(said), Some(structured)],
            None => [Some(self.text.as_str()), None],
        }
        .into_iter()
        .flatten()
    }

    /// Returns the label of its fields.
    pub fn field_label(&self) -> &Label {
        // A withheld result's text only names it, so the fields' label is the stricter one.
        self.kept.as_deref().unwrap_or(&self.label)
    }
}

/// The most fields stored of one result.
pub const MAX_FIELDS: usize = 1_000;
/// The longest value stored as a field, in bytes: longer ones are text, not names.
pub const MAX_FIELD_BYTES: usize = 2_048;
/// The most that the fields of one result take together, in bytes.
pub const MAX_FIELDS_BYTES: usize = 64 * 1024;

/// A leaf of a structured result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Field {
    /// Its place, as a JSON Pointer (RFC 6901).
    pub path: String,
    /// Its value: a text as it is, a number as JSON writes it.
    pub value: String,
}

impl Field {
    /// The leaves of a structured result, in order, within the bounds above. What does not fit is left out whole.
    pub fn fields_of(value: &serde_json::Value) -> Vec<Self> {
        let mut fields = FieldCollector::default();
        fields.collect_fields(value, &mut String::new(), 0);
        fields.kept
    }
}

/// The deepest nesting that is looked into; deeper leaves are no fields.
const MAX_FIELD_DEPTH: usize = 32;

#[derive(Default)]
struct FieldCollector {
    kept: Vec<Field>,
    bytes: usize,
}

impl FieldCollector {
    fn collect_fields(&mut self, value: &serde_json::Value, path: &mut String, depth: usize) {
        let leaf = match value {
            // These values name nothing: no other argument can rest on them.
            serde_json::Value::Null | serde_json::Value::Bool(_) => return,
            serde_json::Value::Number(number) => number.to_string(),
            serde_json::Value::String(text) => text.clone(),
            serde_json::Value::Array(items) => {
                let named = items.iter().enumerate().map(|(n, item)| (n.to_string(), item));
                return self.descend_into(named, path, depth);
            }
            serde_json::Value::Object(map) => {
                // The escapes of JSON Pointer.
                let named = map.iter().map(|(name, item)| (name.replace('~', "~0").replace('/', "~1"), item));
                return self.descend_into(named, path, depth);
            }
        };
        let bytes = path.len().saturating_add(leaf.len());
        // Paths count, too: a result can be all names and no values.
        let fits = leaf.len() <= MAX_FIELD_BYTES && self.bytes.saturating_add(bytes) <= MAX_FIELDS_BYTES;
        if fits && !leaf.is_empty() && self.kept.len() < MAX_FIELDS {
            self.bytes += bytes;
            self.kept.push(Field { path: path.clone(), value: leaf });
        }
    }

    fn descend_into<'a>(
        &mut self,
        named: impl Iterator<Item = (String, &'a serde_json::Value)>,
        path: &mut String,
        depth: usize,
    ) {
        // Deeper parts are ignored, not refused.
        if depth >= MAX_FIELD_DEPTH {
            return;
        }
        for (name, item) in named {
            let length = path.len();
            path.push('/');
            path.push_str(&name);
            self.collect_fields(item, path, depth + 1);
            // One buffer for all paths, shortened after each item.
            path.truncate(length);
        }
    }
}

/// The outcome of a tool call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolOutcome {
    /// It was performed and did what it says.
    Done,
    /// It was performed and failed, or its arguments were wrong.
    Failed,
    /// The door refused it.
    Denied,
    /// It waits for an approval; nothing was performed.
    Waiting,
    /// It was begun before a crash; whether it happened is not known.
    Unknown,
    /// It was decided and logged, not performed (`dry-run`, `shadow`).
    Simulated,
    /// It was stopped by a person or by the end of the turn.
    Cancelled,
}

/// One piece of a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "part", rename_all = "snake_case")]
pub enum Part {
    /// Text.
    Text {
        /// The text.
        text: String,
    },
    /// A tool call of the assistant.
    Call(ToolCall),
    /// A result for the assistant.
    Result(ToolResult),
    /// Reasoning of the assistant, for its provider alone.
    Reasoning(Reasoning),
    /// An image or a PDF file of the person's.
    File(AttachedFile),
}

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChatMessage {
    /// The author.
    pub role: Role,
    /// The content.
    pub parts: Vec<Part>,
    /// Its trust label.
    pub label: Label,
}

impl ChatMessage {
    /// Returns its texts, without calls, results and reasoning.
    pub fn said_text(&self) -> String {
        let said = self.parts.iter().filter_map(|part| match part {
            Part::Text { text } => Some(text.as_str()),
            Part::Call(_) | Part::Result(_) | Part::Reasoning(_) | Part::File(_) => None,
        });
        said.collect::<Vec<_>>().join("\n")
    }
}

/// A tool as a model sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolSpec {
    /// Its name.
    pub name: String,
    /// A description for the model.
    pub description: String,
    /// JSON Schema of its arguments.
    pub schema: serde_json::Value,
}

/// The size of a tool's schema as JSON text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchemaSize {
    /// Its characters.
    pub chars: usize,
    /// Its bytes.
    pub bytes: usize,
}

/// The tools of a request. Shared, and measured once: they are the same from turn to turn.
#[derive(Clone, Default, Deserialize)]
#[serde(from = "Vec<ToolSpec>")]
pub struct ToolSpecs(Arc<SharedSpecs>);

#[derive(Default)]
struct SharedSpecs {
    specs: Vec<ToolSpec>,
    sizes: OnceLock<Vec<SchemaSize>>,
    digest: OnceLock<Digest>,
}

impl ToolSpecs {
    /// Returns the size of each tool's schema, in the order of the tools.
    pub fn schema_sizes(&self) -> &[SchemaSize] {
        let size = |spec: &ToolSpec| {
            let text = spec.schema.to_string();
            SchemaSize { chars: text.chars().count(), bytes: text.len() }
        };
        // Computed once: the sizes are needed for every request.
        self.0.sizes.get_or_init(|| self.iter().map(size).collect())
    }

    /// Returns these tools and one more, in its place by name.
    #[must_use]
    pub fn with_spec(&self, spec: ToolSpec) -> Self {
        let mut specs = self.0.specs.clone();
        let at = specs.partition_point(|one| one.name < spec.name);
        specs.insert(at, spec);
        Self::from(specs)
    }

    /// The digest of all of them, see [`Digest::of_json`].
    ///
    /// # Errors
    ///
    /// If they cannot be written as JSON.
    pub fn digest(&self) -> Result<Digest, NotCanonical> {
        if let Some(digest) = self.0.digest.get() {
            return Ok(*digest);
        }
        // Two threads may compute it at once; both get the same digest.
        let digest = Digest::of_json(&self.0.specs)?;
        Ok(*self.0.digest.get_or_init(|| digest))
    }
}

impl From<Vec<ToolSpec>> for ToolSpecs {
    fn from(specs: Vec<ToolSpec>) -> Self {
        Self(Arc::new(SharedSpecs { specs, ..SharedSpecs::default() }))
    }
}

impl Serialize for ToolSpecs {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // Sizes and digest follow from the tools, and are computed anew after reading.
        self.0.specs.serialize(serializer)
    }
}

impl Deref for ToolSpecs {
    type Target = [ToolSpec];

    fn deref(&self) -> &[ToolSpec] {
        &self.0.specs
    }
}

impl PartialEq for ToolSpecs {
    fn eq(&self, other: &Self) -> bool {
        // The pointer is compared first: most comparisons are of clones.
        Arc::ptr_eq(&self.0, &other.0) || self.0.specs == other.0.specs
    }
}

impl Eq for ToolSpecs {}

impl fmt::Debug for ToolSpecs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.specs.fmt(f)
    }
}

/// A request to a model, before a provider and a model are chosen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelRequest {
    /// The system text; byte-identical between the calls of a session, so that providers can cache it.
    pub system: String,
    /// The conversation, oldest first. Shared: a long history is the same from call to call.
    pub messages: Vec<Arc<ChatMessage>>,
    /// The tools offered.
    pub tools: ToolSpecs,
    /// The most tokens of the answer.
    pub max_output_tokens: Tokens,
    /// The form that the answer must have; none: any text. A provider is asked for it in its own way, and the answer is
    /// checked even so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub form: Option<AnswerForm>,
    /// The effort of the model's reasoning; none: the provider's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effort: Option<Effort>,
}

/// The reason that a model stopped.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The answer is complete.
    EndTurn,
    /// It wants tools.
    ToolUse,
    /// The answer reached its size limit.
    MaxTokens,
    /// The provider withheld the answer.
    ContentFilter,
    /// Something else, in the provider's word; never taken for a normal end.
    Other(String),
}

/// Tokens of one or more calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Usage {
    /// Tokens sent, cached ones included.
    pub input: Tokens,
    /// Tokens of the answer.
    pub output: Tokens,
    /// Tokens sent that the provider had cached.
    pub cache_read: Tokens,
    /// Tokens sent that the provider wrote to its cache.
    pub cache_write: Tokens,
}

impl Usage {
    /// Input and output together; saturates.
    pub const fn total_tokens(&self) -> Tokens {
        // Tokens of the cache are counted in the input already.
        self.input.saturating_add(self.output)
    }
}

impl AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        // Each kind has its own price, so the sums stay apart.
        self.input += other.input;
        self.output += other.output;
        self.cache_read += other.cache_read;
        self.cache_write += other.cache_write;
    }
}

/// A complete answer of a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelReply {
    /// Its text; may be empty when it only wants tools.
    pub text: String,
    /// The tools that it wants, in order.
    pub calls: Vec<ToolCall>,
    /// The reason that it stopped.
    pub stop: StopReason,
    /// The tokens used.
    pub usage: Usage,
    /// The model that answered, in the provider's word.
    pub model: String,
    /// Reasoning that goes back with the calls, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasoning: Vec<Reasoning>,
}

/// Characters per token in estimates: the common rule of thumb for English text. Estimates count characters, not bytes.
pub const CHARS_PER_TOKEN: u64 = 4;

/// Estimates the tokens of a text from its number of characters, rounding up.
pub fn estimate_tokens(text: &str) -> Tokens {
    estimate_tokens_of_chars(text.chars().count())
}

/// The same, of a text with so many characters.
pub fn estimate_tokens_of_chars(chars: usize) -> Tokens {
    Tokens::new(u64::try_from(chars).unwrap_or(u64::MAX).div_ceil(CHARS_PER_TOKEN))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows: SCL-027
    #[test]
    fn usage_adds_up_and_saturates() {
        let mut usage = Usage { input: Tokens::new(10), output: Tokens::new(5), ..Usage::default() };
        usage += Usage { input: Tokens::new(3), output: Tokens::new(2), ..Usage::default() };
        assert_eq!(usage.total_tokens(), Tokens::new(20));
        usage += Usage { input: Tokens::MAX, ..Usage::default() };
        assert_eq!(usage.total_tokens(), Tokens::MAX);
    }

    #[test]
    fn the_fields_of_a_result_are_its_leaves_by_path_and_bounded() {
        let field = |path: &str, value: &str| Field { path: path.into(), value: value.into() };
        let value = serde_json::json!({ "mails": [{ "id": 7, "from": "a@x.test", "read": true }], "a/b~": "c", "e": "" });
        let expected = [field("/mails/0/id", "7"), field("/mails/0/from", "a@x.test"), field("/a~1b~0", "c")];
        assert_eq!(Field::fields_of(&value), expected);
        let long = "x".repeat(MAX_FIELD_BYTES + 1);
        assert_eq!(Field::fields_of(&serde_json::json!([long, "short"])), [field("/1", "short")]);
        let many: Vec<String> = (0..2 * MAX_FIELDS).map(|n| n.to_string()).collect();
        assert_eq!(Field::fields_of(&many.into()).len(), MAX_FIELDS);
        let large = serde_json::json!(vec!["y".repeat(MAX_FIELD_BYTES); MAX_FIELDS]);
        assert!(
            Field::fields_of(&large).iter().map(|field| field.value.len()).sum::<usize>() <= MAX_FIELDS_BYTES
        );
        let deep =
            (0..MAX_FIELD_DEPTH).fold(serde_json::json!("leaf"), |inner, _| serde_json::json!([inner]));
        assert_eq!(Field::fields_of(&deep).len(), 1);
        assert_eq!(Field::fields_of(&serde_json::json!([deep])), [], "one deeper");
    }

    /// Rows: SCL-024
    #[test]
    fn an_unknown_role_does_not_parse() {
        assert!(serde_json::from_str::<Role>("\"tool\"").is_ok());
        assert!(serde_json::from_str::<Role>("\"root\"").is_err());
    }

    /// Rows: SIL-088 (in part: characters are counted and not bytes; four of them are taken for a token)
    #[test]
    fn estimates_count_characters() {
        assert_eq!(estimate_tokens("äöüß"), Tokens::new(1));
        assert_eq!(estimate_tokens("12345"), Tokens::new(2));
        assert_eq!(estimate_tokens(""), Tokens::ZERO);
    }
}
