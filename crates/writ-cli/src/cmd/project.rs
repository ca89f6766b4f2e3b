//! `writ diff` and `writ apply`: what an agent changed in a project's overlay, and bringing it out.

use std::path::Path;

use serde_json::{Value, json};
use writ_policy::show::escape_line;
use writ_types::error::Exit;
use writ_types::id::{AskId, SessionId};

use crate::approve;
use crate::args::{ApplyArgs, DiffArgs};
use crate::client::Client;
use crate::cmd::approvals::tell;
use crate::context::Context;
use crate::failure::Failure;
use crate::interrupt::block_on;

/// Runs `writ diff`.
pub(crate) fn diff(context: &Context, args: &DiffArgs) -> Result<(), Failure> {
    context.ready()?;
    let which = which(args.session, args.project.as_deref())?;
    block_on(async {
        let diff = Client::ensure(context).await?.call("diff", which).await?;
        context.out.either(&diff, lines)
    })
}

fn lines(diff: &Value) -> Vec<String> {
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
pub(crate) fn apply(context: &Context, args: &ApplyArgs) -> Result<(), Failure> {
    let config = context.ready()?;
    let which = which(args.session, args.project.as_deref())?;
    block_on(async {
        let mut client = Client::ensure(context).await?;
        let answer = client.call("apply", which).await?;
        let ask: Option<AskId> =
            answer.get("ask_id").and_then(Value::as_str).and_then(|text| text.parse().ok());
        let Some(ask) = ask else {
            let applied = answer.get("applied").and_then(Value::as_str).unwrap_or("nothing to apply");
            return context.out.either(&answer, |_| applied.lines().map(escape_line).collect());
        };
        let card = approve::card(&mut client, &ask).await?;
        let reason = "writ apply";
        tell(context, &approve::approve(context, &config, &mut client, &card, args.yes, reason).await?)
    })
}

/// The session named, else the project named, else the current folder.
fn which(session: Option<SessionId>, project: Option<&Path>) -> Result<Value, Failure> {
    if let Some(session) = session {
        return Ok(json!({ "session": session }));
    }
    Ok(json!({ "project": folder(project.unwrap_or(Path::new(".")))? }))
}

/// A folder's real path, as text.
pub(crate) fn folder(path: &Path) -> Result<String, Failure> {
    let unusable = |why: String| {
        let text = format!("{} cannot be worked on: {why}", path.display());
        Failure::new(Exit::Usage, "cli.project", text, "name a folder with --project DIR")
    };
    let real = path.canonicalize().map_err(|error| unusable(error.to_string()))?;
    if !real.is_dir() {
        return Err(unusable("it is not a folder".into()));
    }
    real.into_os_string().into_string().map_err(|_| unusable("its name is not UTF-8 text".into()))
}
