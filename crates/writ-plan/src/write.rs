//! Writes a plan as a document, from which `read_plan` reads the same plan.

use std::fmt::Write as _;

use serde_json::{Map, Value};
use writ_types::action::Free;
use writ_types::unit::MicroUsd;
use writ_types::work::{Check, JsonExpectation, PlanDocument, PlannedCall, Predicate, WorkBudget, WorkStep};

use crate::body::{CONTEXT, WHAT_TO_DO};
use crate::yaml::is_plain_text;

/// Writes a plan as a document. The same plan always gives the same text.
pub fn write_plan(plan: &PlanDocument) -> String {
    let mut front = Map::new();
    put(&mut front, "id", &plan.id);
    put(&mut front, "type", plan.kind.name());
    put(&mut front, "title", &plan.title);
    put_list(&mut front, "skills", &plan.skills);
    put_budget(&mut front, &plan.budget);
    if let Some(cycle) = plan.cycle {
        front.insert("every_minutes".to_owned(), cycle.every_minutes.into());
        put(&mut front, "on_failure", cycle.on_failure.name());
    }
    put_all(&mut front, "steps", plan.steps.iter().map(step_value));
    put_all(&mut front, "verify", plan.checks.iter().map(check_value));
    put_list(&mut front, "gates", &plan.gates);
    put(&mut front, "on_stuck", plan.on_stuck.name());
    if let Some(mode) = plan.interaction {
        put(&mut front, "interaction", mode.name());
    }
    let mut text = String::from("---\n");
    write_map(&mut text, &front, 0);
    text.push_str("---\n");
    for (heading, section) in [(CONTEXT, &plan.context), (WHAT_TO_DO, &plan.instructions)] {
        if !section.is_empty() {
            // Writing to a `String` cannot fail.
            let _ = write!(text, "\n# {heading}\n\n{section}\n");
        }
    }
    text
}

fn put(map: &mut Map<String, Value>, key: &str, text: &str) {
    map.insert(key.to_owned(), Value::String(text.to_owned()));
}

fn put_list(map: &mut Map<String, Value>, key: &str, texts: &[String]) {
    put_all(map, key, texts.iter().map(|text| Value::String(text.clone())));
}

fn put_all(map: &mut Map<String, Value>, key: &str, values: impl Iterator<Item = Value>) {
    let values: Vec<Value> = values.collect();
    if !values.is_empty() {
        map.insert(key.to_owned(), Value::Array(values));
    }
}

fn put_budget(map: &mut Map<String, Value>, budget: &WorkBudget) {
    let mut inner = Map::new();
    if let Some(tokens) = budget.max_tokens {
        inner.insert("max_tokens".to_owned(), tokens.get().into());
    }
    if let Some(cost) = budget.max_cost {
        put(&mut inner, "max_cost_usd", &dollars(cost));
    }
    if let Some(attempts) = budget.max_attempts {
        inner.insert("max_attempts".to_owned(), attempts.into());
    }
    if !inner.is_empty() {
        map.insert("budget".to_owned(), Value::Object(inner));
    }
}

/// Writes an amount in dollars, with two digits after the point, or up to six if it has more.
fn dollars(cost: MicroUsd) -> String {
    let (whole, part) = (cost.get() / 1_000_000, format!("{:06}", cost.get() % 1_000_000));
    let part = part.trim_end_matches('0');
    format!("{whole}.{part:0<2}")
}

fn step_value(step: &WorkStep) -> Value {
    let mut map = Map::new();
    put(&mut map, "id", &step.id);
    put(&mut map, "title", &step.title);
    put(&mut map, "do", &step.instructions);
    for (key, list) in [
        ("after", &step.after),
        ("artifacts_from", &step.artifacts_from),
        ("tools", &step.tools),
        ("skills", &step.skills),
        ("writes", &step.writes),
    ] {
        put_list(&mut map, key, list);
    }
    if let Some(mode) = step.interaction {
        put(&mut map, "interaction", mode.name());
    }
    put_budget(&mut map, &step.budget);
    put_all(&mut map, "verify", step.checks.iter().map(check_value));
    put_all(&mut map, "calls", step.calls.iter().map(call_value));
    Value::Object(map)
}

fn call_value(call: &PlannedCall) -> Value {
    let mut map = Map::new();
    put(&mut map, "tool", &call.tool);
    if !call.arguments.is_empty() {
        map.insert("arguments".to_owned(), Value::Object(call.arguments.clone()));
    }
    map.insert("times".to_owned(), call.times.into());
    if let Some(free) = call.free {
        let name = match free {
            Free::Nothing => "nothing",
            Free::Content => "content",
            Free::Page => "page",
        };
        put(&mut map, "free", name);
    }
    Value::Object(map)
}

fn check_value(check: &Check) -> Value {
    let mut map = Map::new();
    put(&mut map, "name", &check.name);
    put_list(&mut map, "run", &check.run);
    if let Some(dir) = &check.dir {
        put(&mut map, "dir", dir);
    }
    if let Some(secs) = check.timeout_secs {
        map.insert("timeout_secs".to_owned(), secs.into());
    }
    put_all(&mut map, "expect", check.expect.iter().map(predicate_value));
    Value::Object(map)
}

fn predicate_value(predicate: &Predicate) -> Value {
    let value = match predicate {
        Predicate::ExitCode { code } => Value::from(*code),
        Predicate::Equals { text } | Predicate::Contains { text } => Value::String(text.clone()),
        Predicate::Regex { pattern } => Value::String(pattern.clone()),
        Predicate::OutputLt { limit } | Predicate::OutputGt { limit } => Value::String(limit.clone()),
        Predicate::FileExists { path } => Value::String(path.clone()),
        Predicate::NotEmpty => Value::Bool(true),
        Predicate::Json { path, value } => {
            let mut map = Map::new();
            put(&mut map, "path", path);
            match value {
                JsonExpectation::Equals { value } => {
                    map.insert("equals".to_owned(), value.clone());
                }
                JsonExpectation::Lt { limit } => put(&mut map, "lt", limit),
                JsonExpectation::Gt { limit } => put(&mut map, "gt", limit),
                JsonExpectation::Exists => {
                    map.insert("exists".to_owned(), Value::Bool(true));
                }
            }
            Value::Object(map)
        }
    };
    Value::Object(Map::from_iter([(predicate.name().to_owned(), value)]))
}

fn write_map(out: &mut String, map: &Map<String, Value>, indent: usize) {
    for (n, (key, value)) in map.iter().enumerate() {
        // The first key of a list item stands on the line of its `- `, so it is not indented.
        if n > 0 || indent == 0 {
            out.push_str(&" ".repeat(indent));
        }
        let key = if is_bare_key(key) { key.clone() } else { quote(key) };
        match value {
            Value::Object(inner) if !inner.is_empty() => {
                let _ = write!(out, "{key}:\n{}", " ".repeat(indent.saturating_add(2)));
                write_map(out, inner, indent.saturating_add(2));
            }
            // A list of mappings gets a line for each key; a list of texts stays on one line.
            Value::Array(items) if items.iter().any(Value::is_object) => {
                let _ = writeln!(out, "{key}:");
                for item in items {
                    write_item(out, item, indent.saturating_add(2));
                }
            }
            Value::String(text) if is_block(text) => {
                let _ = writeln!(out, "{key}: |");
                for line in text.lines() {
                    // An empty line gets no indent: a reader would drop the blanks.
                    let space = if line.is_empty() { 0 } else { indent.saturating_add(2) };
                    let _ = writeln!(out, "{}{line}", " ".repeat(space));
                }
            }
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Array(_)
            | Value::Object(_) => {
                let _ = writeln!(out, "{key}: {}", short(value));
            }
        }
    }
}

fn write_item(out: &mut String, item: &Value, indent: usize) {
    let _ = write!(out, "{}- ", " ".repeat(indent));
    match item.as_object().filter(|map| !map.is_empty()) {
        Some(map) => write_map(out, map, indent.saturating_add(2)),
        None => {
            let _ = writeln!(out, "{}", short(item));
        }
    }
}

/// Writes a value on one line.
fn short(value: &Value) -> String {
    match value {
        // Quotation marks are written only where they are needed, since people read the plan too.
        Value::String(text) if is_bare(text) => text.clone(),
        Value::String(text) => quote(text),
        Value::Array(items) => format!("[{}]", items.iter().map(short).collect::<Vec<_>>().join(", ")),
        Value::Object(map) => {
            let entry = |(key, value): (&String, &Value)| {
                let key = if is_bare_key(key) { key.clone() } else { quote(key) };
                format!("{key}: {}", short(value))
            };
            format!("{{{}}}", map.iter().map(entry).collect::<Vec<_>>().join(", "))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

/// Returns true if a text without quotation marks is read back unchanged, also inside brackets.
fn is_bare(text: &str) -> bool {
    let is_safe = |c: char| {
        c.is_alphanumeric() || matches!(c, ' ' | '_' | '-' | '.' | '/' | '=' | '+' | '$' | '(' | ')')
    };
    let starts = text.starts_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '/' | '$'));
    starts && text.trim() == text && text.chars().all(is_safe) && is_plain_text(text)
}

fn is_bare_key(key: &str) -> bool {
    !key.is_empty()
        && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
        && !key.starts_with('-')
}

/// Returns true if a text has several lines, and a block (`|`) can hold it unchanged.
fn is_block(text: &str) -> bool {
    let is_safe_line = |line: &str| line.trim_end() == line && !line.chars().any(char::is_control);
    let first = text.lines().next().unwrap_or_default();
    text.contains('\n')
        && text.trim() == text
        && !first.starts_with(' ')
        && text.split('\n').all(is_safe_line)
}

fn quote(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            '\r' => quoted.push_str("\\r"),
            // The other line breaks of Unicode would be read as new lines of the document.
            c if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{85}') => {
                let _ = write!(quoted, "\\u{:04x}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}
