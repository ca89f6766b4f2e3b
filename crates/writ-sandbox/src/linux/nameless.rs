//! The folder of an agent without its place on the host. `/proc/self/mountinfo` names the source of a bind mount, and with it
//! the host's user; an overlay has the words with which it was mounted there, which are numbers of descriptors.

use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::path::Path;

use nix::mount::{MntFlags, umount2};

use super::mounts::{NO_DEV, NO_SUID, READ_ONLY, mount_overlay, open_folder};
use super::spec::{SetupFault, Stage as _};
use super::sys;

/// The empty folder on which the host's lies while the overlay is made of it.
const ASIDE: &str = "/run";
/// An empty folder: an overlay that is only read has two layers at least.
const EMPTY: &str = "/root";

/// Mounts a folder of the host read-only, by an overlay of it alone. Where its file system can be no layer of an overlay, it is
/// mounted as it is: the agent then reads its path.
pub(crate) fn mount_nameless(tree: &OwnedFd, at: &Path) -> Result<(), SetupFault> {
    let stage = "attach the work folder";
    sys::set_mount(tree.as_fd(), NO_SUID | NO_DEV | READ_ONLY, true).stage("guard the work folder")?;
    // A layer has to lie among the mounts of its namespace, which a tree that was handed over does not.
    sys::attach_mount(tree.as_fd(), open_folder(Path::new(ASIDE)).stage(stage)?.as_fd()).stage(stage)?;
    let layer = open_folder(Path::new(ASIDE)).stage(stage)?;
    match mount_overlay(at, &format!("/proc/self/fd/{}:{EMPTY}", layer.as_raw_fd()), None) {
        // The overlay has a copy of the mount for itself.
        Ok(()) => umount2(ASIDE, MntFlags::MNT_DETACH).stage(stage),
        Err(_) => sys::attach_mount(tree.as_fd(), open_folder(at).stage(stage)?.as_fd()).stage(stage),
    }
}
