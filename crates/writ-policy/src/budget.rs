//! What may still be spent, checked before it is.

use serde::{Deserialize, Serialize};
use writ_types::action::Action;
use writ_types::unit::{MicroUsd, Tokens};

use crate::permit::Reservation;
use crate::prepared::Prepared;

/// Limits on tokens, money and tool calls. `None` or [`Tokens::MAX`] means no limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BudgetConfig {
    /// Tokens per session, until the user's next message renews them.
    pub max_tokens_per_session: Tokens,
    /// Tokens per day over all sessions.
    pub max_tokens_per_day: Tokens,
    /// Tool calls per turn.
    pub max_tool_calls_per_turn: u64,
    /// Money per model call, in micro-USD.
    pub max_cost_per_call: Option<MicroUsd>,
    /// Money per turn, in micro-USD.
    pub max_cost_per_turn: Option<MicroUsd>,
    /// Money per session, in micro-USD.
    pub max_cost_per_session: Option<MicroUsd>,
    /// Money per day, in micro-USD.
    pub max_cost_per_day: Option<MicroUsd>,
    /// Minutes after midnight UTC at which the day begins.
    pub day_starts_at_minute: u16,
}

impl Default for BudgetConfig {
    /// The defaults of WIN-036 to WIN-038; no money limits.
    fn default() -> Self {
        Self {
            max_tokens_per_session: Tokens::new(500_000),
            max_tokens_per_day: Tokens::new(5_000_000),
            max_tool_calls_per_turn: 20,
            max_cost_per_call: None,
            max_cost_per_turn: None,
            max_cost_per_session: None,
            max_cost_per_day: None,
            day_starts_at_minute: 0,
        }
    }
}

/// What has been spent or set aside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// Tokens of this session since it was renewed.
    pub session_tokens: Tokens,
    /// Tokens of this day.
    pub day_tokens: Tokens,
    /// Money of this turn.
    pub turn_cost: MicroUsd,
    /// Money of this session.
    pub session_cost: MicroUsd,
    /// Money of this day.
    pub day_cost: MicroUsd,
    /// Tool calls of this turn.
    pub turn_tool_calls: u64,
}

/// Limits and what was spent of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BudgetFacts {
    /// The limits.
    pub limits: BudgetConfig,
    /// What was spent.
    pub spent: Spent,
}

/// Which limit is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exhausted {
    /// The session's tokens.
    SessionTokens,
    /// The day's tokens.
    DayTokens,
    /// Tool calls of the turn.
    ToolCalls,
    /// Money of one call.
    CallCost,
    /// Money of the turn.
    TurnCost,
    /// Money of the session.
    SessionCost,
    /// Money of the day.
    DayCost,
    /// A money limit is set, but the model's price is not known.
    UnknownPrice,
}

impl Exhausted {
    /// The setting that holds this limit.
    pub const fn setting(self) -> &'static str {
        match self {
            Self::SessionTokens => "budget.max_tokens_per_session",
            Self::DayTokens => "budget.max_tokens_per_day",
            Self::ToolCalls => "budget.max_tool_calls_per_turn",
            Self::CallCost => "budget.max_cost_per_call",
            Self::TurnCost => "budget.max_cost_per_turn",
            Self::SessionCost => "budget.max_cost_per_session",
            Self::DayCost => "budget.max_cost_per_day",
            Self::UnknownPrice => "the price table",
        }
    }
}

/// Checks an action against the budget and says what to set aside for it.
///
/// # Errors
///
/// Which limit it would pass.
pub fn judge(prepared: &Prepared, facts: &BudgetFacts) -> Result<Reservation, Exhausted> {
    let Action::ModelCall(call) = &prepared.action else {
        let wished_by_model = prepared.call.is_some();
        if wished_by_model && facts.spent.turn_tool_calls >= facts.limits.max_tool_calls_per_turn {
            return Err(Exhausted::ToolCalls);
        }
        return Ok(Reservation { tool_calls: u64::from(wished_by_model), ..Reservation::default() });
    };
    let (limits, spent) = (&facts.limits, &facts.spent);
    if spent.day_tokens >= limits.max_tokens_per_day {
        return Err(Exhausted::DayTokens);
    }
    if spent.session_tokens >= limits.max_tokens_per_session {
        return Err(Exhausted::SessionTokens);
    }
    let ceilings = [
        (limits.max_cost_per_call, MicroUsd::ZERO, Exhausted::CallCost),
        (limits.max_cost_per_turn, spent.turn_cost, Exhausted::TurnCost),
        (limits.max_cost_per_session, spent.session_cost, Exhausted::SessionCost),
        (limits.max_cost_per_day, spent.day_cost, Exhausted::DayCost),
    ];
    for (limit, used, reached) in ceilings {
        let Some(limit) = limit else { continue };
        let Some(most) = call.ceiling else { return Err(Exhausted::UnknownPrice) };
        if used.saturating_add(most) > limit {
            return Err(reached);
        }
    }
    Ok(Reservation {
        tokens: call.input_tokens.saturating_add(call.max_output_tokens),
        cost: call.ceiling.unwrap_or(MicroUsd::ZERO),
        tool_calls: 0,
    })
}

#[cfg(test)]
mod tests;
