//! The settings of the autopilot: `.writ/pilot.toml` of a project, over the owner's own file.
//!
//! A key of the project's file beats the same key of the owner's (SF 14.1), but for ceilings of money: there the lower one holds,
//! since a project may come from anywhere. A file with any mistake is refused as a whole.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::Path;
use std::time::Duration;

use writ_autopilot::abort::AbortTimes;
use writ_autopilot::ceiling::ScopeMoney;
use writ_autopilot::machine::UnitLimits;
use writ_autopilot::phase::PilotPhase;
use writ_autopilot::routing::ScoreWeights;
use writ_autopilot::schedule::AgentCaps;
use writ_autopilot::supervise::SupervisorLimits;
use writ_runtime::pilot::{AttemptTerms, Share, ToolEndTimes};
use writ_types::chat::Effort;
use writ_types::error::{Exit, Report, ToReport};

mod gates;

mod hooks;

mod listing;

mod notify;

mod read;

mod section;

mod ship;

pub use hooks::PilotHooks;

pub use gates::{GateCommand, GateMoment, PilotGate, report_name};
pub use listing::list_settings;
pub use notify::NoticeReceiver;
pub use read::read_config;
pub use ship::{ShipConfig, ShipMoment};

/// The place of the file in a project.
pub const CONFIG_FILE: &str = ".writ/pilot.toml";
/// The place of the owner's own file in a home: it holds for all projects.
pub const OWNER_FILE: &str = "pilot.toml";
/// The largest file, in bytes.
pub const MAX_CONFIG_BYTES: usize = 256 * 1024;
/// The most models of one tier.
pub const MAX_TIER_MODELS: usize = 16;
/// The most gates of a project.
pub const MAX_GATES: usize = 32;

/// The effort of a model that reasons, where the engine's settings name none for its role: the middle course of most providers.
const REASONING: Effort = Effort::Medium;

/// The names and texts of files, the weakest first.
pub(crate) type SettingsTexts = Vec<(String, String)>;

/// A setting that cannot be used. Nothing of the file is taken over then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}, line {line}: {problem}")]
pub struct PilotConfigError {
    /// The file.
    pub file: String,
    /// The line, counted from one; the first one for a file that cannot be read at all.
    pub line: usize,
    /// The dotted path of the key; empty for a file that cannot be read at all.
    pub key: String,
    /// The mistake, with the key.
    pub problem: String,
    /// The next thing to do.
    pub hint: String,
}

impl ToReport for PilotConfigError {
    fn report(&self) -> Report {
        Report::new(Exit::Config, "pilot.config", self.to_string()).with_hint(self.hint.clone())
    }
}

/// The work trees of slices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WorktreeMode {
    /// Each slice has its own branch and work tree.
    #[default]
    BranchPerSlice,
    /// The slices of a milestone share one.
    MilestonePerWorktree,
}

impl WorktreeMode {
    /// Returns its name in the file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::BranchPerSlice => "branch-per-slice",
            Self::MilestonePerWorktree => "milestone-per-worktree",
        }
    }
}

/// The reaction to a worker that asks a person: for an approval, or at the end of a reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InputRequired {
    /// The next turn reads that no person is there, and goes on.
    #[default]
    Soft,
    /// The attempt has failed.
    Hard,
    /// A person is there: an approval waits for them, as long as an attempt may take.
    Ask,
}

/// The way in which documents follow a change before it is merged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DocSync {
    /// No agent is asked about them.
    Off,
    /// A proposed change of them waits for a person.
    #[default]
    Asked,
    /// A proposed change of them is committed.
    Unasked,
}

/// A class of models.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PilotTier {
    /// Cheap and quick.
    Fast,
    /// For most of the work.
    Standard,
    /// For decisions.
    Reasoning,
}

impl PilotTier {
    /// Every tier, the cheapest first.
    pub const ALL: [Self; 3] = [Self::Fast, Self::Standard, Self::Reasoning];

    /// Returns its name in the file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fast => "fast",
            Self::Standard => "standard",
            Self::Reasoning => "reasoning",
        }
    }

    /// Returns the tier that is so many steps above; the highest at most.
    #[must_use]
    pub fn raised_by(self, steps: u32) -> Self {
        let above = Self::ALL.into_iter().skip_while(|tier| *tier != self);
        above.take(usize::try_from(steps).unwrap_or(usize::MAX).saturating_add(1)).last().unwrap_or(self)
    }
}

/// The time limits of work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PilotTimes {
    /// From one tick of the scheduler to the next.
    pub poll_interval: Duration,
    /// From one round of the supervisor to the next.
    pub supervisor_interval: Duration,
    /// An attempt, in a phase without a limit of its own.
    pub unit: Duration,
    /// An attempt in each phase; none: as long as it takes.
    pub unit_by_phase: BTreeMap<PilotPhase, Option<Duration>>,
    /// One turn.
    pub turn: Duration,
    /// The steps of an abort.
    pub abort: AbortTimes,
    /// The longest pause after failures.
    pub max_backoff: Duration,
}

impl Default for PilotTimes {
    fn default() -> Self {
        use PilotPhase::{Execute, Merge, Plan, Reassess, Research, Review, Tdd, Uat, Verify};
        let minutes = |count: u64| Some(Duration::from_secs(count * 60));
        // SF 14.2; acceptance waits for a person, so it has no limit.
        let unit_by_phase = BTreeMap::from([
            (Research, minutes(30)),
            (Plan, minutes(20)),
            (Execute, minutes(15)),
            (Tdd, minutes(10)),
            (Verify, minutes(10)),
            (Review, minutes(15)),
            (Merge, minutes(5)),
            (Reassess, minutes(20)),
            (Uat, None),
        ]);
        Self {
            poll_interval: Duration::from_secs(1),
            supervisor_interval: Duration::from_secs(10),
            unit: Duration::from_secs(600),
            unit_by_phase,
            turn: Duration::from_secs(300),
            abort: AbortTimes::default(),
            max_backoff: Duration::from_secs(300),
        }
    }
}

impl PilotTimes {
    /// Returns the longest time of an attempt in a phase; `None`: as long as it takes.
    pub fn unit_timeout(&self, phase: PilotPhase) -> Option<Duration> {
        self.unit_by_phase.get(&phase).copied().unwrap_or(Some(self.unit))
    }
}

/// All settings, checked. What a file does not say has the default of SF 14.2.
// tidy: plain state
#[derive(Clone, Debug, PartialEq)]
pub struct PilotConfig {
    /// The branch that work is merged to; none: the one that is checked out.
    pub target_branch: Option<String>,
    /// The workflow of units that name none.
    pub default_workflow: Option<String>,
    /// The folder of workspaces, below the project.
    pub workspace_root: String,
    /// The work trees of slices.
    pub worktree_mode: WorktreeMode,
    /// The reaction to a question of a worker.
    pub input_required: InputRequired,
    /// The way in which documents follow a change.
    pub doc_sync: DocSync,
    /// Set if agents may change the open part of the plan that they work on.
    pub agents_change_plan: bool,
    /// The most turns of one attempt.
    pub max_turns: u32,
    /// The part of the context above which an attempt ends, where nothing more can leave it.
    pub context_hard_limit: f64,
    /// The most workers at a time.
    pub agents: AgentCaps,
    /// The limits of the machine of units.
    pub limits: UnitLimits,
    /// The limits of the supervisor.
    pub supervisor: SupervisorLimits,
    /// The time limits.
    pub times: PilotTimes,
    /// Ceilings of money; a scope without one is bound by those around it, and by the engine's own budgets.
    pub ceilings: ScopeMoney,
    /// The tier of the model of each phase.
    pub routing: BTreeMap<PilotPhase, PilotTier>,
    /// The names of models of each tier, the preferred one first; none: the model of the engine.
    pub tiers: BTreeMap<PilotTier, Vec<String>>,
    /// The complexity of a unit above which the next higher tier is taken, from 0 to 1.
    pub complexity_threshold: f64,
    /// The weights of the choice of a model in its tier.
    pub scores: ScoreWeights,
    /// Failed tries after each of which the next higher tier is taken.
    pub escalate_after: u32,
    /// The gates, in the order of the file.
    pub gates: Vec<PilotGate>,
    /// The hooks around attempts.
    pub hooks: PilotHooks,
    /// The requests that are opened at a forge; none: work is merged here alone.
    pub ship: Option<ShipConfig>,
    /// The receivers of notices about units.
    pub notify: Vec<NoticeReceiver>,
    /// Paths that agents leave as they are, besides those that are protected always.
    pub protected_paths: Vec<String>,
}

impl Default for PilotConfig {
    fn default() -> Self {
        use PilotPhase::{Complete, Execute, Merge, Plan, Reassess, Research, Review, Tdd, Verify};
        let routing = [
            (PilotTier::Reasoning, [Research, Plan, Reassess]),
            (PilotTier::Standard, [Execute, Tdd, Review]),
            (PilotTier::Fast, [Verify, Merge, Complete]),
        ];
        let pairs = routing.into_iter().flat_map(|(tier, phases)| phases.map(|phase| (phase, tier)));
        Self {
            target_branch: None,
            default_workflow: None,
            workspace_root: ".writ/workspaces".to_owned(),
            worktree_mode: WorktreeMode::default(),
            input_required: InputRequired::default(),
            doc_sync: DocSync::default(),
            agents_change_plan: true,
            max_turns: 50,
            context_hard_limit: 0.95,
            agents: AgentCaps::default(),
            limits: UnitLimits::default(),
            supervisor: SupervisorLimits::default(),
            times: PilotTimes::default(),
            ceilings: ScopeMoney::new(),
            routing: pairs.collect(),
            tiers: BTreeMap::new(),
            complexity_threshold: 0.6,
            scores: ScoreWeights::default(),
            escalate_after: 2,
            gates: Vec::new(),
            hooks: PilotHooks::default(),
            ship: None,
            notify: Vec::new(),
            protected_paths: Vec::new(),
        }
    }
}

impl PilotConfig {
    /// Returns the tier and the models of a phase after so many failed tries: those of the phase first, later those of the higher
    /// tiers that have some; a complex unit begins one tier higher. Without models it is the model of the engine.
    pub fn models_of(&self, phase: PilotPhase, failed: u32, is_complex: bool) -> (PilotTier, &[String]) {
        // Acceptance has no model; a phase without a tier has the most frequent one.
        let first = self.routing.get(&phase).copied().unwrap_or(PilotTier::Standard);
        let steps = failed.checked_div(self.escalate_after).unwrap_or(0);
        let raised = first.raised_by(steps.saturating_add(u32::from(is_complex)));
        let (tier, models) = self.tiers.range(first..=raised).next_back().unzip();
        (tier.copied().unwrap_or(first), models.map_or(&[], Vec::as_slice))
    }

    /// Returns the settings of the turns of an attempt. A tier for decisions reasons, as phases that decide do (SF 15.2, 4.7).
    pub fn attempt_terms(&self, phase: PilotPhase, tier: PilotTier) -> AttemptTerms {
        let reasons = phase.is_thinking() || tier == PilotTier::Reasoning;
        AttemptTerms {
            effort: reasons.then_some(REASONING),
            max_turns: Some(self.max_turns),
            evict_above: Share::try_from(self.supervisor.compact_at).ok(),
            end_above: Share::try_from(self.context_hard_limit).ok(),
            tool_end: Some(ToolEndTimes {
                grace_ms: millis(self.times.abort.grace),
                kill_ms: millis(self.times.abort.kill),
            }),
        }
    }

    /// Returns the gates of one moment, in the order of the file.
    pub fn gates_at(&self, moment: GateMoment) -> impl Iterator<Item = &PilotGate> {
        self.gates.iter().filter(move |gate| gate.at == moment)
    }

    /// Returns the settings that a running session takes over from a newer file: all but those that are fixed for it (SF 14.3).
    #[must_use]
    pub fn take_live(&self, newer: Self) -> Self {
        let supervisor = SupervisorLimits { compact_at: self.supervisor.compact_at, ..newer.supervisor };
        Self {
            worktree_mode: self.worktree_mode,
            workspace_root: self.workspace_root.clone(),
            context_hard_limit: self.context_hard_limit,
            supervisor,
            ..newer
        }
    }

    /// Returns the settings of a newer file that need a restart: name, value in use, value of the file.
    pub fn list_drift(&self, newer: &Self) -> Vec<(&'static str, String, String)> {
        let part = |value: f64| value.to_string();
        let all = [
            ("worktree_mode", self.worktree_mode.name().to_owned(), newer.worktree_mode.name().to_owned()),
            ("workspace_root", self.workspace_root.clone(), newer.workspace_root.clone()),
            ("context_compact_at", part(self.supervisor.compact_at), part(newer.supervisor.compact_at)),
            ("context_hard_limit", part(self.context_hard_limit), part(newer.context_hard_limit)),
        ];
        all.into_iter().filter(|(_, old, new)| old != new).collect()
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Reads the settings of a project, with the owner's own file below them. Files that are not there say nothing.
///
/// # Errors
///
/// The first mistake of a file, or a script of a gate that cannot be run.
pub fn load_config(owner_file: Option<&Path>, project: &Path) -> Result<PilotConfig, PilotConfigError> {
    parse_texts(&read_texts(owner_file, project)?, project)
}

/// Reads the names and texts of the files that are there, the weakest first.
///
/// # Errors
///
/// If one cannot be read, or is no text.
pub(crate) fn read_texts(
    owner_file: Option<&Path>,
    project: &Path,
) -> Result<SettingsTexts, PilotConfigError> {
    let mut texts = SettingsTexts::new();
    if let Some(path) = owner_file
        && let Some(text) = read_file(path, &path.display().to_string())?
    {
        texts.push((path.display().to_string(), text));
    }
    if let Some(text) = read_file(&project.join(CONFIG_FILE), CONFIG_FILE)? {
        texts.push((CONFIG_FILE.to_owned(), text));
    }
    Ok(texts)
}

/// Reads the settings from the texts of a project's files.
///
/// # Errors
///
/// The first mistake of a text, or a script of a gate that cannot be run.
pub(crate) fn parse_texts(texts: &SettingsTexts, project: &Path) -> Result<PilotConfig, PilotConfigError> {
    let files: Vec<(&str, &str)> = texts.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    let config = read_config(&files)?;
    gates::check_scripts(&config.gates, project)?;
    hooks::check_hooks(&config.hooks, project)?;
    Ok(config)
}

fn read_file(path: &Path, name: &str) -> Result<Option<String>, PilotConfigError> {
    let fail = |problem: String, hint: &str| PilotConfigError {
        file: name.to_owned(),
        line: 1,
        key: String::new(),
        problem,
        hint: hint.to_owned(),
    };
    let is_file = match std::fs::metadata(path) {
        Ok(found) => found.is_file(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(fail(format!("it cannot be read: {error}"), "correct its permissions")),
    };
    // A pipe in its place would never end.
    if !is_file {
        return Err(fail("it is no file".to_owned(), "put a file of settings in its place, or remove it"));
    }
    let mut bytes = Vec::new();
    let most = u64::try_from(MAX_CONFIG_BYTES).unwrap_or(u64::MAX).saturating_add(1);
    std::fs::File::open(path)
        .and_then(|file| file.take(most).read_to_end(&mut bytes))
        .map_err(|error| fail(format!("it cannot be read: {error}"), "correct its permissions"))?;
    let text =
        String::from_utf8(bytes).map_err(|_| fail("it is not UTF-8 text".to_owned(), "save it as UTF-8"))?;
    Ok(Some(text.strip_prefix('\u{feff}').map_or_else(|| text.clone(), str::to_owned)))
}

#[cfg(test)]
mod tests;
