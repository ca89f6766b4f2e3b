//! The history of the agent's own files, as a git bundle.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use writ_sandbox::host::host_git;
use writ_types::error::Exit;

use super::write_failure;
use crate::failure::Failure;
use crate::home::{Home, make_folder};
use crate::interrupt::block_on;

/// Writes all of a repository's history into one file. A repository without a commit has nothing to keep.
pub(super) fn bundle_repository(repository: &Path, to: &Path) -> Result<(), Failure> {
    // A repository without a commit has nothing to bundle.
    if !repository.join("refs/heads/main").exists() && !repository.join("packed-refs").exists() {
        return Ok(());
    }
    let to = to.display().to_string();
    run_git(repository, &["bundle", "create", "--quiet", &to, "--all"])?;
    run_git(repository, &["bundle", "verify", "--quiet", &to])?;
    fs::set_permissions(&to, fs::Permissions::from_mode(0o600))
        .map_err(|error| write_failure(Path::new(&to), &error))
}

/// Makes a repository of the bundle beside the agent's own. Without a bundle there is nothing to bring back.
pub(super) fn stage_repository(home: &Home, bundle: &Path) -> Result<Option<PathBuf>, Failure> {
    if !bundle.exists() {
        return Ok(None);
    }
    let staged = home.agent_git().with_extension("git.restoring");
    if staged.exists() {
        fs::remove_dir_all(&staged).map_err(|error| write_failure(&staged, &error))?;
    }
    make_folder(&staged)?;
    let bundle = bundle.display().to_string();
    run_git(&staged, &["init", "--quiet", "--bare", "--initial-branch=main", "."])?;
    run_git(&staged, &["fetch", "--quiet", "--force", &bundle, "+refs/*:refs/*"])?;
    Ok(Some(staged))
}

/// Moves a staged repository into the place of the agent's own, which stays under another name, and checks
/// its content out into the agent's folder.
pub(super) fn swap_repository(home: &Home, staged: &Path) -> Result<(), Failure> {
    let repository = home.agent_git();
    let before = repository.with_extension("git.before-restore");
    // Only the last repository before a restore is saved.
    if before.exists() {
        fs::remove_dir_all(&before).map_err(|error| write_failure(&before, &error))?;
    }
    super::move_if_there(&repository, &before)?;
    super::move_if_there(staged, &repository)?;
    let tree = format!("--work-tree={}", home.agent().display());
    run_git(&repository, &["--git-dir=.", &tree, "reset", "--quiet", "--hard", "HEAD"])?;
    run_git(&repository, &["--git-dir=.", &tree, "clean", "--quiet", "--force", "-d"])
}

fn run_git(repository: &Path, args: &[&str]) -> Result<(), Failure> {
    let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
    let ran = block_on(async { host_git(repository, &args).await.map_err(Failure::from) })?;
    if ran.code == 0 {
        return Ok(());
    }
    let why = ran.stderr.lines().next().unwrap_or_default().to_owned();
    let text = format!("the history of the agent's files could not be saved or restored: {why}");
    Err(Failure::new(
        Exit::Verification,
        "backup.agent",
        text,
        "`writ doctor` looks at the agent's repository",
    ))
}
