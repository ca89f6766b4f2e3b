//! The security proxy and the engine, each as a process of its own.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::AsyncReadExt as _;
use tokio::net::UnixStream;
use tokio::time::{Instant, sleep, timeout};
use writ_sandbox::host::{OwnChild, spawn_piped};
use writ_types::error::Exit;

use crate::context::Context;
use crate::failure::Failure;

use super::place::FleetPlace;

/// The time in which each must be ready.
const READY_TIME: Duration = Duration::from_secs(60);
/// The time in which each must end.
const END_TIME: Duration = Duration::from_secs(15);
/// The time between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// The most bytes of a log that an error shows.
const MAX_SHOWN_BYTES: usize = 2_000;

/// A process of the demo. Dropping it kills it.
struct DemoProcess {
    child: OwnChild,
    /// The file that its process id stands in.
    lock: PathBuf,
}

/// Both processes.
pub(super) struct FleetProcesses {
    /// The one that was started last is ended first.
    running: Vec<DemoProcess>,
}

impl FleetProcesses {
    pub(super) async fn start(context: &Context, place: &FleetPlace) -> Result<Self, Failure> {
        let mut processes = Self { running: Vec::new() };
        // The proxy first: the router opens its cases there.
        processes.start_one(context, "proxy", (place.proxy("lock"), &place.proxy("router.sock"))).await?;
        processes.start_one(context, "start", (context.home.lock(), &place.cases())).await?;
        Ok(processes)
    }

    /// Starts one, and waits until its socket answers.
    async fn start_one(
        &mut self,
        context: &Context,
        command: &'static str,
        (lock, socket): (PathBuf, &Path),
    ) -> Result<(), Failure> {
        let home = context.home.root().display().to_string();
        // No variable of this user reaches them but the way to programs.
        let variables = BTreeMap::from([("WRIT_HOME".to_owned(), home)]);
        let log = context.home.logs().join(format!("demo-{command}.log"));
        // Also a demo that is killed leaves none of them running.
        let parent = std::process::id().to_string();
        let child = spawn_piped(&[command.to_owned(), "--parent".to_owned(), parent], &variables, &log)?;
        self.running.push(DemoProcess { child, lock });
        let started = Instant::now();
        // A socket that is there may be one that no one listens on yet.
        while UnixStream::connect(socket).await.is_err() {
            let Some(process) = self.running.last_mut() else { break };
            let ended = process.wait_end(LOOK_EVERY).await;
            if ended || started.elapsed() > READY_TIME {
                return Err(not_ready(command, &log));
            }
        }
        Ok(())
    }

    /// Asks each to end, and waits for it.
    pub(super) async fn stop_all(&mut self, context: &Context) {
        while let Some(mut process) = self.running.pop() {
            if process.ask_to_end().is_none() || !process.wait_end(END_TIME).await {
                context.out.print_remark("a process of the demo did not end by itself, and was killed");
            }
        }
    }
}

impl DemoProcess {
    /// Sends it the order to end; `None`: its process id is not known.
    fn ask_to_end(&self) -> Option<()> {
        // The handle of a child can only kill it; the lock file names the process that can be asked.
        let pid: i32 = std::fs::read_to_string(&self.lock).ok()?.trim().parse().ok()?;
        kill(Pid::from_raw(pid), Signal::SIGTERM).ok()
    }

    /// Waits for its end, and says if it came in time: then its standard output is closed.
    async fn wait_end(&mut self, limit: Duration) -> bool {
        // Read on to the end: a full pipe would block a process that prints while it ends.
        let mut buffer = [0; 1024];
        let until_closed =
            async { while self.child.output.read(&mut buffer).await.is_ok_and(|read| read > 0) {} };
        timeout(limit, until_closed).await.is_ok()
    }
}

fn not_ready(command: &str, log: &Path) -> Failure {
    let said = std::fs::read_to_string(log).unwrap_or_default();
    // The cause stands at the end. It is cut between characters: a slice that splits one shows nothing.
    let from =
        said.char_indices().map(|(at, _)| at).find(|at| said.len().saturating_sub(*at) <= MAX_SHOWN_BYTES);
    let last = said.get(from.unwrap_or(said.len())..).unwrap_or_default().trim();
    let text = format!("`writ {command}` did not get ready: {last}");
    Failure::new(Exit::Blocked, "demo.not_ready", text, "`writ doctor` shows what this machine lacks")
}

/// Waits until a look finds something.
///
/// # Errors
///
/// If it does not within a minute, or a look fails.
pub(super) async fn wait_for<T>(
    what: &str,
    mut look: impl AsyncFnMut() -> Result<Option<T>, Failure>,
) -> Result<T, Failure> {
    let started = Instant::now();
    loop {
        if let Some(found) = look().await? {
            return Ok(found);
        }
        if started.elapsed() > READY_TIME {
            return Err(super::super::not_so(&format!("{what} within {} s", READY_TIME.as_secs())));
        }
        sleep(LOOK_EVERY).await;
    }
}
