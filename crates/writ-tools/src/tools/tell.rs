//! `tell_user`: says something in the middle of the work.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use writ_types::action::{Action, ActionKind, Say};

use super::intent;
use crate::arguments::{invalid, no_nul, typed};
use crate::def::{AgentRole, Draft, OutputKind, Peeked, ToolContext, ToolDef, needs_nothing};
use crate::error::ToolError;
use crate::schema::schema_of;

/// The longest message, in bytes.
const MAX_MESSAGE_BYTES: usize = 16 * 1024;

pub(super) static TELL_USER: ToolDef = ToolDef {
    name: "tell_user",
    description: "Sends the user a message now, before the work is finished. The final answer needs no tool.",
    usage: r#"{"text": "The tests pass; I am updating the docs."}"#,
    sinks: &[],
    idempotent: false,
    output: OutputKind::Confirmation,
    actions: &[ActionKind::Say],
    roles: &[AgentRole::Executor],
    schema: schema_of::<TellArgs>,
    needs: needs_nothing,
    prepare,
};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct TellArgs {
    /// The message.
    text: String,
}

fn prepare(arguments: &Value, _: Option<&Peeked>, _: &ToolContext<'_>) -> Result<Draft, ToolError> {
    let args: TellArgs = typed(&TELL_USER, arguments)?;
    no_nul(&TELL_USER, "text", &args.text)?;
    if args.text.trim().is_empty() {
        return Err(invalid(&TELL_USER, "'text' is empty"));
    }
    if args.text.len() > MAX_MESSAGE_BYTES {
        return Err(ToolError::TooLarge {
            tool: TELL_USER.name,
            what: "the size of the message in bytes",
            limit: MAX_MESSAGE_BYTES,
        });
    }
    let purpose = intent("tell the owner:", &args.text);
    Ok(Draft::new(Action::Say(Say { to: "owner".to_owned(), text: args.text }), purpose))
}
