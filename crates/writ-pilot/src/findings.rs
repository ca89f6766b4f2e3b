//! The findings about a project at its begin: languages, folders, entry points, dependencies, and what its history shows.
//!
//! Everything is read from a commit, and nothing is run. Names of a repository are foreign: what acts unseen is escaped. Dependencies and
//! declared programs come from the syntax of the manifests; a manifest that cannot be parsed is listed, and no reason to end.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::Serialize;
use writ_sandbox::git::history::HistoryCommit;
use writ_types::unit::Timestamp;
use writ_types::visible::escape_line;

use crate::files::{ProjectFiles, count_folders, name_of};
use crate::repo_map::{count_languages, show_name};

mod manifests;

use manifests::read_manifest;

/// The most entries of each list.
const MAX_LISTED: usize = 20;
/// The most dependencies of one manifest that are listed.
const MAX_DEPENDENCIES: usize = 60;
/// The longest text of a commit or a name of an author, in characters.
const MAX_TEXT_CHARS: usize = 100;
/// The most folders above a file that counts as an entry point by its name: deeper ones are mostly examples and fixtures.
const MAX_ENTRY_FOLDERS: usize = 3;
const MILLIS_PER_SECOND: i64 = 1_000;

/// Names of files that a program begins in, by the languages' customs.
const ENTRY_NAMES: [&str; 10] = [
    "main.rs",
    "main.py",
    "__main__.py",
    "manage.py",
    "main.go",
    "index.js",
    "index.ts",
    "main.c",
    "main.cpp",
    "Main.java",
];

/// The findings about a project.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProjectFindings {
    /// The languages, each with its number of files, the most frequent first.
    pub languages: Vec<NamedCount>,
    /// The folders at the top, each with the number of its files, the largest first.
    pub folders: Vec<NamedCount>,
    /// The files and declared programs in which a program begins.
    pub entry_points: Vec<String>,
    /// The declared dependencies, by manifest.
    pub dependencies: BTreeMap<String, Vec<String>>,
    /// The manifests that cannot be parsed, each with the reason.
    pub unreadable: Vec<String>,
    /// The findings of the history; none: `history_note` says why.
    pub history: Option<HistoryFindings>,
    /// The reason why there is no history; empty: there is one.
    pub history_note: String,
}

/// The findings of a history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HistoryFindings {
    /// The number of commits that were looked through, the newest ones.
    pub commits: usize,
    /// The folders that the most of them change, each with the number of its commits.
    pub active: Vec<NamedCount>,
    /// The newest commits.
    pub recent: Vec<RecentCommit>,
    /// The authors with the numbers of their commits, the most busy first.
    pub contributors: Vec<NamedCount>,
}

/// A name with a number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NamedCount {
    /// The name.
    pub name: String,
    /// How often.
    pub count: usize,
}

/// A commit in the list of the newest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RecentCommit {
    /// Its date.
    pub at: Timestamp,
    /// Its author.
    pub author: String,
    /// The first line of its message.
    pub subject: String,
}

/// Finds everything about a project, with its history or the reason why there is none.
pub fn find_all(files: &ProjectFiles, history: Result<Vec<HistoryCommit>, String>) -> ProjectFindings {
    let languages = count_languages(files).into_iter().take(MAX_LISTED);
    let mut entry_points: Vec<String> =
        files.paths.iter().filter(|path| is_entry(path)).map(|path| show_name(path)).collect();
    let (mut dependencies, mut unreadable) = (BTreeMap::new(), Vec::new());
    for (path, text) in &files.texts {
        let shown = show_name(path.as_bytes());
        match read_manifest(path, text) {
            Err(why) => unreadable.push(format!("{shown}: {}", cut_text(&why))),
            Ok(found) => {
                entry_points.extend(found.programs.iter().map(|name| format!("{shown}: {}", cut_text(name))));
                if !found.dependencies.is_empty() {
                    let names = found.dependencies.iter().take(MAX_DEPENDENCIES).map(|name| cut_text(name));
                    dependencies.insert(shown, names.collect());
                }
            }
        }
    }
    entry_points.truncate(MAX_LISTED);
    unreadable.truncate(MAX_LISTED);
    let (history, history_note) = match history {
        Ok(commits) => (Some(sum_history(&commits)), String::new()),
        Err(why) => (None, cut_text(&why)),
    };
    ProjectFindings {
        languages: languages.map(|(name, count)| NamedCount { name: name.to_owned(), count }).collect(),
        folders: count_names(files.paths.iter().filter_map(|path| top_folder(path))),
        entry_points,
        dependencies,
        unreadable,
        history,
        history_note,
    }
}

fn sum_history(commits: &[HistoryCommit]) -> HistoryFindings {
    let folders = commits.iter().flat_map(|commit| {
        // A commit counts once for each folder, however many of its files it changes.
        let mut folders: Vec<String> = commit.paths.iter().map(|path| folder_of(path)).collect();
        folders.sort();
        folders.dedup();
        folders
    });
    let recent = commits.iter().take(MAX_LISTED).map(|commit| RecentCommit {
        at: Timestamp::from_millis(commit.seconds.saturating_mul(MILLIS_PER_SECOND)),
        author: cut_text(&commit.author),
        subject: cut_text(&commit.subject),
    });
    HistoryFindings {
        commits: commits.len(),
        active: count_names(folders),
        recent: recent.collect(),
        contributors: count_names(commits.iter().map(|commit| cut_text(&commit.author))),
    }
}

/// Counts names, the most frequent first, at most [`MAX_LISTED`].
fn count_names(names: impl Iterator<Item = String>) -> Vec<NamedCount> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for name in names {
        *counts.entry(name).or_default() += 1;
    }
    let mut counts: Vec<NamedCount> =
        counts.into_iter().map(|(name, count)| NamedCount { name, count }).collect();
    // The sort is stable: equal counts stay in the order of their names.
    counts.sort_by_key(|one| Reverse(one.count));
    counts.truncate(MAX_LISTED);
    counts
}

fn top_folder(path: &[u8]) -> Option<String> {
    let slash = path.iter().position(|byte| *byte == b'/')?;
    path.get(..=slash).map(show_name)
}

/// Returns the folder of a path as git shows it; `./`: the top.
fn folder_of(path: &str) -> String {
    let path = path.trim_matches('"');
    path.rsplit_once('/').map_or_else(|| "./".to_owned(), |(folder, _)| format!("{}/", cut_text(folder)))
}

/// Returns true for a file that a program begins in: by its name near the top, or by its place.
fn is_entry(path: &[u8]) -> bool {
    let is_named = ENTRY_NAMES.iter().any(|name| name.as_bytes() == name_of(path));
    let is_placed = path.starts_with(b"src/bin/") && path.ends_with(b".rs");
    is_placed || (is_named && count_folders(path) <= MAX_ENTRY_FOLDERS)
}

fn cut_text(text: &str) -> String {
    let line: String = text.chars().take(MAX_TEXT_CHARS).collect();
    escape_line(&line).into_owned()
}

#[cfg(test)]
mod tests;
