//! Waiting with an end for calls that may never return.

use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::Duration;

/// Runs `work` in a thread of its own and waits at most `limit`.
///
/// `None`: it took longer, or ended without a result. The thread then continues and its result is dropped;
/// the caller must not start many such calls.
pub(crate) fn run_within<T: Send + 'static>(
    limit: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    // Room for one result, so that a late thread can end without a receiver.
    let (sender, receiver) = sync_channel(1);
    thread::Builder::new()
        .name("writ-secrets".into())
        .spawn(move || {
            // The receiver is dropped when the wait has ended: the result is not needed then.
            let _late = sender.send(work());
        })
        .ok()?;
    receiver.recv_timeout(limit).ok()
}
