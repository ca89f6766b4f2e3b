//! Notices when a model runs in circles.

use std::collections::VecDeque;

use writ_types::chat::{ToolCall, ToolOutcome, ToolResult};
use writ_types::digest::Digest;

/// The largest setting of `limits.max_identical_calls`.
pub(crate) const MAX_IDENTICAL: u32 = 8;

/// The number of remembered calls: as many as the longest pattern needs.
const WINDOW: usize = 8;

/// The number of calls in two full cycles A-B-A-B, which count as a circle.
const CYCLE: usize = 4;

/// The turn ends after this many repetitions were refused without progress between them.
const MAX_STRIKES: u32 = 2;

/// The turn ends after this many failed or denied calls in a row, even if each is different: the model only guesses.
pub(crate) const MAX_FRUITLESS: u32 = 10;

/// The last calls with their results. Calls are a circle only if their results are equal too: a new result is progress.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Repeats {
    recent: VecDeque<CallStep>,
    strikes: u32,
    /// Calls in a row that failed or were denied.
    fruitless: u32,
}

/// A call and its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CallStep {
    call: Digest,
    result: Digest,
}

/// The judgement about a repeated call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// It is no repetition.
    No,
    /// It would close a circle.
    Again,
    /// It would close a circle, and the model was already warned.
    Stuck,
    /// Too many calls in a row before it have failed or were denied.
    Fruitless,
}

impl Repeats {
    /// Judges a call before it is performed. `is_first`: it is the first of its answer, so the model knew of all results.
    pub(crate) fn judge_call(&mut self, call: &ToolCall, max_identical: u32, is_first: bool) -> Repeat {
        if is_first && self.fruitless >= MAX_FRUITLESS {
            return Repeat::Fruitless;
        }
        let Some(known) = self.closes_a_circle(digest_of_call(call), max_identical) else {
            return Repeat::No;
        };
        // A refused call keeps its place in the circle: the one after it does not begin a new one.
        self.push_step(known);
        self.strikes += 1;
        if self.strikes >= MAX_STRIKES { Repeat::Stuck } else { Repeat::Again }
    }

    /// Records the result of a call.
    pub(crate) fn note_result(&mut self, call: &ToolCall, result: &ToolResult) {
        // The same call with a new result is progress, so the result is part of the step.
        let outcome = format!("{:?} {}", result.outcome, result.text);
        let step = CallStep { call: digest_of_call(call), result: Digest::of_bytes(outcome.as_bytes()) };
        if !self.recent.contains(&step) {
            self.strikes = 0;
        }
        self.fruitless = match result.outcome {
            ToolOutcome::Failed | ToolOutcome::Denied | ToolOutcome::Unknown => {
                self.fruitless.saturating_add(1)
            }
            ToolOutcome::Done | ToolOutcome::Waiting | ToolOutcome::Simulated | ToolOutcome::Cancelled => 0,
        };
        self.push_step(step);
    }

    fn push_step(&mut self, step: CallStep) {
        self.recent.push_front(step);
        self.recent.truncate(WINDOW);
    }

    /// Returns the earlier step that the call would repeat, if it would close a circle.
    fn closes_a_circle(&self, call: Digest, max_identical: u32) -> Option<CallStep> {
        let last = self.recent.front()?;
        let identical = self.recent.iter().take_while(|step| *step == last).count();
        // The same call again and again.
        if last.call == call {
            let most = usize::try_from(max_identical).unwrap_or(usize::MAX);
            return (identical >= most).then_some(*last);
        }
        // Two calls in turn, A-B-A-B, with equal results each time.
        let cycle: Vec<&CallStep> = self.recent.iter().take(CYCLE).collect();
        match cycle.as_slice() {
            [b2, a2, b1, a1] if a1 == a2 && b1 == b2 && a1.call == call => Some(**a2),
            _ => None,
        }
    }
}

/// Returns the digest of a call's name and canonical arguments, in which the order of keys does not count.
fn digest_of_call(call: &ToolCall) -> Digest {
    Digest::of_canonical(&(&call.name, &call.arguments))
        // Arguments without a canonical form, such as fractions beyond its range, are compared as text.
        .unwrap_or_else(|_| Digest::of_bytes(format!("{} {}", call.name, call.arguments).as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use writ_types::taint::{Label, Taint};

    fn call(name: &str) -> ToolCall {
        let arguments = serde_json::json!({"b": 1, "a": name});
        ToolCall { id: "c".to_owned(), name: name.to_owned(), arguments }
    }

    fn result(text: &str) -> ToolResult {
        ToolResult {
            call_id: "c".to_owned(),
            name: String::new(),
            outcome: ToolOutcome::Done,
            text: text.to_owned(),
            label: Label::new(Taint::Owner),
            fields: Vec::new(),
            kept: None,
        }
    }

    fn after(steps: &[(&str, &str)]) -> Repeats {
        let mut repeats = Repeats::default();
        for (name, text) in steps {
            repeats.note_result(&call(name), &result(text));
        }
        repeats
    }

    #[test]
    fn the_fourth_identical_call_with_equal_results_is_a_circle() {
        assert_eq!(after(&[("a", "1"), ("a", "1")]).judge_call(&call("a"), 3, true), Repeat::No);
        let mut repeats = after(&[("a", "1"), ("a", "1"), ("a", "1")]);
        let reordered = ToolCall { arguments: serde_json::json!({"a": "a", "b": 1}), ..call("a") };
        assert_eq!(repeats.judge_call(&call("b"), 3, true), Repeat::No);
        assert_eq!(repeats.judge_call(&reordered, 3, true), Repeat::Again);
        assert_eq!(repeats.judge_call(&call("a"), 3, true), Repeat::Stuck);
    }

    #[test]
    fn calls_that_all_fail_are_no_progress_even_if_each_is_another() {
        let mut repeats = Repeats::default();
        let failed = |n: u32| ToolResult { outcome: ToolOutcome::Failed, ..result(&format!("failure {n}")) };
        for n in 0..MAX_FRUITLESS {
            assert_eq!(repeats.judge_call(&call(&format!("try {n}")), 3, true), Repeat::No);
            repeats.note_result(&call(&format!("try {n}")), &failed(n));
        }
        assert_eq!(repeats.judge_call(&call("another"), 3, true), Repeat::Fruitless);
        let mut repeats = Repeats::default();
        for n in 0..3 * MAX_FRUITLESS {
            assert_eq!(
                repeats.judge_call(&call(&format!("try {n}")), 3, true),
                Repeat::No,
                "one of five works"
            );
            let done = result(&format!("{n}"));
            repeats.note_result(&call(&format!("try {n}")), &if n % 5 == 0 { done } else { failed(n) });
        }
    }

    #[test]
    fn a_changed_result_is_progress() {
        assert_eq!(after(&[("a", "1"), ("a", "1"), ("a", "2")]).judge_call(&call("a"), 3, true), Repeat::No);
        let mut repeats = after(&[("a", "1"), ("a", "1"), ("a", "1")]);
        assert_eq!(repeats.judge_call(&call("a"), 3, true), Repeat::Again);
        repeats.note_result(&call("b"), &result("new"));
        for _ in 0..3 {
            repeats.note_result(&call("a"), &result("1"));
        }
        assert_eq!(repeats.judge_call(&call("a"), 3, true), Repeat::Again, "progress forgets the strike");
        repeats.note_result(&call("a"), &result("1"));
        assert_eq!(repeats.judge_call(&call("a"), 3, true), Repeat::Stuck, "an old result does not");
    }

    #[test]
    fn two_full_cycles_are_a_circle_when_the_results_are_equal() {
        let circle = [("a", "1"), ("b", "2"), ("a", "1"), ("b", "2")];
        assert_eq!(after(&circle).judge_call(&call("a"), 3, true), Repeat::Again);
        assert_eq!(after(&circle).judge_call(&call("c"), 3, true), Repeat::No);
        assert_eq!(after(&circle).judge_call(&call("b"), 3, true), Repeat::No);
        assert_eq!(after(&circle[1..]).judge_call(&call("a"), 3, true), Repeat::No);
        assert_eq!(
            after(&[("a", "1"), ("b", "2"), ("a", "1"), ("b", "3")]).judge_call(&call("a"), 3, true),
            Repeat::No
        );
        assert_eq!(
            after(&[("a", "0"), ("b", "2"), ("a", "1"), ("b", "2")]).judge_call(&call("a"), 3, true),
            Repeat::No
        );
    }

    #[test]
    fn after_a_refusal_the_next_call_of_the_circle_is_the_end_and_a_new_one_is_not() {
        let circle = [("a", "1"), ("b", "2"), ("a", "1"), ("b", "2")];
        let mut repeats = after(&circle);
        assert_eq!(repeats.judge_call(&call("a"), 3, true), Repeat::Again);
        assert_eq!(repeats.judge_call(&call("b"), 3, true), Repeat::Stuck);
        let mut repeats = after(&circle);
        assert_eq!(repeats.judge_call(&call("a"), 3, true), Repeat::Again);
        assert_eq!(repeats.judge_call(&call("c"), 3, true), Repeat::No);
        repeats.note_result(&call("c"), &result("new"));
        assert_eq!(repeats.judge_call(&call("b"), 3, true), Repeat::No, "progress opens the circle");
    }
}
