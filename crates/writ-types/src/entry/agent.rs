//! Agents that are folders: what a person approved, what was deployed, what was retired.

use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::id::KeyId;

/// A change of an agent that is a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentChange {
    /// A person has read what it may do, and its base key was signed.
    Blessed,
    /// It was put in its place, with that key.
    Deployed,
    /// Its key was revoked, and it was taken out.
    Retired,
}

impl AgentChange {
    /// Returns the word that people read.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Blessed => "blessed",
            Self::Deployed => "deployed",
            Self::Retired => "retired",
        }
    }
}

/// A change of an agent that is a folder, under one base key. The key itself is in no record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentRecord {
    /// The agent.
    pub agent: String,
    /// Its version.
    pub version: String,
    /// The change.
    pub change: AgentChange,
    /// The digest of its folder, which its base key is bound to.
    pub folder: Digest,
    /// Its base key.
    pub key: KeyId,
    /// The hash of that key.
    pub hash: Digest,
    /// The hash of the public root key that has signed it.
    pub root: Digest,
    /// The epoch that the key is good for.
    pub epoch: u64,
    /// The principal that changed it.
    pub by: String,
    /// The reason; empty if none was given.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}
