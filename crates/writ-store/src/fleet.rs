//! Cases of the fleet's router: their state, their holders one after the other, and their conversations.
//!
//! The store knows no states: it counts changes, so that each is seen, and refuses a second holder.

use rusqlite::{Connection, Row, params};
use writ_types::digest::Digest;
use writ_types::id::{KeyId, SessionId};
use writ_types::unit::Timestamp;

use crate::codec::{self, execute, get_time, get_uint, query, query_one};
use crate::error::{Conflict, StoreError};

/// The most open cases.
pub const MAX_OPEN_CASES: usize = 10_000;
/// The most messages of one case: a conversation that is longer needs another case.
pub const MAX_CASE_MESSAGES: u64 = 2_000;
/// The most of them that agents may add, over all holders: the rest is room for the guest and people.
pub const MAX_AGENT_MESSAGES: u64 = 1_000;
/// The most bytes of what agents add: 64 of their longest messages.
pub const MAX_AGENT_MESSAGE_BYTES: u64 = 4 * 1024 * 1024;
/// The messages at the end of a conversation that people alone may add.
pub const RESERVED_MESSAGES: u64 = 100;
/// The beginning of an agent's name as a sender.
pub const AGENT_SENDER: &str = "agent ";
/// The beginning of a person's name as a sender.
pub const PERSON_SENDER: &str = "person ";
/// The longest message of a case, in bytes.
pub const MAX_CASE_MESSAGE_BYTES: usize = 64 * 1024;
/// The longest state of a case, in bytes.
const MAX_STATE_BYTES: usize = 64 * 1024;
/// The longest token, capability or name, in bytes.
const MAX_NAME_BYTES: usize = 256;

/// A case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetCase {
    /// Its id, which is also the session of its task keys.
    pub id: SessionId,
    /// The token of the case at the security proxy.
    pub case_token: String,
    /// The token of its customer there.
    pub customer_token: String,
    /// The keyed hash of its customer, the same in all of its cases; empty: the proxy has named none.
    pub fingerprint: String,
    /// The capability that its agents need.
    pub capability: String,
    /// False after its end.
    pub is_open: bool,
    /// The number of its changes.
    pub version: u64,
    /// Its state, in the router's words.
    pub state: String,
    /// When it was opened.
    pub opened_at: Timestamp,
    /// When it was last changed.
    pub changed_at: Timestamp,
}

/// The keys of an agent that holds a case, by their hashes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HolderKeys {
    /// The task key's id.
    pub key: KeyId,
    /// When the task key ends.
    pub ends_at: Timestamp,
    /// The hash of the base key.
    pub base: Digest,
    /// The hash of the task key.
    pub task: Digest,
}

/// The holder of a case for some time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetHolder {
    /// The agent's or person's name.
    pub holder: String,
    /// An agent's keys; `None`: a person.
    pub keys: Option<HolderKeys>,
    /// From when.
    pub since: Timestamp,
    /// Until when; `None`: it holds the case.
    pub until: Option<Timestamp>,
}

/// A message of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaseMessage {
    /// Its number in the case, from one.
    pub n: u64,
    /// `guest`, `agent NAME`, `person NAME` or `router`.
    pub sender: String,
    /// Its text.
    pub text: String,
    /// When.
    pub at: Timestamp,
}

/// A change to the cases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FleetOp {
    /// Opens a case in this state. Conflict if its id or an open case with its token is there; too many are refused.
    Open(Box<FleetCase>),
    /// Changes the state of an open case. Conflict unless it has this version.
    Change {
        /// The case.
        id: SessionId,
        /// The version that the caller has seen.
        version: u64,
        /// The new state.
        state: String,
        /// False if this is its end.
        is_open: bool,
        /// When.
        at: Timestamp,
    },
    /// Ends the time of the holder. Conflict if there is none.
    EndHolder {
        /// The case.
        id: SessionId,
        /// When.
        at: Timestamp,
    },
    /// Begins the time of a holder. Conflict if the case has one.
    BeginHolder {
        /// The case.
        id: SessionId,
        /// The holder; its `until` is not looked at.
        holder: FleetHolder,
    },
    /// Adds a message; its number is the next one. Too many are refused, of agents earlier than of the guest, and of people last.
    AddMessage {
        /// The case.
        id: SessionId,
        /// Who sends it.
        sender: String,
        /// Its text.
        text: String,
        /// When.
        at: Timestamp,
    },
    /// Notes that the security proxy has closed a case that has ended.
    LeaveProxy {
        /// The case.
        id: SessionId,
    },
    /// Deletes the cases that ended before, with their holders and messages; the ledger has the holders still.
    Prune {
        /// The time.
        before: Timestamp,
    },
}

pub(crate) fn apply_fleet_op(conn: &Connection, op: &FleetOp) -> Result<(), StoreError> {
    match op {
        FleetOp::Open(case) => open_case(conn, case),
        FleetOp::Change { id, version, state, is_open, at } => {
            change_case(conn, *id, *version, (state, *is_open), *at)
        }
        FleetOp::EndHolder { id, at } => end_holder(conn, *id, *at),
        FleetOp::BeginHolder { id, holder } => begin_holder(conn, *id, holder),
        FleetOp::AddMessage { id, sender, text, at } => add_message(conn, *id, (sender, text), *at),
        FleetOp::LeaveProxy { id } => {
            let sql = "UPDATE fleet_case SET at_proxy = 0 WHERE id = ?1 AND is_open = 0";
            execute(conn, sql, [id.to_string()]).map(drop)
        }
        FleetOp::Prune { before } => {
            let sql = "DELETE FROM fleet_case WHERE is_open = 0 AND changed_at < ?1";
            execute(conn, sql, [before.as_millis()]).map(drop)
        }
    }
}

fn open_case(conn: &Connection, case: &FleetCase) -> Result<(), StoreError> {
    for text in [&case.case_token, &case.customer_token, &case.fingerprint, &case.capability] {
        codec::check_bytes("name of a case", text, MAX_NAME_BYTES)?;
    }
    codec::check_bytes("state of a case", &case.state, MAX_STATE_BYTES)?;
    let sql = "SELECT count(*) AS n FROM fleet_case WHERE is_open = 1";
    let open = query_one(conn, sql, [], |row| get_uint(row, "n"))?.unwrap_or_default();
    if usize::try_from(open).is_ok_and(|open| open >= MAX_OPEN_CASES) {
        return Err(StoreError::TooLarge { what: "number of open cases", limit: MAX_OPEN_CASES });
    }
    let added = execute(
        conn,
        "INSERT OR IGNORE INTO fleet_case
         (id, case_token, customer_token, fingerprint, capability, is_open, version, state, opened_at, changed_at)
         VALUES (?1, ?2, ?3, ?4, ?5, 1, 0, ?6, ?7, ?7)",
        params![
            case.id.to_string(),
            case.case_token,
            case.customer_token,
            case.fingerprint,
            case.capability,
            case.state,
            case.opened_at.as_millis(),
        ],
    )?;
    if added == 0 {
        return Err(Conflict::Exists { what: "open case", id: case.case_token.clone() }.into());
    }
    Ok(())
}

fn change_case(
    conn: &Connection,
    id: SessionId,
    version: u64,
    (state, is_open): (&str, bool),
    at: Timestamp,
) -> Result<(), StoreError> {
    codec::check_bytes("state of a case", state, MAX_STATE_BYTES)?;
    let changed = execute(
        conn,
        "UPDATE fleet_case SET state = ?3, is_open = ?4, version = version + 1, changed_at = ?5
         WHERE id = ?1 AND version = ?2 AND is_open = 1",
        params![id.to_string(), codec::int(version), state, i64::from(is_open), at.as_millis()],
    )?;
    // Another change came first: the caller looks again, and decides again.
    if changed == 0 { Err(missing("open case of this version", id)) } else { Ok(()) }
}

fn end_holder(conn: &Connection, id: SessionId, at: Timestamp) -> Result<(), StoreError> {
    // A clock that was set back must not end a time before it began.
    let sql = "UPDATE fleet_holder SET until = max(since, ?2) WHERE case_id = ?1 AND until IS NULL";
    let ended = execute(conn, sql, params![id.to_string(), at.as_millis()])?;
    if ended == 0 { Err(missing("holder of case", id)) } else { Ok(()) }
}

fn begin_holder(conn: &Connection, id: SessionId, holder: &FleetHolder) -> Result<(), StoreError> {
    codec::check_bytes("name of a holder", &holder.holder, MAX_NAME_BYTES)?;
    let keys = holder.keys.as_ref();
    // Ignored by the index of one holder for each case, and then a conflict.
    let begun = execute(
        conn,
        "INSERT OR IGNORE INTO fleet_holder
         (case_id, n, holder, key, key_ends, base_hash, task_hash, since)
         SELECT ?1, 1 + coalesce((SELECT max(n) FROM fleet_holder WHERE case_id = ?1), 0), ?2, ?3, ?4, ?5, ?6, ?7",
        params![
            id.to_string(),
            holder.holder,
            keys.map(|keys| keys.key.to_string()),
            keys.map(|keys| keys.ends_at.as_millis()),
            keys.map(|keys| keys.base.to_string()),
            keys.map(|keys| keys.task.to_string()),
            holder.since.as_millis(),
        ],
    )?;
    if begun == 0 {
        return Err(Conflict::Exists { what: "holder of case", id: id.to_string() }.into());
    }
    Ok(())
}

fn add_message(
    conn: &Connection,
    id: SessionId,
    (sender, text): (&str, &str),
    at: Timestamp,
) -> Result<(), StoreError> {
    codec::check_bytes("sender of a message", sender, MAX_NAME_BYTES)?;
    codec::check_bytes("message of a case", text, MAX_CASE_MESSAGE_BYTES)?;
    let sql = "SELECT coalesce(max(n), 0) AS n FROM fleet_message WHERE case_id = ?1";
    let last = query_one(conn, sql, [id.to_string()], |row| get_uint(row, "n"))?.unwrap_or_default();
    let most = match sender.starts_with(PERSON_SENDER) {
        true => MAX_CASE_MESSAGES,
        false => MAX_CASE_MESSAGES.saturating_sub(RESERVED_MESSAGES),
    };
    if last >= most {
        return Err(too_large("number of messages of a case", most));
    }
    if sender.starts_with(AGENT_SENDER) {
        check_agent_share(conn, id, text)?;
    }
    // The case may have ended since the caller has looked.
    let added = execute(
        conn,
        "INSERT INTO fleet_message (case_id, n, sender, text, at)
         SELECT ?1, ?2, ?3, ?4, ?5 WHERE EXISTS (SELECT 1 FROM fleet_case WHERE id = ?1 AND is_open = 1)",
        params![id.to_string(), codec::int(last.saturating_add(1)), sender, text, at.as_millis()],
    )?;
    if added == 0 { Err(missing("open case", id)) } else { Ok(()) }
}

/// Refuses what would take an agent's part of a conversation beyond its share.
fn check_agent_share(conn: &Connection, id: SessionId, text: &str) -> Result<(), StoreError> {
    // `octet_length` reads no text, so that the cost of a long conversation is that of its number of messages.
    let sql = "SELECT count(*) AS n, coalesce(sum(octet_length(text)), 0) AS bytes FROM fleet_message
               WHERE case_id = ?1 AND substr(sender, 1, length(?2)) = ?2";
    let held = query_one(conn, sql, params![id.to_string(), AGENT_SENDER], |row| {
        Ok((get_uint(row, "n")?, get_uint(row, "bytes")?))
    })?;
    let (count, bytes) = held.unwrap_or_default();
    if count >= MAX_AGENT_MESSAGES {
        return Err(too_large("number of messages of agents in a case", MAX_AGENT_MESSAGES));
    }
    let bytes = bytes.saturating_add(u64::try_from(text.len()).unwrap_or(u64::MAX));
    if bytes > MAX_AGENT_MESSAGE_BYTES {
        return Err(too_large("messages of agents in a case", MAX_AGENT_MESSAGE_BYTES));
    }
    Ok(())
}

fn too_large(what: &'static str, limit: u64) -> StoreError {
    StoreError::TooLarge { what, limit: usize::try_from(limit).unwrap_or(usize::MAX) }
}

fn missing(what: &'static str, id: SessionId) -> StoreError {
    Conflict::Missing { what, id: id.to_string() }.into()
}

fn decode_case(row: &Row<'_>) -> Result<FleetCase, StoreError> {
    Ok(FleetCase {
        id: codec::parse("case id", &row.get::<_, String>("id")?)?,
        case_token: row.get("case_token")?,
        customer_token: row.get("customer_token")?,
        fingerprint: row.get("fingerprint")?,
        capability: row.get("capability")?,
        is_open: row.get::<_, i64>("is_open")? != 0,
        version: get_uint(row, "version")?,
        state: row.get("state")?,
        opened_at: get_time(row, "opened_at")?,
        changed_at: get_time(row, "changed_at")?,
    })
}

fn decode_holder(row: &Row<'_>) -> Result<FleetHolder, StoreError> {
    let text = |column: &str| row.get::<_, Option<String>>(column);
    let key = codec::parse_option("key id", text("key")?)?;
    let base = codec::parse_option("hash", text("base_hash")?)?;
    let task = codec::parse_option("hash", text("task_hash")?)?;
    let ends = row.get::<_, Option<i64>>("key_ends")?.map(Timestamp::from_millis);
    let keys = match (key, ends, base, task) {
        (Some(key), Some(ends_at), Some(base), Some(task)) => Some(HolderKeys { key, ends_at, base, task }),
        // Written together, so one of them alone is a person's row.
        (_, _, _, _) => None,
    };
    Ok(FleetHolder {
        holder: row.get("holder")?,
        keys,
        since: get_time(row, "since")?,
        until: row.get::<_, Option<i64>>("until")?.map(Timestamp::from_millis),
    })
}

fn decode_message(row: &Row<'_>) -> Result<CaseMessage, StoreError> {
    Ok(CaseMessage {
        n: get_uint(row, "n")?,
        sender: row.get("sender")?,
        text: row.get("text")?,
        at: get_time(row, "at")?,
    })
}

pub(crate) fn read_case(conn: &Connection, id: SessionId) -> Result<Option<FleetCase>, StoreError> {
    query_one(conn, "SELECT * FROM fleet_case WHERE id = ?1", [id.to_string()], decode_case)
}

pub(crate) fn open_cases(
    conn: &Connection,
    after: Option<SessionId>,
    limit: usize,
) -> Result<Vec<FleetCase>, StoreError> {
    let sql = "SELECT * FROM fleet_case WHERE is_open = 1 AND id > ?1 ORDER BY id LIMIT ?2";
    let after = after.map(|id| id.to_string()).unwrap_or_default();
    query(conn, sql, params![after, codec::limit(limit)], decode_case)
}

pub(crate) fn open_case_of(conn: &Connection, case_token: &str) -> Result<Option<FleetCase>, StoreError> {
    let sql = "SELECT * FROM fleet_case WHERE case_token = ?1 AND is_open = 1";
    query_one(conn, sql, [case_token], decode_case)
}

pub(crate) fn ended_at_proxy(conn: &Connection, limit: usize) -> Result<Vec<FleetCase>, StoreError> {
    let sql = "SELECT * FROM fleet_case WHERE is_open = 0 AND at_proxy = 1 ORDER BY changed_at LIMIT ?1";
    query(conn, sql, [codec::limit(limit)], decode_case)
}

pub(crate) fn read_holders(conn: &Connection, id: SessionId) -> Result<Vec<FleetHolder>, StoreError> {
    query(conn, "SELECT * FROM fleet_holder WHERE case_id = ?1 ORDER BY n", [id.to_string()], decode_holder)
}

pub(crate) fn read_messages(
    conn: &Connection,
    id: SessionId,
    after: u64,
    limit: usize,
) -> Result<Vec<CaseMessage>, StoreError> {
    let sql = "SELECT * FROM fleet_message WHERE case_id = ?1 AND n > ?2 ORDER BY n LIMIT ?3";
    query(conn, sql, params![id.to_string(), codec::int(after), codec::limit(limit)], decode_message)
}

/// Returns the newest messages before a number, newest first.
pub(crate) fn newest_messages(
    conn: &Connection,
    id: SessionId,
    before: Option<u64>,
    limit: usize,
) -> Result<Vec<CaseMessage>, StoreError> {
    let sql = "SELECT * FROM fleet_message WHERE case_id = ?1 AND n < ?2 ORDER BY n DESC LIMIT ?3";
    let before = before.map_or(i64::MAX, codec::int);
    query(conn, sql, params![id.to_string(), before, codec::limit(limit)], decode_message)
}

#[cfg(test)]
mod tests;
