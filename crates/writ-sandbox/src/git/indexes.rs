//! Copies of indexes, which git changes in place of those of the user.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::process::{GitProcess, split_nul, to_path};
use super::{GitFault, GitProject};

/// Numbers the copies of this process; the lock of the project excludes others.
static COPIES: AtomicU64 = AtomicU64::new(0);

/// An index of our own, removed when it is dropped.
#[derive(Debug)]
pub(crate) struct IndexCopy(PathBuf);

impl IndexCopy {
    /// Copies an index; a missing one gives an empty one.
    pub(crate) fn copy_from(project: &GitProject, index: &Path) -> Result<Self, GitFault> {
        let copy = Self::make_empty(project);
        match copy_with_time(index, &copy.0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(copy),
            Err(error) => Err(GitFault::from_io(&copy.0, error)),
            Ok(()) => Ok(copy),
        }
    }

    /// Makes an empty one.
    pub(crate) fn make_empty(project: &GitProject) -> Self {
        let number = COPIES.fetch_add(1, Ordering::Relaxed);
        Self(project.temporary_dir().join(format!("index-{number}")))
    }

    /// Returns its path.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Puts it in the place of another one, at once.
    pub(crate) fn move_to(self, place: &Path) -> Result<(), GitFault> {
        fs::rename(&self.0, place).map_err(|error| GitFault::from_io(place, error))
    }
}

impl Drop for IndexCopy {
    fn drop(&mut self) {
        // Moved away, or never written.
        let _ = fs::remove_file(&self.0);
    }
}

/// Copies a file with its time. Git compares the content of files that are not older than their index: with a younger copy it would
/// overlook a change of the same length in the moment after a file was written.
fn copy_with_time(from: &Path, to: &Path) -> io::Result<()> {
    fs::copy(from, to)?;
    let written_at = fs::metadata(from)?.modified()?;
    fs::File::options().write(true).open(to)?.set_modified(written_at)
}

/// The paths, of a list with NULs, that attributes give to a filter, each with the filter's name.
pub(crate) async fn filtered_paths(
    project: &GitProject,
    top: &Path,
    index: &Path,
    paths: Vec<u8>,
) -> Result<BTreeMap<PathBuf, String>, GitFault> {
    let own_attributes = project.common_dir().join("info/attributes");
    let git = GitProcess::in_own(project, "read attributes").with_tree(top, index);
    let git = git.with_setting(format!("core.attributesFile={}", own_attributes.display()));
    let args = ["check-attr", "--cached", "-z", "--stdin", "filter"];
    let listed = git.with_args(args).with_input(paths).run_well().await?;
    let parts: Vec<&[u8]> = split_nul(&listed).collect();
    let mut filtered = BTreeMap::new();
    for row in parts.chunks_exact(3) {
        let [path, _, name] = row else { continue };
        if !matches!(*name, b"unspecified" | b"unset") {
            filtered.insert(to_path(path), String::from_utf8_lossy(name).into_owned());
        }
    }
    Ok(filtered)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;

    #[test]
    fn a_copy_of_an_index_is_as_old_as_the_index() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("index"), folder.path().join("copy"));
        fs::write(&from, "entries").unwrap();
        let hour_ago = SystemTime::now() - Duration::from_secs(3_600);
        fs::File::options().write(true).open(&from).unwrap().set_modified(hour_ago).unwrap();
        copy_with_time(&from, &to).unwrap();
        let times = [&from, &to].map(|path| fs::metadata(path).unwrap().modified().unwrap());
        assert_eq!((times[0], fs::read(&to).unwrap()), (times[1], b"entries".to_vec()));
        assert_eq!(
            copy_with_time(&folder.path().join("none"), &to).unwrap_err().kind(),
            io::ErrorKind::NotFound
        );
    }
}
