//! `writ agent deploy` and `writ agent retire`.

use std::path::Path;

use serde_json::{Value, json};
use writ_fleet::agents::deployed::check_digest;
use writ_fleet::agents::error::AgentError;
use writ_fleet::agents::folder::FolderPlace;
use writ_fleet::agents::key_file::{read_key, verify_key};
use writ_fleet::agents::manifest::{AgentFolder, is_agent_name};
use writ_fleet::agents::place::AgentsPlace;
use writ_runtime::methods::Method;

use super::AgentRecords;
use crate::client::EngineClient;
use crate::context::Context;
use crate::failure::Failure;
use crate::interrupt::block_on;

/// Puts an approved agent into its place.
pub(super) fn deploy_agent(
    context: &Context,
    records: &AgentRecords,
    dir: &Path,
    revoke_earlier: bool,
) -> Result<(), Failure> {
    let agent = AgentFolder::read_folder(dir, FolderPlace::Source)?;
    let name = &agent.manifest.name;
    let token = read_key(dir)?;
    let claims = verify_key(dir, name, &token, &records.verifier)?;
    // A change after the approval shows while a person looks on, and not in the router later.
    check_digest(name, claims.policy, agent.digest())?;
    let place = AgentsPlace::lock_folder(&records.agents)?;
    // Complete before it is noted. If the ledger refuses it, dropping the copy removes it.
    let copy = place.copy_agent(dir, &agent, &token)?;
    // In the ledger first: nothing acts that it does not know of.
    let params =
        json!({ "token": token, "version": agent.manifest.version, "revoke_earlier": revoke_earlier });
    let mut noted = block_on(async {
        EngineClient::ensure(context).await?.call_method(Method::AgentsDeploy, params).await
    })?;
    place.put_copy(copy, &records.verifier)?;
    noted["home"] = json!(place.home_of(name).display().to_string());
    let (version, key) = (&agent.manifest.version, claims.key);
    context.out.print_either(&noted, |noted| {
        let mut lines = vec![format!("agent {name} version {version} is deployed, under key {key}")];
        lines.extend(list_revoked(noted));
        lines
    })
}

/// Revokes an agent's keys, and takes it out of its place.
pub(super) fn retire_agent(context: &Context, name: &str, reason: &str) -> Result<(), Failure> {
    let unknown = || AgentError::Unknown(name.chars().take(64).collect());
    // It becomes part of a path.
    if !is_agent_name(name) {
        return Err(unknown().into());
    }
    let place = AgentsPlace::lock_folder(&context.home.agents())?;
    let params = json!({ "agent": name, "reason": reason });
    let mut retired = block_on(async {
        EngineClient::ensure(context).await?.call_method(Method::AgentsRetire, params).await
    })?;
    // Its keys are dead before it is removed, so that what still runs of it reaches nothing.
    let was_there = place.remove_agent(name)?;
    let revoked = retired.get("revoked").and_then(Value::as_array).is_some_and(|keys| !keys.is_empty());
    // A command that was interrupted may have done one half, so only without both is there no agent.
    if !was_there && !revoked {
        return Err(unknown().into());
    }
    retired["removed"] = json!(was_there);
    context.out.print_either(&retired, |retired| {
        let mut lines = vec![format!("agent {name} is retired")];
        lines.extend(list_revoked(retired));
        lines
    })
}

fn list_revoked(answer: &Value) -> Vec<String> {
    let keys = answer.get("revoked").and_then(Value::as_array);
    let keys = keys.into_iter().flatten().filter_map(Value::as_str);
    let tasks = answer.get("tasks").and_then(Value::as_u64).filter(|count| *count > 0);
    let tasks = tasks.map(|count| format!("revoked: {count} task keys, whose cases go to others"));
    keys.map(|key| format!("revoked: base key {key}")).chain(tasks).collect()
}
