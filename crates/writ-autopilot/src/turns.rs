//! The turns of an attempt: what follows each of them.
//!
//! A turn is one prompt until the model yields, with the tool calls in between (resolution 9). The harness alone decides if another one
//! follows, and of which kind it is.

use crate::attempt::{RunEnd, TurnKind, TurnMarker};
use crate::stand::PhaseStatus;

/// The text that a worker reads in place of a person's answer, in a run without a person (SF 7.4).
pub const NO_OPERATOR: &str = "This is a non-interactive session. Operator input is unavailable.";

/// The end of one turn, as the harness has seen it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TurnEnd {
    /// Its number in the attempt, from one on.
    pub number: u32,
    /// The marker at its end.
    pub marker: Option<TurnMarker>,
    /// Set if the reply itself is what the phase was to bring, and can be read.
    pub has_result: bool,
}

/// The step after a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnStep {
    /// Another turn of this number and kind.
    Next(u32, TurnKind),
    /// The attempt ends, and the conditions of the phase are checked.
    Finish,
}

/// Returns the step after a turn of an attempt with so many turns at most: a marker ends the turns (resolution 8), so does a reply
/// that is the result; anything else goes on to the most turns.
pub const fn step_after(end: &TurnEnd, max_turns: u32) -> TurnStep {
    if end.marker.is_some() || end.has_result || end.number >= max_turns {
        return TurnStep::Finish;
    }
    let next = end.number.saturating_add(1);
    TurnStep::Next(next, TurnKind::of_turn(next))
}

/// Returns the end of an attempt because of its unit's state, as it is read between two turns; `None`: it goes on (SF 6, resolution 11).
pub const fn end_between_turns(status: PhaseStatus, has_claim: bool) -> Option<RunEnd> {
    match status {
        PhaseStatus::Canceled => Some(RunEnd::Canceled),
        PhaseStatus::Succeeded => Some(RunEnd::Success),
        PhaseStatus::Running if has_claim => None,
        // No worker expects these: someone else has the unit, or has changed it.
        PhaseStatus::Running | PhaseStatus::Pending | PhaseStatus::Failed | PhaseStatus::Interrupted => {
            Some(RunEnd::Interrupted)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(number: u32, marker: Option<TurnMarker>) -> TurnEnd {
        TurnEnd { number, marker, has_result: false }
    }

    /// Without a marker turns go on to the most of them and no further; each marker and a result end them at once. The kind comes from
    /// the number alone.
    ///
    /// Rows: SF-141 (in part: the cap) SF-144 (in part: the choice) SF-152 (in part: the choice)
    #[test]
    fn turns_go_on_without_a_marker_to_the_most_of_them() {
        for number in 1..50 {
            let next = TurnStep::Next(number + 1, TurnKind::Continuation);
            assert_eq!(step_after(&end(number, None), 50), next);
            for marker in TurnMarker::ALL {
                assert_eq!(step_after(&end(number, Some(marker)), 50), TurnStep::Finish);
            }
            let result = TurnEnd { has_result: true, ..end(number, None) };
            assert_eq!(step_after(&result, 50), TurnStep::Finish);
        }
        assert_eq!(step_after(&end(50, None), 50), TurnStep::Finish);
        assert_eq!(
            step_after(&end(51, None), 50),
            TurnStep::Finish,
            "also if the setting was lowered meanwhile"
        );
        assert_eq!(step_after(&end(1, None), 1), TurnStep::Finish);
        assert_eq!(step_after(&end(u32::MAX, None), u32::MAX), TurnStep::Finish);
    }

    /// A unit that was cancelled or is done gets no further turn, with the outcome of that; one that others have changed is interrupted.
    ///
    /// Rows: SF-151 (in part: the decision; the read between turns needs the shell)
    #[test]
    fn the_state_of_the_unit_ends_an_attempt_between_its_turns() {
        let ends = |has_claim| PhaseStatus::ALL.map(|status| end_between_turns(status, has_claim));
        use RunEnd::{Canceled, Interrupted, Success};
        let interrupted = Some(Interrupted);
        assert_eq!(ends(true), [interrupted, None, Some(Success), interrupted, Some(Canceled), interrupted]);
        assert_eq!(
            ends(false),
            [interrupted, interrupted, Some(Success), interrupted, Some(Canceled), interrupted]
        );
    }
}
