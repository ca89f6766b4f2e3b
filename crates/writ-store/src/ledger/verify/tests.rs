//! Every way to tamper that a test can think of, and the leaf that is named.

use std::path::PathBuf;

use rusqlite::types::Value;
use tempfile::TempDir;

use super::*;
use crate::batch::Op;
use crate::ledger::export::read_heads;
use crate::ledger::row::{RowHeader, commitment, leaf_of};
use crate::ledger::tree::Frontier;
use crate::testing::*;

/// A closed database that tests tamper with copies of.
struct Sealed {
    dir: TempDir,
    held: Vec<Checkpoint>,
}

impl Sealed {
    /// A ledger with the given number of entries in commits of `step`; one payload is erased.
    fn new(entries: u64, step: usize) -> Self {
        let home = TestHome::new().with_session(1);
        let all: Vec<Op> = (0..entries).map(|n| phase(&format!("entry {n}"))).collect();
        for ops in all.chunks(step) {
            home.commit(ops.to_vec());
        }
        home.commit(vec![Op::ErasePayload { entry: EntrySeq(1), at: at(5) }]);
        let held = heads(&home);
        let TestHome { dir, store } = home;
        drop(store);
        Self { dir, held }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("data/writ.db")
    }

    /// Verifies a copy after `tamper` had it.
    fn after(&self, held: &[Checkpoint], tamper: impl FnOnce(&Connection)) -> VerifyReport {
        let copy = self.dir.path().join("copy.db");
        std::fs::copy(self.path(), &copy).expect("copies");
        let conn = Connection::open(&copy).expect("opens");
        conn.execute_batch(
            "PRAGMA journal_mode = DELETE; PRAGMA synchronous = OFF; PRAGMA ignore_check_constraints = ON; PRAGMA foreign_keys = OFF;
             DROP TRIGGER ledger_no_update; DROP TRIGGER ledger_no_delete; DROP TRIGGER ledger_payload_no_update",
        )
        .expect("opens up");
        tamper(&conn);
        drop(conn);
        let options = VerifyOptions { keys: keys(), held: held.to_vec(), every_signature: false };
        verify_file(&copy, &options).expect("readable")
    }

    fn leaf_after(&self, sql: &str) -> (u64, ProblemKind) {
        let problem = self.after(&[], |conn| conn.execute_batch(sql).expect("tampers")).problem;
        let problem = problem.unwrap_or_else(|| panic!("not noticed: {sql}"));
        (problem.leaf.0, problem.kind)
    }
}

fn heads(home: &TestHome) -> Vec<Checkpoint> {
    let mut out = Vec::new();
    home.store.blocking().export_heads(&mut out).expect("exports");
    read_heads(&String::from_utf8(out).expect("text"), &keys()).expect("reads")
}

#[test]
fn an_untouched_ledger_is_good() {
    let sealed = Sealed::new(600, 7);
    let report = sealed.after(&sealed.held, |_| {});
    assert_eq!(report.problem, None);
    assert_eq!((report.rows, report.erased, report.covered), (600, 1, 600));
    assert_eq!((report.heads, report.held, report.signatures), (3, 3, 0));
    let options = VerifyOptions { keys: keys(), every_signature: true, ..Default::default() };
    let report = verify_file(&sealed.path(), &options).expect("readable");
    assert_eq!((report.problem, report.signatures), (None, 600));
    let empty = TestHome::new();
    assert!(empty.store.blocking().verify_ledger(&Default::default()).expect("reads").is_good());
}

/// Changes one byte (or the lowest bit of a number) of a value.
fn flip(value: Value, byte: usize) -> Option<Value> {
    match value {
        Value::Null => Some(Value::Text("x".to_owned())).filter(|_| byte == 0),
        Value::Integer(number) => Some(Value::Integer(number ^ (1 << 20))).filter(|_| byte == 0),
        Value::Real(_) => None,
        Value::Text(text) => {
            let mut bytes = text.into_bytes();
            *bytes.get_mut(byte)? ^= 1;
            String::from_utf8(bytes).ok().map(Value::Text)
        }
        Value::Blob(mut bytes) => {
            *bytes.get_mut(byte)? ^= 0x40;
            Some(Value::Blob(bytes))
        }
    }
}

/// Every column of every row of the ledger, of its payloads and of its erasures: one byte changed is
/// noticed, and the leaf is named.
///
/// Rows: SIL-172 (in part: what was altered)
#[test]
fn one_changed_byte_anywhere_names_its_leaf() {
    let sealed = Sealed::new(9, 4);
    let columns = [
        ("ledger", "seq leaf at session turn turn_number event commitment signature"),
        ("ledger_payload", "salt payload"),
        ("ledger_erasure", "at signature"),
    ];
    let mut flips = 0;
    for (table, names) in columns {
        for column in names.split(' ') {
            for seq in 0..9_i64 {
                for byte in [0, 15, 31, 63] {
                    let mut done = false;
                    let report = sealed.after(&[], |conn| {
                        let select = format!("SELECT {column} FROM {table} WHERE seq = ?1");
                        let old: Option<Value> = conn.query_row(&select, [seq], |row| row.get(0)).ok();
                        let Some(new) = old.and_then(|old| flip(old, byte)) else { return };
                        let update = format!("UPDATE {table} SET {column} = ?1 WHERE seq = ?2");
                        done = conn.execute(&update, rusqlite::params![new, seq]).expect("updates") == 1;
                    });
                    let named = report.problem.map(|problem| problem.leaf.0);
                    let expected = done.then_some(u64::try_from(seq).expect("small"));
                    assert_eq!(named, expected, "{table}.{column} of {seq}, byte {byte}");
                    flips += usize::from(done);
                }
            }
        }
    }
    assert_eq!(flips, 198, "every cell that has such a byte");
}

#[test]
fn changed_nodes_and_heads_are_noticed() {
    let sealed = Sealed::new(300, 7);
    let (leaf, kind) =
        sealed.leaf_after("UPDATE ledger_node SET hash = zeroblob(32) WHERE level = 3 AND idx = 5");
    assert_eq!((leaf, kind), (40, ProblemKind::Node));
    assert_eq!(
        sealed.leaf_after("DELETE FROM ledger_node WHERE level = 2 AND idx = 1"),
        (4, ProblemKind::Node)
    );
    let extra = "INSERT INTO ledger_node VALUES (1, 150, zeroblob(32))";
    assert_eq!(sealed.leaf_after(extra), (300, ProblemKind::Node));
    let root = "UPDATE ledger_head SET root = zeroblob(32) WHERE size = 256";
    assert_eq!(sealed.leaf_after(root), (0, ProblemKind::Head));
    let note = "UPDATE ledger_head SET note = replace(note, 'writ/', 'Writ/') WHERE size = 300";
    assert_eq!(sealed.leaf_after(note), (256, ProblemKind::Head));
    assert_eq!(sealed.leaf_after("DELETE FROM ledger_head WHERE size = 256"), (0, ProblemKind::MissingHead));
    assert_eq!(sealed.leaf_after("DELETE FROM ledger_head WHERE size = 300"), (256, ProblemKind::Uncovered));
    let moved = "UPDATE ledger_head SET size = 299 WHERE size = 300";
    assert_eq!(sealed.leaf_after(moved), (256, ProblemKind::Head));
}

#[test]
fn deleted_reordered_and_truncated_rows_are_named() {
    let sealed = Sealed::new(300, 7);
    let deleted = "DELETE FROM ledger WHERE seq = 42; DELETE FROM ledger_payload WHERE seq = 42";
    assert_eq!(sealed.leaf_after(deleted), (42, ProblemKind::Gap));
    let closed_up = "DELETE FROM ledger WHERE seq = 42; DELETE FROM ledger_payload WHERE seq = 42;
         UPDATE ledger SET seq = seq - 1 WHERE seq > 42; UPDATE ledger_payload SET seq = seq - 1 WHERE seq > 42";
    assert_eq!(sealed.leaf_after(closed_up), (42, ProblemKind::Leaf));
    let swapped = ["ledger", "ledger_payload"].map(|table| {
        format!(
            "UPDATE {table} SET seq = 9000 WHERE seq = 10; UPDATE {table} SET seq = 10 WHERE seq = 20;
             UPDATE {table} SET seq = 20 WHERE seq = 9000;"
        )
    });
    assert_eq!(sealed.leaf_after(&swapped.concat()), (10, ProblemKind::Leaf));
    let cut = "DELETE FROM ledger WHERE seq >= 290; DELETE FROM ledger_payload WHERE seq >= 290";
    assert_eq!(sealed.leaf_after(cut), (290, ProblemKind::Truncated));
    let with_head = format!("{cut}; DELETE FROM ledger_head WHERE size = 300");
    assert_eq!(sealed.leaf_after(&with_head), (256, ProblemKind::Uncovered));
    let all = "DELETE FROM ledger; DELETE FROM ledger_payload; DELETE FROM ledger_erasure";
    assert_eq!(sealed.leaf_after(all), (0, ProblemKind::Truncated));
    let payload = "DELETE FROM ledger_payload WHERE seq = 7";
    assert_eq!(sealed.leaf_after(payload), (7, ProblemKind::Erasure));
    let unsigned = "DELETE FROM ledger_payload WHERE seq = 7;
         INSERT INTO ledger_erasure VALUES (7, 0, zeroblob(64))";
    assert_eq!(sealed.leaf_after(unsigned), (7, ProblemKind::Erasure));
}

/// A ledger that is gone as a whole, or was cut at a kept head, is missed by what else the database holds, and nothing is
/// begun anew in its place.
#[test]
fn a_ledger_that_is_gone_with_its_heads_is_missed() {
    let wipe =
        "DELETE FROM ledger; DELETE FROM ledger_payload; DELETE FROM ledger_head; DELETE FROM ledger_node";
    let cut = "DELETE FROM ledger WHERE seq >= 256; DELETE FROM ledger_payload WHERE seq >= 256;
         DELETE FROM ledger_head WHERE size > 256; DELETE FROM ledger_node WHERE ((idx + 1) << level) > 256";
    let attempted = |home: &TestHome| home.commit(vec![Op::Append(Box::new(intent(1))), outcome(1)]);
    let said = |home: &TestHome| home.commit(receive(1, 1, "c1"));
    for (tell, tamper, leaf) in
        [(&attempted as &dyn Fn(&TestHome) -> _, wipe, 0), (&said, wipe, 0), (&attempted, cut, 256)]
    {
        let home = TestHome::new().with_session(1);
        home.append(300);
        tell(&home);
        let TestHome { dir, store } = home;
        drop(store);
        let sealed = Sealed { dir, held: Vec::new() };
        assert_eq!(sealed.leaf_after(tamper), (leaf, ProblemKind::Truncated), "{tamper}");
        let opened = open_store(sealed.dir.path().join("copy.db"));
        let error = opened.map(drop).expect_err("nothing is appended to that");
        assert!(matches!(error, StoreError::LedgerDamaged(_)), "{error:?}");
    }
}

/// A cut that ends exactly at a kept head, tree and all, is seen by whoever holds a later head.
#[test]
fn an_older_copy_is_seen_by_a_held_head() {
    let sealed = Sealed::new(300, 7);
    let cut = "DELETE FROM ledger WHERE seq >= 256; DELETE FROM ledger_payload WHERE seq >= 256;
         DELETE FROM ledger_head WHERE size > 256; DELETE FROM ledger_node WHERE ((idx + 1) << level) > 256";
    assert!(
        sealed.after(&[], |conn| conn.execute_batch(cut).expect("cuts")).is_good(),
        "consistent in itself"
    );
    let problem = sealed.after(&sealed.held, |conn| conn.execute_batch(cut).expect("cuts")).problem;
    let problem = problem.expect("noticed");
    assert_eq!((problem.leaf.0, problem.kind), (256, ProblemKind::OlderCopy));
    assert_eq!(problem.report().exit, Exit::Ledger);
}

/// Writes row `seq` again with another event and everything above it made to fit, as someone without the key could.
fn rewrite(conn: &Connection, seq: i64, signature: &[u8]) {
    let sql = "SELECT l.at, l.session, l.turn_number, p.salt FROM ledger l JOIN ledger_payload p USING (seq)
               WHERE l.seq = ?1";
    let (at, session, turn_number, salt): (i64, String, i64, Vec<u8>) = conn
        .query_row(sql, [seq], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))
        .expect("reads");
    let payload = r#"{"event":"phase","forged":true}"#;
    let committed = commitment(&salt, payload.as_bytes());
    let header = RowHeader {
        seq: u64::try_from(seq).expect("small"),
        at,
        session: session.as_bytes(),
        turn: b"",
        turn_number,
        event: b"phase",
        commitment: &committed,
    };
    let leaf = leaf_of(&header.to_bytes(), signature);
    conn.execute("UPDATE ledger_payload SET payload = ?2 WHERE seq = ?1", rusqlite::params![seq, payload])
        .expect("writes");
    conn.execute(
        "UPDATE ledger SET commitment = ?2, signature = ?3, leaf = ?4 WHERE seq = ?1",
        rusqlite::params![seq, committed, signature, leaf],
    )
    .expect("writes");
}

/// Computes the inner nodes again from the leaves.
fn regrow(conn: &Connection) -> Frontier {
    let mut statement = conn.prepare("SELECT leaf FROM ledger ORDER BY seq").expect("prepares");
    let leaves: Vec<[u8; 32]> =
        statement.query_map([], |row| row.get(0)).expect("reads").collect::<Result<_, _>>().expect("reads");
    conn.execute("DELETE FROM ledger_node", []).expect("clears");
    let mut frontier = Frontier::default();
    for leaf in leaves {
        frontier.push(leaf, |level, index, hash| {
            let index = i64::try_from(index).expect("small");
            conn.execute(
                "INSERT INTO ledger_node VALUES (?1, ?2, ?3)",
                rusqlite::params![level, index, hash],
            )
            .expect("writes");
        });
    }
    frontier
}

#[test]
fn a_forged_row_in_a_consistent_tree_is_named_by_its_signature() {
    let sealed = Sealed::new(300, 7);
    let problem = sealed.after(&[], |conn| {
        rewrite(conn, 123, &[7; 64]);
        regrow(conn);
    });
    let problem = problem.problem.expect("noticed");
    assert_eq!((problem.leaf.0, problem.kind), (123, ProblemKind::Head));
    let nodes_left = sealed.after(&[], |conn| rewrite(conn, 123, &[7; 64])).problem.expect("noticed");
    assert_eq!((nodes_left.leaf.0, nodes_left.kind), (123, ProblemKind::Node));
}

/// Someone who holds the key writes the past again; a held head is not fooled.
#[test]
fn a_rewritten_past_is_seen_by_a_held_head() {
    use crate::ledger::head::HeadSigner as _;
    let sealed = Sealed::new(300, 7);
    let tamper = |conn: &Connection| {
        let signer = signer();
        let sql =
            "SELECT p.salt, l.at, l.session FROM ledger l JOIN ledger_payload p USING (seq) WHERE seq = 280";
        let (salt, at, session): (Vec<u8>, i64, String) =
            conn.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).expect("reads");
        let committed = commitment(&salt, br#"{"event":"phase","forged":true}"#);
        let header = RowHeader {
            seq: 280,
            at,
            session: session.as_bytes(),
            turn: b"",
            turn_number: 0,
            event: b"phase",
            commitment: &committed,
        };
        rewrite(conn, 280, &signer.sign(&header.to_bytes()));
        let frontier = regrow(conn);
        let origin = sealed.held[0].origin.clone();
        let head = Checkpoint::sign(&origin, 300, frontier.root(), signer.as_ref());
        conn.execute(
            "UPDATE ledger_head SET root = ?1, note = ?2 WHERE size = 300",
            rusqlite::params![head.root, head.note],
        )
        .expect("writes");
    };
    assert!(sealed.after(&[], tamper).is_good(), "the key's holder can do that");
    let problem = sealed.after(&sealed.held, tamper).problem.expect("noticed");
    assert_eq!(problem.kind, ProblemKind::Rewritten);
    assert!(problem.leaf.0 >= 256, "the first held head still fits");
}

#[test]
fn another_key_and_another_ledger_are_told() {
    let sealed = Sealed::new(10, 3);
    let options = VerifyOptions { keys: vec![[5; 32]], ..Default::default() };
    let report = verify_file(&sealed.path(), &options).expect("readable");
    let named = report.problem.map(|problem| (problem.leaf.0, problem.kind));
    assert_eq!(named, Some((0, ProblemKind::OtherLedger)));
    let other = Sealed::new(10, 3);
    let problem = sealed.after(&other.held, |_| {}).problem.expect("noticed");
    assert_eq!(problem.kind, ProblemKind::OtherLedger);
}

/// Nothing is appended to such a ledger, so nobody may hear that all is well with it.
#[test]
fn a_key_that_the_database_names_or_forgets_falsely_is_told() {
    let sealed = Sealed::new(10, 3);
    for sql in [
        "UPDATE ledger_key SET public_key = x'0505050505050505050505050505050505050505050505050505050505050505'",
        "INSERT INTO ledger_key (public_key, from_size)
            VALUES (x'0505050505050505050505050505050505050505050505050505050505050505', 4)",
        "UPDATE ledger_key SET public_key = x'05'",
        "DELETE FROM ledger_key",
    ] {
        assert_eq!(sealed.leaf_after(sql), (10, ProblemKind::KeyExchanged), "{sql}");
    }
}

#[test]
fn files_that_are_no_ledger_are_errors() {
    let dir = tempfile::tempdir().expect("temp dir");
    let path = dir.path().join("a b?c#.db");
    let options = VerifyOptions::default();
    assert!(matches!(verify_file(&path, &options), Err(StoreError::Path { .. })));
    std::fs::write(&path, "not a database".repeat(500)).expect("writes");
    assert!(matches!(verify_file(&path, &options), Err(StoreError::Corrupt(_))));
    std::fs::write(&path, "").expect("writes");
    assert!(matches!(verify_file(&path, &options), Err(StoreError::Corrupt(_))));
}

/// Bytes of the file itself, wherever they are: never a panic, and never good if the ledger changed.
#[test]
fn a_damaged_file_never_passes_with_other_content() {
    let sealed = Sealed::new(20, 5);
    let bytes = std::fs::read(sealed.path()).expect("reads");
    let needle = b"entry 11";
    let position = bytes.windows(needle.len()).position(|window| window == needle).expect("there");
    let copy = sealed.dir.path().join("damaged.db");
    let options = VerifyOptions { keys: keys(), ..Default::default() };
    let mut changed = bytes.clone();
    changed[position + 6] = b'9';
    std::fs::write(&copy, &changed).expect("writes");
    let report = verify_file(&copy, &options).expect("readable");
    assert_eq!(
        report.problem.map(|problem| (problem.leaf.0, problem.kind)),
        Some((11, ProblemKind::Payload))
    );
    for page in 1..bytes.len() / 4_096 {
        let mut broken = bytes.clone();
        broken[page * 4_096..(page + 1) * 4_096].fill(0xa5);
        std::fs::write(&copy, &broken).expect("writes");
        if let Ok(report) = verify_file(&copy, &options)
            && report.is_good()
        {
            assert_eq!((report.rows, report.covered), (20, 20), "page {page} is not of the ledger");
        }
    }
}
