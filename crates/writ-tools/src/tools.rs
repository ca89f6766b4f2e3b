//! The tools that every agent has.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::Value;
use writ_types::action::ActionKind;
use writ_types::chat::ToolSpec;
use writ_types::quarantine::Quarantine;

use crate::arguments::{check_arguments, fits_schema};
use crate::def::{ActionDraft, AgentRole, PathState, ToolContext, ToolDef};
use crate::error::ToolError;
use crate::handoff;
use crate::lenient::coerce_value;
use crate::path::WorkPath;
use crate::source::{Sealed, Tool, ToolSource};

mod document;

mod edit;

mod exec;

mod files;

mod memory;

mod patch;

pub(crate) mod plan;

pub(crate) mod result;

mod search;

mod send;

mod subscribe;

mod tell;

mod web;

mod web_search;

/// Every tool that needs no configuration, sorted by name.
pub(crate) static CORE: [&ToolDef; 18] = [
    &subscribe::CONTEXT_SUBSCRIBE,
    &subscribe::CONTEXT_UNSUBSCRIBE,
    &document::DOCS_WRITE,
    &patch::FILE_PATCH,
    &files::FILE_READ,
    &files::FILE_WRITE,
    &memory::MEMORY_SEARCH,
    &memory::MEMORY_STORE,
    &handoff::PLAN,
    &plan::PLAN_PROPOSE,
    &exec::PYTHON_EXEC,
    &result::RESULT_READ,
    &search::SEARCH,
    &send::SEND_FILE,
    &exec::SHELL_EXEC,
    &tell::TELL_USER,
    &web::WEB_FETCH,
    &web::WEB_REQUEST,
];

/// Tools that are there only where what they need is configured, sorted by name.
pub(crate) static OPTIONAL: [&ToolDef; 2] = [&handoff::ESCALATE, &web_search::WEB_SEARCH];
/// Those that need a provider of searches.
pub(crate) static SEARCHING: [&ToolDef; 1] = [&web_search::WEB_SEARCH];
/// Those that need a model for the role of the oracle.
pub(crate) static ORACLE: [&ToolDef; 1] = [&handoff::ESCALATE];

impl Sealed for &'static ToolDef {}

impl Tool for &'static ToolDef {
    fn name(&self) -> &str {
        self.name
    }

    fn origin(&self) -> Option<&str> {
        None
    }

    fn spec(&self, name: &str) -> ToolSpec {
        ToolSpec {
            name: name.to_owned(),
            description: self.description.to_owned(),
            schema: self.told_schema(),
        }
    }

    fn spec_room(&self) -> usize {
        0
    }

    fn actions(&self) -> &[ActionKind] {
        self.actions
    }

    fn roles(&self) -> &[AgentRole] {
        self.roles
    }

    fn is_idempotent(&self) -> bool {
        self.idempotent
    }

    fn passes_on(&self) -> bool {
        self.actions.iter().all(|kind| kind.row().passes_on)
    }

    fn quarantine(&self) -> Quarantine {
        Quarantine::default()
    }

    fn is_unvouched(&self) -> bool {
        false
    }

    fn has_declared_effect(&self) -> bool {
        false
    }

    fn schema(&self) -> Cow<'_, Value> {
        Cow::Owned(self.told_schema())
    }

    fn read_arguments(&self, _: &str, arguments: &Value) -> Result<Value, ToolError> {
        check_arguments(self, arguments)
    }

    fn fits_arguments(&self, schema: &Value, arguments: &Value) -> bool {
        fits_schema(schema, arguments)
    }

    fn coerce_arguments(&self, schema: &Value, arguments: &Value) -> Value {
        coerce_value(schema, arguments)
    }

    fn needed_file(&self, arguments: &Value) -> Result<Option<WorkPath>, ToolError> {
        (self.needs)(arguments)
    }

    fn draft_call(
        &self,
        _: &str,
        arguments: &Value,
        peeked: Option<&PathState>,
        context: &ToolContext<'_>,
    ) -> Result<ActionDraft, ToolError> {
        (self.prepare)(arguments, peeked, context)
    }
}

/// The source of the harness's own tools: some of them.
#[derive(Debug)]
pub(crate) struct OwnTools<'a>(pub(crate) &'a [&'static ToolDef]);

impl ToolSource for OwnTools<'_> {
    fn origin(&self) -> Option<&str> {
        None
    }

    fn tools(&self) -> Box<dyn Iterator<Item = Arc<dyn Tool>> + '_> {
        Box::new(self.0.iter().map(|tool| Arc::new(*tool) as Arc<dyn Tool>))
    }
}

/// The longest statement of what a call is for, in characters.
const MAX_INTENT_CHARS: usize = 120;

/// Returns the purpose of a call, as one visible line.
fn describe_intent(verb: &str, what: &str) -> String {
    format!("{verb} {}", crate::text::one_line(what, MAX_INTENT_CHARS))
}
