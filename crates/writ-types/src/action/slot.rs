//! Slots: arguments of a planned step with values that are not known when the plan is approved.

use serde::{Deserialize, Serialize};

use crate::unit::Amount;

/// An argument with a value that is found later: its kind, and where it will come from. Both are approved with the plan, so a
/// text that is read afterwards can change neither.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Slot {
    /// The kind of value.
    pub kind: SlotKind,
    /// The tool that returns it in a result.
    pub tool: String,
    /// The place in that tool's results.
    pub source: SlotSource,
}

/// The kind of a slot's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum SlotKind {
    /// The number of an account.
    Account,
    /// A mail address.
    Address,
    /// A link with its scheme.
    Link,
    /// A number that is not larger than the bound.
    Amount {
        /// The bound, inclusive.
        max: Amount,
    },
    /// A quotation: a text that stands in the source as it is.
    Text,
}

impl SlotKind {
    /// Returns its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Account => "account",
            Self::Address => "address",
            Self::Link => "link",
            Self::Amount { .. } => "amount",
            Self::Text => "text",
        }
    }
}

/// The place of a slot's value in the results of its tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "place", rename_all = "snake_case")]
pub enum SlotSource {
    /// A field of a structured result.
    Field {
        /// The name of the field.
        name: String,
        /// A value that stands beside it in the same record; none: the field has one value in all results.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        of: Option<String>,
    },
    /// The text of the result of a call that names this.
    Result {
        /// A value among the arguments of that call, such as the path of a file.
        named: String,
    },
    /// The sum of a field over all records of one result: the value is computed, and stands nowhere.
    Sum {
        /// The name of the field.
        name: String,
        /// A value among the arguments of the call; none: all results of the tool have the same sum.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        named: Option<String>,
    },
    /// All values of a field in one result, as a list in any order.
    All {
        /// The name of the field.
        name: String,
        /// A value among the arguments of the call; none: all results of the tool have the same values.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        named: Option<String>,
        /// The most values, so that a person knows how many there can be.
        most: u32,
    },
}
