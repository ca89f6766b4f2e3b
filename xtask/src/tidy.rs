//! Checks that the compiler cannot make: each rule is one small module that turns facts into findings.

mod layers;

mod lints;

mod budgets;

mod owners;

mod shape;

pub(crate) mod docs;

mod features;

mod reference;

mod hygiene;

mod documented;

mod packages;

mod modules;

mod types;

mod words;

mod ratchet;

mod exceptions;

use std::fmt;

use anyhow::Result;

use crate::errors;
use crate::source::{self, Source};
use crate::workspace::{self, Crate};
use ratchet::Figure;

/// One thing that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    /// The check, as `exceptions.toml` names it.
    check: &'static str,
    /// The subject, as `exceptions.toml` names it: stable when lines move.
    item: String,
    line: Option<usize>,
    text: String,
}

impl Finding {
    fn new(check: &'static str, item: impl Into<String>, text: impl Into<String>) -> Self {
        Self { check, item: item.into(), line: None, text: text.into() }
    }

    fn at(mut self, line: usize) -> Self {
        self.line = Some(line);
        self
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.check, self.item)?;
        if let Some(line) = self.line {
            write!(f, " (line {line})")?;
        }
        write!(f, ": {}", self.text)
    }
}

#[derive(Debug, Default, clap::Args)]
pub(crate) struct TidyOptions {
    /// Lower the ceilings of `xtask/ratchet.toml` to what is measured.
    #[arg(long)]
    tighten: bool,
}

/// Runs every check and prints what it found; returns true if nothing was found.
pub(crate) fn run(options: &TidyOptions) -> Result<bool> {
    let root = workspace::root()?;
    let crates = workspace::crates(&root)?;
    let texts = source::texts(&root)?;
    let sources = source::parse_all(&texts)?;
    let figures = figures(&crates, &sources, &texts)?;
    if options.tighten {
        println!("{} ceilings lowered", ratchet::tighten(&root, &figures)?);
    }

    let mut findings = layers::check(&crates);
    findings.extend(layers::check_circles(&crates));
    findings.extend(modules::check(&crates, &sources));
    findings.extend(ratchet::check(&root, &figures)?);
    findings.extend(lints::check(&std::fs::read_to_string(root.join("Cargo.toml"))?, &crates)?);
    findings.extend(budgets::check(&sources));
    findings.extend(owners::check_sources(&sources));
    findings.extend(owners::check_manifests(&crates));
    findings.extend(shape::check(&sources));
    findings.extend(docs::check(&root, &crates, &sources)?);
    findings.extend(reference::check(&root)?);
    if !errors::is_in_step(&root)? {
        let text = "is not what the sources say: `cargo xtask errors --write`";
        findings.push(Finding::new("reference", errors::PAGE, text));
    }
    for (path, line) in errors::without_hint(&root)? {
        let text = "an error is made without a hint: say what to do about it";
        findings.push(Finding::new("hint", path, text).at(line));
    }
    findings.extend(hygiene::check(&root)?);
    findings.extend(documented::check(&texts)?);
    let packages = packages::count(&root)?;
    findings.extend(packages.check());
    let (mut findings, excused) = exceptions::read(&root)?.apply(findings);
    findings.sort();

    print_worst(&sources);
    println!("{packages}");
    println!("{} of {} exceptions in use", excused, exceptions::read(&root)?.len());
    for finding in &findings {
        println!("{finding}");
    }
    println!("tidy: {} findings in {} crates, {} files", findings.len(), crates.len(), sources.len());
    Ok(findings.is_empty())
}

/// Measures everything that has an aim.
fn figures(crates: &[Crate], sources: &[Source], texts: &[(String, String)]) -> Result<Vec<Figure>> {
    let folders: Vec<(String, String)> =
        crates.iter().map(|one| (one.name.clone(), one.folder.clone())).collect();
    let mut figures = modules::measure(crates, sources);
    figures.extend(types::measure(crates, sources));
    figures.extend(words::measure(&folders, texts)?);
    Ok(figures)
}

fn print_worst(sources: &[Source]) {
    println!("longest functions:");
    for (lines, name) in budgets::longest_functions(sources) {
        println!("{lines:>6} {name}");
    }
    println!("longest files, without tests:");
    for (lines, name) in budgets::longest_files(sources) {
        println!("{lines:>6} {name}");
    }
}
