//! Hidden tests: the owner's, in a folder outside of the project, so that no agent reads them and writes what they expect.
//!
//! They are laid over the merged tree, which only the gates see. An agent learns only how many ran, passed or failed.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use writ_autopilot::check::{GateJudgement, ScriptVerdict};

use crate::config::PilotGate;
use crate::project::OpenProject;

/// The most files of hidden tests of one gate.
const MAX_FILES: usize = 2_000;
/// Their most bytes together.
const MAX_BYTES: u64 = 64 * 1024 * 1024;
/// The deepest folder.
const MAX_DEPTH: usize = 16;

/// Puts the hidden tests of a gate into a tree that only gates see. The error is for people.
pub(super) fn lay_over(project: &OpenProject, name: &str, tree: &Path) -> Result<(), String> {
    let Some(root) = &project.hidden_tests else {
        return Err("there is no folder for hidden tests".to_owned());
    };
    let from = root.join(name);
    let mut copy = HiddenCopy { files: 0, bytes: 0 };
    copy.copy_folder(&from, tree, 0)
        .map_err(|error| format!("the hidden tests '{name}' cannot be used: {error}"))?;
    if copy.files == 0 {
        return Err(format!("there are no hidden tests '{name}'"));
    }
    Ok(())
}

struct HiddenCopy {
    files: usize,
    bytes: u64,
}

impl HiddenCopy {
    fn copy_folder(&mut self, from: &Path, to: &Path, depth: usize) -> io::Result<()> {
        let too_many = || io::Error::other("they are too many, too large or too deep");
        if depth > MAX_DEPTH {
            return Err(too_many());
        }
        let mut entries: Vec<PathBuf> =
            fs::read_dir(from)?.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>()?;
        entries.sort();
        for path in entries {
            let Some(name) = path.file_name() else { continue };
            if name.eq_ignore_ascii_case(".git") {
                return Err(io::Error::other("they hold a repository"));
            }
            let (about, place) = (fs::symlink_metadata(&path)?, to.join(name));
            if about.is_dir() {
                clear_for_folder(&place)?;
                self.copy_folder(&path, &place, depth + 1)?;
                continue;
            }
            // What a link leads to may be anything.
            if !about.is_file() {
                return Err(io::Error::other("one of them is neither file nor folder"));
            }
            (self.files, self.bytes) = (self.files + 1, self.bytes.saturating_add(about.len()));
            if self.files > MAX_FILES || self.bytes > MAX_BYTES {
                return Err(too_many());
            }
            clear_for_file(&place)?;
            // The file must be new, so that no link in its place is followed.
            let mut file = File::options().write(true).create_new(true).open(&place)?;
            file.write_all(&fs::read(&path)?)?;
            file.set_permissions(about.permissions())?;
        }
        Ok(())
    }
}

/// Makes a place a folder. A link that the agent left there is removed, never followed.
fn clear_for_folder(place: &Path) -> io::Result<()> {
    match fs::symlink_metadata(place) {
        Ok(about) if about.is_dir() => return Ok(()),
        Ok(_) => fs::remove_file(place)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    fs::create_dir(place)
}

fn clear_for_file(place: &Path) -> io::Result<()> {
    match fs::symlink_metadata(place) {
        Ok(about) if about.is_dir() => fs::remove_dir_all(place),
        Ok(_) => fs::remove_file(place),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Keeps only what an agent may read of a judgement: output and words of hidden tests say what they expect.
pub(super) fn conceal(gate: &PilotGate, judged: &mut GateJudgement) {
    let counts = judged.counts;
    judged.summary = match judged.verdict {
        ScriptVerdict::Pass => format!("{} hidden tests passed", counts.passed),
        ScriptVerdict::Fail | ScriptVerdict::Block if counts.failed > 0 => {
            format!("{} of {} hidden tests failed", counts.failed, counts.executed())
        }
        ScriptVerdict::Fail | ScriptVerdict::Block if counts.executed() != gate.min_tests => {
            "another number of hidden tests ran than there are".to_owned()
        }
        ScriptVerdict::Fail | ScriptVerdict::Block => "the hidden tests did not pass".to_owned(),
        ScriptVerdict::Skip => "skipped".to_owned(),
        ScriptVerdict::NotRun => "the hidden tests did not run".to_owned(),
    };
    judged.issues.clear();
    judged.output.clear();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(path: &Path, text: &str) {
        fs::create_dir_all(path.parent().expect("a parent")).expect("made");
        fs::write(path, text).expect("written");
    }

    #[test]
    fn hidden_files_are_laid_over_a_tree_and_follow_no_link() {
        let (from, tree, outside) = (
            tempfile::tempdir().expect("made"),
            tempfile::tempdir().expect("made"),
            tempfile::tempdir().expect("made"),
        );
        write(&from.path().join("tests/a.py"), "hidden");
        write(&from.path().join("b.py"), "hidden");
        write(&outside.path().join("a.py"), "theirs");
        write(&outside.path().join("b.py"), "theirs");
        std::os::unix::fs::symlink(outside.path(), tree.path().join("tests")).expect("linked");
        std::os::unix::fs::symlink(outside.path().join("b.py"), tree.path().join("b.py")).expect("linked");
        let mut copy = HiddenCopy { files: 0, bytes: 0 };
        copy.copy_folder(from.path(), tree.path(), 0).expect("copied");
        assert_eq!((copy.files, copy.bytes), (2, 12));
        for name in ["tests/a.py", "b.py"] {
            assert_eq!(fs::read_to_string(tree.path().join(name)).expect("is there"), "hidden");
        }
        for name in ["a.py", "b.py"] {
            assert_eq!(fs::read_to_string(outside.path().join(name)).expect("is there"), "theirs");
        }
        std::os::unix::fs::symlink("/etc/passwd", from.path().join("c.py")).expect("linked");
        assert!(HiddenCopy { files: 0, bytes: 0 }.copy_folder(from.path(), tree.path(), 0).is_err());
        fs::remove_file(from.path().join("c.py")).expect("removed");
        fs::create_dir(from.path().join(".GIT")).expect("made");
        assert!(HiddenCopy { files: 0, bytes: 0 }.copy_folder(from.path(), tree.path(), 0).is_err());
    }
}
