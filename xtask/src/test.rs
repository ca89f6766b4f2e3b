//! Everything that must pass, in one command, with one count at its end.

mod needs;

pub(crate) mod browser;

mod count;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::{other_system, tidy, workspace};
use browser::Browsed;
use count::Count;
use task_process::Program;

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Leave out formatting, lints, documentation and licences.
    #[arg(long)]
    quick: bool,
    /// Do not install what is missing; leave out what needs it.
    #[arg(long)]
    no_install: bool,
}

/// The result of one step.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Passed,
    Failed,
    /// Left out, and why.
    Skipped(String),
}

/// Runs every step, then prints the totals; whether nothing failed and nothing had to be left out.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let root = workspace::root()?;
    let mut total = Count::default();
    let mut broken: Vec<&str> = Vec::new();
    let mut note = |name: &'static str, step: Step, total: &mut Count| match step {
        Step::Passed => {}
        Step::Failed => {
            broken.push(name);
            total.failed += 1;
        }
        Step::Skipped(reason) => {
            println!("skipped: {name}: {reason}");
            total.skipped += 1;
        }
    };

    let missing = needs::missing(&root, !options.no_install)?;
    for (name, step) in checks(options.quick) {
        heading(name);
        note(name, step(&root)?, &mut total);
    }

    heading("test");
    let counted = test_workspace(&root, &missing)?;
    for need in &missing {
        println!("skipped: tests named `{}`: {}", need.marker(), need.reason());
    }
    if let Counted { count, success: false } = &counted
        && count.failed == 0
    {
        note("test", Step::Failed, &mut total);
    }
    total.add(&counted.count);

    heading("browser");
    match browser::run(&root, !options.no_install)? {
        Browsed::Skipped(reason) => note("browser", Step::Skipped(reason), &mut total),
        Browsed::Ran { count, success } => {
            if !success && count.failed == 0 {
                note("browser", Step::Failed, &mut total);
            }
            total.add(&count);
        }
    }

    if !broken.is_empty() {
        println!("\nfailed steps: {}", broken.join(", "));
    }
    for line in named_tests(&total) {
        println!("{line}");
    }
    println!("\n{total}");
    Ok(is_open(&total, task_process::on_ci()))
}

/// Returns the lines that name the tests which failed and those which were ignored.
fn named_tests(total: &Count) -> Vec<String> {
    let failed = total.names.iter().map(|name| format!("failed test: {name}"));
    failed.chain(total.ignored.iter().map(|name| format!("ignored test: {name}"))).collect()
}

/// Returns true if the tree may be released: no test failed and, on CI, none was left out.
const fn is_open(total: &Count, on_ci: bool) -> bool {
    total.failed == 0 && !(on_ci && total.skipped > 0)
}

/// The settings of cargo for the crates that read `debug_assertions`.
const RELEASED_APART: [&str; 2] = [
    "profile.dev.package.writ-cli.debug-assertions=false",
    "profile.dev.package.writ-store.debug-assertions=false",
];

type Check = (&'static str, fn(&Path) -> Result<Step>);

/// The steps before the tests, cheapest first.
fn checks(quick: bool) -> Vec<Check> {
    if quick {
        return vec![("tidy", check_tidy)];
    }
    vec![
        ("fmt", check_format),
        ("tidy", check_tidy),
        ("clippy", check_lints),
        ("doc", check_documentation),
        ("other system", check_other_system),
        ("release", check_release),
        ("deny", check_licences),
    ]
}

/// Sets up what tests need beyond Rust, where that can be.
///
/// # Errors
///
/// If an installer cannot be run.
pub(crate) fn set_up(root: &std::path::Path) -> Result<()> {
    for need in needs::missing(root, true)? {
        println!("missing: {}", need.reason());
    }
    Ok(())
}

fn heading(name: &str) {
    println!("\n== {name}");
}

fn passed(success: bool) -> Step {
    if success { Step::Passed } else { Step::Failed }
}

fn check_format(root: &Path) -> Result<Step> {
    if let Some(skipped) = missing_component("rustfmt", "cargo-fmt")? {
        return Ok(skipped);
    }
    Ok(passed(Program::cargo(&["fmt", "--all", "--check"]).directory(root).status()?))
}

fn check_tidy(_: &Path) -> Result<Step> {
    Ok(passed(tidy::run(&tidy::TidyOptions::default())?))
}

fn check_lints(root: &Path) -> Result<Step> {
    if let Some(skipped) = missing_component("clippy", "cargo-clippy")? {
        return Ok(skipped);
    }
    let arguments = ["clippy", "--locked", "--workspace", "--all-targets", "--", "-D", "warnings"];
    Ok(passed(Program::cargo(&arguments).directory(root).status()?))
}

fn check_documentation(root: &Path) -> Result<Step> {
    let arguments = ["doc", "--locked", "--workspace", "--no-deps"];
    Ok(passed(Program::cargo(&arguments).env("RUSTDOCFLAGS", "-D warnings").directory(root).status()?))
}

fn check_other_system(root: &Path) -> Result<Step> {
    Ok(passed(other_system::check(root)?))
}

/// Checks what only a release compiles: it has no debug assertions, on which some code depends.
fn check_release(root: &Path) -> Result<Step> {
    let mut arguments = vec!["check", "--locked", "-p", "writ-cli", "--bin", "writ"];
    // Our crates alone: the others stay as they are built.
    for package in RELEASED_APART {
        arguments.extend(["--config", package]);
    }
    Ok(passed(Program::cargo(&arguments).directory(root).status()?))
}

fn check_licences(root: &Path) -> Result<Step> {
    let Some(deny) = find_deny(root)? else {
        return Ok(Step::Skipped(
            "cargo-deny is not installed: `cargo install --locked cargo-deny`".to_owned(),
        ));
    };
    // It looks at the packages of every platform, and a build here has brought those of this one alone.
    if !Program::cargo(&["fetch", "--locked"]).directory(root).status()? {
        return Ok(Step::Failed);
    }
    let arguments = ["--offline", "check", "bans", "licenses", "sources"];
    Ok(passed(Program::new(deny, &arguments).directory(root).status()?))
}

/// Returns the skipped step if a part of the toolchain is missing and cannot be added.
fn missing_component(component: &str, program: &str) -> Result<Option<Step>> {
    let works =
        |program: &str| Ok::<_, anyhow::Error>(Program::new(program, &["--version"]).output()?.success);
    if task_process::exists(program) && works(program)? {
        return Ok(None);
    }
    if task_process::on_ci() && Program::new("rustup", &["component", "add", component]).status()? {
        return Ok(None);
    }
    Ok(Some(Step::Skipped(format!("{component} is not installed: `rustup component add {component}`"))))
}

/// Finds `cargo-deny`; continuous integration installs it beside the build, once.
fn find_deny(root: &Path) -> Result<Option<PathBuf>> {
    if task_process::exists("cargo-deny") {
        return Ok(Some("cargo-deny".into()));
    }
    let tools = task_process::target_directory(root).join("tools");
    let installed = tools.join("bin/cargo-deny");
    if !installed.is_file() {
        if !task_process::on_ci() {
            return Ok(None);
        }
        let install = Program::cargo(&["install", "--locked", "cargo-deny", "--root"]).argument(&tools);
        let built = install.env("CARGO_TARGET_DIR", tools.join("build")).directory(root).status()?;
        if !built {
            return Ok(None);
        }
    }
    Ok(Some(installed))
}

/// The counts of the tests, and the success of cargo itself.
struct Counted {
    count: Count,
    success: bool,
}

/// Runs all tests of all crates, documentation included, and counts while it streams.
fn test_workspace(root: &Path, missing: &[needs::Need]) -> Result<Counted> {
    let mut arguments = vec!["test", "--locked", "--workspace", "--no-fail-fast"];
    if !missing.is_empty() {
        arguments.push("--");
    }
    for need in missing {
        arguments.extend(["--skip", need.marker()]);
    }
    let mut count = Count::default();
    let success = Program::cargo(&arguments)
        .env("RUST_TEST_THREADS", test_threads())
        .directory(root)
        .lines(|line| {
            println!("{line}");
            count.line(line);
        })
        .context("cargo test")?;
    Ok(Counted { count, success })
}

/// Threads of tests for each core: most tests wait for the disk, for a process or for a model much of their time.
const THREADS_PER_CORE: usize = 2;

/// Returns the number of tests that run at once: that of the environment if it has one.
fn test_threads() -> String {
    task_process::variable("RUST_TEST_THREADS").unwrap_or_else(|| {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        (cores * THREADS_PER_CORE).to_string()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One failed test or lint closes the gate; that it is open, is what its run says.
    ///
    /// Rows: SIL-304 SIL-305 (one failure closes the gate) SCL-172 (that whatever is left out fails the gate)
    /// Rows: SCL-197
    #[test]
    fn one_failure_closes_the_gate_that_continuous_integration_passes() {
        let mut total = Count::default();
        total.line(
            "test result: ok. 7 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1s",
        );
        assert!(is_open(&total, true));
        let mut skipped = total.clone();
        skipped.line("test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 1 filtered out");
        assert!(is_open(&skipped, false) && !is_open(&skipped, true));
        let mut ignored = total.clone();
        ignored.line("test e::f ... ignored, needs a display");
        ignored.line("test result: ok. 1 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out");
        assert_eq!(named_tests(&ignored), ["ignored test: e::f"]);
        assert!(!is_open(&ignored, true));
        total.line("test result: FAILED. 3 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out");
        assert!(!is_open(&total, true) && !is_open(&total, false));
        assert_eq!(passed(false), Step::Failed);
        let names: Vec<&str> = checks(false).into_iter().map(|(name, _)| name).collect();
        assert!(["fmt", "tidy", "clippy", "release"].iter().all(|name| names.contains(name)), "{names:?}");
        let script = std::fs::read_to_string(workspace::root().unwrap().join(".ci/run")).unwrap();
        assert!(script.contains("set -euo pipefail") && script.contains("cargo xtask test | "), "{script}");
        assert_eq!(script.trim_end().lines().last(), Some("[ \"${#failed[@]}\" -eq 0 ]"));
    }
}
