//! Owner values: arguments that stand, as they are, in what the owner wrote.

use unicode_normalization::UnicodeNormalization as _;

/// The shortest token that counts, in characters: shorter ones stand in any text.
pub const MIN_TOKEN_CHARS: usize = 3;

/// Quotes that open a span, each with the one that closes it.
const QUOTES: [(char, char); 9] = [
    ('"', '"'),
    ('\'', '\''),
    ('`', '`'),
    ('“', '”'),
    ('„', '“'),
    ('‘', '’'),
    ('«', '»'),
    ('»', '«'),
    ('‹', '›'),
];
const BRACKETS: &str = "()[]{}<>（）【】「」";
/// Ends of sentences or clauses; inside a token they stand for themselves.
const PUNCTUATION: &str = ".,;:!?…。，；：！？、";

/// Returns true if a text, in NFC, has a value as a whole token or as a quoted span.
pub fn holds_value(text: &str, value: &str) -> bool {
    // Only what is in NFC already: what is sent is the value itself, byte for byte.
    if value.is_empty() || value.nfc().ne(value.chars()) {
        return false;
    }
    // A value with a space would match across the owner's words by chance, so it counts in quotes alone.
    let is_token = value.chars().count() >= MIN_TOKEN_CHARS && !value.contains(char::is_whitespace);
    text.match_indices(value).any(|(at, _)| {
        let before = text.get(..at).and_then(|before| before.chars().next_back());
        let after = text.get(at + value.len()..).unwrap_or_default();
        // Inside a longer word it is no value of the owner's: `example.org` in `notexample.org`.
        is_quoted(before, after) || (is_token && before.is_none_or(is_border) && ends_token(after))
    })
}

/// Returns true if a text has a number, as a whole token of at least [`MIN_TOKEN_CHARS`], that equals a value
/// except for zeros at its end: `120.50` is `120.5`.
pub fn holds_number(text: &str, value: &str) -> bool {
    // A short number such as `12` stands in any text for another reason.
    let Some(wanted) = plain_number(value).filter(|_| value.len() >= MIN_TOKEN_CHARS) else { return false };
    text.split(is_border).map(|token| token.trim_end_matches(|c| PUNCTUATION.contains(c))).any(|token| {
        token.len() >= MIN_TOKEN_CHARS && plain_number(token).is_some_and(|number| number == wanted)
    })
}

/// A number of digits and at most one point, without zeros at its end.
fn plain_number(text: &str) -> Option<&str> {
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    // Digits and one point alone: signs, exponents and thousands separators mean different things to
    // different readers.
    let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_digits(whole) || !is_digits(part) {
        return None;
    }
    Some(if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text })
}

fn is_quoted(before: Option<char>, after: &str) -> bool {
    QUOTES.iter().any(|(open, close)| before == Some(*open) && after.starts_with(*close))
}

fn is_border(c: char) -> bool {
    c.is_whitespace() || BRACKETS.contains(c) || QUOTES.iter().any(|(open, close)| c == *open || c == *close)
}

/// Returns true if a token can end before this text: sentence punctuation counts where the sentence, too,
/// ends.
fn ends_token(after: &str) -> bool {
    after.trim_start_matches(|c| PUNCTUATION.contains(c)).chars().next().is_none_or(is_border)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owned(text: &str, value: &str) -> bool {
        holds_value(&text.nfc().collect::<String>(), value)
    }

    #[test]
    fn whole_tokens_and_quoted_spans_are_the_owners() {
        let url = "https://example.org/a?b=c";
        for text in [
            url.to_owned(),
            format!("Read {url}."),
            format!("see ({url})"),
            format!("<{url}>, please"),
            format!("is it “{url}”?!"),
            format!("one\n{url}\ntwo"),
            format!("“{url} is good” it said, and so is «this {url}»"),
            format!("„{url} ist gut“"),
            format!("see ‘that’{url}"),
        ] {
            assert!(owned(&text, url), "{text}");
        }
        assert!(owned("write 'two words' down", "two words"));
        assert!(owned("answer \"no\"", "no"));
        assert!(owned("cafe\u{301}s", "caf\u{e9}s"), "the text is normalised");
    }

    #[test]
    fn a_number_is_the_owners_however_many_zeros_end_it() {
        for (text, value) in [
            ("pay 120.50 EUR", "120.5"),
            ("pay (120.5).", "120.50"),
            ("pay 300.00", "300"),
            ("pay 300", "300"),
        ] {
            assert!(holds_number(text, value), "{text:?} {value:?}");
        }
        for (text, value) in [
            ("pay 120.50", "1205"),
            ("pay 120.50", "12.05"),
            ("pay 300", "30"),
            ("pay 0.30", "0.03"),
            ("pay 12", "12"),
            ("pay 1.2.3", "1.2"),
            ("pay -120.50", "120.5"),
            ("pay 120.50x", "120.5"),
            ("pay ...", ""),
            ("pay .50", ".5"),
        ] {
            assert!(!holds_number(text, value), "{text:?} {value:?}");
        }
        for (text, value) in [
            ("12a.5 in all", "12a.5"),
            ("12.5x0 in all", "12.5x"),
            ("12. in all", "12."),
            (".50 in all", ".50"),
        ] {
            assert!(!holds_number(text, value), "no number: {value}");
        }
    }

    #[test]
    fn parts_of_tokens_and_what_was_never_said_are_not() {
        for (text, value) in [
            ("read https://example.org/a?b=c", "https://example.org/a"),
            ("read https://example.org/a", "https://example.org/a?b=c"),
            ("read https://example.org.evil.net/", "https://example.org"),
            ("mail ann@example.org", "example.org"),
            ("read https://example.org/a", "example.org"),
            ("read https://example.org/a", "HTTPS://EXAMPLE.ORG/a"),
            ("two words", "two words"),
            ("say no", "no"),
            ("'mismatched\"", "mismatched words"),
            ("caf\u{e9}s", "cafe\u{301}s"),
            ("", "abc"),
            ("abc", ""),
            ("say \"\"", ""),
            ("it said \"no way\"", "no"),
            ("it said \"oh no\"", "no"),
        ] {
            assert!(!owned(text, value), "{text:?} {value:?}");
        }
    }
}
