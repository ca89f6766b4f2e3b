//! The run of an agent: one zygote and one sandbox of its own, in the words of [`crate::agent`].

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior};

use super::alive::{ControlSocket, JobFrames, LiveSandbox, ProcessReport};
use super::cgroup::Cgroups;
use super::mounts::{READ_ONLY, TRUST_MORE, open_folder};
use super::slot::{AgentSlot, Slots};
use super::spec::{
    Environment, InitMessage, JobEnd, JobOrder, Limits, ProfileOrder, SandboxBase, SandboxJob, Setup, Spec,
    Walls, WorkMount,
};
use super::users::AgentUser;
use super::zygote::helper_error;
use super::{apparmor, folder, network, run, sys, tree};
use crate::agent::{AgentBound, AgentEnd, AgentError, AgentOrder, AgentResult, AgentRun};
use crate::error::SandboxError;
use crate::exec::{Limit, Listener};
use crate::inside::WORK;
use crate::runner::FolderAccess;
use crate::status::Cgroup;

/// The temporary folder, and home, of an agent.
pub(crate) const TMP: &str = "/tmp";
/// The folders in which programs are looked for.
pub(crate) const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// The largest file that it writes, in bytes: its temporary folder is smaller, its output may be a file of the host.
pub(crate) const FILE_MAX: u64 = 4 * 1024 * 1024 * 1024;
/// The time between two measurements of the time that the processes have computed.
const COMPUTE_EVERY: Duration = Duration::from_millis(200);

/// An agent's processes, walled in by some means.
pub(crate) trait WatchedAgent {
    /// The socket of its first process.
    fn control_socket(&self) -> &ControlSocket;

    /// The first process, if no control group limits it.
    fn unlimited_pid(&self) -> Option<i32>;

    /// The first process, and the time that all of them have computed, if a control group measures that.
    fn computed_time(&self) -> (i32, Option<Duration>);

    /// Waits for the end of the first process, and so of all.
    fn wait_gone(&self) -> impl Future<Output = ()> + Send;

    /// Kills all of them, and waits.
    fn kill_all(&self) -> impl Future<Output = ()> + Send;
}

impl WatchedAgent for LiveSandbox {
    fn control_socket(&self) -> &ControlSocket {
        self.control_socket()
    }

    fn unlimited_pid(&self) -> Option<i32> {
        self.unlimited_pid()
    }

    fn computed_time(&self) -> (i32, Option<Duration>) {
        self.computed_time()
    }

    async fn wait_gone(&self) {
        self.gone().await;
    }

    async fn kill_all(&self) {
        self.kill_and_wait().await;
    }
}

/// Runs an agent to its end.
pub(crate) async fn run_agent(run: AgentRun) -> Result<AgentResult, AgentError> {
    let began = Instant::now();
    let AgentRun { order, streams, listeners, first, stop, exe } = run;
    let profile = order
        .profile
        .as_ref()
        .map(|profile| ProfileOrder { profile: profile.name.clone(), required: profile.required });
    let checked = profile.map(apparmor::check_profile).transpose()?;
    let (profile, missing) = checked.map_or((None, None), |checked| (checked.order, checked.lack));
    let user = AgentUser::claim_free()?;
    let id = user.as_ref().map(AgentUser::id);
    let cgroups = Cgroups::detect_groups();
    let metered = cgroups.version() != Cgroup::Watchdog;
    let mut spec = agent_spec(&order, id, metered, profile)?;
    let taken = user.as_ref().and_then(|_| take_folder(&mut spec.setup.work));
    // Encoded before anything is started: half a message would be the end of the sandbox.
    let frames = JobFrames::of(&spec)?;
    let own = AgentSlot { user, folder: taken, measures: order.limits.compute.is_some() };
    let exe = exe.unwrap_or_else(|| PathBuf::from("/proc/self/exe"));
    let (memory, processes) = (order.limits.memory, order.limits.processes);
    let slots = Arc::new(Slots::start_slots(&exe, cgroups, memory, processes, Some(own))?);
    let alive = LiveSandbox::start_sandbox(&slots, &spec.base).await?;
    if let Some(process) = network::first_process(alive.computed_time().0) {
        // The caller need not want to know.
        let _taken = first.send(process);
    }
    alive.control_socket().send_job(frames, streams.into()).await;
    let news = supervise(&alive, &order, &listeners, stop.cancelled()).await;
    // The kernel kills one process for want of memory; the program may then end with any code.
    let starved = news.event != Some(JobEnd::Exited(0)) && alive.out_of_memory();
    alive.end_all().await;
    Ok(AgentResult {
        end: end_of(&news, starved, order.folder.as_deref())?,
        unreached: news.unreached,
        user: id,
        missing: missing.into_iter().collect(),
        duration: began.elapsed(),
    })
}

/// Takes the folder of an agent that runs as a user of its own: one in a home that is root's alone is out of its user's reach.
/// `None`: the sandbox takes it by its path.
fn take_folder(work: &mut WorkMount) -> Option<OwnedFd> {
    let WorkMount::Folder { path, access } = work else { return None };
    let found = open_folder(&path.path).ok()?;
    // Not every container lets its root do this.
    let tree = sys::clone_mount(found.as_fd()).ok()?;
    sys::set_mount(tree.as_fd(), READ_ONLY, true).ok()?;
    *work = WorkMount::Handed { path: path.clone(), access: *access };
    Some(tree)
}

/// Returns the messages for the sandbox of an agent.
pub(crate) fn agent_spec(
    order: &AgentOrder,
    user: Option<u32>,
    metered: bool,
    apparmor: Option<ProfileOrder>,
) -> Result<Spec, AgentError> {
    let limits = &order.limits;
    // An agent without namespaces would have the host's network and processes in sight: there is no second rung.
    let base = SandboxBase {
        walls: Walls::Full,
        binds: Vec::new(),
        empty_home: true,
        one_place: true,
        // The folder of its program may hold a server's socket, or come to hold one.
        own_users: true,
        only_pairs: true,
        limits: Limits {
            processes: limits.processes,
            open_files: limits.open_files,
            file_bytes: FILE_MAX,
            // Without a control group that counts memory, each process has a limit of its own.
            data_bytes: (!metered).then_some(limits.memory),
            tmp_bytes: limits.tmp,
            first_victim: false,
        },
        uid: user.unwrap_or_else(|| nix::unistd::geteuid().as_raw()),
        gid: user.unwrap_or_else(|| nix::unistd::getegid().as_raw()),
    };
    let work = match &order.folder {
        None => WorkMount::Nothing,
        Some(path) => {
            let refused = |why: String| AgentError::Folder { folder: path.clone(), why };
            // A link is followed here, on the host, and once: what it leads to later is not looked at again.
            let path = path.canonicalize().map_err(|why| refused(why.to_string()))?;
            if !path.is_dir() {
                return Err(refused("it is no folder".into()));
            }
            let path = folder(&path).map_err(|why| refused(why.to_string()))?;
            // An agent that could write its own program would pass it on to the next one.
            WorkMount::Folder { path, access: FolderAccess::Read }
        }
    };
    let setup = Setup {
        work,
        own: None,
        git: None,
        home: None,
        home_binds: Vec::new(),
        ports: order.ports.clone(),
        names: order.names.clone(),
        trust: Some(order.authority.clone()),
    };
    let job = JobOrder {
        job: SandboxJob::Exec(order.argv.clone()),
        cwd: if order.folder.is_some() { WORK.into() } else { TMP.into() },
        own: None,
        env: Environment(agent_variables(order).into_iter().collect()),
        readable: Vec::new(),
        writable: Vec::new(),
        apparmor,
    };
    Ok(Spec { base, setup, order: job })
}

/// Returns the variables of an agent: none of this process's own.
pub(crate) fn agent_variables(order: &AgentOrder) -> BTreeMap<String, String> {
    let fixed = [
        ("PATH", PATH),
        ("HOME", TMP),
        ("TMPDIR", TMP),
        ("USER", "agent"),
        ("LOGNAME", "agent"),
        ("SHELL", "/bin/sh"),
    ];
    let mut env = BTreeMap::from(
        [("LANG", "C.UTF-8"), ("TERM", "dumb")].map(|(name, value)| (name.to_owned(), value.to_owned())),
    );
    // Before what is fixed: an agent keeps its home and its authority.
    env.extend(order.variables.iter().cloned());
    env.extend(fixed.map(|(name, value)| (name.to_owned(), value.to_owned())));
    // Nothing of the system's own authorities can be reached, so reading them would only take time.
    env.extend(network::trust_variables(TRUST_MORE));
    env
}

/// The news of an agent that has ended.
#[derive(Debug, Default)]
pub(crate) struct AgentNews {
    pub(crate) event: Option<JobEnd>,
    pub(crate) unreached: u64,
    bound: Option<AgentBound>,
    killed: bool,
}

/// Watches an agent until it has ended.
pub(crate) async fn supervise(
    alive: &impl WatchedAgent,
    order: &AgentOrder,
    listeners: &mpsc::Sender<Listener>,
    stop: impl Future<Output = ()>,
) -> AgentNews {
    let limits = &order.limits;
    let mut news = AgentNews::default();
    let watchdog = alive.unlimited_pid().map(|pid| (pid, limits.memory, limits.processes));
    let bounds = async {
        tokio::select! {
            () = stop => None,
            () = tokio::time::sleep(limits.time) => Some(AgentBound::Time),
            () = watch_compute(alive, limits.compute) => Some(AgentBound::Compute),
            limit = run::watch_tree(watchdog) => Some(bound_of(limit)),
        }
    };
    let mut report = ProcessReport::default();
    let unreached = AtomicU64::new(0);
    let mut last = pin!(last_word(alive, &mut report, &order.ports, listeners, &unreached));
    let asked = tokio::select! {
        biased;
        event = &mut last => { news.event = event; None }
        bound = bounds => Some(bound),
    };
    if let Some(bound) = asked {
        news.bound = bound;
        // It may still put in order what it has begun; what it does not end in time is killed.
        alive.control_socket().ask_to_end().await;
        match tokio::time::timeout(limits.grace, &mut last).await {
            Ok(event) => news.event = event,
            Err(_elapsed) => {
                news.killed = true;
                alive.kill_all().await;
            }
        }
    }
    news.unreached = unreached.load(Ordering::Relaxed);
    news
}

/// Returns the report of the first process, after which no process is left in it. `None`: it ended without one.
async fn last_word(
    alive: &impl WatchedAgent,
    report: &mut ProcessReport,
    ports: &[u16],
    listeners: &mpsc::Sender<Listener>,
    unreached: &AtomicU64,
) -> Option<JobEnd> {
    loop {
        match report.next_message(alive.control_socket()).await {
            Some(InitMessage::Ready) => {}
            Some(InitMessage::Listener) => {
                network::hand_over(report.take_descriptor(), ports, Some(listeners))
            }
            Some(InitMessage::Unreached(count)) => unreached.store(count, Ordering::Relaxed),
            Some(InitMessage::Done(event)) => return Some(event),
            None => {
                alive.wait_gone().await;
                return None;
            }
        }
    }
}

/// Ends when the processes have computed for longer than they may.
async fn watch_compute(alive: &impl WatchedAgent, most: Option<Duration>) {
    let Some(most) = most else { return std::future::pending().await };
    let mut ticks = tokio::time::interval(COMPUTE_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let (pid, counted) = alive.computed_time();
        let computed = match counted {
            Some(counted) => counted,
            // A process can hide time here by not waiting for its children.
            None => tokio::task::spawn_blocking(move || tree::computed_time(pid)).await.unwrap_or_default(),
        };
        if computed > most {
            return;
        }
    }
}

const fn bound_of(limit: Limit) -> AgentBound {
    match limit {
        Limit::Processes => AgentBound::Processes,
        Limit::Memory => AgentBound::Memory,
        Limit::Time | Limit::Disk | Limit::Output | Limit::Cancelled => AgentBound::Time,
    }
}

/// Returns the end of an agent in the words of the port.
pub(crate) fn end_of(news: &AgentNews, starved: bool, folder: Option<&Path>) -> Result<AgentEnd, AgentError> {
    if let Some(bound) = news.bound.or(starved.then_some(AgentBound::Memory)) {
        return Ok(AgentEnd::Bounded(bound));
    }
    if news.killed {
        return Ok(AgentEnd::Killed);
    }
    Ok(match &news.event {
        Some(JobEnd::Exited(code)) => AgentEnd::Exited(*code),
        Some(JobEnd::Signalled(signal)) => AgentEnd::Signalled(*signal),
        Some(JobEnd::ExecFailed(libc::ENOENT | libc::ENOTDIR)) => AgentEnd::NotFound,
        Some(JobEnd::ExecFailed(_)) => AgentEnd::NotExecutable,
        Some(JobEnd::SetupFailed(fault)) => {
            // The folder is the one thing of the person's choice that can fail this late.
            let about_folder = [super::spec::SetupFault::MOVED, "take the work folder", "working directory"];
            if let Some(folder) = folder.filter(|_| about_folder.contains(&fault.stage.as_str())) {
                return Err(AgentError::Folder { folder: folder.to_owned(), why: fault.why.clone() });
            }
            return Err(SandboxError::Setup { stage: fault.stage.clone(), why: fault.why.clone() }.into());
        }
        None => return Err(helper_error("report", &io::ErrorKind::UnexpectedEof.into()).into()),
    })
}
