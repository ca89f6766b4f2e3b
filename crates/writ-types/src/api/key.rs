//! Keys that agents act under, and standing orders.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::id::{KeyId, SessionId};
use crate::unit::Timestamp;

/// The keys in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KeyList {
    /// The base key of this engine.
    pub base: BaseKey,
    /// Task keys of sessions and of approved plans.
    pub tasks: Vec<TaskKey>,
    /// Keys that were given to agents outside this engine.
    pub issued: Vec<GivenKey>,
}

/// The base key of the engine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BaseKey {
    /// Its id.
    pub key: KeyId,
    /// The agent.
    pub agent: String,
    /// When it ends.
    pub expires_at: Timestamp,
    /// True if it was revoked.
    pub revoked: bool,
}

/// A task key of a session or of an approved plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TaskKey {
    /// Its id.
    pub key: KeyId,
    /// Its session.
    pub session: SessionId,
    /// When it ends.
    pub expires_at: Timestamp,
    /// The kinds of actions that it grants.
    pub grants: String,
    /// True if something runs under it.
    pub running: bool,
}

/// A key that was given to an agent outside this engine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GivenKey {
    /// Its id.
    pub key: KeyId,
    /// `base` or `task`.
    pub role: String,
    /// The agent.
    pub agent: String,
    /// Its purpose, in words.
    pub about: String,
    /// When it ends.
    pub expires_at: Timestamp,
    /// True if it was revoked.
    pub revoked: bool,
}

/// A key that is to be revoked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RevocationRequest {
    /// The key.
    pub key: KeyId,
    /// The reason, at most 500 characters; it is written to the ledger.
    #[serde(default)]
    pub reason: String,
}

/// A key that was revoked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revocation {
    /// The key.
    pub key: KeyId,
    /// `base`, `task`, `plan` or `order`.
    pub role: String,
    /// `revoked`.
    pub state: String,
    /// The sessions that were interrupted.
    pub stopped: Vec<SessionId>,
}

/// A base key that was noted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotedKey {
    /// Its id.
    pub key: KeyId,
    /// The agent.
    pub agent: String,
    /// When it ends, as RFC 3339.
    pub expires_at: String,
}

/// A standing order that was stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredOrder {
    /// Its id.
    pub order: KeyId,
    /// Its name.
    pub name: String,
    /// When it ends, as RFC 3339.
    pub expires_at: String,
}

/// Names a standing order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OrderName {
    /// The order.
    pub order: KeyId,
}

/// The session of a standing order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderSession {
    /// The session.
    pub session: SessionId,
    /// The order.
    pub order: KeyId,
}

/// The standing orders.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderList {
    /// At most 500.
    pub orders: Vec<OrderSummary>,
}

/// A standing order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderSummary {
    /// Its id.
    pub order: KeyId,
    /// Its name.
    pub name: String,
    /// Its project folder.
    pub project: Option<String>,
    /// `in force`, or why it is not.
    pub state: String,
    /// When it ends, as RFC 3339.
    pub expires_at: String,
    /// Turns that it has opened.
    pub turns: u64,
    /// Turns that it may open.
    pub max_turns: u64,
}
