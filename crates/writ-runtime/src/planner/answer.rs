//! The planner's answers about work items that are stuck: guidance for the next attempt, or another plan. Each answer is
//! stored in the last commit of the planner's turn, so a crash neither loses nor repeats it.

use std::time::Duration;

use writ_plan::check::check_plan;
use writ_plan::machine::{MAX_CONSULTATIONS, WorkEvent, next_state};
use writ_plan::read::read_plan;
use writ_store::batch::Op;
use writ_store::reads::WorkReads as _;
use writ_store::work::{NewCourse, WholeItem, WorkItem, WorkOp, WorkStepRow};
use writ_types::api::work::{StepState, WorkState};
use writ_types::id::{ItemId, SessionId};
use writ_types::taint::{Label, Taint};
use writ_types::unit::Timestamp;
use writ_types::work::{PlanDocument, WorkStep};

use super::PlannerMessage;
use crate::error::EngineError;
use crate::proposals::read_document;
use crate::proposals::steps::{check_names, planned_steps, step_rows};
use crate::services::Services;
use crate::work_calls::change_state;

/// The longest wait for guidance, as the requirements say (SIL-223).
pub(crate) const GUIDANCE_WAIT: Duration = Duration::from_secs(90);
/// The longest wait for another plan: the planner reads the project first, and may be asked a second time.
pub(crate) const REPLAN_WAIT: Duration = Duration::from_secs(600);

/// The name of the only open step if the other plan consists of prose without steps.
const REST_STEP: &str = "rest";

/// Returns the trace of the question that an item waits for. An answer with another trace belongs to an earlier question.
pub(crate) fn trace_of(item: ItemId, round: u32, question: u32) -> String {
    format!("{item}/{round}/{question}")
}

/// Returns the kind of the question that an item in consultation waits for, and the time at which the wait ends.
pub(crate) fn question_of(item: &WorkItem) -> (PlannerMessage, Timestamp) {
    // Counted from the stored time of the change of state, so a restart of the engine does not lengthen the wait.
    let (kind, wait) = if item.consultations <= MAX_CONSULTATIONS {
        (PlannerMessage::ConsultPlanner, GUIDANCE_WAIT)
    } else {
        (PlannerMessage::ReplanRequest, REPLAN_WAIT)
    };
    (kind, item.changed_at.plus_duration(wait))
}

/// Returns the operations that store an answer and move its item on; empty if no item waits for this answer any more. If the
/// answer is unusable, or its turn failed (`is_done` is false), the item moves on without it: to another plan, or to a person.
///
/// # Errors
///
/// If the store cannot be read.
pub(crate) async fn answer_ops(
    services: &Services,
    session: SessionId,
    (kind, trace): (PlannerMessage, &str),
    (text, is_done): (&str, bool),
) -> Result<Vec<Op>, EngineError> {
    let Some(id) = trace.split('/').next().and_then(|id| id.parse::<ItemId>().ok()) else {
        return Ok(Vec::new());
    };
    let Some(whole) = services.journal.store.whole_work_item(id).await? else { return Ok(Vec::new()) };
    let item = &whole.0;
    let (wanted, until) = question_of(item);
    let is_asked = item.state == WorkState::Consulting
        && item.session == session
        && wanted == kind
        && trace == trace_of(item.id, item.round, item.consultations);
    // A late answer is ignored: the periodic check of waiting items moves the item on.
    if !is_asked || services.journal.clock.now() > until {
        return Ok(Vec::new());
    }
    let answer = services.journal.redactor.mask_text(text);
    let counted = match kind {
        PlannerMessage::ConsultPlanner if is_done => advise(services, &whole, &answer),
        PlannerMessage::ReplanRequest if is_done => replan(services, &whole, &answer)?,
        PlannerMessage::ConsultPlanner
        | PlannerMessage::ReplanRequest
        | PlannerMessage::PlanRequest
        | PlannerMessage::PilotQuestion => None,
    };
    let without = || {
        let why = match kind {
            PlannerMessage::ReplanRequest => "the planner has made no other plan that can be run",
            PlannerMessage::ConsultPlanner | PlannerMessage::PlanRequest | PlannerMessage::PilotQuestion => {
                "the planner has given no guidance"
            }
        };
        tracing::warn!(item = %item.id, why, "an item goes on without the planner");
        moved(services, item, (WorkEvent::Advise, why), Vec::new())
    };
    Ok(counted.unwrap_or_else(without))
}

/// Returns the operations that change an item's state and record the change, followed by `more`.
fn moved(services: &Services, item: &WorkItem, (event, why): (WorkEvent, &str), more: Vec<Op>) -> Vec<Op> {
    let Some(state) = next_state(item.state, event) else { return Vec::new() };
    let mut ops = change_state(&services.journal, item, state, why);
    ops.extend(more);
    ops
}

/// Gives the failed step the guidance and one more attempt. `None` if no step has failed or the guidance is empty.
fn advise(services: &Services, (item, rows, _): &WholeItem, answer: &str) -> Option<Vec<Op>> {
    let step = rows.iter().position(|row| row.state == StepState::Failed)?;
    let advice = answer.trim();
    if advice.is_empty() {
        return None;
    }
    let advised = Op::Work(WorkOp::Advise { item: item.id, step, advice: advice.to_owned() });
    Some(moved(services, item, (WorkEvent::Advise, "the planner has given guidance"), vec![advised]))
}

/// Proposes the other plan as a new round, which needs an approval of its own. `None` if the plan cannot be used.
fn replan(
    services: &Services,
    (item, rows, attempts): &WholeItem,
    answer: &str,
) -> Result<Option<Vec<Op>>, EngineError> {
    let Ok(planned) = read_plan(answer) else { return Ok(None) };
    let old = read_document(item)?;
    let Some(document) = join_plans(&old, rows, planned) else { return Ok(None) };
    let label = Label::new(Taint::External);
    // A plan that no approval could be asked for is useless: the item would wait for a question that is never asked.
    if check_names(services, &document).is_err() || planned_steps(services, &document, &label).is_err() {
        return Ok(None);
    }
    let made = |step: usize| attempts.iter().filter(|attempt| attempt.step == step).count();
    let steps = step_rows(&document).into_iter().map(|row| {
        let Some(n) = rows.iter().position(|old| old.name == row.name) else { return (row, None) };
        let max_attempts = row.max_attempts.saturating_add(u32::try_from(made(n)).unwrap_or(u32::MAX));
        match rows.get(n) {
            Some(old) if old.state == StepState::Done => {
                (WorkStepRow { after: row.after, ..old.clone() }, Some(n))
            }
            Some(_) | None => (WorkStepRow { max_attempts, ..row }, Some(n)),
        }
    });
    let course = NewCourse {
        item: item.id,
        document: crate::proposals::to_json(&document)?,
        // The plan rests on the output of checks, which is external content.
        taint: Taint::External,
        steps: steps.collect(),
    };
    let why = "the planner has made another plan, which waits for an approval";
    let mut ops = vec![Op::Work(WorkOp::Replan(Box::new(course)))];
    // The approval of the failed plan does not cover this one.
    ops.extend(item.ask.clone().map(|ask| Op::RevokeApproval { ask }));
    Ok(Some(moved(services, item, (WorkEvent::Replan, why), ops)))
}

/// Joins the finished steps with the steps of another plan. The name, kind, limits, gates and final checks of the old plan
/// stay, because only the way to the goal may change, not the goal. `None` if the joined plan has nothing to do or is not valid.
fn join_plans(old: &PlanDocument, rows: &[WorkStepRow], planned: PlanDocument) -> Option<PlanDocument> {
    let is_done = |name: &str| rows.iter().any(|row| row.name == name && row.state == StepState::Done);
    let mut steps: Vec<WorkStep> = old.steps.iter().filter(|step| is_done(&step.id)).cloned().collect();
    let done = steps.len();
    steps.extend(planned.steps.into_iter().filter(|step| !is_done(&step.id)));
    // If the other plan brings no new step, its prose becomes the only remaining step.
    if steps.len() == done && done > 0 {
        steps.push(rest_step(&planned.title, &planned.instructions, &steps));
    }
    let names: Vec<String> = steps.iter().map(|step| step.id.clone()).collect();
    for step in steps.iter_mut().skip(done) {
        // A step that waits for a step that does not exist would wait for ever.
        step.after.retain(|name| names.contains(name));
        step.artifacts_from.retain(|name| names.contains(name));
    }
    let document =
        PlanDocument { steps, context: planned.context, instructions: planned.instructions, ..old.clone() };
    check_plan(&document).is_ok().then_some(document)
}

/// Returns a step made from the prose of a plan without steps.
fn rest_step(title: &str, instructions: &str, steps: &[WorkStep]) -> WorkStep {
    let mut id = REST_STEP.to_owned();
    while steps.iter().any(|step| step.id == id) {
        id.push('-');
    }
    WorkStep { id, title: title.to_owned(), instructions: instructions.to_owned(), ..WorkStep::default() }
}

#[cfg(test)]
mod tests {
    use writ_plan::run::run_steps;
    use writ_types::work::WorkKind;

    use super::*;

    fn plan(text: &str) -> PlanDocument {
        let steps: String = text
            .split_whitespace()
            .map(|id| format!("  - id: {id}\n    title: {id}\n    do: the {id} of {text}\n"))
            .collect();
        let steps = if steps.is_empty() { steps } else { format!("steps:\n{steps}") };
        let text = format!(
            "---\nid: mend\ntype: task\ntitle: Mend\n{steps}verify:\n  - name: whole\n    run: make\n    expect: {{ exit_code: 0 }}\n---\n\n# What to do\n\nAll of {text}.\n"
        );
        read_plan(&text).expect("a plan")
    }

    fn rows(old: &PlanDocument, done: &[&str]) -> Vec<WorkStepRow> {
        let mut rows = step_rows(old);
        for row in rows.iter_mut().filter(|row| done.contains(&row.name.as_str())) {
            row.state = StepState::Done;
        }
        rows
    }

    /// A finished step stays as it was approved, even if the planner writes it differently; the final checks stay too.
    #[test]
    fn another_plan_keeps_what_is_done_and_the_aim() {
        let old = plan("read build ship");
        let done = rows(&old, &["read"]);
        let mut other = plan("read mend ship");
        (other.checks, other.kind) = (Vec::new(), WorkKind::Project);
        other.steps[2].after = vec!["build".to_owned(), "mend".to_owned()];
        let joined = join_plans(&old, &done, other.clone()).expect("fits");
        let names: Vec<&str> = joined.steps.iter().map(|step| step.id.as_str()).collect();
        assert_eq!(names, ["read", "mend", "ship"]);
        assert_eq!(joined.steps[0], old.steps[0], "the planner's new text for it is ignored");
        assert_eq!(joined.steps[2].after, ["mend"], "no step waits for a step that was removed");
        assert_eq!((joined.kind, &joined.checks), (WorkKind::Task, &old.checks));
        assert_eq!(joined.instructions, other.instructions);
        assert_eq!(run_steps(&joined).len(), 3);
    }

    #[test]
    fn prose_alone_is_the_rest_of_what_is_done() {
        let old = plan("read build");
        let joined = join_plans(&old, &rows(&old, &["read"]), plan("")).expect("fits");
        let names: Vec<&str> = joined.steps.iter().map(|step| step.id.as_str()).collect();
        assert_eq!(names, ["read", REST_STEP]);
        let whole = join_plans(&old, &rows(&old, &[]), plan("")).expect("fits");
        assert!(whole.steps.is_empty(), "nothing is done: the prose is the one step");
    }
}
