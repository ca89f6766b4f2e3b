//! Checks: commands and expectations that the harness runs, and the verdict about them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A command and the expectations that must hold after it; without a command, expectations about files alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Check {
    /// Its name within the plan or step.
    pub name: String,
    /// The command as an argument list, run without a shell. Empty: the check is about files alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub run: Vec<String>,
    /// The folder in which it runs, relative to the work folder; none: the work folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dir: Option<String>,
    /// Seconds after which it is killed; none: the default of the harness.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_secs: Option<u32>,
    /// The expectations. All must hold; there is at least one.
    pub expect: Vec<Predicate>,
}

/// An expectation about the end of a command, its output, or the files of the work folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "predicate", rename_all = "snake_case")]
pub enum Predicate {
    /// The exit status is this one.
    ExitCode {
        /// The status.
        code: i32,
    },
    /// The output equals this text; one line break at the end of either is ignored.
    Equals {
        /// The text.
        text: String,
    },
    /// The output contains this text.
    Contains {
        /// The text.
        text: String,
    },
    /// The output matches this regular expression somewhere (syntax of the `regex` crate).
    Regex {
        /// The expression.
        pattern: String,
    },
    /// The output is a number below this one.
    OutputLt {
        /// The decimal number, as written in the plan.
        limit: String,
    },
    /// The output is a number above this one.
    OutputGt {
        /// The decimal number, as written in the plan.
        limit: String,
    },
    /// A file or folder exists.
    FileExists {
        /// Its path, relative to the work folder.
        path: String,
    },
    /// The output holds more than white space.
    NotEmpty,
    /// The output is JSON, and the value at a path meets an expectation.
    Json {
        /// The path: `$`, then `.name`, `["name"]` or `[index]` (a part of RFC 9535).
        path: String,
        /// The expectation about the value.
        value: JsonExpectation,
    },
}

impl Predicate {
    /// Returns its name in plans.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::ExitCode { .. } => "exit_code",
            Self::Equals { .. } => "equals",
            Self::Contains { .. } => "contains",
            Self::Regex { .. } => "regex",
            Self::OutputLt { .. } => "output_lt",
            Self::OutputGt { .. } => "output_gt",
            Self::FileExists { .. } => "file_exists",
            Self::NotEmpty => "not_empty",
            Self::Json { .. } => "json",
        }
    }

    /// Returns true if it is about files, and needs no command.
    pub const fn is_about_files(&self) -> bool {
        matches!(self, Self::FileExists { .. })
    }
}

/// An expectation about a value inside JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum JsonExpectation {
    /// It equals this value; numbers are compared by value.
    Equals {
        /// The value.
        value: Value,
    },
    /// It is a number below this one.
    Lt {
        /// The decimal number.
        limit: String,
    },
    /// It is a number above this one.
    Gt {
        /// The decimal number.
        limit: String,
    },
    /// It exists, with any content.
    Exists,
}

/// The end, the output and the files that were observed in one run of a check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Observation {
    /// The end of the command, or the reason for which there was none.
    pub end: CheckEnd,
    /// The standard output.
    #[serde(default)]
    pub stdout: ProgramOutput,
    /// The standard error.
    #[serde(default)]
    pub stderr: ProgramOutput,
    /// The paths that expectations name; true if the path exists. A path that is missing here was not looked up.
    #[serde(default)]
    pub files: BTreeMap<String, bool>,
}

impl Observation {
    /// Creates the observation of a check that could not be run.
    pub fn not_run(reason: impl Into<String>) -> Self {
        Self {
            end: CheckEnd::NotRun { reason: reason.into() },
            stdout: ProgramOutput::default(),
            stderr: ProgramOutput::default(),
            files: BTreeMap::new(),
        }
    }
}

/// The end of a check's command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "end", rename_all = "snake_case")]
pub enum CheckEnd {
    /// It exited.
    Exited {
        /// The exit status.
        code: i32,
    },
    /// A signal ended it.
    Killed {
        /// The number of the signal.
        signal: i32,
    },
    /// It took longer than its limit and was killed.
    TimedOut,
    /// The check has no command; only files were looked up.
    FilesOnly,
    /// It was not started, or its end is not known.
    NotRun {
        /// The reason.
        reason: String,
    },
}

/// Output of a program, up to a limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProgramOutput {
    /// The text; invalid UTF-8 is replaced.
    pub text: String,
    /// True if the program wrote more than this.
    #[serde(default)]
    pub is_cut: bool,
}

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// All expectations hold.
    Pass,
    /// It ran, and an expectation does not hold.
    Fail,
    /// Nothing is proven: it did not run, ran no test, or its output is incomplete. Never counts as a pass.
    NotRun,
}

impl Verdict {
    /// Joins the verdicts of several checks. The result is a pass only if there is at least one check and all pass; a
    /// failure outweighs a check that did not run.
    pub fn join_all(verdicts: impl IntoIterator<Item = Self>) -> Self {
        let mut joined = None;
        for verdict in verdicts {
            joined = Some(match (joined, verdict) {
                // One failure decides, also beside checks that did not run.
                (_, Self::Fail) | (Some(Self::Fail), _) => Self::Fail,
                (_, Self::NotRun) | (Some(Self::NotRun), _) => Self::NotRun,
                (None | Some(Self::Pass), Self::Pass) => Self::Pass,
            });
        }
        // No check at all proves nothing.
        joined.unwrap_or(Self::NotRun)
    }
}

/// The verdict about a check, with a finding for each expectation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Judgement {
    /// The verdict about the whole.
    pub verdict: Verdict,
    /// One for each expectation, in their order, and one more if no test was run or nothing is expected.
    pub findings: Vec<CheckFinding>,
}

/// The verdict about one expectation, with the reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CheckFinding {
    /// The name of the predicate, `tests` if no test was run, or `expect` if nothing is expected.
    pub predicate: String,
    /// The verdict.
    pub verdict: Verdict,
    /// One line: the expectation, and the observed value.
    pub reason: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_verdicts_pass_only_if_all_do_and_there_is_one() {
        use Verdict::{Fail, NotRun, Pass};
        for (verdicts, joined) in [
            (&[][..], NotRun),
            (&[Pass], Pass),
            (&[Pass, Pass], Pass),
            (&[Pass, NotRun, Pass], NotRun),
            (&[NotRun, Fail], Fail),
            (&[Fail, NotRun, Pass], Fail),
        ] {
            assert_eq!(Verdict::join_all(verdicts.iter().copied()), joined, "{verdicts:?}");
        }
    }
}
