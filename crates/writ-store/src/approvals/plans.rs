//! Approved plans, and how often their steps were done.

use rusqlite::{Connection, Row, params};
use writ_policy::approval::NONCE_NAMESPACE;
use writ_policy::permit::{ApprovalUse, PlanUse};
use writ_types::id::{AskId, KeyId, SessionId};
use writ_types::unit::{MicroUsd, Timestamp};

use super::{not_before, record_nonce};
use crate::bounds::MAX_READ_ROWS;
use crate::codec::{self, execute, get_time, get_uint, int, query, query_one};
use crate::error::{Conflict, StoreError};

/// An approved plan to store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewPlan {
    /// The ask that was approved.
    pub ask: AskId,
    /// The session that it belongs to.
    pub session: SessionId,
    /// The id of its task key.
    pub key: KeyId,
    /// The task key, as text.
    pub token: String,
    /// From when it is good.
    pub begins_at: Timestamp,
    /// When it ends.
    pub ends_at: Timestamp,
    /// The session's spending before the plan.
    pub cost_before: MicroUsd,
    /// The most that it may spend from then on.
    pub max_cost: Option<MicroUsd>,
    /// The number of times that each step may be done, in order.
    pub times: Vec<u32>,
}

/// An approved plan that is in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanRow {
    /// The ask that was approved: what it would perform is the plan.
    pub ask: AskId,
    /// The session that it belongs to.
    pub session: SessionId,
    /// The id of its task key.
    pub key: KeyId,
    /// The task key, as text.
    pub token: String,
    /// When it ends.
    pub ends_at: Timestamp,
    /// The money that may still be spent; `None`: not limited.
    pub cost_left: Option<MicroUsd>,
    /// The number of times that each step may still be done, in order.
    pub left: Vec<u32>,
}

/// The spending of the session of a row of `plan`.
const SPENT: &str =
    "coalesce((SELECT cost FROM usage WHERE kind = 'session' AND usage.key = plan.session), 0)";
/// The condition for one session, or for all.
const OF_SESSION: &str = "(?1 IS NULL OR plan.session = ?1)";

pub(crate) fn store_plan(conn: &Connection, plan: &NewPlan) -> Result<(), StoreError> {
    let added = execute(
        conn,
        "INSERT OR IGNORE INTO plan (ask, session, key, token, begins_at, ends_at, cost_before, max_cost)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        params![
            plan.ask.as_str(),
            plan.session.to_string(),
            plan.key.to_string(),
            plan.token,
            plan.begins_at.as_millis(),
            plan.ends_at.as_millis(),
            int(plan.cost_before.get()),
            plan.max_cost.map(|most| int(most.get())),
        ],
    )?;
    if added == 0 {
        return Err(Conflict::Exists { what: "plan", id: plan.ask.to_string() }.into());
    }
    // Steps are rows, so that each use is one row's compare-and-swap.
    for (step, times) in (0_i64..).zip(&plan.times) {
        let sql = "INSERT INTO plan_step (ask, step, max_uses) VALUES (?1, ?2, ?3)";
        execute(conn, sql, params![plan.ask.as_str(), step, times])?;
    }
    Ok(())
}

/// Uses a step of a plan: compare-and-swap, and a nonce of its own.
pub(super) fn consume_step(
    conn: &Connection,
    approval: &ApprovalUse,
    used: PlanUse,
    now: Timestamp,
) -> Result<(), StoreError> {
    let spent = || StoreError::from(Conflict::ApprovalSpent(approval.ask.clone()));
    if not_before(conn)? > now {
        return Err(spent());
    }
    // The plan and its approval are checked in the statement that counts: a revocation that came before it refuses this step.
    let sql = format!(
        "UPDATE plan_step SET uses = uses + 1
         WHERE ask = ?1 AND step = ?2 AND uses < max_uses AND max_uses = ?3
         AND EXISTS (
             SELECT 1 FROM plan JOIN approval ON approval.ask = plan.ask
             WHERE plan.ask = ?1 AND plan.key = ?4 AND plan.ends_at > ?6 AND plan.begins_at <= ?7
             AND approval.nonce = ?5 AND approval.revoked = 0 AND approval.expires_at > ?6
             AND approval.executions_used = 1
             AND NOT EXISTS (SELECT 1 FROM revocation WHERE revocation.id = plan.key)
             AND (max_cost IS NULL OR max_cost > {SPENT} - cost_before))
         RETURNING uses"
    );
    let uses: Option<u32> = query_one(
        conn,
        &sql,
        params![
            approval.ask.as_str(),
            used.step,
            used.times,
            used.key.to_string(),
            approval.nonce,
            now.as_millis(),
            // The clock may have been set back a little since the plan began.
            now.as_millis().saturating_add(super::MAX_CLOCK_BACK_MS),
        ],
        |row| Ok(row.get(0)?),
    )?;
    let uses = uses.ok_or_else(spent)?;
    // Each step has nonces of its own, derived from the signed one.
    let nonce = format!("{}/step/{}/{uses}", approval.nonce, used.step);
    let sql = "SELECT ends_at FROM plan WHERE ask = ?1";
    let ends: Option<i64> = query_one(conn, sql, [approval.ask.as_str()], |row| Ok(row.get(0)?))?;
    let ends = Timestamp::from_millis(ends.ok_or_else(spent)?);
    match record_nonce(conn, NONCE_NAMESPACE, &nonce, ends) {
        Err(StoreError::Conflict(Conflict::NonceSeen { .. })) => Err(spent()),
        recorded => recorded,
    }
}

fn decode_plan(row: &Row<'_>) -> Result<PlanRow, StoreError> {
    let most: Option<i64> = row.get("max_cost")?;
    let spent = get_uint(row, "spent")?.saturating_sub(get_uint(row, "cost_before")?);
    let left = |most: i64| MicroUsd::new(u64::try_from(most).unwrap_or(0).saturating_sub(spent));
    Ok(PlanRow {
        ask: codec::parse("ask id", &row.get::<_, String>("ask")?)?,
        session: codec::parse("session id", &row.get::<_, String>("session")?)?,
        key: codec::parse("key id", &row.get::<_, String>("key")?)?,
        token: row.get("token")?,
        ends_at: get_time(row, "ends_at")?,
        cost_left: most.map(left),
        left: Vec::new(),
    })
}

pub(crate) fn read_plans(
    conn: &Connection,
    session: Option<SessionId>,
    now: Timestamp,
    limit: usize,
) -> Result<Vec<PlanRow>, StoreError> {
    plans_where(conn, OF_SESSION, session.map(|id| id.to_string()), now, limit)
}

pub(crate) fn plans_left(
    conn: &Connection,
    session: Option<SessionId>,
    now: Timestamp,
    limit: usize,
) -> Result<Vec<PlanRow>, StoreError> {
    let which = format!(
        "{OF_SESSION} AND (max_cost IS NULL OR max_cost > {SPENT} - cost_before)
         AND EXISTS (SELECT 1 FROM plan_step WHERE plan_step.ask = plan.ask AND uses < max_uses)"
    );
    plans_where(conn, &which, session.map(|id| id.to_string()), now, limit)
}

pub(crate) fn plan_of(conn: &Connection, ask: &AskId, now: Timestamp) -> Result<Option<PlanRow>, StoreError> {
    let found = plans_where(conn, "plan.ask = ?1", Some(ask.to_string()), now, 1)?;
    Ok(found.into_iter().next())
}

pub(crate) fn plan_under(conn: &Connection, key: KeyId) -> Result<Option<PlanRow>, StoreError> {
    let (of, ever) = (Some(key.to_string()), Timestamp::from_millis(i64::MIN));
    let found = plans_where(conn, "plan.key = ?1", of, ever, 1)?;
    Ok(found.into_iter().next())
}

fn plans_where(
    conn: &Connection,
    which: &str,
    of: Option<String>,
    now: Timestamp,
    limit: usize,
) -> Result<Vec<PlanRow>, StoreError> {
    let sql = format!(
        "SELECT plan.*, {SPENT} AS spent FROM plan JOIN approval ON approval.ask = plan.ask
         WHERE {which} AND plan.ends_at > ?2 AND approval.revoked = 0
         AND NOT EXISTS (SELECT 1 FROM revocation WHERE revocation.id = plan.key)
         ORDER BY begins_at DESC, plan.ask LIMIT ?3"
    );
    let params = params![of, now.as_millis(), codec::limit(limit)];
    let mut plans = query(conn, &sql, params, decode_plan)?;
    for plan in &mut plans {
        let sql = "SELECT max_uses - uses FROM plan_step WHERE ask = ?1 ORDER BY step LIMIT ?2";
        let params = params![plan.ask.as_str(), codec::limit(MAX_READ_ROWS)];
        plan.left = query(conn, sql, params, |row| Ok(row.get(0)?))?;
    }
    Ok(plans)
}
