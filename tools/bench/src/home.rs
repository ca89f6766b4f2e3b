//! A home with a scripted model, and the binary that is run in it.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::link::Link;
use crate::socket::Server;
use task_process::{Program, Running};

/// A home of its own and a model of its own. The model ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Home {
    model: Running,
    writ: PathBuf,
    folder: PathBuf,
    environment: Vec<(&'static str, String)>,
}

impl Home {
    /// Sets up a home in a new folder. `helper` is the example `bench` of `writ-cli`, which serves the model.
    pub(crate) fn set_up(writ: &Path, helper: &Path, folder: &Path) -> Result<Self> {
        std::fs::create_dir_all(folder)?;
        let mut model = Program::new(helper, &["model"]).spawn()?;
        let line = model.line()?;
        let served: Value =
            serde_json::from_str(&line).with_context(|| format!("the model said '{line}'"))?;
        let base_url = served.get("base_url").and_then(Value::as_str).context("the model serves nothing")?;
        let environment = vec![
            ("HOME", folder.display().to_string()),
            ("WRIT_HOME", folder.join("home").display().to_string()),
            // Never the keyring of the user who runs this.
            ("WRIT_SECRETS__BACKEND", "plain".to_owned()),
            // What is measured is counted by messages that were sent.
            ("WRIT_CONTINUE_AFTER_ANSWER", "false".to_owned()),
            ("WRIT_MODELS__DEFAULT", "bench/scripted".to_owned()),
            ("WRIT_PROVIDERS__BENCH__KIND", "anthropic".to_owned()),
            ("WRIT_PROVIDERS__BENCH__BASE_URL", base_url.to_owned()),
            ("WRIT_PROVIDERS__BENCH__API_KEY", "env:SCRIPTED_KEY".to_owned()),
            ("SCRIPTED_KEY", "scripted".to_owned()),
        ];
        let home = Self { model, writ: writ.to_owned(), folder: folder.to_owned(), environment };
        let made = home.writ(&["init", "--yes"]).output()?;
        ensure!(made.success, "writ init: {}", made.stderr.trim());
        Ok(home)
    }

    /// The folder that the home lies in.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The same home with one more variable.
    pub(crate) fn with(mut self, name: &'static str, value: &str) -> Self {
        self.environment.push((name, value.to_owned()));
        self
    }

    /// The binary with the environment of this home.
    pub(crate) fn writ(&self, arguments: &[&str]) -> Program {
        self.program(&self.writ, arguments)
    }

    /// Starts an engine that ends after so many idle seconds. It is not ready yet.
    pub(crate) fn launch(&self, idle_exit: &str) -> Result<Running> {
        self.launch_server(&["start", "--idle-exit", idle_exit])
    }

    /// Starts a command that serves until it is ended. It is not ready yet.
    pub(crate) fn launch_server(&self, arguments: &[&str]) -> Result<Running> {
        // Standard error says when it is ready.
        let script = r#"exec "$0" "$@" 2>&1"#;
        let writ = self.writ.display().to_string();
        self.program("sh".as_ref(), &[&["-c", script, &writ][..], arguments].concat()).spawn()
    }

    /// Lets the model answer what it holds back.
    pub(crate) fn release(&mut self) -> Result<()> {
        self.model.say("go")
    }

    /// The last requests that the model has got with a message that begins with `request`, oldest first.
    pub(crate) fn requests(&mut self) -> Result<Vec<Value>> {
        self.model.say("requests")?;
        Ok(serde_json::from_str(&self.model.line()?)?)
    }

    /// Returns the HTTP address of the running engine.
    pub(crate) fn server(&self) -> Result<Server> {
        let read = |name: &str| -> Result<String> {
            let path = self.folder.join("home/runtime").join(name);
            let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            Ok(text.trim().to_owned())
        };
        Ok(Server { port: read("server.port")?.parse()?, token: read("api.token")? })
    }

    /// Connects a client to the engine that runs.
    pub(crate) fn connect(&self) -> Result<Link> {
        Link::open(&self.folder.join("home/runtime/control.sock"))
    }

    fn program(&self, path: &Path, arguments: &[&str]) -> Program {
        let clean = Program::new(path, arguments).clean();
        self.environment.iter().fold(clean, |program, (name, value)| program.env(name, value))
    }
}

/// Waits until a launched engine is ready; its later output is discarded.
pub(crate) fn until_ready(engine: &mut Running) -> Result<()> {
    let mut said = String::new();
    while !said.contains("engine ready") {
        said = engine.line().with_context(|| format!("the engine did not start: {said}"))?;
    }
    engine.pass_over();
    Ok(())
}
