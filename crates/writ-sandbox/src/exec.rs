//! The results of programs, and the options of a run.

use std::os::fd::OwnedFd;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::status::Rung;

/// The limit at which a program was ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// The wall-clock limit.
    Time,
    /// The memory limit.
    Memory,
    /// The limit on processes, where no control group refuses them one by one.
    Processes,
    /// The overlay and the home grew above their limit.
    Disk,
    /// It wrote endlessly.
    Output,
    /// The caller cancelled it.
    Cancelled,
}

impl Limit {
    /// The name used in records and on screens.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Time => "time",
            Self::Memory => "memory",
            Self::Processes => "processes",
            Self::Disk => "disk",
            Self::Output => "output",
            Self::Cancelled => "cancelled",
        }
    }
}

/// The end of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ending", rename_all = "snake_case")]
pub enum Ending {
    /// The program ended on its own.
    Exited {
        /// Its exit code.
        code: i32,
    },
    /// By a signal that the sandbox did not send.
    Signalled {
        /// The signal's number.
        signal: i32,
    },
    /// The sandbox killed it and everything that it had started.
    Killed {
        /// The limit that it hit.
        limit: Limit,
    },
    /// There is no such program in the sandbox.
    NotFound,
    /// The file is there and cannot be executed.
    NotExecutable,
}

/// The output of one stream.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Output {
    /// The beginning, as text; invalid UTF-8 is replaced.
    pub text: String,
    /// Everything that was written, in bytes.
    pub bytes: u64,
    /// True if `text` leaves something out.
    pub truncated: bool,
}

/// The result of a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecResult {
    /// The end of the program.
    pub ending: Ending,
    /// Standard output.
    pub stdout: Output,
    /// Standard error.
    pub stderr: Output,
    /// The time that it ran, in milliseconds, with making and removing the sandbox.
    pub duration_ms: u64,
    /// The rung on which it was confined.
    pub rung: Rung,
}

impl ExecResult {
    /// The exit code as a shell would tell it: 127 not found, 126 not executable, 124 out of time,
    /// 128 + signal otherwise.
    pub const fn exit_code(&self) -> i32 {
        match self.ending {
            Ending::Exited { code } => code,
            Ending::Signalled { signal } => 128_i32.saturating_add(signal),
            Ending::Killed { limit: Limit::Time } => 124,
            Ending::Killed { .. } => 137,
            Ending::NotFound => 127,
            Ending::NotExecutable => 126,
        }
    }

    /// Returns true if the wall-clock limit ended it.
    pub const fn timed_out(&self) -> bool {
        matches!(self.ending, Ending::Killed { limit: Limit::Time })
    }

    /// Returns the time that it ran.
    pub const fn run_time(&self) -> Duration {
        Duration::from_millis(self.duration_ms)
    }
}

/// The stream that a piece of output came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// A piece of output, while the program runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The stream.
    pub stream: Stream,
    /// The bytes; a character may be cut in two between pieces.
    pub bytes: Vec<u8>,
}

/// The port inside on which a program's way out listens, on 127.0.0.1.
pub const PROXY_PORT: u16 = 3128;

/// A way out of a sandbox: a TCP socket that listens on 127.0.0.1 in its empty network. Its holder accepts the
/// program's connections; it identifies the sandbox, and no other program can reach it. Dropping it closes
/// that way.
#[derive(Debug)]
pub struct Listener {
    socket: OwnedFd,
    port: u16,
}

impl Listener {
    #[cfg(all(target_os = "linux", not(writ_other_system)))]
    pub(crate) const fn new(socket: OwnedFd, port: u16) -> Self {
        Self { socket, port }
    }

    /// Returns the port that it listens on inside.
    pub const fn port(&self) -> u16 {
        self.port
    }
}

impl From<Listener> for OwnedFd {
    fn from(listener: Listener) -> Self {
        listener.socket
    }
}

/// The times of a program that is cancelled: it may end by itself, then at SIGTERM, and is killed after that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndTimes {
    /// From the cancellation to SIGTERM.
    pub grace: Duration,
    /// From SIGTERM to SIGKILL.
    pub kill: Duration,
}

/// The options of a run.
#[derive(Clone, Debug, Default)]
pub struct ExecOptions {
    /// Cancelling it ends the program and everything that it started, within its times. Dropping the future kills it.
    pub cancel: CancellationToken,
    /// The times of a program that is cancelled. By default it is killed at once.
    pub end: EndTimes,
    /// Cancelling it kills the program at once, also within its times.
    pub kill: CancellationToken,
    /// The channel for output while the program runs. A full channel drops pieces: the program never waits
    /// for it. Only the stored beginning ([`output_max`](crate::config::SandboxConfig::output_max)) is sent.
    pub output: Option<mpsc::Sender<Piece>>,
    /// The channel for the listener of a program with network; see [`Listener`]. Given and used when, and
    /// only when, the command names hosts.
    pub network: Option<mpsc::Sender<Listener>>,
    /// The extra settings of a program with a way out.
    pub way_out: WayOut,
}

/// The extra settings of a program with a way out: they count where the command names hosts, and nowhere
/// else.
#[derive(Clone, Debug, Default)]
pub struct WayOut {
    /// A certificate authority that it is to trust besides the system's, in PEM; `None`: none.
    pub certificate: Option<String>,
    /// More variables; a command's own are stronger.
    pub variables: Vec<(String, String)>,
}
