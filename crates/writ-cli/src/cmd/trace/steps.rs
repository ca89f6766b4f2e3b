//! From entries and events to steps: an intent and what came of it are one.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use writ_agent::event::{Event, StoredEvent};
use writ_store::ledger::row::LedgerRow;
use writ_store::turns::TurnRow;
use writ_types::action::{Action, ReadMode};
use writ_types::entry::{Entry, Fact};
use writ_types::id::{AttemptId, EntrySeq};
use writ_types::unit::Timestamp;

/// One step of a turn.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct TraceStep {
    /// When it began.
    pub(super) at: String,
    /// The time after the turn's begin, in milliseconds.
    pub(super) offset_ms: u64,
    /// Its duration in milliseconds; `None`: it has no length, or has not ended.
    pub(super) duration_ms: Option<u64>,
    /// The kind of step: `model`, `action`, `gate`, …
    pub(super) kind: &'static str,
    /// A description.
    pub(super) detail: String,
    /// The outcome.
    pub(super) outcome: String,
    /// Its entries in the ledger.
    pub(super) entries: Vec<EntrySeq>,
    /// True if these entries match their signatures.
    pub(super) intact: bool,
}

/// The tokens and the cost of a turn.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Totals {
    pub(super) model_calls: u64,
    pub(super) model_ms: u64,
    pub(super) input_tokens: u64,
    pub(super) output_tokens: u64,
    pub(super) actions: u64,
    pub(super) action_ms: u64,
    pub(super) denied: u64,
    pub(super) asked: u64,
}

/// The steps of a turn in the order in which they began, and what they took.
pub(super) fn steps_of(
    turn: &TurnRow,
    rows: &[LedgerRow],
    events: &[StoredEvent],
) -> (Vec<TraceStep>, Totals) {
    let mut made = StepBuilder {
        begin: turn.started_at,
        steps: Vec::new(),
        open: BTreeMap::new(),
        totals: Totals::default(),
    };
    for row in rows {
        made.add_row(row);
    }
    for event in events {
        made.add_event(event);
    }
    let StepBuilder { mut steps, totals, .. } = made;
    // A stable sort: what began in the same millisecond stays as the ledger has it.
    steps.sort_by_key(|(began, _)| *began);
    (steps.into_iter().map(|(_, step)| step).collect(), totals)
}

pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

struct StepBuilder {
    begin: Timestamp,
    /// Steps with when they began, which orders them.
    steps: Vec<(Timestamp, TraceStep)>,
    /// Intents without an outcome so far: where their step is.
    open: BTreeMap<AttemptId, usize>,
    totals: Totals,
}

impl StepBuilder {
    fn put(&mut self, at: Timestamp, kind: &'static str, detail: String, outcome: String) -> &mut TraceStep {
        let step = TraceStep {
            at: at.to_string(),
            offset_ms: millis(at.time_since(self.begin)),
            duration_ms: None,
            kind,
            detail,
            outcome,
            entries: Vec::new(),
            intact: true,
        };
        let last = self.steps.len();
        self.steps.push((at, step));
        &mut self.steps[last].1
    }

    fn add_row(&mut self, row: &LedgerRow) {
        let Some(entry) = row.entry() else {
            let step = self.put(row.at, "entry", row.event.clone(), "erased".to_owned());
            (step.entries, step.intact) = (vec![row.seq], row.intact);
            return;
        };
        // An entry begins a step or ends an earlier one: its number goes to that step.
        let before = self.steps.len();
        let ended = self.add_entry(&entry);
        let place = ended.or_else(|| (self.steps.len() > before).then_some(before));
        if let Some((_, step)) = place.and_then(|place| self.steps.get_mut(place)) {
            step.entries.push(row.seq);
            step.intact &= row.intact;
        }
    }

    /// Ends the step of an attempt: its place, and how long it took.
    fn ended(&mut self, attempt: AttemptId, at: Timestamp) -> Option<(usize, u64)> {
        let place = self.open.remove(&attempt)?;
        let (began, step) = self.steps.get_mut(place)?;
        let took = millis(at.time_since(*began));
        step.duration_ms = Some(took);
        Some((place, took))
    }

    /// Takes one entry: as a step of its own, or as the end of one, and returns its place.
    // tidy: table
    fn add_entry(&mut self, entry: &Entry) -> Option<usize> {
        let at = entry.at;
        match &entry.fact {
            Fact::Intent { attempt, action, approval, .. } => {
                let kind = if matches!(action, Action::ModelCall(_)) { "model" } else { "action" };
                let approved =
                    approval.as_ref().map(|ask| format!("approved by {ask}, ")).unwrap_or_default();
                self.put(at, kind, describe(action), format!("{approved}open"));
                self.open.insert(*attempt, self.steps.len().saturating_sub(1));
                None
            }
            Fact::Outcome { attempt, outcome, summary, .. } => {
                let (place, took) = self.ended(*attempt, at)?;
                self.totals.actions += 1;
                self.totals.action_ms = self.totals.action_ms.saturating_add(took);
                let (_, step) = self.steps.get_mut(place)?;
                // Replaced within the text, so that the approval before it stays.
                step.outcome = step.outcome.replace("open", &word(outcome));
                if !summary.is_empty() {
                    step.detail = format!("{}: {summary}", step.detail);
                }
                Some(place)
            }
            Fact::ModelCalled { attempt, requested, stop, usage, error, .. } => {
                self.totals.model_calls += 1;
                self.totals.input_tokens = self.totals.input_tokens.saturating_add(usage.input.get());
                self.totals.output_tokens = self.totals.output_tokens.saturating_add(usage.output.get());
                let (place, took) = self.ended(*attempt, at)?;
                self.totals.model_ms = self.totals.model_ms.saturating_add(took);
                let (_, step) = self.steps.get_mut(place)?;
                step.detail =
                    format!("{requested}: {} tokens in, {} out", usage.input.get(), usage.output.get());
                step.outcome = match stop {
                    Some(stop) => word(stop),
                    None => format!("failed: {error}"),
                };
                Some(place)
            }
            Fact::Gated { point, gate, verdict, reason } => {
                let why = if reason.is_empty() { String::new() } else { format!(": {reason}") };
                self.put(at, "gate", format!("{gate} at {}{why}", word(point)), word(verdict));
                None
            }
            Fact::Hooked { on, hook, verdict, reason, .. } => {
                let why = if reason.is_empty() { String::new() } else { format!(": {reason}") };
                self.put(at, "hook", format!("{hook} at {}{why}", word(on)), word(verdict));
                None
            }
            Fact::Denied { kind, reason, rule, text, .. } => {
                self.totals.denied += 1;
                self.put(at, "denied", format!("{} by {rule}: {text}", kind.as_str()), word(reason));
                None
            }
            Fact::Asked { ask, action, risk, reason, .. } => {
                self.totals.asked += 1;
                self.put(at, "asked", format!("ask {ask}: {} ({reason})", describe(action)), word(risk));
                None
            }
            Fact::Answered { ask, decision, by, .. } => {
                self.put(at, "answered", format!("ask {ask} by {by}"), word(decision));
                None
            }
            Fact::Phase { phase, reason } => {
                self.put(at, "turn", reason.clone(), word(phase));
                None
            }
            Fact::Keyed { role, change, grants, .. } => {
                self.put(at, "key", format!("{role} key: {grants}"), change.clone());
                None
            }
            Fact::Remembered { memory, forgotten, .. } => {
                let outcome = if *forgotten { "forgotten" } else { "stored" };
                self.put(at, "memory", memory.to_string(), outcome.to_owned());
                None
            }
            Fact::Applied { project, files } => {
                self.put(at, "applied", format!("{} files of {project}", files.len()), String::new());
                None
            }
            Fact::Connected { connections } => {
                for made in connections {
                    let detail = format!("{}:{} ({})", made.host, made.port, made.rule);
                    self.put(at, "connection", detail, made.verdict.as_str().to_owned());
                }
                None
            }
            Fact::Replied { from, to, label, .. } => {
                self.put(at, "reply", format!("rests on entries {from} to {to}"), word(&label.taint));
                None
            }
            Fact::Received { record, .. } => {
                self.put(at, "received", format!("from {}", record.principal), word(&record.taint));
                None
            }
            Fact::Planned { .. }
            | Fact::Worked { .. }
            | Fact::Shadowed { .. }
            | Fact::Escalated { .. }
            | Fact::CaseMoved { .. }
            | Fact::AgentMoved { .. }
            | Fact::CustomerRead { .. }
            | Fact::Served { .. }
            | Fact::PolicyChanged { .. }
            | Fact::Restored { .. }
            | Fact::Checkpoint { .. }
            | Fact::Compacted { .. }
            | Fact::Erased { .. }
            | Fact::SandboxReady { .. } => {
                self.put(at, "entry", entry.fact.event_name().to_owned(), String::new());
                None
            }
        }
    }

    /// Takes what the ledger does not say.
    fn add_event(&mut self, stored: &StoredEvent) {
        let at = stored.at;
        match &stored.event {
            Event::Recalled { hits } => {
                self.put(at, "memory", format!("{} memories recalled", hits.len()), "recalled".to_owned());
            }
            Event::Routed { decision } => {
                let way = format!("{}: {}", decision.route.as_str(), decision.reason);
                self.put(at, "route", way, "chosen".to_owned());
            }
            Event::Arrived { .. } => {
                self.put(at, "received", "another message".to_owned(), String::new());
            }
            Event::Cancel => {
                self.put(at, "turn", "a person stops it".to_owned(), "stopped".to_owned());
            }
            Event::DeadlinePassed => {
                self.put(at, "turn", "its time is over".to_owned(), "stopped".to_owned());
            }
            Event::Opened(_)
            | Event::InputJudged { .. }
            | Event::Recorded
            | Event::ModelReplied { .. }
            | Event::ModelFailed { .. }
            | Event::Acted { .. }
            | Event::Answered { .. }
            | Event::OutputJudged { .. }
            | Event::Delivered => {}
        }
    }
}

/// Describes a requested action in one line.
fn describe(action: &Action) -> String {
    if let Action::Exec(exec) = action {
        return format!("exec {}", exec.argv.join(" "));
    }
    if let Action::ReadFile(read) = action {
        let path = if read.path.is_empty() { "." } else { &read.path };
        return match &read.mode {
            ReadMode::Text { .. } => format!("read_file {path}"),
            ReadMode::List => format!("list {path}"),
            ReadMode::Search { .. } => format!("search {path}"),
        };
    }
    if let Action::WriteFile(write) = action {
        let paths: Vec<&str> = write.changes.iter().map(|change| change.path.as_str()).collect();
        return format!("write_file {}", paths.join(", "));
    }
    if let Action::ModelCall(call) = action {
        return format!("{}/{}", call.provider, call.model);
    }
    action.kind().as_str().to_owned()
}

/// A value's own word for itself, as the ledger writes it.
fn word(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(text)) => text,
        Ok(serde_json::Value::Object(fields)) if fields.len() == 1 => {
            fields.into_iter().next().map(|(name, _)| name).unwrap_or_default()
        }
        Ok(other) => other.to_string(),
        Err(_) => String::new(),
    }
}
