//! The ten phases of a unit, and the one table of the moves between them.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A phase of a unit's work. The order is that of the standard flow; the last two are entered only for a cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PilotPhase {
    /// Gathers what the work rests on.
    Research,
    /// Writes the unit's `plan.md`.
    Plan,
    /// Writes the code.
    Execute,
    /// Writes tests for it: first failing, then passing.
    Tdd,
    /// Runs the gates: tests, lint, types.
    Verify,
    /// Looks for mistakes of correctness, style and security.
    Review,
    /// Joins the branch with the target, and checks the result.
    Merge,
    /// Records the result and archives the unit.
    Complete,
    /// Decides anew: another plan, an end, or questions to a person.
    Reassess,
    /// Waits for a person's acceptance.
    Uat,
}

/// Text that names no phase.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no phase")]
pub struct UnknownPhase(pub String);

impl PilotPhase {
    /// Every phase.
    pub const ALL: [Self; 10] = [
        Self::Research,
        Self::Plan,
        Self::Execute,
        Self::Tdd,
        Self::Verify,
        Self::Review,
        Self::Merge,
        Self::Complete,
        Self::Reassess,
        Self::Uat,
    ];

    /// Returns its name in files and rows.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Research => "research",
            Self::Plan => "plan",
            Self::Execute => "execute",
            Self::Tdd => "tdd",
            Self::Verify => "verify",
            Self::Review => "review",
            Self::Merge => "merge",
            Self::Complete => "complete",
            Self::Reassess => "reassess",
            Self::Uat => "uat",
        }
    }

    /// Reads the name of a phase.
    ///
    /// # Errors
    ///
    /// If no phase has this name.
    pub fn parse_name(name: &str) -> Result<Self, UnknownPhase> {
        let found = Self::ALL.into_iter().find(|phase| phase.name() == name);
        // The text may be long: it was written by a person or an agent.
        found.ok_or_else(|| UnknownPhase(name.chars().take(60).collect()))
    }

    /// Returns true if its model calls are made with thinking on. No agent can change it (SF 4.7).
    pub const fn is_thinking(self) -> bool {
        matches!(self, Self::Research | Self::Plan | Self::Reassess)
    }

    /// Returns true if an agent works in it; in the others the harness or a person does.
    pub const fn has_worker(self) -> bool {
        !matches!(self, Self::Uat | Self::Complete)
    }
}

impl fmt::Display for PilotPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The cause of a move from one phase to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MoveCause {
    /// The phase has met its conditions; the pinned workflow names the next one.
    Advance,
    /// A gate has failed, and tries are left.
    GateFailed,
    /// A gate has failed as often as it may.
    GatesExhausted,
    /// A gate wants no further try.
    GateBlocked,
    /// The review asks for changes, or blocks.
    ChangesRequested,
    /// The review has asked for changes as often as it may.
    ReviewExhausted,
    /// The branch does not join with its target.
    MergeConflict,
    /// The merged result does not pass the checks that both sides passed alone.
    MergedChecksFailed,
    /// The worker has given up.
    GaveUp,
    /// Attempts in this phase have failed as often as they may.
    AttemptsExhausted,
    /// The supervisor has ended the work.
    Halted,
    /// A unit that this one depends on was abandoned.
    UpstreamAbandoned,
    /// A person rejects the result.
    UatRejected,
    /// A person accepts the result.
    UatApproved,
    /// The decision is another plan.
    Replan,
    /// The decision is to end the unit.
    Abandon,
}

impl MoveCause {
    /// Every cause.
    pub const ALL: [Self; 16] = [
        Self::Advance,
        Self::GateFailed,
        Self::GatesExhausted,
        Self::GateBlocked,
        Self::ChangesRequested,
        Self::ReviewExhausted,
        Self::MergeConflict,
        Self::MergedChecksFailed,
        Self::GaveUp,
        Self::AttemptsExhausted,
        Self::Halted,
        Self::UpstreamAbandoned,
        Self::UatRejected,
        Self::UatApproved,
        Self::Replan,
        Self::Abandon,
    ];

    /// Returns its name in rows of transitions.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Advance => "advance",
            Self::GateFailed => "gate_failed",
            Self::GatesExhausted => "gates_exhausted",
            Self::GateBlocked => "gate_blocked",
            Self::ChangesRequested => "changes_requested",
            Self::ReviewExhausted => "review_exhausted",
            Self::MergeConflict => "merge_conflict",
            Self::MergedChecksFailed => "merged_checks_failed",
            Self::GaveUp => "gave_up",
            Self::AttemptsExhausted => "attempts_exhausted",
            Self::Halted => "halted",
            Self::UpstreamAbandoned => "upstream_abandoned",
            Self::UatRejected => "uat_rejected",
            Self::UatApproved => "uat_approved",
            Self::Replan => "replan",
            Self::Abandon => "abandon",
        }
    }
}

/// The one cause of the standard flow.
const ADVANCE: &[MoveCause] = &[MoveCause::Advance];
/// Causes that lead to another decision from every phase with a worker.
const GIVEN_UP: &[MoveCause] =
    &[MoveCause::GaveUp, MoveCause::AttemptsExhausted, MoveCause::Halted, MoveCause::UpstreamAbandoned];

/// Returns the causes that can lead from one phase to another; none: the move is always refused.
///
/// This is the only table of moves (SF 4.2, with the edges that the third resolution adds). A move that advances is possible
/// only if the pinned workflow has both phases, the second right after the first: [`check_move`] asks that too.
// tidy: table
pub const fn causes_between(from: PilotPhase, to: PilotPhase) -> &'static [MoveCause] {
    use PilotPhase::{Complete, Execute, Merge, Plan, Reassess, Research, Review, Tdd, Uat, Verify};
    match (from, to) {
        (Research, Plan | Execute | Tdd | Verify | Review | Merge | Complete | Uat)
        | (Plan, Execute | Tdd | Verify | Review | Merge | Complete | Uat)
        | (Execute, Tdd | Verify | Review | Merge | Complete | Uat)
        // A mend of a defect writes the failing test first.
        | (Tdd, Execute | Verify | Review | Merge | Complete | Uat)
        | (Verify, Review | Merge | Complete | Uat)
        | (Review, Merge | Complete | Uat)
        | (Merge, Complete | Uat) => ADVANCE,
        (Verify, Execute) => &[MoveCause::GateFailed],
        (Review, Execute) => &[MoveCause::ChangesRequested],
        (Research | Plan | Execute | Tdd, Reassess) => GIVEN_UP,
        (Verify, Reassess) => &[
            MoveCause::GatesExhausted,
            MoveCause::GateBlocked,
            MoveCause::GaveUp,
            MoveCause::AttemptsExhausted,
            MoveCause::Halted,
            MoveCause::UpstreamAbandoned,
        ],
        (Review, Reassess) => &[
            MoveCause::ReviewExhausted,
            MoveCause::GaveUp,
            MoveCause::AttemptsExhausted,
            MoveCause::Halted,
            MoveCause::UpstreamAbandoned,
        ],
        (Merge, Reassess) => &[
            MoveCause::MergeConflict,
            MoveCause::MergedChecksFailed,
            MoveCause::GaveUp,
            MoveCause::AttemptsExhausted,
            MoveCause::Halted,
            MoveCause::UpstreamAbandoned,
        ],
        (Uat, Merge | Complete) => &[MoveCause::UatApproved],
        (Uat, Reassess) => &[MoveCause::UatRejected, MoveCause::UpstreamAbandoned],
        (Reassess, Plan) => &[MoveCause::Replan],
        (Reassess, Complete) => &[MoveCause::Abandon],
        (Research, Research)
        | (Plan, Research | Plan)
        | (Execute, Research | Plan | Execute)
        | (Tdd, Research | Plan | Tdd)
        | (Verify, Research | Plan | Tdd | Verify)
        | (Review, Research | Plan | Tdd | Verify | Review)
        | (Merge, Research | Plan | Execute | Tdd | Verify | Review | Merge)
        // The end is the end: what comes later is another unit.
        | (
            Complete,
            Research | Plan | Execute | Tdd | Verify | Review | Merge | Complete | Reassess | Uat,
        )
        | (Reassess, Research | Execute | Tdd | Verify | Review | Merge | Reassess | Uat)
        | (Uat, Research | Plan | Execute | Tdd | Verify | Review | Uat) => &[],
    }
}

/// A move that the table or the pinned workflow does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no move from {from} to {to} for the cause {}", cause.name())]
pub struct RefusedMove {
    /// The phase that the unit is in.
    pub from: PilotPhase,
    /// The phase that was asked for.
    pub to: PilotPhase,
    /// The cause that was given.
    pub cause: MoveCause,
}

/// Checks a move against the table and the phases of the pinned workflow.
///
/// # Errors
///
/// If the pair does not have this cause, or the workflow has another order.
pub fn check_move(
    phases: &[PilotPhase],
    from: PilotPhase,
    to: PilotPhase,
    cause: MoveCause,
) -> Result<(), RefusedMove> {
    let refused = RefusedMove { from, to, cause };
    if !causes_between(from, to).contains(&cause) {
        return Err(refused);
    }
    // A person's acceptance goes on like any other end of a phase.
    let follows = matches!(cause, MoveCause::Advance | MoveCause::UatApproved);
    // A decision is possible in every workflow; going back needs the phase.
    let is_there = if follows {
        phase_after(phases, from) == Some(to)
    } else {
        to == PilotPhase::Reassess || phases.contains(&to)
    };
    if is_there { Ok(()) } else { Err(refused) }
}

/// Returns the phase that a workflow has right after another.
pub fn phase_after(phases: &[PilotPhase], phase: PilotPhase) -> Option<PilotPhase> {
    let at = phases.iter().position(|other| *other == phase)?;
    phases.get(at + 1).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use PilotPhase as Is;

    const FEATURE: [Is; 8] =
        [Is::Research, Is::Plan, Is::Execute, Is::Tdd, Is::Verify, Is::Review, Is::Merge, Is::Complete];

    /// The moves of the text (SF 4.2, 4.5, 4.6, and the third resolution), written down a second time as words.
    const MOVES: &str = "
        research>reassess plan>reassess execute>reassess tdd>reassess: gave_up attempts_exhausted halted upstream_abandoned
        verify>reassess: gates_exhausted gate_blocked gave_up attempts_exhausted halted upstream_abandoned
        review>reassess: review_exhausted gave_up attempts_exhausted halted upstream_abandoned
        merge>reassess: merge_conflict merged_checks_failed gave_up attempts_exhausted halted upstream_abandoned
        uat>reassess: uat_rejected upstream_abandoned
        verify>execute: gate_failed
        review>execute: changes_requested
        reassess>plan: replan
        reassess>complete: abandon
        uat>merge uat>complete: uat_approved
        research>plan research>execute research>tdd research>verify research>review research>uat research>merge research>complete: advance
        plan>execute plan>tdd plan>verify plan>review plan>uat plan>merge plan>complete: advance
        execute>tdd execute>verify execute>review execute>uat execute>merge execute>complete: advance
        tdd>execute tdd>verify tdd>review tdd>uat tdd>merge tdd>complete: advance
        verify>review verify>uat verify>merge verify>complete: advance
        review>uat review>merge review>complete: advance
        merge>uat merge>complete: advance";

    fn listed_causes(from: Is, to: Is) -> Vec<&'static str> {
        let pair = format!("{from}>{to}");
        let rows = MOVES.lines().filter_map(|line| line.split_once(':'));
        let found = rows.filter(|(pairs, _)| pairs.split_whitespace().any(|other| other == pair));
        found.flat_map(|(_, causes)| causes.split_whitespace()).collect()
    }

    /// Rows: SF-069
    #[test]
    fn ten_phases_have_a_name_each_and_no_other_text_is_one() {
        assert_eq!(Is::ALL.len(), 10);
        let names: Vec<&str> = Is::ALL.iter().map(|phase| phase.name()).collect();
        assert_eq!(names.join(" "), "research plan execute tdd verify review merge complete reassess uat");
        for phase in Is::ALL {
            assert_eq!(Is::parse_name(phase.name()), Ok(phase));
            assert_eq!(serde_json::to_value(phase).unwrap(), phase.name());
        }
        for text in ["", "Plan", "planning", " plan", "done"] {
            assert_eq!(Is::parse_name(text), Err(UnknownPhase(text.to_owned())));
        }
        assert_eq!(Is::parse_name(&"é".repeat(500)).unwrap_err().0.chars().count(), 60);
    }

    /// All hundred pairs, with every cause: the table and the words agree, and what neither names is refused.
    ///
    /// Rows: SF-081 (in part: the table; what a unit does with it: the machine's tests)
    #[test]
    fn every_pair_of_phases_has_the_causes_of_the_text_and_no_other() {
        let mut pairs = 0;
        for from in Is::ALL {
            for to in Is::ALL {
                pairs += 1;
                let listed = listed_causes(from, to);
                let named: Vec<&str> = causes_between(from, to).iter().map(|cause| cause.name()).collect();
                assert_eq!(named, listed, "{from}>{to}");
                for cause in MoveCause::ALL {
                    // A workflow of just this pair: where a cause follows the workflow, the order is given.
                    let checked = check_move(&[from, to], from, to, cause);
                    assert_eq!(checked.is_ok(), listed.contains(&cause.name()), "{from}>{to} {cause:?}");
                }
            }
        }
        assert_eq!(pairs, 100);
    }

    /// Rows: SF-077 (the table; the rows of a run need the store) SF-092 (a jump over tdd)
    #[test]
    fn only_the_next_phase_of_the_pinned_workflow_can_be_advanced_to() {
        let advance = |from, to| check_move(&FEATURE, from, to, MoveCause::Advance);
        for pair in FEATURE.windows(2) {
            assert_eq!(advance(pair[0], pair[1]), Ok(()));
        }
        for (from, to) in [(Is::Execute, Is::Verify), (Is::Plan, Is::Tdd), (Is::Review, Is::Complete)] {
            assert_eq!(advance(from, to), Err(RefusedMove { from, to, cause: MoveCause::Advance }));
        }
        let spike = [Is::Research, Is::Plan, Is::Execute, Is::Complete];
        assert_eq!(check_move(&spike, Is::Execute, Is::Complete, MoveCause::Advance), Ok(()));
        // Going back needs the phase, too.
        let bare = [Is::Verify, Is::Complete];
        assert!(check_move(&bare, Is::Verify, Is::Execute, MoveCause::GateFailed).is_err());
        assert!(check_move(&[Is::Execute], Is::Reassess, Is::Plan, MoveCause::Replan).is_err());
    }

    /// Rows: SF-086 (the choice; the requests need the shell)
    #[test]
    fn thinking_is_on_where_a_decision_is_made() {
        let thinking: Vec<&str> =
            Is::ALL.iter().filter(|phase| phase.is_thinking()).map(|phase| phase.name()).collect();
        assert_eq!(thinking, ["research", "plan", "reassess"]);
    }
}
