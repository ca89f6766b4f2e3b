//! Zygotes at rest. Each has a control group of its own, so that a sandbox is born into its limits: moving a process
//! into a group takes the kernel ten times as long as forking one.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::cgroup::{Cgroups, Group};
use super::spec::Walls;
use super::users::AgentUser;
use super::zygote::{Zygote, helper_error};
use crate::error::SandboxError;

/// The most zygotes that rest; more are started when more commands run at once, and end after them.
const RESTING_MAX: usize = 4;
/// The processes that the zygote and the sandbox's first process add.
const OWN_PROCESSES: u64 = 2;

/// The zygotes of a sandbox.
#[derive(Debug)]
pub(crate) struct Slots {
    exe: PathBuf,
    cgroups: Arc<Cgroups>,
    memory: u64,
    processes: u64,
    /// The extra settings of an agent's zygote.
    own: Option<AgentSlot>,
    resting: Mutex<Vec<Slot>>,
}

/// The zygote of an agent.
#[derive(Debug)]
pub(crate) struct AgentSlot {
    /// The user that it runs as; `None`: the same as this process.
    pub(crate) user: Option<AgentUser>,
    /// Its folder, taken for a user that may not be able to reach it.
    pub(crate) folder: Option<OwnedFd>,
    /// True if the control group measures the time that its processes compute.
    pub(crate) measures: bool,
}

/// One zygote: forks one sandbox at a time.
#[derive(Debug)]
pub(crate) struct Slot {
    zygote: Zygote,
    group: Option<Group>,
    kills: u64,
}

impl Slots {
    /// Starts the first zygote.
    pub(crate) fn start_slots(
        exe: &Path,
        cgroups: Arc<Cgroups>,
        memory: u64,
        processes: u64,
        own: Option<AgentSlot>,
    ) -> Result<Self, SandboxError> {
        let slots = Self { exe: exe.to_owned(), cgroups, memory, processes, own, resting: Mutex::default() };
        let first = slots.make_slot()?;
        slots.give_back(first);
        Ok(slots)
    }

    /// Has a sandbox forked by a zygote at rest, or by a new one.
    pub(crate) fn fork_sandbox(&self, walls: Walls, control: BorrowedFd<'_>) -> Result<Slot, SandboxError> {
        loop {
            // The lock is not held while a zygote is started.
            let resting = self.resting.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let (slot, new) = match resting {
                Some(slot) => (slot, false),
                None => (self.make_slot()?, true),
            };
            match slot.zygote.request_fork(walls, control) {
                Ok(()) => return Ok(slot),
                // It died while it rested.
                Err(_) if !new => {}
                Err(why) => return Err(helper_error("request", &why)),
            }
        }
    }

    /// Takes a zygote back after the end of its sandbox.
    pub(crate) fn give_back(&self, mut slot: Slot) {
        // Later kills in this group belong to the next sandbox.
        slot.kills = slot.group.as_ref().map_or(0, Group::kill_count);
        let mut resting = self.resting.lock().unwrap_or_else(PoisonError::into_inner);
        if resting.len() < RESTING_MAX {
            resting.push(slot);
        }
    }

    fn make_slot(&self) -> Result<Slot, SandboxError> {
        let user = self.own.as_ref().and_then(|own| own.user.as_ref());
        let folder = self.own.as_ref().and_then(|own| own.folder.as_ref());
        let zygote = Zygote::start_zygote(&self.exe, user, folder.map(AsFd::as_fd))?;
        let processes = self.processes.saturating_add(OWN_PROCESSES);
        let mut group = self.cgroups.make_group(self.memory, processes);
        if let Some(group) = group.as_mut().filter(|_| self.own.as_ref().is_some_and(|own| own.measures)) {
            group.measure_time();
        }
        // A group that cannot be entered limits nothing: then the watchdog measures.
        let group = group.filter(|group| group.admit_process(zygote.pid()).is_ok());
        Ok(Slot { zygote, group, kills: 0 })
    }
}

impl Slot {
    /// Returns true if a control group limits what it forks.
    pub(crate) const fn is_limited(&self) -> bool {
        self.group.is_some()
    }

    /// Returns the time that its processes have computed together, if a control group measures that.
    pub(crate) fn computed_time(&self) -> Option<Duration> {
        self.group.as_ref().and_then(Group::computed_time)
    }

    /// Returns true if the kernel had to kill for want of memory since the sandbox was forked.
    pub(crate) fn out_of_memory(&self) -> bool {
        self.group.as_ref().is_some_and(|group| group.kill_count() > self.kills)
    }
}

#[cfg(test)]
impl Slot {
    /// The zygote's process id.
    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.zygote.pid()).unwrap_or(-1)
    }
}

#[cfg(test)]
impl Slots {
    /// The process ids of the zygotes at rest.
    pub(crate) fn pids(&self) -> Vec<i32> {
        self.resting.lock().unwrap_or_else(PoisonError::into_inner).iter().map(Slot::pid).collect()
    }
}
