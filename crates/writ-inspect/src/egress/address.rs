//! Classes of addresses, by the IANA registries of special-purpose addresses.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

/// The class of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AddressClass {
    /// A host of the internet.
    Public,
    /// This machine.
    Loopback,
    /// A private network of IPv4.
    Private,
    /// A private network of IPv6.
    UniqueLocal,
    /// Carrier-grade NAT.
    Shared,
    /// The same link only.
    LinkLocal,
    /// A cloud's service of metadata and credentials.
    Metadata,
    /// A multicast address, which reaches many hosts.
    Multicast,
    /// The unspecified address (`0.0.0.0`, `::`), which names no host but reaches this machine on some systems.
    Unspecified,
    /// The broadcast address, which reaches every host of the link.
    Broadcast,
    /// Addresses that are reserved for benchmarks of network devices.
    Benchmark,
    /// Addresses that are reserved for examples in documentation.
    Documentation,
    /// A tunnel that embeds an IPv4 address: 6to4 or Teredo.
    Tunnelled,
    /// Anything else that is not the internet.
    Reserved,
}

impl AddressClass {
    /// The name used in records and on screens.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Public => "public",
            Self::Loopback => "loopback",
            Self::Private => "private",
            Self::UniqueLocal => "unique_local",
            Self::Shared => "shared",
            Self::LinkLocal => "link_local",
            Self::Metadata => "metadata",
            Self::Multicast => "multicast",
            Self::Unspecified => "unspecified",
            Self::Broadcast => "broadcast",
            Self::Benchmark => "benchmark",
            Self::Documentation => "documentation",
            Self::Tunnelled => "tunnelled",
            Self::Reserved => "reserved",
        }
    }

    /// Returns true for the places of an owner's own servers: this machine and private networks.
    pub const fn is_own_network(self) -> bool {
        match self {
            Self::Loopback | Self::Private | Self::UniqueLocal | Self::Shared => true,
            Self::Public
            | Self::LinkLocal
            | Self::Metadata
            | Self::Multicast
            | Self::Unspecified
            | Self::Broadcast
            | Self::Benchmark
            | Self::Documentation
            | Self::Tunnelled
            | Self::Reserved => false,
        }
    }

    /// Returns true if the address names a single host, so that a connection to it can have a meaning.
    pub const fn is_one_host(self) -> bool {
        match self {
            Self::Multicast | Self::Unspecified | Self::Broadcast => false,
            Self::Public
            | Self::Loopback
            | Self::Private
            | Self::UniqueLocal
            | Self::Shared
            | Self::LinkLocal
            | Self::Metadata
            | Self::Benchmark
            | Self::Documentation
            | Self::Tunnelled
            | Self::Reserved => true,
        }
    }
}

/// Addresses of cloud metadata with credentials: AWS, its containers, Azure's host, Alibaba, Oracle.
const METADATA_V4: [Ipv4Addr; 5] = [
    Ipv4Addr::new(169, 254, 169, 254),
    Ipv4Addr::new(169, 254, 170, 2),
    Ipv4Addr::new(168, 63, 129, 16),
    Ipv4Addr::new(100, 100, 100, 200),
    Ipv4Addr::new(192, 0, 0, 192),
];
/// The metadata service of AWS over IPv6.
const METADATA_V6: [Ipv6Addr; 2] =
    [Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254), Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23)];

/// Ranges of IPv4: first address, length of the prefix, meaning. The first that holds an address decides.
const RANGES_V4: [(Ipv4Addr, u32, AddressClass); 16] = [
    (Ipv4Addr::new(0, 0, 0, 0), 32, AddressClass::Unspecified),
    (Ipv4Addr::new(0, 0, 0, 0), 8, AddressClass::Reserved),
    (Ipv4Addr::new(10, 0, 0, 0), 8, AddressClass::Private),
    (Ipv4Addr::new(100, 64, 0, 0), 10, AddressClass::Shared),
    (Ipv4Addr::new(127, 0, 0, 0), 8, AddressClass::Loopback),
    (Ipv4Addr::new(169, 254, 0, 0), 16, AddressClass::LinkLocal),
    (Ipv4Addr::new(172, 16, 0, 0), 12, AddressClass::Private),
    (Ipv4Addr::new(192, 0, 2, 0), 24, AddressClass::Documentation),
    (Ipv4Addr::new(192, 0, 0, 0), 24, AddressClass::Reserved),
    (Ipv4Addr::new(192, 88, 99, 0), 24, AddressClass::Tunnelled),
    (Ipv4Addr::new(192, 168, 0, 0), 16, AddressClass::Private),
    (Ipv4Addr::new(198, 18, 0, 0), 15, AddressClass::Benchmark),
    (Ipv4Addr::new(198, 51, 100, 0), 24, AddressClass::Documentation),
    (Ipv4Addr::new(203, 0, 113, 0), 24, AddressClass::Documentation),
    (Ipv4Addr::new(224, 0, 0, 0), 4, AddressClass::Multicast),
    (Ipv4Addr::new(255, 255, 255, 255), 32, AddressClass::Broadcast),
];

/// Ranges of IPv6. An address in none of them is public only within 2000::/3.
const RANGES_V6: [(Ipv6Addr, u32, AddressClass); 11] = [
    (Ipv6Addr::UNSPECIFIED, 128, AddressClass::Unspecified),
    (Ipv6Addr::LOCALHOST, 128, AddressClass::Loopback),
    (Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7, AddressClass::UniqueLocal),
    (Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10, AddressClass::LinkLocal),
    (Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8, AddressClass::Multicast),
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 32, AddressClass::Tunnelled),
    (Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 0), 48, AddressClass::Benchmark),
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23, AddressClass::Reserved),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32, AddressClass::Documentation),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20, AddressClass::Documentation),
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16, AddressClass::Tunnelled),
];
/// The prefix of global unicast addresses (RFC 4291, section 2.4, as IANA has assigned them).
const GLOBAL_V6: (Ipv6Addr, u32) = (Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);
/// The prefix of translated IPv4 addresses (RFC 6052).
const NAT64: (Ipv6Addr, u32) = (Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0), 96);

/// Classifies an address. An IPv4 address inside an IPv6 one (mapped, NAT64) is judged as itself.
pub fn classify_address(address: IpAddr) -> AddressClass {
    match address {
        IpAddr::V4(address) => classify_v4(address),
        // `::ffff:169.254.169.254` reaches the IPv4 address: judged as IPv6 it would be an unknown range.
        IpAddr::V6(address) => match embedded_ipv4(address) {
            Some(inner) => classify_v4(inner),
            None => classify_v6(address),
        },
    }
}

/// The address that packets really go to: a mapped one is an IPv4 address.
pub fn canonical_address(address: IpAddr) -> IpAddr {
    address.to_canonical()
}

/// The IPv4 address that a translator or the system would take out of this one.
fn embedded_ipv4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let [.., a, b, c, d] = address.octets();
    let inner = Ipv4Addr::new(a, b, c, d);
    // A NAT64 gateway sends `64:ff9b::a9fe:a9fe` to 169.254.169.254, so that address is judged.
    let translated = has_prefix(address.to_bits(), NAT64.0.to_bits(), NAT64.1, 128);
    address.to_ipv4_mapped().or(translated.then_some(inner))
}

fn classify_v4(address: Ipv4Addr) -> AddressClass {
    // Before the ranges: two of these addresses lie in ranges that a home may open.
    if METADATA_V4.contains(&address) {
        return AddressClass::Metadata;
    }
    // Before the ranges, since 255.255.255.255 is also in the reserved block.
    if address == Ipv4Addr::BROADCAST {
        return AddressClass::Broadcast;
    }
    let bits = u128::from(address.to_bits());
    let found = RANGES_V4
        .iter()
        .find(|(first, prefix, _)| has_prefix(bits, u128::from(first.to_bits()), *prefix, 32))
        .map(|(_, _, class)| *class);
    match found {
        Some(class) => class,
        // 240.0.0.0/4
        None if address.octets()[0] >= 240 => AddressClass::Reserved,
        None => AddressClass::Public,
    }
}

fn classify_v6(address: Ipv6Addr) -> AddressClass {
    if METADATA_V6.contains(&address) {
        return AddressClass::Metadata;
    }
    let bits = address.to_bits();
    let found = RANGES_V6
        .iter()
        .find(|(first, prefix, _)| has_prefix(bits, first.to_bits(), *prefix, 128))
        .map(|(_, _, class)| *class);
    match found {
        Some(class) => class,
        // Unassigned space is no host of the internet: a network may route it anywhere.
        None if has_prefix(bits, GLOBAL_V6.0.to_bits(), GLOBAL_V6.1, 128) => AddressClass::Public,
        None => AddressClass::Reserved,
    }
}

/// Returns true if an address of `width` bits begins with a prefix.
const fn has_prefix(address: u128, first: u128, prefix: u32, width: u32) -> bool {
    // Both widths are shifted in 128 bits, so that one function serves IPv4 and IPv6.
    let shift = width - prefix;
    address >> shift == first >> shift
}
