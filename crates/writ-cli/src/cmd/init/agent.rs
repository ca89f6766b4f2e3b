//! The folder that the agent may change, as a git work tree with its git directory out of the agent's reach.

use std::path::Path;

use writ_sandbox::host::{GitOutput, host_git};

use crate::failure::Failure;
use crate::home::{Home, NOTES, make_folder};
use crate::interrupt::block_on;

/// Makes the repository with a first commit; `false`: it exists. A failure is no obstacle: it is reported as
/// a warning, and the next `init` tries again.
pub(super) fn set_up(home: &Home) -> Result<bool, String> {
    let git = home.agent_git();
    // A first commit exists, so the repository is complete.
    if git.join("refs/heads/main").exists() {
        return Ok(false);
    }
    let failed = |what: &str| format!("changes of agent/ are not recorded: {what}");
    make_folder(&git).map_err(|error| failed(&error.to_string()))?;
    let notes = home.agent().join("AGENTS.md");
    if !notes.exists() {
        std::fs::write(&notes, NOTES).map_err(|error| failed(&error.to_string()))?;
    }
    let tree = format!("--work-tree={}", home.agent().display());
    let name = ["-c", "user.name=writ", "-c", "user.email=writ@localhost"];
    let steps: [Vec<&str>; 3] = [
        vec!["init", "--quiet", "--bare", "--initial-branch=main", "."],
        vec!["--git-dir=.", &tree, "add", "--all"],
        [&name[..], &["--git-dir=.", &tree, "commit", "--quiet", "--message=Begin"]].concat(),
    ];
    for step in steps {
        run_git(&git, &step).map_err(|why| failed(&why))?;
    }
    Ok(true)
}

fn run_git(git: &Path, args: &[&str]) -> Result<(), String> {
    let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
    let ran = block_on(async { host_git(git, &args).await.map_err(Failure::from) });
    match ran {
        Ok(GitOutput { code: 0, .. }) => Ok(()),
        Ok(GitOutput { code, stderr, .. }) => {
            Err(format!("git ended with {code}: {}", stderr.lines().next().unwrap_or_default()))
        }
        Err(Failure::Report(report)) => Err(report.outside),
        Err(Failure::Interrupted | Failure::ReaderGone | Failure::Code(_)) => Err("git did not end".into()),
    }
}
