//! `memory_store` and `memory_search`.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use writ_types::action::{Action, ActionKind, MemoryKind, MemoryTrust, Recall, Remember};

use super::describe_intent;
use crate::arguments::{invalid_arguments, no_nul, parse_arguments};
use crate::def::{ActionDraft, AgentRole, OutputKind, PathState, ToolContext, ToolDef, needs_nothing};
use crate::error::ToolError;
use crate::schema::schema_of;

/// The longest text of a memory, in bytes: a memory is a sentence or a paragraph, not a file.
const MAX_MEMORY_BYTES: usize = 8 * 1024;

/// The longest query, in bytes.
const MAX_QUERY_BYTES: usize = 1_024;

/// The number of hits when the model names none.
const DEFAULT_HITS: u64 = 10;

/// The most hits.
const MAX_HITS: u64 = 50;

pub(super) static MEMORY_STORE: ToolDef = ToolDef {
    name: "memory_store",
    description: "Remembers a short text for later sessions.",
    usage: r#"{"text": "The project is built with make.", "kind": "fact"}"#,
    sinks: &[],
    idempotent: false,
    output: OutputKind::Confirmation,
    actions: &[ActionKind::Remember],
    roles: &[AgentRole::Proxy, AgentRole::Executor],
    schema: schema_of::<StoreArgs>,
    needs: needs_nothing,
    prepare: prepare_store,
};

pub(super) static MEMORY_SEARCH: ToolDef = ToolDef {
    name: "memory_search",
    description: "Searches what was remembered, best hits first.",
    usage: r#"{"query": "how the project is built"}"#,
    sinks: &[],
    idempotent: true,
    output: OutputKind::Memory,
    actions: &[ActionKind::Recall],
    roles: &[AgentRole::Proxy, AgentRole::Planner, AgentRole::Executor],
    schema: schema_of::<MemorySearchArgs>,
    needs: needs_nothing,
    prepare: prepare_search,
};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct StoreArgs {
    /// The text to remember.
    text: String,
    /// Kind of memory; fact if not given.
    kind: Option<MemoryKindArg>,
    /// If true, only this session remembers it.
    this_session: Option<bool>,
}

/// The kinds that a model may choose. Who the owner is (`profile`) is pinned in every context, so only the
/// owner says it.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum MemoryKindArg {
    Fact,
    Episode,
    Preference,
    Procedure,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct MemorySearchArgs {
    /// Words to look for.
    query: String,
    /// The most hits, 10 if not given.
    limit: Option<u64>,
}

fn prepare_store(
    arguments: &Value,
    _: Option<&PathState>,
    context: &ToolContext<'_>,
) -> Result<ActionDraft, ToolError> {
    let args: StoreArgs = parse_arguments(&MEMORY_STORE, arguments)?;
    check_text(&MEMORY_STORE, "text", &args.text, MAX_MEMORY_BYTES)?;
    let purpose = describe_intent("remember", &args.text);
    let remember = Remember {
        text: args.text,
        memory_kind: match args.kind.unwrap_or(MemoryKindArg::Fact) {
            MemoryKindArg::Fact => MemoryKind::Fact,
            MemoryKindArg::Episode => MemoryKind::Episode,
            MemoryKindArg::Preference => MemoryKind::Preference,
            MemoryKindArg::Procedure => MemoryKind::Procedure,
        },
        // A model's memory is always a working one; a person can raise it.
        trust: MemoryTrust::Working,
        taint: context.label.taint,
        secret: context.label.secret,
        session: context.session.filter(|_| args.this_session.unwrap_or(false)),
    };
    Ok(ActionDraft::new_draft(Action::Remember(remember), purpose))
}

fn prepare_search(
    arguments: &Value,
    _: Option<&PathState>,
    _: &ToolContext<'_>,
) -> Result<ActionDraft, ToolError> {
    let args: MemorySearchArgs = parse_arguments(&MEMORY_SEARCH, arguments)?;
    check_text(&MEMORY_SEARCH, "query", &args.query, MAX_QUERY_BYTES)?;
    let limit = args.limit.unwrap_or(DEFAULT_HITS);
    if !(1..=MAX_HITS).contains(&limit) {
        return Err(invalid_arguments(&MEMORY_SEARCH, &format!("'limit' must be from 1 to {MAX_HITS}")));
    }
    let purpose = describe_intent("search the memory for", &args.query);
    Ok(ActionDraft::new_draft(Action::Recall(Recall { query: args.query, limit }), purpose))
}

fn check_text(tool: &'static ToolDef, argument: &str, text: &str, limit: usize) -> Result<(), ToolError> {
    no_nul(tool, argument, text)?;
    if text.trim().is_empty() {
        return Err(invalid_arguments(tool, &format!("'{argument}' is empty")));
    }
    if text.len() > limit {
        return Err(ToolError::TooLarge { tool: tool.name, what: "the size of the text in bytes", limit });
    }
    Ok(())
}
