//! What was spent, on what, and how much is left; pausing and renewing a session.

use std::collections::BTreeMap;
use std::time::Duration;

use writ_store::batch::{Batch, Op};
use writ_store::reads::{SessionReads as _, UsageReads as _};
use writ_store::usage::{UsageKind, UsageTotals};
use writ_types::api::budget::{
    BudgetBy, BudgetLimit, BudgetQuery, BudgetReport, BudgetRow, SessionBudgetState,
};
use writ_types::api::session::SessionName;
use writ_types::unit::{MicroUsd, Timestamp, Tokens};

use super::MAX_LISTED;
use super::status::all_priced;
use crate::budget;
use crate::error::EngineError;
use crate::services::Services;
use crate::session::{BUDGET_BASE, BUDGET_COST_BASE, BUDGET_PAUSED, Session};

/// The days that count if none are given.
const DEFAULT_DAYS: u32 = 30;

/// The most days that count.
const MAX_DAYS: u32 = 3_660;

/// Above every key of a total.
const LAST_KEY: &str = "\u{10ffff}";

/// Reports what was spent, by what it was spent on.
pub(super) async fn report_budget(
    services: &Services,
    query: BudgetQuery,
) -> Result<BudgetReport, EngineError> {
    let days = query.days.unwrap_or(DEFAULT_DAYS);
    if !(1..=MAX_DAYS).contains(&days) {
        let why = format!("'days' is a number from 1 to {MAX_DAYS}");
        return Err(EngineError::Params { method: "budget.report".to_owned(), why });
    }
    let today = services.journal.budget_day(services.journal.clock.now());
    let ago = Duration::from_secs(u64::from(days - 1) * 24 * 60 * 60);
    let ago = i64::try_from(ago.as_millis()).unwrap_or(i64::MAX);
    let begin = Timestamp::from_millis(today.as_millis().saturating_sub(ago));
    let since: String = begin.to_string().chars().take(10).collect();
    let (kind, from, named_by_day) = match query.by {
        BudgetBy::Day => (UsageKind::Day, since.as_str(), false),
        BudgetBy::Month => (UsageKind::Month, since.get(..7).unwrap_or_default(), false),
        BudgetBy::Session => (UsageKind::Session, "", false),
        BudgetBy::Role => (UsageKind::Role, since.as_str(), true),
        BudgetBy::Model => (UsageKind::Model, since.as_str(), true),
        BudgetBy::Item => (UsageKind::Item, "", false),
    };
    let found = services.journal.store.usage_totals(kind, from, LAST_KEY).await?;
    let mut parts: BTreeMap<String, UsageTotals> = BTreeMap::new();
    let mut total = UsageTotals::default();
    for (key, totals) in found {
        let name =
            if named_by_day { key.split_once(' ').map_or("", |(_, name)| name).to_owned() } else { key };
        total.add_totals(&totals);
        parts.entry(name).or_default().add_totals(&totals);
    }
    let mut rows: Vec<BudgetRow> = parts.into_iter().map(|(name, totals)| row_of(name, &totals)).collect();
    match query.by {
        // The newest first.
        BudgetBy::Day | BudgetBy::Month => rows.reverse(),
        BudgetBy::Session | BudgetBy::Role | BudgetBy::Model | BudgetBy::Item => {
            rows.sort_by_key(|row| std::cmp::Reverse((row.cost_micro_usd, row.input)));
        }
    }
    let more = rows.len().saturating_sub(MAX_LISTED);
    rows.truncate(MAX_LISTED);
    Ok(BudgetReport {
        by: query.by,
        since: if from.is_empty() { String::new() } else { since.clone() },
        rows,
        more,
        total: row_of("total".to_owned(), &total),
        limits: limits(services).await?,
        all_priced: all_priced(services, services.config.budget.day_begins(begin)).await?,
    })
}

fn row_of(name: String, totals: &UsageTotals) -> BudgetRow {
    BudgetRow {
        name,
        model_calls: totals.model_calls,
        input: totals.usage.input,
        cache_read: totals.usage.cache_read,
        output: totals.usage.output,
        cost_micro_usd: totals.cost,
    }
}

/// Returns the limits of all sessions, and those of the session that was used last.
async fn limits(services: &Services) -> Result<Vec<BudgetLimit>, EngineError> {
    let Some(row) = services.journal.store.sessions(1).await?.pop() else { return Ok(Vec::new()) };
    let session = services.sessions.get(row.id).await?;
    let mut limits = session_limits(services, &session).await?;
    let spent = budget::read_spent(services, &session, MicroUsd::ZERO, &[]).await?;
    let config = &services.config.budget;
    limits.push(token_limit("budget.max_tokens_per_day", spent.day_tokens, config.max_tokens_per_day));
    limits.extend(
        config.max_cost_per_day.map(|limit| cost_limit("budget.max_cost_per_day", spent.day_cost, limit)),
    );
    let month = config.max_cost_per_month;
    limits.extend(month.map(|limit| cost_limit("budget.max_cost_per_month", spent.month_cost, limit)));
    Ok(limits)
}

async fn session_limits(services: &Services, session: &Session) -> Result<Vec<BudgetLimit>, EngineError> {
    let spent = budget::read_spent(services, session, MicroUsd::ZERO, &[]).await?;
    let own = services.keys.limits_of(Some(session));
    let of_session = |limit: BudgetLimit| BudgetLimit { session: Some(session.id), ..limit };
    let tokens =
        token_limit("budget.max_tokens_per_session", spent.session_tokens, own.max_tokens_per_session);
    let cost = own
        .max_cost_per_session
        .map(|limit| cost_limit("budget.max_cost_per_session", spent.session_cost, limit));
    Ok(std::iter::once(tokens).chain(cost).map(of_session).collect())
}

fn token_limit(setting: &str, used: Tokens, limit: Tokens) -> BudgetLimit {
    limit_of(setting, "tokens", (used.get(), limit.get()))
}

fn cost_limit(setting: &str, used: MicroUsd, limit: MicroUsd) -> BudgetLimit {
    limit_of(setting, "micro_usd", (used.get(), limit.get()))
}

fn limit_of(setting: &str, unit: &str, (used, limit): (u64, u64)) -> BudgetLimit {
    let (setting, unit) = (setting.to_owned(), unit.to_owned());
    let percent = u64::try_from(u128::from(used) * 100 / u128::from(limit.max(1))).unwrap_or(u64::MAX);
    BudgetLimit { setting, unit, used, limit, percent, session: None }
}

/// Pauses a session: its models are not called until it is renewed. A tool that runs ends as it would.
pub(super) async fn pause_session(
    services: &Services,
    SessionName { session }: SessionName,
) -> Result<SessionBudgetState, EngineError> {
    let session = services.sessions.get(session).await?;
    set_metadata(services, &session, vec![(BUDGET_PAUSED, Some(true.into()))]).await?;
    session.state().budget.paused = true;
    budget_state(services, &session).await
}

/// Gives a session a fresh allocation and lets it go on. Limits of the day and of the month stay as they are.
pub(super) async fn renew_session(
    services: &Services,
    SessionName { session }: SessionName,
) -> Result<SessionBudgetState, EngineError> {
    let refused = |why: &str| EngineError::Params { method: "budget.renew".to_owned(), why: why.to_owned() };
    let session = services.sessions.get(session).await?;
    if session.terms.order.is_some() {
        return Err(refused("what an order grants is for all of its turns: issue another order"));
    }
    if session.terms.work.is_some() {
        let is_paused = session.state().budget.paused;
        // It goes on with what is left: more than was approved needs another approval.
        if is_paused {
            set_metadata(services, &session, vec![(BUDGET_PAUSED, None)]).await?;
            session.state().budget.paused = false;
            return budget_state(services, &session).await;
        }
        return Err(refused(
            "the budget of a work item was approved with its plan: propose the work anew with more",
        ));
    }
    let spent = budget::read_spent(services, &session, MicroUsd::ZERO, &[]).await?;
    let config = &services.config.budget;
    if spent.day_tokens >= config.max_tokens_per_day {
        return Err(refused(
            "the day's tokens are used up: go on tomorrow, or raise budget.max_tokens_per_day",
        ));
    }
    if config.max_cost_per_day.is_some_and(|limit| spent.day_cost >= limit) {
        return Err(refused("the day's money is used up: go on tomorrow, or raise budget.max_cost_per_day"));
    }
    if config.max_cost_per_month.is_some_and(|limit| spent.month_cost >= limit) {
        return Err(refused("the month's money is used up: raise budget.max_cost_per_month"));
    }
    let used = services.journal.store.session_usage(session.id).await?;
    let (tokens, cost) = (used.usage.total_tokens(), used.cost);
    let set = vec![
        (BUDGET_BASE, Some(tokens.get().into())),
        (BUDGET_COST_BASE, Some(cost.get().into())),
        (BUDGET_PAUSED, None),
    ];
    set_metadata(services, &session, set).await?;
    {
        let mut state = session.state();
        state.budget.renew_from(tokens);
        state.budget.cost_base = cost;
        state.budget.paused = false;
    }
    budget_state(services, &session).await
}

async fn set_metadata(
    services: &Services,
    session: &Session,
    values: Vec<(&str, Option<serde_json::Value>)>,
) -> Result<(), EngineError> {
    let op = |(key, value): (&str, Option<serde_json::Value>)| Op::SetSessionMetadata {
        session: session.id,
        key: key.to_owned(),
        value,
    };
    let ops = values.into_iter().map(op).collect();
    services.journal.store.commit(Batch::synced(ops)).await?;
    Ok(())
}

async fn budget_state(services: &Services, session: &Session) -> Result<SessionBudgetState, EngineError> {
    // A step may have waited for it.
    services.life.work.call(session);
    let limits = session_limits(services, session).await?;
    Ok(SessionBudgetState { session: session.id, paused: session.state().budget.paused, limits })
}
