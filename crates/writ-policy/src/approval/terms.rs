//! Terms of an approval beyond the shown action.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use writ_types::digest::{Digest, NotCanonical};
use writ_types::entry::{ApprovalScope, Risk};
use writ_types::frame::{Card, TaskOffer};
use writ_types::id::AskId;
use writ_types::unit::{Amount, Timestamp};

use crate::pattern::standing::StandingLimits;
use crate::pattern::{self, standing};

/// The terms of an approval for the task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskTerms {
    /// Digest of the [pattern] that an action must have.
    pub pattern: Digest,
    /// The highest risk that an action may have: that of what was shown.
    pub risk: Risk,
    /// The number of uses, the shown one included.
    pub uses: u32,
    /// The terms of a standing approval: other sessions, and longer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub standing: Option<StandingTerms>,
}

/// The limits of a standing approval besides its uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StandingTerms {
    /// For how many seconds it is good.
    pub secs: u64,
    /// The most that all its uses may come to in the argument that its pattern leaves open; none where it leaves none
    /// open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<Amount>,
}

/// The reason why a scope cannot be signed.
#[derive(Debug, thiserror::Error)]
pub enum ScopeError {
    /// The card offers no approval for the task.
    #[error("ask {0} can be approved once only")]
    OnceOnly(AskId),
    /// The card offers no total of this argument.
    #[error("no total of '{0}' can be approved: the card offers none for this argument")]
    NoTotal(String),
    /// The card names no values that could be the owner's.
    #[error("ask {0} names no values that an approval could treat as yours")]
    NoValues(AskId),
    /// The card names no host that could be trusted.
    #[error("ask {0} names no host that an approval could make trusted")]
    NoHost(AskId),
    /// The limits are missing, or larger than any that can be approved.
    #[error("these limits cannot be approved: {0}")]
    Limits(String),
    /// The offer has no canonical form.
    #[error(transparent)]
    NotCanonical(#[from] NotCanonical),
}

impl TaskTerms {
    /// Builds the terms to sign for a scope of a card at `now`, and their expiry.
    ///
    /// # Errors
    ///
    /// If the card offers no such scope, or its pattern has no canonical form.
    pub fn terms_to_sign(
        card: &Card,
        scope: ApprovalScope,
        limits: &StandingLimits,
        now: Timestamp,
    ) -> Result<(Option<Self>, Timestamp), ScopeError> {
        match (scope, &card.task) {
            // A standing approval names its own limits, within what the card offers.
            (ApprovalScope::Standing, _) => {
                Ok((Some(standing::standing_terms(card, limits)?), now.plus_duration(limits.ttl)))
            }
            (ApprovalScope::Values, _) if card.values.is_empty() => {
                Err(ScopeError::NoValues(card.ask_id.clone()))
            }
            (ApprovalScope::Host, _) if card.host.is_none() => Err(ScopeError::NoHost(card.ask_id.clone())),
            (ApprovalScope::Once | ApprovalScope::Values | ApprovalScope::Host, _) => {
                Ok((None, card.expires_at))
            }
            (ApprovalScope::Task, None) => Err(ScopeError::OnceOnly(card.ask_id.clone())),
            (ApprovalScope::Task, Some(offer)) => {
                // An approval for the task ends with its ask at the latest.
                let ends = now.plus_duration(pattern::TASK_APPROVAL_TTL).min(card.expires_at);
                Ok((Some(Self::offered_terms(offer, card.risk)?), ends))
            }
        }
    }

    /// Builds the terms that a card offers.
    ///
    /// # Errors
    ///
    /// If the pattern has no canonical form.
    pub fn offered_terms(offer: &TaskOffer, risk: Risk) -> Result<Self, NotCanonical> {
        Ok(Self { pattern: pattern::pattern_digest(&offer.pattern)?, risk, uses: offer.uses, standing: None })
    }

    /// Returns the lifetime, counted from the signature.
    pub(super) fn ttl(&self) -> Duration {
        self.standing.map_or(pattern::TASK_APPROVAL_TTL, |standing| Duration::from_secs(standing.secs))
    }

    /// Returns the scope.
    pub const fn scope(&self) -> ApprovalScope {
        match self.standing {
            None => ApprovalScope::Task,
            Some(_) => ApprovalScope::Standing,
        }
    }
}
