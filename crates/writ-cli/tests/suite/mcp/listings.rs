//! Servers as others make them: odd lists, odd names, slow starts, results of every form; and owners' files that change
//! while an engine runs.

use serde_json::{Value, json};
use writ_testbed::schema_rules::{ProviderRules, broken_name, broken_rules};

use super::super::{code, text};
use super::{Desk, READ_ONLY};

/// What an owner writes into the file holds for an engine that runs after each `writ mcp` command, as the guide says.
#[test]
fn needs_userns_needs_python_list_and_trust_make_a_running_engine_read_the_file_again() {
    let desk = Desk::with("[tools.look]\neffect = false\n");
    assert!(desk.said(r#"crm__look {"id": 7}"#).contains("Ann"));
    let mut engine = super::super::engine::Link::open(&desk.bench.home).expect("it runs");

    desk.write("[tools.send]\nsinks = [\"to\"]\n");
    let asked = desk.chat(r#"crm__send {"to": "ann@example.org"}"#);
    assert_eq!(code(&asked), 5, "the engine has what it had: {}", text(&asked));
    let trusted = desk.bench.home.run(&["mcp", "trust", "crm", "--yes"]);
    assert!(text(&trusted).contains("everything is as it was pinned"), "{}", text(&trusted));
    assert!(desk.said(r#"crm__send {"to": "ann@example.org"}"#).contains("sent to ann@example.org"));

    desk.write("[tools.behave]\nallow = false\n");
    let listed = desk.bench.home.run(&["mcp", "list"]);
    assert!(text(&listed).contains("behave (not offered)"), "{}", text(&listed));
    let gone = desk.said(r#"crm__behave {"how": "well"}"#);
    assert!(gone.contains("There is no tool 'crm__behave'"), "{gone}");
    assert_eq!(desk.offered(), ["crm__look", "crm__send"]);
    let entries = desk.bench.count("policy_changed");
    assert_eq!(code(&desk.bench.home.run(&["mcp", "list"])), 0);
    assert_eq!(desk.bench.count("policy_changed"), entries, "nothing has changed");
    assert!(engine.call("ping", json!({})).is_some(), "all of it in one engine");
    desk.verify();
}

/// A tool that is no more what was pinned stays away until its owner has trusted it, however often the file is read.
#[test]
fn needs_userns_needs_python_reading_the_file_again_does_not_bring_a_changed_tool_back() {
    let desk = Desk::with(READ_ONLY);
    desk.mode("lies");
    let said = desk.said(r#"crm__look {"id": 7}"#);
    assert!(said.contains("not the one that was trusted"), "{said}");
    desk.write("[tools.send]\nsinks = [\"to\"]\n");
    assert_eq!(code(&desk.bench.home.run(&["mcp", "list"])), 0);
    desk.said(r#"crm__behave {"how": "well"}"#);
    assert_eq!(desk.offered(), ["crm__behave", "crm__send"]);
    // It is again what was pinned: its owner has looked, so it comes back; a second look changes nothing.
    desk.mode("well");
    for _ in 0..2 {
        let trusted = desk.bench.home.run(&["mcp", "trust", "crm", "--yes"]);
        assert!(text(&trusted).contains("everything is as it was pinned"), "{}", text(&trusted));
        assert!(desk.said(r#"crm__look {"id": 7}"#).contains("Ann"));
    }
}

/// One tool that cannot be used takes neither its server nor the request with it, and is named.
///
/// Rows: WIN-454 (as a client: servers as they are)
#[test]
fn needs_userns_needs_python_odd_tools_are_adapted_or_left_out_one_by_one() {
    let desk = Desk::new();
    desk.mode("odd");
    let added = desk.add(&[]);
    assert_eq!(code(&added), 0, "{}", text(&added));
    let told = text(&added);
    for left_out in [
        "left out: the schema of 'truth' is no object",
        "left out: the description of 'wide' is no text",
        "left out: a tool has no name",
        "left out: the schema of 'crm__text' cannot be used",
        "left out: crm: 'filter' is not offered to models of Anthropic: the provider does not take the name of the argument '$filter'",
    ] {
        assert!(told.contains(left_out), "{left_out}: {told}");
    }
    let listed = desk.bench.home.json(&["mcp", "list"]);
    let tools = listed["servers"][0]["tools"].as_array().expect("tools").clone();
    let called: Vec<(&str, &str)> = tools
        .iter()
        .map(|tool| (tool["name"].as_str().expect("a name"), tool["called"].as_str().expect("a name")))
        .collect();
    let rules: String =
        called.iter().map(|(name, _)| format!("[tools.{name:?}]\neffect = false\n")).collect();
    desk.say(&rules);
    for (name, called) in
        called.iter().filter(|(name, _)| !["look", "send", "behave", "filter"].contains(name))
    {
        let said = desk.said(&format!("{called} {{\"b\": 1}}"));
        assert!(said.contains(&format!("called {name}")), "{called}: {said}");
    }
    let body = desk.bench.server.recorded_requests().pop().expect("a request").body;
    for tool in body["tools"].as_array().expect("tools") {
        let name = tool["function"]["name"].as_str().expect("a name");
        assert_eq!(broken_rules(ProviderRules::OpenAi, &tool["function"]["parameters"]), [""; 0], "{tool:#}");
        assert_eq!(broken_name(ProviderRules::OpenAi, name), None);
    }
}

/// Two tools of one name that differ are both left out; a list that leads in a circle ends.
#[test]
fn needs_userns_needs_python_a_list_that_repeats_itself_is_used_as_far_as_it_is_clear() {
    for (mode, left_out, usable) in [
        ("twice", "'look' is listed twice in different words: both are left out", json!(["behave", "send"])),
        ("circle", "its list leads back to an earlier page", json!(["behave", "look", "send"])),
    ] {
        let desk = Desk::new();
        desk.mode(mode);
        let added = desk.add(&[]);
        assert_eq!(code(&added), 0, "{mode}: {}", text(&added));
        assert!(text(&added).contains(left_out), "{mode}: {}", text(&added));
        let listed = desk.bench.home.json(&["mcp", "list"]);
        let names: Value = listed["servers"][0]["tools"]
            .as_array()
            .expect("tools")
            .iter()
            .map(|tool| tool["name"].clone())
            .collect();
        assert_eq!(names, usable, "{mode}");
    }
}

/// A first start by `npx` or `uvx` takes long: the limit is a setting, which its failure names, and the wait is shown.
#[test]
fn needs_userns_needs_python_a_slow_start_is_shown_and_its_limit_is_a_setting() {
    let desk = Desk::new();
    desk.mode("slow");
    let refused = desk.add(&["--start-timeout", "1"]);
    assert_eq!(code(&refused), 10, "{}", text(&refused));
    for expected in ["not ready within 1 seconds", "start_timeout_secs", "--start-timeout", "npx and uvx"] {
        assert!(text(&refused).contains(expected), "{expected}: {}", text(&refused));
    }
    assert_eq!(code(&desk.add(&["--start-timeout", "601"])), 2);
    desk.mode("late");
    let added = desk.add(&["--start-timeout", "300"]);
    assert_eq!(code(&added), 0, "{}", text(&added));
    assert!(
        text(&added).contains("the server 'crm' is starting: 5 of at most 300 seconds"),
        "{}",
        text(&added)
    );
    let file = std::fs::read_to_string(desk.bench.home.root().join("mcp/crm.toml")).expect("reads");
    assert!(file.contains("start_timeout_secs = 300"), "{file}");
    desk.say(READ_ONLY);
    let said = desk.said(r#"crm__look {"id": 7}"#);
    assert!(
        said.contains(
            "the server 'crm' is starting: 5 of at most 300 seconds (start_timeout_secs in mcp/crm.toml)"
        ),
        "{said}"
    );
    assert!(said.contains("Ann"), "{said}");
}

/// What is structured reaches the model beside a text and beside an error; what is no text is named; nothing is nothing.
#[test]
fn needs_userns_needs_python_results_of_every_form_reach_the_model() {
    let desk = Desk::with(READ_ONLY);
    for (how, expected) in [
        ("nothing", &["(the tool answered nothing)"][..]),
        ("fields", &["found one", "\"number\": 4711"]),
        ("refused", &["the tool says that it failed", "no such customer", "\"nearest\": 4712"]),
        (
            "media",
            &["[audio, audio/wav, 4 characters", "[link to file:///report.pdf (report)]", "Ann likes tea."],
        ),
    ] {
        let said = desk.said(&format!(r#"crm__behave {{"how": "{how}"}}"#));
        for words in expected {
            assert!(said.contains(words), "{how}: {words}: {said}");
        }
    }
}
