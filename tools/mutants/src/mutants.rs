//! Tries all mutants of a crate in one binary.
//!
//! `cargo mutants` says which mutants there are, and would compile each by itself: a night for the door. Here
//! all of them are woven into a copy of the sources, each behind a question whether it is the one in force,
//! and the copy is compiled once. Each test tells which mutants it reaches, and a mutant is tried against
//! those tests, the quickest first. What cannot be woven (constants, for instance) is compiled separately, as
//! `cargo mutants` does.

mod listed;

mod weave;

mod copy;

mod trial;

mod report;

use std::collections::BTreeMap;
use std::process::ExitCode;

use anyhow::{Context as _, Result, ensure};

use copy::Copy;
use listed::Mutant;
use report::{Outcome, Report};
use task_process::Program;
use task_process::workspace_root;

/// The exit code of a survivor without an explanation (design 3.18: a check failed).
const UNEXPLAINED: u8 = 8;

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// The crate of the mutants.
    #[arg(short, long, default_value = "writ-policy")]
    package: String,
    /// Only those of files with this in their path.
    #[arg(short, long, value_name = "PART")]
    file: Option<String>,
    /// Write what came of them to `docs/mutants.md`; the rows of other files stay.
    #[arg(long)]
    write: bool,
}

/// Tries every mutant; exit code 8 if one survives that is not explained.
///
/// # Errors
///
/// If `cargo mutants` is not there, the crate does not build, or its tests fail without a mutant.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let root = workspace_root()?;
    ensure!(
        Program::new("cargo-mutants", &["mutants", "--version"]).output().is_ok_and(|it| it.success),
        "cargo-mutants is not installed: `cargo install --locked cargo-mutants`"
    );
    let package = &options.package;
    let explained = report::explained(&root)?;
    let mut mutants = listed::list(&root, package)?;
    mutants.retain(|mutant| options.file.as_ref().is_none_or(|part| mutant.file.contains(part)));
    ensure!(!mutants.is_empty(), "{package} has no such mutants");
    println!("{} mutants of {package}", mutants.len());

    let folder = task_process::target_directory(&root).join("mutants");
    let mut copy = Copy::of(&root, package, &folder)?;
    let mut outcomes: BTreeMap<u32, Outcome> = BTreeMap::new();
    let apart = woven(&mut copy, &mutants, &mut outcomes)?;
    let apart: Vec<&Mutant> = mutants.iter().filter(|mutant| apart.contains(&mutant.id)).collect();
    println!("{} are tried one by one", apart.len());
    copy.unweave()?;
    for mutant in apart {
        let outcome = copy.alone(mutant)?;
        println!("{outcome}  {}", mutant.name);
        outcomes.insert(mutant.id, outcome);
    }
    let report = Report::new(&mutants, &outcomes, &explained).context("a mutant has no outcome")?;
    println!("{report}");
    std::fs::write(folder.join("outcomes.txt"), report.whole())?;
    if options.write {
        report.write(&root, package)?;
    }
    Ok(if report.all_explained() { ExitCode::SUCCESS } else { ExitCode::from(UNEXPLAINED) })
}

/// Tries what can be woven; the ids of what cannot.
fn woven(copy: &mut Copy, mutants: &[Mutant], outcomes: &mut BTreeMap<u32, Outcome>) -> Result<Vec<u32>> {
    let (built, apart) = copy.weave(mutants, outcomes)?;
    let due: Vec<&Mutant> = mutants
        .iter()
        .filter(|mutant| !apart.contains(&mutant.id) && !outcomes.contains_key(&mutant.id))
        .collect();
    let tests = trial::Tests::of(&built, copy.scratch())?;
    println!("{} tests, {} mutants are woven", tests.len(), due.len());
    outcomes.extend(tests.tried(&due, |mutant, outcome| println!("{outcome}  {}", mutant.name))?);
    Ok(apart)
}
