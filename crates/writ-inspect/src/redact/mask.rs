//! Masks: the texts in place of secrets.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

/// The beginning of every mask.
const BEGIN: &str = "[masked:";
/// The end of every mask.
const END: char = ']';
/// The longest name in a mask, in bytes: `vault://` references have up to 256.
const MAX_NAME: usize = 320;

/// A match.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum What {
    /// The value of a secret with this reference.
    Secret(Arc<str>),
    /// Something in a format of this name.
    Format(&'static str),
}

/// Something to be masked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MaskSpan {
    /// Its bytes.
    pub(super) at: Range<usize>,
    pub(super) what: What,
}

impl MaskSpan {
    /// The reference of a secret, if it is one.
    pub(super) fn secret_name(&self) -> Option<&str> {
        match &self.what {
            What::Secret(name) => Some(name),
            What::Format(_) => None,
        }
    }

    /// Returns its name.
    pub(super) fn mask_name(&self) -> &str {
        match &self.what {
            What::Secret(name) => name,
            What::Format(name) => name,
        }
    }
}

/// In order and without overlaps: what overlaps is one, under the name of the secret if any of them is known.
pub(super) fn merge_spans(mut spans: Vec<MaskSpan>) -> Vec<MaskSpan> {
    spans.sort_by(|a, b| (a.at.start, &a.what).cmp(&(b.at.start, &b.what)));
    let mut out: Vec<MaskSpan> = Vec::new();
    for span in spans {
        // A span that only touches the last one stays apart, so that both names are shown.
        match out.last_mut().filter(|last| span.at.start < last.at.end) {
            Some(last) => {
                last.at.end = last.at.end.max(span.at.end);
                // The smaller of two kinds is the secret, by the order of the enum: its name says more than a
                // format's.
                last.what = span.what.min(last.what.clone());
            }
            None => out.push(span),
        }
    }
    out
}

/// The text with its spans masked; they are in order, and their ends are between characters.
pub(super) fn apply_masks<'text>(text: &'text str, spans: &[MaskSpan]) -> Cow<'text, str> {
    match applied_to_bytes(text.as_bytes(), spans) {
        Cow::Borrowed(_) => Cow::Borrowed(text),
        Cow::Owned(bytes) => Cow::Owned(
            // Spans end between characters, so this cannot fail; if it did, a masked text with marks is safer
            // than none.
            String::from_utf8(bytes)
                .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()),
        ),
    }
}

/// The same for bytes.
pub(super) fn applied_to_bytes<'bytes>(bytes: &'bytes [u8], spans: &[MaskSpan]) -> Cow<'bytes, [u8]> {
    if spans.is_empty() {
        return Cow::Borrowed(bytes);
    }
    let mut out = Vec::with_capacity(bytes.len());
    let mut done = 0;
    for span in spans {
        out.extend_from_slice(bytes.get(done..span.at.start).unwrap_or_default());
        out.extend_from_slice(format!("{BEGIN}{}{END}", span.mask_name()).as_bytes());
        done = span.at.end;
    }
    out.extend_from_slice(bytes.get(done..).unwrap_or_default());
    Cow::Owned(out)
}

/// Returns true if a mask stands in a text: writing such a text back would overwrite the masked value.
pub fn has_mask(text: &str) -> bool {
    // The characters of references and formats: other brackets after the same beginning are ordinary text.
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, ':' | '/' | '#' | '_' | '-' | '.');
    text.match_indices(BEGIN).any(|(at, _)| {
        let rest = text.get(at.saturating_add(BEGIN.len())..).unwrap_or_default();
        let name = rest.char_indices().take(MAX_NAME).find(|(_, c)| !plain(*c));
        name.is_some_and(|(length, end)| length > 0 && end == END)
    })
}
