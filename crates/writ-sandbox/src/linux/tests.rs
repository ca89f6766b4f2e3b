//! The sandbox for real: every test makes sandboxes on this machine.
//!
//! This test binary is its own zygote, by the hook in [`super::sys`]. As *scenario* it is a process of its own: an
//! engine that can be killed, or one of an ordinary user.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use writ_types::action::{ChangeKind, Exec, ExecProfile, FileChange, ReadFile, ReadMode};
use writ_types::digest::Digest;

use super::NativeRunner;
use crate::apply::{AppliedChanges, ApplyError};
use crate::changes::{ChangeSet, LeftOutReason};
use crate::config::{SandboxConfig, WorkspaceConfig};
use crate::error::SandboxError;
use crate::exec::{Ending, ExecOptions, ExecResult, Limit, Output};
use crate::file::{FileFault, ReadResult, WrittenFile};
use crate::file_request::{FileReply, FileRequest};
use crate::runner::FolderAccess;
use crate::sandbox::owner_home;
use crate::{Sandbox, Workspace};

mod kernel;

mod probes;

mod run;

mod serve;

mod files;

mod diff;

mod back;

mod host;

mod network;

mod pool;

mod agents_needs_userns;

pub(crate) use kernel::probe;

/// One mebibyte.
const MIB: u64 = 1024 * 1024;
/// The second argument of this binary as a scenario; its name and a folder follow.
const SCENARIO: &str = "writ-sandbox-scenario";
/// The longest time that a program or an end is waited for, where no test is about that time.
const PATIENCE: Duration = Duration::from_secs(120);
/// No process at all.
const NOBODY_LEFT: [i32; 0] = [];
/// An ordinary user.
const NOBODY: u32 = 65534;

/// A sandbox, a project and a session's folder.
struct Fixture {
    sandbox: Sandbox,
    native: Arc<NativeRunner>,
    project: PathBuf,
    workspace: Workspace,
    dir: PathBuf,
    _temp: Option<tempfile::TempDir>,
}

impl Fixture {
    /// Brings changes of the session into the project.
    async fn carry(&self, changes: Vec<FileChange>) -> Result<AppliedChanges, ApplyError> {
        self.workspace.carry_changes(self.workspace.session_view(), changes, None).await
    }

    async fn new() -> Self {
        Self::with(SandboxConfig::default()).await
    }

    async fn with(config: SandboxConfig) -> Self {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().canonicalize().unwrap();
        Self { _temp: Some(temp), ..Self::in_folder(config, dir).await }
    }

    /// In a folder that is there already. The project has a file, a folder with two, and a link.
    async fn in_folder(config: SandboxConfig, dir: PathBuf) -> Self {
        let (project, home) = (dir.join("project"), dir.join("home"));
        fs::create_dir_all(project.join("src")).unwrap();
        fs::create_dir_all(home.join(".ssh")).unwrap();
        fs::write(home.join(".ssh/id_ed25519"), "MARKER-KEY").unwrap();
        fs::write(home.join("marker"), "MARKER-HOME").unwrap();
        fs::write(project.join("README.md"), "one\ntwo\n").unwrap();
        fs::write(project.join("src/a.rs"), "fn a() {}\n").unwrap();
        fs::write(project.join("src/b.rs"), "fn b() {}\n").unwrap();
        std::os::unix::fs::symlink("README.md", project.join("link")).unwrap();
        let (sandbox, native) = start(config);
        let workspace = open(&sandbox, &dir.join("data"), Some(&project)).await.unwrap();
        Self { sandbox, native, project, workspace, dir, _temp: None }
    }

    async fn exec(&self, argv: &[&str]) -> ExecResult {
        self.workspace.run_exec(exec(argv), ExecOptions::default()).await.unwrap()
    }

    /// A shell script that must succeed; its output without the last line end.
    async fn sh(&self, script: &str) -> String {
        let result = self.exec(&["sh", "-c", script]).await;
        assert_eq!(result.ending, Ending::Exited { code: 0 }, "{script}: {result:?}");
        result.stdout.text.trim_end().to_owned()
    }

    /// A shell script that must fail by itself.
    async fn refused(&self, script: &str) -> ExecResult {
        let result = self.exec(&["sh", "-c", script]).await;
        assert!(matches!(result.ending, Ending::Exited { code: 1.. }), "{script}: {result:?}");
        result
    }

    async fn changes(&self) -> ChangeSet {
        self.workspace.read_changes().await.unwrap()
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.project.join(path)).unwrap()
    }
}

/// A sandbox on the native runner, with the runner.
fn start(config: SandboxConfig) -> (Sandbox, Arc<NativeRunner>) {
    let home = owner_home(&config);
    let native = Arc::new(NativeRunner::start(config.clone(), home.as_deref()).unwrap());
    (Sandbox::with_runner(config, home, Arc::clone(&native) as _), native)
}

async fn open(sandbox: &Sandbox, data: &Path, project: Option<&Path>) -> Result<Workspace, SandboxError> {
    let project = project.map(Path::to_owned);
    sandbox.open(WorkspaceConfig { data_dir: data.to_owned(), project, shown: None }).await
}

/// A program in `/work`, with time enough on a machine that is busy with other tests.
fn exec(argv: &[&str]) -> Exec {
    Exec {
        argv: argv.iter().map(|arg| (*arg).to_owned()).collect(),
        cwd: "/work".into(),
        env: Default::default(),
        stdin: None,
        timeout_ms: PATIENCE.as_millis().try_into().unwrap(),
        profile: ExecProfile::Task,
        hosts: Vec::new(),
    }
}

/// Processes on the host whose command line holds a text.
fn processes(marker: &str) -> Vec<i32> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
        .filter(|pid| *pid != i32::try_from(std::process::id()).unwrap())
        .filter(|pid| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains(marker)
        })
        .collect()
}

/// Waits until something is so.
fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let latest = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < latest, "never: {what}");
        std::thread::yield_now();
    }
}

/// A text that no other test's processes have, and a number of seconds for `sleep`.
fn marker() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("86400.{:010}{:04}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// Runs a scenario, if this process was started as one.
pub(crate) fn scenario_from_cmdline() -> Option<i32> {
    let line = fs::read_to_string("/proc/self/cmdline").ok()?;
    let args: Vec<&str> = line.split('\0').collect();
    let &[_, SCENARIO, name, dir, ..] = args.as_slice() else { return None };
    if name == "agent" {
        return Some(agents_needs_userns::scenario(dir));
    }
    if name == "detached" {
        host::detached();
        return Some(0);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(host::scenario(name, PathBuf::from(dir)));
    Some(0)
}

/// This binary as a scenario, in the name of a user.
#[expect(clippy::disallowed_types, reason = "this crate is the one that starts processes")]
fn start_scenario(name: &str, dir: &Path, user: Option<u32>) -> std::process::Child {
    use std::os::unix::process::CommandExt;
    let mut command = std::process::Command::new("/proc/self/exe");
    command.args([SCENARIO, name]).arg(dir).current_dir("/").stdout(Stdio::piped());
    if let Some(user) = user {
        command.uid(user).gid(user);
    }
    command.spawn().unwrap()
}
