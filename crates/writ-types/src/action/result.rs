//! Reading earlier results.

use serde::{Deserialize, Serialize};

/// A part of an earlier result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadResult {
    /// The result's number in its session.
    pub result: u64,
    /// The first character, counted from one.
    pub from: u64,
    /// The most characters.
    pub chars: u64,
    /// A text to find: the part begins near its first place from `from` on. Empty: none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub find: String,
}
