//! Resolving a conflict in the workspace of its slice.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use writ_sandbox::git::commits::{MergeDraft, is_ancestor, merge_draft, write_commit};
use writ_sandbox::git::refs::{RefChange, change_refs, read_ref};
use writ_sandbox::git::worktrees::{move_tree, renew_index, store_tree};
use writ_sandbox::git::{BranchName, CommitId, GitFault, RefName};

use crate::error::PilotGitError;
use crate::service::{PilotGit, UnitWork};
use crate::workspace::unit_message;

/// The largest file in which conflict markers are looked for, in bytes.
const MARKED_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// The result of bringing the target into a workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResolveStart {
    /// The branch has everything of the target.
    UpToDate,
    /// The files of both are in the workspace; those that conflict have markers.
    Begun {
        /// The files that conflict. Empty: nothing does, and the merge can be finished.
        files: Vec<PathBuf>,
    },
}

/// The reference of the target's commit that a branch is being merged with.
fn resolving_ref(branch: &BranchName) -> Result<RefName, GitFault> {
    RefName::make_own("resolving", branch.as_str())
}

/// Brings the target's files into a workspace that conflicts with it on its branch, with markers where they exclude each other. Nothing is
/// committed.
///
/// # Errors
///
/// If the workspace has changes that are not committed, or git fails.
pub async fn begin_resolve(
    service: &PilotGit,
    work: &UnitWork,
    target: &BranchName,
) -> Result<ResolveStart, PilotGitError> {
    let (tree, tip) = service.open_workspace(work).await?;
    let no_commit = || GitFault::NoCommit { branch: target.to_string() };
    let theirs = read_ref(&service.project, &target.to_ref()).await?.ok_or_else(no_commit)?;
    if is_ancestor(&service.project, &theirs, &tip).await? {
        return Ok(ResolveStart::UpToDate);
    }
    // Files that are not committed would be mixed with those of the target.
    let stored = store_tree(&service.project, &tree, &tip).await?;
    if let Some(change) = stored.changes.first() {
        let why = format!("{} is not committed", change.path.display());
        return Err(GitFault::Creation { path: tree.path, why }.into());
    }
    // Written as a tree first: files in the workspace change in one step, and only where both sides are known.
    let MergeDraft { tree: draft, conflicts } = merge_draft(&service.project, &tip, &theirs).await?;
    // The reference first: a process that is killed afterwards can go on from it.
    let name = resolving_ref(&work.branch)?;
    let change = match read_ref(&service.project, &name).await? {
        Some(from) => RefChange::Move { name, from, to: theirs },
        None => RefChange::Create { name, to: theirs },
    };
    change_refs(&service.project, &[change], "writ: a conflict is resolved").await?;
    move_tree(&service.project, &tree, &tip, &draft).await?;
    Ok(ResolveStart::Begun { files: conflicts })
}

/// Returns true if the target was brought into a workspace, and a person can have edited it since. Where the workspace is as its branch
/// has it, a crash has come between: bringing it in begins anew.
///
/// # Errors
///
/// If git fails.
pub async fn is_begun(service: &PilotGit, work: &UnitWork) -> Result<bool, PilotGitError> {
    if read_ref(&service.project, &resolving_ref(&work.branch)?).await?.is_none() {
        return Ok(false);
    }
    let (tree, tip) = service.open_workspace(work).await?;
    Ok(!store_tree(&service.project, &tree, &tip).await?.changes.is_empty())
}

/// Commits the resolved state of a workspace as a merge of its branch with the target.
///
/// # Errors
///
/// [`PilotGitError::MarkersLeft`] if a file that differs from both still has conflict markers; [`PilotGitError::NoConflict`] if none
/// was begun.
pub async fn finish_resolve(service: &PilotGit, work: &UnitWork) -> Result<CommitId, PilotGitError> {
    let name = resolving_ref(&work.branch)?;
    let begun = read_ref(&service.project, &name).await?;
    let theirs = begun.ok_or_else(|| PilotGitError::NoConflict { unit: work.unit.clone() })?;
    let (tree, tip) = service.open_workspace(work).await?;
    let stored = store_tree(&service.project, &tree, &tip).await?;
    // Compared with both sides: what differs from one alone was brought by the other as it is.
    let from_theirs = store_tree(&service.project, &tree, &theirs).await?;
    let others: BTreeSet<&PathBuf> = from_theirs.changes.iter().map(|change| &change.path).collect();
    // A marker in a file that one side brought as it is stands there on purpose.
    let both = stored.changes.iter().filter(|change| others.contains(&change.path));
    let files: Vec<PathBuf> = both
        .filter(|change| has_markers(&tree.path.join(&change.path)))
        .map(|change| change.path.clone())
        .collect();
    if !files.is_empty() {
        return Err(PilotGitError::MarkersLeft { files });
    }
    let message = unit_message(&work.unit, "resolve conflicts with the target");
    let parents = [&tip, &theirs];
    let commit = write_commit(&service.project, &stored.tree, &parents, &message, &service.committer).await?;
    // Both parents: the target's commits are proven to be in the branch from here on.
    let changes = [
        RefChange::Move { name: work.branch.to_ref(), from: tip.clone(), to: commit.clone() },
        RefChange::Delete { name, from: theirs.clone() },
    ];
    change_refs(&service.project, &changes, "writ: a conflict is resolved").await?;
    renew_index(&tree, stored)?;
    Ok(commit)
}

/// True if a file has the beginning and the end of a conflict. One that cannot be read whole counts as one that has.
fn has_markers(path: &Path) -> bool {
    use std::io::Read as _;
    match std::fs::symlink_metadata(path) {
        Ok(meta) if meta.is_file() && meta.len() <= MARKED_BYTES_MAX => {}
        Ok(meta) => return meta.is_file(),
        Err(_) => return false,
    }
    let mut bytes = Vec::new();
    let read = std::fs::File::open(path).and_then(|file| file.take(MARKED_BYTES_MAX).read_to_end(&mut bytes));
    // Both marks are wanted: one of them alone stands in texts about git, too.
    let begins = |mark: &[u8]| bytes.split(|byte| *byte == b'\n').any(|line| line.starts_with(mark));
    read.is_err() || (begins(b"<<<<<<< ") && begins(b">>>>>>> "))
}
