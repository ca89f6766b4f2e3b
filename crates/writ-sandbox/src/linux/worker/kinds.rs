//! Names what bytes are that are no Unicode text.

use chardetng::{EncodingDetector, Iso2022JpDetection, Utf8Detection};

use crate::file::FileContent;

/// The bytes that the guess of an encoding reads: enough to be sure of it.
const GUESSED_BYTES: usize = 64 * 1024;

/// The first bytes of well-known formats.
const FORMATS: [(&[u8], &str); 24] = [
    (b"\x89PNG\r\n\x1a\n", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"GIF8", "a GIF image"),
    (b"RIFF", "a RIFF file (WebP, WAV or AVI)"),
    (b"BM", "a BMP image"),
    (b"\0\0\x01\0", "an icon"),
    (b"%PDF-", "a PDF document"),
    (b"PK\x03\x04", "a ZIP archive (or an office document, JAR or wheel)"),
    (b"\x1f\x8b", "gzip data"),
    (b"BZh", "bzip2 data"),
    (b"\xfd7zXZ\0", "xz data"),
    (b"\x28\xb5\x2f\xfd", "Zstandard data"),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive"),
    (b"\x7fELF", "an ELF program or library"),
    (b"MZ", "a Windows program or library"),
    (b"\xcf\xfa\xed\xfe", "a Mach-O program or library"),
    (b"\xca\xfe\xba\xbe", "a Java class or a Mach-O program"),
    (b"\0asm", "a WebAssembly module"),
    (b"SQLite format 3\0", "an SQLite database"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an older office document"),
    (b"OggS", "an Ogg file"),
    (b"ID3", "an MP3 file"),
    (b"wOF2", "a WOFF2 font"),
    (b"\0\x01\0\0\0", "a TrueType font"),
];

/// Names what a file holds that is no UTF-8 text, and no UTF-16 text with a mark.
pub(super) fn identify_content(bytes: &[u8]) -> FileContent {
    let format = |format: &str| FileContent::Format { format: format.to_owned() };
    if bytes.starts_with(b"\xff\xfe\0\0") || bytes.starts_with(b"\0\0\xfe\xff") {
        return guess_charset("UTF-32");
    }
    if bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff") {
        return format("UTF-16 text with invalid characters in it");
    }
    let begin = bytes.get(..GUESSED_BYTES).unwrap_or(bytes);
    if begin.contains(&0) {
        if let Some((_, name)) = FORMATS.iter().find(|(first, _)| bytes.starts_with(first)) {
            return format(name);
        }
        return is_wide(begin).map_or(FileContent::Bytes, guess_charset);
    }
    // Letters may begin like a format: only one that begins as no text does comes before the guess.
    let known = FORMATS.iter().find(|(first, _)| bytes.starts_with(first) && first.len() > 2);
    if let Some((_, name)) = known {
        return format(name);
    }
    let controls = begin.iter().filter(|byte| **byte < b' ' && !b"\t\n\r\x0c\x1b".contains(byte)).count();
    if controls > 0 {
        return FileContent::Bytes;
    }
    let mut detector = EncodingDetector::new(Iso2022JpDetection::Allow);
    detector.feed(begin, begin.len() == bytes.len());
    guess_charset(detector.guess(None, Utf8Detection::Deny).name())
}

fn guess_charset(name: &str) -> FileContent {
    FileContent::Charset { charset: name.to_owned() }
}

/// UTF-16 without a mark: most text has a zero in every second byte.
fn is_wide(bytes: &[u8]) -> Option<&'static str> {
    let (pairs, _) = bytes.as_chunks::<2>();
    let low = pairs.iter().filter(|[_, high]| *high == 0).count();
    let high = pairs.iter().filter(|[low, _]| *low == 0).count();
    let most = pairs.len().div_ceil(4) * 3;
    match (low, high) {
        (low, 0) if low >= most && low > 0 => Some("UTF-16LE"),
        (0, high) if high >= most && high > 0 => Some("UTF-16BE"),
        (_, _) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(bytes: &[u8]) -> String {
        identify_content(bytes).as_str().into_owned()
    }

    #[test]
    fn bytes_are_named_as_what_they_are() {
        // «Japanese text, read and written.» in Shift_JIS and EUC-JP, «Größe, Maß» and «prénom» in Latin-1.
        let sjis = b"\x93\xfa\x96\x7b\x8c\xea\x82\xcc\x83\x65\x83\x4c\x83\x58\x83\x67\x82\xf0\x93\xc7\x82\xde\x81\x42\r\n";
        assert_eq!(name(sjis), "most likely Shift_JIS text");
        let euc = b"\xc6\xfc\xcb\xdc\xb8\xec\xa4\xce\xa5\xc6\xa5\xad\xa5\xb9\xa5\xc8\xa4\xf2\xc6\xc9\xa4\xe0\xa1\xa3\n";
        assert_eq!(name(euc), "most likely EUC-JP text");
        assert_eq!(name(b"Gr\xf6\xdfe, Ma\xdf\n pr\xe9nom \n"), "most likely windows-1252 text");
        assert_eq!(name(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"), "a PNG image");
        assert_eq!(name(b"PK\x03\x04\x14\0\0\0"), "a ZIP archive (or an office document, JAR or wheel)");
        assert_eq!(name(b"a\0b\0c\0\n\0"), "most likely UTF-16LE text");
        assert_eq!(name(b"\xff\xfe\0\0a\0\0\0"), "most likely UTF-32 text");
        assert_eq!(name(b"\xff\xfe\0\xd8"), "UTF-16 text with invalid characters in it");
        assert_eq!(name(b"a\x01\xff"), "binary data");
        assert_eq!(name(&[0; 40]), "binary data");
    }
}
