//! What has come out of a run of the autopilot, and what of it does not fit together.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::{code, text};

use super::kills::KillScene;
use super::team::{SLICES, USED, git};
use super::victim::{PilotVictim, find_processes_of};

/// The result of a run.
pub(super) struct KillsResult {
    /// Paths with the ids of their content, as git lists them.
    pub(super) tree: String,
    /// Commits that references have shown.
    pub(super) commits: usize,
    /// Runs of units that a kill has ended.
    pub(super) interrupted: usize,
    /// Tools that were called.
    pub(super) calls: usize,
    /// Those of which a kill has taken the outcome.
    pub(super) unknown: usize,
}

fn is(value: &Value, pointer: &str, expected: &str) -> bool {
    value.pointer(pointer).and_then(Value::as_str) == Some(expected)
}

fn word<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_else(|| panic!("{pointer}: {value}"))
}

/// Reads what a run has left, and ends its engine.
pub(super) fn read_result(scene: KillScene, engine: PilotVictim) -> KillsResult {
    let (interrupted, tokens) = check_units(&scene);
    engine.stop();
    check_commits(&scene);
    check_rest(&scene);
    let (calls, unknown) = check_calls(&scene);
    let asked = scene.bench.events("model_called");
    let of = |name: &str| asked.iter().filter_map(|call| call.pointer(name)?.as_u64()).sum::<u64>();
    let paid = of("/payload/usage/input") + of("/payload/usage/output");
    // The planner's request counts to no unit.
    assert_eq!(tokens + USED.0 + USED.1, paid, "the tokens of runs and those of the ledger");
    let verified = scene.bench.home.run(&["audit", "verify"]);
    assert_eq!(code(&verified), 0, "{}", text(&verified));
    let tree = git(&scene.project, &["ls-tree", "-r", "main"]);
    KillsResult { tree, commits: scene.commits.len(), interrupted, calls, unknown }
}

/// Every unit has succeeded, every item of work is over. Returns the runs that a kill has ended, and the tokens of all.
fn check_units(scene: &KillScene) -> (usize, u64) {
    let status = scene.ask("pilot.status", json!({}));
    let units = status["units"].as_array().expect("units");
    assert_eq!(units.len(), 7, "{status:#}");
    assert_eq!(status["blockers"], json!([]), "{status:#}");
    assert!(is(&status, "/plans/0/state", "done"), "{status:#}");
    let (mut interrupted, mut tokens) = (0, 0);
    for unit in units {
        assert!(is(unit, "/status", "succeeded") && unit["is_over"] == true, "{status:#}");
        let details = scene.ask("pilot.unit", json!({ "unit": unit["id"] }));
        for run in details["runs"].as_array().expect("runs") {
            assert!(run["outcome"].is_string(), "a run without an end: {run}");
            interrupted += usize::from(is(run, "/outcome", "interrupted"));
            tokens += run["tokens"].as_u64().expect("a number");
        }
        assert_eq!(merges_of(&details), usize::from(SLICES.contains(&word(unit, "/id"))), "{details:#}");
    }
    let listed = scene.bench.home.json(&["work", "list"]);
    for item in listed["items"].as_array().expect("items") {
        let is_over = ["done", "cancelled", "failed"].contains(&word(item, "/state"));
        assert!(is_over, "an item that is not over: {item}");
    }
    (interrupted, tokens)
}

/// The moves of a unit that a merge has ended well.
fn merges_of(details: &Value) -> usize {
    let moves = details["moves"].as_array().expect("moves").iter();
    moves.filter(|one| is(one, "/from", "merge") && is(one, "/to", "complete")).count()
}

/// Every commit is reachable, and each slice was merged once.
fn check_commits(scene: &KillScene) {
    let reachable = git(&scene.project, &["rev-list", "--glob=refs/*"]);
    let reachable: BTreeSet<&str> = reachable.lines().collect();
    let lost: Vec<&String> =
        scene.commits.iter().filter(|commit| !reachable.contains(commit.as_str())).collect();
    assert!(lost.is_empty(), "no reference leads to {lost:?}");
    let merges =
        git(&scene.project, &["log", "--merges", "--format=%(trailers:key=Writ-Unit,valueonly)", "main"]);
    let mut merged: Vec<&str> = merges.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    merged.sort_unstable();
    assert_eq!(merged, SLICES, "each slice is merged once");
    check_unreachable(scene, &reachable);
    assert_eq!(git(&scene.project, &["fsck", "--connectivity-only", "--no-progress", "--no-dangling"]), "");
}

/// What a kill has left without a reference was never shown by one: merges of reachable commits that were not taken, and commits
/// that were made a second time with the same content.
fn check_unreachable(scene: &KillScene, reachable: &BTreeSet<&str>) {
    let trees = git(&scene.project, &["log", "--format=%T", "--glob=refs/*"]);
    let trees: BTreeSet<&str> = trees.lines().collect();
    let found = git(&scene.project, &["fsck", "--unreachable", "--no-reflogs", "--no-progress"]);
    for commit in found.lines().filter_map(|line| line.strip_prefix("unreachable commit ")) {
        let shown = git(&scene.project, &["show", "--no-patch", "--format=%T %P", commit]);
        let (tree, parents) = shown.trim().split_once(' ').expect("a tree and parents");
        let parents: Vec<&str> = parents.split(' ').collect();
        let is_merge = parents.len() == 2 && parents.iter().all(|parent| reachable.contains(parent));
        assert!(is_merge || trees.contains(tree), "{commit} has content that no reference leads to");
    }
}

/// No work tree, branch, lock, folder or process is left, and the user's files are those of the target.
fn check_rest(scene: &KillScene) {
    let trees = git(&scene.project, &["worktree", "list", "--porcelain"]);
    assert_eq!(trees.matches("worktree ").count(), 1, "{trees}");
    let names = git(&scene.project, &["for-each-ref", "--format=%(refname)"]);
    let left: Vec<&str> = names.lines().filter(|name| !name.starts_with("refs/writ/archive/")).collect();
    assert_eq!(left, ["refs/heads/main"]);
    assert_eq!(git(&scene.project, &["status", "--porcelain", "--untracked-files=no"]), "");
    let dot = scene.project.join(".git");
    let is_lock = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "lock");
    let locks: Vec<PathBuf> = find_files(&dot).into_iter().filter(is_lock).collect();
    assert_eq!(locks, Vec::<PathBuf>::new());
    for folder in [".writ/workspaces", ".writ/active"] {
        let entries = std::fs::read_dir(scene.project.join(folder)).into_iter().flatten().flatten();
        let left: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
        assert!(left.is_empty(), "{folder}: {left:?}");
    }
    assert_eq!(find_files(&dot.join("worktrees")), Vec::<PathBuf>::new());
    let notes: Vec<PathBuf> = find_files(&dot.join("writ"));
    assert!(notes.iter().all(|path| path.extension().is_none()), "{notes:?}");
    let running = find_processes_of(scene.bench.home.dir.path());
    assert!(running.is_empty(), "{running:#?}");
}

pub(super) fn find_files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() { folders.push(path) } else { found.push(path) }
        }
    }
    found
}

/// Each call of a model was begun once, and has one outcome. Returns the number of calls, and that of unknown outcomes.
fn check_calls(scene: &KillScene) -> (usize, usize) {
    let mut outcomes: BTreeMap<String, String> = BTreeMap::new();
    for row in scene.bench.events("outcome") {
        let (attempt, outcome) = (word(&row, "/payload/attempt"), word(&row, "/payload/outcome"));
        assert_eq!(outcomes.insert(attempt.to_owned(), outcome.to_owned()), None, "two outcomes: {row}");
    }
    for row in scene.bench.events("model_called") {
        outcomes.insert(word(&row, "/payload/attempt").to_owned(), "answered".to_owned());
    }
    let (mut begun, mut unknown) = (BTreeSet::new(), 0);
    for row in scene.bench.events("intent") {
        let outcome = outcomes.get(word(&row, "/payload/attempt"));
        assert!(outcome.is_some(), "an intent without an outcome: {row}");
        if row.pointer("/payload/call").is_none_or(Value::is_null) {
            continue;
        }
        unknown += usize::from(outcome.is_some_and(|outcome| outcome == "unknown"));
        let call = (row["session"].to_string(), row["turn"].to_string(), row["payload"]["call"].to_string());
        assert!(begun.insert(call), "begun twice: {row}");
    }
    (begun.len(), unknown)
}
