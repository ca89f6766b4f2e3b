//! Which tools, values and hosts a person has said yes to.

use rusqlite::{Row, params};
use serde_json::Value;
use writ_types::id::SessionId;

use super::{Ask, decode_ask};
use crate::codec::{self, query};
use crate::error::StoreError;
use crate::store::Store;

/// The most tools of one session that are told as approved.
const MAX_APPROVED_TOOLS: usize = 256;
/// The most answers of one session whose values are told as endorsed.
const MAX_ENDORSEMENTS: usize = 256;
/// The most answers that name trusted hosts and are read, those among them that do not count any more.
const MAX_TRUSTING: usize = 4_096;

impl Store {
    /// The tools that a person has approved a call of in a session, sorted; at most 256.
    ///
    /// # Errors
    ///
    /// If the database cannot be read.
    pub fn approved_tools(&self, session: SessionId) -> Result<Vec<String>, StoreError> {
        let sql = "SELECT DISTINCT json_extract(prepared, '$.tool') AS tool FROM ask
                   WHERE session = ?1 AND state = 'used' ORDER BY tool LIMIT ?2";
        let most = codec::limit(MAX_APPROVED_TOOLS);
        self.read(|conn| query(conn, sql, params![session.to_string(), most], |row| Ok(row.get("tool")?)))
    }

    /// The latest 256 answers in a session, or in all, that say whose the values of their actions are, and that were not taken back:
    /// the asks, and what was signed.
    ///
    /// # Errors
    ///
    /// If the database cannot be read.
    pub fn endorsements(&self, session: Option<SessionId>) -> Result<Vec<(Ask, Value)>, StoreError> {
        let sql = "SELECT ask.*, approval.token FROM ask JOIN approval ON approval.ask = ask.id
                   WHERE (?1 IS NULL OR session = ?1) AND state = 'used' AND revoked = 0
                   AND json_extract(token, '$.claims.values') ORDER BY asked_at DESC LIMIT ?2";
        let most = codec::limit(MAX_ENDORSEMENTS);
        let session = session.map(|id| id.to_string());
        self.read(|conn| query(conn, sql, params![session, most], with_token))
    }

    /// The latest answers that make hosts trusted ones, and that were not taken back, at most 4,096: the asks, and
    /// what was signed.
    ///
    /// # Errors
    ///
    /// If the database cannot be read.
    pub fn trusting(&self) -> Result<Vec<(Ask, Value)>, StoreError> {
        // The index serves exactly this condition; an inner join could be turned round.
        let sql = "SELECT ask.*, approval.token FROM approval CROSS JOIN ask ON ask.id = approval.ask
                   WHERE approval.revoked = 0 AND json_extract(approval.token, '$.claims.host') IS NOT NULL AND ask.state = 'used'
                   ORDER BY asked_at DESC LIMIT ?1";
        self.read(|conn| query(conn, sql, [codec::limit(MAX_TRUSTING)], with_token))
    }
}

fn with_token(row: &Row<'_>) -> Result<(Ask, Value), StoreError> {
    Ok((decode_ask(row)?, codec::from_json("approval", &row.get::<_, String>("token")?)?))
}
