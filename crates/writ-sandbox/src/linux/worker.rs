//! The file worker: reads, lists, searches and writes below the work folder, inside the sandbox. The files
//! may be hostile; any harm that they do stays in here.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::{OFlag, renameat};
use nix::sys::stat::Mode;
use writ_types::action::{ChangeKind, FileChange, ReadFile, ReadMode};
use writ_types::digest::Digest;
use writ_types::encoding::{MARK, TextForm, decode_text};

use super::init;
use crate::file::{
    ENTRIES_MAX, EntryKind, FILE_MAX, FileFault, LARGE_MAX, ListEntry, ReadResult, TEXT_MAX, WrittenFile,
};
use crate::file_request::{FileReply, FileRequest, PeekReply, cut_text};
use crate::project::beneath;

mod kinds;

mod search;

/// Does one request and prints the reply. Returns the exit code.
pub(crate) fn main(work: &Path, request: &FileRequest) -> i32 {
    let reply = match request {
        FileRequest::Read(read) => self::read_request(work, read).map(FileReply::Read),
        FileRequest::Peek(path) => peek_file(work, path).map(FileReply::Peek),
        FileRequest::Write { change, content, encoding } => {
            let content = content.as_deref().map(|text| encoding.encode_text(text));
            write_file(work, change, content.as_deref()).map(FileReply::Written)
        }
        FileRequest::Save { path, bytes } => {
            save_file(work, path, *bytes, std::io::stdin()).map(FileReply::Written)
        }
    };
    let reply = reply.unwrap_or_else(FileReply::Fault);
    serde_json::to_vec(&reply).map_or(1, |bytes| init::write_reply(&bytes))
}

fn read_request(work: &Path, request: &ReadFile) -> Result<ReadResult, FileFault> {
    let root = beneath::open_root(work).map_err(|why| io_fault(&request.path, &why))?;
    let path = relative_path(&request.path)?;
    match &request.mode {
        ReadMode::Text { first_line, lines } => read_text(&root, &request.path, &path, *first_line, *lines),
        ReadMode::List => list_folder(&root, &request.path, &path),
        ReadMode::Search { pattern, glob, max_matches } => {
            // Refuses what lies behind a link or outside, before the walk begins.
            beneath::open_at(&root, &path, OFlag::O_PATH, Mode::empty())
                .map_err(|why| io_fault(&request.path, &why))?;
            search::search_folder(work, &path, pattern, glob, *max_matches)
        }
    }
}

/// A window of a text file.
fn read_text(
    root: &OwnedFd,
    shown: &str,
    path: &Path,
    first_line: u64,
    lines: u64,
) -> Result<ReadResult, FileFault> {
    let file = open_file(root, shown, path)?.ok_or_else(|| FileFault::NotFound { path: shown.to_owned() })?;
    let content = read_content(file, shown)?;
    let (bytes, digest) = (byte_size(&content), Digest::of_bytes(&content));
    let Some((whole, encoding)) = decode_text(&content) else {
        return Ok(ReadResult::Binary { bytes, digest, content: kinds::identify_content(&content) });
    };
    let form = TextForm::of_text(&whole, encoding);
    // The byte order mark is no part of the text; its form says that there is one.
    let whole = whole.strip_prefix(MARK).unwrap_or(&whole);
    let first_line = first_line.max(1);
    let mut text = String::new();
    let (mut total_lines, mut truncated) = (0, false);
    for line in whole.split_inclusive('\n') {
        total_lines += 1;
        // The other lines are only counted, so that the model knows how much there is.
        if total_lines < first_line || total_lines - first_line >= lines || truncated {
            continue;
        }
        let room = usize::try_from(TEXT_MAX).unwrap_or(usize::MAX) - text.len();
        truncated = line.len() > room;
        text.push_str(cut_text(line, room));
    }
    Ok(ReadResult::Text { text, first_line, total_lines, bytes, digest, truncated, form })
}

/// The entries of a folder.
fn list_folder(root: &OwnedFd, shown: &str, path: &Path) -> Result<ReadResult, FileFault> {
    let fault = |why: &std::io::Error| {
        if why.kind() == std::io::ErrorKind::NotADirectory {
            wrong_kind(shown, "folder")
        } else {
            io_fault(shown, why)
        }
    };
    let folder = beneath::open_at(root, path, OFlag::O_RDONLY | OFlag::O_DIRECTORY, Mode::empty())
        .map_err(|why| fault(&why))?;
    let mut dir = nix::dir::Dir::from_fd(folder.try_clone().map_err(|why| fault(&why))?)
        .map_err(|why| fault(&why.into()))?;
    let mut entries = Vec::new();
    let mut truncated = false;
    for entry in dir.iter() {
        let entry = entry.map_err(|why| fault(&why.into()))?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        if entries.len() >= ENTRIES_MAX {
            truncated = true;
            break;
        }
        // A link is listed as one and not followed, wherever it leads.
        let stat = nix::sys::stat::fstatat(&folder, name, nix::fcntl::AtFlags::AT_SYMLINK_NOFOLLOW);
        // The file was deleted while the folder is being listed.
        let Ok(stat) = stat else { continue };
        let kind = match beneath::file_kind(&stat) {
            nix::sys::stat::SFlag::S_IFREG => EntryKind::File,
            nix::sys::stat::SFlag::S_IFDIR => EntryKind::Folder,
            nix::sys::stat::SFlag::S_IFLNK => EntryKind::Link,
            _ => EntryKind::Special,
        };
        let bytes = if kind == EntryKind::File { u64::try_from(stat.st_size).unwrap_or(0) } else { 0 };
        entries.push(ListEntry { name: name.to_string_lossy().into_owned(), kind, bytes });
    }
    // The system's order is arbitrary, and the same folder should give the same text.
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(ReadResult::List { entries, truncated })
}

fn peek_file(work: &Path, shown: &str) -> Result<Option<PeekReply>, FileFault> {
    let root = beneath::open_root(work).map_err(|why| io_fault(shown, &why))?;
    let path = relative_path(shown)?;
    let Some(file) = open_file(&root, shown, &path)? else { return Ok(None) };
    let executable = file.metadata().is_ok_and(|meta| meta.mode() & 0o100 != 0);
    let content = read_content(file, shown)?;
    Ok(Some(PeekReply { digest: Digest::of_bytes(&content), content: hex::encode(content), executable }))
}

/// Writes or deletes one file, if it is what the change was made for.
fn write_file(work: &Path, change: &FileChange, content: Option<&[u8]>) -> Result<WrittenFile, FileFault> {
    let shown = change.path.as_str();
    let fault = |why: std::io::Error| io_fault(shown, &why);
    let root = beneath::open_root(work).map_err(fault)?;
    let path = relative_path(shown)?;
    let name = path.file_name().map(PathBuf::from).ok_or_else(|| wrong_kind(shown, "file"))?;
    let current = open_file(&root, shown, &path)?;
    let mode =
        current.as_ref().and_then(|file| file.metadata().ok()).map_or(0o644, |meta| meta.mode() & 0o777);
    let found = current.map(|mut file| beneath::digest_file(&mut file)).transpose().map_err(fault)?;
    // The change was made for this content of the file and no other.
    if found != change.before {
        return Err(FileFault::Conflict { path: shown.to_owned(), found });
    }
    if change.kind == ChangeKind::Delete {
        let folder = beneath::open_parent(&root, &path, false).map_err(fault)?;
        beneath::remove_file(&folder, &name).map_err(fault)?;
        return Ok(WrittenFile { digest: None, bytes: 0 });
    }
    let content = content.ok_or_else(|| FileFault::Unsupported { why: "it has no content".into() })?;
    let digest = Digest::of_bytes(content);
    // The content must be the one that was approved, not only the file before it.
    if change.after != Some(digest) {
        return Err(FileFault::Content { path: shown.to_owned() });
    }
    if byte_size(content) > FILE_MAX {
        return Err(FileFault::TooLarge { path: shown.to_owned(), bytes: byte_size(content) });
    }
    let folder = beneath::open_parent(&root, &path, true).map_err(fault)?;
    let mode = if change.executable { mode | 0o111 & (mode >> 2 | 0o100) } else { mode & !0o111 };
    replace_file(&folder, &name, content, mode).map_err(fault)?;
    Ok(WrittenFile { digest: Some(digest), bytes: byte_size(content) })
}

/// Saves the incoming bytes, if they are complete: a sender that died in the middle leaves no file.
fn save_file(work: &Path, shown: &str, bytes: u64, mut from: impl Read) -> Result<WrittenFile, FileFault> {
    let fault = |why: std::io::Error| io_fault(shown, &why);
    let root = beneath::open_root(work).map_err(fault)?;
    let path = relative_path(shown)?;
    let name = path.file_name().map(PathBuf::from).ok_or_else(|| wrong_kind(shown, "file"))?;
    if bytes > LARGE_MAX {
        return Err(FileFault::TooLarge { path: shown.to_owned(), bytes });
    }
    // Only a file may be replaced, never a folder or a link.
    open_file(&root, shown, &path)?;
    let mut content = Vec::new();
    from.by_ref().take(bytes.saturating_add(1)).read_to_end(&mut content).map_err(fault)?;
    if byte_size(&content) != bytes {
        return Err(FileFault::Content { path: shown.to_owned() });
    }
    let folder = beneath::open_parent(&root, &path, true).map_err(fault)?;
    replace_file(&folder, &name, &content, 0o644).map_err(fault)?;
    Ok(WrittenFile { digest: Some(Digest::of_bytes(&content)), bytes })
}

/// Writes a file beside its place and renames it: others see the old content or the new.
fn replace_file(folder: &OwnedFd, name: &Path, content: &[u8], mode: u32) -> std::io::Result<()> {
    let staged = PathBuf::from(format!(".writ-{}.new", std::process::id()));
    let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL;
    // A worker that was killed may have left one of this name.
    beneath::remove_file(folder, &staged)?;
    let mut file = File::from(beneath::open_at(folder, &staged, flags, Mode::from_bits_truncate(0o600))?);
    let written = file
        .write_all(content)
        .and_then(|()| file.set_permissions(std::fs::Permissions::from_mode(mode)))
        .and_then(|()| file.sync_data())
        .and_then(|()| Ok(renameat(folder, &staged, folder, name)?));
    if written.is_err() {
        let _ = beneath::remove_file(folder, &staged);
    }
    written
}

/// A request's path, as names below the work folder.
fn relative_path(shown: &str) -> Result<PathBuf, FileFault> {
    Ok(beneath::split_path(shown)
        .map_err(|_| FileFault::Outside { path: shown.to_owned() })?
        .iter()
        .collect())
}

/// Opens a regular file.
fn open_file(root: &OwnedFd, shown: &str, path: &Path) -> Result<Option<File>, FileFault> {
    let file = beneath::read_at(root.as_fd(), path).map_err(|why| io_fault(shown, &why))?;
    match &file {
        Some(open) if !open.metadata().is_ok_and(|meta| meta.is_file()) => Err(wrong_kind(shown, "file")),
        Some(_) | None => Ok(file),
    }
}

fn read_content(file: File, shown: &str) -> Result<Vec<u8>, FileFault> {
    beneath::read_content(file, FILE_MAX)
        .map_err(|why| io_fault(shown, &why))?
        .map_err(|bytes| FileFault::TooLarge { path: shown.to_owned(), bytes })
}

fn byte_size(content: &[u8]) -> u64 {
    u64::try_from(content.len()).unwrap_or(u64::MAX)
}

fn wrong_kind(shown: &str, expected: &str) -> FileFault {
    FileFault::Kind { path: shown.to_owned(), expected: expected.to_owned() }
}

/// Returns the fault for an error of the system.
fn io_fault(shown: &str, why: &std::io::Error) -> FileFault {
    let path = shown.to_owned();
    match why.raw_os_error() {
        Some(libc::ELOOP) => FileFault::Link { path },
        Some(libc::EXDEV) => FileFault::Outside { path },
        Some(libc::ENOENT) => FileFault::NotFound { path },
        Some(libc::ENOTDIR) => wrong_kind(shown, "folder with that in it"),
        Some(libc::ENXIO) => wrong_kind(shown, "file"),
        _ => FileFault::Io { path, why: why.to_string() },
    }
}
