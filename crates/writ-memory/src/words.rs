//! Compares texts by their words.

use std::collections::BTreeSet;

use unicode_normalization::UnicodeNormalization as _;

/// The most words of a text that are compared: memories are a sentence or a paragraph.
const MAX_WORDS: usize = 512;

/// Words that stand in any sentence of English and German and tell no memory from another.
const STOP_WORDS: &[&str] = &[
    "a", "about", "after", "all", "also", "am", "an", "and", "any", "are", "as", "at", "be", "been", "being",
    "but", "by", "can", "could", "did", "do", "does", "for", "from", "had", "has", "have", "he", "her",
    "his", "how", "i", "if", "in", "into", "is", "it", "its", "just", "me", "my", "of", "on", "or", "our",
    "she", "should", "so", "than", "that", "the", "their", "them", "then", "there", "these", "they", "this",
    "to", "up", "us", "was", "we", "were", "what", "when", "where", "which", "who", "why", "will", "with",
    "would", "you", "your", "aber", "als", "am", "an", "auf", "aus", "bei", "das", "dass", "dem", "den",
    "der", "des", "die", "du", "ein", "eine", "einem", "einen", "einer", "er", "es", "für", "hat", "ich",
    "ihr", "im", "in", "ist", "man", "mit", "nach", "oder", "sie", "sich", "sind", "und", "uns", "von",
    "war", "was", "wie", "wir", "wird", "zu", "zum", "zur",
];

/// Words that turn a statement around.
pub(crate) const NEGATIONS: &[&str] = &[
    "not", "no", "never", "none", "neither", "nor", "without", "isn't", "aren't", "doesn't", "don't",
    "didn't", "won't", "can't", "cannot", "hasn't", "nicht", "kein", "keine", "keinen", "nie", "niemals",
    "ohne", "nichts",
];

/// Returns a text in the form in which it is equal to another: compatibility forms, small letters, one space for any white
/// space, and no mark at its end. No word is left out, since «from Berlin to Rome» and «to Berlin from Rome» have the same ones.
pub fn fold_whole(text: &str) -> String {
    let folded: String = text.nfkc().flat_map(char::to_lowercase).collect();
    let folded = folded.split_whitespace().collect::<Vec<_>>().join(" ");
    folded.trim_end_matches(['.', '!', ';', ',']).to_owned()
}

/// The words of a text, for comparison.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TextWords {
    /// The words that carry its meaning, in their order, folded.
    pub content: Vec<String>,
    /// The number of negations.
    pub negations: usize,
}

impl TextWords {
    /// Cuts a text into its words.
    pub fn of(text: &str) -> Self {
        let folded = fold_letters(text);
        let mut words = Self::default();
        for word in split_words(&folded) {
            if NEGATIONS.contains(&word) {
                words.negations += 1;
            } else if !STOP_WORDS.contains(&word) {
                words.content.push(stem(word).to_owned());
            }
            if words.content.len() >= MAX_WORDS {
                break;
            }
        }
        words
    }

    /// Returns the set of words.
    pub fn set(&self) -> BTreeSet<&str> {
        self.content.iter().map(String::as_str).collect()
    }
}

fn fold_letters(text: &str) -> String {
    text.nfkc().flat_map(char::to_lowercase).collect()
}

fn split_words(folded: &str) -> impl Iterator<Item = &str> {
    let words = folded.split(|letter: char| !is_word_letter(letter));
    let words = words.map(|word| word.trim_matches(|letter: char| !letter.is_alphanumeric()));
    words.filter(|word| !word.is_empty())
}

/// Returns the words of [`TextWords`] of a text, each once: as they are written, and what they have in common with other forms.
pub(crate) fn distinct_words(text: &str) -> Vec<(String, String)> {
    let (folded, mut seen) = (fold_letters(text), BTreeSet::new());
    let words = split_words(&folded).filter(|word| !NEGATIONS.contains(word) && !STOP_WORDS.contains(word));
    let pairs = words.take(MAX_WORDS).map(|word| (word.to_owned(), stem(word).to_owned()));
    pairs.filter(|(_, stem)| seen.insert(stem.clone())).collect()
}

fn is_word_letter(letter: char) -> bool {
    letter.is_alphanumeric() || matches!(letter, '_' | '-' | '.' | ':' | '@' | '/' | '\'')
}

/// Removes the commonest endings of English and German, so that «likes», «liked» and «like» are one word.
fn stem(word: &str) -> &str {
    if !word.chars().all(char::is_alphabetic) {
        return word;
    }
    let without = |word: &'_ str, endings: &[&str]| {
        let cut = endings.iter().find_map(|ending| word.strip_suffix(ending)).map(str::len);
        // Shorter words would become one with others.
        cut.filter(|length| word[..*length].chars().count() >= 3).unwrap_or(word.len())
    };
    let word = if word.ends_with("ss") { word } else { &word[..without(word, &["s"])] };
    &word[..without(word, &["ing", "ed", "en", "er", "e"])]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_equal_only_with_all_of_their_words() {
        assert_eq!(
            fold_whole("The  staging host is called heron."),
            fold_whole("the staging host\nis called ＨＥＲＯＮ")
        );
        for (left, right) in [
            ("Anna flew from Berlin to Rome", "Anna flew to Berlin from Rome"),
            ("Anna likes tea", "Anna does not like tea"),
            ("The door is open?", "The door is open"),
        ] {
            assert_ne!(fold_whole(left), fold_whole(right));
        }
        assert_eq!(TextWords::of("Anna doesn't like tea").negations, 1);
    }
}
