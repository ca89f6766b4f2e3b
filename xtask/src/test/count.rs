//! Totals, summed from the lines with which test binaries end.

use std::fmt;

/// The most failed tests, and the most ignored ones, that are named at the end; the rest is in the output above.
const NAMED: usize = 40;

/// The numbers of tests that passed, failed and were left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Count {
    pub(super) passed: u64,
    pub(super) failed: u64,
    pub(super) skipped: u64,
    /// The names of the first failed tests.
    pub(super) names: Vec<String>,
    /// The names of the first ignored tests.
    pub(super) ignored: Vec<String>,
}

impl Count {
    /// Adds what a line says, if it is the last of a test binary:
    /// `test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 1 filtered out; finished in 0.01s`.
    pub(super) fn line(&mut self, line: &str) {
        if let Some(name) = line.strip_prefix("test ").and_then(|line| line.strip_suffix(" ... FAILED")) {
            self.name(name);
        }
        if let Some((name, _)) = line.strip_prefix("test ").and_then(|line| line.split_once(" ... ignored")) {
            add_name(&mut self.ignored, name);
        }
        let Some(result) = line.strip_prefix("test result: ") else { return };
        let numbers = result.split_once(". ").map_or(result, |(_, numbers)| numbers);
        for part in numbers.split(';') {
            let Some((number, what)) = part.trim().split_once(' ') else { continue };
            let Ok(number) = number.parse::<u64>() else { continue };
            match what {
                "passed" => self.passed += number,
                "failed" => self.failed += number,
                "ignored" | "filtered out" => self.skipped += number,
                _ => {}
            }
        }
    }

    /// Records the name of a failed test.
    pub(super) fn name(&mut self, name: &str) {
        add_name(&mut self.names, name);
    }

    /// Adds other totals.
    pub(super) fn add(&mut self, other: &Self) {
        for name in &other.names {
            self.name(name);
        }
        for name in &other.ignored {
            add_name(&mut self.ignored, name);
        }
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

fn add_name(names: &mut Vec<String>, name: &str) {
    if names.len() < NAMED {
        names.push(name.to_owned());
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)?;
        if self.skipped > 0 {
            write!(f, ", {} skipped", self.skipped)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_summed() {
        let mut count = Count::default();
        for line in [
            "running 4 tests",
            "test a ... ok",
            "test b::c ... FAILED",
            "test d ... ignored",
            "test e::f ... ignored, needs a display",
            "test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 1 filtered out; finished in 0.01s",
            "test result: FAILED. 2 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 1.20s",
            "test result: ok. 5 passed; 0 failed",
            "the text «test result: ok. 9 passed; 0 failed» in a line is no result",
        ] {
            count.line(line);
        }
        assert_eq!(
            count,
            Count {
                passed: 10,
                failed: 1,
                skipped: 2,
                names: vec!["b::c".to_owned()],
                ignored: vec!["d".to_owned(), "e::f".to_owned()]
            }
        );
        assert_eq!(count.to_string(), "10 passed, 1 failed, 2 skipped");
    }

    #[test]
    fn nothing_skipped_is_not_mentioned() {
        assert_eq!(Count { passed: 7, ..Count::default() }.to_string(), "7 passed, 0 failed");
    }
}
