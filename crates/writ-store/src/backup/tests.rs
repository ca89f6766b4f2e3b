use std::sync::Arc;

use ed25519_dalek::SigningKey;

use crate::config::StoreConfig;
use crate::ledger::export::read_heads;
use crate::ledger::head::{Checkpoint, HeadSigner as _};
use crate::ledger::rotation::Rotation;
use crate::ledger::verify::ProblemKind;
use crate::testing::*;

use super::*;

fn heads(home: &TestHome) -> Vec<Checkpoint> {
    let mut out = Vec::new();
    home.store.blocking().export_heads(&mut out).expect("exports");
    read_heads(&String::from_utf8(out).expect("text"), &keys()).expect("reads")
}

fn phases(home: &TestHome, words: &[&str]) {
    for word in words {
        home.commit(vec![phase(word)]);
    }
}

/// Puts a copy in the place of the database, as a restore does.
fn put_back(home: TestHome, copy: &Path) -> TestHome {
    let TestHome { dir, store } = home;
    drop(store);
    std::fs::copy(copy, dir.path().join("data/writ.db")).expect("copies");
    let store = open_store(dir.path().join("data/writ.db")).expect("opens");
    TestHome { dir, store }
}

/// Rows: WIN-408
/// Rows: WIN-207 (in part: reading beside a writer)
#[test]
fn a_copy_made_under_heavy_writes_is_whole_and_verifies() {
    let home = TestHome::new().with_session(1);
    let store = home.store.clone();
    let writer = std::thread::spawn(move || {
        for n in 0..400 {
            store.commit_blocking(Batch::relaxed(vec![phase(&format!("write {n}"))])).expect("commits");
        }
    });
    let mut last = 0;
    for n in 0..8 {
        let copy = home.dir.path().join(format!("copy-{n}.db"));
        let copied = copy_database(&home.path(), &copy).expect("copies");
        assert!(copied.entries >= last, "time goes on");
        last = copied.entries;
        let options = VerifyOptions { keys: keys(), every_signature: true, ..Default::default() };
        let report = verify_file(&copy, &options).expect("readable");
        assert_eq!((report.problem, report.rows), (None, copied.entries));
        assert_eq!(inspect_copy(&copy), Ok(copied));
    }
    writer.join().expect("writes");
}

#[test]
fn a_copy_overwrites_nothing_and_a_damaged_one_is_named() {
    let home = TestHome::new().with_session(1);
    phases(&home, &["one", "two"]);
    let copy = home.dir.path().join("copy.db");
    std::fs::write(&copy, "mine").expect("writes");
    assert!(matches!(copy_database(&home.path(), &copy), Err(StoreError::Path { .. })));
    std::fs::write(&copy, vec![7_u8; 9_000]).expect("writes");
    assert!(inspect_copy(&copy).is_err(), "not a database");
}

/// Hostile case 25: a restore that the ledger tells of is known, and nothing else is.
#[test]
fn a_known_restore_explains_the_heads_that_it_gave_up_and_no_others() {
    let home = TestHome::new().with_session(1);
    phases(&home, &["one", "two", "three"]);
    let copy = home.dir.path().join("backup.db");
    let copied = copy_database(&home.path(), &copy).expect("copies");
    phases(&home, &["four", "five"]);
    let held = heads(&home);
    let before = home.store.blocking().ledger_size().expect("reads");
    let home = put_back(home, &copy);

    let options = VerifyOptions { keys: keys(), held, every_signature: false };
    let report = home.store.blocking().verify_ledger(&options).expect("reads");
    assert_eq!(report.problem.map(|problem| problem.kind), Some(ProblemKind::OlderCopy), "not told of");

    let lost = before - copied.entries;
    let none = WithdrawnKeys::default();
    let RestoreMark { from, .. } =
        mark_restored(&home.store, Some(lost), copied.epoch + 1, "mark", &none, at(9)).expect("marks");
    assert_eq!((from.0, home.store.blocking().epoch()), (copied.entries, Ok(copied.epoch + 1)));
    for more in ["six", "seven", "eight"] {
        let report = home.store.blocking().verify_ledger(&options).expect("reads");
        assert_eq!(report.problem, None, "before {more}");
        assert!(report.given_up > 0, "before {more}: {report:?}");
        assert_eq!(report.restores.len(), 1);
        phases(&home, &[more]);
    }
    let held = heads(&home);
    let home = put_back(home, &copy);
    let RestoreMark { from: less, .. } =
        mark_restored(&home.store, Some(1), copied.epoch + 2, "mark", &none, at(10)).expect("marks");
    assert_eq!(less.0, copied.entries);
    let report = home.store.blocking().verify_ledger(&VerifyOptions { held, ..options }).expect("reads");
    let kind = report.problem.map(|problem| problem.kind);
    assert_eq!(kind, Some(ProblemKind::OlderCopy), "it gave up one entry, not four");
}

/// The new key records the rotation again before the restore is told of: a head of exactly that size, of what was given up,
/// is explained by nothing; one after it is.
#[test]
fn a_restore_from_before_a_rotation_explains_one_entry_less() {
    let home = TestHome::new().with_session(1);
    phases(&home, &["one", "two"]);
    let copy = home.dir.path().join("backup.db");
    let copied = copy_database(&home.path(), &copy).expect("copies");
    let held = ["three", "four"].map(|word| {
        phases(&home, &[word]);
        heads(&home).pop().expect("a head")
    });
    assert_eq!(held.each_ref().map(|head| head.size), [copied.entries + 1, copied.entries + 2]);
    let next = Arc::new(SigningKey::from_bytes(&[7; 32]));
    let rotation = Rotation::sign(signer().as_ref(), next.public_key());
    home.commit(vec![Op::Append(Box::new(rotation.entry(KeyId::from_parts(at(1), 1), at(1))))]);
    let lost = home.store.blocking().ledger_size().expect("reads") - copied.entries;
    let TestHome { dir, store } = home;
    drop(store);
    let path = dir.path().join("data/writ.db");
    std::fs::copy(&copy, &path).expect("copies");
    let config = StoreConfig { rotations: vec![rotation], ..StoreConfig::new(path) };
    let store = Store::open(&config, next).expect("follows");
    let marked =
        mark_restored(&store, Some(lost), copied.epoch + 1, "mark", &WithdrawnKeys::default(), at(9));
    assert_eq!(marked.expect("marks").from.0, copied.entries + 1);
    let found = |head: &Checkpoint| {
        let options = VerifyOptions { keys: keys(), held: vec![head.clone()], every_signature: false };
        let report = store.blocking().verify_ledger(&options).expect("reads");
        (report.given_up, report.problem.map(|problem| problem.kind))
    };
    assert_eq!(held.each_ref().map(found), [(0, Some(ProblemKind::Rewritten)), (1, None)]);
}

fn approver_key(n: u128, kind: &str) -> ApproverKey {
    ApproverKey {
        id: KeyId::from_parts(at(1), n),
        kind: kind.to_owned(),
        label: format!("key {n}"),
        public_key: vec![u8::try_from(n).expect("small"); 33],
        enrolled_at: at(1),
        revoked_at: None,
    }
}

/// Removes a key as an engine does.
fn remove(key: &ApproverKey) -> Vec<Op> {
    let (role, change, grants) = (APPROVER.to_owned(), REVOKED.to_owned(), key.label.clone());
    let fact = Fact::Keyed { key: key.id, role, change, grants };
    let entry = Entry { at: at(5), session: None, turn: None, turn_number: 0, fact };
    vec![Op::Append(Box::new(entry)), Op::RevokeKey { key: key.id, at: at(5) }]
}

fn in_force(home: &TestHome) -> Vec<KeyId> {
    let keys = home.store.blocking().approver_keys().expect("reads").into_iter();
    keys.filter(|key| key.revoked_at.is_none()).map(|key| key.id).collect()
}

/// The finder of a passkey that was removed does not get it back with a backup, and a copied one is still noticed.
#[test]
fn a_removed_key_stays_removed_and_counters_go_on_after_a_restore() {
    let home = TestHome::new().with_session(1);
    let [terminal, kept, lost] =
        [(1, "cli"), (2, PASSKEY), (3, PASSKEY)].map(|(n, kind)| approver_key(n, kind));
    let counted = |sign_count| Op::CountPasskey { key: kept.id, sign_count };
    home.commit([&terminal, &kept, &lost].map(|key| Op::EnrollKey(key.clone())).to_vec());
    home.commit(vec![counted(5)]);
    let copy = home.dir.path().join("backup.db");
    let copied = copy_database(&home.path(), &copy).expect("copies");
    home.commit([vec![counted(9)], remove(&lost), remove(&terminal)].concat());
    let withdrawn = WithdrawnKeys::of(&home.path(), keys()).expect("reads").expect("verifies");
    let home = put_back(home, &copy);
    let marked = |home: &TestHome, withdrawn: &WithdrawnKeys, epoch| {
        mark_restored(&home.store, None, epoch, "mark", withdrawn, at(9)).expect("marks").removed
    };
    assert_eq!(marked(&home, &WithdrawnKeys::default(), copied.epoch + 1), [""; 0]);
    assert_eq!(in_force(&home), [terminal.id, kept.id, lost.id], "what the backup holds");
    let home = put_back(home, &copy);
    assert_eq!(marked(&home, &withdrawn, copied.epoch + 2), ["key 3"]);
    assert_eq!(in_force(&home), [terminal.id, kept.id], "the last key of a terminal stays");
    assert!(home.try_commit(vec![counted(9)]).is_err(), "it has counted so far");
    home.commit(vec![counted(10)]);
    let report = home
        .store
        .blocking()
        .verify_ledger(&VerifyOptions { keys: keys(), ..Default::default() })
        .expect("reads");
    assert_eq!(report.problem, None);
    assert_eq!(marked(&home, &withdrawn, copied.epoch + 3), [""; 0], "nothing is left to be done");
}

/// Else whoever can write to a database could have the owner's keys removed by its repair.
#[test]
fn what_the_ledger_does_not_tell_or_does_not_verify_takes_no_key_away() {
    let home = TestHome::new().with_session(1);
    let [terminal, passkey] = [(1, "cli"), (2, PASSKEY)].map(|(n, kind)| approver_key(n, kind));
    home.commit(vec![Op::EnrollKey(terminal), Op::EnrollKey(passkey.clone())]);
    home.commit(vec![Op::RevokeKey { key: passkey.id, at: at(5) }]);
    let withdrawn = WithdrawnKeys::of(&home.path(), keys()).expect("reads").expect("verifies");
    assert_eq!(withdrawn.removed, [], "no entry tells of it");
    home.commit(remove(&approver_key(1, "cli")));
    let path = home.path();
    assert_eq!(WithdrawnKeys::of(&path, vec![[5; 32]]), Ok(None), "of somebody else's keys");
    let conn = Connection::open(&path).expect("opens");
    conn.execute_batch(
        "DROP TRIGGER ledger_no_delete; PRAGMA foreign_keys = OFF; DELETE FROM ledger WHERE seq = 0",
    )
    .expect("tampers");
    drop(conn);
    assert_eq!(WithdrawnKeys::of(&path, keys()), Ok(None));
}
