//! Opening, committing, failing.

use std::sync::Barrier;

use ed25519_dalek::SigningKey;
use writ_policy::approval::TaskTerms;
use writ_policy::budget::{BudgetFacts, Ceilings, Exhausted};
use writ_policy::permit::{ApprovalUse, Durability, Journal as _, RedeemError, Redemption, Reservation};
use writ_types::action::{Action, ModelCall};
use writ_types::chat::Usage;
use writ_types::digest::Digest;
use writ_types::entry::Risk;
use writ_types::frame::ServerFrame;
use writ_types::id::{EntrySeq, KeyId};
use writ_types::unit::{MicroUsd, Tokens};

use super::*;
use crate::approvals::AskState;
use crate::batch::{FrameNumber, NewApproval, Op, UsageDelta};
use crate::error::Conflict;
use crate::ledger::head::Checkpoint;
use crate::ledger::rotation::Rotation;
use crate::ledger::verify::ProblemKind;
use crate::memory::Secrets;
use crate::testing::*;

/// Rows: SIL-011
/// Rows: WIN-194 (in part: one database, no second file)
#[test]
fn a_new_home_gets_one_database_that_survives() {
    let home = TestHome::new().with_session(1);
    home.append(3);
    let installation = home.store.installation();
    let home = home.reopened();
    assert_eq!(home.store.installation(), installation);
    assert_eq!(home.store.blocking().ledger_size(), Ok(3));
    assert!(home.store.blocking().session(session(1)).expect("reads").is_some());
    let files: Vec<String> = std::fs::read_dir(home.dir.path().join("data"))
        .expect("lists")
        .map(|entry| entry.expect("entry").file_name().to_string_lossy().into_owned())
        .collect();
    assert!(files.iter().all(|name| name.starts_with("writ.db")), "{files:?}");
    home.commit(receive(1, 1, "a"));
    home.commit(vec![open_turn(1, 1, 1), Op::Remember(Box::new(memory(1, "a dog", None)))]);
    let conn = Connection::open(home.path()).expect("any SQLite client can read it");
    for table in ["ledger", "memory", "turn", "message"] {
        let sql = format!("SELECT count(*) FROM {table}");
        let found: i64 = conn.query_row(&sql, [], |row| row.get(0)).expect("reads");
        assert!(found > 0, "{table}");
    }
}

/// The file is in the mode of a write-ahead log, and each connection waits for a lock of another process. The writer goes below the
/// synchronisation of that mode nowhere, and above it where a commit must outlive a loss of power.
///
/// Rows: SIL-093 (in part: the log and the wait; a commit is NORMAL or, where it must outlive a loss of power, FULL)
#[test]
fn every_connection_uses_the_log_and_waits_for_a_lock() {
    let home = TestHome::new();
    let pragmas = |conn: &Connection| {
        let text = |sql: &str| conn.query_row(sql, [], |row| row.get::<_, String>(0)).expect("reads");
        let number = |sql: &str| conn.query_row(sql, [], |row| row.get::<_, i64>(0)).expect("reads");
        (text("PRAGMA journal_mode"), number("PRAGMA synchronous") >= 1, number("PRAGMA busy_timeout"))
    };
    let wanted = ("wal".to_owned(), true, 5_000);
    let writer = open_writer(&StoreConfig::new(home.path())).expect("opens");
    assert_eq!(pragmas(&writer), wanted);
    let reader = ReadSource::new(&home.path(), [0; 32]).open().expect("opens");
    assert_eq!(pragmas(&reader.conn), wanted);
}

#[test]
fn a_failing_operation_undoes_its_batch_and_no_other() {
    let home = TestHome::new().with_session(1);
    let error = home.try_commit(vec![phase("lost"), Op::Forget { memory: memory(9, "", None).id }]);
    assert!(matches!(error, Err(StoreError::Conflict(Conflict::Missing { what: "memory", .. }))));
    assert_eq!(home.store.blocking().ledger_size(), Ok(0), "nothing of it was written");
    assert_eq!(home.commit(vec![phase("kept"), phase("too")]).entries.len(), 2);
    assert!(home.store.blocking().verify_ledger(&Default::default()).expect("reads").is_good());
}

/// Rows: WIN-207 (in part: two hundred writers at once lose nothing)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_batches_share_a_transaction_and_fail_alone() {
    let home = TestHome::new().with_session(1);
    let mut waiting = Vec::new();
    for n in 0..200_u128 {
        let store = home.store.clone();
        let ops = if n % 10 == 0 {
            vec![phase("undone"), Op::Forget { memory: memory(n, "", None).id }]
        } else {
            vec![phase("done")]
        };
        waiting.push(tokio::spawn(async move { store.commit(Batch::synced(ops)).await }));
    }
    let mut transactions = Vec::new();
    let mut entries = Vec::new();
    for task in waiting {
        match task.await.expect("no panic") {
            Ok(receipt) => {
                transactions.push(receipt.transaction);
                entries.extend(receipt.entries.iter().map(|seq| seq.0));
            }
            Err(error) => assert!(matches!(error, StoreError::Conflict(_)), "{error}"),
        }
    }
    assert_eq!(transactions.len(), 180);
    transactions.sort_unstable();
    transactions.dedup();
    assert!(transactions.len() < 90, "{} transactions for 180 batches", transactions.len());
    entries.sort_unstable();
    assert_eq!(entries, (0..180).collect::<Vec<u64>>(), "no gap, no double");
    assert!(home.store.blocking().verify_ledger(&Default::default()).expect("reads").is_good());
}

/// A hundred writers and a hundred readers at once: none meets a database that is busy, nothing is missing, and one module alone
/// begins a transaction that writes.
///
/// Rows: WIN-207
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_hundred_writers_and_readers_at_once_share_one_writer() {
    let home = TestHome::new().with_session(1);
    let writers = (0..100_u128).map(|n| {
        let store = home.store.clone();
        let op = Op::Remember(Box::new(memory(n, &format!("heron number {n}"), None)));
        tokio::spawn(async move { store.commit(Batch::synced(vec![phase("done"), op])).await.map(|_| ()) })
    });
    let readers = (0..100).map(|_| {
        let store = home.store.clone();
        tokio::spawn(async move {
            let size = store.blocking().ledger_size()?;
            let found = store.blocking().search_memory("heron", None, Secrets::Told, 100)?;
            assert!(size <= 100 && found.len() <= 100);
            Ok(())
        })
    });
    let (writers, readers): (Vec<_>, Vec<_>) = (writers.collect(), readers.collect());
    for task in writers.into_iter().chain(readers) {
        let ended: Result<(), StoreError> = task.await.expect("no panic");
        assert_eq!(ended, Ok(()));
    }
    let reads = home.store.blocking();
    assert_eq!(reads.ledger_size(), Ok(100));
    for n in 0..100 {
        assert!(reads.memory(memory(n, "", None).id).expect("reads").is_some(), "{n}");
    }
    // The migrations run before there is a writer.
    let src = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src"));
    let mut begin = Vec::new();
    let mut folders = vec![src.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("a file").path();
            let is_code = path.extension().is_some_and(|end| end == "rs") && !path.ends_with("tests.rs");
            if path.is_dir() {
                folders.push(path);
            } else if is_code {
                let text = std::fs::read_to_string(&path).expect("readable");
                let words = ["BEGIN IMMEDIATE", "BEGIN EXCLUSIVE", "TransactionBehavior::"];
                if words.iter().any(|word| text.contains(word)) {
                    begin.push(path.strip_prefix(src).expect("inside").to_path_buf());
                }
            }
        }
    }
    begin.sort();
    assert_eq!(begin, [std::path::Path::new("schema.rs"), std::path::Path::new("writer.rs")]);
}

#[tokio::test]
async fn what_is_written_first_stays_whatever_becomes_of_the_batch_and_carries_it() {
    let home = TestHome::new().with_session(1);
    let conflict = || Op::Forget { memory: memory(9, "", None).id };
    let both = home.store.commit_after(vec![phase("first")], Batch::synced(vec![phase("batch")])).await;
    let both = both.expect("commits");
    assert_eq!(both.first.entries.iter().map(|seq| seq.0).collect::<Vec<_>>(), [0]);
    let batch = both.batch.expect("commits");
    assert_eq!(batch.entries.iter().map(|seq| seq.0).collect::<Vec<_>>(), [1]);
    assert_eq!(both.first.transaction, batch.transaction);
    let shown =
        Op::Frame { session: session(1), frame: Box::new(ServerFrame::Status { text: "first".to_owned() }) };
    let refused = home
        .store
        .commit_after(vec![phase("first"), shown], Batch::synced(vec![phase("x"), conflict()]))
        .await
        .expect("the first is written");
    assert!(matches!(refused.batch, Err(StoreError::Conflict(_))), "{refused:?}");
    assert_eq!(refused.first.frames, [FrameNumber { session: session(1), seq: 1 }]);
    assert_eq!(home.store.blocking().ledger_size(), Ok(3), "the first is written, the batch is not");
    let neither =
        home.store.commit_after(vec![phase("x"), conflict()], Batch::synced(vec![phase("x")])).await;
    assert!(matches!(neither, Err(StoreError::Conflict(_))), "{neither:?}");
    assert_eq!(home.store.blocking().ledger_size(), Ok(3));
    assert!(home.store.blocking().verify_ledger(&Default::default()).expect("reads").is_good());
}

#[tokio::test]
async fn blocking_commits_work_inside_a_runtime() {
    let home = TestHome::new();
    let receipt = home.store.commit_blocking(Batch::relaxed(vec![phase("x")])).expect("commits");
    assert_eq!(receipt.entries.len(), 1);
}

#[test]
fn bounds_are_kept() {
    let home = TestHome::new();
    let many = (0..=MAX_BATCH_OPS).map(|_| Op::RequeueLeased).collect();
    assert_eq!(home.try_commit(many), Err(StoreError::TooLarge { what: "batch", limit: MAX_BATCH_OPS }));
    let long = "x".repeat(crate::config::MAX_TEXT_BYTES);
    assert!(matches!(home.try_commit(vec![phase(&long)]), Err(StoreError::TooLarge { what: "entry", .. })));
    assert_eq!(home.store.blocking().ledger_size(), Ok(0));
}

#[test]
fn a_full_disk_is_told_and_nothing_is_lost() {
    let dir = tempfile::tempdir().expect("temp dir");
    let path = dir.path().join("writ.db");
    let config = StoreConfig { max_pages: Some(200), ..StoreConfig::new(&path) };
    let store = Store::open(&config, signer()).expect("opens");
    let mut written = 0;
    let error = loop {
        match store.commit_blocking(Batch::synced(vec![phase(&"y".repeat(20_000))])) {
            Ok(_) => written += 1,
            Err(error) => break error,
        }
        assert!(written < 1_000, "120 pages do not hold this");
    };
    assert_eq!(error, StoreError::DiskFull);
    assert!(written > 0);
    assert_eq!(store.blocking().ledger_size(), Ok(written));
    assert!(store.blocking().verify_ledger(&Default::default()).expect("reads").is_good());
    drop(store);
    let store = open_store(path).expect("opens with more room");
    store.commit_blocking(Batch::synced(vec![phase("goes on")])).expect("writes");
    assert_eq!(store.blocking().ledger_size(), Ok(written + 1));
}

/// Rows: SCL-162 (in part: a damaged file is an error)
#[test]
fn a_file_that_is_no_database_is_refused() {
    let dir = tempfile::tempdir().expect("temp dir");
    let path = dir.path().join("writ.db");
    std::fs::write(&path, "this is not a database, it only looks long enough to be one".repeat(100))
        .expect("writes");
    assert!(matches!(open_store(path), Err(StoreError::Corrupt(_))));
}

#[test]
fn another_key_is_refused_unless_the_one_before_has_signed_for_it() {
    let home = TestHome::new();
    home.append(2);
    let path = home.path();
    let TestHome { dir, store } = home;
    drop(store);
    let other: Arc<SigningKey> = Arc::new(SigningKey::from_bytes(&[1; 32]));
    let config = StoreConfig::new(&path);
    assert_eq!(Store::open(&config, other.clone()).err(), Some(StoreError::KeyMismatch));
    let rotation = Rotation::sign(signer().as_ref(), other.public_key());
    let forged = Rotation::sign(other.as_ref(), signer().public_key());
    let with = |rotations| StoreConfig { rotations, ..config.clone() };
    assert_eq!(Store::open(&with(vec![forged]), other.clone()).err(), Some(StoreError::KeyMismatch));
    // What was kept beside the ledger is written into it, as after a restore; what stands in it is enough.
    drop(Store::open(&with(vec![rotation]), other.clone()).expect("opens"));
    let store = Store::open(&config, other).expect("known from then on");
    store.commit_blocking(Batch::synced(vec![phase("new key")])).expect("writes");
    assert_eq!(store.blocking().ledger_size(), Ok(2 + 1 + 1));
    let options = crate::ledger::verify::VerifyOptions { keys: keys(), ..Default::default() };
    assert!(
        store.blocking().verify_ledger(&options).expect("reads").is_good(),
        "old rows count under the old key"
    );
    drop(dir);
}

/// Threat 25: the signing key is exchanged. With an entry of the old key for it, the ledger verifies under both; without one
/// it does not, though both are known.
#[test]
fn a_key_that_was_exchanged_without_an_entry_is_noticed() {
    let [second, third] = [1, 2].map(|seed| Arc::new(SigningKey::from_bytes(&[seed; 32])));
    let known = vec![signer().public_key(), second.public_key(), third.public_key()];
    let options = crate::ledger::verify::VerifyOptions { keys: known, ..Default::default() };
    let rotated = || {
        let home = TestHome::new();
        home.append(300);
        let entry =
            Rotation::sign(signer().as_ref(), second.public_key()).entry(KeyId::from_parts(at(0), 1), at(0));
        home.commit(vec![Op::Append(Box::new(entry))]);
        home.append(3);
        let path = home.path();
        let TestHome { dir, store } = home;
        drop(store);
        (dir, path)
    };
    let (_dir, path) = rotated();
    let store = Store::open(&StoreConfig::new(&path), second.clone()).expect("follows");
    store.commit_blocking(Batch::synced(vec![phase("new key")])).expect("writes");
    let report = store.blocking().verify_ledger(&options).expect("reads");
    assert!(report.is_good(), "{report:?}");
    let erase = Op::ErasePayload { entry: EntrySeq(300), at: at(9) };
    assert!(store.commit_blocking(Batch::synced(vec![erase])).is_err(), "its entry is kept");
    drop(store);

    // A writer of everything, without the old private key.
    let exchanged = |by: &SigningKey| {
        let (dir, path) = rotated();
        drop(Store::open(&StoreConfig::new(&path), second.clone()).expect("follows"));
        let conn = Connection::open(&path).expect("opens");
        let last: String = conn
            .query_row("SELECT note FROM ledger_head ORDER BY size DESC LIMIT 1", [], |row| row.get(0))
            .expect("a head");
        let last = Checkpoint::parse(&last).expect("a head");
        let note = Checkpoint::sign(&last.origin, last.size, last.root, by).note;
        let sql = "UPDATE ledger_head SET note = ?1 WHERE size = (SELECT max(size) FROM ledger_head)";
        conn.execute(sql, [&note]).expect("exchanges");
        drop(conn);
        let report = crate::ledger::verify::verify_file(&path, &options).expect("reads");
        drop(dir);
        report.problem.map(|problem| (problem.leaf.0, problem.kind))
    };
    assert_eq!(exchanged(&third), Some((256, ProblemKind::KeyExchanged)));
    assert_eq!(exchanged(&second), None, "twin: the key that the old one has signed for");
}

/// Whoever has an old key goes on with an older ledger as its owner once did, and what the old key has signed for the new
/// one leads on from there. Only a head that somebody holds tells.
#[test]
fn an_older_ledger_that_an_old_key_went_on_with_is_noticed_by_a_held_head_alone() {
    let home = TestHome::new();
    home.append(3);
    let older = home.dir.path().join("older.db");
    crate::backup::copy_database(&home.path(), &older).expect("copies");
    home.append(3);
    let next = Arc::new(SigningKey::from_bytes(&[1; 32]));
    let rotation = Rotation::sign(signer().as_ref(), next.public_key());
    home.commit(vec![Op::Append(Box::new(rotation.entry(KeyId::from_parts(at(0), 1), at(0))))]);
    let path = home.path();
    let TestHome { dir, store } = home;
    drop(store);
    let config = StoreConfig { rotations: vec![rotation], ..StoreConfig::new(&path) };
    let store = Store::open(&config, next.clone()).expect("follows");
    let mut heads = Vec::new();
    store.blocking().export_heads(&mut heads).expect("exports");
    drop(store);

    std::fs::copy(&older, &path).expect("copies");
    let forger = open_store(path).expect("opens with the old key");
    forger.commit_blocking(Batch::synced(vec![phase("forged")])).expect("writes");
    drop(forger);
    let store = Store::open(&config, next.clone()).expect("the kept word leads on");
    let heads = String::from_utf8(heads).expect("text");
    let held = crate::ledger::export::read_heads(&heads, &[next.public_key()]).expect("reads");
    let found = |held| {
        let options = crate::ledger::verify::VerifyOptions { keys: keys(), held, every_signature: true };
        store.blocking().verify_ledger(&options).expect("reads").problem.map(|problem| problem.kind)
    };
    assert_eq!((found(Vec::new()), found(held)), (None, Some(ProblemKind::OlderCopy)));
    drop(dir);
}

#[test]
fn nothing_is_appended_to_a_ledger_that_was_cut() {
    let home = TestHome::new();
    home.append(3);
    let path = home.path();
    let TestHome { dir, store } = home;
    drop(store);
    let conn = Connection::open(&path).expect("opens");
    conn.execute_batch(
        "DROP TRIGGER ledger_no_delete; DELETE FROM ledger_payload WHERE seq = 2; DELETE FROM ledger WHERE seq = 2;",
    )
    .expect("cuts");
    drop(conn);
    assert!(matches!(open_store(path), Err(StoreError::LedgerDamaged(_))));
    drop(dir);
}

fn redemption(n: u64) -> Redemption {
    let number = u128::from(n);
    Redemption {
        attempt: attempt(number),
        intent: intent(number),
        approval: Some(ApprovalUse {
            ask: ask_id(n),
            prepared: Digest::of_bytes(format!("q{n}").as_bytes()),
            nonce: format!("nonce {n}"),
            task: None,
            amount: None,
            plan: None,
        }),
        reservation: Reservation { tokens: Tokens::new(7), cost: MicroUsd::new(5), tool_calls: 1 },
        keys: Default::default(),
        ceilings: Ceilings::default(),
        operation: Default::default(),
        durability: Durability::Synced,
    }
}

fn approve(n: u64) -> Vec<Op> {
    vec![
        Op::OpenAsk(Box::new(ask(n, &format!("q{n}")))),
        Op::ResolveAsk {
            ask: ask_id(n),
            state: AskState::Approved,
            at: at(1),
            by: "owner".to_owned(),
            reason: String::new(),
        },
        Op::StoreApproval(NewApproval {
            ask: ask_id(n),
            prepared: Digest::of_bytes(format!("q{n}").as_bytes()),
            nonce: format!("nonce {n}"),
            token: serde_json::json!({ "signed": n }),
            expires_at: at(60_000),
            task: None,
        }),
    ]
}

/// Eight threads race for what one approval for the task allows: as often as was signed, one of them wins.
#[test]
fn an_approval_for_the_task_is_redeemed_as_often_as_was_signed() {
    const USES: u32 = 20;
    const THREADS: u64 = 8;
    let task = Some(TaskTerms {
        pattern: Digest::of_bytes(b"pattern"),
        risk: Risk::Medium,
        uses: USES,
        standing: None,
    });
    let request = |number: u64, query: &str| {
        let mut request = redemption(1);
        request.attempt = attempt(u128::from(number));
        request.intent = intent(u128::from(number));
        let prepared = Digest::of_bytes(query.as_bytes());
        request.approval = request.approval.map(|used| ApprovalUse { prepared, task, ..used });
        request
    };
    let home = TestHome::new().with_session(1);
    let mut given = approve(1);
    for op in &mut given {
        if let Op::StoreApproval(approval) = op {
            approval.task = task;
        }
    }
    home.commit(given);
    block_on(tokio::task::coop::unconstrained(home.store.redeem(request(0, "q1")))).expect("what was shown");
    let start = Barrier::new(usize::try_from(THREADS).expect("few"));
    let wins: usize = std::thread::scope(|scope| {
        let race = |thread: u64| {
            let (store, start) = (home.store.clone(), &start);
            move || {
                start.wait();
                let tries = (1..=u64::from(USES)).map(|n| {
                    let request = request(thread * 1_000 + n, "alike");
                    block_on(tokio::task::coop::unconstrained(store.redeem(request)))
                });
                let (won, lost): (Vec<_>, Vec<_>) = tries.partition(Result::is_ok);
                assert!(lost.iter().all(|r| matches!(r, Err(RedeemError::ApprovalSpent(_)))), "{lost:?}");
                won.len()
            }
        };
        let racers: Vec<_> = (0..THREADS).map(|thread| scope.spawn(race(thread))).collect();
        racers.into_iter().map(|racer| racer.join().expect("no panic")).sum()
    });
    assert_eq!(wins + 1, usize::try_from(USES).expect("few"), "what was shown is one of them");
    let used = home.store.blocking().approval(&ask_id(1)).expect("reads").expect("there").executions_used;
    assert_eq!(used, u64::from(USES));
}

/// Eight threads race for each of 200 approvals: one wins each, and the others leave nothing.
///
/// Rows: SIL-161
#[test]
fn an_approval_is_redeemed_exactly_once() {
    const APPROVALS: u64 = 200;
    const THREADS: u64 = 8;
    let home = TestHome::new().with_session(1);
    home.commit((0..APPROVALS).flat_map(approve).collect());
    for n in 0..APPROVALS {
        assert_eq!(
            home.store.blocking().approval(&ask_id(n)).expect("reads").map(|found| found.executions_used),
            Some(0)
        );
    }
    let before = home.store.blocking().ledger_size().expect("reads");
    let start = Barrier::new(usize::try_from(THREADS).expect("few"));
    let wins: usize = std::thread::scope(|scope| {
        let race = |thread: u64| {
            let (store, start) = (home.store.clone(), &start);
            move || {
                start.wait();
                let attempts = (0..APPROVALS).map(|n| {
                    let mut request = redemption(n);
                    let number = u128::from(thread * 1_000 + n);
                    request.attempt = attempt(number);
                    request.intent = intent(number);
                    block_on(tokio::task::coop::unconstrained(store.redeem(request)))
                });
                let (won, lost): (Vec<_>, Vec<_>) = attempts.partition(Result::is_ok);
                assert!(lost.iter().all(|r| matches!(r, Err(RedeemError::ApprovalSpent(_)))), "{lost:?}");
                won.len()
            }
        };
        let racers: Vec<_> = (0..THREADS).map(|thread| scope.spawn(race(thread))).collect();
        racers.into_iter().map(|racer| racer.join().expect("no panic")).sum()
    });
    assert_eq!(wins, 200);
    assert_eq!(home.store.blocking().ledger_size(), Ok(before + APPROVALS), "one intent each");
    for n in 0..APPROVALS {
        let approval = home.store.blocking().approval(&ask_id(n)).expect("reads").expect("there");
        assert_eq!(approval.executions_used, 1);
        assert_eq!(
            home.store.blocking().ask(&ask_id(n)).expect("reads").expect("there").state,
            AskState::Used
        );
    }
}

/// What eight threads that redeem at once are told, for a limit and what was used of it before.
fn race_for(set: impl FnOnce(&mut BudgetFacts), used: u64) -> (usize, Vec<RedeemError>) {
    let home = TestHome::new().with_session(1);
    let mut facts = BudgetFacts::default();
    set(&mut facts);
    let call = ModelCall {
        provider: "p".to_owned(),
        model: "m".to_owned(),
        host: "h".to_owned(),
        request: Digest::of_bytes(b"request"),
        input_tokens: Tokens::new(60),
        max_output_tokens: Tokens::new(40),
        ceiling: Some(MicroUsd::new(10)),
        clearance: Default::default(),
        why: String::new(),
    };
    let ceilings = Ceilings::ceilings_of(&Action::ModelCall(call), &facts);
    home.commit(vec![Op::AddUsage(UsageDelta {
        session: Some(session(1)),
        at: at(0),
        usage: Usage { input: Tokens::new(used), ..Usage::default() },
        cost: MicroUsd::new(used),
        tool_calls: 0,
        model_calls: 1,
    })]);
    let before = home.store.blocking().ledger_size().expect("reads");
    let start = Barrier::new(8);
    let told: Vec<_> = std::thread::scope(|scope| {
        let race = |n: u64| {
            let (store, start) = (home.store.clone(), &start);
            let request = Redemption {
                approval: None,
                reservation: Reservation { tokens: Tokens::new(100), cost: MicroUsd::new(10), tool_calls: 0 },
                ceilings,
                durability: Durability::Relaxed,
                ..redemption(n)
            };
            move || {
                start.wait();
                block_on(tokio::task::coop::unconstrained(store.redeem(request)))
            }
        };
        let racers: Vec<_> = (0..8).map(|n| scope.spawn(race(n))).collect();
        racers.into_iter().map(|racer| racer.join().expect("no panic")).collect()
    });
    let (won, lost): (Vec<_>, Vec<_>) = told.into_iter().partition(Result::is_ok);
    let size = home.store.blocking().ledger_size().expect("reads");
    assert_eq!(usize::try_from(size - before), Ok(won.len()), "a refusal leaves no intent");
    (won.len(), lost.into_iter().filter_map(Result::err).collect())
}

/// Calls are decided before they are set aside: what others have set aside meanwhile counts all the same.
#[test]
fn calls_that_are_redeemed_at_once_share_the_limits() {
    let tokens = |limit: u64| Tokens::new(limit);
    let day = race_for(|f| f.limits.max_tokens_per_day = tokens(350), 100);
    assert_eq!(day, (3, vec![RedeemError::Exhausted(Exhausted::DayTokens); 5]));
    let session = race_for(|f| f.limits.max_tokens_per_session = tokens(101), 100);
    assert_eq!(session, (1, vec![RedeemError::Exhausted(Exhausted::SessionTokens); 7]));
    let renewed = race_for(
        |f| {
            f.limits.max_tokens_per_session = tokens(101);
            f.spent.session_base = tokens(100);
        },
        100,
    );
    assert_eq!(renewed.0, 2);
    let money = race_for(|f| f.limits.max_cost_per_day = Some(MicroUsd::new(149)), 100);
    assert_eq!(money, (4, vec![RedeemError::Exhausted(Exhausted::DayCost); 4]));
    assert_eq!(race_for(|_| {}, 100).0, 8, "far from every limit all pass");
}

#[tokio::test]
async fn a_redemption_sets_aside_what_its_outcome_frees() {
    let home = TestHome::new().with_session(1);
    home.store.commit(Batch::synced(approve(1))).await.expect("commits");
    home.store.redeem(redemption(1)).await.expect("redeemed");
    let reserved = home.store.blocking().session_reserved(session(1)).expect("reads");
    assert_eq!((reserved.tokens, reserved.cost, reserved.tool_calls), (Tokens::new(7), MicroUsd::new(5), 1));
    assert_eq!(home.store.blocking().day_reserved(at(0)).expect("reads"), reserved);
    // What is about to be written counts as if it were: the outcome frees, and what it has used is used.
    let used = UsageDelta {
        session: Some(session(1)),
        at: at(0),
        usage: Usage { input: Tokens::new(3), ..Usage::default() },
        cost: MicroUsd::new(2),
        tool_calls: 0,
        model_calls: 1,
    };
    let now = home.store.blocking().standing(session(1), at(0), &[]).expect("reads");
    assert_eq!((now.session_reserved, now.reserved, now.session.cost), (reserved, reserved, MicroUsd::ZERO));
    let ops = vec![outcome(1), Op::AddUsage(used)];
    let then = home.store.blocking().standing(session(1), at(0), &ops).expect("reads");
    home.store.commit(Batch::synced(ops)).await.expect("commits");
    assert_eq!(home.store.blocking().standing(session(1), at(0), &[]), Ok(then));
    assert_eq!((then.session.cost, then.day.cost), (MicroUsd::new(2), MicroUsd::new(2)));
    assert_eq!((then.session_reserved, then.reserved), Default::default());
    assert_eq!(home.store.blocking().session_reserved(session(1)), Ok(Default::default()));
}

/// Rows: SIL-161
#[tokio::test]
async fn a_redemption_that_names_something_else_is_refused() {
    let home = TestHome::new().with_session(1);
    home.store.commit(Batch::synced(approve(1))).await.expect("commits");
    let before = home.store.blocking().ledger_size();
    let mut wrong_hash = redemption(1);
    let mut wrong_nonce = redemption(1);
    let mut wrong_attempt = redemption(1);
    let mut late = redemption(1);
    if let (Some(hash), Some(nonce)) = (&mut wrong_hash.approval, &mut wrong_nonce.approval) {
        hash.prepared = Digest::of_bytes(b"other");
        nonce.nonce = "other".to_owned();
    }
    wrong_attempt.attempt = attempt(77);
    late.intent.at = at(60_000);
    for wrong in [wrong_hash, wrong_nonce, late] {
        assert_eq!(home.store.redeem(wrong).await, Err(RedeemError::ApprovalSpent(ask_id(1))));
    }
    assert!(matches!(home.store.redeem(wrong_attempt).await, Err(RedeemError::Unwritable(_))));
    assert_eq!(home.store.blocking().ledger_size(), before, "nothing was written");
    let used =
        home.store.blocking().approval(&ask_id(1)).expect("reads").map(|approval| approval.executions_used);
    assert_eq!(used, Some(0));
    home.store.redeem(redemption(1)).await.expect("the right one still passes");
}

/// A key that is revoked after it was decided and before it is redeemed: nothing is written.
#[test]
fn what_rests_on_a_key_that_was_revoked_meanwhile_is_not_redeemed() {
    let home = TestHome::new().with_session(1);
    let keys: std::collections::BTreeSet<String> = ["key a".to_owned(), "key b".to_owned()].into();
    let request = |n| Redemption { approval: None, keys: keys.clone(), ..redemption(n) };
    block_on(home.store.redeem(request(1))).expect("nothing is revoked");
    let size = home.store.blocking().ledger_size().expect("reads");
    home.commit(vec![Op::Revoke { id: "key b".to_owned(), at: at(1), expires_at: None }]);
    assert_eq!(block_on(home.store.redeem(request(2))), Err(RedeemError::Revoked));
    assert_eq!(home.store.blocking().ledger_size(), Ok(size), "no intent");
    let others = Redemption { approval: None, keys: ["key c".to_owned()].into(), ..redemption(3) };
    block_on(home.store.redeem(others)).expect("another key");
}
