//! Signs of life of an attempt, and its calls, read from the ledger: what an agent says about itself is no sign.

use std::collections::{BTreeMap, BTreeSet};

use writ_store::config::MAX_READ_ROWS;
use writ_store::ledger::row::{LedgerQuery, LedgerRow};
use writ_store::reads::LedgerReads as _;
use writ_store::work::WorkAttempt;
use writ_types::action::ActionKind;
use writ_types::api::work::WorkState;
use writ_types::chat::ToolOutcome;
use writ_types::digest::Digest;
use writ_types::entry::Fact;
use writ_types::error::Exit;
use writ_types::id::{AttemptId, EntrySeq, ItemId};
use writ_types::unit::{Timestamp, Tokens};

use super::{AttemptCalls, AttemptSigns, AttemptWait, attempt};
use crate::error::EngineError;
use crate::services::Services;
use crate::work::ItemCourse;

/// The newest entries of a session that are looked at for signs of life: more than one answer of a model brings about.
const MAX_SIGNS: usize = 64;

/// Reads the signs of life of an attempt that is not over. `is_ordered`: what follows its last turn was decided, so it waits for no
/// answer.
pub(super) async fn read_signs(
    services: &Services,
    course: &ItemCourse,
    is_ordered: bool,
) -> Result<AttemptSigns, EngineError> {
    let item = &course.item;
    let newest = LedgerQuery { session: Some(item.session), limit: MAX_SIGNS, ..LedgerQuery::default() };
    let rows = services.journal.store.ledger_search(&newest).await?;
    let written = rows.first().map_or(item.changed_at, |row| row.at);
    let last_at = written.max(item.changed_at).max(course.session.heard_at());
    let attempt = course.attempts.last();
    let began = attempt.map_or(item.changed_at, |attempt| attempt.began_at);
    let answered = rows.iter().find(|row| is_answer(row)).map(|row| row.at);
    let answered_at = answered.unwrap_or(began).max(began);
    let is_held = attempt.is_some_and(|attempt| attempt.is_held);
    let waits_for = if item.state == WorkState::Running && is_held && is_ordered {
        AttemptWait::Room
    } else if item.state == WorkState::Running && is_held && asks_person(attempt) {
        AttemptWait::Answer
    } else if item.state != WorkState::Running || is_held {
        AttemptWait::Person
    } else if !course.session.runs(None) {
        AttemptWait::Room
    } else if course.session.has_program() {
        return Ok(signs_of_program(&rows, (last_at, answered_at)));
    } else {
        next_actor(&rows)
    };
    Ok(AttemptSigns { waits_for, last_at, answered_at })
}

/// Returns true if an attempt's last turn has ended with a question to a person.
fn asks_person(attempt: Option<&WorkAttempt>) -> bool {
    attempt.is_some_and(|attempt| attempt.exit == Some(Exit::Waiting.code()))
}

/// The signs of life of an attempt in which the owner's coding agent works. Its own tools are not in the ledger: while no model call
/// is open it is the program that acts, for as long as that takes. A call is as old as its own beginning.
fn signs_of_program(rows: &[LedgerRow], (last_at, answered_at): (Timestamp, Timestamp)) -> AttemptSigns {
    let of_row = |row: &LedgerRow| {
        let fact = row.entry()?.fact;
        if let Fact::Intent { action, .. } = &fact
            && action.kind() == ActionKind::ModelCall
        {
            return Some(Some(row.at));
        }
        matches!(fact, Fact::ModelCalled { .. }).then_some(None)
    };
    match rows.iter().find_map(of_row).flatten() {
        Some(asked_at) => {
            AttemptSigns { waits_for: AttemptWait::Model, last_at, answered_at: answered_at.max(asked_at) }
        }
        None => AttemptSigns { waits_for: AttemptWait::Program, last_at, answered_at },
    }
}

/// Returns true for an entry from which the time of a turn is counted: an answer of the model, or of a person who was asked.
fn is_answer(row: &LedgerRow) -> bool {
    let fact = row.entry().map(|entry| entry.fact);
    if let Some(Fact::ModelCalled { stop: Some(_), role, .. }) = &fact {
        return role.is_empty();
    }
    matches!(fact, Some(Fact::Answered { .. } | Fact::Received { .. }))
}

/// The part that acts next, from the newest entry that says so.
fn next_actor(rows: &[LedgerRow]) -> AttemptWait {
    let of_row = |row: &LedgerRow| {
        let fact = row.entry()?.fact;
        if let Fact::Intent { action, .. } = &fact {
            let is_model = action.kind() == ActionKind::ModelCall;
            return Some(if is_model { AttemptWait::Model } else { AttemptWait::Tool });
        }
        if matches!(fact, Fact::Asked { .. }) {
            return Some(AttemptWait::Person);
        }
        let is_step = matches!(fact, Fact::Outcome { .. } | Fact::Answered { .. } | Fact::ModelCalled { .. });
        is_step.then_some(AttemptWait::Model)
    };
    rows.iter().find_map(of_row).unwrap_or(AttemptWait::Model)
}

/// Reads the calls of an attempt after an entry; of one with more entries than a look takes, the newest.
pub(super) async fn read_calls(
    services: &Services,
    id: ItemId,
    after: Option<EntrySeq>,
) -> Result<AttemptCalls, EngineError> {
    let course = attempt::find(services, id).await?;
    let all = LedgerQuery {
        session: Some(course.item.session),
        after,
        limit: MAX_READ_ROWS,
        ..LedgerQuery::default()
    };
    let mut rows = services.journal.store.ledger_search(&all).await?;
    rows.reverse();
    let last = rows.last().map(|row| row.seq).or(after);
    let mut made = AttemptCalls {
        calls: 0,
        successes: 0,
        digest: Digest::of_bytes(b""),
        models: Vec::new(),
        lasting: BTreeMap::new(),
        cache_read: Tokens::ZERO,
        last,
    };
    let mut text = String::new();
    let mut tools: BTreeSet<AttemptId> = BTreeSet::new();
    for fact in rows.iter().filter_map(LedgerRow::entry).map(|entry| entry.fact) {
        if let Fact::Intent { attempt, action, .. } = &fact
            && action.kind() != ActionKind::ModelCall
        {
            made.calls = made.calls.saturating_add(1);
            tools.insert(*attempt);
            text.push_str(&serde_json::to_string(action).unwrap_or_default());
        } else if let Fact::Outcome { attempt, outcome, result, .. } = &fact
            && tools.contains(attempt)
        {
            made.successes = made.successes.saturating_add(u32::from(*outcome == ToolOutcome::Done));
            text.push_str(&result.to_string());
        } else if let Fact::ModelCalled { requested, stop, usage, error, is_lasting, role, .. } = fact
            && role.is_empty()
        {
            made.cache_read = made.cache_read.saturating_add(usage.cache_read);
            if is_lasting {
                made.lasting.insert(made.models.len(), error);
            }
            made.models.push((requested, stop.is_some()));
        }
    }
    made.digest = Digest::of_bytes(text.as_bytes());
    Ok(made)
}
