//! Typed ids. Ids made here are ULIDs: sortable by time, 26 characters of Crockford base 32.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::unit::Timestamp;

/// The reason that a text is no id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is not a valid {kind} id")]
pub struct InvalidId {
    /// The expected kind of id.
    pub kind: &'static str,
    /// The text that was found, at most 64 characters of it.
    pub text: String,
}

/// Declares a ULID newtype.
macro_rules! ulid_id {
    ($(#[$doc:meta])* $name:ident, $kind:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
        #[serde(try_from = "String", into = "String")]
        #[schemars(with = "String", inline)]
        pub struct $name(ulid::Ulid);

        impl $name {
            /// Makes an id from a time and 80 random bits (higher bits are dropped).
            pub fn from_parts(at: Timestamp, random: u128) -> Self {
                // Times before 1970 become zero.
                Self(ulid::Ulid::from_parts(u64::try_from(at.as_millis()).unwrap_or(0), random))
            }

            /// Its 16 bytes, the time first.
            pub const fn to_bytes(&self) -> [u8; 16] {
                self.0.to_bytes()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;

            fn from_str(text: &str) -> Result<Self, InvalidId> {
                ulid::Ulid::from_string(text)
                    .map(Self)
                    // Cut, since the text may be foreign and long.
                    .map_err(|_| InvalidId { kind: $kind, text: text.chars().take(64).collect() })
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidId;

            fn try_from(text: String) -> Result<Self, InvalidId> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> String {
                id.to_string()
            }
        }
    };
}

ulid_id!(
    /// One conversation with one history and one memory scope.
    SessionId,
    "session"
);
ulid_id!(
    /// One user message and the agent's answer to it.
    TurnId,
    "turn"
);
ulid_id!(
    /// One inbound message.
    MessageId,
    "message"
);
ulid_id!(
    /// One remembered item.
    MemoryId,
    "memory"
);
ulid_id!(
    /// One attempt to perform an action; a retry is another attempt.
    AttemptId,
    "attempt"
);
ulid_id!(
    /// One key: base key, task key or approver key.
    KeyId,
    "key"
);
ulid_id!(
    /// The installation: made by `init`, bound into every token.
    InstallationId,
    "installation"
);

ulid_id!(
    /// One work item: a task, a project or a goal.
    ItemId,
    "work item"
);

ulid_id!(
    /// One run of an engine, from its start to its end.
    RunId,
    "run"
);

ulid_id!(
    /// One session of the autopilot on a project.
    PilotId,
    "autopilot session"
);

ulid_id!(
    /// One execution of a unit's worker.
    UnitRunId,
    "run of a unit"
);

ulid_id!(
    /// One thing that holds an autopilot's session up.
    BlockerId,
    "blocker"
);

/// Number of characters of an [`AskId`] (62^8, about 2·10^14, is enough for asks that live a day).
pub const ASK_ID_LEN: usize = 8;

/// The id of an ask: 8 base62 characters, short enough to be typed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String", inline)]
pub struct AskId(String);

impl AskId {
    /// Makes an id from random bits.
    pub fn from_random(mut random: u64) -> Self {
        const ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
        let text = (0..ASK_ID_LEN)
            .map(|_| {
                let digit = usize::try_from(random % 62).unwrap_or(0);
                // Slightly uneven, which does not matter: an id only has to be unlikely to repeat.
                random /= 62;
                char::from(ALPHABET[digit])
            })
            .collect();
        Self(text)
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for AskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for AskId {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        if text.len() == ASK_ID_LEN && text.bytes().all(|b| b.is_ascii_alphanumeric()) {
            Ok(Self(text.to_owned()))
        } else {
            Err(InvalidId { kind: "ask", text: text.chars().take(64).collect() })
        }
    }
}

impl TryFrom<String> for AskId {
    type Error = InvalidId;

    fn try_from(text: String) -> Result<Self, InvalidId> {
        text.parse()
    }
}

impl From<AskId> for String {
    fn from(id: AskId) -> String {
        id.0
    }
}

/// The position of an entry in the ledger, counted from zero.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(transparent)]
#[schemars(inline)]
pub struct EntrySeq(pub u64);

impl fmt::Display for EntrySeq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The fencing number of a lease: grows with every lease of the same message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Fence(pub u64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_round_trip_and_reject_nonsense() {
        let id = SessionId::from_parts(Timestamp::from_millis(1_700_000_000_000), 42);
        assert_eq!(id.to_string().parse::<SessionId>(), Ok(id));
        assert!("../../etc/passwd".parse::<SessionId>().is_err());
        assert!("".parse::<TurnId>().is_err());
    }

    #[test]
    fn ask_ids_are_eight_base62_characters() {
        let id = AskId::from_random(u64::MAX);
        assert_eq!(id.as_str().len(), ASK_ID_LEN);
        assert_eq!(id.as_str().parse::<AskId>(), Ok(id.clone()));
        assert!("abc".parse::<AskId>().is_err());
        assert!("abcd/efg".parse::<AskId>().is_err());
    }
}
