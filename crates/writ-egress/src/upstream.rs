//! The HTTP proxy of the owner's network: its address, and the connections that use it.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use secrecy::{ExposeSecret as _, SecretString};
use zeroize::Zeroizing;

use crate::host::HostPort;

/// The port of a proxy if its address has none.
const DEFAULT_PORT: u16 = 80;
/// The most entries in the list of hosts that are reached directly.
pub const MAX_DIRECT: usize = 512;
/// The most characters of a wrong entry that an error shows.
const MAX_SHOWN_CHARS: usize = 80;
/// The leading bits that all IPv4-mapped addresses share: `::ffff:0:0/96`.
const MAPPED_BITS: u8 = 96;
/// The longest user name or password, in bytes.
const MAX_LOGIN_BYTES: usize = 1024;

/// An HTTP proxy that outbound connections are made through.
#[derive(Clone)]
pub struct Upstream {
    address: HostPort,
    /// The value of `Proxy-Authorization`.
    authorization: Option<SecretString>,
    /// The setting or variable that names it.
    source: String,
}

/// Shows the address and the setting that names it, never the login.
impl fmt::Display for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{} ({})", self.address, self.source)
    }
}

impl fmt::Debug for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Upstream({self})")
    }
}

/// The reason why a text names no proxy that can be used. The text itself is not repeated: it may hold a
/// password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidProxy {
    /// A SOCKS proxy.
    #[error("{source_name} names a SOCKS proxy, which is not supported")]
    Socks {
        /// The setting or variable.
        source_name: String,
    },
    /// A proxy that is itself spoken to over TLS.
    #[error("{source_name} names a proxy that is reached over TLS (https://), which is not supported")]
    Tls {
        /// The setting or variable.
        source_name: String,
    },
    /// Not the address of a proxy.
    #[error("{source_name} is not the address of an HTTP proxy")]
    Address {
        /// The setting or variable.
        source_name: String,
    },
    /// A user name or password that cannot be sent.
    #[error("the user name or password of {source_name} cannot be sent")]
    Login {
        /// The setting or variable.
        source_name: String,
    },
}

impl InvalidProxy {
    /// A remedy, for people.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::Socks { .. } => {
                "name an HTTP proxy, as http://HOST:PORT; a local bridge such as privoxy can offer a SOCKS proxy as one"
            }
            Self::Tls { .. } => {
                "name its plain HTTP port, as http://HOST:PORT; connections through it still use TLS"
            }
            Self::Address { .. } => "write it as http://HOST:PORT",
            Self::Login { .. } => {
                "name a user without a colon; neither user name nor password may have control characters"
            }
        }
    }
}

impl Upstream {
    /// Reads the address of a proxy: `http://USER:PASSWORD@HOST:PORT`; only the host is required. User name and password
    /// are percent-decoded. The default port is 80.
    ///
    /// # Errors
    ///
    /// If it is another kind of proxy, no address, or has a login that cannot be sent.
    pub fn parse(text: &str, source: &str) -> Result<Self, InvalidProxy> {
        let source_name = source.to_owned();
        let text = text.trim();
        let rest = match text.split_once("://") {
            Some((scheme, rest)) => match scheme.to_ascii_lowercase().as_str() {
                "http" => rest,
                "https" => return Err(InvalidProxy::Tls { source_name }),
                other if other.starts_with("socks") => return Err(InvalidProxy::Socks { source_name }),
                _other => return Err(InvalidProxy::Address { source_name }),
            },
            None => text,
        };
        // The last `@` ends the login: a password may hold an `@` or a `/` that was not encoded.
        let (login, place) = match rest.rsplit_once('@') {
            Some((login, place)) => (Some(login), place),
            None => (None, rest),
        };
        let place = place.trim_end_matches('/');
        let has_port = place.rsplit_once(':').is_some_and(|(_, port)| !port.contains(']'));
        let whole = if has_port { place.to_owned() } else { format!("{place}:{DEFAULT_PORT}") };
        let address =
            whole.parse().map_err(|_| InvalidProxy::Address { source_name: source_name.clone() })?;
        let proxy = Self { address, authorization: None, source: source_name };
        match login {
            None => Ok(proxy),
            Some(login) => {
                let (user, password) = login.split_once(':').unwrap_or((login, ""));
                let decoded = |text| Zeroizing::new(decode_percent(text));
                let text = |bytes: &[u8]| str::from_utf8(bytes).map(str::to_owned);
                let invalid = || InvalidProxy::Login { source_name: source.to_owned() };
                let user = text(&decoded(user)).map_err(|_| invalid())?;
                let password = text(&decoded(password)).map_err(|_| invalid())?;
                proxy.with_login(&user, &SecretString::from(password))
            }
        }
    }

    /// Sets the user name and password for the proxy; neither is percent-decoded.
    ///
    /// # Errors
    ///
    /// If either is too long or has control characters, or the user name is empty or has a colon.
    pub fn with_login(mut self, user: &str, password: &SecretString) -> Result<Self, InvalidProxy> {
        let is_sendable = |text: &str| text.len() <= MAX_LOGIN_BYTES && !text.chars().any(char::is_control);
        if user.is_empty()
            || user.contains(':')
            || !is_sendable(user)
            || !is_sendable(password.expose_secret())
        {
            return Err(InvalidProxy::Login { source_name: self.source });
        }
        let pair = Zeroizing::new(format!("{user}:{}", password.expose_secret()));
        self.authorization = Some(format!("Basic {}", BASE64_STANDARD.encode(pair.as_bytes())).into());
        Ok(self)
    }

    /// Returns the address on which it listens.
    pub const fn address(&self) -> &HostPort {
        &self.address
    }

    /// The setting or variable that names it.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Returns true if a user name is sent to it.
    pub const fn has_login(&self) -> bool {
        self.authorization.is_some()
    }

    pub(crate) fn authorization_header(&self) -> Option<&str> {
        self.authorization.as_ref().map(|value| value.expose_secret())
    }
}

/// Decodes percent escapes (`%41`); any other text stays as it is.
fn decode_percent(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let escaped = (*first == b'%').then(|| after.split_at_checked(2)).flatten();
        let value = escaped.and_then(|(digits, _)| {
            let digits =
                str::from_utf8(digits).ok().filter(|text| text.bytes().all(|b| b.is_ascii_hexdigit()))?;
            u8::from_str_radix(digits, 16).ok()
        });
        match (value, escaped) {
            (Some(value), Some((_, after))) => {
                bytes.push(value);
                rest = after;
            }
            (_, _) => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    bytes
}

/// An entry of the list of hosts that are reached without the proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Direct {
    /// `*`.
    All,
    /// A name and everything below it.
    Name(String, Option<u16>),
    /// A network: the addresses that share this many leading bits with it.
    Net(IpAddr, u8, Option<u16>),
}

/// The reason why an entry of the list of direct hosts is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidDirect {
    /// Not a host, domain, address or network.
    #[error("'{0}' is not a host, a domain, an address or a network")]
    Entry(String),
    /// An IPv4-mapped network (`::ffff:10.0.0.0/80`) with other addresses in it.
    #[error("'{0}' is an IPv4-mapped network with fewer than {MAPPED_BITS} bits")]
    MappedNetwork(String),
    /// More than [`MAX_DIRECT`].
    #[error("more than {MAX_DIRECT} hosts")]
    TooMany,
}

impl InvalidDirect {
    /// A remedy, for people.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::Entry(_) => {
                "write *, a network such as 10.0.0.0/8, or a host, .domain or an address, these with :PORT or without"
            }
            Self::MappedNetwork(_) => "write the IPv4 network itself, such as 10.0.0.0/8",
            Self::TooMany => "name domains and networks instead of single hosts",
        }
    }
}

/// The hosts that are reached without a proxy, as `NO_PROXY` lists them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DirectHosts(Vec<Direct>);

impl DirectHosts {
    /// Reads entries that commas or blanks separate: `*`, a network (`10.0.0.0/8`), or `host`, `.domain`, `*.domain` or
    /// an address, these with `:port` or without; an IPv6 address with a port stands in brackets. A name stands for
    /// itself and for everything below it, as it does for curl. Returns the valid entries, and the errors of the others.
    pub fn parse(text: &str) -> (Self, Vec<InvalidDirect>) {
        let (mut hosts, mut wrong) = (Vec::new(), Vec::new());
        let entries = text.split(|c: char| c == ',' || c.is_whitespace()).filter(|entry| !entry.is_empty());
        for entry in entries {
            if hosts.len() + wrong.len() >= MAX_DIRECT {
                wrong.push(InvalidDirect::TooMany);
                break;
            }
            match Direct::parse(entry) {
                Ok(host) => hosts.push(host),
                Err(why) => wrong.push(why),
            }
        }
        (Self(hosts), wrong)
    }

    fn contains_host(&self, host: &str, port: u16) -> bool {
        let host = host.trim_end_matches('.');
        let address = host.parse::<IpAddr>().ok().map(|address| address.to_canonical());
        self.0.iter().any(|direct| match direct {
            Direct::All => true,
            Direct::Name(name, only) => {
                address.is_none()
                    && only.is_none_or(|only| only == port)
                    && (host == name
                        || host.strip_suffix(name.as_str()).is_some_and(|above| above.ends_with('.')))
            }
            Direct::Net(net, bits, only) => {
                only.is_none_or(|only| only == port)
                    && address.is_some_and(|address| is_within(address, *net, *bits))
            }
        })
    }
}

impl Direct {
    fn parse(entry: &str) -> Result<Self, InvalidDirect> {
        let shown = || -> String { entry.chars().take(MAX_SHOWN_CHARS).collect() };
        if let Some((net, bits)) = entry.split_once('/') {
            let (net, bits) = parse_network(net, bits).ok_or_else(|| InvalidDirect::Entry(shown()))?;
            let (net, bits) =
                canonical_network(net, bits).ok_or_else(|| InvalidDirect::MappedNetwork(shown()))?;
            return Ok(Self::Net(net, bits, None));
        }
        Self::parse_host(entry).ok_or_else(|| InvalidDirect::Entry(shown()))
    }

    /// Reads an entry that is not a network.
    fn parse_host(entry: &str) -> Option<Self> {
        if entry == "*" {
            return Some(Self::All);
        }
        let whole = |address: IpAddr, port| {
            let address = address.to_canonical();
            Self::Net(address, if address.is_ipv4() { 32 } else { 128 }, port)
        };
        if let Ok(address) = entry.parse() {
            return Some(whole(address, None));
        }
        let (host, port) = match entry.rsplit_once(':') {
            Some((host, port)) => (host, Some(port.parse().ok()?)),
            None => (entry, None),
        };
        if let Ok(address) = host.trim_matches(['[', ']']).parse() {
            return Some(whole(address, port));
        }
        let name = host.strip_prefix('*').unwrap_or(host);
        let name = name.trim_matches('.').to_ascii_lowercase();
        let well_formed = |c: char| c.is_alphanumeric() || matches!(c, '.' | '-' | '_');
        (!name.is_empty() && name.chars().all(well_formed)).then_some(Self::Name(name, port))
    }
}

/// Reads an address and its number of leading bits.
fn parse_network(net: &str, bits: &str) -> Option<(IpAddr, u8)> {
    let net: IpAddr = net.trim_matches(['[', ']']).parse().ok()?;
    let most = if net.is_ipv4() { 32 } else { 128 };
    let bits: u8 = bits.parse().ok().filter(|bits| *bits <= most)?;
    Some((net, bits))
}

/// Returns an IPv4-mapped network (`::ffff:10.0.0.0/104`) as the IPv4 network that it stands for, because hosts are compared by their
/// IPv4 addresses; any other network as it is. `None`: it is mapped, but has fewer bits than the prefix of mapped addresses.
fn canonical_network(net: IpAddr, bits: u8) -> Option<(IpAddr, u8)> {
    let canonical = net.to_canonical();
    if canonical.is_ipv4() && net.is_ipv6() {
        return Some((canonical, bits.checked_sub(MAPPED_BITS)?));
    }
    Some((net, bits))
}

fn is_within(address: IpAddr, net: IpAddr, bits: u8) -> bool {
    let bits = u32::from(bits);
    match (address, net) {
        (IpAddr::V4(address), IpAddr::V4(net)) => {
            let differing = address.to_bits() ^ net.to_bits();
            differing.checked_shr(32 - bits).unwrap_or(0) == 0
        }
        (IpAddr::V6(address), IpAddr::V6(net)) => {
            let differing = address.to_bits() ^ net.to_bits();
            differing.checked_shr(128 - bits).unwrap_or(0) == 0
        }
        (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
    }
}

/// The proxies of connections, by their targets. By default there is none.
#[derive(Clone, Debug, Default)]
pub struct ProxyRoutes {
    /// The proxy for TLS connections and tunnels.
    pub secure: Option<Arc<Upstream>>,
    /// The proxy for plain HTTP.
    pub plain: Option<Arc<Upstream>>,
    /// The hosts that are reached without a proxy.
    pub direct: DirectHosts,
    /// True if the proxy may resolve a host that this machine cannot resolve, so that its address is not
    /// judged. Otherwise a host that an agent names must resolve on this machine, and its addresses are
    /// judged.
    pub unchecked_names: bool,
}

impl ProxyRoutes {
    /// Returns the proxy for a host; `None`: the host is reached directly, as this machine always is.
    pub fn proxy_for(&self, host: &str, port: u16, secure: bool) -> Option<&Arc<Upstream>> {
        let host = host.trim_matches(['[', ']']).to_ascii_lowercase();
        if is_this_machine(&host) || self.direct.contains_host(&host, port) {
            return None;
        }
        if secure { self.secure.as_ref() } else { self.plain.as_ref() }
    }

    /// Returns true if no connection goes through a proxy.
    pub const fn is_empty(&self) -> bool {
        self.secure.is_none() && self.plain.is_none()
    }
}

fn is_this_machine(host: &str) -> bool {
    let name = host.trim_end_matches('.');
    name == "localhost"
        || name.ends_with(".localhost")
        || host.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn login(text: &str) -> Option<String> {
        let proxy = Upstream::parse(text, "HTTPS_PROXY").expect(text);
        let encoded = proxy.authorization_header()?.strip_prefix("Basic ")?;
        String::from_utf8(BASE64_STANDARD.decode(encoded).expect("base64")).ok()
    }

    #[test]
    fn proxies_are_written_in_many_ways() {
        for (text, address) in [
            ("http://proxy.corp.example:3128", "proxy.corp.example:3128"),
            ("http://proxy.corp.example:3128/", "proxy.corp.example:3128"),
            ("proxy.corp.example:8080", "proxy.corp.example:8080"),
            ("proxy.corp.example", "proxy.corp.example:80"),
            (" HTTP://10.1.2.3:3128\n", "10.1.2.3:3128"),
            ("http://[fd00::1]:3128", "[fd00::1]:3128"),
            ("http://[fd00::1]", "[fd00::1]:80"),
            ("http://u:p@proxy:1", "proxy:1"),
        ] {
            let proxy = Upstream::parse(text, "HTTPS_PROXY").expect(text);
            assert_eq!(proxy.address().to_string(), address, "{text}");
        }
        assert_eq!(login("http://proxy:1"), None);
        assert_eq!(login("http://ann:secret@proxy:1").as_deref(), Some("ann:secret"));
        assert_eq!(
            login("http://corp%5Cann:p%40ss%3Aw%2Frd@proxy:1").as_deref(),
            Some("corp\\ann:p@ss:w/rd")
        );
        assert_eq!(login("http://ann:p@ss/w%ord@proxy:1").as_deref(), Some("ann:p@ss/w%ord"), "not encoded");
        assert_eq!(login("http://ann@proxy:1").as_deref(), Some("ann:"));
    }

    #[test]
    fn what_is_no_http_proxy_is_refused_by_name_and_not_repeated() {
        let refused = |text: &str| Upstream::parse(text, "ALL_PROXY").expect_err(text);
        let source_name = || "ALL_PROXY".to_owned();
        for scheme in ["socks5", "socks5h", "socks4", "SOCKS"] {
            let error = refused(&format!("{scheme}://u:hunter2@proxy:1080"));
            assert_eq!(error, InvalidProxy::Socks { source_name: source_name() });
            assert!(!format!("{error} {error:?}").contains("hunter2"));
            assert!(error.hint().contains("http://HOST:PORT"));
        }
        assert_eq!(refused("https://proxy:443"), InvalidProxy::Tls { source_name: source_name() });
        for text in [
            "ftp://proxy",
            "http://",
            "http://a b:1",
            "http://proxy:0",
            "http://proxy/path:x",
            "http://p:99999",
        ] {
            assert_eq!(refused(text), InvalidProxy::Address { source_name: source_name() }, "{text}");
        }
        for text in ["http://a%3Ab:p@proxy:1", "http://u:p%0D%0AX: y@proxy:1", "http://u:%ff@proxy:1"] {
            assert_eq!(refused(text), InvalidProxy::Login { source_name: source_name() }, "{text}");
        }
    }

    #[test]
    fn neither_form_of_a_proxy_shows_its_password() {
        let proxy = Upstream::parse("http://ann:hunter2@proxy:3128", "HTTPS_PROXY").expect("a proxy");
        let shown = format!("{proxy} {proxy:?}");
        assert!(!shown.contains("hunter2") && !shown.contains("aHVudGVyMg"), "{shown}");
        assert_eq!(proxy.to_string(), "http://proxy:3128 (HTTPS_PROXY)");
    }

    #[test]
    fn hosts_are_direct_by_every_form_that_no_proxy_is_written_in() {
        let (direct, wrong) = DirectHosts::parse(
            "corp.example, .intra.example *.lab.example,10.0.0.0/8, 192.0.2.7 ported.example:8443,\n[fd00::1]:80,fe80::/10,2001:db8::1,,198.51.100.1:81 MiXed.Example",
        );
        assert_eq!(wrong, []);
        for (host, port) in [
            ("corp.example", 443),
            ("git.corp.example", 443),
            ("corp.example.", 443),
            ("intra.example", 80),
            ("a.intra.example", 80),
            ("a.b.lab.example", 80),
            ("10.255.0.1", 80),
            ("::ffff:10.1.2.3", 80),
            ("192.0.2.7", 443),
            ("ported.example", 8443),
            ("fd00::1", 80),
            ("fe80::1234", 443),
            ("2001:db8::1", 443),
            ("198.51.100.1", 81),
            ("mixed.example", 443),
        ] {
            assert!(direct.contains_host(host, port), "{host}:{port}");
        }
        for (host, port) in [
            ("notcorp.example", 443),
            ("corp.example.org", 443),
            ("11.0.0.1", 80),
            ("192.0.2.8", 443),
            ("ported.example", 443),
            ("fd00::1", 443),
            ("2001:db8::2", 443),
            ("198.51.100.1", 80),
        ] {
            assert!(!direct.contains_host(host, port), "{host}:{port}");
        }
        assert!(DirectHosts::parse("*").0.contains_host("anything.example", 443));
        assert!(DirectHosts::parse("0.0.0.0/0").0.contains_host("203.0.113.9", 443));
        assert!(DirectHosts::parse("::/0").0.contains_host("2001:db8::9", 443));
        let (_, wrong) = DirectHosts::parse("10.0.0.0/33,::/129,a:b,http://x,ok.example");
        assert_eq!(wrong.len(), 4, "{wrong:?}");
        let many = "a.example,".repeat(MAX_DIRECT + 5);
        assert_eq!(DirectHosts::parse(&many).1, [InvalidDirect::TooMany]);
    }

    #[test]
    fn a_mapped_network_is_the_ipv4_network_that_it_stands_for() {
        let (direct, wrong) = DirectHosts::parse("::ffff:10.0.0.0/104 [::ffff:192.0.2.7]/128");
        assert_eq!(wrong, []);
        for host in ["10.1.2.3", "::ffff:10.255.0.1", "192.0.2.7"] {
            assert!(direct.contains_host(host, 80), "{host}");
        }
        for host in ["11.0.0.1", "::ffff:11.0.0.1", "192.0.2.8", "fd00::1"] {
            assert!(!direct.contains_host(host, 80), "{host}");
        }
        assert!(DirectHosts::parse("::ffff:0.0.0.0/96").0.contains_host("203.0.113.9", 443));
        let (direct, wrong) = DirectHosts::parse("::ffff:10.0.0.0/95");
        assert_eq!(wrong, [InvalidDirect::MappedNetwork("::ffff:10.0.0.0/95".to_owned())]);
        assert!(wrong.iter().all(|why| why.hint().contains("10.0.0.0/8")));
        assert!(!direct.contains_host("10.1.2.3", 80));
    }

    #[test]
    fn this_machine_is_always_direct() {
        let proxy = Some(Arc::new(Upstream::parse("http://proxy:3128", "HTTPS_PROXY").expect("a proxy")));
        let routes = ProxyRoutes { secure: proxy.clone(), plain: proxy, ..ProxyRoutes::default() };
        for host in [
            "localhost",
            "LOCALHOST",
            "ollama.localhost",
            "127.0.0.1",
            "127.9.9.9",
            "::1",
            "[::1]",
            "::ffff:127.0.0.1",
        ] {
            assert!(routes.proxy_for(host, 11434, false).is_none(), "{host}");
        }
        for host in ["api.example.org", "localhost.example", "10.0.0.1", "128.0.0.1"] {
            assert!(routes.proxy_for(host, 443, true).is_some(), "{host}");
        }
        let secure = ProxyRoutes { plain: None, ..routes };
        assert!(secure.proxy_for("api.example.org", 80, false).is_none());
        assert!(ProxyRoutes::default().is_empty() && !secure.is_empty());
    }
}
