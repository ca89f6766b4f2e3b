//! The number of tests before a change: a gate that shows fewer afterwards has not passed.
//!
//! A base is measured once for each command. The merged tree that has passed is the base of what comes next, so in a row of
//! merges nothing is run twice.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use tokio_util::sync::CancellationToken;
use writ_autopilot::check::ScriptVerdict;
use writ_autopilot::check::counts::TestCounts;
use writ_sandbox::git::CommitId;

use super::gate_input::GateSubject;
use super::gates::{GateRight, GateRun, run_gate};
use crate::config::PilotGate;
use crate::error::AutopilotError;
use crate::merge::{MergedTree, TreeCheck, TreeVerdict};
use crate::project::OpenProject;

/// The most numbers that are remembered; beyond it they are measured again.
const MAX_KNOWN: usize = 512;

/// The numbers of tests of commits, by command and commit.
#[derive(Debug, Default)]
pub(crate) struct Baselines {
    known: Mutex<BTreeMap<(String, String), TestCounts>>,
    /// One at a time: units with one base wait for the first of them.
    measuring: tokio::sync::Mutex<()>,
}

impl Baselines {
    /// Remembers the number of tests of a commit that has passed a gate.
    pub(super) fn learn(&self, gate: &PilotGate, commit: &CommitId, counts: TestCounts) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MAX_KNOWN {
            known.clear();
        }
        known.insert(key_of(gate, commit), counts);
    }

    fn find(&self, gate: &PilotGate, commit: &CommitId) -> Option<TestCounts> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).get(&key_of(gate, commit)).copied()
    }
}

/// Two gates with one command count the same tests.
fn key_of(gate: &PilotGate, commit: &CommitId) -> (String, String) {
    (format!("{:?} {:?}", gate.command, gate.report), commit.as_str().to_owned())
}

/// Turns a pass into a failure where fewer tests have run than before the change, or more were left out.
///
/// # Errors
///
/// If git, the sandbox or the store fail.
pub(super) async fn compare_with_base(
    project: &OpenProject,
    subject: GateSubject<'_>,
    base: &CommitId,
    run: &mut GateRun,
    stop: &CancellationToken,
) -> Result<(), AutopilotError> {
    let gate = subject.gate;
    // A run that has ended well without a test has hidden those that there were.
    let is_claim =
        run.has_exited_well && matches!(run.judged.verdict, ScriptVerdict::Pass | ScriptVerdict::NotRun);
    if !is_claim || !gate.runs_tests || gate.hidden.is_some() {
        return Ok(());
    }
    let Some(before) = measure(project, subject, base, stop).await? else {
        run.judged.verdict = ScriptVerdict::NotRun;
        run.judged.summary = "the tests before the change could not be counted".to_owned();
        return Ok(());
    };
    if let Some(why) = run.judged.counts.compare_with(before) {
        run.judged.verdict = ScriptVerdict::Fail;
        run.judged.summary = why;
    }
    Ok(())
}

/// Counts the tests of a commit; `None`: the gate was refused there, cut off or ran out of time, so nothing is known.
async fn measure(
    project: &OpenProject,
    subject: GateSubject<'_>,
    base: &CommitId,
    stop: &CancellationToken,
) -> Result<Option<TestCounts>, AutopilotError> {
    let (baselines, gate) = (&project.baselines, subject.gate);
    if let Some(known) = baselines.find(gate, base) {
        return Ok(Some(known));
    }
    let _alone = baselines.measuring.lock().await;
    if let Some(known) = baselines.find(gate, base) {
        return Ok(Some(known));
    }
    let counting = Counting { project, subject, stop, counts: Mutex::default() };
    project.git.check_commit((base, base), &[], &counting).await?;
    let counted = counting.counts.into_inner().unwrap_or_else(PoisonError::into_inner);
    let Some((counts, true)) = counted.transpose()? else { return Ok(None) };
    if stop.is_cancelled() {
        return Ok(None);
    }
    baselines.learn(gate, base, counts);
    Ok(Some(counts))
}

/// Runs a gate for its numbers alone: a base may fail.
struct Counting<'a> {
    project: &'a OpenProject,
    subject: GateSubject<'a>,
    stop: &'a CancellationToken,
    /// The counts, and true if the program has ended by its own exit.
    counts: Mutex<Option<Result<(TestCounts, bool), AutopilotError>>>,
}

impl TreeCheck for Counting<'_> {
    async fn check_tree(&self, tree: &MergedTree) -> TreeVerdict {
        let run = run_gate(self.project, self.subject, &tree.folder, GateRight::Plan(self.stop)).await;
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        *counts = Some(run.map(|run| (run.judged.counts, run.has_exited)));
        // It decides nothing.
        TreeVerdict::Pass
    }
}
