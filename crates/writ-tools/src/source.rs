//! Sources of tools: the harness, and other programs. A source lists its tools; the registry names them, bounds
//! them and offers them, by the same path for every source.

use std::borrow::Cow;
use std::fmt::Debug;
use std::sync::Arc;

use serde_json::Value;
use writ_types::action::ActionKind;
use writ_types::chat::ToolSpec;
use writ_types::quarantine::Quarantine;

use crate::def::{ActionDraft, AgentRole, PathState, ToolContext};
use crate::error::ToolError;
use crate::path::WorkPath;

/// The most tools of one source that are used; servers have at most about half as many.
pub const MAX_SOURCE_TOOLS: usize = 1_024;
/// The longest name of a source, in bytes. It leaves room for a tool's name in the name that models call.
pub const MAX_SOURCE_NAME: usize = 32;

/// A source of tools. Its tools may change: the registry lists them anew with
/// [`Registry::with_sources`](crate::registry::Registry::with_sources).
pub trait ToolSource: Debug + Send + Sync {
    /// The name of a source outside the harness, with which the names of its tools begin; `None`: the harness.
    fn origin(&self) -> Option<&str>;

    /// Lists its tools as they are now. The registry reads at most [`MAX_SOURCE_TOOLS`] of them.
    fn tools(&self) -> Box<dyn Iterator<Item = Arc<dyn Tool>> + '_>;
}

/// A tool of a source: its text for models, and the action that a call of it becomes.
///
/// Only this crate implements it: tools that others describe are bounded and checked where they are made
/// ([`ForeignRow::from_tool`](crate::foreign::ForeignRow::from_tool)).
pub trait Tool: Sealed + Debug + Send + Sync {
    /// Its name within its source.
    fn name(&self) -> &str;

    /// The source outside the harness that describes it; `None`: the harness.
    fn origin(&self) -> Option<&str>;

    /// Returns its description for models, which call it by this name.
    fn spec(&self, name: &str) -> ToolSpec;

    /// Returns the number of bytes that its description takes of
    /// [`MAX_TOLD_BYTES`](crate::foreign::MAX_TOLD_BYTES); 0 for tools of the harness.
    fn spec_room(&self) -> usize;

    /// The kinds of action that a call can become.
    fn actions(&self) -> &[ActionKind];

    /// The roles that may use it.
    fn roles(&self) -> &[AgentRole];

    /// Returns true if performing a call twice has the effect of performing it once.
    fn is_idempotent(&self) -> bool;

    /// Returns true if withheld values may stand in its arguments: it neither shows them to the model nor runs
    /// them.
    fn passes_on(&self) -> bool;

    /// The rule of withholding for its results, where the configuration has none.
    fn quarantine(&self) -> Quarantine;

    /// Returns true if models read a description that was written by the tool's author.
    fn is_unvouched(&self) -> bool;

    /// Returns true if its owner has declared its arguments, and that it changes something.
    fn has_declared_effect(&self) -> bool;

    /// The JSON Schema of its arguments.
    fn schema(&self) -> Cow<'_, Value>;

    /// Returns the arguments of a call as an object that has the right form.
    ///
    /// # Errors
    ///
    /// If they do not fit; `name` is that of the tool for models.
    fn read_arguments(&self, name: &str, arguments: &Value) -> Result<Value, ToolError>;

    /// Returns true if arguments fit as they are. `schema` is [`Self::schema`].
    fn fits_arguments(&self, schema: &Value, arguments: &Value) -> bool;

    /// Returns arguments in the form that they clearly mean. `schema` is [`Self::schema`].
    fn coerce_arguments(&self, schema: &Value, arguments: &Value) -> Value;

    /// Returns the file that must be read before a call with these arguments can be prepared.
    ///
    /// # Errors
    ///
    /// If the arguments name no file that can be read.
    fn needed_file(&self, arguments: &Value) -> Result<Option<WorkPath>, ToolError>;

    /// Returns the action of a call with these arguments, which [`Self::read_arguments`] has checked.
    ///
    /// # Errors
    ///
    /// If they make no action; `name` is that of the tool for models.
    fn draft_call(
        &self,
        name: &str,
        arguments: &Value,
        peeked: Option<&PathState>,
        context: &ToolContext<'_>,
    ) -> Result<ActionDraft, ToolError>;
}

impl dyn Tool + '_ {
    /// Returns true if using it can send information to another party, or reach past the sandbox and the
    /// store: the origin of its arguments matters then.
    pub fn can_leave(&self) -> bool {
        self.actions().iter().any(|kind| kind.row().leaves_machine)
    }
}

pub(crate) use sealed::Sealed;

mod sealed {
    /// Keeps other crates from making tools that no bound holds for.
    pub trait Sealed {}
}

/// A tool that a source lists and the registry does not offer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnlistedTool {
    /// The source.
    pub source: String,
    /// The tool's name within its source; `None`: more than one.
    pub tool: Option<String>,
    /// The reason.
    pub why: UnlistedReason,
}

/// The reason that the registry does not offer a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnlistedReason {
    /// The name of the source could be read as something else.
    #[error("a source's name has 1 to {MAX_SOURCE_NAME} letters, digits, '-' and single '_'")]
    SourceName,
    /// Another source has the same name.
    #[error("another source has this name")]
    SameSource,
    /// The source has too many tools.
    #[error("a source has at most {MAX_SOURCE_TOOLS} tools")]
    TooMany,
    /// The tool is that of another source.
    #[error("it is a tool of another source")]
    OtherSource,
    /// Another tool has the same name.
    #[error("another tool has this name")]
    SameName,
}

impl std::fmt::Display for UnlistedTool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let source = crate::error::shorten_name(&self.source);
        let tool = self.tool.as_deref().map(crate::error::shorten_name);
        match tool {
            Some(tool) => write!(f, "'{tool}' of '{source}' is not offered: {}", self.why),
            None => write!(f, "tools of '{source}' are not offered: {}", self.why),
        }
    }
}

/// Returns true if a source may have this name: what models read it in cannot be read as anything else, and the
/// names of its tools cannot be taken for those of another source.
pub(crate) fn is_source_name(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    (1..=MAX_SOURCE_NAME).contains(&name.len()) && name.chars().all(is_plain) && !name.contains("__")
}

#[cfg(test)]
pub(crate) mod tests;
