//! The files of a trace: lines of JSON below `.writ/trace/`, one file for each day, of which the first line says its version.

use std::fs;
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::json;
use writ_sandbox::git::places::{WorkspaceRoot, append_below, has_folder_below, read_below};
use writ_types::api::pilot::PilotSpan;
use writ_types::unit::Timestamp;

use crate::error::AutopilotError;

/// The folder of trace files, below the project.
pub(super) const TRACE: &str = ".writ/trace";
/// The folder of old trace files.
pub(super) const ARCHIVE: &str = ".writ/archive/trace";
/// The version of the form of the files that this version writes and reads.
const VERSION: u64 = 1;
/// The file that lists the trace files.
const LIST: &str = "_meta.json";
/// The longest line that is read, in bytes: a span is shorter.
const MAX_LINE_BYTES: u64 = 64 * 1024;
/// The most files of a folder that are looked at: one for each day of many years.
const MAX_FILES: usize = 10_000;
/// The most spans that are read from a file at once: agents may have merged a file of any length.
pub(super) const MAX_READ_SPANS: usize = 1_000;
/// The rights of the folders: what agents have done is for the owner alone.
const FOLDER_MODE: u32 = 0o700;
/// The rights of the files.
const FILE_MODE: u32 = 0o600;

/// The first line of a file.
#[derive(Debug, Serialize, Deserialize)]
struct FileHeader {
    #[serde(rename = "_meta")]
    is_meta: bool,
    trace_schema_version: u64,
    #[serde(default)]
    writ_version: String,
    created_at: Option<Timestamp>,
}

/// A span with the first byte of its line.
#[derive(Debug)]
pub(super) struct PlacedSpan {
    pub(super) span: PilotSpan,
    pub(super) offset: u64,
}

/// The result of reading one span.
#[derive(Debug)]
pub(super) struct ReadSpan {
    /// The span, or the reason for which it cannot be read.
    pub(super) span: Result<PilotSpan, String>,
    /// The bytes that were read.
    pub(super) bytes: u64,
}

/// The trace files of a project.
#[derive(Clone, Debug)]
pub(super) struct TraceFiles {
    top: PathBuf,
}

fn failed(path: &Path, error: &io::Error) -> AutopilotError {
    AutopilotError::File { path: path.to_owned(), why: error.to_string() }
}

/// Returns true for the name of a file of a day.
fn is_trace(name: &str) -> bool {
    day_of(name).is_some()
}

/// Returns the day of a file, as `2026-01-31`.
pub(super) fn day_of(name: &str) -> Option<&str> {
    let day = name.strip_prefix("trace-")?.strip_suffix(".jsonl")?;
    let is_day = day.len() == "2026-01-31".len()
        && day.bytes().enumerate().all(|(at, byte)| match at {
            4 | 7 => byte == b'-',
            _ => byte.is_ascii_digit(),
        });
    is_day.then_some(day)
}

impl TraceFiles {
    pub(super) fn of_project(top: &Path) -> Self {
        Self { top: top.to_owned() }
    }

    /// Opens a folder, which is made if it is not there.
    fn open(&self, below: &str) -> Result<WorkspaceRoot, AutopilotError> {
        // Before anything is made: a folder of workspaces may be linked, one of traces may not.
        self.has_folder(below)?;
        let folder = WorkspaceRoot::open_root(&self.top, below).map_err(crate::PilotGitError::from)?;
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(FOLDER_MODE))
            .map_err(|error| failed(folder.path(), &error))?;
        Ok(folder)
    }

    /// Returns true if a folder is there. One that is a link or lies behind one is an error: agents may have merged it.
    fn has_folder(&self, below: &str) -> Result<bool, AutopilotError> {
        has_folder_below(&self.top, below).map_err(|error| failed(&self.top.join(below), &error))
    }

    /// Adds spans to the file of a day, which is on disk when this returns. Returns the file, below the project, and the first byte
    /// of each line.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub(super) fn append(
        &self,
        (day, now): (&str, Timestamp),
        spans: &[PilotSpan],
    ) -> Result<(String, Vec<u64>), AutopilotError> {
        self.open(TRACE)?;
        let place = format!("{TRACE}/trace-{day}.jsonl");
        let write = || -> io::Result<(bool, Vec<u64>)> {
            let mut file = append_below(&self.top, &place)?;
            let mut at = file.seek(SeekFrom::End(0))?;
            let is_new = at == 0;
            let mut text = Vec::new();
            if is_new {
                let header = FileHeader {
                    is_meta: true,
                    trace_schema_version: VERSION,
                    writ_version: env!("CARGO_PKG_VERSION").to_owned(),
                    created_at: Some(now),
                };
                serde_json::to_writer(&mut text, &header)?;
                text.push(b'\n');
            } else if !ends_line(&mut file, at)? {
                // A crash has cut its last line off, which stays as it is.
                text.push(b'\n');
            }
            let mut offsets = Vec::with_capacity(spans.len());
            at = at.saturating_add(bytes_of(&text));
            for span in spans {
                offsets.push(at);
                let mut line = serde_json::to_vec(span)?;
                line.push(b'\n');
                at = at.saturating_add(bytes_of(&line));
                text.append(&mut line);
            }
            file.write_all(&text)?;
            file.sync_data()?;
            Ok((is_new, offsets))
        };
        let (is_new, offsets) = write().map_err(|error| failed(&self.top.join(&place), &error))?;
        if is_new {
            self.write_list()?;
        }
        Ok((place, offsets))
    }

    /// Writes the list of all trace files with their version.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub(super) fn write_list(&self) -> Result<(), AutopilotError> {
        let (folder, files) = (self.open(TRACE)?, [self.list(TRACE)?, self.list(ARCHIVE)?].concat());
        let text = json!({ "trace_schema_version": VERSION, "files": files }).to_string();
        let (path, fresh) = (folder.path().join(LIST), folder.path().join(format!(".{LIST}.new")));
        // Renamed over the old one, so that a link in its place is replaced and not followed.
        let write = || -> io::Result<()> {
            let _gone = fs::remove_file(&fresh);
            let mut file =
                fs::OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(&fresh)?;
            file.write_all(text.as_bytes())?;
            fs::rename(&fresh, &path)
        };
        write().map_err(|error| failed(&path, &error))
    }

    /// Lists the trace files of a folder, below the project, the oldest first. A folder that is not there has none.
    ///
    /// # Errors
    ///
    /// If the folder cannot be read.
    pub(super) fn list(&self, below: &str) -> Result<Vec<String>, AutopilotError> {
        if !self.has_folder(below)? {
            return Ok(Vec::new());
        }
        let path = self.top.join(below);
        let entries = fs::read_dir(&path).map_err(|error| failed(&path, &error))?;
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        let mut files: Vec<String> = names
            .filter(|name| is_trace(name))
            .take(MAX_FILES)
            .map(|name| format!("{below}/{name}"))
            .collect();
        files.sort();
        Ok(files)
    }

    /// Moves a file to the archive. Returns its place there.
    ///
    /// # Errors
    ///
    /// If it cannot be moved, or another one is there.
    pub(super) fn archive(&self, file: &str) -> Result<String, AutopilotError> {
        let from = self.top.join(file);
        // Neither a link nor a file behind one is moved.
        read_below(&self.top, file).map_err(|error| failed(&from, &error))?;
        let name = file.rsplit('/').next().unwrap_or(file);
        let to = self.open(ARCHIVE)?.path().join(name);
        if fs::symlink_metadata(&to).is_ok() {
            return Err(failed(&to, &io::ErrorKind::AlreadyExists.into()));
        }
        fs::rename(&from, &to).map_err(|error| failed(&to, &error))?;
        Ok(format!("{ARCHIVE}/{name}"))
    }

    /// Reads the span in the line that begins at a byte, and nothing of the file besides it and the first line.
    pub(super) fn read_at(&self, file: &str, offset: u64) -> ReadSpan {
        let mut bytes = 0;
        let mut read = || -> Result<PilotSpan, String> {
            let mut reader = open_versioned((&self.top, file), &mut bytes)?;
            reader.seek(SeekFrom::Start(offset)).map_err(|error| error.to_string())?;
            let line = read_line(&mut reader, &mut bytes).map_err(|error| error.to_string())?;
            serde_json::from_str(&line).map_err(|error| format!("there is no span at {offset}: {error}"))
        };
        let span = read().map_err(|why| format!("{file}: {why}"));
        ReadSpan { span, bytes }
    }

    /// Reads spans of a file after the one whose line begins at a byte, [`MAX_READ_SPANS`] at most; `None`: from the first. A line that is
    /// no span is passed over: a crash may have cut it off.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, or has another version.
    pub(super) fn read_after(
        &self,
        file: &str,
        after: Option<u64>,
    ) -> Result<Vec<PlacedSpan>, AutopilotError> {
        let path = self.top.join(file);
        let mut bytes = 0;
        let mut reader = open_versioned((&self.top, file), &mut bytes)
            .map_err(|why| AutopilotError::File { path: path.clone(), why })?;
        let mut spans = Vec::new();
        let mut read = || -> io::Result<()> {
            let mut at = match after {
                Some(after) => reader.seek(SeekFrom::Start(after))?,
                None => bytes,
            };
            let mut is_first = after.is_some();
            loop {
                let mut length = 0;
                let line = read_line(&mut reader, &mut length)?;
                if length == 0 {
                    return Ok(());
                }
                let is_known = std::mem::take(&mut is_first);
                if let Ok(span) = serde_json::from_str(&line)
                    && !is_known
                {
                    spans.push(PlacedSpan { span, offset: at });
                    if spans.len() == MAX_READ_SPANS {
                        return Ok(());
                    }
                }
                at = at.saturating_add(length);
            }
        };
        read().map_err(|error| failed(&path, &error))?;
        Ok(spans)
    }
}

/// Opens a file behind its first line, if its version is one that this version reads.
fn open_versioned((top, file): (&Path, &str), bytes: &mut u64) -> Result<BufReader<fs::File>, String> {
    let file = read_below(top, file).map_err(|error| error.to_string())?;
    let mut reader = BufReader::with_capacity(LINE_BUFFER, file);
    let line = read_line(&mut reader, bytes).map_err(|error| error.to_string())?;
    let header: FileHeader =
        serde_json::from_str(&line).map_err(|_| "its first line does not say its version".to_owned())?;
    match header.trace_schema_version {
        VERSION => Ok(reader),
        other => Err(format!("version {other} of the trace is not supported, {VERSION} is")),
    }
}

/// The bytes that are read at once: more than most spans have.
const LINE_BUFFER: usize = 4 * 1024;

/// Reads a line, and adds the bytes that it has. What is longer than a line may be is no span.
fn read_line(reader: &mut BufReader<fs::File>, bytes: &mut u64) -> io::Result<String> {
    let mut line = Vec::new();
    let length = reader.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut line)?;
    *bytes = bytes.saturating_add(u64::try_from(length).unwrap_or(u64::MAX));
    Ok(String::from_utf8_lossy(&line).into_owned())
}

fn ends_line(file: &mut fs::File, length: u64) -> io::Result<bool> {
    file.seek(SeekFrom::Start(length.saturating_sub(1)))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    Ok(last == *b"\n")
}

fn bytes_of(text: &[u8]) -> u64 {
    u64::try_from(text.len()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
