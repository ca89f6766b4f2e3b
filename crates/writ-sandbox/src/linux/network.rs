//! The way out of a sandbox: a listener that is bound inside, in a network that has nothing but its own loopback, and
//! held outside.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, SockaddrIn, bind, getsockname, listen, socket,
};
use tokio::sync::mpsc;

use super::mounts::TRUST_MORE;
use super::spec::{self, InitMessage, SetupFault, Stage};
use super::{tree, zygote};
use crate::agent::FirstProcess;
use crate::exec::{Listener, PROXY_PORT};

/// Connections that may wait to be accepted: a package manager opens dozens at once.
const BACKLOG: i32 = 128;
/// The step's name in reports.
const STAGE: &str = "network listener";

// === inside ===

/// Binds a listener and passes it out over the control socket. No process inside keeps it.
pub(crate) fn offer_listener(control: BorrowedFd<'_>, port: u16) -> Result<(), SetupFault> {
    let listener =
        socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).stage(STAGE)?;
    bind(listener.as_raw_fd(), &SockaddrIn::new(127, 0, 0, 1, port)).stage(STAGE)?;
    listen(&listener, Backlog::new(BACKLOG).stage(STAGE)?).stage(STAGE)?;
    let word = spec::encode_message(&InitMessage::Listener).stage(STAGE)?;
    zygote::send_descriptors(control, &word, &[listener.as_fd()]).stage(STAGE)
}

/// Returns the number of attempts to reach what is not there, as the kernel has counted them for this network:
/// connections that were refused, and packets without a receiver or a way.
pub(crate) fn unreached_count() -> u64 {
    unreached_count_in("self")
}

/// The same for the network of an agent, from outside. `None`: it has ended.
pub(crate) fn count_unreached(first: FirstProcess) -> Option<u64> {
    let count = unreached_count_in(&first.process.to_string());
    // Looked at afterwards: until here the number was not given to another process.
    (first_process(first.process)? == first).then_some(count)
}

/// Returns a process with its start.
pub(crate) fn first_process(process: i32) -> Option<FirstProcess> {
    let since = tree::start_of(u32::try_from(process).ok()?)?;
    Some(FirstProcess { process, since })
}

fn unreached_count_in(process: &str) -> u64 {
    let read = |name| std::fs::read_to_string(format!("/proc/{process}/net/{name}")).unwrap_or_default();
    let (old, new) = (read("snmp"), read("snmp6"));
    let new = new.lines().find_map(|line| line.strip_prefix("Ip6OutNoRoutes")?.trim().parse::<u64>().ok());
    let old = [("Tcp:", "AttemptFails"), ("Udp:", "NoPorts"), ("Ip:", "OutNoRoutes")]
        .map(|(group, name)| read_column(&old, group, name));
    old.into_iter().chain([new]).flatten().fold(0, u64::saturating_add)
}

/// Reads one number of `/proc/net/snmp`, where a line of names stands above a line of numbers.
fn read_column(text: &str, group: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter(|line| line.starts_with(group));
    let at = lines.next()?.split(' ').position(|word| word == name)?;
    lines.next()?.split(' ').nth(at)?.parse().ok()
}

// === outside ===

/// Gives a listener to the caller that asked for one. When it is not taken, or is none of the agreed ones, it is
/// dropped: the program has no network.
pub(crate) fn hand_over(socket: Option<OwnedFd>, ports: &[u16], to: Option<&mpsc::Sender<Listener>>) {
    let (Some(socket), Some(to)) = (socket, to) else { return };
    // The descriptor comes from inside: it must be the listener and nothing else.
    if let Some(port) = port_of(socket.as_raw_fd()).ok().flatten().filter(|port| ports.contains(port)) {
        let _ = to.try_send(Listener::new(socket, port));
    }
}

/// Returns the port of a listener on the loopback address.
fn port_of(socket: i32) -> io::Result<Option<u16>> {
    let address: SockaddrIn = getsockname(socket)?;
    Ok(address.ip().is_loopback().then(|| address.port()))
}

/// Returns the variables that name the trusted authorities: a file with all of them, and one with those that were laid
/// beside the system's.
pub(crate) fn trust_variables(all_of_them: &str) -> impl Iterator<Item = (String, String)> {
    let all = [
        "SSL_CERT_FILE",
        "CURL_CA_BUNDLE",
        "REQUESTS_CA_BUNDLE",
        "PIP_CERT",
        "GIT_SSL_CAINFO",
        "CARGO_HTTP_CAINFO",
        "AWS_CA_BUNDLE",
        "npm_config_cafile",
    ];
    let more = ["NODE_EXTRA_CA_CERTS", "DENO_CERT"];
    let all = all.into_iter().map(move |name| (name.to_owned(), all_of_them.to_owned()));
    all.chain(more.into_iter().map(|name| (name.to_owned(), TRUST_MORE.to_owned())))
}

/// Returns the variables that name the way out, in both cases, because programs differ in what they read.
pub(crate) fn proxy_variables() -> BTreeMap<String, String> {
    // One address for every sandbox: each has a network of its own.
    let proxy = format!("http://127.0.0.1:{PROXY_PORT}");
    let own = "localhost,127.0.0.1,::1";
    let mut env = BTreeMap::new();
    for name in [
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "ALL_PROXY",
        "http_proxy",
        "https_proxy",
        "all_proxy",
        "PIP_PROXY",
        "npm_config_proxy",
        "npm_config_https_proxy",
        "CARGO_HTTP_PROXY",
    ] {
        env.insert(name.to_owned(), proxy.clone());
    }
    for name in ["NO_PROXY", "no_proxy", "npm_config_noproxy"] {
        env.insert(name.to_owned(), own.to_owned());
    }
    let fixed = [
        // No person is there to type an answer, and the system's own packages are read-only anyway.
        ("PIP_NO_INPUT", "1"),
        ("PIP_DISABLE_PIP_VERSION_CHECK", "1"),
        ("PIP_BREAK_SYSTEM_PACKAGES", "1"),
        ("npm_config_update_notifier", "false"),
        ("npm_config_audit", "false"),
        ("npm_config_fund", "false"),
        ("GIT_TERMINAL_PROMPT", "0"),
        // The `git` program reads the variables above; cargo's own library does not read all of them.
        ("CARGO_NET_GIT_FETCH_WITH_CLI", "true"),
        ("CARGO_TERM_PROGRESS_WHEN", "never"),
    ];
    env.extend(fixed.map(|(name, value)| (name.to_owned(), value.to_owned())));
    env
}
