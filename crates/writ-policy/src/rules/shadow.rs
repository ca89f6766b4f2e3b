//! Rules that are tried: judged beside those in force, and noted where they differ. They decide nothing.

use writ_types::digest::Digest;
use writ_types::entry::{Fact, Leaning};

use super::{RuleError, RuleFacts, RuleSet, RuleSource, RuleVerdict};
use writ_inspect::prepared::Prepared;

/// The most sets that are tried at once: each is judged for every action.
pub const MAX_SHADOWS: usize = 8;

/// The rules in force with some more, which are tried.
#[derive(Debug)]
pub struct Shadow {
    name: String,
    rules: RuleSet,
}

impl Shadow {
    /// Rules of a text, together with those in force.
    ///
    /// # Errors
    ///
    /// If they cannot stand together.
    pub fn load_shadow(name: String, in_force: &[RuleSource], tried: RuleSource) -> Result<Self, RuleError> {
        // With the rules in force, since a rule alone would permit or forbid less than it will.
        let mut all = in_force.to_vec();
        all.push(tried);
        Ok(Self { name, rules: RuleSet::load_rules(&all)? })
    }
}

impl RuleSet {
    /// These rules, beside which others are tried.
    #[must_use]
    pub fn with_shadows(mut self, shadows: Vec<Shadow>) -> Self {
        self.shadows = shadows;
        self
    }

    /// Compares the verdicts of the tried rules with those in force; returns a fact for each difference.
    pub fn shadow_facts(&self, (hash, prepared): (Digest, &Prepared), standing: RuleFacts) -> Vec<Fact> {
        if self.shadows.is_empty() {
            return Vec::new();
        }
        let (does, _) = leaning_of(self.judge_rules(prepared, standing));
        let differs = |shadow: &Shadow| {
            let (would, rules) = leaning_of(shadow.rules.judge_rules(prepared, standing));
            // Only differences are recorded: all else is in the ledger already.
            (would != does).then(|| Fact::Shadowed {
                set: shadow.name.clone(),
                policy: shadow.rules.digest(),
                prepared: hash,
                kind: prepared.action.kind(),
                does,
                would,
                rules,
            })
        };
        self.shadows.iter().filter_map(differs).collect()
    }
}

/// Returns the tendency of a verdict, and the rules that it names.
fn leaning_of(verdict: RuleVerdict) -> (Leaning, Vec<String>) {
    match verdict {
        RuleVerdict::Permit => (Leaning::Permit, Vec::new()),
        RuleVerdict::Ask { rules, .. } => (Leaning::Ask, rules.into_iter().collect()),
        RuleVerdict::Forbid { rule } => (Leaning::Forbid, vec![rule]),
    }
}
