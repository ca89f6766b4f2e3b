//! Search terms, for texts with and without spaces between their words.
//!
//! SQLite's tokenizer of words takes a sentence without spaces as one word. Such runs are therefore also indexed in overlapping
//! pieces of two or three characters, and a search cuts its text in the same way. Folding (NFKC) makes full-width
//! and half-width forms equal.

use std::collections::BTreeSet;
use std::fmt;

use unicode_normalization::UnicodeNormalization as _;
use unicode_normalization::char::is_combining_mark;
use unicode_script::{Script, UnicodeScript as _};

/// The most words of a search that count: each costs a pass over an index list.
const MAX_WORDS: usize = 32;

/// The longest word that counts, in characters.
const MAX_WORD_CHARS: usize = 64;

/// The most pieces of text without spaces that count in one search: those of about a hundred characters.
const MAX_PIECES: usize = 96;

/// The most bytes of a search that are looked at: far more than all terms that count.
const MAX_QUERY_BYTES: usize = 64 * 1024;

/// The reason why a search, or a part of it, finds nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsearchable {
    /// The text has no letter and no digit; punctuation and pictures are not indexed.
    NoTerms,
    /// The text has more terms than a search takes; the rest was not looked for.
    TooMany,
}

impl fmt::Display for Unsearchable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoTerms => {
                f.write_str("a search needs a letter or a digit: punctuation and pictures are not indexed")
            }
            Self::TooMany => write!(
                f,
                "only the first {MAX_WORDS} words, and {MAX_PIECES} pieces of text without spaces, were looked for"
            ),
        }
    }
}

/// The terms of a text. Each is quoted, so nothing in the text is syntax.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Query {
    /// Quoted, as FTS5 takes them.
    pub(crate) terms: Vec<String>,
    pub(crate) unsearchable: Option<Unsearchable>,
}

impl Query {
    /// Cuts a text into the terms to look for.
    pub(crate) fn parse(text: &str) -> Self {
        let mut cut = text.len().min(MAX_QUERY_BYTES);
        while !text.is_char_boundary(cut) {
            cut -= 1;
        }
        let (mut words, mut pieces, mut particles) = (Vec::new(), Vec::new(), Vec::new());
        for term in split(&fold(&text[..cut])) {
            match term {
                Term::Word(word) => {
                    words.extend(parts(&word));
                    words.push(word);
                }
                Term::Run { chars, size } if chars.len() < size => {
                    pieces.push(format!("\"{}\" *", chars.iter().collect::<String>()));
                }
                Term::Run { chars, size } => {
                    for piece in chars.windows(size) {
                        // Two hiragana are mostly grammar, as «the» and «of» are.
                        let grammar = piece.iter().all(|letter| letter.script() == Script::Hiragana);
                        let list = if grammar { &mut particles } else { &mut pieces };
                        list.push(quote(piece.iter()));
                    }
                }
            }
        }
        if words.is_empty() && pieces.is_empty() {
            pieces = particles;
        }
        let mut seen = BTreeSet::new();
        words.retain(|word| seen.insert(word.clone()));
        pieces.retain(|piece| seen.insert(piece.clone()));
        let too_many = cut < text.len() || words.len() > MAX_WORDS || pieces.len() > MAX_PIECES;
        words.truncate(MAX_WORDS);
        pieces.truncate(MAX_PIECES);
        let words = words.iter().map(|word| quote(&word.chars().take(MAX_WORD_CHARS).collect::<Vec<_>>()));
        let terms: Vec<String> = words.chain(pieces).collect();
        let unsearchable = match (terms.is_empty(), too_many) {
            (true, _) => Some(Unsearchable::NoTerms),
            (false, true) => Some(Unsearchable::TooMany),
            (false, false) => None,
        };
        Self { terms, unsearchable }
    }
}

/// Lists the terms of a text that the index of words would not find, separated by spaces: pieces of runs without
/// spaces, parts of words such as `foo_bar-baz`, and folded words. At most about four times as long as the text.
pub(crate) fn extra_terms(text: &str) -> String {
    let folded = fold(text);
    let changed = folded != text;
    let mut terms = Vec::new();
    for term in split(&folded) {
        match term {
            Term::Word(word) => {
                terms.extend(parts(&word));
                if changed {
                    terms.push(word);
                }
            }
            Term::Run { chars, size } => {
                // A last piece of each shorter length, so that a search by prefix finds the end of a run too.
                let pieces = (0..chars.len()).map(|start| &chars[start..chars.len().min(start + size)]);
                terms.extend(pieces.map(|piece| piece.iter().collect()));
            }
        }
    }
    let mut seen = BTreeSet::new();
    terms.retain(|term| seen.insert(term.clone()));
    terms.join(" ")
}

/// A term of a folded text.
#[derive(Debug, PartialEq, Eq)]
enum Term {
    /// Letters and digits, also joined by `_` or `-`, as the tokenizer of words has them.
    Word(String),
    /// Characters of scripts that put no spaces between words, and the length of a piece.
    Run { chars: Vec<char>, size: usize },
}

fn fold(text: &str) -> String {
    text.nfkc().collect()
}

/// Splits a folded text into words and runs.
fn split(text: &str) -> Vec<Term> {
    let (mut terms, mut word, mut run, mut size) = (Vec::new(), String::new(), Vec::new(), 0);
    for letter in text.chars() {
        // The mark of a long vowel belongs to the kana before it, and to no script of its own.
        let piece = if letter == 'ー' && !run.is_empty() { size } else { piece_size(letter) };
        if piece != size || piece == 0 {
            end_run(&mut terms, &mut run, size);
        }
        size = piece;
        if piece > 0 {
            end_word(&mut terms, &mut word);
            run.push(letter);
        } else if letter.is_alphanumeric()
            || matches!(letter, '_' | '-')
            || (is_combining_mark(letter) && !word.is_empty())
        {
            word.push(letter);
        } else {
            end_word(&mut terms, &mut word);
        }
    }
    end_run(&mut terms, &mut run, size);
    end_word(&mut terms, &mut word);
    terms
}

fn end_run(terms: &mut Vec<Term>, run: &mut Vec<char>, size: usize) {
    if !run.is_empty() {
        terms.push(Term::Run { chars: std::mem::take(run), size });
    }
}

fn end_word(terms: &mut Vec<Term>, word: &mut String) {
    let ended = std::mem::take(word);
    if ended.chars().any(char::is_alphanumeric) {
        terms.push(Term::Word(ended));
    }
}

/// Returns the parts of a word that is joined by `_` or `-`; none if it is a single one.
fn parts(word: &str) -> Vec<String> {
    if !word.contains(['_', '-']) {
        return Vec::new();
    }
    word.split(['_', '-']).filter(|part| !part.is_empty()).map(str::to_owned).collect()
}

/// Scripts of which two characters together are most often a word.
const TWO_LETTER_SCRIPTS: [Script; 6] =
    [Script::Han, Script::Hiragana, Script::Katakana, Script::Hangul, Script::Bopomofo, Script::Yi];

/// Scripts that write a syllable with several characters, so that two of them say little.
const THREE_LETTER_SCRIPTS: [Script; 4] = [Script::Thai, Script::Lao, Script::Khmer, Script::Myanmar];

/// Returns the length of a piece in characters, or zero for scripts that separate words.
fn piece_size(letter: char) -> usize {
    let script = letter.script();
    if TWO_LETTER_SCRIPTS.contains(&script) {
        2
    } else if THREE_LETTER_SCRIPTS.contains(&script) {
        3
    } else {
        0
    }
}

/// Quotes a term; letters of a term are never quotes themselves.
fn quote<'a>(letters: impl IntoIterator<Item = &'a char>) -> String {
    format!("\"{}\"", letters.into_iter().collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_without_spaces_are_cut_into_pieces() {
        assert_eq!(extra_terms("東京タワー"), "東京 京タ タワ ワー ー");
        assert_eq!(extra_terms("plain words only"), "");
        assert_eq!(extra_terms("foo_bar-baz"), "foo bar baz");
        assert_eq!(extra_terms("ＴＯＫＹＯ ﾀﾜｰ"), "TOKYO タワ ワー ー");
        assert_eq!(extra_terms("ไทย"), "ไทย ทย ย");
        assert_eq!(Query::parse("犬").terms.join(" OR "), "\"犬\" *");
        assert_eq!(Query::parse("私の犬 Rex").terms.join(" OR "), "\"Rex\" OR \"私の\" OR \"の犬\"");
        assert_eq!(Query::parse("foo-bar").terms.join(" OR "), "\"foo\" OR \"bar\" OR \"foo-bar\"");
    }

    #[test]
    fn grammar_alone_is_looked_for_only_where_there_is_nothing_else() {
        assert_eq!(Query::parse("りんご").terms.join(" OR "), "\"りん\" OR \"んご\"");
        assert_eq!(Query::parse("東京です").terms.join(" OR "), "\"東京\" OR \"京で\"");
    }

    #[test]
    fn what_cannot_be_searched_is_named() {
        for text in ["", " ", "?!", "🎉", "--", "_"] {
            assert_eq!(Query::parse(text).unsearchable, Some(Unsearchable::NoTerms), "{text:?}");
        }
        let many = |count| (0..count).map(|n| format!("w{n} ")).collect::<String>();
        assert_eq!(Query::parse(&many(MAX_WORDS)).unsearchable, None);
        assert_eq!(Query::parse(&many(MAX_WORDS + 1)).unsearchable, Some(Unsearchable::TooMany));
        let han = |count: u32| (0..count).filter_map(|n| char::from_u32(0x4E00 + n)).collect::<String>();
        let most = u32::try_from(MAX_PIECES).expect("small") + 1;
        assert_eq!(Query::parse(&han(most)).unsearchable, None);
        assert_eq!(Query::parse(&han(most + 1)).unsearchable, Some(Unsearchable::TooMany));
        assert_eq!(Query::parse(&"界".repeat(MAX_QUERY_BYTES)).unsearchable, Some(Unsearchable::TooMany));
    }
}
