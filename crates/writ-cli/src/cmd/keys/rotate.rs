//! `writ keys root|harness|approver rotate`: a new key in the place of one, while no engine runs.
//!
//! The new key is made ready, the ledger records that it follows, its public half is listed, and only then
//! the old one is removed: after an interruption the home still starts, and the same command completes the
//! change.

use ed25519_dalek::VerifyingKey;
use serde_json::json;
use writ_secrets::approver::ApproverStore;
use writ_secrets::store::{EngineKey, SecretStore};
use writ_store::approvals::ApproverKey;
use writ_store::batch::{Batch, Op};
use writ_store::keys::MAX_ISSUED_KEYS;
use writ_store::ledger::rotation::Rotation;
use writ_store::store::Store;
use writ_types::entry::{Entry, Fact};
use writ_types::id::KeyId;

use crate::clock;
use crate::config::Config;
use crate::context::Context;
use crate::failure::Failure;
use crate::keyring::{
    KeyRole, open_approver_key, open_secrets, read_rotations, record_public, record_rotation,
};
use crate::ledger::{Locks, open_to_write};

/// The number of keys that are revoked in one transaction.
const AT_ONCE: usize = 1_000;

/// Exchanges a key.
pub(super) fn rotate_key(context: &Context, role: KeyRole) -> Result<(), Failure> {
    let config = context.load_ready_config()?;
    let secrets = open_secrets(context, &config)?;
    let public = match role {
        KeyRole::Root => rotate_root(context, &config, &secrets)?,
        KeyRole::Harness => rotate_harness(context, &config, &secrets)?,
        KeyRole::Approver => rotate_approver(context, &config, &secrets)?,
    };
    let public = hex::encode(public.as_bytes());
    context
        .out
        .print_either(&json!({ "role": role.as_str(), "public_key": public }), |_| vec![public.clone()])
}

fn open_store(context: &Context, config: &Config, secrets: &SecretStore) -> Result<(Locks, Store), Failure> {
    open_to_write(context, config, secrets.signing_key(EngineKey::Harness)?)
}

fn rotate_root(context: &Context, config: &Config, secrets: &SecretStore) -> Result<VerifyingKey, Failure> {
    let (locks, store) = open_store(context, config, secrets)?;
    let next = secrets.prepare_next(EngineKey::Root)?;
    // Recorded before it is in force, so that the ledger explains every later signature.
    store.commit_blocking(Batch::synced(vec![rotation_entry(KeyRole::Root, &next)]))?;
    revoke_issued(&store, |_| true)?;
    record_public(&context.home, KeyRole::Root, &next)?;
    secrets.promote_next(EngineKey::Root)?;
    drop(locks);
    Ok(next)
}

fn rotate_harness(
    context: &Context,
    config: &Config,
    secrets: &SecretStore,
) -> Result<VerifyingKey, Failure> {
    let (locks, store) = open_store(context, config, secrets)?;
    let old = secrets.signing_key(EngineKey::Harness)?;
    let next = secrets.prepare_next(EngineKey::Harness)?;
    // A rotation that was interrupted is completed with the same statement.
    let known = read_rotations(&context.home)?.into_iter().find(|step| step.to() == next.as_bytes());
    let rotation = known.unwrap_or_else(|| Rotation::sign(&old, *next.as_bytes()));
    // Recorded twice after an interruption: the same statement proves the same.
    let now = clock::now();
    let entry = rotation.entry(KeyId::from_parts(now, clock::random()), now);
    store.commit_blocking(Batch::synced(vec![Op::Append(Box::new(entry))]))?;
    revoke_issued(&store, |role| role == "task")?;
    drop(store);
    record_rotation(&context.home, &rotation)?;
    record_public(&context.home, KeyRole::Harness, &next)?;
    secrets.promote_next(EngineKey::Harness)?;
    drop(locks);
    // Opened once with the new key, so that the newest head is its own.
    let (locks, store) = open_store(context, config, secrets)?;
    drop(store);
    drop(locks);
    Ok(next)
}

fn rotate_approver(
    context: &Context,
    config: &Config,
    secrets: &SecretStore,
) -> Result<VerifyingKey, Failure> {
    let keys: ApproverStore = open_approver_key(context, config)?;
    let (locks, store) = open_store(context, config, secrets)?;
    let old = keys.signing_key()?.verifying_key();
    let next = keys.prepare_next()?;
    let enrolled = store.blocking().approver_keys()?;
    let known = |public: &VerifyingKey| enrolled.iter().find(|key| key.public_key == public.as_bytes());
    let now = clock::now();
    let mut ops = Vec::new();
    // After an interruption the new key may be enrolled already.
    if known(&next).is_none() {
        ops.push(rotation_entry(KeyRole::Approver, &next));
        ops.push(Op::EnrollKey(ApproverKey {
            id: KeyId::from_parts(now, clock::random()),
            kind: "cli".to_owned(),
            label: "command line".to_owned(),
            public_key: next.as_bytes().to_vec(),
            enrolled_at: now,
            revoked_at: None,
        }));
    }
    if let Some(old) = known(&old).filter(|key| key.revoked_at.is_none()) {
        ops.push(Op::RevokeKey { key: old.id, at: now });
    }
    if !ops.is_empty() {
        store.commit_blocking(Batch::synced(ops))?;
    }
    record_public(&context.home, KeyRole::Approver, &next)?;
    keys.promote_next()?;
    drop(locks);
    Ok(next)
}

/// The entry that says that a key follows another.
fn rotation_entry(role: KeyRole, next: &VerifyingKey) -> Op {
    let at = clock::now();
    let fact = Fact::Keyed {
        key: KeyId::from_parts(at, clock::random()),
        role: role.as_str().to_owned(),
        change: "rotated".to_owned(),
        grants: format!("to {}", hex::encode(next.as_bytes())),
    };
    Op::Append(Box::new(Entry { at, session: None, turn: None, turn_number: 0, fact }))
}

/// Revokes the keys that were issued by the old key: they fail to verify from now on, and lists show it.
fn revoke_issued(store: &Store, made: impl Fn(&str) -> bool) -> Result<(), Failure> {
    let at = clock::now();
    let given = store.blocking().issued_keys(at, MAX_ISSUED_KEYS)?;
    let revoke: Vec<Op> = given
        .into_iter()
        .filter(|key| made(&key.role))
        .map(|key| Op::Revoke { id: key.id.to_string(), at, expires_at: Some(key.expires_at) })
        .collect();
    // In portions, so that one transaction stays short.
    for some in revoke.chunks(AT_ONCE) {
        store.commit_blocking(Batch::synced(some.to_vec()))?;
    }
    Ok(())
}
