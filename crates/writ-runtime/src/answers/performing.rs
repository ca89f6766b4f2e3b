//! Performs an approved action once, exactly as it was approved, and records its outcome.

use std::sync::Arc;

use tracing::Instrument as _;
use writ_inspect::show::escape_line;
use writ_policy::approval::{self, ApprovalError};
use writ_policy::budget::Spent;
use writ_policy::permit::Permit;
use writ_store::approvals::{AskState, StoredAsk as AskRow};
use writ_store::batch::Batch;
use writ_store::reads::{AskReads as _, LedgerReads as _};
use writ_tools::outcome::{ExecEnd, PerformedOutcome};
use writ_tools::render::{MAX_RESULT_CHARS, Rendered, render_bounded, result_fields};
use writ_types::action::{Action, Plan};
use writ_types::chat::ToolOutcome;
use writ_types::error::{Exit, ToReport as _};

use crate::asks::outcome::AskOutcome;
use crate::asks::tell::{self, exit_of, resolved};
use crate::door::{Passage, RequestContext};
use crate::error::EngineError;
use crate::interface::Answered;
use crate::pending::Pending;
use crate::perform::{self, Performed};
use crate::place::CallPlace;
use crate::services::Services;
use crate::session::{APPLY, Session, UNDO, is_over, outlives};
use crate::work_calls::ended_item;
use crate::{closing, judging, passage, quarantine, settle, trace, way_back};

/// The reason shown where the card does not reflect an attempt made since.
const BEGUN_SINCE: &str = "Not performed: it was begun since this was asked, and its outcome is unknown.";
/// The reason shown where the card's work item ended between the answer and the action.
const ITEM_OVER: &str = "Not performed: its work item has ended.";
/// The longest reason of an outcome, in characters: it stands in one line of a card.
const MAX_REASON_CHARS: usize = 200;

/// One line without characters that deceive, at most [`MAX_REASON_CHARS`] long.
pub(super) fn short(text: &str) -> String {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    let line = escape_line(line);
    match line.char_indices().nth(MAX_REASON_CHARS) {
        Some((at, _)) => format!("{}\u{2026}", line.get(..at).unwrap_or_default()),
        None => line,
    }
}

/// Returns the reason why an action failed, without any of its output; empty if it succeeded.
fn reason_of(performed: &PerformedOutcome, outcome: ToolOutcome) -> String {
    if let PerformedOutcome::Failed { report } | PerformedOutcome::Doubtful { report } = performed {
        return report.outside.clone();
    }
    if outcome == ToolOutcome::Done {
        return String::new();
    }
    let PerformedOutcome::Exec { end, .. } = performed else {
        return "it reported an error".to_owned();
    };
    match end {
        ExecEnd::Code(code) => format!("it ended with exit code {code}"),
        ExecEnd::Signal(signal) => format!("it was ended by signal {signal}"),
        ExecEnd::TimedOut(ms) => format!("it was stopped at its time limit of {} s", ms / 1_000),
        ExecEnd::Limit(which) => format!("it was stopped at a limit: {which}"),
        ExecEnd::Cancelled => "it was stopped".to_owned(),
    }
}

/// Performs what an approval was given for: decided again, with everything that is so now.
///
/// # Errors
///
/// If the store or the sandbox cannot be used at all.
pub(crate) async fn perform_ask(
    services: &Arc<Services>,
    ask: &AskRow,
    approval: Result<approval::Approval, ApprovalError>,
) -> Result<Answered, EngineError> {
    let id = &ask.card.ask_id;
    // A stopping engine waits for it as for a turn.
    let _running = services.life.turns.token();
    // Before its intent is written: the end of its turn or session would settle the open intent as unknown while it runs.
    services.life.approved.performing().insert(id.clone());
    let done = match ask.card.session {
        Some(session) => {
            let span = trace::approved(id, session, ask.prepared.turn);
            perform_now(services, ask, &approval).instrument(span).await
        }
        None => perform_now(services, ask, &approval).await,
    };
    // The error may have come after the intent, which would look under way until the next start.
    if done.is_err()
        && let Err(error) = settle::settle_ask(services, ask).await
    {
        tracing::error!(%error, "what was approved and has failed is settled at the next start");
    }
    services.life.approved.performing().remove(id);
    call_for_work(services, ask);
    if let Err(EngineError::SessionClosed(_)) = &done
        && let Some(ask) = services.journal.store.ask(id).await?
    {
        closing::end_closed_ask(services, &ask).await?;
    }
    let outcome = match done {
        Ok(outcome) => outcome,
        Err(error) => {
            tell_not_begun(services, ask, &error).await?;
            return Err(error);
        }
    };
    let state = outcome.state().to_owned();
    let AskOutcome { rendered, exit, reason, .. } = outcome;
    Ok(Answered { state, reason, text: rendered.text.into_string(), exit })
}

/// Has the item looked at that a question was about, or that waits for its answer.
pub(super) fn call_for_work(services: &Services, ask: &AskRow) {
    if let Action::Plan(Plan { work: Some(work), .. }) = &ask.prepared.action {
        services.life.work.call_item(work.item);
    }
    // An attempt may wait for the answer.
    let session = ask.card.session.and_then(|id| services.sessions.loaded().get(&id).cloned());
    if let Some(session) = session {
        services.life.work.call(&session);
    }
}

/// Announces that what was approved could not even be begun, so that no card stays at «approved». The approval stands:
/// the next start tries it again until it expires.
async fn tell_not_begun(services: &Services, ask: &AskRow, error: &EngineError) -> Result<(), EngineError> {
    let id = &ask.card.ask_id;
    let approved = services.journal.store.ask(id).await?.is_some_and(|ask| ask.state == AskState::Approved);
    let Some(session) = ask.card.session.filter(|_| approved) else { return Ok(()) };
    let report = error.report();
    let reason = services.journal.redactor.clean_text(short(&report.outside)).into_string();
    let text = format!("Not done: {reason} It is tried again when the engine starts next.");
    let exit = crate::asks::tell::failed(report.exit);
    let op = resolved(session, id, ("failed", &reason), &text, exit);
    let session = services.sessions.get(session).await?;
    services.journal.commit_for(&session.hub, Batch::synced(vec![op])).await?;
    Ok(())
}

async fn perform_now(
    services: &Arc<Services>,
    ask: &AskRow,
    approval: &Result<approval::Approval, ApprovalError>,
) -> Result<AskOutcome, EngineError> {
    let prepared = &ask.prepared;
    let session = prepared.session.ok_or_else(|| EngineError::AskClosed {
        ask: ask.card.ask_id.clone(),
        state: "belongs to no session".to_owned(),
    })?;
    let session = services.sessions.get(session).await?;
    // Nothing may change the folder's diff while what was approved of it is applied.
    let applies = [APPLY, UNDO].contains(&prepared.tool.as_str());
    let _held = if applies { Some(session.applying.lock().await) } else { None };
    let at = prepared.turn.map(|turn| (turn, prepared.turn_number));
    let authority = Arc::new(services.keys.grant(&session, at).await?);
    // Its turn may still run, under a key of its own. What the owner does in a closed session does not end with its keys.
    match outlives(prepared) {
        true => session.state().keys.note_outliving(&authority),
        false => session.state().keys.note_outside(&authority),
    }
    let label = prepared.label.clone();
    let standing = RequestContext {
        approval: Some(approval),
        mode: session.mode(),
        ..RequestContext::of(&authority, Spent::default())
    };
    let not_done = |text: String, reason: &str, outcome, exit| {
        let rendered =
            Rendered { text: services.journal.redactor.clean_text(text), label: label.clone(), outcome };
        let reason = services.journal.redactor.clean_text(short(reason)).into_string();
        (AskOutcome { rendered, exit, reason, undo: None }, Pending::from([tell::take_back(ask)]))
    };
    let refused = |text: String, reason: &str| not_done(text, reason, ToolOutcome::Denied, Exit::Denied);
    let (outcome, ops) = match pass_again(services, &session, ask, standing).await? {
        Err((text, reason)) => refused(text.to_owned(), reason),
        Ok(Passage::Denied(denial)) => refused(denial.outside_text(), &denial.text),
        Ok(Passage::Ask(_)) => {
            refused("Not performed: it must be asked again.".to_owned(), "it must be asked again")
        }
        Ok(Passage::Simulated(_)) => {
            let text = "Not performed: this session only simulates.".to_owned();
            not_done(text, "this session only simulates", ToolOutcome::Simulated, Exit::Done)
        }
        Ok(Passage::Permit(permit)) => {
            let place = CallPlace {
                services: Arc::clone(services),
                profile: Arc::clone(services.profiles.executor()),
                session: Arc::clone(&session),
                turn: at.map(|(turn, _)| turn),
                number: at.map_or(0, |(_, number)| number),
                authority: Arc::clone(&authority),
                origins: None,
                result_chars: usize::MAX,
                spent: Spent::default(),
            };
            performed(services, &place, *permit).await?
        }
    };
    tell::tell(services, ask, outcome.clone(), ops).await?;
    if outcome.undo.is_some() {
        way_back::end_undos(services, Some(session.id)).await?;
    }
    Ok(outcome)
}

/// Puts what was approved before the door. The inner error is the text and the reason why it does not come there: it was begun since
/// it was asked, which its card did not say, or its work item has ended.
///
/// # Errors
///
/// If the session was closed meanwhile, or the ledger cannot be written.
async fn pass_again(
    services: &Services,
    session: &Session,
    ask: &AskRow,
    standing: RequestContext<'_>,
) -> Result<Result<Passage, (&'static str, &'static str)>, EngineError> {
    let store = &services.journal.store;
    let passage = if store.begun_since(session.id, &ask.prepared.action, &ask.card.ask_id).await? {
        Err((BEGUN_SINCE, "it was begun since this was asked"))
    } else if ended_item(&services.journal, session, &ask.prepared).await?.is_some() {
        Err((ITEM_OVER, "its work item has ended"))
    } else {
        Ok(passage::pass(services, ask.prepared.clone(), standing).await?)
    };
    // Session closing takes precedence: an unperformed action is reported as closed, even if it was refused
    // for another reason.
    if !matches!(passage, Ok(Passage::Permit(_))) && is_over(session, &ask.prepared) {
        return Err(EngineError::SessionClosed(session.id));
    }
    Ok(passage)
}

/// Performs what was permitted. Returns its outcome, and what is to be written with it.
async fn performed(
    services: &Services,
    place: &CallPlace,
    permit: Permit,
) -> Result<(AskOutcome, Pending), EngineError> {
    let attempt = permit.attempt();
    let (cancel, began) = (
        closing::stopping(services, &place.session, outlives(permit.prepared())),
        services.journal.clock.now(),
    );
    let Performed { prepared, mut outcome, mut ops, undo } = perform::perform(place, permit, &cancel).await?;
    let (rendered, whole) =
        render_bounded(&prepared, &mut outcome, &services.journal.redactor, MAX_RESULT_CHARS);
    let exit = exit_of(&outcome, rendered.outcome);
    let reason =
        services.journal.redactor.clean_text(short(&reason_of(&outcome, rendered.outcome))).into_string();
    let said = (prepared.tool.as_str(), rendered.outcome, &*rendered.text);
    let (heard, _) = judging::told_after(place, said, began, &cancel).await?;
    ops.extend(place.leaked(&prepared.tool, rendered.text.masked_secrets()));
    let about = (&prepared, attempt, &prepared.label);
    let fields = result_fields(&outcome, &services.journal.redactor);
    let told =
        quarantine::told(services, &place.session, about, &outcome, (rendered, whole, &fields)).await?;
    ops.extend([services.journal.entry(place.session.id, place.at(), told.fact)].into_iter().chain(told.op));
    ops.extend(heard);
    Ok((AskOutcome { rendered: told.rendered, exit, reason, undo }, ops))
}
