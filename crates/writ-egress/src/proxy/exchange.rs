//! Serving one client connection: each request is read, judged, reached for and carried.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use hyper::header::HeaderMap;
use hyper::service::service_fn;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper::{Method, Request, Response, StatusCode, http};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::OwnedSemaphorePermit;
use writ_inspect::egress::credential::Misuse;
use writ_inspect::egress::host::Target;
use writ_inspect::redact::SecretWatch;

use super::answer::{self, Body};
use super::body::{FoundFlag, Passed};
use super::flow::{Counted, Flow, Place};
use super::{Serving, head, hello, request};
use crate::connect::{self, Reached, Speech, Stream};
use crate::credential::{self, Credentials, MisuseError, Swap};
use crate::gatekeeper::Refusal;
use crate::relay::login_refused;
use crate::upstream::Upstream;
use writ_types::entry::Verdict;

/// Bytes carried at once each way. A TLS record is at most 16 KiB, so larger steps gain nothing.
const STEP: usize = 16 * 1024;
/// The most headers of one message.
pub(crate) const HEADERS_MAX: usize = 100;

/// One client connection.
#[derive(Debug)]
pub(crate) struct ProxyConnection {
    pub(crate) serving: Arc<Serving>,
    /// The place for the first request's record; later requests wait for one of their own.
    place: Mutex<Option<Place>>,
    /// Held as long as anything of the connection lives.
    _slot: OwnedSemaphorePermit,
}

/// The texts to search for on the way.
#[derive(Debug)]
pub(crate) struct Looks {
    /// In the request's body, where none may be.
    pub(crate) placeholders: Option<SecretWatch>,
    /// In the answer, where they are masked.
    pub(crate) values: Option<SecretWatch>,
    /// The note that a placeholder was found.
    pub(crate) found: FoundFlag,
    /// The network's proxy that the request goes to, and the host that it is for.
    proxy: Option<(String, Arc<Upstream>)>,
}

impl Looks {
    /// Puts a secret into a request that may have one, and says what is looked for from here on.
    pub(crate) fn after_answer(
        credentials: &Credentials,
        target: &Target,
        swap: Option<Swap<'_>>,
        headers: &mut HeaderMap,
        flow: &Arc<Flow>,
    ) -> Self {
        if let Some(swap) = swap {
            flow.lend_stream(swap.name());
            swap.apply_credential(headers);
        }
        let (placeholders, values) = (credentials.placeholder_watch(), credentials.values_for(target));
        Self { placeholders, values, found: FoundFlag::none_yet(flow), proxy: None }
    }
}

/// Serves a connection to its end.
pub(crate) async fn serve_requests(
    serving: Arc<Serving>,
    client: Stream,
    place: Place,
    slot: OwnedSemaphorePermit,
) {
    let limits = serving.limits;
    let (mut reader, mut writer) = client.into_split();
    // The head is read and checked here first, before the library's parser sees a byte of it.
    let first = tokio::select! {
        first = head::read_head(&mut reader, limits.head_bytes, limits.head) => first,
        () = serving.cut.cancelled() => return,
    };
    let first = match first {
        Ok(first) => first,
        Err(fault) => {
            serving.begin(place).end_flow(Verdict::Malformed, fault.fault_code());
            // A client that does not read it has left.
            let _ = writer.write_all(&answer::head_fault(fault)).await;
            let _ = writer.shutdown().await;
            return;
        }
    };
    let cut = serving.cut.clone();
    let connection = Arc::new(ProxyConnection { serving, place: Mutex::new(Some(place)), _slot: slot });
    // The library reads the checked bytes again, then the rest of the stream.
    let whole = tokio::io::join(std::io::Cursor::new(first).chain(reader), writer);
    let service = service_fn(|request| {
        let connection = Arc::clone(&connection);
        async move { Ok::<_, Infallible>(connection.handle_connection(request).await) }
    });
    let http = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head)
        .max_buf_size(limits.head_bytes)
        .max_headers(HEADERS_MAX)
        .serve_connection(TokioIo::new(whole), service)
        .with_upgrades();
    let served = tokio::select! {
        served = http => served,
        () = tokio::time::sleep(limits.total) => Ok(()),
        () = cut.cancelled() => Ok(()),
    };
    if let Err(why) = served {
        tracing::debug!(%why, "a connection to the proxy ended badly");
        // The library has answered what is no request at all.
        if let Some(place) = connection.place.lock().unwrap_or_else(PoisonError::into_inner).take() {
            connection.serving.begin(place).end_flow(Verdict::Malformed, "proxy.bad_request");
        }
    }
}

impl ProxyConnection {
    /// Answers one request.
    async fn handle_connection(self: Arc<Self>, request: Request<Incoming>) -> Response<Body> {
        let Some(flow) = self.begin_flow().await else { return answer::bad_gateway("proxy.stopped") };
        let (mut head, body) = request.into_parts();
        let target = match request::request_target(&head) {
            Ok(target) => target,
            Err(fault) => {
                flow.end_flow(Verdict::Malformed, fault.fault_code());
                return answer::malformed_answer(fault);
            }
        };
        flow.set_name(&target);
        let refuse = |refusal: Refusal| {
            flow.end_flow(refusal.record_verdict(), refusal.rule());
            answer::refusal_answer(&refusal)
        };
        // Fetched for each request: a credential that the owner removes stops working at once.
        let credentials = self.serving.gatekeeper.credentials();
        let swap = match credentials.judge_use(&head, &target, false) {
            Ok(swap) => swap,
            Err(misused) => return refuse(misused.into()),
        };
        if head.method == Method::CONNECT
            && credentials.opens_target(&target)
            && let Some(authority) = self.serving.authority.clone()
        {
            let client = hyper::upgrade::on(Request::from_parts(head, body));
            return self.open_tunnel(client, target, authority, flow).await;
        }
        let websocket = request::is_websocket(&head.headers);
        let speech = match (head.method == Method::CONNECT, websocket) {
            (true, _) => Speech::Tunnel,
            (false, true) => Speech::PlainTunnel,
            (false, false) => Speech::Plain,
        };
        let Reached { stream, proxy, .. } = match self.reach_target(&target, speech, &flow).await {
            Ok(reached) => reached,
            Err(refusal) => return refuse(refusal),
        };
        // Every byte from here on counts, and a limit cuts the stream.
        let stream = Counted::new(stream, Arc::clone(&flow));
        if head.method == Method::CONNECT {
            let client = hyper::upgrade::on(Request::from_parts(head, body));
            self.serving.tasks.spawn(Arc::clone(&self).carry_tunnel(client, stream, target, flow));
            return answer::tunnel_answer();
        }
        if websocket && let Some(name) = credentials.bound_to(&target) {
            // The content of a WebSocket could not be masked.
            return refuse(MisuseError { name, why: Misuse::Upgrade }.into());
        }
        // Only a WebSocket may take the connection over.
        let upgrade = head.extensions.remove::<OnUpgrade>().filter(|_| websocket);
        request::rewrite_head(&mut head, &target, websocket);
        if let Some(proxy) = &proxy
            && request::request_address(&mut head, proxy).is_err()
        {
            flow.end_flow(Verdict::Failed, "egress.proxy");
            return answer::bad_gateway("egress.proxy");
        }
        let mut looks = Looks::after_answer(&credentials, &target, swap, &mut head.headers, &flow);
        looks.proxy = proxy.map(|proxy| (target.host.to_string(), proxy));
        self.forward_request(Request::from_parts(head, body), upgrade, stream, flow, looks).await
    }

    /// A flow with a place for its record. `None`: the proxy is ending.
    pub(crate) async fn begin_flow(&self) -> Option<Arc<Flow>> {
        let first = self.place.lock().unwrap_or_else(PoisonError::into_inner).take();
        let place = match first {
            Some(place) => place,
            None => self.serving.place().await?,
        };
        Some(self.serving.begin(place))
    }

    /// Judges a target and connects to it.
    pub(crate) async fn reach_target(
        &self,
        target: &Target,
        speech: Speech,
        flow: &Flow,
    ) -> Result<Reached, Refusal> {
        let serving = &self.serving;
        // Rates come before the judgement, which may ask a person.
        serving.admit(target)?;
        let scope = serving.gatekeeper.current_scope().await;
        let rule = connect::judge_name(&*serving.gatekeeper, &scope, target).await?;
        let (resolver, limit) = (&serving.resolver, serving.limits.connect);
        let reached =
            connect::connect_judged(resolver, &serving.routes, &scope, (target, speech, rule), limit).await?;
        flow.note_connected(reached.address, rule.as_str());
        Ok(reached)
    }

    /// Carries what is in a tunnel, once it is clear that it is meant for the tunnel's host.
    async fn carry_tunnel(
        self: Arc<Self>,
        client: OnUpgrade,
        mut host: Counted<Stream>,
        target: Target,
        flow: Arc<Flow>,
    ) {
        let limits = self.serving.limits;
        let Ok(Ok(client)) = tokio::time::timeout(limits.head, client).await else {
            return flow.end_flow(Verdict::Cut, "tunnel.ended");
        };
        let mut client = TokioIo::new(client);
        // The owner can let tunnels to a host carry another protocol than TLS.
        if !self.serving.gatekeeper.current_scope().await.is_opaque(&target) {
            let first = tokio::select! {
                first = hello::read_hello(&mut client, &target.host, limits.head) => first,
                () = self.serving.cut.cancelled() => return flow.end_flow(Verdict::Cut, "limit.stopped"),
            };
            match first {
                Ok(bytes) => {
                    if host.write_all(&bytes).await.is_err() {
                        return flow.end_flow(Verdict::Failed, "egress.unreachable");
                    }
                }
                Err(fault) => return flow.end_flow(Verdict::Cut, fault.fault_code()),
            }
        }
        self.carry_bytes(client, host, &flow).await;
    }

    /// Carries bytes both ways until both have ended, or a limit cuts them.
    async fn carry_bytes(
        &self,
        mut client: TokioIo<Upgraded>,
        mut host: impl AsyncRead + AsyncWrite + Unpin,
        flow: &Flow,
    ) {
        let limits = self.serving.limits;
        tokio::select! {
            carried = tokio::io::copy_bidirectional_with_sizes(&mut client, &mut host, STEP, STEP) => {
                if let Err(why) = carried {
                    tracing::trace!(%why, "a tunnel ended badly");
                }
            }
            () = flow.is_overdue(limits.idle, limits.total) => {}
            () = self.serving.cut.cancelled() => flow.end_flow(Verdict::Cut, "limit.stopped"),
        }
    }

    /// Passes a plain request on, and its answer back.
    pub(crate) async fn forward_request(
        self: &Arc<Self>,
        mut request: Request<Incoming>,
        client: Option<OnUpgrade>,
        host: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        flow: Arc<Flow>,
        looks: Looks,
    ) -> Response<Body> {
        if looks.values.is_some() {
            credential::ask_plain(request.headers_mut());
        }
        let forbidden = looks.placeholders.clone();
        let request = request.map(|body| Passed::forbidding_body(body, forbidden, &looks.found));
        let handshake = hyper::client::conn::http1::Builder::new()
            .max_buf_size(self.serving.limits.head_bytes)
            .max_headers(HEADERS_MAX)
            .handshake(TokioIo::new(host));
        let Ok((mut sender, connection)) = handshake.await else {
            flow.end_flow(Verdict::Failed, "egress.unreachable");
            return answer::bad_gateway("egress.unreachable");
        };
        let (limits, cut, held) = (self.serving.limits, self.serving.cut.clone(), Arc::clone(&flow));
        // The connection counts until its host's side has ended, too.
        let alive = Arc::clone(self);
        self.serving.tasks.spawn(async move {
            // Either may end first: the record is written when both this and the exchange are over.
            tokio::select! {
                ended = connection.with_upgrades() => {
                    if let Err(why) = ended {
                        tracing::trace!(%why, "a host ended a connection badly");
                    }
                }
                () = held.is_overdue(limits.idle, limits.total) => {}
                () = cut.cancelled() => held.end_flow(Verdict::Cut, "limit.stopped"),
            }
            drop(alive);
        });
        match sender.send_request(request).await {
            Ok(answer) => match (login_refused(&answer), &looks.proxy) {
                (Some(why), Some((host, proxy))) => {
                    let refusal = Refusal::Proxy { host: host.clone(), proxy: proxy.to_string(), why };
                    flow.end_flow(refusal.record_verdict(), refusal.rule());
                    answer::refusal_answer(&refusal)
                }
                (_, _) => self.pass_back(answer, client, &flow, &looks),
            },
            // The body ended at a placeholder: that is the client's mistake, not the host's.
            Err(_) if looks.found.is_set() => answer::placeholder_in_body(),
            Err(why) => {
                tracing::debug!(%why, "a host sent no proper answer");
                flow.end_flow(Verdict::Failed, "egress.bad_answer");
                answer::bad_gateway("egress.bad_answer")
            }
        }
    }

    /// The host's answer as the client gets it.
    fn pass_back(
        self: &Arc<Self>,
        mut answer: Response<Incoming>,
        client: Option<OnUpgrade>,
        flow: &Arc<Flow>,
        looks: &Looks,
    ) -> Response<Body> {
        // In a compressed answer a secret could not be found, so none passes.
        if looks.values.is_some() && !credential::is_plain(answer.headers()) {
            flow.end_flow(Verdict::Cut, "credential.encoded");
            return answer::bad_gateway("credential.encoded");
        }
        let switched = answer.status() == StatusCode::SWITCHING_PROTOCOLS;
        match (switched, client) {
            (true, Some(client)) => {
                let host = hyper::upgrade::on(&mut answer);
                let (this, flow) = (Arc::clone(self), Arc::clone(flow));
                self.serving.tasks.spawn(async move {
                    match tokio::try_join!(client, host) {
                        Ok((client, host)) => {
                            this.carry_bytes(TokioIo::new(client), TokioIo::new(host), &flow).await
                        }
                        Err(_) => flow.end_flow(Verdict::Failed, "egress.bad_answer"),
                    }
                });
            }
            // The client has asked for no other protocol.
            (true, None) => {
                flow.end_flow(Verdict::Failed, "egress.bad_answer");
                return answer::bad_gateway("egress.bad_answer");
            }
            (false, _) => {}
        }
        let (mut head, body) = answer.into_parts();
        head.version = http::Version::HTTP_11;
        head.extensions.clear();
        request::strip_headers(&mut head.headers, switched);
        let body = match &looks.values {
            _ if switched => Either::Left(Full::<Bytes>::default()),
            Some(values) => {
                credential::mask_headers(&mut head.headers, values);
                Either::Right(Passed::masking_body(body, values))
            }
            None => Either::Right(Passed::search_whole(body)),
        };
        Response::from_parts(head, body)
    }
}
