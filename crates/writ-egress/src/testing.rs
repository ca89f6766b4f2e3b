//! The shared parts of the tests of the proxy and of fetches: a scripted resolver, a gatekeeper that
//! remembers, servers.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use rcgen::{CertifiedKey, generate_simple_self_signed};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::{Notify, Semaphore};
use tokio_rustls::TlsAcceptor;
use writ_inspect::egress::host::{HostPattern, Target};
use writ_inspect::egress::{EgressScope, Pin};
use writ_types::id::AskId;

use crate::connect::{Later, Resolver, Stream};
use crate::credential::Credentials;
use crate::gatekeeper::{Gatekeeper, NotAsked, NotRecorded};
use writ_types::entry::ConnectionRecord;

/// Answers by script: each name has a list of answers, the last of which stays.
#[derive(Debug, Default)]
pub(crate) struct Script {
    answers: Mutex<BTreeMap<String, VecDeque<Vec<IpAddr>>>>,
    pub(crate) lookups: AtomicUsize,
}

impl Script {
    pub(crate) fn answer(&self, name: &str, addresses: &[&str]) {
        let addresses = addresses.iter().map(|text| text.parse().expect("an address")).collect();
        self.answers.lock().expect("a lock").entry(name.to_owned()).or_default().push_back(addresses);
    }

    pub(crate) fn lookups(&self) -> usize {
        self.lookups.load(Ordering::SeqCst)
    }
}

impl Resolver for Script {
    fn resolve_name<'a>(&'a self, name: &'a str, _: u16) -> Later<'a, io::Result<Vec<IpAddr>>> {
        self.lookups.fetch_add(1, Ordering::SeqCst);
        let mut answers = self.answers.lock().expect("a lock");
        let answers = answers.get_mut(name);
        let found =
            answers.and_then(|list| if list.len() > 1 { list.pop_front() } else { list.front().cloned() });
        Box::pin(async move { found.ok_or_else(|| io::Error::other("no such name")) })
    }
}

/// Remembers every call.
#[derive(Debug)]
pub(crate) struct Keeper {
    scope: Mutex<Arc<EgressScope>>,
    asks: Mutex<BTreeMap<String, AskId>>,
    records: Mutex<Vec<ConnectionRecord>>,
    pub(crate) batches: AtomicUsize,
    pub(crate) broken: AtomicBool,
    /// Records are stored only with a permit of this.
    pub(crate) open: Semaphore,
    changed: Notify,
    pub(crate) credentials: Mutex<Credentials>,
}

impl Keeper {
    pub(crate) fn new(scope: EgressScope) -> Arc<Self> {
        Arc::new(Self {
            scope: Mutex::new(Arc::new(scope)),
            asks: Mutex::default(),
            records: Mutex::default(),
            batches: AtomicUsize::new(0),
            broken: AtomicBool::new(false),
            open: Semaphore::new(Semaphore::MAX_PERMITS),
            changed: Notify::new(),
            credentials: Mutex::default(),
        })
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut EgressScope)) {
        let mut scope = self.scope.lock().expect("a lock");
        change(Arc::make_mut(&mut scope));
    }

    pub(crate) fn asks(&self) -> BTreeMap<String, AskId> {
        self.asks.lock().expect("a lock").clone()
    }

    pub(crate) fn records(&self) -> Vec<ConnectionRecord> {
        self.records.lock().expect("a lock").clone()
    }

    /// Waits until so many records are there.
    pub(crate) async fn recorded(&self, count: usize) -> Vec<ConnectionRecord> {
        let waiting = async {
            loop {
                let changed = self.changed.notified();
                let records = self.records();
                if records.len() >= count {
                    return records;
                }
                changed.await;
            }
        };
        tokio::time::timeout(std::time::Duration::from_secs(10), waiting).await.expect("records in time")
    }
}

impl Gatekeeper for Keeper {
    fn current_scope(&self) -> Later<'_, Arc<EgressScope>> {
        Box::pin(async { Arc::clone(&self.scope.lock().expect("a lock")) })
    }

    fn credentials(&self) -> Credentials {
        self.credentials.lock().expect("a lock").clone()
    }

    fn ask_person<'a>(&'a self, target: &'a Target) -> Later<'a, Result<AskId, NotAsked>> {
        let mut asks = self.asks.lock().expect("a lock");
        let next = AskId::from_random(u64::try_from(asks.len()).expect("few") + 7);
        let ask = asks.entry(target.host.to_string()).or_insert(next).clone();
        Box::pin(async move { Ok(ask) })
    }

    fn store_records<'a>(&'a self, batch: Vec<ConnectionRecord>) -> Later<'a, Result<(), NotRecorded>> {
        Box::pin(async move {
            let _open = self.open.acquire().await.expect("never closed");
            if self.broken.load(Ordering::SeqCst) {
                return Err(NotRecorded("the disk is full".to_owned()));
            }
            self.batches.fetch_add(1, Ordering::SeqCst);
            self.records.lock().expect("a lock").extend(batch);
            self.changed.notify_waiters();
            Ok(())
        })
    }
}

pub(crate) fn pattern(text: impl ToString) -> HostPattern {
    let text = text.to_string();
    text.parse().unwrap_or_else(|why| panic!("{text}: {why}"))
}

/// A scope that opens a name on a local server's port, where the name is pinned.
pub(crate) fn pinned(name: &str, server: SocketAddr) -> EgressScope {
    EgressScope {
        allowed: vec![pattern(format!("{name}:{}", server.port()))],
        pins: vec![Pin { host: name.parse().expect("a host"), address: server.ip() }],
        ..EgressScope::default()
    }
}

/// Accepts connections and treats each by `serve`; counts them.
#[derive(Debug)]
pub(crate) struct TestServer {
    pub(crate) address: SocketAddr,
    connections: Arc<AtomicUsize>,
    bytes: Arc<AtomicUsize>,
    running: tokio::task::JoinHandle<()>,
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.running.abort();
    }
}

impl TestServer {
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// Bytes that came in, as far as the server counts them.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::SeqCst)
    }

    async fn start<W: Future<Output = ()> + Send + 'static>(
        at: &str,
        serve: impl Fn(Stream, Arc<AtomicUsize>) -> W + Send + 'static,
    ) -> Self {
        let listener = TcpListener::bind(at).await.expect("binds");
        let address = listener.local_addr().expect("has an address");
        let (connections, bytes) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (counted, seen) = (Arc::clone(&connections), Arc::clone(&bytes));
        let running = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(serve(stream, Arc::clone(&seen)));
            }
        });
        Self { address, connections, bytes, running }
    }

    /// Sends back what comes in.
    pub(crate) async fn echo() -> Self {
        Self::start("127.0.0.1:0", |mut stream, seen| async move {
            let mut step = [0; 4096];
            while let Ok(count @ 1..) = stream.read(&mut step).await {
                seen.fetch_add(count, Ordering::SeqCst);
                if stream.write_all(&step[..count]).await.is_err() {
                    return;
                }
            }
        })
        .await
    }

    /// Reads what comes in and says nothing.
    pub(crate) async fn mute() -> Self {
        Self::start("127.0.0.1:0", |mut stream, seen| async move {
            let mut step = [0; 4096];
            while let Ok(count @ 1..) = stream.read(&mut step).await {
                seen.fetch_add(count, Ordering::SeqCst);
            }
        })
        .await
    }

    /// Answers each connection's first head with fixed bytes, and ends.
    pub(crate) async fn fixed(at: &str, answer: impl Into<Vec<u8>>) -> Self {
        let answer = answer.into();
        Self::start(at, move |mut stream, seen| {
            let answer = answer.clone();
            async move {
                let mut head = Vec::new();
                let mut step = [0; 4096];
                while !head.windows(4).any(|part| part == b"\r\n\r\n") {
                    match stream.read(&mut step).await {
                        Ok(count @ 1..) => head.extend_from_slice(&step[..count]),
                        Ok(0) | Err(_) => return,
                    }
                }
                seen.fetch_add(head.len(), Ordering::SeqCst);
                let _ = stream.write_all(&answer).await;
                let _ = stream.shutdown().await;
            }
        })
        .await
    }

    /// Speaks TLS in the name of a host, and answers with a short page.
    pub(crate) async fn tls(name: &str) -> (Self, rustls::RootCertStore) {
        Self::tls_fixed(
            name,
            b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\nconnection: close\r\n\r\nsecret".to_vec(),
        )
        .await
    }

    /// Speaks TLS in the name of a host, and answers with fixed bytes.
    pub(crate) async fn tls_fixed(name: &str, answer: Vec<u8>) -> (Self, rustls::RootCertStore) {
        Self::tls_answering(name, move |_| answer.clone()).await
    }

    /// Speaks TLS in the name of a host, and answers the head of a connection's first request.
    pub(crate) async fn tls_answering(
        name: &str,
        answer: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static,
    ) -> (Self, rustls::RootCertStore) {
        let answer = Arc::new(answer);
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(vec![name.to_owned()]).expect("a certificate");
        let mut roots = rustls::RootCertStore::empty();
        roots.add(cert.der().clone()).expect("a root");
        let key = rustls::pki_types::PrivateKeyDer::try_from(signing_key.serialize_der()).expect("a key");
        let config = rustls::ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![cert.der().clone()], key)
            .expect("a certificate");
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let server = Self::start("127.0.0.1:0", move |stream, seen| {
            let (acceptor, answer) = (acceptor.clone(), Arc::clone(&answer));
            async move {
                let mut first = [0; 1];
                if stream.peek(&mut first).await.unwrap_or(0) > 0 {
                    seen.fetch_add(1, Ordering::SeqCst);
                }
                let Ok(mut stream) = acceptor.accept(stream).await else { return };
                let mut head = Vec::new();
                let mut step = [0; 4096];
                while !head.windows(4).any(|part| part == b"\r\n\r\n") {
                    match stream.read(&mut step).await {
                        Ok(count @ 1..) => head.extend_from_slice(&step[..count]),
                        Ok(0) | Err(_) => return,
                    }
                }
                let answer = answer(&String::from_utf8_lossy(&head));
                let _ = stream.write_all(&answer).await;
                let is_unfinished =
                    String::from_utf8_lossy(&answer).contains("chunked") && !answer.ends_with(b"\r\n\r\n");
                if is_unfinished {
                    let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
                }
                let _ = stream.shutdown().await;
            }
        })
        .await;
        (server, roots)
    }
}

pub(crate) fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}
