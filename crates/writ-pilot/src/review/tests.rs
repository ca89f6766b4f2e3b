use super::*;

fn file_diff(name: &str, changed: usize) -> String {
    let lines = "+a line\n".repeat(changed);
    format!(
        "diff --git a/{name} b/{name}\nindex 1..2 100644\n--- a/{name}\n+++ b/{name}\n@@ -1 +1 @@\n context\n{lines}"
    )
}

/// Rows: SF-255
#[test]
fn a_change_is_split_between_files_at_300_changed_lines() {
    let diff: String = [("a.rs", 100), ("b.rs", 150), ("c.rs", 100), ("d e.rs", 900)]
        .map(|(name, changed)| file_diff(name, changed))
        .concat();
    let chunks = split_diff(&diff).unwrap();
    let seen: Vec<(Vec<&str>, usize)> = chunks
        .iter()
        .map(|chunk| (chunk.files.iter().map(String::as_str).collect(), chunk.changed_lines))
        .collect();
    assert_eq!(seen, [(vec!["a.rs", "b.rs"], 250), (vec!["c.rs"], 100), (vec!["d e.rs"], 900)]);
    assert_eq!(
        chunks.iter().map(|chunk| chunk.text.as_str()).collect::<String>(),
        diff,
        "nothing is left out"
    );
    assert_eq!(REVIEW_CHUNK_LINES, 300);
    let exact: String = [file_diff("a", 150), file_diff("b", 150), file_diff("c", 1)].concat();
    assert_eq!(
        split_diff(&exact).unwrap().iter().map(|chunk| chunk.changed_lines).collect::<Vec<_>>(),
        [300, 1]
    );
    assert_eq!(split_diff("").unwrap(), []);
}

#[test]
fn content_that_looks_like_a_diff_is_content_and_large_files_are_split_whole() {
    let tricky =
        "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1,3 @@\n+diff --git a/y b/y\n--- a/z\n+++ b/z\n";
    let chunks = split_diff(tricky).unwrap();
    assert_eq!(
        (chunks.len(), chunks[0].files.as_slice(), chunks[0].changed_lines),
        (1, &["x".to_owned()][..], 3)
    );
    let renamed = "diff --git a/old b/new\nsimilarity index 100%\nrename from old\nrename to new\n";
    let binary = "diff --git \"a/\\303\\251\" \"b/\\303\\251\"\nBinary files differ\n";
    let chunks = split_diff(&format!("{renamed}{binary}")).unwrap();
    assert_eq!(
        (chunks[0].files.as_slice(), chunks[0].changed_lines),
        (&["new".to_owned(), "\\303\\251".to_owned()][..], 0)
    );
    let large = file_diff("big", 40_000);
    let chunks = split_diff(&large).unwrap();
    assert_eq!(chunks.iter().map(|chunk| chunk.text.as_str()).collect::<String>(), large);
    assert!(
        chunks.len() > 1
            && chunks.iter().all(|chunk| chunk.text.len() <= 96 * 1024 && chunk.files == ["big"])
    );
    let long = format!("diff --git a/x b/x\n@@ -1 +1 @@\n+{}\n", "é".repeat(5_000));
    let text = &split_diff(&long).unwrap()[0].text;
    assert!(text.len() < 2_200 && text.ends_with(" more bytes of this line]\n"), "{}", text.len());
    assert_eq!(split_diff(&"x".repeat(9 * 1024 * 1024)), Err(ReviewTooLarge));
    let many: String = (0..300).map(|n| file_diff(&format!("f{n}"), 301)).collect();
    assert_eq!(split_diff(&many), Err(ReviewTooLarge));
}

/// Rows: SF-256 (in part: the input; the tier and the one dispatch need the worker)
#[test]
fn the_first_pass_sees_both_ends_of_each_file() {
    let long: String = (1..=100).map(|n| format!("line {n}\n")).collect();
    let short: String = (1..=40).map(|n| format!("short {n}\n")).collect();
    let excerpt = write_excerpt([("a.rs", long.as_str()), ("b.rs", short.as_str())]);
    assert!(excerpt.starts_with("== a.rs (100 lines)\nline 1\n"));
    assert!(
        excerpt.contains("line 20\n[… 60 lines …]\nline 81\n")
            && excerpt.contains("line 100\n== b.rs (40 lines)\nshort 1\n")
    );
    for middle in 21..=80 {
        assert!(!excerpt.contains(&format!("line {middle}\n")), "{middle}");
    }
    assert!(excerpt.contains("short 20\nshort 21\n"));
    let wide = "x".repeat(1_900).lines().map(|line| format!("{line}\n")).collect::<String>().repeat(40);
    let excerpt = write_excerpt([("a", wide.as_str()), ("b", wide.as_str())]);
    assert!(excerpt.ends_with("[… 1 more files]\n"));
}

const ANSWER: &str = r#"{"verdict": "request_changes", "findings": [
    {"path": "src/b.rs", "line": 4, "severity": "low", "text": "a name"},
    {"path": "src/a.rs", "line": 12, "severity": "high", "text": "wrong\nfor zero"},
    {"path": "", "line": null, "severity": "medium", "text": "no test", "confidence": 0.9},
    {"severity": "medium", "text": "no docs"}]}"#;

#[test]
fn an_answer_is_read_alone_in_a_block_or_in_prose() {
    let read = read_review(ANSWER).unwrap();
    let seen: Vec<(&str, &str, u32, &str)> = read
        .findings
        .iter()
        .map(|finding| (finding.severity.name(), finding.path.as_str(), finding.line, finding.text.as_str()))
        .collect();
    let expected = [
        ("high", "src/a.rs", 12, "wrong for zero"),
        ("medium", "", 0, "no docs"),
        ("medium", "", 0, "no test"),
        ("low", "src/b.rs", 4, "a name"),
    ];
    assert_eq!((read.verdict, seen), (ReviewVerdict::RequestChanges, expected.to_vec()));
    for answer in [
        format!("Here is my review:\n```json\n{ANSWER}\n```\nDone."),
        format!("In `fn a() {{ b }}` {{ something }} is wrong: {ANSWER}"),
        format!("The settings {{\"a\": 1}} are fine.\n\n{ANSWER} {{"),
    ] {
        assert_eq!(read_review(&answer).unwrap(), read, "{answer}");
    }
    let pass = read_review(r#"{"verdict":"pass","findings":[]}"#).unwrap();
    assert_eq!((pass.verdict, pass.findings.len()), (ReviewVerdict::Pass, 0));
    let finding = PromptFinding::from(&read.findings[0]);
    assert_eq!((finding.severity.as_str(), finding.line), ("high", 12));
}

/// Rows: SF-259 (in part: an answer that cannot be read is no pass)
#[test]
fn an_answer_that_is_no_review_is_an_error_and_never_a_pass() {
    let many = format!(
        r#"{{"verdict":"block","findings":[{}]}}"#,
        vec![r#"{"severity":"low","text":"x"}"#; 101].join(",")
    );
    let large = format!("{ANSWER}{}", " ".repeat(MAX_REVIEW_BYTES));
    let twice = format!(r#"The change says {{"verdict":"pass","findings":[]}}. I say {ANSWER}"#);
    let braces = "{".repeat(MAX_REVIEW_BYTES);
    let check = |answer: &str, wanted: fn(&ReviewError) -> bool| {
        let error = read_review(answer).unwrap_err();
        assert!(wanted(&error), "{answer:.100}: {error:?}");
        assert_eq!(error.report().exit, Exit::Model);
        assert!(error.next_question().ends_with("and nothing else."));
    };
    for answer in [
        "",
        "pass",
        "verdict: pass",
        "[\"verdict\"]",
        r#"{"verdict": "pass""#,
        r#"{"result": {"verdict": "pass", "findings": []}}"#,
        &braces,
    ] {
        check(answer, |error| *error == ReviewError::Missing);
    }
    for answer in [
        r#"{"verdict":"pass"}"#,
        r#"{"verdict":"Pass","findings":[]}"#,
        r#"{"verdict":"approve","findings":[]}"#,
        r#"{"verdict":"pass","findings":{}}"#,
        r#"{"verdict":"block","findings":[{"severity":"critical","text":"x"}]}"#,
        r#"{"verdict":"block","findings":[{"severity":"low"}]}"#,
        r#"{"verdict":"block","findings":[{"severity":"low","text":"x","line":-1}]}"#,
    ] {
        check(answer, |error| matches!(error, ReviewError::Form(_)));
    }
    check(&twice, |error| *error == ReviewError::Several);
    check(&many, |error| *error == ReviewError::TooMany);
    check(&large, |error| *error == ReviewError::TooLarge);
    check(r#"{"verdict":"block","findings":[{"severity":"low","text":" \n"}]}"#, |error| {
        *error == ReviewError::Empty(1)
    });
    for answer in [
        r#"{"verdict":"pass","findings":[{"severity":"medium","text":"x"}]}"#,
        r#"{"verdict":"block","findings":[]}"#,
        r#"{"verdict":"request_changes","findings":[]}"#,
    ] {
        check(answer, |error| matches!(error, ReviewError::Contradiction(_)));
    }
}

#[test]
fn findings_of_parts_are_joined_each_once_and_the_worst_first() {
    let part = |findings: &[(FindingSeverity, &str, u32, &str)]| ReviewAnswer {
        verdict: ReviewVerdict::Block,
        findings: findings
            .iter()
            .map(|(severity, path, line, text)| ReviewFinding {
                severity: *severity,
                path: (*path).to_owned(),
                line: *line,
                text: (*text).to_owned(),
            })
            .collect(),
    };
    use FindingSeverity::{High, Low, Medium};
    let one = part(&[(Low, "b", 1, "odd  name"), (Medium, "a", 2, "No test")]);
    let two = part(&[(High, "a", 2, "no test"), (Low, "b", 2, "odd name"), (Low, "b", 1, "odd name")]);
    let joined: Vec<String> = join_findings([&one, &two])
        .iter()
        .map(|finding| {
            format!("{} {}:{} {}", finding.severity.name(), finding.path, finding.line, finding.text)
        })
        .collect();
    assert_eq!(joined, ["high a:2 no test", "low b:1 odd  name", "low b:2 odd name"]);
    let many = part(&(0..500).map(|n| (Low, "a", n, "x")).collect::<Vec<_>>());
    assert_eq!(join_findings([&many]).len(), MAX_REVIEW_FINDINGS);
}
