//! The profile of an agent: the model, tools, texts and context of the turns that it runs.

use writ_agent::event::SystemText;
use writ_models::ModelRole;
use writ_tools::def::AgentRole;
use writ_tools::registry::{AllowList, EmptyMeans, Registry};
use writ_types::entry::GatePoint;

use crate::config::RuntimeConfig;

/// An agent, as a turn is run for it. Turns carry it, so that several agents share one engine.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AgentProfile {
    /// The agent's name in keys, plans and the ledger.
    pub(crate) agent: String,
    /// The roles that give the agent its tools.
    pub(crate) roles: Vec<AgentRole>,
    /// The role that selects the models for the agent's turns.
    pub(crate) model: ModelRole,
    /// Names of the tools that it may use; empty: all of its roles.
    pub(crate) tools: Vec<String>,
    /// The pinned texts of its system zone.
    pub(crate) system: Vec<SystemText>,
    /// The points at which gates judge its texts.
    pub(crate) gates: Vec<GatePoint>,
    /// The name of its context profile: how the window is shared among the zones.
    pub(crate) context: String,
    /// Set if a person reads its answers while they are written.
    pub(crate) is_shown: bool,
}

impl AgentProfile {
    /// Returns the profile of the one agent of a session, which talks to the person and does the work.
    pub(crate) fn executor(config: &RuntimeConfig) -> Self {
        Self {
            agent: config.agent.clone(),
            roles: vec![AgentRole::Proxy, AgentRole::Executor],
            model: ModelRole::Executor,
            tools: config.tools.clone(),
            system: config.system.clone(),
            gates: vec![GatePoint::Input, GatePoint::Output],
            context: config.agent_config.context.default_profile.clone(),
            is_shown: true,
        }
    }

    /// Returns the tools of a registry that it may use.
    pub(crate) fn allow_list(&self, tools: &Registry) -> AllowList {
        // A list of which nothing is left allows nothing.
        tools.allow_list(&self.tools, EmptyMeans::All).unwrap_or(AllowList::Only(Default::default()))
    }

    /// Returns true if gates judge its texts at a point.
    pub(crate) fn is_judged_at(&self, point: GatePoint) -> bool {
        self.gates.contains(&point)
    }
}
