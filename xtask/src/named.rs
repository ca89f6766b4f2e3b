//! Runs the tests that a document names, and no others.
//!
//! A test of a crate is named `crate::path::of::test`, where `suite` stands for the file `tests/suite.rs`; one of the page
//! `web-tests/FILE.test.mjs: its name`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use cargo_metadata::Message;

use crate::test::browser;
use crate::workspace;
use task_process::Program;

/// The beginning of the names of the page's tests.
const PAGE: &str = "web-tests/";

/// The names of tests between backquotes.
pub(crate) fn quoted(cell: &str) -> Vec<String> {
    let quoted = cell.split('`').skip(1).step_by(2);
    quoted.filter(|name| name.contains("::") || name.starts_with(PAGE)).map(str::to_owned).collect()
}

/// Runs tests and returns those that passed. Each line that a test of a crate prints is handed on.
///
/// # Errors
///
/// If cargo or the browser cannot be run.
pub(crate) fn heard<'a>(
    root: &Path,
    tests: impl Iterator<Item = &'a String>,
    mut each: impl FnMut(&str),
) -> Result<BTreeSet<String>> {
    let (page, own): (Vec<&str>, Vec<&str>) =
        tests.map(String::as_str).partition(|test| test.starts_with(PAGE));
    let mut held = BTreeSet::new();
    let built = if own.is_empty() { BTreeMap::new() } else { built(root)? };
    for (name, tests) in by_crate(&own) {
        let names: Vec<&str> = ["--exact", "--show-output"]
            .into_iter()
            .chain(tests.iter().map(|test| in_binary(test)))
            .collect();
        let mut passing = BTreeSet::new();
        for Binary { path, folder } in built.get(name).into_iter().flatten() {
            Program::new(path, &names).directory(folder).env("CARGO_MANIFEST_DIR", folder).lines(|line| {
                passing.extend(passed(line).map(str::to_owned));
                each(line);
            })?;
        }
        held.extend(
            tests
                .iter()
                .filter(|test| passing.contains(in_binary(test)))
                .map(|test| format!("{name}::{test}")),
        );
    }
    let page = by_file(&page);
    if page.is_empty() {
        return Ok(held);
    }
    let Some(runner) = browser::prepare(root, false)? else {
        bail!("the page's tests need node, npm and chromium, and a binary that builds");
    };
    for (file, tests) in page {
        let mut passing = BTreeSet::new();
        runner.command(&[file]).lines(|line| passing.extend(page_passed(line).map(str::to_owned)))?;
        held.extend(
            tests.iter().filter(|test| passing.contains(**test)).map(|test| format!("{PAGE}{file}: {test}")),
        );
    }
    Ok(held)
}

/// A program of a crate's tests.
struct Binary {
    path: PathBuf,
    /// The folder of its crate, where cargo would run it.
    folder: PathBuf,
}

/// Builds the tests of the whole workspace, as the suite does: a crate that is built alone has other features of its
/// dependencies, and so is built anew. Those of each crate.
fn built(root: &Path) -> Result<BTreeMap<String, Vec<Binary>>> {
    let mut all: BTreeMap<String, Vec<Binary>> = BTreeMap::new();
    let arguments =
        ["test", "--locked", "--workspace", "--no-run", "--message-format", "json-render-diagnostics"];
    let mut lines = Vec::new();
    let success = Program::cargo(&arguments).directory(root).lines(|line| lines.push(line.to_owned()))?;
    ensure!(success, "the tests do not build");
    let crates = workspace::crates(root)?;
    for line in lines {
        let Message::CompilerArtifact(artifact) =
            serde_json::from_str(&line).with_context(|| format!("not a message of cargo's: {line}"))?
        else {
            continue;
        };
        let Some(path) = artifact.executable.filter(|_| artifact.profile.test) else { continue };
        let folder = artifact.manifest_path.parent().context("a manifest without a folder")?;
        let folder = folder.as_std_path().to_owned();
        let owner = crates.iter().find(|one| root.join(&one.folder) == folder);
        let owner = owner.with_context(|| format!("{} is of no crate here", folder.display()))?;
        all.entry(owner.name.clone()).or_default().push(Binary { path: path.into(), folder });
    }
    Ok(all)
}

/// The tests of each crate, without its name, each once.
fn by_crate<'a>(tests: &[&'a str]) -> BTreeMap<&'a str, BTreeSet<&'a str>> {
    let mut all: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (name, path) in tests.iter().filter_map(|test| test.split_once("::")) {
        all.entry(name).or_default().insert(path);
    }
    all
}

/// The tests of each file of the page's.
fn by_file<'a>(tests: &[&'a str]) -> BTreeMap<&'a str, BTreeSet<&'a str>> {
    let mut all: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (file, name) in tests.iter().filter_map(|test| test.strip_prefix(PAGE)?.split_once(": ")) {
        all.entry(file).or_default().insert(name);
    }
    all
}

/// The name of a test in its binary: the file `tests/suite.rs` is a binary of its own.
fn in_binary(path: &str) -> &str {
    path.strip_prefix("suite::").unwrap_or(path)
}

/// The test that a line says has passed: `test a::b ... ok`.
fn passed(line: &str) -> Option<&str> {
    line.strip_prefix("test ")?.strip_suffix(" ... ok")
}

/// The test of the page that a line says has passed: `ok 3 - its name`.
fn page_passed(line: &str) -> Option<&str> {
    let (number, name) = line.strip_prefix("ok ")?.split_once(" - ")?;
    // A directive after the name says why it does not count.
    let left_out = name.contains(" # ");
    (number.parse::<u32>().is_ok() && !left_out).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_and_belong_to_a_crate_or_a_file() {
        let cell = "`writ-cli::suite::races::one`, `writ-a::b::tests::two`; `cargo x`; `web-tests/a.test.mjs: it: works`";
        let names = quoted(cell);
        assert_eq!(
            names,
            ["writ-cli::suite::races::one", "writ-a::b::tests::two", "web-tests/a.test.mjs: it: works"]
        );
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let all = by_crate(&names[..2]);
        assert_eq!(all["writ-a"], BTreeSet::from(["b::tests::two"]));
        assert_eq!(all["writ-cli"].iter().map(|path| in_binary(path)).collect::<Vec<_>>(), ["races::one"]);
        assert_eq!(by_file(&names[2..])["a.test.mjs"], BTreeSet::from(["it: works"]));
    }

    #[test]
    fn only_a_test_that_passed_counts() {
        assert_eq!(passed("test a::b ... ok"), Some("a::b"));
        for line in ["test a::b ... FAILED", "test a::b ... ignored", "test result: ok. 1 passed", "a ... ok"]
        {
            assert_eq!(passed(line), None, "{line}");
        }
        assert_eq!(page_passed("ok 3 - it works - well"), Some("it works - well"));
        for line in ["not ok 3 - it works", "    ok - x", "ok x - y", "ok 4 - it # SKIP", "# pass 3"] {
            assert_eq!(page_passed(line), None, "{line}");
        }
    }
}
