//! The zygote: a small process with one thread that forks sandboxes. It is our own binary started again with an
//! empty environment, so its memory, and that of its children, has never held a secret.
//!
//! It knows nothing of what it forks: each request is one byte and a descriptor. The child reads what it is to be by
//! itself, from the control socket that came with the request.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Stdio};

use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, UnixAddr, sendmsg, socketpair,
};
use tokio::io::unix::AsyncFd;

use super::spec::Walls;
use super::sys::{self, Forked};
use super::users::AgentUser;
use super::{init, seccomp};
use crate::error::SandboxError;

/// The second argument of our own binary when it is started as zygote.
pub(crate) const MARKER: &str = "writ-sandbox-zygote";
/// The zygote's socket: standard input.
const SOCKET_FD: i32 = 0;
/// The length of a request: one byte says which walls.
const REQUEST_LEN: usize = 1;
/// Namespaces of the first rung. The control group namespace follows after the group was joined.
const NAMESPACES: i32 = libc::CLONE_NEWUSER
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS;

// === the zygote's side ===

/// Serves until the engine's end of the socket is closed, which also happens when the engine dies.
pub(crate) fn main() -> i32 {
    let Some(socket) = sys::inherited_descriptor(SOCKET_FD) else { return 2 };
    if sys::seal_descriptors(true).is_err() {
        return 2;
    }
    let Ok(filters) = seccomp::Filters::compile_filters() else { return 3 };
    // Children watch this pipe: when its only writer, this process, has ended, they must not begin.
    let Ok((alive, held)) = io::pipe() else { return 4 };
    sys::ignore_children(true);
    sys::adopt_orphans();
    loop {
        let mut request = [0; REQUEST_LEN];
        let (length, fds) = match sys::receive_descriptors(socket.as_fd(), &mut request) {
            Ok(received) => received,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => return 5,
        };
        if length == 0 {
            return 0;
        }
        let Some(control) = fds.into_iter().next() else { continue };
        let walls = if request == [b'F'] { Walls::Full } else { Walls::Reduced };
        let flags = if walls == Walls::Full { NAMESPACES } else { 0 };
        match sys::fork_with(flags) {
            Ok(Forked::Child) => {
                drop(held);
                // The child's own descriptors begin above the three streams, which are not there yet.
                if nix::unistd::dup2_stdin(io::stdout()).is_err() {
                    return 6;
                }
                let _ = socket.into_raw_fd();
                return init::main(control, alive.as_fd(), walls, &filters);
            }
            Ok(Forked::Parent { pid, pidfd }) => answer_engine(&control, pid, Some(pidfd.as_fd())),
            Err(error) => answer_engine(&control, -error.raw_os_error().unwrap_or(libc::EIO), None),
        }
    }
}

/// Tells the engine the child's process id and hands it the child, or tells minus the error number.
fn answer_engine(control: &OwnedFd, number: i32, pidfd: Option<BorrowedFd<'_>>) {
    // When the engine does not listen any more, the child finds its control socket closed and ends.
    let _ = send_descriptors(control.as_fd(), &number.to_le_bytes(), pidfd.as_slice());
}

/// Sends bytes with descriptors.
pub(crate) fn send_descriptors(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    fds: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let raw: Vec<i32> = fds.iter().map(AsRawFd::as_raw_fd).collect();
    let rights = [ControlMessage::ScmRights(&raw)];
    let rights: &[ControlMessage<'_>] = if raw.is_empty() { &[] } else { &rights };
    sendmsg::<UnixAddr>(
        socket.as_raw_fd(),
        &[io::IoSlice::new(bytes)],
        rights,
        MsgFlags::MSG_NOSIGNAL,
        None,
    )?;
    Ok(())
}

// === the engine's side ===

/// The engine's handle on one zygote. Dropping it ends the zygote and every sandbox that it forked.
#[derive(Debug)]
pub(crate) struct Zygote {
    socket: OwnedFd,
    process: Child,
}

impl Drop for Zygote {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Zygote {
    /// Starts a zygote.
    pub(crate) fn start_zygote(
        exe: &Path,
        user: Option<&AgentUser>,
        folder: Option<BorrowedFd<'_>>,
    ) -> Result<Self, SandboxError> {
        launch_process(exe, user, folder).map_err(|why| helper_error("start", &why))
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Asks for a sandbox.
    pub(crate) fn request_fork(&self, walls: Walls, control: BorrowedFd<'_>) -> io::Result<()> {
        let request: &[u8] = match walls {
            Walls::Full => b"F",
            Walls::Reduced => b"R",
        };
        send_descriptors(self.socket.as_fd(), request, &[control])
    }
}

#[expect(clippy::disallowed_types, reason = "this crate is the one that starts processes")]
fn launch_process(
    exe: &Path,
    user: Option<&AgentUser>,
    folder: Option<BorrowedFd<'_>>,
) -> io::Result<Zygote> {
    let (ours, theirs) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)?;
    let mut command = std::process::Command::new(exe);
    let mut output = Stdio::null();
    if let Some(user) = user {
        // Also takes the other groups of this process away.
        command.uid(user.id()).gid(user.id());
        // Its lock is held as long as the zygote or a first process lives, even if this one is killed.
        output = Stdio::from(user.share_lock()?);
    }
    let folder = folder.map(|folder| folder.try_clone_to_owned()).transpose()?;
    let process = command
        .arg(MARKER)
        // Its memory must never hold a secret, and variables may be some.
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::from(theirs))
        .stdout(output)
        .stderr(folder.map_or_else(Stdio::null, Stdio::from))
        .spawn()?;
    Ok(Zygote { socket: ours, process })
}

/// Reads the zygote's answer from the control socket: the child's process id and a handle on it.
pub(crate) async fn child_of(
    control: &tokio::net::UnixStream,
) -> Result<(i32, AsyncFd<OwnedFd>), SandboxError> {
    let mut number = [0; 4];
    let (length, fds) = control
        .async_io(tokio::io::Interest::READABLE, || sys::receive_descriptors(control.as_fd(), &mut number))
        .await
        .map_err(|why| helper_error("answer", &why))?;
    let number = i32::from_le_bytes(number);
    if length != 4 {
        return Err(helper_error("answer", &io::ErrorKind::UnexpectedEof.into()));
    }
    if number < 0 {
        let why = io::Error::from_raw_os_error(-number).to_string();
        return Err(SandboxError::Setup { stage: "namespaces".into(), why });
    }
    let pidfd =
        fds.into_iter().next().ok_or_else(|| helper_error("answer", &io::ErrorKind::InvalidData.into()))?;
    let pidfd = sys::watch_process(pidfd).map_err(|why| helper_error("watch", &why))?;
    Ok((number, pidfd))
}

/// An error of the zygote.
pub(crate) fn helper_error(doing: &'static str, why: &io::Error) -> SandboxError {
    SandboxError::Helper { doing, why: why.to_string() }
}
