//! Tokens, money and calls that were spent or set aside.

use writ_policy::budget::Spent;
use writ_store::batch::Op;
use writ_store::reads::UsageReads as _;
use writ_types::unit::MicroUsd;

use crate::error::EngineError;
use crate::services::Services;
use crate::session::Session;
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
    let base = session.state().budget.base;
    Ok(Spent {
        session_tokens: own.usage.total_tokens().saturating_add(own_reserved.tokens).saturating_sub(base),
        session_base: base,
        day_tokens: day.usage.total_tokens().saturating_add(day_reserved.tokens),
        turn_cost,
        session_cost: own.cost.saturating_add(own_reserved.cost),
        day_cost: day.cost.saturating_add(day_reserved.cost),
        turn_tool_calls: 0,
    })
}
