//! Durations and their statistics.

use std::time::Duration;

use anyhow::{Context as _, Result};

/// Durations of one thing, measured many times.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    p50: Duration,
    p99: Duration,
}

impl Sample {
    /// Sums up what was measured; at least once.
    pub(super) fn new(mut durations: Vec<Duration>) -> Result<Self> {
        durations.sort();
        let at = |percent: usize| {
            let rank = (durations.len() * percent).div_ceil(100).max(1);
            durations.get(rank - 1).copied().context("nothing was measured")
        };
        Ok(Self { p50: at(50)?, p99: at(99)? })
    }

    /// The median.
    pub(super) const fn p50(&self) -> Duration {
        self.p50
    }

    /// Returns the duration that 99 of 100 stay under.
    pub(super) const fn p99(&self) -> Duration {
        self.p99
    }

    /// This median over that of `base`.
    pub(super) fn p50_ratio(&self, base: &Self) -> f64 {
        self.p50.as_secs_f64() / base.p50.as_secs_f64().max(f64::MIN_POSITIVE)
    }
}

/// Measures two things in turn, so that both see the same machine; the first rounds are not counted.
pub(super) fn in_turn(
    rounds: u32,
    mut one: impl FnMut() -> Result<Duration>,
    mut other: impl FnMut() -> Result<Duration>,
) -> Result<(Sample, Sample)> {
    let warm_up = rounds / 10 + 1;
    let (mut ones, mut others) = (Vec::new(), Vec::new());
    for round in 0..rounds + warm_up {
        let (first, second) = (one()?, other()?);
        if round >= warm_up {
            ones.push(first);
            others.push(second);
        }
    }
    Ok((Sample::new(ones)?, Sample::new(others)?))
}

/// A duration, for the table.
pub(super) fn shown(duration: Duration) -> String {
    if duration < Duration::from_millis(1) {
        format!("{:.1} us", duration.as_secs_f64() * 1e6)
    } else {
        format!("{:.2} ms", duration.as_secs_f64() * 1e3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_nearest_ranks() {
        let sample = Sample::new((1..=200).rev().map(Duration::from_millis).collect()).unwrap();
        assert_eq!((sample.p50(), sample.p99()), (Duration::from_millis(100), Duration::from_millis(198)));
        assert!(Sample::new(Vec::new()).is_err());
        let base = Sample::new(vec![Duration::from_millis(50)]).unwrap();
        assert!((sample.p50_ratio(&base) - 2.0).abs() < 1e-9);
    }

    #[test]
    fn warm_up_rounds_do_not_count() {
        let (mut calls, mut last) = (0, 0);
        let slow_first = || {
            calls += 1;
            Ok(Duration::from_secs(if calls <= 2 { 99 } else { 1 }))
        };
        let other = || {
            last += 1;
            Ok(Duration::from_secs(last))
        };
        let (one, other) = in_turn(10, slow_first, other).unwrap();
        assert_eq!((one.p99(), other.p99()), (Duration::from_secs(1), Duration::from_secs(12)));
    }
}
