//! A running sandbox, seen from the host: it is started, given its job and killed, and its first process reports about it.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream as StdStream;
use std::sync::Arc;
use std::time::Duration;

use nix::sys::socket::{Shutdown, shutdown};
use serde::Serialize;
use tokio::io::unix::AsyncFd;
use tokio::net::UnixStream;
use tokio::sync::OwnedMutexGuard;

use super::pool::RefillOrder;
use super::slot::{Slot, Slots};
use super::spec::{self, InitMessage, JobEnd, LENGTH, SandboxBase, Spec, Walls};
use super::zygote::{self, helper_error};
use super::{sys, tree};
use crate::error::SandboxError;

/// The longest message of a sandbox's first process, in bytes.
const SAID_MAX: usize = 64 * 1024;
/// The bytes of one read: most messages are shorter.
const BLOCK: usize = 1024;
/// The time in which a sandbox without a pid namespace (the second rung) must end its own processes, before the host kills the rest.
const SWEEP_GRACE: Duration = Duration::from_secs(1);

/// A running sandbox. Dropping it kills everything in it; only then is its folder released.
#[derive(Debug)]
pub(crate) struct LiveSandbox {
    pid: i32,
    pidfd: Arc<AsyncFd<OwnedFd>>,
    walls: Walls,
    control: ControlSocket,
    slots: Arc<Slots>,
    slot: Option<Slot>,
    /// Held until every process of the job has ended: its overlay is not mounted from then on.
    hold: Option<OwnedMutexGuard<()>>,
    again: Option<RefillOrder>,
}

impl LiveSandbox {
    /// Starts a sandbox without waiting; messages that are sent meanwhile are queued.
    pub(crate) async fn start_sandbox(slots: &Arc<Slots>, base: &SandboxBase) -> Result<Self, SandboxError> {
        let (control, theirs) = StdStream::pair().map_err(|why| helper_error("control", &why))?;
        let slot = slots.fork_sandbox(base.walls, theirs.as_fd())?;
        // While this process has a copy open, the end of the sandbox would never be noticed.
        drop(theirs);
        Self::from_fork(slots, base, control, slot).await
    }

    /// As above, on a thread that may block, because a zygote may have to be started first.
    pub(crate) async fn make_aside(slots: &Arc<Slots>, base: &SandboxBase) -> Result<Self, SandboxError> {
        let (control, theirs) = StdStream::pair().map_err(|why| helper_error("control", &why))?;
        let (aside, walls) = (Arc::clone(slots), base.walls);
        let forked = tokio::task::spawn_blocking(move || aside.fork_sandbox(walls, theirs.as_fd()));
        let slot = forked.await.map_err(|why| helper_error("request", &why.into()))??;
        Self::from_fork(slots, base, control, slot).await
    }

    async fn from_fork(
        slots: &Arc<Slots>,
        base: &SandboxBase,
        control: StdStream,
        slot: Slot,
    ) -> Result<Self, SandboxError> {
        control.set_nonblocking(true).map_err(|why| helper_error("control", &why))?;
        let control =
            ControlSocket(UnixStream::from_std(control).map_err(|why| helper_error("control", &why))?);
        let (pid, pidfd) = zygote::child_of(&control.0).await?;
        let alive = Self {
            pid,
            pidfd: Arc::new(pidfd),
            walls: base.walls,
            control,
            slots: Arc::clone(slots),
            slot: Some(slot),
            hold: None,
            again: None,
        };
        // Read only now: the message of the zygote must come before those of the child.
        alive.control.write_all(&encode_frame(base)?).await;
        Ok(alive)
    }

    /// Stores a lock that is held until the sandbox ends, and a request to be carried out then.
    pub(crate) fn hold_until_end(&mut self, hold: Option<OwnedMutexGuard<()>>, again: Option<RefillOrder>) {
        self.hold = hold;
        self.again = again;
    }

    /// Releases the lock early if no job was begun, because the folder is then not mounted for long.
    pub(crate) fn let_go(&mut self, event: &JobEnd) -> Option<OwnedMutexGuard<()>> {
        let moved = matches!(event, JobEnd::SetupFailed(fault) if fault.stage == spec::SetupFault::MOVED);
        if moved { self.hold.take() } else { None }
    }

    /// Returns the socket on which its first process talks to us.
    pub(crate) const fn control_socket(&self) -> &ControlSocket {
        &self.control
    }

    /// Returns the first process and the CPU time of all processes, if a control group measures it.
    pub(crate) fn computed_time(&self) -> (i32, Option<Duration>) {
        (self.pid, self.slot.as_ref().and_then(Slot::computed_time))
    }

    /// Its process id, if no control group limits it.
    pub(crate) fn unlimited_pid(&self) -> Option<i32> {
        (!self.slot.as_ref().is_some_and(Slot::is_limited)).then_some(self.pid)
    }

    /// Returns true if the kernel killed a process because memory ran out.
    pub(crate) fn out_of_memory(&self) -> bool {
        self.slot.as_ref().is_some_and(Slot::out_of_memory)
    }

    /// Returns true if its first process has ended.
    pub(crate) fn is_gone(&self) -> bool {
        sys::has_ended(self.pidfd.get_ref().as_fd())
    }

    /// Waits for the end of the first process.
    pub(crate) async fn gone(&self) {
        self.exit_handle().gone().await;
    }

    /// Returns a handle for waiting until the first process has ended.
    pub(crate) fn exit_handle(&self) -> ProcessHandle {
        ProcessHandle(Arc::clone(&self.pidfd))
    }

    /// Kills everything inside.
    fn kill_all(&self) {
        match self.walls {
            // The kernel kills the whole pid namespace with its first process.
            Walls::Full => {
                let _ = sys::send_signal(self.pidfd.get_ref().as_fd(), libc::SIGKILL);
            }
            // The first process sweeps when it notices that the other end is closed.
            Walls::Reduced => {
                let _ = shutdown(self.control.0.as_raw_fd(), Shutdown::Both);
            }
        }
    }

    /// Kills the rest of the sandbox and its zygote, and waits for the end of both.
    pub(crate) async fn end_all(mut self) {
        self.kill_and_wait().await;
        drop(self.slot.take());
    }

    /// Kills all processes and waits. On the second rung the host kills those that the first process has not ended.
    pub(crate) async fn kill_and_wait(&self) {
        self.kill_all();
        // On the first rung the kernel ends all processes at once; the loop is for the second.
        while tokio::time::timeout(SWEEP_GRACE, self.gone()).await.is_err() {
            for pid in tree::descendant_pids(self.pid) {
                let _ = nix::sys::signal::kill(
                    nix::unistd::Pid::from_raw(pid),
                    nix::sys::signal::Signal::SIGKILL,
                );
            }
            let _ = sys::send_signal(self.pidfd.get_ref().as_fd(), libc::SIGKILL);
        }
    }
}

impl Drop for LiveSandbox {
    fn drop(&mut self) {
        let (slot, hold, again) = (self.slot.take(), self.hold.take(), self.again.take());
        self.kill_all();
        let (handle, slots) = (self.exit_handle(), Arc::clone(&self.slots));
        // Without a runtime the slot is dropped, and its zygote takes the sandbox with it.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                handle.gone().await;
                drop(hold);
                slot.into_iter().for_each(|slot| slots.give_back(slot));
                drop(slots);
                again.into_iter().for_each(RefillOrder::fill_pool);
            });
        }
    }
}

/// The socket between the host and the first process of a sandbox.
#[derive(Debug)]
pub(crate) struct ControlSocket(pub(crate) UnixStream);

impl ControlSocket {
    /// Sends the job and the three streams. A first process that has died is noticed later, because it sends no answer.
    pub(crate) async fn send_job(&self, words: JobFrames, streams: [OwnedFd; 3]) {
        if !self.write_all(&words.setup).await {
            return;
        }
        // The descriptors travel with the first bytes of the order.
        let (length, body) = words.order.split_at_checked(LENGTH).unwrap_or_default();
        let borrowed = streams.each_ref().map(AsFd::as_fd);
        let sent = self.0.async_io(tokio::io::Interest::WRITABLE, || {
            zygote::send_descriptors(self.0.as_fd(), length, &borrowed)
        });
        let sent = sent.await.is_ok();
        // Our copies must go, or the streams would never end.
        drop(streams);
        if sent {
            self.write_all(body).await;
        }
    }

    /// Returns true if everything was sent.
    pub(crate) async fn write_all(&self, mut rest: &[u8]) -> bool {
        while !rest.is_empty() {
            if self.0.writable().await.is_err() {
                return false;
            }
            match self.0.try_write(rest) {
                Ok(written) => rest = rest.get(written..).unwrap_or_default(),
                Err(why) if why.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return false,
            }
        }
        true
    }

    /// Asks every process of the job to end.
    pub(crate) async fn ask_to_end(&self) {
        self.write_all(&[spec::TERMINATE]).await;
    }
}

/// The messages for a sandbox, ready to be sent.
#[derive(Debug)]
pub(crate) struct JobFrames {
    setup: Vec<u8>,
    order: Vec<u8>,
}

impl JobFrames {
    /// Encodes the message.
    pub(crate) fn of(spec: &Spec) -> Result<Self, SandboxError> {
        Ok(Self { setup: encode_frame(&spec.setup)?, order: encode_frame(&spec.order)? })
    }
}

/// A handle for waiting until a first process ends.
#[derive(Clone, Debug)]
pub(crate) struct ProcessHandle(Arc<AsyncFd<OwnedFd>>);

impl ProcessHandle {
    /// Waits for its end.
    pub(crate) async fn gone(&self) {
        // An error means that the descriptor is unusable: then nothing can be waited for.
        let _ = self.0.readable().await;
    }
}

pub(crate) fn encode_frame<T: Serialize>(message: &T) -> Result<Vec<u8>, SandboxError> {
    spec::encode_message(message).map_err(|why| helper_error("specification", &why))
}

/// The messages that a first process has sent so far.
#[derive(Debug, Default)]
pub(crate) struct ProcessReport {
    bytes: Vec<u8>,
    descriptor: Option<OwnedFd>,
}

impl ProcessReport {
    /// Makes a report of bytes that were read.
    pub(crate) const fn of(bytes: Vec<u8>) -> Self {
        Self { bytes, descriptor: None }
    }

    /// Returns the next message; `None` at the end, or if the bytes are not a valid message.
    pub(crate) async fn next_message(
        &mut self,
        ControlSocket(control): &ControlSocket,
    ) -> Option<InitMessage> {
        loop {
            if let Some(said) = self.split_message()? {
                return Some(said);
            }
            let mut block = [0; BLOCK];
            let received = control
                .async_io(tokio::io::Interest::READABLE, || {
                    sys::receive_descriptors(control.as_fd(), &mut block)
                })
                .await;
            let (read, descriptors) = received.ok().filter(|(read, _)| *read > 0)?;
            self.bytes.extend_from_slice(block.get(..read)?);
            self.descriptor = descriptors.into_iter().next().or(self.descriptor.take());
            // The first process may have been taken over by the program, so the size of its messages is
            // bounded.
            if self.bytes.len() > SAID_MAX {
                return None;
            }
        }
    }

    /// The descriptor that came with a message.
    pub(crate) fn take_descriptor(&mut self) -> Option<OwnedFd> {
        self.descriptor.take()
    }

    /// Takes one message from the front; `Some(None)` if it is not complete yet.
    pub(crate) fn split_message(&mut self) -> Option<Option<InitMessage>> {
        let Some(length) = self.bytes.first_chunk::<LENGTH>() else { return Some(None) };
        let end = usize::try_from(u32::from_le_bytes(*length)).ok()?.checked_add(LENGTH)?;
        if end > SAID_MAX {
            return None;
        }
        if self.bytes.len() < end {
            return Some(None);
        }
        let message: Vec<u8> = self.bytes.drain(..end).collect();
        spec::read_message(&mut message.as_slice()).ok().map(Some)
    }
}

#[cfg(test)]
impl LiveSandbox {
    /// The process ids of its zygote and its first process.
    pub(crate) fn pids(&self) -> Vec<i32> {
        self.slot.iter().map(Slot::pid).chain([self.pid]).collect()
    }
}
