//! `writ diff` and `writ apply`: what an agent changed in a project's overlay, and bringing it out.

use std::path::Path;

use serde_json::{Value, json};
use writ_inspect::show::escape_line;
use writ_runtime::methods::Method;
use writ_types::error::Exit;
use writ_types::id::{AskId, SessionId};

use crate::approve::{self, ApprovalChoice};
use crate::args::{ApplyArgs, DiffArgs};
use crate::client::EngineClient;
use crate::cmd::approvals::print_answer;
use crate::cmd::chat::end_with;
use crate::context::Context;
use crate::failure::Failure;
use crate::interrupt::block_on;

/// Runs `writ diff`.
pub(crate) fn show_diff(context: &Context, args: &DiffArgs) -> Result<(), Failure> {
    context.load_ready_config()?;
    let which = session_or_project(context, args.session, args.project.as_deref())?;
    block_on(async {
        let diff = EngineClient::ensure(context).await?.call_method(Method::Diff, which).await?;
        context.out.print_either(&diff, describe_diff)
    })
}

/// The changes as lines, and what is left out of them.
pub(crate) fn describe_diff(diff: &Value) -> Vec<String> {
    let mut lines: Vec<String> =
        diff.get("text").and_then(Value::as_str).unwrap_or_default().lines().map(escape_line).collect();
    if lines.is_empty() {
        lines.push("nothing is changed".into());
    }
    let left_out = diff.get("left_out").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    lines.extend(left_out.iter().map(|item| {
        let path = item.get("shown").and_then(Value::as_str).map(escape_line).unwrap_or_default();
        let why = item.get("reason").map(|reason| match reason.as_str() {
            Some(text) => text.replace('_', " "),
            None => escape_line(&reason.to_string()),
        });
        format!("left out: {path} ({})", why.unwrap_or_default())
    }));
    lines
}

/// Runs `writ apply`.
pub(crate) fn apply_diff(context: &Context, args: &ApplyArgs) -> Result<(), Failure> {
    let config = context.load_ready_config()?;
    let which = session_or_project(context, args.session, args.project.as_deref())?;
    block_on(async {
        let mut client = EngineClient::ensure(context).await?;
        let answer = if args.undo {
            undo_change(&mut client, which).await?
        } else {
            client.call_method(Method::Apply, which).await?
        };
        let ask: Option<AskId> =
            answer.get("ask_id").and_then(Value::as_str).and_then(|text| text.parse().ok());
        // Nothing to approve: the change was applied at once, or there is none.
        let Some(ask) = ask else {
            let text = |name: &str| answer.get(name).and_then(Value::as_str);
            let done = text("applied").or_else(|| text("text")).unwrap_or("nothing to apply");
            context.out.print_either(&answer, |_| done.lines().map(escape_line).collect())?;
            let exit = answer.get("exit").cloned().and_then(|exit| serde_json::from_value(exit).ok());
            return end_with(exit.unwrap_or(Exit::Done));
        };
        let card = approve::load_card(&mut client, &ask).await?;
        // An undo and an application are approved alike.
        let (what, reason) =
            ((&card, &ApprovalChoice::Once), if args.undo { "writ apply --undo" } else { "writ apply" });
        print_answer(
            context,
            &approve::approve_ask(context, &config, &mut client, what, args.yes, reason).await?,
        )
    })
}

/// Undoes what was applied last.
///
/// # Errors
///
/// If nothing can be undone, or the engine refuses.
pub(crate) async fn undo_change(client: &mut EngineClient, which: Value) -> Result<Value, Failure> {
    // The last change is looked up first, so that the answer names what would be undone.
    let last = client.call_method(Method::UndoLast, which).await?;
    match last.get("attempt").filter(|attempt| attempt.is_string()) {
        Some(attempt) => client.call_method(Method::Undo, json!({ "attempt": attempt })).await,
        None => {
            let text = "nothing was applied here that can be undone";
            Err(Failure::new(Exit::Usage, "undo.nothing", text, "copies older than a day are not stored"))
        }
    }
}

/// The session named, else the project named, else the current folder.
fn session_or_project(
    context: &Context,
    session: Option<SessionId>,
    project: Option<&Path>,
) -> Result<Value, Failure> {
    if let Some(session) = session {
        return Ok(json!({ "session": session }));
    }
    Ok(json!({ "project": project_path(context, project.unwrap_or(Path::new(".")))? }))
}

/// A folder's real path, as text.
pub(crate) fn project_path(context: &Context, path: &Path) -> Result<String, Failure> {
    let unusable = |why: String| {
        let text = format!("{} cannot be worked on: {why}", path.display());
        Failure::new(Exit::Usage, "cli.project", text, "name a folder with --project DIR")
    };
    // The engine works on real paths, and a link may change its target.
    let real = context.locate_path(path).canonicalize().map_err(|error| unusable(error.to_string()))?;
    if !real.is_dir() {
        return Err(unusable("it is not a folder".into()));
    }
    real.into_os_string().into_string().map_err(|_| unusable("its name is not UTF-8 text".into()))
}
