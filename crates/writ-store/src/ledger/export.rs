//! The ledger as JSON lines: heads to hold elsewhere, entries to read elsewhere.

use std::io::Write;

use serde::{Deserialize, Serialize};
use writ_types::error::{Exit, Report, ToReport};

use super::head::{Checkpoint, MAX_NOTE_BYTES, NoteError};
use super::row;
use crate::codec;
use crate::error::StoreError;
use crate::store::Store;

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

/// A line of held heads that is not one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} of the held heads: {error}")]
pub struct HeldError {
    /// The line, counted from one.
    pub line: usize,
    /// What is wrong with it.
    pub error: NoteError,
}

/// Reads held heads, as [`Store::export_heads`] writes them, and checks their signatures.
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
            .hint("give a file written by `writ audit export --heads` of this home")
    }
}

/// Why an export failed.
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
                .inside(self.to_string())
                .hint("check the space and the permissions of the target"),
        }
    }
}

// === impl Store ===

impl Store {
    /// Writes the kept heads (multiples of 256 and the newest), one JSON object a line; returns their number.
    ///
    /// # Errors
    ///
    /// If the database cannot be read or the output cannot be written.
    pub fn export_heads(&self, out: &mut dyn Write) -> Result<u64, ExportError> {
        let mut written = 0;
        self.export("SELECT note FROM ledger_head ORDER BY size", |found| {
            let note: String = found.get("note").map_err(StoreError::from)?;
            let head =
                Checkpoint::parse(&note).map_err(|error| StoreError::LedgerDamaged(error.to_string()))?;
            write_line(out, &HeadLine { size: head.size, root: hex::encode(head.root), note })?;
            written += 1;
            Ok(())
        })?;
        Ok(written)
    }

    /// Writes every entry, one JSON object a line, oldest first; returns their number.
    ///
    /// # Errors
    ///
    /// If the database cannot be read or the output cannot be written.
    pub fn export_entries(&self, out: &mut dyn Write) -> Result<u64, ExportError> {
        let key = self.public_key();
        let mut written = 0;
        self.export(&format!("SELECT {} ORDER BY l.seq", row::COLUMNS), |found| {
            write_line(out, &row::decode(found, &key)?)?;
            written += 1;
            Ok(())
        })?;
        Ok(written)
    }

    /// Streams the rows of a query: an export is as long as the ledger, and is never held in memory.
    fn export(
        &self,
        sql: &str,
        mut each: impl FnMut(&rusqlite::Row<'_>) -> Result<(), ExportError>,
    ) -> Result<(), ExportError> {
        let mut result = Ok(());
        self.read(|conn| {
            let mut statement = conn.prepare(sql)?;
            let mut rows = statement.query([])?;
            while let Some(row) = rows.next()? {
                result = each(row);
                if result.is_err() {
                    break;
                }
            }
            Ok(())
        })?;
        result
    }
}

fn write_line<T: Serialize>(out: &mut dyn Write, value: &T) -> Result<(), ExportError> {
    let line = codec::to_json("export line", value)?;
    Ok(writeln!(out, "{line}")?)
}
