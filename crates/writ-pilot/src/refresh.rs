//! Requests to look at the units now: a burst of them becomes few looks.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use writ_types::unit::Timestamp;

/// The shortest time between two looks that requests bring about.
pub(crate) const REFRESH_GAP: Duration = Duration::from_secs(1);

/// The answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RefreshAnswer {
    /// The loop looks at once.
    Now,
    /// The loop looks after this time.
    After(Duration),
    /// The loop looks because of an earlier request.
    Joined,
}

/// The requests of one project.
#[derive(Debug, Default)]
pub(crate) struct RefreshRequests(Mutex<RefreshTimes>);

#[derive(Debug, Default)]
struct RefreshTimes {
    /// The time of the last look that a request has brought about.
    last: Option<Timestamp>,
    /// True while a look is due.
    is_due: bool,
}

impl RefreshRequests {
    /// Takes a request.
    pub(crate) fn ask(&self, now: Timestamp) -> RefreshAnswer {
        let mut times = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if times.is_due {
            return RefreshAnswer::Joined;
        }
        let since = times.last.map(|last| now.time_since(last));
        match since.and_then(|since| REFRESH_GAP.checked_sub(since)).filter(|left| !left.is_zero()) {
            Some(left) => {
                times.is_due = true;
                RefreshAnswer::After(left)
            }
            None => {
                times.last = Some(now);
                RefreshAnswer::Now
            }
        }
    }

    /// Notes that the look that was due begins.
    pub(crate) fn begin_due(&self, now: Timestamp) {
        let mut times = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *times = RefreshTimes { last: Some(now), is_due: false };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A burst brings about one look at once and one after the gap; a request after that looks at once again.
    #[test]
    fn a_burst_of_requests_is_two_looks() {
        let at = |millis: i64| Timestamp::from_millis(10_000 + millis);
        let requests = RefreshRequests::default();
        assert_eq!(requests.ask(at(0)), RefreshAnswer::Now);
        assert_eq!(requests.ask(at(400)), RefreshAnswer::After(Duration::from_millis(600)));
        for millis in 401..450 {
            assert_eq!(requests.ask(at(millis)), RefreshAnswer::Joined);
        }
        requests.begin_due(at(1_000));
        assert_eq!(requests.ask(at(1_001)), RefreshAnswer::After(Duration::from_millis(999)));
        requests.begin_due(at(2_000));
        assert_eq!(requests.ask(at(3_000)), RefreshAnswer::Now);
    }
}
