//! Time and randomness, as ports: everything below the shell gets them as arguments.

use std::pin::Pin;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use rand::Rng as _;
use writ_store::approvals::MAX_CLOCK_BACK_MS;
use writ_types::id::{
    AskId, AttemptId, BlockerId, InstallationId, ItemId, KeyId, MemoryId, MessageId, PilotId, RunId,
    SessionId, TurnId, UnitRunId,
};
use writ_types::unit::Timestamp;

/// Source of time.
pub trait Clock: Send + Sync + std::fmt::Debug {
    /// The time now.
    fn now(&self) -> Timestamp;

    /// Returns the time that has passed since some fixed earlier moment. It never decreases, even if the
    /// clock is set back.
    fn elapsed(&self) -> Duration;

    /// Returns after about `time` has passed, or as soon as the clock is seen to be moved; the caller looks at the time again.
    /// `now` is the time that the caller has read: a clock that was moved since then returns at once.
    fn wait(&self, now: Timestamp, time: Duration) -> ClockWait<'_> {
        let _ = now;
        Box::pin(tokio::time::sleep(time))
    }
}

/// The future of a wait.
pub type ClockWait<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// The moment when the system clock's `elapsed` was first used; it counts from there.
static FIRST: LazyLock<Instant> = LazyLock::new(Instant::now);

/// The system's clock. Time in which the machine sleeps does not go by.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_millis(millis(since))
    }

    fn elapsed(&self) -> Duration {
        FIRST.elapsed()
    }
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

/// The time by which the validity of keys, asks and approvals is judged: the clock's, but at most a minute
/// before the latest time that the ledger or this engine has seen, plus the time passed since. If the clock
/// is set back, expired items stay expired, and items due to expire still do.
///
/// The stored number is that time minus the time elapsed until then.
#[derive(Debug)]
pub(crate) struct Floor(AtomicI64);

impl Floor {
    /// It cannot be before `at` now.
    pub(crate) fn new(at: Timestamp, clock: &dyn Clock) -> Self {
        Self(AtomicI64::new(at.as_millis().saturating_sub(millis(clock.elapsed()))))
    }

    /// The time that counts now.
    pub(crate) fn valid(&self, clock: &dyn Clock) -> Timestamp {
        // In this order: what goes by between the two must not count twice.
        let (now, gone) = (clock.now(), millis(clock.elapsed()));
        let floor = now.as_millis().saturating_sub(MAX_CLOCK_BACK_MS).saturating_sub(gone);
        let before = self.0.fetch_max(floor, Ordering::Relaxed);
        now.max(Timestamp::from_millis(before.saturating_add(gone)))
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
        item: ItemId,
        installation: InstallationId,
        run: RunId,
        pilot: PilotId,
        unit_run: UnitRunId,
        blocker: BlockerId,
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

/// Returns an interval as the row of a job says it.
pub(crate) fn format_schedule(interval: Duration) -> String {
    let secs = interval.as_secs();
    match secs {
        0 => format!("every {} ms", interval.as_millis()),
        _ if secs.is_multiple_of(3_600) => format!("every {} h", secs / 3_600),
        _ if secs.is_multiple_of(60) => format!("every {} min", secs / 60),
        _ => format!("every {secs} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The time of the clock, and the time that has passed, in milliseconds.
    #[derive(Debug)]
    struct Set(i64, u64);

    impl Clock for Set {
        fn now(&self) -> Timestamp {
            Timestamp::from_millis(self.0)
        }

        fn elapsed(&self) -> Duration {
            Duration::from_millis(self.1)
        }
    }

    fn floor(at: i64) -> Floor {
        Floor::new(Timestamp::from_millis(at), &Set(0, 0))
    }

    #[test]
    fn what_has_ended_does_not_begin_again_when_the_clock_is_set_back() {
        let floor = floor(500_000);
        let valid = |now| floor.valid(&Set(now, 0)).as_millis();
        assert_eq!([valid(0), valid(499_999), valid(500_000)], [500_000; 3], "the ledger knows better");
        assert_eq!(valid(560_001), 560_001);
        assert_eq!([valid(500_001), valid(500_000)], [500_001; 2], "a minute less is as with any two clocks");
        assert_eq!(valid(9_000_000), 9_000_000);
        assert_eq!([valid(8_950_000), valid(8_940_000)], [8_950_000, 8_940_000]);
        assert_eq!([valid(8_939_999), valid(i64::MIN), valid(0)], [8_940_000; 3]);
        assert_eq!(valid(9_000_001), 9_000_001, "it goes on where the clock is right again");
        assert_eq!(self::floor(i64::MIN).valid(&Set(-5, 0)).as_millis(), -5, "an empty ledger says nothing");
    }

    #[test]
    fn what_is_to_end_ends_while_the_clock_is_behind() {
        let floor = floor(500_000);
        let valid = |now, gone| floor.valid(&Set(now, gone)).as_millis();
        assert_eq!([valid(0, 0), valid(10, 10), valid(10, 90_000)], [500_000, 500_010, 590_000]);
        assert_eq!(valid(700_000, 90_000), 700_000, "the clock is ahead of that");
        assert_eq!([valid(0, 90_000), valid(1_000, 91_000)], [640_000, 641_000], "and was set back");
        assert_eq!(valid(701_000, 91_000), 701_000);
        assert_eq!(valid(762_000, 152_000), 762_000, "a clock that goes right is not overtaken");
        let late = Floor::new(Timestamp::from_millis(500_000), &Set(0, 90_000));
        assert_eq!(
            late.valid(&Set(0, 91_000)).as_millis(),
            501_000,
            "what had gone by before does not count"
        );
    }

    #[test]
    fn the_systems_time_goes_on() {
        let before = SystemClock.elapsed();
        assert!(SystemClock.elapsed() >= before);
    }
}
