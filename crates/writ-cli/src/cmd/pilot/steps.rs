//! `writ pilot next` and `writ pilot dispatch`: one unit is handed out, and its run is waited for.

use tokio::time::sleep;
use writ_inspect::show::escape_line;
use writ_runtime::methods::{PilotDispatch, PilotUnit};
use writ_types::api::pilot::{PilotDispatchOrder, PilotDispatched, PilotUnitDetails, PilotUnitName};
use writ_types::error::Exit;

use super::{LOOK_EVERY, cut, describe_line, needs_person, project_of};
use crate::approve::{self, ApprovalChoice};
use crate::args::PilotStep;
use crate::client::EngineClient;
use crate::cmd::chat::end_with;
use crate::config::Config;
use crate::context::Context;
use crate::failure::Failure;

/// The code of an order about a unit that a worker has.
const BUSY: &str = "pilot.busy";

/// Hands a unit out, waits for the end of its run, and prints it. A task in words is asked about first, and done to its end.
pub(super) async fn hand_out(
    context: &Context,
    (client, config): (&mut EngineClient, &Config),
    step: &PilotStep,
) -> Result<(), Failure> {
    let (place, unit, detach, yes) = match step {
        PilotStep::Next { place, detach } => (place, String::new(), *detach, false),
        PilotStep::Dispatch { unit, place, detach, yes } => (place, unit.clone(), *detach, *yes),
    };
    // The engine takes an empty one for `next`.
    if matches!(step, PilotStep::Dispatch { .. }) && unit.trim().is_empty() {
        let hint = "name a unit, as `task/m1/s2/t3`, or say in several words what is to be done";
        return Err(Failure::new(Exit::Usage, "pilot.no_task", "there is no task", hint));
    }
    let project = project_of(context, place)?.project;
    let order = PilotDispatchOrder { project: project.clone(), unit };
    let mut done = client.ask::<PilotDispatch>(&order).await?;
    let Some(unit) = done.unit.clone() else {
        let line = |done: &PilotDispatched| vec![format!("nothing was handed out: {}", cut(&done.note))];
        return context.out.print_either(&done, line);
    };
    let name = PilotUnitName { project: project.clone(), unit: unit.clone() };
    let asked = done.ask.clone();
    if let Some(ask) = &asked {
        if !yes && !context.host.streams.is_interactive() {
            let line = "`writ pilot approve` shows the whole task and signs it";
            context
                .out
                .print_either(&done, |_| vec![format!("{} waits", escape_line(&unit)), line.to_owned()])?;
            return end_with(Exit::Waiting);
        }
        let card = approve::load_card(client, ask).await?;
        let choice = ApprovalChoice::Once;
        approve::approve_ask(context, config, client, (&card, &choice), yes, "").await?;
        done = client.ask::<PilotDispatch>(&PilotDispatchOrder { project, unit: unit.clone() }).await?;
    }
    for warning in &done.warnings {
        context.out.print_remark(format!("warning: {}", escape_line(warning)));
    }
    if detach {
        let line = |_: &PilotDispatched| vec![format!("{} is handed out", escape_line(&unit))];
        return context.out.print_either(&done, line);
    }
    let details = match asked {
        Some(_) => follow_task(context, client, &name).await?,
        None => follow_run(client, &name).await?,
    };
    context.out.print_either(&details, describe_result)?;
    end_with(exit_of(&details))
}

/// Waits for the end of a unit's run.
async fn follow_run(client: &mut EngineClient, name: &PilotUnitName) -> Result<PilotUnitDetails, Failure> {
    // A claim and the end of its run are one commit each, so a unit without a worker has the result.
    loop {
        let details = client.ask::<PilotUnit>(name).await?;
        if !details.unit.is_running {
            return Ok(details);
        }
        sleep(LOOK_EVERY).await;
    }
}

/// Hands a task out again and again, until it is over or a person is needed. Where a loop runs, that does it.
async fn follow_task(
    context: &Context,
    client: &mut EngineClient,
    name: &PilotUnitName,
) -> Result<PilotUnitDetails, Failure> {
    let mut said = String::new();
    loop {
        let details = follow_run(client, name).await?;
        if details.unit.is_over || details.blockers.iter().any(needs_person) {
            return Ok(details);
        }
        let line = describe_line(&details.unit);
        if line != said {
            context.out.print_remark(&line);
            said = line;
        }
        let order = PilotDispatchOrder { project: name.project.clone(), unit: name.unit.clone() };
        match client.ask::<PilotDispatch>(&order).await {
            // Money, a hook or another unit holds it up for now, which may last.
            Ok(done) if !done.note.is_empty() && done.note != said => {
                context.out.print_remark(cut(&done.note));
                said = done.note;
            }
            Ok(_) => {}
            // A worker of the loop has it by now.
            Err(Failure::Report(report)) if report.code == BUSY => {}
            Err(failure) => return Err(failure),
        }
        sleep(LOOK_EVERY).await;
    }
}

/// Describes the run that has ended, and what holds the unit up since.
fn describe_result(details: &PilotUnitDetails) -> Vec<String> {
    let mut lines = vec![describe_line(&details.unit)];
    if let Some(run) = details.runs.last() {
        let outcome = run.outcome.as_deref().unwrap_or("runs");
        let error =
            if run.error.is_empty() { String::new() } else { format!(" ({})", escape_line(&run.error)) };
        lines.push(format!("{} {}: {outcome}{error}, {}, {}", run.phase, run.attempt, run.tokens, run.cost));
    }
    let held = details.blockers.iter();
    lines.extend(held.map(|blocker| format!("{}: {}", blocker.event, cut(&blocker.detail))));
    lines
}

/// Returns how the command ends with a unit in this state.
fn exit_of(details: &PilotUnitDetails) -> Exit {
    if details.blockers.iter().any(needs_person) {
        return Exit::Blocked;
    }
    // A limit may have paused the unit before its first run.
    let is_good = details.runs.last().is_none_or(|run| run.outcome.as_deref() == Some("success"));
    if is_good { Exit::Done } else { Exit::Verification }
}
