//! The autopilots of a home at one moment, for programs that watch them: read from the store and the ledger, and from nothing that
//! the loop needs, so that a look can neither slow it down nor stop it.

use std::collections::{BTreeMap, BTreeSet};

use writ_autopilot::unit_id::UnitId;
use writ_runtime::pilot::PilotHands;
use writ_store::ledger::row::LedgerQuery;
use writ_store::reads::{LedgerReads as _, UnitReads as _, UsageReads as _, WorkReads as _};
use writ_store::units::{PilotSession, RetryRow, RunRow, SpanFilter, UnitKey, UnitLine};
use writ_types::api::pilot::{
    PilotCounts, PilotLogQuery, PilotRetryLine, PilotRunLine, PilotRunningLine, PilotSnapshot, PilotTokens,
    PilotTotals, PilotUnitSnapshot,
};
use writ_types::api::work::WorkState;
use writ_types::id::{ItemId, SessionId};
use writ_types::unit::{MicroUsd, Tokens};

use crate::account::millis_between;
use crate::error::AutopilotError;
use crate::project::OpenProject;
use crate::show;
use crate::spans::trace_id;
use crate::standing::read_facts;
use crate::trace;
use crate::unit_files::UnitFile;

/// The most events of a unit that a snapshot shows.
const MAX_EVENTS: usize = 20;
/// The most attempts of a unit under one plan that are looked through.
const MAX_ATTEMPTS: usize = 10_000;
const MILLIS_PER_SECOND: u64 = 1_000;
const MICROS_PER_DOLLAR: u64 = 1_000_000;

/// Shows a session; `ticks` is how often its loop has looked at its units.
///
/// # Errors
///
/// If store or ledger cannot be read.
pub(crate) async fn show_session(
    hands: &PilotHands,
    session: &PilotSession,
    ticks: u64,
) -> Result<PilotSnapshot, AutopilotError> {
    let (store, now, project) = (hands.store(), hands.now(), session.project.as_str());
    let plans = plans_of(hands, project).await?;
    let sums = store.pilot_sums(project).await?;
    let retrying = store.unit_retries(project, now).await?;
    let (mut running, mut millis, mut cost) = (Vec::new(), sums.millis, sums.cost);
    for line in store.claimed_units(project).await? {
        let key = UnitKey { project: project.to_owned(), id: line.id.clone() };
        let runs = store.unit_runs(key).await?;
        // Ended since its line was read.
        let Some(run) = runs.last().filter(|run| run.end.is_none()) else { continue };
        millis = millis.saturating_add(millis_between(run.started_at, now));
        let (shown, own_cost) = show_running(hands, &plans, (&line, run)).await?;
        cost = cost.saturating_add(own_cost);
        running.push(shown);
    }
    let sum = |first: Tokens, of: fn(&PilotTokens) -> Tokens| {
        running.iter().fold(first, |sum, one: &PilotRunningLine| sum.saturating_add(of(&one.tokens)))
    };
    Ok(PilotSnapshot {
        generated_at: now,
        session: session.id,
        project: project.to_owned(),
        state: session.status.clone(),
        ticks,
        counts: PilotCounts {
            running: count(running.len()),
            retrying: count(retrying.len()),
            queued: count_queued(hands, session, &plans).await?,
        },
        totals: PilotTotals {
            input_tokens: sum(sums.input, |tokens| tokens.input),
            output_tokens: sum(sums.output, |tokens| tokens.output),
            cost_usd: dollars_of(cost),
            seconds_running: millis / MILLIS_PER_SECOND,
        },
        running,
        retrying: retrying.into_iter().map(show_retry).collect(),
        rate_limits: hands.show_rate_limits(),
    })
}

/// Shows a unit of an open project.
///
/// # Errors
///
/// If there is no such unit, or the store, the ledger or its files cannot be read.
pub(crate) async fn show_unit(
    project: &OpenProject,
    id: UnitId,
) -> Result<PilotUnitSnapshot, AutopilotError> {
    let (store, key) = (project.hands.store(), project.key_of(id));
    let details = show::show_unit(project, id).await?;
    let row = store.unit(key).await?.ok_or_else(|| AutopilotError::NoUnit { unit: id.to_string() })?;
    let query = PilotLogQuery {
        project: project.name.clone(),
        unit: id.to_string(),
        attempt: 0,
        last: MAX_EVENTS,
        skip: 0,
    };
    let recent = trace::read_log(project, id, &query).await?;
    let newest = SpanFilter::Trace(trace_id(&project.name, &id.to_string()));
    let span = store.trace_spans(&project.name, newest, 1).await?.pop();
    let is_failed = |run: &&PilotRunLine| run.outcome.as_deref().is_some_and(|outcome| outcome != "success");
    let retries = details.runs.iter().filter(is_failed).count();
    let last_error = match details.last_error.is_empty() {
        true => project.files.read_newest(id, UnitFile::LastError)?,
        false => details.last_error,
    };
    Ok(PilotUnitSnapshot {
        generated_at: project.hands.now(),
        session: project.session(),
        project: project.name.clone(),
        unit: details.unit,
        recent_events: recent.lines,
        workspace_path: row.workspace,
        retry_count: count(retries),
        last_error,
        log_path: span
            .map(|span| project.git.project().top_dir().join(span.file).to_string_lossy().into_owned()),
    })
}

/// Returns the plans of a project, by the units that have them.
async fn plans_of(hands: &PilotHands, project: &str) -> Result<BTreeMap<UnitId, ItemId>, AutopilotError> {
    let mut plans = BTreeMap::new();
    for row in &hands.store().top_units(project).await? {
        if let (Ok(id), Some(plan)) = (row.key.id.parse(), read_facts(row)?.plan) {
            plans.insert(id, plan);
        }
    }
    Ok(plans)
}

/// Counts the units that nothing but a free worker holds up.
async fn count_queued(
    hands: &PilotHands,
    session: &PilotSession,
    plans: &BTreeMap<UnitId, ItemId>,
) -> Result<u64, AutopilotError> {
    let store = hands.store();
    let mut runs = BTreeSet::new();
    for (top, plan) in plans {
        if store.work_item(*plan).await?.is_some_and(|plan| plan.state == WorkState::Running) {
            runs.insert(*top);
        }
    }
    let blockers = store.open_blockers(session.id).await?;
    let is_queued = |line: &&UnitLine| {
        // What waits for its parts or for a person's acceptance is ready by its row, and no worker gets it.
        !matches!(line.phase.as_str(), "complete" | "uat")
            && root_of(&line.id).is_some_and(|top| runs.contains(&top))
            && !blockers.iter().any(|blocker| blocker.unit.is_empty() || blocker.unit == line.id)
    };
    Ok(count(store.ready_units(&session.project, hands.now()).await?.iter().filter(is_queued).count()))
}

/// Returns the unit that has the plan of a unit.
fn root_of(unit: &str) -> Option<UnitId> {
    unit.parse().ok().map(UnitId::root)
}

/// Shows a unit at work, with its cost so far.
async fn show_running(
    hands: &PilotHands,
    plans: &BTreeMap<UnitId, ItemId>,
    (line, run): (&UnitLine, &RunRow),
) -> Result<(PilotRunningLine, MicroUsd), AutopilotError> {
    let mut shown = PilotRunningLine {
        unit_id: line.id.clone(),
        phase: run.phase.clone(),
        session_id: None,
        turn_count: 0,
        last_event: String::new(),
        started_at: run.started_at,
        tokens: PilotTokens::default(),
    };
    // Gates and merges have no session of an agent.
    let Some(session) = agent_of(hands, plans, (line, run)).await? else {
        return Ok((shown, MicroUsd::ZERO));
    };
    let store = hands.store();
    let used = store.session_usage(session).await?;
    let newest = LedgerQuery { session: Some(session), limit: 1, ..LedgerQuery::default() };
    let newest = store.ledger_search(&newest).await?.pop();
    shown.session_id = Some(session);
    shown.turn_count = used.model_calls;
    shown.last_event = newest.map(|row| row.event).unwrap_or_default();
    let (input, output) = (used.usage.input, used.usage.output);
    shown.tokens = PilotTokens { input, output, total: input.saturating_add(output) };
    Ok((shown, used.cost))
}

/// Returns the session of the agent that works in a run.
async fn agent_of(
    hands: &PilotHands,
    plans: &BTreeMap<UnitId, ItemId>,
    (line, run): (&UnitLine, &RunRow),
) -> Result<Option<SessionId>, AutopilotError> {
    let Some(plan) = root_of(&line.id).and_then(|top| plans.get(&top)) else { return Ok(None) };
    let started = hands.store().started_by(*plan, &line.id, MAX_ATTEMPTS).await?;
    let own = started.into_iter().filter(|(_, _, began)| *began >= run.started_at);
    Ok(own.max_by_key(|(_, _, began)| *began).map(|(_, session, _)| session))
}

fn show_retry(row: RetryRow) -> PilotRetryLine {
    PilotRetryLine { unit_id: row.unit, attempt: row.attempt, due_at: row.due_at, error: row.error }
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

/// Returns an amount in US dollars: the number that is nearest to it.
fn dollars_of(cost: MicroUsd) -> f64 {
    let text = format!("{}.{:06}", cost.get() / MICROS_PER_DOLLAR, cost.get() % MICROS_PER_DOLLAR);
    // Digits with one point are a number.
    text.parse().unwrap_or(f64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_amount_in_dollars_is_its_millionths_divided() {
        for (micros, dollars) in [(0, 0.0), (1, 0.000_001), (1_500_000, 1.5), (12_345_678, 12.345_678)] {
            assert_eq!(dollars_of(MicroUsd::new(micros)).to_string(), dollars.to_string());
        }
    }
}
