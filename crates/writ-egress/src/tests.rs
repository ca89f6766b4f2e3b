//! Tests over real loopback servers.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Redirect};
use axum::routing::get;
use futures::stream;
use tokio::net::TcpListener;
use writ_types::digest::Digest;
use writ_types::unit::ByteCount;

use crate::error::{EgressError, Fault};
use crate::host::HostPort;
use crate::keep::Owner;
use crate::line::{HostRoute, Way};
use crate::perform::{Egress, EgressConfig, LentClient};

pub(crate) mod network;

/// A server that counts its requests.
struct Server {
    address: SocketAddr,
    hits: Arc<AtomicUsize>,
    running: tokio::task::JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.running.abort();
    }
}

async fn server(redirect_to: Option<String>) -> Server {
    let hits = Arc::new(AtomicUsize::new(0));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
    let address = listener.local_addr().expect("has an address");
    let hello = |State(hits): State<Arc<AtomicUsize>>| async move {
        hits.fetch_add(1, Ordering::SeqCst);
        "hello"
    };
    let endless = || async {
        let bytes = stream::repeat_with(|| Ok::<_, Infallible>(vec![b'x'; 8192]));
        Body::from_stream(bytes).into_response()
    };
    let moved = move || async move { Redirect::temporary(&redirect_to.unwrap_or_default()) };
    let router = Router::new()
        .route("/", get(hello).post(hello))
        .route("/endless", get(endless))
        .route("/moved", get(moved))
        .with_state(Arc::clone(&hits));
    let running = tokio::spawn(async move { axum::serve(listener, router).await.expect("serves") });
    Server { address, hits, running }
}

fn egress(config: &EgressConfig) -> (Egress, tempfile::TempDir) {
    let runtime = tempfile::tempdir().expect("a folder");
    (Egress::new(config, runtime.path()).expect("egress"), runtime)
}

fn host(address: impl ToString) -> HostPort {
    address.to_string().parse().expect("a host")
}

/// Lends a client as a model call's permit does.
async fn lend<T, E, W: Future<Output = Result<T, E>>>(
    egress: &Egress,
    host: HostPort,
    work: impl FnOnce(crate::LentClient) -> W,
) -> Result<Result<T, E>, EgressError> {
    egress.lend_client(Way { host, place: HostRoute::Named }, egress.limits, work).await
}

async fn text(client: reqwest::Client, url: String) -> Result<String, reqwest::Error> {
    client.get(url).send().await?.text().await
}

#[tokio::test]
async fn a_lent_client_reaches_the_permitted_host_and_no_other() {
    let permitted = server(None).await;
    let other = server(None).await;
    let (egress, _runtime) = egress(&EgressConfig::default());
    let answer = lend(&egress, host(permitted.address), |lent| {
        text(lent.client, format!("http://{}/", permitted.address))
    });
    assert_eq!(answer.await.expect("a line").expect("an answer"), "hello");
    assert_eq!(permitted.hits.load(Ordering::SeqCst), 1);

    // A literal address, a name and a port of another server: their bytes end at the permitted host.
    for url in [format!("http://{}/", other.address), format!("http://localhost:{}/", other.address.port())] {
        let sent =
            lend(&egress, host(permitted.address), |lent| text(lent.client, url)).await.expect("a line");
        drop(sent);
        assert_eq!(other.hits.load(Ordering::SeqCst), 0, "another host was reached");
    }
    // Over TLS the permitted host cannot even pose as the other.
    let posed =
        lend(&egress, host(permitted.address), |lent| text(lent.client, "https://example.org/".to_owned()));
    posed.await.expect("a line").expect_err("no TLS there");
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let other = server(None).await;
    let permitted = server(Some(format!("http://{}/", other.address))).await;
    let (egress, _runtime) = egress(&EgressConfig::default());
    let url = format!("http://{}/moved", permitted.address);
    let status = lend(&egress, host(permitted.address), |lent| async move {
        lent.client.get(url).send().await.map(|r| r.status())
    })
    .await
    .expect("a line")
    .expect("an answer");
    assert_eq!(status.as_u16(), 307);
    assert_eq!(other.hits.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn what_comes_in_and_goes_out_is_bounded() {
    let server = server(None).await;
    let config =
        EgressConfig { max_received_bytes: 100_000, max_sent_bytes: 10_000, ..EgressConfig::default() };
    let (egress, _runtime) = egress(&config);
    let url = format!("http://{}/endless", server.address);
    let error =
        lend(&egress, host(server.address), |lent| text(lent.client, url)).await.expect_err("endless");
    assert!(matches!(error, EgressError::Line(Fault::TooMuchReceived { limit: 100_000, .. })), "{error}");

    let url = format!("http://{}/", server.address);
    let send = |bytes: usize| {
        let url = url.clone();
        lend(&egress, host(server.address), move |lent| async move {
            lent.client.post(url).body(vec![b'x'; bytes]).send().await?.text().await
        })
    };
    assert_eq!(send(9_000).await.expect("a line").expect("fits"), "hello");
    let error = send(1_000_000).await.expect_err("too much");
    assert!(matches!(error, EgressError::Line(Fault::TooMuchSent { limit: 10_000, .. })), "{error}");
}

/// A host that never answers the handshake: the accept queue of a listener with backlog 1 is filled.
///
/// Rows: SCL-013
#[tokio::test]
async fn a_connect_that_takes_too_long_is_a_typed_error() {
    assert_eq!(EgressConfig::default().connect_timeout_ms, 10_000);
    let config = EgressConfig { connect_timeout_ms: 50, ..EgressConfig::default() };
    let (egress, _runtime) = egress(&config);
    let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
    socket.bind("127.0.0.1:0".parse().expect("an address")).expect("binds");
    let listener = socket.listen(1).expect("listens");
    let address = listener.local_addr().expect("has an address");
    // The kernel holds one more than the listener has asked for; the next handshake is not answered.
    let connect = || tokio::net::TcpSocket::new_v4().expect("a socket").connect(address);
    let held = [connect().await.expect("the first"), connect().await.expect("one more")];
    let error = lend(&egress, host(address), |lent| text(lent.client, format!("http://{address}/")))
        .await
        .expect_err("a black hole");
    assert!(matches!(error, EgressError::Line(Fault::ConnectTimeout { .. })), "{error}");
    drop(held);
}

#[tokio::test]
async fn a_closed_port_and_an_unknown_name_are_typed_errors() {
    let (egress, _runtime) = egress(&EgressConfig::default());
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
    let address = listener.local_addr().expect("has an address");
    drop(listener);
    let error = lend(&egress, host(address), |lent| text(lent.client, format!("http://{address}/")))
        .await
        .expect_err("closed");
    assert!(matches!(error, EgressError::Line(Fault::Unreachable { .. })), "{error}");
    let error = lend(&egress, host("nowhere.invalid:80"), |lent| {
        text(lent.client, "http://nowhere.invalid/".to_owned())
    })
    .await
    .expect_err("no such name");
    assert!(
        matches!(error, EgressError::Line(Fault::Unresolved { .. } | Fault::ConnectTimeout { .. })),
        "{error}"
    );
}

#[tokio::test]
async fn a_line_dies_with_its_work() {
    let server = server(None).await;
    let (egress, runtime) = egress(&EgressConfig::default());
    let kept = lend(&egress, host(server.address), |lent| async move { Ok::<_, Infallible>(lent.client) })
        .await
        .expect("a line")
        .expect("a client");
    text(kept, format!("http://{}/", server.address)).await.expect_err("the line is gone");
    assert_eq!(server.hits.load(Ordering::SeqCst), 0);
    let folder = std::fs::read_dir(runtime.path()).expect("reads").next().expect("one").expect("entry");
    assert_eq!(std::fs::read_dir(folder.path()).expect("reads").count(), 0, "a socket was left behind");
    drop(egress);
    assert_eq!(std::fs::read_dir(runtime.path()).expect("reads").count(), 0, "a folder was left behind");
}

/// A server that tells how many connections it has accepted.
async fn counting() -> (SocketAddr, Arc<AtomicUsize>, tokio::task::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
    let (address, accepted) = (listener.local_addr().expect("has an address"), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&accepted);
    let listener = axum::serve::ListenerExt::tap_io(listener, move |_| {
        count.fetch_add(1, Ordering::SeqCst);
    });
    let router = Router::new().route("/", get(async || "hello"));
    let running = tokio::spawn(async move { axum::serve(listener, router).await.expect("serves") });
    (address, accepted, running)
}

fn owner(address: SocketAddr, identity: &str) -> Owner {
    Owner { host: host(address), identity: Digest::of_bytes(identity.as_bytes()) }
}

async fn hello(egress: &Egress, owner: Owner) {
    let url = format!("http://{}/", owner.host);
    let said = egress.lend_kept(owner, |lent| text(lent.client, url)).await.expect("a line");
    assert_eq!(said.expect("answers"), "hello");
}

#[tokio::test]
async fn a_kept_line_serves_one_identity_alone_and_one_permit_at_a_time() {
    let (address, accepted, running) = counting().await;
    let (egress, _runtime) = egress(&EgressConfig::default());
    for _ in 0..5 {
        hello(&egress, owner(address, "one")).await;
    }
    assert_eq!(accepted.load(Ordering::SeqCst), 1, "the same connection");
    hello(&egress, owner(address, "another")).await;
    assert_eq!(accepted.load(Ordering::SeqCst), 2, "another credential has another connection");
    tokio::join!(hello(&egress, owner(address, "one")), hello(&egress, owner(address, "one")));
    assert_eq!(accepted.load(Ordering::SeqCst), 3, "two at once share none");
    assert_eq!(egress.keep.len(), 3);
    running.abort();
}

#[tokio::test]
async fn a_line_at_rest_carries_nothing_and_is_not_kept_after_that() {
    let (address, accepted, running) = counting().await;
    let (egress, _runtime) = egress(&EgressConfig::default());
    let url = format!("http://{address}/");
    let work = |lent: LentClient| {
        let (client, url) = (lent.client.clone(), url.clone());
        async move {
            text(lent.client, url).await.expect("answers");
            Ok::<_, Infallible>(client)
        }
    };
    let leaked = egress.lend_kept(owner(address, "one"), work).await.expect("a line").expect("a client");
    text(leaked.clone(), url.clone()).await.expect_err("the line is at rest");
    text(leaked, url.clone()).await.expect_err("also over a new connection");
    assert_eq!(accepted.load(Ordering::SeqCst), 1);
    hello(&egress, owner(address, "one")).await;
    assert_eq!(accepted.load(Ordering::SeqCst), 2, "a line that was cut is not used again");
    running.abort();
}

#[tokio::test]
async fn each_permit_of_a_kept_line_has_limits_of_its_own() {
    let server = server(None).await;
    let config = EgressConfig { max_received_bytes: 600, ..EgressConfig::default() };
    let (egress, _runtime) = egress(&config);
    for _ in 0..8 {
        hello(&egress, owner(server.address, "one")).await;
    }
    let url = format!("http://{}/endless", server.address);
    let ended = egress.lend_kept(owner(server.address, "one"), |lent| text(lent.client, url)).await;
    assert!(matches!(ended, Err(EgressError::Line(Fault::TooMuchReceived { .. }))), "{ended:?}");
    assert_eq!(egress.keep.len(), 0, "what has failed is not kept");
}

#[tokio::test]
async fn an_allowance_cuts_the_line_and_is_moved_on_by_the_work() {
    let server = server(None).await;
    let (egress, _runtime) = egress(&EgressConfig::default());
    let limits = egress.limits;
    let allowed = ByteCount::new(2_000_000);
    for renewed in [false, true] {
        let url = format!("http://{}/endless", server.address);
        let work = async |lent: LentClient| -> Result<u64, u64> {
            let allowance = lent.line_allowance();
            allowance.renew_allowance(allowed);
            let mut response = lent.client.get(url).send().await.expect("begins");
            let mut read = 0;
            while let Ok(Some(bytes)) = response.chunk().await {
                read += u64::try_from(bytes.len()).expect("a length");
                if renewed {
                    allowance.renew_allowance(allowed);
                }
                if read > 10_000_000 {
                    return Ok(read);
                }
            }
            assert!(allowance.is_used_up());
            Err(read)
        };
        let way = Way { host: server.address.to_string().parse().expect("a host"), place: HostRoute::Named };
        let read = egress.lend_client(way, limits, work).await.expect("no fault of the line");
        match read {
            Ok(read) => assert!(renewed, "{read}"),
            Err(read) => assert!(!renewed && read <= 2_000_000, "{read}"),
        }
    }
}

#[tokio::test]
async fn a_port_of_this_machine_is_asked_for_a_list_and_for_nothing_else() {
    let server = server(None).await;
    let (egress, _runtime) = egress(&EgressConfig::default());
    let port = server.address.port();
    let limit = Duration::from_secs(5);
    assert_eq!(egress.ask_loopback(port, "/", limit).await.as_deref(), Some(b"hello".as_slice()));
    for path in ["/nothing", "/moved", "/endless"] {
        assert_eq!(egress.ask_loopback(port, path, limit).await, None, "{path}");
    }
    drop(server);
    let silent = TcpListener::bind("127.0.0.1:0").await.expect("binds");
    let port = silent.local_addr().expect("has an address").port();
    let asked = tokio::time::Instant::now();
    assert_eq!(egress.ask_loopback(port, "/", Duration::from_millis(50)).await, None, "nobody answers");
    assert!(asked.elapsed() < limit);
}
