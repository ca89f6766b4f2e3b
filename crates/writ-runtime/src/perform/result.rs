//! Reads more of an earlier result that was too long to be shown whole.

use writ_policy::permit::Permit;
use writ_store::reads::ResultReads as _;
use writ_tools::outcome::PerformedOutcome;
use writ_types::action::ReadResult;
use writ_types::error::{Exit, Report};

use crate::error::EngineError;
use crate::place::{CallPlace, opened};

/// Characters before a text that was found, which show where it stands.
const BEFORE_FOUND: u64 = 200;

/// Reads a part of an earlier result of the session, unless it is withheld from the model.
pub(super) async fn read_result(
    place: &CallPlace,
    permit: Permit,
    read: &ReadResult,
) -> Result<PerformedOutcome, EngineError> {
    opened(place, permit)?;
    let failed = |code: &'static str, text: &str, hint: &str| PerformedOutcome::Failed {
        report: Report::new(Exit::Usage, code, text).with_hint(hint),
    };
    let stored = place.services.journal.store.withheld_result(place.session.id, read.result).await?;
    let Some(stored) = stored else {
        let text = "there is no such handle here, or not any more";
        return Ok(failed("result.unknown", text, "call the tool again"));
    };
    if !stored.readable {
        return Ok(failed(
            "result.withheld",
            "that result is withheld from you",
            "ask about it with result_ask",
        ));
    }
    let total = u64::try_from(stored.text.chars().count()).unwrap_or(u64::MAX);
    let mut from = read.from;
    if !read.find.is_empty() {
        let skipped = usize::try_from(from.saturating_sub(1)).unwrap_or(usize::MAX);
        let start = stored.text.char_indices().nth(skipped).map_or(stored.text.len(), |(byte, _)| byte);
        let rest = stored.text.get(start..).unwrap_or_default();
        let Some(found) = rest.find(&read.find) else {
            let text = format!("that text does not stand there from character {from} on");
            return Ok(failed("result.not_found", &text, "it is compared letter by letter"));
        };
        let before = rest.get(..found).unwrap_or_default().chars().count();
        from = from
            .saturating_add(u64::try_from(before).unwrap_or(u64::MAX))
            .saturating_sub(BEFORE_FOUND)
            .max(1);
    }
    let skipped = usize::try_from(from.saturating_sub(1)).unwrap_or(usize::MAX);
    let most = usize::try_from(read.chars).unwrap_or(usize::MAX);
    let text = stored.text.chars().skip(skipped).take(most).collect();
    Ok(PerformedOutcome::Part { tool: stored.tool, text, from, total, label: Box::new(stored.label) })
}
