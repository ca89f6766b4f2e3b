//! The security proxy of this home, over its socket for the router. It may be away: requests fail then, and are tried again.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue};
use hyper::{Method, Request, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use writ_egress::local::LocalServer;
use writ_policy::keys::TASK_KEY_TTL;
use writ_store::reads::KeyReads as _;
use writ_types::id::KeyId;
use writ_types::unit::Timestamp;

use super::ports::{CaseTokenSource, GuestNames, PortFault, TokenPair};
use super::router::CaseRouter;
use crate::anomalies::{FleetEvent, Measure};

/// The time in which the proxy must answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);
/// The time for which the proxy holds a request for events back, in seconds.
const WAIT_SECS: u64 = 20;
/// The largest answer, in bytes.
const MAX_ANSWER_BYTES: usize = 1024 * 1024;
/// The largest file of a token, in bytes.
const MAX_TOKEN_BYTES: u64 = 4 * 1024;
/// The most revocations that wait to be passed on; with more, all that count are read from the store and passed on again.
const MAX_WAITING: usize = 1_024;
/// The most that are passed on at once.
const MAX_AT_ONCE: usize = 64;
/// The pause before a proxy that is away is asked again.
const AWAY_PAUSE: Duration = Duration::from_secs(1);

/// The security proxy, as its router reaches it.
#[derive(Debug)]
pub struct ProxyLink {
    server: LocalServer,
    token: PathBuf,
    revoked: mpsc::Sender<KeyId>,
    /// A revoked key found no room among those that wait.
    is_behind: AtomicBool,
    /// Taken by the task that passes them on.
    waiting: Mutex<Option<mpsc::Receiver<KeyId>>>,
}

/// The tokens of a case, as the proxy answers.
#[derive(Deserialize)]
struct OpenedCase {
    customer_token: String,
    case_token: String,
    /// The keyed hash of the customer.
    #[serde(default)]
    customer_fingerprint: String,
}

/// Events, as the proxy answers.
#[derive(Deserialize)]
struct EventPage {
    events: Vec<EventRow>,
    /// The number of the newest event of all.
    newest: u64,
    /// The number of events that were dropped before they were read.
    missed: u64,
}

/// A thing that an agent did at the proxy.
#[derive(Deserialize)]
struct EventRow {
    n: u64,
    at: Timestamp,
    agent: String,
    case_token: String,
    /// The fingerprint.
    customer: String,
    measure: String,
    amount: u64,
}

impl EventRow {
    /// Returns the event; none: this router counts nothing of the kind.
    fn into_event(self) -> Option<FleetEvent> {
        let Self { n: _, at, agent, case_token: case, customer, measure, amount } = self;
        let measure = Measure::find(&measure)?;
        Some(FleetEvent { at, agent, case, customer, measure, amount })
    }
}

impl ProxyLink {
    /// Names the proxy by its folder; nothing is connected to.
    pub fn at(folder: &Path) -> Self {
        let (revoked, waiting) = mpsc::channel(MAX_WAITING);
        Self {
            server: LocalServer::at(folder.join("router.sock")),
            token: folder.join("router.token"),
            revoked,
            is_behind: AtomicBool::new(false),
            waiting: Mutex::new(Some(waiting)),
        }
    }

    /// Passes on revoked keys until `stop`, or the end of the link. At first, and after each failure, all revocations of
    /// keys that have not ended: a proxy that does not read the engine's database has no others.
    pub async fn pass_on_revocations(&self, router: &CaseRouter, stop: CancellationToken) {
        let waiting = self.waiting.lock().ok().and_then(|mut waiting| waiting.take());
        let Some(mut waiting) = waiting else { return };
        // Those of an earlier router may not have reached it.
        self.is_behind.store(true, Ordering::SeqCst);
        let mut keys = Vec::new();
        loop {
            // Cleared first: a key that finds no room from here on sets it again.
            if self.is_behind.swap(false, Ordering::SeqCst)
                && let Err(error) = self.pass_on_all(router).await
            {
                self.is_behind.store(true, Ordering::SeqCst);
                tracing::debug!(%error, "revoked keys could not be passed on to the security proxy yet");
                tokio::select! {
                    () = tokio::time::sleep(AWAY_PAUSE) => continue,
                    () = stop.cancelled() => return,
                }
            }
            tokio::select! {
                received = waiting.recv_many(&mut keys, MAX_AT_ONCE) => if received == 0 { return },
                () = stop.cancelled() => return,
            }
            let ids: Vec<String> = keys.drain(..).map(|key| key.to_string()).collect();
            // A task key that was minted by now ends by then.
            let ends = router.0.keys.now().plus_duration(TASK_KEY_TTL);
            if let Err(error) = self.pass_on(&ids, Some(ends)).await {
                tracing::debug!(%error, "revoked keys are passed on again");
                self.is_behind.store(true, Ordering::SeqCst);
            }
        }
    }

    async fn pass_on_all(&self, router: &CaseRouter) -> Result<(), PortFault> {
        let keys = &router.0.keys;
        let mut after = String::new();
        loop {
            let page = keys.store().revocations_after(keys.now(), &after, MAX_AT_ONCE).await;
            let page = page.map_err(|error| PortFault(error.to_string()))?;
            let Some((last, _)) = page.last() else { return Ok(()) };
            after.clone_from(last);
            // The last end of them; one without an end makes it none.
            let ends = page.iter().map(|(_, ends)| *ends).reduce(|a, b| Some(a?.max(b?))).flatten();
            let ids: Vec<String> = page.into_iter().map(|(id, _)| id).collect();
            self.pass_on(&ids, ends).await?;
        }
    }

    async fn pass_on(&self, ids: &[String], ends: Option<Timestamp>) -> Result<(), PortFault> {
        let body = json!({ "ids": ids, "expires": ends.map(|ends| ends.to_string()) });
        self.ask(Method::POST, "/v1/revocations", Some(body)).await.and_then(expect_success).map(drop)
    }

    /// Hands what agents do at the proxy to a router, until `stop`.
    pub async fn watch_events(&self, router: &CaseRouter, stop: CancellationToken) {
        // What was done under an earlier router counts for no one who holds a case now.
        let started = router.0.keys.now();
        let mut after = 0;
        loop {
            let next = tokio::select! {
                next = self.next_events(after) => next,
                () = stop.cancelled() => return,
            };
            let pause = match next {
                Ok(page) => {
                    after = page.events.last().map_or(page.newest, |event| event.n);
                    if page.missed > 0 {
                        tracing::warn!(missed = page.missed, "events of the security proxy were missed");
                    }
                    let events = page.events.into_iter().filter(|event| event.at >= started);
                    for event in events.filter_map(EventRow::into_event) {
                        if let Err(error) = router.observe_event(&event).await {
                            tracing::error!(%error, "a rule about anomalies could not be applied");
                        }
                    }
                    continue;
                }
                Err(error) => {
                    tracing::debug!(%error, "the security proxy shows no events");
                    AWAY_PAUSE
                }
            };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = stop.cancelled() => return,
            }
        }
    }

    async fn next_events(&self, after: u64) -> Result<EventPage, PortFault> {
        let path = format!("/v1/events?after={after}&wait={WAIT_SECS}");
        let limit = ANSWER_LIMIT.saturating_add(Duration::from_secs(WAIT_SECS));
        let answer = self.ask_within(limit, (Method::GET, &path), None).await.and_then(expect_success)?;
        serde_json::from_value(answer).map_err(|error| PortFault(format!("its events: {error}")))
    }

    /// Has a text of a case changed.
    async fn change_text(&self, (token, verb): (&str, &str), text: &str) -> Result<String, PortFault> {
        let path = format!("/v1/cases/{token}/{verb}");
        let asked = self.ask(Method::POST, &path, Some(json!({ "text": text }))).await;
        let answer = asked.and_then(expect_success)?;
        let changed = answer["text"].as_str().map(str::to_owned);
        changed.ok_or_else(|| PortFault("its answer has no text".to_owned()))
    }

    /// Sends one request, and reads the whole answer.
    async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> Result<(StatusCode, Value), PortFault> {
        self.ask_within(ANSWER_LIMIT, (method, path), body).await
    }

    async fn ask_within(
        &self,
        limit: Duration,
        (method, path): (Method, &str),
        body: Option<Value>,
    ) -> Result<(StatusCode, Value), PortFault> {
        let fault = |error: &dyn std::fmt::Display| PortFault(error.to_string());
        // Read each time: the proxy may have been set up anew.
        let token = self.read_token().map_err(|error| PortFault(format!("its token: {error}")))?;
        let mut bearer = HeaderValue::try_from(format!("Bearer {token}")).map_err(|error| fault(&error))?;
        bearer.set_sensitive(true);
        let body = body.map(|body| Bytes::from(body.to_string())).unwrap_or_default();
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, "security-proxy")
            .header(CONTENT_TYPE, "application/json")
            .header(AUTHORIZATION, bearer)
            .body(Full::new(body))
            .map_err(|error| fault(&error))?;
        let answer = self.server.send_request(request, limit).await.map_err(|error| fault(&error))?;
        let status = answer.response.status();
        let read = Limited::new(answer.response.into_body(), MAX_ANSWER_BYTES).collect();
        let read = tokio::time::timeout(ANSWER_LIMIT, read).await;
        let read = read.map_err(|_| PortFault("its answer does not end".to_owned()))?;
        let read = read.map_err(|error| fault(&error))?.to_bytes();
        let value =
            serde_json::from_slice(&read).map_err(|error| PortFault(format!("its answer: {error}")))?;
        Ok((status, value))
    }

    fn read_token(&self) -> io::Result<String> {
        let mut token = String::new();
        File::open(&self.token)?.take(MAX_TOKEN_BYTES).read_to_string(&mut token)?;
        Ok(token.trim().to_owned())
    }
}

fn expect_success((status, answer): (StatusCode, Value)) -> Result<Value, PortFault> {
    if status.is_success() {
        return Ok(answer);
    }
    let why = answer["error"].as_str().unwrap_or("it gives no reason");
    Err(PortFault(format!("it answers {}: {why}", status.as_u16())))
}

impl CaseTokenSource for ProxyLink {
    fn open_tokens<'a>(&'a self, names: &'a GuestNames) -> BoxFuture<'a, Result<TokenPair, PortFault>> {
        async move {
            let GuestNames { customer, case, tenant, known } = names;
            let body = json!({ "customer": customer, "case": case, "tenant": tenant, "known": known });
            let answer = self.ask(Method::POST, "/v1/cases", Some(body)).await.and_then(expect_success)?;
            let opened = serde_json::from_value(answer);
            let opened: OpenedCase = opened.map_err(|error| PortFault(format!("its tokens: {error}")))?;
            let OpenedCase { customer_token, case_token, customer_fingerprint: fingerprint } = opened;
            Ok(TokenPair { customer_token, case_token, fingerprint })
        }
        .boxed()
    }

    fn mask_text<'a>(
        &'a self,
        case_token: &'a str,
        text: &'a str,
    ) -> BoxFuture<'a, Result<String, PortFault>> {
        self.change_text((case_token, "mask"), text).boxed()
    }

    fn restore_text<'a>(
        &'a self,
        case_token: &'a str,
        text: &'a str,
    ) -> BoxFuture<'a, Result<String, PortFault>> {
        self.change_text((case_token, "restore"), text).boxed()
    }

    fn close_tokens<'a>(&'a self, case_token: &'a str) -> BoxFuture<'a, Result<(), PortFault>> {
        async move {
            let path = format!("/v1/cases/{case_token}");
            let (status, answer) = self.ask(Method::DELETE, &path, None).await?;
            // It was closed before, or is of an earlier life of the proxy.
            if status == StatusCode::NOT_FOUND {
                return Ok(());
            }
            expect_success((status, answer)).map(drop)
        }
        .boxed()
    }

    fn revoke_keys(&self, ids: &[KeyId]) {
        for id in ids {
            if self.revoked.try_send(*id).is_err() {
                self.is_behind.store(true, Ordering::SeqCst);
            }
        }
    }
}
