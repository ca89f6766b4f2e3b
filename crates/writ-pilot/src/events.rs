//! The moments at which others can act: hooks, the ledger, the board.

use std::path::PathBuf;

use writ_sandbox::git::{BranchName, CommitId};

/// A moment in the life of a slice's work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GitEvent {
    /// Before a branch and its work tree are made.
    WorktreeCreate {
        /// The unit.
        unit: String,
        /// Its branch.
        branch: BranchName,
        /// The folder.
        folder: PathBuf,
    },
    /// Before a work tree is removed.
    WorktreeDelete {
        /// The unit.
        unit: String,
        /// Its branch.
        branch: BranchName,
        /// The folder.
        folder: PathBuf,
    },
    /// Before slices are merged.
    MergeReady {
        /// The units, in the order of the merge.
        units: Vec<String>,
    },
    /// A slice cannot be merged as it is: the work pauses.
    MergeConflict {
        /// The unit.
        unit: String,
        /// The files.
        files: Vec<PathBuf>,
    },
    /// The target has moved.
    TargetMoved {
        /// The target.
        target: BranchName,
        /// Its commit now.
        to: CommitId,
    },
}

/// Takes the events, in order, before what they announce happens.
pub trait GitEvents: Send + Sync + std::fmt::Debug {
    /// Takes one.
    fn take_event(&self, event: GitEvent);
}

/// Takes no notice of events.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoEvents;

impl GitEvents for NoEvents {
    fn take_event(&self, _: GitEvent) {}
}
