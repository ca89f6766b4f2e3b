//! A model that answers at once, over loopback in a provider's wire format.
//!
//! It does what the message says: `memory_store 4 …` or `file_write 1 …` calls that tool so often in one
//! answer and then says that it is done; `hold` is answered when a line comes on standard input; `soak FILE WORD`
//! appends the word to the file with a command, then remembers it, then says that it is done; `presence …` is for
//! [`crate::presence`]; requests for `request…` are kept, and printed when standard input says `requests`.

use std::collections::VecDeque;
use std::io::BufRead as _;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use serde_json::{Value, json};
use writ_testkit::model_server::{
    ModelServer, ParsedMessage, ParsedRequest, Reply, ReplyFault, ReplyGate, ServerOptions,
};
use writ_types::chat::Role;

use crate::presence;

/// The most calls of one answer.
const MAX_CALLS: u32 = 8;
/// The most requests that are kept: what is compared is two.
const MAX_REQUESTS: usize = 8;

/// Requests as they came, oldest first.
type Requests = Arc<Mutex<VecDeque<Value>>>;

/// Serves until standard input ends. The first line of output is where: `{"base_url": …}`.
pub(crate) fn run() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let gate = ReplyGate::new();
    let held = gate.clone();
    // Nobody asks for what was asked: it would take more memory than what is measured.
    let options = ServerOptions { recorded: Some(0), ..ServerOptions::default() };
    let requests = Requests::default();
    let kept = Arc::clone(&requests);
    let script = move |request: &ParsedRequest| {
        keep(request, &kept);
        answer(request, &held)
    };
    let server = runtime.block_on(ModelServer::start_with(options, script))?;
    println!("{}", json!({ "base_url": server.base_url() }));
    for line in std::io::stdin().lock().lines() {
        if line? == "requests" {
            println!("{}", json!(*requests.lock().unwrap_or_else(PoisonError::into_inner)));
        } else {
            gate.open();
        }
    }
    runtime.block_on(server.stop());
    Ok(())
}

/// Keeps a request that is to be looked at.
fn keep(request: &ParsedRequest, requests: &Requests) {
    if !request.last_user_text().starts_with("request") {
        return;
    }
    let mut requests = requests.lock().unwrap_or_else(PoisonError::into_inner);
    if requests.len() == MAX_REQUESTS {
        requests.pop_front();
    }
    requests.push_back(request.raw.clone());
}

fn answer(request: &ParsedRequest, gate: &ReplyGate) -> Reply {
    if let Some(reply) = presence::answer(request).or_else(|| soak(request)) {
        return reply.with_usage(1, 1);
    }
    let message = request.last_user_text();
    let fresh = request.messages.last().is_some_and(|last| last.results.is_empty());
    let mut words = message.split(' ');
    let (tool, count) = (words.next().unwrap_or_default(), words.next().and_then(|n| n.parse::<u32>().ok()));
    let reply = match count {
        Some(count) if fresh && count > 0 => (0..count.min(MAX_CALLS))
            .fold(Reply::default(), |reply, n| reply.and_call(tool, arguments(tool, message, n))),
        None if tool == "hold" => Reply::text("Done.").with_fault(ReplyFault::SlowFirstByte(gate.clone())),
        Some(_) | None => Reply::text("Done."),
    };
    reply.with_usage(1, 1)
}

/// One tool after the other, by how many have answered since the message.
fn soak(request: &ParsedRequest) -> Option<Reply> {
    let asked = |message: &ParsedMessage| message.role == Role::User && message.text.starts_with("soak ");
    let from = request.messages.iter().rposition(asked)?;
    let (message, after) = request.messages.get(from..)?.split_first()?;
    let mut words = message.text.split_whitespace().skip(1);
    let (file, word) = (words.next()?, words.next()?);
    Some(match after.iter().map(|message| message.results.len()).sum() {
        0_usize => {
            let command = format!("echo {word} >> {file}");
            Reply::call("shell_exec", json!({ "argv": ["sh", "-c", command] }))
        }
        1 => {
            let name = file.trim_end_matches(".txt");
            Reply::call("memory_store", json!({ "text": format!("note {name} {word}") }))
        }
        _ => Reply::text("Done."),
    })
}

fn arguments(tool: &str, message: &str, n: u32) -> Value {
    match tool {
        "file_write" => {
            json!({ "path": format!("{}-{n}.txt", message.replace(' ', "-")), "content": message })
        }
        _ => json!({ "text": format!("{message}: {n}") }),
    }
}
