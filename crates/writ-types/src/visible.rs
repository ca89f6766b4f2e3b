//! Makes invisible characters of foreign text visible: those that would change a terminal, or how text looks.

use std::borrow::Cow;

/// Makes every character visible that could move the cursor, change colours, reorder or hide text; keeps line
/// breaks and tabs.
///
/// Works character by character: a text may be cut anywhere and its pieces be treated one after the other.
/// Treating a text twice changes nothing more.
pub fn escape_text(text: &str) -> Cow<'_, str> {
    escape_where(text, |c| c != '\n' && c != '\t' && acts_unseen(c))
}

/// As [`escape_text`], but for texts that must stay on one line: line breaks and tabs are escaped as well.
pub fn escape_line(text: &str) -> Cow<'_, str> {
    escape_where(text, acts_unseen)
}

fn escape_where(text: &str, hostile: impl Fn(char) -> bool) -> Cow<'_, str> {
    // Most texts need no change, and are not copied.
    if !text.contains(&hostile) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '\n' if hostile(c) => safe.push_str("\\n"),
            '\t' if hostile(c) => safe.push_str("\\t"),
            _ if hostile(c) => safe.extend(c.escape_unicode()),
            _ => safe.push(c),
        }
    }
    Cow::Owned(safe)
}

/// Returns true if a character acts on a terminal or the eye without being seen.
///
/// Controls, and what Unicode calls format characters as far as they are invisible (Unicode 16, categories
/// Cc, Cf, Zl, Zp), fillers that look like nothing, and variation selectors other than the one of emoji.
pub fn acts_unseen(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{00ad}'                      // Soft hyphen.
            | '\u{034f}'                    // Combining grapheme joiner.
            | '\u{061c}'                    // Arabic letter mark.
            | '\u{115f}' | '\u{1160}'       // Hangul fillers.
            | '\u{17b4}' | '\u{17b5}'       // Khmer inherent vowels.
            | '\u{180b}'..='\u{180f}'       // Mongolian selectors and vowel separator.
            | '\u{200b}'..='\u{200f}'       // Zero width; direction marks.
            | '\u{2028}'..='\u{202e}'       // Line and paragraph separator; direction embedding and override.
            | '\u{2060}'..='\u{206f}'       // Invisible operators; direction isolates.
            | '\u{3164}' | '\u{ffa0}'       // Hangul fillers.
            | '\u{fe00}'..='\u{fe0e}'       // Variation selectors.
            | '\u{feff}'                    // Byte order mark.
            | '\u{fff0}'..='\u{fffb}'       // Interlinear annotation.
            | '\u{1bca0}'..='\u{1bca3}'     // Shorthand format controls.
            | '\u{1d173}'..='\u{1d17a}'     // Musical format controls.
            | '\u{e0000}'..='\u{e0fff}'     // Tags; more variation selectors.
        )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The terminal's part of hostile case 3.
    #[test]
    fn hostile_characters_become_visible() {
        for (text, expected) in [
            ("\u{1b}[2J\u{1b}]0;x\u{7}", "\\u{1b}[2J\\u{1b}]0;x\\u{7}"),
            ("a\u{9b}31mb", "a\\u{9b}31mb"),
            ("\u{202e}gpj.exe", "\\u{202e}gpj.exe"),
            ("pay\u{200b}pal", "pay\\u{200b}pal"),
            ("a\u{2066}b\u{2069}", "a\\u{2066}b\\u{2069}"),
            ("x\u{e0041}\u{e007f}", "x\\u{e0041}\\u{e007f}"),
            ("x\u{fe01}\u{e0100}", "x\\u{fe01}\\u{e0100}"),
            ("over\rwritten\u{8}", "over\\u{d}written\\u{8}"),
            ("a\0b\u{7f}\u{85}", "a\\u{0}b\\u{7f}\\u{85}"),
            ("\u{feff}\u{ad}\u{2028}\u{3164}", "\\u{feff}\\u{ad}\\u{2028}\\u{3164}"),
        ] {
            assert_eq!(escape_text(text), expected);
        }
    }

    #[test]
    fn honest_text_stays_as_it_is() {
        for text in ["a\n\tb", "Grüße, e\u{301}", "日本語 العربية עברית", "✈\u{fe0f} 👍🏽", "a\\u{1b}b", ""]
        {
            assert!(matches!(escape_text(text), Cow::Borrowed(_)), "{text}");
        }
        assert_eq!(escape_line("a\n\tb"), "a\\n\\tb");
    }

    proptest! {
        #[test]
        fn nothing_hostile_is_left_wherever_a_text_is_cut(text in any::<String>(), cut in any::<prop::sample::Index>()) {
            let whole = escape_text(&text).into_owned();
            prop_assert!(!whole.chars().any(|c| c != '\n' && c != '\t' && acts_unseen(c)));
            prop_assert_eq!(escape_text(&whole).into_owned(), whole.clone());
            let places: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
            let (start, end) = text.split_at(*cut.get(&places));
            prop_assert_eq!(format!("{}{}", escape_text(start), escape_text(end)), whole);
        }
    }
}
