//! Case 6, forged tokens: answers that are signed by somebody else, for something else, or not at all. Keys are
//! not accepted from outside in this version; forged ones are shown in `writ-policy`.

use std::os::unix::fs::PermissionsExt as _;

use ed25519_dalek::{Signer as _, SigningKey};
use serde_json::{Value, json};
use writ_policy::approval::{ApprovalClaims, ApprovalToken, Approver};
use writ_testkit::model_server::{ParsedRequest, Reply};
use writ_types::entry::Decision;
use writ_types::frame::Card;
use writ_types::id::InstallationId;
use writ_types::unit::Timestamp;

use crate::engine::{Engine, Link};
use crate::turns::Bench;
use crate::{Home, code, text};

/// Every memory is asked for: the cheapest action to ask about.
const ASK_REMEMBER: &str = r#"@id("ask-remember") @ask("Every memory is asked for.")
forbid (principal, action == Action::"remember", resource);"#;

/// A home whose agent asks for one memory, its engine, and the ask.
fn asking() -> (Bench, Engine, Card) {
    let bench = Bench::new("openai", |request: &ParsedRequest| {
        if request.results().count() == 0 {
            return Reply::call("memory_store", json!({ "text": "remember the heron" }));
        }
        Reply::text("It waits.")
    });
    std::fs::write(bench.home.root().join("policies/ask.cedar"), ASK_REMEMBER).expect("written");
    let engine = Engine::start(&bench.home, &[]).expect("ready");
    let mut link = Link::open(&bench.home).expect("connects");
    link.join(None, None).expect("joined");
    assert_eq!(link.ask("remember it", "one").expect("answered").exit.code(), 5);
    let card = link.asks().expect("asks").pop().expect("an ask");
    (bench, engine, card)
}

fn memories(home: &Home) -> i64 {
    let conn = rusqlite::Connection::open(home.database()).expect("opens");
    conn.query_row("SELECT count(*) FROM memory", [], |row| row.get(0)).expect("counts")
}

/// The enrolled approver key of a home, public half.
fn enrolled(home: &Home) -> String {
    std::fs::read_to_string(home.root().join("keys/approver.pub")).expect("reads").trim().to_owned()
}

/// What a good answer to a card would claim.
fn claims(link: &mut Link, card: &Card, approver: Approver) -> ApprovalClaims {
    let status = link.call("status", json!({})).expect("a status");
    ApprovalClaims {
        installation: status["installation"].as_str().expect("an id").parse().expect("an id"),
        epoch: status["epoch"].as_u64().expect("a number"),
        ask: card.ask_id.clone(),
        decision: Decision::Approve,
        prepared: card.prepared,
        shown: card.shown_hash,
        nonce: "ab".repeat(16),
        issued_at: card.asked_at,
        expires_at: card.expires_at,
        approver,
        task: None,
        values: false,
        host: None,
    }
}

fn signed(claims: ApprovalClaims, key: &SigningKey) -> Value {
    serde_json::to_value(ApprovalToken::sign_claims(claims, key).expect("signs")).expect("JSON")
}

#[test]
fn a_forged_answer_is_refused_logged_and_the_engine_goes_on() {
    let (bench, engine, card) = asking();
    let mut link = Link::open(&bench.home).expect("connects");
    let stranger = SigningKey::from_bytes(&[7; 32]);
    let own = Approver::Key { public: hex::encode(stranger.verifying_key().as_bytes()) };
    let in_the_owners_name = Approver::Key { public: enrolled(&bench.home) };
    let as_session = Approver::Session { principal: "owner".to_owned() };
    let good = |link: &mut Link, approver: &Approver| claims(link, &card, approver.clone());
    let mut forged = Vec::new();
    for approver in [&own, &in_the_owners_name, &as_session] {
        forged.push((format!("a stranger as {approver:?}"), signed(good(&mut link, approver), &stranger)));
    }
    let elsewhere = ApprovalClaims {
        installation: InstallationId::from_parts(Timestamp::from_millis(1), 2),
        ..good(&mut link, &own)
    };
    forged.push(("another installation".to_owned(), signed(elsewhere, &stranger)));
    let mut cut = signed(good(&mut link, &in_the_owners_name), &stranger);
    cut["signature"] = json!("ab");
    forged.push(("a cut signature".to_owned(), cut));
    // A signature of the right key under other words: it says nothing about this.
    let mut unsaid = signed(good(&mut link, &in_the_owners_name), &stranger);
    unsaid["signature"] = json!(hex::encode(stranger.sign(b"writ approval v1\n").to_bytes()));
    forged.push(("a signature over something else".to_owned(), unsaid));
    for (what, token) in &forged {
        let refused = link.decide(&card.ask_id, Decision::Approve, Some(token.clone()));
        assert_eq!(refused, Some(Err("approval.invalid".to_owned())), "{what}");
    }
    // What is no token at all does not even get so far.
    let mut lacking = signed(good(&mut link, &own), &stranger);
    lacking["claims"].as_object_mut().expect("claims").remove("nonce");
    let mut extra = signed(good(&mut link, &own), &stranger);
    extra["claims"]["also"] = json!("everything");
    let huge = json!({ "claims": "x".repeat(1024 * 1024), "signature": "" });
    for (what, token) in [("lacking", lacking), ("extra", extra), ("huge", huge), ("list", json!([1]))] {
        let refused = link.decide(&card.ask_id, Decision::Approve, Some(token));
        assert_eq!(refused, Some(Err("approval.malformed".to_owned())), "{what}");
    }
    assert_eq!(memories(&bench.home), 0);
    let denied: Vec<String> = bench.events("denied").iter().map(Value::to_string).collect();
    let named = denied.iter().filter(|entry| entry.contains(&format!("ask {}", card.ask_id))).count();
    assert_eq!(named, forged.len(), "every refused answer is an entry: {denied:?}");
    let count = forged.len();
    println!("THREAT 6 attempts={count} refused={count} entries={named} entry=denied twins=1");
    // The twin: the owner's own key, in the same engine.
    let approved = bench.home.run(&["approvals", "approve", card.ask_id.as_str(), "--yes"]);
    assert_eq!(code(&approved), 0, "{}", text(&approved));
    assert_eq!(memories(&bench.home), 1);
    assert_eq!(engine.stop().code, Some(0));
    assert_eq!(code(&bench.home.run(&["audit", "verify"])), 0);
}

#[test]
fn the_approver_key_of_another_installation_signs_nothing_here() {
    let (bench, engine, card) = asking();
    let other = Home::ready();
    assert_ne!(enrolled(&bench.home), enrolled(&other));
    let keys = bench.home.root().join("keys");
    let own = std::fs::read(keys.join("approver.json")).expect("reads");
    // Closed to others, as `init` makes it: what is refused is the content.
    let put = |content: &[u8]| {
        std::fs::write(keys.join("approver.json"), content).expect("written");
        let closed = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(keys.join("approver.json"), closed).expect("closed");
    };
    let approve = || bench.home.run(&["approvals", "approve", card.ask_id.as_str(), "--yes"]);
    for name in ["the key of another home", "no key", "half a key"] {
        match name {
            "the key of another home" => {
                put(&std::fs::read(other.root().join("keys/approver.json")).expect("reads"));
            }
            "no key" => std::fs::remove_file(keys.join("approver.json")).expect("removed"),
            _ => put(own.get(..own.len() / 2).expect("half")),
        }
        let refused = approve();
        assert!([3, 4].contains(&code(&refused)), "{name}: {}", text(&refused));
        assert!(!text(&refused).contains("has mode"), "{name}: {}", text(&refused));
        assert_eq!(memories(&bench.home), 0, "{name}");
    }
    let denied = bench.events("denied");
    let [denied] = denied.as_slice() else { panic!("one signature was sent: {denied:?}") };
    assert_eq!(denied["payload"]["rule"], format!("ask {}", card.ask_id));
    assert!(denied["payload"]["text"].as_str().expect("a text").contains("not enrolled"), "{denied}");
    // The twin: its own key is back.
    put(&own);
    let approved = approve();
    assert_eq!(code(&approved), 0, "{}", text(&approved));
    assert_eq!(memories(&bench.home), 1);
    assert_eq!(engine.stop().code, Some(0));
}
