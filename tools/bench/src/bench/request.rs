//! Measures the first request of a turn: its size, and the part that the next turn repeats.

use anyhow::{Result, bail};
use serde_json::Value;

use super::Bench;
use super::engine::Engine;
use super::row::{Row, size};

/// Bytes of a turn's first request with the core tools (design 5).
const FIRST: u64 = 16_000;
/// The part of a turn's first request that is the same as in the turn before (design 5).
const STABLE: f64 = 0.95;
/// The parts of a request, in the order in which a model reads them.
const PARTS: [&str; 3] = ["tools", "system", "messages"];
/// The marks for a provider's cache; the model does not read them, and they move with every turn.
const MARK: &str = "cache_control";

/// Measures the first requests of the first two turns of a session without a project.
pub(super) fn measure(bench: &Bench) -> Result<Vec<Row>> {
    let mut engine = Engine::start(bench, "request")?;
    let mut link = engine.connect()?;
    link.open_session()?;
    link.turn("request: what is new?")?;
    link.turn("request: and what else?")?;
    let requests = engine.requests()?;
    let [first, second] = requests.as_slice() else {
        bail!("two turns sent {} requests", requests.len());
    };
    let tools = first.get("tools").and_then(Value::as_array).map_or(0, Vec::len);
    let parts = PARTS.map(|part| first.get(part).map_or(0, bytes));
    let [of_tools, of_system, of_messages] = parts.map(size);
    let against = format!("{tools} tools {of_tools}, system {of_system}, messages {of_messages}");
    let (before, after) = (read(first), read(second));
    let same = common(before.as_bytes(), after.as_bytes());
    // Exact up to 2^53 bytes.
    let share = same as f64 / after.len().max(1) as f64;
    let of = format!("{same} of {} bytes of the second turn", after.len());
    Ok(vec![
        Row::part("first request of a turn", bytes(first), Some(FIRST), against),
        Row::share("first request: stable", (share, STABLE), of),
    ])
}

/// Bytes of a value as it is sent.
fn bytes(value: &Value) -> u64 {
    value.to_string().len() as u64
}

/// Returns the text for the model, in that order, without marks.
fn read(request: &Value) -> String {
    let part = |name: &&str| request.get(*name).cloned().map(unmarked).unwrap_or_default().to_string();
    PARTS.iter().map(part).collect()
}

fn unmarked(value: Value) -> Value {
    match value {
        Value::Array(items) => items.into_iter().map(unmarked).collect(),
        Value::Object(fields) => {
            let kept = fields.into_iter().filter(|(name, _)| name != MARK);
            Value::Object(kept.map(|(name, value)| (name, unmarked(value))).collect())
        }
        plain @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => plain,
    }
}

/// Returns the length of the common beginning of two texts, in bytes.
fn common(one: &[u8], other: &[u8]) -> usize {
    one.iter().zip(other).take_while(|(one, other)| one == other).count()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_said_before_is_stable_and_marks_do_not_count() {
        let message = |text: &str, marked: bool| {
            let mark = if marked { json!({ "type": "ephemeral" }) } else { Value::Null };
            let mut part = json!({ "type": "text", "text": text });
            if marked {
                part["cache_control"] = mark;
            }
            json!({ "role": "user", "content": [part] })
        };
        let request =
            |messages: &[Value]| json!({ "messages": messages, "system": "S", "tools": [{ "name": "t" }] });
        let first = read(&request(&[message("one", true)]));
        let second = read(&request(&[message("one", false), message("two", true)]));
        assert!(first.starts_with(r#"[{"name":"t"}]"S"[{"#), "{first}");
        // All but the bracket at the end.
        assert_eq!(common(first.as_bytes(), second.as_bytes()), first.len() - 1);
        let other = json!({ "messages": [message("one", true)], "system": "T", "tools": [{ "name": "t" }] });
        assert_eq!(common(first.as_bytes(), read(&other).as_bytes()), r#"[{"name":"t"}]""#.len());
        assert_eq!(common(b"", b"a"), 0);
    }
}
