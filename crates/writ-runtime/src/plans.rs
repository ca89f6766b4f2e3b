//! Approved plans: the key that the approval of one mints, and finding those that may cover an action.

use std::sync::Arc;

use writ_inspect::show;
use writ_plan::machine::{WorkEvent, next_state};
use writ_policy::keys::grants::Grants;
use writ_policy::keys::{self, TaskClaims};
use writ_policy::permit::Permit;
use writ_policy::plan;
use writ_store::approvals::{NewPlan, StoredApproval};
use writ_store::batch::Op;
use writ_store::reads::{ApprovalReads as _, PlanReads as _, UsageReads as _, WorkReads as _};
use writ_store::work::{ItemMove, WorkOp};
use writ_tools::outcome::PerformedOutcome;
use writ_types::action::{Action, ActionKind, Plan, WorkOrder};
use writ_types::api::approval::ApprovalInForce;
use writ_types::entry::Fact;
use writ_types::error::{Exit, Report, ToReport as _};
use writ_types::unit::Timestamp;
use writ_types::work::WorkKind;

use crate::budget;
use crate::error::{EngineError, WorkError};
use crate::pending::Pending;
use crate::place::CallPlace;
use crate::services::Services;
use crate::session::{BUDGET_BASE, BUDGET_COST_BASE, Session, work_kinds};
use crate::work_calls::worked;

/// The most plans of one session that are looked through for one that covers an action, and that are listed.
const MAX_PLANS: usize = 64;

/// Mints the task key of a plan that a person has approved.
///
/// # Errors
///
/// If the store cannot be read, or the key cannot be made.
pub(crate) async fn mint(
    place: &CallPlace,
    permit: Permit,
    ops: &mut Pending,
) -> Result<PerformedOutcome, EngineError> {
    let (services, now) = (&place.services, place.services.journal.valid_now());
    let ask = permit.approval().cloned();
    let prepared = crate::place::opened(place, permit)?;
    let (Action::Plan(plan), Some(ask)) = (&prepared.action, ask) else {
        return Err(EngineError::Machine("a plan that was not approved".to_owned()));
    };
    let unapproved = || EngineError::Machine("a plan without a stored approval".to_owned());
    let approved = services.journal.store.approval(&ask).await?.ok_or_else(unapproved)?;
    // The plan of a work item is run in a session of its own.
    let own = match &plan.work {
        Some(work) => services.sessions.open_one(work.session).await?,
        None => Arc::clone(&place.session),
    };
    let begun = match &plan.work {
        None => Vec::new(),
        Some(work) => match begin_work(services, work).await {
            Ok(begun) => begun,
            Err(EngineError::Work(error)) => {
                return Ok(PerformedOutcome::Failed { report: error.report() });
            }
            Err(error) => return Err(error),
        },
    };
    let claims = task_claims(place, plan, &own, &approved, now);
    let held = Grants { preapproved: claims.grants.preapproved.clone(), ..own.grants() };
    if !claims.grants.is_within(&held) {
        let text = "a session does not grant all that the plan names".to_owned();
        return Ok(PerformedOutcome::Failed { report: Report::new(Exit::Denied, "plan.wider", text) });
    }
    let token = keys::mint_task(
        &services.keys.held.base,
        &claims,
        &services.keys.held.root,
        &services.keys.held.harness,
    )?;
    services.keys.verifier.verify_task(&token)?;
    let fact = Fact::Keyed {
        key: claims.key,
        role: "task".to_owned(),
        change: "minted".to_owned(),
        grants: format!(
            "the {} steps of plan {} until {}",
            plan.steps.len(),
            approved.prepared,
            claims.expires_at
        ),
    };
    ops.push(services.journal.entry(place.session.id, place.at(), fact));
    ops.push(Op::KeepPlan(Box::new(NewPlan {
        ask,
        session: own.id,
        key: claims.key,
        token: token.into(),
        // By the clock, since the store compares it with that.
        begins_at: services.journal.clock.now(),
        ends_at: claims.expires_at,
        cost_before: services.journal.store.session_usage(own.id).await?.cost,
        max_cost: plan.max_cost,
        times: plan.steps.iter().map(|step| step.times).collect(),
    })));
    ops.extend(begun);
    Ok(PerformedOutcome::Planned { steps: plan.steps.len(), until: claims.expires_at })
}

/// Returns the claims of a plan's key, which is for the session in which the plan runs.
fn task_claims(
    place: &CallPlace,
    plan: &Plan,
    own: &Session,
    approved: &StoredApproval,
    now: Timestamp,
) -> TaskClaims {
    let services = &place.services;
    let minutes = std::time::Duration::from_secs(plan.minutes.saturating_mul(60));
    TaskClaims {
        key: services.journal.ids.key(now),
        base: services.keys.held.base_claims.key,
        session: own.id,
        not_before: now,
        expires_at: match &plan.work {
            // Its card shows how long; what one approval of a step may take is another matter.
            Some(_) => now.plus_duration(minutes),
            None => now.plus_duration(minutes).min(approved.expires_at),
        },
        grants: granted(plan, own),
        case: None,
        under: place.authority.task().under.clone(),
        plan: Some(approved.prepared),
    }
}

/// Returns the grants of a plan's key: what its exact steps touch, and for a work item what a session may do, but for
/// memories, further plans and what lasts beyond it.
fn granted(plan: &Plan, own: &Session) -> Grants {
    let mut grants = plan::plan_grants(plan);
    let Some(work) = &plan.work else { return grants };
    for (kind, scopes) in work_kinds(own.grants()) {
        grants.kinds.entry(kind).or_default().extend(scopes);
    }
    // By its card, verified changes are put into the folder.
    if work.project.is_some() { grants.preapprove_kind(ActionKind::WriteFile) } else { grants }
}

/// The operations that begin an item after its plan was approved, in the commit that makes its key known.
async fn begin_work(services: &Services, work: &WorkOrder) -> Result<Vec<Op>, EngineError> {
    let item = services.journal.store.work_item(work.item).await?;
    let item = item.ok_or_else(|| WorkError::Unknown(work.item.to_string()))?;
    let began = next_state(item.state, WorkEvent::Approve);
    // A person may have cancelled it while the card was open, or the plan is that of an earlier round.
    let state = began.filter(|_| item.round == work.round).ok_or_else(|| WorkError::State {
        item: item.id,
        state: item.state.name().to_owned(),
        wanted: "begun",
    })?;
    let mut ops = Vec::new();
    if work.round > 0 {
        // A new approval is for as many tokens and as much money again.
        let used = match work.document.kind {
            WorkKind::Pilot => budget::read_item_usage(services, work.item).await?,
            WorkKind::Task | WorkKind::Project | WorkKind::Goal => {
                services.journal.store.session_usage(work.session).await?
            }
        };
        let (tokens, cost) = (used.usage.total_tokens(), used.cost);
        let own = services.sessions.open_one(work.session).await?;
        {
            let mut state = own.state();
            state.budget.renew_from(tokens);
            state.budget.cost_base = cost;
        }
        let base = |key: &str, value: u64| Op::SetSessionMetadata {
            session: work.session,
            key: key.to_owned(),
            value: Some(value.into()),
        };
        ops.extend([base(BUDGET_BASE, tokens.get()), base(BUDGET_COST_BASE, cost.get())]);
    }
    ops.extend([
        worked(&services.journal, &item, "", state.name(), "its plan was approved"),
        Op::Work(WorkOp::Move(ItemMove {
            item: item.id,
            version: item.version,
            state,
            is_active: true,
            reason: String::new(),
            at: services.journal.clock.now(),
        })),
    ]);
    Ok(ops)
}

/// The plans that are in force, for people.
///
/// # Errors
///
/// If the store cannot be read.
pub(crate) async fn plans_in_force(services: &Services) -> Result<Vec<ApprovalInForce>, EngineError> {
    let now = services.journal.valid_now();
    let mut shown = Vec::new();
    for (row, ask, stored) in services.journal.store.plans_left_with_approvals(None, now, MAX_PLANS).await? {
        let Action::Plan(plan) = &ask.prepared.action else { continue };
        // A plan covers nothing after its rules have changed or its key was removed.
        let counts = match services.sessions.get(row.session).await {
            Ok(session) => {
                let policy = services.rules.rules_of(Some(session.as_ref())).digest();
                services.door.door.writ(&row, (&ask, stored), policy).await?.is_some()
            }
            // The rules of its project cannot be read: it covers nothing now.
            Err(_) => false,
        };
        shown.push(ApprovalInForce {
            ask_id: row.ask.clone(),
            session: Some(row.session),
            scope: "plan".to_owned(),
            covers: words(plan, &row.left),
            intent: show::escape_line(&ask.card.intent),
            risk: ask.card.risk,
            by: ask.resolved_by.clone(),
            uses_left: Some(row.left.iter().map(|left| u64::from(*left)).sum()),
            total_left: row.cost_left.map(|left| left.to_string()),
            expires_at: Some(row.ends_at),
            key: Some(row.key),
            counts: Some(counts),
        });
    }
    Ok(shown)
}

fn words(plan: &Plan, left: &[u32]) -> String {
    let steps = plan
        .steps
        .iter()
        .zip(left)
        .map(|(step, left)| format!("{} ({left} of {} left)", show::escape_line(&step.tool), step.times));
    let steps: Vec<String> = steps.collect();
    format!("plan '{}': {}", show::escape_line(&plan.title), steps.join(", "))
}
