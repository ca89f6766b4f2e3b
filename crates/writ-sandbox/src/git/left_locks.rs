//! Lock files that a killed git has left: removed where they are certain to be ours, for they make every later change fail.
//!
//! The lock of the repository says that no git of an earlier autopilot runs any longer; a git of the user's may. So a lock counts as
//! ours by its name, below `refs/writ/`, or by what lies beside it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::{CommitId, GitFault, GitProject, RefName};

/// Lock files of one transaction are made within this time.
const MOMENT: Duration = Duration::from_secs(2);
/// The references of the harness, below the repository.
const OWN: &str = "refs/writ";
/// The most folders and files below [`OWN`] that are looked at: one folder for each branch, and one file for each reference.
const MAX_ENTRIES: usize = 2 * super::refs::REFS_MAX;
/// Locks that git takes besides those of the references: the log of `HEAD`, and the file of packed references when one is deleted.
const SHARED: [&str; 2] = ["HEAD.lock", "packed-refs.lock"];

/// Finds the references of the harness whose locks are left. Nobody else changes references below `refs/writ/`.
///
/// # Errors
///
/// If the folders cannot be read.
pub fn find_own_locks(project: &GitProject) -> Result<BTreeSet<RefName>, GitFault> {
    let top = project.common_dir();
    let mut found = BTreeSet::new();
    let mut folders = vec![top.join(OWN)];
    let mut seen = 0_usize;
    while let Some(folder) = folders.pop() {
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            // Without references there is no folder, and git removes empty ones.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(GitFault::from_io(folder, error)),
        };
        for entry in entries {
            let entry = entry.map_err(|error| GitFault::from_io(&folder, error))?;
            seen += 1;
            if seen > MAX_ENTRIES {
                tracing::warn!("there are more references below {OWN} than are searched for locks");
                return Ok(found);
            }
            let path = entry.path();
            // The kind of a link is "link": it is not followed.
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                folders.push(path);
                continue;
            }
            let name = path.strip_prefix(top).ok().and_then(Path::to_str);
            let name = name.and_then(|name| name.strip_suffix(".lock"));
            found.extend(name.and_then(|name| RefName::parse_full(name).ok()));
        }
    }
    Ok(found)
}

/// Removes the locks of references, and those that the same transaction has left beside them. The caller knows that the references
/// are ours, and that no git of ours runs.
///
/// # Errors
///
/// If they cannot be removed.
pub fn remove_locks_of(project: &GitProject, names: &BTreeSet<RefName>) -> Result<Vec<PathBuf>, GitFault> {
    let is_alone = !has_running_git(project);
    let mut times = Vec::new();
    let mut removed = Vec::new();
    for name in names {
        let path = lock_of(project, name);
        let Some((_, at)) = read_lock(&path) else { continue };
        // A person may commit on a branch of ours, and never below our own names.
        if is_alone || name.is_own() || is_old(at) {
            times.push(at);
            removed.push(path);
        }
    }
    if is_alone {
        removed.extend(find_shared(project, &times));
    }
    remove_files(&removed)?;
    Ok(removed)
}

/// Removes the lock files of a move that was killed: the branch's, if it holds the commit that the move was to bring, and those beside
/// it. Any other lock stays, for it may belong to a git that runs.
///
/// # Errors
///
/// If they cannot be removed.
pub fn remove_left_locks(
    project: &GitProject,
    name: &RefName,
    new: &CommitId,
) -> Result<Vec<PathBuf>, GitFault> {
    let branch = lock_of(project, name);
    // Git writes the new commit into the lock before it renames it: it is the signature of the move.
    let text = fs::read_to_string(&branch).unwrap_or_default();
    if text.trim_end() != new.as_str() {
        return Ok(Vec::new());
    }
    let times: Vec<SystemTime> = read_lock(&branch).map(|(_, at)| at).into_iter().collect();
    let mut removed = vec![branch];
    removed.extend(find_shared(project, &times));
    remove_files(&removed)?;
    Ok(removed)
}

/// Returns true if a git of the user's may be at work in the repository: a process of this name in one of its folders, as far as can be
/// seen here. Elsewhere than on Linux any may.
fn has_running_git(project: &GitProject) -> bool {
    let Ok(processes) = fs::read_dir("/proc") else { return true };
    let is_in =
        |folder: &Path| folder.starts_with(project.top_dir()) || folder.starts_with(project.common_dir());
    let mut processes = processes.flatten().map(|entry| entry.path());
    processes.any(|process| {
        let name = fs::read_to_string(process.join("comm")).unwrap_or_default();
        name.trim_end() == "git"
            && match fs::read_link(process.join("cwd")) {
                Ok(folder) => is_in(&folder),
                // It has ended; a folder that may not be read could be this one.
                Err(error) => error.kind() != std::io::ErrorKind::NotFound,
            }
    })
}

/// Returns true if a lock that was made then is older than any git of ours can be.
pub(super) fn is_old(at: SystemTime) -> bool {
    SystemTime::now().duration_since(at).is_ok_and(|age| age > crate::host::GIT_TIME_MAX)
}

fn lock_of(project: &GitProject, name: &RefName) -> PathBuf {
    project.common_dir().join(format!("{name}.lock"))
}

/// The size of a lock and the time when it was made.
fn read_lock(path: &Path) -> Option<(u64, SystemTime)> {
    let meta = fs::symlink_metadata(path).ok()?;
    Some((meta.len(), meta.modified().ok()?))
}

/// The locks of [`SHARED`] that belong to a transaction of one of these times: empty, and made in the same moment.
fn find_shared(project: &GitProject, times: &[SystemTime]) -> Vec<PathBuf> {
    let is_near = |at: SystemTime| {
        times.iter().any(|time| {
            let apart = at.duration_since(*time).or_else(|_| time.duration_since(at));
            apart.is_ok_and(|apart| apart <= MOMENT)
        })
    };
    let paths = SHARED.map(|name| project.common_dir().join(name));
    let is_ours = |path: &PathBuf| read_lock(path).is_some_and(|(bytes, at)| bytes == 0 && is_near(at));
    paths.into_iter().filter(is_ours).collect()
}

fn remove_files(paths: &[PathBuf]) -> Result<(), GitFault> {
    for path in paths {
        match fs::remove_file(path) {
            // Its git has let go of it meanwhile.
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(GitFault::from_io(path, error));
            }
            Ok(()) | Err(_) => {}
        }
    }
    Ok(())
}
