//! Verification: every row, node and head, and the heads that others hold.
//!
//! The rows stream through a growing tree. Below a good head, hashing alone proves each row as the
//! harness wrote it; where a head does not fit, the signatures of the rows since the last good one
//! name the first that is not the harness's. What is named is the first gap or mismatch, else the
//! first leaf after the last good head.

use std::path::Path;

use rusqlite::{Connection, OpenFlags};
use serde::Serialize;
use writ_types::error::{Exit, Report, ToReport};
use writ_types::id::EntrySeq;

use super::head::Checkpoint;
use crate::error::StoreError;

mod nodes;
mod rows;
mod walk;

/// The extent of a verification.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerifyOptions {
    /// The public keys that may have signed: the present one and those before it.
    pub keys: Vec<[u8; 32]>,
    /// Heads that were stored elsewhere, in any order; read them with [`super::export::read_heads`].
    pub held: Vec<Checkpoint>,
    /// Verify the signature of every row too. Without it, rows below good heads are proven by the
    /// tree, which covers their signatures; it costs some 50 µs a row.
    pub every_signature: bool,
}

/// The result of a verification.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VerifyReport {
    /// Rows that were read and are good.
    pub rows: u64,
    /// Rows with an erased payload and the harness's signature for the erasure.
    pub erased: u64,
    /// Stored heads that are good.
    pub heads: u64,
    /// Held heads that fit.
    pub held: u64,
    /// Row signatures that were verified one by one.
    pub signatures: u64,
    /// The largest good head: how many entries it covers. Zero if there is none.
    pub covered: u64,
    /// Restores of backups that the ledger tells of.
    pub restores: Vec<KnownRestore>,
    /// Held heads of entries that a known restore gave up.
    pub given_up: u64,
    /// The first thing that is wrong; `None`: everything is good.
    pub problem: Option<Problem>,
}

/// A restore that the ledger records: entries after it replace those that were given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct KnownRestore {
    /// The entry that records it, which is also the number of the first entry that was given up.
    pub from: EntrySeq,
    /// The number of entries that were given up, if known.
    pub lost: Option<u64>,
    /// The epoch since then.
    pub epoch: u64,
}

impl KnownRestore {
    /// Returns true if a head of this size covered entries that this restore gave up.
    fn explains(&self, size: u64) -> bool {
        size > self.from.0 && self.lost.is_none_or(|lost| size - self.from.0 <= lost)
    }
}

impl VerifyReport {
    /// Returns true if no problem was found.
    pub const fn is_good(&self) -> bool {
        self.problem.is_none()
    }
}

/// The first thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The first bad leaf.
    pub leaf: EntrySeq,
    /// The kind of problem.
    pub kind: ProblemKind,
    /// The same for people.
    pub text: String,
}

/// The kinds of problems.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ProblemKind {
    /// The database file is damaged there.
    Unreadable,
    /// A row is not there, or not where it belongs.
    Gap,
    /// A row's columns do not fit its leaf.
    Leaf,
    /// A payload does not fit its commitment.
    Payload,
    /// A payload is missing, and the harness has not signed for that.
    Erasure,
    /// A row is not signed by any of the keys.
    Signature,
    /// A stored inner node does not fit the rows below it.
    Node,
    /// A stored head does not fit the rows, or is not signed by any of the keys.
    Head,
    /// A head at a multiple of the interval is missing.
    MissingHead,
    /// The last signed head covers more rows than there are, or the rest of the database tells of more.
    Truncated,
    /// There are rows that no head covers.
    Uncovered,
    /// A held head covers more rows than there are: rows were cut off, or this is an older copy.
    OlderCopy,
    /// A held head does not fit the rows: the past was written again.
    Rewritten,
    /// The key was exchanged, and the one before has not signed for that.
    KeyExchanged,
    /// The heads are of another ledger, or signed with another key.
    OtherLedger,
}

impl ToReport for Problem {
    fn report(&self) -> Report {
        Report::new(Exit::Ledger, "ledger.bad", format!("the ledger does not verify: {}", self.text))
            .with_hint(
                "keep a copy of the database; restore a backup that verifies with `writ backup restore`",
            )
    }
}

/// Verifies the ledger in a database file without opening it for writing.
///
/// # Errors
///
/// If the file cannot be read as a database of Writ; what is wrong *in* the ledger is in the report.
pub fn verify_file(path: &Path, options: &VerifyOptions) -> Result<VerifyReport, StoreError> {
    let conn = open_copy(path)?;
    let snapshot = conn.unchecked_transaction()?;
    let verified = walk::verify(&snapshot, options);
    if let Err(StoreError::Sqlite(message)) = verified {
        // A database, but without the ledger's tables.
        return Err(StoreError::Corrupt(message));
    }
    verified
}

/// Opens a file for reading. Without a write-ahead log beside it nothing else can change it, and it
/// may lie in a folder that cannot be written.
fn open_copy(path: &Path) -> Result<Connection, StoreError> {
    if !path.is_file() {
        return Err(StoreError::Path {
            path: path.display().to_string(),
            message: "no such file".to_owned(),
        });
    }
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    let quiet = Path::new(&log).metadata().map_or(true, |log| log.len() == 0);
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    if !quiet {
        return Ok(Connection::open_with_flags(path, flags)?);
    }
    let absolute = std::path::absolute(path).map_err(|error| StoreError::io(path, &error))?;
    let uri = format!("file:{}?immutable=1", percent_encode(absolute.as_os_str().as_encoded_bytes()));
    Ok(Connection::open_with_flags(uri, flags | OpenFlags::SQLITE_OPEN_URI)?)
}

fn percent_encode(path: &[u8]) -> String {
    path.iter()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'_' | b'.' => {
                char::from(*byte).to_string()
            }
            other => format!("%{other:02X}"),
        })
        .collect()
}

pub(crate) fn verify_ledger(
    conn: &Connection,
    key: [u8; 32],
    options: &VerifyOptions,
) -> Result<VerifyReport, StoreError> {
    let mut options = options.clone();
    options.keys.push(key);
    let snapshot = conn.unchecked_transaction()?;
    walk::verify(&snapshot, &options)
}

#[cfg(test)]
mod tests;
