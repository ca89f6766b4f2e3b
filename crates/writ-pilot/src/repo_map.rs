//! The map of a repository for the planner, made by code: languages, manifests, commands, folders, and the README's first lines.
//!
//! Names and texts of a repository are foreign: everything that acts unseen is escaped, and the whole has at most [`MAX_MAP_BYTES`].

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use writ_types::visible::escape_line;

use crate::files::{ProjectFiles, count_folders, is_manifest, is_readme, name_of};
use crate::probe::propose_gates;

/// The largest map, in bytes.
pub const MAX_MAP_BYTES: usize = 16 * 1024;
/// The part of it for folders and files, in bytes.
const MAX_TREE_BYTES: usize = 9 * 1024;
/// The part of it for the README, in bytes.
const MAX_README_BYTES: usize = 3 * 1024;
/// The most lines of the README.
const MAX_README_LINES: usize = 40;
/// The most entries of one folder.
const MAX_ENTRIES: usize = 40;
/// The deepest folders that are opened.
const MAX_DEPTH: usize = 6;
/// The most manifests, languages, and pairs of names that are listed.
const MAX_LISTED: usize = 20;
/// The longest name, in characters.
const MAX_NAME_CHARS: usize = 100;

/// Languages by the endings of their files.
const LANGUAGES: [(&str, &[&str]); 24] = [
    ("Rust", &["rs"]),
    ("Python", &["py", "pyi"]),
    ("TypeScript", &["ts", "tsx", "mts", "cts"]),
    ("JavaScript", &["js", "jsx", "mjs", "cjs"]),
    ("Go", &["go"]),
    ("Java", &["java"]),
    ("Kotlin", &["kt", "kts"]),
    ("C", &["c", "h"]),
    ("C++", &["cc", "cpp", "cxx", "hh", "hpp"]),
    ("C#", &["cs"]),
    ("Ruby", &["rb"]),
    ("PHP", &["php"]),
    ("Swift", &["swift"]),
    ("Elixir", &["ex", "exs"]),
    ("Scala", &["scala"]),
    ("Shell", &["sh", "bash"]),
    ("SQL", &["sql"]),
    ("HTML", &["html", "htm"]),
    ("CSS", &["css", "scss"]),
    ("Vue", &["vue"]),
    ("Svelte", &["svelte"]),
    ("Lua", &["lua"]),
    ("Zig", &["zig"]),
    ("Markdown", &["md"]),
];

/// Draws the map of a project.
pub fn draw_map(files: &ProjectFiles) -> String {
    let mut map = format!("files: {}\n", files.paths.len());
    let languages = count_languages(files);
    if !languages.is_empty() {
        let shown = languages.iter().take(MAX_LISTED).map(|(name, count)| format!("{name} {count}"));
        let _ = writeln!(map, "languages, by files: {}", shown.collect::<Vec<_>>().join(", "));
    }
    let manifests = list_manifests(files);
    if !manifests.is_empty() {
        let _ = writeln!(map, "manifests: {}", manifests.join(", "));
    }
    for gate in propose_gates(files) {
        let words: Vec<String> = gate.run.iter().map(|word| show_name(word.as_bytes())).collect();
        let _ = writeln!(map, "command ({}): {}", gate.name, words.join(" "));
    }
    for pair in find_collisions(files) {
        let _ = writeln!(map, "names that differ in case alone: {pair}");
    }
    let _ = write!(map, "\ntree:\n{}", draw_tree(files));
    if let Some(readme) = draw_readme(files) {
        let _ = write!(map, "\nREADME, first lines:\n{readme}");
    }
    cut_at(map, MAX_MAP_BYTES)
}

/// Shows a name that may be no text: bytes that are none, and characters that act unseen, are escaped.
pub fn show_name(name: &[u8]) -> String {
    // Any bytes but NUL and `/` can be a name.
    let mut shown = String::new();
    for chunk in name.utf8_chunks() {
        shown.push_str(&escape_line(chunk.valid()));
        for byte in chunk.invalid() {
            let _ = write!(shown, "\\x{byte:02x}");
        }
    }
    if shown.chars().count() > MAX_NAME_CHARS {
        shown = shown.chars().take(MAX_NAME_CHARS).chain(['…']).collect();
    }
    shown
}

/// Counts the files of each language, the most frequent first.
pub(crate) fn count_languages(files: &ProjectFiles) -> Vec<(&'static str, usize)> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for path in &files.paths {
        let name = name_of(path);
        // A name such as `.c` is hidden, and has no ending.
        let Some(dot) = name.iter().rposition(|byte| *byte == b'.').filter(|dot| *dot > 0) else { continue };
        let ending = name.get(dot + 1..).unwrap_or_default();
        let is_of =
            |endings: &[&str]| endings.iter().any(|other| ending.eq_ignore_ascii_case(other.as_bytes()));
        if let Some((language, _)) = LANGUAGES.iter().find(|(_, endings)| is_of(endings)) {
            *counts.entry(language).or_default() += 1;
        }
    }
    let mut counts: Vec<(&str, usize)> = counts.into_iter().collect();
    counts.sort_by_key(|(name, count)| (std::cmp::Reverse(*count), *name));
    counts
}

fn list_manifests(files: &ProjectFiles) -> Vec<String> {
    let mut found: Vec<&Vec<u8>> = files.paths.iter().filter(|path| is_manifest(path)).collect();
    found.sort_by_key(|path| (count_folders(path), *path));
    // Those of the whole come first, so that a folder of fixtures does not hide them.
    let more = found.len().saturating_sub(MAX_LISTED);
    let mut shown: Vec<String> = found.into_iter().take(MAX_LISTED).map(|path| show_name(path)).collect();
    if more > 0 {
        shown.push(format!("{more} more"));
    }
    shown
}

/// Finds paths that some file systems take for one.
fn find_collisions(files: &ProjectFiles) -> Vec<String> {
    let mut seen: BTreeSet<Vec<u8>> = BTreeSet::new();
    let mut collisions = Vec::new();
    for path in &files.paths {
        // Of other letters than ASCII's, each file system has its own idea.
        let folded = std::str::from_utf8(path)
            .map_or_else(|_| path.to_ascii_lowercase(), |text| text.to_lowercase().into_bytes());
        if !seen.insert(folded) && collisions.len() < MAX_LISTED {
            collisions.push(show_name(path));
        }
    }
    collisions
}

/// Draws the folders as deep as there is room.
fn draw_tree(files: &ProjectFiles) -> String {
    let mut best = String::new();
    for depth in 1..=MAX_DEPTH {
        let mut tree = String::new();
        draw_folder(&files.paths, 0, depth, &mut tree);
        let is_same = tree == best;
        if tree.len() > MAX_TREE_BYTES || is_same {
            break;
        }
        best = tree;
    }
    if best.is_empty() {
        // Not even the top has room.
        draw_folder(&files.paths, 0, 1, &mut best);
        best = cut_at(best, MAX_TREE_BYTES);
    }
    best
}

/// Draws a folder: the paths below it, of which the first bytes are its own name.
fn draw_folder(paths: &[Vec<u8>], prefix: usize, depth: usize, tree: &mut String) {
    let level = paths.first().and_then(|path| path.get(..prefix)).map_or(0, count_folders);
    let indent = "  ".repeat(level);
    let (mut rest, mut entries, mut left_out) = (paths, 0_usize, 0_usize);
    while let Some(first) = rest.first() {
        let below = first.get(prefix..).unwrap_or_default();
        let slash = below.iter().position(|byte| *byte == b'/');
        let part = below.get(..slash.map_or(below.len(), |slash| slash + 1)).unwrap_or(below);
        // Sorted by bytes, all paths of a folder lie beside each other.
        let is_below = |path: &Vec<u8>| path.get(prefix..).is_some_and(|path| path.starts_with(part));
        let count = if slash.is_some() { rest.partition_point(is_below).max(1) } else { 1 };
        let (inside, after) = rest.split_at_checked(count).unwrap_or((rest, &[]));
        rest = after;
        entries += 1;
        if entries > MAX_ENTRIES || tree.len() > 2 * MAX_TREE_BYTES {
            left_out += count;
        } else if slash.is_none() {
            let _ = writeln!(tree, "{indent}{}", show_name(part));
        } else {
            let _ = writeln!(tree, "{indent}{} ({count})", show_name(part));
            if depth > 1 {
                draw_folder(inside, prefix + part.len(), depth - 1, tree);
            }
        }
    }
    if left_out > 0 {
        let _ = writeln!(tree, "{indent}… {left_out} more files");
    }
}

fn draw_readme(files: &ProjectFiles) -> Option<String> {
    let (_, text) = files.texts.iter().find(|(path, _)| is_readme(path.as_bytes()))?;
    let mut shown = String::new();
    for line in text.lines().take(MAX_README_LINES) {
        let _ = writeln!(shown, "{}", escape_line(line.trim_end()));
    }
    Some(cut_at(shown, MAX_README_BYTES))
}

/// Cuts a text at the end of a line, or where it has none, at the end of a character.
fn cut_at(text: String, most: usize) -> String {
    const MARK: &str = "…\n";
    if text.len() <= most {
        return text;
    }
    let end = (0..=most - MARK.len()).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    let head = text.get(..end).unwrap_or_default();
    let head = head.rfind('\n').map_or(head, |at| head.get(..=at).unwrap_or(head));
    format!("{head}{MARK}")
}

#[cfg(test)]
mod tests;
