//! `writ pilot`: goals become merged commits, step by step, within what a person has approved.

use std::path::Path;
use std::time::Duration;

use tokio::time::sleep;
use writ_inspect::show::escape_line;
use writ_pilot::config::CONFIG_FILE;
use writ_runtime::methods::{
    PilotOrder as OrderMethod, PilotPause, PilotPlan, PilotRun, PilotShow, PilotUnit, WorkShow,
};
use writ_runtime::pilot::needs_approval;
use writ_types::api::pilot::{
    PilotBlockerLine, PilotGoal, PilotLogQuery, PilotOrder, PilotPlanLine, PilotProject, PilotScope,
    PilotShip, PilotShipState, PilotStatus, PilotUnitDetails, PilotUnitName, PilotUnitOrder,
};
use writ_types::api::work::{ItemName, WorkState};
use writ_types::error::Exit;

use crate::approve::{self, ApprovalChoice};
use crate::args::{PilotCommand, PilotPlace, PilotReasonArgs, PilotResumeArgs, PilotUnitArgs};
use crate::client::EngineClient;
use crate::cmd::approvals::print_answer;
use crate::cmd::chat::end_with;
use crate::cmd::project::project_path;
use crate::config::Config;
use crate::context::Context;
use crate::failure::Failure;
use crate::interrupt::block_on;

mod begin;

mod changes;

mod looks;

mod menu;

mod steps;

mod traces;

mod typed;

mod view;

mod watch;

pub(crate) use typed::run_typed;
use view::{describe_gate_end, describe_line, describe_progress, describe_settings, describe_status};

/// The time between two looks at an autopilot that is waited for.
const LOOK_EVERY: Duration = Duration::from_millis(300);
/// The event of a blocker that a person's word alone ends.
const PAUSED: &str = "Paused";
/// The longest reason in a line, in characters.
const MAX_REASON: usize = 160;

/// Runs `writ pilot …`.
pub(crate) fn run_pilot(context: &Context, command: &PilotCommand) -> Result<(), Failure> {
    block_on(run_command(context, command))
}

/// Runs a command of the autopilot.
async fn run_command(context: &Context, command: &PilotCommand) -> Result<(), Failure> {
    // It needs no home: settings are written without an engine, too.
    if let PilotCommand::Init { place, untried, quick } = command {
        return begin::begin_project(context, place, (*untried, *quick)).await;
    }
    let config = context.load_ready_config()?;
    let mut client = EngineClient::ensure(context).await?;
    match command {
        PilotCommand::Init { .. } => Ok(()),
        PilotCommand::Plan { goal, place, workflow, link_issue } => {
            plan(context, &mut client, (goal, place), (workflow.clone(), *link_issue)).await
        }
        PilotCommand::Approve { place, yes, reason } => {
            approve_plan(context, &config, &mut client, (place, *yes, reason)).await
        }
        PilotCommand::Auto { place, detach } => run(context, &mut client, place, *detach).await,
        PilotCommand::Pause { place } => {
            let status = client.ask::<PilotPause>(&project_of(context, place)?).await?;
            context.out.print_either(&status, describe_status)
        }
        PilotCommand::Status { place, watch, settings } => {
            watch::show_status(context, client, (place, *watch, *settings)).await
        }
        PilotCommand::Show(args) => {
            let details = client.ask::<PilotUnit>(&name_of(context, args)?).await?;
            context.out.print_either(&details, describe_unit)
        }
        PilotCommand::Accept(args) => order(context, &mut client, (args, "", PilotOrder::Accept)).await,
        PilotCommand::Resume(args) => resume(context, &mut client, args).await,
        PilotCommand::ForceClear(args) => {
            order(context, &mut client, (args, "", PilotOrder::ForceClear)).await
        }
        PilotCommand::Ship(args) => ship(context, &mut client, args).await,
        PilotCommand::Reject(args) => obey(context, &mut client, args, PilotOrder::Reject).await,
        PilotCommand::Cancel(args) => obey(context, &mut client, args, PilotOrder::Cancel).await,
        PilotCommand::Report { unit, place, html } => {
            let project = project_of(context, place)?.project;
            let scope = PilotScope { project, unit: unit.clone().unwrap_or_default() };
            looks::report(context, &mut client, (&scope, html.as_deref())).await
        }
        PilotCommand::Logs { unit, attempt, last, skip } => {
            let project = project_of(context, &unit.place)?.project;
            let (unit, attempt, last, skip) = (unit.unit.clone(), *attempt, *last, *skip);
            let query = PilotLogQuery { project, unit, attempt, last, skip };
            looks::print_log(context, &mut client, &query).await
        }
        PilotCommand::Step(step) => steps::hand_out(context, (&mut client, &config), step).await,
        PilotCommand::Look(look) => traces::look_back(context, &mut client, look).await,
        PilotCommand::Rate { rating, unit, place } => {
            changes::rate(context, &mut client, (place, unit.as_deref(), *rating)).await
        }
        PilotCommand::ResetCircuits { place } => changes::reset(context, &mut client, place).await,
        PilotCommand::EndSession { place } => changes::end_session(context, &mut client, place).await,
        PilotCommand::Diff(args) => {
            looks::print_changes(context, &mut client, &name_of(context, args)?).await
        }
        PilotCommand::Reload { place, yes } => changes::reload(context, &mut client, (place, *yes)).await,
        PilotCommand::Revert { unit, place, yes } => {
            let PilotProject { project } = project_of(context, place)?;
            menu::revert_slice(context, &mut client, (project, unit.clone(), *yes)).await
        }
        PilotCommand::MergeResolve(args) => {
            changes::resolve(context, &mut client, &name_of(context, args)?).await
        }
        PilotCommand::Doctor { place, fix } => {
            looks::check_up(context, &mut client, (&project_of(context, place)?, *fix)).await
        }
    }
}

/// Returns the project of a command: the nearest folder with settings of the autopilot or a repository, from the named one upwards.
fn project_of(context: &Context, place: &PilotPlace) -> Result<PilotProject, Failure> {
    let named = project_path(context, place.project.as_deref().unwrap_or(Path::new(".")))?;
    let is_top = |folder: &&Path| folder.join(CONFIG_FILE).is_file() || folder.join(".git").exists();
    let top = Path::new(&named).ancestors().find(is_top).and_then(Path::to_str);
    // Where there is none, the engine says what is missing.
    let project = top.map_or_else(|| named.clone(), str::to_owned);
    Ok(PilotProject { project })
}

fn name_of(context: &Context, args: &PilotUnitArgs) -> Result<PilotUnitName, Failure> {
    let PilotProject { project } = project_of(context, &args.place)?;
    Ok(PilotUnitName { project, unit: args.unit.clone() })
}

async fn plan(
    context: &Context,
    client: &mut EngineClient,
    (goal, place): (&str, &PilotPlace),
    (workflow, link_issue): (Option<String>, Option<u64>),
) -> Result<(), Failure> {
    let PilotProject { project } = project_of(context, place)?;
    let goal = PilotGoal { project, goal: goal.to_owned(), workflow, link_issue };
    let planned = client.ask::<PilotPlan>(&goal).await?;
    context.out.print_either(&planned, |planned| {
        let mut lines: Vec<String> = planned.units.iter().map(describe_line).collect();
        lines.push("`writ pilot approve` shows the whole plan and signs it".to_owned());
        lines
    })?;
    // A plan that waits for its approval is no finished work.
    end_with(Exit::Waiting)
}

async fn approve_plan(
    context: &Context,
    config: &Config,
    client: &mut EngineClient,
    (place, yes, reason): (&PilotPlace, bool, &str),
) -> Result<(), Failure> {
    // Read now: what was shown earlier may have been answered by another.
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
        // It was started above, so any other state is its end. And the loop waits for a person longer than a command does.
        if status.state != "running" || waits_for_person(&status) {
            break;
        }
        sleep(LOOK_EVERY).await;
        status = client.ask::<PilotShow>(&project).await?;
    }
    let exit = exit_of(&status);
    context.out.print_either(&status, |status| {
        let mut lines = describe_status(status);
        lines.push(describe_end(status, exit));
        lines
    })?;
    end_with(exit)
}

/// Returns true if nothing is worked on, and nothing can be before a person answers about a plan or lets one go on.
fn waits_for_person(status: &PilotStatus) -> bool {
    let mut open = status.plans.iter().filter(|plan| !plan.state.is_over()).peekable();
    open.peek().is_some()
        && open.all(|plan| plan.state == WorkState::Proposed || stands_still(plan))
        && !status.units.iter().any(|unit| unit.is_running)
}

/// Returns true for a plan that a person has stopped, or is asked about.
fn stands_still(plan: &PilotPlanLine) -> bool {
    matches!(plan.state, WorkState::Paused | WorkState::Consulting)
}

/// Returns true for a plan of which the approval or the budget has ended, or that has no answer yet.
fn has_lapsed(plan: &PilotPlanLine) -> bool {
    needs_approval(plan.state, &plan.reason)
}

/// Says in one line how a run has ended.
fn describe_end(status: &PilotStatus, exit: Exit) -> String {
    let over = status.units.iter().filter(|unit| unit.is_over).count();
    let size = format!("{over} of {} units are over, {}", status.units.len(), status.cost);
    let end = if exit == Exit::Done {
        "everything is done".to_owned()
    } else if exit == Exit::Waiting {
        "a plan waits for your approval: `writ pilot approve`".to_owned()
    } else if exit == Exit::Blocked {
        match status.blockers.iter().find(|blocker| needs_person(blocker)) {
            Some(one) => {
                format!("{} {} needs you: {}", one.event, escape_line(&one.unit), cut(one.need()))
            }
            None => match status.plans.iter().find(|plan| stands_still(plan)) {
                Some(plan) => {
                    format!("the plan of {} stands still: `writ work resume {}`", plan.milestone, plan.item)
                }
                None if status.state == "failed" => {
                    "a hook has ended it: `writ pilot status` says which; `writ pilot auto` goes on"
                        .to_owned()
                }
                None => match status.plans.iter().find(|plan| has_lapsed(plan)) {
                    Some(plan) => format!(
                        "the plan of {} needs another approval ({}): `writ work retry {}` asks for it",
                        plan.milestone,
                        cut(&plan.reason),
                        plan.item
                    ),
                    None => "it was paused: `writ pilot auto` goes on".to_owned(),
                },
            },
        }
    } else {
        "something was not delivered: `writ pilot status` says what".to_owned()
    };
    format!("ended: {end} ({size})")
}

/// Returns true if what holds a unit up ends by a person's word alone.
fn needs_person(blocker: &PilotBlockerLine) -> bool {
    // Such a unit is being reassessed, unless something else holds it up, too.
    blocker.event != "GateBlocked"
}

/// Returns how a command ends with a project in this state: a person is needed, a plan waits for an approval, something was not
/// delivered, or all is done.
fn exit_of(status: &PilotStatus) -> Exit {
    if status.blockers.iter().any(needs_person) {
        return Exit::Blocked;
    }
    if status.plans.iter().any(|plan| plan.state == WorkState::Proposed) {
        return Exit::Waiting;
    }
    // Paused from elsewhere, interrupted, or ended by a hook: something is left, and nothing works on it.
    let is_left = matches!(status.state.as_str(), "paused" | "interrupted" | "failed");
    if is_left || status.plans.iter().any(stands_still) {
        return Exit::Blocked;
    }
    let is_bad = |plan: &&PilotPlanLine| {
        matches!(
            plan.state,
            WorkState::Failed | WorkState::Stuck | WorkState::OverBudget | WorkState::Cancelled
        )
    };
    if status.plans.iter().any(|plan| is_bad(&plan)) { Exit::Verification } else { Exit::Done }
}

/// Lets a unit go on, or every one that waits for a person's word alone, and the loop with them.
async fn resume(context: &Context, client: &mut EngineClient, args: &PilotResumeArgs) -> Result<(), Failure> {
    if let Some(unit) = &args.unit {
        let named = PilotUnitArgs { unit: unit.clone(), place: args.place.clone() };
        return order(context, client, (&named, &args.reason, PilotOrder::Resume)).await;
    }
    let project = project_of(context, &args.place)?;
    // Conflicts and results that wait are no pauses: each has an order of its own.
    let status = client.ask::<PilotShow>(&project).await?;
    for blocker in status.blockers.iter().filter(|blocker| blocker.event == PAUSED) {
        let order = PilotUnitOrder {
            project: project.project.clone(),
            unit: blocker.unit.clone(),
            order: PilotOrder::Resume,
            reason: args.reason.clone(),
        };
        client.ask::<OrderMethod>(&order).await?;
    }
    // A loop that was paused has no unit that holds it.
    let status = client.ask::<PilotRun>(&project).await?;
    context.out.print_either(&status, describe_status)
}

/// Gives an order with a reason.
async fn obey(
    context: &Context,
    client: &mut EngineClient,
    args: &PilotReasonArgs,
    which: PilotOrder,
) -> Result<(), Failure> {
    order(context, client, (&args.unit, &args.reason, which)).await
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

/// Ships a unit, and says how its request stands.
async fn ship(context: &Context, client: &mut EngineClient, args: &PilotUnitArgs) -> Result<(), Failure> {
    let PilotProject { project } = project_of(context, &args.place)?;
    let (unit, reason) = (args.unit.clone(), String::new());
    let order = PilotUnitOrder { project, unit, order: PilotOrder::Ship, reason };
    let details = client.ask::<OrderMethod>(&order).await?;
    context.out.print_either(&details, |details| details.ship.iter().flat_map(describe_ship).collect())?;
    match details.ship.map(|ship| ship.state) {
        Some(PilotShipState::Asked) => end_with(Exit::Waiting),
        Some(PilotShipState::Failed) => end_with(Exit::Blocked),
        Some(PilotShipState::Pending | PilotShipState::Opened) | None => Ok(()),
    }
}

fn describe_ship(ship: &PilotShip) -> Vec<String> {
    let state = match ship.state {
        PilotShipState::Opened => return vec![format!("request: {}", escape_line(&ship.url))],
        PilotShipState::Pending => "request is on its way",
        PilotShipState::Asked => "request asked about",
        PilotShipState::Failed => "request not opened",
    };
    let code = if ship.code.is_empty() { String::new() } else { format!(" ({})", escape_line(&ship.code)) };
    let mut lines = vec![format!("{state}{code}: {}", escape_line(&ship.text))];
    if !ship.hint.is_empty() {
        lines.push(format!("  {}", escape_line(&ship.hint)));
    }
    lines
}

fn cut(text: &str) -> String {
    let line: String = text.lines().next().unwrap_or_default().chars().take(MAX_REASON).collect();
    escape_line(&line)
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
        let end = describe_gate_end(verdict, &gate.output);
        lines.push(format!("gate {} ({}): {end}", escape_line(&gate.gate), gate.attempt));
    }
    for blocker in &details.blockers {
        lines.push(format!("{}: {}", blocker.event, cut(&blocker.detail)));
    }
    lines.extend(details.ship.iter().flat_map(describe_ship));
    if !details.documents.is_empty() {
        lines.push("proposed change of documents:".to_owned());
        lines.extend(details.documents.lines().map(|line| format!("  {}", escape_line(line))));
    }
    if !details.last_error.is_empty() {
        lines.push("last error:".to_owned());
        lines.extend(details.last_error.lines().map(|line| format!("  {}", escape_line(line))));
    }
    lines
}

#[cfg(test)]
mod tests {
    use writ_types::api::pilot::PilotUnitLine;
    use writ_types::id::{ItemId, PilotId};
    use writ_types::unit::{MicroUsd, Timestamp};

    use super::*;

    fn status(state: &str, plan: WorkState, event: Option<&str>) -> PilotStatus {
        let at = Timestamp::from_millis(0);
        let blocker = |event: &str| PilotBlockerLine {
            unit: "slice/m1/s1".to_owned(),
            event: event.to_owned(),
            detail: "why".to_owned(),
            since: at,
        };
        PilotStatus {
            project: "/p".to_owned(),
            session: PilotId::from_parts(at, 1),
            state: state.to_owned(),
            plans: vec![PilotPlanLine {
                item: ItemId::from_parts(at, 2),
                milestone: "milestone/m1".to_owned(),
                state: plan,
                reason: String::new(),
            }],
            units: Vec::new(),
            blockers: event.into_iter().map(blocker).collect(),
            cost: MicroUsd::ZERO,
            circuits: Vec::new(),
            rate_limits: Vec::new(),
            settings: Vec::new(),
            warnings: Vec::new(),
            next: None,
            since: None,
            model: String::new(),
        }
    }

    /// A run ends with the code of design 3.18, and says in one line how it has ended.
    #[test]
    fn a_run_ends_with_the_code_of_what_is_needed() {
        let cases = [
            ("complete", WorkState::Done, None, Exit::Done, "everything is done"),
            (
                "paused",
                WorkState::Running,
                Some("UATPending"),
                Exit::Blocked,
                "UATPending slice/m1/s1 needs you: why",
            ),
            ("paused", WorkState::Running, Some("MergeConflict"), Exit::Blocked, "MergeConflict"),
            ("paused", WorkState::Running, None, Exit::Blocked, "it was paused"),
            ("failed", WorkState::Running, None, Exit::Blocked, "a hook has ended it"),
            ("paused", WorkState::Stuck, None, Exit::Blocked, "needs another approval"),
            ("paused", WorkState::OverBudget, None, Exit::Blocked, "needs another approval"),
            ("complete", WorkState::Proposed, None, Exit::Waiting, "waits for your approval"),
            ("complete", WorkState::Failed, Some("GateBlocked"), Exit::Verification, "not delivered"),
            ("complete", WorkState::Cancelled, None, Exit::Verification, "not delivered"),
            ("running", WorkState::Proposed, None, Exit::Waiting, "waits for your approval"),
            ("running", WorkState::Paused, None, Exit::Blocked, "the plan of milestone/m1 stands still"),
        ];
        for (state, plan, event, exit, words) in cases {
            let status = status(state, plan, event);
            assert_eq!(exit_of(&status), exit, "{status:?}");
            let line = describe_end(&status, exit);
            assert!(line.starts_with("ended: ") && line.contains(words) && !line.contains('\n'), "{line}");
        }
    }

    /// A command does not wait for a person, also where the loop does; it waits for work that is under way.
    #[test]
    fn a_run_does_not_wait_for_a_person() {
        let waits = |plan| waits_for_person(&status("running", plan, None));
        assert!(waits(WorkState::Proposed) && waits(WorkState::Paused) && waits(WorkState::Consulting));
        assert!(!waits(WorkState::Running) && !waits(WorkState::Done), "the loop ends by itself");
        let mut two = status("running", WorkState::Proposed, None);
        two.plans.extend(status("running", WorkState::Running, None).plans);
        assert!(!waits_for_person(&two), "the other one is worked on");
        let mut busy = status("running", WorkState::Paused, None);
        busy.units.push(PilotUnitLine {
            id: "task/m1/s1/t1".to_owned(),
            title: "add".to_owned(),
            phase: "execute".to_owned(),
            status: "running".to_owned(),
            attempt: 1,
            is_over: false,
            is_running: true,
            cost: MicroUsd::ZERO,
        });
        assert!(!waits_for_person(&busy), "what was begun is waited for");
    }
}
