//! Keys for owners who run agents of their own. Base keys that the root key signed elsewhere are recorded;
//! task keys are minted, narrowed and renewed here, by the router. Only the owner's terminal may ask for it.

use std::collections::BTreeSet;

use serde_json::Value;
use writ_policy::keys::document::{self, DocumentError};
use writ_policy::keys::{self, Authority, BaseClaims, KeyToken, TASK_KEY_TTL, TaskClaims};
use writ_store::batch::{Batch, Op};
use writ_store::keys::{IssuedKey, KeyOp};
use writ_store::reads::{KeyReads as _, RevocationReads as _};
use writ_types::action::ActionKind;
use writ_types::api::key::{GivenKey, NotedKey};
use writ_types::digest::Digest;
use writ_types::entry::{DenyReason, Fact};
use writ_types::id::KeyId;
use writ_types::unit::Timestamp;

use crate::error::{EngineError, KeysError};
use crate::methods::params::{BaseKeyNote, IssuedTaskKey, KeyPair, MintRequest, NarrowRequest};
use crate::services::Services;

/// Reason that no key is made from the input: a code for machines, and a text.
pub(super) struct Refused {
    reason: DenyReason,
    text: String,
    /// Agent named in the key that was handed in, if it could be read.
    agent: Option<String>,
}

impl Refused {
    pub(super) const fn new(reason: DenyReason, text: String) -> Self {
        Self { reason, text, agent: None }
    }

    /// The same, of the keys of this agent.
    pub(super) fn for_agent(self, agent: &str) -> Self {
        Self { agent: Some(agent.to_owned()), ..self }
    }
}

impl From<keys::KeyError> for Refused {
    fn from(error: keys::KeyError) -> Self {
        let reason = match error {
            keys::KeyError::Wider(_) => DenyReason::Scope,
            keys::KeyError::TooLarge(_)
            | keys::KeyError::Signature
            | keys::KeyError::Blocks
            | keys::KeyError::Content(_)
            | keys::KeyError::Missing(_)
            | keys::KeyError::Foreign
            | keys::KeyError::Mixed
            | keys::KeyError::Sealed
            | keys::KeyError::Build(_) => DenyReason::Binding,
        };
        Self::new(reason, error.to_string())
    }
}

impl From<DocumentError> for Refused {
    fn from(error: DocumentError) -> Self {
        Self::new(DenyReason::Shape, error.to_string())
    }
}

fn expired_key(what: &str) -> Refused {
    Refused::new(DenyReason::Expired, format!("{what} has expired"))
}

/// Notes a base key, so that it can be listed and revoked.
///
/// # Errors
///
/// If it is none of this installation, or has ended.
pub(super) async fn note_base_key(
    services: &Services,
    BaseKeyNote { token }: BaseKeyNote,
) -> Result<NotedKey, EngineError> {
    let now = services.journal.valid_now();
    let checked = base_in_force(services, &token, now).await?;
    let base = record_refusal(services, "base key", checked).await?;
    let about = base.grants.limits.keys().cloned().collect::<Vec<_>>().join(", ");
    let key = IssuedKey {
        id: base.key,
        role: "base".to_owned(),
        agent: base.agent.clone(),
        about,
        hash: Digest::of_bytes(token.as_bytes()),
        issued_at: now,
        expires_at: base.expires_at,
    };
    note_key(services, key, "issued").await?;
    Ok(NotedKey { key: base.key, agent: base.agent, expires_at: base.expires_at.to_string() })
}

/// Mints a task key over a base key, for one case.
///
/// # Errors
///
/// If the base key is not in force, or the document says what no task key may.
pub(super) async fn mint_key(
    services: &Services,
    MintRequest { base, document }: MintRequest,
) -> Result<IssuedTaskKey, EngineError> {
    let now = services.journal.valid_now();
    let checked = base_in_force(services, &base, now).await?.and_then(|claims| {
        let task = document::read_task(document).map_err(Refused::from);
        match task.and_then(|task| in_time(task.expires, now).map(|()| task)) {
            Ok(task) => Ok((claims, task)),
            Err(refused) => Err(refused.for_agent(&claims.agent)),
        }
    });
    let (claims, task) = record_refusal(services, "task key", checked).await?;
    let minted = TaskClaims {
        key: services.journal.ids.key(now),
        base: claims.key,
        session: services.journal.ids.session(now),
        not_before: now,
        expires_at: task.expires.min(claims.expires_at),
        grants: claims.grants,
        case: Some(task.case),
        under: BTreeSet::new(),
        plan: None,
    };
    hand_out(services, &base, minted, &claims.agent, "minted").await
}

/// Makes a narrower copy of a task key.
///
/// # Errors
///
/// If the keys are not in force, or the copy would be more than they are.
pub(super) async fn narrow_key(
    services: &Services,
    wanted: NarrowRequest,
) -> Result<IssuedTaskKey, EngineError> {
    let now = services.journal.valid_now();
    let checked = pair_in_force(services, &wanted.base, &wanted.token, now).await?;
    let narrowed = checked.and_then(|authority| {
        match narrowed_claims(authority.task(), wanted.document, services.journal.ids.key(now), now) {
            Ok(copy) => Ok((authority.agent().to_owned(), copy)),
            Err(refused) => Err(refused.for_agent(authority.agent())),
        }
    });
    let (agent, copy) = record_refusal(services, "narrower task key", narrowed).await?;
    hand_out(services, &wanted.base, copy, &agent, "narrowed").await
}

/// Builds the claims of a narrower copy of a task key.
fn narrowed_claims(task: &TaskClaims, document: Value, key: KeyId, now: Timestamp) -> Checked<TaskClaims> {
    let document = document::read_narrow(document)?;
    let grants = document.grants.unwrap_or_else(|| task.grants.clone());
    let expires = document.expires.unwrap_or(task.expires_at);
    if expires <= now {
        return Err(expired_key("the time of the copy"));
    }
    let copy = task.narrow_to(key, grants, expires)?;
    Ok(TaskClaims { not_before: now, ..copy })
}

/// Mints a task key that says the same as one that is in force, for as long again.
///
/// # Errors
///
/// If the keys are not in force, or it is a copy: that goes no further than what it is a copy of.
pub(super) async fn renew_key(
    services: &Services,
    KeyPair { base, token }: KeyPair,
) -> Result<IssuedTaskKey, EngineError> {
    let now = services.journal.valid_now();
    let checked = pair_in_force(services, &base, &token, now).await?;
    let renewed = checked.and_then(|authority| {
        let task = authority.task();
        if !task.under.is_empty() {
            let text = "a narrower copy is not renewed; narrow the renewed key again".to_owned();
            return Err(Refused::new(DenyReason::Scope, text).for_agent(authority.agent()));
        }
        let lifetime = task.expires_at.time_since(task.not_before).min(TASK_KEY_TTL);
        let expires_at = now.plus_duration(lifetime).min(authority.base().expires_at);
        let renewed =
            TaskClaims { key: services.journal.ids.key(now), not_before: now, expires_at, ..task.clone() };
        Ok((authority.agent().to_owned(), renewed))
    });
    let (agent, renewed) = record_refusal(services, "renewed task key", renewed).await?;
    hand_out(services, &base, renewed, &agent, "renewed").await
}

/// The keys that were given out and have not ended.
///
/// # Errors
///
/// If the store cannot be read.
pub(super) async fn list_issued(services: &Services, limit: usize) -> Result<Vec<GivenKey>, EngineError> {
    let mut listed = Vec::new();
    for key in services.journal.store.issued_keys(services.journal.valid_now(), limit).await? {
        let revoked = services.journal.store.is_revoked(&key.id.to_string()).await?;
        let IssuedKey { id, role, agent, about, expires_at, .. } = key;
        listed.push(GivenKey { key: id, role, agent, about, expires_at, revoked });
    }
    Ok(listed)
}

pub(super) type Checked<T> = Result<T, Refused>;

pub(super) async fn base_in_force(
    services: &Services,
    token: &KeyToken,
    now: Timestamp,
) -> Result<Checked<BaseClaims>, EngineError> {
    let (base, ids) = match services.keys.verifier.verify_base(token) {
        Ok(verified) => verified,
        Err(error) => return Ok(Err(error.into())),
    };
    Ok(match (any_revoked(services, &ids).await?, now >= base.expires_at) {
        (true, _) => {
            let text = "the base key was revoked".to_owned();
            Err(Refused::new(DenyReason::Revoked, text).for_agent(&base.agent))
        }
        (false, true) => Err(expired_key("the base key").for_agent(&base.agent)),
        (false, false) => Ok(base),
    })
}

async fn pair_in_force(
    services: &Services,
    base: &KeyToken,
    token: &KeyToken,
    now: Timestamp,
) -> Result<Checked<Authority>, EngineError> {
    let authority = match services.keys.verifier.verify_pair(base, token) {
        Ok(verified) => verified,
        Err(error) => {
            // The agent of the base key can often be read even if the pair does not verify.
            let (refused, base) = (Refused::from(error), services.keys.verifier.verify_base(base));
            return Ok(Err(match base {
                Ok((base, _)) => refused.for_agent(&base.agent),
                Err(_) => refused,
            }));
        }
    };
    let ends = authority.task().expires_at.min(authority.base().expires_at);
    Ok(match (any_revoked(services, authority.revocation_ids()).await?, now >= ends) {
        (true, _) => {
            let text = "the key was revoked".to_owned();
            Err(Refused::new(DenyReason::Revoked, text).for_agent(authority.agent()))
        }
        (false, true) => Err(expired_key("the key").for_agent(authority.agent())),
        (false, false) => Ok(authority),
    })
}

async fn any_revoked(services: &Services, ids: &BTreeSet<String>) -> Result<bool, EngineError> {
    for id in ids {
        if services.journal.store.is_revoked(id).await? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn in_time(expires: Timestamp, now: Timestamp) -> Checked<()> {
    if expires <= now {
        return Err(expired_key("the time of the key"));
    }
    if expires > now.plus_duration(TASK_KEY_TTL) {
        let text = format!("a task key lives {} minutes at most", TASK_KEY_TTL.as_secs() / 60);
        return Err(Refused::new(DenyReason::Shape, text));
    }
    Ok(())
}

/// Returns the checked value. A refusal is recorded in the ledger, with the agent of the keys that were
/// handed in, if it could be read.
pub(super) async fn record_refusal<T>(
    services: &Services,
    what: &str,
    checked: Checked<T>,
) -> Result<T, EngineError> {
    let Refused { reason, text, agent } = match checked {
        Ok(checked) => return Ok(checked),
        Err(refused) => refused,
    };
    let fact = Fact::Denied {
        prepared: None,
        kind: ActionKind::Operate,
        reason,
        rule: what.to_owned(),
        text: agent.map_or_else(|| text.clone(), |agent| format!("agent {agent}: {text}")),
        outside: "the key is not valid here".to_owned(),
        requester: None,
    };
    services.journal.store.commit(Batch::relaxed(vec![services.journal.own_entry(fact)])).await?;
    Err(KeysError::Refused { what: what.to_owned(), why: text }.into())
}

/// Signs a task key, notes it, and hands it out.
async fn hand_out(
    services: &Services,
    base: &KeyToken,
    claims: TaskClaims,
    agent: &str,
    change: &str,
) -> Result<IssuedTaskKey, EngineError> {
    let token = keys::mint_task(base, &claims, &services.keys.held.root, &services.keys.held.harness)?;
    // A key that this engine could not verify is never handed out.
    services.keys.verifier.verify_task(&token)?;
    let about = claims.case.as_ref().map_or_else(String::new, |case| {
        format!("task {} for {} of {} by {}", case.task, case.case, case.customer, case.granted_by)
    });
    let key = IssuedKey {
        id: claims.key,
        role: "task".to_owned(),
        agent: agent.to_owned(),
        about,
        hash: Digest::of_bytes(token.as_bytes()),
        issued_at: claims.not_before,
        expires_at: claims.expires_at,
    };
    note_key(services, key, change).await?;
    Ok(IssuedTaskKey {
        key: claims.key,
        base: claims.base,
        agent: agent.to_owned(),
        token,
        expires_at: claims.expires_at.to_string(),
    })
}

/// Records that a key is given out: its agent, its purpose, its expiry and its hash, but never the key
/// itself.
async fn note_key(services: &Services, key: IssuedKey, change: &str) -> Result<(), EngineError> {
    let ops = vec![issue_entry(services, &key, change), Op::Keys(KeyOp::Issue(key))];
    services.journal.store.commit(Batch::synced(ops)).await?;
    Ok(())
}

/// Returns the entry about a key that is given out.
pub(super) fn issue_entry(services: &Services, key: &IssuedKey, change: &str) -> Op {
    let grants = format!("agent {}: {}; until {}; sha256 {}", key.agent, key.about, key.expires_at, key.hash);
    services.journal.own_entry(Fact::Keyed {
        key: key.id,
        role: key.role.clone(),
        change: change.to_owned(),
        grants,
    })
}
