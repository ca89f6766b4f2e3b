//! Text within bounds.

use std::borrow::Cow;

/// Room for the marker that stands where text was left out.
const MARKER_ROOM: usize = 64;

/// At most `limit` characters: what is too long loses its middle, and says how much.
pub fn cut_middle(text: &str, limit: usize) -> Cow<'_, str> {
    // A text has at most as many characters as bytes.
    if text.len() <= limit {
        return Cow::Borrowed(text);
    }
    let count = text.chars().count();
    if count <= limit {
        return Cow::Borrowed(text);
    }
    let keep = limit.saturating_sub(MARKER_ROOM);
    let head = keep / 2;
    let head_end = byte_at(text, head);
    let tail_start = byte_at(text, count - (keep - head));
    let (start, end) = (text.get(..head_end).unwrap_or(""), text.get(tail_start..).unwrap_or(""));
    Cow::Owned(format!("{start}\n[... {} characters left out ...]\n{end}", count - keep))
}

/// At most `limit` characters of a text, and a note of how much is left out at its end.
pub(crate) fn cut_end(text: &str, limit: usize) -> Cow<'_, str> {
    if text.len() <= limit {
        return Cow::Borrowed(text);
    }
    let count = text.chars().count();
    if count <= limit {
        return Cow::Borrowed(text);
    }
    let start = text.get(..byte_at(text, limit)).unwrap_or("");
    Cow::Owned(format!("{start} [... {} more characters]", count - limit))
}

/// A name or message as one visible line of at most `limit` characters: control, direction and invisible
/// characters are escaped.
pub(crate) fn one_line(text: &str, limit: usize) -> String {
    let mut line = String::new();
    for c in text.chars().take(limit) {
        match c {
            '"' | '\'' | '\\' => line.push(c),
            _ => line.extend(c.escape_debug()),
        }
    }
    if text.chars().nth(limit).is_some() {
        line.push_str("...");
    }
    line
}

fn byte_at(text: &str, character: usize) -> usize {
    text.char_indices().nth(character).map_or(text.len(), |(at, _)| at)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_middle_goes_and_the_marker_says_how_much() {
        let text = format!("{}{}{}", "a".repeat(100), "b".repeat(100), "c".repeat(100));
        let cut = cut_middle(&text, 164);
        assert_eq!(
            *cut,
            format!("{}\n[... 200 characters left out ...]\n{}", "a".repeat(50), "c".repeat(50))
        );
        assert_eq!(cut_end("äöüß", 2), "äö [... 2 more characters]");
    }

    #[test]
    fn names_stay_on_one_visible_line() {
        assert_eq!(
            one_line("a\nb\u{1b}[2J\u{202e}x\u{200b}'\\", 99),
            "a\\nb\\u{1b}[2J\\u{202e}x\\u{200b}'\\"
        );
        assert_eq!(one_line("abcdef", 3), "abc...");
    }

    proptest! {
        #[test]
        fn no_cut_is_longer_than_its_limit(text in "\\PC{0,400}", limit in 64usize..200) {
            prop_assert!(cut_middle(&text, limit).chars().count() <= limit);
        }
    }
}
