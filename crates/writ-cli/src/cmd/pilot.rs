//! `writ pilot`: goals become merged commits, step by step, within what a person has approved.

use std::path::Path;
use std::time::Duration;

use tokio::time::sleep;
use writ_inspect::show::escape_line;
use writ_pilot::pilots::begin_project as begin;
use writ_runtime::methods::{
    PilotOrder as OrderMethod, PilotPause, PilotPlan, PilotRun, PilotShow, PilotUnit, WorkShow,
};
use writ_types::api::pilot::{
    PilotGoal, PilotOrder, PilotProject, PilotSettingLine, PilotStatus, PilotUnitDetails, PilotUnitLine,
    PilotUnitName, PilotUnitOrder,
};
use writ_types::api::work::{ItemName, WorkState};
use writ_types::error::{Exit, ToReport as _};

use crate::approve::{self, ApprovalChoice};
use crate::args::{PilotCommand, PilotPlace, PilotUnitArgs};
use crate::client::EngineClient;
use crate::cmd::approvals::print_answer;
use crate::cmd::chat::end_with;
use crate::cmd::project::project_path;
use crate::config::Config;
use crate::context::Context;
use crate::failure::Failure;
use crate::interrupt::block_on;

/// The time between two looks at an autopilot that is waited for.
const LOOK_EVERY: Duration = Duration::from_millis(300);
/// The longest reason in a line, in characters.
const MAX_REASON: usize = 160;

/// Runs `writ pilot …`.
pub(crate) fn run_pilot(context: &Context, command: &PilotCommand) -> Result<(), Failure> {
    if let PilotCommand::Init { place } = command {
        return begin_project(context, place);
    }
    let config = context.load_ready_config()?;
    block_on(async {
        let mut client = EngineClient::ensure(context).await?;
        match command {
            PilotCommand::Init { .. } => Ok(()),
            PilotCommand::Plan { goal, place } => plan(context, &mut client, goal, place).await,
            PilotCommand::Approve { place, yes, reason } => {
                approve_plan(context, &config, &mut client, (place, *yes, reason)).await
            }
            PilotCommand::Auto { place, detach } => run(context, &mut client, place, *detach).await,
            PilotCommand::Pause { place } => {
                let status = client.ask::<PilotPause>(&project_of(context, place)?).await?;
                context.out.print_either(&status, describe_status)
            }
            PilotCommand::Status { place, watch: _, settings: true } => {
                let status = client.ask::<PilotShow>(&project_of(context, place)?).await?;
                context.out.print_either(&status.settings, |settings| describe_settings(settings))
            }
            PilotCommand::Status { place, watch, settings: false } => {
                show(context, &mut client, place, *watch).await
            }
            PilotCommand::Show(args) => {
                let PilotProject { project } = project_of(context, &args.place)?;
                let name = PilotUnitName { project, unit: args.unit.clone() };
                let details = client.ask::<PilotUnit>(&name).await?;
                context.out.print_either(&details, describe_unit)
            }
            PilotCommand::Accept(args) => order(context, &mut client, (args, "", PilotOrder::Accept)).await,
            PilotCommand::Resume(args) => order(context, &mut client, (args, "", PilotOrder::Resume)).await,
            PilotCommand::ForceClear(args) => {
                order(context, &mut client, (args, "", PilotOrder::ForceClear)).await
            }
            PilotCommand::Reject(args) => {
                order(context, &mut client, (&args.unit, &args.reason, PilotOrder::Reject)).await
            }
            PilotCommand::Cancel(args) => {
                order(context, &mut client, (&args.unit, &args.reason, PilotOrder::Cancel)).await
            }
        }
    })
}

fn project_of(context: &Context, place: &PilotPlace) -> Result<PilotProject, Failure> {
    let project = project_path(context, place.project.as_deref().unwrap_or(Path::new(".")))?;
    Ok(PilotProject { project })
}

fn begin_project(context: &Context, place: &PilotPlace) -> Result<(), Failure> {
    let PilotProject { project } = project_of(context, place)?;
    let begun = block_on(async {
        let begun = begin(Path::new(&project)).await;
        begun.map_err(|error| Failure::Report(Box::new(error.report())))
    })?;
    context.out.print_either(&begun, |begun| {
        let head = if begun.created { "written" } else { "is there already, and stays as it is" };
        let mut lines = vec![format!("{} {head}", escape_line(&begun.file))];
        lines.extend(begun.gates.iter().map(|gate| format!("  gate {}", escape_line(gate))));
        lines.push("look at it, then: `writ pilot plan \"GOAL\"`".to_owned());
        lines
    })
}

async fn plan(
    context: &Context,
    client: &mut EngineClient,
    goal: &str,
    place: &PilotPlace,
) -> Result<(), Failure> {
    let PilotProject { project } = project_of(context, place)?;
    let planned = client.ask::<PilotPlan>(&PilotGoal { project, goal: goal.to_owned() }).await?;
    context.out.print_either(&planned, |planned| {
        let mut lines: Vec<String> = planned.units.iter().map(describe_line).collect();
        lines.push("`writ pilot approve` shows the whole plan and signs it".to_owned());
        lines
    })?;
    end_with(Exit::Waiting)
}

async fn approve_plan(
    context: &Context,
    config: &Config,
    client: &mut EngineClient,
    (place, yes, reason): (&PilotPlace, bool, &str),
) -> Result<(), Failure> {
    let status = client.ask::<PilotShow>(&project_of(context, place)?).await?;
    // The newest: an older one that waits still is named by `writ approvals list`.
    let waiting = status.plans.iter().rev().find(|plan| plan.state == WorkState::Proposed);
    let nothing = || {
        let text = "no plan of this project waits for an answer";
        Failure::new(Exit::Usage, "pilot.not_proposed", text, "`writ pilot plan \"GOAL\"` makes one")
    };
    let item = waiting.map(|plan| plan.item.to_string()).ok_or_else(nothing)?;
    let shown = client.ask::<WorkShow>(&ItemName { item }).await?;
    let ask = shown.summary.ask.ok_or_else(nothing)?;
    let card = approve::load_card(client, &ask).await?;
    let answered =
        approve::approve_ask(context, config, client, (&card, &ApprovalChoice::Once), yes, reason).await?;
    print_answer(context, &answered)
}

async fn run(
    context: &Context,
    client: &mut EngineClient,
    place: &PilotPlace,
    detach: bool,
) -> Result<(), Failure> {
    let project = project_of(context, place)?;
    let mut status = client.ask::<PilotRun>(&project).await?;
    if detach {
        return context.out.print_either(&status, describe_status);
    }
    let mut told = String::new();
    loop {
        let progress = describe_progress(&status);
        // Only what has changed, so that a long run does not fill the screen.
        if progress != told {
            context.out.print_remark(&progress);
            told = progress;
        }
        // It was started above, so any other state is its end.
        if status.state != "running" {
            break;
        }
        sleep(LOOK_EVERY).await;
        status = client.ask::<PilotShow>(&project).await?;
    }
    context.out.print_either(&status, describe_status)?;
    end_with(exit_of(&status))
}

/// Returns how a command ends with a project in this state: a person is needed, something was not delivered, or all is done.
fn exit_of(status: &PilotStatus) -> Exit {
    if !status.blockers.is_empty() || status.plans.iter().any(|plan| plan.state == WorkState::Proposed) {
        return Exit::Waiting;
    }
    let is_bad = |plan: &&writ_types::api::pilot::PilotPlanLine| {
        matches!(
            plan.state,
            WorkState::Failed | WorkState::Stuck | WorkState::OverBudget | WorkState::Cancelled
        )
    };
    if status.plans.iter().any(|plan| is_bad(&plan)) { Exit::Verification } else { Exit::Done }
}

async fn show(
    context: &Context,
    client: &mut EngineClient,
    place: &PilotPlace,
    watch: bool,
) -> Result<(), Failure> {
    let project = project_of(context, place)?;
    let mut shown = None;
    loop {
        let status = client.ask::<PilotShow>(&project).await?;
        // Only changes, so that a file of lines does not grow while nothing happens.
        if shown.as_ref() != Some(&status) {
            context.out.print_either(&status, describe_status)?;
        }
        if !watch {
            return Ok(());
        }
        shown = Some(status);
        sleep(LOOK_EVERY).await;
    }
}

async fn order(
    context: &Context,
    client: &mut EngineClient,
    (args, reason, order): (&PilotUnitArgs, &str, PilotOrder),
) -> Result<(), Failure> {
    let PilotProject { project } = project_of(context, &args.place)?;
    let order = PilotUnitOrder { project, unit: args.unit.clone(), order, reason: reason.to_owned() };
    let details = client.ask::<OrderMethod>(&order).await?;
    context.out.print_either(&details, |details| vec![describe_line(&details.unit)])
}

fn cut(text: &str) -> String {
    let line: String = text.lines().next().unwrap_or_default().chars().take(MAX_REASON).collect();
    escape_line(&line)
}

fn describe_line(unit: &PilotUnitLine) -> String {
    let depth = unit.id.matches('/').count().saturating_sub(1);
    let state = if unit.is_over { unit.status.as_str() } else { unit.phase.as_str() };
    let running = if unit.is_running { ", running" } else { "" };
    format!(
        "{}{}  {state}{running}  {}  ({})",
        "  ".repeat(depth),
        escape_line(&unit.id),
        escape_line(&unit.title),
        unit.cost
    )
}

fn describe_status(status: &PilotStatus) -> Vec<String> {
    let mut lines = vec![format!("{}: {}, {}", escape_line(&status.project), status.state, status.cost)];
    for plan in &status.plans {
        lines.push(format!("plan of {}: {} ({})", plan.milestone, plan.state.name(), cut(&plan.reason)));
    }
    lines.extend(status.units.iter().map(describe_line));
    lines.extend(status.warnings.iter().map(|warning| cut(warning)));
    for blocker in &status.blockers {
        lines.push(format!("{} {}: {}", blocker.event, escape_line(&blocker.unit), cut(&blocker.detail)));
    }
    lines
}

fn describe_settings(settings: &[PilotSettingLine]) -> Vec<String> {
    let line = |one: &PilotSettingLine| {
        format!("{} = {}  ({})", escape_line(&one.key), escape_line(&one.value), escape_line(&one.source))
    };
    settings.iter().map(line).collect()
}

fn describe_progress(status: &PilotStatus) -> String {
    let over = status.units.iter().filter(|unit| unit.is_over).count();
    let running: Vec<String> = status
        .units
        .iter()
        .filter(|unit| unit.is_running)
        .map(|unit| format!("{} {}", escape_line(&unit.id), unit.phase))
        .collect();
    format!("{over} of {} units are over; {}", status.units.len(), running.join(", "))
}

fn describe_unit(details: &PilotUnitDetails) -> Vec<String> {
    let mut lines = vec![describe_line(&details.unit)];
    lines.extend(details.branch.iter().map(|branch| format!("branch {}", escape_line(branch))));
    lines.extend(details.description.lines().map(escape_line));
    for run in &details.runs {
        let outcome = run.outcome.as_deref().unwrap_or("runs");
        let error =
            if run.error.is_empty() { String::new() } else { format!(" ({})", escape_line(&run.error)) };
        lines.push(format!(
            "run {}: {} {outcome}{error}, {}, {}",
            run.attempt, run.phase, run.tokens, run.cost
        ));
    }
    for one in &details.moves {
        lines.push(format!("{}  {} -> {}: {}", one.at, one.from, one.to, cut(&one.reason)));
    }
    for gate in &details.gates {
        let verdict = if gate.passed { "passed" } else { "not passed" };
        lines.push(format!(
            "gate {} ({}): {verdict}: {}",
            escape_line(&gate.gate),
            gate.attempt,
            cut(&gate.output)
        ));
    }
    for blocker in &details.blockers {
        lines.push(format!("{}: {}", blocker.event, cut(&blocker.detail)));
    }
    if !details.last_error.is_empty() {
        lines.push("last error:".to_owned());
        lines.extend(details.last_error.lines().map(|line| format!("  {}", escape_line(line))));
    }
    lines
}
