//! Settings of the routers.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::anomalies::{AnomalyRule, parse_time};
use crate::cases::config::SILENCE;

/// Settings of the routers of locked agents.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FleetConfig {
    /// Locked agents may ask models, over `runtime/llm-router.sock`. Default: no.
    pub model_router: bool,
    /// Cases of customers are given to agents, over `runtime/cases.sock` for the front end. Default: no.
    pub cases: bool,
    /// The address on loopback on which the front end is served, too. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listen: Option<LoopbackAddress>,
    /// The time in which an agent must say something about a message. Default: two minutes.
    pub silence: SilenceLimit,
    /// The rules about anomalies. Default: none.
    pub rules: Vec<AnomalyRule>,
}

/// An address that only this machine reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct LoopbackAddress(SocketAddr);

/// The reason why an address is none for the front end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no address of this machine alone, such as \"127.0.0.1:7450\"")]
pub struct NotLoopback(String);

/// The time in which an agent must say something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SilenceLimit(Duration);

/// The reason why a text is no time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is no time: {what}; write it as \"2 min\"")]
pub struct NotATime {
    text: String,
    what: String,
}

impl LoopbackAddress {
    /// Returns the address.
    pub const fn address(self) -> SocketAddr {
        self.0
    }
}

impl TryFrom<String> for LoopbackAddress {
    type Error = NotLoopback;

    fn try_from(text: String) -> Result<Self, NotLoopback> {
        let address: Option<SocketAddr> = text.parse().ok();
        // The token would cross the network in the clear.
        address.filter(|address| address.ip().is_loopback()).map(Self).ok_or(NotLoopback(text))
    }
}

impl From<LoopbackAddress> for String {
    fn from(address: LoopbackAddress) -> Self {
        address.0.to_string()
    }
}

impl SilenceLimit {
    /// Returns the time.
    pub const fn duration(self) -> Duration {
        self.0
    }
}

impl Default for SilenceLimit {
    fn default() -> Self {
        Self(SILENCE)
    }
}

impl fmt::Display for SilenceLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_secs() {
            secs if secs % 60 == 0 => write!(f, "{} min", secs / 60),
            secs => write!(f, "{secs} s"),
        }
    }
}

impl TryFrom<String> for SilenceLimit {
    type Error = NotATime;

    fn try_from(text: String) -> Result<Self, NotATime> {
        let wrong = |what: &str| NotATime { text: text.clone(), what: what.to_owned() };
        match text.split_whitespace().collect::<Vec<_>>().as_slice() {
            [number, unit] => parse_time(number, unit).map(Self).map_err(|what| wrong(&what)),
            _ => Err(wrong("it is no number with a unit")),
        }
    }
}

impl From<SilenceLimit> for String {
    fn from(limit: SilenceLimit) -> Self {
        limit.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_addresses_are_read_and_wrong_ones_are_named() {
        let time = |text: &str| SilenceLimit::try_from(text.to_owned());
        assert_eq!(time("2 min"), Ok(SilenceLimit::default()));
        assert_eq!(time("90 s").map(|limit| limit.to_string()).as_deref(), Ok("90 s"));
        for wrong in ["", "2", "2min", "0 s", "3 days", "25 hours"] {
            let error = time(wrong).expect_err(wrong).to_string();
            assert!(error.contains(&format!("'{wrong}'")), "{error}");
        }
        let address = |text: &str| LoopbackAddress::try_from(text.to_owned());
        assert!(address("127.0.0.1:0").is_ok() && address("[::1]:7450").is_ok());
        for wrong in ["0.0.0.0:7450", "10.0.0.1:7450", "localhost", "127.0.0.1"] {
            assert!(address(wrong).is_err(), "{wrong}");
        }
    }
}
