//! `writ agent`: approves and manages agent folders. Each approved folder gets a base key that is valid only for its exact content.

use std::path::PathBuf;

use ed25519_dalek::VerifyingKey;
use writ_policy::keys::{KeyError, Verifier};
use writ_runtime::agent_records::{AgentHistory, AgentKeyring};
use writ_store::store::Store;
use writ_types::digest::Digest;

use crate::args::AgentCommand;
use crate::config::Config;
use crate::context::Context;
use crate::failure::Failure;
use crate::interrupt::block_on;
use crate::keyring::{KeyRole, public_keys};
use crate::ledger::open_to_read;

mod bless;

mod deploy;

mod show;

/// Runs `writ agent …`.
pub(crate) fn run_agents(context: &Context, command: &AgentCommand) -> Result<(), Failure> {
    let config = context.load_ready_config()?;
    let records = AgentRecords::open_home(context, &config)?;
    match command {
        AgentCommand::Bless { dir, yes } => bless::bless_agent(context, (&config, &records), dir, *yes),
        AgentCommand::Deploy { dir, revoke_earlier } => {
            deploy::deploy_agent(context, &records, dir, *revoke_earlier)
        }
        AgentCommand::List => show::list_agents(context, &records),
        AgentCommand::Inspect { name } => show::inspect_agent(context, &records, name),
        AgentCommand::Retire { name, reason } => deploy::retire_agent(context, name, reason),
        AgentCommand::History { name } => show::show_history(context, &records, name.as_deref()),
    }
}

/// The records of this home's agents: the ledger, and the public keys that check the signatures of agents' base keys.
struct AgentRecords {
    store: Store,
    verifier: Verifier,
    /// The folder of the agents.
    agents: PathBuf,
}

impl AgentRecords {
    fn open_home(context: &Context, config: &Config) -> Result<Self, Failure> {
        // Opened for reading only: changes are sent to the engine, the only process that writes the ledger.
        let store = open_to_read(context, config)?;
        let newest = |role| -> Result<VerifyingKey, Failure> {
            let keys = public_keys(&context.home, role)?;
            keys.first()
                .copied()
                .ok_or_else(|| Failure::internal_error("reading the public keys", KeyError::Signature))
        };
        // Only the newest keys count: approvals under an earlier root key are void.
        let (root, router) = (newest(KeyRole::Root)?, newest(KeyRole::Harness)?);
        let verifier =
            Verifier { root, router, installation: store.installation(), epoch: store.blocking().epoch()? };
        Ok(Self { store, verifier, agents: context.home.agents() })
    }

    /// Returns the root key and the epoch that an approval must have to be valid.
    fn key_ring(&self) -> AgentKeyring {
        AgentKeyring { root: Digest::of_bytes(self.verifier.root.as_bytes()), epoch: self.verifier.epoch }
    }

    fn read_history(&self, agent: Option<&str>) -> Result<AgentHistory, Failure> {
        block_on(async { Ok(AgentHistory::read_ledger(&self.store, agent).await?) })
    }

    fn is_revoked(&self, key: writ_types::id::KeyId) -> Result<bool, Failure> {
        Ok(self.store.blocking().is_revoked(&key.to_string())?)
    }
}
