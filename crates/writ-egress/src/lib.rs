//! The one way out: every connection that leaves the host is opened here, for one permit, to one host.
//!
//! [`Egress::perform_permit`] consumes a permit and lends a `reqwest::Client` for the host that the permit names.
//! The client has no way to the network of its own. It is bound to a private Unix socket, the *line*, and
//! this crate carries the bytes between that socket and the permitted host. For any URL that the client is
//! given (another name, a literal address, the target of a redirect), no other host is ever connected to. The
//! line counts bytes both ways and dies with the permit's work.
//!
//! ```compile_fail,E0624
//! // No way out without a permit: there is no other function that lends a client.
//! async fn out(egress: &writ_egress::Egress, host: writ_egress::host::HostPort) {
//!     let _ = egress.lend_client(host, |lent| async move { lent.client.get("http://h/").send().await }).await;
//! }
//! ```
//!
//! Requests of an agent go two ways, and both judge every name and every address: [`proxy`] is the way out of
//! a sandbox, [`fetch`] reads one URL. [`inside`] is the listener of a sandbox with another server on it.
//!
//! Three things need no permit and hand out no client: [`loopback`] asks a port of this machine for a list,
//! [`deliver`] posts the engine's own reports to the place that its owner names, and [`local`] asks a server of
//! this machine over its Unix socket.
//!
//! [`target`] connects to the databases, APIs and mail servers of declared operations; their performer has consumed
//! the permit.
//!
//! Where the owner's network has a proxy of its own, connections go through that one: [`upstream`] says
//! which, `tunnel` and `relay` speak to it. [`trust`] adds the owner's certificate authorities to the
//! system's.
//!
//! Read in this order: [`host`] names the destination, [`connect`] looks up and dials, `line` carries, `keep`
//! holds lines between permits, [`perform`] lends; [`gatekeeper`] is the runtime's part, [`credential`] puts
//! secrets in the place of placeholders, [`authority`] opens connections for that; [`proxy`] and [`fetch`]
//! use them.

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

/// The types of the HTTP library that lent clients speak, for their users. A client of one's own is not made:
/// the lints refuse its builders outside this crate.
pub mod http {
    pub use reqwest::header::{HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
    pub use reqwest::{Client, Error, RequestBuilder, Url};
}

#[cfg(test)]
mod testing;

#[cfg(test)]
mod tests;
