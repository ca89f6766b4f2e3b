//! The runtime's part of the proxy and of fetches: the scope, asks, and a place for records.

use std::fmt;
use std::sync::Arc;

use writ_inspect::egress::host::Target;
use writ_inspect::egress::{EgressScope, Rule};
use writ_types::entry::{ConnectionRecord, Verdict};
use writ_types::error::{Exit, Report, ToReport};
use writ_types::id::AskId;

use crate::connect::Later;
use crate::credential::{Credentials, MisuseError};
use crate::tunnel::TunnelFault;

/// Knows what may be reached, asks about what is unknown, and keeps the records. Implemented by the runtime.
pub trait Gatekeeper: fmt::Debug + Send + Sync {
    /// Returns the hosts that may be reached now. Called for each connection, so that an approval works at
    /// once.
    fn current_scope(&self) -> Later<'_, Arc<EgressScope>>;

    /// Returns the credentials behind its placeholders. Called for each request.
    fn credentials(&self) -> Credentials {
        Credentials::default()
    }

    /// Asks a person about a host, or finds the ask that is open for it already. It does not wait for the
    /// answer.
    ///
    /// # Errors
    ///
    /// If no ask can be made: too many are open, or the store cannot be written.
    fn ask_person<'a>(&'a self, target: &'a Target) -> Later<'a, Result<AskId, NotAsked>>;

    /// Stores records, all of them or none. The caller waits: meanwhile nothing new passes.
    ///
    /// # Errors
    ///
    /// If they cannot be stored. Then the proxy ends: nothing passes unrecorded.
    fn store_records<'a>(&'a self, batch: Vec<ConnectionRecord>) -> Later<'a, Result<(), NotRecorded>>;
}

/// The reason why no ask was made, in words that an agent may see.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no person could be asked: {0}")]
pub struct NotAsked(pub String);

/// The reason why records were not stored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("connections could not be recorded: {0}")]
pub struct NotRecorded(pub String);

/// The reason why a connection was not made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A person is asked. Try again after the approval.
    #[error("{host} is not known yet: ask {ask} is open; try again after its approval")]
    Asked {
        /// The host.
        host: String,
        /// The port.
        port: u16,
        /// The ask.
        ask: AskId,
    },
    /// The host is unknown and no ask could be made.
    #[error("{host} is not known, and no person could be asked: {why}")]
    NotAsked {
        /// The host.
        host: String,
        /// The reason.
        why: String,
    },
    /// Refused, without a question.
    #[error("{reason}")]
    Denied {
        /// The rule that refuses it.
        rule: Rule,
        /// The reason, for the agent.
        reason: String,
    },
    /// The name has no address.
    #[error("{host} has no address")]
    Unresolved {
        /// The host.
        host: String,
        /// The message of the resolver.
        why: String,
    },
    /// No address of the host accepted a connection.
    #[error("{host} cannot be reached")]
    Unreachable {
        /// The host.
        host: String,
        /// The error of the last address.
        why: String,
    },
    /// The proxy of the owner's network made no connection.
    #[error("{host} cannot be reached through the network's proxy: {why}")]
    Proxy {
        /// The host.
        host: String,
        /// The proxy's address and where it is set.
        proxy: String,
        /// The reason.
        why: TunnelFault,
    },
    /// Connecting took too long.
    #[error("{host} did not accept a connection in time")]
    ConnectTimeout {
        /// The host.
        host: String,
    },
    /// A placeholder stands where it is not bound to.
    #[error(transparent)]
    Misused(#[from] MisuseError),
    /// Too many connections in this minute.
    #[error("too many connections to {host} in this minute; try again in {retry_secs} seconds")]
    Rate {
        /// The host.
        host: String,
        /// When to try again, in seconds.
        retry_secs: u64,
    },
}

impl Refusal {
    /// A stable code.
    pub const fn refusal_code(&self) -> &'static str {
        match self {
            Self::Misused(misused) => misused.why.as_str(),
            Self::Asked { .. } => "egress.ask",
            Self::NotAsked { .. } => "egress.not_asked",
            Self::Denied { .. } => "egress.denied",
            Self::Unresolved { .. } => "egress.unresolved",
            Self::Unreachable { .. } => "egress.unreachable",
            Self::Proxy { .. } => "egress.proxy",
            Self::ConnectTimeout { .. } => "egress.connect_timeout",
            Self::Rate { .. } => "egress.rate",
        }
    }

    /// The rule or code that a record names.
    pub const fn rule(&self) -> &'static str {
        match self {
            Self::Denied { rule, .. } => rule.as_str(),
            Self::Asked { .. } => Rule::Unknown.as_str(),
            Self::NotAsked { .. }
            | Self::Misused(_)
            | Self::Unresolved { .. }
            | Self::Unreachable { .. }
            | Self::Proxy { .. }
            | Self::ConnectTimeout { .. }
            | Self::Rate { .. } => self.refusal_code(),
        }
    }

    /// Returns the outcome of the connection.
    pub const fn record_verdict(&self) -> Verdict {
        match self {
            Self::Asked { .. } => Verdict::Asked,
            Self::NotAsked { .. } | Self::Denied { .. } | Self::Misused(_) | Self::Rate { .. } => {
                Verdict::Denied
            }
            Self::Unresolved { .. }
            | Self::Unreachable { .. }
            | Self::Proxy { .. }
            | Self::ConnectTimeout { .. } => Verdict::Failed,
        }
    }
}

impl ToReport for Refusal {
    fn report(&self) -> Report {
        let (exit, hint) = match self {
            Self::Asked { .. } => (Exit::Waiting, "Approve or deny it with `writ approvals`."),
            Self::NotAsked { .. } => (Exit::Blocked, "Answer the open asks first."),
            Self::Misused(_) => (Exit::Denied, "[[egress.credentials]] says where a credential may be used."),
            Self::Denied { .. } => (Exit::Denied, "The owner's lists of hosts decide."),
            Self::Unresolved { .. } => (Exit::Blocked, "Check the host's name and the network."),
            Self::Unreachable { .. } | Self::ConnectTimeout { .. } => {
                (Exit::Blocked, "Check that the server runs and the network is up.")
            }
            Self::Proxy { why, .. } => (Exit::Blocked, why.hint()),
            Self::Rate { .. } => (Exit::Budget, "Wait a minute, or do less at once."),
        };
        let inside = match self {
            Self::NotAsked { why, .. } | Self::Unresolved { why, .. } | Self::Unreachable { why, .. } => {
                format!("{self}: {why}")
            }
            Self::Proxy { proxy, .. } => format!("{self}; the proxy is {proxy}"),
            Self::Asked { .. }
            | Self::Denied { .. }
            | Self::Misused(_)
            | Self::ConnectTimeout { .. }
            | Self::Rate { .. } => self.to_string(),
        };
        Report::new(exit, self.refusal_code(), self.to_string()).with_inside(inside).with_hint(hint)
    }
}
