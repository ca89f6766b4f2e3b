//! A command as it was wished, made ready to be run; and what came of it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use writ_types::action::{Exec, ExecProfile};

use super::init::WORK;
use super::run::Finished;
use super::spec::{Access, Event, Spec, Walls};
use crate::error::SandboxError;
use crate::exec::{Ending, ExecOptions, ExecResult, Limit, Output};
use crate::status::Rung;

/// The most bytes that arguments and environment may have together: half of what Linux takes by default.
const ARGUMENTS_MAX: usize = 1024 * 1024;
/// The most bytes of standard input.
const STDIN_MAX: usize = 16 * 1024 * 1024;

/// A job's folders on the host. On the second rung programs see them where they are.
pub(crate) struct Places {
    pub(crate) work: PathBuf,
    pub(crate) home: PathBuf,
    pub(crate) scratch: PathBuf,
    /// Whether they are made anew for this job.
    pub(crate) fresh: bool,
}

impl Places {
    /// Where a path that is meant as on the first rung really is.
    pub(crate) fn resolve(&self, walls: Walls, inside: &str) -> PathBuf {
        let inside = Path::new(inside);
        if walls == Walls::Full {
            return inside.to_owned();
        }
        match (inside.strip_prefix(WORK), inside.strip_prefix("/tmp")) {
            (Ok(below), _) => self.work.join(below),
            (_, Ok(below)) => self.scratch.join(below),
            (Err(_), Err(_)) => inside.to_owned(),
        }
    }

    /// Names what a job of the second rung may use of the host.
    pub(crate) fn open_up(&self, access: Access, spec: &mut Spec) {
        let order = &mut spec.order;
        order.readable.extend(spec.base.binds.iter().cloned());
        let list =
            if access == Access::Read && !self.fresh { &mut order.readable } else { &mut order.writable };
        list.push(self.work.clone());
        order.writable.push(self.scratch.clone());
    }
}

/// Whether what a program changes is lost when it ends.
pub(crate) const fn is_lost(profile: ExecProfile) -> bool {
    match profile {
        ExecProfile::Verification | ExecProfile::Gate => true,
        ExecProfile::Task | ExecProfile::Server => false,
    }
}

/// Whether a command can be started as it is written.
pub(crate) fn check(exec: &Exec) -> Result<(), SandboxError> {
    let bad = |why: &str| Err(SandboxError::BadCommand { why: why.to_owned() });
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
    if !exec.hosts.is_empty() && is_lost(exec.profile) {
        return bad("a verification or a gate has no network");
    }
    if exec.profile == ExecProfile::Verification && !exec.env.is_empty() {
        return bad("a verification gets PATH and HOME only");
    }
    Ok(())
}

/// Whether a command that names hosts can be given a way out, here and by this caller.
pub(crate) fn check_network(exec: &Exec, options: &ExecOptions, walls: Walls) -> Result<(), SandboxError> {
    let bad = |why: &str| Err(SandboxError::BadCommand { why: why.to_owned() });
    if exec.hosts.is_empty() {
        return Ok(());
    }
    match (walls, &options.network) {
        (Walls::Full, Some(_)) => Ok(()),
        (Walls::Full, None) => bad("this sandbox has no network, and it asks for some"),
        (Walls::Reduced, _) => bad("without namespaces there is no network, and it asks for some"),
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

/// What a finished job means for the caller.
pub(crate) fn result(finished: Finished, rung: Rung) -> Result<ExecResult, SandboxError> {
    let ending = match (finished.limit, finished.event) {
        (Some(limit), _) => Ending::Killed { limit },
        (None, Event::Exited(code)) => Ending::Exited { code },
        (None, Event::Signalled(signal)) => Ending::Signalled { signal },
        (None, Event::ExecFailed(libc::ENOENT | libc::ENOTDIR)) => Ending::NotFound,
        (None, Event::ExecFailed(_)) => Ending::NotExecutable,
        (None, Event::SetupFailed(fault)) if fault.stage == "working directory" => {
            return Err(SandboxError::BadCommand { why: format!("working directory: {}", fault.why) });
        }
        (None, Event::SetupFailed(fault)) => {
            return Err(SandboxError::Setup { stage: fault.stage, why: fault.why });
        }
    };
    Ok(ExecResult {
        ending,
        stdout: finished.stdout.output(),
        stderr: finished.stderr.output(),
        duration_ms: u64::try_from(finished.duration.as_millis()).unwrap_or(u64::MAX),
        rung,
    })
}
