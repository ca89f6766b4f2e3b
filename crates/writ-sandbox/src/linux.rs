//! The native runner, made of Linux.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::unix::AsyncFd;
use tokio::sync::OnceCell;

use crate::config::{READY_MOST, RunnerKind, SandboxConfig};
use crate::error::SandboxError;
use crate::exec::ExecOptions;
use crate::file::FILE_TIME_MAX_MS;
use crate::inside::{INNER_HOME, WORK};
use crate::runner::{self, FolderAccess, Folders, Pending, RunRequest, RunResult, Runner};
use crate::status::{Cgroup, Rung, SandboxStatus};

mod sys;

mod spec;

mod zygote;

mod slot;

mod alive;

mod pool;

mod init;

mod mounts;

mod lockdown;

mod nameless;

mod own;

mod seccomp;

mod worker;

mod run;

mod cgroup;

mod tree;

mod disk;

mod toolchain;

mod places;

mod env;

mod launch;

mod network;

mod apparmor;

mod users;

mod agent;

mod container;

pub(crate) mod fuzzing;

#[cfg(test)]
mod tests;

pub(crate) use agent::run_agent;
pub(crate) use container::run_agent as run_contained;
pub(crate) use network::count_unreached;
pub(crate) use sys::{detach_command, has_mark, inherit_descriptor, trim_heap};

use cgroup::Cgroups;
use places::Places;
use pool::SandboxPool;
use run::{JobResult, Launch};
use slot::Slots;
use spec::{HostFolder, JobEnd, JobOrder, Limits, SandboxBase, SandboxJob, Setup, Spec, Walls, WorkMount};
use toolchain::Toolchains;

/// Watches a process: the handle becomes readable when it ends.
pub(crate) fn watch_pid(pid: i32) -> std::io::Result<AsyncFd<OwnedFd>> {
    sys::watch_process(sys::open_process(pid)?)
}

/// Does the job of a helper process, if this process was started as one.
///
/// Called first in the `main` of every binary that uses a `Sandbox`, before threads and before the arguments are
/// read. `Some`: the job is done, and `main` returns with this code.
pub fn init_main() -> Option<ExitCode> {
    let mut args = std::env::args_os().skip(1);
    let marker = args.next().filter(|_| args.len() == 0)?;
    let code = match marker.to_str()? {
        zygote::MARKER => zygote::main(),
        container::MARKER => container::main(),
        _ => return None,
    };
    Some(ExitCode::from(u8::try_from(code).unwrap_or(1)))
}

/// [`init_main`] for code that runs before the standard library knows the arguments.
#[cfg(any(test, feature = "early-init"))]
fn init_from_cmdline() -> Option<i32> {
    let line = std::fs::read("/proc/self/cmdline").ok()?;
    let mut args = line.split(|byte| *byte == 0).skip(1);
    let marked = args.next() == Some(zygote::MARKER.as_bytes()) && args.next().is_none_or(<[u8]>::is_empty);
    marked.then(zygote::main)
}

/// Runs programs in sandboxes of namespaces, Landlock and seccomp. Dropping it ends every sandbox.
#[derive(Debug)]
pub(crate) struct NativeRunner {
    config: SandboxConfig,
    pool: Arc<SandboxPool>,
    cgroups: Arc<Cgroups>,
    toolchains: Toolchains,
    status: OnceCell<SandboxStatus>,
}

impl Runner for NativeRunner {
    fn status(&self) -> Pending<'_, SandboxStatus> {
        Box::pin(async { self.status.get_or_init(|| self.probe()).await.clone() })
    }

    fn rung(&self) -> Pending<'_, Result<Rung, SandboxError>> {
        Box::pin(async { self.walls().await.map(|(_, rung)| rung) })
    }

    fn ready(&self) -> usize {
        self.pool.ready_count()
    }

    fn root(&self, rung: Rung, folders: &Folders) -> PathBuf {
        let walls = if rung == Rung::Full { Walls::Full } else { Walls::Reduced };
        let own = folders.own_place().filter(|_| walls == Walls::Full);
        own.unwrap_or_else(|| Places::of(&folders.session, walls, false).resolve_path(walls, WORK))
    }

    fn run(&self, request: RunRequest) -> Pending<'_, Result<RunResult, SandboxError>> {
        Box::pin(async {
            let (walls, _) = self.walls().await?;
            let is_program = matches!(request.job, runner::RunJob::Program(_));
            let launch = launch::launch_of(self, walls, request).await?;
            launch::run_result(self.run_launch(launch).await?, is_program)
        })
    }
}

impl NativeRunner {
    /// Starts the zygote. Best called before the async runtime has threads, and possible later: the zygote is a new
    /// process of our own binary, not a fork of this one.
    ///
    /// # Errors
    ///
    /// If the executable cannot be started.
    pub(crate) fn start(config: SandboxConfig, home: Option<&Path>) -> Result<Self, SandboxError> {
        let exe = config.exe.clone().unwrap_or_else(|| PathBuf::from("/proc/self/exe"));
        let cgroups = Cgroups::detect_groups();
        let slots =
            Slots::start_slots(&exe, Arc::clone(&cgroups), config.memory_max, config.processes_max, None)?;
        Ok(Self {
            pool: SandboxPool::new(Arc::new(slots), config.ready_max.min(READY_MOST), pool::IDLE),
            cgroups,
            toolchains: toolchain::find_toolchains(home, &config.read_only),
            status: OnceCell::new(),
            config,
        })
    }

    /// Tries the rungs from the top.
    async fn probe(&self) -> SandboxStatus {
        let mut status = SandboxStatus {
            runner: RunnerKind::Native,
            rung: Rung::Full,
            reduced: Vec::new(),
            hints: Vec::new(),
            user_namespaces: true,
            overlay: true,
            landlock_abi: sys::landlock_abi(),
            seccomp: true,
            cgroup: self.cgroups.version(),
            toolchains: self.toolchains.binds.iter().map(|path| path.display().to_string()).collect(),
        };
        if status.cgroup == Cgroup::Watchdog {
            status
                .reduced
                .push("no control group is delegated: memory and processes are measured, not metered".into());
        }
        let why = if self.config.forbid_user_namespaces {
            "the configuration forbids user namespaces".to_owned()
        } else {
            match self.try_walls(Walls::Full).await {
                Ok(()) => return self.with_landlock(status),
                Err(why) => why.to_string(),
            }
        };
        status.user_namespaces = false;
        status.overlay = false;
        status.hints.push(
            "allow unprivileged user namespaces (on Ubuntu 24.04: an AppArmor profile with `userns,` for this binary)"
                .into(),
        );
        if status.landlock_abi == 0 {
            status.rung = Rung::Refuse;
            status.reduced = vec![why, "the kernel has no Landlock".into()];
            return status;
        }
        match self.try_walls(Walls::Reduced).await {
            Ok(()) => {
                status.rung = Rung::Reduced;
                status.reduced.push(format!("no namespaces: {why}"));
                status.reduced.extend(REDUCED.map(str::to_owned));
                if status.landlock_abi < 6 {
                    status
                        .reduced
                        .push("programs can send signals to other processes of the same user".into());
                }
                if status.landlock_abi < 3 {
                    status.reduced.push("programs can truncate files that they cannot write".into());
                }
            }
            Err(second) => {
                status.rung = Rung::Refuse;
                status.seccomp = false;
                status.reduced = vec![why, second.to_string()];
            }
        }
        status
    }

    /// The first rung holds without Landlock, which is its second lock.
    fn with_landlock(&self, mut status: SandboxStatus) -> SandboxStatus {
        if status.landlock_abi == 0 {
            status.reduced.push("the kernel has no Landlock: one lock less on the same doors".into());
        }
        status
    }

    /// Runs a program behind some walls.
    async fn try_walls(&self, walls: Walls) -> Result<(), SandboxError> {
        let job = SandboxJob::Exec(vec!["/bin/true".into()]);
        let folder = folder(Path::new("/usr"))?;
        let mut spec = self.spec(walls, job, WorkMount::Folder { path: folder, access: FolderAccess::Read });
        // The probe needs no work folder, only a program that every system has.
        spec.order.cwd = "/".into();
        let finished = self.run_launch(Launch {
            spec,
            stdin: None,
            time: Duration::from_millis(FILE_TIME_MAX_MS),
            memory: self.config.memory_max,
            keep: 0,
            kill_above: self.config.output_kill,
            disk: None,
            options: ExecOptions::default(),
            again: false,
            hold: None,
            talk: None,
        });
        match finished.await?.event {
            JobEnd::Exited(0) => Ok(()),
            JobEnd::SetupFailed(fault) => Err(SandboxError::Setup { stage: fault.stage, why: fault.why }),
            event @ (JobEnd::Exited(_) | JobEnd::ExecFailed(_) | JobEnd::Signalled(_)) => {
                Err(SandboxError::Setup { stage: "probe".into(), why: format!("{event:?}") })
            }
        }
    }

    /// The walls that this machine gives.
    async fn walls(&self) -> Result<(Walls, Rung), SandboxError> {
        let status = self.status.get_or_init(|| self.probe()).await;
        match status.rung {
            Rung::Full => Ok((Walls::Full, Rung::Full)),
            Rung::Reduced => Ok((Walls::Reduced, Rung::Reduced)),
            Rung::Refuse => Err(SandboxError::Refused { reasons: status.reduced.clone() }),
        }
    }

    /// A specification with what is the same for every job.
    fn spec(&self, walls: Walls, job: SandboxJob, work: WorkMount) -> Spec {
        let config = &self.config;
        let metered = self.cgroups.version() != Cgroup::Watchdog;
        // The home inside would hide what lies below a home of that name outside: it is laid over it.
        let (covered, binds): (Vec<PathBuf>, Vec<PathBuf>) = self
            .toolchains
            .binds
            .iter()
            .cloned()
            .partition(|bind| walls == Walls::Full && bind.starts_with(INNER_HOME));
        let base = SandboxBase {
            walls,
            binds,
            empty_home: true,
            one_place: false,
            own_users: walls == Walls::Full,
            only_pairs: false,
            limits: Limits {
                processes: config.processes_max,
                open_files: config.open_files_max,
                file_bytes: config.overlay_max,
                // A limit for each process is the best there is without a control group.
                data_bytes: (!metered).then_some(config.memory_max),
                tmp_bytes: config.tmp_max,
                first_victim: false,
            },
            uid: nix::unistd::geteuid().as_raw(),
            gid: nix::unistd::getegid().as_raw(),
        };
        let mut home_binds = self.toolchains.home_binds.clone();
        home_binds.extend(covered.into_iter().filter_map(|bind| {
            let below = bind.strip_prefix(INNER_HOME).ok()?.to_str()?.to_owned();
            Some((bind, below))
        }));
        let setup = Setup {
            work,
            own: None,
            git: None,
            home: None,
            home_binds,
            ports: Vec::new(),
            names: Vec::new(),
            trust: None,
        };
        let order = JobOrder {
            job,
            cwd: PathBuf::from(WORK),
            own: None,
            env: spec::Environment::default(),
            readable: Vec::new(),
            writable: Vec::new(),
            apparmor: None,
        };
        Spec { base, setup, order }
    }

    async fn run_launch(&self, launch: Launch) -> Result<JobResult, SandboxError> {
        run::run_job(&self.pool, launch).await
    }
}

/// Which folder of the host lies at a path now.
fn folder(path: &Path) -> Result<HostFolder, SandboxError> {
    HostFolder::of(path)
        .map_err(|why| SandboxError::Setup { stage: spec::SetupFault::MOVED.into(), why: why.to_string() })
}

/// What the second rung does not give.
const REDUCED: [&str; 5] = [
    "system folders of the host are seen at their own paths, read-only; other paths can be probed for existence only",
    "projects are copied, not overlaid",
    "processes of the host can be listed; their memory, environment and files cannot be read",
    "there is no network at all, not even of the sandbox's own",
    "a program's orphans are killed by a sweep of our own, not by the kernel",
];
