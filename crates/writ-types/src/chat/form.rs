//! The form that a model's answer must have, and the effort of its reasoning.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The form that an answer of a model must have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnswerForm {
    /// A name, of letters, digits and underscores: some providers show it to the model.
    pub name: String,
    /// JSON Schema of the answer; its root is an object.
    pub schema: Value,
}

impl AnswerForm {
    /// Describes an answer by name and JSON Schema.
    pub fn new(name: &str, schema: Value) -> Self {
        Self { name: name.to_owned(), schema }
    }
}

/// The effort of a model's reasoning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effort {
    /// The lowest effort that the provider offers.
    Low,
    /// An effort between the two.
    Medium,
    /// The highest effort.
    High,
}

impl Effort {
    /// Returns the name in the configuration, which most providers use as well.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }
}

impl fmt::Display for Effort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
