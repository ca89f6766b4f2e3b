//! The owner's git directory, where a project's `.git` is a file or lies above the project.
//!
//! It is found from the host's own files, never from what a program in the sandbox wrote, and only if it names this work tree
//! in turn: a `.git` file that came with a download could name any folder. Inside it is the lower layer of an overlay.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use super::{beneath, private};
use crate::inside;

pub(crate) mod index;
pub(crate) mod layer;
pub(crate) mod settings;
pub(crate) mod variables;

#[cfg(test)]
mod tests;

/// The most folders above a project that are searched for `.git`.
const ABOVE_MAX: usize = 32;
/// The largest file with one path in it that is read (`.git`, `gitdir`, `commondir`, `HEAD`), in bytes: twice the longest path.
const POINTER_MAX: u64 = 8 * 1024;
/// The largest `.gitattributes` that is read, in bytes.
const ATTRIBUTES_MAX: u64 = 256 * 1024;
/// The name that git looks for in a work tree.
const DOT_GIT: &str = ".git";

/// A git directory that a project uses and does not contain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Repository {
    /// The root of the work tree, canonical: the project, or a folder above it.
    pub(crate) top: PathBuf,
    /// The project's path below `top`; empty if they are the same.
    pub(crate) below: PathBuf,
    /// The folder with `objects` and `refs`, canonical.
    pub(crate) common: PathBuf,
    /// The folder with this work tree's `HEAD` and `index`, below `common`; empty if it is the same.
    pub(crate) private: PathBuf,
    /// Where programs inside find `common`: the path to which the work tree's `.git` leads.
    pub(crate) at: PathBuf,
}

/// What is searched, and what may be shown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Search<'a> {
    /// The project's canonical path.
    pub(crate) project: &'a Path,
    /// The owner's home, whose private parts are never shown.
    pub(crate) home: Option<&'a Path>,
    /// The session's folder.
    pub(crate) data: &'a Path,
    /// Folders that the owner's configuration shows inside anyway.
    pub(crate) listed: &'a [PathBuf],
    /// The user of the engine.
    pub(crate) user: u32,
}

/// Why a git directory is not shown inside.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("{path} is no file of the form 'gitdir: PATH' with at most {POINTER_MAX} bytes")]
    Pointer { path: PathBuf },
    #[error("{path} is a symbolic link or a special file")]
    Kind { path: PathBuf },
    #[error("{path} is no git directory: HEAD, objects or refs is missing")]
    NotGit { path: PathBuf },
    #[error(
        "{dir} does not name {top} as its work tree; if it is yours, run `git config core.worktree {top}` there, or list it in \
         `sandbox.read_only`"
    )]
    NoWayBack { dir: PathBuf, top: PathBuf },
    #[error("{path} belongs to another user")]
    Foreign { path: PathBuf },
    #[error("{path} holds or lies in a home, credentials, parts of the system or Writ's own data")]
    Private { path: PathBuf },
    #[error("{path} holds the project itself; a git directory beside the project can be used")]
    Around { path: PathBuf },
    #[error(
        "the way to {path} leads through the project, whose links a program can change; name the git directory itself"
    )]
    Within { path: PathBuf },
    #[error("the sandbox has folders of its own at {path}")]
    Taken { path: PathBuf },
    #[error("{path} cannot be read: {source}")]
    Io { path: PathBuf, source: io::Error },
}

impl Search<'_> {
    /// Finds the git directory of the project as git does, upward on the same file system. `None`: there is none, or it lies
    /// in the project and is seen inside with it.
    ///
    /// # Errors
    ///
    /// If there is one and it may not be shown.
    pub(crate) fn find(&self) -> Result<Option<Repository>, Refusal> {
        let device = device(self.project)?;
        for top in self.project.ancestors().take(ABOVE_MAX) {
            if device != self::device(top)? {
                return Ok(None);
            }
            let dot = top.join(DOT_GIT);
            let Ok(meta) = fs::symlink_metadata(&dot) else { continue };
            let found = if meta.is_dir() {
                // Like git, ignores a folder of this name that is not a git directory.
                if !is_git(&dot, &dot) {
                    continue;
                }
                self.at_top(top, &dot)
            } else if meta.is_file() {
                self.by_pointer(top, &dot)?
            } else {
                return Err(Refusal::Kind { path: dot });
            };
            if found.common.starts_with(self.project) {
                return Ok(None);
            }
            self.judge(&found)?;
            return Ok(Some(found));
        }
        Ok(None)
    }

    /// The repository whose work tree has its git directory in it, above the project.
    fn at_top(&self, top: &Path, dot: &Path) -> Repository {
        Repository {
            top: top.to_owned(),
            below: self.below(top),
            common: dot.to_owned(),
            private: PathBuf::new(),
            at: dot.to_owned(),
        }
    }

    fn below(&self, top: &Path) -> PathBuf {
        self.project.strip_prefix(top).map(Path::to_owned).unwrap_or_default()
    }

    /// The repository that a `.git` file names, if it names the file's folder in turn.
    fn by_pointer(&self, top: &Path, dot: &Path) -> Result<Repository, Refusal> {
        let wrong = || Refusal::Pointer { path: dot.to_owned() };
        let text = small(top, DOT_GIT, POINTER_MAX)?.ok_or_else(wrong)?;
        let named = text.strip_prefix(b"gitdir: ").and_then(one_path).ok_or_else(wrong)?;
        let spelled = plain(&top.join(named));
        let not_git = || Refusal::NotGit { path: spelled.clone() };
        let dir = spelled.canonicalize().map_err(|_| not_git())?;
        let Some(text) = small(&dir, "commondir", POINTER_MAX)? else {
            if !is_git(&dir, &dir) {
                return Err(not_git());
            }
            if !self.is_listed(&dir) && !names_work_tree(&dir, top)? {
                return Err(Refusal::NoWayBack { dir, top: top.to_owned() });
            }
            let (top, below) = (top.to_owned(), self.below(top));
            return Ok(Repository { top, below, common: dir, private: PathBuf::new(), at: spelled });
        };
        let common = one_path(&text).and_then(|path| dir.join(path).canonicalize().ok());
        let common = common.filter(|common| is_git(&dir, common)).ok_or_else(not_git)?;
        // A linked work tree's own folder is `worktrees/NAME`, in any spelling of the path to it.
        let private = dir.strip_prefix(&common).map_err(|_| not_git())?.to_owned();
        let at = above_worktrees(&spelled).filter(|_| above_worktrees(&dir) == Some(&*common));
        let at = at.ok_or_else(not_git)?.to_owned();
        if !is_linked_to(&dir, top)? {
            return Err(Refusal::NoWayBack { dir, top: top.to_owned() });
        }
        Ok(Repository { top: top.to_owned(), below: self.below(top), common, private, at })
    }

    /// True if the owner's configuration shows this folder inside anyway.
    fn is_listed(&self, dir: &Path) -> bool {
        self.listed.iter().filter_map(|path| path.canonicalize().ok()).any(|path| dir.starts_with(path))
    }

    /// Refuses what may not be shown, under each of its names.
    fn judge(&self, found: &Repository) -> Result<(), Refusal> {
        let common = &found.common;
        let private = [common, &found.top].iter().any(|path| !private::may_be_shown(path, self.home));
        if private || self.data.starts_with(common) || common.starts_with(self.data) {
            return Err(Refusal::Private { path: common.clone() });
        }
        if self.project.starts_with(common) || self.project.starts_with(&found.at) {
            return Err(Refusal::Around { path: common.clone() });
        }
        if found.at.starts_with(self.project) {
            return Err(Refusal::Within { path: found.at.clone() });
        }
        for path in [&found.top.join(DOT_GIT), common, &common.join(&found.private)] {
            let meta = fs::symlink_metadata(path);
            let meta = meta.map_err(|source| Refusal::Io { path: path.clone(), source })?;
            if meta.uid() != self.user {
                return Err(Refusal::Foreign { path: path.clone() });
            }
        }
        // Git stores absolute paths: both must be seen where they are outside.
        match (inside::own_path(self.project), inside::own_path(&found.at)) {
            (Some(_), Some(_)) => Ok(()),
            (None, _) | (_, None) => Err(Refusal::Taken { path: found.at.clone() }),
        }
    }
}

/// True if a folder's `.gitattributes` gives files to Git LFS.
pub(crate) fn uses_lfs(folder: &Path) -> bool {
    let text = small(folder, ".gitattributes", ATTRIBUTES_MAX).ok().flatten().unwrap_or_default();
    String::from_utf8_lossy(&text).split_ascii_whitespace().any(|word| word == "filter=lfs")
}

fn device(path: &Path) -> Result<u64, Refusal> {
    let meta = fs::metadata(path).map_err(|source| Refusal::Io { path: path.to_owned(), source })?;
    Ok(meta.dev())
}

/// True if git would take a folder for a git directory whose objects lie in another.
fn is_git(dir: &Path, common: &Path) -> bool {
    let is_folder = |name: &str| fs::symlink_metadata(common.join(name)).is_ok_and(|meta| meta.is_dir());
    let head = small(dir, "HEAD", POINTER_MAX).ok().flatten().unwrap_or_default();
    let head = head.trim_ascii();
    let is_id = matches!(head.len(), 40 | 64) && head.iter().all(u8::is_ascii_hexdigit);
    (is_id || head.starts_with(b"ref: refs/")) && is_folder("objects") && is_folder("refs")
}

/// True if the folder of a linked work tree says that it belongs to this one.
fn is_linked_to(dir: &Path, top: &Path) -> Result<bool, Refusal> {
    let text = small(dir, "gitdir", POINTER_MAX)?.unwrap_or_default();
    let Some(dot) = one_path(&text).map(|path| dir.join(path)) else { return Ok(false) };
    let is_dot = dot.file_name() == Some(OsStr::new(DOT_GIT));
    Ok(is_dot && dot.parent().is_some_and(|folder| is_at(folder, top)))
}

/// True if a git directory's configuration says that its work tree is this one, as that of a submodule does.
fn names_work_tree(dir: &Path, top: &Path) -> Result<bool, Refusal> {
    let mut named = None;
    for name in ["config", "config.worktree"] {
        let text = small(dir, name, settings::BYTES_MAX)?.unwrap_or_default();
        named = settings::last_value(&text, "core", "worktree").or(named);
    }
    Ok(named.is_some_and(|path| is_at(&dir.join(OsStr::from_bytes(&path)), top)))
}

fn is_at(path: &Path, top: &Path) -> bool {
    path.canonicalize().is_ok_and(|path| path == top)
}

/// The folder of a repository above that of one of its linked work trees.
fn above_worktrees(dir: &Path) -> Option<&Path> {
    let worktrees = dir.parent()?;
    (worktrees.file_name()? == "worktrees").then(|| worktrees.parent())?
}

/// The path in a file that holds one, without its line end.
fn one_path(text: &[u8]) -> Option<&Path> {
    let end = text.iter().rposition(|byte| !matches!(byte, b'\n' | b'\r')).map_or(0, |last| last + 1);
    let path = text.get(..end)?;
    let is_one = !path.is_empty() && !path.iter().any(|byte| matches!(byte, 0 | b'\n' | b'\r'));
    is_one.then(|| Path::new(OsStr::from_bytes(path)))
}

/// A path without `.` and `..`, as names alone say it.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                plain.pop();
            }
            Component::Prefix(_) | Component::RootDir | Component::Normal(_) => plain.push(part),
        }
    }
    plain
}

/// Reads a regular file of at most `max` bytes. `None`: it is not there.
fn small(folder: &Path, name: &str, max: u64) -> Result<Option<Vec<u8>>, Refusal> {
    let path = folder.join(name);
    let failed = |source| Refusal::Io { path: path.clone(), source };
    let root = match beneath::open_root(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => return Ok(None),
        other => other.map_err(failed)?,
    };
    let Some(file) = beneath::read_at(&root, Path::new(name)).map_err(failed)? else { return Ok(None) };
    if !file.metadata().map_err(failed)?.is_file() {
        return Err(Refusal::Kind { path });
    }
    match beneath::read_content(file, max).map_err(failed)? {
        Ok(bytes) => Ok(Some(bytes)),
        Err(_) => Err(Refusal::Pointer { path }),
    }
}
