//! Settings of the server, and why it cannot be started.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use super::base::BasePath;
use serde::{Deserialize, Serialize};
use writ_types::credential::CredentialRef;
use writ_types::error::{Exit, Report, ToReport};

/// The port, unless configured otherwise (SIL-226).
pub const PORT: u16 = 8420;
/// The shortest token that may be configured, in bytes: 16 random ones cannot be guessed.
pub const MIN_TOKEN_BYTES: usize = 16;

/// Settings of the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServerConfig {
    /// Serves HTTP. Default: true for `writ start`, false for engines that commands start.
    pub enabled: Option<bool>,
    /// The address. Default `127.0.0.1`, which brings `::1` along; any other needs `auth_token`.
    pub host: IpAddr,
    /// The port; 0: any that is free, which is also taken where another program has this one. Default [`PORT`].
    pub port: u16,
    /// The token of programs; without it, one is made at the start and stored in `runtime/api.token`.
    pub auth_token: Option<CredentialRef>,
    /// Further names, or names with ports, under which the server is reached. Default none.
    pub allowed_hosts: Vec<String>,
    /// Pages of these other origins may call the API with the token. Default none.
    pub allowed_origins: Vec<String>,
    /// Addresses of reverse proxies that are trusted to name the client's address, TLS and path. Default
    /// none.
    pub trusted_proxies: Vec<IpAddr>,
    /// The path below which a reverse proxy shows this server, if it leaves that path in requests. Default none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_path: Option<String>,
    /// Requests and frames per second of one client. Default 50.
    pub requests_per_sec: u32,
    /// Requests and frames of one client at once. Default 200.
    pub burst: u32,
    /// The largest message and body, in bytes. Default 51,200 (SCL-083, SCL-084).
    pub max_message_bytes: usize,
    /// After how many seconds of silence a WebSocket is closed. Default 300 (SCL-086).
    pub idle_timeout_secs: u64,
    /// The seconds that turns and requests have to end when the engine stops. Default 10 (SCL-085).
    pub graceful_shutdown_secs: u64,
}

impl ServerConfig {
    /// Checks from the settings alone that this may be served.
    ///
    /// # Errors
    ///
    /// If others can reach the address and no token is configured.
    pub fn check_exposure(&self) -> Result<(), HttpError> {
        may_serve(self.host, self.auth_token.is_some())
    }

    /// Checks that `base_path` is a path.
    ///
    /// # Errors
    ///
    /// If it is none, or begins as a path of this server does.
    pub fn check_base_path(&self) -> Result<(), HttpError> {
        match &self.base_path {
            Some(text) if BasePath::parse(text).is_none() => Err(HttpError::BasePath(text.clone())),
            Some(_) | None => Ok(()),
        }
    }
}

/// Checks that an address may be served: one that others can reach needs a token that the owner has chosen.
pub(super) const fn may_serve(host: IpAddr, has_token: bool) -> Result<(), HttpError> {
    // Addresses of this machine are reached by its users alone; any other needs a secret.
    if host.is_loopback() || has_token { Ok(()) } else { Err(HttpError::NoToken(host)) }
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            enabled: None,
            host: IpAddr::V4(Ipv4Addr::LOCALHOST),
            port: PORT,
            auth_token: None,
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            trusted_proxies: Vec::new(),
            base_path: None,
            requests_per_sec: 50,
            // Three tabs that load the page, each with its copy for times without a server: 50 files twice.
            burst: 400,
            max_message_bytes: 51_200,
            idle_timeout_secs: 300,
            graceful_shutdown_secs: 10,
        }
    }
}

/// The reason why the server cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// Others can reach the address, and no token is configured.
    #[error("server.host is {0}, which others can reach, and server.auth_token is not set")]
    NoToken(IpAddr),
    /// The token could be guessed.
    #[error("the token of server.auth_token has {0} bytes; it needs at least {MIN_TOKEN_BYTES}")]
    WeakToken(usize),
    /// The base path is not a valid path.
    #[error("server.base_path is '{0}', which is no path of a proxy")]
    BasePath(String),
    /// Another program listens there.
    #[error("{0} is in use")]
    InUse(SocketAddr),
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The error of the system.
        source: io::Error,
    },
    /// A file of the runtime folder cannot be read or written.
    #[error("{path} cannot be used: {source}")]
    File {
        /// The path of the file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
}

impl ToReport for HttpError {
    fn report(&self) -> Report {
        let plain = |exit, code: &str, hint: &str| Report::new(exit, code, self.to_string()).with_hint(hint);
        match self {
            Self::NoToken(_) => plain(
                Exit::Config,
                "server.no_token",
                "`writ secrets set api` stores a token; then set server.auth_token = \"secret:api\"",
            ),
            Self::WeakToken(_) => {
                plain(Exit::Config, "server.weak_token", "`openssl rand -hex 32` makes a good one")
            }
            Self::BasePath(_) => plain(
                Exit::Config,
                "server.base_path",
                "write it as /writ: letters, digits, '-', '_', '.', '~', and none of this server's own paths first",
            ),
            Self::InUse(_) => plain(
                Exit::Blocked,
                "server.in_use",
                "another program listens there, perhaps the engine of another home: choose another --port, or leave it out",
            ),
            Self::Listen { .. } => {
                plain(Exit::Config, "server.listen", "check server.host and server.port in config.toml")
            }
            Self::File { path, source }
                if matches!(source.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded) =>
            {
                Report::new(Exit::Blocked, "server.disk_full", "the disk is full")
                    .with_inside(format!("{}: {source}", path.display()))
                    .with_hint("free some space; nothing is performed until then")
            }
            Self::File { path, source } => Report::new(
                Exit::Config,
                "server.file",
                "a file of the home's folder 'runtime' cannot be used",
            )
            .with_inside(format!("{}: {source}", path.display()))
            .with_hint("check owner and mode of the home's folder 'runtime'"),
        }
    }
}
