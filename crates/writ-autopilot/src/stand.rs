//! The durable state of one unit: its phase, its counters, its blockers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::blocker::Blocker;
use crate::phase::{MoveCause, PilotPhase};

/// The state of a unit within its phase (SF 3.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PhaseStatus {
    /// Waits for a worker, or for a person.
    #[default]
    Pending,
    /// A worker has it.
    Running,
    /// The phase is done. For [`PilotPhase::Complete`]: the unit is.
    Succeeded,
    /// The last attempt has failed, or the unit was abandoned.
    Failed,
    /// Ended from outside.
    Canceled,
    /// A crash or an end from the supervisor.
    Interrupted,
}

impl PhaseStatus {
    /// Every status.
    pub const ALL: [Self; 6] =
        [Self::Pending, Self::Running, Self::Succeeded, Self::Failed, Self::Canceled, Self::Interrupted];
}

/// The counters of a unit. They are stored with each move, so a restart resets none of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UnitCounters {
    /// Times that the unit was handed to a worker, in its whole life. Also the number of its newest attempt.
    pub dispatches: u32,
    /// Dispatches that a person has allowed beyond the cap.
    pub extra_dispatches: u32,
    /// Failed attempts in a row in this phase.
    pub failures: u32,
    /// Clean ends in a row in this phase without proven progress.
    pub idle_ends: u32,
    /// Failures of each gate since it passed, since the unit was reassessed, or since it went on from verify.
    pub gate_failures: BTreeMap<String, u32>,
    /// Rounds of the review that asked for changes, since the unit was reassessed or went on from review.
    pub review_rounds: u32,
    /// Times that the unit was planned anew.
    pub replans: u32,
    /// Tries of a merge in a row that found another target than they had checked.
    pub base_moves: u32,
}

/// A unit as it stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UnitStand {
    /// Its phase.
    pub phase: PilotPhase,
    /// Its status in it.
    pub status: PhaseStatus,
    /// Its counters.
    pub counters: UnitCounters,
    /// Its open blockers.
    pub blockers: Vec<Blocker>,
    /// Set if it was given up: it is complete, and nothing was delivered.
    pub is_abandoned: bool,
}

impl UnitStand {
    /// Returns a new unit in the first phase of its workflow.
    pub fn at_start(phases: &[PilotPhase]) -> Self {
        Self {
            // A workflow without phases is refused when it is read.
            phase: phases.first().copied().unwrap_or(PilotPhase::Execute),
            status: PhaseStatus::Pending,
            counters: UnitCounters::default(),
            blockers: Vec::new(),
            is_abandoned: false,
        }
    }

    /// Returns true if nothing follows any more.
    pub const fn is_terminal(&self) -> bool {
        matches!(self.phase, PilotPhase::Complete) || matches!(self.status, PhaseStatus::Canceled)
    }

    /// Returns true if it waits for a person.
    pub fn is_held(&self) -> bool {
        self.blockers.iter().any(|blocker| blocker.kind.holds_work())
    }

    /// Returns the value of the prompt variable `attempt`: none at the first try in a phase.
    pub fn retry_number(&self) -> Option<u32> {
        // A template treats retries apart, so the first try has no number at all.
        (self.counters.failures > 0).then_some(self.counters.failures)
    }
}

/// A change of phase, as it is written down before the next phase begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PhaseChange {
    /// The phase before.
    pub from: PilotPhase,
    /// The phase after.
    pub to: PilotPhase,
    /// The cause.
    pub cause: MoveCause,
}
