//! The tokens of calls: the quota of a key, and reports of what was used.

use writ_policy::keys::Authority;
use writ_types::unit::{Timestamp, Tokens};

use super::OPERATION;

/// The limit of a base key on the tokens of one task: `"model_call": {"max_tokens": 100000}`.
pub(super) const QUOTA: &str = "tokens";
/// The beginning of the counters of tokens, one for each task.
const COUNTER: &str = "routed.tokens ";

/// The tokens of one attempt at a call, after they are in the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokensUsed {
    /// When the attempt ended.
    pub at: Timestamp,
    /// The agent.
    pub agent: String,
    /// The token of its case; `None`: its task key is for no case.
    pub case: Option<String>,
    /// The tokens of prompt and answer.
    pub tokens: Tokens,
}

/// Returns the name of the counter of a task's tokens.
pub(super) fn counter_name(authority: &Authority) -> String {
    format!("{COUNTER}{}", authority.task().session)
}

/// Returns the most tokens of one task; `None`: neither key sets a quota.
pub(super) fn quota_of(authority: &Authority) -> Option<Tokens> {
    let grants = [&authority.base().grants, &authority.task().grants];
    let limits = grants.into_iter().filter_map(|grants| grants.limits.get(OPERATION)?.amounts.get(QUOTA));
    limits.map(|limit| Tokens::new(u64::try_from(limit.max).unwrap_or(0))).min()
}
