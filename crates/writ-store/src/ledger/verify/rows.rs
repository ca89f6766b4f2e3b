//! The check of one row. Columns are read raw: a damaged database may hold anything.

use rusqlite::Row;
use rusqlite::types::ValueRef;
use writ_types::entry::Fact;

use super::{KnownRestore, ProblemKind};
use crate::error::StoreError;
use crate::ledger::head::verify_signature;
use crate::ledger::rotation::Rotation;
use crate::ledger::row::{self, RowHeader};
use crate::ledger::tree::Hash;

/// The event of rows that tell of a restore.
const RESTORED: &[u8] = b"restored";
/// The event of rows that tell of keys.
const KEYED: &[u8] = b"keyed";

/// The columns that [`CheckedRow::read`] expects, in order.
pub(super) const SQL: &str = "SELECT l.seq, l.leaf, l.at, l.session, l.turn, l.turn_number, l.event,
     l.commitment, l.signature, p.salt, p.payload, e.at, e.signature
     FROM ledger l LEFT JOIN ledger_payload p ON p.seq = l.seq LEFT JOIN ledger_erasure e ON e.seq = l.seq
     WHERE l.seq >= ?1 ORDER BY l.seq";

/// A row that fits itself.
pub(super) struct CheckedRow {
    pub(super) leaf: Hash,
    pub(super) erased: bool,
    /// The restore that the row tells of, if it is about one.
    pub(super) restored: Option<KnownRestore>,
    /// The rotation that the row records, if it is about one.
    pub(super) rotated: Option<Rotation>,
    header: Vec<u8>,
    signature: Vec<u8>,
}

/// The problem of a row.
pub(super) struct BadRow(pub(super) ProblemKind, pub(super) &'static str);

impl CheckedRow {
    /// Checks what needs no other row: columns against leaf, payload against commitment.
    pub(super) fn read(
        row: &Row<'_>,
        seq: u64,
        keys: &[[u8; 32]],
    ) -> Result<Result<Self, BadRow>, StoreError> {
        // SQLite itself fails here only on a damaged page, which is an error of the file.
        let header = RowHeader {
            seq,
            at: integer(row, 2)?,
            session: bytes(row, 3)?,
            turn: bytes(row, 4)?,
            turn_number: integer(row, 5)?,
            event: bytes(row, 6)?,
            commitment: bytes(row, 7)?,
        };
        let signature = bytes(row, 8)?;
        let commitment = header.commitment;
        let text = header.to_bytes();
        let leaf = row::leaf_of(&text, signature);
        if bytes(row, 1)? != leaf {
            return Ok(Err(BadRow(ProblemKind::Leaf, "its columns do not fit its leaf")));
        }
        let (mut restored, mut rotated) = (None, None);
        let erased = match payload(row)? {
            Payload::There { salt, payload } => {
                if row::commitment(salt, payload)[..] != *commitment {
                    return Ok(Err(BadRow(ProblemKind::Payload, "its payload was changed")));
                }
                if header.event == RESTORED {
                    restored = known_restore(seq, payload);
                } else if header.event == KEYED {
                    rotated = Rotation::of_payload(payload);
                }
                false
            }
            Payload::Erased { at, signature } => {
                let text = row::erasure_text(seq, &leaf, at);
                if !keys.iter().any(|key| verify_signature(key, text.as_bytes(), signature)) {
                    return Ok(Err(BadRow(ProblemKind::Erasure, "its erasure is not signed by a known key")));
                }
                true
            }
            Payload::Missing => return Ok(Err(BadRow(ProblemKind::Erasure, "its payload is missing"))),
        };
        Ok(Ok(Self { leaf, erased, restored, rotated, header: text, signature: signature.to_vec() }))
    }

    /// Returns true if one of the keys signed the row.
    pub(super) fn is_signed(&self, keys: &[[u8; 32]]) -> bool {
        self.signer(keys).is_some()
    }

    /// Returns the key that signed the row.
    pub(super) fn signer(&self, keys: &[[u8; 32]]) -> Option<[u8; 32]> {
        keys.iter().find(|key| verify_signature(key, &self.header, &self.signature)).copied()
    }
}

/// Returns the restore that a row records. One that names another place than its own explains nothing.
fn known_restore(seq: u64, payload: &[u8]) -> Option<KnownRestore> {
    let Ok(Fact::Restored { from, lost, epoch }) = serde_json::from_slice(payload) else { return None };
    (from.0 == seq).then_some(KnownRestore { from, lost, epoch })
}

enum Payload<'a> {
    There { salt: &'a [u8], payload: &'a [u8] },
    Erased { at: i64, signature: &'a [u8] },
    Missing,
}

fn payload<'a>(row: &'a Row<'_>) -> Result<Payload<'a>, StoreError> {
    let there = !matches!(row.get_ref(10)?, ValueRef::Null);
    let erased = !matches!(row.get_ref(12)?, ValueRef::Null);
    Ok(match (there, erased) {
        (true, false) => Payload::There { salt: bytes(row, 9)?, payload: bytes(row, 10)? },
        (false, true) => Payload::Erased { at: integer(row, 11)?, signature: bytes(row, 12)? },
        // Both at once is as wrong as neither: the harness writes one or the other.
        (true, true) | (false, false) => Payload::Missing,
    })
}

/// The bytes of a text or blob; nothing for anything else, which then does not fit.
fn bytes<'a>(row: &'a Row<'_>, column: usize) -> Result<&'a [u8], StoreError> {
    Ok(match row.get_ref(column)? {
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => bytes,
        ValueRef::Null | ValueRef::Integer(_) | ValueRef::Real(_) => &[],
    })
}

/// An integer; the least one for anything else, which then does not fit.
fn integer(row: &Row<'_>, column: usize) -> Result<i64, StoreError> {
    Ok(match row.get_ref(column)? {
        ValueRef::Integer(value) => value,
        ValueRef::Null | ValueRef::Real(_) | ValueRef::Text(_) | ValueRef::Blob(_) => i64::MIN,
    })
}
