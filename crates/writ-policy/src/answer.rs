//! Labels of the answers to a card, with the number of uses and the duration of each; every client shows the same.

use writ_types::entry::{ApprovalScope, Decision};
use writ_types::frame::Card;

use crate::pattern::standing;

/// The action of a card that applies changes to a project.
const WRITE_FILE: &str = "write_file";
/// Units of time, the largest first, in seconds.
const UNITS: [(u64, &str); 3] = [(86_400, "day"), (3_600, "hour"), (60, "minute")];

/// Returns the label of an answer to a card.
pub fn answer_label(decision: Decision, scope: ApprovalScope, card: &Card) -> String {
    match (decision, scope) {
        (Decision::Deny, _) => "Deny".to_owned(),
        (Decision::Approve, ApprovalScope::Once) => "Approve".to_owned(),
        (Decision::Approve, ApprovalScope::Values) => "Approve, and these values are mine".to_owned(),
        (Decision::Approve, ApprovalScope::Host) => "Approve and trust this host".to_owned(),
        (Decision::Approve, ApprovalScope::Task) => {
            let what =
                if card.action == WRITE_FILE { "later changes to this folder" } else { "similar requests" };
            let bounds = card.task.as_ref().map(|offer| limits_text(offer.uses, offer.secs));
            format!("Also approve {what}, unseen{}", bounds.unwrap_or_default())
        }
        (Decision::Approve, ApprovalScope::Standing) => {
            // The limits that are signed if the person names no others.
            let bounds = card.standing.as_ref().map(|offer| {
                limits_text(offer.max_uses.min(standing::USES), offer.max_secs.min(standing::TTL.as_secs()))
            });
            format!("Allow this exact request{}", bounds.unwrap_or_default())
        }
    }
}

fn limits_text(uses: u32, secs: u64) -> String {
    format!(" ({}, {})", plural_of(u64::from(uses), "time"), span_text(secs))
}

/// Returns a duration in the largest unit of which it is a whole number above one, or in minutes, rounded up.
fn span_text(secs: u64) -> String {
    let fits = |(size, _): &&(u64, &str)| secs > *size && secs.is_multiple_of(*size);
    let (size, unit) = UNITS.iter().find(fits).copied().unwrap_or((60, "minute"));
    plural_of(secs.div_ceil(size).max(1), unit)
}

fn plural_of(count: u64, one: &str) -> String {
    format!("{count} {one}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_said_in_the_largest_unit() {
        for (secs, said) in [
            (20, "1 minute"),
            (60, "1 minute"),
            (3_600, "60 minutes"),
            (5_400, "90 minutes"),
            (7_200, "2 hours"),
            (86_400, "24 hours"),
            (7 * 86_400, "7 days"),
        ] {
            assert_eq!(span_text(secs), said);
        }
        assert_eq!(limits_text(1, 604_800), " (1 time, 7 days)");
    }
}
