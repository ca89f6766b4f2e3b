//! The approvals of each of several people, where more than one must approve.

use rusqlite::{Connection, params};
use serde_json::Value;
use writ_types::frame::Card;
use writ_types::id::AskId;

use super::NewPart;
use crate::bounds::MAX_READ_ROWS;
use crate::codec::{self, execute, query, query_one};
use crate::error::{Conflict, StoreError};

pub(crate) fn store_part(conn: &Connection, part: &NewPart) -> Result<(), StoreError> {
    let ask = part.ask.as_str();
    let sql = "SELECT card FROM ask WHERE id = ?1 AND state = 'open' AND expires_at > ?2";
    let params = params![ask, part.at.as_millis()];
    let card: Option<String> = query_one(conn, sql, params, |row| Ok(row.get(0)?))?;
    let card = card.ok_or_else(|| Conflict::AskNotOpen(part.ask.clone()))?;
    // Ask and signing key identify the row, so one person does not count as two.
    let sql = "INSERT OR IGNORE INTO approval_part (ask, approver, token, at) VALUES (?1, ?2, ?3, ?4)";
    let token = codec::to_json("approval", &part.token)?;
    if execute(conn, sql, params![ask, part.by, token, part.at.as_millis()])? == 0 {
        return Err(Conflict::Exists { what: "approval by this key of ask", id: part.ask.to_string() }.into());
    }
    let mut card: Card = codec::from_json("card", &card)?;
    // The card is what people see while others still must approve.
    card.approved_by.push(part.by.clone());
    execute(conn, "UPDATE ask SET card = ?2 WHERE id = ?1", params![ask, codec::to_json("card", &card)?])?;
    Ok(())
}

pub(crate) fn approval_parts(conn: &Connection, ask: &AskId) -> Result<Vec<Value>, StoreError> {
    let sql = "SELECT token FROM approval_part WHERE ask = ?1 ORDER BY at, approver LIMIT ?2";
    let params = params![ask.as_str(), codec::limit(MAX_READ_ROWS)];
    query(conn, sql, params, |row| codec::from_json("approval", &row.get::<_, String>("token")?))
}
