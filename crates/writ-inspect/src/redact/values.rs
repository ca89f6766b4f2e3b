//! A search for the exact values of secrets.
//!
//! Not with `aho-corasick`: its tables would hold copies of every value that cannot be wiped. A filter of the
//! first eight bytes of every form selects the places, and a binary search among the sorted forms compares
//! them.

use std::sync::Arc;

use secrecy::ExposeSecret as _;
use zeroize::Zeroizing;

use super::forms::{self, SecretForm};
use super::mask::{MaskSpan, What};
use super::{KnownSecret, MIN_VALUE_BYTES};

/// The multiplier of the filter's hash: 2^64 divided by the golden ratio, odd.
const MIX: u64 = 0x9E37_79B9_7F4A_7C15;
/// The filter has so many bits for each form, rounded up to a power of two, within these bounds.
const BITS_PER_FORM: usize = 64;
const MIN_BITS: usize = 1 << 12;
const MAX_BITS: usize = 1 << 20;

/// A form with its name.
struct Needle {
    form: SecretForm,
    name: Arc<str>,
    /// The longest other form that this one begins with.
    inner: Option<usize>,
}

/// The values that are looked for. Wiped when dropped; not shown by anything.
#[derive(Default)]
pub(super) struct Values {
    /// Sorted by their bytes.
    needles: Vec<Needle>,
    /// A bit for each hash of the first eight bytes of a form.
    filter: Zeroizing<Vec<u64>>,
    shift: u32,
}

impl Values {
    pub(super) fn new(secrets: &[KnownSecret]) -> Self {
        let mut needles = Vec::new();
        for secret in secrets {
            // A value that was piped in may have ended with a line.
            let value = secret.value.expose_secret().trim();
            // The bound of the filter, too: it looks at the first eight bytes of every form.
            if value.len() < MIN_VALUE_BYTES {
                continue;
            }
            let name: Arc<str> = Arc::from(secret.name.as_str());
            let forms = forms::all_forms(value).into_iter();
            needles.extend(forms.map(|form| Needle { form, name: Arc::clone(&name), inner: None }));
        }
        // Sorted, so that one binary search finds the only forms that a text can begin with.
        needles.sort_by(|a, b| a.form.bytes.cmp(&b.form.bytes));
        // A value without special characters is its own JSON and URL form.
        needles.dedup_by(|a, b| a.form.bytes == b.form.bytes);
        // Sparse enough that most places of a text are passed with one look at a bit.
        let bits = needles.len().saturating_mul(BITS_PER_FORM).next_power_of_two().clamp(MIN_BITS, MAX_BITS);
        let shift = u64::BITS.saturating_sub(bits.trailing_zeros());
        let mut values =
            // The needles are added last, since the filter's methods borrow the whole.
            Self { needles: Vec::new(), filter: Zeroizing::new(vec![0; bits.div_ceil(64)]), shift };
        for needle in &needles {
            let key =
                needle.form.bytes.iter().take(MIN_VALUE_BYTES).fold(0, |key, byte| slide_key(key, *byte));
            values.note_key(key);
        }
        // Forms that begin with one another stand beside one another, the shorter first.
        for at in 1..needles.len() {
            let mut before = at.checked_sub(1);
            while let (Some(shorter), Some(longer)) = (before.and_then(|at| needles.get(at)), needles.get(at))
            {
                if longer.form.bytes.starts_with(&shorter.form.bytes) {
                    break;
                }
                before = shorter.inner;
            }
            if let Some(needle) = needles.get_mut(at) {
                needle.inner = before;
            }
        }
        values.needles = needles;
        values
    }

    fn filter_place(&self, key: u64) -> (usize, u64) {
        // The upper bits of the product depend on all bytes of the key, the lower ones do not.
        let hash = key.wrapping_mul(MIX) >> self.shift;
        (usize::try_from(hash / 64).unwrap_or(usize::MAX), 1 << (hash % 64))
    }

    fn note_key(&mut self, key: u64) {
        let (word, bit) = self.filter_place(key);
        if let Some(word) = self.filter.get_mut(word) {
            *word |= bit;
        }
    }

    fn may_begin(&self, key: u64) -> bool {
        let (word, bit) = self.filter_place(key);
        self.filter.get(word).is_some_and(|word| word & bit != 0)
    }

    /// The longest form that a text begins with.
    fn at_start(&self, text: &[u8]) -> Option<&Needle> {
        let after = self.needles.partition_point(|needle| needle.form.bytes.as_slice() <= text);
        // A form that the text begins with shares this beginning with its neighbour.
        let mut at = after.checked_sub(1);
        while let Some(needle) = at.and_then(|at| self.needles.get(at)) {
            if text.starts_with(&needle.form.bytes) {
                return Some(needle);
            }
            at = needle.inner;
        }
        None
    }

    /// Finds values, in order: in the text as it is, and across its line ends.
    pub(super) fn find_values(&self, text: &[u8]) -> Vec<MaskSpan> {
        if self.needles.is_empty() {
            return Vec::new();
        }
        // The text itself first: most values stand on one line.
        let mut spans = self.scan_bytes(text, text, |at| at);
        if text.contains(&b'\n') {
            // Encoders break lines, and an attacker may break them to hide a value.
            let joined: Zeroizing<Vec<u8>> =
                Zeroizing::new(joined_bytes(text).map(|(_, byte)| byte).collect());
            let (mut places, mut next) = (joined_places(text), 0_usize);
            let mut place = 0;
            spans.extend(self.scan_bytes(&joined, text, |at| {
                // Asked in rising order.
                while next <= at {
                    place = places.next().unwrap_or(text.len());
                    next = next.saturating_add(1);
                }
                place
            }));
        }
        spans
    }

    /// Finds values in `bytes`; `place` maps a byte of them to its place in `text`.
    fn scan_bytes(&self, bytes: &[u8], text: &[u8], mut place: impl FnMut(usize) -> usize) -> Vec<MaskSpan> {
        let (mut key, mut free, mut spans) = (0, 0, Vec::new());
        for (last, byte) in bytes.iter().enumerate() {
            key = slide_key(key, *byte);
            // Inside a value that was found, none is searched again: a match is masked as a whole.
            let Some(start) = (last + 1).checked_sub(MIN_VALUE_BYTES).filter(|start| *start >= free) else {
                continue;
            };
            if !self.may_begin(key) {
                continue;
            }
            let Some(needle) = bytes.get(start..).and_then(|rest| self.at_start(rest)) else { continue };
            free = start + needle.form.bytes.len();
            let (mut from, mut to) = (place(start), place(free - 1) + 1);
            // The neighbours hold bits of the value in base64: left alone, they would give away part of a
            // byte.
            if needle.form.ragged {
                let sextet = |at: Option<&u8>| at.is_some_and(|b| is_sextet(*b));
                from -= usize::from(from > 0 && sextet(text.get(from.saturating_sub(1))));
                to += usize::from(sextet(text.get(to)));
            }
            spans.push(MaskSpan { at: from..to, what: What::Secret(Arc::clone(&needle.name)) });
        }
        spans
    }

    /// Finds the beginning of a value at the end of a cut text: at least [`MIN_VALUE_BYTES`].
    // Shorter beginnings stand anywhere, and masking them would make a cut text unreadable.
    pub(super) fn begun_at_end(&self, text: &str) -> Option<MaskSpan> {
        let from = self.earliest_begun(text.as_bytes(), MIN_VALUE_BYTES)?;
        let needle = self.begun_value(text.as_bytes().get(from..)?)?;
        Some(MaskSpan { at: from..text.len(), what: What::Secret(Arc::clone(&needle.name)) })
    }

    /// Finds the end of a value at the beginning of a cut text: at least [`MIN_VALUE_BYTES`], or that many of
    /// its middle where the text is no longer.
    pub(super) fn ended_at_start(&self, text: &str) -> Option<MaskSpan> {
        let text = text.as_bytes();
        let longest = self.needles.iter().filter_map(|needle| {
            let bytes = needle.form.bytes.as_slice();
            let mut rests = (1..bytes.len()).filter_map(|from| bytes.get(from..));
            let found = rests.find(|rest| rest.starts_with(text) || text.starts_with(rest));
            let length = found?.len().min(text.len());
            (length >= MIN_VALUE_BYTES).then_some((length, needle))
        });
        let (length, needle) = longest.max_by_key(|(length, _)| *length)?;
        Some(MaskSpan { at: 0..length, what: What::Secret(Arc::clone(&needle.name)) })
    }

    /// The first place from which on the rest of a text, at least `least` bytes of it, may be the beginning of a value.
    pub(super) fn earliest_begun(&self, text: &[u8], least: usize) -> Option<usize> {
        // No value that goes on can have begun before the length of the longest form.
        let longest = self.needles.iter().map(|needle| needle.form.bytes.len()).max()?;
        let first = text.len().saturating_sub(longest.saturating_sub(1));
        (first..(text.len() + 1).saturating_sub(least.max(1)))
            .find(|from| text.get(*from..).is_some_and(|rest| self.begun_value(rest).is_some()))
    }

    /// The first place from which on a text, without its line ends, may be the beginning of a value.
    pub(super) fn earliest_begun_across_lines(&self, text: &[u8]) -> Option<usize> {
        let longest = self.needles.iter().map(|needle| needle.form.bytes.len()).max()?;
        let (places, bytes): (Vec<usize>, Vec<u8>) = joined_bytes(text).unzip();
        let first = bytes.len().saturating_sub(longest.saturating_sub(1));
        let begun = (first..bytes.len())
            .find(|from| bytes.get(*from..).is_some_and(|rest| self.begun_value(rest).is_some()));
        begun.and_then(|from| places.get(from).copied())
    }

    /// Returns the place before which no value can begin that goes on after a text, also across its line
    /// ends. It depends on lengths and line ends alone, never on a value: an observer of the held part learns
    /// nothing.
    pub(super) fn settled_length(&self, text: &[u8]) -> usize {
        let longest = self.needles.iter().map(|needle| needle.form.bytes.len()).max();
        // As long as its hexadecimal digits or longer: base64 is shorter, also with what is masked beside it.
        let Some(kept) = longest else { return text.len() };
        let places: Vec<usize> = joined_places(text).collect();
        // Measured in joined bytes, since line ends inside a value do not count towards its length.
        let across = places.len().checked_sub(kept).and_then(|at| places.get(at).copied());
        across.unwrap_or(0).min(text.len().saturating_sub(kept))
    }

    /// A form that begins with all of a text, and goes on.
    fn begun_value(&self, text: &[u8]) -> Option<&Needle> {
        // All forms that begin with the text sort directly after it, so one look at the next is enough.
        let at = self.needles.partition_point(|needle| needle.form.bytes.as_slice() <= text);
        self.needles.get(at).filter(|needle| needle.form.bytes.starts_with(text))
    }
}

/// The key of the last eight bytes.
// The oldest byte falls out at the lower end, so the key is that of the last eight bytes.
const fn slide_key(key: u64, byte: u8) -> u64 {
    (key >> 8) | ((byte as u64) << 56)
}

const fn is_sextet(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'-' | b'_')
}

/// The bytes of a text without line ends and what indents lines, and where they stand.
fn joined_bytes(text: &[u8]) -> impl Iterator<Item = (usize, u8)> + '_ {
    let mut indent = true;
    text.iter().copied().enumerate().filter(move |(_, byte)| match byte {
        b'\n' | b'\r' => {
            indent = true;
            false
        }
        b' ' | b'\t' => !indent,
        _ => {
            indent = false;
            true
        }
    })
}

fn joined_places(text: &[u8]) -> impl Iterator<Item = usize> + '_ {
    joined_bytes(text).map(|(place, _)| place)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values() -> Values {
        Values::new(&[KnownSecret { name: "secret:one".into(), value: "hunter2-hunter2".to_owned().into() }])
    }

    fn key_of(bytes: &[u8]) -> u64 {
        bytes.iter().fold(0, |key, byte| slide_key(key, *byte))
    }

    #[test]
    fn a_key_is_the_last_eight_bytes() {
        assert_eq!(key_of(b"0123456789"), u64::from_le_bytes(*b"23456789"));
    }

    /// Of an ordinary text hardly a place is looked at more closely.
    #[test]
    fn the_filter_lets_every_form_through_and_hardly_anything_else() {
        let (values, ordinary) = (values(), include_bytes!("../../tests/corpus/ordinary.txt"));
        for needle in &values.needles {
            assert!(values.may_begin(key_of(&needle.form.bytes[..MIN_VALUE_BYTES])));
        }
        let looks = ordinary.windows(MIN_VALUE_BYTES).filter(|bytes| values.may_begin(key_of(bytes))).count();
        assert!(looks * 50 < ordinary.len(), "{looks} of {}", ordinary.len());
    }

    #[test]
    fn the_filter_has_4096_bits_at_least() {
        for values in [Values::new(&[]), values()] {
            assert_eq!(values.filter.len(), 4096 / 64);
        }
    }
}
