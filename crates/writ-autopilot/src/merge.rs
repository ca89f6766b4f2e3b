//! The order of merges, and the search for the slice that breaks a batch.
//!
//! The checks run on the merged result, and the target moves by compare-and-swap; the shell does both. Here is decided which
//! slice comes next, and what a failed batch says.

use std::collections::{BTreeMap, BTreeSet};

use writ_types::unit::Timestamp;

use crate::unit_id::UnitId;

/// The most slices that are merged and checked together.
pub const MAX_BATCH: usize = 16;

/// A slice that could be merged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MergeCandidate {
    /// The slice.
    pub id: UnitId,
    /// The time at which it was planned.
    pub created_at: Timestamp,
    /// Slices that are merged before it.
    pub code_depends_on: BTreeSet<UnitId>,
}

/// Returns the slices in the order of their merges: dependencies first, then the older one, whichever was done first (SF 12.3).
///
/// Only slices that are ready are given, so that an unfinished older one holds none back (resolution 14). A slice waits, and is
/// not returned, while one that it depends on is neither merged nor ready.
pub fn order_merges(ready: &[MergeCandidate], merged: &BTreeSet<UnitId>) -> Vec<UnitId> {
    let mut open: Vec<&MergeCandidate> = ready.iter().collect();
    open.sort_by(|one, other| one.created_at.cmp(&other.created_at).then_with(|| one.id.cmp_text(other.id)));
    let mut done: BTreeSet<UnitId> = merged.clone();
    let mut order = Vec::new();
    // Each round takes the oldest one that is free; a circle, which no plan has, ends it.
    while let Some(at) = open.iter().position(|slice| slice.code_depends_on.is_subset(&done)) {
        let slice = open.remove(at);
        done.insert(slice.id);
        order.push(slice.id);
    }
    order
}

/// The result of checking a part of a batch on top of the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchResult {
    /// The merged tree passes.
    Pass,
    /// It does not pass, or does not merge.
    Fail,
}

/// The next step of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BatchStep {
    /// Merge these in order on top of what is good already, and check the result.
    Check(Vec<UnitId>),
    /// All is known.
    Done {
        /// The slices that pass together, in order.
        good: Vec<UnitId>,
        /// The slices that break what is before them.
        bad: Vec<UnitId>,
        /// The slices that depend on a bad one: they wait.
        waiting: Vec<UnitId>,
    },
}

/// A batch of slices while it is bisected: n slices with one bad one cost about 2 log n checks instead of n.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MergeBatch {
    depends: BTreeMap<UnitId, BTreeSet<UnitId>>,
    good: Vec<UnitId>,
    bad: Vec<UnitId>,
    waiting: Vec<UnitId>,
    /// Parts that are not judged yet, the next one last.
    open: Vec<Vec<UnitId>>,
}

impl MergeBatch {
    /// Begins a batch of the first [`MAX_BATCH`] slices of an order.
    pub fn of_order(order: &[UnitId], ready: &[MergeCandidate]) -> Self {
        let batch: Vec<UnitId> = order.iter().copied().take(MAX_BATCH).collect();
        let depends = ready.iter().map(|slice| (slice.id, slice.code_depends_on.clone())).collect();
        Self { depends, good: Vec::new(), bad: Vec::new(), waiting: Vec::new(), open: vec![batch] }
    }

    /// Returns the next step. The same one again, until its result is counted.
    pub fn next_step(&mut self) -> BatchStep {
        while let Some(part) = self.open.pop() {
            // What rests on a bad slice cannot be merged without it.
            let broken: Vec<UnitId> = self.bad.iter().chain(&self.waiting).copied().collect();
            let rests = |id: &UnitId| {
                self.depends.get(id).is_some_and(|needs| broken.iter().any(|other| needs.contains(other)))
            };
            let (waits, part): (Vec<UnitId>, Vec<UnitId>) = part.into_iter().partition(rests);
            if !waits.is_empty() {
                // One that waits can hold others of the same part: they are looked at again.
                self.waiting.extend(waits);
                self.open.push(part);
            } else if !part.is_empty() {
                self.open.push(part.clone());
                return BatchStep::Check(part);
            }
        }
        BatchStep::Done { good: self.good.clone(), bad: self.bad.clone(), waiting: self.waiting.clone() }
    }

    /// Counts the result of the last [`BatchStep::Check`].
    pub fn count_result(&mut self, result: BatchResult) {
        let Some(part) = self.open.pop() else { return };
        match result {
            BatchResult::Pass => self.good.extend(part),
            BatchResult::Fail if part.len() <= 1 => self.bad.extend(part),
            BatchResult::Fail => {
                let (first, second) = part.split_at(part.len() / 2);
                // The first half is judged first: the second stands on what of it is good.
                self.open.push(second.to_vec());
                self.open.push(first.to_vec());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn slice(number: u32, created: i64, depends: &[u32]) -> MergeCandidate {
        MergeCandidate {
            id: UnitId::Slice(1, number),
            created_at: Timestamp::from_millis(created),
            code_depends_on: depends.iter().map(|number| UnitId::Slice(1, *number)).collect(),
        }
    }

    fn numbers(ids: &[UnitId]) -> Vec<u32> {
        ids.iter().map(|id| id.number()).collect()
    }

    /// Rows: SF-236 SF-237 (the order; the merges need the shell)
    #[test]
    fn dependencies_come_first_and_then_the_older_slice() {
        let order = |ready: &[MergeCandidate], merged: &[u32]| {
            let merged = merged.iter().map(|number| UnitId::Slice(1, *number)).collect();
            numbers(&order_merges(ready, &merged))
        };
        assert_eq!(order(&[slice(2, 20, &[]), slice(1, 10, &[]), slice(3, 5, &[])], &[]), [3, 1, 2]);
        // The older one depends on the younger one.
        assert_eq!(order(&[slice(1, 10, &[2]), slice(2, 20, &[])], &[]), [2, 1]);
        // It depends on one that is not ready, then on one that is merged.
        assert_eq!(order(&[slice(1, 10, &[9]), slice(2, 20, &[])], &[]), [2]);
        assert_eq!(order(&[slice(1, 10, &[9]), slice(2, 20, &[])], &[9]), [1, 2]);
        assert_eq!(order(&[slice(1, 10, &[2]), slice(2, 20, &[1])], &[]), [0_u32; 0], "a circle");
        assert_eq!(order(&[slice(10, 5, &[]), slice(2, 5, &[])], &[]), [10, 2], "by the text of the id");
    }

    /// Plays a batch in which these slices fail on top of anything; returns the lists and the number of checks.
    fn play(ready: &[MergeCandidate], broken: &[u32]) -> (Vec<u32>, Vec<u32>, Vec<u32>, u32) {
        let mut batch = MergeBatch::of_order(&order_merges(ready, &BTreeSet::new()), ready);
        let mut checks = 0;
        loop {
            match batch.next_step() {
                BatchStep::Done { good, bad, waiting } => {
                    return (numbers(&good), numbers(&bad), numbers(&waiting), checks);
                }
                BatchStep::Check(part) => {
                    checks += 1;
                    let fails = numbers(&part).iter().any(|number| broken.contains(number));
                    batch.count_result(if fails { BatchResult::Fail } else { BatchResult::Pass });
                }
            }
        }
    }

    #[test]
    fn a_batch_is_bisected_until_every_slice_is_judged() {
        let ready: Vec<MergeCandidate> = (1..=8).map(|n| slice(n, n.into(), &[])).collect();
        assert_eq!(play(&ready, &[]), ((1..=8).collect(), Vec::new(), Vec::new(), 1));
        let (good, bad, _, checks) = play(&ready, &[6]);
        assert_eq!((good, bad), (vec![1, 2, 3, 4, 5, 7, 8], vec![6]));
        assert_eq!(checks, 7);
        let chained = [slice(1, 1, &[]), slice(2, 2, &[1]), slice(3, 3, &[2]), slice(4, 4, &[])];
        let (good, bad, waiting, _) = play(&chained, &[1]);
        assert_eq!((good, bad, waiting), (vec![4], vec![1], vec![2, 3]));
        assert_eq!(play(&[], &[]), (Vec::new(), Vec::new(), Vec::new(), 0));
        let many: Vec<MergeCandidate> = (1..=40).map(|n| slice(n, n.into(), &[])).collect();
        assert_eq!(play(&many, &[]).0.len(), MAX_BATCH);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

        /// Each slice is in exactly one list, the good ones are those that are not broken and rest on none, and no batch
        /// costs more than two checks for each slice.
        #[test]
        fn every_slice_is_judged_once(
            edges in prop::collection::vec((1..10_u32, 1..10_u32), 0..8),
            broken in prop::collection::vec(1..10_u32, 0..4),
        ) {
            let depends = |n: u32| edges.iter().filter(|(from, to)| *from == n && to < from).map(|(_, to)| *to).collect::<Vec<_>>();
            let ready: Vec<MergeCandidate> = (1..10).map(|n| slice(n, n.into(), &depends(n))).collect();
            let (good, bad, waiting, checks) = play(&ready, &broken);
            let mut all: Vec<u32> = good.iter().chain(&bad).chain(&waiting).copied().collect();
            all.sort_unstable();
            prop_assert_eq!(all, (1..10).collect::<Vec<_>>());
            let mut fine: BTreeSet<u32> = BTreeSet::new();
            for n in 1..10 {
                if !broken.contains(&n) && depends(n).iter().all(|other| fine.contains(other)) {
                    fine.insert(n);
                }
            }
            prop_assert_eq!(good.into_iter().collect::<BTreeSet<_>>(), fine);
            prop_assert!(bad.iter().all(|n| broken.contains(n)));
            prop_assert!(checks <= 18);
        }
    }
}
