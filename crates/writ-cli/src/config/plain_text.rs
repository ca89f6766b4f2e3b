//! Text files of the owner's that somebody else may have put there: read with a bound, through no link, and without waiting.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// A file that cannot be read as text.
#[derive(Debug)]
pub(super) enum PlainTextError {
    /// The system refuses it.
    Io(io::Error),
    /// It is something else than a text of the size.
    Wrong(String),
}

impl From<io::Error> for PlainTextError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Reads a file of at most `max` bytes; `None`: there is none.
///
/// # Errors
///
/// If it cannot be read, is a link or no file, is too large, or is not UTF-8.
pub(super) fn read_plain_text(path: &Path, max: u64) -> Result<Option<String>, PlainTextError> {
    let wrong = |why: &str| PlainTextError::Wrong(why.to_owned());
    let file = match open_plain(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    if !file.metadata()?.is_file() {
        return Err(wrong("it is not a file"));
    }
    let mut bytes = Vec::new();
    // One byte more than allowed shows that there is more.
    file.take(max.saturating_add(1)).read_to_end(&mut bytes)?;
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > max {
        return Err(wrong(&format!("it has more than {max} bytes")));
    }
    String::from_utf8(bytes).map(Some).map_err(|_| wrong("it is not UTF-8 text"))
}

/// Opens a file for reading. A link could lead to a file of another owner, and a pipe would wait for its other end.
pub(super) fn open_plain(path: &Path) -> io::Result<File> {
    let flags = nix::libc::O_NONBLOCK | nix::libc::O_NOFOLLOW;
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}
