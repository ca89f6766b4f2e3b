//! Reads the output of test runners: cargo's, Python's `unittest`, Node's in both of its forms.

use super::text::after;

/// A run of the tests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TestRun {
    pub(crate) total: u64,
    pub(crate) failed: u64,
    /// True if the command itself succeeded.
    pub(crate) ended_well: bool,
    pub(crate) failure: Option<Failure>,
    pub(crate) output: String,
}

/// An assertion that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// The test's name, as the runner prints it.
    pub(crate) test: String,
    /// The file of the assertion.
    pub(crate) path: String,
    pub(crate) line: usize,
    pub(crate) actual: i64,
    pub(crate) expected: i64,
}

impl TestRun {
    pub(crate) fn parse(output: &str) -> Self {
        // The harness says first how a program ended, unless it ended well.
        let ended_well = !output.starts_with('(') || output.starts_with("(exit code 0");
        let (total, failed) = counts(output);
        let failure = rust(output).or_else(|| python(output)).or_else(|| node(output));
        Self { total, failed, ended_well, failure, output: output.to_owned() }
    }

    pub(crate) const fn passed(&self) -> bool {
        self.ended_well && self.total > 0 && self.failed == 0 && self.failure.is_none()
    }
}

fn counts(output: &str) -> (u64, u64) {
    let (mut total, mut failed) = (0, 0);
    for line in output.lines() {
        if let Some(rest) = line.strip_prefix("test result: ") {
            let of = |word: &str| number_before(rest, word);
            total += of(" passed") + of(" failed");
            failed += of(" failed");
        } else if let Some(rest) = line.strip_prefix("Ran ") {
            total += leading_number(rest);
        } else if let Some(rest) = line.strip_prefix("FAILED (") {
            let of = |word: &str| after(rest, word).map_or(0, leading_number);
            failed += of("failures=") + of("errors=");
        } else if let Some(rest) = line.strip_prefix("# ").or_else(|| line.strip_prefix("\u{2139} ")) {
            let of = |word: &str| rest.strip_prefix(word).map_or(0, leading_number);
            total += of("tests ");
            failed += of("fail ") + of("cancelled ");
        }
    }
    (total, failed)
}

fn leading_number(text: &str) -> u64 {
    let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap_or(0)
}

fn number_before(text: &str, word: &str) -> u64 {
    let before = text.split(word).next().unwrap_or_default();
    before.rsplit(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// A signed number at the start of a text.
fn signed(text: &str) -> Option<i64> {
    let text = text.trim();
    text.split(|c: char| !c.is_ascii_digit() && c != '-').next()?.parse().ok()
}

/// `path:line:column` as a path of the project and a line.
fn location(text: &str) -> Option<(String, usize)> {
    let mut parts = text.split(':');
    let (path, line) = (parts.next()?, parts.next()?);
    Some((relative(path)?, line.parse().ok()?))
}

/// The part of an absolute path that begins at the folder of the tests.
fn relative(path: &str) -> Option<String> {
    if !path.starts_with('/') {
        return Some(path.to_owned());
    }
    let names: Vec<&str> = path.split('/').collect();
    let at = names.iter().rposition(|name| matches!(*name, "tests" | "test" | "src"))?;
    Some(names.get(at..)?.join("/"))
}

fn rust(output: &str) -> Option<Failure> {
    let block = after(output, "---- ")?;
    let test = block.split(" stdout ----").next()?.trim().to_owned();
    let place = after(block, "panicked at ")?;
    let (path, line) = location(place.lines().next()?)?;
    let actual = signed(after(place, "\n  left: ")?)?;
    let expected = signed(after(place, "\n right: ")?)?;
    Some(Failure { test, path, line, actual, expected })
}

fn python(output: &str) -> Option<Failure> {
    let block = after(output, "\nFAIL: ").or_else(|| output.strip_prefix("FAIL: "))?;
    let test = block.split([' ', '\n']).next()?.to_owned();
    let (path, rest) = after(block, "  File \"")?.split_once("\", line ")?;
    let line = usize::try_from(leading_number(rest)).ok()?;
    let compared = after(rest, "AssertionError: ")?;
    let (actual, expected) = compared.lines().next()?.split_once(" != ")?;
    Some(Failure { test, path: relative(path)?, line, actual: signed(actual)?, expected: signed(expected)? })
}

fn node(output: &str) -> Option<Failure> {
    // TAP names the test before its details; the other form after a list of all tests.
    let (test, block) = match output.lines().find(|line| line.trim_start().starts_with("not ok ")) {
        Some(line) => (after(line, " - ")?.to_owned(), after(output, line)?),
        None => {
            let block = after(output, "failing tests:")?;
            let line = block.lines().find(|line| line.starts_with('\u{2716}'))?;
            (line.trim_start_matches('\u{2716}').rsplit_once(" (")?.0.trim().to_owned(), block)
        }
    };
    let actual = signed(after(block, "actual: ")?)?;
    let expected = signed(after(block, "expected: ")?)?;
    // The first frame is the assertion; its path is a file URL.
    let frame = after(block, "file://")?;
    let (path, line) = location(frame.split(')').next()?)?;
    Some(Failure { test, path, line, actual, expected })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(test: &str, path: &str, line: usize) -> Option<Failure> {
        Some(Failure { test: test.to_owned(), path: path.to_owned(), line, actual: 80, expected: 120 })
    }

    #[test]
    fn cargo() {
        let output = "(exit code 101)\nstandard output:\nrunning 2 tests\ntest a::fee ... FAILED\ntest a::b ... ok\n\nfailures:\n\n---- a::fee stdout ----\n\nthread 'a::fee' (7) panicked at tests/suite/a.rs:12:5:\nassertion `left == right` failed\n  left: 80\n right: 120\n\nfailures:\n    a::fee\n\ntest result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out\n";
        let run = TestRun::parse(output);
        assert_eq!((run.total, run.failed, run.passed()), (2, 1, false));
        assert_eq!(run.failure, failure("a::fee", "tests/suite/a.rs", 12));
        assert!(TestRun::parse("test result: ok. 2 passed; 0 failed; 0 ignored").passed());
        assert!(!TestRun::parse("(exit code 1)\ntest result: ok. 2 passed; 0 failed; 0 ignored").passed());
        assert!(!TestRun::parse("test result: ok. 0 passed; 0 failed; 0 ignored").passed(), "none ran");
    }

    #[test]
    fn unittest() {
        let output = "(exit code 1)\nstandard error:\n.F\n====\nFAIL: test_fee (tests.test_a.ATest.test_fee)\n----\nTraceback (most recent call last):\n  File \"/work/tests/test_a.py\", line 12, in test_fee\n    self.assertEqual(fee(3), 120)\nAssertionError: 80 != 120\n\n----\nRan 2 tests in 0.003s\n\nFAILED (failures=1)";
        let run = TestRun::parse(output);
        assert_eq!((run.total, run.failed), (2, 1));
        assert_eq!(run.failure, failure("test_fee", "tests/test_a.py", 12));
        assert!(
            TestRun::parse("(exit code 0)\nstandard error:\n..\n----\nRan 2 tests in 0.003s\n\nOK").passed()
        );
    }

    #[test]
    fn node_in_both_forms() {
        let tap = "(exit code 1)\nTAP version 13\n# Subtest: fee\nnot ok 1 - fee\n  ---\n  location: '/work/test/a.test.js:4:1'\n  error: |-\n    Expected values to be strictly equal:\n    \n    80 !== 120\n    \n  expected: 120\n  actual: 80\n  stack: |-\n    TestContext.<anonymous> (file:///work/test/a.test.js:12:10)\n  ...\n1..1\n# tests 2\n# pass 1\n# fail 1\n";
        let run = TestRun::parse(tap);
        assert_eq!((run.total, run.failed), (2, 1));
        assert_eq!(run.failure, failure("fee", "test/a.test.js", 12));
        let spec = "(exit code 1)\n\u{2716} fee (1.2ms)\n\u{2139} tests 2\n\u{2139} fail 1\n\n\u{2716} failing tests:\n\ntest at test/a.test.js:4:1\n\u{2716} fee (1.2ms)\n  AssertionError [ERR_ASSERTION]: Expected values to be strictly equal:\n  \n  80 !== 120\n  \n      at TestContext.<anonymous> (file:///work/test/a.test.js:12:10) {\n    actual: 80,\n    expected: 120,\n  }\n";
        let run = TestRun::parse(spec);
        assert_eq!((run.total, run.failed), (2, 1));
        assert_eq!(run.failure, failure("fee", "test/a.test.js", 12));
    }
}
