//! `writ agent bless`: shows a person what an agent may do, and signs the base key of its folder.

use std::path::Path;

use serde_json::{Value, json};
use writ_fleet::agents::folder::FolderPlace;
use writ_fleet::agents::key_file::{
    drop_fresh_key, key_path, name_key, read_fresh_key, read_key, verify_key, write_fresh_key,
};
use writ_fleet::agents::manifest::{AgentFolder, MANIFEST};
use writ_fleet::agents::place::AgentsPlace;
use writ_fleet::agents::words::describe_agent;
use writ_operations::OperationSet;
use writ_policy::keys::grants::Grants;
use writ_policy::keys::{self, BaseClaims, KeyToken};
use writ_runtime::methods::Method;
use writ_secrets::store::EngineKey;
use writ_types::digest::Digest;
use writ_types::entry::AgentRecord;
use writ_types::error::Exit;
use writ_types::id::KeyId;

use super::AgentRecords;
use crate::client::{EngineClient, is_unanswered};
use crate::clock;
use crate::config::Config;
use crate::context::Context;
use crate::failure::Failure;
use crate::interrupt::block_on;
use crate::keyring::open_secrets;
use crate::terminal;

/// Shows what an agent may do, asks, and signs its base key.
pub(super) fn bless_agent(
    context: &Context,
    (config, records): (&Config, &AgentRecords),
    dir: &Path,
    yes: bool,
) -> Result<(), Failure> {
    let agent = AgentFolder::read_folder(dir, FolderPlace::Source)?;
    if let Some((claims, hash)) = find_approved_key(records, dir, &agent)? {
        return print_key(context, dir, &agent, (&claims, hash), false);
    }
    let now = clock::now();
    let expires = agent.manifest.ends_at(now);
    let said = agent.manifest.base_document(&dir.join(MANIFEST), expires)?;
    // Remarks go to standard error, so that standard output has the result alone.
    for line in describe_agent(&agent.manifest, &said.grants, (agent.digest(), expires)) {
        context.out.print_remark(line);
    }
    for line in name_unbound(context, &said.grants) {
        context.out.print_remark(line);
    }
    if !yes {
        ask_yes(context, &agent.manifest.name)?;
    }
    // The folder may have changed while the person read: it is signed only if it still has the digest that was shown.
    let shown = agent.digest();
    let agent = AgentFolder::read_folder(dir, FolderPlace::Source)?;
    writ_fleet::agents::deployed::check_digest(&agent.manifest.name, shown, agent.digest())?;
    let claims = BaseClaims {
        key: KeyId::from_parts(now, clock::random()),
        installation: records.verifier.installation,
        epoch: records.verifier.epoch,
        agent: said.agent,
        // The digest of the folder stands in the place of rules: it covers the program, the policies and the rights.
        policy: agent.digest(),
        expires_at: said.expires,
        grants: said.grants,
    };
    // Only after the answer, so that a person who declines is not asked for a passphrase.
    let root = open_secrets(context, config)?.signing_key(EngineKey::Root)?;
    let token = keys::mint_base(&claims, &root)?;
    // The root key is dropped before the wait for the engine.
    drop(root);
    // Locked, so that no other command approves the same version at the same time.
    let _place = AgentsPlace::lock_folder(&records.agents)?;
    // The key is written before its entry in the ledger, so that an interruption cannot lose an approved key.
    write_fresh_key(dir, &token)?;
    if let Err(failure) = note_approval(context, &token, &agent.manifest.version) {
        // Without an answer the key may be in the ledger or not; the next run finds out.
        if !is_unanswered(&failure) {
            drop_fresh_key(dir)?;
        }
        return Err(failure);
    }
    name_key(dir)?;
    print_key(context, dir, &agent, (&claims, Digest::of_bytes(token.as_bytes())), true)
}

/// Names the amounts that the key does not bound where it bounds another one of the same operation: the proxy refuses them.
fn name_unbound(context: &Context, grants: &Grants) -> Vec<String> {
    // Declarations that cannot be read are those of another machine, or `writ proxy` says what is wrong with them.
    let Ok(operations) = OperationSet::load(&context.home.operations()) else { return Vec::new() };
    let limited = grants.limits.iter().filter(|(_, limits)| !limits.amounts.is_empty());
    let limited = limited.filter_map(|(name, limits)| Some((operations.get(name)?, limits)));
    let unbound = limited.flat_map(|(operation, limits)| {
        let amounts = operation.amount_parameters().filter(|name| !limits.amounts.contains_key(*name));
        amounts
            .map(|name| format!("  {}: '{name}' is not bounded, so the proxy refuses it", operation.name()))
    });
    unbound.collect()
}

fn note_approval(context: &Context, token: &KeyToken, version: &str) -> Result<Value, Failure> {
    block_on(async {
        let params = json!({ "token": token, "version": version });
        EngineClient::ensure(context).await?.call_method(Method::AgentsBless, params).await
    })
}

fn ask_yes(context: &Context, name: &str) -> Result<(), Failure> {
    if !context.host.streams.is_interactive() {
        // Without a terminal no person can be asked, so a script must approve with `--yes`.
        let hint = "look at what is printed, then run it again with --yes";
        return Err(Failure::new(Exit::Blocked, "agent.no_terminal", "no person can be asked here", hint));
    }
    if terminal::confirm_yes(&context.host.streams, &format!("May agent {name} do this?"))? {
        return Ok(());
    }
    let hint = "nothing was signed; run it again to approve it";
    Err(Failure::new(Exit::Denied, "agent.declined", "it was not approved", hint))
}

/// Returns the key with which this version of this folder was approved before, and writes it to the key file.
fn find_approved_key(
    records: &AgentRecords,
    dir: &Path,
    agent: &AgentFolder,
) -> Result<Option<(BaseClaims, Digest)>, Failure> {
    let (name, version) = (&agent.manifest.name, &agent.manifest.version);
    let history = records.read_history(Some(name))?;
    let Some(approval) = history.approval_of(version, records.key_ring()) else { return Ok(None) };
    let approved = &approval.record;
    let raise = format!("raise `version` in {}, then run it again", dir.join(MANIFEST).display());
    let refuse = |code: &str, text: String| Err(Failure::new(Exit::Denied, code, text, raise.clone()));
    // One version, one content, so that a version in the ledger says which code has acted.
    if approved.folder != agent.digest() {
        return refuse(
            "agent.version",
            format!(
                "version {version} of agent {name} was approved with another content: sha256 {}, and it is {} now",
                approved.folder,
                agent.digest()
            ),
        );
    }
    if records.is_revoked(approved.key)? {
        return refuse("agent.revoked", format!("the key of version {version} of agent {name} was revoked"));
    }
    let Some(token) = find_token(&records.agents.join(name), dir, approved)? else {
        return refuse(
            "agent.key_lost",
            format!("version {version} of agent {name} was approved, and its key is lost"),
        );
    };
    let claims = verify_key(dir, name, &token, &records.verifier)?;
    // Its expiry was part of the approval, so it is not extended without another one.
    if claims.expires_at <= clock::now() {
        return refuse("agent.expired", format!("the key of version {version} of agent {name} has ended"));
    }
    Ok(Some((claims, approved.hash)))
}

/// Finds the approved key in the folder, or where the agent is deployed.
fn find_token(home: &Path, dir: &Path, approved: &AgentRecord) -> Result<Option<KeyToken>, Failure> {
    let is_it = |token: &KeyToken| Digest::of_bytes(token.as_bytes()) == approved.hash;
    // A key file that cannot be read counts as missing, and is overwritten.
    if let Some(token) = read_key(dir).ok().filter(is_it) {
        return Ok(Some(token));
    }
    // The key may be in the folder, from an interrupted command, or where the agent is deployed.
    let elsewhere = [read_fresh_key(dir), read_key(home)].into_iter().flatten().find(is_it);
    if let Some(token) = &elsewhere {
        write_fresh_key(dir, token)?;
        name_key(dir)?;
    }
    Ok(elsewhere)
}

fn print_key(
    context: &Context,
    dir: &Path,
    agent: &AgentFolder,
    (claims, hash): (&BaseClaims, Digest),
    is_new: bool,
) -> Result<(), Failure> {
    let file = key_path(dir);
    let shown = json!({ "agent": agent.manifest.name, "version": agent.manifest.version, "key": claims.key,
        "hash": hash, "folder": agent.digest(), "expires_at": claims.expires_at.to_string(),
        "file": file.display().to_string(), "new": is_new });
    context.out.print_either(&shown, |_| {
        let state = if is_new { "approved" } else { "approved before, with the same key" };
        vec![
            format!("agent {} version {}: {state}", agent.manifest.name, agent.manifest.version),
            format!("key {} until {} is in {}", claims.key, claims.expires_at, file.display()),
        ]
    })
}
