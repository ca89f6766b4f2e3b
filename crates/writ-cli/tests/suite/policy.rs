//! `writ policy`: rules are checked, explained and tested without an engine.

use serde_json::json;
use writ_testkit::model_server::{ParsedRequest, Reply};

use super::engine::{Ended, Engine, stop_engine_of};
use super::turns::{Bench, calls};
use super::{Home, code, text};

/// A rule that compares a text with a number.
const TYPE_ERROR: &str = "@id(\"x\") forbid (principal, action, resource) when { context.taint == 3 };";

fn rule(home: &Home, text: &str) {
    std::fs::create_dir_all(home.root().join("policies")).expect("made");
    std::fs::write(home.root().join("policies/mine.cedar"), text).expect("written");
}

#[test]
fn rules_are_listed_and_wrong_ones_named_with_their_file() {
    let home = Home::ready();
    let shipped = home.json(&["policy", "check"]);
    assert!(shipped["rules"].as_array().is_some_and(|ids| ids.contains(&json!("ask-fetch"))), "{shipped}");
    rule(&home, "@id(\"no-x\") forbid (principal, action == Action::\"exec\", resource);");
    let mine = home.json(&["policy", "check"]);
    assert_ne!(mine["digest"], shipped["digest"]);
    assert_eq!(mine["files"], json!(["shipped rules", "policies/mine.cedar"]));
    for (wrong, told) in [
        ("@id(\"x\") forbid (principal", "policies/mine.cedar"),
        (
            "@id(\"x\") forbid (principal, action == Action::\"fly\", resource);",
            "policies/mine.cedar: a rule does not fit the schema",
        ),
        (TYPE_ERROR, "policies/mine.cedar: a rule does not fit the schema"),
    ] {
        rule(&home, wrong);
        let checked = home.run(&["policy", "check"]);
        assert_eq!(code(&checked), 3, "{}", text(&checked));
        assert!(text(&checked).contains(told), "{}", text(&checked));
    }
    let project = home.root().join("p");
    std::fs::create_dir_all(project.join(".writ/policies")).expect("made");
    rule(&home, "");
    let project = project.to_str().expect("text");
    assert_eq!(code(&home.run(&["policy", "check", "--project", project])), 0);
    let widening = "@id(\"all\") permit (principal, action, resource);";
    std::fs::write(home.root().join("p/.writ/policies/a.cedar"), widening).expect("written");
    let widens = home.run(&["policy", "check", "--project", project]);
    assert_eq!((code(&widens), text(&widens).contains("can only forbid")), (3, true), "{}", text(&widens));
}

const CASES: &str = r#"
[[case]]
name = "a stranger's page"
action = { kind = "fetch", method = "GET", url = "https://strange.example/" }
expect = "ask"
rules = ["ask-fetch"]

[[case]]
name = "a page that the owner wrote"
action = { kind = "fetch", method = "GET", url = "https://strange.example/" }
owned = true
expect = "permit"

[[case]]
name = "what is sent is not read, whoever wrote its URL"
action = { kind = "fetch", method = "POST", url = "https://strange.example/", body = "x" }
owned = true
expect = "ask"

[[case]]
name = "the metadata of a cloud"
action = { kind = "fetch", method = "GET", url = "http://169.254.169.254/" }
expect = "forbid"
rules = ["no-blocked-hosts"]

[[case]]
name = "external truth"
action = { kind = "remember", text = "x", memory_kind = "fact", trust = "verified", taint = "external" }
taint = "external"
expect = "forbid"
"#;

#[test]
fn cases_are_judged_and_what_is_not_as_expected_ends_with_8() {
    let home = Home::ready();
    let file = home.root().join("cases.toml");
    let path = file.to_str().expect("text").to_owned();
    let test = |cases: &str| {
        std::fs::write(&file, cases).expect("written");
        home.run(&["policy", "test", &path])
    };
    let good = test(CASES);
    assert_eq!((code(&good), text(&good).contains("5 passed, 0 failed")), (0, true), "{}", text(&good));
    rule(&home, "@id(\"never\") forbid (principal, action == Action::\"fetch\", resource);");
    let changed = test(CASES);
    assert_eq!(code(&changed), 8, "{}", text(&changed));
    assert!(
        text(&changed).contains("FAILED  a stranger's page: forbid (never), expected ask"),
        "{}",
        text(&changed)
    );
    for (wrong, told) in [
        ("", "case"),
        ("[[case]]\nname = \"x\"\nexpect = \"ask\"\naction = { kind = \"fly\" }\n", "'action'"),
        ("[[case]]\nname = \"x\"\nexpect = \"maybe\"\naction = { kind = \"fly\" }\n", "maybe"),
        ("case = []\n", "0 cases"),
        (&"#".repeat(1024 * 1024 + 1), "more than"),
    ] {
        let refused = test(wrong);
        assert_eq!((code(&refused), text(&refused).contains(told)), (2, true), "{told}: {}", text(&refused));
    }
    assert_eq!(code(&home.run(&["policy", "test", "/nowhere/cases.toml"])), 2);
}

#[test]
fn needs_userns_a_decision_is_explained_with_the_rules_that_made_it() {
    let list = vec![
        ("web_fetch", json!({ "url": "https://strange.example/" })),
        ("web_fetch", json!({ "url": "http://169.254.169.254/" })),
        ("file_write", json!({ "path": "a", "content": "x" })),
    ];
    let bench = Bench::new("openai", calls(list, "Done."));
    let done = bench.chat("look around", &[]);
    assert_eq!(code(&done), 5, "{}", text(&done));
    let explain = |row: &serde_json::Value| {
        let entry = row["seq"].to_string();
        bench.home.json(&["policy", "explain", &entry])
    };
    let asked = bench.events("asked");
    let fetch = asked.iter().find(|row| row.to_string().contains("strange.example")).expect("asked");
    let said = explain(fetch);
    assert_eq!((&said["decided"], &said["now"]["outcome"]), (&json!("asked"), &json!("ask")), "{said}");
    assert_eq!(said["now"]["rules"][0]["id"], "ask-fetch");
    assert!(said["now"]["rules"][0]["text"].as_str().is_some_and(|text| text.contains("forbid")), "{said}");
    let denied = bench.events("denied");
    let said = explain(&denied[0]);
    assert_eq!(
        (&said["rule"], &said["rules"][0]["id"]),
        (&json!("no-blocked-hosts"), &json!("no-blocked-hosts"))
    );
    let intent = bench.events("intent");
    let write = intent.iter().find(|row| row.to_string().contains("write_file")).expect("intended");
    assert_eq!(explain(write)["decided"], "permitted");
    let label = |row: &serde_json::Value| bench.home.json(&["taint", "explain", &row["seq"].to_string()]);
    let replied = bench.events("replied").pop().expect("a reply");
    let why = label(&replied);
    assert_eq!(why["rests_on"][0]["event"], "replied", "{why}");
    let sources = why["rests_on"][0]["sources"].as_array().expect("sources");
    let message = sources.iter().find(|source| source["origin"] == "message").expect("the message");
    let followed =
        why["rests_on"].as_array().expect("steps").iter().find(|step| step["entry"] == message["entry"]);
    assert_eq!(followed.expect("followed")["event"], "received", "{why}");
    assert_eq!(code(&bench.home.run(&["taint", "explain", "99999"])), 2);
    assert_eq!(code(&bench.home.run(&["taint", "explain", &denied[0]["seq"].to_string()])), 2, "no label");
    let none = bench.home.run(&["policy", "explain", "0"]);
    assert_eq!((code(&none), text(&none).contains("no decision")), (2, true), "{}", text(&none));
    assert_eq!(code(&bench.home.run(&["policy", "explain", "99999"])), 2);
}

/// A project narrows what the agent may do in it: from its session's beginning, and as its rules change from turn to turn. Its
/// words in a question are marked as its own. Rules that cannot stand open no session, and change none that runs.
#[test]
fn needs_userns_a_projects_rules_narrow_its_sessions_and_no_others() {
    let bench = Bench::new("openai", |request: &ParsedRequest| {
        let asked = request.messages.last().is_some_and(|message| message.results.is_empty());
        if asked { Reply::call("shell_exec", json!({ "argv": ["true"] })) } else { Reply::text("So.") }
    });
    let folder = bench.project().join(".writ/policies");
    std::fs::create_dir_all(&folder).expect("made");
    let write = |rule: &str| std::fs::write(folder.join("own.cedar"), rule).expect("written");
    let exec = "principal, action == Action::\"exec\", resource";
    let last = || bench.events("outcome").len();

    write(&format!("@id(\"open\") permit ({exec});"));
    let refused = bench.chat("run it", &[]);
    assert_eq!((code(&refused), text(&refused).contains("can only forbid")), (3, true), "{}", text(&refused));

    write(&format!("@id(\"no-programs\") forbid ({exec});"));
    let before = last();
    assert_eq!(code(&bench.chat("run it", &[])), 4);
    let denied = bench.events("denied").pop().expect("denied").to_string();
    assert!(denied.contains("no-programs"), "{denied}");
    let changed = bench.events("policy_changed");
    assert!(
        changed.iter().any(|row| row.to_string().contains("the project narrows the rules")),
        "{changed:?}"
    );

    write(&format!("@id(\"ask-programs\") @ask(\"Just say yes.\") forbid ({exec});"));
    let asked = bench.chat("run it", &[]);
    assert_eq!(code(&asked), 5, "{}", text(&asked));
    let card = bench.home.json(&["approvals", "list"])["asks"][0].to_string();
    assert!(card.contains("A rule of the project ('ask-programs') asks: “Just say yes.”"), "{card}");
    let ask = bench.ask();
    assert_eq!(
        code(&bench.home.run(&["approvals", "approve", &ask, "--yes"])),
        0,
        "approved under these rules"
    );

    let denials = || bench.events("denied").len();
    let so_far = (denials(), bench.events("asked").len());
    write("@id(\"broken\") forbid (");
    assert_eq!(code(&bench.chat("run it", &[])), 5, "the last good rules ask again");
    assert_eq!((denials(), bench.events("asked").len()), (so_far.0, so_far.1 + 1));

    std::fs::remove_dir_all(&folder).expect("removed");
    assert_eq!(code(&bench.chat("run it", &["--new"])), 0, "{}", text(&bench.chat("run it", &["--new"])));
    assert!(last() > before, "twin: without rules of its own it runs");
}

/// An engine does not start with rules that cannot stand, and says which file is wrong. Where they are broken while it runs, it decides
/// as before, since rules are read at its start.
#[test]
fn needs_userns_rules_with_a_type_error_start_no_engine_and_change_none_that_runs() {
    let bench = Bench::new("openai", |request: &ParsedRequest| {
        let asked = request.messages.last().is_some_and(|message| message.results.is_empty());
        if asked { Reply::call("shell_exec", json!({ "argv": ["true"] })) } else { Reply::text("So.") }
    });
    let refused = |start: Result<Engine, Ended>| {
        let ended = start.err().expect("no engine");
        assert_eq!(ended.code, Some(3), "{}", ended.said);
        assert!(ended.said.contains("policies/mine.cedar: a rule does not fit the schema"), "{}", ended.said);
    };
    rule(&bench.home, TYPE_ERROR);
    refused(Engine::start(&bench.home, &[]));
    let chat = bench.chat("run it", &[]);
    assert_eq!((code(&chat), text(&chat).contains("policies/mine.cedar")), (3, true), "{}", text(&chat));
    assert!(bench.requests().is_empty(), "no model was asked");

    rule(&bench.home, "@id(\"no-programs\") forbid (principal, action == Action::\"exec\", resource);");
    let engine = Engine::start(&bench.home, &[]).expect("ready");
    let denied = |broken: bool| {
        let before = bench.events("denied").len();
        assert_eq!(code(&bench.chat("run it", &[])), 4, "broken: {broken}");
        let rows = bench.events("denied");
        assert_eq!(rows.len(), before + 1);
        assert!(rows.iter().all(|row| row.to_string().contains("no-programs")), "{rows:?}");
    };
    denied(false);
    let changed = bench.events("policy_changed").len();
    rule(&bench.home, TYPE_ERROR);
    denied(true);
    assert_eq!(bench.events("policy_changed").len(), changed, "nothing has changed");
    assert_eq!(engine.stop().code, Some(0));
    refused(Engine::start(&bench.home, &[]));
    rule(&bench.home, "");
    assert_eq!(code(&bench.chat("run it", &["--new"])), 0, "twin: what can stand is put in force");
}

#[test]
fn needs_userns_rules_that_are_tried_are_noted_and_never_acted_on_until_they_are_promoted() {
    let bench = Bench::new("openai", |request: &ParsedRequest| match request.results().count() {
        0 => Reply::call("shell_exec", json!({ "argv": ["echo", "hello"] })),
        _ => Reply::text("Done."),
    });
    let shadow = bench.home.root().join("policies/shadow");
    std::fs::create_dir_all(&shadow).expect("made");
    let strict = "@id(\"no-programs\") @ask(\"It runs a program.\") forbid (principal, action == Action::\"exec\", resource);";
    std::fs::write(shadow.join("strict.cedar"), strict).expect("written");
    let wide = "@id(\"all-fetches\") permit (principal, action == Action::\"fetch\", resource);";
    std::fs::write(shadow.join("wide.cedar"), wide).expect("written");
    std::fs::write(shadow.join("broken.cedar"), "@id(\"x\") forbid (principal").expect("written");
    let done = bench.chat("go", &["--new"]);
    assert_eq!(
        code(&done),
        0,
        "what is tried stops nothing, and what is broken does not stop the start: {}",
        text(&done)
    );
    let shown = bench.home.json(&["policy", "shadow"]);
    let changes = shown["changes"].as_array().expect("a list").clone();
    assert_eq!(
        changes,
        [json!({
            "set": "strict", "action": "exec", "does": "permit", "would": "ask", "rules": ["no-programs"], "actions": 1,
        })],
        "{shown}"
    );
    let problems: Vec<(&str, bool)> = shown["tried"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|one| (one["name"].as_str().unwrap_or_default(), one["problem"].is_null()))
        .collect();
    assert_eq!(problems, [("broken", false), ("strict", true), ("wide", true)]);
    assert_eq!(code(&bench.home.run(&["policy", "promote", "broken"])), 3);
    assert_eq!(code(&bench.home.run(&["policy", "promote", "../strict"])), 3);
    let promoted = bench.home.run(&["policy", "promote", "strict"]);
    assert_eq!(code(&promoted), 0, "{}", text(&promoted));
    assert!(!shadow.join("strict.cedar").exists());
    std::fs::write(shadow.join("strict.cedar"), "").expect("written");
    let again = bench.home.run(&["policy", "promote", "strict"]);
    assert_eq!(code(&again), 3, "nothing in force is written over: {}", text(&again));
    assert!(text(&again).contains("policies/strict.cedar is there already"), "{}", text(&again));
    stop_engine_of(&bench.home);
    let asked = bench.chat("go", &["--new"]);
    assert_eq!(code(&asked), 5, "{}", text(&asked));
    let entries = bench.events("policy_changed");
    assert!(entries.iter().any(|row| row["payload"]["summary"] == "the rules have changed"), "{entries:?}");
}
