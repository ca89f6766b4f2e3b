//! The runner that runs nothing: for systems without another one, and for owners who choose it.

use std::path::PathBuf;

use crate::config::RunnerKind;
use crate::error::SandboxError;
use crate::inside::WORK;
use crate::runner::{Folders, Pending, RunRequest, RunResult, Runner};
use crate::status::{Cgroup, Rung, SandboxStatus};

/// Refuses every run. What sessions have changed earlier can be shown, applied and discarded.
#[derive(Debug)]
pub(crate) struct RefuseRunner {
    reason: &'static str,
    hint: &'static str,
}

impl RefuseRunner {
    /// Makes the runner with the reason that applies on this system.
    pub(crate) const fn new() -> Self {
        // If the native runner is available, the owner must have chosen this one.
        if RunnerKind::Native.is_available() {
            Self {
                reason: "the configuration chooses to run nothing (sandbox.runner)",
                hint: "set sandbox.runner to \"native\", or leave it out",
            }
        } else {
            Self {
                reason: "there is no native sandbox for this system yet",
                hint: "run Writ on Linux, or in a Linux virtual machine",
            }
        }
    }

    fn refusal(&self) -> SandboxError {
        SandboxError::Refused { reasons: vec![self.reason.to_owned()] }
    }
}

impl Runner for RefuseRunner {
    fn status(&self) -> Pending<'_, SandboxStatus> {
        let status = SandboxStatus {
            runner: RunnerKind::Refuse,
            rung: Rung::Refuse,
            reduced: vec![self.reason.to_owned()],
            hints: vec![self.hint.to_owned()],
            user_namespaces: false,
            overlay: false,
            landlock_abi: 0,
            seccomp: false,
            cgroup: Cgroup::Watchdog,
            toolchains: Vec::new(),
        };
        Box::pin(std::future::ready(status))
    }

    fn rung(&self) -> Pending<'_, Result<Rung, SandboxError>> {
        Box::pin(std::future::ready(Err(self.refusal())))
    }

    fn ready(&self) -> usize {
        0
    }

    fn root(&self, _: Rung, folders: &Folders) -> PathBuf {
        folders.own_place().unwrap_or_else(|| WORK.into())
    }

    fn run(&self, _: RunRequest) -> Pending<'_, Result<RunResult, SandboxError>> {
        Box::pin(std::future::ready(Err(self.refusal())))
    }
}
