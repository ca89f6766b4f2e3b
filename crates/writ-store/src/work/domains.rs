//! The domains of work items.

use rusqlite::{Connection, params};
use writ_types::id::ItemId;
use writ_types::work::{DomainTag, MAX_DOMAINS};

use crate::codec::{self, execute};
use crate::error::{Conflict, StoreError};

/// Adds a domain to an item, or removes it. Nothing changes if the item has it already, or has it not.
pub(super) fn set_domain(
    conn: &Connection,
    item: ItemId,
    domain: &DomainTag,
    is_set: bool,
) -> Result<(), StoreError> {
    let found = super::read_item(conn, item)?;
    let found = found.ok_or_else(|| Conflict::Missing { what: "work item", id: item.to_string() })?;
    let mut domains = found.domains;
    domains.retain(|other| other != domain);
    if is_set {
        if domains.len() >= MAX_DOMAINS {
            return Err(StoreError::TooLarge {
                what: "number of domains of a work item",
                limit: MAX_DOMAINS,
            });
        }
        domains.push(domain.clone());
    }
    domains.sort();
    let sql = "UPDATE work_item SET domains = ?2 WHERE id = ?1";
    execute(conn, sql, params![item.to_string(), codec::to_json("domains", &domains)?])?;
    Ok(())
}
