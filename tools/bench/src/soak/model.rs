//! The door against the slow model of it, with a seed of chance and many cases.

use std::process::ExitCode;

use anyhow::Result;

use super::VIOLATED;
use task_process::Program;
use task_process::workspace_root;

/// The test that compares them.
const TEST: &str = "door::tests::model::the_door_agrees_with_the_model";

/// Compares them in so many cases; exit code 8 if they differ in one.
pub(super) fn run(seed: u64, cases: u32) -> Result<ExitCode> {
    println!("seed {seed}, {cases} cases");
    let arguments = ["test", "--locked", "--package", "writ-policy", "--lib", "--", "--exact", TEST];
    let program = Program::cargo(&arguments)
        .directory(&workspace_root()?)
        .env("WRIT_MODEL_SEED", seed.to_string())
        .env("WRIT_MODEL_CASES", cases.to_string());
    // Where no test has this name, none fails either.
    let mut held = false;
    program.lines(|line| {
        println!("{line}");
        held |= line.starts_with("test result: ok. 1 passed");
    })?;
    if !held {
        println!("seed {seed}, {cases} cases: `--seed` repeats them");
        return Ok(ExitCode::from(VIOLATED));
    }
    println!("the door and its model agree in {cases} cases");
    Ok(ExitCode::SUCCESS)
}
