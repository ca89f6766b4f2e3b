//! The log of a unit: everything that happened to it, in its order, with times, tokens and money.
//!
//! Attempts, moves and gates are in the store, what an attempt did is in the ledger of its session. Nothing is written for the
//! log, so that it can neither be behind nor say anything else than these.

use std::collections::BTreeMap;

use writ_autopilot::unit_id::UnitId;
use writ_store::ledger::row::LedgerQuery;
use writ_store::reads::{LedgerReads as _, UnitReads as _, WorkReads as _};
use writ_store::units::{HookRunRow, RunRow};
use writ_types::action::{Action, ReadMode};
use writ_types::api::pilot::{PilotLog, PilotLogLine, PilotLogQuery};
use writ_types::entry::{Entry, Fact};
use writ_types::id::{AttemptId, SessionId};
use writ_types::unit::Timestamp;

use crate::account::{first_line, millis_between};
use crate::error::AutopilotError;
use crate::project::OpenProject;
use crate::standing::read_facts;

/// The most lines of a log.
const MAX_LOG_LINES: usize = 5_000;
/// The most lines that are passed over; what is before them is read attempt by attempt.
const MAX_SKIPPED: usize = 100_000;
/// The most attempts of a unit under one plan that are looked for.
const MAX_ATTEMPTS: usize = 10_000;
/// The longest text of a line, in characters.
const MAX_TEXT_CHARS: usize = 400;

/// Reads the log of a unit.
///
/// # Errors
///
/// If there is no such unit, or store or ledger cannot be read.
pub(crate) async fn read_log(
    project: &OpenProject,
    id: UnitId,
    query: &PilotLogQuery,
) -> Result<PilotLog, AutopilotError> {
    let (store, key) = (project.hands.store(), project.key_of(id));
    if store.unit(key.clone()).await?.is_none() {
        return Err(AutopilotError::NoUnit { unit: id.to_string() });
    }
    let runs = store.unit_runs(key.clone()).await?;
    let mut lines: Vec<PilotLogLine> = runs.iter().flat_map(lines_of_run).collect();
    for one in store.unit_transitions(key.clone()).await? {
        let text = format!("{} -> {}: {}", one.from, one.to, one.reason);
        lines.push(line(&runs, one.at, "move", &text));
    }
    for gate in store.unit_gates(key).await? {
        let verdict = if gate.passed { "passed" } else { "not passed" };
        let words = first_line(&gate.output);
        let end = if words.is_empty() { verdict.to_owned() } else { format!("{verdict}: {words}") };
        let text = format!("{}, try {}: {end}", gate.gate, gate.attempt);
        lines.push(PilotLogLine { took_ms: Some(gate.duration_ms), ..line(&runs, gate.at, "gate", &text) });
    }
    lines.extend(store.unit_hook_runs(project.key_of(id)).await?.into_iter().map(line_of_hook));
    let most = if query.last == 0 { MAX_LOG_LINES } else { query.last.min(MAX_LOG_LINES) };
    let skip = query.skip.min(MAX_SKIPPED);
    let wanted = most.saturating_add(skip);
    let (mut read, mut unread) = (0_usize, 0_usize);
    // The newest first: what is older than the lines that are wanted is not read.
    for (session, began) in attempts_of(project, id).await? {
        let attempt = attempt_at(&runs, began);
        if query.attempt != 0 && attempt != query.attempt {
            continue;
        }
        if read >= wanted {
            unread += 1;
            continue;
        }
        let asked = LedgerQuery { session: Some(session), limit: MAX_LOG_LINES, ..LedgerQuery::default() };
        let mut rows = store.ledger_search(&asked).await?;
        rows.reverse();
        let entries: Vec<Entry> = rows.iter().filter_map(writ_store::ledger::row::LedgerRow::entry).collect();
        let before = lines.len();
        lines.extend(lines_of(&entries).into_iter().map(|one| PilotLogLine { attempt, ..one }));
        read = read.saturating_add(lines.len().saturating_sub(before));
    }
    if query.attempt != 0 {
        lines.retain(|one| one.attempt == query.attempt);
    }
    // Stable: what the ledger has in one millisecond stays in its order.
    lines.sort_by_key(|one| one.at);
    lines.truncate(lines.len().saturating_sub(skip));
    let older = lines.len().saturating_sub(most);
    lines.drain(..older);
    Ok(PilotLog { unit: id.to_string(), lines, left_out: older.saturating_add(unread) })
}

/// Returns the sessions of a unit's attempts under all plans that it ever had, with their begins, the newest first.
pub(crate) async fn attempts_of(
    project: &OpenProject,
    id: UnitId,
) -> Result<Vec<(SessionId, Timestamp)>, AutopilotError> {
    let store = project.hands.store();
    let Some(row) = store.unit(project.key_of(id.root())).await? else { return Ok(Vec::new()) };
    let facts = read_facts(&row)?;
    let mut attempts = Vec::new();
    for plan in facts.earlier_plans.into_iter().chain(facts.plan) {
        let started = store.started_by(plan, &id.to_string(), MAX_ATTEMPTS).await?;
        attempts.extend(started.into_iter().map(|(_, session, began)| (session, began)));
    }
    attempts.sort_by_key(|(_, began)| std::cmp::Reverse(*began));
    Ok(attempts)
}

fn cut(text: &str) -> String {
    let text: String = text.chars().take(MAX_TEXT_CHARS).collect();
    text.replace(['\n', '\r'], " ")
}

fn line(runs: &[RunRow], at: Timestamp, kind: &str, text: &str) -> PilotLogLine {
    PilotLogLine {
        at,
        attempt: attempt_at(runs, at),
        kind: kind.to_owned(),
        text: cut(text),
        ..PilotLogLine::default()
    }
}

/// Returns the number of the attempt that ran at a time; zero: none did.
fn attempt_at(runs: &[RunRow], at: Timestamp) -> u32 {
    // The newest first: where one ends as another begins, it is that one.
    let is_in = |run: &&RunRow| run.started_at <= at && run.end.as_ref().is_none_or(|end| at <= end.at);
    runs.iter().rev().find(is_in).map_or(0, |run| run.attempt)
}

/// Returns the line of a hook's run: a part of its attempt, with its own time.
fn line_of_hook(run: HookRunRow) -> PilotLogLine {
    let reason = if run.reason.is_empty() { String::new() } else { format!(": {}", run.reason) };
    PilotLogLine {
        at: run.began_at,
        attempt: run.attempt,
        kind: "hook".to_owned(),
        text: cut(&format!("{} {}: {}{reason}", run.hook, run.script, run.outcome)),
        took_ms: Some(millis_between(run.began_at, run.ended_at)),
        ..PilotLogLine::default()
    }
}

fn lines_of_run(run: &RunRow) -> Vec<PilotLogLine> {
    let begin = PilotLogLine {
        at: run.started_at,
        attempt: run.attempt,
        kind: "begin".to_owned(),
        text: format!("{} by {}", run.phase, run.host),
        ..PilotLogLine::default()
    };
    let end = run.end.as_ref().map(|end| PilotLogLine {
        at: end.at,
        attempt: run.attempt,
        kind: "end".to_owned(),
        text: cut(&format!("{} {} {}", run.phase, end.outcome, end.error_code)).trim_end().to_owned(),
        took_ms: Some(millis_between(run.started_at, end.at)),
        tokens: Some(end.input.saturating_add(end.output)),
        cost: Some(end.cost),
    });
    std::iter::once(begin).chain(end).collect()
}

/// Returns the lines of what a session's ledger says.
fn lines_of(entries: &[Entry]) -> Vec<PilotLogLine> {
    let mut begun: BTreeMap<AttemptId, (Timestamp, String)> = BTreeMap::new();
    let mut lines = Vec::new();
    for entry in entries {
        lines.extend(line_of(entry, &mut begun));
    }
    lines
}

/// Returns the line of an entry; `None`: it says nothing about the course of the work.
fn line_of(entry: &Entry, begun: &mut BTreeMap<AttemptId, (Timestamp, String)>) -> Option<PilotLogLine> {
    let add = |kind: &str, text: &str| PilotLogLine {
        at: entry.at,
        kind: kind.to_owned(),
        text: cut(text),
        ..PilotLogLine::default()
    };
    if let Fact::Intent { attempt, action, .. } = &entry.fact {
        let words = describe(action);
        begun.insert(*attempt, (entry.at, words.clone()));
        // A model's answer says more than that it was asked.
        return (!matches!(action, Action::ModelCall(_))).then(|| add("tool", &words));
    }
    if let Fact::Outcome { attempt, outcome, summary, .. } = &entry.fact {
        let (from, words) = begun.remove(attempt).unwrap_or((entry.at, String::new()));
        let outcome = serde_json::to_value(outcome).unwrap_or_default();
        let outcome = outcome.as_str().unwrap_or("ended").to_owned();
        let took_ms = Some(millis_between(from, entry.at));
        return Some(PilotLogLine { took_ms, ..add("result", &format!("{words}: {outcome} {summary}")) });
    }
    if let Fact::ModelCalled { attempt, requested, usage, cost, error, .. } = &entry.fact {
        let from = begun.remove(attempt).map_or(entry.at, |(from, _)| from);
        let text = if error.is_empty() { requested.clone() } else { format!("{requested}: {error}") };
        return Some(PilotLogLine {
            took_ms: Some(millis_between(from, entry.at)),
            tokens: Some(usage.input.saturating_add(usage.output)),
            cost: *cost,
            ..add("model", &text)
        });
    }
    if let Fact::Denied { kind, text, .. } = &entry.fact {
        return Some(add("denied", &format!("{}: {text}", kind.as_str())));
    }
    if let Fact::Asked { ask, action, reason, .. } = &entry.fact {
        return Some(add("asked", &format!("{ask}: {} ({reason})", describe(action))));
    }
    if let Fact::Phase { phase, reason } = &entry.fact {
        let phase = serde_json::to_value(phase).unwrap_or_default();
        return Some(add("turn", &format!("{} {reason}", phase.as_str().unwrap_or_default())));
    }
    None
}

/// Describes an action in one line.
pub(crate) fn describe(action: &Action) -> String {
    if let Action::Exec(exec) = action {
        return format!("exec {}", exec.argv.join(" "));
    }
    if let Action::ReadFile(read) = action {
        let verb = match &read.mode {
            ReadMode::Text { .. } => "read",
            ReadMode::List => "list",
            ReadMode::Search { .. } => "search",
        };
        return format!("{verb} {}", if read.path.is_empty() { "." } else { &read.path });
    }
    if let Action::WriteFile(write) = action {
        let paths: Vec<&str> = write.changes.iter().map(|change| change.path.as_str()).collect();
        return format!("write {}", paths.join(", "));
    }
    action.kind().as_str().to_owned()
}
