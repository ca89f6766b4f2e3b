//! The readings that the security proxy makes of its own accord.

use serde::{Deserialize, Serialize};

/// A reading of what is declared personal of a case's customer, without values.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CustomerReading {
    /// The token of the case.
    pub case: String,
    /// The token of its customer.
    pub customer: String,
    /// The operations, in the order of their reading.
    pub sources: Vec<SourceReading>,
    /// The number of further operations, which were not read and are not listed.
    pub left_out: u64,
}

/// An operation that was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceReading {
    /// The operation.
    pub operation: String,
    /// Its personal columns.
    pub columns: Vec<String>,
    /// The number of values in them that the case did not know.
    pub values: u64,
    /// The reason why it could not be read; empty: it was.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub failure: String,
}
