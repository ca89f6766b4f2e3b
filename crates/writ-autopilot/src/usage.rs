//! The tokens and the cost of a run, from totals and differences that workers report.

use serde::{Deserialize, Serialize};
use writ_types::unit::{MicroUsd, Tokens};

/// Tokens and cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunUsage {
    /// Tokens of requests that were not cached.
    pub input: Tokens,
    /// Tokens of answers.
    pub output: Tokens,
    /// Tokens of requests that were read from a cache.
    pub cache_read: Tokens,
    /// Tokens of requests that were written to a cache.
    pub cache_write: Tokens,
    /// The cost of all of them.
    pub cost: MicroUsd,
}

impl RunUsage {
    /// Adds other usage; saturates.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            input: self.input.saturating_add(other.input),
            output: self.output.saturating_add(other.output),
            cache_read: self.cache_read.saturating_add(other.cache_read),
            cache_write: self.cache_write.saturating_add(other.cache_write),
            cost: self.cost.saturating_add(other.cost),
        }
    }

    /// Returns what is new since an earlier total. A total that has fallen is that of another thread: all of it is new.
    fn since(self, earlier: Self) -> Self {
        let fields = |usage: &Self| {
            [
                usage.input.get(),
                usage.output.get(),
                usage.cache_read.get(),
                usage.cache_write.get(),
                usage.cost.get(),
            ]
        };
        // One field is enough: a thread that begins anew has smaller numbers somewhere.
        let has_fallen = fields(&self).iter().zip(fields(&earlier)).any(|(now, before)| *now < before);
        if has_fallen {
            return self;
        }
        Self {
            input: self.input.saturating_sub(earlier.input),
            output: self.output.saturating_sub(earlier.output),
            cache_read: self.cache_read.saturating_sub(earlier.cache_read),
            cache_write: self.cache_write.saturating_sub(earlier.cache_write),
            cost: MicroUsd::new(self.cost.get().saturating_sub(earlier.cost.get())),
        }
    }
}

/// A report of usage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsageReport {
    /// The total of the thread so far.
    Total(RunUsage),
    /// The usage of one response.
    Delta(RunUsage),
}

/// Counts the usage of one thread. Totals are preferred, so that nothing is counted twice where a worker sends both (SF 8.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UsageMeter {
    counted: RunUsage,
    last_total: Option<RunUsage>,
    /// Counted from differences before the first total, which contains them.
    provisional: RunUsage,
}

impl UsageMeter {
    /// Counts a report.
    pub fn count_report(&mut self, report: UsageReport) {
        match report {
            UsageReport::Total(total) => {
                let new = total.since(self.last_total.unwrap_or_default());
                self.counted = self.counted.plus(new);
                // The total holds them already.
                self.provisional = RunUsage::default();
                self.last_total = Some(total);
            }
            // Of a thread that sends totals, differences say the same a second time.
            UsageReport::Delta(delta) if self.last_total.is_none() => {
                self.provisional = self.provisional.plus(delta);
            }
            UsageReport::Delta(_) => {}
        }
    }

    /// Returns the usage so far.
    pub fn total(&self) -> RunUsage {
        self.counted.plus(self.provisional)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(tokens: u64) -> RunUsage {
        RunUsage { input: Tokens::new(tokens), cost: MicroUsd::new(tokens * 3), ..RunUsage::default() }
    }

    fn count(reports: &[UsageReport]) -> u64 {
        let mut meter = UsageMeter::default();
        reports.iter().for_each(|report| meter.count_report(*report));
        assert_eq!(meter.total().cost.get(), meter.total().input.get() * 3);
        meter.total().input.get()
    }

    /// Rows: SF-175
    #[test]
    fn totals_are_preferred_and_nothing_is_counted_twice() {
        let total = |tokens| UsageReport::Total(usage(tokens));
        let delta = |tokens| UsageReport::Delta(usage(tokens));
        assert_eq!(count(&[delta(100), total(100), delta(150), total(250)]), 250);
        assert_eq!(count(&[total(100), delta(100), total(250), delta(150)]), 250, "in either order");
        assert_eq!(count(&[delta(10), total(5)]), 5, "the total decides");
        assert_eq!(count(&[total(100), total(100), total(100)]), 100);
        assert_eq!(count(&[delta(10), delta(20)]), 30);
        // Another thread begins at zero again.
        assert_eq!(count(&[total(500), total(40), total(60)]), 560);
        assert_eq!(count(&[]), 0);
    }
}
