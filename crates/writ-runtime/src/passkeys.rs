//! Passkeys: leave to enrol them, their enrolment, the challenges that they sign, and their removal.
//!
//! Access to a page's session is not enough for either: enrolling needs a code for which an approver key has
//! signed leave in a terminal, and a challenge is answered once, by an enrolled passkey. Steps that wait here
//! end with the engine, and must then be started again.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rand::Rng as _;
use serde_json::{Value, json};
use writ_inspect::webauthn::{
    self, Assertion, EDDSA, ES256, Enrolled, Passkey, Registration, challenge_of, site_of, text_of,
};
use writ_policy::approval::{ApprovalClaims, ApprovalError, ApprovalToken, Approver, TaskTerms};
use writ_policy::enrolment::{self, Enrolment, EnrolmentGrant, NONCE_NAMESPACE};
use writ_policy::pattern::standing::StandingLimits;
use writ_store::approvals::{ApproverKey, AskState};
use writ_store::batch::{Batch, Op};
use writ_store::reads::{ApprovalReads as _, AskReads as _, KeyReads as _};
use writ_types::api::approval::{ApproverRemoval, EnrolmentPermission, PasskeyList, PasskeySummary};
use writ_types::digest::Digest;
use writ_types::entry::{ApprovalScope, Decision, Fact, Risk};
use writ_types::id::{AskId, KeyId};
use writ_types::unit::Timestamp;

use crate::error::EngineError;
use crate::journal::Journal;
use crate::keys::{Keys, PASSKEY};

/// The time for answering a challenge: enough to look for a key.
const CHALLENGE_TTL: Duration = Duration::from_secs(5 * 60);
/// The most leaves to enrol, enrolments and challenges that wait, each; one more ends the oldest.
const MAX_WAITING: usize = 64;
/// The most approver keys that are in force.
const MAX_APPROVERS: usize = 64;

/// The steps with passkeys that wait to be finished, in memory only.
#[derive(Debug, Default)]
pub(crate) struct PasskeySteps {
    leaves: Vec<Enrolment>,
    enrolments: Vec<OpenChallenge<Enrolment>>,
    answers: Vec<OpenChallenge<ApprovalClaims>>,
}

/// A challenge that was given out.
#[derive(Debug)]
struct OpenChallenge<T> {
    challenge: Digest,
    origin: String,
    ends_at: Timestamp,
    what: T,
}

/// Keeps the newest that are in time.
fn keep<T>(list: &mut Vec<T>, one: T, live: impl Fn(&T) -> bool) {
    list.retain(live);
    let excess = (list.len() + 1).saturating_sub(MAX_WAITING);
    list.drain(..excess);
    list.push(one);
}

/// Takes out what waits for a challenge, if it is in time: it is answered once, well or badly.
fn take<T>(list: &mut Vec<OpenChallenge<T>>, challenge: &Digest, now: Timestamp) -> Option<OpenChallenge<T>> {
    let at = list.iter().position(|begun| begun.challenge == *challenge)?;
    Some(list.swap_remove(at)).filter(|begun| now < begun.ends_at)
}

/// The passkeys of people who approve.
#[derive(Debug)]
pub(crate) struct Passkeys {
    journal: Arc<Journal>,
    keys: Arc<Keys>,
    /// Enrolments and answers that wait to be finished.
    waiting: Mutex<PasskeySteps>,
    /// Held while an approver key is enrolled or removed.
    enrolling: tokio::sync::Mutex<()>,
}

impl Passkeys {
    pub(crate) fn new(journal: Arc<Journal>, keys: Arc<Keys>) -> Self {
        Self { journal, keys, waiting: Mutex::default(), enrolling: tokio::sync::Mutex::default() }
    }

    /// Every holder leaves it whole, so poison is ignored.
    fn waiting(&self) -> MutexGuard<'_, PasskeySteps> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes leave to enrol a passkey, which an approver key has signed.
    ///
    /// # Errors
    ///
    /// If it does not count, or was used.
    pub(crate) async fn permit_enrolment(
        &self,
        grant: &EnrolmentGrant,
    ) -> Result<EnrolmentPermission, EngineError> {
        // A key that is being removed signs no leave that outlives it.
        let _alone = self.enrolling.lock().await;
        let now = self.journal.valid_now();
        let here = (self.keys.installation, self.keys.epoch);
        let leave = enrolment::verify_enrolment(grant, here, &self.keys.approvers().await?, now)?;
        let (nonce, expires_at) = (leave.claims().nonce.clone(), leave.claims().expires_at);
        // The commit that ends an enrolment records the nonce, and is refused where it was recorded meanwhile.
        let is_used = self.journal.store.is_used(NONCE_NAMESPACE, &nonce).await?;
        let mut waiting = self.waiting();
        if is_used || waiting.leaves.iter().any(|other| other.claims().nonce == nonce) {
            return Err(EngineError::Enrolment("this leave to enrol was given before"));
        }
        keep(&mut waiting.leaves, leave, |leave| now < leave.claims().expires_at);
        Ok(EnrolmentPermission { expires_at: expires_at.to_string() })
    }

    /// Begins to enrol a passkey in a page that shows the code of a leave.
    ///
    /// # Errors
    ///
    /// If there is no such leave, or passkeys cannot be used under the page's name.
    pub(crate) async fn begin_passkey(&self, code: &str, origin: &str) -> Result<Value, EngineError> {
        let now = self.journal.valid_now();
        let site = site_of(origin).ok_or_else(|| EngineError::NoSite(origin.to_owned()))?;
        let known = self.keys.passkeys().await?;
        let mut waiting = self.waiting();
        let leave = waiting.leaves.iter().find(|leave| leave.admits_code(code, now)).cloned();
        let leave = leave.ok_or(EngineError::Enrolment("this code is wrong, used or over"))?;
        let name = leave.claims().name.clone();
        let challenge = Digest::from_bytes(rand::rng().random());
        let begun = OpenChallenge {
            challenge,
            origin: origin.to_owned(),
            ends_at: now.plus_duration(CHALLENGE_TTL),
            what: leave,
        };
        keep(&mut waiting.enrolments, begun, |begun| now < begun.ends_at);
        drop(waiting);
        // The authenticator keeps keys apart by this name: one home of several on a machine is one person there.
        let user = Digest::of_bytes(self.keys.installation.to_string().as_bytes());
        let excluded: Vec<Value> =
            known.iter().filter(|(_, key)| key.site_id() == site).map(described).collect();
        Ok(json!({ "publicKey": {
            "rp": { "id": site, "name": "Writ" },
            "user": { "id": text_of(user.as_bytes()), "name": name, "displayName": name },
            "challenge": text_of(challenge.as_bytes()),
            "pubKeyCredParams": [
                { "type": "public-key", "alg": ES256 },
                { "type": "public-key", "alg": EDDSA },
            ],
            "timeout": CHALLENGE_TTL.as_secs() * 1_000,
            "excludeCredentials": excluded,
            "authenticatorSelection": { "residentKey": "discouraged", "userVerification": "required" },
            "attestation": "none",
        }}))
    }

    /// Takes a new passkey in. Its leave is used up with it.
    ///
    /// # Errors
    ///
    /// If it answers no challenge of this page, is not good, or is known.
    pub(crate) async fn finish_passkey(
        &self,
        made: &Registration,
        origin: &str,
    ) -> Result<Value, EngineError> {
        let now = self.journal.valid_now();
        let challenge = challenge_of(&made.response.client_data).ok_or(ApprovalError::Challenge)?;
        let begun = take(&mut self.waiting().enrolments, &challenge, now).ok_or(ApprovalError::Challenge)?;
        if begun.origin != origin {
            return Err(webauthn::PasskeyError::Origin.into());
        }
        let Enrolled { passkey, sign_count } = webauthn::verify_registration(made, &challenge, origin)?;
        let claims = begun.what.claims();
        // One at a time: what is known is looked at and changed together.
        let _alone = self.enrolling.lock().await;
        let keys = self.journal.store.approver_keys().await?;
        let same = |key: &ApproverKey| {
            Passkey::from_bytes(&key.public_key)
                .is_some_and(|known| known.credential_id() == passkey.credential_id())
        };
        // Removed ones too: a passkey that was taken away does not come back.
        if keys.iter().any(same) {
            return Err(EngineError::Enrolment("this passkey is known here, or was removed"));
        }
        if keys.iter().filter(|key| key.revoked_at.is_none()).count() >= MAX_APPROVERS {
            return Err(EngineError::Enrolment("there are too many approver keys; remove one"));
        }
        if !self.used_up(&claims.nonce) || now >= claims.expires_at {
            return Err(EngineError::Enrolment("this code is wrong, used or over"));
        }
        let id = self.journal.ids.key(now);
        let grants = format!("answers asks: '{}', {passkey}; leave by key {}", claims.name, claims.approver);
        let key = ApproverKey {
            id,
            kind: PASSKEY.to_owned(),
            label: claims.name.clone(),
            public_key: passkey.to_bytes(),
            enrolled_at: now,
            revoked_at: None,
        };
        let ops = vec![
            self.journal.own_entry(keyed(id, "enrolled", grants)),
            Op::EnrollKey(key),
            Op::CountPasskey { key: id, sign_count },
            Op::RecordNonce {
                namespace: NONCE_NAMESPACE.to_owned(),
                nonce: claims.nonce.clone(),
                expires_at: claims.expires_at,
            },
        ];
        self.journal.store.commit(Batch::synced(ops)).await?;
        Ok(json!({ "id": id, "name": claims.name, "site": passkey.site_id() }))
    }

    /// Takes a leave away; says whether it was there.
    fn used_up(&self, nonce: &str) -> bool {
        let leaves = &mut self.waiting().leaves;
        let before = leaves.len();
        leaves.retain(|leave| leave.claims().nonce != nonce);
        leaves.len() < before
    }

    /// Returns the challenge that approves an ask when it is answered: a hash of the claims, which name the
    /// text that was shown.
    ///
    /// # Errors
    ///
    /// If the ask is not open, another text was shown, or no passkey could answer in this page.
    pub(crate) async fn challenge(
        &self,
        (id, scope): (&AskId, ApprovalScope),
        shown: Option<Digest>,
        origin: &str,
    ) -> Result<Value, EngineError> {
        let now = self.journal.valid_now();
        let site = site_of(origin).ok_or_else(|| EngineError::NoSite(origin.to_owned()))?;
        let ask = self.journal.store.ask(id).await?.ok_or_else(|| EngineError::NoAsk(id.clone()))?;
        if ask.state != AskState::Open {
            let state = format!("was answered before: {}", ask.state.as_str());
            return Err(EngineError::AskClosed { ask: id.clone(), state });
        }
        if shown.is_some_and(|shown| shown != ask.card.shown_hash) {
            return Err(ApprovalError::Mismatch("another text was shown").into());
        }
        let known = self.keys.passkeys().await?;
        let allowed: Vec<Value> =
            known.iter().filter(|(_, key)| key.site_id() == site).map(described).collect();
        if allowed.is_empty() {
            return Err(EngineError::NoPasskey(site.to_owned()));
        }
        let (task, expires_at) = TaskTerms::terms_to_sign(&ask.card, scope, &StandingLimits::default(), now)?;
        let claims = ApprovalClaims {
            installation: self.keys.installation,
            epoch: self.keys.epoch,
            ask: id.clone(),
            decision: Decision::Approve,
            prepared: ask.card.prepared,
            shown: ask.card.shown_hash,
            nonce: self.journal.ids.nonce(),
            issued_at: now,
            expires_at,
            approver: Approver::Passkey { origin: origin.to_owned() },
            task,
            values: scope == ApprovalScope::Values,
            host: ask.card.host.clone().filter(|_| scope == ApprovalScope::Host),
        };
        let challenge = claims.challenge()?;
        let begun = OpenChallenge {
            challenge,
            origin: origin.to_owned(),
            ends_at: now.plus_duration(CHALLENGE_TTL),
            what: claims,
        };
        keep(&mut self.waiting().answers, begun, |begun| now < begun.ends_at);
        // What cannot be undone needs the person, and not only the device.
        let verification = if ask.card.risk == Risk::Irreversible { "required" } else { "preferred" };
        Ok(json!({ "publicKey": {
            "challenge": text_of(challenge.as_bytes()),
            "rpId": site,
            "allowCredentials": allowed,
            "userVerification": verification,
            "timeout": CHALLENGE_TTL.as_secs() * 1_000,
        }}))
    }

    /// The approval that a passkey's answer makes of the challenge that it answers.
    ///
    /// # Errors
    ///
    /// If no such challenge waits, or it is about another ask.
    pub(crate) fn answered(&self, ask: &AskId, signed: Assertion) -> Result<ApprovalToken, ApprovalError> {
        let challenge = challenge_of(&signed.response.client_data).ok_or(ApprovalError::Challenge)?;
        let begun = take(&mut self.waiting().answers, &challenge, self.journal.valid_now());
        let claims = begun.ok_or(ApprovalError::Challenge)?.what;
        if claims.ask != *ask {
            return Err(ApprovalError::Mismatch("another ask"));
        }
        Ok(ApprovalToken::by_passkey(claims, signed))
    }

    /// Removes an approver key. The last one stays: without it, nothing of high risk could be approved, nor any
    /// passkey enrolled.
    ///
    /// # Errors
    ///
    /// If there is none that is in force, or it is the last.
    pub(crate) async fn remove_approver(&self, id: KeyId) -> Result<ApproverRemoval, EngineError> {
        let _alone = self.enrolling.lock().await;
        let keys: Vec<ApproverKey> = self
            .journal
            .store
            .approver_keys()
            .await?
            .into_iter()
            .filter(|key| key.revoked_at.is_none())
            .collect();
        let key = keys.iter().find(|key| key.id == id).ok_or(EngineError::NoApprover(id))?;
        if key.kind != PASSKEY && !keys.iter().any(|other| other.id != id && other.kind != PASSKEY) {
            return Err(EngineError::LastApprover);
        }
        let now = self.journal.clock.now();
        let what = format!("'{}', {}", key.label, key.kind);
        let ops =
            vec![self.journal.own_entry(keyed(id, "revoked", what)), Op::RevokeKey { key: id, at: now }];
        self.journal.store.commit(Batch::synced(ops)).await?;
        // An enrolment that the removed key has permitted cannot be finished, even if it has begun.
        let mut waiting = self.waiting();
        waiting.leaves.clear();
        waiting.enrolments.clear();
        Ok(ApproverRemoval { id, name: key.label.clone() })
    }

    /// The approver keys in force, for people.
    ///
    /// # Errors
    ///
    /// If the store cannot be read.
    pub(crate) async fn list_passkeys(&self) -> Result<PasskeyList, EngineError> {
        let passkeys = self
            .keys
            .passkeys()
            .await?
            .iter()
            .map(|(key, passkey)| PasskeySummary {
                id: key.id,
                name: key.label.clone(),
                site: passkey.site_id().to_owned(),
                created_at: key.enrolled_at.as_millis(),
            })
            .collect();
        Ok(PasskeyList { passkeys })
    }
}

/// Returns a passkey's descriptor in the form that browsers expect.
fn described((_, passkey): &(ApproverKey, Passkey)) -> Value {
    json!({ "type": "public-key", "id": passkey.credential_id() })
}

fn keyed(key: KeyId, change: &str, grants: String) -> Fact {
    Fact::Keyed { key, role: "approver".to_owned(), change: change.to_owned(), grants }
}
