//! Asks, approvals in force, and people who may approve.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::entry::Risk;
use crate::frame::Card;
use crate::id::{AskId, KeyId, SessionId};
use crate::unit::Timestamp;

/// Selects asks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AskFilter {
    /// Includes asks that were answered or have expired.
    #[serde(default)]
    pub all: bool,
}

/// Asks, and gates that ask.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AskList {
    /// As many as fit into one answer, at most 500.
    pub asks: Vec<Card>,
    /// The number of asks that do not fit.
    pub more: usize,
    /// Gates that ask a person about a text.
    pub gates: Vec<GateAsk>,
}

/// A gate that asks a person about a text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GateAsk {
    /// The ask.
    pub ask_id: AskId,
    /// The session that waits for the answer.
    pub session: SessionId,
    /// The gate.
    pub gate: String,
    /// `input`, `output` or `server`.
    pub point: String,
    /// The reason.
    pub reason: String,
}

/// Names an ask.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AskName {
    /// The ask.
    pub ask: AskId,
}

/// Open asks in groups of similar ones.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AskReview {
    /// The groups.
    pub groups: Vec<AskGroup>,
}

/// Open asks of the same tool that name the same kinds of things.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AskGroup {
    /// Their common features, in words.
    pub likeness: String,
    /// The asks.
    pub asks: Vec<GroupedAsk>,
}

/// An ask of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GroupedAsk {
    /// The ask.
    pub ask_id: AskId,
    /// Its unusual features, in words.
    pub anomalies: Vec<String>,
    /// The reason to answer it alone.
    pub alone: Option<String>,
    /// True if a yes to the group may include it.
    pub together: bool,
    /// How far earlier answers speak for it.
    pub band: ReviewBand,
    /// The harm that a wrong answer can do.
    pub risk: Option<Risk>,
    /// Its purpose, escaped.
    pub intent: Option<String>,
}

/// How far earlier answers speak for the answer to an ask, highest first. No band answers anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReviewBand {
    /// What is like it was approved again and again, and nothing about it is unusual.
    High,
    /// What is like it was approved before, and nothing about it is unusual.
    Medium,
    /// Something about it is unusual, or it must be answered alone.
    Low,
    /// Nothing like it was ever approved.
    Novel,
}

/// Approvals that later actions may rest on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ApprovalList {
    /// The approvals.
    pub approvals: Vec<ApprovalInForce>,
}

/// An approval that later actions may rest on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ApprovalInForce {
    /// The ask that was answered.
    pub ask_id: AskId,
    /// The session that it is limited to.
    pub session: Option<SessionId>,
    /// `task`, `standing`, `values`, `host` or `plan`.
    pub scope: String,
    /// The actions that it covers, in words.
    pub covers: String,
    /// The purpose that was shown, escaped.
    pub intent: String,
    /// The risk that was shown.
    pub risk: Risk,
    /// The person who approved it.
    pub by: String,
    /// Uses that are left; none if they are not counted.
    pub uses_left: Option<u64>,
    /// The sum that is left; none if there is no total.
    pub total_left: Option<String>,
    /// When it ends; none if it ends with its session or is taken back.
    pub expires_at: Option<Timestamp>,
    /// The key of a plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<KeyId>,
    /// True if the steps of a plan may still run under today's rules and keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counts: Option<bool>,
}

/// An approval that was taken back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ApprovalRevocation {
    /// The ask that it answered.
    pub ask_id: AskId,
    /// `revoked`.
    pub state: String,
    /// The number of attempts that were stopped.
    pub stopped: usize,
}

/// Hosts of the configuration and hosts that a person has approved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HostList {
    /// The hosts, each once.
    pub hosts: Vec<HostApproval>,
}

/// A host that programs may connect to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HostApproval {
    /// The host or pattern, with its port.
    pub domain: String,
    /// `config` or `user`.
    pub approved_by: String,
    /// `open`, `asks` or `refused`: the present verdict on a connection.
    pub state: String,
    /// When a person approved it.
    pub approved_at: Option<Timestamp>,
    /// The person who approved it.
    pub by: Option<String>,
    /// The ask that was answered.
    pub ask_id: Option<AskId>,
}

/// The passkeys that may approve.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PasskeyList {
    /// The passkeys.
    pub passkeys: Vec<PasskeySummary>,
}

/// A passkey that may approve.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PasskeySummary {
    /// Its id.
    pub id: KeyId,
    /// Its name.
    pub name: String,
    /// The site that it is bound to.
    pub site: String,
    /// When it was enrolled, in milliseconds since 1970.
    pub created_at: i64,
}

/// A permission to enrol a passkey.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EnrolmentPermission {
    /// When it ends, as RFC 3339.
    pub expires_at: String,
}

/// Names an approver key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ApproverName {
    /// The key.
    pub key: KeyId,
}

/// An approver key that was removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ApproverRemoval {
    /// Its id.
    pub id: KeyId,
    /// Its name.
    pub name: String,
}

/// The cadence of questions of the last 30 days, and what it speaks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AskCadence {
    /// The number of days that are counted.
    pub days: u64,
    /// Asks that were approved.
    pub approved: usize,
    /// Asks that were denied.
    pub denied: usize,
    /// Asks that no one answered in time.
    pub expired: usize,
    /// The time to an answer that half of the answers took at most, in milliseconds; none without an answer.
    pub median_ms: Option<u64>,
    /// Changes that were applied and can be undone.
    pub applied: u64,
    /// Changes of those that were undone.
    pub undone: u64,
    /// Offers to be asked less or more.
    pub offers: Vec<CadenceOffer>,
}

/// The direction of an offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CadenceDirection {
    /// One approval could stand in place of the next questions.
    Widen,
    /// An approval that lasts could be taken back.
    Narrow,
}

/// An offer to be asked less or more. Nothing changes before a person accepts it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CadenceOffer {
    /// The direction.
    pub direction: CadenceDirection,
    /// The ask: to widen, the open one that can be answered for longer; to narrow, the one that was answered so.
    pub ask_id: AskId,
    /// What the asks have in common, in words.
    pub likeness: String,
    /// Approvals of its likeness.
    pub approved: usize,
    /// Denials of its likeness.
    pub denied: usize,
    /// Changes of its likeness that were undone.
    pub undone: u64,
    /// The time to an answer that half of the answers took at most, in milliseconds.
    pub median_ms: Option<u64>,
}
