//! The names of what a client may call, by where it may be called from. What is in neither list cannot be called by
//! pages and programs.

/// What the owner's terminal alone may call: it makes keys, decides who may approve, starts what runs outside a session, or
/// takes something away for good. Whoever has stolen a page's cookie or the token must not.
pub const TERMINAL_ONLY: [&str; 12] = [
    "approvers.permit",
    "approvers.remove",
    "gates.judge",
    "keys.issued",
    "keys.mint",
    "keys.narrow",
    "keys.renew",
    "ledger.erase",
    "mcp.probe",
    "mcp.reload",
    "orders.issue",
    "secrets.changed",
];

/// What pages and programs may call, too, once they have shown a secret. The list may only shrink: what is new begins
/// at the terminal.
pub const ANYWHERE: [&str; 31] = [
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
    "keys.revoke",
    "ledger.list",
    "ledger.proof",
    "ledger.rests_on",
    "memory.add",
    "memory.forget",
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
    use std::collections::BTreeSet;

    use super::*;

    /// The names in the dispatcher's table: its arms begin with them.
    fn dispatched() -> BTreeSet<&'static str> {
        let lines = include_str!("calls.rs").lines().map(str::trim_start);
        let arms = lines.filter_map(|line| line.strip_prefix('"')?.split_once("\" =>"));
        arms.map(|(name, _)| name).collect()
    }

    #[test]
    fn every_method_is_in_one_of_the_lists_and_in_no_more() {
        let listed: BTreeSet<&str> = TERMINAL_ONLY.into_iter().chain(ANYWHERE).collect();
        assert_eq!(listed.len(), TERMINAL_ONLY.len() + ANYWHERE.len(), "none is in both, and none twice");
        assert_eq!(dispatched(), listed);
        assert!(TERMINAL_ONLY.is_sorted() && ANYWHERE.is_sorted());
    }
}
