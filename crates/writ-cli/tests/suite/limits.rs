//! What stops a turn: budgets, rules, gates, people and signals.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use writ_testkit::model_server::{ParsedRequest, Reply, ReplyFault, ReplyGate};
use writ_types::frame::ServerFrame;

use super::engine::{Engine, Link, runs, unique_word};
use super::turns::{Bench, calls};
use super::{code, text};

fn outcomes(bench: &Bench) -> Vec<String> {
    let rows = bench.events("outcome");
    rows.iter().filter_map(|row| row.pointer("/payload/outcome")?.as_str().map(str::to_owned)).collect()
}

/// Rows: WIN-036
#[test]
fn needs_userns_a_session_that_has_used_its_tokens_pauses_with_6_and_names_three_ways_on() {
    let mut bench = Bench::new("openai", |request: &ParsedRequest| match request.messages.last() {
        Some(message) if message.results.is_empty() => {
            Reply::call("file_read", json!({ "path": "." })).with_usage(90, 20)
        }
        _ => Reply::text("Rested.").with_usage(5, 5),
    });
    bench.home.env.push(("WRIT_BUDGET__MAX_TOKENS_PER_SESSION".to_owned(), "100".to_owned()));
    let paused = bench.chat("work", &[]);
    assert_eq!(code(&paused), 6, "{}", text(&paused));
    for way in ["send another message", "/reset", "[budget].max_tokens_per_session"] {
        assert!(text(&paused).contains(way), "{way}: {}", text(&paused));
    }
    assert_eq!(bench.server.recorded_requests().len(), 1, "the second call is not made");
    let again = bench.chat("work", &[]);
    assert_eq!(code(&again), 6, "a fresh allocation of 100 again: {}", text(&again));
    assert_eq!(bench.server.recorded_requests().len(), 2, "another message goes on with a fresh allocation");
    assert_eq!(bench.events("denied").len(), 2);
}

/// Rows: WIN-037
#[test]
fn a_day_that_has_used_its_tokens_pauses_every_session_with_6() {
    let mut bench = Bench::new("openai", |_: &ParsedRequest| Reply::text("Hello.").with_usage(90, 20));
    bench.home.env.push(("WRIT_BUDGET__MAX_TOKENS_PER_DAY".to_owned(), "100".to_owned()));
    assert_eq!(code(&bench.chat("one", &[])), 0);
    for flags in [&[][..], &["--new"]] {
        let paused = bench.chat("two", flags);
        assert_eq!(code(&paused), 6, "{}", text(&paused));
        assert!(text(&paused).contains("[budget].max_tokens_per_day"), "{}", text(&paused));
    }
    assert_eq!(bench.server.recorded_requests().len(), 1);
}

#[test]
fn what_a_rule_forbids_is_told_to_the_model_and_ends_with_4() {
    let bench = Bench::new("anthropic", calls(vec![("shell_exec", json!({"argv": ["true"]}))], "I may not."));
    std::fs::write(
        bench.home.root().join("policies/no.cedar"),
        r#"@id("no-programs") forbid (principal, action == Action::"exec", resource);"#,
    )
    .expect("written");
    let done = bench.chat("run it", &[]);
    assert_eq!(code(&done), 4, "{}", text(&done));
    let denied = bench.events("denied");
    assert_eq!(denied.len(), 1);
    assert!(denied[0].to_string().contains("no-programs"), "the ledger names the rule: {denied:?}");
    let told = bench.requests().pop().expect("a request");
    assert!(!told.contains("no-programs"), "the model is not told which rule: {told}");
}

/// Rows: SIL-023 SIL-299
#[test]
fn an_input_gate_blocks_with_4_and_its_reason_before_any_model_is_asked() {
    let bench = Bench::new("openai", |request: &ParsedRequest| {
        Reply::text(&format!("You said: {}", request.last_user_text()))
    });
    std::fs::write(
        bench.home.root().join("config.toml"),
        "[[gates]]\nname = \"rewrite\"\non = \"input\"\nprovider = \"predicate\"\ncontains = [\"foo\"]\n\
         action = \"replace\"\nreplacement = \"bar\"\n\
         [[gates]]\nname = \"no-keys\"\non = \"output\"\nprovider = \"predicate\"\ncontains = [\"BEGIN PRIVATE KEY\"]\n\
         action = \"block\"\nreason = \"keys are not shown\"\n",
    )
    .expect("written");
    let blocked = bench.chat("please DROP TABLE users", &[]);
    assert_eq!(code(&blocked), 4, "{}", text(&blocked));
    assert!(text(&blocked).contains("drop a database table"), "the reason is shown: {}", text(&blocked));
    assert!(bench.server.recorded_requests().is_empty(), "no model was asked");
    let passed = bench.chat("please list users", &[]);
    assert_eq!((code(&passed), text(&passed).contains("please list users")), (0, true), "{}", text(&passed));
    let rewritten = bench.chat("say foo", &[]);
    assert!(text(&rewritten).contains("You said: say bar"), "{}", text(&rewritten));
    let withheld = bench.chat("show BEGIN PRIVATE KEY", &[]);
    assert_eq!(code(&withheld), 4, "{}", text(&withheld));
    let said = text(&withheld);
    assert!(said.contains("keys are not shown") && !said.contains("You said: show BEGIN"), "{said}");
    let gated = bench.events("gated");
    let verdicts: Vec<(Value, Value)> =
        gated.iter().map(|row| (row["payload"]["gate"].clone(), row["payload"]["verdict"].clone())).collect();
    assert!(verdicts.contains(&("rewrite".into(), "transform".into())), "{verdicts:?}");
    assert!(verdicts.contains(&("no-keys".into(), "block".into())), "{verdicts:?}");
}

/// Rows: SIL-295
#[test]
fn gates_of_both_ends_run_in_every_turn() {
    let bench = Bench::new("openai", calls(Vec::new(), "Fine."));
    std::fs::write(
        bench.home.root().join("config.toml"),
        "[[gates]]\nname = \"out\"\non = \"output\"\nprovider = \"predicate\"\ncontains = [\"zzz\"]\naction = \"block\"\n",
    )
    .expect("written");
    let judged =
        |point: &str| bench.events("gated").iter().filter(|row| row["payload"]["point"] == point).count();
    for n in 1..=5 {
        let before = ["input", "output"].map(judged);
        assert_eq!(code(&bench.chat("hello", &[])), 0);
        // Each turn has its own: one with two makes up for none.
        for (point, before) in ["input", "output"].into_iter().zip(before) {
            assert!(judged(point) > before, "turn {n}: no gate at {point}");
        }
    }
}

/// The ledger names what was simulated, with its secrets masked; the engine's log has tool and outcome alone.
///
/// Rows: SCL-103 SCL-114
#[test]
fn needs_userns_a_dry_run_decides_logs_and_performs_nothing() {
    let secret = format!("sk-ant-api03-{}", "aB3dE5gH7j".repeat(4));
    let touch = format!("touch made.txt {secret}");
    let bench = Bench::new(
        "anthropic",
        calls(
            vec![
                ("file_write", json!({"path": "a.txt", "content": "x"})),
                ("shell_exec", json!({ "command": touch })),
                ("memory_store", json!({"text": "nothing"})),
            ],
            "Would have.",
        ),
    );
    let engine = Engine::start(&bench.home, &[]).expect("ready");
    let done = bench.chat("pretend", &["--dry-run"]);
    assert_eq!(code(&done), 0, "{}", text(&done));
    assert_eq!(outcomes(&bench), ["simulated"; 3]);
    let simulated = bench.events("outcome");
    let summary = simulated[1]["payload"]["summary"].as_str().expect("a text");
    assert!(summary.contains("touch made.txt") && !summary.contains(&secret), "{summary}");
    let intents = bench.events("intent");
    assert!(intents.iter().all(|row| row["payload"]["action"]["kind"] == "model_call"), "{intents:?}");
    assert_eq!(std::fs::read_dir(bench.project()).expect("reads").count(), 0);
    assert_eq!(bench.count("remembered"), 0);
    assert!(bench.home.json(&["approvals", "list"])["asks"].as_array().is_some_and(Vec::is_empty));
    assert_eq!(engine.stop().code, Some(0));
    let log = std::fs::read_to_string(bench.home.root().join("logs/writ.jsonl")).expect("reads");
    assert!(!log.contains("made.txt") && !log.contains(&secret), "{log}");
    let lines = log.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let of_tools: Vec<(Value, Value)> = lines
        .filter(|line| line["message"] == "tool call completed")
        .map(|line| (line["tool"].clone(), line["outcome"].clone()))
        .collect();
    let expected = ["file_write", "shell_exec", "memory_store"].map(|tool| (json!(tool), json!("simulated")));
    assert_eq!(of_tools, expected);
}

/// `writ chat -m`, stopped with Ctrl-C as soon as a line of its output is what is waited for.
#[expect(clippy::disallowed_types, reason = "the test starts the binary that it tests")]
fn interrupted(bench: &Bench, when: impl Fn(&Value) -> bool, ready: impl FnOnce()) -> (Option<i32>, String) {
    let project = bench.project();
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_writ"))
        .args(["chat", "--json", "-m", "work", "--project", project.to_str().expect("UTF-8")])
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("HOME", bench.home.dir.path())
        .env("WRIT_HOME", bench.home.root())
        .envs(bench.home.env.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary starts");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let mut said = String::new();
    for line in lines.by_ref() {
        let line = line.expect("UTF-8");
        said += &line;
        if serde_json::from_str(&line).is_ok_and(|frame: Value| when(&frame)) {
            break;
        }
    }
    ready();
    kill(Pid::from_raw(i32::try_from(child.id()).expect("a process id")), Signal::SIGINT).expect("it runs");
    for line in lines {
        said += &line.expect("UTF-8");
    }
    (child.wait().expect("waits").code(), said)
}

#[test]
fn ctrl_c_stops_the_model_and_ends_with_130() {
    let gate = ReplyGate::new();
    let held = gate.clone();
    let bench = Bench::new("openai", move |_: &ParsedRequest| {
        Reply::text("too late").with_fault(ReplyFault::SlowFirstByte(held.clone()))
    });
    let (code, said) = interrupted(&bench, |frame| frame["type"] == "delta", || bench.held_back());
    assert_eq!(code, Some(130), "{said}");
    let phases = bench.events("phase");
    assert!(phases.iter().any(|row| row["payload"]["phase"] == "cancelled"), "{phases:?}");
    assert!(!said.contains("too late"));
    gate.open();
}

#[test]
fn needs_userns_ctrl_c_stops_a_program_and_ends_with_130() {
    let word = unique_word();
    let bench = Bench::new("openai", calls(vec![("shell_exec", json!({"argv": ["sleep", word]}))], "Woken."));
    let started = |frame: &Value| frame["type"] == "tool" && frame["state"] == "started";
    let (code, said) = interrupted(&bench, started, || while !runs(word) {});
    assert_eq!(code, Some(130), "{said}");
    assert!(!runs(word), "the program was stopped");
    assert_eq!(outcomes(&bench), ["cancelled"]);
    assert_eq!(bench.home.json(&["status"])["open_intents"], json!([]));
}

/// Rows: SIL-307
#[test]
fn needs_userns_sigterm_lets_a_turn_end_and_stops_what_does_not() {
    let word = unique_word();
    let gate = ReplyGate::new();
    let held = gate.clone();
    let bench = Bench::new("anthropic", move |request: &ParsedRequest| match request.last_user_text() {
        "quick" => Reply::text("In time.").with_fault(ReplyFault::SlowFirstByte(held.clone())),
        _ if request.results().any(|result| result.name == "shell_exec") => Reply::text("Gone on."),
        _ => Reply::call("shell_exec", json!({ "argv": ["sleep", word] })),
    });
    let bench = bench.in_processes();
    let mut engine = Engine::start(&bench.home, &[]).expect("ready");
    let mut link = Link::open(&bench.home).expect("connects");
    link.join(None, None).expect("joined");
    link.say("quick", "one").expect("sent");
    bench.held_back();
    engine.signal(Signal::SIGTERM);
    gate.open();
    assert_eq!(link.answer().expect("the answer still comes").text, "In time.");
    assert_eq!(link.receive(), None);
    assert_eq!(engine.wait().code, Some(0));
    // A program that does not end is ended after the deadline; its turn goes on with the next engine.
    let mut engine = Engine::start(&bench.home, &[]).expect("ready");
    let mut link = Link::open(&bench.home).expect("connects");
    let session = link.join(None, Some(&bench.project())).expect("joined");
    link.say("slow", "two").expect("sent");
    link.until(|numbered| matches!(numbered.frame, ServerFrame::Tool { .. }).then_some(())).expect("a step");
    while !runs(word) {}
    engine.signal(Signal::SIGTERM);
    let ended = engine.wait();
    assert_eq!(ended.code, Some(0), "{}", ended.said);
    assert!(!runs(word), "no orphan");
    assert!(!bench.home.root().join("runtime/control.sock").exists());
    let engine = Engine::start(&bench.home, &[]).expect("ready");
    let mut link = Link::open(&bench.home).expect("connects");
    link.join(Some(session), None).expect("joined");
    assert_eq!(link.answer().expect("taken up again").text, "Gone on.");
    let told = bench.requests().pop().expect("a request");
    assert!(told.contains("It is not known whether this call took effect"), "{told}");
    assert!(!runs(word), "it is not run again");
    assert_eq!(outcomes(&bench), ["unknown"]);
    assert_eq!(engine.stop().code, Some(0));
}
