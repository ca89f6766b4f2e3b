//! After a crash: what was under way is finished or undone, and nothing but that is touched.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use writ_sandbox::git::checkouts::{find_checkouts, mend_checkout};
use writ_sandbox::git::left_locks::{find_own_locks, remove_left_locks, remove_locks_of};
use writ_sandbox::git::notes::{read_note, remove_note, write_note};
use writ_sandbox::git::places::WorkspaceRoot;
use writ_sandbox::git::refs::{RefChange, change_refs, list_refs, read_ref};
use writ_sandbox::git::worktrees::{TreeEntry, TreeHead, find_tree, forget_tree, list_trees};
use writ_sandbox::git::{BranchName, CommitId, GitProject, RefName};

use crate::error::PilotGitError;
use crate::workspace::base_ref;

/// The note about a move of the target.
const NOTE: &str = "move.json";
/// The reason in the lock of a workspace.
pub(crate) const WORK_REASON: &str = "workspace of writ";
/// The reason in the lock of a work tree for a check.
pub(crate) const CHECK_REASON: &str = "check of writ";

/// The beginning of the names of folders of checks.
pub(crate) const CHECK_PREFIX: &str = "check-";

/// The state of the repository after a start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// Work trees of checks that were removed.
    pub checks_removed: Vec<PathBuf>,
    /// Lock files of ours that were removed.
    pub locks_removed: Vec<PathBuf>,
    /// Branches that have no folder of their work tree any longer. Their commits are; what was not committed is not.
    pub workspaces_missing: Vec<BranchName>,
    /// Files of the user's work tree that a move was writing when it was killed, and that have neither content: to be looked at.
    pub files_unclear: Vec<PathBuf>,
}

/// A move of the target that is about to happen.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct MoveNote {
    target: String,
    old: String,
    new: String,
}

/// Notes a move before it begins.
pub(crate) fn note_move(
    project: &GitProject,
    target: &BranchName,
    old: &CommitId,
    new: &CommitId,
) -> Result<(), PilotGitError> {
    let note = serde_json::json!({
        "target": target.as_str(), "old": old.as_str(), "new": new.as_str(),
    });
    Ok(write_note(project, NOTE, &note.to_string())?)
}

/// Removes the note: the move has ended.
pub(crate) fn forget_move(project: &GitProject) -> Result<(), PilotGitError> {
    Ok(remove_note(project, NOTE)?)
}

/// True for the work trees of the harness: those that it has locked, in its own folder.
pub(crate) fn is_ours(root: &WorkspaceRoot, entry: &TreeEntry) -> bool {
    let reason = entry.locked.as_deref();
    entry.path.parent() == Some(root.path()) && matches!(reason, Some(WORK_REASON | CHECK_REASON))
}

/// Cleans up. The lock of the project says that no git of an earlier process runs any longer.
pub(crate) async fn recover_project(
    project: &GitProject,
    root: &WorkspaceRoot,
) -> Result<RecoveryReport, PilotGitError> {
    let mut report = RecoveryReport::default();
    if let Some(text) = read_note(project, NOTE)? {
        // A note is written whole: one that cannot be read is not ours.
        if let Ok(note) = serde_json::from_str::<MoveNote>(&text) {
            finish_move(project, root, &note, &mut report).await?;
        }
        forget_move(project)?;
    }
    report.locks_removed.extend(unlock_own(project).await?);
    for entry in list_trees(project).await?.iter().filter(|entry| is_ours(root, entry)) {
        // A check is made anew, and its commit has only parents that others refer to.
        if entry.locked.as_deref() == Some(CHECK_REASON) {
            root.remove_folder(&entry.path)?;
            forget_tree(project, &entry.path).await?;
            report.checks_removed.push(entry.path.clone());
            continue;
        }
        // It is made again when it is asked for; git's record of it stays until then.
        if let TreeHead::Branch(branch) = &entry.head
            && !entry.is_there
        {
            report.workspaces_missing.push(branch.clone());
        }
        if entry.is_there && find_tree(project, &entry.path)?.remove_old_lock()? {
            report.locks_removed.push(entry.path.join("index.lock"));
        }
    }
    remove_empty_checks(root);
    if report != RecoveryReport::default() {
        tracing::info!(?report, "cleaned up after an earlier autopilot");
    }
    Ok(report)
}

/// Removes the locks that killed changes of our own references have left, and mends changes of a branch and its base that were cut in
/// half: git moves the references of a transaction one after another.
async fn unlock_own(project: &GitProject) -> Result<Vec<PathBuf>, PilotGitError> {
    let bases = "refs/writ/base/";
    let mut own = find_own_locks(project)?;
    let known = list_refs(project, bases).await?;
    let is_base = |name: &RefName| BranchName::parse_name(name.as_str().strip_prefix(bases)?).ok();
    // A branch is ours if it has a base, or was to have one.
    let branches: BTreeSet<BranchName> = known.keys().chain(&own).filter_map(is_base).collect();
    own.extend(branches.iter().map(BranchName::to_ref));
    let removed = remove_locks_of(project, &own)?;
    for branch in &branches {
        let names = [branch.to_ref(), base_ref(branch)?];
        let is_cut = |name: &RefName| {
            let lock = project.common_dir().join(format!("{name}.lock"));
            removed.contains(&lock)
        };
        // Git has locked both before it changes the first.
        if names.iter().all(is_cut) {
            mend_pair(project, &names).await?;
        }
    }
    Ok(removed)
}

/// Mends a branch without its base, or a base without its branch, of a transaction that was cut in half.
async fn mend_pair(project: &GitProject, [branch, base]: &[RefName; 2]) -> Result<(), PilotGitError> {
    let change = match (read_ref(project, branch).await?, read_ref(project, base).await?) {
        // A branch that has just begun has no commit of its own; of one that was to go all is in the target or the archive.
        (None, Some(from)) => RefChange::Delete { name: base.clone(), from },
        // Its commits stay: as a branch of ours it goes on, or is removed once more.
        (Some(to), None) => RefChange::Create { name: base.clone(), to },
        (Some(_), Some(_)) | (None, None) => return Ok(()),
    };
    Ok(change_refs(project, &[change], "writ: a change that was cut in half").await?)
}

/// Removes folders of checks that were made and not yet filled: git knows nothing of them, and another check has another name.
fn remove_empty_checks(root: &WorkspaceRoot) {
    // Without a root there are none.
    for entry in std::fs::read_dir(root.path()).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(CHECK_PREFIX) {
            // One that has files is a work tree's, or of unknown origin: it stays.
            let _removed = std::fs::remove_dir(entry.path());
        }
    }
}

/// Ends a move that was killed: forwards if the branch has moved, else back.
async fn finish_move(
    project: &GitProject,
    root: &WorkspaceRoot,
    note: &MoveNote,
    report: &mut RecoveryReport,
) -> Result<(), PilotGitError> {
    let target = BranchName::parse_name(&note.target)?;
    let (old, new) = (CommitId::parse_id(&note.old)?, CommitId::parse_id(&note.new)?);
    // Before anything is read: a left lock would make each change of the branch fail.
    report.locks_removed = remove_left_locks(project, &target.to_ref(), &new)?;
    let now = read_ref(project, &target.to_ref()).await?;
    // With the branch at the old commit the move had not happened: files go back. Else it had, and the index alone is locked.
    for checkout in find_checkouts(project, &target, |entry| is_ours(root, entry)).await? {
        if now.as_ref() == Some(&old) {
            let unclear = mend_checkout(project, &checkout, &old, &new).await?;
            report.files_unclear.extend(unclear.into_iter().map(|path| checkout.top.join(path)));
        } else {
            checkout.unlock_index(&new)?;
        }
    }
    Ok(())
}
