//! Gates: answers to those that ask, and cases that are only judged.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::action::Action;
use crate::entry::{Decision, GatePoint, GateVerdict};
use crate::id::{AskId, SessionId};

/// A person's answer to a gate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GateDecision {
    /// The ask of the gate.
    pub ask: AskId,
    /// Yes or no.
    pub decision: Decision,
    /// The reason, in the person's words.
    #[serde(default)]
    pub reason: String,
    /// The answers to its fields, by name.
    #[serde(default)]
    pub answers: BTreeMap<String, String>,
}

/// The receipt for an answer to a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GateReceipt {
    /// False: no gate asks under this id.
    pub answered: bool,
}

/// A case for gates: a text at input or output, or an action at execution or access.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GateCase {
    /// The session of the cases before it; none opens one, which the caller closes.
    #[serde(default)]
    pub session: Option<SessionId>,
    /// The point of judgement.
    pub on: GatePoint,
    /// The text.
    #[serde(default)]
    pub text: String,
    /// The action.
    #[serde(default)]
    pub action: Option<Action>,
    /// The tool that the action comes from; empty stands for its kind.
    #[serde(default)]
    pub tool: String,
    /// The arguments of the model's call.
    #[serde(default)]
    pub arguments: Option<Value>,
}

/// The verdict of the gates on a case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CaseVerdict {
    /// The session.
    pub session: SessionId,
    /// The strictest verdict.
    pub verdict: GateVerdict,
    /// The text that goes on; none if it was blocked or waits for a person.
    pub text: Option<String>,
    /// The arguments that the tool would be called with instead.
    pub arguments: Option<Value>,
    /// The escalation that would follow the block.
    pub after: Option<Value>,
    /// The verdict of each hook and gate, in order.
    pub gates: Vec<OneVerdict>,
}

/// The verdict of one hook or gate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OneVerdict {
    /// Its name.
    pub gate: String,
    /// The verdict.
    pub verdict: GateVerdict,
    /// The reason.
    pub reason: String,
}
