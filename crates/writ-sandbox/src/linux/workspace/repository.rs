//! The git directory of a project that does not lie in it, and the settings that git gets inside.

use std::path::Path;

use writ_types::action::ExecProfile;

use super::{Workspace, blocking};
use crate::error::SandboxError;
use crate::linux::command::is_lost;
use crate::linux::git::{Refusal, Repository, Search, layer, uses_lfs};
use crate::linux::spec::{Access, GitOverlay, Setup, Walls};
use crate::linux::{folder, own};

/// The filters of Git LFS where its program is there: what lies in the work tree counts as the content that it is, and nothing is
/// downloaded when files are checked out.
const LFS: [(&str, &str); 4] = [
    ("filter.lfs.process", "git-lfs filter-process --skip"),
    ("filter.lfs.clean", "git-lfs clean -- %f"),
    ("filter.lfs.smudge", "git-lfs smudge --skip -- %f"),
    ("filter.lfs.required", "true"),
];
/// The same where it is not there: pointer files are plain files. A repository may name the filters as required, and git would stop
/// at each of its files.
const NO_LFS: [(&str, &str); 4] = [
    ("filter.lfs.process", ""),
    ("filter.lfs.clean", ""),
    ("filter.lfs.smudge", ""),
    ("filter.lfs.required", "false"),
];

impl Workspace {
    /// Finds it anew each time: the owner may have moved it meanwhile.
    pub(super) fn repository(&self) -> Result<Option<Repository>, Refusal> {
        let Some(project) = self.project.as_deref() else { return Ok(None) };
        let search = Search {
            project,
            home: self.sandbox.home.as_deref(),
            data: &self.dir,
            listed: &self.sandbox.config.read_only,
            user: nix::unistd::geteuid().as_raw(),
        };
        search.find()
    }

    /// Logs why git will find no repository inside, where there is one outside.
    pub(super) fn say_why_git_is_not_there(&self) {
        if let Err(why) = self.repository() {
            tracing::warn!(%why, "git finds no repository in the sandbox");
        }
    }

    /// What is mounted for git, with the session's layer ready. `None`: nothing is, and git finds no repository then.
    pub(super) async fn git_overlay(&self, walls: Walls, profile: ExecProfile) -> Option<GitOverlay> {
        let found = self.repository().ok().flatten().filter(|_| walls == Walls::Full)?;
        let access = if is_lost(profile) { Access::Scratch } else { Access::Write };
        match self.overlay_of(found, access).await {
            Ok(overlay) => Some(overlay),
            Err(why) => {
                tracing::warn!(%why, "git finds no repository in the sandbox");
                None
            }
        }
    }

    async fn overlay_of(&self, found: Repository, access: Access) -> Result<GitOverlay, SandboxError> {
        let (repository, session) = (found.clone(), self.dir.clone());
        let layers =
            blocking("prepare the git directory", move || layer::prepare(&repository, &session)).await?;
        let at = own::place(&found.at).unwrap_or(found.at);
        let is_above = !found.below.as_os_str().is_empty();
        let dot = own::place(&found.top).unwrap_or_else(|| found.top.clone()).join(".git");
        let names = || format!("gitdir: {}\n", at.join(&found.private).display());
        let dot = (is_above && dot != at).then(|| (dot, names()));
        let top = is_above.then_some(found.top);
        Ok(GitOverlay { at, top, dot, lower: folder(&found.common)?, layers: folder(&layers)?, access })
    }

    /// The variables that git needs, which override what a repository's own configuration says.
    pub(super) fn git_env(&self, setup: &Setup) -> Vec<(String, String)> {
        let mut env = Vec::new();
        let Some(project) = self.project.as_deref() else { return env };
        let mut set = |name: &str, value: &str| env.push((name.to_owned(), value.to_owned()));
        // A git built below `/usr/local` would look there.
        set("GIT_CONFIG_SYSTEM", "/etc/gitconfig");
        let top = setup.git.as_ref().and_then(|git| git.top.as_deref());
        if top.is_some() {
            // A subfolder is mounted apart from the folder with `.git`.
            set("GIT_DISCOVERY_ACROSS_FILESYSTEM", "1");
        }
        if [Some(project), top].into_iter().flatten().any(uses_lfs) {
            let is_there = self.sandbox.toolchains.path.split(':').any(|folder| {
                let program = Path::new(folder).join("git-lfs");
                program.is_file()
            });
            let settings = if is_there { LFS } else { NO_LFS };
            set("GIT_CONFIG_COUNT", &settings.len().to_string());
            for (number, (key, value)) in settings.into_iter().enumerate() {
                set(&format!("GIT_CONFIG_KEY_{number}"), key);
                set(&format!("GIT_CONFIG_VALUE_{number}"), value);
            }
        }
        env
    }
}
