//! The keys that agents act under: which are in force, and taking one back.

use std::collections::BTreeMap;
use std::sync::Arc;

use writ_policy::keys::{Authority, TaskClaims};
use writ_policy::principal::Authenticated;
use writ_store::approvals::PlanRow;
use writ_store::batch::{Batch, Op};
use writ_store::config::MAX_READ_ROWS;
use writ_store::reads::{KeyReads as _, PlanReads as _, RevocationReads as _};
use writ_types::api::key::{BaseKey, KeyList, Revocation, RevocationRequest, TaskKey};
use writ_types::entry::{Entry, Fact};
use writ_types::id::KeyId;
use writ_types::unit::Timestamp;

use super::{MAX_LISTED, issued};
use crate::error::{EngineError, KeysError};
use crate::services::Services;
use crate::session::Session;

/// The longest reason that is stored, in characters.
const MAX_REASON_CHARS: usize = 500;
/// Reason recorded for the keys that are revoked when their session closes.
const CLOSED: &str = "its session was closed";

/// The base key, and the task keys of sessions that can still use theirs.
///
/// # Errors
///
/// If the store cannot be read.
pub(super) async fn list_keys(services: &Services) -> Result<KeyList, EngineError> {
    let now = services.journal.valid_now();
    let base = &services.keys.held.base_claims;
    let mut tasks = Vec::new();
    for (session, task) in held_keys(services) {
        if tasks.len() < MAX_LISTED
            && now < task.expires_at
            && !services.journal.store.is_revoked(&task.key.to_string()).await?
        {
            tasks.push(TaskKey {
                key: task.key,
                session: session.id,
                expires_at: task.expires_at,
                grants: grant_words(&task),
                running: session.runs(None),
            });
        }
    }
    for plan in services.journal.store.plans(None, now, MAX_LISTED).await? {
        tasks.push(TaskKey {
            key: plan.key,
            session: plan.session,
            expires_at: plan.ends_at,
            grants: format!("the steps of plan {}", plan.ask),
            running: services.life.approved.acting.is_on(&plan.ask),
        });
    }
    let revoked = services.journal.store.is_revoked(&base.key.to_string()).await?;
    let base = BaseKey { key: base.key, agent: base.agent.clone(), expires_at: base.expires_at, revoked };
    Ok(KeyList { base, tasks, issued: issued::list_issued(services, MAX_LISTED).await? })
}

/// Revokes a key: from now on the door refuses what rests on it. What runs under it is stopped. A session gets a new
/// task key with its owner's next message; the base key's successor is made when the engine starts again.
///
/// # Errors
///
/// If it is no key that is known, or was revoked, or the store cannot be written.
pub(super) async fn revoke_key(
    services: &Services,
    who: &Authenticated<()>,
    RevocationRequest { key, reason }: RevocationRequest,
) -> Result<Revocation, EngineError> {
    let at = services.journal.clock.now();
    if services.journal.store.is_revoked(&key.to_string()).await? {
        return Err(KeysError::Unknown(key).into());
    }
    let (base, held) = (&services.keys.held.base_claims, held_keys(services));
    let task = held.iter().find(|(_, task)| task.key == key);
    let (role, expires_at) = if key == base.key {
        ("base".to_owned(), base.expires_at)
    } else if let Some((_, task)) = task {
        ("task".to_owned(), task.expires_at)
    } else {
        given_out(services, key).await?.ok_or(KeysError::Unknown(key))?
    };
    let affected = |held: Vec<(Arc<Session>, TaskClaims)>| {
        let rests = held
            .into_iter()
            .filter(|(_, task)| task.base == key || task.key == key || task.under.contains(&key));
        let mut affected: Vec<Arc<Session>> = rests.map(|(session, _)| session).collect();
        // A session that holds two keys over the same base is stopped only once.
        affected.dedup_by_key(|session| session.id);
        affected
    };
    let plan = services.journal.store.plan_under(key).await?;
    let first = affected(held).first().map(|session| session.id);
    let reason: String = reason.chars().take(MAX_REASON_CHARS).collect();
    let grants = format!("by {}: {reason}", who.principal());
    let fact = Fact::Keyed { key, role: role.clone(), change: "revoked".to_owned(), grants };
    let session = if role == "task" { first } else { None };
    let entry = Entry { at, session, turn: None, turn_number: 0, fact };
    let revoke = Op::Revoke { id: key.to_string(), at, expires_at: Some(expires_at) };
    services.journal.store.commit(Batch::synced(vec![Op::Append(Box::new(entry)), revoke])).await?;
    // The revocation is written first, so that new actions are refused before running ones are stopped.
    if let Some(plan) = &plan {
        services.life.approved.acting.stop(&plan.ask);
    }
    let affected = affected(self::held_keys(services));
    let stopped = affected.iter().filter(|session| session.cancel_turns());
    let stopped = stopped.map(|session| session.id).collect();
    affected.iter().for_each(|session| services.servers.stop_session(session.id));
    Ok(Revocation { key, role, state: "revoked".to_owned(), stopped })
}

/// The role of a key that was given out or of a standing order, and when it ends, if it is known. Whether it is over is not
/// asked: a clock can be wrong, and what was revoked stays so.
async fn given_out(services: &Services, key: KeyId) -> Result<Option<(String, Timestamp)>, EngineError> {
    if let Some(order) = services.journal.store.standing_order(key).await? {
        return Ok(Some(("order".to_owned(), order.expires_at)));
    }
    if let Some(plan) = services.journal.store.plan_under(key).await? {
        return Ok(Some(("plan".to_owned(), plan.ends_at)));
    }
    let issued = services.journal.store.issued_key(key).await?;
    Ok(issued.map(|issued| (issued.role, issued.expires_at)))
}

/// The task keys that sessions hold.
fn held_keys(services: &Services) -> Vec<(Arc<Session>, TaskClaims)> {
    let sessions: Vec<Arc<Session>> = services.sessions.loaded().values().cloned().collect();
    let tasks = |session: Arc<Session>| {
        let acting = session.state().all_acting().collect();
        held_by(&session, acting)
            .into_iter()
            .map(move |task| (Arc::clone(&session), task))
            .collect::<Vec<_>>()
    };
    sessions.into_iter().flat_map(tasks).collect()
}

/// The task keys that a session holds, each once: those of what acts, and that of the turns before.
fn held_by(session: &Session, acting: Vec<Arc<Authority>>) -> Vec<TaskClaims> {
    let before = session.state().keys.task.clone();
    let held = acting.into_iter().chain(before);
    let tasks: BTreeMap<KeyId, TaskClaims> =
        held.map(|held| (held.task().key, held.task().clone())).collect();
    tasks.into_values().collect()
}

/// Returns the operations that revoke every task key of a closed session, including those of its plans, and
/// the plans.
///
/// # Errors
///
/// If the store cannot be read.
pub(super) async fn ends_of_keys(
    services: &Services,
    session: &Session,
    now: Timestamp,
) -> Result<(Vec<Op>, Vec<PlanRow>), EngineError> {
    let plans = services.journal.store.plans(Some(session.id), now, MAX_READ_ROWS).await?;
    // Actions that still run in a closed session still have their key.
    let ending = session.state().acting().collect();
    let tasks = held_by(session, ending).into_iter().map(|task| ("task", task.key, task.expires_at));
    let planned = plans.iter().map(|plan| ("plan", plan.key, plan.ends_at));
    let mut ops = Vec::new();
    for (role, key, expires_at) in tasks.chain(planned) {
        let id = key.to_string();
        if now >= expires_at || services.journal.store.is_revoked(&id).await? {
            continue;
        }
        let (role, change, grants) = (role.to_owned(), "revoked".to_owned(), CLOSED.to_owned());
        ops.push(services.journal.entry(session.id, None, Fact::Keyed { key, role, change, grants }));
        ops.push(Op::Revoke { id, at: now, expires_at: Some(expires_at) });
    }
    Ok((ops, plans))
}

fn grant_words(task: &TaskClaims) -> String {
    task.grants.kinds.keys().map(|kind| kind.as_str()).collect::<Vec<_>>().join(", ")
}
