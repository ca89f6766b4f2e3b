//! The mutants that `cargo mutants` names.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use task_process::Program;

/// One change of one file.
#[derive(Clone, Debug)]
pub(crate) struct Mutant {
    /// From 1 on: 0 is no mutant.
    pub(crate) id: u32,
    /// As `cargo mutants` prints it, with its place.
    pub(crate) name: String,
    /// Its name without a place, which outlives other changes of the file; with a number, where a function has several.
    pub(crate) key: String,
    /// Relative to the root of the workspace.
    pub(crate) file: String,
    pub(crate) genre: Genre,
    /// The beginning of the replaced text.
    pub(crate) start: Place,
    pub(crate) end: Place,
    pub(crate) replacement: String,
}

/// The kind of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub(crate) enum Genre {
    /// A whole body that only returns a value.
    FnValue,
    /// Another operator between two expressions.
    BinaryOperator,
    /// An operator before an expression that is left out.
    UnaryOperator,
    /// An arm that is left out.
    MatchArm,
    /// A guard that is always or never true.
    MatchArmGuard,
    /// A field that is left to the base of a structure.
    StructField,
}

/// A place in a file: line and column, both from 1 on, the column in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub(crate) struct Place {
    pub(crate) line: usize,
    pub(crate) column: usize,
}

#[derive(Debug, Deserialize)]
struct Line {
    name: String,
    file: String,
    genre: Genre,
    span: Span,
    replacement: String,
}

#[derive(Debug, Deserialize)]
struct Span {
    start: Place,
    end: Place,
}

/// All mutants of a crate.
pub(crate) fn list(root: &Path, package: &str) -> Result<Vec<Mutant>> {
    let told = Program::new("cargo-mutants", &["mutants", "--list", "--json", "--no-config", "-p", package])
        .directory(root)
        .output()?;
    ensure!(told.success, "cargo mutants lists nothing: {}", told.stderr);
    let lines: Vec<Line> = serde_json::from_str(&told.stdout).context("what cargo mutants lists")?;
    let mut mutants: Vec<Mutant> = (1..).zip(lines).map(|(id, line)| mutant(id, line)).collect();
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    for mutant in &mut mutants {
        let count = seen.entry(mutant.key.clone()).or_default();
        *count += 1;
        if *count > 1 {
            mutant.key = format!("{} ({count})", mutant.key);
        }
    }
    Ok(mutants)
}

fn mutant(id: u32, line: Line) -> Mutant {
    let Line { name, file, genre, span: Span { start, end }, replacement } = line;
    let place = format!("{file}:{}:{}: ", start.line, start.column);
    let what = name.strip_prefix(&place).unwrap_or(&name);
    let short = file.split_once("/src/").map_or(file.as_str(), |(_, short)| short);
    let key = format!("{short}: {what}");
    Mutant { id, key, name, file, genre, start, end, replacement }
}
