//! The folder of the demo: a home with operations, agents, the proxy's configuration and the shop.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;
use writ_testkit::fleet::{
    ADDRESS_AGENT, KnownPlaces, REFUND_AGENT, RULE, SENIOR_AGENT, shop, write_agents, write_operations,
};
use writ_testkit::mail_sink::MailSink;
use writ_types::error::Exit;

use crate::args::{AgentCommand, FleetCommand};
use crate::clock;
use crate::cmd::{agent, fleet};
use crate::context::Context;
use crate::failure::Failure;
use crate::home::make_folder;
use crate::host::OutputStream;

/// The folder of the demo, which is removed with it unless it is to stay.
pub(super) struct FleetPlace {
    root: PathBuf,
    keep: bool,
}

impl Drop for FleetPlace {
    fn drop(&mut self) {
        if !self.keep
            && let Err(error) = remove_tree(&self.root)
        {
            tracing::error!(%error, "the demo's folder could not be removed");
        }
    }
}

impl FleetPlace {
    pub(super) fn make_place(context: &Context) -> Result<Self, Failure> {
        let parent = context.env.path_of("TMPDIR").unwrap_or_else(|| PathBuf::from("/tmp"));
        // A random name, so that several demos can run at once.
        let root = parent.join(format!("writ-demo-{}", hex::encode(clock::random_bytes())));
        make_folder(&root).map_err(|error| {
            let text = format!("{} cannot be made: {error}", root.display());
            Failure::new(Exit::Config, "demo.folder", text, "set TMPDIR to a folder that you can write")
        })?;
        Ok(Self { root, keep: false })
    }

    /// Removes the folder.
    ///
    /// # Errors
    ///
    /// If something of it is left.
    pub(super) fn remove_folder(mut self) -> Result<(), Failure> {
        self.keep = true;
        remove_tree(&self.root).map_err(|error| {
            let text = format!("{} could not be removed: {error}", self.root.display());
            Failure::new(Exit::Blocked, "demo.left", text, "remove it by hand")
        })
    }

    /// Leaves the folder where it is.
    pub(super) const fn keep_folder(&mut self) {
        self.keep = true;
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    pub(super) fn home(&self) -> PathBuf {
        self.root.join("home")
    }

    /// A path in the proxy's folder.
    pub(super) fn proxy(&self, name: &str) -> PathBuf {
        self.home().join("proxy").join(name)
    }

    pub(super) fn shop(&self) -> PathBuf {
        self.proxy("shop.db")
    }

    /// The socket of the case router.
    pub(super) fn cases(&self) -> PathBuf {
        self.home().join("runtime/cases.sock")
    }

    /// Writes everything that the fleet needs: operations, the shop, the configuration, and the folders of the agents.
    pub(super) fn write_files(&self, context: &Context, sink: &MailSink) -> Result<(), Failure> {
        let failed = |error: io::Error| Failure::internal_error("writing the demo's fleet", error);
        let mail = sink.address().to_string();
        make_folder(&self.home().join("proxy"))?;
        write_operations(&context.home.operations()).map_err(failed)?;
        shop::make_shop(&self.shop()).map_err(|error| Failure::internal_error("making the shop", error))?;
        let targets = format!(
            "[targets.databases.shop]\nkind = \"sqlite\"\npath = \"shop.db\"\n\n\
             [targets.mail.outgoing]\nserver = \"{mail}\"\ntls = \"none\"\nfrom = \"Shop <shop@example.org>\"\n"
        );
        fs::write(self.proxy("proxy.toml"), targets).map_err(failed)?;
        // No HTTP server, so that the demo needs no port that another engine may have.
        let settings = format!("[server]\nenabled = false\n\n[fleet]\ncases = true\nrules = [\"{RULE}\"]\n");
        fs::write(context.home.config_file(), settings).map_err(failed)?;
        let (engine, proxy) = (context.load_config(None)?.database(), self.proxy("proxy.db"));
        // The hostile agent gets the true places: an attempt at a wrong path would prove nothing.
        let key = agent_key(context, REFUND_AGENT);
        let known = KnownPlaces { shop: &self.shop(), ledgers: [&engine, &proxy], key: &key, mail: &mail };
        write_agents(&self.drafts(), &known).map_err(failed)
    }

    /// The folders of the agents, as their authors hand them over.
    fn drafts(&self) -> PathBuf {
        self.root.join("agents")
    }

    /// Makes the token of the front end.
    pub(super) fn make_token(context: &Context) -> Result<String, Failure> {
        let shown =
            capture_output(context, |quiet| fleet::run_fleet(quiet, &FleetCommand::Token { new: true }))?;
        let shown: Value = serde_json::from_slice(&shown)
            .map_err(|error| Failure::internal_error("reading the token of the front end", error))?;
        let token = shown.get("token").and_then(Value::as_str).unwrap_or_default();
        Ok(token.to_owned())
    }

    /// Blesses and deploys the agents. The engine runs: it notes both.
    pub(super) fn deploy_agents(&self, context: &Context) -> Result<(), Failure> {
        for name in [REFUND_AGENT, SENIOR_AGENT, ADDRESS_AGENT] {
            let dir = self.drafts().join(name);
            // The commands that people run, so that the demo takes no way past their checks.
            let bless = AgentCommand::Bless { dir: dir.clone(), yes: true };
            let deploy = AgentCommand::Deploy { dir, revoke_earlier: false };
            for command in [bless, deploy] {
                capture_output(context, |quiet| agent::run_agents(quiet, &command))?;
            }
        }
        Ok(())
    }
}

/// Removes a folder of this user with any modes: the kernel makes the folders of overlays with none, and then only root
/// can look into them. Nothing that could exchange a folder for a link runs any more.
fn remove_tree(root: &Path) -> io::Result<()> {
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o700))?;
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            // Of the entry itself: a link is no folder.
            if entry.file_type()?.is_dir() {
                folders.push(entry.path());
            }
        }
    }
    fs::remove_dir_all(root)
}

/// Runs a command apart from the demo's output, and returns what it has printed.
fn capture_output(
    context: &Context,
    command: impl FnOnce(&Context) -> Result<(), Failure>,
) -> Result<Vec<u8>, Failure> {
    let printed = Arc::new(Mutex::new(Vec::new()));
    let mut quiet = Context::with_home(context.home.root(), context)?;
    quiet.out.json = true;
    quiet.out.quiet = true;
    quiet.out.streams.output = OutputStream::Writer(Arc::<Mutex<Vec<u8>>>::clone(&printed));
    // Commands have a runtime of their own.
    tokio::task::block_in_place(|| command(&quiet))?;
    drop(quiet);
    let printed = std::mem::take(&mut *printed.lock().unwrap_or_else(PoisonError::into_inner));
    Ok(printed)
}

/// The file with an agent's base key.
fn agent_key(context: &Context, agent: &str) -> PathBuf {
    context.home.agents().join(agent).join(".keys/base.jwt")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Root can look into everything, so that this shows most where it is not root's.
    #[test]
    fn a_folder_without_modes_is_removed_and_a_link_leads_nowhere() {
        let outside = tempfile::tempdir().expect("a folder");
        let other = outside.path().join("other");
        fs::create_dir(&other).expect("made");
        fs::set_permissions(&other, fs::Permissions::from_mode(0o500)).expect("set");
        let root = outside.path().join("demo");
        fs::create_dir_all(root.join("work/work")).expect("made");
        std::os::unix::fs::symlink(&other, root.join("link")).expect("linked");
        fs::set_permissions(root.join("work/work"), fs::Permissions::from_mode(0o000)).expect("set");
        remove_tree(&root).expect("removed");
        let mode = other.metadata().expect("it is there").permissions().mode();
        assert_eq!((root.exists(), mode & 0o777), (false, 0o500));
    }
}
