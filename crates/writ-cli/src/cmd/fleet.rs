//! `writ fleet`: the cases of a fleet, read from the database, which needs no engine.

use serde_json::json;
use writ_fleet::cases::access::read_access;
use writ_fleet::cases::status::read_status;
use writ_inspect::show::escape_line;
use writ_types::api::fleet::{AccessInterval, CaseStatus};
use writ_types::error::{Exit, ToReport as _};

use crate::args::FleetCommand;
use crate::context::Context;
use crate::failure::Failure;
use crate::interrupt::block_on;
use crate::ledger::open_to_read;

mod token;

/// Runs `writ fleet …`.
pub(crate) fn run_fleet(context: &Context, command: &FleetCommand) -> Result<(), Failure> {
    let config = context.load_ready_config()?;
    if let FleetCommand::Token { new } = command {
        return token::make_token(context, *new);
    }
    let store = open_to_read(context, &config)?;
    let failed = |error: writ_fleet::cases::error::CaseError| Failure::Report(Box::new(error.report()));
    block_on(async {
        match command {
            // Made above, without the store.
            FleetCommand::Token { .. } => Ok(()),
            FleetCommand::Status => {
                let cases = read_status(&store).await.map_err(failed)?;
                let shown = json!({ "cases": cases });
                context.out.print_either(&shown, |_| cases.iter().map(describe_case).collect())
            }
            FleetCommand::Access { case } => {
                let access = read_access(&store, case).await.map_err(failed)?;
                if access.intervals.is_empty() {
                    let text = format!("the ledger knows no holder of a case {}", escape_line(case));
                    let hint = "`writ fleet status` lists the open cases";
                    return Err(Failure::new(Exit::Usage, "case.unknown", text, hint));
                }
                let (holders, contradictions) = (&access.intervals, &access.contradictions);
                let shown = json!({ "holders": holders, "contradictions": contradictions });
                context.out.print_either(&shown, |_| {
                    let wrong = contradictions.iter().map(|entry| format!("entry {entry} contradicts this"));
                    holders.iter().map(describe_holder).chain(wrong).collect()
                })
            }
        }
    })
}

fn describe_case(case: &CaseStatus) -> String {
    let holder = match (&case.holder, &case.since) {
        (Some(holder), Some(since)) => format!("{} since {since}", escape_line(holder)),
        (_, _) => "no one".to_owned(),
    };
    format!(
        "{} {:<16} {:<12} {holder}; {}",
        case.case,
        case.state,
        escape_line(&case.capability),
        escape_line(&case.reason)
    )
}

fn describe_holder(interval: &AccessInterval) -> String {
    let until = match (&interval.until, interval.ended_by) {
        (Some(until), Some(change)) => {
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
