//! The diff as text, for people.

use std::io;
use std::path::Path;

use similar::TextDiff;
use writ_types::action::{ChangeKind, FileChange};
use writ_types::digest::Digest;

use super::View;
use crate::changes::{ChangeSet, DIFF_TEXT_MAX, Diff};
use crate::linux::base::Lower;
use crate::linux::beneath;

/// The most text that one diff has, in bytes: what a person can still scroll through.
const TEXT_MAX: usize = 4 * 1024 * 1024;
/// The largest file that is no text and is shown byte by byte, in bytes: four times that many characters.
pub(crate) const BYTES_MAX: usize = 64 * 1024;
/// Lines of context around a change.
const CONTEXT: usize = 3;

/// The changes with their unified diff; what is left out is listed after them.
///
/// # Errors
///
/// If the folders cannot be read, or a file changed since the change set was made.
pub(crate) fn diff(view: &View, changes: ChangeSet) -> io::Result<Diff> {
    let lower = Lower::open(view)?;
    let root = beneath::root(&view.written())?;
    let (mut text, mut unshown) = (String::new(), Vec::new());
    for change in &changes.changes {
        let before = match change.before {
            Some(digest) => same(&change.path, digest, lower.read(Path::new(&change.path), DIFF_TEXT_MAX))?,
            None => Some(Vec::new()),
        };
        let after = match change.after {
            Some(digest) => same(&change.path, digest, read(&root, &change.path)?)?,
            None => Some(Vec::new()),
        };
        let shown = if text.len() > TEXT_MAX { None } else { one(change, before, after) };
        match shown {
            Some(shown) => text.push_str(&shown),
            None => {
                text.push_str(&summary(change));
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

fn read(root: &std::os::fd::OwnedFd, path: &str) -> io::Result<Option<Vec<u8>>> {
    let Some(file) = beneath::read_at(root, Path::new(path))? else { return Ok(None) };
    Ok(beneath::content(file, DIFF_TEXT_MAX)?.ok())
}

/// What is shown must be what is named: bytes that were read must have the digest that is approved.
fn same(path: &str, digest: Digest, bytes: Option<Vec<u8>>) -> io::Result<Option<Vec<u8>>> {
    match bytes {
        Some(bytes) if Digest::of(&bytes) != digest => {
            Err(io::Error::other(format!("'{path}' changed while it was read")))
        }
        bytes => Ok(bytes),
    }
}

fn header(change: &FileChange) -> String {
    let path = &change.path;
    let (old, new) = match change.kind {
        ChangeKind::Create => ("/dev/null".to_owned(), format!("b/{path}")),
        ChangeKind::Modify => (format!("a/{path}"), format!("b/{path}")),
        ChangeKind::Delete => (format!("a/{path}"), "/dev/null".to_owned()),
    };
    let mode = if change.executable { " (executable)" } else { "" };
    format!("--- {old}\n+++ {new}{mode}\n")
}

/// One file, completely; `None` if it is too large for that.
pub(crate) fn one(change: &FileChange, before: Option<Vec<u8>>, after: Option<Vec<u8>>) -> Option<String> {
    let Some(before) = before else {
        // What goes is known by its name; what comes must be read.
        let goes = change.kind == ChangeKind::Delete;
        return goes.then(|| format!("{}deleted: too large to be shown\n", header(change)));
    };
    let after = after?;
    let is_text = |bytes: &[u8]| std::str::from_utf8(bytes).is_ok_and(|text| !text.contains('\0'));
    let (before, after, remark) = if is_text(&before) && is_text(&after) {
        (String::from_utf8(before).ok()?, String::from_utf8(after).ok()?, "")
    } else if before.len().max(after.len()) <= BYTES_MAX {
        (bytewise(&before), bytewise(&after), "not text: every byte that is no printable ASCII is \\xNN\n")
    } else {
        return None;
    };
    let diff = TextDiff::from_lines(&before, &after);
    let hunks = diff.unified_diff().context_radius(CONTEXT).to_string();
    Some(format!("{}{remark}{}", header(change), visible(&hunks)))
}

/// A file that is not shown, by size and digest.
fn summary(change: &FileChange) -> String {
    let digest = |digest: Option<Digest>| digest.map_or("none".to_owned(), |digest| digest.to_string());
    let (before, after) = (digest(change.before), digest(change.after));
    format!("{}NOT SHOWN: {} bytes: {before} -> {after}\n", header(change), change.bytes)
}

/// Bytes as lines of ASCII; a program that hides in what is no text is read all the same.
fn bytewise(bytes: &[u8]) -> String {
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

/// Text whose control and direction characters are escaped, so that what is shown is what is there.
fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        let plain = matches!(c, '\n' | '\t');
        if plain || crate::name::showable(c.encode_utf8(&mut [0; 4]).as_bytes()).is_some() {
            shown.push(c);
        } else {
            shown.extend(c.escape_unicode());
        }
    }
    shown
}
