//! Forwards the plain HTTP requests of a lent client (`LentClient`) to the proxy of the owner's network, with absolute
//! URLs.

use std::sync::Arc;

use hyper::body::Incoming;
use hyper::header::{HOST, HeaderValue, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode, Uri, http};
use hyper_util::rt::TokioIo;
use tokio::io::DuplexStream;
use tokio::sync::Mutex;

use crate::connect::Stream;
use crate::host::HostPort;
use crate::proxy::HEADERS_MAX;
use crate::tunnel::{TunnelFault, scheme_fault};
use crate::upstream::Upstream;

/// The reason why a request was not forwarded.
#[derive(Debug, thiserror::Error)]
enum RelayFault {
    #[error("the request has no valid URL for a proxy")]
    Address,
    #[error(transparent)]
    Http(#[from] hyper::Error),
    #[error(transparent)]
    Tunnel(#[from] TunnelFault),
}

/// Rewrites the head of a request for an HTTP proxy: the absolute URL, the same host in `Host`, and the proxy's
/// credentials.
///
/// # Errors
///
/// If `host` and the path form no valid URL, or a header value is invalid.
pub(crate) fn address_request(
    head: &mut http::request::Parts,
    host: &str,
    proxy: &Upstream,
) -> Result<(), http::Error> {
    let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
    head.uri = Uri::builder().scheme("http").authority(host).path_and_query(path).build()?;
    // A proxy uses the URL. A server behind it that uses `Host` must not find another host there.
    head.headers.insert(HOST, HeaderValue::from_str(host)?);
    // Credentials that the client sent must not reach the owner's proxy.
    head.headers.remove(PROXY_AUTHORIZATION);
    if let Some(value) = proxy.authorization_header() {
        let mut value = HeaderValue::from_str(value)?;
        // Hides the value in `Debug` output.
        value.set_sensitive(true);
        head.headers.insert(PROXY_AUTHORIZATION, value);
    }
    Ok(())
}

/// Returns the fault if an answer is the proxy's demand for credentials (407). `None`: the answer may be the host's own.
pub(crate) fn login_refused<B>(answer: &Response<B>) -> Option<TunnelFault> {
    let offers = answer.headers().get_all(PROXY_AUTHENTICATE).iter().filter_map(|value| value.to_str().ok());
    let schemes: Vec<&str> = offers.filter_map(|offer| offer.split([' ', ',']).next()).collect();
    (answer.status() == StatusCode::PROXY_AUTHENTICATION_REQUIRED).then(|| scheme_fault(&schemes))
}

/// Forwards the requests of one connection to a proxy until either side closes it. Calls `on_fault` with a failure or
/// refusal of the proxy before the client's connection is closed.
pub(crate) async fn relay_request(
    local: DuplexStream,
    far: Stream,
    (proxy, host): (Arc<Upstream>, HostPort),
    on_fault: impl Fn(TunnelFault),
) {
    let handshake = hyper::client::conn::http1::Builder::new()
        .max_headers(HEADERS_MAX)
        .handshake::<_, Incoming>(TokioIo::new(far));
    let Ok((sender, driver)) = handshake.await else { return on_fault(TunnelFault::Closed) };
    let sender = Arc::new(Mutex::new(sender));
    // Clients leave out the default port as well.
    let authority = if host.port() == 80 {
        host.to_string().trim_end_matches(":80").to_owned()
    } else {
        host.to_string()
    };
    let service = service_fn(|request: Request<Incoming>| {
        let (sender, proxy, authority) = (Arc::clone(&sender), Arc::clone(&proxy), &authority);
        let on_fault = &on_fault;
        async move {
            let (mut head, body) = request.into_parts();
            address_request(&mut head, authority, &proxy).map_err(|_| RelayFault::Address)?;
            // One request at a time: the connection to the proxy is shared by a client's
            // requests.
            let answer = sender.lock().await.send_request(Request::from_parts(head, body)).await;
            let answer = answer.inspect_err(|why| {
                // The caller sees only a broken connection, so the reason is recorded here.
                if why.is_parse() {
                    on_fault(TunnelFault::BadAnswer);
                } else if why.is_closed() || why.is_incomplete_message() {
                    on_fault(TunnelFault::Closed);
                }
            })?;
            match login_refused(&answer) {
                Some(fault) => {
                    on_fault(fault.clone());
                    Err(RelayFault::Tunnel(fault))
                }
                None => Ok(answer),
            }
        }
    });
    let server = hyper::server::conn::http1::Builder::new()
        .max_headers(HEADERS_MAX)
        .serve_connection(TokioIo::new(local), service);
    tokio::pin!(server);
    tokio::select! {
        ended = &mut server => {
            if let Err(why) = ended {
                tracing::debug!(%why, "a connection through the network's proxy ended badly");
            }
            return;
        }
        ended = driver => {
            if let Err(why) = ended {
                tracing::debug!(%why, "the network's proxy ended a connection badly");
            }
        }
    }
    // The last answer is still delivered to the client.
    server.as_mut().graceful_shutdown();
    if let Err(why) = server.await {
        tracing::debug!(%why, "a connection through the network's proxy ended badly");
    }
}
