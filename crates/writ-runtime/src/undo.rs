//! Undo: what was brought into a project goes back to what it was, with one tap for a few minutes, later by an ask.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use writ_policy::budget::Spent;
use writ_policy::permit::Permit;
use writ_policy::prepared::{Prepared, Sink};
use writ_policy::principal::Authenticated;
use writ_sandbox::apply::Applied;
use writ_sandbox::changes::ChangeSet;
use writ_store::batch::{Batch, NewUndo, Op};
use writ_store::undo::Undo as Way;
use writ_types::action::{Action, WriteFile};
use writ_types::entry::{ApprovalScope, Decision, Risk};
use writ_types::error::Exit;
use writ_types::frame::Undo;
use writ_types::id::{AskId, AttemptId, SessionId};
use writ_types::taint::{Label, Source, Taint};

use crate::act::Place;
use crate::core::Core;
use crate::engine::{Answer, Answered};
use crate::error::EngineError;
use crate::passage::{Passage, Standing};
use crate::project::carry_out;

/// The harness's own word for what leads back.
pub(crate) const UNDO: &str = "undo";
/// For how long one tap undoes what was done (SIL-328).
pub(crate) const UNDO_WINDOW: Duration = Duration::from_secs(5 * 60);
/// For how long it can be undone at all: a day later, nobody knows any more what else rests on it.
const UNDO_KEPT: Duration = Duration::from_secs(24 * 60 * 60);
/// The most ways back that one session keeps; one more ends the oldest.
const MAX_KEPT: usize = 8;
/// The most ways back that one look ends for their age.
const MAX_ENDED: usize = 100;
/// The sink that names what is undone.
const UNDOES: &str = "undoes";

/// What came of the wish to undo something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Undone {
    /// It was undone, or could not be: how it ended.
    Settled(Answered),
    /// A person was asked: its time was over, or one tap is not enough for it.
    Asked(AskId),
}

/// What is written down so that something can be undone, and how it is offered.
pub(crate) fn keep(
    place: &Place,
    attempt: AttemptId,
    write: &WriteFile,
    applied: Applied,
    ops: &mut Vec<Op>,
) -> Option<Undo> {
    let (at, until) = (place.core.clock.now(), place.core.valid_now().plus(UNDO_WINDOW));
    // Without a way back it is written down, too, so that what was done before is not taken for what was done last.
    let kept = !applied.back.is_empty();
    let way = WriteFile { changes: applied.back, ..write.clone() };
    let session = place.session.id;
    ops.push(Op::KeepUndo(Box::new(NewUndo { attempt, session, at, until, way })));
    kept.then_some(Undo { attempt, until })
}

/// What an undo undoes.
pub(crate) fn undone_by(prepared: &Prepared) -> Option<AttemptId> {
    let named = prepared.sinks.iter().find(|sink| sink.argument == UNDOES)?;
    named.value.parse().ok()
}

/// The wish to undo something.
fn wish(core: &Core, way: &Way) -> Prepared {
    let count = way.way.changes.len();
    let project = way.way.root.clone();
    let source = Source { origin: UNDO.to_owned(), detail: project.clone(), entry: None };
    Prepared {
        intent: format!("Undo {count} changed file{} in {project}", if count == 1 { "" } else { "s" }),
        action: Action::WriteFile(way.way.clone()),
        agent: core.config.agent.clone(),
        session: Some(way.session),
        turn: None,
        turn_number: 0,
        call: None,
        tool: UNDO.to_owned(),
        sinks: vec![
            Sink { argument: "project".to_owned(), value: project },
            Sink { argument: UNDOES.to_owned(), value: way.attempt.to_string() },
        ],
        // What the project held before is not the owner's word either.
        label: Label::from_source(Taint::External, source),
        bindings: BTreeMap::new(),
        idempotent: true,
    }
}

impl Core {
    /// Undoes what an attempt has done: at once while its time lasts, else a person is asked.
    ///
    /// # Errors
    ///
    /// If it cannot be undone (any more), or store or sandbox cannot be used.
    pub(crate) async fn undo(
        self: &Arc<Self>,
        who: &Authenticated<()>,
        attempt: AttemptId,
    ) -> Result<Undone, EngineError> {
        let way = self.store.undo(attempt)?.ok_or(EngineError::NoUndo(attempt))?;
        if way.undone_at.is_some() {
            return Err(EngineError::UndoneBefore(attempt));
        }
        if way.way.changes.is_empty() {
            return Err(EngineError::NoUndo(attempt));
        }
        let session = self.session(way.session)?;
        let late = self.valid_now() >= way.until;
        if late && session.terms.write {
            // Leave that was given beforehand does not cover it any more: a person is asked.
            self.set_left_behind(&session, true).await?;
        }
        let place = self.outside_turn(session).await?;
        let workspace = place.session.workspace(self).await?;
        let diff = workspace.diff_back(attempt, &way.way.changes).await.map_err(|error| {
            let text = format!("Not undone: {error}");
            EngineError::NotApplied { exit: Exit::Verification, text }
        })?;
        let standing = Standing {
            authority: &place.authority,
            spent: Spent::default(),
            approval: None,
            task: false,
            mode: place.session.mode(),
            origins: None,
        };
        let refused = |text: String| EngineError::NotApplied { exit: Exit::Denied, text };
        match self.pass(wish(self, &way), standing).await? {
            Passage::Ask(ask) if diff.unshown.is_empty() => {
                let easy = ask.risk <= Risk::Medium;
                let opened = self.open_ask(&place.session, *ask, &diff.text).await?;
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
                Ok(Undone::Settled(self.answer(who, id, answer).await?))
            }
            Passage::Ask(_) => {
                let names = diff.unshown.join(", ");
                Err(refused(format!("Not undone: too large to be shown completely: {names}.")))
            }
            // Its owner has approved changes of this folder beforehand.
            Passage::Permit(permit) => self.undo_now(&place, *permit).await,
            Passage::Denied(denial) => Err(refused(format!("Not undone: {}", denial.text))),
            Passage::Simulated(_) => Err(refused("Not undone: this session only simulates.".to_owned())),
        }
    }

    async fn undo_now(&self, place: &Place, permit: Permit) -> Result<Undone, EngineError> {
        let _held = place.session.applying.lock().await;
        match carry_out(place, permit, &ChangeSet::default(), &self.stop_now).await? {
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

    /// What was done last in a session and can be undone.
    ///
    /// # Errors
    ///
    /// If the store cannot be read.
    pub(crate) fn last_way_back(&self, session: SessionId) -> Result<Option<AttemptId>, EngineError> {
        let ways = self.store.undos(session, MAX_KEPT)?;
        Ok(ways.into_iter().find(|way| way.undone_at.is_none()).map(|way| way.attempt))
    }

    /// Ends the ways back that are too old, or too many for a session.
    ///
    /// # Errors
    ///
    /// If the store cannot be read or written.
    pub(crate) async fn end_undos(&self, session: Option<SessionId>) -> Result<(), EngineError> {
        let now = self.clock.now();
        let before = now.minus(UNDO_KEPT);
        let mut over = self.store.old_undos(before, MAX_ENDED)?;
        if let Some(session) = session {
            over.extend(self.store.undos(session, MAX_ENDED)?.into_iter().skip(MAX_KEPT));
        }
        for way in over {
            let kept = self.session(way.session)?.workspace_config(self).data_dir;
            if let Err(error) = writ_sandbox::forget_back(&kept, way.attempt).await {
                tracing::warn!(%error, attempt = %way.attempt, "the stored copies for undo were not removed");
            }
            self.store.commit(Batch::relaxed(vec![Op::ForgetUndo { attempt: way.attempt }])).await?;
        }
        Ok(())
    }
}
