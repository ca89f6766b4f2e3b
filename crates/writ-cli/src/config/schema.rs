//! Every key that the configuration has: its kind, and what a project may do to it.
//!
//! The values themselves live in the `Config` of each crate; tests hold this table to them.

use writ_egress::proxy::HEAD_MIN;
use writ_inspect::gate::{MAX_ATTEMPTS, MAX_SCRIPT_MS};
use writ_policy::door::MAX_SEARCH_RESULTS;
use writ_types::frame::MAX_FRAME_BYTES;

use super::worker::MAX_START_SECS;

mod kind;

use kind::MOST;

pub(crate) use kind::ValueKind;

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

/// The most turns that may be set to run at once.
const MAX_PARALLEL: u64 = writ_runtime::config::MAX_RUNNING_TURNS as u64;

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
    owner_key("max_parallel", ValueKind::Whole(1, MAX_PARALLEL)),
    owner_key("approval_ttl_secs", ValueKind::Whole(60, MAX_APPROVAL_SECS)),
    owner_key("continue_after_answer", ValueKind::Flag),
    owner_key("time_zone", ValueKind::Text),
    owner_key("gates_shipped", ValueKind::Flag),
    owner_key("tools", ValueKind::Texts),
    owner_key("first_run", ValueKind::Flag),
    owner_key("tool_review", ValueKind::Recurrence),
    owner_key("strict", ValueKind::Flag),
    owner_key("execution", ValueKind::OneOf(&["free", "planned"])),
    owner_key("initiative", ValueKind::OneOf(&["low", "medium", "high"])),
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
    // A project that could set these would get the owner's key sent to a host of its choice.
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
    // A further gate can only narrow, so that a project may add some.
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
    // These run programs, spend tokens, or decide what follows a block.
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
            "unit_started",
            "unit_blocked",
            "unit_merged",
            "unit_done",
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
    // Lower limits are safe to take from a project.
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
    owner_key("memory.digest", ValueKind::Recurrence),
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
    owner_key("log.stderr", ValueKind::Flag),
    owner_key("ledger.retention_days", ValueKind::Whole(0, MAX_RETENTION_DAYS)),
    owner_key("ledger.heads_file", ValueKind::Folder),
    owner_key("ledger.heads_repository", ValueKind::Folder),
    owner_key("fleet.model_router", ValueKind::Flag),
    owner_key("fleet.cases", ValueKind::Flag),
    owner_key("fleet.listen", ValueKind::Text),
    owner_key("fleet.silence", ValueKind::Text),
    owner_key("fleet.rules", ValueKind::Texts),
    // An agent could write the project's file.
    owner_key("worker.kind", ValueKind::OneOf(&["builtin", "acp"])),
    owner_key("worker.command", ValueKind::Texts),
    owner_key("worker.variables.*", ValueKind::Text),
    owner_key("worker.login", ValueKind::Text),
    owner_key("worker.start_secs", ValueKind::Whole(1, MAX_START_SECS)),
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
        let good: [(ValueKind, &str); 14] = [
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
            (ValueKind::Recurrence, "day 1 04:00"),
        ];
        for (kind, text) in good {
            assert!(kind.parse_text(text).is_ok(), "{kind:?} {text}");
        }
        let bad: [(ValueKind, &str); 20] = [
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
            (ValueKind::Recurrence, "0 4 * * 0"),
        ];
        for (kind, text) in bad {
            let refused = kind.parse_text(text);
            assert!(refused.as_ref().is_err_and(|expected| !expected.contains("sk-live")), "{kind:?} {text}");
        }
    }
}
