//! An upper bound on the number of pages of a PDF file.
//!
//! Every page is an object of the type `Page`, written as plain text in the file or inside a compressed object stream (ISO
//! 32000-1, 7.5.7 and 7.7.3). A PDF that was edited still holds the pages of its earlier versions, and these are counted too, so
//! the result can be too high but not too low.

use std::io::Read as _;

use flate2::read::ZlibDecoder;

/// The most bytes that all object streams of one file may unpack to: room for about a hundred thousand objects.
const MAX_UNPACKED: u64 = 16 * 1024 * 1024;

/// Returns the largest number of pages that the file can have, at least 1; `None` if an object stream cannot be read.
pub(super) fn count_pages(bytes: &[u8]) -> Option<u32> {
    let (mut pages, mut room) = (count_objects(bytes), MAX_UNPACKED);
    for packed in object_streams(bytes) {
        let mut unpacked = Vec::new();
        // Reads one byte more than allowed, so that a stream that is too large is noticed.
        ZlibDecoder::new(packed?).take(room.saturating_add(1)).read_to_end(&mut unpacked).ok()?;
        // One bound for all streams together: many small ones could unpack to as much as a large one.
        room = room.checked_sub(u64::try_from(unpacked.len()).unwrap_or(u64::MAX))?;
        pages = pages.saturating_add(count_objects(&unpacked));
    }
    Some(pages.max(1))
}

/// Counts the objects of the type `Page`.
fn count_objects(bytes: &[u8]) -> u32 {
    let mut count = 0_u32;
    for after in after_each(bytes, b"/Type") {
        let name = after.trim_ascii_start();
        let Some(rest) = name.strip_prefix(b"/Page") else { continue };
        // `/Pages` is a node of the tree above the pages.
        if rest.first().is_none_or(|next| !next.is_ascii_alphanumeric()) {
            count = count.saturating_add(1);
        }
    }
    count
}

/// Returns the bytes after the start of each object stream's data; `None` for a stream whose start is not found where PDF
/// writers put it.
fn object_streams(bytes: &[u8]) -> impl Iterator<Item = Option<&[u8]>> {
    after_each(bytes, b"/ObjStm").map(|after| {
        let data = after_each(after, b"stream").next()?;
        data.strip_prefix(b"\r\n").or_else(|| data.strip_prefix(b"\n"))
    })
}

/// Returns, for each occurrence of `word`, the bytes that follow it.
fn after_each<'a>(bytes: &'a [u8], word: &'static [u8]) -> impl Iterator<Item = &'a [u8]> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let place = rest.windows(word.len()).position(|window| window == word)?;
        rest = rest.get(place.saturating_add(word.len())..)?;
        Some(rest)
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::ZlibEncoder;

    use super::*;

    fn packed(objects: &str) -> Vec<u8> {
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(objects.as_bytes()).expect("packs");
        let data = encoder.finish().expect("packs");
        let head = format!("1 0 obj<</Type/ObjStm/Filter/FlateDecode/Length {}>>stream\r\n", data.len());
        [head.as_bytes(), &data, b"\nendstream endobj\n"].concat()
    }

    #[test]
    fn pages_are_counted_in_text_and_in_packed_objects() {
        assert_eq!(count_pages(b"%PDF-1.4 no page"), Some(1));
        assert_eq!(count_pages(b"<</Type /Page /Parent 1 0 R>><</Type/Pages>><</Type/Page>>"), Some(2));
        let many = packed(&"<</Type/Page/Parent 1 0 R>>".repeat(5_000));
        assert!(many.len() < 2_000, "{} bytes have five thousand pages", many.len());
        assert_eq!(
            count_pages(&[many.as_slice(), packed("<</Type/Page>>").as_slice()].concat()),
            Some(5_001)
        );
    }

    #[test]
    fn a_file_whose_objects_cannot_be_read_has_no_number_of_pages() {
        assert_eq!(count_pages(b"<</Type/ObjStm>>stream\nthis is enciphered"), None);
        assert_eq!(count_pages(b"<</Type/ObjStm>>"), None);
        let bomb = packed(&" ".repeat(17 * 1024 * 1024));
        assert_eq!(count_pages(&bomb), None, "{} bytes", bomb.len());
    }
}
