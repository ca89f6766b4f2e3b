//! `writ budget`: what was spent, on what, and how much is left.

use writ_inspect::show::escape_line;
use writ_runtime::methods as m;
use writ_types::api::budget::{BudgetLimit, BudgetQuery, BudgetReport, BudgetRow, SessionBudgetState};
use writ_types::unit::{MicroUsd, Tokens};

use super::context::name_session;
use crate::args::{BudgetArgs, BudgetCommand};
use crate::client::EngineClient;
use crate::context::Context;
use crate::failure::Failure;
use crate::interrupt::block_on;

/// Runs `writ budget`.
pub(crate) fn run_budget(context: &Context, args: &BudgetArgs) -> Result<(), Failure> {
    context.load_ready_config()?;
    block_on(async {
        let mut client = EngineClient::ensure(context).await?;
        match args.command {
            None => {
                let query = BudgetQuery { by: args.by.as_query(), days: Some(args.days) };
                let report = client.ask::<m::BudgetReport>(&query).await?;
                context.out.print_either(&report, describe_report)
            }
            Some(BudgetCommand::Pause(choice)) => {
                let name = name_session(&mut client, choice).await?;
                let state = client.ask::<m::BudgetPause>(&name).await?;
                context.out.print_either(&state, describe_state)
            }
            Some(BudgetCommand::Renew(choice)) => {
                let name = name_session(&mut client, choice).await?;
                let state = client.ask::<m::BudgetRenew>(&name).await?;
                context.out.print_either(&state, describe_state)
            }
        }
    })
}

fn describe_report(report: &BudgetReport) -> Vec<String> {
    let mut lines: Vec<String> = report.limits.iter().map(describe_limit).collect();
    if !lines.is_empty() {
        lines.push(String::new());
    }
    if !report.since.is_empty() {
        lines.push(format!("since {}", report.since));
    }
    lines.push(format!(
        "{:>14} {:>6} {:>12} {:>12} {:>10}  what",
        "cost", "calls", "sent", "cached", "answered"
    ));
    lines.extend(report.rows.iter().map(describe_row));
    if report.more > 0 {
        lines.push(format!("and {} more", report.more));
    }
    lines.push(describe_row(&report.total));
    if !report.all_priced {
        lines.push("The price of some calls is not known: the sums of money are too low.".to_owned());
    }
    lines
}

fn describe_row(row: &BudgetRow) -> String {
    format!(
        "{:>14} {:>6} {:>12} {:>12} {:>10}  {}",
        row.cost_micro_usd.to_string(),
        row.model_calls,
        row.input.get(),
        row.cache_read.get(),
        row.output.get(),
        escape_line(&row.name)
    )
}

fn describe_limit(limit: &BudgetLimit) -> String {
    let amount = |amount: u64| match limit.unit.as_str() {
        "micro_usd" => MicroUsd::new(amount).to_string(),
        _ => Tokens::new(amount).to_string(),
    };
    let session = limit.session.map_or_else(String::new, |session| format!(", session {session}"));
    format!(
        "{:>3} %  {}: {} of {}{session}",
        limit.percent,
        escape_line(&limit.setting),
        amount(limit.used),
        amount(limit.limit)
    )
}

/// The state of a session's spending, as lines.
pub(crate) fn describe_state(state: &SessionBudgetState) -> Vec<String> {
    let paused = if state.paused { "paused" } else { "goes on" };
    let mut lines = vec![format!("session {} {paused}", state.session)];
    lines.extend(state.limits.iter().map(describe_limit));
    lines
}
