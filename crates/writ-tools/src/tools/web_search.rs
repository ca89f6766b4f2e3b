//! `web_search`: asks a search provider. Offered only where the owner has configured one.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use writ_policy::door::MAX_QUERY_BYTES;
use writ_types::action::{Action, ActionKind, Search};

use super::describe_intent;
use crate::arguments::{invalid_arguments, no_nul, parse_arguments};
use crate::def::{
    ActionDraft, AgentRole, OutputKind, PathState, SearchTarget, ToolContext, ToolDef, needs_nothing,
};
use crate::error::ToolError;
use crate::schema::schema_of;

pub(crate) static WEB_SEARCH: ToolDef = ToolDef {
    name: "web_search",
    description: "Searches the web and returns titles, addresses and some text. Read a page itself with web_fetch.",
    usage: r#"{"query": "rust async cancellation safety"}"#,
    sinks: &["query"],
    idempotent: true,
    output: OutputKind::WebContent,
    actions: &[ActionKind::Search],
    roles: &[AgentRole::Proxy, AgentRole::Planner, AgentRole::Executor],
    schema: schema_of::<WebSearchArgs>,
    needs: needs_nothing,
    prepare: prepare_search,
};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct WebSearchArgs {
    /// The search text, at most 400 bytes.
    query: String,
    /// The number of results, fewer than usual.
    max_results: Option<u64>,
}

fn prepare_search(
    arguments: &Value,
    _: Option<&PathState>,
    context: &ToolContext<'_>,
) -> Result<ActionDraft, ToolError> {
    let args: WebSearchArgs = parse_arguments(&WEB_SEARCH, arguments)?;
    let Some(SearchTarget { provider, host, max_results }) = context.search else {
        return Err(invalid_arguments(&WEB_SEARCH, "no search provider is configured"));
    };
    no_nul(&WEB_SEARCH, "query", &args.query)?;
    if args.query.trim().is_empty() {
        return Err(invalid_arguments(&WEB_SEARCH, "'query' is empty"));
    }
    if args.query.len() > MAX_QUERY_BYTES {
        let (tool, what) = (WEB_SEARCH.name, "the size of the query in bytes");
        return Err(ToolError::TooLarge { tool, what, limit: MAX_QUERY_BYTES });
    }
    let requested = args.max_results.unwrap_or(max_results);
    if requested == 0 {
        return Err(invalid_arguments(&WEB_SEARCH, "'max_results' must be at least 1"));
    }
    let purpose = describe_intent("search for", &args.query);
    let (provider, host) = (provider.to_owned(), host.to_owned());
    let search =
        Search { provider, host, query: args.query.clone(), max_results: requested.min(max_results) };
    Ok(ActionDraft::new_draft(Action::Search(search), purpose).with_sink("query", args.query))
}
