//! Reads of work items, with their steps and attempts.

use rusqlite::{Connection, Row, params};
use writ_types::api::work::StepState;
use writ_types::id::{ItemId, MessageId, SessionId};
use writ_types::unit::{MicroUsd, Timestamp, Tokens};
use writ_types::work::DomainTag;

use super::{MAX_OPEN_ITEMS, MAX_STEPS, WorkAttempt, WorkItem, WorkStepRow};
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
        domains: codec::from_json("domains", &row.get::<_, String>("domains")?)?,
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
        is_held: row.get("is_held")?,
        holds: row.get("holds")?,
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

/// An item as lists show it: without its plan and its attempts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkLine {
    /// The item; its plan and its report are empty.
    pub item: WorkItem,
    /// The number of its steps.
    pub steps: usize,
    /// Those that are done.
    pub steps_done: usize,
    /// What its session has used since it was renewed.
    pub tokens: Tokens,
    /// What its session has cost since it was renewed.
    pub cost: MicroUsd,
}

/// The keys of a session's metadata with what it had used and cost when it was renewed.
const BASES: [&str; 2] = ["$.budget_base", "$.budget_cost_base"];

/// The condition for the row of usage of a work item: that of its session, and of a plan of the autopilot that of all its attempts.
const USED_BY: &str = "usage.kind = CASE work_item.kind WHEN 'pilot' THEN 'item' ELSE 'session' END
                AND usage.key = CASE work_item.kind WHEN 'pilot' THEN work_item.id ELSE work_item.session END";

/// Returns the newest items, all or those with a domain, as lists show them, with one query. Attempts of the autopilot that are over stay out: a plan has many.
pub(crate) fn lines(
    conn: &Connection,
    domain: Option<&DomainTag>,
    limit: usize,
) -> Result<Vec<WorkLine>, StoreError> {
    let sql = format!(
        "SELECT id, name, kind, title, session, origin, goal, project, state, version, reason, '' AS document, ask,
               round, consultations, '' AS report, max_tokens, max_cost, created_at, changed_at, taint, domains,
               (SELECT count(*) FROM work_step WHERE work_step.item = work_item.id) AS steps,
               (SELECT count(*) FROM work_step WHERE work_step.item = work_item.id AND work_step.state = ?2) AS done,
               (SELECT input + output FROM usage WHERE {USED_BY}) AS tokens,
               (SELECT cost FROM usage WHERE {USED_BY}) AS cost,
               (SELECT json_extract(metadata, ?3) FROM session WHERE session.id = work_item.session) AS base,
               (SELECT json_extract(metadata, ?4) FROM session WHERE session.id = work_item.session) AS cost_base
               FROM work_item WHERE (is_active = 1 OR goal IS NULL
               OR goal NOT IN (SELECT id FROM work_item WHERE kind = 'pilot'))
               AND (?5 IS NULL OR EXISTS (SELECT 1 FROM json_each(work_item.domains) WHERE value = ?5))
               ORDER BY created_at DESC, id DESC LIMIT ?1"
    );
    let domain = domain.map(DomainTag::as_str);
    let values = params![codec::limit(limit), StepState::Done.name(), BASES[0], BASES[1], domain];
    query(conn, &sql, values, |row| {
        let amount = |column: &str| row.get::<_, Option<i64>>(column).map(|most| most.map_or(0, codec::uint));
        let count = |column: &str| amount(column).map(|count| usize::try_from(count).unwrap_or(usize::MAX));
        Ok(WorkLine {
            item: decode_item(row)?,
            steps: count("steps")?,
            steps_done: count("done")?,
            tokens: Tokens::new(amount("tokens")?.saturating_sub(amount("base")?)),
            cost: MicroUsd::new(amount("cost")?.saturating_sub(amount("cost_base")?)),
        })
    })
}

/// Returns the items that are not over, oldest first.
pub(crate) fn active_items(conn: &Connection, limit: usize) -> Result<Vec<ItemId>, StoreError> {
    let sql = "SELECT id FROM work_item WHERE is_active = 1 ORDER BY created_at, id LIMIT ?1";
    query(conn, sql, [codec::limit(limit)], decode_id)
}

/// Returns the items that a goal has started and that are not over, oldest first.
pub(crate) fn children_of(conn: &Connection, goal: ItemId) -> Result<Vec<ItemId>, StoreError> {
    let sql = "SELECT id FROM work_item WHERE goal = ?1 AND is_active = 1 ORDER BY created_at, id LIMIT ?2";
    query(conn, sql, params![goal.to_string(), codec::limit(MAX_OPEN_ITEMS)], decode_id)
}

/// An item that a goal has started: its id, its session, and when it began.
pub type StartedItem = (ItemId, SessionId, Timestamp);

/// Returns the items with a name that a goal has started, also those that are over, oldest first.
pub(crate) fn started_by(
    conn: &Connection,
    goal: ItemId,
    name: &str,
    limit: usize,
) -> Result<Vec<StartedItem>, StoreError> {
    let sql = "SELECT id, session, created_at FROM work_item WHERE goal = ?1 AND name = ?2
               ORDER BY created_at, id LIMIT ?3";
    query(conn, sql, params![goal.to_string(), name, codec::limit(limit)], |row| {
        let session = codec::parse("session id", &row.get::<_, String>("session")?)?;
        Ok((decode_id(row)?, session, Timestamp::from_millis(row.get("created_at")?)))
    })
}

fn decode_id(row: &Row<'_>) -> Result<ItemId, StoreError> {
    codec::parse("work item id", &row.get::<_, String>(0)?)
}

/// The message of an attempt that was set aside without a turn, and the reason.
pub type DeadAttempt = (MessageId, String);

/// Returns the attempts of an item that run, with messages that were set aside.
pub(crate) fn dead_attempts(conn: &Connection, item: ItemId) -> Result<Vec<DeadAttempt>, StoreError> {
    let sql = "SELECT message.id, message.error FROM work_attempt JOIN message ON message.id = work_attempt.message
               WHERE work_attempt.item = ?1 AND work_attempt.state = 'running' AND message.state = 'dead' LIMIT ?2";
    query(conn, sql, params![item.to_string(), codec::limit(MAX_STEPS)], |row| {
        Ok((codec::parse("message id", &row.get::<_, String>(0)?)?, row.get(1)?))
    })
}

pub(crate) fn read_steps(conn: &Connection, item: ItemId) -> Result<Vec<WorkStepRow>, StoreError> {
    let sql = "SELECT * FROM work_step WHERE item = ?1 ORDER BY n LIMIT ?2";
    query(conn, sql, params![item.to_string(), codec::limit(MAX_STEPS)], decode_step)
}

/// The evidence that is read with the attempts of an item: it is large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EvidenceRange {
    /// That of the newest attempts at each step, for the next one.
    Newest,
    /// As much as people are shown.
    Shown,
}

impl EvidenceRange {
    /// The number of attempts at each step, and over all steps, of which the evidence is read.
    const fn most(self) -> (usize, usize) {
        match self {
            Self::Newest => (2, MAX_STEPS),
            Self::Shown => (8, 256),
        }
    }
}

fn read_attempts(
    conn: &Connection,
    item: ItemId,
    evidence: EvidenceRange,
) -> Result<Vec<WorkAttempt>, StoreError> {
    let sql = "SELECT item, step, n, message, state, began_at, ended_at, exit, said, verdict, trace, is_held, holds,
               CASE WHEN row_number() OVER (PARTITION BY step ORDER BY n DESC) <= ?3
                     AND row_number() OVER (ORDER BY began_at DESC, step DESC, n DESC) <= ?4
                    THEN evidence ELSE '' END AS evidence
               FROM work_attempt WHERE item = ?1 ORDER BY step, n LIMIT ?2";
    let (each, all) = evidence.most();
    let values =
        params![item.to_string(), codec::limit(MAX_READ_ROWS), codec::limit(each), codec::limit(all)];
    query(conn, sql, values, decode_attempt)
}

pub(crate) fn attempt_of(conn: &Connection, message: MessageId) -> Result<Option<WorkAttempt>, StoreError> {
    query_one(conn, "SELECT * FROM work_attempt WHERE message = ?1", [message.to_string()], decode_attempt)
}

/// An item as it stands: with its steps and attempts.
pub type WholeItem = (WorkItem, Vec<WorkStepRow>, Vec<WorkAttempt>);

pub(crate) fn whole_item(
    conn: &Connection,
    id: ItemId,
    evidence: EvidenceRange,
) -> Result<Option<WholeItem>, StoreError> {
    // One snapshot, so that steps and attempts belong to the version of the item.
    codec::snapshot(conn, |conn| {
        let Some(item) = read_item(conn, id)? else { return Ok(None) };
        Ok(Some((item, read_steps(conn, id)?, read_attempts(conn, id, evidence)?)))
    })
}
