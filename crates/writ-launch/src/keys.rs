//! The keys of an agent: read from files that no other user can read, and added to requests outside the sandbox.

use std::fmt;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use nix::fcntl::OFlag;
use writ_policy::keys::{KeyToken, MAX_TOKEN_BYTES};
use writ_types::error::{Exit, Report, ToReport};
use zeroize::Zeroizing;

use crate::names::{BASE_HEADER, TASK_HEADER};

/// The largest key file, in bytes: room for the largest token in base64, and white space.
pub(crate) const FILE_MAX: usize = 64 * 1024;
const _: () = assert!(FILE_MAX >= MAX_TOKEN_BYTES.div_ceil(3) * 4, "a token fits");
/// The mode bits that a key file must not have: any for others, execution for its owner, set-user-ID, set-group-ID and
/// sticky.
const REFUSED_BITS: u32 = 0o7177;

/// The reason why a key file is not used.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    /// It cannot be read.
    #[error("the {role} key {} cannot be read: {source}", path.display())]
    Read {
        /// The key: base or task.
        role: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// It is not a regular file.
    #[error("the {role} key {} is not a regular file", path.display())]
    NoFile {
        /// The key: base or task.
        role: &'static str,
        /// The path.
        path: PathBuf,
    },
    /// It gives more permissions than reading and writing to its owner.
    #[error("the {role} key {} has the mode {mode:03o}, which gives more than 600", path.display())]
    Mode {
        /// The key: base or task.
        role: &'static str,
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// It belongs to another user.
    #[error("the {role} key {} belongs to user {owner}", path.display())]
    Owner {
        /// The key: base or task.
        role: &'static str,
        /// The file.
        path: PathBuf,
        /// Its owner.
        owner: u32,
    },
    /// Its content is not a key.
    #[error("{} holds no {role} key", path.display())]
    NoKey {
        /// The key: base or task.
        role: &'static str,
        /// The file.
        path: PathBuf,
    },
}

impl ToReport for KeyFileError {
    fn report(&self) -> Report {
        let (exit, code, hint) = match self {
            Self::Read { .. } | Self::NoFile { .. } => (
                Exit::Usage,
                "run.key_file",
                "name the file that `writ keys base|task … --out` has written".to_owned(),
            ),
            Self::Mode { path, .. } => {
                (Exit::Config, "run.key_mode", format!("chmod 600 {}", path.display()))
            }
            Self::Owner { .. } => (
                Exit::Config,
                "run.key_owner",
                "run the command as the owner of the key, or copy the key".to_owned(),
            ),
            Self::NoKey { .. } => {
                (Exit::Usage, "run.no_key", "`writ keys inspect FILE` shows the content of a key".to_owned())
            }
        };
        Report::new(exit, code, self.to_string()).with_hint(hint)
    }
}

/// The two keys of an agent, as headers. `Debug` shows neither.
///
/// Each request carries the keys that the files hold at that time: if another file is renamed over a key file, its key
/// counts from the next request on, and if a key file is missing, requests are refused.
pub struct AgentKeys {
    base: KeyFile,
    task: KeyFile,
}

impl fmt::Debug for AgentKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AgentKeys")
    }
}

impl AgentKeys {
    /// Reads both keys, each from a file that belongs to this user and has the mode 600 at most.
    ///
    /// # Errors
    ///
    /// If a file cannot be read, belongs to another user, gives more permissions, or holds no key.
    pub fn read_files(base: &Path, task: &Path) -> Result<Self, KeyFileError> {
        Ok(Self { base: KeyFile::read_file("base", base)?, task: KeyFile::read_file("task", task)? })
    }

    /// Adds both keys to the headers of a request.
    ///
    /// # Errors
    ///
    /// As [`Self::read_files`], if a file is missing or has changed.
    pub(crate) fn sign_head(&self, headers: &mut HeaderMap) -> Result<(), KeyFileError> {
        headers.insert(HeaderName::from_static(BASE_HEADER), self.base.current_value()?);
        headers.insert(HeaderName::from_static(TASK_HEADER), self.task.current_value()?);
        Ok(())
    }
}

/// A key and its file.
struct KeyFile {
    role: &'static str,
    path: PathBuf,
    last: Mutex<ReadKey>,
}

/// A key, and the state of its file when it was read.
struct ReadKey {
    mark: FileMark,
    value: HeaderValue,
}

impl KeyFile {
    fn read_file(role: &'static str, path: &Path) -> Result<Self, KeyFileError> {
        let last = Mutex::new(read_key(role, path)?);
        Ok(Self { role, path: path.to_owned(), last })
    }

    /// Returns the key that the file holds now; reads the file again if it has changed.
    fn current_value(&self) -> Result<HeaderValue, KeyFileError> {
        let failed = |source| KeyFileError::Read { role: self.role, path: self.path.clone(), source };
        let found = fs::symlink_metadata(&self.path).map_err(failed)?;
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.mark != FileMark::of(&found) {
            *last = read_key(self.role, &self.path)?;
        }
        Ok(last.value.clone())
    }
}

/// The identity, size and change time of a file. Changes of owner and mode set that time as well.
#[derive(Clone, Copy, PartialEq, Eq)]
struct FileMark {
    device: u64,
    inode: u64,
    bytes: u64,
    changed: (i64, i64),
}

impl FileMark {
    fn of(found: &Metadata) -> Self {
        Self {
            device: found.dev(),
            inode: found.ino(),
            bytes: found.size(),
            // Unlike the modification time, a program cannot set it.
            changed: (found.ctime(), found.ctime_nsec()),
        }
    }
}

fn read_key(role: &'static str, path: &Path) -> Result<ReadKey, KeyFileError> {
    // The mark is taken before the file is read: the next request reads a file again that changes meanwhile.
    let (file, mark) = open_closed(role, path)?;
    let mut text = Zeroizing::new(String::new());
    // One byte more shows that the file is too long.
    let limit = u64::try_from(FILE_MAX).unwrap_or(u64::MAX);
    let read = file.take(limit + 1).read_to_string(&mut text);
    let no_key = || KeyFileError::NoKey { role, path: path.to_owned() };
    read.map_err(|source| {
        // The content is not UTF-8.
        if source.kind() == io::ErrorKind::InvalidData {
            return no_key();
        }
        KeyFileError::Read { role, path: path.to_owned(), source }
    })?;
    let token = text.trim();
    // The proxy checks the signature. This check of the form finds a wrong file at the start.
    if text.len() > FILE_MAX || token.is_empty() || KeyToken::try_from(token.to_owned()).is_err() {
        return Err(no_key());
    }
    // Hides the value in `Debug` output.
    let mut value = HeaderValue::from_str(token).map_err(|_| no_key())?;
    value.set_sensitive(true);
    Ok(ReadKey { mark, value })
}

/// Opens a file and checks the opened file, so that it cannot be replaced between check and use.
fn open_closed(role: &'static str, path: &Path) -> Result<(File, FileMark), KeyFileError> {
    let failed = |source| KeyFileError::Read { role, path: path.to_owned(), source };
    // Opening a pipe would otherwise wait for a writer.
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits()).open(path).map_err(failed)?;
    let found = file.metadata().map_err(failed)?;
    if !found.is_file() {
        return Err(KeyFileError::NoFile { role, path: path.to_owned() });
    }
    let mode = found.mode() & 0o7777;
    if mode & REFUSED_BITS != 0 {
        return Err(KeyFileError::Mode { role, path: path.to_owned(), mode });
    }
    if found.uid() != nix::unistd::geteuid().as_raw() {
        return Err(KeyFileError::Owner { role, path: path.to_owned(), owner: found.uid() });
    }
    let mark = FileMark::of(&found);
    Ok((file, mark))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn refused(path: &Path) -> KeyFileError {
        AgentKeys::read_files(path, path).expect_err("refused")
    }

    /// Rows: SLO-033 (a wider mode makes the start fail)
    #[test]
    fn a_key_that_others_can_use_is_not_read() {
        let temp = tempfile::tempdir().expect("temp dir");
        let path = temp.path().join("base.jwt");
        fs::write(&path, "  c2VjcmV0\n").expect("written");
        for mode in [0o644, 0o640, 0o604, 0o620, 0o601, 0o700, 0o666, 0o4600, 0o2600, 0o1600] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("mode");
            let error = refused(&path);
            assert!(matches!(error, KeyFileError::Mode { mode: found, .. } if found == mode), "{error}");
            assert_eq!(error.report().hint, format!("chmod 600 {}", path.display()));
        }
        for mode in [0o600, 0o400] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("mode");
            let keys = AgentKeys::read_files(&path, &path).expect("read");
            let mut headers = HeaderMap::new();
            keys.sign_head(&mut headers).expect("signed");
            assert_eq!(headers.get(BASE_HEADER).map(HeaderValue::as_bytes), Some(b"c2VjcmV0".as_slice()));
            assert!(!format!("{keys:?} {headers:?}").contains("c2VjcmV0"), "no key is printed");
        }
        if nix::unistd::geteuid().is_root() {
            std::os::unix::fs::chown(&path, Some(65534), None).expect("given away");
            assert!(matches!(refused(&path), KeyFileError::Owner { owner: 65534, .. }));
        }
    }

    /// A renewed key counts from the next request on, and one that was taken away does not count any more.
    #[test]
    fn each_request_carries_the_key_that_its_file_holds_then() {
        let temp = tempfile::tempdir().expect("temp dir");
        let write = |name: &str, text: &str, mode: u32| {
            let path = temp.path().join(name);
            fs::write(&path, text).expect("written");
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("mode");
            path
        };
        let (base, task) = (write("base.jwt", "YmFzZQ", 0o600), write("task.jwt", "Zmlyc3Q", 0o600));
        let keys = AgentKeys::read_files(&base, &task).expect("read");
        let task_of = |keys: &AgentKeys| {
            let mut headers = HeaderMap::new();
            keys.sign_head(&mut headers)?;
            let value = headers.get(TASK_HEADER).expect("a task key");
            assert!(value.is_sensitive());
            Ok::<_, KeyFileError>(value.to_str().expect("text").to_owned())
        };
        assert_eq!(task_of(&keys).expect("signed"), "Zmlyc3Q");
        // Of the same length, and renamed over it, as the router does.
        fs::rename(write("fresh", "b3RoZXI", 0o600), &task).expect("renamed");
        assert_eq!(task_of(&keys).expect("signed"), "b3RoZXI");
        // Another file is looked at as the first one was.
        fs::rename(write("open", "dGhpcmQ", 0o644), &task).expect("renamed");
        assert!(matches!(task_of(&keys), Err(KeyFileError::Mode { mode: 0o644, .. })));
        fs::set_permissions(&task, fs::Permissions::from_mode(0o600)).expect("closed");
        assert_eq!(task_of(&keys).expect("signed"), "dGhpcmQ");
        fs::remove_file(&task).expect("removed");
        assert!(matches!(task_of(&keys), Err(KeyFileError::Read { role: "task", .. })));
    }

    #[test]
    fn what_is_no_key_is_refused_and_not_repeated() {
        let temp = tempfile::tempdir().expect("temp dir");
        let path = temp.path().join("key");
        let long = vec![b'a'; FILE_MAX + 1];
        for content in [b"".as_slice(), b" \n", b"two words", b"a\r\nwrit-x: b", b"\xff\xfe", &long] {
            fs::write(&path, content).expect("written");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("mode");
            let error = refused(&path);
            assert!(matches!(error, KeyFileError::NoKey { .. }), "{error}");
            assert!(!error.to_string().contains("words"));
        }
        assert!(matches!(refused(temp.path()), KeyFileError::NoFile { .. }));
        assert!(matches!(refused(&temp.path().join("none")), KeyFileError::Read { .. }));
        std::os::unix::fs::symlink(&path, temp.path().join("link")).expect("link");
        assert!(matches!(refused(&temp.path().join("link")), KeyFileError::Read { .. }));
        nix::unistd::mkfifo(&temp.path().join("pipe"), nix::sys::stat::Mode::S_IRUSR).expect("pipe");
        assert!(matches!(refused(&temp.path().join("pipe")), KeyFileError::NoFile { .. }));
    }
}
