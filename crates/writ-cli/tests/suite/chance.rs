//! Numbers of chance, and those that a task sets for longer runs.

/// Numbers of chance, the same for the same seed.
#[derive(Clone, Debug)]
pub(super) struct Chance(u64);

impl Chance {
    pub(super) const fn of_seed(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `end`.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }

    pub(super) fn pick<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        let at = self.below(u64::try_from(list.len()).expect("small"));
        &list[usize::try_from(at).expect("small")]
    }
}

/// A number of the environment, for longer or repeated runs; `otherwise` in every usual run.
#[expect(clippy::disallowed_methods, reason = "a test that a task runs for longer")]
pub(super) fn number_of(name: &str, otherwise: u64) -> u64 {
    let Some(text) = std::env::var_os(name) else { return otherwise };
    text.to_str().and_then(|text| text.parse().ok()).expect("a number")
}
