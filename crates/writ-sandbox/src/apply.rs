//! Bringing changes into the project.

use writ_types::action::{ActionKind, FileChange};
use writ_types::error::{Exit, Report, ToReport};

use writ_policy::permit::PermitExpired;

/// The files that were brought into the project.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AppliedChanges {
    /// Files that were written or deleted now, by path.
    pub done: Vec<String>,
    /// Files that were as wanted already: an earlier attempt had got that far.
    pub already: Vec<String>,
    /// The changes that lead back to the project's earlier files, if all of these are stored; else empty.
    pub back: Vec<FileChange>,
}

/// The reason why changes were not applied.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// The permit is too old.
    #[error(transparent)]
    Expired(#[from] PermitExpired),
    /// The permit is for something else.
    #[error("a permit for {} cannot apply changes", found.as_str())]
    WrongAction {
        /// The action that it is for.
        found: ActionKind,
    },
    /// It waited for another use of the work folder and was cancelled before it began. Nothing was written.
    #[error("cancelled while another use of the work folder went on")]
    Cancelled,
    /// The permit names another folder than this workspace's project, or there is no project.
    #[error("the permit is for another project")]
    WrongProject,
    /// A path that no diff of ours would name.
    #[error("'{path}' cannot be applied: {why}")]
    BadPath {
        /// The path.
        path: String,
        /// The mistake in it.
        why: String,
    },
    /// The project's file or the overlay's file is not what was approved. Nothing was written.
    #[error("changed since the approval: {}", .paths.join(", "))]
    Conflict {
        /// The files.
        paths: Vec<String>,
    },
    /// The system refused. Nothing was renamed when `done` is empty.
    #[error("'{path}': {source} ({done} files were applied before it)")]
    Io {
        /// The file.
        path: String,
        /// The number of files that had been applied.
        done: usize,
        /// The error of the system.
        source: std::io::Error,
    },
}

impl ToReport for ApplyError {
    fn report(&self) -> Report {
        match self {
            Self::Expired(_) => Report::new(Exit::Denied, "sandbox.permit_expired", "the permit has expired"),
            Self::WrongAction { .. } => Report::new(Exit::Bug, "sandbox.wrong_action", self.to_string()),
            Self::Cancelled => Report::new(Exit::Interrupted, "sandbox.cancelled", self.to_string()),
            Self::WrongProject => Report::new(Exit::Denied, "apply.wrong_project", self.to_string())
                .with_hint("apply it in the project whose diff was approved"),
            Self::BadPath { .. } => Report::new(Exit::Denied, "apply.bad_path", self.to_string())
                .with_hint("`writ diff` names the files; what leads out of the project is not applied"),
            Self::Conflict { .. } => Report::new(Exit::Verification, "apply.conflict", self.to_string())
                .with_hint("look at the diff again and approve what it is now"),
            Self::Io { path, source, .. } => Report::new(
                Exit::Blocked,
                "apply.io",
                format!("'{path}' could not be written"),
            )
            .with_inside(source.to_string())
            .with_hint(
                "make the file writable or free some space, then apply again: files already applied stay",
            ),
        }
    }
}
