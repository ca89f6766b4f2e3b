use super::*;
use crate::batch::Op;
use crate::testing::{TestHome, at, session};

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
    let home = TestHome::new();
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
    let home = TestHome::new();
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
    let home = TestHome::new();
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
    let home = TestHome::new();
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

fn said(sender: &str, text: &str) -> FleetOp {
    FleetOp::AddMessage { id: session(1), sender: sender.into(), text: text.into(), at: at(1) }
}

/// What an agent says leaves room for the guest, and what both say leaves room for people.
#[test]
fn messages_are_numbered_and_bounded_by_who_sends_them() {
    let home = TestHome::new();
    home.commit(fleet([FleetOp::Open(Box::new(case(1, "case_tk_1")))]));
    home.commit(fleet((0..MAX_AGENT_MESSAGES).map(|_| said("agent a", "hi"))));
    assert!(home.try_commit(fleet([said("agent b", "one more")])).is_err(), "all agents have one share");
    let rest = MAX_CASE_MESSAGES - RESERVED_MESSAGES - MAX_AGENT_MESSAGES;
    home.commit(fleet((0..rest).map(|_| said("guest", "hi"))));
    assert!(home.try_commit(fleet([said("guest", "one more")])).is_err());
    home.commit(fleet((0..RESERVED_MESSAGES).map(|_| said("person owner", "hi"))));
    assert!(home.try_commit(fleet([said("person owner", "one more")])).is_err());
    let read = home.store.blocking();
    let last = read.fleet_messages(session(1), MAX_CASE_MESSAGES - 1, 10).expect("reads");
    assert_eq!(last.iter().map(|message| message.n).collect::<Vec<_>>(), [MAX_CASE_MESSAGES]);
    let numbers = |before| -> Vec<u64> {
        let newest = read.newest_fleet_messages(session(1), before, 2).expect("reads");
        newest.iter().map(|message| message.n).collect()
    };
    assert_eq!(numbers(None), [MAX_CASE_MESSAGES, MAX_CASE_MESSAGES - 1]);
    assert_eq!((numbers(Some(3)), numbers(Some(1))), (vec![2, 1], vec![]));
}

#[test]
fn the_bytes_of_what_agents_say_are_bounded() {
    let home = TestHome::new();
    home.commit(fleet([FleetOp::Open(Box::new(case(1, "case_tk_1")))]));
    // Two bytes for each letter: bytes count, not letters.
    let long = "ä".repeat(MAX_CASE_MESSAGE_BYTES / 2);
    assert!(home.try_commit(fleet([said("guest", &format!("{long}x"))])).is_err());
    let most = MAX_AGENT_MESSAGE_BYTES / u64::try_from(long.len()).expect("small");
    home.commit(fleet((0..most).map(|_| said("agent a", &long))));
    assert!(home.try_commit(fleet([said("agent a", "x")])).is_err());
    home.commit(fleet([said("guest", &long), said("person owner", &long)]));
}
