//! Daily use: conversations as a person keeps them, named agents, cassettes and replays.

use std::fs;

use serde_json::{Value, json};
use writ_testkit::model_server::{ParsedRequest, Reply};

use super::turns::{Bench, calls};
use super::{code, text};

fn listed(bench: &Bench, args: &[&str]) -> Vec<Value> {
    let listed = bench.home.json(&[&["sessions", "list"], args].concat());
    listed["sessions"].as_array().expect("a list").clone()
}

fn only_session(bench: &Bench) -> String {
    let rows = listed(bench, &[]);
    assert_eq!(rows.len(), 1, "{rows:?}");
    rows[0]["session"].as_str().expect("an id").to_owned()
}

/// Rows: SCL-123
#[test]
fn a_conversation_is_named_found_copied_deleted_and_brought_back() {
    let bench = Bench::new("openai", calls(Vec::new(), "The heron is on port 8080."));
    assert_eq!(code(&bench.chat("Where does the   *heron* run?\nSay it.", &[])), 0);
    let session = only_session(&bench);
    let row = &listed(&bench, &[])[0];
    assert_eq!(row["title"], "Where does the *heron* run?", "the first line of the first message");
    let renamed = bench.home.run(&["sessions", "rename", &session, "Ports"]);
    assert_eq!(code(&renamed), 0, "{}", text(&renamed));
    assert_eq!(code(&bench.chat("And the stork?", &["--continue"])), 2, "a folder is named beside it");
    let more = bench.home.run(&["chat", "-m", "And the stork?", "--continue"]);
    assert_eq!(code(&more), 0, "{}", text(&more));
    let row = &listed(&bench, &[])[0];
    assert_eq!((&row["title"], &row["turns"]), (&json!("Ports"), &json!(2)), "a name that was given stays");
    let found = bench.home.json(&["sessions", "search", "HERON", "port"]);
    assert_eq!(found["hits"][0]["excerpt"], "The heron is on port 8080.", "{found}");
    assert!(text(&bench.home.run(&["sessions", "search", "walrus"])).contains("nothing found"));
    let forked = bench.home.json(&["sessions", "fork", &session, "--turn", "1"]);
    assert_eq!((&forked["turns"], &forked["forked_from"]), (&json!(1), &json!([session, 1])));
    let copy = forked["session"].as_str().expect("an id");
    let in_copy = bench.home.run(&["chat", "-m", "And the crane?", "--session", copy]);
    assert_eq!(code(&in_copy), 0, "{}", text(&in_copy));
    let last = bench.requests().pop().expect("a request");
    assert!(last.contains("heron") && last.contains("crane") && !last.contains("stork"), "{last}");
    let shown = text(&bench.home.run(&["sessions", "show", copy]));
    assert!(
        shown.contains(&format!("copied from {session} after turn 1")) && shown.contains("crane"),
        "{shown}"
    );
    let too_far = bench.home.run(&["sessions", "fork", &session, "--turn", "9"]);
    assert_eq!(code(&too_far), 2, "{}", text(&too_far));
    assert!(text(&too_far).contains("the last turn that has ended is 2"));
    // Deleted, it is not listed, not found and not gone on with; brought back, it can be read.
    assert_eq!(code(&bench.home.run(&["sessions", "delete", copy])), 0);
    assert_eq!(only_session(&bench), session);
    assert_eq!(listed(&bench, &["--deleted"]).len(), 1);
    assert!(text(&bench.home.run(&["sessions", "search", "crane"])).contains("nothing found"));
    assert_ne!(code(&bench.home.run(&["chat", "-m", "hello", "--session", copy])), 0);
    assert_eq!(code(&bench.home.run(&["sessions", "restore", copy])), 0);
    assert_eq!(listed(&bench, &[]).len(), 2);
    let unknown = bench.home.run(&["chat", "-m", "x", "--session", "01ARZ3NDEKTSV4RRFFQ69G5FAV"]);
    assert_eq!(code(&unknown), 2, "{}", text(&unknown));
    assert_eq!(listed(&bench, &[]).len(), 2, "no new one begins in its place");
}

/// What is erased is in no entry, no search and no cassette, and the ledger verifies as before.
#[test]
fn an_erased_conversation_leaves_no_text_and_a_ledger_that_verifies() {
    let bench = Bench::new("openai", calls(Vec::new(), "Certainly, the zebra."));
    assert_eq!(code(&bench.chat("Tell me of the quagga", &[])), 0);
    let session = only_session(&bench);
    let asked = bench.home.run(&["sessions", "delete", &session, "--erase"]);
    assert_eq!(code(&asked), 2, "nothing is erased unasked: {}", text(&asked));
    let erased = bench.home.run(&["sessions", "delete", &session, "--erase", "--yes"]);
    assert_eq!(code(&erased), 0, "{}", text(&erased));
    let entries = [bench.events("received"), bench.events("replied"), bench.events("intent")].concat();
    assert!(entries.len() >= 3, "the entries stay");
    let told = Value::from(entries).to_string();
    assert!(!told.contains("quagga") && !told.contains("zebra"), "{told}");
    assert!(text(&bench.home.run(&["sessions", "search", "quagga"])).contains("nothing found"));
    for args in [["sessions", "show"], ["sessions", "export"], ["sessions", "restore"]] {
        let refused = bench.home.run(&[args[0], args[1], &session]);
        assert_eq!(code(&refused), 2, "{args:?}: {}", text(&refused));
        assert!(text(&refused).contains("erased"), "{}", text(&refused));
    }
    let verified = bench.home.run(&["audit", "verify", "--every-signature"]);
    assert_eq!(code(&verified), 0, "{}", text(&verified));
}

/// A cheaper model names the conversation after its first turn, by a call that is in the ledger; a person's name wins.
#[test]
fn a_cheap_model_names_a_conversation_and_is_paid_for() {
    let script = |request: &ParsedRequest| match request.model.as_str() {
        "small" => Reply::text("\"Ports of birds.\"\nand more"),
        _ => Reply::text("Port 8080."),
    };
    let bench = Bench::new("openai", script);
    let home = &bench.home.dir.path().join("home");
    let config = home.join("config.toml");
    let told = fs::read_to_string(&config).expect("reads");
    fs::write(&config, format!("{told}\n[models.roles]\nobserver = \"test/small\"\n")).expect("written");
    assert_eq!(code(&bench.chat("Where does the heron run?", &[])), 0);
    let named = || listed(&bench, &[])[0]["title"] == "Ports of birds";
    // The engine names it while it goes on; the next command asks the same engine, or one that has ended with it.
    while !named() {
        std::thread::yield_now();
    }
    let models: Vec<Value> =
        bench.events("model_called").iter().map(|row| row["payload"]["requested"].clone()).collect();
    assert!(models.contains(&json!("test/small")) && models.contains(&json!("test/scripted")), "{models:?}");
    let asked = bench.requests();
    let small = asked.iter().find(|request| request.contains("\"small\"")).expect("asked");
    assert!(!small.contains("\"tools\""), "it is offered no tools: {small}");
}

/// Rows: SCL-122
/// Rows: SCL-035 (in part: an agent's own model, and that of all where it has none)
#[test]
fn a_named_agent_answers_with_its_own_model_text_and_tools() {
    let bench =
        Bench::new("openai", calls(vec![("memory_store", json!({"text": "x", "kind": "fact"}))], "Read."));
    let agents = bench.home.root().join("agents");
    fs::create_dir_all(&agents).expect("made");
    let reader = "about = \"Reads only\"\nmodel = \"test/tiny\"\ntools = [\"file_read\", \"search\"]\ninstructions = \"Speak like a heron.\"\n";
    fs::write(agents.join("reader.toml"), reader).expect("written");
    assert_eq!(code(&bench.chat("hello", &["--agent", "reader"])), 0);
    let first = bench.server.recorded_requests().into_iter().next().expect("a request");
    assert_eq!(first.body["model"], "tiny");
    assert!(first.body.to_string().contains("Speak like a heron."));
    let tools: Vec<&str> = first.body["tools"]
        .as_array()
        .expect("tools")
        .iter()
        .filter_map(|tool| tool["function"]["name"].as_str())
        .collect();
    assert!(tools.contains(&"file_read") && !tools.contains(&"shell_exec"), "{tools:?}");
    assert_eq!(listed(&bench, &[])[0]["agent"], "reader");
    // What it was not offered, it cannot do.
    assert_eq!(bench.count("remembered"), 0);
    let unknown = bench.chat("hello", &["--agent", "writer"]);
    assert_eq!(code(&unknown), 2, "{}", text(&unknown));
    assert!(text(&unknown).contains("known: reader"), "{}", text(&unknown));
    // The usual agent of the same folder has a conversation of its own.
    assert_eq!(code(&bench.chat("hello", &[])), 0);
    assert_eq!(listed(&bench, &[]).len(), 2);
    // An agent without a model of its own has that of all.
    super::engine::stop_engine_of(&bench.home);
    fs::write(agents.join("plain.toml"), "about = \"Names no model\"\n").expect("written");
    let answered = bench.chat("hello", &["--agent", "plain"]);
    assert_eq!(code(&answered), 0, "{}", text(&answered));
    let last = bench.server.recorded_requests().pop().expect("a request");
    assert_eq!(last.body["model"], "scripted");
}

/// A conversation is decided again under rules that were not there then: what passed is denied or asked, and nothing runs.
#[test]
fn a_replay_says_what_todays_rules_would_decide_otherwise_and_does_nothing() {
    let script = calls(
        vec![
            ("memory_store", json!({"text": "the heron is on port 8080", "kind": "fact"})),
            ("memory_search", json!({"query": "heron"})),
        ],
        "Noted.",
    );
    let bench = Bench::new("openai", script);
    assert_eq!(code(&bench.chat("remember that the heron is on port 8080", &[])), 0);
    let session = only_session(&bench);
    let same = bench.home.json(&["replay", &session, "--all"]);
    assert_eq!((&same["calls"], &same["changed"]), (&json!(2), &json!(0)), "{same}");
    let verdicts: Vec<&Value> =
        same["steps"].as_array().expect("steps").iter().map(|step| &step["would"]).collect();
    assert_eq!(verdicts, ["permit", "permit"]);
    let rules = "@id(\"no-new-facts\")\nforbid (principal, action == Action::\"remember\", resource);\n";
    // Rules of the project are read anew; those of the home at the engine's start.
    fs::create_dir_all(bench.project().join(".writ/policies")).expect("made");
    fs::write(bench.project().join(".writ/policies/strict.cedar"), rules).expect("written");
    let before = (bench.count("intent"), bench.requests().len());
    let changed = bench.home.json(&["replay", &session]);
    assert_eq!((&changed["calls"], &changed["changed"]), (&json!(2), &json!(1)), "{changed}");
    let step = &changed["steps"][0];
    assert_eq!(
        (&step["did"], &step["would"], &step["rule"]),
        (&json!("permit"), &json!("deny"), &json!("no-new-facts"))
    );
    let lines = text(&bench.home.run(&["replay", &session]));
    assert!(
        lines.contains("permitted \u{2192} denied [no-new-facts]") && lines.contains("1 of 2 calls"),
        "{lines}"
    );
    assert_eq!(
        (bench.count("intent"), bench.requests().len()),
        before,
        "nothing was performed, no model asked"
    );
}

/// A call that a person approved is judged with that approval: it stands, until the rules or a gate refuse the call. A gate that
/// runs a program is named and not run.
#[test]
fn a_replay_judges_with_the_approvals_of_then_and_the_gates_of_today() {
    let script =
        calls(vec![("memory_store", json!({"text": "the heron is on port 8080", "kind": "fact"}))], "Noted.");
    let bench = Bench::new("openai", script);
    let policies = bench.project().join(".writ/policies");
    fs::create_dir_all(&policies).expect("made");
    let rules = "@id(\"ask-facts\") @ask(\"Facts are asked for.\")\nforbid (principal, action == Action::\"remember\", resource);\n";
    fs::write(policies.join("ask.cedar"), rules).expect("written");
    let asked = bench.chat("remember the heron", &[]);
    assert_eq!(code(&asked), 5, "{}", text(&asked));
    let approved = bench.home.run(&["approvals", "approve", &bench.ask(), "--yes"]);
    assert_eq!(code(&approved), 0, "{}", text(&approved));
    let session = only_session(&bench);
    let verdicts = |replay: &Value| {
        let step = &replay["steps"][0];
        (step["did"].clone(), step["would"].clone(), step["rule"].clone())
    };
    let same = bench.home.json(&["replay", &session, "--all"]);
    assert_eq!((&same["calls"], &same["changed"]), (&json!(1), &json!(0)), "{same}");
    assert_eq!(verdicts(&same), (json!("approved"), json!("approved"), json!("ask-facts")), "{same}");
    fs::remove_file(policies.join("ask.cedar")).expect("removed");
    let free = bench.home.json(&["replay", &session]);
    assert_eq!(verdicts(&free), (json!("approved"), json!("permit"), json!("")), "{free}");
    let never = "@id(\"no-facts\")\nforbid (principal, action == Action::\"remember\", resource);\n";
    fs::write(policies.join("never.cedar"), never).expect("written");
    let denied = bench.home.json(&["replay", &session]);
    assert_eq!(verdicts(&denied), (json!("approved"), json!("deny"), json!("no-facts")), "{denied}");
    fs::remove_file(policies.join("never.cedar")).expect("removed");
    // Gates are read when an engine starts.
    super::engine::stop_engine_of(&bench.home);
    let config = bench.home.root().join("config.toml");
    let told = fs::read_to_string(&config).expect("reads");
    let ran = bench.home.dir.path().join("ran");
    let gates = format!(
        "{told}\n[[gates]]\nname = \"runs\"\non = \"execution\"\nprovider = \"script\"\nscript = \"touch {}\"\n\n[[gates]]\nname = \"no-herons\"\non = \"execution\"\nprovider = \"predicate\"\ncontains = [\"heron\"]\n",
        ran.display()
    );
    fs::write(&config, gates).expect("written");
    let before = (bench.count("intent"), bench.count("gated"), bench.requests().len());
    let gated = bench.home.json(&["replay", &session]);
    assert_eq!(verdicts(&gated), (json!("approved"), json!("deny"), json!("no-herons")), "{gated}");
    assert_eq!(gated["steps"][0]["gates"], json!(["runs"]), "{gated}");
    let lines = text(&bench.home.run(&["replay", &session]));
    assert!(lines.contains("approved \u{2192} denied [no-herons]"), "{lines}");
    assert!(lines.contains("not asked, since they run a program: runs"), "{lines}");
    let after = (bench.count("intent"), bench.count("gated"), bench.requests().len());
    assert_eq!(after, before, "nothing was performed or recorded, no model asked");
    assert!(!ran.exists(), "no program ran");
}

/// A cassette has the answers to the harness by role, so that a conversation with a proxy, a gate that is a model and a cheap
/// model for titles plays as it went, twice alike, with no model of the configuration.
#[test]
fn a_cassette_plays_each_role_by_its_own_answers() {
    let script = |request: &ParsedRequest| match request.model.as_str() {
        "small" if request.last_user_text().starts_with("hello") => Reply::text(
            r#"{"route":"direct","reason":"a greeting","response":"Hello, heron.","context_profile":null}"#,
        ),
        "small" => Reply::text(r#"{"route":"act","reason":"work","response":null,"context_profile":null}"#),
        "judge" => Reply::text(r#"{"score": 0.1, "pass": false, "flags": ["a walrus"]}"#),
        "names" => Reply::text("Birds and ports"),
        _ if request.results().count() == 0 => Reply::call("memory_search", json!({ "query": "heron" })),
        _ => Reply::text("Port 8080."),
    };
    let bench = Bench::new("openai", script);
    let config = bench.home.root().join("config.toml");
    let told = fs::read_to_string(&config).expect("reads");
    let own = "[models.roles]\nproxy = \"test/small\"\nscorer = \"test/judge\"\nobserver = \"test/names\"\n\n[[gates]]\nname = \"no-walrus\"\non = \"output\"\nprovider = \"llm\"\nprompt = \"Is it about a walrus?\"\n";
    fs::write(&config, format!("{told}\n{own}")).expect("written");
    let first = bench.chat("hello there", &["--new"]);
    assert_eq!(code(&first), 0, "{}", text(&first));
    assert!(text(&first).contains("Hello, heron."), "{}", text(&first));
    let second = bench.home.run(&["chat", "-m", "where does it run?", "--continue"]);
    assert!(text(&second).contains("Port 8080."), "{}", text(&second));
    while listed(&bench, &[])[0]["title"] != "Birds and ports" {
        std::thread::yield_now();
    }
    let session = only_session(&bench);
    let file = bench.home.dir.path().join("c.jsonl");
    let file = file.to_str().expect("a path");
    assert_eq!(code(&bench.home.run(&["sessions", "export", &session, "-o", file])), 0);
    let cassette = fs::read_to_string(file).expect("reads");
    let mut roles: Vec<(String, u64)> = cassette
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON"))
        .filter(|track| track["reply"].is_object())
        .map(|track| {
            (track["role"].as_str().expect("a role").to_owned(), track["turn"].as_u64().expect("a turn"))
        })
        .collect();
    roles.sort();
    let wanted = [
        ("executor", 2),
        ("executor", 2),
        ("observer", 0),
        ("proxy", 1),
        ("proxy", 2),
        ("scorer", 1),
        ("scorer", 2),
    ];
    assert_eq!(roles, wanted.map(|(role, turn)| (role.to_owned(), turn)));
    let asked = bench.requests().len();
    let played = |home: &str| {
        let project = bench.home.dir.path().join(home);
        fs::create_dir(&project).expect("made");
        let project = project.display().to_string();
        let args = ["chat", "--cassette", file, "-m", "hello there", "--project", &project];
        let played = bench.home.run_process(&args, b"");
        assert_eq!(code(&played), 0, "{}", text(&played));
        text(&played)
    };
    let shown = played("one");
    assert!(shown.contains("playing 7 answers") && shown.contains("Hello, heron."), "{shown}");
    assert!(!shown.contains("the cassette has"), "no question was without its answer: {shown}");
    assert!(played("two").contains("Hello, heron."));
    assert_eq!(bench.requests().len(), asked, "the models of the configuration are not asked");
}

/// The same model plays again in another home, tools are real, and no secret is in the cassette.
#[test]
fn needs_userns_a_cassette_plays_its_model_again() {
    let script = |request: &ParsedRequest| match request.results().count() {
        0 => Reply::call("file_write", json!({"path": "note.txt", "content": "played\n"})),
        _ => Reply::text("Written, the-key-of-the-script."),
    };
    let bench = Bench::new("openai", script);
    let first = bench.chat("write a note", &["--new"]);
    assert_eq!(code(&first), 5, "the diff waits: {}", text(&first));
    let session = only_session(&bench);
    let file = bench.home.dir.path().join("c.jsonl");
    let file = file.to_str().expect("a path");
    let exported = bench.home.run(&["sessions", "export", &session, "-o", file]);
    assert_eq!(code(&exported), 0, "{}", text(&exported));
    let again = bench.home.run(&["sessions", "export", &session, "-o", file]);
    assert_eq!(code(&again), 2, "no file is written over: {}", text(&again));
    let cassette = fs::read_to_string(file).expect("reads");
    assert!(!cassette.contains("the-key-of-the-script"), "{cassette}");
    let tracks: Vec<Value> = cassette
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON")["track"].clone())
        .collect();
    assert_eq!(tracks, ["head", "message", "model", "tool", "model", "end"]);
    let asked = bench.requests().len();
    let project = bench.home.dir.path().join("elsewhere");
    fs::create_dir(&project).expect("made");
    let project = project.display().to_string();
    let args = ["chat", "--cassette", file, "-m", "write a note", "--project", &project];
    let played = bench.home.run_process(&args, b"");
    assert_eq!(code(&played), 5, "{}", text(&played));
    assert!(text(&played).contains("Written, "), "{}", text(&played));
    assert_eq!(bench.requests().len(), asked, "the model of the configuration is not asked");
    assert_eq!(listed(&bench, &[]).len(), 1, "it plays in a home of its own");
    fs::write(file, "{\"track\":\"nonsense\"}\n").expect("written");
    let broken = bench.home.run(&["chat", "--cassette", file, "-m", "x"]);
    assert_eq!(code(&broken), 2, "{}", text(&broken));
    assert!(text(&broken).contains("line 1"), "{}", text(&broken));
}

/// Questions and their answers are counted, and a habit without a doubt is an offer with its evidence.
///
/// Rows: SIL-327 (in part: the median time and what was declined) SIL-330 (in part: the cadence is measured)
#[test]
fn needs_userns_the_cadence_of_questions_is_measured_and_a_habit_is_an_offer() {
    let mut n = 0;
    let script = move |request: &ParsedRequest| {
        if request.results().count() > 0 {
            return Reply::text("It waits.");
        }
        n += 1;
        Reply::call("file_write", json!({"path": "note.txt", "content": format!("note {n}\n")}))
    };
    let bench = Bench::new("openai", script);
    let cadence = || bench.home.json(&["approvals", "cadence"]);
    let nothing = cadence();
    assert_eq!(
        (&nothing["approved"], &nothing["median_ms"], &nothing["offers"]),
        (&json!(0), &Value::Null, &json!([]))
    );
    for _ in 0..5 {
        assert_eq!(code(&bench.chat("note it", &["--new"])), 5);
        let approved = bench.home.run(&["approvals", "approve", &bench.ask(), "--yes"]);
        assert_eq!(code(&approved), 0, "{}", text(&approved));
    }
    assert_eq!(code(&bench.chat("note it", &["--new"])), 5);
    let measured = cadence();
    assert_eq!((&measured["approved"], &measured["denied"]), (&json!(5), &json!(0)), "{measured}");
    assert!(measured["median_ms"].is_u64(), "{measured}");
    let offer = &measured["offers"][0];
    assert_eq!(
        (&offer["direction"], &offer["approved"], &offer["ask_id"]),
        (&json!("widen"), &json!(5), &json!(bench.ask())),
        "{measured}"
    );
    assert_eq!(code(&bench.home.run(&["approvals", "deny", &bench.ask()])), 0);
    assert_eq!(code(&bench.chat("note it", &["--new"])), 5);
    let measured = cadence();
    assert_eq!(
        (&measured["denied"], &measured["offers"]),
        (&json!(1), &json!([])),
        "one no is a doubt: {measured}"
    );
}
