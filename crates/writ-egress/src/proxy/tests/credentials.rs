//! Threat 17: placeholders, the secrets that they stand for, and what comes back.

use std::sync::Mutex;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use writ_inspect::egress::credential::Binding;
use writ_types::entry::ConnectionRecord;

use super::*;
use crate::credential::{BoundCredential, Credentials};
use crate::{Egress, EgressConfig};

/// The secret.
const SECRET: &str = "kq7Zt-planted/secret+9351";
/// What stands for it.
const PLACEHOLDER: &str = "writ_placeholder_git_00112233445566778899aabbccddeeff";
/// What stands in its place in answers.
const MASK: &str = "[masked:secret:git]";

/// A proxy that opens tunnels to `pages.test`, and a server there that says what it was told.
struct Stage {
    running: Running,
    server: TestServer,
    /// The heads of what the server was asked.
    heads: Arc<Mutex<Vec<String>>>,
    /// Whom programs trust.
    trust: rustls::RootCertStore,
    _folder: tempfile::TempDir,
}

fn binding(host: String) -> Binding {
    Binding {
        name: "git".parse().expect("a name"),
        secret: "secret:git".parse().expect("a secret"),
        host: host.parse().expect("a host"),
        methods: vec!["GET".into(), "POST".into()],
        paths: vec!["/me/**".into()],
        env: "GIT_TOKEN".into(),
        header: "authorization".into(),
        format: "Bearer {}".into(),
        user: None,
        plain: false,
    }
}

impl Stage {
    /// `answer` makes the server's answer of a request's head; it trusts the server's certificate if `trusted`.
    async fn new(answer: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static, trusted: bool) -> Self {
        let heads = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&heads);
        let (server, roots) = TestServer::tls_answering("pages.test", move |head| {
            noted.lock().expect("a lock").push(head.to_owned());
            answer(head)
        })
        .await;
        let folder = tempfile::tempdir().expect("a folder");
        let roots = if trusted { roots } else { rustls::RootCertStore::empty() };
        let egress =
            Egress::new(&EgressConfig::default(), folder.path()).expect("a way out").trusting_config(roots);
        let key = CertificateAuthority::generate_key().expect("a key");
        let authority = egress.with_authority(&key).expect("an authority").get_authority().expect("it");
        let mut trust = rustls::RootCertStore::empty();
        let certificate = CertificateDer::from_pem_slice(authority.certificate_pem().as_bytes());
        trust.add(certificate.expect("PEM")).expect("a root");
        let mut scope = pinned("pages.test", server.address);
        scope.allowed.push(pattern(format!("other.test:{}", server.address.port())));
        let running = Running::opening(ProxyConfig::default(), scope, Some(authority));
        let held = BoundCredential {
            binding: binding(format!("pages.test:{}", server.address.port())),
            placeholder: PLACEHOLDER.to_owned(),
            value: Some(SECRET.to_owned().into()),
        };
        *running.keeper.credentials.lock().expect("a lock") = Credentials::new(vec![held]);
        Self { running, server, heads, trust, _folder: folder }
    }

    /// What it was told, as it was told.
    fn heads(&self) -> Vec<String> {
        self.heads.lock().expect("a lock").clone()
    }

    /// Sends one request through a tunnel, and gives the whole answer.
    async fn ask(&self, request: &str, body: &str) -> String {
        let mut stream = self.connected().await;
        let text = format!(
            "{request}\r\nhost: pages.test:{}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
            self.server.address.port(),
            body.len()
        );
        stream.write_all(text.as_bytes()).await.expect("sends");
        let mut answer = Vec::new();
        let read = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await.expect("in time");
        read.ok();
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// A tunnel to `pages.test`, greeted.
    async fn connected(&self) -> impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + use<> {
        let (head, stream) = self.running.tunnel(&format!("pages.test:{}", self.server.address.port())).await;
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        let config = self.client(Vec::new());
        let name = ServerName::try_from("pages.test").expect("a name");
        let connecting = TlsConnector::from(Arc::new(config)).connect(name, stream).await;
        connecting.expect("our certificate is trusted")
    }

    fn client(&self, alpn: Vec<Vec<u8>>) -> rustls::ClientConfig {
        let mut config = rustls::ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(self.trust.clone())
            .with_no_client_auth();
        config.alpn_protocols = alpn;
        config
    }

    /// The records of requests, without those of tunnels.
    async fn records(self) -> Vec<ConnectionRecord> {
        let records = self.running.end().await.expect("served");
        records.into_iter().filter(|record| record.rule != "opened").collect()
    }
}

/// Says everything that it was told, in a header, in pieces of its body, and in base64.
fn echo(head: &str) -> Vec<u8> {
    let said = head.lines().find_map(|line| line.strip_prefix("authorization: ")).unwrap_or("nobody");
    let body = format!("{head}\n{}\n{}", BASE64_STANDARD.encode(format!("x{said}")), hex::encode(said));
    let mut answer = format!("HTTP/1.1 200 OK\r\nx-said: {said}\r\ntransfer-encoding: chunked\r\n\r\n");
    for piece in body.as_bytes().chunks(7) {
        answer.push_str(&format!("{:x}\r\n{}\r\n", piece.len(), str::from_utf8(piece).expect("ASCII")));
    }
    answer.push_str(&format!("0\r\nx-later: {said}\r\n\r\n"));
    answer.into_bytes()
}

fn bearer(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nauthorization: Bearer {PLACEHOLDER}")
}

#[tokio::test]
async fn a_secret_goes_to_its_host_in_its_header_and_never_comes_back() {
    let stage = Stage::new(echo, true).await;
    let answer = stage.ask(&bearer("/me/one?x=1"), "").await;
    let heads = stage.heads();
    assert!(heads[0].starts_with("GET /me/one?x=1 HTTP/1.1\r\n"), "{heads:?}");
    assert!(heads[0].contains(&format!("authorization: Bearer {SECRET}\r\n")), "{heads:?}");
    assert!(heads[0].contains("accept-encoding: identity\r\n"), "{heads:?}");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.contains(&format!("x-said: Bearer {MASK}\r\n")), "{answer}");
    // Its pieces are joined again.
    let pieces: Vec<&str> = answer.split("\r\n").collect();
    let joined: String = pieces.concat();
    assert!(joined.matches(MASK).count() >= 4, "{answer}");
    for form in [SECRET.to_owned(), hex::encode(SECRET), BASE64_STANDARD.encode(SECRET)] {
        assert!(!joined.contains(&form) && !joined.contains("x-later"), "{form}: {answer}");
    }
    // A request without it goes as it is; what was asked for in part with it is asked for as a whole.
    assert!(stage.ask("GET /anything HTTP/1.1\r\nrange: bytes=0-1", "").await.contains("nobody"));
    stage.ask(&format!("{}\r\nrange: bytes=0-1", bearer("/me/two")), "").await;
    let heads = stage.heads();
    assert!(!heads[1].contains("range: ") && !heads[1].contains(SECRET), "{heads:?}");
    assert!(!heads[2].contains("range: ") && heads[2].contains(SECRET), "{heads:?}");
    let records = stage.records().await;
    let used: Vec<Option<&str>> = records.iter().map(|record| record.credential.as_deref()).collect();
    assert_eq!(used, [Some("git"), None, Some("git")]);
    assert!(records.iter().all(|record| record.verdict == Verdict::Allowed && record.rule == "allowed"));
    assert!(!format!("{records:?}").contains(SECRET));
}

/// Threat 17.
#[tokio::test]
async fn a_placeholder_anywhere_else_is_refused_and_recorded_and_nothing_is_sent() {
    let stage = Stage::new(echo, true).await;
    let port = stage.server.address.port();
    let basic = BASE64_STANDARD.encode(format!("me:{PLACEHOLDER}"));
    let misused = [
        (bearer("/you"), "credential.path"),
        (bearer("/me/../you"), "credential.path"),
        (bearer("/me/%2e%2e/you"), "credential.path"),
        (bearer("/me/one").replace("GET", "DELETE"), "credential.method"),
        (format!("{}\r\nX-HTTP-Method-Override: DELETE", bearer("/me/one")), "credential.override"),
        (format!("{}\r\nx-original-url: /you", bearer("/me/one")), "credential.override"),
        (bearer("/me/one").replace("authorization", "x-other"), "credential.place"),
        (bearer(&format!("/me/one?token={PLACEHOLDER}")), "credential.place"),
        (format!("GET /me/{PLACEHOLDER} HTTP/1.1"), "credential.place"),
        (format!("GET /me/one HTTP/1.1\r\ncookie: a={PLACEHOLDER}"), "credential.place"),
        (format!("{}\r\ncookie: a={PLACEHOLDER}", bearer("/me/one")), "credential.place"),
        (format!("{0}\r\nauthorization: Bearer {PLACEHOLDER}", bearer("/me/one")), "credential.place"),
        (bearer("/me/one").replace("Bearer", "Token"), "credential.form"),
        (format!("GET /me/one HTTP/1.1\r\nauthorization: Basic {basic}"), "credential.form"),
        (format!("{}\r\nconnection: upgrade\r\nupgrade: websocket", bearer("/me/one")), "credential.upgrade"),
    ];
    for (request, code) in &misused {
        let answer = stage.ask(request, "").await;
        assert_eq!(told(&answer), (403, (*code).to_owned()), "{request}");
        assert!(!answer.contains(SECRET));
    }
    // In a body; what comes before it may have gone.
    let post = bearer("/me/one").replace("GET", "POST");
    let answer = stage.ask(&post, &format!("{}{PLACEHOLDER}", "x".repeat(20_000))).await;
    assert_eq!(told(&answer).1, "credential.place", "{answer}");
    assert!(stage.heads().iter().all(|head| !head.contains(PLACEHOLDER)));
    // To another host, and over plain HTTP.
    for (host, code) in [("other.test", "credential.host"), ("pages.test", "credential.plain")] {
        let request = format!(
            "GET http://{host}:{port}/me/one HTTP/1.1\r\nhost: {host}:{port}\r\nconnection: close\r\n\
             authorization: Bearer {PLACEHOLDER}\r\n\r\n"
        );
        let answer = stage.running.talk(&request).await;
        assert_eq!(told(&answer), (403, code.to_owned()), "{answer}");
    }
    let twin = stage.ask(&bearer("/me/one"), "").await;
    assert!(twin.starts_with("HTTP/1.1 200 "), "{twin}");
    let sent = stage.heads().iter().filter(|head| head.contains(SECRET)).count();
    let records = stage.records().await;
    let denied: Vec<&str> = records
        .iter()
        .filter(|record| record.verdict == Verdict::Denied)
        .map(|record| record.rule.as_str())
        .collect();
    let attempts = misused.len() + 3;
    println!("THREAT 17 attempts={attempts} refused={} entries={0} entry=connected twins=1", denied.len());
    assert_eq!(denied.len(), attempts, "{records:?}");
    assert!(denied.iter().all(|rule| rule.starts_with("credential.")), "{denied:?}");
    // The body's beginning went to where it was bound to, with it; nothing else did.
    assert!(sent <= 2, "{sent}");
}

/// What a host reads out of a parameter is not known here: it goes with the secret as it is.
#[tokio::test]
async fn a_parameter_that_stands_for_another_method_is_not_seen() {
    let stage = Stage::new(echo, true).await;
    let answer = stage.ask(&bearer("/me/one?_method=DELETE"), "").await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let heads = stage.heads();
    assert!(
        heads[0].starts_with("GET /me/one?_method=DELETE HTTP/1.1\r\n") && heads[0].contains(SECRET),
        "{heads:?}"
    );
    let records = stage.records().await;
    let told: Vec<_> = records.iter().map(|one| (one.rule.as_str(), one.credential.as_deref())).collect();
    assert_eq!(told, [("allowed", Some("git"))]);
}

/// A host may answer before it has read everything: what comes then is cut off, and the record says why.
#[tokio::test]
async fn a_placeholder_that_comes_after_the_answer_is_cut_off_and_recorded() {
    let begun = |_: &str| b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nbegun\r\n".to_vec();
    let stage = Stage::new(begun, true).await;
    let mut stream = stage.connected().await;
    let post = bearer("/me/one").replace("GET", "POST");
    let host = format!("pages.test:{}", stage.server.address.port());
    let head = format!("{post}\r\nhost: {host}\r\ncontent-length: 100000\r\n\r\nfirst");
    stream.write_all(head.as_bytes()).await.expect("sends");
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).await.expect("an answer");
    assert_eq!(&answer, b"HTTP/1.1 200");
    stream.write_all(PLACEHOLDER.as_bytes()).await.expect("sends");
    stream.write_all("x".repeat(90_000).as_bytes()).await.expect("sends");
    drop(stream);
    let records = stage.records().await;
    assert!(
        matches!(records.as_slice(), [one] if one.verdict == Verdict::Denied && one.rule == "credential.place"),
        "{records:?}"
    );
}

#[tokio::test]
async fn a_host_that_proves_nothing_gets_no_secret() {
    let stage = Stage::new(echo, false).await;
    let answer = stage.ask(&bearer("/me/one"), "").await;
    assert_eq!(told(&answer), (502, "credential.upstream".to_owned()), "{answer}");
    assert!(stage.heads().is_empty(), "it has heard nothing");
    let records = stage.records().await;
    assert!(matches!(records.as_slice(), [one] if one.verdict == Verdict::Failed), "{records:?}");
}

#[tokio::test]
async fn an_answer_that_cannot_be_looked_through_is_not_passed_back() {
    let squeezed = |_: &str| {
        b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 3\r\n\r\n\x1f\x8b\x08".to_vec()
    };
    let stage = Stage::new(squeezed, true).await;
    let answer = stage.ask(&bearer("/me/one"), "").await;
    assert_eq!(told(&answer), (502, "credential.encoded".to_owned()), "{answer}");
    assert_eq!(stage.records().await[0].rule, "credential.encoded");
}

#[tokio::test]
async fn only_http_1_is_spoken_in_what_is_opened_and_only_by_its_own_name() {
    let stage = Stage::new(echo, true).await;
    let to = format!("pages.test:{}", stage.server.address.port());
    for (alpn, name) in [(vec![b"h2".to_vec()], "pages.test"), (Vec::new(), "other.test")] {
        let (_, stream) = stage.running.tunnel(&to).await;
        let config = stage.client(alpn);
        let name = ServerName::try_from(name).expect("a name");
        let greeted = TlsConnector::from(Arc::new(config)).connect(name, stream).await;
        assert!(greeted.is_err());
    }
    let records = stage.running.end().await.expect("served");
    let rules: Vec<&str> = records.iter().map(|record| record.rule.as_str()).collect();
    assert_eq!(rules, ["credential.handshake", "tunnel.other_host"]);
    assert_eq!(stage.server.connections(), 0);
}

/// A secret that is not there, or that could not be found again, is not used; nothing goes out in its place.
#[tokio::test]
async fn a_secret_that_cannot_be_used_is_not() {
    let stage = Stage::new(echo, true).await;
    for value in [None, Some("short"), Some("two words and more"), Some("a\r\nline: b")] {
        let host = format!("pages.test:{}", stage.server.address.port());
        let value = value.map(|value| value.to_owned().into());
        let held = BoundCredential { binding: binding(host), placeholder: PLACEHOLDER.to_owned(), value };
        *stage.running.keeper.credentials.lock().expect("a lock") = Credentials::new(vec![held]);
        let answer = stage.ask(&bearer("/me/one"), "").await;
        assert_eq!(told(&answer), (403, "credential.missing".to_owned()), "{answer}");
    }
    assert!(stage.heads().is_empty());
}

/// Over plain HTTP where the owner says so, to an address that the owner names; and the same mask.
#[tokio::test]
async fn a_plain_host_gets_it_where_its_owner_says_so() {
    let server = TestServer::fixed(
        "127.0.0.1:0",
        format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{SECRET}", SECRET.len()),
    )
    .await;
    let running = Running::new(pinned("plain.test", server.address));
    let host = format!("plain.test:{}", server.address.port());
    let held = BoundCredential {
        binding: Binding { plain: true, ..binding(host.clone()) },
        placeholder: PLACEHOLDER.to_owned(),
        value: Some(SECRET.to_owned().into()),
    };
    *running.keeper.credentials.lock().expect("a lock") = Credentials::new(vec![held]);
    let ask = |more: &str| {
        format!(
            "GET http://{host}/me/x HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\
             authorization: Bearer {PLACEHOLDER}\r\n{more}\r\n"
        )
    };
    let answer = running.talk(ask("")).await;
    assert!(
        answer.starts_with("HTTP/1.1 200 ") && answer.contains(MASK) && !answer.contains(SECRET),
        "{answer}"
    );
    let upgrade = running.talk(ask("connection: upgrade\r\nupgrade: websocket\r\n")).await;
    assert_eq!(told(&upgrade).0, 403, "{upgrade}");
    let records = running.end().await.expect("served");
    assert_eq!(records[0].credential.as_deref(), Some("git"));
}
