//! The files of units: plan, notes and the last error, below `.writ/active/` of the project, until they are archived.
//!
//! The harness alone writes them. What agents have merged may lie in the same folder as a link, so every folder is resolved
//! without leaving the project, and a file is replaced as a whole.

use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use writ_autopilot::check::text::is_long_error;
use writ_autopilot::unit_id::UnitId;
use writ_sandbox::git::places::WorkspaceRoot;
use writ_types::unit::Timestamp;

use crate::error::AutopilotError;

/// The folder of units at work, below the project.
const ACTIVE: &str = ".writ/active";
/// The folder of units that are over.
const ARCHIVE: &str = ".writ/archive";
/// The largest file of a unit that is read, in bytes.
pub const MAX_UNIT_FILE_BYTES: usize = 256 * 1024;
/// The characters of the date before a unit's name in the archive.
const DATE_CHARS: usize = "2026-01-01-".len();
/// The most archives that are looked through.
const MAX_LISTED: usize = 100_000;
/// The most archives of one unit in one day.
const MAX_ARCHIVES: u32 = 100;

/// A file of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnitFile {
    /// The findings of the phase research.
    Research,
    /// The unit's plan.
    Plan,
    /// The last error, for the next attempt.
    LastError,
    /// The whole text of a last error that prompts cut.
    LastErrorFull,
    /// The findings of the last review.
    Review,
    /// The reason for which the unit was given up.
    Decision,
    /// The questions to a person, after a decision to ask one.
    Questions,
    /// The merged commit and the costs, once it is over.
    Result,
    /// The window of the last attempts, for the supervisor.
    Progress,
    /// The proposed change of documents.
    DocDiff,
    /// The commit that documents were looked at for, and the answer about them.
    DocSync,
    /// The chapters of its runs.
    Chapters,
}

impl UnitFile {
    const fn name(self) -> &'static str {
        match self {
            Self::Research => "research.md",
            Self::Plan => "plan.md",
            Self::LastError => "last_error.md",
            Self::LastErrorFull => "last-error-full.txt",
            Self::Review => "review.md",
            Self::Decision => "decision.md",
            Self::Questions => "human-question.md",
            Self::Result => "result.md",
            Self::Progress => "progress.json",
            Self::DocDiff => "doc-sync.diff",
            Self::DocSync => "doc-sync.json",
            Self::Chapters => "chapters.json",
        }
    }
}

/// The folders of a project's units.
#[derive(Clone, Debug)]
pub struct UnitFiles {
    active: WorkspaceRoot,
    archive: WorkspaceRoot,
}

fn failed(path: &Path, error: &io::Error) -> AutopilotError {
    AutopilotError::File { path: path.to_owned(), why: error.to_string() }
}

impl UnitFiles {
    /// Opens the folders below a project, and makes them if they are not there.
    ///
    /// # Errors
    ///
    /// If they lead out of the project or cannot be made.
    pub fn open_files(top: &Path) -> Result<Self, AutopilotError> {
        let open = |below| WorkspaceRoot::open_root(top, below).map_err(crate::PilotGitError::from);
        Ok(Self { active: open(ACTIVE)?, archive: open(ARCHIVE)? })
    }

    /// Returns the text of a file; empty if it is not there.
    ///
    /// # Errors
    ///
    /// If it cannot be read.
    pub fn read_file(&self, unit: UnitId, file: UnitFile) -> Result<String, AutopilotError> {
        // Looking makes no folder: one that was archived stays there.
        let folder = self.active.resolve_name(&unit.folder_name()).map_err(crate::PilotGitError::from)?;
        read_plain(&folder.join(file.name()))
    }

    /// Writes a file as a whole; an empty text removes it.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn write_file(&self, unit: UnitId, file: UnitFile, text: &str) -> Result<(), AutopilotError> {
        if text.is_empty() {
            return remove_below(&self.active, unit, file);
        }
        write_below(&self.active, unit, file, text)
    }

    /// Writes the last error of a unit. One that prompts cut lies whole in a file of its own, too; an empty text removes both.
    ///
    /// # Errors
    ///
    /// If they cannot be written.
    pub fn write_error(&self, unit: UnitId, text: &str) -> Result<(), AutopilotError> {
        self.write_file(unit, UnitFile::LastErrorFull, if is_long_error(text) { text } else { "" })?;
        self.write_file(unit, UnitFile::LastError, text)
    }

    /// Lays the whole text of a unit's last error into a workspace, where its next attempt can read it and no commit takes it along;
    /// a short error removes it. Returns its path below the workspace, which is that below the project, too.
    ///
    /// # Errors
    ///
    /// If a link leads out of the workspace, or it cannot be written.
    pub fn share_error(unit: UnitId, text: &str, workspace: &Path) -> Result<String, AutopilotError> {
        let place = format!("{ACTIVE}/{}/{}", unit.folder_name(), UnitFile::LastErrorFull.name());
        let is_long = is_long_error(text);
        // No folder is made for a short one.
        if !is_long && fs::symlink_metadata(workspace.join(&place)).is_err() {
            return Ok(place);
        }
        let root = WorkspaceRoot::open_root(workspace, ACTIVE).map_err(crate::PilotGitError::from)?;
        if is_long {
            write_below(&root, unit, UnitFile::LastErrorFull, text)?;
        } else {
            remove_below(&root, unit, UnitFile::LastErrorFull)?;
        }
        Ok(place)
    }

    /// Returns true if a unit has a folder that was not archived.
    ///
    /// # Errors
    ///
    /// If a link leads out of the project.
    pub fn has_folder(&self, unit: UnitId) -> Result<bool, AutopilotError> {
        let folder = self.active.resolve_name(&unit.folder_name()).map_err(crate::PilotGitError::from)?;
        Ok(fs::symlink_metadata(folder).is_ok())
    }

    /// Returns the text of a file as it is, or as it was in the newest archive of the unit; empty if it is in neither.
    ///
    /// # Errors
    ///
    /// If it cannot be read.
    pub fn read_newest(&self, unit: UnitId, file: UnitFile) -> Result<String, AutopilotError> {
        let text = self.read_file(unit, file)?;
        if !text.is_empty() || self.has_folder(unit)? {
            return Ok(text);
        }
        match self.newest_archive(unit)? {
            Some(folder) => read_plain(&folder.join(file.name())),
            None => Ok(String::new()),
        }
    }

    /// Returns the newest archive of a unit.
    fn newest_archive(&self, unit: UnitId) -> Result<Option<PathBuf>, AutopilotError> {
        let folder = unit.folder_name();
        // `{date}-{unit}`, with `-{number}` behind it where there are several of one day.
        let is_of_unit = |name: &str| {
            let rest = name.get(DATE_CHARS..).and_then(|rest| rest.strip_prefix(folder.as_str()));
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
        };
        let Ok(entries) = fs::read_dir(self.archive.path()) else { return Ok(None) };
        let names =
            entries.flatten().take(MAX_LISTED).filter_map(|entry| entry.file_name().into_string().ok());
        let newest = names.filter(|name| is_of_unit(name)).max_by_key(|name| (name.len(), name.clone()));
        let resolve = |name: String| self.archive.resolve_name(&name).map_err(crate::PilotGitError::from);
        Ok(newest.map(resolve).transpose()?)
    }

    /// Moves the newest archive of a unit back to the units at work, by one rename. One that is there, or was never archived, stays as it
    /// is.
    ///
    /// # Errors
    ///
    /// If it cannot be moved.
    pub fn restore_folder(&self, unit: UnitId) -> Result<(), AutopilotError> {
        let Some(from) = self.newest_archive(unit)?.filter(|path| fs::symlink_metadata(path).is_ok()) else {
            return Ok(());
        };
        let to = self.active.resolve_name(&unit.folder_name()).map_err(crate::PilotGitError::from)?;
        // Brought back before a crash.
        if fs::symlink_metadata(&to).is_ok() {
            return Ok(());
        }
        fs::rename(&from, &to).map_err(|error| failed(&to, &error))
    }

    /// Moves the folder of a unit to the archive, as `{date}-{unit}`, by one rename.
    ///
    /// # Errors
    ///
    /// If it cannot be moved.
    pub fn archive_folder(&self, unit: UnitId, now: Timestamp) -> Result<(), AutopilotError> {
        let from = self.active.resolve_name(&unit.folder_name()).map_err(crate::PilotGitError::from)?;
        if fs::symlink_metadata(&from).is_err() {
            // Moved before a crash.
            return Ok(());
        }
        let shown = now.to_string();
        let date = shown.split('T').next().unwrap_or_default();
        for n in 1..=MAX_ARCHIVES {
            let suffix = if n == 1 { String::new() } else { format!("-{n}") };
            let name = format!("{date}-{}{suffix}", unit.folder_name());
            let to = self.archive.resolve_name(&name).map_err(crate::PilotGitError::from)?;
            if fs::symlink_metadata(&to).is_ok() {
                continue;
            }
            return fs::rename(&from, &to).map_err(|error| failed(&to, &error));
        }
        Err(failed(&from, &io::Error::other("it was archived too often today")))
    }
}

/// Removes a file of a unit below a folder of units.
fn remove_below(root: &WorkspaceRoot, unit: UnitId, file: UnitFile) -> Result<(), AutopilotError> {
    let folder = root.resolve_name(&unit.folder_name()).map_err(crate::PilotGitError::from)?;
    let path = folder.join(file.name());
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(&path, &error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Writes a file of a unit as a whole below a folder of units.
fn write_below(root: &WorkspaceRoot, unit: UnitId, file: UnitFile, text: &str) -> Result<(), AutopilotError> {
    let mut end = text.len().min(MAX_UNIT_FILE_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let folder = root.ensure_folder(&unit.folder_name()).map_err(crate::PilotGitError::from)?.path;
    let path = folder.join(file.name());
    // Renamed over the old one, so that a crash leaves one of both, and a link is replaced and not followed.
    let fresh = folder.join(format!(".{}.new", file.name()));
    let _ = fs::remove_file(&fresh);
    let write = || -> io::Result<()> {
        let mut opened = fs::OpenOptions::new().write(true).create_new(true).open(&fresh)?;
        io::Write::write_all(&mut opened, text.get(..end).unwrap_or_default().as_bytes())?;
        opened.sync_all()?;
        fs::rename(&fresh, &path)
    };
    write().map_err(|error| failed(&path, &error))
}

/// Reads a file that is no link; empty if there is none.
fn read_plain(path: &Path) -> Result<String, AutopilotError> {
    // A link in its place is none of ours.
    match fs::symlink_metadata(path) {
        Ok(meta) if meta.is_file() => {}
        Ok(_) => return Ok(String::new()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(String::new()),
        Err(error) => return Err(failed(path, &error)),
    }
    let mut bytes = Vec::new();
    let opened = fs::File::open(path).map_err(|error| failed(path, &error))?;
    let limit = u64::try_from(MAX_UNIT_FILE_BYTES).unwrap_or(u64::MAX);
    opened.take(limit).read_to_end(&mut bytes).map_err(|error| failed(path, &error))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows: SF-261 (in part: a folder is moved by one rename, and a second one of the day has a number)
    #[test]
    fn files_are_written_whole_and_archived_with_their_folder() {
        let top = tempfile::tempdir().expect("a folder");
        let files = UnitFiles::open_files(top.path()).expect("opens");
        let unit = UnitId::Task(1, 1, 1);
        assert_eq!(files.read_file(unit, UnitFile::Plan).expect("reads"), "");
        let now = Timestamp::from_millis(1_764_200_000_000);
        for round in 0..2 {
            files.write_file(unit, UnitFile::Plan, "# Goal").expect("writes");
            files.write_file(unit, UnitFile::LastError, "no").expect("writes");
            files.write_file(unit, UnitFile::LastError, "").expect("removes");
            assert_eq!(files.read_file(unit, UnitFile::Plan).expect("reads"), "# Goal");
            assert_eq!(files.read_file(unit, UnitFile::LastError).expect("reads"), "");
            files.archive_folder(unit, now).expect("moves");
            let names = fs::read_dir(top.path().join(ARCHIVE)).expect("lists").flatten();
            let count =
                names.filter(|name| name.file_name().to_string_lossy().contains("task_m1_s1_t1")).count();
            assert_eq!(count, round + 1);
            assert_eq!(files.read_newest(unit, UnitFile::Plan).expect("reads"), "# Goal");
            assert_eq!(files.read_newest(UnitId::Task(1, 1, 11), UnitFile::Plan).expect("reads"), "");
        }
        files.archive_folder(unit, now).expect("there is none");
        files.restore_folder(unit).expect("moves back");
        assert_eq!(files.read_file(unit, UnitFile::Plan).expect("reads"), "# Goal");
        files.write_file(unit, UnitFile::Plan, "# Other").expect("writes");
        files.restore_folder(unit).expect("is there");
        assert_eq!(files.read_file(unit, UnitFile::Plan).expect("reads"), "# Other", "it stays as it is");
        files.restore_folder(UnitId::Task(1, 1, 11)).expect("was never archived");
    }

    /// Rows: SF-162 (in part: the files; the marker and the agent's reading: the engine's tests)
    #[test]
    fn a_long_error_lies_whole_beside_the_short_one_and_in_the_workspace() {
        let (top, work) = (tempfile::tempdir().expect("one"), tempfile::tempdir().expect("another"));
        let files = UnitFiles::open_files(top.path()).expect("opens");
        let unit = UnitId::Task(1, 1, 1);
        let (long, short) = (format!("{}é", "x".repeat(5_000)), "y".repeat(4_096));
        let place = ".writ/active/task_m1_s1_t1/last-error-full.txt";
        for (text, is_whole) in [(&long, true), (&short, false), (&long, true)] {
            files.write_error(unit, text).expect("writes");
            assert_eq!(&files.read_file(unit, UnitFile::LastError).expect("reads"), text);
            assert_eq!(UnitFiles::share_error(unit, text, work.path()).expect("lays"), place);
            for folder in [top.path(), work.path()] {
                let found = fs::read_to_string(folder.join(place)).ok();
                assert_eq!(found.as_ref(), is_whole.then_some(text), "{}", folder.display());
            }
        }
        files.write_error(unit, "").expect("removes");
        assert!(!top.path().join(place).exists());
        let ignored = fs::read_to_string(work.path().join(ACTIVE).join(".gitignore")).expect("is there");
        assert_eq!(ignored, "*\n", "no commit takes it along");
    }

    /// A file or folder that an agent has merged as a link leads nowhere.
    #[cfg(unix)]
    #[test]
    fn links_are_not_followed() {
        let (top, elsewhere) = (tempfile::tempdir().expect("one"), tempfile::tempdir().expect("another"));
        let files = UnitFiles::open_files(top.path()).expect("opens");
        let unit = UnitId::Task(1, 1, 1);
        files.write_file(unit, UnitFile::Plan, "mine").expect("writes");
        let secret = elsewhere.path().join("secret");
        fs::write(&secret, "theirs").expect("writes");
        let path = top.path().join(ACTIVE).join("task_m1_s1_t1/plan.md");
        fs::remove_file(&path).expect("removes");
        std::os::unix::fs::symlink(&secret, &path).expect("links");
        assert_eq!(files.read_file(unit, UnitFile::Plan).expect("reads"), "");
        files.write_file(unit, UnitFile::Plan, "mine").expect("writes");
        assert_eq!(fs::read_to_string(&secret).expect("reads"), "theirs");
        let folder = top.path().join(ACTIVE).join("task_m1_s1_t2");
        std::os::unix::fs::symlink(elsewhere.path(), &folder).expect("links");
        assert!(
            files.write_file(UnitId::Task(1, 1, 2), UnitFile::Plan, "x").is_err()
                || !elsewhere.path().join("plan.md").exists()
        );
    }
}
