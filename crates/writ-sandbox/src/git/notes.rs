//! Small files of the harness in the repository's `writ` folder: written whole, or not at all.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};

use super::{GitFault, GitProject};

/// The largest note, in bytes.
pub const NOTE_BYTES_MAX: u64 = 1024 * 1024;

/// Writes a note, durably, in place of an earlier one.
///
/// # Errors
///
/// If it cannot be written; then the earlier one stays.
pub fn write_note(project: &GitProject, name: &'static str, text: &str) -> Result<(), GitFault> {
    let (path, fresh) = (project.own_file(name), project.own_file(&format!("{name}.new")));
    let written = File::create(&fresh).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()
    });
    written.map_err(|error| GitFault::from_io(&fresh, error))?;
    fs::rename(&fresh, &path).map_err(|error| GitFault::from_io(&path, error))?;
    // The name must be on the disk, too, before what the note announces happens.
    let folder = File::open(path.parent().unwrap_or(&path));
    folder.and_then(|folder| folder.sync_all()).map_err(|error| GitFault::from_io(&path, error))
}

/// Reads a note. `None`: there is none.
///
/// # Errors
///
/// If it cannot be read.
pub fn read_note(project: &GitProject, name: &'static str) -> Result<Option<String>, GitFault> {
    let path = project.own_file(name);
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(GitFault::from_io(path, error)),
    };
    let mut text = String::new();
    let read = file.take(NOTE_BYTES_MAX).read_to_string(&mut text);
    read.map_err(|error| GitFault::from_io(path, error))?;
    Ok(Some(text))
}

/// Removes a note; a missing one is no error.
///
/// # Errors
///
/// If it cannot be removed.
pub fn remove_note(project: &GitProject, name: &'static str) -> Result<(), GitFault> {
    let path = project.own_file(name);
    match fs::remove_file(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(GitFault::from_io(path, error)),
        Ok(()) | Err(_) => Ok(()),
    }
}
