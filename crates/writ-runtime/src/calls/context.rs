//! The context of a session, for its owner: what the model sees, what has left it, and what stays.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use writ_agent::config::AgentConfig;
use writ_agent::context::compact::{CompactionReason, describe_message, pinned_tokens, quote_message};
use writ_agent::context::{Assembled, ItemUse, Zone, assemble_context};
use writ_agent::event::ContextSeed;
use writ_inspect::show::escape_line;
use writ_store::batch::{Batch, Op};
use writ_store::compaction::Compaction;
use writ_store::reads::SessionReads as _;
use writ_types::api::context::{
    ChangedMessage, CompactionOutcome, CompactionSummary, ContextDiff, ContextItem, ContextPin, ContextPins,
    ContextView, MessageChange,
};
use writ_types::api::session::SessionName;
use writ_types::chat::{ChatMessage, Usage, estimate_tokens};
use writ_types::error::ToReport as _;
use writ_types::unit::{MicroUsd, Tokens};

use super::MAX_LISTED;
use super::archive::readable;
use crate::budget;
use crate::compaction::{self, MAX_PARTS, MAX_PINS};
use crate::dispatch::seed;
use crate::error::EngineError;
use crate::estimates::NO_CORRECTION;
use crate::history::TurnHistory;
use crate::place::{self, CallPlace};
use crate::profile::AgentProfile;
use crate::services::Services;
use crate::session::{CONTEXT_PINS, Session};

/// The most items that one answer lists.
const MAX_ITEMS: usize = 1_000;

/// The most compactions that one answer lists.
const MAX_COMPACTIONS: usize = 20;

/// The most rows of the history that are compared with the context.
const MAX_COMPARED: usize = 5_000;

/// The most characters of the beginning of an item.
const MAX_BEGINNING: usize = 160;

/// The share of the context, as a divisor, that all pinned messages may take together.
const PINNED_SHARE: u64 = 4;

/// The context of a session as its next turn would begin with it.
struct NextContext {
    session: Arc<Session>,
    profile: Arc<AgentProfile>,
    config: AgentConfig,
    seed: ContextSeed,
    history: TurnHistory,
    assembled: Assembled,
}

/// Assembles the context of a session's next turn, without a message.
async fn next_context(
    services: &Services,
    SessionName { session }: SessionName,
) -> Result<NextContext, EngineError> {
    let row = readable(services, session, "context.show").await?;
    let session = services.sessions.get(row.id).await?;
    let profile = services.profiles.find_answering(&session.state().answering.clone())?;
    let (mut seed, history, config) = next_seed(services, &session, &profile).await?;
    seed.history.clone_from(&history.messages);
    let assembled = assemble_context(&config.context, &seed, &[], &[], config.limits.max_output_tokens)
        .map_err(|error| EngineError::Context(Box::new(error.report())))?;
    Ok(NextContext { session, profile, config, seed, history, assembled })
}

/// Collects what a session's next turn would begin with, and its settings.
async fn next_seed(
    services: &Services,
    session: &Session,
    profile: &AgentProfile,
) -> Result<(ContextSeed, TurnHistory, AgentConfig), EngineError> {
    let spent = budget::read_spent(services, session, MicroUsd::ZERO, &[]).await?;
    let (seed, history) = seed::seed((services, session, profile), None, &spent).await?;
    let config = seed::settings(services, (session, profile), &seed);
    Ok((seed, history, config))
}

/// Shows what the model of a session sees, and what each part costs.
pub(super) async fn show_context(services: &Services, name: SessionName) -> Result<ContextView, EngineError> {
    let next = next_context(services, name).await?;
    let compactions = services.journal.store.compactions(next.session.id, MAX_COMPACTIONS).await?;
    let models = services.outside.models.get();
    let route = models.map(|models| next.profile.first_route(models.routes())).transpose();
    let route = route.map_err(|error| EngineError::Context(Box::new(error.report())))?;
    let route = route.as_ref();
    let model = route.map(|route| format!("{}/{}", route.provider.name, route.model));
    let real_per_1000 =
        model.as_deref().map_or(NO_CORRECTION, |model| services.life.experience.estimates.correction(model));
    let now = services.journal.clock.now();
    let cost = |tokens: Tokens| {
        let input =
            Tokens::new(tokens.get().saturating_mul(u64::from(real_per_1000)) / u64::from(NO_CORRECTION));
        models?.cost_over(route?, &Usage { input, ..Usage::default() }, now)
    };
    let used = next.assembled.total_tokens();
    let items = context_items(&next, &cost);
    let context = &next.config.context;
    let (pins, topic) = {
        let state = next.session.state();
        (state.context.pins.iter().copied().collect(), state.context.topics.active().map(str::to_owned))
    };
    Ok(ContextView {
        session: next.session.id,
        model,
        profile: next.seed.profile.clone(),
        budget: context.total_tokens,
        evicts_above: context.eviction_threshold(),
        compacts_above: context.compact_at_pct.share_of(context.total_tokens),
        used,
        cost_micro_usd: cost(used),
        real_per_1000,
        taint: next.assembled.label.taint,
        more: items.len().saturating_sub(MAX_ITEMS),
        items: items.into_iter().take(MAX_ITEMS).collect(),
        evicted: next.assembled.evicted,
        pins,
        topic,
        compactions: compactions.into_iter().map(summary_of).collect(),
        recalled: next.session.state().context.recalled.clone(),
    })
}

fn context_items(next: &NextContext, cost: &dyn Fn(Tokens) -> Option<MicroUsd>) -> Vec<ContextItem> {
    let mut messages = next.assembled.request.messages.as_slice();
    let item = |used: &ItemUse| {
        let own = messages.get(..used.messages).unwrap_or_default();
        messages = messages.get(used.messages..).unwrap_or_default();
        ContextItem {
            zone: zone_name(used.zone).to_owned(),
            source: escape_line(&used.source),
            tokens: used.tokens,
            cost_micro_usd: cost(used.tokens),
            pinned: used.pinned,
            taint: used.taint,
            row: used.place.and_then(|place| next.history.numbers.get(place).copied()),
            begins: own.first().map(|message| beginning(message)).unwrap_or_default(),
        }
    };
    next.assembled.items.iter().map(item).collect()
}

const fn zone_name(zone: Zone) -> &'static str {
    match zone {
        Zone::System => "system",
        Zone::Memory => "memory",
        Zone::Chronicle => "chronicle",
        Zone::Workspace => "workspace",
        Zone::Current => "current",
    }
}

fn beginning(message: &ChatMessage) -> String {
    let text = describe_message(message);
    let line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    escape_line(&line.chars().take(MAX_BEGINNING).collect::<String>())
}

fn summary_of(compaction: Compaction) -> CompactionSummary {
    CompactionSummary {
        number: compaction.number,
        at: compaction.at.to_string(),
        reason: compaction.reason,
        by: compaction.written_by,
        messages: compaction.messages,
        upto: compaction.upto,
        tokens_before: compaction.tokens_before,
        tokens_after: compaction.tokens_after,
        remembered: compaction.remembered,
        summary: compaction.summary,
    }
}

/// Shows what of a session's history is not in its context word for word.
pub(super) async fn diff_context(services: &Services, name: SessionName) -> Result<ContextDiff, EngineError> {
    let next = next_context(services, name).await?;
    let store = &services.journal.store;
    let rows = store.recent_after(next.session.id, 0, MAX_COMPARED).await?;
    let messages = store.count_chronicle(next.session.id, u64::MAX).await?;
    let upto = next.history.compaction.as_ref().map_or(0, |compaction| compaction.upto);
    let kept: BTreeSet<u64> = {
        let state = next.session.state();
        let kept = next.history.compaction.iter().flat_map(|compaction| &compaction.kept);
        state.context.pins.iter().chain(kept).copied().collect()
    };
    let shown = shown_rows(&next);
    let mut changed: Vec<ChangedMessage> = Vec::new();
    let mut whole = 0_u64;
    for row in rows {
        let state = if row.n <= upto {
            if kept.contains(&row.n) { MessageChange::Carried } else { MessageChange::Summarised }
        } else {
            match shown.get(&row.n) {
                Some(true) => {
                    whole = whole.saturating_add(1);
                    continue;
                }
                Some(false) => MessageChange::Shortened,
                None => MessageChange::LeftOut,
            }
        };
        changed.push(ChangedMessage {
            row: row.n,
            at: row.at.to_string(),
            state,
            begins: beginning(&row.message),
        });
    }
    let first = changed.len().saturating_sub(MAX_LISTED);
    changed.drain(..first);
    let listed = u64::try_from(changed.len()).unwrap_or(u64::MAX);
    let more = messages.saturating_sub(whole).saturating_sub(listed);
    Ok(ContextDiff { session: next.session.id, messages, whole, changed, more })
}

/// Returns the rows of the history that are in the context, each with whether it is there word for word.
fn shown_rows(next: &NextContext) -> BTreeMap<u64, bool> {
    let mut messages = next.assembled.request.messages.as_slice();
    let mut shown = BTreeMap::new();
    for used in &next.assembled.items {
        let own = messages.get(..used.messages).unwrap_or_default();
        messages = messages.get(used.messages..).unwrap_or_default();
        let Some(place) = used.place else { continue };
        // The messages of a group stand one after another in the history.
        for (n, message) in own.iter().enumerate() {
            let place = place.saturating_add(n);
            let (row, said) = (next.history.numbers.get(place), next.history.messages.get(place));
            if let (Some(row), Some(said)) = (row, said) {
                shown.insert(*row, is_as_said(message, said));
            }
        }
    }
    shown
}

/// Returns true if a message is shown with all of its text; that external results are marked as data does not count.
fn is_as_said(shown: &ChatMessage, said: &ChatMessage) -> bool {
    use writ_types::chat::Part;
    let is_whole = |(shown, said): (&Part, &Part)| match (shown, said) {
        (Part::Result(shown), Part::Result(said)) => shown.text.len() >= said.text.len(),
        (shown, said) => shown == said,
    };
    shown.parts.len() == said.parts.len() && shown.parts.iter().zip(&said.parts).all(is_whole)
}

/// Keeps a message of a session's history in its context, with the calls and results that belong to it.
pub(super) async fn pin_message(
    services: &Services,
    ContextPin { session, row }: ContextPin,
) -> Result<ContextPins, EngineError> {
    let refused = |why: String| EngineError::Params { method: "context.pin".to_owned(), why };
    readable(services, session, "context.pin").await?;
    let session = services.sessions.get(session).await?;
    if services.journal.store.chronicle_rows(session.id, &[row]).await?.is_empty() {
        return Err(refused(format!("the history of this session has no row {row}")));
    }
    let mut pins = session.state().context.pins.clone();
    pins.insert(row);
    if pins.len() > MAX_PINS {
        return Err(refused(format!("{MAX_PINS} messages are pinned already: unpin one of them first")));
    }
    let profile = services.profiles.find_answering(&session.state().answering.clone())?;
    let (_, history, config) = next_seed(services, &session, &profile).await?;
    let (tokens, total) =
        (tokens_of(services, &session, &history, &pins).await?, config.context.total_tokens);
    if tokens.get() > total.get() / PINNED_SHARE {
        return Err(refused(format!(
            "with message {row} the pinned messages take about {tokens}, and together they may take a quarter of the context \
             ({total})"
        )));
    }
    set_pins(services, &session, pins).await
}

/// Returns the estimated tokens of what is pinned, whole: what was summarised as it is carried, the rest with its groups.
async fn tokens_of(
    services: &Services,
    session: &Session,
    history: &TurnHistory,
    pins: &BTreeSet<u64>,
) -> Result<Tokens, EngineError> {
    let places = history.numbers.iter().enumerate().filter(|(_, row)| pins.contains(row));
    let places: Vec<usize> = places.map(|(place, _)| place).collect();
    let mut tokens = pinned_tokens(&history.messages, &places);
    let others: Vec<u64> = pins.iter().copied().filter(|row| !history.numbers.contains(row)).collect();
    for row in services.journal.store.chronicle_rows(session.id, &others).await? {
        tokens = tokens.saturating_add(estimate_tokens(&quote_message(&row.message)));
    }
    Ok(tokens)
}

/// Lets a pinned message go with the others.
pub(super) async fn unpin_message(
    services: &Services,
    ContextPin { session, row }: ContextPin,
) -> Result<ContextPins, EngineError> {
    let session = services.sessions.get(session).await?;
    let mut pins = session.state().context.pins.clone();
    if !pins.remove(&row) {
        let why = format!("message {row} is not pinned");
        return Err(EngineError::Params { method: "context.unpin".to_owned(), why });
    }
    set_pins(services, &session, pins).await
}

async fn set_pins(
    services: &Services,
    session: &Session,
    pins: BTreeSet<u64>,
) -> Result<ContextPins, EngineError> {
    let rows: Vec<u64> = pins.iter().copied().collect();
    let value = (!rows.is_empty()).then(|| rows.clone().into());
    let op = Op::SetSessionMetadata { session: session.id, key: CONTEXT_PINS.to_owned(), value };
    services.journal.store.commit(Batch::synced(vec![op])).await?;
    session.state().context.pins = pins;
    Ok(ContextPins { session: session.id, pins: rows })
}

/// Compacts the history of a session at its owner's word.
pub(super) async fn compact_context(
    services: &Arc<Services>,
    SessionName { session }: SessionName,
) -> Result<CompactionOutcome, EngineError> {
    let session = services.sessions.open_one(session).await?;
    let profile = services.profiles.find_answering(&session.state().answering.clone())?;
    let place = place::outside_turn(services, Arc::clone(&session)).await?;
    let mut place = CallPlace { profile: Arc::clone(&profile), ..place };
    let cancel = session.state().over.child_token();
    // A stopping engine waits for it as for a turn.
    let _running = services.life.turns.token();
    let mut last = None;
    for _ in 0..MAX_PARTS {
        // Taken before the history is read: a turn may be summarising it.
        let _compacting = session.compacting.lock().await;
        let (seed, history, config) = next_seed(services, &session, &profile).await?;
        let Some(plan) = compaction::plan(services, &config, &seed, &history, Some(CompactionReason::Asked))
        else {
            break;
        };
        let done = compaction::compact(&place, (&config, plan), &history, &cancel).await?;
        place.spent.turn_cost = place.spent.turn_cost.saturating_add(done.cost);
        let Some(compaction) = done.compaction else { break };
        last = Some(summary_of(compaction));
    }
    Ok(CompactionOutcome { session: session.id, compaction: last })
}
