//! Another plan for an item: its steps take the place of the old ones, and what is known of a step goes with it.

use rusqlite::{Connection, params};
use writ_types::api::work::StepState;
use writ_types::id::ItemId;
use writ_types::taint::Taint;

use super::{MAX_DOCUMENT_BYTES, MAX_STEPS, WorkStepRow, cut, insert_steps, number, require_item};
use crate::codec::{self, execute};
use crate::error::{Conflict, StoreError};

/// Numbers of steps while they are exchanged: beyond those of every plan, so that none has the number of another.
const ASIDE: usize = MAX_STEPS;

/// Another plan for an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewCourse {
    /// The item.
    pub item: ItemId,
    /// The plan, as JSON.
    pub document: String,
    /// The trust of what it rests on.
    pub taint: Taint,
    /// The steps in their new order, each with the number of the old step that has its attempts, if there is one. Attempts at
    /// steps that are in no place any more are deleted.
    pub steps: Vec<(WorkStepRow, Option<usize>)>,
}

pub(super) fn apply(conn: &Connection, course: &NewCourse) -> Result<(), StoreError> {
    codec::check_bytes("plan of a work item", &course.document, MAX_DOCUMENT_BYTES)?;
    if course.steps.len() > MAX_STEPS {
        return Err(StoreError::TooLarge { what: "number of steps of a work item", limit: MAX_STEPS });
    }
    let item = course.item.to_string();
    let sql = "UPDATE work_item SET document = ?2, taint = ?3, round = round + 1, report = '', ask = NULL WHERE id = ?1";
    require_item(course.item, execute(conn, sql, params![item, course.document, course.taint.as_str()])?)?;
    // Attempts refer to their step: the new steps are put aside, take the attempts over, and then the places of the old ones.
    let aside = |n: usize| number(ASIDE.saturating_add(n));
    let rows = || (0..).zip(course.steps.iter().map(|(row, _)| row));
    insert_steps(conn, course.item, rows().map(|(n, row)| (aside(n), row)))?;
    let take_over = "UPDATE work_attempt SET step = ?3 WHERE item = ?1 AND step = ?2";
    for (n, old) in (0..).zip(course.steps.iter().map(|(_, old)| *old)) {
        if let Some(old) = old {
            execute(conn, take_over, params![item, number(old), aside(n)])?;
        }
    }
    execute(conn, "DELETE FROM work_step WHERE item = ?1 AND n < ?2", params![item, number(ASIDE)])?;
    insert_steps(conn, course.item, rows().map(|(n, row)| (number(n), row)))?;
    for (n, _) in rows() {
        execute(conn, take_over, params![item, aside(n), number(n)])?;
    }
    execute(conn, "DELETE FROM work_step WHERE item = ?1 AND n >= ?2", params![item, number(ASIDE)])?;
    Ok(())
}

/// Gives a failed step advice and one more attempt.
pub(super) fn advise(
    conn: &Connection,
    (item, step): (ItemId, usize),
    advice: &str,
) -> Result<(), StoreError> {
    let (waiting, failed) = (StepState::Waiting.name(), StepState::Failed.name());
    let changed = execute(
        conn,
        "UPDATE work_step SET state = ?3, advice = ?4, max_attempts = max_attempts + 1
         WHERE item = ?1 AND n = ?2 AND state = ?5",
        params![item.to_string(), number(step), waiting, cut(advice), failed],
    )?;
    if changed == 0 {
        return Err(Conflict::Missing { what: "failed step", id: format!("{item}/{step}") }.into());
    }
    Ok(())
}
