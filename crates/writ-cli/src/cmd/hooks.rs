//! `writ hooks`: which there are, and what they say of cases. Nothing is performed.

use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use writ_inspect::gate::{HOOK, Hook, MAX_HOOKS};
use writ_inspect::show::escape_line;
use writ_types::entry::{GateVerdict, HookEvent};
use writ_types::error::Exit;

use crate::args::HooksCommand;
use crate::cmd::cases;
use crate::context::Context;
use crate::failure::Failure;

/// The most cases of one file: programs run for each.
const MAX_CASES: usize = 1_000;

/// The joined verdict of all hooks of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum HookVerdict {
    /// Also where they allow it: that opens nothing.
    #[serde(alias = "allow")]
    Abstain,
    Ask,
    Deny,
    Halt,
}

impl HookVerdict {
    const fn from_verdict(verdict: GateVerdict) -> Self {
        match verdict {
            // A hook cannot rewrite a text, so these count as no opinion.
            GateVerdict::Pass | GateVerdict::Advise | GateVerdict::Transform => Self::Abstain,
            GateVerdict::RequireApproval => Self::Ask,
            GateVerdict::Block => Self::Deny,
            GateVerdict::Halt => Self::Halt,
        }
    }

    /// The stricter the higher.
    const fn rank(self) -> u8 {
        match self {
            Self::Abstain => 0,
            Self::Ask => 1,
            Self::Deny => 2,
            Self::Halt => 3,
        }
    }
}

/// One case: a text, or an action as the ledger writes it, and what is expected of the hooks.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HookCase {
    name: String,
    on: HookEvent,
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    action: Option<Value>,
    #[serde(default)]
    tool: String,
    /// The arguments of the model's call.
    #[serde(default)]
    arguments: Option<Value>,
    expect: HookVerdict,
}

/// Runs `writ hooks …`.
pub(crate) fn run_hooks(context: &Context, command: &HooksCommand) -> Result<(), Failure> {
    let config = context.load_ready_config()?;
    match command {
        HooksCommand::List => {
            let listed: Vec<Value> = config.build_hooks().iter().map(hook_value).collect();
            context
                .out
                .print_either(&json!({ "hooks": listed, "most": MAX_HOOKS }), |_| describe_hooks(&listed))
        }
        HooksCommand::Test { file } => test_hooks(context, file),
    }
}

fn hook_value(hook: &Hook) -> Value {
    let config = &hook.config;
    json!({
        "name": config.name, "on": config.on, "run": config.run, "project": config.project, "tools": config.tools,
        "permissions": config.permissions, "timeout_ms": config.time_ms(), "critical": config.is_critical(),
        "digest": hook.digest(), "problem": hook.program.as_ref().err(),
    })
}

fn describe_hooks(listed: &[Value]) -> Vec<String> {
    if listed.is_empty() {
        return vec!["there are no hooks".to_owned()];
    }
    let line = |hook: &Value| {
        let text = |name: &str| hook.get(name).and_then(Value::as_str).map(escape_line).unwrap_or_default();
        let critical = if hook.get("critical") == Some(&json!(true)) { ", critical" } else { "" };
        let program = match text("problem") {
            problem if problem.is_empty() => text("digest"),
            problem => format!("NOT CALLED: {problem}"),
        };
        format!("{} at {} ({}{critical}): {program}", text("name"), text("on"), text("run"))
    };
    listed.iter().map(line).collect()
}

fn test_hooks(context: &Context, file: &Path) -> Result<(), Failure> {
    let cases = read_hook_cases(file)?;
    let params = |case: &HookCase| {
        json!({
            "on": case.on.gate_point(), "text": case.text.as_deref().unwrap_or_default(), "action": case.action,
            "tool": case.tool, "arguments": case.arguments,
        })
    };
    cases::judge_cases(context, &cases, params, compare_case, describe_result)
}

fn compare_case(case: &HookCase, judged: &Value) -> Value {
    let all = judged.get("gates").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let said = |gate: &Value| {
        // Gates are judged with the hooks; only hooks are compared here.
        let hook = gate.get("gate")?.as_str()?.strip_prefix(HOOK)?.to_owned();
        let verdict: GateVerdict = serde_json::from_value(gate.get("verdict")?.clone()).ok()?;
        Some((hook, HookVerdict::from_verdict(verdict), gate.get("reason").cloned().unwrap_or_default()))
    };
    let hooks: Vec<_> = all.iter().filter_map(said).collect();
    let worst =
        hooks.iter().map(|(_, word, _)| *word).max_by_key(|word| word.rank()).unwrap_or(HookVerdict::Abstain);
    let hooks: Vec<Value> = hooks
        .iter()
        .map(|(hook, word, why)| json!({ "hook": hook, "verdict": word, "reason": why }))
        .collect();
    json!({
        "case": case.name, "expected": case.expect, "verdict": worst, "hooks": hooks, "passed": worst == case.expect,
    })
}

fn describe_result(result: &Value) -> String {
    let text = |value: &Value, name: &str| {
        value.get(name).and_then(Value::as_str).map(escape_line).unwrap_or_default()
    };
    let hooks = result.get("hooks").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let said = |hook: &Value| {
        format!("{} says {}: {}", text(hook, "hook"), text(hook, "verdict"), text(hook, "reason"))
    };
    let said = hooks.iter().map(said).collect::<Vec<_>>().join("; ");
    let (name, verdict) = (text(result, "case"), text(result, "verdict"));
    if result.get("passed") == Some(&json!(true)) {
        format!("ok      {name}: {verdict} ({said})")
    } else {
        format!("FAILED  {name}: {verdict} ({said}), expected {}", text(result, "expected"))
    }
}

fn read_hook_cases(file: &Path) -> Result<Vec<HookCase>, Failure> {
    let (shown, cases) = (file.display(), cases::read_cases::<HookCase>(file, MAX_CASES, case_failure)?);
    for case in &cases {
        let (of_call, decides) = (case.on == HookEvent::BeforeToolCall, case.on.gate_point().is_some());
        // Only events that decide can be tested.
        if !decides || of_call != case.action.is_some() || of_call == case.text.is_some() {
            let text = format!(
                "case '{}' of {shown}: 'before_tool_call' has 'action', 'message_received' and 'response_generated' \
                 have 'text', and other events decide nothing",
                case.name
            );
            return Err(case_failure(&text));
        }
    }
    Ok(cases)
}

fn case_failure(text: &str) -> Failure {
    let hint = "a case has name, on, text or action (as `writ audit export` writes one), and expect";
    Failure::new(Exit::Usage, "hooks.cases", text, hint)
}
