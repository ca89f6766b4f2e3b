//! Lending a client for one permit.

use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustls::crypto::CryptoProvider;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use writ_policy::permit::Permit;
use writ_types::action::Action;
use writ_types::digest::Digest;
use writ_types::unit::{ByteCount, Timestamp};

use crate::authority::{AuthorityError, CertificateAuthority};
use crate::connect::{Resolver, SystemResolver};
use crate::error::{EgressError, Fault};
use crate::host::HostPort;
use crate::keep::{Keep, Owner, REST, RestingLine};
use crate::line::{Carried, HostRoute, Line, LineLimits, MAX_CONNECTIONS, Way};
use crate::proxy::rate::RateWindows;
use crate::trust::{ExtraRoots, NotingVerifier};
use crate::upstream::ProxyRoutes;

/// The most connections of a visit to a server of tools: greeting, list, call and leave are requests of their own, and
/// what the server asks meanwhile is answered over another.
const VISIT_CONNECTIONS: usize = 32;

/// Limits of what leaves and comes in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EgressConfig {
    /// The longest that connecting may take, name lookup included, in milliseconds. Default: 10 seconds
    /// (SCL-013).
    pub connect_timeout_ms: u64,
    /// The most bytes that one permit may send. Default: 32 MiB, the largest request that providers accept.
    pub max_sent_bytes: u64,
    /// The most bytes that one permit may bring in, headers and TLS included. Default: 64 MiB: an answer of
    /// 8 MiB in stream frames of a hundred bytes for every few characters.
    pub max_received_bytes: u64,
    /// The longest that a fetch may take, redirects included, in milliseconds. Default: 60 seconds.
    pub fetch_timeout_ms: u64,
    /// The number of pages and files that one session may read in a minute, for any purpose. Default: 30
    /// (WIN-211).
    pub fetches_per_minute: u32,
    /// The number of requests other than plain readings that one session may make in a minute. Default: 10
    /// (WIN-042).
    pub requests_per_minute: u32,
}

impl Default for EgressConfig {
    fn default() -> Self {
        Self {
            connect_timeout_ms: 10_000,
            max_sent_bytes: 32 * 1024 * 1024,
            max_received_bytes: 64 * 1024 * 1024,
            fetch_timeout_ms: 60_000,
            fetches_per_minute: 30,
            requests_per_minute: 10,
        }
    }
}

/// The client and the counters that a permit's work is lent.
#[derive(Debug)]
pub struct LentClient {
    /// A client that reaches the permitted host and nothing else.
    pub client: reqwest::Client,
    carried: Carried,
}

impl LentClient {
    /// Bytes that have come in so far, headers and TLS included. With this, work that cannot look into a
    /// library's buffers still sees them grow.
    pub fn received_bytes(&self) -> u64 {
        self.carried.received_bytes()
    }

    /// A bound on what may come in, which the work moves on as it gets along. Without one, the limit of the permit
    /// counts alone.
    pub fn line_allowance(&self) -> Allowance {
        Allowance(self.carried.clone())
    }
}

/// The bytes that may still come in on a line. When they are used up, the line is cut at once, even while the
/// work waits: work that waits for the end of one piece of a stream need not hold all of a stream that has
/// none. The line runs ahead of the work by the buffers of the system and the client, up to a megabyte: an
/// allowance must leave room for that.
#[derive(Clone, Debug)]
pub struct Allowance(Carried);

impl Allowance {
    /// From here on, so many bytes more may come in.
    pub fn renew_allowance(&self, more: ByteCount) {
        self.0.allow_more(more.get());
    }

    /// Returns true if more came than was allowed, so that the line was cut.
    pub fn is_used_up(&self) -> bool {
        self.0.is_overrun()
    }
}

/// The way out.
#[derive(Debug)]
pub struct Egress {
    pub(crate) limits: LineLimits,
    pub(crate) fetch_timeout: Duration,
    pub(crate) fetches_per_minute: u32,
    pub(crate) requests_per_minute: u32,
    /// Fetches of each session in this minute, and requests.
    pub(crate) fetches: RateWindows,
    pub(crate) requests: RateWindows,
    pub(crate) resolver: Arc<dyn Resolver>,
    folder: tempfile::TempDir,
    tls: rustls::ClientConfig,
    verifier: Arc<NotingVerifier>,
    /// The certificates that were added to the system's.
    roots: ExtraRoots,
    pub(crate) routes: Arc<ProxyRoutes>,
    lines: AtomicU64,
    pub(crate) keep: Keep,
    authority: Option<Arc<CertificateAuthority>>,
}

impl Egress {
    /// Prepares the way out: loads the system's certificates and makes a private folder in `runtime`
    /// (removed on drop), where lines have their sockets.
    ///
    /// Uses the process's crypto provider, or `aws-lc-rs` where none was installed.
    ///
    /// # Errors
    ///
    /// If the folder cannot be made, or TLS cannot be set up.
    pub fn new(config: &EgressConfig, runtime: &Path) -> Result<Self, EgressError> {
        // `tempfile` makes folders with mode 0700.
        let folder =
            tempfile::Builder::new().prefix("out-").tempdir_in(runtime).map_err(EgressError::Socket)?;
        let (tls, verifier) = verifying_config([&ExtraRoots::default(); 2])?;
        let limits = LineLimits {
            connect: Duration::from_millis(config.connect_timeout_ms),
            sent: config.max_sent_bytes,
            received: config.max_received_bytes,
            connections: MAX_CONNECTIONS,
        };
        Ok(Self {
            limits,
            fetch_timeout: Duration::from_millis(config.fetch_timeout_ms),
            fetches_per_minute: config.fetches_per_minute,
            requests_per_minute: config.requests_per_minute,
            fetches: RateWindows::default(),
            requests: RateWindows::default(),
            resolver: Arc::new(SystemResolver),
            folder,
            tls,
            verifier,
            roots: ExtraRoots::default(),
            routes: Arc::default(),
            lines: AtomicU64::new(0),
            keep: Keep::default(),
            authority: None,
        })
    }

    /// Makes connections through the proxies of the owner's network, and trusts the authorities of `roots`
    /// besides the system's, of which `system` are those that this process would not find without help. Comes
    /// before [`Self::with_authority`].
    ///
    /// # Errors
    ///
    /// If TLS cannot be set up with them.
    pub fn with_network(
        mut self,
        routes: ProxyRoutes,
        roots: ExtraRoots,
        system: &ExtraRoots,
    ) -> Result<Self, EgressError> {
        (self.tls, self.verifier) = verifying_config([&roots, system])?;
        self.routes = Arc::new(routes);
        self.roots = roots;
        Ok(self)
    }

    /// The proxies of the owner's network.
    pub fn proxy_routes(&self) -> Arc<ProxyRoutes> {
        Arc::clone(&self.routes)
    }

    pub(crate) fn tls_config(&self) -> rustls::ClientConfig {
        self.tls.clone()
    }

    /// The certificates that were added to the system's.
    pub const fn extra_roots(&self) -> &ExtraRoots {
        &self.roots
    }

    /// Opens connections for credentials, with a key that [`CertificateAuthority::generate_key`] has made.
    ///
    /// # Errors
    ///
    /// If the key is none, or TLS cannot be set up with it.
    pub fn with_authority(mut self, key: &SecretString) -> Result<Self, AuthorityError> {
        self.authority = Some(Arc::new(CertificateAuthority::new(key, &self.tls)?));
        Ok(self)
    }

    /// Returns the authority that opens connections for credentials, for the proxy.
    pub fn get_authority(&self) -> Option<Arc<CertificateAuthority>> {
        self.authority.clone()
    }

    /// The certificate that sandboxes are to trust, in PEM; `None`: no connection is opened.
    pub fn authority_certificate(&self) -> Option<String> {
        self.authority.as_ref().map(|authority| authority.certificate_pem())
    }

    /// Returns the placeholder of a credential in a session; `None`: there is no authority.
    pub fn session_placeholder(&self, session: &str, name: &str) -> Option<String> {
        self.authority.as_ref().map(|authority| authority.placeholder_of(session, name))
    }

    /// Looks names that are fetched up by `resolver` instead of the system's.
    #[must_use]
    pub fn with_resolver(mut self, resolver: Arc<dyn Resolver>) -> Self {
        self.resolver = resolver;
        self
    }

    /// Trusts these certificates instead of the system's.
    #[cfg(test)]
    pub(crate) fn trusting_config(mut self, roots: rustls::RootCertStore) -> Self {
        if roots.is_empty() {
            // The system's, which vouch for no server of a test.
            return self;
        }
        let provider = crate::testing::provider();
        let inner =
            rustls::client::WebPkiServerVerifier::builder_with_provider(roots.into(), provider.clone());
        self.verifier = Arc::new(NotingVerifier::pem_around(inner.build().expect("a verifier")));
        self.tls = client_config(provider, &self.verifier).expect("versions");
        self
    }

    /// Consumes a permit and does `work` with a client that reaches the permitted host and nothing else.
    ///
    /// The client follows no redirect, knows no proxy, decodes no compression (so that the byte limits are
    /// those of the stored bytes), and is cut off when `work` ends.
    ///
    /// # Errors
    ///
    /// If the permit has expired, is not for an outbound action or names no usable host, and if `work` failed
    /// because the line did. An error of `work` itself is the inner result.
    pub async fn perform_permit<T, E, F, W>(
        &self,
        permit: Permit,
        now: Timestamp,
        work: F,
    ) -> Result<Result<T, E>, EgressError>
    where
        F: FnOnce(LentClient) -> W,
        W: Future<Output = Result<T, E>>,
    {
        let opened = permit.open(now)?;
        let action = &opened.prepared.action;
        let host = permitted_host(action)?;
        let connections =
            if matches!(action, Action::CallTool(_)) { VISIT_CONNECTIONS } else { MAX_CONNECTIONS };
        self.lend_client(
            Way { host, place: HostRoute::Named },
            LineLimits { connections, ..self.limits },
            work,
        )
        .await
    }

    /// Does the same as [`Self::perform_permit`], and leaves the connection open for a few seconds, for the next
    /// permit that names the same host and comes with the same `identity`: provider and credential. Nothing
    /// can be sent over it until then.
    ///
    /// # Errors
    ///
    /// As [`Self::perform_permit`].
    pub async fn perform_as<T, E, F, W>(
        &self,
        identity: Digest,
        permit: Permit,
        now: Timestamp,
        work: F,
    ) -> Result<Result<T, E>, EgressError>
    where
        F: FnOnce(LentClient) -> W,
        W: Future<Output = Result<T, E>>,
    {
        let opened = permit.open(now)?;
        let host = permitted_host(&opened.prepared.action)?;
        self.lend_kept(Owner { host, identity }, work).await
    }

    /// Lends the client of a line at rest, or of a new one that rests afterwards if the work succeeds.
    pub(crate) async fn lend_kept<T, E, F, W>(
        &self,
        owner: Owner,
        work: F,
    ) -> Result<Result<T, E>, EgressError>
    where
        F: FnOnce(LentClient) -> W,
        W: Future<Output = Result<T, E>>,
    {
        // Awake, and only then looked at: what happens to it from here on belongs to this permit.
        let kept = self.keep.take_line(&owner).inspect(|kept| kept.line.wake_line());
        let kept = match kept.filter(|kept| kept.line.may_be_kept()) {
            Some(kept) => kept,
            None => {
                let line =
                    self.open_line(Way { host: owner.host.clone(), place: HostRoute::Named }, self.limits)?;
                let client = self.build_client(&line)?;
                RestingLine::new(line, client)
            }
        };
        let lent = LentClient { client: kept.client.clone(), carried: kept.line.carried_bytes().clone() };
        // An earlier failure is none of this permit's.
        self.verifier.take_failure(owner.host.host());
        match work(lent).await {
            Ok(value) => {
                self.keep.put_line(owner, kept);
                Ok(Ok(value))
            }
            Err(error) => match kept.line.first_fault().or_else(|| self.certificate_fault(&owner.host)) {
                Some(fault) => Err(fault.into()),
                None => Ok(Err(error)),
            },
        }
    }

    fn open_line(&self, way: Way, limits: LineLimits) -> Result<Line, EgressError> {
        // Each line has a socket of its own: a name that was used is not used again while this
        // process lives.
        let number = self.lines.fetch_add(1, Ordering::Relaxed);
        let path = self.folder.path().join(number.to_string());
        Line::open_line(path, way, self.proxy_routes(), limits).map_err(EgressError::Socket)
    }

    /// Lends a client for the way that a permit has been consumed for.
    pub(crate) async fn lend_client<T, E, F, W>(
        &self,
        way: Way,
        limits: LineLimits,
        work: F,
    ) -> Result<Result<T, E>, EgressError>
    where
        F: FnOnce(LentClient) -> W,
        W: Future<Output = Result<T, E>>,
    {
        // Taken before the line takes the way.
        let host = way.host.clone();
        let line = self.open_line(way, limits)?;
        self.verifier.take_failure(host.host());
        let lent = LentClient { client: self.build_client(&line)?, carried: line.carried_bytes().clone() };
        match work(lent).await {
            Ok(value) => Ok(Ok(value)),
            Err(error) => match line.first_fault().or_else(|| self.certificate_fault(&host)) {
                Some(fault) => Err(fault.into()),
                None => Ok(Err(error)),
            },
        }
    }

    /// The certificate of a host that was refused just now.
    fn certificate_fault(&self, host: &HostPort) -> Option<Fault> {
        let cause = self.verifier.take_failure(host.host())?;
        Some(Fault::Certificate { host: host.clone(), cause })
    }

    #[expect(clippy::disallowed_methods, reason = "this is the one place that makes clients")]
    fn build_client(&self, line: &Line) -> Result<reqwest::Client, EgressError> {
        reqwest::Client::builder()
            // Bound to the line, this client has no way to the network, for any URL that it is
            // given.
            .unix_socket(line.socket_path())
            .tls_backend_preconfigured(self.tls.clone())
            .http1_only()
            .no_proxy()
            .pool_idle_timeout(REST)
            .dns_resolver(Arc::new(NoNames))
            // The byte limits count what came in, so it is not decompressed on the way.
            .no_gzip()
            .no_brotli()
            .no_zstd()
            .no_deflate()
            .referer(false)
            // A redirect leads elsewhere, which would be another permit.
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("writ/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(EgressError::Client)
    }
}

/// Sets TLS up with the system's certificates and added ones.
fn verifying_config(
    roots: [&ExtraRoots; 2],
) -> Result<(rustls::ClientConfig, Arc<NotingVerifier>), EgressError> {
    let provider = CryptoProvider::get_default()
        .cloned()
        .unwrap_or_else(|| Arc::new(rustls::crypto::aws_lc_rs::default_provider()));
    let verifier = NotingVerifier::new(roots, Arc::clone(&provider)).map_err(EgressError::Tls)?;
    let verifier = Arc::new(verifier);
    let tls = client_config(provider, &verifier).map_err(EgressError::Tls)?;
    Ok((tls, verifier))
}

fn client_config(
    provider: Arc<CryptoProvider>,
    verifier: &Arc<NotingVerifier>,
) -> Result<rustls::ClientConfig, rustls::Error> {
    let builder =
        rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    // As strict as the library's default: the verifier notes what the system's verifier says, and says the
    // same.
    let verifier = Arc::<NotingVerifier>::clone(verifier);
    Ok(builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth())
}

/// A lent client looks no name up: it is bound to its line, and who carries that looks the permitted host up.
#[derive(Debug)]
struct NoNames;

impl reqwest::dns::Resolve for NoNames {
    fn resolve(&self, _: reqwest::dns::Name) -> reqwest::dns::Resolving {
        Box::pin(std::future::ready(Err("a lent client looks no name up".into())))
    }
}

/// The host that a model call, a search or a call of a server's tool leads to: it is the owner's configuration that names it, so its address is
/// not judged.
/// What an agent names is fetched, by [`Egress::fetch`], and judged at every step.
fn permitted_host(action: &Action) -> Result<HostPort, EgressError> {
    // The owner's configuration names the host of a model and of a search.
    if let Action::ModelCall(call) = action {
        return Ok(call.host.parse()?);
    }
    if let Action::Search(search) = action {
        return Ok(search.host.parse()?);
    }
    // The owner's file names it; a server that is a program has none.
    if let Action::CallTool(call) = action
        && let Some(host) = &call.host
    {
        return Ok(host.parse()?);
    }
    Err(EgressError::NotOutbound(action.kind()))
}
