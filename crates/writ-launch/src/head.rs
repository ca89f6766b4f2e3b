//! The head of a request: its destination, and the part of it that is passed on.

use hyper::header::{CONNECTION, HOST, HeaderMap, HeaderName, HeaderValue};
use hyper::http::uri::{Authority, PathAndQuery};
use hyper::{Method, Uri, http};

use crate::names::{OWN_HEADERS, PLAIN_PORT, PROXY, ROUTER, TLS_PORT};
use crate::refusals::RefusalReason;

/// Headers of one connection, which are not passed on.
const HOP_HEADERS: [&str; 9] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "proxy-authenticate",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// The server that a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Destination {
    /// The router of models.
    Router,
    /// The security proxy.
    Proxy,
}

impl Destination {
    /// Returns its name.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Router => ROUTER,
            Self::Proxy => PROXY,
        }
    }
}

/// Returns the destination of a request at a port; else the reason to refuse it, and the name that it has.
pub(crate) fn judge_head(
    head: &http::request::Parts,
    port: u16,
) -> Result<Destination, (RefusalReason, String)> {
    // One line of the head decides; everything else has to agree with it.
    let mut hosts = head.headers.get_all(HOST).iter();
    let host = hosts.next().and_then(|host| host.to_str().ok()).unwrap_or_default();
    if head.method == Method::CONNECT {
        return Err((RefusalReason::Tunnel, host.to_owned()));
    }
    // Two names could be read in two ways.
    if hosts.next().is_some() {
        return Err((RefusalReason::Malformed, host.to_owned()));
    }
    let named = head.uri.authority().map_or(host, Authority::as_str);
    if !named.eq_ignore_ascii_case(host) {
        return Err((RefusalReason::Malformed, named.to_owned()));
    }
    let destination =
        destination_of(host, port).ok_or_else(|| (RefusalReason::OtherName, host.to_owned()))?;
    // Data of customers is not sent in the open, even here.
    if destination == Destination::Proxy && port == PLAIN_PORT {
        return Err((RefusalReason::Plain, host.to_owned()));
    }
    Ok(destination)
}

/// Returns the server behind a name, which may have the port that is asked.
fn destination_of(host: &str, port: u16) -> Option<Destination> {
    let name = match host.split_once(':') {
        Some((name, written)) if written == port.to_string() => name,
        Some(_) => return None,
        None => host,
    };
    debug_assert!([PLAIN_PORT, TLS_PORT].contains(&port), "no other port is listened on");
    [Destination::Router, Destination::Proxy]
        .into_iter()
        .find(|destination| name.eq_ignore_ascii_case(destination.name()))
}

/// Rewrites a head that is passed on: without what belongs to the connection and what says who the agent is. Returns
/// true if it had such a header.
pub(crate) fn rewrite_head(head: &mut http::request::Parts, destination: Destination) -> bool {
    strip_hops(&mut head.headers);
    let own: Vec<HeaderName> = head.headers.keys().filter(|name| is_own_header(name)).cloned().collect();
    for name in &own {
        head.headers.remove(name);
    }
    // The server sees one spelling of its name.
    head.headers.insert(HOST, HeaderValue::from_static(destination.name()));
    // An absolute address would be judged by the server once more.
    let path = head.uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
    head.uri = Uri::from(path);
    head.version = http::Version::HTTP_11;
    !own.is_empty()
}

/// Returns true for a name that servers could read as one of our own: some take `_` for `-`.
fn is_own_header(name: &HeaderName) -> bool {
    name.as_str().replace('_', "-").starts_with(OWN_HEADERS)
}

/// Takes out what belongs to one connection.
pub(crate) fn strip_hops(headers: &mut HeaderMap) {
    // `Connection` names further headers of its kind.
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in named {
        headers.remove(name);
    }
    for name in HOP_HEADERS {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(uri: &str, headers: &[(&str, &str)]) -> http::request::Parts {
        let mut request = hyper::Request::builder().uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).expect("a request").into_parts().0
    }

    /// Rows: SLO-038
    #[test]
    fn two_names_are_served_and_nothing_that_looks_like_them() {
        let judged =
            |host: &str, port| judge_head(&head("/", &[("host", host)]), port).map_err(|(why, _)| why);
        assert_eq!(judged("llm-router.silo.internal", 80), Ok(Destination::Router));
        assert_eq!(judged("LLM-Router.silo.internal:80", 80), Ok(Destination::Router));
        assert_eq!(judged("llm-router.silo.internal", 443), Ok(Destination::Router));
        assert_eq!(judged("security-proxy.silo.internal:443", 443), Ok(Destination::Proxy));
        assert_eq!(judged("security-proxy.silo.internal", 80), Err(RefusalReason::Plain));
        for other in [
            "",
            "127.0.0.1",
            "127.0.0.1:80",
            "localhost",
            "example.com",
            "silo.internal",
            "x.llm-router.silo.internal",
            "llm-router.silo.internal.",
            "llm-router.silo.internal:443",
            "llm-router.silo.internal:",
            "[::1]",
            "llm-router.silo.internal@evil",
            "evil@llm-router.silo.internal",
        ] {
            assert_eq!(judged(other, 80), Err(RefusalReason::OtherName), "{other}");
        }
        let two = head("/", &[("host", ROUTER), ("host", "example.com")]);
        assert_eq!(judge_head(&two, 80).map_err(|(why, _)| why), Err(RefusalReason::Malformed));
        let odd = head("http://example.com/", &[("host", ROUTER)]);
        assert_eq!(judge_head(&odd, 80).map_err(|(why, _)| why), Err(RefusalReason::Malformed));
        let absolute = head("http://llm-router.silo.internal/a", &[("host", ROUTER)]);
        assert_eq!(judge_head(&absolute, 80).map_err(|(why, _)| why), Ok(Destination::Router));
        let mut tunnel = head("example.com:443", &[("host", ROUTER)]);
        tunnel.method = Method::CONNECT;
        assert_eq!(judge_head(&tunnel, 80).map_err(|(why, _)| why), Err(RefusalReason::Tunnel));
    }

    #[test]
    fn what_says_who_the_agent_is_and_what_is_of_the_connection_is_taken_out() {
        let mut passed = head(
            "http://llm-router.silo.internal/v1?x=1",
            &[
                ("host", "LLM-ROUTER.silo.internal:80"),
                ("Writ-Base-Key", "mine"),
                ("writ_task_key", "mine"),
                ("writ-anything", "mine"),
                ("connection", "close, X-Once"),
                ("x-once", "1"),
                ("upgrade", "websocket"),
                ("te", "trailers"),
                ("authorization", "kept"),
            ],
        );
        assert!(rewrite_head(&mut passed, Destination::Router));
        let left: Vec<_> =
            passed.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
        assert_eq!(left, [("host", ROUTER.as_bytes()), ("authorization", b"kept")]);
        assert_eq!(passed.uri.to_string(), "/v1?x=1");
        assert!(!rewrite_head(&mut passed, Destination::Router), "nothing was forged now");
    }
}
