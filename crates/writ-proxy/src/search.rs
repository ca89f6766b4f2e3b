//! Personal data in free text: what its form gives away.
//!
//! Addresses of mail, telephone numbers, cards and bank accounts are found by their form; names and postal addresses
//! have none, and are found where the case knows them (`known`). It is the last of several walls: a declared column is
//! replaced as a whole, and never searched.

use std::ops::Range;
use std::sync::LazyLock;

use regex::Regex;
use writ_operations::PersonalKind;

use crate::kind::{TOKEN_DIGITS, prefixes};

/// The fewest and most digits of a telephone number (E.164 has 15 at most; local ones below 7 stand for anything).
const PHONE_DIGITS: std::ops::RangeInclusive<usize> = 7..=15;
/// The fewest digits of a number that neither `+`, `0` nor `(` begins: shorter ones are dates and numbers of orders.
const BARE_PHONE_DIGITS: usize = 10;
/// The digits of cards (ISO/IEC 7812).
const CARD_DIGITS: std::ops::RangeInclusive<usize> = 13..=19;

/// Personal data in a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FoundValue {
    /// Its place, in bytes.
    pub(crate) at: Range<usize>,
    /// Its kind.
    pub(crate) kind: PersonalKind,
}

/// How thoroughly a text is searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Depth {
    /// For everything: text that people wrote.
    Free,
    /// Not for telephone numbers, as which numbers of orders would pass.
    Plain,
}

struct Patterns {
    token: Regex,
    email: Regex,
    iban: Regex,
    digits: Regex,
    phone: Regex,
    card: Regex,
}

static PATTERNS: LazyLock<Option<Patterns>> = LazyLock::new(|| {
    let prefixes = prefixes().collect::<Vec<_>>().join("|");
    let token = format!("(?:{prefixes})[0-9a-f]{{{TOKEN_DIGITS}}}");
    Some(Patterns {
        token: Regex::new(&token).ok()?,
        email: Regex::new(
            r"(?i)[\p{L}\p{N}._%+'\-]+\s?(?:@|\(at\)|\[at\]|＠)\s?[\p{L}\p{N}.\-]+\.[\p{L}]{2,}",
        )
        .ok()?,
        iban: Regex::new(
            r"(?i)(?:\b|_)[A-Z]{2}\d{2}(?:[.,_\s\p{Zs}\p{Pd}\p{Cf}]{0,2}[A-Z0-9]{4}){2,7}(?:[.,_\s\p{Zs}\p{Pd}\p{Cf}]{0,2}[A-Z0-9]{1,3})?(?:\b|_)",
        )
        .ok()?,
        // Texts of people hold other spaces and dashes than a keyboard's, and signs that are not seen.
        card: Regex::new(r"[0-9](?:[.,()/_\s\p{Zs}\p{Pd}\p{Cf}]{0,3}[0-9]){12,}").ok()?,
        // With a sign between its groups that parts the items of lists as well, one begins as numbers of telephones alone do.
        phone: Regex::new(r"(?:\+|0)[0-9]+(?:(?:[,_\t\n]|\r\n)[0-9]{2,})+").ok()?,
        digits: Regex::new(r"[+(]?[0-9](?:[.()/\p{Zs}\p{Pd}\p{Cf}]{0,2}[0-9])+").ok()?,
    })
});

/// Finds the personal data in a text, in order, without overlaps. Tokens in it are left alone.
pub(crate) fn find_personal(text: &str, depth: Depth) -> Vec<FoundValue> {
    let Some(patterns) = PATTERNS.as_ref() else {
        // The patterns are constants that a test builds: without them nothing is let through.
        return vec![FoundValue { at: 0..text.len(), kind: PersonalKind::Text }];
    };
    let mut taken: Vec<Range<usize>> = patterns.token.find_iter(text).map(|found| found.range()).collect();
    let mut spans = Vec::new();
    let mut add = |at: Range<usize>, kind| {
        // The more telling form comes first; what lies within it is no finding of its own.
        if !taken.iter().any(|other| at.start < other.end && other.start < at.end) {
            taken.push(at.clone());
            spans.push(FoundValue { at, kind });
        }
    };
    for found in patterns.email.find_iter(text) {
        add(found.range(), PersonalKind::Email);
    }
    let mut from = 0;
    while let Some(found) = patterns.iban.find_at(text, from) {
        let part = found.as_str().trim_start_matches('_');
        // What looks like one may hold the begin of the next.
        from = found.start().saturating_add(1);
        if let Some(iban) = find_iban(part.trim_end_matches('_')) {
            let start = found.end().saturating_sub(part.len());
            from = start.saturating_add(iban.len());
            add(start..from, PersonalKind::Iban);
        }
    }
    // With signs between its digits that part the items of lists as well: the last digit of a card checks the others.
    for found in patterns.card.find_iter(text).filter(|found| stands_alone(text, found.range())) {
        // One that needs no such sign is found below, without what stands beside it.
        let is_plain = patterns.digits.find_iter(found.as_str()).any(|part| has_card(part.as_str()));
        if !is_plain && has_card(found.as_str()) {
            add(found.range(), PersonalKind::Card);
        }
    }
    for found in patterns.phone.find_iter(text).filter(|found| stands_alone(text, found.range())) {
        if number_kind(found.as_str(), depth) == Some(PersonalKind::Phone) {
            add(found.range(), PersonalKind::Phone);
        }
    }
    for found in patterns.digits.find_iter(text).filter(|found| stands_alone(text, found.range())) {
        let digits = found.as_str().chars().filter(char::is_ascii_digit).count();
        if let Some(kind) = number_kind(found.as_str(), depth) {
            add(found.range(), kind);
        } else if has_card(found.as_str()) {
            add(found.range(), PersonalKind::Card);
        } else if depth == Depth::Free && digits > *PHONE_DIGITS.end() {
            // Several numbers in a row, or one of a kind that is not known here.
            add(found.range(), PersonalKind::Number);
        }
    }
    spans.sort_by_key(|span| span.at.start);
    spans
}

/// Returns the account number at the start of a text; the words behind it may look like its last group.
fn find_iban(text: &str) -> Option<&str> {
    let mut part = text;
    loop {
        if is_iban(part) {
            return Some(part.trim_end_matches(|letter: char| !letter.is_ascii_alphanumeric()));
        }
        part = part.get(..part.rfind(|letter: char| !letter.is_ascii_alphanumeric())?)?;
    }
}

/// Returns true if some of a run's groups together are the number of a card, such as one with its date behind it.
fn has_card(run: &str) -> bool {
    let groups: Vec<&str> =
        run.split(|letter: char| !letter.is_ascii_digit()).filter(|group| !group.is_empty()).collect();
    (0..groups.len()).any(|first| {
        let mut digits = Vec::new();
        for group in groups.iter().skip(first) {
            digits.extend(group.chars().filter_map(|letter| letter.to_digit(10)));
            if CARD_DIGITS.contains(&digits.len()) && is_luhn(&digits) {
                return true;
            }
            // A long run has many groups, and none of these needs more of them.
            if digits.len() > *CARD_DIGITS.end() {
                break;
            }
        }
        false
    })
}

/// Returns true if no letter or digit touches a place in a text. An underscore parts words.
fn stands_alone(text: &str, at: Range<usize>) -> bool {
    let is_word = char::is_alphanumeric;
    let before = text.get(..at.start).and_then(|rest| rest.chars().next_back());
    let after = text.get(at.end..).and_then(|rest| rest.chars().next());
    !before.is_some_and(is_word) && !after.is_some_and(is_word)
}

fn number_kind(text: &str, depth: Depth) -> Option<PersonalKind> {
    let digits: Vec<u32> = text.chars().filter_map(|letter| letter.to_digit(10)).collect();
    if CARD_DIGITS.contains(&digits.len()) && is_luhn(&digits) {
        return Some(PersonalKind::Card);
    }
    let begins = text.starts_with(['+', '(', '0']);
    let is_phone = PHONE_DIGITS.contains(&digits.len()) && (begins || digits.len() >= BARE_PHONE_DIGITS);
    // In a column that is no text a bare number is more likely an order's than a telephone's.
    (is_phone && (depth == Depth::Free || text.starts_with('+')) && !is_date(text))
        .then_some(PersonalKind::Phone)
}

/// Returns true for `2026-11-26`, alone or with the hour of a time behind it.
fn is_date(text: &str) -> bool {
    let mut parts = text.split(|letter: char| !letter.is_ascii_digit());
    let lengths: Vec<usize> = parts.by_ref().take(3).map(str::len).collect();
    let fits = lengths == [4, 2, 2] || lengths == [2, 2, 4];
    fits && parts.all(|part| part.len() <= 2)
}

/// Checks the digit that ends the number of a card.
fn is_luhn(digits: &[u32]) -> bool {
    let sum: u32 = digits
        .iter()
        .rev()
        .enumerate()
        .map(|(place, digit)| match (place % 2, digit * 2) {
            (0, _) => *digit,
            (_, doubled) if doubled > 9 => doubled - 9,
            (_, doubled) => doubled,
        })
        .sum();
    sum.is_multiple_of(10) && digits.iter().any(|digit| *digit != 0)
}

/// Checks the two digits of an account's number (ISO 7064, modulo 97).
fn is_iban(text: &str) -> bool {
    let letters: Vec<char> = text.chars().filter(char::is_ascii_alphanumeric).collect();
    let Some((head, body)) = letters.split_at_checked(4) else { return false };
    let rest = body.iter().chain(head).try_fold(0_u32, |rest, letter| {
        let digit = letter.to_digit(36)?;
        Some((rest * if digit > 9 { 100 } else { 10 } + digit) % 97)
    });
    rest == Some(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str, depth: Depth) -> Vec<(&str, PersonalKind)> {
        find_personal(text, depth).into_iter().map(|span| (&text[span.at], span.kind)).collect()
    }

    /// Rows: SLO-028 (in part: free text)
    #[test]
    fn personal_data_is_found_by_its_form() {
        let text = "Call +44 20 7946 0958 or 0171/2345678, mail Ann.O'Neil+x@example.co.uk, card 4111 1111-1111 1111, \
                    account DE89 3704 0044 0532 0130 00.";
        let expected = [
            ("+44 20 7946 0958", PersonalKind::Phone),
            ("0171/2345678", PersonalKind::Phone),
            ("Ann.O'Neil+x@example.co.uk", PersonalKind::Email),
            ("4111 1111-1111 1111", PersonalKind::Card),
            ("DE89 3704 0044 0532 0130 00", PersonalKind::Iban),
        ];
        assert_eq!(found(text, Depth::Free), expected);
        assert_eq!(
            found("write to ann (at) example.com", Depth::Free),
            [("ann (at) example.com", PersonalKind::Email)]
        );
    }

    /// Numbers in a row hide none among them.
    ///
    /// Rows: SLO-028 (in part: free text)
    #[test]
    fn a_number_is_found_beside_others_and_before_a_word() {
        for (text, expected) in [
            ("card 4111 1111 1111 1111 12/27", ("4111 1111 1111 1111 12/27", PersonalKind::Card)),
            ("card 12/27 4111 1111 1111 1111 123.", ("12/27 4111 1111 1111 1111 123", PersonalKind::Card)),
            ("AT61 1904 3002 3457 3201 is hers", ("AT61 1904 3002 3457 3201", PersonalKind::Iban)),
            ("1234 5678 9012 3456 7890", ("1234 5678 9012 3456 7890", PersonalKind::Number)),
            ("card_4111111111111111_1", ("4111111111111111", PersonalKind::Card)),
            ("_AT611904300234573201_", ("AT611904300234573201", PersonalKind::Iban)),
        ] {
            assert_eq!(found(text, Depth::Free), [expected], "{text}");
        }
    }

    /// Spaces and dashes of typesetting, and signs that are not seen, part no number.
    ///
    /// Rows: SLO-028 (in part: free text)
    #[test]
    fn a_number_is_found_with_any_space_or_dash_in_it() {
        for between in
            ["\u{a0}", "\u{202f}", "\u{2009}", "\u{2010}", "\u{2011}", "\u{2013}", "\u{200b}", "\u{2060}"]
        {
            for (number, kind) in [
                ("4111 1111 1111 1111", PersonalKind::Card),
                ("+44 20 7946 0958", PersonalKind::Phone),
                ("AT61 1904 3002 3457 3201", PersonalKind::Iban),
            ] {
                let number = number.replace(' ', between);
                let text = format!("it is {number}, please");
                assert_eq!(found(&text, Depth::Free), [(number.as_str(), kind)], "{between:?}");
            }
        }
    }

    /// Rows: SLO-028 (in part: free text)
    #[test]
    fn a_phone_and_an_account_are_found_with_other_signs_between_their_groups() {
        for between in ["_", ",", "\t", "\n", "\r\n"] {
            let number = "+4420 7946 0958".replace(' ', between);
            assert_eq!(found(&number, Depth::Free), [(number.as_str(), PersonalKind::Phone)], "{between:?}");
            let number = "0171 2345678".replace(' ', between);
            assert_eq!(found(&number, Depth::Free), [(number.as_str(), PersonalKind::Phone)], "{between:?}");
            let number = "AT61 1904 3002 3457 3201".replace(' ', between);
            assert_eq!(found(&number, Depth::Plain), [(number.as_str(), PersonalKind::Iban)], "{between:?}");
        }
        let (first, second) = ("AT611904300234573201", "DE89370400440532013000");
        for between in [", ", " ", "\n"] {
            let text = format!("{first}{between}{second}");
            let both = [(first, PersonalKind::Iban), (second, PersonalKind::Iban)];
            assert_eq!(found(&text, Depth::Plain), both, "{between:?}");
        }
        assert_eq!(found("orders 1001,1002,1003 at 0.50, 12.00", Depth::Free), []);
    }

    /// Rows: SLO-028 (in part: free text)
    #[test]
    fn a_card_is_found_with_other_signs_between_its_groups() {
        for between in ["\n", "_", ",", ", ", " - ", " / "] {
            let number = "4111 1111 1111 1111".replace(' ', between);
            assert_eq!(found(&number, Depth::Plain), [(number.as_str(), PersonalKind::Card)], "{between:?}");
        }
        assert_eq!(found("orders 1001, 1002, 1003 and 4111, 1111, 1111, 1112", Depth::Free), []);
    }

    /// Twin: dates, amounts, orders and tokens stay as they are.
    #[test]
    fn what_only_looks_like_personal_data_stays() {
        let token = format!("email_tk_{}", "0123456789abcdef".repeat(2));
        for text in [
            "on 2026-11-26 10:30:00 and 26.11.2026",
            "12,500.00 for order 1234567",
            "4111 1111 1111 1112 fails its check and is 16 digits",
            "A4111111111111111",
            token.as_str(),
        ] {
            assert_eq!(found(text, Depth::Plain), [], "{text}");
        }
        assert_eq!(found("order 1234567890", Depth::Plain), []);
        assert_eq!(found("+44 20 7946 0958", Depth::Plain), [("+44 20 7946 0958", PersonalKind::Phone)]);
    }
}
