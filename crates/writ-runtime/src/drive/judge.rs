//! Evaluates a text with the gates, including gates that ask a person.

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use writ_agent::event::{Event, TextVerdict};
use writ_inspect::gate::{Escalation, Judgement};
use writ_inspect::show::{MAX_SHOWN_BYTES, escape_text};
use writ_store::batch::Op;
use writ_types::digest::Digest;
use writ_types::entry::{ApprovalScope, Decision, Fact, GatePoint};
use writ_types::frame::{Choice, ServerFrame};
use writ_types::id::AskId;
use writ_types::unit::MicroUsd;

use super::{Drive, Watched, planned};
use crate::error::EngineError;
use crate::judging::{self, JudgementRecord};
use crate::pending::Pending;
use crate::session::{GateAnswer, WaitingGate, resolved};
use crate::trace;

/// Outcome of a gate that asks a person.
enum GateOutcome {
    /// A person has answered.
    Answered(GateAnswer),
    /// The text cannot be shown to a person, so no answer is possible.
    Unshowable,
    /// The turn continued without the answer.
    Moot,
    /// The engine stops; the gate asks again at the next start.
    Stopping,
}

impl Drive {
    /// Lets the gates judge a text. Returns true if the turn goes on: not when the engine stops.
    pub(super) async fn judge(&mut self, point: GatePoint, text: String) -> Result<bool, EngineError> {
        if !self.profile.is_judged_at(point) {
            let verdict = planned::judge_plan(self, point, &text);
            let event = match point {
                GatePoint::Output => Event::OutputJudged { verdict },
                GatePoint::Input | GatePoint::Execution | GatePoint::Access => Event::InputJudged { verdict },
            };
            self.hold(event, Pending::new())?;
            return Ok(true);
        }
        let Some(JudgementRecord { judged, mut ops, cost }) = self.ruled(point, &text).await? else {
            return Ok(!self.services.life.stop_now.is_cancelled());
        };
        self.tally.cost = self.tally.cost.saturating_add(cost);
        let after = match (judged.first_question(), judged.held.as_deref()) {
            (Some((gate, reason)), Some(held)) => {
                let asked = self.ask_person(point, (gate, reason), held, std::mem::take(&mut ops)).await?;
                match asked {
                    GateOutcome::Answered(answer) if answer.decision == Decision::Approve => {
                        Ok(held.to_owned())
                    }
                    GateOutcome::Answered(GateAnswer { reason, .. }) if reason.is_empty() => {
                        Err(format!("a person refused (gate '{gate}')"))
                    }
                    GateOutcome::Answered(GateAnswer { reason, .. }) => {
                        Err(format!("a person refused (gate '{gate}'): {reason}"))
                    }
                    GateOutcome::Unshowable => {
                        Err(format!("it is too long to be asked about (gate '{gate}')"))
                    }
                    GateOutcome::Moot => return Ok(true),
                    GateOutcome::Stopping => return Ok(false),
                }
            }
            (_, _) => match (judged.blocked_reason(), &judged.text) {
                (None, Some(after)) => Ok(after.clone()),
                (reason, _) => Err(reason.unwrap_or_default().to_owned()),
            },
        };
        let verdict = match after {
            Err(reason) => self.stopped(reason, &judged),
            Ok(after) if after != text => TextVerdict::Transform { text: after },
            Ok(_) => TextVerdict::Pass,
        };
        ops.extend(self.services.gates.follow(Some(self.session.id), self.at(), point, &judged));
        let event = match point {
            GatePoint::Output => Event::OutputJudged { verdict },
            GatePoint::Input | GatePoint::Execution | GatePoint::Access => Event::InputJudged { verdict },
        };
        self.tally.judged = self.tally.judged.saturating_add(1);
        self.hold(event, ops)?;
        Ok(true)
    }

    /// Returns the verdict of the gates at a point; `None` if the turn continued without them or the engine
    /// stops.
    async fn ruled(&mut self, point: GatePoint, text: &str) -> Result<Option<JudgementRecord>, EngineError> {
        if !self.services.gates.set.has_outside(point) {
            // These gates use nothing outside the process, so no intent has to be written before they judge.
            let span = trace::gate(point);
            let judged = self.services.gates.set.judge_text(point, text);
            trace::gate_ended(&span, &judged);
            let mut ops = self.services.gates.gated(Some(self.session.id), self.at(), point, &judged).await;
            ops.extend(self.services.gates.verified(&self.session, self.at(), &judged));
            return Ok(Some(JudgementRecord { judged, ops, cost: MicroUsd::default() }));
        }
        self.write_held().await?;
        let (cancel, place) = (CancellationToken::new(), self.place().await?);
        match self.watch(cancel.clone(), Box::pin(judging::judge_text(&place, point, text, &cancel))).await {
            Watched::Done(ruled) => ruled.map(Some),
            Watched::Unwanted(ruled) => {
                let ruled = ruled?;
                self.tally.cost = self.tally.cost.saturating_add(ruled.cost);
                self.note(ruled.ops).await?;
                Ok(None)
            }
            Watched::Stopping(_) => Ok(None),
        }
    }

    /// Maps a stopped text to its verdict: block it, or try again with a limit on attempts.
    fn stopped(&self, reason: String, judged: &Judgement) -> TextVerdict {
        match &judged.after {
            Some(Escalation::Respond { text }) => TextVerdict::Block { reason: text.clone() },
            Some(Escalation::SuppressAndRephrase { attempts }) => {
                TextVerdict::Again { note: Some(reason.clone()), reason, attempts: *attempts }
            }
            Some(Escalation::Retry { attempts }) => {
                TextVerdict::Again { note: None, reason, attempts: *attempts }
            }
            Some(
                Escalation::Report
                | Escalation::EscalateHuman
                | Escalation::TransferToQueue { .. }
                | Escalation::SpawnTask,
            )
            | None => TextVerdict::Block { reason },
        }
    }

    /// Asks a person about a text, and waits for the answer as for any other work of the turn.
    async fn ask_person(
        &mut self,
        point: GatePoint,
        (gate, reason): (&str, &str),
        text: &str,
        ops: Pending,
    ) -> Result<GateOutcome, EngineError> {
        self.held.extend(ops);
        let shown = escape_text(text);
        if shown.len() > MAX_SHOWN_BYTES {
            return Ok(GateOutcome::Unshowable);
        }
        let ask = self.gate_ask(point, text);
        let (point, [yes, no]) = match point {
            GatePoint::Output => {
                ("output", ["The agent says it.", "The remaining text is not sent, and the turn ends."])
            }
            GatePoint::Input | GatePoint::Execution | GatePoint::Access => {
                ("input", ["The agent reads it.", "It is not read, and the turn ends."])
            }
        };
        let choice = |decision, consequence: &str| Choice {
            decision,
            scope: ApprovalScope::Once,
            consequence: consequence.to_owned(),
        };
        let frame = ServerFrame::GateApproval {
            turn: self.turn,
            ask_id: ask.clone(),
            gate: gate.to_owned(),
            point: point.to_owned(),
            reason: reason.to_owned(),
            shown,
            choices: vec![choice(Decision::Approve, yes), choice(Decision::Deny, no)],
            fields: Vec::new(),
        };
        self.tell(frame.clone());
        let (answer, receiver) = oneshot::channel();
        // Before a client can read of it.
        self.session.state().gates.waiting.insert(ask.clone(), WaitingGate { frame, answer });
        let done = self.wait_for(receiver).await;
        self.session.state().gates.waiting.remove(&ask);
        let asked = done?;
        match &asked {
            GateOutcome::Answered(GateAnswer { decision, by, reason, .. }) => {
                let (decision, by, reason) = (*decision, by.clone(), reason.clone());
                let fact = Fact::Answered {
                    ask: ask.clone(),
                    decision,
                    scope: ApprovalScope::Once,
                    covers: String::new(),
                    by,
                    reason,
                };
                self.held.push(self.fact(fact));
                let state = if decision == Decision::Approve { "approved" } else { "denied" };
                self.tell(resolved(ask, state, String::new()));
            }
            GateOutcome::Moot => {
                let text = "The turn went on without the answer.".to_owned();
                self.tell(resolved(ask, "expired", text));
            }
            GateOutcome::Unshowable | GateOutcome::Stopping => {}
        }
        Ok(asked)
    }

    async fn wait_for(
        &mut self,
        receiver: oneshot::Receiver<GateAnswer>,
    ) -> Result<GateOutcome, EngineError> {
        self.write_held().await?;
        let cancel = CancellationToken::new();
        let (cancelled, draining) = (cancel.clone(), self.services.life.draining.clone());
        let waiting = async move {
            tokio::select! {
                // An answer that was taken counts.
                biased;
                answer = receiver => answer.map_or(GateOutcome::Moot, GateOutcome::Answered),
                () = cancelled.cancelled() => GateOutcome::Moot,
                // Nothing is under way that an engine which is to stop would have to wait for.
                () = draining.cancelled() => GateOutcome::Stopping,
            }
        };
        Ok(match self.watch(cancel, waiting).await {
            Watched::Done(asked) => asked,
            Watched::Unwanted(_) => GateOutcome::Moot,
            Watched::Stopping(_) => GateOutcome::Stopping,
        })
    }

    /// Derives the id of this ask from the turn and the text, so that it is the same after a restart, even if
    /// other input arrived.
    fn gate_ask(&self, point: GatePoint, text: &str) -> AskId {
        let digest =
            Digest::of_bytes(format!("gate {} {point:?} {} {text}", self.turn, self.tally.judged).as_bytes());
        let bytes = digest.as_bytes().first_chunk().copied().unwrap_or_default();
        AskId::from_random(u64::from_be_bytes(bytes))
    }

    /// Queues a frame for watching clients; it is written together with the next batch.
    fn tell(&mut self, frame: ServerFrame) {
        self.held.push(Op::Frame { session: self.session.id, frame: Box::new(frame) });
    }
}
