//! `writ policy`: the rules by themselves. No engine is needed; keys, labels, budget and approvals come on top of them.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Value, json};
use writ_inspect::prepared::Prepared;
use writ_inspect::reach;
use writ_inspect::show::escape_line;
use writ_policy::rules::{RuleFacts, RuleSet, RuleVerdict};
use writ_store::store::Store;
use writ_types::action::Action;
use writ_types::entry::Fact;
use writ_types::error::Exit;
use writ_types::id::EntrySeq;

use crate::args::PolicyCommand;
use crate::config::{Config, policies};
use crate::context::Context;
use crate::failure::Failure;
use crate::ledger::open_to_read;

mod cases;
mod shadow;
mod suggest;

/// Runs `writ policy …`.
pub(crate) fn run_policy(context: &Context, command: &PolicyCommand) -> Result<(), Failure> {
    match command {
        PolicyCommand::Check { project } => check_rules(context, project.as_deref()),
        PolicyCommand::Explain { entry } => explain_entry(context, *entry),
        PolicyCommand::Suggest { since } => suggest::run_suggest(context, *since),
        PolicyCommand::Shadow { since } => shadow::show_shadow(context, *since),
        PolicyCommand::Promote { name } => shadow::promote_set(context, name),
        PolicyCommand::Test { file, project } => cases::test_rules(context, file, project.as_deref()),
    }
}

fn check_rules(context: &Context, project: Option<&Path>) -> Result<(), Failure> {
    let sources = policies::read_sources(&context.home, project)?;
    let rules = policies::load_rules(&context.home, project)?;
    let origins: Vec<&str> = sources.iter().map(|source| source.origin.as_str()).collect();
    let ids: Vec<String> = rules.rule_ids();
    let result = json!({ "valid": true, "digest": rules.digest(), "files": origins, "rules": ids });
    context.out.print_either(&result, |_| {
        let mut lines = vec![format!("the rules are valid: {} rules, digest {}", ids.len(), rules.digest())];
        lines.extend(origins.iter().map(|origin| format!("  {}", escape_line(origin))));
        lines
    })
}

/// The verdict of a rule set about an action.
struct VerdictText {
    outcome: &'static str,
    rules: BTreeSet<String>,
    reasons: BTreeSet<String>,
}

impl VerdictText {
    fn of_verdict(verdict: RuleVerdict) -> Self {
        match verdict {
            RuleVerdict::Permit => {
                // A permit is the default, so no rule stands behind it.
                Self { outcome: "permit", rules: BTreeSet::new(), reasons: BTreeSet::new() }
            }
            RuleVerdict::Ask { rules, reasons, .. } => Self { outcome: "ask", rules, reasons },
            RuleVerdict::Forbid { rule } => {
                Self { outcome: "forbid", rules: BTreeSet::from([rule]), reasons: BTreeSet::new() }
            }
        }
    }
}

/// Returns the facts that the rules may look at besides the action itself.
fn rule_facts(config: &Config, action: &Action, (preapproved, owned): (bool, bool)) -> RuleFacts {
    let reach = reach::reach_of(action, &config.egress.egress_scope(&config.models));
    // Words of the owner count for reading only.
    RuleFacts { preapproved, reach, owned: owned && reach::only_reads(action) }
}

fn explain_entry(context: &Context, entry: EntrySeq) -> Result<(), Failure> {
    let config = context.load_ready_config()?;
    let store = open_to_read(context, &config)?;
    let unknown = || {
        let text = format!("the ledger has no entry {entry}");
        Failure::new(Exit::Usage, "ledger.no_entry", text, "see `writ audit tail`")
    };
    let row = store.blocking().ledger_row(entry)?.ok_or_else(unknown)?;
    let fact = row.entry().map(|entry| entry.fact).ok_or_else(|| {
        let hint = "its commitments are still there: see `writ audit proof`";
        Failure::new(Exit::Usage, "ledger.erased", format!("the payload of entry {entry} was erased"), hint)
    })?;
    let rules = policies::load_rules(&context.home, None)?;
    // Entries of other kinds have no decision to explain.
    let result = past_decision(&store, &config, &rules, &fact)?.ok_or_else(|| {
        let text = format!("entry {entry} is no decision of the door");
        Failure::new(Exit::Usage, "policy.no_decision", text, "name one that was denied, asked or intended")
    })?;
    context.out.print_either(&result, describe_verdict)
}

/// Returns the past decision and, if the action is stored, the verdict of the present rules.
fn past_decision(
    store: &Store,
    config: &Config,
    rules: &RuleSet,
    fact: &Fact,
) -> Result<Option<Value>, Failure> {
    let now = |prepared: &Prepared| {
        // Judged again without approvals: the ledger does not record them with the facts.
        let said = VerdictText::of_verdict(
            rules.judge_rules(prepared, rule_facts(config, &prepared.action, (false, false))),
        );
        json!({ "outcome": said.outcome, "reasons": said.reasons, "rules": rule_texts(rules, &said.rules) })
    };
    if let Fact::Denied { kind, reason, rule, text, .. } = fact {
        // The rule's text comes from today's files; it may have been removed since.
        let source = rule_texts(rules, &BTreeSet::from([rule.clone()]));
        return Ok(Some(json!({
            "decided": "denied", "action": kind.as_str(), "stage": reason, "rule": rule, "why": text, "rules": source,
        })));
    }
    if let Fact::Asked { ask, reason, risk, .. } = fact {
        let asked = store.blocking().ask(ask)?;
        return Ok(Some(json!({
            "decided": "asked", "ask": ask, "risk": risk, "why": reason,
            "action": asked.as_ref().map(|asked| asked.prepared.action.kind().as_str()),
            "state": asked.as_ref().map(|asked| asked.state),
            "now": asked.as_ref().map(|asked| now(&asked.prepared)),
        })));
    }
    if let Fact::Intent { action, approval, label, .. } = fact {
        return Ok(Some(json!({
            "decided": "permitted", "action": action.kind().as_str(), "approval": approval, "label": label,
        })));
    }
    Ok(None)
}

/// The texts of those of the names that are rules.
fn rule_texts(rules: &RuleSet, names: &BTreeSet<String>) -> Vec<Value> {
    let text = |name: &String| Some(json!({ "id": name, "text": rules.rule_text(name)? }));
    names.iter().filter_map(text).collect()
}

fn describe_verdict(result: &Value) -> Vec<String> {
    let text = |value: &Value, name: &str| {
        value.get(name).and_then(Value::as_str).map(escape_line).unwrap_or_default()
    };
    let mut lines = vec![format!("{}: {}", text(result, "action"), text(result, "decided"))];
    for name in ["stage", "rule", "why", "approval"] {
        let value = text(result, name);
        if !value.is_empty() {
            lines.push(format!("{name}: {value}"));
        }
    }
    let now = result.get("now").unwrap_or(&Value::Null);
    let outcome = text(now, "outcome");
    if !outcome.is_empty() {
        lines.push(format!("the rules say now: {outcome}"));
    }
    for rules in [result.get("rules"), now.get("rules")] {
        for rule in rules.and_then(Value::as_array).into_iter().flatten() {
            let source = rule.get("text").and_then(Value::as_str).unwrap_or_default();
            lines.extend(source.lines().map(|line| format!("  {}", escape_line(line))));
        }
    }
    lines
}
