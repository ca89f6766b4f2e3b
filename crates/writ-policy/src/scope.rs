//! Where an action happens, as attributes that a key's scopes must cover.
//!
//! A scope names a dimension and a value. An action is in scope if *every* one of its attributes is
//! covered by a scope of the same dimension; a dimension that the key does not name covers nothing.

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
    /// Somebody who is told something.
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

    /// Whether a scope's value covers an action's.
    pub fn covers(self, scope: &str, value: &str) -> bool {
        if scope == ANY {
            return true;
        }
        match self {
            Self::Path => {
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
pub fn resolve(root: &str, path: &str) -> String {
    let joined = if path.starts_with('/') { path.to_owned() } else { format!("{root}/{path}") };
    let mut names: Vec<&str> = Vec::new();
    for name in joined.split('/') {
        match name {
            "" | "." => {}
            ".." => {
                names.pop();
            }
            name => names.push(name),
        }
    }
    format!("/{}", names.join("/"))
}

/// The host of a URL, lower case, or the whole text where it has none (which no scope covers).
pub fn host_of(url: &str) -> String {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#', '\\']).next().unwrap_or(rest);
    if authority.contains('@') {
        return url.to_owned();
    }
    let host = match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|b| b.is_ascii_digit()) => host,
        Some(_) | None => authority,
    };
    host.to_ascii_lowercase()
}

/// What an action touches, in every dimension that limits it.
pub fn attributes(action: &Action) -> Vec<(Dimension, String)> {
    let named = |name: &str| vec![(Dimension::Name, name.to_owned())];
    match action {
        Action::Exec(exec) => {
            let profile = match exec.profile {
                ExecProfile::Task => "task",
                ExecProfile::Verification => "verification",
            };
            let hosts = exec.hosts.iter().map(|host| (Dimension::Host, host.clone()));
            [(Dimension::Profile, profile.to_owned())].into_iter().chain(hosts).collect()
        }
        Action::ReadFile(read) => vec![(Dimension::Path, resolve(WORK, &read.path))],
        Action::WriteFile(write) => {
            let place = match write.place {
                Place::Overlay => "overlay",
                Place::Project => "project",
            };
            let paths = write.changes.iter().map(|c| (Dimension::Path, resolve(&write.root, &c.path)));
            [(Dimension::Place, place.to_owned())].into_iter().chain(paths).collect()
        }
        Action::Fetch(fetch) => vec![(Dimension::Host, host_of(&fetch.url))],
        Action::Browse(browse) => vec![(Dimension::Host, host_of(&browse.url))],
        Action::Recall(_) | Action::Forget(_) => vec![(Dimension::Memory, "session".to_owned())],
        Action::Remember(remember) => {
            let bank = if remember.session.is_some() { "session" } else { "global" };
            vec![(Dimension::Memory, bank.to_owned())]
        }
        Action::Say(say) => vec![(Dimension::Recipient, say.to.clone())],
        Action::SendFile(send) => {
            vec![(Dimension::Recipient, send.to.clone()), (Dimension::Path, resolve(WORK, &send.path))]
        }
        Action::CallTool(call) => named(&format!("{}/{}", call.server, call.tool)),
        Action::CreateTool(create) => named(&create.name),
        Action::InstallSkill(install) => named(&install.name),
        Action::Docker(docker) => named(&docker.image),
        Action::Subscribe(subscribe) => named(&subscribe.target),
        Action::Message(message) => vec![(Dimension::Recipient, message.to.clone())],
        Action::Handoff(handoff) => vec![(Dimension::Recipient, handoff.to.clone())],
        Action::Spawn(spawn) => named(&spawn.agent),
        Action::Escalate(escalate) => vec![(Dimension::Recipient, escalate.to.clone())],
        Action::ModelCall(call) => vec![(Dimension::Provider, call.provider.clone())],
        Action::Vcs(vcs) => {
            vec![(Dimension::Path, resolve("/", &vcs.repository)), (Dimension::Name, vcs.target.clone())]
        }
        Action::ModifySelf(modify) => vec![(Dimension::Path, resolve("/agent", &modify.path))],
        Action::Operate(operate) => named(&operate.operation),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_resolved_without_climbing_out_of_the_root() {
        assert_eq!(resolve(WORK, "src/lib.rs"), "/work/src/lib.rs");
        assert_eq!(resolve(WORK, "./a//b/../c"), "/work/a/c");
        assert_eq!(resolve(WORK, "../../etc/passwd"), "/etc/passwd");
        assert_eq!(resolve(WORK, "/etc/passwd"), "/etc/passwd");
        assert_eq!(resolve(WORK, ""), "/work");
    }

    #[test]
    fn a_path_scope_covers_what_is_below_it_only() {
        assert!(Dimension::Path.covers("/work", "/work"));
        assert!(Dimension::Path.covers("/work", "/work/a"));
        assert!(!Dimension::Path.covers("/work", "/workshop"));
        assert!(!Dimension::Path.covers("/work", "/etc/passwd"));
        assert!(Dimension::Path.covers(ANY, "/etc/passwd"));
        assert!(!Dimension::Name.covers("a", "A"));
        assert!(Dimension::Host.covers("docs.rs", "DOCS.RS"));
    }

    #[test]
    fn hosts_are_taken_from_urls_and_userinfo_covers_nothing() {
        assert_eq!(host_of("https://Docs.RS:443/x?y"), "docs.rs");
        assert_eq!(host_of("https://docs.rs\\@evil.example/"), "docs.rs");
        assert_eq!(host_of("https://docs.rs@evil.example/"), "https://docs.rs@evil.example/");
    }

    #[test]
    fn every_dimension_has_a_name_of_its_own() {
        for dimension in Dimension::ALL {
            assert_eq!(Dimension::from_name(dimension.as_str()), Some(dimension));
        }
        assert_eq!(Dimension::from_name("everything"), None);
    }
}
