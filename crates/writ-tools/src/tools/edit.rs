//! Edits that keep a file's conventions: its encoding, mark, line ends and last line end.

use std::borrow::Cow;
use std::ops::Range;

use writ_types::encoding::{LineEnds, MARK, TextEncoding, TextForm};

/// The text of a file, and how it becomes bytes.
#[derive(Debug)]
pub(super) struct FileText {
    pub(super) text: String,
    pub(super) encoding: TextEncoding,
}

impl FileText {
    /// The bytes of the file.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        self.encoding.encode_text(&self.text)
    }
}

impl From<String> for FileText {
    fn from(text: String) -> Self {
        Self { text, encoding: TextEncoding::Utf8 }
    }
}

/// A replacement with known places.
#[derive(Debug)]
pub(super) struct TextEdit<'a> {
    /// The places of the old text, as byte ranges in order.
    pub(super) places: Vec<Range<usize>>,
    new: Cow<'a, str>,
    /// The line end of lines that replace none; `None`: the new text has ends of its own, which are written as they stand.
    usual: Option<&'static str>,
}

impl TextEdit<'_> {
    /// The text that replaces a place.
    pub(super) fn text_for(&self, text: &str, place: &Range<usize>) -> String {
        match self.usual {
            None => self.new.clone().into_owned(),
            Some(usual) => with_ends_of(text.get(place.clone()).unwrap_or_default(), &self.new, usual),
        }
    }
}

/// Finds a text in a file, where `\n` in the call stands for either kind of line end.
///
/// A call that writes `\r\n` means it: in `new` it is written as it stands, and in `old` it is found only where it is. If it
/// is nowhere, the call was wrong about the file, and both texts are read as if they had `\n`.
pub(super) fn find_places<'a>(text: &str, old: &str, new: &'a str) -> TextEdit<'a> {
    // A mark alone is text to be found: without it, nothing would be, everywhere.
    let old = old.strip_prefix(MARK).filter(|rest| !rest.is_empty()).unwrap_or(old);
    let new = new.strip_prefix(MARK).unwrap_or(new);
    // A text with explicit line ends is meant as it is.
    if old.contains("\r\n") {
        let places: Vec<_> = text.match_indices(old).map(|(at, _)| at..at + old.len()).collect();
        if !places.is_empty() {
            return TextEdit { places, new: Cow::Borrowed(new), usual: None };
        }
    }
    let was_wrong = old.contains("\r\n");
    let usual = (was_wrong || !new.contains("\r\n")).then(|| usual_end(text));
    let new = if was_wrong { Cow::Owned(new.replace("\r\n", "\n")) } else { Cow::Borrowed(new) };
    let old = old.replace("\r\n", "\n");
    let plain = Plain::from_text(text);
    let mut places: Vec<_> = plain
        .text
        .match_indices(&old)
        .map(|(at, _)| plain.original_place(at)..plain.original_place(at + old.len()))
        .collect();
    if let Some(last) = old.strip_suffix('\n').filter(|last| places.is_empty() && !last.is_empty())
        && plain.text.ends_with(last)
    {
        // The last line of the file has no end, which no reader of its lines can see.
        places.push(plain.original_place(plain.text.len() - last.len())..text.len());
        let new = new.strip_suffix('\n').unwrap_or(&new).to_owned();
        return TextEdit { places, new: Cow::Owned(new), usual };
    }
    TextEdit { places, new, usual }
}

/// A text with `\n` for every line end, and the way back to the original.
struct Plain<'a> {
    text: Cow<'a, str>,
    /// Before which bytes of `text` a carriage return was left out, in order.
    left_out: Vec<usize>,
}

impl<'a> Plain<'a> {
    fn from_text(text: &'a str) -> Self {
        let mut left_out = Vec::new();
        for (at, _) in text.match_indices("\r\n") {
            // Places in the plain text are counted without the removed characters before them.
            left_out.push(at - left_out.len());
        }
        let text = if left_out.is_empty() { Cow::Borrowed(text) } else { text.replace("\r\n", "\n").into() };
        Self { text, left_out }
    }

    /// Returns the place in the original of a byte of the plain text; for a line end, its beginning.
    fn original_place(&self, at: usize) -> usize {
        at + self.left_out.partition_point(|before| *before < at)
    }
}

/// The line end that most lines of a text have.
fn usual_end(text: &str) -> &'static str {
    let pairs = text.matches("\r\n").count();
    // The more frequent line end wins; a tie is a plain line feed.
    if pairs > text.matches('\n').count() - pairs { "\r\n" } else { "\n" }
}

/// A line without its end, and the end: empty for a last line without one.
fn split_end(line: &str) -> (&str, &str) {
    let content = line.strip_suffix('\n').map_or(line, |line| line.strip_suffix('\r').unwrap_or(line));
    (content, line.get(content.len()..).unwrap_or_default())
}

/// Returns a new text with the line ends of the old one that it replaces: equal lines at the beginning and at
/// the end keep theirs, those between take them by line number, and further ones are `usual`.
fn with_ends_of(old: &str, new: &str, usual: &str) -> String {
    if !old.contains("\r\n") && usual == "\n" {
        return new.to_owned();
    }
    let old: Vec<_> = old.split_inclusive('\n').map(split_end).collect();
    let lines: Vec<_> = new.split_inclusive('\n').map(split_end).collect();
    let same = |(old, new): (&(&str, &str), &(&str, &str))| old.0 == new.0 && !old.1.is_empty();
    let first = old.iter().zip(&lines).take_while(|pair| same(*pair)).count();
    let ends = old.iter().skip(first).rev().zip(lines.iter().skip(first).rev());
    let last = ends.take_while(|(old, new)| old.0 == new.0).count();
    let mut text = String::with_capacity(new.len() + lines.len());
    for (number, (content, end)) in lines.iter().enumerate() {
        text.push_str(content);
        if end.is_empty() {
            continue;
        }
        let from_last = lines.len() - number;
        let twin = if from_last <= last { old.len().checked_sub(from_last) } else { Some(number) };
        let old_end = twin.and_then(|twin| old.get(twin)).map_or("", |(_, end)| end);
        text.push_str(if old_end.is_empty() { usual } else { old_end });
    }
    text
}

/// A file written anew as a whole: with the mark and encoding that it has and, if the new text does not write `\r\n` itself,
/// with its line ends and with or without a last one.
pub(super) fn rewrite_text(old: &str, encoding: TextEncoding, new: &str) -> FileText {
    let (marked, old) = old.strip_prefix(MARK).map_or((false, old), |old| (true, old));
    let new = new.strip_prefix(MARK).unwrap_or(new);
    let mut text = if marked { MARK.to_string() } else { String::new() };
    // New text with line ends of its own keeps them.
    if new.contains("\r\n") || old.is_empty() {
        text.push_str(new);
    } else {
        text.push_str(&with_ends_of(old, &last_end_as(new, old.ends_with('\n')), usual_end(old)));
    }
    FileText { text, encoding }
}

/// Does the same for a file without an available text.
pub(super) fn rewrite_large(form: Option<TextForm>, new: &str) -> FileText {
    let Some(form) = form else { return new.to_owned().into() };
    let new = new.strip_prefix(MARK).unwrap_or(new);
    let mut text = if form.mark { MARK.to_string() } else { String::new() };
    let body = last_end_as(new, form.last_end);
    match form.ends {
        _ if new.contains("\r\n") => text.push_str(new),
        LineEnds::Crlf => text.push_str(&body.replace('\n', "\r\n")),
        LineEnds::Lf | LineEnds::Mixed => text.push_str(&body),
    }
    FileText { text, encoding: form.encoding }
}

/// A text with or without an end of its last line.
fn last_end_as(text: &str, ended: bool) -> Cow<'_, str> {
    match (ended, text.strip_suffix('\n')) {
        (true, None) if !text.is_empty() => Cow::Owned(format!("{text}\n")),
        (false, Some(without)) => Cow::Borrowed(without),
        (true | false, _) => Cow::Borrowed(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every place replaced, as the tool does.
    fn patched(text: &str, old: &str, new: &str) -> Option<String> {
        let edit = find_places(text, old, new);
        let [place] = edit.places.as_slice() else { return None };
        let mut result = text.to_owned();
        result.replace_range(place.clone(), &edit.text_for(text, place));
        Some(result)
    }

    #[test]
    fn a_patch_with_line_feeds_fits_every_kind_of_line_end() {
        for (text, old, new, wanted) in [
            // The whole file has pairs; lines that are changed, added and taken away.
            ("a\r\nb\r\nc\r\n", "a\nb\n", "a\nB\n", "a\r\nB\r\nc\r\n"),
            ("a\r\nb\r\nc\r\n", "b", "b\nb2", "a\r\nb\r\nb2\r\nc\r\n"),
            ("a\r\nb\r\nc\r\n", "a\nb\nc", "c", "c\r\n"),
            ("a\r\nb\r\n", "\nb", "\nB", "a\r\nB\r\n"),
            // Mixed: what stays the same stays as it is, what is changed takes the end of the line it replaces.
            ("a\r\nb\nc\r\nd\n", "a\nb\nc\n", "a\nX\nc\n", "a\r\nX\nc\r\nd\n"),
            ("a\nb\r\nc\r\n", "a\nb\nc\n", "a\nx\ny\nb\nc\n", "a\nx\r\ny\r\nb\r\nc\r\n"),
            ("a\nb\r\nc\n", "b\nc", "c", "a\nc\n"),
            // The file's last line has no end.
            ("a\r\nb", "b\n", "c\n", "a\r\nc"),
            ("a\nb", "b\n", "b\nc\n", "a\nb\nc"),
            // A carriage return inside a line is none of its ends.
            ("a\rb\r\nc\r\n", "c", "d", "a\rb\r\nd\r\n"),
            ("\u{feff}a\r\n", "\u{feff}a\n", "b\n", "\u{feff}b\r\n"),
        ] {
            assert_eq!(patched(text, old, new).as_deref(), Some(wanted), "{text:?} {old:?} {new:?}");
        }
        assert_eq!(
            find_places("\u{feff}a", "\u{feff}", "").places.first(),
            Some(&(0..3)),
            "a mark is not nothing"
        );
        assert_eq!(patched("a\nb\r\na\r\nb\r\n", "a\nb\n", "x\n"), None, "twice, however the lines end");
    }

    #[test]
    fn pairs_that_a_call_writes_are_meant() {
        for (text, old, new, wanted) in [
            ("a\nb\n", "a\n", "a\r\n", "a\r\nb\n"),
            ("a\r\nb\r\n", "a\r\n", "a\n", "a\nb\r\n"),
            ("a\r\nb\r\na\nb\n", "a\r\nb", "x", "x\r\na\nb\n"),
            // The file has none of them: the call is wrong about it.
            ("a\nb\n", "a\r\nb", "a\r\nc", "a\nc\n"),
        ] {
            assert_eq!(patched(text, old, new).as_deref(), Some(wanted), "{text:?} {old:?} {new:?}");
        }
    }

    #[test]
    fn a_file_written_anew_keeps_its_conventions() {
        let utf8 = TextEncoding::Utf8;
        for (old, new, wanted) in [
            ("a\r\nb\r\n", "x\ny\n", "x\r\ny\r\n"),
            ("a\r\nb\r\n", "x\ny", "x\r\ny\r\n"),
            ("a\r\nb", "x\ny\n", "x\r\ny"),
            ("\u{feff}a\n", "x\n", "\u{feff}x\n"),
            ("\u{feff}a\n", "\u{feff}x\n", "\u{feff}x\n"),
            ("a\r\nb\nc\n", "a\nb\nd\nc\n", "a\r\nb\nd\nc\n"),
            ("a\n", "x\r\ny", "x\r\ny"),
            ("", "x", "x"),
            ("a\n", "", ""),
            ("\u{feff}", "x\n", "\u{feff}x\n"),
        ] {
            assert_eq!(rewrite_text(old, utf8, new).text, wanted, "{old:?} {new:?}");
            if !old.contains("b\nc") && !old.is_empty() && old != "\u{feff}" {
                let form = TextForm::of_text(old, utf8);
                assert_eq!(rewrite_large(Some(form), new).text, wanted, "{old:?} {new:?}");
            }
        }
        assert_eq!(
            rewrite_text("\u{feff}a\r\n", TextEncoding::Utf16Le, "b\n").to_bytes(),
            b"\xff\xfeb\0\r\0\n\0"
        );
    }
}
