//! Hosts and targets, read so strictly that no other reader of the same text can mean another host.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::fmt;
use std::str::FromStr;

use idna::AsciiDenyList;
use idna::uts46::{DnsLength, Hyphens, Uts46};
use serde::{Deserialize, Serialize};
use unicode_normalization::UnicodeNormalization as _;
use unicode_security::{GeneralSecurityProfile as _, MixedScript as _};

/// The longest name of a host, in characters (RFC 1035, section 2.3.4, without the root's dot).
pub const MAX_NAME_LEN: usize = 253;
/// The longest label of a name (RFC 1035, section 2.3.4).
const MAX_LABEL_LEN: usize = 63;
/// The longest text that is looked at: no name that becomes [`MAX_NAME_LEN`] characters is longer.
const MAX_TEXT_LEN: usize = 1024;
/// The longest URL that is looked at, in bytes: what servers commonly take.
pub const MAX_URL_LEN: usize = 8 * 1024;

/// A host in its one canonical form: lower case, A-labels, no trailing dot; or an address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Host(HostForm);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum HostForm {
    Name(String),
    V4(Ipv4Addr),
    V6(Ipv6Addr),
}

/// The reason why a text names no host, or none that every reader would agree on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidHost {
    /// There is nothing, or an empty label.
    #[error("it is empty or has an empty label")]
    Empty,
    /// It, or a label of it, is too long.
    #[error("it is too long")]
    TooLong,
    /// A character that no host has: control, space, `@`, `%`, `/`, `\`, a stray bracket or colon.
    #[error("it holds a character that no host has")]
    Character,
    /// A number that some readers take for an address.
    #[error("it is a number that can be read as an address")]
    Numeric,
    /// Brackets around something that is not an IPv6 address, or an IPv6 address without.
    #[error("brackets stand around IPv6 addresses, and only there")]
    Bracket,
    /// An internationalised name that is not valid, not in its normal form, or mixes scripts.
    #[error("it is an internationalised name that is not valid or mixes scripts")]
    Idn,
}

impl Host {
    /// The host as a resolver wants it: a name, or an address without brackets.
    pub fn to_resolvable(&self) -> String {
        match &self.0 {
            HostForm::Name(name) => name.clone(),
            HostForm::V4(address) => address.to_string(),
            HostForm::V6(address) => address.to_string(),
        }
    }

    /// The address, where the host is one.
    pub const fn literal_address(&self) -> Option<IpAddr> {
        match &self.0 {
            HostForm::Name(_) => None,
            HostForm::V4(address) => Some(IpAddr::V4(*address)),
            HostForm::V6(address) => Some(IpAddr::V6(*address)),
        }
    }

    /// The name, where the host is one.
    pub fn domain_name(&self) -> Option<&str> {
        match &self.0 {
            HostForm::Name(name) => Some(name),
            HostForm::V4(_) | HostForm::V6(_) => None,
        }
    }
}

impl From<IpAddr> for Host {
    fn from(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => Self(HostForm::V4(address)),
            IpAddr::V6(address) => Self(HostForm::V6(address)),
        }
    }
}

impl FromStr for Host {
    type Err = InvalidHost;

    fn from_str(text: &str) -> Result<Self, InvalidHost> {
        // Before anything else, so that no later step has to handle a text of any length.
        if text.len() > MAX_TEXT_LEN {
            return Err(InvalidHost::TooLong);
        }
        if let Some(rest) = text.strip_prefix('[') {
            let inner = rest.strip_suffix(']').ok_or(InvalidHost::Bracket)?;
            return inner
                .parse()
                .map(|address| Self(HostForm::V6(address)))
                .map_err(|_| InvalidHost::Bracket);
        }
        // `::1:80` could be read as a host with a port or without one; in brackets it cannot.
        if text.parse::<Ipv6Addr>().is_ok() {
            return Err(InvalidHost::Bracket);
        }
        // The root's dot names the same host in DNS, so `evil.com.` must not differ from `evil.com`.
        let text = text.strip_suffix('.').unwrap_or(text);
        if text.is_empty() {
            return Err(InvalidHost::Empty);
        }
        // A NUL in `evil.com\0.allowed.com` ends the name for a C library and not for a list.
        if text.chars().any(|c| if c.is_ascii() { !is_name_char(c) } else { c.is_control() }) {
            return Err(InvalidHost::Character);
        }
        // A comparison without case is done once here, and all later ones are of bytes.
        let name = if text.is_ascii() { text.to_ascii_lowercase() } else { to_ascii(text)? };
        check_name(&name)?;
        // `0x7f.1`, `127.1` and `2130706433` are 127.0.0.1 to many resolvers.
        if is_numeric(&name) {
            let address = name.parse().map(|address| Self(HostForm::V4(address)));
            // Only the plain form, written as an address: digits of another script are none.
            return address.ok().filter(|_| text.is_ascii()).ok_or(InvalidHost::Numeric);
        }
        Ok(Self(HostForm::Name(name)))
    }
}

/// Returns true for characters of names. The underscore is no part of host names, but occurs in some.
const fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_')
}

/// The A-labels of an internationalised name that is written in its normal form.
fn to_ascii(text: &str) -> Result<String, InvalidHost> {
    // The comparison below needs a form of the input that differs from the result only if something was
    // mapped away.
    let normal: String = text.to_lowercase().nfc().collect();
    let ascii = Uts46::new()
        .to_ascii(normal.as_bytes(), AsciiDenyList::STD3, Hyphens::CheckFirstLast, DnsLength::Verify)
        .map_err(|_| InvalidHost::Idn)?
        .into_owned();
    // Nothing may be mapped away: full stops of other scripts, soft hyphens, wide letters.
    if to_unicode(&ascii)? == normal { Ok(ascii) } else { Err(InvalidHost::Idn) }
}

/// The characters of a name with A-labels.
fn to_unicode(name: &str) -> Result<String, InvalidHost> {
    let (text, valid) =
        Uts46::new().to_unicode(name.as_bytes(), AsciiDenyList::STD3, Hyphens::CheckFirstLast);
    valid.map(|()| text.into_owned()).map_err(|_| InvalidHost::Idn)
}

/// Checks a name in ASCII: lengths, hyphens, and what its A-labels stand for.
fn check_name(name: &str) -> Result<(), InvalidHost> {
    if name.len() > MAX_NAME_LEN {
        return Err(InvalidHost::TooLong);
    }
    for label in name.split('.') {
        if label.is_empty() {
            return Err(InvalidHost::Empty);
        }
        if label.len() > MAX_LABEL_LEN {
            return Err(InvalidHost::TooLong);
        }
        // RFC 1034 forbids a hyphen at either end, and programs could read such a name as an option.
        if label.starts_with('-') || label.ends_with('-') {
            return Err(InvalidHost::Character);
        }
        // A name may come as A-labels, so its Unicode form is checked as if it had come that way.
        if label.starts_with("xn--") && !is_plain(&to_unicode(label)?) {
            return Err(InvalidHost::Idn);
        }
    }
    Ok(())
}

/// Returns true if a label is written in one script, with letters that are in use (Unicode TR 39): no
/// mathematical slash, no Cyrillic letter among Latin ones.
fn is_plain(label: &str) -> bool {
    label.is_single_script() && label.chars().all(|c| c.is_ascii() || c.identifier_allowed())
}

/// Returns true if some reader takes the name for an IPv4 address: its last label is a number, as in the URL
/// standard.
fn is_numeric(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or(name);
    // A bare `0x` is a number to the URL standard, so no digits have to follow.
    let hexadecimal = last.strip_prefix("0x").is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_hexdigit()));
    hexadecimal || last.bytes().all(|b| b.is_ascii_digit())
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            HostForm::Name(name) => f.write_str(name),
            HostForm::V4(address) => write!(f, "{address}"),
            HostForm::V6(address) => write!(f, "[{address}]"),
        }
    }
}

impl TryFrom<String> for Host {
    type Error = InvalidHost;

    fn try_from(text: String) -> Result<Self, InvalidHost> {
        text.parse()
    }
}

impl From<Host> for String {
    fn from(host: Host) -> Self {
        host.to_string()
    }
}

/// The protocol to a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scheme {
    /// Readable by everyone on the way.
    Http,
    /// In TLS, or in a tunnel that is expected to hold TLS.
    Https,
}

impl Scheme {
    /// The name used in URLs and records.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }

    /// The port that is meant where none is named.
    pub const fn default_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }
}

/// The target of a connection.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Target {
    /// The protocol.
    pub scheme: Scheme,
    /// To which host.
    pub host: Host,
    /// To which port; never 0.
    pub port: u16,
}

/// The reason why a text names no target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTarget {
    /// The host cannot be used.
    #[error("the host cannot be used: {0}")]
    Host(#[from] InvalidHost),
    /// The port is no number from 1 to 65535, or is missing where one is needed.
    #[error("the port is missing or not a number from 1 to 65535")]
    Port,
    /// The address has a user name or password before the host.
    #[error("there is a user name or password before the host")]
    UserInfo,
    /// The scheme is neither `http` nor `https`, or the URL can be read in two ways.
    #[error("it is not a plain http or https URL")]
    Url,
}

impl Target {
    /// Reads `HOST`, or `HOST:PORT`.
    ///
    /// # Errors
    ///
    /// If the host or the port cannot be used, or something stands before the host.
    pub fn from_authority(
        scheme: Scheme,
        text: &str,
        default_port: Option<u16>,
    ) -> Result<Self, InvalidTarget> {
        // `https://docs.rs@evil.example/` reads like docs.rs and goes to evil.example.
        if text.contains('@') {
            return Err(InvalidTarget::UserInfo);
        }
        // In `[::1]:80` the host ends at the bracket; elsewhere at the colon.
        let last = text.rfind(']').unwrap_or(0);
        let colon = text.get(last..).and_then(|rest| rest.find(':')).map(|at| at + last);
        let (host, port) = match colon {
            Some(at) => (text.get(..at).unwrap_or_default(), text.get(at + 1..).map(read_port)),
            None => (text, default_port.map(Some)),
        };
        let port = port.flatten().ok_or(InvalidTarget::Port)?;
        Ok(Self { scheme, host: host.parse()?, port })
    }

    /// Reads the target of a URL. The fragment, path and query are not looked at.
    ///
    /// # Errors
    ///
    /// If it is not a plain `http` or `https` URL that every reader takes for the same host.
    pub fn from_url(url: &str) -> Result<Self, InvalidTarget> {
        // Browsers remove tabs and line ends and turn `\` into `/`; other readers do not.
        if url.len() > MAX_URL_LEN || !url.bytes().all(|b| b > b' ' && b != 0x7f && b != b'\\') {
            return Err(InvalidTarget::Url);
        }
        let (scheme, rest) = url.split_once("://").ok_or(InvalidTarget::Url)?;
        let scheme = match scheme {
            // Another case of the scheme or another scheme is refused: only these two have a judged
            // connection.
            "http" => Scheme::Http,
            "https" => Scheme::Https,
            _ => return Err(InvalidTarget::Url),
        };
        // The end of the authority is the first of these three in every reader.
        let authority = rest.split(['/', '?', '#']).next().unwrap_or(rest);
        Self::from_authority(scheme, authority, Some(scheme.default_port()))
    }
}

fn read_port(text: &str) -> Option<u16> {
    // `080` and `+80` are read differently by different parsers.
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) && !text.starts_with('0');
    text.parse().ok().filter(|_| digits)
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}:{}", self.scheme.as_str(), self.host, self.port)
    }
}

/// An entry of an owner's list of hosts: `docs.rs`, `*.example.org` (everything below, not itself), each with
/// or without a port, and addresses.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HostPattern {
    below: bool,
    host: Host,
    port: Option<u16>,
}

impl HostPattern {
    /// Exactly this host.
    pub const fn exact_host(host: Host, port: Option<u16>) -> Self {
        Self { below: false, host, port }
    }

    /// The port, where one is named.
    pub const fn port(&self) -> Option<u16> {
        self.port
    }

    /// Returns true if everything below a name is meant.
    pub const fn is_below(&self) -> bool {
        self.below
    }

    /// Returns true if a host is covered on some port.
    pub fn covers_host(&self, host: &Host) -> bool {
        match (self.below, host.domain_name(), self.host.domain_name()) {
            // The rest ends with a dot, so `evilexample.org` is not below `example.org`.
            (true, Some(name), Some(suffix)) => {
                name.strip_suffix(suffix).is_some_and(|rest| rest.ends_with('.'))
            }
            // A pattern for names covers no address, also not one that the name resolves to.
            (true, _, _) => false,
            (false, _, _) => self.host == *host,
        }
    }
}

impl FromStr for HostPattern {
    type Err = InvalidTarget;

    fn from_str(text: &str) -> Result<Self, InvalidTarget> {
        let (below, rest) = match text.strip_prefix("*.") {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        // A default that no text can name tells «no port» apart.
        let target = Target::from_authority(Scheme::Https, rest, Some(0))?;
        // There is nothing below an address; `*.1.2.3.4` would look like a range.
        if below && target.host.literal_address().is_some() {
            return Err(InvalidHost::Numeric.into());
        }
        Ok(Self { below, host: target.host, port: Some(target.port).filter(|port| *port != 0) })
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", if self.below { "*." } else { "" }, self.host)?;
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

impl TryFrom<String> for HostPattern {
    type Error = InvalidTarget;

    fn try_from(text: String) -> Result<Self, InvalidTarget> {
        text.parse()
    }
}

impl From<HostPattern> for String {
    fn from(pattern: HostPattern) -> Self {
        pattern.to_string()
    }
}
