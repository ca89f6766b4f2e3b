//! The values that a case knows of its customer before its first answer: the proxy reads the declared personal columns itself.
//!
//! Names have no form of their own, so a free text shows those that its case does not know. Where they cannot be read, a free
//! text is one token as a whole.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;
use writ_operations::{Operation, OperationSet, PersonalKind, TargetKind};
use writ_store::batch::{Batch, Op};
use writ_types::digest::Digest;
use writ_types::entry::{CustomerReading, Fact, SourceReading};
use writ_types::unit::Timestamp;

use crate::cases::{Cases, OpenCase, TokenValues};
use crate::mask::Masker;
use crate::proxy::ProxyState;

/// The most operations that are read for a case.
const MAX_SOURCES: usize = 64;
/// The most values that a case learns from them: a tenth of them is more than a customer has, and all are a copy of a table.
const MAX_LEARNED: usize = 2_000;
/// The quarters of a case's room for values that may be taken by then: the last one is for guests.
const ROOM_OF_LEARNED: usize = 3;
/// The time for one of them, which its statement has at its database as well.
const SOURCE_LIMIT: Duration = Duration::from_secs(2);
/// The time for all of them: the router waits for twice as long.
const READ_LIMIT: Duration = Duration::from_secs(5);
/// The time after which a reading that has failed is tried again.
const RETRY_AFTER: Duration = Duration::from_secs(5);
/// The same where some of the operations were read: all of them are read again.
const RETRY_REST_AFTER: Duration = Duration::from_secs(60);

/// How far the values of a case's customer are known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Knowledge {
    /// No operation that has the name of the customer could be read.
    #[default]
    Unread,
    /// What can be read was read, and no name was in it.
    Nameless,
    /// A name is known.
    Named,
}

/// What was read for a case, and when.
#[derive(Debug, Default)]
pub(crate) struct Learned {
    knowledge: Knowledge,
    /// An operation could not be read: it is tried again.
    is_partial: bool,
    /// The operations that were in force.
    declared: Option<Digest>,
    tried_at: Option<Timestamp>,
}

/// The values that operations had to tell of a case's customer, each for itself.
#[derive(Default)]
struct ReadSources {
    values: TokenValues,
    /// The operations, at most [`MAX_SOURCES`], with what was read of each or the reason why nothing was.
    sources: Vec<SourceReading>,
    /// The number of further ones.
    left_out: u64,
    /// An operation has names of customers.
    has_namer: bool,
    /// One that has names was read.
    has_read_namer: bool,
}

impl ReadSources {
    fn is_whole(&self) -> bool {
        self.left_out == 0 && self.sources.iter().all(|source| source.failure.is_empty())
    }
}

/// Reads what is declared personal of a case's customer, once for each state of the operations, and returns how far it is
/// known. Where some of it cannot be read, the rest is known.
pub(crate) async fn learn_customer(state: &ProxyState, case: &OpenCase) -> Knowledge {
    // Held while it is read: no request of the case is answered before.
    let mut learned = case.lasting.learned.lock().await;
    let (operations, now) = (state.operations(), state.clock.now());
    let is_current = learned.declared == Some(operations.digest());
    let wait = if learned.knowledge == Knowledge::Unread { RETRY_AFTER } else { RETRY_REST_AFTER };
    let is_early = learned.tried_at.is_some_and(|at| now >= at && now.time_since(at) < wait);
    if !(is_current && (!learned.is_partial || is_early)) {
        let sources = read_sources(state, case, &operations).await;
        let is_noted = note_sources(state, case, &sources).await;
        *learned = Learned {
            knowledge: match (sources.has_namer, sources.has_read_namer && is_noted) {
                (true, false) => Knowledge::Unread,
                (false, _) | (true, true) => Knowledge::Nameless,
            },
            is_partial: !(sources.is_whole() && is_noted),
            declared: Some(operations.digest()),
            // After the reading: those that have waited for it do not read again.
            tried_at: Some(state.clock.now()),
        };
    }
    // The router, or an answer, may have named the customer since.
    if case.with_known(|known| known.has_name()) { Knowledge::Named } else { learned.knowledge }
}

/// Reads each source for itself: what one cannot tell, another may.
async fn read_sources(state: &ProxyState, case: &OpenCase, operations: &OperationSet) -> ReadSources {
    let missing = state.targets.find_missing(operations);
    let is_missing = |name: &str| missing.iter().any(|(operation, _)| *operation == name);
    let mut sources: Vec<&Operation> =
        operations.iter().filter(|one| is_source(one) && !is_missing(one.name())).collect();
    // What has names first: nothing else tells of them.
    sources.sort_by_key(|source| !is_namer(source));
    let (begun, mut all) = (Instant::now(), ReadSources::default());
    for source in sources {
        all.has_namer |= is_namer(source);
        if all.sources.len() >= MAX_SOURCES {
            all.left_out = all.left_out.saturating_add(1);
            continue;
        }
        let left = READ_LIMIT.saturating_sub(begun.elapsed());
        let read = match left.is_zero() {
            true => Err("the others took too long".to_owned()),
            false => read_source(state, case, source, (left.min(SOURCE_LIMIT), &all.values)).await,
        };
        let (values, failure) = match read {
            Ok(values) => {
                let count = u64::try_from(values.len()).unwrap_or(u64::MAX);
                all.values.extend(values);
                all.has_read_namer |= is_namer(source);
                (count, String::new())
            }
            Err(why) => (0, why),
        };
        let columns = telling_columns(source).map(ToOwned::to_owned).collect();
        all.sources.push(SourceReading { operation: source.name().to_owned(), columns, values, failure });
    }
    all
}

/// Returns the values of a source that the case does not know.
async fn read_source(
    state: &ProxyState,
    case: &OpenCase,
    source: &Operation,
    (limit, others): (Duration, &TokenValues),
) -> Result<TokenValues, String> {
    let read = state.targets.rehearse(source, &BTreeMap::new(), &case.scope, limit).await;
    let mut result = read.map_err(|error| error.to_string())?;
    for row in &mut result.rows {
        row.retain(|(_, _, kind)| kind.is_some_and(|kind| kind != PersonalKind::Text));
    }
    let mut masker = Masker::new(&state.secret, &state.redactor, case);
    // Only to make the tokens of the values.
    let _masked = masker.mask_columns(&result);
    let mut values = masker.fresh;
    values.retain(|token, _| !others.contains_key(token));
    let together =
        || others.iter().chain(&values).map(|(token, value)| (token.clone(), value.clone())).collect();
    let is_too_much = result.truncated
        || others.len().saturating_add(values.len()) > MAX_LEARNED
        || (!values.is_empty() && !Cases::has_room(case, &together(), ROOM_OF_LEARNED));
    if is_too_much { Err("there is more than the values of one customer".to_owned()) } else { Ok(values) }
}

/// Writes what was read for a case, with the values, and adds these to what the case knows. Returns false if it cannot be
/// written: then nothing is known by it.
async fn note_sources(state: &ProxyState, case: &OpenCase, sources: &ReadSources) -> bool {
    let ReadSources { values, sources: listed, left_out, .. } = sources;
    if listed.is_empty() {
        return true;
    }
    for source in listed.iter().filter(|source| !source.failure.is_empty()) {
        let (operation, why) = (&source.operation, &source.failure);
        tracing::warn!(operation, why, "some of the values of a case's customer are not known");
    }
    let record = CustomerReading {
        case: case.token.clone(),
        customer: case.customer_token.clone(),
        sources: listed.clone(),
        left_out: *left_out,
    };
    let noted = async {
        let fact = Fact::CustomerRead { record: Box::new(record) };
        let mut ops = vec![state.make_entry(fact, None)];
        if !values.is_empty() {
            ops.push(Op::Operations(state.cases.seal_values(&case.token, values)?));
        }
        state.store.commit(Batch::relaxed(ops)).await?;
        Ok::<(), crate::error::ProxyError>(())
    };
    if let Err(error) = noted.await {
        tracing::error!(%error, "the values of a case's customer could not be recorded");
        return false;
    }
    case.learn_values(values.clone());
    state.cases.share_values(case, values);
    true
}

/// Returns true for a statement that reads personal columns of the customer and takes no parameters to do so.
fn is_source(operation: &Operation) -> bool {
    operation.kind() == TargetKind::Sql
        && operation.is_read()
        && telling_columns(operation).next().is_some()
        && operation.parameters().next().is_none()
}

/// Returns the columns that tell something of the customer beyond its own id.
fn telling_columns(operation: &Operation) -> impl Iterator<Item = &str> {
    let is_telling = |kind| !matches!(kind, PersonalKind::Text | PersonalKind::Customer | PersonalKind::Case);
    operation.personal_columns().filter(move |(_, kind)| is_telling(*kind)).map(|(column, _)| column)
}

fn is_namer(operation: &Operation) -> bool {
    operation.personal_columns().any(|(_, kind)| kind == PersonalKind::Name)
}
