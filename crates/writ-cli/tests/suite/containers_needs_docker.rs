//! `writ run --container`: agents in containers of a real Docker, with what its users report: a client that is killed and
//! leaves its container behind, limits that are dropped with a warning, images that bring folders to write, proxies with
//! passwords that come in by themselves, exit codes that are the engine's own.

use std::fs;
use std::io::{Read as _, Write as _};
use std::process::Output;

use writ_testbed::docker_server::DockerServer;

use super::run::{BASE, Place, TASKS, below, memory_of, no_key_in};
use super::{code, text};

/// The image of these tests.
const IMAGE: &str = "writ-agent:1";
/// What an agent sees of its own walls.
const LOOK: &str = r#"
    grep -E '^(CapInh|CapPrm|CapEff|CapBnd|CapAmb|NoNewPrivs|Seccomp):' /proc/self/status | tr -s '\t' ' '
    id -u | grep -q '^60[89]..$' || id -u | grep -q '^610..$' && echo 'a user of its own'
    no() { "$@" >/dev/null 2>&1 && echo "OPEN: $*"; }
    no mount -t tmpfs none /tmp
    no mount -o remount,rw /
    no touch /bin/mine
    no touch /etc/mine
    no touch /mine
    no touch /work/mine
    no touch /.writ/mine
    no touch /dev/mine
    no mkdir /dev/shm
    no chown 0 /tmp/own
    no ls /var/run/docker.sock
    no ls /run/docker.sock
    no cat /proc/1/environ
    no ls -l /proc/1/fd/0
    no cat /proc/1/mem
    no nc -w 1 192.0.2.1 80
    no nc -w 1 127.0.0.1 81
    no wget -q -T 1 http://example.com/
    echo mine > /tmp/own && cat /tmp/own
    kill -9 1; kill -STOP 1; kill -TERM 1
    hostname
    ls /sys/class/net
"#;

/// A place with a daemon, and an image that holds a shell and `curl`.
struct Harbor {
    server: DockerServer,
    place: Place,
}

impl Harbor {
    fn new() -> Self {
        let server = DockerServer::start().expect("a daemon");
        server
            .make_image(IMAGE, &["/usr/bin/curl"], &["ENV GREETING=image PATH=/bin:/usr/bin"])
            .expect("an image");
        let mut place = Place::new();
        place.home = place.home.with("DOCKER_HOST", &server.address());
        Self { server, place }
    }

    fn run_with(&self, more: &[&str], program: &[&str], input: &[u8]) -> Output {
        let more = [&["--container"], more].concat();
        self.place.home.run_with(&Place::args("task0.jwt", &more, program), input)
    }

    fn run(&self, more: &[&str], script: &str) -> Output {
        self.run_with(&[&[IMAGE], more].concat(), &["sh", "-c", script], b"")
    }

    /// The folders of containers on the host.
    fn places(&self) -> usize {
        fs::read_dir(self.place.home.root().join("runtime/containers")).map_or(0, Iterator::count)
    }
}

/// Rows: SLO-034
/// Rows: SLO-001 SLO-002 SLO-035 SLO-037 (in a container)
#[test]
fn an_agent_in_a_container_has_no_rights_and_its_end_is_passed_on() {
    let harbor = Harbor::new();
    let folder = harbor.place.home.dir.path().join("a,b \"c\"");
    fs::create_dir(&folder).expect("a folder");
    fs::write(folder.join("agent.sh"), LOOK).expect("written");
    let folder = folder.to_str().expect("UTF-8");
    let done = harbor.run(&["--folder", folder], "cat > /dev/null; pwd; sh agent.sh");
    let walls = "/work\nCapInh: 0000000000000000\nCapPrm: 0000000000000000\nCapEff: 0000000000000000\n\
                 CapBnd: 0000000000000000\nCapAmb: 0000000000000000\nNoNewPrivs: 1\nSeccomp: 2\na user of its own\nmine\nagent\nlo\n";
    assert_eq!((code(&done), String::from_utf8_lossy(&done.stdout).as_ref()), (0, walls), "{}", text(&done));
    // Input, output, variables and the exit code are the program's, and those of an engine are not mistaken for them.
    let given = harbor.run_with(
        &[IMAGE, "--env", "MORE=yes"],
        &["sh", "-c", "cat; echo $GREETING $MORE $HOME $PATH"],
        b"from outside\n",
    );
    assert_eq!((code(&given), text(&given).as_str()), (0, "from outside\nimage yes /tmp /bin:/usr/bin\n"));
    for (script, expected) in [("exit 7", 7), ("exit 125", 125), ("kill -TERM $$", 143), ("kill -9 $$", 137)]
    {
        assert_eq!(code(&harbor.run(&[], script)), expected, "{script}");
    }
    let missing = harbor.run_with(&[IMAGE], &["no-such-program"], b"");
    assert_eq!(code(&missing), 127, "{}", text(&missing));
    assert!(text(&missing).contains("it sees the image, and --folder at /work"), "{}", text(&missing));
    let no_program = harbor.run_with(&[IMAGE], &["/etc/hosts"], b"");
    assert_eq!(code(&no_program), 126, "{}", text(&no_program));
    // Off: the same program under a user of its own.
    let args = Place::args(
        "task0.jwt",
        &[],
        &["sh", "-c", "id -u; mount -t tmpfs none /tmp 2>/dev/null || echo refused"],
    );
    let off = harbor.place.home.run(&args);
    assert_eq!((code(&off), text(&off).lines().last()), (0, Some("refused")), "{}", text(&off));
    assert_eq!((harbor.server.wait_empty().expect("lists"), harbor.places()), (Vec::new(), 0));
}

/// Rows: SLO-038 SLO-041 (in a container)
#[test]
fn needs_curl_an_agent_in_a_container_reaches_two_names_and_holds_no_key() {
    let harbor = Harbor::new();
    let script = r#"
        wget -q -O - http://llm-router.silo.internal/a; echo
        curl -sS http://llm-router.silo.internal/b https://security-proxy.silo.internal/c https://llm-router.silo.internal/d; echo
        no() { curl -sSfk -m 5 "$@" >/dev/null 2>&1 && echo "OPEN: $*"; }
        no -H 'Host: example.com' http://llm-router.silo.internal/
        no http://127.0.0.1/
        no http://security-proxy.silo.internal/
        no https://192.0.2.1/
        no telnet://127.0.0.1:5432
        echo ready; cat > /dev/null
    "#;
    let more = ["--engine", "docker", "--container", IMAGE, "--report", "report.jsonl"];
    let (mut child, mut lines, first) = harbor.place.start_with("task0.jwt", &more, &["sh", "-c", script]);
    let mut said = first;
    while !said.ends_with("ready\n") {
        use std::io::BufRead as _;
        assert!(lines.read_line(&mut said).expect("reads") > 0, "{said}");
    }
    assert_eq!(said, "routed\nroutedproxiedrouted\nready\n");
    let asked = harbor.place.asked();
    assert_eq!(asked.len(), 4, "{asked:?}");
    for request in &asked {
        assert!(
            request.contains(&format!("writ-base-key: {BASE}\r\n")) && request.contains(TASKS[0]),
            "{request}"
        );
    }
    // Neither is there a key in what the engine knows, nor in any process of the container.
    let names = harbor.server.containers().expect("lists");
    let known = harbor.server.docker(&["inspect", &names[0]]).expect("asks");
    assert!(known.status.success() && no_key_in(&known.stdout), "{names:?}");
    let listed = harbor.server.docker(&["inspect", "--format", "{{.State.Pid}}", &names[0]]).expect("asks");
    let pid: u32 = String::from_utf8_lossy(&listed.stdout).trim().parse().expect("a number");
    let processes = [below(pid), vec![pid]].concat();
    assert!(processes.len() >= 2, "{processes:?}");
    let seen: usize = processes
        .iter()
        .map(|pid| {
            let memory = memory_of(*pid);
            assert!(no_key_in(&memory), "a key in the memory of {pid}");
            for name in ["environ", "cmdline", "mountinfo"] {
                assert!(no_key_in(&fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default()), "{name}");
            }
            memory.len()
        })
        .sum();
    assert!(seen > 0, "something was looked at");
    drop(child.stdin.take());
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
    let report = fs::read_to_string(harbor.place.home.dir.path().join("report.jsonl")).expect("reads");
    let end: serde_json::Value = serde_json::from_str(report.lines().last().expect("an end")).expect("JSON");
    assert_eq!(end.pointer("/refused/other_name").and_then(serde_json::Value::as_u64), Some(2), "{end}");
    assert!(end.get("unreached").and_then(serde_json::Value::as_u64) >= Some(2), "{end}");
    assert_eq!(harbor.server.wait_empty().expect("lists"), [""; 0]);
}

/// Rows: SLO-065 (in a container)
#[test]
fn nothing_of_a_container_is_left_when_its_launcher_is_killed_or_asked_to_end() {
    let harbor = Harbor::new();
    let more = ["--engine", "docker", "--container", IMAGE];
    let script = "trap '' TERM HUP; (sleep 600 &); echo ready; while :; do sleep 600; done";
    let (mut child, mut lines, first) = harbor.place.start_with("task0.jwt", &more, &["sh", "-c", script]);
    assert_eq!(first, "ready\n");
    child.kill().expect("killed");
    child.wait().expect("it ends");
    // Each of the agent's processes holds the pipe: it ends with the last one.
    let mut rest = String::new();
    lines.read_to_string(&mut rest).expect("reads");
    assert_eq!((rest.as_str(), harbor.server.wait_empty().expect("lists")), ("", Vec::new()));
    // What it could not remove is removed at the next start: its folder, and a container that was never started.
    let left = harbor.place.home.root().join("runtime/containers");
    let name = fs::read_dir(&left).expect("reads").flatten().next().expect("a folder").file_name();
    let name = name.to_str().expect("UTF-8");
    let made = harbor.server.docker(&["create", "--name", name, IMAGE, "true"]).expect("asks");
    let other = harbor.server.docker(&["create", "--name", "someones", IMAGE, "true"]).expect("asks");
    assert!(made.status.success() && other.status.success());
    assert_eq!(code(&harbor.run(&[], "true")), 0);
    assert_eq!(
        (harbor.server.containers().expect("lists"), harbor.places()),
        (vec!["someones".to_owned()], 0)
    );
    harbor.server.docker(&["rm", "someones"]).expect("asks");
    // Killed while the engine makes the container: nothing goes on, at any stage of it.
    for stage in 0..3 {
        assert_eq!(harbor.server.wait_empty().expect("lists"), [""; 0]);
        let _removed = fs::remove_dir_all(&left);
        let mut started = harbor.place.start_silent(&more, &["sh", "-c", "while :; do sleep 600; done"]);
        // At once, when its folder is there, and when the engine knows of it.
        let begun = |stage| match stage {
            0 => true,
            1 => harbor.places() > 0,
            _ => !harbor.server.containers().expect("lists").is_empty(),
        };
        while !begun(stage) {
            std::thread::yield_now();
        }
        started.kill().expect("killed");
        started.wait().expect("it ends");
    }
    assert_eq!(code(&harbor.run(&[], "true")), 0);
    assert_eq!(harbor.server.wait_empty().expect("lists"), [""; 0]);
    // One that a person kills has ended by that, and the launcher is no helper that has failed.
    let (mut child, mut lines, first) = harbor.place.start_with("task0.jwt", &more, &["sh", "-c", script]);
    assert_eq!(first, "ready\n");
    let names = harbor.server.containers().expect("lists");
    assert!(harbor.server.docker(&["kill", &names[0]]).expect("asks").status.success());
    lines.read_to_string(&mut rest).expect("reads");
    assert_eq!((child.wait().expect("it ends").code(), rest.as_str()), (Some(137), ""));
    // An order to end is the agent's, too, though it is not the container's first process.
    let script = "trap 'echo bye; exit 9' TERM; echo ready; sleep 600 & wait";
    let (mut child, mut lines, first) = harbor.place.start_with("task0.jwt", &more, &["sh", "-c", script]);
    assert_eq!(first, "ready\n");
    let pid = nix::unistd::Pid::from_raw(i32::try_from(child.id()).expect("fits"));
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).expect("sent");
    lines.read_to_string(&mut rest).expect("reads");
    assert_eq!((child.wait().expect("it ends").code(), rest.as_str()), (Some(9), "bye\n"));
    assert_eq!((harbor.server.wait_empty().expect("lists"), harbor.places()), (Vec::new(), 0));
}

#[test]
fn the_bounds_of_an_agent_hold_in_a_container() {
    let harbor = Harbor::new();
    let cases = [
        (&["--time", "1"][..], "sleep 60", 124, "time"),
        (&["--cpu", "1"], "while :; do :; done", 137, "cpu"),
        (&["--memory", "64"], "head -c 200m /dev/zero | sort | cat; exit 1", 137, "memory"),
        (
            &["--memory", "64", "--tmp", "200"],
            "dd if=/dev/zero of=/tmp/x bs=1M count=150; exit 1",
            137,
            "memory",
        ),
    ];
    for (bounds, script, expected, name) in cases {
        let done = harbor.run(bounds, script);
        assert_eq!(code(&done), expected, "{name}: {}", text(&done));
        assert!(text(&done).contains(&format!("ended at its bound: {name}")), "{name}: {}", text(&done));
    }
    // When memory runs out, the kernel ends the agent's processes before the one that reports, as long as the agent leaves it so.
    let done = harbor.run(&[], "cat /proc/self/oom_score_adj");
    assert_eq!((code(&done), text(&done).as_str()), (0, "1000\n"));
    let script = "echo 0 > /proc/self/oom_score_adj; dd if=/dev/zero of=/tmp/x bs=1M count=150; exit 1";
    let done = harbor.run(&["--memory", "64", "--tmp", "200"], script);
    assert_eq!((code(&done), text(&done).contains("error:")), (137, false), "{}", text(&done));
    // A temporary folder that is full, and processes that are too many, are refused one by one.
    let done =
        harbor.run(&["--tmp", "1"], "dd if=/dev/zero of=/tmp/x bs=1M count=2 2>/dev/null || echo full");
    assert_eq!(
        (code(&done), String::from_utf8_lossy(&done.stdout).as_ref()),
        (0, "full\n"),
        "{}",
        text(&done)
    );
    let bomb = "n=0; while [ $n -lt 40 ]; do sleep 30 & n=$((n+1)); done 2>/dev/null; echo all";
    let done = harbor.run(&["--processes", "10"], bomb);
    assert!(!text(&done).contains("all"), "{}", text(&done));
    assert_eq!(harbor.server.wait_empty().expect("lists"), [""; 0]);
}

#[test]
fn an_image_an_engine_or_a_folder_that_cannot_be_used_starts_nothing() {
    let harbor = Harbor::new();
    harbor.server.make_image("with-volume", &[], &["VOLUME /data"]).expect("an image");
    let refused = |more: &[&str], exit: i32, part: &str| {
        let done = harbor.run_with(more, &["sh", "-c", "echo started"], b"");
        let said = text(&done);
        assert_eq!(code(&done), exit, "{more:?}: {said}");
        assert!(said.contains(part) && !said.contains("started"), "{more:?}: {said}");
    };
    refused(&["not-there:1"], 10, "never fetched");
    refused(&["with-volume"], 2, "declares the volume '/data'");
    for option in ["--privileged", "-v=/:/host", "a b", ""] {
        refused(&[option], 2, "");
    }
    refused(&[IMAGE, "--engine", "runc"], 2, "docker or podman");
    refused(&[IMAGE, "--apparmor", "some"], 2, "cannot be used with");
    // The engine's own socket is not shown, by whatever way.
    let folder = harbor.server.socket().parent().expect("a folder").display().to_string();
    let link = harbor.place.home.dir.path().join("link");
    std::os::unix::fs::symlink(&folder, &link).expect("a link");
    refused(&[IMAGE, "--folder", &folder], 2, "the socket of the container engine");
    refused(&[IMAGE, "--folder", link.to_str().expect("UTF-8")], 2, "the socket of the container engine");
    // An engine that is not there, of another machine, or not installed.
    let Harbor { server, mut place } = harbor;
    let run = |place: &Place| {
        place.home.run(&Place::args("task0.jwt", &["--container", IMAGE], &["sh", "-c", "echo started"]))
    };
    let gone = server.address();
    drop(server);
    place.home = place.home.with("DOCKER_HOST", &gone);
    let done = run(&place);
    assert_eq!((code(&done), done.stdout.len()), (10, 0), "{}", text(&done));
    assert!(
        text(&done).contains("docker does not answer") && text(&done).contains("start its daemon"),
        "{}",
        text(&done)
    );
    place.home = place.home.with("DOCKER_HOST", "tcp://127.0.0.1:1");
    let done = run(&place);
    assert_eq!((code(&done), done.stdout.len()), (3, 0), "{}", text(&done));
}

/// What a person has set for the client of Docker is not brought along: proxies, for example, whose addresses have passwords.
#[test]
fn a_persons_own_settings_do_not_come_into_a_container() {
    let harbor = Harbor::new();
    let settings = harbor.place.home.dir.path().join(".docker");
    fs::create_dir(&settings).expect("a folder");
    let mut file = fs::File::create(settings.join("config.json")).expect("a file");
    file.write_all(
        br#"{"proxies":{"default":{"httpProxy":"http://user:pl4nted@proxy:3128"}},"HttpHeaders":{"x":"y"}}"#,
    )
    .expect("written");
    let done = harbor.run(&[], "env; cat /proc/self/mountinfo");
    assert_eq!(code(&done), 0, "{}", text(&done));
    assert!(text(&done).contains("GREETING=image") && !text(&done).contains("pl4nted"), "{}", text(&done));
}
