//! Reads of a case's conversation, by the front end for the guest and by people. The ledger records reads by people.

use std::time::Duration;

use writ_policy::keys::ROUTER;
use writ_store::fleet::FleetCase;
use writ_store::ledger::row::LedgerQuery;
use writ_store::reads::{FleetReads as _, LedgerReads as _};
use writ_types::api::fleet::MessagePage;
use writ_types::entry::{CaseChange, CaseRecord, Fact, HolderRecord};
use writ_types::id::SessionId;

use super::error::CaseError;
use super::router::{CaseRouter, MAX_NAME_BYTES, check_text};
use super::texts;

/// The most messages of one answer.
pub(super) const MAX_LISTED_MESSAGES: usize = 200;
/// The time after which a further read by the same person is recorded again.
const READING_TIME: Duration = Duration::from_secs(24 * 60 * 60);
/// The number of entries that are fetched from the ledger at once.
const PAGE: usize = 100;

/// Lists the messages of an open or ended case after a message number.
///
/// # Errors
///
/// If there is no such case, or the store cannot be read.
pub(crate) async fn list_messages(
    router: &CaseRouter,
    id: SessionId,
    after: u64,
) -> Result<MessagePage, CaseError> {
    let row = read_case(router, id).await?;
    list_of(router, &row, after).await
}

/// Lists messages for a person, as [`list_messages`] does. Records the read in the ledger, unless the person has read the
/// case within a day and it has not changed hands since.
///
/// # Errors
///
/// If there is no such case, the store cannot be read, or the ledger cannot be written.
pub(crate) async fn list_for_person(
    router: &CaseRouter,
    person: &str,
    id: SessionId,
    after: u64,
) -> Result<MessagePage, CaseError> {
    check_text("name of the person", person, MAX_NAME_BYTES)?;
    let row = read_case(router, id).await?;
    record_reading(router, person, &row).await?;
    list_of(router, &row, after).await
}

async fn read_case(router: &CaseRouter, id: SessionId) -> Result<FleetCase, CaseError> {
    router.0.keys.store().fleet_case(id).await?.ok_or_else(|| CaseError::Unknown(id.to_string()))
}

async fn list_of(router: &CaseRouter, row: &FleetCase, after: u64) -> Result<MessagePage, CaseError> {
    let messages = router.0.keys.store().fleet_messages(row.id, after, MAX_LISTED_MESSAGES).await?;
    let messages = texts::show_messages(&*router.0.tokens, row, messages).await;
    Ok(MessagePage { is_open: row.is_open, messages })
}

async fn record_reading(router: &CaseRouter, person: &str, row: &FleetCase) -> Result<(), CaseError> {
    let _one_at_a_time = router.0.readings.lock().await;
    if is_recorded(router, person, row.id).await? {
        return Ok(());
    }
    let record = CaseRecord {
        case: row.case_token.clone(),
        customer: row.customer_token.clone(),
        change: CaseChange::Read,
        router: ROUTER.to_owned(),
        ended: None,
        began: None,
        earlier: None,
        reader: Some(person.to_owned()),
        target: String::new(),
        reason: format!("by {person}"),
    };
    let keys = &router.0.keys;
    keys.commit(vec![keys.entry(row.id, Fact::CaseMoved { record: Box::new(record) })]).await?;
    Ok(())
}

/// Returns true if the ledger has a read by this person that still counts. The ledger is searched each time, so that a restart
/// causes no second entry.
async fn is_recorded(router: &CaseRouter, person: &str, id: SessionId) -> Result<bool, CaseError> {
    let keys = &router.0.keys;
    let mut query = LedgerQuery {
        event: Some("case_moved".to_owned()),
        session: Some(id),
        since: Some(keys.now().minus_duration(READING_TIME)),
        limit: PAGE,
        ..LedgerQuery::default()
    };
    loop {
        let page = keys.store().ledger_search(&query).await?;
        // The entries come newest first, so the first one that is a read or a change of hands decides.
        for entry in page.iter().filter_map(|row| row.entry()) {
            let Fact::CaseMoved { record } = entry.fact else { continue };
            if record.reader.as_deref() == Some(person) {
                return Ok(true);
            }
            if has_changed_hands(&record) {
                return Ok(false);
            }
        }
        match page.last() {
            Some(last) if page.len() == PAGE => query.before = Some(last.seq),
            Some(_) | None => return Ok(false),
        }
    }
}

/// Returns true if a case passed to another holder. A renewed key does not change the holder.
fn has_changed_hands(record: &CaseRecord) -> bool {
    let name = |holder: &Option<HolderRecord>| holder.as_ref().map(|holder| holder.name.clone());
    name(&record.ended) != name(&record.began)
}
