//! Which keys prove what.

use std::time::Duration;

use serde_json::json;
use writ_policy::keys::{KeyToken, TASK_KEY_TTL, TaskClaims};
use writ_proxy::proxy::{Peer, ProxyRequest};
use writ_proxy::unproven::MAX_UNPROVEN_ENTRIES;
use writ_store::batch::{Batch, Op};
use writ_types::entry::Fact;

use crate::bed::{Bed, error_of, refund_agent, request};

/// The operations that the base key of the refund agent grants.
const OPERATIONS: [&str; 10] =
    ["credit", "customer", "history", "hold", "notes", "owners", "profile", "refund", "send_email", "ticket"];

/// One key is worth nothing, in either place and for whatever is asked, and each try is in the ledger with its own reason.
///
/// Rows: SLO-003 SLO-020 SLO-021 SLO-042 SLO-058
/// Rows: SLO-027 (in part: refusals)
#[tokio::test]
async fn both_keys_are_needed_for_everything() {
    let bed = Bed::new().await;
    let pair = bed.keys(refund_agent(), &bed.ann);
    let body = json!({ "order": "A-1", "amount": 10 });
    let both = bed.ask(&pair, "refund", body.clone()).await;
    assert_eq!((both.status, &both.body["changed"]), (200, &json!(1)), "{both:?}");
    for (base, task, rule) in [
        (Some(pair.base.as_str()), None, "key.no_task"),
        (None, Some(pair.task.as_str()), "key.no_base"),
        (None, None, "key.none"),
        (Some(""), Some(pair.task.as_str()), "key.base_signature"),
        // The same key in both places, and the two exchanged.
        (Some(pair.base.as_str()), Some(pair.base.as_str()), "key.task_blocks"),
        (Some(pair.task.as_str()), Some(pair.base.as_str()), "key.base_blocks"),
    ] {
        // Reads, changes, requests and mails: whatever the base key grants, and the list of it.
        for operation in OPERATIONS {
            let answer = bed.proxy.operate(request(base, task, operation, &body)).await;
            assert_eq!(answer.status, 401, "{rule}: {answer:?}");
            error_of(&answer);
            assert_eq!((bed.last_rule().as_str(), bed.last_operation().as_str()), (rule, operation));
        }
        let listed = bed.proxy.list_operations(request(base, task, "", &json!({}))).await;
        assert_eq!((listed.status, bed.last_rule().as_str()), (401, rule), "{listed:?}");
    }
    assert_eq!((bed.refunded("A-1"), bed.desk.asked().len()), (10, 0), "nothing else was performed");
    let each = OPERATIONS.len() + 1;
    assert_eq!(bed.decisions().len(), 1 + 6 * each, "one decision for each request");
    let named: Vec<_> = bed.decisions().into_iter().filter(|by| by.agent == "refund-agent").collect();
    assert_eq!(named.len(), 1 + 2 * each, "the good one, and those whose base key was good");
    let entries = format!("{:?}{:?}", bed.facts("intent"), bed.facts("denied"));
    assert!(!entries.contains(&pair.base) && !entries.contains(&pair.task), "keys are hashes alone");
}

/// A key that was changed, cut, signed elsewhere or moved proves nothing, each with its reason.
///
/// Rows: SLO-058
/// Rows: SLO-043 SLO-044 (in part: the signature) SLO-045 (in part: 401)
#[tokio::test]
async fn what_is_not_signed_here_is_refused_with_its_reason() {
    let bed = Bed::new().await;
    let (good, other) = (bed.keys(refund_agent(), &bed.ann), bed.keys(refund_agent(), &bed.bob));
    let flipped = |text: &str| {
        let mut bytes = KeyToken::try_from(text.to_owned()).expect("a token").as_bytes().to_vec();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        String::from(KeyToken::from_bytes(bytes))
    };
    let cut = |text: &str| text[..text.len() - 8].to_owned();
    let elsewhere = Bed::new().await.keys(refund_agent(), &bed.ann);
    let foreign = {
        let root = ed25519_dalek::SigningKey::from_bytes(&[9; 32]);
        String::from(writ_policy::keys::mint_base(&good.base_claims, &root).expect("mints"))
    };
    let long = "A".repeat(60_000);
    for (base, task, rule) in [
        (flipped(&good.base), good.task.clone(), "key.base_signature"),
        (good.base.clone(), flipped(&good.task), "key.task_signature"),
        (cut(&good.base), good.task.clone(), "key.base_signature"),
        (good.base.clone(), cut(&good.task), "key.task_signature"),
        (foreign, good.task.clone(), "key.base_signature"),
        (good.base.clone(), other.task.clone(), "key.mixed"),
        (other.base.clone(), good.task.clone(), "key.mixed"),
        (long.clone(), good.task.clone(), "key.base_too_large"),
        (good.base.clone(), long, "key.task_too_large"),
        ("not a key".to_owned(), good.task.clone(), "key.base_signature"),
        // Of a proxy with the same root key, but for another base key.
        (good.base.clone(), elsewhere.task, "key.mixed"),
    ] {
        let body = json!({ "order": "A-1", "amount": 10 });
        let answer = bed.proxy.operate(request(Some(&base), Some(&task), "refund", &body)).await;
        assert_eq!((answer.status, bed.last_rule().as_str()), (401, rule), "{answer:?}");
    }
    assert_eq!(bed.refunded("A-1"), 0);
    let good = bed.ask(&good, "refund", json!({ "order": "A-1", "amount": 10 })).await;
    assert_eq!(good.status, 200, "twin: {good:?}");
}

/// A task key is good for half an hour, to the second, and no longer than its case; a base key to its end.
///
/// Rows: SLO-016
/// Rows: SLO-043 SLO-044 (in part: the end)
#[tokio::test]
async fn keys_end_when_they_say() {
    let bed = Bed::new().await;
    let pair = bed.keys(refund_agent(), &bed.ann);
    bed.clock.0.go_on(Duration::from_secs(29 * 60 + 59));
    assert_eq!(bed.ask(&pair, "customer", json!({})).await.status, 200, "29:59");
    bed.clock.0.go_on(Duration::from_secs(2));
    let late = bed.ask(&pair, "customer", json!({})).await;
    assert_eq!(
        (late.status, error_of(&late), bed.last_rule().as_str()),
        (401, "the task key has expired", "key.task_expired")
    );
    // One whose case is closed early is refused from then on, with most of its time left.
    let early = bed.keys(refund_agent(), &bed.bob);
    assert_eq!(bed.ask(&early, "customer", json!({})).await.status, 200, "twin: before");
    bed.proxy.close_case(&bed.bob.1).await.expect("closes");
    let closed = bed.ask(&early, "customer", json!({})).await;
    assert_eq!((closed.status, bed.last_rule().as_str()), (403, "closed case"));
    let mut short = refund_agent();
    short["expires"] = json!(bed.clock.0.now().plus_duration(Duration::from_secs(60)).to_string());
    let shorter = bed.keys(short, &bed.ann);
    assert_eq!(bed.ask(&shorter, "customer", json!({})).await.status, 200);
    bed.clock.0.go_on(Duration::from_secs(120));
    let late = bed.ask(&shorter, "customer", json!({})).await;
    assert_eq!((late.status, bed.last_rule().as_str()), (401, "key.base_expired"));
    bed.clock.0.set_back(Duration::from_secs(600));
    assert_eq!(
        bed.ask(&pair, "customer", json!({})).await.status,
        401,
        "a clock that is set back revives nothing"
    );
}

/// A revoked key is refused with the next request, and after a restart; whichever part of it was revoked.
///
/// Rows: SLO-018 SLO-023 SLO-047
#[tokio::test]
async fn a_revoked_key_is_refused_with_the_next_request() {
    let mut bed = Bed::new().await;
    for of_base in [false, true] {
        let pair = bed.keys(refund_agent(), &bed.ann);
        assert_eq!(bed.ask(&pair, "customer", json!({})).await.status, 200, "before");
        assert_eq!(bed.ask_once(&pair, "customer", json!({}), "again").await.status, 200, "before");
        let id = if of_base { &pair.base_id } else { &pair.task_id };
        bed.proxy.revoke_keys(std::slice::from_ref(id), None).await.expect("revokes");
        let answer = bed.ask(&pair, "customer", json!({})).await;
        assert_eq!((answer.status, error_of(&answer)), (401, "a key was revoked"));
        let repeated = bed.ask_once(&pair, "customer", json!({}), "again").await;
        assert_eq!((repeated.status, error_of(&repeated)), (401, "a key was revoked"));
        bed = bed.restarted().await;
        assert_eq!(bed.ask(&pair, "customer", json!({})).await.status, 401, "after a restart");
    }
}

/// What the engine revokes counts with the next request, and a restored engine has no earlier keys; without its database
/// nothing is performed.
///
/// Rows: SLO-018
/// Rows: SLO-047 (in part: the engine's list)
#[tokio::test]
async fn what_the_engine_revokes_counts_at_once() {
    let (bed, engine) = Bed::beside_engine().await;
    let pair = bed.keys(refund_agent(), &bed.ann);
    assert_eq!(bed.ask(&pair, "customer", json!({})).await.status, 200, "before");
    let now = bed.clock.0.now();
    let revoke = Op::Revoke { id: pair.task_id.clone(), at: now, expires_at: None };
    engine.commit(Batch::synced(vec![revoke])).await.expect("revokes");
    let answer = bed.ask(&pair, "customer", json!({})).await;
    assert_eq!((answer.status, error_of(&answer)), (401, "a key was revoked"));
    let next = bed.task_key(&pair.base_token, &pair.base_claims, &bed.ann);
    assert_eq!(bed.ask(&next, "customer", json!({})).await.status, 200, "twin: the next task's key");
    // One that is revoked while the body of its request comes.
    let late = bed.task_key(&pair.base_token, &pair.base_claims, &bed.ann);
    let request = request(Some(&late.base), Some(&late.task), "customer", &json!({}));
    let admission = bed.proxy.admit(&request).await.expect("is admitted");
    let revoke = Op::Revoke { id: late.task_id.clone(), at: now, expires_at: None };
    engine.commit(Batch::synced(vec![revoke])).await.expect("revokes");
    bed.clock.0.go_on(Duration::from_secs(1));
    let answer = bed.proxy.operate_admitted(request, admission).await;
    assert_eq!((answer.status, error_of(&answer)), (401, "a key was revoked"));
    let restored = Op::Set { key: writ_store::settings::EPOCH.to_owned(), value: json!(2) };
    engine.commit(Batch::synced(vec![restored])).await.expect("writes");
    assert_eq!(bed.ask(&next, "customer", json!({})).await.status, 401);
    assert_eq!(bed.last_rule(), "key.base_foreign");
    let broken = rusqlite::Connection::open(bed.folder.path().join("data/writ.db")).expect("opens");
    broken.execute_batch("DROP TABLE setting").expect("breaks it");
    let answer = bed.ask(&next, "refund", json!({ "order": "A-1", "amount": 1 })).await;
    assert_eq!((answer.status, bed.refunded("A-1")), (503, 0), "{answer:?}");
}

/// What a base key does not name is refused, for every customer; what it names is done for each.
///
/// Rows: SLO-004 SLO-012 SLO-024
/// Rows: SLO-008 (in part: an operation beyond the key) SLO-062 (in part: through the proxy)
#[tokio::test]
async fn a_base_key_says_what_is_done_and_a_task_key_for_whom() {
    let bed = Bed::new().await;
    let support = json!({
        "agent": "support-agent", "capabilities": { "customer": {}, "escalate_to": ["manager"] },
        "expires": "2026-12-31T00:00:00Z",
    });
    let for_ann = bed.keys(support, &bed.ann);
    let for_bob = bed.task_key(&for_ann.base_token, &for_ann.base_claims, &bed.bob);
    assert_eq!(for_ann.base, for_bob.base, "one base key");
    let mut names = Vec::new();
    for pair in [&for_ann, &for_bob] {
        let read = bed.ask(pair, "customer", json!({})).await;
        assert_eq!(read.status, 200, "{read:?}");
        names.push(read.body["rows"][0]["name"].clone());
        let refused = bed.ask(pair, "refund", json!({ "order": "A-1", "amount": 1 })).await;
        assert_eq!((refused.status, error_of(&refused)), (403, "the key does not grant this operation"));
        let nothing = bed.ask(pair, "no_such", json!({})).await;
        assert_eq!(nothing.status, 403);
    }
    assert_ne!(names[0], names[1]);
    assert_eq!((bed.refunded("A-1"), bed.refunded("B-1")), (0, 0));
}

/// The case of the key is the only one that is reached, whatever a request names. A row of another customer that is named by its own
/// id is not refused and not found.
///
/// Rows: SLO-019
/// Rows: SLO-013 SLO-025 (in part: another customer's record by its id is answered as one that is not there)
/// Rows: SLO-044 (in part: the scope)
#[tokio::test]
async fn another_customer_and_a_raw_number_are_refused() {
    let bed = Bed::new().await;
    let pair = bed.keys(refund_agent(), &bed.ann);
    let body = |customer: &str, case: &str| json!({ "customer_token": customer, "case_token": case, "order": "A-1", "amount": 100 });
    let own = bed.ask(&pair, "refund", body(&bed.ann.0, &bed.ann.1)).await;
    assert_eq!(own.status, 200, "twin: {own:?}");
    let read = async |customer: &str| bed.ask(&pair, "owners", json!({ "customer_token": customer })).await;
    let own = read(&bed.ann.0).await;
    let owned = json!([{ "owner": bed.ann.0, "id": "A-1" }, { "owner": bed.ann.0, "id": "A-2" }]);
    assert_eq!(
        (own.status, &own.body["rows"]),
        (200, &owned),
        "what the named customer has, and nothing else"
    );
    let other = read(&bed.bob.0).await;
    assert_eq!((other.status, error_of(&other)), (403, "this is outside the case of the key"));
    for (customer, case) in [
        (&*bed.bob.0, &*bed.ann.1),
        (&bed.ann.0, &bed.bob.1),
        (&bed.bob.0, &bed.bob.1),
        ("101", &bed.ann.1),
        ("102", "C-2"),
        ("", ""),
    ] {
        let refused = bed.ask(&pair, "refund", body(customer, case)).await;
        assert_eq!((refused.status, error_of(&refused)), (403, "this is outside the case of the key"));
    }
    // A row of another customer is not there, though the statement names it.
    let other = bed.ask(&pair, "refund", json!({ "order": "B-1", "amount": 1 })).await;
    assert_eq!((other.status, &other.body["changed"]), (200, &json!(0)));
    assert_eq!((bed.refunded("A-1"), bed.refunded("B-1")), (100, 0));
    // Another customer's token as a parameter.
    let order = json!({ "order": bed.bob.0, "amount": 1 });
    assert_eq!(bed.ask(&pair, "refund", order).await.status, 403);
    assert_eq!(bed.last_rule(), "token");
    // A case that is closed, and one that was never opened here.
    bed.proxy.close_case(&bed.ann.1).await.expect("closes");
    let closed = bed.ask(&pair, "customer", json!({})).await;
    assert_eq!((closed.status, bed.last_rule().as_str()), (403, "closed case"));
    let made_up = (format!("cust_tk_{}", "0".repeat(32)), format!("case_tk_{}", "0".repeat(32)));
    let never = bed.keys(refund_agent(), &made_up);
    assert_eq!(bed.ask(&never, "customer", json!({})).await.status, 403);
}

/// The history of another case of the same customer is another case's: its rows are not there, and asking for it by its
/// token, or with its key in place of one's own, is refused.
///
/// Rows: SLO-017
#[tokio::test]
async fn another_customer_and_another_case_of_the_same_one_are_refused() {
    let bed = Bed::new().await;
    let second = bed.proxy.open_case(Some("shop"), "101", "C-9", &Default::default()).await.expect("opens");
    let second = (second.customer_token, second.case_token);
    let lines = |answer: &writ_proxy::proxy::ProxyAnswer| {
        let rows = answer.body["rows"].as_array().expect("rows").iter();
        rows.map(|row| row["line"].as_str().expect("a text").to_owned()).collect::<Vec<_>>()
    };
    let mut base = None;
    for (case, own) in
        [(&bed.ann, "the kettle leaks"), (&second, "the lamp flickers"), (&bed.bob, "the mug broke")]
    {
        let pair = bed.keys(refund_agent(), case);
        let read = bed.ask(&pair, "history", json!({ "case_token": case.1 })).await;
        assert_eq!((read.status, lines(&read)), (200, vec![own.to_owned()]), "twin: its own");
        for other in [&bed.ann, &second, &bed.bob].into_iter().filter(|other| other.1 != case.1) {
            for body in [
                json!({ "case_token": other.1 }),
                json!({ "customer_token": other.0, "case_token": other.1 }),
            ] {
                let refused = bed.ask(&pair, "history", body).await;
                assert_eq!(
                    (refused.status, error_of(&refused)),
                    (403, "this is outside the case of the key")
                );
            }
        }
        // The key of another case of the customer, over another base key.
        if let Some(earlier) = base.replace(pair.base.clone()) {
            let body = json!({});
            let mixed = bed.proxy.operate(request(Some(&earlier), Some(&pair.task), "history", &body)).await;
            assert_eq!((mixed.status, bed.last_rule().as_str()), (401, "key.mixed"));
        }
    }
    for raw in ["C-9", "C-1", ""] {
        let pair = bed.keys(refund_agent(), &bed.ann);
        assert_eq!(bed.ask(&pair, "history", json!({ "case_token": raw })).await.status, 403, "{raw}");
    }
}

/// Who proves nothing gets 401, and who is proven and not allowed 403, each with its reason; of neither is anything performed.
///
/// Rows: SLO-043 SLO-044 SLO-045
#[tokio::test]
async fn what_is_not_proven_gets_401_and_what_is_not_allowed_403() {
    let bed = Bed::new().await;
    let good = bed.keys(refund_agent(), &bed.ann);
    let (stale, revoked) = (bed.keys(refund_agent(), &bed.ann), bed.keys(refund_agent(), &bed.ann));
    let mut short = refund_agent();
    short["expires"] = json!(bed.clock.0.now().plus_duration(Duration::from_secs(60)).to_string());
    let short = bed.keys(short, &bed.ann);
    bed.clock.0.go_on(TASK_KEY_TTL + Duration::from_secs(1));
    let fresh = bed.task_key(&good.base_token, &good.base_claims, &bed.ann);
    let short = bed.task_key(&short.base_token, &short.base_claims, &bed.ann);
    bed.proxy.revoke_keys(std::slice::from_ref(&revoked.base_id), None).await.expect("revokes");
    let revoked = bed.task_key(&revoked.base_token, &revoked.base_claims, &bed.ann);
    let mut small = refund_agent();
    small["capabilities"] = json!({ "refund": { "max_amount": 5 } });
    let small = bed.keys(small, &bed.ann);
    let foreign = ed25519_dalek::SigningKey::from_bytes(&[9; 32]);
    let foreign = String::from(writ_policy::keys::mint_base(&good.base_claims, &foreign).expect("mints"));
    let forged = format!("{}AAAA", &fresh.task[..fresh.task.len() - 4]);
    let refund = || json!({ "order": "A-1", "amount": 10 });
    let other = json!({ "order": "A-1", "amount": 10, "customer_token": bed.bob.0 });
    for (base, task, operation, body, (status, rule)) in [
        (None, None, "refund", refund(), (401, "key.none")),
        (Some(&fresh.base), None, "refund", refund(), (401, "key.no_task")),
        (None, Some(&fresh.task), "refund", refund(), (401, "key.no_base")),
        // The base key: its signature, its end, a capability that it lacks.
        (Some(&foreign), Some(&fresh.task), "refund", refund(), (401, "key.base_signature")),
        (Some(&short.base), Some(&short.task), "refund", refund(), (401, "key.base_expired")),
        (Some(&small.base), Some(&small.task), "credit", refund(), (403, "operation")),
        // The task key: its signature, its end, another customer.
        (Some(&fresh.base), Some(&forged), "refund", refund(), (401, "key.task_signature")),
        (Some(&stale.base), Some(&stale.task), "refund", refund(), (401, "key.task_expired")),
        (Some(&fresh.base), Some(&fresh.task), "refund", other, (403, "customer_token")),
        (Some(&revoked.base), Some(&revoked.task), "refund", refund(), (401, "key.revoked")),
        (Some(&small.base), Some(&fresh.task), "refund", refund(), (401, "key.mixed")),
        (Some(&fresh.base), Some(&fresh.task), "drop_tables", refund(), (403, "operation")),
    ] {
        let (base, task) = (base.map(String::as_str), task.map(String::as_str));
        let answer = bed.proxy.operate(request(base, task, operation, &body)).await;
        assert_eq!(
            (answer.status, bed.last_rule().as_str()),
            (status, rule),
            "{operation} {body}: {answer:?}"
        );
        error_of(&answer);
    }
    // An amount above the bound of either key.
    for (pair, amount) in [(&small, 6), (&fresh, 501)] {
        let answer = bed.ask(pair, "refund", json!({ "order": "A-1", "amount": amount })).await;
        assert_eq!((answer.status, error_of(&answer)), (403, "a value is outside the limits of the key"));
    }
    assert_eq!((bed.refunded("A-1"), bed.facts("intent").len()), (0, 0), "nothing was performed");
    let passed = bed.ask(&fresh, "refund", refund()).await;
    assert_eq!((passed.status, bed.refunded("A-1")), (200, 10), "twin: {passed:?}");
}

/// A task key without a case reaches nothing.
///
/// Rows: SLO-014 (in part: at the proxy)
#[tokio::test]
async fn a_task_key_without_a_case_reaches_nothing() {
    let bed = Bed::new().await;
    let pair = bed.keys(refund_agent(), &bed.ann);
    let without = TaskClaims { case: None, ..pair.task_claims.clone() };
    let without = bed.pair(&pair.base_token, &pair.base_claims, without);
    let answer = bed.ask(&without, "customer", json!({})).await;
    assert_eq!((answer.status, bed.last_rule().as_str()), (403, "no case"));
}

/// A flood of requests without keys leaves few entries: those of a minute beyond the first are one, which says how many.
#[tokio::test]
async fn a_flood_of_requests_without_keys_is_counted_and_not_written_one_by_one() {
    let bed = Bed::new().await;
    let flood = async |peer, count: u64| {
        for _ in 0..count {
            let request = request(None, None, "customer", &json!({}));
            assert_eq!(bed.proxy.operate(ProxyRequest { peer, ..request }).await.status, 401);
        }
    };
    flood(Peer::Local(1), MAX_UNPROVEN_ENTRIES + 284).await;
    flood(Peer::Remote, MAX_UNPROVEN_ENTRIES + 4).await;
    assert_eq!(bed.facts("denied").len() as u64, 2 * MAX_UNPROVEN_ENTRIES);
    bed.clock.0.go_on(Duration::from_secs(60));
    flood(Peer::Local(1), MAX_UNPROVEN_ENTRIES + 4).await;
    bed.proxy.drain().await;
    let counted = |fact| {
        let Fact::Denied { rule, text, .. } = fact else { return None };
        (rule == "key.more").then(|| text.split(" in the minute").next().unwrap_or_default().to_owned())
    };
    let mut counted: Vec<String> = bed.facts("denied").into_iter().filter_map(counted).collect();
    counted.sort();
    assert_eq!(
        counted,
        ["284 more requests of user 1", "4 more requests of the network", "4 more requests of user 1"]
    );
    assert_eq!(bed.facts("denied").len() as u64, 3 * MAX_UNPROVEN_ENTRIES + 3);
}

/// The keys of an agent with a user of its own are worth nothing to another user, or from elsewhere.
///
/// Rows: SLO-045 (in part: copied keys)
#[tokio::test]
async fn copied_keys_are_refused_from_another_user() {
    let bed = Bed::new().await;
    let mut document = refund_agent();
    document["agent"] = json!("guarded-agent");
    let pair = bed.keys(document, &bed.ann);
    for (peer, status) in [(Peer::Local(7_001), 200), (Peer::Local(7_002), 401), (Peer::Remote, 401)] {
        let request = request(Some(&pair.base), Some(&pair.task), "customer", &json!({}));
        let answer = bed.proxy.operate(ProxyRequest { peer, ..request }).await;
        assert_eq!(answer.status, status, "{peer:?}");
    }
    assert_eq!(bed.last_rule(), "key.user");
}

/// Each decision names the agent, the hashes of both keys, the operation, and the tokens of what it reaches; no entry has a key.
///
/// Rows: SLO-055
/// Rows: SLO-027 (in part: what an entry names)
#[tokio::test]
async fn each_request_has_one_decision_with_all_four() {
    let bed = Bed::new().await;
    let pair = bed.keys(refund_agent(), &bed.ann);
    for (operation, body, status) in [
        ("customer", json!({}), 200),
        ("refund", json!({ "order": "A-1", "amount": 501 }), 403),
        ("refund", json!({ "order": "A-1" }), 422),
        ("refund", json!({ "order": "A-1", "amount": 1, "more": 1 }), 422),
        ("refund", json!([1]), 422),
        ("escalate", json!({}), 403),
    ] {
        let before = bed.decisions().len();
        let answer = bed.ask(&pair, operation, body).await;
        assert_eq!(answer.status, status, "{operation}: {answer:?}");
        assert_eq!(bed.decisions().len(), before + 1, "{operation}: one decision");
    }
    let hash = |text: &str| {
        let token = KeyToken::try_from(text.to_owned()).expect("a token");
        Some(writ_types::digest::Digest::of_bytes(token.as_bytes()))
    };
    for by in bed.decisions() {
        assert_eq!(
            (by.agent.as_str(), by.base, by.task),
            ("refund-agent", hash(&pair.base), hash(&pair.task))
        );
        assert_eq!(by.data, [bed.ann.0.clone(), bed.ann.1.clone()]);
        assert!(!by.operation.is_empty());
    }
    let entries: Vec<Fact> = ["intent", "denied", "served", "outcome", "case_moved", "keyed"]
        .into_iter()
        .flat_map(|event| bed.facts(event))
        .collect();
    let entries = format!("{entries:?}{}", serde_json::to_string(&entries).expect("JSON"));
    assert!(!entries.contains(&pair.base) && !entries.contains(&pair.task), "keys are hashes alone");
    let outcomes = bed.facts("outcome");
    let [Fact::Outcome { summary, .. }] = &outcomes[..] else { panic!("{outcomes:?}") };
    for prefix in ["name_tk_", "email_tk_", "phone_tk_", "card_tk_", bed.ann.0.as_str()] {
        assert!(summary.contains(prefix), "what was read is named by its tokens: {summary}");
    }
}

/// The list of operations is the key's own, and is recorded as well.
///
/// Rows: SLO-027 (in part: lists)
#[tokio::test]
async fn the_list_of_operations_is_that_of_the_keys() {
    let bed = Bed::new().await;
    let pair = bed.keys(refund_agent(), &bed.ann);
    let listing = request(Some(&pair.base), Some(&pair.task), "", &json!({}));
    let listed = bed.proxy.list_operations(listing).await;
    let mut names: Vec<&str> = listed.body["operations"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|row| row["name"].as_str())
        .collect();
    names.sort_unstable();
    assert_eq!((listed.status, names), (200, OPERATIONS.to_vec()));
    let refused = bed.proxy.list_operations(request(Some(&pair.base), None, "", &json!({}))).await;
    assert_eq!((refused.status, bed.decisions().len()), (401, 2));
}
