use super::*;

fn judge(end: ScriptExit, output: &str) -> GateJudgement {
    judge_script(&ScriptRun { end, output: output.as_bytes(), reports: &[], runs_tests: false })
}

/// Rows: SF-242 (the verdicts; the tests of the machine show what follows them)
#[test]
fn the_exit_status_gives_the_verdict() {
    for (end, verdict) in [
        (ScriptExit::Exited(0), ScriptVerdict::Pass),
        (ScriptExit::Exited(1), ScriptVerdict::Fail),
        (ScriptExit::Exited(2), ScriptVerdict::Block),
        (ScriptExit::Exited(3), ScriptVerdict::Skip),
        (ScriptExit::Exited(77), ScriptVerdict::Fail),
        (ScriptExit::Exited(-1), ScriptVerdict::Fail),
        (ScriptExit::Signalled(11), ScriptVerdict::Fail),
        (ScriptExit::TimedOut, ScriptVerdict::Fail),
        (ScriptExit::NotStarted, ScriptVerdict::NotRun),
    ] {
        assert_eq!(judge(end, "").verdict, verdict, "{end:?}");
    }
    assert_eq!(judge(ScriptExit::TimedOut, "").code, Some(FailureCode::GateTimeout));
}

/// Rows: SF-250 (the cut; tests of the shell show the order) SF-251 (the reading; tests of the shell show the status)
#[test]
fn the_first_line_may_be_a_summary_and_the_output_is_bounded() {
    let head = r#"{"summary": "2 files", "issues": ["a.rs: unused", {"line": 3}]}"#;
    let judged = judge(ScriptExit::Exited(1), &format!("{head}\nmore"));
    assert_eq!(judged.summary, "2 files");
    assert_eq!(judged.issues, ["a.rs: unused", r#"{"line":3}"#]);
    for broken in ["{\"summary\": ", "{}", "[]", "{\"summary\": 3}", "plain"] {
        let judged = judge(ScriptExit::Exited(1), broken);
        assert_eq!((judged.summary.as_str(), judged.issues.len()), ("exit status 1", 0), "{broken}");
        assert_eq!((judged.verdict, judged.output.as_str()), (ScriptVerdict::Fail, broken));
    }
    let many =
        serde_json::json!({ "summary": "x\u{1b}[31m".repeat(200), "issues": vec!["é".repeat(400); 60] });
    let judged = judge(ScriptExit::Exited(0), &many.to_string());
    assert!(judged.summary.chars().count() <= MAX_ISSUE_CHARS && !judged.summary.contains('\u{1b}'));
    assert_eq!((judged.issues.len(), judged.issues[0].chars().count()), (MAX_ISSUES, MAX_ISSUE_CHARS));
    let wide = judge(ScriptExit::Exited(1), &"語".repeat(7_000)).output;
    assert!(wide.len() <= MAX_OUTPUT_BYTES && !wide.contains('\u{fffd}'));
    // Bytes that are not valid text do not stop the reading.
    let raw =
        ScriptRun { end: ScriptExit::Exited(1), output: &[0xff, b'a'], reports: &[], runs_tests: false };
    assert_eq!(judge_script(&raw).output, "\u{fffd}a");
}

/// A script that exits with 0 claims a pass; its reports must confirm it.
#[test]
fn a_pass_without_a_test_is_not_run() {
    let verdict = |status, runs_tests, reports: &[(ReportFormat, &str)]| {
        let run = ScriptRun { end: ScriptExit::Exited(status), output: b"", reports, runs_tests };
        let judged = judge_script(&run);
        (judged.verdict, judged.summary)
    };
    const PASSED: &str = "running 1 test\ntest a ... ok\n\ntest result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s\n";
    const NONE: &str = "running 0 tests\n\ntest result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 7 filtered out; finished in 0.00s\n";
    const FAILED: &str = "running 1 test\ntest result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s\n";
    let cargo = ReportFormat::Cargo;
    assert_eq!(verdict(0, true, &[(cargo, PASSED)]).0, ScriptVerdict::Pass);
    assert_eq!(
        verdict(0, true, &[(cargo, PASSED), (cargo, NONE)]).0,
        ScriptVerdict::Pass,
        "an empty run of documentation tests does no harm"
    );
    assert_eq!(
        verdict(0, false, &[(cargo, NONE)]),
        (ScriptVerdict::NotRun, "no test was run (0 skipped, 7 left out)".to_owned())
    );
    assert_eq!(verdict(0, true, &[]).0, ScriptVerdict::NotRun, "a gate that runs tests must report some");
    assert_eq!(verdict(0, false, &[]).0, ScriptVerdict::Pass, "a gate that runs no tests needs no report");
    assert_eq!(
        verdict(0, true, &[(cargo, FAILED)]),
        (ScriptVerdict::Fail, "it exits with 0, but 1 tests failed".to_owned())
    );
    assert_eq!(
        verdict(0, true, &[(cargo, PASSED), (ReportFormat::JunitXml, "<testsuites><testsuite>")]),
        (ScriptVerdict::NotRun, "a report of tests cannot be used: JUnit XML: it ends early".to_owned())
    );
    assert_eq!(verdict(1, true, &[(cargo, NONE)]).0, ScriptVerdict::Fail);
    assert_eq!(verdict(3, true, &[(cargo, PASSED)]).0, ScriptVerdict::Skip);
}
