//! The fleet: the start of a locked agent, and many cases at once, each with an agent of its own.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};
use task_process::Running;
use tokio::time::sleep;

use super::Bench;
use super::engine::IDLE_EXIT;
use super::row::{Percentile, Row, size};
use super::stats::Sample;
use crate::gauge::{Gauge, tree};
use crate::home::{Home, until_ready};

/// From the start of `writ run` to the first instruction of its agent; its first output is taken for it.
const START: Duration = Duration::from_millis(15);
/// Cases that are open at once.
const CASES: usize = 200;
/// The most that the fleet may take with them: router, proxy, launchers and agents.
const CROWD: u64 = 300_000_000;
/// The time in which every agent answers.
const PATIENCE: Duration = Duration::from_secs(120);
/// The pause between two looks at a conversation.
const AGAIN: Duration = Duration::from_millis(100);

/// An agent that answers each line with the same reply.
const MANIFEST: &str = "name = \"echo\"\nversion = \"1\"\nprogram = [\"sh\", \"agent.sh\"]\nmax_cases = 200\n\
     expires_days = 1\n[capabilities]\nanswer = {}\n";
const PROGRAM: &str = "while read -r line; do echo '{\"reply\": \"yes\"}'; done\n";

/// Measures both.
pub(super) fn measure(bench: &Bench) -> Result<Vec<Row>> {
    Ok(vec![start(bench)?, crowd(bench)?])
}

/// Starts an agent again and again, until its first output.
fn start(bench: &Bench) -> Result<Row> {
    let home = Home::set_up(&bench.writ, &bench.helper, &bench.scratch.path().join("locked"))?;
    let path = |name: &str| home.folder().join(name);
    // They only have to be there: this agent asks nothing.
    let _servers = [UnixListener::bind(path("proxy.sock"))?, UnixListener::bind(path("router.sock"))?];
    for key in ["base.jwt", "task.jwt"] {
        fs::write(path(key), "S2V5T2ZBQmVuY2g")?;
        fs::set_permissions(path(key), fs::Permissions::from_mode(0o600))?;
    }
    let arguments = [
        "run",
        "--base",
        "base.jwt",
        "--task",
        "task.jwt",
        "--proxy-socket",
        "proxy.sock",
        "--router-socket",
        "router.sock",
        "--",
        "echo",
        "up",
    ];
    let mut took = Vec::new();
    for _ in 0..bench.rounds {
        let begin = Instant::now();
        let mut running = home.writ(&arguments).directory(home.folder()).spawn()?;
        let said = running.line()?;
        took.push(begin.elapsed());
        ensure!(said.trim_end() == "up", "the agent said '{said}'");
        ensure!(running.wait()?, "writ run failed");
    }
    let own = Sample::new(took).context("no rounds")?;
    Ok(Row::limit("writ run, to the agent's first output", own, (Percentile::P50, START), String::new()))
}

/// Opens cases until every one has an answer, and adds up the memory of all processes.
fn crowd(bench: &Bench) -> Result<Row> {
    let home = Home::set_up(&bench.writ, &bench.helper, &bench.scratch.path().join("cases"))?
        .with("WRIT_FLEET__CASES", "true");
    let (proxy, engine) = launch(&home)?;
    let agent = home.folder().join("echo");
    fs::create_dir_all(&agent)?;
    fs::write(agent.join("agent.toml"), MANIFEST)?;
    fs::write(agent.join("agent.sh"), PROGRAM)?;
    let folder = agent.display().to_string();
    for command in [&["agent", "bless", "--yes", &folder][..], &["agent", "deploy", &folder]] {
        let done = home.writ(command).output()?;
        ensure!(done.success, "writ agent: {}", done.stderr.trim());
    }
    let token = home.writ(&["fleet", "token"]).output()?.stdout.trim().to_owned();
    let front = FrontEnd { socket: &home.folder().join("home/runtime/cases.sock"), token };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    for case in open_cases(&front)? {
        runtime.block_on(front.wait_for_answer(&case))?;
    }
    let [mut sum, mut processes] = [0, 0];
    for root in [proxy.pid(), engine.pid()] {
        for pid in tree(root) {
            sum += Gauge::of(pid)?.proportional;
            processes += 1;
        }
    }
    let [own, router] = [Gauge::of(proxy.pid())?, Gauge::of(engine.pid())?].map(|one| size(one.proportional));
    let against = format!("{processes} processes; proxy {own}, router {router}");
    Ok(Row::part(&format!("{CASES} cases at once: PSS"), sum, Some(CROWD), against))
}

/// Starts the proxy and the engine. Both end when they are dropped.
fn launch(home: &Home) -> Result<(Running, Running)> {
    let folder = home.folder().join("home/proxy");
    fs::create_dir_all(&folder)?;
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o700))?;
    fs::create_dir_all(home.folder().join("home/operations"))?;
    fs::write(folder.join("proxy.toml"), "")?;
    let mut proxy = home.launch_server(&["proxy"])?;
    let said = proxy.line()?;
    ensure!(said.contains("proxy ready"), "the proxy said '{said}'");
    let mut engine = home.launch(IDLE_EXIT)?;
    until_ready(&mut engine)?;
    Ok((proxy, engine))
}

fn open_cases(front: &FrontEnd<'_>) -> Result<Vec<String>> {
    let mut cases = Vec::new();
    for number in 0..CASES {
        let body = json!({ "customer": format!("c{number}"), "case": format!("chat-{number}"),
            "capability": "answer", "message": "hello" });
        let opened = front.ask("POST", "/cases", &body.to_string())?;
        cases.push(opened["id"].as_str().context("a case without an id")?.to_owned());
    }
    Ok(cases)
}

/// The front end of the owner's, which opens cases.
#[derive(Debug)]
struct FrontEnd<'a> {
    socket: &'a Path,
    token: String,
}

impl FrontEnd<'_> {
    /// Waits until someone other than the guest has said something.
    async fn wait_for_answer(&self, case: &str) -> Result<()> {
        let begin = Instant::now();
        while begin.elapsed() < PATIENCE {
            let conversation = self.ask("GET", &format!("/cases/{case}/messages"), "")?;
            if conversation.to_string().contains("\"yes\"") {
                return Ok(());
            }
            sleep(AGAIN).await;
        }
        bail!("no agent has answered in case {case}")
    }

    /// Sends a request on a connection of its own.
    fn ask(&self, method: &str, path: &str, body: &str) -> Result<Value> {
        let mut stream = UnixStream::connect(self.socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let (token, length) = (&self.token, body.len());
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nauthorization: Bearer {token}\r\n\
             content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        )?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let (head, body) = answer.split_once("\r\n\r\n").context("an answer without a head")?;
        ensure!(head.starts_with("HTTP/1.1 2"), "the router answered {head}\n{body}");
        serde_json::from_str(body).with_context(|| format!("the router answered '{body}'"))
    }
}
