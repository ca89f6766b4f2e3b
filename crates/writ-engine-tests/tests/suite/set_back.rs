//! A clock that was set back: what has ended does not begin again.

use std::time::Duration;

use serde_json::{Value, json};
use writ_inspect::scope::Dimension;
use writ_policy::approval::{ApprovalClaims, ApprovalToken, Approver, SignedAnswer};
use writ_policy::keys::grants::Grants;
use writ_policy::keys::{self as tokens, BaseClaims, KeyToken};
use writ_policy::order::OrderError;
use writ_runtime::config::APPROVAL_TTL;
use writ_runtime::engine::{Answer, Answered};
use writ_testkit::model_server::{ParsedRequest, Reply};
use writ_types::action::ActionKind;
use writ_types::digest::Digest;
use writ_types::entry::{ApprovalScope, Decision, DenyReason, Fact};
use writ_types::error::{Exit, Report};
use writ_types::frame::Card;
use writ_types::id::{AskId, KeyId};
use writ_types::unit::Timestamp;

use crate::harness::{BEGIN, OWNER, TestEngine, keys};
use crate::renewed::ordered;

/// Every memory is asked for: the cheapest action to ask about.
const ASK_REMEMBER: &str = r#"@id("ask-remember") @ask("Every memory is asked for.")
forbid (principal, action == Action::"remember", resource);"#;

/// So many minutes after the beginning.
fn minute(count: u64) -> Timestamp {
    BEGIN.plus_duration(Duration::from_secs(60 * count))
}

/// A base key for somebody's own agent, signed elsewhere.
fn base(handed: &TestEngine, ends: Timestamp) -> KeyToken {
    let [root, _, _] = keys();
    let claims = BaseClaims {
        key: KeyId::from_parts(BEGIN, 7),
        installation: handed.store.installation(),
        epoch: handed.store.blocking().epoch().expect("reads"),
        agent: "refund-agent".to_owned(),
        policy: Digest::of_bytes(b"rules"),
        expires_at: ends,
        grants: Grants::default().allow_kind(ActionKind::Recall, [(Dimension::Memory, "*")]),
    };
    tokens::mint_base(&claims, &root).expect("minted")
}

/// Remembers something when it is asked to.
fn remembering(request: &ParsedRequest) -> Reply {
    match request.results().next() {
        None => Reply::call("memory_store", json!({ "text": "A fact." })),
        Some(_) => Reply::text("Done."),
    }
}

/// The ask that waits, and when it ends.
fn asked(handed: &TestEngine) -> (AskId, Timestamp) {
    let Some(Fact::Asked { ask, expires_at, .. }) = handed.facts("asked").pop() else {
        panic!("nothing was asked")
    };
    (ask, expires_at)
}

pub(crate) async fn approve(handed: &TestEngine, ask: AskId) -> Result<Answered, Report> {
    let answer = Answer {
        decision: Decision::Approve,
        scope: ApprovalScope::Once,
        signed: None,
        shown: None,
        reason: String::new(),
    };
    handed.engine.answer(OWNER, ask, answer).await
}

fn code(said: Result<Value, Report>) -> Result<(), String> {
    said.map(|_| ()).map_err(|report| report.code)
}

#[test]
fn a_key_that_was_given_out_does_not_begin_again_with_a_clock_that_was_set_back() {
    let handed = TestEngine::new("", |_| remembering);
    handed.runtime.block_on(async {
        let base = base(&handed, minute(600));
        handed.call("keys.issued", json!({ "token": base })).await.expect("noted");
        let mut minted = Vec::new();
        for ends in [minute(20), minute(25)] {
            let document = json!({ "task_id": "t", "customer_token": "c", "case_token": "k",
                "granted_by": "router", "expires": ends.to_string() });
            let key = handed.call("keys.mint", json!({ "base": base, "document": document })).await;
            minted.push(key.expect("minted")["token"].clone());
        }
        let renew = |token: &Value| handed.call("keys.renew", json!({ "base": base, "token": token }));
        let refused = || Err("key.refused".to_owned());
        handed.clock.go_on(Duration::from_secs(21 * 60));
        assert_eq!(code(renew(&minted[0]).await), refused(), "it has ended");
        handed.clock.set_back(Duration::from_secs(3 * 60));
        assert_eq!(handed.clock.now(), minute(18));
        assert_eq!(code(renew(&minted[0]).await), refused(), "and has not begun again");
        assert_eq!(code(renew(&minted[1]).await), Ok(()), "its twin was good all the time");
        handed.clock.go_on(Duration::from_secs(5 * 60));
        assert_eq!(handed.clock.now(), minute(23));
        assert_eq!(code(renew(&minted[1]).await), refused(), "and ends when its time is over");
    });
    handed.end();
}

/// It was never used, so nobody has noted when.
#[test]
fn an_order_that_has_ended_does_not_begin_again_with_a_clock_that_was_set_back_and_can_be_revoked() {
    let handed = TestEngine::new("", |_| remembering);
    handed.runtime.block_on(async {
        let session = ordered(&handed, 20).await;
        let order: KeyId = session.to_string().parse().expect("an id");
        let open = || handed.call("orders.open", json!({ "order": order }));
        handed.clock.go_on(Duration::from_secs(10 * 60));
        assert_eq!(code(open().await), Ok(()), "twin: in time");
        handed.clock.go_on(Duration::from_secs(11 * 60));
        let ended = Err("order.not_in_force".to_owned());
        assert_eq!(code(open().await), ended);
        handed.clock.set_back(Duration::from_secs(10 * 60));
        assert_eq!(handed.clock.now(), minute(11));
        assert_eq!(code(open().await), ended);
        let revoked = handed.call("keys.revoke", json!({ "key": order })).await.expect("revoked");
        assert_eq!((&revoked["role"], &revoked["state"]), (&json!("order"), &json!("revoked")));
        let listed = handed.call("orders.list", json!({})).await.expect("listed");
        assert_eq!(listed["orders"][0]["state"], OrderError::Revoked.to_string());
    });
    handed.end();
}

/// What the command line signs ends an hour after the time that it begins with.
#[test]
fn what_is_signed_while_the_clock_is_behind_counts_from_the_time_that_the_engine_tells() {
    let handed = TestEngine::new(ASK_REMEMBER, |_| remembering);
    handed.runtime.block_on(async {
        assert_eq!(handed.say(None, "remember it").await.0, Exit::Waiting);
        let (ask, _) = asked(&handed);
        let behind =
            || async { handed.call("status", json!({})).await.expect("told")["clock_behind_secs"].clone() };
        assert_eq!(behind().await, 0);
        handed.clock.go_on(Duration::from_secs(120 * 60));
        handed.clock.set_back(Duration::from_secs(120 * 60));
        assert_eq!(behind().await, 119 * 60, "a minute is as with any two clocks");
        let shown = handed.call("approvals.show", json!({ "ask": ask })).await.expect("shown");
        let card: Card = serde_json::from_value(shown).expect("a card");
        let early = handed.engine.answer(OWNER, ask.clone(), signed(&handed, &card, BEGIN)).await;
        assert_eq!(
            early.map(|said| said.state).map_err(|report| report.code),
            Err("approval.invalid".to_owned())
        );
        let said = handed.engine.answer(OWNER, ask, signed(&handed, &card, minute(119))).await;
        assert_eq!(said.expect("answered").state, "applied");
    });
    assert_eq!(handed.facts("remembered").len(), 1);
    handed.end();
}

/// A yes with the approver's key, for an hour from then on.
pub(crate) fn signed(handed: &TestEngine, card: &Card, from: Timestamp) -> Answer {
    let [_, _, approver] = keys();
    let claims = ApprovalClaims {
        installation: handed.store.installation(),
        epoch: handed.store.blocking().epoch().expect("reads"),
        ask: card.ask_id.clone(),
        decision: Decision::Approve,
        prepared: card.prepared,
        shown: card.shown_hash,
        nonce: format!("{:032x}", from.as_millis()),
        issued_at: from,
        expires_at: from.plus_duration(Duration::from_secs(60 * 60)),
        approver: Approver::Key { public: hex::encode(approver.verifying_key().as_bytes()) },
        task: None,
        values: false,
        host: None,
    };
    let token = ApprovalToken::sign_claims(claims, &approver).expect("signs");
    Answer {
        decision: Decision::Approve,
        scope: ApprovalScope::Once,
        signed: Some(SignedAnswer::Token(Box::new(token))),
        shown: None,
        reason: String::new(),
    }
}

#[test]
fn an_approval_of_what_has_ended_does_not_count_with_a_clock_that_was_set_back() {
    let handed = TestEngine::new(ASK_REMEMBER, |_| remembering);
    handed.runtime.block_on(async {
        assert_eq!(handed.say(None, "remember it").await.0, Exit::Waiting);
        let (ask, expires_at) = asked(&handed);
        assert_eq!(expires_at, BEGIN.plus_duration(APPROVAL_TTL));
        let long = APPROVAL_TTL + Duration::from_secs(120);
        handed.clock.go_on(long);
        // Whoever asks for anything lets the engine see how late it is.
        handed.call("keys.list", json!({})).await.expect("answered");
        handed.clock.set_back(long);
        let said = approve(&handed, ask).await;
        assert!(said.is_err(), "{said:?}");
    });
    assert_eq!(handed.facts("remembered").len(), 0);
    handed.end();
}

/// It goes on working: what is made then is good by the ledger's time, too.
#[test]
fn an_engine_that_starts_with_a_clock_that_was_set_back_goes_by_its_ledger() {
    let handed = TestEngine::after(&[minute(120), minute(1)], ASK_REMEMBER, |_| remembering);
    handed.runtime.block_on(async {
        for (ends, noted) in [(60, Err("key.refused".to_owned())), (180, Ok(()))] {
            let token = base(&handed, minute(ends));
            let said = handed.call("keys.issued", json!({ "token": token })).await;
            assert_eq!(said.map(|_| ()).map_err(|report| report.code), noted, "{ends}");
        }
        assert_eq!(handed.say(None, "remember it").await.0, Exit::Waiting);
        let (ask, expires_at) = asked(&handed);
        assert_eq!(expires_at, minute(119).plus_duration(APPROVAL_TTL));
        assert_eq!(approve(&handed, ask).await.expect("answered").state, "applied");
    });
    assert_eq!(
        (handed.facts("remembered").len(), handed.denials()),
        (1, vec![("operate", DenyReason::Expired)])
    );
    handed.end();
}
