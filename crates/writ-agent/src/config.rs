//! Settings of the turn machine, and the bounds of a turn.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use writ_types::error::{Exit, Report, ToReport};
use writ_types::unit::{ByteCount, Tokens};

use crate::repeat;

/// The settings of a turn. They travel in the event that opens it, so that a
/// turn is recovered with the settings that it began with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AgentConfig {
    /// The context's budgets and shares.
    pub context: ContextConfig,
    /// The limits of a turn.
    pub limits: TurnLimits,
}

/// Limits of the context.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ContextConfig {
    /// The whole budget, in estimated tokens. Default 180,000: below the 200,000 of common models.
    pub total_tokens: Tokens,
    /// The most that the system text and the tool descriptions may take. Default 8,000.
    pub system_max: Tokens,
    /// Above this share of `total_tokens` items are evicted. Default 0.80.
    pub eviction_threshold_pct: Share,
    /// Above this share of `total_tokens` a request is not made, where nothing more can be evicted; none: above the share of
    /// eviction.
    #[serde(skip)]
    pub hard_limit_pct: Option<Share>,
    /// The age in turns up to which tool results stay when room is scarce. Default 5 (SIL-075).
    pub observation_mask_after_turns: u32,
    /// Above this share of `total_tokens` the older part of the conversation is summarised before the next turn. Default
    /// 0.60 (WIN-351).
    pub compact_at_pct: Share,
    /// When a model writes the summary. Default `when_full`.
    pub summaries: Summaries,
    /// The profile used when none is named, or an unknown one. Default `conversation`.
    pub default_profile: String,
    /// Profiles of the owner's own, and changes to the built-in ones (see [`BUILT_IN_PROFILES`]). Default none.
    pub profiles: BTreeMap<String, Profile>,
}

/// The cases in which a model summarises the part of a conversation that leaves the context. In all others the harness notes
/// how much it was, with the beginnings of the person's messages, and no model is called.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Summaries {
    /// Never.
    Never,
    /// Where the conversation comes near the window of its model.
    #[default]
    WhenFull,
    /// Also where it only has more messages than `rehydration.max_chronicle_entries`.
    Always,
}

/// The shares of the budget for the zones that can be evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// The share of the history.
    pub chronicle_pct: Share,
    /// The share of what is remembered.
    pub memory_pct: Share,
    /// The share of plans and subscriptions.
    pub workspace_pct: Share,
}

/// The limits of a turn. No limit can be zero.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TurnLimits {
    /// Tool calls that are performed in one turn. Default 20.
    pub max_tool_calls_per_turn: u32,
    /// Model calls of one turn. Default 40: twice the tool calls, so that refused calls can be corrected.
    pub max_model_calls_per_turn: u32,
    /// Tool calls of one reply that are looked at; the rest is answered in one line. Default 32.
    pub max_calls_per_reply: u32,
    /// The largest arguments of one tool call, as canonical JSON. Default 256 KiB: more than any file that is edited as one.
    pub max_argument_bytes: ByteCount,
    /// The longest text of one tool result, in characters; more is cut with a mark. Default 100,000.
    pub max_result_chars: u32,
    /// Messages that one turn takes in beyond those that opened it. Default 16.
    pub max_absorbed_messages: u32,
    /// Equal calls with equal results, one after another, before the next is refused. Default 3, at most 8.
    pub max_identical_calls: u32,
    /// The most tokens of one answer. Default 8,192.
    pub max_output_tokens: Tokens,
    /// The longest that a turn may take, in seconds. Default 3,600.
    pub max_turn_secs: u32,
}

/// A share of a whole, from 0 to 1, stored in hundredths of a per cent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Share(u32);

/// A number that is no share.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("{0} is not a share: it must lie between 0.0 and 1.0")]
pub struct NotAShare(pub f64);

/// An error in the settings.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AgentConfigError {
    /// A limit is zero.
    #[error("{key} must not be 0")]
    Zero {
        /// The key.
        key: &'static str,
    },
    /// A limit is above what the machine can keep track of.
    #[error("{key} must not be above {most}")]
    TooLarge {
        /// The key.
        key: &'static str,
        /// The largest value allowed.
        most: u64,
    },
    /// The shares of a profile leave too little for the rest.
    #[error("the shares of context profile '{profile}' add up to more than 0.80")]
    ProfileSum {
        /// The profile.
        profile: String,
    },
    /// The default profile does not exist.
    #[error("context.default_profile names the unknown profile '{profile}'")]
    UnknownProfile {
        /// The name.
        profile: String,
    },
    /// The system zone alone would be evicted.
    #[error("context.system_max must be below context.total_tokens times context.eviction_threshold_pct")]
    SystemAboveThreshold,
}

/// The profiles that always exist: name and shares of chronicle, memory and
/// workspace in per cent (requirement SIL-072).
pub const BUILT_IN_PROFILES: [(&str, Profile); 5] = [
    ("conversation", Profile::of_percent(45, 20, 15)),
    ("coding", Profile::of_percent(20, 20, 40)),
    ("research", Profile::of_percent(20, 40, 20)),
    ("support", Profile::of_percent(40, 25, 15)),
    ("planning", Profile::of_percent(15, 25, 35)),
];

/// The most that the shares of one profile may add up to: the rest absorbs the error of the estimate.
pub const MAX_PROFILE_SUM: Share = Share::of_percent(80);

// === impl Config ===

impl AgentConfig {
    /// Checks what the types cannot.
    ///
    /// # Errors
    ///
    /// For the first setting that is out of range, naming it.
    pub fn validate_config(&self) -> Result<(), AgentConfigError> {
        self.context.validate_context()?;
        self.limits.validate_limits()
    }

    /// Returns these settings for a model that takes at most `room` estimated tokens, request and answer
    /// together: at least [`MIN_ROOM`], so that the remaining space is usable.
    #[must_use]
    pub fn narrow_to(&self, room: Tokens) -> Self {
        let mut narrow = self.clone();
        // A smaller room would leave no space for a message beside the system text.
        let room = room.max(MIN_ROOM);
        let ContextConfig { total_tokens, system_max, eviction_threshold_pct, hard_limit_pct, .. } =
            &mut narrow.context;
        *total_tokens = room.min(*total_tokens);
        *eviction_threshold_pct = NARROWED_THRESHOLD.min(*eviction_threshold_pct);
        *hard_limit_pct = None;
        let threshold = eviction_threshold_pct.share_of(*total_tokens);
        *system_max = NARROWED_SYSTEM.share_of(threshold).min(*system_max).max(Tokens::new(1));
        // The answer gets what the eviction threshold leaves, so that both together fit.
        let answer = room.saturating_sub(NARROWED_THRESHOLD.share_of(room));
        narrow.limits.max_output_tokens = answer.min(narrow.limits.max_output_tokens);
        narrow
    }
}

/// The real tokens for 1,000 estimated ones that a correction assumes at least and at most: beyond them, something else is
/// wrong with the provider's figures.
pub const CORRECTION_BOUNDS: (u32, u32) = (800, 4_000);

impl AgentConfig {
    /// Returns these settings for a model that reads so many tokens for every 1,000 estimated ones: budgets are in estimated
    /// tokens, so they shrink where the estimate is too low. The bound of the system texts stays as far as there is
    /// room: it is for their owner, and a figure of a provider must not make them too large. Values beyond [`CORRECTION_BOUNDS`] count as the nearest bound.
    #[must_use]
    pub fn correct_estimates(&self, real_per_1000: u32) -> Self {
        let real = u64::from(real_per_1000.clamp(CORRECTION_BOUNDS.0, CORRECTION_BOUNDS.1));
        let total = self.context.total_tokens.get().saturating_mul(1_000) / real;
        let mut corrected = self.clone();
        corrected.context.total_tokens = Tokens::new(total).max(MIN_ROOM.min(self.context.total_tokens));
        let threshold = corrected.context.eviction_threshold();
        // Below it, as settings have to be: with an equal one no turn could begin.
        let most = threshold.saturating_sub(Tokens::new(1));
        corrected.context.system_max = self.context.system_max.min(most).max(Tokens::new(1));
        corrected
    }
}

/// The least room that settings are narrowed to, in estimated tokens.
pub const MIN_ROOM: Tokens = Tokens::new(2_048);

/// The share of a model's window that a request may fill; the rest is for the answer.
const NARROWED_THRESHOLD: Share = Share::of_percent(80);

/// The share of that which system texts and tool descriptions may fill.
const NARROWED_SYSTEM: Share = Share::of_percent(90);

// === impl ContextConfig ===

impl Default for ContextConfig {
    fn default() -> Self {
        Self {
            total_tokens: Tokens::new(180_000),
            system_max: Tokens::new(8_000),
            eviction_threshold_pct: Share::of_percent(80),
            hard_limit_pct: None,
            observation_mask_after_turns: 5,
            compact_at_pct: Share::of_percent(60),
            summaries: Summaries::default(),
            default_profile: "conversation".to_owned(),
            profiles: BTreeMap::new(),
        }
    }
}

impl ContextConfig {
    /// Checks what the types cannot.
    ///
    /// # Errors
    ///
    /// For the first setting that is out of range, naming it.
    pub fn validate_context(&self) -> Result<(), AgentConfigError> {
        for (key, value) in [
            ("context.total_tokens", self.total_tokens.get()),
            ("context.system_max", self.system_max.get()),
            ("context.eviction_threshold_pct", u64::from(self.eviction_threshold_pct.0)),
            ("context.observation_mask_after_turns", u64::from(self.observation_mask_after_turns)),
            ("context.compact_at_pct", u64::from(self.compact_at_pct.0)),
        ] {
            if value == 0 {
                return Err(AgentConfigError::Zero { key });
            }
        }
        for (name, profile) in &self.profiles {
            // Shares may add up to less than the whole: the rest belongs to the current turn.
            if profile.sum_shares() > MAX_PROFILE_SUM {
                return Err(AgentConfigError::ProfileSum { profile: name.clone() });
            }
        }
        if self.find_profile(&self.default_profile).is_none() {
            return Err(AgentConfigError::UnknownProfile { profile: self.default_profile.clone() });
        }
        if self.system_max >= self.eviction_threshold() {
            return Err(AgentConfigError::SystemAboveThreshold);
        }
        Ok(())
    }

    /// Returns true if there is a profile with this name.
    pub fn has_profile(&self, name: &str) -> bool {
        self.find_profile(name).is_some()
    }

    /// The profile with this name, else the default one.
    pub fn profile_named(&self, name: &str) -> Profile {
        let fallback = Profile::of_percent(45, 20, 15);
        self.find_profile(name).or_else(|| self.find_profile(&self.default_profile)).unwrap_or(fallback)
    }

    /// The number of tokens above which items are evicted.
    pub fn eviction_threshold(&self) -> Tokens {
        self.eviction_threshold_pct.share_of(self.total_tokens)
    }

    /// The number of tokens above which a request is not made.
    pub fn hard_limit(&self) -> Tokens {
        let evicted = self.eviction_threshold();
        self.hard_limit_pct.map_or(evicted, |share| share.share_of(self.total_tokens).max(evicted))
    }

    fn find_profile(&self, name: &str) -> Option<Profile> {
        let built_in =
            || BUILT_IN_PROFILES.iter().find(|(known, _)| *known == name).map(|(_, profile)| *profile);
        self.profiles.get(name).copied().or_else(built_in)
    }
}

// === impl Profile ===

impl Profile {
    /// A profile from whole per cents; each is capped at 100.
    pub const fn of_percent(chronicle: u32, memory: u32, workspace: u32) -> Self {
        Self {
            chronicle_pct: Share::of_percent(chronicle),
            memory_pct: Share::of_percent(memory),
            workspace_pct: Share::of_percent(workspace),
        }
    }

    const fn sum_shares(self) -> Share {
        Share(self.chronicle_pct.0 + self.memory_pct.0 + self.workspace_pct.0)
    }
}

// === impl Limits ===

impl Default for TurnLimits {
    fn default() -> Self {
        Self {
            max_tool_calls_per_turn: 20,
            max_model_calls_per_turn: 40,
            max_calls_per_reply: 32,
            max_argument_bytes: ByteCount::new(256 * 1024),
            max_result_chars: 100_000,
            max_absorbed_messages: 16,
            max_identical_calls: 3,
            max_output_tokens: Tokens::new(8_192),
            max_turn_secs: 3_600,
        }
    }
}

impl TurnLimits {
    /// Checks that no limit is zero or beyond what the machine keeps track of.
    ///
    /// # Errors
    ///
    /// For the first limit that is out of range, naming it.
    pub fn validate_limits(&self) -> Result<(), AgentConfigError> {
        for (key, value) in [
            ("limits.max_tool_calls_per_turn", u64::from(self.max_tool_calls_per_turn)),
            ("limits.max_model_calls_per_turn", u64::from(self.max_model_calls_per_turn)),
            ("limits.max_calls_per_reply", u64::from(self.max_calls_per_reply)),
            ("limits.max_argument_bytes", self.max_argument_bytes.get()),
            ("limits.max_result_chars", u64::from(self.max_result_chars)),
            ("limits.max_absorbed_messages", u64::from(self.max_absorbed_messages)),
            ("limits.max_identical_calls", u64::from(self.max_identical_calls)),
            ("limits.max_output_tokens", self.max_output_tokens.get()),
            ("limits.max_turn_secs", u64::from(self.max_turn_secs)),
        ] {
            if value == 0 {
                return Err(AgentConfigError::Zero { key });
            }
        }
        if self.max_identical_calls > repeat::MAX_IDENTICAL {
            let most = u64::from(repeat::MAX_IDENTICAL);
            return Err(AgentConfigError::TooLarge { key: "limits.max_identical_calls", most });
        }
        Ok(())
    }
}

// === impl Share ===

impl Share {
    /// The whole, in hundredths of a per cent.
    const WHOLE: u32 = 10_000;

    /// A share from whole per cents, capped at 100.
    pub const fn of_percent(percent: u32) -> Self {
        if percent > 100 { Self(Self::WHOLE) } else { Self(percent * 100) }
    }

    /// Returns true if a part is this share of a whole, or more. A whole of zero has no part that is not.
    pub fn is_reached_by(self, part: Tokens, whole: Tokens) -> bool {
        // Multiplied instead of divided: the whole may be zero, and nothing is rounded.
        u128::from(part.get()) * u128::from(Self::WHOLE) >= u128::from(whole.get()) * u128::from(self.0)
    }

    /// This share of a number of tokens, rounded down.
    pub fn share_of(self, whole: Tokens) -> Tokens {
        // The product of two 64-bit values needs 128 bits.
        let part = u128::from(whole.get()) * u128::from(self.0) / u128::from(Self::WHOLE);
        Tokens::new(u64::try_from(part).unwrap_or(u64::MAX))
    }
}

impl TryFrom<f64> for Share {
    type Error = NotAShare;

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the value lies between 0 and 10,000"
    )]
    fn try_from(value: f64) -> Result<Self, NotAShare> {
        if (0.0..=1.0).contains(&value) {
            Ok(Self((value * f64::from(Self::WHOLE)).round() as u32))
        } else {
            Err(NotAShare(value))
        }
    }
}

impl From<Share> for f64 {
    fn from(share: Share) -> Self {
        Self::from(share.0) / Self::from(Share::WHOLE)
    }
}

// === impl ConfigError ===

impl ToReport for AgentConfigError {
    fn report(&self) -> Report {
        Report::new(Exit::Config, "agent.config", self.to_string())
            .with_hint("correct the value in the configuration; `writ config check` shows the file and line")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(json: &str) -> Result<Profile, serde_json::Error> {
        serde_json::from_str(json)
    }

    /// Rows: SIL-256 SIL-257
    /// Rows: SF-301 (in part: the built-in defaults)
    #[test]
    fn absent_keys_give_the_documented_defaults() {
        let config: AgentConfig = serde_json::from_str("{}").expect("parses");
        assert_eq!(config.context.total_tokens, Tokens::new(180_000));
        assert_eq!(config.context.system_max, Tokens::new(8_000));
        assert_eq!(config.context.eviction_threshold(), Tokens::new(144_000));
        assert_eq!(config.limits.max_tool_calls_per_turn, 20);
        assert_eq!(config.validate_config(), Ok(()));
        let error =
            serde_json::from_str::<AgentConfig>(r#"{"limits":{"max_tools":3}}"#).expect_err("unknown key");
        assert!(error.to_string().contains("max_tools"), "{error}");
    }

    /// Rows: SIL-262 SIL-072 (in part: a share that is missing)
    #[test]
    fn shares_outside_their_range_are_refused() {
        let sum = |json| {
            let mut config = ContextConfig::default();
            config.profiles.insert("mine".to_owned(), profile(json).expect("parses"));
            config.validate_context()
        };
        assert_eq!(sum(r#"{"chronicle_pct":0.4,"memory_pct":0.25,"workspace_pct":0.15}"#), Ok(()));
        assert_eq!(
            sum(r#"{"chronicle_pct":0.41,"memory_pct":0.25,"workspace_pct":0.15}"#),
            Err(AgentConfigError::ProfileSum { profile: "mine".to_owned() })
        );
        assert!(profile(r#"{"chronicle_pct":-0.1,"memory_pct":0.25,"workspace_pct":0.15}"#).is_err());
        assert!(profile(r#"{"chronicle_pct":1.1,"memory_pct":0.25,"workspace_pct":0.15}"#).is_err());
        assert!(profile(r#"{"chronicle_pct":0.1,"memory_pct":0.25}"#).is_err());
    }

    /// Rows: SIL-071 (in part: an unknown name falls back)
    /// Rows: SIL-073 (in part: the sum of the shares of every built-in profile)
    #[test]
    fn every_built_in_profile_is_valid_and_an_unknown_name_falls_back() {
        for (name, profile) in BUILT_IN_PROFILES {
            assert!(profile.sum_shares() <= MAX_PROFILE_SUM, "{name}");
        }
        let config = ContextConfig::default();
        let share = |name: &str| config.profile_named(name).chronicle_pct.share_of(config.total_tokens).get();
        assert_eq!((share("conversation"), share("coding"), share("planning")), (81_000, 36_000, 27_000));
        assert_eq!(share("no such profile"), 81_000);
        let config = ContextConfig { default_profile: "none".to_owned(), ..config };
        assert_eq!(
            config.validate_context(),
            Err(AgentConfigError::UnknownProfile { profile: "none".to_owned() })
        );
    }

    /// Rows: SCL-032
    #[test]
    fn a_limit_of_zero_is_refused() {
        let with = |json: &str| serde_json::from_str::<AgentConfig>(json).expect("parses").validate_config();
        for key in [
            "max_tool_calls_per_turn",
            "max_model_calls_per_turn",
            "max_calls_per_reply",
            "max_argument_bytes",
            "max_result_chars",
            "max_absorbed_messages",
            "max_identical_calls",
            "max_output_tokens",
            "max_turn_secs",
        ] {
            let json = format!(r#"{{"limits":{{"{key}":0}}}}"#);
            let error = with(json.as_str()).expect_err(key);
            assert_eq!(error.to_string(), format!("limits.{key} must not be 0"));
            assert_eq!(error.report().exit, Exit::Config);
        }
        assert!(with(r#"{"limits":{"max_identical_calls":9}}"#).is_err());
        assert!(with(r#"{"context":{"total_tokens":0}}"#).is_err());
        assert_eq!(with(r#"{"context":{"system_max":144000}}"#), Err(AgentConfigError::SystemAboveThreshold));
    }
}
