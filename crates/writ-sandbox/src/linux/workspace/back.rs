//! The way back: what a project had before changes were applied, kept beside the session's layers, where nothing in
//! its sandbox reaches.

use std::path::{Path, PathBuf};

use writ_policy::permit::Permit;
use writ_types::action::FileChange;
use writ_types::id::AttemptId;
use writ_types::unit::Timestamp;

use super::{Layout, Workspace, blocking};
use crate::apply::{Applied, ApplyError};
use crate::changes::{ChangeSet, Diff};
use crate::error::SandboxError;
use crate::linux::upper::{self, View};
use crate::linux::{beneath, carry, copy};

/// Where a session's ways back lie, in its folder; none of the folders that its sandbox is given.
const BACK: &str = "back";

/// The folder that keeps what one attempt has changed.
pub(in crate::linux) fn folder(dir: &Path, of: AttemptId) -> PathBuf {
    view(dir, None, of).written()
}

/// A way back looks like a session that has changed the project to what it was.
pub(in crate::linux) fn view(dir: &Path, project: Option<PathBuf>, of: AttemptId) -> View {
    View {
        dir: dir.join(BACK).join(of.to_string()),
        project,
        layout: Layout::Overlay,
        own_modes: true,
        top: None,
    }
}

/// A session that works on a copy takes note that the project was changed back.
pub(super) fn note(ours: &View, from: &View, changes: &[FileChange]) -> Result<(), ApplyError> {
    if ours.dir == from.dir || ours.layout != Layout::Copy {
        return Ok(());
    }
    let noted = beneath::root(&ours.written()).and_then(|written| carry::settle(ours, &written, changes));
    noted.map_err(|source| ApplyError::Io { path: ".".into(), done: changes.len(), source })
}

impl Workspace {
    /// Undoes what an attempt has brought into the project: [`Action::WriteFile`](writ_types::action::Action::WriteFile)
    /// with the changes that [`Applied::back`] named. A file that was changed since is a conflict, and then nothing is
    /// written.
    ///
    /// # Errors
    ///
    /// As [`Workspace::apply`].
    pub async fn revert(&self, permit: Permit, now: Timestamp, of: AttemptId) -> Result<Applied, ApplyError> {
        let changes = self.permitted(permit, now)?;
        let view = view(&self.dir, self.project.clone(), of);
        let applied = self.carry(view, changes, None).await?;
        // What is done cannot fail any more: what is left lying is removed with its age.
        if let Err(error) = forget_back(&self.dir, of).await {
            tracing::warn!(%error, "what was kept to undo changes was not removed");
        }
        Ok(applied)
    }

    /// What undoing an attempt would change in the project as it is now, with a unified diff for people.
    ///
    /// # Errors
    ///
    /// If what was kept is gone, or the project was changed since.
    pub async fn diff_back(&self, of: AttemptId, changes: &[FileChange]) -> Result<Diff, SandboxError> {
        let view = view(&self.dir, self.project.clone(), of);
        let lock = self.lock().await.ok_or(SandboxError::Cancelled)?;
        let changes = ChangeSet { changes: changes.to_vec(), ..ChangeSet::default() };
        blocking("read what was kept", move || {
            let _held = lock;
            upper::diff(&view, changes)
        })
        .await
    }
}

/// Forgets what a session's folder keeps of an attempt.
///
/// # Errors
///
/// If it cannot be removed.
pub async fn forget_back(data_dir: &Path, of: AttemptId) -> Result<(), SandboxError> {
    let folder = view(data_dir, None, of).dir;
    blocking("forget what was kept", move || copy::remove(&folder)).await
}
