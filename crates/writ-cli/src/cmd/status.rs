//! `writ status`: what the engine does. It is asked, not started.

use serde_json::{Value, json};

use crate::client::Client;
use crate::context::Context;
use crate::failure::Failure;
use crate::interrupt::block_on;

/// Runs `writ status`.
pub(crate) fn run(context: &Context) -> Result<(), Failure> {
    context.ready()?;
    block_on(async {
        let Some(mut client) = Client::connect(context).await? else {
            return context.out.either(&json!({ "engine": "not running" }), |_| {
                vec!["no engine is running; the first command that needs one starts it".into()]
            });
        };
        let mut status = client.call("status", json!({})).await?;
        if let Value::Object(fields) = &mut status {
            fields.insert("engine".into(), "running".into());
        }
        context.out.either(&status, lines)
    })
}

fn lines(status: &Value) -> Vec<String> {
    let text = |path: &str| match status.pointer(path) {
        Some(Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
        None => "unknown".into(),
    };
    let running = status.get("running").and_then(Value::as_array).map_or(0, Vec::len);
    let unknown = status.get("open_intents").and_then(Value::as_array).map_or(0, Vec::len);
    let mut lines = vec![
        format!("engine     running since {} (agent {})", text("/started_at"), text("/agent")),
        format!("turns      {running} running, {} finished since the start", text("/turns_finished")),
        format!("messages   {} waiting, {} given up", text("/queue/ready"), text("/queue/dead")),
        format!("asks       {} open", text("/open_asks")),
        format!("today      {} of {} tokens", text("/today/tokens"), text("/today/limit")),
        format!("ledger     {} entries", text("/ledger")),
    ];
    if unknown > 0 {
        lines.push(format!("unknown    {unknown} actions were begun and their outcome is not known"));
    }
    if status.get("model").and_then(Value::as_bool) == Some(false) {
        lines.push("model      none is configured: set models.default in config.toml".into());
    }
    lines
}
