//! Plans of the autopilot and their attempts, as far as they differ from other items.
//!
//! The plan has no steps that the engine runs: the autopilot's shell says which unit is next ([`crate::pilot`]). Each attempt is
//! an item of its own, in a session of its own on a work tree, under a key that is derived from that of the plan. What it spends
//! counts to the plan.

use std::sync::Arc;

use writ_plan::machine::{WorkEvent, next_state};
use writ_store::batch::Op;
use writ_store::work::AttemptState;
use writ_types::api::work::WorkState;
use writ_types::entry::Fact;
use writ_types::error::Exit;
use writ_types::work::WorkKind;

use super::{ItemCourse, move_on, out_of_order};
use crate::budget;
use crate::error::EngineError;
use crate::services::Services;

/// Looks after a plan that runs or is paused: it ends where its approval or its budget has ended.
///
/// # Errors
///
/// If the store cannot be read or written.
pub(super) async fn look_after(services: &Arc<Services>, course: &ItemCourse) -> Result<bool, EngineError> {
    let is_open = matches!(course.item.state, WorkState::Running | WorkState::Paused);
    if !is_open {
        return Ok(false);
    }
    if let Some(why) = out_of_order(services, course).await? {
        move_on(services, course, WorkEvent::Stick, &why).await?;
    } else if course.is_spent() {
        move_on(services, course, WorkEvent::SpendOut, "its budget is used up").await?;
    }
    Ok(false)
}

/// The reason of an attempt that an earlier engine has left.
const LEFT: &str = "the engine that ran it has ended";

/// Ends the attempts that an earlier engine has left open, before any turn begins: a turn that was cut in half is not resumed, no tool
/// call of it is repeated, and the autopilot begins another attempt. One that cannot be ended now is in the log; the opening of its
/// project tries again.
pub(crate) async fn end_left_attempts(services: &Services) {
    for id in super::open_items(services).await {
        let ended = async {
            match ItemCourse::read(services, id).await? {
                Some(course) if course.is_attempt() && !course.item.state.is_over() => {
                    move_on(services, &course, WorkEvent::Cancel, LEFT).await.map(drop)
                }
                Some(_) | None => Ok(()),
            }
        };
        if let Err(error) = ended.await {
            let report = services.journal.report(&error);
            tracing::error!(item = %id, inside = report.inside, "an attempt of an earlier engine is not ended");
        }
    }
}

/// The reason of a plan that ended since no person answered its card.
pub(super) const NOT_ANSWERED: &str = "its plan was not answered in time";

/// Returns true for a plan that goes on only after another approval: the one before has ended or its budget is used up, or no person
/// has answered. What a person has refused or cancelled wants none.
pub fn needs_approval(state: WorkState, reason: &str) -> bool {
    match state {
        WorkState::Stuck | WorkState::OverBudget => true,
        WorkState::Cancelled => reason == NOT_ANSWERED,
        WorkState::Proposed
        | WorkState::Running
        | WorkState::Paused
        | WorkState::Consulting
        | WorkState::Done
        | WorkState::Failed
        | WorkState::Denied => false,
    }
}

/// Returns the event of an attempt: one that cannot go on has failed, since the autopilot begins another and asks people itself.
pub(super) fn event_of(course: &ItemCourse, event: WorkEvent) -> WorkEvent {
    if !course.is_attempt() || event != WorkEvent::Stick {
        return event;
    }
    if next_state(course.item.state, WorkEvent::Fail).is_some() { WorkEvent::Fail } else { WorkEvent::Cancel }
}

/// Returns the words for the end of an attempt that has failed; none for other items.
pub(super) fn words_of_failure(course: &ItemCourse, step: usize) -> Option<String> {
    if !course.is_attempt() {
        return None;
    }
    let last = course.attempts_at(step).filter(|attempt| attempt.state == AttemptState::Judged).last()?;
    let exit = last.exit.and_then(exit_of);
    Some(match exit {
        Some(Exit::Budget) => "its turn has ended: a budget is used up".to_owned(),
        Some(exit) => format!("its turn has ended as {exit:?}").to_lowercase(),
        None => "its turn has not ended well".to_owned(),
    })
}

/// Returns the exit with a code.
pub(crate) fn exit_of(code: u8) -> Option<Exit> {
    Exit::ALL.into_iter().find(|exit| exit.code() == code)
}

/// Ends the plan of an attempt that has ended for want of a budget, where the plan has no more room than the attempt had.
///
/// # Errors
///
/// If the store cannot be read or written.
pub(super) async fn spend_out(services: &Services, course: &ItemCourse) -> Result<(), EngineError> {
    let Some(under) = course.session.plan_above().filter(|_| course.is_spent()) else { return Ok(()) };
    let Some(plan) = ItemCourse::read(services, under.item).await? else { return Ok(()) };
    let limits = (plan.item.max_tokens, plan.item.max_cost);
    let (tokens, cost) = budget::read_left(services, &plan.session, under.item, limits).await?;
    let own = &course.spent;
    let has_tokens = |left| course.limits.max_tokens_per_session.saturating_sub(own.session_tokens) >= left;
    let has_cost = |left| {
        course.limits.max_cost_per_session.is_none_or(|most| most.saturating_sub(own.session_cost) >= left)
    };
    let is_out = tokens.is_some_and(has_tokens) || cost.is_some_and(has_cost);
    if is_out && next_state(plan.item.state, WorkEvent::SpendOut).is_some() {
        move_on(services, &plan, WorkEvent::SpendOut, "its budget is used up").await?;
    }
    Ok(())
}

/// Stops the turns of an attempt that has ended.
pub(super) async fn stop(course: &ItemCourse) {
    course.session.stop_turns().await;
}

/// Calls for a look at the plan of an attempt, and tells the autopilot that something has changed.
pub(super) fn tell_above(services: &Services, course: &ItemCourse) {
    if let Some(under) = course.session.plan_above() {
        services.life.work.call_item(under.item);
    }
    if course.is_attempt() || course.document.kind == WorkKind::Pilot {
        services.life.work.note_pilot();
    }
}

/// The operations that end the keys of an attempt, so that what still runs ends with its next request.
pub(super) fn end_rest(services: &Services, course: &ItemCourse) -> Vec<Op> {
    if course.is_attempt() { revoke_keys(services, course) } else { Vec::new() }
}

fn revoke_keys(services: &Services, course: &ItemCourse) -> Vec<Op> {
    let acting: Vec<_> = {
        let state = course.session.state();
        state.keys.task.clone().into_iter().chain(state.acting()).collect()
    };
    let mut ops = Vec::new();
    for authority in acting {
        let task = authority.task();
        let key = task.key.to_string();
        if ops.iter().any(|op| matches!(op, Op::Revoke { id, .. } if *id == key)) {
            continue;
        }
        let fact = Fact::Keyed {
            key: task.key,
            role: "task".to_owned(),
            change: "revoked".to_owned(),
            grants: "its attempt has ended".to_owned(),
        };
        ops.push(services.journal.entry(course.session.id, None, fact));
        let (at, expires_at) = (services.journal.clock.now(), Some(task.expires_at));
        ops.push(Op::Revoke { id: key, at, expires_at });
    }
    ops
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A plan without an approval in force wants another one; what a person has ended, and what is over or under way, does not.
    #[test]
    fn only_a_plan_that_lapsed_needs_another_approval() {
        use WorkState::{
            Cancelled, Consulting, Denied, Done, Failed, OverBudget, Paused, Proposed, Running, Stuck,
        };
        for lapsed in [Stuck, OverBudget] {
            assert!(needs_approval(lapsed, "any reason"), "{lapsed:?}");
        }
        assert!(needs_approval(Cancelled, NOT_ANSWERED));
        assert!(!needs_approval(Cancelled, "a person has ended it"));
        for other in [Proposed, Running, Paused, Consulting, Done, Failed, Denied] {
            assert!(!needs_approval(other, NOT_ANSWERED), "{other:?}");
        }
    }
}
