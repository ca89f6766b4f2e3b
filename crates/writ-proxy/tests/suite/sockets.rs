//! The proxy over its sockets, with bytes as any program would send them.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio_util::sync::CancellationToken;
use writ_proxy::config::TlsConfig;
use writ_proxy::proxy::MAX_AT_ONCE;
use writ_proxy::server::{MAX_PER_LAUNCHER, ProxyServer, ServerPlaces};

use crate::bed::{Bed, Pair, refund_agent};

/// The token of the router's socket.
const ROUTER_TOKEN: &str = "router-token-of-this-test";

/// A proxy that is served.
struct Served {
    bed: Bed,
    agents: PathBuf,
    router: PathBuf,
    tls: Option<std::net::SocketAddr>,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

impl Served {
    async fn new(tls: Option<TlsConfig>) -> Self {
        let bed = Bed::new().await;
        let (agents, router) =
            (bed.folder.path().join("proxy/a.sock"), bed.folder.path().join("proxy/r.sock"));
        let places = ServerPlaces {
            socket: agents.clone(),
            shared: false,
            tls: tls.map(|config| ("127.0.0.1:0".parse().expect("an address"), config)),
            router: router.clone(),
            router_token: ROUTER_TOKEN.into(),
        };
        let server = ProxyServer::bind(places).await.expect("listens");
        let (address, stop) = (server.tls_address(), CancellationToken::new());
        let task = tokio::spawn(server.serve(bed.proxy.clone(), stop.clone()));
        Self { bed, agents, router, tls: address, stop, task }
    }

    async fn agent(&self) -> UnixStream {
        UnixStream::connect(&self.agents).await.expect("connects")
    }

    /// One request of the router, on a connection of its own.
    async fn routed(&self, method: &str, path: &str, token: &str, body: &Value) -> (u16, Value) {
        let mut stream = UnixStream::connect(&self.router).await.expect("connects");
        send(&mut stream, method, path, &[("authorization", &format!("Bearer {token}"))], &body.to_string())
            .await
    }

    async fn end(self) -> Bed {
        self.stop.cancel();
        self.task.await.expect("ends");
        assert!(!self.agents.exists() && !self.router.exists(), "the sockets are gone");
        self.bed
    }
}

/// Sends one request and reads its answer; the connection stays open.
async fn send<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> (u16, Value) {
    let mut head = format!("{method} {path} HTTP/1.1\r\nhost: proxy\r\ncontent-length: {}\r\n", body.len());
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    stream.write_all(format!("{head}\r\n{body}").as_bytes()).await.expect("sends");
    let mut answer = Vec::new();
    let end = loop {
        if let Some(end) = answer.windows(4).position(|window| window == b"\r\n\r\n") {
            break end + 4;
        }
        let mut more = [0; 4096];
        let read = stream.read(&mut more).await.expect("reads");
        assert!(read > 0, "the connection was closed: {}", String::from_utf8_lossy(&answer));
        answer.extend(&more[..read]);
    };
    let head = String::from_utf8_lossy(&answer[..end]).to_lowercase();
    let status = head[9..12].parse().expect("a status");
    let length = head.split("content-length: ").nth(1).and_then(|rest| rest.lines().next());
    let length: usize = length.and_then(|text| text.trim().parse().ok()).unwrap_or_default();
    while answer.len() < end + length {
        let mut more = [0; 4096];
        let read = stream.read(&mut more).await.expect("reads");
        assert!(read > 0, "the body was cut off");
        answer.extend(&more[..read]);
    }
    (status, serde_json::from_slice(&answer[end..end + length]).unwrap_or(Value::Null))
}

async fn refund<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut S, pair: &Pair) -> (u16, Value) {
    let keys = [("writ-base-key", pair.base.as_str()), ("writ-task-key", pair.task.as_str())];
    let body = json!({ "order": "A-1", "amount": 1 }).to_string();
    send(stream, "POST", "/v1/operations/refund", &keys, &body).await
}

/// Each request of a connection shows its keys, and a key that is revoked between two of them fails the second.
///
/// Rows: SLO-023 SLO-042 SLO-047
/// Rows: SLO-046 (in part: the proxy's list)
#[tokio::test]
async fn every_request_of_a_connection_is_checked() {
    let served = Served::new(None).await;
    let pair = served.bed.keys(refund_agent(), &served.bed.ann);
    let mut stream = served.agent().await;
    assert_eq!(refund(&mut stream, &pair).await.0, 200);
    let without =
        send(&mut stream, "POST", "/v1/operations/refund", &[], r#"{"order":"A-1","amount":1}"#).await;
    assert_eq!(without.0, 401, "a request lacks what an earlier one had");
    assert_eq!(refund(&mut stream, &pair).await.0, 200);
    let ids = json!({ "ids": [pair.task_id] });
    assert_eq!(served.routed("POST", "/v1/revocations", ROUTER_TOKEN, &ids).await.0, 200);
    let (status, body) = refund(&mut stream, &pair).await;
    assert_eq!((status, body), (401, json!({ "error": "a key was revoked" })));
    let bed = served.end().await;
    assert_eq!((bed.refunded("A-1"), bed.decisions().len()), (2, 4));
}

/// The router's socket takes its token alone, and an agent's key opens nothing there.
///
/// Rows: SLO-046 (in part: only the router)
#[tokio::test]
async fn the_routers_socket_is_the_routers() {
    let served = Served::new(None).await;
    for path in [&served.agents, &served.router] {
        let mode = std::fs::metadata(path).expect("is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{}", path.display());
    }
    let body = json!({ "customer": "101", "case": "C-7", "tenant": "shop" });
    for token in ["", "wrong", "router-token-of-this-tesT"] {
        assert_eq!(served.routed("POST", "/v1/cases", token, &body).await.0, 401, "{token}");
    }
    let (status, opened) = served.routed("POST", "/v1/cases", ROUTER_TOKEN, &body).await;
    assert_eq!(status, 201, "{opened}");
    let tokens = |name: &str| opened[name].as_str().expect("a token").to_owned();
    let case = (tokens("customer_token"), tokens("case_token"));
    assert!(case.0.starts_with("cust_tk_") && case.1.starts_with("case_tk_"));
    let pair = served.bed.keys(refund_agent(), &case);
    let mut stream = served.agent().await;
    assert_eq!(refund(&mut stream, &pair).await.0, 200);
    for bad in [
        json!({ "customer": "", "case": "C" }),
        json!({ "customer": "1" }),
        json!([]),
        json!({ "customer": "1", "case": "2", "x": 1 }),
    ] {
        assert_eq!(served.routed("POST", "/v1/cases", ROUTER_TOKEN, &bad).await.0, 422, "{bad}");
    }
    let path = format!("/v1/cases/{}", case.1);
    assert_eq!(served.routed("DELETE", &path, ROUTER_TOKEN, &json!({})).await.0, 200);
    assert_eq!(served.routed("DELETE", &path, ROUTER_TOKEN, &json!({})).await.0, 404);
    assert_eq!(refund(&mut stream, &pair).await.0, 403, "its case is closed");
    // Agents have no such paths.
    assert_eq!(send(&mut stream, "POST", "/v1/cases", &[], "{}").await.0, 401);
    let keys = [("writ-base-key", pair.base.as_str()), ("writ-task-key", pair.task.as_str())];
    assert_eq!(send(&mut stream, "POST", "/v1/cases", &keys, "{}").await.0, 404);
    served.end().await;
}

/// The router sees what each agent did, by number; a customer is the same one in all cases.
///
/// Rows: SLO-060 (in part: what is counted)
#[tokio::test]
async fn the_router_reads_what_agents_did() {
    let served = Served::new(None).await;
    let empty = json!({});
    let events =
        async |query: &str| served.routed("GET", &format!("/v1/events{query}"), ROUTER_TOKEN, &empty).await;
    let pair = served.bed.keys(refund_agent(), &served.bed.ann);
    // It waits, and is answered by the next request of an agent.
    let (waited, answer) =
        tokio::join!(events("?after=0&wait=20"), served.bed.ask(&pair, "notes", json!({})));
    assert_eq!((waited.0, answer.status), (200, 200), "{waited:?}");
    let refused = served.bed.ask(&pair, "undeclared", json!({})).await;
    assert_eq!(refused.status, 403);
    // A list of its operations leaves an entry, too.
    let mut agent = served.agent().await;
    let keys = [("writ-base-key", pair.base.as_str()), ("writ-task-key", pair.task.as_str())];
    assert_eq!(send(&mut agent, "GET", "/v1/operations", &keys, "").await.0, 200);
    let forged =
        served.bed.proxy.operate(crate::bed::request(Some("x"), Some("y"), "notes", &json!({}))).await;
    assert_eq!(forged.status, 401, "keys that prove no agent are no one's");
    let (_, page) = events("").await;
    let all = page["events"].as_array().expect("a list");
    let counted: Vec<(&str, u64)> = all
        .iter()
        .map(|event| {
            (event["measure"].as_str().expect("a text"), event["amount"].as_u64().expect("a number"))
        })
        .collect();
    let expected = [("requests", 1), ("records_read", 2), ("requests", 1), ("refused", 1), ("requests", 1)];
    assert_eq!(counted, expected);
    let body = json!({ "customer": "101", "case": "C-6", "tenant": "shop" });
    let (_, opened) = served.routed("POST", "/v1/cases", ROUTER_TOKEN, &body).await;
    for event in all {
        assert_eq!(
            (&event["agent"], &event["case_token"]),
            (&json!("refund-agent"), &json!(served.bed.ann.1))
        );
        assert_eq!(event["customer"], opened["customer_fingerprint"], "another case of the same customer");
    }
    let other = json!({ "customer": "102", "case": "C-6", "tenant": "shop" });
    let (_, other) = served.routed("POST", "/v1/cases", ROUTER_TOKEN, &other).await;
    assert_ne!(other["customer_fingerprint"], opened["customer_fingerprint"], "twin: another customer");
    let newest = page["newest"].as_u64().expect("a number");
    assert_eq!(events(&format!("?after={newest}")).await.1["events"], json!([]));
    assert_eq!(events("?after=x").await.0, 422);
    assert_eq!(served.routed("GET", "/v1/events", "wrong", &empty).await.0, 401);
    // A reader that waits does not hold up the end.
    let path = format!("/v1/events?after={newest}&wait=30");
    let mut reader = UnixStream::connect(&served.router).await.expect("connects");
    let token = format!("Bearer {ROUTER_TOKEN}");
    let reading =
        tokio::spawn(async move { send(&mut reader, "GET", &path, &[("authorization", &token)], "").await });
    // The same thread serves both, so the reader waits by the time that this is answered.
    assert_eq!(events("").await.0, 200);
    let (bed, ended) = tokio::join!(served.end(), reading);
    assert_eq!(ended.expect("is answered").0, 503);
    drop(bed);
}

/// A client of another process than the test, as each agent has a launcher of its own: asks for its operations, and prints the
/// first line of the answer.
const CLIENT: &str = r#"
import socket, sys
path, base, task = sys.argv[1:]
client = socket.socket(socket.AF_UNIX)
client.connect(path)
client.sendall(f"GET /v1/operations HTTP/1.1\r\nhost: proxy\r\nwrit-base-key: {base}\r\nwrit-task-key: {task}\r\n\r\n".encode())
print(client.makefile().readline().strip())
"#;

/// One process cannot take all connections of its user: those over its own share are closed, and another process is served.
#[tokio::test]
#[expect(clippy::disallowed_types, reason = "the test starts a client of the server that it tests")]
async fn needs_python_connections_of_one_process_are_bounded() {
    let served = Served::new(None).await;
    let pair = served.bed.keys(refund_agent(), &served.bed.ann);
    let mut held = Vec::new();
    for _ in 0..MAX_PER_LAUNCHER {
        held.push(served.agent().await);
    }
    let mut over = served.agent().await;
    assert_eq!(over.read(&mut [0; 1]).await.unwrap_or_default(), 0, "it is closed");
    assert_eq!(refund(&mut held[0], &pair).await.0, 200, "twin: one within the share");
    let client = tokio::process::Command::new("python3")
        .args(["-c", CLIENT])
        .arg(&served.agents)
        .args([&pair.base, &pair.task])
        .output();
    let said = client.await.expect("runs").stdout;
    assert_eq!(String::from_utf8_lossy(&said).trim(), "HTTP/1.1 200 OK", "twin: another process");
    drop(held);
    served.end().await;
}

/// A request takes its place before its body has come: an agent with bodies that do not come is refused beyond its share, and
/// others are served.
#[tokio::test]
async fn an_agent_whose_bodies_do_not_come_has_its_share_of_places() {
    let served = Served::new(None).await;
    let slow = served.bed.keys(refund_agent(), &served.bed.ann);
    let head = |pair: &Pair| {
        let (base, task) = (&pair.base, &pair.task);
        format!(
            "POST /v1/operations/refund HTTP/1.1\r\nhost: proxy\r\ncontent-length: 26\r\nwrit-base-key: {base}\r\nwrit-task-key: {task}\r\n\r\n"
        )
    };
    let begin = async |pair: &Pair| {
        let mut stream = served.agent().await;
        stream.write_all(head(pair).as_bytes()).await.expect("sends");
        stream
    };
    let answered = async |stream: &mut UnixStream| {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.expect("is answered"));
        }
        String::from_utf8_lossy(&head).to_lowercase()
    };
    let mut held = Vec::new();
    for _ in 0..MAX_AT_ONCE {
        held.push(begin(&slow).await);
    }
    // Some may be looked at after those that came later, so it is asked until the share is full.
    let mut over = begin(&slow).await;
    let refused = tokio::select! {
        answer = answered(&mut over) => answer,
        answer = async { answered(held.last_mut().expect("has some")).await } => answer,
    };
    assert!(refused.starts_with("http/1.1 429"), "without a byte of its body: {refused}");
    assert!(refused.contains("\r\nretry-after: 1\r\n"), "{refused}");
    let mut document = refund_agent();
    document["agent"] = json!("other-agent");
    let other = served.bed.keys(document, &served.bed.ann);
    assert_eq!(refund(&mut served.agent().await, &other).await.0, 200, "twin: another agent");
    held[0].write_all(br#"{"order":"A-1","amount":1}"#).await.expect("sends");
    assert!(answered(&mut held[0]).await.starts_with("http/1.1 200"), "twin: a body that comes late");
    // A key that was revoked while the body came is refused.
    assert_eq!(
        served.routed("POST", "/v1/revocations", ROUTER_TOKEN, &json!({ "ids": [slow.task_id] })).await.0,
        200
    );
    held[1].write_all(br#"{"order":"A-1","amount":1}"#).await.expect("sends");
    assert!(!answered(&mut held[1]).await.starts_with("http/1.1 200"));
    drop((held, over));
    assert_eq!(served.end().await.refunded("A-1"), 2);
}

/// What is no request is answered as such, and proves nothing.
#[tokio::test]
async fn malformed_requests_are_refused() {
    let served = Served::new(None).await;
    let pair = served.bed.keys(refund_agent(), &served.bed.ann);
    let keys = [("writ-base-key", pair.base.as_str()), ("writ-task-key", pair.task.as_str())];
    let twice = [keys[0], keys[0], keys[1]];
    let mut stream = served.agent().await;
    for (method, path, headers, body, status) in [
        ("GET", "/v1/operations/refund", &keys[..], "", 405),
        ("GET", "/v1/nothing", &keys[..], "", 404),
        ("POST", "/v1/operations/refund", &twice[..], r#"{"order":"A-1","amount":1}"#, 401),
        ("POST", "/v1/operations/refund", &keys[..], "{", 422),
        ("POST", "/v1/operations/refund", &keys[..], "null", 422),
        ("POST", "/v1/operations/refund", &keys[..], r#"{"order":["A-1"],"amount":1}"#, 422),
        ("POST", "/v1/operations/re%66und%0d%0a", &keys[..], "{}", 403),
        ("POST", "/v1/operations/%ff", &keys[..], "{}", 403),
        ("GET", "/v1/operations", &keys[..], "", 200),
    ] {
        let (got, answer) = send(&mut stream, method, path, headers, body).await;
        assert_eq!(got, status, "{method} {path} {body}: {answer}");
    }
    let large = format!(r#"{{"order":"{}","amount":1}}"#, "x".repeat(70_000));
    let mut stream = served.agent().await;
    assert_eq!(send(&mut stream, "POST", "/v1/operations/refund", &keys, &large).await.0, 422);
    let bed = served.end().await;
    assert_eq!(bed.refunded("A-1"), 0);
    let operations: Vec<String> = bed.decisions().into_iter().map(|by| by.operation).collect();
    assert_eq!(operations.len(), 10, "one decision for each request: {operations:?}");
    assert!(operations.contains(&"?".to_owned()), "no line end in the ledger: {operations:?}");
}

fn pem(label: &str, bytes: &[u8]) -> String {
    use base64::Engine as _;
    let text = base64::engine::general_purpose::STANDARD.encode(bytes);
    format!("-----BEGIN {label}-----\n{text}\n-----END {label}-----\n")
}

/// Over TLS it is the same service.
#[tokio::test]
async fn it_is_served_over_tls() {
    let folder = tempfile::tempdir().expect("a folder");
    let rcgen::CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed(vec!["security-proxy.silo.internal".to_owned()]).expect("signs");
    let config = TlsConfig { certificate: folder.path().join("c.pem"), key: folder.path().join("k.pem") };
    std::fs::write(&config.certificate, pem("CERTIFICATE", cert.der())).expect("writes");
    std::fs::write(&config.key, pem("PRIVATE KEY", &signing_key.serialize_der())).expect("writes");
    let served = Served::new(Some(config)).await;
    let mut roots = rustls::RootCertStore::empty();
    roots.add(cert.der().clone()).expect("a certificate");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let client = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("has versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(client));
    #[expect(clippy::disallowed_types, reason = "the test connects to the server that it tests")]
    let stream = tokio::net::TcpStream::connect(served.tls.expect("listens")).await.expect("connects");
    let name = "security-proxy.silo.internal".try_into().expect("a name");
    let mut stream = connector.connect(name, stream).await.expect("trusts it");
    let pair = served.bed.keys(refund_agent(), &served.bed.ann);
    assert_eq!(refund(&mut stream, &pair).await.0, 200);
    drop(stream);
    assert_eq!(served.end().await.refunded("A-1"), 1);
}

/// A certificate that cannot be used names its file, and a file in the place of a socket stays.
#[tokio::test]
async fn a_place_that_cannot_be_used_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let places = |socket: &str, tls: Option<TlsConfig>| ServerPlaces {
        socket: folder.path().join(socket),
        shared: false,
        tls: tls.map(|config| ("127.0.0.1:0".parse().expect("an address"), config)),
        router: folder.path().join("r.sock"),
        router_token: ROUTER_TOKEN.into(),
    };
    let file = folder.path().join("file");
    std::fs::write(&file, "mine").expect("writes");
    let refused = ProxyServer::bind(places("file", None)).await.expect_err("a file is there");
    assert!(refused.to_string().contains("file"), "{refused}");
    assert_eq!(std::fs::read_to_string(&file).expect("is there"), "mine");
    let config = TlsConfig { certificate: file.clone(), key: file };
    let refused = ProxyServer::bind(places("a.sock", Some(config))).await.expect_err("no certificate");
    assert!(refused.to_string().contains("file"), "{refused}");
}
