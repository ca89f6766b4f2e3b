//! The surroundings that the process hands to its command, and engines as processes of their own.

use std::path::PathBuf;
use std::sync::Arc;

use nix::errno::Errno;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use writ_sandbox::host::spawn_engine;
use writ_types::error::{Exit, Report, ToReport as _};

use crate::env::Env;
use crate::host::{
    CommandHost, EngineLauncher, EngineStart, InputStream, LaunchedEngine, OutputStream, StopSource, Streams,
};
use crate::log::LogScope;

impl CommandHost {
    /// Returns the surroundings of this process; its variables are read now.
    pub fn of_process() -> Self {
        Self {
            env: Env::read_process(),
            folder: PathBuf::new(),
            streams: Streams {
                input: InputStream::Process,
                output: OutputStream::Stdout,
                errors: OutputStream::Stderr,
            },
            stops: StopSource::Signals,
            engines: Arc::new(ProcessLauncher),
            log: LogScope::Process,
        }
    }

    /// Returns the surroundings of this process with other variables.
    #[cfg(test)]
    pub(crate) fn with_env(env: Env) -> Self {
        Self { env, ..Self::of_process() }
    }
}

/// Starts engines as processes of this program.
#[derive(Debug)]
struct ProcessLauncher;

impl EngineLauncher for ProcessLauncher {
    fn launch(&self, start: &EngineStart<'_>) -> Result<Box<dyn LaunchedEngine>, Box<Report>> {
        let process = spawn_engine(start.args, start.env, start.output).map_err(|error| error.report())?;
        let process = i32::try_from(process).map_err(|error| {
            Report::new(Exit::Bug, "cli.bug", "starting the engine failed")
                .with_inside(error.to_string())
                .with_hint("this is a bug in Writ; run it again with -v and report what it says")
        })?;
        Ok(Box::new(EngineProcess(Pid::from_raw(process))))
    }
}

/// An engine in a process of its own.
struct EngineProcess(Pid);

impl LaunchedEngine for EngineProcess {
    fn exit_code(&mut self) -> Option<i32> {
        match waitpid(self.0, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(_, code)) => Some(code),
            Ok(WaitStatus::Signaled(_, signal, _)) => Some(128 + signal as i32),
            Err(Errno::ECHILD) => Some(i32::from(Exit::Bug.code())),
            Ok(_) | Err(_) => None,
        }
    }
}
