//! The owner's configuration of gates: `[[gates]]`, and `[escalations.NAME]` for the time after a block.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use writ_types::entry::GatePoint;

/// The most gates of one configuration.
pub const MAX_GATES: usize = 100;
/// The most escalations of one configuration.
pub const MAX_ESCALATIONS: usize = 100;
/// The longest script of a gate, in bytes: what is longer belongs into a program that it calls.
pub const MAX_SCRIPT_BYTES: usize = 16 * 1024;
/// The longest time that a script may take, in milliseconds: a person waits for it.
pub const MAX_SCRIPT_MS: u64 = 60_000;
/// The default time limit of a script, in milliseconds.
pub const SCRIPT_MS: u64 = 10_000;
/// The most repetitions of a step after a gate has blocked it: each costs a run or a model call.
pub const MAX_ATTEMPTS: u32 = 3;
/// The default number of repetitions.
pub const ATTEMPTS: u32 = 2;

// tidy: plain state
/// One gate of the configuration: `[[gates]]`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GateConfig {
    /// Its name, shown when it acts.
    pub name: String,
    /// The point: `input`, `output`, `execution` or `access`.
    pub on: Point,
    /// The judge.
    pub provider: GateProvider,
    /// The right to stop something. Default: `policy`; a model always has `quality`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lane: Option<Lane>,
    /// `predicate`: texts that trigger it. White space in them matches any white space.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub contains: Vec<String>,
    /// Upper and lower case count as the same.
    #[serde(default)]
    pub ignore_case: bool,
    /// `predicate` and `regex`: an expression that triggers it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pattern: Option<String>,
    /// `predicate`: the least that a number may be. What is no number triggers it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min: Option<f64>,
    /// `predicate`: the most that a number may be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<f64>,
    /// `predicate`: folders that files must lie below. One elsewhere triggers it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub below: Vec<String>,
    /// `predicate`: the endings that names of files may have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extensions: Vec<String>,
    /// `predicate`: the most bytes that a file may be written with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<u64>,
    /// The part of an action to look at, such as `argv`; none: all texts of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// Names of tools that it judges; empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<String>,
    /// `guard`: names of checks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<String>,
    /// `script`: what `/bin/sh` runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub script: Option<String>,
    /// `script`: how long it may take, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// `llm`: what the model is to look at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// A judge that would only advise, a model or the list of `detect_jailbreak`, blocks.
    #[serde(default)]
    pub promote_to_policy: bool,
    /// The consequence of a finding.
    #[serde(default)]
    pub action: GateAction,
    /// The text that replaces the original, for `replace`.
    #[serde(default)]
    pub replacement: String,
    /// The text for the user.
    #[serde(default)]
    pub reason: String,
    /// The escalation after a block: a name of `[escalations]`, or a built-in one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_block: Option<String>,
}

/// The point of a gate, as it is configured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Point {
    /// On what people say.
    #[default]
    Input,
    /// On what the agent says.
    Output,
    /// Before an action is performed, on all of it.
    Execution,
    /// Before an action is performed, on what it touches.
    Access,
}

impl From<Point> for GatePoint {
    fn from(point: Point) -> Self {
        match point {
            Point::Input => Self::Input,
            Point::Output => Self::Output,
            Point::Execution => Self::Execution,
            Point::Access => Self::Access,
        }
    }
}

/// The judge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GateProvider {
    /// Fixed texts, an expression, a range, files: deterministic.
    #[default]
    Predicate,
    /// An expression: deterministic.
    Regex,
    /// Checks under the names of known validators: deterministic.
    #[serde(alias = "guardrails_ai")]
    Guard,
    /// A script in the sandbox.
    Script,
    /// A model: not deterministic.
    Llm,
}

/// The right of a gate to stop something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lane {
    /// It may.
    Policy,
    /// It only advises.
    Quality,
}

/// The consequence of a finding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GateAction {
    /// Stops it.
    #[default]
    Block,
    /// Replaces what triggered it.
    Replace,
    /// Asks a person whether it may go on as it is.
    Ask,
}

/// The configured sequel of a block: `[escalations.NAME]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EscalationConfig {
    /// The kind of sequel.
    pub action: EscalationAction,
    /// `respond`: the text for the person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// `transfer_to_queue`: the queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// `retry` and `suppress_and_rephrase`: how often it is done again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempts: Option<u32>,
}

/// A sequel of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EscalationAction {
    /// The turn ends with a fixed text.
    Respond,
    /// The block is recorded and shown.
    Report,
    /// A person decides.
    EscalateHuman,
    /// The case is put into a queue.
    TransferToQueue,
    /// The answer is withheld and worded anew.
    SuppressAndRephrase,
    /// The step is done again.
    Retry,
    /// A follow-up task is noted; a person decides whether it is ever begun.
    SpawnTask,
}

impl EscalationAction {
    /// Every action, in the order of the design.
    pub const ALL: [Self; 7] = [
        Self::Respond,
        Self::Report,
        Self::EscalateHuman,
        Self::TransferToQueue,
        Self::SuppressAndRephrase,
        Self::Retry,
        Self::SpawnTask,
    ];

    /// Its name in the configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Respond => "respond",
            Self::Report => "report",
            Self::EscalateHuman => "escalate_human",
            Self::TransferToQueue => "transfer_to_queue",
            Self::SuppressAndRephrase => "suppress_and_rephrase",
            Self::Retry => "retry",
            Self::SpawnTask => "spawn_task",
        }
    }
}

/// The escalations of a configuration, by name.
pub type EscalationConfigs = BTreeMap<String, EscalationConfig>;

/// A configuration that cannot stand.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GateError {
    /// Too many gates or escalations.
    #[error("{0} gates or escalations; the limit is {MAX_GATES}")]
    TooMany(usize),
    /// The name is empty or taken.
    #[error("gate {0}: the name is empty or used twice")]
    Name(String),
    /// It triggers on nothing, or on everything.
    #[error("gate '{name}': {needs}")]
    Empty {
        /// The gate.
        name: String,
        /// The missing part.
        needs: &'static str,
    },
    /// A setting that means nothing for its provider, or where it stands.
    #[error("gate '{name}': '{key}' {why}")]
    Misplaced {
        /// The gate.
        name: String,
        /// The setting.
        key: &'static str,
        /// The reason.
        why: &'static str,
    },
    /// A setting of a hook that cannot stand.
    #[error("hook '{name}': '{key}' {why}")]
    Hook {
        /// The hook.
        name: String,
        /// The setting.
        key: &'static str,
        /// The reason.
        why: &'static str,
    },
    /// The program of a hook cannot be had.
    #[error("hook '{name}': {why}")]
    Program {
        /// The hook.
        name: String,
        /// The reason.
        why: String,
    },
    /// An expression that is none, or is too large.
    #[error("gate '{name}': 'pattern' is not valid: {why}")]
    Pattern {
        /// The gate.
        name: String,
        /// The defect.
        why: String,
    },
    /// A range that holds no number.
    #[error("gate '{0}': no number lies between 'min' and 'max'")]
    Range(String),
    /// A check that is not known.
    #[error("gate '{name}': there is no check '{check}'; there are {known}")]
    Check {
        /// The gate.
        name: String,
        /// The named check.
        check: String,
        /// The available checks.
        known: String,
    },
    /// `on_block` names nothing.
    #[error(
        "gate '{name}': 'on_block' names '{key}', which neither [escalations] nor the built-in ones know"
    )]
    Escalation {
        /// The gate.
        name: String,
        /// The named setting.
        key: String,
    },
    /// An escalation that cannot stand.
    #[error("escalation '{key}': {why}")]
    BadEscalation {
        /// Its name.
        key: String,
        /// The defect.
        why: &'static str,
    },
}
