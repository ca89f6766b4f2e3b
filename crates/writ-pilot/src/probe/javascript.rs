//! Gates of JavaScript and TypeScript projects.

use serde_json::{Map, Value};
use writ_autopilot::check::counts::ReportFormat;

use super::ProposedGate;
use crate::files::ProjectFiles;

pub(super) fn propose_javascript(files: &ProjectFiles) -> Vec<ProposedGate> {
    let parsed = files.texts.get("package.json").and_then(|text| serde_json::from_str::<Value>(text).ok());
    let Some(Value::Object(package)) = parsed else { return Vec::new() };
    let (manager, runner) = find_manager(files);
    let script = |name: &str| find_text(&package, "scripts", name);
    let mut gates = Vec::new();
    gates.extend(propose_test(&package, manager, runner));
    for name in ["lint", "typecheck", "build"] {
        if script(name).is_some() {
            let gate = format!("js-{name}");
            gates.push(ProposedGate::new(&gate, &[manager, "run", name], None, "a script of package.json"));
        }
    }
    if script("typecheck").is_none() && files.has_path("tsconfig.json") {
        let run = [runner, &["tsc", "--noEmit"]].concat();
        gates.push(ProposedGate::new("js-typecheck", &run, None, "tsconfig.json"));
    }
    gates
}

/// Returns the package manager, and the words that run a program of the project without fetching it.
fn find_manager(files: &ProjectFiles) -> (&'static str, &'static [&'static str]) {
    if files.has_path("pnpm-lock.yaml") {
        ("pnpm", &["pnpm", "exec"])
    } else if files.has_path("yarn.lock") {
        ("yarn", &["yarn", "run"])
    } else {
        ("npm", &["npx", "--no-install"])
    }
}

fn find_text<'a>(package: &'a Map<String, Value>, table: &str, key: &str) -> Option<&'a str> {
    package.get(table)?.get(key)?.as_str()
}

/// Proposes the runner itself where it is known, since a script may hide its report.
fn propose_test(package: &Map<String, Value>, manager: &str, runner: &[&str]) -> Option<ProposedGate> {
    let script = find_text(package, "scripts", "test").unwrap_or_default();
    let uses = |name: &str| {
        let is_needed =
            ["devDependencies", "dependencies"].iter().any(|table| find_text(package, table, name).is_some());
        is_needed || script.split_whitespace().any(|word| word == name)
    };
    let of = |words: &[&str], report, reason| {
        Some(ProposedGate::new("js-test", &[runner, words].concat(), Some(report), reason))
    };
    if uses("vitest") {
        return of(&["vitest", "run"], ReportFormat::Vitest, "vitest is named in package.json");
    }
    if uses("jest") {
        return of(&["jest", "--ci"], ReportFormat::Jest, "jest is named in package.json");
    }
    if uses("mocha") {
        return of(&["mocha", "--reporter", "tap"], ReportFormat::Tap, "mocha is named in package.json");
    }
    if script.contains("node --test") {
        let run = ["node", "--test", "--test-reporter=tap"];
        return Some(ProposedGate::new("js-test", &run, Some(ReportFormat::Tap), "node's own runner"));
    }
    // The line that `npm init` writes.
    let is_empty = script.trim().is_empty() || script.contains("no test specified");
    let reason = "a script of package.json; its report has no known format";
    (!is_empty).then(|| ProposedGate::new("js-test", &[manager, "test"], None, reason))
}
