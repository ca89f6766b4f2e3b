//! The first process of a sandbox: makes it by the recipe, starts the job, waits for it, reports and ends. When it
//! ends, the kernel ends everything else in its pid namespace.

use std::ffi::{CString, OsStr};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use super::seccomp::Filters;
use super::spec::{self, Event, Fault, Job, Spec, Stage, Walls};
use super::sys::{self, Forked};
use super::zygote::Parcel;
use super::{lockdown, mounts, network, worker};

/// The user that programs are inside.
pub(crate) const INNER_ID: u32 = 1000;
/// The home of that user.
pub(crate) const INNER_HOME: &str = "/home/agent";
/// The work folder inside.
pub(crate) const WORK: &str = "/work";
/// The most programs tried along `PATH`.
const PATH_ENTRIES_MAX: usize = 64;
/// How often orphans that have ended are reaped.
const REAP_EVERY: u16 = 1_000;
/// How often the second rung looks for processes that are left, before it gives up on them.
const SWEEPS_MAX: u32 = 1_000;

/// Runs the job that comes over the control socket. Returns the exit code of this process.
pub(crate) fn main(parcel: Parcel, zygote_alive: BorrowedFd<'_>, walls: Walls, filters: &Filters) -> i32 {
    sys::ignore_children(false);
    let Parcel { control, stdio } = parcel;
    let mut control = UnixStream::from(control);
    let event = match die_with(zygote_alive, walls).and_then(|()| prepare(&mut control, walls)) {
        Ok(spec) => run(&spec, stdio, &control, filters),
        Err(fault) => Event::SetupFailed(fault),
    };
    // When nobody listens, the engine is gone and this process is about to be killed.
    let _ = spec::write_message(&mut control, &event);
    0
}

/// Ties this process to the zygote, which is tied to the engine. On the second rung nothing would end with it: there
/// it waits for the engine to hang up, and sweeps.
fn die_with(zygote_alive: BorrowedFd<'_>, walls: Walls) -> Result<(), Fault> {
    if walls == Walls::Reduced {
        return Ok(());
    }
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL).stage("parent death signal")?;
    // The zygote holds the only writing end: a hang-up means that it died before the line above.
    let mut watch = [PollFd::new(zygote_alive, PollFlags::POLLIN)];
    poll(&mut watch, PollTimeout::ZERO).stage("zygote")?;
    if watch.iter().any(|fd| fd.any() == Some(true)) {
        return Err(Fault::new("zygote", "it is gone"));
    }
    Ok(())
}

/// Reads what to do.
fn prepare(control: &mut UnixStream, walls: Walls) -> Result<Spec, Fault> {
    let spec: Spec = spec::read_message(control).stage("read the specification")?;
    if spec.walls != walls {
        return Err(Fault::new("read the specification", "it asks for other walls than the zygote made"));
    }
    Ok(spec)
}

/// Builds the sandbox and runs the job in it.
fn run(spec: &Spec, stdio: [OwnedFd; 3], control: &UnixStream, filters: &Filters) -> Event {
    let built =
        build(spec).and_then(|()| if spec.network { network::offer(control.as_fd()) } else { Ok(()) });
    match built.and_then(|()| start(spec, stdio, filters)) {
        Ok((job, faults)) => wait_for(spec, &job, faults, control),
        Err(fault) => Event::SetupFailed(fault),
    }
}

/// Everything that is done before the job's process exists.
fn build(spec: &Spec) -> Result<(), Fault> {
    if spec.walls == Walls::Full {
        map_ids(spec)?;
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWCGROUP).stage("control group namespace")?;
        nix::unistd::sethostname("writ").stage("host name")?;
        sys::loopback_up().stage("loopback")?;
        mounts::build(spec)?;
    } else {
        sys::adopt_orphans();
    }
    // Nobody inside may look into this process, which still has its capabilities.
    sys::set_dumpable(false);
    limit(spec)
}

/// Maps the one user inside to the one outside.
fn map_ids(spec: &Spec) -> Result<(), Fault> {
    std::fs::write("/proc/self/setgroups", "deny").stage("groups")?;
    std::fs::write("/proc/self/uid_map", format!("{INNER_ID} {} 1", spec.uid)).stage("user map")?;
    std::fs::write("/proc/self/gid_map", format!("{INNER_ID} {} 1", spec.gid)).stage("group map")
}

/// Sets the limits of every process of the job.
fn limit(spec: &Spec) -> Result<(), Fault> {
    let limits = &spec.limits;
    let mut all = vec![
        (Resource::RLIMIT_CORE, 0),
        (Resource::RLIMIT_NOFILE, limits.open_files),
        (Resource::RLIMIT_FSIZE, limits.file_bytes),
    ];
    if spec.walls == Walls::Full {
        // Inside a user namespace of its own this counts the sandbox's processes; elsewhere all of the user's.
        all.push((Resource::RLIMIT_NPROC, limits.processes));
    }
    all.extend(limits.data_bytes.map(|bytes| (Resource::RLIMIT_DATA, bytes)));
    for (resource, value) in all {
        setrlimit(resource, value, value).stage("resource limits")?;
    }
    Ok(())
}

/// The job's process.
struct Started {
    pid: Pid,
    pidfd: OwnedFd,
}

/// Starts the job's process. Returns it, and the end of the pipe over which it tells what failed before its start.
fn start(spec: &Spec, stdio: [OwnedFd; 3], filters: &Filters) -> Result<(Started, io::PipeReader), Fault> {
    let (faults, mut tell) = io::pipe().stage("pipe")?;
    match sys::fork_with(0).stage("fork")? {
        Forked::Child => {
            let ending = become_job(spec, stdio, filters);
            let code = match ending {
                Ok(code) => code,
                Err(fault) => {
                    let _ = spec::write_message(&mut tell, &fault);
                    125
                }
            };
            std::process::exit(code)
        }
        Forked::Parent { pid, pidfd } => {
            drop((stdio, tell));
            Ok((Started { pid: Pid::from_raw(pid), pidfd }, faults))
        }
    }
}

/// Waits for the job, reaping whatever else ends meanwhile. When the engine hangs up, the job is over.
fn wait_for(spec: &Spec, job: &Started, mut faults: io::PipeReader, control: &UnixStream) -> Event {
    // End of file: the program was executed, or the worker has begun.
    if let Ok(fault) = spec::read_message::<Fault>(&mut faults) {
        let _ = waitpid(job.pid, None);
        return if fault.stage == EXECUTE {
            Event::ExecFailed(fault.errno)
        } else {
            Event::SetupFailed(fault)
        };
    }
    let ending = loop {
        let mut watch = [
            PollFd::new(job.pidfd.as_fd(), PollFlags::POLLIN),
            PollFd::new(control.as_fd(), PollFlags::POLLIN),
        ];
        let polled = poll(&mut watch, REAP_EVERY);
        let [ended, hung_up] = watch.map(|fd| fd.any() == Some(true));
        if let Some(event) = reap(job.pid) {
            break event;
        }
        if hung_up || polled.is_err_and(|why| why != Errno::EINTR) {
            break Event::Signalled(libc::SIGKILL);
        }
        if ended && let Some(event) = waitpid(job.pid, None).ok().and_then(ending_of) {
            // A debugger of the host may have let us see its end late.
            break event;
        }
    };
    if spec.walls == Walls::Reduced {
        sweep();
    }
    ending
}

/// Reaps every process that has ended. Returns how the job did, when it is among them.
fn reap(job: Pid) -> Option<Event> {
    let mut event = None;
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(pid, code)) if pid == job => event = Some(Event::Exited(code)),
            Ok(WaitStatus::Signaled(pid, signal, _)) if pid == job => {
                event = Some(Event::Signalled(signal as i32))
            }
            Ok(WaitStatus::StillAlive) | Err(_) => return event,
            Ok(_) => {}
        }
    }
}

/// How a process ended, if it did.
fn ending_of(status: WaitStatus) -> Option<Event> {
    if let WaitStatus::Exited(_, code) = status {
        Some(Event::Exited(code))
    } else if let WaitStatus::Signaled(_, signal, _) = status {
        Some(Event::Signalled(signal as i32))
    } else {
        None
    }
}

/// Kills every process below this one: without a pid namespace, the kernel does not do it for us.
pub(crate) fn sweep() {
    for _ in 0..SWEEPS_MAX {
        let below = super::tree::descendants(Pid::this().as_raw());
        if below.is_empty() {
            return;
        }
        for pid in below {
            let _ = nix::sys::signal::kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        let _ = waitpid(None, None);
        let _ = reap(Pid::this());
    }
}

/// The step whose failure is the program's fault, not the sandbox's.
const EXECUTE: &str = "execute";

/// In the job's own process: locks it down and becomes the program, or does the worker's work.
fn become_job(spec: &Spec, stdio: [OwnedFd; 3], filters: &Filters) -> Result<i32, Fault> {
    nix::unistd::setsid().stage("session")?;
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL).stage("parent death signal")?;
    sys::reset_signals();
    let [stdin, stdout, stderr] = stdio;
    nix::unistd::dup2_stdin(stdin).stage("standard input")?;
    nix::unistd::dup2_stdout(stdout).stage("standard output")?;
    nix::unistd::dup2_stderr(stderr).stage("standard error")?;
    sys::seal_descriptors(false).stage("descriptors")?;
    lockdown::apply(spec, filters)?;
    std::env::set_current_dir(&spec.cwd).stage("working directory")?;
    match &spec.job {
        Job::Exec(argv) => execute(argv, &spec.env).map(|never| match never {}),
        Job::Worker(request) => {
            sys::seal_descriptors(true).stage("descriptors")?;
            Ok(worker::main(&spec.cwd, request))
        }
        #[cfg(test)]
        Job::Probe(name) => Ok(super::tests::probe(name)),
    }
}

/// Executes a program, found along the `PATH` that it is given.
fn execute(argv: &[String], env: &[(String, String)]) -> Result<std::convert::Infallible, Fault> {
    let text = |text: &str| CString::new(text).map_err(|_| Fault::new("arguments", "they hold a zero byte"));
    let args: Vec<CString> = argv.iter().map(|arg| text(arg)).collect::<Result<_, _>>()?;
    let vars: Vec<CString> =
        env.iter().map(|(name, value)| text(&format!("{name}={value}"))).collect::<Result<_, _>>()?;
    let name = argv.first().map(String::as_str).unwrap_or_default();
    let mut last = Errno::ENOENT;
    for program in candidates(name, env) {
        let program = CString::new(program.as_os_str().as_bytes())
            .map_err(|_| Fault::new("arguments", "they hold a zero byte"))?;
        let Err(why) = nix::unistd::execve(&program, &args, &vars);
        // «Not permitted» is remembered while the search goes on, as every shell does.
        if last == Errno::ENOENT || (why != Errno::ENOENT && why != Errno::ENOTDIR) {
            last = why;
        }
    }
    Err(Fault { stage: EXECUTE.into(), why: last.to_string(), errno: last as i32 })
}

/// The files that a program's name may stand for.
fn candidates(name: &str, env: &[(String, String)]) -> Vec<std::path::PathBuf> {
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
pub(crate) fn finish(bytes: &[u8]) -> i32 {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => 0,
        Err(_) => 1,
    }
}
