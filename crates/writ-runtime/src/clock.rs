//! Time and randomness, as ports: everything below the shell gets them as arguments.

use std::sync::atomic::{AtomicI64, Ordering};

use rand::Rng as _;
use writ_store::approvals::MAX_CLOCK_BACK_MS;
use writ_types::id::{
    AskId, AttemptId, InstallationId, KeyId, MemoryId, MessageId, RunId, SessionId, TurnId,
};
use writ_types::unit::Timestamp;

/// Where time comes from.
pub trait Clock: Send + Sync + std::fmt::Debug {
    /// The time now.
    fn now(&self) -> Timestamp;
}

/// The system's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }
}

/// The time by which keys, asks and approvals are good: the clock's, but no more than a minute before the latest time
/// that the ledger or this engine has seen. What has ended does not begin again because the clock was set back.
#[derive(Debug)]
pub(crate) struct Floor(AtomicI64);

impl Floor {
    /// It cannot be before `at`.
    pub(crate) const fn new(at: Timestamp) -> Self {
        Self(AtomicI64::new(at.as_millis()))
    }

    /// The time that counts where the clock says `now`.
    pub(crate) fn valid(&self, now: Timestamp) -> Timestamp {
        let floor = now.as_millis().saturating_sub(MAX_CLOCK_BACK_MS);
        let before = self.0.fetch_max(floor, Ordering::Relaxed);
        now.max(Timestamp::from_millis(before))
    }
}

/// Makes ids from the time and the system's randomness.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ids;

macro_rules! makers {
    ($($name:ident: $id:ty),+ $(,)?) => {
        $(
            #[doc = concat!("A new `", stringify!($id), "`.")]
            pub fn $name(self, now: Timestamp) -> $id {
                <$id>::from_parts(now, rand::rng().random())
            }
        )+
    };
}

impl Ids {
    makers! {
        session: SessionId,
        turn: TurnId,
        message: MessageId,
        attempt: AttemptId,
        key: KeyId,
        memory: MemoryId,
        installation: InstallationId,
        run: RunId,
    }

    /// A new ask id.
    pub fn ask(self) -> AskId {
        AskId::from_random(rand::rng().random())
    }

    /// A new nonce: 16 random bytes, hexadecimal.
    pub fn nonce(self) -> String {
        format!("{:032x}", rand::rng().random::<u128>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_ended_does_not_begin_again_when_the_clock_is_set_back() {
        let at = Timestamp::from_millis;
        let floor = Floor::new(at(500_000));
        let valid = |now| floor.valid(at(now)).as_millis();
        assert_eq!([valid(0), valid(499_999), valid(500_000)], [500_000; 3], "the ledger knows better");
        assert_eq!(valid(560_001), 560_001);
        assert_eq!([valid(500_001), valid(500_000)], [500_001; 2], "a minute less is as with any two clocks");
        assert_eq!(valid(9_000_000), 9_000_000);
        assert_eq!([valid(8_950_000), valid(8_940_000)], [8_950_000, 8_940_000]);
        assert_eq!([valid(8_939_999), valid(i64::MIN), valid(0)], [8_940_000; 3]);
        assert_eq!(valid(9_000_001), 9_000_001, "it goes on where the clock is right again");
        assert_eq!(Floor::new(at(i64::MIN)).valid(at(-5)), at(-5), "an empty ledger says nothing");
    }
}
