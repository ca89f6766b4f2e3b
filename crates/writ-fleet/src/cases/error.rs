//! The reasons why a case does not go on.

use writ_runtime::error::EngineError;
use writ_store::error::StoreError;
use writ_types::error::{Exit, Report, ToReport};
use writ_types::id::SessionId;

use super::machine::CaseFault;
use super::ports::PortFault;

/// The reason why something was not done with a case.
#[derive(Debug, thiserror::Error)]
pub enum CaseError {
    /// There is no such open case.
    #[error("there is no open case {0}")]
    Unknown(String),
    /// A case of this name is open. A front end that has missed the answer to its request finds the id here.
    #[error("a case of this name is open already: {0}")]
    IsOpen(SessionId),
    /// The state or the holder does not allow it.
    #[error(transparent)]
    Fault(#[from] CaseFault),
    /// It is to be handed to agents, and none can take it.
    #[error("no agent is free for {0}")]
    NoAgent(String),
    /// A text is too long or empty.
    #[error("the {what} must have 1 to {limit} bytes")]
    Text {
        /// The text.
        what: &'static str,
        /// The bound, in bytes.
        limit: usize,
    },
    /// There is too much of something.
    #[error("there are more than {limit} {what}")]
    TooLarge {
        /// The thing.
        what: &'static str,
        /// The bound.
        limit: usize,
    },
    /// The security proxy gave no tokens.
    #[error("the security proxy does not answer: {0}")]
    Proxy(PortFault),
    /// The state of the case in the store cannot be read.
    #[error("the state of case {0} is damaged")]
    Damaged(String),
    /// The keys or the ledger cannot be used.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The store cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl ToReport for CaseError {
    fn report(&self) -> Report {
        let text = self.to_string();
        match self {
            Self::Unknown(_) => Report::new(Exit::Usage, "case.unknown", text)
                .with_hint("`writ fleet status` lists the open cases"),
            Self::IsOpen(_) => Report::new(Exit::Blocked, "case.is_open", text)
                .with_hint("go on with the case of this id, or close it first"),
            Self::Fault(CaseFault::Target { .. }) => Report::new(Exit::Denied, "case.target", text)
                .with_hint("the base key lists the targets under escalate_to"),
            Self::Fault(CaseFault::State { .. } | CaseFault::Reason | CaseFault::TooMany) => {
                Report::new(Exit::Blocked, "case.state", text)
                    .with_hint("`writ fleet status` shows the state of each case")
            }
            Self::NoAgent(_) => Report::new(Exit::Blocked, "case.no_agent", text)
                .with_hint("`writ fleet status` lists the agents; `writ agent deploy` adds one"),
            Self::Text { .. } => {
                Report::new(Exit::Usage, "case.text", text).with_hint("shorten it, or send it in parts")
            }
            Self::TooLarge { .. } => {
                Report::new(Exit::Budget, "case.too_large", text).with_hint("close cases that are done")
            }
            Self::Proxy(_) => {
                Report::new(Exit::Blocked, "case.proxy", "the security proxy does not answer".to_owned())
                    .with_inside(text)
                    .with_hint("is `writ proxy` running?")
            }
            Self::Damaged(_) => Report::new(Exit::Verification, "case.damaged", text)
                .with_hint("close the case, and open it again"),
            Self::Engine(error) => error.report(),
            Self::Store(error) => error.report(),
        }
    }
}
