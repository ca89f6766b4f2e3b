//! Processes around the sandbox: the zygote and engine that die, an ordinary user, the second rung, git.

use std::io::{BufRead, BufReader, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::chown;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use writ_types::error::{Exit, ToReport};

use super::super::sys;
use super::*;
use crate::host::{HostError, host_git};
use crate::status::{Cgroup, Rung};

/// What this binary does as a process of its own.
pub(super) async fn scenario(name: &str, dir: PathBuf) {
    match name {
        "engine" => engine(SandboxConfig::default(), dir).await,
        "engine-reduced" => {
            engine(SandboxConfig { forbid_user_namespaces: true, ..SandboxConfig::default() }, dir).await
        }
        "ordinary" => ordinary(dir).await,
        other => panic!("{other}"),
    }
}

/// An engine with a program that does not end; says so when it has begun.
async fn engine(config: SandboxConfig, dir: PathBuf) {
    let marker = fs::read_to_string(dir.join("marker")).unwrap();
    let fixture = Fixture::in_folder(config, dir).await;
    let (output, mut pieces) = tokio::sync::mpsc::channel(1);
    let options = ExecOptions { output: Some(output), ..ExecOptions::default() };
    let script = format!("(setsid sleep {marker} &) ; echo ready; sleep {marker}");
    let mut forever = exec(&["sh", "-c", &script]);
    forever.timeout_ms = 60_000;
    let running = fixture.workspace.run_exec(forever, options);
    let told = async {
        pieces.recv().await.unwrap();
        // Those that wait for something to do: the worker was used, on the first rung.
        let pool = &fixture.native.pool;
        pool.filled(if fixture.sandbox.status().await.rung == Rung::Full { 2 } else { 0 }).await;
        let pids: Vec<String> = pool.pids().iter().map(ToString::to_string).collect();
        println!("ready {}", pids.join(" "));
    };
    let (result, ()) = tokio::join!(running, told);
    panic!("{result:?}");
}

/// A user without any right of root: no control groups, a user namespace all the same.
async fn ordinary(dir: PathBuf) {
    let fixture =
        Fixture::in_folder(SandboxConfig { memory_max: 512 * MIB, ..SandboxConfig::default() }, dir).await;
    let status = fixture.sandbox.status().await;
    assert_eq!((status.rung, status.overlay, status.cgroup), (Rung::Full, true, Cgroup::Watchdog));
    assert_eq!(
        fixture.sh("id -u; echo x >> README.md; rm src/a.rs; cat README.md").await,
        "1000\none\ntwo\nx"
    );
    let set = fixture.changes().await;
    assert_eq!(set.changes.len(), 2);
    fixture.carry(set.changes).await.unwrap();
    assert_eq!(fixture.read("README.md"), "one\ntwo\nx\n");
    let verify = Exec { profile: ExecProfile::Verification, ..exec(&["cat", "README.md"]) };
    let result = fixture.workspace.run_exec(verify, ExecOptions::default()).await.unwrap();
    assert_eq!(result.stdout.text, "one\ntwo\nx\n");
    // Without a control group, one process is limited by the kernel and all of them by the watchdog.
    let one = fixture.exec(&["perl", "-e", "$x = 'x' x (10 << 30)"]).await;
    assert_ne!(one.ending, Ending::Exited { code: 0 }, "{one:?}");
    let many = "for i in 1 2 3 4; do perl -e '$x = q(x) x (200 << 20); sleep 60' & done; wait";
    let many = fixture.exec(&["sh", "-c", many]).await;
    assert_eq!(many.ending, Ending::Killed { limit: Limit::Memory });
    fixture.sh("mkdir -m 000 shut; mkdir -p a/b; chmod 000 a").await;
    fixture.workspace.discard_changes().await.unwrap();
    assert_eq!(fixture.sh("ls").await, "README.md\nlink\nsrc");
    println!("ok");
}

/// Tells what a process sees of itself when the engine is started.
pub(super) fn detached() {
    let own = nix::unistd::getpid();
    let leader = nix::unistd::getsid(None).unwrap() == own;
    let open = fs::read_dir("/proc/self/fd").unwrap().count();
    let vars: Vec<String> = std::env::vars().map(|(name, value)| format!("{name}={value}")).collect();
    // The folder that was just read is one of the four.
    println!("leader {leader}, open {open}, vars {vars:?}, cwd {:?}", std::env::current_dir().unwrap());
}

/// Waits until processes are gone.
pub(super) fn wait_for_end(pids: &[i32]) {
    for handle in pids.iter().filter_map(|pid| sys::open_process(*pid).ok()) {
        let mut watch = [PollFd::new(handle.as_fd(), PollFlags::POLLIN)];
        let ended = poll(&mut watch, PollTimeout::try_from(PATIENCE).unwrap()).unwrap();
        assert_eq!(ended, 1, "a process outlives its engine");
    }
}

fn kill_an_engine(scenario: &str) {
    let dir = tempfile::tempdir().unwrap();
    let marker = marker();
    fs::write(dir.path().join("marker"), &marker).unwrap();
    let mut engine = start_scenario(scenario, dir.path(), None);
    let mut line = String::new();
    BufReader::new(engine.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let waiting = line.trim_end().strip_prefix("ready").unwrap();
    let waiting: Vec<i32> = waiting.split_whitespace().map(|pid| pid.parse().unwrap()).collect();
    assert_eq!(waiting.len(), if scenario == "engine" { 4 } else { 0 });
    // The one that sleeps beside the shell may just become `sleep`, and has no command line for that moment.
    wait_until("both of them sleep", || processes(&marker).len() >= 2);
    engine.kill().unwrap();
    engine.wait().unwrap();
    wait_for_end(&waiting);
    // What had not begun when the engine died may begin before its sandbox ends.
    let mut rounds = 0;
    while !processes(&marker).is_empty() {
        wait_for_end(&processes(&marker));
        rounds += 1;
        assert!(rounds < 10, "new processes go on beginning");
    }
}

#[test]
fn the_death_of_the_engine_ends_every_program() {
    kill_an_engine("engine");
}

#[test]
fn the_death_of_the_engine_ends_every_program_on_the_second_rung() {
    kill_an_engine("engine-reduced");
}

#[tokio::test]
async fn a_zygote_that_died_is_replaced() {
    let fixture = Fixture::new().await;
    assert_eq!(fixture.sh("echo one").await, "one");
    let pool = &fixture.native.pool;
    pool.filled(4).await;
    let pids = [pool.pids(), pool.zygote_slots().pids()].concat();
    for pid in &pids {
        // A first process may have followed its zygote already.
        let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(*pid), nix::sys::signal::Signal::SIGKILL);
    }
    wait_for_end(&pids);
    assert_eq!(fixture.sh("echo two").await, "two");
    pool.when(|pool| !pool.pids().is_empty() && pool.pids().iter().all(|pid| !pids.contains(pid))).await;
    assert_eq!(fixture.sh("echo three").await, "three");
}

#[test]
fn an_ordinary_user_has_the_whole_recipe() {
    if !nix::unistd::getuid().is_root() {
        // Then every other test of this file has shown it.
        assert_ne!(nix::unistd::geteuid().as_raw(), 0);
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    chown(dir.path(), Some(NOBODY), Some(NOBODY)).unwrap();
    let mut child = start_scenario("ordinary", dir.path(), Some(NOBODY));
    let mut said = String::new();
    child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(said, "ok\n");
}

#[tokio::test]
async fn the_status_says_what_was_found() {
    let fixture = Fixture::new().await;
    let status = fixture.sandbox.status().await;
    assert_eq!(
        (status.rung, status.user_namespaces, status.overlay, status.seccomp),
        (Rung::Full, true, true, true)
    );
    assert_eq!(status.landlock_abi, sys::landlock_abi());
    assert_eq!(
        serde_json::from_str::<crate::status::SandboxStatus>(&serde_json::to_string(&status).unwrap())
            .unwrap(),
        status
    );
}

/// Rows: WIN-145 (exit code, output and time on the second rung as on the first)
#[tokio::test]
async fn the_second_rung_confines_what_it_can_and_says_what_not() {
    let fixture =
        Fixture::with(SandboxConfig { forbid_user_namespaces: true, ..SandboxConfig::default() }).await;
    let status = fixture.sandbox.status().await;
    assert_eq!((status.rung, status.user_namespaces, status.overlay), (Rung::Reduced, false, false));
    assert!(status.reduced.len() >= 5 && !status.hints.is_empty(), "{status:?}");
    assert!(fixture.workspace.is_copy());

    let result = fixture
        .exec(&["sh", "-c", "echo x >> README.md; cat README.md; rm src/a.rs; echo t > $TMPDIR/t"])
        .await;
    assert_eq!(
        (result.rung, result.ending, result.stdout.text.as_str()),
        (Rung::Reduced, Ending::Exited { code: 0 }, "one\ntwo\nx\n")
    );
    let target = fixture.dir.join("home/marker");
    for trick in [
        format!("cat {}", target.display()),
        format!("echo x > {}", target.display()),
        format!("ln {} hard", target.display()),
        format!("cat {}", fixture.project.join("README.md").display()),
        "cat /proc/1/environ".into(),
        "cat /etc/shadow".into(),
        "touch /usr/x".into(),
        "kill -0 1".into(),
    ] {
        fixture.refused(&trick).await;
    }
    let network = fixture.exec(&["python3", "-c", "import socket\nsocket.socket()"]).await;
    assert!(network.stderr.text.contains("not permitted"), "{network:?}");
    let marker = marker();
    let result = fixture.exec(&["sh", "-c", &format!("(setsid sleep {marker} &) & wait; echo left")]).await;
    assert_eq!(result.ending, Ending::Exited { code: 0 });
    assert_eq!(processes(&marker), NOBODY_LEFT);
    let mut slow = exec(&["sh", "-c", &format!("(setsid sleep {marker} &); sleep {marker}")]);
    slow.timeout_ms = 500;
    let result = fixture.workspace.run_exec(slow, ExecOptions::default()).await.unwrap();
    assert!(result.timed_out());
    assert_eq!(processes(&marker), NOBODY_LEFT);
    let verify = Exec {
        profile: ExecProfile::Verification,
        ..exec(&["sh", "-c", "cat README.md; echo lost > README.md"])
    };
    let result = fixture.workspace.run_exec(verify, ExecOptions::default()).await.unwrap();
    assert_eq!(result.stdout.text, "one\ntwo\nx\n");
    // Where there is no `/tmp` of its own, it has another place for temporary files, and no more.
    let argv = ["sh", "-c", "echo t > $TMPDIR/t && env | cut -d= -f1 | sort"];
    let verify = Exec { profile: ExecProfile::Verification, ..exec(&argv) };
    let result = fixture.workspace.run_exec(verify, ExecOptions::default()).await.unwrap();
    let names: Vec<&str> = result.stdout.text.lines().filter(|name| *name != "PWD").collect();
    assert_eq!(names, ["HOME", "PATH", "TMPDIR"], "{result:?}");

    let read = fixture.workspace.peek_file("README.md").await.unwrap().unwrap();
    assert_eq!(read.bytes, b"one\ntwo\nx\n");
    // A file that the owner adds meanwhile is not taken for one that the session deleted.
    fs::write(fixture.project.join("added"), "by the owner").unwrap();
    let set = fixture.changes().await;
    let told: Vec<_> = set.changes.iter().map(|change| (change.path.as_str(), change.kind)).collect();
    assert_eq!(told, [("README.md", ChangeKind::Modify), ("src/a.rs", ChangeKind::Delete)]);
    assert_eq!(set.left_out, []);
    fixture.carry(set.changes).await.unwrap();
    assert_eq!(fixture.read("README.md"), "one\ntwo\nx\n");
    assert!(fixture.changes().await.is_empty());
}

/// The third rung: where nothing can be confined nothing is run. The helper of such a sandbox ends at once, so that no
/// rung comes up, and there is no other way to a program than a work folder, which is not opened then.
///
/// Rows: SF-492
#[tokio::test]
async fn where_nothing_can_be_confined_nothing_is_run() {
    let fixture = Fixture::new().await;
    let outside = fixture.dir.join("home/marker");
    fixture.refused(&format!("cat {}", outside.display())).await;
    assert_eq!(fixture.sh("cat README.md").await, "one\ntwo", "twin: what was given");

    for forbid_user_namespaces in [false, true] {
        let config = SandboxConfig {
            exe: Some("/bin/false".into()),
            forbid_user_namespaces,
            ..SandboxConfig::default()
        };
        let sandbox = Sandbox::start(config).unwrap();
        let status = sandbox.status().await;
        assert_eq!(
            (status.rung, status.user_namespaces, status.overlay),
            (Rung::Refuse, false, false),
            "{status:?}"
        );
        assert_eq!(
            (status.reduced.len(), status.hints.len()),
            (2, 1),
            "why not the one, and why not the other"
        );
        let data = fixture.dir.join("refused");
        for project in [None, Some(fixture.project.as_path())] {
            let refused = open(&sandbox, &data, project).await.unwrap_err();
            let SandboxError::Refused { reasons } = &refused else { panic!("{refused:?}") };
            assert_eq!(*reasons, status.reduced);
            let report = refused.report();
            assert_eq!((report.exit, report.code.as_str()), (Exit::Blocked, "sandbox.refused"));
        }
        assert!(!data.exists(), "not even a folder is made");
    }
}

#[test]
fn the_engine_is_started_with_nothing_of_ours() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    let args = [SCENARIO, "detached", dir.path().to_str().unwrap()].map(str::to_owned);
    let env = [("WRIT_HOME".to_owned(), "/h".to_owned())].into();
    let pid = crate::host::spawn_engine(&args, &env, &log).unwrap();
    wait_for_end(&[i32::try_from(pid).unwrap()]);
    assert_eq!(
        fs::read_to_string(&log).unwrap(),
        "leader true, open 4, vars [\"WRIT_HOME=/h\"], cwd \"/\"\n"
    );
}

#[tokio::test]
async fn git_runs_nothing_that_a_repository_names() {
    let dir = tempfile::tempdir().unwrap();
    let git = async |args: &[&str]| {
        host_git(dir.path(), &args.iter().map(|arg| (*arg).to_owned()).collect::<Vec<_>>()).await
    };
    assert_eq!(git(&["init", "-q", "-b", "main"]).await.unwrap().code, 0);
    let hook = dir.path().join(".git/hooks/pre-commit");
    fs::create_dir_all(hook.parent().unwrap()).unwrap();
    fs::write(&hook, format!("#!/bin/sh\ntouch {}\nexit 1\n", dir.path().join("ran").display())).unwrap();
    fs::set_permissions(&hook, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    fs::write(dir.path().join("a"), "a").unwrap();
    git(&["add", "a"]).await.unwrap();
    let commit = ["-c", "user.name=writ", "-c", "user.email=writ@localhost", "commit", "-q", "-m", "one"];
    let done = git(&commit).await.unwrap();
    assert_eq!(done.code, 0, "{}", done.stderr);
    assert!(!dir.path().join("ran").exists());
    assert_eq!(git(&["log", "--format=%s"]).await.unwrap().stdout, b"one\n");
    let config = dir.path().join(".git/config");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, format!("{text}[filter \"x\"]\n\tclean = touch ran\n")).unwrap();
    assert!(matches!(git(&["status"]).await, Err(HostError::Foreign { key }) if key == "filter.x.clean"));
}
