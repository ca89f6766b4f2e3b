//! The page's tests in a real browser, run by node against the built binary.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::count::Count;
use super::needs;
use task_process::Program;

/// The oldest version of node that has the test runner of these tests.
const NODE: u32 = 20;
/// The programs that the tests need, and their Debian packages.
const PROGRAMS: [(&str, &str); 3] = [("node", "nodejs"), ("npm", "npm"), ("chromium", "chromium")];

/// The result of the browser's tests.
#[derive(Debug)]
pub(super) enum Browsed {
    /// They ran.
    Ran {
        count: Count,
        /// True if every program ended well.
        success: bool,
    },
    /// They were left out, and why.
    Skipped(String),
}

/// Runs the page's tests.
#[derive(Debug)]
pub(crate) struct Runner {
    folder: PathBuf,
    target: PathBuf,
}

impl Runner {
    /// Node with these files of tests; none: with all.
    pub(crate) fn command(&self, files: &[&str]) -> Program {
        let mut arguments =
            vec!["--test", "--test-reporter=tap", "--test-concurrency=2", "--test-timeout=600000"];
        arguments.extend(files);
        Program::new("node", &arguments)
            .directory(&self.folder)
            .env("WRIT_BINARY", self.target.join("writ"))
            .env("WRIT_SCRIPTED_MODEL", self.target.join("examples/scripted_model"))
    }
}

/// Builds what the tests drive, installs what they need, and runs them.
///
/// # Errors
///
/// If a program cannot be run at all.
pub(super) fn run(root: &Path, install: bool) -> Result<Browsed> {
    if let Some(reason) = missing(install)? {
        return Ok(Browsed::Skipped(reason));
    }
    let Some(runner) = built(root)? else {
        return Ok(Browsed::Ran { count: Count::default(), success: false });
    };
    let mut count = Count::default();
    let success = runner.command(&[]).lines(|line| {
        println!("{line}");
        tally(&mut count, line);
    })?;
    Ok(Browsed::Ran { count, success })
}

/// Builds what the tests drive; `None`: something that they need is missing or does not build.
///
/// # Errors
///
/// If a program cannot be run at all.
pub(crate) fn prepare(root: &Path, install: bool) -> Result<Option<Runner>> {
    if missing(install)?.is_some() { Ok(None) } else { built(root) }
}

/// Returns the first requirement that is missing, after an installation if that is allowed.
fn missing(install: bool) -> Result<Option<String>> {
    let missing =
        || PROGRAMS.iter().filter(|(program, _)| !task_process::exists(program)).collect::<Vec<_>>();
    let packages: Vec<&str> = missing().into_iter().map(|(_, package)| *package).collect();
    if install && !packages.is_empty() && task_process::exists("apt-get") {
        println!("installing {}", packages.join(", "));
        needs::install_packages(&packages)?;
    }
    if let Some((program, _)) = missing().first() {
        return Ok(Some(format!("{program} is not installed")));
    }
    let version = Program::new("node", &["--version"]).output()?.stdout;
    let old = major(&version).is_none_or(|major| major < NODE);
    Ok(old.then(|| format!("node is {}, not {NODE} or newer", version.trim())))
}

fn built(root: &Path) -> Result<Option<Runner>> {
    let folder = root.join("web-tests");
    // Of the whole workspace, as the tests before: a crate alone has other features of its dependencies.
    let build = ["build", "--locked", "--workspace", "--bin", "writ", "--example", "scripted_model"];
    let ready = Program::cargo(&build).directory(root).status()?
        && Program::new("npm", &["ci", "--no-audit", "--no-fund"]).directory(&folder).status()?;
    let target = task_process::target_directory(root).join("debug");
    Ok(ready.then_some(Runner { folder, target }))
}

/// The first number of `v20.20.2`.
fn major(version: &str) -> Option<u32> {
    version.trim().strip_prefix('v')?.split('.').next()?.parse().ok()
}

/// Adds what a line of node's test runner says: `not ok 3 - a name`, and at its end `# pass 30`.
fn tally(count: &mut Count, line: &str) {
    let failed = line.trim_start().strip_prefix("not ok ").and_then(|rest| rest.split_once(" - "));
    if let Some((_, name)) = failed.filter(|(_, name)| !name.contains(" # ")) {
        count.name(name);
    }
    let Some((what, number)) = line.strip_prefix("# ").and_then(|rest| rest.split_once(' ')) else { return };
    let Ok(number) = number.parse::<u64>() else { return };
    match what {
        "pass" => count.passed += number,
        "fail" | "cancelled" => count.failed += number,
        "skipped" | "todo" => count.skipped += number,
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_lines_of_node_are_counted() {
        let mut count = Count::default();
        let lines = [
            "TAP version 13",
            "    not ok 3 - a link works - once",
            "not ok 4 - not here # SKIP",
            "# tests 34",
            "# pass 30",
            "# fail 1",
            "# cancelled 1",
            "# skipped 2",
            "# todo 0",
        ];
        for line in lines {
            tally(&mut count, line);
        }
        assert_eq!(
            count,
            Count {
                passed: 30,
                failed: 2,
                skipped: 2,
                names: vec!["a link works - once".to_owned()],
                ignored: Vec::new()
            }
        );
        assert_eq!((major("v20.20.2\n"), major("v18.1.0"), major("20")), (Some(20), Some(18), None));
    }
}
