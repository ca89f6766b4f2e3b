//! A session's changes on their way into the project: shown, asked, applied.

use std::collections::BTreeMap;

use tokio::sync::MutexGuard;
use tokio_util::sync::CancellationToken;
use writ_agent::effect::{Finish, Status};
use writ_policy::budget::Spent;
use writ_policy::permit::Permit;
use writ_policy::prepared::{Prepared, Sink};
use writ_sandbox::changes::Diff;
use writ_sandbox::error::SandboxError;
use writ_store::approvals::AskState;
use writ_store::batch::{Batch, Op};
use writ_tools::outcome::PerformedOutcome;
use writ_tools::render::render;
use writ_types::action::{Action, Place as WritePlace, WriteFile};
use writ_types::error::Exit;
use writ_types::frame::ServerFrame;
use writ_types::id::AskId;
use writ_types::taint::{Label, Source, Taint};

use crate::act::{Place, outcome_entry};
use crate::asks::failed;
use crate::core::Core;
use crate::error::EngineError;
use crate::passage::{Passage, Standing};
use crate::perform;
use crate::session::{LEFT_BEHIND, Session};

/// The harness's own word for what brings changes into a project.
pub(crate) const APPLY: &str = "apply";

impl Core {
    /// What a session has changed in its work folder, as soon as nobody else uses it.
    ///
    /// # Errors
    ///
    /// If the folders cannot be read, or it was cancelled before.
    pub(crate) async fn diff(
        &self,
        session: &Session,
        cancel: &CancellationToken,
    ) -> Result<Diff, EngineError> {
        Ok(session.workspace(self).await?.until(cancel).diff().await?)
    }

    /// Notes whether an interrupted step has left changes behind. From the next turn on, nothing of the session is
    /// applied before a person has seen all of it, until nothing is left.
    ///
    /// # Errors
    ///
    /// If the store cannot be written.
    pub(crate) async fn set_left_behind(&self, session: &Session, left: bool) -> Result<(), EngineError> {
        if session.state().left_behind == left {
            return Ok(());
        }
        let value = left.then(|| serde_json::Value::Bool(true));
        let (session_id, key) = (session.id, LEFT_BEHIND.to_owned());
        let op = Op::SetSessionMetadata { session: session_id, key, value };
        self.store.commit(Batch::relaxed(vec![op])).await?;
        session.state().left_behind = left;
        Ok(())
    }
}

/// Waits until nothing else of the session is diffed or applied; `None`: nobody wants to wait any longer.
async fn hold<'a>(session: &'a Session, cancel: &CancellationToken) -> Option<MutexGuard<'a, ()>> {
    tokio::select! {
        biased;
        held = session.applying.lock() => Some(held),
        () = cancel.cancelled() => None,
    }
}

/// The wish to bring a session's changes into its project.
fn wish(place: &Place, project: &str, diff: &Diff) -> Prepared {
    let source = Source { origin: APPLY.to_owned(), detail: project.to_owned(), entry: None };
    let count = diff.changes.changes.len();
    Prepared {
        action: Action::WriteFile(WriteFile {
            place: WritePlace::Project,
            root: project.to_owned(),
            changes: diff.changes.changes.clone(),
            content: None,
        }),
        agent: place.core.config.agent.clone(),
        session: Some(place.session.id),
        turn: place.turn,
        turn_number: place.number,
        call: None,
        tool: APPLY.to_owned(),
        sinks: vec![Sink { argument: "project".to_owned(), value: project.to_owned() }],
        // What a sandboxed program wrote is never the owner's word.
        label: Label::from_source(Taint::External, source),
        bindings: BTreeMap::new(),
        idempotent: true,
        intent: format!("Apply {count} changed file{} to {project}", if count == 1 { "" } else { "s" }),
    }
}

/// What came of the wish to bring changes into the project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Proposed {
    /// There is no project, or nothing was changed.
    Nothing,
    /// A person was asked.
    Asked(AskId),
    /// They are in the project, in words.
    Applied(String),
    /// They would be, but this session only simulates.
    Simulated,
    /// They were not: how a command ends with that, and why.
    Refused { exit: Exit, text: String },
}

impl Proposed {
    /// A person did not want to wait any longer until nobody else uses the folder.
    fn cancelled() -> Self {
        let text = "Not applied: cancelled while the work folder was in use. See `writ diff`.".to_owned();
        Self::Refused { exit: Exit::Interrupted, text }
    }

    fn refused(exit: Exit, why: &str) -> Self {
        Self::Refused { exit: failed(exit), text: format!("Not applied: {why}") }
    }
}

/// Brings what the session has changed into its project, if that is permitted beforehand; else asks for leave.
///
/// # Errors
///
/// If sandbox or store cannot be used.
pub(crate) async fn propose(place: &Place, cancel: &CancellationToken) -> Result<Proposed, EngineError> {
    let Some(project) = project_of(&place.session) else { return Ok(Proposed::Nothing) };
    let Some(_held) = hold(&place.session, cancel).await else { return Ok(Proposed::cancelled()) };
    let diff = match place.core.diff(&place.session, cancel).await {
        Err(EngineError::Sandbox(SandboxError::Cancelled)) => return Ok(Proposed::cancelled()),
        diff => diff?,
    };
    if diff.changes.changes.is_empty() {
        place.core.set_left_behind(&place.session, false).await?;
        return Ok(Proposed::Nothing);
    }
    match place.core.pass(wish(place, &project, &diff), standing(place)).await? {
        Passage::Permit(permit) => carry_out(place, *permit, cancel).await,
        Passage::Ask(_) if !diff.unshown.is_empty() => {
            // What cannot be shown completely cannot be approved.
            let names = diff.unshown.join(", ");
            let why = format!(
                "too large to be shown completely, so it cannot be approved: {names}. Have the agent remove or shrink it."
            );
            Ok(Proposed::refused(Exit::Blocked, &why))
        }
        Passage::Ask(ask) => {
            supersede(place, ask.hash).await?;
            match place.core.open_ask(&place.session, *ask, &diff.text).await? {
                Ok(ask) => Ok(Proposed::Asked(ask)),
                Err(why) => Ok(Proposed::refused(Exit::Blocked, &format!("it cannot be asked: {why}."))),
            }
        }
        Passage::Simulated(_) => Ok(Proposed::Simulated),
        Passage::Denied(denial) => Ok(Proposed::refused(Exit::Denied, &denial.text)),
    }
}

/// What was permitted beforehand has nothing approved and spends nothing.
fn standing(place: &Place) -> Standing<'_> {
    Standing {
        authority: &place.authority,
        spent: Spent::default(),
        approval: None,
        mode: place.session.mode(),
    }
}

/// Applies what a permit allows, and writes down what came of it.
async fn carry_out(
    place: &Place,
    permit: Permit,
    cancel: &CancellationToken,
) -> Result<Proposed, EngineError> {
    let attempt = permit.attempt();
    let (prepared, performed) = perform::perform(place, permit, cancel).await?;
    let rendered = render(&prepared, &performed);
    let entry = place.core.entry(place.session.id, place.at(), outcome_entry(attempt, &rendered));
    place.core.commit_for(&place.session, Batch::relaxed(vec![entry])).await?;
    Ok(match performed {
        PerformedOutcome::Failed { report } => Proposed::refused(report.exit, &report.outside),
        PerformedOutcome::Exec { .. }
        | PerformedOutcome::Text { .. }
        | PerformedOutcome::Listing { .. }
        | PerformedOutcome::Matches { .. }
        | PerformedOutcome::Written { .. }
        | PerformedOutcome::Memories { .. }
        | PerformedOutcome::Remembered { .. }
        | PerformedOutcome::Said => Proposed::Applied(rendered.text),
    })
}

/// What becomes of the changes when a turn is over: how it ends with that, and what the person is told.
///
/// # Errors
///
/// If sandbox or store cannot be used.
pub(crate) async fn bring_out(
    place: &Place,
    finish: &Finish,
    cancel: &CancellationToken,
) -> Result<(Exit, Option<String>), EngineError> {
    let (write, exit) = (place.session.terms.write, finish.exit);
    match finish.status {
        Status::Done | Status::Waiting | Status::Denied => {}
        // What an interrupted step has left is not what anybody wanted applied without a look.
        Status::Blocked | Status::Incomplete | Status::Failed | Status::Cancelled if write => {
            let what = match left(place, cancel).await? {
                Some(0) => return Ok((exit, None)),
                Some(1) => "1 changed file is not applied".to_owned(),
                Some(count) => format!("{count} changed files are not applied"),
                None => "What was changed last is not applied".to_owned(),
            };
            place.core.set_left_behind(&place.session, true).await?;
            let said = format!("{what}: see `writ diff`. You are asked before anything more is applied.");
            return Ok((exit, Some(said)));
        }
        Status::Blocked | Status::Incomplete | Status::Failed | Status::Cancelled => {}
    }
    Ok(match propose(place, cancel).await? {
        Proposed::Nothing => (exit, None),
        Proposed::Asked(_) if exit == Exit::Done => (Exit::Waiting, None),
        Proposed::Asked(_) => (exit, None),
        Proposed::Applied(_) if write => (exit, None),
        Proposed::Applied(text) => (exit, Some(text)),
        Proposed::Simulated => (exit, Some("Not applied: this session only simulates.".to_owned())),
        Proposed::Refused { exit: refused, text } => {
            if write && refused == Exit::Interrupted {
                place.core.set_left_behind(&place.session, true).await?;
            }
            let exit = if matches!(exit, Exit::Done | Exit::Waiting) { refused } else { exit };
            (exit, Some(text))
        }
    })
}

/// How many changes of a session are not in its project; `None`: nobody waited until they could be counted.
///
/// # Errors
///
/// If the folders cannot be read.
async fn left(place: &Place, cancel: &CancellationToken) -> Result<Option<usize>, EngineError> {
    if project_of(&place.session).is_none() {
        return Ok(Some(0));
    }
    let Some(_held) = hold(&place.session, cancel).await else { return Ok(None) };
    let workspace = place.session.workspace(&place.core).await?.until(cancel);
    match workspace.changes().await {
        Ok(changes) => Ok(Some(changes.changes.len())),
        Err(SandboxError::Cancelled) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Closes the session's earlier question about an earlier state of the folder.
async fn supersede(place: &Place, hash: writ_types::digest::Digest) -> Result<(), EngineError> {
    for ask in place.core.store.asks(Some(AskState::Open), writ_store::config::MAX_READ_ROWS)? {
        let same_session = ask.card.session == Some(place.session.id);
        if same_session && ask.prepared.tool == APPLY && ask.card.prepared != hash {
            place.core.end_ask(&ask, "The folder has changed since it was asked.").await?;
        }
    }
    Ok(())
}

/// Applies what a step has changed, in a session whose owner has approved that beforehand. What stands in the
/// way is said at once; what it means for the turn is decided at its end, when it is tried for the last time.
///
/// # Errors
///
/// If sandbox or store cannot be used.
pub(crate) async fn apply_as_it_goes(place: &Place, cancel: &CancellationToken) -> Result<(), EngineError> {
    let Some(project) = project_of(&place.session) else { return Ok(()) };
    let Some(_held) = hold(&place.session, cancel).await else { return Ok(()) };
    let diff = match place.core.diff(&place.session, cancel).await {
        Err(EngineError::Sandbox(SandboxError::Cancelled)) => return Ok(()),
        diff => diff?,
    };
    if diff.changes.changes.is_empty() {
        return Ok(());
    }
    let Passage::Permit(permit) = place.core.pass(wish(place, &project, &diff), standing(place)).await?
    else {
        return Ok(());
    };
    if let Proposed::Refused { text, .. } = carry_out(place, *permit, cancel).await? {
        place.session.hub.pass(ServerFrame::Status { text });
    }
    Ok(())
}

fn project_of(session: &Session) -> Option<String> {
    session.terms.project.as_ref().map(|path| path.to_string_lossy().into_owned())
}
