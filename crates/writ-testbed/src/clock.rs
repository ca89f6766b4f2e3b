//! A clock that stands still until a test moves it.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use writ_types::unit::Timestamp;

/// The hand of a clock. Tests of an engine make a `writ_runtime::clock::Clock` of it.
#[derive(Debug)]
pub struct Hand {
    now: AtomicI64,
    gone: AtomicU64,
    moved: Notify,
}

impl Hand {
    /// A clock that says this time.
    pub const fn at(now: Timestamp) -> Self {
        Self { now: AtomicI64::new(now.as_millis()), gone: AtomicU64::new(0), moved: Notify::const_new() }
    }

    /// Returns the time of this clock.
    pub fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.now.load(Ordering::SeqCst))
    }

    /// Returns the time since it was made.
    pub fn elapsed(&self) -> Duration {
        Duration::from_millis(self.gone.load(Ordering::SeqCst))
    }

    /// Lets so much time go by, in whole milliseconds.
    pub fn go_on(&self, by: Duration) {
        self.now.fetch_add(signed(by), Ordering::SeqCst);
        self.gone.fetch_add(millis(by), Ordering::SeqCst);
        self.moved.notify_waiters();
    }

    /// Sets it back by so much, in whole milliseconds. The elapsed time stays.
    pub fn set_back(&self, by: Duration) {
        self.now.fetch_sub(signed(by), Ordering::SeqCst);
        self.moved.notify_waiters();
    }

    /// Returns once the hand is moved; at once if it no longer shows `now`, which the caller has read.
    pub async fn wait_until_moved(&self, now: Timestamp) {
        let moved = self.moved.notified();
        let mut moved = std::pin::pin!(moved);
        moved.as_mut().enable();
        if self.now() == now {
            moved.await;
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn signed(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_stands_still_until_it_is_moved() {
        let hand = Hand::at(Timestamp::from_millis(1_000));
        assert_eq!([hand.now(), hand.now()], [Timestamp::from_millis(1_000); 2]);
        hand.go_on(Duration::from_secs(60));
        assert_eq!(hand.now(), Timestamp::from_millis(61_000));
        hand.set_back(Duration::from_millis(61_001));
        assert_eq!((hand.now(), hand.elapsed()), (Timestamp::from_millis(-1), Duration::from_secs(60)));
    }
}
