//! Agents, locked in for real: what they reach, what they may use, how they end, and what is left of them.

use std::io::{BufRead as _, BufReader, Read as _, Seek as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::super::sys;
use super::super::users::USERS;
use super::*;
use crate::agent::{
    AgentBound, AgentEnd, AgentError, AgentLimits, AgentOrder, AgentResult, AgentRun, AgentStreams,
    FirstProcess, SandboxProfile, run_agent,
};

/// What a hostile agent tries.
const ESCAPES: &str = include_str!("escapes.py");

fn order(argv: &[&str]) -> AgentOrder {
    AgentOrder {
        argv: argv.iter().map(|arg| (*arg).to_owned()).collect(),
        folder: None,
        variables: vec![("GIVEN".into(), "yes".into()), ("HOME".into(), "/root".into())],
        ports: vec![80, 443],
        names: vec!["llm-router.silo.internal".into(), "security-proxy.silo.internal".into()],
        authority: "AUTHORITY".into(),
        profile: None,
        container: None,
        limits: AgentLimits { time: Duration::from_secs(60), ..AgentLimits::default() },
    }
}

fn shell(script: &str) -> AgentOrder {
    order(&["sh", "-c", script])
}

/// A run with an input, and the file that takes its output.
fn run_of(order: AgentOrder, input: &str) -> (AgentRun, fs::File, CancellationToken) {
    let mut given = tempfile::tempfile().unwrap();
    given.write_all(input.as_bytes()).unwrap();
    given.rewind().unwrap();
    let output = tempfile::tempfile().unwrap();
    let streams: [OwnedFd; 3] =
        [given.into(), output.try_clone().unwrap().into(), output.try_clone().unwrap().into()];
    let stop = CancellationToken::new();
    // Nobody serves: what is accepted by the kernel is not answered.
    let (listeners, _) = mpsc::channel(2);
    let streams = AgentStreams::of_descriptors(streams);
    (
        AgentRun { order, streams, listeners, first: oneshot::channel().0, stop: stop.clone(), exe: None },
        output,
        stop,
    )
}

fn text_of(mut output: fs::File) -> String {
    let mut text = String::new();
    output.rewind().unwrap();
    output.read_to_string(&mut text).unwrap();
    text
}

async fn run(order: AgentOrder, input: &str) -> (AgentResult, String) {
    let (run, output, _) = run_of(order, input);
    let result = run_agent(run).await.unwrap();
    (result, text_of(output))
}

/// A run that is watched: its first line is read before it goes on.
struct Watched {
    running: tokio::task::JoinHandle<Result<AgentResult, AgentError>>,
    stop: CancellationToken,
    first: String,
    lines: BufReader<std::io::PipeReader>,
}

async fn watch(order: AgentOrder) -> Watched {
    let (mut run, _, stop) = run_of(order, "");
    let (reader, writer) = std::io::pipe().unwrap();
    run.streams.0[1] = writer.into();
    let running = tokio::spawn(run_agent(run));
    let read = tokio::task::spawn_blocking(move || {
        let (mut lines, mut first) = (BufReader::new(reader), String::new());
        lines.read_line(&mut first).unwrap();
        (lines, first)
    });
    let (lines, first) = read.await.unwrap();
    Watched { running, stop, first, lines }
}

/// Waits for the process that sleeps for a time. The shell that becomes it has another command line, or for a moment none.
fn wait_for_sleep(seconds: &str) -> i32 {
    let line = format!("sleep\0{seconds}\0");
    let sleeps =
        |pid: &i32| fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|found| found == line.as_bytes());
    let mut found = None;
    wait_until("it sleeps", || {
        found = processes(seconds).into_iter().find(sleeps);
        found.is_some()
    });
    found.unwrap()
}

/// The user of a process of the host.
fn user_of(pid: i32) -> u32 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

#[tokio::test]
async fn the_streams_are_passed_through_and_the_end_is_passed_on() {
    let (result, output) = run(shell("cat; echo $GIVEN $HOME; pwd; exit 7"), "from outside\n").await;
    assert_eq!((result.end, output.as_str()), (AgentEnd::Exited(7), "from outside\nyes /tmp\n/tmp\n"));
    assert_eq!(result.end.exit_code(), 7);
    let (result, _) = run(shell("kill -9 $$"), "").await;
    assert_eq!((result.end, result.end.exit_code()), (AgentEnd::Signalled(9), 137));
    let (result, _) = run(order(&["no-such-program"]), "").await;
    assert_eq!((result.end, result.end.exit_code()), (AgentEnd::NotFound, 127));
    let (result, _) = run(order(&["/etc/hosts"]), "").await;
    assert_eq!((result.end, result.end.exit_code()), (AgentEnd::NotExecutable, 126));
    for wrong in [vec![], vec![""], vec!["echo", "a\0b"]] {
        let (run, _, _) = run_of(order(&wrong), "");
        assert!(matches!(run_agent(run).await, Err(AgentError::Command(_))));
    }
}

/// Rows: SLO-001 (in part: the ways out of the sandbox, which its kernel counts)
/// Rows: SLO-002 SLO-035 SLO-037 SLO-038 SLO-065
/// Rows: SLO-039 (in part: what the kernel refuses is counted, without its destination)
#[tokio::test]
async fn needs_python_no_attempt_of_a_hostile_agent_leads_out() {
    let temp = tempfile::tempdir().unwrap();
    fs::write(temp.path().join("secret"), "MARKER").unwrap();
    let (own, other) = (std::process::id().to_string(), temp.path().display().to_string());
    let (result, output) = run(order(&["python3", "-c", ESCAPES, &own, &other]), "").await;
    let done = "done 1000 127.0.0.1 localhost writ llm-router.silo.internal security-proxy.silo.internal\n";
    assert_eq!((result.end, output.as_str()), (AgentEnd::Exited(0), done));
    // The kernel counts what was tried against the empty network.
    assert!(result.unreached >= 20, "{result:?}");
    let (result, _) = run(shell("true"), "").await;
    assert_eq!((result.end, result.unreached), (AgentEnd::Exited(0), 0));
}

/// What an agent does not reach is counted while it runs: one whose launcher is killed says no last word.
#[tokio::test]
async fn needs_python_attempts_are_counted_while_the_agent_runs() {
    let script = "import socket, sys\n\
                  for port in (25, 5432):\n  \
                  try: socket.create_connection(('127.0.0.1', port))\n  \
                  except OSError: pass\n\
                  sys.stdin.read()";
    let (mut run, _output, stop) = run_of(order(&["python3", "-c", script]), "");
    // Its input stays open until it has been looked at.
    let (input, held) = std::os::unix::net::UnixStream::pair().unwrap();
    let streams = [input.into(), tempfile::tempfile().unwrap().into(), tempfile::tempfile().unwrap().into()];
    run.streams = AgentStreams::of_descriptors(streams);
    let (first, began) = oneshot::channel();
    run.first = first;
    let looking = async {
        let first = began.await.unwrap();
        while first.count_unreached().unwrap() < 2 {
            tokio::task::yield_now().await;
        }
        drop(held);
        first
    };
    let (result, first) = tokio::join!(run_agent(run), looking);
    let result = result.unwrap();
    assert_eq!((result.end, result.unreached), (AgentEnd::Exited(0), 2));
    assert_eq!(first.count_unreached(), None, "it has ended");
    // Another process by that number has another start.
    let own = FirstProcess { process: i32::try_from(std::process::id()).unwrap(), since: first.since };
    assert_eq!(own.count_unreached(), None);
    drop(stop);
}

/// A program folder is seen, and stays as it is.
#[tokio::test]
async fn a_folder_is_shown_read_only_and_nothing_beside_it() {
    // Below a folder that every user may enter.
    let temp = tempfile::tempdir_in("/var/tmp").unwrap();
    fs::set_permissions(temp.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    fs::write(temp.path().join("agent.sh"), "echo hello from $PWD; touch x || echo refused").unwrap();
    let shown = AgentOrder { folder: Some(temp.path().to_owned()), ..order(&["sh", "agent.sh"]) };
    let (result, output) = run(shown, "").await;
    assert_eq!(result.end, AgentEnd::Exited(0));
    assert!(output.starts_with("hello from /work\n") && output.ends_with("refused\n"), "{output}");
    let gone = AgentOrder { folder: Some(temp.path().join("gone")), ..order(&["true"]) };
    let (run, _, _) = run_of(gone, "");
    assert!(matches!(run_agent(run).await, Err(AgentError::Folder { .. })));
}

/// The agent's own user could not go there: a home is its owner's alone.
#[tokio::test]
async fn a_folder_in_a_home_of_its_owner_s_alone_is_shown() {
    use std::os::unix::fs::PermissionsExt as _;
    let home = tempfile::tempdir_in("/var/tmp").unwrap();
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o700)).unwrap();
    let work = home.path().join("work");
    fs::create_dir(&work).unwrap();
    fs::set_permissions(&work, fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(work.join("agent.sh"), "echo hello from $PWD; touch x 2>/dev/null || echo refused; ls ..")
        .unwrap();
    fs::write(home.path().join("secret"), "MARKER").unwrap();
    let shown = AgentOrder { folder: Some(work), ..order(&["sh", "agent.sh"]) };
    let (result, output) = run(shown, "").await;
    assert_eq!(result.end, AgentEnd::Exited(0), "{output}");
    assert!(output.starts_with("hello from /work\nrefused\n") && !output.contains("secret"), "{output}");
}

/// Neither the user of the host nor the place of the folder there is in sight: not among the mounts, nor behind the links, maps and
/// words of any process.
#[tokio::test]
async fn the_place_of_a_folder_on_the_host_is_nowhere_inside() {
    let home = tempfile::Builder::new().prefix("home-of-ada-").tempdir_in("/var/tmp").unwrap();
    fs::set_permissions(home.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let work = home.path().join("agents/refunds");
    fs::create_dir_all(work.join("below")).unwrap();
    let script = "cat below/words; echo; cd below; exec 7< words
        cat /proc/*/mountinfo /proc/*/mounts /proc/*/mountstats /proc/*/task/*/mountinfo 2>/dev/null
        cat /proc/*/maps /proc/*/environ /proc/*/cmdline /proc/*/status /proc/*/fdinfo/* 2>/dev/null
        ls -l /proc/*/exe /proc/*/cwd /proc/*/root /proc/*/fd /proc/*/map_files /proc/*/task/*/cwd 2>/dev/null
        cat /proc/mounts /proc/swaps /proc/locks /proc/cmdline; ls -a /run /root; df . /work; echo end";
    fs::write(work.join("agent.sh"), script).unwrap();
    fs::write(work.join("below/words"), "the words of its program").unwrap();
    let shown = AgentOrder { folder: Some(work.clone()), ..order(&["sh", "/work/agent.sh"]) };
    let (result, output) = run(shown, "").await;
    assert_eq!(result.end, AgentEnd::Exited(0), "{output}");
    assert!(output.starts_with("the words of its program\n") && output.ends_with("end\n"), "{output}");
    assert!(output.contains("/work/below/words"), "its own files are named: {output}");
    for part in ["home-of-ada", "refunds"] {
        assert!(!output.contains(part), "{part} in {output}");
    }
    let again = AgentOrder { folder: Some(work), ..order(&["sh", "-c", "touch /work/x /work/below/y"]) };
    let (result, output) = run(again, "").await;
    assert!(result.end == AgentEnd::Exited(1) && output.matches("Read-only").count() == 2, "{output}");
}

/// The servers of a machine in a folder that is shown to an agent, open to every user.
struct ShownServers {
    folder: tempfile::TempDir,
    server: UnixListener,
    letters: UnixDatagram,
    pipe: fs::File,
}

impl ShownServers {
    fn new() -> Self {
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        let [server, letters, pipe] =
            ["server.sock", "letters.sock", "pipe"].map(|name| folder.path().join(name));
        let servers = (UnixListener::bind(&server).unwrap(), UnixDatagram::bind(&letters).unwrap());
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRUSR).unwrap();
        for path in [&server, &letters, &pipe, &folder.path().to_owned()] {
            fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        }
        servers.0.set_nonblocking(true).unwrap();
        servers.1.set_nonblocking(true).unwrap();
        // With a reader, a writer would not wait.
        let flags = nix::fcntl::OFlag::O_NONBLOCK.bits();
        let pipe = fs::File::options().read(true).custom_flags(flags).open(&pipe).unwrap();
        Self { folder, server: servers.0, letters: servers.1, pipe }
    }

    fn shown(&self, argv: &[&str]) -> AgentOrder {
        AgentOrder { folder: Some(self.folder.path().to_owned()), ..order(argv) }
    }

    fn assert_unheard(mut self) {
        let waits =
            |found: std::io::Result<()>| found.is_err_and(|why| why.kind() == std::io::ErrorKind::WouldBlock);
        assert!(waits(self.server.accept().map(drop)), "a connection came");
        assert!(waits(self.letters.recv(&mut [0; 8]).map(drop)), "a letter came");
        assert_eq!(self.pipe.read(&mut [0; 8]).unwrap(), 0, "something was written");
        // They hear: the user itself is not refused.
        std::os::unix::net::UnixStream::connect(self.folder.path().join("server.sock")).unwrap();
        self.server.accept().unwrap();
    }
}

/// Rows: SLO-038 (path sockets)
#[tokio::test]
async fn needs_python_no_socket_in_its_folder_is_reached_and_pairs_work() {
    let servers = ShownServers::new();
    let (result, output) = run(servers.shown(&["python3", "-c", include_str!("sockets.py")]), "").await;
    assert_eq!((result.end, output.as_str()), (AgentEnd::Exited(0), "done\n"));
    servers.assert_unheard();
}

/// Rows: SLO-038 (path sockets)
#[tokio::test]
async fn needs_node_an_agent_in_node_reaches_no_socket_in_its_folder_and_has_its_processes() {
    let servers = ShownServers::new();
    let (result, output) = run(servers.shown(&["node", "-e", include_str!("sockets.js")]), "").await;
    let done = "refused refused\nchild worker\nserved\n";
    assert_eq!((result.end, output.as_str()), (AgentEnd::Exited(0), done));
    servers.assert_unheard();
}

/// Rows: SLO-065
#[tokio::test]
async fn ten_gigabytes_fill_the_temporary_folder_and_no_more() {
    let small = AgentLimits { tmp: 8 * MIB, ..order(&[]).limits };
    let script = "dd if=/dev/zero of=/tmp/a bs=1M count=10240 2>&1 | grep -c 'No space'; \
        for i in 1 2 3; do dd if=/dev/zero of=/dev/shm/b$i bs=1M count=10240 2>/dev/null; done; du -sm /tmp | cut -f1";
    let (result, output) = run(AgentOrder { limits: small, ..shell(script) }, "").await;
    assert_eq!(result.end, AgentEnd::Exited(0), "{output}");
    let mut lines = output.lines();
    assert_eq!(lines.next(), Some("1"), "{output}");
    assert!(lines.last().unwrap().parse::<u64>().unwrap() <= 8, "{output}");
}

#[tokio::test]
async fn a_fork_bomb_and_a_thousand_sockets_end_at_their_bounds() {
    let marker = marker();
    let limits = AgentLimits { time: Duration::from_millis(1_500), processes: 40, ..order(&[]).limits };
    let bomb = format!("b() {{ sleep {marker} & b & b; }}; b 2>/dev/null");
    let (result, _) = run(AgentOrder { limits, ..shell(&bomb) }, "").await;
    // The shell may give up before its time is over.
    assert!(
        matches!(result.end, AgentEnd::Bounded(_) | AgentEnd::Exited(1..) | AgentEnd::Signalled(_)),
        "{result:?}"
    );
    assert_eq!(processes(&marker), NOBODY_LEFT);
    let sockets = "import socket\nopen = []\ntry:\n    while True: open.append(socket.socket())\nexcept OSError: print(len(open) < 1024)";
    let (result, output) = run(order(&["python3", "-c", sockets]), "").await;
    assert_eq!((result.end, output.as_str()), (AgentEnd::Exited(0), "True\n"));
}

#[tokio::test]
async fn memory_and_computing_time_are_bounded_for_all_processes_together() {
    let limits = AgentLimits { memory: 48 * MIB, ..order(&[]).limits };
    let hog = "a = []\nwhile True: a.append(bytearray(1 << 20))";
    let (result, output) = run(AgentOrder { limits, ..order(&["python3", "-c", hog]) }, "").await;
    let ended = result.end == AgentEnd::Bounded(AgentBound::Memory) || output.contains("MemoryError");
    assert!(ended, "{result:?} {output}");
    // Spread over children, none of which computes long.
    let spread = "while :; do (i=0; while [ $i -lt 3000 ]; do i=$((i+1)); done) & wait; done";
    let limits = AgentLimits { compute: Some(Duration::from_millis(400)), ..order(&[]).limits };
    let (result, _) = run(AgentOrder { limits, ..shell(spread) }, "").await;
    assert_eq!((result.end, result.end.exit_code()), (AgentEnd::Bounded(AgentBound::Compute), 137));
}

#[tokio::test]
async fn an_agent_is_asked_to_end_and_then_killed_with_all_that_it_started() {
    let marker = marker();
    let quick = AgentLimits {
        time: Duration::from_millis(400),
        grace: Duration::from_millis(300),
        ..order(&[]).limits
    };
    let deaf = format!(
        "trap '' TERM; (setsid sh -c \"trap '' TERM; sleep {marker}\" &); sleep {marker}; sleep {marker}"
    );
    let (result, _) = run(AgentOrder { limits: quick, ..shell(&deaf) }, "").await;
    assert_eq!((result.end, result.end.exit_code()), (AgentEnd::Bounded(AgentBound::Time), 124));
    assert_eq!(processes(&marker), NOBODY_LEFT);
    // One that obeys ends in its own way, when it is asked from outside, too.
    let obedient = format!("trap 'echo bye; exit 9' TERM; echo ready; sleep {marker} & wait");
    let mut watched = watch(shell(&obedient)).await;
    assert_eq!(watched.first, "ready\n");
    watched.stop.cancel();
    assert_eq!(watched.running.await.unwrap().unwrap().end, AgentEnd::Exited(9));
    let mut rest = String::new();
    watched.lines.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "bye\n");
    assert_eq!(processes(&marker), NOBODY_LEFT);
}

/// Rows: SLO-031 SLO-032 SLO-061
#[tokio::test]
async fn two_agents_at_once_have_different_users_and_know_nothing_of_each_other() {
    let marker = marker();
    let script = format!("echo mine > /tmp/secret; echo ready; exec sleep {marker}");
    let first = watch(shell(&script)).await;
    let target = wait_for_sleep(&marker);
    let own = user_of(target);
    // The second one tries what the first has: its file, its process by its number outside, all numbers inside.
    let attempts = format!(
        "echo ready; cat /tmp/secret /proc/{target}/cmdline /proc/{target}/root/tmp/secret 2>/dev/null; \
         kill -9 {target} 2>/dev/null && echo KILLED; \
         grep -al '^sleep.{marker}' $(seq -f /proc/%g/cmdline 1 400) 2>/dev/null; exec sleep 7{marker}"
    );
    let mut second = watch(shell(&attempts)).await;
    assert_eq!(second.first, "ready\n");
    // It sleeps once it has tried everything.
    let user = user_of(wait_for_sleep(&format!("7{marker}")));
    if nix::unistd::geteuid().is_root() {
        assert!(USERS.contains(&own) && USERS.contains(&user) && own != user, "{own} {user}");
    }
    assert!(processes(&marker).contains(&target), "the first one's process is still there");
    second.stop.cancel();
    let result = second.running.await.unwrap().unwrap();
    assert_eq!(result.end, AgentEnd::Signalled(15));
    let mut rest = String::new();
    second.lines.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "");
    first.stop.cancel();
    first.running.await.unwrap().unwrap();
    assert_eq!(processes(&marker), NOBODY_LEFT);
}

/// The agent of a launcher that can be killed; says so when it has begun.
pub(super) fn scenario(dir: &str) -> i32 {
    let marker = fs::read_to_string(Path::new(dir).join("marker")).unwrap();
    // The line comes from a second process that stays what it is: a process has no command line in the middle of an `exec`.
    let script = format!(
        "echo mine > /tmp/{marker}; (setsid sh -c 'echo ready; sleep {marker}; :' &); sleep {marker}; :"
    );
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (mut run, _, _) = run_of(shell(&script), "");
    run.streams = AgentStreams::of_process().unwrap();
    let result = runtime.block_on(run_agent(run)).unwrap();
    result.end.exit_code()
}

/// Rows: SLO-065
#[test]
fn nothing_is_left_of_an_agent_when_its_launcher_is_killed() {
    let users: &[Option<u32>] =
        if nix::unistd::geteuid().is_root() { &[None, Some(NOBODY)] } else { &[None] };
    for user in users {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let marker = marker();
        fs::write(dir.path().join("marker"), &marker).unwrap();
        let mut launcher = start_scenario("agent", dir.path(), *user);
        let mut line = String::new();
        BufReader::new(launcher.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        let running = processes(&marker);
        assert!(running.len() >= 2, "{running:?}");
        let handles: Vec<OwnedFd> = running.iter().filter_map(|pid| sys::open_process(*pid).ok()).collect();
        launcher.kill().unwrap();
        launcher.wait().unwrap();
        for handle in &handles {
            let mut watch = [PollFd::new(handle.as_fd(), PollFlags::POLLIN)];
            assert_eq!(
                poll(&mut watch, PollTimeout::from(10_000_u16)).unwrap(),
                1,
                "a process outlives its launcher"
            );
        }
        // Its folder was in its own mounts: no mount of ours and no file is left.
        assert!(!Path::new("/tmp").join(&marker).exists());
        assert!(!fs::read_to_string("/proc/self/mountinfo").unwrap().contains(&marker));
    }
}

/// Rows: SLO-036 (in part: a missing profile in required mode)
#[tokio::test]
async fn a_required_profile_that_is_not_there_makes_the_start_fail() {
    let with = |name: &str, required| AgentOrder {
        profile: Some(SandboxProfile { name: name.to_owned(), required }),
        ..shell("echo started")
    };
    let (run_it, output, _) = run_of(with("writ-no-such-profile", true), "");
    let refused = run_agent(run_it).await.unwrap_err();
    assert!(matches!(refused, AgentError::Profile { .. }), "{refused}");
    assert_eq!(text_of(output), "");
    // Where it is only wanted, the agent runs, and what is missing is said.
    let (result, output) = run(with("writ-no-such-profile", false), "").await;
    assert_eq!((result.end, output.as_str()), (AgentEnd::Exited(0), "started\n"));
    assert_eq!(result.missing.len(), 1, "{result:?}");
    for improper in ["", "two words", "a\nchangeprofile b", &"x".repeat(300)] {
        let (run, _, _) = run_of(with(improper, false), "");
        assert!(matches!(run_agent(run).await, Err(AgentError::Profile { .. })));
    }
}
