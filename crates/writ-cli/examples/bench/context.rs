//! The assembly of a context of 10,000 messages: with room for all, and with room for a part.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Result, ensure};
use serde_json::json;
use writ_agent::config::ContextConfig;
use writ_agent::context::assemble_context;
use writ_agent::event::ContextSeed;
use writ_types::chat::ChatMessage;
use writ_types::taint::{Label, Taint};
use writ_types::unit::Tokens;

use crate::measured::{Measured, since};

/// How many messages there are.
const MESSAGES: usize = 10_000;
/// The windows, with the names of what is measured: all of it fits, and about a tenth.
const WINDOWS: [(u64, &str); 2] = [(4_000_000, "context-all"), (60_000, "context-tenth")];

/// Measures both.
pub(crate) fn run(rounds: u32) -> Result<()> {
    let seed = conversation()?;
    let current: Vec<ChatMessage> = vec![said("user", "and now?")?];
    for (total, what) in WINDOWS {
        let config = ContextConfig { total_tokens: Tokens::new(total), ..ContextConfig::default() };
        let mut nanos = Vec::new();
        for _ in 0..rounds {
            let start = Instant::now();
            let made = assemble_context(&config, black_box(&seed), &[], &current, Tokens::new(8_192))?;
            nanos.push(since(start));
            ensure!(made.total_tokens() <= config.eviction_threshold(), "it does not fit");
        }
        let took_nanos = nanos.iter().sum();
        Measured { what, nanos, rows: u64::try_from(MESSAGES)? * u64::from(rounds), took_nanos }.print()?;
    }
    Ok(())
}

/// Requests and answers in turn, with a step and its result in every tenth.
fn conversation() -> Result<ContextSeed> {
    let mut history = Vec::with_capacity(MESSAGES);
    while history.len() < MESSAGES {
        let n = history.len();
        history.push(said("user", &format!("{n}: please look at the next of these files"))?);
        if n % 10 == 0 {
            let id = format!("c{n}");
            history.push(message(
                "assistant",
                &json!({ "part": "call", "id": id, "name": "file_read", "arguments": {} }),
            )?);
            let text = "a line of the file, and another\n".repeat(30);
            let label = Label::new(Taint::External);
            let result = json!({ "part": "result", "call_id": id, "name": "file_read", "outcome": "done", "text": text,
                                 "label": label });
            history.push(message("tool", &result)?);
        }
        history.push(said("assistant", &"It says that nothing has changed since the last time. ".repeat(4))?);
    }
    let history = history.into_iter().map(Arc::new).collect::<Vec<_>>();
    let seed = json!({
        "system": [], "tools": [], "owner_profile": [], "history": [], "rehydrated": false, "profile": "conversation",
        "budget": { "used": 0, "limit": 500_000, "given": null },
    });
    Ok(ContextSeed { history, ..serde_json::from_value(seed)? })
}

fn said(role: &str, text: &str) -> Result<ChatMessage> {
    message(role, &json!({ "part": "text", "text": text }))
}

fn message(role: &str, part: &serde_json::Value) -> Result<ChatMessage> {
    let label = Label::new(Taint::Owner);
    Ok(serde_json::from_value(json!({ "role": role, "parts": [part], "label": label }))?)
}
