//! `send_file`: sends a file of the work folder to the person.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use writ_types::action::{Action, ActionKind, SendFile};
use writ_types::digest::Digest;
use writ_types::recipient::Recipient;

use super::describe_intent;
use crate::arguments::{invalid_arguments, no_nul, parse_arguments};
use crate::def::{ActionDraft, AgentRole, OutputKind, PathState, ToolContext, ToolDef};
use crate::error::ToolError;
use crate::path::WorkPath;
use crate::schema::schema_of;

pub(super) static SEND_FILE: ToolDef = ToolDef {
    name: "send_file",
    description: "Sends the user a file, at most 16 MiB.",
    usage: r#"{"path": "out/report.pdf"}"#,
    sinks: &["path"],
    idempotent: false,
    output: OutputKind::Confirmation,
    actions: &[ActionKind::SendFile],
    roles: &[AgentRole::Executor],
    schema: schema_of::<SendArgs>,
    needs: needed_file,
    prepare: prepare_send,
};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SendArgs {
    /// A file of the work folder.
    path: String,
}

fn needed_file(arguments: &Value) -> Result<Option<WorkPath>, ToolError> {
    let args: SendArgs = parse_arguments(&SEND_FILE, arguments)?;
    sent_path(&args.path).map(Some)
}

fn sent_path(text: &str) -> Result<WorkPath, ToolError> {
    no_nul(&SEND_FILE, "path", text)?;
    let wrong = |problem: &str| invalid_arguments(&SEND_FILE, &format!("'path' {problem}"));
    let path = WorkPath::parse_path(text).map_err(|problem| wrong(&problem.to_string()))?;
    if path.is_root() || text.ends_with('/') {
        return Err(wrong("names a folder, not a file"));
    }
    if path.is_outside() { Err(wrong("leads out of the work folder")) } else { Ok(path) }
}

fn prepare_send(
    arguments: &Value,
    peeked: Option<&PathState>,
    _: &ToolContext<'_>,
) -> Result<ActionDraft, ToolError> {
    let args: SendArgs = parse_arguments(&SEND_FILE, arguments)?;
    let path = sent_path(&args.path)?;
    let unfit = |reason| ToolError::Target { tool: SEND_FILE.name, path: path.as_str().to_owned(), reason };
    let (digest, bytes) = match peeked {
        None => return Err(ToolError::NotPeeked { tool: SEND_FILE.name }),
        Some(PathState::File { bytes, .. }) => {
            (Digest::of_bytes(bytes), u64::try_from(bytes.len()).unwrap_or(u64::MAX))
        }
        Some(PathState::Large { digest, bytes, .. }) => (*digest, *bytes),
        Some(PathState::Missing) => return Err(unfit("does not exist")),
        Some(PathState::Folder) => return Err(unfit("is a folder")),
        Some(PathState::Other) => return Err(unfit("is no regular file, or too large to be sent")),
    };
    let purpose = describe_intent("send the owner", &format!("{path} ({bytes} bytes)"));
    let path = path.as_str().to_owned();
    // The owner is the only recipient of files.
    let send = SendFile { to: Recipient::Owner, path: path.clone(), digest };
    Ok(ActionDraft::new_draft(Action::SendFile(send), purpose).with_sink("path", path))
}
