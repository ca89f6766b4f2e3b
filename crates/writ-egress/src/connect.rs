//! The one place that looks names up and opens outbound connections.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use writ_policy::egress::host::Target;
use writ_policy::egress::{EgressScope, Judgement, Rule, judge_connection};

use crate::gatekeeper::{Gatekeeper, Refusal};

/// The most addresses of a name that are judged and tried, within one connect limit.
pub(crate) const MAX_ADDRESSES: usize = 8;

/// A result that comes later.
pub type Later<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Looks names up. A port, so that tests can script what a name stands for.
pub trait Resolver: fmt::Debug + Send + Sync {
    /// The addresses of a name, in the order in which they are to be tried.
    ///
    /// # Errors
    ///
    /// If the name has none, or they cannot be found out.
    fn resolve<'a>(&'a self, name: &'a str, port: u16) -> Later<'a, io::Result<Vec<IpAddr>>>;
}

pub use crate::resolve::SystemResolver;

/// An outbound connection.
#[expect(clippy::disallowed_types, reason = "this is the one place that opens outbound connections")]
pub(crate) type Stream = tokio::net::TcpStream;

/// Connects to the first address that accepts. No other address is ever connected to.
pub(crate) async fn dial(addresses: &[SocketAddr]) -> io::Result<Stream> {
    let mut last = io::Error::new(io::ErrorKind::AddrNotAvailable, "no address");
    for address in addresses {
        match Stream::connect(address).await {
            Ok(stream) => {
                // Small frames matter more than throughput here; a failure costs time only.
                if let Err(error) = stream.set_nodelay(true) {
                    tracing::debug!(%error, "TCP_NODELAY was refused");
                }
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Where a judged target is: the addresses that may be connected to, and what allows it.
#[derive(Clone, Debug)]
pub(crate) struct Judged {
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) rule: Rule,
}

/// Judges a target by its name alone. Nothing is looked up, so that an unknown name never leaves the host.
pub(crate) async fn judge_name(
    gatekeeper: &dyn Gatekeeper,
    scope: &EgressScope,
    target: &Target,
) -> Result<Rule, Refusal> {
    match judge_connection(scope, target, None) {
        Judgement::Allow { rule } => Ok(rule),
        Judgement::Deny { reason, rule } => Err(Refusal::Denied { rule, reason }),
        Judgement::Ask { host, port } => match gatekeeper.ask(target).await {
            Ok(ask) => Err(Refusal::Asked { host: host.to_string(), port, ask }),
            Err(why) => Err(Refusal::NotAsked { host: host.to_string(), why: why.0 }),
        },
    }
}

/// Looks a judged name up, once, and judges every address. One that is refused refuses the name: an answer that
/// mixes the internet with something else is an attack or a mistake.
pub(crate) async fn judge_addresses(
    resolver: &Arc<dyn Resolver>,
    scope: &EgressScope,
    target: &Target,
    rule: Rule,
) -> Result<Judged, Refusal> {
    let unresolved = |why: String| Refusal::Unresolved { host: target.host.to_string(), why };
    let pinned = scope.pinned(&target.host);
    let mut found = match (pinned.is_empty(), target.host.literal(), target.host.name()) {
        (false, _, _) => pinned,
        (true, Some(address), _) => vec![address],
        (true, None, Some(name)) => {
            resolver.resolve(name, target.port).await.map_err(|why| unresolved(why.to_string()))?
        }
        (true, None, None) => Vec::new(),
    };
    found.truncate(MAX_ADDRESSES);
    for address in &found {
        if let Judgement::Deny { reason, rule } = judge_connection(scope, target, Some(*address)) {
            return Err(Refusal::Denied { rule, reason });
        }
    }
    if found.is_empty() {
        return Err(unresolved("no address".to_owned()));
    }
    let addresses = found.into_iter().map(|address| SocketAddr::new(address.to_canonical(), target.port));
    Ok(Judged { addresses: addresses.collect(), rule })
}

/// Connects to a target whose name was judged: looks it up, judges its addresses, and dials those.
pub(crate) async fn reach(
    resolver: &Arc<dyn Resolver>,
    scope: &EgressScope,
    target: &Target,
    rule: Rule,
    limit: Duration,
) -> Result<(Stream, SocketAddr), Refusal> {
    let host = || target.host.to_string();
    let connecting = async {
        let judged = judge_addresses(resolver, scope, target, rule).await?;
        let unreachable = |why: io::Error| Refusal::Unreachable { host: host(), why: why.to_string() };
        let stream = dial(&judged.addresses).await.map_err(unreachable)?;
        let address = stream.peer_addr().map_err(unreachable)?;
        Ok((stream, address))
    };
    tokio::time::timeout(limit, connecting)
        .await
        .unwrap_or_else(|_| Err(Refusal::ConnectTimeout { host: host() }))
}
