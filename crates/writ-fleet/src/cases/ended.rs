//! Cases that have ended: the security proxy closes them, at once or when it is there again, and the store forgets them.

use writ_store::batch::Op;
use writ_store::fleet::{FleetCase, FleetOp};
use writ_store::reads::FleetReads as _;

use super::config::STORED_AFTER_END;
use super::error::CaseError;
use super::router::CaseRouterState;

/// The most cases that are closed at the security proxy at once.
const MAX_ENDED: usize = 64;

impl CaseRouterState {
    /// Closes a case that has ended at the security proxy, unless it was opened again since.
    pub(crate) async fn close_at_proxy(&self, row: &FleetCase) -> Result<(), CaseError> {
        let _closing = self.at_proxy.write().await;
        // The proxy knows an open case by its names: the same names give the same tokens.
        if self.keys.store().open_case_of(&row.case_token).await?.is_none() {
            self.tokens.close_tokens(&row.case_token).await.map_err(CaseError::Proxy)?;
        }
        self.keys.commit(vec![Op::Fleet(FleetOp::LeaveProxy { id: row.id })]).await?;
        Ok(())
    }

    pub(crate) async fn close_ended(&self) -> Result<(), CaseError> {
        for row in self.keys.store().ended_at_proxy(MAX_ENDED).await? {
            self.close_at_proxy(&row).await?;
        }
        Ok(())
    }

    pub(crate) async fn prune_ended(&self) -> Result<(), CaseError> {
        let before = self.keys.now().minus_duration(STORED_AFTER_END);
        self.keys.commit(vec![Op::Fleet(FleetOp::Prune { before })]).await?;
        Ok(())
    }
}
