//! Results of gates: the end of a script, its output, and the reports of test runners.
//!
//! An exit status of 0 is a claim, not a proof: a run that shows no executed test, or a report that cannot be read, is «not
//! run», and «not run» is never a pass.

use serde::{Deserialize, Serialize};

pub mod calls;

pub mod counts;

pub mod protected;

pub mod scripts;

pub mod text;

pub mod trail;

pub mod weakened;

mod javascript;

mod launch;

mod go_test;

mod junit;

mod tap;

mod unittest;

use crate::failure::FailureCode;

use counts::{ReportFormat, TestCounts, count_tests};
use text::cut_output;

/// The most bytes of a script's output that are stored (SF 13.2.1).
pub const MAX_OUTPUT_BYTES: usize = 8 * 1024;
/// The largest first line that is read as JSON, in bytes.
const MAX_HEAD_BYTES: usize = 64 * 1024;
/// The most issues that are read from it.
const MAX_ISSUES: usize = 50;
/// The longest issue or summary, in characters.
const MAX_ISSUE_CHARS: usize = 300;

/// The verdict of a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScriptVerdict {
    /// It ran and passed.
    Pass,
    /// It failed: another try may help.
    Fail,
    /// No further try: the unit is reassessed.
    Block,
    /// The script reports that it does not apply, which proves nothing.
    Skip,
    /// Nothing was proven: the script did not run, or ran no test. Never counts as a pass.
    NotRun,
}

/// The end of a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScriptExit {
    /// It exited with this status.
    Exited(i32),
    /// A signal ended it.
    Signalled(i32),
    /// It took longer than its time limit and was killed.
    TimedOut,
    /// It could not be started.
    NotStarted,
}

/// The end and the output of a gate's run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScriptRun<'a> {
    /// Its end.
    pub end: ScriptExit,
    /// Its standard output and standard error, as one text.
    pub output: &'a [u8],
    /// Reports of test runners: files that the gate wrote, or its output.
    pub reports: &'a [(ReportFormat, &'a str)],
    /// True if the gate runs tests: then it passes only if at least one ran.
    pub runs_tests: bool,
}

/// The judgement of a gate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GateJudgement {
    /// The verdict.
    pub verdict: ScriptVerdict,
    /// The error code of the attempt, where the end has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<FailureCode>,
    /// The reason in one line: the script's own summary, or that of the harness.
    pub summary: String,
    /// Issues that the script names.
    pub issues: Vec<String>,
    /// The output, cut in the middle to [`MAX_OUTPUT_BYTES`].
    pub output: String,
    /// The tests of all reports together.
    pub counts: TestCounts,
}

/// The first line of a script's output, if it is a JSON object of this form.
#[derive(Default, Deserialize)]
struct ScriptHead {
    summary: String,
    #[serde(default)]
    issues: Vec<serde_json::Value>,
}

/// Judges a gate.
pub fn judge_script(run: &ScriptRun<'_>) -> GateJudgement {
    let output = String::from_utf8_lossy(run.output);
    let head = read_head(&output);
    let (verdict, code, mut reason) = judge_end(run.end);
    let (counts, problem) = join_reports(run.reports);
    let mut judged = verdict;
    // A failure stays a failure; a pass counts only if the reports agree.
    if verdict == ScriptVerdict::Pass {
        if counts.failed > 0 {
            judged = ScriptVerdict::Fail;
            reason = format!("it exits with 0, but {} tests failed", counts.failed);
        } else if let Some(problem) = problem {
            judged = ScriptVerdict::NotRun;
            reason = format!("a report of tests cannot be used: {problem}");
        } else if counts.executed() == 0 && (run.runs_tests || !run.reports.is_empty()) {
            judged = ScriptVerdict::NotRun;
            reason = format!("no test was run ({} skipped, {} left out)", counts.skipped, counts.filtered);
        } else if counts.passed > 0 {
            let tests = if counts.passed == 1 { "test" } else { "tests" };
            reason = format!("{} {tests}", counts.passed);
        }
    }
    let is_own = judged == verdict;
    let (summary, issues) = head.map_or((String::new(), Vec::new()), |head| (head.summary, head.issues));
    // The script's summary is about its own verdict, so it is not used if the reports have changed that.
    let summary = if is_own && !summary.is_empty() { cut_line(&summary) } else { reason };
    let issues = issues.iter().take(MAX_ISSUES).map(|issue| cut_line(&issue_text(issue))).collect();
    let output = cut_output(&output, MAX_OUTPUT_BYTES);
    GateJudgement { verdict: judged, code, summary, issues, output, counts }
}

/// Judges the end of a script alone, without its reports (SF 13.2.1).
fn judge_end(end: ScriptExit) -> (ScriptVerdict, Option<FailureCode>, String) {
    match end {
        // The verdict says it all.
        ScriptExit::Exited(0) => (ScriptVerdict::Pass, None, String::new()),
        ScriptExit::Exited(2) => (ScriptVerdict::Block, None, "blocked".to_owned()),
        ScriptExit::Exited(3) => (ScriptVerdict::Skip, None, "skipped".to_owned()),
        // Every other status counts as 1.
        ScriptExit::Exited(status) => (ScriptVerdict::Fail, None, format!("exit status {status}")),
        ScriptExit::Signalled(signal) => (ScriptVerdict::Fail, None, format!("signal {signal} ended it")),
        ScriptExit::TimedOut => {
            let why = "it took longer than its time limit".to_owned();
            (ScriptVerdict::Fail, Some(FailureCode::GateTimeout), why)
        }
        ScriptExit::NotStarted => (ScriptVerdict::NotRun, None, "it could not be started".to_owned()),
    }
}

fn join_reports(reports: &[(ReportFormat, &str)]) -> (TestCounts, Option<String>) {
    let (mut all, mut problem) = (TestCounts::default(), None);
    for (format, text) in reports {
        match count_tests(*format, text) {
            Ok(counts) => all = all.plus(counts),
            // If one report cannot be read, tests may be missing from the counts of the others.
            Err(error) => problem = problem.or_else(|| Some(format!("{}: {error}", format.name()))),
        }
    }
    (all, problem)
}

/// Reads the first line as JSON; any other first line is ordinary output (SF 13.2.1).
fn read_head(output: &str) -> Option<ScriptHead> {
    // Bounded before it is parsed: a gate may print a gigabyte without a line break.
    let line = output.lines().next().filter(|line| line.len() <= MAX_HEAD_BYTES && line.starts_with('{'))?;
    serde_json::from_str(line).ok()
}

fn issue_text(issue: &serde_json::Value) -> String {
    issue.as_str().map_or_else(|| issue.to_string(), str::to_owned)
}

fn cut_line(text: &str) -> String {
    text.chars().take(MAX_ISSUE_CHARS).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests;
