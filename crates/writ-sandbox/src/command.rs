//! Checks of a command before it is run, whichever runner it has.

use std::time::Duration;

use writ_types::action::{Exec, ExecProfile};

use crate::error::SandboxError;
use crate::exec::{Ending, ExecOptions, ExecResult, Limit, Output};
use crate::status::Rung;

/// The most bytes that arguments and environment may have together: half of what Linux takes by default.
const ARGUMENTS_MAX: usize = 1024 * 1024;
/// The most bytes of standard input.
const STDIN_MAX: usize = 16 * 1024 * 1024;

/// Returns true if the changes of a program end with it.
pub(crate) const fn is_scratch(profile: ExecProfile) -> bool {
    match profile {
        ExecProfile::Verification | ExecProfile::Gate => true,
        ExecProfile::Task | ExecProfile::Server => false,
    }
}

/// Checks that a command can be started as it is written.
pub(crate) fn check_command(exec: &Exec) -> Result<(), SandboxError> {
    let bad = |why: &str| Err(SandboxError::BadCommand { why: why.to_owned() });
    // Everything that becomes an argument of `execve` is a C string.
    let texts = exec.argv.iter().chain(exec.env.keys()).chain(exec.env.values());
    let mut bytes = 0_usize;
    for text in texts.chain([&exec.cwd]) {
        if text.contains('\0') {
            return bad("it holds a zero byte");
        }
        bytes = bytes.saturating_add(text.len() + 1);
    }
    if bytes > ARGUMENTS_MAX {
        return bad("its arguments are too long");
    }
    if exec.argv.first().is_none_or(String::is_empty) {
        return bad("it names no program");
    }
    if !exec.cwd.starts_with('/') {
        return bad("its working directory is not absolute");
    }
    if exec.env.keys().any(|name| name.is_empty() || name.contains('=')) {
        return bad("a variable has no proper name");
    }
    if exec.stdin.as_ref().is_some_and(|text| text.len() > STDIN_MAX) {
        return bad("its input is too long");
    }
    if !exec.hosts.is_empty() && is_scratch(exec.profile) {
        return bad("a verification or a gate has no network");
    }
    if exec.profile == ExecProfile::Verification && !exec.env.is_empty() {
        return bad("a verification gets PATH and HOME only");
    }
    Ok(())
}

/// Checks that a command that names hosts can be given a way out, here and by this caller.
pub(crate) fn check_network(exec: &Exec, options: &ExecOptions, rung: Rung) -> Result<(), SandboxError> {
    let bad = |why: &str| Err(SandboxError::BadCommand { why: why.to_owned() });
    if exec.hosts.is_empty() {
        return Ok(());
    }
    match (rung, &options.network) {
        (Rung::Full, Some(_)) => Ok(()),
        (Rung::Full, None) => bad("this sandbox has no network, and it asks for some"),
        (Rung::Reduced | Rung::Refuse, _) => {
            bad("without namespaces there is no network, and it asks for some")
        }
    }
}

/// A program that was stopped while it waited for the work folder.
pub(crate) fn never_run(waited: Duration, rung: Rung) -> ExecResult {
    ExecResult {
        ending: Ending::Killed { limit: Limit::Cancelled },
        stdout: Output::default(),
        stderr: Output::default(),
        duration_ms: u64::try_from(waited.as_millis()).unwrap_or(u64::MAX),
        rung,
    }
}
