//! Logging: warnings to standard error; the engine writes JSON lines to `logs/writ.jsonl` as well, or with `log.stderr = false` alone, and gives
//! the spans of turns to a collector if its owner has named one.
//!
//! Nothing of a prompt, a reply or a key is logged above `debug`: every caller of the log must ensure this.

use std::cell::RefCell;
use std::io;
use std::path::Path;

use tracing::Dispatch;
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::{Layer, fmt};
use writ_inspect::redact::Redactor;
use writ_telemetry::collect::SpanCollector;

use crate::args::Global;
use crate::config::LogConfig;
use crate::host::CommandHost;
use bystander::Bystander;
use lines::LogLines;
use rotate::Rotating;

mod rotate;

mod bystander;

mod lines;

/// The file that the engine writes to, below `logs/`.
pub(crate) const FILE: &str = "writ.jsonl";

/// Returns the level of the log on standard error.
pub(crate) const fn stderr_level(global: &Global) -> LevelFilter {
    match (global.quiet, global.verbose) {
        (true, _) => LevelFilter::ERROR,
        (false, 0) => LevelFilter::WARN,
        (false, 1) => LevelFilter::INFO,
        (false, _) => LevelFilter::DEBUG,
    }
}

/// The threads with events that a command logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogScope {
    /// All threads of the process, which runs this command alone.
    Process,
    /// The thread that runs the command, and those that it starts: other commands run in the same process.
    OwnThreads,
}

impl LogScope {
    /// Begins the log of a run; it ends when the value is dropped.
    pub(crate) fn begin_run(self) -> LogEnd {
        LogEnd(self)
    }

    fn begin_log(self, log: Dispatch) {
        match self {
            // Fails only where a subscriber is set already, as by a test.
            Self::Process => drop(tracing::dispatcher::set_global_default(log)),
            Self::OwnThreads => enter_thread(Some(log)),
        }
    }
}

/// Ends the log of a run on this thread.
#[derive(Debug)]
pub(crate) struct LogEnd(LogScope);

impl Drop for LogEnd {
    fn drop(&mut self) {
        match self.0 {
            LogScope::Process => {}
            LogScope::OwnThreads => drop(OWN_LOG.take()),
        }
    }
}

thread_local! {
    /// The log of this thread, if it is not that of the process.
    static OWN_LOG: RefCell<Option<(Dispatch, DefaultGuard)>> = const { RefCell::new(None) };
}

/// Returns the log of this thread, for threads that it starts; `None`: it is that of the process.
pub(crate) fn thread_log() -> Option<Dispatch> {
    OWN_LOG.with_borrow(|own| own.as_ref().map(|(log, _)| log.clone()))
}

/// Makes this thread log there, until it ends.
pub(crate) fn enter_thread(log: Option<Dispatch>) {
    // The former one is ended first: guards are dropped in the reverse order in which they were made.
    drop(OWN_LOG.take());
    if let Some(log) = log {
        let guard = tracing::dispatcher::set_default(&log);
        OWN_LOG.set(Some((log, guard)));
    }
}

/// Logs to standard error. Libraries stay at `warn`: their debug output may hold what is private.
pub(crate) fn to_stderr(level: LevelFilter, host: &CommandHost) {
    let stream = host.streams.errors.clone();
    let layer = fmt::layer().with_writer(move || stream.clone()).without_time();
    let log = tracing_subscriber::registry().with(layer.with_filter(own_targets(level)));
    host.log.begin_log(Dispatch::new(log));
}

/// The log file of an engine.
#[derive(Debug)]
pub(crate) struct LogTarget<'a> {
    /// Its folder.
    pub(crate) folder: &'a Path,
    /// Its level and size.
    pub(crate) config: &'a LogConfig,
    /// The id of the run, which each line names.
    pub(crate) run: String,
}

/// Logs, as JSON lines in UTC, to the engine's file and, unless the settings say otherwise, to standard error; `spans` takes the spans of turns.
/// Before the process ends, standard error must [end](Bystander::end_writer).
///
/// # Errors
///
/// If the file cannot be opened.
pub(crate) fn to_file(
    level: LevelFilter,
    target: LogTarget<'_>,
    spans: Option<SpanCollector>,
    (redactor, host): (&Redactor, &CommandHost),
) -> io::Result<Bystander> {
    let config = target.config;
    let file = Rotating::open_log(target.folder, FILE, config.max_bytes, config.keep)?;
    let in_file = config.level.parse().unwrap_or(LevelFilter::INFO);
    // The file gets JSON at its own level, standard error plain lines at the level of the flags.
    let json = LogLines::new(file, target.run, redactor.clone()).with_filter(own_targets(in_file));
    let stream = host.streams.errors.clone();
    let is_terminal = stream.is_terminal();
    let bystander = Bystander::start_writer(Masked { stream, redactor: redactor.clone() });
    let plain = fmt::layer().with_writer(bystander.clone()).without_time();
    let plain = config.stderr.then(|| plain.with_ansi(is_terminal).with_filter(own_targets(level)));
    let spans = spans.map(SpanCollector::layer);
    host.log.begin_log(Dispatch::new(tracing_subscriber::registry().with(json).with(plain).with(spans)));
    Ok(bystander)
}

/// Masks secrets in the lines that a stream is given: each comes as a whole.
struct Masked<S> {
    stream: S,
    redactor: Redactor,
}

impl<S: io::Write> io::Write for Masked<S> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        // Masked as text: a log line is always UTF-8 by then.
        let text = String::from_utf8_lossy(line);
        self.stream.write_all(self.redactor.mask_text(&text).as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

fn own_targets(level: LevelFilter) -> Targets {
    // Libraries may log URLs and headers below warnings.
    let libraries = level.min(LevelFilter::WARN);
    Targets::new().with_default(libraries).with_target("writ", level)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The size above which a file of the test is set aside.
    const MAX_BYTES: u64 = 4_096;
    /// Enough lines for many files.
    const LINES: u64 = 400;

    /// What is left of numbered lines, oldest first, and in how many files.
    fn logged(keep: u32) -> (Vec<u64>, usize) {
        let dir = tempfile::tempdir().expect("temp dir");
        let file = Rotating::open_log(dir.path(), FILE, MAX_BYTES, keep).expect("opens");
        let subscriber =
            tracing_subscriber::registry().with(LogLines::new(file, "run".to_owned(), Redactor::default()));
        tracing::subscriber::with_default(subscriber, || {
            for number in 0..LINES {
                tracing::warn!(number, text = "a\nb \"c\" \u{1b}[2J", "something of several\nlines");
            }
        });
        let mut files: Vec<_> = std::fs::read_dir(dir.path())
            .expect("reads")
            .map(|entry| entry.expect("an entry").path())
            .collect();
        let age = |path: &Path| path.extension().and_then(|end| end.to_str()?.parse::<u32>().ok());
        files.sort_by_key(|path| std::cmp::Reverse(age(path)));
        let mut numbers = Vec::new();
        for path in &files {
            let text = std::fs::read_to_string(path).expect("UTF-8");
            assert!(
                u64::try_from(text.len()).is_ok_and(|bytes| bytes <= MAX_BYTES) && text.ends_with('\n'),
                "{}",
                path.display()
            );
            for line in text.lines() {
                let line: serde_json::Value = serde_json::from_str(line).expect("each line is JSON");
                assert_eq!(line["level"], "WARN");
                numbers.push(line["number"].as_u64().expect("the number"));
            }
        }
        (numbers, files.len())
    }

    /// Rows: WIN-019
    #[test]
    fn a_log_that_is_full_goes_on_in_a_new_file_and_no_line_is_lost_or_split() {
        let (numbers, files) = logged(100);
        assert_eq!(numbers, (0..LINES).collect::<Vec<_>>());
        assert!((10..100).contains(&files), "{files}");
        let (numbers, files) = logged(3);
        assert_eq!(files, 3, "no more than are to be kept");
        assert_eq!(numbers.last(), Some(&(LINES - 1)));
        assert!(numbers.len() > 10 && numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "{numbers:?}");
    }
}
