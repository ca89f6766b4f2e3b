//! A home with an engine and a scripted model, and a client that measures turns.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::Bench;
use crate::home::{Home, until_ready};
use crate::link::{self, is, text};
use crate::socket::Server;
use task_process::{Program, Running};

/// The idle seconds after which the engine ends if this task is no longer there.
pub(super) const IDLE_EXIT: &str = "60";

/// An engine of a home of its own. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct Engine {
    // In this order: the engine ends before its model.
    process: Running,
    home: Home,
}

impl Engine {
    /// Sets up a home in a folder of this name and starts its engine.
    pub(super) fn start(bench: &Bench, name: &str) -> Result<Self> {
        Self::launch(Home::set_up(&bench.writ, &bench.helper, &bench.scratch.path().join(name))?)
    }

    /// The same, with a setting.
    pub(super) fn with(bench: &Bench, name: &str, setting: (&'static str, &str)) -> Result<Self> {
        let home = Home::set_up(&bench.writ, &bench.helper, &bench.scratch.path().join(name))?;
        Self::launch(home.with(setting.0, setting.1))
    }

    /// The same, and it serves HTTP on a free port; everybody there is one client behind one address.
    pub(super) fn serving(bench: &Bench, name: &str) -> Result<Self> {
        Self::launch(serving_home(bench, name, 0)?)
    }

    /// The same, with a server of tools: a shell script, and what its owner says of its tools.
    pub(super) fn with_server(bench: &Bench, name: &str, (script, words): (&str, &str)) -> Result<Self> {
        let home = Home::set_up(&bench.writ, &bench.helper, &bench.scratch.path().join(name))?;
        // What its owner says of it holds from the next engine on.
        let mut first = home.launch(IDLE_EXIT)?;
        until_ready(&mut first)?;
        let added = home.writ(&["mcp", "add", "bench", "--yes", "--", "sh", "-c", script]).output()?;
        ensure!(added.success, "writ mcp add: {}", added.stderr.trim());
        drop(first);
        let path = home.folder().join("home/mcp/bench.toml");
        let said = std::fs::read_to_string(&path)? + words;
        std::fs::write(&path, said)?;
        Self::launch(home)
    }

    fn launch(home: Home) -> Result<Self> {
        let mut process = home.launch(IDLE_EXIT)?;
        until_ready(&mut process)?;
        Ok(Self { process, home })
    }

    /// The binary with the environment of this home.
    pub(super) fn writ(&self, arguments: &[&str]) -> Program {
        self.home.writ(arguments)
    }

    /// The id of its process.
    pub(super) fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Lets the model answer what it holds back.
    pub(super) fn release(&mut self) -> Result<()> {
        self.home.release()
    }

    /// The last requests of turns that begin with `request`.
    pub(super) fn requests(&mut self) -> Result<Vec<Value>> {
        self.home.requests()
    }

    /// Returns its HTTP address.
    pub(super) fn server(&self) -> Result<Server> {
        self.home.server()
    }

    /// Connects a client.
    pub(super) fn connect(&self) -> Result<Link> {
        Ok(Link { link: self.home.connect()? })
    }
}

/// Sets up a home with an engine that serves HTTP on a port; 0: any that is free.
pub(super) fn serving_home(bench: &Bench, name: &str, port: u16) -> Result<Home> {
    let home = Home::set_up(&bench.writ, &bench.helper, &bench.scratch.path().join(name))?;
    let settings = [
        ("WRIT_SERVER__ENABLED", "true"),
        ("WRIT_SERVER__PORT", &port.to_string()),
        ("WRIT_SERVER__REQUESTS_PER_SEC", "20000"),
        ("WRIT_SERVER__BURST", "40000"),
        ("WRIT_BUDGET__MAX_TOKENS_PER_DAY", "1000000000000"),
        ("WRIT_BUDGET__MAX_TOKENS_PER_SESSION", "1000000000000"),
    ];
    Ok(settings.into_iter().fold(home, |home, (name, value)| home.with(name, value)))
}

/// A client of an engine.
#[derive(Debug)]
pub(super) struct Link {
    link: link::Link,
}

/// The course of a turn.
#[derive(Debug)]
pub(super) struct Turn {
    /// From before the message was sent until its answer was there.
    pub(super) took: Duration,
    /// The number of tools that are done.
    pub(super) tools_done: u32,
}

impl Link {
    /// Opens a session without a project; its id.
    pub(super) fn open_session(&mut self) -> Result<String> {
        self.join(None)
    }

    /// Joins a session; its id.
    pub(super) fn join(&mut self, session: Option<&str>) -> Result<String> {
        self.link.send(&json!({ "type": "resume", "session": session }))?;
        let hello = self.link.until(|numbered| is(&numbered.frame, "type", "hello"))?;
        Ok(text(&hello, "session").to_owned())
    }

    /// Says something and waits for the end of the turn.
    pub(super) fn turn(&mut self, message: &str) -> Result<Turn> {
        let id = format!("m{}", self.link.number());
        let start = Instant::now();
        self.link.send(&json!({ "type": "message", "text": message, "client_id": id }))?;
        let mut tools_done = 0;
        let last = self.link.until(|numbered| {
            let frame = &numbered.frame;
            if is(frame, "type", "tool") && is(frame, "state", "done") {
                tools_done += 1;
            }
            let ends = is(frame, "type", "message") && frame.get("last") == Some(&Value::Bool(true));
            ends || is(frame, "type", "error")
        })?;
        let took = start.elapsed();
        ensure!(is(&last, "exit", "done"), "the turn ended with {last}");
        Ok(Turn { took, tools_done })
    }

    /// Receives until a frame is the one that is looked for.
    pub(super) fn until(&mut self, mut wanted: impl FnMut(&Value) -> bool) -> Result<Value> {
        self.link.until(|numbered| wanted(&numbered.frame))
    }

    /// Approves a request once.
    pub(super) fn approve(&mut self, ask: &str) -> Result<()> {
        self.link.send(&json!({
            "type": "approval_response", "ask_id": ask, "decision": "approve", "scope": "once", "reason": ""
        }))
    }

    /// Asks for something that is no conversation.
    pub(super) fn call(&mut self, method: &str, params: &Value) -> Result<Value> {
        self.link.call(method, params)
    }
}
