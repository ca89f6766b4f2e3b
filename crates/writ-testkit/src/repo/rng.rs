//! Choices that are the same in every run.

/// SplitMix64: small, and the same everywhere, which is all that is asked of it.
#[derive(Clone, Debug)]
pub(super) struct Rng(u64);

impl Rng {
    pub(super) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`; 0 where there is none.
    pub(super) fn below(&mut self, end: usize) -> usize {
        let end = u64::try_from(end).unwrap_or(u64::MAX).max(1);
        usize::try_from(self.next() % end).unwrap_or(0)
    }

    /// A number from `low` to `high`, both included.
    pub(super) fn range(&mut self, low: i64, high: i64) -> i64 {
        let span = usize::try_from(high - low + 1).unwrap_or(1);
        low + i64::try_from(self.below(span)).unwrap_or(0)
    }

    pub(super) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// One of these words; none of none.
    pub(super) fn word(&mut self, words: &[&'static str]) -> &'static str {
        words.get(self.below(words.len())).copied().unwrap_or_default()
    }

    /// Takes one out.
    pub(super) fn take<T>(&mut self, from: &mut Vec<T>) -> Option<T> {
        if from.is_empty() { None } else { Some(from.swap_remove(self.below(from.len()))) }
    }

    /// The same things in another order.
    pub(super) fn shuffled<T>(&mut self, mut from: Vec<T>) -> Vec<T> {
        let mut out = Vec::with_capacity(from.len());
        while let Some(one) = self.take(&mut from) {
            out.push(one);
        }
        out
    }
}
