//! Models.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::chat::Effort;
use crate::taint::Clearance;
use crate::unit::{Timestamp, Tokens};

pub use stated::{ProviderLimits, StatedLimit, StatedLimits};

mod stated;

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
    /// True if it is asked only where those before it cannot answer.
    #[serde(default)]
    pub fallback: bool,
    /// The tier of the role: `fast`, `standard` or `reasoning`; none for the default and for embeddings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<String>,
    /// The effort that is asked of it; none: the provider's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effort: Option<Effort>,
    /// Its price, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<TokenPrice>,
    /// The experience with it so far.
    #[serde(default)]
    pub state: ModelState,
}

/// The price of a model's tokens, in micro-USD per million tokens (3000000 is $3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenPrice {
    /// The price of input.
    pub input: u64,
    /// The price of output.
    pub output: u64,
    /// The price of input that the provider read from its cache.
    pub cache_read: u64,
    /// The price of input that the provider wrote to its cache.
    pub cache_write: u64,
}

/// The experience with a model.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelState {
    /// Failures in a row, other than passing ones.
    pub failures: u32,
    /// Until when it is asked last, because it failed too often; none: its breaker is closed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_until: Option<Timestamp>,
    /// Before when its provider does not want to be asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_until: Option<Timestamp>,
    /// The limits that its provider stated last, since the engine began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<StatedLimits>,
}

/// Prices of models, those of the owner first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PriceList {
    /// One for each model.
    pub prices: Vec<ListedPrice>,
}

/// The price of a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedPrice {
    /// As `provider/name`.
    pub model: String,
    /// The price.
    pub price: TokenPrice,
    /// The first day of the price, as a time in UTC; none: it is the owner's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// The source of the price.
    pub source: String,
    /// True if the owner has set it in `models.prices`.
    pub own: bool,
    /// True if a role, a skill or a list of fallbacks names the model.
    pub configured: bool,
}

/// Names a model that is to be tried.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelName {
    /// As `provider/name`; none: the one that answers the owner.
    #[serde(default)]
    pub model: Option<String>,
}

/// The owner's first choice of a model, where none is configured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ModelChoice {
    /// The provider's name: a well-known one, or another one with `kind` and `base_url`. At most 40 characters of a-z, 0-9, - and _.
    pub provider: String,
    /// The model's name at that provider.
    pub model: String,
    /// The wire format, as in the configuration; none: that of the well-known provider.
    #[serde(default)]
    pub kind: Option<String>,
    /// The address; none: that of the well-known provider.
    #[serde(default)]
    pub base_url: Option<String>,
    /// True if the secret `model-key-PROVIDER` is its key.
    #[serde(default)]
    pub has_key: bool,
}

/// The outcome of a choice of a model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ModelSetup {
    /// True if the model has answered: it is in the configuration now, and in use.
    pub stored: bool,
    /// The results of the trial requests, as `models.test` reports them.
    pub trial: Value,
}

/// Models that servers on this machine have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LocalModels {
    /// One for each server that has answered.
    pub models: Vec<LocalModel>,
}

/// A model of a server on this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LocalModel {
    /// The well-known name of the provider.
    pub provider: String,
    /// The model's name there.
    pub model: String,
    /// The port of the server.
    pub port: u16,
}
