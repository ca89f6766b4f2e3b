//! Calls of tools: in the format of a provider, and what the model reads of their results.

use serde_json::json;
use writ_testkit::model_server::{ParsedRequest, Reply, ScriptedCall};
use writ_types::entry::Fact;
use writ_types::error::Exit;

use crate::harness::TestEngine;

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
