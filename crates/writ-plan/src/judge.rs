//! The judge: what a run has shown against what a check expects.
//!
//! Nothing that an agent says is an argument here. A check passes only if it ran, if every expectation is proven, and if a
//! runner of tests that took part has run at least one.

use std::cmp::Ordering;

use serde_json::{Number, Value};
use writ_types::work::{
    Check, CheckEnd, CheckFinding, JsonExpectation, Judgement, Observation, Predicate, ProgramOutput, Verdict,
};

use crate::check::{compile_pattern, read_number};
use crate::error::quoted;
use crate::json_path::JsonPath;

mod tests_run;

/// The largest output that is read as JSON, in bytes.
const MAX_JSON_BYTES: usize = 4 * 1024 * 1024;

/// Judges a check by what its run has shown.
pub fn judge_check(check: &Check, seen: &Observation) -> Judgement {
    let mut findings: Vec<CheckFinding> =
        check.expect.iter().map(|expected| judge_predicate(expected, seen)).collect();
    if check.expect.is_empty() {
        findings.push(finding("expect", Verdict::NotRun, "the check expects nothing"));
    }
    // A runner that found no tests often exits with 0.
    if !check.run.is_empty() && tests_run::ran_no_test(&check.run, &seen.stdout.text, &seen.stderr.text) {
        findings.push(finding("tests", Verdict::NotRun, "no test was run"));
    }
    let verdict = Verdict::join_all(findings.iter().map(|finding| finding.verdict));
    Judgement { verdict, findings }
}

fn finding(predicate: &str, verdict: Verdict, reason: impl Into<String>) -> CheckFinding {
    CheckFinding { predicate: predicate.to_owned(), verdict, reason: reason.into() }
}

fn judge_predicate(expected: &Predicate, seen: &Observation) -> CheckFinding {
    let (verdict, reason) = match (expected, &seen.end) {
        // A file is there or not, however the command ended.
        (Predicate::FileExists { path }, _) => judge_file(path, seen),
        (_, CheckEnd::NotRun { reason }) => (Verdict::NotRun, format!("not run: {}", quoted(reason))),
        (_, CheckEnd::FilesOnly) => (Verdict::NotRun, "no command was run".to_owned()),
        (_, CheckEnd::TimedOut) => (Verdict::Fail, "it took longer than its time limit".to_owned()),
        (Predicate::ExitCode { code }, CheckEnd::Killed { signal }) => {
            (Verdict::Fail, format!("expected exit status {code}; signal {signal} ended it"))
        }
        (Predicate::ExitCode { code }, CheckEnd::Exited { code: exited }) => {
            say(code == exited, format!("expected exit status {code}; it was {exited}"))
        }
        (_, CheckEnd::Killed { signal }) => (Verdict::Fail, format!("signal {signal} ended it")),
        (_, CheckEnd::Exited { .. }) => judge_output(expected, &seen.stdout),
    };
    finding(expected.name(), verdict, reason)
}

fn say(holds: bool, reason: String) -> (Verdict, String) {
    (if holds { Verdict::Pass } else { Verdict::Fail }, reason)
}

fn judge_file(path: &str, seen: &Observation) -> (Verdict, String) {
    match seen.files.get(path) {
        Some(true) => (Verdict::Pass, format!("'{}' is there", quoted(path))),
        Some(false) => (Verdict::Fail, format!("'{}' is not there", quoted(path))),
        None => (Verdict::NotRun, format!("'{}' was not looked for", quoted(path))),
    }
}

/// Judges an expectation about output. A judgement that rests on the part that was cut off is «not run».
fn judge_output(expected: &Predicate, output: &ProgramOutput) -> (Verdict, String) {
    // One line break at the end belongs to how programs print, as in a shell's `$(…)`.
    let text = output
        .text
        .strip_suffix('\n')
        .map_or(output.text.as_str(), |text| text.strip_suffix('\r').unwrap_or(text));
    // These two can be proven by a part of the output; every other one needs all of it.
    let held = match expected {
        Predicate::Contains { text: part } => output.text.contains(part.as_str()),
        Predicate::NotEmpty => !text.trim().is_empty(),
        Predicate::Regex { .. }
        | Predicate::Equals { .. }
        | Predicate::OutputLt { .. }
        | Predicate::OutputGt { .. }
        | Predicate::Json { .. }
        | Predicate::ExitCode { .. }
        | Predicate::FileExists { .. } => false,
    };
    if output.is_cut && !held {
        return (Verdict::NotRun, "the output is too long to be judged".to_owned());
    }
    match expected {
        Predicate::Equals { text: whole } => {
            let whole = whole.strip_suffix('\n').unwrap_or(whole);
            say(text == whole, format!("expected '{}'; it was '{}'", quoted(whole), quoted(text)))
        }
        Predicate::Contains { text: part } => {
            say(held, format!("expected '{}' in '{}'", quoted(part), quoted(text)))
        }
        Predicate::Regex { pattern } => match compile_pattern(pattern) {
            Ok(regex) => say(
                regex.is_match(text),
                format!("expected a match of '{}' in '{}'", quoted(pattern), quoted(text)),
            ),
            Err(_) => (Verdict::NotRun, format!("'{}' is no regular expression", quoted(pattern))),
        },
        Predicate::OutputLt { limit } => judge_number(text, limit, "below", |seen, limit| seen < limit),
        Predicate::OutputGt { limit } => judge_number(text, limit, "above", |seen, limit| seen > limit),
        Predicate::NotEmpty => say(held, "expected some output".to_owned()),
        Predicate::Json { path, value } => judge_json(text, path, value),
        // Judged before: they are not about output.
        Predicate::ExitCode { .. } | Predicate::FileExists { .. } => {
            (Verdict::NotRun, "not about output".to_owned())
        }
    }
}

fn judge_number(seen: &str, limit: &str, side: &str, holds: impl Fn(f64, f64) -> bool) -> (Verdict, String) {
    let reason = format!("expected a number {side} {limit}; it was '{}'", quoted(seen.trim()));
    let exact = (seen.trim().parse::<i128>(), limit.trim().parse::<i128>());
    if let (Ok(seen), Ok(limit)) = exact {
        // Compared as whole numbers: above 2^53, several share the nearest binary fraction.
        let (seen, limit) = (seen.cmp(&limit), Ordering::Equal);
        return say(holds(order_number(seen), order_number(limit)), reason);
    }
    match (read_number(seen), read_number(limit)) {
        (Some(seen), Some(limit)) => say(holds(seen, limit), reason),
        (None, Some(_)) => (Verdict::Fail, reason),
        // A limit that is no number is a mistake of the plan, not of the work.
        (_, None) => (Verdict::NotRun, format!("'{}' is no number", quoted(limit))),
    }
}

/// A number that stands to zero as one number stood to another.
const fn order_number(order: Ordering) -> f64 {
    match order {
        Ordering::Less => -1.0,
        Ordering::Equal => 0.0,
        Ordering::Greater => 1.0,
    }
}

fn judge_json(text: &str, path: &str, expected: &JsonExpectation) -> (Verdict, String) {
    let Some(read) = JsonPath::read(path) else {
        return (Verdict::NotRun, format!("'{}' is no path", quoted(path)));
    };
    if text.len() > MAX_JSON_BYTES {
        return (Verdict::NotRun, "the output is too long to be read as JSON".to_owned());
    }
    let Ok(value) = serde_json::from_str::<Value>(text) else {
        return (Verdict::Fail, format!("expected JSON; it was '{}'", quoted(text)));
    };
    let Some(found) = read.find(&value) else {
        return (Verdict::Fail, format!("nothing is at '{}'", quoted(path)));
    };
    let shown = quoted(&found.to_string());
    match expected {
        JsonExpectation::Exists => (Verdict::Pass, format!("'{}' is {shown}", quoted(path))),
        JsonExpectation::Equals { value } => {
            let reason =
                format!("expected {} at '{}'; it was {shown}", quoted(&value.to_string()), quoted(path));
            say(is_same_value(value, found), reason)
        }
        JsonExpectation::Lt { limit } => judge_value(found, limit, "below", |seen, limit| seen < limit),
        JsonExpectation::Gt { limit } => judge_value(found, limit, "above", |seen, limit| seen > limit),
    }
}

fn judge_value(
    found: &Value,
    limit: &str,
    side: &str,
    holds: impl Fn(f64, f64) -> bool,
) -> (Verdict, String) {
    match found {
        Value::Number(number) => judge_number(&number.to_string(), limit, side, holds),
        Value::Null | Value::Bool(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => (
            Verdict::Fail,
            format!("expected a number {side} {limit}; it was {}", quoted(&found.to_string())),
        ),
    }
}

/// Compares JSON, where 1 and 1.0 are the same number.
fn is_same_value(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => is_same_number(one, other),
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| is_same_value(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            let is_there = |(key, value): (&String, &Value)| {
                other.get(key).is_some_and(|other| is_same_value(value, other))
            };
            one.len() == other.len() && one.iter().all(is_there)
        }
        (one, other) => one == other,
    }
}

/// Compares numbers by their value. A whole number is compared as one: above 2^53, several share the nearest binary fraction.
fn is_same_number(one: &Number, other: &Number) -> bool {
    match (read_whole(one), read_whole(other)) {
        (Some(one), Some(other)) => one == other,
        (None, None) => one.as_f64() == other.as_f64(),
        (Some(_), None) | (None, Some(_)) => false,
    }
}

/// Reads a number without a fraction, however it is written; `None` for one with a fraction or beyond 128 bits.
fn read_whole(number: &Number) -> Option<i128> {
    if let Some(whole) = number.as_i128() {
        return Some(whole);
    }
    let float = number.as_f64().filter(|float| float.fract() == 0.0)?;
    // Printed without an exponent and exactly, as Rust prints them.
    format!("{float:.0}").parse().ok()
}

#[cfg(test)]
mod tests;
