//! Tests that a change takes away, skips or weakens, from its unified diff.
//!
//! These are findings for a reviewer, or for the harness where the owner lets them block. A diff can be read only line by line, so
//! a finding says what a line shows, not what the author meant.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

/// The largest diff that is read, in bytes.
pub const MAX_DIFF_BYTES: usize = 32 * 1024 * 1024;
/// The most findings.
pub const MAX_FINDINGS: usize = 200;
/// The longest quotation, in characters.
const MAX_QUOTED_CHARS: usize = 160;

/// The kind of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WeakenedKind {
    /// A file of tests is deleted.
    DeletedFile,
    /// A test is deleted, and none with its name is added.
    DeletedTest,
    /// A test is skipped, ignored, or to be done later.
    SkippedTest,
    /// A test is marked so that only it runs, and all others do not.
    OnlyTest,
    /// More assertions are taken away than added.
    FewerAssertions,
    /// An assertion that always holds.
    EmptyAssertion,
    /// More assertions of one value are taken away than added: what stands there instead holds for other values, too.
    WeakerAssertions,
    /// A test ends the program that runs the tests.
    EndsRun,
    /// A file of code or tests that git shows as binary: none of its lines can be judged.
    BinaryFile,
    /// The code prints a line that looks like a test runner's report.
    ForgedReport,
}

/// A finding.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WeakenedTest {
    /// The file.
    pub path: String,
    /// The line: of the file after the change, or before it for what is deleted. Zero: the file as a whole.
    pub line: u32,
    /// The kind.
    pub kind: WeakenedKind,
    /// The line's text, shortened; or the path, or a count of assertions.
    pub text: String,
}

/// A diff that cannot be judged. It blocks, since anything may be in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the diff has more than {MAX_DIFF_BYTES} bytes")]
pub struct DiffTooLarge;

/// Parts of lines that skip a test or expect it to fail, by language.
const SKIPS: [&str; 26] = [
    "#[ignore",
    "#[cfg(any())]",
    "#[should_panic",
    "@pytest.mark.skip",
    "@pytest.mark.xfail",
    "pytest.skip(",
    "pytest.xfail(",
    "@unittest.skip",
    "@unittest.expectedFailure",
    "raise SkipTest",
    "self.skipTest(",
    "it.skip(",
    "test.skip(",
    "describe.skip(",
    "it.todo(",
    "test.todo(",
    "test.failing(",
    "it.failing(",
    "it.fails(",
    "xit(",
    "xtest(",
    "xdescribe(",
    "t.Skip(",
    "t.SkipNow(",
    "t.Skipf(",
    "@Disabled",
];
/// Parts of lines that leave all other tests out.
const ONLYS: [&str; 6] =
    ["it.only(", "test.only(", "describe.only(", "fit(", "fdescribe(", "@pytest.mark.only"];
/// Parts of lines that assert something.
const ASSERTIONS: [&str; 14] = [
    "assert!(",
    "assert_eq!(",
    "assert_ne!(",
    "assert_matches!(",
    "prop_assert",
    "assert ",
    "self.assert",
    "expect(",
    "assert.",
    "assertThat(",
    "t.Error",
    "t.Fatal",
    "require.",
    "pytest.raises(",
];
/// Parts of assertions that hold for one value alone.
const EXACT: [&str; 16] = [
    "assert_eq!(",
    "assertEqual(",
    "assertEquals(",
    "assertListEqual(",
    "assertDictEqual(",
    "assertIs(",
    "toBe(",
    "toEqual(",
    "toStrictEqual(",
    "assert.equal(",
    "assert.strictEqual(",
    "assert.deepEqual(",
    "assert.deepStrictEqual(",
    "assert.Equal(",
    "require.Equal(",
    "DeepEqual(",
];
/// Parts of lines that end the program of a runner.
const ENDS: [&str; 8] = [
    "process.exit(",
    "process.reallyExit(",
    "os._exit(",
    "sys.exit(",
    "process::exit(",
    "process::abort(",
    "os.Exit(",
    "syscall.Exit(",
];
/// Parts of test runners' reports; other programs have no reason to print them.
const REPORTS: [&str; 12] = [
    "test result: ok",
    "test result: FAILED",
    "TAP version 1",
    "tests in 0.",
    " passed in 0.",
    "--- PASS:",
    "\"Action\":\"pass\"",
    "\\\"Action\\\":\\\"pass\\\"",
    "\"numPassedTests\"",
    "<testsuite",
    "tests run: ",
    "# pass ",
];
/// Endings of files that are read, not run.
const TEXTS: [&str; 6] = [".md", ".txt", ".rst", ".adoc", ".html", ".log"];
/// Beginnings of assertions that always hold, written without white space.
const EMPTY: [&str; 9] = [
    "assert!(true",
    "assert_eq!(true,true",
    "assert_eq!(1,1",
    "expect(true).toBe(true",
    "expect(true).toBeTruthy(",
    "expect(1).toBe(1",
    "self.assertTrue(True",
    "assert.ok(true",
    "assert.equal(1,1",
];

/// A line of a diff, with its place.
struct DiffLine<'a> {
    number: u32,
    text: &'a str,
}

/// The changes of one file.
#[derive(Default)]
struct FileDiff<'a> {
    old_path: &'a str,
    new_path: &'a str,
    is_binary: bool,
    added: Vec<DiffLine<'a>>,
    removed: Vec<DiffLine<'a>>,
}

impl<'a> FileDiff<'a> {
    fn is_deleted(&self) -> bool {
        self.new_path == "/dev/null"
    }

    /// Returns the path after the change, or before it for what is deleted.
    fn path(&self) -> &'a str {
        if self.is_deleted() { self.old_path } else { self.new_path }
    }
}

/// Finds tests that a unified diff (`git diff`) deletes, skips or weakens; [`MAX_FINDINGS`] at most. Files that may be changed are
/// passed over, so that their findings take no place from others.
///
/// # Errors
///
/// If the diff is too large to be judged.
pub fn find_weakened_tests(
    diff: &str,
    is_allowed: impl Fn(&str) -> bool,
) -> Result<Vec<WeakenedTest>, DiffTooLarge> {
    if diff.len() > MAX_DIFF_BYTES {
        return Err(DiffTooLarge);
    }
    let files = read_files(diff);
    // A moved test is among the added lines under the same name, so it counts as there.
    let added: BTreeSet<&str> =
        files.iter().flat_map(|file| &file.added).filter_map(|line| test_name(line.text)).collect();
    let mut found = Vec::new();
    for file in files.iter().filter(|file| !is_allowed(file.path())) {
        find_in_file(file, &added, &mut found);
        if found.len() >= MAX_FINDINGS {
            break;
        }
    }
    found.truncate(MAX_FINDINGS);
    Ok(found)
}

fn find_in_file(file: &FileDiff<'_>, added: &BTreeSet<&str>, found: &mut Vec<WeakenedTest>) {
    let (is_deleted, path) = (file.is_deleted(), file.path());
    let mut add = |line: u32, kind, text: &str| {
        let text = text
            .trim()
            .chars()
            .take(MAX_QUOTED_CHARS)
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect();
        found.push(WeakenedTest { path: path.to_owned(), line, kind, text });
    };
    if file.is_binary && !is_deleted && (is_test_path(path) || has_named_tests(path)) {
        // One NUL byte makes a text binary for git, and runners still run it.
        add(0, WeakenedKind::BinaryFile, path);
    }
    let lost: Vec<&DiffLine<'_>> = file
        .removed
        .iter()
        .filter(|line| test_name(line.text).is_some_and(|name| !added.contains(name)))
        .collect();
    if is_deleted && is_test_path(path) && (!lost.is_empty() || !has_named_tests(path)) {
        add(0, WeakenedKind::DeletedFile, path);
    } else {
        lost.iter().for_each(|line| add(line.number, WeakenedKind::DeletedTest, line.text));
    }
    // The same mark on both sides has only been moved.
    let new_marks = |parts: &[&'static str]| -> Vec<&'static str> {
        let count = |lines: &[DiffLine<'_>], part: &str| {
            lines.iter().filter(|line| has_part(line.text, part)).count()
        };
        parts.iter().copied().filter(|part| count(&file.added, part) > count(&file.removed, part)).collect()
    };
    let (skips, onlys) = (new_marks(&SKIPS), new_marks(&ONLYS));
    let is_text = TEXTS.into_iter().any(|end| path.ends_with(end));
    for line in &file.added {
        if skips.iter().any(|part| has_part(line.text, part)) {
            add(line.number, WeakenedKind::SkippedTest, line.text);
        } else if onlys.iter().any(|part| has_part(line.text, part)) {
            add(line.number, WeakenedKind::OnlyTest, line.text);
        } else if is_empty_assertion(line.text) {
            add(line.number, WeakenedKind::EmptyAssertion, line.text);
        } else if is_test_path(path) && ends_run(line.text) {
            add(line.number, WeakenedKind::EndsRun, line.text);
        } else if !is_text && REPORTS.into_iter().any(|part| line.text.contains(part)) {
            add(line.number, WeakenedKind::ForgedReport, line.text);
        }
    }
    let assertions = |lines: &[DiffLine<'_>]| lines.iter().filter(|line| is_assertion(line.text)).count();
    let (gone, new) = (assertions(&file.removed), assertions(&file.added));
    // Assertions of deleted tests are not counted: those tests have their own findings.
    if gone > new && lost.is_empty() && !is_deleted {
        let first = file.removed.iter().find(|line| is_assertion(line.text));
        add(
            first.map_or(0, |line| line.number),
            WeakenedKind::FewerAssertions,
            &format!("{gone} assertions removed, {new} added"),
        );
        return;
    }
    let exact = |lines: &[DiffLine<'_>]| lines.iter().filter(|line| is_exact(line.text)).count();
    let (gone, new) = (exact(&file.removed), exact(&file.added));
    if gone > new && lost.is_empty() && !is_deleted {
        let first = file.removed.iter().find(|line| is_exact(line.text));
        add(
            first.map_or(0, |line| line.number),
            WeakenedKind::WeakerAssertions,
            &format!("{gone} assertions of one value removed, {new} added"),
        );
    }
}

/// Returns true for an assertion that holds for one value alone.
fn is_exact(line: &str) -> bool {
    let is_python = has_part(line, "assert ") && line.contains(" == ");
    is_python || (is_assertion(line) && EXACT.into_iter().any(|part| line.contains(part)))
}

/// Returns true for a line that ends the runner: the tests after it are not run, and it has the exit status that it wants.
fn ends_run(line: &str) -> bool {
    // What Go's own `TestMain` and Python's own `main` end with is the result of the tests.
    let is_result =
        line.contains("m.Run()") || line.contains("unittest.main") || line.contains("pytest.main");
    !is_result && ENDS.into_iter().any(|part| has_part(line, part))
}

/// Returns true for code that has a part; a comment that speaks of it has not.
fn has_part(line: &str, part: &str) -> bool {
    let line = line.trim_start();
    let is_comment = ["//", "/*", "* ", "# "].into_iter().any(|mark| line.starts_with(mark));
    !is_comment
        && line.match_indices(part).any(|(at, _)| {
            // `submit(` has no `it(`.
            let before = line.get(..at).and_then(|text| text.chars().next_back());
            let is_word = part.starts_with(|c: char| c.is_alphanumeric());
            !is_word || before.is_none_or(|c| !c.is_alphanumeric() && c != '_' && c != '.')
        })
}

fn is_assertion(line: &str) -> bool {
    ASSERTIONS.into_iter().any(|part| has_part(line, part))
}

fn is_empty_assertion(line: &str) -> bool {
    let plain: String = line.chars().filter(|c| !c.is_whitespace()).collect();
    let is_bare = |part: &str| {
        // What follows is the end of the arguments, or a message: `true_value()` is another one.
        plain.strip_prefix(part).is_some_and(|rest| rest.starts_with([')', ',']))
    };
    // The two of Python are whole lines: `assert True` and `assert 1 == 1`.
    matches!(plain.as_str(), "assertTrue" | "assert1==1") || EMPTY.into_iter().any(is_bare)
}

/// Returns the name of the test that a line begins, in Rust, Python, JavaScript and Go.
fn test_name(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let word = |text: &'static str| line.strip_prefix(text);
    let until = |rest: &'_ str| rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
    for mark in ["def ", "async def ", "fn ", "async fn ", "func "] {
        if let Some(rest) = word(mark) {
            let name = rest.get(..until(rest))?;
            // Go's helpers are named otherwise; those of Rust and Python without `test` cannot be distinguished from other functions.
            let is_test = if mark == "func " {
                ["Test", "Fuzz", "Benchmark", "Example"].into_iter().any(|start| name.starts_with(start))
            } else {
                name.starts_with("test") || name.ends_with("_test")
            };
            return is_test.then_some(name);
        }
    }
    for mark in ["it(", "test(", "it.each(", "test.each("] {
        if let Some(rest) = word(mark) {
            let quote = rest.chars().next().filter(|c| matches!(c, '"' | '\'' | '`'))?;
            return rest.get(1..)?.split(quote).next().filter(|name| !name.is_empty());
        }
    }
    // In Rust every function can be one: its mark counts.
    matches!(line.trim_end(), "#[test]" | "#[tokio::test]").then_some("#[test]")
}

/// Returns true if deleted tests of a file can be found by their names.
fn has_named_tests(path: &str) -> bool {
    [".rs", ".py", ".js", ".ts", ".jsx", ".tsx", ".mjs", ".cjs", ".go"]
        .into_iter()
        .any(|end| path.ends_with(end))
}

/// Returns true if a path is where test runners look for tests.
pub fn is_test_path(path: &str) -> bool {
    let (folders, name) = path.rsplit_once('/').unwrap_or(("", path));
    let is_folder = |folder: &str| {
        matches!(
            folder,
            "test" | "tests" | "__tests__" | "spec" | "specs" | "testdata" | "__snapshots__" | "snapshots"
        )
    };
    let stem = name.split('.').next().unwrap_or(name);
    folders.split('/').any(is_folder)
        || name.split('.').skip(1).any(|part| matches!(part, "test" | "spec" | "snap"))
        || stem.starts_with("test_")
        || stem.ends_with("_test")
        || stem == "tests"
}

/// Reads the files of a diff. Lines that are no part of one are passed over.
fn read_files(diff: &str) -> Vec<FileDiff<'_>> {
    let mut files: Vec<FileDiff<'_>> = Vec::new();
    // The next numbers of both sides, and the lines that the hunk still has on each.
    let (mut old, mut new, mut left) = (0_u32, 0_u32, (0_u32, 0_u32));
    for line in diff.lines() {
        if left == (0, 0) {
            if line.starts_with("diff --git ")
                || (line.starts_with("--- ") && files.last().is_none_or(is_begun))
            {
                files.push(FileDiff::default());
            }
            let Some(file) = files.last_mut() else { continue };
            if let Some(path) = line.strip_prefix("--- ") {
                file.old_path = plain_path(path, "a/");
            } else if let Some(path) = line.strip_prefix("+++ ") {
                file.new_path = plain_path(path, "b/");
            } else if let Some((old, new)) = read_binary(line) {
                (file.old_path, file.new_path, file.is_binary) =
                    (plain_path(old, "a/"), plain_path(new, "b/"), true);
            } else if let Some(hunk) = line.strip_prefix("@@ ").and_then(read_hunk) {
                (old, new, left) = (hunk.0.0, hunk.1.0, (hunk.0.1, hunk.1.1));
            }
            continue;
        }
        let Some(file) = files.last_mut() else { continue };
        let (mark, text) = line.split_at_checked(1).unwrap_or((" ", ""));
        match mark {
            "+" => {
                file.added.push(DiffLine { number: new, text });
                new = new.saturating_add(1);
                left.1 = left.1.saturating_sub(1);
            }
            "-" => {
                file.removed.push(DiffLine { number: old, text });
                old = old.saturating_add(1);
                left.0 = left.0.saturating_sub(1);
            }
            // No line break at the end of the file: not a line.
            "\\" => {}
            _ => {
                (old, new) = (old.saturating_add(1), new.saturating_add(1));
                left = (left.0.saturating_sub(1), left.1.saturating_sub(1));
            }
        }
    }
    files
}

const fn is_begun(file: &FileDiff<'_>) -> bool {
    !file.new_path.is_empty()
}

/// Returns a path without the letter of its side, and without what follows a tab.
fn plain_path<'a>(path: &'a str, side: &str) -> &'a str {
    let path = path.split('\t').next().unwrap_or(path).trim_matches('"');
    path.strip_prefix(side).unwrap_or(path)
}

/// Reads `Binary files a/X and b/Y differ` into both paths.
fn read_binary(line: &str) -> Option<(&str, &str)> {
    let both = line.strip_prefix("Binary files ")?.strip_suffix(" differ")?;
    // The last one: the path after the change is the one that is judged, and may not be hidden behind a name with this word in it.
    both.rsplit_once(" and ")
}

/// Reads `-12,3 +12,5 @@ …` into the first line and the number of lines of both sides.
fn read_hunk(text: &str) -> Option<((u32, u32), (u32, u32))> {
    let mut parts = text.split(' ');
    let read = |part: &str| -> Option<(u32, u32)> {
        let (start, count) = part.split_once(',').unwrap_or((part, "1"));
        Some((start.parse().ok()?, count.parse().ok()?))
    };
    let old = read(parts.next()?.strip_prefix('-')?)?;
    let new = read(parts.next()?.strip_prefix('+')?)?;
    Some((old, new))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A diff of one file; each line begins with its sign.
    fn diff(path: &str, lines: &str) -> String {
        let count = |marks: [char; 2]| lines.lines().filter(|line| line.starts_with(marks)).count();
        let (old, new) = (count(['-', ' ']), count(['+', ' ']));
        format!(
            "diff --git a/{path} b/{path}\nindex 1..2 100644\n--- a/{path}\n+++ b/{path}\n@@ -10,{old} +20,{new} @@ fn x()\n{lines}\n"
        )
    }

    fn kinds(diff: &str) -> Vec<(u32, WeakenedKind)> {
        find_weakened_tests(diff, |_| false)
            .unwrap()
            .into_iter()
            .map(|found| (found.line, found.kind))
            .collect()
    }

    #[test]
    fn skipped_tests_are_found_in_each_language() {
        for (path, line) in [
            ("src/a.rs", "    #[ignore = \"slow\"]"),
            ("tests/test_a.py", "@pytest.mark.skip(reason=\"flaky\")"),
            ("tests/test_a.py", "@pytest.mark.xfail"),
            ("tests/test_a.py", "        self.skipTest('later')"),
            ("a.test.ts", "  it.skip('adds', () => {"),
            ("a.test.ts", "  xit('adds', () => {"),
            ("a.test.ts", "test.todo('adds');"),
            ("a_test.go", "\tt.Skip(\"later\")"),
            ("ATest.java", "    @Disabled"),
        ] {
            assert_eq!(
                kinds(&diff(path, &format!(" a\n+{line}"))),
                [(21, WeakenedKind::SkippedTest)],
                "{line}"
            );
        }
        for line in ["it.only('adds', () => {", "fdescribe('sums', () => {"] {
            assert_eq!(kinds(&diff("a.test.ts", &format!("+{line}"))), [(20, WeakenedKind::OnlyTest)]);
        }
        for line in [
            "// it.skip( is not used here",
            "  submit('x');",
            "exit(1);",
            "profit(2)",
            "# t.Skip( no",
            "let reset.fit(1)",
        ] {
            assert_eq!(kinds(&diff("a.test.ts", &format!("+{line}"))), [], "{line}");
        }
        // The mark was there before.
        assert_eq!(kinds(&diff("a.rs", "-  #[ignore]\n+    #[ignore]")), []);
    }

    #[test]
    fn deleted_tests_and_files_are_found_and_moved_ones_are_not() {
        let deleted =
            |path: &str, lines: &str| diff(path, lines).replace(&format!("+++ b/{path}"), "+++ /dev/null");
        for (path, line) in [
            ("tests/test_a.py", "def test_adds():"),
            ("a.test.ts", "it('adds', () => {"),
            ("a_test.go", "func TestAdds(t *testing.T) {"),
            ("src/a.rs", "    #[test]"),
        ] {
            assert_eq!(
                kinds(&diff(path, &format!(" x\n-{line}\n-}}"))),
                [(11, WeakenedKind::DeletedTest)],
                "{line}"
            );
            let moved = format!("{}{}", diff(path, &format!("-{line}")), diff("other", &format!("+{line}")));
            assert_eq!(kinds(&moved), [], "{line}");
        }
        assert_eq!(
            kinds(&deleted("tests/test_a.py", "-def test_adds():\n-  assert add(1) == 2")),
            [(0, WeakenedKind::DeletedFile)]
        );
        assert_eq!(kinds(&deleted("tests/snapshots/a.snap", "-text")), [(0, WeakenedKind::DeletedFile)]);
        assert_eq!(kinds(&deleted("tests/helper.py", "-def make():")), [], "no test is gone with it");
        assert_eq!(kinds(&deleted("src/a.py", "-def add():")), []);
        let renamed = format!(
            "{}{}",
            deleted("tests/test_a.py", "-def test_adds():"),
            diff("tests/test_b.py", "+def test_adds():")
        );
        assert_eq!(kinds(&renamed), []);
    }

    #[test]
    fn weaker_assertions_are_found() {
        let fewer = diff(
            "a.test.ts",
            "-  expect(sum(1, 2)).toBe(3);\n-  expect(sum(0, 0)).toBe(0);\n+  expect(sum(1, 2)).toBeDefined();",
        );
        assert_eq!(kinds(&fewer), [(10, WeakenedKind::FewerAssertions)]);
        assert_eq!(find_weakened_tests(&fewer, |_| false).unwrap()[0].text, "2 assertions removed, 1 added");
        for line in [
            "assert!(true);",
            "assert True",
            "expect(true).toBe(true);",
            "self.assertTrue(True)",
            "assert_eq!(1, 1);",
        ] {
            assert_eq!(
                kinds(&diff("a", &format!("+    {line}"))),
                [(20, WeakenedKind::EmptyAssertion)],
                "{line}"
            );
        }
        for line in ["assert!(true_value());", "assert True_ish(x)", "assert_eq!(1, 10 - x);"] {
            assert_eq!(kinds(&diff("a", &format!("+    {line}"))), [], "{line}");
        }
        assert_eq!(
            kinds(&diff("a.rs", "-assert_eq!(a, 1);\n+assert_eq!(a, 2);")),
            [],
            "another value is for the review"
        );
    }

    #[test]
    fn assertions_of_one_value_ends_of_the_run_and_forged_reports_are_found() {
        for (path, old, new) in [
            ("a.rs", "assert_eq!(a, 1);", "assert!(a > 0);"),
            ("test_a.py", "self.assertEqual(a, 1)", "self.assertGreater(a, 0)"),
            ("test_a.py", "assert a == 1", "assert a"),
            ("a.test.ts", "expect(a).toBe(1);", "expect(a).toBeDefined();"),
            ("a.test.mjs", "assert.equal(a, 1);", "assert.ok(a);"),
        ] {
            let found = kinds(&diff(path, &format!("-  {old}\n+  {new}")));
            assert_eq!(found, [(10, WeakenedKind::WeakerAssertions)], "{old}");
            assert_eq!(kinds(&diff(path, &format!("-  {new}\n+  {old}"))), [], "the other way round");
        }
        for line in
            ["process.exit(0);", "os._exit(0)", "    sys.exit(0)", "std::process::exit(0);", "os.Exit(0)"]
        {
            assert_eq!(
                kinds(&diff("tests/a.x", &format!("+{line}"))),
                [(20, WeakenedKind::EndsRun)],
                "{line}"
            );
            assert_eq!(kinds(&diff("src/main.x", &format!("+{line}"))), [], "a program may end");
        }
        for line in ["os.Exit(m.Run())", "sys.exit(unittest.main())"] {
            assert_eq!(kinds(&diff("tests/a.x", &format!("+{line}"))), [], "{line}");
        }
        for line in [
            "println!(\"test result: ok. 3 passed; 0 failed\");",
            "print('Ran 3 tests in 0.001s')",
            "console.log('TAP version 13\\n1..3')",
            "fmt.Println(`{\"Action\":\"pass\",\"Test\":\"A\"}`)",
            "fmt.Println(\"--- PASS: TestA (0.00s)\")",
        ] {
            assert_eq!(
                kinds(&diff("src/a.x", &format!("+{line}"))),
                [(20, WeakenedKind::ForgedReport)],
                "{line}"
            );
            assert_eq!(kinds(&diff("docs/a.md", &format!("+{line}"))), [], "{line}");
        }
    }

    /// Lines inside a hunk that look like heads of files are lines.
    #[test]
    fn a_diff_inside_a_diff_is_text() {
        let text = diff(
            "docs/a.md",
            "+diff --git a/x b/x\n+--- a/tests/test_x.py\n++++ /dev/null\n+@@ -1,1 +0,0 @@\n---- a/old",
        );
        assert_eq!(kinds(&text), []);
        assert_eq!(find_weakened_tests(&"x".repeat(MAX_DIFF_BYTES + 1), |_| false), Err(DiffTooLarge));
        let many: String = (0..500).map(|n| diff(&format!("t{n}_test.go"), "+\tt.Skip()")).collect();
        assert_eq!(kinds(&many).len(), MAX_FINDINGS);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn reading_never_panics(text in "(diff --git a/x b/x\n|--- |\\+\\+\\+ |@@ -1,2 \\+1 @@\n|@@ -4294967295,4294967295 \\+4294967295,9 @@\n|[-+ \\\\]|é|it\\.skip\\(|#\\[test\\]|\n){0,60}") {
            let _ = find_weakened_tests(&text, |_| false);
        }
    }

    #[test]
    fn a_binary_file_of_code_is_a_finding_and_a_picture_is_none() {
        let diff = |old: &str, new: &str| {
            format!("diff --git a/x b/x\nindex 1..2 100644\nBinary files {old} and {new} differ\n")
        };
        let kinds = |old: &str, new: &str| -> Vec<(String, WeakenedKind)> {
            let found = find_weakened_tests(&diff(old, new), |_| false).unwrap();
            found.into_iter().map(|one| (one.path, one.kind)).collect()
        };
        let binary = |path: &str| vec![(path.to_owned(), WeakenedKind::BinaryFile)];
        assert_eq!(kinds("a/a.test.mjs", "b/a.test.mjs"), binary("a.test.mjs"));
        assert_eq!(kinds("/dev/null", "b/src/lib.rs"), binary("src/lib.rs"));
        assert_eq!(kinds("a/logo.png", "b/logo.png"), []);
        assert_eq!(kinds("a/x and b/y.rs", "b/x and b/y.rs"), binary("y.rs"));
        assert_eq!(kinds("a/tests/data.bin", "b/tests/data.bin"), binary("tests/data.bin"));
    }

    #[test]
    fn findings_in_files_that_may_be_changed_take_no_place() {
        let skips: String = (0..MAX_FINDINGS).map(|_| "+@pytest.mark.skip\n").collect();
        let allowed = format!(
            "diff --git a/tests/a/test_x.py b/tests/a/test_x.py\n--- a/tests/a/test_x.py\n+++ b/tests/a/test_x.py\n@@ -1,0 +1,{MAX_FINDINGS} @@\n{skips}"
        );
        let other = "diff --git a/tests/z/test_y.py b/tests/z/test_y.py\n--- a/tests/z/test_y.py\n+++ /dev/null\n@@ -1,1 +0,0 @@\n-def test_core():\n";
        let found = find_weakened_tests(&(allowed + other), |path| path.starts_with("tests/a/")).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].path.as_str(), found[0].kind), ("tests/z/test_y.py", WeakenedKind::DeletedFile));
    }
}
