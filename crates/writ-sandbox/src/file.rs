//! The results of reading and writing in the work folder. All of it happens in a worker inside the sandbox.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use writ_types::digest::Digest;
use writ_types::encoding::TextForm;

/// The most bytes of text that one read returns: about 60,000 tokens, more than a turn should see at once.
pub const TEXT_MAX: u64 = 256 * 1024;
/// The largest file that is read, written or searched, in bytes.
pub const FILE_MAX: u64 = 16 * 1024 * 1024;
/// The largest answer of a fetch that is saved without a person's approval, in bytes (WIN-211).
pub const SAVE_MAX: u64 = 50 * 1024 * 1024;
/// The largest answer of a fetch that is saved at all, in bytes: it is held in memory until then.
pub const LARGE_MAX: u64 = 256 * 1024 * 1024;
/// The most entries that one listing returns.
pub const ENTRIES_MAX: usize = 5_000;
/// The most matches that one search returns, even where more were asked for.
pub const MATCHES_MAX: u64 = 1_000;
/// The most matches within one long line that a search shows.
pub const PLACES_MAX: usize = 10;
/// The longest line that a search shows as a whole, in bytes; of longer ones it shows so much around each match.
pub const LINE_MAX: usize = 500;
/// The longest that one file request may take, in milliseconds.
pub const FILE_TIME_MAX_MS: u64 = 30_000;

/// The result of a read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "read", rename_all = "snake_case")]
pub enum ReadResult {
    /// Lines of a text file.
    Text {
        /// The lines, with their ends.
        text: String,
        /// The first of them, counted from one.
        first_line: u64,
        /// The number of lines of the file.
        total_lines: u64,
        /// Size of the file, in bytes.
        bytes: u64,
        /// Digest of the whole file.
        digest: Digest,
        /// True if a bound other than the one asked for cut the text.
        truncated: bool,
        /// The file's conventions.
        form: TextForm,
    },
    /// The file is neither UTF-8 text nor UTF-16 text with a mark.
    Binary {
        /// Size of the file, in bytes.
        bytes: u64,
        /// Digest of the whole file.
        digest: Digest,
        /// The kind of content that its bytes suggest.
        content: FileContent,
    },
    /// The entries of a folder, sorted by name.
    List {
        /// The entries.
        entries: Vec<ListEntry>,
        /// True if there are more.
        truncated: bool,
    },
    /// Lines that match, sorted by path and line.
    Search {
        /// The matches.
        matches: Vec<SearchMatch>,
        /// The number of files that were searched.
        files: u64,
        /// True if there may be more.
        truncated: bool,
    },
}

/// One entry of a folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListEntry {
    /// Its name; what is not UTF-8 is replaced.
    pub name: String,
    /// The kind of the entry.
    pub kind: EntryKind,
    /// Its size in bytes, for files.
    pub bytes: u64,
}

/// The kind of a folder's entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EntryKind {
    /// A file.
    File,
    /// A folder.
    Folder,
    /// A symbolic link.
    Link,
    /// Anything else.
    Special,
}

/// A line that matches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SearchMatch {
    /// The file, relative to the work folder.
    pub path: String,
    /// The line, counted from one.
    pub line: u64,
    /// The line's text, or of a longer line the part around the match: at most [`LINE_MAX`] bytes.
    pub text: String,
    /// The place of the part in a long line; `None`: the line is whole.
    pub window: Option<MatchWindow>,
}

/// The part of a long line around a match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MatchWindow {
    /// The character at which the match begins, counted from one.
    pub column: u64,
    /// True if something of the line stands before the part.
    pub cut_before: bool,
    /// True if something of the line stands after it.
    pub cut_after: bool,
}

/// The content of a file that is no Unicode text, as far as its bytes suggest it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "looks_like", rename_all = "snake_case")]
pub enum FileContent {
    /// Text in an older encoding; which one is a guess.
    Charset {
        /// The name that `iconv` knows it by.
        charset: String,
    },
    /// A known format.
    Format {
        /// Its name.
        format: String,
    },
    /// Anything else.
    Bytes,
}

impl FileContent {
    /// Words for a sentence: «the file is …».
    pub fn as_str(&self) -> Cow<'_, str> {
        match self {
            Self::Charset { charset } => format!("most likely {charset} text").into(),
            Self::Format { format } => format.into(),
            Self::Bytes => "binary data".into(),
        }
    }

    /// The encoding, if the content looks like text.
    pub fn charset(&self) -> Option<&str> {
        match self {
            Self::Charset { charset } => Some(charset),
            Self::Format { .. } | Self::Bytes => None,
        }
    }
}

/// The result of a write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WrittenFile {
    /// Digest of the file now; `None` when it was deleted.
    pub digest: Option<Digest>,
    /// Its size, in bytes.
    pub bytes: u64,
}

/// A file as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSnapshot {
    /// Digest of the whole file.
    pub digest: Digest,
    /// Its content.
    pub bytes: Vec<u8>,
    /// True if its owner may execute it.
    pub executable: bool,
}

/// The reason why a file request was not done. Travels from the worker to the host; holds paths of the work
/// folder only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "fault", rename_all = "snake_case")]
pub enum FileFault {
    /// Nothing is there.
    #[error("'{path}' does not exist")]
    NotFound {
        /// The path of the request.
        path: String,
    },
    /// The path is absolute, or leaves the work folder.
    #[error("'{path}' lies outside the work folder")]
    Outside {
        /// The path of the request.
        path: String,
    },
    /// A symbolic link stands in the way; links are not followed.
    #[error("'{path}' is or passes a symbolic link")]
    Link {
        /// The path of the request.
        path: String,
    },
    /// A folder, where a file is needed, or the other way round, or a pipe, socket or device.
    #[error("'{path}' is not a {expected}")]
    Kind {
        /// The path of the request.
        path: String,
        /// The kind that it would have to be.
        expected: String,
    },
    /// Larger than [`FILE_MAX`]; for a saved answer, than [`SAVE_MAX`], or [`LARGE_MAX`] if the permit allows that.
    #[error("'{path}' has {bytes} bytes: too large")]
    TooLarge {
        /// The path of the request.
        path: String,
        /// Its size.
        bytes: u64,
    },
    /// The pattern or glob is not valid.
    #[error("invalid pattern: {why}")]
    Pattern {
        /// The mistake in it.
        why: String,
    },
    /// The file is not what the change was made for.
    #[error("'{path}' has changed since it was read")]
    Conflict {
        /// The path of the request.
        path: String,
        /// The digest of the file now.
        found: Option<Digest>,
    },
    /// The content does not have the digest that the change names.
    #[error("the content for '{path}' is not the one that the change names")]
    Content {
        /// The path of the request.
        path: String,
    },
    /// The change is not a write of exactly one file with its content.
    #[error("this change cannot be written here: {why}")]
    Unsupported {
        /// The mistake in it.
        why: String,
    },
    /// The system refused.
    #[error("'{path}': {why}")]
    Io {
        /// The path of the request.
        path: String,
        /// The error of the system.
        why: String,
    },
}
