//! Every key that the configuration has: its kind, and what a project may do to it.
//!
//! The values themselves live in the `Config` of each crate; tests hold this table to them.

use std::net::IpAddr;
use std::path::Path;

use toml::Value;
use writ_egress::proxy::HEAD_MIN;
use writ_inspect::egress::host::{Host, HostPattern};
use writ_inspect::gate::{MAX_ATTEMPTS, MAX_SCRIPT_MS};
use writ_policy::door::MAX_SEARCH_RESULTS;
use writ_types::frame::MAX_FRAME_BYTES;

/// A key as its segments: `["budget", "max_tokens_per_day"]`.
pub(crate) type KeyPath = Vec<String>;

/// One key. `*` stands for a name of the owner's choice, or for the place in a list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key {
    /// Its segments, joined by dots.
    pub(crate) path: &'static str,
    /// The kind of its values.
    pub(crate) kind: Kind,
    /// The right of a project's file to change it.
    pub(crate) in_project: InProject,
}

/// The kind of a key's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `true` or `false`.
    Flag,
    /// A whole number between two bounds.
    Whole(u64, u64),
    /// A number from 0.0 to 1.0.
    Share,
    /// Any number.
    Number,
    /// A text that is not empty.
    Text,
    /// A text that may be empty.
    AnyText,
    /// A path; relative ones begin at the home.
    Folder,
    /// A list of absolute paths.
    Folders,
    /// A list of texts.
    Texts,
    /// One of a few words.
    OneOf(&'static [&'static str]),
    /// A list of some of a few words.
    SomeOf(&'static [&'static str]),
    /// A host, by name or address.
    Host,
    /// A list of hosts, each with a port or without; `*.` stands for everything below.
    Hosts,
    /// An address of the network.
    Address,
    /// An `http` or `https` address without user name and password.
    Url,
    /// A reference to a credential, never its value.
    Credential,
}

/// The right of a project's file to change a key. A project can only narrow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InProject {
    /// Nothing.
    Never,
    /// Set it: it changes what the agent sees, not what it may do.
    Any,
    /// Lower it.
    Lower,
    /// Add to the list.
    Add,
}

/// The largest number that TOML can write.
const MOST: u64 = i64::MAX as u64;
/// A number of at least one.
const COUNT: Kind = Kind::Whole(1, MOST);
/// A number of at least one that fits 32 bits.
const COUNT_32: Kind = Kind::Whole(1, u32::MAX as u64);
/// The most connections of one sandbox: each holds two descriptors and its buffers.
const MOST_CONNECTIONS: u64 = 4096;
/// The most records of connections that wait in memory.
const MOST_RECORDS: u64 = 65_536;
/// The largest head that is read into memory, in bytes.
const MOST_HEAD: u64 = 1024 * 1024;
/// The last minute of a day.
const LAST_MINUTE: u64 = 24 * 60 - 1;
/// The longest retention of payloads: a hundred years; 0 is for ever.
const MAX_RETENTION_DAYS: u64 = 36_500;
/// The longest that an approval may be good for: 30 days.
const MAX_APPROVAL_SECS: u64 = 30 * 24 * 60 * 60;

const fn owner(path: &'static str, kind: Kind) -> Key {
    Key { path, kind, in_project: InProject::Never }
}

const fn lower(path: &'static str, kind: Kind) -> Key {
    Key { path, kind, in_project: InProject::Lower }
}

const fn add(path: &'static str, kind: Kind) -> Key {
    Key { path, kind, in_project: InProject::Add }
}

/// Every key, in the order of `config.example.toml`.
pub(crate) const KEYS: &[Key] = &[
    owner("owner_id", Kind::Text),
    owner("agent", Kind::Text),
    owner("data_dir", Kind::Folder),
    owner("verify_dir", Kind::Folder),
    owner("customer_context_dir", Kind::Folder),
    owner("approval_ttl_secs", Kind::Whole(60, MAX_APPROVAL_SECS)),
    owner("continue_after_answer", Kind::Flag),
    owner("time_zone", Kind::Text),
    owner("gates_shipped", Kind::Flag),
    owner("tools", Kind::Texts),
    owner("strict", Kind::Flag),
    owner("execution", Kind::OneOf(&["free", "planned"])),
    owner("rehydration.max_chronicle_entries", COUNT_32),
    owner("models.default", Kind::Text),
    owner("models.fallback", Kind::Texts),
    owner("models.detect", Kind::Flag),
    owner("models.roles.proxy", Kind::Text),
    owner("models.roles.planner", Kind::Text),
    owner("models.roles.executor", Kind::Text),
    owner("models.roles.scorer", Kind::Text),
    owner("models.roles.observer", Kind::Text),
    owner("models.roles.oracle", Kind::Text),
    owner("models.roles.embedding", Kind::Text),
    owner("models.roles.quarantine", Kind::Text),
    owner("models.role_fallback.*", Kind::Texts),
    owner("models.request_timeout_ms", COUNT),
    owner("models.answer_timeout_ms", COUNT),
    owner("models.max_tries", COUNT_32),
    owner("models.backoff_base_ms", COUNT),
    owner(
        "providers.*.kind",
        Kind::OneOf(&["anthropic", "openai", "openai_responses", "openrouter", "gemini", "ollama"]),
    ),
    owner("providers.*.base_url", Kind::Url),
    owner("providers.*.api_key", Kind::Credential),
    owner("providers.*.clearance", Kind::OneOf(&["public", "personal", "secret"])),
    owner("budget.max_tokens_per_session", COUNT),
    owner("budget.max_tokens_per_day", COUNT),
    owner("budget.max_tool_calls_per_turn", COUNT_32),
    owner("budget.max_cost_per_call", COUNT),
    owner("budget.max_cost_per_turn", COUNT),
    owner("budget.max_cost_per_session", COUNT),
    owner("budget.max_cost_per_day", COUNT),
    owner("budget.day_starts_at_minute", Kind::Whole(0, LAST_MINUTE)),
    add("gates.*.name", Kind::Text),
    add("gates.*.on", Kind::OneOf(&["input", "output", "execution", "access"])),
    add("gates.*.provider", Kind::OneOf(&["predicate", "regex", "guard", "guardrails_ai", "script", "llm"])),
    add("gates.*.lane", Kind::OneOf(&["policy", "quality"])),
    add("gates.*.contains", Kind::Texts),
    add("gates.*.ignore_case", Kind::Flag),
    add("gates.*.pattern", Kind::Text),
    add("gates.*.min", Kind::Number),
    add("gates.*.max", Kind::Number),
    add("gates.*.below", Kind::Folders),
    add("gates.*.extensions", Kind::Texts),
    add("gates.*.max_bytes", Kind::Whole(0, MOST)),
    add("gates.*.field", Kind::Text),
    add("gates.*.tools", Kind::Texts),
    add("gates.*.checks", Kind::Texts),
    owner("gates.*.script", Kind::Text),
    owner("gates.*.timeout_ms", Kind::Whole(1, MAX_SCRIPT_MS)),
    owner("gates.*.prompt", Kind::Text),
    owner("gates.*.promote_to_policy", Kind::Flag),
    owner("gates.*.on_block", Kind::Text),
    add("gates.*.action", Kind::OneOf(&["block", "replace", "ask"])),
    add("gates.*.replacement", Kind::AnyText),
    add("gates.*.reason", Kind::AnyText),
    owner("hooks.*.name", Kind::Text),
    owner(
        "hooks.*.on",
        Kind::OneOf(&[
            "message_received",
            "before_tool_call",
            "after_tool_call",
            "response_generated",
            "session_created",
            "session_closed",
        ]),
    ),
    owner("hooks.*.run", Kind::Text),
    owner("hooks.*.project", Kind::Text),
    owner("hooks.*.digest", Kind::Text),
    owner("hooks.*.tools", Kind::Texts),
    owner("hooks.*.permissions", Kind::SomeOf(&["read", "write"])),
    owner("hooks.*.timeout_ms", Kind::Whole(1, MAX_SCRIPT_MS)),
    owner("hooks.*.critical", Kind::Flag),
    owner(
        "escalations.*.action",
        Kind::OneOf(&[
            "respond",
            "report",
            "escalate_human",
            "transfer_to_queue",
            "suppress_and_rephrase",
            "retry",
            "spawn_task",
        ]),
    ),
    owner("escalations.*.text", Kind::Text),
    owner("escalations.*.queue", Kind::Text),
    owner("escalations.*.attempts", Kind::Whole(1, MAX_ATTEMPTS as u64)),
    owner("access.public", Kind::Texts),
    owner("access.levels.*.rank", Kind::Whole(0, u32::MAX as u64)),
    owner("access.levels.*.requires", Kind::Texts),
    owner("access.levels.*.tools", Kind::Texts),
    owner("access.levels.*.expires_secs", COUNT_32),
    owner("sandbox.runner", Kind::OneOf(&writ_sandbox::config::RunnerKind::NAMES)),
    owner("sandbox.exe", Kind::Folder),
    owner("sandbox.host_home", Kind::Folder),
    owner("sandbox.read_only", Kind::Folders),
    owner("sandbox.forbid_user_namespaces", Kind::Flag),
    owner("sandbox.memory_max", COUNT),
    owner("sandbox.processes_max", COUNT),
    owner("sandbox.tmp_max", COUNT),
    owner("sandbox.open_files_max", COUNT),
    owner("sandbox.output_max", COUNT),
    owner("sandbox.output_kill", COUNT),
    owner("sandbox.time_max_ms", COUNT),
    owner("sandbox.overlay_max", COUNT),
    owner("sandbox.ready_max", Kind::Whole(0, writ_sandbox::config::READY_MOST as u64)),
    owner("context.total_tokens", COUNT),
    owner("context.system_max", COUNT),
    owner("context.eviction_threshold_pct", Kind::Share),
    Key { path: "context.default_profile", kind: Kind::Text, in_project: InProject::Any },
    owner("context.profiles.*.chronicle_pct", Kind::Share),
    owner("context.profiles.*.memory_pct", Kind::Share),
    owner("context.profiles.*.workspace_pct", Kind::Share),
    lower("limits.max_model_calls_per_turn", COUNT_32),
    lower("limits.max_calls_per_reply", COUNT_32),
    lower("limits.max_argument_bytes", COUNT),
    lower("limits.max_result_chars", COUNT_32),
    lower("limits.max_absorbed_messages", COUNT_32),
    lower("limits.max_identical_calls", COUNT_32),
    lower("limits.max_output_tokens", COUNT),
    lower("limits.max_turn_secs", COUNT_32),
    owner("egress.allowed", Kind::Hosts),
    owner("egress.blocked", Kind::Hosts),
    owner("egress.always_ask", Kind::Hosts),
    owner("egress.registries", Kind::SomeOf(&["pypi", "npm", "crates", "apt", "github"])),
    owner("egress.opaque", Kind::Hosts),
    owner("egress.pin.*.host", Kind::Host),
    owner("egress.pin.*.address", Kind::Address),
    owner("egress.credentials.*.name", Kind::Text),
    owner("egress.credentials.*.secret", Kind::Credential),
    owner("egress.credentials.*.host", Kind::Text),
    owner("egress.credentials.*.methods", Kind::Texts),
    owner("egress.credentials.*.paths", Kind::Texts),
    owner("egress.credentials.*.env", Kind::Text),
    owner("egress.credentials.*.header", Kind::Text),
    owner("egress.credentials.*.format", Kind::Text),
    owner("egress.credentials.*.user", Kind::Text),
    owner("egress.credentials.*.plain", Kind::Flag),
    owner("egress.limits.connect_timeout_ms", COUNT_32),
    owner("egress.limits.max_sent_bytes", COUNT),
    owner("egress.limits.max_received_bytes", COUNT),
    owner("egress.limits.fetch_timeout_ms", COUNT_32),
    owner("egress.limits.fetches_per_minute", COUNT_32),
    owner("egress.limits.requests_per_minute", COUNT_32),
    owner("egress.proxy.connections", Kind::Whole(1, MOST_CONNECTIONS)),
    owner("egress.proxy.records", Kind::Whole(1, MOST_RECORDS)),
    owner("egress.proxy.head_bytes", Kind::Whole(HEAD_MIN as u64, MOST_HEAD)),
    owner("egress.proxy.head_ms", COUNT_32),
    owner("egress.proxy.connect_ms", COUNT_32),
    owner("egress.proxy.idle_ms", COUNT_32),
    owner("egress.proxy.total_ms", COUNT_32),
    owner("egress.proxy.sent_max", COUNT),
    owner("egress.proxy.received_max", COUNT),
    owner("egress.proxy.host_per_minute", COUNT_32),
    owner("egress.proxy.tool_per_minute", COUNT_32),
    owner("search.provider", Kind::OneOf(&["brave", "tavily"])),
    owner("search.api_key", Kind::Credential),
    owner("search.base_url", Kind::Url),
    owner("search.max_results", Kind::Whole(1, MAX_SEARCH_RESULTS)),
    owner("timeouts.default_ms", COUNT),
    owner("timeouts.max_ms", COUNT),
    owner("timeouts.tools.*", COUNT),
    owner("quarantine.*", Kind::OneOf(&["never", "external", "always"])),
    owner("secrets.backend", Kind::OneOf(&["keyring", "age", "plain"])),
    owner("secrets.connect_timeout_ms", COUNT),
    owner("secrets.operation_timeout_ms", COUNT),
    owner("server.enabled", Kind::Flag),
    owner("server.host", Kind::Text),
    owner("server.port", Kind::Whole(0, u16::MAX as u64)),
    owner("server.auth_token", Kind::Credential),
    owner("server.allowed_hosts", Kind::Texts),
    owner("server.allowed_origins", Kind::Texts),
    owner("server.base_path", Kind::Text),
    owner("server.trusted_proxies", Kind::Texts),
    owner("server.requests_per_sec", COUNT_32),
    owner("server.burst", COUNT_32),
    owner("server.max_message_bytes", Kind::Whole(1024, MAX_FRAME_BYTES as u64)),
    owner("server.idle_timeout_secs", Kind::Whole(1, 24 * 60 * 60)),
    owner("server.graceful_shutdown_secs", Kind::Whole(1, 60 * 60)),
    owner("log.level", Kind::OneOf(&["error", "warn", "info", "debug", "trace"])),
    owner("log.max_bytes", Kind::Whole(4096, MOST)),
    owner("log.keep", Kind::Whole(1, 100)),
    owner("ledger.retention_days", Kind::Whole(0, MAX_RETENTION_DAYS)),
    owner("ledger.heads_file", Kind::Folder),
    owner("ledger.heads_repository", Kind::Folder),
    owner("telemetry.otlp_endpoint", Kind::Url),
    owner("telemetry.otlp_token", Kind::Credential),
    owner("network.proxy", Kind::Text),
    owner("network.proxy_user", Kind::Text),
    owner("network.proxy_password", Kind::Credential),
    owner("network.no_proxy", Kind::Texts),
    owner("network.unchecked_names", Kind::Flag),
    owner("network.ca_file", Kind::Folders),
];

/// Sections that are lists: `[[gates]]`.
pub(crate) const LISTS: [&str; 4] = ["gates", "hooks", "egress.pin", "egress.credentials"];

/// The setting or table at a path.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    /// A key.
    Key(Key),
    /// A table of keys.
    Section,
    /// A list of tables.
    List,
    /// Nothing that is known.
    Nothing,
}

/// Returns the setting or table at a path.
pub(crate) fn place(path: &[String]) -> Place {
    if LISTS.contains(&dotted(path).as_str()) {
        return Place::List;
    }
    let mut found = Place::Nothing;
    for key in KEYS {
        let segments = segments(key);
        let fits = segments.len() >= path.len()
            && segments.iter().zip(path).all(|(pattern, segment)| *pattern == "*" || pattern == segment);
        if fits && segments.len() == path.len() {
            return Place::Key(*key);
        }
        if fits {
            found = Place::Section;
        }
    }
    found
}

/// The segments of a key's path.
pub(crate) fn segments(key: &Key) -> Vec<&'static str> {
    key.path.split('.').collect()
}

/// A path as it is written in the configuration: `gates.000.name` is the name of the first gate.
pub(crate) fn dotted(path: &[String]) -> String {
    path.join(".")
}

impl Kind {
    /// Checks that a value is of this kind; the error is the expected kind. The value is never repeated: it
    /// may be a secret in the wrong place.
    pub(crate) fn check(self, value: &Value) -> Result<(), String> {
        let fits = match self {
            Self::Flag => value.is_bool(),
            Self::Whole(least, most) => value
                .as_integer()
                .and_then(|number| u64::try_from(number).ok())
                .is_some_and(|number| (least..=most).contains(&number)),
            Self::Share => value
                .as_float()
                .or_else(|| match value.as_integer() {
                    Some(0) => Some(0.0),
                    Some(1) => Some(1.0),
                    Some(_) | None => None,
                })
                .is_some_and(|share| (0.0..=1.0).contains(&share)),
            Self::Number => value.is_integer() || value.as_float().is_some_and(f64::is_finite),
            Self::Text | Self::Folder => value.as_str().is_some_and(|text| !text.trim().is_empty()),
            Self::AnyText => value.is_str(),
            Self::Folders => {
                // `~` is expanded afterwards, or refused there.
                let is_whole = |path: &str| Path::new(path).is_absolute() || path.starts_with('~');
                let absolute = |item: &Value| item.as_str().is_some_and(is_whole);
                value.as_array().is_some_and(|items| items.iter().all(absolute))
            }
            Self::Texts => value.as_array().is_some_and(|items| items.iter().all(Value::is_str)),
            Self::OneOf(words) => value.as_str().is_some_and(|text| words.contains(&text)),
            Self::SomeOf(words) => {
                let known = |item: &Value| item.as_str().is_some_and(|text| words.contains(&text));
                value.as_array().is_some_and(|items| items.iter().all(known))
            }
            Self::Host => value.as_str().is_some_and(|text| text.parse::<Host>().is_ok()),
            Self::Hosts => {
                let fits = |item: &Value| item.as_str().is_some_and(|t| t.parse::<HostPattern>().is_ok());
                value.as_array().is_some_and(|items| items.iter().all(fits))
            }
            Self::Address => value.as_str().is_some_and(|text| text.parse::<IpAddr>().is_ok()),
            Self::Url => value.as_str().is_some_and(is_plain_url),
            Self::Credential => value
                .as_str()
                .is_some_and(|text| text.parse::<writ_types::credential::CredentialRef>().is_ok()),
        };
        if fits { Ok(()) } else { Err(self.expected()) }
    }

    /// Describes the kind of its values.
    fn expected(self) -> String {
        match self {
            Self::Flag => "true or false".into(),
            Self::Whole(least, MOST) => format!("a whole number of at least {least}"),
            Self::Whole(least, most) => format!("a whole number from {least} to {most}"),
            Self::Share => "a number from 0.0 to 1.0".into(),
            Self::Number => "a number".into(),
            Self::Text => "a text that is not empty".into(),
            Self::AnyText => "a text".into(),
            Self::Folder => "a path, as text".into(),
            Self::Folders => "a list of absolute paths".into(),
            Self::Texts => "a list of texts".into(),
            Self::OneOf(words) => {
                let quoted: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
                format!("one of {}", quoted.join(", "))
            }
            Self::SomeOf(words) => format!("a list of some of: {}", words.join(", ")),
            Self::Host => "a host, such as \"docs.rs\"".into(),
            Self::Hosts => {
                "a list of hosts, such as \"docs.rs\", \"*.example.org\" or \"git.example.org:9418\"".into()
            }
            Self::Address => "an address, such as \"192.0.2.7\" or \"2001:db8::7\"".into(),
            Self::Url => "an http or https address without user name and password".into(),
            Self::Credential => {
                "a reference: \"secret:NAME\", \"env:NAME\" or \"vault://MOUNT/PATH#FIELD\", \
                                 never the value itself (`writ secrets set NAME` stores one)"
                    .into()
            }
        }
    }

    /// Reads the text of an environment variable as a value of this kind.
    pub(crate) fn parse_text(self, text: &str) -> Result<Value, String> {
        let typed = || {
            let mut table = format!("value = {text}").parse::<toml::Table>().ok()?;
            // A second line would be a second key.
            if table.len() == 1 { table.remove("value") } else { None }
        };
        let value = match self {
            Self::Flag
            | Self::Whole(..)
            | Self::Share
            | Self::Number
            | Self::Folders
            | Self::Texts
            | Self::SomeOf(_)
            | Self::Hosts => typed().ok_or_else(|| self.expected())?,
            Self::Text
            | Self::AnyText
            | Self::Folder
            | Self::OneOf(_)
            | Self::Host
            | Self::Address
            | Self::Url
            | Self::Credential => Value::String(text.to_owned()),
        };
        self.check(&value).map(|()| value)
    }
}

fn is_plain_url(text: &str) -> bool {
    let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
    let Some(rest) = rest else { return false };
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    !host.is_empty() && !host.contains('@') && !text.chars().any(char::is_whitespace)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> KeyPath {
        text.split('.').map(str::to_owned).collect()
    }

    #[test]
    fn places_are_found_through_names_of_the_owners_choice() {
        assert!(matches!(place(&path("budget")), Place::Section));
        assert!(matches!(place(&path("providers.mine")), Place::Section));
        assert!(matches!(place(&path("providers.mine.base_url")), Place::Key(_)));
        assert!(matches!(place(&path("gates")), Place::List));
        assert!(matches!(place(&path("gates.000.name")), Place::Key(_)));
        assert!(matches!(place(&path("budgt")), Place::Nothing));
        assert!(matches!(place(&path("budget.max_tokens_per_day.x")), Place::Nothing));
    }

    #[test]
    fn kinds_tell_right_from_wrong() {
        let good: [(Kind, &str); 13] = [
            (Kind::Hosts, "[\"docs.rs\", \"*.example.org:8080\"]"),
            (Kind::Host, "docs.rs"),
            (Kind::Address, "2001:db8::7"),
            (Kind::SomeOf(&["a"]), "[\"a\"]"),
            (Kind::Flag, "true"),
            (Kind::Whole(1, 10), "10"),
            (Kind::Whole(0, MOST), "500_000"),
            (Kind::Share, "0.5"),
            (Kind::Text, "a"),
            (Kind::Folders, "[\"/usr\"]"),
            (Kind::OneOf(&["a"]), "a"),
            (Kind::Url, "http://127.0.0.1:11434/v1/"),
            (Kind::Credential, "env:KEY"),
        ];
        for (kind, text) in good {
            assert!(kind.parse_text(text).is_ok(), "{kind:?} {text}");
        }
        let bad: [(Kind, &str); 19] = [
            (Kind::Hosts, "[\"http://docs.rs\"]"),
            (Kind::Hosts, "[\"0x7f.1\"]"),
            (Kind::Host, "docs.rs:80"),
            (Kind::Address, "docs.rs"),
            (Kind::SomeOf(&["a"]), "[\"b\"]"),
            (Kind::Flag, "yes"),
            (Kind::Whole(1, 10), "11"),
            (Kind::Whole(1, 10), "0"),
            (Kind::Whole(0, MOST), "-1"),
            (Kind::Whole(0, MOST), "1.5"),
            (Kind::Whole(0, MOST), "1\nother = 2"),
            (Kind::Share, "1.01"),
            (Kind::Share, "nan"),
            (Kind::Text, "  "),
            (Kind::Folders, "[\"relative\"]"),
            (Kind::OneOf(&["a"]), "b"),
            (Kind::Url, "http://user:pass@host/"),
            (Kind::Url, "ftp://host/"),
            (Kind::Credential, "sk-live-1"),
        ];
        for (kind, text) in bad {
            let refused = kind.parse_text(text);
            assert!(refused.as_ref().is_err_and(|expected| !expected.contains("sk-live")), "{kind:?} {text}");
        }
    }
}
