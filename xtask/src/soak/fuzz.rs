//! The targets of `fuzz/`, each for a while, two at once.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context as _, Result, ensure};

use super::VIOLATED;
use crate::process::{self, Program};
use crate::workspace;

/// How many targets run at the same time.
const AT_ONCE: usize = 2;
/// The longest input, in bytes: most readers have bounds far below, and long inputs are slow.
const MAX_INPUT: &str = "-max_len=16384";
/// What counts as a hang, in seconds.
const HANG: &str = "-timeout=10";
/// What counts as too much memory, in MiB.
const MEMORY: &str = "-rss_limit_mb=2048";
/// Coverage of our own code and of what it is built from; the fuzzer reads it.
const COVERAGE: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
                        -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
                        -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares";
/// Build scripts and macros run here and are not covered: a target of its own keeps them apart.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Fuzzes each target for so many seconds; exit code 8 if one of them breaks.
pub(super) fn run(seconds: u32, only: Option<&str>) -> Result<ExitCode> {
    let root = workspace::root()?;
    let names: Vec<String> =
        targets(&root)?.into_iter().filter(|name| only.is_none_or(|one| one == name)).collect();
    ensure!(!names.is_empty(), "there is no such target in fuzz/corpus");
    let folder = process::target_directory(&root).join("fuzz");
    let binary = build(&root, &folder)?;
    let due = Mutex::new(names.clone());
    let broken = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(name) = take(&due) {
                    let (line, held) = match fuzz(&root, &folder, &binary, &name, seconds) {
                        Ok(told) => told,
                        Err(error) => (format!("{error:#}"), false),
                    };
                    println!("{}  {name}: {line}", if held { "held" } else { "BROKE" });
                    if !held {
                        broken.lock().unwrap_or_else(PoisonError::into_inner).push(name);
                    }
                }
            });
        }
    });
    let broken = broken.into_inner().unwrap_or_else(PoisonError::into_inner);
    println!("{} targets, {seconds} s each, {} broke", names.len(), broken.len());
    Ok(if broken.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(VIOLATED) })
}

fn take(due: &Mutex<Vec<String>>) -> Option<String> {
    due.lock().unwrap_or_else(PoisonError::into_inner).pop()
}

/// The targets: each has a folder of inputs, as a test makes sure.
fn targets(root: &Path) -> Result<BTreeSet<String>> {
    let folders = std::fs::read_dir(root.join("fuzz/corpus")).context("fuzz/corpus")?;
    folders.map(|folder| Ok(folder?.file_name().to_string_lossy().into_owned())).collect()
}

fn build(root: &Path, folder: &Path) -> Result<PathBuf> {
    let arguments = ["build", "--release", "--manifest-path", "fuzz/Cargo.toml", "--target", TARGET];
    let built = Program::cargo(&arguments)
        .directory(root)
        .env("CARGO_TARGET_DIR", folder)
        .env("RUSTFLAGS", COVERAGE)
        .status()?;
    ensure!(built, "the targets do not build");
    Ok(folder.join(TARGET).join("release/writ-fuzz"))
}

/// One target: what came of it, and whether it held.
fn fuzz(root: &Path, folder: &Path, binary: &Path, name: &str, seconds: u32) -> Result<(String, bool)> {
    let (found, kept) = (folder.join("found").join(name), folder.join("artifacts").join(name));
    for one in [&found, &kept] {
        std::fs::create_dir_all(one)?;
    }
    let time = format!("-max_total_time={seconds}");
    let prefix = format!("-artifact_prefix={}/", kept.display());
    let options = [time.as_str(), MAX_INPUT, HANG, MEMORY, &prefix, "-print_final_stats=1", "-verbosity=1"];
    let program = folder.join("programs").join(name);
    std::fs::create_dir_all(folder.join("programs"))?;
    std::fs::copy(binary, &program)?;
    let told = Program::new(&program, &options)
        .argument(&found)
        .argument(root.join("fuzz/corpus").join(name))
        .output()?;
    let line = if told.success { figures(&told.stderr) } else { tail(&told.stderr) };
    Ok((line, told.success))
}

/// How many inputs were tried, and how many of them found something new.
fn figures(stderr: &str) -> String {
    let number = |name: &str| {
        let line = stderr.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.split_whitespace().last()).unwrap_or("0").to_owned()
    };
    let (tried, new) = (number("stat::number_of_executed_units"), number("stat::new_units_added"));
    format!("{tried} inputs, {new} of them new")
}

/// The end of what it said.
fn tail(stderr: &str) -> String {
    let lines: Vec<&str> = stderr.lines().collect();
    lines.get(lines.len().saturating_sub(40)..).unwrap_or_default().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_those_at_its_end() {
        let said = "INFO: x\nstat::number_of_executed_units: 1234\nstat::new_units_added:         5\n";
        assert_eq!(figures(said), "1234 inputs, 5 of them new");
        assert_eq!(figures(""), "0 inputs, 0 of them new");
        assert_eq!(tail("a\nb"), "a\nb");
    }

    #[test]
    fn each_target_of_the_table_has_a_corpus() {
        let root = workspace::root().unwrap();
        let table = std::fs::read_to_string(root.join("fuzz/targets.rs")).unwrap();
        let named = |name: &String| table.contains(&format!("    (\"{name}\", "));
        let targets = targets(&root).unwrap();
        assert!(targets.len() > 20 && targets.iter().all(named), "{targets:?}");
    }
}
