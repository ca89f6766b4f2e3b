//! The history of the agent's own files, as a git bundle.

use std::path::Path;

use writ_sandbox::host::host_git;
use writ_types::error::Exit;

use crate::failure::Failure;
use crate::home::Home;
use crate::interrupt::block_on;

/// Writes all of a repository's history into one file. A repository without a commit has nothing to keep.
pub(super) fn bundle(repository: &Path, to: &Path) -> Result<(), Failure> {
    if !repository.join("refs/heads/main").exists() && !repository.join("packed-refs").exists() {
        return Ok(());
    }
    let to = to.display().to_string();
    git(repository, &["bundle", "create", "--quiet", &to, "--all"])?;
    git(repository, &["bundle", "verify", "--quiet", &to])
}

/// Makes the repository, and the agent's folder, what the bundle holds. Without a bundle nothing changes.
pub(super) fn restore(home: &Home, bundle: &Path) -> Result<(), Failure> {
    if !bundle.exists() {
        return Ok(());
    }
    let repository = home.agent_git();
    let bundle = bundle.display().to_string();
    let tree = format!("--work-tree={}", home.agent().display());
    git(&repository, &["bundle", "verify", "--quiet", &bundle])?;
    git(
        &repository,
        &["fetch", "--quiet", "--force", "--prune", "--update-head-ok", &bundle, "+refs/*:refs/*"],
    )?;
    git(&repository, &["--git-dir=.", &tree, "reset", "--quiet", "--hard", "HEAD"])?;
    git(&repository, &["--git-dir=.", &tree, "clean", "--quiet", "--force", "-d"])
}

fn git(repository: &Path, args: &[&str]) -> Result<(), Failure> {
    let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
    let ran = block_on(async { host_git(repository, &args).await.map_err(Failure::from) })?;
    if ran.code == 0 {
        return Ok(());
    }
    let why = ran.stderr.lines().next().unwrap_or_default().to_owned();
    let text = format!("the history of the agent's files could not be kept or restored: {why}");
    Err(Failure::new(
        Exit::Verification,
        "backup.agent",
        text,
        "`writ doctor` looks at the agent's repository",
    ))
}
