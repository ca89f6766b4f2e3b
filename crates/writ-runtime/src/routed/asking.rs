//! One call of an agent: cleared, put before the door, made, tried again over other routes, and recorded.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Serialize;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use writ_inspect::origin::Origins;
use writ_inspect::prepared::Prepared;
use writ_inspect::withhold::Withheld;
use writ_models::error::{Failure, ModelError};
use writ_models::provider::Route;
use writ_models::{Delta, Models, PlannedCall};
use writ_policy::budget::{BudgetConfig, Spent};
use writ_policy::door::{Denial, Verdicts};
use writ_policy::permit::{Permit, RequestOrigin};
use writ_secrets::contents::{SEALED_PROMPT, SEALED_REPLY};
use writ_store::batch::{Batch, Op};
use writ_store::error::{Conflict, StoreError};
use writ_store::reads::UsageReads as _;
use writ_types::action::ActionKind;
use writ_types::chat::{ChatMessage, ModelReply, ModelRequest, Part, StopReason, Usage, estimate_tokens};
use writ_types::entry::{DenyReason, Entry, Fact, Requester, SealedText};
use writ_types::error::{Report, ToReport as _};
use writ_types::id::AttemptId;
use writ_types::taint::Label;
use writ_types::unit::Tokens;
use zeroize::Zeroizing;

use super::course::{clear, find_course};
use super::tokens::{
    CallCount, CallReport, QUOTA, SetAside, answered_tokens, counter_name, quota_of, send_report,
};
use super::{AgentPrompt, AnswerEvent, ProvenAgent, RoutedReply, RoutingError};
use crate::door::{Circumstances, Passage, RequestContext};
use crate::error::EngineError;
use crate::model::{failed_usage, recorded_error, slept};
use crate::pending::Pending;
use crate::services::Services;

/// The characters of a refused prompt that are recorded.
const REFUSED_CHARS: usize = 2_000;
/// Deltas that wait to be handed on.
const DELTAS: usize = 64;
/// The most tries to set tokens aside. Each that fails means that another call of the task has got some.
const MAX_TRIES: usize = 8;

/// One request on its way.
pub(super) struct RoutedCall<'a> {
    pub(super) services: &'a Services,
    pub(super) agent: ProvenAgent,
    pub(super) out: mpsc::Sender<AnswerEvent>,
    /// Where the tokens of each attempt and refusals are reported.
    pub(super) observer: Option<mpsc::Sender<CallReport>>,
    pub(super) cancel: CancellationToken,
}

/// The state of a request that its attempts share.
pub(super) struct ClearedRoutes {
    pub(super) label: Label,
    pub(super) withheld: Withheld,
    /// The marks in the request, which only its own answer may restore.
    pub(super) hidden: BTreeSet<usize>,
}

/// The prompt of a call as it is sealed.
#[derive(Serialize)]
struct RecordedPrompt<'a> {
    /// The prompt, as it is sent.
    sent: &'a ModelRequest,
    /// The values of the marks in it, which the provider does not get.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    withheld: BTreeMap<usize, &'a str>,
    /// The estimated tokens of the whole prompt, where this is the beginning of its newest message alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    whole: Option<Tokens>,
}

/// The result of a failed attempt.
struct FailedAttempt {
    error: Box<ModelError>,
    /// Part of the answer was handed on, so that it cannot be asked for again.
    has_begun: bool,
}

/// The end of an attempt, for the ledger.
struct EndedAttempt<'a> {
    /// The answer, or the part of it that came.
    reply: Option<&'a ModelReply>,
    /// The reason that the model stopped; `None`: it failed.
    stop: Option<StopReason>,
    usage: Usage,
    error: &'a str,
    /// True if another call would fail alike.
    is_lasting: bool,
    /// The tokens that count against the quota.
    counted: Tokens,
}

impl RoutedCall<'_> {
    pub(super) async fn answer(self, prompt: AgentPrompt) -> Result<RoutedReply, RoutingError> {
        let answer = self.ask_models(prompt).await;
        if let Err(RoutingError::Refused { .. }) = &answer {
            self.report(CallCount::Refused).await;
        }
        answer
    }

    async fn report(&self, count: CallCount) {
        send_report(self.services, self.observer.as_ref(), &self.agent.authority, count).await;
    }

    async fn ask_models(&self, prompt: AgentPrompt) -> Result<RoutedReply, RoutingError> {
        let services = self.services;
        let models = services.outside.models.get();
        let models = models.ok_or_else(|| RoutingError::UnknownModel(prompt.model.clone()))?;
        let (mut course, routes) = find_course(models, &prompt.model)?;
        let mut request = prompt.request;
        services.journal.redactor.mask_request(&mut request);
        let cleared = clear(&routes, &mut request)?;
        let request = Arc::new(request);
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
            if self.cancel.is_cancelled() || !slept(step.wait, &self.cancel).await {
                break;
            }
            let (planned, set_aside) = self.set_aside(models, &step.route, planned).await?;
            match self.attempt(models, (&planned, &set_aside), &cleared).await? {
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

    /// Sets the tokens aside that a call may use, where its key has a quota. Where less is left than its answer may have, a
    /// shorter answer is asked for.
    async fn set_aside(
        &self,
        models: &Models,
        route: &Route,
        planned: PlannedCall,
    ) -> Result<(PlannedCall, SetAside), RoutingError> {
        let (journal, authority) = (&self.services.journal, &self.agent.authority);
        let Some(most) = quota_of(authority) else { return Ok((planned, SetAside::nothing(authority))) };
        for _ in 0..MAX_TRIES {
            let used = journal.store.counter(&counter_name(authority)).await.map_err(EngineError::from)?;
            let left = most.saturating_sub(Tokens::new(used));
            let Some((set_aside, output)) = SetAside::measure(authority, &planned, left) else { break };
            let planned = match output < planned.model_call().max_output_tokens {
                false => planned.clone(),
                true => {
                    let shorter = ModelRequest { max_output_tokens: output, ..planned.request().clone() };
                    let planned = models.plan_over(route, Arc::new(shorter), journal.clock.now());
                    planned.map_err(|error| RoutingError::NoAnswer(Box::new(error.report())))?
                }
            };
            match journal.store.commit(Batch::relaxed(vec![set_aside.take(most)])).await {
                Ok(_) => return Ok((planned, set_aside)),
                // Another call of the task was faster.
                Err(StoreError::Conflict(Conflict::UsedUp(_))) => {}
                Err(error) => return Err(EngineError::from(error).into()),
            }
        }
        let text = "the tokens that the key grants to one task are used up, or set aside for calls that run";
        let requester =
            Requester { sealed_prompt: Some(self.seal_beginning(&planned)?), ..self.agent.requester.clone() };
        self.record_quota(requester, text).await?;
        Err(RoutingError::Refused { reason: DenyReason::UsedUp, text: text.to_owned() })
    }

    /// One attempt, for one permit. The outer error is one of door or ledger, after which no other attempt makes sense.
    async fn attempt(
        &self,
        models: &Models,
        (planned, set_aside): (&PlannedCall, &SetAside),
        cleared: &ClearedRoutes,
    ) -> Result<Result<RoutedReply, FailedAttempt>, RoutingError> {
        let services = self.services;
        let permit = match self.pass(planned, cleared).await {
            Ok(permit) => permit,
            Err(error) => {
                let returned = Batch::relaxed(vec![set_aside.settle(Tokens::ZERO)]);
                drop(services.journal.store.commit(returned).await.map_err(EngineError::from)?);
                return Err(error);
            }
        };
        let attempt = permit.attempt();
        services.life.metrics.model_call("routed", planned.model_call().input_tokens.get());
        let (deltas, parts) = mpsc::channel(DELTAS);
        // Marks would reach the agent before what they stand for is put back.
        let is_live = cleared.hidden.is_empty();
        let work = models.call(*permit, planned, deltas, self.cancel.clone(), services.journal.clock.now());
        let (answer, (has_begun, read)) = tokio::join!(work, self.hand_on(parts, is_live));
        let placed = (planned, set_aside, attempt);
        match answer {
            Ok(mut reply) => {
                services.journal.redactor.mask_reply(&mut reply);
                let end = EndedAttempt {
                    stop: Some(reply.stop.clone()),
                    usage: reply.usage,
                    error: "",
                    is_lasting: false,
                    counted: answered_tokens(planned, &reply),
                    reply: Some(&reply),
                };
                self.record(models, placed, end).await?;
                // After it is recorded as it came: the prompt's entry has what the marks stand for.
                cleared.withheld.restore_content(&mut reply, &cleared.hidden);
                services.journal.redactor.mask_reply(&mut reply);
                if !is_live && !reply.text.is_empty() {
                    let _ = self.out.send(AnswerEvent::Text(reply.text.clone())).await;
                }
                Ok(Ok(RoutedReply { attempt: Some(attempt), reply }))
            }
            Err(error) => {
                let text = recorded_error(services, &error);
                let usage = failed_usage(planned, &error, estimate_tokens(&read));
                let part = self.broken_off(read, usage);
                let counted = usage.total_tokens();
                let is_lasting = error.failure.is_lasting();
                let end = EndedAttempt {
                    stop: None,
                    usage,
                    error: &text,
                    is_lasting,
                    counted,
                    reply: part.as_ref(),
                };
                self.record(models, placed, end).await?;
                Ok(Err(FailedAttempt { error: Box::new(error), has_begun }))
            }
        }
    }

    /// Puts the call before the door. Keys, expiry and revocation are read there, for every attempt.
    async fn pass(
        &self,
        planned: &PlannedCall,
        cleared: &ClearedRoutes,
    ) -> Result<Box<Permit>, RoutingError> {
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
            label: cleared.label.clone(),
            bindings: Default::default(),
            idempotent: true,
            intent: format!("ask {}", planned.requested_model()),
        };
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
        let (requester, denied_prompt) =
            (self.requester(planned, cleared)?, Some(self.seal_beginning(planned)?));
        let origin = RequestOrigin { requester, denied_prompt, ..RequestOrigin::default() };
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

    /// Returns the agent with the prompt of a call, sealed.
    fn requester(&self, planned: &PlannedCall, cleared: &ClearedRoutes) -> Result<Requester, RoutingError> {
        let withheld = cleared.withheld.withheld_values(&cleared.hidden);
        let prompt = RecordedPrompt { sent: planned.request(), withheld, whole: None };
        let sealed_prompt = Some(self.sealed(SEALED_PROMPT, &prompt)?);
        Ok(Requester { sealed_prompt, ..self.agent.requester.clone() })
    }

    /// Seals the beginning of a prompt, for a refusal: what was not asked is not stored in megabytes.
    fn seal_beginning(&self, planned: &PlannedCall) -> Result<SealedText, RoutingError> {
        let sent = beginning_of(planned.request());
        let whole = Some(planned.model_call().input_tokens);
        let prompt = RecordedPrompt { sent: &sent, withheld: BTreeMap::new(), whole };
        self.sealed(SEALED_PROMPT, &prompt)
    }

    fn sealed(&self, place: &str, content: &impl Serialize) -> Result<SealedText, RoutingError> {
        let failed = |why: &dyn std::fmt::Display| {
            tracing::error!(%why, place, "a content of a model call cannot be sealed");
            RoutingError::Unrecorded
        };
        let plain = Zeroizing::new(serde_json::to_vec(content).map_err(|error| failed(&error))?);
        self.services.outside.seal.seal_content(place, &plain).map_err(|error| failed(&error))
    }

    async fn record_quota(&self, requester: Requester, text: &str) -> Result<(), EngineError> {
        let fact = Fact::Denied {
            prepared: None,
            kind: ActionKind::ModelCall,
            reason: DenyReason::UsedUp,
            rule: QUOTA.to_owned(),
            text: text.to_owned(),
            outside: text.to_owned(),
            requester: Some(Box::new(requester)),
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

    /// Returns the part of an answer that came before it broke off, as it is recorded: the agent may have read it.
    fn broken_off(&self, text: String, usage: Usage) -> Option<ModelReply> {
        let stop = StopReason::Other("broken off".to_owned());
        let (calls, reasoning) = (Vec::new(), Vec::new());
        let mut part = ModelReply { text, calls, stop, usage, model: String::new(), reasoning };
        self.services.journal.redactor.mask_reply(&mut part);
        (!part.text.is_empty()).then_some(part)
    }

    /// Hands text on as it comes, without secrets; returns true if any was, and all that came.
    async fn hand_on(&self, mut parts: mpsc::Receiver<Delta>, is_live: bool) -> (bool, String) {
        let (mut masked, mut has_begun) = (self.services.journal.redactor.mask_stream(), false);
        // Bounded as the answers of models are.
        let mut read = String::new();
        while let Some(delta) = parts.recv().await {
            // Calls are handed on whole, at the end: their arguments are complete only then.
            let Delta::Text(text) = delta else { continue };
            read.push_str(&text);
            if is_live {
                has_begun |= self.send_text(masked.push_text(&text)).await;
            }
        }
        let rest = masked.end_text();
        has_begun |= is_live && self.send_text(rest).await;
        (has_begun, read)
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

    /// Records the end of an attempt, with the whole answer or what came of it.
    async fn record(
        &self,
        models: &Models,
        (planned, set_aside, attempt): (&PlannedCall, &SetAside, AttemptId),
        EndedAttempt { reply, stop, usage, error, is_lasting, counted }: EndedAttempt<'_>,
    ) -> Result<(), RoutingError> {
        let now = self.services.journal.clock.now();
        let fact = Fact::ModelCalled {
            attempt,
            requested: planned.requested_model(),
            actual: reply.map(|reply| reply.model.clone()).unwrap_or_default(),
            stop,
            usage,
            cost: models.call_cost(planned, &usage, now),
            error: error.to_owned(),
            is_lasting,
            role: String::new(),
            sealed_reply: reply.map(|reply| self.sealed(SEALED_REPLY, reply)).transpose()?,
        };
        let batch = Batch::relaxed(vec![self.entry(fact), set_aside.settle(counted)]);
        drop(self.services.journal.store.commit(batch).await.map_err(EngineError::from)?);
        self.report(CallCount::Tokens(counted)).await;
        Ok(())
    }
}

fn refused(denial: &Denial) -> RoutingError {
    RoutingError::Refused { reason: denial.reason, text: denial.text.clone() }
}

/// Returns the beginning of the newest message of a prompt.
fn beginning_of(request: &ModelRequest) -> ModelRequest {
    let newest = request.messages.last().map(|message| {
        let texts = message.parts.iter().filter_map(|part| match part {
            Part::Text { text } => Some(text.as_str()),
            Part::Result(result) => Some(result.text.as_str()),
            Part::Call(_) | Part::Reasoning(_) | Part::File(_) => None,
        });
        let text = texts.flat_map(str::chars).take(REFUSED_CHARS).collect();
        let (role, label) = (message.role, message.label.clone());
        Arc::new(ChatMessage { role, label, parts: vec![Part::Text { text }] })
    });
    ModelRequest {
        system: String::new(),
        messages: newest.into_iter().collect(),
        tools: Vec::new().into(),
        max_output_tokens: request.max_output_tokens,
        form: None,
        effort: None,
    }
}
