//! Random numbers that a seed repeats.

use std::time::Duration;

/// SplitMix64: good enough to choose moments, and the same everywhere.
#[derive(Clone, Debug)]
pub(super) struct Random {
    state: u64,
}

impl Random {
    /// Numbers that this seed gives.
    pub(super) const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// True once in so many times.
    pub(super) fn one_in(&mut self, many: u64) -> bool {
        self.next().is_multiple_of(many)
    }

    /// Any number.
    pub(super) fn any(&mut self) -> u64 {
        self.next()
    }

    /// A duration of at most this, in whole microseconds.
    pub(super) fn below(&mut self, most: Duration) -> Duration {
        let most = u64::try_from(most.as_micros()).unwrap_or(u64::MAX - 1);
        Duration::from_micros(self.next() % (most + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_and_another_differs() {
        let moments = |seed| {
            let mut random = Random::new(seed);
            (0..100).map(|_| random.below(Duration::from_millis(400))).collect::<Vec<_>>()
        };
        assert_eq!(moments(7), moments(7));
        assert_ne!(moments(7), moments(8));
        assert!(moments(7).iter().all(|moment| *moment <= Duration::from_millis(400)));
        let (mut early, mut late) = (moments(7), moments(7));
        early.retain(|moment| *moment < Duration::from_millis(200));
        late.retain(|moment| *moment >= Duration::from_millis(200));
        assert!(early.len() > 30 && late.len() > 30, "they are spread");
    }
}
