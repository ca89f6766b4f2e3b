//! `writ fleet`: what a fleet's cases are and who held them, without an engine.

use std::sync::Arc;

use writ_store::batch::{Batch, Op};
use writ_store::config::StoreConfig;
use writ_store::fleet::{FleetCase, FleetHolder, FleetOp};
use writ_store::store::Store;
use writ_types::entry::{CaseChange, CaseRecord, Entry, Fact, HolderRecord};
use writ_types::id::SessionId;
use writ_types::unit::Timestamp;

#[path = "fleet/world.rs"]
mod world;

#[path = "fleet/random.rs"]
mod random;

#[path = "fleet/kills.rs"]
mod kills;

#[path = "fleet/story.rs"]
mod story;

use super::verifier::harness;
use super::{Home, code, text};

fn at(second: i64) -> Timestamp {
    Timestamp::from_millis(1_800_000_000_000 + second * 1_000)
}

fn moved(case: SessionId, second: i64, (ended, began): (Option<&str>, Option<&str>)) -> Op {
    let holder = |name: &str| HolderRecord { name: name.into(), key: None, base: None, task: None };
    let record = CaseRecord {
        case: "case_tk_1".into(),
        customer: "cust_tk_1".into(),
        change: CaseChange::Escalated,
        router: "router".into(),
        ended: ended.map(holder),
        began: began.map(holder),
        earlier: None,
        target: String::new(),
        reason: "over the limit".into(),
    };
    let fact = Fact::CaseMoved { record: Box::new(record) };
    Op::Append(Box::new(Entry { at: at(second), session: Some(case), turn: None, turn_number: 0, fact }))
}

/// Rows: SLO-053 (in part: the query) SLO-059 (in part: who holds what)
#[test]
fn the_cases_of_a_fleet_and_who_had_access_to_one_are_shown() {
    let home = Home::ready();
    let none = home.json(&["fleet", "status"]);
    assert_eq!(none["cases"].as_array().map(Vec::len), Some(0), "{none}");
    let case = SessionId::from_parts(at(0), 1);
    let row = FleetCase {
        id: case,
        case_token: "case_tk_1".into(),
        customer_token: "cust_tk_1".into(),
        fingerprint: String::new(),
        capability: "refund".into(),
        is_open: true,
        version: 0,
        state: serde_json::json!({
            "name": "person", "holder": "owner", "key": null, "target": null, "lost": [], "holders": 1,
            "earlier": null, "reason": "over the limit",
        })
        .to_string(),
        opened_at: at(0),
        changed_at: at(0),
    };
    let holder = FleetHolder { holder: "owner".into(), keys: None, since: at(20), until: None };
    let store = Store::open(&StoreConfig::new(home.database()), Arc::new(harness(&home))).expect("opens");
    let ops = vec![
        Op::Fleet(FleetOp::Open(Box::new(row))),
        moved(case, 10, (None, Some("refund-agent"))),
        moved(case, 20, (Some("refund-agent"), Some("owner"))),
        Op::Fleet(FleetOp::BeginHolder { id: case, holder }),
    ];
    store.commit_blocking(Batch::synced(ops)).expect("commits");
    drop(store);
    let status = text(&home.run(&["fleet", "status"]));
    assert!(status.contains(&case.to_string()) && status.contains("held by a person"), "{status}");
    assert!(status.contains("refund") && status.contains("owner since"), "{status}");
    for name in [case.to_string(), "case_tk_1".to_owned()] {
        let shown = text(&home.run(&["fleet", "access", &name]));
        let lines: Vec<&str> = shown.lines().collect();
        let [first, second] = lines.as_slice() else { panic!("two holders: {shown}") };
        assert!(first.contains("(escalated: over the limit): refund-agent"), "{first}");
        assert!(second.contains("to now: owner"), "{second}");
        let json = home.json(&["fleet", "access", &name]);
        assert_eq!(json["contradictions"].as_array().map(Vec::len), Some(0), "{json}");
    }
    let unknown = home.run(&["fleet", "access", "case_tk_2"]);
    assert_eq!(code(&unknown), 2, "{}", text(&unknown));
}
