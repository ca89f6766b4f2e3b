//! The documents of a home, `agent/docs`: about Writ itself, of the owner and of the agent. Programs in the sandbox read them;
//! nothing of them is in a request before.

mod index;

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use writ_types::action::DOCUMENT_INDEX;
use writ_types::error::{Exit, Report, ToReport};

use self::index::{FrontMatter, IndexRow, read_front_matter, render_index};

/// The documents that `init` writes.
pub(crate) const SEEDS: [(&str, &str); 4] = [
    ("about-writ.md", include_str!("documents/about-writ.md")),
    ("approvals.md", include_str!("documents/approvals.md")),
    ("memory.md", include_str!("documents/memory.md")),
    ("where-things-are.md", include_str!("documents/where-things-are.md")),
];

/// The documents that the index lists, and above which the agent writes no further one.
const MAX_DOCUMENTS: usize = 256;

/// The beginning of a document that is read for its front matter, in bytes.
const MAX_HEAD_BYTES: u64 = 8 * 1024;

/// The entries of the folder that are looked at: no folder of documents has more.
const MAX_ENTRIES: usize = 10_000;

/// Sessions write and begin at once, and a draft has one name.
static WRITES: Mutex<()> = Mutex::new(());

/// The reason that a document cannot be written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DocumentFileError {
    /// There is no folder for it.
    #[error("{0} is not a folder")]
    NoFolder(PathBuf),
    /// Something else than a file stands in its place.
    #[error("{0} is not a file")]
    NotAFile(String),
    /// It was not written by the agent.
    #[error("{0} was not written by you")]
    NotTheAgents(String),
    /// There are too many.
    #[error("there are {MAX_DOCUMENTS} documents already")]
    TooMany,
    /// The system refused it.
    #[error("{path} cannot be used: {source}")]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

impl ToReport for DocumentFileError {
    fn report(&self) -> Report {
        let (exit, code, hint) = match self {
            Self::NoFolder(_) => (Exit::Usage, "document.no_folder", "run `writ init`"),
            Self::NotAFile(_) => (Exit::Usage, "document.not_a_file", "choose another name"),
            Self::NotTheAgents(_) => (
                Exit::Usage,
                "document.not_the_agents",
                "choose another name, and name that document in yours",
            ),
            Self::TooMany => {
                (Exit::Usage, "document.too_many", "write into one of yours, or ask the owner to remove some")
            }
            Self::Io { .. } => {
                (Exit::Blocked, "document.file", "check the space, the owner and the mode of the folder")
            }
        };
        Report::new(exit, code, self.to_string()).with_hint(hint)
    }
}

/// Writes the documents of Writ that are not there, and the index; returns the names of those that were written.
///
/// # Errors
///
/// If the folder cannot be made, read or written.
pub(crate) fn seed_documents(folder: &Path) -> Result<Vec<&'static str>, DocumentFileError> {
    let mut written = Vec::new();
    for (name, text) in SEEDS {
        let path = folder.join(name);
        // Never over a file that exists: the owner may have changed it.
        let new = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        match new {
            Ok(mut file) => {
                file.write_all(text.as_bytes()).map_err(|source| DocumentFileError::Io { path, source })?;
                written.push(name);
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(source) => return Err(DocumentFileError::Io { path, source }),
        }
    }
    write_index(folder)?;
    Ok(written)
}

/// Writes the index anew if it is not what the documents say.
///
/// # Errors
///
/// If the folder cannot be read or the index not be written.
pub(crate) fn write_index(folder: &Path) -> Result<(), DocumentFileError> {
    let _alone = WRITES.lock().unwrap_or_else(PoisonError::into_inner);
    renew_index(folder)
}

fn renew_index(folder: &Path) -> Result<(), DocumentFileError> {
    let (rows, others) = read_rows(folder)?;
    let text = render_index(&rows, others);
    let path = folder.join(DOCUMENT_INDEX);
    // A larger file than the index is none, so that much of it is enough to compare.
    let most = u64::try_from(text.len()).unwrap_or(u64::MAX).saturating_add(1);
    if read_start(&path, most).ok().flatten().is_some_and(|found| found == text) {
        return Ok(());
    }
    replace_file(&path, text.as_bytes()).map_err(|source| DocumentFileError::Io { path, source })
}

/// Writes a document of the agent's, and the index; returns true if there was none of this name. One that the agent has not
/// written stays as it is.
///
/// # Errors
///
/// If it cannot be written, or is not the agent's.
pub(crate) fn write_document(folder: &Path, name: &str, text: &str) -> Result<bool, DocumentFileError> {
    let _alone = WRITES.lock().unwrap_or_else(PoisonError::into_inner);
    let path = folder.join(name);
    let (rows, _) = read_rows(folder)?;
    let is_new = match fs::symlink_metadata(&path) {
        Ok(meta) if !meta.is_file() => return Err(DocumentFileError::NotAFile(name.to_owned())),
        Ok(_) => {
            // The index has read the front matter already.
            let found = rows.iter().find(|row| row.name == name);
            let is_agents = found.is_some_and(|row| row.front.is_by_agent());
            if !is_agents {
                return Err(DocumentFileError::NotTheAgents(name.to_owned()));
            }
            false
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            // A further one would not be in the index, and so never be read.
            if rows.len() >= MAX_DOCUMENTS {
                return Err(DocumentFileError::TooMany);
            }
            true
        }
        Err(source) => return Err(DocumentFileError::Io { path, source }),
    };
    replace_file(&path, text.as_bytes()).map_err(|source| DocumentFileError::Io { path, source })?;
    // The next session would make it, too; this one may look at once.
    renew_index(folder)?;
    Ok(is_new)
}

/// Returns a row for each document, sorted by name, and the number of the entries that are not listed.
fn read_rows(folder: &Path) -> Result<(Vec<IndexRow>, usize), DocumentFileError> {
    let failed = |source| DocumentFileError::Io { path: folder.to_owned(), source };
    // A link would lead to another folder of the owner's.
    if !fs::symlink_metadata(folder).is_ok_and(|meta| meta.is_dir()) {
        return Err(DocumentFileError::NoFolder(folder.to_owned()));
    }
    let (mut names, mut others) = (Vec::new(), 0_usize);
    for entry in fs::read_dir(folder).map_err(failed)?.take(MAX_ENTRIES) {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name();
        // Hidden files are drafts of editors and of the write below.
        if is_passed_over(&name) {
            continue;
        }
        let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
        match name.into_string() {
            Ok(name) if is_file && name.ends_with(".md") => names.push(name),
            Ok(_) | Err(_) => others = others.saturating_add(1),
        }
    }
    // The order of the system is none, and would change the index each time.
    names.sort_unstable();
    others = others.saturating_add(names.len().saturating_sub(MAX_DOCUMENTS));
    names.truncate(MAX_DOCUMENTS);
    let rows = names.into_iter().map(|name| {
        let front = match read_start(&folder.join(&name), MAX_HEAD_BYTES) {
            Ok(Some(head)) => read_front_matter(&head),
            Ok(None) | Err(_) => FrontMatter::unreadable(),
        };
        IndexRow { name, front }
    });
    Ok((rows.collect(), others))
}

/// Returns true for the index itself, and for hidden files.
fn is_passed_over(name: &OsStr) -> bool {
    name == DOCUMENT_INDEX || name.as_encoded_bytes().starts_with(b".")
}

/// Reads the first bytes of a regular file; `None`: it is something else. Neither follows a link nor waits for a pipe.
fn read_start(path: &Path, bytes: u64) -> io::Result<Option<String>> {
    let flags = nix::libc::O_NONBLOCK | nix::libc::O_NOFOLLOW;
    // A pipe would wait for its other end.
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    if !file.metadata()?.is_file() {
        return Ok(None);
    }
    let mut start = Vec::new();
    file.take(bytes).read_to_end(&mut start)?;
    Ok(Some(String::from_utf8_lossy(&start).into_owned()))
}

/// Replaces a file as a whole: a reader finds the old text or the new one.
pub(crate) fn replace_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let new = path.with_file_name(format!(".{name}.new"));
    // A link in its place would lead the text elsewhere.
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let mut file: File = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&new, path)
}

#[cfg(test)]
mod tests;
