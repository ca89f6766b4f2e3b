//! Tasks that are packages of their own, compiled when they are called: what they need would make every other task wait.

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use task_process::Program;

use crate::workspace;

/// Arguments for the package, passed on as they are.
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Arguments {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "OPTIONS")]
    arguments: Vec<String>,
}

/// Builds and runs a package, with `first` before the arguments; ends as it ends.
///
/// # Errors
///
/// If cargo cannot be run, or a signal ended it.
pub(crate) fn run(package: &str, first: &[&str], options: &Arguments) -> Result<ExitCode> {
    let mut arguments = vec!["run", "--quiet", "--locked", "--package", package, "--"];
    arguments.extend(first);
    arguments.extend(options.arguments.iter().map(String::as_str));
    let code = Program::cargo(&arguments).directory(&workspace::root()?).exit_code()?;
    Ok(ExitCode::from(u8::try_from(code).with_context(|| format!("{package} ended with {code}"))?))
}
