//! Which tools a person has said yes to.

use rusqlite::params;
use writ_types::id::SessionId;

use crate::codec::{self, query};
use crate::error::StoreError;
use crate::store::Store;

/// The most tools of one session that are told as approved.
const MAX_APPROVED_TOOLS: usize = 256;

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
}
