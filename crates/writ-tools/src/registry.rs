//! The registry of tools, and the set of them that one agent is offered.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use writ_inspect::prepared::Prepared;
use writ_inspect::redact::Redactor;
use writ_types::action::Action;
use writ_types::chat::{ToolCall, ToolOutcome, ToolSpec, ToolSpecs};
use writ_types::quarantine::Quarantine;
use writ_types::taint::{Label, Source, Taint};

use crate::def::{AgentRole, PathState, ToolContext, ToolDef};
use crate::error::ToolError;
use crate::foreign::{MAX_CALLED_NAME, MAX_TOLD_BYTES, called_all};
use crate::handoff::Handoff;
use crate::path::WorkPath;
use crate::question::{RESULT_ASK, ResultQuestion, TOOL};
use crate::render::Rendered;
use crate::source::{MAX_SOURCE_TOOLS, Tool, ToolSource, UnlistedReason, UnlistedTool, is_source_name};
use crate::tools::{CORE, OPTIONAL, ORACLE, OwnTools, SEARCHING, plan};

/// Every tool there is.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    /// The tools of all sources, by the names that models call.
    tools: BTreeMap<String, Arc<dyn Tool>>,
    /// Tools that their sources list and that are not offered.
    unlisted: Vec<UnlistedTool>,
    /// The rule of withholding for results of each of our own tools.
    kept: BTreeMap<String, Quarantine>,
    /// The descriptions last made for models; clones share them.
    told: Arc<Mutex<Option<ToolDescriptions>>>,
}

/// The descriptions of the tools with these names: their schemas are not made anew for each turn.
#[derive(Debug)]
struct ToolDescriptions {
    names: Vec<String>,
    specs: ToolSpecs,
}

/// The tools that a configuration allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AllowList {
    /// All of them.
    All,
    /// These.
    Only(BTreeSet<String>),
}

impl AllowList {
    fn allows(&self, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::Only(names) => names.contains(name),
        }
    }
}

/// The meaning of an empty list in a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EmptyMeans {
    /// Every tool: for the owner's own chat.
    All,
    /// No tool: for everybody else, who must write `"*"`.
    None,
}

/// Names in an allow-list that no tool has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no tool {}", .0.iter().map(|name| format!("'{}'", crate::error::shorten_name(name))).collect::<Vec<_>>().join(", "))]
pub struct UnknownTools(pub Vec<String>);

/// The tools that one agent is offered. A tool outside of it is refused before its arguments are read.
#[derive(Clone, Debug)]
pub struct Toolset<'a> {
    registry: &'a Registry,
    offered: BTreeMap<&'a str, &'a dyn Tool>,
}

impl Registry {
    /// The tools that every agent has.
    pub fn core_tools() -> Self {
        Self::default().with_own(&CORE)
    }

    /// Returns this registry with these tools of the harness, too.
    fn with_own(mut self, tools: &[&'static ToolDef]) -> Self {
        self.list_tools(&OwnTools(tools));
        self
    }

    /// Returns this registry with the tool that asks about withheld results.
    fn with_questions(self) -> Self {
        if self.tools.contains_key(TOOL) { self } else { self.with_own(&[&RESULT_ASK]) }
    }

    /// Returns this registry with the tools of these sources outside the harness, as they are now, in the place of those
    /// that it had. What cannot be offered is in [`Self::unlisted`].
    #[must_use]
    pub fn with_sources<'a>(mut self, sources: impl IntoIterator<Item = &'a dyn ToolSource>) -> Self {
        self.tools.retain(|_, tool| tool.origin().is_none());
        (self.unlisted, self.told) = (Vec::new(), Arc::default());
        let mut listed = BTreeSet::new();
        for source in sources {
            // A source without a name would be the harness.
            let name = source.origin().unwrap_or_default();
            if !is_source_name(name) {
                self.leave_out(name, None, UnlistedReason::SourceName);
            } else if !listed.insert(name.to_owned()) {
                self.leave_out(name, None, UnlistedReason::SameSource);
            } else {
                self.list_tools(source);
            }
        }
        // The tool that asks about withheld results is offered only where results can be withheld.
        let asks = self.tools.values().any(|tool| tool.quarantine() != Quarantine::Never);
        if asks { self.with_questions() } else { self }
    }

    /// Returns this registry without the foreign tools of these names. Tools of the harness stay.
    #[must_use]
    pub fn without_foreign(mut self, names: &BTreeSet<String>) -> Self {
        self.tools.retain(|name, tool| tool.origin().is_none() || !names.contains(name));
        self
    }

    /// Lists the tools of a source under names that differ.
    fn list_tools(&mut self, source: &dyn ToolSource) {
        let origin = source.origin();
        let mut found = source.tools();
        let tools: Vec<_> = found.by_ref().take(MAX_SOURCE_TOOLS).collect();
        if found.next().is_some() {
            self.leave_out(origin.unwrap_or_default(), None, UnlistedReason::TooMany);
        }
        // Names are made per source, since two of its tools can have the same plain name.
        let names = origin.map(|origin| called_all(origin, tools.iter().map(|tool| tool.name())));
        for tool in &tools {
            let name = names.as_ref().and_then(|names| names.get(tool.name()).cloned());
            let name = name.unwrap_or_else(|| tool.name().to_owned());
            let why = if tool.origin() != origin {
                UnlistedReason::OtherSource
            } else if let Entry::Vacant(place) = self.tools.entry(name) {
                place.insert(Arc::clone(tool));
                continue;
            } else {
                UnlistedReason::SameName
            };
            self.leave_out(origin.unwrap_or_default(), Some(tool.name()), why);
        }
    }

    fn leave_out(&mut self, source: &str, tool: Option<&str>, why: UnlistedReason) {
        self.unlisted.push(UnlistedTool { source: source.to_owned(), tool: tool.map(str::to_owned), why });
    }

    /// The tools that their sources list and that are not offered, each with the reason.
    pub fn unlisted(&self) -> &[UnlistedTool] {
        &self.unlisted
    }

    /// Returns the allowed foreign tools that are left out of requests for lack of room: models get
    /// [`MAX_TOLD_BYTES`] about such tools, the first in the order of their names. Tools that are not allowed
    /// take no room.
    pub fn without_room(&self, allow: &AllowList) -> Vec<&str> {
        let allowed: Vec<_> = self.named_tools().filter(|(name, _)| allow.allows(name)).collect();
        let told: BTreeSet<&str> = within_room(allowed.iter().copied()).map(|(name, _)| name).collect();
        allowed.into_iter().map(|(name, _)| name).filter(|name| !told.contains(name)).collect()
    }

    /// Returns the name of a tool, if it is one, in the form used for counts and reports.
    pub fn name_of(&self, name: &str) -> Option<&str> {
        self.tools.get_key_value(name).map(|(name, _)| name.as_str())
    }

    /// The same with `web_search`, for those who have a provider to ask.
    #[must_use]
    pub fn with_search(self) -> Self {
        self.with_own(&SEARCHING)
    }

    /// The same with `escalate`, for those who have a model to ask when others are at a loss.
    #[must_use]
    pub fn with_oracle(self) -> Self {
        self.with_own(&ORACLE)
    }

    /// Returns this registry with a rule of withholding for these of our own tools.
    #[must_use]
    pub fn with_quarantine(self, kept: BTreeMap<String, Quarantine>) -> Self {
        let asks = kept.values().any(|mode| *mode != Quarantine::Never);
        let registry = Self { kept, ..self };
        if asks { registry.with_questions() } else { registry }
    }

    /// Returns the rule of withholding for results of a tool.
    pub fn quarantine_of(&self, name: &str) -> Quarantine {
        let own = self.kept.get(name).copied();
        own.or_else(|| self.find_tool(name).map(Tool::quarantine)).unwrap_or_default()
    }

    /// Returns the servers with own descriptions of their tools that models read unverified.
    pub fn describing_servers(&self) -> impl Iterator<Item = &str> {
        self.tools.values().filter(|tool| tool.is_unvouched()).filter_map(|tool| tool.origin())
    }

    /// The tools of other programs that change something, as their owner has declared them.
    pub fn effect_tools(&self) -> impl Iterator<Item = &str> {
        self.named_tools().filter(|(_, tool)| tool.has_declared_effect()).map(|(name, _)| name)
    }

    /// The tools of other programs: the names that models call, and what their authors say of them.
    pub fn foreign_descriptions(&self) -> impl Iterator<Item = (String, String)> {
        let foreign = self.named_tools().filter(|(_, tool)| tool.origin().is_some());
        foreign.map(|(name, tool)| {
            let description = tool.spec(name).description;
            // The remark before it is the same for all tools of a source.
            let words = description.split_once("] ").map_or(description.as_str(), |(_, words)| words);
            (name.to_owned(), words.to_owned())
        })
    }

    /// Returns true if a name is that of any tool, also of one that is not configured, or could be that of a
    /// foreign one.
    pub fn knows_name(&self, name: &str) -> bool {
        // Names of foreign tools always have two underscores.
        let foreign = name.len() <= MAX_CALLED_NAME && name.contains("__");
        foreign
            || self.find_tool(name).is_some()
            || OPTIONAL.iter().any(|tool| tool.name == name)
            || name == TOOL
    }

    /// Returns true if a name is that of a tool of our own with results that can be withheld from models.
    pub fn can_be_kept(name: &str) -> bool {
        CORE.iter().chain(&OPTIONAL).any(|tool| tool.name == name && tool.can_be_kept())
    }

    /// The tool that models call by this name.
    pub fn find_tool(&self, name: &str) -> Option<&dyn Tool> {
        self.tools.get(name).map(AsRef::as_ref)
    }

    /// Every tool, sorted by the name that models call.
    pub fn tools(&self) -> impl Iterator<Item = &dyn Tool> {
        self.tools.values().map(AsRef::as_ref)
    }

    fn named_tools(&self) -> impl Iterator<Item = (&str, &dyn Tool)> {
        self.tools.iter().map(|(name, tool)| (name.as_str(), tool.as_ref()))
    }

    /// Reads an allow-list of a configuration; `"*"` stands for all tools.
    ///
    /// # Errors
    ///
    /// If it has names that no tool has. One that is not configured may be named.
    pub fn allow_list(&self, names: &[String], empty: EmptyMeans) -> Result<AllowList, UnknownTools> {
        if names.iter().any(|name| name == "*") || (names.is_empty() && empty == EmptyMeans::All) {
            return Ok(AllowList::All);
        }
        let unknown: Vec<_> = names.iter().filter(|name| !self.knows_name(name)).cloned().collect();
        if !unknown.is_empty() {
            return Err(UnknownTools(unknown));
        }
        Ok(AllowList::Only(names.iter().cloned().collect()))
    }

    /// Returns the tools offered to an agent of several roles under this allow-list.
    pub fn toolset_of(&self, roles: &[AgentRole], allow: &AllowList) -> Toolset<'_> {
        let may_use = |tool: &dyn Tool| roles.iter().any(|role| tool.roles().contains(role));
        let offered =
            self.named_tools().filter(|(name, tool)| may_use(*tool) && allow.allows(name)).collect();
        Toolset { registry: self, offered }
    }
}

/// Returns those of these tools that models receive: all of the harness, and foreign ones within
/// [`MAX_TOLD_BYTES`].
fn within_room<'a>(
    tools: impl Iterator<Item = (&'a str, &'a dyn Tool)>,
) -> impl Iterator<Item = (&'a str, &'a dyn Tool)> {
    let mut room = MAX_TOLD_BYTES;
    // A large tool does not end the list: a smaller one after it may still fit.
    tools.filter(move |(_, tool)| match room.checked_sub(tool.spec_room()) {
        Some(rest) => {
            room = rest;
            true
        }
        None => false,
    })
}

impl Toolset<'_> {
    /// Returns the descriptions of the tools for models: sorted by name, the same bytes every time.
    pub fn specs(&self) -> ToolSpecs {
        // Every holder leaves it whole, so poison is ignored.
        let mut told = self.registry.told.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(told) = &*told
            // The set of names decides: schemas of a name do not change within a registry.
            && told.names.iter().map(String::as_str).eq(self.names())
        {
            return told.specs.clone();
        }
        // The order of the names keeps the request's prefix equal, which providers cache.
        let tools = self.offered.iter().map(|(name, tool)| (*name, *tool));
        let specs: Vec<ToolSpec> = within_room(tools).map(|(name, tool)| tool.spec(name)).collect();
        let specs = ToolSpecs::from(specs);
        *told =
            Some(ToolDescriptions { names: self.names().map(str::to_owned).collect(), specs: specs.clone() });
        specs
    }

    /// The names of the tools: our own, sorted, then those of other programs, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> + '_ {
        let of =
            |is_own: bool| self.offered.iter().filter(move |(_, tool)| tool.origin().is_none() == is_own);
        of(true).chain(of(false)).map(|(name, _)| *name)
    }

    /// First step: the file that must be looked at before the call can be prepared, if any.
    ///
    /// # Errors
    ///
    /// If the tool is not offered or its arguments are wrong.
    pub fn needed_file(&self, call: &ToolCall) -> Result<Option<WorkPath>, ToolError> {
        let tool = self.require_tool(&call.name)?;
        tool.needed_file(&tool.read_arguments(&call.name, &call.arguments)?)
    }

    /// Returns the question of a call about a withheld result, if it is one. Questions are no actions of
    /// their own.
    ///
    /// # Errors
    ///
    /// If the tool is not offered or its arguments are wrong.
    pub fn read_question(&self, call: &ToolCall) -> Result<Option<ResultQuestion>, ToolError> {
        if call.name != TOOL {
            return Ok(None);
        }
        self.require_tool(&call.name)?;
        ResultQuestion::read_question(&call.arguments).map(Some)
    }

    /// Returns the request of a call to another agent of the harness, if it is one. Such requests are no actions of their own.
    ///
    /// # Errors
    ///
    /// If the tool is not offered or its arguments are wrong.
    pub fn read_handoff(&self, call: &ToolCall) -> Result<Option<Handoff>, ToolError> {
        if Handoff::is_handoff(&call.name) {
            self.require_tool(&call.name)?;
        }
        Handoff::read_handoff(&call.name, &call.arguments)
    }

    /// Second step: the action, ready for the door. `peeked` is what lies at the path of [`Self::needed_file`].
    ///
    /// # Errors
    ///
    /// If the tool is not offered, its arguments are wrong, or the file is not one that it can work on.
    pub fn prepare_call(
        &self,
        call: &ToolCall,
        peeked: Option<&PathState>,
        context: &ToolContext<'_>,
    ) -> Result<Prepared, ToolError> {
        let tool = self.require_tool(&call.name)?;
        let arguments = tool.read_arguments(&call.name, &call.arguments)?;
        let mut draft = tool.draft_call(&call.name, &arguments, peeked, context)?;
        if let Action::Plan(plan) = &mut draft.action {
            // Files are not looked at: what is in them when a step is done decides then.
            let prepare = |call: &ToolCall| self.prepare_call(call, Some(&PathState::Missing), context);
            plan.steps = plan::prepare_steps(call, &arguments, prepare)?;
        }
        Ok(Prepared {
            action: draft.action,
            agent: context.agent.to_owned(),
            session: context.session,
            turn: context.turn,
            turn_number: context.turn_number,
            call: Some(call.id.clone()),
            tool: call.name.clone(),
            sinks: draft.sinks,
            label: context.label.clone(),
            bindings: draft.bindings,
            idempotent: tool.is_idempotent(),
            intent: draft.intent,
        })
    }

    /// Renders the refusal of a call that could not be prepared. `label` is that of the arguments.
    pub fn render_refusal(&self, error: &ToolError, label: &Label, redactor: &Redactor) -> Rendered {
        let outcome = match error {
            ToolError::NotOffered { .. } => ToolOutcome::Denied,
            ToolError::Unknown { .. }
            | ToolError::TooLarge { .. }
            | ToolError::Invalid { .. }
            | ToolError::Foreign { .. }
            | ToolError::Target { .. }
            | ToolError::NoMatch { .. }
            | ToolError::Ambiguous { .. }
            | ToolError::NotPeeked { .. } => ToolOutcome::Failed,
        };
        let mut label = label.clone();
        // The message quotes a file, so it is as trusted as the file.
        if let Some(path) = error.quoted_file() {
            let source = Source { origin: "file_patch".into(), detail: path.to_owned(), entry: None };
            label.join(&Label::from_source(Taint::External, source).mark_inside());
        }
        Rendered { text: redactor.clean_text(error.model_message()), label, outcome }
    }

    /// The tool with this name, if it is offered.
    pub(crate) fn offered_tool(&self, name: &str) -> Option<&dyn Tool> {
        self.offered.get(name).copied()
    }

    fn require_tool(&self, name: &str) -> Result<&dyn Tool, ToolError> {
        if let Some(tool) = self.offered_tool(name) {
            return Ok(tool);
        }
        let offered = self.names().collect::<Vec<_>>().join(", ");
        let name = name.to_owned();
        // The reason differs: a tool that exists but is not offered is a denial, not a mistake.
        if self.registry.name_of(&name).is_some() {
            Err(ToolError::NotOffered { name, offered })
        } else {
            Err(ToolError::Unknown { name, offered })
        }
    }
}

#[cfg(test)]
mod tests;
