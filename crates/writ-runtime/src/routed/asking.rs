//! One call of an agent: cleared, put before the door, made, tried again over other routes, and recorded.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use writ_inspect::origin::Origins;
use writ_inspect::prepared::Prepared;
use writ_inspect::withhold::Withheld;
use writ_models::error::{Failure, ModelError};
use writ_models::{Delta, Models, PlannedCall};
use writ_policy::budget::{BudgetConfig, Spent};
use writ_policy::door::{Denial, Verdicts};
use writ_policy::permit::{Permit, RequestOrigin};
use writ_store::batch::{Batch, Op};
use writ_store::reads::UsageReads as _;
use writ_types::action::ActionKind;
use writ_types::chat::{ModelReply, Usage};
use writ_types::entry::{DenyReason, Entry, Fact};
use writ_types::error::{Report, ToReport as _};
use writ_types::id::AttemptId;
use writ_types::taint::Label;
use writ_types::unit::{Timestamp, Tokens};

use super::course::{clear, find_course};
use super::tokens::{QUOTA, TokensUsed, counter_name, quota_of};
use super::{AgentPrompt, AnswerEvent, ProvenAgent, RoutedReply, RoutingError};
use crate::door::{Circumstances, Passage, RequestContext};
use crate::error::EngineError;
use crate::pending::Pending;
use crate::services::Services;

/// Deltas that wait to be handed on.
const DELTAS: usize = 64;

/// One request on its way.
pub(super) struct Asking<'a> {
    pub(super) services: &'a Services,
    pub(super) agent: ProvenAgent,
    pub(super) out: mpsc::Sender<AnswerEvent>,
    /// Where the tokens of each attempt are reported.
    pub(super) observer: Option<mpsc::Sender<TokensUsed>>,
    pub(super) cancel: CancellationToken,
}

/// The state of a request that its attempts share.
pub(super) struct Cleared {
    pub(super) label: Label,
    pub(super) withheld: Withheld,
    /// The marks in the request, which only its own answer may restore.
    pub(super) hidden: BTreeSet<usize>,
}

/// The result of a failed attempt.
struct FailedAttempt {
    error: Box<ModelError>,
    /// Part of the answer was handed on, so that it cannot be asked for again.
    has_begun: bool,
}

impl Asking<'_> {
    pub(super) async fn answer(mut self, prompt: AgentPrompt) -> Result<RoutedReply, RoutingError> {
        let services = self.services;
        let models = services.outside.models.as_ref();
        let models = models.ok_or_else(|| RoutingError::UnknownModel(prompt.model.clone()))?;
        let (mut course, routes) = find_course(models, &prompt.model)?;
        let mut request = prompt.request;
        services.journal.redactor.mask_request(&mut request);
        let cleared = clear(&routes, &mut request)?;
        let request = Arc::new(request);
        self.agent.requester.prompt = Some(Arc::clone(&request));
        let mut last: Option<Report> = None;
        while let Some(step) = models.next(&course, services.journal.clock.now()) {
            let now = services.journal.clock.now();
            let planned = match models.plan_over(&step.route, Arc::clone(&request), now) {
                Ok(planned) => planned,
                Err(error) => {
                    course.skip_unfit(&step.route, &error.to_string());
                    last = Some(services.journal.redactor.mask_report(error.report()));
                    continue;
                }
            };
            if !self.slept(step.wait).await {
                break;
            }
            match self.attempt(models, &planned, &cleared).await? {
                Ok(reply) => {
                    models.answered(&step.route);
                    return Ok(reply);
                }
                Err(FailedAttempt { error, has_begun }) => {
                    models.failed(&mut course, &step.route, &error, services.journal.clock.now());
                    let report = services.journal.redactor.mask_report(course.final_report(&error));
                    if matches!(error.failure, Failure::ContextLength { .. }) {
                        return Err(RoutingError::TooLong(Box::new(report)));
                    }
                    last = Some(report);
                    if has_begun || self.cancel.is_cancelled() {
                        break;
                    }
                }
            }
        }
        Err(RoutingError::NoAnswer(Box::new(last.unwrap_or_else(|| EngineError::NoModel.report()))))
    }

    async fn slept(&self, wait: Duration) -> bool {
        if wait.is_zero() {
            return !self.cancel.is_cancelled();
        }
        tokio::select! {
            () = self.cancel.cancelled() => false,
            () = tokio::time::sleep(wait) => true,
        }
    }

    /// One attempt, for one permit. The outer error is one of door or ledger, after which no other attempt makes sense.
    async fn attempt(
        &self,
        models: &Models,
        planned: &PlannedCall,
        cleared: &Cleared,
    ) -> Result<Result<RoutedReply, FailedAttempt>, RoutingError> {
        let services = self.services;
        let permit = self.pass(planned, &cleared.label).await?;
        let attempt = permit.attempt();
        services.life.metrics.model_call("routed", planned.model_call().input_tokens.get());
        let (deltas, parts) = mpsc::channel(DELTAS);
        // Marks would reach the agent before what they stand for is put back.
        let is_live = cleared.hidden.is_empty();
        let work = models.call(*permit, planned, deltas, self.cancel.clone(), services.journal.clock.now());
        let (answer, has_begun) = tokio::join!(work, self.hand_on(parts, is_live));
        match answer {
            Ok(mut reply) => {
                cleared.withheld.restore_content(&mut reply, &cleared.hidden);
                services.journal.redactor.mask_reply(&mut reply);
                self.record(models, planned, attempt, Ok(&reply)).await?;
                if !is_live && !reply.text.is_empty() {
                    let _ = self.out.send(AnswerEvent::Text(reply.text.clone())).await;
                }
                Ok(Ok(RoutedReply { attempt, reply }))
            }
            Err(error) => {
                // A provider's own words are for people alone, and the ledger can reach other models.
                let report = error.report();
                let text = if error.quoted_words().is_some() { report.inside } else { report.outside };
                let text = services.journal.redactor.mask_text(&text).into_owned();
                self.record(models, planned, attempt, Err((&error.usage, &text))).await?;
                Ok(Err(FailedAttempt { error: Box::new(error), has_begun }))
            }
        }
    }

    /// Puts the call before the door. Keys, expiry and revocation are read there, for every attempt.
    async fn pass(&self, planned: &PlannedCall, label: &Label) -> Result<Box<Permit>, RoutingError> {
        let (services, authority) = (self.services, &self.agent.authority);
        let session = authority.task().session;
        let prepared = Prepared {
            action: planned.action(),
            agent: authority.agent().to_owned(),
            session: Some(session),
            turn: None,
            turn_number: 0,
            call: None,
            tool: "model".to_owned(),
            sinks: Vec::new(),
            label: label.clone(),
            bindings: Default::default(),
            idempotent: true,
            intent: format!("ask {}", planned.requested_model()),
        };
        let used = services.journal.store.counter(&counter_name(authority)).await;
        let used = Tokens::new(used.map_err(EngineError::from)?);
        let circumstances = Circumstances {
            rules: Arc::clone(&services.rules.in_force),
            home_rules: Arc::clone(&services.rules.in_force),
            egress: services.reach.egress.clone(),
            origins: Cow::Owned(Origins::default()),
            limits: BudgetConfig {
                max_tokens_per_session: Tokens::MAX,
                max_tokens_per_day: Tokens::MAX,
                ..BudgetConfig::default()
            },
            work: None,
        };
        let origin = RequestOrigin { requester: self.agent.requester.clone(), ..RequestOrigin::default() };
        // The only quota is the base key's, and it is refused as any other limit of a key.
        if quota_of(authority).is_some_and(|most| used >= most) {
            let text = "the tokens that the key grants to one task are used up".to_owned();
            self.record_quota(&text).await?;
            return Err(RoutingError::Refused { reason: DenyReason::UsedUp, text });
        }
        let context =
            RequestContext { request: Some(&origin), ..RequestContext::of(authority, Spent::default()) };
        let door = &services.door.door;
        let first = Pending::new();
        match door.decide(first, prepared, context, &circumstances, &Verdicts::default()).await? {
            Passage::Permit(permit) => Ok(permit),
            Passage::Denied(denial) => Err(refused(&denial)),
            Passage::Ask(_) | Passage::Simulated(_) => {
                let text =
                    "the rules want to be asked before each model call; no one is asked here".to_owned();
                Err(RoutingError::Refused { reason: DenyReason::Rule, text })
            }
        }
    }

    async fn record_quota(&self, text: &str) -> Result<(), EngineError> {
        let fact = Fact::Denied {
            prepared: None,
            kind: ActionKind::ModelCall,
            reason: DenyReason::UsedUp,
            rule: QUOTA.to_owned(),
            text: text.to_owned(),
            outside: text.to_owned(),
            requester: Some(Box::new(self.agent.requester.clone())),
        };
        drop(self.services.journal.store.commit(Batch::relaxed(vec![self.entry(fact)])).await?);
        Ok(())
    }

    fn entry(&self, fact: Fact) -> Op {
        let journal = &self.services.journal;
        Op::Append(Box::new(Entry {
            at: journal.clock.now(),
            session: Some(self.agent.authority.task().session),
            turn: None,
            turn_number: 0,
            fact: journal.scrubbed(fact),
        }))
    }

    /// Hands text on as it comes, without secrets; returns true if any was.
    async fn hand_on(&self, mut parts: mpsc::Receiver<Delta>, is_live: bool) -> bool {
        let (mut masked, mut has_begun) = (self.services.journal.redactor.mask_stream(), false);
        while let Some(delta) = parts.recv().await {
            // Calls are handed on whole, at the end: their arguments are complete only then.
            let Delta::Text(text) = delta else { continue };
            if is_live {
                has_begun |= self.send_text(masked.push_text(&text)).await;
            }
        }
        let rest = masked.end_text();
        has_begun | (is_live && self.send_text(rest).await)
    }

    async fn send_text(&self, text: String) -> bool {
        if text.is_empty() {
            return false;
        }
        if self.out.send(AnswerEvent::Text(text)).await.is_err() {
            // No one waits for the rest, which would only cost.
            self.cancel.cancel();
        }
        true
    }

    /// Records the outcome of an attempt, with the whole answer.
    async fn record(
        &self,
        models: &Models,
        planned: &PlannedCall,
        attempt: AttemptId,
        answer: Result<&ModelReply, (&Usage, &str)>,
    ) -> Result<(), EngineError> {
        let now = self.services.journal.clock.now();
        let (usage, error) = match answer {
            Ok(reply) => (reply.usage, ""),
            Err((usage, error)) => (*usage, error),
        };
        let fact = Fact::ModelCalled {
            attempt,
            requested: planned.requested_model(),
            actual: answer.map(|reply| reply.model.clone()).unwrap_or_default(),
            stop: answer.ok().map(|reply| reply.stop.clone()),
            usage,
            cost: models.call_cost(planned, &usage, now),
            error: error.to_owned(),
            reply: answer.ok().cloned().map(Box::new),
        };
        let counted =
            Op::AddCounter { name: counter_name(&self.agent.authority), by: usage.total_tokens().get() };
        let batch = Batch::relaxed(vec![self.entry(fact), counted]);
        drop(self.services.journal.store.commit(batch).await?);
        self.report(now, usage.total_tokens()).await;
        Ok(())
    }

    /// Reports the tokens of an attempt to the observer, if there is one.
    async fn report(&self, at: Timestamp, tokens: Tokens) {
        let Some(observer) = &self.observer else { return };
        let authority = &self.agent.authority;
        let case = authority.task().case.as_ref().map(|case| case.case.clone());
        let used = TokensUsed { at, agent: authority.agent().to_owned(), case, tokens };
        // A slow observer slows calls down: what it does not count, no rule stops.
        tokio::select! {
            () = self.services.life.stop_now.cancelled() => {}
            _ = observer.send(used) => {}
        }
    }
}

fn refused(denial: &Denial) -> RoutingError {
    RoutingError::Refused { reason: denial.reason, text: denial.text.clone() }
}
