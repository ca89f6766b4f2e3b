//! The proxy over real sockets: clients, servers and a scripted resolver.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_util::sync::CancellationToken;
use writ_inspect::egress::EgressScope;

use super::{Proxy, ProxyConfig, ProxyError};
use crate::authority::CertificateAuthority;
use crate::connect::Stream as TcpStream;
use crate::testing::{Keeper, Script, TestServer, pattern, pinned, provider};
use crate::upstream::ProxyRoutes;
use writ_types::entry::Verdict;

mod credentials;

mod limits;

mod upstream;

/// How long anything may take here.
const PATIENCE: Duration = Duration::from_secs(10);

/// A proxy that serves one listener.
struct Running {
    address: SocketAddr,
    keeper: Arc<Keeper>,
    script: Arc<Script>,
    stop: CancellationToken,
    serving: JoinHandle<Result<(), ProxyError>>,
}

impl Running {
    fn new(scope: EgressScope) -> Self {
        Self::with(ProxyConfig::default(), scope)
    }

    fn with(config: ProxyConfig, scope: EgressScope) -> Self {
        Self::opening(config, scope, None)
    }

    fn opening(
        config: ProxyConfig,
        scope: EgressScope,
        authority: Option<Arc<CertificateAuthority>>,
    ) -> Self {
        Self::routed(config, scope, authority, ProxyRoutes::default())
    }

    fn routed(
        config: ProxyConfig,
        scope: EgressScope,
        authority: Option<Arc<CertificateAuthority>>,
        routes: ProxyRoutes,
    ) -> Self {
        let script = Arc::new(Script::default());
        let keeper = Keeper::new(scope);
        let proxy = Proxy::new(config, Arc::clone(&script) as Arc<_>).with_authority(authority);
        let proxy = proxy.with_routes(Arc::new(routes));
        let (listener, address) = listener();
        let stop = CancellationToken::new();
        let (gatekeeper, token) = (Arc::clone(&keeper) as Arc<_>, stop.clone());
        let serving =
            tokio::spawn(async move { proxy.serve(listener, gatekeeper, "shell_exec", token).await });
        Self { address, keeper, script, stop, serving }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.expect("the proxy listens")
    }

    /// Sends bytes and reads everything until the end.
    async fn talk(&self, bytes: impl AsRef<[u8]>) -> String {
        let mut stream = self.connect().await;
        stream.write_all(bytes.as_ref()).await.expect("sends");
        let mut answer = Vec::new();
        let read = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await;
        let _ = read.expect("an end in time");
        String::from_utf8_lossy(&answer).into_owned()
    }

    async fn get(&self, url: &str) -> String {
        let host = url.trim_start_matches("http://").split('/').next().expect("a host");
        self.talk(format!("GET {url} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")).await
    }

    /// Asks for a tunnel. Returns the answer's head, and the stream behind it.
    async fn tunnel(&self, to: &str) -> (String, TcpStream) {
        let mut stream = self.connect().await;
        let request = format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("sends");
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let byte = tokio::time::timeout(PATIENCE, stream.read_u8()).await.expect("in time");
            head.push(byte.expect("a whole head"));
        }
        (String::from_utf8(head).expect("text"), stream)
    }

    async fn end(self) -> Result<Vec<writ_types::entry::ConnectionRecord>, ProxyError> {
        self.stop.cancel();
        let served = tokio::time::timeout(PATIENCE, self.serving).await.expect("ends in time");
        served.expect("no panic").map(|()| self.keeper.records())
    }
}

fn listener() -> (OwnedFd, SocketAddr) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("binds");
    let address = listener.local_addr().expect("has an address");
    (listener.into(), address)
}

/// The status and the code of an answer.
fn told(answer: &str) -> (u16, String) {
    let status = answer.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
    let code = answer.lines().find_map(|line| line.strip_prefix("x-writ-code: ")).unwrap_or_default();
    (status, code.to_owned())
}

const PAGE: &str =
    "HTTP/1.1 200 OK\r\ncontent-length: 5\r\nconnection: keep-alive\r\nkeep-alive: timeout=5\r\n\r\nhello";

/// Rows: WIN-169
#[tokio::test]
async fn an_allowed_host_is_reached_and_recorded() {
    let server = TestServer::fixed("127.0.0.1:0", PAGE).await;
    let running = Running::new(pinned("pages.test", server.address));
    let answer = running.get(&format!("http://Pages.test:{}/x", server.address.port())).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\nhello"), "{answer}");
    assert!(answer.contains("via: 1.1 writ") && !answer.contains("keep-alive"), "{answer}");
    assert_eq!(running.script.lookups(), 0, "a pinned host needs no lookup");
    let records = running.end().await.expect("served");
    let [record] = records.as_slice() else { panic!("{records:?}") };
    assert_eq!((record.host.as_str(), record.port), ("pages.test", server.address.port()));
    assert_eq!((record.verdict, record.rule.as_str()), (Verdict::Allowed, "allowed"));
    assert_eq!(record.address, Some(server.address.ip()));
    assert_eq!(record.sent, u64::try_from(server.bytes()).unwrap());
    assert_eq!(record.received, u64::try_from(PAGE.len()).unwrap());
}

/// What concerns the client's own connection does not go on, and `Host` is the target's.
#[tokio::test]
async fn a_request_goes_on_without_what_was_meant_for_the_proxy() {
    let server = TestServer::echo().await;
    let running = Running::new(pinned("pages.test", server.address));
    let host = format!("pages.test:{}", server.address.port());
    let mut stream = running.connect().await;
    let request = format!(
        "POST http://{host}/a?b HTTP/1.1\r\nhost: {}\r\nproxy-authorization: Basic c2VjcmV0\r\nx-secret: 1\r\n\
         connection: x-secret, close\r\nte: trailers\r\naccept: */*\r\ncontent-length: 4\r\n\r\nbody",
        host.to_uppercase()
    );
    stream.write_all(request.as_bytes()).await.expect("sends");
    // The server sends the request back, which is no answer: it is what went out that counts.
    let answer = running.keeper.recorded(1);
    let mut rest = String::new();
    stream.read_to_string(&mut rest).await.expect("an answer");
    assert_eq!(told(&rest), (502, "egress.bad_answer".to_owned()), "{rest}");
    let expected = format!(
        "POST /a?b HTTP/1.1\r\nhost: {host}\r\naccept: */*\r\nvia: 1.1 writ\r\ncontent-length: 4\r\n\r\nbody"
    );
    let records = answer.await;
    assert_eq!(records[0].sent, u64::try_from(expected.len()).unwrap(), "{records:?}");
    assert_eq!(records[0].verdict, Verdict::Failed);
}

/// Threat 16.
///
/// Rows: WIN-174 (in part: heads of requests)
#[tokio::test]
async fn requests_that_can_be_read_in_two_ways_are_refused() {
    let server = TestServer::fixed("127.0.0.1:0", PAGE).await;
    let port = server.address.port();
    let mut scope = pinned("pages.test", server.address);
    scope.allowed.push(pattern("pages.test"));
    let running = Running::new(scope);
    let get =
        |url: &str, host: &str| format!("GET {url} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    let connect = |to: &str| format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\nConnection: close\r\n\r\n");
    let good = format!("http://pages.test:{port}/");
    let host = format!("pages.test:{port}");
    let with = |headers: &str| format!("GET {good} HTTP/1.1\r\nHost: {host}\r\n{headers}\r\n\r\n");
    let cases = [
        (connect("evil.com\0.pages.test:443"), 400, "proxy.bad_head"),
        (get("http://pages.test\0/", "pages.test"), 400, "proxy.bad_head"),
        (format!("GET {good} HTTP/1.1\nHost: {host}\n\n"), 400, "proxy.bad_head"),
        (with("X: a\rTransfer-Encoding: chunked"), 400, "proxy.bad_head"),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(), 400, "proxy.http2"),
        ("\x16\x03\x01\x02\x00\x01\x00\x01".to_owned(), 400, "proxy.tls"),
        (get("/", "pages.test"), 400, "proxy.not_proxied"),
        (get("https://pages.test/", "pages.test"), 400, "proxy.not_connect"),
        (get("ftp://pages.test/", "pages.test"), 400, "proxy.bad_url"),
        (get(&format!("http://user:pw@pages.test:{port}/"), &host), 400, "proxy.userinfo"),
        (connect(&format!("pages.test@evil.test:{port}")), 400, "proxy.userinfo"),
        (get("http://127.1/", "127.1"), 400, "proxy.bad_host"),
        (get("http://0x7f000001/", "0x7f000001"), 400, "proxy.bad_host"),
        (get("http://2130706433/", "2130706433"), 400, "proxy.bad_host"),
        (connect("0177.0.0.1:443"), 400, "proxy.bad_host"),
        (connect("xn--pypal-4ve.com:443"), 400, "proxy.bad_host"),
        (connect("pages.test"), 400, "proxy.bad_port"),
        (format!("GET {good} HTTP/1.1\r\n\r\n"), 400, "proxy.two_hosts"),
        (with(&format!("Host: {host}")), 400, "proxy.two_hosts"),
        (get(&good, "evil.test"), 400, "proxy.other_host"),
        (get(&good, "pages.test"), 400, "proxy.other_host"),
        (get(&good, &format!("user@{host}")), 400, "proxy.other_host"),
        (format!("CONNECT {host} HTTP/1.1\r\nHost: evil.test:{port}\r\n\r\n"), 400, "proxy.other_host"),
        (
            with("Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\nConnection: Upgrade, HTTP2-Settings"),
            400,
            "proxy.upgrade",
        ),
        (with("Upgrade: TLS/1.0\r\nConnection: Upgrade"), 400, "proxy.upgrade"),
        (connect("pages.test:22"), 403, "egress.denied"),
        (connect("127.0.0.1:443"), 403, "egress.denied"),
        (connect("[::ffff:169.254.169.254]:443"), 403, "egress.denied"),
        (get("http://169.254.169.254/latest/", "169.254.169.254"), 403, "egress.denied"),
    ];
    for (request, status, code) in &cases {
        let answer = running.talk(request).await;
        let (found, name) = told(&answer);
        assert_eq!((found, name.as_str()), (*status, *code), "{request:?} was answered: {answer:?}");
        assert!(answer.contains("\r\n\r\nwrit: "), "{answer:?}");
    }
    assert_eq!((server.connections(), running.script.lookups()), (0, 0), "something was reached for");
    let records = running.end().await.expect("served");
    assert_eq!(records.len(), cases.len());
    assert!(records.iter().all(|record| matches!(record.verdict, Verdict::Malformed | Verdict::Denied)));
    assert!(
        records.iter().all(|record| record.sent == 0 && record.received == 0 && record.address.is_none())
    );
}

/// Rows: WIN-171 WIN-172
#[tokio::test]
async fn an_unknown_host_is_asked_about_once_and_reached_after_the_approval() {
    let server = TestServer::fixed("127.0.0.1:0", PAGE).await;
    let running = Running::new(EgressScope { allowed: Vec::new(), ..pinned("new.test", server.address) });
    let answer = running.get("http://new.test/").await;
    let asks = running.keeper.asks();
    let ask = asks.get("new.test").expect("an ask").as_str();
    assert_eq!(told(&answer), (403, "egress.ask".to_owned()), "{answer}");
    assert!(answer.contains(&format!("x-writ-ask: {ask}\r\n")), "{answer}");
    assert!(answer.split("\r\n\r\n").nth(1).is_some_and(|body| body.contains(ask)), "{answer}");
    // A refused tunnel's body is shown by few programs: the status line tells the ask as well.
    let (head, _) = running.tunnel("new.test:443").await;
    assert!(head.lines().next().is_some_and(|line| line.contains(ask)), "{head}");
    assert_eq!((asks.len(), running.keeper.asks().len()), (1, 1), "one host is one ask");
    assert_eq!((running.script.lookups(), server.connections()), (0, 0), "an unknown name leaves the host");

    let port = server.address.port();
    running.keeper.change(|scope| scope.granted.push(pattern(format!("new.test:{port}"))));
    let answer = running.get(&format!("http://new.test:{port}/")).await;
    assert!(answer.ends_with("hello"), "{answer}");
    // What was denied stays refused, and the approval of one host is not another's.
    assert_eq!(told(&running.get("http://other.test/").await).0, 403);
    running.keeper.change(|scope| scope.blocked.push(pattern("new.test")));
    assert_eq!(
        told(&running.get(&format!("http://new.test:{port}/")).await),
        (403, "egress.denied".to_owned())
    );
    let verdicts: Vec<_> = running.end().await.expect("served").into_iter().map(|r| r.verdict).collect();
    use Verdict::{Allowed, Asked, Denied};
    assert_eq!(verdicts, [Asked, Asked, Allowed, Asked, Denied]);
}

/// Threats 14 and 15.
///
/// Rows: WIN-216 (in part: names that lead inside)
#[tokio::test]
async fn names_that_lead_inside_are_refused_before_any_connection() {
    let server = TestServer::fixed("127.0.0.1:0", PAGE).await;
    let port = server.address.port();
    let scope =
        EgressScope { allowed: vec![pattern(format!("*.evil.test:{port}"))], ..EgressScope::default() };
    let running = Running::new(scope);
    let inside = [
        vec!["127.0.0.1"],
        vec!["::1"],
        vec!["::ffff:127.0.0.1"],
        vec!["64:ff9b::7f00:1"],
        vec!["10.0.0.1"],
        vec!["192.168.0.1"],
        vec!["169.254.169.254"],
        vec!["fd00:ec2::254"],
        vec!["100.64.0.1"],
        vec!["0.0.0.0"],
        vec!["2002:7f00:1::"],
        // One of several is enough.
        vec!["8.8.8.8", "127.0.0.1"],
        vec!["2606:4700::1111", "8.8.8.8", "fe80::1"],
    ];
    for (number, addresses) in inside.iter().enumerate() {
        let name = format!("n{number}.evil.test");
        running.script.answer(&name, addresses);
        let answer = running.get(&format!("http://{name}:{port}/")).await;
        assert_eq!(told(&answer), (403, "egress.denied".to_owned()), "{addresses:?}: {answer}");
        assert!(addresses.iter().all(|address| !answer.contains(address)), "the address is told: {answer}");
    }
    assert_eq!(server.connections(), 0);
    assert_eq!(told(&running.get(&format!("http://gone.evil.test:{port}/")).await).0, 502);
    let records = running.end().await.expect("served");
    assert_eq!(records[0].rule, "loopback");
    assert_eq!(records[6].rule, "metadata");
    assert!(records.iter().all(|record| record.address.is_none()), "something was connected to");
    let denied = records.iter().filter(|record| record.verdict == Verdict::Denied).count();
    assert_eq!(denied, inside.len(), "{records:?}");
    // Its twins, names that lead where they may, are with the next one.
    println!("THREAT 15 attempts={} refused={denied} entries={denied} entry=connected twins=0", inside.len());
}

/// Threat 15: the address that was judged is the one that is connected to.
///
/// Rows: WIN-216 (in part: a name that changes its address)
#[tokio::test]
async fn a_name_is_looked_up_once_for_each_connection() {
    let first = TestServer::fixed("127.0.0.1:0", PAGE).await;
    let port = first.address.port();
    let second = TestServer::fixed(&format!("127.0.0.2:{port}"), PAGE).await;
    let host = format!("rebind.test:{port}");
    // The owner's provider may be in a network of one's own, so that both answers would be good ones.
    let scope = EgressScope {
        allowed: vec![pattern(&host)],
        providers: vec![pattern(&host)],
        ..EgressScope::default()
    };
    let running = Running::new(scope);
    for answer in [["127.0.0.1"], ["127.0.0.2"], ["169.254.169.254"]] {
        running.script.answer("rebind.test", &answer);
    }
    assert!(running.get(&format!("http://{host}/")).await.ends_with("hello"));
    assert_eq!((running.script.lookups(), first.connections(), second.connections()), (1, 1, 0));
    assert!(running.get(&format!("http://{host}/")).await.ends_with("hello"));
    assert_eq!((running.script.lookups(), first.connections(), second.connections()), (2, 1, 1));
    assert_eq!(told(&running.get(&format!("http://{host}/")).await), (403, "egress.denied".to_owned()));
    let lookups = running.script.lookups();
    assert_eq!(lookups, 3);
    let records = running.end().await.expect("served");
    let addresses: Vec<_> = records.iter().map(|record| record.address.map(|at| at.to_string())).collect();
    assert_eq!(addresses, [Some("127.0.0.1".to_owned()), Some("127.0.0.2".to_owned()), None]);
    let denied = records.iter().filter(|record| record.verdict == Verdict::Denied).count();
    let twins = first.connections() + second.connections();
    // Whatever was looked up and reached neither of the two was to be led astray.
    let attempts = lookups - twins;
    println!("THREAT 15 attempts={attempts} refused={denied} entries={denied} entry=connected twins={twins}");
}

async fn tls(stream: TcpStream, roots: rustls::RootCertStore, name: Option<&str>) -> std::io::Result<String> {
    let mut config = rustls::ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.enable_sni = name.is_some();
    let name = ServerName::try_from(name.unwrap_or("pages.test").to_owned()).expect("a name");
    let mut stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
    stream.write_all(b"GET / HTTP/1.1\r\nhost: pages.test\r\n\r\n").await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

/// Threat 16: what the tunnel says to the server is what was judged.
///
/// Rows: WIN-174 (in part: tunnels)
#[tokio::test]
async fn a_tunnel_carries_tls_for_its_own_host_only() {
    let (server, roots) = TestServer::tls("pages.test").await;
    let to = format!("pages.test:{}", server.address.port());
    let running = Running::new(pinned("pages.test", server.address));
    let (head, stream) = running.tunnel(&to).await;
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    let answer = tls(stream, roots.clone(), Some("pages.test")).await.expect("TLS from end to end");
    assert!(answer.ends_with("secret"), "{answer}");
    assert_eq!(server.bytes(), 1);

    for name in [Some("evil.test"), None] {
        let (_, stream) = running.tunnel(&to).await;
        tls(stream, roots.clone(), name).await.expect_err("another name, or none");
    }
    let (_, mut stream) = running.tunnel(&to).await;
    stream.write_all(b"GET / HTTP/1.1\r\nhost: evil.test\r\n\r\n").await.expect("sends");
    assert_eq!(stream.read_to_end(&mut Vec::new()).await.unwrap_or(0), 0, "what is not TLS is cut");
    assert_eq!(server.bytes(), 1, "no byte of a cut tunnel reaches the host");
    let rules: Vec<_> =
        running.end().await.expect("served").into_iter().map(|r| (r.verdict, r.rule)).collect();
    let cut = |rule: &str| (Verdict::Cut, rule.to_owned());
    assert_eq!(
        rules,
        [
            (Verdict::Allowed, "allowed".to_owned()),
            cut("tunnel.other_host"),
            cut("tunnel.no_server_name"),
            cut("tunnel.not_tls")
        ]
    );
}

/// A tunnel with another protocol goes where the owner listed it, and old clients are understood.
#[tokio::test]
async fn an_opaque_tunnel_carries_anything() {
    let server = TestServer::echo().await;
    let to = format!("git.test:{}", server.address.port());
    let mut scope = pinned("git.test", server.address);
    scope.opaque = vec![pattern(&to)];
    let running = Running::new(scope);
    let mut stream = running.connect().await;
    stream.write_all(format!("CONNECT {to} HTTP/1.0\r\n\r\nearly ").as_bytes()).await.expect("sends");
    stream.write_all(b"bytes").await.expect("sends");
    stream.shutdown().await.expect("half closes");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("reads");
    assert!(answer.starts_with("HTTP/1.0 200 ") && answer.ends_with("\r\n\r\nearly bytes"), "{answer}");
    let records = running.end().await.expect("served");
    assert_eq!((records[0].sent, records[0].received), (11, 11));
}

#[tokio::test]
async fn a_websocket_passes_over_plain_http() {
    let switch =
        "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\nframes";
    let server = TestServer::fixed("127.0.0.1:0", switch).await;
    let host = format!("ws.test:{}", server.address.port());
    let running = Running::new(pinned("ws.test", server.address));
    let request = format!(
        "GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"
    );
    let answer = running.talk(request).await;
    assert!(answer.starts_with("HTTP/1.1 101 ") && answer.ends_with("\r\n\r\nframes"), "{answer}");
    assert!(answer.contains("upgrade: websocket"), "{answer}");
    // Whoever did not ask for one gets none.
    let answer = running.get(&format!("http://{host}/")).await;
    assert_eq!(told(&answer), (502, "egress.bad_answer".to_owned()), "{answer}");
    let records = running.end().await.expect("served");
    assert_eq!(records[0].received, u64::try_from(switch.len()).unwrap());
}

#[tokio::test]
async fn what_is_no_request_is_refused_and_recorded() {
    let running = Running::new(EgressScope::default());
    for bytes in ["nonsense\r\n\r\n", "GET http://a.test/ HTTP/9.9\r\n\r\n", "GET a b HTTP/1.1\r\n\r\n"] {
        let answer = running.talk(bytes).await;
        assert_eq!(told(&answer).0, 400, "{bytes:?}: {answer}");
    }
    drop(running.connect().await);
    let rules: Vec<_> = running.keeper.recorded(4).await.into_iter().map(|record| record.rule).collect();
    assert_eq!(rules, ["proxy.bad_request", "proxy.bad_request", "proxy.bad_request", "proxy.empty"]);
    running.end().await.expect("served");
}

/// Several requests share a client's connection, to different hosts, and each is judged and recorded.
#[tokio::test]
async fn each_request_of_a_connection_is_judged() {
    let server = TestServer::fixed("127.0.0.1:0", PAGE).await;
    let host = format!("pages.test:{}", server.address.port());
    let running = Running::new(pinned("pages.test", server.address));
    let one = |host: &str, more: &str| format!("GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\n{more}\r\n");
    let answers = running
        .talk([one(&host, ""), one("other.test", ""), one(&host, "Connection: close\r\n")].concat())
        .await;
    let statuses: Vec<_> = answers.split("HTTP/1.1 ").skip(1).map(|part| &part[..3]).collect();
    assert_eq!(statuses, ["200", "403", "200"], "{answers}");
    assert_eq!(running.end().await.expect("served").len(), 3);
}
