//! Looking names up, without the C library: its resolver loads modules at run time, which a static binary cannot.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::time::Duration;

use hickory_resolver::config::{
    LookupIpStrategy, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts,
};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::op::Query;
use hickory_resolver::proto::rr::{Name, RecordType};
use hickory_resolver::system_conf::parse_resolv_conf;
use hickory_resolver::{Hosts, Resolver as Library};

use crate::connect::{Later, MAX_ADDRESSES, Resolver};

/// The largest of the two files that is read, in bytes; lists of blocked hosts have a few megabytes.
const MAX_FILE_BYTES: u64 = 16 * 1024 * 1024;

/// The most name servers that are asked, as in resolv.conf(5).
const MAX_SERVERS: usize = 3;
/// The longest that a lookup may take, all name servers included: it is to end within the ten seconds of a
/// connection.
const LOOKUP_LIMIT: Duration = Duration::from_secs(9);

/// The machine's own names and name servers: `/etc/hosts`, then those of `/etc/resolv.conf`.
///
/// Both are read at each lookup, so that a laptop that changes its network goes on, and nothing is cached: a
/// connection looks its host up once. Name servers are asked in the order in which they stand there, each
/// only when those before it gave no answer: the second may belong to a party that should not learn the name.
/// A name with a dot is asked for as it stands, never with a search domain behind it: the judged name is the
/// one that is asked for. Other sources of the machine (multicast, LDAP) are not asked.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemResolver;

impl Resolver for SystemResolver {
    fn resolve_name<'a>(&'a self, name: &'a str, _: u16) -> Later<'a, io::Result<Vec<IpAddr>>> {
        Box::pin(async move {
            // A literal address needs no server.
            if let Ok(address) = name.parse() {
                return Ok(vec![address]);
            }
            let servers = read_file(Path::new("/etc/resolv.conf")).unwrap_or_default();
            let hosts = read_file(Path::new("/etc/hosts")).unwrap_or_default();
            let (servers, options) = name_servers(&servers);
            look_up(name, servers, options, &hosts).await
        })
    }
}

fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    use std::io::Read as _;
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(MAX_FILE_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Returns the settings in the text of a `resolv.conf`. Without a name server in it, this machine is asked,
/// as resolv.conf(5) has it.
fn name_servers(text: &[u8]) -> (ResolverConfig, ResolverOpts) {
    parse_resolv_conf(text).unwrap_or_else(|_| {
        // A file that cannot be read says as much as an empty one.
        let local = NameServerConfig::udp_and_tcp(Ipv4Addr::LOCALHOST.into());
        (ResolverConfig::from_parts(None, Vec::new(), vec![local]), ResolverOpts::default())
    })
}

/// The addresses of a name, those of version 4 first: where one of version 6 leads nowhere, that is found out late.
async fn look_up(
    name: &str,
    mut servers: ResolverConfig,
    mut options: ResolverOpts,
    hosts: &[u8],
) -> io::Result<Vec<IpAddr>> {
    let known = own_addresses(&own_names(hosts), name);
    if !known.is_empty() {
        return Ok(known);
    }
    // Each server gets its share of the time, so their number is bounded.
    servers.name_servers.truncate(MAX_SERVERS);
    let count = u32::try_from(servers.name_servers.len()).unwrap_or(u32::MAX).max(1);
    let share = LOOKUP_LIMIT / count;
    options.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
    // A name is looked up once for a connection; a cache would answer with addresses of an earlier
    // network.
    options.cache_size = 0;
    options.use_hosts_file = ResolveHosts::Never;
    // One try that is as long as all of them may be; questions over UDP are repeated within it.
    let tries = u32::try_from(options.attempts).unwrap_or(u32::MAX).max(1);
    options.timeout = options.timeout.saturating_mul(tries).min(share);
    options.attempts = 0;
    // The dot at the end stops the library from trying search domains.
    let dotted = name.contains('.') && !name.ends_with('.');
    let asked = if dotted { format!("{name}.") } else { name.to_owned() };
    let mut last = io::Error::other("there is no name server");
    // One after the other by ourselves: the library's limit for one server is that for all of them, so that a first
    // one that is silent would leave no time for a second.
    for server in std::mem::take(&mut servers.name_servers) {
        let mut alone = servers.clone();
        alone.name_servers = vec![server];
        let library = Library::builder_with_config(alone, TokioRuntimeProvider::default())
            .with_options(options.clone())
            .build()
            .map_err(io::Error::other)?;
        match library.lookup_ip(asked.as_str()).await {
            Ok(found) => return Ok(in_order(found.iter().collect())),
            // That there is no such name is an answer.
            Err(error) if error.is_no_records_found() => return Err(io::Error::other(error)),
            Err(error) => last = io::Error::other(error),
        }
    }
    Err(last)
}

/// The machine's own list of names. What cannot be read in it is left out: the rest still counts.
fn own_names(hosts: &[u8]) -> Hosts {
    let mut own = Hosts::default();
    if let Err(error) = own.read_hosts_conf(String::from_utf8_lossy(hosts).as_bytes()) {
        tracing::warn!(%error, "the machine's own list of names could not be read to its end");
    }
    own
}

/// Returns the addresses that the machine's own list gives a name. Where there are some, no server is asked.
fn own_addresses(own: &Hosts, name: &str) -> Vec<IpAddr> {
    let Ok(name) = Name::from_utf8(name.trim_end_matches('.')) else { return Vec::new() };
    let found = [RecordType::A, RecordType::AAAA].map(|kind| {
        let mut name = name.clone();
        name.set_fqdn(true);
        own.lookup_static_host(&Query::query(name, kind))
    });
    let records = found.iter().flatten().flat_map(|lookup| lookup.answers());
    in_order(records.filter_map(|record| record.data.ip_addr()).collect())
}

fn in_order(mut addresses: Vec<IpAddr>) -> Vec<IpAddr> {
    // IPv4 first: more machines have a way there.
    addresses.sort_by_key(IpAddr::is_ipv6);
    addresses.truncate(MAX_ADDRESSES);
    addresses
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use tokio::net::UdpSocket;

    use super::*;

    /// A name server that knows one name, and notes what it is asked for.
    struct NameServer {
        address: SocketAddr,
        asked: tokio::sync::mpsc::Receiver<String>,
    }

    /// The name in a question, which begins after the head of 12 bytes.
    fn question(query: &[u8]) -> (String, usize) {
        let (mut at, mut labels) = (12, Vec::new());
        while query[at] != 0 {
            let length = usize::from(query[at]);
            labels.push(String::from_utf8_lossy(&query[at + 1..at + 1 + length]).into_owned());
            at += length + 1;
        }
        (labels.join("."), at + 1)
    }

    impl NameServer {
        async fn start(known: &'static str, at: Ipv4Addr) -> Self {
            let socket = UdpSocket::bind("127.0.0.1:0").await.expect("binds");
            let address = socket.local_addr().expect("bound");
            let (tell, asked) = tokio::sync::mpsc::channel(64);
            tokio::spawn(async move {
                let mut buffer = [0; 512];
                while let Ok((length, from)) = socket.recv_from(&mut buffer).await {
                    let query = &buffer[..length];
                    let (name, end) = question(query);
                    let is_a = query[end..end + 2] == [0, 1];
                    let exists = name.eq_ignore_ascii_case(known);
                    let _told = tell.try_send(name);
                    // Head: the same id, an answer, recursion available, and whether the name exists.
                    let mut answer = query[..2].to_vec();
                    answer.extend([
                        0x81,
                        if exists { 0x80 } else { 0x83 },
                        0,
                        1,
                        0,
                        u8::from(exists && is_a),
                        0,
                        0,
                        0,
                        0,
                    ]);
                    answer.extend(&query[12..end + 4]);
                    if exists && is_a {
                        answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4]);
                        answer.extend(at.octets());
                    }
                    let _sent = socket.send_to(&answer, from).await;
                }
            });
            Self { address, asked }
        }

        fn config(&self) -> ResolverConfig {
            let (mut config, _) = name_servers(b"search corp.example\nnameserver 127.0.0.1\n");
            let mut server = NameServerConfig::udp(self.address.ip());
            for connection in &mut server.connections {
                connection.port = self.address.port();
            }
            config.name_servers = vec![server];
            config
        }

        fn asked(&mut self) -> Vec<String> {
            std::iter::from_fn(|| self.asked.try_recv().ok()).collect()
        }
    }

    #[tokio::test]
    async fn names_are_found_in_hosts_and_then_at_the_name_server_and_never_below_a_search_domain() {
        let mut server = NameServer::start("api.example.org", Ipv4Addr::new(203, 0, 113, 7)).await;
        let hosts = b"# own names\n10.0.0.1 box box.home\n";
        let options = || {
            let mut options = ResolverOpts::default();
            options.attempts = 1;
            options
        };
        let found = look_up("api.example.org", server.config(), options(), hosts).await.expect("found");
        assert_eq!(found, [IpAddr::from([203, 0, 113, 7])]);
        let asked = server.asked();
        assert!(!asked.is_empty() && asked.iter().all(|name| name == "api.example.org"), "{asked:?}");
        let found = look_up("box.home", server.config(), options(), hosts).await.expect("found");
        assert_eq!((found, server.asked()), (vec![IpAddr::from([10, 0, 0, 1])], Vec::new()));
        let missing = look_up("no.example.org", server.config(), options(), hosts).await;
        assert!(missing.is_err());
        assert!(
            server.asked().iter().all(|name| name == "no.example.org"),
            "no search domain is put behind it"
        );
    }

    #[tokio::test]
    async fn name_servers_are_asked_one_after_the_other_in_their_order() {
        let mut first = NameServer::start("api.example.org", Ipv4Addr::new(203, 0, 113, 7)).await;
        let mut second = NameServer::start("only.example.org", Ipv4Addr::new(203, 0, 113, 8)).await;
        let both = |one: &NameServer, two: &NameServer| {
            let mut config = one.config();
            config.name_servers.extend(two.config().name_servers);
            config
        };
        for name in ["api.example.org", "only.example.org"] {
            let found = look_up(name, both(&first, &second), ResolverOpts::default(), b"").await;
            assert_eq!(found.is_ok(), name == "api.example.org", "what the first says, counts: {found:?}");
        }
        assert!(!first.asked().is_empty());
        assert_eq!(second.asked(), Vec::<String>::new(), "it is told nothing that the first has answered");
        // A server that says nothing is given up, early enough for the next one.
        let silent = UdpSocket::bind("127.0.0.1:0").await.expect("binds");
        let mut config = second.config();
        let mut mute = NameServerConfig::udp(Ipv4Addr::LOCALHOST.into());
        for connection in &mut mute.connections {
            connection.port = silent.local_addr().expect("bound").port();
        }
        config.name_servers.insert(0, mute);
        let mut options = ResolverOpts::default();
        options.timeout = Duration::from_millis(100);
        let began = std::time::Instant::now();
        let found = look_up("only.example.org", config, options, b"").await.expect("found");
        assert_eq!(found, [IpAddr::from([203, 0, 113, 8])]);
        assert!(began.elapsed() < LOOKUP_LIMIT, "{:?}", began.elapsed());
    }

    #[tokio::test]
    async fn a_byte_that_is_no_text_in_the_list_of_names_ends_nothing() {
        let server = NameServer::start("api.example.org", Ipv4Addr::new(203, 0, 113, 7)).await;
        let hosts = b"10.0.0.1 box\n# caf\xe9\n10.0.0.2 \xff\xfe odd.home\n10.0.0.3 later.home\n";
        for (name, address) in [
            ("box", [10, 0, 0, 1]),
            ("odd.home", [10, 0, 0, 2]),
            ("later.home", [10, 0, 0, 3]),
            ("api.example.org", [203, 0, 113, 7]),
        ] {
            let found = look_up(name, server.config(), ResolverOpts::default(), hosts).await;
            assert_eq!(found.expect(name), [IpAddr::from(address)]);
        }
    }

    #[tokio::test]
    async fn addresses_and_the_name_of_this_machine_need_no_name_server() {
        let found = SystemResolver.resolve_name("::1", 1).await.expect("found");
        assert_eq!(found, [IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1])]);
        let found = SystemResolver.resolve_name("localhost", 1).await.expect("found");
        assert!(found.iter().all(IpAddr::is_loopback) && found[0].is_ipv4(), "{found:?}");
    }

    #[test]
    fn without_a_name_server_this_machine_is_asked() {
        for text in [&b""[..], b"\xff\xfe nonsense\n", b"search example.org\n"] {
            let (config, _) = name_servers(text);
            let servers: Vec<IpAddr> = config.name_servers.iter().map(|server| server.ip).collect();
            assert_eq!(servers, [IpAddr::V4(Ipv4Addr::LOCALHOST)]);
        }
        let (config, options) = name_servers(b"nameserver 192.0.2.1\noptions timeout:3\n");
        assert_eq!(config.name_servers.first().map(|server| server.ip), Some(IpAddr::from([192, 0, 2, 1])));
        assert_eq!(options.timeout.as_secs(), 3);
    }
}
