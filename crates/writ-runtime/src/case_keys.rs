//! Task keys for the cases of a fleet: what its router mints and revokes, in batches that it commits with its own changes.
//!
//! Only a router inside the engine's process gets this service; agents and the security proxy have no way to it.

use std::collections::BTreeSet;
use std::sync::Arc;

use writ_inspect::scope::Dimension;
use writ_policy::keys::{self, BaseClaims, Case, KeyToken, ROUTER, TASK_KEY_TTL, TaskClaims, Verifier};
use writ_store::batch::{Batch, Op, Receipt};
use writ_store::keys::{IssuedKey, KeyOp, MAX_ISSUED_KEYS};
use writ_store::reads::{KeyReads as _, RevocationReads as _};
use writ_store::store::Store;
use writ_types::action::ActionKind;
use writ_types::digest::Digest;
use writ_types::entry::{Entry, Fact};
use writ_types::id::{KeyId, SessionId};
use writ_types::unit::Timestamp;

use crate::error::{EngineError, KeysError};
use crate::journal::Journal;
use crate::keys::Keys;

/// The keys of cases.
#[derive(Clone, Debug)]
pub struct CaseKeys {
    journal: Arc<Journal>,
    keys: Arc<Keys>,
}

/// An agent's base key that was in force when it was looked at.
#[derive(Clone, Debug)]
pub struct AgentBase {
    claims: BaseClaims,
    token: KeyToken,
}

/// A task key of a case.
#[derive(Clone, Debug)]
pub struct CaseKey {
    /// Its id.
    pub key: KeyId,
    /// The agent that it is for.
    pub agent: String,
    /// The key itself.
    pub token: KeyToken,
    /// The hash of the key.
    pub hash: Digest,
    /// The hash of its base key.
    pub base_hash: Digest,
    /// When it ends: after 30 minutes, and with its base key at the latest.
    pub expires_at: Timestamp,
}

// === impl AgentBase ===

impl AgentBase {
    /// Returns the agent.
    pub fn agent(&self) -> &str {
        &self.claims.agent
    }

    /// Returns its number, by which it is revoked.
    pub const fn key(&self) -> KeyId {
        self.claims.key
    }

    /// Returns the base key itself.
    pub const fn token(&self) -> &KeyToken {
        &self.token
    }

    /// Returns when it ends.
    pub const fn expires_at(&self) -> Timestamp {
        self.claims.expires_at
    }

    /// Returns true if it grants an operation of the security proxy.
    pub fn has_capability(&self, operation: &str) -> bool {
        self.claims.grants.covers_value(ActionKind::Operate, Dimension::Name, operation)
    }

    /// Returns the recipients of escalations that it grants.
    pub fn targets(&self) -> BTreeSet<String> {
        let granted = self.claims.grants.kinds.get(&ActionKind::Escalate);
        let recipients = granted.into_iter().flatten().filter(|(what, _)| *what == Dimension::Recipient);
        recipients.map(|(_, name)| name.clone()).collect()
    }
}

// === impl CaseKeys ===

impl CaseKeys {
    /// Creates the service over a journal and the keys of its installation.
    pub const fn new(journal: Arc<Journal>, keys: Arc<Keys>) -> Self {
        Self { journal, keys }
    }

    /// Returns the time by which keys are valid.
    pub fn now(&self) -> Timestamp {
        self.journal.valid_now()
    }

    /// Returns the store, for reading; it is written with [`Self::commit`] alone.
    pub fn store(&self) -> &Store {
        &self.journal.store
    }

    /// Returns the public keys that keys must be signed by here.
    pub fn verifier(&self) -> &Verifier {
        &self.keys.verifier
    }

    /// Returns a fresh id for a case, which is the session of its task keys.
    pub fn fresh_case(&self) -> SessionId {
        self.journal.ids.session(self.now())
    }

    /// Checks that a base key is this installation's, has not ended and was not revoked.
    ///
    /// # Errors
    ///
    /// If it is not, or the store cannot be read.
    pub async fn check_base(&self, token: &KeyToken) -> Result<AgentBase, EngineError> {
        let refused = |why: String| KeysError::Refused { what: "base key".to_owned(), why };
        let (claims, ids) =
            self.keys.verifier.verify_base(token).map_err(|error| refused(error.to_string()))?;
        if self.now() >= claims.expires_at {
            return Err(refused("it has expired".to_owned()).into());
        }
        for id in &ids {
            if self.journal.store.is_revoked(id).await? {
                return Err(refused("it was revoked".to_owned()).into());
            }
        }
        Ok(AgentBase { claims, token: token.clone() })
    }

    /// Returns true if a key was revoked.
    ///
    /// # Errors
    ///
    /// If the store cannot be read.
    pub async fn is_revoked(&self, key: KeyId) -> Result<bool, EngineError> {
        Ok(self.journal.store.is_revoked(&key.to_string()).await?)
    }

    /// Mints a task key over a base key, for one case. The operations note it; it is handed out once they are committed.
    ///
    /// # Errors
    ///
    /// If the key cannot be made.
    pub fn mint_case_key(
        &self,
        base: &AgentBase,
        case: SessionId,
        (customer_token, case_token): (&str, &str),
        change: &str,
    ) -> Result<(CaseKey, [Op; 2]), EngineError> {
        let now = self.now();
        let claims = TaskClaims {
            key: self.journal.ids.key(now),
            base: base.claims.key,
            session: case,
            not_before: now,
            expires_at: now.plus_duration(TASK_KEY_TTL).min(base.claims.expires_at),
            grants: base.claims.grants.clone(),
            case: Some(Case {
                task: case.to_string(),
                customer: customer_token.to_owned(),
                case: case_token.to_owned(),
                granted_by: ROUTER.to_owned(),
            }),
            under: BTreeSet::new(),
            plan: None,
        };
        let token = keys::mint_task(&base.token, &claims, &self.keys.held.root, &self.keys.held.harness)?;
        // A key that this engine could not verify is never handed out.
        self.keys.verifier.verify_task(&token)?;
        let (hash, base_hash) = (Digest::of_bytes(token.as_bytes()), Digest::of_bytes(base.token.as_bytes()));
        let about = format!("task {case} for {case_token} of {customer_token} by {ROUTER}");
        let (role, agent) = ("task".to_owned(), base.claims.agent.clone());
        let grants = format!("agent {agent}: {about}; until {}; sha256 {hash}", claims.expires_at);
        let noted = Fact::Keyed { key: claims.key, role: role.clone(), change: change.to_owned(), grants };
        let issued = IssuedKey {
            id: claims.key,
            role,
            agent: agent.clone(),
            about,
            hash,
            issued_at: now,
            expires_at: claims.expires_at,
        };
        let key = CaseKey { key: claims.key, agent, token, hash, base_hash, expires_at: claims.expires_at };
        Ok((key, [self.entry(case, noted), Op::Keys(KeyOp::Issue(issued))]))
    }

    /// Returns the operations that revoke a task key of a case.
    pub fn revocation_of(&self, case: SessionId, (key, ends_at): (KeyId, Timestamp), why: &str) -> [Op; 2] {
        let (role, change) = ("task".to_owned(), "revoked".to_owned());
        let noted = Fact::Keyed { key, role, change, grants: why.to_owned() };
        let revoke = Op::Revoke { id: key.to_string(), at: self.now(), expires_at: Some(ends_at) };
        [self.entry(case, noted), revoke]
    }

    /// Returns the task keys of cases that have not ended, each with its end.
    ///
    /// # Errors
    ///
    /// If the store cannot be read.
    pub async fn issued_for_cases(&self) -> Result<Vec<(SessionId, KeyId, Timestamp)>, EngineError> {
        let issued = self.journal.store.issued_keys(self.now(), MAX_ISSUED_KEYS).await?;
        let keys = issued.into_iter().filter(|key| key.role == "task");
        // As `mint_case_key` writes it. Other task keys are for tasks of their owner's choice.
        let of_case = keys.filter_map(|key| {
            let case = key.about.strip_prefix("task ")?.split(' ').next()?.parse().ok()?;
            Some((case, key.id, key.expires_at))
        });
        Ok(of_case.collect())
    }

    /// Returns an entry of now about a case, without secrets. Its time is that by which keys are valid.
    pub fn entry(&self, case: SessionId, fact: Fact) -> Op {
        Op::Append(Box::new(Entry {
            at: self.now(),
            session: Some(case),
            turn: None,
            turn_number: 0,
            fact: self.journal.scrubbed(fact),
        }))
    }

    /// Commits a batch, which is on disk when this returns.
    ///
    /// # Errors
    ///
    /// If a condition does not hold or the database cannot be written; then nothing was.
    pub async fn commit(&self, ops: Vec<Op>) -> Result<Receipt, EngineError> {
        Ok(self.journal.store.commit(Batch::synced(ops)).await?)
    }
}
