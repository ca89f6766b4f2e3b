//! `writ run`: agents in three languages, locked in for real, with the two servers that they may talk to.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Output, Stdio};
use std::sync::{Arc, Mutex};

use serde_json::Value;

use super::{Home, code, text};

/// The keys of two agents, as text.
pub(super) const BASE: &str = "QmFzZUtleU9mT25lQWdlbnQ";
pub(super) const TASKS: [&str; 2] = ["VGFza0tleU9mQ2FzZU9uZQ", "VGFza0tleU9mQ2FzZVR3bw"];

/// A home with key files and the two servers.
pub(super) struct Place {
    pub(super) home: Home,
    asked: Arc<Mutex<Vec<String>>>,
}

/// Answers every request with a word, and writes down what it was asked.
fn serve(path: PathBuf, word: &'static str, asked: Arc<Mutex<Vec<String>>>) {
    let listener = UnixListener::bind(path).expect("bound");
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let asked = Arc::clone(&asked);
            std::thread::spawn(move || answer(stream, word, &asked));
        }
    });
}

fn answer(stream: UnixStream, word: &str, asked: &Mutex<Vec<String>>) {
    let mut reader = BufReader::new(&stream);
    let (mut head, mut line, mut length) = (String::new(), String::new(), 0);
    while reader.read_line(&mut line).is_ok_and(|read| read > 2) {
        if let Some(value) = line.strip_prefix("content-length: ") {
            length = value.trim().parse().expect("a number");
        }
        head.push_str(&line);
        line.clear();
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).expect("a body");
    asked.lock().expect("locks").push(format!("{word} {head}\r\n{}", String::from_utf8_lossy(&body)));
    let reply =
        format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{word}", word.len());
    let _written = (&stream).write_all(reply.as_bytes());
}

impl Place {
    pub(super) fn new() -> Self {
        let home = Home::new().in_processes();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let dir = home.dir.path();
        serve(dir.join("proxy.sock"), "proxied", Arc::clone(&asked));
        serve(dir.join("router.sock"), "routed", Arc::clone(&asked));
        for (name, key) in [("base.jwt", BASE), ("task0.jwt", TASKS[0]), ("task1.jwt", TASKS[1])] {
            fs::write(dir.join(name), format!("{key}\n")).expect("written");
            fs::set_permissions(dir.join(name), fs::Permissions::from_mode(0o600)).expect("closed");
        }
        Self { home, asked }
    }

    pub(super) fn args<'a>(task: &'a str, more: &[&'a str], program: &[&'a str]) -> Vec<&'a str> {
        let sockets = ["--proxy-socket", "proxy.sock", "--router-socket", "router.sock"];
        [&["run", "--base", "base.jwt", "--task", task], &sockets[..], more, &["--"], program].concat()
    }

    fn run(&self, more: &[&str], program: &[&str]) -> Output {
        self.home.run(&Self::args("task0.jwt", more, program))
    }

    /// Starts it, and reads the first line that the agent prints.
    fn start(&self, task: &str, program: &[&str]) -> (Child, BufReader<std::process::ChildStdout>, String) {
        self.start_with(task, &[], program)
    }

    /// The same with more arguments.
    #[expect(clippy::disallowed_types, reason = "the test starts the binary that it tests")]
    pub(super) fn start_with(
        &self,
        task: &str,
        more: &[&str],
        program: &[&str],
    ) -> (Child, BufReader<std::process::ChildStdout>, String) {
        let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_writ"))
            .args(Self::args(task, more, program))
            .env_clear()
            .envs(self.home.variables(&[]))
            .current_dir(self.home.dir.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("it starts");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut first = String::new();
        lines.read_line(&mut first).expect("reads");
        (child, lines, first)
    }

    /// Starts it without a word to it or of it.
    #[expect(clippy::disallowed_types, reason = "the test starts the binary that it tests")]
    pub(super) fn start_silent(&self, more: &[&str], program: &[&str]) -> Child {
        std::process::Command::new(env!("CARGO_BIN_EXE_writ"))
            .args(Self::args("task0.jwt", more, program))
            .env_clear()
            .envs(self.home.variables(&[]))
            .current_dir(self.home.dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts")
    }

    pub(super) fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.asked.lock().expect("locks"))
    }
}

pub(super) fn no_key_in(bytes: &[u8]) -> bool {
    [BASE, TASKS[0], TASKS[1]].iter().all(|key| !bytes.windows(key.len()).any(|part| part == key.as_bytes()))
}

/// The processes below one, by the kernel's lists.
pub(super) fn below(pid: u32) -> Vec<u32> {
    let mut found = Vec::new();
    let mut open = vec![pid];
    while let Some(pid) = open.pop() {
        for thread in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
            let children = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
            open.extend(children.split_whitespace().map(|pid| pid.parse::<u32>().expect("a number")));
        }
        found.push(pid);
    }
    found.split_off(1)
}

/// Everything that a process has in memory, as far as it can be read.
pub(super) fn memory_of(pid: u32) -> Vec<u8> {
    use std::os::unix::fs::FileExt as _;
    let (Ok(maps), Ok(memory)) =
        (fs::read_to_string(format!("/proc/{pid}/maps")), File::open(format!("/proc/{pid}/mem")))
    else {
        return Vec::new();
    };
    let mut all = Vec::new();
    for line in maps.lines().filter(|line| line.contains(" rw")) {
        let (from, to) = line.split(' ').next().and_then(|range| range.split_once('-')).expect("a range");
        let (from, to) =
            (u64::from_str_radix(from, 16).expect("hex"), u64::from_str_radix(to, 16).expect("hex"));
        let mut part = vec![0; usize::try_from(to - from).expect("fits").min(64 * 1024 * 1024)];
        let read = memory.read_at(&mut part, from).unwrap_or(0);
        all.extend_from_slice(&part[..read]);
    }
    all
}

const PYTHON: &str = r#"
import json, os, sys, urllib.request
forged = {"Writ-Base-Key": "forged", "writ-task-key": "forged"}
def ask(url, body=None):
    request = urllib.request.Request(url, data=body, headers=forged)
    return urllib.request.urlopen(request, timeout=10).read().decode()
print(ask("http://llm-router.silo.internal/v1/chat", b"{}"), ask("https://security-proxy.silo.internal/v1/operations/refund", b"{}"),
      ask("https://llm-router.silo.internal:443/v1/chat"), flush=True)
sys.stdin.readline()
"#;

/// Rows: SLO-041 SLO-009
#[test]
fn needs_userns_needs_python_an_agent_holds_no_key_and_reaches_both_names_with_its_own() {
    let place = Place::new();
    let (mut child, mut lines, first) = place.start("task0.jwt", &["python3", "-c", PYTHON]);
    assert_eq!(first, "routed proxied routed\n");
    let asked = place.asked();
    assert_eq!(asked.len(), 3);
    for request in &asked {
        assert!(request.contains(&format!("writ-base-key: {BASE}\r\n")), "{request}");
        assert!(
            request.contains(&format!("writ-task-key: {}\r\n", TASKS[0])) && !request.contains("forged"),
            "{request}"
        );
    }
    // Neither the agent nor what holds it has a key in its memory, its variables or its arguments.
    let processes = below(child.id());
    assert!(processes.len() >= 3, "{processes:?}");
    let mut seen = 0;
    for pid in &processes {
        let memory = memory_of(*pid);
        seen += memory.len();
        assert!(no_key_in(&memory), "a key in the memory of {pid}");
        for name in ["environ", "cmdline", "maps", "mountinfo"] {
            assert!(no_key_in(&fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default()), "{name}");
        }
    }
    assert!(seen > 0, "something was looked at");
    drop(child.stdin.take());
    let mut rest = String::new();
    lines.read_to_string(&mut rest).expect("reads");
    assert_eq!((child.wait().expect("it ends").code(), rest.as_str()), (Some(0), ""));
}

#[test]
fn needs_userns_needs_node_an_agent_in_node_reaches_both_names() {
    let script = r#"
const get = (lib, url) => new Promise((done, failed) => lib.get(url, (answer) => {
  let text = ""; answer.on("data", (part) => text += part); answer.on("end", () => done(text));
}).on("error", failed));
(async () => {
  console.log(await get(require("http"), "http://llm-router.silo.internal/"), await get(require("https"), "https://security-proxy.silo.internal/"));
  for (const url of ["http://example.com/", "http://192.0.2.1/", "http://security-proxy.silo.internal:8080/"])
    await get(require("http"), url).then(() => console.log("OPEN", url), () => {});
})();
"#;
    let place = Place::new();
    let done = place.run(&[], &["node", "-e", script]);
    assert_eq!(
        (code(&done), String::from_utf8_lossy(&done.stdout).as_ref()),
        (0, "routed proxied\n"),
        "{}",
        text(&done)
    );
    assert_eq!(place.asked().len(), 2);
}

/// Rows: SLO-002 SLO-038
/// Rows: SLO-039 (in part: what no listener hears is counted, without its destination)
#[test]
fn needs_userns_an_agent_in_shell_reaches_both_names_and_what_it_is_refused_is_reported() {
    let place = Place::new();
    let script = r#"
        curl -sS http://llm-router.silo.internal/a https://security-proxy.silo.internal/b; echo
        no() { curl -sSfk -m 5 "$@" >/dev/null 2>&1 && echo "OPEN: $*"; }
        no -H 'Host: example.com' http://llm-router.silo.internal/
        no http://127.0.0.1/
        no http://security-proxy.silo.internal/
        no -H 'Host: example.com' https://security-proxy.silo.internal/
        no https://127.0.0.1/
        no https://192.0.2.1/
        no http://example.com/
        no telnet://security-proxy.silo.internal:25
        no telnet://127.0.0.1:5432
        exit 7
    "#;
    let done = place.run(&["--report", "report.jsonl"], &["sh", "-c", script]);
    assert_eq!(
        (code(&done), String::from_utf8_lossy(&done.stdout).as_ref()),
        (7, "routedproxied\n"),
        "{}",
        text(&done)
    );
    let remark = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(
        remark.contains("the agent was refused: 4 for other names; 1 for the security proxy without TLS"),
        "{remark}"
    );
    let report = place.home.dir.path().join("report.jsonl");
    assert_eq!(super::mode(&report), 0o600);
    let lines: Vec<Value> = fs::read_to_string(report)
        .expect("reads")
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let refused: Vec<&Value> = lines.iter().filter(|line| line["event"] == "refused").collect();
    assert_eq!(refused.len(), 5, "{lines:?}");
    assert_eq!(refused[0].get("name").and_then(Value::as_str), Some("example.com"));
    let end = lines.last().expect("an end");
    assert_eq!(end.get("exit_code").and_then(Value::as_i64), Some(7));
    assert_eq!(end.pointer("/refused/other_name").and_then(Value::as_u64), Some(4));
    assert!(end.get("unreached").and_then(Value::as_u64) >= Some(3), "{end}");
    assert!(no_key_in(&done.stdout) && no_key_in(&done.stderr));
}

/// Rows: SLO-033 (in part: the modes) SLO-009
#[test]
fn a_key_that_others_can_read_or_that_is_not_there_makes_the_start_fail() {
    let place = Place::new();
    let dir = place.home.dir.path();
    let program = ["sh", "-c", "echo started"];
    fs::set_permissions(dir.join("base.jwt"), fs::Permissions::from_mode(0o640)).expect("opened");
    let refused = place.run(&[], &program);
    assert_eq!(code(&refused), 3, "{}", text(&refused));
    assert!(
        text(&refused).contains("mode 640") && text(&refused).contains("chmod 600"),
        "{}",
        text(&refused)
    );
    fs::set_permissions(dir.join("base.jwt"), fs::Permissions::from_mode(0o600)).expect("closed");
    fs::remove_file(dir.join("task0.jwt")).expect("removed");
    let refused = place.run(&[], &program);
    assert_eq!(code(&refused), 2, "{}", text(&refused));
    // Without the proxy there is nothing that it could do.
    let args = ["run", "--base", "base.jwt", "--task", "task1.jwt", "--", "sh", "-c", "echo started"];
    let refused = place.home.run(&args);
    assert_eq!(code(&refused), 10, "{}", text(&refused));
    assert!(
        text(&refused).contains("proxy/agents.sock") && !text(&refused).contains("started"),
        "{}",
        text(&refused)
    );
    for wrong in [&["--time", "0"][..], &["--memory", "1"], &["--env", "=x"], &["--apparmor-required"]] {
        assert_eq!(code(&place.run(wrong, &program)), 2, "{wrong:?}");
    }
    assert!(place.asked().is_empty());
}

#[test]
fn needs_userns_bounds_end_it_and_its_code_is_passed_on() {
    let place = Place::new();
    let done = place.run(&["--time", "1"], &["sleep", "60"]);
    assert_eq!(code(&done), 124, "{}", text(&done));
    assert!(text(&done).contains("ended at its bound: time"), "{}", text(&done));
    let done = place.run(&["--env", "GREETING=hello", "-q"], &["sh", "-c", "echo $GREETING; kill -TERM $$"]);
    assert_eq!((code(&done), text(&done).as_str()), (143, "hello\n"));
    let done = place.run(&[], &["no-such-program"]);
    assert_eq!(code(&done), 127, "{}", text(&done));
    assert!(text(&done).contains("there is no program 'no-such-program' inside"), "{}", text(&done));
    // Standard input is the agent's.
    let given = place.home.run_with(&Place::args("task0.jwt", &[], &["cat"]), b"from outside");
    assert_eq!((code(&given), text(&given).as_str()), (0, "from outside"));
}

/// A folder in which an agent would find a key, or a socket past its two names, is not shown to it.
///
/// Rows: SLO-033 (the agent's own folder) SLO-038
#[test]
fn a_folder_with_a_key_or_a_servers_socket_in_it_makes_the_start_fail() {
    let place = Place::new();
    let dir = place.home.dir.path();
    // A link on the way there hides nothing.
    let folder = dir.join("sockets");
    fs::create_dir(&folder).expect("a folder");
    fs::rename(dir.join("router.sock"), folder.join("router.sock")).expect("moved");
    std::os::unix::fs::symlink(folder.join("router.sock"), dir.join("router.sock")).expect("a link");
    std::os::unix::fs::symlink(dir, dir.join("round")).expect("a link");
    for folder in ["sockets", "round/sockets", "."] {
        let refused = place.run(&["--folder", folder], &["true"]);
        assert_eq!(code(&refused), 2, "{folder}: {}", text(&refused));
        assert!(text(&refused).contains("would show the agent"), "{folder}: {}", text(&refused));
    }
    assert_eq!(place.asked(), [""; 0]);
}

/// Rows: SLO-041
#[test]
fn needs_userns_two_agents_at_once_have_each_its_own_key() {
    let place = Place::new();
    let script = "echo ready; read go; curl -sS https://security-proxy.silo.internal";
    let started = [("task0.jwt", "one"), ("task1.jwt", "two")]
        .map(|(task, name)| place.start(task, &["sh", "-c", &format!("{script}/{name}")]));
    let mut started = started.map(|(child, lines, first)| {
        assert_eq!(first, "ready\n");
        (child, lines)
    });
    for (child, lines) in &mut started {
        child.stdin.take().expect("a pipe").write_all(b"\n").expect("written");
        let mut rest = String::new();
        lines.read_to_string(&mut rest).expect("reads");
        assert_eq!((child.wait().expect("ends").code(), rest.as_str()), (Some(0), "proxied"));
    }
    let mut asked = place.asked();
    asked.sort_by_key(|request| request.contains("/two "));
    assert_eq!(asked.len(), 2, "{asked:?}");
    for (request, (own, other)) in asked.iter().zip([(TASKS[0], TASKS[1]), (TASKS[1], TASKS[0])]) {
        assert!(request.contains(own) && !request.contains(other), "{request}");
    }
}

/// Rows: SLO-065
#[test]
fn needs_userns_nothing_is_left_when_the_launcher_is_killed_or_asked_to_end() {
    let place = Place::new();
    let marker = format!("7{}.25", std::process::id());
    let script = format!("echo mine > /tmp/{marker}; (setsid sleep {marker} &) ; echo ready; sleep {marker}");
    let (mut child, mut lines, first) = place.start("task0.jwt", &["sh", "-c", &script]);
    assert_eq!(first, "ready\n");
    let user = below(child.id()).into_iter().find_map(user_of).expect("a user");
    child.kill().expect("killed");
    child.wait().expect("it ends");
    // Each of the agent's processes holds the pipe: it ends with the last one.
    let mut rest = String::new();
    lines.read_to_string(&mut rest).expect("reads");
    assert_eq!(rest, "");
    assert!(!Path::new("/tmp").join(&marker).exists());
    let lock = Path::new("/run/writ/agents").join(user.to_string());
    if nix::unistd::geteuid().is_root() {
        // The user is free once the last process of its sandbox has ended.
        File::open(lock).expect("a lock").lock().expect("is free");
    }
    // An order to end is the agent's, too: it says goodbye.
    let (mut child, mut lines, first) =
        place.start("task0.jwt", &["sh", "-c", "trap 'echo bye; exit 9' TERM; echo ready; sleep 60 & wait"]);
    assert_eq!(first, "ready\n");
    let pid = nix::unistd::Pid::from_raw(i32::try_from(child.id()).expect("fits"));
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).expect("sent");
    lines.read_to_string(&mut rest).expect("reads");
    assert_eq!((child.wait().expect("it ends").code(), rest.as_str()), (Some(9), "bye\n"));
}

/// A process that is started behind a shell, which names itself as the parent and does what `then` says meanwhile.
#[expect(clippy::disallowed_types, reason = "the test starts the binary that it tests")]
fn start_behind_shell(place: &Place, then: &str, program: &[&str]) -> Child {
    let shell = format!("exe=$1; shift; \"$exe\" run --parent $$ \"$@\" & {then}");
    let args = Place::args("task0.jwt", &[], program);
    std::process::Command::new("sh")
        .args(["-c", &shell, "sh", env!("CARGO_BIN_EXE_writ")])
        .args(args.iter().skip(1))
        .env_clear()
        .envs(place.home.variables(&[]))
        .env("PATH", "/usr/bin:/bin")
        .current_dir(place.home.dir.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts")
}

/// Neither an agent that does not listen nor a process of its own in another session goes on without the router.
///
/// Rows: SLO-065
#[test]
fn needs_userns_an_agent_ends_with_the_process_that_has_started_its_launcher() {
    let place = Place::new();
    let marker = format!("8{}.25", std::process::id());
    let script = format!(
        "trap '' TERM HUP; (setsid sh -c \"trap '' TERM HUP; sleep {marker}\" &); echo ready; while :; do sleep {marker}; done"
    );
    let mut shell = start_behind_shell(&place, "wait", &["sh", "-c", &script]);
    let mut lines = BufReader::new(shell.stdout.take().expect("a pipe"));
    let mut first = String::new();
    lines.read_line(&mut first).expect("reads");
    assert_eq!(first, "ready\n");
    shell.kill().expect("killed");
    shell.wait().expect("it ends");
    // The launcher and each of the agent's processes hold the pipe: it ends with the last one.
    let mut rest = String::new();
    lines.read_to_string(&mut rest).expect("reads");
    assert_eq!(rest, "");
    // Killed while the launcher starts: nothing goes on, at any stage of it.
    for _ in 0..4 {
        let mut shell = start_behind_shell(&place, "kill -9 $$", &["sleep", "600"]);
        shell.wait().expect("it ends");
        shell.stdout.take().expect("a pipe").read_to_string(&mut rest).expect("reads");
        assert_eq!(rest, "");
    }
    // A process that is not the parent, or ended before it was looked at.
    let refused = place.run(&["--parent", "1"], &["sh", "-c", "echo started"]);
    assert_eq!((code(&refused), refused.stdout.len()), (10, 0), "{}", text(&refused));
}

/// Rows: SLO-041 (a renewed key reaches an agent that runs)
#[test]
fn needs_userns_a_renewed_key_reaches_an_agent_that_runs_and_a_removed_one_counts_no_more() {
    let place = Place::new();
    let ask = "curl -sS -o /dev/null -w '%{http_code}\\n' https://security-proxy.silo.internal";
    let script = format!("for n in 1 2 3; do {ask}/$n; read go; done");
    let (mut child, mut lines, first) = place.start("task0.jwt", &["sh", "-c", &script]);
    let mut said = first;
    let dir = place.home.dir.path();
    fs::rename(dir.join("task1.jwt"), dir.join("task0.jwt")).expect("renamed");
    let mut input = child.stdin.take().expect("a pipe");
    input.write_all(b"go\n").expect("written");
    lines.read_line(&mut said).expect("reads");
    fs::remove_file(dir.join("task0.jwt")).expect("removed");
    input.write_all(b"go\ngo\n").expect("written");
    lines.read_to_string(&mut said).expect("reads");
    assert_eq!((child.wait().expect("it ends").code(), said.as_str()), (Some(0), "200\n200\n401\n"));
    let asked = place.asked();
    assert_eq!(asked.len(), 2, "{asked:?}");
    for (request, key) in asked.iter().zip(TASKS) {
        assert!(request.contains(&format!("writ-task-key: {key}\r\n")), "{request}");
    }
}

/// The user of a process, if it is not this one's.
fn user_of(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_whitespace().next()?.parse().ok()
}
