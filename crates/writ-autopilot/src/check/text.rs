//! Texts of programs: without colours, and cut so that both ends stay.

use std::borrow::Cow;

/// The most bytes of an error that a prompt shows (SF 7.3).
const MAX_ERROR_BYTES: usize = 4 * 1024;
/// The bytes of each end of a longer error that stay.
const ERROR_END_BYTES: usize = 2 * 1024;

/// Removes sequences that colour text or move the cursor (ECMA-48), and what a carriage return has overwritten.
pub fn strip_colours(text: &str) -> Cow<'_, str> {
    if !text.contains(['\u{1b}', '\r']) {
        return Cow::Borrowed(text);
    }
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' => match chars.next() {
                // A control sequence: it ends with a letter or one of a few signs.
                Some('[') => while chars.next().is_some_and(|c| !('\u{40}'..='\u{7e}').contains(&c)) {},
                // A title or a link: ends with a bell, or with another escape and a backslash.
                Some(']') => while chars.next_if(|c| *c != '\u{7}' && *c != '\u{1b}').is_some() {},
                Some(_) | None => {}
            },
            '\u{7}' => {}
            // A line that a progress bar writes again and again: its last text stays.
            '\r' if chars.peek() != Some(&'\n') => {
                let start = plain.rfind('\n').map_or(0, |at| at + 1);
                plain.truncate(start);
            }
            '\r' => {}
            _ => plain.push(c),
        }
    }
    Cow::Owned(plain)
}

/// Returns the beginning of a text of at most so many bytes, whole characters alone.
fn head_of(text: &str, most: usize) -> &str {
    text.get(..text.floor_char_boundary(most)).unwrap_or(text)
}

/// Returns the end of a text of at most so many bytes, whole characters alone.
fn tail_of(text: &str, most: usize) -> &str {
    text.get(text.ceil_char_boundary(text.len().saturating_sub(most))..).unwrap_or(text)
}

/// Cuts the middle out of an output longer than `most` bytes. The result fits, unless `most` is less than the mark. The end is the
/// longer part, since failures are reported there.
pub fn cut_output(text: &str, most: usize) -> String {
    const MARK: &str = "\n[… cut …]\n";
    if text.len() <= most {
        return text.to_owned();
    }
    let room = most.saturating_sub(MARK.len());
    format!("{}{MARK}{}", head_of(text, room / 4), tail_of(text, room - room / 4))
}

/// Returns true for an error that [`cut_error`] cuts.
pub const fn is_long_error(text: &str) -> bool {
    text.len() > MAX_ERROR_BYTES
}

/// Cuts an error for a prompt: 2 KB of each end, and between them the path of the full text (SF 7.3). A short one stays as it is.
pub fn cut_error(text: &str, path: &str) -> String {
    if !is_long_error(text) {
        return text.to_owned();
    }
    let (head, tail) = (head_of(text, ERROR_END_BYTES), tail_of(text, ERROR_END_BYTES));
    format!("{head} ... [truncated, full payload at {path}] ... {tail}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_titles_and_overwritten_lines_are_removed() {
        assert_eq!(strip_colours("\u{1b}[1;32mok\u{1b}[0m\n"), "ok\n");
        assert_eq!(strip_colours("\u{1b}]0;title\u{7}a\u{1b}]8;;http://x\u{1b}\\link"), "alink");
        assert_eq!(strip_colours("10%\r50%\r100%\r\nend\r\n"), "100%\nend\n");
        assert_eq!(strip_colours("a\u{1b}[31"), "a");
        assert_eq!(strip_colours("\u{1b}"), "");
        assert!(matches!(strip_colours("plain é"), Cow::Borrowed(_)));
    }

    /// Rows: SF-161
    #[test]
    fn a_long_error_has_both_ends_and_the_place_of_the_whole() {
        let short = "x".repeat(3 * 1024);
        assert_eq!(cut_error(&short, "p"), short);
        let long = format!("{}{}{}", "a".repeat(2 * 1024), "m".repeat(96 * 1024), "z".repeat(2 * 1024));
        let expected = format!(
            "{} ... [truncated, full payload at last-error-full.txt] ... {}",
            "a".repeat(2 * 1024),
            "z".repeat(2 * 1024)
        );
        assert_eq!(cut_error(&long, "last-error-full.txt"), expected);
        // Three bytes a character: neither end is cut inside one.
        let wide = cut_error(&"語".repeat(5_000), "p");
        assert_eq!(wide.chars().filter(|c| *c == '語').count(), 2 * (2 * 1024 / 3));
    }

    #[test]
    fn an_output_is_never_longer_than_its_limit() {
        for text in ["é".repeat(20_000), "x".repeat(8_193), "語".repeat(3_000)] {
            let cut = cut_output(&text, 8_192);
            assert!(cut.len() <= 8_192 && cut.contains("[… cut …]"));
        }
        assert_eq!(cut_output("short", 8_192), "short");
        assert!(cut_output(&"x".repeat(100), 3).len() <= "\n[… cut …]\n".len());
    }
}
