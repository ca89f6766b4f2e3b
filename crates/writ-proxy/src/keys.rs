//! The two keys of a request: both are verified before anything else is looked at.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use writ_policy::keys::{Authority, KeyError, KeyToken, Verifier};
use writ_types::digest::Digest;
use writ_types::entry::{DenyReason, Requester};
use writ_types::unit::Timestamp;

use crate::error::ProxyError;
use crate::refusal::ProxyRefusal;
use crate::trust::Trust;
use crate::unproven::UnprovenRequests;

/// The most pairs of keys that are held as verified. Expiry and revocation are looked at with each request.
const MAX_VERIFIED: usize = 1_024;

/// The keys of a request as they stand in its head.
#[derive(Clone, Debug, Default)]
pub(crate) struct ShownKeys {
    pub(crate) base: Option<String>,
    pub(crate) task: Option<String>,
}

/// A pair of keys that was verified in an epoch.
#[derive(Debug)]
struct VerifiedPair {
    hashes: (Digest, Digest),
    epoch: u64,
    authority: Arc<Authority>,
}

/// Verifies keys.
#[derive(Debug)]
pub(crate) struct KeyCheck {
    trust: Trust,
    verified: Mutex<VecDeque<VerifiedPair>>,
    /// Requests with keys that have proven nothing.
    pub(crate) unproven: UnprovenRequests,
}

impl KeyCheck {
    pub(crate) fn new(trust: Trust) -> Self {
        Self { trust, verified: Mutex::new(VecDeque::new()), unproven: UnprovenRequests::default() }
    }

    /// Verifies both keys, and that they are bound to one another, in time and not revoked. What they prove is noted in
    /// `requester`, also of keys that are refused.
    ///
    /// # Errors
    ///
    /// If the revocations cannot be read. The inner error is the refusal.
    pub(crate) async fn check_keys(
        &self,
        shown: &ShownKeys,
        requester: &mut Requester,
        now: Timestamp,
    ) -> Result<Result<Arc<Authority>, ProxyRefusal>, ProxyError> {
        let verifier = self.trust.current_verifier().await?;
        let authority = match self.verify_both(&verifier, shown, requester) {
            Ok(authority) => authority,
            Err(refusal) => return Ok(Err(refusal)),
        };
        authority.agent().clone_into(&mut requester.agent);
        if let Some(case) = &authority.task().case {
            requester.data = vec![case.customer.clone(), case.case.clone()];
        }
        if self.trust.is_any_revoked(authority.revocation_ids()).await? {
            return Ok(Err(ProxyRefusal::refuse_unproven(
                DenyReason::Revoked,
                "revoked",
                "a key was revoked",
            )));
        }
        let expired =
            |cause, error| Ok(Err(ProxyRefusal::refuse_unproven(DenyReason::Expired, cause, error)));
        if now >= authority.base().expires_at {
            return expired("base_expired", "the base key has expired");
        }
        if now >= authority.task().expires_at {
            return expired("task_expired", "the task key has expired");
        }
        if now < authority.task().not_before {
            return expired("task_early", "the task key is not valid yet");
        }
        Ok(Ok(authority))
    }

    fn verify_both(
        &self,
        verifier: &Verifier,
        shown: &ShownKeys,
        requester: &mut Requester,
    ) -> Result<Arc<Authority>, ProxyRefusal> {
        let read = |text: &Option<String>| text.as_ref().map(|text| KeyToken::try_from(text.clone()));
        let (base, task) = (read(&shown.base), read(&shown.task));
        requester.base = hash_of(base.as_ref(), shown.base.as_deref());
        requester.task = hash_of(task.as_ref(), shown.task.as_deref());
        let missing = |cause, error| Err(ProxyRefusal::refuse_unproven(DenyReason::Binding, cause, error));
        let (base, task) = match (base, task) {
            (Some(base), Some(task)) => (base, task),
            (None, None) => return missing("none", "a request needs a base key and a task key"),
            (None, Some(_)) => return missing("no_base", "a request needs a base key as well"),
            (Some(base), None) => {
                name_agent(verifier, base.ok().as_ref(), requester);
                return missing("no_task", "a request needs a task key as well");
            }
        };
        let refused = |of: &str, error: &KeyError| {
            let (cause, text) = describe_error(error);
            ProxyRefusal::refuse_unproven(
                DenyReason::Binding,
                &format!("{of}_{cause}"),
                &format!("the {of} key {text}"),
            )
        };
        let base = base.map_err(|error| refused("base", &error))?;
        let hashes = (requester.base.unwrap_or(ZERO), requester.task.unwrap_or(ZERO));
        if let Some(authority) = self.find_verified(hashes, verifier.epoch) {
            return Ok(authority);
        }
        let (claims, _) = verifier.verify_base(&base).map_err(|error| refused("base", &error))?;
        claims.agent.clone_into(&mut requester.agent);
        let task = task.map_err(|error| refused("task", &error))?;
        let authority = verifier.verify_task(&task).map_err(|error| refused("task", &error))?;
        // Two valid keys that belong to different base keys are refused.
        if *authority.base() != claims {
            let error = "the task key belongs to another base key";
            return Err(ProxyRefusal::refuse_unproven(DenyReason::Binding, "mixed", error));
        }
        let authority = Arc::new(authority);
        self.hold_verified(VerifiedPair { hashes, epoch: verifier.epoch, authority: Arc::clone(&authority) });
        Ok(authority)
    }

    fn find_verified(&self, hashes: (Digest, Digest), epoch: u64) -> Option<Arc<Authority>> {
        let verified = self.verified.lock().unwrap_or_else(PoisonError::into_inner);
        // A restored engine has another epoch, in which no earlier key counts.
        let pair = verified.iter().find(|pair| pair.hashes == hashes && pair.epoch == epoch);
        pair.map(|pair| Arc::clone(&pair.authority))
    }

    fn hold_verified(&self, pair: VerifiedPair) {
        let mut verified = self.verified.lock().unwrap_or_else(PoisonError::into_inner);
        while verified.len() >= MAX_VERIFIED {
            verified.pop_back();
        }
        // The newest first, where the next request of the same agent finds it at once.
        verified.push_front(pair);
    }
}

/// The hash that stands for a missing key; no token has it.
const ZERO: Digest = Digest::from_bytes([0; 32]);

/// Returns the hash of a key: of its token's bytes, or of the text if that is no token.
fn hash_of(token: Option<&Result<KeyToken, KeyError>>, text: Option<&str>) -> Option<Digest> {
    match token? {
        Ok(token) => Some(Digest::of_bytes(token.as_bytes())),
        Err(_) => text.map(|text| Digest::of_bytes(text.as_bytes())),
    }
}

/// Notes the agent of a base key that comes without a task key.
fn name_agent(verifier: &Verifier, base: Option<&KeyToken>, requester: &mut Requester) {
    if let Some((claims, _)) = base.and_then(|base| verifier.verify_base(base).ok()) {
        requester.agent = claims.agent;
    }
}

/// Returns a word for the ledger and a text for the agent, which holds nothing of the key.
const fn describe_error(error: &KeyError) -> (&'static str, &'static str) {
    match error {
        KeyError::TooLarge(_) => ("too_large", "is too large"),
        KeyError::Signature => ("signature", "is not signed by this installation, or was changed"),
        KeyError::Blocks => ("blocks", "is not a key of this kind"),
        KeyError::Content(_) | KeyError::Missing(_) => ("content", "has missing or unknown content"),
        KeyError::Foreign => ("foreign", "belongs to another installation, or to the time before a restore"),
        KeyError::Mixed => ("mixed", "belongs to another base key"),
        KeyError::Sealed | KeyError::Wider(_) | KeyError::Build(_) => ("unusable", "cannot be used"),
    }
}
