//! `writ pilot next` and `writ pilot dispatch`: one unit is handed out, and its run is waited for.

use tokio::time::sleep;
use writ_inspect::show::escape_line;
use writ_runtime::methods::{PilotDispatch, PilotUnit};
use writ_types::api::pilot::{PilotDispatchOrder, PilotDispatched, PilotUnitDetails, PilotUnitName};
use writ_types::error::Exit;

use super::{LOOK_EVERY, cut, describe_line, needs_person, project_of};
use crate::args::PilotStep;
use crate::client::EngineClient;
use crate::cmd::chat::end_with;
use crate::context::Context;
use crate::failure::Failure;

/// Hands a unit out, waits for the end of its run, and prints it.
pub(super) async fn hand_out(
    context: &Context,
    client: &mut EngineClient,
    step: &PilotStep,
) -> Result<(), Failure> {
    let (place, unit, detach) = match step {
        PilotStep::Next { place, detach } => (place, String::new(), *detach),
        PilotStep::Dispatch { unit, detach } => (&unit.place, unit.unit.clone(), *detach),
    };
    let project = project_of(context, place)?.project;
    let order = PilotDispatchOrder { project: project.clone(), unit };
    let done = client.ask::<PilotDispatch>(&order).await?;
    for warning in &done.warnings {
        context.out.print_remark(format!("warning: {}", escape_line(warning)));
    }
    let Some(unit) = done.unit.clone() else {
        let line = |done: &PilotDispatched| vec![format!("nothing was handed out: {}", cut(&done.note))];
        return context.out.print_either(&done, line);
    };
    if detach {
        let line = |_: &PilotDispatched| vec![format!("{} is handed out", escape_line(&unit))];
        return context.out.print_either(&done, line);
    }
    let name = PilotUnitName { project, unit };
    // A claim and the end of its run are one commit each, so a unit without a worker has the result.
    let details = loop {
        let details = client.ask::<PilotUnit>(&name).await?;
        if !details.unit.is_running {
            break details;
        }
        sleep(LOOK_EVERY).await;
    };
    context.out.print_either(&details, describe_result)?;
    end_with(exit_of(&details))
}

/// Describes the run that has ended, and what holds the unit up since.
fn describe_result(details: &PilotUnitDetails) -> Vec<String> {
    let mut lines = vec![describe_line(&details.unit)];
    if let Some(run) = details.runs.last() {
        let outcome = run.outcome.as_deref().unwrap_or("runs");
        let error =
            if run.error.is_empty() { String::new() } else { format!(" ({})", escape_line(&run.error)) };
        lines.push(format!(
            "{} {}: {outcome}{error}, {} tokens, {}",
            run.phase, run.attempt, run.tokens, run.cost
        ));
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
