//! Connections through a proxy that plays what proxies of companies do, and certificate authorities of one's own.

use std::sync::Mutex;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_rustls::TlsAcceptor;
use writ_types::error::ToReport as _;

use super::*;
use crate::authority::to_pem;
use crate::connect::Stream;
use crate::error::TunnelFault;
use crate::testing::provider;
use crate::trust::ExtraRoots;
use crate::upstream::{DirectHosts, ProxyRoutes, Upstream};

/// What a proxy does with a request.
#[derive(Clone)]
enum Behaviour {
    /// Connects to this address, whatever name was asked for.
    Serve(SocketAddr),
    /// Answers with these bytes, and ends.
    Say(&'static str),
}

/// A proxy for the tests; it notes the head of each request.
pub(crate) struct ScriptedProxy {
    pub(crate) address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
    running: tokio::task::JoinHandle<()>,
}

impl Drop for ScriptedProxy {
    fn drop(&mut self) {
        self.running.abort();
    }
}

impl ScriptedProxy {
    async fn start(behaviour: Behaviour) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
        let address = listener.local_addr().expect("has an address");
        let heads = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&heads);
        let running = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(treat(stream, behaviour.clone(), Arc::clone(&noted)));
            }
        });
        Self { address, heads, running }
    }

    pub(crate) async fn serving(host: SocketAddr) -> Self {
        Self::start(Behaviour::Serve(host)).await
    }

    pub(crate) async fn saying(answer: &'static str) -> Self {
        Self::start(Behaviour::Say(answer)).await
    }

    pub(crate) fn heads(&self) -> Vec<String> {
        self.heads.lock().expect("a lock").clone()
    }

    pub(crate) fn routes(&self, login: &str, direct: &str) -> ProxyRoutes {
        let text = format!("http://{login}{}", self.address);
        let proxy = Arc::new(Upstream::parse(&text, "network.proxy").expect("a proxy"));
        let direct = DirectHosts::parse(direct).0;
        ProxyRoutes { secure: Some(Arc::clone(&proxy)), plain: Some(proxy), direct, unchecked_names: false }
    }
}

async fn treat(mut stream: Stream, behaviour: Behaviour, heads: Arc<Mutex<Vec<String>>>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => return,
        }
    }
    let head = String::from_utf8(head).expect("text");
    heads.lock().expect("a lock").push(head.clone());
    match behaviour {
        Behaviour::Say(answer) => {
            let _ = stream.write_all(answer.as_bytes()).await;
            let _ = stream.shutdown().await;
        }
        Behaviour::Serve(host) => {
            let mut host = Stream::connect(host).await.expect("the host is there");
            if head.starts_with("CONNECT ") {
                let _ = stream.write_all(b"HTTP/1.0 200 Connection established\r\nVia: x\r\n\r\n").await;
            } else {
                host.write_all(head.as_bytes()).await.expect("sends");
            }
            let _ = tokio::io::copy_bidirectional(&mut stream, &mut host).await;
        }
    }
}

/// A certificate authority, and a server that it vouches for.
pub(crate) async fn corporate(name: &str) -> (SocketAddr, String, tokio::task::JoinHandle<()>) {
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::new(Vec::new()).expect("parameters");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let root = params.self_signed(&key).expect("a root");
    let issuer = Issuer::new(params, key);
    let leaf_key = KeyPair::generate().expect("a key");
    let leaf = CertificateParams::new(vec![name.to_owned()]).expect("parameters");
    let leaf = leaf.signed_by(&leaf_key, &issuer).expect("a certificate");
    let secret = rustls::pki_types::PrivateKeyDer::try_from(leaf_key.serialize_der()).expect("a key");
    let config = rustls::ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![leaf.der().clone()], secret)
        .expect("a certificate");
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
    let address = listener.local_addr().expect("has an address");
    let running = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(mut stream) = acceptor.accept(stream).await else { return };
                let mut step = [0; 4096];
                let _ = stream.read(&mut step).await;
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\ninner").await;
                let _ = stream.shutdown().await;
            });
        }
    });
    (address, to_pem(root.der()), running)
}

fn networked(routes: ProxyRoutes, pem: &str) -> (Egress, tempfile::TempDir) {
    let mut roots = ExtraRoots::default();
    if !pem.is_empty() {
        roots.add_pem(pem.as_bytes()).expect("a root");
    }
    let (egress, runtime) = egress(&EgressConfig::default());
    (egress.with_network(routes, roots, &ExtraRoots::default()).expect("egress"), runtime)
}

async fn get(egress: &Egress, url: &str) -> Result<String, EgressError> {
    let parsed: reqwest::Url = url.parse().expect("a URL");
    let at =
        format!("{}:{}", parsed.host_str().expect("a host"), parsed.port_or_known_default().expect("a port"));
    let url = url.to_owned();
    match lend(egress, host(at), |lent| text(lent.client, url)).await? {
        Ok(text) => Ok(text),
        Err(why) => panic!("a fault that nobody has typed: {why}"),
    }
}

#[tokio::test]
async fn tls_goes_through_the_proxy_by_connect_with_its_login() {
    let (inner, pem, running) = corporate("api.corp.example").await;
    let proxy = ScriptedProxy::serving(inner).await;
    let (egress, _runtime) = networked(proxy.routes("corp%5Cann:p%40ss@", ""), &pem);
    // The name has no address here: with a proxy it is not looked up.
    assert_eq!(get(&egress, "https://api.corp.example/v1").await.expect("an answer"), "inner");
    let heads = proxy.heads();
    assert_eq!(heads.len(), 1);
    assert!(
        heads[0].starts_with("CONNECT api.corp.example:443 HTTP/1.1\r\nHost: api.corp.example:443\r\n"),
        "{heads:?}"
    );
    // corp\ann:p@ss
    assert!(heads[0].contains("\r\nProxy-Authorization: Basic Y29ycFxhbm46cEBzcw==\r\n"), "{heads:?}");
    running.abort();
}

#[tokio::test]
async fn plain_http_goes_through_the_proxy_with_whole_addresses() {
    let inner = server(None).await;
    let proxy = ScriptedProxy::serving(inner.address).await;
    let (egress, _runtime) = networked(proxy.routes("ann:secret@", ""), "");
    let url = "http://models.corp.example:8080/";
    assert_eq!(get(&egress, url).await.expect("an answer"), "hello");
    let heads = proxy.heads();
    assert!(heads[0].starts_with("GET http://models.corp.example:8080/ HTTP/1.1\r\n"), "{heads:?}");
    assert!(
        heads[0].to_lowercase().contains("\r\nproxy-authorization: basic yw5uonnly3jlda==\r\n"),
        "{heads:?}"
    );
    // A lent client cannot name another host to the proxy.
    let other = "http://elsewhere.example/secret?x=1".to_owned();
    let _ = lend(&egress, host("models.corp.example:8080"), |lent| text(lent.client, other)).await;
    let last = proxy.heads().pop().expect("a request");
    assert!(last.starts_with("GET http://models.corp.example:8080/secret?x=1 "), "{last}");
    assert!(!last.contains("elsewhere"), "{last}");
}

#[tokio::test]
async fn what_is_exempt_and_this_machine_are_reached_directly() {
    let local = server(None).await;
    let proxy = ScriptedProxy::saying("HTTP/1.1 403 Forbidden\r\n\r\n").await;
    let (egress, _runtime) = networked(proxy.routes("", "nowhere.invalid"), "");
    for url in [format!("http://{}/", local.address), format!("http://localhost:{}/", local.address.port())] {
        assert_eq!(get(&egress, &url).await.expect("an answer"), "hello");
    }
    let error = get(&egress, "http://nowhere.invalid/").await.expect_err("no such host");
    assert!(!matches!(error, EgressError::Line(Fault::Proxy { .. })), "{error}");
    assert_eq!(proxy.heads(), Vec::<String>::new());
}

#[tokio::test]
async fn what_proxies_say_instead_of_connecting_is_a_typed_error_that_names_proxy_and_setting() {
    let login = "HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic realm=\"corp\"\r\nContent-Length: 0\r\n\r\n";
    let ntlm = "HTTP/1.1 407 authenticationrequired\r\nProxy-Authenticate: NEGOTIATE\r\nproxy-authenticate: NTLM\r\n\r\n<html>";
    for (answer, expected) in [
        (login, TunnelFault::Login),
        (ntlm, TunnelFault::Scheme("NEGOTIATE, NTLM".to_owned())),
        (
            "HTTP/1.1 403 Forbidden\r\nContent-Type: text/html\r\n\r\n<html>Blocked</html>",
            TunnelFault::Refused(403),
        ),
        ("HTTP/1.1 302 Found\r\nLocation: http://portal/\r\n\r\n", TunnelFault::Refused(302)),
        (
            "HTTP/1.1 503 Service Unavailable\r\nX-Squid-Error: ERR_DNS_FAIL 0\r\n\r\n",
            TunnelFault::Failed(503),
        ),
        ("", TunnelFault::Closed),
        ("<html>I am a router</html>", TunnelFault::BadAnswer),
        ("HTTP/1.1 200 OK\r\nVia", TunnelFault::BadAnswer),
        ("SSH-2.0-OpenSSH_9.2\r\n", TunnelFault::BadAnswer),
    ] {
        let proxy = ScriptedProxy::saying(answer).await;
        let (egress, _runtime) = networked(proxy.routes("ann:hunter2@", ""), "");
        let error = get(&egress, "https://api.corp.example/").await.expect_err("refused");
        let EgressError::Line(Fault::Proxy { why, .. }) = &error else { panic!("{answer:?}: {error:?}") };
        assert_eq!(*why, expected, "{answer:?}");
        let report = error.report();
        assert!(
            report.outside.contains(&format!("http://{} (network.proxy)", proxy.address)),
            "{}",
            report.outside
        );
        assert!(report.outside.contains("api.corp.example:443"), "{}", report.outside);
        assert!(!report.hint.is_empty());
        assert!(!format!("{report:?} {error:?}").contains("hunter2"));
    }
    let endless =
        ScriptedProxy::saying(Box::leak(format!("HTTP/1.1 200 {}", "x".repeat(40_000)).into_boxed_str()))
            .await;
    let (egress, _runtime) = networked(endless.routes("", ""), "");
    let error = get(&egress, "https://api.corp.example/").await.expect_err("refused");
    assert!(
        matches!(error, EgressError::Line(Fault::Proxy { why: TunnelFault::BadAnswer, .. })),
        "{error:?}"
    );
}

#[tokio::test]
async fn a_proxy_that_wants_a_login_for_plain_http_or_is_not_there_is_a_typed_error() {
    let answer = "HTTP/1.1 407 No\r\nProxy-Authenticate: Basic realm=\"corp\"\r\nContent-Length: 0\r\n\r\n";
    let proxy = ScriptedProxy::saying(answer).await;
    let (egress, _runtime) = networked(proxy.routes("", ""), "");
    let error = get(&egress, "http://models.corp.example/").await.expect_err("refused");
    assert!(matches!(error, EgressError::Line(Fault::Proxy { why: TunnelFault::Login, .. })), "{error:?}");
    let routes = proxy.routes("", "");
    drop(proxy);
    let (egress, _runtime) = networked(routes, "");
    for url in ["http://models.corp.example/", "https://models.corp.example/"] {
        let error = get(&egress, url).await.expect_err("nobody there");
        let is_named =
            matches!(&error, EgressError::Line(Fault::Proxy { why: TunnelFault::Unreachable(_), .. }));
        assert!(is_named, "{error:?}");
        assert!(error.report().hint.contains("network.proxy"), "{error:?}");
    }
    let routes = ProxyRoutes {
        secure: Some(Arc::new(Upstream::parse("http://proxy.invalid:3128", "HTTPS_PROXY").expect("a proxy"))),
        ..ProxyRoutes::default()
    };
    let (egress, _runtime) = networked(routes, "");
    let error = get(&egress, "https://models.corp.example/").await.expect_err("no such proxy");
    assert!(error.to_string().contains("http://proxy.invalid:3128 (HTTPS_PROXY)"), "{error}");
}

#[tokio::test]
async fn an_authority_of_ones_own_is_trusted_only_where_it_is_named_and_errors_name_the_setting() {
    let (inner, pem, running) = corporate("localhost").await;
    let url = format!("https://localhost:{}/", inner.port());
    let (plain, _runtime) = networked(ProxyRoutes::default(), "");
    let error = get(&plain, &url).await.expect_err("not trusted");
    assert!(matches!(error, EgressError::Line(Fault::Certificate { .. })), "{error:?}");
    assert!(error.report().hint.contains("network.ca_file"), "{:?}", error.report());
    let (trusting, _runtime) = networked(ProxyRoutes::default(), &pem);
    assert_eq!(get(&trusting, &url).await.expect("trusted"), "inner");
    assert_eq!(trusting.extra_roots().len(), 1);
    // A name that the certificate is not for stays refused.
    let error =
        get(&trusting, &format!("https://127.0.0.1:{}/", inner.port())).await.expect_err("another name");
    assert!(matches!(error, EgressError::Line(Fault::Certificate { .. })), "{error:?}");
    running.abort();
}
