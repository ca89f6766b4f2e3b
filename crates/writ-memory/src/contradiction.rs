//! Finds memories that cannot both be so.
//!
//! A rule, not a model: two memories of one subject that agree in most words and differ in the value («the host is
//! called heron» and «the host is called egret»), or in a negation. It asks too rarely rather than too often; the
//! owner decides.

use std::collections::BTreeSet;

use writ_store::memory::{Memory, WordPattern, WordTerm};
use writ_types::action::MemoryKind;

use crate::words::{NEGATIONS, TextWords, distinct_words};

/// The fewest words that two memories must share.
const MIN_SHARED: usize = 2;

/// The most words in which one of the two differs: more is another statement.
const MAX_DIFFERENT: usize = 2;

/// The words of a statement that are looked for, the longest: they are the rarest, mostly.
const LOOKED_FOR: usize = 8;

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
    // Memories of different sessions cannot contradict each other.
    if !is_statement(older) || !is_statement(newer) || older.item.session != newer.item.session {
        return None;
    }
    compare_texts(&older.item.text, &newer.item.text)
}

fn is_statement(memory: &Memory) -> bool {
    !matches!(memory.item.memory_kind, MemoryKind::Episode | MemoryKind::Procedure)
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

/// Returns the words that every memory has which a new one can contradict; `None`: it contradicts nothing. Only these are read then: a
/// common word is in thousands of others.
pub fn contradiction_pattern(new: &Memory) -> Option<WordPattern> {
    if !is_statement(new) {
        return None;
    }
    let text = &new.item.text;
    let (words, negates) = (distinct_words(text), TextWords::of(text).negations % 2 == 1);
    if words.len() < MIN_SHARED {
        return None;
    }
    let negation: Vec<WordTerm> = NEGATIONS.iter().map(|word| WordTerm::exact(word)).collect();
    // Of the words at most one differs where one of two negates the other, so one half of them is there.
    let mut alternatives = Vec::new();
    for half in parts_of(&words, 2) {
        let needed = if negates { None } else { Some(negation.clone()) };
        alternatives.push(terms_of(half).chain(needed).collect());
    }
    if let Some((subject, value)) = value_of(text)
        && !value.is_empty()
        && words.len() > MIN_SHARED
    {
        let subject = distinct_words(&subject);
        // At most two words of another value differ, and none of the subject.
        let parts =
            if subject.is_empty() { parts_of(&words, MAX_DIFFERENT + 1) } else { vec![longest(&subject)] };
        alternatives.extend(parts.into_iter().map(|part| {
            let needed = negates.then(|| negation.clone());
            terms_of(part).chain(needed).collect()
        }));
    }
    Some(WordPattern { alternatives })
}

/// Deals the longest words out to parts of nearly the same size; where there are fewer words than parts, to as many.
fn parts_of(words: &[(String, String)], count: usize) -> Vec<Vec<(String, String)>> {
    let words = longest(words);
    let mut parts = vec![Vec::new(); count.min(words.len())];
    for (n, word) in words.into_iter().enumerate() {
        let part = n % parts.len();
        parts[part].push(word);
    }
    parts
}

fn longest(words: &[(String, String)]) -> Vec<(String, String)> {
    let mut words = words.to_vec();
    words.sort_by_key(|(word, _)| std::cmp::Reverse(word.chars().count()));
    words.truncate(LOOKED_FOR);
    words
}

/// Other forms of a word begin like its stem; the index has stems of its own, which can be shorter.
fn terms_of(words: Vec<(String, String)>) -> impl Iterator<Item = Vec<WordTerm>> {
    words.into_iter().map(|(word, stem)| vec![WordTerm::exact(&word), WordTerm::beginning(&stem)])
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
mod tests;
