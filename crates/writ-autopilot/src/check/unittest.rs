//! The text of Python's `unittest`: `Ran 3 tests in 0.001s`, then `OK (skipped=1)`, `FAILED (failures=1, errors=1)` or
//! `NO TESTS RAN`.
//!
//! Tests that were skipped are among those that it says to have run. Failures may be more than tests: each subtest has its own.

use super::counts::{ReportError, TestCounts, malformed};

pub(super) fn count_unittest(text: &str) -> Result<TestCounts, ReportError> {
    let (mut ran, mut ended) = (None, None);
    for line in text.lines().map(str::trim_end) {
        if let Some(number) = read_ran(line) {
            // A program under test that prints such a line would make itself a report.
            if ran.replace(number).is_some() {
                return malformed("two summaries");
            }
        } else if let (Some(number), None, Some(result)) = (ran, ended, read_result(line)) {
            ended = Some(join_counts(number, result?)?);
        }
    }
    match (ran, ended) {
        (_, Some(counts)) => Ok(counts),
        (Some(_), None) => Err(ReportError::Truncated),
        (None, None) => Err(ReportError::NoSummary),
    }
}

/// Reads `Ran 3 tests in 0.001s`.
fn read_ran(line: &str) -> Option<u64> {
    let (number, rest) = line.strip_prefix("Ran ")?.split_once(' ')?;
    let time = rest.strip_prefix("tests in ").or_else(|| rest.strip_prefix("test in "))?;
    let seconds = time.strip_suffix('s')?;
    let is_time = !seconds.is_empty() && seconds.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    number.parse().ok().filter(|_| is_time)
}

/// The word of a result, and its numbers.
struct UnittestEnd {
    is_ok: bool,
    failed: u64,
    skipped: u64,
}

fn read_result(line: &str) -> Option<Result<UnittestEnd, ReportError>> {
    let (word, items) = line.split_once(" (").map_or((line, ""), |(word, items)| (word, items));
    let is_ok = match word {
        "OK" | "NO TESTS RAN" => true,
        "FAILED" => false,
        _ => return None,
    };
    let mut end = UnittestEnd { is_ok, failed: 0, skipped: 0 };
    for item in items.trim_end_matches(')').split(", ").filter(|item| !item.is_empty()) {
        let read = item.split_once('=').and_then(|(name, number)| Some((name, number.parse::<u64>().ok()?)));
        let Some((name, number)) = read else { return Some(malformed("a result without counts")) };
        match name {
            "failures" | "errors" | "unexpected successes" => end.failed = end.failed.saturating_add(number),
            // A test that is expected to fail proves nothing by failing.
            "skipped" | "expected failures" => end.skipped = end.skipped.saturating_add(number),
            _ => return Some(malformed("a result with an unknown count")),
        }
    }
    Some(Ok(end))
}

fn join_counts(ran: u64, end: UnittestEnd) -> Result<TestCounts, ReportError> {
    if end.is_ok != (end.failed == 0) {
        return malformed("its word and its counts do not agree");
    }
    // One that was skipped with its class was never begun.
    let passed = ran.saturating_sub(end.failed).saturating_sub(end.skipped);
    Ok(TestCounts { passed, failed: end.failed, skipped: end.skipped, filtered: 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(ran: &str, end: &str) -> String {
        format!(
            "..s\n----------------------------------------------------------------------\n{ran}\n\n{end}\n"
        )
    }

    #[test]
    fn a_summary_is_read_with_all_its_words() {
        let counts = |ran: &str, end: &str| {
            count_unittest(&report(ran, end)).map(|counts| (counts.passed, counts.failed, counts.skipped))
        };
        assert_eq!(counts("Ran 3 tests in 0.001s", "OK"), Ok((3, 0, 0)));
        assert_eq!(counts("Ran 1 test in 12s", "OK (skipped=1)"), Ok((0, 0, 1)));
        assert_eq!(
            counts(
                "Ran 9 tests in 0.1s",
                "FAILED (failures=1, errors=2, skipped=1, expected failures=1, unexpected successes=1)"
            ),
            Ok((3, 4, 2))
        );
        assert_eq!(counts("Ran 1 test in 0.1s", "FAILED (failures=5)"), Ok((0, 5, 0)), "of subtests");
        assert_eq!(counts("Ran 0 tests in 0.000s", "OK"), Ok((0, 0, 0)));
        assert_eq!(counts("Ran 0 tests in 0.000s", "NO TESTS RAN"), Ok((0, 0, 0)));
        assert_eq!(count_unittest("Ran 3 tests in 0.001s\n"), Err(ReportError::Truncated));
        assert_eq!(count_unittest("OK\nRan away\n"), Err(ReportError::NoSummary));
    }

    #[test]
    fn a_report_that_a_program_has_printed_besides_is_none() {
        let twice = format!("{}{}", report("Ran 9 tests in 0.1s", "OK"), report("Ran 3 tests in 0.1s", "OK"));
        for text in [
            twice.as_str(),
            &report("Ran 3 tests in 0.1s", "FAILED"),
            &report("Ran 3 tests in 0.1s", "OK (failures=1)"),
            &report("Ran 3 tests in 0.1s", "OK (all=3)"),
        ] {
            assert!(matches!(count_unittest(text), Err(ReportError::Malformed(_))), "{text}");
        }
    }
}
