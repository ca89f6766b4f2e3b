//! Memories.

use serde::{Deserialize, Serialize};

use crate::action::{MemoryKind, MemoryTrust};
use crate::id::MemoryId;
use crate::taint::Taint;

/// A search of the memories.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryQuery {
    /// The words.
    pub query: String,
    /// At most this many hits: 20 unless named, at most 500.
    #[serde(default = "default_limit")]
    pub limit: usize,
}

const fn default_limit() -> usize {
    20
}

/// The hits of a search, best first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MemoryHits {
    /// The hits.
    pub hits: Vec<FoundMemory>,
    /// The reason why the query cannot find anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// A hit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FoundMemory {
    /// Its id.
    pub id: MemoryId,
    /// Its text.
    pub text: String,
    /// Its kind.
    pub kind: MemoryKind,
    /// The owner's confirmation.
    pub trust: MemoryTrust,
    /// The trust in it.
    pub taint: Taint,
    /// True if only models that are cleared for secrets may read it.
    pub secret: bool,
    /// When it was stored, as RFC 3339.
    pub at: String,
    /// BM25: larger is better.
    pub score: f64,
}

/// A memory that the owner adds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewFact {
    /// The text.
    pub text: String,
    /// Its kind; a fact unless named.
    #[serde(default = "default_kind")]
    pub kind: MemoryKind,
}

const fn default_kind() -> MemoryKind {
    MemoryKind::Fact
}

/// Names a memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryName {
    /// The memory.
    pub id: MemoryId,
}
