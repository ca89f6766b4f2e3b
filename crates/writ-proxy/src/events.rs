//! Countable events, for the router's watch over anomalies: a bounded ring that is read by number.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;
use tokio::sync::watch;
use writ_types::unit::Timestamp;

/// The most events that are held: those of some seconds at full speed. Older ones are counted as missed.
pub const MAX_EVENTS: usize = 16_384;
/// The most events of one answer.
pub const MAX_PAGE: usize = 1_024;
/// The longest that a reader waits for an event.
pub const MAX_WAIT: Duration = Duration::from_secs(30);
/// The numbers that each millisecond of the clock has: no proxy counts events faster than that.
const NUMBERS_PER_MS: u64 = 1_000;

/// A countable thing that an agent did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EventMeasure {
    /// A request, refused or not.
    Requests,
    /// A request that was refused.
    Refused,
    /// A request that found no row of its case where one was named, or a key that another row has.
    Missed,
    /// Values of its case that it has named without their tokens, each of them once.
    Masked,
    /// Records in an answer.
    RecordsRead,
}

/// The agent, case and customer of an event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EventSubject {
    /// The agent, as its verified keys name it.
    pub agent: String,
    /// The token of its case; empty for keys without one.
    pub case_token: String,
    /// The fingerprint of the customer, the same in all cases; empty where the case is closed.
    pub customer: String,
}

/// An event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProxyEvent {
    /// Its number, larger than those of all earlier events, also before a restart.
    pub n: u64,
    /// When it happened.
    pub at: Timestamp,
    /// Who did it.
    #[serde(flatten)]
    pub subject: EventSubject,
    /// What is counted.
    pub measure: EventMeasure,
    /// How many.
    pub amount: u64,
}

/// Some of the events, oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EventPage {
    /// The events.
    pub events: Vec<ProxyEvent>,
    /// The number of the newest event of all.
    pub newest: u64,
    /// The number of events that were dropped before they were read.
    pub missed: u64,
}

/// The newest events.
#[derive(Debug)]
pub(crate) struct EventRing {
    /// The number before the first event of this ring.
    start: u64,
    held: Mutex<VecDeque<ProxyEvent>>,
    newest: watch::Sender<u64>,
}

impl EventRing {
    /// Makes an empty ring. Numbers begin with the time, so that a reader goes on after a restart.
    pub(crate) fn new(now: Timestamp) -> Self {
        let start = u64::try_from(now.as_millis()).unwrap_or_default().saturating_mul(NUMBERS_PER_MS);
        Self { start, held: Mutex::default(), newest: watch::Sender::new(start) }
    }

    /// Adds what one request has counted.
    pub(crate) fn add_events(&self, at: Timestamp, subject: &EventSubject, counts: &[(EventMeasure, u64)]) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let mut n = *self.newest.borrow();
        for (measure, amount) in counts {
            n = n.saturating_add(1);
            if held.len() >= MAX_EVENTS {
                held.pop_front();
            }
            held.push_back(ProxyEvent {
                n,
                at,
                subject: subject.clone(),
                measure: *measure,
                amount: *amount,
            });
        }
        // Under the lock: numbers and order stay the same.
        self.newest.send_replace(n);
    }

    /// Returns the events after a number. One that this ring has not reached is of another ring, and counts as none.
    pub(crate) fn events_after(&self, after: u64) -> EventPage {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let newest = *self.newest.borrow();
        let after = if after > newest { self.start } else { after.max(self.start) };
        let from = held.partition_point(|event| event.n <= after);
        let events: Vec<ProxyEvent> = held.iter().skip(from).take(MAX_PAGE).cloned().collect();
        let next = events.first().map_or(after, |event| event.n.saturating_sub(1));
        EventPage { events, newest, missed: next.saturating_sub(after) }
    }

    /// Returns the events after a number, and waits for one where there is none yet.
    pub(crate) async fn wait_after(&self, after: u64, limit: Duration) -> EventPage {
        let mut newest = self.newest.subscribe();
        let page = self.events_after(after);
        if !page.events.is_empty() || limit.is_zero() {
            return page;
        }
        // Every change since the subscription counts, so none falls between reading and waiting.
        let _ = tokio::time::timeout(limit.min(MAX_WAIT), newest.changed()).await;
        self.events_after(after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject(case: &str) -> EventSubject {
        EventSubject { agent: "a".into(), case_token: case.into(), customer: "c".into() }
    }

    fn ring() -> EventRing {
        EventRing::new(Timestamp::from_millis(5))
    }

    fn add(ring: &EventRing, times: usize) {
        for _ in 0..times {
            ring.add_events(Timestamp::from_millis(9), &subject("1"), &[(EventMeasure::Requests, 1)]);
        }
    }

    #[test]
    fn events_are_read_by_number_once_and_in_order() {
        let ring = ring();
        let counts = [(EventMeasure::Requests, 1), (EventMeasure::RecordsRead, 7)];
        ring.add_events(Timestamp::from_millis(9), &subject("1"), &counts);
        let page = ring.events_after(0);
        let numbers: Vec<(u64, u64)> = page.events.iter().map(|event| (event.n, event.amount)).collect();
        assert_eq!((numbers.as_slice(), page.newest, page.missed), (&[(5_001, 1), (5_002, 7)][..], 5_002, 0));
        assert_eq!(ring.events_after(5_001).events.len(), 1);
        assert_eq!(ring.events_after(5_002).events, []);
        assert_eq!(ring.events_after(u64::MAX).events.len(), 2, "a number of another ring");
    }

    #[test]
    fn the_ring_is_bounded_and_says_what_was_missed() {
        let ring = ring();
        add(&ring, MAX_EVENTS + 10);
        let page = ring.events_after(5_004);
        assert_eq!((page.events.len(), page.missed), (MAX_PAGE, 6));
        let last = page.events.last().expect("has events").n;
        assert_eq!(ring.events_after(last).missed, 0, "twin: the next page misses none");
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_waits_for_the_next_event() {
        let ring = ring();
        let begun = tokio::time::Instant::now();
        assert_eq!(ring.wait_after(0, Duration::from_secs(1_000)).await.events, [], "none comes");
        assert_eq!(begun.elapsed(), MAX_WAIT);
        let (page, ()) = tokio::join!(ring.wait_after(0, MAX_WAIT), async { add(&ring, 1) });
        assert_eq!((page.events.len(), begun.elapsed()), (1, MAX_WAIT), "at once");
    }
}
