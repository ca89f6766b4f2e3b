//! Counts of tests, from the reports of their runners.
//!
//! Reports are foreign text: a test can print into them, a crash can end them early, a terminal can colour them. So every
//! reader is bounded, compares sums where the format has them, and refuses a report that is not whole.

use serde::{Deserialize, Serialize};

use super::text::strip_colours;
use super::{go_test, javascript, junit, tap, unittest};

/// The largest report that is read, in bytes.
pub const MAX_REPORT_BYTES: usize = 32 * 1024 * 1024;

/// Numbers of tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TestCounts {
    /// Tests that ran and passed.
    pub passed: u64,
    /// Tests that ran and failed, with files and packages that could not be tested at all.
    pub failed: u64,
    /// Tests that were there and did not count: skipped, ignored, to be done, expected to fail.
    pub skipped: u64,
    /// Tests that a filter has left out, where the runner says so.
    pub filtered: u64,
}

impl TestCounts {
    /// Returns the number of tests that ran.
    pub const fn executed(self) -> u64 {
        self.passed.saturating_add(self.failed)
    }

    /// Returns the reason why a run shows less than one before it; none: it shows as much. Results do not count here: a test that
    /// failed before was there.
    pub fn compare_with(self, before: Self) -> Option<String> {
        let left_out = |counts: Self| counts.skipped.saturating_add(counts.filtered);
        if self.executed() < before.executed() {
            return Some(format!(
                "only {} tests ran; {} ran before the change",
                self.executed(),
                before.executed()
            ));
        }
        (left_out(self) > left_out(before)).then(|| {
            format!(
                "{} tests were skipped or left out; {} were before the change",
                left_out(self),
                left_out(before)
            )
        })
    }

    /// Adds other counts; saturates.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            passed: self.passed.saturating_add(other.passed),
            failed: self.failed.saturating_add(other.failed),
            skipped: self.skipped.saturating_add(other.skipped),
            filtered: self.filtered.saturating_add(other.filtered),
        }
    }
}

/// The format of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReportFormat {
    /// The text of `cargo test`.
    Cargo,
    /// The text of `cargo nextest run`.
    Nextest,
    /// The text of `pytest`.
    Pytest,
    /// The JSON or the text of Jest.
    Jest,
    /// The JSON or the text of Vitest.
    Vitest,
    /// The events of `go test -json`, or its text.
    GoTest,
    /// JUnit's XML.
    JunitXml,
    /// The Test Anything Protocol.
    Tap,
    /// The text of Python's `unittest`.
    Unittest,
}

impl ReportFormat {
    /// Returns its name in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cargo => "cargo",
            Self::Nextest => "nextest",
            Self::Pytest => "pytest",
            Self::Jest => "jest",
            Self::Vitest => "vitest",
            Self::GoTest => "go test",
            Self::JunitXml => "JUnit XML",
            Self::Tap => "TAP",
            Self::Unittest => "unittest",
        }
    }
}

/// A report that shows nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReportError {
    /// More than is read.
    #[error("it has more than {MAX_REPORT_BYTES} bytes")]
    TooLarge,
    /// Its end is missing.
    #[error("it ends early")]
    Truncated,
    /// It has no summary of tests at all.
    #[error("it has no summary of tests")]
    NoSummary,
    /// Its parts do not agree, or it is not in the format.
    #[error("{0}")]
    Malformed(String),
}

/// Counts the tests of a report.
///
/// # Errors
///
/// If the report is too large, is not whole, or does not agree with itself.
pub fn count_tests(format: ReportFormat, report: &str) -> Result<TestCounts, ReportError> {
    if report.len() > MAX_REPORT_BYTES {
        return Err(ReportError::TooLarge);
    }
    let text = strip_colours(report);
    match format {
        ReportFormat::Cargo => count_cargo(&text),
        ReportFormat::Nextest => count_nextest(&text),
        ReportFormat::Pytest => count_pytest(&text),
        ReportFormat::Jest => javascript::count_jest(&text),
        ReportFormat::Vitest => javascript::count_vitest(&text),
        ReportFormat::GoTest => go_test::count_go(&text),
        ReportFormat::JunitXml => junit::count_junit(&text),
        ReportFormat::Tap => tap::count_tap(&text),
        ReportFormat::Unittest => unittest::count_unittest(&text),
    }
}

/// Makes an error about parts that do not agree.
pub(super) fn malformed<T>(problem: impl Into<String>) -> Result<T, ReportError> {
    Err(ReportError::Malformed(problem.into()))
}

/// Reads `3 passed` into its number and its word; the word may have blanks.
pub(super) fn read_item(item: &str) -> Option<(u64, &str)> {
    let (number, word) = item.trim().split_once(' ')?;
    Some((number.parse().ok()?, word.trim()))
}

/// Each test binary begins with `running 3 tests` and ends with `test result: ok. 3 passed; 0 failed; …`. A test that prints such
/// a line makes two ends of one beginning, and an aborted binary has none.
fn count_cargo(text: &str) -> Result<TestCounts, ReportError> {
    let (mut all, mut open, mut has_summary) = (TestCounts::default(), None, false);
    for line in text.lines().map(str::trim) {
        if let Some(rest) = line.strip_prefix("running ") {
            let Some((number, "test" | "tests")) = read_item(rest) else { continue };
            // The binary before has begun and shown no result: it was aborted.
            if open.replace(number).is_some() {
                return Err(ReportError::Truncated);
            }
        } else if let Some(rest) = line.strip_prefix("test result: ") {
            let Some(begun) = open.take() else { return malformed("a result without a beginning") };
            let (counts, sum) = read_libtest(rest)?;
            // A line that a test has printed has other numbers.
            if sum != begun {
                return malformed(format!("{begun} tests began, {sum} are in the result"));
            }
            all = all.plus(counts);
            has_summary = true;
        }
    }
    match (open, has_summary) {
        (Some(_), _) => Err(ReportError::Truncated),
        (None, false) => Err(ReportError::NoSummary),
        (None, true) => Ok(all),
    }
}

fn read_libtest(rest: &str) -> Result<(TestCounts, u64), ReportError> {
    let Some((_, items)) = rest.split_once(". ") else { return malformed("a result without counts") };
    let (mut counts, mut sum) = (TestCounts::default(), 0_u64);
    for (number, word) in items.split(';').filter_map(read_item) {
        match word {
            "passed" => counts.passed = number,
            "failed" => counts.failed = number,
            "ignored" => counts.skipped = number,
            "filtered out" => counts.filtered = number,
            // A bench was run, and has shown a time, not a result.
            "measured" => counts.skipped = counts.skipped.saturating_add(number),
            _ => continue,
        }
        sum = if word == "filtered out" { sum } else { sum.saturating_add(number) };
    }
    Ok((counts, sum))
}

/// `Summary [ 0.085s] 3 tests run: 2 passed (1 slow), 1 failed, 4 skipped`; a run that was ended early has `2/3 tests run`.
fn count_nextest(text: &str) -> Result<TestCounts, ReportError> {
    let (mut all, mut started, mut ended) = (TestCounts::default(), 0_u32, 0_u32);
    for line in text.lines().map(str::trim) {
        let is_start = line
            .strip_prefix("Starting ")
            .and_then(read_item)
            .is_some_and(|(_, word)| word.starts_with("test"));
        started += u32::from(is_start);
        let Some(rest) = line.strip_prefix("Summary [").and_then(|rest| rest.split_once(']')) else {
            continue;
        };
        ended += 1;
        all = all.plus(read_nextest(rest.1)?);
    }
    if ended == 0 && started == 0 {
        return Err(ReportError::NoSummary);
    }
    if ended < started { Err(ReportError::Truncated) } else { Ok(all) }
}

fn read_nextest(rest: &str) -> Result<TestCounts, ReportError> {
    let Some((run, items)) = rest.split_once(" run:") else { return malformed("a summary without counts") };
    let run = run.trim().split(' ').next().unwrap_or_default();
    // A run that was ended early has both numbers.
    let (done, planned) = run.split_once('/').unwrap_or((run, run));
    let (Ok(done), Ok(planned)) = (done.parse::<u64>(), planned.parse::<u64>()) else {
        return malformed("a summary without counts");
    };
    let mut counts = TestCounts::default();
    for item in without_brackets(items).split(',') {
        match read_item(item) {
            Some((number, "passed")) => counts.passed = number,
            Some((number, "failed" | "timed out" | "exec failed")) => {
                counts.failed = counts.failed.saturating_add(number)
            }
            Some((number, "skipped")) => counts.skipped = number,
            Some(_) | None => {}
        }
    }
    if counts.executed() != done {
        return malformed(format!("{done} tests ran, {} are in the summary", counts.executed()));
    }
    // Ended early without a failure: an interruption. With one, the failure says enough.
    if done < planned && counts.failed == 0 { Err(ReportError::Truncated) } else { Ok(counts) }
}

fn without_brackets(text: &str) -> String {
    let (mut plain, mut depth) = (String::new(), 0_u32);
    for c in text.chars() {
        match c {
            '(' => depth = depth.saturating_add(1),
            ')' => depth = depth.saturating_sub(1),
            _ if depth == 0 => plain.push(c),
            _ => {}
        }
    }
    plain
}

/// `=== 1 failed, 2 passed, 3 deselected in 0.12s ===`, with `-q` without the frame; or `=== no tests ran in 0.01s ===`.
fn count_pytest(text: &str) -> Result<TestCounts, ReportError> {
    let (mut all, mut started, mut ended) = (TestCounts::default(), 0_u32, 0_u32);
    for line in text.lines() {
        let line = line.trim().trim_matches('=').trim();
        started += u32::from(line == "test session starts");
        if let Some(counts) = read_pytest(line) {
            ended += 1;
            all = all.plus(counts);
        }
    }
    if ended == 0 && started == 0 {
        return Err(ReportError::NoSummary);
    }
    // A session without its last line has crashed.
    if ended < started { Err(ReportError::Truncated) } else { Ok(all) }
}

/// Reads a summary; a line of the same look that a test has printed has other words, and is none.
fn read_pytest(line: &str) -> Option<TestCounts> {
    let (items, time) = line.rsplit_once(" in ")?;
    let seconds = time.split(' ').next()?.strip_suffix('s')?;
    let is_time = !seconds.is_empty() && seconds.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    if !is_time {
        return None;
    }
    let mut counts = TestCounts::default();
    if items == "no tests ran" {
        return Some(counts);
    }
    for item in items.split(',') {
        let (number, word) = read_item(item)?;
        match word {
            "passed" | "xpassed" => counts.passed = counts.passed.saturating_add(number),
            "failed" | "error" | "errors" => counts.failed = counts.failed.saturating_add(number),
            // A test that is expected to fail proves nothing by failing.
            "skipped" | "xfailed" => counts.skipped = counts.skipped.saturating_add(number),
            "deselected" => counts.filtered = number,
            "warning" | "warnings" | "rerun" | "reruns" | "subtests passed" => {}
            _ => return None,
        }
    }
    Some(counts)
}

#[cfg(test)]
mod tests;
