//! Cases that have ended: the security proxy closes them, at once or when it is there again, and the store forgets them.

use std::collections::BTreeSet;
use std::sync::PoisonError;

use writ_store::batch::Op;
use writ_store::fleet::{FleetCase, FleetOp};
use writ_store::reads::FleetReads as _;

use super::config::STORED_AFTER_END;
use super::error::CaseError;
use super::router::CaseRouterState;

/// The most cases that are closed at the security proxy at once.
const MAX_ENDED: usize = 64;

/// The most cases that were opened at the security proxy alone, and are to be closed there.
pub(crate) const MAX_UNOPENED: usize = 1_024;

impl CaseRouterState {
    /// Closes a case that has ended at the security proxy, unless it was opened again since.
    pub(crate) async fn close_at_proxy(&self, row: &FleetCase) -> Result<(), CaseError> {
        self.close_token(&row.case_token).await?;
        self.keys.commit(vec![Op::Fleet(FleetOp::LeaveProxy { id: row.id })]).await?;
        Ok(())
    }

    /// Closes a token at the security proxy unless a case has it. The proxy knows an open case by its names: the same names
    /// give the same tokens.
    async fn close_token(&self, token: &str) -> Result<(), CaseError> {
        let _closing = self.at_proxy.write().await;
        if self.keys.store().open_case_of(token).await?.is_none() {
            self.tokens.close_tokens(token).await.map_err(CaseError::Proxy)?;
        }
        Ok(())
    }

    /// Returns why a case was not opened. Where one of its name is open, that is the reason, and it stays as it is.
    pub(crate) async fn refuse_opening(&self, token: String, error: CaseError) -> CaseError {
        if let Ok(Some(open)) = self.keys.store().open_case_of(&token).await {
            return CaseError::IsOpen(open.id);
        }
        self.close_unopened(token).await;
        error
    }

    /// Closes a case at the security proxy that could not be opened here, now or with a later [`Self::close_ended`].
    pub(crate) async fn close_unopened(&self, token: String) {
        if let Err(error) = self.close_token(&token).await {
            tracing::warn!(%error, case = %token, "the security proxy still has a case that was not opened");
            let mut unopened = self.unopened();
            if unopened.len() < MAX_UNOPENED {
                unopened.insert(token);
            }
        }
    }

    fn unopened(&self) -> std::sync::MutexGuard<'_, BTreeSet<String>> {
        self.unopened.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) async fn close_ended(&self) -> Result<(), CaseError> {
        let unopened: Vec<String> = self.unopened().iter().cloned().collect();
        for token in unopened {
            self.close_token(&token).await?;
            self.unopened().remove(&token);
        }
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
