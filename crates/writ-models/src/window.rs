//! The context windows of models, learned from their refusals.

use std::collections::BTreeMap;
use std::time::Duration;

use writ_types::unit::{Timestamp, Tokens};

use crate::error::ContextSizes;
use crate::plan::PlannedCall;

/// For how long a learned size counts. A local server may be started again with a larger context.
pub const LEARNED_FOR: Duration = Duration::from_secs(60 * 60);

/// The smallest window that is believed, in estimated tokens, even if a provider names a smaller one.
pub const MIN_LEARNED: Tokens = Tokens::new(2_048);

/// The most models of which a size is remembered; the configuration names a handful.
const MAX_MODELS: usize = 256;

/// The share of a refused request that is tried next where the provider names no sizes, in per cent.
const REFUSED_SHARE: u64 = 75;

/// The least that an estimate is scaled by, in per cent: a tokenizer rarely makes more than two tokens of an estimated one.
const MIN_SCALE: u64 = 50;

/// Learned sizes: by provider and model the estimated tokens of request and answer together, and until when they count.
#[derive(Debug, Default)]
pub(crate) struct LearnedWindows(BTreeMap<(String, String), (Tokens, Timestamp)>);

impl LearnedWindows {
    /// Learns from a refusal. Sizes that the provider names are of its own tokens and are converted to estimates.
    pub(crate) fn learn_window(&mut self, planned: &PlannedCall, sizes: ContextSizes, now: Timestamp) {
        let call = planned.model_call();
        let key = (call.provider.clone(), call.model.clone());
        // Bounded; a model beyond the bound is learned anew with each refusal.
        if self.0.len() >= MAX_MODELS && !self.0.contains_key(&key) {
            return;
        }
        let (input, answer) = (call.input_tokens.get(), call.max_output_tokens.get());
        let mut room = estimate_tokens(sizes, input, answer);
        // Without sizes each refusal only says that the request was too long, so the smallest of them counts.
        if let Some((known, until)) = self.0.get(&key)
            && now < *until
            && sizes.window.is_none()
        {
            room = room.min(*known);
        }
        self.0.insert(key, (room.max(MIN_LEARNED), now.plus_duration(LEARNED_FOR)));
    }

    /// The size that was learned of a model, if it still counts.
    pub(crate) fn learned_window(&self, provider: &str, model: &str, now: Timestamp) -> Option<Tokens> {
        // A learned size ends after a while: a server may have been started again with more room.
        let (room, until) = self.0.get(&(provider.to_owned(), model.to_owned()))?;
        (now < *until).then_some(*room)
    }
}

/// The room in estimated tokens, after a request of `input` estimated tokens that left room for an `answer` was refused.
fn estimate_tokens(sizes: ContextSizes, input: u64, answer: u64) -> Tokens {
    let percent = |tokens: u64, share: u64| tokens.saturating_mul(share) / 100;
    let Some(window) = sizes.window.map(Tokens::get) else {
        // Without any size the next request is a fixed part of this one.
        return Tokens::new(percent(input, REFUSED_SHARE));
    };
    let whole = input.saturating_add(answer);
    // Some providers count the answer in what was sent: the nearer of the two is taken.
    let scale = sizes.sent.map_or(100, |sent| {
        let sent = sent.get().max(1);
        let own = if sent.abs_diff(whole) < sent.abs_diff(input) { whole } else { input };
        (own.saturating_mul(100) / sent).clamp(MIN_SCALE, 100)
    });
    let room = percent(window, scale);
    // By our estimate it fits, and yet it was refused: the estimate is too low.
    Tokens::new(if room >= whole { percent(whole, REFUSED_SHARE) } else { room })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(window: Option<u64>, sent: Option<u64>, input: u64, answer: u64) -> u64 {
        let sizes = ContextSizes { window: window.map(Tokens::new), sent: sent.map(Tokens::new) };
        estimate_tokens(sizes, input, answer).get()
    }

    #[test]
    fn the_room_is_what_the_provider_says_in_our_estimates() {
        assert_eq!(room(Some(200_000), None, 210_000, 8_192), 200_000);
        assert_eq!(
            room(Some(200_000), Some(250_000), 200_000, 0),
            160_000,
            "it counts a quarter more than we do"
        );
        assert_eq!(room(Some(131_072), Some(141_607), 10_535, 131_072), 131_072, "with the answer");
        assert_eq!(
            room(Some(8_192), Some(14_429), 100_000, 8_192),
            8_192,
            "a lower count makes it no larger"
        );
        assert_eq!(room(Some(8_192), Some(1_000_000), 10_000, 8_192), 4_096, "no more than halved");
        assert_eq!(room(Some(200_000), None, 100_000, 8_192), 81_144, "it was refused all the same");
        assert_eq!(room(None, None, 100_000, 8_192), 75_000);
    }
}
