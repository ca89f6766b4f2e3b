//! The reach of an action, by the lists of hosts in force.

use writ_types::action::{Action, Exec, Fetch, Search};

use crate::egress::host::{HostPattern, Scheme, Target};
use crate::egress::{EgressScope, Judgement, Rule, WEB_PORTS, judge_connection, means};
use crate::scope::{Dimension, attributes_of};
use crate::show;

/// The reach of an action: the worst over the hosts that it names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reach {
    /// It names no host.
    #[default]
    None,
    /// Hosts that the owner has listed or approved, permanently or for this session.
    Granted,
    /// Package registries, to read from.
    Known,
    /// Hosts that no list names, or that are to be asked about each time.
    Unknown,
    /// Hosts, ports or addresses that are refused without a question, and what is no host.
    Blocked,
}

impl Reach {
    /// The name used in rules.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Granted => "granted",
            Self::Known => "known",
            Self::Unknown => "unknown",
            Self::Blocked => "blocked",
        }
    }
}

/// Judges the reach of an action under `scope`. Only names are judged here; addresses are judged at the
/// connection.
pub fn reach_of(action: &Action, scope: &EgressScope) -> Reach {
    // A registry is known for what it gives: what is sent to it is sent to strangers.
    if let Action::Fetch(fetch) = action {
        let reach = of_url(&fetch.url, scope);
        return if reach == Reach::Known && !is_read(fetch) { Reach::Unknown } else { reach };
    }
    if let Action::Browse(browse) = action {
        return of_url(&browse.url, scope);
    }
    if let Action::Subscribe(subscribe) = action {
        return subscribe.url().map_or(Reach::None, |url| of_url(url, scope));
    }
    if let Action::Connect(connect) = action {
        return of_name(&format!("{}:{}", connect.host, connect.port), scope);
    }
    if let Action::Search(search) = action {
        return of_provider(search, scope);
    }
    // The host of a server of tools comes from the owner's configuration, so its key is the only limit.
    if matches!(action, Action::CallTool(_)) {
        return Reach::None;
    }
    // Any other action reaches the hosts by which its key is limited. The one that may do the most harm decides.
    let hosts = attributes_of(action).into_iter().filter(|(dimension, _)| *dimension == Dimension::Host);
    hosts.map(|(_, host)| of_name(&host, scope)).max().unwrap_or_default()
}

/// Returns true if an action reads from a URL, now or turn by turn, or searches, and sends nothing else
/// there.
pub fn only_reads(action: &Action) -> bool {
    if let Action::Fetch(fetch) = action {
        return is_read(fetch);
    }
    let subscribes = matches!(action, Action::Subscribe(subscribe) if subscribe.url().is_some());
    subscribes || matches!(action, Action::Search(_))
}

/// Returns true if a fetch sends nothing but its URL.
fn is_read(fetch: &Fetch) -> bool {
    matches!(fetch.method.as_str(), "GET" | "HEAD") && fetch.body.is_none()
}

/// Returns true if the owner wants a question about a host and port for each piece of work, even where a list
/// opens it.
pub fn asks_each_time(scope: &EgressScope, target: &Target) -> bool {
    scope.always_ask.iter().any(|pattern| means(pattern, target))
}

/// Returns the one unlisted host, with its port, that an action would reach and that the owner could trust
/// from then on. `None` where the owner wants a question each time, and for a registry, which is open to read
/// from.
pub fn trustable_host(action: &Action, scope: &EgressScope) -> Option<HostPattern> {
    // `Connect` always has a port; a URL without one has the port of its scheme.
    let target = if let Action::Connect(connect) = action {
        Target::from_authority(Scheme::Https, &format!("{}:{}", connect.host, connect.port), None)
    } else if let Action::Fetch(fetch) = action {
        Target::from_url(&fetch.url)
    } else if let Action::Subscribe(subscribe) = action {
        Target::from_url(subscribe.url()?)
    } else {
        return None;
    };
    let target = target.ok()?;
    // A host that some list opens or blocks already gains nothing from trust.
    let is_asked = matches!(judge_connection(scope, &target, None), Judgement::Ask { .. });
    (is_asked && !asks_each_time(scope, &target))
        .then(|| HostPattern::exact_host(target.host.clone(), Some(target.port)))
}

/// Describes the consequence of a yes that makes a host trusted, in words that hide nothing.
pub fn describe_trust(host: &str) -> String {
    format!(
        "It is done, and {} is as open as a host of your list in every conversation, until you take that back: programs reach \
         it and send to it without a question.",
        show::quote_argument(host),
    )
}

/// Returns true if a command would reach a host for which the owner wants a question each time.
pub fn is_asked_each_time(exec: &Exec, scope: &EgressScope) -> bool {
    let target = |text: &str, port| Target::from_authority(Scheme::Https, text, Some(port)).ok();
    // A host without a port can be reached on each port of the web, so a question for one of them counts. A
    // text that is no host counts, too: it fails closed.
    let each_time = |text: &String| {
        WEB_PORTS
            .into_iter()
            .any(|port| target(text, port).is_none_or(|target| asks_each_time(scope, &target)))
    };
    exec.hosts.iter().any(each_time)
}

/// Returns true if a command names a host where it could act in the owner's name, with a secret that is bound
/// to it.
pub fn acts_as_owner(exec: &Exec, scope: &EgressScope) -> bool {
    let is_bound = |text: &String, port| {
        let target = Target::from_authority(Scheme::Https, text, Some(port));
        target.is_ok_and(|target| scope.bound.iter().any(|pattern| means(pattern, &target)))
    };
    let any_port = |text: &String| {
        // A binding may name a port of its own.
        // Ports of bindings are tried, too, since a binding on 8443 would be missed with the web's ports
        // alone.
        let ports = scope.bound.iter().filter_map(HostPattern::port).chain(WEB_PORTS);
        ports.into_iter().any(|port| is_bound(text, port))
    };
    exec.hosts.iter().any(any_port)
}

/// A host, or a host with its port. Without one, all of the web's are meant, as in a list: the worst of them counts.
fn of_name(text: &str, scope: &EgressScope) -> Reach {
    let on = |port| reach_of_target(Target::from_authority(Scheme::Https, text, Some(port)).ok(), scope);
    WEB_PORTS.into_iter().map(on).max().unwrap_or(Reach::Blocked)
}

/// A search goes to the host that the owner's configuration names, wherever it lies, unless the owner wants to be asked.
fn of_provider(search: &Search, scope: &EgressScope) -> Reach {
    match Target::from_authority(Scheme::Https, &search.host, None) {
        // The owner's configuration names the provider, so no list has to; but a block of theirs counts more.
        Ok(target) if scope.blocked.iter().any(|pattern| means(pattern, &target)) => Reach::Blocked,
        Ok(target) if asks_each_time(scope, &target) => Reach::Unknown,
        Ok(_) => Reach::Granted,
        Err(_) => Reach::Blocked,
    }
}

fn of_url(url: &str, scope: &EgressScope) -> Reach {
    reach_of_target(Target::from_url(url).ok(), scope)
}

fn reach_of_target(target: Option<Target>, scope: &EgressScope) -> Reach {
    // A text that is not a valid host cannot be judged, so it is refused.
    let Some(target) = target else { return Reach::Blocked };
    match judge_connection(scope, &target, None) {
        Judgement::Allow { rule: Rule::Granted | Rule::Allowed | Rule::Trusted } => Reach::Granted,
        Judgement::Allow { rule: Rule::Registry } => Reach::Known,
        // No other rule allows; if one did, it would be asked about.
        Judgement::Allow { rule: _ } | Judgement::Ask { .. } => Reach::Unknown,
        Judgement::Deny { .. } => Reach::Blocked,
    }
}

#[cfg(test)]
mod tests {
    use writ_types::action::{Connect, Exec};

    use super::*;
    use crate::egress::Registry;
    use crate::egress::host::HostPattern;
    use crate::fixture::{exec, fetch};

    fn scope() -> EgressScope {
        let list = |texts: &[&str]| -> Vec<HostPattern> {
            texts.iter().map(|text| text.parse().expect("a pattern")).collect()
        };
        EgressScope {
            allowed: list(&["docs.rs", "listed.example", "half.example:443", "mirror.test:8080"]),
            granted: list(&["approved.example:443"]),
            blocked: list(&["evil.example", "listed.example:80"]),
            always_ask: list(&["docs.rs:80"]),
            ..EgressScope::default()
        }
    }

    fn hosts(names: &[&str]) -> Reach {
        let hosts = names.iter().map(|name| (*name).to_owned()).collect();
        reach_of(&Action::Exec(Exec { hosts, ..exec() }), &scope())
    }

    #[test]
    fn the_worst_host_of_a_program_counts() {
        assert_eq!(hosts(&[]), Reach::None);
        assert_eq!(hosts(&["docs.rs:443", "approved.example:443", "mirror.test:8080"]), Reach::Granted);
        assert_eq!(hosts(&["docs.rs:443", "pypi.org"]), Reach::Known);
        assert_eq!(hosts(&["pypi.org", "strange.example"]), Reach::Unknown);
        assert_eq!(hosts(&["mirror.test"]), Reach::Unknown, "it is listed with another port");
        assert_eq!(hosts(&["docs.rs:80"]), Reach::Unknown, "it is asked about each time");
        for odd in
            ["evil.example", "127.0.0.1", "[::1]:80", "docs.rs:22", "docs.rs/x", "u@docs.rs", "", "0x7f.1"]
        {
            assert_eq!(hosts(&["docs.rs", odd, "strange.example"]), Reach::Blocked, "{odd:?}");
        }
    }

    /// What is granted for a name without a port is both of the web's ports, so both are judged.
    #[test]
    fn a_name_without_a_port_is_judged_on_each_port_that_it_would_open() {
        assert_eq!(hosts(&["docs.rs"]), Reach::Unknown, "its port 80 is asked about each time");
        assert_eq!(hosts(&["half.example"]), Reach::Unknown, "it is listed with one port");
        assert_eq!(hosts(&["half.example:443"]), Reach::Granted);
        assert_eq!(hosts(&["listed.example"]), Reach::Blocked, "one of its ports is");
        assert_eq!(hosts(&["listed.example:443"]), Reach::Granted);
    }

    /// The provider's host is the owner's word, wherever it lies; so is the list of what is blocked.
    #[test]
    fn a_search_goes_where_its_provider_is_unless_that_is_blocked_or_asked_about() {
        let reach = |host: &str| {
            let search = Search { host: host.into(), ..crate::fixture::search() };
            reach_of(&Action::Search(search), &scope())
        };
        assert_eq!([reach("api.example:443"), reach("127.0.0.1:9000")], [Reach::Granted; 2]);
        assert_eq!(reach("docs.rs:80"), Reach::Unknown);
        assert_eq!(
            [reach("evil.example:443"), reach("listed.example:80"), reach("no host")],
            [Reach::Blocked; 3]
        );
    }

    /// Rows: WIN-044
    #[test]
    fn a_host_can_be_trusted_that_a_person_is_asked_about_unless_they_want_to_be_each_time() {
        let of_connect = |host: &str, port| {
            let connect = Action::Connect(Connect { host: host.to_owned(), port });
            trustable_host(&connect, &scope()).map(|host| host.to_string())
        };
        let of_fetch = |method: &str, url: &str| {
            let fetch = Action::Fetch(Fetch { method: method.into(), ..fetch(url) });
            trustable_host(&fetch, &scope()).map(|host| host.to_string())
        };
        assert_eq!(of_connect("Strange.Example", 443).as_deref(), Some("strange.example:443"));
        assert_eq!(of_fetch("POST", "http://strange.example/x?y=1").as_deref(), Some("strange.example:80"));
        assert_eq!(of_fetch("GET", "https://strange.example/").as_deref(), Some("strange.example:443"));
        let each_time =
            EgressScope { always_ask: vec!["strange.example".parse().expect("a pattern")], ..scope() };
        let connect = Action::Connect(Connect { host: "strange.example".into(), port: 443 });
        assert_eq!(trustable_host(&connect, &each_time), None, "the owner wants to be asked each time");
        for open_or_closed in [
            of_connect("approved.example", 443),
            of_connect("evil.example", 443),
            of_connect("127.0.0.1", 443),
            of_connect("strange.example", 22),
            of_connect("docs.rs", 80),
            of_fetch("POST", &format!("https://{}/legacy/", Registry::Pypi.hosts()[0])),
            of_fetch("GET", "no URL"),
            trustable_host(&Action::Exec(Exec { hosts: vec!["strange.example".into()], ..exec() }), &scope())
                .map(|host| host.to_string()),
        ] {
            assert_eq!(open_or_closed, None);
        }
    }

    #[test]
    fn what_is_asked_about_each_time_is_so_for_its_port() {
        let mut scope = scope();
        let asked = |scope: &EgressScope, text: &str| {
            asks_each_time(scope, &Target::from_authority(Scheme::Https, text, None).expect("a target"))
        };
        assert!(asked(&scope, "docs.rs:80") && !asked(&scope, "docs.rs:443"));
        scope.always_ask.push("*.bank.example".parse().expect("a pattern"));
        assert!(asked(&scope, "my.bank.example:8443") && !asked(&scope, "bank.example:443"));
    }

    #[test]
    fn a_fetch_reaches_as_far_as_its_url_and_its_method() {
        let reach = |method: &str, url: &str| {
            reach_of(&Action::Fetch(Fetch { method: method.into(), ..fetch(url) }), &scope())
        };
        assert_eq!(reach("GET", "https://docs.rs/x?y"), Reach::Granted);
        assert_eq!(reach("POST", "https://docs.rs/x"), Reach::Granted);
        let registry = format!("https://{}/simple/", Registry::Pypi.hosts()[0]);
        assert_eq!(reach("GET", &registry), Reach::Known);
        assert_eq!(reach("POST", &registry), Reach::Unknown);
        assert_eq!(reach("GET", "https://strange.example/"), Reach::Unknown);
        for url in
            ["https://evil.example/", "http://169.254.169.254/", "https://u:p@docs.rs/", "file:///etc/passwd"]
        {
            assert_eq!(reach("GET", url), Reach::Blocked, "{url}");
        }
    }

    #[test]
    fn a_connection_is_judged_with_its_port() {
        let reach =
            |host: &str, port| reach_of(&Action::Connect(Connect { host: host.into(), port }), &scope());
        assert_eq!(reach("mirror.test", 8080), Reach::Granted);
        assert_eq!(reach("strange.example", 443), Reach::Unknown);
        assert_eq!(reach("strange.example", 22), Reach::Blocked);
    }

    #[test]
    fn what_reads_a_url_or_searches_only_reads() {
        let subscribe = |target: &str| {
            let target = target.to_owned();
            Action::Subscribe(writ_types::action::Subscribe { target, lines: None, turns: 1, stop: false })
        };
        assert!(
            only_reads(&Action::Search(crate::fixture::search()))
                && only_reads(&subscribe("https://a.example/"))
        );
        assert!(!only_reads(&subscribe("notes.md")) && !only_reads(&Action::Exec(exec())));
        let said = describe_trust("docs.example:443");
        assert!(
            said.contains("docs.example:443 is as open as a host of your list in every conversation"),
            "{said}"
        );
    }
}
