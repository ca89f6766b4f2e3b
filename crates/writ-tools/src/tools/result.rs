//! `result_read`: more of an earlier result that was too long to be shown whole.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use writ_policy::door::MAX_RESULT_PART;
use writ_types::action::{Action, ActionKind, ReadResult};
use writ_types::quarantine::Handle;

use super::describe_intent;
use crate::arguments::{invalid_arguments, no_nul, parse_arguments};
use crate::def::{ActionDraft, AgentRole, OutputKind, PathState, ToolContext, ToolDef, needs_nothing};
use crate::error::ToolError;
use crate::schema::schema_of;

/// The name of the tool.
pub const RESULT_READ_TOOL: &str = "result_read";

/// The number of characters that are read if `chars` is not given: a few screens.
const DEFAULT_CHARS: u64 = 8_000;

/// The longest text to find, in bytes.
const MAX_FIND_BYTES: usize = 1_024;

pub(super) static RESULT_READ: ToolDef = ToolDef {
    name: RESULT_READ_TOOL,
    description: "Reads more of a result that was too long to be shown whole, by its handle.",
    usage: r#"{"handle": "$r7", "from": 24001}"#,
    sinks: &[],
    idempotent: true,
    output: OutputKind::WebContent,
    actions: &[ActionKind::ReadResult],
    roles: &[AgentRole::Proxy, AgentRole::Planner, AgentRole::Executor],
    schema: schema_of::<ResultReadArgs>,
    needs: needs_nothing,
    prepare: prepare_read,
};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ResultReadArgs {
    /// Of the result.
    handle: String,
    /// First character, from 1.
    from: Option<u64>,
    /// Number of characters.
    chars: Option<u64>,
    /// A text to go to, from there on.
    find: Option<String>,
}

fn prepare_read(
    arguments: &Value,
    _: Option<&PathState>,
    _: &ToolContext<'_>,
) -> Result<ActionDraft, ToolError> {
    let args: ResultReadArgs = parse_arguments(&RESULT_READ, arguments)?;
    let wrong = |problem: &str| invalid_arguments(&RESULT_READ, problem);
    let handle: Handle = args.handle.parse().map_err(|_| wrong("'handle' is written like $r7"))?;
    if handle.field.is_some() {
        return Err(wrong("'handle' names a result, not a field of it"));
    }
    let (from, chars) = (args.from.unwrap_or(1), args.chars.unwrap_or(DEFAULT_CHARS));
    if from == 0 {
        return Err(wrong("'from' is counted from 1"));
    }
    if !(1..=MAX_RESULT_PART).contains(&chars) {
        return Err(wrong(&format!("'chars' must be from 1 to {MAX_RESULT_PART}")));
    }
    let find = args.find.unwrap_or_default();
    no_nul(&RESULT_READ, "find", &find)?;
    if find.len() > MAX_FIND_BYTES {
        return Err(ToolError::TooLarge {
            tool: RESULT_READ.name,
            what: "the size of the text to find in bytes",
            limit: MAX_FIND_BYTES,
        });
    }
    let purpose = describe_intent("read more of the result", &args.handle);
    let read = ReadResult { result: handle.result, from, chars, find };
    Ok(ActionDraft::new_draft(Action::ReadResult(read), purpose))
}
