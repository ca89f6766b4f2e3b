//! Limits of keys: of one use, of a day, of values.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;
use writ_proxy::events::EventMeasure;
use writ_proxy::proxy::{FEW_AT_ONCE, MANY_AT_ONCE, MAX_AT_ONCE};
use writ_proxy::server::MAX_PER_USER;
use writ_types::chat::ToolOutcome;
use writ_types::entry::Fact;

use crate::bed::{Bed, error_of, refund_agent};

/// Both bounds count, and what is over them does not reach the database.
///
/// Rows: SLO-006 SLO-019 SLO-026
#[tokio::test]
async fn the_bound_of_one_use_is_inclusive() {
    let bed = Bed::new().await;
    let pair = bed.keys(refund_agent(), &bed.ann);
    for (amount, status) in [(499, 200), (500, 200), (501, 403), (0, 403), (-1, 403), (i64::MAX, 403)] {
        let body = json!({ "order": "A-1", "amount": amount });
        let answer = bed.ask(&pair, "credit", body).await;
        assert_eq!(answer.status, status, "{amount}: {answer:?}");
        if status == 403 {
            assert_eq!(error_of(&answer), "a value is outside the limits of the key");
        }
    }
    assert_eq!(bed.refunded("A-1"), 999);
    assert_eq!(bed.facts("intent").len(), 2, "what was refused has no intent");
}

/// A second amount without a bound is no way around the bound of the first; twins: one with its own, and a key that bounds none.
#[tokio::test]
async fn every_amount_of_a_bounded_operation_is_bounded() {
    let bed = Bed::new().await;
    let file = bed.folder.path().join("operations/transfer.toml");
    let declared =
        std::fs::read_to_string(bed.folder.path().join("operations/refund.toml")).expect("is there");
    let declared = declared
        .replace("name = \"refund\"", "name = \"transfer\"")
        .replace("[target.sql]", "[parameters.fee]\nrole = \"amount\"\n[target.sql]")
        .replace("refunded + :amount", "refunded + :amount + :fee");
    std::fs::write(file, declared).expect("writes");
    bed.proxy.reload_operations().expect("reads it");
    for (grant, fee, status) in [
        (json!({ "max_amount": 500 }), 9_000, 403),
        (json!({ "max_amount": 500 }), 1, 403),
        (json!({ "max_amount": 500, "max_fee": 10 }), 10, 200),
        (json!({ "max_amount": 500, "max_fee": 10 }), 11, 403),
        (json!({}), 9_000, 200),
    ] {
        let mut document = refund_agent();
        document["capabilities"]["transfer"] = grant.clone();
        let pair = bed.keys(document, &bed.ann);
        let body = json!({ "order": "A-1", "amount": 5, "fee": fee });
        let answer = bed.ask(&pair, "transfer", body).await;
        assert_eq!(answer.status, status, "{grant} {fee}: {answer:?}");
    }
}

/// Of free text there is nothing to choose: a listed template passes, and nothing else does.
///
/// Rows: SLO-007
/// Rows: SLO-063 (in part: the choice of a template)
#[tokio::test]
async fn listed_templates_pass_alone() {
    let bed = Bed::new().await;
    let pair = bed.keys(refund_agent(), &bed.ann);
    for (template, status) in [("apology", 200), ("promo", 403), ("Apology", 403), ("", 403)] {
        let body = json!({ "order": "A-1", "template": template });
        let answer = bed.ask(&pair, "send_email", body).await;
        assert_eq!(answer.status, status, "{template}: {answer:?}");
    }
    let free = json!({ "order": "A-1", "text": "anything" });
    assert_eq!(bed.ask(&pair, "send_email", free).await.status, 422);
}

/// The limit of a day is used up once, by whatever task; the next day it is there again.
///
/// Rows: SLO-026 (in part: the day)
#[tokio::test]
async fn the_limit_of_a_day_is_shared_by_all_tasks_of_a_key() {
    let bed = Bed::new().await;
    let first = bed.keys(refund_agent(), &bed.ann);
    let second = bed.task_key(&first.base_token, &first.base_claims, &bed.bob);
    let refund = |order: &str, amount: i64| json!({ "order": order, "amount": amount });
    assert_eq!(bed.ask(&first, "refund", refund("A-1", 500)).await.status, 200);
    assert_eq!(bed.ask(&second, "refund", refund("B-1", 400)).await.status, 200);
    let over = bed.ask(&first, "refund", refund("A-2", 101)).await;
    assert_eq!((over.status, error_of(&over)), (409, "a limit of the key is used up"));
    assert_eq!(bed.ask(&first, "refund", refund("A-2", 100)).await.status, 200, "exactly the rest");
    assert_eq!(bed.ask(&second, "refund", refund("B-1", 1)).await.status, 409);
    let bed = bed.restarted().await;
    assert_eq!(bed.ask(&second, "refund", refund("B-1", 1)).await.status, 409, "after a restart");
    bed.clock.0.go_on(Duration::from_secs(24 * 60 * 60));
    let tomorrow = bed.task_key(&first.base_token, &first.base_claims, &bed.ann);
    assert_eq!(bed.ask(&tomorrow, "refund", refund("A-2", 1)).await.status, 200, "the next day");
}

/// The total of a key is used up once and for all: no midnight, task or restart gives any of it back.
///
/// Rows: SLO-026 (in part: the key)
#[tokio::test]
async fn the_total_of_a_key_is_not_given_back_at_midnight() {
    let bed = Bed::new().await;
    let mut document = refund_agent();
    document["capabilities"]["refund"] = json!({ "max_amount": 500, "total_amount": 700 });
    let first = bed.keys(document, &bed.ann);
    let refund = |amount: i64| json!({ "order": "A-1", "amount": amount });
    assert_eq!(bed.ask(&first, "refund", refund(500)).await.status, 200);
    assert_eq!(bed.ask(&first, "refund", refund(201)).await.status, 409);
    let bed = bed.restarted().await;
    bed.clock.0.go_on(Duration::from_secs(24 * 60 * 60));
    let tomorrow = bed.task_key(&first.base_token, &first.base_claims, &bed.ann);
    let over = bed.ask(&tomorrow, "refund", refund(201)).await;
    assert_eq!((over.status, error_of(&over)), (409, "a limit of the key is used up"));
    assert_eq!(bed.ask(&tomorrow, "refund", refund(200)).await.status, 200, "twin: exactly the rest");
    assert_eq!(bed.refunded("A-1"), 700);
}

/// Fifty at once get what there is and nothing above it, and money moved equals the ledger.
///
/// Rows: SLO-026 (in part: at once)
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_limit_of_a_day_holds_for_fifty_at_once() {
    let bed = Bed::new().await;
    let pair = bed.keys(refund_agent(), &bed.ann);
    // Each for an order of its own: of equal ones that are under way one alone is performed.
    let shop = rusqlite::Connection::open(bed.folder.path().join("shop.db")).expect("opens");
    let names: Vec<String> = (0..50).map(|n| format!("O-{n}")).collect();
    for name in &names {
        shop.execute("INSERT INTO orders VALUES (?1, '101', 0, NULL)", [name]).expect("an order");
    }
    let asked =
        names.iter().map(|name| bed.ask_once(&pair, "refund", json!({ "order": name, "amount": 100 }), name));
    let answers = futures_join(asked).await;
    let passed = answers.iter().filter(|answer| answer.status == 200).count();
    let refused = answers.iter().filter(|answer| answer.status == 409).count();
    let moved = names.iter().map(|name| bed.refunded(name)).sum::<i64>();
    assert_eq!((passed, refused, moved), (10, 40, 1_000));
    assert_eq!((bed.facts("intent").len(), bed.decisions().len()), (10, 50));
}

/// Of equal requests at once one alone is performed, whatever they are named.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn equal_requests_at_once_are_performed_once() {
    const AT_ONCE: usize = 16;
    let bed = Bed::new().await;
    let pair = bed.keys(refund_agent(), &bed.ann);
    let mut held = tokio::task::JoinSet::new();
    for n in 0..AT_ONCE {
        let body = json!({ "order": "A-1", "amount": 5 });
        let request = crate::bed::request(Some(&pair.base), Some(&pair.task), "hold", &body);
        let request = writ_proxy::proxy::ProxyRequest { once: Some(format!("r-{n}")), ..request };
        let proxy = bed.proxy.clone();
        held.spawn(async move { proxy.operate(request).await });
    }
    let mut refused = 0;
    // The one that is performed is never answered.
    while refused + bed.facts("intent").len() < AT_ONCE {
        while let Some(answer) = held.try_join_next() {
            assert_eq!(answer.expect("no panic").status, 409);
            refused += 1;
        }
        tokio::task::yield_now().await;
    }
    assert_eq!(bed.facts("intent").len(), 1);
}

/// What was not performed uses up nothing.
#[tokio::test]
async fn a_target_that_is_down_uses_up_nothing() {
    let bed = Bed::new().await;
    let pair = bed.keys(refund_agent(), &bed.ann);
    let shop = bed.folder.path().join("shop.db");
    let aside = bed.folder.path().join("aside.db");
    std::fs::rename(&shop, &aside).expect("moves");
    // A connection that is open still reads the file.
    let bed = bed.restarted().await;
    let body = || json!({ "order": "A-1", "amount": 500 });
    for _ in 0..3 {
        let answer = bed.ask_once(&pair, "refund", body(), "same").await;
        assert_eq!(
            (answer.status, error_of(&answer)),
            (503, "the target is not available; nothing was performed")
        );
    }
    std::fs::rename(&aside, &shop).expect("moves back");
    for name in ["same", "other"] {
        assert_eq!(bed.ask_once(&pair, "refund", body(), name).await.status, 200, "{name}");
    }
    assert_eq!(bed.refunded("A-1"), 1_000);
}

/// What fails after midnight was counted the day before, and is given back to that day: the next one has its limit alone.
#[tokio::test]
async fn what_fails_over_midnight_is_given_back_to_its_own_day() {
    let bed = Bed::new().await;
    let targets = bed.folder.path().join("targets.toml");
    let configured = std::fs::read_to_string(&targets).expect("is there");
    let hasty = ["time_limit_secs = 1", &configured].join("\n");
    std::fs::write(&targets, hasty).expect("written");
    let bed = bed.restarted().await;
    let pair = bed.keys(refund_agent(), &bed.ann);
    let refund = |amount: i64| json!({ "order": "A-1", "amount": amount });
    let shop = rusqlite::Connection::open(bed.folder.path().join("shop.db")).expect("opens");
    shop.execute_batch("BEGIN EXCLUSIVE").expect("locks");
    let midnight = async {
        while bed.facts("intent").is_empty() {
            tokio::task::yield_now().await;
        }
        bed.clock.0.go_on(Duration::from_secs(24 * 60 * 60));
    };
    let (failed, ()) = tokio::join!(bed.ask(&pair, "refund", refund(500)), midnight);
    assert_eq!(failed.status, 503, "{failed:?}");
    shop.execute_batch("ROLLBACK").expect("unlocks");
    let today = bed.task_key(&pair.base_token, &pair.base_claims, &bed.ann);
    for (amount, status) in [(500, 200), (500, 200), (1, 409)] {
        assert_eq!(bed.ask(&today, "refund", refund(amount)).await.status, status, "{amount}");
    }
    let ledger = rusqlite::Connection::open(bed.folder.path().join("proxy/proxy.db")).expect("opens");
    let mut days =
        ledger.prepare("SELECT max(used) FROM used_limit GROUP BY day ORDER BY day").expect("is a statement");
    let used: Vec<i64> =
        days.query_map([], |row| row.get(0)).expect("reads").map(|used| used.expect("a number")).collect();
    assert_eq!(used, [0, 1_000], "yesterday and today");
}

/// One agent that floods is refused beyond its share, each time with an entry; the others are served meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_agent_that_floods_holds_up_no_other() {
    const FLOOD: usize = 10_000;
    const CLIENTS: usize = 20;
    let bed = Bed::new().await;
    let hostile = bed.keys(refund_agent(), &bed.ann);
    let mut document = refund_agent();
    document["agent"] = json!("other-agent");
    let other = bed.keys(document, &bed.bob);
    // Its share is taken by requests that never end.
    let mut held = tokio::task::JoinSet::new();
    for n in 0..MAX_AT_ONCE {
        let body = json!({ "order": "A-1", "amount": n + 1 });
        let request = crate::bed::request(Some(&hostile.base), Some(&hostile.task), "hold", &body);
        let proxy = bed.proxy.clone();
        held.spawn(async move { proxy.operate(request).await });
    }
    while bed.facts("intent").len() < MAX_AT_ONCE {
        tokio::task::yield_now().await;
    }
    let mut flood = tokio::task::JoinSet::new();
    for _ in 0..CLIENTS {
        let request = crate::bed::request(Some(&hostile.base), Some(&hostile.task), "customer", &json!({}));
        let proxy = bed.proxy.clone();
        flood.spawn(async move {
            for _ in 0..FLOOD / CLIENTS {
                let answer = proxy.operate(request.clone()).await;
                assert_eq!(
                    (answer.status, error_of(&answer)),
                    (429, "this agent has too many requests under way")
                );
            }
        });
    }
    // As often as the flood lasts, and once at least.
    let mut served = 0;
    while served == 0 || !flood.is_empty() {
        assert_eq!(bed.ask(&other, "customer", json!({})).await.status, 200);
        served += 1;
        while let Some(client) = flood.try_join_next() {
            client.expect("each of its requests was refused");
        }
    }
    let denied: i64 = rusqlite::Connection::open(bed.folder.path().join("proxy/proxy.db"))
        .and_then(|ledger| {
            ledger.query_row("SELECT count(*) FROM ledger WHERE event = 'denied'", [], |row| row.get(0))
        })
        .expect("reads");
    assert_eq!(usize::try_from(denied).expect("a number"), FLOOD, "one entry each");
}

/// Six agents whose operations never end, each with as many requests as it can have, leave room for a seventh: beyond their shares
/// they are refused at once, and it is served.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_seventh_agent_is_served_beside_six_with_slow_operations() {
    let bed = Bed::new().await;
    let pair_of = async |n: usize| {
        let mut document = refund_agent();
        document["agent"] = json!(format!("agent-{n}"));
        let opened = bed
            .proxy
            .open_case(Some("shop"), "101", &format!("S-{n}"), &BTreeMap::new())
            .await
            .expect("opens");
        bed.keys(document, &(opened.customer_token, opened.case_token))
    };
    let (mut asked, mut refused) = (tokio::task::JoinSet::new(), 0);
    for n in 0..6 {
        let pair = pair_of(n).await;
        for m in 0..MAX_AT_ONCE {
            let body = json!({ "order": "A-1", "amount": m + 1 });
            let request = crate::bed::request(Some(&pair.base), Some(&pair.task), "hold", &body);
            let proxy = bed.proxy.clone();
            asked.spawn(async move { proxy.operate(request).await });
        }
        while bed.facts("intent").len() + refused < (n + 1) * MAX_AT_ONCE {
            while let Some(answer) = asked.try_join_next() {
                assert_eq!(answer.expect("is answered").status, 429);
                refused += 1;
            }
            tokio::task::yield_now().await;
        }
    }
    // Far below the connections of one user.
    let held = bed.facts("intent").len();
    assert!((MANY_AT_ONCE..=MANY_AT_ONCE + 6 * FEW_AT_ONCE).contains(&held), "{held} held");
    const { assert!(MANY_AT_ONCE + 6 * FEW_AT_ONCE < MAX_PER_USER / 2) };
    let seventh = pair_of(7).await;
    assert_eq!(bed.ask(&seventh, "customer", json!({})).await.status, 200);
    assert_eq!(bed.ask(&seventh, "refund", json!({ "order": "A-1", "amount": 1 })).await.status, 200);
}

/// A change of another customer's row, by its id, misses: it is counted as missed, and answered like that of a row that is not
/// there. A read by an id is counted as well.
#[tokio::test]
async fn what_names_another_customers_row_is_counted_as_missed() {
    let bed = Bed::new().await;
    let one = "name = \"one\"\n[parameters.order]\ntype = \"string\"\n[target.sql]\ndatabase = \"shop\"\n\
               statement = \"SELECT id FROM orders WHERE id = :order\"\n\
               [target.sql.tables.orders]\ncustomer = \"customer_id\"\n";
    std::fs::write(bed.folder.path().join("operations/one.toml"), one).expect("writes");
    bed.proxy.reload_operations().expect("reads it");
    let mut document = refund_agent();
    document["capabilities"]["one"] = json!({});
    let pair = bed.keys(document, &bed.ann);
    for (order, rows) in [("A-1", 1), ("B-1", 0)] {
        let read = bed.ask(&pair, "one", json!({ "order": order })).await;
        assert_eq!((read.status, read.body["rows"].as_array().map(Vec::len)), (200, Some(rows)), "{order}");
    }
    let missed = json!({ "rows": [], "changed": 0, "truncated": false, "missed": true });
    let refund = |order: &str| ("refund", json!({ "order": order, "amount": 5 }));
    let ticket = |id: &str| ("ticket", json!({ "id": id }));
    // The second are there, of customer 102; the first are not there, or are the customer's own.
    let asked = [refund("A-9"), refund("B-1"), ticket("T-1"), ticket("T-2")];
    for (operation, body) in asked.clone() {
        let answer = bed.ask(&pair, operation, body.clone()).await;
        assert_eq!((answer.status, &answer.body), (200, &missed), "{operation} {body}");
    }
    for (operation, body) in [refund("A-1"), ticket("T-3")] {
        let answer = bed.ask(&pair, operation, body).await;
        assert_eq!(
            (answer.status, &answer.body["changed"], answer.body.get("missed")),
            (200, &json!(1), None)
        );
    }
    assert_eq!((bed.refunded("B-1"), bed.refunded("A-1")), (0, 5));
    let outcomes = bed.facts("outcome");
    let is_missed =
        |fact: &&Fact| matches!(fact, Fact::Outcome { summary, .. } if summary.starts_with("missed: "));
    assert_eq!(outcomes.iter().filter(is_missed).count(), asked.len(), "{outcomes:?}");
    let events = bed.proxy.read_events(0, Duration::ZERO).await.events;
    let count = |measure| events.iter().filter(|event| event.measure == measure).count();
    assert_eq!((count(EventMeasure::Missed), count(EventMeasure::Refused)), (asked.len() + 1, 0));
}

/// An operation about one row refuses what is not there as it refuses what another customer has: neither the answer nor the ledger
/// says which, nothing is used up, and a name is free again.
///
/// Rows: SLO-013
/// Rows: SLO-025 (in part: 404 as for a record that does not exist, where the row has 403)
#[tokio::test]
async fn a_record_of_another_customer_is_refused_like_one_that_is_not_there() {
    let bed = Bed::new().await;
    let declare = |name: &str, parameters: &str, statement: &str| {
        let text = format!(
            "name = \"{name}\"\n[parameters.order]\ntype = \"string\"\n{parameters}[target.sql]\ndatabase = \"shop\"\n\
             statement = \"{statement}\"\none_row = true\n[target.sql.tables.orders]\ncustomer = \"customer_id\"\n"
        );
        std::fs::write(bed.folder.path().join(format!("operations/{name}.toml")), text).expect("writes");
    };
    declare("one", "", "SELECT id, refunded FROM orders WHERE id = :order");
    let amount = "[parameters.amount]\nrole = \"amount\"\n";
    declare("repay", amount, "UPDATE orders SET refunded = refunded + :amount WHERE id = :order");
    bed.proxy.reload_operations().expect("reads them");
    let mut document = refund_agent();
    document["capabilities"]["one"] = json!({});
    document["capabilities"]["repay"] = json!({ "max_amount": 500, "daily_amount": 500 });
    let pair = bed.keys(document, &bed.ann);
    let missing = json!({ "error": "there is no such record in this case", "missed": true });
    // The first is there, of customer 102; the second is not.
    for order in ["B-1", "B-9"] {
        let read = bed.ask(&pair, "one", json!({ "order": order })).await;
        assert_eq!((read.status, &read.body), (404, &missing), "{order}");
        let body = json!({ "order": order, "amount": 500 });
        for _ in 0..2 {
            let changed = bed.ask_once(&pair, "repay", body.clone(), &format!("r-{order}")).await;
            assert_eq!((changed.status, &changed.body), (404, &missing), "{order}");
        }
    }
    let ends = |fact: &Fact| {
        let Fact::Outcome { outcome, summary, .. } = fact else { panic!("{fact:?}") };
        format!("{outcome:?} {summary}")
    };
    let ends: Vec<String> = bed.facts("outcome").iter().map(ends).collect();
    assert_eq!(ends, vec!["Failed missed: no row of this case"; 6]);
    let own = bed.ask(&pair, "one", json!({ "order": "A-1" })).await;
    assert_eq!((own.status, &own.body["rows"][0]["id"]), (200, &json!("A-1")), "twin: its own");
    let paid = bed.ask(&pair, "repay", json!({ "order": "A-1", "amount": 500 })).await;
    assert_eq!((paid.status, &paid.body["changed"]), (200, &json!(1)), "twin: the whole limit is left");
    assert_eq!((bed.refunded("B-1"), bed.refunded("A-1")), (0, 500));
    let events = bed.proxy.read_events(0, Duration::ZERO).await.events;
    assert_eq!(events.iter().filter(|event| event.measure == EventMeasure::Missed).count(), 6);
}

/// A key that another row has is missed, and another constraint is not: of neither is anything recorded as done, and both give
/// back what they counted.
#[tokio::test]
async fn what_a_constraint_stops_was_not_done_and_uses_up_nothing() {
    let bed = Bed::new().await;
    let shop = rusqlite::Connection::open(bed.folder.path().join("shop.db")).expect("opens");
    shop.execute_batch(
        "CREATE TABLE payments (id TEXT PRIMARY KEY, customer_id TEXT, amount INTEGER CHECK (amount <> 13));
         INSERT INTO payments VALUES ('P-1', '102', 1);",
    )
    .expect("a table");
    let pay = "name = \"pay\"\n[parameters.id]\ntype = \"string\"\n[parameters.amount]\nrole = \"amount\"\n\
               [target.sql]\ndatabase = \"shop\"\n\
               statement = \"INSERT INTO payments (id, amount) VALUES (:id, :amount)\"\n\
               [target.sql.tables.payments]\ncustomer = \"customer_id\"\n";
    std::fs::write(bed.folder.path().join("operations/pay.toml"), pay).expect("writes");
    bed.proxy.reload_operations().expect("reads it");
    let mut document = refund_agent();
    document["capabilities"]["pay"] = json!({ "max_amount": 500, "daily_amount": 500 });
    let pair = bed.keys(document, &bed.ann);
    let pay = |id: &str, amount: i64| json!({ "id": id, "amount": amount });
    let missed = json!({ "rows": [], "changed": 0, "truncated": false, "missed": true });
    for _ in 0..2 {
        let taken = bed.ask_once(&pair, "pay", pay("P-1", 400), "taken").await;
        assert_eq!((taken.status, &taken.body), (200, &missed));
        assert_eq!(bed.ask(&pair, "pay", pay("P-2", 13)).await.status, 503);
    }
    let outcomes = bed.facts("outcome");
    let failed = |fact: &Fact| matches!(fact, Fact::Outcome { outcome: ToolOutcome::Failed, .. });
    assert!(outcomes.len() == 4 && outcomes.iter().all(failed), "{outcomes:?}");
    assert_eq!(bed.ask(&pair, "pay", pay("P-2", 500)).await.status, 200, "the whole limit is left");
}

/// A name is good for one performance: the same request gets the same answer, another one is refused.
#[tokio::test]
async fn a_request_with_a_name_is_performed_once() {
    let bed = Bed::new().await;
    let pair = bed.keys(refund_agent(), &bed.ann);
    let body = |amount: i64| json!({ "order": "A-1", "amount": amount });
    let mut first = bed.ask_once(&pair, "refund", body(300), "r-1").await;
    assert_eq!(first.status, 200, "{first:?}");
    first.body["repeated"] = json!(true);
    let bed = bed.restarted().await;
    assert_eq!(bed.ask_once(&pair, "refund", body(300), "r-1").await, first);
    let served = bed.facts("served");
    assert!(matches!(&served[..], [Fact::Served { attempt: Some(_), .. }]), "{served:?}");
    let other = bed.ask_once(&pair, "refund", body(301), "r-1").await;
    assert_eq!(other.status, 409, "{other:?}");
    assert_eq!(bed.ask_once(&pair, "refund", body(300), "r-2").await.status, 200, "twin: another name");
    assert_eq!(bed.refunded("A-1"), 600);
    for bad in ["", "a b", &"x".repeat(129)] {
        assert_eq!(bed.ask_once(&pair, "refund", body(1), bad).await.status, 422, "{bad:?}");
    }
}

/// Awaits futures at the same time, each as a part of this task.
async fn futures_join<F: Future>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    let mut waiting: Vec<_> = futures.into_iter().map(|future| Some(Box::pin(future))).collect();
    let mut done: Vec<Option<F::Output>> = waiting.iter().map(|_| None).collect();
    std::future::poll_fn(|context| {
        for (slot, done) in waiting.iter_mut().zip(&mut done) {
            if let Some(future) = slot
                && let std::task::Poll::Ready(output) = future.as_mut().poll(context)
            {
                *done = Some(output);
                *slot = None;
            }
        }
        if waiting.iter().all(Option::is_none) {
            std::task::Poll::Ready(())
        } else {
            std::task::Poll::Pending
        }
    })
    .await;
    done.into_iter().flatten().collect()
}
