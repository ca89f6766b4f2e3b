//! The work folder of one session: an overlay of its project, kept on the host and mounted anew for every command.

pub(in crate::linux) mod back;
mod env;
mod files;
mod lock;
mod repository;
mod serve;

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;
use writ_policy::permit::Permit;
use writ_types::action::{Action, Exec, ExecProfile, FileChange, Place};
use writ_types::unit::Timestamp;

use super::command::{Places, check, check_network, is_lost, never_run, result};
use super::init::WORK;
use super::run::Launch;
use super::spec::{Access, Environment, GitOverlay, Job, Walls, Work};
use super::toolchain::REGISTRY;
use super::{Inner, Sandbox, WriteLock, carry, copy, folder, git, own, toolchain, upper};
use crate::apply::{Applied, ApplyError};
use crate::changes::{ChangeSet, Diff};
use crate::config::WorkspaceConfig;
use crate::error::SandboxError;
use crate::exec::{ExecOptions, ExecResult};

/// What lies in a session's folder: the overlay's two layers, the home, a folder or copy in place of an overlay, for the
/// second rung a place for temporary files and one for verification, and the layer over a git directory outside the project.
const FOLDERS: [&str; 7] = ["upper", "work", "home", "tree", "scratch", "verify", git::layer::FOLDER];

/// How the work folder is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// `upper` has what differs from the project.
    Overlay,
    /// `tree` is a copy of the project, `base.json` says of what.
    Copy,
    /// `tree` is all there is.
    Empty,
}

/// A session's work folder. Clones are the same folder.
#[derive(Clone, Debug)]
pub struct Workspace {
    sandbox: Arc<Inner>,
    dir: PathBuf,
    project: Option<PathBuf>,
    layout: Layout,
    write: WriteLock,
    /// Ends waiting for the lock.
    cancel: CancellationToken,
}

impl Sandbox {
    /// Opens a session's work folder, making it when it is not there.
    ///
    /// # Errors
    ///
    /// If nothing can be confined here, if the project may not be worked on (it holds the home, or lies in the
    /// system), or if the folder cannot be made.
    pub async fn open(&self, config: WorkspaceConfig) -> Result<Workspace, SandboxError> {
        let (walls, _) = self.inner.walls().await?;
        make_folder(&config.data_dir)?;
        let dir = config.data_dir.canonicalize().map_err(|why| workspace("find the folder", why))?;
        for name in FOLDERS {
            make_folder(&dir.join(name))?;
        }
        let project = config.project.map(|project| self.inner.project(&project, &dir)).transpose()?;
        let mut workspace = Workspace {
            write: self.inner.lock_of(&dir),
            cancel: CancellationToken::new(),
            sandbox: Arc::clone(&self.inner),
            layout: if project.is_some() { Layout::Overlay } else { Layout::Empty },
            dir,
            project,
        };
        workspace.choose_layout(walls).await?;
        workspace.say_why_git_is_not_there();
        Ok(workspace)
    }

    /// Checks the project of a work folder that is not opened yet, as [`open`](Self::open) does.
    ///
    /// # Errors
    ///
    /// If the project may not be worked on.
    pub fn check(&self, config: &WorkspaceConfig) -> Result<(), SandboxError> {
        // What is not there yet lies in what is there, and a project is there.
        let dir = config.data_dir.ancestors().find_map(|folder| folder.canonicalize().ok());
        let dir = dir.unwrap_or_else(|| config.data_dir.clone());
        config.project.as_deref().map_or(Ok(()), |project| self.inner.project(project, &dir).map(drop))
    }
}

impl Inner {
    /// The project's canonical path, if it may be worked on.
    fn project(&self, project: &Path, dir: &Path) -> Result<PathBuf, SandboxError> {
        let refuse = |why: &str| SandboxError::Project { why: why.to_owned() };
        let project = project.canonicalize().map_err(|_| refuse("it is not there"))?;
        if !project.is_dir() {
            return Err(refuse("it is not a folder"));
        }
        if dir.starts_with(&project) {
            return Err(refuse("it holds Writ's own data"));
        }
        if !toolchain::permitted(&project, self.home.as_deref()) {
            return Err(refuse("it holds a home, credentials or parts of the system: choose a folder below"));
        }
        Ok(project)
    }
}

impl Workspace {
    /// The folder that programs see as `/work`: where on this rung they begin.
    ///
    /// # Errors
    ///
    /// If nothing can be confined here.
    pub async fn root(&self) -> Result<PathBuf, SandboxError> {
        let (walls, _) = self.sandbox.walls().await?;
        let own = self.own_place().filter(|_| walls == Walls::Full);
        Ok(own.unwrap_or_else(|| self.places(walls, false).resolve(walls, WORK)))
    }

    /// Where programs see the project besides `/work`.
    fn own_place(&self) -> Option<PathBuf> {
        self.project.as_deref().and_then(own::place)
    }

    /// The project's canonical path: the `root` of what [`apply`](Self::apply) performs.
    pub fn project(&self) -> Option<&Path> {
        self.project.as_deref()
    }

    /// Whether the project is a copy, because no overlay can be mounted on it.
    pub fn is_copy(&self) -> bool {
        self.layout == Layout::Copy
    }

    /// Runs a program: [`Action::Exec`]. In the profile `Verification` it sees the work as it is now, changes are
    /// lost, and only `PATH` and `HOME` are set.
    ///
    /// # Errors
    ///
    /// If the permit is too old or for something else, if the command cannot be started as it is written, or if the
    /// sandbox cannot be made. A program that is not there is no error:
    /// [`Ending::NotFound`](crate::exec::Ending::NotFound).
    pub async fn exec(
        &self,
        permit: Permit,
        now: Timestamp,
        options: ExecOptions,
    ) -> Result<ExecResult, SandboxError> {
        let action = permit.open(now)?.prepared.action;
        let found = action.kind();
        let Action::Exec(exec) = action else { return Err(SandboxError::WrongAction { found }) };
        self.run_exec(exec, options).await
    }

    /// What the session changed. Reads only, on the host, by directory handle: no permit is needed.
    ///
    /// # Errors
    ///
    /// If the folders cannot be read, or it was cancelled.
    pub async fn changes(&self) -> Result<ChangeSet, SandboxError> {
        let (view, lock) = (self.view(), self.lock().await.ok_or(SandboxError::Cancelled)?);
        blocking("read the changes", move || {
            let _held = lock;
            upper::changes(&view)
        })
        .await
    }

    /// What the session changed, with a unified diff for people: both of one moment, under one lock.
    ///
    /// # Errors
    ///
    /// If the folders cannot be read, the project changes meanwhile, or it was cancelled.
    pub async fn diff(&self) -> Result<Diff, SandboxError> {
        let (view, lock) = (self.view(), self.lock().await.ok_or(SandboxError::Cancelled)?);
        blocking("read the changes", move || {
            let _held = lock;
            upper::diff(&view, upper::changes(&view)?)
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
    pub async fn apply(&self, permit: Permit, now: Timestamp) -> Result<Applied, ApplyError> {
        let keep = back::folder(&self.dir, permit.attempt());
        let changes = self.permitted(permit, now)?;
        self.carry(self.view(), changes, Some(keep)).await
    }

    /// The changes that a permit allows in this project.
    fn permitted(&self, permit: Permit, now: Timestamp) -> Result<Vec<FileChange>, ApplyError> {
        let action = permit.open(now)?.prepared.action;
        let found = action.kind();
        let Action::WriteFile(write) = action else { return Err(ApplyError::WrongAction { found }) };
        if write.place != Place::Project || write.content.is_some() {
            return Err(ApplyError::WrongAction { found });
        }
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
    pub async fn discard(&self) -> Result<(), SandboxError> {
        let _held = self.write.lock().await;
        let (view, dir) = (self.view(), self.dir.clone());
        blocking("forget the changes", move || {
            for name in FOLDERS {
                copy::remove(&dir.join(name))?;
                make_folder(&dir.join(name)).map_err(|why| io::Error::other(why.to_string()))?;
            }
            if view.layout == Layout::Copy { copy::make(&view) } else { Ok(()) }
        })
        .await
    }

    /// What the host's side of diff and apply works on.
    pub(crate) fn view(&self) -> upper::View {
        upper::View {
            dir: self.dir.clone(),
            project: self.project.clone(),
            layout: self.layout,
            own_modes: false,
            top: self.repository().ok().flatten().map(|found| found.top),
        }
    }

    /// Brings changes from what a view has into the project, one such thing at a time.
    pub(crate) async fn carry(
        &self,
        from: upper::View,
        changes: Vec<FileChange>,
        keep: Option<PathBuf>,
    ) -> Result<Applied, ApplyError> {
        let (ours, lock) = (self.view(), self.lock().await.ok_or(ApplyError::Cancelled)?);
        let done = tokio::task::spawn_blocking(move || {
            let _held = lock;
            let applied = carry::apply(&from, &changes, keep.as_deref());
            let kept = applied.as_ref().is_ok_and(|applied| !applied.back.is_empty());
            if let Some(folder) = keep.as_deref().and_then(Path::parent).filter(|_| !kept) {
                // What is not whole leads nowhere; what cannot be removed now goes with its age.
                let _ = copy::remove(folder);
            }
            let applied = applied?;
            back::note(&ours, &from, &changes)?;
            Ok(applied)
        });
        let lost =
            |why: tokio::task::JoinError| ApplyError::Io { path: ".".into(), done: 0, source: why.into() };
        done.await.map_err(lost)?
    }

    /// Finds out whether an overlay can be mounted on this project, and copies it where not.
    async fn choose_layout(&mut self, walls: Walls) -> Result<(), SandboxError> {
        if self.layout == Layout::Empty {
            return Ok(());
        }
        let copied = self.dir.join(copy::BASE).exists();
        if !copied && walls == Walls::Full {
            match self.probe().await {
                Ok(()) | Err(SandboxError::File(_)) => return Ok(()),
                // What the session has changed lies in its upper layer: a copy would not show it.
                Err(SandboxError::Setup { stage, why })
                    if stage == "overlay" && !has_entries(&self.dir.join("upper")) =>
                {
                    tracing::warn!(why, "no overlay can be mounted on the project: it is copied");
                }
                Err(other) => return Err(other),
            }
        }
        self.layout = Layout::Copy;
        // Whoever has opened it meanwhile may have copied it.
        let _held = self.lock().await.ok_or(SandboxError::Cancelled)?;
        if self.dir.join(copy::BASE).exists() {
            return Ok(());
        }
        let view = self.view();
        blocking("copy the project", move || copy::make(&view)).await
    }

    /// Runs a program.
    pub(crate) async fn run_exec(
        &self,
        exec: Exec,
        options: ExecOptions,
    ) -> Result<ExecResult, SandboxError> {
        check(&exec)?;
        let (walls, rung) = self.sandbox.walls().await?;
        check_network(&exec, &options, walls)?;
        if exec.profile == ExecProfile::Server {
            return Err(SandboxError::BadCommand { why: "a server is not run as a command is".into() });
        }
        let waiting = Instant::now();
        let hold = tokio::select! {
            biased;
            () = options.cancel.cancelled() => return Ok(never_run(waiting.elapsed(), rung)),
            hold = Arc::clone(&self.write).lock_owned() => hold,
        };
        if is_lost(exec.profile) && walls == Walls::Reduced {
            let (tree, fresh) = (self.dir.join("tree"), self.dir.join("verify"));
            blocking("copy the work", move || copy::refresh(&tree, &fresh)).await?;
        }
        let git = self.git_overlay(walls, exec.profile).await;
        let launch = Launch { hold: Some(hold), ..self.launch(walls, exec, options, git)? };
        result(self.sandbox.run(launch).await?, rung)
    }

    /// What is run for a command, in this folder.
    fn launch(
        &self,
        walls: Walls,
        exec: Exec,
        options: ExecOptions,
        git: Option<GitOverlay>,
    ) -> Result<Launch, SandboxError> {
        let config = &self.sandbox.config;
        let verify = is_lost(exec.profile);
        let access = if verify { Access::Scratch } else { Access::Write };
        let places = self.places(walls, verify);
        let mut spec = self.sandbox.spec(walls, Job::Exec(exec.argv), self.work(access, &places)?);
        spec.base.empty_home = verify;
        if walls == Walls::Full {
            spec.setup.home = (!verify).then(|| folder(&places.home)).transpose()?;
        } else {
            places.open_up(access, &mut spec);
            spec.order.writable.push(places.home.clone());
        }
        spec.order.cwd = places.resolve(walls, &exec.cwd);
        if walls == Walls::Full {
            spec.setup.own = self.own_place();
            spec.order.own.clone_from(&spec.setup.own);
            spec.order.writable.extend(git.as_ref().map(|git| git.at.clone()));
            spec.setup.git = git;
        }
        spec.setup.network = !exec.hosts.is_empty();
        if spec.setup.network {
            spec.setup.trust.clone_from(&options.way_out.certificate);
        }
        let mut env = self.env(&spec, verify, &places, exec.env);
        if spec.setup.network {
            for (name, value) in &options.way_out.variables {
                env.entry(name.clone()).or_insert_with(|| value.clone());
            }
        }
        spec.order.env = Environment(env.into_iter().collect());
        if spec.setup.network || has_entries(&places.home.join(REGISTRY)) {
            // What was downloaded lies in the session's home, and the host's copy would hide it.
            spec.setup.home_binds.retain(|(_, at)| at != REGISTRY);
        }
        Ok(Launch {
            spec,
            stdin: exec.stdin.map(String::into_bytes),
            time: Duration::from_millis(exec.timeout_ms.clamp(1, config.time_max_ms)),
            memory: config.memory_max,
            keep: config.output_max,
            kill_above: config.output_kill,
            disk: Some(self.disk()),
            options,
            again: !verify,
            hold: None,
            talk: None,
        })
    }

    /// The session's folders, and what they may have together.
    fn disk(&self) -> (Vec<PathBuf>, u64) {
        (FOLDERS.map(|name| self.dir.join(name)).into(), self.sandbox.config.overlay_max)
    }

    /// What is seen at `/work`.
    fn work(&self, access: Access, places: &Places) -> Result<Work, SandboxError> {
        Ok(match (self.layout, &self.project) {
            (Layout::Overlay, Some(project)) => {
                Work::Overlay { project: folder(project)?, layers: folder(&self.dir)?, access }
            }
            (Layout::Overlay | Layout::Copy | Layout::Empty, _) => {
                // Without mounts there is no scratch layer: the folder is a fresh copy instead.
                let access = if places.fresh { Access::Write } else { access };
                Work::Folder { path: folder(&places.work)?, access }
            }
        })
    }

    /// Where a job's folders lie on the host.
    fn places(&self, walls: Walls, verify: bool) -> Places {
        let fresh = verify && walls == Walls::Reduced;
        let base = self.dir.join("verify");
        if fresh {
            Places { work: base.join("work"), home: base.join("home"), scratch: base.join("home"), fresh }
        } else {
            let [work, home, scratch] = ["tree", "home", "scratch"].map(|name| self.dir.join(name));
            Places { work, home, scratch, fresh }
        }
    }
}

/// Runs file work of the host beside the async threads.
async fn blocking<T: Send + 'static>(
    doing: &'static str,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, SandboxError> {
    let lost = |why: tokio::task::JoinError| workspace(doing, why.into());
    tokio::task::spawn_blocking(work).await.map_err(lost)?.map_err(|why| workspace(doing, why))
}

/// Whether a folder is there and has something in it.
fn has_entries(folder: &Path) -> bool {
    fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some())
}

/// Makes a folder that only we may enter.
fn make_folder(path: &Path) -> Result<(), SandboxError> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(|why| workspace("make a folder", why))
}

fn workspace(doing: &str, source: io::Error) -> SandboxError {
    SandboxError::Workspace { doing: doing.to_owned(), source }
}
