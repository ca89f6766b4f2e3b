//! Where the arguments of a call come from.

use std::sync::Arc;

use writ_policy::origin::Origins;
use writ_types::chat::ToolCall;
use writ_types::taint::{Label, Taint};

use super::Drive;
use crate::error::EngineError;

impl Drive {
    /// What the arguments of a call may be made of, where its tool may lead out.
    pub(super) fn origins(
        &self,
        call: &ToolCall,
        label: &Label,
    ) -> Result<Option<Arc<Origins>>, EngineError> {
        let tools = self.core.servers.registry();
        // A tool of another program always does.
        if tools.get(&call.name).is_some_and(|tool| !tool.can_leave()) {
            return Ok(None);
        }
        let mut origins = self.core.owner_origins(self.session.id)?;
        if self.core.config.strict {
            origins.narrow();
        }
        tools.tellers().for_each(|server| origins.tell(server));
        tools.effects().for_each(|tool| origins.declare_effect(tool.to_owned()));
        if label.taint == Taint::External {
            origins.trust(self.machine.trusted_memories().map(str::to_owned));
        }
        if self.machine.confides() {
            origins.confide();
        }
        origins.hear(self.machine.heard());
        origins.read(self.machine.seen());
        if label.outside {
            for tool in self.core.store.approved_tools(self.session.id)? {
                origins.approve(tool);
            }
        }
        Ok(Some(Arc::new(origins)))
    }
}
