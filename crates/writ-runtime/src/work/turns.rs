//! The turns of an attempt of the autopilot: after each one the attempt rests until the autopilot has decided what follows.

use std::sync::Arc;

use writ_store::work::{AttemptState, WorkAttempt, WorkOp};
use writ_types::api::work::WorkState;
use writ_types::error::Exit;
use writ_types::taint::Taint;

use super::{ItemCourse, attempt, held};
use crate::error::EngineError;
use crate::services::Services;
use crate::work_calls::{AttemptOrder, attempt_id, turn_id};

/// A turn that has ended, after which another one may follow.
pub(crate) struct RestingTurn<'a> {
    /// Its attempt.
    pub(crate) attempt: &'a WorkAttempt,
    /// Set if it was cut where it had asked its model as often as one turn may.
    pub(crate) is_cut: bool,
}

/// Returns the last turn of an attempt if what follows it is the autopilot's to say; `None`: it runs, is held, or ends the attempt.
///
/// # Errors
///
/// If the store cannot be read.
pub(crate) async fn resting_turn<'a>(
    services: &Services,
    course: &'a ItemCourse,
) -> Result<Option<RestingTurn<'a>>, EngineError> {
    let last = course.attempts.last();
    let Some(attempt) = last.filter(|last| last.state == AttemptState::Ended && !last.is_held) else {
        return Ok(None);
    };
    // Nothing is left for another one.
    if !has_turns(services, course) || course.is_spent() {
        return Ok(None);
    }
    let is_cut = held::is_turn_cut(services, course, attempt).await?;
    let is_resting = is_cut || attempt.exit == Some(Exit::Done.code());
    Ok(is_resting.then_some(RestingTurn { attempt, is_cut }))
}

/// Returns true if an attempt can have several turns. The owner's coding agent begins each one anew, without any memory, so it has one.
fn has_turns(services: &Services, course: &ItemCourse) -> bool {
    let writes = course.session.plan_above().is_some_and(|under| !under.reads_only);
    let is_program = writes && services.life.desks.coding.get().is_some();
    course.session.has_turns() && !is_program
}

/// Does what is to follow an attempt's last turn. Returns false if the attempt is to be judged now.
///
/// # Errors
///
/// If as many executors work as may, if the attempt is not as it was read, or the store cannot be read or written.
pub(super) async fn waits_for_turn(
    services: &Arc<Services>,
    course: &ItemCourse,
    ended: &WorkAttempt,
) -> Result<bool, EngineError> {
    if resting_turn(services, course).await?.is_none() {
        return Ok(false);
    }
    let item = course.item.id;
    match services.life.work.turn_order(item) {
        Some(AttemptOrder::End) => Ok(false),
        // During a pause of its plan nothing begins; the order stays.
        Some(AttemptOrder::Next { turn, text, after }) if course.item.state == WorkState::Running => {
            let (step, n) = (ended.step, ended.n);
            let client_id = turn_id(&attempt_id(&course.item, step, n), turn);
            let about = (step, Taint::External, format!("turn {turn} of attempt {n}: {after}"));
            attempt::send(services, course, about, (text.to_string(), client_id), |message| {
                WorkOp::NextTurn { item, step, n, message }
            })
            .await?;
            services.life.work.forget_order(item);
            Ok(true)
        }
        Some(AttemptOrder::Next { .. }) | None => Ok(true),
    }
}
