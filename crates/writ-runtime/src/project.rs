//! A session's changes on their way into the project: shown, asked, applied.

use std::collections::BTreeMap;

use writ_policy::budget::Spent;
use writ_policy::prepared::{Prepared, Sink};
use writ_sandbox::changes::ChangeSet;
use writ_store::approvals::AskState;
use writ_store::batch::{Batch, Op};
use writ_tools::outcome::PerformedOutcome;
use writ_tools::render::render;
use writ_types::action::{Action, Place as WritePlace, WriteFile};
use writ_types::frame::ServerFrame;
use writ_types::id::AskId;
use writ_types::taint::{Label, Source, Taint};

use tokio_util::sync::CancellationToken;

use crate::act::{Place, outcome_entry};
use crate::core::Core;
use crate::error::EngineError;
use crate::passage::{Passage, Standing};
use crate::perform;
use crate::session::Session;

/// The harness's own word for what brings changes into a project.
pub(crate) const APPLY: &str = "apply";

/// What a session has changed, for people and for the door.
#[derive(Debug)]
pub(crate) struct Diff {
    pub(crate) changes: ChangeSet,
    /// The unified diff, and what is left out and why.
    pub(crate) text: String,
}

impl Core {
    /// What a session has changed in its work folder.
    ///
    /// # Errors
    ///
    /// If the folders cannot be read.
    pub(crate) async fn diff(&self, session: &Session) -> Result<Diff, EngineError> {
        let workspace = session.workspace(self).await?;
        let changes = workspace.changes().await?;
        let text = workspace.unified(&changes).await?;
        Ok(Diff { changes, text })
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

/// Asks for leave to apply what the session has changed; `None` if there is nothing to apply.
///
/// # Errors
///
/// If sandbox or store cannot be used.
pub(crate) async fn propose(place: &Place) -> Result<Option<AskId>, EngineError> {
    let Some(project) = project_of(&place.session) else { return Ok(None) };
    let _held = place.session.applying.lock().await;
    let diff = place.core.diff(&place.session).await?;
    if diff.changes.changes.is_empty() {
        return Ok(None);
    }
    let standing = Standing {
        authority: &place.authority,
        spent: Spent::default(),
        approval: None,
        mode: place.session.mode(),
    };
    match place.core.pass(wish(place, &project, &diff), standing).await? {
        Passage::Ask(ask) => {
            supersede(place, ask.hash).await?;
            match place.core.open_ask(&place.session, *ask, &diff.text).await? {
                Ok(ask) => Ok(Some(ask)),
                Err(why) => {
                    place.session.hub.pass(ServerFrame::Status { text: format!("Not asked: {why}.") });
                    Ok(None)
                }
            }
        }
        // A rule of the owner may permit or forbid it outright; nothing is applied without being asked for.
        Passage::Permit(_) | Passage::Simulated(_) | Passage::Denied(_) => Ok(None),
    }
}

/// Closes the session's earlier question about an earlier state of the folder.
async fn supersede(place: &Place, hash: writ_types::digest::Digest) -> Result<(), EngineError> {
    let mut ops = Vec::new();
    for ask in place.core.store.asks(Some(AskState::Open), writ_store::config::MAX_READ_ROWS)? {
        let same_session = ask.card.session == Some(place.session.id);
        if same_session && ask.prepared.tool == APPLY && ask.card.prepared != hash {
            ops.push(Op::ResolveAsk {
                ask: ask.card.ask_id,
                state: AskState::Expired,
                at: place.core.clock.now(),
                by: "harness".to_owned(),
                reason: "the folder has changed since".to_owned(),
            });
        }
    }
    if !ops.is_empty() {
        place.core.store.commit(Batch::relaxed(ops)).await?;
    }
    Ok(())
}

/// Applies what a step has changed, in a session whose owner has approved that beforehand.
///
/// # Errors
///
/// If sandbox or store cannot be used.
pub(crate) async fn apply_as_it_goes(place: &Place) -> Result<(), EngineError> {
    let Some(project) = project_of(&place.session) else { return Ok(()) };
    let _held = place.session.applying.lock().await;
    let diff = place.core.diff(&place.session).await?;
    if diff.changes.changes.is_empty() {
        return Ok(());
    }
    let standing = Standing {
        authority: &place.authority,
        spent: Spent::default(),
        approval: None,
        mode: place.session.mode(),
    };
    let Passage::Permit(permit) = place.core.pass(wish(place, &project, &diff), standing).await? else {
        return Ok(());
    };
    let attempt = permit.attempt();
    let (prepared, performed) = perform::perform(place, permit, &CancellationToken::new()).await?;
    let rendered = render(&prepared, &performed);
    let entry = place.core.entry(
        place.session.id,
        place.at(),
        outcome_entry(attempt, &rendered),
    );
    place.core.commit_for(&place.session, Batch::relaxed(vec![entry])).await?;
    if let PerformedOutcome::Failed { report } = performed {
        let text = format!("Not applied: {}", report.outside);
        place.session.hub.pass(ServerFrame::Status { text });
    }
    Ok(())
}

fn project_of(session: &Session) -> Option<String> {
    session.terms.project.as_ref().map(|path| path.to_string_lossy().into_owned())
}
