//! Reads of work items, with their steps and attempts.

use rusqlite::{Connection, Row, params};
use writ_types::id::{ItemId, MessageId, SessionId};
use writ_types::unit::{MicroUsd, Timestamp, Tokens};

use super::{MAX_STEPS, WorkAttempt, WorkItem, WorkStepRow};
use crate::bounds::MAX_READ_ROWS;
use crate::codec::{self, get_time, get_uint, query, query_one};
use crate::error::StoreError;

fn decode_item(row: &Row<'_>) -> Result<WorkItem, StoreError> {
    let most = |column: &str| row.get::<_, Option<i64>>(column).map(|most| most.map(codec::uint));
    Ok(WorkItem {
        id: codec::parse("work item id", &row.get::<_, String>("id")?)?,
        name: row.get("name")?,
        kind: row.get("kind")?,
        title: row.get("title")?,
        session: codec::parse("session id", &row.get::<_, String>("session")?)?,
        origin: codec::parse_option("session id", row.get("origin")?)?,
        goal: codec::parse_option("work item id", row.get("goal")?)?,
        project: row.get("project")?,
        state: codec::from_name("state of a work item", row.get("state")?)?,
        version: get_uint(row, "version")?,
        reason: row.get("reason")?,
        document: row.get("document")?,
        taint: codec::from_name("trust of a plan", row.get("taint")?)?,
        ask: codec::parse_option("ask id", row.get("ask")?)?,
        round: row.get("round")?,
        consultations: row.get("consultations")?,
        report: row.get("report")?,
        max_tokens: most("max_tokens")?.map(Tokens::new),
        max_cost: most("max_cost")?.map(MicroUsd::new),
        created_at: get_time(row, "created_at")?,
        changed_at: get_time(row, "changed_at")?,
    })
}

fn decode_step(row: &Row<'_>) -> Result<WorkStepRow, StoreError> {
    Ok(WorkStepRow {
        name: row.get("name")?,
        title: row.get("title")?,
        after: codec::from_json("step", &row.get::<_, String>("after")?)?,
        has_executor: row.get("has_executor")?,
        max_attempts: row.get("max_attempts")?,
        advice: row.get("advice")?,
        state: codec::from_name("state of a step", row.get("state")?)?,
    })
}

fn decode_attempt(row: &Row<'_>) -> Result<WorkAttempt, StoreError> {
    Ok(WorkAttempt {
        item: codec::parse("work item id", &row.get::<_, String>("item")?)?,
        step: usize::try_from(get_uint(row, "step")?).unwrap_or(usize::MAX),
        n: row.get("n")?,
        message: codec::parse_option("message id", row.get("message")?)?,
        state: codec::from_name("state of an attempt", row.get("state")?)?,
        began_at: get_time(row, "began_at")?,
        ended_at: row.get::<_, Option<i64>>("ended_at")?.map(Timestamp::from_millis),
        exit: row.get("exit")?,
        said: row.get("said")?,
        verdict: row.get("verdict")?,
        trace: row.get("trace")?,
        evidence: row.get("evidence")?,
    })
}

pub(crate) fn read_item(conn: &Connection, id: ItemId) -> Result<Option<WorkItem>, StoreError> {
    query_one(conn, "SELECT * FROM work_item WHERE id = ?1", [id.to_string()], decode_item)
}

pub(crate) fn item_named(conn: &Connection, name: &str) -> Result<Option<WorkItem>, StoreError> {
    let sql = "SELECT * FROM work_item WHERE name = ?1 ORDER BY created_at DESC, id DESC LIMIT 1";
    query_one(conn, sql, [name], decode_item)
}

pub(crate) fn item_of_session(conn: &Connection, session: SessionId) -> Result<Option<WorkItem>, StoreError> {
    let sql = "SELECT * FROM work_item WHERE session = ?1 ORDER BY created_at DESC, id DESC LIMIT 1";
    query_one(conn, sql, [session.to_string()], decode_item)
}

pub(crate) fn newest_items(conn: &Connection, limit: usize) -> Result<Vec<WorkItem>, StoreError> {
    let sql = "SELECT * FROM work_item ORDER BY created_at DESC, id DESC LIMIT ?1";
    query(conn, sql, [codec::limit(limit)], decode_item)
}

pub(crate) fn active_items(conn: &Connection, limit: usize) -> Result<Vec<WorkItem>, StoreError> {
    let sql = "SELECT * FROM work_item WHERE is_active = 1 ORDER BY created_at, id LIMIT ?1";
    query(conn, sql, [codec::limit(limit)], decode_item)
}

pub(crate) fn read_steps(conn: &Connection, item: ItemId) -> Result<Vec<WorkStepRow>, StoreError> {
    let sql = "SELECT * FROM work_step WHERE item = ?1 ORDER BY n LIMIT ?2";
    query(conn, sql, params![item.to_string(), codec::limit(MAX_STEPS)], decode_step)
}

fn read_attempts(conn: &Connection, item: ItemId) -> Result<Vec<WorkAttempt>, StoreError> {
    let sql = "SELECT * FROM work_attempt WHERE item = ?1 ORDER BY step, n LIMIT ?2";
    query(conn, sql, params![item.to_string(), codec::limit(MAX_READ_ROWS)], decode_attempt)
}

pub(crate) fn attempt_of(conn: &Connection, message: MessageId) -> Result<Option<WorkAttempt>, StoreError> {
    query_one(conn, "SELECT * FROM work_attempt WHERE message = ?1", [message.to_string()], decode_attempt)
}

/// An item as it stands: with its steps and attempts.
pub type WholeItem = (WorkItem, Vec<WorkStepRow>, Vec<WorkAttempt>);

pub(crate) fn whole_item(conn: &Connection, id: ItemId) -> Result<Option<WholeItem>, StoreError> {
    // One snapshot, so that steps and attempts belong to the version of the item.
    codec::snapshot(conn, |conn| {
        let Some(item) = read_item(conn, id)? else { return Ok(None) };
        Ok(Some((item, read_steps(conn, id)?, read_attempts(conn, id)?)))
    })
}
