//! Everything that must pass, in one command, with one count at its end.

mod needs;

mod count;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::process::{self, Program};
use crate::{tidy, workspace};
use count::Count;

/// How the tests are run.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Leave out formatting, lints, documentation and licences.
    #[arg(long)]
    quick: bool,
    /// Do not install what is missing; leave out what needs it.
    #[arg(long)]
    no_install: bool,
}

/// What came of one step.
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

    let missing = needs::missing(!options.no_install)?;
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

    if !broken.is_empty() {
        println!("\nfailed steps: {}", broken.join(", "));
    }
    println!("\n{total}");
    Ok(total.failed == 0 && !(process::on_ci() && total.skipped > 0))
}

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
        ("deny", check_licences),
    ]
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
    Ok(passed(tidy::run()?))
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

fn check_licences(root: &Path) -> Result<Step> {
    let Some(deny) = find_deny(root)? else {
        return Ok(Step::Skipped(
            "cargo-deny is not installed: `cargo install --locked cargo-deny`".to_owned(),
        ));
    };
    let arguments = ["--offline", "check", "bans", "licenses", "sources"];
    Ok(passed(Program::new(deny, &arguments).directory(root).status()?))
}

/// Whether a part of the toolchain is missing and could not be added.
fn missing_component(component: &str, program: &str) -> Result<Option<Step>> {
    let works =
        |program: &str| Ok::<_, anyhow::Error>(Program::new(program, &["--version"]).output()?.success);
    if process::exists(program) && works(program)? {
        return Ok(None);
    }
    if process::on_ci() && Program::new("rustup", &["component", "add", component]).status()? {
        return Ok(None);
    }
    Ok(Some(Step::Skipped(format!("{component} is not installed: `rustup component add {component}`"))))
}

/// Where `cargo-deny` is; continuous integration installs it beside the build, once.
fn find_deny(root: &Path) -> Result<Option<PathBuf>> {
    if process::exists("cargo-deny") {
        return Ok(Some("cargo-deny".into()));
    }
    let tools = process::target_directory(root).join("tools");
    let installed = tools.join("bin/cargo-deny");
    if !installed.is_file() {
        if !process::on_ci() {
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

/// What the tests counted, and whether cargo was content.
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
        .directory(root)
        .lines(|line| {
            println!("{line}");
            count.line(line);
        })
        .context("cargo test")?;
    Ok(Counted { count, success })
}
