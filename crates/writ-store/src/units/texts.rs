//! The words of a unit, which a person may edit.

use writ_types::unit::Timestamp;

use super::UnitKey;

/// The words of a unit, and the facts about it, as they are to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitTexts {
    /// The unit.
    pub key: UnitKey,
    /// The fence that the caller has read.
    pub fence: u64,
    /// Its title.
    pub title: String,
    /// The whole task, in words.
    pub description: String,
    /// More about it, as a JSON object.
    pub metadata: String,
    /// From 1, urgent, to 4.
    pub priority: Option<u8>,
    /// The units that must be over before it begins; `None`: as they are.
    pub blocked_by: Option<Vec<String>>,
    /// When.
    pub at: Timestamp,
}
