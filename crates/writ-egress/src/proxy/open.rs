//! A tunnel to a host that a credential is bound to: it is opened here, and each request in it is judged.

use std::convert::Infallible;
use std::sync::Arc;

use hyper::body::Incoming;
use hyper::header::UPGRADE;
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};
use tokio_rustls::server::TlsStream;
use writ_inspect::egress::credential::Misuse;
use writ_inspect::egress::host::Target;
use writ_types::entry::Verdict;

use super::answer::{self, Body};
use super::exchange::{HEADERS_MAX, Looks, ProxyConnection};
use super::flow::{Counted, Flow};
use super::{hello, request};
use crate::authority::CertificateAuthority;
use crate::connect::{self, Speech};
use crate::credential::MisuseError;
use crate::gatekeeper::Refusal;

impl ProxyConnection {
    /// Begins a tunnel that is opened here, if its host may be reached at all. Nothing is connected to yet.
    pub(crate) async fn open_tunnel(
        self: &Arc<Self>,
        client: OnUpgrade,
        target: Target,
        authority: Arc<CertificateAuthority>,
        flow: Arc<Flow>,
    ) -> Response<Body> {
        let gatekeeper = &self.serving.gatekeeper;
        let scope = gatekeeper.current_scope().await;
        if let Err(refusal) = connect::judge_name(&**gatekeeper, &scope, &target).await {
            flow.end_flow(refusal.record_verdict(), refusal.rule());
            return answer::refusal_answer(&refusal);
        }
        flow.note_opened();
        let this = Arc::clone(self);
        self.serving.tasks.spawn(async move {
            let cut = this.serving.cut.clone();
            tokio::select! {
                code = this.serve_opened(client, target, &authority) => {
                    if let Err(code) = code {
                        flow.end_flow(Verdict::Cut, code);
                    }
                }
                () = tokio::time::sleep(this.serving.limits.total) => flow.end_flow(Verdict::Cut, "limit.time"),
                () = cut.cancelled() => flow.end_flow(Verdict::Cut, "limit.stopped"),
            }
        });
        answer::tunnel_answer()
    }

    /// Serves the requests in a tunnel. The error is a code.
    async fn serve_opened(
        self: &Arc<Self>,
        client: OnUpgrade,
        target: Target,
        authority: &Arc<CertificateAuthority>,
    ) -> Result<(), &'static str> {
        let limits = self.serving.limits;
        let client = tokio::time::timeout(limits.head, client).await;
        let Ok(Ok(client)) = client else { return Err("tunnel.ended") };
        let mut client = TokioIo::new(client);
        let first = hello::read_hello(&mut client, &target.host, limits.head).await;
        let first = first.map_err(hello::HelloFault::fault_code)?;
        let client = self.greet_as_host(authority, &target, first, client).await?;
        let service = service_fn(|request| {
            let (this, target, authority) = (Arc::clone(self), target.clone(), Arc::clone(authority));
            async move { Ok::<_, Infallible>(this.handle_opened(request, target, &authority).await) }
        });
        let served = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(limits.idle)
            .max_buf_size(limits.head_bytes)
            .max_headers(HEADERS_MAX)
            .serve_connection(TokioIo::new(client), service)
            .await;
        if let Err(why) = served {
            tracing::debug!(%why, "an opened tunnel ended badly");
        }
        Ok(())
    }

    /// Speaks as the host, with a certificate that the sandbox trusts.
    async fn greet_as_host<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        authority: &CertificateAuthority,
        target: &Target,
        first: Vec<u8>,
        client: S,
    ) -> Result<TlsStream<impl AsyncRead + AsyncWrite + Unpin + use<S>>, &'static str> {
        let acceptor = authority.acceptor_for(&target.host).map_err(|why| {
            tracing::warn!(%why, "a tunnel could not be opened");
            "credential.certificate"
        })?;
        let (reader, writer) = tokio::io::split(client);
        let whole = tokio::io::join(std::io::Cursor::new(first).chain(reader), writer);
        match tokio::time::timeout(self.serving.limits.head, acceptor.accept(whole)).await {
            Ok(Ok(client)) => Ok(client),
            // It does not trust the certificate, or speaks HTTP/2 alone.
            Ok(Err(_)) => Err("credential.handshake"),
            Err(_elapsed) => Err("tunnel.slow_hello"),
        }
    }

    /// Answers one request in a tunnel.
    async fn handle_opened(
        self: Arc<Self>,
        request: Request<Incoming>,
        target: Target,
        authority: &CertificateAuthority,
    ) -> Response<Body> {
        let Some(flow) = self.begin_flow().await else { return answer::bad_gateway("proxy.stopped") };
        flow.set_name(&target);
        let (mut head, body) = request.into_parts();
        if let Err(fault) = request::check_inside(&head, &target) {
            flow.end_flow(Verdict::Malformed, fault.fault_code());
            return answer::malformed_answer(fault);
        }
        let refuse = |refusal: Refusal| {
            flow.end_flow(refusal.record_verdict(), refusal.rule());
            answer::refusal_answer(&refusal)
        };
        let credentials = self.serving.gatekeeper.credentials();
        let swap = match credentials.judge_use(&head, &target, true) {
            Ok(swap) => swap,
            Err(misused) => return refuse(misused.into()),
        };
        if head.headers.contains_key(UPGRADE) {
            let name = credentials.bound_to(&target).unwrap_or_default();
            return refuse(MisuseError { name, why: Misuse::Upgrade }.into());
        }
        let stream = match self.reach_target(&target, Speech::Tunnel, &flow).await {
            Ok(reached) => Counted::new(reached.stream, Arc::clone(&flow)),
            Err(refusal) => return refuse(refusal),
        };
        let Ok(name) = ServerName::try_from(target.host.to_resolvable()) else {
            flow.end_flow(Verdict::Failed, "credential.upstream");
            return answer::bad_gateway("credential.upstream");
        };
        let greeting = authority.upstream_connector().connect(name, stream);
        let host = match tokio::time::timeout(self.serving.limits.connect, greeting).await {
            Ok(Ok(host)) => host,
            // Nothing was sent but a greeting: the secret is still here.
            Ok(Err(_)) | Err(_) => {
                flow.end_flow(Verdict::Failed, "credential.upstream");
                return answer::bad_gateway("credential.upstream");
            }
        };
        request::rewrite_head(&mut head, &target, false);
        let looks = Looks::after_answer(&credentials, &target, swap, &mut head.headers, &flow);
        self.forward_request(Request::from_parts(head, body), None, host, flow, looks).await
    }
}
