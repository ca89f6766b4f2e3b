//! What the router of cases asks of the proxy, over a socket of its own: cases are opened and closed, keys revoked.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use writ_operations::{PersonalKind, Scope};
use writ_store::batch::{Batch, Op};
use writ_store::error::{Conflict, StoreError};
use writ_types::entry::Fact;
use writ_types::unit::Timestamp;

use super::{Proxy, ProxyState};
use crate::cases::{OpenCase, is_name};
use crate::error::ProxyError;
use crate::events::EventPage;
use crate::kind::kind_of;
use crate::learn::{Knowledge, learn_customer};
use crate::mask::{Masker, put_back};
use crate::search::Depth;

/// The tenant of cases that name none.
const DEFAULT_TENANT: &str = "default";
/// The most ids that are revoked at once: those of one pair of keys and of what they rest on.
const MAX_REVOKED_AT_ONCE: usize = 64;

/// The most values that the router can name of a customer.
const MAX_KNOWN: usize = 256;
/// The longest of them, in bytes.
const MAX_KNOWN_BYTES: usize = 1_024;

/// The tokens of an open case.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct CaseTokens {
    /// The token of the customer, in this case alone.
    pub customer_token: String,
    /// The token of the case.
    pub case_token: String,
    /// The fingerprint of the customer, the same in all cases. It is for the router, and no agent may see it.
    pub customer_fingerprint: String,
}

impl Proxy {
    /// Opens a case of a customer, or finds the one that is open, and returns its tokens. `known` has values by their
    /// kinds, such as the customer's names, that no answer of the case may hold.
    ///
    /// # Errors
    ///
    /// If a name is none, or the store cannot be written.
    pub async fn open_case(
        &self,
        tenant: Option<&str>,
        customer: &str,
        case: &str,
        known: &BTreeMap<String, Vec<String>>,
    ) -> Result<CaseTokens, ProxyError> {
        let tenant = tenant.unwrap_or(DEFAULT_TENANT);
        for (what, name) in [("tenant", tenant), ("customer", customer), ("case", case)] {
            if !is_name(name) {
                return Err(ProxyError::Name(what));
            }
        }
        let known = read_known(known)?;
        let state = &self.state;
        let scope = Scope { customer: customer.to_owned(), case: case.to_owned() };
        let noted =
            |customer: &str, case: &str| make_note(state, format!("case {case} of {customer} was opened"));
        let now = state.clock.now();
        let customer_fingerprint = state.secret.customer_fingerprint(tenant, customer);
        let (customer_token, case_token) = state.cases.open_case(tenant, scope, &known, now, noted).await?;
        if let Some(case) = state.cases.find_case(&case_token).await? {
            // Where it cannot be read now, it is tried again before the first answer.
            let _knowledge = learn_customer(state, &case).await;
        }
        Ok(CaseTokens { customer_token, case_token, customer_fingerprint })
    }

    /// Returns what agents did after the event of a number, and waits for an event where there is none yet.
    pub async fn read_events(&self, after: u64, wait: Duration) -> EventPage {
        self.state.events.wait_after(after, wait).await
    }

    /// Closes a case: its keys reach nothing from then on, and the personal data behind its tokens is deleted.
    ///
    /// # Errors
    ///
    /// If there is no such case, or the store cannot be written.
    pub async fn close_case(&self, case_token: &str) -> Result<(), ProxyError> {
        let state = &self.state;
        let noted = make_note(state, format!("case {case_token} was closed"));
        state.cases.close_case(case_token, noted).await
    }

    /// Puts tokens in place of the personal data in a text that agents of a case are to read: of what the case knows, and of
    /// what has the form of such data. The values behind new tokens are stored before the tokens leave.
    ///
    /// # Errors
    ///
    /// If there is no such case, or the store cannot be written.
    pub async fn mask_text(&self, case_token: &str, text: &str) -> Result<String, ProxyError> {
        let (state, case) = (&self.state, need_case(&self.state, case_token).await?);
        let mut masker = Masker::new(&state.secret, &state.redactor, &case);
        let masked = match learn_customer(state, &case).await {
            // People and the guest read the words; agents get them as one token.
            Knowledge::Unread if !text.trim().is_empty() => masker.token_of(PersonalKind::Text, text),
            Knowledge::Unread | Knowledge::Nameless | Knowledge::Named => masker.mask_text(text, Depth::Free),
        };
        let fresh = masker.fresh;
        if !fresh.is_empty() {
            let values = state.cases.seal_values(&case.token, &fresh)?;
            state.store.commit(Batch::synced(vec![Op::Operations(values)])).await?;
            case.learn_values(fresh.clone());
            state.cases.share_values(&case, &fresh);
        }
        Ok(masked)
    }

    /// Puts the values of a case back in place of its tokens, in a text for its own customer. One with a token of another case
    /// stays as it is.
    ///
    /// # Errors
    ///
    /// If there is no such case, or the store cannot be read.
    pub async fn restore_text(&self, case_token: &str, text: &str) -> Result<String, ProxyError> {
        let case = need_case(&self.state, case_token).await?;
        Ok(put_back(text, &case).unwrap_or_else(|_| text.to_owned()))
    }

    /// Revokes keys by their revocation ids, in the proxy's own list. The next request with one of them is refused.
    ///
    /// # Errors
    ///
    /// If there are too many, or the store cannot be written.
    pub async fn revoke_keys(&self, ids: &[String], expires_at: Option<Timestamp>) -> Result<(), ProxyError> {
        if ids.is_empty() || ids.len() > MAX_REVOKED_AT_ONCE || !ids.iter().all(|id| is_name(id)) {
            return Err(ProxyError::Name("ids"));
        }
        let state = &self.state;
        let at = state.clock.now();
        let mut ops: Vec<Op> = ids.iter().map(|id| Op::Revoke { id: id.clone(), at, expires_at }).collect();
        ops.push(make_note(state, format!("revoked: {}", ids.join(" "))));
        state.store.commit(Batch::synced(ops)).await?;
        Ok(())
    }
}

async fn need_case(state: &ProxyState, token: &str) -> Result<Arc<OpenCase>, ProxyError> {
    let missing = || Conflict::Missing { what: "case", id: token.to_owned() };
    let found = state.cases.find_case(token).await?;
    found.ok_or_else(|| StoreError::from(missing()).into())
}

/// Reads the values that the router knows of a customer.
fn read_known(known: &BTreeMap<String, Vec<String>>) -> Result<Vec<(PersonalKind, String)>, ProxyError> {
    let mut values = Vec::new();
    for (kind, given) in known {
        let kind = kind_of(kind).ok_or(ProxyError::Name("a kind of known values"))?;
        for value in given {
            if value.trim().is_empty() || value.len() > MAX_KNOWN_BYTES || values.len() >= MAX_KNOWN {
                return Err(ProxyError::Name("known values"));
            }
            values.push((kind, value.clone()));
        }
    }
    Ok(values)
}

/// Makes an entry about what the proxy lets its keys reach.
pub(super) fn make_note(state: &ProxyState, summary: String) -> Op {
    state.make_entry(Fact::PolicyChanged { policy: state.rules.digest(), summary }, None)
}
