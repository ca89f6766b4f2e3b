//! Keys: Biscuit tokens that say what an agent may do, verified once into a plain [`Authority`].
//!
//! A *base key* is signed by the installation's root key and says what an agent may do at all. A *task
//! key* is a third-party block of the router over exactly one base key, for one session, and is
//! short-lived. Authority is what both grant. Blocks hold facts of fixed shapes only; a token with rules,
//! checks or other facts is refused, so nothing in a token is ever computed.

pub mod document;
pub mod grants;
pub mod limits;

use std::collections::BTreeSet;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use biscuit_auth::builder::{Algorithm, BlockBuilder, Fact, Scope};
use biscuit_auth::{
    Authorizer, AuthorizerBuilder, AuthorizerLimits, Biscuit, KeyPair, PrivateKey, PublicKey,
    UnverifiedBiscuit,
};
use ed25519_dalek::{SigningKey, VerifyingKey};
use serde::{Deserialize, Serialize};
use writ_types::digest::Digest;
use writ_types::id::{InstallationId, KeyId, SessionId};
use writ_types::unit::Timestamp;

use grants::{Grants, KeyFields};

/// The largest token accepted, in bytes, before anything of it is parsed.
pub const MAX_TOKEN_BYTES: usize = 32 * 1024;
/// The longest that a task key lives unless configured otherwise (design 3.2).
pub const TASK_KEY_TTL: Duration = Duration::from_secs(30 * 60);
/// The most facts of a token (design 3.2).
pub const MAX_FACTS: usize = 1_000;
/// The name of the only router: the harness of this installation.
pub const ROUTER: &str = "router";
/// The most keys and orders that a task key rests on besides its base key: a copy of a copy, a few times.
pub const MAX_UNDER: usize = 8;
/// Limits on the evaluation of a token (design 3.2). Tokens with rules are refused before, so that what is
/// evaluated are look-ups in at most [`MAX_FACTS`] facts.
const LIMITS: AuthorizerLimits = AuthorizerLimits {
    max_facts: MAX_FACTS as u64,
    max_iterations: 100,
    max_time: Duration::from_millis(50),
};

/// The claims of a base key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseClaims {
    /// Its id.
    pub key: KeyId,
    /// The installation that it is good for.
    pub installation: InstallationId,
    /// The epoch that it is good for; a restore raises the epoch.
    pub epoch: u64,
    /// The agent.
    pub agent: String,
    /// Hash of the agent's rules when it was made.
    pub policy: Digest,
    /// When it ends.
    pub expires_at: Timestamp,
    /// The permitted kinds and scopes.
    pub grants: Grants,
}

/// The case of a customer that a task key is for, in tokens that identify no person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// The task: a conversation, for instance.
    pub task: String,
    /// The customer.
    pub customer: String,
    /// The case.
    pub case: String,
    /// The component that granted it: [`ROUTER`].
    pub granted_by: String,
}

/// The claims of a task key, on top of its base key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskClaims {
    /// Its id.
    pub key: KeyId,
    /// The base key that it belongs to.
    pub base: KeyId,
    /// The session that it is for.
    pub session: SessionId,
    /// From when it is good.
    pub not_before: Timestamp,
    /// When it ends.
    pub expires_at: Timestamp,
    /// The permitted kinds and scopes; never more than the base key's.
    pub grants: Grants,
    /// The case that it is for. Without one it grants no operation of the security proxy.
    pub case: Option<Case>,
    /// The ids that it rests on besides its base key: a standing order, or the key that it is a narrower copy
    /// of. It ends when one of them is revoked.
    pub under: BTreeSet<KeyId>,
    /// The hash of the approved plan with the steps that it is for.
    pub plan: Option<Digest>,
}

impl TaskClaims {
    /// A narrower copy for a sub-agent. It ends with this one at the latest, and rests on it.
    ///
    /// # Errors
    ///
    /// If it would grant more, last longer, or be a copy of too many copies.
    pub fn narrow_to(&self, copy: KeyId, grants: Grants, expires_at: Timestamp) -> Result<Self, KeyError> {
        // Each copy may be narrower than the one before, and never wider.
        if !grants.is_within(&self.grants) {
            return Err(KeyError::Wider("what it grants"));
        }
        // A copy that outlives its original would be valid after the original has ended.
        if expires_at > self.expires_at {
            return Err(KeyError::Wider("its time"));
        }
        // Revoking any of them must revoke the copy, so all ids are carried along.
        let mut under = self.under.clone();
        under.insert(self.key);
        // Bounds the chain of copies, and with it the ids to compare at each use.
        if under.len() > MAX_UNDER {
            return Err(KeyError::Wider("how many keys it rests on"));
        }
        Ok(Self { key: copy, grants, expires_at, under, ..self.clone() })
    }
}

/// A signed token, as bytes. As text it is base64 of the alphabet for URLs, without padding.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct KeyToken(Vec<u8>);

impl TryFrom<String> for KeyToken {
    type Error = KeyError;

    fn try_from(text: String) -> Result<Self, KeyError> {
        // Bounded before it is decoded: four characters are three bytes.
        if text.len() > MAX_TOKEN_BYTES.div_ceil(3).saturating_mul(4) {
            return Err(KeyError::TooLarge(text.len()));
        }
        URL_SAFE_NO_PAD.decode(text).map(Self).map_err(|_| KeyError::Signature)
    }
}

impl From<KeyToken> for String {
    fn from(token: KeyToken) -> Self {
        URL_SAFE_NO_PAD.encode(token.0)
    }
}

impl KeyToken {
    /// Wraps bytes that claim to be a token.
    pub const fn from_bytes(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns true if it has the form of a key, by whomever it was signed.
    pub fn is_whole(&self) -> bool {
        UnverifiedBiscuit::from(&self.0).is_ok()
    }
}

impl std::fmt::Debug for KeyToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Token({} bytes)", self.0.len())
    }
}

/// The reason why a token proves nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// It is too large to be looked at.
    #[error("the key has {0} bytes; the limit is {MAX_TOKEN_BYTES}")]
    TooLarge(usize),
    /// It is not a token, or its signatures are not good.
    #[error("the key is not signed by this installation, or was changed")]
    Signature,
    /// It has too few or too many blocks, or one that is not signed as it must be.
    #[error("the key has a block that does not belong there")]
    Blocks,
    /// It holds something other than the fixed facts.
    #[error("the key holds '{0}', which keys do not hold")]
    Content(String),
    /// A fact is missing or malformed.
    #[error("the key lacks a valid '{0}'")]
    Missing(&'static str),
    /// It is for another installation or an earlier epoch.
    #[error("the key belongs to another installation, or to the time before a restore")]
    Foreign,
    /// The task key belongs to another base key.
    #[error("the task key belongs to another base key")]
    Mixed,
    /// Nothing can be added to it, a seal neither.
    #[error("the key is sealed already")]
    Sealed,
    /// A copy would be more than what it is a copy of.
    #[error("{0} would exceed that of the key from which it is copied")]
    Wider(&'static str),
    /// A token could not be made.
    #[error("the key could not be made: {0}")]
    Build(String),
}

/// The grants of a verified pair of keys. Made only by [`Verifier::verify_task`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authority {
    base: BaseClaims,
    task: TaskClaims,
    revocation_ids: BTreeSet<String>,
}

impl Authority {
    /// The agent that it is for.
    pub fn agent(&self) -> &str {
        &self.base.agent
    }

    /// The base key.
    pub const fn base(&self) -> &BaseClaims {
        &self.base
    }

    /// The task key.
    pub const fn task(&self) -> &TaskClaims {
        &self.task
    }

    /// The ids under which any part of it can be revoked: Biscuit's own and both key ids.
    pub const fn revocation_ids(&self) -> &BTreeSet<String> {
        &self.revocation_ids
    }
}

fn biscuit_key(key: &SigningKey) -> Result<KeyPair, KeyError> {
    PrivateKey::from_bytes(&key.to_bytes(), Algorithm::Ed25519)
        .map(|private| KeyPair::from(&private))
        .map_err(|e| KeyError::Build(e.to_string()))
}

fn biscuit_public(key: &VerifyingKey) -> Result<PublicKey, KeyError> {
    PublicKey::from_bytes(key.as_bytes(), Algorithm::Ed25519).map_err(|_| KeyError::Signature)
}

fn to_token(token: &Biscuit) -> Result<KeyToken, KeyError> {
    let bytes = token.to_vec().map_err(|e| KeyError::Build(e.to_string()))?;
    // A token that is too large to be verified is not issued.
    if bytes.len() > MAX_TOKEN_BYTES { Err(KeyError::TooLarge(bytes.len())) } else { Ok(KeyToken(bytes)) }
}

fn build_block(facts: Vec<Fact>) -> BlockBuilder {
    let mut block = BlockBuilder::new();
    block.facts = facts;
    block
}

/// Makes a base key.
///
/// # Errors
///
/// If a claim cannot be written, or there are more than fit.
pub fn mint_base(claims: &BaseClaims, root: &SigningKey) -> Result<KeyToken, KeyError> {
    let token = Biscuit::builder()
        .merge(base_block(claims))
        .build(&biscuit_key(root)?)
        .map_err(|e| KeyError::Build(e.to_string()))?;
    to_token(&token)
}

fn base_block(claims: &BaseClaims) -> BlockBuilder {
    let mut facts = vec![
        grants::text_fact("base", &claims.key.to_string()),
        grants::text_fact("installation", &claims.installation.to_string()),
        grants::number_fact("epoch", claims.epoch),
        grants::text_fact("agent", &claims.agent),
        grants::text_fact("policy", &claims.policy.to_string()),
        grants::time_fact("expires", claims.expires_at),
    ];
    facts.extend(claims.grants.to_facts());
    build_block(facts)
}

/// Makes a task key over a base key: a third-party block of the router, which cannot be moved to another base key.
///
/// # Errors
///
/// If the base key is not one, a claim cannot be written, or there are more than fit.
pub fn mint_task(
    base: &KeyToken,
    claims: &TaskClaims,
    root: &VerifyingKey,
    router: &SigningKey,
) -> Result<KeyToken, KeyError> {
    // The base key is verified before anything is signed on top of it.
    let base = Biscuit::from(base.as_bytes(), biscuit_public(root)?).map_err(|_| KeyError::Signature)?;
    let router = biscuit_key(router)?;
    let build = |e: biscuit_auth::error::Token| KeyError::Build(e.to_string());
    // A third-party block names the base key by its signature, so it cannot be moved to another one.
    let request = base.third_party_request().map_err(build)?;
    let signed = request.create_block(&router.private(), task_block(claims)).map_err(build)?;
    let token = base.append_third_party(router.public(), signed).map_err(build)?;
    to_token(&token)
}

fn task_block(claims: &TaskClaims) -> BlockBuilder {
    let mut facts = vec![
        grants::text_fact("task", &claims.key.to_string()),
        grants::text_fact("task_base", &claims.base.to_string()),
        grants::text_fact("session", &claims.session.to_string()),
        grants::time_fact("not_before", claims.not_before),
        grants::time_fact("expires", claims.expires_at),
    ];
    facts.extend(claims.grants.to_facts());
    facts.extend(claims.under.iter().map(|id| grants::text_fact("under", &id.to_string())));
    facts.extend(claims.plan.map(|plan| grants::text_fact("plan", &plan.to_string())));
    if let Some(case) = &claims.case {
        let names = [
            ("task_id", &case.task),
            ("customer", &case.customer),
            ("case", &case.case),
            ("granted_by", &case.granted_by),
        ];
        facts.extend(names.map(|(name, value)| grants::text_fact(name, value)));
    }
    build_block(facts)
}

/// Makes a copy of a token to which no block can be added; it proves the same.
///
/// # Errors
///
/// If it is not signed by `root`, or sealed already.
pub fn seal_token(token: &KeyToken, root: &VerifyingKey) -> Result<KeyToken, KeyError> {
    // The bound comes before parsing, as when a token is verified.
    if token.0.len() > MAX_TOKEN_BYTES {
        return Err(KeyError::TooLarge(token.0.len()));
    }
    let open = Biscuit::from(token.as_bytes(), biscuit_public(root)?).map_err(|_| KeyError::Signature)?;
    to_token(&open.seal().map_err(|_| KeyError::Sealed)?)
}

/// The public keys that tokens must be signed by.
#[derive(Clone, Debug)]
pub struct Verifier {
    /// The root key's public half: signs base keys.
    pub root: VerifyingKey,
    /// The router's public half: signs task keys.
    pub router: VerifyingKey,
    /// This installation.
    pub installation: InstallationId,
    /// The epoch in force.
    pub epoch: u64,
}

impl Verifier {
    /// Verifies a token with its two blocks into an [`Authority`]. Expiry, revocation and scope are checked on every use, not here.
    ///
    /// # Errors
    ///
    /// If anything in it is not exactly as this installation writes it.
    pub fn verify_task(&self, token: &KeyToken) -> Result<Authority, KeyError> {
        let router = biscuit_public(&self.router)?;
        // The scope of a block is its signer, so facts of one block cannot pass for those of another.
        let (biscuit, mut authorizer, facts) = self.open(token, &[None, Some(router)])?;
        let base = KeyFields::read_fields(&mut authorizer, Scope::Authority, &grants::BASE)?;
        let task = KeyFields::read_fields(&mut authorizer, Scope::PublicKey(router), &grants::TASK)?;
        // Nothing is left over: each block holds facts of its own templates only.
        if base.len().saturating_add(task.len()) != facts.len() {
            return Err(KeyError::Content(grants::odd_one(&facts)));
        }
        self.assemble_authority(&biscuit, base, task)
    }

    /// Verifies a base key alone. Returns its claims and its revocation ids; without a task key it grants
    /// nothing.
    ///
    /// # Errors
    ///
    /// As [`Self::verify_task`].
    pub fn verify_base(&self, token: &KeyToken) -> Result<(BaseClaims, BTreeSet<String>), KeyError> {
        let (biscuit, mut authorizer, facts) = self.open(token, &[None])?;
        let base = KeyFields::read_fields(&mut authorizer, Scope::Authority, &grants::BASE)?;
        // Facts that are not read could mean something to a later version.
        if base.len() != facts.len() {
            return Err(KeyError::Content(grants::odd_one(&facts)));
        }
        let base = self.base_claims(base)?;
        let ids = biscuit.revocation_identifiers().into_iter().map(hex::encode).chain([base.key.to_string()]);
        Ok((base, ids.collect()))
    }

    /// Verifies that a task key belongs to this base key, where both are handed in.
    ///
    /// # Errors
    ///
    /// As [`Self::verify_task`], or that they do not belong together.
    pub fn verify_pair(&self, base: &KeyToken, task: &KeyToken) -> Result<Authority, KeyError> {
        let (base, _) = self.verify_base(base)?;
        let authority = self.verify_task(task)?;
        // Comparing claims is enough: both tokens were verified under the same root key.
        if authority.base == base { Ok(authority) } else { Err(KeyError::Mixed) }
    }

    /// Reads a token with blocks signed by these keys, without evaluating anything in it.
    fn open(
        &self,
        token: &KeyToken,
        signers: &[Option<PublicKey>],
    ) -> Result<(Biscuit, Authorizer, Vec<Fact>), KeyError> {
        // A token comes from outside, so its size is checked before any of it is parsed.
        if token.0.len() > MAX_TOKEN_BYTES {
            return Err(KeyError::TooLarge(token.0.len()));
        }
        let biscuit =
            Biscuit::from(token.as_bytes(), biscuit_public(&self.root)?).map_err(|_| KeyError::Signature)?;
        // The same token in other bytes is not the same: what is not signed must be as it is written here.
        if biscuit.to_vec().ok().as_deref() != Some(token.as_bytes()) {
            return Err(KeyError::Signature);
        }
        // Exactly these signers in this order: a third block, or one of another key, is refused.
        if biscuit.external_public_keys() != signers {
            return Err(KeyError::Blocks);
        }
        let authorizer =
            AuthorizerBuilder::new().set_limits(LIMITS).build(&biscuit).map_err(|_| KeyError::Signature)?;
        // The authorizer only parses: it is dumped before anything is evaluated.
        let (facts, rules, checks, policies) = authorizer.dump();
        // Rules and checks could take time or depend on their context; a comment could carry text past the bounds.
        let commented = biscuit.context().iter().any(Option::is_some);
        if commented || !(rules.is_empty() && checks.is_empty() && policies.is_empty()) {
            return Err(KeyError::Content("a rule, check or comment".to_owned()));
        }
        if facts.len() > MAX_FACTS {
            return Err(KeyError::Content(format!("{} facts", facts.len())));
        }
        Ok((biscuit, authorizer, facts))
    }

    fn base_claims(&self, mut base: KeyFields) -> Result<BaseClaims, KeyError> {
        let base = BaseClaims {
            key: base.take_parsed("base")?,
            installation: base.take_parsed("installation")?,
            epoch: base.take_number("epoch")?,
            agent: base.take_parsed("agent")?,
            policy: base.take_parsed("policy")?,
            expires_at: base.take_time("expires")?,
            grants: base.take_grants()?,
        };
        // The epoch grows with each restore from a backup, which makes all earlier keys foreign.
        if base.installation != self.installation || base.epoch != self.epoch {
            return Err(KeyError::Foreign);
        }
        Ok(base)
    }

    fn assemble_authority(
        &self,
        biscuit: &Biscuit,
        base: KeyFields,
        mut task: KeyFields,
    ) -> Result<Authority, KeyError> {
        let base = self.base_claims(base)?;
        let task = TaskClaims {
            key: task.take_parsed("task")?,
            base: task.take_parsed("task_base")?,
            session: task.take_parsed("session")?,
            not_before: task.take_time("not_before")?,
            expires_at: task.take_time("expires")?,
            grants: task.take_grants()?,
            case: task.take_case()?,
            under: task.take_under()?,
            plan: task.take_plan()?,
        };
        // A block is bound to its base key by the signature; the claims must say the same.
        if task.base != base.key {
            return Err(KeyError::Mixed);
        }
        // Every id of the chain, so that one revocation ends everything below it.
        let revocation_ids = biscuit
            .revocation_identifiers()
            .iter()
            .map(hex::encode)
            .chain([base.key.to_string(), task.key.to_string()])
            .chain(task.under.iter().map(ToString::to_string))
            .collect();
        Ok(Authority { base, task, revocation_ids })
    }
}

#[cfg(test)]
mod tests;
