//! Finds the tests that notice a mutant.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

use super::copy::Built;
use super::listed::Mutant;
use super::report::Outcome;
use task_process::Program;

/// The number of tests at once.
const AT_ONCE: usize = 2;
/// The number of tests against which a mutant is tried at a time, the quickest first: most are noticed by
/// these.
const BATCHES: [usize; 3] = [4, 16, 64];
/// The factor and the least time after which tests count as endless.
const PATIENCE: u32 = 10;
const LEAST: Duration = Duration::from_secs(20);
/// The memory limit of a test, in KiB: an endless loop may allocate endlessly, too.
const MEMORY: u32 = 6 << 20;
/// The exit code of `timeout`.
const TIMED_OUT: i32 = 124;
/// The exit code of `timeout` where the program had to be killed.
const KILLED: i32 = 137;

/// One test of one binary.
#[derive(Clone, Debug)]
struct Test {
    binary: PathBuf,
    name: String,
    took: Duration,
    reaches: BTreeSet<u32>,
}

/// All tests of a crate, and what each reaches.
#[derive(Debug)]
pub(crate) struct Tests {
    folder: PathBuf,
    /// The quickest first.
    tests: Vec<Test>,
}

impl Tests {
    /// Runs every test without a mutant.
    ///
    /// # Errors
    ///
    /// If one fails.
    pub(crate) fn of(built: &Built, scratch: &Path) -> Result<Self> {
        let mut due = Vec::new();
        for binary in &built.binaries {
            due.extend(names(binary)?.into_iter().map(|name| (binary.clone(), name)));
        }
        let tests = each(due, |number, (binary, name)| {
            let trace = scratch.join(format!("trace-{number}"));
            let _absent = std::fs::remove_file(&trace);
            let start = Instant::now();
            // In the same bounds as with one: else these would be what is noticed.
            let run = bounded(&binary, &built.folder, &[&name], LEAST * PATIENCE);
            let told = run.env("WRIT_MUTANT_TRACE", &trace).output()?;
            ensure!(told.success, "without a mutant {name} fails:\n{}{}", told.stdout, told.stderr);
            let reached = std::fs::read_to_string(&trace).unwrap_or_default();
            let reaches = reached.lines().filter_map(|line| line.parse().ok()).collect();
            Ok(Test { binary, name, took: start.elapsed(), reaches })
        })?;
        let mut tests: Vec<Test> = tests.into_values().collect();
        tests.sort_by_key(|test| test.took);
        Ok(Self { folder: built.folder.clone(), tests })
    }

    pub(crate) fn len(&self) -> usize {
        self.tests.len()
    }

    /// Tries each mutant, and reports each outcome at once.
    pub(crate) fn tried(
        &self,
        mutants: &[&Mutant],
        told: impl Fn(&Mutant, Outcome) + Sync,
    ) -> Result<BTreeMap<u32, Outcome>> {
        let outcomes = each(mutants.to_vec(), |_, mutant| {
            let outcome = self.one(mutant.id)?;
            told(mutant, outcome);
            Ok((mutant.id, outcome))
        })?;
        Ok(outcomes.into_values().collect())
    }

    fn one(&self, id: u32) -> Result<Outcome> {
        let mut due: &[&Test] =
            &self.tests.iter().filter(|test| test.reaches.contains(&id)).collect::<Vec<_>>();
        if due.is_empty() {
            return Ok(Outcome::Unreached);
        }
        for size in BATCHES.into_iter().chain(std::iter::repeat(usize::MAX)) {
            let (batch, rest) = due.split_at(size.min(due.len()));
            if batch.is_empty() {
                break;
            }
            if let Some(noticed) = self.batch(id, batch)? {
                return Ok(noticed);
            }
            due = rest;
        }
        Ok(Outcome::Survived)
    }

    /// Runs some tests with a mutant; `None` if they notice nothing.
    fn batch(&self, id: u32, batch: &[&Test]) -> Result<Option<Outcome>> {
        let mut by_binary: BTreeMap<&Path, Vec<&Test>> = BTreeMap::new();
        for test in batch {
            by_binary.entry(&test.binary).or_default().push(test);
        }
        for (binary, tests) in by_binary {
            let usual: Duration = tests.iter().map(|test| test.took).sum();
            let names: Vec<&str> = tests.iter().map(|test| test.name.as_str()).collect();
            let limit = LEAST.max(usual * PATIENCE);
            if let Some(noticed) = run(binary, &self.folder, &names, id, limit)? {
                return Ok(Some(noticed));
            }
        }
        Ok(None)
    }

    /// Tries a crate that is a mutant itself: every test is run.
    pub(crate) fn all(built: &Built) -> Result<Outcome> {
        for binary in &built.binaries {
            let names = names(binary)?;
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            if let Some(noticed) = run(binary, &built.folder, &names, 0, LEAST * PATIENCE)? {
                return Ok(noticed);
            }
        }
        Ok(Outcome::Survived)
    }
}

fn names(binary: &Path) -> Result<Vec<String>> {
    let told = Program::new(binary, &["--list", "--format", "terse"]).output()?;
    ensure!(told.success, "{} lists no tests", binary.display());
    let names = told.stdout.lines().filter_map(|line| line.strip_suffix(": test"));
    Ok(names.map(str::to_owned).collect())
}

/// Runs tests with a mutant; `None` if all of them hold.
fn run(binary: &Path, folder: &Path, names: &[&str], id: u32, limit: Duration) -> Result<Option<Outcome>> {
    let told = bounded(binary, folder, names, limit).env("WRIT_MUTANT", id.to_string()).output()?;
    Ok(match told.code {
        Some(0) => None,
        Some(TIMED_OUT | KILLED) => Some(Outcome::Endless),
        Some(code @ 125..=127) => bail!("{} could not be run: {code}: {}", binary.display(), told.stderr),
        Some(_) | None => Some(Outcome::Noticed),
    })
}

/// The run of tests within bounds of time and memory.
fn bounded(binary: &Path, folder: &Path, names: &[&str], limit: Duration) -> Program {
    let bounded = format!("ulimit -v {MEMORY}; exec timeout -k 1 {} \"$@\"", limit.as_secs());
    let program = Program::new("sh", &["-c", &bounded, "sh"]).argument(binary).argument("--exact");
    names.iter().fold(program, |program, name| program.argument(name)).directory(folder)
}

/// Does something for each, some at once; by the number of each.
fn each<T: Send, R: Send>(
    due: Vec<T>,
    what: impl Fn(usize, T) -> Result<R> + Sync,
) -> Result<BTreeMap<usize, R>> {
    let due = Mutex::new(due.into_iter().enumerate());
    let done = Mutex::new(BTreeMap::new());
    let next = || due.lock().unwrap_or_else(PoisonError::into_inner).next();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..AT_ONCE)
            .map(|_| {
                scope.spawn(|| -> Result<()> {
                    while let Some((number, one)) = next() {
                        let result = what(number, one)?;
                        done.lock().unwrap_or_else(PoisonError::into_inner).insert(number, result);
                    }
                    Ok(())
                })
            })
            .collect();
        threads.into_iter().try_for_each(|thread| {
            thread.join().map_err(|_| anyhow::anyhow!("a thread has panicked")).context("trial")?
        })
    })?;
    Ok(done.into_inner().unwrap_or_else(PoisonError::into_inner))
}
