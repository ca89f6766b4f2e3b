//! A fleet whose proxy, engine and agents are killed at many moments of chance, by the test that does it a few times.

use std::process::ExitCode;

use anyhow::Result;

use super::VIOLATED;
use task_process::Program;
use task_process::workspace_root;

/// The tests with the kills: their names begin so.
const TESTS: &str = "fleet::kills::";

/// Runs them with so many kills each; exit code 8 if something does not fit together.
pub(super) fn run(seed: u64, kills: u32) -> Result<ExitCode> {
    println!("seed {seed}, {kills} kills");
    let arguments =
        ["test", "--locked", "--package", "writ-cli", "--test", "suite", "--", "--nocapture", TESTS];
    let program = Program::cargo(&arguments)
        .directory(&workspace_root()?)
        .env("WRIT_FLEET_SEED", seed.to_string())
        .env("WRIT_FLEET_KILLS", kills.to_string());
    // Where no test has this name, none fails either.
    let mut held = false;
    program.lines(|line| {
        println!("{line}");
        held |= line.starts_with("test result: ok. ") && !line.starts_with("test result: ok. 0 passed");
    })?;
    if !held {
        println!("seed {seed}, {kills} kills: `--seed` repeats them");
        return Ok(ExitCode::from(VIOLATED));
    }
    println!("the money that moved is that of the ledger, and each case had one holder at every moment");
    Ok(ExitCode::SUCCESS)
}
