//! Erasing payloads that are not needed any more.

use rusqlite::{Connection, OptionalExtension as _, params};
use writ_types::id::{EntrySeq, ItemId, SessionId};
use writ_types::unit::Timestamp;

use super::lost;
use super::rotation::Rotation;
use crate::codec::{int, uint};
use crate::error::{Conflict, StoreError};

/// The most payloads that are named at once for being old: a transaction of some milliseconds.
pub const MAX_ERASED_AT_ONCE: usize = 500;

/// After so many entries that are young it is looked no further for one that is old.
const MAX_YOUNG: usize = 1_000;

/// What is left of a deleted session's content.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionRemains {
    /// The oldest entries of the ledger whose payload can be erased now, at most [`MAX_ERASED_AT_ONCE`].
    pub erasable: Vec<EntrySeq>,
    /// The number of payloads, asks, turns and work items that are needed until something else has ended.
    pub waiting: usize,
    /// The number of payloads that are needed as long as the ledger is.
    pub lasting: usize,
    /// The work items that go on and need what they came from, at most [`MAX_NAMED_ITEMS`].
    pub items: Vec<ItemId>,
}

/// The most work items that are named as needing a session: an owner ends those, and sees the others then.
pub const MAX_NAMED_ITEMS: usize = 20;

/// The reason why a payload is still needed.
struct Rest {
    why: &'static str,
    hint: &'static str,
    /// True if nothing ends the need.
    lasts: bool,
}

impl Rest {
    /// Needed until something has ended.
    const fn until(why: &'static str, hint: &'static str) -> Self {
        Self { why, hint, lasts: false }
    }

    /// Needed as long as the ledger is.
    const fn lasting(why: &'static str) -> Self {
        Self { why, hint: "", lasts: true }
    }
}

/// Refuses to erase what something rests on.
pub(crate) fn check_erasable(conn: &Connection, entry: EntrySeq, now: Timestamp) -> Result<(), StoreError> {
    let found: Option<(String, Option<String>)> = conn
        .prepare_cached(
            "SELECT l.event, p.payload FROM ledger l LEFT JOIN ledger_payload p ON p.seq = l.seq WHERE l.seq = ?1",
        )?
        .query_row([int(entry.0)], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    // A missing entry or payload is refused by the caller that erases it.
    let Some((event, Some(payload))) = found else { return Ok(()) };
    match rests_on(conn, entry, &event, &payload, now)? {
        None => Ok(()),
        Some(Rest { why, hint, .. }) => Err(Conflict::Needed { entry, why, hint }.into()),
    }
}

fn rests_on(
    conn: &Connection,
    entry: EntrySeq,
    event: &str,
    payload: &str,
    now: Timestamp,
) -> Result<Option<Rest>, StoreError> {
    let yes = |sql: &str, key: &dyn rusqlite::ToSql| -> Result<bool, StoreError> {
        Ok(conn.prepare_cached(sql)?.exists(params![key])?)
    };
    let field = |path: &str| -> Result<Option<String>, StoreError> {
        let sql = "SELECT json_extract(?1, ?2)";
        Ok(conn.prepare_cached(sql)?.query_row(params![payload, path], |row| row.get(0))?)
    };
    let turn = "SELECT 1 FROM ledger l JOIN turn t ON t.id = l.turn WHERE l.seq = ?1 AND t.ended_at IS NULL";
    if yes(turn, &int(entry.0))? {
        return Ok(Some(Rest::until("its turn is not over", "wait until it has ended, or stop it")));
    }
    Ok(match event {
        "restored" => Some(Rest::lasting("it explains a gap to verifiers")),
        "keyed" if Rotation::of_payload(payload.as_bytes()).is_some() => {
            Some(Rest::lasting("it explains to verifiers that the key was exchanged"))
        }
        "agent_moved" => Some(Rest::lasting("an agent may act because it was approved there")),
        "erased" => Some(Rest::lasting("it says what was erased, and why")),
        "received" => {
            let sql = "SELECT 1 FROM message WHERE entry = ?1 AND state IN ('ready', 'leased')";
            let hint = "wait until the message is answered, or stop its turn";
            yes(sql, &int(entry.0))?.then_some(Rest::until("its message waits or is worked on", hint))
        }
        "intent" => {
            let open = yes("SELECT 1 FROM intent WHERE entry = ?1 AND closed_by IS NULL", &int(entry.0))?;
            let sends = field("$.action.kind")?.as_deref() == Some("send_file");
            match (open, sends) {
                (true, _) => Some(Rest::until("the outcome of the attempt is not known yet", "wait for its end; `writ status` shows open attempts")),
                (false, true) => Some(Rest::lasting("the page hands out the file that was sent by it")),
                (false, false) => lost::rests_on(conn, entry)?.then_some(Rest::until("its outcome is unknown, and repeating it would not ask", "close its conversation first, with DELETE /api/v1/sessions/ID: nothing is repeated in it then")),
            }
        }
        "asked" | "answered" => {
            let Some(ask) = field("$.ask")? else { return Ok(None) };
            let waits = yes("SELECT 1 FROM ask WHERE id = ?1 AND state IN ('open', 'approved')", &ask)?;
            let sql = "SELECT 1 FROM approval WHERE ask = ?1 AND revoked = 0 AND executions_used < max_uses
                       AND expires_at > ?2";
            let in_force = conn.prepare_cached(sql)?.exists(params![ask, now.as_millis()])?;
            (waits || in_force).then_some(Rest::until(
                "its ask is open, or an approval of it is in force",
                "answer it first, or take the approval back with `writ approvals revoke`",
            ))
        }
        _ => None,
    })
}

pub(crate) fn old_payloads(
    conn: &Connection,
    before: Timestamp,
    now: Timestamp,
) -> Result<Vec<EntrySeq>, StoreError> {
    let mut statement = conn.prepare_cached(
        "SELECT l.seq, l.at, l.event, p.payload FROM ledger_payload p JOIN ledger l ON l.seq = p.seq
         ORDER BY p.seq",
    )?;
    let mut rows = statement.query([])?;
    let (mut found, mut young) = (Vec::new(), 0_usize);
    while let Some(row) = rows.next()? {
        let at: i64 = row.get("at")?;
        // Entries stand in the order of their times, but for a clock that was set.
        young += usize::from(at >= before.as_millis());
        if young > MAX_YOUNG || found.len() >= MAX_ERASED_AT_ONCE {
            break;
        }
        if at >= before.as_millis() {
            continue;
        }
        let entry = EntrySeq(uint(row.get("seq")?));
        let (event, payload): (String, String) = (row.get("event")?, row.get("payload")?);
        if rests_on(conn, entry, &event, &payload, now)?.is_none() {
            found.push(entry);
        }
    }
    Ok(found)
}

/// Finds the oldest entries of a session with a payload that may be erased, at most [`MAX_ERASED_AT_ONCE`], and counts those
/// before them that are needed.
pub(crate) fn session_payloads(
    conn: &Connection,
    session: SessionId,
    now: Timestamp,
) -> Result<SessionRemains, StoreError> {
    let mut statement = conn.prepare_cached(
        "SELECT l.seq, l.event, p.payload FROM ledger l JOIN ledger_payload p ON p.seq = l.seq
         WHERE l.session = ?1 ORDER BY l.seq",
    )?;
    let mut rows = statement.query([session.to_string()])?;
    let mut remains = SessionRemains::default();
    while let Some(row) = rows.next()? {
        let entry = EntrySeq(uint(row.get("seq")?));
        let (event, payload): (String, String) = (row.get("event")?, row.get("payload")?);
        match rests_on(conn, entry, &event, &payload, now)? {
            Some(rest) if rest.lasts => remains.lasting += 1,
            Some(_) => remains.waiting += 1,
            None => remains.erasable.push(entry),
        }
        if remains.erasable.len() >= MAX_ERASED_AT_ONCE {
            break;
        }
    }
    Ok(remains)
}

#[cfg(test)]
mod tests;
