//! The ledger as JSON lines: heads to hold elsewhere, entries to read and verify elsewhere.
//!
//! The form of both is a promise to programs that verify them: `docs/reference/ledger-format.md`.

use std::borrow::Cow;
use std::io::Write;

use rusqlite::Connection;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use writ_types::error::{Exit, Report, ToReport};

use super::head::{Checkpoint, MAX_NOTE_BYTES, NoteError};
use crate::codec;
use crate::error::StoreError;

/// The most heads of a held file: one in 256 entries of a ledger with 250 million.
pub const MAX_HELD: usize = 1_000_000;

/// The longest line of a held file: a note and its quoting.
const MAX_LINE_BYTES: usize = 2 * MAX_NOTE_BYTES;

/// One line of an export of heads.
#[derive(Debug, Serialize, Deserialize)]
struct HeadLine {
    size: u64,
    root: String,
    note: String,
}

/// One line of an export of entries, without its last field, the payload.
#[derive(Debug, Serialize)]
struct EntryLine {
    seq: u64,
    at: i64,
    session: Option<String>,
    turn: Option<String>,
    turn_number: i64,
    event: String,
    commitment: String,
    signature: String,
    leaf: String,
    salt: Option<String>,
    erased: Option<ErasedLine>,
}

/// The harness's statement that it has erased a payload.
#[derive(Debug, Serialize)]
struct ErasedLine {
    at: i64,
    signature: String,
}

/// Every entry with its payload or the statement that it was erased.
const ENTRIES: &str =
    "SELECT l.seq, l.at, l.session, l.turn, l.turn_number, l.event, l.commitment, l.signature,
     l.leaf, p.salt, p.payload, e.at AS erased_at, e.signature AS erased_by
     FROM ledger l LEFT JOIN ledger_payload p ON p.seq = l.seq LEFT JOIN ledger_erasure e ON e.seq = l.seq
     ORDER BY l.seq";

/// A line of held heads that is not one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} of the held heads: {error}")]
pub struct HeldError {
    /// The line, counted from one.
    pub line: usize,
    /// The kind of problem.
    pub error: NoteError,
}

/// Reads held heads, as `Store::export_heads` writes them, and checks their signatures.
///
/// # Errors
///
/// If a line is not a head or not signed by any of the keys.
pub fn read_heads(text: &str, keys: &[[u8; 32]]) -> Result<Vec<Checkpoint>, HeldError> {
    let mut heads = Vec::new();
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let at = |error| HeldError { line: number + 1, error };
        if line.len() > MAX_LINE_BYTES || heads.len() >= MAX_HELD {
            return Err(at(NoteError::Malformed));
        }
        let parsed: HeadLine = serde_json::from_str(line).map_err(|_| at(NoteError::Malformed))?;
        let head = Checkpoint::verify(&parsed.note, keys).map_err(at)?;
        if head.size != parsed.size || hex::encode(head.root) != parsed.root {
            return Err(at(NoteError::Malformed));
        }
        heads.push(head);
    }
    Ok(heads)
}

impl ToReport for HeldError {
    fn report(&self) -> Report {
        Report::new(Exit::Ledger, "ledger.held_heads", self.to_string())
            .with_hint("give a file written by `writ audit export --heads` of this home")
    }
}

/// Returns the number of entries that a line of a held file covers, if it is one.
pub fn size_of_line(line: &str) -> Option<u64> {
    serde_json::from_str(line).ok().map(|line: HeadLine| line.size)
}

/// The reason why an export failed.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The store could not be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The output could not be written.
    #[error("the export could not be written: {0}")]
    Write(#[from] std::io::Error),
}

impl ToReport for ExportError {
    fn report(&self) -> Report {
        match self {
            Self::Store(error) => error.report(),
            Self::Write(_) => Report::new(Exit::Blocked, "ledger.export", "the export could not be written")
                .with_inside(self.to_string())
                .with_hint("check the space and the permissions of the target"),
        }
    }
}

pub(crate) fn export_heads(conn: &Connection, out: &mut dyn Write) -> Result<u64, ExportError> {
    let mut written = 0;
    stream_rows(conn, "SELECT note FROM ledger_head ORDER BY size", |found| {
        let note: String = found.get("note").map_err(StoreError::from)?;
        let head = Checkpoint::parse(&note).map_err(|error| StoreError::LedgerDamaged(error.to_string()))?;
        write_line(out, &HeadLine { size: head.size, root: hex::encode(head.root), note })?;
        written += 1;
        Ok(())
    })?;
    Ok(written)
}

pub(crate) fn newest_head(conn: &Connection) -> Result<Option<(u64, String)>, StoreError> {
    let sql = "SELECT note FROM ledger_head ORDER BY size DESC LIMIT 1";
    let note: Option<String> = codec::query_one(conn, sql, [], |row| Ok(row.get("note")?))?;
    let Some(note) = note else { return Ok(None) };
    let head = Checkpoint::parse(&note).map_err(|error| StoreError::LedgerDamaged(error.to_string()))?;
    let line = HeadLine { size: head.size, root: hex::encode(head.root), note };
    Ok(Some((head.size, codec::to_json("export line", &line)?)))
}

pub(crate) fn export_entries(conn: &Connection, out: &mut dyn Write) -> Result<u64, ExportError> {
    let mut written = 0;
    stream_rows(conn, ENTRIES, |found| {
        write_entry(out, found)?;
        written += 1;
        Ok(())
    })?;
    Ok(written)
}

/// Streams the rows of a query: an export is as long as the ledger, and is never held in memory.
fn stream_rows(
    conn: &Connection,
    sql: &str,
    mut each: impl FnMut(&rusqlite::Row<'_>) -> Result<(), ExportError>,
) -> Result<(), ExportError> {
    let mut statement = conn.prepare(sql).map_err(StoreError::from)?;
    let mut rows = statement.query([]).map_err(StoreError::from)?;
    while let Some(row) = rows.next().map_err(StoreError::from)? {
        each(row)?;
    }
    Ok(())
}

fn write_entry(out: &mut dyn Write, found: &rusqlite::Row<'_>) -> Result<(), ExportError> {
    let (line, payload) = entry_line(found)?;
    let line = codec::to_json("export line", &line)?;
    // The payload stands last and byte for byte as it was committed to, not as this program would write its value.
    // The closing brace makes room for the payload.
    let fields = line.strip_suffix('}').unwrap_or(&line);
    let payload = payload.as_deref().map_or(Ok(Cow::Borrowed("null")), on_one_line)?;
    Ok(writeln!(out, "{fields},\"payload\":{payload}}}")?)
}

fn entry_line(found: &rusqlite::Row<'_>) -> Result<(EntryLine, Option<String>), StoreError> {
    let hex = |column: &str| Ok::<_, StoreError>(hex::encode(found.get::<_, Vec<u8>>(column)?));
    // An empty text is hashed as one that is absent.
    let text = |column: &str| {
        let text: Option<String> = found.get(column)?;
        Ok::<_, StoreError>(text.filter(|text| !text.is_empty()))
    };
    let salt: Option<Vec<u8>> = found.get("salt")?;
    let erased_by: Option<Vec<u8>> = found.get("erased_by")?;
    let erased_at: Option<i64> = found.get("erased_at")?;
    let erased = erased_by.zip(erased_at).map(|(by, at)| ErasedLine { at, signature: hex::encode(by) });
    let line = EntryLine {
        seq: codec::get_uint(found, "seq")?,
        at: found.get("at")?,
        session: text("session")?,
        turn: text("turn")?,
        turn_number: found.get("turn_number")?,
        event: found.get("event")?,
        commitment: hex("commitment")?,
        signature: hex("signature")?,
        leaf: hex("leaf")?,
        salt: salt.map(hex::encode),
        erased,
    };
    Ok((line, found.get("payload")?))
}

/// A payload as it stands in a line. A damaged database may hold anything: what is no JSON of one line becomes a JSON
/// text, which fits no commitment.
fn on_one_line(payload: &str) -> Result<Cow<'_, str>, StoreError> {
    if !payload.contains(['\n', '\r']) && serde_json::from_str::<IgnoredAny>(payload).is_ok() {
        return Ok(Cow::Borrowed(payload));
    }
    let text = serde_json::to_string(payload)
        .map_err(|error| StoreError::Encode { what: "export line", message: error.to_string() })?;
    Ok(Cow::Owned(text))
}

fn write_line<T: Serialize>(out: &mut dyn Write, value: &T) -> Result<(), ExportError> {
    let line = codec::to_json("export line", value)?;
    Ok(writeln!(out, "{line}")?)
}
