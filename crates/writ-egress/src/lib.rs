//! Outgoing connections: every connection that leaves this machine is opened here, for one permit, to one host.
//!
//! [`Egress::perform_permit`] consumes a permit and lends a `reqwest::Client` for the host that the permit names.
//! The client cannot open network connections itself. It is bound to a private Unix socket, the *line*, and
//! this crate carries the bytes between that socket and the permitted host. Whatever URL the client is given
//! (another name, a literal address, the target of a redirect), its bytes go to the permitted host alone. The
//! line counts the bytes of each permit in both directions; a client that sends over it without a permit cuts it.
//!
//! ```compile_fail,E0624
//! // No connection without a permit: the function that lends a client to a host is private.
//! async fn out(egress: &writ_egress::Egress, host: writ_egress::host::HostPort) {
//!     let _ = egress.lend_client(host, |lent| async move { lent.client.get("http://h/").send().await }).await;
//! }
//! ```
//!
//! An agent's requests leave through one of two modules, and both judge every name and every address: [`proxy`]
//! serves the programs of a sandbox, [`fetch`] reads one URL. [`inside`] is the listener of a sandbox for a server that
//! answers its programs itself, without a connection to any host.
//!
//! Three modules need no permit and lend no client: [`loopback`] asks a port of this machine which models a
//! server there has, [`deliver`] posts the engine's own reports to the address that its owner names, and [`local`]
//! asks a server of this machine over its Unix socket.
//!
//! [`target`] connects to the databases, APIs and mail servers of declared operations; the performer of the operation
//! consumes the permit.
//!
//! If the owner's network has a proxy, connections go through it: [`upstream`] decides which of them, `tunnel` and
//! `relay` speak to it. [`trust`] adds the owner's certificate authorities to the
//! system's.
//!
//! Read in this order: [`host`] names the destination, [`connect`] resolves the name and connects, `line` carries
//! the bytes, `keep` keeps lines open between permits, [`perform`] lends clients. [`gatekeeper`] is the trait by which the
//! runtime judges connections, [`credential`] replaces placeholders by secrets, and [`authority`] decrypts the TLS
//! connections for that. [`proxy`] and [`fetch`] use them.

pub mod host;

pub mod connect;

mod resolve;

mod line;

mod relay;

mod tunnel;

pub mod upstream;

pub mod trust;

mod keep;

pub mod error;

pub mod perform;

pub mod loopback;

mod direct;

pub mod consult;

pub mod deliver;

pub mod target;

pub mod gatekeeper;

pub mod authority;

pub mod identity;

pub mod local;

pub mod credential;

pub mod inside;

pub mod proxy;

pub mod fetch;

#[doc(hidden)]
pub mod fuzzing;

pub use perform::{Allowance, Egress, EgressConfig, LentClient};

/// The types of the HTTP library, for users of lent clients. Outside this crate the lints refuse the functions that
/// build a client.
pub mod http {
    pub use reqwest::header::{HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
    pub use reqwest::{Client, Error, RequestBuilder, Url};
}

#[cfg(test)]
mod testing;

#[cfg(test)]
mod tests;
