//! Collects the context with which a turn begins, apart from its message.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;

use tokio::sync::mpsc;
use writ_agent::config::AgentConfig;
use writ_agent::context;
use writ_agent::event::{BudgetSeed, ContextSeed, MemoryItem, WorkspaceItem};
use writ_policy::budget::Spent;
use writ_policy::keys::Authority;
use writ_store::batch::{Batch, Op};
use writ_store::reads::UsageReads as _;
use writ_types::action::{ActionKind, MemoryKind};
use writ_types::chat::ChatMessage;
use writ_types::id::TurnId;
use writ_types::taint::Label;
use writ_types::unit::MicroUsd;

use crate::error::EngineError;
use crate::history::{TurnHistory, read_history};
use crate::model::secrets;
use crate::pending::Pending;
use crate::place::CallPlace;
use crate::profile::AgentProfile;
use crate::services::Services;
use crate::session::{Interrupt, MAX_INTERRUPTS, Session};
use crate::{budget, subscriptions};

/// The largest number of memories about the owner that are pinned.
const PROFILE_LIMIT: usize = 8;

/// Returns the settings of a turn, narrowed to the limits of its model if they are known. If the system texts
/// do not fit those limits, the full settings are used, because the model's server may have restarted with
/// more room.
pub(super) fn settings(services: &Services, profile: &AgentProfile, seed: &ContextSeed) -> AgentConfig {
    let config = &services.config.agent_config;
    let room = services.outside.models.as_ref().and_then(|models| {
        models.context_room(models.routes().route(profile.model), services.journal.clock.now())
    });
    let narrowed = room.map(|room| config.narrow_to(room));
    let fits = |narrow: &AgentConfig| context::system_tokens(seed) <= narrow.context.system_max;
    narrowed.filter(fits).unwrap_or_else(|| config.clone())
}

/// Reads the current content of the session's subscriptions. Also returns the interrupts that arrived
/// meanwhile, for the turn to handle.
pub(super) async fn kept(
    (services, session, profile): (&Arc<Services>, &Arc<Session>, &Arc<AgentProfile>),
    (turn, number): (TurnId, u64),
    authority: &Arc<Authority>,
    keyed: &mut Pending,
    interrupts: &mut mpsc::Receiver<Interrupt>,
) -> Result<(Vec<WorkspaceItem>, VecDeque<Interrupt>), EngineError> {
    let mut heard = VecDeque::new();
    if session.state().subscriptions.list.is_empty() {
        return Ok((Vec::new(), heard));
    }
    // They are read with the turn's key.
    services.journal.store.commit(keyed.take().into_relaxed()).await?;
    let place = CallPlace {
        services: Arc::clone(services),
        profile: Arc::clone(profile),
        session: Arc::clone(session),
        turn: Some(turn),
        number,
        authority: Arc::clone(authority),
        origins: None,
        spent: budget::read_spent(services, session, MicroUsd::ZERO, &[]).await?,
    };
    let cancel = services.life.stop_now.child_token();
    let mut reading = pin!(subscriptions::materialize(&place, &cancel));
    loop {
        tokio::select! {
            biased;
            done = &mut reading => return done.map(|items| (items, heard)),
            Some(interrupt) = interrupts.recv(), if heard.len() < MAX_INTERRUPTS => {
                if matches!(interrupt, Interrupt::Cancel) {
                    cancel.cancel();
                }
                heard.push_back(interrupt);
            }
        }
    }
}

/// Collects the model's context apart from the message, and the history separately.
pub(super) async fn seed(
    (services, session, profile): (&Services, &Session, &AgentProfile),
    turn: TurnId,
    spent: &Spent,
) -> Result<(ContextSeed, Vec<Arc<ChatMessage>>), EngineError> {
    let tools = services.servers.registry();
    let allow = services.gates.offered(session, turn, profile.allow_list(&tools));
    // Pinned memories count as recall too, so they need the grant for it.
    let recalls = session.grants().kinds.contains_key(&ActionKind::Recall);
    let pinned = recalls.then(|| (MemoryKind::Profile, secrets(services), PROFILE_LIMIT));
    let TurnHistory { messages: history, rows: history_rows, pinned: known } = read_history(
        (&services.journal.store, &services.life.histories),
        session.id,
        services.config.max_chronicle_entries,
        pinned,
    )
    .await?;
    let state = session.state();
    let seed = ContextSeed {
        system: profile.system.clone(),
        tools: tools.toolset_of(&profile.roles, &allow).specs(),
        owner_profile: known
            .into_iter()
            .map(|memory| MemoryItem {
                id: memory.id,
                kind: memory.item.memory_kind,
                label: Label { secret: memory.item.secret, ..Label::new(memory.item.taint) },
                text: memory.item.text,
                why: String::new(),
            })
            .collect(),
        history: Vec::new(),
        history_rows,
        workspace: Vec::new(),
        setting: Some(setting(services, session)),
        rehydrated: state.rehydrated,
        profile: profile.context.clone(),
        budget: BudgetSeed {
            used: spent.session_tokens,
            limit: services.keys.limits_of(Some(session)).max_tokens_per_session,
            given: state.budget.note,
        },
    };
    Ok((seed, history))
}

/// When and where a turn takes place: the date, the time zone and the work folder.
fn setting(services: &Services, session: &Session) -> String {
    let now = services.config.time_zone.format_moment(services.journal.clock.now());
    let folder = session
        .project()
        .map(writ_inspect::show::escape_line)
        .map(|path| format!(" The project is the folder \"{path}\"."));
    format!("[Now] {now}.{}", folder.unwrap_or_default())
}

/// A session that has used up its tokens gets a fresh allocation with its owner's next message, unless the day's
/// tokens are used up too. What was spent by now.
pub(super) async fn renew_budget(services: &Services, session: &Session) -> Result<Spent, EngineError> {
    let spent = budget::read_spent(services, session, MicroUsd::ZERO, &[]).await?;
    let limits = &services.config.budget;
    // An order's tokens are for all of its turns.
    let renewed = session.terms.order.is_none();
    if !renewed
        || spent.session_tokens < limits.max_tokens_per_session
        || spent.day_tokens >= limits.max_tokens_per_day
    {
        return Ok(spent);
    }
    let base = services.journal.store.session_usage(session.id).await?.usage.total_tokens();
    let op = Op::SetSessionMetadata {
        session: session.id,
        key: "budget_base".to_owned(),
        value: Some(base.get().into()),
    };
    services.journal.store.commit(Batch::relaxed(vec![op])).await?;
    session.state().budget.renew_from(base);
    budget::read_spent(services, session, MicroUsd::ZERO, &[]).await
}
