//! Text files: how their bytes become text and back, and the conventions that an edit keeps.

use serde::{Deserialize, Serialize};

/// The byte order mark, as a character.
pub const MARK: char = '\u{feff}';

/// The most bytes of a file that are searched for zero bytes to decide if it is text: git's own measure.
const TEXT_PROBE: usize = 8_000;

/// The encoding of a text file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TextEncoding {
    /// UTF-8, with or without a mark.
    #[default]
    Utf8,
    /// UTF-16, the low byte first. Recognised by its mark alone.
    Utf16Le,
    /// UTF-16, the high byte first. Recognised by its mark alone.
    Utf16Be,
}

impl TextEncoding {
    /// The name shown to people and models.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Utf8 => "UTF-8",
            Self::Utf16Le => "UTF-16LE",
            Self::Utf16Be => "UTF-16BE",
        }
    }

    /// Returns true for the encoding that needs no mention.
    pub const fn is_utf8(&self) -> bool {
        matches!(self, Self::Utf8)
    }

    /// Encodes a text. A mark at its beginning is a character like any other.
    pub fn encode_text(self, text: &str) -> Vec<u8> {
        match self {
            // Without a mark of its own: the text carries it.
            Self::Utf8 => text.as_bytes().to_vec(),
            Self::Utf16Le => text.encode_utf16().flat_map(u16::to_le_bytes).collect(),
            Self::Utf16Be => text.encode_utf16().flat_map(u16::to_be_bytes).collect(),
        }
    }
}

/// Decodes a text file, its mark included. `None`: the bytes are no UTF-8 text, and no UTF-16 text with a mark; encoding
/// what is returned gives the same bytes.
pub fn decode_text(bytes: &[u8]) -> Option<(String, TextEncoding)> {
    let encoding = match bytes {
        // The mark of UTF-32 begins like that of UTF-16.
        [0xff, 0xfe, 0, 0, ..] => return None,
        [0xff, 0xfe, ..] => TextEncoding::Utf16Le,
        [0xfe, 0xff, ..] => TextEncoding::Utf16Be,
        _ => TextEncoding::Utf8,
    };
    let text = match encoding {
        TextEncoding::Utf8 => std::str::from_utf8(bytes).ok()?.to_owned(),
        TextEncoding::Utf16Le => decode_utf16(bytes, u16::from_le_bytes)?,
        TextEncoding::Utf16Be => decode_utf16(bytes, u16::from_be_bytes)?,
    };
    // Zero bytes near the beginning mean binary data, even if they are valid text.
    let zero = text.bytes().take(TEXT_PROBE).any(|byte| byte == 0);
    (!zero).then_some((text, encoding))
}

fn decode_utf16(bytes: &[u8], unit: fn([u8; 2]) -> u16) -> Option<String> {
    let (pairs, rest) = bytes.as_chunks::<2>();
    let units = pairs.iter().map(|pair| unit(*pair));
    // A single odd byte at the end is no text.
    rest.is_empty().then(|| char::decode_utf16(units).collect::<Result<String, _>>().ok())?
}

/// The line ends of a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LineEnds {
    /// With a line feed, or the text has one line at most.
    #[default]
    Lf,
    /// With a carriage return and a line feed.
    Crlf,
    /// Some one way, some the other.
    Mixed,
}

/// The conventions of a text file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TextForm {
    /// Its encoding.
    pub encoding: TextEncoding,
    /// True if it begins with a byte order mark.
    pub mark: bool,
    /// Its line ends.
    pub ends: LineEnds,
    /// False if its last line has no end.
    pub last_end: bool,
}

impl Default for TextForm {
    fn default() -> Self {
        Self { encoding: TextEncoding::Utf8, mark: false, ends: LineEnds::Lf, last_end: true }
    }
}

impl TextForm {
    /// Measures a text that was decoded with its mark.
    pub fn of_text(text: &str, encoding: TextEncoding) -> Self {
        let feeds = text.matches('\n').count();
        let pairs = text.matches("\r\n").count();
        // Every pair holds a line feed, too.
        let ends = match (pairs, feeds - pairs) {
            (0, _) => LineEnds::Lf,
            (_, 0) => LineEnds::Crlf,
            (_, _) => LineEnds::Mixed,
        };
        let body = text.strip_prefix(MARK).unwrap_or(text);
        // An empty text ends its last line.
        let last_end = body.is_empty() || body.ends_with('\n');
        Self { encoding, mark: text.starts_with(MARK), ends, last_end }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn marks_decide_the_encoding_and_other_bytes_are_no_text() {
        let text = "\u{feff}Grüße 𝄞\r\n";
        for encoding in [TextEncoding::Utf8, TextEncoding::Utf16Le, TextEncoding::Utf16Be] {
            assert_eq!(decode_text(&encoding.encode_text(text)), Some((text.to_owned(), encoding)));
        }
        assert_eq!(decode_text(b"plain"), Some(("plain".to_owned(), TextEncoding::Utf8)));
        for bytes in [
            b"caf\xe9\n".as_slice(),
            b"\x83\x65\x83\x58\x83\x67",
            b"a\0b",
            b"\xff\xfea",
            // A surrogate without its pair.
            b"\xff\xfe\x00\xd8",
            b"\xff\xfe\0\0a\0\0\0",
        ] {
            assert_eq!(decode_text(bytes), None, "{bytes:x?}");
        }
    }

    #[test]
    fn conventions_are_measured() {
        let form = |text: &str| TextForm::of_text(text, TextEncoding::Utf8);
        assert_eq!(form(""), TextForm::default());
        assert_eq!(form("a\nb\n"), TextForm::default());
        assert_eq!(form("a\r\nb\r\n"), TextForm { ends: LineEnds::Crlf, ..TextForm::default() });
        assert_eq!(
            form("\u{feff}a\r\nb\nc"),
            TextForm { mark: true, ends: LineEnds::Mixed, last_end: false, ..TextForm::default() }
        );
    }

    proptest! {
        #[test]
        fn what_is_decoded_is_encoded_to_the_same_bytes(mut bytes in proptest::collection::vec(any::<u8>(), 0..40), mark in 0..3) {
            let mark: &[u8] = match mark { 0 => &[], 1 => &[0xff, 0xfe], _ => &[0xfe, 0xff] };
            bytes.splice(0..0, mark.iter().copied());
            if let Some((text, encoding)) = decode_text(&bytes) {
                prop_assert_eq!(encoding.encode_text(&text), bytes);
            }
        }
    }
}
