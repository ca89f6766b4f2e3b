//! A work tree for each slice: made, committed, removed.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use writ_sandbox::git::commits::{missing_commits, write_commit};
use writ_sandbox::git::refs::{RefChange, change_refs, read_ref};
use writ_sandbox::git::worktrees::{
    PilotTree, TreeEntry, TreeHead, add_tree, fill_tree, find_tree, forget_tree, list_trees, renew_index,
    store_tree,
};
use writ_sandbox::git::{BranchName, CommitId, GitFault, RefName};

use crate::error::PilotGitError;
use crate::events::GitEvent;
use crate::naming::workspace_name;
use crate::recover::WORK_REASON;
use crate::service::{PilotGit, UnitWork};

/// The trailer that names the unit of a commit.
pub const UNIT_TRAILER: &str = "Writ-Unit";

/// The workspace of a unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitWorkspace {
    /// Its folder.
    pub folder: PathBuf,
    /// True if it was made now.
    pub created: bool,
    /// The commit that the branch began at.
    pub base: CommitId,
    /// The commit that the branch is at.
    pub tip: CommitId,
}

/// The result of committing a workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommitResult {
    /// There is nothing that the branch does not have.
    Unchanged,
    /// A commit was made.
    Committed {
        /// The commit.
        commit: CommitId,
        /// The paths that it changes.
        paths: Vec<PathBuf>,
    },
}

/// The result of removing a workspace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RemovedWorkspace {
    /// The references below which commits stay that are not proven to be in the target.
    pub archived: Vec<RefName>,
}

/// The reference of the commit that a branch of the autopilot began at. It is made with the branch: a branch without it is another's.
pub(crate) fn base_ref(branch: &BranchName) -> Result<RefName, GitFault> {
    RefName::make_own("base", branch.as_str())
}

impl PilotGit {
    /// Returns the workspace of a unit; makes branch and work tree, from `from`, where they are not there.
    ///
    /// # Errors
    ///
    /// If a branch of that name is not the autopilot's, if the folder is another's, or if it cannot be made. Nothing is overwritten.
    pub async fn ensure_workspace(
        &self,
        work: &UnitWork,
        from: &BranchName,
    ) -> Result<UnitWorkspace, PilotGitError> {
        let folder = self.root.resolve_name(&workspace_name(&work.unit)?)?;
        let entry = self.find_entry(&folder).await?;
        // The branch before the folder: a branch without a folder is filled later, a folder without a branch is of unknown origin.
        let (base, tip) = match self.read_branch(&work.branch).await? {
            Some(found) => found,
            None => self.make_branch(work, from, &folder).await?,
        };
        // Git knows a work tree there: it is used if it is at its branch, and made anew if its folder was deleted.
        if let Some(entry) = &entry {
            let is_begun = is_only_begun(entry);
            if !is_begun {
                self.check_head(entry, &work.branch)?;
            }
            if entry.is_there && !is_begun {
                let tree = find_tree(&self.project, &folder)?;
                // Killed between registering it and its last file.
                if !tree.is_filled() {
                    fill_tree(&self.project, &tree, &tip).await?;
                }
                return Ok(UnitWorkspace { folder, created: false, base, tip });
            }
            // This one alone: `git worktree prune` would forget those of the user that are on a disk which is away.
            self.root.remove_folder(&folder)?;
            forget_tree(&self.project, &folder).await?;
        }
        let made = self.root.ensure_folder(&workspace_name(&work.unit)?)?;
        // Files without a work tree are of unknown origin.
        let is_empty = fs::read_dir(&made.path).is_ok_and(|mut entries| entries.next().is_none());
        if !is_empty {
            return Err(PilotGitError::Occupied { folder: made.path });
        }
        let head = TreeHead::Branch(work.branch.clone());
        add_tree(&self.project, &made.path, &head, &tip, WORK_REASON).await?;
        Ok(UnitWorkspace { folder: made.path, created: true, base, tip })
    }

    /// Commits everything in a unit's workspace to its branch. The message begins with the unit's id, and ends with it as a trailer.
    ///
    /// # Errors
    ///
    /// If the workspace is not at its branch, if it holds what a commit would leave out, or if the branch has moved meanwhile.
    pub async fn commit_workspace(
        &self,
        work: &UnitWork,
        message: &str,
    ) -> Result<CommitResult, PilotGitError> {
        let (tree, tip) = self.open_workspace(work).await?;
        let stored = store_tree(&self.project, &tree, &tip).await?;
        if stored.changes.is_empty() {
            return Ok(CommitResult::Unchanged);
        }
        let message = unit_message(&work.unit, message);
        let commit = write_commit(&self.project, &stored.tree, &[&tip], &message, &self.committer).await?;
        let paths = stored.changes.iter().map(|change| change.path.clone()).collect();
        // By compare-and-swap: a commit that someone made on the branch meanwhile stays.
        let moved = RefChange::Move { name: work.branch.to_ref(), from: tip, to: commit.clone() };
        change_refs(&self.project, &[moved], "writ: commit of a workspace").await?;
        // After the branch: an index that is behind shows changes where there are none, and no work is in danger.
        renew_index(&tree, stored)?;
        Ok(CommitResult::Committed { commit, paths })
    }

    /// Commits new texts of documents to a unit's branch, if that and its workspace are as they are at `tip`. Returns true if it did.
    ///
    /// # Errors
    ///
    /// If the workspace is not at its branch, a document is no plain file there, or it cannot be written.
    pub(crate) async fn commit_documents(
        &self,
        work: &UnitWork,
        tip: &CommitId,
        texts: &BTreeMap<String, String>,
    ) -> Result<bool, PilotGitError> {
        let (tree, now) = self.open_workspace(work).await?;
        if now != *tip || !store_tree(&self.project, &tree, tip).await?.changes.is_empty() {
            return Ok(false);
        }
        let folder = self.root.resolve_name(&workspace_name(&work.unit)?)?;
        // Nothing else is in the work tree, so nothing else is committed.
        for (path, text) in texts {
            let path = folder.join(path);
            replace_plain(&path, text).map_err(|source| GitFault::Io { path, source })?;
        }
        let stored = store_tree(&self.project, &tree, tip).await?;
        // A text that is as it was, or more than was named: the merge says what is there.
        let is_named = |path: &Path| path.to_str().is_some_and(|path| texts.contains_key(path));
        if stored.changes.is_empty() || !stored.changes.iter().all(|change| is_named(&change.path)) {
            return Ok(false);
        }
        let unit = &work.unit;
        let message = format!("docs: sync after {unit}\n\n{UNIT_TRAILER}: {unit}\n");
        let commit = write_commit(&self.project, &stored.tree, &[tip], &message, &self.committer).await?;
        // By compare-and-swap, as for any other commit of the branch.
        let moved = RefChange::Move { name: work.branch.to_ref(), from: tip.clone(), to: commit };
        change_refs(&self.project, &[moved], "writ: documents after a change").await?;
        renew_index(&tree, stored)?;
        Ok(true)
    }

    /// Removes the folder of a unit's workspace that was just made: its branch stays, and has all of it.
    ///
    /// # Errors
    ///
    /// If it cannot be removed.
    pub(crate) async fn drop_folder(&self, work: &UnitWork) -> Result<(), PilotGitError> {
        let folder = self.root.resolve_name(&workspace_name(&work.unit)?)?;
        self.root.remove_folder(&folder)?;
        Ok(forget_tree(&self.project, &folder).await?)
    }

    /// Removes a unit's workspace and branch. What of them is not proven to be in the target stays below `refs/writ/archive/`, with a
    /// commit of what was not committed. Ignored files are removed.
    ///
    /// # Errors
    ///
    /// If the work cannot be stored; then nothing is removed.
    pub async fn remove_workspace(
        &self,
        work: &UnitWork,
        target: &BranchName,
    ) -> Result<RemovedWorkspace, PilotGitError> {
        let folder = self.root.resolve_name(&workspace_name(&work.unit)?)?;
        let entry = self.find_entry(&folder).await?;
        let branch_tip = read_ref(&self.project, &work.branch.to_ref()).await?;
        let base = read_ref(&self.project, &base_ref(&work.branch)?).await?;
        if branch_tip.is_some() && base.is_none() {
            return Err(PilotGitError::BranchExists { branch: work.branch.to_string() });
        }
        // The head of the work tree may be ahead of its branch, where a person or a killed git has detached it.
        let mut tips: Vec<CommitId> = branch_tip.iter().cloned().collect();
        if let Some(entry) = &entry {
            tips.extend(self.store_rest(work, entry).await?);
        }
        // Before anything is removed, so that a process that is killed in between leaves everything reachable.
        let archived = self.archive_commits(&work.branch, &tips, target).await?;
        if let Some(entry) = entry {
            let (unit, branch) = (work.unit.clone(), work.branch.clone());
            // Announced before it happens, so that no watcher reads a folder that is being removed.
            self.emit_event(GitEvent::WorktreeDelete { unit, branch, folder: folder.clone() });
            self.root.remove_folder(&entry.path)?;
            forget_tree(&self.project, &entry.path).await?;
        }
        // Both at once: a branch without its base would count as another's.
        let mut changes: Vec<RefChange> = Vec::new();
        let names = [(work.branch.to_ref(), branch_tip), (base_ref(&work.branch)?, base)];
        changes.extend(
            names.into_iter().filter_map(|(name, from)| Some(RefChange::Delete { name, from: from? })),
        );
        change_refs(&self.project, &changes, "writ: the work is in the target or the archive").await?;
        Ok(RemovedWorkspace { archived })
    }

    /// The commits that a work tree has besides its branch: its own, and one of what is not committed.
    async fn store_rest(&self, work: &UnitWork, entry: &TreeEntry) -> Result<Vec<CommitId>, PilotGitError> {
        let Some(head) = &entry.commit else { return Ok(Vec::new()) };
        let mut rest = vec![head.clone()];
        if entry.is_there {
            let tree = find_tree(&self.project, &entry.path)?;
            // In one that was cut off while it was filled, the missing files would count as deleted.
            if tree.is_filled() {
                let stored = store_tree(&self.project, &tree, head).await?;
                if !stored.changes.is_empty() {
                    let message = unit_message(&work.unit, "work that was not committed");
                    let (tree, parents) = (&stored.tree, [head]);
                    rest.push(write_commit(&self.project, tree, &parents, &message, &self.committer).await?);
                }
            }
        }
        Ok(rest)
    }

    /// Makes references to commits that are not proven to be in the target.
    async fn archive_commits(
        &self,
        branch: &BranchName,
        tips: &[CommitId],
        target: &BranchName,
    ) -> Result<Vec<RefName>, PilotGitError> {
        let target = read_ref(&self.project, &target.to_ref()).await?;
        let (mut archived, mut changes) = (Vec::new(), Vec::new());
        for tip in tips {
            let is_proven = match &target {
                Some(target) => missing_commits(&self.project, target, tip).await?.is_empty(),
                // Without a target nothing is proven.
                None => false,
            };
            // With its id in the name, a second archive of the branch excludes none.
            let name = RefName::make_own("archive", &format!("{branch}-{}", tip.short_form()))?;
            if is_proven || archived.contains(&name) {
                continue;
            }
            // The name has a short id: another commit with the same one must not be taken for this one.
            match read_ref(&self.project, &name).await? {
                Some(there) if there != *tip => return Err(PilotGitError::ArchiveExists { name }),
                Some(_) => {}
                None => changes.push(RefChange::Create { name: name.clone(), to: tip.clone() }),
            }
            archived.push(name);
        }
        if !changes.is_empty() {
            change_refs(&self.project, &changes, "writ: archive").await?;
        }
        Ok(archived)
    }

    /// The work tree and the tip of a unit's branch, if they belong together.
    pub(crate) async fn open_workspace(
        &self,
        work: &UnitWork,
    ) -> Result<(PilotTree, CommitId), PilotGitError> {
        let folder = self.root.resolve_name(&workspace_name(&work.unit)?)?;
        let missing = || PilotGitError::BranchMissing { branch: work.branch.clone() };
        let (_, tip) = self.read_branch(&work.branch).await?.ok_or_else(missing)?;
        let tree = find_tree(&self.project, &folder)?;
        // A person may have checked something else out there: that is no work of the unit.
        if let Some(entry) = self.find_entry(&folder).await? {
            self.check_head(&entry, &work.branch)?;
        }
        Ok((tree, tip))
    }

    pub(crate) async fn find_entry(&self, folder: &Path) -> Result<Option<TreeEntry>, PilotGitError> {
        Ok(list_trees(&self.project).await?.into_iter().find(|entry| entry.path == folder))
    }

    pub(crate) fn check_head(&self, entry: &TreeEntry, branch: &BranchName) -> Result<(), PilotGitError> {
        let found = match &entry.head {
            TreeHead::Branch(name) if name == branch => return Ok(()),
            TreeHead::Branch(name) => format!("'{name}'"),
            TreeHead::Detached(commit) => format!("commit {}", commit.short_form()),
            TreeHead::Other(name) => format!("'{name}'"),
        };
        Err(PilotGitError::Elsewhere { folder: entry.path.clone(), branch: branch.clone(), found })
    }

    /// The base and the tip of a branch of the autopilot. `None`: there is none.
    pub(crate) async fn read_branch(
        &self,
        branch: &BranchName,
    ) -> Result<Option<(CommitId, CommitId)>, PilotGitError> {
        let tip = read_ref(&self.project, &branch.to_ref()).await?;
        let base = read_ref(&self.project, &base_ref(branch)?).await?;
        match (base, tip) {
            (Some(base), Some(tip)) => Ok(Some((base, tip))),
            (None, None) => Ok(None),
            (None, Some(_)) => Err(PilotGitError::BranchExists { branch: branch.to_string() }),
            (Some(_), None) => Err(PilotGitError::BranchMissing { branch: branch.clone() }),
        }
    }

    async fn make_branch(
        &self,
        work: &UnitWork,
        from: &BranchName,
        folder: &Path,
    ) -> Result<(CommitId, CommitId), PilotGitError> {
        let no_commit = || GitFault::NoCommit { branch: from.to_string() };
        let base = read_ref(&self.project, &from.to_ref()).await?.ok_or_else(no_commit)?;
        let (unit, branch) = (work.unit.clone(), work.branch.clone());
        self.emit_event(GitEvent::WorktreeCreate { unit, branch, folder: folder.to_owned() });
        // Both or none: the second says that the first is ours.
        let changes = [base_ref(&work.branch)?, work.branch.to_ref()]
            .map(|name| RefChange::Create { name, to: base.clone() });
        match change_refs(&self.project, &changes, "writ: a slice begins").await {
            Err(GitFault::Taken { name }) => Err(PilotGitError::BranchExists { branch: name }),
            Err(fault) => Err(fault.into()),
            Ok(()) => Ok((base.clone(), base)),
        }
    }
}

/// Returns true for a work tree of ours that git was killed over before it had written its branch: nothing was ever in it.
fn is_only_begun(entry: &TreeEntry) -> bool {
    let is_unborn = entry.commit.is_none() && entry.head == TreeHead::Other(String::new());
    let is_empty = || match fs::read_dir(&entry.path) {
        Ok(mut entries) => entries.all(|one| one.is_ok_and(|one| one.file_name() == ".git")),
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    };
    is_unborn && entry.locked.as_deref() == Some(WORK_REASON) && is_empty()
}

/// Replaces the text of a plain file; a link in its place is refused.
fn replace_plain(path: &Path, text: &str) -> io::Result<()> {
    if !fs::symlink_metadata(path)?.is_file() {
        return Err(io::Error::other("it is no plain file"));
    }
    fs::write(path, text)
}

/// A message with its unit, by which its commit is found again when its id has changed.
pub(crate) fn unit_message(unit: &str, message: &str) -> String {
    // A line end in an id would make a line of its own out of the rest.
    let unit: String = unit.chars().filter(|c| !c.is_control()).collect();
    format!("{unit}: {}\n\n{UNIT_TRAILER}: {unit}\n", message.trim())
}
