//! The settings in force, each with its source.

use std::collections::BTreeMap;
use std::time::Duration;

use toml::de::{DeTable, DeValue};
use writ_autopilot::ceiling::CeilingScope;
use writ_autopilot::hook::HookKind;
use writ_types::api::pilot::PilotSettingLine;

use super::section::SettingsText;
use super::{DocSync, InputRequired, PilotConfig, PilotTier};

/// The source of a value that no file names.
const DEFAULT: &str = "default";
/// The depth of tables that are looked into; the deepest settings stand in three.
const MAX_DEPTH: usize = 6;

/// Lists all settings in force: key, value, and `file:line` or `default`. Files are named the weakest first.
pub fn list_settings(config: &PilotConfig, files: &[(&str, &str)]) -> Vec<PilotSettingLine> {
    let mut origins: BTreeMap<String, (String, String)> = BTreeMap::new();
    for (name, text) in files {
        let text = SettingsText { name, text };
        // A file that cannot be read is not in force: its mistake is shown elsewhere.
        let Ok(table) = text.parse_table() else { continue };
        collect(text, "", (table.get_ref(), 0), &mut origins);
    }
    let line = |(key, value): (String, String)| {
        let source = origins.get(&key).map_or_else(|| DEFAULT.to_owned(), |(_, place)| place.clone());
        PilotSettingLine { key, value, source }
    };
    let mut all = list_work(config);
    all.extend(list_scopes(config));
    all.into_iter().map(line).collect()
}

/// Notes the place of each key, with its text. Of ceilings the lowest one is in force.
fn collect(
    text: SettingsText<'_>,
    path: &str,
    (table, depth): (&DeTable<'_>, usize),
    found: &mut BTreeMap<String, (String, String)>,
) {
    for (name, value) in table {
        let key =
            if path.is_empty() { name.get_ref().to_string() } else { format!("{path}.{}", name.get_ref()) };
        if let DeValue::Table(inner) = value.get_ref() {
            if depth < MAX_DEPTH {
                collect(text, &key, (inner, depth + 1), found);
            }
            continue;
        }
        let place = text.fault(name.span().start, "", "", "");
        let number =
            value.get_ref().as_integer().map(|one| one.as_str().replace('_', "")).unwrap_or_default();
        let is_lower = |earlier: &str| match (earlier.parse::<u64>(), number.parse::<u64>()) {
            (Ok(earlier), Ok(now)) => now < earlier,
            _ => true,
        };
        let is_beaten = key.starts_with("pilot.ceilings.")
            && found.get(&key).is_some_and(|(earlier, _)| !is_lower(earlier));
        if !is_beaten {
            found.insert(key, (number, format!("{}:{}", place.file, place.line)));
        }
    }
}

/// The values of `[pilot]` and `[pilot.supervisor]`, by the keys of the file.
fn list_work(config: &PilotConfig) -> Vec<(String, String)> {
    let word = |word: &Option<String>| word.clone().unwrap_or_else(|| "-".to_owned());
    let (limits, times, supervisor) = (&config.limits, &config.times, &config.supervisor);
    let input = match config.input_required {
        InputRequired::Soft => "soft",
        InputRequired::Hard => "hard",
        InputRequired::Ask => "ask",
    };
    let conflict = if limits.reassess_conflicts { "reassess" } else { "pause" };
    let scores = &config.scores;
    let parts = |weight: f64| format!("{:.0}", weight * 100.0);
    let pairs: [(&str, String); 34] = [
        ("target_branch", word(&config.target_branch)),
        ("default_workflow", word(&config.default_workflow)),
        ("workspace_root", config.workspace_root.clone()),
        ("worktree_mode", config.worktree_mode.name().to_owned()),
        ("turn_input_required", input.to_owned()),
        ("merge_conflict", conflict.to_owned()),
        ("agents_change_plan", config.agents_change_plan.to_string()),
        ("doc_sync", (config.doc_sync != DocSync::Off).to_string()),
        ("doc_sync_auto_approve", (config.doc_sync == DocSync::Unasked).to_string()),
        ("max_attempts", limits.max_attempts.to_string()),
        ("max_idle_ends", limits.max_idle_ends.to_string()),
        ("max_dispatches", limits.max_dispatches.to_string()),
        ("max_base_moves", limits.max_base_moves.to_string()),
        ("max_turns_per_attempt", config.max_turns.to_string()),
        ("escalate_after", config.escalate_after.to_string()),
        ("complexity_threshold", config.complexity_threshold.to_string()),
        ("model_scores.quality", parts(scores.quality)),
        ("model_scores.latency", parts(scores.latency)),
        ("model_scores.cost", parts(scores.cost)),
        ("model_scores.human", scores.human.to_string()),
        ("poll_interval", time(times.poll_interval)),
        ("supervisor_interval", time(times.supervisor_interval)),
        ("unit_timeout", time(times.unit)),
        ("turn_timeout", time(times.turn)),
        ("stall_timeout", time(supervisor.stall_timeout)),
        ("tool_abort_grace", time(times.abort.grace)),
        ("tool_abort_kill", time(times.abort.kill)),
        ("max_retry_backoff", time(times.max_backoff)),
        ("context_compact_at", supervisor.compact_at.to_string()),
        ("context_hard_limit", config.context_hard_limit.to_string()),
        ("supervisor.fruitless_turns", supervisor.fruitless_turns.to_string()),
        ("supervisor.silent_turns", supervisor.silent_turns.to_string()),
        ("supervisor.repeats", supervisor.repeats.to_string()),
        ("supervisor.idle_turns", supervisor.idle_turns.to_string()),
    ];
    pairs.into_iter().map(|(key, value)| (format!("pilot.{key}"), value)).collect()
}

/// The values of the other sections, by the keys of the file.
fn list_scopes(config: &PilotConfig) -> Vec<(String, String)> {
    let (times, mut all) = (&config.times, Vec::new());
    for (key, scope) in [
        ("run", CeilingScope::Run),
        ("unit", CeilingScope::Unit),
        ("milestone", CeilingScope::Milestone),
        ("day", CeilingScope::Day),
    ] {
        let limit =
            config.ceilings.get(&scope).map_or_else(|| "-".to_owned(), |limit| limit.get().to_string());
        all.push((format!("pilot.ceilings.{key}_micro_usd"), limit));
    }
    all.push(("pilot.concurrency.max_agents".to_owned(), config.agents.max_agents.to_string()));
    for (phase, most) in &config.agents.by_phase {
        all.push((format!("pilot.concurrency.max_agents_by_phase.{}", phase.name()), most.to_string()));
    }
    for (phase, limit) in &times.unit_by_phase {
        let limit = limit.map_or_else(|| "0".to_owned(), time);
        all.push((format!("pilot.unit_timeout_by_phase.{}", phase.name()), limit));
    }
    for (phase, tier) in &config.routing {
        all.push((format!("routing.{}", phase.name()), tier.name().to_owned()));
    }
    for tier in PilotTier::ALL {
        let models = config.tiers.get(&tier).map_or_else(|| "-".to_owned(), |models| models.join(", "));
        all.push((format!("tiers.{}.models", tier.name()), models));
    }
    for kind in HookKind::ALL {
        let scripts = config.hooks.scripts(kind);
        let scripts = if scripts.is_empty() { "-".to_owned() } else { scripts.join(", ") };
        all.push((format!("pilot.hooks.{}", kind.name()), scripts));
        all.push((format!("pilot.hooks.timeouts.{}", kind.name()), time(config.hooks.time_limit(kind))));
    }
    all.extend(list_ship(config));
    let receivers: Vec<&str> = config.notify.iter().map(|one| one.format.name()).collect();
    let receivers = if receivers.is_empty() { "-".to_owned() } else { receivers.join(", ") };
    all.push(("pilot.notify".to_owned(), receivers));
    let gates: Vec<&str> = config.gates.iter().map(|gate| gate.name.as_str()).collect();
    all.push(("gate".to_owned(), if gates.is_empty() { "-".to_owned() } else { gates.join(", ") }));
    all
}

/// The values of `[pilot.ship]`.
fn list_ship(config: &PilotConfig) -> Vec<(String, String)> {
    let Some(ship) = &config.ship else { return vec![("pilot.ship.at".to_owned(), "-".to_owned())] };
    let word = |word: &Option<String>| word.clone().unwrap_or_else(|| "-".to_owned());
    let pairs: [(&str, String); 7] = [
        ("at", ship.at.name().to_owned()),
        ("forge", ship.forge.name().to_owned()),
        ("api", ship.api.clone()),
        ("token", ship.token.to_string()),
        ("repository", word(&ship.repository)),
        ("remote", ship.remote.clone()),
        ("base", word(&ship.base)),
    ];
    pairs.into_iter().map(|(key, value)| (format!("pilot.ship.{key}"), value)).collect()
}

/// A time as files name it.
fn time(time: Duration) -> String {
    let millis = time.as_millis();
    match millis {
        whole if whole % 3_600_000 == 0 => format!("{}h", whole / 3_600_000),
        whole if whole % 60_000 == 0 => format!("{}m", whole / 60_000),
        whole if whole % 1_000 == 0 => format!("{}s", whole / 1_000),
        whole => format!("{whole}ms"),
    }
}
