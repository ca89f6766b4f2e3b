//! The git service of one project.

use std::path::Path;
use std::sync::Arc;

use tokio::sync::Mutex;
use writ_sandbox::git::commits::Committer;
use writ_sandbox::git::places::WorkspaceRoot;
use writ_sandbox::git::{BranchName, GitProject};

use crate::error::PilotGitError;
use crate::events::{GitEvent, GitEvents};
pub use crate::recover::RecoveryReport;
use crate::recover::recover_project;

/// The settings of the service. They are fixed for a session.
#[derive(Clone, Debug)]
pub struct PilotGitConfig {
    /// The folder of workspaces, below the project.
    pub workspace_root: String,
    /// The name that commits bear.
    pub committer: Committer,
}

impl Default for PilotGitConfig {
    fn default() -> Self {
        Self {
            workspace_root: ".writ/workspaces".to_owned(),
            committer: Committer { name: "Writ".to_owned(), email: "writ@localhost".to_owned() },
        }
    }
}

/// The work of one unit: a slice, or a milestone that has one workspace for its slices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitWork {
    /// The id of the unit.
    pub unit: String,
    /// Its branch.
    pub branch: BranchName,
}

/// The git service of one project. While it lives no other process works on the repository for the autopilot.
#[derive(Debug)]
pub struct PilotGit {
    pub(crate) project: GitProject,
    pub(crate) root: WorkspaceRoot,
    pub(crate) committer: Committer,
    events: Arc<dyn GitEvents>,
    /// One merge at a time.
    pub(crate) merging: Mutex<()>,
    /// One request at a forge at a time.
    pub(crate) shipping: Mutex<()>,
}

impl PilotGit {
    /// Opens a project's repository, takes its lock, and cleans up what a killed process has left.
    ///
    /// # Errors
    ///
    /// If the folder is no repository that can be worked on, if another process has it, or if its workspaces would lie elsewhere.
    pub async fn open_service(
        folder: &Path,
        config: PilotGitConfig,
        events: Arc<dyn GitEvents>,
    ) -> Result<(Self, RecoveryReport), PilotGitError> {
        let project = GitProject::open_project(folder).await?;
        // The lock is held from here on: nothing below meets another process of ours.
        let root = WorkspaceRoot::open_root(project.top_dir(), &config.workspace_root)?;
        // Before anything is made: a name could be in use by what was left.
        let report = recover_project(&project, &root).await?;
        let committer = config.committer;
        Ok((
            Self { project, root, committer, events, merging: Mutex::new(()), shipping: Mutex::new(()) },
            report,
        ))
    }

    /// Returns the folder of workspaces.
    pub fn workspaces_dir(&self) -> &Path {
        self.root.path()
    }

    /// Returns the repository, for what reads it alone.
    pub const fn project(&self) -> &GitProject {
        &self.project
    }

    pub(crate) fn emit_event(&self, event: GitEvent) {
        self.events.take_event(event);
    }
}
