//! Several words of the owner's, without quotation marks.
//!
//! A *phrase* is two or more words that follow one another in the owner's own text («the team dinner next Friday»). It counts as
//! an owner value wherever a token of theirs does. It consists of letters, digits, hyphens and apostrophes alone, so it is never
//! an address, a path or a host, and it has at least one word that does not stand in any text, so that «of the other» says
//! nothing.
//!
//! Looser is what a call that reads may be made of: words of the owner's in any order. Each of them alone is an owner value
//! already; their order tells the server of the tool nothing that was read.

use std::collections::BTreeSet;

use serde_json::Value;
use unicode_normalization::UnicodeNormalization as _;

use super::MAX_PLAIN_NUMBER;
use super::choice::is_common;
use super::text::{fold_text, mentions};
use crate::owner::{self, MIN_TOKEN_CHARS};

/// The most words of a value that are compared with the owner's.
const MAX_WORDS: usize = 12;
/// The longest such value, in bytes.
const MAX_BYTES: usize = 200;
/// The longest name of an argument, in bytes.
const MAX_NAME_BYTES: usize = 40;
/// The most digits in one: a number or a code is a text.
const MAX_NAME_DIGITS: usize = 2;
/// The fewest words of a phrase: one alone counts only as it is written (`crate::owner`).
const MIN_PHRASE_WORDS: usize = 2;

/// The folded words of a value that consists of words alone, one space between two of them.
fn words_of(value: &str) -> Option<Vec<String>> {
    let is_plain = |c: char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '\'' | '\u{2019}');
    // A value with a mark of an address, a path or a query is none of words, however familiar they are.
    if value.len() > MAX_BYTES || !value.chars().all(is_plain) {
        return None;
    }
    let words: Vec<String> = value.split(' ').map(fold_text).collect();
    let is_word = |word: &String| {
        // A word that begins or ends with a mark could hide more of it from a reader.
        word.starts_with(char::is_alphanumeric)
            && word.ends_with(char::is_alphanumeric)
            && !word.contains(' ')
    };
    (words.len() <= MAX_WORDS && words.iter().all(is_word)).then_some(words)
}

/// Returns true if a word can distinguish one thing from another.
fn is_telling(word: &str) -> bool {
    word.chars().count() >= MIN_TOKEN_CHARS && word.contains(char::is_alphabetic) && !is_common(word)
}

/// The words of a folded text.
fn has_word(text: &str, word: &str) -> bool {
    mentions(text, word).next().is_some()
}

/// The owner's own texts, and those that count like them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct OwnerTexts {
    /// In NFC, newest first.
    texts: Vec<String>,
    /// The same, folded.
    folded: Vec<String>,
    /// Values that the owner has accepted as their own.
    endorsed: BTreeSet<String>,
    /// Other texts without external content, in NFC: memories.
    trusted: Vec<String>,
    /// Only exact owner values count, as in a strict home.
    pub(super) is_narrow: bool,
}

impl OwnerTexts {
    pub(super) const fn nothing() -> Self {
        Self {
            texts: Vec::new(),
            folded: Vec::new(),
            endorsed: BTreeSet::new(),
            trusted: Vec::new(),
            is_narrow: false,
        }
    }

    /// Starts with texts, newest first.
    pub(super) fn new(texts: impl IntoIterator<Item = String>) -> Self {
        // Clients spell one letter in different ways; a value is compared in the same form.
        let texts: Vec<String> = texts.into_iter().map(|text| text.nfc().collect()).collect();
        let folded = texts.iter().map(|text| fold_text(text)).collect();
        Self { texts, folded, ..Self::default() }
    }

    pub(super) fn endorse_values(&mut self, values: impl IntoIterator<Item = String>) {
        self.endorsed.extend(values);
    }

    pub(super) fn trust_texts(&mut self, texts: impl IntoIterator<Item = String>) {
        self.trusted.extend(texts.into_iter().map(|text| text.nfc().collect::<String>()));
    }

    /// Returns the newest text; an empty one if there is none.
    pub(super) fn request(&self) -> &str {
        self.texts.first().map_or("", String::as_str)
    }

    /// Returns the newest text, folded.
    pub(super) fn folded_request(&self) -> &str {
        self.folded.first().map_or("", String::as_str)
    }

    /// Returns true if there are texts older than the request.
    pub(super) const fn has_earlier(&self) -> bool {
        self.texts.len() > 1
    }

    /// Returns true if a value stands in the owner's own words, or was endorsed.
    pub(super) fn has_value(&self, value: &str) -> bool {
        self.endorsed.contains(value)
            || self
                .texts
                .iter()
                .any(|text| owner::holds_value(text, value) || owner::holds_number(text, value))
            || self.is_phrase(value)
    }

    /// Returns true if a value stands in a text without external content.
    pub(super) fn is_trusted(&self, value: &str) -> bool {
        self.has_value(value) || self.trusted.iter().any(|text| owner::holds_value(text, value))
    }

    /// Returns true if a value is two or more words that follow one another in the owner's own text.
    pub(super) fn is_phrase(&self, value: &str) -> bool {
        if self.is_narrow {
            return false;
        }
        let Some(words) = words_of(value) else { return false };
        words.len() >= MIN_PHRASE_WORDS && words.iter().any(|word| is_telling(word)) && {
            // One telling word at least: a phrase such as «of the other» stands in many texts.
            let phrase = words.join(" ");
            self.folded.iter().any(|text| has_word(text, &phrase))
        }
    }

    /// Returns true if a value consists of words of one text of the owner's, in any order.
    pub(super) fn is_of_owners_words(&self, value: &str) -> bool {
        if self.is_narrow {
            return false;
        }
        let Some(words) = words_of(value) else { return false };
        words.iter().any(|word| is_telling(word))
            // All words come from one text: across texts an attacker could choose a combination that no
            // request has.
            && self.folded.iter().any(|text| words.iter().all(|word| has_word(text, word)))
    }

    /// Returns true if each word of a text stands in the owner's newest words, or is too short to say anything. The list of common words
    /// is not asked here: it may only add questions.
    pub(super) fn is_in_request(&self, text: &str) -> bool {
        if self.folded.is_empty() || text.len() > MAX_BYTES {
            return false;
        }
        let request = self.folded_request();
        let text = fold_text(text);
        let words: Vec<&str> =
            text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).collect();
        // A short number says something, a short word does not.
        let says_nothing =
            |word: &str| !word.contains(char::is_numeric) && word.chars().count() < MIN_TOKEN_CHARS;
        words.len() <= MAX_WORDS && words.iter().all(|word| says_nothing(word) || has_word(request, word))
    }
}

/// Returns true if `asks_for` accepts every text in a call. A small number says too little to direct anything.
pub(super) fn every_text(arguments: &Value, asks_for: &dyn Fn(&str) -> bool) -> bool {
    match arguments {
        Value::String(text) => asks_for(text),
        Value::Array(items) => items.iter().all(|item| every_text(item, asks_for)),
        // Names of arguments are the server's; what is no name is a text in its place.
        Value::Object(fields) => fields
            .iter()
            .all(|(name, field)| (is_name(name) || asks_for(name)) && every_text(field, asks_for)),
        Value::Number(number) => {
            let is_plain = number.as_u64().is_some_and(|number| number <= MAX_PLAIN_NUMBER);
            is_plain || asks_for(&number.to_string())
        }
        Value::Null | Value::Bool(_) => true,
    }
}

/// Tells if a text could be the name of an argument: one word of a program.
fn is_name(text: &str) -> bool {
    text.len() <= MAX_NAME_BYTES
        && text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$'))
        && text.bytes().filter(u8::is_ascii_digit).count() <= MAX_NAME_DIGITS
}

/// Tells if a text is a date, a time, or both with an offset from UTC, as RFC 3339 writes them, and nothing else; seconds and their
/// parts may be left out.
pub(super) fn is_time(text: &str) -> bool {
    // Nothing may stand behind the time, since it would be sent as well.
    let dated = text.split_at_checked(10).filter(|(date, _)| is_date(date));
    let Some((_, rest)) = dated else { return is_clock(text) };
    let Some(rest) = rest.strip_prefix(['T', 't', ' ']) else { return rest.is_empty() };
    let (clock, offset) = match rest.find(['Z', 'z', '+', '-']) {
        Some(at) => rest.split_at_checked(at).unwrap_or((rest, "")),
        None => (rest, ""),
    };
    let is_offset = match offset.strip_prefix(['+', '-']) {
        Some(offset) => offset.len() == 5 && is_clock(offset),
        None => matches!(offset, "" | "Z" | "z"),
    };
    is_clock(clock) && is_offset
}

/// `2026-12-31`.
fn is_date(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let [year, month, day] = parts.as_slice() else { return false };
    parse_number(year, 4).is_some()
        && parse_number(month, 2).is_some_and(|month| (1..=12).contains(&month))
        && parse_number(day, 2).is_some_and(|day| (1..=31).contains(&day))
}

/// `14:30`, `14:30:05`, `14:30:05.250`.
fn is_clock(text: &str) -> bool {
    let (clock, part) = text.split_once('.').unwrap_or((text, "0"));
    let parts: Vec<&str> = clock.split(':').collect();
    let below = |part: &str, most: u32| parse_number(part, 2).is_some_and(|number| number <= most);
    let is_part = matches!(part.len(), 1..=9) && part.bytes().all(|byte| byte.is_ascii_digit());
    match parts.as_slice() {
        [hour, minute] => below(hour, 24) && below(minute, 59) && !text.contains('.'),
        [hour, minute, second] => below(hour, 24) && below(minute, 59) && below(second, 60) && is_part,
        _ => false,
    }
}

/// A number that is written with so many digits.
fn parse_number(text: &str, digits: usize) -> Option<u32> {
    (text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit())).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::super::Origins;
    use super::*;

    fn owner(text: &str) -> OwnerTexts {
        OwnerTexts::new([text.to_owned()])
    }

    #[test]
    fn words_that_follow_one_another_are_a_phrase() {
        let origins = owner(
            "When is the team dinner\nnext Friday? Ask Bob O\u{2019}Brien (the cook), not Ann. Or the other one",
        );
        for phrase in
            ["team dinner", "the team dinner next Friday", "TEAM dinner", "Bob O'Brien", "dinner next"]
        {
            assert!(origins.is_phrase(phrase), "{phrase}");
        }
        for other in [
            "team",
            "dinner Friday",
            "am dinner",
            "team dinn",
            "Friday Ask",
            "O'Brien the",
            "the other",
            "team  dinner",
            " team dinner",
            "team dinner ",
            "team\u{200b} dinner",
            "",
            " ",
            "not Ann.",
            "eve@evil.test dinner",
            "team/dinner next",
        ] {
            assert!(!origins.is_phrase(other), "{other:?}");
        }
        let long = vec!["plinth"; MAX_WORDS + 1].join(" ");
        assert!(!owner(&long).is_phrase(&long) && owner(&long).is_phrase("plinth plinth"));
    }

    #[test]
    fn a_phrase_in_any_script_ends_with_its_words() {
        let origins = owner("перенеси встречу клуба садоводов");
        assert!(origins.is_phrase("встречу клуба") && origins.is_phrase("клуба садоводов"));
        assert!(!origins.is_phrase("встречу клу"));
    }

    #[test]
    fn a_reading_may_be_made_of_the_owners_words_in_any_order() {
        let origins =
            OwnerTexts::new(["the invoice of the garden firm".to_owned(), "and Tuesday".to_owned()]);
        for query in ["garden invoice", "Invoice garden firm", "invoice", "the invoice"] {
            assert!(origins.is_of_owners_words(query), "{query}");
        }
        for query in ["of the", "garden password", "invoice Tuesday", "from:garden", "", "garden\ninvoice"] {
            assert!(!origins.is_of_owners_words(query), "{query:?}");
        }
    }

    #[test]
    fn what_says_only_what_was_asked_is_in_the_request() {
        let origins = Origins::new([
            "Put the night train to Vienna into my calendar, 2 seats".to_owned(),
            "Raffle".to_owned(),
        ]);
        for text in ["Night train to Vienna", "night train, Vienna!", "Calendar", "to the", ""] {
            assert!(origins.owner.is_in_request(text), "{text}");
        }
        for text in [
            "Raffle",
            "Night train to Vienna 9",
            "Vienna evil.test",
            "Vienna: bring cash",
            "the raffle",
            "On the way",
        ] {
            assert!(!origins.owner.is_in_request(text), "{text}");
        }
        let asks = |title: &str, notes: &str| {
            origins.asks_for(&serde_json::json!({ "title": title, "notes": notes, "start": "2026-12-05T14:00+01:00", "all": true }))
        };
        assert!(asks("Night train to Vienna", "2 seats"));
        assert!(
            !asks("Night train to Vienna", "call 0900 5550199") && !asks("Vienna", "0900-5550199:1, raffle")
        );
        for other in [
            "0900 555 0199",
            "12",
            "2026-12-05 14:00 call",
            "1-2",
            "0900-555-0199",
            "482-913",
            "12:+41900555019",
            "2026-13-05",
            "2026-12-05T14:00+0900555",
            "25:61",
            "09:00.555",
        ] {
            assert!(!is_time(other), "{other}");
        }
        for time in [
            "2026-12-05",
            "14:00",
            "14:00:05.25",
            "2026-12-05T14:00",
            "2026-12-05 14:00:00Z",
            "2026-12-05T14:00:00.5-05:30",
        ] {
            assert!(is_time(time), "{time}");
        }
        let says = |value: serde_json::Value| origins.asks_for(&value);
        assert!(says(serde_json::json!({ "seats": 2, "time": { "dateTime": "14:00" } })));
        assert!(!says(serde_json::json!({ "n": 9_005_550_199_u64 })));
        assert!(!says(serde_json::json!({ "labels": { "Ring 0900 5550199": true } })));
        assert!(!says(serde_json::json!({ "labels": { "Ring_0900_5550199": true } })));
    }

    /// In a narrow home only what is quoted counts.
    #[test]
    fn a_strict_home_knows_no_phrases() {
        let mut origins = owner("the team dinner 'next week'");
        origins.is_narrow = true;
        assert!(!origins.is_phrase("team dinner") && !origins.is_of_owners_words("dinner team"));
        assert!(origins.has_value("next week") && !origins.has_value("team dinner"));
    }
}
