//! The server as one lives with it: how soon it answers, what it keeps, and its turns over WebSockets.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use futures::stream::{StreamExt as _, TryStreamExt as _};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::time::sleep;

use super::Bench;
use super::engine::{Engine, IDLE_EXIT, serving_home};
use super::row::{Percentile, Row};
use super::stats::{Sample, in_turn};
use crate::gauge::Gauge;
use crate::link::{is, text};
use crate::socket::{Server, Socket, free_port};
use task_process::Ended;

/// From the start of the process to the first 200 (design 5).
const START: Duration = Duration::from_millis(150);
/// The time that a server may take to answer at all.
const PATIENCE: Duration = Duration::from_secs(30);
/// The pause before a server that does not listen yet is asked again.
const AGAIN: Duration = Duration::from_millis(1);
/// The most that an idle server may take (design 5).
const IDLE: u64 = 25_000_000;
/// When a server that was started is idle.
const SETTLES: Duration = Duration::from_secs(2);
/// Sessions that are open at once, each with a WebSocket (design 5).
const SESSIONS: usize = 1_000;
/// Descriptors that this process needs for them, and the server as well.
const DESCRIPTORS: u64 = 1_200;
/// The number of sessions that are opened at once.
const OPENING: usize = 16;
/// Clients that speak at once, each in a session of its own.
const CLIENTS: usize = 32;
/// The time for which they speak.
const SPEAKING: Duration = Duration::from_secs(5);
/// Durable turns in a second with a model that answers at once (design 5).
const TURNS: f64 = 500.0;

/// Measures starting, an idle server, one with a thousand sessions, and turns over WebSockets.
pub(super) fn measure(bench: &Bench) -> Result<Vec<Row>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let mut rows = vec![start(bench, &runtime)?];
    let engine = Engine::serving(bench, "crowd")?;
    rows.extend(runtime.block_on(crowd(bench, &engine))?);
    drop(engine);
    let engine = Engine::serving(bench, "speakers")?;
    rows.push(overhead(bench, &engine, &runtime)?);
    rows.push(runtime.block_on(throughput(&engine))?);
    Ok(rows)
}

/// Starts the server of a home that was started before.
fn start(bench: &Bench, runtime: &Runtime) -> Result<Row> {
    let port = free_port()?;
    let home = serving_home(bench, "start", port)?;
    let mut took = Vec::new();
    for round in 0..=bench.rounds {
        let begun = Instant::now();
        let engine = home.launch(IDLE_EXIT)?;
        let answered = runtime.block_on(first_answer(port, begun))?;
        // The first one creates the files of the home.
        if round > 0 {
            took.push(answered);
        }
        drop(engine);
    }
    let target = (Percentile::P50, START);
    Ok(Row::limit(
        "start to the first 200",
        Sample::new(took)?,
        target,
        "`writ start`, GET /health".to_owned(),
    ))
}

/// Returns the time from that moment to the first healthy answer of the server.
async fn first_answer(port: u16, begun: Instant) -> Result<Duration> {
    // Whether a server is up is no secret.
    let server = Server { port, token: "none".to_owned() };
    loop {
        match server.ask("GET", "/health", &Value::Null).await {
            Ok((200, _)) => return Ok(begun.elapsed()),
            Ok((status, _)) => bail!("/health answers {status}"),
            Err(error) if error.is::<Ended>() && begun.elapsed() < PATIENCE => sleep(AGAIN).await,
            Err(error) => return Err(error),
        }
    }
}

/// Measures a server without sessions, and with a thousand.
async fn crowd(bench: &Bench, engine: &Engine) -> Result<Vec<Row>> {
    let server = engine.server()?;
    sleep(SETTLES).await;
    let idle = Gauge::of(engine.pid())?;
    let mut rows = vec![
        Row::size("server, idle: RSS", idle.resident, None),
        Row::size("server, idle: PSS", idle.proportional, Some(IDLE)),
    ];
    let limits = std::fs::read_to_string("/proc/self/limits").context("/proc/self/limits")?;
    let descriptors = open_files(&limits)?;
    if descriptors < DESCRIPTORS {
        let why = format!("a process may open {descriptors} files, and needs {DESCRIPTORS}");
        rows.push(Row::not_run("server, 1,000 sessions", why));
        return Ok(rows);
    }
    let mut visitors = vec![Visitor::enter(&server).await?];
    let alone = turns(&mut visitors, bench.rounds as usize).await?;
    let entering = futures::stream::iter(visitors.len()..SESSIONS).map(|_| Visitor::enter(&server));
    visitors.extend(entering.buffer_unordered(OPENING).try_collect::<Vec<_>>().await?);
    let open = Gauge::of(engine.pid())?;
    let among = turns(&mut visitors, bench.rounds as usize).await?;
    let spoken = Gauge::of(engine.pid())?;
    rows.push(Row::size("server, 1,000 sessions: PSS", open.proportional, None));
    rows.push(Row::size("server, 1,000 sessions, turns: PSS", spoken.proportional, None));
    rows.push(Row::beside("turn, 1,000 sessions open", among, ("1 session open", alone)));
    Ok(rows)
}

/// So many turns, one after the other, from one visitor to the next.
async fn turns(visitors: &mut [Visitor], rounds: usize) -> Result<Sample> {
    let (mut took, mut round) = (Vec::new(), 0);
    while round < rounds {
        for visitor in visitors.iter_mut().take(rounds - round) {
            took.push(visitor.turn().await?);
            round += 1;
        }
    }
    Sample::new(took)
}

/// The same turns over a WebSocket and over the control socket.
fn overhead(bench: &Bench, engine: &Engine, runtime: &Runtime) -> Result<Row> {
    let server = engine.server()?;
    let mut visitor = runtime.block_on(Visitor::enter(&server))?;
    let mut link = engine.connect()?;
    link.join(Some(&runtime.block_on(session(&server))?))?;
    let mut said = 0_u32;
    let control = || {
        said += 1;
        Ok(link.turn(&format!("talk 0 {said}"))?.took)
    };
    let (own, base) = in_turn(bench.rounds, || runtime.block_on(visitor.turn()), control)?;
    Ok(Row::beside("turn over a WebSocket", own, ("control.sock", base)))
}

/// Many clients that each say something as soon as they are answered.
async fn throughput(engine: &Engine) -> Result<Row> {
    let server = engine.server()?;
    let entering = futures::stream::iter(0..CLIENTS).map(|_| Visitor::enter(&server));
    let mut visitors: Vec<Visitor> = entering.buffer_unordered(OPENING).try_collect().await?;
    // Opens what a session opens at its first use.
    turns(&mut visitors, CLIENTS).await?;
    let begun = Instant::now();
    let speaking = visitors.into_iter().map(|mut visitor| {
        tokio::spawn(async move {
            let mut took = Vec::new();
            while begun.elapsed() < SPEAKING {
                took.push(visitor.turn().await?);
            }
            anyhow::Ok(took)
        })
    });
    let mut took = Vec::new();
    for speaker in speaking.collect::<Vec<_>>() {
        took.extend(speaker.await??);
    }
    let per_second = took.len() as f64 / begun.elapsed().as_secs_f64();
    let against = format!("{CLIENTS} WebSockets, {} turns", took.len());
    Ok(Row::rate("durable turns", (per_second, TURNS), Sample::new(took)?, against))
}

/// A new session.
async fn session(server: &Server) -> Result<String> {
    let (status, opened) = server.ask("POST", "/api/v1/sessions", &json!({})).await?;
    ensure!(status == 201, "no session was opened: {status} {opened}");
    Ok(text(&opened, "session").to_owned())
}

/// A client in a session of its own.
#[derive(Debug)]
struct Visitor {
    socket: Socket,
    said: u64,
}

impl Visitor {
    /// Opens a session and joins it.
    async fn enter(server: &Server) -> Result<Self> {
        let session = session(server).await?;
        let mut socket = Socket::open(server, "/ws", false).await?;
        socket.send(&json!({ "type": "resume", "session": session })).await?;
        loop {
            let frame = socket.receive().await?.frame;
            ensure!(!is(&frame, "type", "error"), "not let in: {frame}");
            if is(&frame, "type", "hello") {
                return Ok(Self { socket, said: 0 });
            }
        }
    }

    /// Says something; how long it took until its answer was there.
    async fn turn(&mut self) -> Result<Duration> {
        self.said += 1;
        let (id, words) = (format!("m{}", self.said), format!("talk 0 {}", self.said));
        let begun = Instant::now();
        self.socket.send(&json!({ "type": "message", "text": words, "client_id": id })).await?;
        loop {
            let frame = self.socket.receive().await?.frame;
            ensure!(!is(&frame, "type", "error"), "the turn ended with {frame}");
            if is(&frame, "type", "message") && frame.get("last") == Some(&Value::Bool(true)) {
                ensure!(is(&frame, "exit", "done"), "the turn ended with {frame}");
                return Ok(begun.elapsed());
            }
        }
    }
}

/// Returns the most files that a process may open, by `/proc/PID/limits`.
fn open_files(limits: &str) -> Result<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
    let soft = line.and_then(|line| line.split_whitespace().next()).context("no limit of open files")?;
    if soft == "unlimited" { Ok(u64::MAX) } else { Ok(soft.parse()?) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_of_files_counts() {
        let limits = |soft: &str| {
            format!(
                "Limit                     Soft Limit           Hard Limit           Units\n\
                 Max processes             100                  100                  processes\n\
                 Max open files            {soft:<20} 1048576              files\n"
            )
        };
        assert_eq!(open_files(&limits("1024")).unwrap(), 1024);
        assert_eq!(open_files(&limits("unlimited")).unwrap(), u64::MAX);
        assert!(open_files("Max processes 1 1\n").is_err() && open_files(&limits("many")).is_err());
        assert!(open_files(&std::fs::read_to_string("/proc/self/limits").unwrap()).unwrap() > 0);
    }
}
