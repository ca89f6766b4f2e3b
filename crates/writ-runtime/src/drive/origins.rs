//! Where the arguments of a call come from.

use std::sync::Arc;

use writ_policy::origin::Origins;
use writ_types::chat::ToolCall;
use writ_types::taint::{Label, Taint};

use super::Drive;
use crate::error::EngineError;

/// What the arguments of a call may be made of, where its tool may lead out.
pub(super) fn origins(
    drive: &Drive,
    call: &ToolCall,
    label: &Label,
) -> Result<Option<Arc<Origins>>, EngineError> {
    let tools = drive.core.servers.registry();
    // A tool of another program always does.
    if tools.get(&call.name).is_some_and(|tool| !tool.can_leave()) {
        return Ok(None);
    }
    let mut origins = drive.core.reach.owner_origins(drive.session.id)?;
    if drive.core.config.strict {
        origins.narrow();
    }
    tools.tellers().for_each(|server| origins.tell(server));
    tools.effects().for_each(|tool| origins.declare_effect(tool.to_owned()));
    if label.taint == Taint::External {
        origins.trust(drive.machine.trusted_memories().map(str::to_owned));
    }
    if drive.machine.confides() {
        origins.confide();
    }
    origins.hear(drive.machine.heard());
    origins.read(drive.machine.seen());
    if label.outside {
        for tool in drive.core.journal.store.approved_tools(drive.session.id)? {
            origins.approve(tool);
        }
    }
    Ok(Some(Arc::new(origins)))
}
