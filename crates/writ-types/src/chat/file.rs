//! Files that come with a message: images and PDF files, which a model reads as they are.
//!
//! A file is stored once under its digest. In the text of its message it stands as a line that names it, so that history,
//! search and compaction treat it like any other text; its bytes join the request just before it is sent.

use std::fmt;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::pages;
use crate::digest::Digest;
use crate::visible::acts_unseen;

/// The largest file, in bytes. It comes as base64 in one frame of 4 MiB; providers take images of 5 MB.
pub const MAX_FILE_BYTES: usize = 2_900_000;

/// The most files of one request. Anthropic takes 100 images, and less would mostly be a mistake.
pub const MAX_FILES: usize = 20;

/// The most bytes of the files of one request. Anthropic and Gemini take requests of 20 MB and more, as base64.
pub const MAX_FILES_BYTES: usize = 12_000_000;

/// The longest name of a file, in bytes.
pub const MAX_FILE_NAME: usize = 128;

/// The pages of a PDF file whose pages cannot be counted: more are refused by most models.
const MAX_COUNTED_PAGES: u32 = 100;

/// The most tokens of one image, and of one page with its image.
const IMAGE_TOKENS: u64 = 1_600;
const PAGE_TOKENS: u64 = 3_000 + IMAGE_TOKENS;

/// The text before the name in a line that stands for a file.
pub const FILE_LINE_START: &str = "[attached file: ";

/// The type of a file that models read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum MediaType {
    /// PNG.
    #[serde(rename = "image/png")]
    Png,
    /// JPEG.
    #[serde(rename = "image/jpeg")]
    Jpeg,
    /// GIF.
    #[serde(rename = "image/gif")]
    Gif,
    /// WebP.
    #[serde(rename = "image/webp")]
    WebP,
    /// PDF.
    #[serde(rename = "application/pdf")]
    Pdf,
}

/// The reason why a file is not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    /// It has no bytes.
    #[error("it is empty")]
    Empty,
    /// It is too large.
    #[error("it has {bytes} bytes; the limit is {MAX_FILE_BYTES}")]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
    /// It is of no type that models read.
    #[error("it is no PNG, JPEG, GIF or WebP image and no PDF file")]
    OtherType,
    /// Its end is missing.
    #[error("its end is missing: it is cut or damaged")]
    Cut,
    /// Its name is empty, too long or has characters that cannot be seen.
    #[error("its name must have 1 to {MAX_FILE_NAME} bytes that can be seen, without brackets")]
    Name,
}

impl MediaType {
    /// Every type.
    pub const ALL: [Self; 5] = [Self::Png, Self::Jpeg, Self::Gif, Self::WebP, Self::Pdf];

    /// The name of the type in the registry of media types.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Png => "image/png",
            Self::Jpeg => "image/jpeg",
            Self::Gif => "image/gif",
            Self::WebP => "image/webp",
            Self::Pdf => "application/pdf",
        }
    }

    /// Returns true if it is an image.
    pub const fn is_image(self) -> bool {
        match self {
            Self::Png | Self::Jpeg | Self::Gif | Self::WebP => true,
            Self::Pdf => false,
        }
    }

    /// Returns the type by the first bytes: a name or a header may say anything.
    pub fn recognise(bytes: &[u8]) -> Option<Self> {
        // By the first bytes: the sender chooses the name freely. The four bytes between these two hold the size.
        let webp = bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WEBP".as_slice());
        match bytes {
            [0x89, b'P', b'N', b'G', 0x0d, 0x0a, 0x1a, 0x0a, ..] => Some(Self::Png),
            [0xff, 0xd8, 0xff, ..] => Some(Self::Jpeg),
            [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some(Self::Gif),
            [b'%', b'P', b'D', b'F', b'-', ..] => Some(Self::Pdf),
            _ if webp => Some(Self::WebP),
            _ => None,
        }
    }

    /// Returns true if the file has the end that its format demands. Providers refuse a whole request for a damaged file.
    fn has_end(self, bytes: &[u8]) -> bool {
        // Programs append bytes to files, and readers look for the end within the last kilobyte.
        let tail = bytes.get(bytes.len().saturating_sub(1_024)..).unwrap_or(bytes);
        let has = |end: &[u8]| tail.windows(end.len()).any(|window| window == end);
        match self {
            Self::Png => has(b"IEND"),
            Self::Jpeg => has(&[0xff, 0xd9]),
            Self::Gif => bytes.last() == Some(&0x3b),
            Self::WebP => {
                let size = bytes.get(4..8).and_then(|size| size.try_into().ok()).map(u32::from_le_bytes);
                size.is_some_and(|size| usize::try_from(size).is_ok_and(|size| size <= bytes.len() - 8))
            }
            Self::Pdf => has(b"%%EOF") && has(b"startxref"),
        }
    }
}

impl fmt::Display for MediaType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A file that is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FileRef {
    /// Its name, for people and models.
    pub name: String,
    /// Its type.
    pub media: MediaType,
    /// The number of its pages, of a PDF file; none of one that came before they were counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pages: Option<u32>,
    /// Its size, in bytes.
    pub bytes: u64,
    /// The digest of its bytes, under which it is stored.
    pub digest: Digest,
}

impl FileRef {
    /// Describes a file by its bytes.
    ///
    /// # Errors
    ///
    /// If it is empty, too large, of another type, cut, or its name cannot be shown.
    pub fn describe_file(name: &str, bytes: &[u8]) -> Result<Self, FileError> {
        let name = name.trim();
        let fits = (1..=MAX_FILE_NAME).contains(&name.len());
        // Brackets delimit the line that stands for the file in the text.
        let hides = |c: char| c.is_control() || acts_unseen(c) || matches!(c, '[' | ']');
        if !fits || name.chars().any(hides) {
            return Err(FileError::Name);
        }
        if bytes.is_empty() {
            return Err(FileError::Empty);
        }
        if bytes.len() > MAX_FILE_BYTES {
            return Err(FileError::TooLarge { bytes: bytes.len() });
        }
        let media = MediaType::recognise(bytes).ok_or(FileError::OtherType)?;
        // A provider refuses the whole request for one damaged file, so it is refused before.
        if !media.has_end(bytes) {
            return Err(FileError::Cut);
        }
        let bytes_count = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        let (name, pages) = (name.to_owned(), Self::count_pages(media, bytes));
        Ok(Self { name, media, pages, bytes: bytes_count, digest: Digest::of_bytes(bytes) })
    }

    /// Returns the number of pages of a PDF file, and 100 where they cannot be counted.
    pub fn count_pages(media: MediaType, bytes: &[u8]) -> Option<u32> {
        (media == MediaType::Pdf).then(|| pages::count_pages(bytes).unwrap_or(MAX_COUNTED_PAGES))
    }

    /// Returns the line that stands for the file in the text of its message.
    pub fn to_line(&self) -> String {
        let pages = self.pages.map(|pages| format!("{pages} pages, ")).unwrap_or_default();
        format!(
            "{FILE_LINE_START}{}, {}, {pages}{} bytes, {}]",
            self.name, self.media, self.bytes, self.digest
        )
    }

    /// Returns the tokens that the files of a text are counted as at most.
    pub fn tokens_of_files(text: &str) -> u64 {
        // Most texts name no file, and are not split into lines for it.
        if !text.contains(FILE_LINE_START) {
            return 0;
        }
        Self::files_in(text).iter().map(Self::estimated_tokens).fold(0, u64::saturating_add)
    }

    /// Returns the files that the lines of a text stand for, in their order, each once.
    pub fn files_in(text: &str) -> Vec<Self> {
        let mut files: Vec<Self> = Vec::new();
        for file in text.lines().filter_map(Self::read_line) {
            // A file that is named twice is sent once.
            if files.len() < MAX_FILES && files.iter().all(|other| other.digest != file.digest) {
                files.push(file);
            }
        }
        files
    }

    fn read_line(line: &str) -> Option<Self> {
        let inner = line.trim().strip_prefix(FILE_LINE_START)?.strip_suffix(']')?;
        // From the end, since the name may hold commas.
        let (rest, digest) = inner.rsplit_once(", ")?;
        let (rest, bytes) = rest.rsplit_once(", ")?;
        let bytes = bytes.strip_suffix(" bytes")?.parse().ok()?;
        let (rest, last) = rest.rsplit_once(", ")?;
        let pages: Option<u32> = last.strip_suffix(" pages").and_then(|pages| pages.parse().ok());
        let (name, media) = if pages.is_some() { rest.rsplit_once(", ")? } else { (rest, last) };
        let media = MediaType::ALL.into_iter().find(|known| known.as_str() == media)?;
        Some(Self { name: name.to_owned(), media, pages, bytes, digest: digest.parse().ok()? })
    }

    /// Returns the tokens that a model counts for the file at most. An image costs up to 1,600 at Anthropic
    /// (<https://docs.anthropic.com/en/docs/build-with-claude/vision>); a page of a PDF file up to 3,000 for its text, and is
    /// sent as an image besides (<https://docs.anthropic.com/en/docs/build-with-claude/pdf-support>). Other providers count less.
    pub fn estimated_tokens(&self) -> u64 {
        match (self.media, self.pages) {
            (MediaType::Png | MediaType::Jpeg | MediaType::Gif | MediaType::WebP, _) => IMAGE_TOKENS,
            (MediaType::Pdf, Some(pages)) => u64::from(pages.max(1)).saturating_mul(PAGE_TOKENS),
            // Of before: its pages are not known, and a page of text has some tens of kilobytes.
            (MediaType::Pdf, None) => PAGE_TOKENS.saturating_add(self.bytes / 20),
        }
    }
}

/// A file within a message, with its bytes where they are needed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttachedFile {
    /// The file.
    pub file: FileRef,
    /// Its bytes as base64. Not part of what is stored: the digest stands for it.
    #[serde(skip)]
    pub content: Option<Arc<str>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    const PNG: &[u8] = b"\x89PNG\r\n\x1a\n....IEND\xaeB`\x82";
    const PDF: &[u8] = b"%PDF-1.4\n1 0 obj\nendobj\nstartxref\n9\n%%EOF\n";

    #[test]
    fn files_are_known_by_their_bytes() {
        let media = |bytes: &[u8]| FileRef::describe_file("a", bytes).map(|file| file.media);
        assert_eq!(media(PNG), Ok(MediaType::Png));
        assert_eq!(media(b"\xff\xd8\xff\xe0....\xff\xd9"), Ok(MediaType::Jpeg));
        assert_eq!(media(b"GIF89a....;"), Ok(MediaType::Gif));
        assert_eq!(media(b"RIFF\x06\0\0\0WEBPVP"), Ok(MediaType::WebP));
        assert_eq!(media(PDF), Ok(MediaType::Pdf));
    }

    /// Rows: SIL-402 (in part: a corrupt PDF is an error)
    #[test]
    fn damaged_foreign_and_huge_files_are_refused() {
        let refused = |name: &str, bytes: &[u8]| FileRef::describe_file(name, bytes).expect_err("refused");
        assert_eq!(refused("a.png", b""), FileError::Empty);
        assert_eq!(refused("a.png", b"MZ this is no image"), FileError::OtherType);
        assert_eq!(refused("a.svg", b"<svg onload='x'/>"), FileError::OtherType);
        for bytes in [PNG, PDF, b"\xff\xd8\xff\xe0....\xff\xd9".as_slice(), b"GIF89a..........;"] {
            assert_eq!(refused("a", &bytes[..bytes.len() / 2]), FileError::Cut);
        }
        assert_eq!(refused("a.webp", b"RIFF\xff\0\0\0WEBPVP"), FileError::Cut);
        let huge = [PNG, vec![0; MAX_FILE_BYTES].as_slice()].concat();
        assert_eq!(refused("a.png", &huge), FileError::TooLarge { bytes: huge.len() });
        for name in ["", " ", "a]\n[b", "a\u{202e}b", &"x".repeat(MAX_FILE_NAME + 1)] {
            assert_eq!(refused(name, PNG), FileError::Name, "{name:?}");
        }
    }

    #[test]
    fn a_line_names_its_file_and_no_other_text_does() {
        let file = FileRef::describe_file("a, b.png", PNG).expect("an image");
        let text = format!("look\n{}\nand\n  {}\nagain", file.to_line(), file.to_line());
        assert_eq!(FileRef::files_in(&text), std::slice::from_ref(&file));
        for line in [
            "[attached file: x]".to_owned(),
            file.to_line().replace("image/png", "text/html"),
            file.to_line().replace(']', ""),
            format!("see {}", file.to_line()),
        ] {
            assert_eq!(FileRef::files_in(&line), [], "{line}");
        }
    }

    /// A bound of money holds only if no file costs more than it is counted as.
    #[test]
    fn a_pdf_file_is_counted_by_its_pages() {
        let pages: String = (0..40).map(|n| format!("{n} 0 obj<</Type/Page>>endobj\n")).collect();
        let bytes =
            format!("%PDF-1.4\n1 0 obj<</Type /Pages /Count 40>>endobj\n{pages}startxref\n9\n%%EOF\n");
        let file = FileRef::describe_file("a, b, 3 pages.pdf", bytes.as_bytes()).expect("a PDF file");
        assert_eq!((file.pages, file.estimated_tokens()), (Some(40), 40 * PAGE_TOKENS));
        assert!(file.estimated_tokens() > file.bytes, "each of its pages has some twenty bytes");
        assert_eq!(FileRef::files_in(&file.to_line()), std::slice::from_ref(&file));
        assert_eq!(FileRef::tokens_of_files(&format!("read\n{}", file.to_line())), file.estimated_tokens());
        // A line from before pages were counted.
        let before = file.to_line().replace(", 40 pages", "");
        let read = FileRef::files_in(&before).pop().expect("a file");
        assert_eq!((read.pages, read.name.as_str()), (None, "a, b, 3 pages.pdf"));
    }

    #[test]
    fn the_bytes_are_not_stored_with_the_message() {
        let file = FileRef::describe_file("a.png", PNG).expect("an image");
        let attached = AttachedFile { file, content: Some("QUJD".into()) };
        let json = serde_json::to_string(&attached).expect("JSON");
        assert!(!json.contains("QUJD"), "{json}");
        let read: AttachedFile = serde_json::from_str(&json).expect("reads");
        assert_eq!(read, AttachedFile { content: None, ..attached });
    }
}
