//! Requests that do not prove who asks: anyone who reaches a socket can make them, so a flood leaves no entry for each.
//!
//! The first of a minute and a source are recorded one by one, with their reasons. The others are counted, and one entry says how
//! many they were. A proxy that is killed has not written the count of its last minute.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use writ_types::unit::Timestamp;

use crate::proxy::Peer;

/// The most entries of one minute and source: more than agents that err or try keys make, and far less than a flood.
pub const MAX_UNPROVEN_ENTRIES: u64 = 1_000;
/// The most sources that are counted apart in one minute; those after them are counted together.
const MAX_SOURCES: usize = 64;
/// The length of a minute, in milliseconds.
const MINUTE_MS: i64 = 60_000;

/// The source of a request, as far as the system names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum UnprovenSource {
    /// A user of this machine.
    User(u32),
    /// The network.
    Network,
    /// Any other, where there are too many.
    Others,
}

impl fmt::Display for UnprovenSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(uid) => write!(f, "user {uid}"),
            Self::Network => f.write_str("the network"),
            Self::Others => f.write_str("other users"),
        }
    }
}

/// Requests of one minute and source that have no entries of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnprovenCount {
    /// The beginning of the minute.
    pub(crate) since: Timestamp,
    /// Where they came from.
    pub(crate) source: UnprovenSource,
    /// How many they were.
    pub(crate) count: u64,
}

impl UnprovenCount {
    /// Returns the text of the entry about them.
    pub(crate) fn text(&self) -> String {
        let Self { since, source, count } = self;
        format!("{count} more requests of {source} in the minute from {since} have not proven who asks")
    }
}

/// The requests of the current minute.
#[derive(Debug, Default)]
pub(crate) struct UnprovenRequests(Mutex<MinuteCounts>);

#[derive(Debug, Default)]
struct MinuteCounts {
    minute: i64,
    sources: BTreeMap<UnprovenSource, u64>,
}

impl UnprovenRequests {
    /// Counts a request. Returns true if it is to have an entry of its own.
    pub(crate) fn count_request(&self, peer: Peer) -> bool {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let source = match peer {
            Peer::Local(uid) => UnprovenSource::User(uid),
            Peer::Remote => UnprovenSource::Network,
        };
        let is_room = counts.sources.len() < MAX_SOURCES || counts.sources.contains_key(&source);
        let count = counts.sources.entry(if is_room { source } else { UnprovenSource::Others }).or_default();
        *count = count.saturating_add(1);
        *count <= MAX_UNPROVEN_ENTRIES
    }

    /// Takes the counts of a minute that is over, and begins the one of `now`.
    pub(crate) fn take_ended(&self, now: Timestamp) -> Vec<UnprovenCount> {
        let minute = now.as_millis().div_euclid(MINUTE_MS);
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if counts.minute == minute { Vec::new() } else { counts.take_all(minute) }
    }

    /// Takes all counts, also of the minute that is not over.
    pub(crate) fn take_all(&self) -> Vec<UnprovenCount> {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let minute = counts.minute;
        counts.take_all(minute)
    }
}

impl MinuteCounts {
    fn take_all(&mut self, next: i64) -> Vec<UnprovenCount> {
        let since = Timestamp::from_millis(self.minute.saturating_mul(MINUTE_MS));
        self.minute = next;
        let unwritten = std::mem::take(&mut self.sources).into_iter().map(|(source, count)| UnprovenCount {
            since,
            source,
            count: count.saturating_sub(MAX_UNPROVEN_ENTRIES),
        });
        unwritten.filter(|one| one.count > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_without_end_are_counted_together() {
        let requests = UnprovenRequests::default();
        let beyond = MAX_UNPROVEN_ENTRIES + 84;
        let users = u32::try_from(MAX_SOURCES as u64 + beyond).expect("few");
        let own = (0..users).filter(|uid| requests.count_request(Peer::Local(*uid))).count() as u64;
        assert_eq!(own, MAX_SOURCES as u64 + MAX_UNPROVEN_ENTRIES);
        let rest = UnprovenCount {
            since: Timestamp::from_millis(0),
            source: UnprovenSource::Others,
            count: beyond - MAX_UNPROVEN_ENTRIES,
        };
        assert_eq!(requests.take_all(), [rest]);
        assert_eq!(requests.take_all(), []);
    }
}
