//! Results that are withheld from models, or stored because they are too long to be shown whole.

use rusqlite::{Connection, Row, params};
use writ_types::chat::Field;
use writ_types::digest::Digest;
use writ_types::id::SessionId;
use writ_types::taint::Label;
use writ_types::unit::Timestamp;

use crate::codec::{self, execute, get_time, get_uint, int, query_one};
use crate::error::{Conflict, StoreError};

/// The most withheld results of one session; the oldest are deleted first. A turn makes 20 tool calls by
/// default.
pub const MAX_KEPT_RESULTS: u64 = 200;

/// The most that they take together, in bytes; the newest stays in any case.
pub const MAX_KEPT_BYTES: u64 = 8 * 1024 * 1024;

/// A withheld result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WithheldResult {
    /// The session, which alone may name it.
    pub session: SessionId,
    /// Its number there.
    pub number: u64,
    /// When it came.
    pub at: Timestamp,
    /// The tool that returned it.
    pub tool: String,
    /// Its text, masked.
    pub text: String,
    /// The values of a structured result.
    pub fields: Vec<Field>,
    /// Its label: trust and origin.
    pub label: Label,
    /// True if the model may read it: it was only too long to be shown whole.
    pub readable: bool,
}

impl WithheldResult {
    /// The digest of its text.
    pub fn digest(&self) -> Digest {
        Digest::of_bytes(self.text.as_bytes())
    }
}

pub(crate) fn store_result(conn: &Connection, kept: &WithheldResult) -> Result<(), StoreError> {
    let (fields, label) = (codec::to_json("fields", &kept.fields)?, codec::to_json("label", &kept.label)?);
    codec::check_size("result", &kept.text)?;
    let bytes = u64::try_from(kept.text.len().saturating_add(fields.len())).unwrap_or(u64::MAX);
    let session = kept.session.to_string();
    let added = execute(
        conn,
        "INSERT OR IGNORE INTO kept_result (session, number, at, tool, text, fields, label, bytes, readable)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
        params![
            session,
            int(kept.number),
            kept.at.as_millis(),
            kept.tool,
            kept.text,
            fields,
            label,
            int(bytes),
            kept.readable,
        ],
    )?;
    if added == 0 {
        return Err(Conflict::Exists { what: "kept result", id: kept.number.to_string() }.into());
    }
    // Both bounds are enforced by one statement: the count, and the running sum of bytes from the newest down.
    execute(
        conn,
        "DELETE FROM kept_result WHERE session = ?1 AND number < ?2 AND number IN (
             SELECT number FROM (
                 SELECT number, row_number() OVER newer AS place, sum(bytes) OVER newer AS total
                 FROM kept_result WHERE session = ?1 WINDOW newer AS (ORDER BY number DESC)
             ) WHERE place > ?3 OR total > ?4)",
        params![session, int(kept.number), int(MAX_KEPT_RESULTS), int(MAX_KEPT_BYTES)],
    )?;
    Ok(())
}

pub(crate) fn drop_all(conn: &Connection, session: SessionId) -> Result<(), StoreError> {
    execute(conn, "DELETE FROM kept_result WHERE session = ?1", [session.to_string()])?;
    Ok(())
}

fn decode_result(row: &Row<'_>) -> Result<WithheldResult, StoreError> {
    Ok(WithheldResult {
        session: codec::parse("session id", &row.get::<_, String>("session")?)?,
        number: get_uint(row, "number")?,
        at: get_time(row, "at")?,
        tool: row.get("tool")?,
        text: row.get("text")?,
        fields: codec::from_json("fields", &row.get::<_, String>("fields")?)?,
        label: codec::from_json("label", &row.get::<_, String>("label")?)?,
        readable: row.get("readable")?,
    })
}

pub(crate) fn kept_result(
    conn: &Connection,
    session: SessionId,
    number: u64,
) -> Result<Option<WithheldResult>, StoreError> {
    let sql = "SELECT * FROM kept_result WHERE session = ?1 AND number = ?2";
    query_one(conn, sql, params![session.to_string(), int(number)], decode_result)
}

pub(crate) fn last_kept(conn: &Connection, session: SessionId) -> Result<u64, StoreError> {
    let sql = "SELECT coalesce(max(number), 0) AS last FROM kept_result WHERE session = ?1";
    let last = query_one(conn, sql, [session.to_string()], |row| get_uint(row, "last"))?;
    Ok(last.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use writ_types::taint::Taint;

    use super::*;
    use crate::batch::Op;
    use crate::testing::*;

    fn kept(of: u128, number: u64, text: String) -> WithheldResult {
        WithheldResult {
            session: session(of),
            number,
            at: Timestamp::from_millis(1),
            tool: "web_fetch".into(),
            text,
            fields: vec![Field { path: "/id".into(), value: "m-1".into() }],
            label: Label::new(Taint::External).mark_public(),
            readable: false,
        }
    }

    fn keep(result: WithheldResult) -> Op {
        Op::KeepResult(Box::new(result))
    }

    #[test]
    fn a_result_is_its_sessions_alone_survives_and_ends_with_it() {
        let home = TestHome::new().with_session(1).with_session(2);
        let first = kept(1, 1, "text".into());
        home.commit(vec![keep(first.clone())]);
        assert_eq!(home.store.blocking().withheld_result(session(1), 1), Ok(Some(first)));
        assert_eq!(home.store.blocking().withheld_result(session(2), 1), Ok(None), "not of another session");
        assert_eq!(
            (
                home.store.blocking().last_withheld(session(1)),
                home.store.blocking().last_withheld(session(2))
            ),
            (Ok(1), Ok(0))
        );
        assert!(home.try_commit(vec![keep(kept(1, 1, "other".into()))]).is_err(), "a number is used once");
        home.commit(vec![keep(kept(2, 1, "another".into())), Op::DropResults(session(1))]);
        assert_eq!(home.store.blocking().withheld_result(session(1), 1), Ok(None));
        assert!(home.store.blocking().withheld_result(session(2), 1).is_ok_and(|kept| kept.is_some()));
    }

    #[test]
    fn the_oldest_go_where_there_are_too_many_or_they_are_too_large() {
        let home = TestHome::new().with_session(1);
        let many = (1..=MAX_KEPT_RESULTS + 2).map(|number| keep(kept(1, number, "x".into()))).collect();
        home.commit(many);
        let is_there = |number| {
            home.store.blocking().withheld_result(session(1), number).is_ok_and(|kept| kept.is_some())
        };
        assert_eq!([1, 2, 3].map(is_there), [false, false, true]);
        let large = "y".repeat(usize::try_from(MAX_KEPT_BYTES / 2).expect("fits"));
        let next = MAX_KEPT_RESULTS + 3;
        home.commit(vec![keep(kept(1, next, large.clone())), keep(kept(1, next + 1, large))]);
        assert_eq!([next - 1, next, next + 1].map(is_there), [false, false, true], "within the bytes");
    }
}
