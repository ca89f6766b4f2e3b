//! Reads the settings from the texts of their files.

use std::ops::RangeInclusive;
use std::path::{Component, Path};
use std::time::Duration;

use writ_autopilot::ceiling::CeilingScope;
use writ_autopilot::phase::PilotPhase;
use writ_autopilot::schedule::CapsError;
use writ_sandbox::git::BranchName;
use writ_types::unit::MicroUsd;

use super::gates::read_gates;
use super::hooks::read_hooks;
use super::notify::read_receivers;
use super::section::{Section, SettingsText};
use super::ship::read_ship;
use super::{
    DocSync, InputRequired, MAX_TIER_MODELS, PilotConfig, PilotConfigError, PilotTier, PilotTimes,
    WorktreeMode,
};

/// The most workers that may be asked for.
const MAX_AGENTS: u32 = 256;
/// The most turns, attempts and dispatches that may be asked for: each is paid.
const MAX_TRIES: u32 = 10_000;
/// The highest ceiling, in micro-USD: a million dollars.
const MAX_CEILING: u64 = 1_000_000_000_000;
/// The most paths of a project that are protected.
const MAX_PROTECTED: usize = 200;
/// The longest name of a model or workflow, in bytes.
const MAX_NAME_BYTES: usize = 200;

/// From a second to a week: every limit of work.
pub(super) const WORK_TIME: RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(7 * 86_400);
/// From a tenth of a second to an hour: every rhythm.
const RHYTHM: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(3_600);

/// Reads settings from the names and texts of their files, the weakest first.
///
/// # Errors
///
/// The first mistake, with file, line and hint.
pub fn read_config(files: &[(&str, &str)]) -> Result<PilotConfig, PilotConfigError> {
    let texts: Vec<SettingsText<'_>> = files.iter().map(|(name, text)| SettingsText { name, text }).collect();
    // All of them first: a section is read from every file that has it.
    let mut tables = Vec::new();
    for text in &texts {
        tables.push(text.parse_table()?);
    }
    let layers = texts.iter().copied().zip(tables.iter().map(toml::Spanned::get_ref)).collect();
    let mut top = Section::of_files(layers);
    let mut config = PilotConfig::default();
    let mut pilot = top.open_section("pilot")?;
    read_choices(&mut pilot, &mut config)?;
    read_limits(&mut pilot, &mut config)?;
    read_times(&mut pilot, &mut config.times)?;
    config.supervisor.stall_timeout =
        pilot.read_duration("stall_timeout", WORK_TIME)?.unwrap_or(config.supervisor.stall_timeout);
    read_context(&mut pilot, &mut config)?;
    config.complexity_threshold =
        pilot.read_part("complexity_threshold")?.unwrap_or(config.complexity_threshold);
    read_scores(pilot.open_section("model_scores")?, &mut config)?;
    read_agents(pilot.open_section("concurrency")?, &mut config)?;
    read_supervisor(pilot.open_section("supervisor")?, &mut config)?;
    read_ceilings(pilot.open_section("ceilings")?, &mut config)?;
    config.hooks = read_hooks(pilot.open_section("hooks")?)?;
    if let Some(place) = pilot.find_setting("ship") {
        config.ship = read_ship(&place, pilot.open_section("ship")?)?;
    }
    config.notify = read_receivers(pilot.open_list("notify")?)?;
    // Last, when every key was asked for.
    pilot.end_section()?;
    read_routing(top.open_section("routing")?, &mut config)?;
    read_tiers(top.open_section("tiers")?, &mut config)?;
    config.gates = read_gates(top.open_list("gate")?)?;
    top.end_section()?;
    Ok(config)
}

fn read_choices(pilot: &mut Section<'_>, config: &mut PilotConfig) -> Result<(), PilotConfigError> {
    if let Some(setting) = pilot.find_setting("target_branch") {
        let name = setting.read_text()?;
        let branch = BranchName::parse_name(name);
        branch.map_err(|fault| {
            setting.fault(&format!("names no branch: {fault}"), "write a name such as \"main\"")
        })?;
        config.target_branch = Some(name.to_owned());
    }
    if let Some(setting) = pilot.find_setting("default_workflow") {
        let name = setting.read_text()?;
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        if name.is_empty() || name.len() > MAX_NAME_BYTES || !name.chars().all(is_plain) {
            return Err(setting.fault(
                "names no workflow",
                "write the name of a file of `.writ/workflows`, without `.toml`",
            ));
        }
        config.default_workflow = Some(name.to_owned());
    }
    if let Some(setting) = pilot.find_setting("workspace_root") {
        let folder = setting.read_text()?;
        if !is_below_project(folder) {
            return Err(setting.fault(
                "is no folder below the project",
                "write a relative path such as \".writ/workspaces\"",
            ));
        }
        config.workspace_root = folder.to_owned();
    }
    let modes =
        [WorktreeMode::BranchPerSlice, WorktreeMode::MilestonePerWorktree].map(|mode| (mode.name(), mode));
    config.worktree_mode = pilot.read_choice("worktree_mode", &modes)?.unwrap_or_default();
    let answers = [("soft", InputRequired::Soft), ("hard", InputRequired::Hard), ("ask", InputRequired::Ask)];
    config.input_required = pilot.read_choice("turn_input_required", &answers)?.unwrap_or_default();
    let conflicts = [("pause", false), ("reassess", true)];
    config.limits.reassess_conflicts = pilot.read_choice("merge_conflict", &conflicts)?.unwrap_or(false);
    if let Some(setting) = pilot.find_setting("protected_paths") {
        let paths = setting.read_texts()?;
        if paths.len() > MAX_PROTECTED || !paths.iter().all(|path| is_below_project(path)) {
            return Err(setting.fault(
                &format!("is no list of at most {MAX_PROTECTED} paths in the project"),
                "write relative paths of files or folders, such as [\"tests/acceptance\"]",
            ));
        }
        config.protected_paths = paths.into_iter().map(str::to_owned).collect();
    }
    config.agents_change_plan = pilot.read_switch("agents_change_plan")?.unwrap_or(config.agents_change_plan);
    config.doc_sync = match (pilot.read_switch("doc_sync")?, pilot.read_switch("doc_sync_auto_approve")?) {
        (Some(false), _) => DocSync::Off,
        (_, Some(true)) => DocSync::Unasked,
        (_, _) => DocSync::Asked,
    };
    Ok(())
}

/// Returns true for a relative path that stays below its folder, and out of git's.
pub(super) fn is_below_project(path: &str) -> bool {
    let is_short = !path.is_empty() && path.len() <= 1_024 && !path.contains(['\0', '\\', '\n']);
    let mut parts = Path::new(path).components().peekable();
    // Some file systems know no difference of case.
    let is_git = |part: &Component<'_>| matches!(part, Component::Normal(name) if name.to_string_lossy().eq_ignore_ascii_case(".git"));
    let starts_well = parts.peek().is_some_and(|first| matches!(first, Component::Normal(_)));
    is_short && starts_well && parts.all(|part| matches!(part, Component::Normal(_)) && !is_git(&part))
}

fn read_limits(pilot: &mut Section<'_>, config: &mut PilotConfig) -> Result<(), PilotConfigError> {
    let all = 1..=MAX_TRIES;
    let limits = &mut config.limits;
    for (key, limit) in [
        ("max_attempts", &mut limits.max_attempts),
        ("max_idle_ends", &mut limits.max_idle_ends),
        ("max_dispatches", &mut limits.max_dispatches),
        ("max_base_moves", &mut limits.max_base_moves),
        ("max_turns_per_attempt", &mut config.max_turns),
        ("escalate_after", &mut config.escalate_after),
    ] {
        *limit = pilot.read_count(key, all.clone())?.unwrap_or(*limit);
    }
    Ok(())
}

fn read_times(pilot: &mut Section<'_>, times: &mut PilotTimes) -> Result<(), PilotConfigError> {
    for (key, time, range) in [
        ("poll_interval", &mut times.poll_interval, RHYTHM),
        ("supervisor_interval", &mut times.supervisor_interval, RHYTHM),
        ("unit_timeout", &mut times.unit, WORK_TIME),
        ("turn_timeout", &mut times.turn, WORK_TIME),
        ("tool_abort_grace", &mut times.abort.grace, RHYTHM),
        ("tool_abort_kill", &mut times.abort.kill, RHYTHM),
        ("max_retry_backoff", &mut times.max_backoff, WORK_TIME),
    ] {
        *time = pilot.read_duration(key, range)?.unwrap_or(*time);
    }
    let mut by_phase = pilot.open_section("unit_timeout_by_phase")?;
    for phase in PilotPhase::ALL {
        let Some(setting) = by_phase.find_setting(phase.name()) else { continue };
        // Only a person's acceptance may take as long as it takes.
        let shortest = if phase == PilotPhase::Uat { Duration::ZERO } else { *WORK_TIME.start() };
        let time = setting.read_duration(&(shortest..=*WORK_TIME.end()))?;
        times.unit_by_phase.insert(phase, (!time.is_zero()).then_some(time));
    }
    by_phase.end_section()
}

fn read_context(pilot: &mut Section<'_>, config: &mut PilotConfig) -> Result<(), PilotConfigError> {
    let compact_at = pilot.read_part("context_compact_at")?.unwrap_or(config.supervisor.compact_at);
    let hard_limit = pilot.read_part("context_hard_limit")?.unwrap_or(config.context_hard_limit);
    if compact_at >= hard_limit {
        let keys = ["context_compact_at", "context_hard_limit"];
        let place = keys.into_iter().find_map(|key| pilot.find_setting(key));
        let hint = "the context must be compacted before the attempt ends: raise `context_hard_limit`";
        let problem = format!("leaves no room: compacted at {compact_at}, ended at {hard_limit}");
        // One of both is set, since the defaults leave room.
        if let Some(place) = place {
            return Err(place.fault(&problem, hint));
        }
    }
    config.supervisor.compact_at = compact_at;
    config.context_hard_limit = hard_limit;
    Ok(())
}

fn read_agents(mut section: Section<'_>, config: &mut PilotConfig) -> Result<(), PilotConfigError> {
    // A phase that the file does not name has the default, not no limit.
    let caps = &mut config.agents;
    caps.max_agents = section.read_count("max_agents", 1..=MAX_AGENTS)?.unwrap_or(caps.max_agents);
    let mut by_phase = section.open_section("max_agents_by_phase")?;
    for phase in PilotPhase::ALL {
        if let Some(cap) = by_phase.read_count(phase.name(), 1..=MAX_AGENTS)? {
            caps.by_phase.insert(phase, cap);
        }
    }
    let merges = by_phase.find_setting(PilotPhase::Merge.name());
    if let (Err(error @ CapsError::SeveralMerges), Some(place)) = (caps.check(), merges) {
        return Err(place.fault(&format!("is too high: {error}"), "leave it out"));
    }
    by_phase.end_section()?;
    section.end_section()
}

fn read_supervisor(mut section: Section<'_>, config: &mut PilotConfig) -> Result<(), PilotConfigError> {
    let limits = &mut config.supervisor;
    for (key, limit) in [
        ("fruitless_turns", &mut limits.fruitless_turns),
        ("silent_turns", &mut limits.silent_turns),
        ("repeats", &mut limits.repeats),
        ("idle_turns", &mut limits.idle_turns),
    ] {
        *limit = section.read_count(key, 1..=MAX_TRIES)?.unwrap_or(*limit);
    }
    section.end_section()
}

/// Reads the weights of the choice of a model: parts of a hundred, and how often a person's rating counts.
fn read_scores(mut section: Section<'_>, config: &mut PilotConfig) -> Result<(), PilotConfigError> {
    let scores = &mut config.scores;
    for (key, weight) in
        [("quality", &mut scores.quality), ("latency", &mut scores.latency), ("cost", &mut scores.cost)]
    {
        *weight = section.read_count(key, 0..=100)?.map_or(*weight, |parts| f64::from(parts) / 100.0);
    }
    scores.human = section.read_count("human", 1..=100)?.map_or(scores.human, f64::from);
    section.end_section()
}

fn read_ceilings(mut section: Section<'_>, config: &mut PilotConfig) -> Result<(), PilotConfigError> {
    for (key, scope) in [
        ("run_micro_usd", CeilingScope::Run),
        ("unit_micro_usd", CeilingScope::Unit),
        ("milestone_micro_usd", CeilingScope::Milestone),
        ("day_micro_usd", CeilingScope::Day),
    ] {
        if let Some(limit) = section.read_lowest(key, 1..=MAX_CEILING)? {
            config.ceilings.insert(scope, MicroUsd::new(limit));
        }
    }
    section.end_section()
}

fn read_routing(mut section: Section<'_>, config: &mut PilotConfig) -> Result<(), PilotConfigError> {
    let tiers = PilotTier::ALL.map(|tier| (tier.name(), tier));
    for phase in PilotPhase::ALL {
        // A person's acceptance needs no model.
        if phase != PilotPhase::Uat
            && let Some(tier) = section.read_choice(phase.name(), &tiers)?
        {
            config.routing.insert(phase, tier);
        }
    }
    section.end_section()
}

fn read_tiers(mut section: Section<'_>, config: &mut PilotConfig) -> Result<(), PilotConfigError> {
    for tier in PilotTier::ALL {
        let mut one = section.open_section(tier.name())?;
        if let Some(setting) = one.find_setting("models") {
            let models = setting.read_texts()?;
            if models.is_empty() || models.len() > MAX_TIER_MODELS {
                let hint = "list the models of this tier, the preferred one first, or leave the tier out";
                return Err(setting.fault(&format!("has not 1 to {MAX_TIER_MODELS} names"), hint));
            }
            let is_name = |name: &&str| {
                !name.trim().is_empty() && name.len() <= MAX_NAME_BYTES && !name.contains(char::is_control)
            };
            if !models.iter().all(is_name) {
                return Err(
                    setting.fault("has an entry that is no name of a model", "`writ models` lists them")
                );
            }
            config.tiers.insert(tier, models.into_iter().map(str::to_owned).collect());
        }
        one.end_section()?;
    }
    section.end_section()
}
