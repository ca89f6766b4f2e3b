//! `writ approvals cadence`: how questions were answered, and offers to be asked less or more.

use writ_inspect::show::escape_line;
use writ_types::api::approval::{AskCadence, CadenceDirection, CadenceOffer};

/// Returns the lines about the cadence of questions.
pub(super) fn describe_cadence(cadence: &AskCadence) -> Vec<String> {
    let answered = cadence.approved.saturating_add(cadence.denied);
    let mut lines = vec![
        format!(
            "questions  {answered} answered in {} days, {} without an answer",
            cadence.days, cadence.expired
        ),
        format!("denied     {}", share(cadence.denied, answered)),
        format!("answered   {}", cadence.median_ms.map_or_else(|| "none yet".to_owned(), median)),
        format!("undone     {}", share(count(cadence.undone), count(cadence.applied))),
    ];
    lines.extend(cadence.offers.iter().map(describe_offer));
    lines
}

fn count(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

fn share(part: usize, whole: usize) -> String {
    let per_cent = part.saturating_mul(100).checked_div(whole).unwrap_or(0);
    format!("{part} of {whole} ({per_cent} %)")
}

fn median(millis: u64) -> String {
    format!("half of them within {}.{} s", millis / 1_000, millis % 1_000 / 100)
}

fn describe_offer(offer: &CadenceOffer) -> String {
    let what = escape_line(&offer.likeness);
    match offer.direction {
        CadenceDirection::Widen => format!(
            "ask less   {what}: approved {} times, never denied or undone; `writ approvals show {}` says how far a longer \
             approval reaches, and `writ approvals revoke` takes it back",
            offer.approved, offer.ask_id
        ),
        CadenceDirection::Narrow => format!(
            "ask again  {what}: {} denied and {} undone since it was approved for longer; `writ approvals revoke {}`",
            offer.denied, offer.undone, offer.ask_id
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_offers_are_said_in_words() {
        let offer = |direction| CadenceOffer {
            direction,
            ask_id: "Ab3dEf9Z".parse().expect("an id"),
            likeness: "memory_store (remember), naming kind".to_owned(),
            approved: 7,
            denied: 1,
            undone: 2,
            median_ms: Some(2_500),
        };
        let cadence = AskCadence {
            days: 30,
            approved: 9,
            denied: 1,
            expired: 3,
            median_ms: Some(2_540),
            applied: 4,
            undone: 1,
            offers: vec![offer(CadenceDirection::Widen), offer(CadenceDirection::Narrow)],
        };
        let text = describe_cadence(&cadence).join("\n");
        for wanted in [
            "10 answered in 30 days",
            "1 of 10 (10 %)",
            "within 2.5 s",
            "1 of 4 (25 %)",
            "approved 7 times",
            "revoke Ab3dEf9Z",
        ] {
            assert!(text.contains(wanted), "{wanted}: {text}");
        }
        let nothing = AskCadence {
            approved: 0,
            denied: 0,
            applied: 0,
            undone: 0,
            median_ms: None,
            offers: Vec::new(),
            ..cadence
        };
        assert!(describe_cadence(&nothing).join("\n").contains("0 of 0 (0 %)"));
    }
}
