//! Asks, approvals, nonces, revocations and approver keys.

use rusqlite::{Connection, Row, params};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use writ_inspect::prepared::Prepared;
use writ_policy::approval::{NONCE_NAMESPACE, TaskTerms};
use writ_policy::permit::ApprovalUse;
use writ_types::digest::Digest;
use writ_types::entry::Entry;
use writ_types::frame::Card;
use writ_types::id::AskId;
use writ_types::unit::{Amount, Timestamp};

use crate::codec::{self, execute, get_time, query, query_one};
use crate::error::{Conflict, StoreError};

/// The state of an ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AskState {
    /// Not answered.
    Open,
    /// It may be performed.
    Approved,
    /// It may not.
    Denied,
    /// Not answered in time.
    Expired,
    /// It was approved and that approval was used.
    Used,
}

impl AskState {
    /// The name used in records and on screens.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Approved => "approved",
            Self::Denied => "denied",
            Self::Expired => "expired",
            Self::Used => "used",
        }
    }
}

/// An ask with what it would perform.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredAsk {
    /// The card that the person sees; its `state` is the present one.
    pub card: Card,
    /// The action that is performed when it is approved.
    pub prepared: Prepared,
    /// Its state.
    pub state: AskState,
    /// When it was answered or ended.
    pub resolved_at: Option<Timestamp>,
    /// The key or person that answered; empty while it is open.
    pub resolved_by: String,
    /// The reason, in the person's words.
    pub reason: String,
}

/// A stored approval.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredApproval {
    /// The ask that it answers.
    pub ask: AskId,
    /// The hash that it was given for.
    pub prepared: Digest,
    /// Its nonce.
    pub nonce: String,
    /// The signed token.
    pub token: Value,
    /// When it ends.
    pub expires_at: Timestamp,
    /// The most uses: one, or more where it is for a task or stands.
    pub max_uses: u64,
    /// The uses so far.
    pub executions_used: u64,
    /// True if it outlives its session.
    pub standing: bool,
    /// The rest of its total, in millionths, where one was signed.
    pub total_left: Option<u64>,
    /// True if it was revoked.
    pub revoked: bool,
}

/// An ask to open.
///
/// If an ask for the same prepared hash is open and has not ended, that one is returned and neither
/// `entry` nor the card's frame is written. Otherwise `entry` is appended, and a card of a session
/// becomes a frame of it.
#[derive(Clone, Debug, PartialEq)]
pub struct NewAsk {
    /// The card that the person sees; names ask, hash, session and times.
    pub card: Card,
    /// The action that is performed when it is approved.
    pub prepared: Prepared,
    /// The fact that it is asked.
    pub entry: Entry,
}

/// A signed approval.
#[derive(Clone, Debug, PartialEq)]
pub struct NewApproval {
    /// The ask that it answers.
    pub ask: AskId,
    /// The hash that it was given for.
    pub prepared: Digest,
    /// Its nonce.
    pub nonce: String,
    /// The signed token.
    pub token: Value,
    /// When it ends.
    pub expires_at: Timestamp,
    /// The terms of the task that it covers as well, if any.
    pub task: Option<TaskTerms>,
}

/// The approval of one of several people.
#[derive(Clone, Debug, PartialEq)]
pub struct NewPart {
    /// The ask that it answers.
    pub ask: AskId,
    /// The key that signed.
    pub by: String,
    /// The signed token.
    pub token: Value,
    /// When.
    pub at: Timestamp,
}

/// The open ask for a hash, if it has not ended at `now`.
pub(crate) fn find_open(
    conn: &Connection,
    prepared: Digest,
    now: Timestamp,
) -> Result<Option<AskId>, StoreError> {
    // The other asks that have ended are left to the sweep that also notifies their watchers.
    execute(
        conn,
        "UPDATE ask SET state = 'expired', resolved_at = ?2
         WHERE prepared_hash = ?1 AND state = 'open' AND expires_at <= ?2",
        params![prepared.to_string(), now.as_millis()],
    )?;
    let sql = "SELECT id FROM ask WHERE prepared_hash = ?1 AND state = 'open'";
    query_one(conn, sql, [prepared.to_string()], |row| codec::parse("ask id", &row.get::<_, String>("id")?))
}

pub(crate) fn open_ask(conn: &Connection, ask: &NewAsk) -> Result<(), StoreError> {
    let card = &ask.card;
    let added = execute(
        conn,
        "INSERT OR IGNORE INTO ask (id, session, prepared_hash, state, card, prepared, asked_at, expires_at)
         VALUES (?1, ?2, ?3, 'open', ?4, ?5, ?6, ?7)",
        params![
            card.ask_id.as_str(),
            card.session.map(|id| id.to_string()),
            card.prepared.to_string(),
            codec::to_json("card", card)?,
            codec::to_json("prepared action", &ask.prepared)?,
            card.asked_at.as_millis(),
            card.expires_at.as_millis(),
        ],
    )?;
    if added == 0 {
        return Err(Conflict::Exists { what: "ask", id: card.ask_id.to_string() }.into());
    }
    Ok(())
}

pub(crate) fn resolve_ask(
    conn: &Connection,
    ask: &AskId,
    state: AskState,
    at: Timestamp,
    by: &str,
    reason: &str,
) -> Result<(), StoreError> {
    match state {
        AskState::Approved | AskState::Denied | AskState::Expired => {}
        AskState::Open | AskState::Used => {
            return Err(Conflict::Order("an ask is resolved as approved, denied or expired").into());
        }
    }
    codec::check_size("reason", reason)?;
    // Too late is too late: an ask that has ended can only expire, even if it was approved and not performed.
    let sql = "UPDATE ask SET state = ?2, resolved_at = ?3, resolved_by = ?4, reason = ?5
               WHERE id = ?1 AND ((state = 'open' AND (?2 = 'expired' OR expires_at > ?3))
                                  OR (state = 'approved' AND ?2 = 'expired' AND (expires_at <= ?3 OR EXISTS (
                                      SELECT 1 FROM approval WHERE approval.ask = ask.id AND revoked = 1))))";
    let changed = execute(conn, sql, params![ask.as_str(), state.as_str(), at.as_millis(), by, reason])?;
    if changed == 0 { Err(Conflict::AskNotOpen(ask.clone()).into()) } else { Ok(()) }
}

pub(crate) fn expire_asks(conn: &Connection, now: Timestamp) -> Result<u64, StoreError> {
    let changed = execute(
        conn,
        "UPDATE ask SET state = 'expired', resolved_at = ?1
         WHERE state IN ('open', 'approved') AND expires_at <= ?1",
        [now.as_millis()],
    )?;
    Ok(u64::try_from(changed).unwrap_or(u64::MAX))
}

pub(crate) fn store_approval(conn: &Connection, approval: &NewApproval) -> Result<(), StoreError> {
    // The hash is compared here too: an approval counts for what was shown and nothing else.
    let sql = "SELECT prepared_hash FROM ask WHERE id = ?1 AND state = 'approved'";
    let asked: Option<String> = query_one(conn, sql, [approval.ask.as_str()], |row| Ok(row.get(0)?))?;
    if asked != Some(approval.prepared.to_string()) {
        return Err(Conflict::Order("an approval needs an approved ask for the same hash").into());
    }
    let added = execute(
        conn,
        "INSERT OR IGNORE INTO approval
         (ask, prepared_hash, nonce, token, expires_at, pattern, max_uses, standing, total_max)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
        params![
            approval.ask.as_str(),
            approval.prepared.to_string(),
            approval.nonce,
            codec::to_json("approval", &approval.token)?,
            approval.expires_at.as_millis(),
            approval.task.map(|task| task.pattern.to_string()),
            approval.task.map_or(1, |task| task.uses),
            approval.task.is_some_and(|task| task.standing.is_some()),
            signed_total(approval.task),
        ],
    )?;
    if added == 0 {
        return Err(Conflict::Exists { what: "approval", id: approval.ask.to_string() }.into());
    }
    Ok(())
}

/// The total that was signed, in millionths.
fn signed_total(task: Option<TaskTerms>) -> Option<i64> {
    task?.standing?.total.map(to_millionths)
}

/// As a column has it: an [`Amount`] is far below the end of its range.
fn to_millionths(amount: Amount) -> i64 {
    i64::try_from(amount.millionths()).unwrap_or(i64::MAX)
}

/// The most milliseconds by which a clock may be behind the latest entry of the ledger: as much as a signer's
/// clock may be ahead.
pub const MAX_CLOCK_BACK_MS: i64 = 60_000;

/// The number of latest entries that the clock is compared with.
const CLOCK_ENTRIES: i64 = 4_096;

/// The time before which it cannot be, by the ledger: a clock that says less was set back, and what has ended does not
/// begin again. An entry or two that were written since with the earlier time do not hide the later ones.
pub(crate) fn not_before(conn: &Connection) -> Result<Timestamp, StoreError> {
    let sql = "SELECT max(at) AS at FROM (SELECT at FROM ledger ORDER BY seq DESC LIMIT ?1)";
    let latest: Option<Option<i64>> = query_one(conn, sql, [CLOCK_ENTRIES], |row| Ok(row.get(0)?))?;
    let latest = latest.flatten().unwrap_or(i64::MIN);
    Ok(Timestamp::from_millis(latest.saturating_sub(MAX_CLOCK_BACK_MS)))
}

/// Uses an approval: compare-and-swap, its nonce, and the ask's state. What was shown is done first; only then does an
/// approval for the task cover what is alike.
pub(crate) fn consume_approval(
    conn: &Connection,
    approval: &ApprovalUse,
    now: Timestamp,
) -> Result<(), StoreError> {
    let spent = || StoreError::from(Conflict::ApprovalSpent(approval.ask.clone()));
    if let Some(used) = approval.plan {
        return plans::consume_step(conn, approval, used, now);
    }
    // A clock that was set back must not revive an approval that has ended.
    let valid = now.max(not_before(conn)?);
    // That time stands still while the clock is behind it: what lasts would last for as long.
    if approval.task.is_some() && valid > now {
        return Err(spent());
    }
    // Conditions and count are one statement, so that no two attempts both find the last use.
    let row: Option<(i64, u64)> = query_one(
        conn,
        "UPDATE approval SET executions_used = executions_used + 1, total_used = total_used + coalesce(?7, 0)
         WHERE ask = ?1 AND nonce = ?3 AND revoked = 0 AND expires_at > ?4
         AND executions_used < min(max_uses, ?5) AND pattern IS ?6
         AND total_max IS ?8 AND (total_max IS NULL) = (?7 IS NULL)
         AND (total_max IS NULL OR total_used + ?7 <= total_max)
         AND (CASE executions_used WHEN 0 THEN prepared_hash = ?2 ELSE pattern IS NOT NULL END)
         RETURNING expires_at, executions_used",
        params![
            approval.ask.as_str(),
            approval.prepared.to_string(),
            approval.nonce,
            valid.as_millis(),
            approval.task.map_or(1, |task| task.uses),
            approval.task.map(|task| task.pattern.to_string()),
            approval.amount.map(to_millionths),
            signed_total(approval.task),
        ],
        |row| Ok((row.get(0)?, codec::get_uint(row, "executions_used")?)),
    )?;
    let (expires_at, uses) = row.ok_or_else(spent)?;
    // Each use is one of its own: the first has the nonce that was signed, the others are derived from it.
    let nonce = if uses == 1 { approval.nonce.clone() } else { format!("{}/{uses}", approval.nonce) };
    match record_nonce(conn, NONCE_NAMESPACE, &nonce, Timestamp::from_millis(expires_at)) {
        Err(StoreError::Conflict(Conflict::NonceSeen { .. })) => return Err(spent()),
        recorded => recorded?,
    }
    if uses > 1 {
        return Ok(());
    }
    // An ask that has expired meanwhile takes the whole batch back, and with it the use that was just counted.
    let sql = "UPDATE ask SET state = 'used' WHERE id = ?1 AND state = 'approved'";
    if execute(conn, sql, [approval.ask.as_str()])? == 0 { Err(spent()) } else { Ok(()) }
}

pub(crate) fn record_nonce(
    conn: &Connection,
    namespace: &str,
    nonce: &str,
    expires_at: Timestamp,
) -> Result<(), StoreError> {
    // The primary key makes the check and the record one step.
    let added = execute(
        conn,
        "INSERT OR IGNORE INTO nonce (namespace, nonce, expires_at) VALUES (?1, ?2, ?3)",
        params![namespace, nonce, expires_at.as_millis()],
    )?;
    if added == 0 { Err(Conflict::NonceSeen { namespace: namespace.to_owned() }.into()) } else { Ok(()) }
}

pub(crate) fn prune_nonces(conn: &Connection, now: Timestamp) -> Result<u64, StoreError> {
    let deleted = execute(conn, "DELETE FROM nonce WHERE expires_at <= ?1", [now.as_millis()])?;
    Ok(u64::try_from(deleted).unwrap_or(u64::MAX))
}

fn decode_ask(row: &Row<'_>) -> Result<StoredAsk, StoreError> {
    let state: AskState = codec::from_name("ask", row.get("state")?)?;
    let mut card: Card = codec::from_json("card", &row.get::<_, String>("card")?)?;
    state.as_str().clone_into(&mut card.state);
    Ok(StoredAsk {
        card,
        prepared: codec::from_json("prepared action", &row.get::<_, String>("prepared")?)?,
        state,
        resolved_at: row.get::<_, Option<i64>>("resolved_at")?.map(Timestamp::from_millis),
        resolved_by: row.get("resolved_by")?,
        reason: row.get("reason")?,
    })
}

fn decode_approval(row: &Row<'_>) -> Result<StoredApproval, StoreError> {
    Ok(StoredApproval {
        ask: codec::parse("ask id", &row.get::<_, String>("ask")?)?,
        prepared: codec::parse("digest", &row.get::<_, String>("prepared_hash")?)?,
        nonce: row.get("nonce")?,
        token: codec::from_json("approval", &row.get::<_, String>("token")?)?,
        expires_at: get_time(row, "expires_at")?,
        max_uses: codec::get_uint(row, "max_uses")?,
        executions_used: codec::get_uint(row, "executions_used")?,
        standing: row.get("standing")?,
        total_left: row
            .get::<_, Option<i64>>("total_max")?
            .map(|most| {
                Ok::<_, StoreError>(
                    u64::try_from(most).unwrap_or(0).saturating_sub(codec::get_uint(row, "total_used")?),
                )
            })
            .transpose()?,
        revoked: row.get("revoked")?,
    })
}

pub(crate) fn read_ask(conn: &Connection, ask: &AskId) -> Result<Option<StoredAsk>, StoreError> {
    query_one(conn, "SELECT * FROM ask WHERE id = ?1", [ask.as_str()], decode_ask)
}

pub(crate) fn read_asks(
    conn: &Connection,
    state: Option<AskState>,
    limit: usize,
) -> Result<Vec<StoredAsk>, StoreError> {
    let sql = "SELECT * FROM ask WHERE ?1 IS NULL OR state = ?1 ORDER BY asked_at, id LIMIT ?2";
    let params = params![state.map(AskState::as_str), codec::limit(limit)];
    query(conn, sql, params, decode_ask)
}

pub(crate) fn latest_asks(conn: &Connection, limit: usize) -> Result<Vec<StoredAsk>, StoreError> {
    let sql = "SELECT * FROM ask ORDER BY asked_at DESC, id LIMIT ?1";
    query(conn, sql, params![codec::limit(limit)], decode_ask)
}

pub(crate) fn overdue_asks(
    conn: &Connection,
    now: Timestamp,
    limit: usize,
) -> Result<Vec<StoredAsk>, StoreError> {
    let sql = "SELECT * FROM ask WHERE state IN ('open', 'approved') AND expires_at <= ?1
               ORDER BY expires_at, id LIMIT ?2";
    query(conn, sql, params![now.as_millis(), codec::limit(limit)], decode_ask)
}

pub(crate) fn ask_for(
    conn: &Connection,
    prepared: Digest,
    state: AskState,
) -> Result<Option<StoredAsk>, StoreError> {
    let sql = "SELECT * FROM ask WHERE prepared_hash = ?1 AND state = ?2 ORDER BY asked_at DESC LIMIT 1";
    query_one(conn, sql, [&prepared.to_string(), state.as_str()], decode_ask)
}

pub(crate) fn read_approval(conn: &Connection, ask: &AskId) -> Result<Option<StoredApproval>, StoreError> {
    let sql = "SELECT * FROM approval WHERE ask = ?1";
    query_one(conn, sql, [ask.as_str()], decode_approval)
}

pub(crate) fn task_approvals(
    conn: &Connection,
    pattern: Option<Digest>,
    now: Timestamp,
    limit: usize,
) -> Result<Vec<(StoredAsk, StoredApproval)>, StoreError> {
    let sql = "SELECT approval.* FROM approval JOIN ask ON ask.id = approval.ask
               WHERE pattern IS NOT NULL AND (?1 IS NULL OR pattern = ?1) AND approval.expires_at > ?2
               AND revoked = 0 AND executions_used BETWEEN 1 AND max_uses - 1 AND ask.state = 'used'
               ORDER BY ask.asked_at DESC, ask.id LIMIT ?3";
    let params = params![pattern.map(|digest| digest.to_string()), now.as_millis(), codec::limit(limit)];
    let approvals = query(conn, sql, params, decode_approval)?;
    let with_ask = |approval: StoredApproval| {
        let sql = "SELECT * FROM ask WHERE id = ?1";
        let ask = query_one(conn, sql, [approval.ask.as_str()], decode_ask)?;
        Ok(ask.map(|ask| (ask, approval)))
    };
    approvals.into_iter().filter_map(|approval| with_ask(approval).transpose()).collect()
}

pub(crate) fn is_used(conn: &Connection, namespace: &str, nonce: &str) -> Result<bool, StoreError> {
    let sql = "SELECT 1 FROM nonce WHERE namespace = ?1 AND nonce = ?2";
    Ok(query_one(conn, sql, [namespace, nonce], |_| Ok(()))?.is_some())
}

pub use keys::ApproverKey;
pub(crate) use keys::{approver_keys, count_passkey, counted, enroll_key, revoke_key};

pub(crate) use left::{revoke_approval, revoke_unused, waiting_asks, waiting_sessions};
pub(crate) use parts::{approval_parts, store_part};
pub use plans::{NewPlan, PlanRow};
pub(crate) use plans::{plan_of, plan_under, plans_left, read_plans, store_plan};
pub(crate) use revocations::{
    check_keys, is_anything_revoked, is_revoked, record_revocation, revocations_after,
};
pub(crate) use together::{
    ask_with_approval, asks_with_approvals, overdue_asks_with_approvals, plans_left_with_approvals,
    revoked_among, waiting_asks_with_approvals,
};
pub(crate) use tools::{approved_tools, read_endorsements, trusted_hosts};

mod keys;
mod left;
mod parts;
mod plans;
mod revocations;
mod together;
mod tools;

#[cfg(test)]
mod tests;
