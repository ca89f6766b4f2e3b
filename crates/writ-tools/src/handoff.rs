//! `plan` and `escalate`: requests to other agents of the harness, which itself answers them.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use writ_types::action::ActionKind;

use crate::arguments::{check_arguments, invalid_arguments, no_nul, parse_arguments};
use crate::def::{ActionDraft, AgentRole, OutputKind, PathState, ToolContext, ToolDef, needs_nothing};
use crate::error::ToolError;
use crate::schema::schema_of;

/// The longest request, in bytes: a page.
pub const MAX_REQUEST_BYTES: usize = 8_000;

pub(crate) static PLAN: ToolDef = ToolDef {
    name: "plan",
    description: "Hands a task that needs many steps to the planner: it reads, writes a plan with checks, and asks the user once. \
                  Not for what you can do in a few calls. Afterwards say only that a plan is being made.",
    usage: r#"{"request": "Refactor the parser so that all tests pass", "reason": "many files"}"#,
    sinks: &[],
    idempotent: false,
    output: OutputKind::Confirmation,
    actions: &[ActionKind::Plan],
    roles: &[AgentRole::Proxy],
    schema: schema_of::<PlanRequestArgs>,
    needs: needs_nothing,
    prepare: refuse_action,
};

pub(crate) static ESCALATE: ToolDef = ToolDef {
    name: "escalate",
    description: "Asks a stronger model one question when you are at a loss. It sees only what you write.",
    usage: r#"{"question": "Why does this type not satisfy the bound? …"}"#,
    sinks: &[],
    idempotent: true,
    output: OutputKind::Confirmation,
    actions: &[ActionKind::ModelCall],
    roles: &[AgentRole::Executor],
    schema: schema_of::<EscalateArgs>,
    needs: needs_nothing,
    prepare: refuse_action,
};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PlanRequestArgs {
    /// The task in full.
    request: String,
    /// Why it needs a plan.
    reason: String,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct EscalateArgs {
    question: String,
}

/// A request to another agent of the harness.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Handoff {
    /// The planner makes a plan.
    Plan {
        /// The task.
        request: String,
        /// The reason for a plan.
        reason: String,
    },
    /// The oracle answers.
    Escalate {
        /// The question.
        question: String,
    },
}

impl Handoff {
    /// Returns true if a tool hands something to another agent of the harness.
    pub fn is_handoff(name: &str) -> bool {
        name == PLAN.name || name == ESCALATE.name
    }

    /// Reads a call; none if its tool is another one.
    ///
    /// # Errors
    ///
    /// Everything that is wrong with its arguments.
    pub fn read_handoff(name: &str, arguments: &Value) -> Result<Option<Self>, ToolError> {
        if name == PLAN.name {
            let args: PlanRequestArgs = parse_arguments(&PLAN, &check_arguments(&PLAN, arguments)?)?;
            check_text(&PLAN, "request", &args.request)?;
            check_text(&PLAN, "reason", &args.reason)?;
            return Ok(Some(Self::Plan { request: args.request, reason: args.reason }));
        }
        if name == ESCALATE.name {
            let args: EscalateArgs = parse_arguments(&ESCALATE, &check_arguments(&ESCALATE, arguments)?)?;
            check_text(&ESCALATE, "question", &args.question)?;
            return Ok(Some(Self::Escalate { question: args.question }));
        }
        Ok(None)
    }
}

fn check_text(tool: &'static ToolDef, name: &str, text: &str) -> Result<(), ToolError> {
    no_nul(tool, name, text)?;
    if text.trim().is_empty() || text.len() > MAX_REQUEST_BYTES {
        return Err(invalid_arguments(tool, &format!("'{name}' has 1 to {MAX_REQUEST_BYTES} bytes")));
    }
    Ok(())
}

/// The harness answers itself: there is no action to prepare.
fn refuse_action(_: &Value, _: Option<&PathState>, _: &ToolContext<'_>) -> Result<ActionDraft, ToolError> {
    Err(invalid_arguments(&PLAN, "it is answered within a turn only"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn handoffs_are_read_and_bounded() {
        let read = |name: &str, arguments: Value| Handoff::read_handoff(name, &arguments);
        let plan = Handoff::Plan { request: "a".into(), reason: "b".into() };
        assert_eq!(read("plan", json!({"request": "a", "reason": "b"})).expect("is read"), Some(plan));
        let ask = Handoff::Escalate { question: "why".into() };
        assert_eq!(read("escalate", json!({"question": "why"})).expect("is read"), Some(ask));
        assert_eq!(read("shell_exec", json!({})).expect("another tool"), None);
        for (name, wrong) in [
            ("plan", json!({"request": "a"})),
            ("plan", json!({"request": " ", "reason": "b"})),
            ("plan", json!({"request": "a".repeat(MAX_REQUEST_BYTES + 1), "reason": "b"})),
            ("escalate", json!({"question": "a\u{0}"})),
            ("escalate", json!({"question": 7, "more": 1})),
        ] {
            assert!(read(name, wrong.clone()).is_err(), "{name}");
        }
    }
}
