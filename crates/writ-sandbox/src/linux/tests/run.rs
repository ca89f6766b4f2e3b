//! Running programs: what they see, what they may use, how they end. Threats 19 and 21.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::*;
use crate::config::{ShownFolder, ShownKind};
use crate::exec::EndTimes;

/// Rows: SIL-203 (output as it is, and an unknown program; the tool trims it)
#[tokio::test]
async fn a_program_runs_and_an_unknown_one_is_told() {
    let fixture = Fixture::new().await;
    let result = fixture.exec(&["echo", "hello"]).await;
    assert_eq!(result.stdout, Output { text: "hello\n".into(), bytes: 6, truncated: false });
    assert_eq!((result.ending, result.exit_code()), (Ending::Exited { code: 0 }, 0));
    let result = fixture.exec(&["no-such-program"]).await;
    assert_eq!((result.ending, result.exit_code()), (Ending::NotFound, 127));
    let result = fixture.exec(&["/work/README.md"]).await;
    assert_eq!((result.ending, result.exit_code()), (Ending::NotExecutable, 126));
    let result = fixture.exec(&["sh", "-c", "kill -TERM $$"]).await;
    assert_eq!((result.ending, result.exit_code()), (Ending::Signalled { signal: 15 }, 143));
}

/// Rows: SIL-195
#[tokio::test]
async fn arguments_arrive_as_they_are() {
    let fixture = Fixture::new().await;
    let result = fixture.exec(&["printf", "%s", "$(touch x) `touch y` * ; | \n"]).await;
    assert_eq!(result.stdout.text, "$(touch x) `touch y` * ; | \n");
    assert_eq!(fixture.sh("ls").await, "README.md\nlink\nsrc");
    let mut with_zero = exec(&["echo", "a\0b"]);
    let refused = fixture.workspace.run_exec(with_zero.clone(), ExecOptions::default()).await;
    assert!(matches!(refused, Err(SandboxError::BadCommand { .. })), "{refused:?}");
    with_zero.argv = Vec::new();
    let refused = fixture.workspace.run_exec(with_zero, ExecOptions::default()).await;
    assert!(matches!(refused, Err(SandboxError::BadCommand { .. })), "{refused:?}");
}

/// Rows: SIL-197 SCL-183
#[tokio::test]
async fn each_session_has_its_own_folder_and_nobody_has_our_environment() {
    let fixture = Fixture::new().await;
    let other = open(&fixture.sandbox, &fixture.dir.join("other"), None).await.unwrap();
    fixture.sh("echo mine > mine").await;
    let result = other.run_exec(exec(&["sh", "-c", "pwd; ls -A"]), ExecOptions::default()).await.unwrap();
    assert_eq!(result.stdout.text, "/work\n");
    assert_eq!(fixture.sh("cat mine").await, "mine");
    // Cargo gives this process variables; none of them is inside, not even in the first process.
    let names = fixture.sh("env | cut -d= -f1 | sort | tr '\\n' ' '").await;
    assert_eq!(
        names,
        "GIT_CONFIG_SYSTEM HOME LANG LOGNAME PATH PWD PYTHONDONTWRITEBYTECODE RUSTUP_HOME SHELL TERM TMPDIR USER"
            .replace(if names.contains("RUSTUP_HOME") { "" } else { "RUSTUP_HOME " }, "")
    );
    let mut with_env = exec(&["sh", "-c", "echo $GREETING"]);
    with_env.env.insert("GREETING".into(), "hi".into());
    let result = fixture.workspace.run_exec(with_env, ExecOptions::default()).await.unwrap();
    assert_eq!(result.stdout.text, "hi\n");
    // A program that crashes ends itself alone: this process and both sessions go on.
    let crash = ["sh", "-c", "kill -SEGV $$"];
    let result = fixture.exec(&crash).await;
    assert_eq!((result.ending, result.exit_code()), (Ending::Signalled { signal: 11 }, 139));
    let result = other.run_exec(exec(&crash), ExecOptions::default()).await.unwrap();
    assert_eq!((result.ending, result.exit_code()), (Ending::Signalled { signal: 11 }, 139));
    assert_eq!(fixture.sh("cat mine").await, "mine");
    let result = other.run_exec(exec(&["sh", "-c", "pwd; ls -A"]), ExecOptions::default()).await.unwrap();
    assert_eq!(result.stdout.text, "/work\n");
}

/// Installed scripts, caches and settings name absolute paths: the project is where they say, and at `/work`, too.
#[tokio::test]
async fn a_project_is_at_its_own_path_too() {
    let fixture = Fixture::new().await;
    let own = fixture.project.display().to_string();
    let tool = fixture.project.join("tool");
    fs::write(&tool, format!("#!{own}/interpreter\n")).unwrap();
    fs::write(fixture.project.join("interpreter.txt"), "said\n").unwrap();
    fs::copy("/bin/cat", fixture.project.join("interpreter")).unwrap();
    fs::set_permissions(&tool, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    assert_eq!(fixture.sh("pwd").await, own, "a program begins at the path that its owner knows");
    assert_eq!(
        fixture.sh(&format!("{own}/tool {own}/interpreter.txt")).await,
        format!("#!{own}/interpreter\nsaid")
    );
    let mut below = exec(&["sh", "-c", "pwd; echo new > made; cat /work/src/made"]);
    below.cwd = "/work/src".into();
    let result = fixture.workspace.run_exec(below.clone(), ExecOptions::default()).await.unwrap();
    assert_eq!(result.stdout.text, format!("{own}/src\nnew\n"));
    assert_eq!(
        fixture.changes().await.changes.iter().map(|c| c.path.as_str()).collect::<Vec<_>>(),
        ["src/made"]
    );
    // What is beside it on the host is not there, and nothing can be put there.
    let beside = fixture.dir.display();
    assert_eq!(fixture.sh(&format!("ls -A {beside}")).await, "project");
    // What is verified is there, too, and is not changed by it.
    below.profile = ExecProfile::Verification;
    let result = fixture.workspace.run_exec(below, ExecOptions::default()).await.unwrap();
    assert_eq!(result.stdout.text, format!("{own}/src\nnew\n"));
}

/// A project in the folder that is the home inside, and one below a folder that only the root has: the home is the session's, the root
/// is read-only when a program begins.
#[tokio::test]
async fn a_project_below_a_home_of_the_same_name_is_at_its_own_path() {
    let Ok(temp) = tempfile::Builder::new().prefix("writ-own").tempdir_in("/srv") else { return };
    let fixture = Fixture::in_folder(SandboxConfig::default(), temp.path().to_owned()).await;
    assert_eq!(fixture.sh("pwd").await, fixture.project.display().to_string());
    fixture.refused("touch /srv/x").await;
    fixture.refused("mkdir /new").await;
}

/// Programs see the owner's time zone; what is verified has the same everywhere.
#[tokio::test]
async fn programs_have_the_owners_time_zone() {
    for (zone, told) in [("Asia/Kolkata", "IST +0530"), ("Nowhere/Atoll", "UTC +0000")] {
        let config = SandboxConfig { time_zone: Some(zone.to_owned()), ..SandboxConfig::default() };
        let fixture = Fixture::with(config).await;
        assert_eq!(fixture.sh("date '+%Z %z'").await, told);
        let verified = Exec { profile: ExecProfile::Verification, ..exec(&["date", "+%z"]) };
        let result = fixture.workspace.run_exec(verified, ExecOptions::default()).await.unwrap();
        assert_eq!(result.stdout.text, "+0000\n");
    }
}

/// Rows: SIL-198
/// Rows: SCL-184 (programs)
/// Rows: SCL-116
#[tokio::test]
async fn a_program_that_takes_too_long_is_killed_with_its_children() {
    let fixture = Fixture::new().await;
    let marker = marker();
    let mut slow = exec(&["sh", "-c", &format!("sleep {marker} & sleep {marker}")]);
    slow.timeout_ms = 1_000;
    let result = fixture.workspace.run_exec(slow, ExecOptions::default()).await.unwrap();
    assert_eq!((result.ending, result.exit_code()), (Ending::Killed { limit: Limit::Time }, 124));
    assert!(result.timed_out() && result.run_time() < Duration::from_secs(5), "{result:?}");
    assert_eq!(processes(&marker), NOBODY_LEFT);
}

#[tokio::test]
async fn cancelling_or_dropping_kills_everything() {
    let fixture = Fixture::new().await;
    let (marker, cancel) = (marker(), CancellationToken::new());
    let (output, mut pieces) = tokio::sync::mpsc::channel(4);
    let options = ExecOptions { cancel: cancel.clone(), output: Some(output), ..ExecOptions::default() };
    let script = format!("echo ready; sleep {marker}");
    let running = fixture.workspace.run_exec(exec(&["sh", "-c", &script]), options);
    let stop = async {
        assert_eq!(pieces.recv().await.unwrap().bytes, b"ready\n");
        assert!(!processes(&marker).is_empty());
        cancel.cancel();
    };
    let (result, ()) = tokio::join!(running, stop);
    assert_eq!(result.unwrap().ending, Ending::Killed { limit: Limit::Cancelled });
    assert_eq!(processes(&marker), NOBODY_LEFT);

    let (output, mut pieces) = tokio::sync::mpsc::channel(4);
    let options = ExecOptions { output: Some(output), ..ExecOptions::default() };
    let mut running = Box::pin(fixture.workspace.run_exec(exec(&["sh", "-c", &script]), options));
    tokio::select! {
        _ = &mut running => panic!("it cannot have ended"),
        piece = pieces.recv() => assert!(piece.is_some()),
    }
    drop(running);
    // The next command gets the folder only when every process of the dropped one is gone.
    assert_eq!(fixture.sh("echo next").await, "next");
    assert_eq!(processes(&marker), NOBODY_LEFT);
}

/// A cancelled program may end by itself, and gets no signal then; later it gets SIGTERM, and what ignores that is killed with its
/// children.
///
/// Rows: SF-190 (in part: a program of the sandbox; no bound of the time) SF-191 (in part: a program of the sandbox)
#[tokio::test]
async fn a_cancelled_program_has_its_times_to_end() {
    let fixture = Fixture::new().await;
    let (short, long) = (Duration::from_millis(100), Duration::from_secs(600));
    let marker = marker();
    let trap = "trap 'echo signal; exit 0' TERM; echo ready";
    let obeys = format!("{trap}; sleep {marker} & wait");
    let ends = format!("{trap}; sleep 0.3; echo end");
    let ignores = format!("trap '' TERM; echo ready; sleep {marker} & sleep {marker}");
    for (script, end, said) in [
        (obeys.as_str(), EndTimes { grace: short, kill: long }, "ready\nsignal\n"),
        (ends.as_str(), EndTimes { grace: long, kill: long }, "ready\nend\n"),
        (ignores.as_str(), EndTimes { grace: short, kill: short }, "ready\n"),
    ] {
        let cancel = CancellationToken::new();
        let (output, mut pieces) = tokio::sync::mpsc::channel(4);
        let options =
            ExecOptions { cancel: cancel.clone(), output: Some(output), end, ..ExecOptions::default() };
        let running = fixture.workspace.run_exec(exec(&["sh", "-c", script]), options);
        let stop = async {
            assert_eq!(pieces.recv().await.unwrap().bytes, b"ready\n");
            cancel.cancel();
        };
        let (result, ()) = tokio::join!(running, stop);
        let result = result.unwrap();
        assert_eq!(result.ending, Ending::Killed { limit: Limit::Cancelled }, "{script}");
        assert_eq!(result.stdout.text, said, "{script}");
        assert_eq!(processes(&marker), NOBODY_LEFT, "{script}");
    }
    // The end of the engine waits for none of it.
    let (cancel, kill) = (CancellationToken::new(), CancellationToken::new());
    cancel.cancel();
    kill.cancel();
    let options =
        ExecOptions { cancel, kill, end: EndTimes { grace: long, kill: long }, ..ExecOptions::default() };
    let result = fixture.workspace.run_exec(exec(&["sh", "-c", &ignores]), options).await.unwrap();
    assert_eq!(result.ending, Ending::Killed { limit: Limit::Cancelled });
    assert_eq!(processes(&marker), NOBODY_LEFT);
}

/// Rows: SIL-199
#[tokio::test]
async fn there_is_no_network_but_the_sandbox_s_own() {
    let fixture = Fixture::new().await;
    let host = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = host.local_addr().unwrap().port();
    let connect =
        |address: &str, port: u16| format!("import socket\nsocket.create_connection(('{address}',{port}),2)");
    for (address, port) in [("127.0.0.1", port), ("192.0.2.1", 80), ("::1", port)] {
        let result = fixture.exec(&["python3", "-c", &connect(address, port)]).await;
        assert_eq!(result.ending, Ending::Exited { code: 1 }, "{address}: {result:?}");
        assert!(
            result.stderr.text.contains("refused") || result.stderr.text.contains("unreachable"),
            "{result:?}"
        );
    }
    let result =
        fixture.exec(&["python3", "-c", "import socket\nsocket.getaddrinfo('example.com',80)"]).await;
    assert!(result.stderr.text.contains("gaierror"), "{result:?}");
    // Its own loopback works: tests of servers need it.
    let own = "import socket\ns=socket.create_server(('127.0.0.1',0))\nsocket.create_connection(s.getsockname())\n\
               socket.getaddrinfo('localhost',80)\nprint('ok')";
    assert_eq!(fixture.exec(&["python3", "-c", own]).await.stdout.text, "ok\n");
    let mut asks = exec(&["true"]);
    asks.hosts = vec!["example.com".into()];
    let refused = fixture.workspace.run_exec(asks, ExecOptions::default()).await;
    assert!(matches!(refused, Err(SandboxError::BadCommand { .. })), "{refused:?}");
}

/// Rows: SIL-201
#[tokio::test]
async fn python_prints_and_reads_its_input() {
    let fixture = Fixture::new().await;
    assert_eq!(fixture.exec(&["python3", "-c", "print(6*7)"]).await.stdout.text, "42\n");
    let mut script = exec(&["python3", "-"]);
    script.stdin = Some("print('from stdin', 40 + 2)".into());
    let result = fixture.workspace.run_exec(script, ExecOptions::default()).await.unwrap();
    assert_eq!(result.stdout.text, "from stdin 42\n");
    assert_eq!(fixture.exec(&["python9"]).await.ending, Ending::NotFound);
}

/// Rows: SCL-188
#[tokio::test]
async fn a_flood_on_standard_error_completes_and_is_bounded() {
    let fixture = Fixture::new().await;
    let result = fixture.exec(&["sh", "-c", "head -c 10000000 /dev/zero | tr '\\0' x >&2; echo done"]).await;
    assert_eq!((result.ending, result.stdout.text.as_str()), (Ending::Exited { code: 0 }, "done\n"));
    assert_eq!((result.stderr.bytes, result.stderr.truncated), (10_000_000, true));
    assert_eq!(result.stderr.text.len() as u64, MIB);
}

#[tokio::test]
async fn a_gibibyte_of_output_is_counted_and_an_endless_one_is_stopped() {
    let fixture = Fixture::new().await;
    let result = fixture.exec(&["head", "-c", "1073741824", "/dev/zero"]).await;
    assert_eq!((result.ending, result.stdout.bytes), (Ending::Exited { code: 0 }, 1024 * MIB));
    let small = Fixture::with(SandboxConfig { output_kill: 8 * MIB, ..SandboxConfig::default() }).await;
    let result = small.exec(&["yes"]).await;
    assert_eq!(result.ending, Ending::Killed { limit: Limit::Output });
}

#[tokio::test]
async fn memory_is_limited_for_all_processes_together() {
    let fixture = Fixture::with(SandboxConfig { memory_max: 256 * MIB, ..SandboxConfig::default() }).await;
    let result = fixture.exec(&["python3", "-c", "b'x'*(10<<30)"]).await;
    assert!(
        result.ending == Ending::Killed { limit: Limit::Memory }
            || result.stderr.text.contains("MemoryError"),
        "{result:?}"
    );
    let result = fixture.exec(&["python3", "-c", "print(len(b'x'*(64<<20)))"]).await;
    assert_eq!(result.stdout.text, "67108864\n");
}

/// Rows: SIL-196
#[tokio::test]
async fn a_fork_bomb_stays_in_its_bounds_and_leaves_nobody() {
    let fixture = Fixture::with(SandboxConfig { processes_max: 64, ..SandboxConfig::default() }).await;
    let marker = marker();
    let bomb =
        "import os,sys,time\nwhile True:\n  try:\n    os.fork()\n  except OSError:\n    time.sleep(0.01)\n";
    let mut bomb = exec(&["python3", "-c", bomb, &marker]);
    bomb.timeout_ms = 2_000;
    let (output, watched) = (fixture.workspace.run_exec(bomb, ExecOptions::default()), async {
        // The host goes on meanwhile.
        let other = open(&fixture.sandbox, &fixture.dir.join("other"), None).await.unwrap();
        let result = other.run_exec(exec(&["echo", "alive"]), ExecOptions::default()).await.unwrap();
        (result.stdout.text, processes(&marker).len())
    });
    let (result, (said, most)) = tokio::join!(output, watched);
    assert_eq!(result.unwrap().ending, Ending::Killed { limit: Limit::Time });
    assert_eq!(said, "alive\n");
    assert!(most <= 64, "{most}");
    assert_eq!(processes(&marker), NOBODY_LEFT);
}

#[tokio::test]
async fn a_daemon_does_not_outlive_its_command() {
    let fixture = Fixture::new().await;
    let marker = marker();
    let result = fixture.exec(&["sh", "-c", &format!("(setsid sleep {marker} &) & wait; echo left")]).await;
    assert_eq!((result.ending, result.stdout.text.as_str()), (Ending::Exited { code: 0 }, "left\n"));
    assert_eq!(processes(&marker), NOBODY_LEFT);
}

#[tokio::test]
async fn a_full_disk_is_the_sandbox_s_own() {
    let config = SandboxConfig { overlay_max: 32 * MIB, tmp_max: 8 * MIB, ..SandboxConfig::default() };
    let fixture = Fixture::with(config).await;
    let result = fixture
        .exec(&["sh", "-c", "i=0; while :; do i=$((i+1)); head -c 4000000 /dev/zero > f$i; done"])
        .await;
    assert_eq!(result.ending, Ending::Killed { limit: Limit::Disk });
    let full = fixture.refused("head -c 16000000 /dev/zero > /tmp/f").await;
    assert!(full.stderr.text.contains("No space left"), "{full:?}");
    fixture.workspace.discard_changes().await.unwrap();
    assert_eq!(
        fixture.sh("ls; head -c 1000000 /dev/zero > /tmp/f && echo fits").await,
        "README.md\nlink\nsrc\nfits"
    );
}

/// The sandbox is our own in place of Docker's.
///
/// Rows: SF-492 (in part: by namespaces)
/// Rows: WIN-016 WIN-154
#[tokio::test]
async fn nothing_of_the_host_is_there_that_was_not_given() {
    let fixture = Fixture::new().await;
    let data = fixture.dir.join("data");
    let home = fixture.dir.join("home");
    fs::write(data.join("memory.db"), "MARKER-DB").unwrap();
    fs::write(home.join(".env"), "MARKER=env").unwrap();
    assert_eq!(fixture.sh("find / \\( -path /proc -o -path /usr -o -path '*/.rustup' -o -path '*/registry' -o -path '*/.pyenv' \\) \
                      -prune -o \\( -name memory.db -o -name .env \\) -print 2>/dev/null; true").await, "");
    for path in [
        home.join(".ssh/id_ed25519"),
        home.join(".env"),
        home.join("marker"),
        data,
        "/data".into(),
        "/etc/shadow".into(),
        std::path::Path::new("/root").join(".bashrc"),
    ] {
        fixture.refused(&format!("cat '{0}' || ls '{0}'", path.display())).await;
    }
    fixture.refused("ls -d /var/run/docker.sock /run/docker.sock /run/user /sys/kernel /old_root").await;
    assert_eq!(
        fixture.sh("ls /").await.replace("lib32\n", "").replace("libx32\n", "").replace('\n', " "),
        fixture
            .sh("ls -d /*")
            .await
            .replace("/lib32\n", "")
            .replace("/libx32\n", "")
            .replace('/', "")
            .replace('\n', " ")
    );
    let hosts = fs::read_to_string("/etc/passwd").unwrap();
    assert_ne!(fixture.sh("cat /etc/passwd").await, hosts.trim_end());
    assert_eq!(fixture.sh("id -un; hostname; cat /etc/resolv.conf").await, "agent\nwrit");
    // What is given can be used.
    assert_eq!(
        fixture.sh("cat README.md; echo x > /dev/null; head -c1 /dev/urandom | wc -c").await,
        "one\ntwo\n1"
    );
}

#[tokio::test]
async fn no_trick_leads_out() {
    let fixture = Fixture::new().await;
    let outside = fixture.dir.join("home/marker");
    let target = outside.display();
    let tricks = [
        format!("cat /work/../../../../../..{target}"),
        format!("ln -s {target} out && cat out"),
        format!("ln {target} hard"),
        format!("ln -s / root && cat root{target}"),
        "mkdir -p a/b && mv a ../gone".into(),
        "mount --bind / /tmp".into(),
        format!("echo changed > {target}"),
        format!("cat /proc/1/root{target}"),
        "cat /proc/1/environ".into(),
        "ls /proc/1/root/".into(),
        "readlink /proc/1/fd/1".into(),
        "cat /proc/1/mem".into(),
        "echo 1 > /proc/sys/kernel/core_pattern".into(),
        "echo b > /proc/sysrq-trigger".into(),
        "echo 0 > /proc/sys/vm/drop_caches".into(),
        "touch /usr/x".into(),
        "touch /etc/x".into(),
        "touch /x".into(),
        "rm /usr/bin/env".into(),
        "chmod 777 /".into(),
        "mknod dev b 254 0".into(),
        "echo x > /dev/sda".into(),
    ];
    for trick in &tricks {
        let result = fixture.refused(trick).await;
        assert!(!result.stdout.text.contains("MARKER"), "{trick}: {result:?}");
    }
    let environs = fixture.exec(&["sh", "-c", "cat /proc/[0-9]*/environ | tr '\\0' '\\n'"]).await;
    assert!(!environs.stdout.text.contains("CARGO_PKG_NAME"), "{environs:?}");
    assert_eq!(fs::read_to_string(&outside).unwrap(), "MARKER-HOME");
    assert_eq!(
        fixture
            .sh("ln -s README.md in && cat in && ln README.md twin && mkdir -p a && mv a b && ls -d b")
            .await,
        "one\ntwo\nb"
    );
}

#[tokio::test]
async fn work_is_kept_between_commands_and_the_project_is_not_touched() {
    let fixture = Fixture::new().await;
    fixture
        .sh("echo three >> README.md; rm src/a.rs; mkdir new; echo n > new/n; touch ~/kept /tmp/lost")
        .await;
    assert_eq!(
        fixture.sh("cat README.md; ls src new ~ /tmp").await,
        "one\ntwo\nthree\n/home/agent:\nkept\n\n/tmp:\n\nnew:\nn\n\nsrc:\nb.rs"
    );
    assert_eq!(fixture.read("README.md"), "one\ntwo\n");
    assert!(fixture.project.join("src/a.rs").exists());
    fixture.refused("cat /work/../project/README.md").await;
    // What the owner changes meanwhile is seen.
    fs::write(fixture.project.join("src/b.rs"), "fn changed() {}\n").unwrap();
    assert_eq!(fixture.sh("cat src/b.rs").await, "fn changed() {}");
    // Another handle on the same folder, as after a restart.
    let again = open(&fixture.sandbox, &fixture.dir.join("data"), Some(&fixture.project)).await.unwrap();
    let result = again.run_exec(exec(&["cat", "new/n"]), ExecOptions::default()).await.unwrap();
    assert_eq!(result.stdout.text, "n\n");
}

/// Verification has a sandbox of its own, on a copy of the work in a folder of its own: it sees the changes of the project's files, and
/// nothing of the home, the temporary folder, the processes and the environment of what ran before; nor is anything of it seen after.
///
/// Rows: SIL-183
#[tokio::test]
async fn verification_sees_the_work_and_leaves_nothing() {
    let fixture = Fixture::new().await;
    fixture
        .sh("echo three >> README.md; rm src/a.rs; echo secret > ~/.cache-token; echo secret > /tmp/token")
        .await;
    let mut with_env = exec(&["sh", "-c", "echo $TOKEN; cat /tmp/token"]);
    with_env.env.insert("TOKEN".into(), "t".into());
    let seen = fixture.workspace.run_exec(with_env, ExecOptions::default()).await.unwrap();
    assert_eq!(seen.stdout.text, "t\n", "the temporary folder is that of one command");
    let verify = |argv: &[&str]| Exec { profile: ExecProfile::Verification, ..exec(argv) };
    let run = |exec| fixture.workspace.run_exec(exec, ExecOptions::default());
    let result =
        run(verify(&["sh", "-c", "cat README.md; ls src; ls -A ~; echo x > made; rm README.md; ls"]))
            .await
            .unwrap();
    assert_eq!(
        result.stdout.text,
        "one\ntwo\nthree\nb.rs\n.cargo\nlink\nmade\nsrc\n"
            .replace(if result.stdout.text.contains(".cargo") { "" } else { ".cargo\n" }, ""),
        "{result:?}"
    );
    let looks = "test -e /tmp/token || echo gone; echo x > /tmp/checked; ls /proc | grep -c '^[0-9]'";
    let result = run(verify(&["sh", "-c", looks])).await.unwrap();
    let (gone, processes) = result.stdout.text.trim_end().split_once('\n').expect("two lines");
    assert!(gone == "gone" && processes.parse::<u32>().is_ok_and(|count| count < 10), "{result:?}");
    assert_eq!(fixture.sh("test -e /tmp/checked || echo gone").await, "gone", "nothing of it is left there");
    let result = run(verify(&["env"])).await.unwrap();
    let names: Vec<&str> = result.stdout.text.lines().filter_map(|line| line.split('=').next()).collect();
    assert_eq!(names, ["HOME", "PATH"]);
    let mut with_env = verify(&["env"]);
    with_env.env.insert("TOKEN".into(), "t".into());
    assert!(matches!(run(with_env).await, Err(SandboxError::BadCommand { .. })));
    assert_eq!(fixture.sh("ls").await, "README.md\nlink\nsrc");
}

#[tokio::test]
async fn the_host_s_rust_builds_and_tests_inside() {
    let fixture = Fixture::new().await;
    let write = |path: &str, text: &str| fs::write(fixture.project.join(path), text).unwrap();
    write("Cargo.toml", "[package]\nname = \"small\"\nedition = \"2021\"\n[workspace]\n");
    write("src/lib.rs", "#[test]\nfn adds() { assert_eq!(1 + 1, 2) }\n");
    let test = Exec { timeout_ms: 120_000, ..exec(&["cargo", "test", "--offline", "--quiet", "--lib"]) };
    for profile in [ExecProfile::Task, ExecProfile::Verification] {
        let test = Exec { profile, ..test.clone() };
        let result = fixture.workspace.run_exec(test, ExecOptions::default()).await.unwrap();
        assert!(result.stdout.text.contains("1 passed"), "{result:?}");
    }
    // What the build made is no part of the work.
    let set = fixture.changes().await;
    assert_eq!(set.left_out.iter().map(|left| left.shown.as_str()).collect::<Vec<_>>(), ["target"]);
    assert_eq!(set.changes.iter().map(|change| change.path.as_str()).collect::<Vec<_>>(), ["Cargo.lock"]);
    fixture.refused("cat ~/.cargo/credentials.toml $RUSTUP_HOME/../.cargo/credentials.toml").await;
}

#[tokio::test]
async fn folders_that_hold_a_home_or_our_data_are_refused() {
    let fixture = Fixture::new().await;
    let home = fixture.dir.join("home");
    let sandbox =
        Sandbox::start(SandboxConfig { host_home: Some(home.clone()), ..SandboxConfig::default() }).unwrap();
    for project in
        [Path::new("/"), Path::new("/etc"), &home, &home.join(".ssh"), &fixture.dir, Path::new("/no/such")]
    {
        let refused = open(&sandbox, &fixture.dir.join("data2"), Some(project)).await;
        assert!(matches!(refused, Err(SandboxError::Project { .. })), "{}: {refused:?}", project.display());
    }
    assert!(open(&sandbox, &fixture.dir.join("data2"), Some(&fixture.project)).await.is_ok());
}

#[tokio::test]
async fn links_planted_in_the_home_lead_nowhere() {
    let fixture = Fixture::new().await;
    let outside = fixture.dir.join("home");
    fixture.sh(&format!("mkdir -p ~/.cargo; mv ~/.cargo ~/old; ln -s {} ~/.cargo", outside.display())).await;
    assert_eq!(fixture.sh("echo runs; readlink ~/.cargo").await, format!("runs\n{}", outside.display()));
    assert!(!outside.join("registry").exists());
    fixture.sh("rm ~/.cargo; mkdir ~/.cargo; ln -s /tmp ~/.cargo/registry").await;
    assert_eq!(fixture.sh("ls /tmp").await, "");
}

#[tokio::test]
async fn strange_names_of_projects_are_no_options() {
    let fixture = Fixture::new().await;
    let project = fixture.dir.join("a,b:c\\d upperdir=x");
    fs::create_dir(&project).unwrap();
    fs::write(project.join("f"), "strange\n").unwrap();
    let workspace = open(&fixture.sandbox, &fixture.dir.join("d,1:2"), Some(&project)).await.unwrap();
    let result =
        workspace.run_exec(exec(&["sh", "-c", "cat f; echo x > g"]), ExecOptions::default()).await.unwrap();
    assert_eq!(result.stdout.text, "strange\n");
    assert_eq!(workspace.read_changes().await.unwrap().changes.len(), 1);
    assert!(!workspace.is_copy());
}

#[tokio::test]
async fn a_missing_working_directory_is_told() {
    let fixture = Fixture::new().await;
    let mut lost = exec(&["true"]);
    lost.cwd = "/work/nowhere".into();
    let refused = fixture.workspace.run_exec(lost, ExecOptions::default()).await;
    assert!(matches!(refused, Err(SandboxError::BadCommand { .. })), "{refused:?}");
}

/// A session's programs read the agent's documents and change nothing there, on both rungs. A verification sees none, nor does
/// anyone where a link stands in place of their folder.
#[tokio::test]
async fn documents_are_read_only_on_both_rungs_and_in_no_verification() {
    for forbid_user_namespaces in [false, true] {
        let config = SandboxConfig { forbid_user_namespaces, ..SandboxConfig::default() };
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().canonicalize().unwrap();
        let documents = dir.join("docs");
        fs::create_dir(&documents).unwrap();
        fs::write(documents.join("a.md"), "Text.\n").unwrap();
        std::os::unix::fs::symlink(&documents, dir.join("link")).unwrap();
        let (sandbox, _native) = start(config);
        let open = async |name: &str, documents: PathBuf| {
            let shown = Some(ShownFolder { path: documents, kind: ShownKind::Documents });
            sandbox.open(WorkspaceConfig { data_dir: dir.join(name), project: None, shown }).await.unwrap()
        };
        let script = "cat \"$WRIT_DOCS/a.md\"; echo x > \"$WRIT_DOCS/b.md\" || rm \"$WRIT_DOCS/a.md\" || echo unchanged";
        let workspace = open("one", documents.clone()).await;
        let seen = workspace.run_exec(exec(&["sh", "-c", script]), ExecOptions::default()).await.unwrap();
        assert_eq!(seen.stdout.text, "Text.\nunchanged\n", "{seen:?}");
        assert_eq!(fs::read_to_string(documents.join("a.md")).unwrap(), "Text.\n");
        assert!(!documents.join("b.md").exists());
        let empty = |profile| Exec { profile, ..exec(&["sh", "-c", "echo \"[$WRIT_DOCS]\"; ls ~"]) };
        let verified = workspace.run_exec(empty(ExecProfile::Verification), ExecOptions::default()).await;
        assert_eq!(verified.unwrap().stdout.text, "[]\n");
        for other in ["link", "gone"] {
            let without = open(&format!("without-{other}"), dir.join(other)).await;
            let seen = without.run_exec(empty(ExecProfile::Task), ExecOptions::default()).await.unwrap();
            assert_eq!(seen.stdout.text, "[]\n", "{other}: {seen:?}");
        }
    }
}
