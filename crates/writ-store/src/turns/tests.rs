//! Turn numbers, events and open intents.

use super::*;
use crate::batch::Op;
use crate::testing::*;

fn close(n: u128) -> Op {
    Op::CloseTurn { turn: turn(n), at: at(5), state: "finished".to_owned() }
}

/// Rows: SIL-036
#[test]
fn turn_numbers_go_on_after_a_restart() {
    let home = TestHome::new().with_session(1);
    home.append(1);
    for n in 1..=5 {
        assert_eq!(home.store.blocking().next_turn_number(session(1)), Ok(n));
        home.commit(vec![open_turn(1, u128::from(n), n), close(u128::from(n))]);
    }
    let home = home.reopened();
    assert_eq!(home.store.blocking().next_turn_number(session(1)), Ok(6));
    let error = home.try_commit(vec![open_turn(1, 9, 1)]);
    assert_eq!(error, Err(Conflict::TurnNumber { session: session(1), expected: 6 }.into()));
    home.commit(vec![open_turn(1, 6, 6)]);
}

/// A turn has one label of each kind, from its begin on; an open one gets others, and a row cannot hold any that is none.
///
/// Rows: SIL-348
#[test]
fn a_turn_has_one_register_and_one_mode_and_no_others() {
    let home = TestHome::new().with_session(1);
    let labels = |n| {
        let row = home.store.blocking().turn(turn(n)).expect("reads").expect("is there");
        (row.register, row.mode)
    };
    let begun = (InteractionRegister::Exploration, InteractionMode::DefaultAndOffer);
    for (n, register) in (1_u128..).zip(InteractionRegister::ALL) {
        for mode in InteractionMode::ALL {
            let label = Op::LabelTurn { turn: turn(n), register, mode };
            if mode == InteractionMode::DefaultAndOffer {
                home.commit(vec![open_turn(1, n, n.try_into().expect("small"))]);
                assert_eq!(labels(n), begun);
            }
            home.commit(vec![label]);
            assert_eq!(labels(n), (register, mode));
        }
        home.commit(vec![close(n)]);
    }
    let late = Op::LabelTurn {
        turn: turn(1),
        register: InteractionRegister::Status,
        mode: InteractionMode::ActAndReport,
    };
    assert_eq!(home.try_commit(vec![late]), Err(Conflict::TurnClosed(turn(1)).into()));
    let database = Connection::open(home.path()).expect("opens");
    for (column, wrong) in [
        ("interaction_register", "'planning'"),
        ("interaction_register", "''"),
        ("interaction_mode", "'ask_always'"),
        ("interaction_mode", "NULL"),
    ] {
        let refused = database.execute(&format!("UPDATE turn SET {column} = {wrong}"), []);
        assert!(refused.is_err(), "{column} = {wrong}");
    }
}

/// Turns that begin at once are stored in the order in which they are ready; the next number stays above all of them.
#[test]
fn a_turn_is_stored_after_one_with_a_higher_number_and_never_twice() {
    let home = TestHome::new().with_session(1);
    home.commit(vec![open_turn(1, 1, 1)]);
    home.commit(vec![open_turn(1, 3, 3)]);
    assert_eq!(home.store.blocking().next_turn_number(session(1)), Ok(4));
    home.commit(vec![open_turn(1, 2, 2)]);
    assert_eq!(home.store.blocking().next_turn_number(session(1)), Ok(4));
    for number in [0, 2, 3, 3 + MAX_TURNS_AHEAD + 1] {
        let refused = home.try_commit(vec![open_turn(1, 9, number)]);
        let conflict = Conflict::TurnNumber { session: session(1), expected: 4 };
        assert_eq!(refused, Err(conflict.into()), "{number}");
    }
}

#[test]
fn events_are_numbered_without_gaps_and_survive() {
    let home = TestHome::new().with_session(1);
    home.commit(vec![open_turn(1, 1, 1)]);
    let event = |n| Op::TurnEvent { turn: turn(1), n, event: format!("{{\"n\":{n}}}") };
    home.commit(vec![event(0), phase("between"), event(1)]);
    let gap = home.try_commit(vec![event(3)]);
    assert_eq!(gap, Err(Conflict::TurnEvent { turn: turn(1), expected: 2 }.into()));
    let gap = home.try_commit(vec![event(2), event(4)]);
    assert_eq!(gap, Err(Conflict::TurnEvent { turn: turn(1), expected: 3 }.into()));
    let twice = home.try_commit(vec![event(2), event(2)]);
    assert_eq!(twice, Err(Conflict::TurnEvent { turn: turn(1), expected: 3 }.into()));
    let late = home.try_commit(vec![event(2), close(1), event(3)]);
    assert_eq!(late, Err(Conflict::TurnClosed(turn(1)).into()));
    let home = home.reopened();
    let open = home.store.blocking().unfinished_turns().expect("reads");
    assert_eq!(open.iter().map(|found| (found.id, found.events)).collect::<Vec<_>>(), [(turn(1), 2)]);
    assert_eq!(
        home.store.blocking().unfinished_turn_of(message(1)).expect("reads").map(|t| t.id),
        Some(turn(1))
    );
    assert_eq!(
        home.store.blocking().turn_events(turn(1)),
        Ok(vec![r#"{"n":0}"#.to_owned(), r#"{"n":1}"#.to_owned()])
    );
    home.commit(vec![close(1)]);
    assert_eq!(home.try_commit(vec![event(2)]), Err(Conflict::TurnClosed(turn(1)).into()));
    assert_eq!(home.try_commit(vec![close(1)]), Err(Conflict::TurnClosed(turn(1)).into()));
    assert_eq!(home.store.blocking().unfinished_turns(), Ok(Vec::new()));
    assert_eq!(
        home.store.blocking().turn(turn(1)).expect("reads").map(|t| t.state),
        Some("finished".to_owned())
    );
}

#[test]
fn an_intent_is_open_until_its_outcome() {
    let home = TestHome::new().with_session(1);
    home.commit(vec![Op::Append(Box::new(intent(1))), Op::Append(Box::new(intent(2)))]);
    home.commit(vec![outcome(1)]);
    let home = home.reopened();
    let open = home.store.blocking().open_intents().expect("reads");
    let expected = OpenIntent { attempt: attempt(2), seq: EntrySeq(1), entry: Some(intent(2)) };
    assert_eq!(open, [expected]);
    assert_eq!(home.try_commit(vec![outcome(1)]), Err(Conflict::IntentClosed(attempt(1)).into()));
    assert!(home.try_commit(vec![Op::Append(Box::new(intent(1)))]).is_err(), "an attempt is begun once");
    home.commit(vec![outcome(99)]);
    assert_eq!(home.store.blocking().ledger_size(), Ok(4), "a simulated outcome has no intent");
}
