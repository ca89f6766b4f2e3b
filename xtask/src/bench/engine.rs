//! A home with an engine and a scripted model, and a client that speaks frames with it.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};

use super::Bench;
use crate::process::{Program, Running};

/// Longer than anything here may take: a bench that hangs fails instead.
const PATIENCE: Duration = Duration::from_secs(60);
/// After how many idle seconds the engine ends if this task is gone.
const IDLE_EXIT: &str = "60";

/// An engine of a home of its own. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct Engine {
    // In this order: the engine ends before its model.
    process: Running,
    model: Running,
    home: PathBuf,
    environment: Vec<(&'static str, String)>,
    writ: PathBuf,
}

impl Engine {
    /// Sets up a home in a folder of this name and starts its engine.
    pub(super) fn start(bench: &Bench, name: &str) -> Result<Self> {
        let folder = bench.scratch.path().join(name);
        std::fs::create_dir_all(&folder)?;
        let mut model = Program::new(&bench.helper, &["model"]).spawn()?;
        let line = model.line()?;
        let served: Value =
            serde_json::from_str(&line).with_context(|| format!("the model said '{line}'"))?;
        let base_url = served.get("base_url").and_then(Value::as_str).context("the model serves nothing")?;
        let home = folder.join("home");
        let environment = vec![
            ("HOME", folder.display().to_string()),
            ("WRIT_HOME", home.display().to_string()),
            // Never the keyring of whoever measures.
            ("WRIT_SECRETS__BACKEND", "plain".to_owned()),
            ("WRIT_MODELS__DEFAULT", "bench/scripted".to_owned()),
            ("WRIT_PROVIDERS__BENCH__KIND", "anthropic".to_owned()),
            ("WRIT_PROVIDERS__BENCH__BASE_URL", base_url.to_owned()),
            ("WRIT_PROVIDERS__BENCH__API_KEY", "env:SCRIPTED_KEY".to_owned()),
            ("SCRIPTED_KEY", "scripted".to_owned()),
        ];
        let writ = |arguments: &[&str]| program(&bench.writ, arguments, &environment);
        let made = writ(&["init", "--yes"]).output()?;
        ensure!(made.success, "writ init: {}", made.stderr.trim());
        // Standard error says when it is ready.
        let script = r#"exec "$0" start --idle-exit "$1" 2>&1"#;
        let binary = bench.writ.display().to_string();
        let mut process =
            program("sh".as_ref(), &["-c", script, &binary, IDLE_EXIT], &environment).spawn()?;
        let mut said = String::new();
        while !said.contains("engine ready") {
            said = process.line().with_context(|| format!("the engine did not start: {said}"))?;
        }
        Ok(Self { process, model, home, environment, writ: bench.writ.clone() })
    }

    /// The binary with the environment of this home.
    pub(super) fn writ(&self, arguments: &[&str]) -> Program {
        program(&self.writ, arguments, &self.environment)
    }

    /// The id of its process.
    pub(super) fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Lets the model answer what it holds back.
    pub(super) fn release(&mut self) -> Result<()> {
        self.model.say("go")
    }

    /// Connects a client.
    pub(super) fn connect(&self) -> Result<Link> {
        let out = UnixStream::connect(self.home.join("runtime/control.sock"))?;
        out.set_read_timeout(Some(PATIENCE))?;
        let lines = BufReader::new(out.try_clone()?);
        Ok(Link { out, lines, sent: 0 })
    }
}

fn program(path: &std::path::Path, arguments: &[&str], environment: &[(&'static str, String)]) -> Program {
    let clean = Program::new(path, arguments).clean();
    environment.iter().fold(clean, |program, (name, value)| program.env(name, value))
}

/// A client of an engine.
#[derive(Debug)]
pub(super) struct Link {
    out: UnixStream,
    lines: BufReader<UnixStream>,
    sent: u64,
}

/// How a turn went.
#[derive(Debug)]
pub(super) struct Turn {
    /// From before the message was sent until its answer was there.
    pub(super) took: Duration,
    /// How many of its tools are done.
    pub(super) tools_done: u32,
}

impl Link {
    /// Opens a session without a project; its id.
    pub(super) fn open_session(&mut self) -> Result<String> {
        self.send(&json!({ "type": "resume", "session": null }))?;
        let hello = self.until(|frame| is(frame, "type", "hello"))?;
        Ok(text(&hello, "session").to_owned())
    }

    /// Says something and waits for the end of the turn.
    pub(super) fn turn(&mut self, message: &str) -> Result<Turn> {
        self.sent += 1;
        let id = format!("m{}", self.sent);
        let start = Instant::now();
        self.send(&json!({ "type": "message", "text": message, "client_id": id }))?;
        let mut tools_done = 0;
        let last = self.until(|frame| {
            if is(frame, "type", "tool") && is(frame, "state", "done") {
                tools_done += 1;
            }
            is(frame, "type", "message") && frame.get("last") == Some(&Value::Bool(true))
        })?;
        let took = start.elapsed();
        ensure!(is(&last, "exit", "done"), "the turn ended with {last}");
        Ok(Turn { took, tools_done })
    }

    /// Asks for something that is no conversation.
    pub(super) fn call(&mut self, method: &str, params: &Value) -> Result<Value> {
        self.sent += 1;
        let id = self.sent;
        self.send(&json!({ "type": "call", "id": id, "method": method, "params": params }))?;
        let answer = self.until(|frame| frame.get("id").and_then(Value::as_u64) == Some(id))?;
        answer.get("result").cloned().context("an answer without a result")
    }

    fn send(&mut self, frame: &Value) -> Result<()> {
        Ok(self.out.write_all(format!("{frame}\n").as_bytes())?)
    }

    /// The next frame that is wanted; a refusal is an error.
    fn until(&mut self, mut wanted: impl FnMut(&Value) -> bool) -> Result<Value> {
        loop {
            let mut line = String::new();
            ensure!(self.lines.read_line(&mut line)? > 0, "the engine closed the connection");
            let numbered: Value = serde_json::from_str(&line)?;
            let frame = numbered.get("frame").context("a line without a frame")?;
            if is(frame, "type", "error") {
                bail!("the engine refused: {}", text(frame, "text"));
            }
            if wanted(frame) {
                return Ok(frame.clone());
            }
        }
    }
}

fn text<'a>(frame: &'a Value, name: &str) -> &'a str {
    frame.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn is(frame: &Value, name: &str, value: &str) -> bool {
    text(frame, name) == value
}
