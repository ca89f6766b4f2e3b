//! The registry of tools, and the set of them that one agent is offered.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;
use writ_inspect::prepared::Prepared;
use writ_inspect::redact::Redactor;
use writ_types::action::Action;
use writ_types::chat::{ToolCall, ToolOutcome, ToolSpec, ToolSpecs};
use writ_types::quarantine::Quarantine;
use writ_types::taint::{Label, Source, Taint};

use crate::arguments::{check_arguments, fits_schema};
use crate::def::{AgentRole, PathState, ToolContext, ToolDef};
use crate::error::ToolError;
use crate::foreign::{ForeignRow, MAX_CALLED_NAME, MAX_TOLD_BYTES, called_all};
use crate::lenient::{coerce_value, with_nulls};
use crate::path::WorkPath;
use crate::question::{RESULT_ASK, ResultQuestion, TOOL};
use crate::render::Rendered;
use crate::tools::{CORE, OPTIONAL, plan};

/// Every tool there is.
#[derive(Clone, Debug)]
pub struct Registry {
    tools: BTreeMap<&'static str, &'static ToolDef>,
    /// Tools of other programs, by the names that models call.
    foreign: BTreeMap<String, Arc<ForeignRow>>,
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
    offered: BTreeMap<&'static str, &'static ToolDef>,
    foreign: BTreeMap<&'a str, &'a ForeignRow>,
}

impl Registry {
    /// The tools that every agent has.
    pub fn core_tools() -> Self {
        let tools = CORE.iter().map(|tool| (tool.name, *tool)).collect();
        Self { tools, foreign: BTreeMap::new(), kept: BTreeMap::new(), told: Arc::default() }
    }

    /// The same with these tools of other programs in the place of those that it had. Two that would be called the same get
    /// names that differ.
    #[must_use]
    pub fn with_foreign(self, rows: impl IntoIterator<Item = ForeignRow>) -> Self {
        let mut by_server: BTreeMap<String, Vec<ForeignRow>> = BTreeMap::new();
        for row in rows {
            by_server.entry(row.known.server.clone()).or_default().push(row);
        }
        let mut foreign = BTreeMap::new();
        for (server, rows) in by_server {
            let tools: Vec<String> = rows.iter().map(|row| row.known.tool.clone()).collect();
            // Names are made per server, since two of its tools can have the same plain name.
            let names = called_all(&server, tools.iter().map(String::as_str));
            for mut row in rows {
                if let Some(name) = names.get(row.known.tool.as_str()) {
                    row.name.clone_from(name);
                }
                foreign.insert(row.name.clone(), Arc::new(row));
            }
        }
        let is_kept = |row: &Arc<ForeignRow>| row.known.quarantine != Quarantine::Never;
        // The tool that asks about withheld results is offered only where results can be withheld.
        let asks = foreign.values().any(is_kept);
        let registry = Self { foreign, told: Arc::default(), ..self };
        if asks { registry.with_questions() } else { registry }
    }

    /// Returns the allowed foreign tools that are left out of requests for lack of room: models get
    /// [`MAX_TOLD_BYTES`] about such tools, the first in the order of their names. Tools that are not allowed
    /// take no room.
    pub fn without_room(&self, allow: &AllowList) -> Vec<&str> {
        let rows = self.foreign.iter().map(|(name, row)| (name.as_str(), row.as_ref()));
        let allowed: Vec<_> = rows.filter(|(name, _)| allow.allows(name)).collect();
        let told: BTreeSet<&str> = within_room(allowed.iter().copied()).map(|(name, _)| name).collect();
        allowed.into_iter().map(|(name, _)| name).filter(|name| !told.contains(name)).collect()
    }

    /// The tool of another program with this name.
    pub fn foreign_tool(&self, name: &str) -> Option<&ForeignRow> {
        self.foreign.get(name).map(AsRef::as_ref)
    }

    /// Returns the name of a tool, if it is one, in the form used for counts and reports.
    pub fn name_of(&self, name: &str) -> Option<&str> {
        let own = self.find_tool(name).map(|tool| tool.name);
        own.or_else(|| self.foreign_tool(name).map(|row| row.name.as_str()))
    }

    /// The same with `web_search`, for those who have a provider to ask.
    #[must_use]
    pub fn with_search(mut self) -> Self {
        self.tools.extend(OPTIONAL.iter().map(|tool| (tool.name, *tool)));
        self
    }

    /// Returns this registry with a rule of withholding for these of our own tools.
    #[must_use]
    pub fn with_quarantine(self, kept: BTreeMap<String, Quarantine>) -> Self {
        let asks = kept.values().any(|mode| *mode != Quarantine::Never);
        let registry = Self { kept, ..self };
        if asks { registry.with_questions() } else { registry }
    }

    /// Returns this registry with the tool that asks about withheld results.
    fn with_questions(mut self) -> Self {
        self.tools.insert(RESULT_ASK.name, &RESULT_ASK);
        self
    }

    /// Returns the rule of withholding for results of a tool.
    pub fn quarantine_of(&self, name: &str) -> Quarantine {
        let own = self.kept.get(name).copied();
        own.or_else(|| self.foreign_tool(name).map(|row| row.known.quarantine)).unwrap_or_default()
    }

    /// Returns true if withheld values may stand in the arguments of a tool.
    pub fn passes_on(&self, name: &str) -> bool {
        self.foreign_tool(name).is_some() || self.find_tool(name).is_some_and(ToolDef::passes_on)
    }

    /// Returns the servers with own descriptions of their tools that models read unverified.
    pub fn describing_servers(&self) -> impl Iterator<Item = &str> {
        let rows = self.foreign.values().filter(|row| row.known.taint == Taint::External);
        rows.map(|row| row.known.server.as_str())
    }

    /// The tools of other programs that change something, as their owner has declared them.
    pub fn effect_tools(&self) -> impl Iterator<Item = &str> {
        let rows = self.foreign.iter().filter(|(_, row)| row.known.effect && row.known.sinks.is_some());
        rows.map(|(name, _)| name.as_str())
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

    /// The tool with this name.
    pub fn find_tool(&self, name: &str) -> Option<&'static ToolDef> {
        self.tools.get(name).copied()
    }

    /// Every tool, sorted by name.
    pub fn tools(&self) -> impl Iterator<Item = &'static ToolDef> + '_ {
        self.tools.values().copied()
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

    /// Returns the tools offered to an agent of this role under this allow-list.
    pub fn toolset(&self, role: AgentRole, allow: &AllowList) -> Toolset<'_> {
        self.toolset_of(&[role], allow)
    }

    /// Returns the tools offered to an agent of several roles under this allow-list.
    pub fn toolset_of(&self, roles: &[AgentRole], allow: &AllowList) -> Toolset<'_> {
        let offered = self
            .tools
            .iter()
            .filter(|(name, tool)| roles.iter().any(|role| tool.roles.contains(role)) && allow.allows(name))
            .map(|(name, tool)| (*name, *tool))
            .collect();
        // Foreign tools are for the agent that works: planners and verifiers get none.
        let works = roles.contains(&AgentRole::Executor);
        let foreign = self
            .foreign
            .iter()
            .filter(|(name, _)| works && allow.allows(name))
            .map(|(name, row)| (name.as_str(), row.as_ref()))
            .collect();
        Toolset { registry: self, offered, foreign }
    }

    /// Returns the descriptions of the tools for models: sorted by name, the same bytes every time.
    pub fn role_specs(&self, role: AgentRole, allow: &AllowList) -> ToolSpecs {
        self.toolset(role, allow).specs()
    }
}

/// The arguments that a tool takes.
pub(crate) enum CallArguments<'a> {
    /// By the schema of a tool of our own.
    Own(Value),
    /// Those of a tool of another program.
    Foreign(&'a ForeignRow),
}

impl CallArguments<'_> {
    /// Their schema.
    pub(crate) fn schema(&self) -> &Value {
        match self {
            Self::Own(schema) => schema,
            Self::Foreign(row) => row.expanded_schema(),
        }
    }

    /// Returns true if these are such.
    pub(crate) fn fits_arguments(&self, arguments: &Value) -> bool {
        match self {
            Self::Own(schema) => fits_schema(schema, arguments),
            Self::Foreign(row) => row.checked_arguments(arguments).is_ok(),
        }
    }

    /// These in the form that they clearly mean.
    pub(crate) fn coerce_arguments(&self, arguments: &Value) -> Value {
        let coerced = coerce_value(self.schema(), arguments);
        match self {
            Self::Own(_) => coerced,
            Self::Foreign(row) => with_nulls(row.expanded_schema(), coerced),
        }
    }
}

/// Returns those of these foreign tools that models receive, within [`MAX_TOLD_BYTES`].
fn within_room<'a>(
    rows: impl Iterator<Item = (&'a str, &'a ForeignRow)>,
) -> impl Iterator<Item = (&'a str, &'a ForeignRow)> {
    let mut room = MAX_TOLD_BYTES;
    // A large tool does not end the list: a smaller one after it may still fit.
    rows.filter(move |(_, row)| match room.checked_sub(row.told_bytes()) {
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
        let spec = |tool: &&'static ToolDef| ToolSpec {
            name: tool.name.to_owned(),
            description: tool.description.to_owned(),
            schema: tool.told_schema(),
        };
        let mut specs: Vec<_> = self.offered.values().map(spec).collect();
        let rows = self.foreign.iter().map(|(name, row)| (*name, *row));
        specs.extend(within_room(rows).map(|(_, row)| row.tool_spec()));
        // A fixed order keeps the request's prefix equal, which providers cache.
        specs.sort_by(|a, b| a.name.cmp(&b.name));
        let specs = ToolSpecs::from(specs);
        *told =
            Some(ToolDescriptions { names: self.names().map(str::to_owned).collect(), specs: specs.clone() });
        specs
    }

    /// The names of the tools: our own, sorted, then those of other programs, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> + '_ {
        self.offered.keys().copied().chain(self.foreign.keys().copied())
    }

    /// First step: the file that must be looked at before the call can be prepared, if any.
    ///
    /// # Errors
    ///
    /// If the tool is not offered or its arguments are wrong.
    pub fn needed_file(&self, call: &ToolCall) -> Result<Option<WorkPath>, ToolError> {
        if let Some(row) = self.foreign.get(call.name.as_str()) {
            // Files are not needed for foreign calls, but errors in the arguments are reported before the
            // gates.
            return row.checked_arguments(&call.arguments).map(|_| None);
        }
        let tool = self.offered_tool(&call.name)?;
        (tool.needs)(&check_arguments(tool, &call.arguments)?)
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
        self.offered_tool(&call.name)?;
        ResultQuestion::read_question(&call.arguments).map(Some)
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
        if let Some(row) = self.foreign.get(call.name.as_str()) {
            return row.prepare_call(call, context);
        }
        let tool = self.offered_tool(&call.name)?;
        let arguments = check_arguments(tool, &call.arguments)?;
        let mut draft = (tool.prepare)(&arguments, peeked, context)?;
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
            tool: tool.name.to_owned(),
            sinks: draft.sinks,
            label: context.label.clone(),
            bindings: draft.bindings,
            idempotent: tool.idempotent,
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

    /// The arguments of a tool with this name, if there is one.
    pub(crate) fn arguments_of(&self, name: &str) -> Option<CallArguments<'_>> {
        if let Some(row) = self.foreign.get(name) {
            return Some(CallArguments::Foreign(row));
        }
        self.offered.get(name).map(|tool| CallArguments::Own(tool.told_schema()))
    }

    fn offered_tool(&self, name: &str) -> Result<&'static ToolDef, ToolError> {
        if let Some(tool) = self.offered.get(name) {
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
