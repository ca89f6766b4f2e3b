//! The work folder of one session: an overlay of its project, stored on the host and mounted anew for every
//! command.

pub(crate) mod back;
mod files;
pub(crate) mod locks;
mod programs;
mod repository;

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::OwnedMutexGuard;
use tokio_util::sync::CancellationToken;
use writ_policy::permit::Permit;
use writ_types::action::{Action, FileChange, Place};
use writ_types::id::AttemptId;
use writ_types::unit::Timestamp;

use self::locks::{FolderLocks, WriteLock};
use crate::apply::{AppliedChanges, ApplyError};
use crate::blocking::{folder_error, run_blocking};
use crate::changes::{ChangeSet, Diff};
use crate::config::{SandboxConfig, ShownFolder, WorkspaceConfig};
use crate::error::SandboxError;
use crate::project::view::{FOLDERS, Layout, View};
use crate::project::{carry, copy, private, upper};
use crate::runner::{Folders, GitMount, OVERLAY_STAGE, Runner};
use crate::status::Rung;

pub use self::back::forget_back;

/// The parts of a sandbox that its work folders share.
#[derive(Debug)]
pub(crate) struct SandboxParts {
    pub(crate) config: SandboxConfig,
    /// The owner's home: its private parts are no project.
    pub(crate) home: Option<PathBuf>,
    pub(crate) runner: Arc<dyn Runner>,
    locks: FolderLocks,
}

impl SandboxParts {
    pub(crate) fn new(config: SandboxConfig, home: Option<PathBuf>, runner: Arc<dyn Runner>) -> Self {
        Self { config, home, runner, locks: FolderLocks::default() }
    }

    /// Returns the project's canonical path, if it may be worked on.
    pub(crate) fn project(&self, project: &Path, dir: &Path) -> Result<PathBuf, SandboxError> {
        let refuse = |why: &str| SandboxError::Project { why: why.to_owned() };
        let project = project.canonicalize().map_err(|_| refuse("it is not there"))?;
        if !project.is_dir() {
            return Err(refuse("it is not a folder"));
        }
        // Its own session would be part of the diff, and our database within reach.
        if dir.starts_with(&project) {
            return Err(refuse("it holds Writ's own data"));
        }
        if !private::may_be_shown(&project, self.home.as_deref()) {
            return Err(refuse("it holds a home, credentials or parts of the system: choose a folder below"));
        }
        Ok(project)
    }
}

/// A session's work folder. Clones are the same folder.
#[derive(Clone, Debug)]
pub struct Workspace {
    shared: Arc<SandboxParts>,
    dir: PathBuf,
    project: Option<PathBuf>,
    shown: Option<ShownFolder>,
    layout: Layout,
    write: WriteLock,
    /// Ends waiting for the lock.
    cancel: CancellationToken,
}

impl Workspace {
    /// Opens a session's work folder, making it when it is not there and programs can be run.
    pub(crate) async fn open(
        shared: Arc<SandboxParts>,
        config: WorkspaceConfig,
    ) -> Result<Self, SandboxError> {
        let rung = match shared.runner.rung().await {
            Ok(rung) => Some(rung),
            // An earlier engine may have left work in it; a new folder would be of no use.
            Err(SandboxError::Refused { .. }) if config.data_dir.is_dir() => None,
            Err(other) => return Err(other),
        };
        make_folder(&config.data_dir)?;
        let dir = config.data_dir.canonicalize().map_err(|why| folder_error("find the folder", why))?;
        for name in FOLDERS {
            make_folder(&dir.join(name))?;
        }
        let project = config.project.map(|project| shared.project(&project, &dir)).transpose()?;
        // The lock belongs to the canonical path: every handle on this folder shares it.
        let mut workspace = Self {
            write: shared.locks.lock_of(&dir),
            cancel: CancellationToken::new(),
            shared,
            layout: if project.is_some() { Layout::Overlay } else { Layout::Empty },
            dir,
            project,
            shown: config.shown,
        };
        workspace.choose_layout(rung).await?;
        if let Err(why) = repository::find_repository(&workspace) {
            tracing::warn!(%why, "git finds no repository in the sandbox");
        }
        Ok(workspace)
    }

    /// Returns the same folder, for work that does not wait for others who use the folder once `cancel` is cancelled:
    /// then it ends with [`SandboxError::Cancelled`] or [`ApplyError::Cancelled`], and nothing was done. A folder that is
    /// free is used even then; a program has a token of its own.
    #[must_use]
    pub fn until(&self, cancel: &CancellationToken) -> Self {
        Self { cancel: cancel.clone(), ..self.clone() }
    }

    /// Waits for the folder; `None`: cancelled.
    async fn lock_folder(&self) -> Option<OwnedMutexGuard<()>> {
        tokio::select! {
            biased;
            held = Arc::clone(&self.write).lock_owned() => Some(held),
            () = self.cancel.cancelled() => None,
        }
    }

    /// Returns the folders that a run in this folder sees.
    fn run_folders(&self, git: Option<GitMount>) -> Folders {
        Folders {
            session: self.dir.clone(),
            project: self.project.clone(),
            shown: self.shown.clone(),
            layout: self.layout,
            git,
        }
    }

    /// The folder that programs see as `/work`: where on this rung they begin.
    ///
    /// # Errors
    ///
    /// If nothing can be confined here.
    pub async fn root_inside(&self) -> Result<PathBuf, SandboxError> {
        let runner = &self.shared.runner;
        Ok(runner.root(runner.rung().await?, &self.run_folders(None)))
    }

    /// The project's canonical path: the `root` of what [`apply`](Self::apply_changes) performs.
    pub fn project(&self) -> Option<&Path> {
        self.project.as_deref()
    }

    /// Returns true if the project is a copy, because no overlay can be mounted on it.
    pub fn is_copy(&self) -> bool {
        self.layout == Layout::Copy
    }

    /// Reads the changes of the session, on the host, by directory handle: no permit is needed.
    ///
    /// # Errors
    ///
    /// If the folders cannot be read, or it was cancelled.
    pub async fn read_changes(&self) -> Result<ChangeSet, SandboxError> {
        let (view, lock) = (self.session_view(), self.lock_folder().await.ok_or(SandboxError::Cancelled)?);
        run_blocking("read the changes", move || {
            let _held = lock;
            upper::read_changes(&view)
        })
        .await
    }

    /// Reads the changes of the session for people, who do not wait for a program that has the folder for an hour: after `wait` they are
    /// read while it works, and need not be of one moment.
    ///
    /// # Errors
    ///
    /// As [`Self::read_changes`], and if a file changes while it is read.
    pub async fn read_changes_within(&self, wait: Duration) -> Result<ChangeSet, SandboxError> {
        let view = self.session_view();
        let lock = match tokio::time::timeout(wait, self.lock_folder()).await {
            Ok(held) => Some(held.ok_or(SandboxError::Cancelled)?),
            Err(_elapsed) => None,
        };
        run_blocking("read the changes", move || {
            let _held = lock;
            upper::read_changes(&view)
        })
        .await
    }

    /// Reads the changes of the session, with a unified diff for people: both of one moment, under one lock.
    ///
    /// # Errors
    ///
    /// If the folders cannot be read, the project changes meanwhile, or it was cancelled.
    pub async fn read_diff(&self) -> Result<Diff, SandboxError> {
        let (view, lock) = (self.session_view(), self.lock_folder().await.ok_or(SandboxError::Cancelled)?);
        run_blocking("read the changes", move || {
            let _held = lock;
            upper::show_diff(&view, upper::read_changes(&view)?)
        })
        .await
    }

    /// Brings changes into the project: [`Action::WriteFile`] with [`Place::Project`] and no content. Every file is
    /// checked and staged before the first is renamed; run again after a crash, it finishes.
    ///
    /// # Errors
    ///
    /// If the permit is too old or for something else, if the project or the overlay is not what was approved, or if
    /// a file cannot be written.
    pub async fn apply_changes(&self, permit: Permit, now: Timestamp) -> Result<AppliedChanges, ApplyError> {
        // The attempt names the folder: the way back belongs to it alone.
        let keep = back::back_folder(&self.dir, permit.attempt());
        let changes = self.permitted_changes(permit, now)?;
        self.carry_changes(self.session_view(), changes, Some(keep)).await
    }

    /// The changes that a permit allows in this project.
    fn permitted_changes(&self, permit: Permit, now: Timestamp) -> Result<Vec<FileChange>, ApplyError> {
        let action = permit.open(now)?.prepared.action;
        let found = action.kind();
        let Action::WriteFile(write) = action else { return Err(ApplyError::WrongAction { found }) };
        // Content comes from the session's folder, never with the action.
        if write.place != Place::Project || write.content.is_some() {
            return Err(ApplyError::WrongAction { found });
        }
        // A project with a name that is not UTF-8 matches no permit.
        let ours = self.project.as_deref().and_then(Path::to_str);
        if ours != Some(write.root.as_str()) {
            return Err(ApplyError::WrongProject);
        }
        Ok(write.changes)
    }

    /// Forgets everything that the session changed and did not apply, and its home.
    ///
    /// # Errors
    ///
    /// If the folders cannot be emptied.
    pub async fn discard_changes(&self) -> Result<(), SandboxError> {
        let _held = self.write.lock().await;
        let (view, dir) = (self.session_view(), self.dir.clone());
        run_blocking("forget the changes", move || {
            for name in FOLDERS {
                copy::remove_tree(&dir.join(name))?;
                make_folder(&dir.join(name)).map_err(|why| io::Error::other(why.to_string()))?;
            }
            if view.layout == Layout::Copy { copy::copy_project(&view) } else { Ok(()) }
        })
        .await
    }

    /// Returns the view for the host's side of diff and apply.
    pub(crate) fn session_view(&self) -> View {
        View {
            dir: self.dir.clone(),
            project: self.project.clone(),
            layout: self.layout,
            own_modes: false,
            top: repository::find_repository(self).ok().flatten().map(|found| found.top),
        }
    }

    /// Brings changes from what a view has into the project, one such thing at a time.
    pub(crate) async fn carry_changes(
        &self,
        from: View,
        changes: Vec<FileChange>,
        keep: Option<PathBuf>,
    ) -> Result<AppliedChanges, ApplyError> {
        let (ours, lock) = (self.session_view(), self.lock_folder().await.ok_or(ApplyError::Cancelled)?);
        let done = tokio::task::spawn_blocking(move || {
            let _held = lock;
            // On a blocking thread with the lock: dropping the future does not stop half way.
            let applied = carry::apply_changes(&from, &changes, keep.as_deref());
            let kept = applied.as_ref().is_ok_and(|applied| !applied.back.is_empty());
            if let Some(folder) = keep.as_deref().and_then(Path::parent).filter(|_| !kept) {
                // An incomplete copy is useless. If it cannot be removed now, it is removed when it is old.
                let _ = copy::remove_tree(folder);
            }
            let applied = applied?;
            back::note_reverted(&ours, &from, &changes)?;
            Ok(applied)
        });
        let lost =
            |why: tokio::task::JoinError| ApplyError::Io { path: ".".into(), done: 0, source: why.into() };
        done.await.map_err(lost)?
    }

    /// Finds out if an overlay can be mounted on this project, and copies it where not. Without a rung nothing runs here, and
    /// nothing is written: the layout is that of the engine which last did.
    async fn choose_layout(&mut self, rung: Option<Rung>) -> Result<(), SandboxError> {
        if self.layout == Layout::Empty {
            return Ok(());
        }
        let copied = self.dir.join(copy::BASE).exists();
        let Some(rung) = rung else {
            self.layout = if copied { Layout::Copy } else { Layout::Overlay };
            return Ok(());
        };
        if !copied && rung == Rung::Full {
            match self.probe_overlay().await {
                Ok(()) | Err(SandboxError::File(_)) => return Ok(()),
                // The session's changes lie in its upper layer: a copy would not show them.
                Err(SandboxError::Setup { stage, why })
                    if stage == OVERLAY_STAGE && !has_entries(&self.dir.join("upper")) =>
                {
                    tracing::warn!(why, "no overlay can be mounted on the project: it is copied");
                }
                Err(other) => return Err(other),
            }
        }
        self.layout = Layout::Copy;
        // Another handle may have copied it meanwhile.
        let _held = self.lock_folder().await.ok_or(SandboxError::Cancelled)?;
        if self.dir.join(copy::BASE).exists() {
            return Ok(());
        }
        let view = self.session_view();
        run_blocking("copy the project", move || copy::copy_project(&view)).await
    }

    /// Undoes what an attempt has brought into the project: [`Action::WriteFile`] with the changes that
    /// [`AppliedChanges::back`] named. A file that was changed since is a conflict, and then nothing is written.
    ///
    /// # Errors
    ///
    /// As [`Self::apply_changes`].
    pub async fn revert_changes(
        &self,
        permit: Permit,
        now: Timestamp,
        of: AttemptId,
    ) -> Result<AppliedChanges, ApplyError> {
        let changes = self.permitted_changes(permit, now)?;
        let view = back::back_view(&self.dir, self.project.clone(), of);
        let applied = self.carry_changes(view, changes, None).await?;
        // The undo is done and cannot fail any more. Copies that are left are removed when they are old.
        if let Err(error) = forget_back(&self.dir, of).await {
            tracing::warn!(%error, "the stored copies for undo were not removed");
        }
        Ok(applied)
    }

    /// Reads the changes that undoing an attempt would make in the project as it is now, with a unified diff
    /// for people.
    ///
    /// # Errors
    ///
    /// If the stored files are missing, or the project was changed since.
    pub async fn diff_back(&self, of: AttemptId, changes: &[FileChange]) -> Result<Diff, SandboxError> {
        let view = back::back_view(&self.dir, self.project.clone(), of);
        let lock = self.lock_folder().await.ok_or(SandboxError::Cancelled)?;
        let changes = ChangeSet { changes: changes.to_vec(), ..ChangeSet::default() };
        run_blocking("read the stored copies", move || {
            let _held = lock;
            upper::show_diff(&view, changes)
        })
        .await
    }
}

/// Returns true if a folder is there and has an entry.
fn has_entries(folder: &Path) -> bool {
    fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some())
}

/// Makes a folder that only we may enter.
fn make_folder(path: &Path) -> Result<(), SandboxError> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(|why| folder_error("make a folder", why))
}
