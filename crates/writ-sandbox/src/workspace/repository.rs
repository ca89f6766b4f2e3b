//! The git directory of a project that does not lie in it.

use std::path::Path;

use super::Workspace;
use crate::blocking::run_blocking;
use crate::error::SandboxError;
use crate::inside;
use crate::project::git::{Refusal, Repository, Search, layer};
use crate::runner::GitMount;

/// Finds a workspace's repository, anew each time: the owner may have moved it meanwhile.
pub(super) fn find_repository(workspace: &Workspace) -> Result<Option<Repository>, Refusal> {
    let Some(project) = workspace.project() else { return Ok(None) };
    let search = Search {
        project,
        home: workspace.shared.home.as_deref(),
        data: &workspace.dir,
        listed: &workspace.shared.config.read_only,
        user: nix::unistd::geteuid().as_raw(),
    };
    search.find()
}

/// Returns the mount for git, with the session's layer ready. `None`: nothing is mounted, and git finds no repository
/// then.
pub(super) async fn git_mount(workspace: &Workspace) -> Option<GitMount> {
    let found = find_repository(workspace).ok().flatten()?;
    match with_layer(found, &workspace.dir).await {
        Ok(mount) => Some(mount),
        Err(why) => {
            tracing::warn!(%why, "git finds no repository in the sandbox");
            None
        }
    }
}

async fn with_layer(found: Repository, session: &Path) -> Result<GitMount, SandboxError> {
    let (repository, session) = (found.clone(), session.to_owned());
    let layers =
        run_blocking("prepare the git directory", move || layer::prepare_layer(&repository, &session))
            .await?;
    let at = inside::own_path(&found.at).unwrap_or(found.at);
    let is_above = !found.below.as_os_str().is_empty();
    let dot = inside::own_path(&found.top).unwrap_or_else(|| found.top.clone()).join(".git");
    let names = || format!("gitdir: {}\n", at.join(&found.private).display());
    let dot = (is_above && dot != at).then(|| (dot, names()));
    let top = is_above.then_some(found.top);
    Ok(GitMount { at, top, dot, lower: found.common, layers })
}
