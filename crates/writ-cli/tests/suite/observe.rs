//! What one can see of an engine at work: traces, the log, `trace`, `status --watch`.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::Stdio;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use writ_testbed::embedding_server::{EmbeddingServer, TextAnswer};
use writ_testbed::trace_collector::{ReceivedSpan, TraceCollector, render_span_tree};
use writ_testkit::model_server::{Reply, ReplyFault, ReplyGate};
use writ_tools::def::AgentRole;
use writ_tools::registry::{AllowList, Registry};
use writ_types::frame::{ClientFrame, ServerFrame};
use writ_types::id::TurnId;

use super::cases_needs_python::wait_for;
use super::engine::{Engine, Link};
use super::turns::{Bench, calls};
use super::{code, text};

/// Longer than four runs of the job that makes vectors.
const EMBEDDED: Duration = Duration::from_secs(120);

/// Longer than a batch of spans waits.
const PATIENCE: Duration = Duration::from_secs(30);

/// What no trace and no line of the log may hold.
const SECRETS: [&str; 5] = ["owner-words", "model-words", "argument-words", "file-words", "scripted-key"];

fn trace_id(turn: &str) -> String {
    let bytes = turn.parse::<TurnId>().expect("a turn").to_bytes();
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The ids of all turns, oldest first.
fn turns(bench: &Bench) -> Vec<String> {
    let started = bench.events("phase");
    let mut turns: Vec<String> = started
        .iter()
        .filter(|row| row["payload"]["phase"] == "started")
        .filter_map(|row| Some(row["turn"].as_str()?.to_owned()))
        .collect();
    turns.sort();
    turns
}

fn collector(bench: &Bench) -> TraceCollector {
    bench.runtime.block_on(TraceCollector::start()).expect("serves")
}

/// A turn that reads, runs and remembers, and whose model fails once.
fn busy() -> Bench {
    let mut failed = false;
    let mut script = calls(
        vec![
            ("file_read", json!({"path": "a.txt"})),
            ("shell_exec", json!({"argv": ["echo", "argument-words"]})),
            ("file_read", json!({"path": "argument-words.txt"})),
            ("memory_store", json!({"text": "argument-words", "kind": "fact"})),
        ],
        "model-words.",
    );
    let mut bench = Bench::new("openai", move |request| match std::mem::replace(&mut failed, true) {
        false => {
            Reply::text("").with_fault(ReplyFault::Status { status: 503, retry_after: Some("0".into()) })
        }
        true => script(request),
    });
    std::fs::write(bench.project().join("a.txt"), "file-words\n").expect("written");
    bench.home.env.retain(|(name, _)| name != "SCRIPTED_KEY");
    bench.home.env.push(("SCRIPTED_KEY".to_owned(), "scripted-key".to_owned()));
    bench
}

fn spans_named<'a>(spans: &'a [ReceivedSpan], name: &str) -> Vec<&'a ReceivedSpan> {
    spans.iter().filter(|span| span.name == name).collect()
}

/// What `/metrics` says now of one series.
#[expect(clippy::disallowed_types, reason = "the test is a client of the server")]
fn measured(bench: &Bench, series: &str) -> f64 {
    let runtime = bench.home.root().join("runtime");
    let read = |name: &str| std::fs::read_to_string(runtime.join(name)).expect("reads").trim().to_owned();
    let mut stream =
        std::net::TcpStream::connect(format!("127.0.0.1:{}", read("server.port"))).expect("connects");
    let request = format!(
        "GET /metrics HTTP/1.1\r\nHost: localhost:{}\r\nAuthorization: Bearer {}\r\nConnection: close\r\n\r\n",
        read("server.port"),
        read("api.token"),
    );
    stream.write_all(request.as_bytes()).expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("text");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let line = answer.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.and_then(|value| value.trim().parse().ok()).unwrap_or_default()
}

/// Waits until so many turns are counted: one is over a moment after its last word.
fn until_turns(bench: &Bench, count: f64) {
    let turns = || measured(bench, "writ_turns_total");
    wait_for(|| turns() == count, || format!("{} turns", turns()));
}

/// Rows: SIL-252 SCL-199
/// The collector is a setting and not a part of the build: without it everything else is as it is with it.
///
/// Rows: SIL-282
#[test]
fn needs_userns_the_spans_of_a_turn_form_one_tree_and_hold_nothing_that_was_said() {
    let bench = busy();
    let collector = collector(&bench);
    let engine = Engine::start(
        &bench.home,
        &[
            ("WRIT_TELEMETRY__OTLP_ENDPOINT", &collector.endpoint()),
            ("WRIT_TELEMETRY__OTLP_TOKEN", "env:COLLECTOR_KEY"),
            ("COLLECTOR_KEY", "let-me-in"),
        ],
    )
    .expect("ready");
    assert_eq!(measured(&bench, "writ_turns_total"), 0.0);
    for _ in 0..2 {
        let done = bench.chat("owner-words", &[]);
        assert_eq!(code(&done), 0, "{}", text(&done));
    }
    until_turns(&bench, 2.0);
    assert_eq!(measured(&bench, "writ_tool_failures_total{tool=\"file_read\"}"), 1.0);
    assert_eq!(measured(&bench, "writ_tool_failures_total{tool=\"shell_exec\"}"), 0.0, "it succeeded");
    assert_eq!(engine.stop().code, Some(0));
    assert_eq!(collector.complaints(), Vec::<String>::new());
    let spans = collector.spans();
    let turns = turns(&bench);
    assert_eq!(turns.len(), 2);
    let traces: BTreeSet<&str> = spans.iter().map(|span| span.trace.as_str()).collect();
    assert_eq!(
        traces.into_iter().collect::<Vec<_>>(),
        turns.iter().map(|turn| trace_id(turn)).collect::<Vec<_>>()
    );
    let first = render_span_tree(&spans, &trace_id(&turns[0])).expect("one tree");
    assert_eq!(
        first,
        [
            "stream.process_turn",
            "  gate.evaluate",
            "  memory.search",
            "  agent.executor.run",
            "    chat scripted",
            "    chat scripted",
            "  execute_tool file_read",
            "    sandbox.read",
            "  agent.executor.run",
            "    chat scripted",
            "  execute_tool shell_exec",
            "    sandbox.exec",
            "  agent.executor.run",
            "    chat scripted",
            "  execute_tool file_read",
            "    sandbox.read",
            "  agent.executor.run",
            "    chat scripted",
            "  execute_tool memory_store",
            "    memory.store",
            "  agent.executor.run",
            "    chat scripted",
            "  gate.evaluate",
        ]
    );
    let second = render_span_tree(&spans, &trace_id(&turns[1])).expect("one tree");
    assert_eq!(
        second.iter().filter(|line| line.contains("sandbox") || line.contains("memory.store")).count(),
        0
    );
    let root = spans_named(&spans, "stream.process_turn")[0];
    assert_eq!(root.attributes["gen_ai.operation.name"], "invoke_agent");
    assert_eq!(root.attributes["gen_ai.agent.name"], "main");
    assert_eq!((&root.attributes["writ.turn.id"], root.failed), (&turns[0].as_str().into(), false));
    assert!(root.resource["service.instance.id"].as_str().is_some_and(|run| run.len() == 26));
    let chats = spans_named(&spans, "chat scripted");
    assert!(chats.iter().all(|chat| chat.kind == 3 && chat.attributes["gen_ai.provider.name"] == "openai"));
    let failed: Vec<bool> = chats.iter().take(2).map(|chat| chat.failed).collect();
    assert_eq!(failed, [true, false], "the try that failed is an error");
    let answered = &chats[1].attributes;
    assert_eq!(answered["gen_ai.response.finish_reasons"], json!(["tool_calls"]));
    assert!(answered["gen_ai.usage.input_tokens"].as_i64().is_some_and(|tokens| tokens > 0));
    let requests = collector.requests();
    assert!(requests.iter().all(|request| request.authorization.as_deref() == Some("Bearer let-me-in")));
    for secret in SECRETS {
        assert!(requests.iter().all(|request| !request.body.contains(secret)), "{secret}");
    }
    // No collector is named: nothing is sent, and the turn is as good.
    let engine = Engine::start(&bench.home, &[]).expect("ready");
    let done = bench.chat("owner-words", &[]);
    assert!(code(&done) == 0 && text(&done).contains("model-words."), "{}", text(&done));
    // It is measured all the same.
    until_turns(&bench, 1.0);
    assert_eq!(engine.stop().code, Some(0));
    assert_eq!(collector.requests().len(), requests.len());
}

/// Each search, store and reading of a subscription is one span of the turn that it belongs to, and a turn without any has none.
///
/// Rows: SIL-249 SIL-103
#[test]
fn needs_userns_memory_and_subscriptions_are_a_span_each_in_the_turns_that_use_them() {
    let bench = Bench::new("openai", |request| {
        let is_new = request.messages.last().is_some_and(|last| last.results.is_empty());
        match request.last_user_text() {
            "watch" if is_new => Reply::call("context_subscribe", json!({ "path": "a.txt", "turns": 9 }))
                .and_call("memory_store", json!({ "text": "a heron was seen" })),
            "find" if is_new => Reply::call("memory_search", json!({ "query": "heron" })),
            _ => Reply::text("Good."),
        }
    });
    std::fs::write(bench.project().join("a.txt"), "one\n").expect("written");
    let collector = collector(&bench);
    let engine = Engine::start(&bench.home, &[("WRIT_TELEMETRY__OTLP_ENDPOINT", &collector.endpoint())])
        .expect("ready");
    let stored = "writ_memory_operations_total{operation=\"store\"}";
    assert_eq!(measured(&bench, stored), 0.0);
    for (word, exit) in [("watch", 0), ("find", 0), ("please DROP TABLE users", 4)] {
        let done = bench.chat(word, &[]);
        assert_eq!(code(&done), exit, "{}", text(&done));
    }
    assert_eq!(measured(&bench, stored), 1.0);
    let hits = bench.home.json(&["memory", "search", "heron"]);
    let id = hits.pointer("/hits/0/id").and_then(Value::as_str).expect("a row");
    assert!(bench.requests().iter().any(|request| request.contains(&format!("remembered as {id}"))), "{id}");
    let registry = Registry::core_tools();
    let offered = [AgentRole::Proxy, AgentRole::Planner, AgentRole::Executor]
        .map(|role| registry.toolset_of(&[role], &AllowList::All).names().any(|name| name == "memory_store"));
    assert_eq!(offered, [true, false, true]);
    assert_eq!(engine.stop().code, Some(0));
    let spans = collector.spans();
    let counted: Vec<[usize; 3]> = turns(&bench)
        .iter()
        .map(|turn| {
            let tree = render_span_tree(&spans, &trace_id(turn)).expect("one tree");
            let count = |name: &str| tree.iter().filter(|line| line.trim() == name).count();
            ["memory.search", "memory.store", "subscription.materialize"].map(count)
        })
        .collect();
    // A search comes by itself with each message that reaches the agent; what is blocked reaches none.
    assert_eq!(counted, [[1, 1, 0], [2, 0, 1], [0, 0, 1]]);
}

/// With each message the memories that mean what it says come by themselves, found by one search and by no call of a tool; a message
/// that means nothing of them brings none.
///
/// Rows: SIL-026
#[test]
fn memories_that_mean_what_is_asked_come_with_one_search_and_without_a_call() {
    let mut bench = Bench::new("openai", calls(Vec::new(), "Yes."));
    let embedder =
        bench.runtime.block_on(EmbeddingServer::start(|_| TextAnswer::Vector(256))).expect("serves");
    let address = embedder.base_url();
    for (name, value) in [
        ("WRIT_MEMORY__EMBEDDER", "model"),
        ("WRIT_MODELS__ROLES__EMBEDDING", "embed/words"),
        ("WRIT_PROVIDERS__EMBED__KIND", "openai"),
        ("WRIT_PROVIDERS__EMBED__BASE_URL", address.as_str()),
    ] {
        bench.home.env.push((name.to_owned(), value.to_owned()));
    }
    let collector = collector(&bench);
    let engine = Engine::start(&bench.home, &[("WRIT_TELEMETRY__OTLP_ENDPOINT", &collector.endpoint())])
        .expect("ready");
    for text in ["The dog is called Rex.", "Tom has a cat."] {
        assert_eq!(code(&bench.home.run(&["memory", "add", text])), 0);
    }
    // Vectors are made by a job, every 15 seconds.
    let began = Instant::now();
    while bench.home.json(&["memory", "stats"])["vectors"][0]["count"] != 2 {
        assert!(began.elapsed() < EMBEDDED, "no vectors");
        std::thread::yield_now();
    }
    // No word of the second question stands in a memory: only its meaning finds one.
    let asked = [
        ("what does my dog eat?", Some("called Rex")),
        ("kitten", Some("Tom has a cat")),
        ("porridge recipes please", None),
    ];
    for (message, comes) in asked {
        assert_eq!(code(&bench.chat(message, &["--new"])), 0);
        let request = bench.requests().pop().expect("a request");
        for memory in ["called Rex", "Tom has a cat"] {
            assert_eq!(request.contains(memory), comes == Some(memory), "{message}: {request}");
        }
    }
    assert_eq!(engine.stop().code, Some(0));
    let spans = collector.spans();
    for turn in turns(&bench) {
        let tree = render_span_tree(&spans, &trace_id(&turn)).expect("one tree");
        let count = |name: &str| tree.iter().filter(|line| line.trim().starts_with(name)).count();
        assert_eq!((count("memory.search"), count("execute_tool")), (1, 0), "{tree:?}");
    }
    assert_eq!(turns(&bench).len(), asked.len());
}

/// Each agent that a message is passed to has a span, in a turn: the planner works in one of its own. A message that the proxy
/// answers has neither a planner nor an executor.
///
/// Rows: SIL-248
#[test]
fn the_spans_of_a_planned_request_name_each_agent_and_those_of_an_answer_the_proxy_alone() {
    let bench = Bench::new("openai", |request| match (request.model.as_str(), request.last_user_text()) {
        ("small", text) => {
            let (route, response) = match text {
                "hello" => ("direct", json!("Hello.")),
                "plan it" => ("planner", Value::Null),
                _ => ("act", Value::Null),
            };
            let decision =
                json!({ "route": route, "reason": "so", "response": response, "context_profile": null });
            Reply::text(&decision.to_string())
        }
        ("planner", _) => Reply::text(
            "---\nid: task-note\ntype: task\ntitle: Note it\nsteps:\n  - id: note\n    title: Note it\n    do: Remember the port.\n\
             verify:\n  - name: there\n    run: test -e notes\n    expect: { exit_code: 0 }\n---\n\nRemember the port.\n",
        ),
        (_, _) => Reply::text("Good."),
    });
    let config = bench.home.root().join("config.toml");
    let own = std::fs::read_to_string(&config).expect("reads");
    let roles = "[models.roles]\nproxy = \"test/small\"\nplanner = \"test/planner\"\n";
    std::fs::write(&config, format!("{own}\n{roles}")).expect("written");
    let collector = collector(&bench);
    let engine = Engine::start(&bench.home, &[("WRIT_TELEMETRY__OTLP_ENDPOINT", &collector.endpoint())])
        .expect("ready");
    for word in ["hello", "do it"] {
        let done = bench.chat(word, &["--new"]);
        assert_eq!(code(&done), 0, "{}", text(&done));
    }
    bench.chat("plan it", &["--new"]);
    let began = Instant::now();
    while bench.count("asked") == 0 {
        assert!(began.elapsed() < PATIENCE, "there is no plan");
        std::thread::yield_now();
    }
    assert_eq!(engine.stop().code, Some(0));
    let spans = collector.spans();
    let trees: Vec<Vec<String>> = turns(&bench)
        .iter()
        .map(|turn| render_span_tree(&spans, &trace_id(turn)).expect("one tree"))
        .collect();
    let counts = |tree: &Vec<String>| {
        let names = [
            "stream.process_turn",
            "gate.evaluate",
            "agent.proxy.run",
            "agent.planner.run",
            "agent.executor.run",
        ];
        names.map(|name| tree.iter().filter(|line| line.trim() == name).count())
    };
    assert_eq!(counts(&trees[0]), [1, 2, 1, 0, 0], "{:?}", trees[0]);
    assert_eq!(counts(&trees[1]), [1, 2, 1, 0, 1], "{:?}", trees[1]);
    assert_eq!(counts(&trees[2])[..4], [1, 2, 1, 0], "{:?}", trees[2]);
    let planned = counts(&trees[3]);
    let asked = trees[3].iter().filter(|line| line.trim() == "chat planner").count();
    assert!(asked > 0, "{:?}", trees[3]);
    assert_eq!((planned[0], planned[2], planned[3]), (1, 0, asked), "{:?}", trees[3]);
}

/// Without a collector, and with one that is not there, turns go on and nobody is told of it.
#[test]
fn a_collector_that_is_gone_costs_no_turn() {
    let bench = Bench::new("openai", calls(Vec::new(), "Yes."));
    let gone = collector(&bench);
    let endpoint = gone.endpoint();
    drop(gone);
    let engine = Engine::start(&bench.home, &[("WRIT_TELEMETRY__OTLP_ENDPOINT", &endpoint)]).expect("ready");
    let mut link = Link::open(&bench.home).expect("connects");
    link.join(None, None).expect("joined");
    link.say("hello", "a").expect("sent");
    let mut errors = 0;
    let answer = link.until(|numbered| {
        errors += usize::from(matches!(numbered.frame, ServerFrame::Error { .. }));
        let ServerFrame::Message { text, last: true, .. } = numbered.frame else { return None };
        Some(text)
    });
    assert_eq!((answer.as_deref(), errors), (Some("Yes."), 0));
    assert_eq!(engine.stop().code, Some(0));
    // A credential that is not there is told at the start, before anything runs.
    let refused = Engine::start(
        &bench.home,
        &[("WRIT_TELEMETRY__OTLP_ENDPOINT", &endpoint), ("WRIT_TELEMETRY__OTLP_TOKEN", "env:NOT_SET")],
    );
    let Err(ended) = refused else { panic!("it starts") };
    assert_eq!(ended.code, Some(3), "{}", ended.said);
}

/// An engine that is killed in the middle of a turn, and the one that takes it up, tell one tree.
#[test]
fn a_turn_that_a_crash_has_cut_in_two_is_one_tree() {
    let gate = ReplyGate::new();
    let held = gate.clone();
    let bench = Bench::new("openai", move |_| {
        Reply::text("Yes.").with_fault(ReplyFault::SlowFirstByte(held.clone()))
    });
    let collector = collector(&bench);
    let endpoint = collector.endpoint();
    let more = [("WRIT_TELEMETRY__OTLP_ENDPOINT", endpoint.as_str())];
    let bench = bench.in_processes();
    let mut engine = Engine::start(&bench.home, &more).expect("ready");
    let mut link = Link::open(&bench.home).expect("connects");
    let session = link.join(None, None);
    link.say("hello", "a").expect("sent");
    bench.held_back();
    let until = Instant::now() + PATIENCE;
    while collector.spans().is_empty() && Instant::now() < until {
        std::thread::yield_now();
    }
    engine.signal(Signal::SIGKILL);
    assert!(engine.wait().signal.is_some());
    gate.open();
    let engine = Engine::start(&bench.home, &more).expect("ready");
    let mut link = Link::open(&bench.home).expect("connects");
    link.join(session, None).expect("joined");
    assert_eq!(link.answer().expect("answered").text, "Yes.");
    assert_eq!(engine.stop().code, Some(0));
    let turns = turns(&bench);
    let [turn] = turns.as_slice() else { panic!("{turns:?}") };
    let spans = collector.spans();
    let lines = render_span_tree(&spans, &trace_id(turn)).expect("one tree");
    assert_eq!(lines[0], "stream.process_turn");
    let runs: BTreeSet<String> =
        spans.iter().map(|span| span.resource["service.instance.id"].to_string()).collect();
    assert_eq!(runs.len(), 2, "of both runs: {lines:?}");
}

/// Rows: SIL-251 SCL-198 SCL-104
#[test]
fn needs_userns_every_line_of_a_turn_has_its_ids_and_nothing_that_was_said() {
    let bench = busy();
    let engine = Engine::start(&bench.home, &[]).expect("ready");
    for flags in [&[][..], &["--new"]] {
        let done = bench.chat("owner-words", flags);
        assert_eq!(code(&done), 0, "{}", text(&done));
    }
    assert_eq!(engine.stop().code, Some(0));
    let log = std::fs::read_to_string(bench.home.root().join("logs/writ.jsonl")).expect("reads");
    for secret in SECRETS {
        assert!(!log.contains(secret), "{secret} is in\n{log}");
    }
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let runs: BTreeSet<String> = lines.iter().map(|line| line["run_id"].to_string()).collect();
    assert_eq!(runs.len(), 1, "one run of the engine");
    let mut of_turns = Vec::new();
    for turn in turns(&bench) {
        let own: Vec<&Value> = lines.iter().filter(|line| line["turn_id"] == turn.as_str()).collect();
        let scopes: BTreeSet<String> = own.iter().map(|line| line["scope_id"].to_string()).collect();
        assert_eq!(scopes.len(), 1, "{own:?}");
        let said: Vec<&str> = own.iter().filter_map(|line| line["message"].as_str()).collect();
        assert_eq!((said.first(), said.last()), (Some(&"turn started"), Some(&"turn completed")), "{said:?}");
        let steps: Vec<(&Value, &Value)> = own
            .iter()
            .filter(|line| line["message"].as_str().is_some_and(|text| text.starts_with("tool call")))
            .map(|line| (&line["step"], &line["tool"]))
            .collect();
        let tools = ["file_read", "shell_exec", "file_read", "memory_store"].map(Value::from);
        let numbers = [1, 2, 3, 4].map(Value::from);
        assert_eq!(steps, numbers.iter().zip(&tools).collect::<Vec<_>>());
        of_turns.push((scopes, said));
    }
    let [(one, said), (other, _)] = of_turns.as_slice() else { panic!("{of_turns:?}") };
    assert_ne!(one, other, "two sessions");
    for message in ["model call failed", "model call completed", "tool call completed", "tool call failed"] {
        assert!(said.contains(&message), "{message}: {said:?}");
    }
    let tools = lines
        .iter()
        .filter(|line| line["message"].as_str().is_some_and(|text| text.starts_with("tool call")));
    assert!(
        tools.clone().count() >= 8 && tools.clone().all(|line| line["duration_ms"].is_u64()),
        "also of failures"
    );
    // Whatever speaks of a turn says which.
    let stray = lines.iter().find(|line| {
        let message = line["message"].as_str().unwrap_or_default();
        line["turn_id"].is_null()
            && ["turn", "model call", "tool call"].iter().any(|word| message.starts_with(word))
    });
    assert_eq!(stray, None);
}

/// The log of an engine is a file of its home, and where the settings want it alone, standard error has no line of it.
///
/// Rows: SF-450
/// Rows: SF-312 (in part: the file; by default standard error has the lines, too)
#[test]
fn standard_error_has_no_line_where_the_file_alone_is_wanted() {
    for (setting, has_lines) in [("true", true), ("false", false)] {
        let mut bench = Bench::new("openai", |_| {
            Reply::text("").with_fault(ReplyFault::Status { status: 400, retry_after: None })
        });
        bench.home.env.push(("WRIT_LOG__STDERR".to_owned(), setting.to_owned()));
        let engine = Engine::start(&bench.home, &[]).expect("ready");
        let _failed = bench.chat("hello", &[]);
        let file = bench.home.root().join("logs/writ.jsonl");
        let warnings = |text: &str| text.matches("WARN").count();
        let ended = engine.stop();
        assert_eq!(ended.code, Some(0));
        let logged = std::fs::read_to_string(file).expect("reads");
        assert!(warnings(&logged) > 0, "{logged}");
        assert_eq!(warnings(&ended.said) > 0, has_lines, "{}", ended.said);
    }
}

/// Rows: SF-446
#[test]
fn the_log_says_how_a_turn_and_its_calls_have_ended() {
    let (gate, mut requests) = (ReplyGate::new(), 0);
    let held = gate.clone();
    let bench = Bench::new("openai", move |_| {
        requests += 1;
        match requests {
            1 => {
                Reply::text("").with_fault(ReplyFault::Status { status: 503, retry_after: Some("0".into()) })
            }
            2 => Reply::text("Yes."),
            3 => Reply::text("").with_fault(ReplyFault::Status { status: 400, retry_after: None }),
            _ => Reply::text("Late.").with_fault(ReplyFault::SlowFirstByte(held.clone())),
        }
    });
    let engine = Engine::start(&bench.home, &[]).expect("ready");
    let mut link = Link::open(&bench.home).expect("connects");
    link.join(None, None).expect("joined");
    for client_id in ["a", "b"] {
        link.ask("hello", client_id).expect("answered");
    }
    link.say("hello", "c").expect("sent");
    bench.held_back();
    let status = Link::open(&bench.home).expect("connects").call("status", json!({})).expect("answered");
    let turn = status["running"][0]["turn"].as_str().expect("a turn").parse().expect("an id");
    link.send(&ClientFrame::Cancel { turn }).expect("sent");
    link.answer().expect("it ends");
    gate.open();
    assert_eq!(engine.stop().code, Some(0));
    let log = std::fs::read_to_string(bench.home.root().join("logs/writ.jsonl")).expect("reads");
    let said: Vec<String> = log
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok()?["message"].as_str().map(str::to_owned))
        .filter(|message| message.starts_with("turn ") || message == "model call retrying")
        .collect();
    assert_eq!(
        said,
        [
            "turn started",
            "model call retrying",
            "turn completed",
            "turn started",
            "turn failed",
            "turn started",
            "turn canceled"
        ]
    );
}

#[test]
fn needs_userns_a_trace_shows_a_turn_in_order_with_durations() {
    let bench = busy();
    let done = bench.chat("owner-words", &["--new"]);
    assert_eq!(code(&done), 0, "{}", text(&done));
    let trace = bench.home.json(&["trace"]);
    let turn = turns(&bench).pop().expect("a turn");
    assert_eq!((&trace["turn"], &trace["state"]), (&turn.as_str().into(), &"finished".into()));
    assert_eq!(trace["trace_id"], trace_id(&turn).as_str());
    let steps = trace["steps"].as_array().expect("steps");
    let offsets: Vec<u64> = steps.iter().filter_map(|step| step["offset_ms"].as_u64()).collect();
    assert!(offsets.is_sorted() && offsets.len() == steps.len(), "{trace:#}");
    let kinds: Vec<&str> = steps
        .iter()
        .filter(|step| step["kind"] == "model" || step["kind"] == "action")
        .filter_map(|step| step["kind"].as_str())
        .collect();
    let (m, a) = ("model", "action");
    assert_eq!(kinds, [m, m, a, m, a, m, a, m, a, m], "{trace:#}");
    let timed = steps.iter().filter(|step| step["kind"] == m || step["kind"] == a);
    assert!(
        timed
            .clone()
            .all(|step| step["duration_ms"].is_u64() && step["entries"].as_array().map(Vec::len) == Some(2))
    );
    assert!(steps.iter().all(|step| step["intact"] == true), "{trace:#}");
    let totals = &trace["totals"];
    assert_eq!((&totals["model_calls"], &totals["actions"]), (&6.into(), &4.into()), "{totals}");
    let sum: u64 =
        timed.filter(|step| step["kind"] == m).filter_map(|step| step["duration_ms"].as_u64()).sum();
    assert_eq!(totals["model_ms"], sum);
    let shown = text(&bench.home.run(&["trace", &turn]));
    for part in [
        "exec echo argument-words",
        "read_file a.txt",
        "failed",
        "[done]",
        "6 model calls in",
        "4 actions in",
    ] {
        assert!(shown.contains(part), "{part} is not in\n{shown}");
    }
    let session = trace["session"].as_str().expect("an id").to_owned();
    assert_eq!(bench.home.json(&["trace", "--session", &session])["turn"], turn.as_str());
    for args in [&["trace", "01ARZ3NDEKTSV4RRFFQ69G5FAV"][..], &["trace", "nonsense"]] {
        assert_eq!(code(&bench.home.run(args)), 2, "{args:?}");
    }
}

/// `status --watch` of a home.
#[expect(clippy::disallowed_types, reason = "the test starts the binary that it tests")]
fn watch(home: &super::Home) -> std::process::Child {
    std::process::Command::new(env!("CARGO_BIN_EXE_writ"))
        .args(["status", "--watch", "--json"])
        .env_clear()
        .env("HOME", home.dir.path())
        .env("WRIT_HOME", home.root())
        .envs(home.env.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary starts")
}

/// Sandboxes that were made beforehand are counted by the engine that has them; without one there are none.
#[test]
fn needs_userns_sandboxes_that_are_ready_are_counted() {
    let home = super::Home::ready();
    assert_eq!(home.json(&["sandbox", "status"])["ready"], Value::Null);
    let engine = Engine::start(&home, &[]).expect("ready");
    assert_eq!(home.json(&["sandbox", "status"])["ready"], 0);
    assert_eq!(code(&home.run(&["sandbox", "exec", "--", "true"])), 0);
    let mut child = watch(&home);
    let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let mut shown = lines.map(|line| serde_json::from_str::<Value>(&line.expect("text")).expect("JSON"));
    shown.find(|status| status["sandboxes_ready"] == 2).expect("they are made");
    assert_eq!(home.json(&["sandbox", "status"])["ready"], 2);
    let report = home.json(&["doctor"]);
    let checks = report["checks"].as_array().expect("checks");
    let said = checks.iter().find(|check| check["name"] == "engine").expect("it is looked at");
    assert!(said.to_string().contains("ready: 2"), "{said}");
    child.kill().expect("it ran until now");
    child.wait().expect("ended");
    assert_eq!(engine.stop().code, Some(0));
}

#[test]
fn a_watched_status_is_shown_again_when_it_has_changed() {
    let bench = Bench::new("openai", calls(Vec::new(), "Yes."));
    let mut child = watch(&bench.home);
    let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let mut shown = lines.map(|line| serde_json::from_str::<Value>(&line.expect("text")).expect("JSON"));
    assert_eq!(shown.next().expect("a status")["engine"], "not running");
    let engine = Engine::start(&bench.home, &[]).expect("ready");
    assert_eq!(shown.next().expect("a status")["engine"], "running");
    let mut link = Link::open(&bench.home).expect("connects");
    link.join(None, None).expect("joined");
    assert_eq!(link.ask("hello", "a").expect("answered").text, "Yes.");
    let finished = shown.find(|status| status["turns_finished"] == 1).expect("it is shown");
    assert_eq!(finished["running"], json!([]));
    assert_eq!(engine.stop().code, Some(0));
    assert!(shown.any(|status| status["engine"] == "not running"), "it comes and goes");
    child.kill().expect("it ran until now");
    child.wait().expect("ended");
}

/// The unit as this user would get it: root's is one of the system, which names a user.
fn printed_unit(home: &super::Home) -> String {
    let user: &[&str] = if nix::unistd::geteuid().is_root() { &["--run-as", "daemon"] } else { &[] };
    let printed = home.run(&[&["service", "install", "--print"], user].concat());
    assert_eq!(code(&printed), 0, "{}", text(&printed));
    String::from_utf8(printed.stdout).expect("UTF-8")
}

#[test]
#[expect(clippy::disallowed_types, reason = "the test runs systemd's own check")]
fn needs_systemd_the_unit_is_one_that_systemd_takes() {
    let home = super::Home::ready();
    let file = home.dir.path().join("writ.service");
    std::fs::write(&file, printed_unit(&home)).expect("written");
    let verified = std::process::Command::new("systemd-analyze")
        .args(["verify", "--man=no"])
        .arg(&file)
        .env("SYSTEMD_LOG_COLOR", "0")
        .output()
        .expect("runs");
    assert_eq!((code(&verified), text(&verified)), (0, String::new()));
}

#[test]
fn a_service_is_printed_without_writing_and_root_must_say_for_whom() {
    let home = super::Home::ready();
    let before = home.files();
    assert!(printed_unit(&home).contains(&format!("start --home \"{}\"", home.root().display())));
    let list = home.run(&["service", "install", "--print", "--manager", "launchd"]);
    let profile = home.run(&["service", "apparmor"]);
    assert!(text(&profile).contains("  userns,\n"), "{}", text(&profile));
    if nix::unistd::geteuid().is_root() {
        assert_eq!(code(&list), 2, "{}", text(&list));
        assert!(text(&list).contains("--run-as USER"), "{}", text(&list));
    } else {
        assert_eq!(code(&home.run(&["service", "install", "--run-as", "ann"])), 2);
    }
    let status = home.json(&["service", "status"]);
    assert_eq!(status["engine"], "not running");
    assert!(home.files() == before, "nothing was written");
}

#[test]
fn completions_and_pages_come_without_a_home() {
    let home = super::Home::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let printed = home.run(&["completions", shell]);
        assert_eq!(code(&printed), 0, "{}", text(&printed));
        assert!(text(&printed).contains("approvals"), "{shell}");
    }
    assert!(text(&home.run(&["man"])).contains(".TH writ 1"));
    let folder = home.dir.path().join("man");
    let folder = folder.to_str().expect("UTF-8");
    assert_eq!(code(&home.run(&["man", folder])), 2, "the folder is not there");
    std::fs::create_dir(folder).expect("made");
    assert_eq!(code(&home.run(&["man", folder])), 0);
    assert!(std::fs::read_dir(folder).expect("reads").count() > 40);
    assert!(!home.root().exists(), "no home was made");
}
