//! Consistent copies of the database, and what a restored one says of itself.

use std::collections::BTreeSet;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, OpenFlags};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use writ_types::digest::Digest;
use writ_types::entry::{Entry, Fact};
use writ_types::id::{EntrySeq, InstallationId, KeyId};
use writ_types::unit::Timestamp;

use crate::approvals::{self, ApproverKey};
use crate::batch::{Batch, Op};
use crate::bounds::MAX_READ_ROWS;
use crate::codec;
use crate::error::StoreError;
use crate::ledger::verify::{VerifyOptions, verify_file};
use crate::schema::{MIGRATIONS, check_not_newer};
use crate::settings;
use crate::store::Store;

/// The content of a copy of the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatabaseCopy {
    /// The installation that the copy is of.
    pub installation: InstallationId,
    /// The epoch that was in force.
    pub epoch: u64,
    /// The number of entries of its ledger.
    pub entries: u64,
}

/// Copies a database as it is at one moment, also while another process writes to it. The copy is one file,
/// without a log beside it, and SQLite has checked it.
///
/// # Errors
///
/// If the database cannot be read, is of a newer version or damaged, or the copy cannot be written; an
/// incomplete copy is removed.
pub fn copy_database(from: &Path, to: &Path) -> Result<DatabaseCopy, StoreError> {
    // The file is made first, so that two copies to one place cannot mix.
    let copied = copy(from, to);
    if copied.is_err() {
        // There may be nothing to remove; the error that counts is the first.
        let _removed = std::fs::remove_file(to);
    }
    copied
}

fn copy(from: &Path, to: &Path) -> Result<DatabaseCopy, StoreError> {
    std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(to)
        .map_err(|error| StoreError::io(to, &error))?;
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let source = Connection::open_with_flags(from, flags)?;
    let mut target = Connection::open(to)?;
    {
        let backup = Backup::new(&source, &mut target)?;
        // All pages in one step: one snapshot, which holds up no writer.
        if backup.step(-1)? != StepResult::Done {
            return Err(StoreError::Locked);
        }
    }
    // A copy in WAL mode would need its log beside it.
    target.pragma_update(None, "journal_mode", "DELETE")?;
    inspect(&target)
}

/// Reads what a copy holds, and whether it is whole.
///
/// # Errors
///
/// If it is damaged, is no database of Writ, or is of a newer version.
pub fn inspect_copy(path: &Path) -> Result<DatabaseCopy, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    inspect(&Connection::open_with_flags(path, flags)?)
}

/// Folds the rest of a database's log into its file, so that the file alone is the database.
///
/// # Errors
///
/// If it cannot be written, or another process still uses it.
pub fn fold_log(path: &Path) -> Result<(), StoreError> {
    let conn = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    let busy: bool = conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0))?;
    if busy { Err(StoreError::Locked) } else { Ok(()) }
}

/// The digest of a file, read in pieces, and its size in bytes.
///
/// # Errors
///
/// If it cannot be read.
pub fn file_digest(path: &Path) -> Result<(Digest, u64), StoreError> {
    let failed = |error: std::io::Error| StoreError::io(path, &error);
    let mut file = std::fs::File::open(path).map_err(failed)?;
    let mut hasher = Sha256::new();
    let bytes = std::io::copy(&mut file, &mut hasher).map_err(failed)?;
    Ok((Digest::from_bytes(hasher.finalize().into()), bytes))
}

fn inspect(conn: &Connection) -> Result<DatabaseCopy, StoreError> {
    let said: String = conn.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0))?;
    if said != "ok" {
        return Err(StoreError::Corrupt(said));
    }
    check_not_newer(conn, MIGRATIONS)?;
    Ok(DatabaseCopy {
        installation: settings::installation_of(conn)?,
        epoch: settings::epoch_of(conn)?,
        entries: codec::query_one(conn, "SELECT count(*) FROM ledger", [], |row| {
            codec::get_uint(row, "count(*)")
        })?
        .unwrap_or_default(),
    })
}

/// The facts about approver keys that an older database must not undo: removals, and the counters of
/// passkeys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WithdrawnKeys {
    /// Keys that were removed, and when.
    removed: Vec<(KeyId, Timestamp)>,
    /// The counters of passkeys.
    counted: Vec<(KeyId, u32)>,
}

impl WithdrawnKeys {
    /// Reads it from a database, without changing anything; `None`: its ledger does not verify with these keys, so that
    /// nothing that it says may take anybody's key away. A key counts as removed where the ledger tells of it, too.
    ///
    /// # Errors
    ///
    /// If the database cannot be read.
    pub fn of(path: &Path, keys: Vec<[u8; 32]>) -> Result<Option<Self>, StoreError> {
        if !verify_file(path, &VerifyOptions { keys, ..VerifyOptions::default() })?.is_good() {
            return Ok(None);
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let conn = Connection::open_with_flags(path, flags)?;
        let told = told_removed(&conn)?;
        let keys = approvals::approver_keys(&conn)?;
        let removed = keys.iter().filter(|key| told.contains(&key.id));
        let removed = removed.filter_map(|key| Some((key.id, key.revoked_at?))).collect();
        let counted = keys.iter().map(|key| Ok((key.id, approvals::counted(&conn, key.id)?)));
        Ok(Some(Self { removed, counted: counted.collect::<Result<_, StoreError>>()? }))
    }

    /// Returns the operations that remove these keys again and raise their counters, and the labels of the
    /// removed keys. The last key that is no passkey stays: without it no other could be enrolled.
    fn ops(&self, store: &Store, now: Timestamp) -> Result<(Vec<Op>, Vec<String>), StoreError> {
        let (mut ops, mut removed) = (Vec::new(), Vec::new());
        let in_force: Vec<ApproverKey> =
            store.blocking().approver_keys()?.into_iter().filter(|key| key.revoked_at.is_none()).collect();
        let mut terminals = in_force.iter().filter(|key| key.kind != PASSKEY).count();
        for key in in_force {
            let known = store.blocking().run(|db| approvals::counted(&db.conn, key.id))?;
            // A counter that goes back would let a cloned passkey pass.
            let later = self.counted.iter().find(|(id, count)| *id == key.id && *count > known);
            ops.extend(later.map(|&(key, sign_count)| Op::CountPasskey { key, sign_count }));
            let Some(&(id, at)) = self.removed.iter().find(|(id, _)| *id == key.id) else { continue };
            if key.kind != PASSKEY && terminals == 1 {
                continue;
            }
            terminals -= usize::from(key.kind != PASSKEY);
            let grants = format!("'{}', {}: removed before the backup was put back", key.label, key.kind);
            let fact = Fact::Keyed { key: id, role: APPROVER.to_owned(), change: REVOKED.to_owned(), grants };
            let entry = Entry { at: now, session: None, turn: None, turn_number: 0, fact };
            ops.extend([Op::Append(Box::new(entry)), Op::RevokeKey { key: id, at }]);
            removed.push(key.label);
        }
        Ok((ops, removed))
    }
}

/// The kind of approver keys that are passkeys.
const PASSKEY: &str = "passkey";
/// The role of approver keys in entries.
const APPROVER: &str = "approver";
/// The change that a removal is recorded as.
const REVOKED: &str = "revoked";

/// The approver keys that the ledger says were removed.
fn told_removed(conn: &Connection) -> Result<BTreeSet<KeyId>, StoreError> {
    let sql = "SELECT p.payload FROM ledger l JOIN ledger_payload p ON p.seq = l.seq
               WHERE l.event = 'keyed' AND p.payload LIKE '%\"change\":\"revoked\"%' ORDER BY l.seq DESC LIMIT ?1";
    let told = codec::query(conn, sql, [codec::limit(MAX_READ_ROWS)], |row| {
        codec::from_json("payload", &row.get::<_, String>(0)?)
    })?;
    let removed = told.into_iter().filter_map(|fact| {
        let Fact::Keyed { key, role, change, .. } = fact else { return None };
        (role == APPROVER && change == REVOKED).then_some(key)
    });
    Ok(removed.collect())
}

/// The result of marking a database as restored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoreMark {
    /// The entry that tells of the restore.
    pub from: EntrySeq,
    /// The labels of the approver keys that stay removed.
    pub removed: Vec<String>,
}

/// The epoch of a database that may be damaged, as far as it can be read.
pub fn peek_epoch(path: &Path) -> Option<u64> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    settings::epoch_of(&Connection::open_with_flags(path, flags).ok()?).ok()
}

/// Makes a restored database the present one: raises the epoch, so that earlier approvals and task keys are void,
/// voids what waits, marks every session with `mark`, and records how many entries were given up (`None`: not
/// known). Approver keys that were `withdrawn` since the backup stay removed.
///
/// # Errors
///
/// If the database cannot be written; then it is as it was.
pub fn mark_restored(
    store: &Store,
    lost: Option<u64>,
    epoch: u64,
    mark: &str,
    withdrawn: &WithdrawnKeys,
    now: Timestamp,
) -> Result<RestoreMark, StoreError> {
    let from = EntrySeq(store.blocking().ledger_size()?);
    let fact = Fact::Restored { from, lost, epoch };
    let entry = Entry { at: now, session: None, turn: None, turn_number: 0, fact };
    let mut ops = vec![
        Op::Set { key: settings::EPOCH.to_owned(), value: json!(epoch) },
        Op::VoidWaiting { at: now, mark: mark.to_owned() },
        Op::Append(Box::new(entry)),
    ];
    let (withdraw, removed) = withdrawn.ops(store, now)?;
    ops.extend(withdraw);
    store.commit_blocking(Batch::synced(ops))?;
    Ok(RestoreMark { from, removed })
}

#[cfg(test)]
mod tests;
