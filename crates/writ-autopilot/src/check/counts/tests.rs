use proptest::prelude::*;

use super::ReportFormat::{Cargo, GoTest, Jest, JunitXml, Nextest, Pytest, Tap, Unittest, Vitest};
use super::*;

const ALL: [ReportFormat; 9] = [Cargo, Nextest, Pytest, Jest, Vitest, GoTest, JunitXml, Tap, Unittest];

/// The counts as passed, failed, skipped and filtered.
fn counts(format: ReportFormat, text: &str) -> [u64; 4] {
    let found = count_tests(format, text).unwrap_or_else(|error| panic!("{error}: {text}"));
    [found.passed, found.failed, found.skipped, found.filtered]
}

fn error(format: ReportFormat, text: &str) -> ReportError {
    count_tests(format, text).unwrap_err()
}

fn is_malformed(format: ReportFormat, text: &str) -> bool {
    matches!(count_tests(format, text), Err(ReportError::Malformed(_)))
}

#[test]
fn cargo_reports_are_summed_and_broken_ones_refused() {
    let result = |counts: &str| format!("test result: ok. {counts}; finished in 0.01s\n");
    let unit = format!(
        "running 3 tests\ntest a ... ok\n\n{}",
        result("2 passed; 0 failed; 1 ignored; 0 measured; 4 filtered out")
    );
    let doc = format!(
        "   Doc-tests x\n\nrunning 0 tests\n\n{}",
        result("0 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out")
    );
    assert_eq!(counts(Cargo, &format!("{unit}{doc}")), [2, 0, 1, 4]);
    assert_eq!(counts(Cargo, &doc), [0; 4]);
    let coloured = unit.replace("ok.", "\u{1b}[32mok\u{1b}(B\u{1b}[m.");
    assert_eq!(counts(Cargo, &coloured), [2, 0, 1, 4]);
    let failed =
        "running 2 tests\ntest result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out\n";
    assert_eq!(counts(Cargo, failed), [1, 1, 0, 0]);
    // A test that aborts its process leaves no result, whether its binary is the only one or another follows.
    assert_eq!(error(Cargo, "running 3 tests\ntest a ... ok\n"), ReportError::Truncated);
    assert_eq!(error(Cargo, &format!("running 3 tests\ntest a ... ok\n{unit}")), ReportError::Truncated);
    assert_eq!(error(Cargo, "error[E0425]: cannot find value\n"), ReportError::NoSummary);
    // A test that prints a forged result line.
    assert!(is_malformed(Cargo, &format!("running 3 tests\n{}{}", result("99 passed; 0 failed"), unit)));
    assert!(is_malformed(Cargo, &format!("{unit}{}", result("99 passed; 0 failed"))));
    assert!(is_malformed(Cargo, "running 3 tests\ntest result: ok\n"));
}

#[test]
fn nextest_reports_are_read_with_all_their_words() {
    let summary =
        |text: &str| format!("    Starting 5 tests across 1 binary\n     Summary [   0.085s] {text}\n");
    assert_eq!(counts(Nextest, &summary("3 tests run: 3 passed, 1 skipped")), [3, 0, 1, 0]);
    assert_eq!(counts(Nextest, &summary("1 test run: 1 passed (1 slow, 1 flaky), 0 skipped")), [1, 0, 0, 0]);
    assert_eq!(
        counts(Nextest, &summary("6 tests run: 2 passed, 1 failed, 2 timed out, 1 exec failed, 4 skipped")),
        [2, 4, 4, 0]
    );
    assert_eq!(counts(Nextest, &summary("2/5 tests run: 1 passed, 1 failed, 0 skipped")), [1, 1, 0, 0]);
    assert_eq!(error(Nextest, &summary("2/5 tests run: 2 passed, 0 skipped")), ReportError::Truncated);
    assert_eq!(counts(Nextest, &summary("0 tests run: 0 passed, 9 skipped")), [0, 0, 9, 0]);
    assert_eq!(
        error(Nextest, "    Starting 5 tests across 1 binary\n        PASS [ 0.1s] a\n"),
        ReportError::Truncated
    );
    assert_eq!(error(Nextest, "error: no tests to run\n"), ReportError::NoSummary);
    assert!(is_malformed(Nextest, &summary("3 tests run: 2 passed, 0 skipped")));
    assert_eq!(
        counts(
            Nextest,
            &summary(
                "\u{1b}[1m3\u{1b}[0m tests run: \u{1b}[1m3\u{1b}[0m \u{1b}[32mpassed\u{1b}[0m, 0 skipped"
            )
        ),
        [3, 0, 0, 0]
    );
}

#[test]
fn pytest_reports_are_read_with_all_their_words() {
    let report =
        |last: &str| format!("===== test session starts =====\ncollected 5 items\n\n===== {last} =====\n");
    assert_eq!(counts(Pytest, &report("3 passed in 0.12s")), [3, 0, 0, 0]);
    assert_eq!(
        counts(
            Pytest,
            &report(
                "1 failed, 2 passed, 1 skipped, 3 deselected, 1 xfailed, 1 xpassed, 2 warnings, 2 errors in 75.20s (0:01:15)"
            )
        ),
        [3, 3, 2, 3]
    );
    assert_eq!(counts(Pytest, &report("no tests ran in 0.01s")), [0; 4]);
    assert_eq!(counts(Pytest, &report("5 deselected in 0.01s")), [0, 0, 0, 5]);
    assert_eq!(counts(Pytest, "..\n2 passed in 0.01s\n"), [2, 0, 0, 0], "with -q");
    assert_eq!(counts(Pytest, &report("1 error in 0.08s")), [0, 1, 0, 0]);
    let coloured = "\u{1b}[32m==== \u{1b}[32m\u{1b}[1m3 passed\u{1b}[0m\u{1b}[32m in 0.12s\u{1b}[0m\u{1b}[32m ====\u{1b}[0m\n";
    assert_eq!(counts(Pytest, coloured), [3, 0, 0, 0]);
    assert_eq!(
        error(
            Pytest,
            "===== test session starts =====\ntests/test_a.py ..Fatal Python error: Segmentation fault\n"
        ),
        ReportError::Truncated
    );
    assert_eq!(error(Pytest, "sh: pytest: not found\n"), ReportError::NoSummary);
    // Text of a test that only looks like a summary.
    assert_eq!(
        error(Pytest, "3 apples in 0.12s\n3 passed in time\nall 3 passed in 1s\n"),
        ReportError::NoSummary
    );
}

#[test]
fn jest_and_vitest_are_read_from_json_or_text() {
    let json = |more: &str| {
        format!(
            "{{\"numTotalTests\":4,\"numPassedTests\":2,\"numFailedTests\":0,\"numPendingTests\":1,\"numTodoTests\":1,\"success\":true{more}}}"
        )
    };
    for format in [Jest, Vitest] {
        assert_eq!(counts(format, &json("")), [2, 0, 2, 0]);
        // Other programs print text before and after the report.
        assert_eq!(
            counts(format, &format!("> app@1.0 test\n{{not json\nPASS a\n{}\nDone in 1s.\n", json(""))),
            [2, 0, 2, 0]
        );
        let none = r#"{"numTotalTests":0,"numPassedTests":0,"success":true,"numRuntimeErrorTestSuites":0}"#;
        assert_eq!(counts(format, none), [0; 4], "--passWithNoTests");
        let broken =
            r#"{"numTotalTests":0,"numPassedTests":0,"success":false,"numRuntimeErrorTestSuites":2}"#;
        assert_eq!(counts(format, broken), [0, 2, 0, 0], "files that could not be loaded");
        assert_eq!(
            counts(format, &json("").replace("true", "false")),
            [2, 1, 2, 0],
            "a threshold that is not met"
        );
        assert!(is_malformed(format, &json("").replace("\"numTotalTests\":4", "\"numTotalTests\":9")));
        assert_eq!(error(format, &json("")[..40]), ReportError::NoSummary, "cut off");
    }
    let text = "PASS a.test.js\nTest Suites: 1 failed, 1 passed, 2 total\nTests:       1 failed, 2 skipped, 3 passed, 6 total\nTime: 1 s\n";
    assert_eq!(counts(Jest, text), [3, 1, 2, 0]);
    assert_eq!(counts(Jest, "Test Suites: 1 failed, 1 total\nTests:       0 total\n"), [0, 1, 0, 0]);
    assert_eq!(counts(Jest, "No tests found, exiting with code 0\n"), [0; 4]);
    assert!(is_malformed(Jest, "Tests: 3 passed, 6 total\n"));
    assert_eq!(error(Jest, "PASS a.test.js\n"), ReportError::NoSummary);
    let text = " Test Files  1 failed | 1 passed (2)\n      Tests  1 failed | 3 passed | 1 skipped (5)\n     Errors  2 errors\n";
    assert_eq!(counts(Vitest, text), [3, 3, 1, 0]);
    assert_eq!(counts(Vitest, " Test Files  1 failed (1)\n      Tests  no tests\n"), [0, 1, 0, 0]);
    assert_eq!(counts(Vitest, "No test files found, exiting with code 0\n"), [0; 4]);
    assert_eq!(
        counts(
            Vitest,
            " \u{1b}[2m Test Files \u{1b}[22m \u{1b}[1m\u{1b}[32m1 passed\u{1b}[39m\u{1b}[22m (1)\n\u{1b}[2m      Tests \u{1b}[22m \u{1b}[32m2 passed\u{1b}[39m (2)\n"
        ),
        [2, 0, 0, 0]
    );
}

#[test]
fn go_tests_are_read_from_events_or_text() {
    let event = |action: &str, test: &str| {
        format!("{{\"Action\":\"{action}\",\"Package\":\"p\",\"Test\":\"{test}\"}}\n")
    };
    let package = |action: &str| format!("{{\"Action\":\"{action}\",\"Package\":\"p\"}}\n");
    let run = |ends: &[(&str, &str)]| {
        ends.iter().map(|(test, end)| event("run", test) + &event(end, test)).collect::<String>()
    };
    let clean = format!(
        "{}{}{}",
        package("start"),
        run(&[("A", "pass"), ("B", "skip"), ("A/x", "pass")]),
        package("pass")
    );
    assert_eq!(counts(GoTest, &clean), [2, 0, 1, 0]);
    // Go writes no event for the end of a test that printed without a line break: the result of the package decides.
    assert_eq!(counts(GoTest, &format!("{}{}", event("run", "A"), package("pass"))), [1, 0, 0, 0]);
    assert_eq!(counts(GoTest, &format!("{}{}", event("run", "A"), package("fail"))), [0, 1, 0, 0]);
    assert_eq!(error(GoTest, &run(&[("A", "pass")])), ReportError::Truncated, "no end of the package");
    assert_eq!(
        counts(GoTest, &format!("{}{}", run(&[("A", "pass")]), package("fail"))),
        [1, 1, 0, 0],
        "a race"
    );
    let build = "# p\np_test.go:3: undefined\n{\"ImportPath\":\"p.test\",\"Action\":\"build-fail\"}\n";
    assert_eq!(counts(GoTest, build), [0, 1, 0, 0], "it does not compile");
    assert_eq!(counts(GoTest, &format!("{}{build}", clean)), [2, 1, 1, 0]);
    assert_eq!(counts(GoTest, &package("skip")), [0; 4], "no test files");

    assert_eq!(counts(GoTest, "ok  \tp\t0.1s\nok  \tq\t(cached)\n?   \tr\t[no test files]\n"), [2, 0, 0, 0]);
    assert_eq!(counts(GoTest, "ok  \tp\t0.1s [no tests to run]\n"), [0; 4]);
    assert_eq!(counts(GoTest, "?   \tr\t[no test files]\n"), [0; 4]);
    let verbose = "=== RUN   A\nno newline--- PASS: A (0.00s)\n    --- SKIP: A/x (0.00s)\n--- FAIL: B (0.00s)\nFAIL\nFAIL\tp\t0.1s\n";
    assert_eq!(counts(GoTest, verbose), [1, 1, 1, 0]);
    assert_eq!(counts(GoTest, "FAIL\tp [build failed]\nok  \tq\t0.1s\n"), [1, 1, 0, 0]);
    assert_eq!(error(GoTest, "=== RUN   A\n--- PASS: A (0.00s)\n"), ReportError::Truncated);
    assert_eq!(error(GoTest, "go: command not found\n"), ReportError::NoSummary);
}

#[test]
fn junit_cases_are_counted_at_every_depth() {
    let suite = r#"<?xml version="1.0"?><!-- a > b --><testsuites><testsuite name="a > b" tests="9" failures="1" errors="0">
        <testcase name="p"/><testcase name="f"><failure message="1 &lt; 2"><![CDATA[</testcase><testcase>]]></failure></testcase>
        <testcase name="s"><skipped/></testcase><testcase name="n" status="notrun"/>
        <testsuite name="inner"><testcase name="e"><error/></testcase><testcase name="r"><rerunFailure/></testcase></testsuite>
        </testsuite></testsuites>"#;
    assert_eq!(counts(JunitXml, suite), [2, 2, 2, 0], "not what the attributes say");
    assert_eq!(
        counts(JunitXml, r#"<testsuite tests="1"><testcase name='a="b"'></testcase></testsuite>"#),
        [1, 0, 0, 0]
    );
    assert_eq!(counts(JunitXml, r#"<testsuite tests="0" errors="1"/>"#), [0, 1, 0, 0], "its set-up failed");
    assert_eq!(counts(JunitXml, "<testsuites/>"), [0; 4]);
    assert!(is_malformed(JunitXml, r#"<testsuite tests="5"></testsuite>"#));
    for cut in [
        "<testsuites><testsuite>",
        "<testsuites><testsuite name=\"a",
        "<testsuite><testcase><![CDATA[x",
        "<testsuite><!-- ",
    ] {
        assert_eq!(error(JunitXml, cut), ReportError::Truncated, "{cut}");
    }
    assert_eq!(error(JunitXml, ""), ReportError::NoSummary);
    assert_eq!(error(JunitXml, "<html></html>"), ReportError::NoSummary);
    assert!(is_malformed(JunitXml, "<testsuite></testsuites>"));
    assert!(is_malformed(JunitXml, "<!DOCTYPE a [<!ENTITY b \"c\">]><testsuite/>"));
    assert!(is_malformed(JunitXml, &"<a>".repeat(100)));
    // A character that XML does not allow is text like any other.
    assert_eq!(
        counts(
            JunitXml,
            "<testsuite><testcase><system-out>\u{1}\u{fffd}</system-out></testcase></testsuite>"
        ),
        [1, 0, 0, 0]
    );
}

#[test]
fn a_run_that_shows_less_than_before_is_noticed() {
    let all = |passed, failed, skipped, filtered| TestCounts { passed, failed, skipped, filtered };
    let before = all(1, 2, 1, 0);
    for same in [before, all(3, 0, 1, 0), all(0, 9, 0, 0)] {
        assert_eq!(same.compare_with(before), None, "{same:?}");
    }
    assert_eq!(
        all(2, 0, 1, 0).compare_with(before).as_deref(),
        Some("only 2 tests ran; 3 ran before the change")
    );
    for skipped in [all(3, 0, 2, 0), all(3, 0, 0, 2)] {
        assert_eq!(
            skipped.compare_with(before).as_deref(),
            Some("2 tests were skipped or left out; 1 were before the change")
        );
    }
}

/// Reports as Node 20 writes them: suites and files without tests do not count as tests.
#[test]
fn what_nodes_runner_makes_up_is_not_counted() {
    let suite = |indent: &str| format!("{indent}  ---\n{indent}  type: 'suite'\n{indent}  ...\n");
    let text = format!(
        "TAP version 13\n# Subtest: outer\n    # Subtest: a\n    ok 1 - a # SKIP\n    ok 2 - b\n        ok 1 - c\n        1..1\n    ok 3 - inner\n{}    1..3\nok 1 - outer\n{}ok 2 - none\n{}ok 3 - gone # SKIP\n{}    ok 1 - sub\nok 4 - parent\nnot ok 5 - todo # TO\u{44}O\nok 6 - /work/e.test.mjs\nok 7 - /work/empty.test.mjs\n1..7\n# pass 6\n",
        suite("    "),
        suite(""),
        suite(""),
        suite("")
    );
    assert_eq!(counts(Tap, &text), [3, 0, 3, 0]);
    assert_eq!(counts(Tap, "ok 1 - /work/e.test.mjs\n1..1\n"), [0; 4], "it has ended before any test");
    assert_eq!(counts(Tap, "not ok 1 - /work/e.test.mjs\n1..1\n"), [0, 1, 0, 0], "it could not be loaded");
    assert_eq!(counts(Tap, "    ok 1 - a\nnot ok 1 - its set-up\n1..1\n"), [1, 1, 0, 0]);
    assert_eq!(counts(Tap, "ok 1\n  ---\nnot ok 2\n1..2\n"), [1, 1, 0, 0], "an open block hides nothing");
}

#[test]
fn tap_is_counted_at_its_innermost_level() {
    assert_eq!(
        counts(Tap, "TAP version 14\n1..4\nok 1 - a\nnot ok 2 - b\nok 3 # SKIP later\nnot ok 4 # Todo\n"),
        [1, 1, 2, 0]
    );
    assert_eq!(counts(Tap, "ok\nok - b # todo done already\n1..2\n"), [2, 0, 0, 0], "the plan at the end");
    assert_eq!(
        counts(Tap, "    ok 1\n    not ok 2\n    1..2\nok 1 - both\n  ---\n  ok: no\n  ...\n1..1\n"),
        [1, 1, 0, 0],
        "a part that fails is a failure, whatever the whole says"
    );
    assert_eq!(counts(Tap, "1..0 # SKIP no database\n"), [0; 4]);
    assert_eq!(counts(Tap, "TAP version 13\nBail out! no database\n"), [0, 1, 0, 0], "before any result");
    assert_eq!(counts(Tap, "1..3\nok 1\nBail out!\n"), [1, 1, 0, 0]);
    assert_eq!(error(Tap, "1..3\nok 1\nok 2\n"), ReportError::Truncated);
    assert_eq!(error(Tap, "ok 1\nok 2\n"), ReportError::Truncated, "no plan");
    assert_eq!(error(Tap, "okay\nno tests\n"), ReportError::NoSummary);
    assert!(is_malformed(Tap, "1..0\nok 1\n"));
    assert!(is_malformed(Tap, "1..2\nok\nok\n1..3\n"));
    assert_eq!(counts(Tap, "1..3\nok 1\nnot ok 2\n"), [1, 1, 0, 0]);
}

#[test]
fn a_report_has_a_largest_size() {
    let large = " ".repeat(MAX_REPORT_BYTES + 1);
    for format in ALL {
        assert_eq!(error(format, &large), ReportError::TooLarge);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_text_makes_a_reader_panic(
        text in "(running |test result: |[0-9]{1,20} (passed|failed|tests)|Summary \\[|\\]| run:|[,;/.(){}<>=\"'#!]|<testcase|</|<!|1\\.\\.|not ok| in [0-9]s|Tests:|é|\u{1b}\\[|\n){0,50}",
    ) {
        for format in ALL {
            let _ = count_tests(format, &text);
        }
    }

    /// A report that is cut off anywhere never counts more tests than the whole one.
    #[test]
    fn a_cut_report_never_shows_more(at in 0..400_usize) {
        let reports = [
            (JunitXml, "<testsuite><testcase/><testcase><failure/></testcase><testcase/></testsuite>"),
            (Tap, "1..3\nok 1\nnot ok 2\nok 3\n"),
            (Cargo, "running 2 tests\ntest a ... ok\ntest result: FAILED. 1 passed; 1 failed; 0 ignored\n"),
        ];
        for (format, text) in reports {
            let whole = count_tests(format, text).unwrap();
            let cut = text.get(..text.floor_char_boundary(at.min(text.len()))).unwrap();
            if let Ok(found) = count_tests(format, cut) {
                prop_assert!(found.executed() <= whole.executed());
                prop_assert!(found.failed > 0, "a cut report is no pass: {}", cut);
            }
        }
    }
}
