//! The phase merge: the branch of a slice is joined with the target, the merged tree passes its gates, and the target moves to exactly it.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;
use writ_autopilot::blocker::PauseCause;
use writ_autopilot::check::protected::PathRules;
use writ_autopilot::check::{GateJudgement, ScriptVerdict};
use writ_autopilot::failure::FailureCode;
use writ_autopilot::machine::{UnitEvent, UnitMergeResult};
use writ_autopilot::unit_id::UnitId;
use writ_store::reads::WorkReads as _;
use writ_types::api::work::WorkState;
use writ_types::error::ToReport as _;

use super::baseline::compare_with_base;
use super::diff::{judge_diff, rules_of};
use super::documents::{DocStep, sync_documents};
use super::gate_input::GateSubject;
use super::gates::{GateRight, gates_for, record, run_gate};
use super::hidden::{conceal, lay_over};
use super::{PhaseResult, WorkClaim, claiming, ended_units, plan_of};
use crate::config::{GateMoment, PilotGate};
use crate::error::AutopilotError;
use crate::merge::{MergeRequest, MergeResult, MergedTree, TreeCheck, TreeVerdict};
use crate::project::OpenProject;
use crate::unit_files::UnitFile;

/// A judgement of a merged tree.
type TreeJudgement<'a> = Pin<Box<dyn Future<Output = Result<TreeVerdict, AutopilotError>> + Send + 'a>>;

/// The gates of the merged tree.
pub(crate) struct MergeGates<'a> {
    project: &'a OpenProject,
    id: UnitId,
    /// The worker's claim and the paths of its slice; `None`: a person takes work back.
    work: Option<(&'a WorkClaim, PathRules)>,
    right: GateRight<'a>,
    /// The output of what has not passed.
    failed: Mutex<String>,
}

impl<'a> MergeGates<'a> {
    /// Makes them for what a person does with a unit.
    pub(crate) fn of_person(project: &'a OpenProject, id: UnitId) -> Self {
        Self { project, id, work: None, right: GateRight::Person, failed: Mutex::default() }
    }

    /// Judges the change of the target, then runs the gates.
    async fn judge_tree(&self, tree: &MergedTree) -> Result<TreeVerdict, AutopilotError> {
        let project = self.project;
        let config = project.config();
        let mut gates = gates_for(&config, GateMoment::Merge);
        if gates.is_empty() {
            return Ok(TreeVerdict::NotRun("no gate is configured for merges".to_owned()));
        }
        // Once more, on what would be in the target: not every workflow has come through the phase verify.
        if let Some((work, rules)) = &self.work {
            let found = judge_diff(project, rules, (&tree.base, &tree.tip)).await?;
            if let Some((name, judged)) = found.first() {
                record(project, work, (name, judged), (Duration::ZERO, 0)).await?;
                return Ok(TreeVerdict::Fail(self.note(name, judged)));
            }
        } else {
            // The tests of what a person takes back go with it, and hidden ones cannot.
            gates.retain(|gate| gate.hidden.is_none());
        }
        // Last: they change the tree that the others judge.
        gates.sort_by_key(|gate| gate.hidden.is_some());
        let mut is_proven = false;
        for gate in gates {
            let started = Instant::now();
            if let Some(name) = &gate.hidden
                && let Err(why) = lay_over(project, name, &tree.folder)
            {
                return Ok(TreeVerdict::NotRun(format!("{}: {why}", gate.name)));
            }
            let judged = self.run_one(gate, tree).await?;
            if let Some((work, _)) = &self.work {
                record(project, work, (&gate.name, &judged), (started.elapsed(), 0)).await?;
            }
            let is_good = matches!(judged.verdict, ScriptVerdict::Pass | ScriptVerdict::Skip);
            let why = if is_good { String::new() } else { self.note(&gate.name, &judged) };
            match judged.verdict {
                ScriptVerdict::Pass => is_proven = true,
                ScriptVerdict::Skip => {}
                ScriptVerdict::Fail | ScriptVerdict::Block | ScriptVerdict::NotRun if !gate.required => {}
                ScriptVerdict::Fail => return Ok(TreeVerdict::Fail(why)),
                ScriptVerdict::Block => return Ok(TreeVerdict::Block(why)),
                ScriptVerdict::NotRun => return Ok(TreeVerdict::NotRun(why)),
            }
        }
        // Gates that do not apply are no proof.
        Ok(if is_proven {
            TreeVerdict::Pass
        } else {
            TreeVerdict::NotRun("no gate has proven anything".to_owned())
        })
    }

    async fn run_one(&self, gate: &PilotGate, tree: &MergedTree) -> Result<GateJudgement, AutopilotError> {
        let project = self.project;
        let work = self.work.as_ref().map(|(work, _)| *work);
        let subject = GateSubject { id: self.id, gate, work };
        let mut run = run_gate(project, subject, &tree.folder, self.right).await?;
        if gate.hidden.is_some() {
            // A program that ends well before any test has not been tested by chance.
            if run.has_exited_well && run.judged.verdict == ScriptVerdict::NotRun {
                run.judged.verdict = ScriptVerdict::Fail;
            }
            conceal(gate, &mut run.judged);
            return Ok(run.judged);
        }
        if let (Some((_, rules)), GateRight::Plan(stop)) = (&self.work, self.right)
            && !rules.allows_tests()
        {
            compare_with_base(project, subject, &tree.base, &mut run, stop).await?;
        }
        if run.judged.verdict == ScriptVerdict::Pass {
            // If the target moves there, it is the base of what comes next.
            project.baselines.learn(gate, &tree.commit, run.judged.counts);
        }
        Ok(run.judged)
    }

    /// Notes what has not passed, for the next attempt. Returns the reason in a line.
    fn note(&self, name: &str, judged: &GateJudgement) -> String {
        let why = format!("{name}: {}", judged.summary);
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        *failed = format!("{why}\n{}", judged.output);
        why
    }
}

impl TreeCheck for MergeGates<'_> {
    async fn check_tree(&self, tree: &MergedTree) -> TreeVerdict {
        // Without its type: the compiler bounds how deep futures are nested, and this one has checks within checks.
        let judging: TreeJudgement<'_> = Box::pin(self.judge_tree(tree));
        match judging.await {
            Ok(verdict) => verdict,
            Err(error) => TreeVerdict::NotRun(error.report().outside),
        }
    }

    async fn is_wanted(&self) -> bool {
        let Some((work, _)) = &self.work else { return true };
        let is_stopped = matches!(self.right, GateRight::Plan(stop) if stop.is_cancelled());
        // What cannot be read or written is no leave to go on.
        !is_stopped
            && claiming::renew_claim(self.project, work).await.is_ok()
            && self.is_ordered().await.unwrap_or(false)
    }
}

impl MergeGates<'_> {
    /// Returns true if the plan of the unit is in force: one that a person has revoked orders no merge.
    async fn is_ordered(&self) -> Result<bool, AutopilotError> {
        let plan = plan_of(self.project, self.id).await?;
        let state = self.project.hands.store().work_item(plan).await?.map(|item| item.state);
        // What was begun before a pause is ended.
        Ok(matches!(state, Some(WorkState::Running | WorkState::Paused | WorkState::Consulting)))
    }
}

/// Merges the branch of a unit.
///
/// # Errors
///
/// If git, the sandbox or the store fail. The target is at a commit that its gates have passed.
pub(super) async fn merge_unit(
    project: &Arc<OpenProject>,
    work: &WorkClaim,
    stop: &CancellationToken,
) -> Result<PhaseResult, AutopilotError> {
    let id = work.unit.id;
    let (note, used) = match Box::pin(sync_documents(project, work, stop)).await? {
        DocStep::Merge { note, used } => (note, used),
        DocStep::End(ended) => return Ok(*ended),
    };
    let own = project.work_of(id).await?;
    let request = MergeRequest {
        unit: own.unit.clone(),
        branch: own.branch.clone(),
        title: work.unit.row.title.clone(),
        code_depends_on: work.unit.facts.code_depends_on.iter().map(ToString::to_string).collect(),
        created_at: work.unit.row.created_at.as_millis(),
    };
    let merged: BTreeSet<String> = ended_units(project).await?;
    let (rules, right) = (rules_of(project, id).await?, GateRight::Plan(stop));
    let gates = MergeGates { project, id, work: Some((work, rules)), right, failed: Mutex::default() };
    let mut results = project.git.merge_slices(&project.target, &[request], &merged, &gates).await?;
    let result = results.remove(&own.unit);
    let output = gates.failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    let (event, reason) = judge(project, id, result)?;
    let reason = if note.is_empty() { reason } else { format!("{reason}; {note}") };
    let is_merged = matches!(event, UnitEvent::Merge(UnitMergeResult::Merged));
    let error = if output.is_empty() { reason.clone() } else { format!("{reason}\n\n{output}") };
    Ok(PhaseResult {
        outcome: if is_merged { "success" } else { "failure" },
        code: (!is_merged).then_some(FailureCode::NotMerged),
        last_error: (!is_merged).then_some(error),
        event,
        reason,
        used,
    })
}

fn judge(
    project: &OpenProject,
    id: UnitId,
    result: Option<MergeResult>,
) -> Result<(UnitEvent, String), AutopilotError> {
    let list = |files: Vec<std::path::PathBuf>| {
        files.iter().take(20).map(|file| file.display().to_string()).collect::<Vec<_>>().join(", ")
    };
    Ok(match result {
        Some(MergeResult::Merged { commit }) => {
            project.files.write_file(
                id,
                UnitFile::Result,
                &format!("merged into {} as {commit}\n", project.target),
            )?;
            (UnitEvent::Merge(UnitMergeResult::Merged), format!("merged as {}", commit.short_form()))
        }
        Some(MergeResult::AlreadyIn) => (
            UnitEvent::Merge(UnitMergeResult::Merged),
            format!("everything is in {} already, and has passed there", project.target),
        ),
        Some(MergeResult::Unchanged) => (
            UnitEvent::Pause(PauseCause::NothingChanged),
            format!(
                "nothing was changed since its branch began, so nothing is merged: `writ pilot cancel {id}` ends it, work on its branch and `writ pilot resume {id}` go on"
            ),
        ),
        Some(MergeResult::Conflict { files, with }) => (
            UnitEvent::Merge(UnitMergeResult::Conflict),
            format!("conflicts with {} in {}", with.short_form(), list(files)),
        ),
        Some(MergeResult::Failed { why } | MergeResult::Blocked { why }) => {
            (UnitEvent::Merge(UnitMergeResult::ChecksFailed), format!("the merged tree does not pass: {why}"))
        }
        Some(MergeResult::NotRun { why }) => {
            (UnitEvent::Pause(PauseCause::NothingChecked), format!("the merged tree was not checked: {why}"))
        }
        Some(MergeResult::Waits { on }) => {
            (UnitEvent::Merge(UnitMergeResult::BaseMoved), format!("it waits for {}", on.join(", ")))
        }
        Some(MergeResult::Uncommitted { files }) => {
            (UnitEvent::Pause(PauseCause::Supervisor), format!("not committed: {}", list(files)))
        }
        Some(MergeResult::Held { at, checkout, reason, .. }) => (
            UnitEvent::Pause(PauseCause::Person),
            format!(
                "it passed its gates, and waits at {at}: {} cannot move with it: {reason:?}",
                checkout.display()
            ),
        ),
        Some(MergeResult::Withdrawn) => (
            UnitEvent::Merge(UnitMergeResult::BaseMoved),
            "it was stopped before the target moved".to_owned(),
        ),
        None => (UnitEvent::Merge(UnitMergeResult::BaseMoved), "the target moved at every try".to_owned()),
    })
}
