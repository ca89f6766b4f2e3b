//! What an agent may do, in plain words: what a person reads before it is approved.

use writ_inspect::scope::{ANY, Dimension};
use writ_inspect::show::escape_line;
use writ_policy::keys::grants::Grants;
use writ_policy::keys::limits::{AmountLimit, OperationLimits};
use writ_types::action::ActionKind;
use writ_types::digest::Digest;
use writ_types::unit::Timestamp;

use super::manifest::AgentManifest;
use crate::cases::config::ProcessLimits;

/// Describes an agent: who it is, what it may do and how far, and when that ends.
pub fn describe_agent(
    manifest: &AgentManifest,
    grants: &Grants,
    (digest, expires): (Digest, Timestamp),
) -> Vec<String> {
    let mut lines = vec![
        format!("agent {} version {}", manifest.name, manifest.version),
        format!("  runs: {}", describe_program(&manifest.program)),
        format!("  at once: {} cases, each in a process of its own", manifest.max_cases),
    ];
    if !manifest.roles.is_empty() {
        lines.push(format!("  answers for: {}", manifest.roles.join(", ")));
    }
    lines.extend(describe_grants(grants).into_iter().map(|line| format!("  {line}")));
    match manifest.policies.as_slice() {
        [] => lines.push("  policies: none".to_owned()),
        policies => {
            let shown: Vec<String> = policies.iter().map(|path| escape_line(path)).collect();
            lines.push(format!("  policies, which it can read and not change: {}", shown.join(", ")));
        }
    }
    lines.push(format!("  each process: {}", describe_limits(&manifest.limits)));
    lines.push(format!("  until: {expires}"));
    lines.push(format!("  folder: sha256 {digest}"));
    lines
}

/// Describes what a base key grants, one line for each thing; and what it does not grant, where that could be expected.
pub fn describe_grants(grants: &Grants) -> Vec<String> {
    let mut lines = Vec::new();
    for operation in scopes_of(grants, ActionKind::Operate, Dimension::Name) {
        let limits = grants.limits.get(&operation).map_or_else(String::new, describe_operation);
        let how = if limits.is_empty() { "without a limit".to_owned() } else { limits };
        lines.push(format!("may {operation}: {how}"));
    }
    if lines.is_empty() {
        lines.push("may do nothing at the security proxy".to_owned());
    }
    match scopes_of(grants, ActionKind::Escalate, Dimension::Recipient).as_slice() {
        [] => lines.push("may give a case to no one else".to_owned()),
        targets => lines.push(format!("may give a case to: {}", targets.join(", "))),
    }
    let models = scopes_of(grants, ActionKind::ModelCall, Dimension::Provider);
    let which = match models.as_slice() {
        [] => return [lines, vec!["may ask no model".to_owned()]].concat(),
        [one] if one == ANY => "may ask the models of this home".to_owned(),
        some => format!("may ask models of: {}", some.join(", ")),
    };
    let quota = grants.limits.get(ActionKind::ModelCall.as_str()).map(describe_operation);
    lines.push(format!("{which}: {}", quota.unwrap_or_else(|| "without a limit".to_owned())));
    lines
}

fn scopes_of(grants: &Grants, kind: ActionKind, dimension: Dimension) -> Vec<String> {
    let scopes = grants.kinds.get(&kind).into_iter().flatten();
    scopes.filter(|(held, _)| *held == dimension).map(|(_, value)| value.clone()).collect()
}

fn describe_operation(limits: &OperationLimits) -> String {
    let amounts = limits.amounts.iter().map(|(name, amount)| describe_amount(name, *amount));
    let values = limits.values.iter().map(|(name, values)| {
        let values: Vec<&str> = values.iter().map(String::as_str).collect();
        format!("{name} only {}", values.join(" or "))
    });
    amounts.chain(values).collect::<Vec<_>>().join("; ")
}

fn describe_amount(name: &str, AmountLimit { min, max, daily }: AmountLimit) -> String {
    let day = daily.map_or_else(String::new, |most| format!(", and {most} in a day"));
    format!("{name} {min} to {max} each time{day}")
}

fn describe_program(program: &[String]) -> String {
    let plain = |word: &String| {
        let simple = word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-./=:,+@".contains(&byte));
        // A word with a space in it is shown as one word.
        if simple && !word.is_empty() { word.clone() } else { format!("'{}'", escape_line(word)) }
    };
    program.iter().map(plain).collect::<Vec<_>>().join(" ")
}

fn describe_limits(limits: &ProcessLimits) -> String {
    let ProcessLimits { time, cpu, memory, processes, tmp } = *limits;
    let named = [
        ("s to run", time),
        ("s to compute", cpu),
        ("MiB of memory", memory),
        ("processes", processes),
        ("MiB of temporary files", tmp),
    ];
    let said: Vec<String> =
        named.iter().filter_map(|(what, limit)| limit.map(|limit| format!("{limit} {what}"))).collect();
    if said.is_empty() { "as `writ run` bounds it".to_owned() } else { said.join(", ") }
}
