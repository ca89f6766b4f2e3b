//! Requests, read strictly, and the part of them that goes on to the host.

use crate::relay;
use crate::upstream::Upstream;
use hyper::header::{
    CONNECTION, CONTENT_LENGTH, HOST, HeaderMap, HeaderName, HeaderValue, TE, TRAILER, TRANSFER_ENCODING,
    UPGRADE, VIA,
};
use hyper::{Method, Uri, Version, http};
use writ_inspect::egress::host::{InvalidTarget, Scheme, Target};

/// The name of this proxy in `Via` (RFC 9110, section 7.6.3).
const VIA_US: &str = "1.1 writ";
/// Headers that concern one connection only, besides those that `Connection` names (RFC 9110, section 7.6.1).
const HOP_BY_HOP: [&str; 6] =
    ["keep-alive", "proxy-connection", "proxy-authorization", "proxy-authenticate", "http2-settings", "te"];

/// A mistake in a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Malformed {
    /// It names no target that can be used.
    #[error("the target cannot be used: {0}")]
    Target(#[from] InvalidTarget),
    /// It is addressed to the proxy itself.
    #[error("this is a proxy: name the whole URL, or use CONNECT")]
    NotProxied,
    /// `https` without CONNECT would be read here.
    #[error("use CONNECT for https")]
    NotConnect,
    /// There is more than one `Host`, or none where one is needed.
    #[error("there must be one Host header")]
    Hosts,
    /// `Host` is not the target.
    #[error("the Host header is not the target's host")]
    OtherHost,
    /// A change to HTTP/2 in the clear, or to anything but WebSocket.
    #[error("no other protocol than WebSocket may be changed to")]
    Upgrade,
    /// Not HTTP/1.0 or 1.1.
    #[error("this proxy speaks HTTP/1.1")]
    Version,
}

impl Malformed {
    /// A stable code.
    pub(crate) const fn fault_code(self) -> &'static str {
        match self {
            Self::Target(InvalidTarget::Host(_)) => "proxy.bad_host",
            Self::Target(InvalidTarget::Port) => "proxy.bad_port",
            Self::Target(InvalidTarget::UserInfo) => "proxy.userinfo",
            Self::Target(InvalidTarget::Url) => "proxy.bad_url",
            Self::NotProxied => "proxy.not_proxied",
            Self::NotConnect => "proxy.not_connect",
            Self::Hosts => "proxy.two_hosts",
            Self::OtherHost => "proxy.other_host",
            Self::Upgrade => "proxy.upgrade",
            Self::Version => "proxy.version",
        }
    }
}

/// The target of a request, if everything in it agrees about it.
pub(crate) fn request_target(head: &http::request::Parts) -> Result<Target, Malformed> {
    if !matches!(head.version, Version::HTTP_10 | Version::HTTP_11) {
        return Err(Malformed::Version);
    }
    let authority = head.uri.authority().map(|authority| authority.as_str());
    // A tunnel names host and port alone; any other request names a whole URL.
    let connect = head.method == Method::CONNECT;
    let target = if connect {
        let scheme =
            if head.uri.scheme().is_none() { Scheme::Https } else { return Err(Malformed::NotProxied) };
        Target::from_authority(scheme, authority.ok_or(Malformed::NotProxied)?, None)?
    } else {
        match (head.uri.scheme_str(), authority) {
            (Some("http"), Some(authority)) => Target::from_authority(Scheme::Http, authority, Some(80))?,
            // A client that sends an https URL in the clear would show its content to the
            // proxy.
            (Some("https"), Some(_)) => return Err(Malformed::NotConnect),
            (Some(_), Some(_)) => return Err(InvalidTarget::Url.into()),
            (_, None) | (None, _) => return Err(Malformed::NotProxied),
        }
    };
    check_host(head, &target, connect)?;
    check_upgrade(&head.headers)?;
    Ok(target)
}

/// Refuses a request inside an opened tunnel that is not for the tunnel's host.
pub(crate) fn check_inside(head: &http::request::Parts, target: &Target) -> Result<(), Malformed> {
    if !matches!(head.version, Version::HTTP_10 | Version::HTTP_11) {
        return Err(Malformed::Version);
    }
    // No tunnel in a tunnel.
    if head.method == Method::CONNECT || head.uri.path().is_empty() {
        return Err(Malformed::NotProxied);
    }
    if let Some(authority) = head.uri.authority() {
        let port = Some(target.scheme.default_port());
        let named = Target::from_authority(target.scheme, authority.as_str(), port)?;
        if named != *target || head.uri.scheme_str() != Some(target.scheme.as_str()) {
            return Err(Malformed::OtherHost);
        }
    }
    check_host(head, target, false)
}

/// One `Host`, and the same. Old clients leave it out: with HTTP/1.0, and before a tunnel.
fn check_host(head: &http::request::Parts, target: &Target, connect: bool) -> Result<(), Malformed> {
    // Two different `Host` lines make one server see another request than the next.
    let mut hosts = head.headers.get_all(HOST).iter();
    let named = match (hosts.next(), hosts.next()) {
        (Some(host), None) => host,
        (None, None) if connect || head.version == Version::HTTP_10 => return Ok(()),
        (None, None) | (_, Some(_)) => return Err(Malformed::Hosts),
    };
    let default = if connect { target.port } else { target.scheme.default_port() };
    let text = named.to_str().map_err(|_| Malformed::OtherHost)?;
    let named =
        Target::from_authority(target.scheme, text, Some(default)).map_err(|_| Malformed::OtherHost)?;
    if named == *target { Ok(()) } else { Err(Malformed::OtherHost) }
}

fn check_upgrade(headers: &HeaderMap) -> Result<(), Malformed> {
    let odd = |value: &HeaderValue| !value.as_bytes().eq_ignore_ascii_case(b"websocket");
    let h2c = headers.contains_key("http2-settings");
    if h2c || headers.get_all(UPGRADE).iter().any(odd) { Err(Malformed::Upgrade) } else { Ok(()) }
}

/// Returns true if a request asks to become a WebSocket.
pub(crate) fn is_websocket(headers: &HeaderMap) -> bool {
    headers.contains_key(UPGRADE) && named_by_connection(headers).contains(&UPGRADE)
}

/// Makes a request of the one that goes on to the host.
pub(crate) fn rewrite_head(head: &mut http::request::Parts, target: &Target, websocket: bool) {
    let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    head.uri = Uri::try_from(path).unwrap_or_else(|_| Uri::from_static("/"));
    head.version = Version::HTTP_11;
    // The library frames the body anew: a length that a request gave twice goes on once.
    head.headers.remove(CONTENT_LENGTH);
    strip_headers(&mut head.headers, websocket);
    let host = if target.port == target.scheme.default_port() {
        target.host.to_string()
    } else {
        format!("{}:{}", target.host, target.port)
    };
    if let Ok(host) = HeaderValue::from_str(&host) {
        head.headers.insert(HOST, host);
    }
}

/// Writes the whole address into a request that was rewritten, for the network's proxy.
///
/// # Errors
///
/// If it has none.
pub(crate) fn request_address(head: &mut http::request::Parts, proxy: &Upstream) -> Result<(), http::Error> {
    let host = head.headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default().to_owned();
    relay::address_request(head, &host, proxy)
}

/// Removes what concerned the connection that a message came over, and says that it passed here.
pub(crate) fn strip_headers(headers: &mut HeaderMap, websocket: bool) {
    for name in named_by_connection(headers) {
        headers.remove(name);
    }
    for name in HOP_BY_HOP {
        headers.remove(name);
    }
    for name in [CONNECTION, TRANSFER_ENCODING, TE, TRAILER, UPGRADE] {
        headers.remove(name);
    }
    if websocket {
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    }
    headers.append(VIA, HeaderValue::from_static(VIA_US));
}

/// The headers that `Connection` names.
fn named_by_connection(headers: &HeaderMap) -> Vec<HeaderName> {
    let values = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).filter_map(|name| name.trim().parse().ok()).collect()
}
