//! Calls of tools: in the format of a provider, and what the model reads of their results.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use writ_runtime::engine::Join;
use writ_testkit::model_server::{ParsedRequest, Reply, ScriptedCall};
use writ_tools::registry::Registry;
use writ_tools::source::Tool;
use writ_types::action::{Action, Place};
use writ_types::entry::{DenyReason, Fact};
use writ_types::error::Exit;

use crate::harness::{OWNER, TestEngine};

/// Two calls of one answer are performed, each under its id. Arguments that are no JSON are an error that the model reads, and the
/// turn goes on.
///
/// Rows: WIN-078
#[test]
fn parallel_calls_are_answered_by_their_ids_and_malformed_arguments_with_an_error() {
    let engine = TestEngine::new("", |_| {
        |request: &ParsedRequest| match request.results().count() {
            0 => {
                let mut reply = Reply::call("memory_search", json!({ "query": "tea" }))
                    .and_call("memory_search", json!({ "query": "coffee" }));
                let broken = ScriptedCall {
                    id: Some("call_broken".to_owned()),
                    name: "memory_search".to_owned(),
                    arguments: "{\"query\": \"milk".to_owned(),
                };
                reply.calls.push(broken);
                reply
            }
            _ => Reply::text("Both were looked up."),
        }
    });
    engine.runtime.block_on(async {
        for text in ["The owner drinks tea", "The guest drinks coffee"] {
            engine.call("memory.add", json!({ "text": text })).await.expect("stored");
        }
        let said = engine.say(None, "Who drinks what?").await;
        assert_eq!(said, (Exit::Done, "Both were looked up.".to_owned()));
    });
    let sent = engine.server.recorded_requests();
    assert_eq!(sent.len(), 2);
    for request in &sent {
        assert_eq!(request.path, "/v1/chat/completions");
        assert_eq!(request.body["tools"][0]["type"], "function");
    }
    let messages = sent[1].body["messages"].as_array().expect("messages");
    let calls = messages.iter().find_map(|message| message["tool_calls"].as_array()).expect("the calls");
    let results: Vec<(&str, &str)> = messages
        .iter()
        .filter(|message| message["role"] == "tool")
        .map(|message| {
            let text = |key: &str| message[key].as_str().expect("a text");
            (text("tool_call_id"), text("content"))
        })
        .collect();
    let [(first, tea), (second, coffee), (third, broken)] = results.as_slice() else { panic!("{results:?}") };
    let ids: Vec<&str> = calls.iter().map(|call| call["id"].as_str().expect("an id")).collect();
    assert_eq!(ids, [*first, *second, *third]);
    assert_eq!(*third, "call_broken");
    assert!(tea.contains("The owner drinks tea") && !tea.contains("coffee"), "{tea}");
    assert!(coffee.contains("The guest drinks coffee"), "{coffee}");
    assert!(broken.to_lowercase().contains("argument") && broken.contains("JSON"), "{broken}");
    let recalled = engine
        .facts("intent")
        .into_iter()
        .filter(|fact| matches!(fact, Fact::Intent { action, .. } if action.kind().as_str() == "recall"));
    assert_eq!(recalled.count(), 2, "nothing is performed of the broken one");
    engine.end();
}

/// The result of a command is what it has written, without the line break at its end; a program that is not there is an error.
///
/// Rows: SIL-203
#[test]
fn needs_userns_the_result_of_a_command_is_its_output_and_an_unknown_one_is_an_error() {
    let engine = TestEngine::new("", |_| {
        |request: &ParsedRequest| match request.results().count() {
            0 => Reply::call("shell_exec", json!({ "command": "echo hello" })),
            1 => Reply::call("shell_exec", json!({ "command": "no-such-program-here" })),
            _ => {
                let results: Vec<&str> = request.results().map(|result| &*result.text).collect();
                Reply::text(&serde_json::to_string(&results).expect("JSON"))
            }
        }
    });
    let (exit, text) = engine.runtime.block_on(engine.say(None, "Say hello."));
    assert_eq!(exit, Exit::Done);
    let results: Vec<String> = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}"));
    // The marks say that it is data; between them is the result.
    let between: Vec<&str> = results[0].lines().filter(|line| !line.starts_with('⟦')).collect();
    assert_eq!(between, ["hello"], "{}", results[0]);
    assert!(results[1].contains("not found") || results[1].contains("127"), "{}", results[1]);
    assert!(!results[1].is_empty() && results.len() == 2);
    engine.end();
}

/// The owner's rule that cannot be evaluated for any action but the call of the model.
const BROKEN: &str = r#"@id("broken") forbid (principal, action, resource)
when { action != Action::"model_call" && 9223372036854775807 + 1 > 0 };"#;

/// One call of each tool of an agent; the later ones find what the earlier ones have made.
fn call_of_each_tool() -> Vec<(&'static str, Value)> {
    let step = json!({ "tool": "shell_exec", "arguments": { "argv": ["true"] } });
    let post = json!({ "method": "POST", "url": "http://unlisted.test/", "body": "x" });
    vec![
        ("context_subscribe", json!({ "path": "notes.md", "turns": 1 })),
        ("context_unsubscribe", json!({ "id": "s1" })),
        ("file_write", json!({ "path": "new.txt", "content": "a\n" })),
        ("file_patch", json!({ "path": "notes.md", "old": "heron", "new": "otter" })),
        ("file_read", json!({ "path": "notes.md" })),
        ("memory_store", json!({ "text": "The heron is grey." })),
        ("memory_search", json!({ "query": "heron" })),
        ("plan_propose", json!({ "title": "look", "steps": [step] })),
        ("python_exec", json!({ "script": "print(6 * 7)" })),
        ("result_read", json!({ "handle": "$r1", "from": 1 })),
        ("search", json!({ "pattern": "heron" })),
        ("send_file", json!({ "path": "notes.md" })),
        ("shell_exec", json!({ "argv": ["true"] })),
        ("tell_user", json!({ "text": "I am at it." })),
        ("web_fetch", json!({ "url": "http://unlisted.test/" })),
        ("web_request", post),
        ("docs_write", json!({ "name": "a.md", "summary": "a line", "read_when": "at work", "text": "# A" })),
    ]
}

/// Has each tool called once in one turn, under the owner's rules. Returns the engine after the turn.
fn call_each_tool(rules: &str, project: &std::path::Path) -> TestEngine {
    let engine = TestEngine::new(rules, |_| {
        |request: &ParsedRequest| {
            let done = request.results().count();
            let mut reply = Reply::text("Done.");
            if let Some((name, arguments)) = call_of_each_tool().into_iter().nth(done) {
                reply = Reply::default();
                let id = Some(format!("call_{done}"));
                reply.calls.push(ScriptedCall {
                    id,
                    name: name.to_owned(),
                    arguments: arguments.to_string(),
                });
            }
            reply
        }
    });
    let join = Join { project: Some(project.display().to_string()), ..Join::default() };
    engine.runtime.block_on(async {
        let mut joined = engine.engine.join(OWNER, join).await.expect("joined");
        engine.send_in(&mut joined, "one", "try everything").await;
    });
    engine
}

/// Each call of a tool is decided by the door exactly once, and nothing is performed without that decision. If a rule cannot be
/// evaluated, every call is denied and nothing is performed.
///
/// Rows: WIN-099
#[test]
fn needs_userns_every_call_is_decided_once_before_it_runs_and_denied_if_the_rules_fail() {
    let registry = Registry::core_tools();
    let calls = call_of_each_tool();
    let named: BTreeSet<&str> = calls.iter().map(|(name, _)| *name).collect();
    // Only the role of the proxy hands a message over with `plan`.
    let tools = registry.tools().map(Tool::name).filter(|name| *name != "plan");
    assert_eq!(named, tools.collect::<BTreeSet<_>>(), "every tool of an agent is called");
    for rules in ["", BROKEN] {
        let project = tempfile::tempdir().expect("a folder");
        std::fs::write(project.path().join("notes.md"), "the heron\n").expect("written");
        let engine = call_each_tool(rules, project.path());
        let (mut begun, mut kinds) = (BTreeMap::new(), Vec::new());
        for fact in engine.facts("intent") {
            if let Fact::Intent { attempt, action, call: Some(call), .. } = fact {
                assert_eq!(begun.insert(attempt, call), None);
                kinds.push(action.kind());
            }
        }
        let ids: BTreeSet<&String> = begun.values().collect();
        assert_eq!(ids.len(), begun.len(), "no call is begun twice: {begun:?}");
        let denials = engine.denials();
        for fact in engine.facts("asked") {
            let Fact::Asked { action, .. } = fact else { continue };
            // The harness itself asks to bring the changes of the turn into the project.
            if !matches!(&action, Action::WriteFile(write) if write.place == Place::Project) {
                kinds.push(action.kind());
            }
        }
        let expected = |name: &str| registry.find_tool(name).expect("a tool").actions()[0];
        let mut decided: Vec<&str> = kinds.iter().map(|kind| kind.as_str()).collect();
        decided.extend(denials.iter().map(|(kind, _)| *kind));
        let mut due: Vec<&str> = calls.iter().map(|(name, _)| expected(name).as_str()).collect();
        if !rules.is_empty() {
            // Ten denials end the turn.
            assert_eq!(due.len().min(denials.len()), 10, "{denials:?}");
            due.truncate(10);
        }
        decided.sort_unstable();
        due.sort_unstable();
        assert_eq!(decided, due, "one decision for each call");
        let mut ended = BTreeSet::new();
        for fact in engine.facts("outcome") {
            let Fact::Outcome { attempt, .. } = fact else { continue };
            assert!(begun.contains_key(&attempt), "nothing has an outcome without a decision");
            ended.insert(attempt);
        }
        assert_eq!(ended.len(), begun.len());
        if rules.is_empty() {
            assert!(begun.len() > 10, "{begun:?} {denials:?}");
        } else {
            assert!(begun.is_empty(), "nothing is performed: {begun:?}");
            assert!(denials.iter().all(|(_, reason)| *reason == DenyReason::Rule), "{denials:?}");
        }
        engine.end();
    }
}
