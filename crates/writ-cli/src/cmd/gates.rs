//! `writ gates`: what the gates say of cases, as the engine runs them, and the cases that they have transferred to a queue. Nothing is
//! performed, and nothing follows a block.

use std::path::Path;

use serde::Deserialize;
use serde_json::{Value, json};
use writ_inspect::show::escape_line;
use writ_store::ledger::row::{LedgerQuery, LedgerRow};
use writ_types::entry::{GatePoint, GateVerdict};
use writ_types::error::Exit;

use crate::args::GatesCommand;
use crate::cmd::cases;
use crate::config::Config;
use crate::context::Context;
use crate::failure::Failure;
use crate::ledger::open_to_read;

/// The kind of the ledger's entries about cases.
const EVENT: &str = "escalated";

/// The entries that are read at once.
const PAGE: usize = 500;

/// The most cases of one file: a script runs for each.
const MAX_CASES: usize = 1_000;

/// One case: a text, or an action as the ledger writes it, and what is expected of the gates.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GateTestCase {
    name: String,
    on: GatePoint,
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    action: Option<Value>,
    #[serde(default)]
    tool: String,
    /// The arguments of the model's call, for scripts.
    #[serde(default)]
    arguments: Option<Value>,
    expect: GateVerdict,
    /// The text that is expected to go on; without it, any may.
    #[serde(default)]
    becomes: Option<String>,
    /// The gates that are expected to say it; without them, any may.
    #[serde(default)]
    gates: Option<Vec<String>>,
}

/// Runs `writ gates …`.
pub(crate) fn run_gates(context: &Context, command: &GatesCommand) -> Result<(), Failure> {
    let config = context.load_ready_config()?;
    match command {
        GatesCommand::Test { file } => test_gates(context, file),
        GatesCommand::Queue { queue, lines } => show_queue(context, &config, queue, *lines),
    }
}

/// Shows the cases of a queue, from the ledger. It needs no engine, and takes nothing out.
fn show_queue(context: &Context, config: &Config, queue: &str, lines: usize) -> Result<(), Failure> {
    let to = format!("queue {queue}");
    let is_in_queue = |row: &LedgerRow| {
        row.payload.as_ref().and_then(|payload| payload.get("to")?.as_str()) == Some(to.as_str())
    };
    let store = open_to_read(context, config)?;
    let (mut cases, mut before) = (Vec::new(), None);
    while cases.len() < lines {
        let query =
            LedgerQuery { event: Some(EVENT.to_owned()), before, limit: PAGE, ..LedgerQuery::default() };
        let rows = store.blocking().ledger_search(&query)?;
        before = rows.last().map(|row| row.seq);
        let is_last = rows.len() < PAGE;
        cases.extend(rows.into_iter().filter(is_in_queue).take(lines - cases.len()));
        if is_last {
            break;
        }
    }
    context.out.print_either(&cases, |cases| match cases.as_slice() {
        [] => vec![format!("no case is in the queue '{}'", escape_line(queue))],
        cases => cases.iter().map(describe_case).collect(),
    })
}

fn describe_case(row: &LedgerRow) -> String {
    let reason = row.payload.as_ref().and_then(|payload| payload.get("reason")?.as_str());
    format!("{:>6}  {}  {}", row.seq.0, row.at, escape_line(reason.unwrap_or_default()))
}

fn test_gates(context: &Context, file: &Path) -> Result<(), Failure> {
    let cases = read_gate_cases(file)?;
    let params = |case: &GateTestCase| {
        json!({
            "on": case.on, "text": case.text.as_deref().unwrap_or_default(), "action": case.action,
            "tool": case.tool, "arguments": case.arguments,
        })
    };
    cases::judge_cases(context, &cases, params, compare_case, describe_result)
}

/// Returns the expected and the actual verdict, and if they are equal.
fn compare_case(case: &GateTestCase, judged: &Value) -> Value {
    let said = |name: &str| judged.get(name).cloned().unwrap_or_default();
    let verdict = said("verdict");
    let all = said("gates");
    let all = all.as_array().map(Vec::as_slice).unwrap_or_default();
    // The gates that decided: those with the final verdict.
    let deciding = all.iter().filter(|gate| gate.get("verdict") == Some(&verdict));
    let mut names: Vec<&str> = deciding.filter_map(|gate| gate.get("gate")?.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    // A case may leave out the gates; then any will do.
    let same_gates = case.gates.as_ref().is_none_or(|wanted| {
        let mut wanted: Vec<&str> = wanted.iter().map(String::as_str).collect();
        wanted.sort_unstable();
        wanted == names
    });
    let same_text = case.becomes.as_ref().is_none_or(|wanted| said("text") == json!(wanted));
    json!({
        "case": case.name, "expected": case.expect, "verdict": verdict, "gates": all, "after": said("after"),
        "text": said("text"), "passed": verdict == json!(case.expect) && same_gates && same_text,
    })
}

fn describe_result(result: &Value) -> String {
    let text = |value: &Value, name: &str| {
        value.get(name).and_then(Value::as_str).map(escape_line).unwrap_or_default()
    };
    let gates = result.get("gates").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    // Gates that passed have nothing to explain.
    let spoke = gates.iter().filter(|gate| gate.get("verdict") != Some(&json!(GateVerdict::Pass)));
    let why: Vec<String> = spoke
        .map(|gate| {
            format!("{} says {}: {}", text(gate, "gate"), text(gate, "verdict"), text(gate, "reason"))
        })
        .collect();
    let why = if why.is_empty() { String::new() } else { format!(" ({})", why.join("; ")) };
    let (name, verdict) = (text(result, "case"), text(result, "verdict"));
    if result.get("passed") == Some(&json!(true)) {
        format!("ok      {name}: {verdict}{why}")
    } else {
        format!("FAILED  {name}: {verdict}{why}, expected {}", text(result, "expected"))
    }
}

fn read_gate_cases(file: &Path) -> Result<Vec<GateTestCase>, Failure> {
    let (shown, cases) = (file.display(), cases::read_cases::<GateTestCase>(file, MAX_CASES, case_failure)?);
    for case in &cases {
        // Texts are judged at input and output, actions elsewhere.
        let on_text = matches!(case.on, GatePoint::Input | GatePoint::Output);
        if on_text != case.text.is_some() || on_text == case.action.is_some() {
            let text = format!(
                "case '{}' of {shown}: at 'input' and 'output' a case has 'text', elsewhere 'action'",
                case.name
            );
            return Err(case_failure(&text));
        }
    }
    Ok(cases)
}

fn case_failure(text: &str) -> Failure {
    let hint = "a case has name, on, text or action (as `writ audit export` writes one), and expect";
    Failure::new(Exit::Usage, "gates.cases", text, hint)
}
