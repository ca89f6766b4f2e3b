//! The run of an agent in a container: an engine makes the walls, our own program is the container's first process, and
//! the socket between the two is the only thing that leads out.
//!
//! The launcher looks at the walls from outside before it hands the agent's streams and orders over. What the engine has
//! made ends with that socket, and so with the launcher, however that ends.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use nix::sys::socket::{Shutdown, shutdown};
use tokio::io::unix::AsyncFd;
use tokio::net::UnixListener;
use tokio::time::Instant;

use super::agent::{PATH, WatchedAgent, agent_spec, agent_variables, end_of, supervise};
use super::alive::{ControlSocket, JobFrames, encode_frame};
use super::cgroup::OtherGroup;
use super::spec::{Environment, JobEnd, Spec};
use super::users::{AgentUser, USERS};
use super::{network, sys};
use crate::agent::{AgentError, AgentOrder, AgentResult, AgentRun};
use crate::container::{ContainerError, ContainerOrder};
use crate::inside::WORK;

mod checks;

mod engine;

mod inside;

mod layout;

mod leftovers;

mod program;

pub(crate) use inside::main;
pub(crate) use layout::MARKER;

use checks::ContainerBounds;
use engine::{ContainerClient, ContainerParts, FoundImage, RunClient};
use layout::AUTHORITY;
use program::OwnProgram;

/// The processes that are ours.
const OWN_PROCESSES: u64 = 1;
/// The longest time until a container's first process is there: an engine may copy an image for it.
const START_TIME: Duration = Duration::from_secs(120);
/// The longest time until a container has ended after its first process has been asked to end.
const END_TIME: Duration = Duration::from_secs(10);

/// The number of this process's next container.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// A folder on the host for one container. Dropping it removes it.
#[derive(Debug)]
struct ContainerPlace(PathBuf);

impl Drop for ContainerPlace {
    fn drop(&mut self) {
        // A folder that cannot be removed now is removed at the next start.
        let _removed = fs::remove_dir_all(&self.0);
    }
}

/// A container with a first process that waits for orders. Dropping it ends everything in it.
#[derive(Debug)]
struct LiveContainer {
    control: ControlSocket,
    pid: i32,
    pidfd: Arc<AsyncFd<OwnedFd>>,
    group: OtherGroup,
}

impl WatchedAgent for LiveContainer {
    fn control_socket(&self) -> &ControlSocket {
        &self.control
    }

    /// A container without limits is not used.
    fn unlimited_pid(&self) -> Option<i32> {
        None
    }

    fn computed_time(&self) -> (i32, Option<Duration>) {
        (self.pid, self.group.computed_time())
    }

    async fn wait_gone(&self) {
        // An error means that the descriptor is unusable: then nothing can be waited for.
        let _gone = self.pidfd.readable().await;
    }

    async fn kill_all(&self) {
        // The first process ends when its socket is closed, and the kernel ends all others with it.
        let _closed = shutdown(self.control.0.as_raw_fd(), Shutdown::Both);
        if tokio::time::timeout(END_TIME, self.wait_gone()).await.is_err() {
            let _sent = sys::send_signal(self.pidfd.get_ref().as_fd(), libc::SIGKILL);
        }
    }
}

/// Runs an agent in a container to its end.
pub(crate) async fn run_agent(run: AgentRun) -> Result<AgentResult, AgentError> {
    let began = Instant::now();
    let AgentRun { mut order, streams, listeners, first, stop, exe } = run;
    let Some(wanted) = order.container.take() else {
        return Err(AgentError::Command("it names no container"));
    };
    let exe = exe.unwrap_or_else(|| PathBuf::from("/proc/self/exe"));
    let program = OwnProgram::find_files(&exe)?;
    let (name, place) = make_place(&wanted.folder, &order.authority)?;
    let client = ContainerClient::find_engine(&wanted, &place.0)?;
    let (image, ()) =
        tokio::join!(client.find_image(&wanted.image), leftovers::remove_leftovers(&client, &wanted.folder));
    let image = image?;
    let user = AgentUser::claim_free()?;
    let id = user.as_ref().map_or_else(any_user, AgentUser::id);
    let folder = order.folder.take().map(|folder| find_folder(&folder, &wanted)).transpose()?;
    let spec = container_spec(&order, folder.is_some(), id, &image)?;
    let frames = JobFrames::of(&spec)?;
    let parts = ContainerParts {
        name: &name,
        image: &image,
        user: id,
        limits: &order.limits,
        processes: order.limits.processes.saturating_add(OWN_PROCESSES),
        names: &order.names,
        place: &place.0,
        folder: folder.as_deref(),
        program: &program,
    };
    let (alive, mut running) = start_container(&client, &parts).await?;
    let bounds = ContainerBounds { memory: order.limits.memory, processes: parts.processes };
    let checked = checks::check_container(alive.pid, &alive.group, bounds);
    let Ok(mut missing) = checked else {
        let why = checked.err().unwrap_or_default();
        let _left = end_container(&client, alive, &mut running, &name).await;
        return Err(ContainerError::Wall { why }.into());
    };
    if let Some(process) = network::first_process(alive.pid) {
        // The caller need not want to know.
        let _taken = first.send(process);
    }
    alive.control.write_all(&encode_frame(&spec.base)?).await;
    alive.control.send_job(frames, streams.into()).await;
    let mut news = supervise(&alive, &order, &listeners, stop.cancelled()).await;
    // Counted as long as the first process waits for us.
    let starved = news.event != Some(JobEnd::Exited(0)) && alive.group.kill_count() > 0;
    missing.extend(end_container(&client, alive, &mut running, &name).await);
    // A person may kill a container, and the machine for want of its own memory.
    news.event = news.event.or_else(|| running.was_killed().then_some(JobEnd::Signalled(libc::SIGKILL)));
    Ok(AgentResult {
        end: end_of(&news, starved, folder.as_deref())?,
        unreached: news.unreached,
        user: Some(id),
        missing,
        duration: began.elapsed(),
    })
}

/// Makes the folder of a container, with the authority that its programs are to trust.
fn make_place(folder: &Path, authority: &str) -> Result<(String, ContainerPlace), ContainerError> {
    let fault = |source: io::Error| ContainerError::Folder { folder: folder.to_owned(), source };
    let name = leftovers::fresh_name(NEXT.fetch_add(1, Ordering::Relaxed)).map_err(fault)?;
    // No other user reaches what is in it: the socket can be written by all, since the user inside is another one.
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(fault)?;
    let path = folder.canonicalize().map_err(fault)?.join(&name);
    fs::DirBuilder::new().mode(0o700).create(&path).map_err(fault)?;
    let place = ContainerPlace(path);
    let file = place.0.join("authority");
    fs::write(&file, authority).map_err(fault)?;
    fs::set_permissions(&file, fs::Permissions::from_mode(0o444)).map_err(fault)?;
    Ok((name, place))
}

/// The user inside where this process is not root's: one of those that nothing else has. Other containers may have it, too, and
/// cannot see this one.
fn any_user() -> u32 {
    let number = std::process::id() % u32::try_from(USERS.len()).unwrap_or(1).max(1);
    USERS.start.saturating_add(number)
}

/// Finds the folder of the agent's program, in which the engine's socket must not lie.
fn find_folder(folder: &Path, order: &ContainerOrder) -> Result<PathBuf, AgentError> {
    let refused = |why: String| AgentError::Folder { folder: folder.to_owned(), why };
    let found = folder.canonicalize().map_err(|why| refused(why.to_string()))?;
    if !found.is_dir() {
        return Err(refused("it is no folder".into()));
    }
    let Some(text) = found.to_str() else { return Err(refused("its name is not UTF-8".into())) };
    if text.contains(['\n', '\r']) {
        return Err(refused("its name has a line end".into()));
    }
    // An engine without a daemon is not asked for it.
    let mut sockets = order.daemon_socket().into_iter().chain([order.folder.as_path()]);
    if sockets.any(|path| path.canonicalize().is_ok_and(|path| path.starts_with(&found))) {
        return Err(refused("the socket of the container engine, or of this launcher, lies in it".into()));
    }
    Ok(found)
}

/// Returns the messages for the first process of a container.
fn container_spec(
    order: &AgentOrder,
    has_folder: bool,
    user: u32,
    image: &FoundImage,
) -> Result<Spec, AgentError> {
    let mut spec = agent_spec(order, Some(user), true, None)?;
    // Its users are those of the host, or of the engine: other processes may have the same.
    spec.base.own_users = false;
    // The count of kills is its engine's, and gone with the first process.
    spec.base.limits.first_victim = true;
    spec.setup.trust = None;
    if has_folder {
        spec.order.cwd = WORK.into();
    }
    let own = agent_variables(order);
    let given: BTreeMap<&String, &String> =
        order.variables.iter().map(|(name, value)| (name, value)).collect();
    let mut env: BTreeMap<String, String> = image.variables.iter().cloned().collect();
    for (name, value) in own {
        // An image knows where its programs are; a person may know it better.
        let of_image = name == "PATH" && env.contains_key("PATH");
        match given.get(&name) {
            Some(value) if name == "PATH" => env.insert(name, (*value).clone()),
            _ if of_image => None,
            _ => env.insert(name, value),
        };
    }
    env.entry("PATH".into()).or_insert_with(|| PATH.into());
    let trust = network::trust_variables(AUTHORITY);
    env.extend(trust.map(|(name, _)| (name, AUTHORITY.to_owned())));
    spec.order.env = Environment(env.into_iter().collect());
    Ok(spec)
}

/// Has a container made, and waits for its first process.
async fn start_container(
    client: &ContainerClient,
    parts: &ContainerParts<'_>,
) -> Result<(LiveContainer, RunClient), AgentError> {
    let listener = listen_in(parts.place)
        .map_err(|source| ContainerError::Folder { folder: parts.place.to_owned(), source })?;
    let mut running = client.run_container(parts)?;
    let failed = |why: String| ContainerError::Start { engine: client.engine, why };
    let started = tokio::select! {
        accepted = listener.accept() => accepted.map_err(|why| why.to_string()),
        words = running.wait_end() => Err(words.unwrap_or_else(|| "it ended at once".into())),
        () = tokio::time::sleep(START_TIME) => {
            Err(format!("its first process was not there within {} seconds", START_TIME.as_secs()))
        }
    };
    // It comes once, before the agent: nothing else can connect from here on.
    drop(listener);
    let alive = started.and_then(|(control, _)| {
        let pid = control.peer_cred().ok().and_then(|peer| peer.pid()).filter(|pid| *pid > 0);
        let pid = pid.ok_or("its processes cannot be seen from here")?;
        let pidfd = sys::open_process(pid).and_then(sys::watch_process).map_err(|why| why.to_string())?;
        let group = OtherGroup::of_process(pid).map_err(|why| why.to_string())?;
        Ok(LiveContainer { control: ControlSocket(control), pid, pidfd: Arc::new(pidfd), group })
    });
    match alive {
        Ok(alive) => Ok((alive, running)),
        Err(why) => {
            client.remove_container(parts.name).await;
            Err(failed(why).into())
        }
    }
}

/// Listens in a folder. By its handle: the path of a socket may have 107 bytes, and the folder's may be longer.
fn listen_in(place: &Path) -> io::Result<UnixListener> {
    let folder = fs::File::open(place)?;
    let listener = UnixListener::bind(format!("/proc/self/fd/{}/control", folder.as_raw_fd()))?;
    fs::set_permissions(place.join("control"), fs::Permissions::from_mode(0o666))?;
    Ok(listener)
}

/// Ends a container, and waits until the engine has removed it. Returns the remark that it is left.
async fn end_container(
    client: &ContainerClient,
    alive: LiveContainer,
    running: &mut RunClient,
    name: &str,
) -> Option<String> {
    alive.kill_all().await;
    drop(alive);
    let gone = tokio::time::timeout(END_TIME, running.wait_end()).await.is_ok_and(|words| words.is_none())
        || client.remove_container(name).await;
    (!gone).then(|| format!("in the container {name}, which {} did not remove", client.engine.as_str()))
}
