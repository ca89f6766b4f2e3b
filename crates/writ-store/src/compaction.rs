//! Compactions: what stands in the context for the older part of a session's history.

use rusqlite::{Connection, Row, params};
use writ_types::id::{EntrySeq, SessionId};
use writ_types::taint::Label;
use writ_types::unit::{Timestamp, Tokens};

use crate::codec::{self, execute, get_time, get_uint, int, query, query_one};
use crate::error::{Conflict, StoreError};

/// The longest summary, in bytes: a page or two. The rest of a conversation is in its history.
pub const MAX_SUMMARY_BYTES: usize = 64 * 1024;

/// The most rows that one compaction leaves whole.
pub const MAX_KEPT_ROWS: usize = 64;

/// A compaction. It is never changed; the next one takes its place in the context, and it stays readable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compaction {
    /// The session.
    pub session: SessionId,
    /// Its number there, counted from one.
    pub number: u64,
    /// When.
    pub at: Timestamp,
    /// The last row of the history that it stands for.
    pub upto: u64,
    /// The text that stands for it.
    pub summary: String,
    /// The join of the labels of what was summarised.
    pub label: Label,
    /// The model that wrote the summary, or `harness`.
    pub written_by: String,
    /// Rows up to `upto` that stay whole, as long as there is room.
    pub kept: Vec<u64>,
    /// The number of messages that it stands for, those of earlier compactions included.
    pub messages: u64,
    /// Estimated tokens of the context before.
    pub tokens_before: Tokens,
    /// Estimated tokens of the context after.
    pub tokens_after: Tokens,
    /// The number of memories that were made of it.
    pub remembered: u64,
    /// The reason: `tokens`, `messages` or `asked`.
    pub reason: String,
    /// The entry that recorded it.
    pub entry: Option<EntrySeq>,
}

pub(crate) fn store_compaction(
    conn: &Connection,
    new: &Compaction,
    entry: Option<EntrySeq>,
) -> Result<(), StoreError> {
    // A compaction never takes back what an earlier one has covered.
    let last = read_newest(conn, new.session)?;
    let is_next = last.as_ref().map_or(0, |last| last.number) + 1 == new.number
        && last.is_none_or(|last| last.upto <= new.upto);
    if !is_next {
        return Err(Conflict::Exists { what: "compaction", id: new.number.to_string() }.into());
    }
    insert_compaction(conn, new, entry)
}

/// Inserts a compaction that follows no other, or the next one.
pub(crate) fn insert_compaction(
    conn: &Connection,
    new: &Compaction,
    entry: Option<EntrySeq>,
) -> Result<(), StoreError> {
    codec::check_size("summary", &new.summary)?;
    let (label, kept) = (codec::to_json("label", &new.label)?, codec::to_json("kept rows", &new.kept)?);
    let id = new.session.to_string();
    let added = execute(
        conn,
        "INSERT OR IGNORE INTO compaction
         (session, number, at, upto, summary, label, written_by, kept, messages, tokens_before, tokens_after, remembered,
          reason, entry)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)",
        params![
            id,
            int(new.number),
            new.at.as_millis(),
            int(new.upto),
            new.summary,
            label,
            new.written_by,
            kept,
            int(new.messages),
            int(new.tokens_before.get()),
            int(new.tokens_after.get()),
            int(new.remembered),
            new.reason,
            entry.map(|entry| int(entry.0)),
        ],
    )?;
    if added > 0 {
        return Ok(());
    }
    Err(Conflict::Exists { what: "compaction", id: new.number.to_string() }.into())
}

fn decode_compaction(row: &Row<'_>) -> Result<Compaction, StoreError> {
    Ok(Compaction {
        session: codec::parse("session id", &row.get::<_, String>("session")?)?,
        number: get_uint(row, "number")?,
        at: get_time(row, "at")?,
        upto: get_uint(row, "upto")?,
        summary: row.get("summary")?,
        label: codec::from_json("label", &row.get::<_, String>("label")?)?,
        written_by: row.get("written_by")?,
        kept: codec::from_json("kept rows", &row.get::<_, String>("kept")?)?,
        messages: get_uint(row, "messages")?,
        tokens_before: Tokens::new(get_uint(row, "tokens_before")?),
        tokens_after: Tokens::new(get_uint(row, "tokens_after")?),
        remembered: get_uint(row, "remembered")?,
        reason: row.get("reason")?,
        entry: row.get::<_, Option<i64>>("entry")?.map(|seq| EntrySeq(codec::uint(seq))),
    })
}

pub(crate) fn read_newest(conn: &Connection, session: SessionId) -> Result<Option<Compaction>, StoreError> {
    let sql = "SELECT * FROM compaction WHERE session = ?1 ORDER BY number DESC LIMIT 1";
    query_one(conn, sql, [session.to_string()], decode_compaction)
}

pub(crate) fn read_all(
    conn: &Connection,
    session: SessionId,
    limit: usize,
) -> Result<Vec<Compaction>, StoreError> {
    let sql = "SELECT * FROM compaction WHERE session = ?1 ORDER BY number DESC LIMIT ?2";
    query(conn, sql, params![session.to_string(), codec::limit(limit)], decode_compaction)
}

#[cfg(test)]
mod tests {
    use writ_types::taint::Taint;

    use super::*;
    use crate::batch::Op;
    use crate::reads::BlockingReads;
    use crate::testing::*;

    fn compaction(number: u64, upto: u64) -> Compaction {
        Compaction {
            session: session(1),
            number,
            at: Timestamp::from_millis(5),
            upto,
            summary: "They spoke of tea.".to_owned(),
            label: Label::new(Taint::External),
            written_by: "harness".to_owned(),
            kept: vec![3],
            messages: 7,
            tokens_before: Tokens::new(100),
            tokens_after: Tokens::new(40),
            remembered: 2,
            reason: "tokens".to_owned(),
            entry: None,
        }
    }

    #[test]
    fn the_newest_is_in_force_and_none_is_changed_or_goes_back() {
        let home = TestHome::new().with_session(1);
        let newest = |reads: &BlockingReads| reads.newest_compaction(session(1)).expect("reads");
        assert_eq!(newest(home.store.blocking()), None);
        let add =
            |number, upto| home.try_commit(vec![Op::Compact(Box::new(compaction(number, upto)))]).is_ok();
        assert!(add(1, 10));
        assert!(!add(1, 12), "a number is used once");
        assert!(!add(3, 12), "none is left out");
        assert!(!add(2, 9), "what was covered stays covered");
        assert!(add(2, 12));
        assert_eq!(newest(home.store.blocking()), Some(compaction(2, 12)));
        let all = home.store.blocking().compactions(session(1), 10).expect("reads");
        assert_eq!(all, [compaction(2, 12), compaction(1, 10)]);
    }
}
