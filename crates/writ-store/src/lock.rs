//! The lock of a home: one engine at a time.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use nix::fcntl::{Flock, FlockArg};
use writ_types::error::{Exit, Report, ToReport};

/// Longest text that a lock file is read for: a process id has fewer than 20 digits.
const MAX_PID_BYTES: u64 = 20;

/// The lock of a home. The system releases it when the process ends, however it ends.
#[derive(Debug)]
pub struct HomeLock {
    _file: Flock<File>,
}

/// The lock could not be taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LockError {
    /// Another engine holds it.
    #[error("another engine runs in this home{}", .pid.map(|pid| format!(" (process {pid})")).unwrap_or_default())]
    Held {
        /// Its process id, where the lock file names one.
        pid: Option<u32>,
    },
    /// The lock file cannot be used.
    #[error("the lock file cannot be used: {message}")]
    Unusable {
        /// The reason.
        message: String,
    },
}

impl HomeLock {
    /// Takes the lock, writing this process's id into the file at `path` (mode 0600).
    ///
    /// # Errors
    ///
    /// If another process holds it, or the file cannot be opened or written.
    pub fn acquire(path: &Path) -> Result<Self, LockError> {
        let unusable = |error: std::io::Error| LockError::Unusable { message: error.to_string() };
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)
            .map_err(unusable)?;
        // The system drops it with the process, so no stale lock is ever left.
        let mut file = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(file) => file,
            Err((file, nix::errno::Errno::EWOULDBLOCK)) => {
                return Err(LockError::Held { pid: read_pid(&file) });
            }
            Err((_, errno)) => return Err(unusable(errno.into())),
        };
        // Only after the lock is held: the file may name another engine until then.
        file.set_len(0).map_err(unusable)?;
        file.rewind().map_err(unusable)?;
        writeln!(file, "{}", std::process::id()).map_err(unusable)?;
        Ok(Self { _file: file })
    }
}

fn read_pid(file: &File) -> Option<u32> {
    let mut text = String::new();
    file.take(MAX_PID_BYTES).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

impl ToReport for LockError {
    fn report(&self) -> Report {
        match self {
            Self::Held { .. } => Report::new(Exit::Blocked, "store.engine_running", self.to_string())
                .with_hint("use the engine that runs, or end it first"),
            Self::Unusable { .. } => {
                Report::new(Exit::Config, "store.lock_file", "the home's lock file cannot be used")
                    .with_inside(self.to_string())
                    .with_hint("check the owner and mode of the home's runtime folder")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_holder_learns_who_the_first_is() {
        let dir = tempfile::tempdir().expect("temp dir");
        let path = dir.path().join("lock");
        let first = HomeLock::acquire(&path).expect("free");
        let error = HomeLock::acquire(&path).expect_err("held");
        assert_eq!(error, LockError::Held { pid: Some(std::process::id()) });
        assert_eq!(error.report().exit, Exit::Blocked);
        drop(first);
        HomeLock::acquire(&path).expect("free again");
    }
}
