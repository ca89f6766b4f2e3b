//! `tell_user`: says something in the middle of the work.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use writ_types::action::{Action, ActionKind, Say};
use writ_types::recipient::Recipient;

use super::describe_intent;
use crate::arguments::{invalid_arguments, no_nul, parse_arguments};
use crate::def::{ActionDraft, AgentRole, OutputKind, PathState, ToolContext, ToolDef, needs_nothing};
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
    prepare: prepare_message,
};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct TellArgs {
    /// The message.
    text: String,
}

fn prepare_message(
    arguments: &Value,
    _: Option<&PathState>,
    _: &ToolContext<'_>,
) -> Result<ActionDraft, ToolError> {
    let args: TellArgs = parse_arguments(&TELL_USER, arguments)?;
    no_nul(&TELL_USER, "text", &args.text)?;
    if args.text.trim().is_empty() {
        return Err(invalid_arguments(&TELL_USER, "'text' is empty"));
    }
    if args.text.len() > MAX_MESSAGE_BYTES {
        return Err(ToolError::TooLarge {
            tool: TELL_USER.name,
            what: "the size of the message in bytes",
            limit: MAX_MESSAGE_BYTES,
        });
    }
    let purpose = describe_intent("tell the owner:", &args.text);
    Ok(ActionDraft::new_draft(Action::Say(Say { to: Recipient::Owner, text: args.text }), purpose))
}
