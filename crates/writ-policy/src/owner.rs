//! Owner values: arguments that stand, as they are, in what the owner wrote.

use unicode_normalization::UnicodeNormalization as _;

use crate::prepared::Sink;

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

/// Whether every sink is an owner value of one of the texts, and there is one at all.
pub fn owns_all(texts: &[String], sinks: &[Sink]) -> bool {
    let texts: Vec<String> = texts.iter().map(|text| text.nfc().collect()).collect();
    let is_owned = |sink: &Sink| texts.iter().any(|text| holds(text, &sink.value));
    !sinks.is_empty() && sinks.iter().all(is_owned)
}

/// Whether a text, in NFC, has a value as a whole token or as a quoted span.
fn holds(text: &str, value: &str) -> bool {
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
        owns_all(&[text.to_owned()], &[Sink { argument: "url".into(), value: value.into() }])
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
        ] {
            assert!(!owned(text, value), "{text:?} {value:?}");
        }
    }

    #[test]
    fn every_sink_must_be_owned_and_there_must_be_one() {
        let sink = |value: &str| Sink { argument: "a".into(), value: value.into() };
        let texts = ["from one".to_owned(), "to two".to_owned()];
        assert!(owns_all(&texts, &[sink("one"), sink("two")]));
        assert!(!owns_all(&texts, &[sink("one"), sink("three")]));
        assert!(!owns_all(&texts, &[]));
        assert!(!owns_all(&[], &[sink("one")]));
    }
}
