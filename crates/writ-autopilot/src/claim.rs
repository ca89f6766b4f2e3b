//! Claims: one holder for each unit, with a number that every write of the holder must carry.
//!
//! The store takes a claim in one conditional statement; these are the rules that it follows. A holder that was slow, or that
//! a crash has cut off, comes back with an old number, and nothing of it is written.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use std::time::Duration;
use writ_types::id::Fence;
use writ_types::unit::Timestamp;

/// The time for which a claim holds without being renewed. It is renewed each tick, so several ticks may be missed.
pub const CLAIM_TIME: Duration = Duration::from_secs(60);
/// The longest name of a host, in bytes (RFC 1035).
const MAX_HOST_BYTES: usize = 253;

/// The process that holds a claim, written as `host#pid` or `ssh:host#pid`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ClaimHolder {
    /// The name of the host.
    pub host: String,
    /// The number of the process there.
    pub pid: u32,
    /// Set if it is reached over SSH.
    pub is_remote: bool,
}

/// Text that names no process. A claim with it counts as stale.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no holder of a claim")]
pub struct InvalidHolder(pub String);

impl fmt::Display for ClaimHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_remote { "ssh:" } else { "" };
        write!(f, "{scheme}{}#{}", self.host, self.pid)
    }
}

impl FromStr for ClaimHolder {
    type Err = InvalidHolder;

    fn from_str(text: &str) -> Result<Self, InvalidHolder> {
        let (is_remote, rest) = text.strip_prefix("ssh:").map_or((false, text), |rest| (true, rest));
        let read = || {
            let (host, pid) = rest.split_once('#')?;
            // Holders are compared and shown as they stand: no character may hide in one.
            let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
            let is_host = !host.is_empty() && host.len() <= MAX_HOST_BYTES && host.bytes().all(is_name);
            // Reading it as a number alone would take a sign.
            let is_number = !pid.is_empty() && pid.bytes().all(|byte| byte.is_ascii_digit());
            let pid = pid.parse::<u32>().ok().filter(|pid| is_number && *pid > 0)?;
            is_host.then(|| Self { host: host.to_owned(), pid, is_remote })
        };
        read().ok_or_else(|| InvalidHolder(text.chars().take(60).collect()))
    }
}

impl TryFrom<String> for ClaimHolder {
    type Error = InvalidHolder;

    fn try_from(text: String) -> Result<Self, InvalidHolder> {
        text.parse()
    }
}

impl From<ClaimHolder> for String {
    fn from(holder: ClaimHolder) -> Self {
        holder.to_string()
    }
}

/// The claim of a unit, as its row holds it. The number stays and rises when the claim ends.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UnitClaim {
    /// The holder; none while the unit is free.
    pub holder: Option<ClaimHolder>,
    /// The end of the claim, if it is not renewed.
    pub until: Timestamp,
    /// The number of the newest claim.
    pub fence: Fence,
}

/// A write that comes too late.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the claim with the number {} has ended; the newest is {}", held.0, newest.0)]
pub struct StaleFence {
    /// The number that the write carries.
    pub held: Fence,
    /// The number of the row.
    pub newest: Fence,
}

impl UnitClaim {
    /// Returns true if another holder could take it.
    pub fn is_free(&self, now: Timestamp) -> bool {
        self.holder.is_none() || self.until < now
    }

    /// Takes the claim; `None` while another one holds.
    pub fn take_claim(&self, holder: &ClaimHolder, now: Timestamp) -> Option<Self> {
        // A number that does not fit would let an old holder in again.
        let fence = Fence(self.fence.0.checked_add(1)?);
        self.is_free(now).then(|| Self {
            holder: Some(holder.clone()),
            until: now.plus_duration(CLAIM_TIME),
            fence,
        })
    }

    /// Checks a write of the holder with this number.
    ///
    /// # Errors
    ///
    /// If the claim was taken or released since.
    pub fn check_fence(&self, held: Fence) -> Result<(), StaleFence> {
        let is_held = self.holder.is_some() && held == self.fence;
        if is_held { Ok(()) } else { Err(StaleFence { held, newest: self.fence }) }
    }

    /// Makes the claim hold longer.
    ///
    /// # Errors
    ///
    /// If it was taken or released since.
    pub fn renew_claim(&self, held: Fence, now: Timestamp) -> Result<Self, StaleFence> {
        self.check_fence(held)?;
        // A clock that was set back does not shorten it.
        Ok(Self { until: now.plus_duration(CLAIM_TIME).max(self.until), ..self.clone() })
    }

    /// Ends the claim.
    ///
    /// # Errors
    ///
    /// If it was taken or released since.
    pub fn release_claim(&self, held: Fence) -> Result<Self, StaleFence> {
        self.check_fence(held)?;
        Ok(Self { holder: None, ..self.clone() })
    }

    /// Ends an expired claim, or one of a process of this host that is dead; `None` if it stays.
    pub fn sweep_claim(&self, now: Timestamp, is_dead: impl Fn(&ClaimHolder) -> bool) -> Option<Self> {
        let holder = self.holder.as_ref()?;
        // The number stays, so that nothing of a holder is written that comes back.
        (self.until < now || is_dead(holder)).then(|| Self { holder: None, ..self.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(pid: u32) -> ClaimHolder {
        ClaimHolder { host: "build-1.local".to_owned(), pid, is_remote: false }
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(seconds * 1_000)
    }

    /// Rows: SF-068 (the two forms; the log needs the shell)
    #[test]
    fn a_holder_is_a_host_and_a_process() {
        for text in ["build-1.local#42", "ssh:worker_2#7"] {
            assert_eq!(text.parse::<ClaimHolder>().unwrap().to_string(), text);
        }
        assert!("ssh:h#1".parse::<ClaimHolder>().unwrap().is_remote);
        for text in [
            "",
            "host",
            "host#",
            "#1",
            "host#0",
            "host#-1",
            "host#+1",
            "host#1#2",
            "http:host#1",
            "a b#1",
            "h#99999999999",
        ] {
            assert!(text.parse::<ClaimHolder>().is_err(), "{text}");
        }
    }

    /// Rows: SF-129 SF-130 (the rule; the statement needs the store)
    #[test]
    fn only_one_holder_has_a_claim_and_an_old_number_writes_nothing() {
        let free = UnitClaim::default();
        let first = free.take_claim(&holder(1), at(0)).unwrap();
        assert_eq!(first.take_claim(&holder(2), at(60)), None, "it holds for 60 s");
        let renewed = first.renew_claim(first.fence, at(30)).unwrap();
        assert_eq!(renewed.take_claim(&holder(2), at(80)), None);
        let second = renewed.take_claim(&holder(2), at(91)).unwrap();
        assert_eq!((first.fence, second.fence), (Fence(1), Fence(2)));
        // The first one comes back.
        let stale = StaleFence { held: Fence(1), newest: Fence(2) };
        assert_eq!(second.check_fence(first.fence), Err(stale));
        assert_eq!(second.renew_claim(first.fence, at(92)), Err(stale));
        assert_eq!(second.release_claim(first.fence), Err(stale));
        let released = second.release_claim(second.fence).unwrap();
        assert!(released.check_fence(second.fence).is_err(), "a released claim writes nothing either");
        assert_eq!(released.take_claim(&holder(3), at(92)).unwrap().fence, Fence(3));
        let full = UnitClaim { fence: Fence(u64::MAX), ..UnitClaim::default() };
        assert_eq!(full.take_claim(&holder(1), at(0)), None);
    }

    /// Rows: SF-132 (the rule; the tick needs the shell)
    #[test]
    fn expired_claims_and_those_of_dead_processes_end() {
        let claim = UnitClaim::default().take_claim(&holder(1), at(0)).unwrap();
        assert_eq!(claim.sweep_claim(at(59), |_| false), None);
        assert_eq!(claim.sweep_claim(at(61), |_| false).unwrap().holder, None);
        let dead = claim.sweep_claim(at(1), |holder| holder.pid == 1).unwrap();
        assert_eq!((dead.holder, dead.fence), (None, Fence(1)), "the number stays");
        assert_eq!(UnitClaim::default().sweep_claim(at(99), |_| true), None);
    }
}
