//! Finds the gates of a project: its test, lint and build commands, each with the format of its report.
//!
//! A proposal is a guess from names and manifests. Nothing is run here: the shell tries each command in the sandbox, and marks
//! those that fail.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::Path;

use writ_autopilot::check::counts::ReportFormat;
use writ_autopilot::check::scripts::names_tests;

use crate::config::{CONFIG_FILE, report_name};
use crate::files::ProjectFiles;

mod javascript;

mod python;

/// The most gates that are proposed.
const MAX_PROPOSED: usize = 20;
/// The most bytes of a manifest in which a word is looked for.
const MAX_SEARCHED_BYTES: usize = 128 * 1024;

/// A gate that a project could have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProposedGate {
    /// Its name.
    pub name: String,
    /// The program with its arguments.
    pub run: Vec<String>,
    /// The format of its report; none: it runs no tests that can be counted.
    pub report: Option<ReportFormat>,
    /// The reason for the proposal, in one line.
    pub reason: &'static str,
}

impl ProposedGate {
    pub(crate) fn new(name: &str, run: &[&str], report: Option<ReportFormat>, reason: &'static str) -> Self {
        let run = run.iter().map(|word| (*word).to_owned()).collect();
        Self { name: name.to_owned(), run, report, reason }
    }
}

/// Proposes the gates of a project, tests first in each language.
pub fn propose_gates(files: &ProjectFiles) -> Vec<ProposedGate> {
    let mut gates = propose_rust(files);
    gates.extend(python::propose_python(files));
    gates.extend(javascript::propose_javascript(files));
    gates.extend(propose_go(files));
    // What these call is mostly one of the above, so they stand in only where nothing was found.
    if gates.is_empty() {
        gates.extend(propose_recipes(files));
    }
    gates.truncate(MAX_PROPOSED);
    gates
}

fn propose_rust(files: &ProjectFiles) -> Vec<ProposedGate> {
    let Some(manifest) = files.texts.get("Cargo.toml") else { return Vec::new() };
    let is_workspace = manifest.lines().any(|line| line.trim() == "[workspace]");
    // Without it, only the package at the top would be tested.
    let all: &[&str] = if is_workspace { &["--workspace"] } else { &[] };
    let cargo = |first: &[&'static str], last: &[&'static str]| [&["cargo"], first, all, last].concat();
    let nextest = [".config/nextest.toml", "nextest.toml"].iter().any(|path| files.has_path(path));
    let test = if nextest {
        let run = cargo(&["nextest", "run"], &[]);
        ProposedGate::new("rust-test", &run, Some(ReportFormat::Nextest), "nextest has a configuration")
    } else {
        ProposedGate::new("rust-test", &cargo(&["test"], &[]), Some(ReportFormat::Cargo), "Cargo.toml")
    };
    let lint = cargo(&["clippy"], &["--all-targets", "--", "-D", "warnings"]);
    vec![
        test,
        ProposedGate::new("rust-lint", &lint, None, "Cargo.toml"),
        ProposedGate::new("rust-format", &["cargo", "fmt", "--all", "--check"], None, "Cargo.toml"),
    ]
}

fn propose_go(files: &ProjectFiles) -> Vec<ProposedGate> {
    if !files.texts.contains_key("go.mod") {
        return Vec::new();
    }
    let test = ["go", "test", "-json", "./..."];
    vec![
        ProposedGate::new("go-test", &test, Some(ReportFormat::GoTest), "go.mod"),
        ProposedGate::new("go-lint", &["go", "vet", "./..."], None, "go.mod"),
        ProposedGate::new("go-build", &["go", "build", "./..."], None, "go.mod"),
    ]
}

/// Proposes recipes of make and just. Their output has no format that can be counted.
fn propose_recipes(files: &ProjectFiles) -> Vec<ProposedGate> {
    let mut gates = Vec::new();
    for (tool, names) in [("just", &["justfile", ".justfile"]), ("make", &["gnumakefile", "makefile"])] {
        let Some(text) = names.iter().find_map(|name| files.top_text(name)) else { continue };
        for recipe in ["test", "check", "lint", "build"] {
            if has_recipe(text, recipe) {
                let reason = if tool == "just" { "a recipe of just" } else { "a target of make" };
                gates.push(ProposedGate::new(&format!("{tool}-{recipe}"), &[tool, recipe], None, reason));
            }
        }
    }
    gates
}

/// Returns true if a line defines the recipe: its name at the beginning, then a colon that is no assignment.
fn has_recipe(text: &str, recipe: &str) -> bool {
    text.lines().any(|line| {
        let rest = line.trim_start_matches('@').strip_prefix(recipe).unwrap_or_default();
        // Parameters of just stand before the colon.
        let is_name = rest.starts_with([':', ' ']);
        is_name
            && rest
                .split_once(':')
                .is_some_and(|(before, after)| !after.starts_with('=') && !before.contains('='))
    })
}

/// Returns true if the beginning of a manifest has a word.
pub(crate) fn has_text(files: &ProjectFiles, path: &str, word: &str) -> bool {
    files.texts.get(path).is_some_and(|text| {
        let end = (0..=text.len().min(MAX_SEARCHED_BYTES)).rev().find(|end| text.is_char_boundary(*end));
        text.get(..end.unwrap_or(0)).is_some_and(|text| text.contains(word))
    })
}

/// A proposal with the result of its trial in the sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TriedGate {
    /// The proposal.
    pub gate: ProposedGate,
    /// The reason why it did not pass, or can prove nothing; none: it passed.
    pub problem: Option<String>,
}

impl TriedGate {
    /// Makes the result of a trial. A gate of tests that cannot be counted has not shown that one ran, however its trial ended.
    pub fn new(gate: ProposedGate, problem: Option<String>) -> Self {
        let is_uncounted = gate.report.is_none() && names_tests(&gate.run);
        let uncounted = || {
            "its tests cannot be counted: add the format of its report as `report`, or `runs_tests = false`"
                .to_owned()
        };
        Self { problem: problem.or_else(|| is_uncounted.then(uncounted)), gate }
    }
}

/// Writes the text of `.writ/pilot.toml`. A gate that did not pass stands there as a comment, with the reason.
pub fn write_config(target_branch: Option<&str>, gates: &[TriedGate]) -> String {
    let mut text = String::from(
        "# The settings of the autopilot in this project. `writ pilot init` has written them once; they are yours now.\n\n[pilot]\n",
    );
    match target_branch {
        Some(branch) => text.push_str(&format!("target_branch = {}\n", quote_toml(branch))),
        None => text.push_str("# target_branch = \"main\"\n"),
    }
    text.push_str("\n# [pilot.ceilings]\n# run_micro_usd = 500_000        # half a dollar\n# day_micro_usd = 20_000_000\n");
    for tried in gates {
        let gate = &tried.gate;
        let words: Vec<String> = gate.run.iter().map(|word| quote_toml(word)).collect();
        let mut lines = vec![
            "[[gate]]".to_owned(),
            format!("name = {}", quote_toml(&gate.name)),
            format!("run = [{}]", words.join(", ")),
            "at = \"slice\"".to_owned(),
        ];
        lines.extend(gate.report.map(|report| format!("report = \"{}\"", report_name(report))));
        let _ = write!(text, "\n# Found by: {}.\n", gate.reason);
        if let Some(problem) = &tried.problem {
            let problem: String =
                problem.chars().map(|c| if c.is_control() { ' ' } else { c }).take(200).collect();
            let _ = writeln!(text, "# It is switched off: {problem}");
        }
        let mark = if tried.problem.is_some() { "# " } else { "" };
        for line in lines {
            let _ = writeln!(text, "{mark}{line}");
        }
    }
    text
}

/// Puts text in TOML's quotes.
fn quote_toml(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

/// Saves the settings of a project if it has none. Returns false if it has.
///
/// # Errors
///
/// If the file cannot be written, or `.writ` is no folder of the project.
pub fn save_config(project: &Path, text: &str) -> io::Result<bool> {
    let path = project.join(CONFIG_FILE);
    if let Some(folder) = path.parent() {
        match std::fs::create_dir(folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            Ok(()) | Err(_) => {}
        }
        // A link would lead the file out of the project.
        if !std::fs::symlink_metadata(folder)?.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
    }
    // Made anew or not at all: a person's file is never overwritten, also not between two looks.
    let mut file = match std::fs::File::options().write(true).create_new(true).open(&path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(false),
        other => other?,
    };
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
    if let Err(error) = written {
        // Half a file would be taken for settings.
        let _ = std::fs::remove_file(&path);
        return Err(error);
    }
    Ok(true)
}

#[cfg(test)]
mod tests;
