//! The first check of every request: host, origin, rate and proof.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use writ_policy::principal::{BearerProof, Evidence};
use writ_types::digest::Digest;

use super::base::BasePath;
use super::openai;
use super::page;
use super::reply::Refusal;
use super::{Peer, ServerState};

/// The cookie of a session of the page.
pub(crate) const COOKIE: &str = "writ_session";
/// The subprotocol of WebSockets; a token comes as a second one, after `bearer.`.
pub(crate) const PROTOCOL: &str = "writ";
/// The prefix of the token among the subprotocols.
const BEARER_PROTOCOL: &str = "bearer.";
/// Wrong tokens and links per second of one address.
pub(crate) const FAILURES_PER_SEC: u32 = 1;
/// Wrong tokens and links of one address at once.
pub(crate) const FAILURES_BURST: u32 = 20;

/// Paths that need proof; all paths below these need it, too.
const GUARDED: [&str; 6] = ["/api", "/v1", "/sessions", "/secrets", "/ws", "/metrics"];
/// Paths that take no query: it could only be meant to point the page somewhere else, or carry a token.
const NO_QUERY: [&str; 3] = ["/", "/ws", "/link"];

/// The sender of a request.
#[derive(Clone, Debug)]
pub(crate) struct Speaker {
    /// The proof.
    pub(crate) evidence: Evidence,
    /// Under which name its requests are counted: a hash of what it has shown, or its address.
    pub(crate) name: String,
    /// Its address, as far as it is known.
    pub(crate) address: IpAddr,
    /// The origin of the page of this server that asks, where it says so.
    pub(crate) origin: Option<String>,
    /// True if a trusted proxy says that the request came through TLS.
    pub(crate) tls: bool,
}

/// The proof that a request presents.
enum PresentedProof {
    Nothing,
    /// A good token or session, and the name that it is counted under.
    Proof(BearerProof, String),
    Wrong,
}

/// Lets a request through, or answers it.
pub(crate) async fn guard_request(
    State(shared): State<Arc<ServerState>>,
    mut request: Request,
    next: Next,
) -> Response {
    let path = request.uri().path().to_owned();
    let origin = request.headers().get(header::ORIGIN).cloned();
    let checked = check_request(&shared, &request);
    let mut response = match checked {
        Err(refusal) => {
            // The code of a link is a secret, and so cut from the log.
            tracing::info!(code = refusal.report().code, path = crop_path(&path), "request refused");
            refusal.into_response()
        }
        Ok(speaker) => {
            // The proof of one request holds for its connection's place.
            if speaker.evidence != Evidence::None
                && let Some(peer) = request.extensions().get::<Peer>()
            {
                peer.place.set_proven();
            }
            request.extensions_mut().insert(speaker);
            if is_preflight(&shared.hosts, &request) { answer_preflight() } else { next.run(request).await }
        }
    };
    // The interface of models has errors in its own form, also those of this guard.
    if is_below(&path, openai::ROOT) {
        response = openai::shape_error(response);
    }
    let headers = response.headers_mut();
    let fixed = [
        (header::CONTENT_SECURITY_POLICY, page::CONTENT_SECURITY_POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        (header::HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    ];
    for (name, value) in fixed {
        headers.insert(name, HeaderValue::from_static(value));
    }
    // Answers hold the owner's messages, so no proxy may store them.
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    if let Some(origin) = origin.filter(|origin| shared.hosts.is_listed_origin(origin)) {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.append(header::VARY, HeaderValue::from_static("Origin"));
    }
    response
}

/// Returns true if a browser asks which requests a page of a listed origin may send.
fn is_preflight(hosts: &HostNames, request: &Request) -> bool {
    let headers = request.headers();
    request.method() == Method::OPTIONS
        && headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
        && headers.get(header::ORIGIN).is_some_and(|origin| hosts.is_listed_origin(origin))
}

/// Answers which requests pages of listed origins may send: with the token, never with the cookie.
fn answer_preflight() -> Response {
    let fixed = [
        (header::ACCESS_CONTROL_ALLOW_METHODS, "GET, POST, DELETE"),
        (header::ACCESS_CONTROL_ALLOW_HEADERS, "authorization, content-type"),
        (header::ACCESS_CONTROL_MAX_AGE, "600"),
    ];
    (StatusCode::NO_CONTENT, fixed).into_response()
}

fn check_request(shared: &ServerState, request: &Request) -> Result<Speaker, Refusal> {
    let (headers, uri, method) = (request.headers(), request.uri(), request.method());
    let peer = request.extensions().get::<Peer>().map(|peer| peer.address);
    let (address, tls) = shared.hosts.client_address(peer, headers);
    // First, so that refused requests count, too.
    shared.by_address.take_token(&address, Instant::now()).map_err(Refusal::too_many)?;
    // A page that had its name rebound to this address would send its own name here.
    shared.hosts.check_host(uri, headers)?;
    let foreign = shared.hosts.check_origin(headers)?;
    let path = uri.path();
    // A token in a query would stand in logs and histories.
    if uri.query().is_some() && NO_QUERY.iter().any(|bare| is_below(path, bare)) {
        let text = "this address takes no parameters";
        let hint = "leave out what follows the '?'; a token is shown in the header Authorization";
        return Err(Refusal::new(StatusCode::FORBIDDEN, "request.query", text, hint));
    }
    let own = headers.get(header::ORIGIN).and_then(|origin| origin.to_str().ok()).filter(|_| !foreign);
    let (evidence, origin) = (Evidence::None, own.map(str::to_owned));
    let mut speaker = Speaker { evidence, name: address.to_string(), address, origin, tls };
    // The proof is read also where none is needed, since it decides about the limits.
    match read_proof(shared, headers, method, foreign)? {
        PresentedProof::Nothing => {}
        PresentedProof::Wrong => {
            // Guesses are counted also where no proof is needed.
            shared.failures.take_token(&address, Instant::now()).map_err(Refusal::too_many)?;
            if is_guarded(path) {
                return Err(Refusal::unproven());
            }
        }
        PresentedProof::Proof(proof, name) => {
            shared.by_session.take_token(&name, Instant::now()).map_err(Refusal::too_many)?;
            speaker.evidence = Evidence::Bearer(proof);
            speaker.name = name;
        }
    }
    // A WebSocket may send the token as its first frame.
    let late = path == "/ws" && method == Method::GET;
    // A collector on this machine reads without a token, unless a proxy passes it on.
    let local = path == "/metrics" && address.is_loopback() && peer.is_some_and(|peer| peer.ip() == address);
    // Browsers send no token with this question.
    let preflight = foreign && method == Method::OPTIONS;
    if speaker.evidence == Evidence::None && is_guarded(path) && !late && !local && !preflight {
        return Err(Refusal::unproven());
    }
    // A path that is no text would be refused by the router in another form.
    if !is_text(path) {
        return Err(Refusal::malformed("the address is no text"));
    }
    Ok(speaker)
}

/// Returns true if a path, decoded, is UTF-8: the router would refuse another one in words of its own.
fn is_text(path: &str) -> bool {
    let mut decoded = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let code = after.get(..2).filter(|_| *first == b'%');
        let byte = code.and_then(|code| u8::from_str_radix(std::str::from_utf8(code).ok()?, 16).ok());
        decoded.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { after.get(2..).unwrap_or_default() } else { after };
    }
    std::str::from_utf8(&decoded).is_ok()
}

/// Reads the proof of a request: a token wins over a cookie.
fn read_proof(
    shared: &ServerState,
    headers: &HeaderMap,
    method: &Method,
    foreign: bool,
) -> Result<PresentedProof, Refusal> {
    // A header with another scheme is a wrong proof, not a missing one.
    let token = match headers.get(header::AUTHORIZATION) {
        Some(value) => {
            Some(value.to_str().ok().and_then(|value| value.strip_prefix("Bearer ")).unwrap_or(""))
        }
        None => protocol_token(headers),
    };
    if let Some(token) = token {
        return Ok(proof_of(shared.keys.check_token(token.trim()), token));
    }
    let Some(cookie) = page_cookie(headers) else { return Ok(PresentedProof::Nothing) };
    // A cookie is sent whether its owner wants it or not: it counts for the server's own page alone.
    let site = headers.get("sec-fetch-site").and_then(|site| site.to_str().ok());
    let own_site = matches!(site, None | Some("same-origin" | "none"));
    let changes = !matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS);
    let known = headers.contains_key(header::ORIGIN) || site == Some("same-origin");
    // Another site can make a browser send the cookie, but cannot set these headers.
    if foreign || !own_site || (changes && !known) {
        let text = "the request does not come from the page of this server";
        let hint = "use the page of this server itself; programs show the token instead of the cookie";
        return Err(Refusal::new(StatusCode::FORBIDDEN, "origin.refused", text, hint));
    }
    Ok(proof_of(shared.keys.check_session(cookie, shared.now()), cookie))
}

fn proof_of(proof: Option<BearerProof>, secret: &str) -> PresentedProof {
    match proof {
        Some(proof) => PresentedProof::Proof(proof, Digest::of_bytes(secret.as_bytes()).to_string()),
        None => PresentedProof::Wrong,
    }
}

/// The secret of a session of the page, as the browser shows it.
pub(crate) fn page_cookie(headers: &HeaderMap) -> Option<&str> {
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = cookies.flat_map(|cookies| cookies.split(';'));
    pairs.find_map(|pair| pair.trim().strip_prefix(COOKIE)?.strip_prefix('='))
}

fn protocol_token(headers: &HeaderMap) -> Option<&str> {
    let lists =
        headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|value| value.to_str().ok());
    lists.flat_map(|list| list.split(',')).find_map(|one| one.trim().strip_prefix(BEARER_PROTOCOL))
}

fn is_guarded(path: &str) -> bool {
    GUARDED.iter().any(|guarded| is_below(path, guarded))
}

fn is_below(path: &str, above: &str) -> bool {
    path.strip_prefix(above).is_some_and(|rest| rest.is_empty() || (rest.starts_with('/') && above != "/"))
}

/// A path for the log: a link's code is a secret, and a path may be long.
fn crop_path(path: &str) -> String {
    if is_below(path, "/link") { "/link/…".to_owned() } else { path.chars().take(100).collect() }
}

/// Under which names the server may be reached.
#[derive(Clone, Debug)]
pub(crate) struct HostNames {
    port: u16,
    bound: IpAddr,
    allowed: Vec<String>,
    origins: Vec<String>,
    proxies: Vec<IpAddr>,
    base: Option<BasePath>,
}

impl HostNames {
    pub(crate) fn new(config: &super::config::ServerConfig, port: u16) -> Self {
        let lower = |list: &[String]| list.iter().map(|one| one.trim().to_ascii_lowercase()).collect();
        Self {
            port,
            bound: config.host,
            allowed: lower(&config.allowed_hosts),
            origins: lower(&config.allowed_origins),
            proxies: config.trusted_proxies.clone(),
            base: config.base_path.as_deref().and_then(BasePath::parse),
        }
    }

    /// The path below which the owner's proxy shows this server, if the settings name one.
    pub(crate) const fn base(&self) -> Option<&BasePath> {
        self.base.as_ref()
    }

    /// Returns true if a connection comes from a proxy that is trusted.
    pub(crate) fn is_proxy(&self, peer: Option<SocketAddr>) -> bool {
        peer.is_some_and(|peer| self.proxies.contains(&peer.ip()))
    }

    /// One `Host`, and that of this server; what a request line names as well.
    fn check_host(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), Refusal> {
        let mut named = headers.get_all(header::HOST).iter();
        let host = named.next().and_then(|host| host.to_str().ok());
        let only = named.next().is_none();
        // A request line with a whole address names the host a second time.
        // A second name would leave open which one was meant.
        let same = uri.authority().is_none_or(|authority| self.is_own(authority.as_str()));
        if only && same && host.is_some_and(|host| self.is_own(host)) {
            return Ok(());
        }
        let text = "this server is not known under that name";
        let hint = "add the name to server.allowed_hosts if it is yours";
        Err(Refusal::new(StatusCode::FORBIDDEN, "host.refused", text, hint))
    }

    /// Returns true if a page of another, allowed origin asks.
    fn check_origin(&self, headers: &HeaderMap) -> Result<bool, Refusal> {
        let mut origins = headers.get_all(header::ORIGIN).iter();
        let Some(origin) = origins.next() else { return Ok(false) };
        let text = origin.to_str().unwrap_or_default();
        let authority = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
        // Exactly one origin: two could be read in either order.
        if origins.next().is_none() {
            if authority.is_some_and(|authority| self.is_own(authority)) {
                return Ok(false);
            }
            if self.is_listed_origin(origin) {
                return Ok(true);
            }
        }
        let text = "pages of other servers may not ask here";
        let hint = "add the page's origin to server.allowed_origins if it is yours";
        Err(Refusal::new(StatusCode::FORBIDDEN, "origin.refused", text, hint))
    }

    fn is_listed_origin(&self, origin: &HeaderValue) -> bool {
        origin
            .to_str()
            .is_ok_and(|origin| self.origins.iter().any(|listed| listed.eq_ignore_ascii_case(origin)))
    }

    fn is_own(&self, authority: &str) -> bool {
        let authority = authority.to_ascii_lowercase();
        // The owner's list counts as it is written, with a port or without.
        if self.allowed.contains(&authority) {
            return true;
        }
        let (name, port) = match authority.rsplit_once(':') {
            Some((name, port)) if !port.ends_with(']') => (name, port.parse::<u16>().ok()),
            Some(_) | None => (authority.as_str(), Some(80)),
        };
        let bound = match self.bound {
            IpAddr::V4(address) => address.to_string(),
            IpAddr::V6(address) => format!("[{address}]"),
        };
        let own = ["localhost", "127.0.0.1", "[::1]"].contains(&name) || name == bound;
        // A name without a port is allowed with the port of the server.
        let through_a_name = self.allowed.iter().any(|allowed| allowed == name);
        port == Some(self.port) && (own || through_a_name)
    }

    /// The client's address, and whether it came through TLS: the word of a proxy counts if it is trusted.
    fn client_address(&self, peer: Option<SocketAddr>, headers: &HeaderMap) -> (IpAddr, bool) {
        let peer = peer.map_or(IpAddr::from([0, 0, 0, 0]), |peer| peer.ip());
        // Anyone could write these headers; only a trusted proxy is believed.
        if !self.proxies.contains(&peer) {
            return (peer, false);
        }
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        // The last address that is no proxy's is the client's; those before it could be invented.
        let hops = text("x-forwarded-for").unwrap_or_default().rsplit(',').map(|hop| hop.trim().parse().ok());
        let client = hops.map_while(|hop| hop).find(|hop| !self.proxies.contains(hop));
        (client.unwrap_or(peer), text("x-forwarded-proto") == Some("https"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::config::ServerConfig;
    use super::*;

    fn hosts() -> HostNames {
        let config = ServerConfig {
            allowed_hosts: vec!["Writ.example".to_owned(), "other.example:8443".to_owned()],
            allowed_origins: vec!["https://tool.example".to_owned()],
            trusted_proxies: vec![IpAddr::from([10, 0, 0, 1])],
            ..ServerConfig::default()
        };
        HostNames::new(&config, 8420)
    }

    #[test]
    fn only_the_servers_own_names_count() {
        let hosts = hosts();
        for own in [
            "localhost:8420",
            "LOCALHOST:8420",
            "127.0.0.1:8420",
            "[::1]:8420",
            "writ.example",
            "writ.example:8420",
            "other.example:8443",
        ] {
            assert!(hosts.is_own(own), "{own}");
        }
        for foreign in [
            "",
            "localhost",
            "localhost:80",
            "localhost:8421",
            "localhost:8420.evil.example",
            "evil.example:8420",
            "localhost.evil.example:8420",
            "127.0.0.1",
            "127.0.0.2:8420",
            "[::1]",
            "other.example",
            "user@localhost:8420",
            "localhost:8420:8420",
        ] {
            assert!(!hosts.is_own(foreign), "{foreign}");
        }
    }

    #[test]
    fn an_origin_is_own_listed_or_refused() {
        let hosts = hosts();
        let origin = |text: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::ORIGIN, HeaderValue::from_static(text));
            hosts.check_origin(&headers).ok()
        };
        assert_eq!(hosts.check_origin(&HeaderMap::new()).ok(), Some(false));
        assert_eq!(origin("http://localhost:8420"), Some(false));
        assert_eq!(origin("https://tool.example"), Some(true));
        for foreign in
            ["null", "http://localhost:3000", "https://evil.example", "localhost:8420", "", "file://"]
        {
            assert_eq!(origin(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn only_a_trusted_proxy_names_the_client() {
        let hosts = hosts();
        let mut headers = HeaderMap::new();
        headers.insert("x-forwarded-for", HeaderValue::from_static("1.2.3.4, 5.6.7.8, 10.0.0.1"));
        headers.insert("x-forwarded-proto", HeaderValue::from_static("https"));
        let client = |peer: [u8; 4]| hosts.client_address(Some(SocketAddr::from((peer, 1))), &headers);
        assert_eq!(client([10, 0, 0, 1]), (IpAddr::from([5, 6, 7, 8]), true));
        assert_eq!(client([9, 9, 9, 9]), (IpAddr::from([9, 9, 9, 9]), false));
    }

    #[test]
    fn a_path_is_text_when_it_is_decoded() {
        for text in ["/", "/a/b", "/%C3%A4", "/%00", "/%", "/%4", "/%zz", "/%2", "/%+1"] {
            assert!(is_text(text), "{text}");
        }
        for bytes in ["/%ff", "/%C3", "/a%80b", "/%c3%28"] {
            assert!(!is_text(bytes), "{bytes}");
        }
    }

    #[test]
    fn what_is_guarded_and_what_is_logged() {
        for path in
            ["/api", "/api/v1/state", "/ws", "/ws/x", "/v1/models", "/sessions", "/secrets/x", "/metrics"]
        {
            assert!(is_guarded(path), "{path}");
        }
        for path in ["/", "/health", "/apix", "/js/app.js", "/link/x", "/openapi.json"] {
            assert!(!is_guarded(path), "{path}");
        }
        assert_eq!(crop_path("/link/0123"), "/link/…");
        assert!(is_below("/", "/") && !is_below("/health", "/") && is_below("/link/x", "/link"));
    }
}
