//! The walk over the ledger.

use std::collections::BTreeSet;

use rusqlite::Connection;
use rusqlite::types::ValueRef;
use writ_types::id::EntrySeq;

use super::nodes::{self, Cursors};
use super::rows::{self, CheckedRow};
use super::{Problem, ProblemKind, VerifyOptions, VerifyReport};
use crate::codec::{self, int};
use crate::error::StoreError;
use crate::ledger::head::{Checkpoint, HEAD_INTERVAL};
use crate::ledger::rotation::{self, MAX_ROTATIONS, Rotation};
use crate::ledger::row;
use crate::ledger::tree::{Frontier, Hash};

/// A stored head, as it lies there.
struct StoredHead {
    size: u64,
    root: Vec<u8>,
    note: String,
}

struct Walk<'a> {
    conn: &'a Connection,
    options: &'a VerifyOptions,
    origin: Option<String>,
    frontier: Frontier,
    /// Stored heads, largest size first, so that the next one is popped.
    heads: Vec<StoredHead>,
    /// Held heads, largest size first.
    held: Vec<&'a Checkpoint>,
    /// The key that signed what was checked last.
    signer: Option<[u8; 32]>,
    /// All keys that signed.
    signers: BTreeSet<[u8; 32]>,
    /// The rotations that the rows record.
    rotations: Vec<Rotation>,
    report: VerifyReport,
}

/// The next step failed: what is wrong, or why it cannot be known.
enum WalkStop {
    Bad(Problem),
    Error(StoreError),
}

impl<E: Into<StoreError>> From<E> for WalkStop {
    fn from(error: E) -> Self {
        Self::Error(error.into())
    }
}

pub(super) fn verify(conn: &Connection, options: &VerifyOptions) -> Result<VerifyReport, StoreError> {
    let mut held: Vec<&Checkpoint> = options.held.iter().collect();
    // The smallest is taken first, from the end.
    held.sort_by_key(|head| std::cmp::Reverse(head.size));
    let mut walk = Walk {
        conn,
        options,
        origin: None,
        frontier: Frontier::default(),
        heads: stored_heads(conn)?,
        held,
        signer: None,
        signers: BTreeSet::new(),
        rotations: Vec::new(),
        report: VerifyReport {
            rows: 0,
            erased: 0,
            heads: 0,
            held: 0,
            signatures: 0,
            covered: 0,
            restores: Vec::new(),
            given_up: 0,
            problem: None,
        },
    };
    match walk.run() {
        Ok(()) => {}
        Err(WalkStop::Bad(problem)) => walk.report.problem = Some(problem),
        // A damaged page is a finding, not a failure to look.
        Err(WalkStop::Error(StoreError::Corrupt(error))) => {
            let leaf = EntrySeq(walk.frontier.size());
            let text = format!("entry {leaf} cannot be read: {error}");
            walk.report.problem = Some(Problem { leaf, kind: ProblemKind::Unreadable, text });
        }
        Err(WalkStop::Error(error)) => return Err(error),
    }
    Ok(walk.report)
}

fn stored_heads(conn: &Connection) -> Result<Vec<StoredHead>, StoreError> {
    codec::query(conn, "SELECT size, root, note FROM ledger_head ORDER BY size DESC", [], |row| {
        let bytes = |column| -> Result<Vec<u8>, StoreError> {
            Ok(match row.get_ref(column)? {
                ValueRef::Text(bytes) | ValueRef::Blob(bytes) => bytes.to_vec(),
                ValueRef::Null | ValueRef::Integer(_) | ValueRef::Real(_) => Vec::new(),
            })
        };
        // Broken text becomes a note that does not parse.
        let note = String::from_utf8(bytes(2)?).unwrap_or_default();
        Ok(StoredHead { size: codec::get_uint(row, "size")?, root: bytes(1)?, note })
    })
}

impl Walk<'_> {
    fn run(&mut self) -> Result<(), WalkStop> {
        self.check_owner()?;
        self.check_held_empty()?;
        let conn = self.conn;
        let mut statements = nodes::statements(conn)?;
        let mut cursors = Cursors::open(&mut statements)?;
        let mut statement = conn.prepare(rows::SQL)?;
        let mut found = statement.query([0])?;
        while let Some(row) = found.next()? {
            let seq = self.frontier.size();
            // Positions are counted here: a row is never believed about its own.
            if row.get_ref(0)? != ValueRef::Integer(int(seq)) {
                return Err(bad(seq, ProblemKind::Gap, format!("entry {seq} is missing")));
            }
            let checked = match CheckedRow::read(row, seq, &self.options.keys)? {
                Ok(checked) => checked,
                Err(rows::BadRow(kind, text)) => return Err(bad(seq, kind, format!("entry {seq}: {text}"))),
            };
            // A forged ledger could name any number.
            if self.rotations.len() < MAX_ROTATIONS {
                self.rotations.extend(checked.rotated);
            }
            if self.options.every_signature {
                self.check_signature(seq, &checked)?;
            }
            self.report.erased += u64::from(checked.erased);
            self.report.restores.extend(checked.restored);
            self.grow(checked.leaf, &mut cursors)?;
            self.report.rows += 1;
            self.check_heads()?;
        }
        self.check_end(&mut cursors)
    }

    /// Checks that the ledger is this home's: of another one nothing fits, which is reported as such.
    fn check_owner(&self) -> Result<(), WalkStop> {
        let own = |head: &StoredHead| Checkpoint::verify(&head.note, &self.options.keys).is_ok();
        if self.heads.is_empty() || self.heads.iter().any(own) {
            return Ok(());
        }
        Err(bad(0, ProblemKind::OtherLedger, "no head is signed by a known key".to_owned()))
    }

    /// A held head of an empty ledger is good in every ledger.
    fn check_held_empty(&mut self) -> Result<(), WalkStop> {
        if self.held.last().is_some_and(|head| head.size == 0) { self.check_held() } else { Ok(()) }
    }

    fn check_signature(&mut self, seq: u64, row: &CheckedRow) -> Result<(), WalkStop> {
        let Some(signer) = row.signer(&self.options.keys) else {
            let text = format!("entry {seq} is not signed by a known key");
            return Err(bad(seq, ProblemKind::Signature, text));
        };
        self.report.signatures += 1;
        self.check_signer(signer, seq)
    }

    fn grow(&mut self, leaf: Hash, cursors: &mut Cursors<'_>) -> Result<(), WalkStop> {
        let mut completed = Vec::new();
        self.frontier.push(leaf, |level, index, hash| completed.push((level, index, *hash)));
        for (level, index, hash) in completed {
            if !cursors.next_is(level, index, &hash)? {
                let text = format!("the stored node {level}/{index} does not fit the entries below it");
                return Err(self.culprit(index << level, ProblemKind::Node, text)?);
            }
        }
        Ok(())
    }

    /// Checks the heads, stored and held, that end at the present size.
    fn check_heads(&mut self) -> Result<(), WalkStop> {
        let size = self.frontier.size();
        let due = self.heads.last().is_some_and(|head| head.size <= size);
        match self.heads.pop_if(|_| due) {
            Some(head) => self.check_stored(&head)?,
            None if size.is_multiple_of(HEAD_INTERVAL) => {
                let text = format!("the head after {size} entries is missing");
                return Err(self.unexplained(ProblemKind::MissingHead, text)?);
            }
            None => {}
        }
        self.check_held()
    }

    fn check_stored(&mut self, stored: &StoredHead) -> Result<(), WalkStop> {
        let size = self.frontier.size();
        let verified = Checkpoint::verify_by(&stored.note, &self.options.keys);
        if let Ok((_, signer)) = &verified {
            self.check_signer(*signer, self.report.covered)?;
        }
        let fault = match verified.map(|(head, _)| head) {
            Err(error) => Some(error.to_string()),
            Ok(head) if stored.size != size || head.size != size || head.root[..] != stored.root[..] => {
                Some("its columns do not fit its note".to_owned())
            }
            Ok(head) if head.root != self.frontier.root() => Some("it does not fit the entries".to_owned()),
            Ok(head) => {
                let origin = self.origin.get_or_insert_with(|| head.origin.clone());
                (*origin != head.origin).then(|| "it is of another ledger".to_owned())
            }
        };
        if let Some(fault) = fault {
            let text = format!("the head after {size} entries: {fault}");
            return Err(self.unexplained(ProblemKind::Head, text)?);
        }
        self.report.heads += 1;
        self.report.covered = size;
        Ok(())
    }

    /// Checks that a key follows another only where that one has signed for it, and does not come back.
    fn check_signer(&mut self, signer: [u8; 32], leaf: u64) -> Result<(), WalkStop> {
        self.signers.insert(signer);
        let before = self.signer.replace(signer).unwrap_or(signer);
        if rotation::rotation_path(&before, &signer, &self.rotations).is_some() {
            return Ok(());
        }
        let text = "it is signed with another key from here on, and the key before has not signed for that"
            .to_owned();
        Err(bad(leaf, ProblemKind::KeyExchanged, text))
    }

    fn check_held(&mut self) -> Result<(), WalkStop> {
        let size = self.frontier.size();
        while let Some(head) = self.held.pop_if(|head| head.size == size) {
            if self.origin.as_ref().is_some_and(|origin| *origin != head.origin) {
                let text = "a held head is of another ledger".to_owned();
                return Err(bad(0, ProblemKind::OtherLedger, text));
            }
            if head.root == self.frontier.root() {
                self.report.held += 1;
            } else if self.was_given_up(size) {
                self.report.given_up += 1;
            } else {
                let text = format!("the held head of {size} entries does not fit them");
                return Err(self.unexplained(ProblemKind::Rewritten, text)?);
            }
        }
        Ok(())
    }

    /// Returns true if a recorded restore explains why a head of this size does not fit.
    fn was_given_up(&self, size: u64) -> bool {
        self.report.restores.iter().any(|restore| restore.explains(size))
    }

    fn check_end(&mut self, cursors: &mut Cursors<'_>) -> Result<(), WalkStop> {
        let size = self.frontier.size();
        if let Some(head) = self.heads.pop() {
            let text = format!("a signed head covers {} entries, there are {size}", head.size);
            return Err(bad(size, ProblemKind::Truncated, text));
        }
        if self.report.covered < size {
            let text = format!("the entries from {} on are covered by no head", self.report.covered);
            return Err(self.unexplained(ProblemKind::Uncovered, text)?);
        }
        let least = row::least_size(self.conn, row::ALL)?;
        if size < least {
            let text = format!("the database tells of {least} entries at least, there are {size}");
            return Err(bad(size, ProblemKind::Truncated, text));
        }
        while let Some(head) = self.held.pop() {
            if self.was_given_up(head.size) {
                self.report.given_up += 1;
                continue;
            }
            let text = format!("a held head covers {} entries, there are {size}", head.size);
            return Err(bad(size, ProblemKind::OlderCopy, text));
        }
        if cursors.any_left()? {
            return Err(bad(size, ProblemKind::Node, "there are nodes that no entry has".to_owned()));
        }
        self.check_keys(size)
    }

    /// The database names the keys that have signed, and an engine appends only where it finds its own among them.
    fn check_keys(&self, size: u64) -> Result<(), WalkStop> {
        // The cast lets a damaged row hold anything: a value that is no key is none of this home's.
        let sql = "SELECT CAST(public_key AS BLOB) FROM ledger_key";
        let named: Vec<Vec<u8>> = codec::query(self.conn, sql, [], |row| Ok(row.get(0)?))?;
        let unknown = named.iter().find(|key| !self.options.keys.iter().any(|own| own == key.as_slice()));
        if let Some(key) = unknown {
            let text = format!("the database names the key {}, which is none of this home", hex::encode(key));
            return Err(bad(size, ProblemKind::KeyExchanged, text));
        }
        if let Some(key) = self.signers.iter().find(|signer| !named.iter().any(|key| key == *signer)) {
            let text = format!("the database does not name the key {}, which has signed", hex::encode(key));
            return Err(bad(size, ProblemKind::KeyExchanged, text));
        }
        Ok(())
    }

    /// A head does not fit though each row fits itself: the first row since the last good head that
    /// the harness has not signed is the culprit, else the first after that head.
    fn unexplained(&mut self, kind: ProblemKind, text: String) -> Result<WalkStop, StoreError> {
        self.culprit(self.report.covered, kind, text)
    }

    /// The first row from `first` on that is not signed, else `first` itself.
    fn culprit(&mut self, first: u64, kind: ProblemKind, text: String) -> Result<WalkStop, StoreError> {
        let mut statement = self.conn.prepare(rows::SQL)?;
        let mut found = statement.query([int(first)])?;
        for seq in first..self.frontier.size() {
            let Some(row) = found.next()? else { break };
            if let Ok(row) = CheckedRow::read(row, seq, &self.options.keys)?
                && !row.is_signed(&self.options.keys)
            {
                return Ok(bad(seq, kind, format!("{text}; entry {seq} is not signed by a known key")));
            }
            self.report.signatures += 1;
        }
        Ok(bad(first, kind, text))
    }
}

fn bad(leaf: u64, kind: ProblemKind, text: String) -> WalkStop {
    WalkStop::Bad(Problem { leaf: EntrySeq(leaf), kind, text })
}
