//! Files that only their owner may read: opened without following links, checked, replaced as a whole.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::time::Duration;

use nix::libc;
use zeroize::Zeroizing;

use crate::error::SecretsError;
use crate::wait::run_within;

/// The largest file of a keys folder, in bytes: room for `MAX_SECRETS` secrets of usual size.
pub(crate) const MAX_FILE_BYTES: usize = 1024 * 1024;

/// Permission bits of files and of the folder.
const FILE_MODE: u32 = 0o600;
const FOLDER_MODE: u32 = 0o700;

/// Bits that give others access.
const OTHERS: u32 = 0o077;

/// The file that writers lock.
const LOCK_FILE: &str = "lock";

/// Makes the keys folder if it is not there, and checks it.
pub(crate) fn ensure_folder(dir: &Path) -> Result<(), SecretsError> {
    // The mode is given when the folder is made: set afterwards, others could enter in between.
    match DirBuilder::new().mode(FOLDER_MODE).create(dir) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(io_error(".", "created")(error)),
    }
    // A folder that was there already is checked as well.
    if is_private_folder(dir)? { Ok(()) } else { Err(SecretsError::NotCreated) }
}

/// Returns true if the keys folder exists.
///
/// # Errors
///
/// If it is no folder, or open to others.
pub(crate) fn is_private_folder(dir: &Path) -> Result<bool, SecretsError> {
    // The link itself is looked at, since a link could lead to a folder of another user.
    let meta = match fs::symlink_metadata(dir) {
        Ok(meta) => meta,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(io_error(".", "read")(error)),
    };
    if !meta.is_dir() {
        return Err(SecretsError::NotAFile { name: shown_name(".") });
    }
    check_permissions(dir, ".", &meta, FOLDER_MODE)?;
    Ok(true)
}

/// Returns true if anything of this name lies in the folder.
pub(crate) fn file_exists(dir: &Path, name: &str) -> bool {
    fs::symlink_metadata(dir.join(name)).is_ok()
}

/// Reads a file; `None` when there is none.
pub(crate) fn read_file(dir: &Path, name: &str) -> Result<Option<Zeroizing<Vec<u8>>>, SecretsError> {
    let file =
        // Neither a link is followed, nor does a pipe in place of the file block the process.
        OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(dir.join(name));
    let file = match file {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) if error.raw_os_error() == Some(libc::ELOOP) => {
            return Err(SecretsError::NotAFile { name: shown_name(name) });
        }
        Err(error) => return Err(io_error(name, "opened")(error)),
    };
    // The opened file is examined, so that it cannot be exchanged between the check and the reading.
    let meta = file.metadata().map_err(io_error(name, "read"))?;
    if !meta.is_file() {
        return Err(SecretsError::NotAFile { name: shown_name(name) });
    }
    check_permissions(&dir.join(name), name, &meta, FILE_MODE)?;
    let too_large = || SecretsError::TooLarge { what: "a file of the keys folder", limit: MAX_FILE_BYTES };
    let size =
        usize::try_from(meta.len()).ok().filter(|size| *size <= MAX_FILE_BYTES).ok_or_else(too_large)?;
    // The whole capacity at once: a growing buffer would leave copies behind that are not wiped. No more than the file needs:
    // each byte of it is wiped in the end.
    let mut bytes = Zeroizing::new(Vec::with_capacity(size + 1));
    file.take(meta.len().saturating_add(1)).read_to_end(&mut bytes).map_err(io_error(name, "read"))?;
    if bytes.len() > size {
        // Files are replaced as a whole, so an open one does not grow.
        return Err(io_error(name, "read")(io::Error::other("it grew while it was read")));
    }
    Ok(Some(bytes))
}

/// Replaces a file as a whole and waits until it is on disk. The caller holds the [`Lock`].
pub(crate) fn replace_file(dir: &Path, name: &str, bytes: &[u8]) -> Result<(), SecretsError> {
    // Beside the file, so that the rename stays within one file system and is atomic.
    let new = dir.join(format!(".{name}.new"));
    // It is left from a writer that was killed: nothing else writes while we hold the lock.
    match fs::remove_file(&new) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(io_error(name, "replaced")(error)),
    }
    let mut file = OpenOptions::new()
        .write(true)
        // With `create_new` a link that someone has put there is not followed.
        .create_new(true)
        .mode(FILE_MODE)
        .custom_flags(libc::O_NOFOLLOW)
        .open(&new)
        .map_err(io_error(name, "written"))?;
    // First the content, then the name, then the folder: after a crash there is the old file or the new one.
    file.write_all(bytes).and_then(|()| file.sync_all()).map_err(io_error(name, "written"))?;
    fs::rename(&new, dir.join(name)).map_err(io_error(name, "replaced"))?;
    File::open(dir).and_then(|folder| folder.sync_all()).map_err(io_error(name, "synced"))
}

/// Removes a file. The caller holds the [`Lock`].
pub(crate) fn remove_file(dir: &Path, name: &str) -> Result<(), SecretsError> {
    fs::remove_file(dir.join(name)).map_err(io_error(name, "removed"))
}

/// Held while the folder is being changed, over all processes.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

impl Lock {
    /// Takes the lock, waiting at most `limit`.
    pub(crate) fn take_lock(dir: &Path, limit: Duration) -> Result<Self, SecretsError> {
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(FILE_MODE)
            .custom_flags(libc::O_NOFOLLOW)
            .open(dir.join(LOCK_FILE))
            .map_err(io_error(LOCK_FILE, "opened"))?;
        // The kernel's lock ends with its process, so a crash leaves none behind.
        let locked = run_within(limit, move || file.lock().map(|()| file));
        let file = locked.ok_or(SecretsError::Busy)?.map_err(io_error(LOCK_FILE, "locked"))?;
        Ok(Self { _file: file })
    }
}

/// Checks owner and mode.
fn check_permissions(path: &Path, name: &str, meta: &fs::Metadata, wanted: u32) -> Result<(), SecretsError> {
    // A file of another user could be changed by them at any time.
    if meta.uid() != nix::unistd::geteuid().as_raw() {
        return Err(SecretsError::WrongOwner {
            name: shown_name(name),
            path: path.to_owned(),
            owner: meta.uid(),
        });
    }
    let mode = meta.mode() & 0o7777;
    if mode & OTHERS != 0 {
        return Err(SecretsError::WrongMode { name: shown_name(name), path: path.to_owned(), mode, wanted });
    }
    Ok(())
}

/// The name as shown outside: relative to the home.
fn shown_name(name: &str) -> String {
    if name == "." { "keys".to_owned() } else { format!("keys/{name}") }
}

fn io_error(name: &str, action: &'static str) -> impl FnOnce(io::Error) -> SecretsError {
    let name = shown_name(name);
    move |source| SecretsError::Io { name, action, source }
}
