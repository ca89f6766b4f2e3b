//! Memories.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::action::{MemoryKind, MemoryTrust};
use crate::id::{EntrySeq, MemoryId, SessionId};
use crate::taint::Taint;

/// The state of a memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MemoryStatus {
    /// It is found.
    #[default]
    Active,
    /// It waits for the owner, and is not found.
    Pending,
    /// It is put aside, and not found.
    Archived,
}

/// The party that a memory is from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemorySource {
    /// The owner.
    User,
    /// The harness, which has noticed something.
    Observer,
    /// An agent.
    #[default]
    Agent,
}

/// The kind of a question about a memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum QuestionKind {
    /// It was used often: is it true?
    Promote,
    /// It contradicts another: which of them is true?
    Contradiction,
    /// It was inferred from what the owner does: is it so?
    Preference,
}

/// A search of the memories.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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

/// Names memories by their state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MemoryFilter {
    /// At most this many of them, the newest first: 500 unless named, and at most.
    #[serde(default)]
    pub limit: Option<usize>,
}

/// The hits of a search, best first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MemoryHits {
    /// The hits.
    pub hits: Vec<FoundMemory>,
    /// The reason why the query cannot find anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// A hit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
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
    /// The fused score: larger is better.
    pub score: f64,
    /// The reasons why it was found.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<String>,
}

// tidy: plain state
/// A memory with all that is so of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ShownMemory {
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
    /// The session that it belongs to; `None`: all.
    pub session: Option<SessionId>,
    /// When it was stored, as RFC 3339.
    pub at: String,
    /// The entry of the ledger that recorded it.
    pub entry: Option<EntrySeq>,
    /// Its state.
    pub status: MemoryStatus,
    /// The party that it is from.
    pub source: MemorySource,
    /// Its importance, in thousandths.
    pub importance: u16,
    /// True if it is never put aside.
    pub pinned: bool,
    /// When it happened, as RFC 3339.
    pub happened: Option<String>,
    /// The number of times that it was put into a context.
    pub uses: u64,
    /// The last of these times, as RFC 3339.
    pub used_at: Option<String>,
    /// The names that it refers to.
    pub entities: Vec<String>,
    /// Its causes, nearest first.
    pub causes: Vec<LinkedMemory>,
    /// The memories that follow from it.
    pub effects: Vec<LinkedMemory>,
    /// The names that are reached over memories from its own.
    pub related: Vec<String>,
}

/// A memory that another refers to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LinkedMemory {
    /// Its id.
    pub id: MemoryId,
    /// Its text.
    pub text: String,
}

/// A change of a memory by the owner. What is not named stays.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MemoryAmendment {
    /// The memory.
    pub id: MemoryId,
    /// Another text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Another importance, in thousandths.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub importance: Option<u16>,
    /// Pinned or not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pinned: Option<bool>,
    /// The memories that it follows from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub causes: Option<Vec<MemoryId>>,
}

/// The curated profile of the owner, which stands in every context.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CuratedProfile {
    /// Its text: Markdown with five sections.
    pub text: String,
    /// The trust in it: that in the least trusted memory that its writer has read.
    pub taint: Taint,
    /// When it was written, as RFC 3339.
    pub at: String,
}

/// The result of a digest for the profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DigestOutcome {
    /// There is no memory that a profile may rest on.
    NothingRemembered,
    /// The memories are those of the digest before, so that no model was asked.
    NothingNew,
    /// The model has written the same profile.
    Unchanged,
    /// There is a new profile.
    Written,
}

/// Something that memories should become, for the owner to decide.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DigestSuggestion {
    /// The form: `procedure` or `tool`.
    pub becomes: String,
    /// The suggestion, written by a model.
    pub text: String,
    /// The memories.
    pub memories: Vec<MemoryId>,
}

/// The report of a digest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DigestReport {
    /// When it ended, as RFC 3339.
    pub at: String,
    /// The result for the profile.
    pub outcome: DigestOutcome,
    /// The memories that it has read.
    pub memories: usize,
    /// Those that there was no room for.
    pub left_out: usize,
    /// The contradictions that the owner is asked about.
    pub contradictions: usize,
    /// Suggestions for the owner; none is carried out without them.
    pub suggestions: Vec<DigestSuggestion>,
    /// A remark for people, such as why the change was not recorded with git.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// The curated profile, and the last digest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProfileView {
    /// The profile; none before the first digest.
    pub profile: Option<CuratedProfile>,
    /// The report of the last digest.
    pub report: Option<DigestReport>,
}

/// What waits for the owner.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PendingMemories {
    /// Memories that are not found until they are confirmed.
    pub pending: Vec<FoundMemory>,
    /// Questions about memories.
    pub questions: Vec<MemoryQuestionRow>,
}

/// A question about memories.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MemoryQuestionRow {
    /// Its kind.
    pub kind: QuestionKind,
    /// The memory.
    pub id: MemoryId,
    /// Its text.
    pub text: String,
    /// The other memory, of a contradiction.
    pub other: Option<LinkedMemory>,
    /// The reason.
    pub reason: String,
}

/// The owner's word about a memory that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MemoryAnswer {
    /// The memory.
    pub id: MemoryId,
    /// True: it is so, and what contradicts it is not; false: it is put aside.
    pub confirm: bool,
}

/// The effect of the owner's word about a memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MemoryOutcome {
    /// It is so.
    Confirmed,
    /// It is not so, and was put aside.
    PutAside,
    /// It stays as it was; the questions about it are answered.
    Stays,
}

/// The changes that the owner's word about a memory has made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AnsweredMemory {
    /// The name of the changes.
    pub batch: String,
    /// Their number.
    pub changes: u64,
    /// The effect on the memory.
    pub outcome: MemoryOutcome,
    /// The memories that contradicted it and were put aside.
    pub others: Vec<MemoryId>,
}

/// Names the changes to undo.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryUndoing {
    /// The name of the changes; `None`: the last ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<String>,
}

/// The changes that were made, or undone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MemoryChanges {
    /// The name of the changes.
    pub batch: String,
    /// Their number.
    pub changes: u64,
}

/// A part of all memories, for an export.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryPageQuery {
    /// The row behind which the part begins.
    #[serde(default)]
    pub after: i64,
}

/// Such a part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MemoryPage {
    /// Lines of the bundle.
    pub lines: Vec<String>,
    /// The row behind which the next part begins; `None`: this was the last.
    pub next: Option<i64>,
}

/// Memories of a bundle.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryLines {
    /// Lines of the bundle, without its header.
    pub lines: Vec<String>,
    /// True: memories of the same id are replaced; false: they stay as they are.
    pub replace: bool,
}

/// The result of an import.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryImported {
    /// Memories that were added.
    pub added: u64,
    /// Memories that were there and were replaced.
    pub replaced: u64,
    /// Memories that were there and stay.
    pub unchanged: u64,
}

/// Names several memories.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryNames {
    /// The memories.
    pub ids: Vec<MemoryId>,
}

/// The number of memories.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryFigures {
    /// By status and kind.
    pub counts: Vec<MemoryCount>,
    /// Questions that wait.
    pub questions: u64,
    /// Bytes of all texts.
    pub text_bytes: u64,
    /// The model that turns texts into vectors; `None`: there is none, and memories are found by their words.
    pub embedder: Option<String>,
    /// Its state, for people.
    pub embedder_state: String,
    /// Vectors by model.
    pub vectors: Vec<VectorCount>,
    /// The changes that can be undone, the last first.
    pub changes: Vec<MemoryChanges>,
}

/// The number of memories of a status and a kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryCount {
    /// The status.
    pub status: String,
    /// The kind.
    pub kind: String,
    /// The number.
    pub count: u64,
}

/// The number of vectors of a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VectorCount {
    /// The model.
    pub model: String,
    /// The numbers of one vector.
    pub dimension: u32,
    /// The number of memories that have one.
    pub count: u64,
    /// True if searches use them.
    pub serving: bool,
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
    /// Its importance, in thousandths: 700 unless named.
    #[serde(default = "default_importance")]
    pub importance: u16,
    /// True if it is never put aside.
    #[serde(default)]
    pub pinned: bool,
    /// The memories that it follows from.
    #[serde(default)]
    pub causes: Vec<MemoryId>,
}

const fn default_importance() -> u16 {
    700
}

const fn default_kind() -> MemoryKind {
    MemoryKind::Fact
}

/// Names a memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MemoryName {
    /// The memory.
    pub id: MemoryId,
}
