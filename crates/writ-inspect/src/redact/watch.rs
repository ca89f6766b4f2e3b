//! Known values in bytes that need not be text: what goes through a proxy.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use super::KnownSecret;
use super::mask::{self, MaskSpan};
use super::values::Values;

/// Looks for values in bytes, in every encoding of the redactor's, and for nothing else: published formats are left.
#[derive(Clone, Default)]
pub struct SecretWatch(Arc<Values>);

impl SecretWatch {
    /// Looks for these.
    pub fn new(secrets: &[KnownSecret]) -> Self {
        Self(Arc::new(Values::new(secrets)))
    }

    /// The names of the values that stand in bytes.
    pub fn names_in(&self, bytes: &[u8]) -> BTreeSet<String> {
        self.0.find_values(bytes).iter().filter_map(MaskSpan::secret_name).map(ToString::to_string).collect()
    }

    /// The bytes with every value masked.
    pub fn mask_bytes<'bytes>(&self, bytes: &'bytes [u8]) -> Cow<'bytes, [u8]> {
        mask::applied_to_bytes(bytes, &mask::merge_spans(self.0.find_values(bytes)))
    }

    /// Bytes that come in pieces.
    pub fn mask_stream(&self) -> ByteStream {
        ByteStream {
            watch: self.clone(),
            held: Vec::new(),
            begun: false,
            looked_at: 0,
            found: BTreeSet::new(),
        }
    }
}

impl fmt::Debug for SecretWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watch")
    }
}

/// A stream of bytes that come in pieces and go out masked. It holds back as many bytes as the longest form
/// of a value has, and the line ends among them, for any content: if only beginnings of values were held, the
/// sender of the bytes could find out a value from the delay. So the end of an event comes with the next one.
pub struct ByteStream {
    watch: SecretWatch,
    held: Vec<u8>,
    begun: bool,
    looked_at: usize,
    found: BTreeSet<String>,
}

impl fmt::Debug for ByteStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ByteStream").field("found", &self.found).finish_non_exhaustive()
    }
}

/// The most bytes that are held back while a value may be incomplete, in lines of any length: sixteen times
/// the longest value that a header takes, in base64. A value that is spread further is not recognised.
const MAX_HELD: usize = 128 * 1024;

/// The size that may be held and examined anew with every piece, in bytes.
const LITTLE_HELD: usize = 8 * 1024;
/// Of more, another look is taken when this part of it is new: each byte is then looked at so often at most, and not with every piece.
const LOOK_AFTER: usize = 8;

impl ByteStream {
    /// Takes a piece in; what comes out may be shown.
    pub fn push_bytes(&mut self, piece: &[u8]) -> Vec<u8> {
        self.begun = true;
        self.held.extend_from_slice(piece);
        // Much is held only where lines without end come; who sends them one by one has them looked at rarely.
        let grown = self.held.len().saturating_sub(self.looked_at);
        if self.held.len() > LITTLE_HELD && grown.saturating_mul(LOOK_AFTER) < self.held.len() {
            return Vec::new();
        }
        // Beyond the bound bytes go out in any case: a value may be missed then, but memory stays bounded.
        let settled = self.watch.0.settled_length(&self.held);
        self.release_until(settled.max(self.held.len().saturating_sub(MAX_HELD)))
    }

    /// The bytes have ended: what comes out is the rest of them.
    pub fn end_bytes(&mut self) -> Vec<u8> {
        self.release_until(self.held.len())
    }

    /// Returns true if any byte came.
    pub const fn is_begun(&self) -> bool {
        self.begun
    }

    /// The names of the values that were masked so far.
    pub const fn found_secrets(&self) -> &BTreeSet<String> {
        &self.found
    }

    /// Releases the bytes before a place, and all of any match that begins there.
    fn release_until(&mut self, end: usize) -> Vec<u8> {
        let mut spans = mask::merge_spans(self.watch.0.find_values(&self.held));
        // One that begins later is not complete yet, and stays with the bytes that are held back.
        spans.retain(|span| span.at.start < end);
        self.found.extend(spans.iter().filter_map(MaskSpan::secret_name).map(ToString::to_string));
        // A match that reaches over the settled part goes out whole: half of it would show the value's
        // beginning.
        let end = spans.last().map_or(end, |span| span.at.end.max(end));
        let out = mask::applied_to_bytes(self.held.get(..end).unwrap_or_default(), &spans).into_owned();
        self.held.drain(..end.min(self.held.len()));
        self.looked_at = self.held.len();
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALUE: &str = "s3cret-Value/of+9";

    fn watch() -> SecretWatch {
        SecretWatch::new(&[KnownSecret { name: "secret:one".into(), value: VALUE.to_owned().into() }])
    }

    /// Threat 18, in bytes: however they are cut, and though they are no text.
    #[test]
    fn a_value_is_masked_in_bytes_however_they_are_cut() {
        let wrapped: String = VALUE.chars().map(|c| format!("{c}\r\n")).collect();
        for form in [VALUE.to_owned(), hex::encode(VALUE), VALUE.chars().rev().collect(), wrapped] {
            let whole = [b"\xff\x00 before ".as_slice(), form.as_bytes(), b" after \xfe"].concat();
            for size in 1..=whole.len() {
                let mut stream = watch().mask_stream();
                let mut out: Vec<u8> =
                    whole.chunks(size).flat_map(|piece| stream.push_bytes(piece)).collect();
                out.extend(stream.end_bytes());
                assert!(out.starts_with(b"\xff\x00 before [masked:secret:one]"), "{size}: {form}");
                assert!(out.ends_with(b"after \xfe"), "{size}: {form}");
                assert_eq!(stream.found_secrets(), &BTreeSet::from(["secret:one".to_owned()]));
            }
        }
    }

    #[test]
    fn other_bytes_go_out_as_they_are() {
        let mut stream = watch().mask_stream();
        let other: Vec<u8> = (0..=255).cycle().take(70_000).filter(|byte| *byte != b's').collect();
        assert!(stream.push_bytes(&other).len() > 60_000);
        assert!(stream.found_secrets().is_empty());
        assert!(watch().names_in(b"s3cret-Value/of+8").is_empty());
        assert!(matches!(watch().mask_bytes(&other), Cow::Borrowed(same) if same == other));
    }

    #[test]
    fn whole_bytes_lose_each_value_and_it_is_named() {
        let bytes = [b"\xff ", VALUE.as_bytes(), b"\x00", hex::encode(VALUE).as_bytes(), b" \xfe"].concat();
        let masked = b"\xff [masked:secret:one]\x00[masked:secret:one] \xfe";
        assert_eq!(watch().mask_bytes(&bytes), masked.as_slice());
        assert_eq!(watch().names_in(&bytes), BTreeSet::from(["secret:one".to_owned()]));
    }

    #[test]
    fn what_shows_a_stream_shows_the_names_alone() {
        let mut stream = watch().mask_stream();
        assert!(!stream.is_begun());
        stream.push_bytes(VALUE.as_bytes());
        assert!(stream.is_begun());
        assert_eq!(format!("{:?} {stream:?}", watch()), "Watch ByteStream { found: {}, .. }");
        stream.end_bytes();
        assert_eq!(format!("{stream:?}"), "ByteStream { found: {\"secret:one\"}, .. }");
    }

    /// In base64, too, where the characters beside a form are masked with it.
    #[test]
    fn base64_is_masked_however_it_is_cut() {
        use base64::Engine as _;
        use base64::engine::general_purpose::STANDARD;
        for before in ["", "x", "xy"] {
            let whole = STANDARD.encode(format!("{before}{VALUE} and more of it, long enough to come apart"));
            let masked = watch().mask_bytes(whole.as_bytes()).into_owned();
            assert!(masked.len() < whole.len(), "{whole}");
            for cut in 0..=whole.len() {
                let mut stream = watch().mask_stream();
                let (first, second) = whole.as_bytes().split_at(cut);
                let out = [stream.push_bytes(first), stream.push_bytes(second), stream.end_bytes()].concat();
                assert_eq!(out, masked, "{cut}: {whole}");
            }
        }
    }

    /// As many bytes as the longest form has, in hexadecimal digits: a value that begins with them waits.
    #[test]
    fn what_is_held_back_is_as_long_as_the_longest_form() {
        const LONGEST: usize = VALUE.len() * 2;
        let rest = "y".repeat(LONGEST - VALUE.len());
        let mut stream = watch().mask_stream();
        assert_eq!(stream.push_bytes(format!("before {VALUE}{rest}").as_bytes()), b"before ");
        assert_eq!(stream.push_bytes(b"y"), b"[masked:secret:one]");
        assert_eq!(stream.end_bytes(), format!("{rest}y").as_bytes());
    }

    /// Whether the beginning of a value stands at the end of a piece is told by nothing.
    #[test]
    fn what_is_held_back_does_not_depend_on_what_a_value_is() {
        let framing = |guess: &str| -> Vec<usize> {
            let mut stream = watch().mask_stream();
            let filler = "x".repeat(200);
            let pieces = [format!("{filler}{guess}"), filler.clone(), format!("\r\n{guess}\n"), filler];
            let mut sizes: Vec<usize> =
                pieces.iter().map(|piece| stream.push_bytes(piece.as_bytes()).len()).collect();
            sizes.push(stream.end_bytes().len());
            sizes
        };
        for length in 1..VALUE.len() {
            let (prefix, other) = (&VALUE[..length], "q".repeat(length));
            assert_eq!(framing(prefix), framing(&other), "{prefix}");
        }
    }

    /// What is held has a bound, though every line could be the next piece of a value.
    #[test]
    fn what_is_held_has_a_bound() {
        let mut stream = watch().mask_stream();
        let mut out = stream.push_bytes(b"s3cret").len();
        for _ in 0..100 {
            out += stream.push_bytes(&b"\n".repeat(4096)).len();
        }
        let most = MAX_HELD / (LOOK_AFTER - 1) * LOOK_AFTER;
        assert!(stream.held.len() <= most && out >= 100 * 4096 - most, "{out}");
        // If line ends come one by one, the text is searched seldom, not after each.
        let looks = (0..50_000).filter(|_| !stream.push_bytes(b"\n").is_empty()).count();
        assert!(looks < 10, "{looks}");
        assert_eq!(watch().mask_stream().push_bytes(&b"\n".repeat(128 * 1024)), b"");
        assert_eq!(watch().mask_stream().push_bytes(&b"\n".repeat(128 * 1024 + 1)), b"\n");
    }

    /// Little that is held is looked at with every piece, much when an eighth of it is new.
    #[test]
    fn much_that_is_held_is_looked_at_when_enough_is_new() {
        // With the next character the first may go.
        let held = |length: usize| {
            let mut stream = watch().mask_stream();
            let waits = "x".repeat(VALUE.len() * 2);
            assert_eq!(stream.push_bytes(format!("{waits:\n<length$}").as_bytes()), b"");
            stream
        };
        assert_eq!(held(8 * 1024 - 1).push_bytes(b"x"), b"x");
        assert_eq!(held(8 * 1024).push_bytes(b"x"), b"");
        let new = |length: usize| format!("{:\n<length$}", "x");
        assert_eq!(held(14_000).push_bytes(new(2_000).as_bytes()), b"x");
        assert_eq!(held(14_000).push_bytes(new(1_999).as_bytes()), b"");
    }
}
