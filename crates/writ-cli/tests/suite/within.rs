//! Commands and engines in the test's own process: the same command line, the same files and sockets, the same sandbox. Variables,
//! current folder, streams and orders to stop are those of the run.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Output};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;

use tokio_util::sync::CancellationToken;
use writ_cli::{
    CommandHost, EngineLauncher, EngineStart, Env, InputStream, LaunchedEngine, LogScope, OutputStream,
    StopSource, Streams, run_command_line,
};
use writ_types::error::{Exit, Report};

use super::Home;
use super::engine::{Ended, PATIENCE, READY};

/// The stack of the thread that runs a command, in bytes: that of a main thread.
const STACK_BYTES: usize = 8 * 1024 * 1024;
/// The code of a process that has panicked.
const PANICKED: u8 = 101;

/// What a stream has taken so far, and the exit code of its run once it has ended.
#[derive(Debug, Default)]
struct Captured {
    taken: Mutex<Taken>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Taken {
    bytes: Vec<u8>,
    ended: Option<u8>,
}

impl Captured {
    fn stream(self: &Arc<Self>) -> OutputStream {
        OutputStream::Writer(Arc::new(Mutex::new(CapturedWriter(Arc::clone(self)))))
    }

    fn bytes(&self) -> Vec<u8> {
        self.taken.lock().expect("locks").bytes.clone()
    }

    fn end(&self, code: u8) {
        self.taken.lock().expect("locks").ended = Some(code);
        self.changed.notify_all();
    }

    /// Waits until it has taken a text, or its run has ended; whether it has the text.
    fn wait_for(&self, text: &str) -> bool {
        let has = |taken: &Taken| taken.bytes.windows(text.len()).any(|part| part == text.as_bytes());
        let taken = self.taken.lock().expect("locks");
        let waited =
            self.changed.wait_timeout_while(taken, PATIENCE, |taken| taken.ended.is_none() && !has(taken));
        has(&waited.expect("locks").0)
    }

    /// Waits until its run has ended; its exit code.
    fn wait_for_end(&self) -> Option<u8> {
        let taken = self.taken.lock().expect("locks");
        let waited = self.changed.wait_timeout_while(taken, PATIENCE, |taken| taken.ended.is_none());
        waited.expect("locks").0.ended
    }

    fn exit_code(&self) -> Option<u8> {
        self.taken.lock().expect("locks").ended
    }
}

struct CapturedWriter(Arc<Captured>);

impl Write for CapturedWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.taken.lock().expect("locks").bytes.extend_from_slice(bytes);
        self.0.changed.notify_all();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The surroundings of a run.
struct Run {
    args: Vec<String>,
    env: Vec<(String, String)>,
    folder: PathBuf,
    streams: Streams,
    stop: CancellationToken,
    engines: Arc<StartedEngines>,
}

impl Run {
    /// Runs the command line in a thread of its own, which gives its exit code.
    fn start(self) -> JoinHandle<u8> {
        let run = move || {
            let env: Vec<(&str, &str)> =
                self.env.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            let host = CommandHost {
                env: Env::from_pairs(&env),
                folder: self.folder,
                streams: self.streams,
                stops: StopSource::Token(self.stop),
                engines: Arc::new(ThreadLauncher(self.engines)),
                log: LogScope::OwnThreads,
            };
            let name = std::iter::once("writ".to_owned());
            run_command_line(name.chain(self.args).map(OsString::from), host)
        };
        std::thread::Builder::new().stack_size(STACK_BYTES).spawn(run).expect("a thread")
    }
}

/// Runs a command of a home to its end.
pub(super) fn run(home: &Home, engines: &Arc<StartedEngines>, args: &[&str], input: &[u8]) -> Output {
    let (output, errors) = (Arc::<Captured>::default(), Arc::<Captured>::default());
    let run = Run {
        args: args.iter().map(|arg| (*arg).to_owned()).collect(),
        env: home.variables(&[]),
        folder: home.dir.path().to_owned(),
        streams: Streams {
            input: InputStream::of_bytes(input),
            output: output.stream(),
            errors: errors.stream(),
        },
        stop: CancellationToken::new(),
        engines: Arc::clone(engines),
    };
    let code = run.start().join().unwrap_or(PANICKED);
    let status = ExitStatus::from_raw(i32::from(code) << 8);
    Output { status, stdout: output.bytes(), stderr: errors.bytes() }
}

/// Starts an engine whose end `errors` shows, and returns what ends it.
fn start_watched(run: Run, errors: &Arc<Captured>) -> CancellationToken {
    let (stop, watched) = (run.stop.clone(), Arc::clone(errors));
    run.engines.0.lock().expect("locks").push((stop.clone(), Arc::clone(errors)));
    let running = run.start();
    std::thread::spawn(move || watched.end(running.join().unwrap_or(PANICKED)));
    stop
}

/// An engine in a thread of this process.
pub(super) struct WithinEngine {
    stop: CancellationToken,
    errors: Arc<Captured>,
}

impl WithinEngine {
    /// Starts `writ start` and waits until it is ready; if it ends before, how it did.
    pub(super) fn start(
        home: &Home,
        engines: &Arc<StartedEngines>,
        more: &[(&str, &str)],
    ) -> Result<Self, Ended> {
        let errors = Arc::<Captured>::default();
        let run = Run {
            args: vec!["start".to_owned()],
            env: home.variables(more),
            folder: home.dir.path().to_owned(),
            streams: Streams {
                input: InputStream::of_bytes(b""),
                output: Arc::<Captured>::default().stream(),
                errors: errors.stream(),
            },
            stop: CancellationToken::new(),
            engines: Arc::clone(engines),
        };
        let stop = start_watched(run, &errors);
        let mut engine = Self { stop, errors: Arc::clone(&errors) };
        if errors.wait_for(READY) { Ok(engine) } else { Err(engine.wait()) }
    }

    pub(super) fn stop(&self) {
        self.stop.cancel();
    }

    /// Waits for its end.
    pub(super) fn wait(&mut self) -> Ended {
        let code = self.errors.wait_for_end().expect("the engine ends");
        let said = String::from_utf8_lossy(&self.errors.bytes()).into_owned();
        Ended { code: Some(i32::from(code)), signal: None, said }
    }
}

impl Drop for WithinEngine {
    fn drop(&mut self) {
        self.stop();
        // An engine that does not end must not keep a test from ending that has failed already.
        let _code = self.errors.wait_for_end();
    }
}

/// The engines of a home that were started in this process: their orders to stop, and their ends.
#[derive(Debug, Default)]
pub(super) struct StartedEngines(Mutex<Vec<(CancellationToken, Arc<Captured>)>>);

impl StartedEngines {
    /// Ends them all, and waits for their ends.
    pub(super) fn stop_all(&self) {
        let started = std::mem::take(&mut *self.0.lock().expect("locks"));
        started.iter().for_each(|(stop, _)| stop.cancel());
        for (_, errors) in &started {
            assert!(errors.wait_for_end().is_some() || std::thread::panicking(), "an engine does not end");
        }
    }
}

/// Starts engines as threads of this process.
#[derive(Debug)]
struct ThreadLauncher(Arc<StartedEngines>);

impl EngineLauncher for ThreadLauncher {
    fn launch(&self, start: &EngineStart<'_>) -> Result<Box<dyn LaunchedEngine>, Box<Report>> {
        let errors = Arc::<Captured>::default();
        let env: &BTreeMap<String, String> = start.env;
        let run = Run {
            args: start.args.to_vec(),
            env: env.iter().map(|(name, value)| (name.clone(), value.clone())).collect(),
            folder: PathBuf::from("/"),
            streams: Streams {
                input: InputStream::of_bytes(b""),
                output: file_stream(start.output)?,
                errors: file_stream(start.output)?,
            },
            stop: CancellationToken::new(),
            engines: Arc::clone(&self.0),
        };
        // It outlives the command that started it, until its home is dropped.
        start_watched(run, &errors);
        Ok(Box::new(LaunchedThread(errors)))
    }
}

/// Appends to the file of an engine's output.
fn file_stream(path: &Path) -> Result<OutputStream, Box<Report>> {
    let file = File::options().create(true).append(true).open(path);
    let file = file.map_err(|error| Report::new(Exit::Blocked, "host.start", error.to_string()))?;
    Ok(OutputStream::Writer(Arc::new(Mutex::new(file))))
}

/// An engine that a command has started.
struct LaunchedThread(Arc<Captured>);

impl LaunchedEngine for LaunchedThread {
    fn exit_code(&mut self) -> Option<i32> {
        self.0.exit_code().map(i32::from)
    }
}
