//! The reports of `go test`: events as JSON, or text.
//!
//! A test that prints without a line break at the end has no event of its end (golang/go 57172, 81599); then the end of its
//! package decides. A package that does not compile has no test, and fails.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::counts::{ReportError, TestCounts, malformed};

/// The most tests that are followed.
const MAX_TESTS: usize = 500_000;

#[derive(Deserialize)]
struct GoEvent {
    #[serde(rename = "Action")]
    action: String,
    #[serde(rename = "Package", default)]
    package: String,
    #[serde(rename = "ImportPath", default)]
    import_path: String,
    #[serde(rename = "Test", default)]
    test: String,
}

/// A package with its tests and its end.
#[derive(Default)]
struct GoPackage {
    tests: BTreeMap<String, Option<GoEnd>>,
    end: Option<GoEnd>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum GoEnd {
    Pass,
    Fail,
    Skip,
}

pub(super) fn count_go(text: &str) -> Result<TestCounts, ReportError> {
    // Output of the build stands between the events of older versions.
    let events: Vec<GoEvent> = text
        .lines()
        .filter(|line| line.starts_with('{'))
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    if events.is_empty() { count_text(text) } else { count_events(&events) }
}

fn count_events(events: &[GoEvent]) -> Result<TestCounts, ReportError> {
    let mut packages: BTreeMap<&str, GoPackage> = BTreeMap::new();
    let (mut tests, mut broken) = (0_usize, 0_u64);
    for event in events {
        let end = match event.action.as_str() {
            "pass" => Some(GoEnd::Pass),
            "fail" => Some(GoEnd::Fail),
            "skip" => Some(GoEnd::Skip),
            "build-fail" => {
                broken += u64::from(!event.import_path.is_empty());
                continue;
            }
            "run" | "start" => None,
            _ => continue,
        };
        let package = packages.entry(&event.package).or_default();
        if event.test.is_empty() {
            package.end = end.or(package.end);
            continue;
        }
        // A test that starts itself again and again would fill the memory.
        tests += 1;
        if tests > MAX_TESTS {
            return malformed(format!("more than {MAX_TESTS} events of tests"));
        }
        package.tests.insert(event.test.clone(), end);
    }
    let mut all = TestCounts::default();
    for package in packages.values() {
        all = all.plus(count_package(package)?);
    }
    // Newer versions say both: that the build failed, and that the package did.
    all.failed = all.failed.max(broken);
    Ok(all)
}

fn count_package(package: &GoPackage) -> Result<TestCounts, ReportError> {
    // Without it nothing says that every test has run.
    let Some(package_end) = package.end else { return Err(ReportError::Truncated) };
    let mut counts = TestCounts::default();
    for end in package.tests.values() {
        match end.unwrap_or(package_end) {
            GoEnd::Pass => counts.passed += 1,
            GoEnd::Fail => counts.failed += 1,
            GoEnd::Skip => counts.skipped += 1,
        }
    }
    // A panic outside of a test, or a race: the package fails although each test passed.
    if package_end == GoEnd::Fail {
        counts.failed = counts.failed.max(1);
    }
    Ok(counts)
}

/// Counts results of tests where `-v` shows them, else packages: one that is `ok` and has tests has run at least one.
fn count_text(text: &str) -> Result<TestCounts, ReportError> {
    let (mut tests, mut packages) = (TestCounts::default(), TestCounts::default());
    let mut has_summary = false;
    for line in text.lines() {
        // Text without a line break before it may stand in front.
        tests.passed += u64::from(line.contains("--- PASS: "));
        tests.failed += u64::from(line.contains("--- FAIL: "));
        tests.skipped += u64::from(line.contains("--- SKIP: "));
        let is_ok = line.starts_with("ok ") || line.starts_with("ok\t");
        if is_ok {
            packages.passed += u64::from(!line.contains("[no tests to run]"));
        } else if line.starts_with("FAIL\t") {
            packages.failed += 1;
        }
        has_summary |= is_ok
            || line.starts_with("FAIL\t")
            || (line.starts_with('?') && line.contains("[no test files]"));
    }
    if !has_summary {
        // Results of tests without the line of their package: the run was cut off.
        return Err(if tests == TestCounts::default() {
            ReportError::NoSummary
        } else {
            ReportError::Truncated
        });
    }
    let passed = if tests.executed() + tests.skipped > 0 { tests.passed } else { packages.passed };
    Ok(TestCounts { passed, failed: tests.failed.max(packages.failed), ..tests })
}
