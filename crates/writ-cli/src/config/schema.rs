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
pub(crate) struct SettingKey {
    /// Its segments, joined by dots.
    pub(crate) path: &'static str,
    /// The kind of its values.
    pub(crate) kind: ValueKind,
    /// The right of a project's file to change it.
    pub(crate) in_project: InProject,
}

/// The kind of a key's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ValueKind {
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
const COUNT: ValueKind = ValueKind::Whole(1, MOST);
/// A number of at least one that fits 32 bits.
const COUNT_32: ValueKind = ValueKind::Whole(1, u32::MAX as u64);
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

const fn owner_key(path: &'static str, kind: ValueKind) -> SettingKey {
    SettingKey { path, kind, in_project: InProject::Never }
}

const fn lowering_key(path: &'static str, kind: ValueKind) -> SettingKey {
    SettingKey { path, kind, in_project: InProject::Lower }
}

const fn adding_key(path: &'static str, kind: ValueKind) -> SettingKey {
    SettingKey { path, kind, in_project: InProject::Add }
}

/// Every key, in the order of `config.example.toml`.
pub(crate) const KEYS: &[SettingKey] = &[
    owner_key("owner_id", ValueKind::Text),
    owner_key("agent", ValueKind::Text),
    owner_key("data_dir", ValueKind::Folder),
    owner_key("verify_dir", ValueKind::Folder),
    owner_key("customer_context_dir", ValueKind::Folder),
    owner_key("approval_ttl_secs", ValueKind::Whole(60, MAX_APPROVAL_SECS)),
    owner_key("continue_after_answer", ValueKind::Flag),
    owner_key("time_zone", ValueKind::Text),
    owner_key("gates_shipped", ValueKind::Flag),
    owner_key("tools", ValueKind::Texts),
    owner_key("strict", ValueKind::Flag),
    owner_key("execution", ValueKind::OneOf(&["free", "planned"])),
    owner_key("rehydration.max_chronicle_entries", COUNT_32),
    owner_key("models.default", ValueKind::Text),
    owner_key("models.fallback", ValueKind::Texts),
    owner_key("models.detect", ValueKind::Flag),
    owner_key("models.roles.proxy", ValueKind::Text),
    owner_key("models.roles.planner", ValueKind::Text),
    owner_key("models.roles.executor", ValueKind::Text),
    owner_key("models.roles.scorer", ValueKind::Text),
    owner_key("models.roles.observer", ValueKind::Text),
    owner_key("models.roles.oracle", ValueKind::Text),
    owner_key("models.roles.embedding", ValueKind::Text),
    owner_key("models.roles.quarantine", ValueKind::Text),
    owner_key("models.tiers.fast", ValueKind::Text),
    owner_key("models.tiers.standard", ValueKind::Text),
    owner_key("models.tiers.reasoning", ValueKind::Text),
    owner_key("models.skills.*", ValueKind::Text),
    owner_key("models.effort.*", ValueKind::OneOf(&["low", "medium", "high"])),
    owner_key("models.role_fallback.*", ValueKind::Texts),
    owner_key("models.prices.*.input", ValueKind::Whole(0, MOST)),
    owner_key("models.prices.*.output", ValueKind::Whole(0, MOST)),
    owner_key("models.prices.*.cache_read", ValueKind::Whole(0, MOST)),
    owner_key("models.prices.*.cache_write", ValueKind::Whole(0, MOST)),
    owner_key("models.request_timeout_ms", COUNT),
    owner_key("models.answer_timeout_ms", COUNT),
    owner_key("models.max_tries", COUNT_32),
    owner_key("models.backoff_base_ms", COUNT),
    owner_key(
        "providers.*.kind",
        ValueKind::OneOf(&["anthropic", "openai", "openai_responses", "openrouter", "gemini", "ollama"]),
    ),
    owner_key("providers.*.base_url", ValueKind::Url),
    owner_key("providers.*.api_key", ValueKind::Credential),
    owner_key("providers.*.clearance", ValueKind::OneOf(&["public", "personal", "secret"])),
    owner_key("budget.max_tokens_per_session", COUNT),
    owner_key("budget.max_tokens_per_day", COUNT),
    owner_key("budget.max_tool_calls_per_turn", COUNT_32),
    owner_key("budget.max_cost_per_call", COUNT),
    owner_key("budget.max_cost_per_turn", COUNT),
    owner_key("budget.max_cost_per_session", COUNT),
    owner_key("budget.max_cost_per_day", COUNT),
    owner_key("budget.max_cost_per_month", COUNT),
    owner_key("budget.day_starts_at_minute", ValueKind::Whole(0, LAST_MINUTE)),
    adding_key("gates.*.name", ValueKind::Text),
    adding_key("gates.*.on", ValueKind::OneOf(&["input", "output", "execution", "access"])),
    adding_key(
        "gates.*.provider",
        ValueKind::OneOf(&["predicate", "regex", "guard", "guardrails_ai", "script", "llm"]),
    ),
    adding_key("gates.*.lane", ValueKind::OneOf(&["policy", "quality"])),
    adding_key("gates.*.contains", ValueKind::Texts),
    adding_key("gates.*.ignore_case", ValueKind::Flag),
    adding_key("gates.*.pattern", ValueKind::Text),
    adding_key("gates.*.min", ValueKind::Number),
    adding_key("gates.*.max", ValueKind::Number),
    adding_key("gates.*.below", ValueKind::Folders),
    adding_key("gates.*.extensions", ValueKind::Texts),
    adding_key("gates.*.max_bytes", ValueKind::Whole(0, MOST)),
    adding_key("gates.*.field", ValueKind::Text),
    adding_key("gates.*.tools", ValueKind::Texts),
    adding_key("gates.*.checks", ValueKind::Texts),
    owner_key("gates.*.script", ValueKind::Text),
    owner_key("gates.*.timeout_ms", ValueKind::Whole(1, MAX_SCRIPT_MS)),
    owner_key("gates.*.prompt", ValueKind::Text),
    owner_key("gates.*.promote_to_policy", ValueKind::Flag),
    owner_key("gates.*.on_block", ValueKind::Text),
    adding_key("gates.*.action", ValueKind::OneOf(&["block", "replace", "ask"])),
    adding_key("gates.*.replacement", ValueKind::AnyText),
    adding_key("gates.*.reason", ValueKind::AnyText),
    owner_key("hooks.*.name", ValueKind::Text),
    owner_key(
        "hooks.*.on",
        ValueKind::OneOf(&[
            "message_received",
            "before_tool_call",
            "after_tool_call",
            "response_generated",
            "session_created",
            "session_closed",
        ]),
    ),
    owner_key("hooks.*.run", ValueKind::Text),
    owner_key("hooks.*.project", ValueKind::Text),
    owner_key("hooks.*.digest", ValueKind::Text),
    owner_key("hooks.*.tools", ValueKind::Texts),
    owner_key("hooks.*.permissions", ValueKind::SomeOf(&["read", "write"])),
    owner_key("hooks.*.timeout_ms", ValueKind::Whole(1, MAX_SCRIPT_MS)),
    owner_key("hooks.*.critical", ValueKind::Flag),
    owner_key(
        "escalations.*.action",
        ValueKind::OneOf(&[
            "respond",
            "report",
            "escalate_human",
            "transfer_to_queue",
            "suppress_and_rephrase",
            "retry",
            "spawn_task",
        ]),
    ),
    owner_key("escalations.*.text", ValueKind::Text),
    owner_key("escalations.*.queue", ValueKind::Text),
    owner_key("escalations.*.attempts", ValueKind::Whole(1, MAX_ATTEMPTS as u64)),
    owner_key("access.public", ValueKind::Texts),
    owner_key("access.levels.*.rank", ValueKind::Whole(0, u32::MAX as u64)),
    owner_key("access.levels.*.requires", ValueKind::Texts),
    owner_key("access.levels.*.tools", ValueKind::Texts),
    owner_key("access.levels.*.expires_secs", COUNT_32),
    owner_key("sandbox.runner", ValueKind::OneOf(&writ_sandbox::config::RunnerKind::NAMES)),
    owner_key("sandbox.exe", ValueKind::Folder),
    owner_key("sandbox.host_home", ValueKind::Folder),
    owner_key("sandbox.read_only", ValueKind::Folders),
    owner_key("sandbox.forbid_user_namespaces", ValueKind::Flag),
    owner_key("sandbox.memory_max", COUNT),
    owner_key("sandbox.processes_max", COUNT),
    owner_key("sandbox.tmp_max", COUNT),
    owner_key("sandbox.open_files_max", COUNT),
    owner_key("sandbox.output_max", COUNT),
    owner_key("sandbox.output_kill", COUNT),
    owner_key("sandbox.time_max_ms", COUNT),
    owner_key("sandbox.overlay_max", COUNT),
    owner_key("sandbox.ready_max", ValueKind::Whole(0, writ_sandbox::config::READY_MOST as u64)),
    owner_key("context.total_tokens", COUNT),
    owner_key("context.system_max", COUNT),
    owner_key("context.eviction_threshold_pct", ValueKind::Share),
    owner_key("context.observation_mask_after_turns", COUNT_32),
    owner_key("context.compact_at_pct", ValueKind::Share),
    owner_key("context.summaries", ValueKind::OneOf(&["never", "when_full", "always"])),
    SettingKey { path: "context.default_profile", kind: ValueKind::Text, in_project: InProject::Any },
    owner_key("context.profiles.*.chronicle_pct", ValueKind::Share),
    owner_key("context.profiles.*.memory_pct", ValueKind::Share),
    owner_key("context.profiles.*.workspace_pct", ValueKind::Share),
    lowering_key("limits.max_model_calls_per_turn", COUNT_32),
    lowering_key("limits.max_calls_per_reply", COUNT_32),
    lowering_key("limits.max_argument_bytes", COUNT),
    lowering_key("limits.max_result_chars", COUNT_32),
    lowering_key("limits.max_absorbed_messages", COUNT_32),
    lowering_key("limits.max_identical_calls", COUNT_32),
    lowering_key("limits.max_output_tokens", COUNT),
    lowering_key("limits.max_turn_secs", COUNT_32),
    owner_key("egress.allowed", ValueKind::Hosts),
    owner_key("egress.blocked", ValueKind::Hosts),
    owner_key("egress.always_ask", ValueKind::Hosts),
    owner_key("egress.registries", ValueKind::SomeOf(&["pypi", "npm", "crates", "apt", "github"])),
    owner_key("egress.opaque", ValueKind::Hosts),
    owner_key("egress.pin.*.host", ValueKind::Host),
    owner_key("egress.pin.*.address", ValueKind::Address),
    owner_key("egress.credentials.*.name", ValueKind::Text),
    owner_key("egress.credentials.*.secret", ValueKind::Credential),
    owner_key("egress.credentials.*.host", ValueKind::Text),
    owner_key("egress.credentials.*.methods", ValueKind::Texts),
    owner_key("egress.credentials.*.paths", ValueKind::Texts),
    owner_key("egress.credentials.*.env", ValueKind::Text),
    owner_key("egress.credentials.*.header", ValueKind::Text),
    owner_key("egress.credentials.*.format", ValueKind::Text),
    owner_key("egress.credentials.*.user", ValueKind::Text),
    owner_key("egress.credentials.*.plain", ValueKind::Flag),
    owner_key("egress.limits.connect_timeout_ms", COUNT_32),
    owner_key("egress.limits.max_sent_bytes", COUNT),
    owner_key("egress.limits.max_received_bytes", COUNT),
    owner_key("egress.limits.fetch_timeout_ms", COUNT_32),
    owner_key("egress.limits.fetches_per_minute", COUNT_32),
    owner_key("egress.limits.requests_per_minute", COUNT_32),
    owner_key("egress.proxy.connections", ValueKind::Whole(1, MOST_CONNECTIONS)),
    owner_key("egress.proxy.records", ValueKind::Whole(1, MOST_RECORDS)),
    owner_key("egress.proxy.head_bytes", ValueKind::Whole(HEAD_MIN as u64, MOST_HEAD)),
    owner_key("egress.proxy.head_ms", COUNT_32),
    owner_key("egress.proxy.connect_ms", COUNT_32),
    owner_key("egress.proxy.idle_ms", COUNT_32),
    owner_key("egress.proxy.total_ms", COUNT_32),
    owner_key("egress.proxy.sent_max", COUNT),
    owner_key("egress.proxy.received_max", COUNT),
    owner_key("egress.proxy.host_per_minute", COUNT_32),
    owner_key("egress.proxy.tool_per_minute", COUNT_32),
    owner_key("search.provider", ValueKind::OneOf(&["brave", "tavily"])),
    owner_key("search.api_key", ValueKind::Credential),
    owner_key("search.base_url", ValueKind::Url),
    owner_key("search.max_results", ValueKind::Whole(1, MAX_SEARCH_RESULTS)),
    owner_key("memory.embedder", ValueKind::OneOf(&["none", "model", "local"])),
    owner_key("memory.folder", ValueKind::Folder),
    owner_key("memory.recall_limit", ValueKind::Whole(0, 50)),
    owner_key("memory.consolidate_minutes", ValueKind::Whole(1, 100_000)),
    owner_key("memory.stale_days", ValueKind::Whole(1, 36_500)),
    owner_key("memory.promote_uses", COUNT_32),
    owner_key("timeouts.default_ms", COUNT),
    owner_key("timeouts.max_ms", COUNT),
    owner_key("timeouts.tools.*", COUNT),
    owner_key("quarantine.*", ValueKind::OneOf(&["never", "external", "always"])),
    owner_key("secrets.backend", ValueKind::OneOf(&["keyring", "age", "plain"])),
    owner_key("secrets.connect_timeout_ms", COUNT),
    owner_key("secrets.operation_timeout_ms", COUNT),
    owner_key("server.enabled", ValueKind::Flag),
    owner_key("server.host", ValueKind::Text),
    owner_key("server.port", ValueKind::Whole(0, u16::MAX as u64)),
    owner_key("server.auth_token", ValueKind::Credential),
    owner_key("server.allowed_hosts", ValueKind::Texts),
    owner_key("server.allowed_origins", ValueKind::Texts),
    owner_key("server.base_path", ValueKind::Text),
    owner_key("server.trusted_proxies", ValueKind::Texts),
    owner_key("server.requests_per_sec", COUNT_32),
    owner_key("server.burst", COUNT_32),
    owner_key("server.max_message_bytes", ValueKind::Whole(1024, MAX_FRAME_BYTES as u64)),
    owner_key("server.idle_timeout_secs", ValueKind::Whole(1, 24 * 60 * 60)),
    owner_key("server.graceful_shutdown_secs", ValueKind::Whole(1, 60 * 60)),
    owner_key("log.level", ValueKind::OneOf(&["error", "warn", "info", "debug", "trace"])),
    owner_key("log.max_bytes", ValueKind::Whole(4096, MOST)),
    owner_key("log.keep", ValueKind::Whole(1, 100)),
    owner_key("ledger.retention_days", ValueKind::Whole(0, MAX_RETENTION_DAYS)),
    owner_key("ledger.heads_file", ValueKind::Folder),
    owner_key("ledger.heads_repository", ValueKind::Folder),
    owner_key("fleet.model_router", ValueKind::Flag),
    owner_key("fleet.cases", ValueKind::Flag),
    owner_key("fleet.listen", ValueKind::Text),
    owner_key("fleet.silence", ValueKind::Text),
    owner_key("fleet.rules", ValueKind::Texts),
    owner_key("telemetry.otlp_endpoint", ValueKind::Url),
    owner_key("telemetry.otlp_token", ValueKind::Credential),
    owner_key("network.proxy", ValueKind::Text),
    owner_key("network.proxy_user", ValueKind::Text),
    owner_key("network.proxy_password", ValueKind::Credential),
    owner_key("network.no_proxy", ValueKind::Texts),
    owner_key("network.unchecked_names", ValueKind::Flag),
    owner_key("network.ca_file", ValueKind::Folders),
];

/// Sections that are lists: `[[gates]]`.
pub(crate) const LISTS: [&str; 4] = ["gates", "hooks", "egress.pin", "egress.credentials"];

/// The setting or table at a path.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SchemaEntry {
    /// A key.
    Key(SettingKey),
    /// A table of keys.
    Section,
    /// A list of tables.
    List,
    /// Nothing that is known.
    Nothing,
}

/// Returns the setting or table at a path.
pub(crate) fn place_of(path: &[String]) -> SchemaEntry {
    if LISTS.contains(&dotted_path(path).as_str()) {
        return SchemaEntry::List;
    }
    let mut found = SchemaEntry::Nothing;
    for key in KEYS {
        let segments = key_segments(key);
        let fits = segments.len() >= path.len()
            && segments.iter().zip(path).all(|(pattern, segment)| *pattern == "*" || pattern == segment);
        if fits && segments.len() == path.len() {
            return SchemaEntry::Key(*key);
        }
        if fits {
            found = SchemaEntry::Section;
        }
    }
    found
}

/// The segments of a key's path.
pub(crate) fn key_segments(key: &SettingKey) -> Vec<&'static str> {
    key.path.split('.').collect()
}

/// A path as it is written in the configuration: `gates.000.name` is the name of the first gate.
pub(crate) fn dotted_path(path: &[String]) -> String {
    path.join(".")
}

impl ValueKind {
    /// Checks that a value is of this kind; the error is the expected kind. The value is never repeated: it
    /// may be a secret in the wrong place.
    pub(crate) fn check_value(self, value: &Value) -> Result<(), String> {
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
        if fits { Ok(()) } else { Err(self.expected_kind()) }
    }

    /// Describes the kind of its values.
    fn expected_kind(self) -> String {
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
            | Self::Hosts => typed().ok_or_else(|| self.expected_kind())?,
            Self::Text
            | Self::AnyText
            | Self::Folder
            | Self::OneOf(_)
            | Self::Host
            | Self::Address
            | Self::Url
            | Self::Credential => Value::String(text.to_owned()),
        };
        self.check_value(&value).map(|()| value)
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
        assert!(matches!(place_of(&path("budget")), SchemaEntry::Section));
        assert!(matches!(place_of(&path("providers.mine")), SchemaEntry::Section));
        assert!(matches!(place_of(&path("providers.mine.base_url")), SchemaEntry::Key(_)));
        assert!(matches!(place_of(&path("gates")), SchemaEntry::List));
        assert!(matches!(place_of(&path("gates.000.name")), SchemaEntry::Key(_)));
        assert!(matches!(place_of(&path("budgt")), SchemaEntry::Nothing));
        assert!(matches!(place_of(&path("budget.max_tokens_per_day.x")), SchemaEntry::Nothing));
    }

    #[test]
    fn kinds_tell_right_from_wrong() {
        let good: [(ValueKind, &str); 13] = [
            (ValueKind::Hosts, "[\"docs.rs\", \"*.example.org:8080\"]"),
            (ValueKind::Host, "docs.rs"),
            (ValueKind::Address, "2001:db8::7"),
            (ValueKind::SomeOf(&["a"]), "[\"a\"]"),
            (ValueKind::Flag, "true"),
            (ValueKind::Whole(1, 10), "10"),
            (ValueKind::Whole(0, MOST), "500_000"),
            (ValueKind::Share, "0.5"),
            (ValueKind::Text, "a"),
            (ValueKind::Folders, "[\"/usr\"]"),
            (ValueKind::OneOf(&["a"]), "a"),
            (ValueKind::Url, "http://127.0.0.1:11434/v1/"),
            (ValueKind::Credential, "env:KEY"),
        ];
        for (kind, text) in good {
            assert!(kind.parse_text(text).is_ok(), "{kind:?} {text}");
        }
        let bad: [(ValueKind, &str); 19] = [
            (ValueKind::Hosts, "[\"http://docs.rs\"]"),
            (ValueKind::Hosts, "[\"0x7f.1\"]"),
            (ValueKind::Host, "docs.rs:80"),
            (ValueKind::Address, "docs.rs"),
            (ValueKind::SomeOf(&["a"]), "[\"b\"]"),
            (ValueKind::Flag, "yes"),
            (ValueKind::Whole(1, 10), "11"),
            (ValueKind::Whole(1, 10), "0"),
            (ValueKind::Whole(0, MOST), "-1"),
            (ValueKind::Whole(0, MOST), "1.5"),
            (ValueKind::Whole(0, MOST), "1\nother = 2"),
            (ValueKind::Share, "1.01"),
            (ValueKind::Share, "nan"),
            (ValueKind::Text, "  "),
            (ValueKind::Folders, "[\"relative\"]"),
            (ValueKind::OneOf(&["a"]), "b"),
            (ValueKind::Url, "http://user:pass@host/"),
            (ValueKind::Url, "ftp://host/"),
            (ValueKind::Credential, "sk-live-1"),
        ];
        for (kind, text) in bad {
            let refused = kind.parse_text(text);
            assert!(refused.as_ref().is_err_and(|expected| !expected.contains("sk-live")), "{kind:?} {text}");
        }
    }
}
