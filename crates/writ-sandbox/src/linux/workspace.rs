//! The work folder of one session: an overlay of its project, kept on the host and mounted anew for every command.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tokio::sync::OwnedMutexGuard;
use writ_policy::permit::Permit;
use writ_types::action::{Action, Exec, ExecProfile, Place};
use writ_types::unit::Timestamp;

use super::init::{INNER_HOME, WORK};
use super::run::{Finished, Launch};
use super::spec::{Access, Event, Job, MESSAGE_MAX, Walls, Work};
use super::worker::{Reply, Request};
use super::{Inner, Sandbox, WriteLock, carry, copy, toolchain, upper};
use crate::apply::{Applied, ApplyError};
use crate::changes::ChangeSet;
use crate::config::WorkspaceConfig;
use crate::error::SandboxError;
use crate::exec::{Ending, ExecOptions, ExecResult};
use crate::file::{FILE_TIME_MAX_MS, FileFault, Peeked, ReadResult, Written};

/// The most bytes that arguments and environment may have together: half of what Linux takes by default.
const ARGUMENTS_MAX: usize = 1024 * 1024;
/// The most bytes of standard input.
const STDIN_MAX: usize = 16 * 1024 * 1024;

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
        for name in ["upper", "work", "home", "tree", "scratch"] {
            make_folder(&dir.join(name))?;
        }
        let project = config.project.map(|project| self.inner.project(&project, &dir)).transpose()?;
        let mut workspace = Workspace {
            write: self.inner.lock_of(&dir),
            sandbox: Arc::clone(&self.inner),
            layout: if project.is_some() { Layout::Overlay } else { Layout::Empty },
            dir,
            project,
        };
        workspace.choose_layout(walls).await?;
        Ok(workspace)
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

    /// The lock that all handles on one folder share.
    fn lock_of(&self, dir: &Path) -> WriteLock {
        let mut locks = self.locks.lock().unwrap_or_else(PoisonError::into_inner);
        locks.retain(|_, lock| lock.strong_count() > 0);
        if let Some(lock) = locks.get(dir).and_then(std::sync::Weak::upgrade) {
            return lock;
        }
        let lock = WriteLock::default();
        locks.insert(dir.to_owned(), Arc::downgrade(&lock));
        lock
    }
}

impl Workspace {
    /// The folder that programs see as `/work`: where on this rung they really find it.
    ///
    /// # Errors
    ///
    /// If nothing can be confined here.
    pub async fn root(&self) -> Result<PathBuf, SandboxError> {
        let (walls, _) = self.sandbox.walls().await?;
        Ok(self.outside(walls, Path::new(WORK)))
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
    /// sandbox cannot be made. A program that is not there is no error: [`Ending::NotFound`].
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

    /// Reads, lists or searches: [`Action::ReadFile`].
    ///
    /// # Errors
    ///
    /// If the permit is too old or for something else, if there is no such file, or if the sandbox cannot be made.
    pub async fn read(&self, permit: Permit, now: Timestamp) -> Result<ReadResult, SandboxError> {
        let action = permit.open(now)?.prepared.action;
        let found = action.kind();
        let Action::ReadFile(read) = action else { return Err(SandboxError::WrongAction { found }) };
        let reply = self.ask(Request::Read(read)).await?;
        let Reply::Read(result) = reply else { return Err(nonsense(&reply)) };
        Ok(result)
    }

    /// Writes or deletes one file of the overlay: [`Action::WriteFile`] with [`Place::Overlay`].
    ///
    /// # Errors
    ///
    /// If the permit is too old or for something else, if the file is not what the change was made for, or if the
    /// sandbox cannot be made.
    pub async fn write(&self, permit: Permit, now: Timestamp) -> Result<Written, SandboxError> {
        let action = permit.open(now)?.prepared.action;
        let found = action.kind();
        let Action::WriteFile(write) = action else { return Err(SandboxError::WrongAction { found }) };
        if write.place != Place::Overlay {
            return Err(SandboxError::WrongAction { found });
        }
        let [change] = <[_; 1]>::try_from(write.changes)
            .map_err(|_| FileFault::Unsupported { why: "it is not one change".into() })?;
        let reply = self.ask(Request::Write { change, content: write.content }).await?;
        let Reply::Written(written) = reply else { return Err(nonsense(&reply)) };
        Ok(written)
    }

    /// Looks at a file, so that a change to it can be prepared. Reads only, in the sandbox: no permit is needed.
    ///
    /// # Errors
    ///
    /// If it is not a file, too large, outside, or if the sandbox cannot be made.
    pub async fn peek(&self, path: &str) -> Result<Option<Peeked>, SandboxError> {
        let reply = self.ask(Request::Peek(path.to_owned())).await?;
        let Reply::Peek(found) = reply else { return Err(nonsense(&reply)) };
        let Some(found) = found else { return Ok(None) };
        let bytes = hex::decode(&found.content).map_err(|_| nonsense(&"digits"))?;
        Ok(Some(Peeked { digest: found.digest, bytes, executable: found.executable }))
    }

    /// What the session changed. Reads only, on the host, by directory handle: no permit is needed.
    ///
    /// # Errors
    ///
    /// If the folders cannot be read.
    pub async fn changes(&self) -> Result<ChangeSet, SandboxError> {
        let (view, lock) = (self.view(), Arc::clone(&self.write).lock_owned().await);
        blocking("read the changes", move || {
            let _held = lock;
            upper::changes(&view)
        })
        .await
    }

    /// The changes as a unified text diff, for people. Binary files are told by size and digest.
    ///
    /// # Errors
    ///
    /// If the folders cannot be read.
    pub async fn unified(&self, changes: &ChangeSet) -> Result<String, SandboxError> {
        let (view, changes) = (self.view(), changes.clone());
        let lock = Arc::clone(&self.write).lock_owned().await;
        blocking("read the changes", move || {
            let _held = lock;
            upper::unified(&view, &changes)
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
        self.carry(write.changes).await
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
            for name in ["upper", "work", "home", "tree", "scratch"] {
                copy::remove(&dir.join(name))?;
                make_folder(&dir.join(name)).map_err(|why| io::Error::other(why.to_string()))?;
            }
            if view.layout == Layout::Copy { copy::make(&view) } else { Ok(()) }
        })
        .await
    }

    /// What the host's side of diff and apply works on.
    fn view(&self) -> upper::View {
        upper::View { dir: self.dir.clone(), project: self.project.clone(), layout: self.layout }
    }

    pub(crate) async fn carry(
        &self,
        changes: Vec<writ_types::action::FileChange>,
    ) -> Result<Applied, ApplyError> {
        let (view, lock) = (self.view(), Arc::clone(&self.write).lock_owned().await);
        let done = tokio::task::spawn_blocking(move || {
            let _held = lock;
            carry::apply(&view, &changes)
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
            match self.ask(Request::Peek(".writ-probe".into())).await {
                Ok(_) | Err(SandboxError::File(_)) => return Ok(()),
                Err(SandboxError::Setup { stage, why }) if stage == "overlay" => {
                    tracing::warn!(why, "no overlay can be mounted on the project: it is copied");
                }
                Err(other) => return Err(other),
            }
        }
        self.layout = Layout::Copy;
        if copied {
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
        let config = &self.sandbox.config;
        let verify = exec.profile == ExecProfile::Verification;
        let hold = Arc::clone(&self.write).lock_owned().await;
        let access = if verify { Access::Scratch } else { Access::Write };
        let snapshot = (verify && walls == Walls::Reduced).then(|| self.dir.join("scratch/snapshot"));
        let mut spec = self.sandbox.spec(walls, Job::Exec(exec.argv), self.work(access, snapshot.as_deref()));
        spec.home = (!verify || walls == Walls::Reduced)
            .then(|| self.dir.join(if verify { "scratch" } else { "home" }));
        spec.scratch = self.dir.join("scratch");
        spec.cwd = self.resolve(walls, &exec.cwd, snapshot.as_deref());
        spec.env = self.env(walls, verify, exec.env);
        if let Some(snapshot) = snapshot.clone() {
            let tree = self.dir.join("tree");
            blocking("copy the work", move || copy::refresh(&tree, &snapshot)).await?;
        }
        let launch = Launch {
            spec,
            stdin: exec.stdin,
            time: Duration::from_millis(exec.timeout_ms.clamp(1, config.time_max_ms)),
            memory: config.memory_max,
            keep: config.output_max,
            kill_above: config.output_kill,
            disk: Some((
                ["upper", "home", "tree", "scratch"].map(|name| self.dir.join(name)).into(),
                config.overlay_max,
            )),
            options,
            hold: Some(hold),
        };
        result(self.sandbox.run(launch).await?, rung)
    }

    /// Asks the worker. Readers share the folder; a writer has it for itself.
    pub(crate) async fn ask(&self, request: Request) -> Result<Reply, SandboxError> {
        let (walls, _) = self.sandbox.walls().await?;
        let writes = matches!(request, Request::Write { .. });
        let hold: Option<OwnedMutexGuard<()>> =
            if writes { Some(Arc::clone(&self.write).lock_owned().await) } else { None };
        let access = if writes { Access::Write } else { Access::Read };
        let mut spec = self.sandbox.spec(walls, Job::Worker(request), self.work(access, None));
        spec.binds.clear();
        spec.home_binds.clear();
        spec.scratch = self.dir.join("scratch");
        spec.cwd = self.outside(walls, Path::new(WORK));
        let launch = Launch {
            spec,
            stdin: None,
            time: Duration::from_millis(FILE_TIME_MAX_MS),
            memory: self.sandbox.config.memory_max,
            keep: u64::from(MESSAGE_MAX),
            kill_above: u64::from(MESSAGE_MAX),
            disk: None,
            options: ExecOptions::default(),
            hold,
        };
        let finished = self.sandbox.run(launch).await?;
        if let Some(limit) = finished.limit {
            return Err(SandboxError::Stopped { why: limit.as_str().to_owned() });
        }
        if let Event::SetupFailed(fault) = finished.event {
            return Err(SandboxError::Setup { stage: fault.stage, why: fault.why });
        }
        // The worker has read hostile files: what it says is data of a known shape or nothing.
        match serde_json::from_slice(&finished.stdout.bytes) {
            Ok(Reply::Fault(fault)) => Err(fault.into()),
            Ok(reply) => Ok(reply),
            Err(_) => Err(nonsense(&finished.event)),
        }
    }

    /// What is seen at `/work`.
    fn work(&self, access: Access, snapshot: Option<&Path>) -> Work {
        match (self.layout, &self.project, snapshot) {
            (Layout::Overlay, Some(project), _) => {
                Work::Overlay { project: project.clone(), layers: self.dir.clone(), access }
            }
            (_, _, Some(snapshot)) => Work::Folder { path: snapshot.to_owned(), access: Access::Write },
            (Layout::Overlay | Layout::Copy | Layout::Empty, _, None) => {
                Work::Folder { path: self.dir.join("tree"), access }
            }
        }
    }

    /// Where a path inside really is on this rung.
    fn outside(&self, walls: Walls, inside: &Path) -> PathBuf {
        self.resolve(walls, &inside.to_string_lossy(), None)
    }

    fn resolve(&self, walls: Walls, inside: &str, snapshot: Option<&Path>) -> PathBuf {
        let inside = Path::new(inside);
        if walls == Walls::Full {
            return inside.to_owned();
        }
        let tree = snapshot.map_or_else(|| self.dir.join("tree"), Path::to_owned);
        match (inside.strip_prefix(WORK), inside.strip_prefix("/tmp")) {
            (Ok(below), _) => tree.join(below),
            (_, Ok(below)) => self.dir.join("scratch").join(below),
            (Err(_), Err(_)) => inside.to_owned(),
        }
    }

    /// The environment of a program.
    fn env(
        &self,
        walls: Walls,
        verify: bool,
        own: std::collections::BTreeMap<String, String>,
    ) -> Vec<(String, String)> {
        let home = match (walls, verify) {
            (Walls::Full, _) => INNER_HOME.to_owned(),
            (Walls::Reduced, true) => self.dir.join("scratch").display().to_string(),
            (Walls::Reduced, false) => self.dir.join("home").display().to_string(),
        };
        let mut env = std::collections::BTreeMap::from([
            ("PATH".to_owned(), self.sandbox.toolchains.path.clone()),
            ("HOME".to_owned(), home),
        ]);
        if !verify {
            let tmp = if walls == Walls::Full {
                "/tmp".to_owned()
            } else {
                self.dir.join("scratch").display().to_string()
            };
            let fixed = [
                ("LANG", "C.UTF-8"),
                ("TERM", "dumb"),
                ("USER", "agent"),
                ("LOGNAME", "agent"),
                ("SHELL", "/bin/sh"),
            ];
            env.extend(fixed.map(|(name, value)| (name.to_owned(), value.to_owned())));
            env.insert("TMPDIR".to_owned(), tmp);
            let rustup = self.sandbox.toolchains.rustup_home.as_ref();
            env.extend(rustup.map(|path| ("RUSTUP_HOME".to_owned(), path.display().to_string())));
            env.extend(own);
        }
        env.into_iter().collect()
    }
}

/// Whether a command can be started as it is written.
fn check(exec: &Exec) -> Result<(), SandboxError> {
    let bad = |why: &str| Err(SandboxError::BadCommand { why: why.to_owned() });
    let texts = exec.argv.iter().chain(exec.env.keys()).chain(exec.env.values());
    let mut bytes = 0_usize;
    for text in texts.chain([&exec.cwd]) {
        if text.contains('\0') {
            return bad("it holds a zero byte");
        }
        bytes = bytes.saturating_add(text.len() + 1);
    }
    if bytes > ARGUMENTS_MAX {
        return bad("its arguments are too long");
    }
    if exec.argv.first().is_none_or(String::is_empty) {
        return bad("it names no program");
    }
    if !exec.cwd.starts_with('/') {
        return bad("its working directory is not absolute");
    }
    if exec.env.keys().any(|name| name.is_empty() || name.contains('=')) {
        return bad("a variable has no proper name");
    }
    if exec.stdin.as_ref().is_some_and(|text| text.len() > STDIN_MAX) {
        return bad("its input is too long");
    }
    if !exec.hosts.is_empty() {
        return bad("this sandbox has no network, and it asks for some");
    }
    if exec.profile == ExecProfile::Verification && !exec.env.is_empty() {
        return bad("a verification gets PATH and HOME only");
    }
    Ok(())
}

/// What a finished job means for the caller.
fn result(finished: Finished, rung: crate::status::Rung) -> Result<ExecResult, SandboxError> {
    let ending = match (finished.limit, finished.event) {
        (Some(limit), _) => Ending::Killed { limit },
        (None, Event::Exited(code)) => Ending::Exited { code },
        (None, Event::Signalled(signal)) => Ending::Signalled { signal },
        (None, Event::ExecFailed(libc::ENOENT | libc::ENOTDIR)) => Ending::NotFound,
        (None, Event::ExecFailed(_)) => Ending::NotExecutable,
        (None, Event::SetupFailed(fault)) if fault.stage == "working directory" => {
            return Err(SandboxError::BadCommand { why: format!("working directory: {}", fault.why) });
        }
        (None, Event::SetupFailed(fault)) => {
            return Err(SandboxError::Setup { stage: fault.stage, why: fault.why });
        }
    };
    Ok(ExecResult {
        ending,
        stdout: finished.stdout.output(),
        stderr: finished.stderr.output(),
        duration_ms: u64::try_from(finished.duration.as_millis()).unwrap_or(u64::MAX),
        rung,
    })
}

/// Runs file work of the host beside the async threads.
async fn blocking<T: Send + 'static>(
    doing: &'static str,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, SandboxError> {
    let lost = |why: tokio::task::JoinError| workspace(doing, why.into());
    tokio::task::spawn_blocking(work).await.map_err(lost)?.map_err(|why| workspace(doing, why))
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

/// The worker said something that it cannot have meant.
fn nonsense(found: &impl std::fmt::Debug) -> SandboxError {
    let why = super::worker::cut(&format!("{found:?}"), 200).to_owned();
    SandboxError::Helper { doing: "reply", why }
}
