//! The files that checks rest on: an executor that edits or deletes one of them would judge itself.

use writ_types::action::{ChangeKind, FileChange};
use writ_types::work::{Check, WorkStep};

/// Names of folders that hold tests, as the test runners of several languages look for them.
const TEST_FOLDERS: [&str; 6] = ["test", "tests", "__tests__", "spec", "specs", "testdata"];
/// Names of files that configure runners of tests.
const RUNNER_FILES: [&str; 6] =
    ["conftest.py", "pytest.ini", "tox.ini", "jest.config.js", "vitest.config.js", ".mocharc.json"];

/// Returns one line for each change of a file that the checks of a step rest on and that the step does not name among
/// those that it changes. A new file is none: it adds a check and takes none away.
pub fn list_edited_checks(step: &WorkStep, checks: &[Check], changes: &[FileChange]) -> Vec<String> {
    // A plan that names the file was approved with it.
    let is_planned = |path: &str| step.writes.iter().any(|write| write.trim_start_matches("./") == path);
    let edited = changes.iter().filter(|change| change.kind != ChangeKind::Create);
    let edited = edited.filter(|change| {
        checks.iter().any(|check| rests_on(check, &change.path)) && !is_planned(&change.path)
    });
    let line = |change: &FileChange| {
        let what = if change.kind == ChangeKind::Delete { "deleted" } else { "changed" };
        format!("'{}' was {what}, and a check rests on it", change.path)
    };
    edited.map(line).collect()
}

/// Returns true if a check rests on a file: a test of the project, the configuration of a runner, or the file that tells
/// the program of the check what to do.
fn rests_on(check: &Check, path: &str) -> bool {
    if check.run.is_empty() {
        return false;
    }
    let (folders, name) = path.rsplit_once('/').unwrap_or(("", path));
    let is_test = folders.split('/').any(|folder| TEST_FOLDERS.contains(&folder)) || is_test_name(name);
    is_test || RUNNER_FILES.contains(&name) || steers(check, path, name)
}

fn is_test_name(name: &str) -> bool {
    let stem = name.split('.').next().unwrap_or(name);
    let parts: Vec<&str> = name.split('.').collect();
    let has_mark = parts.iter().skip(1).any(|part| matches!(*part, "test" | "spec" | "tests"));
    let is_marked = |mark: &str| {
        stem == mark || stem.starts_with(&format!("{mark}_")) || stem.ends_with(&format!("_{mark}"))
    };
    has_mark || ["test", "tests", "spec"].into_iter().any(is_marked)
}

/// Returns true if a file decides what the check's program does: a script of a shell that it names, the makefile of
/// `make`, the scripts of a package.
fn steers(check: &Check, path: &str, name: &str) -> bool {
    let program =
        check.run.first().map(|first| first.rsplit('/').next().unwrap_or(first)).unwrap_or_default();
    let is_named = || {
        let own = |argument: &String| {
            let argument = argument.trim_start_matches("./");
            let dir = check.dir.as_deref().unwrap_or_default().trim_start_matches("./");
            argument == path || (!dir.is_empty() && format!("{dir}/{argument}") == path)
        };
        check.run.iter().any(own)
    };
    match program {
        "make" | "gmake" => matches!(name, "Makefile" | "makefile" | "GNUmakefile") || is_named(),
        "npm" | "npx" | "yarn" | "pnpm" => name == "package.json",
        "sh" | "bash" | "dash" | "zsh" => is_named(),
        // A program of the work itself, such as `./check.sh`.
        _ => {
            check.run.first().is_some_and(|first| first.contains('/')) && name.ends_with(".sh") && is_named()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(run: &[&str], dir: Option<&str>) -> Check {
        let run = run.iter().map(|argument| (*argument).to_owned()).collect();
        let dir = dir.map(str::to_owned);
        Check { name: "check".to_owned(), run, dir, timeout_secs: None, expect: Vec::new() }
    }

    fn change(path: &str, kind: ChangeKind) -> FileChange {
        let (path, executable, bytes) = (path.to_owned(), false, 1);
        FileChange { path, kind, before: None, after: None, executable, bytes }
    }

    fn is_noticed(run: &[&str], path: &str) -> bool {
        let changes = [change(path, ChangeKind::Modify)];
        !list_edited_checks(&WorkStep::default(), &[check(run, None)], &changes).is_empty()
    }

    /// Each language's own names, with twins that look alike and are the work itself.
    #[test]
    fn files_that_checks_rest_on_are_known_by_the_names_of_their_languages() {
        let python = ["python3", "-m", "unittest"];
        for path in
            ["tests/test_sums.py", "test_sums.py", "a/b/sums_test.py", "conftest.py", "tests/data.json"]
        {
            assert!(is_noticed(&python, path), "{path}");
        }
        for path in ["sums.py", "src/contest.py", "latest.py", "testing_tools/x.py", "attest.py"] {
            assert!(!is_noticed(&python, path), "{path}");
        }
        assert!(
            is_noticed(&["node", "--test"], "sums.test.mjs")
                && is_noticed(&["node", "--test"], "a/x.spec.ts")
        );
        assert!(
            !is_noticed(&["node", "--test"], "package.json") && is_noticed(&["npm", "test"], "package.json")
        );
        assert!(is_noticed(&["make", "check"], "Makefile") && !is_noticed(&["make", "check"], "sums.c"));
        assert!(is_noticed(&["sh", "check.sh"], "check.sh") && is_noticed(&["./check.sh"], "check.sh"));
        assert!(!is_noticed(&["python3", "app.py"], "app.py"), "the program that is worked on");
        assert!(!is_noticed(&[], "tests/test_sums.py"), "a check of files alone");
    }

    #[test]
    fn a_new_test_and_a_planned_change_are_none_and_a_deletion_is() {
        let checks = [check(&["python3", "-m", "unittest"], None), check(&["sh", "run.sh"], Some("ci"))];
        let listed = |step: &WorkStep, path, kind| list_edited_checks(step, &checks, &[change(path, kind)]);
        let step = WorkStep::default();
        assert!(listed(&step, "tests/test_new.py", ChangeKind::Create).is_empty());
        assert_eq!(
            listed(&step, "tests/test_sums.py", ChangeKind::Delete),
            ["'tests/test_sums.py' was deleted, and a check rests on it"]
        );
        assert_eq!(listed(&step, "ci/run.sh", ChangeKind::Modify).len(), 1, "in its own folder");
        let planned = WorkStep { writes: vec!["tests/test_sums.py".to_owned()], ..step };
        assert!(listed(&planned, "tests/test_sums.py", ChangeKind::Modify).is_empty());
        assert_eq!(listed(&planned, "tests/test_other.py", ChangeKind::Modify).len(), 1);
    }
}
