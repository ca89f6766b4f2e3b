//! The sandbox of an engine: its runner, chosen when it starts, and the work folders that are opened on it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::config::{RunnerKind, SandboxConfig, WorkspaceConfig};
use crate::error::{RunnerError, SandboxError};
use crate::refuse::RefuseRunner;
use crate::runner::Runner;
use crate::status::SandboxStatus;
use crate::workspace::{SandboxParts, Workspace};

/// Runs commands, each in a sandbox of its own. Cheap to clone; the last one dropped ends every sandbox.
#[derive(Clone, Debug)]
pub struct Sandbox {
    shared: Arc<SandboxParts>,
}

impl Sandbox {
    /// Starts the runner that the configuration names. Best called before the async runtime has threads: the native
    /// runner starts a process, which a later call does as well, only slower.
    ///
    /// # Errors
    ///
    /// If this system has no such runner, or its executable cannot be started.
    pub fn start(config: SandboxConfig) -> Result<Self, RunnerError> {
        let home = owner_home(&config);
        let runner = start_runner(&config, home.as_deref())?;
        Ok(Self::with_runner(config, home, runner))
    }

    pub(crate) fn with_runner(config: SandboxConfig, home: Option<PathBuf>, runner: Arc<dyn Runner>) -> Self {
        Self { shared: Arc::new(SandboxParts::new(config, home, runner)) }
    }

    /// Returns what this machine gives. Found once, by running a program in a sandbox.
    pub async fn status(&self) -> SandboxStatus {
        self.shared.runner.status().await
    }

    /// Returns the number of sandboxes that are made and wait for something to do, now.
    pub fn ready_count(&self) -> usize {
        self.shared.runner.ready()
    }

    /// Opens a session's work folder, making it when it is not there. Where nothing can be run, what an earlier engine
    /// has left in one that is there can still be shown, applied and discarded.
    ///
    /// # Errors
    ///
    /// If nothing can be run here and the folder is not there, if the project may not be worked on (it holds the home, or lies in the system), if its overlay cannot be mounted
    /// and it cannot be copied, or if the folder cannot be made.
    pub async fn open(&self, config: WorkspaceConfig) -> Result<Workspace, SandboxError> {
        Workspace::open(Arc::clone(&self.shared), config).await
    }

    /// Checks the project of a work folder that is not opened yet, as [`open`](Self::open) does.
    ///
    /// # Errors
    ///
    /// If the project may not be worked on.
    pub fn check_project(&self, config: &WorkspaceConfig) -> Result<(), SandboxError> {
        // The folder may not be there yet; what matters is in which one it would lie.
        let dir = config.data_dir.ancestors().find_map(|folder| folder.canonicalize().ok());
        let dir = dir.unwrap_or_else(|| config.data_dir.clone());
        config.project.as_deref().map_or(Ok(()), |project| self.shared.project(project, &dir).map(drop))
    }
}

/// Returns the owner's home: that of the configuration, else that of the running user.
pub(crate) fn owner_home(config: &SandboxConfig) -> Option<PathBuf> {
    config.host_home.clone().or_else(|| {
        // A daemon's home may be `/`, which is no home to protect.
        let home = crate::host::home_of(nix::unistd::getuid().as_raw());
        home.filter(|dir| dir.is_dir() && *dir != Path::new("/"))
    })
}

fn start_runner(config: &SandboxConfig, home: Option<&Path>) -> Result<Arc<dyn Runner>, RunnerError> {
    match config.runner {
        #[cfg(all(target_os = "linux", not(writ_other_system)))]
        RunnerKind::Native => Ok(Arc::new(crate::linux::NativeRunner::start(config.clone(), home)?)),
        #[cfg(any(not(target_os = "linux"), writ_other_system))]
        RunnerKind::Native => {
            let _ = home;
            Err(RunnerError::Unavailable { runner: RunnerKind::Native })
        }
        RunnerKind::Refuse => Ok(Arc::new(RefuseRunner::new())),
    }
}
