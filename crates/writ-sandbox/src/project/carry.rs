//! Brings approved changes into the project: checks all, stages all, then renames.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::{OFlag, renameat};
use nix::sys::stat::Mode;
use nix::unistd::{UnlinkatFlags, unlinkat};
use writ_types::action::{ChangeKind, FileChange};
use writ_types::digest::Digest;

use super::base::{self, ProjectEntry};
use super::beneath;
use super::copy::{Base, BaseFile};
use super::view::{Layout, View};
use crate::apply::{AppliedChanges, ApplyError};
use crate::changes::{CHANGE_BYTES_MAX, CHANGES_MAX};

/// The beginning of a staged file's name; the rest comes from the content, so that a second run replaces it.
const STAGED: &str = ".writ-apply-";

/// The most bytes of a project's files that are stored so that one application of changes can be undone: more
/// is rarely what a person has written, and a session stores several.
const KEPT_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// Applies changes. The project's earlier files are stored in the folder `keep`, which is made.
pub(crate) fn apply_changes(
    view: &View,
    changes: &[FileChange],
    keep: Option<&Path>,
) -> Result<AppliedChanges, ApplyError> {
    let project = view.project.as_deref().ok_or(ApplyError::WrongProject)?;
    let root = beneath::open_root(project).map_err(|why| io_error(".", 0, why))?;
    let written = beneath::open_root(&view.written_folder()).map_err(|why| io_error(".", 0, why))?;
    check_shape(changes)?;
    let mut applied = AppliedChanges::default();
    let todo = pending_files(&root, changes, &mut applied)?;
    let conflicts: Vec<String> =
        todo.iter().filter(|change| !source_is(&written, change)).map(|change| change.path.clone()).collect();
    if !conflicts.is_empty() {
        return Err(ApplyError::Conflict { paths: conflicts });
    }
    let mut staged = Vec::new();
    let result = stage_all(&root, (&written, view.own_modes), &todo, &mut staged).and_then(|()| {
        // Undoing is an extra: changes are applied even where the earlier files cannot be stored.
        let back =
            keep.and_then(|folder| store_way_back(&root, &todo, folder).ok().flatten()).unwrap_or_default();
        // Once more, now that nothing but renames is left to do.
        pending_files(&root, changes, &mut AppliedChanges::default())?;
        commit_files(&staged, &mut applied)?;
        // The files before an earlier attempt are not stored, so there is no way back to before it.
        if applied.already.is_empty() {
            applied.back = back;
        }
        Ok(())
    });
    for file in &staged {
        let _ = beneath::remove_file(&file.folder, &file.temporary);
    }
    result?;
    settle_session(view, &written, changes).map_err(|why| io_error(".", applied.done.len(), why))?;
    Ok(applied)
}

/// Keeps what the project has now, and names the changes that lead back to it; `None`: it is too much.
fn store_way_back(root: &OwnedFd, todo: &[&FileChange], keep: &Path) -> io::Result<Option<Vec<FileChange>>> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(keep)?;
    let kept = beneath::open_root(keep)?;
    let (mut back, mut bytes) = (Vec::new(), 0_u64);
    for change in todo {
        let path = Path::new(&change.path);
        let turned = |kind, executable, bytes| FileChange {
            path: change.path.clone(),
            kind,
            before: change.after,
            after: change.before,
            executable,
            bytes,
        };
        if change.kind == ChangeKind::Create {
            back.push(turned(ChangeKind::Delete, false, 0));
            continue;
        }
        let file = beneath::read_at(root, path)?.ok_or(io::ErrorKind::NotFound)?;
        let mode = file.metadata()?.mode() & 0o777;
        let executable = mode & 0o100 != 0;
        let left = KEPT_BYTES_MAX.saturating_sub(bytes);
        let Ok(content) = beneath::read_content(file, left)? else { return Ok(None) };
        if Some(Digest::of_bytes(&content)) != change.before {
            return Ok(None);
        }
        let size = u64::try_from(content.len()).unwrap_or(u64::MAX);
        bytes = bytes.saturating_add(size);
        let folder = beneath::open_parent(&kept, path, true)?;
        let name = path.file_name().map(Path::new).unwrap_or(path);
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_TRUNC;
        let target = beneath::open_at(&folder, name, flags, Mode::from_bits_truncate(0o600))?;
        let mut target = File::from(target);
        target.write_all(&content)?;
        target.set_permissions(std::fs::Permissions::from_mode(mode))?;
        let kind = if change.kind == ChangeKind::Delete { ChangeKind::Create } else { ChangeKind::Modify };
        back.push(turned(kind, executable, size));
    }
    Ok(Some(back))
}

/// Checks that the changes have the form that our diff makes.
fn check_shape(changes: &[FileChange]) -> Result<(), ApplyError> {
    let bad = |change: &FileChange, why: &str| ApplyError::BadPath {
        path: change.path.clone(),
        why: why.to_owned(),
    };
    for change in changes {
        if !base::is_path_carried(&change.path) {
            return Err(bad(change, "it is not a plain path below the project"));
        }
        let proper = match change.kind {
            ChangeKind::Create => change.before.is_none() && change.after.is_some(),
            ChangeKind::Modify => change.before.is_some() && change.after.is_some(),
            ChangeKind::Delete => change.before.is_some() && change.after.is_none(),
        };
        if !proper {
            return Err(bad(change, "its digests do not fit its kind"));
        }
    }
    match changes.get(CHANGES_MAX) {
        Some(change) => Err(bad(change, "there are too many changes")),
        None => Ok(()),
    }
}

/// The changes that are still to be made. The rest are done already; anything else is a conflict.
fn pending_files<'a>(
    root: &OwnedFd,
    changes: &'a [FileChange],
    applied: &mut AppliedChanges,
) -> Result<Vec<&'a FileChange>, ApplyError> {
    let (mut todo, mut conflicts) = (Vec::new(), Vec::new());
    for change in changes {
        let found = match base::find_in(root, Path::new(&change.path)) {
            Ok(ProjectEntry::Nothing) => None,
            Ok(ProjectEntry::File(file)) => Some((file.digest, file.executable)),
            Ok(ProjectEntry::Folder | ProjectEntry::Link(_) | ProjectEntry::Other) | Err(_) => {
                conflicts.push(change.path.clone());
                continue;
            }
        };
        let wanted = change.after.map(|digest| (digest, change.executable));
        if found == wanted {
            applied.already.push(change.path.clone());
        } else if found.map(|(digest, _)| digest) == change.before {
            todo.push(change);
        } else {
            conflicts.push(change.path.clone());
        }
    }
    if conflicts.is_empty() { Ok(todo) } else { Err(ApplyError::Conflict { paths: conflicts }) }
}

/// Returns true if the session's file is the one that the change names.
fn source_is(written: &OwnedFd, change: &FileChange) -> bool {
    let found = beneath::stat_at(written, Path::new(&change.path)).ok().flatten();
    let file = found.is_some_and(|stat| beneath::file_kind(&stat) == nix::sys::stat::SFlag::S_IFREG);
    match change.after {
        None => !file,
        Some(after) => {
            let digest =
                || beneath::digest_file(&mut beneath::read_at(written, Path::new(&change.path)).ok()??).ok();
            file && digest() == Some(after)
        }
    }
}

/// A change that is ready: a staged file to rename, or a file to delete.
struct Staged<'a> {
    change: &'a FileChange,
    folder: OwnedFd,
    name: PathBuf,
    temporary: PathBuf,
}

/// Writes every new content beside its place.
fn stage_all<'a>(
    root: &OwnedFd,
    (written, own_modes): (&OwnedFd, bool),
    todo: &[&'a FileChange],
    staged: &mut Vec<Staged<'a>>,
) -> Result<(), ApplyError> {
    for change in todo {
        let path = Path::new(&change.path);
        let fail = |why| io_error(&change.path, 0, why);
        let folder = beneath::open_parent(root, path, change.kind != ChangeKind::Delete).map_err(fail)?;
        let name = path.file_name().map(PathBuf::from).unwrap_or_default();
        let key = Digest::of_bytes(change.path.as_bytes()).to_string();
        let temporary = PathBuf::from(format!("{STAGED}{}", key.get(..16).unwrap_or_default()));
        // Listed first, so that a failure half-way is cleaned up, too.
        staged.push(Staged { change, folder, name, temporary });
        if let Some(file) = staged.last().filter(|file| file.change.kind != ChangeKind::Delete) {
            file.write_staged(written, own_modes).map_err(fail)?;
        }
    }
    Ok(())
}

impl Staged<'_> {
    /// Copies the content, and looks whether it is still the one that was approved. A new file has the usual mode,
    /// unless the modes there are the project's own.
    fn write_staged(&self, written: &OwnedFd, own_modes: bool) -> io::Result<()> {
        let source =
            beneath::read_at(written, Path::new(&self.change.path))?.ok_or(io::ErrorKind::NotFound)?;
        let own = source.metadata()?.mode() & 0o777;
        let content =
            beneath::read_content(source, CHANGE_BYTES_MAX)?.map_err(|_| io::ErrorKind::FileTooLarge)?;
        if Some(Digest::of_bytes(&content)) != self.change.after {
            return Err(io::Error::other("its content changed while it was copied"));
        }
        let current = beneath::read_at(&self.folder, &self.name)?.and_then(|file| file.metadata().ok());
        let usual = if own_modes { own } else { 0o644 };
        let mode = current.map_or(usual, |meta| meta.mode() & 0o777);
        // Everyone who may read the file may execute it.
        let mode = if self.change.executable { mode | 0o100 | (mode & 0o044) >> 2 } else { mode & !0o111 };
        beneath::remove_file(&self.folder, &self.temporary)?;
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL;
        let target = beneath::open_at(&self.folder, &self.temporary, flags, Mode::from_bits_truncate(0o600))?;
        let mut target = File::from(target);
        target.write_all(&content)?;
        target.set_permissions(std::fs::Permissions::from_mode(mode))?;
        target.sync_all()
    }
}

/// Renames and deletes, one after the other, and makes it last.
fn commit_files(staged: &[Staged<'_>], applied: &mut AppliedChanges) -> Result<(), ApplyError> {
    for file in staged {
        let done = match file.change.kind {
            ChangeKind::Create | ChangeKind::Modify => {
                renameat(&file.folder, &file.temporary, &file.folder, &file.name).map_err(io::Error::from)
            }
            ChangeKind::Delete => beneath::remove_file(&file.folder, &file.name),
        };
        let done = done.and_then(|()| Ok(nix::unistd::fsync(&file.folder)?));
        done.map_err(|why| io_error(&file.change.path, applied.done.len(), why))?;
        applied.done.push(file.change.path.clone());
    }
    Ok(())
}

/// Lets the session see the project again where both are the same now, so that later changes of the owner show.
pub(crate) fn settle_session(view: &View, written: &OwnedFd, changes: &[FileChange]) -> io::Result<()> {
    match view.layout {
        Layout::Overlay => {
            changes.iter().try_for_each(|change| remove_from_layer(written, Path::new(&change.path)))
        }
        Layout::Copy => {
            let mut base = Base::read_record(&view.dir)?;
            for change in changes {
                match change.after {
                    Some(digest) => {
                        let file = BaseFile { digest, executable: change.executable };
                        base.files.insert(change.path.clone(), file);
                    }
                    None => {
                        base.files.remove(&change.path);
                    }
                }
            }
            base.write_record(&view.dir)
        }
        Layout::Empty => Ok(()),
    }
}

/// Removes an entry of the upper directory, unless a folder above it hides the project: then it must stay.
fn remove_from_layer(written: &OwnedFd, path: &Path) -> io::Result<()> {
    let mut folder =
        beneath::open_at(written, Path::new(""), OFlag::O_RDONLY | OFlag::O_DIRECTORY, Mode::empty())?;
    for name in path.parent().unwrap_or(Path::new("")).components() {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY;
        // A mark above stands for everything below, or there is nothing to forget.
        let Ok(next) = beneath::open_at(&folder, Path::new(name.as_os_str()), flags, Mode::empty()) else {
            return Ok(());
        };
        folder = next;
        if beneath::is_opaque(std::os::fd::AsFd::as_fd(&folder)) {
            return Ok(());
        }
    }
    let Some(name) = path.file_name() else { return Ok(()) };
    match unlinkat(&folder, Path::new(name), UnlinkatFlags::NoRemoveDir) {
        Ok(()) | Err(nix::errno::Errno::ENOENT | nix::errno::Errno::EISDIR) => Ok(()),
        Err(why) => Err(why.into()),
    }
}

fn io_error(path: &str, done: usize, source: io::Error) -> ApplyError {
    ApplyError::Io { path: path.to_owned(), done, source }
}
