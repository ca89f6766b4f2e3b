//! The open cases: their customers behind tokens, and the values that each case knows.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use serde::{Deserialize, Serialize};
use writ_operations::PersonalKind;
use writ_operations::Scope;
use writ_store::batch::{Batch, Op};
use writ_store::operations::{CaseRow, MAX_CASE_VALUE_BYTES, MAX_CASE_VALUES, OperationOp, SealedValue};
use writ_store::reads::OperationReads as _;
use writ_store::store::Store;
use writ_types::unit::Timestamp;
use zeroize::Zeroizing;

use crate::error::ProxyError;
use crate::kind::{kind_of, name_of};
use crate::known::KnownValues;
use crate::learn::Learned;
use crate::naming::AgentShares;
use crate::secret::{ProxySecret, SealError};

/// The most cases that are held in memory; others are read again.
const MAX_HELD: usize = 1_024;
/// The most bytes of the values of all of them. Finding them takes some times their size.
const MAX_HELD_BYTES: usize = 32 * 1024 * 1024;
/// The longest name of a tenant, customer or case, in bytes.
const MAX_NAME_BYTES: usize = 128;

/// The names of a case as its tenant knows them.
#[derive(Debug, Serialize, Deserialize)]
struct CaseNames {
    customer: String,
    case: String,
}

/// An open case.
#[derive(Debug)]
pub(crate) struct OpenCase {
    pub(crate) token: String,
    pub(crate) customer_token: String,
    pub(crate) tenant: String,
    /// The names of customer and case in the databases.
    pub(crate) scope: Scope,
    /// The fingerprint of its customer, for the router.
    pub(crate) fingerprint: String,
    known: RwLock<KnownValues>,
    /// The room that requests under way may need.
    reserved: Mutex<CaseSpace>,
    pub(crate) lasting: LastingState,
}

/// What is remembered of a case while its values are read again from the store.
#[derive(Clone, Debug, Default)]
pub(crate) struct LastingState {
    /// What was read of its customer.
    pub(crate) learned: Arc<tokio::sync::Mutex<Learned>>,
    /// What its agents have named.
    pub(crate) shares: Arc<AgentShares>,
}

/// Room for values in a case.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CaseSpace {
    pub(crate) values: usize,
    /// The bytes of values and tokens.
    pub(crate) bytes: usize,
}

/// Room of a case that a request under way may need. It is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct ReservedSpace {
    case: Arc<OpenCase>,
    space: CaseSpace,
}

impl Drop for ReservedSpace {
    fn drop(&mut self) {
        let mut taken = self.case.reserved.lock().unwrap_or_else(PoisonError::into_inner);
        taken.values = taken.values.saturating_sub(self.space.values);
        taken.bytes = taken.bytes.saturating_sub(self.space.bytes);
    }
}

/// Values by their tokens.
pub(crate) type TokenValues = BTreeMap<String, (PersonalKind, String)>;

impl OpenCase {
    /// Returns the name under which tokens of the case are made: two customers may have cases of one name.
    pub(crate) fn key(&self) -> String {
        case_key(&self.scope)
    }

    /// Looks at the known values.
    pub(crate) fn with_known<T>(&self, look: impl FnOnce(&KnownValues) -> T) -> T {
        look(&self.known.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Adds values, to be found and to be put back.
    pub(crate) fn learn_values(&self, values: TokenValues) {
        if !values.is_empty() {
            self.known.write().unwrap_or_else(PoisonError::into_inner).learn_values(values);
        }
    }

    fn has_space(&self, more: CaseSpace, parts: usize) -> bool {
        self.with_known(|known| {
            known.len().saturating_add(more.values) <= MAX_CASE_VALUES / 4 * parts
                && known.bytes().saturating_add(more.bytes) <= MAX_CASE_VALUE_BYTES / 4 * parts
        })
    }

    fn held_bytes(&self) -> usize {
        self.with_known(KnownValues::bytes)
    }
}

fn case_key(scope: &Scope) -> String {
    // The length tells where the customer ends: `ab` with `c` is not `a` with `bc`.
    format!("{}:{}{}", scope.customer.len(), scope.customer, scope.case)
}

/// The cases of a proxy.
#[derive(Debug)]
pub(crate) struct Cases {
    store: Store,
    secret: Arc<ProxySecret>,
    held: Mutex<BTreeMap<String, Arc<OpenCase>>>,
    /// What is remembered of cases whose state was dropped: their values are stored, and are not read from a database again.
    lasting: Mutex<BTreeMap<String, LastingState>>,
}

impl Cases {
    pub(crate) fn new(store: Store, secret: Arc<ProxySecret>) -> Self {
        Self { store, secret, held: Mutex::default(), lasting: Mutex::default() }
    }

    /// Opens a case, or finds the one that is open; returns the tokens of customer and case. `noted` is written with it.
    /// `known` are values that the case is to find in texts from the beginning.
    pub(crate) async fn open_case(
        &self,
        tenant: &str,
        scope: Scope,
        known: &[(PersonalKind, String)],
        at: Timestamp,
        noted: impl FnOnce(&str, &str) -> Op,
    ) -> Result<(String, String), ProxyError> {
        let key = case_key(&scope);
        let token = self.secret.token(tenant, PersonalKind::Case, &key, &scope.case);
        let customer_token = self.secret.token(tenant, PersonalKind::Customer, &key, &scope.customer);
        let value = |(kind, value): &(PersonalKind, String)| {
            (self.secret.token(tenant, *kind, &key, value), (*kind, value.clone()))
        };
        let values: TokenValues = known.iter().map(value).collect();
        let names = CaseNames { customer: scope.customer, case: scope.case };
        let plain = Zeroizing::new(serde_json::to_vec(&names).map_err(|_| SealError::Damaged)?);
        let row = CaseRow {
            sealed: self.secret.seal(&token, &plain)?,
            token: token.clone(),
            customer_token: customer_token.clone(),
            tenant: tenant.to_owned(),
            opened_at: at,
        };
        let open = Op::Operations(OperationOp::OpenCase(row));
        let values = Op::Operations(self.seal_values(&token, &values)?);
        let noted = noted(&customer_token, &token);
        self.store.commit(Batch::synced(vec![open, values, noted])).await?;
        // A state that is held knows nothing of the new values.
        self.forget_case(&token);
        Ok((customer_token, token))
    }

    /// Closes a case and forgets its values.
    pub(crate) async fn close_case(&self, token: &str, noted: Op) -> Result<(), ProxyError> {
        let close = OperationOp::CloseCase { token: token.to_owned() };
        self.store.commit(Batch::synced(vec![Op::Operations(close), noted])).await?;
        // After the commit: a case that is still open must be found.
        self.end_case(token);
        Ok(())
    }

    /// Finds an open case.
    pub(crate) async fn find_case(&self, token: &str) -> Result<Option<Arc<OpenCase>>, ProxyError> {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner).get(token).cloned();
        if held.is_some() {
            return Ok(held);
        }
        let Some(row) = self.store.proxy_case(token).await? else { return Ok(None) };
        let plain = self.secret.open(&row.token, &row.sealed)?;
        let names: CaseNames = serde_json::from_slice(&plain).map_err(|_| SealError::Damaged)?;
        let mut known = KnownValues::default();
        known.learn_values(self.read_values(&row.token).await?);
        // The customer's own names are personal wherever they stand.
        known.learn_values([
            (row.customer_token.clone(), (PersonalKind::Customer, names.customer.clone())),
            (row.token.clone(), (PersonalKind::Case, names.case.clone())),
        ]);
        let fingerprint = self.secret.customer_fingerprint(&row.tenant, &names.customer);
        let lasting = self.lasting.lock().unwrap_or_else(PoisonError::into_inner).get(token).cloned();
        let open = Arc::new(OpenCase {
            fingerprint,
            token: row.token,
            customer_token: row.customer_token,
            tenant: row.tenant,
            scope: Scope { customer: names.customer, case: names.case },
            known: RwLock::new(known),
            reserved: Mutex::default(),
            lasting: lasting.unwrap_or_default(),
        });
        let open = self.hold_case(open);
        // It may have been closed between the reading and here.
        if self.store.proxy_case(token).await?.is_none() {
            self.end_case(token);
            return Ok(None);
        }
        Ok(Some(open))
    }

    /// Holds one state for each case: what one request learns, the others look for.
    fn hold_case(&self, open: Arc<OpenCase>) -> Arc<OpenCase> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let mut bytes =
            held.values().map(|case| case.held_bytes()).fold(open.held_bytes(), usize::saturating_add);
        while held.len() >= MAX_HELD || bytes > MAX_HELD_BYTES {
            let Some((_, dropped)) = held.pop_first() else { break };
            bytes = bytes.saturating_sub(dropped.held_bytes());
        }
        Arc::clone(held.entry(open.token.clone()).or_insert(open))
    }

    /// Adds stored values to the state that later requests use, which may be another one than that of a long request.
    pub(crate) fn share_values(&self, case: &OpenCase, values: &TokenValues) {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner).get(&case.token).cloned();
        if let Some(held) = held.filter(|held| !std::ptr::eq(held.as_ref(), case)) {
            held.learn_values(values.clone());
        }
    }

    /// Returns true if a case has room for more values in a number of the four parts of what it may hold.
    pub(crate) fn has_room(case: &OpenCase, more: &TokenValues, parts: usize) -> bool {
        let bytes = more.iter().fold(0_usize, |sum, (token, (_, value))| {
            sum.saturating_add(token.len()).saturating_add(value.len())
        });
        case.has_space(CaseSpace { values: more.len(), bytes }, parts)
    }

    /// Takes room in a number of the four parts of what a case may hold, until the request that wants it has ended.
    pub(crate) fn reserve_space(
        case: &Arc<OpenCase>,
        space: CaseSpace,
        parts: usize,
    ) -> Option<ReservedSpace> {
        let mut taken = case.reserved.lock().unwrap_or_else(PoisonError::into_inner);
        let together = CaseSpace {
            values: taken.values.saturating_add(space.values),
            bytes: taken.bytes.saturating_add(space.bytes),
        };
        // A request without personal values is made in a full case, too.
        if space.values > 0 && !case.has_space(together, parts) {
            return None;
        }
        *taken = together;
        Some(ReservedSpace { case: Arc::clone(case), space })
    }

    /// Drops what is held of a case, to be read again.
    pub(crate) fn forget_case(&self, token: &str) {
        let dropped = self.held.lock().unwrap_or_else(PoisonError::into_inner).remove(token);
        let Some(dropped) = dropped else { return };
        let mut lasting = self.lasting.lock().unwrap_or_else(PoisonError::into_inner);
        while lasting.len() >= MAX_HELD && lasting.pop_first().is_some() {}
        lasting.insert(token.to_owned(), dropped.lasting.clone());
    }

    /// Drops all that is held of a case that is closed: its values are deleted, and are read again if it is opened again.
    fn end_case(&self, token: &str) {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).remove(token);
        self.lasting.lock().unwrap_or_else(PoisonError::into_inner).remove(token);
    }

    async fn read_values(&self, case: &str) -> Result<TokenValues, ProxyError> {
        let mut values = TokenValues::new();
        for row in self.store.case_values(case).await? {
            let plain = self.secret.open(&value_place(case, &row.token), &row.sealed)?;
            let value = String::from_utf8(plain.to_vec()).map_err(|_| SealError::Damaged)?;
            let kind = kind_of(&row.kind).ok_or(SealError::Damaged)?;
            values.insert(row.token, (kind, value));
        }
        Ok(values)
    }

    /// Seals values, to be stored before their tokens leave.
    pub(crate) fn seal_values(&self, case: &str, values: &TokenValues) -> Result<OperationOp, SealError> {
        let seal = |(token, (kind, value)): (&String, &(PersonalKind, String))| {
            let sealed = self.secret.seal(&value_place(case, token), value.as_bytes())?;
            Ok(SealedValue { token: token.clone(), kind: name_of(*kind).to_owned(), sealed })
        };
        let values = values.iter().map(seal).collect::<Result<Vec<_>, SealError>>()?;
        Ok(OperationOp::KeepValues { case: case.to_owned(), values })
    }
}

fn value_place(case: &str, token: &str) -> String {
    format!("{case} {token}")
}

/// Returns true for a name that a tenant, customer or case can have.
pub(crate) fn is_name(text: &str) -> bool {
    !text.is_empty() && text.len() <= MAX_NAME_BYTES && !text.chars().any(char::is_control)
}
