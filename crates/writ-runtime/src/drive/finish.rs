//! The end of a turn: what it has changed is brought out, and one commit makes its answer known.

use std::pin::pin;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use writ_agent::effect::{FinishedTurn, TurnStatus};
use writ_agent::event::TurnMessage;
use writ_store::batch::{NewChronicle, Op};
use writ_store::reads::QueueReads as _;
use writ_store::work::{MAX_WORDS_CHARS, WorkOp};
use writ_types::chat::{ChatMessage, Part, Role};
use writ_types::digest::Digest;
use writ_types::entry::{Entry, Fact, TurnPhase};
use writ_types::error::Exit;
use writ_types::frame::ServerFrame;
use writ_types::id::MessageId;
use writ_types::taint::Label;

use super::{Drive, Watched, planned};
use crate::error::EngineError;
use crate::pending::Pending;
use crate::session::{Interrupt, MAX_INTERRUPTS};
use crate::{project, subscriptions};

impl Drive {
    /// The line of the chronicle for a message that the turn has taken in.
    pub(super) fn chronicle_user(&self, turn_number: u64, message: TurnMessage) -> Op {
        Op::Chronicle(Box::new(NewChronicle {
            session: self.session.id,
            turn: Some(self.turn),
            turn_number,
            at: self.services.journal.clock.now(),
            message: ChatMessage {
                role: Role::User,
                parts: vec![Part::Text { text: message.text }],
                label: message.label,
            },
        }))
    }

    /// Applies what a step has changed; a person may stop the turn while that waits for others who use the folder.
    /// Returns true if the turn goes on: not when the engine stops.
    pub(super) async fn apply_as_it_goes(&mut self) -> Result<bool, EngineError> {
        let (cancel, place) = (CancellationToken::new(), self.place().await?);
        let work = project::apply_as_it_goes(&place, &cancel);
        match self.watch(cancel.clone(), work).await {
            Watched::Done(applied) | Watched::Unwanted(applied) => applied.map(|()| true),
            Watched::Stopping(_) => Ok(false),
        }
    }

    /// Brings out what the turn has changed. The turn is over and cannot be stopped, but a person who cancels need
    /// not wait any longer for others who use the folder. `None`: the engine stops.
    async fn bring_out(&mut self, finish: &FinishedTurn) -> Result<Option<(Exit, Vec<String>)>, EngineError> {
        let (cancel, place) = (CancellationToken::new(), self.place().await?);
        let stop = self.services.life.stop_now.clone();
        if finish.status == TurnStatus::Cancelled || self.ending.stop_wanted {
            // A person who stopped the turn does not wait for others who use the folder.
            cancel.cancel();
        }
        let mut work = pin!(project::bring_out(&place, finish, &cancel));
        loop {
            tokio::select! {
                biased;
                done = &mut work => return done.map(Some),
                Some(interrupt) = self.interrupts.recv() => match interrupt {
                    Interrupt::Cancel => cancel.cancel(),
                    // A message stays in the queue. Outcomes of asks are handled after the last one has
                    // arrived.
                    Interrupt::Arrived(_) => {}
                    answered @ Interrupt::Answered(..) if self.unheard.len() < MAX_INTERRUPTS => {
                        self.unheard.push_back(answered);
                    }
                    Interrupt::Answered(ask, _) => tracing::error!(%ask, "what came of an ask is not told"),
                },
                () = stop.cancelled() => {
                    cancel.cancel();
                    let brought = (&mut work).await?;
                    let waited = brought.0 == Exit::Interrupted && finish.exit != Exit::Interrupted;
                    return Ok((!waited).then_some(brought));
                }
            }
        }
    }

    /// Brings out what the turn has changed, unless it works on a step. `None`: the engine stops.
    async fn bring_out_touched(
        &mut self,
        finish: &FinishedTurn,
    ) -> Result<Option<(Exit, Vec<String>)>, EngineError> {
        // Changes of a work item are applied later, when its checks have passed.
        if !self.tally.touched || self.profile.is_step || self.session.terms.work.is_some() {
            return Ok(Some((finish.exit, Vec::new())));
        }
        self.write_held().await?;
        self.bring_out(finish).await
    }

    /// The last commit: reply, history, acknowledgement and the end of the turn are one transaction.
    pub(super) async fn finish(&mut self, finish: FinishedTurn) -> Result<(), EngineError> {
        // Where the engine stops meanwhile, the next start brings the changes out.
        let Some((mut exit, notices)) = self.bring_out_touched(&finish).await? else { return Ok(()) };
        let now = self.services.journal.clock.now();
        let (mut text, label) =
            self.ending.reply.take().unwrap_or_else(|| (String::new(), finish.label.clone()));
        let mut transcript = finish.transcript.clone();
        if self.profile.is_planner() {
            let mut ops = Pending::new();
            let end = planned::end_planning(self, &finish, (&text, &label), &mut ops).await?;
            self.held.extend(ops);
            (text, exit, transcript) = (end.text, end.exit, end.transcript);
        }
        let (leased, fence) = (self.lease.message.record.message, self.lease.fence);
        let (phase, state) = phase_of(finish.status);
        let absorbed: Vec<MessageId> = finish.answers.iter().copied().filter(|id| *id != leased).collect();
        let mut answers = vec![self.lease.message.client_id.clone()];
        if !absorbed.is_empty() {
            answers.extend(self.services.journal.store.client_ids(&absorbed).await?);
        }
        let held = std::mem::take(&mut self.held);
        let mut ops = held.clone();
        ops.extend(notices.into_iter().map(|text| project::status(self.session.id, text)));
        let referring = [self.lease.message.text.as_str(), &text];
        let session = Arc::clone(&self.session);
        let renewal = subscriptions::renewal(&session, self.number, &referring);
        if self.profile.is_step {
            ops.push(self.step_ended(exit, &text));
        }
        ops.extend(renewal.as_ref().map(|renewal| renewal.op.clone()));
        ops.push(self.last_word(text, label, exit, answers));
        ops.push(self.fact(Fact::Phase { phase, reason: format!("{:?}", finish.status).to_lowercase() }));
        ops.extend(transcript.iter().filter(|message| message.role != Role::User).map(|message| {
            Op::Chronicle(Box::new(NewChronicle {
                session: self.session.id,
                turn: Some(self.turn),
                turn_number: self.number,
                at: now,
                message: message.clone(),
            }))
        }));
        ops.extend(absorbed.iter().map(|id| Op::AbsorbMessage {
            message: *id,
            turn: self.turn,
            lease: leased,
            fence,
        }));
        ops.push(Op::AckMessage { message: leased, fence });
        ops.push(Op::CloseTurn { turn: self.turn, at: now, state: state.to_owned() });
        self.session.state().budget.note = finish.budget_note;
        self.note_full(exit);
        let done = self.services.journal.commit_for(&self.session.hub, ops.into_synced()).await;
        if let Err(error) = done {
            // Restores the pending writes of the turn, with its costs, so that they are written after this
            // error is reported.
            self.held = held;
            return Err(error);
        }
        if let Some(renewal) = renewal {
            renewal.stored();
        }
        // The next turn uses this key again while it has time left.
        self.session.state().keys.task = Some(Arc::clone(&self.authority));
        self.ending.state = Some(state);
        self.services.life.work.call(&self.session);
        Ok(())
    }

    /// Notes that the turn has ended because its context was full, where no request could be assembled.
    fn note_full(&self, exit: Exit) {
        if exit == Exit::Budget && self.machine.assemble_now().is_err() {
            self.session.state().context.is_full = true;
        }
    }

    /// The end of the attempt at the step that this turn works on, in the commit that ends the turn.
    fn step_ended(&self, exit: Exit, said: &str) -> Op {
        Op::Work(WorkOp::EndTurn {
            message: self.lease.message.record.message,
            exit: exit.code(),
            said: {
                let most = if self.session.plan_above().is_some() { usize::MAX } else { MAX_WORDS_CHARS };
                self.services.journal.redactor.mask_text(said).chars().take(most).collect()
            },
            at: self.services.journal.clock.now(),
        })
    }

    /// The reply for ledger and watchers; the store adds up to which entry it rests.
    fn last_word(&self, text: String, label: Label, exit: Exit, answers: Vec<String>) -> Op {
        let from = self.lease.message.entry;
        let taint = label.taint;
        let entry = Entry {
            at: self.services.journal.clock.now(),
            session: Some(self.session.id),
            turn: Some(self.turn),
            turn_number: self.number,
            fact: Fact::Replied { from, to: from, text: Digest::of_bytes(text.as_bytes()), label },
        };
        let (turn, entries) = (self.turn, (from, from));
        let frame = ServerFrame::Message { turn, text, taint, entries, last: true, exit, answers };
        Op::Reply { entry: Box::new(entry), session: self.session.id, frame: Box::new(frame) }
    }
}

const fn phase_of(status: TurnStatus) -> (TurnPhase, &'static str) {
    match status {
        TurnStatus::Done | TurnStatus::Waiting | TurnStatus::Denied => (TurnPhase::Finished, "finished"),
        TurnStatus::Blocked | TurnStatus::Incomplete | TurnStatus::Failed => (TurnPhase::Failed, "failed"),
        TurnStatus::Cancelled => (TurnPhase::Cancelled, "cancelled"),
    }
}
