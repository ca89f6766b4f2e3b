//! Programs in the work folder: commands, and servers of tools that stay and are talked to.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use secrecy::ExposeSecret as _;
use tokio::sync::{OwnedMutexGuard, mpsc, oneshot};
use writ_policy::permit::Permit;
use writ_types::action::{Action, Exec, ExecProfile};
use writ_types::unit::Timestamp;

use super::{Workspace, repository};
use crate::command::{check_command, check_network, is_scratch, never_run};
use crate::error::SandboxError;
use crate::exec::{ExecOptions, ExecResult, Listener, WayOut};
use crate::runner::{FolderAccess, GitMount, RunJob, RunLimits, RunRequest};
use crate::serve::{RunningServer, ServeOptions, ServerHandle};
use crate::status::Rung;

/// The longest that a server runs: the engine that started it ends it long before (a hundred days).
const SERVER_TIME_MAX: Duration = Duration::from_secs(100 * 24 * 60 * 60);
/// The longest that a server waits for its folder.
const FOLDER_WAIT: Duration = Duration::from_secs(2);
/// The stored bytes of a server's standard error; the rest is read and dropped.
const ERRORS_MAX: u64 = 64 * 1024;

impl Workspace {
    /// Runs a program: [`Action::Exec`]. In the profile `Verification` it sees the work as it is now, changes end with
    /// it, and only `PATH` and `HOME` are set.
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
        self.run_exec(exec_of(permit, now)?, options).await
    }

    /// Starts a server: [`Action::Exec`] in the profile `Server`. It has this folder to itself until it has ended, and
    /// ends with everything that it has started when what is returned is dropped.
    ///
    /// A program that cannot be executed has started as far as this says: its streams end at once, and
    /// [`ServerHandle::wait`] says why.
    ///
    /// # Errors
    ///
    /// If the permit is too old or for something else, if the command cannot be started as it is written, if another
    /// server has the folder, or if the sandbox cannot be made.
    pub async fn serve(
        &self,
        permit: Permit,
        now: Timestamp,
        options: ServeOptions,
    ) -> Result<RunningServer, SandboxError> {
        let exec = exec_of(permit, now)?;
        if exec.profile != ExecProfile::Server || self.project().is_some() {
            return Err(SandboxError::BadCommand { why: "this is no server in a folder of its own".into() });
        }
        self.run_server(exec, options).await
    }

    pub(crate) async fn run_exec(
        &self,
        exec: Exec,
        options: ExecOptions,
    ) -> Result<ExecResult, SandboxError> {
        check_command(&exec)?;
        let runner = &self.shared.runner;
        let rung = runner.rung().await?;
        check_network(&exec, &options, rung)?;
        if exec.profile == ExecProfile::Server {
            return Err(SandboxError::BadCommand { why: "a server is not run as a command is".into() });
        }
        // The time limit is that of the program; waiting for the folder ends with the caller's
        // token.
        let waiting = Instant::now();
        let hold = tokio::select! {
            biased;
            () = options.cancel.cancelled() => return Ok(never_run(waiting.elapsed(), rung)),
            hold = Arc::clone(&self.write).lock_owned() => hold,
        };
        let git = if rung == Rung::Full { repository::git_mount(self).await } else { None };
        let request = RunRequest { hold: Some(hold), ..self.run_request_of(exec, options, git) };
        Ok(runner.run(request).await?.exec_result(rung))
    }

    /// Starts a program that is talked to and works on the project: [`Action::Exec`] in the profile `Task`, within its time. It has
    /// this folder to itself until it has ended, and ends with everything that it has started when what is returned is dropped. Its
    /// changes stay in the folder, as those of commands do.
    ///
    /// Where a channel for its way out is given, it reaches the listener that is sent there, and nothing else: its command names no
    /// host.
    ///
    /// # Errors
    ///
    /// As [`Self::serve`].
    pub async fn talk(
        &self,
        permit: Permit,
        now: Timestamp,
        network: Option<mpsc::Sender<Listener>>,
    ) -> Result<RunningServer, SandboxError> {
        self.run_talk(exec_of(permit, now)?, network).await
    }

    pub(crate) async fn run_talk(
        &self,
        exec: Exec,
        network: Option<mpsc::Sender<Listener>>,
    ) -> Result<RunningServer, SandboxError> {
        check_command(&exec)?;
        let rung = self.shared.runner.rung().await?;
        let bad = |why: &str| Err(SandboxError::BadCommand { why: why.into() });
        if exec.profile != ExecProfile::Task || !exec.hosts.is_empty() || exec.stdin.is_some() {
            return bad("a program that is talked to reads its input from its client, and reaches no host");
        }
        // Without namespaces it would have the whole network of this machine, or none.
        if network.is_some() && rung != Rung::Full {
            return bad("without namespaces there is no way out, and it needs one");
        }
        let hold = self.hold_folder().await?;
        let git = if rung == Rung::Full { repository::git_mount(self).await } else { None };
        let is_reaching = network.is_some();
        let watched = ExecOptions { network, ..ExecOptions::default() };
        let request = self.run_request_of(exec, watched, git);
        let limits = RunLimits { keep: ERRORS_MAX, kill_above: u64::MAX, ..request.limits };
        self.start_talk(RunRequest { network: is_reaching, limits, hold: Some(hold), ..request }, rung).await
    }

    pub(crate) async fn run_server(
        &self,
        mut exec: Exec,
        options: ServeOptions,
    ) -> Result<RunningServer, SandboxError> {
        check_command(&exec)?;
        put_secrets_in(&mut exec.env, &options);
        let rung = self.shared.runner.rung().await?;
        let way_out = WayOut { certificate: options.certificate, ..WayOut::default() };
        let watched = ExecOptions { network: options.network, way_out, ..ExecOptions::default() };
        check_network(&exec, &watched, rung)?;
        let hold = self.hold_folder().await?;
        let request = self.run_request_of(exec, watched, None);
        let limits =
            RunLimits { time: SERVER_TIME_MAX, keep: ERRORS_MAX, kill_above: u64::MAX, ..request.limits };
        self.start_talk(RunRequest { limits, hold: Some(hold), ..request }, rung).await
    }

    /// Takes the folder for a program that stays.
    async fn hold_folder(&self) -> Result<OwnedMutexGuard<()>, SandboxError> {
        let busy = |_| SandboxError::BadCommand { why: "another server has its folder".into() };
        // One that was killed lets go of the folder when its last process has ended.
        let hold = tokio::time::timeout(FOLDER_WAIT, Arc::clone(&self.write).lock_owned());
        hold.await.map_err(busy)
    }

    /// Starts a program and gives its input and output to its client.
    async fn start_talk(&self, request: RunRequest, rung: Rung) -> Result<RunningServer, SandboxError> {
        let (talk, talking) = oneshot::channel();
        let cancel = request.options.cancel.clone();
        let request = RunRequest { expect_more: false, talk: Some(talk), ..request };
        let shared = Arc::clone(&self.shared);
        // The guard travels with the handle: dropping that kills the server.
        let kill = cancel.clone().drop_guard();
        let task = tokio::spawn(async move { Ok(shared.runner.run(request).await?.exec_result(rung)) });
        let mut ended = ServerHandle::new(task, kill);
        match talking.await {
            Ok(talk) => Ok(RunningServer { input: talk.input, output: talk.output, ended }),
            // It could not be made, and its streams were dropped.
            Err(_dropped) => Err(match ended.wait().await {
                Err(error) => error,
                Ok(_) => SandboxError::Cancelled,
            }),
        }
    }

    /// Returns the run of a command in this folder.
    fn run_request_of(&self, exec: Exec, options: ExecOptions, git: Option<GitMount>) -> RunRequest {
        let config = &self.shared.config;
        let access = if is_scratch(exec.profile) { FolderAccess::Scratch } else { FolderAccess::Write };
        RunRequest {
            job: RunJob::Program(exec.argv),
            folders: self.run_folders(git),
            access,
            cwd: exec.cwd,
            variables: exec.env,
            network: !exec.hosts.is_empty(),
            stdin: exec.stdin.map(String::into_bytes),
            limits: RunLimits {
                time: Duration::from_millis(exec.timeout_ms.clamp(1, config.time_max_ms)),
                keep: config.output_max,
                kill_above: config.output_kill,
                disk: true,
            },
            options,
            expect_more: access == FolderAccess::Write,
            hold: None,
            talk: None,
        }
    }
}

/// Consumes the permit of a program.
fn exec_of(permit: Permit, now: Timestamp) -> Result<Exec, SandboxError> {
    let action = permit.open(now)?.prepared.action;
    let found = action.kind();
    let Action::Exec(exec) = action else { return Err(SandboxError::WrongAction { found }) };
    Ok(exec)
}

/// Puts secrets in the place of the variables that name them.
fn put_secrets_in(env: &mut BTreeMap<String, String>, options: &ServeOptions) {
    for (name, secret) in &options.secrets {
        if let Some(value) = env.get_mut(name) {
            *value = secret.expose_secret().to_owned();
        }
    }
}
