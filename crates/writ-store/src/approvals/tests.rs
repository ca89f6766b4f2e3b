//! Asks, approvals, nonces, keys.

use std::collections::BTreeSet;

use serde_json::json;
use writ_policy::approval::{StandingTerms, TaskTerms};
use writ_policy::permit::PlanUse;
use writ_types::entry::{Entry, Fact, Risk};
use writ_types::id::KeyId;
use writ_types::unit::MicroUsd;

use super::*;
use crate::batch::{NewPart, Op, UsageDelta};
use crate::testing::*;

fn open(n: u64, query: &str) -> Op {
    Op::OpenAsk(Box::new(ask(n, query)))
}

fn resolve(n: u64, state: AskState, millis: i64) -> Op {
    Op::ResolveAsk { ask: ask_id(n), state, at: at(millis), by: "owner".to_owned(), reason: "r".to_owned() }
}

fn approval(n: u64, query: &str) -> NewApproval {
    NewApproval {
        ask: ask_id(n),
        prepared: Digest::of_bytes(query.as_bytes()),
        nonce: format!("nonce {n}"),
        token: json!({ "signed": true }),
        expires_at: at(60_000),
        task: None,
    }
}

#[test]
fn equal_open_asks_are_one() {
    let home = TestHome::new().with_session(1);
    let first = home.commit(vec![open(1, "q")]);
    assert!(!first.asks[0].merged);
    assert_eq!((first.entries.len(), first.frames.len()), (1, 1), "recorded and announced");
    let second = home.commit(vec![open(2, "q"), open(3, "other")]);
    assert_eq!(second.asks[0].ask, ask_id(1));
    assert!(second.asks[0].merged && !second.asks[1].merged);
    assert_eq!(second.entries.len(), 1, "a merged ask leaves no entry");
    let home = home.reopened();
    let found = home.store.blocking().ask(&ask_id(1)).expect("reads").expect("there");
    assert_eq!((found.prepared, found.state), (ask(1, "q").prepared, AskState::Open));
    home.commit(vec![resolve(1, AskState::Denied, 5)]);
    assert!(!home.commit(vec![open(4, "q")]).asks[0].merged, "an answered one is not open");
    assert_eq!(home.store.blocking().asks(Some(AskState::Open), 10).expect("reads").len(), 2);
    assert_eq!(home.store.blocking().asks(None, 10).expect("reads").len(), 3);
    let hash = Digest::of_bytes(b"q");
    let denied = home.store.blocking().ask_for(hash, AskState::Denied).expect("reads").expect("there");
    assert_eq!((denied.card.state.as_str(), denied.reason.as_str()), ("denied", "r"));
}

#[test]
fn a_tool_counts_as_approved_once_an_approval_of_it_was_used_in_that_session() {
    let home = TestHome::new().with_session(1);
    home.commit(vec![open(1, "a"), open(2, "b")]);
    home.commit(vec![resolve(1, AskState::Denied, 1), resolve(2, AskState::Approved, 1)]);
    let approved = |n| home.store.blocking().approved_tools(session(n)).expect("reads");
    assert_eq!(approved(1), [""; 0], "neither denied nor only approved");
    let approval = approval(2, "b");
    home.commit(vec![Op::StoreApproval(approval.clone()), used(&approval, "b")]);
    assert_eq!((approved(1), approved(2)), (vec!["memory_search".to_owned()], Vec::new()));
}

/// Each read that answers several questions has the answers of the single ones.
#[tokio::test(flavor = "current_thread")]
async fn reads_with_approvals_answer_as_the_single_ones_do() {
    use crate::reads::{AskReads as _, RevocationReads as _};
    let home = TestHome::new().with_session(1);
    home.commit(vec![open(1, "a"), open(2, "b"), resolve(2, AskState::Approved, 5)]);
    home.commit(vec![Op::StoreApproval(approval(2, "b"))]);
    let (store, single) = (&home.store, home.store.blocking());
    let pair = |n| {
        (single.ask(&ask_id(n)).expect("reads").expect("there"), single.approval(&ask_id(n)).expect("reads"))
    };
    assert!(pair(1).1.is_none() && pair(2).1.is_some());
    assert_eq!(store.ask_with_approval(&ask_id(2)).await, Ok(Some(pair(2))));
    assert_eq!(store.ask_with_approval(&ask_id(3)).await, Ok(None));
    let both = Ok(vec![pair(1), pair(2)]);
    assert_eq!(store.asks_with_approvals(None, 10).await, both);
    assert_eq!(store.asks_with_approvals(Some(AskState::Approved), 10).await, Ok(vec![pair(2)]));
    assert_eq!(store.waiting_asks_with_approvals(session(1), 10).await, both);
    assert_eq!(store.overdue_asks_with_approvals(at(60_000), 10).await, both);
    assert_eq!(store.overdue_asks_with_approvals(at(59_999), 10).await, Ok(Vec::new()));
    let ids = ["one".to_owned(), "two".to_owned()];
    assert_eq!(store.revoked_among(&ids).await, Ok(BTreeSet::new()));
    home.commit(vec![Op::Revoke { id: "two".to_owned(), at: at(1), expires_at: None }]);
    assert_eq!(store.revoked_among(&ids).await, Ok(BTreeSet::from(["two".to_owned()])));
}

/// How long an ask is open is its owner's setting: a day, unless configured otherwise (design 3.2). An answer counts until
/// then and not after it.
#[test]
fn an_ask_is_answered_once_and_in_time() {
    let home = TestHome::new().with_session(1);
    home.commit(vec![open(1, "a"), open(2, "b"), open(3, "c")]);
    home.commit(vec![resolve(1, AskState::Approved, 5)]);
    home.commit(vec![resolve(3, AskState::Denied, 59_999)]);
    let twice = home.try_commit(vec![resolve(1, AskState::Denied, 6)]);
    assert_eq!(twice, Err(Conflict::AskNotOpen(ask_id(1)).into()));
    let late = home.try_commit(vec![resolve(2, AskState::Approved, 60_000)]);
    assert_eq!(late, Err(Conflict::AskNotOpen(ask_id(2)).into()));
    assert_eq!(home.commit(vec![Op::ExpireAsks { now: at(59_999) }]).changed, 0);
    let expired = home.commit(vec![Op::ExpireAsks { now: at(60_000) }]).changed;
    assert_eq!(expired, 2, "the approved one ends, too: it was not performed");
    assert_eq!(
        home.store.blocking().ask(&ask_id(2)).expect("reads").map(|ask| ask.state),
        Some(AskState::Expired)
    );
    assert!(home.try_commit(vec![resolve(9, AskState::Used, 1)]).is_err());
}

#[test]
fn an_approval_that_was_not_used_ends_with_its_ask() {
    let home = TestHome::new().with_session(1);
    home.commit(vec![open(1, "a"), open(2, "b"), resolve(1, AskState::Approved, 5)]);
    let overdue = |millis| {
        let asks = home.store.blocking().overdue_asks(at(millis), 10).expect("reads");
        asks.into_iter().map(|ask| ask.card.ask_id).collect::<Vec<_>>()
    };
    assert_eq!(overdue(59_999), []);
    assert_eq!(overdue(60_000), [ask_id(1), ask_id(2)]);
    let early = home.try_commit(vec![resolve(1, AskState::Expired, 59_999)]);
    assert_eq!(early, Err(Conflict::AskNotOpen(ask_id(1)).into()), "it may still be performed");
    home.commit(vec![resolve(1, AskState::Expired, 60_000)]);
    assert_eq!(overdue(60_000), [ask_id(2)]);
    assert_eq!(home.commit(vec![Op::ExpireAsks { now: at(60_000) }]).changed, 1);
    assert_eq!(overdue(60_000), []);
}

/// Before its time as well, once its approval was taken back: nobody is to wait for what is not done any more.
#[test]
fn an_approved_ask_ends_with_its_approval() {
    let of = |n, query: &str, of| {
        let NewAsk { mut card, mut prepared, entry } = ask(n, query);
        (card.session, prepared.session) = (Some(session(of)), Some(session(of)));
        Op::OpenAsk(Box::new(NewAsk { card, prepared, entry }))
    };
    let home = TestHome::new().with_session(1).with_session(2);
    let state = |n| home.store.blocking().ask(&ask_id(n)).expect("reads").expect("there").state;
    let waiting = |n| {
        let asks = home.store.blocking().waiting_asks(session(n), 10).expect("reads");
        asks.into_iter().map(|ask| ask.card.ask_id).collect::<Vec<_>>()
    };
    for (n, query, session) in [(1, "a", 1), (2, "b", 1), (3, "c", 2), (4, "d", 1), (5, "e", 1)] {
        home.commit(vec![of(n, query, session)]);
    }
    for (n, query) in [(1, "a"), (2, "b"), (3, "c")] {
        home.commit(vec![resolve(n, AskState::Approved, 5), Op::StoreApproval(approval(n, query))]);
    }
    home.commit(vec![resolve(4, AskState::Denied, 5), used(&approval(2, "b"), "b")]);
    assert_eq!((waiting(1), waiting(2)), (vec![ask_id(1), ask_id(5)], vec![ask_id(3)]));
    assert_eq!(home.store.blocking().waiting_sessions(), Ok(vec![session(1), session(2)]));

    home.commit(vec![Op::RevokeUnused(session(1))]);
    let revoked = |n| home.store.blocking().approval(&ask_id(n)).expect("reads").expect("there").revoked;
    assert_eq!(
        [revoked(1), revoked(2), revoked(3)],
        [true, false, false],
        "neither the used one nor another's"
    );
    let spent = home.try_commit(vec![used(&approval(1, "a"), "a")]).map(drop);
    assert_eq!(spent, Err(Conflict::ApprovalSpent(ask_id(1)).into()));
    home.commit(vec![resolve(1, AskState::Expired, 6), resolve(5, AskState::Expired, 6)]);
    assert_eq!([state(1), state(2), state(5)], [AskState::Expired, AskState::Used, AskState::Expired]);
    let early = home.try_commit(vec![resolve(3, AskState::Expired, 6)]).map(drop);
    assert_eq!(early, Err(Conflict::AskNotOpen(ask_id(3)).into()), "the twin may still be performed");
    assert_eq!((waiting(1), waiting(2)), (Vec::new(), vec![ask_id(3)]));
    assert_eq!(home.store.blocking().waiting_sessions(), Ok(vec![session(2)]));
}

/// Rows: SIL-162
#[test]
fn looking_at_an_approval_does_not_use_it() {
    let home = TestHome::new().with_session(1);
    home.commit(vec![open(1, "q")]);
    assert!(home.try_commit(vec![Op::StoreApproval(approval(1, "q"))]).is_err(), "not approved yet");
    home.commit(vec![resolve(1, AskState::Approved, 5)]);
    assert!(home.try_commit(vec![Op::StoreApproval(approval(1, "other"))]).is_err(), "for something else");
    home.commit(vec![Op::StoreApproval(approval(1, "q"))]);
    for _ in 0..10 {
        let found = home.store.blocking().approval(&ask_id(1)).expect("reads").expect("there");
        assert_eq!((found.executions_used, found.token), (0, json!({ "signed": true })));
    }
    let approval = ApprovalUse {
        ask: ask_id(1),
        prepared: Digest::of_bytes(b"q"),
        nonce: "nonce 1".to_owned(),
        task: None,
        amount: None,
        plan: None,
    };
    let consume = |millis| Op::ConsumeApproval { approval: approval.clone(), now: at(millis) };
    let spent = Err(Conflict::ApprovalSpent(ask_id(1)).into());
    assert_eq!(home.try_commit(vec![consume(60_000)]), spent, "too late");
    home.commit(vec![consume(10)]);
    assert_eq!(home.try_commit(vec![phase("x"), consume(11)]), spent, "used");
    assert_eq!(home.store.blocking().is_used(NONCE_NAMESPACE, "nonce 1"), Ok(true));
}

/// Threat 5: the ledger has seen its end, and the clock was set back since.
#[test]
fn an_approval_that_has_ended_does_not_begin_again_when_the_clock_is_set_back() {
    let entry = |millis| {
        let fact = Fact::Checkpoint { name: "seen".into() };
        Op::Append(Box::new(Entry { at: at(millis), session: None, turn: None, turn_number: 0, fact }))
    };
    let use_after = |seen: i64, millis: i64| {
        let home = given(approval(1, "q"), "q");
        home.commit(vec![entry(seen), entry(3)]);
        assert_eq!(home.store.blocking().not_before(), Ok(at(seen - MAX_CLOCK_BACK_MS)));
        home.try_commit(vec![counted(&approval(1, "q"), "q", None, at(millis))]).map(drop)
    };
    let spent = Err(StoreError::Conflict(Conflict::ApprovalSpent(ask_id(1))));
    // It ends after a minute; clocks may differ by one.
    assert_eq!(use_after(119_999, 3), Ok(()));
    assert_eq!(use_after(120_000, 3), spent);
    assert_eq!(use_after(119_999, 60_000), spent, "the twin: it is over by the clock");
}

#[test]
fn a_revoked_approval_is_spent() {
    let home = TestHome::new().with_session(1);
    home.commit(vec![open(1, "q"), resolve(1, AskState::Approved, 5), Op::StoreApproval(approval(1, "q"))]);
    home.commit(vec![Op::RevokeApproval { ask: ask_id(1) }]);
    let approval = ApprovalUse {
        ask: ask_id(1),
        prepared: Digest::of_bytes(b"q"),
        nonce: "nonce 1".to_owned(),
        task: None,
        amount: None,
        plan: None,
    };
    let consume = Op::ConsumeApproval { approval, now: at(10) };
    assert_eq!(home.try_commit(vec![consume]), Err(Conflict::ApprovalSpent(ask_id(1)).into()));
}

/// Rows: SIL-163
/// Rows: SIL-164 (in part: in the store)
#[test]
fn nonces_are_seen_once_per_namespace_and_kept_until_they_expire() {
    let home = TestHome::new();
    let record = |namespace: &str, expires| Op::RecordNonce {
        namespace: namespace.to_owned(),
        nonce: "n".to_owned(),
        expires_at: at(expires),
    };
    assert_eq!(home.store.blocking().is_used("a", "n"), Ok(false));
    home.commit(vec![record("a", 100)]);
    assert_eq!(home.store.blocking().is_used("a", "n"), Ok(true));
    assert_eq!(home.store.blocking().is_used("b", "n"), Ok(false));
    let seen = home.try_commit(vec![phase("x"), record("a", 200)]);
    assert_eq!(seen, Err(Conflict::NonceSeen { namespace: "a".to_owned() }.into()));
    home.commit(vec![record("b", 300)]);
    let home = home.reopened();
    assert_eq!(home.store.blocking().is_used("a", "n"), Ok(true), "survives a restart");
    assert_eq!(home.commit(vec![Op::PruneNonces { now: at(99) }]).changed, 0, "not before its time");
    assert_eq!(home.commit(vec![Op::PruneNonces { now: at(100) }]).changed, 1);
    assert_eq!(
        (home.store.blocking().is_used("a", "n"), home.store.blocking().is_used("b", "n")),
        (Ok(false), Ok(true))
    );
}

/// Who holds what was approved reads it anew after each of these, and after nothing else.
#[test]
fn the_version_of_what_people_have_approved_changes_with_approvals_answers_and_keys() {
    let home = TestHome::new().with_session(1);
    let version = || home.store.consent_version().expect("this store writes");
    let changes = |ops: Vec<Op>| {
        let before = version();
        home.commit(ops);
        version() != before
    };
    let key = ApproverKey {
        id: KeyId::from_parts(at(0), 1),
        kind: "cli".to_owned(),
        label: "laptop".to_owned(),
        public_key: vec![1; 32],
        enrolled_at: at(0),
        revoked_at: None,
    };
    let nothing = [vec![phase("x")], vec![open(1, "q")], vec![Op::AddCounter { name: "n".into(), by: 1 }]];
    assert_eq!(nothing.map(&changes), [false; 3]);
    let revoke = Op::RevokeKey { key: key.id, at: at(9) };
    let given = approval(1, "q");
    let use_up = used(&given, "q");
    let consent = [
        vec![resolve(1, AskState::Approved, 5)],
        vec![Op::StoreApproval(given)],
        vec![phase("x"), use_up],
        vec![Op::RevokeApproval { ask: ask_id(1) }],
        vec![Op::EnrollKey(key)],
        vec![revoke],
    ];
    assert_eq!(consent.map(&changes), [true; 6]);
}

#[test]
fn approver_keys_and_revocations_are_kept() {
    let home = TestHome::new();
    let key = |n: u128, byte: u8| ApproverKey {
        id: KeyId::from_parts(at(0), n),
        kind: "cli".to_owned(),
        label: "laptop".to_owned(),
        public_key: vec![byte; 32],
        enrolled_at: at(0),
        revoked_at: None,
    };
    home.commit(vec![Op::EnrollKey(key(1, 1))]);
    assert!(home.try_commit(vec![Op::EnrollKey(key(2, 1))]).is_err(), "the same public key");
    let revoke = Op::RevokeKey { key: key(1, 1).id, at: at(9) };
    home.commit(vec![revoke.clone()]);
    assert!(home.try_commit(vec![revoke]).is_err(), "not in force");
    let expected = ApproverKey { revoked_at: Some(at(9)), ..key(1, 1) };
    let home = home.reopened();
    assert_eq!(home.store.blocking().approver_keys(), Ok(vec![expected]));

    // A passkey's counter grows, also across a restart, or does not count.
    let count = |sign_count| Op::CountPasskey { key: key(1, 1).id, sign_count };
    for (sign_count, good) in [(0, true), (0, true), (3, true), (3, false), (2, false), (0, false), (4, true)]
    {
        assert_eq!(home.try_commit(vec![count(sign_count)]).is_ok(), good, "{sign_count}");
    }
    let home = home.reopened();
    let back = home.try_commit(vec![count(4)]);
    assert_eq!(back.map(|_| ()), Err(Conflict::Counter(key(1, 1).id).into()));

    let op = Op::Revoke { id: "abc".to_owned(), at: at(1), expires_at: None };
    home.commit(vec![op.clone(), op]);
    assert_eq!(
        (home.store.blocking().is_revoked("abc"), home.store.blocking().is_revoked("abd")),
        (Ok(true), Ok(false))
    );
}

/// Each case of a fleet leaves a revoked key for every half hour: they go once their keys have long ended.
#[test]
fn revocations_of_short_lived_keys_are_deleted_long_after_their_end() {
    let home = TestHome::new();
    let day = revocations::SHORT_LIFE_MS;
    let revoke = |id: &str, time: i64, life: Option<i64>| Op::Revoke {
        id: id.to_owned(),
        at: Timestamp::from_millis(time),
        expires_at: life.map(|life| Timestamp::from_millis(time + life)),
    };
    home.commit(vec![
        revoke("task", 1, Some(day)),
        revoke("base", 1, Some(day + 1)),
        revoke("order", 1, None),
    ]);
    let read = home.store.blocking();
    let listed = |now: i64, after: &str| -> Vec<String> {
        let rows = read.revocations_after(Timestamp::from_millis(now), after, 10).expect("reads");
        rows.into_iter().map(|(id, _)| id).collect()
    };
    assert_eq!(listed(2, ""), ["base", "order", "task"]);
    assert_eq!((listed(day + 1, "base"), listed(day + 2, "")), (vec!["order".into()], vec!["order".into()]));
    home.commit(vec![revoke("other", 1 + 31 * day, Some(1))]);
    assert_eq!(read.is_revoked("task"), Ok(true), "its key ended 30 days ago");
    home.commit(vec![revoke("another", 2 + 31 * day, Some(1))]);
    assert_eq!(read.is_revoked("task"), Ok(false));
    for id in ["base", "order", "other", "another"] {
        assert_eq!(read.is_revoked(id), Ok(true), "{id}");
    }
}

fn for_task(n: u64, query: &str, uses: u32) -> NewApproval {
    let task = TaskTerms { pattern: Digest::of_bytes(b"pattern"), risk: Risk::Medium, uses, standing: None };
    NewApproval { task: Some(task), ..approval(n, query) }
}

fn used(approval: &NewApproval, query: &str) -> Op {
    let (ask, nonce, task) = (approval.ask.clone(), approval.nonce.clone(), approval.task);
    let approval = ApprovalUse {
        ask,
        prepared: Digest::of_bytes(query.as_bytes()),
        nonce,
        task,
        amount: None,
        plan: None,
    };
    Op::ConsumeApproval { approval, now: at(3) }
}

fn given(approval: NewApproval, query: &str) -> TestHome {
    let home = TestHome::new().with_session(1);
    home.commit(vec![open(1, query), resolve(1, AskState::Approved, 1), Op::StoreApproval(approval)]);
    home
}

/// Each use of an approval for the task is one step of its row and has a nonce of its own; what was shown is first.
#[test]
fn an_approval_for_the_task_is_used_as_often_as_was_signed() {
    let approval = for_task(1, "q", 3);
    let home = given(approval.clone(), "q");
    let spent = Err(StoreError::Conflict(Conflict::ApprovalSpent(ask_id(1))));
    let live = || home.store.blocking().task_approvals(None, at(3), 10).expect("reads").len();
    let uses = || home.store.blocking().approval(&ask_id(1)).expect("reads").expect("there").executions_used;
    assert_eq!(live(), 0, "nothing is alike before what was shown is done");
    assert_eq!(home.try_commit(vec![used(&approval, "other")]).map(drop), spent);
    for (n, query) in ["q", "other", "q"].into_iter().enumerate() {
        home.commit(vec![used(&approval, query)]);
        assert_eq!((uses(), live()), (u64::try_from(n + 1).expect("few"), usize::from(n < 2)));
    }
    assert_eq!(home.try_commit(vec![used(&approval, "other")]).map(drop), spent);
    let nonces = ["nonce 1", "nonce 1/2", "nonce 1/3"];
    assert!(nonces.iter().all(|nonce| home.store.blocking().is_used(NONCE_NAMESPACE, nonce).expect("reads")));
    let asked = home.store.blocking().ask(&ask_id(1)).expect("reads").expect("there");
    assert_eq!(asked.state, AskState::Used);
}

#[test]
fn an_approval_for_the_task_ends_with_its_time_its_pattern_and_when_it_is_taken_back() {
    let approval = for_task(1, "q", 3);
    let home = given(approval.clone(), "q");
    home.commit(vec![used(&approval, "q")]);
    let pattern = approval.task.map(|task| task.pattern);
    let live = |pattern, now| home.store.blocking().task_approvals(pattern, now, 10).expect("reads").len();
    assert_eq!((live(pattern, at(59_999)), live(pattern, at(60_000))), (1, 0));
    assert_eq!(live(Some(Digest::of_bytes(b"another")), at(3)), 0);
    let spent = Err(StoreError::Conflict(Conflict::ApprovalSpent(ask_id(1))));
    // Terms that were not stored do not count, nor does none.
    let wider =
        TaskTerms { pattern: Digest::of_bytes(b"another"), risk: Risk::High, uses: 9, standing: None };
    for task in [Some(wider), None] {
        let other = NewApproval { task, ..approval.clone() };
        assert_eq!(home.try_commit(vec![used(&other, "other")]).map(drop), spent);
    }
    home.commit(vec![Op::RevokeApproval { ask: ask_id(1) }]);
    assert_eq!(live(pattern, at(3)), 0);
    assert_eq!(home.try_commit(vec![used(&approval, "other")]).map(drop), spent);
}

/// Approvals of before the second migration are good once, as they were.
#[test]
fn approvals_of_an_older_database_are_good_once() {
    let mut conn = rusqlite::Connection::open_in_memory().expect("opens");
    crate::schema::migrate(&mut conn, &crate::schema::MIGRATIONS[..1]).expect("the first");
    conn.execute_batch(
        "INSERT INTO ask (id, prepared_hash, state, card, prepared, asked_at, expires_at)
         VALUES ('a', 'h', 'approved', '{}', '{}', 0, 9), ('b', 'i', 'used', '{}', '{}', 0, 9);
         INSERT INTO approval (ask, prepared_hash, nonce, token, expires_at, executions_used)
         VALUES ('a', 'h', 'n', '{}', 9, 0), ('b', 'i', 'o', '{}', 9, 1);",
    )
    .expect("inserted");
    crate::schema::migrate(&mut conn, crate::schema::MIGRATIONS).expect("the rest");
    let rows: Vec<(String, u32, u32, Option<String>)> = conn
        .prepare("SELECT ask, executions_used, max_uses, pattern FROM approval ORDER BY ask")
        .and_then(|mut statement| {
            let rows =
                statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))?;
            rows.collect()
        })
        .expect("reads");
    assert_eq!(rows, [("a".to_owned(), 0, 1, None), ("b".to_owned(), 1, 1, None)]);
}

fn amount(text: &str) -> Option<Amount> {
    Some(text.parse().expect("an amount"))
}

fn counted(approval: &NewApproval, query: &str, counts: Option<Amount>, now: Timestamp) -> Op {
    let (ask, nonce, task) = (approval.ask.clone(), approval.nonce.clone(), approval.task);
    let approval = ApprovalUse {
        ask,
        prepared: Digest::of_bytes(query.as_bytes()),
        nonce,
        task,
        amount: counts,
        plan: None,
    };
    Op::ConsumeApproval { approval, now }
}

/// Threat 5: one use more, more in all, later than signed, with the clock set back, after it was taken back.
///
/// Rows: SIL-153 SIL-154
#[test]
fn a_standing_approval_ends_with_its_uses_its_total_its_time_and_when_it_is_taken_back() {
    let standing = Some(StandingTerms { secs: 60, total: amount("10") });
    let terms = TaskTerms { pattern: Digest::of_bytes(b"pattern"), risk: Risk::Medium, uses: 3, standing };
    let approval = NewApproval { task: Some(terms), ..approval(1, "q") };
    let home = given(approval.clone(), "q");
    let refused = |query: &str, counts: Option<Amount>, now| {
        let spent = Err(StoreError::Conflict(Conflict::ApprovalSpent(ask_id(1))));
        assert_eq!(home.try_commit(vec![counted(&approval, query, counts, now)]).map(drop), spent, "{query}");
    };
    // What was shown counts as well, and comes first.
    refused("q", amount("10.000001"), at(3));
    refused("q", None, at(3));
    home.commit(vec![counted(&approval, "q", amount("6"), at(3))]);
    let left = || home.store.blocking().approval(&ask_id(1)).expect("reads").expect("there").total_left;
    assert_eq!(left(), amount("4").map(Amount::millionths));
    refused("other", amount("4.000001"), at(3));
    refused("other", amount("1"), at(60_000));
    home.commit(vec![counted(&approval, "other", amount("3"), at(59_999))]);
    // The ledger was written at a later time than the clock now says.
    let late = Entry {
        at: at(10_000_000),
        session: None,
        turn: None,
        turn_number: 0,
        fact: Fact::Checkpoint { name: "later".into() },
    };
    let other = given(NewApproval { task: Some(terms), ..approval.clone() }, "q");
    let early = Entry { at: at(3), ..late.clone() };
    other.commit(vec![Op::Append(Box::new(late)), Op::Append(Box::new(early))]);
    let spent = Err(StoreError::Conflict(Conflict::ApprovalSpent(ask_id(1))));
    assert_eq!(other.try_commit(vec![counted(&approval, "q", amount("1"), at(3))]).map(drop), spent);
    // Three uses were signed: the total would still admit a fourth.
    home.commit(vec![counted(&approval, "third", amount("0.5"), at(5))]);
    refused("fourth", amount("0.5"), at(5));
    let again = given(approval.clone(), "q");
    again.commit(vec![counted(&approval, "q", amount("1"), at(3))]);
    again.commit(vec![Op::RevokeApproval { ask: ask_id(1) }]);
    let spent = Err(StoreError::Conflict(Conflict::ApprovalSpent(ask_id(1))));
    assert_eq!(again.try_commit(vec![counted(&approval, "other", amount("1"), at(3))]).map(drop), spent);
}

#[test]
fn what_several_people_sign_is_kept_apart_and_shown_on_the_card() {
    let home = TestHome::new().with_session(1);
    home.commit(vec![open(1, "q")]);
    let part = |by: &str, millis| {
        Op::StorePart(NewPart { ask: ask_id(1), by: by.into(), token: json!({"by": by}), at: at(millis) })
    };
    home.commit(vec![part("key a", 1)]);
    let again = home.try_commit(vec![part("key a", 2)]).map(drop);
    assert!(matches!(again, Err(StoreError::Conflict(Conflict::Exists { .. }))), "{again:?}");
    home.commit(vec![part("key b", 3)]);
    let parts = home.store.blocking().approval_parts(&ask_id(1)).expect("reads");
    assert_eq!(parts, [json!({"by": "key a"}), json!({"by": "key b"})]);
    let card = home.store.blocking().ask(&ask_id(1)).expect("reads").expect("there").card;
    assert_eq!(card.approved_by, ["key a", "key b"]);
    home.commit(vec![resolve(1, AskState::Denied, 4)]);
    let late = home.try_commit(vec![part("key c", 5)]).map(drop);
    assert_eq!(late, Err(StoreError::Conflict(Conflict::AskNotOpen(ask_id(1)))));
}

/// Each use of a step is one step of its row with a nonce of its own; what ends the plan refuses the next one.
///
/// Rows: SIL-002
#[test]
fn a_step_of_a_plan_is_used_as_often_as_it_says_while_its_plan_is_in_force() {
    let key = KeyId::from_parts(at(0), 7);
    let spent = || Err(StoreError::Conflict(Conflict::ApprovalSpent(ask_id(1))));
    let use_of = |step, times, key, millis| {
        let approval = ApprovalUse {
            ask: ask_id(1),
            prepared: Digest::of_bytes(b"a step"),
            nonce: "nonce 1".to_owned(),
            task: None,
            amount: None,
            plan: Some(PlanUse { step, times, key }),
        };
        Op::ConsumeApproval { approval, now: at(millis) }
    };
    let planned = |max_cost: Option<u64>| {
        let home = given(approval(1, "q"), "q");
        let plan = NewPlan {
            ask: ask_id(1),
            session: session(1),
            key,
            token: "token".to_owned(),
            begins_at: at(3),
            ends_at: at(50_000),
            cost_before: MicroUsd::ZERO,
            max_cost: max_cost.map(MicroUsd::new),
            times: vec![2, 1],
        };
        home.commit(vec![Op::KeepPlan(Box::new(plan))]);
        home
    };
    let early = planned(None);
    assert_eq!(
        early.try_commit(vec![use_of(0, 2, key, 4)]).map(drop),
        spent(),
        "the plan itself was not minted"
    );
    let begin = |home: &TestHome| home.commit(vec![used(&approval(1, "q"), "q")]);
    let home = planned(None);
    begin(&home);
    let left =
        || home.store.blocking().plans(None, at(4), 9).expect("reads").first().map(|plan| plan.left.clone());
    assert_eq!(left(), Some(vec![2, 1]));
    let other = KeyId::from_parts(at(0), 8);
    let found = |ask, key, millis| {
        let by_ask = home.store.blocking().plan_of(&ask_id(ask), at(millis)).expect("reads").is_some();
        (by_ask, home.store.blocking().plan_under(key).expect("reads").is_some())
    };
    assert_eq!(found(1, key, 4), (true, true));
    assert_eq!(found(2, other, 4), (false, false), "another one");
    assert_eq!(found(1, key, 50_000), (false, true), "too late, but its key can be revoked");
    for (step, times, key, millis) in [(0, 2, other, 4), (0, 3, key, 4), (2, 1, key, 4), (0, 2, key, 50_000)]
    {
        assert_eq!(
            home.try_commit(vec![use_of(step, times, key, millis)]).map(drop),
            spent(),
            "{step} {times}"
        );
    }
    home.commit(vec![use_of(0, 2, key, 4)]);
    home.commit(vec![use_of(0, 2, key, 5)]);
    assert_eq!(home.try_commit(vec![use_of(0, 2, key, 6)]).map(drop), spent(), "twice was planned");
    assert_eq!(left(), Some(vec![0, 1]));
    let seen = |nonce| home.store.blocking().is_used(NONCE_NAMESPACE, nonce).expect("reads");
    assert!(seen("nonce 1/step/0/1") && seen("nonce 1/step/0/2") && !seen("nonce 1/step/1/1"));
    home.commit(vec![Op::Revoke { id: key.to_string(), at: at(6), expires_at: None }]);
    assert_eq!(home.try_commit(vec![use_of(1, 1, key, 7)]).map(drop), spent(), "its key was revoked");
    assert_eq!((left(), found(1, key, 7)), (None, (false, false)));

    let taken_back = planned(None);
    begin(&taken_back);
    taken_back.commit(vec![Op::RevokeApproval { ask: ask_id(1) }]);
    assert_eq!(taken_back.try_commit(vec![use_of(0, 2, key, 4)]).map(drop), spent());

    let dear = planned(Some(10));
    begin(&dear);
    let cost = |cost| {
        Op::AddUsage(UsageDelta {
            session: Some(session(1)),
            at: at(4),
            usage: Default::default(),
            cost: MicroUsd::new(cost),
            tool_calls: 0,
            model_calls: 1,
        })
    };
    dear.commit(vec![cost(9), use_of(0, 2, key, 4)]);
    dear.commit(vec![cost(1)]);
    assert_eq!(dear.try_commit(vec![use_of(0, 2, key, 5)]).map(drop), spent(), "its money is spent");
}

/// What is used up hides nothing: an older plan of which something is left is found, however many newer ones there are.
#[test]
fn plans_of_which_nothing_is_left_hide_no_older_one() {
    let home = TestHome::new().with_session(1);
    let key = |n: u64| KeyId::from_parts(at(0), u128::from(n));
    for n in 1..=4 {
        let query = n.to_string();
        home.commit(vec![open(n, &query), resolve(n, AskState::Approved, 1)]);
        home.commit(vec![Op::StoreApproval(approval(n, &query)), used(&approval(n, &query), &query)]);
        let plan = NewPlan {
            ask: ask_id(n),
            session: session(1),
            key: key(n),
            token: "token".to_owned(),
            begins_at: at(i64::try_from(n).expect("small")),
            ends_at: at(50_000),
            cost_before: MicroUsd::ZERO,
            max_cost: (n == 4).then_some(MicroUsd::new(10)),
            times: vec![1],
        };
        home.commit(vec![Op::KeepPlan(Box::new(plan))]);
    }
    let asks = |plans: Vec<PlanRow>| plans.into_iter().map(|plan| plan.ask).collect::<Vec<_>>();
    let left = |limit| asks(home.store.blocking().plans_left(Some(session(1)), at(9), limit).expect("reads"));
    assert_eq!(left(9), [4, 3, 2, 1].map(ask_id));
    let cost = UsageDelta {
        session: Some(session(1)),
        at: at(4),
        usage: Default::default(),
        cost: MicroUsd::new(10),
        tool_calls: 0,
        model_calls: 1,
    };
    let step = |n| {
        let approval = ApprovalUse {
            ask: ask_id(n),
            prepared: Digest::of_bytes(b"a step"),
            nonce: format!("nonce {n}"),
            task: None,
            amount: None,
            plan: Some(PlanUse { step: 0, times: 1, key: key(n) }),
        };
        Op::ConsumeApproval { approval, now: at(9) }
    };
    home.commit(vec![step(3), step(2), Op::AddUsage(cost)]);
    assert_eq!(
        (left(9), left(1)),
        (vec![ask_id(1)], vec![ask_id(1)]),
        "the others are used up, or their money"
    );
    let all = asks(home.store.blocking().plans(Some(session(1)), at(9), 9).expect("reads"));
    assert_eq!(all, [4, 3, 2, 1].map(ask_id), "their keys are in force");
    assert_eq!(home.store.blocking().plans_left(Some(session(2)), at(9), 9), Ok(Vec::new()));
    let whole = home.store.blocking().plans_left_with_approvals(None, at(9), 9).expect("reads");
    let plans = home.store.blocking().plans_left(None, at(9), 9).expect("reads");
    assert_eq!(whole.iter().map(|(plan, ..)| plan.clone()).collect::<Vec<_>>(), plans);
    for (plan, ask, approval) in whole {
        assert_eq!((&ask.card.ask_id, &approval.ask), (&plan.ask, &plan.ask));
    }
}
