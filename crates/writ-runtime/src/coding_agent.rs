//! The coding agent that an owner has named, and its way to models.
//!
//! The server of that way lies above this crate: the program that starts the engine hands it in.

use std::collections::BTreeMap;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use writ_acp::client::TurnTimes;
use writ_sandbox::exec::Listener;
use writ_types::chat::{ModelReply, ModelRequest};
use writ_types::error::Report;

/// A coding agent, as its owner has named it.
#[derive(Clone, Debug)]
pub struct CodingAgent {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Its variables, beside those that name the models.
    pub variables: BTreeMap<String, String>,
    /// The way of a login that it may use, by its own id for it.
    pub login: Option<String>,
    /// The times of its turns.
    pub times: TurnTimes,
    /// The server that answers its questions to models.
    pub models: Arc<dyn SandboxModels>,
}

/// A question of a program to the model of the turn that it works in.
#[derive(Debug)]
pub struct TurnCall {
    /// The question.
    pub request: ModelRequest,
    /// Takes the answer, or the reason why there is none. It is dropped if the question cannot be recorded; a client that leaves drops
    /// the other end, and the question ends.
    pub answer: oneshot::Sender<Result<ModelReply, TurnCallError>>,
}

/// The reason why a question of a program has no answer.
#[derive(Clone, Debug)]
pub enum TurnCallError {
    /// It is longer than the model can read.
    TooLong(Report),
    /// A budget has no room for it.
    Budget(Report),
    /// A rule forbids it, or the turn may ask no more.
    Refused(Report),
    /// The models gave no whole answer.
    NoAnswer(Report),
}

/// A server of models for one program in a sandbox.
pub trait SandboxModels: fmt::Debug + Send + Sync {
    /// Takes requests on the listener of a sandbox until `stop`, and puts each to the turn as a call.
    fn serve_models(
        &self,
        calls: mpsc::Sender<TurnCall>,
        listener: Listener,
        stop: CancellationToken,
    ) -> Pin<Box<dyn Future<Output = ()> + Send>>;
}
