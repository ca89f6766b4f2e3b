//! What a start finds of the run before: leased messages, and approvals that were not used.

use std::sync::Arc;

use writ_policy::approval::{self, ApprovalToken};
use writ_store::approvals::AskState;
use writ_store::batch::{Batch, Op};

use crate::core::Core;
use crate::error::EngineError;

/// The most approved asks that one start performs.
const MAX_APPROVED: usize = 1_000;

/// Makes every leased message ready again and closes asks whose time is over.
///
/// # Errors
///
/// If the store cannot be written.
pub(crate) async fn requeue(core: &Core) -> Result<(), EngineError> {
    let now = core.clock.now();
    let ops = vec![Op::RequeueLeased, Op::ExpireAsks { now }, Op::PruneNonces { now }];
    let receipt = core.store.commit(Batch::synced(ops)).await?;
    if receipt.changed > 0 {
        tracing::info!(rows = receipt.changed, "taken up again after a restart");
    }
    Ok(())
}

/// Performs what was approved and not performed: the engine ended between the answer and the act.
///
/// # Errors
///
/// If the store cannot be read or written.
pub(crate) async fn perform_approved(core: &Arc<Core>) -> Result<(), EngineError> {
    for ask in core.store.asks(Some(AskState::Approved), MAX_APPROVED)? {
        let Some(stored) = core.store.approval(&ask.card.ask_id)? else { continue };
        if stored.executions_used > 0 || stored.revoked {
            continue;
        }
        let Ok(token) = serde_json::from_value::<ApprovalToken>(stored.token) else { continue };
        let expected = core.expected(&ask);
        let approval = approval::verify(&token, &expected, &core.approvers()?, core.clock.now());
        core.perform_ask(&ask, approval).await?;
    }
    Ok(())
}
