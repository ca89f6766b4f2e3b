//! The one place that looks names up and opens outbound connections.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use writ_inspect::egress::host::Target;
use writ_inspect::egress::{EgressScope, Judgement, Rule, judge_connection};

use crate::gatekeeper::{Gatekeeper, Refusal};
use crate::tunnel::{TunnelFault, dial_proxy, open_tunnel};
use crate::upstream::{ProxyRoutes, Upstream};

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
    fn resolve_name<'a>(&'a self, name: &'a str, port: u16) -> Later<'a, io::Result<Vec<IpAddr>>>;
}

pub use crate::resolve::SystemResolver;

/// An outbound connection.
#[expect(clippy::disallowed_types, reason = "this is the one place that opens outbound connections")]
pub(crate) type Stream = tokio::net::TcpStream;

/// Connects to the first address that accepts. No other address is ever connected to.
pub(crate) async fn dial_addresses(addresses: &[SocketAddr]) -> io::Result<Stream> {
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

/// A judged target: the addresses that may be connected to, and the rule that allows it.
#[derive(Clone, Debug)]
pub(crate) struct JudgedTarget {
    pub(crate) addresses: Vec<SocketAddr>,
    /// The proxy that it is reached through, by name; the addresses are not connected to then.
    pub(crate) proxy: Option<Arc<Upstream>>,
    pub(crate) rule: Rule,
}

/// A connection to a judged target.
#[derive(Debug)]
pub(crate) struct Reached {
    pub(crate) stream: Stream,
    /// The address that was connected to; `None`: the network's proxy has chosen one.
    pub(crate) address: Option<IpAddr>,
    /// The proxy that takes plain requests at the other end; `None`: the host itself, or a tunnel to it.
    pub(crate) proxy: Option<Arc<Upstream>>,
}

/// The protocol that a target is spoken to in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Speech {
    /// Bytes: TLS, or any other content of a tunnel.
    Tunnel,
    /// A plain request.
    Plain,
    /// Bytes that begin with a plain request, which a proxy could not pass on as such: a WebSocket.
    PlainTunnel,
}

/// Judges a target by its name alone. Nothing is looked up, so that an unknown name never leaves the host.
pub(crate) async fn judge_name(
    gatekeeper: &dyn Gatekeeper,
    scope: &EgressScope,
    target: &Target,
) -> Result<Rule, Refusal> {
    // Without an address the name alone is judged: no lookup is made for a refused one.
    match judge_connection(scope, target, None) {
        Judgement::Allow { rule } => Ok(rule),
        Judgement::Deny { reason, rule } => Err(Refusal::Denied { rule, reason }),
        Judgement::Ask { host, port } => match gatekeeper.ask_person(target).await {
            Ok(ask) => Err(Refusal::Asked { host: host.to_string(), port, ask }),
            Err(why) => Err(Refusal::NotAsked { host: host.to_string(), why: why.0 }),
        },
    }
}

/// Looks a judged name up, once, and judges every address. One that is refused refuses the name: an answer
/// that mixes the internet with something else is an attack or a mistake.
///
/// A name that has no address here may be left to the network's proxy, where the owner allows that: its
/// address is not judged then. A pinned host never goes through a proxy.
pub(crate) async fn judge_addresses(
    resolver: &Arc<dyn Resolver>,
    routes: &ProxyRoutes,
    scope: &EgressScope,
    (target, secure, rule): (&Target, bool, Rule),
) -> Result<JudgedTarget, Refusal> {
    let unresolved = |why: String| Refusal::Unresolved { host: target.host.to_string(), why };
    // The owner's own addresses of a host replace those of its name servers.
    let pinned = scope.pinned(&target.host);
    let host = target.host.to_string();
    let proxy = routes.proxy_for(&host, target.port, secure).filter(|_| pinned.is_empty()).cloned();
    let is_left_to_proxy = proxy.is_some() && routes.unchecked_names;
    let mut found = match (pinned.is_empty(), target.host.literal_address(), target.host.domain_name()) {
        (false, _, _) => pinned,
        (true, Some(address), _) => vec![address],
        (true, None, Some(name)) => match resolver.resolve_name(name, target.port).await {
            Ok(found) => found,
            Err(_) if is_left_to_proxy => Vec::new(),
            Err(why) if proxy.is_some() => {
                return Err(unresolved(format!(
                    "{why}; network.unchecked_names lets the network's proxy look names up"
                )));
            }
            Err(why) => return Err(unresolved(why.to_string())),
        },
        (true, None, None) => Vec::new(),
    };
    // Every address that could be dialled is judged; the rest is dropped before.
    found.truncate(MAX_ADDRESSES);
    for address in &found {
        if let Judgement::Deny { reason, rule } = judge_connection(scope, target, Some(*address)) {
            return Err(Refusal::Denied { rule, reason });
        }
    }
    if found.is_empty() && !is_left_to_proxy {
        return Err(unresolved("no address".to_owned()));
    }
    // An address of IPv4 inside IPv6 was judged as the former, and is dialled as that.
    let addresses = found.into_iter().map(|address| SocketAddr::new(address.to_canonical(), target.port));
    Ok(JudgedTarget { addresses: addresses.collect(), proxy, rule })
}

/// Connects to a target with a judged name: looks it up, judges its addresses, and dials those, or the proxy
/// of the owner's network.
pub(crate) async fn connect_judged(
    resolver: &Arc<dyn Resolver>,
    routes: &ProxyRoutes,
    scope: &EgressScope,
    (target, speech, rule): (&Target, Speech, Rule),
    limit: Duration,
) -> Result<Reached, Refusal> {
    let host = || target.host.to_string();
    let connecting = async {
        let secure = speech == Speech::Tunnel;
        let judged = judge_addresses(resolver, routes, scope, (target, secure, rule)).await?;
        if let Some(proxy) = judged.proxy {
            let refused = |why: TunnelFault| Refusal::Proxy { host: host(), proxy: proxy.to_string(), why };
            // A plain request goes to the proxy itself; everything else goes through a tunnel.
            return if speech == Speech::Plain {
                let stream = dial_proxy(&proxy).await.map_err(refused)?;
                Ok(Reached { stream, address: None, proxy: Some(proxy) })
            } else {
                let stream = open_tunnel(&proxy, &host(), target.port).await.map_err(refused)?;
                Ok(Reached { stream, address: None, proxy: None })
            };
        }
        let unreachable = |why: io::Error| Refusal::Unreachable { host: host(), why: why.to_string() };
        let stream = dial_addresses(&judged.addresses).await.map_err(unreachable)?;
        // The record has the address that answered, not the first of the list.
        let address = stream.peer_addr().map_err(unreachable)?;
        Ok(Reached { stream, address: Some(address.ip()), proxy: None })
    };
    tokio::time::timeout(limit, connecting)
        .await
        .unwrap_or_else(|_| Err(Refusal::ConnectTimeout { host: host() }))
}
