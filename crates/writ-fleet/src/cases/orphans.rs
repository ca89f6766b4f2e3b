//! Keys that no holder has: a router that was killed while it renewed a key has handed the fresh one out, and not yet noted who
//! has it.

use std::collections::BTreeMap;

use writ_store::batch::Op;
use writ_types::id::{KeyId, SessionId};

use super::error::CaseError;
use super::router::CaseRouter;

/// Revokes the keys of open cases that are not the key of their holder.
pub(super) async fn revoke_orphans(router: &CaseRouter, cases: &[SessionId]) -> Result<(), CaseError> {
    let keys = &router.0.keys;
    let mut holders = BTreeMap::new();
    for case in cases {
        holders.insert(*case, router.locked(*case).await?.machine.key());
    }
    let (mut ops, mut orphans): (Vec<Op>, Vec<KeyId>) = (Vec::new(), Vec::new());
    for (case, key, ends_at) in keys.issued_for_cases().await? {
        let is_orphan = holders.get(&case).is_some_and(|holder| *holder != Some(key));
        if is_orphan && !keys.is_revoked(key).await? {
            let why = "no holder of the case has it";
            ops.extend(keys.revocation_of(case, (key, ends_at), why));
            orphans.push(key);
        }
    }
    if !ops.is_empty() {
        keys.commit(ops).await?;
        router.0.tokens.revoke_keys(&orphans);
    }
    Ok(())
}
