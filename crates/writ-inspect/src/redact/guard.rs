//! Examination of messages before they are stored.

use std::collections::BTreeSet;

use super::Clean;
use super::mask::{self, MaskSpan};

/// The result for a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Guarded {
    /// It goes on; what was masked in it has these names.
    Passed(Clean, BTreeSet<String>),
    /// More than half of it is credentials: it goes nowhere. These are their names.
    Blocked(BTreeSet<String>),
}

/// Judges a message, of which `spans` are to be masked. Half of its characters, without the white space around it, may
/// be credentials.
pub(super) fn judge_spans(text: &str, spans: &[MaskSpan]) -> Guarded {
    let names: BTreeSet<String> = spans.iter().map(|span| span.mask_name().to_owned()).collect();
    // Characters are counted and not bytes, so that the share is the one that a person sees.
    let found = |span: &MaskSpan| text.get(span.at.clone()).map_or(0, |found| found.chars().count());
    let found: usize = spans.iter().map(found).sum();
    // A message that is mostly a credential was sent by mistake: masked, it would say nothing.
    if found.saturating_mul(2) > text.trim().chars().count() {
        return Guarded::Blocked(names);
    }
    let secrets = spans.iter().filter_map(MaskSpan::secret_name).map(ToString::to_string).collect();
    Guarded::Passed(Clean { text: mask::apply_masks(text, spans).into_owned(), secrets }, names)
}
