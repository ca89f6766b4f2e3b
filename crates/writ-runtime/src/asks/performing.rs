//! What was approved is performed once, exactly as it was approved, and its outcome is recorded.

use std::collections::BTreeSet;
use std::sync::{Arc, MutexGuard, PoisonError};

use tracing::Instrument as _;
use writ_policy::approval::{self, ApprovalError};
use writ_policy::budget::Spent;
use writ_policy::permit::Permit;
use writ_policy::show::escape_line;
use writ_store::approvals::{Ask as AskRow, AskState};
use writ_store::batch::{Batch, Op};
use writ_tools::outcome::{ExecEnd, PerformedOutcome};
use writ_tools::render::{Rendered, fields, render};
use writ_types::chat::ToolOutcome;
use writ_types::error::{Exit, ToReport as _};
use writ_types::frame::Undo;
use writ_types::id::AskId;

use super::tell::{exit_of, resolved};
use crate::act::Place;
use crate::closing::{is_over, outlives};
use crate::core::Core;
use crate::engine::Answered;
use crate::error::EngineError;
use crate::passage::{Passage, Standing};
use crate::perform::{self, Performed};
use crate::project::APPLY;
use crate::session::Session;
use crate::trace;
use crate::undo::UNDO;

/// Told where the card does not show what has happened since.
const BEGUN_SINCE: &str = "Not performed: it was begun since this was asked, and its outcome is unknown.";
/// The longest reason of an outcome, in characters: it stands in one line of a card.
const MAX_REASON_CHARS: usize = 200;

/// The outcome of an approved ask.
#[derive(Clone, Debug)]
pub(crate) struct AskOutcome {
    pub(crate) rendered: Rendered,
    pub(crate) exit: Exit,
    /// Why it was not done, in one short line; empty where it was.
    pub(crate) reason: String,
    /// The way back, where there is one.
    pub(crate) undo: Option<Undo>,
}

impl AskOutcome {
    /// The state that frames and answers give for it.
    pub(crate) const fn state(&self) -> &'static str {
        match self.rendered.outcome {
            ToolOutcome::Done => "applied",
            ToolOutcome::Simulated => "simulated",
            ToolOutcome::Unknown => "unknown",
            ToolOutcome::Failed | ToolOutcome::Denied | ToolOutcome::Waiting | ToolOutcome::Cancelled => {
                "failed"
            }
        }
    }
}

/// One line without characters that deceive, at most [`MAX_REASON_CHARS`] long.
pub(super) fn short(text: &str) -> String {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    let line = escape_line(line);
    match line.char_indices().nth(MAX_REASON_CHARS) {
        Some((at, _)) => format!("{}\u{2026}", line.get(..at).unwrap_or_default()),
        None => line,
    }
}

/// Why a performed action did not succeed, without anything that its output says.
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

impl Core {
    /// Performs what an approval was given for: decided again, with everything that is so now.
    ///
    /// # Errors
    ///
    /// If the store or the sandbox cannot be used at all.
    pub(crate) async fn perform_ask(
        self: &Arc<Self>,
        ask: &AskRow,
        approval: Result<approval::Approval, ApprovalError>,
    ) -> Result<Answered, EngineError> {
        let id = &ask.card.ask_id;
        // A stopping engine waits for it as for a turn.
        let _running = self.turns.token();
        self.performing().insert(id.clone());
        let done = match ask.card.session {
            Some(session) => {
                let span = trace::approved(id, session, ask.prepared.turn);
                self.perform_now(ask, &approval).instrument(span).await
            }
            None => self.perform_now(ask, &approval).await,
        };
        if done.is_err()
            && let Err(error) = self.settle_ask(ask).await
        {
            tracing::error!(%error, "what was approved and has failed is settled at the next start");
        }
        self.performing().remove(id);
        if let Err(EngineError::SessionClosed(_)) = &done
            && let Some(ask) = self.store.ask(id)?
        {
            self.end_closed_ask(&ask).await?;
        }
        let outcome = match done {
            Ok(outcome) => outcome,
            Err(error) => {
                self.tell_not_begun(ask, &error).await?;
                return Err(error);
            }
        };
        let state = outcome.state().to_owned();
        let AskOutcome { rendered, exit, reason, .. } = outcome;
        Ok(Answered { state, reason, text: rendered.text.into_string(), exit })
    }

    /// Announces that what was approved could not even be begun, so that no card stays at «approved». The approval stands:
    /// the next start tries it again until it expires.
    async fn tell_not_begun(&self, ask: &AskRow, error: &EngineError) -> Result<(), EngineError> {
        let id = &ask.card.ask_id;
        let approved = self.store.ask(id)?.is_some_and(|ask| ask.state == AskState::Approved);
        let Some(session) = ask.card.session.filter(|_| approved) else { return Ok(()) };
        let report = error.report();
        let reason = self.redactor.clean(short(&report.outside)).into_string();
        let text = format!("Not done: {reason} It is tried again when the engine starts next.");
        let exit = super::tell::failed(report.exit);
        let op = resolved(session, id, ("failed", &reason), &text, exit);
        let session = self.session(session)?;
        self.commit_for(&session, Batch::synced(vec![op])).await?;
        Ok(())
    }

    async fn perform_now(
        self: &Arc<Self>,
        ask: &AskRow,
        approval: &Result<approval::Approval, ApprovalError>,
    ) -> Result<AskOutcome, EngineError> {
        let prepared = &ask.prepared;
        let session = prepared.session.ok_or_else(|| EngineError::AskClosed {
            ask: ask.card.ask_id.clone(),
            state: "belongs to no session".to_owned(),
        })?;
        let session = self.session(session)?;
        // Nothing may change the folder's diff while what was approved of it is applied.
        let applies = [APPLY, UNDO].contains(&prepared.tool.as_str());
        let _held = if applies { Some(session.applying.lock().await) } else { None };
        let at = prepared.turn.map(|turn| (turn, prepared.turn_number));
        let authority = Arc::new(self.grant(&session, at).await?);
        let label = prepared.label.clone();
        let standing = Standing {
            authority: &authority,
            spent: Spent::default(),
            approval: Some(approval),
            task: false,
            mode: session.mode(),
            origins: None,
        };
        let not_done = |text: String, reason: &str, outcome, exit| {
            let rendered = Rendered { text: self.redactor.clean(text), label: label.clone(), outcome };
            let reason = self.redactor.clean(short(reason)).into_string();
            (AskOutcome { rendered, exit, reason, undo: None }, vec![self.take_back(ask)])
        };
        let refused = |text: String, reason: &str| not_done(text, reason, ToolOutcome::Denied, Exit::Denied);
        let (outcome, ops) = match self.pass_again(&session, ask, standing).await? {
            None => refused(BEGUN_SINCE.to_owned(), "it was begun since this was asked"),
            Some(Passage::Denied(denial)) => refused(denial.outside(), &denial.text),
            Some(Passage::Ask(_)) => {
                refused("Not performed: it must be asked again.".to_owned(), "it must be asked again")
            }
            Some(Passage::Simulated(_)) => {
                let text = "Not performed: this session only simulates.".to_owned();
                not_done(text, "this session only simulates", ToolOutcome::Simulated, Exit::Done)
            }
            Some(Passage::Permit(permit)) => {
                let place = Place {
                    core: Arc::clone(self),
                    session: Arc::clone(&session),
                    turn: at.map(|(turn, _)| turn),
                    number: at.map_or(0, |(_, number)| number),
                    authority: Arc::clone(&authority),
                    origins: None,
                    spent: Spent::default(),
                };
                self.performed(&place, *permit).await?
            }
        };
        self.tell(ask, outcome.clone(), ops).await?;
        if outcome.undo.is_some() {
            self.end_undos(Some(session.id)).await?;
        }
        Ok(outcome)
    }

    /// Puts what was approved before the door. `None`: it was begun since it was asked, which its card did not say.
    ///
    /// # Errors
    ///
    /// If the session was closed meanwhile, or the ledger cannot be written.
    async fn pass_again(
        &self,
        session: &Session,
        ask: &AskRow,
        standing: Standing<'_>,
    ) -> Result<Option<Passage>, EngineError> {
        let passage = match self.store.begun_since(session.id, &ask.prepared.action, &ask.card.ask_id)? {
            true => None,
            false => Some(self.pass(ask.prepared.clone(), standing).await?),
        };
        // Closing ends it, whatever else it was refused for.
        if !matches!(passage, Some(Passage::Permit(_))) && is_over(session, &ask.prepared) {
            return Err(EngineError::SessionClosed(session.id));
        }
        Ok(passage)
    }

    /// Performs what was permitted. Returns its outcome, and what is to be written with it.
    async fn performed(&self, place: &Place, permit: Permit) -> Result<(AskOutcome, Vec<Op>), EngineError> {
        let attempt = permit.attempt();
        let (cancel, began) = (self.stopping(&place.session, outlives(permit.prepared())), self.clock.now());
        let Performed { prepared, mut outcome, mut ops, undo } =
            perform::perform(place, permit, &cancel).await?;
        let rendered = render(&prepared, &mut outcome, &self.redactor);
        let exit = exit_of(&outcome, rendered.outcome);
        let reason = self.redactor.clean(short(&reason_of(&outcome, rendered.outcome))).into_string();
        let (heard, _) = place.told_after((&prepared.tool, &rendered), began, &cancel).await?;
        ops.extend(place.leaked(&prepared.tool, rendered.text.secrets()));
        let about = (&prepared, attempt, &prepared.label);
        let fields = fields(&outcome, &self.redactor);
        let told = self.told(&place.session, about, &outcome, (rendered, &fields))?;
        ops.extend([self.entry(place.session.id, place.at(), told.fact)].into_iter().chain(told.op));
        ops.extend(heard);
        Ok((AskOutcome { rendered: told.rendered, exit, reason, undo }, ops))
    }

    /// An approval that led to nothing is not tried again: the next start would try it, and the one after it.
    pub(super) fn take_back(&self, ask: &AskRow) -> Op {
        Op::RevokeApproval { ask: ask.card.ask_id.clone() }
    }

    /// The approved asks that are being performed. Every holder leaves the set whole, so poison is ignored.
    fn performing(&self) -> MutexGuard<'_, BTreeSet<AskId>> {
        self.performing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether an approved ask is being performed.
    pub(crate) fn is_performing(&self, ask: &AskId) -> bool {
        self.performing().contains(ask)
    }
}
