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
/// What ends a sentence or a part of one; inside a token it stands for itself.
const PUNCTUATION: &str = ".,;:!?…。，；：！？、";

/// Whether a text, in NFC, has a value as a whole token or as a quoted span.
pub(crate) fn holds(text: &str, value: &str) -> bool {
    // Only what is in NFC already: what is sent is the value itself, byte for byte.
    if value.is_empty() || value.nfc().ne(value.chars()) {
        return false;
    }
    let is_token = value.chars().count() >= MIN_TOKEN_CHARS && !value.contains(char::is_whitespace);
    text.match_indices(value).any(|(at, _)| {
        let before = text.get(..at).and_then(|before| before.chars().next_back());
        let after = text.get(at + value.len()..).unwrap_or_default();
        is_quoted(before, after) || (is_token && before.is_none_or(is_border) && ends(after))
    })
}

fn is_quoted(before: Option<char>, after: &str) -> bool {
    QUOTES.iter().any(|(open, close)| before == Some(*open) && after.starts_with(*close))
}

fn is_border(c: char) -> bool {
    c.is_whitespace() || BRACKETS.contains(c) || QUOTES.iter().any(|(open, close)| c == *open || c == *close)
}

/// Whether a token can end before this text: sentence punctuation counts where the sentence, too, ends.
fn ends(after: &str) -> bool {
    after.trim_start_matches(|c| PUNCTUATION.contains(c)).chars().next().is_none_or(is_border)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owned(text: &str, value: &str) -> bool {
        holds(&text.nfc().collect::<String>(), value)
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
