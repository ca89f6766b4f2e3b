//! The files of the home that the engine writes: the profile of the owner, with its history in a repository of its own, and the
//! agent's documents, in that of the agent's folder.
//!
//! The folder of the profile is in no sandbox, and nothing in it is read back: the store has the profile that counts.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use writ_runtime::home_files::{DocumentText, HomeFileFuture, HomeFiles, ToolListText, WrittenDocument};
use writ_sandbox::host::{GitOutput, HostError, host_git};
use writ_types::action::TOOL_LIST;
use writ_types::error::{Exit, Report, ToReport as _};

use crate::config::Config;
use crate::customers::{CustomerError, read_customer};
use crate::documents::{self, DocumentFileError, replace_file};
use crate::home::{Home, make_folder};

/// The name of the profile's file.
const PROFILE: &str = "USER.md";

/// The subject of the commit of a changed profile.
const SUBJECT: &str = "digest: update user profile";

/// The generated files of a home.
#[derive(Clone, Debug)]
pub(super) struct GeneratedFiles {
    folder: PathBuf,
    documents: PathBuf,
    agent: PathBuf,
    agent_git: PathBuf,
    customers: PathBuf,
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
    pub(super) fn of_home(home: &Home, config: &Config) -> Self {
        Self {
            folder: home.root().join("generated"),
            documents: home.documents(),
            agent: home.agent(),
            agent_git: home.agent_git(),
            customers: config.customer_context_dir(),
        }
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
        commit_change(&git, (&self.folder, &self.folder.join(PROFILE)), SUBJECT).await
    }

    async fn store_document(&self, document: DocumentText<'_>) -> Result<WrittenDocument, Report> {
        let (folder, name, text) =
            (self.documents.clone(), document.name.to_owned(), document.text.to_owned());
        let is_new = in_background(move || documents::write_document(&folder, &name, &text))
            .await
            .map_err(|e| e.report())?;
        let subject = format!("docs: {} (rests on: {})", document.name, document.taint.as_str());
        let recorded = commit_change(&self.agent_git, (&self.agent, &self.documents), &subject).await;
        let note =
            recorded.err().map(|error| format!("the change of {} is not recorded: {error}", document.name));
        Ok(WrittenDocument { is_new, note })
    }

    async fn store_tool_list(&self, list: ToolListText<'_>) -> Result<Option<String>, Report> {
        let (path, text) = (self.agent.join(TOOL_LIST), list.text.to_owned());
        let target = path.clone();
        let written = tokio::task::spawn_blocking(move || replace_file(&target, text.as_bytes())).await;
        let written = written.unwrap_or_else(|_| Err(std::io::Error::other("writing it was stopped")));
        written.map_err(|error| {
            let text = format!("{}: the list of tools cannot be written: {error}", path.display());
            Report::new(Exit::Blocked, "tools.list_file", text)
                .with_hint("check the space, the owner and the mode of the folder")
        })?;
        let recorded = commit_change(&self.agent_git, (&self.agent, &path), list.subject).await;
        Ok(recorded.err().map(|error| format!("the change of {TOOL_LIST} is not recorded: {error}")))
    }

    async fn store_index(&self) -> Result<(), Report> {
        let folder = self.documents.clone();
        in_background(move || documents::write_index(&folder)).await.map_err(|error| error.report())
    }
}

/// Runs a work on documents where it may wait for the disk.
async fn in_background<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, DocumentFileError> + Send + 'static,
) -> Result<T, DocumentFileError> {
    let stopped = |_| {
        let source = std::io::Error::other("the engine ends");
        Err(DocumentFileError::Io { path: PathBuf::from("docs"), source })
    };
    tokio::task::spawn_blocking(work).await.unwrap_or_else(stopped)
}

/// Commits what is below a path of a work tree, if it differs from the last commit.
async fn commit_change(git: &Path, (tree, path): (&Path, &Path), subject: &str) -> Result<(), RecordError> {
    let tree = format!("--work-tree={}", tree.display());
    let path = path.display().to_string();
    run(git, &["--git-dir=.", &tree, "add", "--", &path]).await?;
    // The owner's own name and settings have no part in a record that no person has made.
    let names = ["-c", "user.name=writ", "-c", "user.email=writ@localhost", "--git-dir=."];
    let message = format!("--message={subject}");
    let compare = ["--git-dir=.", &tree, "diff", "--cached", "--quiet", "--", &path];
    if git_output(git, &compare).await?.code == 0 {
        return Ok(());
    }
    run(git, &[&names[..], &[&tree, "commit", "--quiet", &message, "--", &path]].concat()).await
}

impl HomeFiles for GeneratedFiles {
    fn write_profile<'a>(&'a self, text: &'a str) -> HomeFileFuture<'a, Option<String>> {
        Box::pin(self.store_profile(text))
    }

    fn documents(&self) -> Option<PathBuf> {
        Some(self.documents.clone())
    }

    fn index_documents(&self) -> HomeFileFuture<'_, ()> {
        Box::pin(self.store_index())
    }

    fn write_document<'a>(&'a self, document: DocumentText<'a>) -> HomeFileFuture<'a, WrittenDocument> {
        Box::pin(self.store_document(document))
    }

    fn customer_context<'a>(&'a self, name: &'a str) -> HomeFileFuture<'a, BTreeMap<String, String>> {
        let (folder, name) = (self.customers.clone(), name.to_owned());
        Box::pin(async move {
            let reading = tokio::task::spawn_blocking(move || read_customer(&folder, &name)).await;
            let stopped = |_| Err(CustomerError::Io(std::io::Error::other("reading it was stopped")));
            reading.unwrap_or_else(stopped).map_err(|error| error.report())
        })
    }

    fn write_tool_list<'a>(&'a self, list: ToolListText<'a>) -> HomeFileFuture<'a, Option<String>> {
        Box::pin(self.store_tool_list(list))
    }
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
