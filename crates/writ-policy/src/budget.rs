//! Budgets, checked before anything is spent.

use serde::{Deserialize, Serialize};
use writ_types::action::Action;
use writ_types::id::ItemId;
use writ_types::unit::{MicroUsd, Timestamp, Tokens};

use writ_inspect::prepared::Prepared;

/// The most that an attempt may take, reserved before it is performed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reservation {
    /// Model tokens.
    pub tokens: Tokens,
    /// Money.
    pub cost: MicroUsd,
    /// Tool calls.
    pub tool_calls: u64,
}

/// Milliseconds of a day.
const MILLIS_PER_DAY: i64 = 24 * 60 * 60 * 1_000;

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
    /// Money per calendar month (UTC), in micro-USD.
    pub max_cost_per_month: Option<MicroUsd>,
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
            max_cost_per_month: None,
            day_starts_at_minute: 0,
        }
    }
}

impl BudgetConfig {
    /// A time on the UTC date that `now` is counted to: the day may begin after midnight.
    pub fn start_of_day(&self, now: Timestamp) -> Timestamp {
        on_date(now, self.day_starts_at_minute)
    }

    /// When the day began that `now` is counted to.
    pub fn day_begins(&self, now: Timestamp) -> Timestamp {
        let into_day = self.start_of_day(now).as_millis().rem_euclid(MILLIS_PER_DAY);
        Timestamp::from_millis(now.as_millis().saturating_sub(into_day))
    }
}

fn on_date(now: Timestamp, minute: u16) -> Timestamp {
    // The date is moved back by the start of the day, so that the store can count by UTC dates.
    Timestamp::from_millis(now.as_millis().saturating_sub(i64::from(minute).saturating_mul(60_000)))
}

/// The limits of a plan that several sessions work under.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanCeilings {
    /// The work item of the plan.
    pub item: ItemId,
    /// Tokens since the plan was made: with what it had used when it was approved last.
    pub tokens: Option<Tokens>,
    /// Money since then, likewise.
    pub cost: Option<MicroUsd>,
}

/// Amounts that have been spent or reserved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// Tokens of this session since it was renewed.
    pub session_tokens: Tokens,
    /// Tokens that this session had used when it was renewed.
    pub session_base: Tokens,
    /// Tokens of this day.
    pub day_tokens: Tokens,
    /// Money of this turn.
    pub turn_cost: MicroUsd,
    /// Money of this session since it was renewed.
    pub session_cost: MicroUsd,
    /// Money that this session had cost when it was renewed.
    pub session_cost_base: MicroUsd,
    /// Money of this day.
    pub day_cost: MicroUsd,
    /// Money of this month.
    pub month_cost: MicroUsd,
    /// True if a person has paused the session.
    pub paused: bool,
    /// Tool calls of this turn.
    pub turn_tool_calls: u64,
    /// The limits of the plan above the session, if there is one.
    pub plan: Option<PlanCeilings>,
}

/// Limits and what was spent of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BudgetFacts {
    /// The limits.
    pub limits: BudgetConfig,
    /// The amounts spent so far.
    pub spent: Spent,
}

/// The limit that is reached.
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
    /// Money of the month.
    MonthCost,
    /// A person has paused the session.
    Paused,
    /// A money limit is set, but the model's price is not known.
    UnknownPrice,
}

impl Exhausted {
    /// The limits that depend on the price of the model that is called.
    pub const OF_PRICE: [Self; 6] = [
        Self::UnknownPrice,
        Self::CallCost,
        Self::TurnCost,
        Self::SessionCost,
        Self::DayCost,
        Self::MonthCost,
    ];

    /// The setting that holds this limit.
    pub const fn setting_name(self) -> &'static str {
        match self {
            Self::SessionTokens => "budget.max_tokens_per_session",
            Self::DayTokens => "budget.max_tokens_per_day",
            Self::ToolCalls => "budget.max_tool_calls_per_turn",
            Self::CallCost => "budget.max_cost_per_call",
            Self::TurnCost => "budget.max_cost_per_turn",
            Self::SessionCost => "budget.max_cost_per_session",
            Self::DayCost => "budget.max_cost_per_day",
            Self::MonthCost => "budget.max_cost_per_month",
            Self::Paused => "the owner's pause",
            Self::UnknownPrice => "the price table",
        }
    }

    /// Explains the refusal in words.
    pub fn reason_text(self) -> String {
        match self {
            Self::UnknownPrice => "a money limit is set, but the price of this model is not known".to_owned(),
            Self::Paused => "a person has paused this session".to_owned(),
            Self::SessionTokens
            | Self::DayTokens
            | Self::ToolCalls
            | Self::CallCost
            | Self::TurnCost
            | Self::SessionCost
            | Self::DayCost
            | Self::MonthCost => format!("the limit '{}' is reached", self.setting_name()),
        }
    }
}

/// Everything that a session or a day has used or reserved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UsedAmounts {
    /// Tokens.
    pub tokens: Tokens,
    /// Money.
    pub cost: MicroUsd,
}

/// Everything that is used or reserved of what turns share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SharedAmounts {
    /// By the session since it was opened.
    pub session: UsedAmounts,
    /// On the day.
    pub day: UsedAmounts,
    /// In the month.
    pub month: UsedAmounts,
    /// By all sessions under the plan.
    pub plan: UsedAmounts,
}

/// The limits that turns share. They are judged with everything else, and once more where the reservation is
/// written: turns that are decided at the same moment do not see each other before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ceilings {
    /// Tokens of the session since it was opened.
    session_tokens: Option<Tokens>,
    /// Tokens of the day.
    day_tokens: Option<Tokens>,
    /// Money of the session.
    session_cost: Option<MicroUsd>,
    /// Money of the day.
    day_cost: Option<MicroUsd>,
    /// Money of the month.
    month_cost: Option<MicroUsd>,
    /// When the day begins.
    day_starts_at_minute: u16,
    /// The plan above the session.
    plan: Option<PlanCeilings>,
}

impl Ceilings {
    /// Selects the ceilings of an action: only model calls take tokens and money.
    pub fn ceilings_of(action: &Action, facts: &BudgetFacts) -> Self {
        // Other actions take no tokens and no money.
        if !matches!(action, Action::ModelCall(_)) {
            return Self::default();
        }
        let limits = &facts.limits;
        Self {
            // The counter of the store never falls, so what was used before the renewal is added to the
            // limit.
            session_tokens: Some(limits.max_tokens_per_session.saturating_add(facts.spent.session_base)),
            day_tokens: Some(limits.max_tokens_per_day),
            session_cost: limits
                .max_cost_per_session
                .map(|limit| limit.saturating_add(facts.spent.session_cost_base)),
            day_cost: limits.max_cost_per_day,
            month_cost: limits.max_cost_per_month,
            day_starts_at_minute: limits.day_starts_at_minute,
            plan: facts.spent.plan,
        }
    }

    /// Returns the limits of the plan above the session.
    pub const fn plan(&self) -> Option<PlanCeilings> {
        self.plan
    }

    /// Returns true if there is no limit.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// A time on the UTC date that `now` is counted to.
    pub fn start_of_day(&self, now: Timestamp) -> Timestamp {
        on_date(now, self.day_starts_at_minute)
    }

    /// Checks that a call that costs `most` at most may still be made. Tokens may be taken while any are
    /// left, since the number that a call needs is unknown before it; money only as far as it reaches.
    ///
    /// # Errors
    ///
    /// The limit that is reached.
    pub fn admit_call(&self, used: &SharedAmounts, most: MicroUsd) -> Result<(), Exhausted> {
        self.admit_tokens(used)?;
        self.admit_cost(used, most)
    }

    fn admit_tokens(
        &self,
        SharedAmounts { session, day, plan, .. }: &SharedAmounts,
    ) -> Result<(), Exhausted> {
        // The number of tokens of a call is known afterwards only, so the call that passes the limit is the
        // last one.
        if self.day_tokens.is_some_and(|limit| day.tokens >= limit) {
            return Err(Exhausted::DayTokens);
        }
        let of_plan = self.plan.and_then(|plan| plan.tokens);
        if self.session_tokens.is_some_and(|limit| session.tokens >= limit)
            || of_plan.is_some_and(|limit| plan.tokens >= limit)
        {
            return Err(Exhausted::SessionTokens);
        }
        Ok(())
    }

    fn admit_cost(&self, used: &SharedAmounts, most: MicroUsd) -> Result<(), Exhausted> {
        // Money is reserved at its upper bound, so it never passes the limit.
        let of_plan = self.plan.and_then(|plan| plan.cost);
        if self.session_cost.is_some_and(|limit| used.session.cost.saturating_add(most) > limit)
            || of_plan.is_some_and(|limit| used.plan.cost.saturating_add(most) > limit)
        {
            return Err(Exhausted::SessionCost);
        }
        if self.day_cost.is_some_and(|limit| used.day.cost.saturating_add(most) > limit) {
            return Err(Exhausted::DayCost);
        }
        if self.month_cost.is_some_and(|limit| used.month.cost.saturating_add(most) > limit) {
            return Err(Exhausted::MonthCost);
        }
        Ok(())
    }
}

/// Checks an action against the budget and says what to set aside for it.
///
/// # Errors
///
/// Which limit it would pass.
pub fn judge_budget(prepared: &Prepared, facts: &BudgetFacts) -> Result<Reservation, Exhausted> {
    let Action::ModelCall(call) = &prepared.action else {
        let by_model = prepared.call.is_some();
        // Only calls of the model count: actions of people and of the harness are not the agent's.
        if by_model && facts.spent.turn_tool_calls >= facts.limits.max_tool_calls_per_turn {
            return Err(Exhausted::ToolCalls);
        }
        return Ok(Reservation { tool_calls: u64::from(by_model), ..Reservation::default() });
    };
    let (limits, spent) = (&facts.limits, &facts.spent);
    let ceilings = Ceilings::ceilings_of(&prepared.action, facts);
    let session = UsedAmounts {
        tokens: spent.session_tokens.saturating_add(spent.session_base),
        cost: spent.session_cost.saturating_add(spent.session_cost_base),
    };
    let day = UsedAmounts { tokens: spent.day_tokens, cost: spent.day_cost };
    let month = UsedAmounts { tokens: Tokens::ZERO, cost: spent.month_cost };
    // What the other sessions under a plan have taken is known where the reservation is written.
    let used = SharedAmounts { session, day, month, plan: UsedAmounts::default() };
    if spent.paused {
        return Err(Exhausted::Paused);
    }
    ceilings.admit_tokens(&used)?;
    let money = [
        limits.max_cost_per_call,
        limits.max_cost_per_turn,
        limits.max_cost_per_session,
        limits.max_cost_per_day,
        limits.max_cost_per_month,
        spent.plan.and_then(|plan| plan.cost),
    ];
    // Without a price a limit on money could not hold, so the call is refused.
    if call.ceiling.is_none() && money.iter().any(Option::is_some) {
        return Err(Exhausted::UnknownPrice);
    }
    let most = call.ceiling.unwrap_or(MicroUsd::ZERO);
    if limits.max_cost_per_call.is_some_and(|limit| most > limit) {
        return Err(Exhausted::CallCost);
    }
    if limits.max_cost_per_turn.is_some_and(|limit| spent.turn_cost.saturating_add(most) > limit) {
        return Err(Exhausted::TurnCost);
    }
    ceilings.admit_cost(&used, most)?;
    let tokens = call.input_tokens.saturating_add(call.max_output_tokens);
    Ok(Reservation { tokens, cost: most, tool_calls: 0 })
}

#[cfg(test)]
mod tests;
