//! The proxy has no business logic: a rule of the business is an operation's, or the agent's.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::json;

use crate::bed::{Bed, refund_agent};

/// Adds the crates of the workspace that a crate is built of, without those for its tests.
fn add_parts(name: &str, parts: &mut BTreeSet<String>) {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name).join("Cargo.toml");
    let manifest = std::fs::read_to_string(manifest).expect("a manifest");
    let manifest: toml::Table = manifest.parse().expect("TOML");
    let needed = manifest["dependencies"].as_table().expect("a table").keys();
    for part in needed.filter(|part| part.starts_with("writ-")) {
        if parts.insert(part.clone()) {
            add_parts(part, parts);
        }
    }
}

/// What agents are for, which agent gets a case, and what it is told are no parts of the proxy. What it shares with the
/// engine is the door, and that knows actions and keys.
fn check_parts() {
    let mut parts = BTreeSet::new();
    add_parts("writ-proxy", &mut parts);
    for outside in ["writ-fleet", "writ-launch", "writ-gateway", "writ-cli", "writ-tui"] {
        assert!(!parts.contains(outside), "the proxy needs {outside}");
    }
    assert!(parts.contains("writ-policy") && parts.contains("writ-runtime"), "twin: what it does need");
    let mut operations = BTreeSet::new();
    add_parts("writ-operations", &mut operations);
    assert!(!operations.contains("writ-runtime") && !operations.contains("writ-agent"), "{operations:?}");
}

/// The proxy is built of no rules of a business: a new one changes a file, and the proxy that runs obeys it; one that cannot be
/// read changes nothing.
///
/// Rows: SLO-030
/// Rows: SLO-029 (in part: over the proxy)
#[tokio::test]
async fn a_new_business_rule_needs_no_change_of_the_proxy() {
    check_parts();
    let bed = Bed::new().await;
    let pair = bed.keys(refund_agent(), &bed.ann);
    let refund = |order: &str, amount: i64| json!({ "order": order, "amount": amount });
    // As it was declared, an order can be refunded twice: what was refunded before is the agent's to know.
    for _ in 0..2 {
        assert_eq!(bed.ask(&pair, "refund", refund("A-1", 200)).await.status, 200);
    }
    let file = bed.folder.path().join("operations/refund.toml");
    let declared = std::fs::read_to_string(&file).expect("is there");
    // The rule: an order is refunded once, and by 100 at most.
    let once = declared
        .replace("WHERE id = :order", "WHERE id = :order AND refunded = 0")
        .replace("role = \"amount\"", "role = \"amount\"\nmaximum = 100");
    assert_ne!(once, declared);
    std::fs::write(&file, &once).expect("writes");
    bed.proxy.reload_operations().expect("reads it");
    assert_eq!(bed.ask(&pair, "refund", refund("A-2", 101)).await.status, 422, "the new bound");
    let again = bed.ask(&pair, "refund", refund("A-1", 50)).await;
    assert_eq!(
        (again.status, &again.body["changed"]),
        (200, &json!(0)),
        "refunded before: no row is changed"
    );
    let first = bed.ask(&pair, "refund", refund("A-2", 100)).await;
    assert_eq!((first.status, &first.body["changed"]), (200, &json!(1)), "twin: {first:?}");
    assert_eq!((bed.refunded("A-1"), bed.refunded("A-2")), (400, 100));
    // A file with a mistake leaves the rule in force.
    std::fs::write(&file, declared.replace("UPDATE", "UPSERT")).expect("writes");
    let refused = bed.proxy.reload_operations().expect_err("is malformed").to_string();
    assert!(refused.contains("refund.toml:"), "{refused}");
    assert_eq!(bed.ask(&pair, "refund", refund("A-2", 101)).await.status, 422, "the last good one");
}
