//! Work under standing orders of the owner: what a session under one may do, and whether the order is in force.

use std::sync::Arc;

use writ_policy::budget::BudgetConfig;
use writ_policy::order::{self, OrderFacts, OrderToken, StandingOrder};
use writ_policy::principal::{Authenticated, Inbound};
use writ_store::batch::Op;
use writ_store::keys::KeyOp;
use writ_store::reads::{KeyReads as _, RevocationReads as _, TurnReads as _};
use writ_types::id::{KeyId, SessionId};

use crate::error::{EngineError, KeysError};
use crate::keys::Keys;
use crate::session::{Ordered, Session};

/// The session of an order: there is one, so that what it spends is counted together. It has the order's number.
///
/// # Errors
///
/// Never: ids of both kinds are ULIDs.
pub(crate) fn session_of(order: KeyId) -> Result<SessionId, EngineError> {
    order.to_string().parse().map_err(|_| KeysError::Unknown(order).into())
}

impl Keys {
    /// Reads the order that a session's metadata names.
    pub(crate) async fn ordered(&self, id: &serde_json::Value) -> Result<Option<Ordered>, EngineError> {
        let id = id.as_str().and_then(|id| id.parse().ok());
        let id = id.ok_or_else(|| EngineError::Machine("a session names its order wrongly".to_owned()))?;
        let kept = self.journal.store.standing_order(id).await?;
        let token = kept.and_then(|kept| serde_json::from_str::<OrderToken>(&kept.token).ok());
        Ok(Some(Ordered { id, claims: token.map(|token| Arc::new(token.claims)) }))
    }

    /// An order that is in force now.
    ///
    /// # Errors
    ///
    /// If there is none, or it is over, revoked, or not signed by a key that still counts.
    pub(crate) async fn order_in_force(&self, id: KeyId) -> Result<StandingOrder, EngineError> {
        let kept = self.journal.store.standing_order(id).await?.ok_or(KeysError::Unknown(id))?;
        let token: OrderToken = serde_json::from_str(&kept.token).map_err(|_| KeysError::Unknown(id))?;
        let facts = OrderFacts {
            installation: self.installation,
            epoch: self.epoch,
            seen_at: kept.seen_at,
            revoked: self.journal.store.is_revoked(&id.to_string()).await?,
        };
        let approvers = self.approvers().await?;
        // Checks the order twice: by the clock, which may be behind the order's last use, and by the time
        // that has certainly passed, regardless of the clock.
        order::verify_order(&token, &facts, &approvers, self.journal.clock.now())?;
        Ok(order::verify_order(&token, &facts, &approvers, self.journal.valid_now())?)
    }

    /// The order of a session, in force, if it works under one; `number` is the turn that is to begin.
    ///
    /// # Errors
    ///
    /// If it is not in force, or opens no such turn.
    pub(crate) async fn order_of(
        &self,
        session: &Session,
        number: Option<u64>,
    ) -> Result<Option<StandingOrder>, EngineError> {
        let Some(ordered) = &session.terms.order else { return Ok(None) };
        let order = self.order_in_force(ordered.id).await?;
        if let Some(number) = number {
            order.opens_turn(number.saturating_sub(1))?;
        }
        Ok(Some(order))
    }

    /// A message as it counts in its session: under an order it is the harness's. What notes that the order was used.
    ///
    /// # Errors
    ///
    /// If the order is not in force, or opens no further turn.
    pub(crate) async fn under_order(
        &self,
        (session, consumer): (&Session, &str),
        inbound: Authenticated<Inbound>,
    ) -> Result<(Authenticated<Inbound>, Option<Op>), EngineError> {
        let runs = session.state().turn_for(consumer).is_some();
        // A message that a running turn takes in opens no turn of the order.
        let next = if runs { None } else { Some(self.journal.store.next_turn_number(session.id).await?) };
        let Some(order) = self.order_of(session, next).await? else { return Ok((inbound, None)) };
        let seen = Op::Keys(KeyOp::See { order: order.claims().order, at: inbound.at() });
        Ok((inbound.under_order(&order), Some(seen)))
    }

    /// The limits on what a session spends.
    pub(crate) fn limits_of(&self, session: Option<&Session>) -> BudgetConfig {
        let ordered = session.and_then(|session| session.terms.order.as_ref());
        let claims = ordered.and_then(|ordered| ordered.claims.as_ref());
        let mut limits = claims
            .map_or_else(|| self.journal.budget.clone(), |claims| claims.budget_limits(&self.journal.budget));
        if let Some(work) = session.and_then(|session| session.terms.work) {
            // The session of an item spends for the item alone, so its limits are those of the plan.
            limits.max_tokens_per_session = work.max_tokens.unwrap_or(limits.max_tokens_per_session);
            limits.max_cost_per_session = work.max_cost.or(limits.max_cost_per_session);
        }
        if let Some(question) = session.and_then(|session| session.terms.question) {
            limits.max_cost_per_session = question.max_cost.or(limits.max_cost_per_session);
        }
        limits
    }
}
