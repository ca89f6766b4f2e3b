//! Entries of the ledger, what they rest on, and the erasure of payloads.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::digest::Digest;
use crate::id::{EntrySeq, SessionId, TurnId};
use crate::taint::{Source, Taint};

/// Selects a page of entries, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LedgerFilter {
    /// Only entries before this one.
    #[serde(default)]
    pub before: Option<EntrySeq>,
    /// Only entries after this one.
    #[serde(default)]
    pub after: Option<EntrySeq>,
    /// At most this many: 50 unless named, at most 200.
    #[serde(default)]
    pub limit: Option<usize>,
    /// Only this kind of fact, such as `received` or `denied`.
    #[serde(default)]
    pub event: Option<String>,
    /// Only entries of this session.
    #[serde(default)]
    pub session: Option<SessionId>,
    /// Only entries that contain this text.
    #[serde(default)]
    pub q: Option<String>,
}

/// A page of entries.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LedgerPage {
    /// The entries, newest first.
    pub entries: Vec<LedgerEntry>,
    /// How many entries the ledger has.
    pub size: u64,
}

/// One entry of the ledger.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LedgerEntry {
    /// Its position.
    pub seq: EntrySeq,
    /// When it was written, as RFC 3339.
    pub at: String,
    /// The kind of fact.
    pub event: String,
    /// Its session.
    pub session: Option<SessionId>,
    /// Its turn.
    pub turn: Option<TurnId>,
    /// The number of the turn; zero outside turns.
    pub turn_number: u64,
    /// How far its content may be trusted; none if it has no label.
    pub taint: Option<Value>,
    /// The entry in one line; `erased` without a payload.
    pub summary: String,
    /// The fact; none if it was erased.
    pub payload: Option<Value>,
    /// Its leaf in the Merkle tree.
    pub leaf: Digest,
    /// Whether commitment, signature and leaf agree.
    pub intact: bool,
}

/// Names an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EntryName {
    /// The entry's position.
    pub seq: EntrySeq,
}

/// What an entry or an ask rests on, breadth first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Provenance {
    /// The first is what was named; empty if that has no label.
    pub rests_on: Vec<ProvenanceStep>,
    /// Whether there are more than 200.
    pub more: bool,
}

/// An entry or ask with a label.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProvenanceStep {
    /// The entry; none for an ask.
    pub entry: Option<EntrySeq>,
    /// The kind of fact.
    pub event: String,
    /// How far it may be trusted.
    pub taint: Taint,
    /// Whether it rests on content from outside the sandbox.
    pub outside: bool,
    /// Whether it rests on content that only the owner may be assumed to read.
    pub private: bool,
    /// Where it came from, escaped.
    pub sources: Vec<Source>,
    /// Whether sources were left out.
    pub truncated: bool,
}

/// Entries whose payloads are to be erased.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ErasureRequest {
    /// The entries.
    pub entries: Vec<EntrySeq>,
    /// Why; it is written to the ledger.
    pub reason: String,
}

/// Payloads that were erased.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Erasure {
    /// How many.
    pub erased: usize,
}
