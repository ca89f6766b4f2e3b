//! Tables of hostile hosts and addresses, and what holds for all of them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;

use super::address::{AddressClass, classify_address};
use super::host::{Host, HostPattern, InvalidHost, InvalidTarget, MAX_URL_LEN, Scheme, Target};
use super::*;

fn target(text: &str) -> Target {
    Target::from_authority(Scheme::Https, text, Some(443)).expect(text)
}

fn patterns(texts: &[&str]) -> Vec<HostPattern> {
    texts.iter().map(|text| text.parse().expect(text)).collect()
}

fn address(text: &str) -> IpAddr {
    text.parse().expect(text)
}

/// The rule of a refusal, or nothing.
fn refusal(scope: &EgressScope, target: &Target, address: Option<IpAddr>) -> Option<Rule> {
    match judge_connection(scope, target, address) {
        Judgement::Deny { rule, .. } => Some(rule),
        Judgement::Allow { .. } | Judgement::Ask { .. } => None,
    }
}

/// Threat 16.
#[test]
fn hosts_have_one_form_or_none() {
    let long_label = format!("{}.example", "a".repeat(64));
    let long_name = format!("{}example", "a.".repeat(124));
    let endless = "a".repeat(100_000);
    let (mut good, mut refused) = (0, 0);
    for (text, form) in [
        ("docs.rs", "docs.rs"),
        ("DOCS.rs", "docs.rs"),
        ("docs.rs.", "docs.rs"),
        ("a_b.example", "a_b.example"),
        ("r3---sn-4g5e6.example", "r3---sn-4g5e6.example"),
        ("localhost", "localhost"),
        ("127.0.0.1", "127.0.0.1"),
        ("127.0.0.1.", "127.0.0.1"),
        ("[::1]", "[::1]"),
        ("[0:0::0001]", "[::1]"),
        ("[::ffff:10.0.0.1]", "[::ffff:10.0.0.1]"),
        ("1.example", "1.example"),
        ("0x7f.example", "0x7f.example"),
        ("bücher.example", "xn--bcher-kva.example"),
        ("BÜCHER.example", "xn--bcher-kva.example"),
        ("xn--bcher-kva.example", "xn--bcher-kva.example"),
        ("пример.example", "xn--e1afmkfd.example"),
        ("例え.example", "xn--r8jz45g.example"),
    ] {
        assert_eq!(text.parse::<Host>().map(|host| host.to_string()), Ok(form.to_owned()), "{text:?}");
        good += 1;
    }
    use InvalidHost::{Bracket, Character, Empty, Idn, Numeric, TooLong};
    for (text, why) in [
        ("", Empty),
        (".", Empty),
        ("..", Empty),
        ("a..b", Empty),
        ("docs.rs..", Empty),
        (".docs.rs", Empty),
        ("evil.com\0.allowed.com", Character),
        ("evil.com%00.allowed.com", Character),
        ("evil.com%2eallowed.com", Character),
        ("user@docs.rs", Character),
        ("docs.rs:443", Character),
        ("docs.rs/", Character),
        ("docs.rs\\evil", Character),
        ("docs.rs?x", Character),
        ("docs.rs#x", Character),
        (" docs.rs", Character),
        ("docs.rs\r\nHost: x", Character),
        ("docs.rs\t", Character),
        ("docs\u{85}.rs", Character),
        ("-a.example", Character),
        ("a-.example", Character),
        ("127.1", Numeric),
        ("127.0.1", Numeric),
        ("2130706433", Numeric),
        ("0x7f000001", Numeric),
        ("0X7F.1", Numeric),
        ("0x7f.0.0.1", Numeric),
        ("0177.0.0.1", Numeric),
        ("127.0.0.01", Numeric),
        ("1.2.3.4.5", Numeric),
        ("256.0.0.1", Numeric),
        ("a.127", Numeric),
        ("a.0x", Numeric),
        ("１２７.0.0.1", Idn),
        ("[127.0.0.1]", Bracket),
        ("[docs.rs]", Bracket),
        ("[::1", Bracket),
        ("[fe80::1%eth0]", Bracket),
        ("::1", Bracket),
        ("::ffff:10.0.0.1", Bracket),
        ("docs.rs]", Character),
        // A Cyrillic letter among Latin ones, in both forms.
        ("pаypal.com", Idn),
        ("xn--pypal-4ve.com", Idn),
        // Full stops, wide letters, soft hyphens and joiners that would be mapped away.
        ("evil。com", Idn),
        ("ｄocs.rs", Idn),
        ("do\u{ad}cs.rs", Idn),
        ("do\u{200d}cs.rs", Idn),
        ("docs\u{2215}evil.rs", Idn),
        ("docs.rs\u{202e}", Idn),
        ("xn--a.example", Idn),
        ("xn--.example", Character),
        (&long_label, TooLong),
        (&long_name, TooLong),
        (&endless, TooLong),
    ] {
        assert_eq!(text.parse::<Host>(), Err(why), "{:?}", text.chars().take(40).collect::<String>());
        refused += 1;
    }
    println!("THREAT 16 attempts={refused} refused={refused} entries=0 entry=- twins={good}");
}

#[test]
fn targets_are_read_from_authorities_and_urls() {
    assert_eq!(target("docs.rs").to_string(), "https://docs.rs:443");
    assert_eq!(target("[::1]:8080").to_string(), "https://[::1]:8080");
    assert_eq!(target("[::]:80").to_string(), "https://[::]:80");
    assert_eq!(target("[::1]:8080").host.to_resolvable(), "::1", "as a resolver wants it");
    assert_eq!(target("10.0.0.1").host.to_resolvable(), "10.0.0.1");
    assert_eq!(target("Docs.RS").host.to_resolvable(), "docs.rs");
    let long = format!("https://docs.rs/{}", "a".repeat(MAX_URL_LEN));
    for (text, error) in [
        ("docs.rs:", InvalidTarget::Port),
        ("docs.rs:0", InvalidTarget::Port),
        ("docs.rs:070", InvalidTarget::Port),
        ("docs.rs:+80", InvalidTarget::Port),
        ("docs.rs:65536", InvalidTarget::Port),
        ("docs.rs:80:90", InvalidTarget::Port),
        ("docs.rs:443@evil.example:80", InvalidTarget::UserInfo),
        ("user:pass@docs.rs", InvalidTarget::UserInfo),
        (":443", InvalidTarget::Host(InvalidHost::Empty)),
        ("::1:443", InvalidTarget::Port),
    ] {
        assert_eq!(Target::from_authority(Scheme::Https, text, Some(443)), Err(error), "{text}");
    }
    assert_eq!(Target::from_authority(Scheme::Https, "docs.rs", None), Err(InvalidTarget::Port));
    let url = |text: &str| Target::from_url(text).map(|target| target.to_string());
    assert_eq!(url("http://Docs.RS/a?b#c"), Ok("http://docs.rs:80".into()));
    assert_eq!(url("https://docs.rs:8443"), Ok("https://docs.rs:8443".into()));
    assert_eq!(url("https://docs.rs?@evil.example/"), Ok("https://docs.rs:443".into()));
    for bad in [
        "docs.rs",
        "//docs.rs",
        "ftp://docs.rs",
        "HTTPS://docs.rs",
        "file:///etc/passwd",
        "https:docs.rs",
        "https:///docs.rs",
        "https://docs.rs\\@evil.example/",
        "https://docs.rs@evil.example/",
        "https://evil.example\0.docs.rs/",
        "https://docs.rs/\r\nHost: evil.example",
        " https://docs.rs",
        "https://docs.rs%2eevil.example/",
        "https://127.1/",
        "https://docs.rs/a b",
        &long,
    ] {
        assert!(Target::from_url(bad).is_err(), "{bad:?}");
    }
    let most = long.get(..8_192).expect("ASCII");
    assert!(Target::from_url(most).is_ok(), "of exactly the bound");
}

/// Bounds of texts, names and labels, to the byte.
#[test]
fn hosts_are_bounded_to_the_byte() {
    let parse = |text: &str| text.parse::<Host>().map(|_| ());
    assert_eq!(parse(&"!".repeat(1024)), Err(InvalidHost::Character), "as long as is looked at");
    assert_eq!(parse(&"!".repeat(1025)), Err(InvalidHost::TooLong));
    let label = |bytes: usize| parse(&format!("{}.example", "a".repeat(bytes)));
    assert_eq!((label(63), label(64)), (Ok(()), Err(InvalidHost::TooLong)));
    let name = |last: &str| parse(&format!("{}{last}", "a.".repeat(125)));
    assert_eq!((name("abc"), name("abcd")), (Ok(()), Err(InvalidHost::TooLong)), "253 bytes");
}

/// Records keep these names: whoever reads an old ledger must find them.
#[test]
fn names_in_records_are_those_of_the_configuration() {
    let json = |value: serde_json::Value| value.as_str().expect("a name").to_owned();
    for registry in Registry::ALL {
        assert_eq!(registry.as_str(), json(serde_json::to_value(registry).expect("JSON")));
    }
    for (rule, name) in [
        (Rule::Allowed, "allowed"),
        (Rule::Trusted, "trusted"),
        (Rule::AlwaysAsk, "always_ask"),
        (Rule::Address(AddressClass::Metadata), "metadata"),
    ] {
        assert_eq!(rule.as_str(), name);
    }
    for class in
        [AddressClass::Loopback, AddressClass::UniqueLocal, AddressClass::LinkLocal, AddressClass::Metadata]
    {
        assert_eq!(class.as_str(), json(serde_json::to_value(class).expect("JSON")));
    }
    let several = [AddressClass::Multicast, AddressClass::Unspecified, AddressClass::Broadcast];
    assert!(several.iter().all(|class| !class.is_one_host()));
    assert!(AddressClass::Loopback.is_one_host() && AddressClass::Public.is_one_host());
}

#[test]
fn a_tunnel_carries_what_is_no_tls_only_where_it_is_listed() {
    let scope =
        EgressScope { opaque: patterns(&["git.example:22", "old.example"]), ..EgressScope::default() };
    for (text, expected) in [
        ("git.example:22", true),
        ("git.example:443", false),
        ("old.example", true),
        ("old.example:22", false),
        ("docs.rs", false),
    ] {
        assert_eq!(scope.is_opaque(&target(text)), expected, "{text}");
    }
}

/// Threat 14.
///
/// Rows: WIN-216 (in part: addresses)
#[test]
fn every_address_that_is_not_the_internet_has_a_class() {
    use AddressClass::*;
    for (text, class) in [
        ("0.0.0.0", Unspecified),
        ("0.1.2.3", Reserved),
        ("10.0.0.1", Private),
        ("10.255.255.255", Private),
        ("11.0.0.0", Public),
        ("100.63.255.255", Public),
        ("100.64.0.0", Shared),
        ("100.127.255.255", Shared),
        ("100.128.0.0", Public),
        ("100.100.100.200", Metadata),
        ("127.0.0.1", Loopback),
        ("127.255.255.254", Loopback),
        ("169.254.1.1", LinkLocal),
        ("169.254.169.254", Metadata),
        ("169.254.170.2", Metadata),
        ("168.63.129.16", Metadata),
        ("172.15.255.255", Public),
        ("172.16.0.1", Private),
        ("172.31.255.255", Private),
        ("172.32.0.0", Public),
        ("192.0.0.8", Reserved),
        ("192.0.2.1", Documentation),
        ("192.88.99.1", Tunnelled),
        ("192.168.1.1", Private),
        ("198.18.0.1", Benchmark),
        ("198.19.255.255", Benchmark),
        ("198.20.0.0", Public),
        ("198.51.100.7", Documentation),
        ("203.0.113.9", Documentation),
        ("223.255.255.255", Public),
        ("224.0.0.1", Multicast),
        ("239.255.255.255", Multicast),
        ("240.0.0.1", Reserved),
        ("255.255.255.255", Broadcast),
        ("8.8.8.8", Public),
        ("::", Unspecified),
        ("::1", Loopback),
        ("::2", Reserved),
        ("::127.0.0.1", Reserved),
        ("::ffff:10.0.0.1", Private),
        ("::ffff:127.0.0.1", Loopback),
        ("::ffff:169.254.169.254", Metadata),
        ("::ffff:8.8.8.8", Public),
        ("::ffff:0:10.0.0.1", Reserved),
        ("64:ff9b::10.0.0.1", Private),
        ("64:ff9b::a9fe:a9fe", Metadata),
        ("64:ff9b::8.8.8.8", Public),
        ("64:ff9b:1::1", Reserved),
        ("100::1", Reserved),
        ("2001::1", Tunnelled),
        ("2001:0:7f00:1::", Tunnelled),
        ("2001:2::1", Benchmark),
        ("2001:20::1", Reserved),
        ("2001:db8::1", Documentation),
        ("2001:4860:4860::8888", Public),
        ("2002:7f00:1::", Tunnelled),
        ("2606:4700::1111", Public),
        ("3fff:1::", Documentation),
        ("4000::1", Reserved),
        ("5f00::1", Reserved),
        ("fc00::1", UniqueLocal),
        ("fd12:3456::1", UniqueLocal),
        ("fd00:ec2::254", Metadata),
        ("fe80::1", LinkLocal),
        ("febf::1", LinkLocal),
        ("fec0::1", Reserved),
        ("ff02::1", Multicast),
    ] {
        assert_eq!(classify_address(address(text)), class, "{text}");
    }
}

/// Rows: WIN-169 WIN-171
#[test]
fn what_is_listed_passes_what_is_unknown_asks_and_the_rest_is_refused() {
    let scope = EgressScope {
        allowed: patterns(&["docs.rs", "*.example.org", "git.example.net:9418", "93.184.216.34"]),
        trusted: patterns(&["trusted.example"]),
        granted: patterns(&["granted.example", "both.example"]),
        blocked: patterns(&["*.evil.example", "evil.example", "bad.example.org:443"]),
        always_ask: patterns(&["both.example", "*.bank.example.org"]),
        ..EgressScope::default()
    };
    for (text, rule) in [
        ("docs.rs", Rule::Allowed),
        ("docs.rs:80", Rule::Allowed),
        ("a.example.org", Rule::Allowed),
        ("a.b.example.org", Rule::Allowed),
        ("git.example.net:9418", Rule::Allowed),
        ("93.184.216.34", Rule::Allowed),
        ("trusted.example", Rule::Trusted),
        ("granted.example", Rule::Granted),
        ("both.example", Rule::Granted),
        ("pypi.org", Rule::Registry),
        ("bad.example.org:80", Rule::Allowed),
    ] {
        assert_eq!(judge_connection(&scope, &target(text), None), Judgement::Allow { rule }, "{text}");
    }
    for text in ["example.org", "unknown.example", "notexample.org", "xdocs.rs", "docs.rs.evil", "github.com"]
    {
        let asked = target(text);
        let ask = Judgement::Ask { host: asked.host.clone(), port: 443 };
        assert_eq!(judge_connection(&scope, &asked, None), ask, "{text}");
    }
    let ask = judge_connection(&scope, &target("a.bank.example.org"), None);
    assert!(matches!(ask, Judgement::Ask { .. }), "an allowed host is asked about all the same: {ask:?}");
    for (text, rule) in [
        ("docs.rs:22", Rule::Port),
        ("unknown.example:22", Rule::Port),
        ("pypi.org:8080", Rule::Port),
        ("git.example.net:9419", Rule::Port),
        ("evil.example", Rule::Blocked),
        ("a.evil.example:22", Rule::Blocked),
        ("bad.example.org", Rule::Blocked),
        ("1.1.1.1", Rule::Literal),
        ("[2606:4700::1111]", Rule::Literal),
        ("127.0.0.1", Rule::Literal),
    ] {
        assert_eq!(refusal(&scope, &target(text), None), Some(rule), "{text}");
    }
    // A port is listed with its host, and opens no other.
    let git = judge_connection(&scope, &target("git.example.net"), None);
    assert!(matches!(git, Judgement::Ask { .. }), "{git:?}");
}

/// Rows: WIN-045
#[test]
fn a_blocked_host_is_refused_whatever_else_is_said() {
    let host = patterns(&["pypi.org"]);
    let scope = EgressScope {
        allowed: host.clone(),
        granted: host.clone(),
        trusted: host.clone(),
        blocked: host,
        ..EgressScope::default()
    };
    assert_eq!(refusal(&scope, &target("pypi.org"), None), Some(Rule::Blocked));
    let off = EgressScope { registries: BTreeSet::new(), ..EgressScope::default() };
    assert!(matches!(judge_connection(&off, &target("pypi.org"), None), Judgement::Ask { .. }));
}

/// Rows: WIN-170 (in part: they are open with no allowlist; the owner may name fewer, or block one)
#[test]
fn registries_are_open_with_no_allowlist_and_github_is_not() {
    let scope = EgressScope::default();
    for name in [
        "pypi.org",
        "files.pythonhosted.org",
        "registry.npmjs.org",
        "crates.io",
        "archive.ubuntu.com",
        "security.ubuntu.com",
    ] {
        let allowed = Judgement::Allow { rule: Rule::Registry };
        assert_eq!(judge_connection(&scope, &target(name), None), allowed, "{name}");
    }
    assert!(matches!(judge_connection(&scope, &target("github.com"), None), Judgement::Ask { .. }));
    let on = EgressScope { registries: Registry::ALL.into(), ..EgressScope::default() };
    assert!(matches!(judge_connection(&on, &target("github.com"), None), Judgement::Allow { .. }));
    for registry in Registry::ALL {
        for name in registry.hosts() {
            assert_eq!(name.parse::<Host>().map(|host| host.to_string()), Ok((*name).to_owned()));
        }
    }
}

/// Threats 14 and 15.
///
/// Rows: WIN-216 (in part: what passes)
#[test]
fn pins_and_providers_are_the_only_ways_into_ones_own_network() {
    let scope = EgressScope {
        allowed: patterns(&[
            "docs.rs",
            "pages.example",
            "llm.example:11434",
            "localhost:11434",
            "cdn.example",
        ]),
        pins: vec![Pin { host: "pages.example".parse().unwrap(), address: address("10.1.2.3") }],
        providers: patterns(&["llm.example:11434", "localhost:11434"]),
        own_addresses: [address("11.22.33.44")].into(),
        ..EgressScope::default()
    };
    let judge = |host: &str, at: &str| refusal(&scope, &target(host), Some(address(at)));
    assert_eq!(judge("docs.rs", "8.8.8.8"), None);
    assert_eq!(judge("docs.rs", "::ffff:8.8.8.8"), None);
    for (at, class) in [
        ("127.0.0.1", AddressClass::Loopback),
        ("::ffff:10.0.0.1", AddressClass::Private),
        ("169.254.169.254", AddressClass::Metadata),
        ("fe80::1", AddressClass::LinkLocal),
        ("2002:a00:1::", AddressClass::Tunnelled),
        ("0.0.0.0", AddressClass::Unspecified),
    ] {
        assert_eq!(judge("docs.rs", at), Some(Rule::Address(class)), "{at}");
    }
    assert_eq!(judge("docs.rs", "11.22.33.44"), Some(Rule::OwnAddress));
    assert_eq!(judge("docs.rs", "::ffff:11.22.33.44"), Some(Rule::OwnAddress));
    // A pin is one address of one host.
    assert_eq!(judge("pages.example", "10.1.2.3"), None);
    assert_eq!(judge("pages.example", "::ffff:10.1.2.3"), None);
    assert_eq!(judge("pages.example", "10.1.2.4"), Some(Rule::Pin));
    assert_eq!(judge("pages.example", "8.8.8.8"), Some(Rule::Pin));
    assert_eq!(judge("cdn.example", "10.1.2.3"), Some(Rule::Address(AddressClass::Private)));
    // A provider may be in a network of one's own, on its own port, and is never a cloud's metadata.
    assert_eq!(judge("localhost:11434", "127.0.0.1"), None);
    assert_eq!(judge("llm.example:11434", "192.168.7.7"), None);
    assert_eq!(judge("llm.example:11434", "169.254.169.254"), Some(Rule::Address(AddressClass::Metadata)));
    assert_eq!(judge("localhost", "127.0.0.1"), None, "it is asked about");
    // Neither opens anything by itself.
    let bare = EgressScope { allowed: Vec::new(), ..scope.clone() };
    let ask = judge_connection(&bare, &target("pages.example"), Some(address("10.1.2.3")));
    assert!(matches!(ask, Judgement::Ask { .. }), "{ask:?}");
    assert_eq!(refusal(&bare, &target("localhost:11434"), Some(address("127.0.0.1"))), Some(Rule::Port));
}

#[test]
fn patterns_and_scopes_are_written_as_they_are_read() {
    for text in ["docs.rs", "*.example.org", "docs.rs:8443", "*.example.org:8080", "[::1]:80", "10.0.0.1"] {
        assert_eq!(text.parse::<HostPattern>().map(|pattern| pattern.to_string()), Ok(text.to_owned()));
    }
    for bad in ["*", "*.", "a.*.b", "*docs.rs", "*.10.0.0.1", "*.[::1]", "docs.rs:", "http://docs.rs", ""] {
        assert!(bad.parse::<HostPattern>().is_err(), "{bad}");
    }
    let text = r#"{"allowed":["docs.rs"],"pins":[{"host":"Pages.Example","address":"10.0.0.1"}],"registries":["npm"]}"#;
    let scope: EgressScope = serde_json::from_str(text).unwrap();
    assert_eq!(scope.pinned(&"pages.example".parse().unwrap()), [address("10.0.0.1")]);
    assert_eq!(scope.registries, [Registry::Npm].into());
    assert!(serde_json::from_str::<EgressScope>(r#"{"allowed":["evil\u0000.com"]}"#).is_err());
    assert!(serde_json::from_str::<EgressScope>(r#"{"alowed":[]}"#).is_err());
    let again = serde_json::to_value(&scope).expect("JSON");
    assert_eq!(
        (&again["allowed"][0], &again["pins"][0]["host"]),
        (&"docs.rs".into(), &"pages.example".into())
    );
}

proptest! {
    /// A host that was read is written so that it is read again as the same, and holds nothing odd.
    #[test]
    fn hosts_are_stable(text in "[a-zA-Z0-9._\\-\\[\\]:%@üа\u{ad}\u{3002}\u{0}]{0,24}") {
        if let Ok(host) = text.parse::<Host>() {
            let shown = host.to_string();
            prop_assert_eq!(shown.parse::<Host>(), Ok(host.clone()));
            if let Some(name) = host.domain_name() {
                prop_assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._-".contains(&b)));
                let last = name.rsplit('.').next().unwrap_or_default();
                prop_assert!(!last.bytes().all(|b| b.is_ascii_digit()), "{} can be read as a number", name);
            }
        }
    }

    /// A text is a literal only in the one form that all readers share.
    #[test]
    fn numbers_are_addresses_in_one_form_only(a: u8, b: u8, c: u8, d: u8) {
        let plain = Ipv4Addr::new(a, b, c, d);
        prop_assert_eq!(plain.to_string().parse::<Host>().map(|host| host.literal_address()), Ok(Some(plain.into())));
        let bits = plain.to_bits();
        for odd in [
            format!("{bits}"),
            format!("{bits:#x}"),
            format!("0{bits:o}"),
            format!("{a}.{}", bits & 0xff_ffff),
            format!("{a}.{b}.{}", bits & 0xffff),
            format!("{a:#x}.{b}.{c}.{d}"),
            format!("0{a:03o}.{b}.{c}.{d}"),
        ] {
            prop_assert!(odd.parse::<Host>().is_err(), "{}", odd);
        }
    }

    /// However an IPv4 address is dressed, it is judged as itself, or refused.
    #[test]
    fn dressed_addresses_are_judged_as_themselves(bits: u32, tail: u64) {
        let v4 = Ipv4Addr::from_bits(bits);
        let class = classify_address(v4.into());
        let wide = u128::from(bits);
        let mapped = Ipv6Addr::from_bits(0xffff_u128 << 32 | wide);
        let translated = Ipv6Addr::from_bits(0x64_ff9b_u128 << 96 | wide);
        prop_assert_eq!(classify_address(mapped.into()), class);
        prop_assert_eq!(classify_address(translated.into()), class);
        let six_to_four = Ipv6Addr::from_bits(0x2002_u128 << 112 | wide << 80 | u128::from(tail));
        prop_assert_eq!(classify_address(six_to_four.into()), AddressClass::Tunnelled);
        let teredo = Ipv6Addr::from_bits(0x2001_0000_u128 << 96 | u128::from(tail) << 32 | wide);
        prop_assert_eq!(classify_address(teredo.into()), AddressClass::Tunnelled);
        prop_assert_ne!(classify_address(Ipv6Addr::from_bits(wide).into()), AddressClass::Public);
    }

    /// Whatever the address is, only the internet's is allowed for an ordinary host.
    #[test]
    fn an_ordinary_host_reaches_the_internet_only(bits: u128, short: u32) {
        let scope = EgressScope { allowed: patterns(&["docs.rs"]), ..EgressScope::default() };
        for at in [IpAddr::V6(Ipv6Addr::from_bits(bits)), IpAddr::V4(Ipv4Addr::from_bits(short))] {
            let allowed = refusal(&scope, &target("docs.rs"), Some(at)).is_none();
            prop_assert_eq!(allowed, classify_address(at) == AddressClass::Public);
        }
    }
}
