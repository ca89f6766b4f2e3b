//! The processes of agents: lines to them, and lines from them.

use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio_util::codec::{FramedRead, LinesCodec};
use tokio_util::sync::CancellationToken;
use writ_runtime::case_keys::{AgentBase, CaseKey};
use writ_runtime::error::EngineError;
use writ_store::error::StoreError;
use writ_store::fleet::AGENT_SENDER;
use writ_store::reads::FleetReads as _;
use writ_types::action::ActionKind;
use writ_types::entry::{CaseChange, DenyReason, Fact};
use writ_types::id::{KeyId, SessionId};

use super::config::FleetAgent;
use super::error::CaseError;
use super::live::{LiveAgent, LiveCase, MAX_BAD_LINES, MAX_WAITING_LINES};
use super::machine::{CaseEvent, CaseFault, LossCause};
use super::moves::CaseMove;
use super::ports::{PortFault, StartFault, StartOrder, StartedAgent};
use super::protocol::{AgentLine, Handover, MAX_LINE_BYTES, handover_line, refusal_line};
use super::router::CaseRouter;
use super::texts::mask_reason;
use crate::anomalies::Measure;

/// The messages of a conversation that are read at once: two megabytes at most.
const HANDOVER_PAGE: usize = 32;
/// The pause between two attempts to take a case from an agent.
const END_AGAIN: std::time::Duration = std::time::Duration::from_secs(1);

impl CaseRouter {
    /// Starts the process of a holder after the commit of its key, and hands the case over to it.
    pub(crate) async fn start_agent(
        &self,
        live: &mut LiveCase,
        (agent, base): (&FleetAgent, &AgentBase),
        key: &CaseKey,
        reason: &str,
    ) -> Result<(), StartFault> {
        let id = live.row.id;
        let conversation = self.read_handover(id).await;
        let conversation = conversation.map_err(|error| PortFault(error.to_string()))?;
        let order = StartOrder {
            case: id,
            agent: agent.name.clone(),
            command: agent.command.clone(),
            folder: agent.folder.clone(),
            limits: agent.limits,
            base: base.token().clone(),
            task: key.token.clone(),
        };
        self.check_folder(agent).await?;
        // Before the start: where the launcher ends it at its limit, this time has passed, and nothing looks like a crash.
        let ends_at = self.0.keys.now().plus_duration(agent.limits.run_time());
        let StartedAgent { input, output, process } = self.0.host.start_agent(order).await?;
        // Bounded: an agent that does not read must not fill the memory.
        let (lines, waiting) = mpsc::channel(MAX_WAITING_LINES);
        let over = CancellationToken::new();
        lines
            .try_send(handover_line(&live.row, &conversation, reason))
            .map_err(|_| PortFault("it takes no line".to_owned()))?;
        tokio::spawn(write_lines(input, waiting, over.clone()));
        tokio::spawn(self.clone().read_lines((id, key.key), output, over.clone()));
        live.agent = Some(LiveAgent {
            first_key: key.key,
            base_key: base.key(),
            base: agent.base.clone(),
            lines,
            process,
            over,
            ends_at,
            bad_lines: 0,
        });
        Ok(())
    }

    /// Reads what is handed over of a conversation, newest first: never more of it than that and one page.
    async fn read_handover(&self, id: SessionId) -> Result<Handover, StoreError> {
        let mut handover = Handover::default();
        let mut before = None;
        loop {
            let page = self.0.keys.store().newest_fleet_messages(id, before, HANDOVER_PAGE).await?;
            let Some(oldest) = page.last() else { return Ok(handover) };
            before = Some(oldest.n);
            for message in page {
                if !handover.add_older(message) {
                    return Ok(handover);
                }
            }
        }
    }

    /// Checks that the folder of an agent is still the one that a person has approved. Its path has the digest in it: what
    /// is deployed between this and the start lies elsewhere.
    async fn check_folder(&self, agent: &FleetAgent) -> Result<(), StartFault> {
        if agent.folder.is_none() {
            return Ok(());
        }
        let deployed = self.agents().find_deployed(&agent.name).filter(|one| one.agent.base == agent.base);
        let deployed = deployed.ok_or(StartFault::Replaced)?;
        // It reads every file of the folder.
        let checked = spawn_blocking(move || match deployed.is_replaced() {
            true => Err(StartFault::Replaced),
            false => deployed.check_folder().map_err(|error| PortFault(error.to_string()).into()),
        });
        checked.await.map_err(|error| PortFault(error.to_string()))?
    }

    /// Hands a line to the holder's process. One that reads nothing loses the case.
    pub(crate) async fn send_line(&self, live: &mut LiveCase, line: String) -> Result<(), CaseError> {
        let Some(agent) = &live.agent else { return Ok(()) };
        match agent.lines.try_send(line) {
            Ok(()) => Ok(()),
            Err(mpsc::error::TrySendError::Full(_)) => {
                self.lose_case(live, LossCause::Silence, "it does not read its messages").await
            }
            // Its reader sees the end of the process, and says so.
            Err(mpsc::error::TrySendError::Closed(_)) => Ok(()),
        }
    }

    /// Reads what a process says, until its end. Boxed: a line may start another process, whose lines are read likewise.
    fn read_lines(
        self,
        (id, first_key): (SessionId, KeyId),
        output: Box<dyn AsyncRead + Send + Unpin>,
        over: CancellationToken,
    ) -> BoxFuture<'static, ()> {
        async move {
            let mut lines = FramedRead::new(output, LinesCodec::new_with_max_length(MAX_LINE_BYTES));
            loop {
                let line = tokio::select! {
                    line = lines.next() => line,
                    () = over.cancelled() => return,
                };
                let handled = match line {
                    Some(Ok(line)) => self.hear_line(id, first_key, &line).await,
                    Some(Err(error)) => self.agent_ended(id, first_key, &error.to_string()).await,
                    None => self.agent_ended(id, first_key, "its process ended").await,
                };
                match handled {
                    Ok(true) => {}
                    Ok(false) => return,
                    Err(error) => {
                        tracing::error!(%error, case = %id, "a line of an agent could not be processed");
                        return self.end_unread((id, first_key), &over).await;
                    }
                }
            }
        }
        .boxed()
    }

    /// Takes the case from an agent that is not listened to any more: it would go on with its key, and no deadline would
    /// end it. Tried until the store takes it, or the case has another holder.
    async fn end_unread(&self, (id, first_key): (SessionId, KeyId), over: &CancellationToken) {
        while let Err(error) = self.agent_ended(id, first_key, "its lines could not be processed").await {
            tracing::error!(%error, case = %id, "a case could not be taken from its agent");
            tokio::select! {
                () = tokio::time::sleep(END_AGAIN) => {}
                () = over.cancelled() => return,
            }
        }
    }

    /// Takes in a line of the process that began with this key. Returns false when it has no say in the case from now on.
    ///
    /// # Errors
    ///
    /// If the store cannot be read or written.
    pub(crate) async fn hear_line(
        &self,
        id: SessionId,
        first_key: KeyId,
        line: &str,
    ) -> Result<bool, CaseError> {
        let Some(mut live) = self.held_by(id, first_key).await? else { return Ok(false) };
        let said = match AgentLine::parse_line(line.as_bytes()) {
            Ok(said) => said,
            Err(fault) => {
                self.turn_down_line(&mut live, fault.to_string()).await?;
                return Ok(true);
            }
        };
        match said {
            AgentLine::Reply(text) => self.add_reply(&mut live, &text).await,
            AgentLine::Escalate { target, reason } => {
                self.escalate_case(&mut live, first_key, target, reason).await
            }
            AgentLine::Done => {
                self.end_case(&mut live, "the agent has done it").await?;
                Ok(false)
            }
        }
    }

    /// Adds what an agent says to the conversation. One that has no room for it left goes to people, who have.
    async fn add_reply(&self, live: &mut LiveCase, text: &str) -> Result<bool, CaseError> {
        let name = live.holder.as_ref().map_or("", |holder| holder.name.as_str());
        let sender = format!("{AGENT_SENDER}{name}");
        match self.add_said(live, &sender, text).await {
            Ok(()) => {
                live.owes_since = None;
                Ok(true)
            }
            // The next agent could say nothing either.
            Err(CaseError::Engine(EngineError::Store(error @ StoreError::TooLarge { .. }))) => {
                let reason = format!("{}: {error}", LossCause::Full.as_str());
                let note = CaseMove::new(CaseChange::Rerouted, reason);
                self.advance_case(live, CaseEvent::Lose(LossCause::Full), note, None).await?;
                self.queue_case(live, "agents may add nothing more to its conversation").await?;
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    async fn escalate_case(
        &self,
        live: &mut LiveCase,
        first_key: KeyId,
        target: String,
        reason: String,
    ) -> Result<bool, CaseError> {
        let is_its = |live: &LiveCase| live.agent.as_ref().is_some_and(|agent| agent.first_key == first_key);
        let allowed = match &live.agent {
            Some(agent) => self.0.keys.check_base(&agent.base).await.map(|base| base.targets()),
            None => Ok(std::collections::BTreeSet::new()),
        };
        // A base key that is no longer in force grants nothing.
        let allowed = allowed.unwrap_or_default();
        self.count_measure(live, Measure::Escalations).await?;
        // A rule may have given the case to the next holder, of whom this line says nothing.
        if !is_its(live) {
            return Ok(false);
        }
        let reason = mask_reason(&*self.0.tokens, &live.row, reason).await;
        let note =
            CaseMove { target: target.clone(), ..CaseMove::new(CaseChange::Escalated, reason.clone()) };
        let event = CaseEvent::Escalate { target, reason, allowed };
        match self.advance_case(live, event, note, None).await {
            Ok(()) => {
                self.place_case(live).await?;
                Ok(false)
            }
            Err(CaseError::Fault(fault @ (CaseFault::Target { .. } | CaseFault::Reason))) => {
                let why = match &fault {
                    CaseFault::Target { .. } => DenyReason::Scope,
                    CaseFault::Reason | CaseFault::State { .. } | CaseFault::TooMany => DenyReason::Shape,
                };
                self.record_refusal(live, why, fault.to_string()).await?;
                // A line that is understood is a sign of life, also where it is refused.
                live.owes_since = None;
                self.count_measure(live, Measure::Refused).await?;
                if !is_its(live) {
                    return Ok(false);
                }
                self.turn_down_line(live, fault.to_string()).await?;
                Ok(true)
            }
            Err(error) => Err(error),
        }
    }

    /// Records that an agent asked for what it may not.
    async fn record_refusal(
        &self,
        live: &LiveCase,
        reason: DenyReason,
        text: String,
    ) -> Result<(), CaseError> {
        let agent = live.holder.as_ref().map_or("", |holder| holder.name.as_str());
        let fact = Fact::Denied {
            prepared: None,
            kind: ActionKind::Escalate,
            reason,
            rule: "escalate_to".to_owned(),
            text: format!("agent {agent} of case {}: {text}", live.row.case_token),
            outside: text,
            requester: None,
        };
        let entry = self.0.keys.entry(live.row.id, fact);
        self.0.keys.commit(vec![entry]).await?;
        Ok(())
    }

    /// Answers a line that is refused or not understood; too many of them cost the case.
    async fn turn_down_line(&self, live: &mut LiveCase, why: String) -> Result<(), CaseError> {
        let Some(agent) = &mut live.agent else { return Ok(()) };
        agent.bad_lines = agent.bad_lines.saturating_add(1);
        // It may be probing what is let through.
        if agent.bad_lines > MAX_BAD_LINES {
            return self.lose_case(live, LossCause::Crash, "too much of what it says is refused").await;
        }
        self.send_line(live, refusal_line(&why)).await
    }

    async fn agent_ended(&self, id: SessionId, first_key: KeyId, how: &str) -> Result<bool, CaseError> {
        let Some(mut live) = self.held_by(id, first_key).await? else { return Ok(false) };
        let is_over = live.agent.as_ref().is_some_and(|agent| self.0.keys.now() >= agent.ends_at);
        match is_over {
            // The launcher has ended it for no fault of its own.
            true => self.lose_case(&mut live, LossCause::Ended, "its process ran as long as it may").await?,
            false => self.lose_case(&mut live, LossCause::Crash, how).await?,
        }
        Ok(false)
    }

    /// Locks a case if the process that began with this key still holds it: an earlier holder has no say.
    async fn held_by(
        &self,
        id: SessionId,
        first_key: KeyId,
    ) -> Result<Option<super::router::HeldCase>, CaseError> {
        match self.locked(id).await {
            Ok(live) if live.agent.as_ref().is_some_and(|agent| agent.first_key == first_key) => {
                Ok(Some(live))
            }
            Ok(_) | Err(CaseError::Unknown(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Writes lines to a process until its end, or until it is no holder.
async fn write_lines(
    mut input: Box<dyn AsyncWrite + Send + Unpin>,
    mut waiting: mpsc::Receiver<String>,
    over: CancellationToken,
) {
    loop {
        let line = tokio::select! {
            line = waiting.recv() => line,
            () = over.cancelled() => return,
        };
        let Some(mut line) = line else { return };
        line.push('\n');
        let written = async {
            input.write_all(line.as_bytes()).await?;
            input.flush().await
        };
        let written = tokio::select! {
            written = written => written,
            () = over.cancelled() => return,
        };
        // Its reader sees the end as well, and the case goes on there.
        if written.is_err() {
            return;
        }
    }
}
