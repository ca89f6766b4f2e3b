//! Counts the packages that Writ depends on.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};

use super::Finding;
use task_process::Program;

/// Packages in `Cargo.lock`, for any purpose.
const LOCKED_MAX: usize = 750;
/// Packages that are compiled for the binary on Linux, build scripts included. Raised from 560 for the readers of local
/// embedding models and the key bindings of the editor, and by one for our own client of coding agents.
const SHIPPED_MAX: usize = 571;

/// The numbers of packages.
#[derive(Debug)]
pub(super) struct Packages {
    locked: usize,
    shipped: usize,
}

/// Counts them.
pub(super) fn count(root: &Path) -> Result<Packages> {
    let lock = std::fs::read_to_string(root.join("Cargo.lock")).context("Cargo.lock")?;
    let tree = ["tree", "-p", "writ-cli", "-e", "normal,build", "--target", "x86_64-unknown-linux-gnu"];
    let tree = Program::cargo(&[&tree[..], &["--prefix", "none", "--locked"]].concat());
    let tree = tree.directory(root).output()?;
    ensure!(tree.success, "cargo tree failed: {}", tree.stderr.trim());
    Ok(Packages { locked: count_locked(&lock), shipped: count_shipped(&tree.stdout) })
}

impl Packages {
    /// Compares them with the budget.
    pub(super) fn check(&self) -> Vec<Finding> {
        let numbers = [("Cargo.lock", self.locked, LOCKED_MAX), ("writ-cli", self.shipped, SHIPPED_MAX)];
        let over = numbers.into_iter().filter(|(_, count, max)| count > max);
        over.map(|(item, count, max)| {
            Finding::new("packages", item, format!("{count} packages, {max} at most"))
        })
        .collect()
    }
}

impl fmt::Display for Packages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { locked, shipped } = self;
        write!(f, "packages: {locked} of {LOCKED_MAX} locked, {shipped} of {SHIPPED_MAX} in the binary")
    }
}

fn count_locked(lock: &str) -> usize {
    lock.lines().filter(|line| *line == "[[package]]").count()
}

/// Counts the distinct packages that `cargo tree --prefix none` prints: `name v1.2.3 (from) (*)`.
fn count_shipped(tree: &str) -> usize {
    let packages: BTreeSet<(&str, &str)> = tree
        .lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            Some((words.next()?, words.next()?))
        })
        .collect();
    packages.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_counted_once() {
        assert_eq!(
            count_locked("version = 4\n\n[[package]]\nname = \"a\"\n\n[[package]]\nname = \"b\"\n"),
            2
        );
        assert_eq!(count_shipped("a v1.0.0 (/x/a)\nb v2.0.0\nb v3.0.0\n\nb v2.0.0 (*)\n"), 3);
    }

    #[test]
    fn a_budget_overrun_is_found() {
        assert_eq!(Packages { locked: LOCKED_MAX, shipped: SHIPPED_MAX }.check(), []);
        let over = Packages { locked: LOCKED_MAX + 1, shipped: SHIPPED_MAX + 1 }.check();
        let items: Vec<&str> = over.iter().map(|finding| finding.item.as_str()).collect();
        assert_eq!(items, ["Cargo.lock", "writ-cli"]);
    }
}
