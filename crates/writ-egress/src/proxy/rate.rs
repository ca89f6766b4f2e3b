//! Rates: connections per host and per tool in a minute.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// The length of a window.
const WINDOW: Duration = Duration::from_secs(60);
/// The most hosts or tools that are counted at once. When there are more, nothing new is let through until a
/// window ends: a program that invents so many names is not in a hurry.
const KEYS_MAX: usize = 4096;

/// Counts by key in windows of a minute.
#[derive(Debug, Default)]
pub(crate) struct RateWindows(Mutex<BTreeMap<String, Window>>);

#[derive(Debug)]
struct Window {
    began: Instant,
    count: u32,
}

impl RateWindows {
    /// Counts one, if `limit` is not reached in this window; else says how long to wait.
    pub(crate) fn admit_connection(&self, key: &str, limit: u32, now: Instant) -> Result<(), Duration> {
        let mut windows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Full: windows that are over make room.
        if !windows.contains_key(key) && windows.len() >= KEYS_MAX {
            windows.retain(|_, window| now.duration_since(window.began) < WINDOW);
            if windows.len() >= KEYS_MAX {
                return Err(WINDOW);
            }
        }
        let window = windows.entry(key.to_owned()).or_insert(Window { began: now, count: 0 });
        let age = now.duration_since(window.began);
        // A window begins with the first connection after the one before is over.
        if age >= WINDOW {
            *window = Window { began: now, count: 0 };
        }
        if window.count >= limit {
            return Err(WINDOW.saturating_sub(age));
        }
        window.count += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_window_admits_so_many_and_the_next_one_again() {
        let windows = RateWindows::default();
        let start = Instant::now();
        for _ in 0..3 {
            assert_eq!(windows.admit_connection("a", 3, start), Ok(()));
        }
        assert_eq!(
            windows.admit_connection("a", 3, start + Duration::from_secs(20)),
            Err(Duration::from_secs(40))
        );
        assert_eq!(windows.admit_connection("b", 3, start), Ok(()), "another key has its own window");
        assert_eq!(windows.admit_connection("a", 3, start + WINDOW), Ok(()));
        assert_eq!(windows.admit_connection("a", 0, start + WINDOW), Err(WINDOW));
    }

    #[tokio::test]
    async fn made_up_keys_take_bounded_memory() {
        let windows = RateWindows::default();
        let start = Instant::now();
        for key in 0..KEYS_MAX {
            assert_eq!(windows.admit_connection(&key.to_string(), 1, start), Ok(()));
        }
        assert_eq!(windows.admit_connection("one more", 1, start), Err(WINDOW));
        assert_eq!(windows.admit_connection("one more", 1, start + WINDOW), Ok(()));
        assert_eq!(windows.0.lock().map(|map| map.len()).ok(), Some(1));
    }
}
