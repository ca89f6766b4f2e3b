//! The agents of a router: those of its configuration, and the deployed ones with their folders.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::config::{FleetAgent, MAX_AGENTS, MAX_ROLES};
use super::error::CaseError;
use crate::agents::DeployedAgent;

/// The agents of a router, in the order of preference.
#[derive(Debug)]
pub(crate) struct AgentList {
    all: Arc<[FleetAgent]>,
    /// Those that are folders, by name.
    deployed: BTreeMap<String, Arc<DeployedAgent>>,
}

impl AgentList {
    /// Makes a list, within its bounds.
    pub(crate) fn check_list(
        agents: Vec<FleetAgent>,
        deployed: Vec<DeployedAgent>,
    ) -> Result<Self, CaseError> {
        let all: Vec<FleetAgent> =
            agents.into_iter().chain(deployed.iter().map(|one| one.agent.clone())).collect();
        // Each choice looks at all of them.
        if all.len() > MAX_AGENTS {
            return Err(CaseError::TooLarge { what: "agents of the fleet", limit: MAX_AGENTS });
        }
        if all.iter().any(|agent| agent.roles.len() > MAX_ROLES) {
            return Err(CaseError::TooLarge { what: "roles of an agent", limit: MAX_ROLES });
        }
        let deployed = deployed.into_iter().map(|one| (one.agent.name.clone(), Arc::new(one))).collect();
        Ok(Self { all: all.into(), deployed })
    }

    /// Returns all agents.
    pub(crate) fn all(&self) -> Arc<[FleetAgent]> {
        Arc::clone(&self.all)
    }

    /// Returns an agent by its name.
    pub(crate) fn find_agent(&self, name: &str) -> Option<FleetAgent> {
        self.all.iter().find(|agent| agent.name == name).cloned()
    }

    /// Returns the folder of an agent, if it was deployed as one.
    pub(crate) fn find_deployed(&self, name: &str) -> Option<Arc<DeployedAgent>> {
        self.deployed.get(name).cloned()
    }
}
