//! A web server of this machine under names that the owner has pinned: over HTTP and over TLS, of files or of its own
//! words, with a log of what it was asked for.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::super::turns::Bench;

/// The names that it is pinned to, all of them listed.
const NAMES: [&str; 4] = ["depot", "asked", "other", "blocked"];

/// What its threads share.
#[derive(Debug, Default)]
struct Shared {
    asked: Mutex<Vec<String>>,
    /// What `authorization` they held.
    credentials: Mutex<Vec<String>>,
    /// Without this `authorization` nothing of its folder is given.
    guard: Mutex<Option<String>>,
    /// The folder that it serves; `None`: every page says its own path.
    files: Option<PathBuf>,
}

/// The server. Its threads end with the tests.
pub(crate) struct Mirror {
    /// The port of HTTP.
    pub(crate) port: u16,
    /// The port of HTTP over TLS.
    pub(crate) tls_port: u16,
    /// The certificate of `depot.test`, which signs itself.
    pub(crate) certificate: String,
    shared: Arc<Shared>,
}

impl Mirror {
    /// Serves pages that say their own path.
    pub(crate) fn start() -> Self {
        Self::with(None)
    }

    /// Serves a folder.
    pub(crate) fn of(folder: &Path) -> Self {
        Self::with(Some(folder.to_owned()))
    }

    fn with(files: Option<PathBuf>) -> Self {
        let shared = Arc::new(Shared { files, ..Shared::default() });
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(vec!["depot.test".to_owned()]).expect("a certificate");
        let key = PrivateKeyDer::try_from(signing_key.serialize_der()).expect("a key");
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![cert.der().clone()], key)
            .expect("a certificate");
        let config = Arc::new(config);
        let port = listen(&shared, serve);
        let tls_port = listen(&shared, move |client, shared| {
            let connection = ServerConnection::new(Arc::clone(&config)).expect("a connection");
            serve(StreamOwned::new(connection, client), shared);
        });
        Self { port, tls_port, certificate: pem(cert.der()), shared }
    }

    /// The first lines of all requests so far.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.shared.asked.lock().expect("a lock").clone()
    }

    /// How many bytes the answer to a request for a path has.
    pub(crate) fn bytes(&self, path: &str) -> u64 {
        u64::try_from(self.shared.answer(path).len()).expect("small")
    }

    /// The credentials of all requests so far.
    pub(crate) fn credentials(&self) -> Vec<String> {
        self.shared.credentials.lock().expect("a lock").clone()
    }

    /// Gives nothing of its folder without this `authorization`.
    pub(crate) fn guard(&self, authorization: String) {
        *self.shared.guard.lock().expect("a lock") = Some(authorization);
    }

    /// Answers nothing until this is dropped; what it was asked meanwhile is in the log.
    pub(crate) fn hold(&self) -> MutexGuard<'_, Option<String>> {
        self.shared.guard.lock().expect("a lock")
    }

    pub(crate) fn url(&self, host: &str, rest: &str) -> String {
        format!("http://{host}.test:{}{rest}", self.port)
    }

    /// What a program names to reach it.
    pub(crate) fn hosts(&self) -> [String; 2] {
        [format!("depot.test:{}", self.port), format!("depot.test:{}", self.tls_port)]
    }

    /// Pins and lists its names in a home's configuration.
    pub(crate) fn list_in(&self, bench: &Bench) {
        let mut allowed = vec![format!("depot.test:{}", self.tls_port), format!("localhost:{}", self.port)];
        allowed.extend(NAMES.map(|name| format!("{name}.test:{}", self.port)));
        let mut config = format!(
            "[egress]\nallowed = {allowed:?}\nalways_ask = [\"asked.test\", \"other.test\"]\n\
             blocked = [\"blocked.test\"]\n"
        );
        // Pinned, and in no list: the web's ports of it are asked about.
        for name in NAMES.into_iter().chain(["plain"]) {
            write!(config, "[[egress.pin]]\nhost = \"{name}.test\"\naddress = \"127.0.0.1\"\n")
                .expect("written");
        }
        std::fs::write(bench.home.root().join("config.toml"), config).expect("written");
    }
}

/// A certificate as programs read it.
pub(super) fn pem(der: &[u8]) -> String {
    let text = BASE64_STANDARD.encode(der);
    let lines: Vec<&str> =
        text.as_bytes().chunks(64).filter_map(|line| std::str::from_utf8(line).ok()).collect();
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
}

#[expect(clippy::disallowed_types, reason = "the server's side of a connection, which reaches nowhere")]
type Client = std::net::TcpStream;

/// Accepts connections on a port of its own and treats each in a thread.
fn listen(shared: &Arc<Shared>, serve: impl Fn(Client, &Shared) + Clone + Send + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("binds");
    let port = listener.local_addr().expect("an address").port();
    let shared = Arc::clone(shared);
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let (shared, serve) = (Arc::clone(&shared), serve.clone());
            std::thread::spawn(move || serve(client, &shared));
        }
    });
    port
}

/// Answers every request of a connection.
fn serve(client: impl Read + Write, shared: &Shared) {
    let mut client = BufReader::new(client);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            match client.read_line(&mut head) {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
        }
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
        });
        if client.read_exact(&mut vec![0; length.unwrap_or(0)]).is_err() {
            return;
        }
        let line = head.lines().next().unwrap_or_default().to_owned();
        let path = line.split(' ').nth(1).unwrap_or("/").to_owned();
        shared.asked.lock().expect("a lock").push(line);
        let credential = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("authorization").then(|| value.trim().to_owned())
        });
        shared.credentials.lock().expect("a lock").extend(credential.clone());
        let guard = shared.guard.lock().expect("a lock").clone();
        let answer = match path.as_str() {
            "/echo" => said(&head),
            _ if guard.is_some() && guard != credential => said_no(),
            path => shared.answer(path),
        };
        if client.get_mut().write_all(&answer).is_err() {
            return;
        }
    }
}

impl Shared {
    /// The whole answer to a request for a path.
    fn answer(&self, path: &str) -> Vec<u8> {
        let (status, body) = match (&self.files, path) {
            (None, "/leave") => ("302 Found\r\nlocation: http://169.254.169.254/latest", Vec::new()),
            (None, path) => ("200 OK", format!("the page {path}").into_bytes()),
            (Some(folder), path) => {
                file(folder, path).map_or(("404 Not Found", Vec::new()), |it| ("200 OK", it))
            }
        };
        let media = match body.first() {
            Some(b'<') => "text/html",
            Some(b'{') => "application/json",
            Some(_) if self.files.is_some() => "application/octet-stream",
            Some(_) | None => "text/plain",
        };
        let head =
            format!("HTTP/1.1 {status}\r\ncontent-type: {media}\r\ncontent-length: {}\r\n\r\n", body.len());
        [head.as_bytes(), &body].concat()
    }
}

/// Says what it was told.
fn said(head: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: {}\r\n\r\n{head}", head.len())
        .into_bytes()
}

/// Wants to know who asks.
fn said_no() -> Vec<u8> {
    b"HTTP/1.1 401 Unauthorized\r\nwww-authenticate: Basic realm=\"depot\"\r\ncontent-length: 0\r\n\r\n"
        .to_vec()
}

/// A file below a folder; for a folder, its index.
fn file(folder: &Path, path: &str) -> Option<Vec<u8>> {
    let path = path.split('?').next().unwrap_or("/").trim_matches('/');
    let path = folder.join(path);
    std::fs::read(if path.is_dir() { path.join("index.html") } else { path }).ok()
}
