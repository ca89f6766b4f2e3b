//! The readers of this crate for the targets of `fuzz/`: bytes in, nothing out. For any bytes, nothing
//! panics, and every assertion holds.

use std::convert::Infallible;
use std::io::Cursor;
use std::sync::LazyLock;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{CONNECTION, CONTENT_LENGTH, HOST, TRANSFER_ENCODING};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, http};
use hyper_util::rt::{TokioIo, TokioTimer};
use writ_inspect::egress::credential::Binding;
use writ_inspect::egress::host::{Host, Target};

use crate::credential::{BoundCredential, Credentials};
use crate::fetch::body::{Coding, Collector};
use crate::proxy::{HEAD_MIN, HEADERS_MAX, head, hello, request};

/// The largest head.
const HEAD_MAX: usize = 2 * HEAD_MIN;
/// The longest that a reader may wait; nothing here comes later.
const LIMIT: Duration = Duration::from_secs(10);
/// The largest part of a body in memory, in bytes.
const BODY_MAX: u64 = 64 * 1024;
/// The placeholder of a secret.
const PLACEHOLDER: &str = "writ-placeholder-5f0c2a91";
/// The one host that the secret is bound to.
const BOUND: &str = "bound.example";
/// Hosts of tunnels.
const HOSTS: [&str; 3] = ["a.example", "b.example", "192.0.2.1"];

/// The first bytes of a connection to the proxy: a request that is understood goes on to one host, and says no other.
pub fn proxy_head(bytes: &[u8]) {
    waited_for(async {
        let mut from = bytes;
        let Ok(first) = head::read_head(&mut from, HEAD_MAX, LIMIT).await else { return };
        assert!(bytes.starts_with(&first), "what was read goes on as it came");
        let whole = tokio::io::join(Cursor::new(first), tokio::io::sink());
        let service = service_fn(|request: Request<Incoming>| async move {
            let (head, _body) = request.into_parts();
            if let Ok(target) = request::request_target(&head) {
                goes_on(head, &target);
            }
            Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
        });
        let served = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(LIMIT)
            .max_buf_size(HEAD_MAX)
            .max_headers(HEADERS_MAX)
            .serve_connection(TokioIo::new(whole), service);
        // The library answers input that is not a request.
        let _ended = served.await;
    });
}

/// A request on its way to its host.
fn goes_on(mut head: http::request::Parts, target: &Target) {
    let Ok(swap) = CREDENTIALS.judge_use(&head, target, false) else { return };
    assert!(swap.is_none() || target.host.to_string() == BOUND, "a secret goes to its own host");
    if head.method == Method::CONNECT {
        return;
    }
    let websocket = request::is_websocket(&head.headers);
    request::rewrite_head(&mut head, target, websocket);
    if let Some(swap) = swap {
        swap.apply_credential(&mut head.headers);
    }
    let hosts: Vec<_> = head.headers.get_all(HOST).iter().filter_map(|host| host.to_str().ok()).collect();
    let named = hosts
        .first()
        .map(|host| Target::from_authority(target.scheme, host, Some(target.scheme.default_port())));
    assert!(hosts.len() == 1 && named == Some(Ok(target.clone())), "{hosts:?} {target}");
    assert!(head.uri.authority().is_none() && head.uri.path().starts_with('/'), "{}", head.uri);
    assert!(![CONTENT_LENGTH, TRANSFER_ENCODING].into_iter().any(|name| head.headers.contains_key(name)));
    assert_eq!(head.headers.contains_key(CONNECTION), websocket);
    let held = |value: &[u8]| value.windows(PLACEHOLDER.len()).any(|part| part == PLACEHOLDER.as_bytes());
    assert!(!head.headers.values().any(|value| held(value.as_bytes())), "no placeholder leaves");
}

static CREDENTIALS: LazyLock<Credentials> = LazyLock::new(|| {
    binding().map_or_else(Credentials::default, |binding| {
        let placeholder = PLACEHOLDER.to_owned();
        Credentials::new(vec![BoundCredential {
            binding,
            placeholder,
            value: Some("a-secret-of-twenty-bytes".into()),
        }])
    })
});

fn binding() -> Option<Binding> {
    Some(Binding {
        name: "bound".parse().ok()?,
        secret: "secret:bound".parse().ok()?,
        host: BOUND.parse().ok()?,
        methods: vec!["GET".to_owned(), "POST".to_owned()],
        paths: vec!["/**".to_owned()],
        env: "BOUND_TOKEN".to_owned(),
        header: "authorization".to_owned(),
        format: "Bearer {}".to_owned(),
        user: None,
        plain: true,
    })
}

/// The first message in a tunnel: it is meant for one host.
pub fn client_hello(bytes: &[u8]) {
    let mut meant = 0;
    for host in HOSTS.into_iter().filter_map(|host| host.parse::<Host>().ok()) {
        let mut from = bytes;
        let read = waited_for(hello::read_hello(&mut from, &host, LIMIT));
        if let Some(Ok(first)) = read {
            assert!(bytes.starts_with(&first), "what was read goes on as it came");
            meant += 1;
        }
    }
    assert!(meant <= 1, "one message names one host");
}

/// Reads a body as it is and compressed, in pieces as long as the first byte says: at most the bound is
/// in memory.
pub fn fetched_body(bytes: &[u8]) {
    let Some((piece, body)) = bytes.split_first() else { return };
    let most = usize::try_from(BODY_MAX).unwrap_or(usize::MAX);
    for coding in [Coding::Identity, Coding::Gzip] {
        let mut collector = Collector::new(coding, BODY_MAX);
        let whole = body.chunks(usize::from(*piece).max(1)).all(|piece| {
            let taken = collector.push_bytes(piece).is_ok();
            taken && !collector.is_full()
        });
        let _odd = collector.finish_body();
        let (kept, truncated) = collector.into_parts();
        assert!(kept.len() <= most, "{} bytes of {most}", kept.len());
        if coding == Coding::Identity {
            assert_eq!(kept, body.get(..most).unwrap_or(body));
            assert_eq!(truncated, !whole);
        }
    }
}

/// Runs a future to its end; `None`: no runtime could be made.
fn waited_for<T>(what: impl Future<Output = T>) -> Option<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    runtime.ok().map(|runtime| runtime.block_on(what))
}
