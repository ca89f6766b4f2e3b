//! Links that sign a browser in to the page. Each works once.
//!
//! A link is a file in the runtime folder, named by the hash of its code. A program that can write there owns
//! the home. A link is used by removing its file, which succeeds for one client alone.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rand::Rng as _;
use writ_policy::principal::BearerHash;
use writ_types::unit::Timestamp;

use super::keys::write_private;

/// The lifetime of a link.
pub const LINK_TTL: Duration = Duration::from_secs(10 * 60);
/// The most links that are valid at once; one more ends the oldest.
pub const MAX_LINKS: usize = 16;
/// The folder of links, below the runtime folder.
const FOLDER: &str = "links";

/// Makes a link and returns its code.
///
/// # Errors
///
/// If it cannot be written.
pub fn mint_link(runtime: &Path, now: Timestamp) -> io::Result<String> {
    use std::os::unix::fs::DirBuilderExt as _;
    // Mode 0700, so that no other user can list the codes' hashes.
    let folder = runtime.join(FOLDER);
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
    // Old links are removed here, since no task does it.
    remove_expired(&folder, now)?;
    let code = hex::encode(rand::rng().random::<[u8; 16]>());
    write_private(&link_file(runtime, &code), &now.plus_duration(LINK_TTL).as_millis().to_string())?;
    Ok(code)
}

/// Uses a link. Returns true if it was valid.
pub(crate) fn redeem_link(runtime: &Path, code: &str, now: Timestamp) -> bool {
    let file = link_file(runtime, code);
    // Read before the removal, since there is nothing to read after it.
    let ends = read_expiry(&file);
    // Of several clients, the link is good for the one that has removed the file.
    std::fs::remove_file(&file).is_ok() && ends.is_some_and(|ends| now < ends)
}

fn link_file(runtime: &Path, code: &str) -> PathBuf {
    // The name of the file is a hash, so reading the folder gives no code away.
    runtime.join(FOLDER).join(BearerHash::hash_secret(code).digest().to_string())
}

fn read_expiry(file: &Path) -> Option<Timestamp> {
    std::fs::read_to_string(file).ok()?.parse().ok().map(Timestamp::from_millis)
}

/// Removes the links that have expired, and the oldest ones where there are too many.
fn remove_expired(folder: &Path, now: Timestamp) -> io::Result<()> {
    let mut live = Vec::new();
    // Nothing but links belongs in this folder, so a file that is not one is removed like an expired link.
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        match read_expiry(&path).filter(|ends| now < *ends) {
            Some(ends) => live.push((ends, path)),
            None => std::fs::remove_file(path)?,
        }
    }
    live.sort();
    let excess = (live.len() + 1).saturating_sub(MAX_LINKS);
    live.into_iter().take(excess).try_for_each(|(_, path)| std::fs::remove_file(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);

    #[test]
    fn a_link_is_good_once_and_for_ten_minutes() {
        let dir = tempfile::tempdir().expect("temp dir");
        let code = mint_link(dir.path(), NOW).expect("minted");
        for wrong in ["", "..", "../../api.token", &code[1..]] {
            assert!(!redeem_link(dir.path(), wrong, NOW), "{wrong}");
        }
        assert!(redeem_link(dir.path(), &code, NOW));
        assert!(!redeem_link(dir.path(), &code, NOW), "used");
        let code = mint_link(dir.path(), NOW).expect("minted");
        assert!(!redeem_link(dir.path(), &code, NOW.plus_duration(LINK_TTL)), "over");
        assert!(!redeem_link(dir.path(), &code, NOW), "and gone");
    }

    #[test]
    fn of_many_that_use_a_link_at_once_one_has_it() {
        let dir = tempfile::tempdir().expect("temp dir");
        let code = mint_link(dir.path(), NOW).expect("minted");
        let won: usize = std::thread::scope(|scope| {
            let tries: Vec<_> =
                (0..8).map(|_| scope.spawn(|| usize::from(redeem_link(dir.path(), &code, NOW)))).collect();
            tries.into_iter().map(|one| one.join().expect("ends")).sum()
        });
        assert_eq!(won, 1);
    }

    #[test]
    fn links_are_bounded() {
        let dir = tempfile::tempdir().expect("temp dir");
        let codes: Vec<String> = (0..=MAX_LINKS)
            .map(|n| mint_link(dir.path(), NOW.plus_duration(Duration::from_secs(n as u64))).expect("minted"))
            .collect();
        let good = codes.iter().filter(|code| redeem_link(dir.path(), code, NOW)).count();
        assert_eq!(good, MAX_LINKS);
        assert!(!redeem_link(dir.path(), &codes[0], NOW), "the oldest went");
    }
}
