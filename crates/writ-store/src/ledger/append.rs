//! Appending entries: rows, inner nodes, heads, and the index of open intents.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use rand::{Rng as _, RngCore as _};
use rusqlite::{Connection, OptionalExtension as _, params};
use writ_types::digest::canonical_json;
use writ_types::entry::{Entry, Fact};
use writ_types::id::{AttemptId, EntrySeq, KeyId};
use writ_types::unit::Timestamp;

use super::erase;
use super::head::{Checkpoint, HEAD_INTERVAL, HeadSigner};
use super::lost;
use super::rotation::{self, Rotation};
use super::row::{self, RowHeader, SALT_BYTES};
use super::tree::{Frontier, Hash, Nodes};
use crate::codec::{self, execute, int};
use crate::error::{Conflict, StoreError};

/// The growing end of the ledger: the state needed to append, held by the writer alone.
#[derive(Clone)]
pub(crate) struct Tail {
    origin: Arc<str>,
    frontier: Frontier,
    signer: Arc<dyn HeadSigner>,
}

/// Stored nodes of the tree.
pub(crate) struct StoredNodes<'a>(pub(crate) &'a Connection);

impl Nodes for StoredNodes<'_> {
    type Error = StoreError;

    fn node(&self, level: u32, index: u64) -> Result<Hash, StoreError> {
        let bytes: Option<Vec<u8>> = if level == 0 {
            let mut statement = self.0.prepare_cached("SELECT leaf FROM ledger WHERE seq = ?1")?;
            statement.query_row([int(index)], |row| row.get(0)).optional()?
        } else {
            let mut statement =
                self.0.prepare_cached("SELECT hash FROM ledger_node WHERE level = ?1 AND idx = ?2")?;
            statement.query_row(params![level, int(index)], |row| row.get(0)).optional()?
        };
        bytes
            .and_then(|bytes| bytes.try_into().ok())
            .ok_or_else(|| StoreError::LedgerDamaged(format!("node {level}/{index} is missing")))
    }
}

impl Tail {
    /// Reads the end of the ledger and checks that it fits its last signed head, so that nothing is
    /// ever signed over a ledger that was cut or changed there.
    pub(crate) fn load(
        conn: &Connection,
        origin: &str,
        signer: Arc<dyn HeadSigner>,
        rotations: &[Rotation],
    ) -> Result<Self, StoreError> {
        let size = row::count_rows(conn)?;
        let least = row::least_size(conn, row::AT_OPENING)?;
        // A ledger that was cut at its end is not appended to: the cut would be covered by the next head.
        if size < least {
            let text = format!("the database tells of {least} entries at least, there are {size}");
            return Err(StoreError::LedgerDamaged(text));
        }
        let own = signer.public_key();
        let known = known_keys(conn)?;
        let new_key = !known.contains(&own);
        // A key is new where the last one has signed for it: in the ledger, or, if that was restored, in the
        // stored rotations.
        let mut again = Vec::new();
        if let Some(last) = known.last().filter(|_| new_key) {
            let recorded = rotation::recorded_rotations(conn)?;
            if rotation::rotation_path(last, &own, &recorded).is_none() {
                again = rotation::rotation_path(last, &own, rotations).ok_or(StoreError::KeyMismatch)?;
            }
        }
        let frontier = Frontier::load(size, &StoredNodes(conn))?;
        let last: Option<String> = conn
            .query_row("SELECT note FROM ledger_head ORDER BY size DESC LIMIT 1", [], |row| row.get(0))
            .optional()?;
        match last {
            None if size == 0 => {}
            None => return Err(StoreError::LedgerDamaged("it has entries and no head".to_owned())),
            Some(note) => {
                // Keys named by the database are believed only where they lead to our own.
                let keys = if new_key { known } else { vec![own] };
                let head = Checkpoint::verify(&note, &keys)
                    .map_err(|error| StoreError::LedgerDamaged(error.to_string()))?;
                if head.size != size || head.root != frontier.root() || head.origin != origin {
                    let text = format!("the head covers {} entries, there are {size}", head.size);
                    return Err(StoreError::LedgerDamaged(text));
                }
            }
        }
        let mut tail = Self { origin: origin.into(), frontier, signer };
        if new_key {
            let tx = conn.unchecked_transaction()?;
            tail.adopt_key(&tx, &again)?;
            tx.commit()?;
        }
        Ok(tail)
    }

    /// Records the signer's key and how it came to be that, and signs the last head with it.
    fn adopt_key(&mut self, conn: &Connection, again: &[Rotation]) -> Result<(), StoreError> {
        let before = self.size();
        for rotation in again {
            let at = Timestamp::from_millis(0)
                .plus_duration(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default());
            let entry = rotation.entry(KeyId::from_parts(at, rand::rng().random()), at);
            self.append(conn, &entry)?;
        }
        self.seal(conn, before)?;
        execute(
            conn,
            "INSERT INTO ledger_key (public_key, from_size) VALUES (?1, ?2)",
            params![self.signer.public_key(), int(self.size())],
        )?;
        let head = Checkpoint::sign(&self.origin, self.size(), self.frontier.root(), self.signer.as_ref());
        execute(
            conn,
            "UPDATE ledger_head SET note = ?2 WHERE size = ?1",
            params![int(head.size), head.note],
        )?;
        Ok(())
    }

    /// Number of entries.
    pub(crate) const fn size(&self) -> u64 {
        self.frontier.size()
    }

    /// Appends an entry; the head is signed by [`Self::seal`].
    pub(crate) fn append(&mut self, conn: &Connection, entry: &Entry) -> Result<EntrySeq, StoreError> {
        let payload = canonical_json(&entry.fact)
            .map_err(|error| StoreError::Encode { what: "entry", message: error.to_string() })?;
        let payload = String::from_utf8(payload)
            .map_err(|error| StoreError::Encode { what: "entry", message: error.to_string() })?;
        codec::check_size("entry", &payload)?;
        let mut salt = [0; SALT_BYTES];
        // The salt goes with the payload when it is erased, so that the commitment confirms no guess.
        rand::rng().fill_bytes(&mut salt);
        let seq = self.frontier.size();
        let session = entry.session.map(|id| id.to_string());
        let turn = entry.turn.map(|id| id.to_string());
        let commitment = row::commitment(&salt, payload.as_bytes());
        let header = RowHeader {
            seq,
            at: entry.at.as_millis(),
            session: session.as_deref().unwrap_or_default().as_bytes(),
            turn: turn.as_deref().unwrap_or_default().as_bytes(),
            turn_number: int(entry.turn_number),
            event: entry.fact.event_name().as_bytes(),
            commitment: &commitment,
        }
        .to_bytes();
        let signature = self.signer.sign(&header);
        let leaf = row::leaf_of(&header, &signature);
        execute(
            conn,
            "INSERT INTO ledger (seq, leaf, at, session, turn, turn_number, event, commitment, signature)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
            params![
                int(seq),
                leaf,
                entry.at.as_millis(),
                session,
                turn,
                int(entry.turn_number),
                entry.fact.event_name(),
                commitment,
                signature
            ],
        )?;
        execute(
            conn,
            "INSERT INTO ledger_payload (seq, salt, payload) VALUES (?1, ?2, ?3)",
            params![int(seq), salt, payload],
        )?;
        self.grow(conn, leaf)?;
        index_attempt(conn, seq, &entry.fact)?;
        Ok(EntrySeq(seq))
    }

    fn grow(&mut self, conn: &Connection, leaf: Hash) -> Result<(), StoreError> {
        let mut nodes = Vec::new();
        self.frontier.push(leaf, |level, index, hash| nodes.push((level, index, *hash)));
        for (level, index, hash) in nodes {
            execute(
                conn,
                "INSERT INTO ledger_node (level, idx, hash) VALUES (?1, ?2, ?3)",
                params![level, int(index), hash],
            )?;
        }
        if self.size().is_multiple_of(HEAD_INTERVAL) { self.write_head(conn) } else { Ok(()) }
    }

    /// Signs the head of what was appended since `size`, and drops the head that it replaces.
    pub(crate) fn seal(&self, conn: &Connection, size: u64) -> Result<(), StoreError> {
        if self.size() == size {
            return Ok(());
        }
        if !self.size().is_multiple_of(HEAD_INTERVAL) {
            self.write_head(conn)?;
        }
        // The head before this batch is covered by the new one.
        if !size.is_multiple_of(HEAD_INTERVAL) {
            execute(conn, "DELETE FROM ledger_head WHERE size = ?1", [int(size)])?;
        }
        Ok(())
    }

    fn write_head(&self, conn: &Connection) -> Result<(), StoreError> {
        let head = Checkpoint::sign(&self.origin, self.size(), self.frontier.root(), self.signer.as_ref());
        execute(
            conn,
            "INSERT INTO ledger_head (size, root, note) VALUES (?1, ?2, ?3)",
            params![int(head.size), head.root, head.note],
        )?;
        Ok(())
    }

    /// Erases a payload that nothing rests on, and leaves a signed statement in its place.
    pub(crate) fn erase(&self, conn: &Connection, entry: EntrySeq, at: Timestamp) -> Result<(), StoreError> {
        erase::check_erasable(conn, entry, at)?;
        lost::forget_erased(conn, entry)?;
        // A missing entry is refused below, where its payload is deleted.
        let leaf = if entry.0 < self.size() { StoredNodes(conn).node(0, entry.0)? } else { [0; 32] };
        if execute(conn, "DELETE FROM ledger_payload WHERE seq = ?1", [int(entry.0)])? == 0 {
            return Err(Conflict::Missing { what: "payload of entry", id: entry.to_string() }.into());
        }
        let signature = self.signer.sign(row::erasure_text(entry.0, &leaf, at.as_millis()).as_bytes());
        execute(
            conn,
            "INSERT INTO ledger_erasure (seq, at, signature) VALUES (?1, ?2, ?3)",
            params![int(entry.0), at.as_millis(), signature],
        )?;
        Ok(())
    }
}

impl std::fmt::Debug for Tail {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tail")
            .field("origin", &self.origin)
            .field("size", &self.size())
            .finish_non_exhaustive()
    }
}

/// The public keys that have signed in this ledger, in no order that matters.
pub(crate) fn known_keys(conn: &Connection) -> Result<Vec<[u8; 32]>, StoreError> {
    codec::query(conn, "SELECT public_key FROM ledger_key ORDER BY from_size", [], |row| Ok(row.get(0)?))
}

/// Keeps the index of intents: what was begun, and what came of it.
fn index_attempt(conn: &Connection, seq: u64, fact: &Fact) -> Result<(), StoreError> {
    match fact {
        Fact::Intent { attempt, .. } => {
            let added = execute(
                conn,
                "INSERT OR IGNORE INTO intent (attempt, entry) VALUES (?1, ?2)",
                params![attempt.to_string(), int(seq)],
            )?;
            // One attempt is one intent: a second one would be performed twice.
            if added == 0 {
                return Err(Conflict::Exists { what: "attempt", id: attempt.to_string() }.into());
            }
            Ok(())
        }
        Fact::Outcome { attempt, outcome, .. } => {
            close_attempt(conn, seq, *attempt)?;
            lost::record_outcome(conn, *attempt, *outcome)
        }
        Fact::ModelCalled { attempt, .. } => close_attempt(conn, seq, *attempt),
        Fact::Received { .. }
        | Fact::Gated { .. }
        | Fact::Hooked { .. }
        | Fact::Shadowed { .. }
        | Fact::Asked { .. }
        | Fact::Answered { .. }
        | Fact::Denied { .. }
        | Fact::Served { .. }
        | Fact::Keyed { .. }
        | Fact::Planned { .. }
        | Fact::Phase { .. }
        | Fact::Worked { .. }
        | Fact::Remembered { .. }
        | Fact::Escalated { .. }
        | Fact::CaseMoved { .. }
        | Fact::AgentMoved { .. }
        | Fact::CustomerRead { .. }
        | Fact::PolicyChanged { .. }
        | Fact::Restored { .. }
        | Fact::Applied { .. }
        | Fact::Checkpoint { .. }
        | Fact::Erased { .. }
        | Fact::SandboxReady { .. }
        | Fact::Connected { .. }
        | Fact::Compacted { .. }
        | Fact::Replied { .. } => Ok(()),
    }
}

/// Closes the attempt's intent, if it has one (simulated outcomes have none), and frees what was set aside for it.
fn close_attempt(conn: &Connection, seq: u64, attempt: AttemptId) -> Result<(), StoreError> {
    let id = attempt.to_string();
    let open: Option<bool> =
        codec::query_one(conn, "SELECT closed_by IS NULL FROM intent WHERE attempt = ?1", [&id], |row| {
            Ok(row.get(0)?)
        })?;
    match open {
        None => Ok(()),
        Some(false) => Err(Conflict::IntentClosed(attempt).into()),
        Some(true) => {
            execute(conn, "UPDATE intent SET closed_by = ?2 WHERE attempt = ?1", params![id, int(seq)])?;
            execute(conn, "DELETE FROM reservation WHERE attempt = ?1", [&id])?;
            Ok(())
        }
    }
}
