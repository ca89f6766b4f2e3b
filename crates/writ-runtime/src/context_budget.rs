//! The budget of an attempt's context, in tokens as its provider counts them.
//!
//! The harness alone counts: after each answer of the model. The machine of the turn knows estimates, and cannot name this type. Where
//! the budget reaches its first limit the conversation is compacted before the next turn; where it reaches its second one the model is
//! not asked again, so that no request becomes larger than what the provider takes.

use writ_agent::config::{AgentConfigError, Share};
use writ_types::chat::Usage;
use writ_types::unit::Tokens;

/// The tokens that a context may hold and those that it holds, with its two limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContextBudget {
    /// The most tokens; never zero.
    max: Tokens,
    /// The tokens of the last request and its answer.
    used: Tokens,
    /// The share from which the conversation is compacted before the next turn.
    compact_at: Share,
    /// The share from which the model is not asked again.
    hard_limit_at: Share,
}

impl ContextBudget {
    /// Returns the budget of an empty context.
    ///
    /// # Errors
    ///
    /// If it has no room at all.
    pub fn new(max: Tokens, (compact_at, hard_limit_at): (Share, Share)) -> Result<Self, AgentConfigError> {
        if max == Tokens::ZERO {
            return Err(AgentConfigError::Zero { key: "context.total_tokens" });
        }
        Ok(Self { max, used: Tokens::ZERO, compact_at, hard_limit_at })
    }

    /// The most tokens.
    pub const fn max(&self) -> Tokens {
        self.max
    }

    /// The tokens that it holds, as the provider has counted them last.
    pub const fn used(&self) -> Tokens {
        self.used
    }

    /// Returns true if the conversation is to be compacted before the next turn.
    pub fn should_compact(&self) -> bool {
        self.compact_at.is_reached_by(self.used, self.max)
    }

    /// Returns true if nothing more may be added.
    pub fn is_at_hard_limit(&self) -> bool {
        self.hard_limit_at.is_reached_by(self.used, self.max)
    }

    /// Notes the tokens of an answer of the model, and of the request that it answers. An answer whose tokens no one has counted changes
    /// nothing.
    pub(crate) fn note_answer(&mut self, usage: &Usage) {
        let counted = usage.total_tokens();
        if counted > Tokens::ZERO {
            self.used = counted;
        }
    }
}

#[cfg(test)]
mod tests {
    use writ_types::error::{Exit, ToReport as _};

    use super::*;

    fn budget(max: u64) -> ContextBudget {
        let limits = (Share::of_percent(80), Share::of_percent(95));
        ContextBudget::new(Tokens::new(max), limits).expect("has room")
    }

    fn usage(input: u64, output: u64) -> Usage {
        Usage { input: Tokens::new(input), output: Tokens::new(output), ..Usage::default() }
    }

    /// Both limits are reached at their fraction and not before it, also for numbers whose product has more than 64 bits; a budget
    /// without room is an error of the configuration, and nothing is divided.
    ///
    /// Rows: SF-167
    #[test]
    fn each_limit_is_reached_at_its_fraction() {
        for (used, compacts, is_full) in [
            (0, false, false),
            (7_999, false, false),
            (8_000, true, false),
            (9_499, true, false),
            (9_500, true, true),
            (20_000, true, true),
        ] {
            let mut budget = budget(10_000);
            budget.note_answer(&usage(used, 0));
            assert_eq!((budget.should_compact(), budget.is_at_hard_limit()), (compacts, is_full), "{used}");
        }
        let mut largest = budget(u64::MAX);
        largest.note_answer(&usage(u64::MAX / 2, 0));
        assert!(!largest.should_compact());
        largest.note_answer(&usage(u64::MAX, u64::MAX));
        assert!(largest.is_at_hard_limit());
        let limits = (Share::of_percent(80), Share::of_percent(95));
        let none = ContextBudget::new(Tokens::ZERO, limits).expect_err("has no room");
        assert_eq!(none, AgentConfigError::Zero { key: "context.total_tokens" });
        assert_eq!(none.report().exit, Exit::Config);
    }

    #[test]
    fn the_last_answer_counts_with_its_request() {
        let mut budget = budget(1_000);
        budget.note_answer(&usage(300, 100));
        assert_eq!(budget.used(), Tokens::new(400));
        budget.note_answer(&usage(0, 0));
        assert_eq!(budget.used(), Tokens::new(400), "not counted");
        budget.note_answer(&usage(200, 50));
        assert_eq!(budget.used(), Tokens::new(250), "a context that was compacted");
    }
}
