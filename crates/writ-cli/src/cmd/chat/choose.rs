//! The session and the folder of a conversation, where flags leave them open.

use std::io::{self, BufRead as _, Read as _, Write as _};

use writ_runtime::methods::{AgentsNamed, SessionsList};
use writ_types::api::NoParams;
use writ_types::api::session::{SessionFilter, SessionSummary};
use writ_types::error::Exit;
use writ_types::id::SessionId;

use crate::args::ChatArgs;
use crate::client::EngineClient;
use crate::cmd::sessions::summary_line;
use crate::context::Context;
use crate::failure::Failure;

/// The most sessions to choose from.
const MAX_OFFERED: usize = 15;
/// The longest answer that is read, in bytes.
const MAX_ANSWER_BYTES: u64 = 64;

/// Returns the arguments with the session that `--continue` or `--resume` mean.
///
/// # Errors
///
/// If there is none, or none is chosen.
pub(super) async fn chosen_session(
    context: &Context,
    client: &mut EngineClient,
    args: &ChatArgs,
) -> Result<ChatArgs, Failure> {
    if !args.go_on && !args.resume {
        return Ok(args.clone());
    }
    let listed = client.ask::<SessionsList>(&SessionFilter::default()).await?;
    let usable = |row: &SessionSummary| row.closed_at.is_none() && row.order.is_none();
    let rows: Vec<SessionSummary> = listed.sessions.into_iter().filter(usable).take(MAX_OFFERED).collect();
    let session = match rows.first() {
        None => {
            let text = "there is no conversation to go on with";
            return Err(Failure::new(Exit::Usage, "chat.none", text, "begin one with: writ chat"));
        }
        Some(first) if args.go_on => {
            context.out.print_remark(summary_line(first));
            first.session
        }
        Some(_) => ask_which(context, &rows)?,
    };
    Ok(ChatArgs { session: Some(session), ..args.clone() })
}

fn ask_which(context: &Context, rows: &[SessionSummary]) -> Result<SessionId, Failure> {
    if !context.host.streams.is_interactive() {
        let text = "--resume asks which conversation is meant, and there is no terminal to ask on";
        return Err(Failure::new(
            Exit::Usage,
            "cli.no_terminal",
            text,
            "name it with --session ID, or use --continue",
        ));
    }
    let mut errors = io::stderr().lock();
    let shown = rows.iter().zip(1..).map(|(row, n)| format!("{n:>3}  {}\n", summary_line(row)));
    let question = format!("{}Which one? [1] ", shown.collect::<String>());
    errors
        .write_all(question.as_bytes())
        .and_then(|()| errors.flush())
        .map_err(|error| Failure::output_error(&error))?;
    let mut answer = String::new();
    let read = io::stdin().lock().take(MAX_ANSWER_BYTES).read_line(&mut answer);
    read.map_err(|error| Failure::internal_error("reading the answer", error))?;
    let number = if answer.trim().is_empty() { Ok(1) } else { answer.trim().parse::<usize>() };
    let chosen = number.ok().and_then(|number| rows.get(number.checked_sub(1)?));
    chosen.map(|row| row.session).ok_or_else(|| {
        let text = format!("this is no number from 1 to {}", rows.len());
        Failure::new(Exit::Usage, "chat.choice", &text, "answer with the number in front of a conversation")
    })
}

/// Returns the folder to work on: the named agent's only one where the person has named none.
///
/// # Errors
///
/// If there is no such agent.
pub(super) async fn agents_folder(
    client: &mut EngineClient,
    args: &ChatArgs,
    project: Option<String>,
) -> Result<Option<String>, Failure> {
    let Some(name) = &args.agent else { return Ok(project) };
    let named = client.ask::<AgentsNamed>(&NoParams {}).await?.agents;
    let Some(agent) = named.iter().find(|agent| agent.name == *name) else {
        let known: Vec<&str> = named.iter().map(|agent| agent.name.as_str()).collect();
        let hint = match known.is_empty() {
            true => "there are none: agents/NAME.toml of the home describes one".to_owned(),
            false => format!("known: {}", known.join(", ")),
        };
        let text = format!("there is no agent '{}'", writ_inspect::show::escape_line(name));
        return Err(Failure::new(Exit::Usage, "chat.agent", &text, &hint));
    };
    match agent.folders.as_slice() {
        [only] if args.project.is_none() && args.session.is_none() => Ok(Some(only.clone())),
        [] | [_, ..] => Ok(project),
    }
}
