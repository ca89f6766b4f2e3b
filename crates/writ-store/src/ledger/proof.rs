//! Inclusion proofs: one entry, shown to be in the ledger to someone who has the public key alone.

use rusqlite::{Connection, OptionalExtension as _};
use writ_types::api::ledger::EntryProof;
use writ_types::error::{Exit, Report, ToReport};
use writ_types::id::EntrySeq;

use super::append::StoredNodes;
use super::head::{Checkpoint, NoteError, verify_signature};
use super::row::{self, RowHeader};
use super::tree::{self, Hash};
use crate::codec;
use crate::error::{Conflict, StoreError};

/// The longest audit path: the levels of a tree with 64 bits of leaves.
pub const MAX_PATH: usize = 64;

/// The result of a checked proof.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProvenEntry {
    /// The head that covers the entry.
    pub head: Checkpoint,
    /// True if the payload was shown and fits; otherwise it was erased.
    pub payload: bool,
}

/// The reason why a proof is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProofError {
    /// A field is not what it should be.
    #[error("the proof's field {0} is malformed")]
    Malformed(&'static str),
    /// The payload is not the one that was committed to.
    #[error("the payload does not fit the entry")]
    Payload,
    /// The entry is not signed by the key.
    #[error("the entry is not signed by this key")]
    Signature,
    /// The checkpoint does not count.
    #[error(transparent)]
    Checkpoint(#[from] NoteError),
    /// The path does not lead to the checkpoint's root.
    #[error("the entry is not in the ledger of this checkpoint")]
    NotIncluded,
}

/// Checks a proof with the harness's public keys alone.
///
/// # Errors
///
/// If anything in it does not fit.
pub fn check_proof(proof: &EntryProof, keys: &[[u8; 32]]) -> Result<ProvenEntry, ProofError> {
    let head = Checkpoint::verify(&proof.checkpoint, keys)?;
    let commitment = from_hex("commitment", &proof.commitment)?;
    let signature = from_hex("signature", &proof.signature)?;
    let header = RowHeader {
        seq: proof.seq,
        at: proof.at,
        session: proof.session.as_bytes(),
        turn: proof.turn.as_bytes(),
        turn_number: proof.turn_number,
        event: proof.event.as_bytes(),
        commitment: &commitment,
    }
    .to_bytes();
    let payload = match (&proof.salt, &proof.payload) {
        (Some(salt), Some(payload)) => {
            // The payload as text, not as a value: another spelling of the same JSON is not what was committed to.
            if row::commitment(&from_hex("salt", salt)?, payload.as_bytes())[..] != commitment[..] {
                return Err(ProofError::Payload);
            }
            true
        }
        (None, None) => false,
        (Some(_), None) | (None, Some(_)) => return Err(ProofError::Payload),
    };
    if !keys.iter().any(|key| verify_signature(key, &header, &signature)) {
        return Err(ProofError::Signature);
    }
    // Bounded before it is hashed: a proof comes from a stranger.
    if proof.path.len() > MAX_PATH {
        return Err(ProofError::Malformed("path"));
    }
    let path = proof.path.iter().map(|text| hash_from_hex(text)).collect::<Result<Vec<_>, _>>()?;
    let leaf = row::leaf_of(&header, &signature);
    if tree::root_from_path(proof.seq, head.size, leaf, &path) == Some(head.root) {
        Ok(ProvenEntry { head, payload })
    } else {
        Err(ProofError::NotIncluded)
    }
}

impl ToReport for ProofError {
    fn report(&self) -> Report {
        Report::new(Exit::Ledger, "ledger.proof", self.to_string())
            .with_hint("nothing is proven; ask for the proof again")
    }
}

fn from_hex(field: &'static str, text: &str) -> Result<Vec<u8>, ProofError> {
    hex::decode(text).map_err(|_| ProofError::Malformed(field))
}

fn hash_from_hex(text: &str) -> Result<Hash, ProofError> {
    from_hex("path", text)?.try_into().map_err(|_| ProofError::Malformed("path"))
}

pub(crate) fn ledger_proof(
    conn: &Connection,
    key: &[u8; 32],
    entry: EntrySeq,
) -> Result<EntryProof, StoreError> {
    let row = row::ledger_row(conn, key, entry)?;
    let missing = || Conflict::Missing { what: "entry", id: entry.to_string() };
    let row = row.ok_or_else(missing)?;
    // The payload exactly as it was committed to, and the path to one head: both from one snapshot.
    let snapshot = conn.unchecked_transaction()?;
    let payload: Option<String> = snapshot
        .query_row("SELECT payload FROM ledger_payload WHERE seq = ?1", [codec::int(entry.0)], |row| {
            row.get(0)
        })
        .optional()?;
    let note: Option<String> = snapshot
        .query_row("SELECT note FROM ledger_head ORDER BY size DESC LIMIT 1", [], |row| row.get(0))
        .optional()?;
    let note = note.ok_or_else(missing)?;
    let head = Checkpoint::parse(&note).map_err(|error| StoreError::LedgerDamaged(error.to_string()))?;
    let path = tree::inclusion_path(entry.0, head.size, &StoredNodes(&snapshot))?;
    Ok(EntryProof {
        seq: entry.0,
        at: row.at.as_millis(),
        session: row.session.map(|id| id.to_string()).unwrap_or_default(),
        turn: row.turn.map(|id| id.to_string()).unwrap_or_default(),
        turn_number: codec::int(row.turn_number),
        event: row.event.clone(),
        commitment: row.commitment.to_string(),
        salt: payload.as_ref().map(|_| row.salt.clone()),
        payload,
        signature: row.signature.clone(),
        path: path.iter().map(hex::encode).collect(),
        checkpoint: note,
    })
}

#[cfg(test)]
mod tests;
