//! The project at its own path: scripts, caches and settings name absolute paths, so programs see the work folder where it lies
//! on the host, too, and begin there.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::stat::{Mode, mkdirat};

use super::spec::JobOrder;
use super::{mounts, sys};
use crate::inside::{RESERVED, WORK};
use crate::project::beneath;

/// Makes the folders at which the work folder and others are attached, and returns those that could be made.
/// The folders that they lie in become read-only, so that a file that a program puts beside the project is
/// refused instead of vanishing with the sandbox.
pub(crate) fn make_places<'a>(places: [Option<&'a Path>; 2], root: &OwnedFd) -> [Option<&'a Path>; 2] {
    let made = places.map(|place| place.filter(|place| make_folder(place, root).is_ok()));
    // First the folder that holds the other: what is attached on it later would cover it.
    let mut parents: Vec<&Path> = made.iter().flatten().filter_map(|place| place.parent()).collect();
    parents.sort_by_key(|parent| parent.components().count());
    parents.dedup();
    let guarded: Vec<&Path> = parents
        .into_iter()
        .filter(|parent| is_reserved(parent) || make_read_only(parent, root).is_ok())
        .collect();
    made.map(|place| place.filter(|place| place.parent().is_some_and(|parent| guarded.contains(&parent))))
}

fn is_reserved(folder: &Path) -> bool {
    RESERVED.iter().any(|reserved| Path::new(reserved) == folder)
}

/// A path as it is below the root.
fn below_root(path: &Path) -> &Path {
    path.strip_prefix("/").unwrap_or(path)
}

fn make_folder(place: &Path, root: &OwnedFd) -> io::Result<()> {
    let place = below_root(place);
    let parent = beneath::open_parent(root, place, true)?;
    match place.file_name().map(|name| mkdirat(&parent, name, Mode::from_bits_truncate(0o755))) {
        Some(Ok(()) | Err(Errno::EEXIST)) => Ok(()),
        Some(Err(why)) => Err(why.into()),
        None => Err(io::ErrorKind::InvalidInput.into()),
    }
}

/// True if a folder that was made is reached without a link: mounting follows those.
pub(crate) fn is_reached(place: &Path, root: &OwnedFd) -> bool {
    beneath::open_at(root, below_root(place), OFlag::O_PATH | OFlag::O_DIRECTORY, Mode::empty()).is_ok()
}

/// Writes a file beside the project, before its folder becomes read-only.
pub(crate) fn write_beside(path: &Path, text: &str, root: &OwnedFd) -> io::Result<()> {
    beneath::open_parent(root, below_root(path), true)?;
    let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL;
    let file = beneath::open_at(root, below_root(path), flags, Mode::from_bits_truncate(0o644))?;
    File::from(file).write_all(text.as_bytes())
}

/// Makes a folder read-only, and nothing that is mounted below it.
fn make_read_only(folder: &Path, root: &OwnedFd) -> io::Result<()> {
    let folder =
        beneath::open_at(root, below_root(folder), OFlag::O_PATH | OFlag::O_DIRECTORY, Mode::empty())?;
    let guarded = sys::clone_mount(folder.as_fd())?;
    sys::set_mount(guarded.as_fd(), mounts::READ_ONLY, false)?;
    sys::attach_mount(guarded.as_fd(), folder.as_fd())
}

/// Attaches the work folder at a place that was made for it.
pub(crate) fn attach_work(own: &Path, root: &OwnedFd) -> io::Result<()> {
    let work = sys::clone_mount(mounts::open_folder(Path::new(WORK))?.as_fd())?;
    let on = beneath::open_at(root, below_root(own), OFlag::O_PATH | OFlag::O_DIRECTORY, Mode::empty())?;
    sys::attach_mount(work.as_fd(), on.as_fd())
}

/// Returns the directory in which a program begins: the project's own path, if the work folder could be
/// attached there.
pub(crate) fn start_directory(order: &JobOrder) -> PathBuf {
    let below = order.own.as_deref().zip(order.cwd.strip_prefix(WORK).ok());
    match below {
        Some((own, below)) if is_same(own, Path::new(WORK)) => own.join(below),
        Some(_) | None => order.cwd.clone(),
    }
}

fn is_same(one: &Path, other: &Path) -> bool {
    let id = |path: &Path| std::fs::metadata(path).map(|meta| (meta.dev(), meta.ino())).ok();
    id(one).is_some_and(|found| Some(found) == id(other))
}
