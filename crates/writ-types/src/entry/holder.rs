//! Holders of the fleet's cases, as the ledger names them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::id::KeyId;

/// The holder of a case: an agent under two keys, or a person. The keys themselves are in no record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HolderRecord {
    /// The agent's or person's name.
    pub name: String,
    /// An agent's task key; `None`: a person.
    pub key: Option<KeyId>,
    /// The hash of an agent's base key.
    pub base: Option<Digest>,
    /// The hash of its task key.
    pub task: Option<Digest>,
}

/// A change of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CaseChange {
    /// It was opened.
    Opened,
    /// The router gave it to an agent.
    Assigned,
    /// The holder's key was replaced before its end.
    Renewed,
    /// The holder gave it up for another.
    Escalated,
    /// It was taken from its holder, to go to another.
    Rerouted,
    /// It waits for a person.
    Queued,
    /// A person took it over.
    Taken,
    /// A person gave it back to agents.
    HandedBack,
    /// A rule about anomalies was met, and a person is notified.
    Alerted,
    /// A person read its conversation, for the first time since it changed hands or for a day.
    Read,
    /// It ended.
    Closed,
}

impl CaseChange {
    /// Returns the word that people read.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Opened => "opened",
            Self::Assigned => "assigned",
            Self::Renewed => "renewed",
            Self::Escalated => "escalated",
            Self::Rerouted => "rerouted",
            Self::Queued => "queued",
            Self::Taken => "taken over",
            Self::HandedBack => "handed back",
            Self::Alerted => "alerted",
            Self::Read => "read",
            Self::Closed => "closed",
        }
    }
}

/// A change of a case, with everyone who is part of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaseRecord {
    /// The token of the case.
    pub case: String,
    /// The token of its customer.
    pub customer: String,
    /// The change.
    pub change: CaseChange,
    /// The component that changed it.
    pub router: String,
    /// The holder with access until this entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<HolderRecord>,
    /// The holder with access from this entry on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub began: Option<HolderRecord>,
    /// The holder before, without access since an earlier entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub earlier: Option<HolderRecord>,
    /// The person who read its conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reader: Option<String>,
    /// The agent, role or queue that is to be next; empty if it is open.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub target: String,
    /// The reason: of an anomaly, its rule and evidence.
    pub reason: String,
}
