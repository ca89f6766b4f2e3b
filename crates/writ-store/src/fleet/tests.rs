use super::*;
use crate::batch::Op;
use crate::testing::{Home, at, session};

fn case(n: u128, token: &str) -> FleetCase {
    FleetCase {
        id: session(n),
        case_token: token.into(),
        customer_token: "cust_tk_1".into(),
        fingerprint: "c1".into(),
        capability: "refund".into(),
        is_open: true,
        version: 0,
        state: "{}".into(),
        opened_at: at(0),
        changed_at: at(0),
    }
}

fn holder(name: &str, since: i64) -> FleetHolder {
    let keys = HolderKeys {
        key: KeyId::from_parts(at(since), 1),
        ends_at: at(since + 100),
        base: Digest::of_bytes(b"base"),
        task: Digest::of_bytes(name.as_bytes()),
    };
    FleetHolder { holder: name.into(), keys: Some(keys), since: at(since), until: None }
}

fn fleet(ops: impl IntoIterator<Item = FleetOp>) -> Vec<Op> {
    ops.into_iter().map(Op::Fleet).collect()
}

fn begin(name: &str, since: i64) -> FleetOp {
    FleetOp::BeginHolder { id: session(1), holder: holder(name, since) }
}

fn change(version: u64, is_open: bool) -> FleetOp {
    FleetOp::Change { id: session(1), version, state: "changed".into(), is_open, at: at(9) }
}

/// Rows: SLO-053 (in part: what the database refuses)
#[test]
fn a_second_holder_is_refused_and_a_batch_with_one_leaves_nothing() {
    let home = Home::new();
    home.commit(fleet([FleetOp::Open(Box::new(case(1, "case_tk_1"))), begin("a", 1)]));
    assert!(home.try_commit(fleet([change(0, true), begin("b", 2)])).is_err());
    let read = home.store.blocking();
    assert_eq!(read.fleet_case(session(1)).expect("reads"), Some(case(1, "case_tk_1")), "nothing happened");
    home.commit(fleet([FleetOp::EndHolder { id: session(1), at: at(5) }, begin("b", 5)]));
    assert!(home.try_commit(fleet([begin("c", 6)])).is_err());
    let home = home.reopened();
    let ended = FleetHolder { until: Some(at(5)), ..holder("a", 1) };
    let holders = home.store.blocking().fleet_holders(session(1)).expect("reads");
    assert_eq!(holders, [ended, holder("b", 5)]);
}

#[test]
fn a_change_on_an_old_view_is_refused_and_none_follows_the_end() {
    let home = Home::new();
    home.commit(fleet([FleetOp::Open(Box::new(case(1, "case_tk_1")))]));
    home.commit(fleet([change(0, true)]));
    assert!(home.try_commit(fleet([change(0, true)])).is_err(), "another came first");
    home.commit(fleet([change(1, false)]));
    assert!(home.try_commit(fleet([change(2, true)])).is_err(), "it has ended");
    let message =
        FleetOp::AddMessage { id: session(1), sender: "guest".into(), text: "hi".into(), at: at(9) };
    assert!(home.try_commit(fleet([message])).is_err(), "it has ended");
    assert!(home.store.blocking().open_fleet_cases(None, 10).expect("reads").is_empty());
}

#[test]
fn a_token_has_one_open_case_and_may_have_another_after_it() {
    let home = Home::new();
    home.commit(fleet([FleetOp::Open(Box::new(case(1, "case_tk_1")))]));
    assert!(home.try_commit(fleet([FleetOp::Open(Box::new(case(2, "case_tk_1")))])).is_err());
    home.commit(fleet([change(0, false)]));
    home.commit(fleet([FleetOp::Open(Box::new(case(2, "case_tk_1")))]));
    home.commit(fleet([FleetOp::Prune { before: at(10) }]));
    assert_eq!(home.store.blocking().fleet_case(session(1)).expect("reads"), None, "pruned");
    let open = home.store.blocking().open_fleet_cases(None, 10).expect("reads");
    assert_eq!(open, [case(2, "case_tk_1")], "what is open stays");
}

/// The proxy may be away while a case ends, and the same customer may have opened the case again since.
#[test]
fn cases_that_ended_are_listed_until_the_proxy_has_closed_them() {
    let home = Home::new();
    home.commit(fleet([FleetOp::Open(Box::new(case(1, "case_tk_1")))]));
    let read = home.store.blocking();
    assert_eq!(read.ended_at_proxy(10).expect("reads"), [], "it is open");
    assert_eq!(read.open_case_of("case_tk_1").expect("reads"), Some(case(1, "case_tk_1")));
    home.commit(fleet([FleetOp::LeaveProxy { id: session(1) }]));
    home.commit(fleet([change(0, false)]));
    let ended: Vec<SessionId> = read.ended_at_proxy(10).expect("reads").iter().map(|case| case.id).collect();
    assert_eq!(ended, [session(1)], "what is open does not leave");
    assert_eq!(read.open_case_of("case_tk_1").expect("reads"), None);
    home.commit(fleet([FleetOp::LeaveProxy { id: session(1) }]));
    assert_eq!(read.ended_at_proxy(10).expect("reads"), []);
}

#[test]
fn messages_are_numbered_and_bounded() {
    let home = Home::new();
    home.commit(fleet([FleetOp::Open(Box::new(case(1, "case_tk_1")))]));
    let message = |text: &str| FleetOp::AddMessage {
        id: session(1),
        sender: "guest".into(),
        text: text.to_owned(),
        at: at(1),
    };
    home.commit(fleet((0..MAX_CASE_MESSAGES).map(|_| message("hi"))));
    assert!(home.try_commit(fleet([message("one more")])).is_err());
    let last = home.store.blocking().fleet_messages(session(1), MAX_CASE_MESSAGES - 1, 10).expect("reads");
    assert_eq!(last.iter().map(|message| message.n).collect::<Vec<_>>(), [MAX_CASE_MESSAGES]);
    assert!(home.try_commit(fleet([message(&"x".repeat(MAX_CASE_MESSAGE_BYTES + 1))])).is_err());
}
