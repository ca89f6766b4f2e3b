//! Sessions, their frames, and their history.

use std::collections::BTreeMap;

use rusqlite::{Connection, Row, params};
use serde_json::Value;
use writ_types::chat::ChatMessage;
use writ_types::frame::{Numbered, ServerFrame};
use writ_types::id::{EntrySeq, SessionId, TurnId};
use writ_types::unit::Timestamp;

use crate::codec::{self, execute, get_time, get_uint, int, query, query_one};
use crate::error::{Conflict, StoreError};

pub(crate) mod erasure;

mod fork;

/// The key of a session's metadata that says when it was closed.
pub const CLOSED_AT: &str = "closed_at";

/// The key of a session's metadata that says when it was deleted.
pub const DELETED_AT: &str = "deleted_at";

/// The key of a session's metadata that says when its content was erased.
pub const ERASED_AT: &str = "erased_at";

/// The key of a session's metadata that says when the erasure of its content was last continued.
pub const ERASING_AT: &str = "erasing_at";

/// The key of a session's metadata with the rows of its history that its owner has pinned.
pub const CONTEXT_PINS: &str = "context_pins";

/// The key of a session's metadata that says where it was opened.
pub const SURFACE: &str = "surface";

/// The value of [`SURFACE`] of a session that only the engine works in. It is in no list.
pub const INTERNAL: &str = "engine";

/// The most messages that a search looks through, newest first: about a second of reading.
pub const MAX_SEARCHED: usize = 50_000;

/// Changes to whole sessions.
#[derive(Clone, Debug, PartialEq)]
pub enum SessionOp {
    /// Opens a session with a copy of another one's history, its summaries, its files and the rows that are pinned in the
    /// new one's metadata. Conflict if the new one exists.
    Fork {
        /// The session that the history is copied from.
        from: SessionId,
        /// The number of the last turn that is copied.
        until: u64,
        /// The new session.
        to: NewSessionRow,
    },
    /// Erases the history, frames, files, summaries, episodes and ended asks of a session that was deleted and closed, and
    /// notes that its erasure has begun. The ledger's payloads are erased by themselves. Conflict if it was not deleted, or
    /// a turn of it is open.
    Erase {
        /// The session.
        session: SessionId,
        /// When.
        at: Timestamp,
    },
    /// Notes that nothing of a session's content is left that can go. Conflict if something is.
    EndErasure {
        /// The session.
        session: SessionId,
        /// When.
        at: Timestamp,
    },
}

/// Messages that a search has found.
#[derive(Clone, Debug, PartialEq)]
pub struct ChronicleHits {
    /// The messages with their sessions, newest first.
    pub rows: Vec<(SessionId, ChronicleRow)>,
    /// True if older messages were not looked through.
    pub more: bool,
}

/// A session.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionRow {
    /// Its id.
    pub id: SessionId,
    /// When it was opened.
    pub created_at: Timestamp,
    /// When something last happened in it.
    pub updated_at: Timestamp,
    /// The project's folder, if it works on one.
    pub project: Option<String>,
    /// Further properties.
    pub metadata: BTreeMap<String, Value>,
    /// The number of its last turn; zero before the first.
    pub turn_number: u64,
    /// The number of its last stored frame; zero before the first.
    pub frame_seq: u64,
}

/// One message of a session's history.
#[derive(Clone, Debug, PartialEq)]
pub struct ChronicleRow {
    /// Its place in the history of all sessions.
    pub n: u64,
    /// The turn, if it belongs to one.
    pub turn: Option<TurnId>,
    /// The turn's number; zero outside turns.
    pub turn_number: u64,
    /// When.
    pub at: Timestamp,
    /// The entry that it rests on, if any.
    pub entry: Option<EntrySeq>,
    /// The message.
    pub message: ChatMessage,
}

/// A session to open.
#[derive(Clone, Debug, PartialEq)]
pub struct NewSessionRow {
    /// Its id.
    pub id: SessionId,
    /// When it is opened.
    pub created_at: Timestamp,
    /// The project's folder, if it works on one.
    pub project: Option<String>,
    /// Further properties.
    pub metadata: BTreeMap<String, Value>,
}

/// A message for the history of a session.
#[derive(Clone, Debug, PartialEq)]
pub struct NewChronicle {
    /// The session.
    pub session: SessionId,
    /// The turn, if it belongs to one.
    pub turn: Option<TurnId>,
    /// The turn's number; zero outside turns.
    pub turn_number: u64,
    /// When.
    pub at: Timestamp,
    /// The message.
    pub message: ChatMessage,
}

pub(crate) fn create_session(conn: &Connection, session: &NewSessionRow) -> Result<(), StoreError> {
    let metadata = codec::to_json("metadata", &session.metadata)?;
    let added = execute(
        conn,
        "INSERT OR IGNORE INTO session (id, created_at, updated_at, project, metadata)
         VALUES (?1, ?2, ?2, ?3, ?4)",
        params![session.id.to_string(), session.created_at.as_millis(), session.project, metadata],
    )?;
    if added == 0 {
        return Err(Conflict::Exists { what: "session", id: session.id.to_string() }.into());
    }
    Ok(())
}

/// Returns true if a session with this metadata, as text, is closed.
pub(crate) fn is_closed(metadata: &str) -> Result<bool, StoreError> {
    let metadata: BTreeMap<String, Value> = codec::from_json("metadata", metadata)?;
    Ok(metadata.contains_key(CLOSED_AT))
}

pub(crate) fn set_metadata(
    conn: &Connection,
    session: SessionId,
    key: &str,
    value: Option<&Value>,
) -> Result<(), StoreError> {
    let id = session.to_string();
    let text: Option<String> =
        query_one(conn, "SELECT metadata FROM session WHERE id = ?1", [&id], |row| Ok(row.get(0)?))?;
    let text = text.ok_or_else(|| missing_session(session))?;
    // Read and written in the one writer's transaction, so no other key is overwritten.
    let mut metadata: BTreeMap<String, Value> = codec::from_json("metadata", &text)?;
    let is_erased = metadata.contains_key(ERASING_AT) || metadata.contains_key(ERASED_AT);
    if is_erased && key != CLOSED_AT {
        // Properties are content, and nothing writes content back.
        return Err(Conflict::Erased(session).into());
    }
    match value {
        Some(value) => metadata.insert(key.to_owned(), value.clone()),
        None => metadata.remove(key),
    };
    write_metadata(conn, session, &metadata)
}

fn write_metadata(
    conn: &Connection,
    session: SessionId,
    metadata: &BTreeMap<String, Value>,
) -> Result<(), StoreError> {
    execute(
        conn,
        "UPDATE session SET metadata = ?2 WHERE id = ?1",
        params![session.to_string(), codec::to_json("metadata", metadata)?],
    )?;
    Ok(())
}

/// Stores a frame and returns its number.
pub(crate) fn add_frame(
    conn: &Connection,
    session: SessionId,
    frame: &ServerFrame,
) -> Result<u64, StoreError> {
    let id = session.to_string();
    // The session row is the counter, so numbers have no gaps even if frames are pruned.
    let seq = query_one(
        conn,
        "UPDATE session SET frame_seq = frame_seq + 1 WHERE id = ?1 RETURNING frame_seq",
        [&id],
        |row| get_uint(row, "frame_seq"),
    )?
    .ok_or_else(|| missing_session(session))?;
    execute(
        conn,
        "INSERT INTO frame (session, seq, frame) VALUES (?1, ?2, ?3)",
        params![id, int(seq), codec::to_json("frame", frame)?],
    )?;
    Ok(seq)
}

pub(crate) fn add_chronicle(
    conn: &Connection,
    row: &NewChronicle,
    entry: Option<EntrySeq>,
) -> Result<(), StoreError> {
    let session = row.session.to_string();
    let changed = execute(
        conn,
        "UPDATE session SET updated_at = max(updated_at, ?2) WHERE id = ?1",
        params![session, row.at.as_millis()],
    )?;
    if changed == 0 {
        return Err(missing_session(row.session).into());
    }
    execute(
        conn,
        "INSERT INTO chronicle (session, turn, turn_number, at, entry, message)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        params![
            session,
            row.turn.map(|id| id.to_string()),
            int(row.turn_number),
            row.at.as_millis(),
            entry.map(|entry| int(entry.0)),
            codec::to_json("message", &row.message)?,
        ],
    )?;
    Ok(())
}

/// Applies a change to a whole session.
pub(crate) fn apply_session_op(conn: &Connection, op: &SessionOp) -> Result<(), StoreError> {
    match op {
        SessionOp::Fork { from, until, to } => fork::fork_session(conn, *from, *until, to),
        SessionOp::Erase { session, at } => erasure::erase_session(conn, *session, *at),
        SessionOp::EndErasure { session, at } => erasure::end_erasure(conn, *session, *at),
    }
}

/// Finds messages with all of these words, in either case, newest first.
pub(crate) fn search_chronicle(
    conn: &Connection,
    words: &[String],
    limit: usize,
) -> Result<ChronicleHits, StoreError> {
    let mut statement = conn.prepare_cached(
        "SELECT c.* FROM chronicle c JOIN session s ON s.id = c.session
         WHERE json_extract(s.metadata, '$.deleted_at') IS NULL ORDER BY c.n DESC LIMIT ?1",
    )?;
    // More than one read returns: they are looked through here, and not handed out.
    let most = i64::try_from(MAX_SEARCHED.saturating_add(1)).unwrap_or(i64::MAX);
    let mut rows = statement.query([most])?;
    let (mut found, mut looked) = (Vec::new(), 0_usize);
    while let Some(row) = rows.next()? {
        looked += 1;
        if looked > MAX_SEARCHED || found.len() >= limit {
            return Ok(ChronicleHits { rows: found, more: true });
        }
        let session = codec::parse("session id", &row.get::<_, String>("session")?)?;
        let message = decode_chronicle(row)?;
        let text = message.message.said_text().to_lowercase();
        if words.iter().all(|word| text.contains(word.as_str())) {
            found.push((session, message));
        }
    }
    Ok(ChronicleHits { rows: found, more: false })
}

/// Reads the messages of users since a time in conversations of the surfaces, newest first.
pub(crate) fn said_since(
    conn: &Connection,
    since: Timestamp,
    surfaces: &[String],
    limit: usize,
) -> Result<Vec<ChronicleRow>, StoreError> {
    // The role stands first in a message, and most rows are of others: only the beginning of these is compared.
    let sql = "SELECT c.* FROM (SELECT * FROM chronicle ORDER BY n DESC LIMIT ?1) c JOIN session s ON s.id = c.session
               WHERE c.at >= ?2 AND substr(c.message, 1, 14) = '{\"role\":\"user\"'
                   AND json_extract(s.metadata, '$.deleted_at') IS NULL
                   AND coalesce(json_extract(s.metadata, '$.relayed'), 0) = 0
                   AND coalesce(json_extract(s.metadata, '$.surface'), 'local') IN (SELECT value FROM json_each(?3))
               ORDER BY c.n DESC LIMIT ?4";
    let surfaces = codec::to_json("surfaces", &surfaces)?;
    let most = codec::limit(MAX_SEARCHED);
    query(conn, sql, params![most, since.as_millis(), surfaces, codec::limit(limit)], decode_chronicle)
}

/// Reads messages of a session's history after a number, oldest first.
pub(crate) fn chronicle_page(
    conn: &Connection,
    session: SessionId,
    after: u64,
    limit: usize,
) -> Result<Vec<ChronicleRow>, StoreError> {
    let sql = "SELECT * FROM chronicle WHERE session = ?1 AND n > ?2 ORDER BY n LIMIT ?3";
    query(conn, sql, params![session.to_string(), int(after), codec::limit(limit)], decode_chronicle)
}

fn missing_session(session: SessionId) -> Conflict {
    Conflict::Missing { what: "session", id: session.to_string() }
}

fn decode_session(row: &Row<'_>) -> Result<SessionRow, StoreError> {
    Ok(SessionRow {
        id: codec::parse("session id", &row.get::<_, String>("id")?)?,
        created_at: get_time(row, "created_at")?,
        updated_at: get_time(row, "updated_at")?,
        project: row.get("project")?,
        metadata: codec::from_json("metadata", &row.get::<_, String>("metadata")?)?,
        turn_number: get_uint(row, "turn_number")?,
        frame_seq: get_uint(row, "frame_seq")?,
    })
}

fn decode_chronicle(row: &Row<'_>) -> Result<ChronicleRow, StoreError> {
    Ok(ChronicleRow {
        n: get_uint(row, "n")?,
        turn: codec::parse_option("turn id", row.get("turn")?)?,
        turn_number: get_uint(row, "turn_number")?,
        at: get_time(row, "at")?,
        entry: row.get::<_, Option<i64>>("entry")?.map(|seq| EntrySeq(codec::uint(seq))),
        message: codec::from_json("message", &row.get::<_, String>("message")?)?,
    })
}

pub(crate) fn read_session(conn: &Connection, session: SessionId) -> Result<Option<SessionRow>, StoreError> {
    query_one(conn, "SELECT * FROM session WHERE id = ?1", [session.to_string()], decode_session)
}

pub(crate) fn read_sessions(conn: &Connection, limit: usize) -> Result<Vec<SessionRow>, StoreError> {
    let sql = "SELECT * FROM session WHERE json_extract(metadata, '$.surface') IS NOT ?2
               ORDER BY updated_at DESC, id DESC LIMIT ?1";
    query(conn, sql, params![codec::limit(limit), INTERNAL], decode_session)
}

/// Returns the newest session of the engine that is open.
pub(crate) fn internal_session(conn: &Connection) -> Result<Option<SessionRow>, StoreError> {
    let sql = "SELECT * FROM session WHERE json_extract(metadata, '$.surface') = ?1
               AND json_extract(metadata, '$.closed_at') IS NULL ORDER BY created_at DESC, id DESC LIMIT 1";
    query_one(conn, sql, [INTERNAL], decode_session)
}

pub(crate) fn frames_after(
    conn: &Connection,
    session: SessionId,
    after: u64,
    limit: usize,
) -> Result<Vec<Numbered>, StoreError> {
    let sql = "SELECT seq, frame FROM frame WHERE session = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3";
    query(conn, sql, params![session.to_string(), int(after), codec::limit(limit)], |row| {
        Ok(Numbered {
            seq: get_uint(row, "seq")?,
            frame: codec::from_json("frame", &row.get::<_, String>("frame")?)?,
        })
    })
}

pub(crate) fn recent_until(
    conn: &Connection,
    session: SessionId,
    last: u64,
    limit: usize,
) -> Result<Vec<ChronicleRow>, StoreError> {
    read_chronicle(conn, session, (0, last), limit)
}

pub(crate) fn recent_after(
    conn: &Connection,
    session: SessionId,
    after: u64,
    limit: usize,
) -> Result<Vec<ChronicleRow>, StoreError> {
    read_chronicle(conn, session, (after, u64::MAX), limit)
}

pub(crate) fn chronicle_rows(
    conn: &Connection,
    session: SessionId,
    rows: &[u64],
) -> Result<Vec<ChronicleRow>, StoreError> {
    let mut found = Vec::with_capacity(rows.len());
    for n in rows {
        let sql = "SELECT * FROM chronicle WHERE session = ?1 AND n = ?2";
        found.extend(query_one(conn, sql, params![session.to_string(), int(*n)], decode_chronicle)?);
    }
    found.sort_by_key(|row| row.n);
    Ok(found)
}

pub(crate) fn count_chronicle(conn: &Connection, session: SessionId, last: u64) -> Result<u64, StoreError> {
    let sql = "SELECT count(*) AS rows FROM chronicle WHERE session = ?1 AND n <= ?2";
    let count = query_one(conn, sql, params![session.to_string(), int(last)], |row| get_uint(row, "rows"))?;
    Ok(count.unwrap_or_default())
}

fn read_chronicle(
    conn: &Connection,
    session: SessionId,
    (after, last): (u64, u64),
    limit: usize,
) -> Result<Vec<ChronicleRow>, StoreError> {
    let sql = "SELECT * FROM chronicle WHERE session = ?1 AND n > ?2 AND n <= ?3 ORDER BY n DESC LIMIT ?4";
    let params = params![session.to_string(), int(after), int(last), codec::limit(limit)];
    let mut rows = query(conn, sql, params, decode_chronicle)?;
    // The newest were selected; the caller reads them in their order.
    rows.reverse();
    Ok(rows)
}

#[cfg(test)]
mod tests;
