use writ_types::digest::Digest;
use writ_types::entry::{Decision, Fact};

use super::*;
use crate::approvals::AskState;
use crate::batch::Op;
use crate::testing::{TestHome, ask, ask_id, at, entry, intent, open_turn, outcome, phase, receive, turn};

fn erase(home: &TestHome, seq: u64) -> Result<(), StoreError> {
    home.try_commit(vec![Op::ErasePayload { entry: EntrySeq(seq), at: at(9) }]).map(|_| ())
}

/// Why it is not erased.
fn why(home: &TestHome, seq: u64) -> &'static str {
    match erase(home, seq) {
        Err(StoreError::Conflict(Conflict::Needed { why, .. })) => why,
        other => panic!("{seq}: {other:?}"),
    }
}

fn append(fact: Fact) -> Op {
    Op::Append(Box::new(entry(fact)))
}

#[test]
fn what_something_rests_on_is_kept_and_goes_when_nothing_does() {
    let home = TestHome::new().with_session(1);
    home.commit([receive(1, 1, "a"), vec![Op::Append(Box::new(intent(1)))]].concat());
    assert_eq!(why(&home, 0), "its message waits or is worked on");
    assert_eq!(why(&home, 1), "the outcome of the attempt is not known yet");
    home.commit(vec![outcome(1)]);
    assert_eq!(erase(&home, 1), Ok(()), "it is known now");
    home.commit(vec![Op::OpenAsk(Box::new(ask(1, "a")))]);
    assert_eq!(why(&home, 3), "its ask is open, or an approval of it is in force");
    let answered = Fact::Answered {
        covers: String::new(),
        ask: ask_id(1),
        decision: Decision::Deny,
        scope: Default::default(),
        by: "owner".to_owned(),
        reason: "no".to_owned(),
    };
    home.commit(vec![append(answered)]);
    assert_eq!(why(&home, 4), "its ask is open, or an approval of it is in force");
    home.commit(vec![Op::ResolveAsk {
        ask: ask_id(1),
        state: AskState::Denied,
        at: at(5),
        by: "owner".to_owned(),
        reason: "no".to_owned(),
    }]);
    assert_eq!((erase(&home, 3), erase(&home, 4)), (Ok(()), Ok(())), "it is answered");
}

#[test]
fn what_explains_the_ledger_itself_and_what_a_turn_is_at_are_kept() {
    let home = TestHome::new().with_session(1);
    let restored = Fact::Restored { from: EntrySeq(0), lost: Some(1), epoch: 2 };
    let erased =
        Fact::Erased { entries: vec![(EntrySeq(0), EntrySeq(0))], by: "owner".into(), reason: "mine".into() };
    home.commit(vec![append(restored), append(erased)]);
    assert_eq!(why(&home, 0), "it explains a gap to verifiers");
    assert_eq!(why(&home, 1), "it says what was erased, and why");
    home.commit([receive(1, 1, "a"), vec![open_turn(1, 1, 1)]].concat());
    let mut said = entry(Fact::Remembered {
        memory: crate::testing::memory(1, "x", None).id,
        forgotten: false,
        trust: writ_types::action::MemoryTrust::Working,
        taint: writ_types::taint::Taint::Owner,
        text: Digest::of_bytes(b"x"),
    });
    said.turn = Some(turn(1));
    home.commit(vec![Op::Append(Box::new(said))]);
    assert_eq!(why(&home, 3), "its turn is not over");
    home.commit(vec![Op::CloseTurn { turn: turn(1), at: at(5), state: "finished".to_owned() }]);
    assert_eq!(erase(&home, 3), Ok(()));
    let report = home.store.blocking().verify_ledger(&Default::default()).expect("reads");
    assert_eq!((report.problem, report.erased), (None, 1));
}

#[test]
fn old_payloads_are_named_in_bounded_portions_without_what_is_needed() {
    let home = TestHome::new().with_session(1);
    home.commit(vec![Op::Append(Box::new(intent(1)))]);
    home.append(u64::try_from(MAX_ERASED_AT_ONCE).expect("small") + 10);
    let checkpoint = |millis| {
        let mut young = entry(Fact::Checkpoint { name: "young".to_owned() });
        young.at = at(millis);
        Op::Append(Box::new(young))
    };
    home.commit(vec![checkpoint(1_000), phase("its clock was set back")]);
    home.commit((0..MAX_YOUNG).map(|_| checkpoint(1_001)).collect());
    home.commit(vec![phase("too far on")]);
    let old = |home: &TestHome| home.store.blocking().old_payloads(at(1_000), at(2_000)).expect("reads");
    let first = old(&home);
    assert_eq!(
        (first.len(), first.first()),
        (MAX_ERASED_AT_ONCE, Some(&EntrySeq(1))),
        "not the open attempt"
    );
    home.commit(first.into_iter().map(|entry| Op::ErasePayload { entry, at: at(9) }).collect());
    assert_eq!(old(&home).len(), 11, "and one behind something young");
    home.commit(old(&home).into_iter().map(|entry| Op::ErasePayload { entry, at: at(9) }).collect());
    assert_eq!(old(&home), [], "the rest is young, or stands behind much that is");
}
