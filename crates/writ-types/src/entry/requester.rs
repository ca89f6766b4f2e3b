//! Programs outside that ask the security proxy or the model router.

use serde::{Deserialize, Serialize};

use crate::digest::Digest;

/// A program that asks the security proxy or the model router, as far as its keys prove it. The keys themselves are in no record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Requester {
    /// The agent that the keys are for; empty if none is proven.
    pub agent: String,
    /// The hash of the base key; `None`: none was shown.
    pub base: Option<Digest>,
    /// The hash of the task key; `None`: none was shown.
    pub task: Option<Digest>,
    /// The operation that it asks for.
    pub operation: String,
    /// The tokens of the customer and case that own the data it reaches; empty if no key proves one.
    pub data: Vec<String>,
    /// The whole prompt that it asks a model with, as it is sent, sealed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sealed_prompt: Option<SealedText>,
}

/// A content that only its home's key of contents opens, in base 64.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SealedText(pub String);

impl std::fmt::Debug for SealedText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // It can have megabytes, and says nothing to a person.
        write!(f, "SealedText({} bytes)", self.0.len())
    }
}
