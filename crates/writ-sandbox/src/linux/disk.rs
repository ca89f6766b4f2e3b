//! The room that folders take.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// The most entries that one measurement looks at: about two seconds of work.
const ENTRIES_MAX: u64 = 1_000_000;
/// Bytes of a block, as `stat` counts them on every file system.
const BLOCK: u64 = 512;

/// Bytes on disk of everything below some folders. Stops counting above `enough`. Links are counted, not followed.
/// What cannot be counted is too much.
pub(crate) fn used_bytes(folders: &[PathBuf], enough: u64) -> u64 {
    let mut open: Vec<PathBuf> = folders.to_vec();
    let (mut bytes, mut seen) = (0_u64, 0_u64);
    while let Some(folder) = open.pop() {
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            // Folders so deep that their path is too long are there to hide something.
            Err(why) if why.kind() == std::io::ErrorKind::InvalidFilename => return u64::MAX,
            Err(_) => continue,
        };
        for entry in entries.flatten() {
            // Of an entry of a folder this is the link itself, not what it leads to.
            let Ok(meta) = entry.metadata() else { continue };
            bytes = bytes.saturating_add(meta.blocks().saturating_mul(BLOCK));
            seen += 1;
            if bytes > enough {
                return bytes;
            }
            if seen > ENTRIES_MAX {
                return u64::MAX;
            }
            if meta.is_dir() {
                open.push(entry.path());
            }
        }
    }
    bytes
}
