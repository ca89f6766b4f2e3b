//! Approvals of agents that are folders: one key for each version, for as long as it is good.

use std::time::Duration;

use serde_json::{Value, json};
use writ_inspect::scope::Dimension;
use writ_policy::keys::grants::Grants;
use writ_policy::keys::{self as tokens, BaseClaims, KeyToken};
use writ_runtime::agent_records::AgentHistory;
use writ_types::action::ActionKind;
use writ_types::digest::Digest;
use writ_types::entry::AgentChange;
use writ_types::error::Report;
use writ_types::id::KeyId;
use writ_types::unit::Timestamp;

use crate::harness::{BEGIN, TestEngine, keys};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The base key of a folder, good for 30 days.
fn key_for(engine: &TestEngine, n: u128, folder: &str) -> KeyToken {
    let [root, _, _] = keys();
    let claims = BaseClaims {
        key: KeyId::from_parts(BEGIN, n),
        installation: engine.store.installation(),
        epoch: engine.store.blocking().epoch().expect("reads"),
        agent: "refund-agent".to_owned(),
        policy: Digest::of_bytes(folder.as_bytes()),
        expires_at: BEGIN.plus_duration(DAY * 30),
        grants: Grants::default().allow_kind(ActionKind::Operate, [(Dimension::Name, "refund")]),
    };
    tokens::mint_base(&claims, &root).expect("minted")
}

async fn note(engine: &TestEngine, method: &str, token: &KeyToken, version: &str) -> Result<Value, Report> {
    engine.call(method, json!({ "token": token, "version": version })).await
}

/// Returns the base key that a task key of a case rests on.
async fn task_of(engine: &TestEngine, base: &KeyToken, now: Timestamp) -> Result<Value, Report> {
    let document = json!({ "task_id": "t", "customer_token": "c", "case_token": "k", "granted_by": "router",
        "expires": now.plus_duration(Duration::from_secs(600)).to_string() });
    let minted = engine.call("keys.mint", json!({ "base": base, "document": document })).await?;
    Ok(minted["base"].clone())
}

/// Rows: SLO-010 SLO-011
#[test]
fn tasks_of_all_weeks_rest_on_the_key_of_their_version_until_it_ends() {
    let engine = TestEngine::new("", |_| |_: &_| writ_testkit::model_server::Reply::text("Done."));
    engine.runtime.block_on(async {
        let (first, second) = (key_for(&engine, 1, "one"), key_for(&engine, 2, "two"));
        let refused = |said: Result<Value, Report>, why: &str| {
            let report = said.expect_err(why);
            assert!(report.code == "key.refused" && report.inside.contains(why), "{report:?}");
        };
        refused(note(&engine, "agents.deploy", &first, "1").await, "no person has approved this key");
        let noted = note(&engine, "agents.bless", &first, "1").await.expect("approved");
        assert_eq!(noted["folder"], json!(Digest::of_bytes(b"one")));
        assert_eq!(note(&engine, "agents.bless", &first, "1").await.expect("the same")["key"], noted["key"]);
        refused(note(&engine, "agents.bless", &second, "1").await, "has a key already");
        refused(note(&engine, "agents.bless", &key_for(&engine, 3, "one"), "1").await, "has a key already");
        note(&engine, "agents.deploy", &first, "1").await.expect("deployed");
        refused(note(&engine, "agents.deploy", &second, "1").await, "no person has approved this key");

        let before = task_of(&engine, &first, engine.clock.now()).await.expect("minted");
        engine.clock.go_on(DAY * 7);
        let after = task_of(&engine, &first, engine.clock.now()).await.expect("minted");
        assert_eq!((&before, &after), (&noted["key"], &noted["key"]), "a week apart, under one key");

        let newer = note(&engine, "agents.bless", &second, "2").await.expect("approved");
        assert_ne!(newer["key"], noted["key"]);
        note(&engine, "agents.deploy", &second, "2").await.expect("deployed");
        engine.clock.go_on(DAY * 24);
        refused(note(&engine, "agents.deploy", &second, "2").await, "expired");
        refused(task_of(&engine, &first, engine.clock.now()).await, "expired");

        let history = AgentHistory::read_ledger(&engine.store, Some("refund-agent")).await.expect("reads").0;
        let changes: Vec<(AgentChange, &str)> =
            history.iter().map(|entry| (entry.record.change, entry.record.version.as_str())).collect();
        let (blessed, deployed) = (AgentChange::Blessed, AgentChange::Deployed);
        assert_eq!(changes, [(blessed, "1"), (deployed, "1"), (blessed, "2"), (deployed, "2")]);
        assert_eq!(history[0].record.hash, Digest::of_bytes(first.as_bytes()));
        let other = AgentHistory::read_ledger(&engine.store, Some("refund")).await.expect("reads").0;
        assert!(other.is_empty(), "a part of a name is no name");
    });
    engine.end();
}
