//! `writ policy`: the rules by themselves. No engine is needed; keys, labels, budget and approvals come on top of them.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Value, json};
use writ_inspect::prepared::Prepared;
use writ_inspect::reach;
use writ_inspect::show::escape_line;
use writ_policy::rules::{RuleSet, RuleVerdict, Standing};
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
pub(crate) fn run(context: &Context, command: &PolicyCommand) -> Result<(), Failure> {
    match command {
        PolicyCommand::Check { project } => check(context, project.as_deref()),
        PolicyCommand::Explain { entry } => explain(context, *entry),
        PolicyCommand::Suggest { since } => suggest::suggest(context, *since),
        PolicyCommand::Shadow { since } => shadow::show(context, *since),
        PolicyCommand::Promote { name } => shadow::promote(context, name),
        PolicyCommand::Test { file, project } => cases::test(context, file, project.as_deref()),
    }
}

fn check(context: &Context, project: Option<&Path>) -> Result<(), Failure> {
    let sources = policies::sources(&context.home, project)?;
    let rules = policies::load(&context.home, project)?;
    let origins: Vec<&str> = sources.iter().map(|source| source.origin.as_str()).collect();
    let ids: Vec<String> = rules.ids();
    let result = json!({ "valid": true, "digest": rules.digest(), "files": origins, "rules": ids });
    context.out.either(&result, |_| {
        let mut lines = vec![format!("the rules are valid: {} rules, digest {}", ids.len(), rules.digest())];
        lines.extend(origins.iter().map(|origin| format!("  {}", escape_line(origin))));
        lines
    })
}

/// The verdict of a rule set about an action.
struct Said {
    outcome: &'static str,
    rules: BTreeSet<String>,
    reasons: BTreeSet<String>,
}

impl Said {
    fn new(verdict: RuleVerdict) -> Self {
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
fn standing(config: &Config, action: &Action, (preapproved, owned): (bool, bool)) -> Standing {
    let reach = reach::of(action, &config.egress.scope(&config.models));
    // Words of the owner count for reading only.
    Standing { preapproved, reach, owned: owned && reach::only_reads(action) }
}

fn explain(context: &Context, entry: EntrySeq) -> Result<(), Failure> {
    let config = context.ready()?;
    let store = open_to_read(context, &config)?;
    let unknown = || {
        let text = format!("the ledger has no entry {entry}");
        Failure::new(Exit::Usage, "ledger.no_entry", text, "see `writ audit tail`")
    };
    let row = store.ledger_row(entry)?.ok_or_else(unknown)?;
    let fact = row.entry().map(|entry| entry.fact).ok_or_else(|| {
        let hint = "its commitments are still there: see `writ audit proof`";
        Failure::new(Exit::Usage, "ledger.erased", format!("the payload of entry {entry} was erased"), hint)
    })?;
    let rules = policies::load(&context.home, None)?;
    // Entries of other kinds have no decision to explain.
    let result = decided(&store, &config, &rules, &fact)?.ok_or_else(|| {
        let text = format!("entry {entry} is no decision of the door");
        Failure::new(Exit::Usage, "policy.no_decision", text, "name one that was denied, asked or intended")
    })?;
    context.out.either(&result, lines)
}

/// Returns the past decision and, if the action is stored, the verdict of the present rules.
fn decided(store: &Store, config: &Config, rules: &RuleSet, fact: &Fact) -> Result<Option<Value>, Failure> {
    let now = |prepared: &Prepared| {
        // Judged again without approvals: the ledger does not record them with the facts.
        let said = Said::new(rules.judge(prepared, standing(config, &prepared.action, (false, false))));
        json!({ "outcome": said.outcome, "reasons": said.reasons, "rules": texts(rules, &said.rules) })
    };
    if let Fact::Denied { kind, reason, rule, text, .. } = fact {
        // The rule's text comes from today's files; it may have been removed since.
        let source = texts(rules, &BTreeSet::from([rule.clone()]));
        return Ok(Some(json!({
            "decided": "denied", "action": kind.as_str(), "stage": reason, "rule": rule, "why": text, "rules": source,
        })));
    }
    if let Fact::Asked { ask, reason, risk, .. } = fact {
        let asked = store.ask(ask)?;
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
fn texts(rules: &RuleSet, names: &BTreeSet<String>) -> Vec<Value> {
    let text = |name: &String| Some(json!({ "id": name, "text": rules.text(name)? }));
    names.iter().filter_map(text).collect()
}

fn lines(result: &Value) -> Vec<String> {
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
