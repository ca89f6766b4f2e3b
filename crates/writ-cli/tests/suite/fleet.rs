//! `writ fleet`: what a fleet's cases are, who held them and who read them, without an engine.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;
use std::sync::Arc;

use serde_json::Value;
use writ_store::batch::{Batch, Op};
use writ_store::config::StoreConfig;
use writ_store::fleet::{FleetCase, FleetHolder, FleetOp};
use writ_store::store::Store;
use writ_types::entry::{CaseChange, CaseRecord, Entry, Fact, HolderRecord};
use writ_types::id::SessionId;
use writ_types::unit::Timestamp;

#[path = "fleet/world.rs"]
mod world;

#[path = "fleet/logged.rs"]
mod logged;

#[path = "fleet/random.rs"]
mod random;

#[path = "fleet/kills.rs"]
mod kills;

#[path = "fleet/story.rs"]
mod story;

#[path = "fleet/guide.rs"]
mod guide;

#[path = "fleet/walls.rs"]
mod walls;

use super::verifier::harness;
use super::{Home, code, text};

fn at(second: i64) -> Timestamp {
    Timestamp::from_millis(1_800_000_000_000 + second * 1_000)
}

fn moved(case: SessionId, second: i64, holders: (Option<&str>, Option<&str>)) -> Op {
    noted(case, second, CaseChange::Escalated, holders, None)
}

fn read_by(case: SessionId, second: i64, person: &str) -> Op {
    noted(case, second, CaseChange::Read, (None, None), Some(person.to_owned()))
}

fn noted(
    case: SessionId,
    second: i64,
    change: CaseChange,
    (ended, began): (Option<&str>, Option<&str>),
    reader: Option<String>,
) -> Op {
    let holder = |name: &str| HolderRecord { name: name.into(), key: None, base: None, task: None };
    let record = CaseRecord {
        case: "case_tk_1".into(),
        customer: "cust_tk_1".into(),
        change,
        router: "router".into(),
        ended: ended.map(holder),
        began: began.map(holder),
        earlier: None,
        reader,
        target: String::new(),
        reason: "over the limit".into(),
    };
    let fact = Fact::CaseMoved { record: Box::new(record) };
    Op::Append(Box::new(Entry { at: at(second), session: Some(case), turn: None, turn_number: 0, fact }))
}

/// A case that a person holds.
fn refund_case() -> FleetCase {
    FleetCase {
        id: SessionId::from_parts(at(0), 1),
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
    }
}

/// Rows: SLO-053 (in part: the query) SLO-059 (in part: who holds what)
#[test]
fn the_cases_of_a_fleet_and_who_had_access_to_one_are_shown() {
    let home = Home::ready();
    let none = home.json(&["fleet", "status"]);
    assert_eq!(none["cases"].as_array().map(Vec::len), Some(0), "{none}");
    let row = refund_case();
    let case = row.id;
    let holder = FleetHolder { holder: "owner".into(), keys: None, since: at(20), until: None };
    let store = Store::open(&StoreConfig::new(home.database()), Arc::new(harness(&home))).expect("opens");
    let ops = vec![
        Op::Fleet(FleetOp::Open(Box::new(row))),
        moved(case, 10, (None, Some("refund-agent"))),
        moved(case, 20, (Some("refund-agent"), Some("owner"))),
        read_by(case, 25, "member"),
        Op::Fleet(FleetOp::BeginHolder { id: case, holder }),
        Op::Fleet(FleetOp::AddMessage {
            id: case,
            sender: "guest".into(),
            text: "501, please\u{202e}".into(),
            at: at(0),
        }),
    ];
    store.commit_blocking(Batch::synced(ops)).expect("commits");
    drop(store);
    let status = text(&home.run(&["fleet", "status"]));
    assert!(status.contains(&case.to_string()) && status.contains("held by a person"), "{status}");
    assert!(status.contains("refund") && status.contains("owner since"), "{status}");
    for name in [case.to_string(), "case_tk_1".to_owned()] {
        let shown = text(&home.run(&["fleet", "access", &name]));
        let lines: Vec<&str> = shown.lines().collect();
        let [first, second, read, proof] = lines.as_slice() else { panic!("two holders, a reader: {shown}") };
        assert!(first.contains("(escalated: over the limit): refund-agent"), "{first}");
        assert!(second.contains("to now: owner"), "{second}");
        assert!(read.contains("conversation read by member, entry "), "{read}");
        assert!(proof.starts_with("ledger verified: entries "), "{proof}");
        let json = home.json(&["fleet", "access", &name]);
        let readings = json["readings"].as_array().expect("a list");
        assert_eq!((readings.len(), &readings[0]["person"]), (1, &Value::from("member")), "{json}");
        assert_eq!(json["contradictions"].as_array().map(Vec::len), Some(0), "{json}");
    }
    assert_eq!(home.json(&["fleet", "status"])["router"], false, "the database was read");
    // What a person does is done by a router that runs; no engine is started for it.
    // Also not its conversation: that would leave no entry.
    for args in [&["messages"][..], &["take"], &["answer", "--", "hello"], &["back"], &["close"]] {
        let (verb, rest) = args.split_first().expect("a verb");
        let refused = home.run(&[&["fleet", verb, "case_tk_1"], rest].concat());
        assert_eq!(code(&refused), 10, "{verb}: {}", text(&refused));
        assert!(text(&refused).contains("no engine is running"), "{}", text(&refused));
        assert!(!text(&refused).contains("501, please"), "{}", text(&refused));
    }
    let empty = home.run(&["fleet", "answer", "case_tk_1", " "]);
    assert_eq!(code(&empty), 2, "{}", text(&empty));
    let unknown = home.run(&["fleet", "access", "case_tk_2"]);
    assert_eq!(code(&unknown), 2, "{}", text(&unknown));
}

/// Rows: SLO-059 (in part: live, and an ended task disappears)
#[test]
#[expect(clippy::disallowed_types, reason = "the test starts the binary that it tests")]
fn a_watched_fleet_is_shown_again_when_it_has_changed() {
    let home = Home::ready();
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_writ"))
        .args(["fleet", "status", "--watch", "--json"])
        .env_clear()
        .env("HOME", home.dir.path())
        .env("WRIT_HOME", home.root())
        .envs(home.env.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary starts");
    let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let mut shown = lines.map(|line| serde_json::from_str::<Value>(&line.expect("text")).expect("JSON"));
    assert_eq!(shown.next().expect("a line")["cases"], serde_json::json!([]));
    let store = Store::open(&StoreConfig::new(home.database()), Arc::new(harness(&home))).expect("opens");
    let row = refund_case();
    let (id, state) = (row.id, row.state.clone());
    store.commit_blocking(Batch::synced(vec![Op::Fleet(FleetOp::Open(Box::new(row)))])).expect("commits");
    assert_eq!(shown.next().expect("a line")["cases"][0]["reason"], "over the limit");
    let ended = FleetOp::Change { id, version: 0, state, is_open: false, at: at(30) };
    store.commit_blocking(Batch::synced(vec![Op::Fleet(ended)])).expect("commits");
    assert_eq!(shown.next().expect("a line")["cases"], serde_json::json!([]), "it has ended");
    child.kill().expect("it ran until now");
    child.wait().expect("ended");
}
