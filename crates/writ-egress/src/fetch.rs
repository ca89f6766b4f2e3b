//! Fetching a URL for a permit: every hop is judged, looked up once, and connected to at the judged address only.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use reqwest::header::{
    ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue, LOCATION,
};
use reqwest::{Method, StatusCode, Url};
use tokio_util::sync::CancellationToken;
use writ_inspect::egress::host::{HostPattern, Scheme, Target};
use writ_inspect::egress::{EgressScope, Judgement, Rule, WEB_PORTS, judge_connection};
use writ_inspect::reach::asks_each_time;
use writ_policy::permit::{Permit, PermitExpired};
use writ_types::action::{Action, ActionKind, Fetch};
use writ_types::entry::{ConnectionRecord, Verdict};
use writ_types::error::{Exit, Report, ToReport};
use writ_types::unit::Timestamp;

pub(crate) mod body;

#[cfg(test)]
mod tests;

use crate::LentClient;
use crate::connect;
use crate::error::EgressError;
use crate::gatekeeper::{Gatekeeper, NotRecorded, Refusal};
use crate::host::HostPort;
use crate::line::{HostRoute, LineLimits, Way};
use crate::perform::Egress;
use body::{Coding, Collector};

/// The most redirects that are followed.
pub const MAX_REDIRECTS: usize = 5;
/// The most headers of an answer that are returned.
pub const MAX_HEADERS: usize = 64;
/// The most bytes of one of them.
pub const MAX_HEADER_BYTES: usize = 2 * 1024;
/// What heads, TLS and a little of a body that is too long may add to the bytes of a body.
const OVERHEAD: u64 = 1024 * 1024;
/// Headers of an answer that are never handed on: they are credentials.
const SECRET_HEADERS: [&str; 3] = ["set-cookie", "set-cookie2", "authorization"];

/// What is sent, and how much may come back.
#[derive(Clone, Debug)]
struct FetchRequest {
    body: Option<String>,
    content_type: Option<String>,
    body_max: u64,
    /// When it has taken too long, redirects included.
    deadline: tokio::time::Instant,
    /// Ends it before that.
    cancel: CancellationToken,
}

/// What a fetch brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchedPage {
    /// The HTTP status of the last hop.
    pub status: u16,
    /// The URL of the last hop.
    pub url: String,
    /// Headers of the last hop, by lower-case name; without credentials, and bounded by [`MAX_HEADERS`].
    pub headers: Vec<(String, String)>,
    /// The body, decompressed.
    pub body: Vec<u8>,
    /// Whether there was more than `body_max`. Nothing beyond it was read.
    pub truncated: bool,
    /// How many redirects were followed.
    pub redirects: usize,
}

/// Why a fetch brought nothing.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The permit came too late.
    #[error(transparent)]
    Expired(#[from] PermitExpired),
    /// The permit is for something else.
    #[error("a permit for '{}' fetches nothing", .0.as_str())]
    WrongAction(ActionKind),
    /// The URL, method or body is not one that can be fetched.
    #[error("this cannot be fetched: {0}")]
    BadRequest(&'static str),
    /// A hop was not made.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// A redirect leads to a place that redirects must not lead to.
    #[error("a redirect was not followed: {0}")]
    Redirect(&'static str),
    /// The way out failed.
    #[error(transparent)]
    Egress(#[from] EgressError),
    /// The host sent no proper answer.
    #[error("{host} sent no proper answer")]
    Answer {
        /// The host.
        host: String,
        /// What is wrong with it.
        why: String,
    },
    /// Its session has made enough of them in this minute.
    #[error("{most} {what} a minute are the limit")]
    TooOften {
        /// How many there may be.
        most: u32,
        /// Fetches, or requests.
        what: &'static str,
        /// When there may be another one.
        wait: Duration,
    },
    /// It took too long.
    #[error("the fetch took longer than {0:?}")]
    Timeout(Duration),
    /// A person or the engine has stopped it.
    #[error("the fetch was stopped")]
    Cancelled,
    /// The record could not be written.
    #[error(transparent)]
    NotRecorded(#[from] NotRecorded),
}

impl ToReport for FetchError {
    fn report(&self) -> Report {
        let text = self.to_string();
        match self {
            Self::Expired(_) => Report::new(Exit::Denied, "fetch.permit_expired", text)
                .with_hint("Ask again: a permit is short-lived."),
            Self::WrongAction(_) => Report::new(Exit::Bug, "fetch.wrong_action", text),
            Self::BadRequest(_) => Report::new(Exit::Usage, "fetch.bad_request", text)
                .with_hint("Fetch a plain http or https URL."),
            Self::Refused(refusal) => refusal.report(),
            Self::Redirect(_) => {
                Report::new(Exit::Denied, "fetch.redirect", text).with_hint("Fetch the other place itself.")
            }
            Self::Egress(error) => error.report(),
            Self::Answer { why, .. } => {
                let inside = format!("{text}: {why}");
                Report::new(Exit::Blocked, "fetch.answer", text).with_inside(inside)
            }
            Self::TooOften { wait, .. } => {
                let hint = format!("Go on without it, or wait {} seconds.", wait.as_secs().saturating_add(1));
                Report::new(Exit::Budget, "fetch.too_often", text).with_hint(hint)
            }
            Self::Timeout(_) => {
                Report::new(Exit::Budget, "fetch.timeout", text).with_hint("Try again later.")
            }
            Self::Cancelled => Report::new(Exit::Interrupted, "fetch.cancelled", text),
            Self::NotRecorded(_) => {
                Report::new(Exit::Blocked, "fetch.not_recorded", "the fetch could not be recorded")
                    .with_inside(text)
            }
        }
    }
}

/// One hop: a request, and the host that it goes to.
struct Hop {
    url: Url,
    target: Target,
    method: Method,
}

/// What a hop brought.
struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Collector,
    received: u64,
}

impl Egress {
    /// Performs [`Action::Fetch`]. The permit stands for the host that its URL names; every other host on the way is
    /// judged as the scope says, and every address of every host is. At most `body_max` bytes of the answer's body are
    /// returned, after decompression.
    ///
    /// No cookie, no credential and no referrer is sent, also not by redirects; `https` is never left for `http`; a
    /// body is sent on to the same host at most.
    ///
    /// # Errors
    ///
    /// If the permit is too old or for something else, if its session has fetched too often, if a hop is refused or asked about, if no proper answer came in
    /// time, or if `cancel` came first. What was begun is recorded then, too.
    pub async fn fetch(
        &self,
        permit: Permit,
        now: Timestamp,
        body_max: u64,
        gatekeeper: &dyn Gatekeeper,
        cancel: &CancellationToken,
    ) -> Result<FetchedPage, FetchError> {
        let is_approved = permit.is_approved_by_itself();
        let prepared = permit.open(now)?.prepared;
        let kind = prepared.action.kind();
        let Action::Fetch(fetch) = prepared.action else { return Err(FetchError::WrongAction(kind)) };
        // Requests without a session share one window.
        let session = prepared.session.map(|session| session.to_string()).unwrap_or_default();
        let admitted = self.admit(&session, &fetch);
        // A fetch that a person has approved alone is counted and not refused: people do not approve a hundred of them. An
        // approval of a plan, or of a pattern, covers many.
        if !is_approved {
            admitted?;
        }
        self.follow(&fetch, body_max, gatekeeper, cancel).await
    }

    /// Counts a fetch of a session, or a request that is more than a plain reading.
    fn admit(&self, session: &str, fetch: &Fetch) -> Result<(), FetchError> {
        let (windows, most, what) = if fetch.method == "GET" && fetch.body.is_none() {
            (&self.fetches, self.fetches_per_minute, "fetches")
        } else {
            (&self.requests, self.requests_per_minute, "requests")
        };
        let admitted = windows.admit_connection(session, most, tokio::time::Instant::now());
        admitted.map_err(|wait| FetchError::TooOften { most, what, wait })
    }

    /// Follows a URL for which a permit has been consumed.
    pub(crate) async fn follow(
        &self,
        fetch: &Fetch,
        body_max: u64,
        gatekeeper: &dyn Gatekeeper,
        cancel: &CancellationToken,
    ) -> Result<FetchedPage, FetchError> {
        let (body, content_type) = (fetch.body.clone(), fetch.content_type.clone());
        let cancel = cancel.clone();
        let deadline = tokio::time::Instant::now() + self.fetch_timeout;
        self.hops(fetch, FetchRequest { body, content_type, body_max, deadline, cancel }, gatekeeper).await
    }

    async fn hops(
        &self,
        fetch: &Fetch,
        mut request: FetchRequest,
        gatekeeper: &dyn Gatekeeper,
    ) -> Result<FetchedPage, FetchError> {
        // The permit stands for the first host alone; later hosts are judged anew.
        let mut hop = first(fetch)?;
        if request.body.is_some() && !takes_body(&hop.method) {
            return Err(FetchError::BadRequest("this method has no body"));
        }
        let target = hop.target.clone();
        for redirects in 0..=MAX_REDIRECTS {
            // The scope of now: an answer of a person while a fetch goes on counts from the
            // next hop.
            let mut scope = EgressScope::clone(&*gatekeeper.current_scope().await);
            let permitted = permitted(&scope, &target);
            scope.granted.extend(permitted);
            let answer = self.hop(&hop, &request, &scope, gatekeeper).await?;
            let Some(location) = location(&answer) else { return Ok(fetched(hop, answer, redirects)) };
            hop = next(&hop, answer.status, location?, &mut request)?;
        }
        Err(FetchError::Redirect("there are too many"))
    }

    /// Makes one hop and records it.
    async fn hop(
        &self,
        hop: &Hop,
        request: &FetchRequest,
        scope: &EgressScope,
        gatekeeper: &dyn Gatekeeper,
    ) -> Result<Answer, FetchError> {
        let began = Instant::now();
        // A fetch that is cut off here is recorded like any other, because its request may have been sent.
        let asking = self.ask(hop, request, scope, gatekeeper);
        let (reached, answer) = tokio::select! {
            biased;
            () = request.cancel.cancelled() => (None, Err(FetchError::Cancelled)),
            asked = tokio::time::timeout_at(request.deadline, asking) => {
                asked.unwrap_or_else(|_| (None, Err(FetchError::Timeout(self.fetch_timeout))))
            }
        };
        let (verdict, rule) = match (&answer, reached) {
            (Ok(_), Some((_, rule))) => (Verdict::Allowed, rule.as_str()),
            (Err(FetchError::Refused(refusal)), _) => (refusal.record_verdict(), refusal.rule()),
            (Err(FetchError::Timeout(_)), _) => (Verdict::Failed, "egress.timeout"),
            (Err(FetchError::Cancelled), _) => (Verdict::Failed, "egress.cancelled"),
            (Err(_), _) | (Ok(_), None) => (Verdict::Failed, "egress.bad_answer"),
        };
        let sent = request.body.as_ref().map_or(0, String::len);
        let record = ConnectionRecord {
            host: hop.target.host.to_string(),
            port: hop.target.port,
            address: reached.and_then(|(address, _)| address),
            verdict,
            rule: rule.to_owned(),
            sent: u64::try_from(sent).unwrap_or(u64::MAX),
            received: answer.as_ref().map_or(0, |answer| answer.received),
            ms: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
            credential: None,
        };
        // An answer that cannot be recorded is not returned.
        gatekeeper.store_records(vec![record]).await?;
        answer
    }

    /// Judges a hop, connects and reads the answer. Also returns the first of the judged addresses.
    async fn ask(
        &self,
        hop: &Hop,
        request: &FetchRequest,
        scope: &EgressScope,
        gatekeeper: &dyn Gatekeeper,
    ) -> (Option<(Option<IpAddr>, Rule)>, Result<Answer, FetchError>) {
        let judging = async {
            let credentials = gatekeeper.credentials();
            // A fetch has no place for a credential, so a placeholder in it is a mistake.
            for text in [Some(&hop.url.to_string()), request.body.as_ref(), request.content_type.as_ref()] {
                credentials
                    .forbid_placeholders(&hop.target, text.map(String::as_bytes).unwrap_or_default())?;
            }
            let rule = connect::judge_name(gatekeeper, scope, &hop.target).await?;
            let secure = hop.target.scheme == Scheme::Https;
            connect::judge_addresses(&self.resolver, &self.routes, scope, (&hop.target, secure, rule)).await
        };
        let judged: Result<_, Refusal> = judging.await;
        let judged = match judged {
            Ok(judged) => judged,
            Err(refusal) => return (None, Err(refusal.into())),
        };
        // The address to which an upstream proxy connects is not known here.
        let address = judged.addresses.first().filter(|_| judged.proxy.is_none()).map(SocketAddr::ip);
        let reached = Some((address, judged.rule));
        let host: HostPort = match format!("{}:{}", hop.target.host, hop.target.port).parse() {
            Ok(host) => host,
            Err(why) => return (reached, Err(EgressError::from(why).into())),
        };
        let place = judged.proxy.map_or(HostRoute::Judged(judged.addresses), HostRoute::Through);
        let way = Way { host, place };
        // Heads and the frame of the body come on top of it.
        let limits = LineLimits { received: request.body_max.saturating_add(OVERHEAD), ..self.limits };
        let answer = match self.lend_client(way, limits, |lent| exchange(lent, hop, request)).await {
            Ok(answer) => answer,
            Err(why) => Err(why.into()),
        };
        (reached, answer)
    }
}

/// The first hop of a permit.
fn first(fetch: &Fetch) -> Result<Hop, FetchError> {
    let method = Method::from_bytes(fetch.method.as_bytes())
        .ok()
        .filter(|method| *method != Method::CONNECT && *method != Method::TRACE)
        .ok_or(FetchError::BadRequest("this is no method for a fetch"))?;
    let (url, target) = read_url(&fetch.url).ok_or(FetchError::BadRequest("this is no plain URL"))?;
    Ok(Hop { url, target, method })
}

/// What a permit for a target opens: its host on its port, and on that of https where http sends on to it. A port that
/// is not the web's must be listed, also if the host is permitted; where it is, and is to be asked about each time, the
/// permit is the answer.
fn permitted(scope: &EgressScope, target: &Target) -> Vec<HostPattern> {
    let on = |port| HostPattern::exact_host(target.host.clone(), Some(port));
    let web = WEB_PORTS.contains(&target.port);
    let asks = matches!(judge_connection(scope, target, None), Judgement::Ask { .. });
    let mut opened = if web || asks { vec![on(target.port)] } else { Vec::new() };
    let secure = Target { port: Scheme::Https.default_port(), ..target.clone() };
    if target.port == Scheme::Http.default_port() && !asks_each_time(scope, &secure) {
        opened.push(on(secure.port));
    }
    opened
}

/// Reads a URL twice, by our own strict rules and by the library's: both must see the same host.
fn read_url(text: &str) -> Option<(Url, Target)> {
    let target = Target::from_url(text).ok()?;
    let mut url = Url::parse(text).ok()?;
    let same = url.scheme() == target.scheme.as_str()
        && url.host_str() == Some(target.host.to_string().as_str())
        && url.port_or_known_default() == Some(target.port)
        && url.username().is_empty()
        && url.password().is_none();
    // A fragment is for the reader and never sent.
    url.set_fragment(None);
    same.then_some((url, target))
}

/// Whether a request of this method may carry a body.
fn takes_body(method: &Method) -> bool {
    matches!(*method, Method::POST | Method::PUT | Method::PATCH | Method::DELETE)
}

/// Where an answer sends us on to.
fn location(answer: &Answer) -> Option<Result<&str, FetchError>> {
    let redirects = [301, 302, 303, 307, 308];
    let location = answer.headers.get(LOCATION).filter(|_| redirects.contains(&answer.status.as_u16()))?;
    Some(location.to_str().map_err(|_| FetchError::Redirect("its target is no plain URL")))
}

/// The hop that a redirect asks for.
fn next(
    hop: &Hop,
    status: StatusCode,
    location: &str,
    request: &mut FetchRequest,
) -> Result<Hop, FetchError> {
    let joined = hop.url.join(location).map_err(|_| FetchError::Redirect("its target is no plain URL"))?;
    let (url, target) =
        read_url(joined.as_str()).ok_or(FetchError::Redirect("its target is no plain URL"))?;
    // On the way the rest could be read and changed.
    if hop.target.scheme == Scheme::Https && target.scheme == Scheme::Http {
        return Err(FetchError::Redirect("it leaves https for http"));
    }
    let safe = matches!(hop.method, Method::GET | Method::HEAD);
    // Browsers and servers agree that 301, 302 and 303 of anything else mean: get it there.
    let method = if safe || matches!(status.as_u16(), 307 | 308) { hop.method.clone() } else { Method::GET };
    if !matches!(method, Method::GET | Method::HEAD) && target != hop.target {
        return Err(FetchError::Redirect("it would send what was permitted for one host to another"));
    }
    // A body that was dropped on the way is not sent again by a later hop.
    if !takes_body(&method) {
        request.body = None;
        request.content_type = None;
    }
    Ok(Hop { url, target, method })
}

/// Sends the request and reads the answer, as far as it may be read.
async fn exchange(lent: LentClient, hop: &Hop, request: &FetchRequest) -> Result<Answer, FetchError> {
    let failed = |why: &dyn std::fmt::Display| FetchError::Answer {
        host: hop.target.host.to_string(),
        why: why.to_string(),
    };
    let mut sending = lent
        .client
        .request(hop.method.clone(), hop.url.clone())
        .header(ACCEPT, "*/*")
        .header(ACCEPT_ENCODING, "gzip");
    if let Some(body) = &request.body {
        sending = sending.body(body.clone());
    }
    if let Some(media) = request.content_type.as_deref().and_then(|text| HeaderValue::from_str(text).ok()) {
        sending = sending.header(CONTENT_TYPE, media);
    }
    let mut answer = sending.send().await.map_err(|why| failed(&why))?;
    let (status, headers) = (answer.status(), answer.headers().clone());
    // A server that ignores Accept-Encoding could send a form that is not bounded here.
    let coding = Coding::of(headers.get_all(CONTENT_ENCODING).iter().map(HeaderValue::as_bytes))
        .ok_or_else(|| failed(&"its encoding was not asked for"))?;
    let mut body = Collector::new(coding, request.body_max);
    // Reading stops at the bound: the rest is never asked for.
    while !body.is_full() {
        match answer.chunk().await.map_err(|why| failed(&why))? {
            Some(chunk) => body.push_bytes(&chunk).map_err(|why| failed(&why))?,
            None => {
                body.finish_body().map_err(|why| failed(&why))?;
                break;
            }
        }
    }
    Ok(Answer { status, headers, body, received: lent.received_bytes() })
}

fn fetched(hop: Hop, answer: Answer, redirects: usize) -> FetchedPage {
    let headers = answer
        .headers
        .iter()
        // Cookies and challenges are for browsers, and could identify the owner.
        .filter(|(name, _)| !SECRET_HEADERS.contains(&name.as_str()))
        .filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)))
        .filter(|(_, value)| value.len() <= MAX_HEADER_BYTES)
        .take(MAX_HEADERS)
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    let (body, truncated) = answer.body.into_parts();
    FetchedPage { status: answer.status.as_u16(), url: hop.url.into(), headers, body, truncated, redirects }
}
