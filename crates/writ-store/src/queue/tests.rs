//! Leases, fences and order.

use super::*;
use crate::batch::Op;
use crate::testing::*;

fn lease_at(home: &TestHome, millis: i64) -> Option<Leased> {
    let op = Op::LeaseMessage { now: at(millis), owner: "engine".to_owned(), ttl_ms: 1_000 };
    home.commit(vec![op]).leased.remove(0)
}

fn id(leased: &Leased) -> MessageId {
    leased.message.record.message
}

/// Rows: SIL-208 (in part: no message is leased twice)
#[test]
fn a_session_has_one_leased_message_and_the_oldest_comes_first() {
    let home = TestHome::new().with_session(1).with_session(2);
    home.commit(receive(1, 1, "a"));
    home.commit(receive(1, 2, "b"));
    home.commit(receive(2, 3, "a"));
    let first = lease_at(&home, 0).expect("due");
    let second = lease_at(&home, 0).expect("another session's");
    assert_eq!((id(&first), id(&second)), (message(1), message(3)));
    assert_eq!(lease_at(&home, 0), None, "the second of session 1 waits");
    home.commit(vec![Op::AckMessage { message: message(1), fence: first.fence }]);
    assert_eq!(lease_at(&home, 0).map(|next| id(&next)), Some(message(2)));
}

/// Rows: SIL-208
/// Rows: SIL-209 SIL-211 (in part: of another holder)
#[test]
fn an_old_fence_changes_nothing() {
    let home = TestHome::new().with_session(1);
    home.commit(receive(1, 1, "a"));
    let leased: Vec<Leased> = std::thread::scope(|scope| {
        let racers: Vec<_> = (0..8).map(|_| scope.spawn(|| lease_at(&home, 0))).collect();
        racers.into_iter().filter_map(|racer| racer.join().expect("leases")).collect()
    });
    let [first] = leased.as_slice() else { panic!("one of eight: {leased:?}") };
    assert_eq!(lease_at(&home, 999), None, "still held");
    let second = lease_at(&home, 1_000).expect("ran out");
    assert!(second.fence > first.fence);
    let stale = Err(StoreError::Conflict(Conflict::Fence(message(1))));
    let (message, fence) = (message(1), first.fence);
    let late = vec![
        Op::AckMessage { message, fence },
        Op::NackMessage { message, fence, now: at(0), error: "x".to_owned() },
        Op::Heartbeat { message, fence, now: at(0), ttl_ms: 1 },
        Op::AbsorbMessage { message, turn: turn(1), lease: message, fence },
    ];
    for op in late {
        assert_eq!(home.try_commit(vec![phase("with it"), op]), stale);
    }
    assert_eq!(home.store.blocking().ledger_size(), Ok(1), "nothing of those batches was written");
    home.commit(vec![Op::AckMessage { message, fence: second.fence }]);
    assert_eq!(home.try_commit(vec![Op::AckMessage { message, fence: second.fence }]), stale, "once");
}

/// A lease ends when its time is over and the store notices, at the next lease for any consumer. Until then the message is its
/// holder's alone: the answer of a machine that was asleep still counts.
///
/// Rows: SIL-210
#[test]
fn an_expired_lease_acknowledges_nothing_and_what_was_acknowledged_is_not_leased_again() {
    let home = TestHome::new().with_session(1);
    home.commit(receive(1, 1, "a"));
    let first = lease_at(&home, 0).expect("due");
    let ack = |held: &Leased| vec![Op::AckMessage { message: id(held), fence: held.fence }];
    let consumer = "planner".to_owned();
    let other = Op::LeaseFor { consumer, now: at(1_000), owner: "engine".to_owned(), ttl_ms: 1_000 };
    assert_eq!(home.commit(vec![other]).leased, [None], "nothing of its own");
    let stale = Err(StoreError::Conflict(Conflict::Fence(message(1))));
    assert_eq!(home.try_commit(ack(&first)), stale, "though no other holds it yet");
    let second = lease_at(&home, 1_000).expect("delivered again");
    home.commit(ack(&second));
    assert_eq!(home.try_commit(ack(&second)), stale, "once");
    assert_eq!(lease_at(&home, 1_000_000), None, "it is not delivered again");
}

/// Rows: SIL-209
#[test]
fn a_heartbeat_keeps_a_lease() {
    let home = TestHome::new().with_session(1);
    home.commit(receive(1, 1, "a"));
    let held = lease_at(&home, 0).expect("due");
    let beat =
        |now| vec![Op::Heartbeat { message: id(&held), fence: held.fence, now: at(now), ttl_ms: 1_000 }];
    home.commit(beat(900));
    assert_eq!(lease_at(&home, 1_500), None);
    assert!(lease_at(&home, 1_900).is_some());
    assert!(home.try_commit(beat(1_950)).is_err(), "it is another's by now");
}

/// Rows: SIL-211 SIL-212
#[test]
fn a_failing_message_backs_off_and_is_set_aside_at_last() {
    let home = TestHome::new().with_session(1);
    home.commit(receive(1, 1, "a"));
    let mut now = 0;
    for attempt in 1..=MAX_ATTEMPTS {
        let held = lease_at(&home, now).expect("due");
        assert_eq!(held.message.attempts, attempt);
        let error = format!("failure {attempt}");
        let op = Op::NackMessage { message: id(&held), fence: held.fence, now: at(now), error };
        home.commit(vec![op.clone()]);
        assert!(home.try_commit(vec![op]).is_err(), "it holds the message no longer");
        assert_eq!(lease_at(&home, now), None, "it backs off");
        now += i64::try_from(backoff(attempt).as_millis()).expect("small");
    }
    assert_eq!(lease_at(&home, now + 1_000_000), None);
    assert_eq!(home.store.blocking().queue_depth(), Ok(QueueDepth { ready: 0, leased: 0, dead: 1 }));
    let dead = home.store.blocking().dead_letters(10).expect("reads");
    assert_eq!(dead[0].error, "failure 5");
    assert_eq!(backoff(1), BACKOFF_FIRST);
    assert_eq!(backoff(u64::MAX), BACKOFF_MAX);
}

#[test]
fn a_message_that_waits_is_set_aside_for_good_and_a_leased_one_by_its_holder() {
    let home = TestHome::new().with_session(1).with_session(2);
    home.commit(receive(1, 1, "a"));
    home.commit(receive(1, 2, "b"));
    home.commit(receive(2, 3, "c"));
    assert_eq!(home.store.blocking().waiting_sessions(), Ok(vec![session(1), session(2)]));
    let held = lease_at(&home, 0).expect("due");
    let end = |n, fence| {
        let error = "its session was closed".to_owned();
        home.try_commit(vec![Op::EndMessage { message: message(n), fence, error }]).map(drop)
    };
    let stale = |n| Err(StoreError::Conflict(Conflict::Fence(message(n))));
    assert_eq!(end(1, None), stale(1), "somebody holds it");
    assert_eq!(end(1, Some(Fence(held.fence.0 + 1))), stale(1));
    assert_eq!(end(2, Some(held.fence)), stale(2), "nobody holds it");
    assert_eq!(end(2, None), Ok(()));
    assert_eq!(home.store.blocking().pending_for_session(session(1)), Ok(Vec::new()));
    assert_eq!(home.store.blocking().waiting_sessions(), Ok(vec![session(1), session(2)]), "one is leased");
    assert_eq!(end(1, Some(held.fence)), Ok(()));
    assert_eq!(end(1, Some(held.fence)), stale(1), "once");
    assert_eq!(home.store.blocking().waiting_sessions(), Ok(vec![session(2)]));
    assert_eq!(lease_at(&home, 1_000_000).map(|next| id(&next)), Some(message(3)), "the twin waits");
    assert_eq!(lease_at(&home, 1_000_000), None);
    let dead = home.store.blocking().dead_letters(10).expect("reads");
    let dead: Vec<_> = dead.iter().map(|found| (found.record.message, found.error.as_str())).collect();
    assert_eq!(dead, [(message(2), "its session was closed"), (message(1), "its session was closed")]);
}

/// Rows: SIL-213
#[test]
fn a_restart_gives_leased_messages_back() {
    let home = TestHome::new().with_session(1);
    home.commit(receive(1, 1, "a"));
    let old = lease_at(&home, 0).expect("due");
    let home = home.reopened();
    assert_eq!(home.commit(vec![Op::RequeueLeased]).changed, 1);
    let new = lease_at(&home, 0).expect("due again");
    assert_eq!((id(&new), new.message.attempts), (id(&old), 2));
    assert!(new.fence > old.fence);
}

#[test]
fn a_message_that_ends_every_engine_is_set_aside() {
    let home = TestHome::new().with_session(1);
    home.commit(receive(1, 1, "a"));
    for _ in 0..MAX_ATTEMPTS {
        assert!(lease_at(&home, 0).is_some());
        home.commit(vec![Op::RequeueLeased]);
    }
    assert_eq!(lease_at(&home, 0), None);
    assert_eq!(home.store.blocking().queue_depth().expect("reads").dead, 1);
}

/// The id that counts once is the client's, in its session (design 3.12).
///
/// Rows: SIL-205
#[test]
fn a_duplicate_client_id_returns_the_first_entry_and_writes_nothing() {
    let home = TestHome::new().with_session(1).with_session(2);
    let first = home.commit(receive(1, 1, "a")).entries[0];
    let again = home.try_commit(receive(1, 2, "a"));
    assert_eq!(again, Err(StoreError::Conflict(Conflict::DuplicateMessage { entry: first })));
    assert_eq!(home.store.blocking().ledger_size(), Ok(1));
    home.commit(receive(2, 3, "a"));
    let found = home.store.blocking().message_by_client_id(session(1), "a").expect("reads").expect("there");
    assert_eq!((found.entry, found.record.message), (first, message(1)));
    let held = lease_at(&home, 0).expect("due");
    home.commit(vec![Op::AckMessage { message: id(&held), fence: held.fence }]);
    let other = lease_at(&home, 0).expect("another session's");
    assert_eq!((id(&held), id(&other)), (message(1), message(3)));
    assert_eq!(lease_at(&home, 0), None, "it was handled once");
    assert!(home.try_commit(receive(1, 4, "a")).is_err(), "also when it is done");
    home.commit(receive(1, 5, "b"));
    assert_eq!(lease_at(&home, 0).map(|next| id(&next)), Some(message(5)));
}

#[test]
fn what_comes_in_during_a_turn_is_absorbed_with_its_lease() {
    let home = TestHome::new().with_session(1).with_session(2);
    home.commit(receive(1, 1, "a"));
    let held = lease_at(&home, 0).expect("due");
    home.commit(vec![open_turn(1, 1, 1)]);
    home.commit(receive(1, 2, "b"));
    home.commit(receive(2, 3, "c"));
    let pending = home.store.blocking().pending_for_session(session(1)).expect("reads");
    assert_eq!(pending.iter().map(|found| found.record.message).collect::<Vec<_>>(), [message(2)]);
    assert_eq!([1, 2].map(|of| home.store.blocking().next_message_turn(session(of))), [Ok(3), Ok(2)]);
    assert!(home.store.blocking().next_message_turn(session(3)).is_err(), "no such session");
    let absorb = |message| Op::AbsorbMessage { message, turn: turn(1), lease: id(&held), fence: held.fence };
    assert!(home.try_commit(vec![absorb(message(3))]).is_err(), "another session's message");
    home.commit(vec![absorb(message(2)), Op::AckMessage { message: message(1), fence: held.fence }]);
    assert_eq!(home.store.blocking().pending_for_session(session(1)), Ok(Vec::new()));
    assert_eq!(lease_at(&home, 0).map(|next| id(&next)), Some(message(3)));
}

#[test]
fn a_full_queue_refuses() {
    let home = TestHome::new().with_session(1).with_session(2);
    for n in 0..MAX_SESSION_DEPTH {
        home.commit(receive(1, u128::from(n), &n.to_string()));
    }
    let full = home.try_commit(receive(1, 5_000, "one more"));
    assert_eq!(full, Err(StoreError::QueueFull { what: "the session", limit: MAX_SESSION_DEPTH }));
    home.commit(receive(2, 5_001, "another session"));
}

#[test]
fn a_message_needs_a_session_and_the_entry_before_it() {
    let home = TestHome::new();
    let mut ops = receive(1, 1, "a");
    assert!(matches!(
        home.try_commit(ops.clone()),
        Err(StoreError::Conflict(Conflict::Missing { what: "session", .. }))
    ));
    ops.remove(0);
    assert!(matches!(home.try_commit(ops), Err(StoreError::Conflict(Conflict::Order(_)))));
}

/// No operation of the queue reads the messages that are done: a long history costs nothing.
#[test]
fn no_query_reads_what_is_done() {
    let home = TestHome::new();
    let conn = Connection::open(home.path()).expect("opens");
    let lease = format!(
        "SELECT {COLUMNS} FROM message m WHERE state = 'ready' AND not_before <= 0 AND NOT EXISTS (
             SELECT 1 FROM message o
             WHERE o.session = m.session AND o.n < m.n AND o.state IN ('ready', 'leased')) ORDER BY n LIMIT 1"
    );
    for sql in [
        lease.as_str(),
        "UPDATE message SET error = '' WHERE state = 'leased' AND lease_until <= 1",
        "SELECT min(not_before) FROM message m WHERE state = 'ready' AND NOT EXISTS (
             SELECT 1 FROM message o
             WHERE o.session = m.session AND o.n < m.n AND o.state IN ('ready', 'leased'))",
        "SELECT count(*) FROM message WHERE session = 'x' AND state IN ('ready', 'leased')",
        "SELECT count(*) FROM message WHERE state = 'dead'",
    ] {
        let plan = query(&conn, &format!("EXPLAIN QUERY PLAN {sql}"), [], |row| Ok(row.get::<_, String>(3)?))
            .expect("plans");
        let good = |line: &String| line.contains("USING") || !line.contains("message");
        assert!(plan.iter().all(good), "{sql}: {plan:?}");
    }
}

/// A message that is leased opens a turn in a moment: the next one is not to take the same number.
#[test]
fn a_leased_message_waits_until_its_turn_is_open() {
    let home = TestHome::new().with_session(1);
    home.commit(receive(1, 1, "a"));
    assert_eq!(home.store.blocking().next_message_turn(session(1)), Ok(2), "behind the one that waits");
    let receipt = home.commit(vec![Op::lease(at(1), "engine", Duration::from_secs(60))]);
    assert!(receipt.leased[0].is_some());
    home.commit(receive(1, 2, "b"));
    assert_eq!(home.store.blocking().next_message_turn(session(1)), Ok(3), "one is leased");
    home.commit(vec![open_turn(1, 1, 1)]);
    assert_eq!(home.store.blocking().next_message_turn(session(1)), Ok(3), "its turn is counted as such");
}

/// A message for another consumer, with the entry that records it.
fn receive_for(consumer: &str, session: u128, n: u128, client: &str) -> Vec<Op> {
    let mut ops = receive(session, n, client);
    for op in &mut ops {
        if let Op::EnqueueMessage(message) = op {
            *op = Op::EnqueueFor { consumer: consumer.to_owned(), message: message.clone() };
        }
    }
    ops
}

fn lease_for(home: &TestHome, consumer: &str, millis: i64) -> Option<Leased> {
    let consumer = consumer.to_owned();
    let op = Op::LeaseFor { consumer, now: at(millis), owner: "engine".to_owned(), ttl_ms: 1_000 };
    home.commit(vec![op]).leased.remove(0)
}

/// Each consumer takes its own messages, one at a time per session, beside those of another consumer.
///
/// Rows: SIL-204 (in part: messages are rows, leased by consumer)
#[test]
fn messages_are_taken_by_their_consumer_alone() {
    let home = TestHome::new().with_session(1);
    home.commit(receive(1, 1, "a"));
    home.commit(receive_for("critic", 1, 2, "b"));
    home.commit(receive_for("critic", 1, 3, "c"));
    let reads = home.store.blocking();
    assert_eq!(reads.pending_for_session(session(1)).expect("reads").len(), 3);
    assert_eq!(reads.pending_for("critic", session(1)).expect("reads").len(), 2);
    let critic = lease_for(&home, "critic", 0).expect("due, though the executor's stands before it");
    assert_eq!((id(&critic), critic.message.consumer.as_str()), (message(2), "critic"));
    assert_eq!(lease_for(&home, "critic", 0), None, "one at a time");
    assert_eq!(reads.next_due_for("critic"), Ok(None));
    assert!(reads.next_due().is_ok_and(|due| due.is_some()));
    let executor = lease_at(&home, 0).expect("due");
    assert_eq!((id(&executor), executor.message.consumer.as_str()), (message(1), EXECUTOR));
    assert_eq!(lease_for(&home, "planner", 0), None);
    // A turn answers no message of another consumer along with its own.
    let absorb =
        Op::AbsorbMessage { message: message(3), turn: turn(1), lease: message(1), fence: executor.fence };
    assert_eq!(home.try_commit(vec![absorb]), Err(Conflict::Fence(message(3)).into()));
    home.commit(vec![Op::AckMessage { message: message(2), fence: critic.fence }]);
    assert_eq!(lease_for(&home, "critic", 0).map(|next| id(&next)), Some(message(3)));
    let long = receive_for(&"c".repeat(MAX_CONSUMER_BYTES + 1), 1, 9, "z");
    assert!(matches!(home.try_commit(long), Err(StoreError::TooLarge { .. })));
}

/// Two turns of one session are open at once, each with events of its own.
#[test]
fn turns_of_two_consumers_are_open_beside_each_other() {
    let home = TestHome::new().with_session(1);
    home.commit(receive(1, 1, "a"));
    home.commit(receive_for("critic", 1, 2, "b"));
    let (first, second) = (lease_at(&home, 0).expect("due"), lease_for(&home, "critic", 0).expect("due"));
    let reads = home.store.blocking();
    assert_eq!(reads.next_message_turn(session(1)), Ok(3), "both messages open a turn yet");
    let open = |n: u128, message| {
        let Op::OpenTurn(turn) = open_turn(1, n, n.try_into().expect("small")) else {
            panic!("opens a turn")
        };
        Op::OpenTurn(crate::turns::NewTurn { message, ..turn })
    };
    home.commit(vec![open(1, id(&first))]);
    assert_eq!(
        reads.next_message_turn(session(1)),
        Ok(3),
        "turn 1 is open, and one message waits for its turn"
    );
    home.commit(vec![open(2, id(&second))]);
    assert_eq!(reads.next_message_turn(session(1)), Ok(3));
    let event = |n, event: &str| Op::TurnEvent { turn: turn(n), n: 0, event: event.to_owned() };
    home.commit(vec![event(1, "1"), event(2, "2")]);
    let open: Vec<_> = reads.open_turns(session(1)).expect("reads").iter().map(|turn| turn.id).collect();
    assert_eq!(open, [turn(1), turn(2)]);
    assert_eq!(reads.unfinished_turn_of(id(&second)).expect("reads").map(|turn| turn.id), Some(turn(2)));
    let (first_turn, next) = reads.turn_of_message(session(1), id(&first)).expect("reads");
    assert_eq!((first_turn.map(|turn| turn.id), next), (Some(turn(1)), 3));
    assert_eq!(reads.turn_of_message(session(1), message(9)), Ok((None, 3)));
    assert_eq!(reads.turn_events(turn(2)), Ok(vec!["2".to_owned()]));
    home.commit(vec![Op::CloseTurn { turn: turn(1), at: at(1), state: "finished".to_owned() }]);
    let open: Vec<_> = reads.open_turns(session(1)).expect("reads").iter().map(|turn| turn.id).collect();
    assert_eq!(open, [turn(2)]);
}
