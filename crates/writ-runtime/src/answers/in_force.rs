//! Approvals that are in force: listed, and revoked.

use serde_json::{Value, json};
use writ_inspect::show;
use writ_policy::approval::ApprovalToken;
use writ_policy::principal::Authenticated;
use writ_policy::taint::describe_endorsement;
use writ_store::approvals::{StoredApproval as Stored, StoredAsk as AskRow};
use writ_store::batch::{Batch, Op};
use writ_store::reads::{ApprovalReads as _, AskReads as _, PlanReads as _};
use writ_types::api::approval::{ApprovalInForce, ApprovalList, ApprovalRevocation};
use writ_types::entry::{ApprovalScope, Decision, Entry, Fact};
use writ_types::id::AskId;

use crate::asks::task::{meant, words};
use crate::error::EngineError;
use crate::plans;
use crate::services::Services;
/// The most approvals for tasks that are listed.
const MAX_LISTED: usize = 500;

/// The approvals for tasks and the standing ones that are in force, for people.
///
/// # Errors
///
/// If the store cannot be read.
pub(crate) async fn list_in_force(services: &Services) -> Result<ApprovalList, EngineError> {
    let rows = services.journal.store.task_approvals(None, services.journal.valid_now(), MAX_LISTED).await?;
    let mut approvals: Vec<_> = rows.iter().filter_map(|(ask, stored)| in_force(ask, stored)).collect();
    approvals.extend(plans::plans_in_force(services).await?);
    approvals.extend(services.journal.store.endorsements(None).await?.iter().map(|(ask, _)| endorsed(ask)));
    approvals.extend(services.reach.trusted().await?.iter().map(|trusted| trusted.in_force()));
    Ok(ApprovalList { approvals })
}

/// Takes an approval for a task, or a standing one, back: the next use of it is refused, and what runs on it is
/// stopped.
///
/// # Errors
///
/// If there is none in force, or the store cannot be written.
pub(crate) async fn revoke(
    services: &Services,
    who: &Authenticated<()>,
    id: &AskId,
) -> Result<ApprovalRevocation, EngineError> {
    let now = services.journal.clock.now();
    let none = || EngineError::NotInForce(id.clone());
    let stored = services.journal.store.approval(id).await?.ok_or_else(none)?;
    let lasts = stored.max_uses > 1 || stored.standing;
    let is_left =
        lasts && stored.executions_used < stored.max_uses && services.journal.valid_now() < stored.expires_at;
    // An approval stays in force while its last use runs, for instance a server that was started on it.
    let in_force = is_left || services.life.approved.acting.is_on(id);
    // Values approved as the owner's stay the owner's as long as the conversation exists.
    let values = stored.token.pointer("/claims/values").is_some_and(|values| *values == json!(true));
    let plan = services.journal.store.plan_of(id, services.journal.valid_now()).await?;
    let host = stored.token.pointer("/claims/host").and_then(Value::as_str);
    if stored.revoked || !(values || host.is_some() || plan.is_some() || in_force) {
        return Err(none());
    }
    let ask = services.journal.store.ask(id).await?.ok_or_else(none)?;
    let scope = if stored.standing { ApprovalScope::Standing } else { ApprovalScope::Task };
    let fact = Fact::Answered {
        ask: id.clone(),
        decision: Decision::Deny,
        scope,
        covers: String::new(),
        by: who.principal().to_string(),
        reason: "the approval was taken back".to_owned(),
    };
    let (session, turn, turn_number) = (ask.card.session, ask.prepared.turn, ask.prepared.turn_number);
    let entry = Entry { at: now, session, turn, turn_number, fact };
    let mut ops = vec![Op::Append(Box::new(entry)), Op::RevokeApproval { ask: id.clone() }];
    // A host may have been approved twice before it was trusted.
    let twins = match host {
        Some(host) => services.reach.trusted_by(host).await?,
        None => Vec::new(),
    };
    let others = twins.iter().filter(|twin| twin.card.ask_id != *id);
    ops.extend(others.map(|twin| Op::RevokeApproval { ask: twin.card.ask_id.clone() }));
    // The key of a plan ends with its approval.
    ops.extend(plan.map(|plan| Op::Revoke {
        id: plan.key.to_string(),
        at: now,
        expires_at: Some(plan.ends_at),
    }));
    services.journal.store.commit(Batch::synced(ops)).await?;
    // The store is written first: later uses are refused, and running ones are then stopped.
    let stopped = services.life.approved.acting.stop(id);
    Ok(ApprovalRevocation { ask_id: id.clone(), state: "revoked".to_owned(), stopped })
}

/// Describes values that a person endorsed as their own; the endorsement lasts as long as the conversation.
fn endorsed(ask: &AskRow) -> ApprovalInForce {
    ApprovalInForce {
        ask_id: ask.card.ask_id.clone(),
        session: ask.card.session,
        scope: ApprovalScope::Values.as_str().to_owned(),
        covers: describe_endorsement(&ask.card.values),
        intent: show::escape_line(&ask.card.intent),
        risk: ask.card.risk,
        by: ask.resolved_by.clone(),
        uses_left: None,
        total_left: None,
        expires_at: None,
        key: None,
        counts: None,
    }
}

fn in_force(ask: &AskRow, stored: &Stored) -> Option<ApprovalInForce> {
    let token: ApprovalToken = serde_json::from_value(stored.token.clone()).ok()?;
    let pattern = meant(&ask.card, &token.claims)?;
    let total_left = stored.total_left.and_then(|left| match left {
        0 => Some("0".to_owned()),
        left => writ_types::unit::Amount::from_millionths(left).ok().map(|left| left.to_string()),
    });
    Some(ApprovalInForce {
        ask_id: ask.card.ask_id.clone(),
        session: pattern.session,
        scope: token.claims.answer_scope().as_str().to_owned(),
        covers: words(pattern),
        intent: show::escape_line(&ask.card.intent),
        risk: ask.card.risk,
        by: ask.resolved_by.clone(),
        uses_left: Some(stored.max_uses.saturating_sub(stored.executions_used)),
        total_left,
        expires_at: Some(stored.expires_at),
        key: None,
        counts: None,
    })
}
