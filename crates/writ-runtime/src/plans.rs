//! Approved plans: the key that the approval of one mints, and finding those that may cover an action.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use writ_policy::approval::ApprovalToken;
use writ_policy::door::Facts;
use writ_policy::keys::{self, Authority, TaskClaims, Token};
use writ_policy::permit::Permit;
use writ_policy::plan::{self, InForce};
use writ_policy::prepared::Prepared;
use writ_policy::show;
use writ_store::approvals::{NewPlan, PlanRow};
use writ_store::batch::Op;
use writ_tools::outcome::PerformedOutcome;
use writ_types::action::{Action, Plan};
use writ_types::entry::Fact;
use writ_types::error::{Exit, Report};
use writ_types::id::AskId;

use crate::act::Place;
use crate::core::Core;
use crate::error::EngineError;

/// The most plans of one session that are looked through for one that covers an action, and that are listed.
const MAX_PLANS: usize = 64;

/// A plan that covers an action, with the authority of its key.
#[derive(Debug)]
pub(crate) struct Writ {
    pub(crate) authority: Authority,
    pub(crate) plan: InForce,
}

impl Writ {
    /// Has the door decide under the plan's own key.
    pub(crate) const fn govern<'a>(&'a self, facts: &mut Facts<'a>) {
        facts.authority = &self.authority;
        facts.plan.in_force = Some(&self.plan);
    }
}

/// Mints the task key of a plan that a person has approved.
///
/// # Errors
///
/// If the store cannot be read, or the key cannot be made.
pub(crate) fn mint(
    place: &Place,
    permit: Permit,
    ops: &mut Vec<Op>,
) -> Result<PerformedOutcome, EngineError> {
    let (core, now) = (&place.core, place.core.valid_now());
    let ask = permit.approval().cloned();
    let prepared = crate::perform::opened(place, permit)?;
    let (Action::Plan(plan), Some(ask)) = (&prepared.action, ask) else {
        return Err(EngineError::Machine("a plan that was not approved".to_owned()));
    };
    let unapproved = || EngineError::Machine("a plan without a stored approval".to_owned());
    let approved = core.store.approval(&ask)?.ok_or_else(unapproved)?;
    let task = place.authority.task();
    let minutes = std::time::Duration::from_secs(plan.minutes.saturating_mul(60));
    let claims = TaskClaims {
        key: core.ids.key(now),
        base: core.keys.base_claims.key,
        session: place.session.id,
        not_before: now,
        expires_at: now.plus(minutes).min(approved.expires_at),
        grants: plan::grants(plan),
        case: None,
        under: task.under.clone(),
        plan: Some(approved.prepared),
    };
    if !claims.grants.within(&place.session.grants()) {
        let text = "a session does not grant all that the plan names".to_owned();
        return Ok(PerformedOutcome::Failed { report: Report::new(Exit::Denied, "plan.wider", text) });
    }
    let token = keys::mint_task(&core.keys.base, &claims, &core.keys.root, &core.keys.harness)?;
    core.verifier.verify(&token)?;
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
    ops.push(core.entry(place.session.id, place.at(), fact));
    ops.push(Op::KeepPlan(Box::new(NewPlan {
        ask,
        session: place.session.id,
        key: claims.key,
        token: token.into(),
        // As the clock says: the store compares it with that.
        begins_at: core.clock.now(),
        ends_at: claims.expires_at,
        cost_before: core.store.session_usage(place.session.id)?.cost,
        max_cost: plan.max_cost,
        times: plan.steps.iter().map(|step| step.times).collect(),
    })));
    Ok(PerformedOutcome::Planned { steps: plan.steps.len(), until: claims.expires_at })
}

impl Core {
    /// The newest approved plan of an action's session that has a step for it and was not `tried`, checked as if it had just
    /// been given. What was looked at is tried from then on.
    ///
    /// # Errors
    ///
    /// If the store cannot be read.
    pub(crate) fn writ_for(
        &self,
        prepared: &Prepared,
        tried: &mut BTreeSet<AskId>,
    ) -> Result<Option<Box<Writ>>, EngineError> {
        let (Some(session), now) = (prepared.session, self.valid_now()) else { return Ok(None) };
        for row in self.store.plans_left(Some(session), now, MAX_PLANS)? {
            if !tried.insert(row.ask.clone()) {
                continue;
            }
            let Some(writ) = self.writ(&row)? else { continue };
            if writ.plan.steps(prepared).next().is_some() {
                return Ok(Some(Box::new(writ)));
            }
        }
        Ok(None)
    }

    /// A plan as it was approved, if all of that still counts: signature, key, rules, epoch, time, money.
    fn writ(&self, row: &PlanRow) -> Result<Option<Writ>, EngineError> {
        let (Some(ask), Some(stored)) = (self.store.ask(&row.ask)?, self.store.approval(&row.ask)?) else {
            return Ok(None);
        };
        let Ok(token) = serde_json::from_value::<ApprovalToken>(stored.token) else { return Ok(None) };
        let Ok(approval) = self.approval_of(&ask, &token)? else { return Ok(None) };
        let Ok(key) = Token::try_from(row.token.clone()) else { return Ok(None) };
        let Ok(authority) = self.verifier.verify(&key) else { return Ok(None) };
        // The key of its agent may have been taken back after it was minted.
        if !self.revoked(&authority)?.is_empty() {
            return Ok(None);
        }
        let loaded = self.session(row.session)?;
        let policy = self.rules_of(Some(&loaded)).digest();
        let plan = InForce::new(&ask.prepared, &approval, (ask.card.risk, policy), row.left.clone());
        Ok(plan.map(|plan| Writ { authority, plan }))
    }

    /// The plans that are in force, for people.
    ///
    /// # Errors
    ///
    /// If the store cannot be read.
    pub(crate) fn plans_in_force(&self) -> Result<Vec<Value>, EngineError> {
        let now = self.valid_now();
        let mut shown = Vec::new();
        for row in self.store.plans_left(None, now, MAX_PLANS)? {
            let Some(ask) = self.store.ask(&row.ask)? else { continue };
            let Action::Plan(plan) = &ask.prepared.action else { continue };
            // Rules that have changed, a key that was removed: it covers nothing any more.
            let counts = self.writ(&row)?.is_some();
            shown.push(json!({
                "ask_id": row.ask, "session": row.session, "scope": "plan", "covers": words(plan, &row.left),
                "intent": show::escape_line(&ask.card.intent), "risk": ask.card.risk, "by": ask.resolved_by,
                "uses_left": row.left.iter().map(|left| u64::from(*left)).sum::<u64>(),
                "total_left": row.cost_left.map(|left| left.to_string()), "expires_at": row.ends_at,
                "key": row.key, "counts": counts,
            }));
        }
        Ok(shown)
    }
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
