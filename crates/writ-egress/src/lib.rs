//! The one way out: every connection that leaves the host is opened here, for one permit, to one host.
//!
//! [`Egress::perform`] consumes a permit and lends a `reqwest::Client` for the host that the permit names.
//! The client has no way to the network of its own. It is bound to a private Unix socket, the *line*, and
//! this crate carries the bytes between that socket and the permitted host. Whatever URL the client is given
//! (another name, a literal address, the target of a redirect), no other host is ever connected to. The line
//! counts bytes both ways and dies with the permit's work.
//!
//! ```compile_fail
//! // No way out without a permit: there is no other function that lends a client.
//! async fn out(egress: &writ_egress::Egress, host: writ_egress::host::HostPort) {
//!     let _ = egress.lend(host, |lent| async move { lent.client.get("http://h/").send().await }).await;
//! }
//! ```
//!
//! Read in this order: [`host`] says where, `line` carries, [`perform`] lends.

pub mod host;

mod line;

pub mod error;

pub mod perform;

pub use perform::{Egress, EgressConfig, Lent};

/// The types of the HTTP library that lent clients speak, for whoever uses them. A client of one's own is not
/// made: the lints refuse its builders outside this crate.
pub mod http {
    pub use reqwest::header::RETRY_AFTER;
    pub use reqwest::{Client, Error, Url};
}

#[cfg(test)]
mod tests;
