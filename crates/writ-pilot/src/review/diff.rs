//! A change in parts that a reviewer can read at once.

use std::fmt::Write as _;

/// The most changed lines of one part (SF 13.3). A file with more of them is a part alone.
pub const REVIEW_CHUNK_LINES: usize = 300;
/// The largest diff, in bytes.
const MAX_DIFF_BYTES: usize = 8 * 1024 * 1024;
/// The most bytes of one part: what a prompt shows whole. A larger file is split at the ends of lines.
const MAX_CHUNK_BYTES: usize = 96 * 1024;
/// The most parts.
const MAX_CHUNKS: usize = 200;
/// The longest line that a reviewer is shown, in bytes.
const MAX_LINE_BYTES: usize = 2_000;
/// Lines of each end of a file in the first pass.
const EXCERPT_LINES: usize = 20;
/// The most bytes of the first pass.
const MAX_EXCERPT_BYTES: usize = 96 * 1024;

/// A part of a change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReviewChunk {
    /// Its files, in the order of the diff.
    pub files: Vec<String>,
    /// Its text.
    pub text: String,
    /// Its changed lines.
    pub changed_lines: usize,
}

/// A change that is not reviewed: too much of it would go unread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the change is too large for a review: more than {MAX_DIFF_BYTES} bytes or {MAX_CHUNKS} parts")]
pub struct ReviewTooLarge;

/// Splits a diff of git into parts: whole files, as many as have at most [`REVIEW_CHUNK_LINES`] changed lines together.
///
/// # Errors
///
/// If it is too large.
pub fn split_diff(diff: &str) -> Result<Vec<ReviewChunk>, ReviewTooLarge> {
    if diff.len() > MAX_DIFF_BYTES {
        return Err(ReviewTooLarge);
    }
    let mut chunks: Vec<ReviewChunk> = Vec::new();
    for file in split_files(diff) {
        let fits = |last: &ReviewChunk| {
            last.changed_lines + file.changed_lines <= REVIEW_CHUNK_LINES
                && last.text.len() + file.text.len() <= MAX_CHUNK_BYTES
        };
        match chunks.last_mut().filter(|last| fits(last)) {
            Some(last) => {
                last.files.extend(file.files);
                last.text.push_str(&file.text);
                last.changed_lines += file.changed_lines;
            }
            None => chunks.extend(split_large(file)),
        }
        if chunks.len() > MAX_CHUNKS {
            return Err(ReviewTooLarge);
        }
    }
    Ok(chunks)
}

/// Splits a diff at its files. A line of content has a sign before it, so no content begins a file.
fn split_files(diff: &str) -> Vec<ReviewChunk> {
    let mut files: Vec<ReviewChunk> = Vec::new();
    // Until the first hunk a sign at the beginning is no change.
    let mut is_head = true;
    for line in diff.split_inclusive('\n') {
        if let Some(names) = line.strip_prefix("diff --git ") {
            files.push(ReviewChunk { files: vec![name_in(names)], ..ReviewChunk::default() });
            is_head = true;
        } else if line.starts_with("@@") {
            is_head = false;
        }
        let Some(file) = files.last_mut() else { continue };
        // The names above the first hunk look like changed lines.
        if !is_head && line.starts_with(['+', '-']) {
            file.changed_lines += 1;
        }
        push_line(&mut file.text, line);
    }
    files
}

/// Reads `a/OLD b/NEW`. For the eye alone: a name with spaces may be read wrongly.
fn name_in(names: &str) -> String {
    let names = names.trim_end();
    let new = names.rsplit_once(" b/").map(|(_, new)| new);
    let quoted = || names.rsplit_once(" \"b/").map(|(_, new)| new.trim_end_matches('"'));
    new.or_else(quoted).unwrap_or(names).chars().take(300).collect()
}

/// Adds a line; of a very long one its beginning, with a mark that says so.
fn push_line(text: &mut String, line: &str) {
    if line.len() <= MAX_LINE_BYTES {
        text.push_str(line);
        return;
    }
    let end = (0..=MAX_LINE_BYTES).rev().find(|end| line.is_char_boundary(*end)).unwrap_or(0);
    let left_out = line.len() - end;
    let _ = writeln!(text, "{}[… {left_out} more bytes of this line]", line.get(..end).unwrap_or_default());
}

/// Splits a file that one prompt could not show whole.
fn split_large(file: ReviewChunk) -> Vec<ReviewChunk> {
    if file.text.len() <= MAX_CHUNK_BYTES {
        return vec![file];
    }
    let mut parts: Vec<ReviewChunk> = Vec::new();
    for line in file.text.split_inclusive('\n') {
        let is_full = parts.last().is_none_or(|last| last.text.len() + line.len() > MAX_CHUNK_BYTES);
        if is_full {
            parts.push(ReviewChunk { files: file.files.clone(), ..ReviewChunk::default() });
        }
        if let Some(last) = parts.last_mut() {
            last.text.push_str(line);
            last.changed_lines += usize::from(line.starts_with(['+', '-']));
        }
    }
    parts
}

/// Writes the first and the last 20 lines of each file for the first pass (SF 13.3).
pub fn write_excerpt<'a>(files: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let mut excerpt = String::new();
    // A file that has no room is counted, not left out in silence.
    let mut left_out = 0;
    for (path, text) in files {
        let lines: Vec<&str> = text.lines().collect();
        let mut part = format!("== {path} ({} lines)\n", lines.len());
        let is_short = lines.len() <= 2 * EXCERPT_LINES;
        let head = if is_short { lines.len() } else { EXCERPT_LINES };
        for line in lines.iter().take(head) {
            push_line(&mut part, &format!("{line}\n"));
        }
        if !is_short {
            let _ = writeln!(part, "[… {} lines …]", lines.len() - 2 * EXCERPT_LINES);
            for line in lines.iter().skip(lines.len() - EXCERPT_LINES) {
                push_line(&mut part, &format!("{line}\n"));
            }
        }
        if excerpt.len() + part.len() > MAX_EXCERPT_BYTES {
            left_out += 1;
        } else {
            excerpt.push_str(&part);
        }
    }
    if left_out > 0 {
        let _ = writeln!(excerpt, "[… {left_out} more files]");
    }
    excerpt
}
