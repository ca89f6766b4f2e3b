//! Work trees of the harness: added without a checkout, filled and read by our own git directory.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::commits::{PathChange, changed_paths};
use super::indexes::{self, IndexCopy};
use super::left_locks::is_old;
use super::process::{GitProcess, split_nul, to_line, to_path};
use super::{BranchName, CommitId, GitFault, GitProject, TreeId};

/// The most bytes of a file that git keeps about a work tree.
const POINTER_MAX: u64 = 64 * 1024;
/// The mode of a commit of another repository in a tree.
const GITLINK: &str = "160000";
/// The first words of a file that stands for one of Git LFS.
const LFS_POINTER: &[u8] = b"version https://git-lfs";

/// The state that a work tree is at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TreeHead {
    /// A branch.
    Branch(BranchName),
    /// A commit, without a branch.
    Detached(CommitId),
    /// Another name than ours can be, or nothing that can be read.
    Other(String),
}

/// One work tree of the repository, as git lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeEntry {
    /// Its folder.
    pub path: PathBuf,
    /// Its state.
    pub head: TreeHead,
    /// Its commit. `None`: its branch has none.
    pub commit: Option<CommitId>,
    /// The reason why it is locked, which is how those of the harness are known.
    pub locked: Option<String>,
    /// True if its folder is there.
    pub is_there: bool,
}

/// A work tree of the harness that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PilotTree {
    /// Its folder.
    pub path: PathBuf,
    /// Git's own folder about it.
    admin: PathBuf,
}

impl PilotTree {
    /// Returns git's own folder about it, in which its index lies.
    pub fn admin_dir(&self) -> &Path {
        &self.admin
    }

    /// Returns true if it was filled to the end: the index is written last.
    pub fn is_filled(&self) -> bool {
        self.admin.join("index").is_file()
    }

    /// Removes the lock that a killed git has left on the index, if it is older than any git of ours can be.
    ///
    /// # Errors
    ///
    /// If it cannot be removed.
    pub fn remove_old_lock(&self) -> Result<bool, GitFault> {
        let path = self.admin.join("index.lock");
        let made_at = fs::symlink_metadata(&path).and_then(|meta| meta.modified()).ok();
        if !made_at.is_some_and(is_old) {
            return Ok(false);
        }
        fs::remove_file(&path).map_err(|error| GitFault::from_io(path, error))?;
        Ok(true)
    }
}

/// Lists the work trees of the repository, the user's among them.
///
/// # Errors
///
/// If git cannot be run.
pub async fn list_trees(project: &GitProject) -> Result<Vec<TreeEntry>, GitFault> {
    let git = GitProcess::in_repository(project, "list the work trees");
    let held = project.hold_trees().await;
    let listed = git.with_args(["worktree", "list", "--porcelain", "-z"]).run_well().await?;
    drop(held);
    let (mut trees, mut names_top): (Vec<TreeEntry>, bool) = (Vec::new(), false);
    for line in split_nul(&listed) {
        let text = String::from_utf8_lossy(line);
        let (key, value) = text.split_once(' ').unwrap_or((&text, ""));
        if key == "worktree" {
            let path = to_path(line.get(9..).unwrap_or_default());
            names_top |= path == project.top_dir();
            let is_there = path.join(".git").exists();
            let head = TreeHead::Other(String::new());
            trees.push(TreeEntry { path, head, commit: None, locked: None, is_there });
            continue;
        }
        let Some(tree) = trees.last_mut() else { continue };
        match key {
            "HEAD" => tree.commit = CommitId::parse_id(value).ok().filter(|id| !is_zero(id)),
            "branch" => {
                let name = value.strip_prefix("refs/heads/").map(BranchName::parse_name);
                tree.head = match name {
                    Some(Ok(name)) => TreeHead::Branch(name),
                    Some(Err(_)) | None => TreeHead::Other(value.to_owned()),
                };
            }
            "detached" => {
                if let Some(commit) = tree.commit.clone() {
                    tree.head = TreeHead::Detached(commit);
                }
            }
            "locked" => tree.locked = Some(value.to_owned()),
            _ => {}
        }
    }
    // In a submodule git names the folder of its objects in place of its work tree.
    if let Some(main) = trees.first_mut().filter(|main| !main.is_there && !names_top) {
        main.path = project.top_dir().to_owned();
        main.is_there = true;
    }
    Ok(trees)
}

fn is_zero(id: &CommitId) -> bool {
    id.as_str().bytes().all(|byte| byte == b'0')
}

/// Registers a work tree at a path, with a lock that has `why` as its reason, and fills it. A branch must exist.
///
/// # Errors
///
/// If git refuses, for example since another work tree has the branch, or if the files cannot be written. Then nothing of it stays.
pub async fn add_tree(
    project: &GitProject,
    path: &Path,
    head: &TreeHead,
    commit: &CommitId,
    why: &str,
) -> Result<PilotTree, GitFault> {
    let mut args: Vec<std::ffi::OsString> =
        ["worktree", "add", "--quiet", "--no-checkout", "--lock", "--reason", why].map(Into::into).into();
    let at = match head {
        TreeHead::Branch(name) => name.as_str(),
        TreeHead::Detached(commit) => {
            args.push("--detach".into());
            commit.as_str()
        }
        TreeHead::Other(name) => {
            return Err(GitFault::BadName { name: name.clone(), why: "it is no branch" });
        }
    };
    args.extend(["--".into(), path.into(), at.into()]);
    let held = project.hold_trees().await;
    GitProcess::in_repository(project, "add a work tree").with_args(args).run_well().await?;
    // Files are written beside one another.
    drop(held);
    let tree = find_tree(project, path)?;
    let filled = fill_tree(project, &tree, commit).await;
    if filled.is_err() {
        // The reason counts, not what follows from it.
        let _ = crate::project::copy::remove_tree(path);
        let _ = forget_tree(project, path).await;
    }
    filled.map(|()| tree)
}

/// Finds what git knows of the work tree at a path. Nothing in the work tree is trusted for it.
///
/// # Errors
///
/// If git knows none.
pub fn find_tree(project: &GitProject, path: &Path) -> Result<PilotTree, GitFault> {
    find_tree_in(project.common_dir(), path)
}

/// Returns true if a folder is a work tree of the repository of another one, as the repository itself says. Both must be canonical.
/// Nothing in the folder is trusted for it, no git is run, and no lock is taken.
pub fn is_tree_of(top: &Path, folder: &Path) -> bool {
    let dot = top.join(".git");
    let common = if dot.is_dir() { Some(dot) } else { read_common(&dot) };
    common.is_some_and(|common| find_tree_in(&common, folder).is_ok())
}

/// Reads where the repository of a work tree is whose `.git` is a file.
fn read_common(dot: &Path) -> Option<PathBuf> {
    let admin = dot.parent()?.join(read_pointer(dot, b"gitdir: ")?);
    Some(admin.join(read_pointer(&admin.join("commondir"), b"")?))
}

fn read_pointer(file: &Path, prefix: &[u8]) -> Option<PathBuf> {
    use std::io::Read as _;
    let mut text = Vec::new();
    fs::File::open(file).ok()?.take(POINTER_MAX).read_to_end(&mut text).ok()?;
    let path = text.strip_prefix(prefix)?;
    Some(to_path(path.strip_suffix(b"\n").unwrap_or(path)))
}

fn find_tree_in(common: &Path, path: &Path) -> Result<PilotTree, GitFault> {
    use std::io::Read as _;
    let folder = common.join("worktrees");
    let failed = |error: io::Error| GitFault::from_io(&folder, error);
    for entry in fs::read_dir(&folder).map_err(failed)? {
        let admin = entry.map_err(failed)?.path();
        let mut text = Vec::new();
        let Ok(file) = fs::File::open(admin.join("gitdir")) else { continue };
        if file.take(POINTER_MAX).read_to_end(&mut text).is_err() {
            continue;
        }
        let dot = admin.join(to_path(text.strip_suffix(b"\n").unwrap_or(&text)));
        if dot.parent() == Some(path) {
            return Ok(PilotTree { path: path.to_owned(), admin });
        }
    }
    Err(GitFault::Creation { path: path.to_owned(), why: "git does not know it as a work tree".into() })
}

/// Writes the files of a commit into a work tree that is empty, or holds files of an earlier commit.
///
/// # Errors
///
/// If they cannot be written.
pub async fn fill_tree(project: &GitProject, tree: &PilotTree, commit: &CommitId) -> Result<(), GitFault> {
    // A copy: a lock that a killed git has left beside the index is in no way.
    let index = IndexCopy::make_empty(project);
    let git = GitProcess::in_own(project, "fill a work tree").with_tree(&tree.path, index.path());
    // Files of a work tree can be made again: only what is committed must reach the disk.
    let git = git.with_setting("core.fsync=none");
    git.with_args(["read-tree", "--reset", "-u", commit.as_str()]).run_well().await?;
    index.move_to(&tree.admin.join("index"))
}

/// Writes the files of a tree in the place of those of a commit, which the work tree has without a change. The index follows; the branch
/// does not.
///
/// # Errors
///
/// If a file was changed, or they cannot be written.
pub async fn move_tree(
    project: &GitProject,
    tree: &PilotTree,
    from: &CommitId,
    to: &TreeId,
) -> Result<(), GitFault> {
    let index = IndexCopy::copy_from(project, &tree.admin.join("index"))?;
    let git = GitProcess::in_own(project, "move a work tree").with_tree(&tree.path, index.path());
    git.with_args(["read-tree", "-m", "-u", from.as_str(), to.as_str()]).run_well().await?;
    index.move_to(&tree.admin.join("index"))
}

/// Everything in a work tree, as a tree object, and the index for it.
#[derive(Debug)]
pub struct TreeSnapshot {
    /// The tree.
    pub tree: TreeId,
    /// The paths that differ from the commit that it is compared with.
    pub changes: Vec<PathChange>,
    index: IndexCopy,
}

/// Stores the state of a work tree, new files too, ignored ones not. Its programs have ended before: what changes meanwhile may be in it
/// or not.
///
/// # Errors
///
/// [`GitFault::NestedRepository`] and [`GitFault::LargeFile`] where the tree would not hold what the folder holds; otherwise if the
/// objects cannot be written. The index of the work tree stays as it was.
pub async fn store_tree(
    project: &GitProject,
    tree: &PilotTree,
    base: &CommitId,
) -> Result<TreeSnapshot, GitFault> {
    // With what git knows of the files, so that only those are read that have changed.
    let index = IndexCopy::copy_from(project, &tree.admin.join("index"))?;
    let git = |doing| GitProcess::in_own(project, doing).with_tree(&tree.path, index.path());
    let added = git("read the work tree").with_args(["add", "--all", "--", "."]).run_to_end().await?;
    if added.code != 0 {
        return Err(nested_in(&added.stderr)
            .unwrap_or_else(|| GitFault::from_message("read the work tree", added.code, &added.stderr)));
    }
    let written = git("write a tree").with_args(["write-tree"]).run_well().await?;
    let stored = TreeId::parse_id(&to_line(&written))?;
    let changes = changed_paths(project, base.as_str(), stored.as_str()).await?;
    // Git adds a repository with commits as a reference to one of them, and warns at most.
    let nested = changes.iter().find(|change| change.mode_after == GITLINK && change.mode_before != GITLINK);
    if let Some(nested) = nested {
        return Err(GitFault::NestedRepository { path: nested.path.clone() });
    }
    refuse_large(project, tree, index.path(), &changes).await?;
    Ok(TreeSnapshot { tree: stored, changes, index })
}

/// The repository in the work tree that has no commit, which git refuses to add.
fn nested_in(said: &str) -> Option<GitFault> {
    let (_, after) = said.split_once("error: '")?;
    let (path, rest) = after.split_once('\'')?;
    rest.starts_with(" does not have a commit checked out")
        .then(|| GitFault::NestedRepository { path: path.trim_end_matches('/').into() })
}

/// Refuses content in the place of a pointer of Git LFS: without its filter it would be in the history.
async fn refuse_large(
    project: &GitProject,
    tree: &PilotTree,
    index: &Path,
    changes: &[PathChange],
) -> Result<(), GitFault> {
    let mut input = Vec::new();
    for change in changes.iter().filter(|change| change.mode_after.starts_with("100")) {
        input.extend_from_slice(std::os::unix::ffi::OsStrExt::as_bytes(change.path.as_os_str()));
        input.push(0);
    }
    if input.is_empty() {
        return Ok(());
    }
    let filtered = indexes::filtered_paths(project, &tree.path, index, input).await?;
    for change in changes.iter().filter(|change| filtered.get(&change.path).is_some_and(|name| name == "lfs"))
    {
        let git = GitProcess::in_own(project, "read a file");
        let read = git.with_args(["cat-file", "blob", &change.content_after]).run_to_end().await?;
        // One that is too large to be read is no pointer either.
        if read.code != 0 || !read.stdout.starts_with(LFS_POINTER) {
            return Err(GitFault::LargeFile { path: change.path.clone() });
        }
    }
    Ok(())
}

/// Makes the index of a snapshot that of its work tree, after its branch has moved to it.
///
/// # Errors
///
/// If it cannot be put there; git sees changes then, and the next commit makes it anew.
pub fn renew_index(tree: &PilotTree, snapshot: TreeSnapshot) -> Result<(), GitFault> {
    snapshot.index.move_to(&tree.admin.join("index"))
}

/// Makes git forget the work tree at a path that has no folder any longer, and no other.
///
/// # Errors
///
/// If git refuses.
pub async fn forget_tree(project: &GitProject, path: &Path) -> Result<(), GitFault> {
    if path.exists() {
        return Err(GitFault::Creation { path: path.to_owned(), why: "it is still there".into() });
    }
    let mut args: Vec<std::ffi::OsString> =
        ["worktree", "remove", "--force", "--force", "--"].map(Into::into).into();
    args.push(path.into());
    let _held = project.hold_trees().await;
    GitProcess::in_repository(project, "forget a work tree").with_args(args).run_well().await?;
    Ok(())
}
