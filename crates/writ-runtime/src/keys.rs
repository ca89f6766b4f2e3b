//! The keys of the engine: what it holds, mints, renews and revokes, and which approvals count.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ed25519_dalek::{SigningKey, VerifyingKey};
use writ_inspect::webauthn::Passkey;
use writ_policy::approval::{self, Approval, ApprovalError, ApprovalToken, Approvers, Expected, TaskTerms};
use writ_policy::keys::grants::Grants;
use writ_policy::keys::{self, Authority, BaseClaims, KeyToken, TASK_KEY_TTL, TaskClaims, Verifier};
use writ_policy::order::StandingOrder;
use writ_policy::pattern::standing;
use writ_policy::rules::RuleSet;
use writ_store::approvals::{ApproverKey, StoredAsk as AskRow};
use writ_store::batch::{Batch, Op};
use writ_store::reads::{
    ApprovalReads as _, KeyReads as _, PlanReads as _, RevocationReads as _, WorkReads as _,
};
use writ_types::action::ActionKind;
use writ_types::entry::{Decision, Fact};
use writ_types::frame::TaskOffer;
use writ_types::id::{InstallationId, ItemId, SessionId, TurnId};
use writ_types::unit::Timestamp;

use crate::clock::Ids;
use crate::config::{RENEW_BEFORE, RuntimeConfig};
use crate::error::{EngineError, KeysError};
use crate::journal::Journal;
use crate::session::{Session, UnderPlan, WorkTerms, base_grants, work_kinds};

/// The kind of an approver key that is a passkey, as the store names it.
pub(crate) const PASSKEY: &str = "passkey";

/// The keys that the engine holds. Approver keys are not among them.
#[derive(Debug)]
pub struct EngineKeys {
    /// Signs task keys, records of messages and session approvals.
    pub harness: SigningKey,
    /// The base key of the agent.
    pub base: KeyToken,
    /// The claims in the base key.
    pub base_claims: BaseClaims,
    /// The root key's public half.
    pub root: VerifyingKey,
}

impl EngineKeys {
    /// Makes the agent's base key for this run; the root key is not stored.
    ///
    /// # Errors
    ///
    /// If the key cannot be made.
    pub fn mint(
        config: &RuntimeConfig,
        rules: &RuleSet,
        root: &SigningKey,
        harness: SigningKey,
        now: Timestamp,
    ) -> Result<Self, EngineError> {
        let base_claims = BaseClaims {
            key: Ids.key(now),
            installation: config.installation,
            epoch: config.epoch,
            agent: config.agent.clone(),
            policy: rules.digest(),
            expires_at: now.plus_duration(BASE_KEY_TTL),
            grants: base_grants(),
        };
        let base = keys::mint_base(&base_claims, root)?;
        Ok(Self { harness, base, base_claims, root: root.verifying_key() })
    }
}

/// Returns the grants of a key for an attempt of the autopilot: what work on a plan needs, of the kinds that the plan's own key has.
/// By the plan's card, its changes are put into its work tree.
fn attempt_grants(plan: &TaskClaims, session: &Session) -> Grants {
    let kinds = work_kinds(session.grants()).filter(|(kind, _)| plan.grants.kinds.contains_key(kind));
    let grants = Grants { kinds: kinds.collect(), ..Grants::default() };
    if grants.kinds.contains_key(&ActionKind::WriteFile) {
        grants.preapprove_kind(ActionKind::WriteFile)
    } else {
        grants
    }
}

/// The lifetime of a base key: an engine that runs longer makes a new one at its next start.
const BASE_KEY_TTL: std::time::Duration = std::time::Duration::from_secs(365 * 24 * 60 * 60);

/// The keys of one installation, and the checks that depend on them.
#[derive(Debug)]
pub struct Keys {
    pub(crate) journal: Arc<Journal>,
    pub(crate) held: EngineKeys,
    pub(crate) verifier: Verifier,
    pub(crate) installation: InstallationId,
    pub(crate) epoch: u64,
}

impl Keys {
    /// Creates the keys of an installation in an epoch.
    pub fn new(journal: Arc<Journal>, held: EngineKeys, installation: InstallationId, epoch: u64) -> Self {
        let router = held.harness.verifying_key();
        let verifier = Verifier { root: held.root, router, installation, epoch };
        Self { journal, held, verifier, installation, epoch }
    }

    pub(crate) fn expected(&self, ask: &AskRow) -> Result<Expected, EngineError> {
        let offered = |offer: &TaskOffer| TaskTerms::offered_terms(offer, ask.card.risk);
        Ok(Expected {
            installation: self.installation,
            epoch: self.epoch,
            ask: ask.card.ask_id.clone(),
            prepared: ask.card.prepared,
            shown: ask.card.shown_hash,
            risk: ask.card.risk,
            expires_at: ask.card.expires_at,
            values: !ask.card.values.is_empty(),
            host: ask.card.host.clone(),
            approvers: ask.card.approvers,
            task: ask.card.task.as_deref().map(offered).transpose()?,
            standing: ask
                .card
                .standing
                .as_deref()
                .map(standing::offered_digests)
                .transpose()?
                .unwrap_or_default(),
        })
    }

    /// The authority for what the owner's authenticated word has asked for: that of the session's task key while it has
    /// time left, grants what the session grants and is not revoked; else that of a fresh one, with the entry to be
    /// written before it is used.
    ///
    /// # Errors
    ///
    /// If the store cannot be read, or the key cannot be made.
    pub(crate) async fn authorise(
        &self,
        session: &Session,
        turn: Option<(TurnId, u64)>,
    ) -> Result<(Arc<Authority>, Option<Op>), EngineError> {
        if let Some(work) = session.terms.work {
            return match work.under {
                None => Ok((Arc::new(self.plan_authority(session).await?), None)),
                Some(under) => self.attempt_authority(session, (work.item, under)).await,
            };
        }
        let order = self.order_of(session, turn.map(|(_, number)| number)).await?;
        let held = session.state().keys.task.clone();
        if let Some(held) = held
            && held.task().grants == session.grants()
            && held.task().expires_at.time_since(self.journal.valid_now()) >= RENEW_BEFORE
            && self.revoked(&held).await?.is_empty()
        {
            return Ok((held, None));
        }
        let (authority, keyed) =
            self.minted(session, order.as_ref(), turn, ("minted", self.journal.valid_now()))?;
        Ok((Arc::new(authority), Some(keyed)))
    }

    /// The authority of the plan that a work item's session runs under: the newest that was approved and is in force.
    ///
    /// # Errors
    ///
    /// If there is none, or the store cannot be read.
    pub(crate) async fn plan_authority(&self, session: &Session) -> Result<Authority, EngineError> {
        // A closed session ends its item as well.
        if session.state().closed {
            return Err(EngineError::SessionClosed(session.id));
        }
        self.plan_in_force(session.id).await
    }

    /// The authority of the newest plan of a session that was approved and is in force.
    async fn plan_in_force(&self, session: SessionId) -> Result<Authority, EngineError> {
        let none = || EngineError::Keys(KeysError::NoPlan(session));
        let plans = self.journal.store.plans(Some(session), self.journal.valid_now(), 1).await?;
        let plan = plans.into_iter().next().ok_or_else(none)?;
        let token = KeyToken::try_from(plan.token).map_err(|_| none())?;
        let authority = self.verifier.verify_task(&token)?;
        if self.revoked(&authority).await?.is_empty() { Ok(authority) } else { Err(none()) }
    }

    /// The authority of an attempt of the autopilot, or of a gate: a key for its own session, under that of the approved plan,
    /// with which it ends. The one that the session holds while it still counts, else a fresh one with its entry.
    ///
    /// # Errors
    ///
    /// If the plan is not in force, the attempt is over, the store cannot be read, or the key cannot be made.
    async fn attempt_authority(
        &self,
        session: &Session,
        (item, under): (ItemId, UnderPlan),
    ) -> Result<(Arc<Authority>, Option<Op>), EngineError> {
        if session.state().closed {
            return Err(EngineError::SessionClosed(session.id));
        }
        let own = self.journal.store.work_item(item).await?;
        if own.is_none_or(|item| item.state.is_over()) {
            return Err(KeysError::NoPlan(session.id).into());
        }
        let plan = self.plan_in_force(under.session).await?;
        let grants = attempt_grants(plan.task(), session);
        let (held, now) = (session.state().keys.task.clone(), self.journal.valid_now());
        if let Some(held) = held
            && held.task().under.contains(&plan.task().key)
            && held.task().grants == grants
            && now < held.task().expires_at
            && self.revoked(&held).await?.is_empty()
        {
            return Ok((held, None));
        }
        // All keys above it are named, so that the revocation of any of them ends this one.
        let mut above = plan.task().under.clone();
        above.insert(plan.task().key);
        let claims = TaskClaims {
            key: self.journal.ids.key(now),
            base: self.held.base_claims.key,
            session: session.id,
            not_before: now,
            expires_at: plan.task().expires_at,
            grants,
            case: None,
            under: above,
            plan: None,
        };
        let token = keys::mint_task(&self.held.base, &claims, &self.held.root, &self.held.harness)?;
        let authority = self.verifier.verify_task(&token)?;
        let fact = Fact::Keyed {
            key: claims.key,
            role: "task".to_owned(),
            change: "derived".to_owned(),
            grants: format!(
                "an attempt under the plan's key {} until {}",
                plan.task().key,
                claims.expires_at
            ),
        };
        Ok((Arc::new(authority), Some(self.journal.entry(session.id, None, fact))))
    }

    /// The authority of a turn that is taken up again.
    ///
    /// # Errors
    ///
    /// As [`Self::authorise`].
    pub(crate) async fn resume_authority(
        &self,
        session: &Session,
        turn: (TurnId, u64),
    ) -> Result<Authority, EngineError> {
        match session.terms.work {
            Some(WorkTerms { under: None, .. }) => self.plan_authority(session).await,
            Some(WorkTerms { item, under: Some(under), .. }) => {
                let (authority, keyed) = self.attempt_authority(session, (item, under)).await?;
                if let Some(keyed) = keyed {
                    self.journal.store.commit(Batch::relaxed(vec![keyed])).await?;
                }
                Ok(authority.as_ref().clone())
            }
            None => self.grant(session, Some(turn)).await,
        }
    }

    /// Mints a task key for a session, because its owner's authenticated word came in, and verifies it.
    ///
    /// # Errors
    ///
    /// If the key cannot be made, or the ledger cannot be written.
    pub(crate) async fn grant(
        &self,
        session: &Session,
        turn: Option<(TurnId, u64)>,
    ) -> Result<Authority, EngineError> {
        self.mint(session, turn, "minted").await
    }

    /// The authority of a turn that still runs: the same one, or a fresh one where it is about to end. What was
    /// revoked, or ends with its order, is not renewed; the door says so then.
    ///
    /// # Errors
    ///
    /// If the store cannot be read or written, or the key cannot be made.
    pub(crate) async fn renewed(
        &self,
        session: &Session,
        turn: Option<(TurnId, u64)>,
        authority: &Arc<Authority>,
    ) -> Result<Arc<Authority>, EngineError> {
        // The key of a plan ends when the approval says.
        if session.terms.work.is_some() {
            return Ok(Arc::clone(authority));
        }
        let left = authority.task().expires_at.time_since(self.journal.valid_now());
        if left >= RENEW_BEFORE || !self.revoked(authority).await?.is_empty() {
            return Ok(Arc::clone(authority));
        }
        let order = match self.order_of(session, None).await {
            // If the order has ended, its key is not renewed.
            Err(EngineError::Keys(KeysError::Order(_))) => return Ok(Arc::clone(authority)),
            in_force => in_force?,
        };
        // In its last minutes an order has nothing to add.
        if order.is_some_and(|order| order.claims().expires_at <= authority.task().expires_at) {
            return Ok(Arc::clone(authority));
        }
        self.mint(session, turn, "renewed").await.map(Arc::new)
    }

    /// Returns the authority that a task key of a session would have, minted at a time. It is recorded nowhere and lasts as long
    /// as this value: for looking at what would be decided.
    ///
    /// # Errors
    ///
    /// If the key cannot be made.
    pub(crate) fn rehearse(&self, session: &Session, at: Timestamp) -> Result<Authority, EngineError> {
        self.minted(session, None, None, ("rehearsed", at)).map(|(authority, _)| authority)
    }

    async fn mint(
        &self,
        session: &Session,
        turn: Option<(TurnId, u64)>,
        change: &str,
    ) -> Result<Authority, EngineError> {
        let order = self.order_of(session, None).await?;
        let now = self.journal.valid_now();
        let (authority, keyed) = self.minted(session, order.as_ref(), turn, (change, now))?;
        self.journal.store.commit(Batch::relaxed(vec![keyed])).await?;
        Ok(authority)
    }

    /// A fresh task key of a session, verified, and the entry to be written before it is used.
    ///
    /// # Errors
    ///
    /// If the session is closed, or the key cannot be made.
    fn minted(
        &self,
        session: &Session,
        order: Option<&StandingOrder>,
        turn: Option<(TurnId, u64)>,
        (change, now): (&str, Timestamp),
    ) -> Result<(Authority, Op), EngineError> {
        // Refuses every turn of a closed session, also for messages that wait and for turns that a crash has
        // cut off. The hooks that are notified of its end still act, outside turns.
        if turn.is_some() && session.state().closed {
            return Err(EngineError::SessionClosed(session.id));
        }

        let ends = now.plus_duration(TASK_KEY_TTL);
        let order = order.map(StandingOrder::claims);
        let claims = TaskClaims {
            key: self.journal.ids.key(now),
            base: self.held.base_claims.key,
            session: session.id,
            not_before: now,
            expires_at: order.map_or(ends, |order| order.expires_at.min(ends)),
            grants: session.grants(),
            case: None,
            under: order.map(|order| order.order).into_iter().collect(),
            plan: None,
        };
        let token = keys::mint_task(&self.held.base, &claims, &self.held.root, &self.held.harness)?;
        // Read back by the verifier: an authority comes from a verified token alone, also from one of our own.
        let authority = self.verifier.verify_task(&token)?;
        let kinds: Vec<&str> = claims.grants.kinds.keys().map(|kind| kind.as_str()).collect();
        let fact = Fact::Keyed {
            key: claims.key,
            role: "task".to_owned(),
            change: change.to_owned(),
            grants: format!("{} until {}", kinds.join(", "), claims.expires_at),
        };
        Ok((authority, self.journal.entry(session.id, turn, fact)))
    }

    /// Returns the keys and passkeys that may approve now.
    ///
    /// # Errors
    ///
    /// If the enrolled keys cannot be read.
    pub(crate) async fn approvers(&self) -> Result<Approvers, EngineError> {
        let mut enrolled = BTreeMap::new();
        for key in self.journal.store.approver_keys().await? {
            // A passkey has another form, and is added below.
            let public = <[u8; 32]>::try_from(key.public_key.as_slice()).ok();
            let public = public.and_then(|bytes| VerifyingKey::from_bytes(&bytes).ok());
            if let Some(public) = public.filter(|_| key.revoked_at.is_none()) {
                enrolled.insert(hex::encode(public.as_bytes()), public);
            }
        }
        let (passkeys, harness) = (self.by_credential().await?, self.held.harness.verifying_key());
        Ok(Approvers { keys: enrolled, passkeys, harness })
    }

    /// The passkeys in force, with what the store knows of them.
    ///
    /// # Errors
    ///
    /// If the store cannot be read.
    pub(crate) async fn passkeys(&self) -> Result<Vec<(ApproverKey, Passkey)>, EngineError> {
        let keys = self.journal.store.approver_keys().await?.into_iter();
        let in_force = keys.filter(|key| key.kind == PASSKEY && key.revoked_at.is_none());
        Ok(in_force
            .filter_map(|key| Passkey::from_bytes(&key.public_key).map(|passkey| (key, passkey)))
            .collect())
    }

    /// The passkeys in force by their credentials, as `writ_policy::approval::verify` wants them.
    pub(crate) async fn by_credential(&self) -> Result<BTreeMap<String, Passkey>, EngineError> {
        let passkeys = self.passkeys().await?.into_iter();
        Ok(passkeys.map(|(_, passkey)| (passkey.credential_id().to_owned(), passkey)).collect())
    }

    /// Returns the store's row for the passkey in force with this credential.
    pub(crate) async fn passkey_row(&self, credential: &str) -> Result<Option<ApproverKey>, EngineError> {
        let found =
            self.passkeys().await?.into_iter().find(|(_, passkey)| passkey.credential_id() == credential);
        Ok(found.map(|(key, _)| key))
    }

    /// Returns the ids of an authority's keys that were revoked.
    pub(crate) async fn revoked(&self, authority: &Authority) -> Result<BTreeSet<String>, EngineError> {
        let ids: Vec<String> = authority.revocation_ids().iter().cloned().collect();
        Ok(self.journal.store.revoked_among(&ids).await?)
    }

    /// Everything that was signed of an ask, the given token last.
    ///
    /// # Errors
    ///
    /// If the store cannot be read.
    async fn signed_of(&self, ask: &AskRow, last: &ApprovalToken) -> Result<Vec<ApprovalToken>, EngineError> {
        let parts = self.journal.store.approval_parts(&ask.card.ask_id).await?;
        // Skips approvals that can no longer be parsed: they count for no approver.
        let parts = parts.into_iter().filter_map(|part| serde_json::from_value::<ApprovalToken>(part).ok());
        Ok(parts.filter(|part| part != last).chain([last.clone()]).collect())
    }

    /// Checks an approval with everything that others have signed of the same ask.
    ///
    /// # Errors
    ///
    /// Inside, what is wrong with one of them, or that they are too few; else, if the store cannot be read.
    pub(crate) async fn approval_of(
        &self,
        ask: &AskRow,
        token: &ApprovalToken,
    ) -> Result<Result<Approval, ApprovalError>, EngineError> {
        self.approval_at(ask, token, self.journal.valid_now()).await
    }

    /// Does the same as [`Self::approval_of`], for a time that may have passed; the approvers are those of today.
    ///
    /// # Errors
    ///
    /// As there.
    pub(crate) async fn approval_at(
        &self,
        ask: &AskRow,
        token: &ApprovalToken,
        now: Timestamp,
    ) -> Result<Result<Approval, ApprovalError>, EngineError> {
        let (expected, approvers) = (self.expected(ask)?, self.approvers().await?);
        // A single no is enough, without other approvers.
        if expected.approvers <= 1 || token.claims.decision == Decision::Deny {
            return Ok(approval::verify_approval(token, &expected, &approvers, now));
        }
        // Drops signatures by keys that no longer count.
        let mut tokens = self.signed_of(ask, token).await?;
        tokens.retain(|part| {
            part == token || approval::verify_approval(part, &expected, &approvers, now).is_ok()
        });
        Ok(approval::verify_all(&tokens, &expected, &approvers, now))
    }
}
