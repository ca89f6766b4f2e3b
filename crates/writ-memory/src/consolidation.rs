//! Consolidation: which memories are merged, put aside, and asked about.
//!
//! A plan alone, over the memories that are handed in one by one; the runtime carries it out. It deletes nothing, never
//! touches what is pinned or what the owner has undone, and raises no trust: the owner is asked. What is external or secret is
//! never proposed (SIL-096, SIL-392).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use writ_store::memory::{Memory, MemorySource, MemoryStatus};
use writ_types::action::{MemoryKind, MemoryTrust};
use writ_types::id::MemoryId;
use writ_types::taint::Taint;
use writ_types::unit::Timestamp;

use crate::config::MemoryConfig;
use crate::words::fold_whole;

/// The importance from which a memory is not put aside for its age.
const IMPORTANT: u16 = 800;

/// The most memories that one plan changes, so that one undo takes back what a person can look through.
pub const MAX_CHANGED: usize = 2_000;

/// The most questions that one plan asks.
pub const MAX_QUESTIONS: usize = 20;

/// The questions that wait at most: while so many do, none is asked.
pub const MAX_OPEN_QUESTIONS: usize = 100;

/// The limits of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanLimits {
    /// The age without use from which a memory is put aside.
    pub stale_after: Duration,
    /// The uses from which the owner is asked to verify a memory.
    pub promote_uses: u64,
}

impl From<&MemoryConfig> for PlanLimits {
    fn from(config: &MemoryConfig) -> Self {
        Self {
            stale_after: Duration::from_secs(u64::from(config.stale_days) * 24 * 60 * 60),
            promote_uses: u64::from(config.promote_uses),
        }
    }
}

/// Equal memories of which one stays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Merge {
    /// The one that stays.
    pub into: MemoryId,
    /// Those that are put aside, with their uses.
    pub from: Vec<(MemoryId, u64)>,
    /// The least trusted label of all, if it is another than that of the one that stays.
    pub taint: Option<Taint>,
}

/// The changes that a consolidation makes, and the questions that it asks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConsolidationPlan {
    /// Equal memories.
    pub merges: Vec<Merge>,
    /// Memories that are put aside because of their age.
    pub stale: Vec<MemoryId>,
    /// Memories that the owner is asked to verify, with their uses.
    pub promote: Vec<(MemoryId, u64)>,
    /// The rows of all that is put aside.
    pub archived_rows: Vec<i64>,
    /// The memories that were looked at.
    pub seen: usize,
}

/// The memories that the owner has had a word about already, by row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SettledRows {
    /// Those of which a consolidation was undone: they stay as they are.
    pub undone: BTreeSet<i64>,
    /// Those that the owner was asked to verify, and has answered or not.
    pub asked: BTreeSet<i64>,
    /// The number of these questions that wait.
    pub open_questions: usize,
    /// The names of the tools that the owner's servers offer: a memory about one is not put aside for its age.
    pub tools: BTreeSet<String>,
}

impl SettledRows {
    /// Returns true if a memory names a tool that is offered, in its text or as one of its entities.
    fn names_tool(&self, memory: &Memory) -> bool {
        let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-');
        let words = memory.item.text.split(|c: char| !is_part(c));
        words.chain(memory.traits.entities.iter().map(String::as_str)).any(|word| self.tools.contains(word))
    }
}

/// Makes a plan while memories pass by.
#[derive(Debug)]
pub struct Planner {
    limits: PlanLimits,
    now: Timestamp,
    settled: SettledRows,
    plan: ConsolidationPlan,
    /// The memory that stays, for each identity and scope; with it the place of its merge.
    first: BTreeMap<(u64, u64), Representative>,
}

#[derive(Debug)]
struct Representative {
    id: MemoryId,
    trust: MemoryTrust,
    taint: Taint,
    merge: Option<usize>,
}

impl Planner {
    /// Begins a plan.
    pub fn new(limits: PlanLimits, settled: SettledRows, now: Timestamp) -> Self {
        Self { limits, now, settled, plan: ConsolidationPlan::default(), first: BTreeMap::new() }
    }

    /// Takes a memory into account. Memories come in the order in which they were stored.
    pub fn add(&mut self, memory: &Memory) {
        self.plan.seen += 1;
        let is_settled = memory.traits.pinned || self.settled.undone.contains(&memory.row);
        if memory.traits.status != MemoryStatus::Active {
            return;
        }
        // A merged memory is put aside already, and must not count as stale, too.
        if !is_settled && self.merge_equal(memory) {
            return;
        }
        let is_old = is_stale(memory, self.limits.stale_after, self.now);
        if !is_settled && is_old && !self.settled.names_tool(memory) {
            if self.plan.stale.len() < MAX_CHANGED {
                self.plan.stale.push(memory.id);
                self.plan.archived_rows.push(memory.row);
            }
        } else if is_promotable(memory)
            && memory.traits.uses >= self.limits.promote_uses
            && !self.settled.asked.contains(&memory.row)
        {
            self.plan.promote.push((memory.id, memory.traits.uses));
        }
    }

    /// Returns the plan; the most used memories are asked about first.
    pub fn finish(mut self) -> ConsolidationPlan {
        // Equal uses are ordered by id, so that the same memories give the same plan.
        self.plan.promote.sort_by(|left, right| right.1.cmp(&left.1).then(left.0.cmp(&right.0)));
        // Each is asked about once, so that the next ones have their turn; and not all at once.
        let room = MAX_OPEN_QUESTIONS.saturating_sub(self.settled.open_questions);
        self.plan.promote.truncate(MAX_QUESTIONS.min(room));
        self.plan
    }

    /// Merges a memory with an equal one; returns true if it is put aside for that.
    fn merge_equal(&mut self, memory: &Memory) -> bool {
        let (item, identity) = (&memory.item, fold_whole(&memory.item.text));
        // Two episodes with the same text are two events, so they are not merged.
        if item.memory_kind == MemoryKind::Episode || identity.is_empty() {
            return false;
        }
        // Only what is alike in kind, scope, secrecy and time is one memory.
        let scope = (item.memory_kind, item.session, item.secret, memory.traits.happened);
        let key = hash_pair(&(identity, scope));
        let new = Representative { id: memory.id, trust: item.trust, taint: item.taint, merge: None };
        let Some(first) = self.first.get_mut(&key) else {
            self.first.insert(key, new);
            return false;
        };
        // One that the owner has confirmed stands alone: an equal text of others changes neither its words nor its label.
        let joins = memory.item.trust <= first.trust;
        let merged: usize = self.plan.merges.iter().map(|merge| merge.from.len()).sum();
        if !joins || merged >= MAX_CHANGED {
            return false;
        }
        let at = *first.merge.get_or_insert_with(|| {
            self.plan.merges.push(Merge { into: first.id, from: Vec::new(), taint: None });
            self.plan.merges.len() - 1
        });
        let merge = &mut self.plan.merges[at];
        merge.from.push((memory.id, memory.traits.uses));
        self.plan.archived_rows.push(memory.row);
        // The merged text stands for all of them, so its label is that of the least trusted of them.
        if first.trust == MemoryTrust::Working && item.taint > first.taint {
            first.taint = item.taint;
            merge.taint = Some(item.taint);
        }
        true
    }
}

fn hash_pair(value: &impl std::hash::Hash) -> (u64, u64) {
    use std::hash::{DefaultHasher, Hasher as _};
    // Two independent sums of 64 bits: equal ones of different texts are not to be expected among millions.
    let sum = |salt: u8| {
        let mut hasher = DefaultHasher::new();
        hasher.write_u8(salt);
        value.hash(&mut hasher);
        hasher.finish()
    };
    (sum(0), sum(1))
}

/// Returns true if nothing has used a memory for so long that it is put aside.
fn is_stale(memory: &Memory, after: Duration, now: Timestamp) -> bool {
    let (item, traits) = (&memory.item, &memory.traits);
    // The owner's word, rules, and what other memories follow from stay.
    let stays = traits.pinned
        || item.trust != MemoryTrust::Working
        || traits.importance >= IMPORTANT
        || traits.source == MemorySource::User
        || matches!(item.memory_kind, MemoryKind::Profile | MemoryKind::Procedure | MemoryKind::Preference);
    let touched = traits.used_at.map_or(memory.at, |used| used.max(memory.at));
    !stays && now.time_since(touched) > after
}

/// Returns true if a memory may become a verified one with the owner's word.
pub fn is_promotable(memory: &Memory) -> bool {
    memory.item.trust == MemoryTrust::Working && memory.item.taint != Taint::External && !memory.item.secret
}

#[cfg(test)]
mod tests;
