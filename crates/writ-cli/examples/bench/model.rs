//! A model that answers at once, over loopback in a provider's wire format.
//!
//! It does what the message says: `memory_store 4 …` or `file_write 1 …` calls that tool so often in one
//! answer and then says that it is done; `hold` is answered when a line comes on standard input.

use std::io::BufRead as _;

use anyhow::Result;
use serde_json::{Value, json};
use writ_testkit::model_server::{Fault, Gate, ModelServer, ParsedRequest, Reply};

/// The most calls of one answer.
const MAX_CALLS: u32 = 8;

/// Serves until standard input ends. The first line of output is where: `{"base_url": …}`.
pub(crate) fn run() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let gate = Gate::new();
    let held = gate.clone();
    let server =
        runtime.block_on(ModelServer::start(move |request: &ParsedRequest| answer(request, &held)))?;
    println!("{}", json!({ "base_url": server.base_url() }));
    for line in std::io::stdin().lock().lines() {
        line?;
        gate.open();
    }
    runtime.block_on(server.stop());
    Ok(())
}

fn answer(request: &ParsedRequest, gate: &Gate) -> Reply {
    let message = request.last_user_text();
    let fresh = request.messages.last().is_some_and(|last| last.results.is_empty());
    let mut words = message.split(' ');
    let (tool, count) = (words.next().unwrap_or_default(), words.next().and_then(|n| n.parse::<u32>().ok()));
    let reply = match count {
        Some(count) if fresh && count > 0 => (0..count.min(MAX_CALLS))
            .fold(Reply::default(), |reply, n| reply.and_call(tool, arguments(tool, message, n))),
        None if tool == "hold" => Reply::text("Done.").fault(Fault::SlowFirstByte(gate.clone())),
        Some(_) | None => Reply::text("Done."),
    };
    reply.usage(1, 1)
}

fn arguments(tool: &str, message: &str, n: u32) -> Value {
    match tool {
        "file_write" => {
            json!({ "path": format!("{}-{n}.txt", message.replace(' ', "-")), "content": message })
        }
        _ => json!({ "text": format!("{message}: {n}") }),
    }
}
