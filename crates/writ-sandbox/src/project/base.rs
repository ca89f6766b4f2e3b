//! The base of a session's diff: the project under the overlay, or the record of the files that were copied.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use nix::fcntl::{OFlag, readlinkat};
use nix::sys::stat::{Mode, SFlag};
use writ_types::digest::Digest;

use super::beneath::{self, DEPTH_MAX};
use super::copy::{self, Base};
use super::view::{Layout, View};
use crate::name;

/// The most files that are listed for one deleted folder.
pub(super) const BELOW_MAX: usize = 10_000;

/// The base of the comparison with the session's files.
pub(crate) enum Comparison {
    /// The project itself, as it is now.
    Project(OwnedFd),
    /// The record of a copy, and the project, which has the contents and the links.
    Record { base: Base, project: Option<OwnedFd> },
}

/// The kind of the entry at a path, with its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ProjectEntry {
    Nothing,
    File(ProjectFile),
    Folder,
    Link(PathBuf),
    Other,
}

/// A file at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProjectFile {
    pub(crate) digest: Digest,
    pub(crate) executable: bool,
    changed: Option<SystemTime>,
}

impl ProjectFile {
    /// Returns true if the project's file was changed after `taken`, the session's copy of it, was made. File
    /// systems round times to a few milliseconds: a change at the same time counts, so that no change of the
    /// owner is overwritten.
    pub(crate) fn changed_since(&self, taken: &File) -> bool {
        match (self.changed, beneath::made_at(taken)) {
            (Some(changed), Some(made)) => changed >= made,
            (None, _) | (_, None) => false,
        }
    }
}

/// The files at and below a path of the project.
#[derive(Debug, Default)]
pub(crate) struct FilesBelow {
    pub(crate) files: Vec<(PathBuf, ProjectEntry)>,
    /// Files and folders that were not looked at, because there are too many or they are too deep.
    pub(crate) left_out: Vec<PathBuf>,
}

impl Comparison {
    /// Opens the base of a workspace.
    pub(crate) fn open_base(view: &View) -> io::Result<Self> {
        let project = view.project.as_deref().map(beneath::open_root).transpose()?;
        match (view.layout, project) {
            (Layout::Overlay, Some(project)) => Ok(Self::Project(project)),
            (_, project) => Ok(Self::Record { base: Base::read_record(&view.dir)?, project }),
        }
    }

    /// Returns true if deletions are marked in the upper directory of an overlay.
    pub(crate) const fn is_overlay(&self) -> bool {
        matches!(self, Self::Project(_))
    }

    /// Returns the entry at a path; [`ProjectEntry::Other`] if it cannot be read.
    pub(crate) fn find_entry(&self, path: &Path) -> ProjectEntry {
        match self {
            Self::Project(root) => find_in(root, path).unwrap_or(ProjectEntry::Other),
            Self::Record { base, .. } => {
                // The record is JSON, so a name that is not UTF-8 is not in it.
                let Some(path) = path.to_str() else { return ProjectEntry::Nothing };
                match base.files.get(path) {
                    Some(file) => ProjectEntry::File(ProjectFile {
                        digest: file.digest,
                        executable: file.executable,
                        changed: None,
                    }),
                    None => self.link_or_folder(path),
                }
            }
        }
    }

    /// Returns the link or folder at a path. The record has files only, so a link is looked up in the project, and a
    /// folder is a prefix of a recorded path.
    fn link_or_folder(&self, path: &str) -> ProjectEntry {
        let Self::Record { base, project } = self else { return ProjectEntry::Nothing };
        // With the slash, so that `src` is not found in `src2`.
        let below = format!("{path}/");
        if base.files.range(below.clone()..).next().is_some_and(|(found, _)| found.starts_with(&below)) {
            return ProjectEntry::Folder;
        }
        match project.as_ref().map(|root| find_in(root, Path::new(path))) {
            Some(Ok(ProjectEntry::Link(target))) => ProjectEntry::Link(target),
            Some(_) | None => ProjectEntry::Nothing,
        }
    }

    /// Reads a file of the project; `None` if it is missing, unreadable or larger than `max` bytes.
    pub(crate) fn read_file(&self, path: &Path, max: u64) -> Option<Vec<u8>> {
        let root = match self {
            Self::Project(root) => root,
            Self::Record { project, .. } => project.as_ref()?,
        };
        beneath::read_content(beneath::read_at(root, path).ok()??, max).ok()?.ok()
    }

    /// Lists the names in a folder of the project; none for a record.
    pub(crate) fn names_in(&self, path: &Path) -> Vec<PathBuf> {
        let Self::Project(root) = self else { return Vec::new() };
        let folder = beneath::open_at(root, path, OFlag::O_RDONLY | OFlag::O_DIRECTORY, Mode::empty());
        folder.and_then(|folder| copy::list_names(&folder)).unwrap_or_default()
    }

    /// Lists everything except folders at or below a path. Paths that are too deep, and those that are left after
    /// [`BELOW_MAX`] files, are listed as left out and not opened.
    pub(crate) fn files_below(&self, path: &Path) -> FilesBelow {
        let mut found_below = FilesBelow::default();
        let mut open = vec![path.to_owned()];
        while let Some(path) = open.pop() {
            if found_below.files.len() >= BELOW_MAX || path.components().count() > DEPTH_MAX {
                found_below.left_out.push(path);
                continue;
            }
            match self.find_entry(&path) {
                ProjectEntry::Folder => open.extend(self.names_in(&path).iter().map(|name| path.join(name))),
                ProjectEntry::Nothing => {}
                found @ (ProjectEntry::File(_) | ProjectEntry::Link(_) | ProjectEntry::Other) => {
                    found_below.files.push((path, found))
                }
            }
        }
        found_below
    }

    /// Returns the paths of the copied files; none for an overlay.
    pub(crate) fn copied_paths(&self) -> Vec<String> {
        match self {
            Self::Project(_) => Vec::new(),
            Self::Record { base, .. } => base.files.keys().cloned().collect(),
        }
    }
}

/// Returns true if a change of this path may be applied to the project: the path can be displayed, and no part of it
/// is a git directory.
pub(crate) fn is_path_carried(path: &str) -> bool {
    beneath::split_path(path).is_ok_and(|names| {
        !names.is_empty()
            && names.iter().all(|part| name::showable_name(part.as_bytes()).is_some() && !name::is_git(part))
    })
}

/// Returns the entry at a path below a folder.
pub(crate) fn find_in(root: &OwnedFd, path: &Path) -> io::Result<ProjectEntry> {
    if path.as_os_str().is_empty() {
        return Ok(ProjectEntry::Folder);
    }
    let Some(stat) = beneath::stat_at(root, path)? else { return Ok(ProjectEntry::Nothing) };
    Ok(match beneath::file_kind(&stat) {
        SFlag::S_IFDIR => ProjectEntry::Folder,
        SFlag::S_IFLNK => ProjectEntry::Link(link_target(root, path)?.into()),
        SFlag::S_IFREG => match beneath::read_at(root, path)? {
            Some(mut file) => {
                let executable = Mode::from_bits_truncate(stat.st_mode).contains(Mode::S_IXUSR);
                let changed = beneath::changed_at(&file);
                ProjectEntry::File(ProjectFile {
                    digest: beneath::digest_file(&mut file)?,
                    executable,
                    changed,
                })
            }
            None => ProjectEntry::Nothing,
        },
        _ => ProjectEntry::Other,
    })
}

fn link_target(root: &OwnedFd, path: &Path) -> io::Result<OsString> {
    let parent = beneath::open_parent(root, path, false)?;
    let name = path.file_name().map(Path::new).ok_or(io::ErrorKind::InvalidInput)?;
    Ok(readlinkat(&parent, name)?)
}
