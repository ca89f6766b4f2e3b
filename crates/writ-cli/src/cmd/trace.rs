//! `writ trace`: what happened in a turn, from the ledger and the turn's stored events. No engine is needed.

use serde::Serialize;
use writ_agent::event::StoredEvent;
use writ_inspect::show::escape_line;
use writ_store::config::MAX_READ_ROWS;
use writ_store::ledger::row::{LedgerQuery, LedgerRow};
use writ_store::store::Store;
use writ_store::turns::Turn;
use writ_types::error::Exit;
use writ_types::id::EntrySeq;

use crate::args::TraceArgs;
use crate::context::Context;
use crate::failure::Failure;
use crate::ledger::open_to_read;
use steps::{Step, Totals};

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
    /// The trace id under which a collector has it.
    trace_id: String,
    started_at: String,
    ended_at: Option<String>,
    /// From its begin to its end, in milliseconds.
    duration_ms: Option<u64>,
    /// The time that its message waited before, in milliseconds.
    waited_ms: Option<u64>,
    totals: Totals,
    steps: Vec<Step>,
    /// True if there are more entries than are shown.
    truncated: bool,
}

/// Runs `writ trace`.
pub(crate) fn run(context: &Context, args: &TraceArgs) -> Result<(), Failure> {
    let config = context.ready()?;
    let store = open_to_read(context, &config)?;
    let turn = match args.turn {
        Some(id) => store.turn(id)?,
        None => store.newest_turn(args.session)?,
    };
    let Some(turn) = turn else {
        let hint = "`writ audit search --event phase --json` names the turns there are";
        return Err(Failure::new(Exit::Usage, "trace.no_turn", "there is no such turn", hint));
    };
    let trace = read(&store, &turn)?;
    context.out.either(&trace, lines)
}

fn read(store: &Store, turn: &Turn) -> Result<Trace, Failure> {
    let (rows, truncated) = entries(store, turn)?;
    let events: Vec<StoredEvent> = store
        .turn_events(turn.id)?
        .into_iter()
        // Events of a newer version are left out, and the rest is still shown.
        .filter_map(|event| StoredEvent::decode(&event).ok())
        .collect();
    let (steps, totals) = steps::of(turn, &rows, &events);
    let received = store.ledger_search(&LedgerQuery {
        event: Some("received".to_owned()),
        session: Some(turn.session),
        text: Some(turn.message.to_string()),
        limit: 1,
        // The message is found by its id in the entry's text.
        ..LedgerQuery::default()
    })?;
    let waited = received.first().map(|row| steps::millis(turn.started_at.since(row.at)));
    Ok(Trace {
        turn: turn.id.to_string(),
        session: turn.session.to_string(),
        number: turn.number,
        state: turn.state.clone(),
        trace_id: hex::encode(turn.id.to_bytes()),
        started_at: turn.started_at.to_string(),
        ended_at: turn.ended_at.map(|at| at.to_string()),
        duration_ms: turn.ended_at.map(|at| steps::millis(at.since(turn.started_at))),
        waited_ms: waited,
        totals,
        steps,
        truncated,
    })
}

/// The entries of a turn, oldest first, and whether there are more.
fn entries(store: &Store, turn: &Turn) -> Result<(Vec<LedgerRow>, bool), Failure> {
    let mut rows: Vec<LedgerRow> = Vec::new();
    let mut before: Option<EntrySeq> = None;
    // The newest entries are read first, page by page.
    loop {
        let query =
            LedgerQuery { turn: Some(turn.id), before, limit: MAX_READ_ROWS, ..LedgerQuery::default() };
        let page = store.ledger_search(&query)?;
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

fn lines(trace: &Trace) -> Vec<String> {
    let mut lines = vec![format!(
        "turn {}, number {} of session {}: {}{}",
        trace.turn,
        trace.number,
        trace.session,
        escape_line(&trace.state),
        trace.duration_ms.map(|ms| format!(" after {}", seconds(ms))).unwrap_or_default(),
    )];
    if let Some(ms) = trace.waited_ms {
        lines.push(format!("its message had waited {}", seconds(ms)));
    }
    lines.extend(trace.steps.iter().map(line));
    if trace.truncated {
        lines.push(format!("only the newest {MAX_ENTRIES} entries are shown"));
    }
    let Totals { model_calls, model_ms, input_tokens, output_tokens, actions, action_ms, denied, asked } =
        &trace.totals;
    lines.push(format!(
        "{model_calls} model calls in {}, {input_tokens} tokens in and {output_tokens} out; {actions} actions in {}; \
         {denied} denied, {asked} asked",
        seconds(*model_ms),
        seconds(*action_ms),
    ));
    lines
}

/// One step as one line that cannot deceive a terminal.
fn line(step: &Step) -> String {
    let detail = escape_line(&step.detail);
    let mut short: String = detail.chars().take(MAX_DETAIL_CHARS).collect();
    if short.len() < detail.len() {
        short.push('…');
    }
    let took = step.duration_ms.map(seconds).unwrap_or_default();
    let mark = if step.intact { "" } else { "  NOT INTACT" };
    let outcome = if step.outcome.is_empty() { String::new() } else { format!(" [{}]", step.outcome) };
    format!("{:>+11.3} s {took:>10}  {:<9} {short}{outcome}{mark}", as_secs(step.offset_ms), step.kind)
}

fn seconds(ms: u64) -> String {
    format!("{:.3} s", as_secs(ms))
}

fn as_secs(ms: u64) -> f64 {
    std::time::Duration::from_millis(ms).as_secs_f64()
}
