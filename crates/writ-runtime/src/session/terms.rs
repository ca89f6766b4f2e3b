//! The conditions under which a session was opened.

use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use writ_agent::config::{AgentConfig, Share};
use writ_policy::keys::grants::Grants;
use writ_policy::order::{self, OrderClaims};
use writ_types::chat::Effort;
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
    /// The settings of its turns, beside those of the engine.
    #[serde(default)]
    pub(crate) attempt: AttemptTerms,
}

/// The settings of the turns of an attempt: each narrows those of the engine, or says what these leave open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AttemptTerms {
    /// The effort of its model's reasoning, where the engine's settings name none; none: that of the provider.
    pub effort: Option<Effort>,
    /// The most turns: after each one it waits for the autopilot's word; none: it has one turn, and ends with it.
    pub max_turns: Option<u32>,
    /// The share of the context above which old results leave it, where it is below the engine's, and from which the conversation is
    /// compacted before the next turn; none: the engine's.
    pub evict_above: Option<Share>,
    /// The share of the context at which the turn ends, where nothing more can leave it; none, or a lower one: that above
    /// which old results leave it.
    pub end_above: Option<Share>,
    /// The times of a program that is to end because the turn was ended; none: it is killed at once.
    pub tool_end: Option<ToolEndTimes>,
}

/// The times of a program that is to end: first without help, then at a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolEndTimes {
    /// Milliseconds in which it may end without a signal.
    pub grace_ms: u64,
    /// Milliseconds from the signal until it is killed.
    pub kill_ms: u64,
}

impl AttemptTerms {
    /// Narrows the settings of an engine to those of an attempt.
    pub(crate) fn narrow_config(&self, config: &AgentConfig) -> AgentConfig {
        let mut narrow = config.clone();
        let context = &mut narrow.context;
        let engines = context.eviction_threshold_pct;
        context.eviction_threshold_pct = self.evict_above.map_or(engines, |share| share.min(engines));
        context.hard_limit_pct = self.end_above;
        context.compact_at_pct = self.evict_above.unwrap_or(context.compact_at_pct);
        // The system texts stay: they are not the attempt's.
        if context.eviction_threshold() <= context.system_max {
            context.eviction_threshold_pct = engines;
        }
        narrow
    }
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
