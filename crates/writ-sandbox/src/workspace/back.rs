//! The way back: the project's earlier files, stored beside the session's layers, where nothing in its
//! sandbox reaches.

use std::path::{Path, PathBuf};

use writ_types::action::FileChange;
use writ_types::id::AttemptId;

use crate::apply::ApplyError;
use crate::blocking::run_blocking;
use crate::error::SandboxError;
use crate::project::view::{Layout, View};
use crate::project::{beneath, carry, copy};

/// The folder with the earlier states that a session can return to; it is not visible in the sandbox.
const BACK: &str = "back";

/// Returns the folder that keeps what one attempt has changed.
pub(crate) fn back_folder(dir: &Path, of: AttemptId) -> PathBuf {
    back_view(dir, None, of).written_folder()
}

/// Returns the view of a way back, which looks like a session that has changed the project to what it was.
pub(crate) fn back_view(dir: &Path, project: Option<PathBuf>, of: AttemptId) -> View {
    View {
        dir: dir.join(BACK).join(of.to_string()),
        project,
        layout: Layout::Overlay,
        own_modes: true,
        top: None,
    }
}

/// Records in a session that works on a copy that the project was changed back.
pub(super) fn note_reverted(ours: &View, from: &View, changes: &[FileChange]) -> Result<(), ApplyError> {
    if ours.dir == from.dir || ours.layout != Layout::Copy {
        return Ok(());
    }
    let noted = beneath::open_root(&ours.written_folder())
        .and_then(|written| carry::settle_session(ours, &written, changes));
    noted.map_err(|source| ApplyError::Io { path: ".".into(), done: changes.len(), source })
}

/// Removes what a session's folder keeps of an attempt.
///
/// # Errors
///
/// If it cannot be removed.
pub async fn forget_back(data_dir: &Path, of: AttemptId) -> Result<(), SandboxError> {
    let folder = back_view(data_dir, None, of).dir;
    run_blocking("remove the stored copies", move || copy::remove_tree(&folder)).await
}
