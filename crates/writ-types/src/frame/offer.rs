//! Offers of a card: approvals that cover more than the action asked about.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::id::SessionId;
use crate::taint::Taint;
use crate::unit::Amount;

/// The coverage of an approval for the task, and its duration. The signer signs the pattern's digest, the
/// risk of the card and the uses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TaskOffer {
    /// The pattern covered.
    pub pattern: Pattern,
    /// The most uses, the action asked about included.
    pub uses: u32,
    /// For how many seconds from the signature on, at most.
    pub secs: u64,
}

/// The coverage of a standing approval, and its limits. The signer signs the digest of the pattern (of one
/// total's, if a total is signed), the risk of the card, and limits within these.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StandingOffer {
    /// The pattern covered.
    pub pattern: Pattern,
    /// Arguments that may vary, if a total for them is signed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub totals: Vec<TotalOffer>,
    /// The most uses, the action asked about included.
    pub max_uses: u32,
    /// For how many seconds from the signature on, at most.
    pub max_secs: u64,
}

/// An argument whose sum over all uses can be bounded instead of its value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TotalOffer {
    /// The argument.
    pub argument: String,
    /// The pattern covered then.
    pub pattern: Pattern,
    /// The amount of the action asked about.
    pub amount: Amount,
}

/// The common properties of actions that one approval for the task, or a standing one, covers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Pattern {
    /// The agent that requests them.
    pub agent: String,
    /// The session that they belong to; none: any of the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// The tool that makes them.
    pub tool: String,
    /// The kind of action.
    pub action: String,
    /// The resources they touch, by name.
    pub parameters: BTreeMap<String, String>,
    /// The trust level of everything that they depend on.
    pub taint: Taint,
    /// The rules that ask about them.
    pub rules: BTreeSet<String>,
    /// Digest of the rules in force.
    pub policy: Digest,
}
