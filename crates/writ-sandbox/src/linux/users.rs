//! The users of agents: each agent that root starts runs as one that no other process has.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use nix::fcntl::OFlag;

use super::sys;
use crate::agent::AgentError;
use crate::host::home_of;

/// The user ids that agents get. Distributions give none of them out, and a container with 65,536 ids has them.
pub(crate) const USERS: Range<u32> = 60_800..61_056;
/// The folder of their locks.
const LOCKS: &str = "/run/writ/agents";

/// A user that this run alone has. The lock is held by the sandbox's own processes, too; the kernel closes their files before
/// it has ended what runs in the sandbox, so a user is free when its lock is and no process is its.
#[derive(Debug)]
pub(crate) struct AgentUser {
    id: u32,
    lock: File,
}

impl AgentUser {
    /// Claims a user; `None`: this process is not root's, and the agent gets a user namespace alone.
    pub(crate) fn claim_free() -> Result<Option<Self>, AgentError> {
        if !nix::unistd::geteuid().is_root() {
            return Ok(None);
        }
        Self::claim_in(Path::new(LOCKS), &USERS).map(Some)
    }

    /// Claims the first free one of these users; their locks are files in the folder.
    fn claim_in(folder: &Path, users: &Range<u32>) -> Result<Self, AgentError> {
        check_folder(folder).map_err(|source| AgentError::Users { source })?;
        // Not from the beginning each time: a user whose last process is just ending is not given out again at once.
        let count = users.len();
        let first = usize::try_from(std::process::id()).unwrap_or(0) % count.max(1);
        for id in users.clone().skip(first).chain(users.clone().take(first)) {
            // A person or a service that has this id is no agent.
            if home_of(id).is_some() {
                continue;
            }
            let lock =
                try_lock(&folder.join(id.to_string())).map_err(|source| AgentError::Users { source })?;
            let Some(lock) = lock else { continue };
            // Checked while the lock is held, so that no process of this user starts meanwhile.
            if !has_living(id).map_err(|source| AgentError::Users { source })? {
                return Ok(Self { id, lock });
            }
        }
        Err(AgentError::NoUser { most: count })
    }

    /// Its id, which is that of its group, too.
    pub(crate) const fn id(&self) -> u32 {
        self.id
    }

    /// Returns another handle on its lock.
    pub(crate) fn share_lock(&self) -> io::Result<File> {
        self.lock.try_clone()
    }
}

/// Makes the folder of locks, which is root's alone.
fn check_folder(folder: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let found = fs::symlink_metadata(folder)?;
    if found.is_dir() && found.uid() == 0 && found.mode() & 0o022 == 0 {
        Ok(())
    } else {
        Err(io::Error::other(format!("{} is not a folder of root's alone", folder.display())))
    }
}

fn try_lock(path: &Path) -> io::Result<Option<File>> {
    // Opened read-only, so that processes that inherit it cannot write to it.
    let options = OpenOptions::new().read(true).custom_flags(OFlag::O_NOFOLLOW.bits()).open(path);
    let file = match options {
        Err(why) if why.kind() == io::ErrorKind::NotFound => {
            let made = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path);
            made.and_then(|_| File::open(path))?
        }
        other => other?,
    };
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(why)) => Err(why),
    }
}

/// Returns true if a process of a user still lives. One that has ended, and that nothing reaps, does not.
fn has_living(user: u32) -> io::Result<bool> {
    // Usually the user has no process, and one system call shows it.
    if !sys::has_processes(user)? {
        return Ok(false);
    }
    for entry in fs::read_dir("/proc")? {
        // A process that ends meanwhile has no status file, nor has an entry that is no process.
        let status = fs::read_to_string(entry?.path().join("status")).unwrap_or_default();
        if lives_as(&status, user) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns true if a process of this status is a user's, and has not ended with all of its threads.
fn lives_as(status: &str, user: u32) -> bool {
    let field = |name: &str| {
        status
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .and_then(|rest| rest.split_whitespace().next())
    };
    let ended = matches!(field("State:"), Some("Z" | "X")) && field("Threads:") == Some("1");
    !ended && field("Uid:") == Some(user.to_string().as_str())
}

#[cfg(test)]
mod tests {
    use nix::sys::wait::WaitPidFlag;

    use super::*;

    #[expect(clippy::disallowed_types, reason = "this crate is the one that starts processes")]
    fn start_process(user: u32) -> std::process::Child {
        use std::os::unix::process::CommandExt as _;
        std::process::Command::new("/bin/sleep")
            .arg("600")
            .uid(user)
            .gid(user)
            .current_dir("/")
            .spawn()
            .unwrap()
    }

    /// A process whose first thread has ended goes on with the others.
    #[test]
    fn only_what_has_ended_with_all_of_its_threads_is_no_process_of_its_user() {
        let status = |state: &str, threads: u32| {
            format!("Name:\tx\nState:\t{state} (x)\nUid:\t60900\t60900\t60900\t60900\nThreads:\t{threads}\n")
        };
        assert!(lives_as(&status("S", 1), 60_900) && lives_as(&status("Z", 2), 60_900));
        assert!(!lives_as(&status("Z", 1), 60_900) && !lives_as(&status("S", 1), 6_090));
        assert!(!lives_as("", 60_900));
    }

    /// Rows: SLO-031 (a user that is missing makes the start fail)
    #[test]
    fn each_claim_gets_another_user_and_none_is_given_twice() {
        let temp = tempfile::tempdir().unwrap();
        let folder = temp.path().join("agents");
        fs::DirBuilder::new().mode(0o700).create(&folder).unwrap();
        if !nix::unistd::geteuid().is_root() {
            assert!(matches!(AgentUser::claim_in(&folder, &(0..2)), Err(AgentError::Users { .. })));
            return;
        }
        let users = 60_900..60_902;
        let first = AgentUser::claim_in(&folder, &users).unwrap();
        let second = AgentUser::claim_in(&folder, &users).unwrap();
        assert!(users.contains(&first.id()) && users.contains(&second.id()) && first.id() != second.id());
        assert!(matches!(AgentUser::claim_in(&folder, &users), Err(AgentError::NoUser { most: 2 })));
        // The zygote's handle still holds the lock.
        let (held, id) = (first.share_lock().unwrap(), first.id());
        drop(first);
        assert!(matches!(AgentUser::claim_in(&folder, &users), Err(AgentError::NoUser { most: 2 })));
        drop(held);
        assert_eq!(AgentUser::claim_in(&folder, &users).unwrap().id(), id);
        // A process holds its user without a lock, too, until it has ended; it need not be reaped.
        let mut left = start_process(id);
        assert!(matches!(AgentUser::claim_in(&folder, &users), Err(AgentError::NoUser { most: 2 })));
        left.kill().unwrap();
        let pid = nix::unistd::Pid::from_raw(i32::try_from(left.id()).unwrap());
        nix::sys::wait::waitid(nix::sys::wait::Id::Pid(pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT)
            .unwrap();
        assert!(sys::has_processes(id).unwrap(), "it is there still");
        assert_eq!(AgentUser::claim_in(&folder, &users).unwrap().id(), id);
        left.wait().unwrap();
        assert!(!sys::has_processes(id).unwrap());
        // Root is a person, not an agent.
        assert!(matches!(AgentUser::claim_in(&folder, &(0..1)), Err(AgentError::NoUser { most: 1 })));
        // No user is claimed in a folder that others can write to.
        fs::set_permissions(&folder, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        assert!(matches!(AgentUser::claim_in(&folder, &users), Err(AgentError::Users { .. })));
    }
}
