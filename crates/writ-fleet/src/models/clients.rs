//! The clients of a server of models: agents that show keys, and the one program of a turn.

use std::collections::BTreeSet;

use hyper::header::{HeaderMap, HeaderName};
use tokio::sync::mpsc;
use writ_runtime::coding_agent::TurnCall;
use writ_runtime::routed::{AgentPrompt, AnswerStream, ModelRouter, ProvenAgent};

use super::fields::Leniency;
use super::refusal::Refusal;
use super::server::{BASE_KEY, TASK_KEY};

/// The models that a server answers for.
#[derive(Clone, Debug)]
pub(super) enum ServedModels {
    /// The models of an engine. Each request shows the keys of an agent.
    Keyed(ModelRouter),
    /// The model of one turn. Only the program of that turn reaches the server, through its sandbox, and it has no keys to show.
    OfTurn(mpsc::Sender<TurnCall>),
}

/// A client that may ask.
#[derive(Debug)]
pub(super) enum AdmittedClient<'a> {
    Agent(&'a ModelRouter, Box<ProvenAgent>),
    Program(&'a mpsc::Sender<TurnCall>),
}

impl ServedModels {
    /// Completes the path of a request. The client libraries of programs in a turn disagree about which of the two halves of an address
    /// has the version.
    pub(super) fn full_path(&self, path: String) -> String {
        let is_short = ["/chat/completions", "/messages", "/models"].contains(&path.as_str());
        match self {
            Self::OfTurn(_) if is_short => format!("/v1{path}"),
            Self::OfTurn(_) | Self::Keyed(_) => path,
        }
    }

    /// Verifies the keys of a request, where some are needed. It comes before the body is read: who proves nothing sends nothing.
    pub(super) async fn admit_client(&self, headers: &HeaderMap) -> Result<AdmittedClient<'_>, Refusal> {
        match self {
            Self::Keyed(router) => {
                let (base, task) = (only_value(headers, &BASE_KEY), only_value(headers, &TASK_KEY));
                let agent = router.prove_agent(base, task).await?;
                Ok(AdmittedClient::Agent(router, Box::new(agent)))
            }
            Self::OfTurn(calls) => Ok(AdmittedClient::Program(calls)),
        }
    }
}

impl AdmittedClient<'_> {
    /// Returns how the requests of the client are read. A program of a fleet is its owner's to mend; one in a turn was bought, and would
    /// have the part that is refused in each of its later requests.
    pub(super) const fn leniency(&self) -> Leniency {
        match self {
            Self::Agent(..) => Leniency::Strict,
            Self::Program(_) => Leniency::Lenient,
        }
    }

    pub(super) fn ask_model(self, prompt: AgentPrompt) -> AnswerStream {
        match self {
            Self::Agent(router, agent) => router.ask_model(*agent, prompt),
            Self::Program(calls) => AnswerStream::ask_turn(calls, prompt),
        }
    }

    /// Lists the models beside the main one.
    pub(super) async fn list_models(self) -> Result<BTreeSet<String>, Refusal> {
        match self {
            Self::Agent(router, agent) => Ok(router.list_models(*agent).await?),
            // A turn has one model, which answers under every name.
            Self::Program(_) => Ok(BTreeSet::new()),
        }
    }
}

/// Returns a header that stands there once; two could be read as either.
fn only_value<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let only = values.next()?;
    if values.next().is_some() { None } else { only.to_str().ok() }
}
