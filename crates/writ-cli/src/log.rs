//! Logging: warnings to standard error; the engine writes JSON lines to `logs/writ.jsonl` as well.
//!
//! Nothing of a prompt, a reply or a key is logged above `debug`: that is the promise of whoever logs.

use std::io;
use std::path::Path;
use std::sync::Mutex;

use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer as _, filter::Targets};

use crate::args::Global;
use crate::config::LogConfig;
use rotate::Rotating;

mod rotate;

/// The file that the engine writes to, below `logs/`.
pub(crate) const FILE: &str = "writ.jsonl";

/// What is told on standard error.
pub(crate) const fn level(global: &Global) -> LevelFilter {
    match (global.quiet, global.verbose) {
        (true, _) => LevelFilter::ERROR,
        (false, 0) => LevelFilter::WARN,
        (false, 1) => LevelFilter::INFO,
        (false, _) => LevelFilter::DEBUG,
    }
}

/// Logs to standard error. Libraries stay at `warn`: their debug output may hold what is private.
pub(crate) fn to_stderr(level: LevelFilter) {
    let layer = fmt::layer().with_writer(io::stderr).without_time().with_filter(ours(level));
    // Fails only where a subscriber is set already, as by a test.
    let _set = tracing_subscriber::registry().with(layer).try_init();
}

/// Logs to standard error and, as JSON lines in UTC, to the engine's file.
///
/// # Errors
///
/// If the file cannot be opened.
pub(crate) fn to_file(level: LevelFilter, folder: &Path, config: &LogConfig) -> io::Result<()> {
    let file = Rotating::open(folder, FILE, config.max_bytes, config.keep)?;
    let in_file = config.level.parse().unwrap_or(LevelFilter::INFO);
    let json =
        fmt::layer().json().flatten_event(true).with_writer(Mutex::new(file)).with_filter(ours(in_file));
    let plain = fmt::layer().with_writer(io::stderr).without_time().with_filter(ours(level));
    let _set = tracing_subscriber::registry().with(json).with(plain).try_init();
    Ok(())
}

fn ours(level: LevelFilter) -> Targets {
    let libraries = level.min(LevelFilter::WARN);
    Targets::new().with_default(libraries).with_target("writ", level)
}
