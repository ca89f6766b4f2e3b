//! The path below which a reverse proxy shows this server: `https://host/writ/`.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::uri::PathAndQuery;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use super::{Peer, ServerState};

/// The header in which a proxy says what it has taken off the path.
const HEADER: &str = "x-forwarded-prefix";
/// The longest such path, in bytes.
const MAX_LEN: usize = 200;
/// First segments of this server's own paths: a proxy's path that began with one could not be distinguished
/// from them.
const OWN: [&str; 12] = [
    "api",
    "v1",
    "ws",
    "sessions",
    "secrets",
    "metrics",
    "link",
    "health",
    "schemas",
    "openapi.json",
    "js",
    "icons",
];

/// A path without a slash at its end; empty at the root of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct BasePath(String);

impl BasePath {
    /// Reads `/writ`, also with a slash at its end; `/` is the root. Returns `None` for what is no such path.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        // Proxies write the prefix with and without a slash at its end.
        let path = text.trim().trim_end_matches('/');
        if path.is_empty() {
            return Some(Self::default());
        }
        let mut segments = path.strip_prefix('/')?.split('/');
        let is_plain = |segment: &str| {
            !matches!(segment, "" | "." | "..")
                && segment.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '~'))
        };
        // Otherwise the prefix would hide a path of this server.
        let is_foreign = segments.clone().next().is_some_and(|first| !OWN.contains(&first));
        (is_foreign && path.len() <= MAX_LEN && segments.all(is_plain)).then(|| Self(path.to_owned()))
    }

    /// The path of this server's cookies.
    pub(crate) fn cookie_path(&self) -> String {
        format!("{}/", self.0)
    }

    /// A path without this one before it; `None`: it does not lie below.
    fn strip<'a>(&self, path: &'a str) -> Option<&'a str> {
        let rest = path.strip_prefix(self.0.as_str())?;
        // `/writer` is not below `/writ`.
        (!self.0.is_empty() && (rest.is_empty() || rest.starts_with('/'))).then_some(rest)
    }
}

/// The path that a trusted proxy says it has taken off.
fn forwarded_prefix(headers: &HeaderMap) -> Option<BasePath> {
    BasePath::parse(headers.get(HEADER)?.to_str().ok()?)
}

/// Takes the base path off a request, before it is judged and routed, and notes below which one it was made.
pub(crate) async fn strip_prefix(
    State(shared): State<Arc<ServerState>>,
    mut request: Request,
    next: Next,
) -> Response {
    let peer = request.extensions().get::<Peer>().map(|peer| peer.address);
    // Other senders could use the header to move the page below a path of their choice.
    let by_proxy = shared.hosts.is_proxy(peer).then(|| forwarded_prefix(request.headers())).flatten();
    // The settings come first: some proxies leave the path in and still send the header.
    let named = [shared.hosts.base(), by_proxy.as_ref()];
    let path = request.uri().path();
    let found = named.into_iter().flatten().find_map(|base| Some((base, base.strip(path)?)));
    let (base, rewritten) = match found {
        Some((base, "")) => {
            // The page's own addresses begin at the last slash.
            let at = base.cookie_path();
            return (StatusCode::PERMANENT_REDIRECT, [(header::LOCATION, at)]).into_response();
        }
        Some((base, rest)) => (base.clone(), strip_path(request.uri(), rest)),
        None => (by_proxy.unwrap_or_default(), None),
    };
    if let Some(uri) = rewritten {
        *request.uri_mut() = uri;
    }
    request.extensions_mut().insert(base);
    next.run(request).await
}

/// An address with another path and the same query.
fn strip_path(uri: &Uri, path: &str) -> Option<Uri> {
    // Only the query stays as it is: it is no part of the path.
    let whole = match uri.query() {
        Some(query) => format!("{path}?{query}"),
        None => path.to_owned(),
    };
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(PathAndQuery::try_from(whole).ok()?);
    Uri::from_parts(parts).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_path_is_plain_and_none_of_this_servers_own() {
        let read = |text: &str| BasePath::parse(text).map(|base| base.0);
        for (text, base) in
            [("/writ", "/writ"), ("/writ/", "/writ"), (" /a/b_c.d~e ", "/a/b_c.d~e"), ("/", ""), ("", "")]
        {
            assert_eq!(read(text).as_deref(), Some(base), "{text}");
        }
        let long = format!("/{}", "a".repeat(MAX_LEN));
        for text in [
            "writ",
            "//evil.example",
            "/a//b",
            "/../etc",
            "/a/./b",
            "/a b",
            "/a;Path=x",
            "/a%2f",
            "/api",
            "/ws/x",
            "/a?b",
            "/a\r\nX: y",
            "/é",
            &long,
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn only_whole_segments_are_taken_off() {
        let base = BasePath::parse("/writ").expect("a path");
        assert_eq!(base.strip("/writ"), Some(""));
        assert_eq!(base.strip("/writ/"), Some("/"));
        assert_eq!(base.strip("/writ/writ/x"), Some("/writ/x"));
        assert_eq!(base.strip("/written"), None);
        assert_eq!(base.strip("/"), None);
        assert_eq!(BasePath::default().strip("/x"), None);
        let uri: Uri = "http://h:1/writ/x?y=1".parse().expect("an address");
        assert_eq!(strip_path(&uri, "/x").map(|uri| uri.to_string()).as_deref(), Some("http://h:1/x?y=1"));
    }
}
