//! What a person changes beside the work: the plan is read again, a unit is undone, a conflict is resolved.

use writ_inspect::show::escape_line;
use writ_runtime::methods::{
    PilotEndSession, PilotRateRun, PilotReloadPlan, PilotResetCircuits, PilotResolve, PilotRevertShow,
    PilotRevertUnit,
};
use writ_types::api::pilot::{
    PilotCircuitLine, PilotCircuitsReset, PilotProject, PilotRate, PilotRated, PilotRating, PilotReload,
    PilotReloaded, PilotResolved, PilotRevert, PilotRevertPlan, PilotReverted, PilotUnitName, ResolveState,
    RevertEnd,
};
use writ_types::error::Exit;

use super::{cut, project_of};
use crate::args::{PilotPlace, RatingArg};
use crate::client::EngineClient;
use crate::cmd::chat::end_with;
use crate::context::Context;
use crate::failure::Failure;
use crate::terminal;

/// Reads the plan again, shows its edits, and carries them out once the person has confirmed them.
pub(super) async fn reload(
    context: &Context,
    client: &mut EngineClient,
    (place, yes): (&PilotPlace, bool),
) -> Result<(), Failure> {
    let PilotProject { project } = project_of(context, place)?;
    let order = PilotReload { project: project.clone(), apply: false, digest: String::new() };
    let shown = client.ask::<PilotReloadPlan>(&order).await?;
    if shown.written || shown.edits.is_empty() || !shown.conflicts.is_empty() {
        let is_in_conflict = !shown.conflicts.is_empty();
        context.out.print_either(&shown, describe_edits)?;
        return if is_in_conflict { end_with(Exit::Blocked) } else { Ok(()) };
    }
    // As remarks: the result alone is the output of the command.
    for line in describe_edits(&shown) {
        context.out.print_remark(&line);
    }
    confirm(context, yes, "carry these edits out?")?;
    let order = PilotReload { project, apply: true, digest: shown.digest };
    let done = client.ask::<PilotReloadPlan>(&order).await?;
    let waits = !done.asks.is_empty();
    context.out.print_either(&done, |done| {
        let mut lines = vec![format!("{} edits are carried out", done.edits.len())];
        if waits {
            lines.push("the plan has other words now: `writ pilot approve` shows it and signs it".to_owned());
        }
        lines
    })?;
    if waits { end_with(Exit::Waiting) } else { Ok(()) }
}

fn describe_edits(shown: &PilotReloaded) -> Vec<String> {
    let file = escape_line(&shown.file);
    if shown.written {
        return vec![format!("{file} is written: edit it, then `writ pilot reload` again")];
    }
    let mut lines = Vec::new();
    for edit in &shown.edits {
        let asks = if edit.needs_approval { "  (to be approved anew)" } else { "" };
        lines.push(format!("{} {}: {}{asks}", edit.kind, escape_line(&edit.unit), escape_line(&edit.text)));
    }
    for conflict in &shown.conflicts {
        let line = conflict.line.map(|line| format!(", line {line}")).unwrap_or_default();
        lines.push(format!(
            "conflict {}{line}: {}",
            escape_line(&conflict.unit),
            escape_line(&conflict.reason)
        ));
        lines.push(format!("  hint: {}", escape_line(&conflict.hint)));
    }
    if !shown.conflicts.is_empty() {
        lines.push("nothing was changed: settle the conflicts in the file first".to_owned());
    } else if shown.edits.is_empty() {
        lines.push(format!("{file} says what the units are: nothing is to be done"));
    }
    lines
}

/// Shows the commits of a unit, and undoes them once the person has confirmed them.
pub(super) async fn revert(
    context: &Context,
    client: &mut EngineClient,
    (unit, yes): (&PilotUnitName, bool),
) -> Result<(), Failure> {
    let plan = client.ask::<PilotRevertShow>(unit).await?;
    // Shown also with `--yes`: what is undone stands in the record of the terminal.
    for line in describe_plan(&plan) {
        context.out.print_remark(&line);
    }
    confirm(context, yes, "undo these commits, the newest first?")?;
    let order = PilotRevert { project: unit.project.clone(), unit: unit.unit.clone(), at: plan.at };
    let done = client.ask::<PilotRevertUnit>(&order).await?;
    let exit = match done.end {
        RevertEnd::Reverted | RevertEnd::NothingLeft => Exit::Done,
        RevertEnd::Conflict | RevertEnd::Held => Exit::Blocked,
        RevertEnd::Refused => Exit::Verification,
    };
    context.out.print_either(&done, describe_reverted)?;
    end_with(exit)
}

fn describe_plan(plan: &PilotRevertPlan) -> Vec<String> {
    let mut lines = vec![format!("{} in {}:", escape_line(&plan.unit), escape_line(&plan.target))];
    for commit in &plan.commits {
        lines.push(format!("  {} {} {}", commit.id, commit.at, escape_line(&commit.subject)));
    }
    for merge in &plan.merges {
        lines.push(format!(
            "  {} {} {} (a merge: it stays)",
            merge.id,
            merge.at,
            escape_line(&merge.subject)
        ));
    }
    lines
}

fn describe_reverted(done: &PilotReverted) -> Vec<String> {
    let unit = escape_line(&done.unit);
    let head = match done.end {
        RevertEnd::Reverted => format!("{unit} is undone in {}", escape_line(&done.target)),
        RevertEnd::NothingLeft => format!("{unit}: nothing is left to undo"),
        RevertEnd::Conflict | RevertEnd::Refused | RevertEnd::Held => {
            format!("{unit} is not undone, {} is as it was", escape_line(&done.target))
        }
    };
    let mut lines = vec![head];
    lines.extend((!done.reason.is_empty()).then(|| format!("  {}", escape_line(&done.reason))));
    lines.extend(done.commits.iter().map(|commit| format!("  {commit}")));
    lines
}

/// Begins the resolution of a conflict, or ends it.
pub(super) async fn resolve(
    context: &Context,
    client: &mut EngineClient,
    unit: &PilotUnitName,
) -> Result<(), Failure> {
    let done = client.ask::<PilotResolve>(unit).await?;
    context.out.print_either(&done, describe_resolved)?;
    // The person's part is still to come.
    if done.state == ResolveState::Begun { end_with(Exit::Blocked) } else { Ok(()) }
}

fn describe_resolved(done: &PilotResolved) -> Vec<String> {
    if done.state == ResolveState::Resolved {
        return vec![format!("{} is resolved, and is merged after its gates", escape_line(&done.unit))];
    }
    let mut lines = vec![format!("both sides are in {}; edit there:", escape_line(&done.folder))];
    lines.extend(done.files.iter().map(|file| format!("  {}", escape_line(file))));
    lines.push(format!("then: `writ pilot merge-resolve {}`", escape_line(&done.unit)));
    lines
}

/// Asks the person at the terminal.
fn confirm(context: &Context, yes: bool, question: &str) -> Result<(), Failure> {
    if yes {
        return Ok(());
    }
    if !context.host.streams.is_interactive() {
        // Without a person to ask, silence is no yes: a script has to give it in the command.
        let hint = "look at what is printed, then run it again with --yes";
        return Err(Failure::new(Exit::Blocked, "pilot.no_terminal", "no person can be asked here", hint));
    }
    if terminal::confirm_yes(&context.host.streams, question)? {
        return Ok(());
    }
    Err(Failure::new(Exit::Denied, "pilot.not_confirmed", "nothing was changed", "`--yes` confirms it"))
}

/// Rates a run.
pub(super) async fn rate(
    context: &Context,
    client: &mut EngineClient,
    (place, unit, rating): (&PilotPlace, Option<&str>, RatingArg),
) -> Result<(), Failure> {
    let project = project_of(context, place)?.project;
    let rating = match rating {
        RatingArg::Over => PilotRating::Over,
        RatingArg::Ok => PilotRating::Ok,
        RatingArg::Under => PilotRating::Under,
    };
    let order = PilotRate { project, unit: unit.unwrap_or_default().to_owned(), rating };
    let rated = client.ask::<PilotRateRun>(&order).await?;
    context.out.print_either(&rated, describe_rated)
}

fn describe_rated(rated: &PilotRated) -> Vec<String> {
    let model = if rated.model.is_empty() { "the engine's model" } else { rated.model.as_str() };
    let (unit, phase, class) = (escape_line(&rated.unit), &rated.phase, escape_line(&rated.class));
    let name = rated.rating.name();
    vec![format!(
        "{unit}, {phase}, attempt {}: {} is rated '{name}' for {class}",
        rated.attempt,
        escape_line(model)
    )]
}

/// Closes the circuits of models.
pub(super) async fn reset(
    context: &Context,
    client: &mut EngineClient,
    place: &PilotPlace,
) -> Result<(), Failure> {
    let done = client.ask::<PilotResetCircuits>(&project_of(context, place)?).await?;
    context.out.print_either(&done, describe_reset)
}

/// Ends the session of a project.
pub(super) async fn end_session(
    context: &Context,
    client: &mut EngineClient,
    place: &PilotPlace,
) -> Result<(), Failure> {
    let done = client.ask::<PilotEndSession>(&project_of(context, place)?).await?;
    context.out.print_either(&done, |done| {
        vec![format!("session {} is over; the next work is done in {}", done.ended, done.session)]
    })
}

fn describe_reset(done: &PilotCircuitsReset) -> Vec<String> {
    if done.reset.is_empty() {
        return vec!["none: no circuit was open".to_owned()];
    }
    done.reset.iter().map(|one| format!("{} is asked again", escape_line(&one.model))).collect()
}

/// Describes the circuit of a model in one line.
pub(super) fn describe_circuit(circuit: &PilotCircuitLine) -> String {
    let until = circuit.resets_at.map(|at| format!(" until {at}")).unwrap_or_default();
    let (model, tier) = (escape_line(&circuit.model), escape_line(&circuit.tier));
    format!(
        "circuit of {model} ({tier}): {}{until}, {} failures in a row: {}",
        circuit.state,
        circuit.failures,
        cut(&circuit.reason)
    )
}

#[cfg(test)]
mod tests {
    use writ_types::unit::Timestamp;

    use super::*;

    #[test]
    fn a_circuit_is_described_in_one_line() {
        let circuit = PilotCircuitLine {
            model: "a/one".to_owned(),
            tier: "fast".to_owned(),
            state: "open".to_owned(),
            failures: 3,
            tripped_at: Some(Timestamp::from_millis(0)),
            resets_at: Some(Timestamp::from_millis(86_400_000)),
            reason: "the request\nis not accepted".to_owned(),
        };
        let line = describe_circuit(&circuit);
        assert!(
            line.starts_with("circuit of a/one (fast): open until 1970-01-02")
                && line.contains(", 3 failures in a row: the request")
                && !line.contains('\n'),
            "{line}"
        );
        assert_eq!(describe_reset(&PilotCircuitsReset { reset: vec![circuit] }), ["a/one is asked again"]);
        assert_eq!(describe_reset(&PilotCircuitsReset { reset: Vec::new() }), ["none: no circuit was open"]);
    }
}
