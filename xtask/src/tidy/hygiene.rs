//! Finds texts that do not belong into the repository: unfinished work, paths of a machine, foreign
//! registries.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Result;
use regex::Regex;

use super::Finding;
use crate::source;

/// Words for unfinished work; in pieces, so that this file does not hold them.
const UNFINISHED: [&str; 3] = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("X", "XX")];
/// Folders of a particular machine; in pieces, too.
const FOLDERS: [&str; 3] = [concat!("/ro", "ot/"), concat!("/work", "/main"), concat!("/work", "/shared")];
const HOMES: &str = concat!("/ho", "me/");
/// Made-up users with a home that an example may show.
const EXAMPLES: [&str; 6] = ["agent", "ann", "me", "owner", "user", "you"];
/// Parts of a host's name that make it a registry of packages.
const REGISTRY_WORDS: [&str; 6] = ["registry", "artifactory", "nexus", "mirror", "crates", "pypi"];
/// Texts of an error or a report, on which no code may branch: it branches on types and codes, so that a sentence can be
/// put better without a change of behaviour.
const MESSAGES: &str = r"\b(?:e|err|error|failure|report)(?:\.report\(\))?\.(?:(?:to_string\(\)|text|outside|inside|hint)\s*\.(?:as_str\(\)\.)?(?:contains|starts_with|ends_with|eq|find|matches)\(|(?:to_string\(\)|text|outside|hint)\s*(?:==|!=))";
/// Written by cargo; its sources are checked by `cargo deny`.
const LOCK: &str = "Cargo.lock";
/// Larger files are data, not text.
const MAX_BYTES: u64 = 4 * 1024 * 1024;

/// Checks every text file of the repository.
pub(super) fn check(root: &Path) -> Result<Vec<Finding>> {
    let lock = std::fs::read_to_string(root.join(LOCK))?;
    let mut known: BTreeSet<&str> = hosts(&lock).map(|(_, host)| host).collect();
    known.insert("crates.io");
    let messages = Regex::new(MESSAGES)?;
    let mut findings = Vec::new();
    for path in source::files(root)?.into_iter().filter(|path| path != LOCK) {
        let full = root.join(&path);
        if full.metadata()?.len() > MAX_BYTES {
            continue;
        }
        if let Ok(text) = String::from_utf8(std::fs::read(&full)?) {
            findings.extend(check_text(&path, &text, &known));
            findings.extend(compared_messages(&path, &text, &messages));
        }
    }
    Ok(findings)
}

fn check_text(path: &str, text: &str, known: &BTreeSet<&str>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let mut push = |check, found: &str| {
            findings.push(Finding::new(check, path, format!("holds `{found}`")).at(number + 1));
        };
        for word in UNFINISHED.iter().filter(|word| is_word(line, word)) {
            push("unfinished", word);
        }
        for folder in FOLDERS.iter().filter(|folder| names_folder(line, folder)) {
            push("machine-path", folder);
        }
        for (at, _) in line.match_indices(HOMES).filter(|(at, _)| !is_inside_path(line, *at)) {
            let user: String =
                line[at + HOMES.len()..].chars().take_while(|c| c.is_ascii_alphanumeric()).collect();
            if !user.is_empty() && !EXAMPLES.contains(&user.as_str()) {
                push("machine-path", &format!("{HOMES}{user}"));
            }
        }
        for (_, host) in hosts(line).filter(|(_, host)| !known.contains(host)) {
            if REGISTRY_WORDS.iter().any(|word| host.contains(word)) {
                push("registry", host);
            }
        }
    }
    findings
}

/// Finds code of the product, not of its tests, that compares the message of an error.
fn compared_messages(path: &str, text: &str, messages: &Regex) -> Vec<Finding> {
    let is_product = path.starts_with("crates/") && path.contains("/src/") && path.ends_with(".rs");
    if !is_product || path.contains("/tests") {
        return Vec::new();
    }
    let product = text.split_once("#[cfg(test)]\nmod tests {").map_or(text, |(product, _)| product);
    let line_of = |at: usize| product[..at].matches('\n').count() + 1;
    messages
        .find_iter(product)
        .map(|found| {
            let why = format!("compares a message, `{}`: branch on the type or the code", found.as_str());
            Finding::new("compared-message", path, why).at(line_of(found.start()))
        })
        .collect()
}

/// Returns true if `word` stands alone in `line`.
fn is_word(line: &str, word: &str) -> bool {
    let joins = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word)
        .any(|(at, _)| !line[..at].ends_with(joins) && !line[at + word.len()..].starts_with(joins))
}

/// Returns true if `folder` begins a path in `line`, as a whole name.
fn names_folder(line: &str, folder: &str) -> bool {
    line.match_indices(folder).any(|(at, _)| {
        let rest = &line[at + folder.len()..];
        let whole =
            folder.ends_with('/') || !rest.starts_with(|c: char| c.is_alphanumeric() || "._-".contains(c));
        whole && !is_inside_path(line, at)
    })
}

/// Returns true if the path at `at` continues a longer one, as in `/proc/1/…` or `$HOME/…`.
fn is_inside_path(line: &str, at: usize) -> bool {
    line[..at].ends_with(|c: char| c.is_alphanumeric() || "._-}~*".contains(c))
}

/// The hosts of all URLs in a text, with their position.
fn hosts(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.match_indices("://").filter_map(|(at, marker)| {
        let rest = &text[at + marker.len()..];
        let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || ".-".contains(c))).unwrap_or(rest.len());
        (end > 0).then(|| (at, &rest[..end]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checks(text: &str) -> Vec<&'static str> {
        let known = BTreeSet::from(["crates.io"]);
        check_text("a.md", text, &known).into_iter().map(|finding| finding.check).collect()
    }

    #[test]
    fn unfinished_work_is_found() {
        for word in UNFINISHED {
            assert_eq!(checks(&format!("// {word}: later")), ["unfinished"]);
            assert_eq!(checks(&format!("a{word}b {word}_C")), [""; 0]);
        }
    }

    #[test]
    fn paths_of_a_machine_are_found() {
        for folder in FOLDERS {
            assert_eq!(checks(&format!("see {folder}")), ["machine-path"], "{folder}");
            assert_eq!(checks(&format!("see /proc/1{folder}")), [""; 0]);
        }
        assert_eq!(checks(&format!("see {}.rs", concat!("/work", "/main"))), [""; 0]);
        assert_eq!(checks(&format!("see {HOMES}somebody/a")), ["machine-path"]);
        assert_eq!(checks(&format!("see {HOMES}user/a and {HOMES}")), [""; 0]);
    }

    #[test]
    fn foreign_registries_are_found() {
        assert_eq!(
            checks(&format!("index = \"https://{}.example.org/a\"", concat!("reg", "istry"))),
            ["registry"]
        );
        assert_eq!(checks("https://crates.io/crates/serde and https://example.org/a"), [""; 0]);
    }

    /// Rows: SF-484
    #[test]
    fn code_that_compares_the_message_of_an_error_is_found() {
        let messages = Regex::new(MESSAGES).unwrap();
        let found = |path: &str, text: &str| compared_messages(path, text, &messages).len();
        for line in [
            "if error.to_string().contains(\"busy\") {",
            "error.to_string() == \"busy\"",
            "if report.text.as_str().starts_with(\"The\") {",
            "err.report().outside != text",
        ] {
            assert_eq!(found("crates/writ-a/src/a.rs", line), 1, "{line}");
            assert_eq!(found("crates/writ-a/src/a/tests.rs", line), 0, "{line}");
            assert_eq!(
                found("crates/writ-a/src/a.rs", &format!("#[cfg(test)]\nmod tests {{\n{line}\n}}")),
                0
            );
        }
        assert_eq!(found("crates/writ-a/src/a.rs", "if report.code == CODE { error.to_string() }"), 0);
    }
}
