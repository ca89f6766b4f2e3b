//! The wait of the loop between two looks.

use std::time::Duration;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// The signals that end a wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct LookSignals<'a> {
    /// Cancelled when the engine ends.
    pub(super) draining: &'a CancellationToken,
    /// Cancelled when the loop is to stop.
    pub(super) stop: &'a CancellationToken,
    /// Wakes the loop.
    pub(super) wake: &'a Notify,
}

/// Waits for the next look: so long, or until something has changed. Returns false if the engine ends.
pub(super) async fn wait_for_look(
    signals: &LookSignals<'_>,
    woken: impl Future<Output = ()>,
    wait: Duration,
) -> bool {
    // A loop that was stopped waits for its attempts, and not for the stop once more.
    let is_stopped = signals.stop.is_cancelled();
    tokio::select! {
        () = signals.draining.cancelled() => return false,
        () = signals.stop.cancelled(), if !is_stopped => {}
        () = signals.wake.notified() => {}
        () = woken => {}
        () = tokio::time::sleep(wait) => {}
    }
    true
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;
    use crate::config::{PilotConfig, read_config};

    /// Undisturbed, a loop looks once in its interval: ten times in ten seconds by default, and twice where that is five seconds. A wake, a stop
    /// and the end of the engine end the wait at once.
    ///
    /// Rows: SF-118 (in part: the interval; that it may not be 0 is shown with the settings)
    #[tokio::test(start_paused = true)]
    async fn a_loop_looks_once_in_its_interval() {
        let (draining, stop, wake) = (CancellationToken::new(), CancellationToken::new(), Notify::new());
        let signals = LookSignals { draining: &draining, stop: &stop, wake: &wake };
        let slow = read_config(&[("f", "[pilot]\npoll_interval = \"5s\"")]).expect("reads");
        for (config, expected) in [(PilotConfig::default(), 10), (slow, 2)] {
            let (begun, mut looks) = (Instant::now(), 0);
            while begun.elapsed() < Duration::from_secs(10) {
                assert!(wait_for_look(&signals, std::future::pending(), config.times.poll_interval).await);
                looks += 1;
            }
            assert_eq!(looks, expected);
        }
        let (begun, hour) = (Instant::now(), Duration::from_secs(3_600));
        wake.notify_one();
        assert!(wait_for_look(&signals, std::future::pending(), hour).await);
        assert!(wait_for_look(&signals, std::future::ready(()), hour).await);
        stop.cancel();
        draining.cancel();
        assert!(!wait_for_look(&signals, std::future::pending(), hour).await);
        assert_eq!(begun.elapsed(), Duration::ZERO);
    }
}
