//! The first process of a sandbox: makes it by the recipe, waits for something to do, starts the job, waits for it,
//! reports and ends. When it ends, the kernel ends everything else in its pid namespace.

use std::ffi::{CString, OsStr};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use super::seccomp::Filters;
use super::spec::{
    self, InitMessage, JobEnd, JobOrder, SandboxBase, SandboxJob, Setup, SetupFault, Stage, Walls,
};
use super::sys::{self, Forked};
use super::{apparmor, lockdown, mounts, network, own, worker};

/// The user that programs are inside.
pub(crate) const INNER_ID: u32 = 1000;
/// The most programs tried along `PATH`.
const PATH_ENTRIES_MAX: usize = 64;
/// The time between two reaps of ended orphans, in milliseconds.
const REAP_EVERY: u16 = 1_000;
/// The file of the kernel's preference for this process when memory runs out.
const OOM_SCORE: &str = "/proc/self/oom_score_adj";
/// The highest of these: as if it had all memory of the group, see proc_pid_oom_score_adj(5).
const OOM_SCORE_MAX: &str = "1000";
/// The number of times that the second rung looks for remaining processes before it gives up on them.
const SWEEPS_MAX: u32 = 1_000;

/// Makes a sandbox of the kind that comes over the control socket, and runs the job that comes after it. Returns the
/// exit code of this process.
pub(crate) fn main(control: OwnedFd, zygote_alive: BorrowedFd<'_>, walls: Walls, filters: &Filters) -> i32 {
    sys::ignore_children(false);
    let mut control = UnixStream::from(control);
    let event = match die_with(zygote_alive, walls).and_then(|()| serve_control(&mut control, walls, filters))
    {
        Ok(Some(event)) => event,
        // It ends unused.
        Ok(None) => return 0,
        Err(fault) => JobEnd::SetupFailed(fault),
    };
    // When the other end is closed, the engine has ended and this process is about to be killed.
    let _ = spec::write_message(&mut control, &InitMessage::Done(event));
    0
}

/// Ties this process to the zygote, which is tied to the engine. On the second rung nothing would end with it: there
/// it waits for the engine to hang up, and sweeps.
fn die_with(zygote_alive: BorrowedFd<'_>, walls: Walls) -> Result<(), SetupFault> {
    if walls == Walls::Reduced {
        return Ok(());
    }
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL).stage("parent death signal")?;
    // The zygote holds the only writing end: a hang-up means that it died before the line above.
    let mut watch = [PollFd::new(zygote_alive, PollFlags::POLLIN)];
    poll(&mut watch, PollTimeout::ZERO).stage("zygote")?;
    if watch.iter().any(|fd| fd.any() == Some(true)) {
        return Err(SetupFault::new("zygote", "it is gone"));
    }
    Ok(())
}

/// Builds the sandbox, waits until there is something to do, and does it. `None`: the engine hung up before.
fn serve_control(
    control: &mut UnixStream,
    walls: Walls,
    filters: &Filters,
) -> Result<Option<JobEnd>, SetupFault> {
    let base: SandboxBase = spec::read_message(control).stage("read the specification")?;
    if base.walls != walls {
        return Err(SetupFault::new(
            "read the specification",
            "it asks for other walls than the zygote made",
        ));
    }
    begin(&base)?;
    // The job's process locks itself down while this one builds.
    let job = start_job(&base, control, filters)?;
    let host = if walls == Walls::Full { Some(mounts::build_root(&base)?) } else { None };
    if !is_readable(control)? {
        spec::write_message(control, &InitMessage::Ready).stage("report")?;
    }
    let setup: Setup = match spec::read_message(control) {
        Err(why) if why.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        setup => setup.stage("read the specification")?,
    };
    if let Some(host) = host {
        mounts::furnish_root(&base, &setup, host)?;
    }
    for port in &setup.ports {
        network::offer_listener(control.as_fd(), *port)?;
    }
    job.begin()?;
    // From here on it waits: what the walls were made of is not needed again.
    sys::trim_heap();
    let event = wait_for(walls, &job, control);
    if !setup.names.is_empty() {
        // If the host has ended, the count is not needed.
        let _sent = spec::write_message(control, &InitMessage::Unreached(network::unreached_count()));
    }
    Ok(Some(event))
}

/// Returns true if something has come already, or the other end is closed.
fn is_readable(control: &UnixStream) -> Result<bool, SetupFault> {
    let mut watch = [PollFd::new(control.as_fd(), PollFlags::POLLIN)];
    poll(&mut watch, PollTimeout::ZERO).stage("poll")?;
    Ok(watch.iter().any(|fd| fd.any() == Some(true)))
}

/// Everything that is done before a second process exists.
fn begin(base: &SandboxBase) -> Result<(), SetupFault> {
    if base.walls == Walls::Full {
        map_ids(base)?;
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWCGROUP).stage("control group namespace")?;
        nix::unistd::sethostname("writ").stage("host name")?;
        sys::loopback_up().stage("loopback")?;
    } else {
        sys::adopt_orphans();
    }
    // No process inside may look into this one, which still has its capabilities.
    sys::set_dumpable(false);
    set_limits(base)
}

/// Does a job in a container. Its engine has made the walls already: the job's process adds its own lockdown to
/// them. Returns its end when everything in the container but this process has ended.
pub(crate) fn serve_container(control: &mut UnixStream, filters: &Filters) -> Result<JobEnd, SetupFault> {
    let base: SandboxBase = spec::read_message(control).stage("read the specification")?;
    set_limits(&base)?;
    let job = start_job(&base, control, filters)?;
    let setup: Setup = spec::read_message(control).stage("read the specification")?;
    for port in &setup.ports {
        network::offer_listener(control.as_fd(), *port)?;
    }
    job.begin()?;
    let event = wait_for(Walls::Full, &job, control);
    // If the host has ended, the count is not needed.
    let _sent = spec::write_message(control, &InitMessage::Unreached(network::unreached_count()));
    Ok(event)
}

/// Maps the one user inside to the one outside.
fn map_ids(base: &SandboxBase) -> Result<(), SetupFault> {
    std::fs::write("/proc/self/setgroups", "deny").stage("groups")?;
    std::fs::write("/proc/self/uid_map", format!("{INNER_ID} {} 1", base.uid)).stage("user map")?;
    std::fs::write("/proc/self/gid_map", format!("{INNER_ID} {} 1", base.gid)).stage("group map")
}

/// Sets the limits of every process of the job.
fn set_limits(base: &SandboxBase) -> Result<(), SetupFault> {
    let limits = &base.limits;
    let mut all = vec![
        (Resource::RLIMIT_CORE, 0),
        (Resource::RLIMIT_NOFILE, limits.open_files),
        (Resource::RLIMIT_FSIZE, limits.file_bytes),
    ];
    // Inside a user namespace of its own this counts the sandbox's processes; elsewhere all of the user's.
    all.extend(base.own_users.then_some((Resource::RLIMIT_NPROC, limits.processes)));
    all.extend(limits.data_bytes.map(|bytes| (Resource::RLIMIT_DATA, bytes)));
    for (resource, value) in all {
        // An engine of containers may have set a lower one.
        let value = getrlimit(resource).map_or(value, |(_, hard)| value.min(hard));
        setrlimit(resource, value, value).stage("resource limits")?;
    }
    Ok(())
}

/// The job's process.
struct Started {
    pid: Pid,
    pidfd: OwnedFd,
    /// The pipe for errors before its start.
    faults: io::PipeReader,
    /// The pipe that says that everything is in its place.
    go: io::PipeWriter,
}

impl Started {
    /// Lets it read what it has to do, in the root that this process is in.
    fn begin(&self) -> Result<(), SetupFault> {
        let (device, inode) = mounts::root_id().stage("root")?;
        (&self.go).write_all(&[device.to_le_bytes(), inode.to_le_bytes()].concat()).stage("begin")
    }
}

/// Starts the job's process.
fn start_job(base: &SandboxBase, control: &UnixStream, filters: &Filters) -> Result<Started, SetupFault> {
    // Two pipes: the child reports its faults on one, and waits on the other until its new root is ready.
    let (faults, mut tell) = io::pipe().stage("pipe")?;
    let (wait, go) = io::pipe().stage("pipe")?;
    match sys::fork_with(0).stage("fork")? {
        Forked::Child => {
            drop((faults, go));
            let code = match become_job(base, control, wait, filters) {
                Ok(code) => code,
                Err(fault) => {
                    let _ = spec::write_message(&mut tell, &fault);
                    125
                }
            };
            std::process::exit(code)
        }
        Forked::Parent { pid, pidfd } => Ok(Started { pid: Pid::from_raw(pid), pidfd, faults, go }),
    }
}

/// Waits for the job and for everything that it started, reaping other processes meanwhile. When the engine
/// hangs up, the job is over.
fn wait_for(walls: Walls, job: &Started, control: &UnixStream) -> JobEnd {
    // End of file: the program was executed, or the worker has begun.
    if let Ok(fault) = spec::read_message::<SetupFault>(&mut &job.faults) {
        let _ = waitpid(job.pid, None);
        return if fault.stage == EXECUTE {
            JobEnd::ExecFailed(fault.errno)
        } else {
            JobEnd::SetupFailed(fault)
        };
    }
    let ending = loop {
        let mut watch = [
            PollFd::new(job.pidfd.as_fd(), PollFlags::POLLIN),
            PollFd::new(control.as_fd(), PollFlags::POLLIN),
        ];
        let polled = poll(&mut watch, REAP_EVERY);
        let [ended, hung_up] = watch.map(|fd| fd.any() == Some(true));
        if let Some(event) = reap_children(job.pid) {
            break event;
        }
        if polled.is_err_and(|why| why != Errno::EINTR) || (hung_up && !obeys_request(control)) {
            break JobEnd::Signalled(libc::SIGKILL);
        }
        if ended && let Some(event) = waitpid(job.pid, None).ok().and_then(ending_of) {
            // A debugger of the host may have let us see its end late.
            break event;
        }
    };
    match walls {
        Walls::Full => end_everyone(),
        Walls::Reduced => sweep_processes(),
    }
    ending
}

/// Passes on the host's request to end: a byte on the control socket. `false`: the host has hung up instead.
fn obeys_request(mut control: &UnixStream) -> bool {
    let mut request = [0];
    let asked = control.read(&mut request).is_ok_and(|read| read == 1) && request == [spec::TERMINATE];
    // To everything inside but this process.
    asked && nix::sys::signal::kill(Pid::from_raw(-1), Signal::SIGTERM).is_ok()
}

/// Ends every other process of this pid namespace. The kernel does so too when this one ends; the host need
/// not wait for that, and for the end of the namespaces, to know that no process is left.
fn end_everyone() {
    // A process that is forked after the signal was sent to all has a parent with the signal: in the end
    // there are no children.
    while waitpid(None, Some(WaitPidFlag::WNOHANG)) != Err(Errno::ECHILD) {
        let _ = nix::sys::signal::kill(Pid::from_raw(-1), Signal::SIGKILL);
        let _ = waitpid(None, None);
    }
}

/// Reaps every process that has ended. Returns how the job did, when it is among them.
fn reap_children(job: Pid) -> Option<JobEnd> {
    let mut event = None;
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(pid, code)) if pid == job => event = Some(JobEnd::Exited(code)),
            Ok(WaitStatus::Signaled(pid, signal, _)) if pid == job => {
                event = Some(JobEnd::Signalled(signal as i32))
            }
            Ok(WaitStatus::StillAlive) | Err(_) => return event,
            Ok(_) => {}
        }
    }
}

/// Returns the end of a process, if it has ended.
fn ending_of(status: WaitStatus) -> Option<JobEnd> {
    if let WaitStatus::Exited(_, code) = status {
        Some(JobEnd::Exited(code))
    } else if let WaitStatus::Signaled(_, signal, _) = status {
        Some(JobEnd::Signalled(signal as i32))
    } else {
        None
    }
}

/// Kills every process below this one: without a pid namespace, the kernel does not do it for us.
pub(crate) fn sweep_processes() {
    for _ in 0..SWEEPS_MAX {
        let below = super::tree::descendant_pids(Pid::this().as_raw());
        if below.is_empty() {
            return;
        }
        for pid in below {
            let _ = nix::sys::signal::kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        let _ = waitpid(None, None);
        let _ = reap_children(Pid::this());
    }
}

/// The step that fails by a mistake of the program, not of the sandbox.
const EXECUTE: &str = "execute";

/// In the job's own process: locks it down, waits, and becomes the program or does the worker's work.
fn become_job(
    base: &SandboxBase,
    control: &UnixStream,
    mut wait: io::PipeReader,
    filters: &Filters,
) -> Result<i32, SetupFault> {
    nix::unistd::setsid().stage("session")?;
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL).stage("parent death signal")?;
    sys::reset_signals();
    if base.limits.first_victim {
        become_victim();
    }
    // The host's `/proc` is out of sight later, and the one inside cannot be written.
    let profile = apparmor::open_switch();
    lockdown::begin_lockdown(base, filters)?;
    let mut root = [0; 2 * size_of::<u64>()];
    wait.read_exact(&mut root).stage("wait for the root")?;
    let (order, [stdin, stdout, stderr]) = receive_order(control)?;
    nix::unistd::dup2_stdin(stdin).stage("standard input")?;
    nix::unistd::dup2_stdout(stdout).stage("standard output")?;
    nix::unistd::dup2_stderr(stderr).stage("standard error")?;
    match &order.apparmor {
        Some(order) => apparmor::switch_at_exec(profile, order)?,
        None => drop(profile),
    }
    sys::seal_descriptors(false).stage("descriptors")?;
    // Entering the new root took this process along.
    let (device, inode) = mounts::root_id().stage("root")?;
    if root != *[device.to_le_bytes(), inode.to_le_bytes()].concat() {
        return Err(SetupFault::new("root", "this process is not in it"));
    }
    lockdown::finish_lockdown(base, &order)?;
    std::env::set_current_dir(own::start_directory(&order)).stage("working directory")?;
    match &order.job {
        SandboxJob::Exec(argv) => execute_program(argv, &order.env.0).map(|never| match never {}),
        SandboxJob::Worker(request) => {
            sys::seal_descriptors(true).stage("descriptors")?;
            Ok(worker::main(&order.cwd, request))
        }
        #[cfg(test)]
        SandboxJob::Probe(name) => Ok(super::tests::probe(name)),
    }
}

/// Has the kernel choose this process, and what it will start, when the memory of its group runs out. Otherwise it may choose the
/// first process, which is larger than a shell: a full temporary folder counts for no process. Its report would be gone with it.
fn become_victim() {
    // The files of a process that cannot be looked into are root's. Only its parent is here besides it.
    sys::set_dumpable(true);
    // If this fails, the kernel may kill this first process, and the engine can report that, but not the reason.
    let _written = std::fs::write(OOM_SCORE, OOM_SCORE_MAX);
    sys::set_dumpable(false);
}

/// Receives what to do and the three streams, which come with the first bytes of it.
fn receive_order(mut control: &UnixStream) -> Result<(JobOrder, [OwnedFd; 3]), SetupFault> {
    const STAGE: &str = "read the order";
    let mut length = [0; spec::LENGTH];
    let (read, streams) = sys::receive_descriptors(control.as_fd(), &mut length).stage(STAGE)?;
    let rest = length.get_mut(read..).unwrap_or_default();
    control.read_exact(rest).stage(STAGE)?;
    let streams =
        <[OwnedFd; 3]>::try_from(streams).map_err(|_| SetupFault::new(STAGE, "it has not three streams"))?;
    Ok((spec::read_body(&mut control, length).stage(STAGE)?, streams))
}

/// Executes a program, found along the `PATH` that it is given.
fn execute_program(
    argv: &[String],
    env: &[(String, String)],
) -> Result<std::convert::Infallible, SetupFault> {
    let text =
        |text: &str| CString::new(text).map_err(|_| SetupFault::new("arguments", "they hold a zero byte"));
    let args: Vec<CString> = argv.iter().map(|arg| text(arg)).collect::<Result<_, _>>()?;
    let vars: Vec<CString> =
        env.iter().map(|(name, value)| text(&format!("{name}={value}"))).collect::<Result<_, _>>()?;
    let name = argv.first().map(String::as_str).unwrap_or_default();
    let mut last = Errno::ENOENT;
    // The loop is that of `execvp`, with the `PATH` that the program is given.
    for program in program_candidates(name, env) {
        let program = CString::new(program.as_os_str().as_bytes())
            .map_err(|_| SetupFault::new("arguments", "they hold a zero byte"))?;
        let Err(why) = nix::unistd::execve(&program, &args, &vars);
        // «Not permitted» is remembered while the search goes on, as every shell does.
        if last == Errno::ENOENT || (why != Errno::ENOENT && why != Errno::ENOTDIR) {
            last = why;
        }
    }
    Err(SetupFault { stage: EXECUTE.into(), why: last.to_string(), errno: last as i32 })
}

/// The files that a program's name may stand for.
fn program_candidates(name: &str, env: &[(String, String)]) -> Vec<std::path::PathBuf> {
    if name.contains('/') {
        return vec![Path::new(name).to_owned()];
    }
    let path = env.iter().find(|(key, _)| key == "PATH").map(|(_, value)| value.as_str()).unwrap_or_default();
    path.split(':')
        .filter(|folder| folder.starts_with('/') && !name.is_empty())
        .take(PATH_ENTRIES_MAX)
        .map(|folder| Path::new(folder).join(OsStr::new(name)))
        .collect()
}

/// Flushes and ends the worker's process.
pub(crate) fn write_reply(bytes: &[u8]) -> i32 {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => 0,
        Err(_) => 1,
    }
}
