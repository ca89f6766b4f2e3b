//! The content of an agent's folder: its digest, over paths, contents and what can be executed; and an exact copy.

use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;
use serde_json::json;
use writ_types::digest::Digest;

use super::error::AgentError;

/// The most files and folders of an agent.
pub const MAX_ENTRIES: usize = 4_096;
/// The deepest folder in it.
pub const MAX_DEPTH: usize = 32;
/// The longest path in it, in bytes.
pub const MAX_PATH_BYTES: usize = 1_024;
/// The largest file, in bytes.
pub const MAX_FILE_BYTES: u64 = 32 * 1024 * 1024;
/// The most of all files together, in bytes.
pub const MAX_FOLDER_BYTES: u64 = 256 * 1024 * 1024;

/// The folders beside the program that are no part of it: its key, and the history of its sources.
const APART: [&str; 2] = [super::key_file::KEY_FOLDER, ".git"];
/// The format of the digest; another one gets another number.
const FORMAT: &str = "writ agent folder 1";

/// The modes of copies: an agent may run as another user, who reads them, and the folder above is closed.
const FOLDER_MODE: u32 = 0o755;
const FILE_MODE: u32 = 0o644;
const PROGRAM_MODE: u32 = 0o755;

/// The place that a folder is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FolderPlace {
    /// Where it is written: key and history may lie beside the program.
    Source,
    /// In a home: there is the program alone.
    Deployed,
}

/// A file or folder in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FolderEntry {
    /// The path from the folder on, with `/` between names.
    pub path: String,
    /// The content of a file; `None`: a folder.
    pub content: Option<FileContent>,
}

/// The content of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileContent {
    /// True if its owner may execute it.
    pub executable: bool,
    /// Its size, in bytes.
    pub bytes: u64,
    /// Its digest.
    pub digest: Digest,
}

/// The content of a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FolderContent {
    /// Files and folders, in the order of their paths.
    pub entries: Vec<FolderEntry>,
    /// The digest of all of it.
    pub digest: Digest,
}

impl FolderContent {
    /// Reads a folder. Blocks.
    ///
    /// # Errors
    ///
    /// If there is something in it that no agent has, or it cannot be read.
    pub fn read_folder(root: &Path, place: FolderPlace) -> Result<Self, AgentError> {
        let mut walk = FolderWalk { root, place, entries: Vec::new(), bytes: 0 };
        if !fs::symlink_metadata(root).map_err(AgentError::io(root))?.is_dir() {
            return Err(AgentError::folder(root, "it is no folder", "name the folder with the agent.toml"));
        }
        walk.add_folder(root, "", 0)?;
        // The order of a listing differs between file systems.
        walk.entries.sort_by(|a, b| a.path.cmp(&b.path));
        let lines: Vec<_> = walk.entries.iter().map(describe_entry).collect();
        let digest = Digest::of_canonical(&json!({ "format": FORMAT, "entries": lines }));
        let digest =
            digest.map_err(|error| AgentError::folder(root, error.to_string(), "remove what is in it"))?;
        Ok(Self { entries: walk.entries, digest })
    }

    /// Returns a file by its path.
    pub fn find_file(&self, path: &str) -> Option<&FileContent> {
        self.entries.iter().find(|entry| entry.path == path)?.content.as_ref()
    }

    /// Copies the folder as it was read to a new folder, and syncs it. Blocks.
    ///
    /// # Errors
    ///
    /// If it cannot be written, or is not any more what was read.
    pub fn copy_to(&self, from: &Path, to: &Path) -> Result<(), AgentError> {
        make_folder(to)?;
        // Sorted by path, so that each folder comes before what is in it.
        for entry in &self.entries {
            let (source, target) = (from.join(&entry.path), to.join(&entry.path));
            match &entry.content {
                None => make_folder(&target)?,
                Some(content) => copy_file(&source, &target, content.executable)?,
            }
        }
        let copy = Self::read_folder(to, FolderPlace::Deployed)?;
        // What was approved is the digest, so a file that changed while it was copied is found here.
        if copy.digest == self.digest {
            return Ok(());
        }
        Err(AgentError::folder(from, "it changed while it was copied", "try again once nothing writes to it"))
    }
}

fn describe_entry(entry: &FolderEntry) -> serde_json::Value {
    match &entry.content {
        None => json!([entry.path, "folder"]),
        Some(FileContent { executable: true, digest, .. }) => json!([entry.path, "program", digest]),
        Some(FileContent { executable: false, digest, .. }) => json!([entry.path, "file", digest]),
    }
}

/// A walk through a folder.
struct FolderWalk<'a> {
    root: &'a Path,
    place: FolderPlace,
    entries: Vec<FolderEntry>,
    bytes: u64,
}

impl FolderWalk<'_> {
    fn add_folder(&mut self, folder: &Path, above: &str, depth: usize) -> Result<(), AgentError> {
        if depth > MAX_DEPTH {
            let what = format!("it has folders more than {MAX_DEPTH} deep");
            return Err(AgentError::folder(self.root, what, "lay it out flatter"));
        }
        for entry in fs::read_dir(folder).map_err(AgentError::io(folder))? {
            let path = entry.map_err(AgentError::io(folder))?.path();
            self.add_entry(&path, above, depth)?;
        }
        Ok(())
    }

    fn add_entry(&mut self, path: &Path, above: &str, depth: usize) -> Result<(), AgentError> {
        let wrong = |what: &str, hint: &str| Err(AgentError::folder(path, what, hint));
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
            return wrong("its name is not UTF-8", "rename it");
        };
        if depth == 0 && APART.contains(&name) {
            return match self.place {
                FolderPlace::Source => Ok(()),
                // An agent sees this folder: a key in it could be read.
                FolderPlace::Deployed => wrong("it is no part of an agent", "deploy the agent again"),
            };
        }
        let relative = if above.is_empty() { name.to_owned() } else { format!("{above}/{name}") };
        if relative.len() > MAX_PATH_BYTES {
            return wrong(&format!("its path has more than {MAX_PATH_BYTES} bytes"), "shorten it");
        }
        if self.entries.len() >= MAX_ENTRIES {
            let what = format!("it has more than {MAX_ENTRIES} files and folders");
            return Err(AgentError::folder(self.root, what, "leave out what the agent does not need"));
        }
        // Links are looked at, and never followed: what they lead to is outside of the digest.
        let found = fs::symlink_metadata(path).map_err(AgentError::io(path))?;
        if found.is_dir() {
            self.entries.push(FolderEntry { path: relative.clone(), content: None });
            return self.add_folder(path, &relative, depth.saturating_add(1));
        }
        if found.is_symlink() {
            return wrong("it is a link", "put the file itself there");
        }
        if !found.is_file() {
            return wrong("it is neither a file nor a folder", "remove it");
        }
        let (bytes, executable) = read_plain(path)?;
        let size = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        // All of it is read again before each start, so that its sum is bounded, too.
        self.bytes = self.bytes.saturating_add(size);
        if self.bytes > MAX_FOLDER_BYTES {
            let what = format!("its files have more than {MAX_FOLDER_BYTES} bytes together");
            return Err(AgentError::folder(self.root, what, "leave out what the agent does not need"));
        }
        let content = FileContent { executable, bytes: size, digest: Digest::of_bytes(&bytes) };
        self.entries.push(FolderEntry { path: relative, content: Some(content) });
        Ok(())
    }
}

/// Reads a file up to its bound, and whether its owner may execute it.
pub(crate) fn read_plain(path: &Path) -> Result<(Vec<u8>, bool), AgentError> {
    // A link or a pipe that was put in its place after the look is not followed, and not waited for.
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let opened = OpenOptions::new().read(true).custom_flags(flags.bits()).open(path);
    let file = opened.map_err(AgentError::io(path))?;
    let found = file.metadata().map_err(AgentError::io(path))?;
    if !found.is_file() {
        return Err(AgentError::folder(path, "it is no file", "remove it"));
    }
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES.saturating_add(1)).read_to_end(&mut bytes).map_err(AgentError::io(path))?;
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > MAX_FILE_BYTES {
        let what = format!("it has more than {MAX_FILE_BYTES} bytes");
        return Err(AgentError::folder(path, what, "leave it out, or split it"));
    }
    Ok((bytes, found.mode() & 0o100 != 0))
}

fn make_folder(path: &Path) -> Result<(), AgentError> {
    // The mode is set afterwards, since the mask of the process takes bits away.
    fs::create_dir(path).map_err(AgentError::io(path))?;
    fs::set_permissions(path, fs::Permissions::from_mode(FOLDER_MODE)).map_err(AgentError::io(path))
}

fn copy_file(from: &Path, to: &Path, executable: bool) -> Result<(), AgentError> {
    let (bytes, _) = read_plain(from)?;
    let mode = if executable { PROGRAM_MODE } else { FILE_MODE };
    let write = || {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(to)?;
        file.write_all(&bytes)?;
        file.set_permissions(fs::Permissions::from_mode(mode))?;
        file.sync_all()
    };
    write().map_err(AgentError::io(to))
}

/// Syncs a folder, so that a name in it survives a loss of power.
pub(crate) fn sync_folder(path: &Path) -> Result<(), AgentError> {
    File::open(path).and_then(|folder| folder.sync_all()).map_err(AgentError::io(path))
}

/// Returns the path of the program's folder of a deployed agent. Its name is the digest of its content: another version
/// takes no other's place, so that what was checked is what is started.
pub fn work_folder(home: &Path, digest: Digest) -> PathBuf {
    home.join(digest.to_string())
}
