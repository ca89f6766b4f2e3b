//! The diff: walks what a session wrote, by directory handle, and tells what of it can be carried out.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use ignore::gitignore::{Gitignore, GitignoreBuilder};
use nix::fcntl::{AtFlags, OFlag};
use nix::sys::stat::{FileStat, Mode, SFlag, fstatat};
use writ_types::action::{ChangeKind, FileChange};

use super::base::{self, Comparison, ProjectEntry};
use super::beneath::{self, DEPTH_MAX};
use super::copy;
use super::view::View;
use crate::changes::{
    CHANGE_BYTES_MAX, CHANGES_BYTES_MAX, CHANGES_MAX, ChangeSet, LEFT_OUT_MAX, LeftOut, LeftOutReason, Notice,
};
use crate::name;

pub(crate) use text::show_diff;

pub(crate) mod text;

/// The most entries that one diff looks at.
const ENTRIES_MAX: usize = 200_000;
/// The mark that tools put into folders of files that they can make again.
const CACHE_TAG: &str = "CACHEDIR.TAG";
/// The largest `.gitignore` that is read, in bytes.
const IGNORE_BYTES_MAX: u64 = 256 * 1024;

/// Everything that a session changed.
pub(crate) fn read_changes(view: &View) -> io::Result<ChangeSet> {
    let lower = Comparison::open_base(view)?;
    let root = beneath::open_root(&view.written_folder())?;
    let mut walk = DiffWalk {
        lower: &lower,
        set: ChangeSet::default(),
        seen: BTreeSet::new(),
        entries: 0,
        bytes: 0,
        ignores: rules_above(view),
    };
    walk.walk_folder(&root, Path::new(""), 0)?;
    walk.deleted_from_copy();
    let mut set = walk.set;
    set.changes.sort_by(|a, b| a.path.cmp(&b.path));
    set.left_out.sort();
    set.notices = set
        .changes
        .iter()
        .filter(|change| change.kind != ChangeKind::Delete)
        .filter_map(|change| {
            Some(Notice { path: change.path.clone(), why: name::obeyed_by(&change.path)?.to_owned() })
        })
        .collect();
    Ok(set)
}

/// A diff under way.
struct DiffWalk<'a> {
    lower: &'a Comparison,
    set: ChangeSet,
    /// Paths of the copy that are still there, or that are listed already.
    seen: BTreeSet<String>,
    entries: usize,
    bytes: u64,
    /// The `.gitignore` files on the way down, each with the way from its folder to the project: empty for those in the project,
    /// which know their own places.
    ignores: Vec<(PathBuf, Gitignore)>,
}

impl DiffWalk<'_> {
    fn walk_folder(&mut self, folder: &OwnedFd, path: &Path, depth: usize) -> io::Result<()> {
        let ignores = self.ignores.len();
        self.ignores.extend(
            self.lower
                .read_file(&path.join(".gitignore"), IGNORE_BYTES_MAX)
                .and_then(|text| Some((PathBuf::new(), parse_gitignore(path, &text)?))),
        );
        let names = copy::list_names(folder)?;
        for name in &names {
            self.entries += 1;
            let below = path.join(name);
            if self.entries > ENTRIES_MAX || depth > DEPTH_MAX {
                self.leave_out(&below, LeftOutReason::TooMany);
                continue;
            }
            self.look_at_entry(folder, name, &below, depth)?;
        }
        // A folder that was removed and made again hides the project's: every name of that one is a
        // deletion.
        if self.lower.is_overlay() && beneath::is_opaque(folder.as_fd()) {
            let present: BTreeSet<&Path> = names.iter().map(PathBuf::as_path).collect();
            for name in self.lower.names_in(path).iter().filter(|name| !present.contains(name.as_path())) {
                self.add_deletion(&path.join(name));
            }
        }
        // The rules of a folder end with it.
        self.ignores.truncate(ignores);
        Ok(())
    }

    fn look_at_entry(&mut self, folder: &OwnedFd, name: &Path, path: &Path, depth: usize) -> io::Result<()> {
        let Some(shown) = name::showable_name(name.as_os_str().as_bytes()) else {
            self.leave_out(path, LeftOutReason::HostileName);
            return Ok(());
        };
        if name::is_git(shown) {
            self.leave_out(path, LeftOutReason::GitDirectory);
            return Ok(());
        }
        let stat = fstatat(folder, name, AtFlags::AT_SYMLINK_NOFOLLOW)?;
        match beneath::file_kind(&stat) {
            SFlag::S_IFREG => self.look_at_file(folder, name, path, &stat)?,
            SFlag::S_IFDIR => self.enter_folder(folder, name, path, depth)?,
            // A device of number zero is how an overlay marks a deletion.
            SFlag::S_IFCHR if stat.st_rdev == 0 && self.lower.is_overlay() => self.add_deletion(path),
            SFlag::S_IFLNK => {
                let target = nix::fcntl::readlinkat(folder, name)?;
                if self.lower.find_entry(path) != ProjectEntry::Link(target.into()) {
                    self.leave_out(path, LeftOutReason::SymbolicLink);
                } else if let Some(path) = path.to_str() {
                    self.seen.insert(path.to_owned());
                }
            }
            _ => self.leave_out(path, LeftOutReason::Special),
        }
        Ok(())
    }

    /// Goes into a folder, unless nothing in it may be carried out.
    fn enter_folder(&mut self, folder: &OwnedFd, name: &Path, path: &Path, depth: usize) -> io::Result<()> {
        let inner = match beneath::open_at(folder, name, OFlag::O_RDONLY | OFlag::O_DIRECTORY, Mode::empty())
        {
            Ok(inner) => inner,
            Err(_) => {
                self.leave_out(path, LeftOutReason::Unreadable);
                return Ok(());
            }
        };
        let has = |name: &str| beneath::stat_at(&inner, Path::new(name)).is_ok_and(|found| found.is_some());
        let either =
            |name: &str| has(name) || self.lower.find_entry(&path.join(name)) != ProjectEntry::Nothing;
        // Git takes such a folder for a repository, and obeys its configuration, under any name.
        let reason = if either("HEAD") && either("objects") && either("refs") {
            LeftOutReason::GitDirectory
        } else if has(CACHE_TAG) || name == Path::new("__pycache__") || self.is_ignored(path) {
            LeftOutReason::Ignored
        } else if matches!(self.lower.find_entry(path), ProjectEntry::Folder | ProjectEntry::Nothing) {
            return self.walk_folder(&inner, path, depth + 1);
        } else {
            LeftOutReason::KindChanged
        };
        self.leave_out(path, reason);
        Ok(())
    }

    /// Returns true if the project's own rules say that a folder is not its work.
    fn is_ignored(&self, path: &Path) -> bool {
        self.ignores
            .iter()
            .rev()
            .map(|(way, rules)| rules.matched(way.join(path), true))
            .find(|found| !found.is_none())
            .is_some_and(|found| found.is_ignore())
    }

    fn look_at_file(
        &mut self,
        folder: &OwnedFd,
        name: &Path,
        path: &Path,
        stat: &FileStat,
    ) -> io::Result<()> {
        let mode = Mode::from_bits_truncate(stat.st_mode);
        let bytes = u64::try_from(stat.st_size).unwrap_or(u64::MAX);
        // Applied, such a file would run with the rights of the owner.
        if mode.intersects(Mode::S_ISUID | Mode::S_ISGID) {
            self.leave_out(path, LeftOutReason::SetId);
            return Ok(());
        }
        if bytes > CHANGE_BYTES_MAX {
            self.leave_out(path, LeftOutReason::TooLarge);
            return Ok(());
        }
        let Ok(Some(mut file)) = beneath::read_at(folder, name) else {
            self.leave_out(path, LeftOutReason::Unreadable);
            return Ok(());
        };
        // The worker's own digests are not believed: the file is read here.
        let after = beneath::digest_file(&mut file)?;
        let executable = mode.contains(Mode::S_IXUSR);
        let (kind, before) = match self.lower.find_entry(path) {
            ProjectEntry::Nothing => (ChangeKind::Create, None),
            ProjectEntry::File(found) if found.digest == after && found.executable == executable => {
                self.seen.extend(path.to_str().map(str::to_owned));
                return Ok(());
            }
            ProjectEntry::File(found) if found.changed_since(&file) => {
                self.leave_out(path, LeftOutReason::Stale);
                return Ok(());
            }
            ProjectEntry::File(found) => (ChangeKind::Modify, Some(found.digest)),
            ProjectEntry::Folder | ProjectEntry::Link(_) | ProjectEntry::Other => {
                self.leave_out(path, LeftOutReason::KindChanged);
                return Ok(());
            }
        };
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > CHANGES_BYTES_MAX {
            self.leave_out(path, LeftOutReason::TooLarge);
        } else if let Some(path) = path.to_str() {
            let path = path.to_owned();
            self.add_change(FileChange { path, kind, before, after: Some(after), executable, bytes });
        }
        Ok(())
    }

    /// Something of the project that the session deleted: a file, or every file of a folder.
    fn add_deletion(&mut self, path: &Path) {
        let below = self.lower.files_below(path);
        for path in &below.left_out {
            self.leave_out(path, LeftOutReason::TooMany);
        }
        for (path, found) in below.files {
            match (found, path.to_str()) {
                (ProjectEntry::File(file), Some(shown)) if base::is_path_carried(shown) => {
                    self.add_change(FileChange {
                        path: shown.to_owned(),
                        kind: ChangeKind::Delete,
                        before: Some(file.digest),
                        after: None,
                        executable: false,
                        bytes: 0,
                    })
                }
                (ProjectEntry::File(_), Some(_)) => self.leave_out(&path, LeftOutReason::GitDirectory),
                (ProjectEntry::File(_), None) => self.leave_out(&path, LeftOutReason::HostileName),
                (ProjectEntry::Link(_), _) => self.leave_out(&path, LeftOutReason::SymbolicLink),
                (ProjectEntry::Other, _) => self.leave_out(&path, LeftOutReason::Special),
                (ProjectEntry::Folder | ProjectEntry::Nothing, _) => {}
            }
        }
    }

    /// Records the files of a copy that are missing now.
    fn deleted_from_copy(&mut self) {
        for path in self.lower.copied_paths() {
            if !is_covered(&self.seen, Path::new(&path)) {
                self.add_deletion(Path::new(&path));
            }
        }
    }

    fn add_change(&mut self, change: FileChange) {
        if self.set.changes.len() >= CHANGES_MAX {
            self.leave_out(Path::new(&change.path), LeftOutReason::TooMany);
            return;
        }
        self.seen.insert(change.path.clone());
        self.set.changes.push(change);
    }

    fn leave_out(&mut self, path: &Path, reason: LeftOutReason) {
        self.seen.extend(path.to_str().map(str::to_owned));
        if matches!(reason, LeftOutReason::TooLarge | LeftOutReason::TooMany) {
            self.set.over_bounds += 1;
        }
        if self.set.left_out.len() >= LEFT_OUT_MAX {
            self.set.left_out_more += 1;
            return;
        }
        let shown = name::escape_path(path.as_os_str().as_bytes());
        self.set.left_out.push(LeftOut { shown, reason });
    }
}

/// Returns true if the set has a path or a folder above it. The folders above are looked up one by one: a search through the whole
/// set for each missing file would take too long.
fn is_covered(seen: &BTreeSet<String>, path: &Path) -> bool {
    path.ancestors().any(|above| above.to_str().is_some_and(|above| seen.contains(above)))
}

/// The rules of a repository above its subfolder that is the project. None, if they leave out the project itself.
fn rules_above(view: &View) -> Vec<(PathBuf, Gitignore)> {
    let mut found = Vec::new();
    let (Some(top), Some(project)) = (&view.top, &view.project) else { return found };
    let Ok(below) = project.strip_prefix(top) else { return found };
    let Ok(root) = beneath::open_root(top) else { return found };
    let folders: Vec<&Path> = below.ancestors().skip(1).collect();
    for folder in folders.into_iter().rev() {
        let file = beneath::read_at(&root, &folder.join(".gitignore")).ok().flatten();
        let text = file.and_then(|file| beneath::read_content(file, IGNORE_BYTES_MAX).ok()?.ok());
        let rules = text.and_then(|text| parse_gitignore(Path::new(""), &text));
        let way = below.strip_prefix(folder).map(Path::to_owned);
        found.extend(way.ok().zip(rules));
    }
    let leaves_out = |(way, rules): &(PathBuf, Gitignore)| {
        way.ancestors().any(|folder| folder != Path::new("") && rules.matched(folder, true).is_ignore())
    };
    if found.iter().any(leaves_out) { Vec::new() } else { found }
}

/// The rules of one `.gitignore`.
fn parse_gitignore(folder: &Path, text: &[u8]) -> Option<Gitignore> {
    let mut builder = GitignoreBuilder::new(folder);
    for line in String::from_utf8_lossy(text).lines() {
        // A line that is no pattern is passed over, as git does.
        let _ = builder.add_line(None, line);
    }
    builder.build().ok()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::project::base::BELOW_MAX;

    fn diff_of(lower: &Comparison) -> DiffWalk<'_> {
        DiffWalk {
            lower,
            set: ChangeSet::default(),
            seen: BTreeSet::new(),
            entries: 0,
            bytes: 0,
            ignores: Vec::new(),
        }
    }

    /// A path that is too deep ends the listing of its own folder only, and the diff names it.
    #[test]
    fn deletions_that_are_too_deep_are_left_out_and_the_others_are_listed() {
        let temp = tempfile::tempdir().expect("temp dir");
        let deep = |first: &str| format!("gone/{first}{}", "/d".repeat(DEPTH_MAX));
        for first in ["a", "z"] {
            fs::create_dir_all(temp.path().join(deep(first))).expect("made");
        }
        fs::write(temp.path().join("gone/m"), "text").expect("written");
        let lower = Comparison::Project(beneath::open_root(temp.path()).expect("opened"));
        let mut walk = diff_of(&lower);
        walk.add_deletion(Path::new("gone"));
        let deleted: Vec<&str> = walk.set.changes.iter().map(|change| change.path.as_str()).collect();
        assert_eq!(deleted, ["gone/m"]);
        // The first path below each that has more parts than are followed.
        let too_deep = |first: &str| format!("gone/{first}{}", "/d".repeat(DEPTH_MAX - 1));
        let mut left_out = walk.set.left_out;
        left_out.sort();
        let expected =
            ["a", "z"].map(|first| LeftOut { shown: too_deep(first), reason: LeftOutReason::TooMany });
        assert_eq!(left_out, expected);
        assert_eq!(walk.set.over_bounds, 2);
    }

    #[test]
    fn deletions_beyond_the_bound_are_left_out_and_counted() {
        let temp = tempfile::tempdir().expect("temp dir");
        let gone = temp.path().join("gone");
        fs::create_dir(&gone).expect("made");
        for at in 0..BELOW_MAX + 3 {
            fs::write(gone.join(at.to_string()), "").expect("written");
        }
        let lower = Comparison::Project(beneath::open_root(temp.path()).expect("opened"));
        let below = lower.files_below(Path::new("gone"));
        assert_eq!((below.files.len(), below.left_out.len()), (BELOW_MAX, 3));
    }

    /// A search through the whole set for each path would take minutes.
    #[test]
    fn a_missing_file_is_looked_up_by_its_own_folders() {
        const FILES: usize = 30_000;
        let seen: BTreeSet<String> = (0..FILES).map(|at| format!("seen/{at}/file")).collect();
        let start = Instant::now();
        for at in 0..FILES {
            assert!(!is_covered(&seen, Path::new(&format!("missing/{at}/file"))));
        }
        assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
        let seen: BTreeSet<String> = ["a/b", "c"].map(str::to_owned).into();
        for path in ["a/b", "a/b/d", "c/d/e"] {
            assert!(is_covered(&seen, Path::new(path)), "{path}");
        }
        for path in ["a", "a/bc", "cd"] {
            assert!(!is_covered(&seen, Path::new(path)), "{path}");
        }
    }
}
