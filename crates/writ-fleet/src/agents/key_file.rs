//! The base key of an agent, in a file that its owner alone can use.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;
use writ_policy::keys::{BaseClaims, KeyError, KeyToken, MAX_TOKEN_BYTES, Verifier};
use zeroize::Zeroizing;

use super::error::AgentError;
use super::folder::sync_folder;

/// The folder of the key, beside the program.
pub(crate) const KEY_FOLDER: &str = ".keys";
/// The file of the key.
const KEY_FILE: &str = "base.jwt";
/// A key that is written before the ledger has it, and gets its name afterwards.
const FRESH_FILE: &str = "base.jwt.new";
/// The largest key file, in bytes: a token as text with some white space.
const MAX_KEY_FILE_BYTES: usize = 64 * 1024;
const _: () = assert!(MAX_KEY_FILE_BYTES >= MAX_TOKEN_BYTES.div_ceil(3) * 4, "a token fits");
/// The mode bits that a key file must not have: any for others, execution for its owner, set-user-ID, set-group-ID and
/// sticky.
const REFUSED_BITS: u32 = 0o7177;

/// Returns the path of the base key of an agent's folder or home.
pub fn key_path(folder: &Path) -> PathBuf {
    folder.join(KEY_FOLDER).join(KEY_FILE)
}

/// Returns the path of a base key that has not got its name yet.
fn fresh_path(folder: &Path) -> PathBuf {
    folder.join(KEY_FOLDER).join(FRESH_FILE)
}

/// Reads the base key of a folder.
///
/// # Errors
///
/// If there is none, its file belongs to another user or has a mode above 600, or it holds something else.
pub fn read_key(folder: &Path) -> Result<KeyToken, AgentError> {
    read_token(key_path(folder))
}

/// Reads a base key that was written, and has not got its name.
///
/// # Errors
///
/// As [`read_key`].
pub fn read_fresh_key(folder: &Path) -> Result<KeyToken, AgentError> {
    read_token(fresh_path(folder))
}

fn read_token(path: PathBuf) -> Result<KeyToken, AgentError> {
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let file = match OpenOptions::new().read(true).custom_flags(flags.bits()).open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(AgentError::NoKey { path }),
        Err(source) => return Err(AgentError::Io { path, source }),
    };
    // What was opened is looked at, so that nothing can be put in its place between.
    let found = file.metadata().map_err(AgentError::io(&path))?;
    if !found.is_file() {
        return Err(AgentError::folder(&path, "it is no file", "remove it, then bless the agent again"));
    }
    let mode = found.mode() & 0o7777;
    if mode & REFUSED_BITS != 0 {
        return Err(AgentError::KeyMode { path, mode });
    }
    if found.uid() != nix::unistd::geteuid().as_raw() {
        return Err(AgentError::KeyOwner { path, owner: found.uid() });
    }
    let mut text = Zeroizing::new(String::new());
    let limit = u64::try_from(MAX_KEY_FILE_BYTES).unwrap_or(u64::MAX);
    let no_key = |path: PathBuf| AgentError::Key { path, source: KeyError::Signature };
    // One byte more shows that the file is too long.
    match file.take(limit.saturating_add(1)).read_to_string(&mut text) {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::InvalidData => return Err(no_key(path)),
        Err(source) => return Err(AgentError::Io { path, source }),
    }
    if text.len() > MAX_KEY_FILE_BYTES {
        return Err(no_key(path));
    }
    KeyToken::try_from(text.trim().to_owned()).map_err(|source| AgentError::Key { path, source })
}

/// Verifies a base key, and that it is this agent's.
///
/// # Errors
///
/// If it is not of this installation, or another agent's.
pub fn verify_key(
    folder: &Path,
    name: &str,
    token: &KeyToken,
    verifier: &Verifier,
) -> Result<BaseClaims, AgentError> {
    let (claims, _) =
        verifier.verify_base(token).map_err(|source| AgentError::Key { path: key_path(folder), source })?;
    if claims.agent == name {
        return Ok(claims);
    }
    Err(AgentError::OtherAgent { path: folder.to_owned(), key: claims.agent, name: name.to_owned() })
}

/// Writes a base key beside the one that is there, closed to others. It counts once it has [its name](name_key).
///
/// # Errors
///
/// If it cannot be written.
pub fn write_fresh_key(folder: &Path, token: &KeyToken) -> Result<(), AgentError> {
    let keys = folder.join(KEY_FOLDER);
    match DirBuilder::new().mode(0o700).create(&keys) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(AgentError::Io { path: keys, source: error });
        }
        Ok(()) | Err(_) => {}
    }
    // Keys are written into no folder that a link leads to, and into no history of sources.
    if !fs::symlink_metadata(&keys).map_err(AgentError::io(&keys))?.is_dir() {
        return Err(AgentError::folder(&keys, "it is no folder", "remove it"));
    }
    write_closed(&keys.join(".gitignore"), b"*\n")?;
    let text = Zeroizing::new(format!("{}\n", String::from(token.clone())));
    write_closed(&fresh_path(folder), text.as_bytes())?;
    sync_folder(&keys)
}

/// Gives a key that was written its name, in the place of the one before.
///
/// # Errors
///
/// If it cannot be renamed.
pub fn name_key(folder: &Path) -> Result<(), AgentError> {
    let path = key_path(folder);
    fs::rename(fresh_path(folder), &path).map_err(AgentError::io(&path))?;
    sync_folder(&folder.join(KEY_FOLDER))
}

/// Removes a key that got no name.
///
/// # Errors
///
/// If it cannot be removed.
pub fn drop_fresh_key(folder: &Path) -> Result<(), AgentError> {
    let path = fresh_path(folder);
    fs::remove_file(&path).map_err(AgentError::io(&path))
}

fn write_closed(path: &Path, bytes: &[u8]) -> Result<(), AgentError> {
    let write = || {
        // Never into a file that is there: it could be a link, or open to others.
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        file.write_all(bytes)?;
        file.sync_all()
    };
    write().map_err(AgentError::io(path))
}
