//! The diff as text, for people.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use similar::{DiffOp, DiffTag, TextDiff};
use writ_types::action::{ChangeKind, FileChange};
use writ_types::digest::Digest;
use writ_types::encoding::{LineEnds, TextEncoding, TextForm, decode_text};

use crate::changes::{ChangeSet, DIFF_TEXT_MAX, Diff};
use crate::project::base::Comparison;
use crate::project::beneath;
use crate::project::view::View;

/// The most text that one diff has, in bytes: what a person can still scroll through.
const TEXT_MAX: usize = 4 * 1024 * 1024;
/// The largest file that is no text and is shown byte by byte, in bytes: four times that many characters.
pub(crate) const BYTES_MAX: usize = 64 * 1024;
/// Lines of context around a change.
const CONTEXT: usize = 3;
/// The most pairs of lines that are compared for one diff: some seconds at most. Of two texts that have nothing in common the
/// algorithm compares about as many as the longer one has with itself. What is counted is in the texts, so that the same texts
/// always have the same diff.
pub(crate) const COMPARED_MAX: usize = 100_000_000;

/// The changes with their unified diff; what is left out is listed after them.
///
/// # Errors
///
/// If the folders cannot be read, or a file changed since the change set was made.
pub(crate) fn show_diff(view: &View, changes: ChangeSet) -> io::Result<Diff> {
    let lower = Comparison::open_base(view)?;
    let root = beneath::open_root(&view.written_folder())?;
    let (mut text, mut unshown, mut left) = (String::new(), Vec::new(), COMPARED_MAX);
    for change in &changes.changes {
        let before = match change.before {
            Some(digest) => {
                check_digest(&change.path, digest, lower.read_file(Path::new(&change.path), DIFF_TEXT_MAX))?
            }
            None => Some(Vec::new()),
        };
        let after = match change.after {
            Some(digest) => check_digest(&change.path, digest, read_side(&root, &change.path)?)?,
            None => Some(Vec::new()),
        };
        let shown =
            if text.len() > TEXT_MAX { None } else { show_change(change, (before, after), &mut left) };
        match shown {
            Some(shown) => text.push_str(&shown),
            None => {
                text.push_str(&binary_summary(change));
                unshown.push(change.path.clone());
            }
        }
    }
    for notice in &changes.notices {
        text.push_str(&format!("note: {}: {}\n", notice.path, notice.why));
    }
    for left in &changes.left_out {
        text.push_str(&format!("left out: {}: {}\n", left.shown, left.reason.as_str()));
    }
    if changes.left_out_more > 0 {
        text.push_str(&format!("left out: {} more\n", changes.left_out_more));
    }
    Ok(Diff { changes, text, unshown })
}

fn read_side(root: &std::os::fd::OwnedFd, path: &str) -> io::Result<Option<Vec<u8>>> {
    let Some(file) = beneath::read_at(root, Path::new(path))? else { return Ok(None) };
    Ok(beneath::read_content(file, DIFF_TEXT_MAX)?.ok())
}

/// Returns the bytes if they have the approved digest: the diff must show the file that it names.
fn check_digest(path: &str, digest: Digest, bytes: Option<Vec<u8>>) -> io::Result<Option<Vec<u8>>> {
    match bytes {
        Some(bytes) if Digest::of_bytes(&bytes) != digest => {
            Err(io::Error::other(format!("'{path}' changed while it was read")))
        }
        bytes => Ok(bytes),
    }
}

fn file_header(change: &FileChange) -> String {
    let path = &change.path;
    let (old, new) = match change.kind {
        ChangeKind::Create => ("/dev/null".to_owned(), format!("b/{path}")),
        ChangeKind::Modify => (format!("a/{path}"), format!("b/{path}")),
        ChangeKind::Delete => (format!("a/{path}"), "/dev/null".to_owned()),
    };
    let mode = if change.executable { " (executable)" } else { "" };
    format!("--- {old}\n+++ {new}{mode}\n")
}

/// One file, completely; `None` if it is too large for that. Comparing it takes from the pairs of lines that are `left`.
pub(crate) fn show_change(
    change: &FileChange,
    (before, after): (Option<Vec<u8>>, Option<Vec<u8>>),
    left: &mut usize,
) -> Option<String> {
    let Some(before) = before else {
        // For a deleted file the name is enough; a new file must be shown.
        let goes = change.kind == ChangeKind::Delete;
        return goes.then(|| format!("{}deleted: too large to be shown\n", file_header(change)));
    };
    let after = after?;
    let (before, after, remark) = if let (Some(old), Some(new)) = (decode_text(&before), decode_text(&after))
    {
        decode_sides(old, new)
    } else if before.len().max(after.len()) <= BYTES_MAX {
        (
            show_bytewise(&before),
            show_bytewise(&after),
            "not text: every byte that is no printable ASCII is \\xNN\n".to_owned(),
        )
    } else {
        return None;
    };
    Some(format!("{}{remark}{}", file_header(change), escape_text(&diff_hunks(&before, &after, left))))
}

/// Returns both sides in the form in which they are compared, and notes on their encodings and line ends. A
/// carriage return is shown where it stands, but for texts in which every line ends with one: there one note
/// says so.
fn decode_sides(
    (old, old_encoding): (String, TextEncoding),
    (new, new_encoding): (String, TextEncoding),
) -> (String, String, String) {
    let mut remark = String::new();
    if !old.is_empty() && !new.is_empty() && old_encoding != new_encoding {
        remark.push_str(&format!("encoding: {} -> {}\n", old_encoding.as_str(), new_encoding.as_str()));
    } else {
        let encoding = if new.is_empty() { old_encoding } else { new_encoding };
        if !encoding.is_utf8() {
            remark.push_str(&format!("text in {}\n", encoding.as_str()));
        }
    }
    let ends = |text: &str, encoding| text.contains('\n').then(|| TextForm::of_text(text, encoding).ends);
    match (ends(&old, old_encoding), ends(&new, new_encoding)) {
        (None | Some(LineEnds::Crlf), Some(LineEnds::Crlf)) | (Some(LineEnds::Crlf), None) => {
            remark.push_str("lines end with \\r\\n\n");
            return (old.replace("\r\n", "\n"), new.replace("\r\n", "\n"), remark);
        }
        (Some(old), Some(new)) if old != new => {
            remark.push_str(&format!("line ends: {} -> {}\n", ends_name(old), ends_name(new)));
        }
        (None | Some(LineEnds::Lf | LineEnds::Mixed | LineEnds::Crlf), _) => {}
    }
    (old, new, remark)
}

const fn ends_name(ends: LineEnds) -> &'static str {
    match ends {
        LineEnds::Lf => "\\n",
        LineEnds::Crlf => "\\r\\n",
        LineEnds::Mixed => "some \\r\\n, some \\n",
    }
}

/// Returns the differences, line by line. Where finding the least could take more than is `left`, all from
/// the first different line to the last is shown as replaced.
fn diff_hunks(before: &str, after: &str, left: &mut usize) -> String {
    let (old, new): (Vec<&str>, Vec<&str>) =
        (before.split_inclusive('\n').collect(), after.split_inclusive('\n').collect());
    let first = old.iter().zip(&new).take_while(|(old, new)| old == new).count();
    let ends = old.iter().skip(first).rev().zip(new.iter().skip(first).rev());
    let same = first.saturating_add(ends.take_while(|(old, new)| old == new).count());
    let (olds, news) = (old.len().saturating_sub(same), new.len().saturating_sub(same));
    let longer = olds.max(news);
    // If one of the two has no lines, there is nothing to compare.
    let is_compared = olds.min(news) > 0 && longer.saturating_mul(longer) <= *left;
    let mut comparing = TextDiff::configure();
    comparing.newline_terminated(true);
    if !is_compared {
        // A time that has passed looks no further, however fast the machine is.
        let now = Instant::now();
        comparing.deadline(now.checked_sub(Duration::from_secs(1)).unwrap_or(now));
    }
    let diff = comparing.diff_slices(&old, &new);
    if is_compared {
        let changed: usize = diff.ops().iter().map(changed_lines).sum();
        *left = left.saturating_sub(olds.saturating_add(news).saturating_mul(changed));
    }
    diff.unified_diff().context_radius(CONTEXT).to_string()
}

/// Returns the number of lines that go and come with a part of a diff.
fn changed_lines(op: &DiffOp) -> usize {
    match op.tag() {
        DiffTag::Equal => 0,
        DiffTag::Delete | DiffTag::Insert | DiffTag::Replace => {
            op.old_range().len().saturating_add(op.new_range().len())
        }
    }
}

/// A file that is not shown, by size and digest.
fn binary_summary(change: &FileChange) -> String {
    let digest = |digest: Option<Digest>| digest.map_or("none".to_owned(), |digest| digest.to_string());
    let (before, after) = (digest(change.before), digest(change.after));
    format!("{}NOT SHOWN: {} bytes: {before} -> {after}\n", file_header(change), change.bytes)
}

/// Returns bytes as lines of ASCII: a person can read a program even if it hides in data.
fn show_bytewise(bytes: &[u8]) -> String {
    let mut shown = String::with_capacity(bytes.len());
    for byte in bytes {
        match byte {
            b'\n' => shown.push('\n'),
            b'\\' => shown.push_str("\\\\"),
            b'\t' | b' '..=b'~' => shown.push(char::from(*byte)),
            _ => shown.push_str(&format!("\\x{byte:02x}")),
        }
    }
    shown
}

/// Returns text with escaped control and direction characters, so that the shown text is the real one.
fn escape_text(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        let plain = matches!(c, '\n' | '\t');
        if plain || crate::name::showable_name(c.encode_utf8(&mut [0; 4]).as_bytes()).is_some() {
            shown.push(c);
        } else {
            shown.extend(c.escape_unicode());
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(numbers: impl Iterator<Item = usize>) -> String {
        numbers.map(|n| format!("{n}\n")).collect()
    }

    /// What would take too long to compare is shown as replaced, all of it, with what surrounds it; and always so.
    #[test]
    fn comparing_is_bounded_and_hides_nothing() {
        let before = lines(0..100);
        let after = before.replace("\n40\n", "\nforty\n").replace("\n50\n", "\nfifty\n");
        let (mut left, mut none) = (COMPARED_MAX, 10);
        let least = diff_hunks(&before, &after, &mut left);
        assert!(least.contains("-40\n+forty\n") && !least.contains("\n 45\n"), "{least}");
        assert_eq!(COMPARED_MAX - left, 22 * 4, "eleven lines of each, and four of them changed");
        let all = diff_hunks(&before, &after, &mut none);
        assert!(all.starts_with("@@ -38,17 +38,17 @@\n 37\n 38\n 39\n-40\n-41\n"), "{all}");
        assert!(all.contains("-50\n+forty\n+41\n") && all.ends_with("+fifty\n 51\n 52\n 53\n"), "{all}");
        assert_eq!(none, 10, "what is not compared takes nothing");
        assert_eq!(diff_hunks(&before, &after, &mut none), all);
    }

    #[test]
    fn very_many_different_lines_end_soon() {
        let (before, after) = (lines(0..80_000), lines(100_000..160_000));
        let mut left = COMPARED_MAX;
        let all = diff_hunks(&before, &after, &mut left);
        assert!(all.starts_with("@@ -1,80000 +1,60000 @@\n-0\n") && all.ends_with("+159999\n"));
        assert_eq!(all.lines().count(), 140_001);
        // However few lines the other one has.
        let all = diff_hunks(&lines(0..190), &"\n".repeat(500_000), &mut COMPARED_MAX.clone());
        assert!(all.starts_with("@@ -1,190 +1,500000 @@\n-0\n") && all.ends_with("+\n"));
    }

    /// A long file that is new or gone leaves the others of its diff all that is compared.
    #[test]
    fn what_is_not_compared_takes_nothing() {
        let (long, mut left) = (lines(0..100_000), COMPARED_MAX);
        assert!(diff_hunks("", &long, &mut left).starts_with("@@ -0,0 +1,100000 @@\n+0\n"));
        assert!(diff_hunks(&long, "", &mut left).starts_with("@@ -1,100000 +0,0 @@\n-0\n"));
        assert_eq!(left, COMPARED_MAX);
    }

    #[test]
    fn a_change_of_line_ends_or_encoding_is_shown_as_one() {
        let change = FileChange {
            path: "a".into(),
            kind: ChangeKind::Modify,
            before: None,
            after: None,
            executable: false,
            bytes: 0,
        };
        let diff = |old: &[u8], new: &[u8]| {
            let shown =
                show_change(&change, (Some(old.to_vec()), Some(new.to_vec())), &mut COMPARED_MAX.clone());
            shown.unwrap().replace("--- a/a\n+++ b/a\n", "")
        };
        assert_eq!(
            diff(b"a\r\nb\r\n", b"a\r\nc\r\n"),
            "lines end with \\r\\n\n@@ -1,2 +1,2 @@\n a\n-b\n+c\n"
        );
        assert_eq!(
            diff(b"a\r\nb\r\n", b"a\r\nb\n"),
            "line ends: \\r\\n -> some \\r\\n, some \\n\n@@ -1,2 +1,2 @@\n a\\u{d}\n-b\\u{d}\n+b\n"
        );
        let wide = |text| TextEncoding::Utf16Le.encode_text(text);
        assert_eq!(
            diff(&wide("\u{feff}a\nb\n"), &wide("\u{feff}a\nc\n")),
            "text in UTF-16LE\n@@ -1,2 +1,2 @@\n \\u{feff}a\n-b\n+c\n"
        );
        assert_eq!(
            diff("\u{feff}a\n".as_bytes(), &wide("\u{feff}a\n")),
            "encoding: UTF-8 -> UTF-16LE\n",
            "and nothing else is different"
        );
        assert_eq!(diff("\u{feff}a\n".as_bytes(), b"a\n"), "@@ -1 +1 @@\n-\\u{feff}a\n+a\n");
    }

    /// A return in the middle of a line is none of its ends.
    #[test]
    fn only_a_line_feed_ends_a_line() {
        assert_eq!(
            escape_text(&diff_hunks("a\rb\n", "a\rc\n", &mut 9)),
            "@@ -1 +1 @@\n-a\\u{d}b\n+a\\u{d}c\n"
        );
        assert_eq!(diff_hunks("a", "a\n", &mut 9), "@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+a\n");
    }
}
