//! The destination of a permit: a host and a port.

use std::fmt;
use std::str::FromStr;

/// The longest host name, in characters (RFC 1035, section 2.3.4).
pub const MAX_HOST_LEN: usize = 253;

/// A host and a port, as a permit names them: `api.example.org:443`, `127.0.0.1:8080`, `[::1]:8080`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostPort {
    host: String,
    port: u16,
}

/// Text that is not a host and a port.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not HOST:PORT")]
pub struct HostPortError(pub String);

impl HostPort {
    /// The host, without brackets, as the system's resolver wants it.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port.
    pub const fn port(&self) -> u16 {
        self.port
    }
}

impl FromStr for HostPort {
    type Err = HostPortError;

    fn from_str(text: &str) -> Result<Self, HostPortError> {
        let invalid = || HostPortError(text.chars().take(MAX_HOST_LEN).collect());
        let (host, port) = text.rsplit_once(':').ok_or_else(invalid)?;
        let port: u16 = port.parse().map_err(|_| invalid())?;
        let bracketed = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        let plain = match bracketed {
            Some(address) => {
                address.parse::<std::net::Ipv6Addr>().map_err(|_| invalid())?;
                address
            }
            None => host,
        };
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        let well_formed = bracketed.is_some() || plain.chars().all(allowed);
        if port == 0 || plain.is_empty() || plain.len() > MAX_HOST_LEN || !well_formed {
            return Err(invalid());
        }
        Ok(Self { host: plain.to_ascii_lowercase(), port })
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_parsed_strictly() {
        for (text, shown) in [
            ("api.example.org:443", "api.example.org:443"),
            ("API.Example.org:443", "api.example.org:443"),
            ("127.0.0.1:8080", "127.0.0.1:8080"),
            ("[::1]:8080", "[::1]:8080"),
        ] {
            assert_eq!(text.parse::<HostPort>().map(|host| host.to_string()), Ok(shown.to_owned()));
        }
        let long = format!("{}:1", "a".repeat(MAX_HOST_LEN + 1));
        for text in [
            "",
            "host",
            ":443",
            "host:",
            "host:0",
            "host:70000",
            "a b:1",
            "u@h:1",
            "evil\0.org:1",
            "::1:80",
            &long,
        ] {
            assert!(text.parse::<HostPort>().is_err(), "{text:?} must be refused");
        }
    }
}
