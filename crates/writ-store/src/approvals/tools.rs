//! Which tools and values a person has said yes to.

use rusqlite::params;
use writ_policy::prepared::Prepared;
use writ_types::id::SessionId;

use crate::codec::{self, query};
use crate::error::StoreError;
use crate::store::Store;

/// The most tools of one session that are told as approved.
const MAX_APPROVED_TOOLS: usize = 256;
/// The most answers of one session whose values are told as endorsed.
const MAX_ENDORSEMENTS: usize = 256;

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

    /// The values that a person has endorsed in a session, of the latest 256 such answers.
    ///
    /// # Errors
    ///
    /// If the database cannot be read.
    pub fn endorsed(&self, session: SessionId) -> Result<Vec<String>, StoreError> {
        let sql = "SELECT ask.prepared FROM ask JOIN approval ON approval.ask = ask.id
                   WHERE session = ?1 AND state = 'used' AND json_extract(token, '$.claims.values')
                   ORDER BY asked_at DESC LIMIT ?2";
        let most = codec::limit(MAX_ENDORSEMENTS);
        let rows = self.read(|conn| {
            query(conn, sql, params![session.to_string(), most], |row| {
                codec::from_json::<Prepared>("prepared action", &row.get::<_, String>("prepared")?)
            })
        })?;
        Ok(rows.into_iter().flat_map(|prepared| prepared.sinks).map(|sink| sink.value).collect())
    }
}
