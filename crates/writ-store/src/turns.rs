//! Turns, their events, and the intents that have no outcome.

use rusqlite::{Connection, Row, params};
use writ_types::entry::Entry;
use writ_types::id::{AttemptId, EntrySeq, MessageId, SessionId, TurnId};
use writ_types::interaction::{InteractionMode, InteractionRegister};
use writ_types::unit::Timestamp;

use crate::bounds::MAX_READ_ROWS;
use crate::codec::{self, execute, get_time, get_uint, int, query, query_one};
use crate::error::{Conflict, StoreError};
use crate::ledger::row;
use crate::queue::PROXY;

/// The most events of one turn: each is read again after a crash.
pub const MAX_TURN_EVENTS: u64 = 10_000;

/// A turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TurnRow {
    /// Its id.
    pub id: TurnId,
    /// Its session.
    pub session: SessionId,
    /// Its number in the session, counted from one.
    pub number: u64,
    /// The message that it answers.
    pub message: MessageId,
    /// When it began.
    pub started_at: Timestamp,
    /// When it ended; `None` while it is open.
    pub ended_at: Option<Timestamp>,
    /// `open`, or how it ended.
    pub state: String,
    /// The number of its events, which is the number of the next one.
    pub events: u64,
    /// What it is about.
    pub register: InteractionRegister,
    /// How it deals with its person.
    pub mode: InteractionMode,
}

/// An intent without an outcome: whether it was performed is not known.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenIntent {
    /// The attempt.
    pub attempt: AttemptId,
    /// The position of the intent in the ledger.
    pub seq: EntrySeq,
    /// The intent; `None` if its payload was erased.
    pub entry: Option<Entry>,
}

/// A turn to open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewTurn {
    /// Its id.
    pub id: TurnId,
    /// Its session.
    pub session: SessionId,
    /// Its number: one more than the session's last.
    pub number: u64,
    /// The message that it answers.
    pub message: MessageId,
    /// When it begins.
    pub at: Timestamp,
    /// What it is about.
    pub register: InteractionRegister,
    /// How it deals with its person.
    pub mode: InteractionMode,
}

/// The most numbers that turns may be ahead of the last one that was stored: those that begin at once have each taken one, and are
/// stored in the order in which they are ready. Far more than a session has agents and executors.
pub const MAX_TURNS_AHEAD: u64 = 64;

pub(crate) fn begin_turn(conn: &Connection, turn: &NewTurn) -> Result<(), StoreError> {
    let session = turn.session.to_string();
    let last = query_one(conn, "SELECT turn_number FROM session WHERE id = ?1", [&session], |row| {
        get_uint(row, "turn_number")
    })?;
    let last = last.ok_or_else(|| Conflict::Missing { what: "session", id: session.clone() })?;
    let sql = "SELECT 1 FROM turn WHERE session = ?1 AND number = ?2";
    let is_used = query_one(conn, sql, params![session, int(turn.number)], |_| Ok(()))?.is_some();
    // The caller has named this number in entries of the same batch, so no other is taken in its place.
    if turn.number == 0 || is_used || turn.number > last.saturating_add(MAX_TURNS_AHEAD) {
        return Err(Conflict::TurnNumber { session: turn.session, expected: last + 1 }.into());
    }
    let newest = last.max(turn.number);
    execute(
        conn,
        "UPDATE session SET turn_number = ?2, updated_at = max(updated_at, ?3) WHERE id = ?1",
        params![session, int(newest), turn.at.as_millis()],
    )?;
    let added = execute(
        conn,
        "INSERT OR IGNORE INTO turn (id, session, number, message, started_at, state, interaction_register,
             interaction_mode)
         VALUES (?1, ?2, ?3, ?4, ?5, 'open', ?6, ?7)",
        params![
            turn.id.to_string(),
            session,
            int(turn.number),
            turn.message.to_string(),
            turn.at.as_millis(),
            turn.register.name(),
            turn.mode.name()
        ],
    )?;
    if added == 0 {
        return Err(Conflict::Exists { what: "turn", id: turn.id.to_string() }.into());
    }
    Ok(())
}

/// Replaces the labels of an open turn.
pub(crate) fn label_turn(
    conn: &Connection,
    turn: TurnId,
    register: InteractionRegister,
    mode: InteractionMode,
) -> Result<(), StoreError> {
    let changed = execute(
        conn,
        "UPDATE turn SET interaction_register = ?2, interaction_mode = ?3 WHERE id = ?1 AND ended_at IS NULL",
        params![turn.to_string(), register.name(), mode.name()],
    )?;
    if changed == 0 { Err(Conflict::TurnClosed(turn).into()) } else { Ok(()) }
}

/// Counts the next `count` events of an open turn, the first of which has number `n`; each is added then.
pub(crate) fn count_events(conn: &Connection, turn: TurnId, n: u64, count: u64) -> Result<(), StoreError> {
    if n.saturating_add(count) > MAX_TURN_EVENTS {
        return Err(StoreError::TooLarge {
            what: "number of events of a turn",
            limit: usize::try_from(MAX_TURN_EVENTS).unwrap_or(usize::MAX),
        });
    }
    let changed = execute(
        conn,
        "UPDATE turn SET events = events + ?3 WHERE id = ?1 AND events = ?2 AND ended_at IS NULL",
        params![turn.to_string(), int(n), int(count)],
    )?;
    // Compare-and-swap on the count: an event out of order changes no row.
    if changed == 0 {
        return Err(refused_event(conn, turn)?.into());
    }
    Ok(())
}

/// Adds an event that was counted.
pub(crate) fn add_event(conn: &Connection, turn: TurnId, n: u64, event: &str) -> Result<(), StoreError> {
    codec::check_size("event", event)?;
    let id = turn.to_string();
    execute(conn, "INSERT INTO turn_event (turn, n, event) VALUES (?1, ?2, ?3)", params![id, int(n), event])?;
    Ok(())
}

fn refused_event(conn: &Connection, turn: TurnId) -> Result<Conflict, StoreError> {
    let sql = "SELECT events FROM turn WHERE id = ?1 AND ended_at IS NULL";
    let expected = query_one(conn, sql, [turn.to_string()], |row| get_uint(row, "events"))?;
    Ok(expected.map_or(Conflict::TurnClosed(turn), |expected| Conflict::TurnEvent { turn, expected }))
}

pub(crate) fn close_turn(
    conn: &Connection,
    turn: TurnId,
    at: Timestamp,
    state: &str,
) -> Result<(), StoreError> {
    let id = turn.to_string();
    let changed = execute(
        conn,
        "UPDATE turn SET ended_at = ?2, state = ?3 WHERE id = ?1 AND ended_at IS NULL",
        params![id, at.as_millis(), state],
    )?;
    if changed == 0 {
        return Err(Conflict::TurnClosed(turn).into());
    }
    execute(
        conn,
        "UPDATE session SET updated_at = max(updated_at, ?2)
         WHERE id = (SELECT session FROM turn WHERE id = ?1)",
        params![id, at.as_millis()],
    )?;
    Ok(())
}

fn decode_turn(row: &Row<'_>) -> Result<TurnRow, StoreError> {
    Ok(TurnRow {
        id: codec::parse("turn id", &row.get::<_, String>("id")?)?,
        session: codec::parse("session id", &row.get::<_, String>("session")?)?,
        number: get_uint(row, "number")?,
        message: codec::parse("message id", &row.get::<_, String>("message")?)?,
        started_at: get_time(row, "started_at")?,
        ended_at: row.get::<_, Option<i64>>("ended_at")?.map(Timestamp::from_millis),
        state: row.get("state")?,
        events: get_uint(row, "events")?,
        register: codec::parse("interaction register", &row.get::<_, String>("interaction_register")?)?,
        mode: codec::parse("interaction mode", &row.get::<_, String>("interaction_mode")?)?,
    })
}

pub(crate) fn next_turn_number(conn: &Connection, session: SessionId) -> Result<u64, StoreError> {
    let id = session.to_string();
    let sql = "SELECT turn_number FROM session WHERE id = ?1";
    let last = query_one(conn, sql, [&id], |row| get_uint(row, "turn_number"))?;
    Ok(last.ok_or(Conflict::Missing { what: "session", id })? + 1)
}

pub(crate) fn next_message_turn(conn: &Connection, session: SessionId) -> Result<u64, StoreError> {
    let id = session.to_string();
    // Written so that the index of live messages serves it: a session may have had many.
    let sql = "SELECT turn_number + 1 + (
                   SELECT count(*) FROM message WHERE session = ?1 AND state IN ('ready', 'leased') AND consumer <> ?2
                   AND (state = 'ready' OR NOT EXISTS (
                       SELECT 1 FROM turn WHERE turn.message = message.id AND turn.ended_at IS NULL))) AS n
               FROM session WHERE id = ?1";
    let next = query_one(conn, sql, [id.as_str(), PROXY], |row| get_uint(row, "n"))?;
    Ok(next.ok_or(Conflict::Missing { what: "session", id })?)
}

pub(crate) fn read_turn(conn: &Connection, turn: TurnId) -> Result<Option<TurnRow>, StoreError> {
    query_one(conn, "SELECT * FROM turn WHERE id = ?1", [turn.to_string()], decode_turn)
}

pub(crate) fn newest_turn(
    conn: &Connection,
    session: Option<SessionId>,
) -> Result<Option<TurnRow>, StoreError> {
    let sql = "SELECT * FROM turn WHERE ?1 IS NULL OR session = ?1 ORDER BY started_at DESC, id DESC LIMIT 1";
    query_one(conn, sql, [session.map(|id| id.to_string())], decode_turn)
}

pub(crate) fn unfinished_turns(conn: &Connection) -> Result<Vec<TurnRow>, StoreError> {
    let sql = "SELECT * FROM turn WHERE ended_at IS NULL ORDER BY started_at, id LIMIT ?1";
    query(conn, sql, [codec::limit(MAX_READ_ROWS)], decode_turn)
}

pub(crate) fn turn_of_message(
    conn: &Connection,
    session: SessionId,
    message: MessageId,
) -> Result<(Option<TurnRow>, u64), StoreError> {
    codec::snapshot(conn, |conn| Ok((unfinished_turn_of(conn, message)?, next_turn_number(conn, session)?)))
}

pub(crate) fn open_turns(conn: &Connection, session: SessionId) -> Result<Vec<TurnRow>, StoreError> {
    let sql = "SELECT * FROM turn WHERE session = ?1 AND ended_at IS NULL ORDER BY number LIMIT ?2";
    query(conn, sql, params![session.to_string(), codec::limit(MAX_READ_ROWS)], decode_turn)
}

pub(crate) fn unfinished_turn_of(
    conn: &Connection,
    message: MessageId,
) -> Result<Option<TurnRow>, StoreError> {
    let sql = "SELECT * FROM turn WHERE message = ?1 AND ended_at IS NULL";
    query_one(conn, sql, [message.to_string()], decode_turn)
}

/// Returns the turn that a message has opened, also after its end.
pub(crate) fn turn_opened_by(
    conn: &Connection,
    session: SessionId,
    message: MessageId,
) -> Result<Option<TurnRow>, StoreError> {
    // From the newest on: who asks means one of the last.
    let sql = "SELECT * FROM turn WHERE session = ?1 AND message = ?2 ORDER BY number DESC LIMIT 1";
    query_one(conn, sql, params![session.to_string(), message.to_string()], decode_turn)
}

pub(crate) fn session_turns(
    conn: &Connection,
    session: SessionId,
    after: u64,
    limit: usize,
) -> Result<Vec<TurnRow>, StoreError> {
    let sql = "SELECT * FROM turn WHERE session = ?1 AND number > ?2 ORDER BY number LIMIT ?3";
    query(conn, sql, params![session.to_string(), int(after), codec::limit(limit)], decode_turn)
}

pub(crate) fn turn_events(conn: &Connection, turn: TurnId) -> Result<Vec<String>, StoreError> {
    let sql = "SELECT event FROM turn_event WHERE turn = ?1 ORDER BY n";
    query(conn, sql, [turn.to_string()], |row| Ok(row.get("event")?))
}

pub(crate) fn open_intents(conn: &Connection, key: &[u8; 32]) -> Result<Vec<OpenIntent>, StoreError> {
    let sql = format!(
        "SELECT i.attempt, {} JOIN intent i ON i.entry = l.seq WHERE i.closed_by IS NULL
         ORDER BY i.entry LIMIT ?1",
        row::COLUMNS
    );
    query(conn, &sql, [codec::limit(MAX_READ_ROWS)], |found| {
        let row = row::decode_row(found, key)?;
        Ok(OpenIntent {
            attempt: codec::parse("attempt id", &found.get::<_, String>("attempt")?)?,
            seq: row.seq,
            entry: row.entry(),
        })
    })
}

#[cfg(test)]
mod tests;
