//! The tables `[models]` and `[providers.NAME]` of the configuration.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use writ_types::chat::Effort;
use writ_types::credential::CredentialRef;
pub use writ_types::taint::Clearance;

/// The purpose of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelRole {
    /// Speaks with people.
    Proxy,
    /// Makes plans.
    Planner,
    /// Carries plans out.
    Executor,
    /// Judges answers.
    Scorer,
    /// Notes what is worth remembering.
    Observer,
    /// Is asked when others are at a loss.
    Oracle,
    /// Turns text into vectors.
    Embedding,
    /// Answers questions about untrusted text, without tools.
    Quarantine,
}

impl ModelRole {
    /// Every role.
    pub const ALL: [Self; 8] = [
        Self::Proxy,
        Self::Planner,
        Self::Executor,
        Self::Scorer,
        Self::Observer,
        Self::Oracle,
        Self::Embedding,
        Self::Quarantine,
    ];

    /// The name in the configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Proxy => "proxy",
            Self::Planner => "planner",
            Self::Executor => "executor",
            Self::Scorer => "scorer",
            Self::Observer => "observer",
            Self::Oracle => "oracle",
            Self::Embedding => "embedding",
            Self::Quarantine => "quarantine",
        }
    }
}

impl fmt::Display for ModelRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A class of models by what they cost and how far they think. A role has one, so that a few names configure all roles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelTier {
    /// Cheap and quick.
    Fast,
    /// For ordinary work.
    Standard,
    /// For what is hard.
    Reasoning,
}

impl ModelTier {
    /// The name in the configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Fast => "fast",
            Self::Standard => "standard",
            Self::Reasoning => "reasoning",
        }
    }
}

impl fmt::Display for ModelTier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl ModelRole {
    /// The tier of a role (SIL-046, SIL-050, SIL-057); `None`: the role needs models of a kind of its own.
    pub const fn tier(self) -> Option<ModelTier> {
        match self {
            Self::Proxy | Self::Scorer | Self::Observer | Self::Quarantine => Some(ModelTier::Fast),
            Self::Executor => Some(ModelTier::Standard),
            Self::Planner | Self::Oracle => Some(ModelTier::Reasoning),
            Self::Embedding => None,
        }
    }
}

/// The price of a model by its owner, in micro-USD per million tokens (3000000 is $3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OwnPrice {
    /// The price of input.
    pub input: u64,
    /// The price of output.
    pub output: u64,
    /// The price of input that the provider read from its cache. Default: that of input.
    #[serde(default)]
    pub cache_read: Option<u64>,
    /// The price of input that the provider wrote to its cache. Default: that of input and a quarter of it.
    #[serde(default)]
    pub cache_write: Option<u64>,
}

/// Models and providers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ModelsConfig {
    /// The model of each role.
    pub models: ModelsTable,
    /// Providers by name. The well-known ones need no table.
    pub providers: BTreeMap<String, ProviderTable>,
}

/// The table `[models]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ModelsTable {
    /// The model for everything without an entry in `roles`, as `provider/name`. Without one, or with an empty text, it is
    /// the first model of a provider that has a key here (`detect`).
    #[serde(deserialize_with = "read_default")]
    pub default: Option<String>,
    /// The model of a role, as `provider/name`.
    pub roles: BTreeMap<ModelRole, String>,
    /// The model of a tier (`fast`, `standard`, `reasoning`), as `provider/name`: for the roles of that tier that `roles`
    /// does not name. Default: none, and such roles have the default model.
    pub tiers: BTreeMap<ModelTier, String>,
    /// The model for a skill, by the skill's name, as `provider/name`. It counts before the model of the role. It is no setting
    /// as long as there are no skills.
    #[serde(skip)]
    pub skills: BTreeMap<String, String>,
    /// The effort of a role's model: `low`, `medium` or `high`. Default: that of the provider.
    pub effort: BTreeMap<ModelRole, Effort>,
    /// Own prices by `provider/name`, in micro-USD per million tokens. They count before the shipped table.
    pub prices: BTreeMap<String, OwnPrice>,
    /// Models that are asked in turn when the one before cannot answer, as `provider/name`. One with a
    /// provider of lower clearance than the first one's is passed over. Default: none.
    pub fallback: Vec<String>,
    /// The same for a role alone, in place of `fallback`.
    pub role_fallback: BTreeMap<ModelRole, Vec<String>>,
    /// True if `chat` looks for a model when none is configured: for the usual keys, and for a model server
    /// on the usual ports of this machine. Default: yes.
    pub detect: bool,
    /// The longest wait for the first byte, and for each next one, in milliseconds. Default: 120 seconds
    /// (SCL-013).
    pub request_timeout_ms: u64,
    /// The longest time of a whole answer, in milliseconds. Default: 30 minutes, beyond any real answer.
    pub answer_timeout_ms: u64,
    /// Tries of one call, the first included. Default: 5.
    pub max_tries: u32,
    /// The wait before the second try, in milliseconds; doubles with each. Default: 1 second (SCL-021).
    pub backoff_base_ms: u64,
}

/// Reads the name of the default model; an empty text names none.
fn read_default<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    Ok(Option::<String>::deserialize(deserializer)?.filter(|name| !name.trim().is_empty()))
}

impl Default for ModelsTable {
    fn default() -> Self {
        Self {
            default: None,
            roles: BTreeMap::new(),
            tiers: BTreeMap::new(),
            skills: BTreeMap::new(),
            effort: BTreeMap::new(),
            prices: BTreeMap::new(),
            fallback: Vec::new(),
            role_fallback: BTreeMap::new(),
            detect: true,
            request_timeout_ms: 120_000,
            answer_timeout_ms: 30 * 60 * 1000,
            max_tries: 5,
            backoff_base_ms: 1_000,
        }
    }
}

/// The wire format of a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProviderKind {
    /// Anthropic Messages.
    Anthropic,
    /// OpenAI Chat Completions, and every server that is compatible with it.
    #[serde(rename = "openai")]
    OpenAi,
    /// OpenAI Responses.
    #[serde(rename = "openai_responses")]
    OpenAiResponses,
    /// OpenRouter: OpenAI Chat Completions with its own headers and usage.
    #[serde(rename = "openrouter")]
    OpenRouter,
    /// Gemini, `streamGenerateContent` of version v1beta.
    Gemini,
    /// Ollama's own chat API.
    Ollama,
}

impl ProviderKind {
    /// Every format.
    pub const ALL: [Self; 6] =
        [Self::Anthropic, Self::OpenAi, Self::OpenAiResponses, Self::OpenRouter, Self::Gemini, Self::Ollama];
}

/// A table `[providers.NAME]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ProviderTable {
    /// The wire format: `anthropic`, `openai`, `openai_responses`, `openrouter`, `gemini` or `ollama`. Default: that of the well-known provider of this name.
    pub kind: Option<ProviderKind>,
    /// The URL that the format's paths are appended to, such as `http://127.0.0.1:8080/v1/`. Default: that
    /// of the well-known provider of this name.
    pub base_url: Option<String>,
    /// The key: `secret:NAME`, `env:NAME` or `vault://PATH#FIELD`. Default: the well-known provider's own
    /// variable, but only where `base_url` is its own too, so that no key goes to a foreign host unasked.
    pub api_key: Option<CredentialRef>,
    /// The most sensitive content that it may be sent. Default: `personal`.
    pub clearance: Clearance,
}
