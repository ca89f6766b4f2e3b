//! The sources of an entry or an ask: its label, and those of the entries that this names.

use std::collections::{BTreeSet, VecDeque};

use rusqlite::Connection;
use serde::Serialize;
use writ_types::entry::Fact;
use writ_types::id::{AskId, EntrySeq};
use writ_types::taint::{Label, MAX_SOURCES, Source, Taint};

use super::row;
use crate::approvals;
use crate::error::StoreError;

/// The most steps of one walk.
pub const MAX_FOLLOWED: usize = 200;

/// The name of the fact that an ask is.
const ASKED: &str = "asked";

/// A step of the walk: something with a label.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Step {
    /// The entry; none: an ask, which is the first step.
    pub entry: Option<EntrySeq>,
    /// The kind of fact.
    pub event: &'static str,
    /// Its trust.
    pub taint: Taint,
    /// True if it rests on content from outside the sandbox.
    pub outside: bool,
    /// True if it rests on content that only the owner may be assumed to read.
    pub private: bool,
    /// Its sources as recorded: not escaped.
    pub sources: Vec<Source>,
    /// True if sources were left out.
    pub truncated: bool,
}

impl Step {
    fn new(entry: Option<EntrySeq>, event: &'static str, label: &Label) -> Self {
        let Label { taint, sources, truncated, outside, private, readers: _, secret: _ } = label;
        Self {
            entry,
            event,
            taint: *taint,
            outside: *outside,
            private: *private,
            // A label that was read may name more than one that was made.
            sources: sources.iter().take(MAX_SOURCES).cloned().collect(),
            truncated: *truncated || sources.len() > MAX_SOURCES,
        }
    }
}

/// The steps of a walk, breadth first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RestsOn {
    /// The start and its sources; empty if the start has no label.
    #[serde(rename = "rests_on")]
    pub steps: Vec<Step>,
    /// True if there were more than [`MAX_FOLLOWED`].
    pub more: bool,
}

pub(crate) fn entry_rests_on(
    conn: &Connection,
    key: &[u8; 32],
    entry: EntrySeq,
) -> Result<RestsOn, StoreError> {
    follow_sources(conn, key, Vec::new(), VecDeque::from([entry]))
}

pub(crate) fn ask_rests_on(
    conn: &Connection,
    key: &[u8; 32],
    ask: &AskId,
) -> Result<Option<RestsOn>, StoreError> {
    let Some(ask) = approvals::read_ask(conn, ask)? else { return Ok(None) };
    let first = Step::new(None, ASKED, &ask.prepared.label);
    let due = first.sources.iter().filter_map(|source| source.entry).collect();
    follow_sources(conn, key, vec![first], due).map(Some)
}

fn follow_sources(
    conn: &Connection,
    key: &[u8; 32],
    mut steps: Vec<Step>,
    mut due: VecDeque<EntrySeq>,
) -> Result<RestsOn, StoreError> {
    let mut known: BTreeSet<EntrySeq> = due.iter().copied().collect();
    while let Some(seq) = due.pop_front() {
        if steps.len() >= MAX_FOLLOWED {
            return Ok(RestsOn { steps, more: true });
        }
        let Some(entry) = row::ledger_row(conn, key, seq)?.and_then(|row| row.entry()) else { continue };
        let Some(label) = label_of(conn, &entry.fact)? else { continue };
        let step = Step::new(Some(seq), entry.fact.event_name(), &label);
        due.extend(step.sources.iter().filter_map(|source| source.entry).filter(|seq| known.insert(*seq)));
        steps.push(step);
    }
    Ok(RestsOn { steps, more: false })
}

fn label_of(conn: &Connection, fact: &Fact) -> Result<Option<Label>, StoreError> {
    Ok(match fact {
        Fact::Received { record, .. } => Some(Label::new(record.taint)),
        Fact::Intent { label, .. }
        | Fact::Outcome { label, .. }
        | Fact::Compacted { label, .. }
        | Fact::Replied { label, .. } => Some(label.clone()),
        Fact::Asked { ask, .. } => approvals::read_ask(conn, ask)?.map(|ask| ask.prepared.label),
        Fact::Gated { .. }
        | Fact::Shadowed { .. }
        | Fact::Hooked { .. }
        | Fact::Answered { .. }
        | Fact::Denied { .. }
        | Fact::Served { .. }
        | Fact::ModelCalled { .. }
        | Fact::Keyed { .. }
        | Fact::Planned { .. }
        | Fact::Phase { .. }
        | Fact::Worked { .. }
        | Fact::Remembered { .. }
        | Fact::Escalated { .. }
        | Fact::CaseMoved { .. }
        | Fact::AgentMoved { .. }
        | Fact::CustomerRead { .. }
        | Fact::PolicyChanged { .. }
        | Fact::Applied { .. }
        | Fact::Erased { .. }
        | Fact::SandboxReady { .. }
        | Fact::Checkpoint { .. }
        | Fact::Connected { .. }
        | Fact::Restored { .. } => None,
    })
}

#[cfg(test)]
mod tests;
