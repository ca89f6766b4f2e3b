//! Lines that stay open between two permits, so that the calls of one turn do not each greet the same host
//! anew.
//!
//! Such a line serves one permit at a time, and only those that name the same host for the same identity: it
//! is never shared between providers, nor between credentials. Between two permits it is at rest: a client
//! that sends over it then cuts it. Each permit has its own count of bytes, and its own fault.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use writ_types::digest::Digest;

use crate::host::HostPort;
use crate::line::Line;

/// The time for which a line is at rest: less than the five seconds after which the first servers close an
/// idle connection, so that no request meets a connection that is being closed.
pub(crate) const REST: Duration = Duration::from_secs(4);

/// The time for which a line is used in all: then the host's name is looked up anew.
const AGE: Duration = Duration::from_secs(300);

/// The most lines at rest: more turns than these seldom call a model within [`REST`]. Each takes some 60 KB.
const MAX_KEPT: usize = 32;

/// The owner of a line.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Owner {
    pub(crate) host: HostPort,
    /// The identity towards the host: the provider and its credential.
    pub(crate) identity: Digest,
}

/// A line and the client that is bound to it.
#[derive(Debug)]
pub(crate) struct RestingLine {
    pub(crate) line: Line,
    pub(crate) client: reqwest::Client,
    opened: Instant,
    rests: Instant,
}

impl RestingLine {
    pub(crate) fn new(line: Line, client: reqwest::Client) -> Self {
        let now = Instant::now();
        Self { line, client, opened: now, rests: now }
    }

    fn is_fresh(&self, now: Instant) -> bool {
        now.duration_since(self.rests) < REST
            && now.duration_since(self.opened) < AGE
            && self.line.may_be_kept()
    }
}

/// The lines at rest.
#[derive(Debug, Default)]
pub(crate) struct Keep(Mutex<BTreeMap<Owner, Vec<RestingLine>>>);

impl Keep {
    /// Takes a line of this owner, if one is at rest. Those with their time over are closed.
    pub(crate) fn take_line(&self, owner: &Owner) -> Option<RestingLine> {
        let mut stale = Vec::new();
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        close_expired(&mut kept, Instant::now(), &mut stale);
        // The last one that was put is the one that is most likely still open.
        let found = kept.get_mut(owner).and_then(Vec::pop);
        drop(kept);
        // Closed without the lock.
        drop(stale);
        found
    }

    /// Lays a line to rest, if it is still good and there is room.
    pub(crate) fn put_line(&self, owner: Owner, mut line: RestingLine) {
        // To rest before it can be found: no bytes pass between two permits.
        line.line.put_to_rest();
        line.rests = Instant::now();
        let mut stale = Vec::new();
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        close_expired(&mut kept, line.rests, &mut stale);
        if line.is_fresh(line.rests) && kept.values().map(Vec::len).sum::<usize>() < MAX_KEPT {
            kept.entry(owner).or_default().push(line);
        } else {
            stale.push(line);
        }
        drop(kept);
        drop(stale);
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).values().map(Vec::len).sum()
    }
}

fn close_expired(kept: &mut BTreeMap<Owner, Vec<RestingLine>>, now: Instant, stale: &mut Vec<RestingLine>) {
    kept.retain(|_, lines| {
        stale.extend(lines.extract_if(.., |line| !line.is_fresh(now)));
        !lines.is_empty()
    });
}
