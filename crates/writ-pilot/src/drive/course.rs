//! The course of one worker: its money, its calls, and the end that others bring about; and what this process has seen last.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;
use writ_autopilot::learning::{Learning, MAX_LEARNINGS};
use writ_autopilot::unit_id::UnitId;
use writ_runtime::pilot::AttemptCalls;
use writ_sandbox::git::CommitId;
use writ_types::unit::MicroUsd;

/// The course of one worker.
#[derive(Debug)]
pub(crate) struct WorkCourse {
    /// The money that it was promised when it began; `None`: no ceiling but those of the engine.
    pub(crate) promised: Option<MicroUsd>,
    /// The units that it waits for and was handed out past, by a person's word.
    pub(crate) passed: Vec<String>,
    /// The rest of it.
    left: Mutex<Option<MicroUsd>>,
    /// The calls of its attempts.
    calls: Mutex<Vec<AttemptCalls>>,
    /// The words of its attempts for later work.
    learnings: Mutex<Vec<Learning>>,
    /// The finding of the supervisor that has ended its attempt between two turns.
    finding: Mutex<Option<String>>,
    /// The units that were abandoned meanwhile, on which its own rests.
    lost: Mutex<Vec<UnitId>>,
    /// Ends the attempt of a unit when its plan has become void.
    pub(crate) is_void: CancellationToken,
}

impl WorkCourse {
    pub(crate) fn new(left: Option<MicroUsd>, passed: Vec<String>) -> Self {
        Self {
            promised: left,
            passed,
            left: Mutex::new(left),
            calls: Mutex::default(),
            learnings: Mutex::default(),
            finding: Mutex::default(),
            lost: Mutex::default(),
            is_void: CancellationToken::new(),
        }
    }

    /// Returns the money that it may still spend.
    pub(crate) fn left(&self) -> Option<MicroUsd> {
        *lock(&self.left)
    }

    /// Takes the cost of an attempt from what it may spend.
    pub(crate) fn spend(&self, cost: MicroUsd) {
        if let Some(left) = lock(&self.left).as_mut() {
            *left = left.saturating_sub(cost);
        }
    }

    pub(crate) fn add_calls(&self, calls: AttemptCalls) {
        lock(&self.calls).push(calls);
    }

    pub(crate) fn calls(&self) -> Vec<AttemptCalls> {
        lock(&self.calls).clone()
    }

    /// Adds what an attempt has learned, as far as there is room.
    pub(crate) fn learn(&self, learnings: Vec<Learning>) {
        let mut all = lock(&self.learnings);
        for one in learnings {
            if all.len() < MAX_LEARNINGS && !all.contains(&one) {
                all.push(one);
            }
        }
    }

    pub(crate) fn learnings(&self) -> Vec<Learning> {
        lock(&self.learnings).clone()
    }

    /// Notes the finding for which its attempt has no further turn.
    pub(crate) fn stop_for(&self, finding: String) {
        *lock(&self.finding) = Some(finding);
    }

    /// Returns the finding for which its attempt had no further turn.
    pub(crate) fn finding(&self) -> Option<String> {
        lock(&self.finding).clone()
    }

    /// Ends the attempt, since another unit was abandoned.
    pub(crate) fn lose(&self, upstream: UnitId) {
        let mut lost = lock(&self.lost);
        if !lost.contains(&upstream) {
            lost.push(upstream);
        }
        drop(lost);
        self.is_void.cancel();
    }

    /// Returns the abandoned units on which its own rests.
    pub(crate) fn lost(&self) -> Vec<UnitId> {
        lock(&self.lost).clone()
    }
}

/// Branches and models, as this process has seen them last.
#[derive(Debug, Default)]
pub(crate) struct SeenState {
    branches: Mutex<BTreeMap<String, SeenBranch>>,
    /// Models that have not answered when they were asked last.
    silent: Mutex<BTreeSet<String>>,
}

/// A branch of a slice and its target, after the autopilot's own last step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SeenBranch {
    pub(crate) tip: CommitId,
    pub(crate) target: CommitId,
}

impl SeenState {
    pub(crate) fn branch(&self, name: &str) -> Option<SeenBranch> {
        lock(&self.branches).get(name).cloned()
    }

    pub(crate) fn note_branch(&self, name: &str, seen: Option<SeenBranch>) {
        let mut branches = lock(&self.branches);
        match seen {
            Some(seen) => branches.insert(name.to_owned(), seen),
            None => branches.remove(name),
        };
    }

    /// Takes all branches as they are now.
    pub(crate) fn accept_branches(&self) {
        lock(&self.branches).clear();
    }

    /// Notes how a model has answered, from the models that an attempt has asked: one that was not asked has not been silent.
    pub(crate) fn note_model(&self, name: &str, asked: &[(String, bool)]) {
        let mut own =
            asked.iter().filter(|(model, _)| model == name).map(|(_, answered)| *answered).peekable();
        if own.peek().is_none() {
            return;
        }
        let mut silent = lock(&self.silent);
        if own.any(|answered| answered) {
            silent.remove(name);
        } else {
            silent.insert(name.to_owned());
        }
    }

    pub(crate) fn is_silent(&self, name: &str) -> bool {
        lock(&self.silent).contains(name)
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic elsewhere cannot leave it half-written.
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_model_that_was_asked_can_be_silent() {
        let seen = SeenState::default();
        let asked = |list: &[(&str, bool)]| -> Vec<(String, bool)> {
            list.iter().map(|(model, answered)| ((*model).to_owned(), *answered)).collect()
        };
        // An attempt that ended before its first request, and one that another model has answered.
        seen.note_model("a/one", &asked(&[]));
        seen.note_model("a/one", &asked(&[("b/two", true)]));
        assert!(!seen.is_silent("a/one"));
        seen.note_model("a/one", &asked(&[("a/one", false), ("b/two", true)]));
        assert!(seen.is_silent("a/one"));
        seen.note_model("a/one", &asked(&[("b/two", true)]));
        assert!(seen.is_silent("a/one"), "nothing new is known of it");
        seen.note_model("a/one", &asked(&[("a/one", false), ("a/one", true)]));
        assert!(!seen.is_silent("a/one"));
    }
}
