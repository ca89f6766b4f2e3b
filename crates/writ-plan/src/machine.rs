//! The machine of work items: which state follows which, and what may be done next.
//!
//! Pure: an item as it stands in, moves out. The driver writes each move down and performs it, so a crash between two
//! moves loses none and repeats none: the same item has the same moves again.

use writ_types::api::work::{StepState, WorkState};
use writ_types::digest::Digest;
use writ_types::work::{OnStuck, Verdict, WorkStep};

use crate::order::{self, MAX_PARALLEL, steps_to_begin};
use crate::run::has_executor;

/// Attempts in a row that end in the same way before the step counts as stuck.
const SAME_ENDS: usize = 2;

/// An event in the life of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WorkEvent {
    /// A person has approved its plan.
    Approve,
    /// A person has refused its plan.
    Deny,
    /// A person stops it for a while.
    Pause,
    /// A person lets it go on.
    Resume,
    /// A person ends it, or its plan was not answered in time.
    Cancel,
    /// A person wants another try: its plan is asked about again.
    Retry,
    /// The planner is asked for advice.
    Consult,
    /// The planner has given advice, or none in time: the step is looked at again.
    Advise,
    /// The planner has made another plan.
    Replan,
    /// It cannot go on without a person.
    Stick,
    /// Its budget is used up.
    SpendOut,
    /// Every check has passed.
    Finish,
    /// A check has not passed, and no attempt is left.
    Fail,
}

impl WorkEvent {
    /// Every event.
    pub const ALL: [Self; 13] = [
        Self::Approve,
        Self::Deny,
        Self::Pause,
        Self::Resume,
        Self::Cancel,
        Self::Retry,
        Self::Consult,
        Self::Advise,
        Self::Replan,
        Self::Stick,
        Self::SpendOut,
        Self::Finish,
        Self::Fail,
    ];
}

/// Returns the state after an event; `None` if the event does not fit the state, and then nothing happens.
// tidy: table
pub const fn next_state(state: WorkState, event: WorkEvent) -> Option<WorkState> {
    use WorkEvent as On;
    use WorkState::{
        Cancelled, Consulting, Denied, Done, Failed, OverBudget, Paused, Proposed, Running, Stuck,
    };
    match (state, event) {
        (Proposed, On::Approve) | (Paused, On::Resume) | (Consulting, On::Advise) => Some(Running),
        (Proposed, On::Deny) => Some(Denied),
        (Running | Consulting, On::Pause) => Some(Paused),
        (Proposed | Running | Paused | Consulting | Stuck, On::Cancel) => Some(Cancelled),
        // More than was approved needs another approval, also where only the attempts are used up.
        (Stuck | OverBudget | Failed | Cancelled | Denied, On::Retry) => Some(Proposed),
        (Running, On::Consult) => Some(Consulting),
        // Another plan is another approval.
        (Consulting, On::Replan) => Some(Proposed),
        (Running | Consulting | Paused, On::Stick) => Some(Stuck),
        (Running | Consulting | Paused, On::SpendOut) => Some(OverBudget),
        (Running, On::Finish) => Some(Done),
        (Running | Consulting, On::Fail) => Some(Failed),
        (
            Proposed | Running | Paused | Consulting | Stuck | OverBudget | Done | Failed | Cancelled
            | Denied,
            On::Approve
            | On::Deny
            | On::Pause
            | On::Resume
            | On::Cancel
            | On::Retry
            | On::Consult
            | On::Advise
            | On::Replan
            | On::Stick
            | On::SpendOut
            | On::Finish
            | On::Fail,
        ) => None,
    }
}

/// A step as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepView {
    /// Its state.
    pub state: StepState,
    /// The most attempts.
    pub max_attempts: u32,
    /// The ends of its attempts that were judged, in their order.
    pub ends: Vec<AttemptEnd>,
}

/// The end of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttemptEnd {
    /// The verdict of all of its checks together.
    pub verdict: Verdict,
    /// The digest of what was left and shown: two attempts with the same one have come no further.
    pub trace: Digest,
}

/// An item as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkView<'a> {
    /// Its state.
    pub state: WorkState,
    /// The steps of its plan, as they are run: [`crate::run::run_steps`].
    pub plan: &'a [WorkStep],
    /// The progress of each of them.
    pub steps: Vec<StepView>,
    /// The reaction to an item that does not come further.
    pub on_stuck: OnStuck,
    /// The number of times that the planner was asked for advice.
    pub consultations: u32,
    /// Set if nothing is left of its tokens or its money.
    pub is_spent: bool,
}

/// The most times that the planner is asked for advice about one round of an item.
pub const MAX_CONSULTATIONS: u32 = 1;
/// The number of consultations after which the planner is not asked again: after the advice, one other plan (SIL-224).
pub const MAX_QUESTIONS: u32 = MAX_CONSULTATIONS + 1;

/// The next thing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    /// Hand a step to an executor.
    Start(usize),
    /// Run the checks of a step.
    Check(usize),
    /// Ask the planner for advice about a step.
    Consult(usize),
    /// Ask the planner for another plan, because a step has failed.
    Replan(usize),
    /// Wait for a person: a step does not come further.
    Stick(usize),
    /// End the item: a step has failed.
    Fail(usize),
    /// End the item: its budget is used up.
    SpendOut,
    /// End the item: all of its steps are done.
    Finish,
}

/// Returns what is to be done next with an item. Nothing: something is under way, or a person's word is needed.
pub fn next_moves(item: &WorkView<'_>) -> Vec<Move> {
    if item.state != WorkState::Running {
        // Attempts that have ended are judged even during a pause, so that no result is missing afterwards.
        return if item.state == WorkState::Paused { due_checks(item) } else { Vec::new() };
    }
    let is_in = |state: StepState| item.steps.iter().any(|step| step.state == state);
    if let Some(failed) = item.steps.iter().position(|step| step.state == StepState::Failed) {
        // Others that are under way end first: their results belong into the report.
        if is_in(StepState::Running) {
            return Vec::new();
        }
        let checks = due_checks(item);
        return if checks.is_empty() { vec![after_failure(item, failed)] } else { checks };
    }
    let checks = due_checks(item);
    if !checks.is_empty() {
        return checks;
    }
    if !item.steps.is_empty() && item.steps.iter().all(|step| step.state == StepState::Done) {
        return vec![Move::Finish];
    }
    if is_in(StepState::Checking) {
        // Checks look at a tree that no executor changes meanwhile.
        return Vec::new();
    }
    let starts = startable(item);
    // Steps of checks alone cost nothing, and run without a budget too.
    if item.is_spent && starts.iter().any(|n| item.plan.get(*n).is_some_and(has_executor)) {
        return if is_in(StepState::Running) { Vec::new() } else { vec![Move::SpendOut] };
    }
    starts.into_iter().map(Move::Start).collect()
}

/// Returns the checks that can be run: none while an executor still changes the tree that they look at.
fn due_checks(item: &WorkView<'_>) -> Vec<Move> {
    if item.steps.iter().any(|step| step.state == StepState::Running) {
        return Vec::new();
    }
    let due = (0..).zip(&item.steps).filter(|(_, step)| step.state == StepState::Checking);
    due.map(|(n, _)| Move::Check(n)).collect()
}

/// Returns what follows a step without an attempt left, as the plan says.
fn after_failure(item: &WorkView<'_>, step: usize) -> Move {
    // Advice is for an executor: checks alone would show the same again.
    let is_executed = item.plan.get(step).is_some_and(has_executor);
    match item.on_stuck {
        // Without a budget the planner's answer could not be paid, nor followed.
        OnStuck::ConsultPlanner if item.is_spent => Move::Stick(step),
        OnStuck::ConsultPlanner if is_executed && item.consultations < MAX_CONSULTATIONS => {
            Move::Consult(step)
        }
        OnStuck::ConsultPlanner if item.consultations < MAX_QUESTIONS => Move::Replan(step),
        // The harness has done all that it can.
        OnStuck::ConsultPlanner => Move::Stick(step),
        OnStuck::AskPerson if item.steps.get(step).is_some_and(is_stuck) => Move::Stick(step),
        OnStuck::AskPerson | OnStuck::Stop => Move::Fail(step),
    }
}

/// Returns the steps that may begin now, in the order of the plan.
fn startable(item: &WorkView<'_>) -> Vec<usize> {
    let state = |step: &StepView| match step.state {
        StepState::Waiting => order::StepPhase::Waiting,
        // Until its checks have passed, a step holds the files that it changes.
        StepState::Running | StepState::Checking => order::StepPhase::Running,
        StepState::Done => order::StepPhase::Done,
        StepState::Failed => order::StepPhase::Ended,
    };
    let states: Vec<order::StepPhase> = item.steps.iter().map(state).collect();
    steps_to_begin(item.plan, &states, MAX_PARALLEL)
}

/// Returns the state of a step after its checks.
pub fn judged_state(plan: &WorkStep, step: &StepView, last: AttemptEnd) -> StepState {
    if last.verdict == Verdict::Pass {
        return StepState::Done;
    }
    let mut ends = step.ends.clone();
    ends.push(last);
    let judged = StepView { ends, ..step.clone() };
    let used = u32::try_from(judged.ends.len()).unwrap_or(u32::MAX);
    // Without an executor nothing would be different at another attempt.
    if !has_executor(plan) || used >= step.max_attempts || is_stuck(&judged) {
        StepState::Failed
    } else {
        StepState::Waiting
    }
}

/// Returns true if the last attempts at a step have ended in the same way.
pub fn is_stuck(step: &StepView) -> bool {
    let Some(from) = step.ends.len().checked_sub(SAME_ENDS) else { return false };
    let last = step.ends.get(from..).unwrap_or_default();
    let first = last.first().map(|end| end.trace);
    last.iter().all(|end| end.verdict != Verdict::Pass && Some(end.trace) == first)
}

#[cfg(test)]
mod tests;
