//! The circuit of a model: after failures in a row that would only repeat themselves, the model is not asked for a while.
//!
//! The engine tries a call again, and another model after it, within one attempt. This is about the attempts after that one: each
//! would begin with the same model, and be paid.

use std::time::Duration;

use writ_types::unit::Timestamp;

/// The failures in a row that open a circuit (SF 9.2).
pub const TRIP_AFTER: u32 = 3;
/// The time for which a circuit is open (SF 9.3), and the longest time that failures in a row may lie apart.
pub const OPEN_TIME: Duration = Duration::from_secs(24 * 3_600);

/// The end of one call of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallEnd {
    /// It has answered.
    Answered,
    /// It has failed, and the same call may succeed a little later.
    Transient,
    /// It has failed, and the same call would fail again.
    Lasting,
}

/// The state of a circuit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CircuitState {
    /// The model is asked.
    Closed,
    /// The model is passed over.
    Open,
    /// The model is asked again after the time of an open circuit: one more lasting failure opens it, an answer closes it.
    HalfOpen,
}

impl CircuitState {
    /// Returns its name for people.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half-open",
        }
    }
}

/// The circuit of a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ModelCircuit {
    /// The failures in a row.
    pub fail_count: u32,
    /// The time of the last one.
    pub failed_at: Option<Timestamp>,
    /// The time at which it was opened last.
    pub tripped_at: Option<Timestamp>,
}

impl ModelCircuit {
    /// Returns the time from which the model is asked again; `None`: the circuit was not opened.
    pub fn resets_at(&self) -> Option<Timestamp> {
        self.tripped_at.map(|at| at.plus_duration(OPEN_TIME))
    }

    /// Returns its state.
    pub fn state(&self, now: Timestamp) -> CircuitState {
        match self.resets_at() {
            None => CircuitState::Closed,
            Some(until) if now < until => CircuitState::Open,
            Some(_) => CircuitState::HalfOpen,
        }
    }

    /// Returns the circuit after one more call; `None`: nothing is left to remember.
    #[must_use]
    pub fn after_call(self, end: CallEnd, now: Timestamp) -> Option<Self> {
        let state = self.state(now);
        match (state, end) {
            // A call that began before the circuit opened says nothing about later ones.
            (CircuitState::Open, _) | (_, CallEnd::Transient) => (self != Self::default()).then_some(self),
            (CircuitState::Closed | CircuitState::HalfOpen, CallEnd::Answered) => None,
            (CircuitState::Closed | CircuitState::HalfOpen, CallEnd::Lasting) => {
                let is_in_row = state == CircuitState::HalfOpen
                    || self.failed_at.is_none_or(|at| now.time_since(at) < OPEN_TIME);
                let before = if is_in_row { self.fail_count } else { 0 };
                let fail_count = before.saturating_add(1);
                let tripped_at = (fail_count >= TRIP_AFTER).then_some(now);
                Some(Self { fail_count, failed_at: Some(now), tripped_at })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use CallEnd::{Answered, Lasting, Transient};

    fn at(secs: u64) -> Timestamp {
        Timestamp::from_millis(0).plus_duration(Duration::from_secs(secs))
    }

    /// The circuit after calls, each a second after the one before.
    fn after(calls: &[CallEnd]) -> ModelCircuit {
        let mut circuit = ModelCircuit::default();
        for (end, second) in calls.iter().zip(1..) {
            circuit = circuit.after_call(*end, at(second)).unwrap_or_default();
        }
        circuit
    }

    /// Rows: SF-186 (in part: which failures count)
    #[test]
    fn three_lasting_failures_in_a_row_open_a_circuit() {
        let is_open = |calls: &[CallEnd]| after(calls).state(at(100)) == CircuitState::Open;
        assert!(is_open(&[Lasting, Lasting, Lasting]));
        assert!(
            is_open(&[Lasting, Transient, Lasting, Transient, Lasting]),
            "these neither count nor forget"
        );
        assert!(!is_open(&[Lasting, Lasting]));
        assert!(!is_open(&[Lasting, Answered, Lasting, Lasting]));
        assert!(!is_open(&[Transient; 9]));
        assert_eq!(after(&[Transient]), ModelCircuit::default());
        let opened = after(&[Lasting, Lasting, Lasting]);
        assert_eq!((opened.fail_count, opened.tripped_at), (3, Some(at(3))));
        assert_eq!(opened.after_call(Answered, at(4)), Some(opened), "an earlier call has ended");
        assert_eq!(opened.after_call(Lasting, at(4)), Some(opened));
    }

    #[test]
    fn failures_that_lie_a_day_apart_are_not_in_a_row() {
        let first = after(&[Lasting, Lasting]);
        let day = OPEN_TIME.as_secs();
        let later = first.after_call(Lasting, at(2 + day)).expect("is remembered");
        assert_eq!((later.fail_count, later.tripped_at), (1, None));
        let sooner = first.after_call(Lasting, at(1 + day)).expect("is remembered");
        assert_eq!((sooner.fail_count, sooner.state(at(2 + day))), (3, CircuitState::Open));
    }

    /// Rows: SF-188 (in part: the time)
    #[test]
    fn a_circuit_is_open_for_a_day_and_then_tried_once() {
        let opened = after(&[Lasting, Lasting, Lasting]);
        let day = OPEN_TIME.as_secs();
        assert_eq!(opened.resets_at(), Some(at(3 + day)));
        assert_eq!(opened.state(at(3 + day - 60)), CircuitState::Open);
        assert_eq!(opened.state(at(3 + day)), CircuitState::HalfOpen);
        assert_eq!(opened.after_call(Answered, at(3 + day)), None);
        let again = opened.after_call(Lasting, at(3 + 2 * day)).expect("is remembered");
        assert_eq!((again.fail_count, again.state(at(4 + 2 * day))), (4, CircuitState::Open));
    }
}
