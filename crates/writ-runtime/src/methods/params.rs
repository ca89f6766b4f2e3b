//! Parameters and answers with tokens or server definitions: types of other crates than the vocabulary.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use writ_mcp::config::{ServerName, ServerSpec};
use writ_mcp::definition::Definition;
use writ_policy::enrolment::EnrolmentGrant;
use writ_policy::keys::KeyToken;
use writ_policy::order::OrderToken;
use writ_types::digest::Digest;
use writ_types::id::KeyId;
use writ_types::unit::Timestamp;

/// A signed permission to enrol a passkey.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EnrolmentRequest {
    /// The permission.
    pub grant: EnrolmentGrant,
}

/// A base key that the root key has signed.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BaseKeyNote {
    /// The key.
    pub token: KeyToken,
}

/// The base key of an agent's folder that a person has approved.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentNote {
    /// The key.
    pub token: KeyToken,
    /// The version of the agent.
    pub version: String,
}

/// The base key of an agent that is put in its place.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentDeployment {
    /// The key.
    pub token: KeyToken,
    /// The version of the agent.
    pub version: String,
    /// True if the keys of its other versions are revoked.
    #[serde(default)]
    pub revoke_earlier: bool,
}

/// An agent that is to be retired.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentRetirement {
    /// The agent.
    pub agent: String,
    /// The reason, at most 500 characters; it is written to the ledger.
    #[serde(default)]
    pub reason: String,
}

/// An agent that something was recorded of.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NotedAgent {
    /// The agent.
    pub agent: String,
    /// Its version.
    pub version: String,
    /// The id of its base key.
    pub key: KeyId,
    /// The digest of its folder.
    pub folder: Digest,
    /// The hash of its base key.
    pub hash: Digest,
    /// When that key ends.
    pub expires_at: Timestamp,
    /// The base keys of other versions that were revoked.
    pub revoked: Vec<KeyId>,
    /// The number of task keys that were revoked with them.
    pub tasks: usize,
}

/// An agent that was retired.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RetiredAgent {
    /// The agent.
    pub agent: String,
    /// The base keys that were revoked.
    pub revoked: Vec<KeyId>,
    /// The number of task keys that were revoked with them.
    pub tasks: usize,
}

/// A base key and the document of the task key that is minted over it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MintRequest {
    /// The base key.
    pub base: KeyToken,
    /// The document.
    pub document: Value,
}

/// A task key and the document of its narrower copy.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NarrowRequest {
    /// The base key.
    pub base: KeyToken,
    /// The task key.
    pub token: KeyToken,
    /// The document.
    pub document: Value,
}

/// A task key with its base key.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyPair {
    /// The base key.
    pub base: KeyToken,
    /// The task key.
    pub token: KeyToken,
}

/// A task key that was minted for an agent outside this engine.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct IssuedTaskKey {
    /// Its id.
    pub key: KeyId,
    /// The id of its base key.
    pub base: KeyId,
    /// The agent.
    pub agent: String,
    /// The key.
    pub token: KeyToken,
    /// When it ends, as RFC 3339.
    pub expires_at: String,
}

/// A signed standing order.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OrderRequest {
    /// The order.
    pub token: OrderToken,
}

/// An MCP server that is to be tried.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProbeRequest {
    /// Its name.
    pub name: ServerName,
    /// Its definition.
    pub spec: ServerSpec,
}

/// The tools of an MCP server that was tried.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ProbedServer {
    /// The tools, in the server's words.
    pub tools: Vec<Definition>,
    /// The reasons why other tools are left out.
    pub left_out: Vec<String>,
}

/// Asks for the files about MCP servers to be read again.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReloadRequest {
    /// A server that its owner has just reviewed and trusts as it is.
    #[serde(default)]
    pub trusted: Option<ServerName>,
}

/// The MCP servers in force.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ReloadedServers {
    /// The servers.
    pub servers: Vec<ServerPins>,
    /// Trusted tools that are not offered to models, each with the reason.
    pub left_out: Vec<String>,
}

/// An MCP server and its pinned tools.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ServerPins {
    /// Its name.
    pub name: ServerName,
    /// The number of pinned tools.
    pub tools: usize,
    /// Digest of the pins.
    pub pins: Digest,
}
