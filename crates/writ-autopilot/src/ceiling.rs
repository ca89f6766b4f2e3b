//! Ceilings of money, and breakers of models: both are asked before a call, and both can be lifted by a person.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use writ_types::unit::{MicroUsd, Timestamp};

/// Something that a ceiling is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CeilingScope {
    /// One run.
    Run,
    /// One unit, over all of its runs.
    Unit,
    /// One milestone with everything below it.
    Milestone,
    /// One day of the project.
    Day,
}

/// The money of each scope that has a ceiling, and the money that is spent or promised there.
pub type ScopeMoney = BTreeMap<CeilingScope, MicroUsd>;

/// A ceiling that a call would pass. It pauses the unit; it is no failure, and no try is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the ceiling of the {} is {limit}; {spent} are spent, and the call may cost {asked}", scope_name(*scope))]
pub struct CeilingReached {
    /// The scope.
    pub scope: CeilingScope,
    /// The ceiling.
    pub limit: MicroUsd,
    /// The money that is spent, with what other calls under way may cost.
    pub spent: MicroUsd,
    /// The most that the call may cost.
    pub asked: MicroUsd,
}

const fn scope_name(scope: CeilingScope) -> &'static str {
    match scope {
        CeilingScope::Run => "run",
        CeilingScope::Unit => "unit",
        CeilingScope::Milestone => "milestone",
        CeilingScope::Day => "day",
    }
}

/// Checks a call before it is made, with the most that it may cost.
///
/// # Errors
///
/// The first ceiling that it would pass, from the narrowest scope on.
pub fn check_ceilings(
    limits: &ScopeMoney,
    spent: &ScopeMoney,
    asked: MicroUsd,
) -> Result<(), CeilingReached> {
    for (scope, limit) in limits {
        let spent = spent.get(scope).copied().unwrap_or_default();
        // Reaching it is allowed, passing it by a millionth is not.
        if spent.saturating_add(asked) > *limit {
            return Err(CeilingReached { scope: *scope, limit: *limit, spent, asked });
        }
    }
    Ok(())
}

/// Failures in a row that open a breaker (SF 9.2).
pub const BREAKER_FAILURES: u32 = 3;
/// The time after which an open breaker closes (SF 9.3).
pub const BREAKER_TIME: Duration = Duration::from_secs(24 * 60 * 60);

/// The breaker of one model. It is stored, so a restart does not close it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelBreaker {
    /// Failures in a row that are no transient ones.
    pub failures: u32,
    /// The time at which it was opened.
    pub tripped_at: Option<Timestamp>,
}

impl ModelBreaker {
    /// Counts the end of a call. A transient failure is none of the model.
    #[must_use]
    pub const fn count_call(self, is_failure: bool, is_transient: bool, now: Timestamp) -> Self {
        if is_failure && is_transient {
            return self;
        }
        if !is_failure {
            return Self { failures: 0, ..self };
        }
        let failures = self.failures.saturating_add(1);
        let trips = failures >= BREAKER_FAILURES;
        Self { failures, tripped_at: if trips { Some(now) } else { self.tripped_at } }
    }

    /// Returns true if the model is not to be used.
    pub fn is_open(self, now: Timestamp) -> bool {
        self.tripped_at.is_some_and(|at| now < at.plus_duration(BREAKER_TIME))
    }
}

/// No model of a tier can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the breakers of all models of this tier are open")]
pub struct CircuitOpen;

/// Returns the first model of a tier with a breaker that is closed.
///
/// # Errors
///
/// If all are open: no call is made then.
pub fn choose_model<'a>(
    tier: &[&'a str],
    breakers: &BTreeMap<String, ModelBreaker>,
    now: Timestamp,
) -> Result<&'a str, CircuitOpen> {
    let is_closed = |model: &&&str| breakers.get(**model).is_none_or(|breaker| !breaker.is_open(now));
    tier.iter().find(is_closed).copied().ok_or(CircuitOpen)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_would_pass_a_ceiling_is_not_made() {
        use CeilingScope::{Day, Milestone, Run, Unit};
        let usd = |micros| MicroUsd::new(micros);
        let limits = ScopeMoney::from([(Run, usd(100)), (Unit, usd(300)), (Day, usd(1_000))]);
        let spent = |run, unit, day| ScopeMoney::from([(Run, usd(run)), (Unit, usd(unit)), (Day, usd(day))]);
        assert_eq!(check_ceilings(&limits, &spent(90, 90, 90), usd(10)), Ok(()), "reached, not passed");
        let scope =
            |spent: ScopeMoney, asked| check_ceilings(&limits, &spent, usd(asked)).map_err(|hit| hit.scope);
        assert_eq!(scope(spent(90, 90, 90), 11), Err(Run));
        assert_eq!(scope(spent(0, 295, 295), 6), Err(Unit));
        assert_eq!(scope(spent(0, 0, 1_000), 1), Err(Day));
        assert_eq!(scope(spent(0, 0, 1_000), 0), Ok(()), "a call without a price");
        assert_eq!(scope(spent(0, 0, u64::MAX), 1), Err(Day), "no sum wraps");
        // Lifting it is enough: nothing else has to be undone.
        let lifted = ScopeMoney::from([(Run, usd(200)), (Unit, usd(300)), (Day, usd(1_000))]);
        assert_eq!(check_ceilings(&lifted, &spent(90, 90, 90), usd(11)), Ok(()));
        assert_eq!(
            check_ceilings(&ScopeMoney::from([(Milestone, usd(0))]), &ScopeMoney::new(), usd(1))
                .map_err(|hit| hit.scope),
            Err(Milestone)
        );
    }

    /// Rows: SF-186 SF-187 SF-188 (the rule; the row and the command need the shell) SF-350 (the choice)
    #[test]
    fn three_failures_in_a_row_open_a_breaker_for_a_day() {
        let at = |seconds: i64| Timestamp::from_millis(seconds * 1_000);
        let play = |ends: &[(bool, bool)]| {
            ends.iter().fold(ModelBreaker::default(), |breaker, (failure, transient)| {
                breaker.count_call(*failure, *transient, at(0))
            })
        };
        let (failed, fine, transient) = ((true, false), (false, false), (true, true));
        assert!(play(&[failed, failed, failed]).is_open(at(1)));
        assert!(!play(&[failed, fine, failed, failed]).is_open(at(1)));
        assert!(!play(&[failed, failed, transient, transient]).is_open(at(1)));
        assert!(play(&[failed, failed, transient, failed]).is_open(at(1)), "a transient one resets nothing");
        let open = play(&[failed, failed, failed]);
        assert!(open.is_open(at(86_399)) && !open.is_open(at(86_400)));
        let text = serde_json::to_string(&open).unwrap();
        assert_eq!(serde_json::from_str::<ModelBreaker>(&text).unwrap(), open);

        let breakers = BTreeMap::from([("a".to_owned(), open)]);
        assert_eq!(choose_model(&["a", "b"], &breakers, at(1)), Ok("b"));
        assert_eq!(choose_model(&["a"], &breakers, at(1)), Err(CircuitOpen));
        assert_eq!(choose_model(&["a"], &breakers, at(86_400)), Ok("a"));
        assert_eq!(choose_model(&[], &breakers, at(1)), Err(CircuitOpen));
    }
}
