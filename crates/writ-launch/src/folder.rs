//! The folder that an agent sees: no key is in it, nor a socket that is not meant for the agent.

use std::fs::{self, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;
use writ_policy::keys::KeyToken;
use zeroize::Zeroizing;

use crate::keys::FILE_MAX;

/// The folder beside an agent's program in which `writ agent bless` puts its base key.
const KEY_FOLDER: &str = ".keys";
/// The most files and folders that are looked through: those of a program with all its packages.
pub(crate) const MAX_ENTRIES: usize = 200_000;
/// The start of a file that shows whether it can be a key, in bytes.
const FIRST_BYTES: u64 = 64;

/// The result of looking for what an agent must not have.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum KeySearch {
    /// There is nothing of it.
    Harmless,
    /// It is there.
    Secret(PathBuf),
    /// There is too much to look through.
    TooMuch,
}

/// Looks through a folder for folders of keys and for files that hold a key, also where it lies deep or has another name. What
/// cannot be read here, the agent cannot read either; what a link leads to is not shown to it.
pub(crate) fn find_key(folder: &Path) -> KeySearch {
    let (mut folders, mut seen) = (vec![folder.to_owned()], 0_usize);
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for entry in entries.flatten() {
            seen = seen.saturating_add(1);
            if seen > MAX_ENTRIES {
                return KeySearch::TooMuch;
            }
            let path = entry.path();
            let Ok(kind) = entry.file_type() else { continue };
            // A link of this name could lead anywhere, so it counts as the folder that it is named as.
            if entry.file_name() == KEY_FOLDER || (kind.is_file() && holds_key(&path).unwrap_or(false)) {
                return KeySearch::Secret(path);
            }
            if kind.is_dir() {
                folders.push(path);
            }
        }
    }
    KeySearch::Harmless
}

fn holds_key(path: &Path) -> io::Result<bool> {
    // A pipe in its place would otherwise wait for a writer.
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let mut file = OpenOptions::new().read(true).custom_flags(flags.bits()).open(path)?;
    let bytes = file.metadata()?.len();
    if bytes < FIRST_BYTES || bytes > u64::try_from(FILE_MAX).unwrap_or(u64::MAX) {
        return Ok(false);
    }
    let mut text = Zeroizing::new(Vec::new());
    file.by_ref().take(FIRST_BYTES).read_to_end(&mut text)?;
    let can_be = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_ \r\n\t".contains(byte);
    if !text.iter().all(can_be) {
        return Ok(false);
    }
    file.take(bytes).read_to_end(&mut text)?;
    let token = std::str::from_utf8(&text).unwrap_or_default().trim().to_owned();
    Ok(KeyToken::try_from(token).is_ok_and(|token| token.is_whole()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_of_keys_is_found_at_any_depth() {
        let temp = tempfile::tempdir().expect("temp dir");
        let deep = temp.path().join("a/b/c");
        fs::create_dir_all(&deep).expect("folders");
        // Texts that are no keys: letters alone, and another form.
        fs::write(deep.join("letters"), "c2VjcmV0".repeat(40)).expect("written");
        fs::write(deep.join("program.py"), "print('hello')\n".repeat(40)).expect("written");
        std::os::unix::fs::symlink("/", deep.join("elsewhere")).expect("a link");
        assert_eq!(find_key(temp.path()), KeySearch::Harmless);
        fs::create_dir(deep.join(KEY_FOLDER)).expect("a folder");
        assert_eq!(find_key(temp.path()), KeySearch::Secret(deep.join(KEY_FOLDER)));
    }
}
