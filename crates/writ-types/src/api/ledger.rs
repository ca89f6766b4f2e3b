//! Entries of the ledger, their provenance, and the erasure of payloads.

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
    /// Only entries whose payload contains this text.
    #[serde(default)]
    pub q: Option<String>,
}

/// A page of entries.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LedgerPage {
    /// The entries, newest first.
    pub entries: Vec<LedgerEntry>,
    /// The number of entries in the ledger.
    pub size: u64,
}

/// One entry of the ledger.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LedgerEntry {
    /// Its position.
    pub seq: EntrySeq,
    /// The time at which it was written, as RFC 3339.
    pub at: String,
    /// The kind of fact.
    pub event: String,
    /// Its session.
    pub session: Option<SessionId>,
    /// Its turn.
    pub turn: Option<TurnId>,
    /// The number of the turn; zero outside turns.
    pub turn_number: u64,
    /// The trust in its content; none if it has no label.
    pub taint: Option<Value>,
    /// The entry in one line; `erased` if the payload was erased.
    pub summary: String,
    /// The fact; none if it was erased.
    pub payload: Option<Value>,
    /// The hash of its leaf in the ledger's Merkle tree.
    pub leaf: Digest,
    /// True if the commitment fits the payload, and signature and leaf fit the entry.
    pub intact: bool,
}

/// Names an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EntryName {
    /// The entry's position.
    pub seq: EntrySeq,
}

/// A proof that an entry is in the ledger, which can be checked with the harness's public key alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EntryProof {
    /// The entry's position.
    pub seq: u64,
    /// The time at which it was written, in milliseconds since 1970.
    pub at: i64,
    /// Its session; empty if it has none.
    pub session: String,
    /// Its turn; empty if it has none.
    pub turn: String,
    /// The number of the turn; zero outside turns.
    pub turn_number: i64,
    /// The kind of fact.
    pub event: String,
    /// The commitment to the payload, hexadecimal.
    pub commitment: String,
    /// The salt of the payload, hexadecimal; none if it was erased.
    pub salt: Option<String>,
    /// The payload, byte for byte as the commitment covers it; none if it was erased.
    pub payload: Option<String>,
    /// The signature over the header, hexadecimal.
    pub signature: String,
    /// The hashes of the siblings on the way from the leaf to the tree's root, lowest first, hexadecimal.
    pub path: Vec<String>,
    /// The signed head with the root that the path leads to.
    pub checkpoint: String,
}

/// The entries whose content has influenced an entry or an ask, nearest first (breadth first).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Provenance {
    /// The entry or ask itself, then its sources; empty if it has no label.
    pub rests_on: Vec<ProvenanceStep>,
    /// True if there are more than 200.
    pub more: bool,
}

/// An entry or ask with its label.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProvenanceStep {
    /// The entry; none for an ask.
    pub entry: Option<EntrySeq>,
    /// The kind of fact.
    pub event: String,
    /// The trust in it.
    pub taint: Taint,
    /// True if it rests on content from outside the sandbox.
    pub outside: bool,
    /// True if it rests on content that perhaps only the owner may read.
    pub private: bool,
    /// Its sources, escaped.
    pub sources: Vec<Source>,
    /// True if sources were left out.
    pub truncated: bool,
}

/// A request to erase the payloads of entries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ErasureRequest {
    /// The entries.
    pub entries: Vec<EntrySeq>,
    /// The reason; it is written to the ledger.
    pub reason: String,
}

/// Payloads that were erased.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Erasure {
    /// The number of payloads.
    pub erased: usize,
}
