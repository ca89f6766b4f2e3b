//! Connections through the proxy of the owner's network.

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::connect::{Resolver as _, Stream, SystemResolver, dial_addresses};
use crate::upstream::Upstream;

/// The longest head of a proxy's answer to `CONNECT`, in bytes.
const MAX_HEAD_BYTES: usize = 16 * 1024;

/// The reason why a proxy made no connection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TunnelFault {
    /// The proxy's name has no address.
    #[error("its name has no address: {0}")]
    Unresolved(String),
    /// The proxy accepts no connection.
    #[error("it cannot be reached: {0}")]
    Unreachable(String),
    /// It ended the connection instead of answering.
    #[error("it closed the connection without an answer")]
    Closed,
    /// It wants another user name or password, or any.
    #[error("it wants a user name and a password (407)")]
    Login,
    /// It wants a user name and a password in a way that is not spoken here.
    #[error("it wants a login by {0} (407), and only Basic is supported")]
    Scheme(String),
    /// It refuses the host.
    #[error("it refuses to connect ({0})")]
    Refused(u16),
    /// It could not connect to the host itself.
    #[error("it could not connect to the host ({0})")]
    Failed(u16),
    /// It does not speak HTTP, or says too much.
    #[error("it sent no proper answer: is it an HTTP proxy?")]
    BadAnswer,
}

impl TunnelFault {
    /// A remedy, for people.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::Unresolved(_) | Self::Unreachable(_) => {
                "Check the proxy's address in network.proxy or HTTPS_PROXY; network.no_proxy and NO_PROXY name hosts that need none."
            }
            Self::Login => {
                "Set network.proxy_user, and network.proxy_password to a stored secret; or write both in HTTPS_PROXY, percent-encoded."
            }
            Self::Scheme(_) => {
                "Run a local bridge that logs in (such as cntlm or px), and name that in network.proxy."
            }
            Self::Refused(_) | Self::Closed | Self::BadAnswer => {
                "Check network.proxy (or HTTPS_PROXY); ask the proxy's administrator to allow the host, or name it in network.no_proxy if it is inside."
            }
            Self::Failed(_) => {
                "The host may be down, or its name wrong; name it in network.no_proxy if it is inside."
            }
        }
    }
}

impl TunnelFault {
    /// Returns true if another try may succeed without a change of settings.
    pub const fn may_pass(&self) -> bool {
        match self {
            Self::Unresolved(_) | Self::Unreachable(_) | Self::Closed | Self::Failed(_) => true,
            Self::Login | Self::Scheme(_) | Self::Refused(_) | Self::BadAnswer => false,
        }
    }
}

/// Connects to a proxy. Its address is not judged: the owner names it.
pub(crate) async fn dial_proxy(proxy: &Upstream) -> Result<Stream, TunnelFault> {
    let address = proxy.address();
    // The proxy's own name is looked up here, also where the host's is left to it.
    let found = SystemResolver.resolve_name(address.host(), address.port()).await;
    let found = found.map_err(|why| TunnelFault::Unresolved(why.to_string()))?;
    let found: Vec<SocketAddr> = found.into_iter().map(|one| SocketAddr::new(one, address.port())).collect();
    dial_addresses(&found).await.map_err(|why| TunnelFault::Unreachable(why.to_string()))
}

/// Has a proxy connect to a host, by its name. Nothing of what the host sends is read.
pub(crate) async fn open_tunnel(proxy: &Upstream, host: &str, port: u16) -> Result<Stream, TunnelFault> {
    let mut stream = dial_proxy(proxy).await?;
    let host =
        // An address of IPv6 stands in brackets before a port.
        if host.contains(':') && !host.starts_with('[') { format!("[{host}]") } else { host.to_owned() };
    let login = match proxy.authorization_header() {
        Some(value) => format!("Proxy-Authorization: {value}\r\n"),
        None => String::new(),
    };
    // It holds the password of the proxy.
    let request = zeroize::Zeroizing::new(format!(
        "CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\nUser-Agent: writ/{}\r\n{login}\r\n",
        env!("CARGO_PKG_VERSION")
    ));
    stream.write_all(request.as_bytes()).await.map_err(|_| TunnelFault::Closed)?;
    let head = read_head(&mut stream).await?;
    judge_head(&head).map(|()| stream)
}

/// Reads a head byte by byte, because what follows it is the host's.
async fn read_head(stream: &mut Stream) -> Result<Vec<u8>, TunnelFault> {
    let mut head = Vec::new();
    loop {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(why) if head.is_empty() || why.kind() != io::ErrorKind::UnexpectedEof => {
                return Err(TunnelFault::Closed);
            }
            Err(_) => return Err(TunnelFault::BadAnswer),
        }
        let is_http = head.starts_with(b"HTTP/1.") || b"HTTP/1.".starts_with(&head);
        if !is_http || head.len() > MAX_HEAD_BYTES {
            return Err(TunnelFault::BadAnswer);
        }
        // Some proxies end lines with a bare line feed.
        if head.ends_with(b"\r\n\r\n") || head.ends_with(b"\n\n") {
            return Ok(head);
        }
    }
}

fn judge_head(head: &[u8]) -> Result<(), TunnelFault> {
    let head = String::from_utf8_lossy(head);
    let status: u16 = head
        .split(' ')
        .nth(1)
        .and_then(|status| status.get(..3)?.parse().ok())
        .ok_or(TunnelFault::BadAnswer)?;
    match status {
        200..=299 => Ok(()),
        407 => Err(login_fault(head.lines())),
        502..=504 => Err(TunnelFault::Failed(status)),
        _other => Err(TunnelFault::Refused(status)),
    }
}

/// Returns the missing credentials, by the `Proxy-Authenticate` lines of a 407.
fn login_fault<'a>(lines: impl Iterator<Item = &'a str>) -> TunnelFault {
    let offers = lines.filter_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("proxy-authenticate").then(|| value.trim())
    });
    let schemes: Vec<&str> = offers.filter_map(|offer| offer.split([' ', ',']).next()).collect();
    scheme_fault(&schemes)
}

/// Returns the missing credentials where a proxy offers these ways to log in.
pub(crate) fn scheme_fault(schemes: &[&str]) -> TunnelFault {
    if schemes.is_empty() || schemes.iter().any(|scheme| scheme.eq_ignore_ascii_case("basic")) {
        return TunnelFault::Login;
    }
    let known = schemes.iter().take(4).map(|scheme| {
        // They are the proxy's own words, and go into an error.
        let clean: String = scheme.chars().filter(char::is_ascii_alphanumeric).take(20).collect();
        clean
    });
    TunnelFault::Scheme(known.collect::<Vec<_>>().join(", "))
}
