//! The names of what a client may call, by where it may be called from. What is in neither list cannot be called by
//! pages and programs.

/// What the owner's terminal alone may call: it makes keys, decides who may approve, starts what runs outside a session, spends
/// money outside a conversation, or takes something away for good. Whoever has stolen a page's cookie or the token must not.
pub const TERMINAL_ONLY: [&str; 16] = [
    "approvers.permit",
    "approvers.remove",
    "gates.judge",
    "keys.issued",
    "keys.mint",
    "keys.narrow",
    "keys.renew",
    "keys.revoke",
    "ledger.erase",
    "mcp.probe",
    "mcp.reload",
    "memory.forget",
    "models.list",
    "models.test",
    "orders.issue",
    "secrets.changed",
];

/// What pages and programs may call, too, once they have shown a secret. The list may only shrink: what is new begins
/// at the terminal.
pub const ANYWHERE: [&str; 29] = [
    "apply",
    "approvals.hosts",
    "approvals.in_force",
    "approvals.list",
    "approvals.rests_on",
    "approvals.review",
    "approvals.revoke",
    "approvals.show",
    "approvers.list",
    "diff",
    "gates.answer",
    "gates.show",
    "keys.list",
    "ledger.list",
    "ledger.proof",
    "ledger.rests_on",
    "memory.add",
    "memory.search",
    "orders.list",
    "orders.open",
    "ping",
    "sandbox.exec",
    "sessions.close",
    "sessions.list",
    "sessions.show",
    "status",
    "undo",
    "undo.last",
    "undo.list",
];

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    /// What pages and programs may call that is more than a look into the store, and why they may.
    const MORE: [(&str, &str); 9] = [
        ("apply", "the door judges it as in a turn"),
        ("approvals.revoke", "less is granted than before"),
        ("diff", "it looks into the work folder"),
        ("gates.answer", "it answers a gate that waits for whoever watches the session"),
        ("memory.add", "it is their owner's word, as what they send into a session is"),
        ("orders.open", "the order was signed in the terminal"),
        ("sandbox.exec", "the door judges it as in a turn"),
        ("sessions.close", "what was said is kept, and what was made can still be applied and undone"),
        ("undo", "the door judges it as in a turn"),
    ];

    /// What they may call that only looks into the store.
    const LOOKS: [&str; 20] = [
        "approvals.hosts",
        "approvals.in_force",
        "approvals.list",
        "approvals.rests_on",
        "approvals.review",
        "approvals.show",
        "approvers.list",
        "gates.show",
        "keys.list",
        "ledger.list",
        "ledger.proof",
        "ledger.rests_on",
        "memory.search",
        "orders.list",
        "ping",
        "sessions.list",
        "sessions.show",
        "status",
        "undo.last",
        "undo.list",
    ];

    /// The arms of the dispatcher's table, by the names that they begin with.
    fn dispatched() -> BTreeMap<&'static str, String> {
        let mut arms: BTreeMap<&str, String> = BTreeMap::new();
        let mut name = None;
        for line in include_str!("calls.rs").lines().map(str::trim_start) {
            if line.starts_with("_ => Err(no_method())") {
                break;
            }
            name = line
                .strip_prefix('"')
                .and_then(|line| line.split_once("\" =>"))
                .map(|(name, _)| name)
                .or(name);
            arms.entry(name.unwrap_or_default()).or_default().push_str(line);
        }
        arms.remove("");
        arms
    }

    #[test]
    fn every_method_is_in_one_of_the_lists_and_in_no_more() {
        let listed: BTreeSet<&str> = TERMINAL_ONLY.into_iter().chain(ANYWHERE).collect();
        assert_eq!(listed.len(), TERMINAL_ONLY.len() + ANYWHERE.len(), "none is in both, and none twice");
        assert_eq!(dispatched().into_keys().collect::<BTreeSet<_>>(), listed);
        assert!(TERMINAL_ONLY.is_sorted() && ANYWHERE.is_sorted());
    }

    /// Whatever writes to the ledger is waited for.
    #[test]
    fn what_pages_and_programs_may_call_looks_or_is_one_of_a_few() {
        let mut may: Vec<&str> = MORE.iter().map(|(name, _)| *name).chain(LOOKS).collect();
        may.sort_unstable();
        assert_eq!(may, ANYWHERE);
        let dispatched = dispatched();
        let waits = |name: &&str| dispatched.get(*name).is_some_and(|arm| arm.contains(".await"));
        assert_eq!(LOOKS.iter().find(|name| waits(name)), None);
    }
}
