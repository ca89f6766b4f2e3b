//! `writ agent list`, `inspect` and `history`: read from the home and its ledger, without an engine.

use serde_json::{Value, json};
use writ_fleet::agents::deployed::{DeployedAgent, read_agent, read_deployed};
use writ_fleet::agents::error::AgentError;
use writ_fleet::agents::key_file::key_path;
use writ_fleet::agents::manifest::is_agent_name;
use writ_fleet::agents::words::{describe_agent, describe_grants};
use writ_inspect::show::escape_line;
use writ_runtime::agent_records::AgentEntry;
use writ_types::digest::Digest;
use writ_types::entry::AgentChange;
use writ_types::error::ToReport as _;

use super::AgentRecords;
use crate::clock;
use crate::context::Context;
use crate::failure::Failure;

/// Lists the agents of the home.
pub(super) fn list_agents(context: &Context, records: &AgentRecords) -> Result<(), Failure> {
    let found = read_deployed(&records.agents, &records.verifier)?;
    let mut rows = Vec::new();
    for agent in &found.agents {
        rows.push(json!({ "name": agent.agent.name, "version": agent.version,
            "state": state_of(records, agent)?, "key": agent.claims.key,
            "expires_at": agent.claims.expires_at.to_string(), "folder": agent.digest,
            "roles": agent.agent.roles, "max_cases": agent.agent.max_cases }));
    }
    // Agents that cannot start are listed too, so that a damaged agent does not look as if it had never existed.
    let defects = found.defects.iter().map(|(name, error)| {
        json!({ "name": name, "state": defect_word(error), "why": error.to_string(), "hint": error.report().hint })
    });
    rows.extend(defects);
    rows.sort_by_key(|row| text_of(row, "name"));
    let shown = json!({ "agents": rows });
    context.out.print_either(&shown, |_| rows.iter().map(describe_row).collect())
}

/// Shows one agent.
pub(super) fn inspect_agent(context: &Context, records: &AgentRecords, name: &str) -> Result<(), Failure> {
    let home = records.agents.join(name);
    // The name becomes part of a path, so it is checked first.
    if !is_agent_name(name) || !home.exists() {
        return Err(AgentError::Unknown(name.chars().take(64).collect()).into());
    }
    let agent = match read_agent(&home, name, &records.verifier) {
        Ok(agent) => agent,
        Err(error) => {
            // A defect answers the question, so the command itself does not fail.
            let report = error.report();
            let shown = json!({ "name": name, "state": defect_word(&error), "why": error.to_string(),
                "hint": report.hint });
            return context.out.print_either(&shown, |_| {
                vec![
                    format!("agent {name}: {}, and does not start", defect_word(&error)),
                    format!("  why: {}", escape_line(&error.to_string())),
                    format!("  hint: {}", report.hint),
                ]
            });
        }
    };
    let history = records.read_history(Some(name))?;
    // Found by its key, since the ledger also has the approvals of other versions.
    let approval = history.approvals(records.key_ring()).find(|entry| entry.record.key == agent.claims.key);
    let state = state_of(records, &agent)?;
    let shown = json!({
        "name": name, "version": agent.version, "state": state, "key": agent.claims.key,
        "hash": Digest::of_bytes(agent.agent.base.as_bytes()),
        "expires_at": agent.claims.expires_at.to_string(), "folder": agent.digest,
        "program": agent.manifest.program, "roles": agent.manifest.roles, "policies": agent.manifest.policies,
        "max_cases": agent.manifest.max_cases, "limits": agent.limits,
        "capabilities": agent.manifest.capabilities, "may": describe_grants(&agent.claims.grants),
        "path": agent.folder.display().to_string(), "key_file": key_path(&agent.home).display().to_string(),
        "approved": approval.map(as_json),
    });
    context.out.print_either(&shown, |_| {
        let about = (agent.digest, agent.claims.expires_at);
        let mut lines = describe_agent(&agent.manifest, &agent.claims.grants, about);
        lines.push(format!("  key: {}, {state}", agent.claims.key));
        lines.extend(approval.map(|entry| {
            format!("  approved: {} by {}, entry {}", entry.at, escape_line(&entry.record.by), entry.seq)
        }));
        lines
    })
}

/// Shows the entries of the ledger about agents, or about one agent.
pub(super) fn show_history(
    context: &Context,
    records: &AgentRecords,
    name: Option<&str>,
) -> Result<(), Failure> {
    let history = records.read_history(name)?;
    // The ledger decides, not the folder: a retired agent has a history but no folder.
    if let Some(name) = name.filter(|_| history.0.is_empty()) {
        return Err(AgentError::Unknown(name.chars().take(64).collect()).into());
    }
    let shown = json!({ "history": history.0.iter().map(as_json).collect::<Vec<_>>() });
    context.out.print_either(&shown, |_| history.0.iter().map(describe_entry).collect())
}

fn as_json(entry: &AgentEntry) -> Value {
    let record = &entry.record;
    json!({ "entry": entry.seq, "at": entry.at.to_string(), "agent": record.agent, "version": record.version,
        "change": record.change, "folder": record.folder, "key": record.key, "hash": record.hash,
        "by": record.by, "reason": record.reason })
}

fn describe_entry(entry: &AgentEntry) -> String {
    let record = &entry.record;
    let reason = match record.change {
        AgentChange::Retired if !record.reason.is_empty() => format!(": {}", escape_line(&record.reason)),
        AgentChange::Blessed | AgentChange::Deployed | AgentChange::Retired => String::new(),
    };
    format!(
        "{}  {} version {}  {} by {}{reason}  key {}  folder sha256 {}  entry {}",
        entry.at,
        escape_line(&record.agent),
        escape_line(&record.version),
        record.change.as_str(),
        escape_line(&record.by),
        record.key,
        record.folder,
        entry.seq
    )
}

/// Returns the state of an agent whose key fits its folder, in one word.
fn state_of(records: &AgentRecords, agent: &DeployedAgent) -> Result<&'static str, Failure> {
    // A revocation is shown before an expiry, since it is a person's decision.
    if records.is_revoked(agent.claims.key)? {
        return Ok("revoked");
    }
    Ok(if agent.claims.expires_at <= clock::now() { "expired" } else { "ok" })
}

/// Returns the state of an agent that cannot start, in one word.
const fn defect_word(error: &AgentError) -> &'static str {
    match error {
        AgentError::Changed { .. } => "changed",
        AgentError::Manifest { .. }
        | AgentError::Folder { .. }
        | AgentError::Io { .. }
        | AgentError::NoKey { .. }
        | AgentError::KeyMode { .. }
        | AgentError::KeyOwner { .. }
        | AgentError::Key { .. }
        | AgentError::OtherAgent { .. }
        | AgentError::Unknown(_) => "unusable",
    }
}

fn describe_row(row: &Value) -> String {
    let name = text_of(row, "name");
    let state = text_of(row, "state");
    match row.get("why").and_then(Value::as_str) {
        Some(why) => format!("{:<24} {state:<9} {}", escape_line(&name), escape_line(why)),
        None => format!(
            "{name:<24} {state:<9} version {}  key {}  until {}",
            text_of(row, "version"),
            text_of(row, "key"),
            text_of(row, "expires_at")
        ),
    }
}

fn text_of(row: &Value, name: &str) -> String {
    row.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
}
