//! Calls of models.

use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::taint::Clearance;
use crate::unit::{MicroUsd, Tokens};

/// A model call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelCall {
    /// The provider's name in the configuration.
    pub provider: String,
    /// The model's name at that provider.
    pub model: String,
    /// Host and port that the call goes to.
    pub host: String,
    /// Digest of the request.
    pub request: Digest,
    /// Size of the request, estimated.
    pub input_tokens: Tokens,
    /// The most tokens that the answer may have.
    pub max_output_tokens: Tokens,
    /// The most that the call may cost by the price table; `None`: the price is unknown.
    pub ceiling: Option<MicroUsd>,
    /// The provider's clearance; set by the harness, from the owner's file alone.
    #[serde(default)]
    pub clearance: Clearance,
    /// The reason that it is not simply the first model of its role, or that text is withheld from it; empty:
    /// neither.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
}
