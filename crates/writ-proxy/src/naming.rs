//! What an agent names of a case's values in its own words. It was shown tokens, so a value that it writes is made up or a guess:
//! each takes a part of the agent's share of the case, and of right guesses it has a few.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use writ_store::operations::{MAX_CASE_VALUE_BYTES, MAX_CASE_VALUES};

/// The right guesses after which an agent's key is revoked. Some happen to honest agents: a customer may be called Will.
pub(crate) const MAX_GUESSES: usize = 8;
/// The part of a case's room that one agent has for values of its own: those who hold the case after it have as much.
const SHARES: usize = 8;
/// The most agents of a case that are remembered, far more than hold one case.
const MAX_AGENTS: usize = 256;

/// The values that a request names.
#[derive(Debug, Default)]
pub(crate) struct NamedValues {
    /// Their tokens.
    pub(crate) tokens: BTreeSet<String>,
    /// The bytes of tokens and values.
    pub(crate) bytes: usize,
    /// Those that the case knows, in small letters, with their tokens.
    pub(crate) known: BTreeMap<String, String>,
}

/// The end of counting what a request names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Naming {
    /// The agent may go on; so many of the values are new right guesses.
    Within(u64),
    /// It has guessed too many.
    Over(u64),
    /// Its share of the case's room is used up.
    Full,
}

#[derive(Debug, Default)]
struct AgentShare {
    /// The tokens of the values that it has named, right or not: the share may not say which of them are.
    named: BTreeSet<String>,
    bytes: usize,
    /// Its right guesses.
    guessed: BTreeSet<String>,
}

/// The agents of a case, by name. It is not stored: after a restart each has its share anew.
#[derive(Debug, Default)]
pub(crate) struct AgentShares(Mutex<BTreeMap<String, AgentShare>>);

impl AgentShares {
    /// Counts what a request of an agent names.
    pub(crate) fn count_named(&self, agent: &str, values: &NamedValues) -> Naming {
        let mut shares = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while shares.len() >= MAX_AGENTS && !shares.contains_key(agent) && shares.pop_first().is_some() {}
        let share = shares.entry(agent.to_owned()).or_default();
        let fresh: Vec<&String> =
            values.tokens.iter().filter(|token| !share.named.contains(*token)).collect();
        let is_new = |(text, token): &(&String, &String)| {
            // A value that it has brought in itself is known by now, and no guess.
            !share.named.contains(*token) && !share.guessed.contains(*text)
        };
        let guesses: Vec<String> = values.known.iter().filter(is_new).map(|(text, _)| text.clone()).collect();
        let count = u64::try_from(guesses.len()).unwrap_or(u64::MAX);
        let bytes = if fresh.is_empty() { 0 } else { values.bytes };
        let (all, all_bytes) =
            (share.named.len().saturating_add(fresh.len()), share.bytes.saturating_add(bytes));
        // Guesses first: an agent with a full share goes on with what it has named before.
        let is_full = all > MAX_CASE_VALUES / SHARES || all_bytes > MAX_CASE_VALUE_BYTES / SHARES;
        share.guessed.extend(guesses);
        if share.guessed.len() > MAX_GUESSES {
            return Naming::Over(count);
        }
        if !fresh.is_empty() && is_full {
            return Naming::Full;
        }
        share.named.extend(fresh.into_iter().cloned().collect::<Vec<_>>());
        share.bytes = all_bytes;
        Naming::Within(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(texts: &[&str], known: &[&str]) -> NamedValues {
        let token = |text: &&str| format!("token of {text}");
        NamedValues {
            tokens: texts.iter().chain(known).map(token).collect(),
            bytes: 10,
            known: known.iter().map(|text| ((*text).to_owned(), token(text))).collect(),
        }
    }

    #[test]
    fn right_guesses_are_counted_once_and_end_at_their_bound() {
        let shares = AgentShares::default();
        assert_eq!(shares.count_named("a", &named(&["x", "y"], &[])), Naming::Within(0));
        // What it brought in itself is known from then on.
        assert_eq!(shares.count_named("a", &named(&[], &["x", "ann"])), Naming::Within(1));
        assert_eq!(shares.count_named("a", &named(&[], &["ann"])), Naming::Within(0));
        let guesses: Vec<String> = (0..MAX_GUESSES).map(|n| format!("value {n}")).collect();
        for guess in &guesses[1..] {
            assert_eq!(shares.count_named("a", &named(&[], &[guess])), Naming::Within(1));
        }
        assert_eq!(shares.count_named("b", &named(&[], &[&guesses[0]])), Naming::Within(1), "another agent");
        assert_eq!(shares.count_named("a", &named(&[], &[&guesses[0]])), Naming::Over(1));
        assert_eq!(shares.count_named("a", &named(&[], &[])), Naming::Over(0), "from then on");
    }

    #[test]
    fn an_agent_has_its_share_whether_its_guesses_are_right_or_not() {
        let shares = AgentShares::default();
        let most = MAX_CASE_VALUES / SHARES;
        for n in 0..most {
            assert_eq!(shares.count_named("a", &named(&[&n.to_string()], &[])), Naming::Within(0), "{n}");
        }
        assert_eq!(shares.count_named("a", &named(&["more"], &[])), Naming::Full);
        assert_eq!(shares.count_named("a", &named(&[], &["ann"])), Naming::Full);
        assert_eq!(shares.count_named("a", &named(&["0"], &[])), Naming::Within(0), "named before");
        assert_eq!(shares.count_named("b", &named(&["more"], &[])), Naming::Within(0), "another agent");
        let large = NamedValues { bytes: MAX_CASE_VALUE_BYTES, ..named(&["large"], &[]) };
        assert_eq!(shares.count_named("b", &large), Naming::Full);
    }
}
