//! Money and tokens: what was spent, on what, and how much is left.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::id::SessionId;
use crate::unit::{MicroUsd, Tokens};

/// What spending is asked for by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BudgetBy {
    /// By day.
    #[default]
    Day,
    /// By month.
    Month,
    /// By session.
    Session,
    /// By the role that called a model.
    Role,
    /// By model.
    Model,
    /// By work item.
    Item,
}

/// A question about spending.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BudgetQuery {
    /// The parts.
    #[serde(default)]
    pub by: BudgetBy,
    /// The number of days, today included; 30 if not given. Sessions and items count whole.
    #[serde(default)]
    pub days: Option<u32>,
}

/// What was spent, and how much is left.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BudgetReport {
    /// The parts that were asked for.
    pub by: BudgetBy,
    /// The first UTC day that counts; empty where all days do.
    pub since: String,
    /// The parts, the dearest first; at most 500.
    pub rows: Vec<BudgetRow>,
    /// The number of parts that are not listed here.
    pub more: usize,
    /// The sum of all parts.
    pub total: BudgetRow,
    /// The limits, with what is used of each.
    pub limits: Vec<BudgetLimit>,
    /// True if the price of every call since then is known; else the sums of money are too low.
    pub all_priced: bool,
}

/// A part of what was spent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BudgetRow {
    /// Its name: a day, a session, a role, a model.
    pub name: String,
    /// Calls of models.
    pub model_calls: u64,
    /// Tokens sent.
    pub input: Tokens,
    /// Tokens sent that the provider had cached.
    pub cache_read: Tokens,
    /// Tokens of answers.
    pub output: Tokens,
    /// Money, in millionths of a US dollar.
    pub cost_micro_usd: MicroUsd,
}

/// A limit, and what is used of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BudgetLimit {
    /// The setting.
    pub setting: String,
    /// `tokens` or `micro_usd`.
    pub unit: String,
    /// What is used.
    pub used: u64,
    /// The limit.
    pub limit: u64,
    /// The share that is used, in per cent, rounded down.
    pub percent: u64,
    /// The session that it is about; none for limits of all sessions.
    pub session: Option<SessionId>,
}

/// The state of a session's spending after it was paused or renewed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SessionBudgetState {
    /// The session.
    pub session: SessionId,
    /// True if its models are not called.
    pub paused: bool,
    /// Its limits, with what is used of each.
    pub limits: Vec<BudgetLimit>,
}
