//! The surroundings of a command: variables, current folder, standard streams, orders to stop, the way an engine is started. The
//! process hands in its own; a test hands in others, and runs many commands in one process.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io::{self, IsTerminal as _, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use writ_types::error::Report;

use crate::env::Env;
use crate::failure::Failure;
use crate::log::LogScope;

/// Everything that a command uses outside of its arguments and its home.
#[derive(Clone, Debug)]
pub struct CommandHost {
    /// The variables.
    pub env: Env,
    /// The folder that relative paths begin at; empty: the current one of the process.
    pub folder: PathBuf,
    /// The standard streams.
    pub streams: Streams,
    /// The source of orders to stop.
    pub stops: StopSource,
    /// Starts the engine of a home for the commands that need one.
    pub engines: Arc<dyn EngineLauncher>,
    /// The threads with events that a command logs.
    pub log: LogScope,
}

/// The standard streams.
#[derive(Clone, Debug)]
pub struct Streams {
    /// Standard input.
    pub input: InputStream,
    /// Standard output.
    pub output: OutputStream,
    /// Standard error.
    pub errors: OutputStream,
}

impl Streams {
    /// Returns true if a person uses standard input and standard error.
    pub(crate) fn is_interactive(&self) -> bool {
        // Questions go to standard error, so that output can be redirected.
        self.input.is_terminal() && self.errors.is_terminal()
    }
}

/// A stream that is read.
#[derive(Clone, Debug)]
pub enum InputStream {
    /// Standard input of the process.
    Process,
    /// These bytes, then the end.
    Bytes(Arc<Mutex<VecDeque<u8>>>),
}

impl InputStream {
    /// Returns a stream of these bytes.
    pub fn of_bytes(bytes: &[u8]) -> Self {
        Self::Bytes(Arc::new(Mutex::new(bytes.iter().copied().collect())))
    }

    pub(crate) fn is_terminal(&self) -> bool {
        match self {
            Self::Process => io::stdin().is_terminal(),
            Self::Bytes(_) => false,
        }
    }
}

impl Read for InputStream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Process => io::stdin().lock().read(into),
            Self::Bytes(bytes) => lock(bytes).read(into),
        }
    }
}

/// A stream that is written.
#[derive(Clone)]
pub enum OutputStream {
    /// Standard output of the process.
    Stdout,
    /// Standard error of the process.
    Stderr,
    /// Another writer, which is no terminal.
    Writer(Arc<Mutex<dyn Write + Send>>),
}

impl OutputStream {
    pub(crate) fn is_terminal(&self) -> bool {
        match self {
            Self::Stdout => io::stdout().is_terminal(),
            Self::Stderr => io::stderr().is_terminal(),
            Self::Writer(_) => false,
        }
    }
}

/// The variant alone: a writer has no other name.
impl fmt::Debug for OutputStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stdout => "Stdout",
            Self::Stderr => "Stderr",
            Self::Writer(_) => "Writer",
        })
    }
}

impl Write for OutputStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Stdout => io::stdout().lock().write(bytes),
            Self::Stderr => io::stderr().lock().write(bytes),
            Self::Writer(writer) => lock(writer).write(bytes),
        }
    }

    /// Writes all of it under one lock, so that lines of several threads do not mix.
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Stdout => io::stdout().lock().write_all(bytes),
            Self::Stderr => io::stderr().lock().write_all(bytes),
            Self::Writer(writer) => lock(writer).write_all(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Stdout => io::stdout().lock().flush(),
            Self::Stderr => io::stderr().lock().flush(),
            Self::Writer(writer) => lock(writer).flush(),
        }
    }
}

fn lock<T: ?Sized>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    // Bytes that a thread was writing when it ended are no reason to write no others.
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The source of orders to stop.
#[derive(Clone, Debug)]
pub enum StopSource {
    /// Signals to the process: SIGINT ends a command, SIGINT and SIGTERM an engine.
    Signals,
    /// The cancellation of a token ends an engine; a command ends with its work alone.
    Token(CancellationToken),
}

impl StopSource {
    /// Begins to listen for what ends an engine: from then on a signal ends nothing half-way.
    ///
    /// # Errors
    ///
    /// If signals cannot be listened for.
    pub(crate) fn listen_engine(&self) -> Result<EngineStops, Failure> {
        Ok(match self {
            Self::Signals => EngineStops::Signals {
                terminate: listen_for(SignalKind::terminate())?,
                interrupt: listen_for(SignalKind::interrupt())?,
            },
            Self::Token(token) => EngineStops::Token(token.clone()),
        })
    }

    /// Begins to listen for Ctrl-C.
    ///
    /// # Errors
    ///
    /// If signals cannot be listened for.
    pub(crate) fn listen_interrupts(&self) -> Result<Interrupts, Failure> {
        Ok(Interrupts(match self {
            Self::Signals => Some(listen_for(SignalKind::interrupt())?),
            Self::Token(_) => None,
        }))
    }
}

fn listen_for(kind: SignalKind) -> Result<Signal, Failure> {
    signal(kind).map_err(|error| Failure::internal_error("listening for signals", error))
}

/// The orders that end an engine.
#[derive(Debug)]
pub(crate) enum EngineStops {
    Signals { terminate: Signal, interrupt: Signal },
    Token(CancellationToken),
}

impl EngineStops {
    /// Waits for the next order.
    pub(crate) async fn stopped(&mut self) {
        match self {
            Self::Signals { terminate, interrupt } => {
                tokio::select! {
                    _ = terminate.recv() => {}
                    _ = interrupt.recv() => {}
                }
            }
            Self::Token(token) => token.cancelled().await,
        }
    }
}

/// The presses of Ctrl-C.
#[derive(Debug)]
pub(crate) struct Interrupts(Option<Signal>);

impl Interrupts {
    /// Waits for the next press.
    pub(crate) async fn pressed(&mut self) {
        match &mut self.0 {
            Some(signal) => {
                signal.recv().await;
            }
            None => std::future::pending().await,
        }
    }
}

/// The start of an engine by a command.
#[derive(Debug)]
pub struct EngineStart<'a> {
    /// The arguments, without the program's name.
    pub args: &'a [String],
    /// The variables, and no others.
    pub env: &'a BTreeMap<String, String>,
    /// The file that takes what the engine prints.
    pub output: &'a Path,
}

/// Starts engines that outlive the command.
pub trait EngineLauncher: fmt::Debug + Send + Sync {
    /// Starts one; it need not be ready.
    ///
    /// # Errors
    ///
    /// If it cannot be started.
    fn launch(&self, start: &EngineStart<'_>) -> Result<Box<dyn LaunchedEngine>, Box<Report>>;
}

/// An engine that was started.
pub trait LaunchedEngine: Send {
    /// Returns its exit code; `None`: it runs.
    fn exit_code(&mut self) -> Option<i32>;
}
