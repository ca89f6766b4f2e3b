use serde_json::json;

use super::*;

fn run(stdout: &str) -> Observation {
    Observation {
        end: CheckEnd::Exited { code: 0 },
        stdout: ProgramOutput { text: stdout.to_owned(), is_cut: false },
        stderr: ProgramOutput::default(),
        files: [("there".to_owned(), true), ("missing".to_owned(), false)].into(),
    }
}

fn verdict(expect: Predicate, seen: &Observation) -> Verdict {
    let check = Check {
        name: "c".into(),
        run: vec!["cat".into()],
        dir: None,
        timeout_secs: None,
        expect: vec![expect],
    };
    judge_check(&check, seen).verdict
}

fn text(text: &str) -> String {
    text.to_owned()
}

/// The verdict about each predicate on both sides of its limit.
///
/// Rows: SIL-186 SIL-187 SIL-188 SIL-189 SIL-190 SIL-192
/// Rows: SIL-191 (in part: the verdict, and that a path outside is refused; looking for the file is the harness's)
#[test]
fn each_predicate_passes_and_fails() {
    use Verdict::{Fail, Pass};
    let json_is = |path: &str, value| Predicate::Json { path: text(path), value };
    let cases = [
        (Predicate::ExitCode { code: 0 }, "", Pass),
        (Predicate::ExitCode { code: 1 }, "", Fail),
        (Predicate::Equals { text: text("a b") }, "a b\n", Pass),
        (Predicate::Equals { text: text("a b") }, "a b\n\n", Fail),
        (Predicate::Equals { text: text("a b") }, "a bc", Fail),
        (Predicate::Contains { text: text("b") }, "abc", Pass),
        (Predicate::Contains { text: text("x") }, "abc", Fail),
        (Predicate::Regex { pattern: text("^a.c$") }, "abc\n", Pass),
        (Predicate::Regex { pattern: text("^b") }, "abc", Fail),
        (Predicate::OutputLt { limit: text("5") }, "4\n", Pass),
        (Predicate::OutputLt { limit: text("5") }, "5", Fail),
        (Predicate::OutputLt { limit: text("5") }, "four", Fail),
        (Predicate::OutputLt { limit: text("5") }, "NaN", Fail),
        (Predicate::OutputGt { limit: text("5") }, " 6.5 ", Pass),
        (Predicate::OutputGt { limit: text("5") }, "5.0", Fail),
        (Predicate::OutputGt { limit: text("5") }, "inf", Fail),
        (Predicate::OutputGt { limit: text("5") }, "six", Fail),
        (Predicate::FileExists { path: text("there") }, "", Pass),
        (Predicate::FileExists { path: text("missing") }, "", Fail),
        (Predicate::NotEmpty, "x", Pass),
        (Predicate::NotEmpty, " \n\t", Fail),
        (json_is("$.a[0]", JsonExpectation::Equals { value: json!(1.0) }), "{\"a\": [1]}", Pass),
        (json_is("$.a[0]", JsonExpectation::Equals { value: json!("1") }), "{\"a\": [1]}", Fail),
        (
            json_is("$.a", JsonExpectation::Equals { value: json!({"b": [1]}) }),
            "{\"a\": {\"b\": [1.0]}}",
            Pass,
        ),
        (json_is("$.n", JsonExpectation::Lt { limit: text("2") }), "{\"n\": 1}", Pass),
        (json_is("$.n", JsonExpectation::Gt { limit: text("1") }), "{\"n\": 1}", Fail),
        (json_is("$.n", JsonExpectation::Gt { limit: text("1") }), "{\"n\": \"2\"}", Fail),
        (json_is("$.n", JsonExpectation::Exists), "{\"n\": null}", Pass),
        (json_is("$.m", JsonExpectation::Exists), "{\"n\": null}", Fail),
        (json_is("$", JsonExpectation::Exists), "no json", Fail),
    ];
    for (predicate, stdout, expected) in cases {
        assert_eq!(verdict(predicate.clone(), &run(stdout)), expected, "{predicate:?} of {stdout:?}");
    }
    // What could not be judged is in no plan.
    for expect in ["regex: \"(a\"", "file_exists: ../there"] {
        let check = format!("  - name: c\n    run: \"true\"\n    expect: {{ {expect} }}");
        let plan = format!("---\nid: a\ntype: task\ntitle: T\nverify:\n{check}\n---\n# What to do\nx\n");
        let error = crate::read::read_plan(&plan).expect_err("refused");
        assert!(error.to_string().contains("verify.0.expect."), "{expect}: {error}");
    }
}

#[test]
fn a_check_that_did_not_run_never_passes() {
    let ends = [
        (CheckEnd::NotRun { reason: text("no sandbox") }, Verdict::NotRun),
        (CheckEnd::FilesOnly, Verdict::NotRun),
        (CheckEnd::TimedOut, Verdict::Fail),
        (CheckEnd::Killed { signal: 9 }, Verdict::Fail),
    ];
    for (end, expected) in ends {
        for predicate in [
            Predicate::ExitCode { code: 0 },
            Predicate::Contains { text: text("a") },
            Predicate::NotEmpty,
            Predicate::Regex { pattern: text("a") },
        ] {
            let seen = Observation { end: end.clone(), ..run("a") };
            assert_eq!(verdict(predicate.clone(), &seen), expected, "{predicate:?} after {end:?}");
        }
    }
    assert_eq!(
        verdict(Predicate::FileExists { path: text("other") }, &run("")),
        Verdict::NotRun,
        "not looked for"
    );
    let empty =
        Check { name: "c".into(), run: Vec::new(), dir: None, timeout_secs: None, expect: Vec::new() };
    assert_eq!(judge_check(&empty, &run("")).verdict, Verdict::NotRun);
}

#[test]
fn output_that_was_cut_proves_only_what_is_in_it() {
    let mut seen = run("abc");
    seen.stdout.is_cut = true;
    for (predicate, expected) in [
        (Predicate::Contains { text: text("b") }, Verdict::Pass),
        (Predicate::Contains { text: text("x") }, Verdict::NotRun),
        (Predicate::Equals { text: text("abc") }, Verdict::NotRun),
        (Predicate::Regex { pattern: text("^abc$") }, Verdict::NotRun),
        (Predicate::NotEmpty, Verdict::Pass),
        (Predicate::ExitCode { code: 0 }, Verdict::Pass),
    ] {
        assert_eq!(verdict(predicate.clone(), &seen), expected, "{predicate:?}");
    }
}

#[test]
fn a_runner_without_tests_is_not_run_although_it_exits_with_zero() {
    let check = Check {
        name: "tests".into(),
        run: ["cargo", "test"].map(text).to_vec(),
        dir: None,
        timeout_secs: None,
        expect: vec![Predicate::ExitCode { code: 0 }],
    };
    let none = judge_check(&check, &run("test result: ok. 0 passed; 0 failed; 0 ignored\n"));
    assert_eq!((none.verdict, none.findings.len()), (Verdict::NotRun, 2));
    let some = judge_check(&check, &run("test result: ok. 1 passed; 0 failed; 0 ignored\n"));
    assert_eq!(some.verdict, Verdict::Pass);
}

/// Whole numbers that share the nearest binary fraction are different ones.
#[test]
fn large_whole_numbers_are_compared_to_the_last_digit() {
    let is_same = |seen: &str, expected: &str| {
        let value = serde_json::from_str(expected).expect("JSON");
        let predicate = Predicate::Json { path: text("$.n"), value: JsonExpectation::Equals { value } };
        verdict(predicate, &run(&format!("{{\"n\": {seen}}}"))) == Verdict::Pass
    };
    for (seen, expected) in
        [("9007199254740993", "9007199254740993"), ("1", "1.0"), ("-3.0", "-3"), ("1e3", "1000")]
    {
        assert!(is_same(seen, expected), "{seen} {expected}");
    }
    for (seen, expected) in [
        ("9007199254740992", "9007199254740993"),
        ("9007199254740992.0", "9007199254740993"),
        ("18446744073709551615", "18446744073709551614"),
        ("1.5", "1"),
    ] {
        assert!(!is_same(seen, expected), "{seen} {expected}");
    }
    let below = |seen: &str, limit: &str| verdict(Predicate::OutputLt { limit: text(limit) }, &run(seen));
    assert_eq!(below("9007199254740992\n", "9007199254740993"), Verdict::Pass);
    assert_eq!(below("9007199254740993\n", "9007199254740993"), Verdict::Fail);
    let above = Predicate::OutputGt { limit: text("9007199254740992") };
    assert_eq!(verdict(above, &run("9007199254740993")), Verdict::Pass);
}
