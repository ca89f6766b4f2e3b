//! `writ memory`: what is remembered.

use serde_json::{Value, json};
use writ_inspect::show::escape_line;
use writ_runtime::methods::Method;
use writ_types::error::Exit;

use crate::args::MemoryCommand;
use crate::client::EngineClient;
use crate::context::Context;
use crate::failure::Failure;
use crate::interrupt::block_on;

/// Runs `writ memory …`.
pub(crate) fn run_memory(context: &Context, command: &MemoryCommand) -> Result<(), Failure> {
    context.load_ready_config()?;
    if let MemoryCommand::Add { text, .. } = command
        && text.trim().is_empty()
    {
        let hint = "say what, such as: writ memory add \"the staging host is called heron\"";
        return Err(Failure::new(Exit::Usage, "cli.empty", "there is nothing to remember", hint));
    }
    block_on(async {
        let mut client = EngineClient::ensure(context).await?;
        match command {
            MemoryCommand::Search { query, limit } => {
                let found = client
                    .call_method(Method::MemorySearch, json!({ "query": query, "limit": limit }))
                    .await?;
                context.out.print_either(&found, describe_memories)
            }
            MemoryCommand::Add { text, kind } => {
                let added =
                    client.call_method(Method::MemoryAdd, json!({ "text": text, "kind": kind })).await?;
                context.out.print_either(&added, |added| {
                    vec![format!(
                        "remembered as {}",
                        added.get("id").and_then(Value::as_str).unwrap_or_default()
                    )]
                })
            }
            MemoryCommand::Forget { id } => {
                let forgotten = client.call_method(Method::MemoryForget, json!({ "id": id })).await?;
                context.out.print_either(&forgotten, |_| vec![format!("forgotten: {id}")])
            }
        }
    })
}

pub(super) fn describe_memories(found: &Value) -> Vec<String> {
    let hits = found.get("hits").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let note = found.get("note").and_then(Value::as_str).map(str::to_owned);
    if hits.is_empty() {
        return vec![note.unwrap_or_else(|| "nothing found".into())];
    }
    let line = |hit: &Value| {
        let text = |name: &str| hit.get(name).and_then(Value::as_str).unwrap_or_default();
        format!("{}  {} ({}, {})", text("id"), escape_line(text("text")), text("kind"), text("trust"))
    };
    hits.iter().map(line).chain(note).collect()
}
