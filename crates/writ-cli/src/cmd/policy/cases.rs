//! Cases of `writ policy test`.

use std::path::Path;

use serde::Deserialize;
use serde_json::{Value, json};
use writ_inspect::prepared::Prepared;
use writ_inspect::show::escape_line;
use writ_types::action::Action;
use writ_types::error::Exit;
use writ_types::taint::{Label, Taint};

use super::{VerdictText, rule_facts};
use crate::cmd::cases;
use crate::config::policies;
use crate::context::Context;
use crate::failure::Failure;

/// The most cases of one file.
const MAX_CASES: usize = 10_000;

/// One case: an action as the ledger writes it, what it rests on, and what the rules are expected to say.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleCase {
    name: String,
    action: Value,
    #[serde(default = "owner_taint")]
    taint: Taint,
    #[serde(default)]
    tool: String,
    /// True if the owner approved this kind in advance.
    #[serde(default)]
    preapproved: bool,
    /// True if the owner's own words name the sources that it reads.
    #[serde(default)]
    owned: bool,
    expect: Expect,
    /// The rules that are expected to decide; without them, any may.
    #[serde(default)]
    rules: Option<Vec<String>>,
}

const fn owner_taint() -> Taint {
    Taint::Owner
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Expect {
    Permit,
    Ask,
    Forbid,
}

impl Expect {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Permit => "permit",
            Self::Ask => "ask",
            Self::Forbid => "forbid",
        }
    }
}

/// Judges every case; ends with 8 if one is not as expected.
pub(super) fn test_rules(context: &Context, file: &Path, project: Option<&Path>) -> Result<(), Failure> {
    let config = context.load_ready_config()?;
    let rules = policies::load_rules(&context.home, project)?;
    let mut results = Vec::new();
    for case in cases::read_cases::<RuleCase>(file, MAX_CASES, case_failure)? {
        let action: Action = serde_json::from_value(case.action.clone()).map_err(|error| {
            let text = format!("case '{}' of {}: 'action': {error}", case.name, file.display());
            case_failure(&text)
        })?;
        let standing = rule_facts(&config, &action, (case.preapproved, case.owned));
        let said = VerdictText::of_verdict(
            rules.judge_rules(&prepare_case(&config.general.agent, &case, action), standing),
        );
        let found: Vec<String> = said.rules.iter().cloned().collect();
        let as_expected = said.outcome == case.expect.as_str()
            // A case may leave out the rules; then the outcome alone counts.
            && case.rules.as_ref().is_none_or(|rules| {
                let mut rules = rules.clone();
                rules.sort();
                rules == found
            });
        results.push(json!({
            "case": case.name, "expected": case.expect.as_str(), "outcome": said.outcome, "rules": found,
            "passed": as_expected,
        }));
    }
    cases::print_results(context, &results, describe_result)
}

fn describe_result(result: &Value) -> String {
    let text = |name: &str| result.get(name).and_then(Value::as_str).map(escape_line).unwrap_or_default();
    let rules: Vec<&str> = result
        .get("rules")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let by = if rules.is_empty() { String::new() } else { format!(" ({})", escape_line(&rules.join(", "))) };
    let (name, outcome) = (text("case"), text("outcome"));
    if result.get("passed") == Some(&json!(true)) {
        format!("ok      {name}: {outcome}{by}")
    } else {
        format!("FAILED  {name}: {outcome}{by}, expected {}", text("expected"))
    }
}

fn prepare_case(agent: &str, case: &RuleCase, action: Action) -> Prepared {
    let kind = action.kind().as_str();
    Prepared {
        action,
        agent: agent.to_owned(),
        session: None,
        turn: None,
        turn_number: 0,
        call: None,
        tool: if case.tool.is_empty() { kind.to_owned() } else { case.tool.clone() },
        sinks: Vec::new(),
        label: Label::new(case.taint),
        bindings: Default::default(),
        idempotent: false,
        intent: case.name.clone(),
    }
}

fn case_failure(text: &str) -> Failure {
    let hint =
        "a case has name, action (as `writ audit export` writes one), taint, expect and, if you like, rules";
    Failure::new(Exit::Usage, "policy.cases", text, hint)
}
