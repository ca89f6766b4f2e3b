//! A session's changes on their way into the project: shown, asked, applied.

use std::collections::BTreeMap;

use tokio::sync::MutexGuard;
use tokio_util::sync::CancellationToken;
use writ_agent::effect::{FinishedTurn, TurnStatus};
use writ_inspect::prepared::{Prepared, Sink};
use writ_policy::budget::Spent;
use writ_policy::permit::Permit;
use writ_sandbox::changes::{ChangeSet, Diff};
use writ_sandbox::error::SandboxError;
use writ_store::approvals::AskState;
use writ_store::batch::Op;
use writ_store::reads::AskReads as _;
use writ_tools::outcome::PerformedOutcome;
use writ_tools::render::render_result;
use writ_types::action::{Action, Place as WritePlace, WriteFile};
use writ_types::digest::Digest;
use writ_types::error::{Exit, Report};
use writ_types::frame::ServerFrame;
use writ_types::id::{AskId, SessionId};
use writ_types::taint::{Label, Source, Taint};

use crate::asks;
use crate::asks::tell::{self, failed};
use crate::door::{Passage, RequestContext};
use crate::error::EngineError;
use crate::outcome::outcome_entry;
use crate::perform::{self, Performed};
use crate::place::CallPlace;
use crate::services::Services;
use crate::session::{APPLY, Session};
use crate::{passage, way_back};

use settled::{Settled, obeyed};

mod settled;

/// The most rounds of one request to apply changes. Each round takes as many changes as a diff lists:
/// together all that a diff looks at.
const ROUNDS_MAX: usize = 100;

/// Returns the changes of a session in its work folder, with secrets removed from the text.
///
/// # Errors
///
/// If the folders cannot be read, or the diff was cancelled.
pub(crate) async fn diff(
    services: &Services,
    session: &Session,
    cancel: &CancellationToken,
) -> Result<Diff, EngineError> {
    let mut diff = services.workspace(session).await?.until(cancel).read_diff().await?;
    // The hash covers the files as they are; only the text for people and models is masked.
    services.journal.redactor.scrub_text(&mut diff.text);
    Ok(diff)
}

/// Waits until no other diff or apply of the session runs; `None` if the wait was cancelled.
async fn hold<'a>(session: &'a Session, cancel: &CancellationToken) -> Option<MutexGuard<'a, ()>> {
    tokio::select! {
        biased;
        held = session.applying.lock() => Some(held),
        () = cancel.cancelled() => None,
    }
}

/// Prepares the action that brings a session's changes into its project.
fn prepare_apply(place: &CallPlace, project: &str, diff: &Diff) -> Prepared {
    let source = Source { origin: APPLY.to_owned(), detail: project.to_owned(), entry: None };
    let count = diff.changes.changes.len();
    Prepared {
        action: Action::WriteFile(WriteFile {
            place: WritePlace::Project,
            root: project.to_owned(),
            changes: diff.changes.changes.clone(),
            content: None,
            encoding: Default::default(),
        }),
        agent: place.services.config.agent.clone(),
        session: Some(place.session.id),
        turn: place.turn,
        turn_number: place.number,
        call: None,
        tool: APPLY.to_owned(),
        sinks: vec![Sink { argument: "project".to_owned(), value: project.to_owned() }],
        // Files that a sandboxed program wrote are never the owner's word.
        label: Label::from_source(Taint::External, source),
        bindings: BTreeMap::new(),
        idempotent: true,
        intent: format!("Apply {count} changed file{} to {project}", if count == 1 { "" } else { "s" }),
    }
}

/// The result of a request to bring changes into the project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Proposed {
    /// The changes that could be applied are in the project, if there were any.
    Settled(Settled),
    /// A person was asked.
    Asked(AskId),
    /// They would be, but this session only simulates.
    Simulated,
    /// They were not: how a command ends with that, and why.
    Refused { exit: Exit, text: String },
}

impl Proposed {
    /// Returns the refusal for a person who cancelled while the work folder was in use.
    fn cancelled() -> Self {
        let text = "Not applied: cancelled while the work folder was in use. See `writ diff`.".to_owned();
        Self::Refused { exit: Exit::Interrupted, text }
    }

    fn refused(exit: Exit, why: &str) -> Self {
        Self::Refused { exit: failed(exit), text: format!("Not applied: {why}") }
    }
}

/// Brings the session's changes into its project, if that is permitted in advance; else asks a person for
/// approval.
///
/// # Errors
///
/// If sandbox or store cannot be used.
pub(crate) async fn propose(place: &CallPlace, cancel: &CancellationToken) -> Result<Proposed, EngineError> {
    let Some(project) = project_of(&place.session) else {
        return Ok(Proposed::Settled(Settled::default()));
    };
    let Some(_held) = hold(&place.session, cancel).await else { return Ok(Proposed::cancelled()) };
    let mut settled = Settled::default();
    for _ in 0..ROUNDS_MAX {
        // There may be more than one diff lists.
        if let Some(ended) = round(place, &project, &mut settled, cancel).await? {
            return Ok(ended);
        }
    }
    Ok(Proposed::refused(Exit::Blocked, "there are too many changes at once; the others are in the project."))
}

/// Brings out as much as one diff lists. `None`: that is done, and there may be more.
async fn round(
    place: &CallPlace,
    project: &str,
    settled: &mut Settled,
    cancel: &CancellationToken,
) -> Result<Option<Proposed>, EngineError> {
    let diff = match diff(&place.services, &place.session, cancel).await {
        Err(EngineError::Sandbox(SandboxError::Cancelled)) => return Ok(Some(Proposed::cancelled())),
        diff => diff?,
    };
    if diff.changes.changes.is_empty() {
        place.services.sessions.set_left_behind(&place.session, false).await?;
        settled.leave(&diff.changes);
        return Ok(Some(Proposed::Settled(std::mem::take(settled))));
    }
    Ok(Some(
        match passage::pass(&place.services, prepare_apply(place, project, &diff), standing(place)).await? {
            Passage::Permit(permit) => match carry_out(place, *permit, &diff.changes, cancel).await? {
                Ok(said) => {
                    supersede(place, None).await?;
                    settled.applied.extend(said);
                    return Ok(None);
                }
                Err(report) => Proposed::refused(report.exit, &report.outside),
            },
            Passage::Ask(_) if !diff.unshown.is_empty() => {
                // A change that cannot be shown completely cannot be approved.
                let names = diff.unshown.join(", ");
                let why = format!(
                    "too large to be shown completely, so it cannot be approved: {names}. Have the agent remove or shrink it."
                );
                Proposed::refused(Exit::Blocked, &why)
            }
            Passage::Ask(ask) => {
                supersede(place, Some(ask.hash)).await?;
                match asks::open_ask(&place.services, &place.session, *ask, &diff.text).await? {
                    Ok(ask) => Proposed::Asked(ask),
                    Err(why) => Proposed::refused(Exit::Blocked, &format!("it cannot be asked: {why}.")),
                }
            }
            Passage::Simulated(_) => Proposed::Simulated,
            Passage::Denied(denial) => Proposed::refused(Exit::Denied, &denial.text),
        },
    ))
}

/// Returns the standing for changes that were permitted in advance: it has no approval and spends nothing.
fn standing(place: &CallPlace) -> RequestContext<'_> {
    RequestContext {
        authority: &place.authority,
        spent: Spent::default(),
        approval: None,
        // Changes that an interrupted step left must be looked at, so an approval for the task does not cover them.
        task: !place.session.state().recovery.left_behind,
        mode: place.session.mode(),
        origins: None,
        request: None,
    }
}

/// Applies what a permit allows, and writes down what came of it: in words, or why it was not done.
pub(crate) async fn carry_out(
    place: &CallPlace,
    permit: Permit,
    changes: &ChangeSet,
    cancel: &CancellationToken,
) -> Result<Result<Vec<String>, Report>, EngineError> {
    let attempt = permit.attempt();
    let Performed { prepared, mut outcome, mut ops, undo } = perform::perform(place, permit, cancel).await?;
    let rendered = render_result(&prepared, &mut outcome, &place.services.journal.redactor);
    ops.push(place.services.journal.entry(place.session.id, place.at(), outcome_entry(attempt, &rendered)));
    let mut said = Vec::new();
    if let Some(obeyed) = obeyed(changes) {
        if place.session.terms.write && place.turn.is_some() {
            // No person is asked, so the names are reported with the outcome, however the turn ends.
            ops.push(status(place.session.id, obeyed));
        } else {
            said.push(obeyed);
        }
    }
    place.services.journal.commit_for(&place.session.hub, ops.into_relaxed()).await?;
    if undo.is_some() {
        way_back::end_undos(&place.services, Some(place.session.id)).await?;
    }
    Ok(match outcome {
        PerformedOutcome::Failed { report } | PerformedOutcome::Doubtful { report } => Err(report),
        PerformedOutcome::Exec { .. }
        | PerformedOutcome::Text { .. }
        | PerformedOutcome::Listing { .. }
        | PerformedOutcome::Matches { .. }
        | PerformedOutcome::Written { .. }
        | PerformedOutcome::Memories { .. }
        | PerformedOutcome::Remembered { .. }
        | PerformedOutcome::Fetched { .. }
        | PerformedOutcome::Saved { .. }
        | PerformedOutcome::Searched { .. }
        | PerformedOutcome::Part { .. }
        | PerformedOutcome::Subscribed { .. }
        | PerformedOutcome::Unsubscribed { .. }
        | PerformedOutcome::Reachable { .. }
        | PerformedOutcome::Planned { .. }
        | PerformedOutcome::Called { .. }
        | PerformedOutcome::Said
        | PerformedOutcome::Sent { .. } => {
            said.insert(0, rendered.text.into_string());
            Ok(said)
        }
    })
}

/// A remark that the session's watchers are given, also those who join later.
pub(crate) fn status(session: SessionId, text: String) -> Op {
    Op::Frame { session, frame: Box::new(ServerFrame::Status { text }) }
}

/// Applies the changes of a turn that is over, asks for approval, or leaves them. Returns the turn's exit
/// after that, and the messages for the person.
///
/// # Errors
///
/// If sandbox or store cannot be used.
pub(crate) async fn bring_out(
    place: &CallPlace,
    finish: &FinishedTurn,
    cancel: &CancellationToken,
) -> Result<(Exit, Vec<String>), EngineError> {
    let (write, exit) = (place.session.terms.write, finish.exit);
    match finish.status {
        TurnStatus::Done | TurnStatus::Waiting | TurnStatus::Denied => {}
        TurnStatus::Blocked | TurnStatus::Incomplete | TurnStatus::Failed | TurnStatus::Cancelled
            if write =>
        {
            let what = match left(place, cancel).await? {
                Some(0) => return Ok((exit, Vec::new())),
                Some(1) => "1 changed file is not applied".to_owned(),
                Some(count) => format!("{count} changed files are not applied"),
                None => "What was changed last is not applied".to_owned(),
            };
            place.services.sessions.set_left_behind(&place.session, true).await?;
            let said = format!("{what}: see `writ diff`. You are asked before anything more is applied.");
            return Ok((exit, vec![said]));
        }
        TurnStatus::Blocked | TurnStatus::Incomplete | TurnStatus::Failed | TurnStatus::Cancelled => {
            // Nor is it covered by an approval for the task, now or later.
            place.services.sessions.set_left_behind(&place.session, true).await?;
        }
    }
    Ok(match propose(place, cancel).await? {
        Proposed::Settled(settled) => {
            // Changes that were approved in advance are not listed file by file.
            let applied = if write { Vec::new() } else { settled.applied };
            (worse(exit, settled.exit), [applied, settled.left].concat())
        }
        Proposed::Asked(_) if exit == Exit::Done => (Exit::Waiting, Vec::new()),
        Proposed::Asked(_) => (exit, Vec::new()),
        Proposed::Simulated => (exit, vec!["Not applied: this session only simulates.".to_owned()]),
        Proposed::Refused { exit: refused, text } => {
            if refused == Exit::Interrupted {
                place.services.sessions.set_left_behind(&place.session, true).await?;
            }
            (worse(exit, refused), vec![text])
        }
    })
}

/// Returns the exit of a turn after its changes: a failure of the changes replaces only success or waiting.
const fn worse(turn: Exit, changes: Exit) -> Exit {
    match (turn, changes) {
        (_, Exit::Done) => turn,
        (Exit::Done | Exit::Waiting, _) => changes,
        (_, _) => turn,
    }
}

/// Counts the changes of a session that are not in its project; `None` if the wait or the count was
/// cancelled.
///
/// # Errors
///
/// If the folders cannot be read.
async fn left(place: &CallPlace, cancel: &CancellationToken) -> Result<Option<usize>, EngineError> {
    if project_of(&place.session).is_none() {
        return Ok(Some(0));
    }
    let Some(_held) = hold(&place.session, cancel).await else { return Ok(None) };
    let workspace = place.services.workspace(&place.session).await?.until(cancel);
    match workspace.read_changes().await {
        Ok(changes) => Ok(Some(changes.changes.len())),
        Err(SandboxError::Cancelled) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Closes the session's earlier question about an earlier state of the folder.
async fn supersede(place: &CallPlace, hash: Option<Digest>) -> Result<(), EngineError> {
    for ask in
        place.services.journal.store.waiting_asks(place.session.id, writ_store::config::MAX_READ_ROWS).await?
    {
        let is_open = ask.state == AskState::Open;
        if is_open && ask.prepared.tool == APPLY && Some(ask.card.prepared) != hash {
            tell::end_ask(&place.services, &ask, "The folder has changed since it was asked.").await?;
        }
    }
    Ok(())
}

/// Applies the changes of a step, in a session with the owner's approval in advance. An obstacle is reported
/// at once; its effect on the turn is decided at the turn's end, at the last attempt.
///
/// # Errors
///
/// If sandbox or store cannot be used.
pub(crate) async fn apply_as_it_goes(
    place: &CallPlace,
    cancel: &CancellationToken,
) -> Result<(), EngineError> {
    let Some(project) = project_of(&place.session) else { return Ok(()) };
    let Some(_held) = hold(&place.session, cancel).await else { return Ok(()) };
    let diff = match diff(&place.services, &place.session, cancel).await {
        Err(EngineError::Sandbox(SandboxError::Cancelled)) => return Ok(()),
        diff => diff?,
    };
    if diff.changes.changes.is_empty() {
        return Ok(());
    }
    let Passage::Permit(permit) =
        passage::pass(&place.services, prepare_apply(place, &project, &diff), standing(place)).await?
    else {
        return Ok(());
    };
    if let Err(report) = carry_out(place, *permit, &diff.changes, cancel).await? {
        let text = format!("Not applied: {}", report.outside);
        place.session.hub.pass(ServerFrame::Status { text });
    }
    Ok(())
}

fn project_of(session: &Session) -> Option<String> {
    session.terms.project.as_ref().map(|path| path.to_string_lossy().into_owned())
}
