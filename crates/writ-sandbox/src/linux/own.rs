//! The project at its own path: scripts, caches and settings name absolute paths, so programs see the work folder where it lies
//! on the host, too, and begin there.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::stat::{Mode, mkdirat};

use super::init::{INNER_HOME, WORK};
use super::spec::Order;
use super::{beneath, mounts, sys};

/// Folders of the sandbox's own: a project that holds one of them, or lies in one of the first three, is seen at `/work` alone.
const RESERVED: [&str; 8] = [WORK, "/proc", "/dev/pts", "/dev/shm", "/dev", "/tmp", "/etc", INNER_HOME];
/// How many of them nothing is attached in.
const CLOSED: usize = 3;

/// The path at which a project of the host is seen besides `/work`, if the sandbox has nothing of its own there.
pub(crate) fn place(project: &Path) -> Option<PathBuf> {
    // Inside, this folder is a link to the other.
    let place = match project.strip_prefix("/var/tmp") {
        Ok(below) => Path::new("/tmp").join(below),
        Err(_) => project.to_owned(),
    };
    let closed = RESERVED.iter().take(CLOSED).any(|folder| place.starts_with(folder));
    let covers = RESERVED.iter().any(|folder| Path::new(folder).starts_with(&place));
    (place.is_absolute() && !closed && !covers).then_some(place)
}

/// Attaches the work folder there. The folder that it lies in becomes read-only, so that what a program puts beside the project is
/// refused and not gone with the sandbox.
pub(crate) fn attach(own: &Path, root: &OwnedFd) -> io::Result<()> {
    let work = sys::clone_mount(mounts::open_folder(Path::new(WORK))?.as_fd())?;
    let at = own.strip_prefix("/").unwrap_or(own);
    let parent = beneath::parent(root, at, true)?;
    match at.file_name().map(|name| mkdirat(&parent, name, Mode::from_bits_truncate(0o755))) {
        Some(Ok(()) | Err(Errno::EEXIST)) => {}
        Some(Err(why)) => return Err(why.into()),
        None => return Err(io::ErrorKind::InvalidInput.into()),
    }
    if !RESERVED.map(|folder| Some(Path::new(folder))).contains(&own.parent()) {
        let guarded = sys::clone_mount(parent.as_fd())?;
        sys::set_mount(guarded.as_fd(), mounts::READ_ONLY, false)?;
        sys::attach_mount(guarded.as_fd(), parent.as_fd())?;
    }
    let on = beneath::open_at(root, at, OFlag::O_PATH | OFlag::O_DIRECTORY, Mode::empty())?;
    sys::attach_mount(work.as_fd(), on.as_fd())
}

/// Where a program begins: at the project's own path, if the work folder could be attached there.
pub(crate) fn cwd(order: &Order) -> PathBuf {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_project_has_its_own_path_where_nothing_of_the_sandbox_lies() {
        for (project, seen) in [
            ("/home/ann/notes", Some("/home/ann/notes")),
            ("/home/agent/notes", Some("/home/agent/notes")),
            ("/srv/a", Some("/srv/a")),
            ("/tmp/a", Some("/tmp/a")),
            ("/var/tmp/a/b", Some("/tmp/a/b")),
            ("/workshop", Some("/workshop")),
            ("/tmp", None),
            ("/var/tmp", None),
            ("/", None),
            ("/home", None),
            ("/work", None),
            ("/work/a", None),
            ("/proc/self", None),
            ("relative", None),
        ] {
            assert_eq!(place(Path::new(project)), seen.map(PathBuf::from), "{project}");
        }
    }
}
