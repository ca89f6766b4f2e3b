//! Files that an agent sends to its person: taken out of the work folder, and stored in a folder of the home.
//!
//! A stored file is never run or read by the host; it is handed out as bytes.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use writ_types::error::{Exit, Report, ToReport};
use writ_types::visible::acts_unseen;

/// The most files that are stored of one session: more are no answer to a person any more.
pub const SENT_FILES_MAX: usize = 100;
/// The most bytes that are stored of one session.
pub const SENT_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// The longest name of a stored file, in bytes: below the 255 of common file systems.
const NAME_MAX: usize = 120;

/// The content of a file that was taken out for a permit. Only [`Workspace::take_file`](crate::Workspace::take_file) makes one.
#[derive(Debug)]
pub struct OutgoingFile {
    pub(crate) path: String,
    pub(crate) content: Vec<u8>,
}

/// A stored file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutboxFile {
    /// The file's path.
    pub path: PathBuf,
    /// Its name, which may not be that of the work folder: what could deceive is replaced.
    pub name: String,
    /// Its size, in bytes.
    pub bytes: u64,
}

/// The reason why a file is not stored, or not found again.
#[derive(Debug, thiserror::Error)]
pub enum OutboxError {
    /// There are enough of this session.
    #[error("this session has sent {SENT_FILES_MAX} files or {SENT_BYTES_MAX} bytes already")]
    Full,
    /// There is no such file.
    #[error("there is no such file")]
    Missing,
    /// The system refused.
    #[error("the folder of sent files could not be used: {0}")]
    Io(#[from] io::Error),
}

impl ToReport for OutboxError {
    fn report(&self) -> Report {
        match self {
            Self::Full => Report::new(Exit::Budget, "outbox.full", self.to_string())
                .with_hint("The user can remove files of the folder data/sent."),
            Self::Missing => Report::new(Exit::Usage, "outbox.missing", self.to_string()),
            Self::Io(error) => {
                Report::new(Exit::Blocked, "outbox.io", "the file could not be stored or read")
                    .with_inside(error.to_string())
                    .with_hint("Free some space, or make the folder of sent files writable.")
            }
        }
    }
}

impl OutgoingFile {
    /// The content.
    pub fn file_content(&self) -> &[u8] {
        &self.content
    }

    /// Stores the file in a folder of its own, `session/number/name`. A folder of that number from a history
    /// that a restore gave up is renamed.
    ///
    /// # Errors
    ///
    /// If the session has sent enough, or the folder cannot be written.
    pub fn store_file(self, session: &Path, number: u64) -> Result<OutboxFile, OutboxError> {
        let bytes = u64::try_from(self.content.len()).unwrap_or(u64::MAX);
        make_folder(session)?;
        let (mut files, mut total) = (0, bytes);
        for entry in fs::read_dir(session)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                files += 1;
                total = total.saturating_add(only_file(&entry.path())?.map_or(0, |file| file.bytes));
            }
        }
        // Counted on disk, so that a restart does not begin at zero.
        if files >= SENT_FILES_MAX || total > SENT_BYTES_MAX {
            return Err(OutboxError::Full);
        }
        let folder = session.join(number.to_string());
        // Nothing is written over: an older file may have been shown to a person.
        step_aside(&folder)?;
        DirBuilder::new().mode(0o700).create(&folder)?;
        let name = safe_name(&self.path);
        let path = folder.join(&name);
        let written = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .and_then(|mut file| file.write_all(&self.content).and_then(|()| file.sync_data()));
        if let Err(error) = written {
            // Half a file is none.
            let _removed = fs::remove_dir_all(&folder);
            return Err(error.into());
        }
        Ok(OutboxFile { path, name, bytes })
    }
}

/// Finds a stored file again, and reads it.
///
/// # Errors
///
/// If there is none, or it cannot be read.
pub fn read_stored(session: &Path, number: u64) -> Result<(OutboxFile, Vec<u8>), OutboxError> {
    let kept = only_file(&session.join(number.to_string()))?.ok_or(OutboxError::Missing)?;
    let mut content = Vec::new();
    fs::File::open(&kept.path)?.take(crate::file::FILE_MAX).read_to_end(&mut content)?;
    Ok((kept, content))
}

/// The one file of a folder.
fn only_file(folder: &Path) -> io::Result<Option<OutboxFile>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    for entry in entries {
        let entry = entry?;
        let meta = entry.metadata()?;
        if meta.is_file() {
            let name = entry.file_name().to_string_lossy().into_owned();
            return Ok(Some(OutboxFile { path: entry.path(), name, bytes: meta.len() }));
        }
    }
    Ok(None)
}

/// Gives a folder that is in the way another name: numbers of entries begin again where a backup was put back.
fn step_aside(folder: &Path) -> io::Result<()> {
    if !folder.try_exists()? {
        return Ok(());
    }
    for n in 1..=SENT_FILES_MAX {
        let free = folder.with_extension(n.to_string());
        if !free.try_exists()? {
            return fs::rename(folder, free);
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

fn make_folder(folder: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).recursive(true).create(folder)
}

/// The last part of a path as a name that hides nothing, names no folder and is not left out of listings.
fn safe_name(path: &str) -> String {
    let last = path.rsplit('/').next().unwrap_or_default();
    let plain = |c: char| {
        let odd = c.is_control() || acts_unseen(c) || (c.is_whitespace() && c != ' ');
        if odd || "\\:*?\"<>|".contains(c) { '_' } else { c }
    };
    let mut name = String::new();
    for c in last.trim().chars().map(plain) {
        if name.len() + c.len_utf8() > NAME_MAX {
            break;
        }
        name.push(c);
    }
    // A leading dash would be read as an option by many programs.
    let hidden = name.starts_with(['.', '-']);
    if name.is_empty() || hidden { format!("_{}", name.trim_start_matches(['.', '-'])) } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(path: &str, content: &[u8]) -> OutgoingFile {
        OutgoingFile { path: path.to_owned(), content: content.to_vec() }
    }

    #[test]
    fn what_is_kept_is_found_again_and_twice_is_two_files() {
        let dir = tempfile::tempdir().expect("a folder");
        let session = dir.path().join("sent/one");
        let first = taken("out/report.pdf", b"one").store_file(&session, 7).expect("kept");
        let second = taken("report.pdf", b"two!").store_file(&session, 8).expect("kept");
        assert_eq!((first.name.as_str(), first.bytes), ("report.pdf", 3));
        assert_eq!(first.path, session.join("7/report.pdf"));
        assert_eq!(read_stored(&session, 7).expect("there"), (first, b"one".to_vec()));
        assert_eq!(read_stored(&session, 8).expect("there"), (second, b"two!".to_vec()));
        assert!(matches!(read_stored(&session, 9), Err(OutboxError::Missing)));
        assert!(matches!(read_stored(&dir.path().join("none"), 7), Err(OutboxError::Missing)));
        for n in 1..=2_u64 {
            let again = taken("a", &n.to_le_bytes()).store_file(&session, 7).expect("kept");
            assert_eq!(
                read_stored(&session, 7).expect("there"),
                (again, n.to_le_bytes().to_vec()),
                "of the new history"
            );
        }
        assert_eq!(
            fs::read(session.join("7.1/report.pdf")).expect("there"),
            b"one",
            "nothing is written over"
        );
        assert_eq!(fs::read(session.join("7.2/a")).expect("there"), 1_u64.to_le_bytes());
        let mode = std::os::unix::fs::MetadataExt::mode(&session.metadata().expect("there"));
        assert_eq!(mode & 0o777, 0o700);
    }

    #[test]
    fn a_session_keeps_so_much_and_no_more() {
        let dir = tempfile::tempdir().expect("a folder");
        let session = dir.path().join("many");
        for number in 0..SENT_FILES_MAX as u64 {
            taken("a", b"").store_file(&session, number).expect("kept");
        }
        assert!(matches!(taken("a", b"").store_file(&session, 1_000), Err(OutboxError::Full)));
        let session = dir.path().join("large");
        let folder = session.join("1");
        fs::create_dir_all(&folder).expect("made");
        fs::File::create(folder.join("a")).and_then(|file| file.set_len(SENT_BYTES_MAX)).expect("made");
        assert!(matches!(taken("a", b"x").store_file(&session, 2), Err(OutboxError::Full)));
        assert!(taken("a", b"").store_file(&session, 2).is_ok(), "twin");
    }

    #[test]
    fn names_hide_nothing() {
        for (path, name) in [
            ("a/b/report v2.pdf", "report v2.pdf"),
            (".bashrc", "_bashrc"),
            ("..", "_"),
            ("a/", "_"),
            ("-rf", "_rf"),
            ("fdp\u{202e}exe.pdf", "fdp_exe.pdf"),
            ("a\nb\\c:d", "a_b_c_d"),
            ("\u{e9}t\u{e9}.txt", "\u{e9}t\u{e9}.txt"),
        ] {
            assert_eq!(safe_name(path), name, "{path:?}");
        }
        assert!(safe_name(&"\u{e9}".repeat(500)).len() <= NAME_MAX);
    }
}
