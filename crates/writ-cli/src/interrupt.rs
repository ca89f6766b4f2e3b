//! Ctrl-C: ends a command with code 130 and a terminal that shows what is typed.

use tokio::runtime::Builder;
use tokio::sync::oneshot;

use crate::failure::Failure;
use crate::terminal::Settings;

/// The stack of the threads that drive turns, in bytes: twice what Rust gives. The evaluator of rules refuses to judge on
/// the last 100 KiB of one, and a call that starts a server under an approval goes deep. Only what is used is backed by
/// memory.
pub(crate) const STACK_BYTES: usize = 4 * 1024 * 1024;

/// Runs a command in a thread of its own until it ends or Ctrl-C is pressed; in that case the thread ends
/// with the process.
pub(crate) fn or_done(work: impl FnOnce() -> Result<(), Failure> + Send + 'static) -> Result<(), Failure> {
    // Saved before the command can hide typing.
    let settings = Settings::save_settings();
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::internal_error("starting the runtime", error))?;
    let (done, result) = oneshot::channel();
    std::thread::Builder::new()
        .name("command".into())
        .stack_size(STACK_BYTES)
        // Commands run in a thread of their own: the main thread must stay free for Ctrl-C.
        .spawn(move || {
            // The receiver is dropped after Ctrl-C: the result is not needed then.
            let _late = done.send(work());
        })
        .map_err(|error| Failure::internal_error("starting a thread", error))?;
    runtime.block_on(async {
        tokio::select! {
            result = result => result.unwrap_or_else(|_| Err(Failure::internal_error("the command", "it panicked"))),
            pressed = tokio::signal::ctrl_c() => {
                settings.restore_settings();
                match pressed {
                    Ok(()) => Err(Failure::Interrupted),
                    Err(error) => Err(Failure::internal_error("waiting for signals", error)),
                }
            }
        }
    })
}

/// Runs a future to its end on this thread.
pub(crate) fn block_on<T>(future: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::internal_error("starting the runtime", error))?
        .block_on(future)
}
