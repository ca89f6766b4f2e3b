//! Runners of tests that say they ran none.
//!
//! A runner without tests mostly exits with 0 (cargo, go, node), so the exit status alone would be taken for a proof.
//! Sources: the summary lines that the runners print; versions differ in details, so only their stable words are used.

/// The most lines that are looked at, from the end: summaries stand there.
const MAX_LINES: usize = 2_000;

/// Returns true if the output has summaries of test runs, and each says that none was run.
pub(super) fn ran_no_test(run: &[String], stdout: &str, stderr: &str) -> bool {
    // Only programs that run tests are believed to report about tests.
    if !run.iter().any(|word| is_runner(word)) {
        return false;
    }
    let lines = stdout.lines().rev().take(MAX_LINES).chain(stderr.lines().rev().take(MAX_LINES));
    let mut summaries = lines.filter_map(read_summary).peekable();
    summaries.peek().is_some() && summaries.all(|ran| !ran)
}

fn is_runner(word: &str) -> bool {
    let name = word.rsplit('/').next().unwrap_or(word);
    let is_word = matches!(
        name,
        "test"
            | "nextest"
            | "pytest"
            | "unittest"
            | "jest"
            | "vitest"
            | "mocha"
            | "go"
            | "npm"
            | "yarn"
            | "pnpm"
            | "tox"
            | "make"
            | "just"
            | "ctest"
            | "--test"
            | "py.test"
    );
    is_word || name.starts_with("test")
}

/// Returns true if a line says that tests were run, false if it says that none was; none for any other line.
fn read_summary(line: &str) -> Option<bool> {
    let line = line.trim();
    let count_before = |words: &str| -> Option<u64> {
        let (before, _) = line.split_once(words)?;
        before.rsplit(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
    };
    // cargo: `test result: ok. 3 passed; 1 failed; 0 ignored; …`
    if line.starts_with("test result: ") {
        let (passed, failed) = (count_before(" passed")?, count_before(" failed")?);
        return Some(passed > 0 || failed > 0);
    }
    // unittest of Python: `Ran 3 tests in 0.1s`
    if let Some(rest) = line.strip_prefix("Ran ") {
        let count: u64 = rest.split_once(" test")?.0.parse().ok()?;
        return Some(count > 0);
    }
    // node: `# tests 3` or `ℹ tests 3`
    if let Some(rest) = line.strip_prefix("# tests ").or_else(|| line.strip_prefix("ℹ tests ")) {
        return rest.parse::<u64>().ok().map(|count| count > 0);
    }
    // go: `ok  pkg 0.1s`, `ok  pkg 0.1s [no tests to run]`, `?  pkg [no test files]`
    if line.starts_with("ok  \t") || line.starts_with("ok \t") || line.starts_with("ok\t") {
        return Some(!line.contains("[no tests to run]"));
    }
    if line.starts_with('?') && line.ends_with("[no test files]") {
        return Some(false);
    }
    // pytest: `==== 3 passed in 0.1s ====`, `==== no tests ran in 0.01s ====`
    if line.contains("no tests ran")
        || line.starts_with("No tests found")
        || line.starts_with("No test files found")
    {
        return Some(false);
    }
    let is_pytest = line.contains(" in ") && (line.contains(" passed") || line.contains(" failed"));
    // jest and vitest: `Tests:  3 passed, 3 total`
    let is_jest = line.starts_with("Tests") && (line.contains(" passed") || line.contains(" failed"));
    (is_pytest || is_jest).then(|| {
        count_before(" passed").is_some_and(|n| n > 0) || count_before(" failed").is_some_and(|n| n > 0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ran_none(run: &str, stdout: &str) -> bool {
        ran_no_test(&run.split(' ').map(str::to_owned).collect::<Vec<_>>(), stdout, "")
    }

    #[test]
    fn runners_that_ran_nothing_are_known_by_their_summaries() {
        let none = [
            (
                "cargo test x",
                "running 0 tests\n\ntest result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 9 filtered out\n",
            ),
            ("python3 -m unittest", "\n----\nRan 0 tests in 0.000s\n\nOK\n"),
            ("pytest -q", "\nno tests ran in 0.01s\n"),
            ("node --test", "# tests 0\n# pass 0\n"),
            ("go test ./...", "?   \tx/y\t[no test files]\nok  \tx/z\t0.01s [no tests to run]\n"),
            ("npx jest", "No tests found, exiting with code 0\n"),
        ];
        for (run, stdout) in none {
            assert!(ran_none(run, stdout), "{run}");
        }
        let some = [
            (
                "cargo test",
                "test result: ok. 0 passed; 0 failed; 0 ignored\ntest result: ok. 2 passed; 0 failed; 0 ignored\n",
            ),
            ("cargo test", "test result: FAILED. 0 passed; 1 failed; 0 ignored\n"),
            ("python3 -m unittest", "Ran 1 test in 0.000s\n"),
            ("pytest", "=== 3 passed, 1 skipped in 0.10s ===\n"),
            ("node --test", "# tests 2\n"),
            ("go test ./...", "?   \tx/y\t[no test files]\nok  \tx/z\t0.01s\n"),
            ("npx jest", "Tests:       4 passed, 4 total\n"),
            ("pytest", "something else\n"),
        ];
        for (run, stdout) in some {
            assert!(!ran_none(run, stdout), "{run}: {stdout}");
        }
        assert!(!ran_none("cat log", "test result: ok. 0 passed; 0 failed;\n"), "no runner of tests");
    }
}
