//! Ctrl-C: ends a command with code 130 and a terminal that shows what is typed.

use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

use crate::failure::Failure;
use crate::host::StopSource;
use crate::log;
use crate::terminal::Settings;

/// The stack of the threads that drive turns, in bytes: twice what Rust gives. The evaluator of rules refuses to judge on
/// the last 100 KiB of one, and a call that starts a server under an approval goes deep. Only what is used is backed by
/// memory.
pub(crate) const STACK_BYTES: usize = 4 * 1024 * 1024;

/// Runs a command in a thread of its own until it ends or Ctrl-C is pressed; in that case the thread ends
/// with the process.
pub(crate) fn or_done(
    stops: &StopSource,
    work: impl FnOnce() -> Result<(), Failure> + Send + 'static,
) -> Result<(), Failure> {
    // Saved before the command can hide typing.
    let settings = Settings::save_settings();
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::internal_error("starting the runtime", error))?;
    let mut interrupts = {
        let _inside = runtime.enter();
        stops.listen_interrupts()?
    };
    let (done, result) = oneshot::channel();
    let log = log::thread_log();
    std::thread::Builder::new()
        .name("command".into())
        .stack_size(STACK_BYTES)
        // Commands run in a thread of their own: the main thread must stay free for Ctrl-C.
        .spawn(move || {
            log::enter_thread(log);
            // The receiver is dropped after Ctrl-C: the result is not needed then.
            let _late = done.send(work());
        })
        .map_err(|error| Failure::internal_error("starting a thread", error))?;
    runtime.block_on(async {
        tokio::select! {
            result = result => result.unwrap_or_else(|_| Err(Failure::internal_error("the command", "it panicked"))),
            () = interrupts.pressed() => {
                settings.restore_settings();
                Err(Failure::Interrupted)
            }
        }
    })
}

/// Makes a runtime with many threads, which log where this thread does.
///
/// # Errors
///
/// If the system has no room for it.
pub(crate) fn threaded_runtime() -> Result<Runtime, Failure> {
    let mut builder = Builder::new_multi_thread();
    builder.thread_stack_size(STACK_BYTES);
    build_runtime(builder)
}

fn build_runtime(mut builder: Builder) -> Result<Runtime, Failure> {
    if let Some(log) = log::thread_log() {
        builder.on_thread_start(move || log::enter_thread(Some(log.clone())));
    }
    builder.enable_all().build().map_err(|error| Failure::internal_error("starting the async runtime", error))
}

/// Runs a future to its end on this thread.
pub(crate) fn block_on<T>(future: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    build_runtime(Builder::new_current_thread())?.block_on(future)
}
