//! The real host of agents: `writ run` as a child with pipes. The agent itself gets no key; its launcher reads both from
//! files that only this user can read, and which are removed with the process.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use writ_policy::keys::KeyToken;
use writ_sandbox::host::{OwnChild, OwnProcess, spawn_piped};

use super::ports::{AgentHost, AgentProcess, PortFault, StartOrder, StartedAgent};

/// The launcher of agents as processes of this machine.
#[derive(Clone, Debug)]
pub struct LaunchedAgents {
    /// A folder of the home for key files; made with the mode 0700.
    pub folder: PathBuf,
    /// The variables of `writ run`: the home, above all.
    pub variables: BTreeMap<String, String>,
    /// Further flags of `writ run`: sockets and limits.
    pub flags: Vec<String>,
    /// The log for its standard error.
    pub log: PathBuf,
}

#[derive(Debug)]
struct LaunchedProcess {
    base: PathBuf,
    task: PathBuf,
    /// Ends before the files are removed.
    process: Option<OwnProcess>,
}

impl Drop for LaunchedProcess {
    fn drop(&mut self) {
        // The launcher may still be about to read the files.
        self.process = None;
        for path in [&self.base, &self.task] {
            if let Err(error) = fs::remove_file(path) {
                tracing::warn!(%error, "a key file of an agent could not be removed");
            }
        }
    }
}

impl AgentProcess for LaunchedProcess {
    fn replace_key(&mut self, task: &KeyToken) -> Result<(), PortFault> {
        // Renamed over the old one, so that a reader finds one key or the other, never half of one. The launcher reads its
        // keys once, at its start: until it reads them again, a renewed key does not reach an agent that runs.
        let fresh = self.task.with_extension("fresh");
        let written = write_key(&fresh, task).and_then(|()| fs::rename(&fresh, &self.task));
        written.map_err(|error| PortFault(format!("the key file: {error}")))
    }
}

impl LaunchedAgents {
    fn launch_agent(&self, order: &StartOrder) -> Result<StartedAgent, PortFault> {
        let failed = |error: io::Error| PortFault(format!("the key files: {error}"));
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.folder).map_err(failed)?;
        let file = |role: &str| self.folder.join(format!("{}-{role}.jwt", order.case));
        let (base, task) = (file("base"), file("task"));
        // What a killed router has left behind belongs to an earlier holder.
        for path in [&base, &task] {
            match fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
                Ok(()) | Err(_) => {}
            }
        }
        write_key(&base, &order.base).map_err(failed)?;
        write_key(&task, &order.task).map_err(failed)?;
        let mut process = LaunchedProcess { base, task, process: None };
        let path = |path: &Path| path.display().to_string();
        let mut args = vec!["run".to_owned(), "--base".to_owned(), path(&process.base)];
        args.extend(["--task".to_owned(), path(&process.task)]);
        args.extend(self.flags.iter().cloned());
        // Everything after it is the agent's, also what looks like a flag.
        args.push("--".to_owned());
        args.extend(order.command.iter().cloned());
        let child = spawn_piped(&args, &self.variables, &self.log);
        let OwnChild { input, output, process: running } =
            child.map_err(|error| PortFault(error.to_string()))?;
        process.process = Some(running);
        Ok(StartedAgent { input: Box::new(input), output: Box::new(output), process: Box::new(process) })
    }
}

impl AgentHost for LaunchedAgents {
    fn start_agent(&self, order: StartOrder) -> BoxFuture<'_, Result<StartedAgent, PortFault>> {
        async move { self.launch_agent(&order) }.boxed()
    }
}

fn write_key(path: &Path, key: &KeyToken) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(String::from(key.clone()).as_bytes())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn key_files_are_closed_to_others_replaced_whole_and_removed_at_the_end() {
        let folder = tempfile::tempdir().expect("a folder");
        let key = |text: &[u8]| KeyToken::from_bytes(text.to_vec());
        let (base, task) = (folder.path().join("c-base.jwt"), folder.path().join("c-task.jwt"));
        write_key(&base, &key(b"base")).expect("written");
        write_key(&task, &key(b"first")).expect("written");
        assert!(write_key(&task, &key(b"other")).is_err(), "nothing is written into a file that is there");
        let mut process = LaunchedProcess { base, task: task.clone(), process: None };
        process.replace_key(&key(b"second")).expect("replaced");
        let text = fs::read_to_string(&task).expect("reads");
        assert_eq!(text, String::from(key(b"second")));
        assert_eq!(fs::metadata(&task).expect("there").mode() & 0o777, 0o600);
        drop(process);
        assert_eq!(fs::read_dir(folder.path()).expect("reads").count(), 0);
    }
}
