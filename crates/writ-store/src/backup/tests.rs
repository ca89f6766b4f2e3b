use crate::approvals::ApproverKey;
use crate::ledger::export::read_heads;
use crate::ledger::head::Checkpoint;
use crate::ledger::verify::{ProblemKind, VerifyOptions, verify_file};
use crate::testing::*;

use super::*;

fn heads(home: &Home) -> Vec<Checkpoint> {
    let mut out = Vec::new();
    home.store.export_heads(&mut out).expect("exports");
    read_heads(&String::from_utf8(out).expect("text"), &keys()).expect("reads")
}

fn phases(home: &Home, words: &[&str]) {
    for word in words {
        home.commit(vec![phase(word)]);
    }
}

/// Puts a copy in the place of the database, as a restore does.
fn put_back(home: Home, copy: &Path) -> Home {
    let Home { dir, store } = home;
    drop(store);
    std::fs::copy(copy, dir.path().join("data/writ.db")).expect("copies");
    let store = open_store(dir.path().join("data/writ.db")).expect("opens");
    Home { dir, store }
}

/// Rows: WIN-408
#[test]
fn a_copy_made_under_heavy_writes_is_whole_and_verifies() {
    let home = Home::new().with_session(1);
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
    let home = Home::new().with_session(1);
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
    let home = Home::new().with_session(1);
    phases(&home, &["one", "two", "three"]);
    let copy = home.dir.path().join("backup.db");
    let copied = copy_database(&home.path(), &copy).expect("copies");
    phases(&home, &["four", "five"]);
    let held = heads(&home);
    let before = home.store.ledger_size().expect("reads");
    let home = put_back(home, &copy);

    let options = VerifyOptions { keys: keys(), held, every_signature: false };
    let report = home.store.verify_ledger(&options).expect("reads");
    assert_eq!(report.problem.map(|problem| problem.kind), Some(ProblemKind::OlderCopy), "not told of");

    let lost = before - copied.entries;
    let from = home
        .store
        .mark_restored(Some(lost), copied.epoch + 1, "mark", &Withdrawn::default(), at(9))
        .expect("marks");
    assert_eq!((from.0, home.store.epoch()), (copied.entries, Ok(copied.epoch + 1)));
    for more in ["six", "seven", "eight"] {
        let report = home.store.verify_ledger(&options).expect("reads");
        assert_eq!(report.problem, None, "before {more}");
        assert!(report.given_up > 0, "before {more}: {report:?}");
        assert_eq!(report.restores.len(), 1);
        phases(&home, &[more]);
    }
    let held = heads(&home);
    let home = put_back(home, &copy);
    let less = home
        .store
        .mark_restored(Some(1), copied.epoch + 2, "mark", &Withdrawn::default(), at(10))
        .expect("marks");
    assert_eq!(less.0, copied.entries);
    let report = home.store.verify_ledger(&VerifyOptions { held, ..options }).expect("reads");
    let kind = report.problem.map(|problem| problem.kind);
    assert_eq!(kind, Some(ProblemKind::OlderCopy), "it gave up one entry, not four");
}

/// Whoever has found a passkey that was removed does not get it back with a backup, and a copied one is still noticed.
#[test]
fn a_removed_key_stays_removed_and_counters_go_on_after_a_restore() {
    let home = Home::new().with_session(1);
    let key = |n: u128| ApproverKey {
        id: KeyId::from_parts(at(1), n),
        kind: "passkey".to_owned(),
        label: format!("key {n}"),
        public_key: vec![u8::try_from(n).expect("small"); 33],
        enrolled_at: at(1),
        revoked_at: None,
    };
    let [lost, kept, fresh] = [1, 2, 3].map(key);
    let counted = |id, sign_count| Op::CountPasskey { key: id, sign_count };
    home.commit(vec![Op::EnrollKey(lost.clone()), Op::EnrollKey(kept.clone()), counted(kept.id, 5)]);
    let copy = home.dir.path().join("backup.db");
    let copied = copy_database(&home.path(), &copy).expect("copies");
    home.commit(vec![Op::RevokeKey { key: lost.id, at: at(5) }, counted(kept.id, 9), Op::EnrollKey(fresh)]);
    let withdrawn = Withdrawn::of(&home.path()).expect("reads");
    let home = put_back(home, &copy);
    let marked = |home: &Home, withdrawn: &Withdrawn, epoch| {
        home.store.mark_restored(None, epoch, "mark", withdrawn, at(9)).expect("marks");
        let keys = home.store.approver_keys().expect("reads");
        keys.into_iter().map(|key| (key.id, key.revoked_at)).collect::<Vec<_>>()
    };
    assert_eq!(
        marked(&home, &Withdrawn::default(), copied.epoch + 1),
        [(lost.id, None), (kept.id, None)],
        "what the backup holds"
    );
    let home = put_back(home, &copy);
    assert_eq!(marked(&home, &withdrawn, copied.epoch + 2), [(lost.id, Some(at(5))), (kept.id, None)]);
    assert!(home.try_commit(vec![counted(kept.id, 9)]).is_err(), "it has counted so far");
    home.commit(vec![counted(kept.id, 10)]);
    let report =
        home.store.verify_ledger(&VerifyOptions { keys: keys(), ..Default::default() }).expect("reads");
    assert_eq!(report.problem, None);
    assert_eq!(
        marked(&home, &withdrawn, copied.epoch + 3),
        [(lost.id, Some(at(5))), (kept.id, None)],
        "again"
    );
}
