//! Files below a folder, reached by directory handle: never through a link, never above the folder.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, open};
use nix::sys::stat::{FileStat, Mode, SFlag, fstatat, mkdirat};
use nix::unistd::{UnlinkatFlags, unlinkat};
use writ_types::digest::Digest;

/// The deepest path, in names.
pub(crate) const DEPTH_MAX: usize = 64;
/// The bytes of one read when a digest is taken.
const BLOCK: usize = 64 * 1024;

/// A path relative to a folder that names nothing above it: its names, or why it is none.
pub(crate) fn split_path(path: &str) -> Result<Vec<&str>, &'static str> {
    if path.starts_with('/') {
        return Err("it is absolute");
    }
    if path.contains('\0') {
        return Err("it holds a zero byte");
    }
    let names: Vec<&str> = path.split('/').filter(|name| !name.is_empty() && *name != ".").collect();
    // Checked before the kernel sees it, so that the error is the same on every system.
    if names.contains(&"..") {
        return Err("it climbs");
    }
    if names.len() > DEPTH_MAX { Err("it is too deep") } else { Ok(names) }
}

/// Opens the folder itself. Only this path, which is our own or the owner's, may pass links.
pub(crate) fn open_root(path: &Path) -> io::Result<OwnedFd> {
    Ok(open(path, OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())?)
}

/// Opens an entry beneath a folder.
pub(crate) fn open_at(root: impl AsFd, path: &Path, flags: OFlag, mode: Mode) -> io::Result<OwnedFd> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let mut flags = flags | OFlag::O_CLOEXEC;
    if !flags.contains(HANDLE) || HANDLE.is_empty() {
        // Opening a pipe must not wait for its other end.
        flags |= OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    }
    open_below(root.as_fd(), path, flags, mode)
}

/// The flag of a handle that is looked at and never read, where the system has one.
#[cfg(all(target_os = "linux", not(writ_other_system)))]
pub(crate) const HANDLE: OFlag = OFlag::O_PATH;
/// The flag of a handle that is looked at and never read, where the system has one.
#[cfg(any(not(target_os = "linux"), writ_other_system))]
pub(crate) const HANDLE: OFlag = OFlag::empty();

/// Opens a path which the kernel keeps below the folder and off links.
#[cfg(all(target_os = "linux", not(writ_other_system)))]
fn open_below(root: BorrowedFd<'_>, path: &Path, flags: OFlag, mode: Mode) -> io::Result<OwnedFd> {
    use nix::fcntl::{OpenHow, ResolveFlag, openat2};
    let how = OpenHow::new().flags(flags).mode(mode).resolve(
        ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS | ResolveFlag::RESOLVE_NO_MAGICLINKS,
    );
    Ok(openat2(root, path, how)?)
}

/// Opens a path name by name, none of which may be a link or lead upwards.
#[cfg(any(not(target_os = "linux"), writ_other_system))]
fn open_below(root: BorrowedFd<'_>, path: &Path, flags: OFlag, mode: Mode) -> io::Result<OwnedFd> {
    use nix::fcntl::openat;
    use std::path::Component;
    let mut names = path.components().peekable();
    let mut folder = root.try_clone_to_owned()?;
    while let Some(name) = names.next() {
        let name = match name {
            Component::Normal(_) | Component::CurDir => name.as_os_str(),
            Component::Prefix(_) | Component::RootDir | Component::ParentDir => {
                return Err(Errno::EXDEV.into());
            }
        };
        let last = names.peek().is_none();
        let way = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        // Folders on the way are only passed through.
        let (flags, mode) = if last { (flags, mode) } else { (way, Mode::empty()) };
        folder = openat(&folder, name, flags | OFlag::O_NOFOLLOW, mode)?;
    }
    Ok(folder)
}

/// Returns true if an overlay's folder hides the project's folder instead of adding to it.
#[cfg(all(target_os = "linux", not(writ_other_system)))]
pub(crate) fn is_opaque(folder: BorrowedFd<'_>) -> bool {
    crate::linux::has_mark(folder, c"user.overlay.opaque")
}

/// Returns false: only Linux has overlays.
#[cfg(any(not(target_os = "linux"), writ_other_system))]
pub(crate) const fn is_opaque(_: BorrowedFd<'_>) -> bool {
    false
}

/// Opens a file for reading. `None`: nothing is there.
pub(crate) fn read_at(root: impl AsFd, path: &Path) -> io::Result<Option<File>> {
    match open_at(root, path, OFlag::O_RDONLY, Mode::empty()) {
        Ok(fd) => Ok(Some(File::from(fd))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the status of the entry at a path, links included. `None`: there is none.
pub(crate) fn stat_at(root: impl AsFd, path: &Path) -> io::Result<Option<FileStat>> {
    let parent = path.parent().unwrap_or(Path::new(""));
    let Some(name) = path.file_name() else { return Ok(None) };
    let parent = match open_at(root, parent, HANDLE | OFlag::O_DIRECTORY, Mode::empty()) {
        Ok(parent) => parent,
        Err(error) if leads_nowhere(&error) => return Ok(None),
        Err(error) => return Err(error),
    };
    match fstatat(&parent, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::ENOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Returns true if an error says that a path leads nowhere.
fn leads_nowhere(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// The kind bits of a mode.
pub(crate) fn file_kind(stat: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT
}

/// Opens the folder that a path's last name lies in, making folders on the way if asked.
pub(crate) fn open_parent(root: impl AsFd, path: &Path, make: bool) -> io::Result<OwnedFd> {
    let folder = path.parent().unwrap_or(Path::new(""));
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY;
    match open_at(&root, folder, flags, Mode::empty()) {
        Err(error) if make && error.kind() == io::ErrorKind::NotFound => {}
        other => return other,
    }
    let mut current = open_at(&root, Path::new(""), flags, Mode::empty())?;
    for name in folder.components() {
        match mkdirat(&current, name.as_os_str(), Mode::from_bits_truncate(0o755)) {
            Ok(()) | Err(Errno::EEXIST) => {}
            Err(error) => return Err(error.into()),
        }
        current = open_at(&current, Path::new(name.as_os_str()), flags, Mode::empty())?;
    }
    Ok(current)
}

/// Reads a regular file of at most `max` bytes. `Ok(Err(bytes))`: it is larger.
pub(crate) fn read_content(mut file: File, max: u64) -> io::Result<Result<Vec<u8>, u64>> {
    let bytes = file.metadata()?.size();
    if bytes > max {
        return Ok(Err(bytes));
    }
    let mut content = Vec::with_capacity(usize::try_from(bytes).unwrap_or(0));
    // The size of the first look may be out of date: one byte too many shows it.
    let read = Read::by_ref(&mut file).take(max.saturating_add(1)).read_to_end(&mut content)?;
    let read = u64::try_from(read).unwrap_or(u64::MAX);
    Ok(if read > max { Err(read) } else { Ok(content) })
}

/// The digest of an open file.
pub(crate) fn digest_file(file: &mut File) -> io::Result<Digest> {
    use sha2::Digest as _;
    let mut hasher = sha2::Sha256::new();
    let mut block = vec![0; BLOCK];
    loop {
        let read = file.read(&mut block)?;
        if read == 0 {
            return Ok(Digest::from_bytes(hasher.finalize().into()));
        }
        hasher.update(block.get(..read).unwrap_or_default());
    }
}

/// Removes a file; a missing one is no error.
pub(crate) fn remove_file(folder: impl AsFd, name: &Path) -> io::Result<()> {
    match unlinkat(folder, name, UnlinkatFlags::NoRemoveDir) {
        Ok(()) | Err(Errno::ENOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// When a file of the session was made: an overlay makes it when it is first changed.
pub(crate) fn made_at(file: &File) -> Option<std::time::SystemTime> {
    file.metadata().ok()?.created().ok()
}

/// When a file of the project was last changed, in content or mode.
pub(crate) fn changed_at(file: &File) -> Option<std::time::SystemTime> {
    let meta = file.metadata().ok()?;
    let seconds =
        std::time::Duration::new(u64::try_from(meta.ctime()).ok()?, u32::try_from(meta.ctime_nsec()).ok()?);
    std::time::UNIX_EPOCH.checked_add(seconds)
}
