//! The result of an operation.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The kind of personal data in a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PersonalKind {
    /// The name of a person.
    Name,
    /// An e-mail address.
    Email,
    /// A telephone number.
    Phone,
    /// A postal address.
    Address,
    /// The number of a payment card.
    Card,
    /// The number of a bank account.
    Iban,
    /// Another number that belongs to one person.
    Number,
    /// Free text, to be searched for personal data.
    Text,
    /// The id of a customer.
    Customer,
    /// The id of a case.
    Case,
}

/// A cell: its column, its value, and the kind of personal data that the column is declared to hold.
pub type Cell = (String, Value, Option<PersonalKind>);

/// The result of an operation.
#[derive(Clone, PartialEq)]
pub struct OperationResult {
    /// The rows, each with its columns in the order of the declaration.
    pub rows: Vec<Vec<Cell>>,
    /// The number of rows that were changed; 1 for a request or a mail.
    pub changed: u64,
    /// Rows are missing, because there were more than a result may have.
    pub truncated: bool,
}

/// The most rows of a result.
pub const MAX_ROWS: usize = 1_000;
/// The most bytes of a result's values.
pub const MAX_RESULT_BYTES: usize = 1024 * 1024;

// The values are personal data.
impl std::fmt::Debug for OperationResult {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { rows, changed, truncated } = self;
        let mut shown = f.debug_struct("OperationResult");
        shown.field("rows", &rows.len()).field("changed", changed).field("truncated", truncated).finish()
    }
}

/// Collects rows up to the bounds of a result.
#[derive(Debug)]
pub(crate) struct RowCollector<'a> {
    columns: &'a [(String, Option<PersonalKind>)],
    result: OperationResult,
    bytes: usize,
}

impl<'a> RowCollector<'a> {
    pub(crate) const fn new(columns: &'a [(String, Option<PersonalKind>)]) -> Self {
        let result = OperationResult { rows: Vec::new(), changed: 0, truncated: false };
        Self { columns, result, bytes: 0 }
    }

    /// Adds a row, or returns false where it has no room.
    pub(crate) fn add_row(&mut self, values: impl Iterator<Item = Value>) -> bool {
        // Once a row was left out no later one is taken, so that a result is always a beginning.
        if self.result.truncated || self.result.rows.len() >= MAX_ROWS {
            self.result.truncated = true;
            return false;
        }
        let row: Vec<Cell> = self
            .columns
            .iter()
            .zip(values)
            .map(|((name, kind), value)| (name.clone(), value, *kind))
            .collect();
        self.bytes = row.iter().fold(self.bytes, |sum, (_, value, _)| sum.saturating_add(value_bytes(value)));
        if self.bytes > MAX_RESULT_BYTES {
            self.result.truncated = true;
            return false;
        }
        self.result.rows.push(row);
        true
    }

    /// Leaves a row out that is too large, and returns false.
    pub(crate) const fn overflow(&mut self) -> bool {
        self.result.truncated = true;
        false
    }

    pub(crate) fn finish(mut self, changed: u64) -> OperationResult {
        self.result.changed = changed;
        self.result
    }
}

/// Returns about the memory that a value takes.
fn value_bytes(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 8,
        Value::String(text) => text.len().saturating_add(8),
        Value::Array(list) => list.iter().map(value_bytes).fold(8, usize::saturating_add),
        Value::Object(fields) => fields
            .iter()
            .map(|(name, value)| name.len().saturating_add(value_bytes(value)))
            .fold(8, usize::saturating_add),
    }
}
