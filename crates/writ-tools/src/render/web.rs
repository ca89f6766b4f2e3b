//! Renders the answer of a URL as text.

use super::html;
use crate::outcome::WebHit;
use crate::render::{MAX_FETCHED_BYTES, MAX_LINE_CHARS, MAX_NAME_CHARS};
use crate::text::one_line;

/// Marks the place where the rest of a text is missing.
const CUT: &str = "\n[cut here: the text continues]";

/// Head and body of an answer: where it came from first, since redirects may have led elsewhere.
pub(crate) fn render_fetched(status: u16, url: &str, media: &str, body: &[u8], truncated: bool) -> String {
    let head = format!("HTTP {status} from {}", one_line(url, MAX_NAME_CHARS));
    let media_type = media;
    let media =
        if media.is_empty() { String::new() } else { format!(" ({})", one_line(media, MAX_NAME_CHARS)) };
    let more = if truncated { "\n[the answer was longer; the rest was not read]" } else { "" };
    let text = match std::str::from_utf8(body) {
        Ok(text) => text.to_owned(),
        // A body that was cut may end in the middle of a character.
        Err(error) if is_text(media.as_str()) || error.error_len().is_none() => {
            String::from_utf8_lossy(body).into_owned()
        }
        Err(_) => format!("[{} bytes that are not text]", body.len()),
    };
    let text = if html::is_page(media_type, &text) { html::text_of(&text) } else { text };
    let text = if text.trim().is_empty() { "(the answer is empty)".to_owned() } else { text };
    let text = text.trim_end();
    // The heading and the notes count towards the limit.
    let room = MAX_FETCHED_BYTES.saturating_sub(head.len() + media.len() + more.len() + CUT.len() + 1);
    if text.len() <= room {
        return format!("{head}{media}{more}\n{text}");
    }
    let kept = text.get(..text.floor_char_boundary(room)).unwrap_or_default();
    format!("{head}{media}{more}\n{kept}{CUT}")
}

/// Reports a saved file and its path.
pub(super) fn render_saved(status: u16, url: &str, media: &str, path: &str, bytes: u64) -> String {
    let url = one_line(url, MAX_NAME_CHARS);
    let media = if media.is_empty() { "of no named type" } else { &one_line(media, MAX_NAME_CHARS) };
    format!("HTTP {status} from {url}\nsaved to {} ({bytes} bytes, {media})", one_line(path, MAX_NAME_CHARS))
}

/// Lists the hits one after another. Each stands on lines of its own, so that none can pass for two.
pub(super) fn render_hits(hits: &[WebHit]) -> String {
    if hits.is_empty() {
        return "(nothing was found)".to_owned();
    }
    let one = |(n, WebHit { title, url, text }): (usize, &WebHit)| {
        let (title, url) = (one_line(title, MAX_NAME_CHARS), one_line(url, MAX_LINE_CHARS));
        format!("{}. {title}\n   {url}\n   {}", n + 1, one_line(text, MAX_LINE_CHARS))
    };
    hits.iter().enumerate().map(one).collect::<Vec<_>>().join("\n")
}

fn is_text(media: &str) -> bool {
    let media = media.to_ascii_lowercase();
    ["text/", "json", "xml", "javascript"].iter().any(|kind| media.contains(kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hits_are_numbered_and_none_passes_for_two() {
        assert_eq!(render_hits(&[]), "(nothing was found)");
        let hit = |title: &str| WebHit {
            title: title.into(),
            url: "https://a.example/".into(),
            text: "one\ntwo".into(),
        };
        assert_eq!(
            render_hits(&[hit("A\n2. B"), hit("C")]),
            "1. A\\n2. B\n   https://a.example/\n   one\\ntwo\n2. C\n   https://a.example/\n   one\\ntwo"
        );
    }

    /// Rows: WIN-212
    #[test]
    fn a_long_text_is_cut_at_its_limit_between_two_characters_and_says_so() {
        let page = "\u{e9}\u{20ac}x".repeat(25_000);
        assert_eq!(page.len(), 150_000);
        let cut = render_fetched(200, "https://docs.rs/", "text/plain", page.as_bytes(), false);
        assert!(
            cut.ends_with(CUT) && cut.starts_with("HTTP 200 from https://docs.rs/ (text/plain)\n"),
            "{}",
            cut.len()
        );
        assert!((MAX_FETCHED_BYTES - 3..=MAX_FETCHED_BYTES).contains(&cut.len()), "{}", cut.len());
        let body = cut.lines().nth(1).expect("a body");
        assert!(page.starts_with(body) && !body.contains('\u{fffd}'));
        let short = render_fetched(
            200,
            "https://docs.rs/",
            "text/plain",
            page.get(..90_000).expect("whole").as_bytes(),
            false,
        );
        assert!(!short.contains(CUT) && short.len() > 90_000, "twin");
    }

    #[test]
    fn answers_say_where_they_came_from_and_what_is_missing() {
        let text = render_fetched(200, "https://docs.rs/", "text/plain", b"hello\n", false);
        assert_eq!(text, "HTTP 200 from https://docs.rs/ (text/plain)\nhello");
        let cut =
            render_fetched(200, "https://docs.rs/", "", "h\u{e9}".as_bytes().get(..2).expect("two"), true);
        assert!(cut.contains("the rest was not read") && cut.contains("\nh\u{fffd}"), "{cut}");
        assert!(render_fetched(204, "u", "", b"", false).ends_with("(the answer is empty)"));
        assert!(
            render_fetched(200, "u", "image/png", b"\x89PNG\xff\x00\x00\x00", false)
                .ends_with("[8 bytes that are not text]")
        );
        assert!(
            render_fetched(200, "u", "text/html", b"caf\xe9 au lait", false).contains("caf\u{fffd} au lait")
        );
        let page = b"<html><title>T</title><script>x</script><p>caf&eacute;";
        assert_eq!(
            render_fetched(200, "u", "text/html", page, false),
            "HTTP 200 from u (text/html)\nT\n\ncaf\u{e9}"
        );
        assert_eq!(
            render_saved(200, "https://docs.rs/a", "", "a\nb.bin", 7),
            "HTTP 200 from https://docs.rs/a\nsaved to a\\nb.bin (7 bytes, of no named type)"
        );
        let long = render_fetched(200, &"u".repeat(9_000), "text/plain", &vec![b'x'; 1_000_000], true);
        assert_eq!(long.len(), MAX_FETCHED_BYTES);
    }
}
