//! Copies of sessions.

use std::collections::BTreeSet;

use rusqlite::{Connection, params};
use serde_json::Value;
use writ_types::chat::{ChatMessage, FILE_LINE_START, FileRef, Part};
use writ_types::id::SessionId;

use super::{CONTEXT_PINS, NewSessionRow, create_session, write_metadata};
use crate::codec::{self, execute, get_uint, int, query_one};
use crate::compaction;
use crate::error::StoreError;

/// The rows of a copy: the rows of the history stand in the same order, and one after another.
struct CopiedRows {
    from: String,
    /// The last row of the store before the copy.
    before: u64,
    until: u64,
}

pub(super) fn fork_session(
    conn: &Connection,
    from: SessionId,
    until: u64,
    to: &NewSessionRow,
) -> Result<(), StoreError> {
    create_session(conn, to)?;
    let last = query_one(conn, "SELECT coalesce(max(n), 0) AS last FROM chronicle", [], |row| {
        get_uint(row, "last")
    })?;
    let rows = CopiedRows { from: from.to_string(), before: last.unwrap_or_default(), until };
    let copy = params![rows.from, to.id.to_string(), int(until)];
    // The entries that the messages rest on stay the same; the turns were the other session's.
    execute(
        conn,
        "INSERT INTO chronicle (session, turn, turn_number, at, entry, message)
         SELECT ?2, NULL, turn_number, at, entry, message FROM chronicle
         WHERE session = ?1 AND turn_number <= ?3 ORDER BY n",
        copy,
    )?;
    copy_files(conn, &rows, to.id)?;
    copy_compaction(conn, &rows, from, to.id)?;
    copy_pins(conn, &rows, to)?;
    execute(
        conn,
        "UPDATE session SET turn_number = min(?3, (SELECT turn_number FROM session WHERE id = ?1)) WHERE id = ?2",
        copy,
    )?;
    Ok(())
}

impl CopiedRows {
    /// Returns the copy of a row; `None` if it was not copied.
    fn copy_of(&self, conn: &Connection, row: u64) -> Result<Option<u64>, StoreError> {
        let place = query_one(
            conn,
            "SELECT count(*) AS place FROM chronicle WHERE session = ?1 AND n <= ?2 AND turn_number <= ?3
             AND EXISTS (SELECT 1 FROM chronicle WHERE session = ?1 AND n = ?2 AND turn_number <= ?3)",
            params![self.from, int(row), int(self.until)],
            |row| get_uint(row, "place"),
        )?;
        Ok(place.filter(|place| *place > 0).map(|place| self.before.saturating_add(place)))
    }

    fn copies_of(&self, conn: &Connection, rows: &[u64]) -> Result<Vec<u64>, StoreError> {
        let mut copies = Vec::with_capacity(rows.len());
        for row in rows {
            copies.extend(self.copy_of(conn, *row)?);
        }
        Ok(copies)
    }
}

/// Copies the files that the copied messages name. What came with a later turn, or with no message yet, stays with its session.
fn copy_files(conn: &Connection, rows: &CopiedRows, to: SessionId) -> Result<(), StoreError> {
    let mut named = BTreeSet::new();
    // Most messages name no file, and need not be read.
    let sql = "SELECT message FROM chronicle WHERE session = ?1 AND instr(message, ?2) > 0";
    let mut statement = conn.prepare_cached(sql)?;
    let mut found = statement.query(params![to.to_string(), FILE_LINE_START])?;
    while let Some(row) = found.next()? {
        let message: ChatMessage = codec::from_json("message", &row.get::<_, String>(0)?)?;
        for part in &message.parts {
            if let Part::Text { text } = part {
                named.extend(FileRef::files_in(text).into_iter().map(|file| file.digest));
            }
        }
    }
    for digest in named {
        execute(
            conn,
            "INSERT INTO message_file (session, digest, at, name, media, content)
             SELECT ?2, digest, at, name, media, content FROM message_file WHERE session = ?1 AND digest = ?3",
            params![rows.from, to.to_string(), digest.to_string()],
        )?;
    }
    Ok(())
}

/// The most compactions that are searched for the one that a copy begins with.
const MAX_SEARCHED: usize = 1_000;

/// Copies the newest compaction that stands for copied rows alone: the copy begins with it.
fn copy_compaction(
    conn: &Connection,
    rows: &CopiedRows,
    from: SessionId,
    to: SessionId,
) -> Result<(), StoreError> {
    let covers_more = "SELECT 1 FROM chronicle WHERE session = ?1 AND n <= ?2 AND turn_number > ?3";
    for mut compaction in compaction::read_all(conn, from, MAX_SEARCHED)? {
        let covered = params![rows.from, int(compaction.upto), int(rows.until)];
        if conn.prepare_cached(covers_more)?.exists(covered)? {
            continue;
        }
        let Some(upto) = rows.copy_of(conn, compaction.upto)? else { return Ok(()) };
        (compaction.session, compaction.upto) = (to, upto);
        compaction.kept = rows.copies_of(conn, &compaction.kept)?;
        return compaction::insert_compaction(conn, &compaction, compaction.entry);
    }
    Ok(())
}

/// Lets the pins of a copy name its own rows.
fn copy_pins(conn: &Connection, rows: &CopiedRows, to: &NewSessionRow) -> Result<(), StoreError> {
    let Some(pins) = to.metadata.get(CONTEXT_PINS) else { return Ok(()) };
    let pins: Vec<u64> = codec::from_json("pins", &pins.to_string())?;
    let copies = rows.copies_of(conn, &pins)?;
    let mut metadata = to.metadata.clone();
    if copies.is_empty() {
        metadata.remove(CONTEXT_PINS);
    } else {
        metadata.insert(CONTEXT_PINS.to_owned(), Value::from(copies));
    }
    write_metadata(conn, to.id, &metadata)
}
