//! The profile of an agent: the model, tools, texts and context of the turns that it runs.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use writ_agent::event::{SystemSource, SystemText};
use writ_models::ModelRole;
use writ_models::provider::{ModelsConfigError, Route, Routes};
use writ_policy::rules::RuleSource;
use writ_store::queue::{EXECUTOR, MAX_CONSUMER_BYTES, PROXY};
use writ_tools::def::AgentRole;
use writ_tools::registry::{AllowList, EmptyMeans, Registry};
use writ_types::entry::GatePoint;
use writ_types::interaction::ModeInputs;
use writ_types::taint::{Label, Taint};

use crate::config::RuntimeConfig;
use crate::error::DirectoryError;

/// The most agents of one engine: each has its own place in every look at the queue.
pub const MAX_AGENTS: usize = 64;
/// The consumer of messages for the planner.
pub const PLANNER: &str = "planner";
/// The tools of the planner: they read, and change nothing anywhere (SIL-221).
pub const RESEARCH_TOOLS: [&str; 4] = ["file_read", "memory_search", "search", "web_search"];
/// The text that tells the planner's model what to do.
const PLANNER_TEXT: &str = include_str!("planner/system.md");

/// The most named agents of one home.
pub const MAX_NAMED: usize = 100;

/// An agent that its owner has described: it answers in a session in place of the usual one, and may do at most as much as that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedAgent {
    /// Its name: the file's.
    pub name: String,
    /// Its purpose, in one line.
    pub about: String,
    /// Text for the model, behind the pinned texts of every agent.
    pub instructions: String,
    /// The model that is asked first, as `provider/name`; `None`: that of the role.
    pub model: Option<String>,
    /// Names of the tools that it may use; empty: all that the usual agent may use.
    pub tools: Vec<String>,
    /// The folders that it works on, with what lies in them; empty: any.
    pub folders: Vec<PathBuf>,
    /// Rules that narrow those of home and project.
    pub rules: Option<RuleSource>,
}

impl NamedAgent {
    /// Returns true if the agent works on a folder; on none at all each agent works.
    pub fn works_on(&self, project: Option<&Path>) -> bool {
        self.folders.is_empty()
            || project.is_none_or(|project| self.folders.iter().any(|folder| project.starts_with(folder)))
    }
}

/// The owner's choice of who answers in a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Answering {
    /// The named agent; `None`: the usual one.
    pub(crate) agent: Option<String>,
    /// The model, as `provider/name`; `None`: that of the agent.
    pub(crate) model: Option<String>,
}

/// A model that is asked before those of the role, as `provider/name`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FirstModel {
    /// The owner's description of the agent names it: of any known provider.
    Described(String),
    /// It was chosen for a session: it counts while the configuration names it.
    Chosen(String),
}

/// An agent, as a turn is run for it. Turns carry it, so that several agents share one engine.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentProfile {
    /// The name under which the queue holds its messages. One turn runs at a time for a consumer and session.
    pub consumer: String,
    /// The agent's name in keys, plans and the ledger.
    pub agent: String,
    /// The roles that give the agent its tools.
    pub roles: Vec<AgentRole>,
    /// The role that selects the models for the agent's turns.
    pub model: ModelRole,
    /// Names of the tools that it may use; empty: all of its roles.
    pub tools: Vec<String>,
    /// The pinned texts of its system zone.
    pub system: Vec<SystemText>,
    /// The points at which gates judge its texts.
    pub gates: Vec<GatePoint>,
    /// The name of its context profile: how the window is shared among the zones.
    pub context: String,
    /// Set if a person reads its answers while they are written.
    pub is_shown: bool,
    /// Set if its turns are steps of work items: they know nothing of earlier messages, and what they change waits in
    /// the work folder until the checks have passed.
    pub is_step: bool,
    /// The model that is asked first; `None`: that of the role.
    pub choice: Option<FirstModel>,
    /// The settings of owner and plan for how its turns deal with the person.
    pub modes: ModeInputs,
}

impl AgentProfile {
    /// Returns the profile of the one agent of a session, which talks to the person and does the work.
    pub fn executor(config: &RuntimeConfig) -> Self {
        Self {
            consumer: EXECUTOR.to_owned(),
            agent: config.agent.clone(),
            roles: vec![AgentRole::Proxy, AgentRole::Executor],
            model: ModelRole::Executor,
            tools: config.tools.clone(),
            system: config.system.clone(),
            gates: vec![GatePoint::Input, GatePoint::Output],
            context: config.begun.agent_config.context.default_profile.clone(),
            is_shown: true,
            is_step: false,
            choice: None,
            modes: ModeInputs { initiative: config.initiative, ..ModeInputs::default() },
        }
    }

    /// Returns the profile of a lane in which steps of work items run: the executor without a conversation.
    pub fn step_lane(config: &RuntimeConfig, lane: usize) -> Self {
        Self {
            consumer: lane_name(lane),
            roles: vec![AgentRole::Executor],
            gates: vec![GatePoint::Output],
            is_shown: false,
            is_step: true,
            ..Self::executor(config)
        }
    }

    /// Returns the profile of the planner: it takes requests of agents and of the harness, only reads, and writes a plan.
    pub fn planner(config: &RuntimeConfig) -> Self {
        let own = SystemText {
            source: SystemSource::Constitution,
            text: PLANNER_TEXT.trim().to_owned(),
            label: Label::new(Taint::Owner),
        };
        // The owner's rules hold for plans, too.
        let rules = config.system.iter().filter(|text| text.source == SystemSource::Rules).cloned();
        Self {
            consumer: PLANNER.to_owned(),
            agent: config.agent.clone(),
            roles: vec![AgentRole::Planner],
            model: ModelRole::Planner,
            tools: RESEARCH_TOOLS.map(str::to_owned).to_vec(),
            system: [own].into_iter().chain(rules).collect(),
            gates: Vec::new(),
            context: config.begun.agent_config.context.default_profile.clone(),
            is_shown: false,
            is_step: false,
            choice: None,
            modes: ModeInputs { initiative: config.initiative, ..ModeInputs::default() },
        }
    }

    /// Returns true if its turns answer with plans.
    pub(crate) fn is_planner(&self) -> bool {
        self.consumer == PLANNER
    }

    /// Returns the profile of a named agent, which answers in the place of this one. Keys, plans and the ledger know it by the
    /// same name: it acts with what this one was given, or less.
    fn named(&self, agent: &NamedAgent) -> Self {
        let mut system = self.system.clone();
        if !agent.instructions.trim().is_empty() {
            let text = format!("You are the agent '{}'. {}", agent.name, agent.instructions.trim());
            let (source, label) = (SystemSource::Rules, Label::new(Taint::Owner));
            system.push(SystemText { source, text, label });
        }
        let tools =
            if agent.tools.is_empty() { self.tools.clone() } else { self.narrowed_tools(&agent.tools) };
        Self { tools, system, choice: agent.model.clone().map(FirstModel::Described), ..self.clone() }
    }

    /// Returns those of some tools that it may use itself: a list never gives more than its owner has allowed.
    pub(crate) fn narrowed_tools(&self, tools: &[String]) -> Vec<String> {
        let is_all = |tools: &[String]| tools.iter().any(|tool| tool == "*");
        if is_all(tools) {
            return self.tools.clone();
        }
        let own = &self.tools;
        let both = |tool: &&String| own.is_empty() || is_all(own) || own.contains(tool);
        let narrowed: Vec<String> = tools.iter().filter(both).cloned().collect();
        // An empty list would allow everything; no tool has this name.
        if narrowed.is_empty() { vec!["-".to_owned()] } else { narrowed }
    }

    /// Returns the route to the model that is asked first.
    ///
    /// # Errors
    ///
    /// If the agent names a model of an unknown provider, or the chosen one is not configured any more.
    pub(crate) fn first_route(&self, routes: &Routes) -> Result<Route, ModelsConfigError> {
        match &self.choice {
            None => Ok(routes.route(self.model).clone()),
            Some(FirstModel::Described(model)) => routes.find(model),
            Some(FirstModel::Chosen(model)) => routes.find_offered(model),
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

/// The name of the consumer of a lane. Steps of one item that run together have lanes of their own.
pub(crate) fn lane_name(lane: usize) -> String {
    format!("work-{lane}")
}

/// The agents of an engine. Each has a consumer of its own.
#[derive(Debug)]
pub(crate) struct Profiles {
    /// The agent that answers people.
    executor: Arc<AgentProfile>,
    others: Vec<Arc<AgentProfile>>,
    /// The lanes of work items. Nothing waits for them before the first item begins.
    lanes: Vec<Arc<AgentProfile>>,
    /// The agents that answer people in its place, by name.
    named: BTreeMap<String, Arc<AgentProfile>>,
}

impl Profiles {
    /// Puts agents beside the one that answers people.
    ///
    /// # Errors
    ///
    /// If there are too many, or two have the same consumer.
    pub(crate) fn new(
        executor: AgentProfile,
        others: Vec<AgentProfile>,
        lanes: Vec<AgentProfile>,
    ) -> Result<Self, DirectoryError> {
        if others.len() >= MAX_AGENTS {
            return Err(DirectoryError::Agents(format!("{} agents at most", MAX_AGENTS)));
        }
        let mut taken = BTreeSet::from([executor.consumer.as_str(), PROXY]);
        for other in others.iter().chain(&lanes) {
            let consumer = other.consumer.as_str();
            if consumer.is_empty() || consumer.len() > MAX_CONSUMER_BYTES || !taken.insert(consumer) {
                return Err(DirectoryError::Agents(format!(
                    "the agent '{}' needs a consumer of its own",
                    other.agent
                )));
            }
        }
        let shared = |profiles: Vec<AgentProfile>| profiles.into_iter().map(Arc::new).collect();
        let (others, lanes, executor) = (shared(others), shared(lanes), Arc::new(executor));
        Ok(Self { executor, others, lanes, named: BTreeMap::new() })
    }

    /// Adds agents that answer people in the place of the usual one.
    pub(crate) fn with_named(mut self, agents: &[NamedAgent]) -> Self {
        let profile = |agent: &NamedAgent| (agent.name.clone(), Arc::new(self.executor.named(agent)));
        self.named = agents.iter().take(MAX_NAMED).map(profile).collect();
        self
    }

    /// Returns the agent that answers a consumer's message in a session: the named one where the session has one, with
    /// the model that was chosen for the session.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub(crate) fn find_for(
        &self,
        consumer: &str,
        answering: &Answering,
    ) -> Result<Arc<AgentProfile>, DirectoryError> {
        if consumer != self.executor.consumer {
            let found = self.find_consumer(consumer)?;
            // Of work items alone: the planner's model is chosen for its role.
            let model = answering.model.clone().filter(|_| found.is_step);
            let Some(model) = model else { return Ok(Arc::clone(found)) };
            return Ok(Arc::new(AgentProfile {
                choice: Some(FirstModel::Chosen(model)),
                ..found.as_ref().clone()
            }));
        }
        let found = match &answering.agent {
            // A removed one has no stand-in: the usual agent may do more than it might.
            Some(name) => self.named.get(name).ok_or_else(|| DirectoryError::NoAgent(name.clone()))?,
            None => &self.executor,
        };
        let Some(model) = answering.model.clone() else { return Ok(Arc::clone(found)) };
        Ok(Arc::new(AgentProfile { choice: Some(FirstModel::Chosen(model)), ..found.as_ref().clone() }))
    }

    /// Returns the agent that answers people in a session.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub(crate) fn find_answering(&self, answering: &Answering) -> Result<Arc<AgentProfile>, DirectoryError> {
        self.find_for(&self.executor.consumer, answering)
    }

    /// Returns the agent that answers people.
    pub(crate) const fn executor(&self) -> &Arc<AgentProfile> {
        &self.executor
    }

    /// Returns all agents, the one that answers people first; those of work items at the end, if they are wanted.
    pub(crate) fn iter(&self, with_work: bool) -> impl Iterator<Item = &Arc<AgentProfile>> {
        let lanes = if with_work { self.lanes.as_slice() } else { &[] };
        std::iter::once(&self.executor).chain(&self.others).chain(lanes)
    }

    /// Returns the agent of a consumer.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub(crate) fn find_consumer(&self, consumer: &str) -> Result<&Arc<AgentProfile>, DirectoryError> {
        let found = self.iter(true).find(|profile| profile.consumer == consumer);
        found.ok_or_else(|| DirectoryError::NoAgent(consumer.chars().take(MAX_CONSUMER_BYTES).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(consumer: &str) -> AgentProfile {
        AgentProfile {
            consumer: consumer.to_owned(),
            agent: format!("agent of {consumer}"),
            roles: Vec::new(),
            model: ModelRole::Executor,
            tools: Vec::new(),
            system: Vec::new(),
            gates: Vec::new(),
            context: String::new(),
            is_shown: false,
            is_step: false,
            choice: None,
            modes: ModeInputs::default(),
        }
    }

    /// The tools of a step or of a named agent are those that the owner allows too; of a list that has none, nothing is left.
    #[test]
    fn a_list_of_tools_narrows_and_never_widens() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let narrowed = |own: &[&str], wanted: &[&str]| {
            AgentProfile { tools: names(own), ..profile("a") }.narrowed_tools(&names(wanted))
        };
        assert_eq!(narrowed(&["a", "b"], &["b", "c"]), names(&["b"]));
        assert_eq!(narrowed(&[], &["b", "c"]), names(&["b", "c"]), "no list: all of its roles");
        assert_eq!(narrowed(&["*"], &["b"]), names(&["b"]));
        assert_eq!(narrowed(&["a"], &["*"]), names(&["a"]));
        assert_eq!(narrowed(&["a"], &["b"]), names(&["-"]), "not all of them");
    }

    #[test]
    fn each_agent_has_a_consumer_of_its_own_and_is_found_by_it() {
        let profiles = |others: &[&str]| {
            let others = others.iter().map(|consumer| profile(consumer)).collect();
            Profiles::new(profile(EXECUTOR), others, vec![profile("work-0")])
        };
        let two = profiles(&["reviewer"]).expect("they differ");
        let found = two.find_consumer("reviewer").map(|found| found.agent.clone());
        assert_eq!(found.expect("is there"), "agent of reviewer");
        assert!(
            matches!(two.find_consumer("nobody"), Err(DirectoryError::NoAgent(name)) if name == "nobody")
        );
        for wrong in [
            &[EXECUTOR][..],
            &[PROXY],
            &["work-0"],
            &["a", "a"],
            &[""],
            &[&"a".repeat(MAX_CONSUMER_BYTES + 1)],
        ] {
            assert!(matches!(profiles(wrong), Err(DirectoryError::Agents(_))), "{wrong:?}");
        }
        let many: Vec<String> = (1..=MAX_AGENTS).map(|n| n.to_string()).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(profiles(&many).is_err() && profiles(&many[1..]).is_ok());
    }
}
