//! One spelling of a text, in which values are looked for: composed, with plain digits, spaces and dashes, and without signs
//! that are not seen (NFKC, Unicode Standard Annex 15).

use std::ops::Range;
use std::sync::LazyLock;

use regex::Regex;
use unicode_normalization::UnicodeNormalization as _;
use unicode_normalization::char::is_combining_mark;

/// Signs that people and programs put between the digits of a number, beside the dashes, and those for which they are taken.
const SEPARATORS: [(char, char); 3] = [('\u{2212}', '-'), ('\u{b7}', '.'), ('\u{2022}', '.')];
/// The frame that makes a key of a digit.
const KEYCAP: char = '\u{20e3}';

struct Classes {
    dash: Regex,
    unseen: Regex,
    digit: Regex,
}

static CLASSES: LazyLock<Option<Classes>> = LazyLock::new(|| {
    Some(Classes {
        dash: Regex::new(r"\A\p{Pd}\z").ok()?,
        unseen: Regex::new(r"\A[\p{Cf}\p{Default_Ignorable_Code_Point}]\z").ok()?,
        digit: Regex::new(r"\A\p{Nd}\z").ok()?,
    })
});

/// A text in one spelling, with the way back.
pub(crate) struct FoldedText<'a> {
    original: &'a str,
    /// `None`: it is spelled so already.
    folded: Option<(String, Vec<Range<usize>>)>,
}

impl<'a> FoldedText<'a> {
    pub(crate) fn fold(original: &'a str) -> Self {
        if original.is_ascii() {
            return Self { original, folded: None };
        }
        let (mut text, mut places) = (String::with_capacity(original.len()), Vec::new());
        let mut letters = original.char_indices().peekable();
        while let Some((start, letter)) = letters.next() {
            // A letter goes with its marks: together they can be one.
            let mut end = start.saturating_add(letter.len_utf8());
            while let Some((at, mark)) = letters.next_if(|(_, next)| is_combining_mark(*next)) {
                end = at.saturating_add(mark.len_utf8());
            }
            // What is not seen goes first: a mark behind it would not be composed with its letter.
            let seen =
                original.get(start..end).unwrap_or_default().chars().filter(|letter| !is_unseen(*letter));
            for folded in seen.nfkc().filter(|letter| !is_unseen(*letter)).map(fold_letter) {
                text.push(folded);
                // One for each byte.
                places.resize(text.len(), start..end);
            }
        }
        Self { original, folded: Some((text, places)) }
    }

    /// Returns the text in its one spelling.
    pub(crate) fn as_str(&self) -> &str {
        self.folded.as_ref().map_or(self.original, |(text, _)| text.as_str())
    }

    /// Returns the place in the original of a place that is not empty.
    pub(crate) fn place_of(&self, at: Range<usize>) -> Range<usize> {
        let Some((_, places)) = &self.folded else { return at };
        let start = places.get(at.start).map_or(self.original.len(), |place| place.start);
        let last = places.get(at.end.saturating_sub(1).max(at.start));
        start..last.map_or(self.original.len(), |place| place.end)
    }
}

/// Returns a text in its one spelling.
pub(crate) fn fold_text(text: &str) -> String {
    FoldedText::fold(text).as_str().to_owned()
}

/// Returns true if a letter is one of a class. The classes are constants that a test builds; without them it is of none.
fn is_of(letter: char, class: fn(&Classes) -> &Regex) -> bool {
    let mut bytes = [0; 4];
    CLASSES.as_ref().is_some_and(|classes| class(classes).is_match(letter.encode_utf8(&mut bytes)))
}

fn is_unseen(letter: char) -> bool {
    !letter.is_ascii() && (letter == KEYCAP || is_of(letter, |classes| &classes.unseen))
}

fn fold_letter(letter: char) -> char {
    if letter.is_ascii() {
        return letter;
    }
    if letter.is_whitespace() {
        return ' ';
    }
    if let Some((_, plain)) = SEPARATORS.iter().find(|(sign, _)| *sign == letter) {
        return *plain;
    }
    if let Some(digit) = fold_digit(letter) {
        return digit;
    }
    if is_of(letter, |classes| &classes.dash) { '-' } else { letter }
}

/// Returns the plain digit for one of another script. Digits of a script follow each other from its zero, and where scripts
/// touch, each has ten (Unicode Standard, section 4.6).
fn fold_digit(letter: char) -> Option<char> {
    let is_digit = |letter: char| is_of(letter, |classes| &classes.digit);
    if !is_digit(letter) {
        return None;
    }
    let mut zero = u32::from(letter);
    while let Some(before) = zero.checked_sub(1).filter(|code| char::from_u32(*code).is_some_and(is_digit)) {
        zero = before;
    }
    char::from_digit(u32::from(letter).saturating_sub(zero) % 10, 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_has_one_spelling_and_the_way_back() {
        for (text, expected) in [
            ("plain", "plain"),
            ("Mu\u{308}ller", "M\u{fc}ller"),
            ("\u{ff14}\u{ff11}", "41"),
            ("\u{660}\u{6f1}\u{967}", "011"),
            ("a\u{a0}b\u{2011}c\u{2013}d", "a b-c-d"),
            ("a\u{200b}b\u{ad}c", "abc"),
            ("a\u{fe0f}b\u{34f}c\u{180b}d", "abcd"),
            ("Mu\u{34f}\u{308}ller", "M\u{fc}ller"),
            ("4\u{fe0f}\u{20e3}1", "41"),
            ("1\u{2212}2\u{b7}3\u{2022}4", "1-2.3.4"),
            ("\u{7c1}\u{1091}\u{a620}\u{11066}\u{1e959}", "11009"),
            ("\u{1d7d8}\u{1d7ff}", "09"),
        ] {
            assert_eq!(fold_text(text), expected, "{text:?}");
        }
        let text = "x A\u{200b}nn Mu\u{308}ller\u{200b}, \u{ff14}";
        let folded = FoldedText::fold(text);
        let found = |part: &str| {
            let start = folded.as_str().find(part).expect("is there");
            &text[folded.place_of(start..start + part.len())]
        };
        assert_eq!(found("Ann M\u{fc}ller"), "A\u{200b}nn Mu\u{308}ller");
        assert_eq!(found("4"), "\u{ff14}");
    }
}
