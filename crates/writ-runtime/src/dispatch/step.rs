//! The profile of a step's turn: that of its lane, with the tools that its plan names.

use std::sync::Arc;

use writ_plan::run::run_steps;
use writ_store::queue::Leased;
use writ_store::reads::WorkReads as _;

use crate::error::EngineError;
use crate::planner::PlannerMessage;
use crate::profile::AgentProfile;
use crate::proposals::read_document;
use crate::services::Services;

/// Returns the profile of a leased message: for a step with tools of its own, the lane with those alone.
///
/// # Errors
///
/// If the store cannot be read.
pub(super) async fn profile_of(
    services: &Services,
    lease: &Leased,
    profile: Arc<AgentProfile>,
) -> Result<Arc<AgentProfile>, EngineError> {
    if profile.is_planner() && PlannerMessage::read_id(&lease.message.client_id).is_none() {
        // After its tries it lies among the dead letters, with the reason.
        let id: String = lease.message.client_id.chars().take(64).collect();
        return Err(EngineError::Machine(format!("the planner has a message of an unknown kind: '{id}'")));
    }
    if !profile.is_step {
        return Ok(profile);
    }
    let message = lease.message.record.message;
    let Some(attempt) = services.journal.store.work_attempt_of(message).await? else { return Ok(profile) };
    let Some(item) = services.journal.store.work_item(attempt.item).await? else { return Ok(profile) };
    let steps = run_steps(&read_document(&item)?);
    Ok(match steps.get(attempt.step) {
        Some(step) if !step.tools.is_empty() => {
            Arc::new(AgentProfile { tools: profile.narrowed_tools(&step.tools), ..profile.as_ref().clone() })
        }
        Some(_) | None => profile,
    })
}
