//! One job from the host's side: asks the zygote, feeds and reads the streams, watches the limits, and kills.

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe;
use tokio::sync::{Notify, OwnedMutexGuard, mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::alive::{JobFrames, LiveSandbox, ProcessReport};
use super::pool::SandboxPool;
use super::spec::{InitMessage, JobEnd, SetupFault, Spec};
use super::zygote::helper_error;
use super::{disk, network, tree};
use crate::error::SandboxError;
use crate::exec::{EndTimes, ExecOptions, Limit, Listener, PROXY_PORT, Piece, Stream};
use crate::runner::{StreamCapture, Talk};

/// The bytes of one read from a stream.
const BLOCK: usize = 64 * 1024;
/// The time between two measurements of the overlay.
const DISK_EVERY: Duration = Duration::from_secs(1);
/// The time between two measurements of memory and processes where no control group limits them.
const TREE_EVERY: Duration = Duration::from_millis(200);
/// The time that a stream may stay open after the sandbox ended: only on the second rung can a process still
/// hold it.
const STREAM_GRACE: Duration = Duration::from_secs(2);

/// A job and its limits.
pub(crate) struct Launch {
    pub(crate) spec: Spec,
    pub(crate) stdin: Option<Vec<u8>>,
    pub(crate) time: Duration,
    pub(crate) memory: u64,
    /// The stored beginning of each stream, in bytes.
    pub(crate) keep: u64,
    /// Bytes of one stream that end the job.
    pub(crate) kill_above: u64,
    /// Folders on the host that may together have so many bytes.
    pub(crate) disk: Option<(Vec<PathBuf>, u64)>,
    pub(crate) options: ExecOptions,
    /// True if more of this kind will be asked for soon.
    pub(crate) again: bool,
    /// Held until every process of the job has ended: its overlay is not mounted from then on.
    pub(crate) hold: Option<OwnedMutexGuard<()>>,
    /// The client of the job while it runs: gets its standard input and output, of which nothing is stored
    /// then.
    pub(crate) talk: Option<oneshot::Sender<Talk>>,
}

/// The end of a job.
#[derive(Debug)]
pub(crate) struct JobResult {
    pub(crate) event: JobEnd,
    pub(crate) limit: Option<Limit>,
    pub(crate) stdout: StreamCapture,
    pub(crate) stderr: StreamCapture,
    pub(crate) duration: Duration,
}

/// Runs a job to its end: in a sandbox that is ready, else in one that is made for it.
pub(crate) async fn run_job(pool: &Arc<SandboxPool>, mut launch: Launch) -> Result<JobResult, SandboxError> {
    let began = Instant::now();
    // A client gets the streams once: there is no second try for a sandbox with moved folders.
    let ready = if launch.talk.is_some() { None } else { pool.take_ready(&launch.spec.base) };
    let was_ready = ready.is_some();
    let alive = match ready {
        Some(alive) => alive,
        None => LiveSandbox::start_sandbox(pool.zygote_slots(), &launch.spec.base).await?,
    };
    let finished = drive_job(alive, &mut launch, pool, began).await?;
    let moved = matches!(&finished.event, JobEnd::SetupFailed(fault) if fault.stage == SetupFault::MOVED);
    if !(was_ready && moved) {
        return Ok(finished);
    }
    // The host mounted something since it was made; nothing was begun in it.
    let alive = LiveSandbox::start_sandbox(pool.zygote_slots(), &launch.spec.base).await?;
    drive_job(alive, &mut launch, pool, began).await
}

/// Has a sandbox do its job.
async fn drive_job(
    mut alive: LiveSandbox,
    launch: &mut Launch,
    pool: &Arc<SandboxPool>,
    began: Instant,
) -> Result<JobResult, SandboxError> {
    let input = launch.stdin.is_some() || launch.talk.is_some();
    let mut streams = Streams::new(input).map_err(|why| helper_error("streams", &why))?;
    let (stdin, stdout) = streams.take_ours(launch.talk.take());
    alive.hold_until_end(launch.hold.take(), launch.again.then(|| pool.again(&launch.spec.base)));
    // Encoded before anything is sent: half a message would be the end of the sandbox.
    let words = JobFrames::of(&launch.spec)?;
    let (options, disk) = (&launch.options, launch.disk.clone());
    let watchdog = alive.unlimited_pid().map(|pid| (pid, launch.memory, launch.spec.base.limits.processes));
    let over = Notify::new();
    let done = CancellationToken::new();
    let bounds = async {
        tokio::select! {
            () = options.kill.cancelled() => Limit::Cancelled,
            () = tokio::time::sleep(launch.time) => Limit::Time,
            () = over.notified() => Limit::Output,
            limit = watch_disk(disk) => limit,
            limit = watch_tree(watchdog) => limit,
        }
    };
    let listener = options.network.as_ref().filter(|_| !launch.spec.setup.ports.is_empty());
    let supervise = async {
        let (mut bounds, mut word) = (pin!(bounds), pin!(last_word(&alive, listener)));
        let (limit, event) = tokio::select! {
            biased;
            event = &mut word => (None, Some(event)),
            () = options.cancel.cancelled() => {
                let ended = tokio::select! {
                    ended = await_end(&alive, word.as_mut(), options.end) => ended,
                    _ = &mut bounds => None,
                };
                (Some(Limit::Cancelled), ended)
            }
            limit = &mut bounds => (Some(limit), None),
        };
        if event.is_none() {
            alive.kill_and_wait().await;
        }
        done.cancel();
        (limit, event.flatten())
    };
    let capture = |pipe, stream| {
        let bounds = Bounds { keep: launch.keep, kill_above: launch.kill_above };
        capture_stream(pipe, stream, bounds, &over, options.output.clone(), &done)
    };
    let ((limit, event), (), stdout, stderr, ()) = tokio::join!(
        supervise,
        alive.control_socket().send_job(words, streams.theirs),
        capture(stdout, Stream::Stdout),
        capture(Some(streams.stderr), Stream::Stderr),
        feed_stdin(stdin, launch.stdin.as_deref(), &done),
    );
    // The kernel kills one process for want of memory; its parent may then end with any code.
    let starved = event != Some(JobEnd::Exited(0)) && alive.out_of_memory();
    let limit = limit.or(starved.then_some(Limit::Memory));
    let event = event.or(limit.map(|_| JobEnd::Signalled(libc::SIGKILL)));
    let event = event.ok_or_else(|| helper_error("report", &io::ErrorKind::UnexpectedEof.into()))?;
    launch.hold = alive.let_go(&event);
    Ok(JobResult { event, limit, stdout, stderr, duration: began.elapsed() })
}

/// Gives a job that is cancelled its times to end. `None`: it has not ended.
async fn await_end(
    alive: &LiveSandbox,
    mut word: Pin<&mut impl Future<Output = Option<JobEnd>>>,
    times: EndTimes,
) -> Option<Option<JobEnd>> {
    if times == EndTimes::default() {
        return None;
    }
    if let Ok(event) = tokio::time::timeout(times.grace, word.as_mut()).await {
        return Some(event);
    }
    alive.control_socket().ask_to_end().await;
    tokio::time::timeout(times.kill, word.as_mut()).await.ok()
}

/// Returns the first process's report of the job, after which no process is left in it. `None`: it ended
/// without one.
async fn last_word(alive: &LiveSandbox, listener: Option<&mpsc::Sender<Listener>>) -> Option<JobEnd> {
    let mut report = ProcessReport::default();
    loop {
        match report.next_message(alive.control_socket()).await {
            Some(InitMessage::Ready | InitMessage::Unreached(_)) => {}
            Some(InitMessage::Listener) => {
                network::hand_over(report.take_descriptor(), &[PROXY_PORT], listener);
            }
            Some(InitMessage::Done(event)) => return Some(event),
            None => {
                alive.gone().await;
                return None;
            }
        }
    }
}

/// The three streams of a job: our ends and theirs.
struct Streams {
    stdin: Option<pipe::Sender>,
    stdout: Option<pipe::Receiver>,
    stderr: pipe::Receiver,
    theirs: [OwnedFd; 3],
}

impl Streams {
    fn new(input: bool) -> io::Result<Self> {
        let (stdin, their_in) = if input {
            let (theirs, ours) = io::pipe()?;
            (Some(pipe::Sender::from_owned_fd(ours.into())?), theirs.into())
        } else {
            // A program that reads without input gets the end at once instead of waiting.
            (None, std::fs::File::open("/dev/null")?.into())
        };
        let (stdout, their_out) = io::pipe()?;
        let (stderr, their_err) = io::pipe()?;
        Ok(Self {
            stdin,
            stdout: Some(pipe::Receiver::from_owned_fd(stdout.into())?),
            stderr: pipe::Receiver::from_owned_fd(stderr.into())?,
            theirs: [their_in, their_out.into(), their_err.into()],
        })
    }

    /// Returns the streams that are fed and read here; with a client, both are the client's.
    fn take_ours(
        &mut self,
        talk: Option<oneshot::Sender<Talk>>,
    ) -> (Option<pipe::Sender>, Option<pipe::Receiver>) {
        let (stdin, stdout) = (self.stdin.take(), self.stdout.take());
        let Some(talk) = talk else { return (stdin, stdout) };
        if let (Some(input), Some(output)) = (stdin, stdout) {
            // A client that has left has ended the job, too.
            let _taken = talk.send(Talk { input, output });
        }
        (None, None)
    }
}

/// The bounds of a stream.
#[derive(Clone, Copy)]
struct Bounds {
    keep: u64,
    kill_above: u64,
}

/// Reads a stream to its end. Bytes beyond `keep` are counted and dropped, so that no process inside ever
/// waits for us.
async fn capture_stream(
    pipe: Option<pipe::Receiver>,
    stream: Stream,
    bounds: Bounds,
    over: &Notify,
    sink: Option<mpsc::Sender<Piece>>,
    done: &CancellationToken,
) -> StreamCapture {
    let mut kept = StreamCapture::default();
    let Some(mut pipe) = pipe else { return kept };
    let mut block = vec![0; BLOCK];
    let late = async {
        // A process that escaped the second rung could hold the pipe open.
        done.cancelled().await;
        tokio::time::sleep(STREAM_GRACE).await;
    };
    let mut late = pin!(late);
    loop {
        let read = tokio::select! {
            biased;
            read = pipe.read(&mut block) => read.unwrap_or(0),
            () = &mut late => 0,
        };
        let bytes = block.get(..read).unwrap_or_default();
        if bytes.is_empty() {
            return kept;
        }
        kept.total = kept.total.saturating_add(u64::try_from(read).unwrap_or(u64::MAX));
        let room = bounds.keep.saturating_sub(u64::try_from(kept.bytes.len()).unwrap_or(u64::MAX));
        let bytes = bytes.get(..usize::try_from(room).unwrap_or(usize::MAX)).unwrap_or(bytes);
        if !bytes.is_empty() {
            kept.bytes.extend_from_slice(bytes);
            if let Some(sink) = &sink {
                // A slow listener loses pieces; the program does not wait for it.
                let _ = sink.try_send(Piece { stream, bytes: bytes.to_vec() });
            }
        }
        if kept.total > bounds.kill_above {
            over.notify_one();
        }
    }
}

/// Writes standard input. A program that does not read it is no error.
async fn feed_stdin(pipe: Option<pipe::Sender>, bytes: Option<&[u8]>, done: &CancellationToken) {
    if let (Some(mut pipe), Some(bytes)) = (pipe, bytes) {
        tokio::select! {
            _ = pipe.write_all(bytes) => {}
            () = done.cancelled() => {}
        }
    }
}

/// Ends when the folders have more bytes than they may.
async fn watch_disk(disk: Option<(Vec<PathBuf>, u64)>) -> Limit {
    let Some((folders, max)) = disk else { return std::future::pending().await };
    let mut ticks = tokio::time::interval(DISK_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    ticks.tick().await;
    loop {
        ticks.tick().await;
        let folders = folders.clone();
        let used = tokio::task::spawn_blocking(move || disk::used_bytes(&folders, max)).await;
        if used.is_ok_and(|used| used > max) {
            return Limit::Disk;
        }
    }
}

/// Ends when the processes below one are too many or have too much memory together.
pub(crate) async fn watch_tree(watch: Option<(i32, u64, u64)>) -> Limit {
    let Some((pid, memory_max, processes_max)) = watch else { return std::future::pending().await };
    let mut ticks = tokio::time::interval(TREE_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        match tokio::task::spawn_blocking(move || tree::measure_tree(pid)).await {
            Ok((processes, _)) if processes > processes_max => return Limit::Processes,
            Ok((_, memory)) if memory > memory_max => return Limit::Memory,
            Ok(_) | Err(_) => {}
        }
    }
}
