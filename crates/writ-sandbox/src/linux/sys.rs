//! The only `unsafe` of Writ: system calls that no safe interface offers.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use tokio::io::unix::AsyncFd;

use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};

/// The most descriptors that one message carries: three streams.
pub(crate) const FDS_MAX: usize = 3;

/// The result of [`fork_with`].
#[derive(Debug)]
pub(crate) enum Forked {
    /// In the new process.
    Child,
    /// In the old one.
    Parent {
        /// The child's process id, as the parent sees it.
        pid: i32,
        /// A handle on the child.
        pidfd: OwnedFd,
    },
}

/// Forks the calling, single-threaded process into new namespaces.
pub(crate) fn fork_with(flags: libc::c_int) -> io::Result<Forked> {
    let mut pidfd: libc::c_int = -1;
    let flags = libc::c_ulong::try_from(flags | libc::CLONE_PIDFD | libc::SIGCHLD).unwrap_or_default();
    // SAFETY: without `CLONE_VM` the child has its own memory, and with a null stack it goes on on its copy of
    // this one, as after fork(2). Callers are processes of ours with a single thread, so no lock is held by a
    // thread that the child lacks. `pidfd` outlives the call; the first three arguments have the same order on
    // every architecture.
    let pid = unsafe {
        libc::syscall(
            libc::SYS_clone,
            flags,
            std::ptr::null_mut::<libc::c_void>(),
            &raw mut pidfd,
            std::ptr::null_mut::<libc::c_void>(),
            0 as libc::c_ulong,
        )
    };
    match pid {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Forked::Child),
        pid => {
            // SAFETY: the kernel has just made this descriptor for us, and nothing else owns it.
            let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
            Ok(Forked::Parent { pid: i32::try_from(pid).unwrap_or_default(), pidfd })
        }
    }
}

/// Kills the process behind a handle. A process that has ended already is no error.
pub(crate) fn send_signal(pidfd: BorrowedFd<'_>, signal: libc::c_int) -> io::Result<()> {
    // SAFETY: plain numbers and a null pointer, which the call allows for «no further information».
    let done = unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            pidfd.as_raw_fd(),
            signal,
            std::ptr::null::<libc::siginfo_t>(),
            0 as libc::c_uint,
        )
    };
    match check_result(done) {
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(()),
        other => other.map(drop),
    }
}

/// Returns true if the process behind a handle has ended.
pub(crate) fn has_ended(pidfd: BorrowedFd<'_>) -> bool {
    let mut watch = [nix::poll::PollFd::new(pidfd, nix::poll::PollFlags::POLLIN)];
    let polled = nix::poll::poll(&mut watch, nix::poll::PollTimeout::ZERO);
    // If polling fails, waiting would fail too, so this counts as ready.
    polled.is_err() || watch.iter().any(|fd| fd.any() == Some(true))
}

/// Watches a handle on a process: it becomes readable when the process ends.
pub(crate) fn watch_process(pidfd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` names the same open file until it is dropped, and it is moved in here.
    unsafe { AsyncFd::register_with_interest(pidfd, tokio::io::Interest::READABLE) }.map_err(io::Error::from)
}

/// Opens a handle on a process that is there.
pub(crate) fn open_process(pid: i32) -> io::Result<OwnedFd> {
    // SAFETY: plain numbers.
    let fd = check_result(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) })?;
    // SAFETY: the kernel has just made this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(RawFd::try_from(fd).unwrap_or(-1)) })
}

/// Returns true if a process of a user is there, also one that has ended and is not reaped.
pub(crate) fn has_processes(user: u32) -> io::Result<bool> {
    // The raw call: what the C library returns cannot be told from an error.
    // SAFETY: plain numbers.
    match check_result(unsafe { libc::syscall(libc::SYS_getpriority, libc::PRIO_USER, user) }) {
        Err(why) if why.raw_os_error() == Some(libc::ESRCH) => Ok(false),
        other => other.map(|_| true),
    }
}

/// Receives one message with its descriptors. An empty message is the end of the connection.
pub(crate) fn receive_descriptors(
    socket: BorrowedFd<'_>,
    bytes: &mut [u8],
) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = nix::cmsg_space!([RawFd; FDS_MAX]);
    let mut parts = [io::IoSliceMut::new(bytes)];
    let message =
        recvmsg::<()>(socket.as_raw_fd(), &mut parts, Some(&mut space), MsgFlags::MSG_CMSG_CLOEXEC)?;
    let mut fds = Vec::new();
    for control in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(received) = control {
            // SAFETY: the kernel has just put these descriptors into our table, and nothing else owns them.
            fds.extend(received.into_iter().map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }));
        }
    }
    Ok((message.bytes, fds))
}

/// Takes over the descriptor that the parent process left open under this number.
///
/// Called once for each number in a process, in which nothing else owns it: the zygote's socket, the folder of a sandbox.
pub(crate) fn inherited_descriptor(fd: RawFd) -> Option<OwnedFd> {
    // SAFETY: F_GETFD has no argument and touches no memory.
    let open = unsafe { libc::fcntl(fd, libc::F_GETFD) } >= 0;
    // SAFETY: it is open, and by the contract above nothing in this process owns it.
    open.then(|| unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Lets children be reaped by the kernel (`true`) or by us (`false`).
pub(crate) fn ignore_children(ignore: bool) {
    let handler = if ignore { libc::SIG_IGN } else { libc::SIG_DFL };
    // SAFETY: no handler of ours is installed, so no code can run at a wrong moment.
    unsafe { libc::signal(libc::SIGCHLD, handler) };
}

/// Gives every signal its default meaning and unblocks all: what a program expects at its start.
pub(crate) fn reset_signals() {
    for signal in 1..=64 {
        // SAFETY: sets the default action; numbers that have none are refused by the call.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    let _ = nix::sys::signal::SigSet::empty().thread_set_mask();
}

/// Marks every descriptor above standard error as close-on-exec, or closes it.
pub(crate) fn seal_descriptors(close: bool) -> io::Result<()> {
    let flags = if close { 0 } else { libc::CLOSE_RANGE_CLOEXEC };
    // SAFETY: plain numbers. When descriptors are closed, the caller uses none above 2 afterwards.
    check_result(unsafe { libc::syscall(libc::SYS_close_range, 3 as libc::c_uint, libc::c_uint::MAX, flags) })
        .map(drop)
}

/// Makes a detached copy of the mount tree at an open folder or file.
pub(crate) fn clone_mount(of: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let flags = libc::OPEN_TREE_CLONE
        | libc::c_uint::try_from(libc::O_CLOEXEC | libc::AT_RECURSIVE | libc::AT_EMPTY_PATH)
            .unwrap_or_default();
    // SAFETY: the path is an empty C string: the descriptor alone says what.
    let fd =
        check_result(unsafe { libc::syscall(libc::SYS_open_tree, of.as_raw_fd(), c"".as_ptr(), flags) })?;
    // SAFETY: the kernel has just made this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(RawFd::try_from(fd).unwrap_or(-1)) })
}

/// Adds attributes to a mount, or to a whole tree of them, and cuts it off from what the host mounts later.
pub(crate) fn set_mount(mount: BorrowedFd<'_>, attributes: u64, whole_tree: bool) -> io::Result<()> {
    let attr =
        libc::mount_attr { attr_set: attributes, attr_clr: 0, propagation: libc::MS_PRIVATE, userns_fd: 0 };
    let flags = libc::AT_EMPTY_PATH | if whole_tree { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: the path is an empty C string, `attr` outlives the call and its size is given.
    check_result(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            flags,
            &raw const attr,
            size_of::<libc::mount_attr>(),
        )
    })
    .map(drop)
}

/// Attaches a detached mount tree on an open folder or file.
pub(crate) fn attach_mount(mount: BorrowedFd<'_>, on: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: both paths are empty C strings: the descriptors alone say what and where.
    check_result(unsafe {
        libc::syscall(
            libc::SYS_move_mount,
            mount.as_raw_fd(),
            c"".as_ptr(),
            on.as_raw_fd(),
            c"".as_ptr(),
            libc::MOVE_MOUNT_F_EMPTY_PATH | libc::MOVE_MOUNT_T_EMPTY_PATH,
        )
    })
    .map(drop)
}

/// Switches the loopback interface on.
pub(crate) fn loopback_up() -> io::Result<()> {
    let socket = nix::sys::socket::socket(
        nix::sys::socket::AddressFamily::Inet,
        nix::sys::socket::SockType::Datagram,
        nix::sys::socket::SockFlag::SOCK_CLOEXEC,
        None,
    )?;
    let mut name = [0; libc::IFNAMSIZ];
    for (to, from) in name.iter_mut().zip(*b"lo") {
        *to = libc::c_char::from_ne_bytes([from]);
    }
    let up = libc::c_short::try_from(libc::IFF_UP | libc::IFF_RUNNING).unwrap_or_default();
    let request = libc::ifreq { ifr_name: name, ifr_ifru: libc::__c_anonymous_ifr_ifru { ifru_flags: up } };
    // SAFETY: the request is an initialised `ifreq` that outlives the call.
    check_result(libc::c_long::from(unsafe {
        libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request)
    }))
    .map(drop)
}

/// The version of the Landlock interface; 0: none.
pub(crate) fn landlock_abi() -> u32 {
    const VERSION: libc::c_uint = 1;
    // SAFETY: a null attribute of size 0 with this flag asks for the version only.
    let abi = unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<libc::c_void>(), 0_usize, VERSION)
    };
    u32::try_from(abi).unwrap_or(0)
}

/// Gives free memory of the heap back to the system.
pub(crate) fn trim_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes a number alone, and what is in use stays where it is.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Makes this process a possible target of debuggers and of readers of `/proc`, or stops that.
pub(crate) fn set_dumpable(dumpable: bool) {
    // SAFETY: plain numbers.
    unsafe { libc::prctl(libc::PR_SET_DUMPABLE, libc::c_ulong::from(dumpable), 0, 0, 0) };
}

/// Makes this process the one that orphans below it are given to.
pub(crate) fn adopt_orphans() {
    // SAFETY: plain numbers.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) };
}

/// Lets a command begin a session of its own, with nothing open but its three streams.
#[expect(clippy::disallowed_types, reason = "this crate is the one that starts processes")]
pub(crate) fn detach_command(command: &mut std::process::Command) {
    use std::os::unix::process::CommandExt;
    // SAFETY: between fork and exec only two system calls are made, without allocation or locks.
    unsafe {
        command.pre_exec(|| {
            libc::setsid();
            seal_descriptors(false)
        });
    }
}

/// Lets a command inherit a descriptor of ours, which must stay open until the command has started.
#[expect(clippy::disallowed_types, reason = "this crate is the one that starts processes")]
pub(crate) fn inherit_descriptor(command: &mut tokio::process::Command, descriptor: BorrowedFd<'_>) {
    let number = descriptor.as_raw_fd();
    // SAFETY: between fork and exec one system call is made, without allocation or locks.
    unsafe {
        command.pre_exec(move || check_result(libc::fcntl(number, libc::F_SETFD, 0).into()).map(|_| ()));
    }
}

/// Returns true if an open folder has an extended attribute with the value `y`.
pub(crate) fn has_mark(folder: BorrowedFd<'_>, name: &CStr) -> bool {
    let mut value = [0_u8; 1];
    // SAFETY: the name is a C string, the buffer has the size that is given, and both outlive the call.
    let length =
        unsafe { libc::fgetxattr(folder.as_raw_fd(), name.as_ptr(), value.as_mut_ptr().cast(), value.len()) };
    length == 1 && value == *b"y"
}

/// The result of a raw system call.
fn check_result(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

#[cfg(test)]
pub(crate) use probe::raw;

#[cfg(any(test, feature = "early-init"))]
mod early {
    /// Runs before `main` of a test binary: that `main` belongs to the test harness.
    extern "C" fn run() {
        if let Some(code) = super::super::init_from_cmdline() {
            std::process::exit(code);
        }
        #[cfg(test)]
        if let Some(code) = super::super::tests::scenario_from_cmdline() {
            std::process::exit(code);
        }
    }

    #[used]
    // SAFETY: the section holds pointers to functions that take no argument we use; this is one.
    #[unsafe(link_section = ".init_array")]
    static RUN: extern "C" fn() = run;
}

#[cfg(test)]
mod probe {
    /// Makes a system call with plain numbers and returns its result, or minus the error number.
    pub(crate) fn raw(number: i64, args: [u64; 6]) -> i64 {
        // SAFETY: tests call it inside a sandbox, in a process of its own that ends afterwards; pointers are null
        // or lead to memory that the test keeps.
        let result = unsafe { libc::syscall(number, args[0], args[1], args[2], args[3], args[4], args[5]) };
        if result < 0 {
            -i64::from(std::io::Error::last_os_error().raw_os_error().unwrap_or(0))
        } else {
            result
        }
    }
}
