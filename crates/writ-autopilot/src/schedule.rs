//! The choices of the scheduler: which units are handed out now, and why the others wait.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use writ_types::unit::Timestamp;

use crate::machine::NextTry;
use crate::phase::PilotPhase;
use crate::stand::PhaseStatus;
use crate::unit_id::UnitId;

/// The most units that are looked at in one tick: the store hands out those that are due, by priority.
pub const MAX_CANDIDATES: usize = 1_000;
/// The pause before a unit with a clean end goes on (SF 5.5).
pub const CONTINUATION_DELAY: Duration = Duration::from_secs(1);
/// The first step of the pause after a failure (SF 5.5).
const BACKOFF_STEP: Duration = Duration::from_secs(10);
/// The longest pause that a provider's answer can ask for: a daily quota.
const MAX_PROVIDER_PAUSE: Duration = Duration::from_secs(24 * 60 * 60);

/// A unit that could be handed out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The unit.
    pub id: UnitId,
    /// Its phase.
    pub phase: PilotPhase,
    /// Its status.
    pub status: PhaseStatus,
    /// From 1 to 4; none comes last.
    pub priority: Option<u8>,
    /// The time at which it was planned.
    pub created_at: Timestamp,
    /// The earliest time of its next try.
    pub not_before: Option<Timestamp>,
    /// Units that it waits for and that have not ended.
    pub open_upstreams: u32,
    /// Set if a blocker holds it, or if it was deleted.
    pub is_held: bool,
    /// Set if another holder's claim is valid.
    pub is_claimed: bool,
}

/// A unit that a worker has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunningUnit {
    /// The unit.
    pub id: UnitId,
    /// Its phase.
    pub phase: PilotPhase,
}

/// The most workers at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentCaps {
    /// Of all phases together.
    pub max_agents: u32,
    /// Of a phase; a phase without a number has that of all together (G-25).
    pub by_phase: BTreeMap<PilotPhase, u32>,
}

impl Default for AgentCaps {
    fn default() -> Self {
        use PilotPhase::{Execute, Merge, Review, Tdd, Verify};
        let by_phase = [(Execute, 4), (Tdd, 4), (Verify, 10), (Review, 4), (Merge, 1)];
        Self { max_agents: 10, by_phase: BTreeMap::from(by_phase) }
    }
}

/// A number of workers that makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CapsError {
    /// No worker would ever run.
    #[error("the number of workers must be at least 1")]
    Zero,
    /// Two merges at a time would check each other's old target.
    #[error("at most one merge runs at a time")]
    SeveralMerges,
}

impl AgentCaps {
    /// Checks the numbers.
    ///
    /// # Errors
    ///
    /// If one is zero, or more than one merge is allowed.
    pub fn check(&self) -> Result<(), CapsError> {
        if self.max_agents == 0 || self.by_phase.values().any(|cap| *cap == 0) {
            return Err(CapsError::Zero);
        }
        // Without a number it is one, independent of the other phases.
        let merges = self.by_phase.get(&PilotPhase::Merge).copied().unwrap_or(1);
        if merges > 1 { Err(CapsError::SeveralMerges) } else { Ok(()) }
    }

    /// Returns the most units, or attempts of one review, at once in a phase.
    #[must_use]
    pub fn cap_of(&self, phase: PilotPhase) -> u32 {
        let merge = if phase == PilotPhase::Merge { 1 } else { self.max_agents };
        self.by_phase.get(&phase).copied().unwrap_or(merge)
    }
}

/// The reason for which a unit is not handed out in this tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WaitReason {
    /// It has ended, or a person or the harness works on it.
    NoWorker,
    /// A blocker holds it.
    Held,
    /// The automatic loop is paused.
    LoopPaused,
    /// Another holder has it.
    Claimed,
    /// It waits for other units. No try is counted (SF 5.3).
    Upstream,
    /// Its time has not come.
    NotYet,
    /// Another unit works in the same folder.
    Workspace,
    /// Its phase has as many workers as it may.
    PhaseCap,
    /// All workers are busy.
    TotalCap,
}

/// The choices of one tick.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TickChoice {
    /// Units to hand out, in order.
    pub dispatch: Vec<UnitId>,
    /// The others, each with the first reason that holds it, in order.
    pub waiting: Vec<(UnitId, WaitReason)>,
}

/// Chooses the units to hand out. Nothing is remembered from tick to tick (SF 5.2).
///
/// Beyond [`MAX_CANDIDATES`] the rest waits for a later tick.
pub fn choose_units(
    candidates: &[Candidate],
    running: &[RunningUnit],
    caps: &AgentCaps,
    is_paused: bool,
    now: Timestamp,
) -> TickChoice {
    let mut ordered: Vec<&Candidate> = candidates.iter().take(MAX_CANDIDATES).collect();
    ordered.sort_by(|one, other| compare_candidates(one, other));
    // Counts what this tick hands out as well: two units of one folder are never chosen together.
    let mut busy = BusyWorkers::new(running);
    let mut choice = TickChoice::default();
    for candidate in ordered {
        let reason = own_reason(candidate, is_paused, now).or_else(|| busy.find_reason(candidate, caps));
        match reason {
            Some(reason) => choice.waiting.push((candidate.id, reason)),
            None => {
                busy.add(candidate.id, candidate.phase);
                choice.dispatch.push(candidate.id);
            }
        }
    }
    choice
}

/// The order of candidates (SF 5.2): priority, those without blockers, earlier phases, older ones, the text of the id.
pub fn compare_candidates(one: &Candidate, other: &Candidate) -> Ordering {
    let key = |unit: &Candidate| {
        (unit.priority.unwrap_or(u8::MAX), unit.open_upstreams > 0, unit.phase, unit.created_at)
    };
    key(one).cmp(&key(other)).then_with(|| one.id.cmp_text(other.id))
}

fn own_reason(unit: &Candidate, is_paused: bool, now: Timestamp) -> Option<WaitReason> {
    // The reason that a person can change comes first; the reasons that pass by themselves follow.
    let is_over = matches!(unit.status, PhaseStatus::Running | PhaseStatus::Canceled);
    if is_over || !unit.phase.has_worker() {
        Some(WaitReason::NoWorker)
    } else if unit.is_held {
        Some(WaitReason::Held)
    } else if is_paused {
        Some(WaitReason::LoopPaused)
    } else if unit.is_claimed {
        Some(WaitReason::Claimed)
    } else if unit.open_upstreams > 0 {
        Some(WaitReason::Upstream)
    } else if unit.not_before.is_some_and(|earliest| earliest > now) {
        Some(WaitReason::NotYet)
    } else {
        None
    }
}

/// The folder that a unit works in: that of its slice, which its tasks share one after another.
pub const fn workspace_of(id: UnitId) -> UnitId {
    match id {
        UnitId::Task(milestone, slice, _) if milestone != 0 || slice != 0 => UnitId::Slice(milestone, slice),
        UnitId::Task(..) | UnitId::Slice(..) | UnitId::Milestone(_) => id,
    }
}

/// The workers that are busy, with those that this tick adds.
struct BusyWorkers {
    total: u32,
    by_phase: BTreeMap<PilotPhase, u32>,
    workspaces: BTreeSet<UnitId>,
}

impl BusyWorkers {
    fn new(running: &[RunningUnit]) -> Self {
        let mut busy = Self { total: 0, by_phase: BTreeMap::new(), workspaces: BTreeSet::new() };
        running.iter().for_each(|unit| busy.add(unit.id, unit.phase));
        busy
    }

    fn add(&mut self, id: UnitId, phase: PilotPhase) {
        self.total = self.total.saturating_add(1);
        let count = self.by_phase.entry(phase).or_default();
        *count = count.saturating_add(1);
        self.workspaces.insert(workspace_of(id));
    }

    fn find_reason(&self, unit: &Candidate, caps: &AgentCaps) -> Option<WaitReason> {
        let in_phase = self.by_phase.get(&unit.phase).copied().unwrap_or(0);
        if self.workspaces.contains(&workspace_of(unit.id)) {
            Some(WaitReason::Workspace)
        } else if in_phase >= caps.cap_of(unit.phase) {
            Some(WaitReason::PhaseCap)
        } else if self.total >= caps.max_agents {
            Some(WaitReason::TotalCap)
        } else {
            None
        }
    }
}

/// Returns the pause before the next try after so many failures in a row: 20 s after the first, then twice as long each time,
/// up to a limit (SF 5.5).
pub fn backoff_delay(failures: u32, most: Duration) -> Duration {
    if failures == 0 {
        return Duration::ZERO;
    }
    // Beyond 2^30 steps every limit is reached.
    let factor = 1_u32 << failures.min(30);
    BACKOFF_STEP.checked_mul(factor).unwrap_or(most).min(most)
}

/// Returns the earliest time of the next try; `None` for none. A provider that names a later time is obeyed, so that a used-up
/// daily quota is not asked again and again.
pub fn next_try_at(
    next: NextTry,
    most: Duration,
    provider: Option<Timestamp>,
    now: Timestamp,
) -> Option<Timestamp> {
    let delay = match next {
        NextTry::None => return None,
        NextTry::Soon => CONTINUATION_DELAY,
        NextTry::AfterFailures(failures) => backoff_delay(failures, most),
    };
    let own = now.plus_duration(delay);
    // An answer may hold any number: a day is as far as one reaches.
    let latest = now.plus_duration(MAX_PROVIDER_PAUSE);
    Some(provider.map_or(own, |at| at.min(latest).max(own)))
}

#[cfg(test)]
mod tests;
