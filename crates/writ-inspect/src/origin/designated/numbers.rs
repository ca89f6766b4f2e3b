//! Numbers in prose: accounts and amounts.

use std::ops::{Range, RangeInclusive};

use super::super::link::is_link;
use super::super::text::fold_text;

/// The fewest digits of what could be an account, a card or a phone's number.
const MIN_ACCOUNT_DIGITS: usize = 6;
/// The most digits before the point of what is an amount and no account.
const MAX_WHOLE_DIGITS: usize = 7;
/// The number of letters and digits of an IBAN (ISO 13616).
const IBAN_CHARS: RangeInclusive<usize> = 15..=34;

/// Digits and letters that follow one another in groups, as numbers of accounts are written.
struct Run {
    /// Capital letters and digits alone.
    number: String,
    words: Range<usize>,
}

/// The runs of groups in a text; a group has a digit and is no date. Anything but a blank between two of them ends a run.
fn find_runs(text: &str) -> Vec<Run> {
    // A number of an account may be written in groups, so neighbouring groups are one number until something
    // else stands between.
    let (mut found, mut number, mut first) = (Vec::new(), String::new(), 0);
    let mut end = |number: &mut String, words: Range<usize>| {
        if !number.is_empty() {
            found.push(Run { number: std::mem::take(number), words });
        }
    };
    let mut last = 0;
    for (place, token) in text.split_whitespace().enumerate() {
        let word: String = fold_text(token).to_uppercase();
        let is_inside = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '/' | '_');
        for (part, inner) in word.split(|c: char| !is_inside(c)).enumerate() {
            let group = inner.trim_matches(|c: char| !c.is_ascii_alphanumeric());
            let is_group = group.contains(|c: char| c.is_ascii_digit()) && !is_date(group) && !is_part(group);
            if part > 0 || !is_group || !inner.starts_with(group) {
                end(&mut number, first..place + part.min(1));
            }
            if is_group {
                first = if number.is_empty() { place } else { first };
                number.extend(group.chars().filter(char::is_ascii_alphanumeric));
                if !inner.ends_with(group) {
                    end(&mut number, first..place + 1);
                }
            }
        }
        last = place + 1;
    }
    end(&mut number, first..last);
    found
}

/// Returns true if a group is a number with one or two digits behind its point, as amounts are written.
fn is_part(group: &str) -> bool {
    let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    group.split_once('.').is_some_and(|(whole, part)| {
        is_number(whole) && is_number(part) && part.len() <= 2 && whole.len() <= MAX_WHOLE_DIGITS
    })
}

/// Finds candidates for account numbers: runs with enough digits.
pub(super) fn find_accounts(text: &str) -> Vec<String> {
    let digits = |run: &Run| run.number.bytes().filter(u8::is_ascii_digit).count();
    find_runs(text)
        .into_iter()
        .filter(|run| digits(run) >= MIN_ACCOUNT_DIGITS)
        .map(|run| run.number)
        .collect()
}

/// Tells if a number is an IBAN: its remainder by 97 is 1 (ISO 13616, ISO 7064).
fn is_iban(number: &str) -> bool {
    let Some((head, tail)) = number.split_at_checked(4) else { return false };
    let mut head_of = head.chars();
    let has_country = head_of.by_ref().take(2).all(|c| c.is_ascii_uppercase());
    let has_check = head_of.all(|c| c.is_ascii_digit());
    let remainder = tail.chars().chain(head.chars()).try_fold(0_u32, |sum, c| {
        // A letter counts as two digits, so A is 10 and Z is 35.
        let value = c.to_digit(36)?;
        Some((sum * if value < 10 { 10 } else { 100 } + value) % 97)
    });
    IBAN_CHARS.contains(&number.len()) && has_country && has_check && remainder == Some(1)
}

/// Returns true if a word is a date as `2026-12-31`, or begins with one and a time.
fn is_date(word: &str) -> bool {
    let shape: String = word.chars().take(10).map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    let rest = word.get(10..).unwrap_or_default();
    shape == "0000-00-00" && (rest.is_empty() || rest.starts_with('T'))
}

/// Finds candidates for amounts: words with a digit that are no date, no time, and no part of an IBAN, an
/// address or a link.
pub(super) fn find_amounts(text: &str) -> Vec<String> {
    let ibans: Vec<Run> = find_runs(text).into_iter().filter(|run| is_iban(&run.number)).collect();
    let is_time = |word: &str| {
        word.contains(':')
            && word.split(':').all(|part| part.len() == 2 && part.bytes().all(|b| b.is_ascii_digit()))
    };
    let words = text.split_whitespace().map(|word| word.trim_matches(|c: char| !c.is_alphanumeric()));
    words
        .enumerate()
        .filter(|(place, _)| !ibans.iter().any(|run| run.words.contains(place)))
        .map(|(_, word)| word)
        .filter(|word| word.contains(|c: char| c.is_numeric()) && !is_date(word) && !is_time(word))
        .filter(|word| !word.contains('@') && !is_link(word))
        .map(|word| parse_decimal(word).unwrap_or_else(|| word.to_owned()))
        .collect()
}

/// A number as `1200` or `36.5`, however its thousands and its part are written: `1,200.00`, `36,50`.
pub(super) fn parse_decimal(word: &str) -> Option<String> {
    let word = word.trim_matches(|c: char| c.is_alphabetic() || "€$£¥".contains(c));
    if word.is_empty() || !word.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b',')) {
        return None;
    }
    let (whole, part) = match word.rfind(['.', ',']) {
        // At most two digits after the last mark are a part; three are a group of thousands.
        Some(at) if word.len() - at - 1 <= 2 => (word.get(..at)?, word.get(at + 1..)?),
        Some(_) | None => (word, ""),
    };
    let whole: String = whole.chars().filter(char::is_ascii_digit).collect();
    let part = part.trim_end_matches('0');
    let whole = whole.trim_start_matches('0');
    let whole = if whole.is_empty() { "0" } else { whole };
    Some(if part.is_empty() { whole.to_owned() } else { format!("{whole}.{part}") })
}
