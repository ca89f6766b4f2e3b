//! Who had access to a case when, from the ledger alone.

use writ_store::ledger::row::{LedgerQuery, LedgerRow};
use writ_store::reads::LedgerReads as _;
use writ_store::store::Store;
use writ_types::api::fleet::{AccessInterval, CaseReading};
use writ_types::entry::{CaseRecord, Fact};
use writ_types::id::EntrySeq;
use writ_types::unit::Timestamp;

use super::error::CaseError;

/// The most entries of a case that are read.
pub const MAX_ACCESS_ENTRIES: usize = 10_000;
/// The entries that are read at once.
const PAGE: usize = 500;

/// The intervals of a case, and the readings of its conversation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CaseAccess {
    /// The intervals, in their order.
    pub intervals: Vec<AccessInterval>,
    /// The people who read its conversation, in their order.
    pub readings: Vec<CaseReading>,
    /// Entries that contradict those before them: none, unless the ledger was made elsewhere.
    pub contradictions: Vec<EntrySeq>,
}

impl CaseAccess {
    /// Takes in the next entry of the case.
    pub fn add_entry(&mut self, seq: EntrySeq, at: Timestamp, record: &CaseRecord) {
        if let Some(person) = &record.reader {
            self.readings.push(CaseReading { person: person.clone(), entry: seq, at });
        }
        let last = self.intervals.last_mut().filter(|one| one.until.is_none());
        match (&record.ended, last) {
            (Some(ended), Some(open)) if open.holder == *ended => {
                open.until = Some(at);
                open.ended_by = Some(record.change);
                open.reason.clone_from(&record.reason);
            }
            (Some(_), _) => self.contradictions.push(seq),
            (None, _) => {}
        }
        let Some(began) = &record.began else { return };
        // Nothing is smoothed over: a second holder would be shown as one.
        if self.intervals.last().is_some_and(|one| one.until.is_none()) {
            self.contradictions.push(seq);
        }
        self.intervals.push(AccessInterval {
            holder: began.clone(),
            began: seq,
            since: at,
            until: None,
            ended_by: None,
            reason: String::new(),
        });
    }
}

/// Reads who had access to a case when. The case is named by its id or its token.
///
/// # Errors
///
/// If the ledger cannot be read, or there are too many entries.
pub async fn read_access(store: &Store, case: &str) -> Result<CaseAccess, CaseError> {
    let mut rows: Vec<LedgerRow> = Vec::new();
    let session = case.parse().ok();
    let text = if session.is_some() { None } else { Some(case.to_owned()) };
    let mut query = LedgerQuery {
        event: Some("case_moved".to_owned()),
        session,
        text,
        limit: PAGE,
        ..LedgerQuery::default()
    };
    loop {
        let page = store.ledger_search(&query).await?;
        let Some(last) = page.last() else { break };
        // Page by page, newest first.
        query.before = Some(last.seq);
        rows.extend(page);
        if rows.len() > MAX_ACCESS_ENTRIES {
            return Err(CaseError::TooLarge { what: "entries of the case", limit: MAX_ACCESS_ENTRIES });
        }
    }
    let mut access = CaseAccess::default();
    for row in rows.iter().rev() {
        let Some(entry) = row.entry() else { continue };
        if let Fact::CaseMoved { record } = &entry.fact
            && (session.is_some() || record.case == case)
        {
            access.add_entry(row.seq, entry.at, record);
        }
    }
    Ok(access)
}

#[cfg(test)]
mod tests {
    use writ_types::entry::{CaseChange, HolderRecord};

    use super::*;

    fn holder(name: &str) -> HolderRecord {
        HolderRecord { name: name.into(), key: None, base: None, task: None }
    }

    fn moved(ended: Option<&str>, began: Option<&str>) -> CaseRecord {
        CaseRecord {
            case: "case_tk_1".into(),
            customer: "cust_tk_1".into(),
            change: CaseChange::Assigned,
            router: "router".into(),
            ended: ended.map(holder),
            began: began.map(holder),
            earlier: None,
            reader: None,
            target: String::new(),
            reason: "because".into(),
        }
    }

    #[test]
    fn two_holders_at_once_would_be_seen() {
        let add = |records: &[CaseRecord]| {
            let mut access = CaseAccess::default();
            for (n, record) in (0..).zip(records) {
                access.add_entry(EntrySeq(n), Timestamp::from_millis(0), record);
            }
            access
        };
        let good = [
            moved(None, Some("a")),
            moved(Some("a"), None),
            moved(None, Some("b")),
            moved(Some("b"), Some("b")),
        ];
        let access = add(&good);
        assert_eq!((access.intervals.len(), access.contradictions.len()), (3, 0));
        assert_eq!(add(&[moved(None, Some("a")), moved(None, Some("b"))]).contradictions, [EntrySeq(1)]);
        assert_eq!(add(&[moved(None, Some("a")), moved(Some("b"), None)]).contradictions, [EntrySeq(1)]);
    }
}
