//! `writ status`: what the engine does. It is asked, not started.

use std::time::Duration;

use serde_json::{Value, json};
use writ_runtime::methods::Method;
use writ_types::error::Exit;

use crate::advice;
use crate::args::StatusArgs;
use crate::client::EngineClient;
use crate::config::Config;
use crate::context::Context;
use crate::failure::Failure;
use crate::interrupt::block_on;
use crate::page;

/// Runs `writ status`.
pub(crate) fn run_status(context: &Context, args: &StatusArgs) -> Result<(), Failure> {
    let config = context.load_ready_config()?;
    if args.link {
        return block_on(print_link(context, &config));
    }
    if args.watch {
        return block_on(watch_status(context, &config, Duration::from_secs(args.every)));
    }
    let status = block_on(current_status(context, &config))?;
    context.out.print_either(&status, describe_status)
}

/// Returns the status that a running engine reports.
async fn current_status(context: &Context, config: &Config) -> Result<Value, Failure> {
    let Some(mut client) = EngineClient::connect(context).await? else {
        // The posture is a property of the configuration and is known without an engine.
        return Ok(json!({ "engine": "not running", "posture": config.describe_posture() }));
    };
    let mut status = client.call_method(Method::Status, json!({})).await?;
    if let Value::Object(fields) = &mut status {
        fields.insert("engine".into(), "running".into());
        fields.insert("advice".into(), advice::main_model(config).into());
    }
    Ok(status)
}

/// Returns a posture as the text of a line; `None` if the value is not a posture.
pub(super) fn in_words(posture: &Value) -> Option<String> {
    let text = |name: &str| posture.get(name).and_then(Value::as_str);
    let strict = if posture.get("strict") == Some(&json!(true)) { ", strict" } else { "" };
    Some(format!("{}, page for {}{strict}", text("users")?, text("page")?))
}

/// Prints the status again when it has changed. The connection is closed in between, so that watching does
/// not keep an engine from ending, and an engine that comes and goes can be watched.
async fn watch_status(context: &Context, config: &Config, every: Duration) -> Result<(), Failure> {
    let terminal = context.host.streams.output.is_terminal();
    let mut shown = Value::Null;
    loop {
        let status = match current_status(context, config).await {
            Ok(status) => status,
            // It went away or fell silent while it was asked.
            Err(Failure::Report(report)) if report.exit == Exit::Blocked => {
                let silent = report.code == "client.silent";
                json!({ "engine": if silent { "not answering" } else { "not running" } })
            }
            Err(failure) => return Err(failure),
        };
        // Only changes are printed.
        if status != shown {
            if context.out.json {
                context.out.json_line(&status)?;
            } else {
                // A terminal shows the newest alone, a file all of them.
                let before = if terminal { "\u{1b}[H\u{1b}[2J" } else { "" };
                context.out.print_line(format!("{before}{}\n", describe_status(&status).join("\n")))?;
            }
            shown = status;
        }
        tokio::time::sleep(every).await;
    }
}

/// Prints a link to the page of the engine that runs.
async fn print_link(context: &Context, config: &Config) -> Result<(), Failure> {
    let (port, _client) = page::find_served(context).await?;
    let link = page::create_link(context, config.server.host, port)?;
    context.out.print_either(&json!({ "link": link }), |_| vec![link.clone()])
}

/// Returns the tokens used, and their cost.
pub(crate) fn describe_costs(status: &Value) -> Vec<String> {
    // The same lines as `/cost` in a conversation.
    vec![
        format!("session    {}", describe_budget(status.get("session"))),
        format!("today      {}", describe_budget(status.get("today"))),
        format!("cost       {}", format_cost(status.pointer("/today/cost_micro_usd"))),
    ]
}

fn describe_status(status: &Value) -> Vec<String> {
    match status.get("engine").and_then(Value::as_str) {
        Some("not running") => {
            return vec!["no engine is running; the first command that needs one starts it".into()];
        }
        Some("not answering") => return vec!["the engine does not answer: it may be stopped".into()],
        Some(_) | None => {}
    }
    let text = |path: &str| match status.pointer(path) {
        Some(Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
        None => "unknown".into(),
    };
    let running = status.get("running").and_then(Value::as_array).map_or(0, Vec::len);
    let unknown = status.get("open_intents").and_then(Value::as_array).map_or(0, Vec::len);
    let mut lines = vec![
        format!("engine     running since {} (agent {})", text("/started_at"), text("/agent")),
        format!("posture    {}", status.get("posture").and_then(in_words).unwrap_or("unknown".into())),
        format!("turns      {running} running, {} finished since the start", text("/turns_finished")),
        format!("messages   {} waiting, {} given up", text("/queue/ready"), text("/queue/dead")),
        format!("asks       {} open", text("/open_asks")),
    ];
    lines.extend(describe_costs(status));
    lines.push(format!("ledger     {} entries", text("/ledger")));
    if unknown > 0 {
        lines.push(format!("unknown    {unknown} actions were begun and their outcome is not known"));
    }
    lines.extend(describe_settings(status.get("settings")));
    if let Some(advice) = status.get("advice").and_then(Value::as_str) {
        lines.push(format!("model      {advice}"));
    }
    if status.get("model").and_then(Value::as_bool) == Some(false) {
        lines.push("model      none is configured: set models.default in config.toml".into());
    }
    lines
}

/// Says what has become of a changed configuration; nothing where it is in force as a whole.
fn describe_settings(settings: Option<&Value>) -> Vec<String> {
    let of = |name: &str| settings.and_then(|settings| settings.get(name));
    let fault = of("fault").and_then(Value::as_str);
    let names: Vec<&str> = of("needs_restart")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let mut lines = Vec::new();
    if let Some(fault) = fault {
        lines.push(format!("settings   config.toml is not in force, the earlier settings are: {fault}"));
    }
    if !names.is_empty() {
        lines.push(format!("settings   in force at the next start: {}", names.join(", ")));
    }
    lines
}

/// `45,000 of 500,000 tokens (9%)`, and whether that is all of them.
fn describe_budget(what: Option<&Value>) -> String {
    let number = |name: &str| what.and_then(|what| what.get(name)).and_then(Value::as_u64);
    let (Some(tokens), Some(limit)) = (number("tokens"), number("limit")) else { return "none yet".into() };
    let mut text = format!(
        "{} of {} tokens ({}%)",
        group_digits(tokens),
        group_digits(limit),
        format_percent(tokens, limit)
    );
    if what.and_then(|what| what.get("paused")).and_then(Value::as_bool) == Some(true) {
        let session = what.and_then(|what| what.get("session")).is_some();
        text.push_str(if session {
            ", paused: send a message to continue"
        } else {
            ", paused: send a message tomorrow to continue"
        });
    }
    text
}

/// The share of a limit with one decimal, if it has one.
fn format_percent(part: u64, whole: u64) -> String {
    // Wide numbers: the product of two counters can exceed 64 bits.
    let tenths = u128::from(part).saturating_mul(1_000).checked_div(u128::from(whole)).unwrap_or(1_000);
    match tenths % 10 {
        0 => (tenths / 10).to_string(),
        tenth => format!("{}.{tenth}", tenths / 10),
    }
}

/// A number with a comma between thousands.
fn group_digits(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (n, digit) in digits.chars().enumerate() {
        // A comma before each group of three, counted from the end.
        if n > 0 && (digits.len() - n).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Money in dollars.
fn format_cost(micro_usd: Option<&Value>) -> String {
    match micro_usd.and_then(Value::as_u64) {
        Some(cost) => format!("${}.{:04} today", cost / 1_000_000, cost % 1_000_000 / 100),
        None => "n/a: a model's price is not known".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(paused: bool, cost: &Value) -> String {
        let status = json!({
            "session": { "session": "S", "tokens": 45_000, "limit": 500_000, "paused": paused },
            "today": { "tokens": 320_000, "limit": 5_000_000, "paused": paused, "cost_micro_usd": cost },
        });
        describe_status(&status).join("\n")
    }

    /// Rows: WIN-367
    #[test]
    fn what_is_used_is_shown_with_its_share_its_cost_and_a_pause() {
        let text = status(false, &json!(12_345_678));
        assert!(text.contains("session    45,000 of 500,000 tokens (9%)\n"), "{text}");
        assert!(text.contains("today      320,000 of 5,000,000 tokens (6.4%)\n"), "{text}");
        assert!(text.contains("cost       $12.3456 today\n"), "{text}");
        assert!(!text.contains("paused"), "{text}");
        let text = status(true, &Value::Null);
        assert!(text.contains("(9%), paused: send a message to continue\n"), "{text}");
        assert!(text.contains("(6.4%), paused: send a message tomorrow to continue\n"), "{text}");
        assert!(text.contains("cost       n/a") && !text.contains('$'), "{text}");
        assert!(status(false, &json!(0)).contains("$0.0000 today"), "what is free costs nothing");
    }

    #[test]
    fn numbers_are_grouped_by_thousands() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(group_digits), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(
            [(1, 3), (2, 2), (0, 5), (3, 0)].map(|(a, b)| format_percent(a, b)),
            ["33.3", "100", "0", "100"]
        );
    }
}
