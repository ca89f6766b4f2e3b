//! One job from the host's side: asks the zygote, feeds and reads the streams, watches the limits, and kills.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream as StdStream;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use nix::sys::socket::{Shutdown, shutdown};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::pipe;
use tokio::sync::{Notify, OwnedMutexGuard, mpsc};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::network;
use super::slot::{Slot, Slots};
use super::spec::{self, Event, Spec, Walls};
use super::zygote::{self, Parcel, helper};
use super::{disk, sys, tree};
use crate::error::SandboxError;
use crate::exec::{ExecOptions, Limit, Output, Piece, Stream};

/// How much is read from a stream at once.
const BLOCK: usize = 64 * 1024;
/// How often the overlay is measured.
const DISK_EVERY: Duration = Duration::from_secs(1);
/// How often memory and processes are measured where no control group limits them.
const TREE_EVERY: Duration = Duration::from_millis(200);
/// How long a stream may stay open after the sandbox ended: only on the second rung can somebody still hold it.
const STREAM_GRACE: Duration = Duration::from_secs(2);
/// How long the second rung's own sweep may take before the host kills what is left.
const SWEEP_GRACE: Duration = Duration::from_secs(1);

/// A job and its limits.
pub(crate) struct Launch {
    pub(crate) spec: Spec,
    pub(crate) stdin: Option<Vec<u8>>,
    pub(crate) time: Duration,
    pub(crate) memory: u64,
    /// Bytes kept of each stream.
    pub(crate) keep: u64,
    /// Bytes of one stream that end the job.
    pub(crate) kill_above: u64,
    /// Folders on the host that may together have so many bytes.
    pub(crate) disk: Option<(Vec<PathBuf>, u64)>,
    pub(crate) options: ExecOptions,
    /// Held until every process of the job is gone: its overlay is mounted no more.
    pub(crate) hold: Option<OwnedMutexGuard<()>>,
}

/// What came of it.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) event: Event,
    pub(crate) limit: Option<Limit>,
    pub(crate) stdout: Kept,
    pub(crate) stderr: Kept,
    pub(crate) duration: Duration,
}

/// What is kept of a stream.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    pub(crate) bytes: Vec<u8>,
    pub(crate) total: u64,
}

impl Kept {
    /// As text.
    pub(crate) fn output(&self) -> Output {
        let truncated = self.total > u64::try_from(self.bytes.len()).unwrap_or(u64::MAX);
        Output { text: String::from_utf8_lossy(&self.bytes).into_owned(), bytes: self.total, truncated }
    }
}

/// A sandbox that exists. Dropping it kills everything in it, and lets go of its folder only then.
struct Alive {
    pid: i32,
    pidfd: Arc<AsyncFd<OwnedFd>>,
    walls: Walls,
    control: Arc<UnixStream>,
    slots: Arc<Slots>,
    slot: Option<Slot>,
    hold: Option<OwnedMutexGuard<()>>,
    ended: bool,
}

impl Alive {
    /// Kills everything inside.
    fn kill(&self) {
        match self.walls {
            // The kernel kills the whole pid namespace with its first process.
            Walls::Full => {
                let _ = sys::kill(self.pidfd.get_ref().as_fd(), libc::SIGKILL);
            }
            // The first process sweeps when it hears that nobody listens any more.
            Walls::Reduced => {
                let _ = shutdown(self.control.as_raw_fd(), Shutdown::Both);
            }
        }
    }

    /// Waits until the first process is gone.
    async fn gone(&self) {
        // An error means that the descriptor is unusable: then nothing can be waited for.
        let _ = self.pidfd.readable().await;
    }

    /// Kills and waits. What a first process of the second rung does not sweep, the host kills.
    async fn end(&self) {
        self.kill();
        while tokio::time::timeout(SWEEP_GRACE, self.gone()).await.is_err() {
            for pid in tree::descendants(self.pid) {
                let _ = nix::sys::signal::kill(
                    nix::unistd::Pid::from_raw(pid),
                    nix::sys::signal::Signal::SIGKILL,
                );
            }
            let _ = sys::kill(self.pidfd.get_ref().as_fd(), libc::SIGKILL);
        }
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        let (slot, hold) = (self.slot.take(), self.hold.take());
        if self.ended {
            slot.into_iter().for_each(|slot| self.slots.give_back(slot));
            return;
        }
        self.kill();
        let (pidfd, slots) = (Arc::clone(&self.pidfd), Arc::clone(&self.slots));
        // Without a runtime the slot is dropped, and its zygote takes the sandbox with it.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                let _ = pidfd.readable().await;
                slot.into_iter().for_each(|slot| slots.give_back(slot));
                drop(hold);
            });
        }
    }
}

/// Runs a job to its end.
pub(crate) async fn run(slots: &Arc<Slots>, launch: Launch) -> Result<Finished, SandboxError> {
    let began = Instant::now();
    let Launch { spec, stdin, time, memory, keep, kill_above, disk, options, hold } = launch;
    let streams = Streams::new(stdin.is_some()).map_err(|why| helper("streams", &why))?;
    let (control, theirs) = StdStream::pair().map_err(|why| helper("control", &why))?;
    control.set_nonblocking(true).map_err(|why| helper("control", &why))?;
    let control = Arc::new(UnixStream::from_std(control).map_err(|why| helper("control", &why))?);
    let parcel = Parcel { control: theirs.into(), stdio: streams.theirs };
    let slot = slots.fork(spec.walls, &parcel)?;
    // Our copies must go, or the streams would never end.
    drop(parcel);
    let (pid, pidfd) = zygote::child_of(&control).await?;
    let pidfd = Arc::new(pidfd);
    let watchdog = (!slot.is_limited()).then_some((pid, memory, spec.limits.processes));
    let mut alive = Alive {
        pid,
        pidfd,
        walls: spec.walls,
        control: Arc::clone(&control),
        slots: Arc::clone(slots),
        slot: Some(slot),
        hold,
        ended: false,
    };
    tell(&control, &spec).await?;

    let over = Notify::new();
    let done = CancellationToken::new();
    let limits = async {
        tokio::select! {
            () = options.cancel.cancelled() => Limit::Cancelled,
            () = tokio::time::sleep(time) => Limit::Time,
            () = over.notified() => Limit::Output,
            limit = watch_disk(disk) => limit,
            limit = watch_tree(watchdog) => limit,
        }
    };
    let supervise = async {
        let mut limits = pin!(limits);
        let limit = tokio::select! {
            biased;
            () = alive.gone() => None,
            limit = &mut limits => { alive.end().await; Some(limit) }
        };
        done.cancel();
        limit
    };
    let capture = |pipe, stream| {
        let bounds = Bounds { keep, kill_above };
        capture(pipe, stream, bounds, &over, options.output.clone(), &done)
    };
    let listener = options.network.as_ref().filter(|_| spec.network);
    let (limit, stdout, stderr, said, ()) = tokio::join!(
        supervise,
        capture(streams.stdout, Stream::Stdout),
        capture(streams.stderr, Stream::Stderr),
        network::hand_over(&control, listener),
        feed(streams.stdin, stdin, &done),
    );
    alive.ended = true;
    let event = last_word(&control, said).await;
    let starved = alive.slot.as_ref().is_some_and(Slot::out_of_memory) && event != Some(Event::Exited(0));
    let limit = limit.or(starved.then_some(Limit::Memory));
    let event = event.or(limit.map(|_| Event::Signalled(libc::SIGKILL)));
    let event = event.ok_or_else(|| helper("report", &io::ErrorKind::UnexpectedEof.into()))?;
    Ok(Finished { event, limit, stdout, stderr, duration: began.elapsed() })
}

/// The three streams of a job: our ends and theirs.
struct Streams {
    stdin: Option<pipe::Sender>,
    stdout: pipe::Receiver,
    stderr: pipe::Receiver,
    theirs: [OwnedFd; 3],
}

impl Streams {
    fn new(input: bool) -> io::Result<Self> {
        let (stdin, their_in) = if input {
            let (theirs, ours) = io::pipe()?;
            (Some(pipe::Sender::from_owned_fd(ours.into())?), theirs.into())
        } else {
            (None, std::fs::File::open("/dev/null")?.into())
        };
        let (stdout, their_out) = io::pipe()?;
        let (stderr, their_err) = io::pipe()?;
        Ok(Self {
            stdin,
            stdout: pipe::Receiver::from_owned_fd(stdout.into())?,
            stderr: pipe::Receiver::from_owned_fd(stderr.into())?,
            theirs: [their_in, their_out.into(), their_err.into()],
        })
    }
}

/// Sends the specification. A first process that is gone already is noticed by its silence.
async fn tell(control: &UnixStream, spec: &Spec) -> Result<(), SandboxError> {
    let bytes = spec::encode(spec).map_err(|why| helper("specification", &why))?;
    let mut rest = bytes.as_slice();
    while !rest.is_empty() {
        control.writable().await.map_err(|why| helper("specification", &why))?;
        match control.try_write(rest) {
            Ok(written) => rest = rest.get(written..).unwrap_or_default(),
            Err(why) if why.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return Ok(()),
        }
    }
    Ok(())
}

/// What the first process said before it ended, after what was read already. `None`: nothing that can be understood.
async fn last_word(control: &UnixStream, mut bytes: Vec<u8>) -> Option<Event> {
    let mut block = [0; 4096];
    loop {
        match control.try_read(&mut block) {
            Ok(0) => break,
            Ok(read) => bytes.extend_from_slice(block.get(..read)?),
            // The other end is closed, so readiness comes at once.
            Err(why) if why.kind() == io::ErrorKind::WouldBlock => {
                tokio::time::timeout(STREAM_GRACE, control.readable()).await.ok()?.ok()?;
            }
            Err(_) => break,
        }
        if bytes.len() > BLOCK {
            return None;
        }
    }
    spec::read_message(&mut bytes.as_slice()).ok()
}

/// What of a stream is kept, and when it is too much.
#[derive(Clone, Copy)]
struct Bounds {
    keep: u64,
    kill_above: u64,
}

/// Reads a stream to its end. What is beyond `keep` is counted and dropped, so that nobody inside ever waits for us.
async fn capture(
    mut pipe: pipe::Receiver,
    stream: Stream,
    bounds: Bounds,
    over: &Notify,
    sink: Option<mpsc::Sender<Piece>>,
    done: &CancellationToken,
) -> Kept {
    let mut kept = Kept::default();
    let mut block = vec![0; BLOCK];
    let late = async {
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
async fn feed(pipe: Option<pipe::Sender>, bytes: Option<Vec<u8>>, done: &CancellationToken) {
    if let (Some(mut pipe), Some(bytes)) = (pipe, bytes) {
        tokio::select! {
            _ = pipe.write_all(&bytes) => {}
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
        let used = tokio::task::spawn_blocking(move || disk::used(&folders, max)).await;
        if used.is_ok_and(|used| used > max) {
            return Limit::Disk;
        }
    }
}

/// Ends when the processes below one are too many or have too much memory together.
async fn watch_tree(watch: Option<(i32, u64, u64)>) -> Limit {
    let Some((pid, memory_max, processes_max)) = watch else { return std::future::pending().await };
    let mut ticks = tokio::time::interval(TREE_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        match tokio::task::spawn_blocking(move || tree::usage(pid)).await {
            Ok((processes, _)) if processes > processes_max => return Limit::Processes,
            Ok((_, memory)) if memory > memory_max => return Limit::Memory,
            Ok(_) | Err(_) => {}
        }
    }
}
