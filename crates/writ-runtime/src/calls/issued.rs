//! Keys that are given out to whoever runs agents of their own: base keys that the root key has signed elsewhere are
//! noted, task keys are minted, narrowed and renewed here, by the router. Only their owner's terminal may ask for it.

use std::collections::BTreeSet;

use serde_json::Value;
use writ_policy::keys::document::{self, DocumentError};
use writ_policy::keys::{self, Authority, BaseClaims, TASK_KEY_TTL, TaskClaims, Token};
use writ_store::batch::{Batch, Op};
use writ_store::keys::{IssuedKey, KeyOp};
use writ_types::action::ActionKind;
use writ_types::api::key::{GivenKey, NotedKey};
use writ_types::digest::Digest;
use writ_types::entry::{DenyReason, Fact};
use writ_types::id::KeyId;
use writ_types::unit::Timestamp;

use crate::error::{EngineError, KeysError};
use crate::methods::params::{IssuedTaskKey, KeyPair, KeyToken, MintRequest, NarrowRequest};
use crate::services::Services;

/// Why a key is not made of what was handed in: for machines, and in words.
struct Refused {
    reason: DenyReason,
    text: String,
    /// Whose key was handed in, if that could be read.
    agent: Option<String>,
}

impl Refused {
    const fn new(reason: DenyReason, text: String) -> Self {
        Self { reason, text, agent: None }
    }

    /// The same, of the keys of this agent.
    fn of(self, agent: &str) -> Self {
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

fn expired(what: &str) -> Refused {
    Refused::new(DenyReason::Expired, format!("{what} has expired"))
}

/// Notes a base key, so that it can be listed and revoked.
///
/// # Errors
///
/// If it is none of this installation, or has ended.
pub(super) async fn issued(core: &Services, KeyToken { token }: KeyToken) -> Result<NotedKey, EngineError> {
    let now = core.journal.valid_now();
    let checked = base_in_force(core, &token, now)?;
    let base = told(core, "base key", checked).await?;
    let about = base.grants.limits.keys().cloned().collect::<Vec<_>>().join(", ");
    let key = IssuedKey {
        id: base.key,
        role: "base".to_owned(),
        agent: base.agent.clone(),
        about,
        hash: Digest::of(token.as_bytes()),
        issued_at: now,
        expires_at: base.expires_at,
    };
    note(core, key, "issued").await?;
    Ok(NotedKey { key: base.key, agent: base.agent, expires_at: base.expires_at.to_string() })
}

/// Mints a task key over a base key, for one case.
///
/// # Errors
///
/// If the base key is not in force, or the document says what no task key may.
pub(super) async fn mint(
    core: &Services,
    MintRequest { base, document }: MintRequest,
) -> Result<IssuedTaskKey, EngineError> {
    let now = core.journal.valid_now();
    let checked = base_in_force(core, &base, now)?.and_then(|claims| {
        let task = document::task(document).map_err(Refused::from);
        match task.and_then(|task| in_time(task.expires, now).map(|()| task)) {
            Ok(task) => Ok((claims, task)),
            Err(refused) => Err(refused.of(&claims.agent)),
        }
    });
    let (claims, task) = told(core, "task key", checked).await?;
    let minted = TaskClaims {
        key: core.journal.ids.key(now),
        base: claims.key,
        session: core.journal.ids.session(now),
        not_before: now,
        expires_at: task.expires.min(claims.expires_at),
        grants: claims.grants,
        case: Some(task.case),
        under: BTreeSet::new(),
        plan: None,
    };
    given(core, &base, minted, &claims.agent, "minted").await
}

/// Makes a narrower copy of a task key.
///
/// # Errors
///
/// If the keys are not in force, or the copy would be more than they are.
pub(super) async fn narrow(core: &Services, wanted: NarrowRequest) -> Result<IssuedTaskKey, EngineError> {
    let now = core.journal.valid_now();
    let checked = pair_in_force(core, &wanted.base, &wanted.token, now)?;
    let narrowed = checked.and_then(|authority| {
        match narrowed(authority.task(), wanted.document, core.journal.ids.key(now), now) {
            Ok(copy) => Ok((authority.agent().to_owned(), copy)),
            Err(refused) => Err(refused.of(authority.agent())),
        }
    });
    let (agent, copy) = told(core, "narrower task key", narrowed).await?;
    given(core, &wanted.base, copy, &agent, "narrowed").await
}

/// What a narrower copy of a task key says.
fn narrowed(task: &TaskClaims, document: Value, key: KeyId, now: Timestamp) -> Checked<TaskClaims> {
    let document = document::narrow(document)?;
    let grants = document.grants.unwrap_or_else(|| task.grants.clone());
    let expires = document.expires.unwrap_or(task.expires_at);
    if expires <= now {
        return Err(expired("the time of the copy"));
    }
    let copy = task.narrowed(key, grants, expires)?;
    Ok(TaskClaims { not_before: now, ..copy })
}

/// Mints a task key that says the same as one that is in force, for as long again.
///
/// # Errors
///
/// If the keys are not in force, or it is a copy: that goes no further than what it is a copy of.
pub(super) async fn renew(
    core: &Services,
    KeyPair { base, token }: KeyPair,
) -> Result<IssuedTaskKey, EngineError> {
    let now = core.journal.valid_now();
    let checked = pair_in_force(core, &base, &token, now)?;
    let renewed = checked.and_then(|authority| {
        let task = authority.task();
        if !task.under.is_empty() {
            let text = "a narrower copy is not renewed; narrow the renewed key again".to_owned();
            return Err(Refused::new(DenyReason::Scope, text).of(authority.agent()));
        }
        let lifetime = task.expires_at.since(task.not_before).min(TASK_KEY_TTL);
        let expires_at = now.plus(lifetime).min(authority.base().expires_at);
        let renewed =
            TaskClaims { key: core.journal.ids.key(now), not_before: now, expires_at, ..task.clone() };
        Ok((authority.agent().to_owned(), renewed))
    });
    let (agent, renewed) = told(core, "renewed task key", renewed).await?;
    given(core, &base, renewed, &agent, "renewed").await
}

/// The keys that were given out and have not ended.
///
/// # Errors
///
/// If the store cannot be read.
pub(super) fn list(core: &Services, limit: usize) -> Result<Vec<GivenKey>, EngineError> {
    let mut listed = Vec::new();
    for key in core.journal.store.issued_keys(core.journal.valid_now(), limit)? {
        let revoked = core.journal.store.is_revoked(&key.id.to_string())?;
        let IssuedKey { id, role, agent, about, expires_at, .. } = key;
        listed.push(GivenKey { key: id, role, agent, about, expires_at, revoked });
    }
    Ok(listed)
}

type Checked<T> = Result<T, Refused>;

fn base_in_force(core: &Services, token: &Token, now: Timestamp) -> Result<Checked<BaseClaims>, EngineError> {
    let (base, ids) = match core.keys.verifier.verify_base(token) {
        Ok(verified) => verified,
        Err(error) => return Ok(Err(error.into())),
    };
    Ok(match (any_revoked(core, &ids)?, now >= base.expires_at) {
        (true, _) => {
            let text = "the base key was revoked".to_owned();
            Err(Refused::new(DenyReason::Revoked, text).of(&base.agent))
        }
        (false, true) => Err(expired("the base key").of(&base.agent)),
        (false, false) => Ok(base),
    })
}

fn pair_in_force(
    core: &Services,
    base: &Token,
    token: &Token,
    now: Timestamp,
) -> Result<Checked<Authority>, EngineError> {
    let authority = match core.keys.verifier.verify_pair(base, token) {
        Ok(verified) => verified,
        Err(error) => {
            // Whose base key it is can often be read.
            let (refused, base) = (Refused::from(error), core.keys.verifier.verify_base(base));
            return Ok(Err(match base {
                Ok((base, _)) => refused.of(&base.agent),
                Err(_) => refused,
            }));
        }
    };
    let ends = authority.task().expires_at.min(authority.base().expires_at);
    Ok(match (any_revoked(core, authority.revocation_ids())?, now >= ends) {
        (true, _) => {
            let text = "the key was revoked".to_owned();
            Err(Refused::new(DenyReason::Revoked, text).of(authority.agent()))
        }
        (false, true) => Err(expired("the key").of(authority.agent())),
        (false, false) => Ok(authority),
    })
}

fn any_revoked(core: &Services, ids: &BTreeSet<String>) -> Result<bool, EngineError> {
    for id in ids {
        if core.journal.store.is_revoked(id)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn in_time(expires: Timestamp, now: Timestamp) -> Checked<()> {
    if expires <= now {
        return Err(expired("the time of the key"));
    }
    if expires > now.plus(TASK_KEY_TTL) {
        let text = format!("a task key lives {} minutes at most", TASK_KEY_TTL.as_secs() / 60);
        return Err(Refused::new(DenyReason::Shape, text));
    }
    Ok(())
}

/// What was checked; a refusal leaves an entry, with the agent whose keys were handed in, if that could be read.
async fn told<T>(core: &Services, what: &str, checked: Checked<T>) -> Result<T, EngineError> {
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
    };
    core.journal.store.commit(Batch::relaxed(vec![core.journal.own_entry(fact)])).await?;
    Err(KeysError::Refused { what: what.to_owned(), why: text }.into())
}

/// Signs a task key, notes it, and hands it out.
async fn given(
    core: &Services,
    base: &Token,
    claims: TaskClaims,
    agent: &str,
    change: &str,
) -> Result<IssuedTaskKey, EngineError> {
    let token = keys::mint_task(base, &claims, &core.keys.held.root, &core.keys.held.harness)?;
    // What cannot be verified here is not handed out.
    core.keys.verifier.verify(&token)?;
    let about = claims.case.as_ref().map_or_else(String::new, |case| {
        format!("task {} for {} of {} by {}", case.task, case.case, case.customer, case.granted_by)
    });
    let key = IssuedKey {
        id: claims.key,
        role: "task".to_owned(),
        agent: agent.to_owned(),
        about,
        hash: Digest::of(token.as_bytes()),
        issued_at: claims.not_before,
        expires_at: claims.expires_at,
    };
    note(core, key, change).await?;
    Ok(IssuedTaskKey {
        key: claims.key,
        base: claims.base,
        agent: agent.to_owned(),
        token,
        expires_at: claims.expires_at.to_string(),
    })
}

/// Writes down that a key is given out: whose, for what, until when, and its hash; never itself.
async fn note(core: &Services, key: IssuedKey, change: &str) -> Result<(), EngineError> {
    let grants = format!("agent {}: {}; until {}; sha256 {}", key.agent, key.about, key.expires_at, key.hash);
    let fact = Fact::Keyed { key: key.id, role: key.role.clone(), change: change.to_owned(), grants };
    core.journal
        .store
        .commit(Batch::synced(vec![core.journal.own_entry(fact), Op::Keys(KeyOp::Issue(key))]))
        .await?;
    Ok(())
}
