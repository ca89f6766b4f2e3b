//! Requests for files of the work folder, and their replies. A runner carries out the request where programs
//! run; the reply has gone through memory that a program could have reached, so it is data of a known shape
//! or an error.

use serde::{Deserialize, Serialize};
use writ_types::action::{FileChange, ReadFile};
use writ_types::digest::Digest;
use writ_types::encoding::TextEncoding;

use crate::file::{FileFault, ReadResult, WrittenFile};

/// The largest reply, in bytes: a file of [`FILE_MAX`](crate::file::FILE_MAX) bytes as JSON text.
pub(crate) const REPLY_MAX: u64 = 64 * 1024 * 1024;

/// A request for files of the work folder.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum FileRequest {
    /// Reads, lists or searches.
    Read(ReadFile),
    /// Returns a file's digest and content.
    Peek(String),
    /// Writes one file.
    Write { change: FileChange, content: Option<String>, encoding: TextEncoding },
    /// Makes or replaces one file with exactly so many bytes from standard input.
    Save { path: String, bytes: u64 },
}

/// The reply to a [`FileRequest`], as JSON on standard output.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum FileReply {
    Read(ReadResult),
    /// Content in hexadecimal digits.
    Peek(Option<PeekReply>),
    Written(WrittenFile),
    Fault(FileFault),
}

/// A file as [`FileRequest::Peek`] finds it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct PeekReply {
    pub(crate) digest: Digest,
    pub(crate) content: String,
    pub(crate) executable: bool,
}

/// The longest beginning of a text that has at most `max` bytes and cuts no character.
pub(crate) fn cut_text(text: &str, max: usize) -> &str {
    let mut end = max.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default()
}
