//! Model calls of programs outside that show keys of their own. Each attempt passes the door, and is one intent with the whole
//! prompt and one outcome with the whole answer.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::{CancellationToken, DropGuard};
use writ_models::provider::Route;
use writ_policy::keys::{Authority, KeyToken};
use writ_store::batch::Batch;
use writ_types::action::ActionKind;
use writ_types::chat::{ModelReply, ModelRequest};
use writ_types::digest::Digest;
use writ_types::entry::{DenyReason, Fact, Requester};
use writ_types::error::Report;
use writ_types::id::AttemptId;

use crate::coding_agent::{TurnCall, TurnCallError};
use crate::error::EngineError;
use crate::services::Services;

use asking::RoutedCall;
use tokens::send_report;
pub use tokens::{CallCount, CallReport};

mod asking;

mod course;

mod tokens;

/// Parts of an answer that wait for a slow program.
const EVENTS: usize = 64;
/// The name under which a program asks for the configured main model.
pub const MAIN_MODEL: &str = "default";
/// The operation of every request, in the ledger.
const OPERATION: &str = "model_call";

/// Answers programs outside with the configured models.
#[derive(Clone, Debug)]
pub struct ModelRouter {
    services: Arc<Services>,
    observer: Option<mpsc::Sender<CallReport>>,
}

/// An agent with genuine keys. Whether they are in force is decided anew for each attempt.
#[derive(Debug)]
pub struct ProvenAgent {
    authority: Authority,
    requester: Requester,
}

/// A request of an agent.
#[derive(Debug)]
pub struct AgentPrompt {
    /// The model, as `provider/name` or its name alone; [`MAIN_MODEL`]: the main one, with its fallbacks.
    pub model: String,
    /// The prompt.
    pub request: ModelRequest,
}

/// A part of an answer.
#[derive(Debug)]
pub enum AnswerEvent {
    /// More text. The whole answer repeats it.
    Text(String),
    /// The whole answer, after it was recorded.
    Whole(Box<RoutedReply>),
    /// There is no answer, or its rest is missing.
    Failed(RoutingError),
}

/// A whole answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoutedReply {
    /// The attempt that was answered; `None` within a turn, which records its own.
    pub attempt: Option<AttemptId>,
    /// The answer, with what was withheld from the model put back.
    pub reply: ModelReply,
}

/// The reason that an agent gets no answer.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RoutingError {
    /// The keys prove no agent of this installation.
    #[error("{0}")]
    Unproven(String),
    /// The door refused.
    #[error("{text}")]
    Refused {
        /// The reason, for machines.
        reason: DenyReason,
        /// The reason, in words.
        text: String,
    },
    /// No configured model has this name.
    #[error("there is no model '{0}' here; GET /v1/models lists those that there are")]
    UnknownModel(String),
    /// The ledger cannot be read or written, so nothing is asked.
    #[error("the call cannot be recorded, so it was not made or its answer is withheld")]
    Unrecorded,
    /// The prompt is longer than the model can read.
    #[error("{}", .0.outside)]
    TooLong(Box<Report>),
    /// The models gave no whole answer.
    #[error("{}", .0.outside)]
    NoAnswer(Box<Report>),
}

/// An answer on its way. Dropping it ends the call, and the ledger says so.
#[derive(Debug)]
pub struct AnswerStream {
    events: mpsc::Receiver<AnswerEvent>,
    _stop: DropGuard,
}

impl AnswerStream {
    /// Puts a prompt to the turn that a program works in. The turn has one model, under every name. The answer comes whole, after it was recorded.
    pub fn ask_turn(calls: &mpsc::Sender<TurnCall>, prompt: AgentPrompt) -> Self {
        let (out, events) = mpsc::channel(EVENTS);
        let (calls, cancel) = (calls.clone(), CancellationToken::new());
        let stop = cancel.clone().drop_guard();
        tokio::spawn(async move {
            // The turn sees a client leave by the end of what waits for the answer.
            tokio::select! {
                () = cancel.cancelled() => {}
                () = pass_call(&calls, prompt.request, &out) => {}
            }
        });
        Self { events, _stop: stop }
    }

    /// Returns the next part; `None`: the last one was the end.
    pub async fn next_event(&mut self) -> Option<AnswerEvent> {
        self.events.recv().await
    }
}

impl From<TurnCallError> for RoutingError {
    fn from(error: TurnCallError) -> Self {
        let refused = |reason, report: Report| Self::Refused { reason, text: report.outside };
        match error {
            TurnCallError::TooLong(report) => Self::TooLong(Box::new(report)),
            TurnCallError::Budget(report) => refused(DenyReason::UsedUp, report),
            TurnCallError::Refused(report) => refused(DenyReason::Rule, report),
            TurnCallError::NoAnswer(report) => Self::NoAnswer(Box::new(report)),
        }
    }
}

impl From<EngineError> for RoutingError {
    fn from(error: EngineError) -> Self {
        tracing::error!(%error, "a model call of an agent outside cannot be recorded");
        Self::Unrecorded
    }
}

impl ModelRouter {
    pub(crate) const fn new(services: Arc<Services>) -> Self {
        Self { services, observer: None }
    }

    /// Reports the tokens of every attempt and every refusal into a channel. While it is full, answers wait; a closed one is ignored.
    #[must_use]
    pub fn with_observer(self, observer: mpsc::Sender<CallReport>) -> Self {
        Self { observer: Some(observer), ..self }
    }

    /// Returns the models that can be asked for, as `provider/name`, to an agent with keys in force.
    ///
    /// # Errors
    ///
    /// If a key has ended or was revoked, which is recorded then; or the ledger cannot be read or written.
    pub async fn list_models(&self, agent: ProvenAgent) -> Result<BTreeSet<String>, RoutingError> {
        let ProvenAgent { authority, requester } = agent;
        let now = self.services.journal.valid_now();
        let ended = now >= authority.task().expires_at || now >= authority.base().expires_at;
        let (reason, text) = match ended {
            true => (DenyReason::Expired, "the keys have ended"),
            false if !self.services.keys.revoked(&authority).await?.is_empty() => {
                (DenyReason::Revoked, "a key was revoked")
            }
            false => return Ok(self.model_names()),
        };
        self.record_unproven(requester, reason, text).await?;
        send_report(&self.services, self.observer.as_ref(), &authority, CallCount::Refused).await;
        Err(RoutingError::Refused { reason, text: text.to_owned() })
    }

    fn model_names(&self) -> BTreeSet<String> {
        let Some(models) = self.services.outside.models.get() else { return BTreeSet::new() };
        models.routes().all().map(|(_, route)| route_name(route)).collect()
    }

    /// Verifies the two keys of a request. A refusal is in the ledger.
    ///
    /// # Errors
    ///
    /// If they prove no agent, or the ledger cannot be written.
    pub async fn prove_agent(
        &self,
        base: Option<&str>,
        task: Option<&str>,
    ) -> Result<ProvenAgent, RoutingError> {
        // The hash of what was shown, also where it is no key: one forgery shown twice differs from two forgeries.
        let hash = |key: Option<&str>| key.map(|key| Digest::of_bytes(key.as_bytes()));
        let mut requester = Requester {
            base: hash(base),
            task: hash(task),
            operation: OPERATION.to_owned(),
            ..Requester::default()
        };
        let read = |name: &str, key: Option<&str>| {
            let key = key.ok_or_else(|| format!("the {name} key is missing"))?;
            KeyToken::try_from(key.to_owned()).map_err(|error| format!("the {name} key: {error}"))
        };
        let verifier = &self.services.keys.verifier;
        let proven = read("base", base).and_then(|base| {
            let pair = verifier.verify_pair(&base, &read("task", task)?);
            pair.map_err(|error| error.to_string())
        });
        match proven {
            Ok(authority) => {
                authority.agent().clone_into(&mut requester.agent);
                let case = authority.task().case.as_ref();
                requester.data =
                    case.map(|case| vec![case.customer.clone(), case.case.clone()]).unwrap_or_default();
                Ok(ProvenAgent { authority, requester })
            }
            Err(text) => {
                self.record_unproven(requester, DenyReason::Binding, &text).await?;
                Err(RoutingError::Unproven(text))
            }
        }
    }

    async fn record_unproven(
        &self,
        requester: Requester,
        reason: DenyReason,
        text: &str,
    ) -> Result<(), EngineError> {
        let fact = Fact::Denied {
            prepared: None,
            kind: ActionKind::ModelCall,
            reason,
            rule: "keys".to_owned(),
            text: text.to_owned(),
            outside: text.to_owned(),
            requester: Some(Box::new(requester)),
        };
        let journal = &self.services.journal;
        drop(journal.store.commit(Batch::relaxed(vec![journal.own_entry(fact)])).await?);
        Ok(())
    }

    /// Asks a model. Nothing is asked before the whole prompt is in the ledger, and the end comes after the answer is.
    pub fn ask_model(&self, agent: ProvenAgent, prompt: AgentPrompt) -> AnswerStream {
        let (out, events) = mpsc::channel(EVENTS);
        let cancel = self.services.life.stop_now.child_token();
        let services = Arc::clone(&self.services);
        let (stop, observer) = (cancel.clone().drop_guard(), self.observer.clone());
        // A task of its own: an answer that no one waits for is recorded, too.
        self.services.life.turns.spawn(async move {
            let asking = RoutedCall { services: &services, agent, out: out.clone(), observer, cancel };
            let last = match asking.answer(prompt).await {
                Ok(reply) => AnswerEvent::Whole(Box::new(reply)),
                Err(error) => AnswerEvent::Failed(error),
            };
            // The receiver may be closed by now.
            let _ = out.send(last).await;
        });
        AnswerStream { events, _stop: stop }
    }
}

/// Passes a call to a turn, and its answer to a client.
async fn pass_call(calls: &mpsc::Sender<TurnCall>, request: ModelRequest, out: &mpsc::Sender<AnswerEvent>) {
    let (answer, answered) = oneshot::channel();
    let last = match calls.send(TurnCall { request, answer }).await {
        Ok(()) => match answered.await {
            Ok(Ok(reply)) => {
                if !reply.text.is_empty() {
                    // The receiver may be closed by now, here and below.
                    let _ = out.send(AnswerEvent::Text(reply.text.clone())).await;
                }
                AnswerEvent::Whole(Box::new(RoutedReply { attempt: None, reply }))
            }
            Ok(Err(error)) => AnswerEvent::Failed(error.into()),
            Err(_dropped) => AnswerEvent::Failed(RoutingError::Unrecorded),
        },
        // The turn has ended.
        Err(_closed) => AnswerEvent::Failed(RoutingError::Unrecorded),
    };
    let _ = out.send(last).await;
}

fn route_name(route: &Route) -> String {
    format!("{}/{}", route.provider.name, route.model)
}
