//! `writ fleet`: the agents of a fleet and their cases. What names no one is read without an engine; what a person does with a
//! case, reading its conversation too, is done by the router that runs, which records it.

use std::io::Read as _;

use serde_json::json;
use writ_fleet::cases::access::{CaseAccess, read_access};
use writ_fleet::cases::error::CaseError;
use writ_fleet::cases::status::read_status;
use writ_inspect::show::escape_line;
use writ_runtime::methods::{EngineMethod, FleetAnswer, FleetBack, FleetClose, FleetTake};
use writ_store::fleet::MAX_CASE_MESSAGE_BYTES;
use writ_types::api::fleet::{AccessInterval, CaseEnding, CaseName, CaseReading, CaseReturn, GuestAnswer};
use writ_types::error::{Exit, ToReport as _};
use writ_types::id::SessionId;

use crate::args::{BackArgs, FleetCommand};
use crate::client::EngineClient;
use crate::cmd::audit::verify_home;
use crate::config::Config;
use crate::context::Context;
use crate::failure::Failure;
use crate::interrupt::block_on;
use crate::ledger::open_to_read;

mod messages;
mod token;
mod view;

/// Runs `writ fleet …`.
pub(crate) fn run_fleet(context: &Context, command: &FleetCommand) -> Result<(), Failure> {
    let config = context.load_ready_config()?;
    block_on(async {
        match command {
            FleetCommand::Token { new } => token::make_token(context, *new),
            FleetCommand::Status(args) => view::show_fleet(context, &config, *args).await,
            FleetCommand::Messages(args) => messages::show_messages(context, &config, args).await,
            FleetCommand::Access { case } => show_access(context, &config, case).await,
            FleetCommand::Take { case } => {
                let case = find_case(context, &config, case).await?;
                change_case::<FleetTake>(context, &CaseName { case }, "you hold it").await
            }
            FleetCommand::Answer { case, text } => {
                // Read before the case is looked for, which may end while a person types.
                let text = read_answer(context, text.as_deref())?;
                let case = find_case(context, &config, case).await?;
                change_case::<FleetAnswer>(context, &GuestAnswer { case, text }, "the answer is sent").await
            }
            FleetCommand::Back(args) => {
                let case = find_case(context, &config, &args.case).await?;
                let back = CaseReturn { case, target: args.to.clone(), note: write_note(args) };
                change_case::<FleetBack>(context, &back, "handed back").await
            }
            FleetCommand::Close { case, reason } => {
                let case = find_case(context, &config, case).await?;
                let ending = CaseEnding { case, reason: reason.clone() };
                change_case::<FleetClose>(context, &ending, "closed").await
            }
        }
    })
}

fn case_failure(error: &CaseError) -> Failure {
    Failure::Report(Box::new(error.report()))
}

/// Finds a case by its id, or an open one by its token.
async fn find_case(context: &Context, config: &Config, case: &str) -> Result<SessionId, Failure> {
    // An id is not looked up: cases that have ended have theirs, too.
    if let Ok(id) = case.parse() {
        return Ok(id);
    }
    // A token names a case only while it is open: the proxy forgets it with the case.
    let store = open_to_read(context, config)?;
    let open = read_status(&store).await.map_err(|error| case_failure(&error))?;
    let found = open.iter().find(|one| one.case_token == case);
    found
        .map(|one| one.case)
        .ok_or_else(|| unknown_case(format!("there is no open case {}", escape_line(case))))
}

fn unknown_case(text: String) -> Failure {
    Failure::new(Exit::Usage, "case.unknown", text, "`writ fleet status` lists the open cases")
}

/// Connects to the engine that runs. One that is started for one command would end again, and its agents with it.
async fn connect_router(context: &Context) -> Result<EngineClient, Failure> {
    let hint =
        "`writ start` starts the engine; the router of cases needs `[fleet] cases = true` in config.toml";
    let no_engine = || Failure::new(Exit::Blocked, "fleet.no_engine", "no engine is running", hint);
    EngineClient::connect(context).await?.ok_or_else(no_engine)
}

/// Asks the router that runs to change a case.
async fn change_case<M: EngineMethod>(
    context: &Context,
    params: &M::Params,
    done: &str,
) -> Result<(), Failure> {
    connect_router(context).await?.ask::<M>(params).await?;
    context.out.print_either(&json!({ "done": done }), |_| vec![done.to_owned()])
}

/// Returns the text of an answer: the argument, or what comes in at standard input.
fn read_answer(context: &Context, text: Option<&str>) -> Result<String, Failure> {
    let text = match text {
        Some(text) if text != "-" => text.to_owned(),
        Some(_) | None => {
            // One byte more than fits shows that it is too long.
            let most = u64::try_from(MAX_CASE_MESSAGE_BYTES).unwrap_or(u64::MAX).saturating_add(1);
            let mut text = String::new();
            let read = context.host.streams.input.clone().take(most).read_to_string(&mut text);
            read.map_err(|error| Failure::internal_error("reading the answer", error))?;
            text.trim_end_matches(['\n', '\r']).to_owned()
        }
    };
    // The router checks the same; a wrong text needs no connection to it.
    if text.trim().is_empty() || text.len() > MAX_CASE_MESSAGE_BYTES {
        let what = format!("an answer has 1 to {MAX_CASE_MESSAGE_BYTES} bytes");
        let hint = "say it as an argument, or through standard input; send a long one in parts";
        return Err(Failure::new(Exit::Usage, "case.text", what, hint));
    }
    Ok(text)
}

/// Writes the note for the next agent, which is never empty: it is all that tells the agent what a person decided.
fn write_note(args: &BackArgs) -> String {
    match (args.approve, args.note.trim()) {
        (true, "") => "approved".to_owned(),
        (true, note) => format!("approved: {note}"),
        (false, "") => "handed back".to_owned(),
        (false, note) => note.to_owned(),
    }
}

async fn show_access(context: &Context, config: &Config, case: &str) -> Result<(), Failure> {
    let store = open_to_read(context, config)?;
    // A list from a ledger that was changed proves nothing.
    let verified = verify_home(context, config)?.rows;
    // Not through `find_case`: the ledger knows the tokens of cases that have ended, too.
    let access = read_access(&store, case).await.map_err(|error| case_failure(&error))?;
    if access.intervals.is_empty() && access.readings.is_empty() {
        return Err(unknown_case(format!(
            "the ledger knows no holder or reader of a case {}",
            escape_line(case)
        )));
    }
    let CaseAccess { intervals: holders, readings, contradictions } = &access;
    let shown = json!({
        "holders": holders,
        "readings": readings,
        "contradictions": contradictions,
        "verified": verified,
    });
    context.out.print_either(&shown, |_| {
        // They are printed with the rest, since a list without them would look proven.
        let wrong = contradictions.iter().map(|entry| format!("entry {entry} contradicts this"));
        let end = std::iter::once(format!("ledger verified: entries {verified}"));
        let read = readings.iter().map(describe_reading);
        holders.iter().map(describe_holder).chain(read).chain(wrong).chain(end).collect()
    })?;
    if contradictions.is_empty() {
        return Ok(());
    }
    let text = "the entries of this case do not fit together: it had two holders at once, or a holder that never began";
    Err(Failure::new(
        Exit::Ledger,
        "fleet.contradiction",
        text.to_owned(),
        "`writ audit show ENTRY` prints each of them",
    ))
}

fn describe_reading(reading: &CaseReading) -> String {
    format!("{} conversation read by {}, entry {}", reading.at, escape_line(&reading.person), reading.entry)
}

fn describe_holder(interval: &AccessInterval) -> String {
    let until = match (&interval.until, interval.ended_by) {
        (Some(until), Some(change)) => {
            // Agents give reasons of their own, which must not break the line.
            format!("{until} ({}: {})", change.as_str(), escape_line(&interval.reason))
        }
        (_, _) => "now".to_owned(),
    };
    let key = interval.holder.task.map_or_else(|| "a person".to_owned(), |hash| format!("key sha256 {hash}"));
    format!(
        "{} to {until}: {}, {key}, entry {}",
        interval.since,
        escape_line(&interval.holder.name),
        interval.began
    )
}
