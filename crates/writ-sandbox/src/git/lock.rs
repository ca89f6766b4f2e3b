//! The lock of a repository: one autopilot at a time, and none while a git of an earlier one still runs.

use std::fs::File;
use std::io::{Read as _, Seek as _, Write as _};
use std::os::fd::AsFd as _;
use std::path::Path;

use nix::fcntl::{Flock, FlockArg, OFlag, open};
use nix::sys::stat::Mode;

use super::GitFault;

/// The most bytes of a lock that are read.
const LOCK_BYTES_MAX: u64 = 1_024;

/// A lock that is held until it and every git process that it was lent to have ended.
#[derive(Debug)]
pub(crate) struct ProjectLock(Flock<File>);

impl ProjectLock {
    /// Takes the lock, and writes this process down in it.
    pub(crate) fn take_lock(path: &Path) -> Result<Self, GitFault> {
        let failed = |source: std::io::Error| GitFault::from_io(path, source);
        let flags = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
        let file =
            open(path, flags, Mode::from_bits_truncate(0o600)).map_err(|error| failed(error.into()))?;
        match Flock::lock(File::from(file), FlockArg::LockExclusiveNonblock) {
            Ok(mut held) => {
                write_holder(&mut held).map_err(failed)?;
                Ok(Self(held))
            }
            Err((file, nix::errno::Errno::EWOULDBLOCK)) => {
                let mut holder = String::new();
                file.take(LOCK_BYTES_MAX).read_to_string(&mut holder).map_err(failed)?;
                Err(GitFault::InUse { holder: holder.trim().to_owned() })
            }
            Err((_, error)) => Err(failed(error.into())),
        }
    }

    /// Lets a command inherit the lock.
    #[cfg(all(target_os = "linux", not(writ_other_system)))]
    #[expect(clippy::disallowed_types, reason = "this crate is the one that starts processes")]
    pub(crate) fn lend_to(&self, command: &mut tokio::process::Command) {
        crate::linux::inherit_descriptor(command, self.0.as_fd());
    }

    /// Elsewhere a process that outlives this one is not waited for.
    #[cfg(any(not(target_os = "linux"), writ_other_system))]
    #[expect(clippy::disallowed_types, reason = "this crate is the one that starts processes")]
    pub(crate) fn lend_to(&self, _: &mut tokio::process::Command) {
        let _ = self.0.as_fd();
    }
}

/// Writes the identity of this process: a number alone may belong to another one later.
fn write_holder(file: &mut File) -> std::io::Result<()> {
    let pid = std::process::id();
    let began = std::fs::read_to_string("/proc/self/stat").ok();
    // The start time, in ticks since boot; the name before it may hold anything.
    let began = began.as_deref().and_then(|text| text.rsplit_once(')')?.1.split_ascii_whitespace().nth(19));
    file.set_len(0)?;
    file.rewind()?;
    writeln!(file, "process {pid}, started at tick {}", began.unwrap_or("unknown"))
}
