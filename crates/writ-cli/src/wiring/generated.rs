//! The generated files of the home, for people to read: the profile of the owner, with its history in a repository of its own.
//!
//! The folder is in no sandbox, and nothing in it is read back: the store has the profile that counts.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use writ_runtime::home_files::{HomeFileFuture, HomeFiles};
use writ_sandbox::host::{GitOutput, HostError, host_git};
use writ_types::error::{Exit, Report, ToReport as _};

use crate::home::{Home, make_folder};

/// The name of the profile's file.
const PROFILE: &str = "USER.md";

/// The subject of the commit of a changed profile.
const SUBJECT: &str = "digest: update user profile";

/// The generated files of a home.
#[derive(Clone, Debug)]
pub(super) struct GeneratedFiles {
    folder: PathBuf,
}

/// The reason why git has recorded nothing.
#[derive(Debug, thiserror::Error)]
enum RecordError {
    #[error("{0}")]
    Host(String),
    #[error("git ended with {code}: {line}")]
    Ended { code: i32, line: String },
    #[error("{0}")]
    Folder(String),
}

impl From<HostError> for RecordError {
    fn from(error: HostError) -> Self {
        Self::Host(error.report().outside)
    }
}

impl GeneratedFiles {
    /// Names the folder of a home.
    pub(super) fn of_home(home: &Home) -> Self {
        Self { folder: home.root().join("generated") }
    }

    async fn store_profile(&self, text: &str) -> Result<Option<String>, Report> {
        let (path, text) = (self.folder.join(PROFILE), format!("{}\n", text.trim_end()));
        // The write waits for the disk, which no thread of the runtime may do.
        let target = path.clone();
        let written = tokio::task::spawn_blocking(move || replace_file(&target, text.as_bytes())).await;
        let written = written.unwrap_or_else(|_| Err(std::io::Error::other("writing it was stopped")));
        written.map_err(|error| {
            let text = format!("{}: the profile cannot be written: {error}", path.display());
            Report::new(Exit::Blocked, "memory.profile_file", text)
                .with_hint("make space, or give the folder back to the user who owns the home")
        })?;
        // Without git the profile is there all the same, like the changes of the agent's folder.
        let recorded = self.record_change().await;
        Ok(recorded.err().map(|error| format!("the change of {PROFILE} is not recorded: {error}")))
    }

    /// Commits the file if it differs from the last commit.
    async fn record_change(&self) -> Result<(), RecordError> {
        let git = self.folder.join(".git");
        make_folder(&git).map_err(|error| RecordError::Folder(error.to_string()))?;
        // A folder without it was never made whole, and is made again.
        if !git.join("HEAD").exists() {
            run(&git, &["init", "--quiet", "--bare", "--initial-branch=main", "."]).await?;
        }
        let tree = format!("--work-tree={}", self.folder.display());
        let file = self.folder.join(PROFILE).display().to_string();
        run(&git, &["--git-dir=.", &tree, "add", "--", &file]).await?;
        // The owner's own name and settings have no part in a record that no person has made.
        let names = ["-c", "user.name=writ", "-c", "user.email=writ@localhost", "--git-dir=."];
        let message = format!("--message={SUBJECT}");
        let is_same =
            git_output(&git, &["--git-dir=.", &tree, "diff", "--cached", "--quiet"]).await?.code == 0;
        if is_same {
            return Ok(());
        }
        run(&git, &[&names[..], &[&tree, "commit", "--quiet", &message]].concat()).await
    }
}

impl HomeFiles for GeneratedFiles {
    fn write_profile<'a>(&'a self, text: &'a str) -> HomeFileFuture<'a> {
        Box::pin(self.store_profile(text))
    }
}

/// Replaces a file as a whole: a reader finds the old text or the new one.
fn replace_file(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let new = path.with_extension("new");
    // A link in its place would lead the text elsewhere.
    match std::fs::remove_file(&new) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let mut file: File = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(&new, path)
}

async fn git_output(git: &Path, args: &[&str]) -> Result<GitOutput, RecordError> {
    let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
    Ok(host_git(git, &args).await?)
}

async fn run(git: &Path, args: &[&str]) -> Result<(), RecordError> {
    match git_output(git, args).await? {
        GitOutput { code: 0, .. } => Ok(()),
        GitOutput { code, stderr, .. } => {
            // The first line says what is wrong; the others are advice.
            let line = stderr.lines().next().unwrap_or_default().to_owned();
            Err(RecordError::Ended { code, line })
        }
    }
}
