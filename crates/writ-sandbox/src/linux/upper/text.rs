//! The diff as text, for people.

use std::io;
use std::path::Path;

use similar::TextDiff;
use writ_types::action::{ChangeKind, FileChange};

use super::View;
use crate::changes::{ChangeSet, DIFF_TEXT_MAX};
use crate::linux::base::Lower;
use crate::linux::beneath;

/// The most text that one diff has, in bytes: what a person can still scroll through.
const TEXT_MAX: usize = 4 * 1024 * 1024;
/// Lines of context around a change.
const CONTEXT: usize = 3;

/// The changes as a unified diff; what is left out is listed after them.
pub(crate) fn unified(view: &View, set: &ChangeSet) -> io::Result<String> {
    let lower = Lower::open(view)?;
    let root = beneath::root(&view.written())?;
    let mut text = String::new();
    for change in &set.changes {
        if text.len() > TEXT_MAX {
            text.push_str("… the rest is too long to be shown\n");
            break;
        }
        let before = if change.before.is_some() {
            lower.read(Path::new(&change.path), DIFF_TEXT_MAX)
        } else {
            Some(Vec::new())
        };
        let after = match change.kind {
            ChangeKind::Delete => Some(Vec::new()),
            ChangeKind::Create | ChangeKind::Modify => read(&root, &change.path)?,
        };
        text.push_str(&one(change, before, after));
    }
    for notice in &set.notices {
        text.push_str(&format!("note: {}: {}\n", notice.path, notice.why));
    }
    for left in &set.left_out {
        text.push_str(&format!("left out: {}: {}\n", left.shown, left.reason.as_str()));
    }
    if set.left_out_more > 0 {
        text.push_str(&format!("left out: {} more\n", set.left_out_more));
    }
    Ok(text)
}

fn read(root: &std::os::fd::OwnedFd, path: &str) -> io::Result<Option<Vec<u8>>> {
    let Some(file) = beneath::read_at(root, Path::new(path))? else { return Ok(None) };
    Ok(beneath::content(file, DIFF_TEXT_MAX)?.ok())
}

/// One file.
fn one(change: &FileChange, before: Option<Vec<u8>>, after: Option<Vec<u8>>) -> String {
    let path = &change.path;
    let (old, new) = match change.kind {
        ChangeKind::Create => ("/dev/null".to_owned(), format!("b/{path}")),
        ChangeKind::Modify => (format!("a/{path}"), format!("b/{path}")),
        ChangeKind::Delete => (format!("a/{path}"), "/dev/null".to_owned()),
    };
    let mode = if change.executable { " (executable)" } else { "" };
    let text = |bytes: Option<Vec<u8>>| {
        bytes.and_then(|bytes| String::from_utf8(bytes).ok()).filter(|text| !text.contains('\0'))
    };
    match (text(before), text(after)) {
        (Some(before), Some(after)) => {
            let diff = TextDiff::from_lines(&before, &after);
            let hunks = diff.unified_diff().context_radius(CONTEXT).to_string();
            format!("--- {old}\n+++ {new}{mode}\n{}", visible(&hunks))
        }
        (_, _) => {
            let digest = |digest: Option<writ_types::digest::Digest>| {
                digest.map_or("none".to_owned(), |digest| digest.to_string())
            };
            let (before, after) = (digest(change.before), digest(change.after));
            format!("--- {old}\n+++ {new}{mode}\nnot text, {} bytes: {before} -> {after}\n", change.bytes)
        }
    }
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
