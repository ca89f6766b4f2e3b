//! Rows of the assistant's requirements that the whole product must show: its tools, its memory, its turns.

use std::path::Path;

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use writ_testkit::model_server::{ParsedRequest, Reply, ReplyFault, ReplyGate};
use writ_tools::def::AgentRole;
use writ_tools::error::ToolError;
use writ_tools::registry::{AllowList, Registry};
use writ_types::chat::ToolCall;
use writ_types::frame::ServerFrame;

use super::crash::copy;
use super::engine::{Engine, Link};
use super::turns::{Bench, calls};
use super::{Home, code, text};

#[path = "rows_sil/keys.rs"]
pub(crate) mod keys;

/// Every memory is asked for: the cheapest action to ask about.
const ASK_REMEMBER: &str = r#"@id("ask-remember") @ask("Every memory is asked for.")
forbid (principal, action == Action::"remember", resource);"#;

fn write(path: impl AsRef<Path>, text: &str) {
    std::fs::write(path, text).expect("written");
}

fn read(path: impl AsRef<Path>) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// What a model was told of its tool calls, oldest first.
fn told(bench: &Bench) -> Vec<String> {
    let last = bench.server.recorded_requests().pop().expect("a request").body;
    let messages = last["messages"].as_array().expect("a list").clone();
    let tools = messages.iter().filter(|message| message["role"] == "tool");
    tools.filter_map(|message| message["content"].as_str().map(str::to_owned)).collect()
}

/// Whether a role is offered a tool; a call of what it is not offered is refused before its arguments are read.
fn offers(role: AgentRole, tool: &str) -> bool {
    let registry = Registry::core_tools();
    let tools = registry.toolset_of(&[role], &AllowList::All);
    let call = ToolCall { id: "1".to_owned(), name: tool.to_owned(), arguments: json!({ "nonsense": 1 }) };
    let refused = matches!(tools.needed_file(&call), Err(ToolError::NotOffered { .. }));
    assert_eq!(refused, !tools.names().any(|name| name == tool), "{role:?} {tool}");
    !refused
}

/// Who is offered a tool: proxy, planner, executor, verification.
fn roles(tool: &str) -> [bool; 4] {
    [AgentRole::Proxy, AgentRole::Planner, AgentRole::Executor, AgentRole::Verification]
        .map(|role| offers(role, tool))
}

/// Rows: SIL-103 (but its metric)
#[test]
fn memory_store_makes_a_row_and_says_its_id() {
    assert_eq!(roles("memory_store"), [true, false, true, false]);
    let bench =
        Bench::new("openai", calls(vec![("memory_store", json!({"text": "Tea is green."}))], "Kept."));
    assert_eq!(code(&bench.chat("remember it", &[])), 0);
    let found = bench.home.json(&["memory", "search", "tea"]);
    let id = found.pointer("/hits/0/id").and_then(Value::as_str).expect("a row");
    assert_eq!(found["hits"].as_array().map(Vec::len), Some(1), "{found}");
    assert_eq!(told(&bench), [format!("remembered as {id}")]);
}

/// Rows: SIL-104
#[test]
fn memory_search_ranks_what_it_finds_and_finding_nothing_is_no_error() {
    assert_eq!(roles("memory_search"), [true, true, true, false]);
    let queries = [json!({"query": "apple"}), json!({"query": "zeppelin"})];
    let list = queries.into_iter().map(|query| ("memory_search", query)).collect();
    let bench = Bench::new("openai", calls(list, "Found."));
    for text in [
        "A long note on pies, plums and pears that also has one apple somewhere in it.",
        "Apple apple.",
        "Cherries are red.",
    ] {
        assert_eq!(code(&bench.home.run(&["memory", "add", text])), 0);
    }
    assert_eq!(code(&bench.chat("look it up", &[])), 0);
    let told = told(&bench);
    let lines: Vec<&str> = told[0].lines().collect();
    assert_eq!(lines.len(), 2, "{told:?}");
    assert!(
        lines[0].contains("Apple apple.") && lines[1].contains("pies, plums"),
        "the best first: {lines:?}"
    );
    assert_eq!(told[1], "(nothing is remembered about this)");
    let outcomes: Vec<Value> =
        bench.events("outcome").iter().map(|row| row["payload"]["outcome"].clone()).collect();
    assert_eq!(outcomes, ["done", "done"]);
}

/// Rows: WIN-348 (in part: what fits comes with a message, and nothing with one that fits nothing)
#[test]
fn a_memory_comes_by_itself_with_a_message_that_it_fits() {
    let bench = Bench::new("openai", calls(Vec::new(), "Yes."));
    assert_eq!(code(&bench.home.run(&["memory", "add", "The dog is called Rex."])), 0);
    for (message, comes) in [("what does my dog eat?", true), ("porridge recipes please", false)] {
        assert_eq!(code(&bench.chat(message, &["--new"])), 0);
        let request = bench.requests().pop().expect("a request");
        assert_eq!(request.contains("called Rex"), comes, "{message}: {request}");
    }
    let kinds: Vec<Value> =
        bench.events("intent").iter().map(|row| row["payload"]["action"]["kind"].clone()).collect();
    assert_eq!(kinds, ["model_call", "model_call"], "no tool was called");
}

/// The result is a text with the exit code and both streams. One that fails, hangs or floods is a result as well, and the turn
/// goes on.
///
/// Rows: SIL-107 WIN-089 SCL-113 SCL-117
#[test]
fn needs_userns_shell_exec_gives_output_and_code_from_within_the_limits() {
    assert_eq!(roles("shell_exec"), [false, false, true, false]);
    let script =
        "echo out; echo err >&2; ulimit -n; grep -E 'NoNewPrivs|Seccomp:|CapEff' /proc/self/status; exit 3";
    let word = super::engine::unique_word();
    let list = vec![
        ("shell_exec", json!({"argv": ["sh", "-c", script]})),
        ("shell_exec", json!({"argv": ["sleep", word], "timeout_secs": 1})),
        ("shell_exec", json!({"argv": ["sh", "-c", "yes flood | head -c 3000000"]})),
    ];
    let mut bench = Bench::new("openai", calls(list, "Ran."));
    bench.home.env.push(("WRIT_SANDBOX__OPEN_FILES_MAX".to_owned(), "99".to_owned()));
    let done = bench.chat("run it", &[]);
    assert!(code(&done) == 0 && text(&done).contains("Ran."), "{}", text(&done));
    let results = told(&bench);
    let [told, hung, flooded] = results.as_slice() else { panic!("{results:?}") };
    assert!(hung.contains("longer than 1 seconds") && !super::engine::runs(word), "{hung}");
    assert!(flooded.len() < 200_000 && flooded.contains("left out"), "{} {}", flooded.len(), &flooded[..200]);
    assert!(told.contains("exit code 3") && told.contains("standard error:\nerr"), "{told}");
    for line in ["out", "99", "NoNewPrivs:\t1", "Seccomp:\t2", "CapEff:\t0000000000000000"] {
        assert!(told.lines().any(|found| found == line), "{line}: {told}");
    }
}

/// Rows: SF-488 (in part: the work folder; changes of a project wait for their owner)
/// Rows: SIL-108 SIL-109
#[test]
fn needs_userns_files_are_read_and_written_in_the_work_folder_and_nowhere_else() {
    assert_eq!(roles("file_read"), [true, true, true, false]);
    assert_eq!(roles("file_write"), [false, false, true, false]);
    let read_of = |path: &str| ("file_read", json!({ "path": path }));
    let write_to = |path: &str| ("file_write", json!({"path": path, "content": "written\n"}));
    let list = vec![
        read_of("a.txt"),
        write_to("new/b.txt"),
        read_of("new/b.txt"),
        // From here on everything leads out.
        read_of("../outside/secret.txt"),
        read_of("/etc/hostname"),
        read_of("link.txt"),
        read_of("door/secret.txt"),
        write_to("../outside/c.txt"),
        write_to("/tmp/c.txt"),
        write_to("link.txt"),
        write_to("door/c.txt"),
    ];
    let bench = Bench::new("openai", calls(list, "Tried."));
    let (project, outside) = (bench.project(), bench.home.dir.path().join("outside"));
    std::fs::create_dir(&outside).expect("made");
    write(outside.join("secret.txt"), "the secret\n");
    write(project.join("a.txt"), "hello\n");
    std::os::unix::fs::symlink(outside.join("secret.txt"), project.join("link.txt")).expect("linked");
    std::os::unix::fs::symlink(&outside, project.join("door")).expect("linked");
    let done = bench.chat("try", &[]);
    assert!([4, 5].contains(&code(&done)), "{}", text(&done));
    let told = told(&bench);
    assert!(told[0].contains("hello") && told[2].contains("written"), "{told:?}");
    assert_eq!(told.len(), 11);
    assert!(!told[3..].concat().contains("the secret"), "{told:?}");
    let states: Vec<Value> =
        bench.events("outcome").iter().map(|row| row["payload"]["outcome"].clone()).collect();
    let good = states.iter().filter(|state| *state == "done").count();
    assert_eq!(good, 3, "{told:?}");
    let approved = bench.home.run(&["approvals", "approve", &bench.ask(), "--yes"]);
    assert_eq!(code(&approved), 0, "{}", text(&approved));
    assert_eq!(read(project.join("new/b.txt")), "written\n");
    assert_eq!(read(outside.join("secret.txt")), "the secret\n");
    assert_eq!(std::fs::read_dir(&outside).expect("reads").count(), 1);
    assert!(!Path::new("/tmp/c.txt").exists());
}

/// Rows: SIL-110
#[test]
fn tell_user_is_heard_before_the_end_and_passes_the_output_gates() {
    assert_eq!(roles("tell_user"), [false, false, true, false]);
    let gate = ReplyGate::new();
    let held = gate.clone();
    let bench = Bench::new("openai", move |request: &ParsedRequest| match request.results().count() {
        0 => Reply::call("tell_user", json!({"text": "Half way with qqq."})),
        1 => Reply::call("tell_user", json!({"text": "The zzz is lost."})),
        _ => Reply::text("At the end.").with_fault(ReplyFault::SlowFirstByte(held.clone())),
    });
    write(
        bench.home.root().join("config.toml"),
        "[[gates]]\nname = \"rewrite\"\non = \"output\"\nprovider = \"predicate\"\ncontains = [\"qqq\"]\n\
         action = \"replace\"\nreplacement = \"it\"\n\
         [[gates]]\nname = \"stop\"\non = \"output\"\nprovider = \"predicate\"\ncontains = [\"zzz\"]\n\
         action = \"block\"\nreason = \"not this word\"\n",
    );
    let engine = Engine::start(&bench.home, &[]).expect("ready");
    let mut link = Link::open(&bench.home).expect("connects");
    link.join(None, None).expect("joined");
    link.say("work", "one").expect("sent");
    let heard = link.until(|numbered| {
        let ServerFrame::Message { text, last, .. } = numbered.frame else { return None };
        Some((text, last))
    });
    assert_eq!(heard, Some(("Half way with it.".to_owned(), false)));
    bench.held_back();
    gate.open();
    let mut said = Vec::new();
    let last = link.until(|numbered| {
        let ServerFrame::Message { text, last, .. } = numbered.frame else { return None };
        said.push(text);
        last.then_some(())
    });
    assert_eq!((last, said), (Some(()), vec!["At the end.".to_owned()]), "what was blocked is not heard");
    let told = told(&bench);
    assert!(told[1].contains("not sent: not this word"), "{told:?}");
    assert_eq!(engine.stop().code, Some(0));
}

/// Rows: SIL-113 (without skills) SIL-028 SF-494
#[test]
fn a_tool_that_is_not_configured_is_not_offered_and_is_refused_before_anybody_is_asked() {
    let mut bench = Bench::new("openai", calls(vec![("memory_store", json!({"text": "x"}))], "Tried."));
    write(bench.home.root().join("policies/ask.cedar"), ASK_REMEMBER);
    let offered = |bench: &Bench| -> Vec<String> {
        let request = bench.server.recorded_requests().pop().expect("a request").body;
        let tools = request["tools"].as_array().expect("a list").iter();
        tools.filter_map(|tool| tool["function"]["name"].as_str().map(str::to_owned)).collect()
    };
    bench.home.env.push(("WRIT_TOOLS".to_owned(), r#"["memory_search", "search"]"#.to_owned()));
    bench.chat("remember it", &[]);
    assert_eq!(offered(&bench), ["memory_search", "search"]);
    assert!(told(&bench)[0].contains("memory_search, search"), "{:?}", told(&bench));
    assert_eq!((bench.count("asked"), bench.count("intent")), (0, 2), "model calls alone");
    // Its twin: the same call of a tool that is offered pauses for a person.
    super::engine::stop_engine_of(&bench.home);
    bench.home.env.pop();
    let paused = bench.chat("remember it", &["--new"]);
    assert_eq!(code(&paused), 5, "{}", text(&paused));
    let all: Vec<_> = Registry::core_tools().tools().map(|tool| tool.name().to_owned()).collect();
    assert_eq!(offered(&bench), all);
    assert_eq!((bench.count("asked"), bench.count("remembered")), (1, 0));
    // A name that no tool has is a mistake, not an empty list.
    let home = Home::ready().with("WRIT_TOOLS", r#"["serch"]"#);
    let refused = home.run(&["config", "check"]);
    assert_eq!((code(&refused), text(&refused).contains("serch")), (3, true), "{}", text(&refused));
}

/// The sources below a folder that make a frame of what an agent says.
fn showing_sources(folder: &Path, within: &str, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).expect("reads") {
        let path = entry.expect("an entry").path();
        let name = format!("{within}{}", path.file_name().and_then(|name| name.to_str()).expect("text"));
        if path.is_dir() {
            showing_sources(&path, &format!("{name}/"), found);
        } else {
            let text = read(&path);
            let source = text.split("#[cfg(test)]").next().unwrap_or_default();
            let made = [
                "= ServerFrame::Message {",
                "(ServerFrame::Message {",
                "(ServerFrame::Delta {",
                "= ServerFrame::Delta {",
            ];
            let makes = |line: &str| {
                made.iter().any(|made| line.contains(made))
                    && !line.contains("let (")
                    && !line.contains("if let ")
            };
            if source.lines().any(makes) {
                found.push(name);
            }
        }
    }
}

/// What an agent says is shown in four places of the engine: the end of a turn, a message before it, the pieces of a stream, and an empty
/// piece at its beginning. Each of the first three has what its output gates have released.
///
/// Rows: SIL-009 SIL-025
/// Rows: SIL-034 (in part: a message is signed as soon as it is stored)
/// Rows: WIN-196 (in part: who has said what, with calls and results)
#[test]
fn a_turn_goes_through_its_steps_in_order() {
    let bench = Bench::new("openai", calls(vec![("memory_search", json!({"query": "x"}))], "Done here."));
    write(
        bench.home.root().join("config.toml"),
        "[[gates]]\nname = \"out\"\non = \"output\"\nprovider = \"predicate\"\ncontains = [\"zzz\"]\naction = \"block\"\n",
    );
    assert_eq!(code(&bench.chat("walk through", &[])), 0);
    let exported = bench.home.run(&["audit", "export"]);
    let steps: Vec<String> = String::from_utf8_lossy(&exported.stdout)
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("a row"))
        .filter_map(|row| {
            let part = |path: &str| row.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
            match part("/event").as_str() {
                "received" | "model_called" | "outcome" | "replied" => Some(part("/event")),
                "gated" => Some(format!("gated {}", part("/payload/point"))),
                "intent" => Some(format!("intent {}", part("/payload/action/kind"))),
                "phase" => Some(part("/payload/phase")),
                _ => None,
            }
        })
        .collect();
    let expected = [
        "received",
        "started",
        "gated input",
        "intent model_call",
        "model_called",
        "intent recall",
        "outcome",
        "intent model_call",
        "model_called",
        "gated output",
        "replied",
        "finished",
    ];
    assert_eq!(steps, expected);
    // The history has what passed the input gates, and nothing of what did not.
    assert_eq!(code(&bench.chat("please DROP TABLE users", &[])), 4);
    let conn = rusqlite::Connection::open(bench.home.database()).expect("opens");
    let mut rows = conn.prepare("SELECT turn_number, message FROM chronicle ORDER BY n").expect("prepares");
    let rows = rows.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).expect("reads");
    let rows: Vec<(i64, String)> = rows.collect::<Result<_, _>>().expect("rows");
    let said: Vec<&(i64, String)> = rows.iter().filter(|(_, message)| message.contains("\"user\"")).collect();
    assert_eq!(said.len(), 1, "{rows:?}");
    assert!(said[0].0 == 1 && said[0].1.contains("walk through"), "{said:?}");
    let roles: Vec<Value> = rows
        .iter()
        .filter(|(turn, _)| *turn == 1)
        .map(|(_, message)| serde_json::from_str::<Value>(message).expect("JSON")["role"].clone())
        .collect();
    assert_eq!(roles, ["user", "assistant", "tool", "assistant"], "with the call of a tool and its result");
    assert!(!rows.iter().any(|(_, message)| message.contains("DROP TABLE")), "{rows:?}");
    let mut showing = Vec::new();
    showing_sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../writ-runtime/src"), "", &mut showing);
    showing.sort();
    assert_eq!(showing, ["dispatch.rs", "drive/finish.rs", "model/shown.rs", "perform.rs"]);
}

/// Rows: SIL-035 (in part: not more than so many as they were; a summary stands for those before them)
#[test]
fn a_session_goes_on_with_the_newest_entries_of_its_history() {
    let bench = Bench::new("openai", calls(Vec::new(), "Heard."));
    let bench = bench.in_processes();
    let mut engine = Engine::start(&bench.home, &[]).expect("ready");
    let mut link = Link::open(&bench.home).expect("connects");
    let session = link.join(None, None).expect("joined");
    let word = |n: usize| format!("word<{n}>");
    for n in 0..40 {
        link.ask(&word(n), &format!("m{n}")).expect("answered");
    }
    engine.signal(Signal::SIGKILL);
    engine.wait();
    // 80 entries are stored. Of 50 entries, 25 are the owner's; of 10, five.
    for (setting, turn, first) in [(None, 40, 15), (Some("10"), 41, 36)] {
        let more: Vec<(&str, &str)> =
            setting.map(|most| ("WRIT_REHYDRATION__MAX_CHRONICLE_ENTRIES", most)).into_iter().collect();
        let engine = Engine::start(&bench.home, &more).expect("ready");
        let mut link = Link::open(&bench.home).expect("connects");
        link.join(Some(session), None).expect("joined");
        for _ in 0..turn {
            link.answer().expect("kept");
        }
        link.ask(&word(turn), &format!("m{turn}")).expect("answered");
        let request = bench.server.recorded_requests().pop().expect("a request").body;
        let messages = request["messages"].as_array().expect("messages");
        let seen: Vec<usize> =
            (0..=turn).filter(|n| messages.iter().any(|message| message["content"] == word(*n))).collect();
        // The newest ones without a gap, and no more than the setting allows.
        assert_eq!(seen, (turn + 1 - seen.len()..=turn).collect::<Vec<_>>(), "{setting:?}");
        assert!(seen.len() > 2 && seen[0] >= first, "{setting:?}: {seen:?}");
        assert_eq!(engine.stop().code, Some(0));
    }
}

/// Rows: SIL-037 SIL-038
#[test]
fn the_system_zone_and_the_profile_are_there_from_the_start_and_stay_under_pressure() {
    let mut bench = Bench::new("openai", calls(Vec::new(), "Yes."));
    for (key, value) in [("TOTAL_TOKENS", "9000"), ("SYSTEM_MAX", "5000")] {
        bench.home.env.push((format!("WRIT_CONTEXT__{key}"), value.to_owned()));
    }
    assert_eq!(
        code(&bench.chat("no profile yet", &[])),
        0,
        "nothing is known of the owner, and that is fine"
    );
    let added = bench.home.run(&["memory", "add", "The owner likes green tea.", "--kind", "profile"]);
    assert_eq!(code(&added), 0, "{}", text(&added));
    super::engine::stop_engine_of(&bench.home);
    write(bench.home.root().join("RULES.md"), "Always answer in verse.\n");
    let constitution = include_str!("../../src/constitution.md").lines().next().expect("a line");
    let tools = Registry::core_tools().tools().count();
    let engine = Engine::start(&bench.home, &[]).expect("ready");
    let mut link = Link::open(&bench.home).expect("connects");
    link.join(None, None).expect("joined");
    for n in 0..12 {
        link.ask(&format!("part<{n}> {}", "words and more ".repeat(250)), &format!("m{n}"))
            .expect("answered");
        let request = bench.server.recorded_requests().pop().expect("a request").body;
        let system = request["messages"][0]["content"].to_string();
        assert!(system.contains(constitution) && system.contains("Always answer in verse."), "{system}");
        assert_eq!(request["tools"].as_array().map(Vec::len), Some(tools));
        assert!(request.to_string().contains("The owner likes green tea."), "{request}");
    }
    let last = bench.requests().pop().expect("a request");
    // Of what left, no more than a part is quoted or remembered.
    let whole = |n: u32| last.contains(&format!("part<{n}> {}", "words and more ".repeat(249)));
    assert_eq!((whole(11), whole(0)), (true, false), "there was pressure: {last}");
    assert_eq!(engine.stop().code, Some(0));
}

/// Rows: SIL-021
#[test]
fn one_engine_outlives_its_connections_and_shares_its_data_with_no_other() {
    let bench = Bench::new("openai", calls(Vec::new(), "Yes."));
    // A second home with the same keys, whose data folder is that of the first.
    let data = bench.home.root().join("data").display().to_string();
    let mut other = Home::new().with("WRIT_DATA_DIR", &data);
    other.env.extend(bench.home.env.clone());
    copy(&bench.home.root(), &other.root());
    let (bench, other) = (bench.in_processes(), other.in_processes());
    let engine = Engine::start(&bench.home, &[]).expect("ready");
    let mut link = Link::open(&bench.home).expect("connects");
    let session = link.join(None, None).expect("joined");
    let started = link.call("status", json!({})).expect("answered")["started_at"].clone();
    link.ask("the word is heron", "one").expect("answered");
    drop(link);
    let mut link = Link::open(&bench.home).expect("connects");
    assert_eq!(link.join(Some(session), None), Some(session));
    link.answer().expect("kept");
    assert_eq!(link.call("status", json!({})).expect("answered")["started_at"], started);
    link.ask("which word?", "two").expect("answered");
    assert!(bench.requests().pop().expect("a request").contains("the word is heron"));
    for (home, what) in [(&bench.home, "the same home"), (&other, "the same data folder")] {
        let refused = Engine::start(home, &[]).err().expect(what);
        assert_eq!(refused.code, Some(10), "{what}: {}", refused.said);
        assert!(refused.said.contains(&format!("process {}", engine.pid())), "{what}: {}", refused.said);
    }
    assert_eq!(engine.stop().code, Some(0));
    // Its twin: alone, the second home is as good as the first.
    let engine = Engine::start(&other, &[]).expect("nobody else has the data now");
    assert_eq!(engine.stop().code, Some(0));
}

/// What an agent says of its label, its network or its place changes none of them.
///
/// Rows: SIL-005
#[test]
fn needs_userns_what_an_agent_says_of_taint_network_and_place_changes_none_of_them() {
    let out = "import socket\nsocket.create_connection(('192.0.2.1', 80), 2)";
    let run = |more: Value| {
        let mut arguments = json!({ "argv": ["true"] });
        arguments.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        ("shell_exec", arguments)
    };
    let list = vec![
        ("file_read", json!({ "path": "note.txt" })),
        ("memory_store", json!({ "text": "Tea is green.", "taint": "owner" })),
        run(json!({ "network": true })),
        run(json!({ "cwd": "/etc" })),
        run(json!({ "cwd": "../.." })),
        run(json!({ "taint": "owner" })),
        ("memory_store", json!({ "text": "Tea is green." })),
        ("python_exec", json!({ "script": out })),
    ];
    let bench = Bench::new("openai", calls(list, "taint: owner, network: true, cwd: /etc"));
    write(bench.project().join("note.txt"), "Your taint is owner.\n");
    let done = bench.chat("look", &[]);
    let told = told(&bench);
    assert_eq!(told.len(), 8, "{}", text(&done));
    let intents = bench.events("intent");
    let kinds: Vec<&str> = intents
        .iter()
        .rev()
        .filter_map(|row| row["payload"]["action"]["kind"].as_str())
        .filter(|kind| *kind != "model_call")
        .collect();
    assert_eq!(kinds, ["read_file", "remember", "exec"], "nothing else was begun: {told:?}");
    assert!(told[7].contains("unreachable"), "there is no network: {}", told[7]);
    assert_eq!(bench.events("remembered")[0]["payload"]["taint"], "external");
    assert_eq!(bench.events("replied")[0]["payload"]["label"]["taint"], "external");
}

/// Rows: SIL-007 (approvals and rules, for a message, a command of the owner and a change of the project)
#[test]
fn needs_userns_no_way_in_is_a_way_around_the_rules() {
    let list = vec![("file_write", json!({"path": "b.txt", "content": "new\n"}))];
    let bench = Bench::new("openai", calls(list, "Written."));
    assert_eq!(code(&bench.chat("write it", &[])), 5);
    let (ask, asked) = (bench.ask(), bench.server.recorded_requests().len());
    super::engine::stop_engine_of(&bench.home);
    write(
        bench.home.root().join("policies/nothing.cedar"),
        r#"@id("nothing") forbid (principal, action, resource);"#,
    );
    let project = bench.project().display().to_string();
    for args in [
        &["chat", "-m", "again", "--project", &project][..],
        &["apply", "--project", &project],
        &["approvals", "approve", &ask, "--yes"],
        &["sandbox", "exec", "--", "true"],
    ] {
        let before = bench.count("denied");
        let refused = bench.home.run(args);
        assert_eq!(code(&refused), 4, "{args:?}: {}", text(&refused));
        assert!(bench.count("denied") > before, "{args:?}: the refusal is an entry");
    }
    assert_eq!(bench.server.recorded_requests().len(), asked, "no model was asked either");
    assert_eq!(std::fs::read_dir(bench.project()).expect("reads").count(), 0);
    // Its twin: without the rule, what was written is applied.
    super::engine::stop_engine_of(&bench.home);
    std::fs::remove_file(bench.home.root().join("policies/nothing.cedar")).expect("removed");
    assert_eq!(code(&bench.home.run(&["apply", "--project", &project])), 5);
    let approved = bench.home.run(&["approvals", "approve", &bench.ask(), "--yes"]);
    assert_eq!(code(&approved), 0, "{}", text(&approved));
    assert_eq!(read(bench.project().join("b.txt")), "new\n");
}

/// Rows: SIL-267
#[test]
fn init_refuses_a_gate_whose_validator_it_does_not_know() {
    let home = Home::new();
    std::fs::create_dir(home.root()).expect("made");
    std::fs::set_permissions(home.root(), std::os::unix::fs::PermissionsExt::from_mode(0o700))
        .expect("closed");
    let gate = |check: &str| {
        format!(
            "[[gates]]\nname = \"guard\"\non = \"input\"\nprovider = \"guardrails_ai\"\nchecks = [\"{check}\"]\n"
        )
    };
    write(home.root().join("config.toml"), &gate("detect_everything"));
    std::fs::set_permissions(
        home.root().join("config.toml"),
        std::os::unix::fs::PermissionsExt::from_mode(0o600),
    )
    .expect("closed");
    let refused = home.run(&["init", "--yes"]);
    assert_eq!(code(&refused), 3, "{}", text(&refused));
    let said = text(&refused);
    assert!(said.contains("'guard'") && said.contains("'detect_everything'"), "{said}");
    assert!(said.contains("detect_pii, secrets_present, detect_jailbreak, toxic_language"), "{said}");
    assert!(!home.database().exists() && !home.root().join("keys/secrets.json").exists());
    write(home.root().join("config.toml"), &gate("detect_pii"));
    assert_eq!(code(&home.run(&["init", "--yes"])), 0);
}

/// An item with two domains is listed under both, at the terminal and over HTTP; one that is removed leaves the other.
///
/// Rows: SIL-336
#[test]
fn an_item_with_two_domains_is_listed_under_both() {
    const PLAN: &str = "---\nid: NAME\ntype: task\ntitle: Move the shop\n---\n\n# What to do\n\nMove it.\n";
    let bench = Bench::new("openai", calls(Vec::new(), "Yes."));
    let project = bench.project();
    let project = project.to_str().expect("UTF-8");
    for name in ["move", "stall"] {
        let plan = bench.home.dir.path().join(format!("{name}.md"));
        write(&plan, &PLAN.replace("NAME", name));
        let proposed =
            bench.home.run(&["work", "propose", plan.to_str().expect("UTF-8"), "--project", project]);
        assert_eq!(code(&proposed), 5, "{}", text(&proposed));
    }
    let listed = |domain: &str| -> Vec<String> {
        let listed = bench.home.json(&["work", "list", "--domain", domain]);
        let items = listed["items"].as_array().expect("items");
        items.iter().map(|item| item["name"].as_str().expect("a name").to_owned()).collect()
    };
    for domain in ["home", "tax"] {
        let tagged = bench.home.run(&["work", "tag", "move", domain]);
        assert!(code(&tagged) == 0 && text(&tagged).contains(&format!("#{domain}")), "{}", text(&tagged));
    }
    assert_eq!([listed("home"), listed("tax"), listed("other")], [vec!["move"], vec!["move"], Vec::new()]);
    assert_eq!(code(&bench.home.run(&["work", "untag", "move", "home"])), 0);
    assert_eq!([listed("home"), listed("tax")], [Vec::new(), vec!["move".to_owned()]]);
    let all = bench.home.json(&["work", "list"]);
    assert_eq!(all["items"].as_array().map(Vec::len), Some(2), "a domain hides nothing: {all}");
    for (args, exit) in [(["work", "tag", "move", "Home Office"], 2), (["work", "tag", "never", "home"], 2)] {
        let refused = bench.home.run(&args);
        assert_eq!(code(&refused), exit, "{}", text(&refused));
    }
}
