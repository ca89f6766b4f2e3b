//! How far estimates of tokens are from what providers count, model by model.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use writ_types::unit::Tokens;

/// The correction of a model of which nothing is known: 1,000 real tokens for 1,000 estimated ones.
pub(crate) const NO_CORRECTION: u32 = 1_000;

/// The least request that says something: in small ones, what the provider adds itself weighs too much.
const LEAST_ESTIMATE: u64 = 400;

/// The largest correction that is believed; see [`writ_agent::config::CORRECTION_BOUNDS`].
const MOST: u64 = 4_000;

/// The most models that are remembered.
const MAX_MODELS: usize = 256;

/// The measured corrections, by model. An estimate that is too high only costs room, so that no correction is below
/// [`NO_CORRECTION`].
#[derive(Debug, Default)]
pub(crate) struct Estimates(Mutex<BTreeMap<String, u32>>);

impl Estimates {
    /// Returns the real tokens for every 1,000 estimated ones.
    pub(crate) fn correction(&self, model: &str) -> u32 {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(model).copied().unwrap_or(NO_CORRECTION)
    }

    /// Notes what a provider has counted for a request. Returns all corrections, as they are stored, if one has changed.
    pub(crate) fn note_usage(
        &self,
        model: &str,
        estimated: Tokens,
        counted: Tokens,
    ) -> Option<BTreeMap<String, u32>> {
        if estimated.get() < LEAST_ESTIMATE || counted == Tokens::ZERO {
            return None;
        }
        let measured = counted.get().saturating_mul(1_000) / estimated.get();
        let measured = measured.clamp(u64::from(NO_CORRECTION), MOST);
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = !known.contains_key(model);
        if is_new && known.len() >= MAX_MODELS {
            return None;
        }
        let before = u64::from(known.get(model).copied().unwrap_or(NO_CORRECTION));
        // Upwards at once, since the next request must fit; downwards slowly, since texts differ.
        let next = if measured >= before { measured } else { (before * 7 + measured) / 8 };
        if next == before {
            return None;
        }
        known.insert(model.to_owned(), u32::try_from(next).unwrap_or(NO_CORRECTION));
        Some(known.clone())
    }

    /// Takes over the corrections of an earlier run, as far as they can be believed.
    pub(crate) fn restore(&self, stored: BTreeMap<String, u32>) {
        let believed = |correction: &u32| *correction >= NO_CORRECTION && u64::from(*correction) <= MOST;
        let stored = stored.into_iter().filter(|(_, correction)| believed(correction)).take(MAX_MODELS);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(stored);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_estimate_that_is_too_low_is_corrected_at_once_and_forgotten_slowly() {
        let estimates = Estimates::default();
        let note = |estimated, counted| {
            estimates.note_usage("p/m", Tokens::new(estimated), Tokens::new(counted));
            estimates.correction("p/m")
        };
        assert_eq!(estimates.correction("p/m"), 1_000);
        assert_eq!(note(100, 900), 1_000, "too small to say anything");
        assert_eq!(note(1_000, 0), 1_000, "nothing was counted");
        assert_eq!(note(1_000, 500), 1_000, "never below what is estimated");
        assert_eq!(note(1_000, 1_600), 1_600);
        assert_eq!(note(1_000, 1_000), 1_525);
        assert_eq!(note(1_000, 90_000), 4_000, "not beyond the bound");
        assert_eq!(estimates.correction("p/other"), 1_000);
    }

    #[test]
    fn corrections_outlast_a_run_as_far_as_they_can_be_believed() {
        let (first, next) = (Estimates::default(), Estimates::default());
        assert_eq!(first.note_usage("p/m", Tokens::new(1_000), Tokens::new(900)), None, "nothing to store");
        let stored = first.note_usage("p/m", Tokens::new(1_000), Tokens::new(1_600)).expect("it has changed");
        assert_eq!(first.note_usage("p/m", Tokens::new(1_000), Tokens::new(1_600)), None, "nothing new");
        next.restore(stored);
        next.restore(BTreeMap::from([("p/x".to_owned(), 40_000), ("p/y".to_owned(), 7)]));
        assert_eq!(["p/m", "p/x", "p/y"].map(|model| next.correction(model)), [1_600, 1_000, 1_000]);
    }
}
