//! The outbox: durable messages to recipients, and a cursor for each channel that delivers them.
//!
//! A message is appended in the batch that has a reason to send it, after the ledger entry that it rests on. Each
//! channel reads the messages after its cursor, delivers them, and advances the cursor: a message is delivered at
//! least once, also over a crash. The oldest messages are deleted when there are too many; a channel that fell so far
//! behind is given the number of messages that it missed.

use rusqlite::{Connection, Row, params};
use serde_json::Value;
use writ_types::id::{EntrySeq, SessionId};
use writ_types::unit::Timestamp;

use crate::codec::{self, execute, get_time, get_uint, int, query, query_one};
use crate::error::{Conflict, StoreError};

/// The most messages of the outbox; the oldest are deleted first. A channel that was down for a week of a busy home
/// still finds all.
pub const MAX_OUTBOX: u64 = 10_000;

/// The most channels with a cursor.
pub const MAX_CHANNELS: usize = 256;

/// The longest name of a channel, a recipient or a kind, in bytes.
pub const MAX_NAME_BYTES: usize = 256;

/// The longest body of a message, as JSON, in bytes: it names things, and carries no files.
pub const MAX_BODY_BYTES: usize = 64 * 1024;

/// A message to append.
#[derive(Clone, Debug, PartialEq)]
pub struct NewOutboxMessage {
    /// The person or group that it is for.
    pub recipient: String,
    /// The session that it comes from, if any.
    pub session: Option<SessionId>,
    /// The time at which it was written.
    pub at: Timestamp,
    /// Its kind, such as `approval_request`.
    pub kind: String,
    /// Its content.
    pub body: Value,
}

/// A message of the outbox.
#[derive(Clone, Debug, PartialEq)]
pub struct OutboxMessage {
    /// Its number, counted from one.
    pub number: u64,
    /// The entry that it rests on: the one appended last before it in its batch.
    pub entry: Option<EntrySeq>,
    /// The message.
    pub message: NewOutboxMessage,
}

/// The messages after a channel's cursor.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OutboxPage {
    /// The messages, in the order of their numbers.
    pub messages: Vec<OutboxMessage>,
    /// The number of messages after the cursor that were deleted before the channel read them.
    pub missed: u64,
}

/// A change to the outbox.
#[derive(Clone, Debug, PartialEq)]
pub enum OutboxOp {
    /// Appends a message. Its number is in the receipt.
    Append(Box<NewOutboxMessage>),
    /// Advances a channel's cursor to a message, which it has delivered with all before it. Conflict if that message was
    /// never appended; going back changes nothing.
    Advance {
        /// The channel; its cursor stands before the first message until then.
        channel: String,
        /// The number of the message.
        number: u64,
        /// The time.
        at: Timestamp,
    },
    /// Removes a channel's cursor. Removing a missing one is no error.
    RemoveChannel {
        /// The channel.
        channel: String,
    },
    /// Deletes the messages from before a time, delivered or not.
    Prune {
        /// The time.
        before: Timestamp,
    },
}

/// Appends a message and returns its number.
pub(crate) fn append_message(
    conn: &Connection,
    message: &NewOutboxMessage,
    entry: Option<EntrySeq>,
) -> Result<u64, StoreError> {
    codec::check_bytes("recipient", &message.recipient, MAX_NAME_BYTES)?;
    codec::check_bytes("kind of a message", &message.kind, MAX_NAME_BYTES)?;
    let body = codec::to_json("message", &message.body)?;
    codec::check_bytes("message of the outbox", &body, MAX_BODY_BYTES)?;
    execute(
        conn,
        "INSERT INTO outbox (recipient, session, at, entry, kind, body) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        params![
            message.recipient,
            message.session.map(|id| id.to_string()),
            message.at.as_millis(),
            entry.map(|entry| int(entry.0)),
            message.kind,
            body,
        ],
    )?;
    let number = codec::uint(conn.last_insert_rowid());
    // Numbers have no gaps, so the bound is one range of the primary key.
    execute(conn, "DELETE FROM outbox WHERE n <= ?1", [int(number.saturating_sub(MAX_OUTBOX))])?;
    Ok(number)
}

pub(crate) fn advance_cursor(
    conn: &Connection,
    channel: &str,
    number: u64,
    at: Timestamp,
) -> Result<(), StoreError> {
    codec::check_bytes("name of a channel", channel, MAX_NAME_BYTES)?;
    if number > last_number(conn)? {
        return Err(Conflict::Missing { what: "message of the outbox", id: number.to_string() }.into());
    }
    let known = query_one(conn, "SELECT 1 FROM outbox_cursor WHERE channel = ?1", [channel], |_| Ok(()))?;
    if known.is_none() {
        let sql = "SELECT count(*) AS n FROM outbox_cursor";
        let channels = query_one(conn, sql, [], |row| get_uint(row, "n"))?.unwrap_or_default();
        if usize::try_from(channels).is_ok_and(|channels| channels >= MAX_CHANNELS) {
            return Err(StoreError::TooLarge { what: "number of channels", limit: MAX_CHANNELS });
        }
    }
    // Two deliveries may finish out of order: the cursor stays at the later one.
    execute(
        conn,
        "INSERT INTO outbox_cursor (channel, n, at) VALUES (?1, ?2, ?3)
         ON CONFLICT (channel) DO UPDATE SET n = excluded.n, at = excluded.at WHERE excluded.n > n",
        params![channel, int(number), at.as_millis()],
    )?;
    Ok(())
}

pub(crate) fn remove_channel(conn: &Connection, channel: &str) -> Result<(), StoreError> {
    execute(conn, "DELETE FROM outbox_cursor WHERE channel = ?1", [channel])?;
    Ok(())
}

pub(crate) fn prune_outbox(conn: &Connection, before: Timestamp) -> Result<u64, StoreError> {
    // Only a range from the oldest on is deleted, even if a clock was set back, so that numbers keep no gaps.
    let sql = "DELETE FROM outbox WHERE n < coalesce(
                   (SELECT min(n) FROM outbox WHERE at >= ?1), (SELECT max(n) + 1 FROM outbox))";
    let deleted = execute(conn, sql, [before.as_millis()])?;
    Ok(u64::try_from(deleted).unwrap_or(u64::MAX))
}

/// Returns the number of the newest message that was ever appended; zero before the first.
fn last_number(conn: &Connection) -> Result<u64, StoreError> {
    let sql = "SELECT seq FROM sqlite_sequence WHERE name = 'outbox'";
    Ok(query_one(conn, sql, [], |row| get_uint(row, "seq"))?.unwrap_or_default())
}

pub(crate) fn outbox_cursor(conn: &Connection, channel: &str) -> Result<u64, StoreError> {
    let sql = "SELECT n FROM outbox_cursor WHERE channel = ?1";
    Ok(query_one(conn, sql, [channel], |row| get_uint(row, "n"))?.unwrap_or_default())
}

pub(crate) fn outbox_after_cursor(
    conn: &Connection,
    channel: &str,
    limit: usize,
) -> Result<OutboxPage, StoreError> {
    codec::snapshot(conn, |conn| {
        let cursor = outbox_cursor(conn, channel)?;
        let sql = "SELECT * FROM outbox WHERE n > ?1 ORDER BY n LIMIT ?2";
        let messages = query(conn, sql, params![int(cursor), codec::limit(limit)], decode_message)?;
        let first = match messages.first() {
            Some(message) => message.number,
            // A limit of zero reads none of those that are there.
            None if limit == 0 => cursor.saturating_add(1),
            None => last_number(conn)?.saturating_add(1),
        };
        Ok(OutboxPage { messages, missed: first.saturating_sub(cursor.saturating_add(1)) })
    })
}

fn decode_message(row: &Row<'_>) -> Result<OutboxMessage, StoreError> {
    Ok(OutboxMessage {
        number: get_uint(row, "n")?,
        entry: row.get::<_, Option<i64>>("entry")?.map(|seq| EntrySeq(codec::uint(seq))),
        message: NewOutboxMessage {
            recipient: row.get("recipient")?,
            session: codec::parse_option("session id", row.get("session")?)?,
            at: get_time(row, "at")?,
            kind: row.get("kind")?,
            body: codec::from_json("message", &row.get::<_, String>("body")?)?,
        },
    })
}

#[cfg(test)]
mod tests;
