//! One line of the table.

use std::fmt;
use std::time::Duration;

use super::stats::{Sample, shown};

/// One line of the table.
#[derive(Debug)]
pub(super) struct Row {
    what: String,
    outcome: Outcome,
}

#[derive(Debug)]
enum Outcome {
    /// Durations, those of the peer or limit in the same run, and the ratio of the medians to stay under, if there
    /// is one.
    Ratio { own: Sample, peer: &'static str, base: Sample, target: Option<f64> },
    /// Durations, and the one that a percentile of them is to stay under.
    Limit { own: Sample, percentile: Percentile, target: Duration, against: String },
    /// Durations without a comparison, or the base of one, with a remark.
    Base(Sample, String),
    /// A size in bytes, and the size to stay under, if there is one.
    Size { bytes: u64, target: Option<u64>, against: String },
    /// A part of a whole, from 0 to 1, and the one to reach.
    Share { share: f64, target: f64, against: String },
    /// The rate per second, the duration of each, and the number to reach.
    Rate { per_second: f64, own: Sample, target: f64, against: String },
    /// The reason for having no number.
    NotRun(String),
}

/// The percentile that is compared.
#[derive(Clone, Copy, Debug)]
pub(super) enum Percentile {
    P50,
    P99,
}

impl Row {
    pub(super) fn ratio(what: &str, own: Sample, (peer, base): (&'static str, Sample), target: f64) -> Self {
        Self { what: what.to_owned(), outcome: Outcome::Ratio { own, peer, base, target: Some(target) } }
    }

    /// Durations beside those of another, without a target.
    pub(super) fn beside(what: &str, own: Sample, (peer, base): (&'static str, Sample)) -> Self {
        Self { what: what.to_owned(), outcome: Outcome::Ratio { own, peer, base, target: None } }
    }

    pub(super) fn limit(
        what: &str,
        own: Sample,
        (percentile, target): (Percentile, Duration),
        against: String,
    ) -> Self {
        Self { what: what.to_owned(), outcome: Outcome::Limit { own, percentile, target, against } }
    }

    pub(super) fn base(what: &str, sample: Sample) -> Self {
        Self::told(what, sample, String::new())
    }

    /// Makes a row of durations without a target, with a remark.
    pub(super) fn told(what: &str, own: Sample, against: String) -> Self {
        Self { what: what.to_owned(), outcome: Outcome::Base(own, against) }
    }

    pub(super) fn size(what: &str, bytes: u64, target: Option<u64>) -> Self {
        Self::part(what, bytes, target, String::new())
    }

    /// A size, with what it is made of.
    pub(super) fn part(what: &str, bytes: u64, target: Option<u64>, against: String) -> Self {
        Self { what: what.to_owned(), outcome: Outcome::Size { bytes, target, against } }
    }

    pub(super) fn share(what: &str, (share, target): (f64, f64), against: String) -> Self {
        Self { what: what.to_owned(), outcome: Outcome::Share { share, target, against } }
    }

    pub(super) fn rate(what: &str, (per_second, target): (f64, f64), own: Sample, against: String) -> Self {
        Self { what: what.to_owned(), outcome: Outcome::Rate { per_second, own, target, against } }
    }

    pub(super) fn not_run(what: &str, reason: impl Into<String>) -> Self {
        Self { what: what.to_owned(), outcome: Outcome::NotRun(reason.into()) }
    }

    /// The head of the table.
    pub(super) fn head() -> String {
        line("what", ["p50", "p99"], "against", "target", "")
    }

    /// Returns true if there is a number, and it meets its target, if it has one.
    pub(super) fn is_met(&self) -> bool {
        match &self.outcome {
            Outcome::Ratio { own, base, target, .. } => {
                target.is_none_or(|target| own.p50_ratio(base) <= target)
            }
            Outcome::Limit { own, percentile, target, .. } => percentile.of(own) <= *target,
            Outcome::Size { bytes, target, .. } => target.is_none_or(|target| *bytes <= target),
            Outcome::Share { share, target, .. } => share >= target,
            Outcome::Rate { per_second, target, .. } => per_second >= target,
            Outcome::Base(..) => true,
            Outcome::NotRun(_) => false,
        }
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = if self.is_met() { "" } else { "missed" };
        let times = |sample: &Sample| [shown(sample.p50()), shown(sample.p99())];
        let text = match &self.outcome {
            Outcome::Ratio { own, peer, base, target } => {
                let against = format!("{:.2} x {peer} ({})", own.p50_ratio(base), shown(base.p50()));
                let target = target.map(|target| format!("<= {target:.1} x")).unwrap_or_default();
                line(&self.what, times(own), &against, &target, mark)
            }
            Outcome::Limit { own, percentile, target, against } => {
                line(&self.what, times(own), against, &format!("{percentile} <= {}", shown(*target)), mark)
            }
            Outcome::Base(sample, against) => line(&self.what, times(sample), against, "", mark),
            Outcome::Size { bytes, target, against } => {
                let target = target.map(|target| format!("<= {}", size(target))).unwrap_or_default();
                line(&self.what, [size(*bytes), String::new()], against, &target, mark)
            }
            Outcome::Share { share, target, against } => {
                let percent = |share: f64| format!("{:.1} %", 100.0 * share);
                let target = format!(">= {}", percent(*target));
                line(&self.what, [percent(*share), String::new()], against, &target, mark)
            }
            Outcome::Rate { per_second, own, target, against } => {
                let against = format!("{per_second:.0} /s; {against}");
                line(&self.what, times(own), &against, &format!(">= {target:.0} /s"), mark)
            }
            Outcome::NotRun(reason) => format!("{:<40}not measured: {reason}", self.what),
        };
        f.write_str(&text)
    }
}

impl Percentile {
    const fn of(self, sample: &Sample) -> Duration {
        match self {
            Self::P50 => sample.p50(),
            Self::P99 => sample.p99(),
        }
    }
}

impl fmt::Display for Percentile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::P50 => "p50",
            Self::P99 => "p99",
        })
    }
}

fn line<T: fmt::Display>(what: &str, [p50, p99]: [T; 2], against: &str, target: &str, mark: &str) -> String {
    let line = format!("{what:<40}{p50:>10}{p99:>11}  {against:<48}{target:<18}{mark}");
    line.trim_end().to_owned()
}

/// A size in decimal units, for the table.
pub(super) fn size(bytes: u64) -> String {
    if bytes < 1_000_000 {
        format!("{}.{} KB", bytes / 1_000, bytes / 100 % 10)
    } else {
        format!("{}.{} MB", bytes / 1_000_000, bytes / 100_000 % 10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(millis: u64) -> Sample {
        Sample::new(vec![Duration::from_millis(millis)]).unwrap()
    }

    #[test]
    fn a_missed_target_is_said() {
        let row = |own| Row::ratio("a", sample(own), ("b", sample(10)), 1.0);
        assert!(row(10).is_met());
        assert!(!row(11).is_met());
        assert!(row(11).to_string().ends_with("missed"), "{}", row(11));
        assert!(!Row::not_run("a", "b").is_met());
        assert!(!Row::size("a", 41_000_000, Some(40_000_000)).is_met());
        assert!(Row::size("a", 41_000_000, None).is_met());
        assert!(Row::share("a", (0.95, 0.95), String::new()).is_met());
        let share = Row::share("a", (0.9, 0.95), "b".to_owned());
        assert!(share.to_string().contains("90.0 %") && share.to_string().ends_with("missed"), "{share}");
        let beside = Row::beside("a", sample(30), ("b", sample(10)));
        assert!(beside.is_met() && beside.to_string().contains("3.00 x b"), "{beside}");
    }

    #[test]
    fn sizes_have_the_unit_that_fits() {
        assert_eq!([size(960), size(15_360), size(41_070_000)], ["0.9 KB", "15.3 KB", "41.0 MB"]);
    }

    #[test]
    fn limits_and_rates_are_inclusive() {
        let limit = |own, percentile| {
            let target = (percentile, Duration::from_millis(10));
            Row::limit("a", Sample::new(own).unwrap(), target, String::new()).is_met()
        };
        let mostly_quick = || [vec![Duration::from_millis(10); 3], vec![Duration::from_millis(11)]].concat();
        assert!(limit(mostly_quick(), Percentile::P50));
        assert!(!limit(mostly_quick(), Percentile::P99));
        let rate = |per_second| Row::rate("a", (per_second, 10.0), sample(1), String::new()).is_met();
        assert!(rate(10.0) && !rate(9.9));
    }
}
