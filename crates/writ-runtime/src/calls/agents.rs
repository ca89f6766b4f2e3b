//! Agents that are folders: their approvals, deployments and ends, in the ledger with the keys that they are about. The folders
//! themselves are the command's: the engine has what their keys say of them.

use writ_policy::keys::{BaseClaims, KeyToken};
use writ_policy::principal::Authenticated;
use writ_store::batch::{Batch, Op};
use writ_store::keys::{IssuedKey, KeyOp, MAX_ISSUED_KEYS};
use writ_store::reads::{KeyReads as _, RevocationReads as _};
use writ_types::digest::Digest;
use writ_types::entry::{AgentChange, AgentRecord, DenyReason, Fact};
use writ_types::id::KeyId;

use super::issued::{Checked, Refused, base_in_force, issue_entry, record_refusal};
use crate::agent_records::{AgentHistory, AgentKeyring};
use crate::error::EngineError;
use crate::methods::params::{AgentDeployment, AgentNote, AgentRetirement, NotedAgent, RetiredAgent};
use crate::services::Services;

/// The longest version in a record, in bytes.
const MAX_VERSION_BYTES: usize = 64;
/// The longest reason in a record, in characters.
const MAX_REASON_CHARS: usize = 500;
/// The task keys that are revoked in one commit, with two operations each.
const TASKS_AT_ONCE: usize = 1_000;

/// Records that a person has approved an agent's folder, with the base key that was signed for it.
///
/// # Errors
///
/// If the key is not in force, or this version has another one.
pub(super) async fn bless_agent(
    services: &Services,
    who: &Authenticated<()>,
    AgentNote { token, version }: AgentNote,
) -> Result<NotedAgent, EngineError> {
    let subject = KeySubject::check_key(services, &token, version).await?;
    let history = AgentHistory::read_ledger(&services.journal.store, Some(&subject.claims.agent)).await?;
    let ring = key_ring(services);
    if let Some(earlier) = history.approval_of(&subject.version, ring) {
        let same = earlier.record.key == subject.claims.key && earlier.record.hash == subject.hash;
        let text = format!(
            "version {} of agent {} has a key already: {}",
            subject.version, subject.claims.agent, earlier.record.key
        );
        // A version keeps its key, so that its tasks of all weeks rest on one.
        return if same { Ok(subject.noted(Vec::new())) } else { subject.refuse(services, text).await };
    }
    let record = subject.record(services, who, AgentChange::Blessed, String::new());
    let key = IssuedKey {
        id: subject.claims.key,
        role: "base".to_owned(),
        agent: subject.claims.agent.clone(),
        about: format!("version {} of folder sha256 {}", subject.version, subject.claims.policy),
        hash: subject.hash,
        issued_at: services.journal.valid_now(),
        expires_at: subject.claims.expires_at,
    };
    let ops = vec![
        agent_entry(services, record),
        issue_entry(services, &key, "issued"),
        Op::Keys(KeyOp::Issue(key)),
    ];
    services.journal.store.commit(Batch::synced(ops)).await?;
    Ok(subject.noted(Vec::new()))
}

/// Records that an approved agent is put in its place.
///
/// # Errors
///
/// If its key is not in force, or was not approved.
pub(super) async fn deploy_agent(
    services: &Services,
    who: &Authenticated<()>,
    AgentDeployment { token, version, revoke_earlier }: AgentDeployment,
) -> Result<NotedAgent, EngineError> {
    let subject = KeySubject::check_key(services, &token, version).await?;
    let history = AgentHistory::read_ledger(&services.journal.store, Some(&subject.claims.agent)).await?;
    if !history.has_approved(subject.claims.key, subject.hash, key_ring(services)) {
        let text = format!("no person has approved this key of agent {}", subject.claims.agent);
        return subject.refuse(services, text).await;
    }
    let record = subject.record(services, who, AgentChange::Deployed, String::new());
    let mut ops = vec![agent_entry(services, record)];
    if !revoke_earlier {
        services.journal.store.commit(Batch::synced(ops)).await?;
        return Ok(subject.noted(Vec::new()));
    }
    let why = format!("by {}: version {} was deployed", who.principal(), subject.version);
    let revoked = keys_in_force(services, &history, Some(subject.claims.key)).await?;
    ops.extend(revoked.iter().flat_map(|key| revocation_ops(services, key, &why)));
    services.journal.store.commit(Batch::synced(ops)).await?;
    let tasks = revoke_tasks(services, &subject.claims.agent, &why).await?;
    Ok(NotedAgent { tasks, ..subject.noted(revoked.iter().map(|key| key.id).collect()) })
}

/// Revokes every key of an agent, and records that it is retired. An agent without a key in force is retired already.
///
/// # Errors
///
/// If the ledger cannot be read or written.
pub(super) async fn retire_agent(
    services: &Services,
    who: &Authenticated<()>,
    AgentRetirement { agent, reason }: AgentRetirement,
) -> Result<RetiredAgent, EngineError> {
    let history = AgentHistory::read_ledger(&services.journal.store, Some(&agent)).await?;
    // Keys that were given to an agent of this name by hand are not this command's.
    if history.0.is_empty() {
        return Ok(RetiredAgent { agent, revoked: Vec::new(), tasks: 0 });
    }
    let reason: String = reason.chars().take(MAX_REASON_CHARS).collect();
    let why = format!("by {}: agent {agent} was retired; {reason}", who.principal());
    let keys = keys_in_force(services, &history, None).await?;
    let mut ops = Vec::new();
    for entry in history.approvals(key_ring(services)) {
        let Some(key) = keys.iter().find(|key| key.id == entry.record.key) else { continue };
        let (by, reason) = (who.principal().to_string(), reason.clone());
        let record = AgentRecord { change: AgentChange::Retired, by, reason, ..entry.record.clone() };
        ops.push(agent_entry(services, record));
        ops.extend(revocation_ops(services, key, &why));
    }
    if !ops.is_empty() {
        services.journal.store.commit(Batch::synced(ops)).await?;
    }
    let tasks = revoke_tasks(services, &agent, &why).await?;
    Ok(RetiredAgent { agent, revoked: keys.iter().map(|key| key.id).collect(), tasks })
}

/// A key in force that something is recorded of.
struct KeySubject {
    claims: BaseClaims,
    hash: Digest,
    version: String,
}

impl KeySubject {
    async fn check_key(services: &Services, token: &KeyToken, version: String) -> Result<Self, EngineError> {
        let now = services.journal.valid_now();
        let checked =
            base_in_force(services, token, now).await?.and_then(|claims| plain_version(claims, &version));
        let claims = record_refusal(services, "agent", checked).await?;
        Ok(Self { claims, hash: Digest::of_bytes(token.as_bytes()), version })
    }

    async fn refuse<T>(&self, services: &Services, text: String) -> Result<T, EngineError> {
        let refused = Refused::new(DenyReason::Binding, text).for_agent(&self.claims.agent);
        record_refusal(services, "agent", Err(refused)).await
    }

    fn record(
        &self,
        services: &Services,
        who: &Authenticated<()>,
        change: AgentChange,
        reason: String,
    ) -> AgentRecord {
        let ring = key_ring(services);
        AgentRecord {
            agent: self.claims.agent.clone(),
            version: self.version.clone(),
            change,
            folder: self.claims.policy,
            key: self.claims.key,
            hash: self.hash,
            root: ring.root,
            epoch: ring.epoch,
            by: who.principal().to_string(),
            reason,
        }
    }

    fn noted(self, revoked: Vec<KeyId>) -> NotedAgent {
        NotedAgent {
            agent: self.claims.agent,
            version: self.version,
            key: self.claims.key,
            folder: self.claims.policy,
            hash: self.hash,
            expires_at: self.claims.expires_at,
            revoked,
            tasks: 0,
        }
    }
}

fn plain_version(claims: BaseClaims, version: &str) -> Checked<BaseClaims> {
    let plain = version.bytes().all(|byte| byte.is_ascii_graphic());
    if !version.is_empty() && version.len() <= MAX_VERSION_BYTES && plain {
        return Ok(claims);
    }
    let text = format!("a version has 1 to {MAX_VERSION_BYTES} letters, digits and signs");
    Err(Refused::new(DenyReason::Shape, text).for_agent(&claims.agent))
}

/// Returns the root key and the epoch of approvals that count.
fn key_ring(services: &Services) -> AgentKeyring {
    AgentKeyring { root: Digest::of_bytes(services.keys.held.root.as_bytes()), epoch: services.keys.epoch }
}

/// Returns the approved keys that have not ended and were not revoked, but for one.
async fn keys_in_force(
    services: &Services,
    history: &AgentHistory,
    except: Option<KeyId>,
) -> Result<Vec<IssuedKey>, EngineError> {
    let (store, now) = (&services.journal.store, services.journal.valid_now());
    let mut found: Vec<IssuedKey> = Vec::new();
    for entry in history.approvals(key_ring(services)) {
        let id = entry.record.key;
        if Some(id) == except || store.is_revoked(&id.to_string()).await? {
            continue;
        }
        found.extend(store.issued_key(id).await?.filter(|key| now < key.expires_at));
    }
    Ok(found)
}

/// Revokes the task keys of an agent that have not ended, and returns how many: the case router looks at them, so that their
/// cases go to others at once. Their base keys are revoked already.
async fn revoke_tasks(services: &Services, agent: &str, why: &str) -> Result<usize, EngineError> {
    let (store, now) = (&services.journal.store, services.journal.valid_now());
    let mut found = Vec::new();
    for key in store.issued_keys(now, MAX_ISSUED_KEYS).await? {
        if key.role == "task" && key.agent == agent && !store.is_revoked(&key.id.to_string()).await? {
            found.push(key);
        }
    }
    for some in found.chunks(TASKS_AT_ONCE) {
        let ops = some.iter().flat_map(|key| revocation_ops(services, key, why)).collect();
        store.commit(Batch::synced(ops)).await?;
    }
    Ok(found.len())
}

fn revocation_ops(services: &Services, key: &IssuedKey, why: &str) -> [Op; 2] {
    let (role, change) = (key.role.clone(), "revoked".to_owned());
    let noted = Fact::Keyed { key: key.id, role, change, grants: why.to_owned() };
    let at = services.journal.clock.now();
    let revoke = Op::Revoke { id: key.id.to_string(), at, expires_at: Some(key.expires_at) };
    [services.journal.own_entry(noted), revoke]
}

fn agent_entry(services: &Services, record: AgentRecord) -> Op {
    services.journal.own_entry(Fact::AgentMoved { record: Box::new(record) })
}
