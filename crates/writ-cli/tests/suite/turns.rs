//! Whole turns: the real binary, its engine and sandbox, and scripted models over HTTP in real wire formats.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tokio::runtime::Runtime;
use writ_testkit::model_server::{ModelServer, ParsedRequest, Reply, ServedFormat};

use super::{Home, code, text};

/// A home with a project folder and a scripted model.
pub(super) struct Bench {
    pub(super) home: Home,
    pub(super) server: ModelServer,
    // The server's tasks run here; dropped last.
    pub(super) runtime: Runtime,
}

/// The scripted server's name for a kind of provider.
pub(super) fn wire(kind: &str) -> ServedFormat {
    match kind {
        "anthropic" => ServedFormat::Anthropic,
        "openai" => ServedFormat::OpenAi,
        "openai_responses" => ServedFormat::Responses,
        "openrouter" => ServedFormat::OpenRouter,
        "gemini" => ServedFormat::Gemini,
        "ollama" => ServedFormat::Ollama,
        other => panic!("no format for {other}"),
    }
}

impl Bench {
    /// Serves `script` in the format of a kind of provider.
    pub(super) fn new(kind: &str, script: impl FnMut(&ParsedRequest) -> Reply + Send + 'static) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let server = runtime.block_on(ModelServer::start(script)).expect("serves");
        let home = Home::ready()
            .with("WRIT_MODELS__DEFAULT", "test/scripted")
            .with("WRIT_PROVIDERS__TEST__KIND", kind)
            .with("WRIT_PROVIDERS__TEST__BASE_URL", &server.base_url_for(wire(kind)))
            .with("WRIT_PROVIDERS__TEST__API_KEY", "env:SCRIPTED_KEY")
            .with("SCRIPTED_KEY", "the-key-of-the-script");
        std::fs::create_dir(home.dir.path().join("project")).expect("made");
        Self { home, server, runtime }
    }

    /// See [`Home::in_processes`].
    pub(super) fn in_processes(self) -> Self {
        Self { home: self.home.in_processes(), ..self }
    }

    pub(super) fn project(&self) -> PathBuf {
        self.home.dir.path().join("project")
    }

    pub(super) fn chat(&self, message: &str, flags: &[&str]) -> std::process::Output {
        let project = self.project().display().to_string();
        let args = [&["chat", "-m", message, "--project", &project], flags].concat();
        self.home.run(&args)
    }

    pub(super) fn events(&self, event: &str) -> Vec<Value> {
        let output = self.home.run(&["audit", "search", "--event", event, "-n", "1000", "--json"]);
        String::from_utf8_lossy(&output.stdout)
            .lines()
            .map(|line| serde_json::from_str(line).expect("a row"))
            .collect()
    }

    /// How many entries of a kind there are.
    pub(super) fn count(&self, event: &str) -> usize {
        let output = self.home.run(&["audit", "search", "--event", event, "-n", "10000", "--json"]);
        String::from_utf8_lossy(&output.stdout).lines().count()
    }

    /// Waits until a request is held back at a gate of the script.
    pub(super) fn held_back(&self) {
        while self.server.connections_waiting() == 0 {
            std::thread::yield_now();
        }
    }

    /// The bodies of all requests so far, as text.
    pub(super) fn requests(&self) -> Vec<String> {
        self.server.recorded_requests().into_iter().map(|request| request.body.to_string()).collect()
    }

    /// The only open ask.
    pub(super) fn ask(&self) -> String {
        self.only_ask(|_| true)
    }

    /// The only open ask about an action of this kind.
    pub(super) fn ask_about(&self, kind: &str) -> String {
        self.only_ask(|ask| ask["action"] == kind)
    }

    fn only_ask(&self, is_meant: impl Fn(&Value) -> bool) -> String {
        let asks = self.home.json(&["approvals", "list"]);
        let mut asks = asks["asks"].as_array().expect("a list").clone();
        asks.retain(is_meant);
        assert_eq!(asks.len(), 1, "{asks:?}");
        asks[0]["ask_id"].as_str().expect("an id").to_owned()
    }
}

/// A script that makes calls one after the other and then says `last`.
pub(super) fn calls(
    list: Vec<(&'static str, Value)>,
    last: &'static str,
) -> impl FnMut(&ParsedRequest) -> Reply {
    move |request| match list.get(request.results().count()) {
        Some((tool, arguments)) => Reply::call(tool, arguments.clone()),
        None => Reply::text(last),
    }
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

#[test]
fn needs_userns_a_turn_works_on_an_overlay_and_the_approved_diff_is_applied() {
    let script = calls(
        vec![
            ("shell_exec", json!({"argv": ["cat", "a.txt"]})),
            ("file_write", json!({"path": "b.txt", "content": "new\n"})),
            ("file_patch", json!({"path": "a.txt", "old": "one", "new": "two"})),
        ],
        "Done.",
    );
    let bench = Bench::new("anthropic", script);
    std::fs::write(bench.project().join("a.txt"), "one\n").expect("written");
    let done = bench.chat("please work", &[]);
    assert_eq!(code(&done), 5, "{}", text(&done));
    assert_eq!(read(&bench.project().join("a.txt")), "one\n", "nothing before the approval");
    assert!(!bench.project().join("b.txt").exists());
    let approved = bench.home.run(&["approvals", "approve", &bench.ask(), "--yes"]);
    assert_eq!(code(&approved), 0, "{}", text(&approved));
    assert_eq!(read(&bench.project().join("a.txt")), "two\n");
    assert_eq!(read(&bench.project().join("b.txt")), "new\n");
    let verified = bench.home.run(&["audit", "verify", "--every-signature"]);
    assert_eq!(code(&verified), 0, "{}", text(&verified));
    assert_eq!(bench.events("applied").len(), 1);
    let intents = bench.events("intent");
    let programs: Vec<&str> =
        intents.iter().filter_map(|row| row["payload"]["action"]["profile"].as_str()).collect();
    assert_eq!(programs, ["task"], "only the agent's own call: the harness adds no verification");
    assert_eq!(bench.server.recorded_requests().len(), 4);
}
