//! The task key of a turn that takes long, by a clock that the test moves.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use writ_policy::order::{OrderClaims, OrderToken};
use writ_store::batch::{Batch, Op};
use writ_testbed::clock::Hand;
use writ_testkit::model_server::{ParsedRequest, Reply, ReplyFault, ReplyGate};
use writ_types::entry::DenyReason;
use writ_types::error::Exit;
use writ_types::id::{KeyId, SessionId};
use writ_types::unit::Tokens;

use crate::harness::{BEGIN, TestEngine, keys};

/// So many minutes.
const fn minutes(count: u64) -> Duration {
    Duration::from_secs(60 * count)
}

/// A model that takes so many minutes for each answer, and remembers something each time.
fn slow(clock: Arc<Hand>, answers: &'static [u64]) -> impl FnMut(&ParsedRequest) -> Reply + Send + 'static {
    move |request| {
        let n = request.results().count();
        let Some(took) = answers.get(n) else { return Reply::text("Done.") };
        clock.go_on(minutes(*took));
        Reply::call("memory_store", json!({ "text": format!("Fact {n}.") }))
    }
}

/// What became of task keys, oldest first.
fn changes(handed: &TestEngine) -> Vec<String> {
    handed.task_keys().into_iter().map(|(_, change)| change).collect()
}

#[test]
fn a_turn_that_outlives_its_task_key_gets_one_more() {
    let handed = TestEngine::new("", |clock| slow(clock, &[13, 13, 13]));
    let (exit, said) = handed.runtime.block_on(handed.say(None, "remember it all"));
    assert_eq!((exit, said.as_str()), (Exit::Done, "Done."));
    assert_eq!(handed.clock.now(), BEGIN.plus_duration(minutes(39)), "longer than a task key lives");
    assert_eq!(changes(&handed), ["minted", "renewed"]);
    assert_eq!((handed.facts("remembered").len(), handed.denials()), (3, Vec::new()));
    handed.end();
}

/// Whoever revokes a key stops what runs under it. Here it does not hear of that: the door says so.
#[test]
fn a_revoked_task_key_is_not_renewed() {
    let gate = ReplyGate::new();
    let shut = gate.clone();
    let handed = TestEngine::new("", |_| {
        move |request: &ParsedRequest| match request.results().count() {
            0 => Reply::call("memory_store", json!({ "text": "A fact." }))
                .with_fault(ReplyFault::SlowFirstByte(shut.clone())),
            _ => Reply::text("Done."),
        }
    });
    let during = async {
        while handed.server.connections_waiting() == 0 {
            tokio::task::yield_now().await;
        }
        handed.clock.go_on(minutes(26));
        let (key, _) = handed.task_keys().pop().expect("a key");
        let revoked = Op::Revoke { id: key.to_string(), at: handed.clock.now(), expires_at: None };
        handed.store.commit(Batch::synced(vec![revoked])).await.expect("written");
        gate.open();
    };
    let said = handed.say(None, "remember it");
    let ((exit, _), ()) = handed.runtime.block_on(async { tokio::join!(said, during) });
    assert_eq!(exit, Exit::Denied);
    assert_eq!(changes(&handed), ["minted"]);
    assert_eq!(
        handed.denials(),
        [("remember", DenyReason::Revoked), ("model_call", DenyReason::Revoked)],
        "the next action, and the model that would hear of it"
    );
    assert_eq!(handed.facts("remembered").len(), 0);
    handed.end();
}

/// The session of an order that its owner has signed for so many minutes. It has the order's number.
pub(super) async fn ordered(handed: &TestEngine, lasts: u64) -> SessionId {
    let [_, _, approver] = keys();
    let kinds = ["model_call", "say", "recall", "remember"];
    let claims = OrderClaims {
        installation: handed.store.installation(),
        epoch: handed.store.blocking().epoch().expect("reads"),
        order: KeyId::from_parts(BEGIN, 9),
        name: "nightly".to_owned(),
        project: None,
        capabilities: kinds.map(|kind| (kind.to_owned(), Default::default())).into(),
        max_tokens: Tokens::new(100_000),
        max_cost: None,
        max_turns: 2,
        issued_at: BEGIN,
        expires_at: BEGIN.plus_duration(minutes(lasts)),
        approver: hex::encode(approver.verifying_key().as_bytes()),
    };
    let (order, token) = (claims.order, OrderToken::sign_claims(claims, &approver).expect("signs"));
    handed.call("orders.issue", json!({ "token": token })).await.expect("kept");
    let opened: Value = handed.call("orders.open", json!({ "order": order })).await.expect("opened");
    serde_json::from_value(opened["session"].clone()).expect("an id")
}

#[test]
fn a_task_key_ends_with_its_order_and_is_not_renewed() {
    let handed = TestEngine::new("", |clock| slow(clock, &[21]));
    let (exit, _) = handed.runtime.block_on(async {
        let session = ordered(&handed, 20).await;
        handed.say(Some(session), "remember it").await
    });
    assert_eq!(exit, Exit::Denied);
    assert_eq!(changes(&handed), ["minted"]);
    assert_eq!(
        handed.denials(),
        [("remember", DenyReason::Expired), ("model_call", DenyReason::Expired)],
        "the next action, and the model that would hear of it"
    );
    assert_eq!(handed.facts("remembered").len(), 0);
    handed.end();
}

/// Its twin: the order is in force for longer than the key. In its last minutes nothing is left to renew.
#[test]
fn a_task_key_under_an_order_is_renewed_until_the_order_ends() {
    let handed = TestEngine::new("", |clock| slow(clock, &[26, 10, 3]));
    let (exit, said) = handed.runtime.block_on(async {
        let session = ordered(&handed, 40).await;
        handed.say(Some(session), "remember it").await
    });
    assert_eq!((exit, said.as_str()), (Exit::Done, "Done."));
    assert_eq!(changes(&handed), ["minted", "renewed"]);
    assert_eq!((handed.facts("remembered").len(), handed.denials()), (3, Vec::new()));
    handed.end();
}
