//! Determines the allowed origins of a call's arguments.

use std::sync::Arc;
use writ_store::reads::AskReads as _;

use writ_inspect::origin::Origins;
use writ_types::chat::ToolCall;
use writ_types::taint::{Label, Taint};

use writ_agent::turn::ContextParts;
use writ_types::id::SessionId;

use crate::error::EngineError;
use crate::services::Services;

/// Returns the values from which the arguments of a call may be made; `None` if its tool cannot send data
/// out.
pub(crate) async fn origins(
    (services, session): (&Services, SessionId),
    parts: &ContextParts,
    call: &ToolCall,
    label: &Label,
) -> Result<Option<Arc<Origins>>, EngineError> {
    let tools = services.servers.registry();
    // A tool that is not there may be one of another program, which always does.
    if tools.find_tool(&call.name).is_some_and(|tool| !tool.can_leave()) {
        return Ok(None);
    }
    let mut origins = services.reach.owner_origins(session).await?;
    if services.config.strict {
        origins.restrict_freedoms();
    }
    tools.describing_servers().for_each(|server| origins.add_unvouched_server(server));
    tools.effect_tools().for_each(|tool| origins.declare_effect(tool.to_owned()));
    if label.taint == Taint::External {
        origins.trust_texts(parts.trusted_memories().map(str::to_owned));
    }
    if parts.holds_private_text() {
        origins.note_private_reading();
    }
    origins.note_external(parts.foreign_texts());
    origins.read_messages(parts.messages());
    if label.outside {
        for tool in services.journal.store.approved_tools(session).await? {
            origins.approve_tool(tool);
        }
    }
    Ok(Some(Arc::new(origins)))
}
