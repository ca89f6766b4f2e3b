//! Tokens, money and calls that were spent or set aside.

use writ_policy::budget::{BudgetConfig, Spent};
use writ_store::batch::Op;
use writ_store::reads::UsageReads as _;
use writ_types::unit::{MicroUsd, Tokens};

use crate::error::EngineError;
use crate::services::Services;
use crate::session::Session;

/// The shares of a limit, in per cent, at which the owner is warned.
const WARNED_AT: [u64; 3] = [70, 85, 95];

/// Returns a warning for each limit of which a call has used more than one of the shares in [`WARNED_AT`]; the highest alone
/// counts. The session's tokens are not among them: its model gets a note, and the owner's next message renews them.
pub(crate) fn warnings(
    limits: &BudgetConfig,
    before: &Spent,
    (tokens, cost): (Tokens, MicroUsd),
) -> Vec<String> {
    let money = |setting: &'static str, used: MicroUsd, limit: Option<MicroUsd>| {
        let limit = limit?;
        let now = used.saturating_add(cost);
        let percent = crossed((used.get(), now.get()), limit.get())?;
        Some(format!("{percent} % of {setting} are used: {now} of {limit}. `writ budget` shows what for."))
    };
    let day_tokens = |limit: Tokens| {
        let now = before.day_tokens.saturating_add(tokens);
        let percent = crossed((before.day_tokens.get(), now.get()), limit.get())?;
        let text = format!("{percent} % of budget.max_tokens_per_day are used: {now} of {limit}.");
        (limit != Tokens::MAX).then_some(text)
    };
    [
        money("budget.max_cost_per_turn", before.turn_cost, limits.max_cost_per_turn),
        money("budget.max_cost_per_session", before.session_cost, limits.max_cost_per_session),
        money("budget.max_cost_per_day", before.day_cost, limits.max_cost_per_day),
        money("budget.max_cost_per_month", before.month_cost, limits.max_cost_per_month),
        day_tokens(limits.max_tokens_per_day),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Returns the highest of the shares that lie between two amounts of a limit.
fn crossed((before, now): (u64, u64), limit: u64) -> Option<u64> {
    let reaches =
        |amount: u64, percent: u64| u128::from(amount) * 100 >= u128::from(limit) * u128::from(percent);
    WARNED_AT.into_iter().rev().find(|percent| reaches(now, *percent) && !reaches(before, *percent))
}

/// Returns the amounts that were spent or set aside so far, those about to be written included, for the door
/// to decide on. Limits of session and day are compared once more when the next call's share is set aside, so
/// turns that are decided at the same moment share them.
pub(crate) async fn read_spent(
    services: &Services,
    session: &Session,
    turn_cost: MicroUsd,
    pending: &[Op],
) -> Result<Spent, EngineError> {
    let today = services.journal.budget_day(services.journal.clock.now());
    let standing = services.journal.store.standing(session.id, today, pending).await?;
    let (own, own_reserved) = (standing.session, standing.session_reserved);
    let (day, day_reserved) = (standing.day, standing.reserved);
    let (base, cost_base, paused) = {
        let state = session.state();
        (state.budget.base, state.budget.cost_base, state.budget.paused)
    };
    Ok(Spent {
        session_tokens: own.usage.total_tokens().saturating_add(own_reserved.tokens).saturating_sub(base),
        session_base: base,
        day_tokens: day.usage.total_tokens().saturating_add(day_reserved.tokens),
        turn_cost,
        session_cost: own.cost.saturating_add(own_reserved.cost).saturating_sub(cost_base),
        session_cost_base: cost_base,
        day_cost: day.cost.saturating_add(day_reserved.cost),
        month_cost: standing.month.cost.saturating_add(day_reserved.cost),
        paused,
        turn_tool_calls: 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_owner_is_warned_once_at_each_share_of_a_limit() {
        let limits = BudgetConfig { max_cost_per_day: Some(MicroUsd::new(1_000)), ..BudgetConfig::default() };
        let warned = |before: u64, cost: u64| {
            let before = Spent { day_cost: MicroUsd::new(before), ..Spent::default() };
            let texts = warnings(&limits, &before, (Tokens::ZERO, MicroUsd::new(cost)));
            texts.iter().map(|text| text.split(' ').next().unwrap_or_default().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(warned(0, 699), Vec::<String>::new());
        assert_eq!(warned(0, 700), ["70"]);
        assert_eq!(warned(700, 149), Vec::<String>::new(), "not again");
        assert_eq!(warned(700, 150), ["85"]);
        assert_eq!(warned(849, 101), ["95"], "the highest alone");
        assert_eq!(warned(950, 500), Vec::<String>::new());
    }
}
