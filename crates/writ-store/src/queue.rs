//! The queue of messages: fenced leases, one at a time per session, oldest first.

use std::time::Duration;

use rusqlite::{Connection, Row, params};
use serde::Deserialize;
use writ_types::entry::InboundRecord;
use writ_types::id::{EntrySeq, Fence, MessageId, SessionId, TurnId};
use writ_types::unit::Timestamp;

use crate::codec::{self, execute, get_uint, int, query, query_one};
use crate::error::{Conflict, StoreError};

/// The most leases of a message before it is set aside: a message that has ended five engines will end the
/// sixth.
pub const MAX_ATTEMPTS: u64 = 5;

/// The most messages of one session that wait: more than a person types while one turn runs.
pub const MAX_SESSION_DEPTH: u64 = 100;

/// The most messages that wait in all.
pub const MAX_DEPTH: u64 = 10_000;

/// The wait after the first failure; it doubles with each further one.
pub const BACKOFF_FIRST: Duration = Duration::from_secs(1);

/// The longest wait after a failure.
pub const BACKOFF_MAX: Duration = Duration::from_secs(300);

/// The longest error text that is stored with a message, in characters.
pub const MAX_ERROR_CHARS: usize = 2_000;

/// The consumer of messages that name no other: the loop that answers people.
pub const EXECUTOR: &str = "executor";

/// The consumer of what comes back to a person: a loop of the harness, which asks no model. Its messages open no turn.
pub const PROXY: &str = "proxy";

/// The longest name of a consumer, in bytes.
pub const MAX_CONSUMER_BYTES: usize = 128;

/// A message of the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuedMessage {
    /// The record of what was received; names message and session.
    pub record: InboundRecord,
    /// The client's id of it.
    pub client_id: String,
    /// Its text.
    pub text: String,
    /// The agent or loop that takes it.
    pub consumer: String,
    /// The entry that recorded it.
    pub entry: EntrySeq,
    /// The number of leases, this one included.
    pub attempts: u64,
    /// The last error; empty if there was none.
    pub error: String,
}

/// A message that the caller holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leased {
    /// The message.
    pub message: QueuedMessage,
    /// The fence that every later operation on it must show.
    pub fence: Fence,
    /// Until when it is held without a heartbeat.
    pub until: Timestamp,
}

/// The state of a message of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MessageState {
    /// It waits for its consumer.
    Ready,
    /// Its consumer works on it.
    Leased,
    /// It is done.
    Acked,
    /// It was set aside.
    Dead,
}

/// The number of messages in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueDepth {
    /// Waiting.
    pub ready: u64,
    /// Leased.
    pub leased: u64,
    /// Set aside: after their last attempt, or with their session.
    pub dead: u64,
}

/// A message for the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewMessageRow {
    /// The record of what was received; names message and session.
    pub record: InboundRecord,
    /// The client's id of it, unique per session.
    pub client_id: String,
    /// Its text.
    pub text: String,
}

const COLUMNS: &str = "n, id, session, client_id, entry, record, text, attempts, fence, error, consumer";

pub(crate) fn enqueue_message(
    conn: &Connection,
    consumer: &str,
    message: &NewMessageRow,
    entry: Option<EntrySeq>,
) -> Result<(), StoreError> {
    let entry = entry.ok_or(Conflict::Order("a message needs the entry that records it before it"))?;
    let session = message.record.session.to_string();
    // A client that got no answer sends again under the same id.
    let known = query_one(
        conn,
        "SELECT entry FROM message WHERE session = ?1 AND client_id = ?2",
        [&session, &message.client_id],
        |row| get_uint(row, "entry"),
    )?;
    if let Some(entry) = known {
        return Err(Conflict::DuplicateMessage { entry: EntrySeq(entry) }.into());
    }
    if query_one(conn, "SELECT 1 FROM session WHERE id = ?1", [&session], |_| Ok(()))?.is_none() {
        return Err(Conflict::Missing { what: "session", id: session }.into());
    }
    // Only after the checks for a repeated message, which is no new one. What comes back is let in where its cause was: a loop
    // takes it at once, and a full queue would lose the answer to what it was full of.
    if consumer != PROXY {
        check_depth(conn, &session)?;
    }
    codec::check_size("message", &message.text)?;
    codec::check_size("client id", &message.client_id)?;
    codec::check_bytes("name of a consumer", consumer, MAX_CONSUMER_BYTES)?;
    let record = codec::to_json("message", &message.record)?;
    let added = execute(
        conn,
        "INSERT OR IGNORE INTO message (id, session, client_id, entry, record, text, state, not_before, consumer)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, 'ready', ?7, ?8)",
        params![
            message.record.message.to_string(),
            session,
            message.client_id,
            int(entry.0),
            record,
            message.text,
            message.record.at.as_millis(),
            consumer,
        ],
    )?;
    if added == 0 {
        return Err(Conflict::Exists { what: "message", id: message.record.message.to_string() }.into());
    }
    Ok(())
}

fn check_depth(conn: &Connection, session: &str) -> Result<(), StoreError> {
    let count = |sql: &str, params: &[&dyn rusqlite::ToSql]| {
        query_one(conn, sql, params, |row| get_uint(row, "n")).map(Option::unwrap_or_default)
    };
    let own = "SELECT count(*) AS n FROM message WHERE session = ?1 AND state IN ('ready', 'leased')";
    if count(own, &[&session])? >= MAX_SESSION_DEPTH {
        return Err(StoreError::QueueFull { what: "the session", limit: MAX_SESSION_DEPTH });
    }
    let all = "SELECT (SELECT count(*) FROM message WHERE state = 'ready')
               + (SELECT count(*) FROM message WHERE state = 'leased') AS n";
    if count(all, &[])? >= MAX_DEPTH {
        return Err(StoreError::QueueFull { what: "the store", limit: MAX_DEPTH });
    }
    Ok(())
}

pub(crate) fn lease_message(
    conn: &Connection,
    consumer: &str,
    now: Timestamp,
    owner: &str,
    ttl_ms: u64,
) -> Result<Option<Leased>, StoreError> {
    // A message of an engine that ended without notice comes back here.
    release_expired(conn, now)?;
    let sql = format!(
        "SELECT {COLUMNS} FROM message m WHERE consumer = ?2 AND state = 'ready' AND not_before <= ?1 AND {IS_FIRST}
         ORDER BY n LIMIT 1"
    );
    let found = query_one(conn, &sql, params![now.as_millis(), consumer], |row| {
        Ok((decode_message(row)?, get_uint(row, "fence")?, row.get::<_, i64>("n")?))
    })?;
    let Some((mut message, fence, n)) = found else { return Ok(None) };
    // The fence grows with each lease: an earlier holder is recognised by its old one.
    let until = now.plus_duration(Duration::from_millis(ttl_ms));
    execute(
        conn,
        "UPDATE message SET state = 'leased', attempts = attempts + 1, fence = fence + 1, owner = ?2,
         lease_until = ?3 WHERE n = ?1",
        params![n, owner, until.as_millis()],
    )?;
    message.attempts += 1;
    Ok(Some(Leased { message, fence: Fence(fence + 1), until }))
}

/// The condition of a message `m` that no live one of its session and consumer stands before it.
const IS_FIRST: &str = "NOT EXISTS (SELECT 1 FROM message o WHERE o.session = m.session
    AND o.consumer = m.consumer AND o.n < m.n AND o.state IN ('ready', 'leased'))";

/// Gives back the messages with an expired lease.
fn release_expired(conn: &Connection, now: Timestamp) -> Result<(), StoreError> {
    execute(
        conn,
        "UPDATE message SET state = CASE WHEN attempts >= ?2 THEN 'dead' ELSE 'ready' END,
         error = 'the lease ran out' WHERE state = 'leased' AND lease_until <= ?1",
        params![now.as_millis(), int(MAX_ATTEMPTS)],
    )?;
    Ok(())
}

pub(crate) fn extend_lease(
    conn: &Connection,
    message: MessageId,
    fence: Fence,
    now: Timestamp,
    ttl_ms: u64,
) -> Result<(), StoreError> {
    let until = now.plus_duration(Duration::from_millis(ttl_ms)).as_millis();
    let changed = execute(
        conn,
        "UPDATE message SET lease_until = ?3 WHERE id = ?1 AND fence = ?2 AND state = 'leased'",
        params![message.to_string(), int(fence.0), until],
    )?;
    require_lease(message, changed)
}

pub(crate) fn ack_message(conn: &Connection, message: MessageId, fence: Fence) -> Result<(), StoreError> {
    let changed = execute(
        conn,
        "UPDATE message SET state = 'acked' WHERE id = ?1 AND fence = ?2 AND state = 'leased'",
        params![message.to_string(), int(fence.0)],
    )?;
    require_lease(message, changed)
}

pub(crate) fn absorb_message(
    conn: &Connection,
    message: MessageId,
    turn: TurnId,
    lease: MessageId,
    fence: Fence,
) -> Result<(), StoreError> {
    let sql = "SELECT session, consumer FROM message WHERE id = ?1 AND fence = ?2 AND state = 'leased'";
    let holder: Option<(String, String)> =
        query_one(conn, sql, params![lease.to_string(), int(fence.0)], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let (session, consumer) = holder.ok_or(Conflict::Fence(lease))?;
    let changed = execute(
        conn,
        "UPDATE message SET state = 'acked', absorbed_by = ?3
         WHERE id = ?1 AND session = ?2 AND consumer = ?4 AND state = 'ready'",
        params![message.to_string(), session, turn.to_string(), consumer],
    )?;
    require_lease(message, changed)
}

pub(crate) fn return_message(
    conn: &Connection,
    message: MessageId,
    fence: Fence,
    now: Timestamp,
    error: &str,
) -> Result<(), StoreError> {
    let sql = "SELECT attempts FROM message WHERE id = ?1 AND fence = ?2 AND state = 'leased'";
    let attempts =
        query_one(conn, sql, params![message.to_string(), int(fence.0)], |row| get_uint(row, "attempts"))?;
    let attempts = attempts.ok_or(Conflict::Fence(message))?;
    // The last attempt is not followed by another, for any reason.
    let state = if attempts >= MAX_ATTEMPTS { "dead" } else { "ready" };
    let error: String = error.chars().take(MAX_ERROR_CHARS).collect();
    execute(
        conn,
        "UPDATE message SET state = ?2, not_before = ?3, error = ?4 WHERE id = ?1",
        params![message.to_string(), state, now.plus_duration(backoff(attempts)).as_millis(), error],
    )?;
    Ok(())
}

pub(crate) fn end_message(
    conn: &Connection,
    message: MessageId,
    fence: Option<Fence>,
    error: &str,
) -> Result<(), StoreError> {
    let error: String = error.chars().take(MAX_ERROR_CHARS).collect();
    let changed = execute(
        conn,
        "UPDATE message SET state = 'dead', error = ?3
         WHERE id = ?1 AND ((?2 IS NULL AND state = 'ready') OR (fence = ?2 AND state = 'leased'))",
        params![message.to_string(), fence.map(|fence| int(fence.0)), error],
    )?;
    require_lease(message, changed)
}

/// Returns the wait after the given number of attempts.
fn backoff(attempts: u64) -> Duration {
    let doublings = u32::try_from(attempts.saturating_sub(1)).unwrap_or(u32::MAX);
    BACKOFF_FIRST.saturating_mul(2_u32.saturating_pow(doublings)).min(BACKOFF_MAX)
}

pub(crate) fn requeue_leased(conn: &Connection) -> Result<u64, StoreError> {
    let changed = execute(
        conn,
        "UPDATE message SET state = CASE WHEN attempts >= ?1 THEN 'dead' ELSE 'ready' END,
         error = 'the engine ended' WHERE state = 'leased'",
        [int(MAX_ATTEMPTS)],
    )?;
    Ok(u64::try_from(changed).unwrap_or(u64::MAX))
}

fn require_lease(message: MessageId, changed: usize) -> Result<(), StoreError> {
    if changed == 0 { Err(Conflict::Fence(message).into()) } else { Ok(()) }
}

fn decode_message(row: &Row<'_>) -> Result<QueuedMessage, StoreError> {
    Ok(QueuedMessage {
        record: codec::from_json("message", &row.get::<_, String>("record")?)?,
        client_id: row.get("client_id")?,
        text: row.get("text")?,
        consumer: row.get("consumer")?,
        entry: EntrySeq(get_uint(row, "entry")?),
        attempts: get_uint(row, "attempts")?,
        error: row.get("error")?,
    })
}

pub(crate) fn pending_for_session(
    conn: &Connection,
    session: SessionId,
) -> Result<Vec<QueuedMessage>, StoreError> {
    let sql = format!("SELECT {COLUMNS} FROM message WHERE session = ?1 AND state = 'ready' ORDER BY n");
    query(conn, &sql, [session.to_string()], decode_message)
}

pub(crate) fn message_by_client_id(
    conn: &Connection,
    session: SessionId,
    client_id: &str,
) -> Result<Option<QueuedMessage>, StoreError> {
    let sql = format!("SELECT {COLUMNS} FROM message WHERE session = ?1 AND client_id = ?2");
    query_one(conn, &sql, [&session.to_string(), client_id], decode_message)
}

pub(crate) fn message_state(
    conn: &Connection,
    session: SessionId,
    client_id: &str,
) -> Result<Option<MessageState>, StoreError> {
    let sql = "SELECT state FROM message WHERE session = ?1 AND client_id = ?2";
    query_one(conn, sql, [&session.to_string(), client_id], |row| {
        codec::from_name("state of a message", row.get(0)?)
    })
}

pub(crate) fn client_ids(conn: &Connection, messages: &[MessageId]) -> Result<Vec<String>, StoreError> {
    let sql = "SELECT client_id FROM message WHERE id = ?1";
    let found = messages.iter().map(|id| query_one(conn, sql, [id.to_string()], |row| Ok(row.get(0)?)));
    let ids: Vec<Option<String>> = found.collect::<Result<_, StoreError>>()?;
    Ok(ids.into_iter().flatten().collect())
}

pub(crate) fn dead_letters(conn: &Connection, limit: usize) -> Result<Vec<QueuedMessage>, StoreError> {
    let sql = format!("SELECT {COLUMNS} FROM message WHERE state = 'dead' ORDER BY n DESC LIMIT ?1");
    query(conn, &sql, [codec::limit(limit)], decode_message)
}

pub(crate) fn pending_for(
    conn: &Connection,
    consumer: &str,
    session: SessionId,
) -> Result<Vec<QueuedMessage>, StoreError> {
    let sql = format!(
        "SELECT {COLUMNS} FROM message WHERE session = ?1 AND state = 'ready' AND consumer = ?2 ORDER BY n"
    );
    query(conn, &sql, [&session.to_string(), consumer], decode_message)
}

pub(crate) fn next_due(conn: &Connection, consumer: &str) -> Result<Option<Timestamp>, StoreError> {
    let sql = format!(
        "SELECT min(not_before) FROM message m WHERE consumer = ?1 AND state = 'ready' AND {IS_FIRST}"
    );
    let due: Option<Option<i64>> = query_one(conn, &sql, [consumer], |row| Ok(row.get(0)?))?;
    Ok(due.flatten().map(Timestamp::from_millis))
}

pub(crate) fn queue_depth(conn: &Connection) -> Result<QueueDepth, StoreError> {
    let sql = "SELECT (SELECT count(*) FROM message WHERE state = 'ready') AS ready,
               (SELECT count(*) FROM message WHERE state = 'leased') AS leased,
               (SELECT count(*) FROM message WHERE state = 'dead') AS dead";
    let depth = query_one(conn, sql, [], |row| {
        Ok(QueueDepth {
            ready: get_uint(row, "ready")?,
            leased: get_uint(row, "leased")?,
            dead: get_uint(row, "dead")?,
        })
    })?;
    Ok(depth.unwrap_or_default())
}

#[cfg(test)]
mod tests;
