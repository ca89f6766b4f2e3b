//! Errors: a request that did not go out, or an answer that did not come in completely.

use std::time::Duration;

use writ_policy::permit::PermitExpired;
use writ_types::action::ActionKind;
use writ_types::error::{Exit, Report, ToReport};

use crate::host::{HostPort, HostPortError};
pub use crate::tunnel::TunnelFault;

/// An error on an open line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The host's name has no address.
    #[error("{host} has no address: {cause}")]
    Unresolved {
        /// The permitted host.
        host: HostPort,
        /// The message of the resolver.
        cause: String,
    },
    /// No address of the host accepted a connection.
    #[error("{host} cannot be reached: {cause}")]
    Unreachable {
        /// The permitted host.
        host: HostPort,
        /// The error of the last address.
        cause: String,
    },
    /// The proxy of the owner's network made no connection.
    #[error("the proxy {proxy} made no connection to {host}: {why}")]
    Proxy {
        /// The permitted host.
        host: HostPort,
        /// The proxy's address and where it is set.
        proxy: String,
        /// The reason.
        why: TunnelFault,
    },
    /// The server's certificate is not trusted.
    #[error("the certificate of {host} is not trusted: {cause}")]
    Certificate {
        /// The permitted host.
        host: HostPort,
        /// The reason.
        cause: String,
    },
    /// Connecting took too long.
    #[error("{host} did not accept a connection within {limit:?}")]
    ConnectTimeout {
        /// The permitted host.
        host: HostPort,
        /// The limit.
        limit: Duration,
    },
    /// More bytes came in than one permit may bring.
    #[error("{host} sent more than {limit} bytes")]
    TooMuchReceived {
        /// The permitted host.
        host: HostPort,
        /// The limit, in bytes.
        limit: u64,
    },
    /// More bytes would go out than one permit may take.
    #[error("more than {limit} bytes for {host}")]
    TooMuchSent {
        /// The permitted host.
        host: HostPort,
        /// The limit, in bytes.
        limit: u64,
    },
}

/// The reason why an outbound action was not performed.
#[derive(Debug, thiserror::Error)]
pub enum EgressError {
    /// The permit came too late.
    #[error(transparent)]
    Expired(#[from] PermitExpired),
    /// The permit is for something that this crate does not perform.
    #[error("a permit for '{}' opens no way out", .0.as_str())]
    NotOutbound(ActionKind),
    /// The permit names no usable host.
    #[error(transparent)]
    InvalidHost(#[from] HostPortError),
    /// The line failed, and the work with it.
    #[error(transparent)]
    Line(#[from] Fault),
    /// The private socket could not be made.
    #[error("the private socket in the runtime folder could not be made: {0}")]
    Socket(#[source] std::io::Error),
    /// The HTTP client could not be made.
    #[error("the HTTP client could not be made: {0}")]
    Client(#[source] reqwest::Error),
    /// The system's certificates or the crypto provider could not be loaded.
    #[error("TLS could not be set up: {0}")]
    Tls(#[source] rustls::Error),
}

impl ToReport for Fault {
    fn report(&self) -> Report {
        let (code, hint) = match self {
            Self::Unresolved { .. } => ("egress.unresolved", "Check the host's name and the network."),
            Self::Unreachable { .. } => {
                ("egress.unreachable", "Check that the server runs and the network is up.")
            }
            Self::Proxy { why, .. } => ("egress.proxy", why.hint()),
            Self::Certificate { .. } => (
                "egress.certificate",
                "If the network or the server has an authority of its own, name its certificate in network.ca_file.",
            ),
            Self::ConnectTimeout { .. } => ("egress.connect_timeout", "Check the network, then try again."),
            Self::TooMuchReceived { .. } => ("egress.too_much_received", "Nothing of the answer was used."),
            Self::TooMuchSent { .. } => ("egress.too_much_sent", "Send less at once."),
        };
        Report::new(Exit::Model, code, self.to_string()).with_hint(hint)
    }
}

impl ToReport for EgressError {
    fn report(&self) -> Report {
        let inside = self.to_string();
        match self {
            Self::Expired(_) => Report::new(Exit::Denied, "egress.permit_expired", inside)
                .with_hint("Ask again: a permit is short-lived."),
            Self::NotOutbound(_) => Report::new(Exit::Bug, "egress.not_outbound", inside),
            Self::InvalidHost(_) => Report::new(Exit::Config, "egress.invalid_host", inside)
                .with_hint("A host is written as HOST:PORT."),
            Self::Line(fault) => fault.report(),
            Self::Socket(_) => Report::new(Exit::Blocked, "egress.socket", "the way out could not be set up")
                .with_inside(inside)
                .with_hint("Check that the runtime folder is writable and its path is short."),
            Self::Client(_) => {
                Report::new(Exit::Bug, "egress.client", "the way out could not be set up").with_inside(inside)
            }
            Self::Tls(_) => Report::new(Exit::Blocked, "egress.tls", "TLS could not be set up")
                .with_inside(inside)
                .with_hint("Install the system's CA certificates."),
        }
    }
}
