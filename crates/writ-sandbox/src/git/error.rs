//! The reasons why something was not done with a repository.

use std::path::PathBuf;

use writ_types::error::{Exit, Report, ToReport};

use crate::host::HostError;

/// The most characters of git's own message that an error carries; both ends are whole.
const MESSAGE_MAX: usize = 1_000;

/// The reason why git did not do what it was asked. Nothing of the user's was changed.
#[derive(Debug, thiserror::Error)]
pub enum GitFault {
    /// Git could not be started or was stopped.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The installed git is too old.
    #[error("git {found} is too old: version 2.38 or later can merge without a work tree")]
    TooOld {
        /// Its version, as it says.
        found: String,
    },
    /// The folder is not the top of a work tree.
    #[error("{} is not the top folder of a git repository: {why}", folder.display())]
    NotRepository {
        /// The folder.
        folder: PathBuf,
        /// The reason.
        why: String,
    },
    /// The repository belongs to another user.
    #[error("the repository at {} belongs to another user", folder.display())]
    ForeignOwner {
        /// The folder.
        folder: PathBuf,
    },
    /// The repository has no work tree.
    #[error("the repository at {} is bare: it has no work tree", folder.display())]
    Bare {
        /// The folder.
        folder: PathBuf,
    },
    /// Objects of the repository are fetched when they are needed, which the harness does not do.
    #[error("the repository is a partial clone (remote '{remote}')")]
    PartialClone {
        /// The remote that has the rest.
        remote: String,
    },
    /// The branch has no commit, or does not exist.
    #[error("the branch '{branch}' has no commit")]
    NoCommit {
        /// The branch.
        branch: String,
    },
    /// A name cannot be used.
    #[error("'{name}' cannot be a name: {why}")]
    BadName {
        /// The name.
        name: String,
        /// The reason.
        why: &'static str,
    },
    /// A reference of that name, or one that excludes it, exists.
    #[error("the name '{name}' is taken")]
    Taken {
        /// The name.
        name: String,
    },
    /// A reference is not where it was expected.
    #[error("a reference has moved: {what}")]
    Moved {
        /// Git's words about it.
        what: String,
    },
    /// Another process holds a lock file, or one that ended has left it.
    #[error("git's lock {} exists", path.display())]
    Locked {
        /// The lock file.
        path: PathBuf,
    },
    /// Another process uses this repository for the autopilot.
    #[error("the repository is in use by {holder}")]
    InUse {
        /// The process, as it has written itself down.
        holder: String,
    },
    /// The path of a workspace leads out of the folder of workspaces.
    #[error("the path {} leads out of {}", path.display(), root.display())]
    SymlinkEscape {
        /// The path.
        path: PathBuf,
        /// The folder.
        root: PathBuf,
    },
    /// The folder of a workspace cannot be made or used.
    #[error("the workspace {} cannot be made: {why}", path.display())]
    Creation {
        /// The folder.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// The work holds a repository of its own; a commit would leave its files out.
    #[error("{} is a repository of its own: its files would not be in the commit", path.display())]
    NestedRepository {
        /// The folder.
        path: PathBuf,
    },
    /// The content of a file that Git LFS stores was put in the place of its pointer.
    #[error("{} is stored by Git LFS, and has content in place of its pointer", path.display())]
    LargeFile {
        /// The file.
        path: PathBuf,
    },
    /// The disk is full, or cannot be written.
    #[error("the repository cannot be written: {said}")]
    Unwritable {
        /// Git's words about it.
        said: String,
    },
    /// There is no remote of that name, or its address is one that is not pushed to.
    #[error("the remote '{name}' is not pushed to: {why}")]
    NoRemote {
        /// The name, or the address without credentials.
        name: String,
        /// The reason.
        why: &'static str,
    },
    /// The other repository has something else in that branch.
    #[error("the branch '{branch}' of the other repository has commits that this one lacks")]
    PushRejected {
        /// The branch.
        branch: String,
    },
    /// The other side does not permit it, or knows no such repository.
    #[error("the other repository refused the push: {said}")]
    RemoteRefused {
        /// Git's words about it.
        said: String,
    },
    /// The other side was not reached, or broke off.
    #[error("the other repository was not reached: {said}")]
    RemoteUnreachable {
        /// Git's words about it.
        said: String,
    },
    /// Git refused for another reason.
    #[error("git could not {doing} (exit {code}): {said}")]
    Failed {
        /// The step.
        doing: &'static str,
        /// Its exit code.
        code: i32,
        /// Its message, bounded.
        said: String,
    },
    /// A file of the harness in the repository's `writ` folder.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
}

impl GitFault {
    /// Makes the error of a git that ended badly, by the English texts that `LC_ALL=C` has.
    pub(crate) fn from_message(doing: &'static str, code: i32, said: &str) -> Self {
        let said = shorten_message(said.trim());
        let names = |part: &str| said.contains(part);
        if names("Unable to create '") && names(".lock': File exists") {
            return Self::Locked { path: between(&said, "Unable to create '", "': File exists").into() };
        }
        if names("but expected") || names("unable to resolve reference") {
            return Self::Moved { what: said };
        }
        if names("reference already exists") || names("exists; cannot create") {
            let name = between(&said, "cannot lock ref '", "'").to_owned();
            return Self::Taken { name };
        }
        let unwritable = ["No space left on device", "Read-only file system", "Disk quota exceeded"];
        let unwritable = unwritable.into_iter().chain([
            "unable to write",
            "unable to create temporary file",
            "insufficient permission for adding an object",
            "File too large",
        ]);
        if unwritable.into_iter().any(names) {
            return Self::Unwritable { said };
        }
        Self::Failed { doing, code, said }
    }

    /// Makes the error of one of our own files, which says if the disk is full.
    pub(crate) fn from_io(path: impl Into<PathBuf>, source: std::io::Error) -> Self {
        let path = path.into();
        if is_full(&source) {
            return Self::Unwritable { said: format!("{}: {source}", path.display()) };
        }
        Self::Io { path, source }
    }
}

/// True if an error says that the disk is full or cannot be written.
pub(crate) fn is_full(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    matches!(error.kind(), StorageFull | ReadOnlyFilesystem | QuotaExceeded)
}

/// The text between two marks, or an empty one.
fn between<'a>(text: &'a str, from: &str, to: &str) -> &'a str {
    let after = text.split_once(from).map_or("", |(_, after)| after);
    after.split_once(to).map_or("", |(between, _)| between)
}

/// A message with both ends whole: the cause is often in the last line.
fn shorten_message(text: &str) -> String {
    let chars = text.chars().count();
    if chars <= MESSAGE_MAX {
        return text.to_owned();
    }
    let half = MESSAGE_MAX / 2;
    let start: String = text.chars().take(half).collect();
    let end: String = text.chars().skip(chars - half).collect();
    format!("{start} … {end}")
}

impl ToReport for GitFault {
    // tidy: table
    fn report(&self) -> Report {
        let text = self.to_string();
        match self {
            Self::Host(error) => error.report(),
            Self::TooOld { .. } => {
                Report::new(Exit::Config, "git.too_old", text).with_hint("install a newer git")
            }
            Self::NotRepository { .. } => Report::new(Exit::Usage, "git.not_repository", text)
                .with_hint("name the top folder of a work tree, or make one with `git init`"),
            Self::ForeignOwner { .. } => Report::new(Exit::Denied, "git.foreign_owner", text)
                .with_hint("run as its owner: the configuration of another user's repository is not trusted"),
            Self::Bare { .. } => Report::new(Exit::Usage, "git.bare", text)
                .with_hint("name one of its work trees, or add one with `git worktree add`"),
            Self::PartialClone { .. } => Report::new(Exit::Blocked, "git.partial_clone", text).with_hint(
                "fetch the rest with `git fetch --refetch --no-filter`, and unset remote.NAME.promisor",
            ),
            Self::NoCommit { .. } => Report::new(Exit::Blocked, "git.no_commit", text)
                .with_hint("make a first commit, or name another target branch"),
            Self::BadName { .. } => Report::new(Exit::Usage, "git.name", text),
            Self::Taken { .. } => Report::new(Exit::Blocked, "git.taken", text)
                .with_hint("rename that branch or remove it: nothing is overwritten"),
            Self::NoRemote { .. } => Report::new(Exit::Config, "git.no_remote", text)
                .with_hint("name a remote with an https address as `pilot.ship.remote`"),
            Self::PushRejected { .. } => Report::new(Exit::Blocked, "git.push_rejected", text)
                .with_hint("look at that branch there; nothing of it is overwritten"),
            Self::RemoteRefused { .. } => Report::new(Exit::Denied, "git.remote_refused", text)
                .with_hint("give the token of `pilot.ship` the right to push to this repository"),
            Self::RemoteUnreachable { .. } => Report::new(Exit::Blocked, "git.remote_unreachable", text)
                .with_hint("try again when the other side is there"),
            Self::Moved { .. } => Report::new(Exit::Blocked, "git.moved", text)
                .with_hint("try again: the work is done anew from the newest base"),
            Self::Locked { .. } => Report::new(Exit::Blocked, "git.locked", text).with_hint(
                "end the other git; if none runs, one was killed: remove the lock file and try again",
            ),
            Self::InUse { .. } => {
                Report::new(Exit::Blocked, "git.in_use", text).with_hint("wait for the other one, or end it")
            }
            Self::SymlinkEscape { .. } => Report::new(Exit::Denied, "workspace.symlink_escape", text)
                .with_hint("remove the link: workspaces lie in their own folder"),
            Self::Creation { .. } => Report::new(Exit::Blocked, "workspace.creation_failed", text)
                .with_hint("look at the folder: its rights, and what lies there already"),
            Self::NestedRepository { .. } => Report::new(Exit::Verification, "git.nested_repository", text)
                .with_hint("remove its .git folder, or make it a submodule by hand"),
            Self::LargeFile { .. } => Report::new(Exit::Verification, "git.large_file", text)
                .with_hint("add it with git-lfs by hand: filters do not run here"),
            Self::Unwritable { .. } => Report::new(Exit::Blocked, "git.unwritable", text)
                .with_hint("free space or allow writing, then try again: nothing was changed"),
            Self::Failed { .. } => {
                Report::new(Exit::Blocked, "git.failed", text).with_hint("`git fsck` checks the repository")
            }
            Self::Io { .. } => Report::new(Exit::Blocked, "git.file", text)
                .with_hint("look at the rights of the `writ` folder in the git directory"),
        }
    }
}
