//! Limits of the rate of requests: a bucket of tokens for each client.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The most clients that are counted at once; those who have asked for nothing lately are forgotten first.
const MAX_CLIENTS: usize = 10_000;

/// The tokens that one client has left.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    left: f64,
    at: Instant,
}

/// Buckets by client.
#[derive(Debug)]
pub(crate) struct Limiter<K> {
    per_sec: f64,
    burst: f64,
    buckets: Mutex<BTreeMap<K, Bucket>>,
}

impl<K: Ord + Clone> Limiter<K> {
    /// Buckets that hold `burst` and fill by `per_sec`.
    pub(crate) fn new(per_sec: u32, burst: u32) -> Self {
        Self { per_sec: per_sec.max(1).into(), burst: burst.max(1).into(), buckets: Mutex::default() }
    }

    /// Takes one token; if there is none, returns the time until there is one.
    pub(crate) fn take_token(&self, client: &K, now: Instant) -> Result<(), Duration> {
        // The map is whole after every step, so poison is ignored.
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        // A full bucket is that of a client who has asked for nothing lately; without it nothing changes.
        if buckets.len() >= MAX_CLIENTS && !buckets.contains_key(client) {
            let full = |bucket: &Bucket| self.refill_bucket(*bucket, now) >= self.burst;
            buckets.retain(|_, bucket| !full(bucket));
            if buckets.len() >= MAX_CLIENTS {
                // All are busy: the new client waits, so the map stays bounded.
                return Err(Duration::from_secs(1));
            }
        }
        let bucket = buckets.entry(client.clone()).or_insert(Bucket { left: self.burst, at: now });
        let left = self.refill_bucket(*bucket, now);
        if left < 1.0 {
            return Err(Duration::from_secs_f64((1.0 - left) / self.per_sec));
        }
        *bucket = Bucket { left: left - 1.0, at: now };
        Ok(())
    }

    fn refill_bucket(&self, bucket: Bucket, now: Instant) -> f64 {
        let since = now.saturating_duration_since(bucket.at).as_secs_f64();
        since.mul_add(self.per_sec, bucket.left).min(self.burst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows: SCL-080
    #[test]
    fn a_bucket_empties_and_fills_for_its_client_alone() {
        let limiter = Limiter::new(2, 3);
        let start = Instant::now();
        let after = |millis| start + Duration::from_millis(millis);
        for _ in 0..3 {
            assert_eq!(limiter.take_token(&"a", start), Ok(()));
        }
        assert_eq!(limiter.take_token(&"a", start), Err(Duration::from_millis(500)));
        assert_eq!(limiter.take_token(&"b", start), Ok(()), "another client has its own");
        assert!(limiter.take_token(&"a", after(499)).is_err());
        assert_eq!(limiter.take_token(&"a", after(500)), Ok(()));
        assert!(limiter.take_token(&"a", after(500)).is_err());
        for _ in 0..3 {
            assert_eq!(limiter.take_token(&"a", after(60_000)), Ok(()), "it never holds more than its size");
        }
        assert!(limiter.take_token(&"a", after(60_000)).is_err());
    }

    /// Rows: SCL-080
    #[test]
    fn clients_that_ask_no_more_are_forgotten() {
        let limiter = Limiter::new(1, 1);
        let start = Instant::now();
        for client in 0..MAX_CLIENTS {
            assert_eq!(limiter.take_token(&client, start), Ok(()));
        }
        assert!(limiter.take_token(&MAX_CLIENTS, start).is_err(), "none can be forgotten yet");
        assert_eq!(limiter.take_token(&MAX_CLIENTS, start + Duration::from_secs(1)), Ok(()));
        assert_eq!(limiter.buckets.lock().expect("whole").len(), 1);
    }
}
