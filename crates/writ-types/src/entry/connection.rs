//! Records of connections that leave.

use core::net::IpAddr;

use serde::{Deserialize, Serialize};

/// The most connections in one entry; further ones are recorded by further entries.
pub const MAX_CONNECTIONS: usize = 256;

/// The end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It was made, and ended normally.
    Allowed,
    /// A person is asked about the host.
    Asked,
    /// It was refused.
    Denied,
    /// It was allowed, and the host could not be reached.
    Failed,
    /// It was made, and cut: a limit, or bytes that do not belong there.
    Cut,
    /// It was no proper request.
    Malformed,
}

impl Verdict {
    /// The name used in records and on screens.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Asked => "asked",
            Self::Denied => "denied",
            Self::Failed => "failed",
            Self::Cut => "cut",
            Self::Malformed => "malformed",
        }
    }
}

/// One connection, or one request over plain HTTP, after its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionRecord {
    /// The host that was asked for, in its canonical form; empty where the request named none that can be used.
    pub host: String,
    /// The port; 0 where the host is empty.
    pub port: u16,
    /// The address that was connected to, if one was.
    pub address: Option<IpAddr>,
    /// Its end.
    pub verdict: Verdict,
    /// The rule's name, or the error code, that decided.
    pub rule: String,
    /// Bytes that went out to the host.
    pub sent: u64,
    /// Bytes that came in from the host.
    pub received: u64,
    /// Its duration in milliseconds.
    pub ms: u64,
    /// The name of the credential that was put into its request, if one was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential: Option<String>,
}
