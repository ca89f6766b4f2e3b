//! The Test Anything Protocol, versions 12 to 14: `1..3`, `ok 1`, `not ok 2 # skip`, `Bail out!`.

use super::counts::{ReportError, TestCounts, malformed};

/// Counts the results of the outermost level: each stands for the indented ones below it.
pub(super) fn count_tap(text: &str) -> Result<TestCounts, ReportError> {
    let (mut counts, mut results, mut plan) = (TestCounts::default(), 0_u64, None);
    for line in text.lines() {
        if line.starts_with("Bail out!") {
            // It ends the run, also before the first result.
            counts.failed = counts.failed.saturating_add(1);
            return Ok(counts);
        }
        if let Some(rest) = line.strip_prefix("1..") {
            let number = rest.split_whitespace().next().and_then(|number| number.parse::<u64>().ok());
            let Some(number) = number else { return malformed("a plan without a number") };
            if plan.replace(number).is_some_and(|before| before != number) {
                return malformed("two plans");
            }
            continue;
        }
        let Some((is_ok, rest)) = read_result(line) else { continue };
        results += 1;
        let directive =
            rest.rsplit_once('#').map_or(String::new(), |(_, text)| text.trim().to_ascii_lowercase());
        if directive.starts_with("skip") || (directive.starts_with("todo") && !is_ok) {
            counts.skipped += 1;
        } else if is_ok {
            counts.passed += 1;
        } else {
            counts.failed += 1;
        }
    }
    // The plan is the only word about how many there should be.
    match plan {
        Some(plan) if plan == results => Ok(counts),
        Some(plan) if plan < results => malformed(format!("{plan} tests planned, {results} results")),
        // A failure is one, also where the rest is missing.
        Some(_) | None if counts.failed > 0 => Ok(counts),
        None if results == 0 => Err(ReportError::NoSummary),
        Some(_) | None => Err(ReportError::Truncated),
    }
}

fn read_result(line: &str) -> Option<(bool, &str)> {
    let (is_ok, rest) = match line.strip_prefix("not ok") {
        Some(rest) => (false, rest),
        None => (true, line.strip_prefix("ok")?),
    };
    // `okay` is no result.
    (rest.is_empty() || rest.starts_with([' ', '\t'])).then_some((is_ok, rest))
}
