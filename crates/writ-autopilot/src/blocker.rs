//! Blockers: the reasons for which a unit waits, and the resolutions that each of them accepts.

use serde::{Deserialize, Serialize};

/// The event that a blocker was opened for (SF 3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BlockerKind {
    /// A gate has failed as often as it may, or wants no further try. Work goes on: the unit is reassessed.
    GateBlocked,
    /// A branch does not join with its target.
    MergeConflict,
    /// The unit waits for a person.
    Paused,
    /// A result waits for a person's acceptance.
    UatPending,
}

impl BlockerKind {
    /// Every kind.
    pub const ALL: [Self; 4] = [Self::GateBlocked, Self::MergeConflict, Self::Paused, Self::UatPending];

    /// Returns true if a unit with such a blocker is not handed to a worker.
    pub const fn holds_work(self) -> bool {
        !matches!(self, Self::GateBlocked)
    }
}

/// The reason of a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PauseCause {
    /// The worker has asked for a person.
    WorkerBlocked,
    /// Attempts end cleanly and nothing comes of them.
    Stuck,
    /// The decision was to ask a person.
    Escalated,
    /// The review blocks for security or correctness.
    ReviewBlocked,
    /// No gate has proven anything.
    NothingChecked,
    /// Nothing was changed that could be merged: no work is no delivery. Only a person can say that it is over.
    NothingChanged,
    /// The unit was handed out as often as it may.
    DispatchCap,
    /// The target branch moved at each try of a merge.
    BaseMoves,
    /// A gate of a milestone has not passed: what it judges is merged already, so no agent can mend it.
    MilestoneGates,
    /// Money, tokens or time of a ceiling are used up. A person can lift it.
    Ceiling,
    /// Attempts have failed where no other decision is possible.
    AttemptsExhausted,
    /// A change of the project's documents waits for a person's answer.
    Documents,
    /// A check of the supervisor.
    Supervisor,
    /// A person's order.
    Person,
}

/// An open blocker of a unit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Blocker {
    /// The event.
    pub kind: BlockerKind,
    /// The gate, for [`BlockerKind::GateBlocked`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gate: Option<String>,
    /// The reason, for [`BlockerKind::Paused`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause: Option<PauseCause>,
}

/// The event or command that resolves a blocker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BlockerResolver {
    /// The harness: the reason is over.
    Auto,
    /// `writ pilot resume`.
    Resume,
    /// `writ pilot force-clear`.
    ForceClear,
    /// `writ pilot revert`.
    Revert,
    /// `writ pilot merge-resolve`.
    MergeResolve,
    /// A hook that works on the repository.
    GitHook,
    /// `writ pilot uat-approve`.
    UatApprove,
    /// `writ pilot uat-reject`.
    UatReject,
    /// `writ pilot reassess-resolve`.
    ReassessResolve,
}

impl BlockerResolver {
    /// Every resolver.
    pub const ALL: [Self; 9] = [
        Self::Auto,
        Self::Resume,
        Self::ForceClear,
        Self::Revert,
        Self::MergeResolve,
        Self::GitHook,
        Self::UatApprove,
        Self::UatReject,
        Self::ReassessResolve,
    ];

    /// Returns the text of the row's `resolved_by`: `auto`, `user`, or the name of the command.
    pub const fn recorded_name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Resume => "user",
            Self::ForceClear => "force-clear",
            Self::Revert => "revert",
            Self::MergeResolve => "merge-resolve",
            Self::GitHook => "git-hook",
            Self::UatApprove => "uat-approve",
            Self::UatReject => "uat-reject",
            Self::ReassessResolve => "reassess-resolve",
        }
    }
}

impl Blocker {
    /// Returns a blocker for a gate.
    pub const fn of_gate(gate: String) -> Self {
        Self { kind: BlockerKind::GateBlocked, gate: Some(gate), pause: None }
    }

    /// Returns a blocker for a pause.
    pub const fn of_pause(cause: PauseCause) -> Self {
        Self { kind: BlockerKind::Paused, gate: None, pause: Some(cause) }
    }

    /// Returns a blocker without more to say.
    pub const fn of_kind(kind: BlockerKind) -> Self {
        Self { kind, gate: None, pause: None }
    }

    /// Returns true if a blocker accepts this resolution (SF 3.1).
    pub fn accepts(&self, by: BlockerResolver) -> bool {
        match self.kind {
            // Work goes on with it, so an order to go on would resolve nothing.
            BlockerKind::GateBlocked => matches!(by, BlockerResolver::Auto | BlockerResolver::ForceClear),
            // The repository has to change: a bare order to go on would meet the same conflict.
            BlockerKind::MergeConflict => matches!(
                by,
                BlockerResolver::Revert
                    | BlockerResolver::MergeResolve
                    | BlockerResolver::GitHook
                    | BlockerResolver::ForceClear
            ),
            // Questions are answered, not waited away.
            BlockerKind::Paused if self.pause == Some(PauseCause::Escalated) => {
                by == BlockerResolver::ReassessResolve
            }
            BlockerKind::Paused => by == BlockerResolver::Resume,
            // Going on is no acceptance.
            BlockerKind::UatPending => matches!(by, BlockerResolver::UatApprove | BlockerResolver::UatReject),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows: SF-042 SF-043 SF-044 (which resolutions are accepted; the rows need the store)
    #[test]
    fn each_blocker_accepts_its_own_resolutions_alone() {
        let accepted = |blocker: &Blocker| -> Vec<&str> {
            let all = BlockerResolver::ALL.into_iter().filter(|by| blocker.accepts(*by));
            all.map(BlockerResolver::recorded_name).collect()
        };
        assert_eq!(accepted(&Blocker::of_gate("lint".to_owned())), ["auto", "force-clear"]);
        assert_eq!(
            accepted(&Blocker::of_kind(BlockerKind::MergeConflict)),
            ["force-clear", "revert", "merge-resolve", "git-hook"]
        );
        assert_eq!(accepted(&Blocker::of_kind(BlockerKind::UatPending)), ["uat-approve", "uat-reject"]);
        assert_eq!(accepted(&Blocker::of_pause(PauseCause::Stuck)), ["user"]);
        assert_eq!(accepted(&Blocker::of_pause(PauseCause::Ceiling)), ["user"]);
        assert_eq!(accepted(&Blocker::of_pause(PauseCause::Escalated)), ["reassess-resolve"]);
    }
}
