//! The agents that are deployed in a home: `agents/NAME/.keys/base.jwt` is the base key, `agents/NAME/DIGEST` the program that
//! the key is bound to.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use writ_policy::keys::{BaseClaims, KeyToken, Verifier};
use writ_types::digest::Digest;

use super::error::AgentError;
use super::folder::{FolderContent, FolderPlace, work_folder};
use super::key_file::{key_path, read_key, verify_key};
use super::manifest::{AgentFolder, AgentManifest};
use crate::cases::config::{FleetAgent, MAX_AGENTS, ProcessLimits};

/// A deployed agent with a key that fits its folder.
#[derive(Clone, Debug)]
pub struct DeployedAgent {
    /// The agent, as the case router starts it.
    pub agent: FleetAgent,
    /// The folder with its program, which its process sees and cannot change.
    pub folder: PathBuf,
    /// Its version.
    pub version: String,
    /// The digest of the folder that its base key is bound to.
    pub digest: Digest,
    /// The limits of its processes.
    pub limits: ProcessLimits,
    /// What its `agent.toml` says.
    pub manifest: AgentManifest,
    /// What its base key says. Whether that was revoked or has ended is checked when it is used.
    pub claims: BaseClaims,
    /// Its home: the folder of its key and its program.
    pub home: PathBuf,
}

/// The agents of a home.
#[derive(Debug, Default)]
pub struct DeployedAgents {
    /// Those that may be started, by name.
    pub agents: Vec<DeployedAgent>,
    /// The others, by the name of their folder, with what is wrong with each. They are not started.
    pub defects: Vec<(String, AgentError)>,
}

/// A mark of what is deployed: equal marks mean that nothing was deployed, retired or given another key in between. A change
/// inside of a program's folder does not show in it; [`DeployedAgent::check_folder`] finds that.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeployStamp(Vec<(String, [i64; 4])>);

/// Reads the agents of a home from its folder `agents`, which need not be there. Reads every file of every agent, and blocks.
///
/// # Errors
///
/// If the folder cannot be read, or has more agents than a fleet. What is wrong with one agent is among its
/// [defects](DeployedAgents::defects).
pub fn read_deployed(agents: &Path, verifier: &Verifier) -> Result<DeployedAgents, AgentError> {
    let mut found = DeployedAgents::default();
    for name in list_names(agents)? {
        match read_agent(&agents.join(&name), &name, verifier) {
            Ok(agent) => found.agents.push(agent),
            Err(error) => found.defects.push((name, error)),
        }
    }
    Ok(found)
}

/// Returns the mark of a home's folder `agents`. Cheap: it looks at a few files of each agent and reads none. Blocks.
///
/// # Errors
///
/// As [`read_deployed`].
pub fn stamp(agents: &Path) -> Result<DeployStamp, AgentError> {
    let mark = |path: &Path| {
        fs::symlink_metadata(path).map_or([-1, -1], |found| {
            let inode = i64::try_from(found.ino()).unwrap_or(i64::MAX);
            [inode, found.ctime().saturating_mul(1_000_000_000).saturating_add(found.ctime_nsec())]
        })
    };
    let marks = list_names(agents)?.into_iter().map(|name| {
        let home = agents.join(&name);
        // Programs are in folders by digest, and the key says which of them is meant.
        let ([a, b], [c, d]) = (mark(&key_path(&home)), mark(&home));
        (name, [a, b, c, d])
    });
    Ok(DeployStamp(marks.collect()))
}

/// Reads one agent from its home.
///
/// # Errors
///
/// If its key may not be used, is no base key of this installation or is another agent's, or its folder is not the approved one.
pub fn read_agent(home: &Path, name: &str, verifier: &Verifier) -> Result<DeployedAgent, AgentError> {
    // The key first: without one, nothing of the folder is looked at.
    let token = read_key(home)?;
    let claims = verify_key(home, name, &token, verifier)?;
    let folder = work_folder(home, claims.policy);
    let read = AgentFolder::read_folder(&folder, FolderPlace::Deployed)?;
    check_digest(name, claims.policy, read.digest())?;
    let manifest = read.manifest;
    if manifest.name != name {
        return Err(AgentError::OtherAgent { path: folder, key: claims.agent, name: manifest.name });
    }
    Ok(DeployedAgent {
        agent: fleet_agent(&manifest, token, folder.clone()),
        folder,
        version: manifest.version.clone(),
        digest: claims.policy,
        limits: manifest.limits,
        manifest,
        claims,
        home: home.to_owned(),
    })
}

impl DeployedAgent {
    /// Returns true if another version was deployed since this was read, or the agent was retired. Blocks.
    pub fn is_replaced(&self) -> bool {
        match read_key(&self.home) {
            Ok(token) => token != self.agent.base,
            Err(AgentError::NoKey { .. }) => true,
            Err(_) => false,
        }
    }

    /// Checks, before a process is started, that the folder is still the approved one and the key still in its place and closed
    /// to others. Reads every file of it, and blocks.
    ///
    /// # Errors
    ///
    /// If it is not so.
    pub fn check_folder(&self) -> Result<(), AgentError> {
        let name = &self.agent.name;
        if read_key(&self.home)? != self.agent.base {
            let what = "its base key was replaced";
            return Err(AgentError::folder(&key_path(&self.home), what, "read the deployed agents again"));
        }
        let content = FolderContent::read_folder(&self.folder, FolderPlace::Deployed)?;
        check_digest(name, self.digest, content.digest)
    }
}

/// Checks that a folder has the digest that was approved.
///
/// # Errors
///
/// If it has another one.
pub fn check_digest(agent: &str, approved: Digest, found: Digest) -> Result<(), AgentError> {
    if approved == found {
        return Ok(());
    }
    // Both digests are in the message: a person compares them with the approval.
    Err(AgentError::Changed { agent: agent.to_owned(), approved, found })
}

fn fleet_agent(manifest: &AgentManifest, base: KeyToken, folder: PathBuf) -> FleetAgent {
    FleetAgent {
        name: manifest.name.clone(),
        roles: manifest.roles.clone(),
        base,
        command: manifest.program.clone(),
        max_cases: manifest.max_cases,
        version: Some(manifest.version.clone()),
        folder: Some(folder),
        limits: manifest.limits,
    }
}

/// Lists the folders of agents, by name. Names that begin with a dot are Writ's own.
fn list_names(agents: &Path) -> Result<Vec<String>, AgentError> {
    let entries = match fs::read_dir(agents) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => return Err(AgentError::Io { path: agents.to_owned(), source }),
    };
    let mut names = Vec::new();
    for entry in entries {
        let name = entry.map_err(AgentError::io(agents))?.file_name();
        let Some(name) = name.to_str() else {
            let path = agents.join(&name);
            return Err(AgentError::folder(&path, "its name is not UTF-8", "remove it"));
        };
        if name.starts_with('.') {
            continue;
        }
        if names.len() >= MAX_AGENTS {
            let what = format!("there are more than {MAX_AGENTS} agents in it");
            return Err(AgentError::folder(agents, what, "retire some with `writ agent retire`"));
        }
        names.push(name.to_owned());
    }
    names.sort();
    Ok(names)
}
