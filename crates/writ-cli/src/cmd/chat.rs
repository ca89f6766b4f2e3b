//! `writ chat`: a conversation, typed or in one message.

mod answers;
mod commands;

mod cassette;

mod choose;

mod files;

mod news;

mod notice;

mod piped;

mod question;

mod status_line;

mod talk;

use std::path::{Path, PathBuf};

use writ_models::detect;
use writ_models::provider::ModelsConfigError;
use writ_runtime::methods::{OrdersOpen, SessionsAgent, SessionsList, Status};
use writ_tui::config::{Color, Surroundings};
use writ_tui::renderer::RenderMode;
use writ_types::api::NoParams;
use writ_types::api::key::OrderName;
use writ_types::api::session::{SessionAgent, SessionFilter};
use writ_types::error::Exit;
use writ_types::frame::{ClientFrame, NEWS_ONLY, ServerFrame};
use writ_types::id::SessionId;

use crate::args::ChatArgs;
use crate::client::{EngineClient, refusal_failure};
use crate::cmd::project::project_path;
use crate::config::Config;
use crate::context::Context;
use crate::failure::Failure;
use crate::interrupt::block_on;
use crate::terminal;

use talk::Conversation;

/// Runs `writ chat`.
///
/// # Errors
///
/// No model, no home, a folder that cannot be worked on; with `-m`, how the turn ended.
pub(crate) fn run_chat(context: &Context, args: &ChatArgs) -> Result<(), Failure> {
    if let Some(file) = &args.cassette {
        return cassette::play_cassette(context, args, file);
    }
    let config = context.load_ready_config()?;
    let (args, quoted) = &piped::take_piped(context, args)?;
    if args.message.as_deref().is_some_and(|text| text.trim().is_empty()) {
        let hint = "say what you want done, such as: writ chat -m \"make the tests pass\"";
        return Err(Failure::new(Exit::Usage, "cli.empty", "the message is empty", hint));
    }
    let wanted = detect::is_wanted(&config.models);
    if config.models.models.default.is_none() && config.models.models.roles.is_empty() && !wanted {
        return Err(ModelsConfigError::MissingDefault.into());
    }
    let project = project_folder(context, args)?;
    block_on(async {
        let mut client = EngineClient::ensure(context).await?;
        if wanted {
            let found = client.ask::<Status>(&NoParams {}).await?.model_found;
            let found = found.ok_or(ModelsConfigError::MissingDefault)?;
            context.out.print_remark(format!("no model is configured; using {found}"));
        }
        if let Some(order) = args.order {
            let opened = client.ask::<OrdersOpen>(&OrderName { order }).await?;
            let args = ChatArgs { session: Some(opened.session), ..args.clone() };
            let session = join_session(&mut client, &args, None).await?;
            let (mode, project) = (output_mode(context), None);
            let talk = Conversation { context, config: &config, client, session, mode, project };
            return talk.run_once(args.message.as_deref().unwrap_or_default(), quoted.clone()).await;
        }
        converse(context, &config, client, (args, project, quoted)).await
    })
}

/// Joins a session and talks in it.
async fn converse(
    context: &Context,
    config: &Config,
    mut client: EngineClient,
    (args, project, quoted): (&ChatArgs, Option<String>, &str),
) -> Result<(), Failure> {
    let args = &choose::chosen_session(context, &mut client, args).await?;
    let project = choose::agents_folder(&mut client, args, project).await?;
    let session = match join_session(&mut client, args, project.clone()).await {
        // This folder was not named by the person: without it a conversation is still possible.
        Err(failure) if is_only_here(args, project.as_ref()) && failure.has_code("sandbox.project") => {
            context.out.print_remark("this folder cannot be worked on, so the agent sees no project");
            join_session(&mut client, args, None).await?
        }
        joined => joined?,
    };
    if let Some(agent) = &args.agent {
        let wanted = SessionAgent { session, agent: Some(agent.clone()), model: None };
        client.ask::<SessionsAgent>(&wanted).await?;
    }
    let mode = output_mode(context);
    let project = project.map(PathBuf::from);
    let talk = Conversation { context, config, client, session, mode, project };
    match &args.message {
        Some(text) => talk.run_once(text, quoted.to_owned()).await,
        None => talk.run_interactive().await,
    }
}

/// Returns true if the folder is the current one, taken because none was named.
const fn is_only_here(args: &ChatArgs, project: Option<&String>) -> bool {
    args.project.is_none() && !args.write && project.is_some()
}

fn output_mode(context: &Context) -> RenderMode {
    if context.out.json {
        return RenderMode::Json;
    }
    let no_color = context.env.text_of("NO_COLOR").is_some() || context.env.text_of("TERM") == Some("dumb");
    RenderMode::text_mode(
        Color::Auto,
        Surroundings { terminal: context.host.streams.output.is_terminal(), no_color },
    )
}

/// The folder to work in, asked for once unless it was named or a message was given (`-m` counts as consent).
fn project_folder(context: &Context, args: &ChatArgs) -> Result<Option<String>, Failure> {
    // A named folder must exist; the current one is only a suggestion.
    if let Some(named) = &args.project {
        return project_path(context, named).map(Some);
    }
    if args.session.is_some() || args.order.is_some() || args.go_on || args.resume {
        return Ok(None);
    }
    let here = project_path(context, Path::new("."))?;
    if args.message.is_some() || args.write {
        return Ok(Some(here));
    }
    if !context.host.streams.is_interactive() {
        return Ok(None);
    }
    let question =
        format!("Work on {here}? The agent sees its files; nothing in it changes before you approve.");
    Ok(terminal::confirm_yes(&context.host.streams, &question)?.then_some(here))
}

/// Joins the named session, or the latest one of this folder, or opens a new one.
async fn join_session(
    client: &mut EngineClient,
    args: &ChatArgs,
    project: Option<String>,
) -> Result<SessionId, Failure> {
    // These flags hold for a whole session, so an old one cannot take them.
    let fresh = args.new || args.write || args.dry_run;
    let session = match args.session {
        Some(session) => Some(session),
        None if fresh => None,
        None => latest_session(client, project.as_deref(), args.agent.as_deref()).await?,
    };
    // Earlier messages are in the history; only new frames are shown.
    let after_seq = if session.is_some() { NEWS_ONLY } else { 0 };
    let (write, dry_run) = (args.write, args.dry_run);
    client.send_frame(&ClientFrame::Resume { session, after_seq, project, write, dry_run }).await?;
    // Frames of other clients' turns may come before the answer.
    loop {
        let frame = client.receive_frame().await?.frame;
        if let ServerFrame::Error { exit, code, text, hint, .. } = frame {
            return Err(refusal_failure(exit, &code, text, hint));
        }
        if let ServerFrame::Hello { session, .. } = frame {
            return Ok(session);
        }
    }
}

/// The latest ordinary session of a folder and an agent.
async fn latest_session(
    client: &mut EngineClient,
    project: Option<&str>,
    agent: Option<&str>,
) -> Result<Option<SessionId>, Failure> {
    let listed = client.ask::<SessionsList>(&SessionFilter::default()).await?;
    let found = listed.sessions.iter().find(|row| {
        // Sessions under an order are unattended and are never continued by accident.
        let is_same = row.project.as_deref() == project && row.agent.as_deref() == agent;
        is_same && row.order.is_none() && !row.write && !row.dry_run
    });
    Ok(found.map(|row| row.session))
}

/// Returns the failure for the end of a turn, if it was not a success.
pub(crate) fn end_with(exit: Exit) -> Result<(), Failure> {
    match exit {
        Exit::Done => Ok(()),
        exit @ (Exit::Bug
        | Exit::Usage
        | Exit::Config
        | Exit::Denied
        | Exit::Waiting
        | Exit::Budget
        | Exit::Model
        | Exit::Verification
        | Exit::Ledger
        | Exit::Blocked
        | Exit::Interrupted) => Err(Failure::Code(exit.code())),
    }
}
