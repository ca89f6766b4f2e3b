//! The breaker of the scorer.

use std::time::Duration;

use writ_types::unit::Timestamp;

/// The failures in a row after which no scorer is asked for a while (SIL-081).
const MAX_FAILURES: u32 = 3;

/// The time for which none is asked then.
const COOL_DOWN: Duration = Duration::from_secs(5 * 60);

/// Stops asking a scorer that fails.
#[derive(Debug, Default)]
pub(crate) struct ScorerBreaker {
    failures: u32,
    open_until: Option<Timestamp>,
}

// === impl ScorerBreaker ===

impl ScorerBreaker {
    /// Returns true if the scorer may be asked.
    pub(crate) fn admits(&self, now: Timestamp) -> bool {
        self.open_until.is_none_or(|until| now >= until)
    }

    /// Notes an answer, or a failure.
    pub(crate) fn note_answer(&mut self, is_answered: bool, now: Timestamp) {
        if is_answered {
            *self = Self::default();
            return;
        }
        self.failures = self.failures.saturating_add(1);
        if self.failures >= MAX_FAILURES {
            *self = Self { failures: 0, open_until: Some(now.plus_duration(COOL_DOWN)) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows: SIL-081 (in part: the number of failures and the time)
    #[test]
    fn a_scorer_that_fails_three_times_is_not_asked_for_five_minutes() {
        let at = |secs: i64| Timestamp::from_millis(secs * 1_000);
        let mut breaker = ScorerBreaker::default();
        breaker.note_answer(false, at(0));
        breaker.note_answer(false, at(1));
        breaker.note_answer(true, at(2));
        breaker.note_answer(false, at(3));
        breaker.note_answer(false, at(4));
        assert!(breaker.admits(at(4)), "an answer between them forgets the failures");
        breaker.note_answer(false, at(5));
        assert!(!breaker.admits(at(5)) && !breaker.admits(at(5 + 299)));
        assert!(breaker.admits(at(5 + 300)));
    }
}
