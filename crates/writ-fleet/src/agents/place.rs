//! Putting an agent into a home, and taking one out: each with a rename, so that it is there whole or not at all. Each
//! version has a folder of its own, by its digest, and the key says which is in force.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use writ_policy::keys::{KeyToken, Verifier};
use writ_types::digest::Digest;

use super::error::AgentError;
use super::folder::{FolderContent, FolderPlace, sync_folder, work_folder};
use super::key_file::{KEY_FOLDER, name_key, read_key, write_fresh_key};
use super::manifest::AgentFolder;

/// The lock file in the folder of agents.
const LOCK: &str = ".lock";
/// Beginnings of names that are no agents: one that is being put in place, and one that is being removed.
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
    digest: Digest,
    token: KeyToken,
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
        let copy = FreshCopy { folder, name, digest: agent.digest(), token: token.clone() };
        make_closed(&copy.folder)?;
        agent.content.copy_to(source, &work_folder(&copy.folder, copy.digest))?;
        write_fresh_key(&copy.folder, token)?;
        name_key(&copy.folder)?;
        sync_folder(&copy.folder)?;
        Ok(copy)
    }

    /// Puts a copy in its place: first the program, beside those of other versions, then the key that says it is in force.
    /// The version before stays until the next change, since its processes may still read its files.
    ///
    /// # Errors
    ///
    /// If it cannot be renamed.
    pub fn put_copy(&self, copy: FreshCopy, verifier: &Verifier) -> Result<(), AgentError> {
        let (home, earlier) = (self.home_of(&copy.name), self.earlier_of(&copy.name));
        remove_folder(&earlier)?;
        let before = match read_key(&home) {
            Ok(token) => verifier.verify_base(&token).ok().map(|(claims, _)| claims.policy),
            Err(AgentError::NoKey { .. }) if !home.join(KEY_FOLDER).exists() => {
                // There is no agent of this name: all of it comes with one rename.
                remove_folder(&home)?;
                fs::rename(&copy.folder, &home).map_err(AgentError::io(&home))?;
                return sync_folder(&self.agents);
            }
            // Its key is none any more; the next one takes its place.
            Err(_) => None,
        };
        remove_others(&home, [Some(copy.digest), before])?;
        let (fresh, program) = (work_folder(&copy.folder, copy.digest), work_folder(&home, copy.digest));
        let is_there = FolderContent::read_folder(&program, FolderPlace::Deployed)
            .is_ok_and(|content| content.digest == copy.digest);
        if !is_there {
            // What lies there under this name is something else.
            match fs::rename(&program, &earlier) {
                Ok(()) => remove_folder(&earlier)?,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(source) => return Err(AgentError::Io { path: program, source }),
            }
            fs::rename(&fresh, &program).map_err(AgentError::io(&program))?;
            sync_folder(&home)?;
        }
        write_fresh_key(&home, &copy.token)?;
        name_key(&home)?;
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

/// Removes the programs of a home but these.
fn remove_others(home: &Path, wanted: [Option<Digest>; 2]) -> Result<(), AgentError> {
    let names = wanted.map(|digest| digest.map(|digest| digest.to_string()));
    for entry in fs::read_dir(home).map_err(AgentError::io(home))? {
        let path = entry.map_err(AgentError::io(home))?.path();
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if name != KEY_FOLDER && !names.iter().flatten().any(|one| *one == name) {
            remove_folder(&path)?;
        }
    }
    Ok(())
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
