//! One spelling of a text, in which values are looked for: composed, with plain digits, spaces and dashes, and without signs
//! that are not seen (NFKC, Unicode Standard Annex 15).

use std::ops::Range;
use std::sync::LazyLock;

use regex::Regex;
use unicode_normalization::UnicodeNormalization as _;
use unicode_normalization::char::is_combining_mark;

/// The zeros of decimal digits that compatibility leaves as they are; the other nine follow each.
const ZEROS: [u32; 17] = [
    0x0660, 0x06F0, 0x0966, 0x09E6, 0x0A66, 0x0AE6, 0x0B66, 0x0BE6, 0x0C66, 0x0CE6, 0x0D66, 0x0E50, 0x0ED0,
    0x0F20, 0x1040, 0x17E0, 0x1810,
];

struct Classes {
    dash: Regex,
    unseen: Regex,
}

static CLASSES: LazyLock<Option<Classes>> = LazyLock::new(|| {
    Some(Classes { dash: Regex::new(r"\A\p{Pd}\z").ok()?, unseen: Regex::new(r"\A\p{Cf}\z").ok()? })
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
            for folded in original.get(start..end).unwrap_or_default().nfkc().filter_map(fold_letter) {
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

fn fold_letter(letter: char) -> Option<char> {
    if letter.is_ascii() {
        return Some(letter);
    }
    if letter.is_whitespace() {
        return Some(' ');
    }
    let digit = ZEROS.iter().find_map(|zero| {
        let digit = u32::from(letter).checked_sub(*zero).filter(|digit| *digit < 10)?;
        char::from_digit(digit, 10)
    });
    if digit.is_some() {
        return digit;
    }
    // The classes are constants that a test builds; without them a letter stays as it is.
    let Some(classes) = CLASSES.as_ref() else { return Some(letter) };
    let mut bytes = [0; 4];
    let text: &str = letter.encode_utf8(&mut bytes);
    if classes.unseen.is_match(text) {
        return None;
    }
    Some(if classes.dash.is_match(text) { '-' } else { letter })
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
