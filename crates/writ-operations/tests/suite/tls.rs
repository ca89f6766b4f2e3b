//! `STARTTLS` with a mail server, and certificates for tests.

#![expect(clippy::disallowed_types, reason = "the test serves its own connections")]

use std::net::SocketAddr;

use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use writ_testkit::mail_sink::{MailFault, MailSink};

use super::*;

/// The certificate of `localhost`, with its key, in PEM and as a server takes them.
pub(super) struct Identity {
    pub(super) certificate: String,
    pub(super) key: String,
    server: ServerConfig,
}

impl Identity {
    pub(super) fn new() -> Self {
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(vec!["localhost".to_owned()]).expect("signs");
        let pem = |label: &str, bytes: &[u8]| {
            use base64::Engine as _;
            let text = base64::engine::general_purpose::STANDARD.encode(bytes);
            format!("-----BEGIN {label}-----\n{text}\n-----END {label}-----\n")
        };
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(signing_key.serialize_der()));
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let server = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("has versions")
            .with_no_client_auth()
            .with_single_cert(vec![cert.der().clone()], key)
            .expect("belong together");
        Self {
            certificate: pem("CERTIFICATE", cert.der()),
            key: pem("PRIVATE KEY", &signing_key.serialize_der()),
            server,
        }
    }
}

/// A server that offers `STARTTLS`, and hands what comes over it to a sink that knows no TLS.
async fn start_front(sink: SocketAddr, server: ServerConfig) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("listens");
    let address = listener.local_addr().expect("has one");
    let acceptor = TlsAcceptor::from(Arc::new(server));
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            // A client that trusts nothing leaves in the middle.
            tokio::spawn(async move { serve_client(client, &acceptor, sink).await });
        }
    });
    address
}

async fn serve_client(client: TcpStream, acceptor: &TlsAcceptor, sink: SocketAddr) -> std::io::Result<()> {
    let mut client = BufReader::new(client);
    client.write_all(b"220 front.test ESMTP\r\n").await?;
    for answer in ["250-front.test\r\n250 STARTTLS\r\n", "220 go on\r\n"] {
        client.read_line(&mut String::new()).await?;
        client.write_all(answer.as_bytes()).await?;
    }
    let mut secure = acceptor.accept(client.into_inner()).await?;
    let mut behind = TcpStream::connect(sink).await?;
    // The sink's greeting: over TLS there is none.
    behind.read_exact(&mut [0; "220 sink.test ESMTP\r\n".len()]).await?;
    tokio::io::copy_bidirectional(&mut secure, &mut behind).await.map(drop)
}

const OPERATION: &str = r#"
name = "greet"
[target.mail]
server = "outgoing"
to = { database = "shop", table = "customers", customer = "id", email = "email" }
templates.one = { subject = "Hello", body = "Hello." }
"#;

fn world(server: SocketAddr, trusted: &str) -> World {
    let folder = TempDir::new().expect("a folder");
    let shop = rusqlite::Connection::open(folder.path().join("shop.db")).expect("a database");
    shop.execute_batch("CREATE TABLE customers (id TEXT, email TEXT); INSERT INTO customers VALUES ('7', 'anna@example.org');")
        .expect("customers");
    let config = format!(
        "databases.shop = {{ kind = \"sqlite\", path = \"shop.db\" }}\n\
         mail.outgoing = {{ server = \"localhost:{}\", tls = \"starttls\", user = \"u\", password = \"planted\", from = \"Shop <shop@example.org>\" }}",
        server.port()
    );
    World::trusting(folder, OPERATION, &config, Duration::from_secs(20), trusted)
}

/// A mail and its login go out over TLS, to a server whose certificate is good, and otherwise not at all.
///
/// Rows: SLO-063 (in part: the way out)
#[tokio::test]
async fn a_mail_goes_over_starttls_or_not_at_all() {
    let sink = MailSink::start(MailFault::None).await.expect("a sink");
    let (good, other) = (Identity::new(), Identity::new());
    let front = start_front(sink.address(), good.server.clone()).await;
    let sent = world(front, &good.certificate).perform("greet", "7", json!({})).await;
    assert_eq!(sent.expect("a mail").changed, 1);
    let mail = sink.mails().pop().expect("a mail");
    assert_eq!(mail.to, ["anna@example.org"]);
    assert!(mail.login.is_some(), "inside TLS");
    // Another's certificate, and a server that offers no TLS: neither gets the login.
    let foreign = not_performed(world(front, &other.certificate).perform("greet", "7", json!({})).await);
    assert!(foreign.to_lowercase().contains("certificate"), "{foreign}");
    let plain =
        not_performed(world(sink.address(), &good.certificate).perform("greet", "7", json!({})).await);
    assert!(plain.contains("offers no STARTTLS"), "{plain}");
    assert_eq!(sink.mails().len(), 1);
}
