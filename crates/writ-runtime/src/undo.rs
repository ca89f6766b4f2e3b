//! Undo: what was brought into a project goes back to what it was, with one tap for a few minutes, later by an ask.

use std::collections::BTreeMap;
use std::sync::Arc;

use writ_inspect::prepared::{Prepared, Sink};
use writ_policy::budget::Spent;
use writ_policy::permit::Permit;
use writ_policy::principal::Authenticated;
use writ_sandbox::changes::ChangeSet;
use writ_store::reads::UndoReads as _;
use writ_store::undo::StoredUndo as Way;
use writ_types::action::Action;
use writ_types::entry::{ApprovalScope, Decision, Risk};
use writ_types::error::Exit;
use writ_types::id::{AskId, AttemptId};
use writ_types::taint::{Label, Source, Taint};

use crate::door::{Passage, RequestContext};
use crate::error::EngineError;
use crate::interface::{Answer, Answered};
use crate::place::{self, CallPlace};
use crate::project::carry_out;
use crate::services::Services;
use crate::session::UNDO;
use crate::way_back::UNDOES;
use crate::{answers, asks, passage};

/// The result of a request to undo something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Undone {
    /// It was undone, or could not be: how it ended.
    Settled(Answered),
    /// A person was asked: its time was over, or one tap is not enough for it.
    Asked(AskId),
}

/// Prepares the action that undoes a change.
fn prepare_undo(services: &Services, way: &Way) -> Prepared {
    let count = way.way.changes.len();
    let project = way.way.root.clone();
    let source = Source { origin: UNDO.to_owned(), detail: project.clone(), entry: None };
    Prepared {
        intent: format!("Undo {count} changed file{} in {project}", if count == 1 { "" } else { "s" }),
        action: Action::WriteFile(way.way.clone()),
        agent: services.config.agent.clone(),
        session: Some(way.session),
        turn: None,
        turn_number: 0,
        call: None,
        tool: UNDO.to_owned(),
        sinks: vec![
            Sink { argument: "project".to_owned(), value: project },
            Sink { argument: UNDOES.to_owned(), value: way.attempt.to_string() },
        ],
        // The earlier content of the project is not the owner's word either.
        label: Label::from_source(Taint::External, source),
        bindings: BTreeMap::new(),
        idempotent: true,
    }
}

/// Undoes what an attempt has done: at once while its time lasts, else a person is asked.
///
/// # Errors
///
/// If it cannot be undone (any more), or store or sandbox cannot be used.
pub(crate) async fn undo(
    services: &Arc<Services>,
    who: &Authenticated<()>,
    attempt: AttemptId,
) -> Result<Undone, EngineError> {
    let way = services.journal.store.undo(attempt).await?.ok_or(EngineError::NoUndo(attempt))?;
    if way.undone_at.is_some() {
        return Err(EngineError::UndoneBefore(attempt));
    }
    if way.way.changes.is_empty() {
        return Err(EngineError::NoUndo(attempt));
    }
    let session = services.sessions.get(way.session).await?;
    let late = services.journal.valid_now() >= way.until;
    if late && session.terms.write {
        // A preapproval does not cover a late undo, so a person is asked.
        services.sessions.set_left_behind(&session, true).await?;
    }
    let place = place::outside_turn(services, session).await?;
    let workspace = services.workspace(&place.session).await?;
    let diff = workspace.diff_back(attempt, &way.way.changes).await.map_err(|error| {
        let text = format!("Not undone: {error}");
        EngineError::NotApplied { exit: Exit::Verification, text }
    })?;
    let standing = RequestContext {
        mode: place.session.mode(),
        ..RequestContext::of(&place.authority, Spent::default())
    };
    let refused = |text: String| EngineError::NotApplied { exit: Exit::Denied, text };
    match passage::pass(services, prepare_undo(services, &way), standing).await? {
        Passage::Ask(ask) if diff.unshown.is_empty() => {
            let easy = ask.risk <= Risk::Medium;
            let opened = asks::open_ask(services, &place.session, *ask, &diff.text).await?;
            let id = opened.map_err(|why| refused(format!("Not undone: {why}.")))?;
            if !easy || late {
                return Ok(Undone::Asked(id));
            }
            let answer = Answer {
                decision: Decision::Approve,
                scope: ApprovalScope::Once,
                signed: None,
                shown: None,
                reason: "undone with one tap".to_owned(),
            };
            Ok(Undone::Settled(answers::answer(services, who, id, answer).await?))
        }
        Passage::Ask(_) => {
            let names = diff.unshown.join(", ");
            Err(refused(format!("Not undone: too large to be shown completely: {names}.")))
        }
        // The owner has preapproved changes of this folder.
        Passage::Permit(permit) => undo_now(services, &place, *permit).await,
        Passage::Denied(denial) => Err(refused(format!("Not undone: {}", denial.text))),
        Passage::Simulated(_) => Err(refused("Not undone: this session only simulates.".to_owned())),
    }
}

async fn undo_now(services: &Services, place: &CallPlace, permit: Permit) -> Result<Undone, EngineError> {
    let _held = place.session.applying.lock().await;
    match carry_out(place, permit, &ChangeSet::default(), &services.life.stop_now).await? {
        Ok(said) => {
            let (state, text) = ("applied".to_owned(), said.join("\n"));
            Ok(Undone::Settled(Answered { state, reason: String::new(), text, exit: Exit::Done }))
        }
        Err(report) => {
            let text = format!("Not undone: {}", report.outside);
            Err(EngineError::NotApplied { exit: report.exit, text })
        }
    }
}
