//! Approved plans: the key that the approval of one mints, and finding those that may cover an action.

use writ_inspect::show;
use writ_policy::keys::{self, TaskClaims};
use writ_policy::permit::Permit;
use writ_policy::plan;
use writ_store::approvals::NewPlan;
use writ_store::batch::Op;
use writ_store::reads::{ApprovalReads as _, PlanReads as _, UsageReads as _};
use writ_tools::outcome::PerformedOutcome;
use writ_types::action::{Action, Plan};
use writ_types::api::approval::ApprovalInForce;
use writ_types::entry::Fact;
use writ_types::error::{Exit, Report};

use crate::error::EngineError;
use crate::pending::Pending;
use crate::place::CallPlace;
use crate::services::Services;

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
    let task = place.authority.task();
    let minutes = std::time::Duration::from_secs(plan.minutes.saturating_mul(60));
    let claims = TaskClaims {
        key: services.journal.ids.key(now),
        base: services.keys.held.base_claims.key,
        session: place.session.id,
        not_before: now,
        expires_at: now.plus_duration(minutes).min(approved.expires_at),
        grants: plan::plan_grants(plan),
        case: None,
        under: task.under.clone(),
        plan: Some(approved.prepared),
    };
    if !claims.grants.is_within(&place.session.grants()) {
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
        session: place.session.id,
        key: claims.key,
        token: token.into(),
        // As the clock says: the store compares it with that.
        begins_at: services.journal.clock.now(),
        ends_at: claims.expires_at,
        cost_before: services.journal.store.session_usage(place.session.id).await?.cost,
        max_cost: plan.max_cost,
        times: plan.steps.iter().map(|step| step.times).collect(),
    })));
    Ok(PerformedOutcome::Planned { steps: plan.steps.len(), until: claims.expires_at })
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
