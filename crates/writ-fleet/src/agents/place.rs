//! Putting an agent into a home, and taking one out: each with a rename, so that it is there whole or not at all.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use writ_policy::keys::KeyToken;

use super::error::AgentError;
use super::folder::{sync_folder, work_folder};
use super::key_file::{KEY_FOLDER, name_key, write_fresh_key};
use super::manifest::AgentFolder;

/// The lock file in the folder of agents.
const LOCK: &str = ".lock";
/// Beginnings of names that are no agents: one that is being put in place, and the version before, since its processes still run.
const FRESH: &str = ".new-";
const EARLIER: &str = ".earlier-";

/// The folder of a home's agents, locked: no other command changes it meanwhile.
#[derive(Debug)]
pub struct AgentsPlace {
    agents: PathBuf,
    /// Unlocked when it is closed.
    _lock: File,
}

/// A copy of an agent that is complete and not yet in its place. Dropping it removes it.
#[derive(Debug)]
pub struct FreshCopy {
    folder: PathBuf,
    name: String,
}

impl Drop for FreshCopy {
    fn drop(&mut self) {
        // Renamed away once it is in its place; what is left over goes with the next copy.
        let _gone = fs::remove_dir_all(&self.folder);
    }
}

impl AgentsPlace {
    /// Locks the folder `agents` of a home, and makes it if it is not there. Blocks while another command has the lock.
    ///
    /// # Errors
    ///
    /// If the folder cannot be made or locked.
    pub fn lock_folder(agents: &Path) -> Result<Self, AgentError> {
        make_closed(agents)?;
        let path = agents.join(LOCK);
        let opened = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
        let lock = opened.map_err(AgentError::io(&path))?;
        lock.lock().map_err(AgentError::io(&path))?;
        Ok(Self { agents: agents.to_owned(), _lock: lock })
    }

    /// Returns the home of an agent; it need not be there.
    pub fn home_of(&self, name: &str) -> PathBuf {
        self.agents.join(name)
    }

    /// Copies an agent's folder and its key beside its place. Blocks.
    ///
    /// # Errors
    ///
    /// If it cannot be written, or changes meanwhile.
    pub fn copy_agent(
        &self,
        source: &Path,
        agent: &AgentFolder,
        token: &KeyToken,
    ) -> Result<FreshCopy, AgentError> {
        let name = agent.manifest.name.clone();
        let folder = self.agents.join(format!("{FRESH}{name}"));
        remove_folder(&folder)?;
        let copy = FreshCopy { folder, name };
        make_closed(&copy.folder)?;
        agent.content.copy_to(source, &work_folder(&copy.folder))?;
        write_fresh_key(&copy.folder, token)?;
        name_key(&copy.folder)?;
        sync_folder(&copy.folder)?;
        Ok(copy)
    }

    /// Puts a copy in its place. The version before is moved aside without its key, since its processes may still read its
    /// files; it goes with the next change of the agent.
    ///
    /// # Errors
    ///
    /// If it cannot be renamed.
    pub fn put_copy(&self, copy: FreshCopy) -> Result<(), AgentError> {
        let (home, earlier) = (self.home_of(&copy.name), self.earlier_of(&copy.name));
        remove_folder(&earlier)?;
        match fs::rename(&home, &earlier) {
            Ok(()) => remove_folder(&earlier.join(KEY_FOLDER))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => return Err(AgentError::Io { path: home, source }),
        }
        fs::rename(&copy.folder, &home).map_err(AgentError::io(&home))?;
        sync_folder(&self.agents)
    }

    /// Takes an agent out; returns false if there was none.
    ///
    /// # Errors
    ///
    /// If it cannot be removed.
    pub fn remove_agent(&self, name: &str) -> Result<bool, AgentError> {
        let (home, earlier) = (self.home_of(name), self.earlier_of(name));
        remove_folder(&earlier)?;
        // Renamed first, so that no part of an agent stands in its place.
        let there = match fs::rename(&home, &earlier) {
            Ok(()) => true,
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(source) => return Err(AgentError::Io { path: home, source }),
        };
        remove_folder(&earlier)?;
        sync_folder(&self.agents)?;
        Ok(there)
    }

    fn earlier_of(&self, name: &str) -> PathBuf {
        self.agents.join(format!("{EARLIER}{name}"))
    }
}

fn make_closed(path: &Path) -> Result<(), AgentError> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        made => return made.map_err(AgentError::io(path)),
    }
    let found = fs::symlink_metadata(path).map_err(AgentError::io(path))?;
    if found.is_dir() { Ok(()) } else { Err(AgentError::folder(path, "it is no folder", "remove it")) }
}

fn remove_folder(path: &Path) -> Result<(), AgentError> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed.map_err(AgentError::io(path)),
    }
}
