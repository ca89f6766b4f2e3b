//! What locked agents say to models: sealed in the ledger, opened for the owner, verified without a key.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use writ_testkit::model_server::{ParsedRequest, Reply};

use super::engine::Engine;
use super::keys::soon;
use super::turns::Bench;
use super::verifier::{Verdict, exported};
use super::{Home, code, text};

const PROMPT: &str = "Ann Example asks \u{1F9A6}\n\tfor \"order\" 4711-heron \\ \u{202e}.";
const ANSWER: &str = "The otter-0815 was sent, \"Ann\" \u{e9}\u{301}.\n\u{7f}";
/// Parts of both that stand in no escape.
const TRACES: [&str; 4] = ["Ann Example asks", "4711-heron", "otter-0815", "was sent"];

/// A home with an agent's keys and a model router.
struct Answered {
    bench: Bench,
}

impl Answered {
    /// A router that has answered one call, and stopped.
    fn new() -> Self {
        let answered = Self::with(|_: &ParsedRequest| Reply::text(ANSWER).with_usage(30, 9));
        let engine = Engine::start(answered.home(), &[]).expect("ready");
        let answer = answered.ask(PROMPT);
        assert_eq!(answer.pointer("/choices/0/message/content"), Some(&json!(ANSWER)), "{answer}");
        assert_eq!(engine.stop().code, Some(0));
        answered
    }

    fn with(script: impl FnMut(&ParsedRequest) -> Reply + Send + 'static) -> Self {
        let mut bench = Bench::new("openai", script);
        bench.home.env.push(("WRIT_FLEET__MODEL_ROUTER".to_owned(), "true".to_owned()));
        let answered = Self { bench };
        let home = answered.home();
        let path = |name: &str| home.dir.path().join(name).display().to_string();
        let base =
            json!({ "agent": "refund-agent", "capabilities": { "model_call": {} }, "expires": soon(86_400) });
        let task = json!({ "task_id": "chat-1", "customer_token": "cust_tk_1", "case_token": "case_tk_1",
            "granted_by": "router", "expires": soon(1_700) });
        std::fs::write(path("base.json"), base.to_string()).expect("written");
        std::fs::write(path("task.json"), task.to_string()).expect("written");
        let done = home.run(&["keys", "base", "issue", &path("base.json"), "--out", &path("base")]);
        assert_eq!(code(&done), 0, "{}", text(&done));
        let minted =
            ["keys", "task", "mint", &path("task.json"), "--base", &path("base"), "--out", &path("task")];
        let done = home.run(&minted);
        assert_eq!(code(&done), 0, "{}", text(&done));
        super::engine::stop_engine_of(home);
        answered
    }

    const fn home(&self) -> &Home {
        &self.bench.home
    }

    fn ask(&self, prompt: &str) -> Value {
        let key = |name: &str| {
            let file = self.home().dir.path().join(name);
            std::fs::read_to_string(file).expect("reads").trim().to_owned()
        };
        let body =
            json!({ "model": "default", "messages": [{ "role": "user", "content": prompt }] }).to_string();
        let request = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: r\r\nconnection: close\r\nwrit-base-key: {}\r\nwrit-task-key: {}\r\ncontent-length: {}\r\n\r\n{body}",
            key("base"),
            key("task"),
            body.len()
        );
        let mut stream =
            UnixStream::connect(self.home().root().join("runtime/llm-router.sock")).expect("connects");
        stream.write_all(request.as_bytes()).expect("writes");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("reads");
        let body = answer.split_once("\r\n\r\n").expect("a head").1;
        serde_json::from_str(body).unwrap_or_else(|_| panic!("{answer}"))
    }

    /// The numbers of the entries of the call: the intent and the answer.
    fn entries(&self) -> [String; 2] {
        ["intent", "model_called"].map(|event| match self.bench.events(event).as_slice() {
            [row] => row["seq"].to_string(),
            rows => panic!("one call: {rows:?}"),
        })
    }

    fn show(&self, entry: &str) -> Value {
        self.home().json(&["audit", "show", entry])
    }

    fn is_shown(&self) {
        let [intent, answer] = self.entries();
        let (prompt, reply) = (self.show(&intent), self.show(&answer));
        assert_eq!(prompt.pointer("/prompt/sent/messages/0/parts/0/text"), Some(&json!(PROMPT)), "{prompt}");
        assert_eq!(reply.pointer("/reply/text"), Some(&json!(ANSWER)), "{reply}");
        assert_eq!(reply.pointer("/reply/usage/input"), Some(&json!(30)));
    }
}

/// Every file below a folder.
fn files_below(folder: &Path) -> Vec<PathBuf> {
    let (mut found, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("reads") {
            let path = entry.expect("an entry").path();
            if path.is_dir() { folders.push(path) } else { found.push(path) }
        }
    }
    found
}

/// The files of a home, its backups and logs too, that hold a trace of the call in the clear.
fn files_with_traces(home: &Home) -> Vec<PathBuf> {
    let holds = |path: &PathBuf| {
        // Sockets of an engine that has ended are no files.
        let bytes = std::fs::read(path).unwrap_or_default();
        TRACES.iter().any(|trace| bytes.windows(trace.len()).any(|part| part == trace.as_bytes()))
    };
    files_below(&home.root()).into_iter().filter(holds).collect()
}

/// No file of the home has a word of prompt or answer; the owner reads both byte for byte, also from a backup that was put back;
/// the ledger verifies with its public key alone.
///
/// Rows: SLO-056
#[test]
fn needs_python_prompts_are_sealed_at_rest_and_the_owner_reads_them() {
    let answered = Answered::new();
    let home = answered.home();
    assert_eq!(code(&home.run(&["backup"])), 0);
    assert_eq!(files_with_traces(home), Vec::<PathBuf>::new());
    // The search of traces finds what is there.
    std::fs::write(home.root().join("note.txt"), format!("so: {}", TRACES[1])).expect("written");
    assert_eq!(files_with_traces(home), [home.root().join("note.txt")]);
    answered.is_shown();
    let [intent, answer] = answered.entries();
    let shown = text(&home.run(&["audit", "show", &intent]));
    assert!(shown.contains("4711-heron \\ \\u{202e}."), "{shown}");
    assert!(text(&home.run(&["audit", "show", &answer])).contains("otter-0815 was sent"));
    assert_eq!(code(&home.run(&["audit", "verify", "--every-signature"])), 0);
    let export = home.dir.path().join("export.jsonl");
    std::fs::write(&export, exported(home)).expect("written");
    let public = std::fs::read_to_string(home.root().join("keys/harness.pub")).expect("reads");
    assert_eq!(Verdict::of_export(&export, &[public.trim()]), (0, None));
    let restored = home.run(&["backup", "restore", "1"]);
    assert_eq!(code(&restored), 0, "{}", text(&restored));
    answered.is_shown();
    assert_eq!(code(&home.run(&["audit", "verify"])), 0);
}

/// Without the key, and with another one, the audit says so; the rest of the entry and the proof stay.
#[test]
fn without_the_key_the_audit_says_so_and_the_ledger_verifies() {
    let answered = Answered::new();
    let home = answered.home();
    let [intent, _] = answered.entries();
    let file = home.root().join("keys/secrets.json");
    let mut document: Value = serde_json::from_slice(&std::fs::read(&file).expect("reads")).expect("JSON");
    for (key, said) in [(Some("11".repeat(32)), "sealed with another key"), (None, "has no key for it")] {
        let keys = document["keys"].as_object_mut().expect("keys");
        match key {
            Some(key) => keys.insert("contents".to_owned(), json!(key)),
            None => keys.remove("contents"),
        }
        .expect("there was one");
        std::fs::write(&file, document.to_string()).expect("written");
        let refused = home.run(&["audit", "show", &intent]);
        assert_eq!(code(&refused), 3, "{}", text(&refused));
        assert!(text(&refused).contains(said), "{}", text(&refused));
        assert_eq!(code(&home.run(&["audit", "verify"])), 0);
        assert_eq!(code(&home.run(&["audit", "show", "0"])), 0, "an entry without sealed contents");
    }
    assert_eq!(code(&home.run(&["audit", "show", "100000"])), 2);
}

/// The packages `openai` and `anthropic`, locked in with nothing but the router's name: whole answers, streams, calls of tools,
/// lists and errors. Each call is in the ledger.
///
/// Rows: SLO-066 (in part: models)
#[test]
fn needs_userns_needs_clients_the_clients_of_both_vendors_work_locked_in() {
    const CLIENTS: &str = include_str!("../../../writ-engine-tests/tests/suite/clients.py");
    let mut answered = Answered::with(|request: &ParsedRequest| match request.last_user_text() {
        "call" => Reply::call("add", json!({ "a": 1 })),
        _ => Reply::text("Hello there."),
    });
    answered.bench.home.within = None;
    let home = answered.home();
    let engine = Engine::start(home, &[]).expect("ready");
    // Without a proxy there is nothing that an agent could do, so that there must be one to start.
    let proxy = home.dir.path().join("proxy.sock");
    let _listener = std::os::unix::net::UnixListener::bind(&proxy).expect("binds");
    let environment = Path::new(env!("CARGO_TARGET_TMPDIR")).join("clients");
    let packages =
        std::fs::read_dir(environment.join("lib")).expect("reads").next().expect("a Python").expect("reads");
    let python = packages.file_name().to_string_lossy().into_owned();
    let path = format!("PYTHONPATH=/work/lib/{python}/site-packages");
    let (environment, proxy) = (environment.display().to_string(), proxy.display().to_string());
    let ran = home.run(&[
        "run",
        "--base",
        "base",
        "--task",
        "task",
        "--proxy-socket",
        &proxy,
        "--folder",
        &environment,
        "--env",
        &path,
        "--",
        &python,
        "-B",
        "-c",
        CLIENTS,
    ]);
    assert_eq!(
        (code(&ran), String::from_utf8_lossy(&ran.stdout).as_ref()),
        (0, "served\n"),
        "{}",
        text(&ran)
    );
    assert_eq!(engine.stop().code, Some(0));
    assert_eq!(answered.bench.count("model_called"), answered.bench.requests().len());
    assert!(answered.bench.requests().len() >= 6, "whole, streamed and with tools, of both vendors");
}
