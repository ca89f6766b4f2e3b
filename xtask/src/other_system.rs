//! Compiles what other systems than Linux get, on Linux: with the cfg `writ_other_system`.
//!
//! No other system's standard library is installed here, and C libraries would need a compiler for it. So cargo runs this
//! program in the place of `rustc` for the crates of the workspace, and the cfg is added on the way: the packages of
//! others are those that clippy and the documentation have checked already. Dependencies for Linux alone are left out of
//! the manifests under the same cfg, so code that uses one is an error.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};

use task_process::Program;

/// The variable that makes this program a wrapper of `rustc`.
const VARIABLE: &str = "WRIT_OTHER_SYSTEM";

/// Checks the workspace as another system would compile it. Returns true if that went well.
pub(crate) fn check(root: &Path) -> Result<bool> {
    let wrapper = std::env::current_exe().context("cannot find this program")?;
    Program::cargo(&["check", "--locked", "--workspace"])
        .env("RUSTC_WORKSPACE_WRAPPER", wrapper)
        .env(VARIABLE, "1")
        .directory(root)
        .status()
}

/// Runs `rustc` with the cfg, if cargo has started this program in its place.
pub(crate) fn wrapped() -> Option<ExitCode> {
    task_process::variable(VARIABLE)?;
    let mut arguments = std::env::args_os().skip(1);
    let mut rustc =
        Program::new(PathBuf::from(arguments.next()?), &["--cfg", "writ_other_system", "-Dwarnings"]);
    for argument in arguments {
        rustc = rustc.argument(PathBuf::from(argument));
    }
    Some(match rustc.status() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) | Err(_) => ExitCode::FAILURE,
    })
}
