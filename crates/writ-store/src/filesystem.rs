//! The store's folder and file, and which file systems may hold them.

use std::fs::{DirBuilder, OpenOptions};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use crate::error::StoreError;

/// File systems on which another machine may write too, by the magic number of `statfs(2)`
/// (`linux/magic.h` and the sources of the file systems). SQLite's locks and WAL do not hold there.
#[cfg(any(all(target_os = "linux", not(writ_other_system)), test))]
const NETWORK_FILESYSTEMS: [(u32, &str); 14] = [
    (0x0000_6969, "nfs"),
    (0x0000_517b, "smb"),
    (0xff53_4d42, "cifs"),
    (0xfe53_4d42, "smb2"),
    (0x0102_1997, "9p"),
    (0x6573_5546, "fuse"),
    (0x5346_414f, "afs"),
    (0x6b41_4653, "kafs"),
    (0x7375_7245, "coda"),
    (0x0000_564c, "ncp"),
    (0x00c3_6400, "ceph"),
    (0x0bd0_0bd0, "lustre"),
    (0x0116_1970, "gfs2"),
    (0x7461_636f, "ocfs2"),
];

/// The name of the network file system with this magic number, if it is one.
#[cfg(any(all(target_os = "linux", not(writ_other_system)), test))]
pub(crate) fn network_filesystem(magic: u32) -> Option<&'static str> {
    NETWORK_FILESYSTEMS.iter().find(|(number, _)| *number == magic).map(|(_, name)| *name)
}

/// Refuses a folder on a network file system.
#[cfg(all(target_os = "linux", not(writ_other_system)))]
pub(crate) fn check_local(dir: &Path) -> Result<(), StoreError> {
    let found =
        nix::sys::statfs::statfs(dir).map_err(|errno| StoreError::io(dir, &std::io::Error::from(errno)))?;
    // Magic numbers have 32 bits; the type that holds them differs between platforms.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the low 32 bits are the number"
    )]
    let magic = found.filesystem_type().0 as u32;
    match network_filesystem(magic) {
        Some(kind) => Err(StoreError::NetworkFilesystem { path: dir.display().to_string(), kind }),
        None => Ok(()),
    }
}

/// Other systems have no common magic numbers; their local file systems are the rule.
#[cfg(any(not(target_os = "linux"), writ_other_system))]
pub(crate) fn check_local(_: &Path) -> Result<(), StoreError> {
    Ok(())
}

/// Makes the folder (0700) and the file (0600) where they are missing, and closes them to others where they are not.
pub(crate) fn make_private(file: &Path) -> Result<(), StoreError> {
    let dir = file.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(|e| StoreError::io(dir, &e))?;
    // Before the database is opened: its locks would already count on the file system.
    check_local(dir)?;
    OpenOptions::new()
        .create(true)
        // Changes nothing of a database that is there.
        .append(true)
        .mode(0o600)
        .open(file)
        .map_err(|error| StoreError::io(file, &error))?;
    close_to_others(file, 0o600)
}

fn close_to_others(path: &Path, mode: u32) -> Result<(), StoreError> {
    let found = path.metadata().map_err(|error| StoreError::io(path, &error))?.permissions();
    if found.mode() & 0o077 == 0 {
        return Ok(());
    }
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
        .map_err(|error| StoreError::io(path, &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_file_systems_are_known_by_their_numbers() {
        for (magic, name) in
            [(0x6969, "nfs"), (0xff53_4d42, "cifs"), (0x0102_1997, "9p"), (0x6573_5546, "fuse")]
        {
            assert_eq!(network_filesystem(magic), Some(name));
        }
        // ext4, btrfs, xfs, tmpfs, overlayfs, zfs.
        for magic in [0xef53, 0x9123_683e, 0x5846_5342, 0x0102_1994, 0x794c_7630, 0x2fc1_2fc1] {
            assert_eq!(network_filesystem(magic), None);
        }
    }

    #[test]
    fn folder_and_file_are_private() {
        let dir = tempfile::tempdir().expect("temp dir");
        let file = dir.path().join("data/writ.db");
        make_private(&file).expect("made");
        let mode = |path: &Path| path.metadata().expect("there").permissions().mode() & 0o777;
        assert_eq!((mode(&dir.path().join("data")), mode(&file)), (0o700, 0o600));
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).expect("opened up");
        make_private(&file).expect("closed again");
        assert_eq!(mode(&file), 0o600);
    }
}
