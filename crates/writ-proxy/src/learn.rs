//! The values that a case knows of its customer before its first answer: the proxy reads the declared personal columns itself.
//!
//! Names have no form of their own, so a free text shows those that its case does not know. Where they cannot be read, a free
//! text is one token as a whole.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Map;
use writ_operations::{Operation, OperationSet, PerformError, PersonalKind, TargetKind};
use writ_store::batch::{Batch, Op};
use writ_types::digest::Digest;
use writ_types::unit::Timestamp;

use crate::cases::OpenCase;
use crate::error::ProxyError;
use crate::mask::Masker;
use crate::proxy::ProxyState;

/// The most operations that are read for a case.
const MAX_SOURCES: usize = 64;
/// The most values that a case learns from them: a tenth of them is more than a customer has, and all are a copy of a table.
const MAX_LEARNED: usize = 2_000;
/// The time for all of them: the router waits for twice as long.
const READ_LIMIT: Duration = Duration::from_secs(5);
/// The time after which a reading that has failed is tried again.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// How far the values of a case's customer are known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Knowledge {
    /// They could not be read.
    #[default]
    Unread,
    /// All declared ones were read, and no operation has the name of a customer.
    Nameless,
    /// All declared ones are known, names among them.
    Named,
}

/// What was read for a case, and when.
#[derive(Debug, Default)]
pub(crate) struct Learned {
    knowledge: Knowledge,
    /// The operations that were in force.
    declared: Option<Digest>,
    tried_at: Option<Timestamp>,
}

/// The reason why nothing was learned.
enum LearnFault {
    Perform(PerformError),
    Store(ProxyError),
    /// There is more than a customer has.
    TooMuch,
    TooSlow,
}

/// Reads what is declared personal of a case's customer, once for each state of the operations, and returns how far it is
/// known.
pub(crate) async fn learn_customer(state: &ProxyState, case: &OpenCase) -> Knowledge {
    // Held while it is read: no request of the case is answered before.
    let mut learned = case.learned.lock().await;
    let (operations, now) = (state.operations(), state.clock.now());
    let is_current = learned.declared == Some(operations.digest());
    let is_early = learned.tried_at.is_some_and(|at| now >= at && now.time_since(at) < RETRY_AFTER);
    if !(is_current && (learned.knowledge != Knowledge::Unread || is_early)) {
        let read = tokio::time::timeout(READ_LIMIT, read_sources(state, case, &operations)).await;
        let read = read.unwrap_or(Err(LearnFault::TooSlow));
        let knowledge = read.unwrap_or_else(|fault| {
            warn_unread(&fault);
            Knowledge::Unread
        });
        *learned = Learned { knowledge, declared: Some(operations.digest()), tried_at: Some(now) };
    }
    // The router, or an answer, may have named the customer since.
    let is_named = || case.with_known(|known| known.has_kind(PersonalKind::Name));
    if learned.knowledge == Knowledge::Nameless && is_named() { Knowledge::Named } else { learned.knowledge }
}

async fn read_sources(
    state: &ProxyState,
    case: &OpenCase,
    operations: &OperationSet,
) -> Result<Knowledge, LearnFault> {
    let missing = state.targets.find_missing(operations);
    let is_missing = |name: &str| missing.iter().any(|(operation, _)| *operation == name);
    let sources = operations.iter().filter(|one| is_source(one) && !is_missing(one.name()));
    let sources: Vec<&Operation> = sources.take(MAX_SOURCES + 1).collect();
    if sources.len() > MAX_SOURCES {
        return Err(LearnFault::TooMuch);
    }
    let mut masker = Masker::new(&state.secret, &state.redactor, case);
    let mut knowledge = Knowledge::Nameless;
    for source in sources {
        let read = state.targets.rehearse(source, &BTreeMap::new(), &case.scope).await;
        let mut result = read.map_err(LearnFault::Perform)?;
        for row in &mut result.rows {
            row.retain(|(_, _, kind)| kind.is_some_and(|kind| kind != PersonalKind::Text));
        }
        // Only to make the tokens of the values.
        let _tokens = masker.mask_result(&result);
        if result.truncated || masker.fresh.len() > MAX_LEARNED {
            return Err(LearnFault::TooMuch);
        }
        if source.personal_columns().any(|(_, kind)| kind == PersonalKind::Name) {
            knowledge = Knowledge::Named;
        }
    }
    let fresh = masker.fresh;
    if !fresh.is_empty() {
        let stored = async {
            let values = state.cases.seal_values(&case.token, &fresh)?;
            state.store.commit(Batch::relaxed(vec![Op::Operations(values)])).await?;
            Ok(())
        };
        if let Err(error) = stored.await {
            state.cases.forget_case(&case.token);
            return Err(LearnFault::Store(error));
        }
        state.cases.share_values(case, &fresh);
    }
    Ok(knowledge)
}

/// Returns true for a statement that reads personal columns of the customer and needs nothing else to do so.
fn is_source(operation: &Operation) -> bool {
    let is_telling = |kind| !matches!(kind, PersonalKind::Text | PersonalKind::Customer | PersonalKind::Case);
    operation.kind() == TargetKind::Sql
        && operation.is_read()
        && operation.personal_columns().any(|(_, kind)| is_telling(kind))
        && operation.check_parameters(&Map::new()).is_ok()
}

fn warn_unread(fault: &LearnFault) {
    let why = match fault {
        LearnFault::Perform(error) => error.to_string(),
        LearnFault::Store(error) => error.to_string(),
        LearnFault::TooMuch => "there is more than the values of one customer".to_owned(),
        LearnFault::TooSlow => "the databases do not answer in time".to_owned(),
    };
    tracing::warn!(why, "the values of a case's customer are not known; free text is one token as a whole");
}
