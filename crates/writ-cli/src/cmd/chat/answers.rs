//! The possible answers to a question, in words.

use writ_policy::answer;
use writ_types::entry::{ApprovalScope, Decision};
use writ_types::frame::{Card, ServerFrame};

/// Returns the possible answers to a gate, or to a server of tools.
pub(super) fn gate_answers(frame: &ServerFrame) -> String {
    let ServerFrame::GateApproval { point, fields, .. } = frame else { return String::new() };
    let set: Vec<String> = fields.iter().map(|field| format!("{}=\u{2026}", field.name)).collect();
    match point.as_str() {
        "server" if set.is_empty() => "Answer it? y or n; the turn waits.".to_owned(),
        "server" => format!("Answer it? y {}, or n; the turn waits.", set.join("; ")),
        _ => "Let it pass? y or n; the turn waits.".to_owned(),
    }
}

/// Returns the possible answers to a card: each letter with the answer's usual name.
pub(super) fn card_answers(card: &Card) -> String {
    // Only the scopes that the card offers.
    let offered = [
        ("y", ApprovalScope::Once, true),
        ("t", ApprovalScope::Task, card.task.is_some()),
        ("v", ApprovalScope::Values, !card.values.is_empty()),
        ("h", ApprovalScope::Host, card.host.is_some()),
    ];
    let offered = offered.into_iter().filter(|(_, _, is)| *is);
    let named = offered.map(|(key, scope, _)| (key, answer::answer_label(Decision::Approve, scope, card)));
    let deny = ("n", answer::answer_label(Decision::Deny, ApprovalScope::Once, card));
    let lines: Vec<String> = named.chain([deny]).map(|(key, label)| format!("\n  {key}  {label}")).collect();
    format!("Approve exactly this?{}\n  Enter leaves it open.", lines.concat())
}
