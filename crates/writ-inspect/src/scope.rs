//! Scopes: the attributes of an action that a key must cover.
//!
//! A scope names a dimension and a value. An action is in scope if *every* one of its attributes is covered
//! by a scope of the same dimension; a dimension that the key does not name covers nothing.

use writ_types::action::{Action, ExecProfile, Place};

/// The value that covers everything in its dimension.
pub const ANY: &str = "*";

/// The folder at which a session's work is mounted in its sandbox.
pub const WORK: &str = "/work";

/// A dimension in which an action can be limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Dimension {
    /// An absolute path: in the sandbox, or on the host for [`Place::Project`]. Covers what is below it.
    Path,
    /// `overlay` or `project`.
    Place,
    /// `task` or `verification`.
    Profile,
    /// A host name.
    Host,
    /// A model provider's name.
    Provider,
    /// `session` or `global`.
    Memory,
    /// A recipient of words or files.
    Recipient,
    /// A named thing: a tool, an image, a skill, an operation, an agent.
    Name,
}

impl Dimension {
    const ALL: [Self; 8] = [
        Self::Path,
        Self::Place,
        Self::Profile,
        Self::Host,
        Self::Provider,
        Self::Memory,
        Self::Recipient,
        Self::Name,
    ];

    /// The name used in keys and records.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Path => "path",
            Self::Place => "place",
            Self::Profile => "profile",
            Self::Host => "host",
            Self::Provider => "provider",
            Self::Memory => "memory",
            Self::Recipient => "recipient",
            Self::Name => "name",
        }
    }

    /// The dimension with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|dimension| dimension.as_str() == name)
    }

    /// Returns true if a scope's value covers an action's.
    pub fn covers_value(self, scope: &str, value: &str) -> bool {
        if scope == ANY {
            return true;
        }
        match self {
            Self::Path => {
                // The `/` after the scope decides: `/work/a` must not cover `/work/ab`.
                value == scope || value.strip_prefix(scope).is_some_and(|rest| rest.starts_with('/'))
            }
            Self::Host => scope.eq_ignore_ascii_case(value),
            Self::Place | Self::Profile | Self::Provider | Self::Memory | Self::Recipient | Self::Name => {
                scope == value
            }
        }
    }
}

/// Resolves a path against a folder without looking at the disk: `.` and `..` are worked out, an
/// absolute path stays where it points, and nothing climbs above `/`.
pub fn resolve_path(root: &str, path: &str) -> String {
    // `/work/../etc` and `/etc` must be the same to a scope, or a key for `/work` would cover both.
    let joined = if path.starts_with('/') { path.to_owned() } else { format!("{root}/{path}") };
    let mut names: Vec<&str> = Vec::new();
    for name in joined.split('/') {
        match name {
            "" | "." => {}
            ".." => {
                // At the root `..` stays there, as in a file system.
                names.pop();
            }
            name => names.push(name),
        }
    }
    format!("/{}", names.join("/"))
}

/// The host of a URL, lower case, or the whole text where it has none that every reader of URLs would agree
/// on (which no scope covers but [`ANY`]).
pub fn host_of(url: &str) -> String {
    let is_scheme = |text: &str| text.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b));
    // `https:evil.example/?://docs.rs/` has `://` in its query: what stands before must be a scheme.
    let Some((_, rest)) = url.split_once("://").filter(|(scheme, _)| is_scheme(scheme)) else {
        return url.to_owned();
    };
    // A `\` ends the authority in browsers and none in RFC 3986: it ends it here, and the host is judged
    // alone.
    let authority = rest.split(['/', '?', '#', '\\']).next().unwrap_or(rest);
    let host = match authority.rsplit_once(':') {
        // A port that is no number belongs to a host that no scope knows.
        Some((host, port)) if port.bytes().all(|b| b.is_ascii_digit()) => host,
        Some(_) | None => authority,
    };
    // `https://docs.rs@evil.example/` goes to evil.example: with user information the text counts as no host.
    if host.is_empty() || authority.contains('@') {
        return url.to_owned();
    }
    host.to_ascii_lowercase()
}

/// Lists the values that an action touches, in every dimension that limits it.
pub fn attributes_of(action: &Action) -> Vec<(Dimension, String)> {
    let named = |name: &str| vec![(Dimension::Name, name.to_owned())];
    match action {
        Action::Exec(exec) => {
            // An exec without hosts has no value in the host dimension, so only its profile is limited.
            let hosts = exec.hosts.iter().map(|host| (Dimension::Host, host.clone()));
            [(Dimension::Profile, profile_name(exec.profile).to_owned())].into_iter().chain(hosts).collect()
        }
        Action::ReadFile(read) => vec![(Dimension::Path, resolve_path(WORK, &read.path))],
        // Every changed path has to be covered, since a key is compared with each value of the list.
        Action::WriteFile(write) => {
            let place = match write.place {
                Place::Overlay => "overlay",
                Place::Project => "project",
            };
            let paths = write.changes.iter().map(|c| (Dimension::Path, resolve_path(&write.root, &c.path)));
            [(Dimension::Place, place.to_owned())].into_iter().chain(paths).collect()
        }
        // A fetch that saves a file needs a key for both: the host that is read and the path that is written.
        Action::Fetch(fetch) => {
            let saved = fetch.save_to.as_ref().map(|path| (Dimension::Path, resolve_path(WORK, path)));
            [(Dimension::Host, host_of(&fetch.url))].into_iter().chain(saved).collect()
        }
        Action::Browse(browse) => vec![(Dimension::Host, host_of(&browse.url))],
        Action::Recall(_) | Action::Forget(_) | Action::ReadResult(_) => {
            vec![(Dimension::Memory, "session".to_owned())]
        }
        Action::Remember(remember) => {
            let bank = if remember.session.is_some() { "session" } else { "global" };
            vec![(Dimension::Memory, bank.to_owned())]
        }
        Action::Say(say) => vec![(Dimension::Recipient, say.to.to_string())],
        Action::SendFile(send) => {
            let path = resolve_path(WORK, &send.path);
            vec![(Dimension::Recipient, send.to.to_string()), (Dimension::Path, path)]
        }
        Action::CallTool(call) => {
            // A remote server of tools is limited by its name and by its host; a local one has no host.
            let host = call.host.as_ref().map(|host| (Dimension::Host, host_of(&format!("https://{host}/"))));
            named(&format!("{}/{}", call.server, call.tool)).into_iter().chain(host).collect()
        }
        Action::CreateTool(create) => named(&create.name),
        Action::InstallSkill(install) => named(&install.name),
        Action::Docker(docker) => named(&docker.image),
        // Ending a subscription reaches nothing, so it is limited by its id alone.
        Action::Subscribe(subscribe) if subscribe.stop => named(&subscribe.target),
        Action::Subscribe(subscribe) => vec![match subscribe.url() {
            Some(url) => (Dimension::Host, host_of(url)),
            None => (Dimension::Path, resolve_path(WORK, &subscribe.target)),
        }],
        Action::Message(message) => vec![(Dimension::Recipient, message.to.clone())],
        Action::Handoff(handoff) => vec![(Dimension::Recipient, handoff.to.clone())],
        Action::Spawn(spawn) => named(&spawn.agent),
        Action::Escalate(escalate) => vec![(Dimension::Recipient, escalate.to.clone())],
        Action::ModelCall(call) => vec![(Dimension::Provider, call.provider.clone())],
        Action::Vcs(vcs) => {
            vec![(Dimension::Path, resolve_path("/", &vcs.repository)), (Dimension::Name, vcs.target.clone())]
        }
        Action::ModifySelf(modify) => vec![(Dimension::Path, resolve_path("/agent", &modify.path))],
        Action::Operate(operate) => named(&operate.operation),
        Action::Connect(connect) => vec![(Dimension::Host, connect.host.clone())],
        Action::Search(search) => vec![(Dimension::Host, host_of(&format!("https://{}/", search.host)))],
        // Each step of a plan is judged by itself.
        Action::Plan(_) => Vec::new(),
    }
}

/// The name of a profile, as scopes write it.
const fn profile_name(profile: ExecProfile) -> &'static str {
    match profile {
        ExecProfile::Task => "task",
        ExecProfile::Verification => "verification",
        ExecProfile::Server => "server",
        ExecProfile::Gate => "gate",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_resolved_without_climbing_out_of_the_root() {
        assert_eq!(resolve_path(WORK, "src/lib.rs"), "/work/src/lib.rs");
        assert_eq!(resolve_path(WORK, "./a//b/../c"), "/work/a/c");
        assert_eq!(resolve_path(WORK, "../../etc/passwd"), "/etc/passwd");
        assert_eq!(resolve_path(WORK, "/etc/passwd"), "/etc/passwd");
        assert_eq!(resolve_path(WORK, ""), "/work");
    }

    #[test]
    fn a_path_scope_covers_what_is_below_it_only() {
        assert!(Dimension::Path.covers_value("/work", "/work"));
        assert!(Dimension::Path.covers_value("/work", "/work/a"));
        assert!(!Dimension::Path.covers_value("/work", "/workshop"));
        assert!(!Dimension::Path.covers_value("/work", "/etc/passwd"));
        assert!(Dimension::Path.covers_value(ANY, "/etc/passwd"));
        assert!(!Dimension::Name.covers_value("a", "A"));
        assert!(Dimension::Host.covers_value("docs.rs", "DOCS.RS"));
    }

    #[test]
    fn hosts_are_taken_from_urls_and_userinfo_covers_nothing() {
        assert_eq!(host_of("https://Docs.RS:443/x?y"), "docs.rs");
        assert_eq!(host_of("https://docs.rs\\@evil.example/"), "docs.rs");
        assert_eq!(host_of("https://docs.rs@evil.example/"), "https://docs.rs@evil.example/");
        assert_eq!(host_of("http://[::1]:80/"), "[::1]");
        assert_eq!(host_of("http://[::1]/"), "[::1]");
    }

    /// Threat 16, as far as the door reads hosts: where readers of URLs differ, no scope covers it.
    #[test]
    fn urls_that_can_be_read_in_two_ways_are_in_no_scope() {
        let odd = [
            "https:evil.example/?://docs.rs/",
            "https:/evil.example/://docs.rs/",
            "https:\\\\evil.example\\://docs.rs",
            "https:///docs.rs/",
            "https://evil.example\0.docs.rs/",
            "https://docs.rs./",
            "https://docs.rs:443:80/",
            "https://docs.rs:443@evil.example/",
            "https://docs.rs%2eevil.example/",
            "https://docs.rs\u{2215}evil.example/",
            "ht\ntps://docs.rs/",
            " https://docs.rs/",
            "docs.rs/x",
            "//docs.rs/",
            "",
        ];
        for url in odd {
            assert!(!Dimension::Host.covers_value("docs.rs", &host_of(url)), "{url:?} is {}", host_of(url));
            assert!(!Dimension::Host.covers_value("", &host_of(url)) || url.is_empty(), "{url:?}");
        }
    }

    #[test]
    fn every_kind_touches_what_the_table_says() {
        for sample in crate::fixture::action_samples() {
            let touched = attributes_of(&sample.action);
            let touched: Vec<(Dimension, &str)> =
                touched.iter().map(|(d, value)| (*d, value.as_str())).collect();
            assert_eq!(touched, sample.touches, "{:?}", sample.action.kind());
        }
    }

    #[test]
    fn a_subscription_that_is_ended_touches_its_name_alone() {
        let stop = |stop: bool| {
            let target = "https://example.org/a".to_owned();
            let subscribe = writ_types::action::Subscribe { target, lines: None, turns: 1, stop };
            attributes_of(&Action::Subscribe(subscribe))
        };
        assert_eq!(stop(true), [(Dimension::Name, "https://example.org/a".to_owned())]);
        assert_eq!(stop(false), [(Dimension::Host, "example.org".to_owned())]);
    }

    #[test]
    fn every_dimension_has_a_name_of_its_own() {
        for dimension in Dimension::ALL {
            assert_eq!(Dimension::from_name(dimension.as_str()), Some(dimension));
        }
        assert_eq!(Dimension::from_name("everything"), None);
    }
}
