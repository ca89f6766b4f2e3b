//! The conditions under which a session was opened.

use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use writ_policy::keys::grants::Grants;
use writ_policy::order::{self, OrderClaims};
use writ_types::id::{ItemId, KeyId, SessionId};
use writ_types::unit::{MicroUsd, Tokens};

/// The order that a session works under.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ordered {
    pub(crate) id: KeyId,
    /// The claims of the order; `None` if they are unknown, and then the order grants nothing.
    pub(crate) claims: Option<Arc<OrderClaims>>,
}

impl Ordered {
    /// Narrows the grants of an owner's session to those that the order includes.
    pub(crate) fn grants(&self, widest: &Grants) -> Grants {
        let granted = self.claims.as_ref().map(|claims| order::narrow_grants(&claims.capabilities, widest));
        granted.and_then(Result::ok).unwrap_or_default()
    }
}

/// The conditions under which a session was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SessionTerms {
    /// The project's folder, if it works on one.
    pub(crate) project: Option<PathBuf>,
    /// Changes go to the project as they are made.
    pub(crate) write: bool,
    /// Actions are decided and logged, not performed.
    pub(crate) dry_run: bool,
    /// Other people speak through the client that opened the session.
    pub(crate) relayed: bool,
    /// The standing order that it works under.
    pub(crate) order: Option<Ordered>,
    /// The work item that has its steps run in it.
    pub(crate) work: Option<WorkTerms>,
    /// The limits of the one question of the autopilot to the planner that it is for.
    pub(crate) question: Option<QuestionTerms>,
}

/// The conditions of a session in which the planner answers one question of the autopilot: it only reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct QuestionTerms {
    /// The most money; none: that of a session.
    pub(crate) max_cost: Option<MicroUsd>,
}

/// The conditions of a session in which the steps of a work item run, under the key of its plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WorkTerms {
    /// The item.
    pub(crate) item: ItemId,
    /// The most tokens; none: those of a session.
    pub(crate) max_tokens: Option<Tokens>,
    /// The most money; none: that of a session.
    pub(crate) max_cost: Option<MicroUsd>,
    /// The plan of the autopilot that it works under, with a key of that; none: the plan is its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) under: Option<UnderPlan>,
}

/// A plan of the autopilot, as the sessions of its attempts and gates name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct UnderPlan {
    /// The item of the plan.
    pub(crate) item: ItemId,
    /// The session of that item, which the plan was approved for.
    pub(crate) session: SessionId,
    /// Set if nothing that is changed comes out of the session.
    pub(crate) reads_only: bool,
}
