//! Time and randomness, as ports: everything below the shell gets them as arguments.

use rand::Rng as _;
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
