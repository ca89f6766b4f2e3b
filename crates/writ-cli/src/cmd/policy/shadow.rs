//! `writ policy shadow` and `promote`: what rules that are only tried would have changed, and putting them in force.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use writ_inspect::show::escape_line;
use writ_store::ledger::row::LedgerQuery;
use writ_types::digest::Digest;
use writ_types::entry::{Fact, Leaning};
use writ_types::unit::Timestamp;

use crate::client::EngineClient;
use crate::clock;
use crate::config::policies;
use crate::context::Context;
use crate::failure::Failure;
use crate::interrupt::block_on;
use crate::ledger::open_to_read;

/// The most differences that are looked through.
const MAX_DIFFERENCES: usize = 10_000;

/// The values that are counted together: the set, the kind of action, the actual verdict, the shadow verdict,
/// and its rules.
type Change = (String, &'static str, &'static str, &'static str, Vec<String>);

/// Shows what would have been different in the last `days` days.
///
/// # Errors
///
/// If the home or its database cannot be read.
pub(super) fn show_shadow(context: &Context, days: u32) -> Result<(), Failure> {
    let config = context.load_ready_config()?;
    let tried: Vec<Value> = policies::read_shadows(&context.home)?
        .into_iter()
        .map(|(name, shadow)| json!({ "name": name, "problem": shadow.err().map(|error| error.to_string()) }))
        .collect();
    let span = u64::from(days).saturating_mul(24 * 60 * 60 * 1_000);
    let since = clock::now().as_millis().saturating_sub(i64::try_from(span).unwrap_or(i64::MAX));
    let query = LedgerQuery {
        event: Some("shadowed".to_owned()),
        since: Some(Timestamp::from_millis(since)),
        limit: MAX_DIFFERENCES,
        ..LedgerQuery::default()
    };
    let rows = open_to_read(context, &config)?.blocking().ledger_search(&query)?;
    let mut changes: BTreeMap<Change, BTreeSet<Digest>> = BTreeMap::new();
    for fact in rows.iter().filter_map(|row| row.entry()).map(|entry| entry.fact) {
        if let Fact::Shadowed { set, prepared, kind, does, would, rules, .. } = fact {
            // Counted by distinct actions: the same one may be tried often.
            changes
                .entry((set, kind.as_str(), leaning_name(does), leaning_name(would), rules))
                .or_default()
                .insert(prepared);
        }
    }
    let changes: Vec<Value> = changes
        .iter()
        .map(|((set, kind, does, would, rules), actions)| {
            json!({ "set": set, "action": kind, "does": does, "would": would, "rules": rules, "actions": actions.len() })
        })
        .collect();
    let result = json!({ "tried": tried, "changes": changes, "days": days });
    context.out.print_either(&result, |_| describe_changes(&tried, &changes, days))
}

fn describe_changes(tried: &[Value], changes: &[Value], days: u32) -> Vec<String> {
    let text = |value: &Value, name: &str| {
        value.get(name).and_then(Value::as_str).map(escape_line).unwrap_or_default()
    };
    let mut lines: Vec<String> = tried
        .iter()
        .map(|one| match text(one, "problem") {
            problem if problem.is_empty() => {
                format!("{} is tried from the start of an engine on", text(one, "name"))
            }
            problem => format!("{} is NOT TRIED: {problem}", text(one, "name")),
        })
        .collect();
    if changes.is_empty() {
        lines.push(format!("nothing would have been different in {days} days"));
    }
    lines.extend(changes.iter().map(|change| {
        let rules = change.get("rules").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let rules: Vec<String> = rules.iter().filter_map(Value::as_str).map(escape_line).collect();
        let by = if rules.is_empty() { String::new() } else { format!(" ({})", rules.join(", ")) };
        let actions = change.get("actions").and_then(Value::as_u64).unwrap_or_default();
        let [set, action, does, would] = ["set", "action", "does", "would"].map(|name| text(change, name));
        format!("{set}: {actions} times {action} would be '{would}' instead of '{does}'{by}")
    }));
    lines
}

const fn leaning_name(leaning: Leaning) -> &'static str {
    match leaning {
        Leaning::Permit => "permit",
        Leaning::Ask => "ask",
        Leaning::Forbid => "forbid",
    }
}

/// Puts rules that were tried in force.
///
/// # Errors
///
/// If they cannot stand, or cannot be moved.
pub(super) fn promote_set(context: &Context, name: &str) -> Result<(), Failure> {
    context.load_ready_config()?;
    policies::promote_shadow(&context.home, name)?;
    // An engine reads its rules at its start.
    let runs = block_on(async { EngineClient::connect(context).await.map(|client| client.is_some()) })?;
    let when =
        if runs { "from its next start on: an engine runs, which has other rules" } else { "from now on" };
    let told = format!("policies/{}.cedar is in force {when}", escape_line(name));
    context.out.print_either(&json!({ "promoted": name, "running": runs }), |_| vec![told.clone()])
}
