//! Undoing a unit in four steps: its commits are found, shown, confirmed by the caller, and undone newest first.

use std::path::PathBuf;

use writ_sandbox::git::commits::{CommitLine, TreeMerge, list_commits, merge_trees, tree_of, write_commit};
use writ_sandbox::git::refs::read_ref;
use writ_sandbox::git::{BranchName, CommitId, GitFault};

use crate::error::PilotGitError;
use crate::merge::advance::advance_target;
use crate::merge::{Advance, TreeCheck, TreeVerdict};
use crate::service::PilotGit;

/// The trailer that names the unit of the commit that was undone.
const REVERTS_TRAILER: &str = "Writ-Reverts";

/// The commits of a unit, as they are to be shown before anything is undone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RevertPlan {
    /// The unit.
    pub unit: String,
    /// The branch.
    pub target: BranchName,
    /// The commit that the branch was at.
    pub at: CommitId,
    /// The commits to undo, newest first.
    pub commits: Vec<CommitLine>,
    /// Merges among them: what they brought is undone commit by commit, they themselves are not. A person is warned of them.
    pub merges: Vec<CommitLine>,
}

/// The result of undoing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RevertResult {
    /// The unit's changes are undone.
    Reverted {
        /// The commits that undo, oldest first.
        commits: Vec<CommitId>,
    },
    /// All of it was undone before.
    NothingLeft,
    /// A later change excludes undoing this commit. The branch is as it was.
    Conflict {
        /// The commit.
        commit: CommitId,
        /// The files.
        files: Vec<PathBuf>,
        /// The commits that undo what could be undone, on no branch.
        done: Vec<CommitId>,
    },
    /// The check of the result did not pass. The branch is as it was.
    Refused(TreeVerdict),
    /// The branch stays, as in a merge.
    NotMoved(Advance),
}

/// Finds the commits of a unit in a branch: by trailer, or, where a rebase or squash has left none, by the beginning of the message.
///
/// # Errors
///
/// If there is none.
pub async fn plan_revert(
    service: &PilotGit,
    target: &BranchName,
    unit: &str,
) -> Result<RevertPlan, PilotGitError> {
    let no_commit = || GitFault::NoCommit { branch: target.to_string() };
    let at = read_ref(&service.project, &target.to_ref()).await?.ok_or_else(no_commit)?;
    // With the colon: the id of one unit may be the beginning of another.
    let prefix = format!("{unit}: ");
    let is_of_unit =
        |commit: &CommitLine| commit.unit.as_deref() == Some(unit) || commit.subject.starts_with(&prefix);
    let found = list_commits(&service.project, None, &at).await?.into_iter().filter(is_of_unit);
    // What a merge brought is in the list on its own where it is of the unit.
    let (merges, commits): (Vec<_>, Vec<_>) = found.partition(|commit| commit.parents.len() > 1);
    if commits.is_empty() {
        return Err(PilotGitError::NoCommits { unit: unit.to_owned(), target: target.clone() });
    }
    Ok(RevertPlan { unit: unit.to_owned(), target: target.clone(), at, commits, merges })
}

/// Undoes the commits of a plan that a person has confirmed, newest first, checks the result, and moves the branch.
///
/// # Errors
///
/// [`PilotGitError::PlanOutdated`] if the branch has moved since; otherwise if git or the disk fails.
pub async fn revert_unit(
    service: &PilotGit,
    plan: &RevertPlan,
    check: &impl TreeCheck,
) -> Result<RevertResult, PilotGitError> {
    // A merge in between would move the branch that is being looked at.
    let _one_at_a_time = service.merging.lock().await;
    let outdated = || PilotGitError::PlanOutdated { target: plan.target.clone() };
    if read_ref(&service.project, &plan.target.to_ref()).await?.as_ref() != Some(&plan.at) {
        return Err(outdated());
    }
    // Newest first, each upon the one before: as they were made, backwards.
    let (mut tip, mut done) = (plan.at.clone(), Vec::new());
    for commit in &plan.commits {
        match undo_commit(service, &tip, commit).await? {
            TreeMerge::Conflict(files) => {
                return Ok(RevertResult::Conflict { commit: commit.id.clone(), files, done });
            }
            // The change is not in the tree any longer: a commit without content would claim that something was undone.
            TreeMerge::Clean(tree) if tree == tree_of(&service.project, &tip).await? => {}
            TreeMerge::Clean(tree) => {
                let message = revert_message(&plan.unit, commit);
                tip = write_commit(&service.project, &tree, &[&tip], &message, &service.committer).await?;
                done.push(tip.clone());
            }
        }
    }
    // All of it was undone before, or taken back by later changes.
    if done.is_empty() {
        return Ok(RevertResult::NothingLeft);
    }
    // The undone state is new: it has to pass like a merge.
    match service.check_commit((&plan.at, &tip), std::slice::from_ref(&plan.unit), check).await? {
        TreeVerdict::Pass => {}
        verdict @ (TreeVerdict::Fail(_) | TreeVerdict::Block(_) | TreeVerdict::NotRun(_)) => {
            return Ok(RevertResult::Refused(verdict));
        }
    }
    match advance_target(service, &plan.target, (&plan.at, &tip), check).await? {
        Advance::Moved => Ok(RevertResult::Reverted { commits: done }),
        // A person confirmed another state: they look again.
        Advance::Stale => Err(outdated()),
        held @ (Advance::Held { .. } | Advance::Withdrawn) => Ok(RevertResult::NotMoved(held)),
    }
}

/// The tree of `tip` without the changes of a commit: a merge of its parent's tree with the commit's own as the common ancestor.
async fn undo_commit(
    service: &PilotGit,
    tip: &CommitId,
    commit: &CommitLine,
) -> Result<TreeMerge, PilotGitError> {
    let (project, who) = (&service.project, &service.committer);
    let after = tree_of(project, &commit.id).await?;
    let before = match commit.parents.first() {
        Some(parent) => tree_of(project, parent).await?,
        None => writ_sandbox::git::commits::empty_tree(project).await?,
    };
    // Git takes trees for a merge since 2.45 alone: commits that nothing refers to say the same to every version.
    let note = "one side of a revert";
    let base = write_commit(project, &after, &[], note, who).await?;
    let ours = write_commit(project, &tree_of(project, tip).await?, &[&base], note, who).await?;
    let theirs = write_commit(project, &before, &[&base], note, who).await?;
    Ok(merge_trees(project, &ours, &theirs).await?)
}

fn revert_message(unit: &str, commit: &CommitLine) -> String {
    let (subject, id) = (&commit.subject, &commit.id);
    format!("Revert \"{subject}\"\n\nThis reverts commit {id}.\n\n{REVERTS_TRAILER}: {unit}\n")
}
