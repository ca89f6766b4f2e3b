//! Preferences that show in what the owner does: inferred in the background, and asked about as cards.
//!
//! The owner's messages and answers of a month are looked through, those of conversations at this machine alone: what a
//! program, a step of a plan or another person says shows no preference of the owner.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;
use writ_memory::preferences::{
    BehaviourSignal, COUNTED_FOR, InferredPreference, MAX_INFERRED, infer_preferences,
};
use writ_policy::review::describe_likeness;
use writ_store::approvals::{AskState, StoredAsk};
use writ_store::batch::{Batch, Op};
use writ_store::memory::{MemoryOp, MemoryQuestion, MemorySource, MemoryStatus, MemoryTraits, QuestionKind};
use writ_store::reads::{AskReads as _, MemoryReads as _, SessionReads as _, SettingReads as _};
use writ_types::action::{MemoryKind, MemoryTrust, Remember};
use writ_types::digest::Digest;
use writ_types::taint::Taint;
use writ_types::unit::Timestamp;

use crate::error::EngineError;
use crate::jobs::Progress;
use crate::proposals::PROPOSE;
use crate::remembering::{remember_ops, remembered};
use crate::services::Services;
use crate::session::{APPLY, Surface, UNDO};

/// The most answered requests that are looked at, newest first.
const MAX_ANSWERS: usize = 1_000;

/// The most messages that are looked at, newest first.
const MAX_SAID: usize = 2_000;

/// The number of open cards about preferences at which none is added.
const MAX_OPEN: usize = 20;

/// The setting with the preferences that the owner was asked about: what was denied or forgotten is not asked again.
const ASKED: &str = "memory.preferences_asked";

/// The most of them that are noted; the oldest go.
const MAX_ASKED: usize = 1_000;

/// The importance of an inferred preference, in thousandths: above what an agent stores.
const IMPORTANCE: u16 = 600;

/// Asks the owner about the preferences that show since the last time.
///
/// # Errors
///
/// If the store cannot be used.
pub(crate) async fn notice_preferences(services: &Arc<Services>) -> Result<Progress, EngineError> {
    let (store, now) = (&services.journal.store, services.journal.clock.now());
    let (_, open) = store.memory_rows_asked(QuestionKind::Preference).await?;
    if open >= MAX_OPEN {
        return Ok(Progress::Complete);
    }
    let signals = read_signals(services, now).await?;
    // Thousands of messages are folded: the turns of this thread do not wait for that.
    let inferred = tokio::task::spawn_blocking(move || infer_preferences(&signals));
    let inferred =
        inferred.await.map_err(|_| EngineError::Machine("a look for preferences was stopped".to_owned()))?;
    let mut asked: Vec<String> = match store.setting(ASKED).await? {
        Some(value) => serde_json::from_value(value).unwrap_or_default(),
        None => Vec::new(),
    };
    let known: BTreeSet<String> = asked.iter().cloned().collect();
    let name = |preference: &InferredPreference| Digest::of_bytes(preference.key.as_bytes()).to_string();
    let new = inferred.into_iter().filter(|preference| !known.contains(&name(preference)));
    let new: Vec<InferredPreference> = new.take(MAX_INFERRED).collect();
    if new.is_empty() {
        return Ok(Progress::Complete);
    }
    let mut ops = Vec::new();
    for preference in &new {
        asked.push(name(preference));
        ops.extend(preference_ops(services, preference, now).await?);
    }
    asked.drain(..asked.len().saturating_sub(MAX_ASKED));
    let value = Value::Array(asked.into_iter().map(Value::String).collect());
    // In the commit of the cards: what was asked once is not asked again after a crash.
    ops.push(Op::Set { key: ASKED.to_owned(), value });
    store.commit(Batch::synced(ops)).await?;
    tracing::info!(count = new.len(), "preferences were inferred, and wait for the owner");
    Ok(Progress::Complete)
}

/// Reads what the owner has said and answered.
async fn read_signals(
    services: &Services,
    now: Timestamp,
) -> Result<Vec<(BehaviourSignal, Timestamp)>, EngineError> {
    let (store, since) = (&services.journal.store, now.minus_duration(COUNTED_FOR));
    let answers = store.latest_asks(MAX_ANSWERS).await?;
    let mut signals: Vec<(BehaviourSignal, Timestamp)> =
        answers.iter().filter_map(answered).filter(|(_, at)| *at >= since).collect();
    let surfaces = [Surface::Local, Surface::Page].map(|surface| surface.as_str().to_owned());
    for row in store.said_since(since, &surfaces, MAX_SAID).await? {
        let label = &row.message.label;
        // A secret stays where it was said, and what others have written is no word of the owner.
        if !label.secret && label.taint == Taint::Owner {
            let text = services.journal.redactor.mask_text(&row.message.said_text()).into_owned();
            signals.push((BehaviourSignal::Said(text), row.at));
        }
    }
    Ok(signals)
}

/// Returns the answer of a person to a request; none while it is open, and where no one has answered.
fn answered(ask: &StoredAsk) -> Option<(BehaviourSignal, Timestamp)> {
    // The harness asks about changes and plans as they come: a no is about these, not about all to come.
    if [APPLY, UNDO, PROPOSE].contains(&ask.prepared.tool.as_str()) {
        return None;
    }
    let approved = match ask.state {
        AskState::Open | AskState::Expired => return None,
        AskState::Approved | AskState::Used => true,
        AskState::Denied => false,
    };
    let signal = BehaviourSignal::Answered {
        likeness: describe_likeness(&ask.prepared),
        approved,
        reason: ask.reason.clone(),
    };
    Some((signal, ask.resolved_at?))
}

/// Returns the operations that store a preference which waits, and its card.
async fn preference_ops(
    services: &Arc<Services>,
    preference: &InferredPreference,
    now: Timestamp,
) -> Result<Vec<Op>, EngineError> {
    let id = services.journal.ids.memory(now);
    let item = Remember {
        text: preference.text.clone(),
        memory_kind: MemoryKind::Preference,
        trust: MemoryTrust::Working,
        taint: Taint::Owner,
        secret: false,
        session: None,
    };
    let traits = MemoryTraits {
        status: MemoryStatus::Pending,
        source: MemorySource::Observer,
        importance: IMPORTANCE,
        ..MemoryTraits::default()
    };
    let mut ops = vec![services.journal.own_entry(remembered(id, &item, false))];
    ops.extend(remember_ops(services, (id, item), traits, now).await?.0);
    let reason = services.journal.redactor.mask_text(&preference.evidence).chars().take(500).collect();
    ops.push(Op::Memory(MemoryOp::Ask(MemoryQuestion {
        kind: QuestionKind::Preference,
        memory: id,
        other: None,
        reason,
        at: now,
    })));
    Ok(ops)
}
