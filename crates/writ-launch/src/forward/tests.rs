//! The way from an agent's connection to a server's socket, with scripted servers.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixListener;
use tokio::sync::{mpsc, oneshot};

use super::*;
use crate::names::{NAMES, PLAIN_PORT, PROXY, ROUTER};

/// Keys as text: nothing of them may reach an agent.
const KEYS: [&str; 2] = ["YmFzZQ", "dGFzaw"];

/// A forwarder on real sockets, with two servers that answer what a test says.
struct Stage {
    forwarder: Arc<Forwarder>,
    authority: String,
    heads: mpsc::Receiver<String>,
    stop: CancellationToken,
    temp: tempfile::TempDir,
}

/// Serves one answer on each connection, after it has read a whole request; the request is passed to the test.
fn serve_script(path: PathBuf, answer: &'static str, heads: mpsc::Sender<String>) {
    let listener = UnixListener::bind(path).expect("bound");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let heads = heads.clone();
            tokio::spawn(async move {
                let mut bytes = Vec::new();
                let mut block = [0; 4096];
                while !bytes.windows(4).any(|part| part == b"\r\n\r\n") {
                    match stream.read(&mut block).await {
                        Ok(read) if read > 0 => bytes.extend_from_slice(&block[..read]),
                        _ => return,
                    }
                }
                heads.send(String::from_utf8_lossy(&bytes).into_owned()).await.expect("heard");
                let _ = stream.write_all(answer.as_bytes()).await;
            });
        }
    });
}

const ROUTER_ANSWER: &str = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 6\r\n\r\nrouter";
const PROXY_ANSWER: &str = "HTTP/1.1 403 Forbidden\r\ncontent-length: 5\r\n\r\nproxy";

impl Stage {
    fn new(limits: ForwardLimits) -> Self {
        let temp = tempfile::tempdir().expect("temp dir");
        let files = ["base", "task"].map(|name| temp.path().join(name));
        for (file, key) in files.iter().zip(KEYS) {
            fs::write(file, key).expect("written");
            fs::set_permissions(file, fs::Permissions::from_mode(0o600)).expect("closed");
        }
        let keys = AgentKeys::read_files(&files[0], &files[1]).expect("keys");
        let (sender, heads) = mpsc::channel(64);
        let [proxy, router] = ["proxy.sock", "router.sock"].map(|name| temp.path().join(name));
        serve_script(proxy.clone(), PROXY_ANSWER, sender.clone());
        serve_script(router.clone(), ROUTER_ANSWER, sender);
        let servers = Servers { proxy: LocalServer::at(proxy), router: Some(LocalServer::at(router)) };
        let identity = ServerIdentity::make(&NAMES).expect("an identity");
        let authority = identity.authority_pem().to_owned();
        let refusals = Arc::new(Refusals::with_report(None));
        let forwarder = Arc::new(Forwarder::new(servers, keys, identity, refusals, limits));
        Self { forwarder, authority, heads, stop: CancellationToken::new(), temp }
    }

    /// Listens as if on a port inside; returns the real one.
    async fn listen(&self, port: u16) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let at = listener.local_addr().expect("an address").port();
        tokio::spawn(Arc::clone(&self.forwarder).accept_on(listener, port, self.stop.clone()));
        at
    }

    fn count(&self, reason: RefusalReason) -> u64 {
        self.forwarder.refusals.counts().get(&reason).copied().unwrap_or(0)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

#[expect(clippy::disallowed_types, reason = "the test is the agent")]
async fn connect(port: u16) -> tokio::net::TcpStream {
    tokio::net::TcpStream::connect(("127.0.0.1", port)).await.expect("connected")
}

/// Sends bytes and reads what comes until the end.
async fn ask<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S, request: &str) -> String {
    stream.write_all(request.as_bytes()).await.expect("written");
    let mut answer = Vec::new();
    // A cut connection is an answer, too.
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

async fn greet(
    stage: &Stage,
    port: u16,
    name: &'static str,
) -> tokio_rustls::client::TlsStream<impl AsyncRead + AsyncWrite + Unpin> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(stage.authority.as_bytes()).expect("PEM")).expect("a root");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from(name).expect("a name");
    tokio_rustls::TlsConnector::from(Arc::new(config))
        .connect(name, connect(port).await)
        .await
        .expect("greeted")
}

fn get(host: &str) -> String {
    format!("GET /v1/operations HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n")
}

/// A body for the proxy that does not come takes none of its connections: it waits with the agent's own launcher.
#[tokio::test]
async fn the_proxy_is_not_asked_before_the_body_has_come() {
    let limits = ForwardLimits { head_time: Duration::from_millis(300), ..ForwardLimits::default() };
    let mut stage = Stage::new(limits);
    let tls = stage.listen(TLS_PORT).await;
    let head = format!(
        "POST /v1/operations/a HTTP/1.1\r\nhost: {PROXY}\r\nconnection: close\r\ncontent-length: 2\r\n\r\n"
    );
    let slow = ask(greet(&stage, tls, PROXY).await, &head).await;
    assert!(slow.starts_with("HTTP/1.1 408"), "{slow}");
    assert!(stage.heads.try_recv().is_err(), "the proxy was not asked");
    assert_eq!(stage.count(RefusalReason::Slow), 1);
    let whole = ask(greet(&stage, tls, PROXY).await, &format!("{head}{{}}")).await;
    assert!(whole.ends_with("proxy"), "twin: {whole}");
    assert!(stage.heads.recv().await.expect("asked").starts_with("POST /v1/operations/a "));
    let long = head.replace("length: 2", &format!("length: {}", PROXY_BODY_MAX + 1));
    let long = ask(greet(&stage, tls, PROXY).await, &(long + &"x".repeat(PROXY_BODY_MAX + 1))).await;
    assert!(long.starts_with("HTTP/1.1 413"), "{long}");
    assert!(stage.heads.try_recv().is_err(), "nor is it for a long one");
}

/// A renewed key reaches an agent that runs; without one it reaches nothing.
#[tokio::test]
async fn a_request_carries_the_key_of_its_moment_and_none_leads_nowhere_without() {
    let mut stage = Stage::new(ForwardLimits::default());
    let plain = stage.listen(PLAIN_PORT).await;
    let task = stage.temp.path().join("task");
    for key in [KEYS[1], "bmV3"] {
        let answer = ask(connect(plain).await, &get(ROUTER)).await;
        assert!(answer.ends_with("router"), "{answer}");
        let head = stage.heads.recv().await.expect("asked");
        assert!(head.contains(&format!("writ-task-key: {key}\r\n")), "{head}");
        let fresh = stage.temp.path().join("fresh");
        fs::write(&fresh, "bmV3").expect("written");
        fs::set_permissions(&fresh, fs::Permissions::from_mode(0o600)).expect("closed");
        fs::rename(fresh, &task).expect("renamed");
    }
    fs::remove_file(&task).expect("removed");
    let answer = ask(connect(plain).await, &get(ROUTER)).await;
    assert!(answer.starts_with("HTTP/1.1 401") && answer.ends_with(r#"{"error":"no_key"}"#), "{answer}");
    assert_eq!(stage.count(RefusalReason::NoKey), 1);
    assert!(stage.heads.try_recv().is_err(), "no server was asked");
}

/// Rows: SLO-041 SLO-038
#[tokio::test]
async fn each_name_leads_to_its_server_with_the_agents_keys_in_place_of_forged_ones() {
    let mut stage = Stage::new(ForwardLimits::default());
    let plain = stage.listen(PLAIN_PORT).await;
    let forged = format!(
        "POST /v1/chat HTTP/1.1\r\nhost: {ROUTER}\r\nWrit-Base-Key: forged\r\nwrit-task-key: forged\r\nwrit_task_key: forged\r\n\
         writ-owner: me\r\nx-own: 1\r\nconnection: close\r\ncontent-length: 2\r\n\r\nhi"
    );
    let answer = ask(connect(plain).await, &forged).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("router"), "{answer}");
    let head = stage.heads.recv().await.expect("a request");
    assert!(head.starts_with("POST /v1/chat HTTP/1.1\r\n"), "{head}");
    let mut own: Vec<&str> = head
        .lines()
        .filter(|line| line.to_ascii_lowercase().replace('_', "-").starts_with("writ-"))
        .collect();
    own.sort_unstable();
    assert_eq!(own, ["writ-base-key: YmFzZQ", "writ-task-key: dGFzaw"]);
    assert!(head.contains("x-own: 1") && !head.contains("forged") && !head.contains("owner"), "{head}");
    assert_eq!(stage.count(RefusalReason::ForgedHeader), 1);

    let tls = stage.listen(TLS_PORT).await;
    for (name, ending) in [(PROXY, "proxy"), (ROUTER, "router")] {
        let answer = ask(greet(&stage, tls, name).await, &get(name)).await;
        assert!(answer.ends_with(ending), "{answer}");
        assert!(KEYS.iter().all(|key| !answer.contains(key)), "{answer}");
        let head = stage.heads.recv().await.expect("a request");
        assert!(
            head.contains("writ-base-key: YmFzZQ\r\n") && head.contains("writ-task-key: dGFzaw\r\n"),
            "{head}"
        );
    }
}

/// Rows: SLO-038 SLO-039 (in part: other names and tunnels)
#[tokio::test]
async fn other_names_tunnels_and_what_is_no_request_are_refused_and_counted() {
    let mut stage = Stage::new(ForwardLimits::default());
    let (plain, tls) = (stage.listen(PLAIN_PORT).await, stage.listen(TLS_PORT).await);
    for (request, status) in [
        (get("example.com"), "421"),
        (get("127.0.0.1"), "421"),
        (get("llm-router.silo.internal:443"), "421"),
        (get(PROXY), "421"),
        ("GET http://example.com/ HTTP/1.1\r\nhost: example.com\r\nconnection: close\r\n\r\n".into(), "421"),
        ("GET / HTTP/1.0\r\n\r\n".into(), "421"),
        (
            "CONNECT example.com:443 HTTP/1.1\r\nhost: example.com:443\r\nconnection: close\r\n\r\n".into(),
            "403",
        ),
        (format!("GET / HTTP/1.1\r\nhost: {ROUTER}\r\nhost: a\r\nconnection: close\r\n\r\n"), "400"),
        ("EHLO example.com\r\nMAIL FROM:<a@b>\r\n\r\n".into(), "400"),
        (format!("GET / HTTP/1.1\r\nhost: {ROUTER}\r\nx: {}\r\n\r\n", "a".repeat(64 * 1024)), "431"),
    ] {
        let answer = ask(connect(plain).await, &request).await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}"))
                || answer.starts_with(&format!("HTTP/1.0 {status}")),
            "{request:.60}: {answer}"
        );
    }
    // TLS greets with one identity; whom a request is for is judged after it.
    let answer = ask(greet(&stage, tls, PROXY).await, &get("example.com")).await;
    assert!(answer.contains("421") && answer.ends_with(r#"{"error":"other_name"}"#), "{answer}");
    let answer = ask(connect(tls).await, &get(PROXY)).await;
    assert!(!answer.contains("HTTP"), "{answer}");
    let counts = stage.forwarder.refusals.counts();
    assert_eq!(
        counts.into_iter().collect::<Vec<_>>(),
        [
            (RefusalReason::OtherName, 6),
            (RefusalReason::Plain, 1),
            (RefusalReason::Tunnel, 1),
            (RefusalReason::Malformed, 3),
            (RefusalReason::Handshake, 1),
        ]
    );
    assert!(stage.heads.try_recv().is_err(), "no server was asked");
}

#[tokio::test]
async fn bodies_are_bounded_both_ways() {
    let mut stage = Stage::new(ForwardLimits { request: 64, answer: 3, ..ForwardLimits::default() });
    let plain = stage.listen(PLAIN_PORT).await;
    let declared =
        format!("POST / HTTP/1.1\r\nhost: {ROUTER}\r\nconnection: close\r\ncontent-length: 65\r\n\r\n");
    let answer = ask(connect(plain).await, &declared).await;
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    assert!(stage.heads.try_recv().is_err(), "no server was asked");
    // A server's answer is bounded, too.
    let answer = ask(connect(plain).await, &get(ROUTER)).await;
    assert!(answer.starts_with("HTTP/1.1 502") && answer.ends_with(r#"{"error":"long_answer"}"#), "{answer}");
    stage.heads.recv().await.expect("a request");
    let chunked = format!(
        "POST / HTTP/1.1\r\nhost: {ROUTER}\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n50\r\n{}\r\n0\r\n\r\n",
        "a".repeat(0x50)
    );
    // The server hears the beginning of the request and answers at once, or not at all: no more than the bound passes.
    ask(connect(plain).await, &chunked).await;
    if let Ok(head) = stage.heads.try_recv() {
        assert!(
            head.matches('a').count() <= 64 + head.split("\r\n\r\n").next().map_or(0, str::len),
            "{head}"
        );
    }
}

#[tokio::test]
async fn who_is_slow_or_opens_many_connections_holds_nobody_else_up_for_long() {
    let limits =
        ForwardLimits { connections: 4, head_time: Duration::from_millis(200), ..ForwardLimits::default() };
    let mut stage = Stage::new(limits);
    let (plain, tls) = (stage.listen(PLAIN_PORT).await, stage.listen(TLS_PORT).await);
    let mut idle = Vec::new();
    for _ in 0..20 {
        idle.push(connect(plain).await);
        idle.push(connect(tls).await);
    }
    // It waits behind them, and its turn comes.
    let answer = ask(connect(plain).await, &get(ROUTER)).await;
    assert!(answer.ends_with("router"), "{answer}");
    stage.heads.recv().await.expect("a request");
    let answer = ask(greet(&stage, tls, PROXY).await, &get(PROXY)).await;
    assert!(answer.ends_with("proxy"), "{answer}");
    assert!(stage.count(RefusalReason::Slow) >= 4 && stage.count(RefusalReason::Handshake) >= 4);
    drop(idle);
}

#[tokio::test]
async fn a_server_that_is_gone_or_anothers_is_answered_without_a_word_of_the_host() {
    let stage =
        Stage::new(ForwardLimits { answer_time: Duration::from_millis(300), ..ForwardLimits::default() });
    let plain = stage.listen(PLAIN_PORT).await;
    let path = stage.temp.path().join("router.sock");
    fs::remove_file(&path).expect("removed");
    let gone = ask(connect(plain).await, &get(ROUTER)).await;
    assert!(gone.starts_with("HTTP/1.1 503") && gone.ends_with(r#"{"error":"unreachable"}"#), "{gone}");
    // One that listens and does not answer.
    let silent = UnixListener::bind(&path).expect("bound");
    let answer = ask(connect(plain).await, &get(ROUTER)).await;
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    assert_eq!(stage.count(RefusalReason::Unreachable), 2);
    assert!(!answer.contains(stage.temp.path().to_str().expect("UTF-8")));
    drop(silent);
    let server = LocalServer::at(path.clone());
    server.check_socket().expect("our own");
    if nix::unistd::geteuid().is_root() {
        std::os::unix::fs::chown(&path, Some(65534), None).expect("given away");
        assert!(matches!(server.check_socket(), Err(LocalError::Foreign { owner: 65534, .. })));
    }
    fs::remove_file(&path).expect("removed");
    fs::write(&path, "").expect("written");
    assert!(matches!(server.check_socket(), Err(LocalError::Connect { .. })));
}

/// What a model says word by word arrives word by word.
#[tokio::test]
async fn an_answer_is_passed_on_as_it_comes() {
    let stage = Stage::new(ForwardLimits::default());
    let plain = stage.listen(PLAIN_PORT).await;
    let path = stage.temp.path().join("router.sock");
    fs::remove_file(&path).expect("removed");
    let listener = UnixListener::bind(&path).expect("bound");
    let (read, has_read) = oneshot::channel::<()>();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("accepted");
        let mut block = [0; 4096];
        let _ = stream.read(&mut block).await;
        let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nfirst\r\n";
        stream.write_all(head.as_bytes()).await.expect("written");
        // The rest only when the first part has arrived.
        has_read.await.expect("read");
        stream.write_all(b"6\r\nsecond\r\n0\r\n\r\n").await.expect("written");
    });
    let mut client = connect(plain).await;
    client.write_all(get(ROUTER).as_bytes()).await.expect("written");
    let mut seen = String::new();
    let mut block = [0; 4096];
    while !seen.contains("first") {
        let count = client.read(&mut block).await.expect("reads");
        seen.push_str(&String::from_utf8_lossy(&block[..count]));
    }
    assert!(!seen.contains("second"));
    read.send(()).expect("sent");
    let mut rest = String::new();
    client.read_to_string(&mut rest).await.expect("reads");
    assert!(rest.contains("second"), "{rest}");
}
