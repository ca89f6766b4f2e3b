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
