//! Settings of the proxy: its file `proxy.toml`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde::Deserialize;
use writ_operations::targets::config::TargetsSpec;
use writ_types::digest::Digest;
use writ_types::id::InstallationId;

/// Settings of the proxy.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ProxyConfig {
    /// The certificate that `--tls` serves.
    pub tls: Option<TlsConfig>,
    /// The installation of the accepted keys. Without it, that of the engine of the same home.
    pub keys: Option<TrustedKeys>,
    /// The users of the system that agents run as. The keys of a listed agent are accepted from its users alone.
    pub agents: BTreeMap<String, AgentConfig>,
    /// The databases, interfaces and mail servers that operations name.
    pub targets: TargetsSpec,
}

/// A certificate and its key.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsConfig {
    /// The file with the certificate and those above it, in PEM.
    pub certificate: PathBuf,
    /// The file with the private key, in PEM.
    pub key: PathBuf,
}

/// The keys of an installation without an engine beside the proxy.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrustedKeys {
    /// The installation.
    pub installation: InstallationId,
    /// Its epoch.
    pub epoch: u64,
    /// The public key that signs base keys, in hexadecimal.
    pub root: Digest,
    /// The public key that signs task keys, in hexadecimal.
    pub router: Digest,
}

/// Settings of one agent.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentConfig {
    /// The user ids that it runs as.
    pub uids: BTreeSet<u32>,
}
