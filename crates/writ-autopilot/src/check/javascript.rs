//! The reports of Jest and Vitest: one object of JSON, or the lines of the summary.

use serde_json::Value;

use super::counts::{ReportError, TestCounts, malformed, read_item};

/// The most lines, from the end, in which the object is looked for.
const MAX_JSON_LINES: usize = 2_000;

pub(super) fn count_jest(text: &str) -> Result<TestCounts, ReportError> {
    find_object(text)
        .map_or_else(|| count_lines(text, "Tests:", "Test Suites:", ','), |object| read_object(&object))
}

pub(super) fn count_vitest(text: &str) -> Result<TestCounts, ReportError> {
    find_object(text)
        .map_or_else(|| count_lines(text, "Tests ", "Test Files ", '|'), |object| read_object(&object))
}

/// Finds the object of a report: the whole text, or a line of it, since other output may come before and after.
fn find_object(text: &str) -> Option<Value> {
    let is_report = |value: &Value| value.get("numTotalTests").is_some();
    let whole = text.trim();
    if whole.starts_with('{')
        && let Ok(value) = serde_json::from_str::<Value>(whole)
    {
        return Some(value).filter(is_report);
    }
    let lines = text.lines().rev().take(MAX_JSON_LINES).filter(|line| line.starts_with('{'));
    lines.filter_map(|line| serde_json::from_str::<Value>(line.trim()).ok()).find(is_report)
}

fn read_object(report: &Value) -> Result<TestCounts, ReportError> {
    let number = |key: &str| report.get(key).and_then(Value::as_u64).unwrap_or(0);
    let (passed, failed) = (number("numPassedTests"), number("numFailedTests"));
    let skipped = number("numPendingTests").saturating_add(number("numTodoTests"));
    let total = number("numTotalTests");
    let sum = passed.saturating_add(failed).saturating_add(skipped);
    // A report that was edited, or of a version with other words.
    if sum != total {
        return malformed(format!("{total} tests in all, {sum} in its parts"));
    }
    // A file that could not be loaded has no tests, but it is a failure.
    let suites =
        number("numRuntimeErrorTestSuites").max(if failed == 0 { number("numFailedTestSuites") } else { 0 });
    let is_failed = report.get("success").and_then(Value::as_bool) == Some(false);
    let failed = failed.saturating_add(suites);
    // Unmet thresholds and open handles fail a run without a failed test.
    let failed = if is_failed { failed.max(1) } else { failed };
    Ok(TestCounts { passed, failed, skipped, filtered: 0 })
}

/// Reads `Tests: 1 failed, 2 passed, 3 total` or `Tests  1 failed | 2 passed (3)`, with the line about files.
fn count_lines(text: &str, tests: &str, suites: &str, between: char) -> Result<TestCounts, ReportError> {
    let (mut all, mut failed_suites, mut has_summary) = (TestCounts::default(), 0_u64, false);
    for line in text.lines().map(str::trim) {
        if let Some(rest) = line.strip_prefix(tests) {
            has_summary = true;
            all = all.plus(read_line(rest, between)?);
        } else if let Some(rest) = line.strip_prefix(suites) {
            has_summary = true;
            let failed =
                rest.split(between).filter_map(read_item).find(|(_, word)| word.starts_with("failed"));
            failed_suites = failed_suites.saturating_add(failed.map_or(0, |(number, _)| number));
        } else if let Some((number, "error" | "errors")) = line.strip_prefix("Errors ").and_then(read_item) {
            // An error outside of every test.
            all.failed = all.failed.saturating_add(number);
        } else if line.starts_with("No tests found") || line.starts_with("No test files found") {
            has_summary = true;
        }
    }
    // With failed tests the files that hold them are failed, too: they count once.
    if all.failed == 0 {
        all.failed = failed_suites;
    }
    if has_summary { Ok(all) } else { Err(ReportError::NoSummary) }
}

fn read_line(rest: &str, between: char) -> Result<TestCounts, ReportError> {
    let (mut counts, mut total) = (TestCounts::default(), None);
    // Vitest ends with the sum in brackets.
    let (items, sum) = rest.split_once('(').map_or((rest, None), |(items, sum)| (items, Some(sum)));
    for (number, word) in items.split(between).filter_map(read_item) {
        match word {
            "passed" => counts.passed = number,
            "failed" => counts.failed = number,
            "skipped" | "todo" | "pending" => counts.skipped = counts.skipped.saturating_add(number),
            "total" => total = Some(number),
            _ => {}
        }
    }
    let total = total.or_else(|| sum?.trim_end_matches(')').parse().ok());
    let sum = counts.executed().saturating_add(counts.skipped);
    match total {
        Some(total) if total != sum => malformed(format!("{total} tests in all, {sum} in its parts")),
        Some(_) | None => Ok(counts),
    }
}
