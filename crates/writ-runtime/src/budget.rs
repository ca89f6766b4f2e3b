//! Tokens and money that were spent or are reserved, and warnings before a limit is reached.

use writ_policy::budget::{BudgetConfig, PlanCeilings, Spent};
use writ_store::batch::Op;
use writ_store::reads::UsageReads as _;
use writ_store::usage::{BudgetState, UsageKind, UsageTotals};
use writ_types::id::ItemId;
use writ_types::unit::{MicroUsd, Tokens};

use crate::error::EngineError;
use crate::services::Services;
use crate::session::Session;

/// The shares of a limit, in per cent, at which the owner is warned.
const WARNED_AT: [u64; 3] = [70, 85, 95];

/// Returns a warning for each limit of which a call has passed a share of [`WARNED_AT`]; if it has passed several, the highest is
/// named. In the session of a work item (`is_item`) the limits of the session are those of its plan.
pub(crate) fn warnings(
    (limits, is_item): (&BudgetConfig, bool),
    before: &Spent,
    (tokens, cost): (Tokens, MicroUsd),
) -> Vec<String> {
    let money = |setting: &'static str, used: MicroUsd, limit: Option<MicroUsd>| {
        let limit = limit?;
        let now = used.saturating_add(cost);
        let percent = crossed((used.get(), now.get()), limit.get())?;
        Some(format!("{percent} % of {setting} are used: {now} of {limit}. `writ budget` shows what for."))
    };
    let count = |setting: &'static str, used: Tokens, limit: Tokens| {
        let now = used.saturating_add(tokens);
        let percent = crossed((used.get(), now.get()), limit.get())?;
        let text = format!("{percent} % of {setting} are used: {now} of {limit}.");
        (limit != Tokens::MAX).then_some(text)
    };
    let (session_cost, session_tokens) = if is_item {
        ("the work item's money", "the work item's tokens")
    } else {
        ("budget.max_cost_per_session", "budget.max_tokens_per_session")
    };
    [
        money("budget.max_cost_per_turn", before.turn_cost, limits.max_cost_per_turn),
        money(session_cost, before.session_cost, limits.max_cost_per_session),
        money("budget.max_cost_per_day", before.day_cost, limits.max_cost_per_day),
        money("budget.max_cost_per_month", before.month_cost, limits.max_cost_per_month),
        count(session_tokens, before.session_tokens, limits.max_tokens_per_session),
        count("budget.max_tokens_per_day", before.day_tokens, limits.max_tokens_per_day),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Returns the highest share of a limit that is reached `now` and was not reached `before`.
fn crossed((before, now): (u64, u64), limit: u64) -> Option<u64> {
    let reaches =
        |amount: u64, percent: u64| u128::from(amount) * 100 >= u128::from(limit) * u128::from(percent);
    WARNED_AT.into_iter().rev().find(|percent| reaches(now, *percent) && !reaches(before, *percent))
}

/// Returns, for the door, the amounts that were spent or reserved so far, those of the `pending` operations included. The
/// limits of session and day are checked again when the next call reserves its share, so that turns which are decided at the
/// same moment do not exceed them together.
pub(crate) async fn read_spent(
    services: &Services,
    session: &Session,
    turn_cost: MicroUsd,
    pending: &[Op],
) -> Result<Spent, EngineError> {
    let standing = read_standing(services, session, pending).await?;
    let (own, day) = (standing.session_reserved, standing.reserved);
    let used = spent_of(session, &standing, turn_cost);
    Ok(Spent {
        session_tokens: used.session_tokens.saturating_add(own.tokens),
        day_tokens: used.day_tokens.saturating_add(day.tokens),
        session_cost: used.session_cost.saturating_add(own.cost),
        day_cost: used.day_cost.saturating_add(day.cost),
        month_cost: used.month_cost.saturating_add(day.cost),
        plan: plan_limits(services, session).await?,
        ..used
    })
}

/// Returns the limits of the plan above a session. They are judged where a call sets its share aside: what other sessions under the plan
/// have taken until then is known there alone.
async fn plan_limits(services: &Services, session: &Session) -> Result<Option<PlanCeilings>, EngineError> {
    let Some(under) = session.plan_above() else { return Ok(None) };
    let plan = services.sessions.get(under.session).await?;
    let Some(approved) = plan.terms.work else { return Ok(None) };
    let (base, cost_base) = {
        let state = plan.state();
        (state.budget.base, state.budget.cost_base)
    };
    Ok(Some(PlanCeilings {
        item: under.item,
        tokens: approved.max_tokens.map(|most| most.saturating_add(base)),
        cost: approved.max_cost.map(|most| most.saturating_add(cost_base)),
    }))
}

/// Returns, for the door, the same for a call of a turn. An attempt of the autopilot has no more room than its plan: what that has no
/// room for any more counts as spent.
///
/// # Errors
///
/// If the store cannot be read.
pub(crate) async fn read_spent_of_call(
    services: &Services,
    session: &Session,
    turn_cost: MicroUsd,
    pending: &[Op],
) -> Result<Spent, EngineError> {
    let mut spent = read_spent(services, session, turn_cost, pending).await?;
    let Some(under) = session.plan_above() else { return Ok(spent) };
    let plan = services.sessions.get(under.session).await?;
    let Some(approved) = plan.terms.work else { return Ok(spent) };
    let left = read_left(services, &plan, under.item, (approved.max_tokens, approved.max_cost)).await?;
    // The plan's total does not include the usage of this turn that is not written yet.
    let written = services.journal.store.session_usage(session.id).await?;
    let (base, cost_base) = (spent.session_base, spent.session_cost_base);
    let own_tokens = written.usage.total_tokens().saturating_sub(base);
    let own_cost = written.cost.saturating_sub(cost_base);
    let limits = services.keys.limits_of(Some(session));
    if let Some(tokens) = left.0 {
        let room = tokens.saturating_sub(spent.session_tokens.saturating_sub(own_tokens));
        spent.session_tokens = spent.session_tokens.max(limits.max_tokens_per_session.saturating_sub(room));
    }
    if let (Some(cost), Some(most)) = (left.1, limits.max_cost_per_session) {
        let room = cost.saturating_sub(spent.session_cost.saturating_sub(own_cost));
        spent.session_cost = spent.session_cost.max(most.saturating_sub(room));
    }
    Ok(spent)
}

/// Returns what is left of the limits of a plan of the autopilot, counted over all of its attempts. `None`: not limited.
///
/// # Errors
///
/// If the store cannot be read.
pub(crate) async fn read_left(
    services: &Services,
    plan: &Session,
    item: ItemId,
    (max_tokens, max_cost): (Option<Tokens>, Option<MicroUsd>),
) -> Result<(Option<Tokens>, Option<MicroUsd>), EngineError> {
    let (tokens, cost) = read_plan_used(services, plan, item).await?;
    Ok((max_tokens.map(|most| most.saturating_sub(tokens)), max_cost.map(|most| most.saturating_sub(cost))))
}

/// Returns what the attempts of a plan of the autopilot have used together since it was approved last.
///
/// # Errors
///
/// If the store cannot be read.
pub(crate) async fn read_plan_used(
    services: &Services,
    plan: &Session,
    item: ItemId,
) -> Result<(Tokens, MicroUsd), EngineError> {
    let used = read_item_usage(services, item).await?;
    let (base, cost_base) = {
        let state = plan.state();
        (state.budget.base, state.budget.cost_base)
    };
    Ok((used.usage.total_tokens().saturating_sub(base), used.cost.saturating_sub(cost_base)))
}

/// Returns the amounts that were spent so far, without what is only reserved.
pub(crate) async fn read_used(
    services: &Services,
    session: &Session,
    turn_cost: MicroUsd,
) -> Result<Spent, EngineError> {
    let standing = read_standing(services, session, &[]).await?;
    Ok(spent_of(session, &standing, turn_cost))
}

/// Returns the usage of all sessions that work for an item: of a plan of the autopilot, that of all its attempts.
///
/// # Errors
///
/// If the store cannot be read.
pub(crate) async fn read_item_usage(services: &Services, item: ItemId) -> Result<UsageTotals, EngineError> {
    let key = item.to_string();
    // The first key behind it: no other item has one in between.
    let below = format!("{key} ");
    let found = services.journal.store.usage_totals(UsageKind::Item, &key, &below).await?;
    Ok(found.into_iter().find(|(name, _)| *name == key).map(|(_, totals)| totals).unwrap_or_default())
}

async fn read_standing(
    services: &Services,
    session: &Session,
    pending: &[Op],
) -> Result<BudgetState, EngineError> {
    let today = services.journal.budget_day(services.journal.clock.now());
    Ok(services.journal.store.standing(session.id, today, pending).await?)
}

fn spent_of(session: &Session, standing: &BudgetState, turn_cost: MicroUsd) -> Spent {
    let (base, cost_base, paused) = {
        let state = session.state();
        (state.budget.base, state.budget.cost_base, state.budget.paused)
    };
    Spent {
        session_tokens: standing.session.usage.total_tokens().saturating_sub(base),
        session_base: base,
        day_tokens: standing.day.usage.total_tokens(),
        turn_cost,
        session_cost: standing.session.cost.saturating_sub(cost_base),
        session_cost_base: cost_base,
        day_cost: standing.day.cost,
        month_cost: standing.month.cost,
        paused,
        turn_tool_calls: 0,
        plan: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_owner_is_warned_once_at_each_share_of_a_limit() {
        let limits = BudgetConfig { max_cost_per_day: Some(MicroUsd::new(1_000)), ..BudgetConfig::default() };
        let warned = |before: u64, cost: u64| {
            let before = Spent { day_cost: MicroUsd::new(before), ..Spent::default() };
            let texts = warnings((&limits, false), &before, (Tokens::ZERO, MicroUsd::new(cost)));
            texts.iter().map(|text| text.split(' ').next().unwrap_or_default().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(warned(0, 699), Vec::<String>::new());
        assert_eq!(warned(0, 700), ["70"]);
        assert_eq!(warned(700, 149), Vec::<String>::new(), "not again");
        assert_eq!(warned(700, 150), ["85"]);
        assert_eq!(warned(849, 101), ["95"], "the highest alone");
        assert_eq!(warned(950, 500), Vec::<String>::new());
    }

    #[test]
    fn the_owner_is_warned_of_the_tokens_of_a_session_and_of_an_item() {
        let limits = BudgetConfig { max_tokens_per_session: Tokens::new(100), ..BudgetConfig::default() };
        let before = Spent { session_tokens: Tokens::new(60), ..Spent::default() };
        let of = |is_item| warnings((&limits, is_item), &before, (Tokens::new(10), MicroUsd::ZERO));
        let (session, item) = (of(false), of(true));
        assert!(
            matches!(session.as_slice(), [text] if text.starts_with("70 % of budget.max_tokens_per_session"))
        );
        assert!(matches!(item.as_slice(), [text] if text.starts_with("70 % of the work item's tokens")));
    }
}
