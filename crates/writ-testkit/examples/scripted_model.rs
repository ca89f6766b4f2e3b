//! Serves a scripted model over loopback, for tests that are not written in Rust: `scripted_model SCRIPT.json`.
//!
//! The script is a list of `{"when": TEXT, "replies": [{"text", "calls": [{"tool", "arguments"}], "hold": NAME}]}`. A reply
//! with `silent_after` falls silent after so many frames of its stream, one with `error_after` breaks off with an error of the provider, one with `status`
//! is that HTTP error.
//! The first rule whose text is in the person's last message answers, reply after reply as results come in; its last
//! reply is repeated. A reply with `hold` waits until a line with that name comes on standard input. The first line
//! of output is where: `{"base_url": …}`. It serves until standard input ends.

#![expect(clippy::print_stdout, reason = "where it serves is the output")]

use std::collections::BTreeMap;
use std::error::Error;
use std::io::BufRead as _;

use serde_json::{Value, json};
use writ_testkit::model_server::{ModelServer, ParsedRequest, Reply, ReplyFault, ReplyGate};
use writ_types::chat::Role;

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args_os().nth(1).ok_or("usage: scripted_model SCRIPT.json")?;
    let rules: Vec<Value> = serde_json::from_str(&std::fs::read_to_string(path)?)?;
    let gates: BTreeMap<String, ReplyGate> = rules
        .iter()
        .flat_map(replies)
        .filter_map(hold)
        .map(|name| (name.to_owned(), ReplyGate::new()))
        .collect();
    let held = gates.clone();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let server = runtime
        .block_on(ModelServer::start(move |request: &ParsedRequest| answer(&rules, &held, request)))?;
    println!("{}", json!({ "base_url": server.base_url() }));
    for line in std::io::stdin().lock().lines() {
        if let Some(gate) = gates.get(line?.trim()) {
            gate.open();
        }
    }
    runtime.block_on(server.stop());
    Ok(())
}

fn replies(rule: &Value) -> &[Value] {
    rule["replies"].as_array().map_or(&[], Vec::as_slice)
}

fn hold(reply: &Value) -> Option<&str> {
    reply["hold"].as_str()
}

fn answer(rules: &[Value], gates: &BTreeMap<String, ReplyGate>, request: &ParsedRequest) -> Reply {
    let said = request.last_user_text();
    let rule = rules.iter().find(|rule| rule["when"].as_str().is_some_and(|when| said.contains(when)));
    let after = request.messages.iter().rev().take_while(|m| m.role != Role::User || m.text != said);
    let step = after.filter(|message| !message.calls.is_empty()).count();
    let Some(reply) = rule.and_then(|rule| replies(rule).get(step).or_else(|| replies(rule).last())) else {
        return Reply::text("The script has no answer to this.");
    };
    let calls = reply["calls"].as_array().map_or(&[][..], Vec::as_slice).iter();
    let said = Reply::text(reply["text"].as_str().unwrap_or_default());
    let said = calls.fold(said, |said, call| {
        said.and_call(call["tool"].as_str().unwrap_or_default(), call["arguments"].clone())
    });
    match fault(reply, gates) {
        Some(fault) => said.with_fault(fault),
        None => said,
    }
}

/// What goes wrong with a reply, or makes it wait.
fn fault(reply: &Value, gates: &BTreeMap<String, ReplyGate>) -> Option<ReplyFault> {
    let frames = |name: &str| reply[name].as_u64().and_then(|count| usize::try_from(count).ok());
    let status = reply["status"].as_u64().and_then(|status| u16::try_from(status).ok());
    let held = hold(reply).and_then(|name| gates.get(name)).cloned().map(ReplyFault::SlowFirstByte);
    held.or_else(|| frames("silent_after").map(ReplyFault::SilenceAfter))
        .or_else(|| frames("error_after").map(ReplyFault::ErrorEventAfter))
        .or_else(|| status.map(|status| ReplyFault::Status { status, retry_after: None }))
}
