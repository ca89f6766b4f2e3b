//! Finds memories that cannot both be so.
//!
//! A rule, not a model: two memories of one subject that agree in most words and differ in the value («the host is
//! called heron» and «the host is called egret»), or in a negation. It asks too rarely rather than too often; the
//! owner decides.

use std::collections::BTreeSet;

use writ_store::memory::Memory;
use writ_types::action::MemoryKind;

use crate::words::TextWords;

/// The fewest words that two memories must share.
const MIN_SHARED: usize = 2;

/// The most words in which one of the two differs: more is another statement.
const MAX_DIFFERENT: usize = 2;

/// Words behind which a value stands: what stands before them is the subject.
const VALUE_WORDS: &[&str] = &[
    "is", "are", "was", "called", "named", "lives", "live", "works", "uses", "use", "prefers", "prefer",
    "likes", "like", "loves", "hates", "wants", "at", "in", "on", "ist", "heißt", "wohnt", "arbeitet", "mag",
    "benutzt", "=", "costs", "runs", "starts", "begins", "closes", "opens", "moved", "kostet", "beginnt",
];

/// A reason why two memories contradict each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Contradiction {
    /// One negates the other.
    Negation,
    /// They name different values.
    Values {
        /// The value of the older one.
        older: String,
        /// The value of the newer one.
        newer: String,
    },
}

impl std::fmt::Display for Contradiction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Negation => f.write_str("one says the opposite of the other"),
            Self::Values { older, newer } => write!(f, "\"{older}\" there, \"{newer}\" here"),
        }
    }
}

/// Compares two memories. Episodes happen at their own times and contradict nothing.
pub fn contradiction_of(older: &Memory, newer: &Memory) -> Option<Contradiction> {
    let is_statement =
        |memory: &Memory| !matches!(memory.item.memory_kind, MemoryKind::Episode | MemoryKind::Procedure);
    // What one session holds says nothing about another one.
    if !is_statement(older) || !is_statement(newer) || older.item.session != newer.item.session {
        return None;
    }
    compare_texts(&older.item.text, &newer.item.text)
}

/// Compares two statements.
pub fn compare_texts(older: &str, newer: &str) -> Option<Contradiction> {
    let (left, right) = (TextWords::of(older), TextWords::of(newer));
    let (left_set, right_set) = (left.set(), right.set());
    let shared: BTreeSet<&&str> = left_set.intersection(&right_set).collect();
    let only = |words: &BTreeSet<&str>, others: &BTreeSet<&str>| words.difference(others).count();
    let (only_left, only_right) = (only(&left_set, &right_set), only(&right_set, &left_set));
    if shared.len() < MIN_SHARED {
        return None;
    }
    // Two negations take each other back.
    if left.negations % 2 != right.negations % 2 {
        return (only_left + only_right <= 1).then_some(Contradiction::Negation);
    }
    let differs = (1..=MAX_DIFFERENT).contains(&only_left) && (1..=MAX_DIFFERENT).contains(&only_right);
    if !differs || shared.len() < only_left.max(only_right) {
        return None;
    }
    // The values stand at the end, behind the same beginning: otherwise the subjects differ.
    let (older_value, newer_value) = (value_of(older)?, value_of(newer)?);
    let subjects_agree = TextWords::of(&older_value.0).set() == TextWords::of(&newer_value.0).set();
    if !subjects_agree || older_value.1.is_empty() || newer_value.1.is_empty() {
        return None;
    }
    Some(Contradiction::Values { older: older_value.1, newer: newer_value.1 })
}

/// Splits a statement behind the last word that a value follows.
fn value_of(text: &str) -> Option<(String, String)> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let is_value_word = |word: &&str| {
        let plain = word.trim_end_matches([':', ',']).to_lowercase();
        VALUE_WORDS.contains(&plain.as_str()) || word.ends_with(':') || word.ends_with('=')
    };
    let at = words.iter().rposition(is_value_word)?;
    let value = words[at + 1..].join(" ");
    let value = value.trim_end_matches(['.', '!', ';', ',']).to_owned();
    Some((words[..=at].join(" "), value))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows: WIN-331 (in part: two opposing facts are noticed)
    #[test]
    fn different_values_of_one_subject_and_negations_are_noticed() {
        for (older, newer) in [
            ("The staging host is called heron", "The staging host is called egret."),
            ("Anna lives in Berlin", "Anna lives in Hamburg"),
            ("The weekly meeting is at 10:00", "The weekly meeting is at 11:30"),
            ("Anna likes green tea", "Anna does not like green tea"),
            ("Der Server heißt Reiher", "Der Server heißt Storch"),
        ] {
            assert!(compare_texts(older, newer).is_some(), "{older} / {newer}");
        }
        let values = compare_texts("Anna lives in Berlin", "Anna lives in Hamburg");
        assert_eq!(
            values,
            Some(Contradiction::Values { older: "Berlin".to_owned(), newer: "Hamburg".to_owned() })
        );
    }

    #[test]
    fn statements_about_different_things_contradict_nothing() {
        for (older, newer) in [
            ("Anna lives in Berlin", "Boris lives in Hamburg"),
            ("The staging host is called heron", "The production host is called egret"),
            ("Anna likes green tea", "Anna likes green tea"),
            ("Anna likes tea", "Anna likes tea and works at the bakery near the station"),
            ("", ""),
            ("Anna lives in Berlin", "Anna has a red bicycle"),
        ] {
            assert_eq!(compare_texts(older, newer), None, "{older} / {newer}");
        }
    }
}
