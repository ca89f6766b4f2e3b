//! One backup: a folder with files and a manifest that names their digests.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use writ_store::backup::{DatabaseCopy, file_digest};
use writ_store::lock::{HomeLock, LockError};
use writ_types::digest::Digest;
use writ_types::error::Exit;
use writ_types::id::InstallationId;
use writ_types::unit::Timestamp;

use super::write_failure;
use crate::failure::Failure;
use crate::home::make_folder;

/// The database in a backup.
pub(super) const DATABASE: &str = "writ.db";
/// The history of the agent's own files.
pub(super) const AGENT: &str = "agent.bundle";
/// The file that describes the others; written last, so that a folder without one is no backup.
const MANIFEST: &str = "manifest.json";
/// The suffix of backups that are being made.
const UNFINISHED: &str = ".unfinished";
/// The lock held while a backup is made.
const LOCK: &str = ".lock";
/// The version of the manifest's form.
const VERSION: u32 = 1;
/// The largest manifest that is read, in bytes: a few hundred names and digests.
const MAX_MANIFEST_BYTES: u64 = 1024 * 1024;
/// The most files that a folder of the owner may have in a backup.
const MAX_FILES: usize = 1_000;
/// The most backups that are looked at.
const MAX_LISTED: usize = 10_000;

/// The content of a backup.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Manifest {
    version: u32,
    pub(super) made_at: Timestamp,
    pub(super) reason: String,
    pub(super) installation: InstallationId,
    pub(super) epoch: u64,
    pub(super) entries: u64,
    pub(super) files: Vec<BackupFile>,
}

/// One file of a backup.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct BackupFile {
    path: String,
    pub(super) bytes: u64,
    digest: Digest,
}

/// A backup on the disk.
#[derive(Debug)]
pub(super) struct BackupSet {
    pub(super) name: String,
    folder: PathBuf,
    pub(super) manifest: Manifest,
}

/// A backup that is being made. Dropped unfinished, it goes.
#[derive(Debug)]
pub(super) struct BackupDraft {
    name: String,
    folder: PathBuf,
    into: PathBuf,
    made_at: Timestamp,
    /// One backup at a time: what another one left unfinished is swept.
    _lock: HomeLock,
}

impl BackupDraft {
    /// Begins a backup below a folder.
    pub(super) fn begin_draft(backups: &Path, now: Timestamp) -> Result<Self, Failure> {
        make_folder(backups)?;
        let lock = HomeLock::acquire(&backups.join(LOCK)).map_err(|error| match error {
            LockError::Held { .. } => {
                let text = "another backup is being made";
                Failure::new(Exit::Blocked, "backup.running", text, "wait until it is done")
            }
            LockError::Unusable { message } => {
                write_failure(&backups.join(LOCK), &std::io::Error::other(message))
            }
        })?;
        // Drafts of backups that were interrupted; the lock is held, so none is in use.
        for left in
            folder_entries(backups)?.iter().filter(|name| name.starts_with('.') && name.ends_with(UNFINISHED))
        {
            let left = backups.join(left);
            fs::remove_dir_all(&left).map_err(|error| write_failure(&left, &error))?;
        }
        // Colons are not allowed in file names everywhere.
        let name = now.to_string().replace(':', "-");
        let folder = backups.join(format!(".{name}{UNFINISHED}"));
        make_folder(&folder)?;
        Ok(Self { into: backups.join(&name), name, folder, made_at: now, _lock: lock })
    }

    pub(super) fn draft_path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Keeps a copy of one of the owner's files.
    pub(super) fn copy_file(&self, file: &Path) -> Result<(), Failure> {
        let Some(name) = file.file_name() else { return Ok(()) };
        let to = self.folder.join(name);
        fs::copy(file, &to).map(drop).map_err(|error| write_failure(&to, &error))
    }

    /// Keeps copies of the regular files of one of the owner's folders.
    pub(super) fn keep_folder(&self, folder: &Path) -> Result<(), Failure> {
        let Some(name) = folder.file_name() else { return Ok(()) };
        let to = self.folder.join(name);
        make_folder(&to)?;
        for entry in folder_entries(folder)?.into_iter().take(MAX_FILES) {
            let path = folder.join(&entry);
            // Links are left out: they could lead to any file.
            if fs::symlink_metadata(&path).is_ok_and(|meta| meta.is_file()) {
                let to = to.join(&entry);
                fs::copy(&path, &to).map_err(|error| write_failure(&to, &error))?;
            }
        }
        Ok(())
    }

    /// Writes the manifest and gives the backup its name.
    pub(super) fn finish_draft(self, copied: &DatabaseCopy, reason: &str) -> Result<BackupSet, Failure> {
        let mut names = folder_entries(&self.folder)?;
        for folder in names.clone() {
            if self.folder.join(&folder).is_dir() {
                names.retain(|name| *name != folder);
                names.extend(
                    folder_entries(&self.folder.join(&folder))?.iter().map(|name| format!("{folder}/{name}")),
                );
            }
        }
        let kept = |path: String| -> Result<BackupFile, Failure> {
            let (digest, bytes) = file_digest(&self.folder.join(&path))?;
            Ok(BackupFile { path, bytes, digest })
        };
        let manifest = Manifest {
            version: VERSION,
            made_at: self.made_at,
            reason: reason.to_owned(),
            installation: copied.installation,
            epoch: copied.epoch,
            entries: copied.entries,
            files: names.into_iter().map(kept).collect::<Result<_, _>>()?,
        };
        let text = serde_json::to_vec_pretty(&manifest)
            .map_err(|error| Failure::internal_error("writing JSON", error))?;
        let path = self.folder.join(MANIFEST);
        let written = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .and_then(|mut file| file.write_all(&text).and_then(|()| file.sync_all()))
            // The rename is the last step: a folder with this name is a complete backup.
            .and_then(|()| fs::rename(&self.folder, &self.into));
        written.map_err(|error| write_failure(&path, &error))?;
        Ok(BackupSet { name: self.name.clone(), folder: self.into.clone(), manifest })
    }
}

impl Drop for BackupDraft {
    fn drop(&mut self) {
        // It does not exist after a finished backup.
        let _removed = fs::remove_dir_all(&self.folder);
    }
}

impl BackupSet {
    pub(super) fn file_path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Checks that every file is what the manifest says.
    pub(super) fn check_files(&self) -> Result<(), Failure> {
        if self.manifest.version > VERSION {
            let text = format!("the backup {} was made by a newer version", self.name);
            return Err(Failure::new(Exit::Config, "backup.newer", text, "update Writ first"));
        }
        for kept in &self.manifest.files {
            // The manifest may be foreign: its paths must stay inside the backup.
            let inside = !kept.path.split('/').any(|name| matches!(name, "" | "." | ".."));
            let good = inside
                && file_digest(&self.folder.join(&kept.path)).is_ok_and(|(digest, _)| digest == kept.digest);
            if !good {
                let text = format!("'{}' of the backup {} is damaged", kept.path, self.name);
                return Err(Failure::new(Exit::Verification, "backup.damaged", text, "restore another one"));
            }
        }
        Ok(())
    }
}

/// Returns every backup, newest first, and the defect of each damaged one. A folder without a manifest is not a backup.
pub(super) fn list_sets(backups: &Path) -> Result<(Vec<BackupSet>, Vec<String>), Failure> {
    let (mut sets, mut damaged) = (Vec::new(), Vec::new());
    if !backups.exists() {
        return Ok((sets, damaged));
    }
    let names = folder_entries(backups)?.into_iter().rev().filter(|name| !name.starts_with('.'));
    for name in names.take(MAX_LISTED) {
        let folder = backups.join(&name);
        match read_manifest(&folder.join(MANIFEST)) {
            Ok(Some(manifest)) => sets.push(BackupSet { name, folder, manifest }),
            Ok(None) => {}
            Err(why) => damaged.push(format!("{name}: {why}")),
        }
    }
    sets.sort_by_key(|set| std::cmp::Reverse(set.manifest.made_at));
    Ok((sets, damaged))
}

/// Removes all but the newest backups; the names of those that went.
pub(super) fn prune_sets(backups: &Path, keep: usize) -> Result<Vec<String>, Failure> {
    let mut gone = Vec::new();
    // At least one backup stays.
    for set in list_sets(backups)?.0.into_iter().skip(keep.max(1)) {
        fs::remove_dir_all(&set.folder).map_err(|error| write_failure(&set.folder, &error))?;
        gone.push(set.name);
    }
    Ok(gone)
}

fn read_manifest(path: &Path) -> Result<Option<Manifest>, String> {
    let Ok(meta) = fs::symlink_metadata(path) else { return Ok(None) };
    if !meta.is_file() || meta.len() > MAX_MANIFEST_BYTES {
        return Err("its manifest is no file of ours".to_owned());
    }
    let text = fs::read(path).map_err(|error| format!("its manifest cannot be read: {error}"))?;
    serde_json::from_slice(&text).map(Some).map_err(|error| format!("its manifest is damaged: {error}"))
}

/// The names in a folder, sorted; names that are no text are not ours.
fn folder_entries(folder: &Path) -> Result<Vec<String>, Failure> {
    let read = fs::read_dir(folder).map_err(|error| write_failure(folder, &error))?;
    let mut names: Vec<String> =
        read.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    names.sort();
    Ok(names)
}
