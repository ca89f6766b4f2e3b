//! The helper of the sandbox for engines that run inside a test's own process.

use std::process::ExitCode;

fn main() -> ExitCode {
    // Started by hand, it is no helper of any sandbox.
    writ_sandbox::init_main().unwrap_or(ExitCode::FAILURE)
}
