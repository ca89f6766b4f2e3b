//! The Test Anything Protocol, versions 12 to 14: `1..3`, `ok 1`, `not ok 2 # skip`, `Bail out!`.
//!
//! Node's runner writes a suite as one result with its parts indented before it, and a file without any test as one test that
//! passes. Neither is a test that has run, so what is counted are the parts.

use std::collections::BTreeMap;

use super::counts::{ReportError, TestCounts, malformed};

/// The ends of names that Node's runner gives to a file that has shown no test.
const FILE_ENDS: [&str; 6] = [".js", ".mjs", ".cjs", ".ts", ".mts", ".cts"];

/// Results that still wait for the result of what they are parts of, by their indentation.
#[derive(Default)]
struct TapTree {
    open: BTreeMap<usize, TestCounts>,
    /// The last result, where it stands for itself: what follows may say that it is a suite without parts.
    last: Option<(usize, TestCounts)>,
}

impl TapTree {
    fn add(&mut self, indent: usize, is_ok: bool, rest: &str) {
        let mut parts = TestCounts::default();
        // What is indented deeper since the last result of this level belongs to this one.
        for (_, counts) in self.open.split_off(&indent.saturating_add(1)) {
            parts = parts.plus(counts);
        }
        let has_parts = parts != TestCounts::default();
        let own = if has_parts { parts } else { count_result(is_ok, rest) };
        // A suite fails by its own set-up, too.
        let is_broken = has_parts && !is_ok && own.failed == 0 && !has_directive(rest, "todo");
        let own = TestCounts { failed: own.failed.saturating_add(u64::from(is_broken)), ..own };
        let level = self.open.entry(indent).or_default();
        *level = level.plus(own);
        self.last = (!has_parts).then_some((indent, own));
    }

    /// The last result is that of a suite: without parts it shows nothing.
    fn mark_suite(&mut self) {
        if let Some((indent, own)) = self.last.take()
            && let Some(level) = self.open.get_mut(&indent)
        {
            level.passed = level.passed.saturating_sub(own.passed);
        }
    }

    fn all(&self) -> TestCounts {
        self.open.values().fold(TestCounts::default(), |all, counts| all.plus(*counts))
    }
}

/// Counts the results that have no parts.
pub(super) fn count_tap(text: &str) -> Result<TestCounts, ReportError> {
    let (mut tree, mut results, mut plan) = (TapTree::default(), 0_u64, None);
    let mut is_detail = false;
    for line in text.lines() {
        if line.starts_with("Bail out!") {
            // It ends the run, also before the first result.
            let counts = tree.all();
            return Ok(TestCounts { failed: counts.failed.saturating_add(1), ..counts });
        }
        if let Some(rest) = line.strip_prefix("1..") {
            let number = rest.split_whitespace().next().and_then(|number| number.parse::<u64>().ok());
            let Some(number) = number else { return malformed("a plan without a number") };
            if plan.replace(number).is_some_and(|before| before != number) {
                return malformed("two plans");
            }
            continue;
        }
        let body = line.trim_start_matches(' ');
        match body.trim_end() {
            // Details of the result before, in YAML.
            "---" => is_detail = true,
            "..." => is_detail = false,
            "type: 'suite'" if is_detail => tree.mark_suite(),
            _ => {}
        }
        let indent = line.len() - body.len();
        let Some((is_ok, rest)) = read_result(body) else { continue };
        // At the outermost level nothing is a detail, so that an open block hides no result.
        if is_detail && indent > 0 {
            continue;
        }
        is_detail = false;
        results += u64::from(indent == 0);
        tree.add(indent, is_ok, rest);
    }
    let counts = tree.all();
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

fn count_result(is_ok: bool, rest: &str) -> TestCounts {
    let one = TestCounts::default();
    if has_directive(rest, "skip") || (has_directive(rest, "todo") && !is_ok) {
        TestCounts { skipped: 1, ..one }
    } else if !is_ok {
        TestCounts { failed: 1, ..one }
    } else if is_file(rest) {
        one
    } else {
        TestCounts { passed: 1, ..one }
    }
}

fn has_directive(rest: &str, word: &str) -> bool {
    rest.rsplit_once('#').is_some_and(|(_, text)| text.trim().to_ascii_lowercase().starts_with(word))
}

/// Returns true for the result of a file as a whole: it has ended without a failure and has shown no test.
fn is_file(rest: &str) -> bool {
    let name = rest.split_once(" - ").map_or("", |(_, name)| name.trim());
    name.contains('/') && !name.contains(' ') && FILE_ENDS.into_iter().any(|end| name.ends_with(end))
}

fn read_result(line: &str) -> Option<(bool, &str)> {
    let (is_ok, rest) = match line.strip_prefix("not ok") {
        Some(rest) => (false, rest),
        None => (true, line.strip_prefix("ok")?),
    };
    // `okay` is no result.
    (rest.is_empty() || rest.starts_with([' ', '\t'])).then_some((is_ok, rest))
}
