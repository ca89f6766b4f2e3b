//! Egress: a pure judgement of every connection that leaves.
//!
//! [`judge_connection`] is called twice: before a name is looked up, without an address, and again for each
//! address that was found. Only judged addresses are connected to.

use core::net::IpAddr;
use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

pub mod host;

pub mod address;

pub mod credential;

#[cfg(test)]
mod tests;

use address::{AddressClass, canonical_address, classify_address};
use host::{Host, HostPattern, Target};

/// The ports of hosts that are listed without one.
pub const WEB_PORTS: [u16; 2] = [80, 443];

/// The most characters of a host that a reason shows: a name is never longer than this.
const REASON_LEN: usize = host::MAX_NAME_LEN;

/// Hosts that package managers need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Registry {
    /// Python's packages.
    Pypi,
    /// JavaScript's packages.
    Npm,
    /// Rust's packages.
    Crates,
    /// Debian's and Ubuntu's packages.
    Apt,
    /// Repositories and releases on GitHub. Not among the [`DEFAULT`](Self::DEFAULT): anybody can send data there.
    Github,
}

impl Registry {
    /// Every registry.
    pub const ALL: [Self; 5] = [Self::Pypi, Self::Npm, Self::Crates, Self::Apt, Self::Github];
    /// Those that are open unless the owner says otherwise.
    pub const DEFAULT: [Self; 4] = [Self::Pypi, Self::Npm, Self::Crates, Self::Apt];

    /// The name used in settings and records.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pypi => "pypi",
            Self::Npm => "npm",
            Self::Crates => "crates",
            Self::Apt => "apt",
            Self::Github => "github",
        }
    }

    /// Its hosts, on the web's ports.
    pub const fn hosts(self) -> &'static [&'static str] {
        match self {
            Self::Pypi => &["pypi.org", "files.pythonhosted.org"],
            Self::Npm => &["registry.npmjs.org"],
            Self::Crates => &["crates.io", "index.crates.io", "static.crates.io"],
            Self::Apt => {
                &["archive.ubuntu.com", "security.ubuntu.com", "deb.debian.org", "security.debian.org"]
            }
            Self::Github => &[
                "github.com",
                "codeload.github.com",
                "raw.githubusercontent.com",
                "objects.githubusercontent.com",
                "release-assets.githubusercontent.com",
            ],
        }
    }
}

/// A host that is at one address and nowhere else: no name is looked up, and the SSRF filter lets that address pass.
/// It opens nothing: the host must be listed, too.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pin {
    /// The host.
    pub host: Host,
    /// Its address.
    pub address: IpAddr,
}

/// What one command, fetch or session may reach. Data only; the runtime puts it together and replaces it when an
/// approval changes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EgressScope {
    /// The owner's allowlist. A host without a port is open on 80 and 443; other ports only as listed.
    pub allowed: Vec<HostPattern>,
    /// Hosts that an approval opened for this work alone. Stronger than [`always_ask`](Self::always_ask).
    pub granted: Vec<HostPattern>,
    /// The trust ledger: hosts that the owner approved permanently.
    pub trusted: Vec<HostPattern>,
    /// Hosts that are refused without a question, also if another list has them.
    pub blocked: Vec<HostPattern>,
    /// Hosts that are asked about for each piece of work, even where allowed or trusted.
    pub always_ask: Vec<HostPattern>,
    /// Package registries that are open. Default: [`Registry::DEFAULT`].
    pub registries: BTreeSet<Registry>,
    /// Hosts with a fixed address: exempt from the SSRF filter for it.
    pub pins: Vec<Pin>,
    /// The owner's model providers: exempt from the SSRF filter for addresses of one's own network. They are not
    /// open to commands by that.
    pub providers: Vec<HostPattern>,
    /// Hosts to which a tunnel may carry what is not TLS.
    pub opaque: Vec<HostPattern>,
    /// Hosts where programs use secrets of the owner in requests that may change something.
    pub bound: Vec<HostPattern>,
    /// This machine's own addresses, also public ones: refused as loopback is.
    pub own_addresses: BTreeSet<IpAddr>,
}

impl Default for EgressScope {
    fn default() -> Self {
        Self {
            allowed: Vec::new(),
            granted: Vec::new(),
            trusted: Vec::new(),
            blocked: Vec::new(),
            always_ask: Vec::new(),
            registries: Registry::DEFAULT.into(),
            pins: Vec::new(),
            providers: Vec::new(),
            opaque: Vec::new(),
            bound: Vec::new(),
            own_addresses: BTreeSet::new(),
        }
    }
}

/// What decided about a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    /// The owner's allowlist.
    Allowed,
    /// An approval for this work.
    Granted,
    /// The trust ledger.
    Trusted,
    /// A package registry.
    Registry,
    /// The owner wants to be asked every time.
    AlwaysAsk,
    /// No list names the host.
    Unknown,
    /// The blocked list.
    Blocked,
    /// The port is neither the web's nor listed.
    Port,
    /// An address instead of a name, and it is not listed.
    Literal,
    /// The address is not the pinned one.
    Pin,
    /// The address is one of this machine's.
    OwnAddress,
    /// The address is not on the internet.
    Address(AddressClass),
}

impl Rule {
    /// The name used in records and on screens.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Granted => "granted",
            Self::Trusted => "trusted",
            Self::Registry => "registry",
            Self::AlwaysAsk => "always_ask",
            Self::Unknown => "unknown",
            Self::Blocked => "blocked",
            Self::Port => "port",
            Self::Literal => "literal",
            Self::Pin => "pin",
            Self::OwnAddress => "own_address",
            Self::Address(class) => class.as_str(),
        }
    }
}

/// What is to be done with a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// It may be made.
    Allow {
        /// What allows it.
        rule: Rule,
    },
    /// A person must be asked about the host.
    Ask {
        /// The host.
        host: Host,
        /// The port.
        port: u16,
    },
    /// It is refused without a question.
    Deny {
        /// Why, in words that may be shown to an agent.
        reason: String,
        /// What refuses it.
        rule: Rule,
    },
}

/// Judges a connection to a target, before its name is looked up (`address` is `None`) or to one of its addresses.
///
/// Blocked hosts, odd ports and unlisted addresses are refused; hosts that no list names are asked about; what is
/// listed may be reached at addresses of the internet, at its pinned address, or, as a provider of the owner's, in a
/// network of one's own.
pub fn judge_connection(scope: &EgressScope, target: &Target, address: Option<IpAddr>) -> Judgement {
    let host: String = target.host.to_string().chars().take(REASON_LEN).collect();
    let deny = |rule: Rule, reason: String| Judgement::Deny { reason, rule };
    if scope.blocked.iter().any(|pattern| means(pattern, target)) {
        return deny(Rule::Blocked, format!("{host} is blocked"));
    }
    let Some(rule) = scope.listed(target) else {
        if !WEB_PORTS.contains(&target.port) {
            return deny(Rule::Port, format!("port {} of {host} is not open", target.port));
        }
        if target.host.literal_address().is_some() {
            return deny(Rule::Literal, format!("{host} is an address: use the host's name"));
        }
        return Judgement::Ask { host: target.host.clone(), port: target.port };
    };
    if rule == Rule::AlwaysAsk {
        return Judgement::Ask { host: target.host.clone(), port: target.port };
    }
    match address.and_then(|address| scope.refuse_address(target, address)) {
        // The address itself is not named: it may be a secret of the owner's network.
        Some(refused) => {
            deny(refused, format!("the address of {host} may not be reached ({})", refused.as_str()))
        }
        None => Judgement::Allow { rule },
    }
}

impl EgressScope {
    /// Which list opens a target, if one does.
    fn listed(&self, target: &Target) -> Option<Rule> {
        let any = |list: &[HostPattern]| list.iter().any(|pattern| opens(pattern, target));
        if any(&self.granted) {
            return Some(Rule::Granted);
        }
        let rule = if any(&self.allowed) {
            Some(Rule::Allowed)
        } else if any(&self.trusted) {
            Some(Rule::Trusted)
        } else if self.is_registry(target) {
            Some(Rule::Registry)
        } else {
            None
        };
        let always_ask = self.always_ask.iter().any(|pattern| means(pattern, target));
        rule.map(|rule| if always_ask { Rule::AlwaysAsk } else { rule })
    }

    fn is_registry(&self, target: &Target) -> bool {
        let name = target.host.domain_name().unwrap_or_default();
        WEB_PORTS.contains(&target.port)
            && self.registries.iter().any(|registry| registry.hosts().contains(&name))
    }

    /// What refuses an address, if something does.
    fn refuse_address(&self, target: &Target, address: IpAddr) -> Option<Rule> {
        let class = classify_address(address);
        let address = canonical_address(address);
        if !class.is_one_host() {
            return Some(Rule::Address(class));
        }
        let mut pins = self.pins.iter().filter(|pin| pin.host == target.host).peekable();
        if pins.peek().is_some() {
            let pinned = pins.any(|pin| canonical_address(pin.address) == address);
            return (!pinned).then_some(Rule::Pin);
        }
        let provider = self.providers.iter().any(|pattern| opens(pattern, target));
        if provider && (class.is_own_network() || class == AddressClass::Public) {
            return None;
        }
        if self.own_addresses.iter().any(|own| canonical_address(*own) == address) {
            return Some(Rule::OwnAddress);
        }
        (class != AddressClass::Public).then_some(Rule::Address(class))
    }

    /// The addresses that a host is pinned to; empty: its name is looked up.
    pub fn pinned(&self, host: &Host) -> Vec<IpAddr> {
        self.pins.iter().filter(|pin| pin.host == *host).map(|pin| pin.address).collect()
    }

    /// Whether a tunnel to a target may carry what is not TLS.
    pub fn is_opaque(&self, target: &Target) -> bool {
        self.opaque.iter().any(|pattern| opens(pattern, target))
    }
}

/// Whether a pattern opens a target: without a port it means the web's.
fn opens(pattern: &HostPattern, target: &Target) -> bool {
    let port = pattern.port().map_or(WEB_PORTS.contains(&target.port), |port| port == target.port);
    port && pattern.covers_host(&target.host)
}

/// Whether a pattern means a target: without a port it means all.
pub fn means(pattern: &HostPattern, target: &Target) -> bool {
    pattern.port().is_none_or(|port| port == target.port) && pattern.covers_host(&target.host)
}
