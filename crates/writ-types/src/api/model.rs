//! Models.

use serde::{Deserialize, Serialize};

use crate::taint::Clearance;
use crate::unit::Tokens;

/// The models of the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelList {
    /// One for each role, the default first.
    pub models: Vec<ConfiguredModel>,
    /// The model that was found on this machine, with its place; none if it was configured.
    pub found: Option<String>,
}

/// A model of the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfiguredModel {
    /// `default` or the name of a role.
    pub role: String,
    /// As `provider/name`.
    pub model: String,
    /// The provider's host.
    pub host: String,
    /// The reference of its key; none if it needs none.
    pub key: Option<String>,
    /// The most confidential content that it may be sent.
    pub clearance: Clearance,
    /// True if the built-in table has it.
    pub known: bool,
    /// Tokens that request and answer may have together, if known.
    pub window: Option<Tokens>,
    /// True if it can call tools.
    pub tools: bool,
    /// True if its price is known.
    pub priced: bool,
}

/// Names a model that is to be tried.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelName {
    /// As `provider/name`; none: the one that answers the owner.
    #[serde(default)]
    pub model: Option<String>,
}
