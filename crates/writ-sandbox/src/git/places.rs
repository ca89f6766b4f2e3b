//! The folder of workspaces: paths are resolved name by name, and opened by handle without following links.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::stat::{Mode, mkdirat};

use super::GitFault;
use super::error::is_full;
use crate::project::{beneath, copy};

/// The most links that one path may have, as in the kernel.
pub const LINKS_MAX: usize = 40;
/// Lies in the folder of workspaces and hides it, itself too, from the user's `git status`.
const IGNORE_ALL: &str = "*\n";

/// A folder for one workspace, which is there and lies where its path says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkspaceFolder {
    /// Its canonical path.
    pub path: PathBuf,
    /// True if it was made now.
    pub created: bool,
}

/// The folder that holds workspaces.
#[derive(Clone, Debug)]
pub struct WorkspaceRoot {
    path: PathBuf,
}

impl WorkspaceRoot {
    /// Opens the folder below a project's top, and makes it if it is not there.
    ///
    /// # Errors
    ///
    /// If its path leads out of the project, or it cannot be made.
    pub fn open_root(top: &Path, below: &str) -> Result<Self, GitFault> {
        let names = beneath::split_path(below).ok().filter(|names| !names.is_empty());
        let failed = |why: &str| GitFault::Creation { path: top.join(below), why: why.to_owned() };
        names.ok_or_else(|| failed("it is no path below the project"))?;
        let path = resolve_within(top, Path::new(below))?;
        make_below(top, &path).map_err(|error| failed(&error.to_string()))?;
        let ignore = path.join(".gitignore");
        if fs::symlink_metadata(&ignore).is_err() {
            fs::write(&ignore, IGNORE_ALL).map_err(|error| GitFault::from_io(ignore, error))?;
        }
        Ok(Self { path })
    }

    /// Returns its canonical path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the canonical path of a workspace, whether it is there or not.
    ///
    /// # Errors
    ///
    /// If the name is none, or a link leads out.
    pub fn resolve_name(&self, name: &str) -> Result<PathBuf, GitFault> {
        check_name(name)?;
        resolve_within(&self.path, Path::new(name))
    }

    /// Finds or makes the folder of a workspace. A plain file in its place is removed; what lies in a folder stays.
    ///
    /// # Errors
    ///
    /// If the name is none, a link leads out, or the folder cannot be made.
    pub fn ensure_folder(&self, name: &str) -> Result<WorkspaceFolder, GitFault> {
        let path = self.resolve_name(name)?;
        let failed = |error: io::Error| {
            if is_full(&error) {
                return GitFault::from_io(&path, error);
            }
            GitFault::Creation { path: path.clone(), why: error.to_string() }
        };
        let meta = fs::symlink_metadata(&path);
        if meta.as_ref().is_ok_and(fs::Metadata::is_dir) {
            make_below(&self.path, &path).map_err(failed)?;
            return Ok(WorkspaceFolder { path, created: false });
        }
        if meta.is_ok() {
            let below = path.strip_prefix(&self.path).unwrap_or(&path);
            let root = beneath::open_root(&self.path).map_err(failed)?;
            let parent = beneath::open_parent(&root, below, false).map_err(failed)?;
            let file = below.file_name().map(Path::new).unwrap_or(below);
            beneath::remove_file(&parent, file).map_err(failed)?;
        }
        make_below(&self.path, &path).map_err(failed)?;
        Ok(WorkspaceFolder { path, created: true })
    }

    /// Removes the folder of a workspace with everything in it, following no link.
    ///
    /// # Errors
    ///
    /// If it is not below this folder, or cannot be removed.
    pub fn remove_folder(&self, path: &Path) -> Result<(), GitFault> {
        let is_below = path.parent() == Some(&self.path) && path.file_name().is_some();
        if !is_below {
            return Err(GitFault::SymlinkEscape { path: path.to_owned(), root: self.path.clone() });
        }
        copy::remove_tree(path).map_err(|error| GitFault::from_io(path, error))
    }
}

/// Opens a plain file below a project's top for reading. A link is not followed, wherever on the path it is.
///
/// # Errors
///
/// If there is no plain file, or it cannot be opened.
pub fn read_below(top: &Path, below: &str) -> io::Result<fs::File> {
    open_plain((top, below), OFlag::O_RDONLY, Mode::empty())
}

/// Opens a plain file below a project's top for reading and for writing at its end, and makes it, for its owner alone, if it is not
/// there. A link is not followed, wherever on the path it is.
///
/// # Errors
///
/// If something else is in its place, or it cannot be opened.
pub fn append_below(top: &Path, below: &str) -> io::Result<fs::File> {
    let flags = OFlag::O_RDWR | OFlag::O_APPEND | OFlag::O_CREAT;
    open_plain((top, below), flags, Mode::S_IRUSR | Mode::S_IWUSR)
}

/// Returns true if there is a folder below a project's top, and false if nothing is there.
///
/// # Errors
///
/// If a link or something else is in the place of one of the folders, or it cannot be opened.
pub fn has_folder_below(top: &Path, below: &str) -> io::Result<bool> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY;
    match beneath::open_at(beneath::open_root(top)?, Path::new(below), flags, Mode::empty()) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

fn open_plain((top, below): (&Path, &str), flags: OFlag, mode: Mode) -> io::Result<fs::File> {
    let file = fs::File::from(beneath::open_at(beneath::open_root(top)?, Path::new(below), flags, mode)?);
    // Neither a folder nor a pipe.
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("it is no plain file")) }
}

/// Checks a workspace's name: letters, digits, `.`, `_` and `-`, and not `.` or `..`.
fn check_name(name: &str) -> Result<(), GitFault> {
    let bad = |why| Err(GitFault::BadName { name: name.chars().take(100).collect(), why });
    if name.is_empty() || name.len() > super::names::BRANCH_BYTES_MAX {
        return bad("it is empty or too long");
    }
    if matches!(name, "." | ".." | ".gitignore") {
        return bad("it names another folder");
    }
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if name.bytes().all(plain) { Ok(()) } else { bad("it holds a character that no folder of ours has") }
}

/// Resolves a path below a folder, name by name: a link is followed by beginning anew at its target, a name that is not there ends
/// the looking, any other error ends it all. The result lies below the folder.
fn resolve_within(root: &Path, below: &Path) -> Result<PathBuf, GitFault> {
    let whole = root.join(below);
    let failed = |path: &Path, error: &io::Error| GitFault::Creation {
        path: path.to_owned(),
        why: format!("its path cannot be followed: {error}"),
    };
    let root = root.canonicalize().map_err(|error| failed(root, &error))?;
    let mut rest: VecDeque<OsString> = names_of(&root.join(below)).into();
    let (mut path, mut links, mut is_there) = (PathBuf::from("/"), 0, true);
    while let Some(name) = rest.pop_front() {
        if name == ".." {
            // Above a name that is not there, nothing says where it leads.
            if !is_there {
                return Err(failed(&whole, &io::ErrorKind::NotFound.into()));
            }
            path.pop();
            continue;
        }
        path.push(&name);
        if !is_there {
            continue;
        }
        match fs::symlink_metadata(&path) {
            Ok(meta) if meta.is_symlink() => {
                links += 1;
                if links > LINKS_MAX {
                    return Err(failed(&whole, &io::Error::from(Errno::ELOOP)));
                }
                let target = fs::read_link(&path).map_err(|error| failed(&path, &error))?;
                path.pop();
                let target = path.join(target);
                rest = names_of(&target).into_iter().chain(rest).collect();
                path = PathBuf::from("/");
            }
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => is_there = false,
            Err(error) => return Err(failed(&path, &error)),
        }
    }
    // By whole names: `/root-evil` does not lie in `/root`.
    if path.starts_with(&root) && path != root {
        return Ok(path);
    }
    Err(GitFault::SymlinkEscape { path: whole, root })
}

/// The names of an absolute path, without `.`.
fn names_of(path: &Path) -> Vec<OsString> {
    path.components()
        .filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir))
        .map(|part| part.as_os_str().to_owned())
        .collect()
}

/// Opens a canonical path below a folder by handle, and makes what is missing of it. A link that was put there since is an error.
fn make_below(root: &Path, path: &Path) -> io::Result<OwnedFd> {
    let root = root.canonicalize()?;
    let below = path.strip_prefix(&root).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    let handle = beneath::open_root(&root)?;
    let parent = beneath::open_parent(&handle, below, true)?;
    // Made and opened by handle: a link that was put there since the path was resolved is not followed.
    let name = below.file_name().map(Path::new).ok_or(io::ErrorKind::InvalidInput)?;
    match mkdirat(&parent, name, Mode::from_bits_truncate(0o755)) {
        Ok(()) | Err(Errno::EEXIST) => {}
        Err(error) => return Err(error.into()),
    }
    beneath::open_at(&parent, name, OFlag::O_RDONLY | OFlag::O_DIRECTORY, Mode::empty())
}

#[cfg(test)]
mod tests;
