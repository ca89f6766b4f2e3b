//! The proxy ends in the middle of something, or cannot write.

use serde_json::json;
use writ_types::chat::ToolOutcome;
use writ_types::entry::Fact;

use crate::bed::{Bed, error_of, refund_agent};

/// An operation that was cut off has an unknown outcome, and is not performed again: neither under its name or another one
/// nor without one, and with no other key of its case.
///
/// Rows: SLO-027 (in part: cut off)
#[tokio::test]
async fn what_was_cut_off_is_unknown_and_not_performed_again() {
    for name in [Some("r-1"), None] {
        let bed = Bed::new().await;
        let pair = bed.keys(refund_agent(), &bed.ann);
        let body = || json!({ "order": "A-1", "amount": 5 });
        let ask = async |bed: &Bed| match name {
            Some(name) => bed.ask_once(&pair, "hold", body(), name).await,
            None => bed.ask(&pair, "hold", body()).await,
        };
        // The target never answers: the runtime of the first life ends while it waits.
        tokio::select! {
            answer = ask(&bed) => panic!("{answer:?}"),
            () = wait_for(|| bed.facts("intent").len() == 1) => {}
        }
        let under_way = ask(&bed).await;
        assert_eq!(under_way.status, 409, "while it runs: {under_way:?}");
        let other = bed.ask_once(&bed.keys(refund_agent(), &bed.ann), "hold", body(), "r-9").await;
        assert_eq!(other.status, 409, "under another name and key: {other:?}");
        let bed = bed.restarted().await;
        let outcomes = bed.facts("outcome");
        assert!(
            matches!(&outcomes[..], [Fact::Outcome { outcome: ToolOutcome::Unknown, .. }]),
            "{outcomes:?}"
        );
        let renewed = bed.keys(refund_agent(), &bed.ann);
        for key in [&pair, &renewed] {
            for again in [
                bed.ask(key, "hold", body()).await,
                bed.ask_once(key, "hold", body(), "r-1").await,
                bed.ask_once(key, "hold", body(), "r-2").await,
            ] {
                assert_eq!((again.status, bed.facts("intent").len()), (409, 1), "{again:?}");
            }
        }
        assert_eq!(bed.refunded("A-1"), 0);
        let other = bed.ask_once(&pair, "refund", body(), "another").await;
        assert_eq!(other.status, 200, "twin: another request passes: {other:?}");
    }
}

/// Where the target is handed an idempotency key, what has an unknown outcome is asked for again under the same name, and by no
/// other request, until it is done. It blocks nothing once its case is closed.
#[tokio::test]
async fn an_unknown_outcome_is_tried_again_under_its_own_name_alone() {
    let bed = Bed::new().await;
    let mut document = refund_agent();
    document["capabilities"]["charge"] = json!({});
    let (pair, other) = (bed.keys(document.clone(), &bed.ann), bed.keys(document.clone(), &bed.ann));
    let body = |amount: i64| json!({ "amount": amount });
    assert_eq!(bed.ask_once(&pair, "charge", body(5), "r-1").await.status, 504);
    for refused in [
        bed.ask(&pair, "charge", body(5)).await,
        bed.ask_once(&pair, "charge", body(5), "r-2").await,
        bed.ask_once(&other, "charge", body(5), "r-2").await,
        bed.ask_once(&pair, "charge", body(6), "r-1").await,
    ] {
        assert_eq!(refused.status, 409, "{refused:?}");
    }
    let bed = bed.restarted().await;
    assert_eq!(bed.ask_once(&other, "charge", body(5), "r-1").await.status, 200);
    let asked = bed.desk.asked();
    assert!(asked.len() == 2 && asked[0] == asked[1], "one key: {asked:?}");
    let repeated = bed.ask_once(&pair, "charge", body(5), "r-1").await;
    assert_eq!((repeated.status, &repeated.body["repeated"]), (200, &json!(true)));
    // By now it is done, and another of the same content is another one.
    assert_eq!(bed.ask_once(&pair, "charge", body(5), "r-2").await.status, 504);
    assert_eq!(bed.ask(&pair, "charge", body(5)).await.status, 409);
    bed.proxy.close_case(&bed.ann.1).await.expect("closes");
    bed.proxy.open_case(Some("shop"), "101", "C-1", &Default::default()).await.expect("opens again");
    let pair = bed.keys(document, &bed.ann);
    assert_eq!(bed.ask_once(&pair, "charge", body(5), "r-3").await.status, 200, "nothing is left of it");
    assert_eq!(bed.ask_once(&pair, "charge", body(5), "r-2").await.status, 409, "twin: its name is");
}

/// Counters, names and the map of tokens are those of before.
#[tokio::test]
async fn tokens_survive_a_restart() {
    let bed = Bed::new().await;
    let pair = bed.keys(refund_agent(), &bed.ann);
    let before = bed.ask(&pair, "customer", json!({})).await;
    let bed = bed.restarted().await;
    assert_eq!(bed.ask(&pair, "customer", json!({})).await, before);
    // The names of before are known again, so free text is searched for them at once.
    let bed = bed.restarted().await;
    let notes = bed.ask(&pair, "notes", json!({})).await;
    assert!(!notes.body.to_string().contains("Example"), "{notes:?}");
}

/// Without the ledger nothing is performed, and nothing is read.
///
/// Rows: SLO-027 (in part: no ledger, no request)
#[tokio::test]
async fn without_the_ledger_nothing_is_performed() {
    let bed = Bed::new().await;
    let pair = bed.keys(refund_agent(), &bed.ann);
    assert_eq!(bed.ask(&pair, "credit", json!({ "order": "A-1", "amount": 1 })).await.status, 200, "twin");
    let path = bed.folder.path().join("proxy/proxy.db");
    // No entry can be appended any more.
    let holder = rusqlite::Connection::open(&path).expect("opens");
    holder
        .execute_batch(
            "CREATE TRIGGER no_entry BEFORE INSERT ON ledger BEGIN SELECT RAISE(ABORT, 'full'); END;",
        )
        .expect("breaks it");
    for (operation, body) in
        [("credit", json!({ "order": "A-1", "amount": 1 })), ("customer", json!({})), ("no_such", json!({}))]
    {
        let answer = bed.ask(&pair, operation, body).await;
        assert_eq!(answer.status, 503, "{operation}: {answer:?}");
        assert!(error_of(&answer).starts_with("the ledger cannot be used"));
    }
    assert_eq!(bed.refunded("A-1"), 1);
    holder.execute_batch("DROP TRIGGER no_entry").expect("mends it");
    assert_eq!(
        bed.ask(&pair, "credit", json!({ "order": "A-1", "amount": 1 })).await.status,
        200,
        "afterwards"
    );
}

/// Waits for a condition.
async fn wait_for(condition: impl Fn() -> bool) {
    while !condition() {
        tokio::task::yield_now().await;
    }
}
