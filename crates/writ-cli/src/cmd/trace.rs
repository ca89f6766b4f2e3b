//! `writ trace`: what happened in a turn, from the ledger and the turn's stored events. No engine is needed.

use serde::Serialize;
use writ_agent::event::StoredEvent;
use writ_inspect::show::escape_line;
use writ_store::config::MAX_READ_ROWS;
use writ_store::ledger::row::{LedgerQuery, LedgerRow};
use writ_store::store::Store;
use writ_store::turns::TurnRow;
use writ_types::error::Exit;
use writ_types::id::EntrySeq;

use crate::args::TraceArgs;
use crate::context::Context;
use crate::failure::Failure;
use crate::ledger::open_to_read;
use steps::{Totals, TraceStep};

mod steps;

/// The most entries of one turn that are read; a turn has a few for each of its bounded steps.
const MAX_ENTRIES: usize = 10 * MAX_READ_ROWS;
/// The longest detail of a line, in characters.
const MAX_DETAIL_CHARS: usize = 120;

/// A turn, as it is shown.
#[derive(Debug, Serialize)]
struct Trace {
    turn: String,
    session: String,
    number: u64,
    state: String,
    /// What the turn is about.
    interaction_register: &'static str,
    /// How it deals with its person.
    interaction_mode: &'static str,
    /// The trace id under which a collector has it.
    trace_id: String,
    started_at: String,
    ended_at: Option<String>,
    /// From its begin to its end, in milliseconds.
    duration_ms: Option<u64>,
    /// The time that its message waited before, in milliseconds.
    waited_ms: Option<u64>,
    totals: Totals,
    steps: Vec<TraceStep>,
    /// True if there are more entries than are shown.
    truncated: bool,
}

/// Runs `writ trace`.
pub(crate) fn run_trace(context: &Context, args: &TraceArgs) -> Result<(), Failure> {
    let config = context.load_ready_config()?;
    let store = open_to_read(context, &config)?;
    let turn = match args.turn {
        Some(id) => store.blocking().turn(id)?,
        None => store.blocking().newest_turn(args.session)?,
    };
    let Some(turn) = turn else {
        let hint = "`writ audit search --event phase --json` names the turns there are";
        return Err(Failure::new(Exit::Usage, "trace.no_turn", "there is no such turn", hint));
    };
    let trace = read_trace(&store, &turn)?;
    context.out.print_either(&trace, describe_trace)
}

fn read_trace(store: &Store, turn: &TurnRow) -> Result<Trace, Failure> {
    let (rows, truncated) = turn_entries(store, turn)?;
    let events: Vec<StoredEvent> = store
        .blocking()
        .turn_events(turn.id)?
        .into_iter()
        // Events of a newer version are left out, and the rest is still shown.
        .filter_map(|event| StoredEvent::decode_json(&event).ok())
        .collect();
    let (steps, totals) = steps::steps_of(turn, &rows, &events);
    let received = store.blocking().ledger_search(&LedgerQuery {
        event: Some("received".to_owned()),
        session: Some(turn.session),
        text: Some(turn.message.to_string()),
        limit: 1,
        // The message is found by its id in the entry's text.
        ..LedgerQuery::default()
    })?;
    let waited = received.first().map(|row| steps::millis(turn.started_at.time_since(row.at)));
    Ok(Trace {
        turn: turn.id.to_string(),
        session: turn.session.to_string(),
        number: turn.number,
        state: turn.state.clone(),
        interaction_register: turn.register.name(),
        interaction_mode: turn.mode.name(),
        trace_id: hex::encode(turn.id.to_bytes()),
        started_at: turn.started_at.to_string(),
        ended_at: turn.ended_at.map(|at| at.to_string()),
        duration_ms: turn.ended_at.map(|at| steps::millis(at.time_since(turn.started_at))),
        waited_ms: waited,
        totals,
        steps,
        truncated,
    })
}

/// The entries of a turn, oldest first, and whether there are more.
fn turn_entries(store: &Store, turn: &TurnRow) -> Result<(Vec<LedgerRow>, bool), Failure> {
    let mut rows: Vec<LedgerRow> = Vec::new();
    let mut before: Option<EntrySeq> = None;
    // The newest entries are read first, page by page.
    loop {
        let query =
            LedgerQuery { turn: Some(turn.id), before, limit: MAX_READ_ROWS, ..LedgerQuery::default() };
        let page = store.blocking().ledger_search(&query)?;
        let last = page.last().map(|row| row.seq);
        let full = page.len() >= MAX_READ_ROWS;
        rows.extend(page);
        if !full || rows.len() >= MAX_ENTRIES {
            // Read backwards, shown forwards.
            rows.reverse();
            return Ok((rows, full));
        }
        before = last;
    }
}

fn describe_trace(trace: &Trace) -> Vec<String> {
    let mut lines = vec![format!(
        "turn {}, number {} of session {}: {}{}",
        trace.turn,
        trace.number,
        trace.session,
        escape_line(&trace.state),
        trace.duration_ms.map(|ms| format!(" after {}", format_seconds(ms))).unwrap_or_default(),
    )];
    lines.push(format!("about: {}; way: {}", trace.interaction_register, trace.interaction_mode));
    if let Some(ms) = trace.waited_ms {
        lines.push(format!("its message had waited {}", format_seconds(ms)));
    }
    lines.extend(trace.steps.iter().map(describe_step));
    if trace.truncated {
        lines.push(format!("only the newest {MAX_ENTRIES} entries are shown"));
    }
    let Totals { model_calls, model_ms, input_tokens, output_tokens, actions, action_ms, denied, asked } =
        &trace.totals;
    lines.push(format!(
        "{model_calls} model calls in {}, {input_tokens} tokens in and {output_tokens} out; {actions} actions in {}; \
         {denied} denied, {asked} asked",
        format_seconds(*model_ms),
        format_seconds(*action_ms),
    ));
    lines
}

/// One step as one line that cannot deceive a terminal.
fn describe_step(step: &TraceStep) -> String {
    let detail = escape_line(&step.detail);
    let mut short: String = detail.chars().take(MAX_DETAIL_CHARS).collect();
    if short.len() < detail.len() {
        short.push('…');
    }
    let took = step.duration_ms.map(format_seconds).unwrap_or_default();
    let mark = if step.intact { "" } else { "  NOT INTACT" };
    let outcome = if step.outcome.is_empty() { String::new() } else { format!(" [{}]", step.outcome) };
    format!("{:>+11.3} s {took:>10}  {:<9} {short}{outcome}{mark}", as_secs(step.offset_ms), step.kind)
}

fn format_seconds(ms: u64) -> String {
    format!("{:.3} s", as_secs(ms))
}

fn as_secs(ms: u64) -> f64 {
    std::time::Duration::from_millis(ms).as_secs_f64()
}
