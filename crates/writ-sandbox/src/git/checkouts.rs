//! Work trees of the user that have a branch checked out which is to move. They move with it, or the branch stays.
//!
//! A work tree moves only where nothing of the user's can be touched by it: no change in a file that git knows, staged or not, no
//! operation under way, no file that a filter of the user's would write. Its index is locked as git locks it, and the branch is
//! locked, too, until both have moved.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use super::commits::{PathChange, changed_paths};
use super::indexes::{IndexCopy, filtered_paths};
use super::process::{GitProcess, split_nul, to_path};
use super::worktrees::{TreeEntry, TreeHead, find_tree, list_trees};
use super::{BranchName, CommitId, GitFault, GitProject};

/// The most paths that a reason names.
pub const PATHS_SHOWN_MAX: usize = 20;
/// The mode of a path that is not there.
const NO_MODE: &str = "000000";
/// The first words in a lock file of ours.
const LOCK_MARK: &str = "writ moves this work tree to ";
/// Files in a git directory that say that an operation is under way.
const UNDER_WAY: [&str; 8] = [
    "MERGE_HEAD",
    "CHERRY_PICK_HEAD",
    "REVERT_HEAD",
    "BISECT_LOG",
    "AUTO_MERGE",
    "rebase-merge",
    "rebase-apply",
    "sequencer",
];

/// A work tree of the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserCheckout {
    /// Its top folder.
    pub top: PathBuf,
    git_dir: PathBuf,
}

/// The reason why a work tree does not move.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CheckoutHold {
    /// Files that git knows are changed, staged or not.
    #[error("it has changes that are not committed: {}", show_paths(.0))]
    Changed(Vec<PathBuf>),
    /// Files that git does not know lie where new ones would be.
    #[error("files that git does not know would be overwritten: {0}")]
    Untracked(String),
    /// An operation of the user's is under way.
    #[error("an operation is under way in it ({0})")]
    UnderWay(String),
    /// Another git works in it, or one that was killed has left its lock.
    #[error("git's lock {} exists", .0.display())]
    Locked(PathBuf),
    /// It shows a part of the files alone, or hides changes of some.
    #[error("it is sparse, or files in it are marked as unchanged")]
    Partial,
    /// A filter of the user's would write one of the files.
    #[error("the filter '{filter}' would have to write {}", path.display())]
    Filtered {
        /// The file.
        path: PathBuf,
        /// The name of the filter.
        filter: String,
    },
    /// Its state cannot be read.
    #[error("its state cannot be read: {0}")]
    Unreadable(String),
}

fn show_paths(paths: &[PathBuf]) -> String {
    let shown: Vec<String> =
        paths.iter().take(PATHS_SHOWN_MAX).map(|path| path.display().to_string()).collect();
    let more = paths.len().saturating_sub(PATHS_SHOWN_MAX);
    if more == 0 { shown.join(", ") } else { format!("{} and {more} more", shown.join(", ")) }
}

/// Finds the work trees that have a branch checked out and are none of the harness.
///
/// # Errors
///
/// If git cannot be run.
pub async fn find_checkouts(
    project: &GitProject,
    branch: &BranchName,
    is_ours: impl Fn(&TreeEntry) -> bool,
) -> Result<Vec<UserCheckout>, GitFault> {
    let mut found = Vec::new();
    for (number, entry) in list_trees(project).await?.into_iter().enumerate() {
        if entry.head != TreeHead::Branch(branch.clone()) || !entry.is_there || is_ours(&entry) {
            continue;
        }
        // The first of the list has the git directory that all share.
        let git_dir = if number == 0 {
            project.common_dir().to_owned()
        } else {
            find_tree(project, &entry.path)?.admin_dir().to_owned()
        };
        found.push(UserCheckout { top: entry.path, git_dir });
    }
    Ok(found)
}

/// Judges if a work tree could move from one commit to another.
///
/// # Errors
///
/// If git cannot be run.
pub async fn judge_checkout(
    project: &GitProject,
    checkout: &UserCheckout,
    old: &CommitId,
    new: &CommitId,
) -> Result<Option<CheckoutHold>, GitFault> {
    if let Some(name) = UNDER_WAY.iter().find(|name| checkout.git_dir.join(name).exists()) {
        return Ok(Some(CheckoutHold::UnderWay((*name).to_owned())));
    }
    let lock = checkout.lock_path();
    if fs::symlink_metadata(&lock).is_ok() {
        return Ok(Some(CheckoutHold::Locked(lock)));
    }
    let index = IndexCopy::copy_from(project, &checkout.git_dir.join("index"))?;
    let git = || GitProcess::in_own(project, "look at a work tree").with_tree(&checkout.top, index.path());
    let listed = git().with_args(["ls-files", "-v", "-z"]).run_to_end().await?;
    if listed.code != 0 {
        return Ok(Some(CheckoutHold::Unreadable(listed.stderr)));
    }
    let is_marked = |tag: &u8| *tag == b'S' || tag.is_ascii_lowercase();
    if split_nul(&listed.stdout).any(|line| line.first().is_some_and(is_marked)) {
        return Ok(Some(CheckoutHold::Partial));
    }
    // Its exit code says that files have changed, which is asked next.
    git().with_args(["update-index", "-q", "--refresh"]).run_to_end().await?;
    let flags = ["-z", "--name-only", "--ignore-submodules=dirty"];
    let mut changed = git().with_args(["diff-files"]).with_args(flags).run_well().await?;
    let staged = git().with_args(["diff-index", "--cached"]).with_args(flags);
    changed.extend(staged.with_args([old.as_str(), "--"]).run_well().await?);
    let mut changed: Vec<PathBuf> = split_nul(&changed).map(to_path).collect();
    changed.sort();
    changed.dedup();
    if !changed.is_empty() {
        return Ok(Some(CheckoutHold::Changed(changed)));
    }
    let changes = changed_paths(project, old.as_str(), new.as_str()).await?;
    if let Some(path) = find_obstacle(&checkout.top, &changes) {
        return Ok(Some(CheckoutHold::Untracked(path.display().to_string())));
    }
    find_filter(project, checkout, &changes, index.path(), new).await
}

/// The first file or folder that git does not know in the place of a new file, or of one of its folders. Git itself would take ignored
/// ones for expendable.
fn find_obstacle(top: &Path, changes: &[PathChange]) -> Option<PathBuf> {
    let is_deleted =
        |path: &Path| changes.iter().any(|change| change.path == path && change.mode_after == NO_MODE);
    let mut clear: BTreeSet<&Path> = BTreeSet::new();
    for change in changes.iter().filter(|change| change.mode_before == NO_MODE) {
        for path in change.path.ancestors().filter(|path| !path.as_os_str().is_empty()) {
            if clear.contains(path) {
                break;
            }
            let is_itself = path == change.path;
            let is_in_the_way =
                fs::symlink_metadata(top.join(path)).is_ok_and(|meta| is_itself || !meta.is_dir());
            // A folder of known files that go, or a known file that becomes a folder, makes room.
            let goes = is_deleted(path)
                || changes.iter().any(|change| change.mode_after == NO_MODE && change.path.starts_with(path));
            if is_in_the_way && !goes {
                return Some(path.to_owned());
            }
            if !is_itself {
                clear.insert(path);
            }
        }
    }
    None
}

/// The first file that a filter would have to write, by the attributes before or afterwards.
async fn find_filter(
    project: &GitProject,
    checkout: &UserCheckout,
    changes: &[PathChange],
    before: &Path,
    new: &CommitId,
) -> Result<Option<CheckoutHold>, GitFault> {
    let mut input = Vec::new();
    for change in changes {
        input.extend_from_slice(change.path.as_os_str().as_bytes());
        input.push(0);
    }
    if input.is_empty() {
        return Ok(None);
    }
    let after = IndexCopy::make_empty(project);
    // The new commit may bring the attribute that names the filter.
    let git = GitProcess::in_own(project, "read a tree").with_tree(&checkout.top, after.path());
    git.with_args(["read-tree", new.as_str()]).run_well().await?;
    for index in [before, after.path()] {
        let filtered = filtered_paths(project, &checkout.top, index, input.clone()).await?;
        if let Some((path, filter)) = filtered.into_iter().next() {
            return Ok(Some(CheckoutHold::Filtered { path, filter }));
        }
    }
    Ok(None)
}

/// A work tree that has moved ahead of its branch, with its index still locked.
#[derive(Debug)]
pub struct MovedCheckout {
    checkout: UserCheckout,
    before: IndexCopy,
    old: CommitId,
    new: CommitId,
}

impl UserCheckout {
    fn lock_path(&self) -> PathBuf {
        self.git_dir.join("index.lock")
    }

    /// Locks the index as git does.
    fn lock_index(&self, new: &CommitId) -> io::Result<()> {
        let mut file = File::options().write(true).create_new(true).open(self.lock_path())?;
        file.write_all(format!("{LOCK_MARK}{new}\n").as_bytes())
    }

    /// Unlocks the index, if the lock is one of ours for this commit; returns true if it was.
    ///
    /// # Errors
    ///
    /// If the lock cannot be removed.
    pub fn unlock_index(&self, new: &CommitId) -> Result<bool, GitFault> {
        let path = self.lock_path();
        let mut text = String::new();
        let read = File::open(&path).and_then(|file| file.take(200).read_to_string(&mut text));
        if read.is_err() || text != format!("{LOCK_MARK}{new}\n") {
            return Ok(false);
        }
        fs::remove_file(&path).map_err(|error| GitFault::from_io(path, error))?;
        Ok(true)
    }

    async fn read_tree(
        &self,
        project: &GitProject,
        index: &Path,
        from: &CommitId,
        to: &CommitId,
    ) -> Result<crate::host::GitOutput, GitFault> {
        // Files are synced to the disk, unlike in the autopilot's own work trees, because this is the user's checkout.
        let git = GitProcess::in_own(project, "move a work tree").with_tree(&self.top, index);
        git.with_args(["read-tree", "-m", "-u", from.as_str(), to.as_str()]).run_to_end().await
    }
}

/// Moves a work tree from one commit to another, files and index. The branch has been locked by the caller, who moves it next and calls
/// [`MovedCheckout::finish_move`], or calls [`MovedCheckout::move_back`].
///
/// # Errors
///
/// If git cannot be run. `Ok(Err(_))`: it does not move, and is as it was.
pub async fn move_checkout(
    project: &GitProject,
    checkout: &UserCheckout,
    old: &CommitId,
    new: &CommitId,
) -> Result<Result<MovedCheckout, CheckoutHold>, GitFault> {
    if let Err(error) = checkout.lock_index(new) {
        if error.kind() == io::ErrorKind::AlreadyExists {
            return Ok(Err(CheckoutHold::Locked(checkout.lock_path())));
        }
        return Err(GitFault::from_io(checkout.lock_path(), error));
    }
    let moved = move_locked(project, checkout, old, new).await;
    match &moved {
        Ok(Ok(_)) => {}
        // Git looks at all files before it writes the first: nothing was written.
        Ok(Err(_)) => {
            checkout.unlock_index(new)?;
        }
        // The disk may have become full in the middle. Where it cannot be mended now, the lock stays for the next start.
        Err(_) => {
            mend_checkout(project, checkout, old, new).await?;
        }
    }
    moved
}

async fn move_locked(
    project: &GitProject,
    checkout: &UserCheckout,
    old: &CommitId,
    new: &CommitId,
) -> Result<Result<MovedCheckout, CheckoutHold>, GitFault> {
    let place = checkout.git_dir.join("index");
    let before = IndexCopy::copy_from(project, &place)?;
    let index = IndexCopy::copy_from(project, &place)?;
    let git = GitProcess::in_own(project, "look at a work tree").with_tree(&checkout.top, index.path());
    git.with_args(["update-index", "-q", "--refresh"]).run_to_end().await?;
    let output = checkout.read_tree(project, index.path(), old, new).await?;
    if output.code != 0 {
        // Git looks at all files before it writes the first.
        let said = output.stderr.lines().map(str::trim).collect::<Vec<_>>().join(" ");
        if said.contains("ntracked working tree file") {
            return Ok(Err(CheckoutHold::Untracked(said)));
        }
        let error = GitFault::from_message("move a work tree", output.code, &output.stderr);
        let GitFault::Failed { said, .. } = error else { return Err(error) };
        return Ok(Err(CheckoutHold::Unreadable(said)));
    }
    index.move_to(&place)?;
    let (checkout, old, new) = (checkout.clone(), old.clone(), new.clone());
    Ok(Ok(MovedCheckout { checkout, before, old, new }))
}

impl MovedCheckout {
    /// Unlocks the index: the branch has moved, too.
    ///
    /// # Errors
    ///
    /// If the lock cannot be removed.
    pub fn finish_move(self) -> Result<(), GitFault> {
        self.checkout.unlock_index(&self.new).map(|_| ())
    }

    /// Moves the work tree back: the branch has not moved.
    ///
    /// # Errors
    ///
    /// If it cannot be moved back.
    pub async fn move_back(self, project: &GitProject) -> Result<(), GitFault> {
        let index = IndexCopy::copy_from(project, &self.checkout.git_dir.join("index"))?;
        let output = self.checkout.read_tree(project, index.path(), &self.new, &self.old).await?;
        if output.code != 0 {
            return Err(GitFault::from_message("move a work tree back", output.code, &output.stderr));
        }
        self.before.move_to(&self.checkout.git_dir.join("index"))?;
        self.checkout.unlock_index(&self.new).map(|_| ())
    }
}

/// Mends a work tree in which a process was killed while it moved, with its branch still at the old commit: files with the content
/// of the new commit get that of the old one. Returns the files that have neither, which stay as they are.
///
/// # Errors
///
/// If git cannot be run.
pub async fn mend_checkout(
    project: &GitProject,
    checkout: &UserCheckout,
    old: &CommitId,
    new: &CommitId,
) -> Result<Vec<PathBuf>, GitFault> {
    // The lock is made first and removed last: without it nothing was written, or all was done.
    let lock = File::open(checkout.lock_path());
    let mut text = String::new();
    let is_ours = lock.and_then(|file| file.take(200).read_to_string(&mut text)).is_ok()
        && text == format!("{LOCK_MARK}{new}\n");
    if !is_ours {
        return Ok(Vec::new());
    }
    let changes = changed_paths(project, old.as_str(), new.as_str()).await?;
    let at_new = differing_paths(project, checkout, new).await?.1;
    let (index, at_old) = differing_paths(project, checkout, old).await?;
    let mut others = Vec::new();
    let (mut back, mut extra) = (Vec::new(), Vec::new());
    for change in changes {
        let differs_from_old = at_old.contains(&change.path);
        let is_new = change.mode_before == NO_MODE;
        let is_deleted = change.mode_after == NO_MODE;
        let there = fs::symlink_metadata(checkout.top.join(&change.path)).is_ok();
        if is_new && there && !at_new.contains(&change.path) {
            extra.push(change.path);
        } else if is_new || !differs_from_old {
            // Nothing was written there, or the user's own file is.
        } else if (is_deleted && !there) || (!is_deleted && !at_new.contains(&change.path)) {
            back.push(change.path);
        } else {
            others.push(change.path);
        }
    }
    // Files of the user's own content are in neither list.
    if !back.is_empty() {
        let mut input = Vec::new();
        for path in &back {
            input.extend_from_slice(path.as_os_str().as_bytes());
            input.push(0);
        }
        let git = GitProcess::in_own(project, "mend a work tree").with_tree(&checkout.top, index.path());
        git.with_args(["checkout-index", "-f", "-z", "--stdin"]).with_input(input).run_well().await?;
    }
    let root = crate::project::beneath::open_root(&checkout.top);
    let root = root.map_err(|error| GitFault::from_io(&checkout.top, error))?;
    for path in extra {
        let failed = |error| GitFault::from_io(checkout.top.join(&path), error);
        let parent = crate::project::beneath::open_parent(&root, &path, false).map_err(failed)?;
        let name = path.file_name().map(Path::new).unwrap_or(&path);
        crate::project::beneath::remove_file(&parent, name).map_err(failed)?;
    }
    index.move_to(&checkout.git_dir.join("index"))?;
    checkout.unlock_index(new)?;
    Ok(others)
}

/// An index of a commit, and the paths of files that differ from it.
async fn differing_paths(
    project: &GitProject,
    checkout: &UserCheckout,
    commit: &CommitId,
) -> Result<(IndexCopy, Vec<PathBuf>), GitFault> {
    let index = IndexCopy::make_empty(project);
    let git = || GitProcess::in_own(project, "look at a work tree").with_tree(&checkout.top, index.path());
    git().with_args(["read-tree", commit.as_str()]).run_well().await?;
    git().with_args(["update-index", "-q", "--refresh"]).run_to_end().await?;
    let flags = ["diff-files", "-z", "--name-only", "--ignore-submodules=all"];
    let listed = git().with_args(flags).run_well().await?;
    let paths = split_nul(&listed).map(to_path).collect();
    Ok((index, paths))
}
