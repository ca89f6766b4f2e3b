//! Systems without a native sandbox: nothing is run. The third rung of the ladder.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use tokio_util::sync::CancellationToken;
use writ_policy::permit::{Permit, Saving};
use writ_types::action::FileChange;
use writ_types::id::AttemptId;
use writ_types::unit::Timestamp;

use crate::apply::{Applied, ApplyError};
use crate::changes::{ChangeSet, Diff};
use crate::config::{SandboxConfig, WorkspaceConfig};
use crate::error::SandboxError;
use crate::exec::{ExecOptions, ExecResult};
use crate::file::{Peeked, ReadResult, Written};
use crate::outbox::Taken;
use crate::serve::{ServeOptions, Served};
use crate::status::{Cgroup, Rung, SandboxStatus};

/// Why nothing is run.
const REASON: &str = "there is no native sandbox for this system yet";

/// No process is started as a helper here.
pub const fn init_main() -> Option<ExitCode> {
    None
}

/// Nothing is kept here.
pub async fn forget_back(_: &Path, _: AttemptId) -> Result<(), SandboxError> {
    Ok(())
}

/// Refuses to run anything.
#[derive(Clone, Debug)]
pub struct Sandbox(());

/// There is none here: [`Sandbox::open`] refuses.
#[derive(Clone, Debug)]
pub struct Workspace(Never);

/// Has no value.
#[derive(Clone, Copy, Debug)]
enum Never {}

impl Sandbox {
    /// Makes the sandbox that refuses.
    ///
    /// # Errors
    ///
    /// None here.
    pub fn start(_: SandboxConfig) -> Result<Self, SandboxError> {
        Ok(Self(()))
    }

    /// Says that nothing is run.
    pub async fn status(&self) -> SandboxStatus {
        SandboxStatus {
            rung: Rung::Refuse,
            reduced: vec![REASON.to_owned()],
            hints: vec!["run Writ on Linux, or in a Linux virtual machine".to_owned()],
            user_namespaces: false,
            overlay: false,
            landlock_abi: 0,
            seccomp: false,
            cgroup: Cgroup::Watchdog,
            toolchains: Vec::new(),
        }
    }

    /// None.
    pub const fn ready(&self) -> usize {
        0
    }

    /// Finds nothing wrong: [`open`](Self::open) refuses anyway.
    ///
    /// # Errors
    ///
    /// None here.
    pub const fn check(&self, _: &WorkspaceConfig) -> Result<(), SandboxError> {
        Ok(())
    }

    /// Refuses.
    ///
    /// # Errors
    ///
    /// Always.
    pub async fn open(&self, _: WorkspaceConfig) -> Result<Workspace, SandboxError> {
        Err(SandboxError::Refused { reasons: vec![REASON.to_owned()] })
    }
}

#[expect(
    missing_docs,
    clippy::missing_errors_doc,
    clippy::unused_async,
    reason = "no value of this type exists; Linux's has the words"
)]
impl Workspace {
    #[must_use]
    pub fn until(&self, _: &CancellationToken) -> Self {
        match self.0 {}
    }

    pub async fn root(&self) -> Result<PathBuf, SandboxError> {
        match self.0 {}
    }

    pub fn project(&self) -> Option<&Path> {
        match self.0 {}
    }

    pub fn is_copy(&self) -> bool {
        match self.0 {}
    }

    pub async fn exec(&self, _: Permit, _: Timestamp, _: ExecOptions) -> Result<ExecResult, SandboxError> {
        match self.0 {}
    }

    pub async fn serve(&self, _: Permit, _: Timestamp, _: ServeOptions) -> Result<Served, SandboxError> {
        match self.0 {}
    }

    pub async fn read(&self, _: Permit, _: Timestamp) -> Result<ReadResult, SandboxError> {
        match self.0 {}
    }

    pub async fn write(&self, _: Permit, _: Timestamp) -> Result<Written, SandboxError> {
        match self.0 {}
    }

    pub async fn save(&self, _: Saving, _: Vec<u8>) -> Result<Written, SandboxError> {
        match self.0 {}
    }

    pub async fn take(&self, _: Permit, _: Timestamp) -> Result<Taken, SandboxError> {
        match self.0 {}
    }

    pub async fn peek(&self, _: &str) -> Result<Option<Peeked>, SandboxError> {
        match self.0 {}
    }

    pub async fn changes(&self) -> Result<ChangeSet, SandboxError> {
        match self.0 {}
    }

    pub async fn diff(&self) -> Result<Diff, SandboxError> {
        match self.0 {}
    }

    pub async fn apply(&self, _: Permit, _: Timestamp) -> Result<Applied, ApplyError> {
        match self.0 {}
    }

    pub async fn revert(&self, _: Permit, _: Timestamp, _: AttemptId) -> Result<Applied, ApplyError> {
        match self.0 {}
    }

    pub async fn diff_back(&self, _: AttemptId, _: &[FileChange]) -> Result<Diff, SandboxError> {
        match self.0 {}
    }

    pub async fn discard(&self) -> Result<(), SandboxError> {
        match self.0 {}
    }
}
