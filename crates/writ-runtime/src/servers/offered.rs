//! The tools of servers that are offered, by what their owner says and has pinned.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use writ_mcp::config::{Readers, ServerName};
use writ_mcp::definition::Definition;
use writ_models::schema::Dialect;
use writ_tools::foreign::{ForeignError, ForeignRow, ForeignTool, ServerTools};
use writ_tools::registry::Registry;
use writ_tools::source::ToolSource;
use writ_types::error::{Exit, Report};
use writ_types::taint::Taint;

use super::{Server, ServerSource};

/// A trusted tool that cannot be offered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnofferedTool {
    pub(crate) server: ServerName,
    /// Its name with the server.
    pub(crate) tool: String,
    /// In our own words.
    pub(crate) why: String,
}

/// The servers by their names.
pub(super) fn by_name(servers: Vec<Server>) -> BTreeMap<ServerName, Arc<Server>> {
    servers.into_iter().map(|server| (server.name.clone(), Arc::new(server))).collect()
}

/// Our own tools with those of the owner's servers that are trusted, and what of these cannot be offered.
///
/// # Errors
///
/// If an owner has declared arguments that a tool does not have: what was meant is not known then.
pub(super) fn registry(
    own: &Registry,
    servers: &BTreeMap<ServerName, Arc<Server>>,
    drifted: &BTreeSet<(ServerName, String)>,
) -> Result<(Registry, Vec<UnofferedTool>), Report> {
    let (mut sources, mut left_out) = (Vec::new(), Vec::new());
    for server in servers.values() {
        let mut offered = ServerTools::new(server.name.as_str());
        for tool in server.pins.tools.values() {
            let is_drifted = drifted.contains(&(server.name.clone(), tool.name.clone()));
            if !server.spec.tool_rule(&tool.name).allow || is_drifted {
                continue;
            }
            match row(server, tool) {
                Ok(row) => {
                    left_out.extend(unsent(server, tool));
                    offered.add_row(row);
                }
                Err(error @ ForeignError::Declared { .. }) => return Err(unusable(&error)),
                Err(
                    error @ (ForeignError::Unpinned(_) | ForeignError::Schema { .. } | ForeignError::Then(_)),
                ) => left_out.push(UnofferedTool {
                    server: server.name.clone(),
                    tool: tool.name.clone(),
                    why: error.to_string(),
                }),
            }
        }
        sources.push(offered);
    }
    let sources = sources.iter().map(|source| source as &dyn ToolSource);
    Ok((own.clone().with_sources(sources), left_out))
}

/// The providers that a tool cannot be sent to, each with why; all others are.
fn unsent(server: &Server, tool: &Definition) -> Vec<UnofferedTool> {
    let providers = [
        (Dialect::OpenAi, "OpenAI's format"),
        (Dialect::Gemini, "Gemini"),
        (Dialect::Anthropic, "Anthropic"),
    ];
    let failed = providers.into_iter().filter_map(|(dialect, provider)| {
        let error = dialect.adapt_schema(&tool.schema).err()?;
        let name = writ_types::visible::escape_line(&tool.name).into_owned();
        let why = format!("'{name}' is not offered to models of {provider}: {error}");
        Some(UnofferedTool { server: server.name.clone(), tool: tool.name.clone(), why })
    });
    failed.collect()
}

fn unusable(error: &ForeignError) -> Report {
    Report::new(Exit::Config, "mcp.tool", error.to_string())
        .with_hint("leave it out with allow = false in the server's file, or remove the server")
}

/// Checks that an engine with these tools of its own can begin with what its owner has named.
///
/// # Errors
///
/// If any of it cannot stand.
pub fn check(source: &dyn ServerSource, own: &Registry) -> Result<(), Report> {
    registry(own, &by_name(source.load()?), &BTreeSet::new()).map(drop)
}

/// The row of a pinned tool.
///
/// # Errors
///
/// If it cannot be offered.
pub fn row(server: &Server, tool: &Definition) -> Result<ForeignRow, ForeignError> {
    let rule = server.spec.tool_rule(&tool.name);
    let not_canonical = || ForeignError::Unpinned(tool.name.clone());
    ForeignRow::from_tool(ForeignTool {
        server: server.name.to_string(),
        tool: tool.name.clone(),
        host: server.spec.url_host(),
        description: tool.description.clone(),
        schema: tool.schema.clone(),
        pin: tool.digest().ok_or_else(not_canonical)?,
        effect: rule.effect,
        sinks: rule.sinks,
        content: rule.content,
        free: rule.free,
        whom: rule.whom,
        named: rule.named,
        takes: rule.takes,
        public: rule.readers == Readers::Public,
        idempotent: rule.idempotent,
        risk: rule.risk,
        taint: Taint::from(server.spec.taint),
        quarantine: rule.quarantine.unwrap_or(server.spec.quarantine),
    })
}
