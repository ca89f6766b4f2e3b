//! The deployed agents of a home, which the router reads again when they change.

use std::path::PathBuf;

use tokio::task::spawn_blocking;
use writ_policy::keys::Verifier;

use super::router::CaseRouter;
use crate::agents::error::AgentError;
use crate::agents::{DeployStamp, DeployedAgent, DeployedAgents, read_deployed, stamp};

/// The folder of deployed agents, and what was last read of it.
#[derive(Debug)]
pub(crate) struct DeployedFolder {
    path: PathBuf,
    verifier: Verifier,
    read: Option<DeployStamp>,
}

impl DeployedFolder {
    /// Names the folder; it need not be there.
    pub(crate) const fn at(path: PathBuf, verifier: Verifier) -> Self {
        Self { path, verifier, read: None }
    }

    /// Reads the agents, if they have changed since the last time. What is wrong with one keeps no other from its work.
    pub(crate) async fn read_changed(&mut self) -> Option<Vec<DeployedAgent>> {
        let (path, verifier, before) = (self.path.clone(), self.verifier.clone(), self.read.clone());
        let read = spawn_blocking(move || {
            // The mark first: a change while the agents are read is seen the next time.
            let now = stamp(&path)?;
            if before.as_ref() == Some(&now) {
                return Ok(None);
            }
            Ok::<_, AgentError>(Some((now, read_deployed(&path, &verifier)?)))
        });
        match read.await {
            Ok(Ok(None)) => None,
            Ok(Ok(Some((now, DeployedAgents { agents, defects })))) => {
                for (agent, error) in defects {
                    tracing::warn!(agent, %error, "an agent is deployed that cannot be given cases");
                }
                self.read = Some(now);
                Some(agents)
            }
            Ok(Err(error)) => {
                tracing::error!(%error, "the deployed agents cannot be read; those of before go on");
                None
            }
            Err(error) => {
                tracing::error!(%error, "the deployed agents were not read to the end");
                None
            }
        }
    }

    /// Hands agents that have changed to a router.
    pub(crate) async fn refresh_agents(&mut self, router: &CaseRouter) {
        let Some(agents) = self.read_changed().await else { return };
        let names: Vec<&str> = agents.iter().map(|agent| agent.agent.name.as_str()).collect();
        tracing::info!(?names, "the deployed agents are read");
        if let Err(error) = router.replace_deployed(agents) {
            tracing::error!(%error, "the deployed agents cannot be given cases");
        }
    }
}
