//! Attempts that wait for something outside: a person's answer, or a limit that is none of the item's.
//!
//! The turn of such an attempt has ended, and nothing was tried in vain. The attempt is held, and goes on with another turn
//! that reads what came of it, so that an item does not use its attempts up within seconds while a card is open.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use writ_policy::budget::Exhausted;
use writ_store::approvals::{AskState, StoredAsk};
use writ_store::batch::{Batch, Op};
use writ_store::config::MAX_READ_ROWS;
use writ_store::ledger::row::{LedgerQuery, LedgerRow};
use writ_store::reads::{AskReads as _, LedgerReads as _, SessionReads as _, TurnReads as _};
use writ_store::work::{AttemptState, WorkAttempt, WorkOp};
use writ_types::api::work::WorkState;
use writ_types::chat::{Part, Role};
use writ_types::entry::{DenyReason, Fact};
use writ_types::error::Exit;
use writ_types::id::TurnId;
use writ_types::taint::Taint;

use super::ItemCourse;
use super::attempt::{self, cut};
use crate::error::EngineError;
use crate::proposals::{commit_news, news};
use crate::services::Services;
use crate::work_calls::{AttemptOrder, attempt_id, continued_id, worked};

/// The most times that one attempt is held: after that its end counts like any other.
const MAX_HOLDS: u32 = 32;
/// The wait before a turn is tried again that a limit of the day or the month has ended; it doubles with each time.
const FIRST_WAIT: Duration = Duration::from_secs(60);
/// The longest of these waits.
const LONGEST_WAIT: Duration = Duration::from_secs(60 * 60);
/// The most questions of one turn of which the outcome is described.
const MAX_ASKS: usize = 20;
/// The most messages of the history that are looked through for the outcomes.
const MAX_NOTES: usize = 100;
/// The most characters of all outcomes together.
const MAX_OUTCOME_CHARS: usize = 8_000;

/// The thing that an attempt waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    /// Answers to the questions of its turn.
    Answers,
    /// The owner lets its session go on.
    Pause,
    /// The next day or month, or a higher limit.
    Period(&'static str),
}

impl Wait {
    const fn words(self) -> &'static str {
        match self {
            Self::Answers => "the answers to what it has asked",
            Self::Pause => "the end of its session's pause",
            Self::Period(limit) => limit,
        }
    }
}

/// Holds an attempt whose turn has ended because of something outside. Returns true if it was held.
///
/// # Errors
///
/// If the store cannot be read or written.
pub(super) async fn hold(
    services: &Services,
    course: &ItemCourse,
    attempt: &WorkAttempt,
) -> Result<bool, EngineError> {
    // One that asks the same again and again would never be judged.
    if attempt.holds >= MAX_HOLDS {
        return Ok(false);
    }
    let Some(wait) = wait_of(services, course, attempt).await? else { return Ok(false) };
    let (item, name) = (&course.item, name_of(course, attempt));
    let why = format!("attempt {} waits for {}", attempt.n, wait.words());
    let ops = vec![
        worked(&services.journal, item, name, "held", &why),
        Op::Work(WorkOp::Hold { item: item.id, step: attempt.step, n: attempt.n }),
        news(services, item, &course.rows, (item.state, name, &why)),
    ];
    commit_news(services, item, Batch::relaxed(ops)).await?;
    Ok(true)
}

fn name_of<'a>(course: &'a ItemCourse, attempt: &WorkAttempt) -> &'a str {
    course.rows.get(attempt.step).map(|row| row.name.as_str()).unwrap_or_default()
}

/// Returns what an attempt waits for; `None` if its turn has ended of itself.
async fn wait_of(
    services: &Services,
    course: &ItemCourse,
    attempt: &WorkAttempt,
) -> Result<Option<Wait>, EngineError> {
    if attempt.exit == Some(Exit::Waiting.code()) {
        return Ok(Some(Wait::Answers));
    }
    // If the item's own budget is used up, the item ends; only an attempt that hit another limit is held.
    if attempt.exit != Some(Exit::Budget.code()) || course.is_spent() {
        return Ok(None);
    }
    // Without a turn nothing was refused: its message was set aside.
    let Some(turn) = turn_of(services, course, attempt).await? else { return Ok(None) };
    let reached = limit_of(services, turn).await?;
    let is = |limit: Exhausted| reached.as_deref() == Some(limit.setting_name());
    let periods = [Exhausted::DayTokens, Exhausted::DayCost, Exhausted::MonthCost];
    Ok(if is(Exhausted::Paused) {
        Some(Wait::Pause)
    } else {
        // The money of a turn is that of the whole attempt: what it goes on with counts what it has spent before.
        periods.into_iter().find(|limit| is(*limit)).map(|limit| Wait::Period(limit.setting_name()))
    })
}

/// Returns true if the turn of an attempt was cut without any refusal: it has asked its model as often as one turn may. One of which
/// the context is full has asked less often, and another turn would be as full.
///
/// # Errors
///
/// If the store cannot be read.
pub(super) async fn is_turn_cut(
    services: &Services,
    course: &ItemCourse,
    attempt: &WorkAttempt,
) -> Result<bool, EngineError> {
    if attempt.exit != Some(Exit::Budget.code()) || course.is_spent() {
        return Ok(false);
    }
    let Some(turn) = turn_of(services, course, attempt).await? else { return Ok(false) };
    if limit_of(services, turn).await?.is_some() {
        return Ok(false);
    }
    let most = usize::try_from(services.outside.settings.now().agent_config.limits.max_model_calls_per_turn);
    let most = most.map_or(MAX_READ_ROWS, |most| most.min(MAX_READ_ROWS));
    let query = LedgerQuery {
        event: Some("model_called".to_owned()),
        turn: Some(turn),
        limit: most,
        ..LedgerQuery::default()
    };
    Ok(services.journal.store.ledger_search(&query).await?.len() >= most)
}

/// Returns the name of the limit for which the door has refused something in a turn last.
async fn limit_of(services: &Services, turn: TurnId) -> Result<Option<String>, EngineError> {
    let query = LedgerQuery {
        event: Some("denied".to_owned()),
        turn: Some(turn),
        limit: super::MAX_DENIALS,
        ..LedgerQuery::default()
    };
    let rows = services.journal.store.ledger_search(&query).await?;
    // The newest first.
    Ok(rows.iter().filter_map(LedgerRow::entry).find_map(|entry| {
        let Fact::Denied { reason: DenyReason::Budget, rule, .. } = entry.fact else { return None };
        Some(rule)
    }))
}

async fn turn_of(
    services: &Services,
    course: &ItemCourse,
    attempt: &WorkAttempt,
) -> Result<Option<TurnId>, EngineError> {
    let Some(message) = attempt.message else { return Ok(None) };
    let turn = services.journal.store.turn_opened_by(course.session.id, message).await?;
    Ok(turn.map(|turn| turn.id))
}

/// Returns the attempts of an item that are held and can go on now.
///
/// # Errors
///
/// If the store cannot be read.
pub(super) async fn due<'a>(
    services: &Services,
    course: &'a ItemCourse,
) -> Result<Vec<&'a WorkAttempt>, EngineError> {
    let mut due = Vec::new();
    if course.item.state != WorkState::Running {
        return Ok(due);
    }
    for attempt in course.attempts.iter().filter(|attempt| attempt.is_held) {
        if attempt.state == AttemptState::Ended && can_go_on(services, course, attempt).await? {
            due.push(attempt);
        }
    }
    Ok(due)
}

async fn can_go_on(
    services: &Services,
    course: &ItemCourse,
    attempt: &WorkAttempt,
) -> Result<bool, EngineError> {
    // Without anything to wait for any more, it goes on: a restart may have raised a limit.
    let Some(wait) = wait_of(services, course, attempt).await? else { return Ok(true) };
    let is_paused = course.session.state().budget.paused;
    let (now, ended) = (services.journal.clock.now(), attempt.ended_at.unwrap_or(attempt.began_at));
    Ok(match wait {
        Wait::Answers => !is_waiting(services, course, attempt).await?,
        Wait::Pause => !is_paused,
        Wait::Period(_) => {
            let doubled = FIRST_WAIT.saturating_mul(1 << attempt.holds.saturating_sub(1).min(10));
            let is_next_day = services.journal.budget_day(now) != services.journal.budget_day(ended);
            !is_paused && (is_next_day || now >= ended.plus_duration(doubled.min(LONGEST_WAIT)))
        }
    })
}

/// Returns true if a question of the attempt's turn is open, or what was approved is not done yet.
async fn is_waiting(
    services: &Services,
    course: &ItemCourse,
    attempt: &WorkAttempt,
) -> Result<bool, EngineError> {
    let Some(turn) = turn_of(services, course, attempt).await? else { return Ok(false) };
    let is_of_turn = |ask: &StoredAsk| ask.prepared.turn == Some(turn);
    let waiting = services.journal.store.waiting_asks(course.session.id, MAX_READ_ROWS).await?;
    if waiting.iter().any(is_of_turn) {
        return Ok(true);
    }
    // An action that is being performed waits for no answer, and has no outcome yet.
    let performing: Vec<_> = services.life.approved.performing().iter().cloned().collect();
    for id in performing {
        if services.journal.store.ask(&id).await?.as_ref().is_some_and(is_of_turn) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Lets a held attempt go on with a turn that reads what came of it.
///
/// # Errors
///
/// If as many executors work as may, if the attempt is not as it was read, or the store cannot be read or written.
pub(super) async fn go_on(
    services: &Arc<Services>,
    course: &ItemCourse,
    held: &WorkAttempt,
) -> Result<(), EngineError> {
    if let Some(AttemptOrder::Next { text, .. }) = services.life.work.turn_order(course.item.id) {
        return send_on(services, course, held, text.to_string()).await;
    }
    let mut text = attempt::instructions(course, held.step);
    let _ = writeln!(
        text,
        "\nYou have begun this before, and go on now: what you changed in the work folder is there."
    );
    if !held.said.is_empty() {
        let _ = writeln!(text, "You ended with: {}", cut(&held.said, attempt::MAX_SAID_CHARS));
    }
    text.push_str(&outcomes(services, course, held).await?);
    send_on(services, course, held, text).await
}

/// Sends the text with which a held attempt goes on.
async fn send_on(
    services: &Arc<Services>,
    course: &ItemCourse,
    held: &WorkAttempt,
    text: String,
) -> Result<(), EngineError> {
    let begun = attempt_id(&course.item, held.step, held.n);
    // Never the name of a message that begins an attempt: both are numbers of the same item.
    let client_id = continued_id(&begun, held.holds);
    let (item, step, n) = (course.item.id, held.step, held.n);
    let about = (step, Taint::External, format!("attempt {n} goes on"));
    attempt::send(services, course, about, (text, client_id), |message| WorkOp::GoOn {
        item,
        step,
        n,
        message,
    })
    .await?;
    services.life.work.forget_order(item);
    Ok(())
}

/// Describes what came of the questions of an attempt's turn.
async fn outcomes(
    services: &Services,
    course: &ItemCourse,
    held: &WorkAttempt,
) -> Result<String, EngineError> {
    let Some(turn) = turn_of(services, course, held).await? else { return Ok(String::new()) };
    let store = &services.journal.store;
    let mut text = String::new();
    let asks = store.latest_asks(MAX_READ_ROWS).await?;
    for ask in asks.iter().rev().filter(|ask| ask.prepared.turn == Some(turn)).take(MAX_ASKS) {
        let became = match ask.state {
            AskState::Open | AskState::Approved => "is open still",
            AskState::Denied => "was refused by a person",
            AskState::Expired => "was not answered in time",
            AskState::Used => "was approved, and the harness has acted on it: do not request it again",
        };
        let reason = if ask.reason.is_empty() { String::new() } else { format!(" ({})", ask.reason) };
        let _ = writeln!(text, "- '{}' (tool {}) {became}{reason}.", ask.card.intent, ask.prepared.tool);
    }
    let since = held.ended_at.unwrap_or(held.began_at);
    // Only what belongs to this turn: steps beside it have notes in the same session.
    for row in store.recent_after(course.session.id, 0, MAX_NOTES).await? {
        let is_note = row.turn == Some(turn)
            && row.at >= since
            && matches!(row.message.role, Role::System | Role::User);
        for part in row.message.parts.iter().filter(|_| is_note) {
            if let Part::Text { text: note } = part {
                let _ = writeln!(text, "{note}");
            }
        }
    }
    Ok(if text.is_empty() {
        text
    } else {
        format!("\nWhat came of your requests:\n{}", cut(&text, MAX_OUTCOME_CHARS))
    })
}
