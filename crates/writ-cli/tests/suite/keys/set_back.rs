//! A clock that was set back: what has ended does not begin again.

use std::time::Duration;

use serde_json::{Value, json};
use writ_policy::keys::grants::Grants;
use writ_policy::keys::{self as tokens, BaseClaims, Token};
use writ_policy::scope::Dimension;
use writ_runtime::config::APPROVAL_TTL;
use writ_runtime::engine::{Answer, Answered};
use writ_testkit::model_server::{ParsedRequest, Reply};
use writ_types::action::ActionKind;
use writ_types::digest::Digest;
use writ_types::entry::{ApprovalScope, Decision, DenyReason, Fact};
use writ_types::error::{Exit, Report};
use writ_types::id::{AskId, KeyId};
use writ_types::unit::Timestamp;

use crate::handed::{BEGIN, Handed, OWNER, keys};

/// Every memory is asked for: the cheapest action to ask about.
const ASK_REMEMBER: &str = r#"@id("ask-remember") @ask("Every memory is asked for.")
forbid (principal, action == Action::"remember", resource);"#;

/// So many minutes after the beginning.
fn minute(count: u64) -> Timestamp {
    BEGIN.plus(Duration::from_secs(60 * count))
}

/// A base key for somebody's own agent, signed elsewhere.
fn base(handed: &Handed, ends: Timestamp) -> Token {
    let [root, _, _] = keys();
    let claims = BaseClaims {
        key: KeyId::from_parts(BEGIN, 7),
        installation: handed.store.installation(),
        epoch: handed.store.epoch().expect("reads"),
        agent: "refund-agent".to_owned(),
        policy: Digest::of(b"rules"),
        expires_at: ends,
        grants: Grants::default().allow(ActionKind::Recall, [(Dimension::Memory, "*")]),
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
fn asked(handed: &Handed) -> (AskId, Timestamp) {
    let Some(Fact::Asked { ask, expires_at, .. }) = handed.facts("asked").pop() else {
        panic!("nothing was asked")
    };
    (ask, expires_at)
}

async fn approve(handed: &Handed, ask: AskId) -> Result<Answered, Report> {
    let answer = Answer {
        decision: Decision::Approve,
        scope: ApprovalScope::Once,
        signed: None,
        shown: None,
        reason: String::new(),
    };
    handed.engine.answer(OWNER, ask, answer).await
}

#[test]
fn a_key_that_was_given_out_does_not_begin_again_with_a_clock_that_was_set_back() {
    let handed = Handed::new("", |_| remembering);
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
        let code = |said: Result<Value, Report>| said.map(|_| ()).map_err(|report| report.code);
        let refused = || Err("key.refused".to_owned());
        handed.clock.go_on(Duration::from_secs(21 * 60));
        assert_eq!(code(renew(&minted[0]).await), refused(), "it has ended");
        handed.clock.set_back(Duration::from_secs(3 * 60));
        assert_eq!(handed.clock.now(), minute(18));
        assert_eq!(code(renew(&minted[0]).await), refused(), "and has not begun again");
        assert_eq!(code(renew(&minted[1]).await), Ok(()), "its twin was good all the time");
    });
    handed.end();
}

#[test]
fn an_approval_of_what_has_ended_does_not_count_with_a_clock_that_was_set_back() {
    let handed = Handed::new(ASK_REMEMBER, |_| remembering);
    handed.runtime.block_on(async {
        assert_eq!(handed.say(None, "remember it").await.0, Exit::Waiting);
        let (ask, expires_at) = asked(&handed);
        assert_eq!(expires_at, BEGIN.plus(APPROVAL_TTL));
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
    let handed = Handed::after(&[minute(120), minute(1)], ASK_REMEMBER, |_| remembering);
    handed.runtime.block_on(async {
        for (ends, noted) in [(60, Err("key.refused".to_owned())), (180, Ok(()))] {
            let token = base(&handed, minute(ends));
            let said = handed.call("keys.issued", json!({ "token": token })).await;
            assert_eq!(said.map(|_| ()).map_err(|report| report.code), noted, "{ends}");
        }
        assert_eq!(handed.say(None, "remember it").await.0, Exit::Waiting);
        let (ask, expires_at) = asked(&handed);
        assert_eq!(expires_at, minute(119).plus(APPROVAL_TTL));
        assert_eq!(approve(&handed, ask).await.expect("answered").state, "approved");
    });
    assert_eq!(
        (handed.facts("remembered").len(), handed.denials()),
        (1, vec![("operate", DenyReason::Expired)])
    );
    handed.end();
}
