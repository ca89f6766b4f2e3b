//! The files that checks rest on: an executor that edits, deletes or plants one of them would judge itself.

use writ_types::action::{ChangeKind, FileChange};
use writ_types::work::Check;

use crate::order::is_inside;

mod runners;

/// The most lines about edited files of one attempt: that is enough for a folder that was deleted as a whole.
const MAX_NOTICES: usize = 20;

/// Names of folders that hold tests, as the test runners of several languages look for them.
const TEST_FOLDERS: [&str; 6] = ["test", "tests", "__tests__", "spec", "specs", "testdata"];

/// Returns one line for each change of a file that checks rest on, and that `planned` does not name: the paths and folders
/// of the steps that have begun. A new test is none: it adds a check and takes none away. A new file that tells a runner what
/// to do, or that takes the place of a module of its language, is one.
pub fn list_edited_checks(planned: &[String], checks: &[Check], changes: &[FileChange]) -> Vec<String> {
    // A plan that names the file was approved with it. The work's own folder names none.
    let names = |write: &String, path: &str| !is_inside(".", write) && is_inside(path, write);
    let is_planned = |path: &str| planned.iter().any(|write| names(write, path));
    let is_edited = |change: &&FileChange| {
        let rests = |check: &Check| match change.kind {
            ChangeKind::Create => runners::is_planted(check, &change.path),
            ChangeKind::Modify | ChangeKind::Delete => rests_on(check, &change.path),
        };
        checks.iter().any(rests) && !is_planned(&change.path)
    };
    let edited: Vec<&FileChange> = changes.iter().filter(is_edited).collect();
    let mut lines: Vec<String> = edited.iter().take(MAX_NOTICES).map(|change| line_about(change)).collect();
    if let Some(more) = edited.len().checked_sub(MAX_NOTICES).filter(|more| *more > 0) {
        lines.push(format!("{more} more files that a check rests on were changed"));
    }
    lines
}

fn line_about(change: &FileChange) -> String {
    let path = &change.path;
    match change.kind {
        ChangeKind::Create => {
            format!(
                "'{path}' was created, and it steers a check: only a step that names it in `writes` may do that"
            )
        }
        ChangeKind::Modify => format!("'{path}' was changed, and a check rests on it"),
        ChangeKind::Delete => format!("'{path}' was deleted, and a check rests on it"),
    }
}

/// Returns true if a check rests on a file: a test of the project, the configuration of a runner, or the file that tells
/// the program of the check what to do.
fn rests_on(check: &Check, path: &str) -> bool {
    // It looks for files alone, and those are what the step is to make.
    if check.run.is_empty() {
        return false;
    }
    let (folders, name) = path.rsplit_once('/').unwrap_or(("", path));
    is_in_tests(folders) || is_test_name(name) || runners::steers(check, path)
}

fn is_in_tests(folders: &str) -> bool {
    folders.split('/').any(|folder| TEST_FOLDERS.contains(&folder))
}

fn is_test_name(name: &str) -> bool {
    let stem = name.split('.').next().unwrap_or(name);
    let parts: Vec<&str> = name.split('.').collect();
    // Between dots, as in `sums.test.mjs`: within a word it may be any word of the work.
    let has_mark = parts.iter().skip(1).any(|part| matches!(*part, "test" | "spec" | "tests"));
    let is_marked = |mark: &str| {
        stem == mark || stem.starts_with(&format!("{mark}_")) || stem.ends_with(&format!("_{mark}"))
    };
    has_mark || ["test", "tests", "spec"].into_iter().any(is_marked)
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
        !list_edited_checks(&[], &[check(run, None)], &changes).is_empty()
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

    /// A file of the executor's own that a runner would obey, with twins that are ordinary work.
    #[test]
    fn a_new_file_that_steers_a_check_is_noticed_and_new_work_is_not() {
        let is_planted = |run: &[&str], dir: Option<&str>, path: &str| {
            !list_edited_checks(&[], &[check(run, dir)], &[change(path, ChangeKind::Create)]).is_empty()
        };
        let unittest = ["/usr/bin/python3.11", "-m", "unittest"];
        for path in [
            "unittest.py",
            "unittest/__init__.py",
            "tests/json.py",
            "sitecustomize.py",
            "conftest.py",
            "pkg/conftest.py",
            "pytest.ini",
            "pyproject.toml",
        ] {
            assert!(is_planted(&unittest, None, path), "{path}");
        }
        for path in ["sums.py", "tests/test_new.py", "app/types.py", "app/json/codec.py", "docs/unittest.md"]
        {
            assert!(!is_planted(&unittest, None, path), "{path}");
        }
        assert!(is_planted(&["pytest"], Some("api"), "api/random.py"), "the folder that the check runs in");
        assert!(
            is_planted(&["python3", "tools/run.py"], None, "tools/random.py"),
            "the folder of its program"
        );
        // A makefile that wins over the one that is there; one by the last name is used only where there is none.
        assert!(
            is_planted(&["make", "check"], None, "GNUmakefile") && is_planted(&["make"], None, "makefile")
        );
        assert!(!is_planted(&["make", "check"], None, "Makefile"));
        // A file that starts a project is a part of the work; one between the project's root and the check's folder is planted.
        assert!(
            !is_planted(&["cargo", "test"], None, "Cargo.toml")
                && !is_planted(&["npm", "test"], None, "package.json")
        );
        assert!(is_planted(&["npm", "test"], Some("web/app"), "web/app/package.json"));
        for (run, path) in [
            (&["cargo", "test"][..], "build.rs"),
            (&["cargo", "test"], ".cargo/config.toml"),
            (&["npx", "jest"], "jest.config.ts"),
            (&["npx", "jest"], "node_modules/jest/index.js"),
            (&["go", "test", "./..."], "vendor/modules.txt"),
            (&["sh", "run.sh"], "conftest.py"),
            (&["./check.sh"], "jest.config.js"),
        ] {
            assert!(is_planted(run, None, path), "{run:?} {path}");
        }
        assert!(!is_planted(&["cat", "build.rs"], None, "build.rs"), "no runner obeys it");
    }

    #[test]
    fn files_that_steer_a_check_may_not_be_edited_unnoticed() {
        for (run, path) in [
            (&["python3", "-m", "pytest"][..], "pyproject.toml"),
            (&["pytest"], "setup.cfg"),
            (&["cargo", "test"], "crates/a/Cargo.toml"),
            (&["cargo", "test"], "build.rs"),
            (&["cargo", "nextest", "run"], ".cargo/config.toml"),
            (&["npx", "jest"], "jest.config.mjs"),
            (&["jest"], "package.json"),
            (&["go", "test"], "go.mod"),
            (&["make", "check"], "rules.mk"),
            (&["make", "check"], "package.json"),
        ] {
            assert!(is_noticed(run, path), "{run:?} {path}");
        }
        for (run, path) in [
            (&["cargo", "test"][..], "pyproject.toml"),
            (&["pytest"], "Cargo.toml"),
            (&["cat", "a.txt"], "Cargo.toml"),
        ] {
            assert!(!is_noticed(run, path), "{run:?} {path}");
        }
    }

    #[test]
    fn a_new_test_and_a_planned_change_are_none_and_a_deletion_is() {
        let checks = [check(&["python3", "-m", "unittest"], None), check(&["sh", "run.sh"], Some("ci"))];
        let listed = |planned: &[&str], path, kind| {
            let planned: Vec<String> = planned.iter().map(|path| (*path).to_owned()).collect();
            list_edited_checks(&planned, &checks, &[change(path, kind)])
        };
        assert!(listed(&[], "tests/test_new.py", ChangeKind::Create).is_empty());
        assert_eq!(
            listed(&[], "tests/test_sums.py", ChangeKind::Delete),
            ["'tests/test_sums.py' was deleted, and a check rests on it"]
        );
        assert_eq!(listed(&[], "ci/run.sh", ChangeKind::Modify).len(), 1, "in its own folder");
        for planned in ["tests/test_sums.py", "./tests/test_sums.py", "tests", "tests/"] {
            assert!(listed(&[planned], "tests/test_sums.py", ChangeKind::Modify).is_empty(), "{planned}");
        }
        for other in ["tests/test_other.py", "tests/test", "test", ".", ""] {
            assert_eq!(listed(&[other], "tests/test_sums.py", ChangeKind::Modify).len(), 1, "{other}");
        }
        assert!(listed(&["unittest.py"], "unittest.py", ChangeKind::Create).is_empty());
    }

    #[test]
    fn the_lines_about_many_files_are_bounded() {
        let changes: Vec<FileChange> =
            (0..1_000).map(|n| change(&format!("tests/test_{n}.py"), ChangeKind::Delete)).collect();
        let lines = list_edited_checks(&[], &[check(&["pytest"], None)], &changes);
        assert_eq!(lines.len(), MAX_NOTICES + 1);
        assert_eq!(lines[MAX_NOTICES], "980 more files that a check rests on were changed");
    }
}
