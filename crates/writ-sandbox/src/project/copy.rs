//! A copy of a project, where no overlay can be mounted on it; and the removal of what sandboxes left.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, readlinkat};
use nix::sys::stat::{FchmodatFlags, Mode, SFlag, fchmodat, fstatat, mkdirat};
use nix::unistd::{UnlinkatFlags, symlinkat, unlinkat};
use serde::{Deserialize, Serialize};
use writ_types::digest::Digest;

use super::beneath::{self, DEPTH_MAX};
use super::view::View;

/// The record of what a copy was made of.
pub(crate) const BASE: &str = "base.json";
/// The most entries that are copied.
const ENTRIES_MAX: usize = 200_000;
/// The most bytes that are copied: the overlay's usual bound.
const BYTES_MAX: u64 = 2 * 1024 * 1024 * 1024;

/// The files that a copy was made of, by path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Base {
    pub(crate) files: BTreeMap<String, BaseFile>,
}

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BaseFile {
    pub(crate) digest: Digest,
    pub(crate) executable: bool,
}

impl Base {
    /// Reads the record of a copy; without one, nothing was copied.
    pub(crate) fn read_record(dir: &Path) -> io::Result<Self> {
        match fs::read(dir.join(BASE)) {
            Ok(bytes) => Ok(serde_json::from_slice(&bytes)?),
            Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(why) => Err(why),
        }
    }

    /// Keeps it; a crash leaves the old one or the new one.
    pub(crate) fn write_record(&self, dir: &Path) -> io::Result<()> {
        let staged = dir.join("base.json.new");
        fs::write(&staged, serde_json::to_vec(self)?)?;
        // On disk before the name: a crash must not leave an empty record.
        File::open(&staged)?.sync_all()?;
        fs::rename(staged, dir.join(BASE))?;
        File::open(dir)?.sync_all()
    }
}

/// Copies a workspace's project into its `tree` and records of what. What an earlier try or copy has left there goes first;
/// one that fails leaves nothing, so that it takes no room and nothing counts as deleted.
pub(crate) fn copy_project(view: &View) -> io::Result<()> {
    let Some(project) = &view.project else { return Ok(()) };
    let tree = view.dir.join("tree");
    // The record first: without it a half copy counts as none.
    remove_tree(&view.dir.join(BASE))?;
    make_empty(&tree)?;
    let mut copy = Copy::default();
    let copied =
        copy.copy_folder(&beneath::open_root(project)?, &beneath::open_root(&tree)?, Path::new(""), 0);
    copied.and_then(|()| copy.base.write_record(&view.dir)).inspect_err(|_| {
        // The first reason counts; what cannot be removed now is removed before the next try.
        let _ = make_empty(&tree);
    })
}

/// Makes a folder that is empty, and its owner's alone.
fn make_empty(folder: &Path) -> io::Result<()> {
    remove_tree(folder)?;
    fs::DirBuilder::new().mode(0o700).create(folder)
}

/// Empties the folder `to`, and gives it `work`, a copy of `from`, and an empty `home`.
pub(crate) fn refresh_copy(from: &Path, to: &Path) -> io::Result<()> {
    remove_tree(to)?;
    for folder in [to.to_owned(), to.join("work"), to.join("home")] {
        fs::create_dir(folder)?;
    }
    let mut copy = Copy::default();
    copy.copy_folder(&beneath::open_root(from)?, &beneath::open_root(&to.join("work"))?, Path::new(""), 0)
}

/// A copy under way.
#[derive(Default)]
struct Copy {
    base: Base,
    entries: usize,
    bytes: u64,
}

impl Copy {
    /// Copies the entries of a folder. Links stay links; pipes, sockets and devices are passed over.
    fn copy_folder(&mut self, from: &OwnedFd, to: &OwnedFd, path: &Path, depth: usize) -> io::Result<()> {
        for name in list_names(from)? {
            self.entries += 1;
            if self.entries > ENTRIES_MAX || depth > DEPTH_MAX {
                return Err(io::Error::other("the project has too many files to be copied"));
            }
            let stat = fstatat(from, name.as_path(), AtFlags::AT_SYMLINK_NOFOLLOW)?;
            let path = path.join(&name);
            match beneath::file_kind(&stat) {
                SFlag::S_IFREG => self.copy_file(from, to, &name, &path)?,
                SFlag::S_IFLNK => {
                    symlinkat(readlinkat(from, name.as_path())?.as_os_str(), to, name.as_path())?
                }
                SFlag::S_IFDIR => {
                    mkdirat(to, name.as_path(), Mode::from_bits_truncate(0o755))?;
                    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY;
                    let below_from = beneath::open_at(from, &name, flags, Mode::empty())?;
                    let below_to = beneath::open_at(to, &name, flags, Mode::empty())?;
                    self.copy_folder(&below_from, &below_to, &path, depth + 1)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn copy_file(&mut self, from: &OwnedFd, to: &OwnedFd, name: &Path, path: &Path) -> io::Result<()> {
        let Some(mut source) = beneath::read_at(from, name)? else { return Ok(()) };
        let mode = source.metadata()?.permissions().mode() & 0o777;
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL;
        let mut target =
            File::from(beneath::open_at(to, name, flags, Mode::from_bits_truncate(mode | 0o600))?);
        // Before it fills the disk: a file with holes takes little where it is and all of its size in a copy.
        let too_large = || io::Error::other("the project is too large to be copied");
        let left = BYTES_MAX.saturating_sub(self.bytes);
        if source.metadata()?.len() > left {
            return Err(too_large());
        }
        // It may grow meanwhile.
        let copied = io::copy(&mut (&mut source).take(left.saturating_add(1)), &mut target)?;
        self.bytes = self.bytes.saturating_add(copied);
        if self.bytes > BYTES_MAX {
            return Err(too_large());
        }
        if let (Some(shown), Some(mut again)) = (path.to_str(), beneath::read_at(to, name)?) {
            let file = BaseFile { digest: beneath::digest_file(&mut again)?, executable: mode & 0o100 != 0 };
            self.base.files.insert(shown.to_owned(), file);
        }
        Ok(())
    }
}

/// The names in a folder, sorted.
pub(crate) fn list_names(folder: &OwnedFd) -> io::Result<Vec<PathBuf>> {
    use std::os::unix::ffi::OsStrExt;
    // A handle of its own: the position in a folder belongs to the open file.
    let own =
        beneath::open_at(folder.as_fd(), Path::new(""), OFlag::O_RDONLY | OFlag::O_DIRECTORY, Mode::empty())?;
    let mut dir = Dir::from_fd(own)?;
    let mut names = Vec::new();
    for entry in dir.iter() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push(PathBuf::from(std::ffi::OsStr::from_bytes(name)));
        }
    }
    names.sort();
    Ok(names)
}

/// Removes a folder that a sandbox could write: by handle, without following links, against any modes.
pub(crate) fn remove_tree(path: &Path) -> io::Result<()> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Ok(()) };
    let parent = match beneath::open_root(parent) {
        Ok(parent) => parent,
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(why) => return Err(why),
    };
    remove_at(&parent, Path::new(name))
}

/// Removes one entry. Folders are emptied first, without recursion: a sandbox can nest them deeper than a stack.
fn remove_at(parent: &OwnedFd, name: &Path) -> io::Result<()> {
    let mut open: Vec<(OwnedFd, PathBuf)> = vec![(parent.try_clone()?, name.to_owned())];
    while let Some((folder, name)) = open.pop() {
        match unlinkat(&folder, name.as_path(), UnlinkatFlags::NoRemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => continue,
            Err(Errno::EISDIR | Errno::EPERM) => {}
            Err(why) => return Err(why.into()),
        }
        match unlinkat(&folder, name.as_path(), UnlinkatFlags::RemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => continue,
            Err(Errno::ENOTEMPTY | Errno::EEXIST | Errno::EACCES) => {}
            Err(why) => return Err(why.into()),
        }
        // A folder just seen not to be a link; its owner may always change its mode.
        let mode = Mode::from_bits_truncate(0o700);
        fchmodat(&folder, name.as_path(), mode, FchmodatFlags::NoFollowSymlink)?;
        let inner = beneath::open_at(&folder, &name, OFlag::O_RDONLY | OFlag::O_DIRECTORY, Mode::empty())?;
        let names = list_names(&inner)?;
        open.push((folder, name));
        for below in names {
            open.push((inner.try_clone()?, below));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::project::view::Layout;

    #[test]
    fn a_copy_is_bounded_before_it_fills_the_disk() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        fs::create_dir(&from).unwrap();
        fs::write(from.join("a"), "one").unwrap();
        refresh_copy(&from, &to).unwrap();
        assert_eq!(fs::read(to.join("work/a")).unwrap(), b"one");
        // Two files that together are a byte too long, and take no place: they are holes.
        for (name, bytes) in [("b", 1), ("c", BYTES_MAX - 3)] {
            File::create(from.join(name)).unwrap().set_len(bytes).unwrap();
        }
        let error = refresh_copy(&from, &to).unwrap_err();
        assert_eq!(error.to_string(), "the project is too large to be copied");
        assert_eq!(fs::read(to.join("work/b")).unwrap(), [0]);
        assert_eq!(fs::metadata(to.join("work/c")).unwrap().len(), 0, "nothing of it was copied");
    }

    #[test]
    fn a_copy_that_failed_half_way_leaves_nothing_and_the_next_one_is_whole() {
        let dir = tempfile::tempdir().unwrap();
        let (project, workspace) = (dir.path().join("project"), dir.path().join("workspace"));
        for folder in [&project, &workspace, &workspace.join("tree")] {
            fs::create_dir(folder).unwrap();
        }
        fs::write(project.join("a"), "one").unwrap();
        File::create(project.join("b")).unwrap().set_len(BYTES_MAX).unwrap();
        let view = View {
            dir: workspace.clone(),
            project: Some(project.clone()),
            layout: Layout::Copy,
            own_modes: false,
            top: None,
        };
        // As a process that was killed in its middle leaves it, with the record of an earlier copy.
        fs::write(workspace.join("tree/a"), "o").unwrap();
        Base::default().write_record(&workspace).unwrap();
        let error = copy_project(&view).unwrap_err();
        assert_eq!(error.to_string(), "the project is too large to be copied");
        assert_eq!(fs::read_dir(workspace.join("tree")).unwrap().count(), 0, "it takes no room");
        assert!(!workspace.join(BASE).exists(), "and nothing counts as copied");
        fs::remove_file(project.join("b")).unwrap();
        fs::write(workspace.join("tree/a"), "o").unwrap();
        copy_project(&view).unwrap();
        assert_eq!(fs::read(workspace.join("tree/a")).unwrap(), b"one");
        assert_eq!(Base::read_record(&workspace).unwrap().files.len(), 1);
    }

    /// Files of `/proc` say that they are empty and are not: as one that grows while it is copied.
    #[test]
    fn what_grows_and_what_is_too_much_ends_a_copy() {
        let dir = tempfile::tempdir().unwrap();
        let to = |name: &str| {
            fs::create_dir(dir.path().join(name)).unwrap();
            beneath::open_root(&dir.path().join(name)).unwrap()
        };
        let growing = beneath::open_root(Path::new("/proc/sys/kernel/random")).unwrap();
        let mut nearly_full = Copy { bytes: BYTES_MAX - 3, ..Copy::default() };
        let error = nearly_full.copy_folder(&growing, &to("grown"), Path::new(""), 0).unwrap_err();
        assert_eq!(error.to_string(), "the project is too large to be copied");
        let written = fs::read_dir(dir.path().join("grown")).unwrap();
        let written: u64 = written.map(|entry| entry.unwrap().metadata().unwrap().len()).sum();
        assert!(written <= 4, "{written} bytes");
        let many = to("many");
        fs::write(dir.path().join("many/one"), "").unwrap();
        let mut counted = Copy { entries: ENTRIES_MAX, ..Copy::default() };
        let error = counted.copy_folder(&many, &to("copied"), Path::new(""), 0).unwrap_err();
        assert_eq!(error.to_string(), "the project has too many files to be copied");
    }
}
