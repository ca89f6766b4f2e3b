//! The names under which the door asks, beside those of rules.

use std::collections::BTreeSet;

/// Taint asks: the action rests on external content.
pub(crate) const TAINT_RULE: &str = "taint";

/// The beginning of the name of a gate that asks.
pub(crate) const GATE_RULE: &str = "gate ";

/// An earlier attempt at the same action has no outcome.
pub(crate) const LOST_RULE: &str = "unknown outcome";

/// Returns true if one of these questions is about this one attempt. Neither a standing approval nor a plan answers it: a gate has seen
/// exactly this action, and an attempt without an outcome may have been performed.
pub(crate) fn asks_about_this_time(rules: &BTreeSet<String>) -> bool {
    rules.iter().any(|rule| rule.starts_with(GATE_RULE) || rule == LOST_RULE)
}
