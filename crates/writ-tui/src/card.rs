//! The card that a person answers.

use std::io::{self, Write};

use writ_inspect::reach;
use writ_policy::answer;
use writ_policy::pattern::describe_consequence;
use writ_policy::taint::describe_endorsement;
use writ_types::entry::{ApprovalScope, Decision, Risk};
use writ_types::frame::Card;
use writ_types::visible::{escape_line, escape_text};

use crate::renderer::Paint;

/// Writes a card: everything that is needed to answer, nothing cut.
pub(crate) fn write_card(out: &mut impl Write, paint: Paint, card: &Card) -> io::Result<()> {
    // The colour follows the risk, and the word stands there without colour, too.
    let risk = match card.risk {
        Risk::Low => paint.plain_text("low"),
        Risk::Medium => paint.yellow("medium"),
        Risk::High => paint.red("high"),
        Risk::Irreversible => paint.red("irreversible"),
    };
    let title = format!("approval {} ({})", card.ask_id, escape_line(&card.action));
    writeln!(out, "+-- {}, risk: {risk}", paint.bold(&title))?;
    writeln!(out, "| {}", escape_line(&card.intent))?;
    if !card.rationale.is_empty() {
        write_block(out, "why: ", &card.rationale)?;
    }
    writeln!(out, "|")?;
    write_block(out, "  ", &card.shown)?;
    writeln!(out, "|")?;
    for choice in &card.choices {
        // The coverage of an approval for the task is described in the words that would be signed.
        let consequence = match (choice.decision, choice.scope, &card.task) {
            (Decision::Deny, _, _) | (Decision::Approve, ApprovalScope::Once, _) => {
                escape_line(&choice.consequence)
            }
            (Decision::Approve, ApprovalScope::Task, Some(offer)) => describe_consequence(offer).into(),
            (Decision::Approve, ApprovalScope::Values, _) if card.values.is_empty() => continue,
            (Decision::Approve, ApprovalScope::Values, _) => describe_endorsement(&card.values).into(),
            (Decision::Approve, ApprovalScope::Host, _) => match &card.host {
                Some(host) => reach::describe_trust(host).into(),
                None => continue,
            },
            // A conversation has no key for what outlives it.
            (Decision::Approve, ApprovalScope::Task, None)
            | (Decision::Approve, ApprovalScope::Standing, _) => {
                continue;
            }
        };
        let label = answer::answer_label(choice.decision, choice.scope, card);
        writeln!(out, "| {}: {consequence}", paint.bold(&label))?;
    }
    writeln!(out, "| prepared {}", card.prepared)?;
    writeln!(out, "+-- until {}", card.expires_at)
}

/// A text of several lines inside the card. Every line has the card's edge, so that no text can look like its end.
fn write_block(out: &mut impl Write, indent: &str, text: &str) -> io::Result<()> {
    let text = escape_text(text);
    // Not `lines`: a text that ends with a line break has an empty line there, and it is shown.
    text.split('\n').try_for_each(|line| writeln!(out, "| {indent}{line}"))
}
