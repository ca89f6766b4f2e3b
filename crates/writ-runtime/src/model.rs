//! One answer of a model: planned, put before the door, called, and tried again, by another model too, where that is
//! sensible.

mod account;

mod ask;

mod clearance;

mod embedding;
mod refusal;

pub(crate) mod experience;

mod files;

mod form;

mod sample;

mod shown;

mod trial;

mod usage;

mod window;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;
use writ_agent::event::{Event, ModelFailure};
use writ_inspect::prepared::Prepared;
use writ_models::error::{Failure, ModelError};
use writ_models::failover::{Course, NextAttempt};
use writ_models::{ModelRole, Models, PlannedCall};
use writ_policy::budget::Spent;
use writ_policy::door::Denial;
use writ_store::batch::{Op, UsageDelta, UsageShare};
use writ_tools::registry::AllowList;
use writ_types::chat::{Effort, ModelReply, ModelRequest, Usage};
use writ_types::entry::Fact;
use writ_types::error::{Exit, Report, ToReport as _};
use writ_types::frame::ServerFrame;
use writ_types::id::AttemptId;
use writ_types::taint::Label;
use writ_types::unit::{MicroUsd, Tokens};

use crate::budget;
use crate::pending::Pending;
use crate::place::CallPlace;

use self::account::Account;
#[cfg(test)]
pub(crate) use self::ask::MAX_SEALED_REPLY;
pub(crate) use self::ask::{HarnessAnswer, ask, seal_reply};
pub(crate) use self::clearance::secrets;
use self::clearance::{Cleared, clear};
pub(crate) use self::embedding::{embed_texts, end_session, engine_place};
pub(crate) use self::form::{FormAnswer, FormQuestion, ask_form};
use self::refusal::{is_of_price, refused};
pub(crate) use self::sample::ask_sample;
use self::shown::{HeardAnswer, show, show_reasoning, shown_text};
pub(crate) use self::trial::{Trial, try_model};
pub(crate) use self::usage::failed_usage;
use self::window::{count_answer, note_usage, note_window, refuse_full};

use crate::door::{Passage, RequestContext};
use crate::error::EngineError;
use crate::services::Services;
use crate::trace;

/// Deltas that may wait to be shown; a slow screen slows the stream down, it loses nothing.
const DELTAS: usize = 64;

/// The result of an effect that calls the model.
#[derive(Debug)]
pub(crate) struct ModelCallResult {
    pub(crate) event: Event,
    /// The operations to write to the ledger together with the turn's event.
    pub(crate) ops: Pending,
    pub(crate) cost: MicroUsd,
}

/// Calls a model of the turn's agent: the first of its routes, and when that cannot answer, those to fall back on. Each
/// attempt passes the door. What is to be written `first` is written with the first intent, or handed back.
///
/// # Errors
///
/// If the store cannot be used; what the models cannot do is an event.
pub(crate) async fn call(
    place: CallPlace,
    spent_in_turn: MicroUsd,
    first: Pending,
    asked: (ModelRequest, Label),
    cancel: CancellationToken,
) -> Result<ModelCallResult, EngineError> {
    make_call(place, spent_in_turn, Account { ops: first, ..Account::default() }, asked, cancel).await
}

/// Calls the model of the turn for a program that works in it. It is routed, tried again and recorded as a call of the turn's
/// agent. Nothing of it is shown, and the answer is sealed in the ledger: it is in no message of the turn.
///
/// # Errors
///
/// As [`call`].
pub(crate) async fn call_for_program(
    place: CallPlace,
    spent_in_turn: MicroUsd,
    asked: (ModelRequest, Label),
    cancel: CancellationToken,
) -> Result<ModelCallResult, EngineError> {
    make_call(place, spent_in_turn, Account { is_program: true, ..Account::default() }, asked, cancel).await
}

async fn make_call(
    mut place: CallPlace,
    spent_in_turn: MicroUsd,
    mut account: Account,
    (mut request, label): (ModelRequest, Label),
    cancel: CancellationToken,
) -> Result<ModelCallResult, EngineError> {
    let services = Arc::clone(&place.services);
    let Some(models) = services.outside.models.get() else {
        return Ok(account.failed(&EngineError::NoModel.report()));
    };
    // A program that works in the turn has a context of its own.
    if !account.is_program
        && let Some(full) = refuse_full(&place)
    {
        return Ok(account.failed(&full));
    }
    let role = place.profile.model;
    prepare_request(&place, models.routes().effort(role), &mut request).await?;
    let mut course = match place.profile.first_route(models.routes()) {
        Ok(first) => models.start_course_with(first, role),
        Err(error) => return Ok(account.failed(&error.report())),
    };
    let cleared = match clear(&place, (models, role), (&mut request, &label), &mut course) {
        Ok(cleared) => cleared,
        Err(report) => return Ok(account.failed(&report)),
    };
    let (request, mut last, mut room, mut refusal) =
        (Arc::new(request), None::<Report>, None::<Tokens>, None);
    while let Some(step) = models.next(&course, services.journal.clock.now()) {
        let planned = match models.plan_over(&step.route, Arc::clone(&request), services.journal.clock.now())
        {
            Ok(planned) => planned.reason_for_route(&cleared.why),
            Err(error) => {
                course.skip_unfit(&step.route, &error.to_string());
                last = Some(services.journal.redactor.mask_report(error.report()));
                continue;
            }
        };
        let turn_cost = spent_in_turn.saturating_add(account.cost);
        let next = (&planned, &step);
        if !await_attempt(&mut place, &mut account, next, (last.as_ref(), turn_cost), &cancel).await? {
            return Ok(account.stopped(last.as_ref()));
        }
        place.spent = Spent { turn_cost, ..place.spent };
        match attempt(&place, models, (&planned, role), &cleared, &cancel, &mut account).await? {
            Tried::Over(event) => {
                if matches!(event, Event::ModelReplied { .. }) {
                    models.answered(&step.route);
                    account.ops.extend(experience::store_changes(&services, models));
                }
                return Ok(account.ended(event));
            }
            Tried::Unaffordable(denial) => {
                course.skip_unfit(&step.route, &denial.outside_text());
                refusal = Some(denial);
            }
            Tried::Failed(error) => {
                let now = services.journal.clock.now();
                models.failed(&mut course, &step.route, &error, now);
                account.ops.extend(experience::store_changes(&services, models));
                room = room.max(models.context_room(&step.route, now).filter(|_| is_too_long(&error)));
                last = Some(services.journal.redactor.mask_report(course.final_report(&error)));
            }
        }
    }
    Ok(account.ended(refusal.map_or_else(|| no_answer(&course, last, room), |denial| refused(&denial))))
}

/// The event of a call that no model of its course has answered.
fn no_answer(course: &Course, last: Option<Report>, room: Option<Tokens>) -> Event {
    let report = last.unwrap_or_else(|| EngineError::NoModel.report());
    let noted = course.quotes_providers().then(|| report.inside.clone());
    unanswered(&report, room, noted)
}

/// Waits until the next attempt may begin; `false`: the call was cancelled meanwhile. `last` is the failure of the attempt
/// before, if there was one.
async fn await_attempt(
    place: &mut CallPlace,
    account: &mut Account,
    (planned, step): (&PlannedCall, &NextAttempt),
    (last, turn_cost): (Option<&Report>, MicroUsd),
    cancel: &CancellationToken,
) -> Result<bool, EngineError> {
    let Some(report) = last else {
        note_window(place, planned);
        if !step.wait.is_zero() {
            // The operations so far are written before the wait, which can be long.
            place.commit(std::mem::take(&mut account.ops)).await?;
        }
        return Ok(slept(step.wait, cancel).await);
    };
    // The next try is decided on what this one has really taken; other turns went on spending meanwhile.
    place.commit(std::mem::take(&mut account.ops)).await?;
    announce_retry(place, report, planned, step);
    if !slept(step.wait, cancel).await {
        return Ok(false);
    }
    renew(place, turn_cost).await?;
    Ok(true)
}

/// Masks a request, and adds the files of its messages and the effort of its role.
async fn prepare_request(
    place: &CallPlace,
    effort: Option<Effort>,
    request: &mut ModelRequest,
) -> Result<(), EngineError> {
    place.services.journal.redactor.mask_request(request);
    let of_attempt = place.session.terms.work.and_then(|work| work.attempt.effort);
    request.effort = request.effort.or(effort).or(of_attempt);
    files::attach_files(&place.services, place.session.id, request).await
}

/// Reads the spent amounts anew, and renews the key of a turn before it asks its model again.
async fn renew(place: &mut CallPlace, turn_cost: MicroUsd) -> Result<(), EngineError> {
    let turn_tool_calls = place.spent.turn_tool_calls;
    let spent = budget::read_spent_of_call(&place.services, &place.session, turn_cost, &[]).await?;
    place.spent = Spent { turn_tool_calls, ..spent };
    place.authority = place.services.keys.renewed(&place.session, place.at(), &place.authority).await?;
    place.session.state().set_acting(place.turn, &place.authority);
    Ok(())
}

/// Returns true if a shorter request may be answered. Returns false if part of the answer was already shown,
/// since text is not shown twice: then the next message is shortened, not this one.
const fn is_too_long(error: &ModelError) -> bool {
    matches!(error.failure, Failure::ContextLength { .. }) && !error.begun
}

/// The event of a call that no model has answered. `room`: the most that one of them takes, where it was too long for them.
fn unanswered(report: &Report, room: Option<Tokens>, noted: Option<String>) -> Event {
    match room {
        Some(room) => Event::ModelFailed {
            failure: ModelFailure::TooLong { room, text: report.outside.clone(), noted },
        },
        None => failure_noted(report, noted),
    }
}

/// The result of an attempt.
enum Tried {
    /// The call is over: it was answered, or the door refused it.
    Over(Event),
    /// This attempt failed.
    Failed(Box<ModelError>),
    /// A limit on money refused this model; another one may be cheaper, or have a price.
    Unaffordable(Box<Denial>),
}

/// One attempt, for one permit.
async fn attempt(
    place: &CallPlace,
    models: &Models,
    (planned, role): (&PlannedCall, ModelRole),
    cleared: &Cleared,
    cancel: &CancellationToken,
    account: &mut Account,
) -> Result<Tried, EngineError> {
    let spent = place.spent;
    let standing = RequestContext::of(&place.authority, spent);
    let first = std::mem::take(&mut account.ops);
    let permit = match place
        .services
        .door
        .pass_ungated(first, prepared(place, planned, &cleared.label), standing)
        .await?
    {
        Passage::Permit(permit) => permit,
        Passage::Denied(denial) if is_of_price(&denial) => return Ok(Tried::Unaffordable(denial)),
        Passage::Denied(denial) => return Ok(Tried::Over(refused(&denial))),
        Passage::Ask(_) | Passage::Simulated(_) => {
            let text = "the rules want to be asked before each model call";
            let report = Report::new(Exit::Denied, "model.asks", text)
                .with_hint("a rule with @ask covers 'model_call': permit or forbid it instead");
            return Ok(Tried::Over(failure(&report)));
        }
    };
    let number = permit.attempt();
    place.services.life.metrics.model_call(role.as_str(), planned.model_call().input_tokens.get());
    let (deltas, shown) = mpsc::channel(DELTAS);
    // The output of another role is for the harness, and marks for hidden text are never shown.
    let is_own = role == place.profile.model && !account.is_program;
    let is_shown = is_own && place.profile.is_shown && cleared.hidden.is_empty();
    let work = models.call(*permit, planned, deltas, cancel.clone(), place.services.journal.clock.now());
    let (span, began) = (trace::model(planned), place.services.journal.clock.now());
    let (answer, heard) = tokio::join!(work.instrument(span.clone()), show(place, is_shown, shown));
    let HeardAnswer { pieces, read, released } = heard;
    account.pieces = pieces;
    let has_shown = is_shown || !released.is_empty();
    let is_last_word = answer.as_ref().is_ok_and(|reply| reply.calls.is_empty());
    account.ops.extend(shown_text(place, released).filter(|_| !is_last_word));
    let took = place.services.journal.clock.now().time_since(began);
    // Amounts that are only set aside cross no mark.
    let used = budget::read_used(&place.services, &place.session, spent.turn_cost).await?;
    match answer {
        Ok(mut reply) => {
            place.session.state().secrecy.withheld.restore_content(&mut reply, &cleared.hidden);
            place.services.journal.redactor.mask_reply(&mut reply);
            show_reasoning(place, is_shown, &reply.reasoning);
            take_in(place, &mut reply, planned, (is_own, account.is_program));
            trace::model_ended(&span, &planned.requested_model(), took, Ok(&reply));
            account.usage = reply.usage;
            account.ops.extend(note_usage(place, planned, &reply.usage));
            record(place, models, (planned, role), (number, &used), Ok(&reply), account);
            Ok(Tried::Over(Event::ModelReplied { reply }))
        }
        Err(mut error) => {
            let report = place.services.journal.redactor.mask_report(error.report());
            let usage = usage::counted_usage(planned, &error, (read, account.is_program));
            trace::model_ended(&span, &planned.requested_model(), took, Err((&usage, &report)));
            account.usage = usage;
            let text = recorded_error(&place.services, &error);
            let failed = Err((&usage, text.as_str(), error.failure.is_lasting()));
            record(place, models, (planned, role), (number, &used), failed, account);
            // Another model may repeat what was not shown.
            error.begun &= has_shown;
            Ok(Tried::Failed(Box::new(error)))
        }
    }
}

/// Takes an answer in: its calls, where the tools are our own, and what it says of the context's size.
fn take_in(place: &CallPlace, reply: &mut ModelReply, call: &PlannedCall, (own, program): (bool, bool)) {
    if !program {
        understand(place, reply, call.request());
    }
    if own {
        count_answer(place, &reply.usage);
    }
}

/// Brings calls of tools that were offered into the form that they clearly mean.
fn understand(place: &CallPlace, reply: &mut ModelReply, request: &ModelRequest) {
    let tools = place.services.servers.registry();
    let toolset = tools.toolset_of(&place.profile.roles, &AllowList::All);
    let offered: Vec<&str> = request.tools.iter().map(|tool| tool.name.as_str()).collect();
    for call in &mut reply.calls {
        toolset.understand_call(call, &offered, place.session.project());
    }
}

/// Shows what went wrong and what is tried next.
fn announce_retry(place: &CallPlace, report: &Report, planned: &PlannedCall, step: &NextAttempt) {
    let next = planned.requested_model();
    trace::model_retrying(&next, step.wait);
    let text = if step.wait.is_zero() {
        format!("{} Asking {next}.", report.outside)
    } else {
        format!("{} Trying again in {} s.", report.outside, step.wait.as_secs())
    };
    place.session.hub.pass(ServerFrame::Status { text });
}

/// Waits; `false`: the call was cancelled meanwhile.
pub(crate) async fn slept(wait: Duration, cancel: &CancellationToken) -> bool {
    if wait.is_zero() {
        return true;
    }
    tokio::select! {
        () = cancel.cancelled() => false,
        () = tokio::time::sleep(wait) => true,
    }
}

fn prepared(place: &CallPlace, planned: &PlannedCall, label: &Label) -> Prepared {
    Prepared {
        action: planned.action(),
        agent: place.profile.agent.clone(),
        session: Some(place.session.id),
        turn: place.turn,
        turn_number: place.number,
        call: None,
        tool: "model".to_owned(),
        sinks: Vec::new(),
        label: label.clone(),
        bindings: Default::default(),
        idempotent: true,
        intent: format!("ask {}", planned.requested_model()),
    }
}

/// The event of a call that has failed.
pub(crate) fn failure(report: &Report) -> Event {
    failure_noted(report, None)
}

/// A failure of which the conversation keeps `noted` alone, if that is something.
fn failure_noted(report: &Report, noted: Option<String>) -> Event {
    let (text, hint) = (report.outside.clone(), report.hint.clone());
    let failure = ModelFailure::Failed { exit: report.exit, text, hint, noted };
    Event::ModelFailed { failure }
}

/// Returns the text of a model's error that is stored and may reach other models: a provider's own words are
/// for people alone.
pub(crate) fn recorded_error(services: &Services, error: &ModelError) -> String {
    let report = error.report();
    let text = if error.quoted_words().is_some() { report.inside } else { report.outside };
    services.journal.redactor.mask_text(&text).into_owned()
}

/// Notes an attempt, with its cost, for ledger and usage. `used` is what was spent before it.
fn record(
    place: &CallPlace,
    models: &Models,
    (planned, role): (&PlannedCall, ModelRole),
    (attempt, used): (AttemptId, &Spent),
    answer: Result<&ModelReply, (&Usage, &str, bool)>,
    account: &mut Account,
) {
    let now = place.services.journal.clock.now();
    let usage = match answer {
        Ok(reply) => reply.usage,
        Err((usage, ..)) => *usage,
    };
    let cost = models.call_cost(planned, &usage, now);
    // The answers to an agent are in its turn; those to the harness and to programs would be nowhere.
    let is_beside = role != place.profile.model;
    let is_sealed = is_beside || account.is_program;
    let ops = &mut account.ops;
    let fact = Fact::ModelCalled {
        attempt,
        requested: planned.requested_model(),
        actual: answer.map(|reply| reply.model.clone()).unwrap_or_default(),
        stop: answer.ok().map(|reply| reply.stop.clone()),
        usage,
        cost,
        error: answer.err().map(|(_, error, _)| error.to_owned()).unwrap_or_default(),
        is_lasting: answer.is_err_and(|(.., is_lasting)| is_lasting),
        role: if is_beside { role.as_str().to_owned() } else { String::new() },
        sealed_reply: answer
            .ok()
            .filter(|_| is_sealed)
            .and_then(|reply| ask::seal_reply(&place.services, reply)),
    };
    ops.push(place.services.journal.entry(place.session.id, place.at(), fact));
    let cost = cost.unwrap_or_default();
    let delta = UsageDelta {
        session: Some(place.session.id),
        at: place.services.journal.budget_day(now),
        usage,
        cost,
        tool_calls: 0,
        model_calls: 1,
    };
    let share = UsageShare {
        delta,
        role: role.as_str().to_owned(),
        model: planned.requested_model(),
        item: place.session.item_name(),
    };
    ops.extend([Op::AddUsage(delta), Op::AddUsageShare(Box::new(share))]);
    let limits = place.services.keys.limits_of(Some(&place.session));
    let is_item = place.session.terms.work.is_some();
    for text in budget::warnings((&limits, is_item), used, (usage.total_tokens(), cost)) {
        let frame = Box::new(ServerFrame::Status { text });
        ops.push(Op::Frame { session: place.session.id, frame });
    }
    account.cost += cost;
}
